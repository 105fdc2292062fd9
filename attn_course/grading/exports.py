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

FORMS = ("plain", "canvas", "moodle")
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
    if result.status != "graded":
        found |= {"output": f"{result.status}: {result.reason}", "output_format": "text"}
    return found


def write_gradescope(results: Sequence[Result], path: Path) -> None:
    """Write ``results.json`` for one submission, or ``<student>.json`` in a folder for several."""
    if len(results) == 1 and path.suffix == ".json":
        write_text(path, json.dumps(to_gradescope(results[0]), indent=2))
        return
    names = file_names(result.student for result in results)
    for result in results:
        target = path / f"{names[result.student]}.json"
        write_text(target, json.dumps(to_gradescope(result), indent=2))


def to_csv(results: Sequence[Result], assignment: str, *, form: str = "plain") -> str:
    """Results as CSV; what could not be graded has an empty mark.

    So has, for a learning platform, what is not graded yet to its end: a mark without the written
    answers would be taken for the mark.

    Args:
        results: of one assignment.
        assignment: its name, the title of the column.
        form: ``plain``, or the import form of ``canvas`` or ``moodle``.

    Raises:
        ValueError: an unknown form.
    """
    if form not in FORMS:
        raise ValueError(f"csv form: expected one of {', '.join(FORMS)}, got {form!r}")
    titles: list[list[str]]
    if form == "plain":
        columns = ["student", "name", "assignment", "score", "max_score", "pending", "late"]
        titles = [[*columns, "late_penalty", "status", "reason", "notes"]]
    elif form == "canvas":
        most = results[0].max_score if results else 0.0
        fixed = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
        titles = [[*fixed, assignment], ["    Points Possible", "", "", "", "", f"{most:g}"]]
    else:  # Moodle takes no file without the column of the time
        columns = ["Identifier", "Full name", "Grade", "Maximum Grade", "Last modified (grade)"]
        titles = [[*columns, "Feedback comments"]]
    return csv_text((_row(result, assignment, form) for result in results), titles)


def _row(r: Result, assignment: str, form: str) -> list[str]:
    mark = "" if r.score is None else f"{r.score:g}"
    final = "" if r.pending else mark
    whole = f"{r.max_score:g}"
    if form == "plain":
        late = "late" if "late" in r.notes else ""
        marks = [mark, whole, " ".join(r.pending), late, f"{r.late_penalty:g}"]
        notes = "; ".join(note for note in r.notes if note != "late")
        return [r.student, r.name, assignment, *marks, r.status, r.reason, notes]
    if form == "canvas":
        return [r.name or r.student, r.student, "", "", "", final]
    who = f"Participant {r.student}" if r.student.isdigit() else r.student
    said = escape(_for_student(r), quote=False)  # Moodle shows it as HTML
    return [who, r.name, final, whole, "", said]


def csv_text(rows: Iterable[Sequence[str]], titles: Iterable[Sequence[str]] = ()) -> str:
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


def file_name(student: str) -> str:
    """A file name for a student's id: letters, digits, ``.``, ``_`` and ``-`` stay."""
    safe = quote(student, safe="._-", errors="surrogatepass")
    if not safe or safe.startswith(".") or len(safe) > 100:
        return f"{safe.lstrip('.')[:80]}-{_digest(student)}"
    return safe


def file_names(students: Iterable[str]) -> dict[str, str]:
    """A file name for each student, different from all others also where case is not told apart."""
    plain = {student: file_name(student) for student in students}
    count = Counter(name.casefold() for name in plain.values())
    return {
        student: name if count[name.casefold()] == 1 else f"{name[:80]}-{_digest(student)}"
        for student, name in plain.items()
    }


def _digest(student: str) -> str:
    return hashlib.sha256(student.encode(errors="surrogatepass")).hexdigest()[:12]


def write_text(path: Path, text: str | bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")  # the file may be read-only, as nbgrader's are
    try:
        partial.write_bytes(text.encode() if isinstance(text, str) else text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
