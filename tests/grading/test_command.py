"""What the commands print, write and refuse, beside the marks themselves."""

import errno
import importlib.util
import json
import os
import tomllib
import zipfile
from pathlib import Path

import classroom
import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from attn_course import __version__
from attn_course.cli import app
from attn_course.exercises.assignment import load_assignment
from attn_course.exercises.submission import look_at
from attn_course.grading import command, exports
from attn_course.grading.command import Progress
from attn_course.grading.results import Result

GRADE = ("grade", "submitted", "--assignment", "small")


@pytest.fixture
def course(tmp_path, monkeypatch):
    source = tmp_path / "source/small/small.ipynb"
    source.parent.mkdir(parents=True)
    source.write_bytes(classroom.as_bytes(classroom.notebook()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def graded(monkeypatch, course):
    """A class whose grading itself is left out here."""
    classroom.write_class(course / "submitted", 3)
    one = Result(student="s00", assignment="small", status="graded", score=5.0, max_score=5.0)
    monkeypatch.setattr(command, "grade_class", lambda *args, **more: [one])


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_the_version():
    assert run("--version").output.strip() == f"attn-course {__version__}"


def test_a_list_of_exercises_asks_for_a_checkout_where_no_package_would_help(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("exercises", "list")
    assert done.exit_code == 2
    assert "no checkout of the course" in done.output


@pytest.mark.parametrize(("module", "command", "install"), [
    ("jupytext", "exercises build", "jupytext"),
    ("jupytext", "exercises check", "jupytext"),
    ("jupytext", "exercises list", "jupytext"),
    ("nbgrader", "exercises build", "'attn-course[grading]'"),
    ("nbgrader", "grade submitted --assignment small", "'attn-course[grading]'"),
])  # fmt: skip
def test_the_smallest_package_that_helps_is_named(monkeypatch, module, command, install):
    found = importlib.util.find_spec
    look = lambda name, *more: None if name == module else found(name, *more)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", look)
    done = run(*command.split())
    assert done.exit_code == 2
    assert done.stderr == f"attn-course: error: this needs {module}: pip install {install}\n"


def test_the_extra_for_grading_brings_what_grading_imports():
    """Also in a checkout, where the text source of a set is read."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extra = {Requirement(one).name for one in project["optional-dependencies"]["grading"]}
    assert {"nbgrader", "nbformat", "jupytext"} <= extra


def test_marks_are_printed_where_the_file_is_a_dash(course, monkeypatch):
    graded(monkeypatch, course)
    done = run(*GRADE, "--csv", "-")
    assert done.exit_code == 0
    assert done.output.splitlines()[1].startswith("s00,,small,5,5,")
    assert not (course / "-").exists()


def test_one_form_that_cannot_be_written_leaves_the_others(course, monkeypatch):
    graded(monkeypatch, course)

    def refuse(*args):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), "feedback/s00")

    monkeypatch.setattr(command, "write_feedback", refuse)
    done = run(*GRADE, "--feedback", "feedback", "--json", "m.json")
    assert done.exit_code == 2
    assert "graded, but not written: feedback/s00: Permission denied" in done.output
    assert json.loads((course / "m.json").read_text())["submissions"][0]["score"] == 5.0


def test_a_full_disk_is_named(course, monkeypatch):
    graded(monkeypatch, course)

    def full(*args, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(exports, "write_text", full)
    done = run(*GRADE, "--csv", "marks.csv")
    assert done.exit_code == 2
    assert "marks.csv: No space left on device" in done.output
    assert "[Errno" not in done.output


@pytest.mark.parametrize("csv", ["-", "marks.csv"])
def test_without_a_gradebook_the_points_of_written_answers_are_named(course, monkeypatch, csv):
    graded(monkeypatch, course)
    known = (*GRADE, "--csv", csv)
    [said] = run(*known, "--gradebook", "none").stderr.splitlines()
    assert "the written answers (4 points) are in no mark" in said
    assert "leave --gradebook none out" in said
    assert run(*known, "--gradebook", "none", "--tests-only").stderr == ""
    assert run(*known).stderr == ""


def test_progress_says_what_an_earlier_run_had_done(capsys):
    progress = Progress()
    progress(Result(student="a", assignment="small", status="graded"), 20, 20)
    assert capsys.readouterr().err == "graded 20 of 20 (19 of them earlier): 1 graded\n"


def test_a_missing_and_a_doubled_cell_are_both_named(grade):
    found = classroom.notebook()
    found["cells"] = [cell for cell in found["cells"] if cell["id"] != "squares"]
    found["cells"].append(found["cells"][1])
    result = grade(data=classroom.as_bytes(found))
    assert result.status == "needs_review"
    assert result.reason == "squares: its cell is missing; the cell double is there 2 times"


def test_precheck_lists_what_grade_would_say_of_the_files(course):
    classroom.write_class(course / "submitted", 3)
    odd = classroom.notebook()
    odd["cells"].append(odd["cells"][1])
    bare = classroom.notebook()
    for cell in bare["cells"]:
        cell["metadata"] = {}
    for student, found in (("odd", odd), ("bare", bare)):
        place = course / "submitted" / student / "small"
        place.mkdir(parents=True)
        (place / "final.ipynb").write_bytes(classroom.as_bytes(found))
    done = run("precheck", "submitted", "--assignment", "small")
    assert done.exit_code == 1
    said = dict(line.split(": ", 1) for line in done.output.splitlines())
    statuses = {"bare": "stripped", "odd": "needs_review", "s00": "ready"}
    statuses |= {"t-missing": "missing", "u-broken": "unreadable"}
    assert {name: told.split(":")[0] for name, told in said.items()} == statuses
    told = "the cell double is there 2 times; the file was named final.ipynb"
    assert said["odd"] == f"needs_review: {told}"


def of_version(version):
    found = classroom.notebook()
    found["metadata"]["attn_course"] = {"slug": "small"} | ({"version": version} if version else {})
    return found


SAID = "another version of the set: {}; graded by 0.1.0+1234abcd"
OLD = SAID.format("released before sets had versions")
VERSIONS = {
    "0.1.0+1234abcd": "",
    "0.0.9+ffff0000": SAID.format("0.0.9+ffff0000"),
    "<b>0.1</b>": OLD,
    None: OLD,
}
OURS = of_version("0.1.0+1234abcd")


@pytest.mark.parametrize("version", VERSIONS)
def test_another_version_is_noted_and_refuses_nothing(version):
    ours = load_assignment(classroom.as_bytes(OURS), "small")
    status, reason, found = look_at(classroom.as_bytes(of_version(version)), ours)
    assert (status, reason) == ("graded", "")
    assert found.notes == ((VERSIONS[version],) if VERSIONS[version] else ())


def test_a_notebook_without_a_table_of_cells_says_nothing_of_versions():
    ours = load_assignment(classroom.as_bytes(OURS), "small")
    assert look_at(classroom.as_bytes(classroom.notebook()), ours)[2].notes == ()


def test_another_version_costs_no_point(grade):
    result = grade(OURS, data=classroom.as_bytes(of_version("0.0.9+ffff0000")))
    assert (result.status, result.score) == ("graded", 5.0)
    assert result.notes == (VERSIONS["0.0.9+ffff0000"],)


def test_precheck_and_the_summary_name_the_versions(course, capsys):
    source = course / "source/small/small.ipynb"
    source.write_bytes(classroom.as_bytes(of_version("0.1.0+1234abcd")))
    place = course / "submitted" / "ada" / "small"
    place.mkdir(parents=True)
    (place / "small.ipynb").write_bytes(classroom.as_bytes(of_version("0.0.9+ffff0000")))
    done = run("precheck", "submitted", "--assignment", "small")
    assert done.output == f"ada: ready: {VERSIONS['0.0.9+ffff0000']}\n"
    assert done.exit_code == 0

    known = {"assignment": "small", "status": "graded", "score": 1.0, "max_score": 1.0}
    notes = [VERSIONS["0.0.9+ffff0000"], VERSIONS["0.0.9+ffff0000"], VERSIONS[None]]
    command._table([Result(student=str(i), notes=(n,), **known) for i, n in enumerate(notes)])
    _, *said = capsys.readouterr().out.splitlines()
    assert said == [f"2 of {notes[0]}", f"1 of {notes[2]}"]


def test_precheck_names_the_students_of_a_platform(course):
    with zipfile.ZipFile(course / "moodle.zip", "w") as archive:
        archive.writestr("Zoë O'Brien_70_assignsubmission_file/small.ipynb", "")
    done = run("precheck", "moodle.zip", "--assignment", "small")
    assert done.output == "70 (Zoë O'Brien): unreadable: the file is empty\n"


def test_the_summary_names_the_seed_where_all_have_one(capsys):
    known = {"assignment": "small", "status": "graded", "score": 1.0, "max_score": 1.0}
    for seeds, said in (([9, 9], "; seed 9\n"), ([5, 9], "; a seed for each student, on their")):
        command._table([Result(student=str(i), seed=s, **known) for i, s in enumerate(seeds)])
        assert said in capsys.readouterr().out
