"""Every form of the results says the same, and none of them can be made to act."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_course.exercises.testcell import TestResult as One
from attn_course.grading import exports
from attn_course.grading.results import Result

quick = settings(max_examples=100, deadline=None, derandomize=True)
EVIL = "=cmd|'/c calc'!A1"


def result(student="ada", **more):
    tests = (
        One("f-a", 2.0, 2.0),
        One("f-b", 0.5, 1.0, "half\x00 <b>&]]>\ud800", "swapped the axes", 0.25),
        One("f-c", None, 1.0, "not graded: its cell is missing"),
    )
    known = {"assignment": "small", "status": "graded", "score": 2.5, "max_score": 4.0, "seed": 9}
    return Result(student=student, **{**known, "tests": tests, **more})


CHANGED_CELL = "the cell f-a was changed; ours was used"
LOST = result("bob", status="unreadable", reason="it is not JSON", score=None, tests=())
MISSING = result("eve", status="missing", reason="no notebook", score=None, tests=())
CLASS = [result(), LOST, MISSING]


def test_json_has_the_documented_fields_and_types():
    found = json.loads(json.dumps(exports.to_json(CLASS, "small")))
    assert {"assignment", "seed", "submissions"} == set(found)
    assert (found["assignment"], found["seed"]) == ("small", 9)
    fields = dict.fromkeys(("student", "name", "assignment", "status", "reason"), str)
    fields |= dict.fromkeys(("max_score", "late_penalty", "seconds"), float)
    fields |= dict.fromkeys(("pending", "notes", "tests"), list)
    fields |= {"seed": int, "sandboxed": bool, "comments": dict}
    for one in found["submissions"]:
        assert set(one) == {*fields, "score"}
        assert {name: type(one[name]) for name in fields} == fields
        assert one["score"] is None or type(one["score"]) is float
        for test in one["tests"]:
            assert list(test) == [
                "grade_id",
                "score",
                "max",
                "message",
                "misconception",
                "seconds",
                "line",
            ]
    assert [one["score"] for one in found["submissions"]] == [2.5, None, None]
    assert found["submissions"][0]["tests"][1]["misconception"] == "swapped the axes"
    assert found["submissions"][0]["tests"][2]["score"] is None


def test_a_class_has_a_seed_where_it_is_one_for_all():
    assert exports.to_json([result("ada"), result("bob")], "small")["seed"] == 9
    assert exports.to_json([result("ada", seed=5), result("bob")], "small")["seed"] is None
    assert exports.class_seed([]) is None


def test_gradescope_has_no_score_where_nothing_was_graded(tmp_path):
    ada, bob = exports.to_gradescope(result()), exports.to_gradescope(LOST)
    assert ada["score"] == 2.5
    assert "score" not in bob
    assert bob["output"] == "unreadable: it is not JSON"
    for test in ada["tests"]:
        assert test["visibility"] == "visible"
        assert test.get("status") in (None, "passed", "failed")
    assert "score" not in ada["tests"][2]
    exports.write_gradescope([result()], tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text())["score"] == 2.5
    exports.write_gradescope(CLASS, tmp_path / "all")
    written = sorted(p.name for p in (tmp_path / "all").iterdir())
    assert written == ["ada.json", "bob.json", "eve.json"]


def test_gradescope_and_json_carry_what_the_student_is_told():
    found = exports.to_gradescope(result())
    given = [(t["name"], t["max_score"], t["output"]) for t in found["tests"]]
    assert given == [(t.grade_id, t.max, t.message) for t in result().tests]
    assert {t["output_format"] for t in found["tests"]} == {"text"}
    assert "output" not in found
    noted = exports.to_json([result(notes=("late", "double 2 times"))], "small")["submissions"][0]
    assert noted["notes"] == ["late", "double 2 times"]
    assert [t["message"] for t in noted["tests"]] == [t.message for t in result().tests]
    assert [t["max"] for t in noted["tests"]] == [2.0, 1.0, 1.0]


def read(text):
    return list(csv.reader(io.StringIO(text)))


def test_csv_leaves_the_mark_empty_where_nothing_was_graded():
    named = result(
        name="Ada L", notes=("late", CHANGED_CELL), late_penalty=0.5, pending=("report",)
    )
    rows = read(exports.to_csv([named, *CLASS[1:]], "small"))
    columns = ["student", "name", "assignment", "score", "max_score", "pending", "late"]
    assert rows[0] == [*columns, "late_penalty", "status", "reason", "notes"]
    mine = ["ada", "Ada L", "small", "2.5", "4", "report", "late", "0.5", "graded", ""]
    assert rows[1] == [*mine, "the cell f-a was changed; ours was used"]
    assert [row[3] for row in rows[1:]] == ["2.5", "", ""]


def test_csv_in_the_form_of_canvas():
    people = [result("123", name="ada"), result("124", pending=("report",)), LOST]
    rows = read(exports.to_csv(people, "small", form="canvas"))
    assert rows[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "small"]
    assert rows[1][0].strip() == "Points Possible"
    assert rows[1][-1] == "4"
    marks = [(row[0], row[1], row[-1]) for row in rows[2:]]
    assert marks == [("ada", "123", "2.5"), ("124", "124", ""), ("bob", "bob", "")]


def test_csv_in_the_form_of_moodle():
    people = [result("123", name="Ada L"), result("124", pending=("report",)), LOST]
    rows = read(exports.to_csv(people, "small", form="moodle"))
    columns = ["Identifier", "Full name", "Grade", "Maximum Grade", "Last modified (grade)"]
    assert rows[0] == [*columns, "Feedback comments"]
    told = "This looks like: swapped the axes."
    assert rows[1] == ["Participant 123", "Ada L", "2.5", "4", "", told]
    assert rows[2][2] == "", "a mark without the written answers would be taken for the mark"
    said = "Your file is no notebook that can be read. Please hand it in again."
    assert rows[3] == ["bob", "", "", "4", "", said], "words for a student, not the staff's reason"


def test_an_unknown_form_is_refused():
    with pytest.raises(ValueError, match="canvas"):
        exports.to_csv(CLASS, "small", form="excel")


@pytest.mark.parametrize("form", exports.FORMS)
@given(st.text(max_size=8), st.sampled_from(["=", "+", "-", "@", "\t=", "\r=", " =", "\n@", "="]))
@quick
def test_no_cell_of_a_csv_is_a_formula(form, rest, start):
    evil = start + EVIL + rest
    one = result(evil, status="unreadable", reason=evil, score=None)
    two = result(evil, tests=(One("f-a", 0.0, 1.0, "", evil),))
    for row in read(exports.to_csv([one, two], "small", form=form)):
        for cell in row:
            assert cell.lstrip()[:1] not in ("=", "+", "-", "@"), cell


SEPARATED = ["x;=HYPERLINK(1)", 'x";=1+1', "x;  -1", "a|@SUM(1)", "x,\t=1"]
SEPARATED += ["\uff1d1+1", "\uff0b1", "\uff20A1", "ok;\uff0d1"]


@pytest.mark.parametrize("evil", SEPARATED)
@pytest.mark.parametrize("form", exports.FORMS)
def test_no_part_of_a_cell_is_a_formula_where_columns_are_separated_otherwise(form, evil):
    """A spreadsheet of a country with decimal commas cuts lines at semicolons, quoted or not."""
    one = result(evil, status="unreadable", reason=evil, score=None)
    told = exports.to_csv([one], "small", form=form)
    for part in re.split(r"[;|,\n\t]", told):
        start = part.replace('"', "").strip()[:1]
        assert start not in tuple("=+-@\uff1d\uff0b\uff0d\uff20"), (part, told)


def test_what_moodle_shows_as_html_is_text():
    evil = "<img src=x onerror=alert(1)>"
    one = result("5", tests=(One("f-a", 0.0, 1.0, "", evil),))
    row = read(exports.to_csv([one], "small", form="moodle"))[1]
    assert "<" not in row[-1]
    assert "&lt;img" in row[-1]


def test_names_that_differ_in_case_only_have_files_of_their_own():
    """Else one student's page overwrites another's where a file system tells no case apart."""
    students = ["Ada", "ada", "ADA", "bob", "Stra\u00dfe", "strasse"]
    names = exports.file_names(students)
    assert len({name.casefold() for name in names.values()}) == len(students)
    assert names["bob"] == "bob"
    assert exports.file_names(reversed(students)) == names


NAMES = ["ada", "Ada Lovelace", "a/b", "..", ".", "", ".ada", "a%2fb", "\ud800", "é"]
NAMES += ["名" * 90, "x" * 300]


def test_file_names_stay_in_their_folder_and_apart(tmp_path):
    names = exports.file_names(NAMES).values()
    assert len(set(names)) == len(NAMES)
    for name in names:
        assert not name.startswith(".")
        exports.write_text(tmp_path / name / f"{name}.html", "x")
    assert len(list(tmp_path.iterdir())) == len(NAMES)


@given(st.text(), st.text())
@quick
def test_two_students_never_share_a_file(one, other):
    names = exports.file_names([one, other])
    assert len(set(names.values())) == len({one, other})
    assert "/" not in names[one]


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.json"
    exports.write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        exports.write_text(path, "\ud800")
    assert path.read_text() == "old"


def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    exports.write_text(path, "old")

    def full(self, data):
        with self.open("wb") as file:
            file.write(data[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        exports.write_text(path, "new and long")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
