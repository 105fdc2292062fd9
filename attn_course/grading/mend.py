"""Mend a submitted notebook mechanically, so that stock nbgrader can grade it.

Answers stay what they were, in the order in which they ran; what is put right is the instructor's
own part: metadata, test cells, kernel, format.
"""

import ast
import copy
import json
import re
from typing import Any

from attn_course.exercises.assignment import cell_source, grade_metadata
from attn_course.exercises.submission import parse_notebook

HIDDEN = re.compile(r"^[^\n]*### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS[^\n]*\n?", re.S | re.M)
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
Cell = dict[str, Any]


class Templates:
    """The instructor's cells as students received them, by grade id.

    Args:
        notebook: bytes of the instructor's version.
    """

    def __init__(self, notebook: bytes) -> None:
        parsed = json.loads(notebook)
        self.metadata = {
            name: parsed.get("metadata", {})[name]
            for name in ("kernelspec", "language_info")
            if name in parsed.get("metadata", {})
        }
        self.cells: dict[str, Cell] = {}
        for cell in parsed["cells"]:
            grade_id = grade_metadata(cell).get("grade_id")
            if grade_id:
                self.cells[grade_id] = copy.deepcopy(cell)
                self.cells[grade_id]["source"] = HIDDEN.sub("", cell_source(cell)).rstrip("\n")

    def ours(self, grade_id: str) -> bool:
        """Whether the whole source of a cell is the instructor's."""
        return not grade_metadata(self.cells[grade_id]).get("solution")

    def is_test(self, grade_id: str) -> bool:
        """Whether a cell is an automatic test."""
        return self.ours(grade_id) and bool(grade_metadata(self.cells[grade_id]).get("grade"))


def known_id(cell: Cell, templates: Templates) -> str | None:
    """The assignment's grade id that a cell carries."""
    found = grade_metadata(cell).get("grade_id")
    return found if isinstance(found, str) and found in templates.cells else None


def recovered_ids(
    cells: list[Cell], templates: Templates, solutions: dict[str, str]
) -> dict[int, str]:
    """Grade ids of cells that lost their metadata, by position.

    By the cell's own id, by the text of an instructor's cell, or by the function that it defines.
    """
    present = {known_id(cell, templates) for cell in cells}
    free = {name: cell for name, cell in templates.cells.items() if name not in present}
    texts = {cell["source"].strip(): name for name, cell in free.items() if templates.ours(name)}
    found: dict[int, str] = {}
    for place, cell in enumerate(cells):
        if known_id(cell, templates) is not None:
            continue
        source = cell_source(cell).strip()
        name = cell.get("id")
        if not isinstance(name, str) or name not in free:
            name = texts.get(source) or _defined(source, solutions)
        if name in free:
            found[place] = name
            del free[name]
    return found


def _defined(source: str, solutions: dict[str, str]) -> str | None:
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = [n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return next((solutions[name] for name in names if name in solutions), None)


def _upgraded(data: bytes) -> dict[str, Any]:
    """The notebook in format 4; older formats through nbformat."""
    notebook = parse_notebook(data)
    if "worksheets" in notebook:
        import nbformat

        text = data.decode("utf-8-sig")
        return dict(json.loads(nbformat.writes(nbformat.reads(text, as_version=4))))
    return notebook


def mended(data: bytes, templates: Templates, solutions: dict[str, str]) -> bytes:
    """A copy of a submitted notebook that stock nbgrader can grade.

    Args:
        data: what was handed in.
        templates: the instructor's cells.
        solutions: names that the learner writes, each with the grade id of its cell.

    Returns:
        The bytes of the mended notebook: nbformat 4.5, UTF-8, without outputs.

    Raises:
        Unreadable: it cannot be read at all.
    """
    given = [cell for cell in _upgraded(data)["cells"] if isinstance(cell, dict)]
    recovered = recovered_ids(given, templates, solutions)
    names = [recovered.get(i) or known_id(cell, templates) for i, cell in enumerate(given)]
    # The last copy of an answer is the one that runs last; of an instructor's cell, the first.
    kept = {n: i for i, n in reversed(list(enumerate(names))) if n and templates.ours(n)}
    kept |= {n: i for i, n in enumerate(names) if n and not templates.ours(n)}
    cells: list[Cell] = []
    for place, (cell, name) in enumerate(zip(given, names, strict=True)):
        if name is not None and kept[name] != place:
            if templates.ours(name):
                continue
            name = None
        cells.append(_clean(cell, templates.cells[name] if name else None, templates))
    _restore(cells, templates)
    _number(cells)
    metadata = {"language_info": {"name": "python"}, **templates.metadata}
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def _clean(cell: Cell, template: Cell | None, templates: Templates) -> Cell:
    kinds = ("code", "markdown", "raw")
    kind = cell.get("cell_type") if cell.get("cell_type") in kinds else "markdown"
    source = cell_source(cell).replace("\r\n", "\n")
    metadata: dict[str, Any] = {}
    if template is not None:
        kind, metadata = template["cell_type"], copy.deepcopy(template["metadata"])
        if templates.ours(grade_metadata(template)["grade_id"]):
            source = template["source"]
    return _cell(str(kind), source, metadata, cell.get("id"))


def _cell(kind: str, source: str, metadata: dict[str, Any], identity: Any) -> Cell:
    new: Cell = {"cell_type": kind, "id": identity, "metadata": metadata, "source": source}
    return new | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def _restore(cells: list[Cell], templates: Templates) -> None:
    """Put back the instructor's own cells that are gone, each behind the one that precedes it."""
    order = list(templates.cells)
    for place, name in enumerate(order):
        present = {grade_metadata(cell).get("grade_id"): i for i, cell in enumerate(cells)}
        if name in present or not templates.ours(name):
            continue
        before = [present[other] for other in order[:place] if other in present]
        template = templates.cells[name]
        metadata = copy.deepcopy(template["metadata"])
        cell = _cell(template["cell_type"], template["source"], metadata, name)
        cells.insert(max(before, default=-1) + 1, cell)


def _number(cells: list[Cell]) -> None:
    """A valid id of its own for every cell; the grade id where there is one."""
    taken = {grade_metadata(cell).get("grade_id") for cell in cells} - {None}
    for place, cell in enumerate(cells):
        name = grade_metadata(cell).get("grade_id")
        if name is None:
            name = cell["id"]
            if not isinstance(name, str) or not CELL_ID.fullmatch(name) or name in taken:
                name = f"cell-{place}"
            while name in taken:
                name += "x"
            taken.add(name)
        cell["id"] = name
