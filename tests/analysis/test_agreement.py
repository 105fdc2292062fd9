"""Agreement of explanations against hand values, SciPy, torch, invariants and mutants."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mutation import rejects
from refusals import refused, refuses
from scipy import optimize, spatial, stats
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course.analysis import equivalent_weights, kendall_tau, permute_weights, total_variation

Function = Callable[..., Any]


def with_ties(*shape: int) -> tuple[Tensor, Tensor]:
    a = torch.randn(*shape, dtype=torch.float64)
    return a, torch.randint(0, 4, shape).double() + 0.3 * (a > 0)


def check_kendall(tau: Function) -> None:
    # 2 of 3 pairs in the same order, 1 in the opposite one
    assert_close(tau(torch.tensor([1.0, 2, 3]), torch.tensor([1.0, 3, 2])), torch.tensor(1 / 3))
    a, b = with_ties(2, 5, 11)
    for i in range(5):
        theirs = stats.kendalltau(a[1, i], b[1, i]).statistic
        assert float(tau(a[1, i], b[1, i])) == pytest.approx(theirs, rel=1e-11)
    assert float(tau(torch.ones(5), torch.randn(5))) == 0
    assert float(tau(torch.tensor([torch.inf, 1.0, -torch.inf]), torch.tensor([3.0, 2, 1]))) == 1


def check_distance(tv: Function) -> None:
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.5, 0.0, 0.5])
    assert_close(tv(p, q), torch.tensor(0.5))
    a, b = torch.softmax(3 * torch.randn(2, 4, 5, 11, dtype=torch.float64), -1)
    a[0, 0, :5], b[0, 0, 3:] = 0, 0
    a, b = a / a.sum(-1, keepdim=True), b / b.sum(-1, keepdim=True)
    theirs = spatial.distance.cityblock(a[1, 2], b[1, 2]) / 2
    assert float(tv(a, b)[1, 2]) == pytest.approx(theirs, rel=1e-11)
    assert_close(tv(a, b), (a - b).clamp(min=0).sum(-1), **FLOAT64)


def test_measures_agree_with_every_oracle() -> None:
    check_kendall(kendall_tau)
    check_distance(total_variation)


def pearson(a: Tensor, b: Tensor) -> Tensor:
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


def spearman(a: Tensor, b: Tensor) -> Tensor:
    return pearson(a.argsort(-1).argsort(-1).double(), b.argsort(-1).argsort(-1).double())


def tau_a(a: Tensor, b: Tensor) -> Tensor:
    signs = [(x[..., :, None] - x[..., None, :]).sign() for x in (a, b)]
    return (signs[0] * signs[1]).sum((-2, -1)) / (a.shape[-1] * (a.shape[-1] - 1))


test_kendall_oracles_reject = rejects(
    check_kendall, [tau_a, spearman, pearson, lambda a, b: kendall_tau(a, b).abs()]
)


test_distance_oracles_reject = rejects(
    check_distance,
    [
        lambda p, q: (p - q).abs().sum(-1),
        lambda p, q: (p - q).abs().amax(-1),
        lambda p, q: (p - q).abs().mean(-1),
    ],
)


def test_permuted_weights_are_the_same_weights_elsewhere() -> None:
    weights = torch.softmax(torch.randn(40, 3, 7, dtype=torch.float64), -1)
    moved = permute_weights(weights, torch.Generator().manual_seed(0))
    assert_close(moved.sort(-1).values, weights.sort(-1).values, rtol=0, atol=0)
    assert not torch.equal(moved, weights)
    # each row by itself
    assert len({tuple(m.argsort().tolist()) for m in moved.flatten(0, 1)}) > 20


def test_masked_places_keep_their_weights() -> None:
    weights = torch.rand(50, 7)
    mask = torch.rand(50, 7) < 0.5
    moved = permute_weights(weights, torch.Generator().manual_seed(0), attn_mask=mask)
    assert torch.equal(moved[~mask], weights[~mask])
    for row, before, allowed in zip(moved, weights, mask, strict=True):
        assert_close(row[allowed].sort().values, before[allowed].sort().values, rtol=0, atol=0)


def test_every_order_is_equally_likely() -> None:
    # 6 orders, 12,000 rows, 5 standard errors each: a false alarm in 3.5e-6 of all seeds
    rows = torch.tensor([0.0, 1.0, 2.0]).repeat(12_000, 1)
    moved = permute_weights(rows, torch.Generator().manual_seed(7))
    counts = torch.bincount((moved @ torch.tensor([9.0, 3.0, 1.0])).long(), minlength=27)
    counts = counts[counts > 0]
    assert len(counts) == 6
    assert ((counts - 2000).abs() <= 5 * (12_000 * (1 / 6) * (5 / 6)) ** 0.5).all()


def test_equivalent_weights_by_hand() -> None:
    # the middle of three values on a line is the mean of the outer two
    found = equivalent_weights(torch.tensor([0.2, 0.6, 0.2]), torch.tensor([[0.0], [1.0], [2.0]]))
    assert_close(found, torch.tensor([0.5, 0.0, 0.5]))


@pytest.mark.parametrize(("places", "size"), [(7, 1), (7, 3), (13, 3), (23, 11), (5, 4), (5, 7)])
def test_equivalent_weights_give_the_same_output(places: int, size: int) -> None:
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        weights = torch.randn(places, generator=generator, dtype=torch.float64).softmax(-1)
        value = torch.randn(places, size, generator=generator, dtype=torch.float64)
        before = weights.clone()
        found = equivalent_weights(weights, value)
        assert torch.equal(weights, before)
        assert (found >= 0).all()
        assert_close(found.sum(), weights.sum())
        assert_close(found @ value, weights @ value, rtol=1e-9, atol=1e-9)
        top = int(weights.argmax())
        free = places > size + 1
        assert (float(total_variation(found, weights)) > 1e-3) == free
        assert float(found[top]) <= float(weights[top]) + 1e-12
        # a linear program says how little the largest weight could become
        least = optimize.linprog(
            np.eye(places)[top],
            A_eq=np.vstack([value.numpy().T, np.ones(places)]),
            b_eq=np.append((weights @ value).numpy(), 1.0),
        ).fun
        assert least - 1e-9 <= float(found[top]) <= least + 0.05


NEGATIVE = torch.tensor([-0.5, 1.5])
test_what_does_not_fit_is_refused = refuses(
    (lambda: kendall_tau.__wrapped__(torch.ones(3), torch.ones(4)), "b: expected shape"),
    (lambda: total_variation.__wrapped__(torch.ones(3), torch.ones(4)), "q: expected shape"),
    (lambda: permute_weights.__wrapped__(torch.arange(3)), "weights: expected a floating"),
    (lambda: permute_weights.__wrapped__(torch.ones(3), attn_mask=torch.ones(3)),
     "attn_mask: expected a boolean"),
    (lambda: equivalent_weights.__wrapped__(torch.ones(3), torch.ones(4, 2)),
     "value: expected size 3"),
    (lambda: kendall_tau(torch.tensor([1.0, 2.0]), torch.tensor([1.0, torch.nan])),
     "b: expected numbers, got NaN"),
    (lambda: total_variation(NEGATIVE, NEGATIVE.abs()), "p: expected at least 0"),
    (lambda: equivalent_weights(NEGATIVE, torch.ones(2, 3)),
     "weights: expected finite numbers of at least 0"),
)  # fmt: skip


@pytest.mark.parametrize("measure", [kendall_tau, total_variation])
def test_a_pair_must_be_rows_of_one_shape(measure: Function) -> None:
    compare = measure.__wrapped__
    for a, b in ((torch.ones(()), torch.ones(())), (torch.ones(3, 5), torch.ones(5))):
        refused(r": expected (rows|shape)", compare, a, b)
    refused("expected device cpu, got meta", compare, torch.ones(3), torch.ones(3, device="meta"))
    nothing = measure(torch.ones(2, 0), torch.ones(2, 0))
    assert_close(nothing, torch.zeros(2))


def test_equivalent_weights_of_next_to_nothing() -> None:
    assert equivalent_weights(torch.ones(0), torch.ones(0, 3)).shape == (0,)
    # without any entry in the values, nothing but the sum holds the weights
    free = equivalent_weights(torch.tensor([0.7, 0.2, 0.1]), torch.ones(3, 0))
    assert free[0] == 0
    assert_close(free.sum(), torch.tensor(1.0))
