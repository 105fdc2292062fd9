"""Results in the forms that other programs read: JSON, Gradescope, CSV."""

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from attn_course.grading.results import Result

WORDS = {
    "missing": "Nothing was handed in.",
    "unreadable": "Your file is no notebook that can be read. Please hand it in again.",
    "stripped": "Your notebook has lost the marks of its cells. Please answer in the one released.",
    "timeout": "Your notebook took too long: some tests could not be run.",
    "sandbox_error": "Your notebook ended before it could be tested.",
    "needs_review": "A cell of yours is missing or there twice; a person will look at it.",
}
_FORMULA = "-=+@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"  # half and full width


def to_json(results: Sequence[Result], assignment: str) -> dict[str, Any]:
    """Results as the documented JSON object; ``score`` is null where nothing could be graded.

    ``pending`` names written answers that count in ``max_score`` and are not graded yet.
    """
    return {
        "assignment": assignment,
        "seed": class_seed(results),
        "submissions": [result.as_json() for result in results],
    }


def class_seed(results: Sequence[Result]) -> int | None:
    """The seed of all results, where the instructor named it; else each has its own: None."""
    seeds = {result.seed for result in results}
    return seeds.pop() if len(seeds) == 1 else None


def to_gradescope(result: Result) -> dict[str, Any]:
    """One result as Gradescope's ``results.json``; no score where nothing could be graded."""
    tests = [
        {
            "name": test.grade_id,
            "max_score": test.max,
            "output": test.message,
            "output_format": "text",
            "visibility": "visible",
            **({"score": test.score} if test.score is not None else {"status": "failed"}),
        }
        for test in result.tests
    ]
    found: dict[str, Any] = {"tests": tests, "execution_time": round(result.seconds, 3)}
    if result.score is not None:
        found["score"] = result.score
    said = [] if result.status == "graded" else [f"{result.status}: {result.reason}"]
    said += [] if result.sandboxed else ["Graded without a sandbox."]
    return found | ({"output": "\n".join(said), "output_format": "text"} if said else {})


def write_gradescope(results: Sequence[Result], path: Path) -> None:
    """Write ``results.json`` for one submission, or ``<student>.json`` in a folder for several."""
    names = file_names(result.student for result in results)
    for result in results:
        alone = len(results) == 1 and path.suffix == ".json"
        target = path if alone else path / f"{names[result.student]}.json"
        write_text(target, json.dumps(to_gradescope(result), indent=2))


def to_csv(results: Sequence[Result], assignment: str, *, form: str = "plain") -> str:
    """Results as CSV; what could not be graded has an empty mark.

    So has, for a learning platform, what is not graded yet to its end: a mark without the written
    answers would be taken for the mark.

    Args:
        results: of one assignment.
        assignment: its name, the title of the column.
        form: ``plain``, or the import form of ``canvas`` or ``moodle``.
    """
    if form not in FORMS:
        raise ValueError(f"csv form: expected one of {', '.join(FORMS)}, got {form!r}")
    return csv_text(*FORMS[form](results, assignment))


Table = tuple[list[list[str]], list[list[str]]]  # titles, rows


def _plain(results: Sequence[Result], assignment: str) -> Table:
    columns = ["student", "name", "assignment", "score", "max_score", "pending", "late"]
    rows = []
    for r in results:
        marks = [_mark(r.score), _mark(r.max_score), " ".join(r.pending)]
        late = ["late" if "late" in r.notes else "", _mark(r.late_penalty)]
        notes = "; ".join(note for note in r.notes if note != "late")
        rows.append([r.student, r.name, assignment, *marks, *late, r.status, r.reason, notes])
    return [[*columns, "late_penalty", "status", "reason", "notes"]], rows


def _canvas(results: Sequence[Result], assignment: str) -> Table:
    columns = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment]
    most = _mark(results[0].max_score if results else 0.0)
    rows = [[r.name or r.student, r.student, "", "", "", _final(r)] for r in results]
    return [columns, ["    Points Possible", "", "", "", "", most]], rows


def _moodle(results: Sequence[Result], assignment: str) -> Table:
    columns = ["Identifier", "Full name", "Grade", "Maximum Grade", "Last modified (grade)"]
    rows = []
    for r in results:
        who = f"Participant {r.student}" if r.student.isdigit() else r.student
        said = escape(_for_student(r), quote=False)  # Moodle shows it as HTML
        rows.append([who, r.name, _final(r), _mark(r.max_score), "", said])
    return [[*columns, "Feedback comments"]], rows  # it takes none without the column of the time


FORMS = {"plain": _plain, "canvas": _canvas, "moodle": _moodle}


def _mark(points: float | None) -> str:
    return "" if points is None else f"{points:g}"


def _final(result: Result) -> str:
    return "" if result.pending else _mark(result.score)


def csv_text(titles: Iterable[Sequence[str]], rows: Iterable[Sequence[str]]) -> str:
    """A table as CSV: ``titles`` as they are, and below them ``rows`` that hold no formula."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerows(titles)
    table.writerows(map(inert, row) for row in rows)
    return out.getvalue()


def _for_student(result: Result) -> str:
    """What Moodle shows beside the mark; why a file could not be graded is for the staff."""
    names = dict.fromkeys(test.misconception for test in result.tests if test.misconception)
    looks = f"This looks like: {'; '.join(map(str, names))}." if names else ""
    return " ".join(filter(None, (WORDS.get(result.status), looks)))


def inert(cell: str) -> str:
    """A cell that a spreadsheet takes for text and never for a formula.

    Also where columns are separated by other marks than a comma: there a cell ends in its middle.
    """
    text = " ".join(str(cell).split())
    return re.sub(rf"(^|[;|,:\"'])(\s*)(?=[{_FORMULA}])", r"\1\2'", text)


def file_names(students: Iterable[str]) -> dict[str, str]:
    """A file name for each student, different from all others also where case is not told apart.

    Letters, digits, ``.``, ``_`` and ``-`` stay; a hash tells apart what would be one.
    """
    plain = {student: quote(student, safe="._-", errors="surrogatepass") for student in students}
    count = Counter(name.casefold() for name in plain.values())
    found = {}
    for student, name in plain.items():
        odd = not name or name.startswith(".") or len(name) > 100
        if odd or count[name.casefold()] > 1:
            digest = hashlib.sha256(student.encode(errors="surrogatepass")).hexdigest()[:12]
            name = f"{name.lstrip('.')[:80]}-{digest}"
        found[student] = name
    return found


def write_text(path: Path, text: str | bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")  # the file may be read-only, as nbgrader's are
    try:
        partial.write_bytes(text.encode() if isinstance(text, str) else text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
