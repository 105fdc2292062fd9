# %% [markdown]
# # Exercises: warm-up
#
# Write each function in its own cell, then run the test cells below it.
# A test that fails tells you what it saw, what it tried and, when it knows the mistake, which one it is.
# Nothing here needs a network or a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course import reference
from attn_course.probes import Probe, properties, student

# %% [markdown]
# ## 1. A softmax that cannot overflow
#
# `stable_softmax(scores, dim=-1)` turns scores into weights along the axis `dim`:
# $w_i = e^{s_i} / \sum_j e^{s_j}$.
#
# - `scores` is a floating tensor of any shape, `dim` any of its axes, counted from the front (`0`, `1`) or from the back (`-1`).
# - The result has the shape and the dtype of `scores`.
# - It is right for every finite score, however large: the weights of `[1000, 0]` are `[1, 0]`.
#   A score of `-inf` gets weight 0, as long as one score of its row is finite.
# - `scores` itself stays as it was, and gradients flow through.
# - Write it with `exp`, sums and the like: not with `torch.softmax` or its relatives.
#
# By hand: the scores `[ln 1, ln 3]` have exponentials 1 and 3, so the weights are `[0.25, 0.75]`.
#
# <details><summary>Hint</summary>
#
# Adding the same number to every score of a row changes nothing in the weights.
# Which number makes overflow impossible?
#
# </details>

# %% nbgrader={"grade_id": "stable_softmax", "solution": true}
def stable_softmax(scores, dim=-1):
    ### BEGIN SOLUTION
    shifted = scores - scores.amax(dim, keepdim=True)
    weights = shifted.exp()
    return weights / weights.sum(dim, keepdim=True)
    ### END SOLUTION


# %% nbgrader={"grade_id": "stable_softmax-values", "grade": true, "points": 2}
# The example by hand, and a row of three.
probe = Probe("00_warm_up", "stable_softmax", stable_softmax, oracle=reference.softmax)
probe.equals(torch.tensor([1.0, 3.0]).log(), dim=0)
probe.equals(torch.tensor([1.0, 2.0, 3.0]), dim=0)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(5))
probe.equals(probe.normal(7, dtype=torch.float64, std=3.0))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stable_softmax-axis", "grade": true, "points": 1}
# Any axis of any shape, counted from either end.
probe = Probe("00_warm_up", "stable_softmax", stable_softmax, oracle=reference.softmax)
scores = torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, -1.0]])
probe.equals(scores, dim=0)
probe.equals(scores, dim=1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 3), dim=-2)
probe.equals(probe.normal(2, 3, 5), dim=1)
probe.equals(probe.normal(2, 3, 5), dim=-3)
probe.equals(probe.normal(5, 3, 2).transpose(0, 2), dim=0)
probe.equals(probe.normal(2, 3, 5, 7))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stable_softmax-large_scores", "grade": true, "points": 2}
# Scores whose exponential does not fit into a float, also with the rows on different levels.
probe = Probe("00_warm_up", "stable_softmax", stable_softmax, oracle=reference.softmax)
probe.equals(torch.tensor([1000.0, 0.0]), dim=0)
probe.equals(torch.tensor([[100.0, 99.0], [-100.0, -101.0]]), dim=1)
### BEGIN HIDDEN TESTS
# float32 up to about 120: beyond, rounding alone spoils answers that are right by other routes.
probe.equals(105.0 + probe.normal(3, 5), dim=0)
levels = torch.tensor([[110.0], [0.0], [-110.0]])
probe.equals(levels + probe.normal(3, 5), dim=-1)
probe.equals(probe.normal(4, 3, dtype=torch.float64, std=2000.0), dim=-1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stable_softmax-minus_infinity", "grade": true, "points": 1}
# A score of minus infinity gets weight zero.
probe = Probe("00_warm_up", "stable_softmax", stable_softmax, oracle=reference.softmax)
probe.equals(torch.tensor([0.0, float("-inf"), 0.0]), dim=0)
### BEGIN HIDDEN TESTS
scores = probe.normal(3, 5).masked_fill(~probe.mask(3, 5), float("-inf"))
probe.equals(scores, dim=-1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stable_softmax-gradient", "grade": true, "points": 1}
# Gradients flow through, and are right.
probe = Probe("00_warm_up", "stable_softmax", stable_softmax, oracle=reference.softmax)
probe.gradient(torch.tensor([1.0, 2.0, 3.0]), dim=0)
### BEGIN HIDDEN TESTS
probe.gradient(probe.normal(3, 5), dim=-1)
probe.gradient(probe.normal(3, 5), dim=0)
### END HIDDEN TESTS
