"""Results in nbgrader's gradebook: the same rows in SQLite and PostgreSQL, whoever reads them."""

import concurrent.futures
import csv
import datetime
import json
import os
import socket
import sqlite3
import subprocess

import classroom
import postgres
import pytest
from classroom import stock
from nbgrader import api
from nbgrader.coursedir import CourseDirectory
from sqlalchemy import event, inspect, text

from attn_course.exercises.release import prepared
from attn_course.exercises.testcell import TestResult as One
from attn_course.grading.collect import HandIn
from attn_course.grading.course import tools_on_path
from attn_course.grading.gradebook import (
    CHANGED,
    EXTENDED,
    GradebookError,
    GradebookWriter,
    driver_url,
    without_secrets,
)
from attn_course.grading.results import Result

WHEN = datetime.datetime(2026, 3, 1, 12, 30)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gradebook.db"
    return postgres.database(request.getfixturevalue("server"))


def result(student, double, squares, **more):
    tests = (
        One("double-values", double, 2.0, "" if double == 2.0 else "wrong sign"),
        One("squares-share", squares, 3.0, "", "counts from one"),
    )
    scores = [s for s in (double, squares) if s is not None]
    known = {"status": "graded", "score": sum(scores) if scores else None, "tests": tests, **more}
    return Result(student=student, assignment=classroom.SLUG, max_score=5.0, seed=1, **known)


def a_class():
    return [
        result("ada", 2.0, 3.0),
        result("bob", 0.0, 1.5),
        result("Zoë; DROP TABLE student--", 2.0, 0.0),
        result("lost", None, 3.0, status="needs_review", reason="double: its cell is missing"),
        result("broken", None, None, status="unreadable", reason="it is not JSON", tests=()),
        result("slow", None, None, status="timeout", reason="took 60 s", tests=()),
        result("none", None, None, status="missing", tests=()),
    ]


NOTEBOOK = classroom.as_bytes(classroom.notebook())


def opened(url, notebook=NOTEBOOK, slug=classroom.SLUG):
    return GradebookWriter(url, notebook, slug)


def handed(one, submitted=None, **more):
    return HandIn(student=one.student, data=NOTEBOOK, submitted=submitted, **more)


def write(url, results):
    with opened(url) as book:
        for one in results:
            book.write(one, handed(one, WHEN))


def rows(url, *, ids=False):
    """Every row of every table; random ids replaced by what they stand for."""
    with stock(url) as book:
        found = {}
        for table in sorted(inspect(book.engine).get_table_names()):
            named = [dict(row._mapping) for row in book.db.execute(text(f"SELECT * FROM {table}"))]
            if not ids:
                named = [
                    {k: _plain(v) for k, v in row.items() if k == "student_id" or not _is_id(k)}
                    for row in named
                ]
            found[table] = sorted((tuple(sorted(row.items())) for row in named), key=repr)
        return found


def _is_id(column):
    return "id" in column.split("_")


def _plain(value):
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.startswith("2026-"):
        return datetime.datetime.fromisoformat(value)
    return value


def test_sqlite_and_postgresql_hold_the_same_rows(tmp_path, server):
    lite, database = f"sqlite:///{tmp_path}/gradebook.db", postgres.database(server)
    for url in (lite, database):
        write(url, a_class())
    one, other = rows(lite), rows(database)
    assert one == other
    assert len(one["grade"]) == 6 * 3
    assert len(one["student"]) == 6


def test_writing_twice_changes_nothing(url):
    write(url, a_class())
    before = rows(url, ids=True)
    write(url, a_class())
    assert rows(url, ids=True) == before


def test_a_submission_takes_a_handful_of_statements_however_many_cells_it_has(tmp_path):
    """They are sent while the workers wait for the same cores."""
    tests = classroom.TESTS | {f"double-{i}": "assert double(1) == 2" for i in range(40)}
    url = f"sqlite:///{tmp_path}/gradebook.db"
    sent = []
    one = result("ada", 2.0, 3.0)
    with opened(url, classroom.as_bytes(classroom.notebook(tests=tests))) as book:
        event.listen(book._book.engine, "before_cursor_execute", lambda *args: sent.append(args[2]))
        book.write(one, handed(one, WHEN))
        assert len(sent) <= 14, sent
        sent.clear()
        book.write(one, handed(one, WHEN))
        assert all(statement.startswith("SELECT") for statement in sent), "nothing differs"
        assert len(sent) <= 7, sent
        sent.clear()
        book.write(result("ada", 2.0, 1.0), handed(one, WHEN))
        changed = [statement for statement in sent if not statement.startswith("SELECT")]
        assert len(changed) == 1, "one mark differs"
    assert len(rows(url)["grade"]) == 43


