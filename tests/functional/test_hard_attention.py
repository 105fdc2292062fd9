"""Hard attention against hand values, NumPy, exact enumeration, statistics, and mutants.

Statistical tests have a fixed seed, so they give one answer for ever. Their bounds are written for
any seed: 5 standard errors for each of at most 30 numbers is a false alarm in at most 30 * 5.8e-7 <
2e-5 of all seeds (normal approximation; samples are 20,000 and more).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mutation import passes, rejects, rejects_changes
from oracles import by_numpy
from refusals import refused, refuses
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import functional, reference
from attn_course.analysis import weight_entropy
from attn_course.functional import (
    attention_log_prob,
    best_baseline,
    expected_attention,
    masked_softmax,
    reinforce_loss,
    sample_attention,
    score_function_gradient,
    score_function_moments,
)

MODULE = "attn_course.functional.hard_attention"
Function = Callable[..., Any]
STANDARD_ERRORS = 5.0
LOSS, GRADIENT = reinforce_loss.__wrapped__, score_function_gradient.__wrapped__


def weights_of(*shape: int, spread: float = 1.0) -> Tensor:
    return torch.softmax(spread * torch.randn(*shape, dtype=torch.float64), dim=-1)


def each_place(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


def check_sample(sample: Function) -> None:
    by_hand = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64)
    for u, place in [(0.0, 0), (0.49, 0), (0.5, 2), (0.79, 2), (0.81, 3), (1 - 2**-53, 3)]:
        drawn = sample(by_hand, uniform=torch.tensor(u, dtype=torch.float64))
        assert_close(drawn, each_place(4)[place], rtol=0, atol=0)
    weights = weights_of(3, 5, 7, spread=3.0)
    weights[1, 2] = 0
    weights[0, 0, :3] = 0
    weights[0, 0, 6] = 0
    uniform = torch.rand(3, 5, dtype=torch.float64)
    drawn = sample(weights, uniform=uniform)
    assert_close(drawn, by_numpy.sample_attention(weights, uniform), rtol=0, atol=0)
    assert (drawn[1, 2] == 0).all()
    # rows that do not sum to one are shares all the same
    assert_close(sample(4 * weights, uniform=uniform), drawn, rtol=0, atol=0)


def test_places_are_drawn_as_often_as_their_weights_say() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.3, 0.2], [0.01, 0.9, 0.09, 0.0]])
    draws = 40_000
    generator = torch.Generator().manual_seed(1)
    drawn = sample_attention(weights.repeat(draws, 1, 1), generator)
    share = drawn.mean(0)
    error = (weights * (1 - weights) / draws).sqrt()
    assert (share[weights == 0] == 0).all()
    assert ((share - weights).abs() <= STANDARD_ERRORS * error).all()
    assert drawn.dtype == weights.dtype
    assert not drawn.requires_grad


def test_rows_are_drawn_independently() -> None:
    generator = torch.Generator().manual_seed(2)
    drawn = sample_attention(torch.full((40_000, 2, 2), 0.5), generator)[..., 0]
    together = (drawn[:, 0] * drawn[:, 1]).mean()
    assert abs(together - 0.25) <= STANDARD_ERRORS * (0.25 * 0.75 / 40_000) ** 0.5


def test_sample_depends_on_the_generator_alone() -> None:
    weights = weights_of(50, 7)
    first = sample_attention(weights, torch.Generator().manual_seed(3))
    torch.manual_seed(99)
    assert torch.equal(sample_attention(weights, torch.Generator().manual_seed(3)), first)
    assert not torch.equal(sample_attention(weights, torch.Generator().manual_seed(4)), first)


@pytest.mark.parametrize("bad", [[0.5, -0.1], [0.5, torch.nan], [0.5, torch.inf]])
def test_weights_that_are_no_shares_are_refused(bad: list[float]) -> None:
    refused("weights: expected finite numbers of at least 0", sample_attention, torch.tensor(bad))
    refused("weights: expected finite numbers of at least 0", reference.sample_attention, bad, 0.5)


@pytest.mark.parametrize("bad", [[0.5, 1.0], [-0.1, 0.5], [0.5]])
def test_numbers_outside_the_unit_interval_are_refused(bad: list[float]) -> None:
    said = r"uniform: expected numbers in \[0, 1\) of shape \(2,\)"
    refused(said, sample_attention.__wrapped__, torch.ones(2, 3), uniform=torch.tensor(bad))


def test_an_empty_row_draws_nothing() -> None:
    assert sample_attention(torch.zeros(3, 0)).shape == (3, 0)
    weights = masked_softmax(torch.randn(2, 5), torch.tensor([[True] * 5, [False] * 5]))
    assert sample_attention(weights).sum(-1).tolist() == [1.0, 0.0]


def check_expected(expected: Function) -> None:
    value = torch.tensor([[2.0], [10.0], [0.0]])
    assert_close(expected(torch.tensor([0.5, 0.3, 0.2]), value), torch.tensor([4.0]))
    assert_close(expected(torch.tensor([0.0, 1.0, 0.0]), value), torch.tensor([10.0]))
    weights, values = weights_of(2, 3, 7), torch.randn(2, 1, 7, 5, dtype=torch.float64)
    assert_close(expected(weights, values), by_numpy.expected_attention(weights, values), **FLOAT64)
    assert_close(expected(torch.zeros(7).double(), values[0, 0]), torch.zeros(5).double())
    w, v = weights[0].clone().requires_grad_(), values[0].clone().requires_grad_()
    assert torch.autograd.gradcheck(expected, (w, v))


test_expected_oracles_reject = rejects(
    check_expected,
    [
        lambda w, v: (w.softmax(-1).unsqueeze(-2) @ v).squeeze(-2),
        lambda w, v: (w.unsqueeze(-2) @ v).squeeze(-2) / w.shape[-1],
        lambda w, v: (w.detach().unsqueeze(-2) @ v).squeeze(-2),
        lambda w, v: functional.weighted_mean(w.square(), v),
    ],
)


def check_log_prob(log_prob: Function) -> None:
    by_hand = log_prob(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.0, 0.0, 1.0]))
    assert_close(by_hand, torch.tensor(0.2).log())
    weights = weights_of(4, 7)
    sample = sample_attention(weights)
    sample[2] = 0
    assert_close(log_prob(weights, sample), by_numpy.attention_log_prob(weights, sample), **FLOAT64)
    # the gradient by the scores is the one-hot sample minus the weights, also beside masked places
    scores = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(4, 7) < 0.6
    mask[:, 0] = True
    masked = masked_softmax(scores, mask)
    drawn = sample_attention(masked)
    (grad,) = torch.autograd.grad(log_prob(masked, drawn).sum(), scores)
    assert_close(grad, drawn - masked.detach(), **FLOAT64)


test_log_prob_oracles_reject = rejects(
    check_log_prob,
    [
        lambda w, z: (z * w).sum(-1),
        lambda w, z: (z * w.log()).sum(-1),
        lambda w, z: (z * (w + 1e-6).log()).sum(-1),
        lambda w, z: (z * w.log_softmax(-1)).sum(-1),
        lambda w, z: torch.where(z > 0, w, torch.ones_like(w)).log().mean(-1),
        lambda w, z: torch.where(z > 0, w, torch.ones_like(w)).log().sum(-1).detach(),
    ],
)


def check_entropy(entropy: Function) -> None:
    by_hand = entropy(torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0], [0.25] * 4]))
    assert_close(by_hand, torch.tensor([1.0397208, 0.0, 1.3862944]))
    assert_close(by_hand[0], torch.tensor(1.5 * np.log(2)).float())
    weights = weights_of(3, 5, 7, spread=4.0)
    for dim in (-1, 1, 0):
        shares = weights / weights.sum(dim, keepdim=True)
        assert_close(entropy(shares, dim), by_numpy.weight_entropy(shares, dim), **FLOAT64)
        assert_close(entropy(shares, dim), torch.special.entr(shares).sum(dim), **FLOAT64)
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e: entropy(e.softmax(-1)), scores)
    mask = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], dtype=torch.bool)
    (grad,) = torch.autograd.grad(entropy(masked_softmax(scores, mask)).sum(), scores)
    assert grad.isfinite().all()
    assert (grad[~mask] == 0).all()
    assert (grad[0][mask[0]] != 0).all()


test_entropy_oracles_reject = rejects(
    check_entropy,
    [
        lambda w, dim=-1: torch.special.entr(w).sum(dim),
        lambda w, dim=-1: -(w * (w + 1e-9).log()).sum(dim),
        lambda w, dim=-1: (w * w.clamp(min=1e-30).log()).sum(dim),
        lambda w, dim=-1: weight_entropy(w, dim) / np.log(2),
        lambda w, dim=-1: weight_entropy(w, dim) / np.log(w.shape[dim]),
        lambda w, dim=-1: weight_entropy(w, -1),
        lambda w, dim=-1: weight_entropy(w, dim).mean(),
        lambda w, dim=-1: 1 - w.square().sum(dim),
    ],
)


def test_entropy_agrees_with_every_oracle() -> None:
    check_entropy(weight_entropy)


def exact_gradient(scores: Tensor, rewards: Tensor) -> Tensor:
    """By autograd on the expected reward itself: no sampling, no score function."""
    e = scores.detach().requires_grad_()
    (grad,) = torch.autograd.grad((e.softmax(-1) * rewards).sum(), e)
    return grad


def check_estimator(estimate: Function) -> None:
    """All oracles for score_function_gradient: by hand, NumPy, and its mean by enumeration."""
    by_hand = estimate(torch.tensor([0.5, 0.3, 0.2]), torch.eye(3)[1], torch.tensor(10.0), 4.0)
    assert_close(by_hand, torch.tensor([-3.0, 4.2, -1.2]))
    weights = weights_of(3, 5, 7)
    sample, reward = sample_attention(weights), torch.randn(3, 5, dtype=torch.float64)
    for baseline in (0.0, -2.1, torch.randn(3, 5, dtype=torch.float64)):
        plain = baseline.numpy() if isinstance(baseline, Tensor) else baseline
        oracle = by_numpy.score_function_gradient(weights, sample, reward, plain)
        ours = estimate(weights, sample, reward, baseline)
        assert_close(ours, oracle, **FLOAT64)
    scores, rewards = torch.randn(2, 7, dtype=torch.float64) * 2
    weights = scores.softmax(-1)
    for baseline in (0.0, 3.0):
        each = estimate(weights.expand(7, 7), each_place(7), rewards, baseline)
        assert_close(weights @ each, exact_gradient(scores, rewards), **FLOAT64)


test_estimator_oracles_reject = rejects(
    check_estimator,
    {
        "minus sign": lambda w, z, r, b=0.0: -score_function_gradient(w, z, r, b),
        "gradient by the weights": lambda w, z, r, b=0.0: (
            (r - torch.as_tensor(b)).unsqueeze(-1) * z / w
        ),
        "baseline ignored": lambda w, z, r, b=0.0: score_function_gradient(w, z, r),
        "baseline beside the one-hot only": lambda w, z, r, b=0.0: (
            (r - torch.as_tensor(b)).unsqueeze(-1) * z - r.unsqueeze(-1) * w
        ),
        "divided by the probability": lambda w, z, r, b=0.0: (
            score_function_gradient(w, z, r, b) / (w * z).sum(-1, keepdim=True)
        ),
        "weighted again": lambda w, z, r, b=0.0: (
            score_function_gradient(w, z, r, b) * (w * z).sum(-1, keepdim=True)
        ),
        "baseline peeks at the reward": lambda w, z, r, b=0.0: score_function_gradient(
            w, z, r, r / 2
        ),
    },
)


def test_moments_and_best_baseline() -> None:
    scores, rewards = torch.randn(7, dtype=torch.float64), 20 + torch.randn(7).double()
    weights = scores.softmax(-1)
    mean, variance = score_function_moments(weights, rewards, 1.6)
    oracle = by_numpy.score_function_moments(weights, rewards, 1.6)
    assert_close(mean, oracle[0], **FLOAT64)
    assert variance == pytest.approx(oracle[1], rel=1e-11)
    assert_close(mean, exact_gradient(scores, rewards), **FLOAT64)
    # by enumeration
    each = score_function_gradient(weights.expand(7, 7), each_place(7), rewards, 1.6)
    assert variance == pytest.approx(float(weights @ (each - mean).square().sum(-1)), rel=1e-11)
    # the best baseline: a parabola's vertex, from three other points
    b = best_baseline(weights, rewards)
    assert b == pytest.approx(by_numpy.best_baseline(weights, rewards), rel=1e-12)
    v0, v1, v2 = (score_function_moments(weights, rewards, x)[1] for x in (0.0, 10.0, 20.0))
    vertex = 10 - 10 * (v2 - v0) / (2 * (v2 - 2 * v1 + v0))
    assert b == pytest.approx(vertex, rel=1e-6)
    assert b != pytest.approx(float(weights @ rewards), rel=1e-6)


def test_no_choice_has_no_variance() -> None:
    alone = torch.tensor([0.0, 1.0])
    assert score_function_moments(alone, torch.tensor([3.0, 5.0]))[1] == 0
    assert best_baseline(alone, torch.tensor([3.0, 5.0])) == 5
    assert reference.best_baseline([0.0, 1.0], [3.0, 5.0]) == 5


def check_loss(loss: Function) -> None:
    """All oracles for reinforce_loss: its gradient is the estimator's, and nothing else's."""
    scores = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    weights = scores.softmax(-1)
    sample = sample_attention(weights)
    learned = torch.randn(5, dtype=torch.float64, requires_grad=True)
    reward = learned * 2 + 10
    for baseline in (0.0, 9.1, torch.randn(5, dtype=torch.float64), learned):
        value = loss(attention_log_prob(weights, sample), reward, baseline)
        assert value.shape == ()
        ours, theirs = torch.autograd.grad(
            value, (scores, learned), retain_graph=True, allow_unused=True
        )
        expected = -score_function_gradient(weights, sample, reward, baseline) / 5
        assert_close(ours, expected, **FLOAT64)
        assert theirs is None


def check_straight(straight: Function) -> None:
    """All oracles for straight_through: forward exactly one-hot, the gradient passed on."""
    weights = weights_of(3, 5).requires_grad_()
    uniform, direction = torch.rand(3, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    out = straight(weights, uniform=uniform)
    (grad,) = torch.autograd.grad((out * direction).sum(), weights)
    oracle = by_numpy.straight_through(weights, uniform, direction)
    assert_close((out, grad), oracle, rtol=0, atol=0)
    single = torch.softmax(torch.randn(1000, 7), -1).requires_grad_()
    assert set(straight(single).detach().unique().tolist()) == {0.0, 1.0}


ORACLES = {
    "sample_attention": check_sample,
    "expected_attention": check_expected,
    "attention_log_prob": check_log_prob,
    "score_function_gradient": check_estimator,
    "reinforce_loss": check_loss,
    "straight_through": check_straight,
}


test_function_agrees_with_every_oracle = passes(ORACLES, functional)


test_oracles_reject_a_changed_line = rejects_changes(
    ORACLES, MODULE,
    ("sample_attention", "reached <= target", "reached < target"),
    ("sample_attention", "reached <= target", "reached <= uniform.double().unsqueeze(-1)"),
    ("sample_attention", "masked_fill(reached[..., -1:] == 0, 0.0)",
     "masked_fill(reached[..., :1] < 0, 0.0)"),
    ("sample_attention", "w.cumsum(-1)", "w.flip(-1).cumsum(-1)"),
    ("score_function_gradient", "torch.as_tensor(baseline, dtype=wide, device=w.device)",
     "torch.as_tensor(baseline)"),
    ("score_function_gradient", "(one_hot - w)", "one_hot"),
    ("score_function_gradient", "reward.detach() - subtracted", "reward.detach() + subtracted"),
    ("reinforce_loss", "-((reward", "((reward"),
    ("reinforce_loss", ".detach() * log_prob", " * log_prob"),
    ("reinforce_loss", "(reward - baseline).detach()", "reward.detach() - baseline"),
    ("reinforce_loss", ".mean()", ".sum()"),
    ("reinforce_loss", "reward - baseline", "reward"),
    ("straight_through", "sample + (weights - weights.detach())", "weights"),
    ("straight_through", "sample + (weights - weights.detach())",
     "sample * weights / weights.detach()"),
    ("straight_through", "sample + (weights - weights.detach())",
     "sample + 2 * (weights - weights.detach())"),
)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_dtype(dtype: torch.dtype) -> None:
    weights = torch.softmax(torch.randn(3, 7), -1).to(dtype)
    sample, ones = sample_attention(weights), torch.ones(3, 7, 2, dtype=dtype)
    estimate = score_function_gradient(weights, sample, ones[:, 0, 0])
    for value in (weight_entropy(weights), estimate, expected_attention(weights, ones)):
        assert value.dtype == dtype


test_what_does_not_fit_is_refused = refuses(
    (lambda: expected_attention.__wrapped__(torch.ones(3), torch.ones(4, 2)), "value: expect"),
    (lambda: expected_attention.__wrapped__(torch.arange(3), torch.ones(3, 2)), "weights: exp"),
    (lambda: attention_log_prob.__wrapped__(torch.ones(3), torch.ones(4)), "sample: expected"),
    (
        lambda: LOSS(torch.zeros(5), torch.zeros(5, 1)),
        r"reward: expected shape \(5,\), got \(5, 1\)",
    ),
    (lambda: LOSS(torch.zeros(0), torch.zeros(0)), "reward: expected at least one"),
    (lambda: weight_entropy(torch.tensor([1.5, -0.5])), "weights: expected at least 0"),
    (lambda: best_baseline.__wrapped__(*torch.ones(2, 2, 3)), r"weights: expected axes \(S\)"),
    (
        lambda: score_function_moments.__wrapped__(*torch.ones(2, 2, 3)),
        r"weights: expected axes \(S\)",
    ),
    (lambda: weight_entropy.__wrapped__(torch.ones(3), 1), "dim: expected an axis"),
    (lambda: weight_entropy.__wrapped__(torch.arange(3)), "weights: expected a floating"),
    (
        lambda: GRADIENT(torch.ones(2, 3), torch.ones(2, 3), torch.ones(5)),
        "reward: expected a shape that broadcasts",
    ),
    (lambda: reference.expected_attention([0.5, 0.5], [[1.0]]), "value: expected size 2"),
    (lambda: reference.weight_entropy([0.5], 1), "dim: expected an axis"),
    (lambda: reference.sample_attention([[0.5]], 0.5), "uniform: expected shape"),
    (lambda: reference.attention_log_prob([0.5], [0.5, 1]), "sample: expected size 1"),
)


@pytest.mark.parametrize("shape", [(5, 1), (1, 5), (2, 5), (4,)])
def test_a_baseline_or_reward_that_would_stretch_rows_is_refused(shape: tuple[int, ...]) -> None:
    reward, stretched, weights = torch.randn(5), torch.zeros(shape), torch.rand(5, 3).softmax(-1)
    sample, said = sample_attention(weights), ": expected a shape that broadcasts to"
    refused(f"baseline{said}", LOSS, torch.randn(5), reward, stretched)
    refused(f"baseline{said}", GRADIENT, weights, sample, reward, stretched)
    refused(f"reward{said}", GRADIENT, weights, sample, stretched)


def test_the_entropy_of_nan_is_nan() -> None:
    assert weight_entropy(torch.tensor([torch.nan, 1.0])).isnan()
