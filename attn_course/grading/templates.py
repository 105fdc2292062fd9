"""The instructor's cells as students received them, and which of theirs they were made from."""

import ast
import copy
import json
import re
from typing import Any

from attn_course.exercises.assignment import cell_source, grade_metadata

HIDDEN = re.compile(r"^[^\n]*### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS[^\n]*\n?", re.S | re.M)
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