def test_what_a_person_entered_survives_a_regrade(url):
    write(url, a_class())
    with stock(url) as book:
        report = book.find_grade("report", "small", "small", "bob")
        report.manual_score, report.extra_credit, report.needs_manual_grade = 3.5, 0.25, False
        values = book.find_grade("double-values", "small", "small", "bob")
        values.manual_score, values.needs_manual_grade = 1.0, False
        book.find_comment("double", "small", "small", "bob").manual_comment = "see me"
        book.find_submission_notebook("small", "small", "bob").flagged = True
    before = rows(url, ids=True)
    write(url, a_class())
    assert rows(url, ids=True) == before

    write(url, [result("bob", 2.0, 3.0)])
    with stock(url) as book:
        values = book.find_grade("double-values", "small", "small", "bob")
        assert (values.auto_score, values.manual_score, values.score) == (2.0, 1.0, 1.0)
        assert values.needs_manual_grade, "the manual score was given for another file"
        with opened(url) as again:
            notes = again.completed([result("bob", 2.0, 3.0)])[0].notes
        assert notes == (f"double-values{CHANGED}",), "whoever reads the summary is told"
        report = book.find_grade("report", "small", "small", "bob")
        assert (report.manual_score, report.extra_credit) == (3.5, 0.25)
        assert not report.needs_manual_grade
        assert book.find_comment("double", "small", "small", "bob").comment == "see me"
        assert book.find_submission_notebook("small", "small", "bob").flagged


def test_nbgraders_own_interface_reads_it(url):
    write(url, a_class())
    with stock(url) as book:
        ada = book.find_submission("small", "ada")
        assert (ada.score, ada.max_score, ada.needs_manual_grade) == (5.0, 9.0, True)
        assert ada.timestamp == WHEN
        assert book.find_submission_notebook("small", "small", "bob").score == 1.5
        lost = book.find_grade("double-values", "small", "small", "lost")
        assert (lost.auto_score, lost.needs_manual_grade) == (None, True), "no silent zero"
        for student in ("broken", "slow"):
            sheet = book.find_submission_notebook("small", "small", student)
            assert sheet.flagged
            assert all(g.needs_manual_grade and g.auto_score is None for g in sheet.grades)
            assert len(sheet.grades) == 3
        with pytest.raises(api.MissingEntry):
            book.find_submission("small", "none")
        listed = {d["student"]: d for d in book.submission_dicts("small")}  # the formgrader's table
        assert listed["ada"]["needs_manual_grade"]
        assert (listed["bob"]["code_score"], listed["bob"]["max_code_score"]) == (1.5, 5.0)
        assert listed["ada"]["max_written_score"] == 4.0
        assert book.average_assignment_score("small") > 0


