"""``attn-course term``: several tables of ``attn-course grade --csv`` as one, with totals.

A total is the weighted mean of the marks, in per cent of their maxima, without the worst ones.
A hand-in that is missing counts as 0. Where a mark is not known there is no total.
"""

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from attn_course.grading.classlist import read_class
from attn_course.grading.exports import inert
from attn_course.grading.gradebook import CHANGED

COLUMNS = ("student", "name", "assignment", "score", "max_score", "pending", "status", "reason")


class TermError(ValueError):
    """The tables cannot become one; the text names file and row, what was expected and found."""


@dataclasses.dataclass(frozen=True)
class Mark:
    """A student's mark for one assignment in per cent, None where it is not known, and a note."""

    student: str = ""
    name: str = ""
    percent: float | None = 0.0
    note: str = "missing"


def read_marks(path: Path, *, by: str = "student") -> tuple[str, dict[str, Mark]]:
    """The assignment and the marks of a table that ``attn-course grade --csv`` has written."""
    wanted = f"a table of 'attn-course grade --csv' in its plain form, with {', '.join(COLUMNS)}"
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig")))
        rows = [(f"{path}, row {reader.line_num}", row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TermError(f"{path}: expected {wanted}; got {error}") from None
    titles = reader.fieldnames or []
    if not rows or not set(COLUMNS) <= set(titles):
        got = ", ".join(titles) if rows else "no rows"
        raise TermError(f"{path}: expected {wanted}; got {got}")
    first = rows[0][1]
    for where, row in rows:
        if None in row or None in row.values():
            raise TermError(f"{where}: expected {len(titles)} cells, as in the first row")
        for column in ("assignment", "max_score"):
            if row[column] != first[column]:
                expected = f"{column} {first[column]}, as above"
                raise TermError(f"{where}: expected {expected}, got {row[column]!r}")
    return first["assignment"], _keyed(((where, _mark(row, where)) for where, row in rows), by)


def _keyed(marks: Iterable[tuple[str, Mark]], by: str) -> dict[str, Mark]:
    found: dict[str, Mark] = {}
    for where, mark in marks:
        key = getattr(mark, by)
        if not key or key in found:
            got = f"{key!r} a second time" if key else "an empty cell"
            raise TermError(f"{where}: expected one row for each {by}, got {got}")
        found[key] = mark
    return found


def _mark(row: dict[str, str], where: str) -> Mark:
    """The mark of one row; a score without written answers that are still to be graded is none."""
    most = _number(row["max_score"], f"{where}: max_score", above=True)
    score = _number(row["score"], f"{where}: score") if row["score"] else None
    if score is None and row["status"] == "missing":
        return Mark(row["student"], row["name"])
    pending = f"pending: {row['pending']}" if row["pending"] else ""
    status = ": ".join(filter(None, (row["status"], row["reason"])))
    changed = CHANGED in row.get("notes", "")
    notes = [
        pending,
        status if score is None or row["status"] != "graded" else "",
        "an answer was changed after it was graded" if changed else "",
    ]
    percent = None if score is None or pending else 100 * score / most
    return Mark(row["student"], row["name"], percent, ", ".join(filter(None, notes)))


def _number(text: str, where: str, *, above: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf or (above and value == 0):
        expected = f"a number {'above' if above else 'from'} 0"
        raise TermError(f"{where}: expected {expected}, got {text!r}")
    return value


def _weights(text: str, assignments: Iterable[str]) -> dict[str, float]:
    """Of ``SLUG=NUMBER,...``; 1 for an assignment that is not named."""
    weights = dict.fromkeys(assignments, 1.0)
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, value = part.partition("=")
        if name not in weights:
            expected = " or ".join(f"{slug}=NUMBER" for slug in weights)
            raise TermError(f"--weights: expected {expected}, got {part!r}")
        weights[name] = _number(value, f"--weights: {name}", above=True)
    return weights


def term_table(
    paths: Sequence[Path],
    *,
    weights: str = "",
    drop: int = 0,
    class_list: Path | None = None,
    by: str = "student",
) -> list[list[str]]:
    """The titles, and a row for each student; see ``attn-course term --help``."""
    if by not in ("student", "name"):
        raise TermError(f"--by: expected student or name, got {by!r}")
    tables: dict[str, dict[str, Mark]] = {}
    for path in paths:
        slug, marks = read_marks(path, by=by)
        if slug in tables:
            raise TermError(f"{path}: expected one table for each assignment, got {slug!r} again")
        tables[slug] = marks
    if not 0 <= drop < len(tables):
        raise TermError(f"--drop: expected 0 to {len(tables) - 1} of these tables, got {drop}")
    shares = _weights(weights, tables)
    listed = read_class(class_list) if class_list else {}
    people = _keyed(((str(class_list), Mark(inert(k), inert(n))) for k, n in listed.items()), by)
    known: dict[str, list[Mark]] = {}  # of each one, the class list's first
    ids: dict[str, dict[str, None]] = {}  # by name: Moodle numbers a class anew for each assignment
    for table in (people, *tables.values()):
        for key, mark in table.items():
            known.setdefault(key, []).append(mark)
            ids.setdefault(mark.name, {})[mark.student] = None
    found = [["student", "name", *tables, "dropped", "total", "notes"]]
    for key, of in sorted(known.items()):
        row = {slug: marks.get(key, Mark()) for slug, marks in tables.items()}
        own = dict.fromkeys(mark.student for mark in of)
        name = next((mark.name for mark in of if mark.name), "")
        notes = [f"{slug}: {mark.note}" for slug, mark in row.items() if mark.note]
        notes += ["not on the class list"] if people and key not in people else []
        notes += [f"{name} is also {other}" for other in ids[name] if name and other not in own]
        cells = [_text(m.percent) or m.note.partition(":")[0] for m in row.values()]
        dropped, total = _total({slug: mark.percent for slug, mark in row.items()}, shares, drop)
        found.append([" ".join(own), name, *cells, dropped, total, "; ".join(notes)])
    return found


def _total(marks: dict[str, float | None], weights: dict[str, float], drop: int) -> tuple[str, str]:
    """What is dropped, of equal marks the one that weighs most, and the mean of the others."""
    known = {slug: mark for slug, mark in marks.items() if mark is not None}
    if len(known) < len(marks):
        return "", ""
    order = sorted(known, key=lambda slug: (known[slug], -weights[slug]))
    total = sum(weights[slug] * known[slug] for slug in order[drop:])
    return " ".join(order[:drop]), _text(total / sum(weights[slug] for slug in order[drop:]))


def _text(percent: float | None) -> str:
    return "" if percent is None else f"{round(percent, 2):g}"
