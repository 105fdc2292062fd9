"""Local windows against hand values, NumPy, finite differences, and padding."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from mutation import passes, rejects_changes
from oracles import by_numpy
from refusals import refuses
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import functional, reference
from attn_course.functional import local_window_attention
from attn_course.nn import LocalM, LocalP, LuongDecoder
from attn_course.nn.attention import AttentionMemory
from attn_course.nn.scores import GeneralScore

MODULE = "attn_course.functional.local_window"
B, L, S, H, A = 3, 5, 11, 7, 2


def check_mask(local_m_mask: Callable[..., Tensor]) -> None:
    by_hand = local_m_mask(torch.tensor([0, 2, 6]), torch.tensor([4]), 1, 5)
    # the part before the sentence is ignored; places 5 to 7 are none of a sentence of 4
    want = torch.tensor([[1, 1, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]]).bool()
    assert_close(by_hand[0], want)
    lengths = torch.tensor([4, 11, 1])
    for steps in (torch.arange(3, 3 + L), torch.randint(0, S, (B, L)), torch.arange(L)[None]):
        for half_width in (0, 2, 2.5, 30):
            ours = local_m_mask(steps, lengths, half_width, S)
            assert_close(ours, by_numpy.local_m_mask(steps, lengths, half_width, S))
            assert ours.shape == (B, L, S)


def check_position(local_p_position: Callable[..., Tensor]) -> None:
    # v.tanh(W h) = ln 3 makes the sigmoid 3/4
    h = torch.tensor([[[1.0, 2.0]]])
    weight, v = torch.tensor([[2.0, -1.0], [0.0, 20.0]]), torch.tensor([5.0, math.log(3.0)])
    assert_close(local_p_position(h, weight, v, torch.tensor([8])), torch.tensor([[6.0]]))
    hidden = torch.randn(B, L, H, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(A, H, dtype=torch.float64, requires_grad=True)
    v = torch.randn(A, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([4, 11, 1])
    theirs = by_numpy.local_p_position(hidden, weight, v, lengths)
    assert_close(local_p_position(hidden, weight, v, lengths), theirs, **FLOAT64)
    given = partial(local_p_position, source_lengths=lengths)
    assert torch.autograd.gradcheck(given, (hidden, weight, v))


def check_weights(local_p_weights: Callable[..., Tensor]) -> None:
    # D = 2, so sigma = 1; equal scores: 1/4 each of the places 1 to 4 within 2 of 2.5
    got = local_p_weights(torch.zeros(1, 6), torch.tensor([2.5]), 2.0)
    near, far = 0.25 * math.exp(-0.125), 0.25 * math.exp(-1.125)
    assert_close(got, torch.tensor([[0.0, far, near, near, far, 0.0]]))
    # the edge counts: places 0 and 4 are exactly 2 from 2
    got = local_p_weights(torch.zeros(1, 6), torch.tensor([2.0]), 2.0)
    edge = 0.2 * math.exp(-2.0)
    assert_close(got[0, [0, 2, 4, 5]], torch.tensor([edge, 0.2, edge, 0.0]))
    scores = torch.randn(B, L, S, dtype=torch.float64, requires_grad=True)
    position = (torch.rand(B, L, dtype=torch.float64) * 8).requires_grad_()
    lengths = torch.tensor([4, 11, 1])
    mask = (torch.arange(S) < lengths[:, None]).unsqueeze(1)
    for half_width in (1.0, 3.0, 2.5):
        for attn_mask in (None, mask):
            theirs = by_numpy.local_p_weights(scores, position, half_width, attn_mask)
            ours = local_p_weights(scores, position, half_width, attn_mask)
            assert_close(ours.detach(), theirs, **FLOAT64)
            assert (ours.sum(-1) <= 1 + 1e-12).all()

    def masked(scores: Tensor, position: Tensor) -> Tensor:
        return local_p_weights(scores, position, 2.5, mask)

    assert torch.autograd.gradcheck(masked, (scores, position))


CHECKS: dict[str, Callable[[Any], None]] = {
    "local_m_mask": check_mask,
    "local_p_position": check_position,
    "local_p_weights": check_weights,
}


test_agrees_with_every_oracle = passes(CHECKS, functional)


test_oracles_reject_a_changed_line = rejects_changes(
    CHECKS, MODULE,
    ("local_m_mask", "<= half_width) &", "< half_width) &"),
    ("local_m_mask", "half_width) & real.unsqueeze(1", "half_width).expand(len(real), -1, -1"),
    ("local_m_mask", "distance.abs()", "distance"),
    ("local_p_position", "source_lengths.unsqueeze(-1) *", "source_lengths.max() *"),
    ("local_p_position", "source_lengths.unsqueeze(-1) *", "(source_lengths.unsqueeze(-1) - 1) *"),
    ("local_p_position", "torch.tanh(hidden @ weight.mT)", "hidden @ weight.mT"),
    ("local_p_position", "torch.sigmoid(", "("),
    ("local_p_weights", "sigma = half_width / 2", "sigma = half_width"),
    ("local_p_weights", "(2 * sigma**2)", "(sigma**2)"),
    ("local_p_weights", "window = window & attn_mask", "pass"),
    ("local_p_weights", ".abs() <= half_width", ".abs() < half_width"),
    ("local_p_weights", "masked_softmax(raw, window)", "raw.softmax(-1)"),
    ("local_p_weights", "masked_softmax(raw, window)", "(raw.softmax(-1) * window)"),
    ("local_p_weights", "(masked_softmax(raw, window) * gaussian)",
     "torch.nn.functional.normalize(masked_softmax(raw, window) * gaussian, p=1, dim=-1)"),
    ("local_p_weights", "position.to(wide)", "position.detach().to(wide)"),
)  # fmt: skip


MASK, POSITION = functional.local_m_mask.__wrapped__, functional.local_p_position.__wrapped__
WEIGHTS = functional.local_p_weights.__wrapped__
STEPS, LENGTHS, NAN = torch.arange(L), torch.tensor([2, 3]), float("nan")
PARTS = HIDDEN, WEIGHT, V = torch.zeros(2, L, H), torch.zeros(A, H), torch.zeros(A)
SCORES, CENTRE = torch.zeros(2, L, S), torch.zeros(2, L)
test_bad_arguments_are_refused = refuses(
    (lambda: MASK(STEPS, LENGTHS, -1, 5), "half_width: expected at least 0, got -1"),
    (lambda: MASK(STEPS, LENGTHS, NAN, 5), "half_width: expected at least 0, got nan"),
    (lambda: MASK(STEPS, LENGTHS, 1, 2), "lengths: expected values from 0 to 2, got 2 to 3"),
    (lambda: MASK(STEPS.expand(3, L), LENGTHS, 1, 5), "steps: expected size 2 on axis 0"),
    (lambda: POSITION(HIDDEN, WEIGHT[:, 1:], V, LENGTHS), "weight: expected size 7 on axis -1"),
    (lambda: POSITION(HIDDEN, WEIGHT, torch.zeros(A + 1), LENGTHS), "v: expected size 2 on axis 0"),
    (lambda: POSITION(*PARTS, LENGTHS[:1]), "source_lengths: expected 2 integers"),
    (lambda: POSITION(*PARTS, -LENGTHS), "source_lengths: expected"),
    (lambda: POSITION(*PARTS, LENGTHS / 2), "source_lengths: expected"),
    (lambda: WEIGHTS(SCORES, CENTRE, 0.0), "half_width: expected more than 0"),
    (lambda: WEIGHTS(SCORES, CENTRE, -1.0), "half_width: expected more than 0"),
    (lambda: WEIGHTS(SCORES, CENTRE, NAN), "half_width: expected more than 0"),
    (lambda: WEIGHTS(SCORES, torch.zeros(2, L + 1), 1.0), "position: expected size 5 on axis -1"),
    (lambda: WEIGHTS(SCORES, torch.rand(3, L), 2.0), "position: expected axes that broadcast"),
    (lambda: WEIGHTS(torch.randn(S), torch.rand(1), 2.0), "scores: expected scores in rows"),
    (lambda: WEIGHTS(SCORES, CENTRE, 1.0, torch.ones(S)), "attn_mask: expected a boolean mask"),
    (lambda: reference.local_m_mask([0], [1], -1, 2), "half_width: expected at least 0"),
    (lambda: reference.local_p_weights([[0.0]], [0.0], 0), "half_width: expected more than 0"),
    (lambda: reference.local_p_position([[[0]]], [[1, 2]], [1], [3]), "weight: expected shape"),
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_knows_places_beyond_256(dtype: torch.dtype) -> None:
    scores = torch.randn(1, 3, 700).to(dtype)
    position = torch.tensor([[300.0, 513.5, 699.0]])
    want = by_numpy.local_p_weights(scores.double(), position, 10.0)
    got = functional.local_p_weights(scores, position, 10.0)
    assert got.dtype == dtype
    slack = torch.finfo(dtype).eps
    assert_close(got.double(), want, rtol=slack, atol=1e-7)
    hidden, weight, v = torch.randn(1, 3, H), torch.randn(A, H), torch.randn(A)
    parts = [part.to(dtype) for part in (hidden, weight, v)]
    centre = functional.local_p_position(*parts, torch.tensor([1001]))
    right = by_numpy.local_p_position(*(p.double() for p in parts), [1001])
    assert centre.dtype == torch.float32
    assert_close(centre, right.float(), rtol=1e-5, atol=1e-5)


def test_one_row_of_scores_serves_several_centres() -> None:
    scores, position = torch.randn(L, S).double(), 10 * torch.rand(B, L).double()
    got = functional.local_p_weights(scores, position, 2.5)
    for row in range(B):
        assert_close(got[row], functional.local_p_weights(scores, position[row], 2.5), **FLOAT64)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("half_width", [1, 2.5, 30])
def test_weights_and_output_are_those_of_numpy(gaussian: bool, half_width: float) -> None:
    query, key = torch.randn(3, 5, 4).double(), torch.randn(3, 11, 4).double()
    value = torch.randn(3, 11, 2).double()
    position, lengths = 11 * torch.rand(3, 5).double(), torch.tensor([11, 4, 1])
    output, weights, places = local_window_attention(
        query, key, value, position, half_width, lengths, gaussian=gaussian
    )
    wanted, everywhere = by_numpy.local_window_attention(
        query, key, value, position, half_width, lengths, gaussian=gaussian
    )
    assert_close(output, wanted)
    assert_close(weights, everywhere.gather(-1, places))
    assert_close(weights.sum(-1), everywhere.sum(-1))


@pytest.mark.parametrize("kind", ["local-m", "local-p"])
def test_a_decoder_that_scores_the_window_only_is_the_same_decoder(kind: str) -> None:
    window = LocalM(half_width=2) if kind == "local-m" else LocalP(half_width=2, query_size=6)
    score = GeneralScore(query_size=6, key_size=6)
    decoder = LuongDecoder(
        vocab_size=11, embed_dim=4, context_size=6, summary_size=6, hidden_size=6,
        score=score, window=window,
    ).double()  # fmt: skip
    mask = torch.arange(23) < torch.tensor([23, 5, 14])[:, None]
    keys = torch.randn(3, 23, 6, dtype=torch.float64)
    memory = AttentionMemory(score.prepare(keys), keys * mask.unsqueeze(-1), mask)
    hidden = torch.randn(3, 7, 6, dtype=torch.float64)
    steps = torch.arange(7).expand(3, -1)
    got, weights = window.attend(score.compare, hidden, steps, memory)
    wanted, everywhere = decoder.attention.attend(
        hidden, memory, weigh=lambda scores, _: window(scores, hidden, steps, mask)
    )
    assert_close(got, wanted)
    assert_close(weights, everywhere)
