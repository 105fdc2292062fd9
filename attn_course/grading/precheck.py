"""``attn-course precheck``: find the ordinary mistakes that stop or spoil a stock nbgrader batch.

Nothing is run. What each mistake does was measured with nbgrader 0.9.6; ``attn-course grade``
copes with all of them, so this is for those who stay with ``nbgrader autograde``.
"""

import ast
import dataclasses
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import (
    Assignment,
    cell_source,
    grade_metadata,
    load_assignment,
)
from attn_course.exercises.submission import MAX_SOURCE, Unreadable, parse_notebook
from attn_course.grading.collect import CollectError, Handed, collect
from attn_course.grading.mend import Cell, Templates, known_id, mended, recovered_ids
from attn_course.grading.startup import notebooks_alone

SCHEMA = 3
HUGE_OUTPUT = 1 << 20
CONFLICT = re.compile(r"^<{7}( |$).*^>{7}( |$)", re.M | re.S)
EFFECTS = {
    "batch": "stops the whole batch",
    "submission": "is not graded",
    "points": "loses points",
    "note": "harmless, but unusual",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One mistake in one submission.

    Args:
        student: whose it is.
        kind: short name of the mistake.
        effect: on stock nbgrader: ``batch``, ``submission``, ``points`` or ``note``.
        text: what was found, and where.
        remedy: how to mend it.
        mends: whether ``--fix`` does.
    """

    student: str
    kind: str
    effect: str
    text: str
    remedy: str
    mends: bool = False


def inspect(handed: Handed, assignment: Assignment, templates: Templates) -> list[Finding]:
    """Everything that is wrong with what one student handed in."""

    def finding(kind: str, effect: str, text: str, remedy: str, mends: bool = False) -> Finding:
        return Finding(
            student=handed.student, kind=kind, effect=effect, text=text, remedy=remedy, mends=mends
        )

    name = f"{assignment.slug}.ipynb"
    if handed.data is None:
        return [finding("missing", "submission", f"there is no {name}", "ask for it")]
    if isinstance(handed.data, str):
        return [finding("unreadable", "submission", handed.data, "ask for a proper file")]
    found = []
    if handed.note:
        text = f"{handed.note}, not {name}: nbgrader finds no notebook"
        found.append(finding("renamed", "submission", text, f"name it {name}", True))
    try:
        notebook = parse_notebook(handed.data)
    except Unreadable as error:
        remedy = "ask for the file again"
        if "merge-conflict" in str(error):
            remedy = "choose one side of each conflict (git checkout --ours, or nbdime)"
        return [*found, finding("unreadable", "submission", str(error), remedy)]
    if handed.data[:3] == b"\xef\xbb\xbf" or handed.data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = "the file begins with a byte-order mark, which no JSON reader takes"
        found.append(finding("encoding", "submission", text, "save it as plain UTF-8", True))
    for kind, effect, text, remedy, mends in _problems(notebook, assignment, templates):
        found.append(finding(kind, effect, text, remedy, mends))
    return found


Problem = tuple[str, str, str, str, bool]


def _problems(
    notebook: dict[str, Any], assignment: Assignment, templates: Templates
) -> Iterator[Problem]:
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict)]
    if len(cells) < len(notebook["cells"]):
        text = f"{len(notebook['cells']) - len(cells)} cells are malformed"
        yield "malformed", "submission", text, "drop them", True
    if notebook.get("nbformat") != 4:
        text = f"the file is of notebook format {notebook.get('nbformat')}"
        yield "old format", "note", text, "save it in a current Jupyter", True
    elif len(cells) == len(notebook["cells"]) and (wrong := _invalid(notebook)):
        lost = any(not isinstance(cell.get("metadata"), dict) for cell in cells)
        effect = "submission" if lost else "note"
        yield "malformed", effect, wrong, "save it in a current Jupyter", True
    yield from _kernel(notebook, templates)
    yield from _metadata(cells, assignment, templates)
    yield from _outputs(cells, templates)
    for number, cell in enumerate(cells, start=1):
        name = known_id(cell, templates)
        if len(cell_source(cell)) > MAX_SOURCE:
            text = f"the cell {name or number} has {len(cell_source(cell))} characters"
            yield "huge cell", "note", text, "ask what it is for", False
        elif cell.get("cell_type") == "code" and not (name and templates.ours(name)):
            yield from _code(cell_source(cell), f"the cell {name or number}")


def _invalid(notebook: dict[str, Any]) -> str:
    import warnings

    with notebooks_alone():
        import nbformat

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cell ids that it corrects
            nbformat.validate(json.loads(json.dumps(notebook)), relax_add_props=True)
    except nbformat.ValidationError as error:
        return f"it is no valid notebook: {str(error).splitlines()[0][:160]}"
    except Exception as error:
        return f"it is no valid notebook: {type(error).__name__}: {str(error)[:160]}"
    return ""


def _kernel(notebook: dict[str, Any], templates: Templates) -> Iterator[Problem]:
    meta = notebook.get("metadata")
    given = meta.get("kernelspec") if isinstance(meta, dict) else None
    given = given.get("name") if isinstance(given, dict) else None
    wanted = templates.metadata.get("kernelspec", {}).get("name", "python3")
    if given != wanted:
        text = f"the kernel is {given!r}, the assignment's is {wanted!r}"
        # the gradebook's kernelspec replaces it, if the assignment was generated with one
        effect = "note" if "kernelspec" in templates.metadata else "submission"
        yield "kernel", effect, text, f"set kernelspec.name to {wanted}", True


def _metadata(cells: list[Cell], assignment: Assignment, templates: Templates) -> Iterator[Problem]:
    counts = Counter(name for cell in cells if (name := known_id(cell, templates)))
    given = Counter(json.dumps(grade_metadata(cell).get("grade_id")) for cell in cells)
    if any(count > 1 for _, count in _unknown(given, templates)):
        text = "cells share a grade_id that the assignment does not have"
        yield "duplicate id", "batch", text, "remove their nbgrader metadata", True
    recovered = set(recovered_ids(cells, templates, assignment.solutions).values())
    for name, count in counts.items():
        if count > 1:
            text = f"the cell {name} is there {count} times"
            remedy = "keep one (--fix keeps the last answer, as it is the one that runs last)"
            yield "duplicate id", "batch", text, remedy, True
    if not counts:
        text = "no cell carries a grade_id of this assignment"
        remedy = f"{len(recovered)} of {len(templates.cells)} cells can be told from their text"
        remedy += "" if recovered else ": ask for the file that was released"
        yield "stripped", "submission", text, remedy, bool(recovered)
    schemas = {v for cell in cells if (v := _schema(cell)) != SCHEMA and v is not None}
    if schemas:
        text = f"nbgrader metadata of schema {', '.join(map(str, sorted(schemas, key=str)))}"
        yield "old schema", "batch", f"{text}, not {SCHEMA}", "nbgrader update", True
    for name in templates.cells:
        is_test, ours = templates.is_test(name), templates.ours(name)
        if name not in counts and counts:
            kind = "deleted test" if is_test else "deleted cell"
            text = f"the {'test ' if is_test else ''}cell {name} has no metadata or is gone"
            remedy = "put the instructor's cell back" if ours else "ask for the answer"
            if name in recovered:
                kind, remedy = "stripped", "give the cell its metadata back"
            yield kind, "points", text, remedy, ours or name in recovered
    strange = [cell for cell in cells if grade_metadata(cell) and not known_id(cell, templates)]
    if strange:
        ids = [_short(grade_metadata(cell).get("grade_id")) for cell in strange]
        text = f"{len(ids)} cells have a grade_id that the assignment does not have: {ids[0]}"
        yield "unknown id", "submission", text, "remove their nbgrader metadata", True
    for cell in cells:
        name = known_id(cell, templates)
        if name is None:
            continue
        template = templates.cells[name]
        if cell.get("cell_type") != template["cell_type"]:
            text = f"the cell {name} was turned into {cell.get('cell_type')}"
            yield "cell type", "note", text, f"make it {template['cell_type']} again", True
        elif templates.ours(name) and _plain(cell_source(cell)) != _plain(template["source"]):
            text = f"the cell {name} was edited"
            yield "edited cell", "note", text, "nothing: nbgrader takes the original", True


def _unknown(given: Counter[str], templates: Templates) -> list[tuple[str, int]]:
    known = {json.dumps(name) for name in templates.cells} | {"null"}
    return [(name, count) for name, count in given.items() if name not in known]


def _schema(cell: Cell) -> object:
    metadata = cell.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("nbgrader"), dict):
        return None
    return metadata["nbgrader"].get("schema_version", 0)


def _short(value: object) -> str:
    return json.dumps(value)[:80]


def _plain(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def _outputs(cells: list[Cell], templates: Templates) -> Iterator[Problem]:
    for number, cell in enumerate(cells, start=1):
        outputs = cell.get("outputs")
        if not isinstance(outputs, list) or not outputs:
            continue
        where = f"the cell {known_id(cell, templates) or number}"
        size = len(json.dumps(outputs))
        if size > HUGE_OUTPUT:
            text = f"{where} holds {size / (1 << 20):.1f} MiB of output"
            yield "huge output", "note", text, "clear the outputs", True
        name = known_id(cell, templates)
        loud = [o for o in outputs if isinstance(o, dict) and o.get("name") == "stderr"]
        if name and templates.is_test(name) and loud:
            text = f"{where} wrote to stderr when it was run: nbgrader takes that for a failure"
            yield "stderr", "points", text, "silence the warning in the answer", False


def _code(source: str, where: str) -> Iterator[Problem]:
    if CONFLICT.search(source):
        text = f"{where} holds merge-conflict marks"
        yield "merge conflict", "points", text, "choose one side", False
        return
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except SyntaxError as error:
        text = f"{where} is no Python: line {error.lineno}: {error.msg}"
        yield "syntax", "points", text, "ask, or grade it as it is", False
        return
    except (ValueError, RecursionError, MemoryError):
        yield "syntax", "points", f"{where} cannot be parsed", "ask, or grade it as it is", False
        return
    for kind, text, remedy in sorted(set(_habits(tree))):
        yield kind, "points", f"{where} {text}", remedy, False


def _habits(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node) if isinstance(node.value, ast.Name) else ""
            if dotted in ("sys.stderr", "warnings.warn", "logging.warning", "logging.error"):
                text = f"uses {dotted}: text on stderr makes nbgrader's test cells fail"
                yield "stderr", text, "silence it, or grade with attn-course grade"
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ""
        if called == "input" and "input" not in defined:
            yield "input", "calls input(), which fails where nobody types", "put a value there"
        elif called in ("exit", "quit", "os._exit", "os.abort") and called not in defined:
            yield "exit", f"calls {called}(), which ends the kernel", "remove it"


def precheck(
    submissions: Path,
    *,
    notebook: bytes,
    slug: str,
    fix: Path | None = None,
) -> tuple[list[Finding], list[str]]:
    """Look through a batch; with ``fix``, also write copies that stock nbgrader can grade.

    Args:
        submissions: a folder, a notebook or a zip, as for ``attn-course grade``.
        notebook: bytes of the instructor's version.
        slug: name of the assignment.
        fix: folder for ``<student>/<slug>/<slug>.ipynb``; must be new, or empty.

    Returns:
        The findings, by student, and the students whose files were written.

    Raises:
        CollectError: there is nothing to check, or ``fix`` is not a place to write to.
    """
    assignment, templates = load_assignment(notebook, slug), Templates(notebook)
    handed = collect(submissions, slug)
    if fix is not None:
        _check_target(fix, submissions)
    findings, written = [], []
    for item in handed:
        found = inspect(item, assignment, templates)
        findings += found
        if fix is None or not isinstance(item.data, bytes):
            continue
        data = item.data
        if any(one.mends for one in found):
            try:
                data = mended(data, templates, assignment.solutions)
            except Unreadable:
                continue
        elif any(one.kind == "unreadable" for one in found):
            continue
        _write(item, data, slug, submissions, fix)
        written.append(item.student)
    return findings, written


def _check_target(fix: Path, submissions: Path) -> None:
    target, source = fix.resolve(), submissions.resolve()
    if target == source or target.is_relative_to(source) or source.is_relative_to(target):
        raise CollectError(f"--fix: expected a folder apart from the submissions, got {fix}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CollectError(f"--fix: expected a new or empty folder, got {fix}")


def _write(item: Handed, data: bytes, slug: str, submissions: Path, fix: Path) -> None:
    from attn_course.grading.exports import file_name

    folder = fix / file_name(item.student) / slug
    folder.mkdir(parents=True, exist_ok=True)
    if submissions.is_dir():
        beside = submissions / item.student / slug
        for path in sorted(beside.iterdir()) if beside.is_dir() else ():
            if path.is_file() and not path.is_symlink() and path.suffix != ".ipynb":
                shutil.copyfile(path, folder / path.name)
    (folder / f"{slug}.ipynb").write_bytes(data)


def report(findings: list[Finding], written: list[str], *, fix: Path | None, as_json: bool) -> int:
    """Print what was found.

    Returns:
        0 when nothing is left that costs points or stops nbgrader, 1 otherwise.
    """
    grave = [one for one in findings if one.effect != "note"]
    left = [one for one in grave if not (fix is not None and one.mends)]
    if as_json:
        rows = [dataclasses.asdict(one) for one in findings]
        print(json.dumps({"findings": rows, "written": written}, indent=2))
        return 1 if left else 0
    student = None
    for one in findings:
        if one.student != student:
            student = one.student
            print(f"{student}:")
        state = "mended" if one.mends and fix is not None else one.remedy
        mark = " (--fix does it)" if one.mends and fix is None else ""
        print(f"  {one.kind}: {one.text} [{EFFECTS[one.effect]}]; {state}{mark}")
    students = len({one.student for one in grave})
    print(f"{len(grave)} mistakes that matter to nbgrader, of {students} students", file=sys.stderr)
    if fix is not None:
        print(f"{len(written)} submissions written to {fix}", file=sys.stderr)
    return 1 if left else 0
