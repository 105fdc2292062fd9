"""Read a notebook that a stranger sent: anything can be wrong with it, nothing is believed."""

import dataclasses
import json
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import (
    Assignment,
    cell_source,
    grade_metadata,
    shows_only,
    stated_version,
)

MAX_BYTES = 32 << 20
MAX_CELLS = 2000
MAX_ITEMS = 500_000  # values of its JSON: as objects of Python each takes 100 bytes
MAX_SOURCE = 1 << 20
OTHER_VERSION = "another version of the set: "


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
    """Parse the bytes of a notebook.

    Raises:
        Unreadable: with a reason that an instructor can act on.
    """
    if not data.strip():
        raise Unreadable("the file is empty")
    if len(data) > MAX_BYTES:
        raise Unreadable(f"it is larger than {MAX_BYTES >> 20} MiB")
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_ITEMS:
        raise Unreadable(f"its JSON has more than {MAX_ITEMS:,} values")
    try:
        text = data.decode(json.detect_encoding(data))
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8 text") from None
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
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise Unreadable("it has no list of cells")
    if len(cells) > MAX_CELLS:
        raise Unreadable(f"it has {len(cells)} cells, the limit is {MAX_CELLS}")
    return notebook


def version_note(notebook: dict[str, Any], assignment: Assignment) -> str:
    """Which version a notebook is of and which one grades it; "" where they are one.

    Nothing is refused for it and no point is lost by it: cells are matched by grade id.
    """
    released = "slug" in grade_metadata(notebook, "attn_course")
    theirs = stated_version(notebook) or "released before sets had versions"
    if not released or assignment.version in ("", theirs):
        return ""
    return f"{OTHER_VERSION}{theirs}; graded by {assignment.version}"


def read_submission(notebook: dict[str, Any], assignment: Assignment) -> Submission:
    """Match a submission's cells with the assignment by grade id.

    Args:
        notebook: the parsed file.
        assignment: what is graded.

    Raises:
        Unreadable: a cell is larger than any honest one.
    """
    cells: list[dict[str, str]] = []
    notes = [note] if (note := version_note(notebook, assignment)) else []
    seen: Counter[str] = Counter()
    lost: dict[str, str] = {}
    locked, solved = assignment.locked, set(assignment.solutions.values())
    ours = locked | {test.grade_id: test.source for test in assignment.tests}
    same_version = not notes
    for number, cell in enumerate(notebook["cells"], start=1):
        if not isinstance(cell, dict):
            notes.append(f"cell {number} is malformed and was left out")
            continue
        source, grade_id = cell_source(cell), grade_metadata(cell).get("grade_id")
        is_code = cell.get("cell_type") == "code"
        if len(source) > MAX_SOURCE:
            raise Unreadable(f"cell {number} has {len(source)} characters")
        if not isinstance(grade_id, str) or grade_id not in assignment.cells:
            if is_code and not shows_only(cell):
                cells.append({"id": f"cell {number}", "source": source})
            continue
        if not is_code and assignment.cells[grade_id] == "code":
            notes.append(f"the cell {grade_id} was turned into text")
            if grade_id not in solved:
                continue
            lost[grade_id] = "its cell was turned into text"
        seen[grade_id] += 1
        if same_version and grade_id in ours and _shown(source) != _shown(ours[grade_id]):
            notes.append(f"the cell {grade_id} was changed; ours was used")
        if is_code and (grade_id in solved or (grade_id in locked and seen[grade_id] == 1)):
            cells.append({"id": grade_id, "source": locked.get(grade_id, source)})
    lost |= {
        name: "its cell is missing" for name in assignment.solutions.values() if not seen[name]
    }
    notes += [
        f"the cell {name} is there {count} times" for name, count in seen.items() if count > 1
    ]
    named = [name for name in locked if name in assignment.cells]
    missing = [n for n in (*(t.grade_id for t in assignment.tests), *named) if not seen[n]]
    notes += [f"the cell {name} is missing; ours was used" for name in missing]
    restored = [{"id": name, "source": locked[name]} for name in missing if name in locked]
    return Submission(tuple(restored + cells), lost, tuple(notes), not seen)


def _shown(source: str) -> list[str]:
    """The lines of an instructor's cell that a release shows."""
    source = re.sub(r"(?s)### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", "", source)
    return [line.rstrip() for line in source.splitlines() if line.strip()]


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
