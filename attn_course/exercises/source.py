"""Read the text source of an exercise set into a notebook with complete nbgrader metadata."""

import ast
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attn_course import __version__
from attn_course.exercises.assignment import LOOK, grade_metadata, statements
from attn_course.exercises.plan import is_more, read_plan, say_minutes

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
INSTALL = '%pip install "attn-course[book] @ git+{repository}"'
INSTALLED = """# Is the course installed, with everything that this notebook uses?
try:
    import torch
{imports}
except ImportError as missing:
    print(missing)
    print("Run the next line in a cell of its own, then restart the kernel:")
    print({install!r})"""
_CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GIVEN = {"grade_id", "solution", "grade", "points", "locked"}
_SOLUTION = ("### BEGIN SOLUTION", "### END SOLUTION")
_HIDDEN = ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")
MARKERS = (*_SOLUTION, *_HIDDEN)


def find_slugs(root: Path) -> list[str]:
    """Return the exercise sets of a checkout, in order."""
    return sorted(p.parent.name for p in (root / "solutions").glob("*/exercise.py"))


def read_exercise(path: Path, *, core: bool = False) -> Any:
    """Read ``exercise.py`` (jupytext percent format) as a notebook with fixed metadata and ids.

    A cell's nbgrader metadata needs only what differs from the defaults: ``grade_id``, and
    ``solution`` for a learner's cell, ``grade`` and ``points`` for a graded one.
    ``attn_course={"forbidden": ["softmax"]}`` on a learner's cell names library calls that the
    grader refuses to it (see ``shortcuts.py`` for the forms of a name).
    ``attn_course={"look": true}`` is on a cell that shows what the learner's functions do: no
    grader runs it. All other cells are locked.

    Args:
        path: The text source.
        core: Leave out what stands after the heading ``# More``.

    Raises:
        ValueError: If a cell is faulty (see ``_faults``), or an id is used twice.
    """
    notebook = _jupytext().read(path, fmt="py:percent")
    if core:
        end = next((i for i, cell in enumerate(notebook.cells) if is_more(cell)), None)
        notebook.cells = notebook.cells[:end]
    _check_first(notebook, path.parents[2])
    used: Counter[str] = Counter()
    for number, cell in enumerate(notebook.cells, start=1):
        where = f"{path.parent.name}/{path.name}, cell {number}"
        for fault in _faults(cell):
            raise ValueError(f"{where}: {fault}")
        given = grade_metadata(cell)
        digest = hashlib.sha256(cell.source.encode()).hexdigest()
        name = given.get("grade_id", f"text-{digest[:10]}")
        used[name] += 1
        if given and used[name] > 1:
            raise ValueError(f"{where}: grade_id {name!r} is used twice")
        cell["id"] = name if used[name] == 1 else f"{name}-{used[name]}"
        ours = grade_metadata(cell, "attn_course")
        cell.metadata = {"attn_course": ours} if ours else {}
        if given:
            cell.metadata["nbgrader"] = _complete(given, cell.cell_type)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata = {
        "kernelspec": dict(KERNEL),
        "language_info": {"name": "python"},
        "attn_course": _table_of_cells(notebook, path.parent),
    }
    say_minutes(notebook.cells)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def _jupytext() -> Any:
    """The package, without what jsonschema compiles where it can: web addresses, for 3 s."""
    absent = sys.modules.setdefault("rfc3987_syntax", None) is None  # type: ignore[arg-type]
    import jupytext

    if absent:
        del sys.modules["rfc3987_syntax"]
    return jupytext


def repository(root: Path) -> str:
    """Address of the repository, which ``book/_config.yml`` sets.

    Raises:
        ValueError: If it does not.
    """
    path = root / "book" / "_config.yml"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if found := re.search(r"^repository:\s+url: (https://github\.com/\S+)$", text, re.M):
        return found[1]
    raise ValueError(f"{path}: expected 'repository:' and below it 'url: https://github.com/...'")


