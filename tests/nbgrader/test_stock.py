"""Stock nbgrader on real submissions: its own commands, one kernel run per submission."""

import csv
import html
import json
import os
import re
import shutil
import sysconfig

import nbformat
import pytest
import sets
from cells import as_cell, has_a_cell
from processes import python
from sets import ROOT, SLUGS, answers, assignment, filled, misconceptions, source
from trial import Trial

from attn_course.exercises.release import build_releases
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


# what the console script does, once for each command line, in a fork of a process that has imported
COMMANDS = """
import json, os, sys
from nbgrader.apps.nbgraderapp import NbGraderApp
for arguments in json.loads(sys.argv[1]):
    if os.fork() == 0:
        NbGraderApp.launch_instance(arguments)
        sys.exit()
    if os.wait()[1]:
        sys.exit(f"failed: nbgrader {' '.join(arguments)}")
"""


def nbgrader(course, *commands):
    lines = json.dumps([command.split() for command in commands])
    python("-c", COMMANDS, lines, cwd=course, env=ENVIRONMENT, timeout=800)


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
    loud = f"import sys, warnings\ninner = {names[2]}\n" + (
        f"def {names[2]}(*args, **kwargs):\n"
        "    warnings.warn('loud')\n"
        "    print('louder', file=sys.stderr)\n"
        "    return inner(*args, **kwargs)\n"
    )
    cells[names[2]] += "\n\n" + loud
    return cells, names


STUDENTS = ("right", "untouched", "wrong", "broken")


@pytest.fixture
def base(tmp_path):
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    (tmp_path / "solutions").symlink_to(ROOT / "solutions")
    return tmp_path


@pytest.fixture
def graded(base, slug, students):
    """Run the whole chain; return the scores of every cell and the feedback."""
    build_releases(base, [slug])
    cells = {
        "right": answers(slug), "untouched": {}, "wrong": wrong_cells(slug),
        "broken": broken_cells(slug)[0],
    }  # fmt: skip
    for student in students:
        folder = base / "submitted" / student / slug
        folder.mkdir(parents=True)
        nbformat.write(filled(sets.release(slug), cells[student]), folder / f"{slug}.ipynb")
    chain = (f"{name} {slug}" for name in ("generate_assignment", "autograde", "generate_feedback"))
    nbgrader(base, *chain, "export --to marks.csv")
    return {
        "released": (base / "release" / slug / f"{slug}.ipynb").read_bytes(),
        "marks": marks(base / "marks.csv", slug),
        "cells": {student: cell_scores(base, slug, student) for student in students},
        "feedback": {student: feedback(base, slug, student) for student in students},
    }


def marks(path, slug):
    with path.open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["assignment"] == slug]
    return {row["student_id"]: float(row["score"]) for row in rows}


def cell_scores(course, slug, student):
    from nbgrader.api import Gradebook

    before = os.environ["PATH"]
    os.environ["PATH"] = ENVIRONMENT["PATH"]
    try:
        with Gradebook(f"sqlite:///{course / 'gradebook.db'}", "attn-course") as book:
            submission = book.find_submission(slug, student)
            grades = [g for notebook in submission.notebooks for g in notebook.grades]
            return {g.name: g.auto_score for g in grades if g.cell_type == "code"}
    finally:
        os.environ["PATH"] = before


def feedback(course, slug, student):
    text = (course / "feedback" / student / slug / f"{slug}.html").read_text()
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def in_process(slug, swaps):
    trial = Trial(source(slug), seed=0)
    trial.names.update(swaps)
    return {name: result.score for name, result in trial.run().items()}


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
    expected = in_process(slug, {of: m.function for of, m in wrong.items()})
    assert graded["cells"]["wrong"] == expected
    assert 0.0 < graded["marks"]["wrong"] < sum(graded["cells"]["right"].values())
    told = graded["feedback"]["wrong"]
    missing = [m.name for m in wrong.values() if f"{m.name}." not in told]
    partial = [m.name for of, m in wrong.items() if of.startswith(("check_", "accepts_"))]
    assert [name for name in missing if name not in partial] == []


def a_broken_cell_costs_its_own_tests_and_a_loud_one_costs_nothing(graded, slug):
    _, names = broken_cells(slug)
    scores, right = graded["cells"]["broken"], graded["cells"]["right"]
    for grade_id in right:
        if grade_id.split("-")[0] in names[:2]:
            assert scores[grade_id] == 0.0, grade_id
    assert {k: v for k, v in scores.items() if k.startswith(f"{names[2]}-")} == {
        k: v for k, v in right.items() if k.startswith(f"{names[2]}-")
    }
    told = graded["feedback"]["broken"]
    assert "raised ValueError: my own mistake" in told
    assert "SyntaxError" in told


EXPLAINED = ("write it yourself", "is not available to a submission")


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as found:
        yield found


def our_grader_gives_every_cell_the_score_of_stock_nbgrader(graded, base, zygote, slug):
    """Same files, same seed. A mistake made with what we refuse may differ, and says that it is."""
    theirs = graded["cells"]
    ours = assignment(slug)
    differences, compared = [], 0
    for student in theirs:
        sent = base / "submitted" / student / slug / f"{slug}.ipynb"
        seed = int(ENVIRONMENT["ATTN_COURSE_SEED"])
        found = grade_notebook(
            sent.read_bytes(), ours, zygote, student=student, seed=seed, limits=Limits()
        )
        assert found.status == "graded", found.reason
        for test in found.tests:
            compared += 1
            if abs(test.score - theirs[student][test.grade_id]) > 1e-9:
                differences.append((student, test))
    unexplained = [
        (student, test.grade_id, test.score, theirs[student][test.grade_id], test.message)
        for student, test in differences
        if student != "wrong" or not any(why in test.message for why in EXPLAINED)
    ]
    assert unexplained == []
    assert compared >= 10 * len(theirs), "too few cells to say that the graders agree"
    assert len(differences) <= 0.1 * compared


# on each push: every kind of answer to a plain set and to the capstone, kernels with and without
PUSHED = {"00": STUDENTS, "17": STUDENTS[:2], "20": STUDENTS}


def cases():
    """Each set with the answers of a push, and with all four: most of the latter at night."""
    for slug in SLUGS:
        pushed = PUSHED.get(slug[:2], STUDENTS[:1])
        yield pytest.param(slug, pushed, id=f"{slug}-{len(pushed)}")
        if pushed != STUDENTS:
            yield pytest.param(slug, STUDENTS, id=f"{slug}-all", marks=pytest.mark.long)


@pytest.mark.parametrize(("slug", "students"), cases())
def test_a_set_in_stock_nbgrader(graded, base, zygote, slug, students, subtests):
    """One test for each set: its chain of commands runs once, beside that of another set."""
    checks = {
        stock_generate_assignment_makes_the_committed_release: "right",
        right_submission_has_every_point_of_every_cell: "right",
        untouched_submission_has_none_and_reads_not_started: "untouched",
        wrong_submission_scores_as_in_this_process_and_is_told_why: "wrong",
        a_broken_cell_costs_its_own_tests_and_a_loud_one_costs_nothing: "broken",
    }
    for check, student in checks.items():
        if student in students:
            with subtests.test(check.__name__):
                check(graded, slug)
    with subtests.test("our grader"):
        our_grader_gives_every_cell_the_score_of_stock_nbgrader(graded, base, zygote, slug)
