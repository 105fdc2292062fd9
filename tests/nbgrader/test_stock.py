"""Stock nbgrader on real submissions: its own commands, one kernel run per submission."""

import csv
import html
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig

import nbformat
import pytest
import sets
from cells import as_cell, has_a_cell
from sets import ROOT, SLUGS, answers, assignment, filled, misconceptions, source
from trial import Trial

from attn_course.exercises.source import solution_names
from attn_course.grading.sandbox import Limits, Zygote
from attn_course.grading.verdict import grade_notebook

pytestmark = [pytest.mark.nbgrader, pytest.mark.timeout(900)]

ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]),
    "ATTN_COURSE_SEED": "0",
    "OMP_NUM_THREADS": "1",
}
STUDENTS = ("right", "untouched", "wrong", "broken")

# what the console script does, for each command line, in a fork of a process that has imported
COMMANDS = """
import json, os, sys
from nbgrader.apps.nbgraderapp import NbGraderApp
for line in sys.stdin:
    if os.fork() == 0:
        sys.stdout = sys.stderr
        NbGraderApp.launch_instance(json.loads(line))
        sys.exit()
    print(os.wait()[1], flush=True)
"""


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    """One course directory for all sets of a worker of pytest, with one gradebook."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    return folder


@pytest.fixture(scope="session")
def nbgrader(course):
    """Run nbgrader's commands in the course."""
    log = course / "log.txt"
    with log.open("w") as said:
        streams = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": said,
            "text": True,
        }
        command = [sys.executable, "-c", COMMANDS]
        with subprocess.Popen(command, cwd=course, env=ENVIRONMENT, **streams) as server:

            def run(line):
                before = log.stat().st_size
                print(json.dumps(line.split()), file=server.stdin, flush=True)
                assert server.stdout.readline() == "0\n", log.read_text()[before:]

            yield run


@pytest.fixture(scope="session")
def zygote():
    with Zygote() as found:
        yield found


def first_misconceptions(slug):
    found = {}
    for wrong in misconceptions(slug):
        if has_a_cell(wrong):
            found.setdefault(wrong.of, wrong)
    return found


def wrong_cells(slug):
    """The first misconception of every function, in place of the answer; kernels are right."""
    names = solution_names(source(slug))
    wrong = first_misconceptions(slug)
    kernels = {name: cell for name, cell in answers(slug).items() if name not in names.values()}
    return kernels | {names[of]: as_cell(slug, one) for of, one in wrong.items()}


def broken_cells(slug):
    """Right answers, but one raises, one is no Python, and one shouts to stderr before it works."""
    cells = answers(slug)
    functions = solution_names(source(slug))
    names = [name for name in cells if name in functions]
    cells[names[0]] = f"def {names[0]}(*args, **kwargs):\n    raise ValueError('my own mistake')\n"
    cells[names[1]] = f"def {names[1]}(x:\n    return x\n"
    cells[names[2]] += f"\n\nimport sys, warnings\ninner = {names[2]}\n" + (
        f"def {names[2]}(*args, **kwargs):\n"
        "    warnings.warn('loud')\n"
        "    print('louder', file=sys.stderr)\n"
        "    return inner(*args, **kwargs)\n"
    )
    return cells, names


@pytest.fixture
def graded(course, nbgrader, slug, students):
    """Run the whole chain; the scores of every cell and the feedback."""
    cells = {
        "right": answers(slug), "untouched": {}, "wrong": wrong_cells(slug),
        "broken": broken_cells(slug)[0],
    }  # fmt: skip
    for place, notebook in {
        f"build/source/{slug}": source(slug),
        **{f"submitted/{s}/{slug}": filled(sets.release(slug), cells[s]) for s in students},
    }.items():
        (course / place).mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, course / place / f"{slug}.ipynb")
    nbgrader(f"generate_assignment {slug} --force")
    if students:
        nbgrader(f"autograde {slug} --force")
    found = {student: marks(course, slug, student) for student in students}
    told = {}
    if len(students) > 1:
        nbgrader(f"generate_feedback {slug} --force")
        nbgrader("export --to marks.csv")
        told = {student: feedback(course, slug, student) for student in students}
        with (course / "marks.csv").open() as lines:
            rows = [row for row in csv.DictReader(lines) if row["assignment"] == slug]
        exported = {row["student_id"]: float(row["score"]) for row in rows if row["score"]}
        assert {s: exported[s] for s in students} == {s: score for s, (score, _) in found.items()}
    return {
        "released": (course / "release" / slug / f"{slug}.ipynb").read_bytes(),
        "marks": {student: score for student, (score, _) in found.items()},
        "cells": {student: cells for student, (_, cells) in found.items()},
        "feedback": told,
    }


def marks(course, slug, student):
    """What the gradebook holds: the score of all, and of each cell of code."""
    from nbgrader.api import Gradebook

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", ENVIRONMENT["PATH"])
        with Gradebook(f"sqlite:///{course / 'gradebook.db'}", "attn-course") as book:
            submission = book.find_submission(slug, student)
            grades = [g for notebook in submission.notebooks for g in notebook.grades]
            scores = {g.name: g.auto_score for g in grades if g.cell_type == "code"}
            return submission.score, scores


