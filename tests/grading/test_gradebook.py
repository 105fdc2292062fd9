"""Results in nbgrader's gradebook: the same rows in SQLite and PostgreSQL, whoever reads them."""

import csv
import dataclasses
import datetime
import functools
import os
import re
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import classroom
import postgres
import pytest
from nbgrader import api
from sqlalchemy import event, inspect, text

from attn_course.exercises.assignment import Assignment
from attn_course.exercises.testcell import TestResult as One
from attn_course.grading.gradebook import (
    GradebookError,
    GradebookWriter,
    driver_url,
    tools_on_path,
)
from attn_course.grading.results import Result
from attn_course.grading.startup import alembic_head

WHEN = datetime.datetime(2026, 3, 1, 12, 30)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with postgres.server() as url:
        yield url


@pytest.fixture
def database(server: str) -> Iterator[str]:
    """An empty database of the real server."""
    import psycopg

    name = f"book_{os.urandom(4).hex()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.rsplit("/", 1)[0] + "/" + name


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: Any, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gradebook.db"
    return str(request.getfixturevalue("database"))


@pytest.fixture(autouse=True, scope="module")
def schema_version_once() -> Iterator[None]:
    """nbgrader runs alembic in a process for every new gradebook; once is enough here."""
    tools_on_path()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "get_alembic_version", functools.cache(api.get_alembic_version))
        yield


def result(student: str, double: float | None, squares: float | None, **more: Any) -> Result:
    tests = (
        One("double-values", double, 2.0, "" if double == 2.0 else "wrong sign"),
        One("squares-share", squares, 3.0, "", "counts from one"),
    )
    scores = [s for s in (double, squares) if s is not None]
    known = {
        "student": student,
        "assignment": classroom.SLUG,
        "status": "graded",
        "score": sum(scores) if scores else None,
        "max_score": 5.0,
        "seed": 1,
        "tests": tests,
    }
    return Result(**{**known, **more})


def a_class() -> list[Result]:
    return [
        result("ada", 2.0, 3.0),
        result("bob", 0.0, 1.5),
        result("Zoë; DROP TABLE student--", 2.0, 0.0),
        result("lost", None, 3.0, status="needs_review", reason="double: its cell is missing"),
        result("broken", None, None, status="unreadable", reason="it is not JSON", tests=()),
        result("slow", None, None, status="timeout", reason="took 60 s", tests=()),
        result("none", None, None, status="missing", tests=()),
    ]


def write(url: str, assignment: Assignment, results: list[Result]) -> None:
    with GradebookWriter(url, assignment) as book:
        for one in results:
            book.write(one, submitted=WHEN)


def rows(url: str, *, ids: bool = False) -> dict[str, list[Any]]:
    """Every row of every table; random ids replaced by what they stand for."""
    book = api.Gradebook(driver_url(url))
    try:
        found: dict[str, list[Any]] = {}
        for table in sorted(inspect(book.engine).get_table_names()):
            named = [dict(row._mapping) for row in book.db.execute(text(f"SELECT * FROM {table}"))]
            found[table] = [tuple(sorted(row.items(), key=lambda kv: kv[0])) for row in named]
            if not ids:
                found[table] = [
                    tuple(
                        (k, _plain(v))
                        for k, v in row
                        if "id" not in k.split("_") or k == "student_id"
                    )
                    for row in found[table]
                ]
            found[table].sort(key=repr)
        return found
    finally:
        book.close()


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.startswith("2026-"):
        return datetime.datetime.fromisoformat(value)
    return value


def test_sqlite_and_postgresql_hold_the_same_rows(
    tmp_path: Path, database: str, assignment: Assignment
) -> None:
    lite = f"sqlite:///{tmp_path}/gradebook.db"
    for url in (lite, database):
        write(url, assignment, a_class())
    one, other = rows(lite), rows(database)
    assert one == other
    assert len(one["grade"]) == 6 * 3
    assert len(one["student"]) == 6


