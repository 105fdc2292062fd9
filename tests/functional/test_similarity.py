"""Cosine and weighted mean against hand values, NumPy, torch, finite differences, invariants."""

from collections.abc import Callable

import pytest
import torch
from mutation import passes, rejects, rejects_changes
from oracles import by_numpy
from refusals import refuses
from tolerances import FLOAT64
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course import functional, reference

Function = Callable[[Tensor, Tensor], Tensor]


def check_cosine(function: Function) -> None:
    by_hand = function(torch.tensor([[3.0, 4.0], [3.0, 4.0]]), torch.tensor([[4.0, 3.0], [-6, -8]]))
    assert_close(by_hand, torch.tensor([0.96, -1.0]))
    a = torch.randn(3, 1, 5, dtype=torch.float64, requires_grad=True)
    b = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    assert_close(function(a, b).detach(), by_numpy.cosine_similarity(a, b), **FLOAT64)
    weight = torch.randn(3, 7, dtype=torch.float64)
    ours = torch.autograd.grad((function(a, b) * weight).sum(), (a, b))
    theirs = torch.autograd.grad((F.cosine_similarity(a, b, dim=-1) * weight).sum(), (a, b))
    assert_close(ours, theirs, **FLOAT64)
    assert torch.autograd.gradcheck(function, (a, b))
    # zero points nowhere; very long and very short vectors have a direction like any other
    scales = torch.tensor([[0.0], [1e-30], [1e30]])
    v, w = torch.tensor([1.0, 2.0, -2.0]), torch.tensor([2.0, 1.0, 2.0])
    x = (scales * v).requires_grad_()
    assert_close(function(x, v), torch.tensor([0.0, 1.0, 1.0]))
    assert_close(function(x, w), torch.zeros(3))
    (grad,) = torch.autograd.grad(function(x, v + w).sum(), x)
    assert grad.isfinite().all()


