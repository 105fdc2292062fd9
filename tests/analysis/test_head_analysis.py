"""Head scores and rollout: by hand, the reference, gradients, and planted mistakes."""

from collections.abc import Callable
from typing import Any

import torch
from mutation import mutant, passes, rejects_changes
from oracles import by_numpy
from refusals import refuses
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import analysis, functional
from attn_course.analysis import cumulative_spectrum

MODULE = "attn_course.analysis.head_analysis"
Function = Callable[..., Any]
B, H, L = 2, 3, 11
DOUBLE = {"dtype": torch.float64}


def weights(*lead: int, length: int = L) -> Tensor:
    scores = torch.randn(*lead, H, length, length, **DOUBLE)
    return functional.masked_softmax(scores, torch.ones(length, length).tril().bool())


def check_gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> None:
    assert torch.autograd.gradcheck(function, at.clone().requires_grad_())


def check_rollout(function: Function) -> None:
    look_back = torch.tensor([[[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]])  # one head: the token before
    once = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5]])
    assert_close(function([look_back]), once)
    assert_close(function([look_back, look_back]), once @ once)
    all_mixed = torch.full((2, 3, 3), 1 / 3)
    expected = torch.tensor([[2 / 3, 1 / 3, 0]] * 3)
    assert_close(function([look_back, all_mixed], residual=0.0), expected)
    layers = [weights(B, 5), weights(B, 5), weights(B, 5)]
    for residual in (0.5, 0.0, 0.3, 1.0):
        oracle = by_numpy.attention_rollout(layers, residual=residual)
        ours = function(layers, residual=residual)
        assert_close(ours, oracle, **FLOAT64)
        assert_close(ours.sum(-1), torch.ones(B, 5, L, **DOUBLE), **FLOAT64)
    check_gradient(lambda w: function([w, layers[1][0, 0, :, :5, :5]]), layers[0][0, 0, :, :5, :5])


def check_previous(function: Function) -> None:
    by_hand = torch.tensor([[[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]])
    assert_close(function(by_hand), torch.tensor([(0.5 + 0.25) / 2]))
    w = weights(B, 5)
    assert_close(function(w), by_numpy.previous_token_score(w), **FLOAT64)
    check_gradient(function, weights(2, length=5))
    assert function(torch.ones(1, 1, 1)).tolist() == [0.0]


def check_induction(function: Function) -> None:
    tokens = torch.tensor([5, 7, 5, 7])  # token 2 should look at 1, token 3 at 2
    rows = [[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.2, 0.7, 0.1, 0], [0.1, 0.2, 0.3, 0.4]]
    by_hand = torch.tensor([rows])
    assert_close(function(by_hand, tokens), torch.tensor([(0.7 + 0.3) / 2]))
    # three of a kind: the second has one place to look, itself; the third two
    again = torch.tensor([5, 5, 5, 7])
    assert_close(function(by_hand, again), torch.tensor([(0.5 + 0.7 + 0.1) / 2]))
    # a period, as Olsson et al. measure it
    w, period = weights(B), 4
    repeated = torch.randperm(97)[:period].repeat(3)[:L].expand(B, L)
    late = w[:, :, torch.arange(period, L), torch.arange(period, L) - period + 1]
    early = w[:, :, torch.arange(2 * period, L), torch.arange(2 * period, L) - 2 * period + 1]
    expected = (late.sum(-1) + early.sum(-1)) / (L - period)
    assert_close(function(w, repeated), expected, **FLOAT64)
    # whoever sees both sides gets no point for what is still to come
    w, ids = torch.randn(B, 5, H, L, L, **DOUBLE).softmax(-1), torch.randint(0, 4, (B, 5, L))
    assert_close(function(w, ids), by_numpy.induction_score(w, ids), **FLOAT64)
    assert (function(w, torch.arange(L).expand(B, 5, L)) == 0).all()
    check_gradient(lambda w: function(w, ids[0, 0, :5]), weights(length=5))


CHECKS = {
    "attention_rollout": check_rollout,
    "previous_token_score": check_previous,
    "induction_score": check_induction,
}


test_agrees_with_every_oracle = passes(CHECKS, analysis)


test_oracles_reject_a_changed_line = rejects_changes(
    CHECKS, MODULE,
    ("attention_rollout", "mixed @ rollout", "rollout @ mixed"),
    ("attention_rollout", "(1 - residual) * mean + residual", "mean + residual"),
    ("attention_rollout", "(1 - residual) * mean", "residual * mean"),
    ("attention_rollout", ".mean(-3)", ".amax(-3)"),
    ("previous_token_score", "offset=-1", "offset=1"),
    ("previous_token_score", "offset=-1", "offset=0"),
    ("previous_token_score", "max(1, previous.shape[-1])", "weights.shape[-1]"),
    ("induction_score", "(follows, (1, 0))", "(follows, (0, 1))"),
    ("induction_score", "tril(-1)[..., :-1]", "tril(0)[..., :-1]"),
    ("induction_score", "tril(-1)[..., :-1]", "tril(-2)[..., :-1]"),
    ("induction_score", "repeats.sum(-1).clamp(min=1)", "follows.sum((-1, -2)).clamp(min=1)"),
    ("induction_score", "repeats.sum(-1).clamp(min=1)", "repeats.sum(-1)"),
)  # fmt: skip


# without the checks of shapes
ROLLOUT, PREVIOUS, INDUCTION = (mutant(MODULE, name, "def ", "def ") for name in CHECKS)
test_bad_arguments_are_refused = refuses(
    (lambda: ROLLOUT([]), "weights: expected at least one layer"),
    (lambda: ROLLOUT([torch.ones(1, 2, 2)], residual=1.5), r"residual: expected 0 to 1, got 1\.5"),
    (lambda: PREVIOUS(torch.ones(3, 2, 5)), r"weights: expected shape \(..., H, L, L\)"),
    (lambda: ROLLOUT([torch.ones(3, 2, 5)]), r"weights: expected shape \(..., H, L, L\)"),
    (lambda: INDUCTION(torch.ones(2, 3, 5, 5), torch.zeros(3, 5).long()),
     r"tokens: expected shape \(2, 5\), got \(3, 5\)"),
    (lambda: cumulative_spectrum.__wrapped__(torch.zeros(3)), "matrix: expected at least axes"),
)  # fmt: skip


def test_the_spectrum_is_that_of_the_singular_values() -> None:
    for shape in ((7, 5), (5, 7)):
        matrix = torch.randn(shape, dtype=torch.float64)
        gram = matrix @ matrix.mT if shape[0] < shape[1] else matrix.mT @ matrix
        sizes = torch.linalg.eigvalsh(gram).flip(0).sqrt()
        want = sizes.cumsum(0) / sizes.sum()
        assert_close(cumulative_spectrum(matrix), want, rtol=1e-9, atol=1e-9)
    assert cumulative_spectrum(torch.diag(torch.tensor([1.0, 3.0]))).tolist() == [0.75, 1.0]
    assert cumulative_spectrum(torch.zeros(2, 3)).tolist() == [0.0, 0.0]
    rank_one = torch.ones(4, 1) @ torch.randn(1, 6)
    assert_close(cumulative_spectrum(rank_one), torch.ones(4))
