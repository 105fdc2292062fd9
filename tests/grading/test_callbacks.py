"""What a callback writes into its arguments is seen by the submission that called it."""

import pytest
from hostile import target

ANSWER = """
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
def test_writes_of_a_callback_come_back(body, zygote):
    cells = [target.answer_cell(body, "sees"), target.check_cell(TEST, "sees-writes")]
    data = target.made("import numpy as np, torch", cells)
    result = target.graded(zygote, data, data)
    assert result.score == (1.0 if body is ANSWER else 0.0), result
