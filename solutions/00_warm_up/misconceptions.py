"""Wrong answers to the warm-up, each with its name, its message and the tests it must fail."""

import torch

from attn_course.probes import call, misconception, student, witnesses


@witnesses(of="stable_softmax")
def softmax_calls(draw):
    square = draw.normal(3, 3)
    yield call(torch.tensor([0.0, 1.0]), dim=0)
    yield call(square, dim=0)
    yield call(square, dim=1)
    yield call(draw.normal(2, 3, 5), dim=1)
    yield call(draw.normal(5, dtype=torch.float64))
    yield call(torch.tensor([120.0, 119.0]), dim=0)
    yield call(torch.tensor([[500.0, 499.0], [-500.0, -501.0]]), dim=1)
    yield call(torch.tensor([0.0, float("-inf")]), dim=0)
    yield call(draw.normal(4), dim=0, via=student.grad(0))


@misconception(
    of="stable_softmax", name="no max subtraction", fails=["stable_softmax-large_scores"]
)
def softmax_naive(scores, dim=-1):
    """You exponentiate the scores as they are.
    From about 89 on, the exponential of a float32 is infinite, and infinity over infinity is NaN.
    Look at what may be done to all scores of a row before `exp` without changing the weights.
    """
    weights = scores.exp()
    return weights / weights.sum(dim, keepdim=True)


@misconception(
    of="stable_softmax",
    name="one maximum for the whole tensor",
    fails=["stable_softmax-large_scores"],
)
def softmax_global_max(scores, dim=-1):
    """You subtract the largest score of the whole tensor from every row.
    A row that lies far below it then has exponentials that are all zero, and zero over zero is NaN.
    Look at which maximum belongs to a row.
    """
    weights = (scores - scores.max()).exp()
    return weights / weights.sum(dim, keepdim=True)


@misconception(
    of="stable_softmax",
    name="dim is ignored",
    fails=["stable_softmax-axis", "stable_softmax-large_scores", "stable_softmax-gradient"],
)
def softmax_last_axis(scores, dim=-1):
    """You always normalise over the last axis, whatever `dim` says.
    Look at where `dim` enters each reduction.
    """
    return torch.softmax(scores, -1)


@misconception(
    of="stable_softmax",
    name="normalised over everything",
    fails=[
        "stable_softmax-axis",
        "stable_softmax-large_scores",
        "stable_softmax-minus_infinity",
        "stable_softmax-gradient",
    ],
)
def softmax_over_all(scores, dim=-1):
    """You divide by the sum over the whole tensor, so all weights together add up to one.
    Each row along `dim` has to add up to one by itself.
    """
    weights = (scores - scores.amax(dim, keepdim=True)).exp()
    return weights / weights.sum()


ALL_SOFTMAX = [
    f"stable_softmax-{p}" for p in ("values", "axis", "large_scores", "minus_infinity", "gradient")
]


@misconception(of="stable_softmax", name="log-softmax returned", fails=ALL_SOFTMAX)
def softmax_log(scores, dim=-1):
    """You return the logarithms of the weights.
    Weights lie between 0 and 1; yours are negative.
    """
    return torch.log_softmax(scores, dim)


@misconception(of="stable_softmax", name="sigmoid instead of softmax", fails=ALL_SOFTMAX)
def softmax_sigmoid(scores, dim=-1):
    """You squash each score by itself, so a weight does not depend on the other scores.
    In a softmax the scores of a row compete for a total of one.
    """
    return torch.sigmoid(scores)


@misconception(
    of="stable_softmax", name="cut off from the graph", fails=["stable_softmax-gradient"]
)
def softmax_detached(scores, dim=-1):
    """The result has lost its connection to `scores`: no gradient can flow back.
    Look for `detach`, `item`, `numpy`, `no_grad` or a new `torch.tensor(...)`.
    """
    return torch.softmax(scores, dim).detach()


@misconception(of="stable_softmax", name="the input is changed in place", fails=ALL_SOFTMAX)
def softmax_in_place(scores, dim=-1):
    """You write into `scores` itself, so the caller's tensor is no longer what it was.
    Look for `-=`, `/=` and for methods that end in an underscore.
    """
    scores -= scores.amax(dim, keepdim=True)
    weights = scores.exp()
    return weights / weights.sum(dim, keepdim=True)