def check_mean(function: Function) -> None:
    value = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 4.0]])
    assert_close(function(torch.tensor([0.5, 0.25, 0.25]), value), torch.tensor([1.0, 1.25]))
    assert_close(function(torch.tensor([2.0, 1.0, 1.0]), value), torch.tensor([1.0, 1.25]))
    weights = torch.rand(2, 3, 7, dtype=torch.float64)
    weights[1, 2] = 0
    values = torch.randn(2, 7, 5, dtype=torch.float64)
    for b in range(2):
        oracle = by_numpy.weighted_mean(weights[b], values[b])
        assert_close(function(weights[b], values[b]), oracle, **FLOAT64)
        each = torch.stack([function(row, values[b]) for row in weights[b]])
        assert_close(function(weights[b], values[b]), each, **FLOAT64)
    shares = torch.softmax(torch.randn(2, 7, dtype=torch.float64), dim=-1)
    assert_close(function(shares, values), torch.einsum("bs,bse->be", shares, values), **FLOAT64)
    w = weights[0].clone().requires_grad_()
    v = values[0].clone().requires_grad_()
    assert torch.autograd.gradcheck(function, (w, v))
    nothing = torch.zeros(7, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(function(nothing, v).sum(), nothing)
    assert_close(grad, torch.zeros_like(nothing))


def _norm(x: Tensor) -> Tensor:
    return x.norm(dim=-1)


test_cosine_oracles_reject = rejects(
    check_cosine,
    {
        "dot product": lambda a, b: (a * b).sum(-1),
        "one norm only": lambda a, b: (a * b).sum(-1) / _norm(a).clamp(min=1e-38),
        "squared norms": lambda a, b: (
            (a * b).sum(-1) / (_norm(a) * _norm(b)).square().clamp(min=1e-38)
        ),
        "norm over everything": lambda a, b: (a * b).sum(-1) / (a.norm() * b.norm()),
        "sum of absolute values": lambda a, b: (
            (a * b).sum(-1) / (a.abs().sum(-1) * b.abs().sum(-1))
        ),
        "a large epsilon": lambda a, b: F.cosine_similarity(a, b, dim=-1, eps=1e-3),
        "first axis": lambda a, b: F.cosine_similarity(a, b, dim=0),
        "angle": lambda a, b: torch.acos(F.cosine_similarity(a, b, dim=-1)),
        "absolute value": lambda a, b: functional.cosine_similarity(a, b).abs(),
        "norms without gradient": lambda a, b: (
            (a * b).sum(-1) / (_norm(a) * _norm(b)).detach().clamp(min=1e-38)
        ),
    },
)


test_mean_oracles_reject = rejects(
    check_mean,
    {
        "sum": lambda w, v: (w.unsqueeze(-2) @ v).squeeze(-2),
        "plain mean": lambda w, v: v.mean(-2).expand(*w.shape[:-1], -1),
        "divided by the number": lambda w, v: (w.unsqueeze(-2) @ v).squeeze(-2) / w.shape[-1],
        "divided by all weights": lambda w, v: (w.unsqueeze(-2) @ v).squeeze(-2) / w.sum(),
        "softmax of the weights": lambda w, v: (w.softmax(-1).unsqueeze(-2) @ v).squeeze(-2),
        "largest only": lambda w, v: functional.weighted_mean(
            F.one_hot(w.argmax(-1), w.shape[-1]).to(w.dtype), v
        ),
        "shares without gradient": lambda w, v: functional.weighted_mean(w.detach(), v),
    },
)


ORACLES = {"cosine_similarity": check_cosine, "weighted_mean": check_mean}


test_function_agrees_with_every_oracle = passes(ORACLES, functional)


test_oracles_reject_a_changed_line = rejects_changes(
    ORACLES,
    "attn_course.functional.similarity",
    ("cosine_similarity", "wide / scale.masked_fill(scale == 0, 1.0)", "wide"),
    ("cosine_similarity", "norm.masked_fill(norm == 0, 1.0)", "norm"),
    ("weighted_mean", "total.masked_fill(total == 0, 1.0)", "total"),
    ("weighted_mean", "mean.masked_fill(total == 0, 0.0)", "mean"),
)


def test_half_precision_keeps_its_dtype() -> None:
    a, b = torch.randn(3, 5).half(), torch.randn(3, 5).half()
    assert functional.cosine_similarity(a, b).dtype == torch.float16
    assert_close(functional.cosine_similarity(a, b), by_numpy.cosine_similarity(a, b).half())


COSINE, MEAN = functional.cosine_similarity.__wrapped__, functional.weighted_mean.__wrapped__
ONE, THREE, PAIRS = torch.tensor(1.0), torch.zeros(3), torch.zeros(3, 2)
test_other_sizes_are_refused = refuses(
    (lambda: COSINE(torch.zeros(5), THREE), r"b: expected size 5 on axis -1, got shape \(3,\)"),
    (lambda: MEAN(torch.zeros(5), PAIRS), r"value: expected size 5 on axis -2, got shape \(3, 2\)"),
    (lambda: MEAN(THREE.long(), PAIRS), "weights: expected a floating point"),
    (lambda: reference.cosine_similarity([0.0] * 5, [0.0] * 3), "b: expected vectors of size 5"),
    (lambda: reference.weighted_mean([0.0] * 5, [[0.0]] * 3), "weights: expected one per vector"),
    (lambda: COSINE(torch.zeros(2, 5), torch.zeros(3, 5)), r"b: .* broadcast with \(2, 5\)"),
    (lambda: MEAN(torch.zeros(2, 3), torch.zeros(7, 3, 5)), r"value: .* broadcast with \(2,\)"),
    (lambda: COSINE(ONE, ONE), r"dim: expected an axis of shape \(\), got -1"),
    (lambda: MEAN(ONE, PAIRS), r"dim: expected an axis of shape \(\), got -1"),
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_mean_over_many_rows_does_not_overflow_half_precision(dtype: torch.dtype) -> None:
    # 70,000 weights of 1 sum to more than float16 holds, and to 256 where bfloat16 adds them up
    weights = torch.ones(70_000, dtype=dtype)
    value = torch.tensor([[1.0, -3.0]], dtype=dtype).expand(70_000, 2)
    assert_close(functional.weighted_mean(weights, value), value[0])


def test_a_mean_takes_the_wider_dtype() -> None:
    weights, value = torch.rand(3), torch.randn(3, 2, dtype=torch.float64)
    exact = by_numpy.weighted_mean(weights, value)
    assert_close(functional.weighted_mean(weights, value), exact, atol=1e-12, rtol=1e-12)
