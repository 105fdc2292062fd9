"""A small assignment and a class that hands it in, for the tests of the grader's own machinery."""

import contextlib
import json
import os
import subprocess
import sys

from nbgrader import api
from sqlalchemy import text

from attn_course.grading.collect import HandIn
from attn_course.grading.course import tools_on_path
from attn_course.grading.gradebook import driver_url
from attn_course.grading.sandbox import Limits

SLUG = "small"
LIMITS = Limits(wall_seconds=60.0, call_seconds=20.0, cpu_seconds=40)
SETUP = "import torch"
SOLUTIONS = {
    "double": "def double(x):\n    return 2 * x",
    "squares": "def squares(n):\n    return [i * i for i in range(n)]",
}
TESTS = {
    "double-values": """x = torch.randn(5)
torch.testing.assert_close(double(x), 2 * x)
### BEGIN HIDDEN TESTS
hidden_word = "unlikely-word-5b1e"
torch.testing.assert_close(double(-x), -2 * x)
### END HIDDEN TESTS""",
    "squares-share": """n = int(torch.randint(5, 20, ()))
got = squares(n)
sum(a == i * i for i, a in enumerate(got)) / n * 3.0""",
}
POINTS = {"double-values": 2.0, "squares-share": 3.0}
TABLES = ("student", "submitted_assignment", "submitted_notebook", "grade", "comment", "base_cell")
ROWS = """SELECT sa.student_id, sn.flagged, bc.name, g.auto_score, g.manual_score,
  g.needs_manual_grade, NULL FROM submitted_assignment sa
  JOIN submitted_notebook sn ON sn.assignment_id = sa.id
  JOIN grade g ON g.notebook_id = sn.id JOIN base_cell bc ON bc.id = g.cell_id
  UNION ALL SELECT sa.student_id, sn.flagged, bc.name, NULL, NULL, NULL, c.auto_comment
  FROM submitted_assignment sa JOIN submitted_notebook sn ON sn.assignment_id = sa.id
  JOIN comment c ON c.notebook_id = sn.id JOIN base_cell bc ON bc.id = c.cell_id"""
ANSWERS = {
    "right": SOLUTIONS,
    "half": {"double": "def double(x):\n    return x + x * 1.5", "squares": SOLUTIONS["squares"]},
    "share": {
        "double": SOLUTIONS["double"],
        "squares": "def squares(n):\n    return [i * i if i < 3 else -1 for i in range(n)]",
    },
    "random": {
        "double": "import random\ndef double(x):\n    return 2 * x + round(random.random())",
        "squares": "def squares(n):\n    return [int(torch.randint(0, 5, ())) for _ in range(n)]",
    },
    "raises": {"double": "def double(x):\n    raise ValueError('no \\ud800 \\0 \\x1b[31m')"},
    "dies": {"squares": "import os\ndef squares(n):\n    os._exit(3)"},
}


def cell(kind, source, grade_id, **meta):
    """A cell with nbgrader metadata."""
    flags = {"grade": False, "locked": False, "solution": False, "task": False, **meta}
    extra = flags.pop("attn_course", None)
    nbgrader = {"grade_id": grade_id, "schema_version": 3, "cell_type": kind, **flags}
    metadata = {"nbgrader": nbgrader} | ({"attn_course": extra} if extra else {})
    made = {"cell_type": kind, "id": grade_id, "metadata": metadata, "source": source}
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def notebook(solutions=SOLUTIONS, tests=TESTS, points=POINTS, *, setup=SETUP, forbidden=None):
    """An instructor's version, with solutions and hidden tests."""
    cells = [cell("code", setup, "setup", locked=True)]
    for name, source in solutions.items():
        refused = {"forbidden": forbidden[name]} if forbidden and name in forbidden else None
        cells.append(cell("code", source, name, solution=True, attn_course=refused))
    for name, source in tests.items():
        made = cell("code", source, name, grade=True, locked=True, points=points.get(name, 1.0))
        cells.append(made)
    cells.append(cell("markdown", "Write here.", "report", grade=True, solution=True, points=4.0))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    meta = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": meta, "nbformat": 4, "nbformat_minor": 5}


def answered(sources, base=None):
    """A submission: the notebook with some cells, by grade id, holding other source."""
    found = json.loads(json.dumps(base or notebook()))
    for one in found["cells"]:
        name = one["metadata"].get("nbgrader", {}).get("grade_id", "")
        one["source"] = sources.get(name, one["source"])
    return as_bytes(found)


def as_bytes(found):
    """A notebook as a file's bytes."""
    return json.dumps(found).encode()


def handed(count):
    """What a class of ``count`` hands in: every kind of answer in turn, one missing, one broken."""
    kinds = list(ANSWERS)
    found = [
        HandIn(student=f"s{i:02d}", data=answered(ANSWERS[kinds[i % len(kinds)]]))
        for i in range(count - 2)
    ]
    broken = HandIn(student="u-broken", data=b"{ not json")
    return [*found, HandIn(student="t-missing", data=None), broken]


def write_class(folder, count):
    """The same class as files in nbgrader's layout."""
    for item in handed(count):
        place = folder / item.student / SLUG
        place.mkdir(parents=True)
        if isinstance(item.data, bytes):
            (place / f"{SLUG}.ipynb").write_bytes(item.data)


def course(folder, count):
    """The instructor's notebook and what that class handed in."""
    source = folder / "source" / SLUG / f"{SLUG}.ipynb"
    source.parent.mkdir(parents=True)
    source.write_bytes(as_bytes(notebook()))
    write_class(folder / "submitted", count)
    return folder


@contextlib.contextmanager
def stock(url):
    """The gradebook as nbgrader's own interface opens it; what is changed in it is kept."""
    tools_on_path()
    with api.Gradebook(driver_url(url)) as book:
        yield book
        book.db.commit()


def content(url):
    """Everything that the gradebook says, without its random ids."""
    with stock(url) as book:
        rows = sorted((tuple(row) for row in book.db.execute(text(ROWS))), key=repr)
        counts = [(n, book.db.execute(text(f"SELECT COUNT(*) FROM {n}")).scalar()) for n in TABLES]
    return [*rows, *counts]


def started(folder, *options, path=None, **streams):
    """``attn-course grade submitted`` for that class, in a process group of its own."""
    command = ["-m", "attn_course.cli", "grade", "submitted", "--assignment", SLUG, "--seed", "11"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"PATH": path} if path else {})
    settings = {"cwd": folder, "env": environment, "start_new_session": True}
    streams = {"stdout": subprocess.DEVNULL, **streams}
    return subprocess.Popen([sys.executable, *command, *options], **settings, **streams)


def journal(folder):
    """Where a run keeps what is done."""
    return folder / ".attn-grading" / f"{SLUG}.jsonl"


def lines(folder):
    """How many lines it has."""
    return journal(folder).read_bytes().count(b"\n") if journal(folder).exists() else 0
