"""Softmax and its relatives against hand values, NumPy, torch, finite differences, invariants."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutation import mutant, passes, rejects, rejects_changes
from oracles import by_numpy, gradient
from refusals import refused
from tolerances import BFLOAT16_ROUNDING, FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import functional, reference

Function = Callable[..., Any]
LOG2, LOG3 = float(np.log(2)), float(np.log(3))
NAMES = ("softmax", "logsumexp", "log_softmax")
# rows far apart, in which one common shift for the whole tensor cannot help
HARD = torch.tensor([[1000.0, 1001.0, 999.0], [-1000.0, -1001.0, -1002.0], [0.0, -200.0, 90.0]])


def check_plain(name: str, function: Function) -> None:
    by_hand = {
        "softmax": torch.tensor([1 / 6, 1 / 3, 1 / 2]),
        "logsumexp": torch.tensor(float(np.log(6))),
        "log_softmax": torch.tensor([-np.log(6), -np.log(3), -LOG2], dtype=torch.float32),
    }
    assert_close(function(torch.tensor([0.0, LOG2, LOG3]), dim=0), by_hand[name])
    scores = 3 * torch.randn(3, 5, 7, dtype=torch.float64)
    theirs = getattr(torch, name)
    for dim in (0, 1, 2, -1, -2, -3):
        ours = function(scores, dim=dim)
        assert_close(ours, getattr(by_numpy, name)(scores, dim), **FLOAT64)
        assert_close(ours, theirs(scores, dim=dim), **FLOAT64)
        found, wanted = (gradient(one, scores, dim=dim) for one in (function, theirs))
        assert_close(found, wanted, **FLOAT64)
    assert_close(function(HARD), theirs(HARD, dim=-1))
    assert_close(gradient(function, HARD), gradient(theirs, HARD, dim=-1))
    half = (5 * torch.randn(11, 131)).to(torch.bfloat16)
    assert function(half).dtype == torch.bfloat16
    exact = theirs(half.double(), dim=-1)
    assert_close(function(half).double(), exact, **BFLOAT16_ROUNDING)


def check_masked(function: Function) -> None:
    allowed = torch.tensor([True, False, True])
    by_hand = torch.tensor([0.25, 0.0, 0.75])
    assert_close(function(torch.tensor([0.0, 9.0, LOG3]), allowed), by_hand)
    scores = 3 * torch.randn(2, 3, 5, 7, dtype=torch.float64)
    mask = torch.rand(2, 1, 5, 7) < 0.6
    mask[0, 0, 2] = False
    assert not mask.any(-1).all()
    for dim in (-1, -2):
        oracle = by_numpy.masked_softmax(scores, mask, dim)
        assert_close(function(scores, mask, dim), oracle, **FLOAT64)

    # what torch says where it has an answer, and 0 where it has none, forward and backward
    def theirs(scores: Tensor) -> Tensor:
        weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
        return torch.where(mask.any(-1, keepdim=True), weights, 0.0)

    some = mask.any(-1, keepdim=True).expand_as(scores)
    ours_grad = gradient(function, scores, mask)
    assert_close(ours_grad[some], gradient(theirs, scores)[some], **FLOAT64)
    assert (ours_grad[~some] == 0).all()
    assert (function(scores, mask)[~mask.expand_as(scores)] == 0).all()
    # an allowed score may be below any "large" negative number that stands for minus infinity
    low = function(torch.tensor([-3e9, 0.0]), torch.tensor([True, False]))
    assert_close(low, torch.tensor([1.0, 0.0]))
    # a forbidden score may be anything at all, and decides nothing
    wild = torch.tensor([[1e30, 1.0, 2.0], [torch.nan, 1.0, 2.0], [torch.inf, 1.0, 2.0]])
    allowed = torch.tensor([False, True, True])
    expected = torch.tensor([0.0, 1 / (1 + np.e), np.e / (1 + np.e)]).expand(3, 3).float()
    assert_close(function(wild, allowed), expected)
    grad = gradient(function, wild, allowed)
    assert grad.isfinite().all()
    assert (grad[:, 0] == 0).all()
    assert_close(function(HARD, torch.ones(3, 3, dtype=torch.bool)), torch.softmax(HARD, dim=-1))


CHECKS = {name: partial(check_plain, name) for name in NAMES} | {"masked_softmax": check_masked}
test_agrees_with_every_oracle = passes(CHECKS, functional)


def sums_in_half(s: Tensor, dim: int = -1) -> Tensor:
    shares = (s - s.amax(dim, True)).exp()
    return shares / shares.cumsum(dim).select(dim, -1).unsqueeze(dim)


# where a mistake is no changed line of the function
test_softmax_oracles_reject = rejects(
    partial(check_plain, "softmax"),
    {
        "always the last axis": lambda s, dim=-1: torch.softmax(s, dim=-1),
        "whole tensor": lambda s, dim=-1: torch.softmax(s.flatten(), 0).view_as(s),
        "base 2": lambda s, dim=-1: torch.softmax(s * LOG2, dim=dim),
        "no gradient through the sum": lambda s, dim=-1: (
            s - torch.logsumexp(s, dim, keepdim=True).detach()
        ).exp(),
        "sums in bfloat16": sums_in_half,
    },
)
test_logsumexp_oracles_reject = rejects(
    partial(check_plain, "logsumexp"),
    {
        "log of sum of exp": lambda s, dim=-1: s.exp().sum(dim).log(),
        "maximum": lambda s, dim=-1: s.amax(dim),
        "mean": lambda s, dim=-1: torch.logsumexp(s, dim) - np.log(s.shape[dim]),
    },
)
test_log_softmax_oracles_reject = rejects(
    partial(check_plain, "log_softmax"),
    {
        "log of softmax": lambda s, dim=-1: torch.softmax(s, dim).log(),
        "clamped": lambda s, dim=-1: torch.softmax(s, dim).clamp(min=1e-12).log(),
    },
)


def _after(scores: Tensor, mask: Tensor, dim: int = -1) -> Tensor:
    weights = torch.softmax(scores, dim) * mask
    return weights / weights.sum(dim, keepdim=True).clamp(min=1e-30)


test_masked_oracles_reject = rejects(
    check_masked,
    {
        "mask after the softmax": lambda s, m, dim=-1: torch.softmax(s, dim) * m,
        "renormalised after the softmax": _after,
        "scores set to 0": lambda s, m, dim=-1: torch.softmax(s.masked_fill(~m, 0.0), dim),
        "minus a billion": lambda s, m, dim=-1: torch.softmax(s.masked_fill(~m, -1e9), dim),
        "mask the other way": lambda s, m, dim=-1: functional.masked_softmax(s, ~m, dim),
        "zero only in the forward pass": lambda s, m, dim=-1: (
            torch.softmax(s.masked_fill(~m, -1e9), dim) * m
        ),
        "added to the scores": lambda s, m, dim=-1: torch.softmax(
            s + torch.where(m, 0.0, -1e30).to(s.dtype), dim
        ),
        "wrong axis": lambda s, m, dim=-1: functional.masked_softmax(s, m, -1),
    },
)


test_oracles_reject_a_changed_line = rejects_changes(
    CHECKS,
    "attn_course.functional.softmax",
    ("softmax", "torch.exp(wide - _maximum(wide, dim))", "torch.exp(wide)"),
    ("softmax", "scores.detach().amax(dim, keepdim=True)", "scores.detach().amax()[None]"),
    ("softmax", 'widen("scores", scores)', "scores.float()"),
    ("logsumexp", "+ shift.squeeze(dim)", ""),
    ("log_softmax", "sum(dim, keepdim=True).log()", "sum(-1, keepdim=True).log()"),
    ("masked_softmax", "total.masked_fill(total == 0, 1.0)", "total"),
    ("masked_softmax", "highest.masked_fill(highest.isinf(), 0.0)", "highest"),
    ("masked_softmax", "masked_fill(~attn_mask, -torch.inf)", "masked_fill(~attn_mask, -1e4)"),
)


def test_second_derivatives_agree_with_finite_differences() -> None:
    scores = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    for name in NAMES:
        function = getattr(functional, name)
        assert torch.autograd.gradgradcheck(lambda s, f=function: f(s, 1), scores)
    assert torch.autograd.gradgradcheck(lambda s: functional.masked_softmax(s, mask), scores)


@given(
    row=st.lists(st.floats(-700, 700, width=32), min_size=1, max_size=13),
    bits=st.lists(st.booleans(), min_size=13, max_size=13),
)
@settings(max_examples=60, deadline=None)
def test_masked_softmax_is_the_softmax_of_what_is_left(row: list[float], bits: list[bool]) -> None:
    scores, mask = torch.tensor(row, dtype=torch.float64), torch.tensor(bits[: len(row)])
    weights = functional.masked_softmax(scores, mask)
    assert_close(weights[mask], torch.softmax(scores[mask], dim=0))
    assert (weights[~mask] == 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("row", [[-torch.inf] * 3, [-torch.inf, 0.0, 1.0], [torch.inf, 0.0, 1.0]])
def test_infinite_scores_are_treated_as_torch_does(name: str, row: list[float]) -> None:
    scores = torch.tensor([row, [0.0, 1.0, 2.0]])
    theirs = getattr(torch, name)(scores, dim=-1)
    assert_close(getattr(functional, name)(scores), theirs, equal_nan=True)
    assert_close(getattr(by_numpy, name)(scores).float(), theirs, equal_nan=True)


def test_logsumexp_of_nothing_has_no_gradient() -> None:
    scores = torch.full((2, 3), -torch.inf, requires_grad=True)
    functional.logsumexp(scores).sum().backward()
    assert_close(scores.grad, torch.zeros(2, 3))


def test_empty_rows() -> None:
    nothing = torch.zeros(3, 0)
    assert functional.softmax(nothing).shape == (3, 0)
    mask = torch.zeros(3, 0, dtype=torch.bool)
    assert functional.masked_softmax(nothing, mask).shape == (3, 0)
    assert_close(functional.logsumexp(nothing), torch.full((3,), -torch.inf))
    assert_close(by_numpy.logsumexp(np.zeros((3, 0))).float(), torch.full((3,), -torch.inf))


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(5), "attn_mask: expected a boolean mask"),
        (torch.ones(5, dtype=torch.long), "attn_mask: expected a boolean mask"),
        (torch.ones(3, dtype=torch.bool), r"broadcasts to \(3, 5\), got \(3,\)"),
        (torch.ones(1, 1, 5, dtype=torch.bool), r"broadcasts to \(3, 5\), got \(1, 1, 5\)"),
    ],
)
def test_masked_softmax_refuses_other_masks(mask: Tensor, message: str) -> None:
    refused(message, functional.masked_softmax.__wrapped__, torch.zeros(3, 5), mask)


def test_integers_are_refused() -> None:
    for name in NAMES:
        with pytest.raises(ValueError, match="scores: expected a floating point tensor"):
            mutant("attn_course.functional.softmax", name, "dim", "dim")(torch.arange(3))


@pytest.mark.parametrize("name", [*NAMES, "masked_softmax"])
@pytest.mark.parametrize(("shape", "dim"), [((2, 3), 2), ((2, 3), -3), ((), -1)])
def test_an_axis_that_is_not_there_is_refused(name: str, shape: tuple[int, ...], dim: int) -> None:
    scores = (torch.zeros(shape), torch.ones(shape) > 0)[: 1 + (name == "masked_softmax")]
    said = r"dim: expected an axis of shape \(.*\), got -?\d"
    refused(said, getattr(functional, name), *scores, dim=dim)
    refused(said, getattr(reference, name), *(part.numpy() for part in scores), dim=dim)