def feedback(course, slug, student):
    text = (course / "feedback" / student / slug / f"{slug}.html").read_text()
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def stock_generate_assignment_makes_the_committed_release(graded, slug):
    committed = ROOT / "exercises" / slug / f"{slug}.ipynb"
    assert graded["released"] == committed.read_bytes(), "make exercises"


def right_submission_has_every_point_of_every_cell(graded, slug):
    due = sets.release(slug).metadata["attn_course"]["tests"]
    assert (graded["cells"]["right"], graded["marks"]["right"]) == (due, sum(due.values()))


def untouched_submission_has_none_and_reads_not_started(graded, slug):
    assert set(graded["cells"]["untouched"].values()) == {0.0}
    assert graded["marks"]["untouched"] == 0.0
    assert "not started" in graded["feedback"]["untouched"]


def wrong_submission_scores_as_in_this_process_and_is_told_why(graded, slug):
    wrong = first_misconceptions(slug)
    trial = Trial(source(slug), seed=0)
    trial.names.update({of: one.function for of, one in wrong.items()})
    expected = {name: result.score for name, result in trial.run().items()}
    assert graded["cells"]["wrong"] == expected
    assert 0.0 < graded["marks"]["wrong"] < sum(graded["cells"]["right"].values())
    told = graded["feedback"]["wrong"]
    missing = [m.name for m in wrong.values() if f"{m.name}." not in told]
    partial = [m.name for of, m in wrong.items() if of.startswith(("check_", "accepts_"))]
    assert [name for name in missing if name not in partial] == []


def a_broken_cell_costs_its_own_tests_and_a_loud_one_costs_nothing(graded, slug):
    _, names = broken_cells(slug)
    scores, right = graded["cells"]["broken"], graded["cells"]["right"]
    of = {grade_id: grade_id.split("-")[0] for grade_id in right}
    assert {scores[grade_id] for grade_id in right if of[grade_id] in names[:2]} == {0.0}
    loud = [grade_id for grade_id in right if of[grade_id] == names[2]]
    assert [scores[name] for name in loud] == [right[name] for name in loud]
    told = graded["feedback"]["broken"]
    assert "raised ValueError: my own mistake" in told
    assert "SyntaxError" in told


EXPLAINED = ("write it yourself", "is not available to a submission")


def our_grader_gives_every_cell_the_score_of_stock_nbgrader(graded, course, zygote, slug):
    """Same files, same seed. A mistake made with what we refuse may differ, and says that it is."""
    differences, compared = [], 0
    for student, theirs in graded["cells"].items():
        sent = (course / "submitted" / student / slug / f"{slug}.ipynb").read_bytes()
        settings = {"seed": int(ENVIRONMENT["ATTN_COURSE_SEED"]), "limits": Limits()}
        found = grade_notebook(sent, assignment(slug), zygote, student=student, **settings)
        assert found.status == "graded", found.reason
        compared += len(found.tests)
        apart = [test for test in found.tests if abs(test.score - theirs[test.grade_id]) > 1e-9]
        differences += apart
        told = [any(why in test.message for why in EXPLAINED) for test in apart]
        assert student == "wrong" or not apart, apart
        assert all(told), (student, apart)
    assert compared >= 10 * len(graded["cells"]), "too few cells to say that the graders agree"
    assert len(differences) <= 0.1 * compared


# On each push every release is made, and every kind of answer is graded to a plain set and to the
# capstone, kernels with and without. At night all four answers to all sets are.
PUSHED = {"00": STUDENTS, "17": STUDENTS[:2], "20": STUDENTS}


def cases():
    """Each set with the answers of a push, those that take longest first, and with all four."""
    for slug in sorted(SLUGS, key=lambda one: one[:2] not in PUSHED):
        pushed = PUSHED.get(slug[:2], ())
        yield pytest.param(slug, pushed, id=f"{slug}-{len(pushed)}")
        if pushed != STUDENTS:
            yield pytest.param(slug, STUDENTS, id=f"{slug}-all", marks=pytest.mark.long)


@pytest.mark.parametrize(("slug", "students"), cases())
def test_a_set_in_stock_nbgrader(graded, course, zygote, slug, students, subtests):
    """One test for each set: its chain of commands runs once, beside that of another set."""
    checks = {
        right_submission_has_every_point_of_every_cell: "right",
        untouched_submission_has_none_and_reads_not_started: "untouched",
        wrong_submission_scores_as_in_this_process_and_is_told_why: "wrong",
        a_broken_cell_costs_its_own_tests_and_a_loud_one_costs_nothing: "broken",
    }
    with subtests.test("release"):
        stock_generate_assignment_makes_the_committed_release(graded, slug)
    for check, student in checks.items():
        if student in students:
            with subtests.test(check.__name__):
                check(graded, slug)
    with subtests.test("our grader"):
        our_grader_gives_every_cell_the_score_of_stock_nbgrader(graded, course, zygote, slug)
