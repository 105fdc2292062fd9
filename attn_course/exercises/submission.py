"""Read a notebook that a stranger sent: anything can be wrong with it, nothing is believed."""

import dataclasses
import json
import os
import stat
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import Assignment, cell_source, grade_metadata

MAX_BYTES = 32 << 20
MAX_CELLS = 2000
MAX_SOURCE = 1 << 20


class Unreadable(ValueError):
    """The file is no notebook that could be graded; the text says why."""


@dataclasses.dataclass(frozen=True)
class Submission:
    """The cells to run, and what was found to be wrong.

    Args:
        cells: code cells in order as ``{"id", "source"}``; the instructor's own are restored, and
            test cells are left out.
        lost: grade ids of solution cells that are gone, each with the reason.
        notes: what a person may want to know; none of it costs points by itself.
        stripped: no cell carries a grade id of the assignment.
    """

    cells: tuple[dict[str, str], ...]
    lost: dict[str, str]
    notes: tuple[str, ...]
    stripped: bool


def read_file(path: Path) -> bytes:
    """Read a submitted file without following links and within limits.

    Raises:
        Unreadable: with a reason that an instructor can act on.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise Unreadable("it is a symbolic link, not a file") from None
        raise Unreadable(f"it cannot be opened: {error.strerror}") from None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise Unreadable("it is not a regular file")
        if about.st_size > MAX_BYTES:
            raise Unreadable(f"it has {about.st_size >> 20} MiB, the limit is {MAX_BYTES >> 20}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def parse_notebook(data: bytes) -> dict[str, Any]:
    """Parse the bytes of a notebook; old formats are read too.

    Raises:
        Unreadable: with a reason that an instructor can act on.
    """
    if not data.strip():
        raise Unreadable("the file is empty")
    if len(data) > MAX_BYTES:
        raise Unreadable(f"it is larger than {MAX_BYTES >> 20} MiB")
    text = None
    for encoding in (
        ("utf-8-sig", "utf-16") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",)
    ):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
    if text is None:
        raise Unreadable("it is not UTF-8 text")
    try:
        notebook = json.loads(text)
    except RecursionError:
        raise Unreadable("its JSON is nested too deep") from None
    except ValueError as error:
        if "<<<<<<<" in text:
            raise Unreadable("it holds merge-conflict marks") from None
        raise Unreadable(f"it is not JSON: {str(error)[:120]}") from None
    if not isinstance(notebook, dict):
        raise Unreadable("its JSON is no notebook")
    if "cells" not in notebook and isinstance(notebook.get("worksheets"), list):
        sheets = [s for s in notebook["worksheets"] if isinstance(s, dict)]
        lists = [s["cells"] for s in sheets if isinstance(s.get("cells"), list)]
        old = [c for cells in lists for c in cells if isinstance(c, dict)]
        notebook["cells"] = [{**c, "source": c.get("input", c.get("source", ""))} for c in old]
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise Unreadable("it has no list of cells")
    if len(cells) > MAX_CELLS:
        raise Unreadable(f"it has {len(cells)} cells, the limit is {MAX_CELLS}")
    return notebook


def read_submission(notebook: dict[str, Any], assignment: Assignment) -> Submission:
    """Match a submission's cells with the assignment by grade id.

    Args:
        notebook: the parsed file.
        assignment: what is graded.

    Raises:
        Unreadable: a cell is larger than any honest one.
    """
    cells: list[dict[str, str]] = []
    notes: list[str] = []
    seen: dict[str, list[str]] = {}
    lost: dict[str, str] = {}
    tests = {test.grade_id for test in assignment.tests}
    solved = set(assignment.solutions.values())
    code = solved | tests | assignment.locked.keys()
    for number, cell in enumerate(notebook["cells"]):
        if not isinstance(cell, dict):
            notes.append(f"cell {number + 1} is malformed and was left out")
            continue
        source, grade_id = cell_source(cell), grade_metadata(cell).get("grade_id")
        if len(source) > MAX_SOURCE:
            raise Unreadable(f"cell {number + 1} has {len(source)} characters")
        if not isinstance(grade_id, str) or grade_id not in assignment.cells:
            grade_id = None
        elif grade_id in code and cell.get("cell_type") != "code":
            notes.append(f"the cell {grade_id} was turned into text")
            if grade_id in solved:
                seen.setdefault(grade_id, []).append(source)
                lost[grade_id] = "its cell was turned into text"
            continue
        else:
            seen.setdefault(grade_id, []).append(source)
        if grade_id in assignment.manual:
            continue
        if cell.get("cell_type") != "code":
            continue
        if grade_id in tests or (grade_id in assignment.locked and len(seen[grade_id]) > 1):
            continue
        if grade_id in assignment.locked:
            source = assignment.locked[grade_id]
        cells.append({"id": grade_id or f"cell {number + 1}", "source": source})
    for grade_id in dict.fromkeys(assignment.solutions.values()):
        if grade_id not in seen:
            lost[grade_id] = "its cell is missing"
    for grade_id, sources in seen.items():
        if len(sources) > 1:
            notes.append(f"the cell {grade_id} is there {len(sources)} times")
    notes += [f"the test cell {name} is missing; ours was used" for name in tests - seen.keys()]
    absent = [name for name in assignment.locked if name not in seen and name in assignment.cells]
    restored = [{"id": name, "source": assignment.locked[name]} for name in absent]
    notes += [f"the cell {name} is missing; ours was used" for name in absent]
    return Submission(tuple(restored + cells), lost, tuple(notes), not seen)


def look_at(data: bytes | str | None, assignment: Assignment) -> tuple[str, str, Submission | None]:
    """What can be said of a file before anything of it runs.

    Args:
        data: the bytes of the submitted file, None when there is none, or the reason why it could
            not be read.
        assignment: what is graded.

    Returns:
        The status that the result will have, the reason for it, and the cells when they can be run.
    """
    if data is None:
        return "missing", f"no notebook {assignment.slug}.ipynb was found", None
    try:
        if isinstance(data, str):
            raise Unreadable(data)
        found = read_submission(parse_notebook(data), assignment)
    except Unreadable as error:
        return "unreadable", str(error), None
    if found.stripped:
        why = "no cell carries a grade_id of this assignment: the metadata was removed"
        return "stripped", f"{why} (a copy into a new notebook does that)", None
    odd = [f"{name}: {why}" for name, why in found.lost.items()]
    odd += [note for note in found.notes if note.endswith(" times")]
    return "needs_review" if odd else "graded", "; ".join(odd), found
