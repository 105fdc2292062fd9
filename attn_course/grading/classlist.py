"""Who is in the class, by a CSV of the learning platform."""

import csv
import io
from pathlib import Path

from attn_course.grading.collect import CollectError

# Canvas: gradebook export; Moodle: grading worksheet; the last: nbgrader db student import
IDS = ("ID", "Identifier", "id")
NAMES = (("Student",), ("Full name",), ("first_name", "last_name"))


def read_class(path: Path) -> dict[str, str]:
    """Names by student id, as the platform numbers its files."""
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CollectError(f"--class-list: {path}: {error}") from None
    columns = list(rows[0]) if rows else []
    key = next((name for name in IDS if name in columns), None)
    parts = next((names for names in NAMES if set(names) <= set(columns)), ())
    if key is None:
        raise CollectError(
            f"--class-list: expected a CSV with a column {', '.join(IDS[:-1])} or {IDS[-1]}, "
            f"got {path.name} with {', '.join(map(str, columns)) or 'no rows'}"
        )
    found = {}
    for row in rows:
        student = (row[key] or "").strip().removeprefix("Participant ")
        if student:  # Canvas has a row of points without one
            name = " ".join(filter(None, ((row[part] or "").strip() for part in parts)))
            found[student] = " ".join(
                reversed(name.split(", ", 1))
            )  # Canvas has the last one first
    return found
