"""What an instructor runs into: who is missing, who changed a test, which line is faulty."""

import json
import zipfile

import classroom
import pytest

from attn_course.exercises.assignment import load_assignment
from attn_course.exercises.submission import look_at
from attn_course.grading.classlist import read_class
from attn_course.grading.collect import CollectError, HandIn, collect
from attn_course.grading.run import AssignmentError, _check_solution, grade_class

LISTS = {
    "canvas": 'Student,ID,SIS User ID,small\n  Points Possible,,,9\n"L, Ada",7,x,\nEmmy N,8,y,\n',
    "moodle": "Identifier,Full name,Grade\nParticipant 7,Ada L,\nParticipant 8,Emmy N,\n",
    "nbgrader": "id,first_name,last_name\n7,Ada,L\n8,Emmy,N\n",
}


@pytest.mark.parametrize("form", LISTS)
def test_everyone_of_the_class_has_a_row_and_the_name_of_the_list(form, tmp_path):
    path = tmp_path / "class.csv"
    path.write_text("\ufeff" + LISTS[form], encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        for name in ("lada_7_1_small.ipynb", "x_9_2_small.ipynb"):
            archive.writestr(name, "{}")
    found = collect(tmp_path / "c.zip", "small", read_class(path))
    rows = [("7", "Ada L", b"{}"), ("8", "Emmy N", None), ("9", "x", b"{}")]
    assert [(one.student, one.name, one.data) for one in found] == rows
    assert [one.notes for one in found] == [(), (), ("not on the class list",)]
    (tmp_path / "nobody").mkdir()
    found = collect(tmp_path / "nobody", "small", read_class(path))
    assert [(one.name, one.data) for one in found] == [("Ada L", None), ("Emmy N", None)]


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", None])
def test_a_list_of_another_kind_is_refused_in_one_line(text, tmp_path):
    path = tmp_path / "class.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CollectError, match="--class-list"):
        read_class(path)


def test_a_test_that_was_replaced_is_noted_and_an_honest_release_is_not():
    whole = classroom.notebook()
    assignment = load_assignment(classroom.as_bytes(whole), "small")
    honest = json.loads(json.dumps(whole))
    for cell in honest["cells"]:
        cell["source"] = cell["source"].split("### BEGIN HIDDEN")[0]
    found = look_at(classroom.as_bytes(honest), assignment)[2]
    assert found.notes == ()
    forged = classroom.answered({"double-values": "assert True", "setup": "import numpy"}, honest)
    found = look_at(forged, assignment)[2]
    names = ("setup", "double-values")
    assert found.notes == tuple(f"the cell {name} was changed; ours was used" for name in names)


def test_a_faulty_test_names_its_line(grade):
    tests = {"double-values": "x = torch.ones(2)\ny = double(x)\nassert y[0] == 3"}
    made = classroom.as_bytes(classroom.notebook(tests=tests))
    result = grade(classroom.notebook(tests=tests))
    with pytest.raises(AssignmentError, match=r"double-values, line 3: assert y\[0\] == 3"):
        _check_solution(result, load_assignment(made, "small"))


def test_a_test_that_is_no_python_is_told_by_its_line():
    made = classroom.notebook(tests={"double-values": "x = 1\nassert double(x"})
    with pytest.raises(ValueError, match="double-values, line 2: assert double"):
        load_assignment(classroom.as_bytes(made), "small")


def test_tests_that_trust_the_notebook_can_be_left_out(tmp_path):
    help_cell = "from attn_course.probes import student\ndef left(f):\n    student.traces(f, 1)"
    tests = {"double-values": "double(1)", "double-clean": "left(double)"}
    made = classroom.as_bytes(classroom.notebook(tests=tests, setup=help_cell))
    assignment = load_assignment(made, "small")
    kept = assignment.without_advisory().tests
    assert [test.grade_id for test in kept] == ["double-values"]
    data = HandIn(student="ada", data=made)
    settings = {"notebook": made, "slug": "small", "limits": classroom.LIMITS}
    for left_out, names in ((False, ["double-values", "double-clean"]), (True, ["double-values"])):
        url = f"sqlite:///{tmp_path}/{left_out}.db"
        (result,) = grade_class([data], without_advisory=left_out, gradebook=url, **settings)
        assert [test.grade_id for test in result.tests] == [*names, "report"]
        assert result.max_score == 6.0 + (not left_out), "with four points of the written answer"
        with classroom.stock(url) as book:
            sheet = book.find_submission_notebook("small", "small", "ada")
            assert {g.name: g.needs_manual_grade for g in sheet.grades}.keys() == {*names, "report"}


def test_a_class_list_that_comes_later_gives_its_names(tmp_path):
    made = classroom.as_bytes(classroom.notebook())
    settings = {"notebook": made, "slug": "small", "journal": tmp_path / "j.jsonl"}
    for name, listed, note in (("lovelaceada", False, "renamed"), ("Ada Lovelace", True, "")):
        item = HandIn(student="7", data=made, name=name, listed=listed, note=note)
        url = f"sqlite:///{tmp_path}/gradebook.db"
        (result,) = grade_class([item], gradebook=url, limits=classroom.LIMITS, **settings)
        assert (result.name, result.notes) == (name, (note,) * bool(note))


@pytest.mark.parametrize("left_out", [False, True])
def test_what_only_the_submission_can_report_counts_unless_it_is_left_out(left_out):
    seen = """
from attn_course.probes import student
from attn_course.probes.outcome import run
from attn_course.probes.catalogue import Call
assert not run(double, Call((torch.ones(3),))).mutated, "written"
"""
    finer = "assert student.peak_memory(double, torch.ones(3)) < 4 << 20"
    made = classroom.notebook(tests={"double-written": seen, "double-finer": finer})
    wrote = "def double(x):\n    large = torch.ones(2 << 20)\n    x.mul_(2)\n    return x.clone()"
    handed = [HandIn(student="ada", data=classroom.answered({"double": wrote}, made))]
    settings = {"limits": classroom.LIMITS, "without_advisory": left_out}
    (result,) = grade_class(handed, notebook=classroom.as_bytes(made), slug="small", **settings)
    assert [test.score for test in result.tests] == [float(left_out)] * 2