def test_writing_twice_changes_nothing(url: str, assignment: Assignment) -> None:
    write(url, assignment, a_class())
    before = rows(url, ids=True)
    write(url, assignment, a_class())
    assert rows(url, ids=True) == before


def test_a_submission_takes_a_handful_of_statements_however_many_cells_it_has(
    tmp_path: Path, assignment: Assignment
) -> None:
    """They are sent while the workers wait for the same cores."""
    test = assignment.tests[0]
    many = [dataclasses.replace(test, grade_id=f"double-{i}") for i in range(40)]
    wide = dataclasses.replace(
        assignment,
        tests=(*assignment.tests, *many),
        cells=assignment.cells | {one.grade_id: "code" for one in many},
    )
    sent: list[str] = []
    with GradebookWriter(f"sqlite:///{tmp_path}/gradebook.db", wide) as book:
        event.listen(book._book.engine, "before_cursor_execute", lambda *args: sent.append(args[2]))
        book.write(result("ada", 2.0, 3.0), submitted=WHEN)
        assert len(sent) <= 6, sent
        sent.clear()
        book.write(result("ada", 2.0, 3.0), submitted=WHEN)
        assert all(statement.startswith("SELECT") for statement in sent), "nothing differs"
        assert len(sent) <= 5, sent
        sent.clear()
        book.write(result("ada", 2.0, 1.0), submitted=WHEN)
        changed = [statement for statement in sent if not statement.startswith("SELECT")]
        assert len(changed) == 1, "one mark differs"
    assert len(rows(f"sqlite:///{tmp_path}/gradebook.db")["grade"]) == 43


def test_what_a_person_entered_survives_a_regrade(url: str, assignment: Assignment) -> None:
    write(url, assignment, a_class())
    book = api.Gradebook(driver_url(url))
    report = book.find_grade("report", "small", "small", "bob")
    report.manual_score, report.extra_credit, report.needs_manual_grade = 3.5, 0.25, False
    values = book.find_grade("double-values", "small", "small", "bob")
    values.manual_score, values.needs_manual_grade = 1.0, False
    book.find_comment("double", "small", "small", "bob").manual_comment = "see me"
    book.find_submission_notebook("small", "small", "bob").flagged = True
    book.db.commit()
    book.close()
    before = rows(url, ids=True)
    write(url, assignment, a_class())
    assert rows(url, ids=True) == before

    write(url, assignment, [result("bob", 2.0, 3.0)])
    book = api.Gradebook(driver_url(url))
    values = book.find_grade("double-values", "small", "small", "bob")
    assert (values.auto_score, values.manual_score, values.score) == (2.0, 1.0, 1.0)
    assert values.needs_manual_grade, "the manual score was given for another file"
    report = book.find_grade("report", "small", "small", "bob")
    assert (report.manual_score, report.extra_credit, report.needs_manual_grade) == (
        3.5,
        0.25,
        False,
    )
    assert book.find_comment("double", "small", "small", "bob").comment == "see me"
    assert book.find_submission_notebook("small", "small", "bob").flagged
    book.close()


def test_nbgraders_own_interface_reads_it(url: str, assignment: Assignment) -> None:
    write(url, assignment, a_class())
    book = api.Gradebook(driver_url(url))
    ada = book.find_submission("small", "ada")
    assert (ada.score, ada.max_score, ada.needs_manual_grade) == (5.0, 9.0, True)
    assert ada.timestamp == WHEN
    assert book.find_submission_notebook("small", "small", "bob").score == 1.5
    assert book.find_comment("double", "small", "small", "bob").auto_comment == "    wrong sign"
    lost = book.find_grade("double-values", "small", "small", "lost")
    assert (lost.auto_score, lost.needs_manual_grade) == (None, True), "no silent zero"
    for student in ("broken", "slow"):
        sheet = book.find_submission_notebook("small", "small", student)
        assert sheet.flagged
        assert all(g.needs_manual_grade and g.auto_score is None for g in sheet.grades)
        assert len(sheet.grades) == 3
    comment = book.find_comment("double", "small", "small", "broken").auto_comment
    assert comment == "    unreadable: it is not JSON"
    with pytest.raises(api.MissingEntry):
        book.find_submission("small", "none")
    listed = {d["student"]: d for d in book.submission_dicts("small")}  # the formgrader's table
    assert listed["ada"]["needs_manual_grade"]
    assert (listed["bob"]["code_score"], listed["bob"]["max_code_score"]) == (1.5, 5.0)
    assert listed["ada"]["max_written_score"] == 4.0
    assert book.average_assignment_score("small") > 0
    book.close()


