"""Points of a test cell: the arithmetic, and every edge case that stock nbgrader gets wrong."""

import math
import warnings

import numpy as np
import pytest
import torch
from classroom import LIMITS, answered, as_bytes, cell, notebook
from edges import EDGES, LOUD
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_course.exercises.assignment import TestCell as Cell
from attn_course.exercises.assignment import load_assignment
from attn_course.exercises.testcell import _score, run_test
from attn_course.grading.verdict import grade_notebook

quick = settings(max_examples=100, deadline=None, derandomize=True)
points = st.floats(min_value=0.25, max_value=100, allow_nan=False)


@pytest.mark.parametrize("name", EDGES)
def test_an_edge_case_of_partial_credit(name, recwarn):
    source, score, said = EDGES[name]
    warnings.simplefilter("ignore")
    result = run_test(Cell("f-x", 2.0, source), {"np": np, "torch": torch})
    assert (result.score, said in result.message) == (score, True), result
    assert type(result.score) is float


@pytest.mark.parametrize("name", LOUD)
def test_what_the_answer_says_beside_its_result_costs_nothing(name, grade):
    loud = f"def double(x):\n    {LOUD[name]}\n    return 2 * x"
    made = notebook({"double": loud}, {"double-x": "assert double(3) == 6"}, {"double-x": 2.0})
    result = grade(made)
    assert (result.status, result.score) == ("graded", 2.0), result.tests
    assert result.tests[0].message == ""


def test_there_are_more_edge_cases_than_the_15_that_were_asked_for():
    assert len(EDGES) + len(LOUD) >= 15
    listed = " ".join(EDGES)  # measured faults of stock nbgrader 0.9.6
    for word in ("np.float64(0.)", "False", "nan", "tensor", "stderr"):
        assert word in listed


@given(points, st.floats(min_value=0, max_value=1))
@quick
def test_a_share_of_the_points_is_itself(most, share):
    for kind in (float, np.float64, torch.tensor):
        got = _score(kind(share * most), Cell("f", most, ""))
        assert got == pytest.approx(share * most, rel=1e-6, abs=1e-7)
        assert 0 <= got <= most


@given(points, st.floats() | st.integers())
@quick
def test_whatever_the_number_the_score_lies_within_the_points(most, value):
    try:
        got = _score(value, Cell("f", most, ""))
    except ValueError:
        rounding = 1e-6 * max(1.0, most)
        assert not -1e-6 <= value <= most + rounding
    else:
        assert type(got) is float
        assert 0 <= got <= most
        assert got == pytest.approx(value, abs=2e-4)


@given(
    st.text()
    | st.lists(st.integers())
    | st.none()
    | st.binary()
    | st.dictionaries(st.text(), st.text())
)
@quick
def test_what_is_no_number_is_full_marks(value):
    assert _score(value, Cell("f", 3.0, "")) == 3.0


@given(st.lists(st.sampled_from([0.0, 0.25, 0.1, 1.0, 0.3]), min_size=1, max_size=8))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_a_submission_earns_the_sum_of_its_cells(zygote, shares):
    """Any mix of partial credit adds up, and the order of the cells does not matter."""
    totals = []
    for order in (shares, shares[::-1]):
        cells = [cell("code", "def f(x):\n    return x", "f", solution=True)]
        for i, share in enumerate(order):
            meta = {"grade": True, "locked": True, "points": 1.5}
            cells.append(cell("code", f"f({share}) * 1.5", f"f-{i}", **meta))
        made = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        found, settings = load_assignment(as_bytes(made), "sums"), {"seed": 1, "limits": LIMITS}
        result = grade_notebook(answered({}, made), found, zygote, student="ada", **settings)
        assert [t.score for t in result.tests] == [share * 1.5 for share in order]
        assert result.max_score == 1.5 * len(order)
        totals.append(result.score)
    assert math.isclose(totals[0], math.fsum(s * 1.5 for s in shares), abs_tol=1e-12)
    assert math.isclose(totals[0], totals[1], abs_tol=1e-12)


def test_a_submission_cannot_return_its_own_score(grade):
    """Where a cell trusts the answer too much, a large one buys nothing."""
    greedy = {
        "squares": "def squares(n):\n    return [i * i for i in range(n)] + [j * j for j in range(n, 9 * n)]"  # noqa: E501
    }
    result = grade(answers=greedy)
    assert result.tests[1].score == 0.0
    assert "expected a score" in result.tests[1].message


def test_one_seed_gives_the_same_numbers_to_cells_and_to_submissions(grade):
    """A regrade repeats the random inputs, and what the submission draws itself."""
    import classroom

    first, again = (grade(answers=classroom.ANSWERS["random"], seed=3) for _ in range(2))
    assert [t.score for t in first.tests] == [t.score for t in again.tests]
    scores = {grade(answers=classroom.ANSWERS["random"], seed=s).score for s in range(6)}
    assert len(scores) > 1


def test_a_submission_cannot_draw_the_hidden_inputs_from_its_own_seed(grade):
    guess = """import torch
state = torch.get_rng_state()
def double(x):
    torch.set_rng_state(state)
    if torch.equal(torch.randn(5), x):
        raise ValueError("predicted")
    return 2 * x"""
    assert "predicted" not in grade(answers={"double": guess}).tests[0].message
