"""What a callback writes into its arguments is seen by the submission that called it."""

import json

import pytest
from hostile import target

from attn_course.exercises.assignment import load_assignment
from attn_course.grading.sandbox import Zygote
from attn_course.grading.verdict import grade_notebook

ANSWER = """
import numpy as np, torch
def sees(step):
    x, y = torch.ones(2, 3), np.ones(5)
    step(x.T, [y])
    return x.tolist(), y.tolist()
"""
TEST = """
def writing(x, more):
    x[0, 1] = 7.0
    more[0][2] = 5.0

assert sees(writing) == ([[1.0, 1.0, 1.0], [7.0, 1.0, 1.0]], [1.0, 1.0, 5.0, 1.0, 1.0])
assert sees(lambda x, more: x + 1) == ([[1.0] * 3] * 2, [1.0] * 5)
"""


@pytest.mark.parametrize("body", [ANSWER, ANSWER.replace("x.T", "x.T.clone()")])
def test_writes_of_a_callback_come_back(body):
    meta = {"grade": True, "locked": True, "points": 1.0}
    cells = [
        target._cell("code", body, "sees", solution=True),
        target._cell("code", TEST, "sees-writes", **meta),
    ]
    data = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
    with Zygote() as zygote:
        result = grade_notebook(
            data,
            load_assignment(data, "target"),
            zygote,
            student="ada",
            seed=1,
            limits=target.LIMITS,
        )
    assert result.score == (1.0 if body is ANSWER else 0.0), result