def test_nbgraders_own_export_reads_it(tmp_path: Path, url: str, assignment: Assignment) -> None:
    write(url, assignment, a_class())
    tools_on_path()
    done = subprocess.run(
        ["nbgrader", "export", f"--CourseDirectory.db_url={driver_url(url)}", "--to=grades.csv"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "grades.csv").open() as file:
        marks = {row["student_id"]: row for row in csv.DictReader(file)}
    assert {name: float(row["raw_score"]) for name, row in marks.items()} == {
        "ada": 5.0,
        "bob": 1.5,
        "Zoë; DROP TABLE student--": 2.0,
        "lost": 3.0,
        "broken": 0.0,
        "slow": 0.0,
    }
    assert marks["ada"]["max_score"] == "9.0"


def test_messages_of_any_text_can_be_written(url: str, grade: Any, assignment: Assignment) -> None:
    """NUL bytes, half surrogates and escapes come from submissions; no database may choke."""
    found = grade(answers=classroom.ANSWERS["raises"])
    write(url, assignment, [found])
    book = api.Gradebook(driver_url(url))
    said = book.find_comment("double", "small", "small", "ada").auto_comment
    assert "ValueError: no \ufffd \ufffd \ufffd[31m" in said
    book.close()


EVIL = [
    "<script>alert(1)</script>",
    "</code></pre><img src=x onerror=alert(1)>",
    "x\n\n<img src=x onerror=alert(1)>\n\n```\n<b>\n```\n",
    "[here](javascript:alert(1)) \u2028<svg onload=alert(1)>",
    "\n> <b>1</b>\n- <i>2</i>\n\n    \n<b>3</b>",
]


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("status", ["graded", "unreadable"])
def test_nbgraders_page_of_feedback_shows_a_students_text_as_text(
    tmp_path: Path, assignment: Assignment, status: str, evil: str
) -> None:
    """It makes HTML of a comment as of Markdown, in which HTML is let through."""
    from nbconvert.filters import markdown2html

    tests = (One("double-values", 0.0, 2.0, f"raised ValueError: {evil}"),)
    url = f"sqlite:///{tmp_path}/gradebook.db"
    made = {"student": "mal", "assignment": "small", "score": None, "tests": tests}
    write(url, assignment, [Result(**made, status=status, reason=evil)])
    book = api.Gradebook(url)
    shown = markdown2html(book.find_comment("double", "small", "small", "mal").auto_comment)
    book.close()
    found = set(re.findall(r"<\s*/?\s*(\w+)", shown))
    assert found <= {"pre", "code", "p"}, shown
    assert "href" not in shown


def test_a_later_hand_in_takes_the_place_of_the_first(url: str, assignment: Assignment) -> None:
    later = WHEN + datetime.timedelta(days=2)

    def kept() -> tuple[Any, ...]:
        book = api.Gradebook(driver_url(url))
        try:
            (found,) = book.assignment_submissions(classroom.SLUG)
            return found.timestamp, found.score
        finally:
            book.close()

    for mark, when, due in ((1.0, WHEN, WHEN), (3.0, later, later), (2.0, None, later)):
        with GradebookWriter(url, assignment) as book:
            book.write(result("ada", 2.0, mark), submitted=when)
        assert kept() == (due, 2.0 + mark)


def test_students_of_another_assignment_are_no_students_of_this_one(
    url: str, assignment: Assignment
) -> None:
    write(url, assignment, a_class()[:2])
    other = dataclasses.replace(assignment, slug="other")
    with GradebookWriter(url, other) as book:
        assert book.students() == set()
        book.write(dataclasses.replace(result("eve", 2.0, 3.0), assignment="other"))
        assert book.students() == {"eve"}
    with GradebookWriter(url, assignment) as book:
        assert book.students() == {"ada", "bob"}


def test_an_assignment_that_changed_is_refused(url: str, assignment: Assignment) -> None:
    write(url, assignment, [])
    other = dataclasses.replace(
        assignment,
        tests=(dataclasses.replace(assignment.tests[0], points=7.0), assignment.tests[1]),
    )
    with pytest.raises(GradebookError, match=r"double-values: expected 7\.0 points"):
        write(url, other, [])


def test_a_failed_write_leaves_no_half_submission(
    url: str, assignment: Assignment, monkeypatch: Any
) -> None:
    write(url, assignment, [])
    before = rows(url, ids=True)
    with GradebookWriter(url, assignment) as book:
        monkeypatch.setattr(book, "_comment", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            book.write(result("ada", 2.0, 3.0))
        monkeypatch.undo()
        book.write(result("bob", 2.0, 3.0))
    after = rows(url, ids=True)
    assert before["student"] == []
    assert len(after["student"]) == 1


def _no_server(tmp_path: Path) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return f"postgresql://me:secret@127.0.0.1:{port}/x"


WRONG = {
    "no such folder": lambda p: f"sqlite:///{p}/no/such/folder/gradebook.db",
    "not a database": lambda p: f"sqlite:///{_file(p)}",
    "no server": _no_server,
    "no such dialect": lambda p: "oracel://x",
    "malformed": lambda p: "postgresql://[",
    "no such driver": lambda p: "mysql+mysqldb://x/y",
}


def _file(folder: Path) -> Path:
    (folder / "notes.txt").write_text("these are notes, not tables" * 100)
    return folder / "notes.txt"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_address_is_one_clear_line(
    name: str, tmp_path: Path, assignment: Assignment
) -> None:
    with pytest.raises(GradebookError) as caught:
        GradebookWriter(WRONG[name](tmp_path), assignment)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert "cannot be opened" in said
    assert "secret" not in said


def test_no_such_database_is_one_clear_line(server: str, assignment: Assignment) -> None:
    with pytest.raises(GradebookError, match='database "nowhere" does not exist') as caught:
        GradebookWriter(server.rsplit("/", 1)[0] + "/nowhere", assignment)
    assert len(str(caught.value).splitlines()) == 1


def test_a_locked_database_is_one_clear_line(tmp_path: Path, assignment: Assignment) -> None:
    url = f"sqlite:///{tmp_path}/gradebook.db?timeout=0.2"
    with GradebookWriter(url, assignment) as book:
        other = sqlite3.connect(tmp_path / "gradebook.db")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(GradebookError, match="database is locked") as caught:
            book.write(result("ada", 2.0, 3.0))
        assert len(str(caught.value).splitlines()) == 1
        other.rollback()
        other.close()
        book.write(result("ada", 2.0, 3.0))
    assert len(rows(f"sqlite:///{tmp_path}/gradebook.db")["student"]) == 1


def test_without_postgresql_the_test_says_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setattr(postgres, "programs", lambda: None)
    with pytest.raises(AssertionError, match="apt-get install postgresql"), postgres.server():
        raise RuntimeError("it started")


def test_the_version_of_the_tables_is_the_one_that_alembic_says() -> None:
    tools_on_path()
    assert alembic_head(Path(api.__file__).parent) == api.get_alembic_version()