def test_nbgraders_own_export_reads_it(tmp_path, url):
    write(url, a_class())
    tools_on_path()
    command = ["nbgrader", "export", f"--CourseDirectory.db_url={driver_url(url)}"]
    command += ["--to=grades.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "grades.csv").open() as file:
        marks = {row["student_id"]: row for row in csv.DictReader(file)}
    scores = {"ada": 5.0, "bob": 1.5, "Zoë; DROP TABLE student--": 2.0, "lost": 3.0}
    scores |= {"broken": 0.0, "slow": 0.0}
    assert {name: float(row["raw_score"]) for name, row in marks.items()} == scores
    assert marks["ada"]["max_score"] == "9.0"


def test_a_later_hand_in_takes_the_place_of_the_first(url):
    later = WHEN + datetime.timedelta(days=2)

    def kept():
        with stock(url) as book:
            (found,) = book.assignment_submissions(classroom.SLUG)
            return found.timestamp, found.score

    for mark, when, due in ((1.0, WHEN, WHEN), (3.0, later, later), (2.0, None, later)):
        with opened(url) as book:
            one = result("ada", 2.0, mark)
            book.write(one, handed(one, when))
        assert kept() == (due, 2.0 + mark)


def test_an_extension_of_one_student_counts(url):
    write(url, [])  # makes the assignment, as the first run does
    due = WHEN - datetime.timedelta(days=1)
    with stock(url) as book:
        book.update_or_create_assignment(classroom.SLUG, duedate=due)
        for student, days in {"ada": 2, "bob": 0.5}.items():
            book.update_or_create_student(student)
            more = datetime.timedelta(days=days)
            book.update_or_create_submission(classroom.SLUG, student, extension=more)
    for when, bob in ((None, EXTENDED), (WHEN, "late")):  # Canvas says late, and not by how much
        marked = [result(student, 2.0, 3.0, notes=("late",)) for student in ("ada", "bob", "cy")]
        with opened(url) as ours:
            for one in marked:
                ours.write(one, handed(one, when, late=True))
            found = {one.student: one.notes for one in ours.completed(marked)}
        assert found == {"ada": (EXTENDED,), "bob": (bob,), "cy": ("late",)}


def cells(url):
    """What is kept of the assignment's cells: points by kind and name."""
    with stock(url) as book:
        found = book.find_notebook("small", "small")
        kept = {
            "graded": {cell.name: cell.max_score for cell in found.grade_cells},
            "solutions": {cell.name: None for cell in found.solution_cells},
            "sources": {cell.name: None for cell in found.source_cells},
        }
    return kept


def test_changed_points_and_tests_are_taken_over_with_what_is_graded(url):
    write(url, a_class())
    points = classroom.POINTS | {"double-values": 7.0}
    tests = classroom.TESTS | {"double-twice": "assert double(2) == 4"}
    with opened(url, classroom.as_bytes(classroom.notebook(tests=tests, points=points))) as book:
        ada = result("ada", 7.0, 3.0)
        book.write(ada, handed(ada, WHEN))
    kept = cells(url)
    assert kept["graded"] == {**points, "double-twice": 1.0, "report": 4.0}
    assert set(kept["sources"]) == {"setup", "double", "squares", *kept["graded"]}
    del tests["squares-share"]
    with opened(url, classroom.as_bytes(classroom.notebook(tests=tests, points=points))):
        pass
    assert set(cells(url)["graded"]) == {"double-values", "double-twice", "report"}
    assert "squares-share" not in cells(url)["sources"]
    with stock(url) as book:
        assert book.find_submission("small", "ada").score == 7.0


def test_a_cell_that_a_person_has_graded_is_not_dropped(url):
    write(url, a_class())
    with stock(url) as book:
        book.find_grade("squares-share", "small", "small", "bob").manual_score = 2.0
    before = rows(url, ids=True)
    tests = {"double-values": classroom.TESTS["double-values"]}
    with pytest.raises(GradebookError, match=r"squares-share: .*a person entered"):
        opened(url, classroom.as_bytes(classroom.notebook(tests=tests)))
    assert rows(url, ids=True) == before


def test_whoever_wrote_in_between_the_gradebook_says_what_the_grader_says(url):
    write(url, a_class())
    before = rows(url, ids=True)
    with stock(url) as book:
        for submission in book.assignment_submissions("small"):
            for grade in submission.notebooks[0].grades:
                if grade.cell.name != "report":
                    grade.auto_score, grade.needs_manual_grade = grade.max_score, False
            for comment in submission.notebooks[0].comments:
                comment.auto_comment = "No response."
    assert rows(url, ids=True) != before
    write(url, a_class())
    assert rows(url, ids=True) == before


def test_what_persons_graded_is_part_of_the_results(url):
    write(url, a_class())
    with opened(url) as writer:
        (ada,) = writer.completed([result("ada", 2.0, 3.0)])
        assert (ada.score, ada.max_score, ada.pending) == (5.0, 9.0, ("report",))
    with stock(url) as book:
        report = book.find_grade("report", "small", "small", "ada")
        report.manual_score, report.extra_credit, report.needs_manual_grade = 3.0, 0.5, False
        book.find_comment("report", "small", "small", "ada").manual_comment = "well said"
        book.find_grade("double-values", "small", "small", "bob").manual_score = 1.5
        book.find_comment("squares", "small", "small", "bob").manual_comment = "see me"
    with opened(url) as writer:
        ada, bob, lost = writer.completed(
            [one for one in a_class() if one.student in "ada bob broken"]
        )
        (tests,) = writer.completed([result("ada", 2.0, 3.0)], tests_only=True)
    assert (ada.score, ada.pending) == (8.5, ())
    assert (ada.tests[-1].grade_id, ada.tests[-1].score) == ("report", 3.5)
    assert ada.tests[-1].message == "well said"
    assert (bob.score, bob.pending, bob.comments) == (3.0, ("report",), {"squares": "see me"})
    assert "A person set this score" in bob.tests[0].message
    assert (lost.score, lost.max_score, lost.pending) == (None, 9.0, ())
    assert (tests.score, tests.max_score, tests.pending) == (5.0, 5.0, ())


def test_an_answer_that_changed_after_it_was_graded_is_shown_again(url, tmp_path):
    def hand_in(text):
        one = result("ada", 2.0, 3.0)
        data = classroom.answered({"report": text})
        with GradebookWriter(url, NOTEBOOK, "small", tmp_path) as writer:
            writer.write(one, HandIn(student="ada", data=data))

    def waits():
        with stock(url) as book:
            found = book.find_grade("report", "small", "small", "ada").needs_manual_grade
        return bool(found)

    hand_in("My first answer.")
    with stock(url) as book:
        report = book.find_grade("report", "small", "small", "ada")
        report.manual_score, report.needs_manual_grade = 3.0, False
    hand_in("My first answer.")
    assert not waits()
    hand_in("My second answer.")
    assert waits()


def test_an_answer_left_as_released_is_nothing_at_once_and_a_persons_points_stay(tmp_path):
    url = f"sqlite:///{tmp_path}/gradebook.db"
    release = json.loads(classroom.as_bytes(prepared(NOTEBOOK, "small", CourseDirectory())[1]))

    def hand_in(text, one):
        data = classroom.answered({} if text is None else {"report": text}, release)
        with GradebookWriter(url, NOTEBOOK, "small", tmp_path) as writer:
            writer.write(one, HandIn(student=one.student, data=data))
            return writer.completed([one])[0]

    def set_points(student, points):
        with stock(url) as book:
            report = book.find_grade("report", "small", "small", student)
            report.manual_score, report.needs_manual_grade = points, False

    ada = result("ada", 2.0, 3.0)
    found = hand_in(None, ada)
    assert (found.score, found.max_score, found.pending) == (5.0, 9.0, ())
    assert found.tests[-1].score == 0.0
    assert found.tests[-1].message == "This answer was left as it was released."
    assert hand_in("My answer.", ada).pending == ("report",)
    set_points("ada", 3.0)
    found = hand_in(None, ada)
    assert (found.score, found.notes) == (8.0, (f"report{CHANGED}",))
    hand_in(None, result("bob", 2.0, 3.0))
    set_points("bob", 1.0)
    found = hand_in(None, result("bob", 2.0, 3.0))
    assert (found.score, found.notes) == (6.0, ())
    lost = result("lost", None, None, status="timeout", tests=())
    assert hand_in(None, lost).score is None, "never a zero"


def test_a_failed_write_leaves_no_half_submission(url, monkeypatch):
    write(url, [])
    one, two = result("ada", 2.0, 3.0), result("bob", 2.0, 3.0)
    before = rows(url, ids=True)
    with opened(url) as book:
        monkeypatch.setattr(book, "_late", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            book.write(one, handed(one))
        monkeypatch.undo()
        book.write(two, handed(two))
    after = rows(url, ids=True)
    assert before["student"] == []
    assert len(after["student"]) == 1


def _no_server(tmp_path):
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


def _file(folder):
    (folder / "notes.txt").write_text("these are notes, not tables" * 100)
    return folder / "notes.txt"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_address_is_one_clear_line(name, tmp_path):
    with pytest.raises(GradebookError) as caught:
        opened(WRONG[name](tmp_path))
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert "cannot be opened" in said
    assert "secret" not in said


def test_no_such_database_is_one_clear_line(server):
    with pytest.raises(GradebookError, match='database "nowhere" does not exist') as caught:
        opened(server.rsplit("/", 1)[0] + "/nowhere")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("step", ["open", "write", "read"])
def test_a_locked_gradebook_asks_to_close_the_program_that_holds_it(tmp_path, step):
    url = f"sqlite:///{tmp_path}/gradebook.db?timeout=0.2"
    one = result("ada", 2.0, 3.0)
    steps = {
        "open": lambda book: write(url, []),
        "write": lambda book: book.write(one, handed(one)),
        "read": lambda book: book.completed([one]),
    }
    with opened(url) as book:
        other = sqlite3.connect(tmp_path / "gradebook.db")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(GradebookError, match="database is locked; close the program") as caught:
            steps[step](book)
        assert len(str(caught.value).splitlines()) == 1
        assert "run the same command again" in str(caught.value)
        other.rollback()
        other.close()
        steps[step](book)


def test_without_postgresql_the_test_says_what_to_install(monkeypatch):
    monkeypatch.setattr(postgres, "programs", lambda: None)
    with pytest.raises(AssertionError, match="apt-get install postgresql"), postgres.server():
        raise RuntimeError("it started")


def test_two_runs_that_create_one_gradebook_at_once_both_go_on(tmp_path):
    url = f"sqlite:///{tmp_path}/gradebook.db"

    def grade(student):
        one = result(student, 2.0, 3.0)
        with opened(url) as book:
            book.write(one, handed(one, WHEN))

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(grade, ("ada", "bob", "eve")))
    found = rows(url)
    students = [dict(row)["student_id"] for row in found["submitted_assignment"]]
    assert students == ["ada", "bob", "eve"]
    assert len(found["assignment"]) == len(found["notebook"]) == 1
    assert len(found["grade"]) == 9


def test_a_score_typed_on_an_unreadable_page_is_a_total_when_every_cell_has_one(tmp_path):
    lost = result("ada", None, None, status="unreadable", reason="it is not JSON", tests=())
    with opened(f"sqlite:///{tmp_path / 'gradebook.db'}") as book:
        book.write(lost, handed(lost))
        for name, total in (("double-values", None), ("squares-share", None), ("report", 6.0)):
            book._book.find_grade(name, "small", "small", "ada").manual_score = 2.0
            book._session.commit()
            (found,) = book.completed([lost])
            assert found.score == total
            said = any("a total needs a score in every cell" in note for note in found.notes)
            assert said is (total is None)


DAMAGE = {
    "no such table: comment": lambda path: sqlite3.connect(path).execute("DROP TABLE comment"),
    "": lambda path: os.pwrite(os.open(path, os.O_WRONLY), bytes(4096), 0),
}


@pytest.mark.parametrize("said", DAMAGE)
def test_a_damaged_gradebook_is_not_met_with_the_same_command_again(tmp_path, said):
    one = result("ada", 2.0, 3.0)
    with opened(f"sqlite:///{tmp_path / 'gradebook.db'}") as book:
        book._session.commit()
        DAMAGE[said](tmp_path / "gradebook.db")
        with pytest.raises(GradebookError, match=f"{said}.*bring back a copy of it") as caught:
            book.write(one, handed(one))
    assert "close" not in str(caught.value)
    assert "again" not in str(caught.value)


@pytest.mark.parametrize("address", [
    "postgresql://ada:hunter2@host/course",
    "postgresql+psycopg://ada:hunt/er@hunter2@host/course",
    "postgresql://host/course?user=ada&password=hunter2",
    "postgresql://host/course?p%61ssword=hunter2&sslmode=require",
    "postgresql://host/course?sslpassword=hunter2",
    "host=host dbname=course password=hunter2 user=ada",
    "host=host dbname=course password = 'hunter2 \\' hunter2' user=ada",
    "postgresql://ada@corp:hunter2@host/course",
    "postgresql://ada:hun ter hunter2@host/course",
    "postgresql://ada:hunter2\n@host/course",
    "postgresql:/ada:hunter2@host/course",
    "ada:hunter2@host/course",
    "postgresql://ada:x@hunter2@host/course",
    "postgresql://ada:%68unter2@host/course",
    "postgresql://host/course?options=-c%20password%3Dhunter2",
    "mssql+pyodbc://host/course?odbc_connect=PWD%3Dhunter2",
])  # fmt: skip
def test_no_form_of_an_address_prints_its_password(address):
    """Nor does what a driver says of the address, which it may have cut in another place."""
    url = driver_url(address)
    for said in (url, f"cannot connect to {url} now", 'no host "hunter2@host", no course'):
        found = without_secrets(said, url)
        if "password" not in address or "connect" in said:
            assert "hunter2" not in found
        assert "course" in found
