"""Read the text source of an exercise set into a notebook with complete nbgrader metadata."""

import ast
import contextlib
import hashlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
INSTALL = '%pip install "attn-course @ git+https://github.com/attn-course/attn-course"'
INSTALLED = """# Is the course installed, with everything that this notebook uses?
try:
    import torch
{imports}
except ImportError as missing:
    print(missing)
    print("Run the next line in a cell of its own, then restart the kernel:")
    print({install!r})"""
_CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SOLUTION = ("### BEGIN SOLUTION", "### END SOLUTION")
_HIDDEN = ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")


@contextlib.contextmanager
def _without(module: str) -> Iterator[None]:
    """Import something without an optional module below it.

    nbformat imports jsonschema, which compiles grammars of web addresses where it can: three
    seconds for what no notebook needs.
    """
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[module]


def find_slugs(root: Path) -> list[str]:
    """Return the exercise sets of a checkout, in order."""
    return sorted(p.parent.name for p in (root / "solutions").glob("*/exercise.py"))


def read_exercise(path: Path) -> Any:
    """Read ``exercise.py`` (jupytext percent format) as a notebook with fixed metadata and ids.

    A cell's nbgrader metadata needs only what differs from the defaults: ``grade_id``, and
    ``solution`` for a learner's cell, ``grade`` and ``points`` for a graded one.
    ``attn_course={"forbidden": ["softmax"]}`` on a learner's cell names library calls that the
    grader refuses to it (see ``grading/jail/shortcuts.py`` for the forms of a name).
    Test cells and cells that are neither are locked.

    Raises:
        ValueError: If an id is missing, malformed or used twice, a marker is unbalanced or
            misplaced, a test cell has no points, or a cell is not Python.
    """
    with _without("rfc3987_syntax"):
        import jupytext

    notebook = jupytext.read(path, fmt="py:percent")
    _check_first(notebook)
    seen: dict[str, int] = {}
    for number, cell in enumerate(notebook.cells, start=1):
        given = cell.metadata.get("nbgrader")
        where = f"{path.parent.name}/{path.name}, cell {number}"
        ours = cell.metadata.get("attn_course")
        cell.metadata = {}
        if ours is not None:
            cell.metadata["attn_course"] = {"forbidden": _forbidden(ours, given, where)}
        if given is not None:
            cell.metadata["nbgrader"] = _complete(given, cell, where)
            name = given["grade_id"]
        else:
            name = "text-" + hashlib.sha256(cell.source.encode()).hexdigest()[:10]
            if name in seen:
                seen[name] += 1
                name = f"{name}-{seen[name]}"
        if name in seen:
            raise ValueError(f"{where}: grade_id {name!r} is used twice")
        seen[name] = 1
        _check_markers(cell, given is not None, where)
        if cell.cell_type == "code":
            try:
                ast.parse(cell.source)
            except SyntaxError as error:
                raise ValueError(f"{where}: not Python: {error}") from None
            cell.outputs, cell.execution_count = [], None
        cell["id"] = name
    notebook.metadata = {
        "kernelspec": dict(KERNEL),
        "language_info": {"name": "python"},
        "attn_course": _table_of_cells(notebook, path.parent.name),
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def _check_first(notebook: Any) -> None:
    """Put a cell before the others that prints what to install where something is missing.

    It makes the imports of the first code cell, so that a package too old for the set is noticed
    as well as one that is not there.
    """
    from nbformat.v4 import new_code_cell

    for place, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        try:
            body = ast.parse(cell.source).body
        except SyntaxError:
            return
        imports = [
            "    " + ast.unparse(node)
            for node in body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attn_course")
        ]
        if imports:
            made = new_code_cell(INSTALLED.format(imports="\n".join(imports), install=INSTALL))
            made.metadata["nbgrader"] = {"grade_id": "installed"}
            notebook.cells.insert(place, made)
        return


def solution_names(notebook: Any) -> dict[str, str]:
    """Return the functions and classes that the learner writes, each with its cell's id."""
    found: dict[str, str] = {}
    for cell in notebook.cells:
        meta = cell.metadata.get("nbgrader", {})
        if cell.cell_type == "code" and meta.get("solution"):
            for node in ast.parse(cell.source).body:
                # a decorated function is a kernel, a part of the function that launches it
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list:
                    found[node.name] = meta["grade_id"]
    return found


def regions(cell: Any) -> tuple[str, list[str]]:
    """The public text of a cell, and its solution and hidden-test regions."""
    if cell.cell_type == "markdown" and cell.metadata.get("nbgrader", {}).get("solution"):
        return "", [cell.source]
    public, secret = str(cell.source), []
    for begin, end in (_SOLUTION, _HIDDEN):
        public, *parts = public.split(begin)
        for part in parts:
            hidden, _, rest = part.partition(end)
            secret.append(hidden)
            public += rest
    return public, secret


def _table_of_cells(notebook: Any, slug: str) -> dict[str, Any]:
    """Say in the notebook itself which cells belong to it, so that a lost one is noticed."""
    metas = [cell.metadata["nbgrader"] for cell in notebook.cells if "nbgrader" in cell.metadata]
    names = solution_names(notebook)
    tests = {m["grade_id"]: m["points"] for m in metas if m["grade"] and not m["solution"]}
    for grade_id in tests:
        if "-" not in grade_id or grade_id.split("-")[0] not in names:
            raise ValueError(
                f"{slug}: grade_id of a test cell: expected <function>-<property> "
                f"with a function of the set, got {grade_id!r}"
            )
    solutions = [m["grade_id"] for m in metas if m["solution"]]
    hidden = sum(_HIDDEN[0] in cell.source for cell in notebook.cells)
    return {"slug": slug, "solutions": solutions, "tests": tests, "hidden": hidden}


def _forbidden(ours: Any, given: Any, where: str) -> list[str]:
    names = ours.get("forbidden") if isinstance(ours, dict) else None
    good = isinstance(names, list) and all(isinstance(n, str) and n for n in names) and names
    if not good or set(ours) != {"forbidden"}:
        raise ValueError(f'{where}: attn_course: expected {{"forbidden": [names]}}, got {ours!r}')
    if not (given and given.get("solution")):
        raise ValueError(f"{where}: forbidden calls belong on a learner's cell")
    return [str(name) for name in names or ()]


def _complete(given: dict[str, Any], cell: Any, where: str) -> dict[str, Any]:
    grade_id = given.get("grade_id", "")
    if not _CELL_ID.fullmatch(str(grade_id)):
        raise ValueError(
            f"{where}: grade_id: expected up to 64 letters, digits, - and _, got {grade_id!r}"
        )
    unknown = set(given) - {"grade_id", "solution", "grade", "points", "locked", "task"}
    unknown -= {"schema_version", "cell_type"}
    if unknown:
        raise ValueError(f"{where}: unknown nbgrader metadata {sorted(unknown)}")
    solution, grade = bool(given.get("solution")), bool(given.get("grade"))
    if grade and not given.get("points"):
        raise ValueError(f"{where}: the graded cell {grade_id} has no points")
    if "points" in given and not grade:
        raise ValueError(f"{where}: the cell {grade_id} has points but is not graded")
    complete = {
        "cell_type": cell.cell_type,
        "grade": grade,
        "grade_id": grade_id,
        "locked": bool(given.get("locked", not solution)),
        "schema_version": 3,
        "solution": solution,
        "task": bool(given.get("task", False)),
    }
    if grade:
        complete["points"] = given["points"]
    return complete


def _check_markers(cell: Any, has_metadata: bool, where: str) -> None:
    for begin, end in (_SOLUTION, _HIDDEN):
        if cell.source.count(begin) != cell.source.count(end):
            raise ValueError(f"{where}: {begin!r} and {end!r} do not pair up")
    meta = cell.metadata.get("nbgrader", {})
    if _SOLUTION[0] in cell.source and not meta.get("solution"):
        raise ValueError(f"{where}: a solution region outside a solution cell would be released")
    if _HIDDEN[0] in cell.source and not (meta.get("grade") and not meta.get("solution")):
        raise ValueError(f"{where}: a hidden-test region outside a test cell would be released")
    is_learners = meta.get("solution") and cell.cell_type == "code"
    if is_learners and _SOLUTION[0] not in cell.source:
        raise ValueError(f"{where}: a solution cell needs a region {_SOLUTION[0]!r}")