def _check_first(notebook: Any, root: Path) -> None:
    """Put a cell before the others that prints what to install where something is missing.

    It makes the imports of the first code cell, so that a package too old for the set is noticed
    as well as one that is not there.
    """
    from nbformat.v4 import new_code_cell

    place = next((i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"), None)
    imports = [
        "    " + ast.unparse(node)
        for node in (statements(notebook.cells[place].source) if place is not None else ())
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attn_course")
    ]
    if imports:
        install = INSTALL.format(repository=repository(root))
        made = new_code_cell(INSTALLED.format(imports="\n".join(imports), install=install))
        made.metadata["nbgrader"] = {"grade_id": "installed"}
        notebook.cells.insert(place, made)


def solution_names(notebook: Any) -> dict[str, str]:
    """Return the functions and classes that the learner writes, each with its cell's id."""
    return {
        node.name: meta["grade_id"]
        for cell in notebook.cells
        if cell.cell_type == "code" and (meta := grade_metadata(cell)).get("solution")
        for node in statements(cell.source)
        # a decorated function is a kernel, a part of the function that launches it
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list
    }


def regions(cell: Any) -> tuple[str, list[str]]:
    """The public text of a cell, and its solution and hidden-test regions."""
    if cell.cell_type == "markdown" and grade_metadata(cell).get("solution"):
        return "", [cell.source]
    public, secret = str(cell.source), []
    for begin, end in (_SOLUTION, _HIDDEN):
        public, *parts = public.split(begin)
        for part in parts:
            hidden, _, rest = part.partition(end)
            secret.append(hidden)
            public += rest
    return public, secret


def _table_of_cells(notebook: Any, folder: Path) -> dict[str, Any]:
    """Say in the notebook itself which cells belong to it, so that a lost one is noticed."""
    metas = [cell.metadata["nbgrader"] for cell in notebook.cells if "nbgrader" in cell.metadata]
    names, plan = solution_names(notebook), read_plan(notebook.cells)
    tests = {m["grade_id"]: m["points"] for m in metas if m["grade"] and not m["solution"]}
    for grade_id in tests:
        if "-" not in grade_id or grade_id.split("-")[0] not in names:
            raise ValueError(
                f"{folder.name}: grade_id of a test cell: expected <function>-<property> "
                f"with a function of the set, got {grade_id!r}"
            )
    return {
        "slug": folder.name,
        "version": _version(notebook, folder / "oracles.py"),
        "solutions": [m["grade_id"] for m in metas if m["solution"]],
        "tests": tests,
        "hidden": sum(_HIDDEN[0] in cell.source for cell in notebook.cells),
        "more": [name for one in plan if one.more for name in one.names],
        "minutes": {one.names[0]: one.minutes for one in plan},
    }


def _version(notebook: Any, oracles: Path) -> str:
    """The package's version and a hash of what decides a mark.

    That is the code with its hidden tests, the points, the forbidden calls and the oracles: two
    releases with one version grade alike, and an edit of the text alone changes none.
    """
    judges = oracles.read_text(encoding="utf-8") if oracles.is_file() else ""
    graded = [
        [cell.source if cell.cell_type == "code" else "", dict(cell.metadata)]
        for cell in notebook.cells
        if cell.cell_type == "code" or "nbgrader" in cell.metadata
    ]
    digest = hashlib.sha256(json.dumps([graded, judges], sort_keys=True).encode()).hexdigest()
    return f"{__version__}+{digest[:8]}"


def _faults(cell: Any) -> Iterator[str]:
    """What is wrong with the metadata, the regions or the code of a cell."""
    meta, ours = grade_metadata(cell), cell.metadata.get("attn_course")
    grade_id, solution, grade = (meta.get(key, "") for key in ("grade_id", "solution", "grade"))
    if "nbgrader" in cell.metadata and not _CELL_ID.fullmatch(str(grade_id)):
        yield f"grade_id: expected up to 64 letters, digits, - and _, got {grade_id!r}"
    if unknown := sorted(set(meta) - _GIVEN):
        yield f"unknown nbgrader metadata {unknown}"
    if grade and not meta.get("points"):
        yield f"the graded cell {grade_id} has no points"
    if "points" in meta and not grade:
        yield f"the cell {grade_id} has points but is not graded"
    if ours is not None and ours != LOOK:
        names = grade_metadata(cell, "attn_course").get("forbidden")
        named = isinstance(names, list) and all(isinstance(n, str) and n for n in names)
        if not (named and names and len(ours) == 1):
            yield f'attn_course: expected {{"forbidden": [names]}} or {LOOK}, got {ours!r}'
        if not solution:
            yield "forbidden calls belong on a learner's cell"
    for begin, end in (_SOLUTION, _HIDDEN):
        if cell.source.count(begin) != cell.source.count(end):
            yield f"{begin!r} and {end!r} do not pair up"
    if _SOLUTION[0] in cell.source and not solution:
        yield "a solution region outside a solution cell would be released"
    if _HIDDEN[0] in cell.source and (solution or not grade):
        yield "a hidden-test region outside a test cell would be released"
    if cell.cell_type == "code":
        if solution and _SOLUTION[0] not in cell.source:
            yield f"a solution cell needs a region {_SOLUTION[0]!r}"
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            yield f"not Python: {error}"


def _complete(given: dict[str, Any], cell_type: str) -> dict[str, Any]:
    """A cell's nbgrader metadata with everything that nbgrader expects."""
    return {
        "cell_type": cell_type,
        "grade": False,
        "locked": not given.get("solution"),
        "schema_version": 3,
        "solution": False,
        "task": False,
        **given,
    }
