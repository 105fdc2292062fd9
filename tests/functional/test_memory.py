"""Position encoding, sentence vectors, ages and hops: hand values, NumPy, gradients, padding."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutation import REJECTED, passes, rejects_changes
from oracles import by_numpy
from refusals import refused, refuses
from tolerances import BFLOAT16_ROUNDING, FLOAT64
from torch.testing import assert_close

from attn_course import functional, reference

MODULE = "attn_course.functional.memory"
DOUBLE = {"dtype": torch.float64}


def check_position_encoding(function: Any) -> None:
    # two words, four entries: the first word counts 1/2 everywhere, the last k/d
    by_hand = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.25, 0.5, 0.75, 1.0]], **DOUBLE)
    assert_close(function(2, 4, **DOUBLE), by_hand, **FLOAT64)
    # three words, two entries: l_11 = (1 - 1/3) - (1/2)(1 - 2/3)
    by_hand = torch.tensor([[1 / 2, 1 / 3], [1 / 2, 2 / 3], [1 / 2, 1]], **DOUBLE)
    assert_close(function(3, 2, **DOUBLE), by_hand, **FLOAT64)
    assert_close(function(1, 3, **DOUBLE), torch.tensor([[1 / 3, 2 / 3, 1]], **DOUBLE), **FLOAT64)
    for words, size in ((7, 5), (1, 1), (4, 11), (13, 2)):
        formula = by_numpy.position_encoding(words, size)
        assert_close(function(words, size, **DOUBLE), formula, **FLOAT64)
        # the other form of the same formula, from the docstring
        j = torch.arange(1, words + 1, **DOUBLE)[:, None] / words
        k = torch.arange(1, size + 1, **DOUBLE) / size
        assert_close(function(words, size, **DOUBLE), 0.5 + 2 * (j - 0.5) * (k - 0.5), **FLOAT64)
    assert function(3, 2).dtype == torch.float32
    refused("words: expected at least 1, got 0", function, 0, 3)


def check_sentence_vectors(function: Any) -> None:
    x = torch.randn(2, 3, 5, 7, requires_grad=True, **DOUBLE)
    mask = torch.rand(2, 3, 5) < 0.6
    mask[0, 0], mask[0, 1] = True, False
    for positions in (True, False):
        ours = function(x, mask, positions=positions)
        oracle = by_numpy.sentence_vectors(x.detach(), mask, positions=positions)
        assert_close(ours.detach(), oracle, **FLOAT64)
        (grad,) = torch.autograd.grad(ours.sum(), x)
        call = partial(function, word_mask=mask, positions=positions)
        assert torch.autograd.gradcheck(call, x, fast_mode=True)
        assert (grad[~mask] == 0).all()
        assert (ours[0, 1] == 0).all()
    # a bag of words cannot tell the order, the position encoding can
    turned = x.flip(-2), mask.flip(-1)
    assert_close(function(*turned, positions=False), function(x, mask, positions=False), **FLOAT64)
    assert not torch.allclose(function(*turned)[0, 0], function(x, mask)[0, 0])
    # what stands at padding does not matter
    poisoned = x.detach().masked_fill(~mask[..., None], torch.nan).requires_grad_()
    assert_close(function(poisoned, mask), function(x, mask), **FLOAT64)
    (grad,) = torch.autograd.grad(function(poisoned, mask).sum(), poisoned)
    assert grad.isfinite().all()


def check_ages(function: Any) -> None:
    mask = torch.tensor([[1, 1, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]]).bool()
    by_hand = torch.tensor([[2, 1, 0, -1], [-1, 1, -1, 0], [-1, -1, -1, -1]])
    assert_close(function(mask), by_hand)
    mask = torch.rand(3, 5, 11) < 0.5
    assert_close(function(mask), by_numpy.sentence_ages(mask))


def check_hop(function: Any) -> None:
    # scores ln 1, ln 2, ln 5: weights 1/8, 2/8, 5/8
    m = torch.tensor([1.0, 2.0, 5.0], **DOUBLE).log()[:, None] * torch.tensor([1.0, 0.0], **DOUBLE)
    c = torch.tensor([[8.0, 0.0, 0.0], [0.0, 8.0, 0.0], [0.0, 0.0, 8.0]], **DOUBLE)
    o, p = function(torch.tensor([1.0, 9.0], **DOUBLE), m, c)
    assert_close(p, torch.tensor([1 / 8, 2 / 8, 5 / 8], **DOUBLE), **FLOAT64)
    assert_close(o, torch.tensor([1.0, 2.0, 5.0], **DOUBLE), **FLOAT64)
    u = torch.randn(2, 3, 5, requires_grad=True, **DOUBLE)
    m = torch.randn(2, 3, 7, 5, requires_grad=True, **DOUBLE)
    c = torch.randn(2, 3, 7, 11, requires_grad=True, **DOUBLE)
    mask = torch.rand(2, 3, 7) < 0.6
    mask[1, 2] = False
    for linear in (False, True):
        for which in (None, mask):
            o, p = function(u, m, c, which, linear=linear)
            assert_close((o, p), by_numpy.memory_hop(u, m, c, which, linear=linear), **FLOAT64)
            call = partial(function, attn_mask=which, linear=linear)
            assert torch.autograd.gradcheck(call, (u, m, c), fast_mode=True)
            if which is not None:
                assert (o[1, 2] == 0).all()
                assert (p[~mask] == 0).all()
    # scores that would overflow
    o, p = function(100 * u, 100 * m, c)
    assert o.isfinite().all()
    assert_close(p.sum(-1), torch.ones(2, 3, **DOUBLE), **FLOAT64)


CHECKS = {
    "position_encoding": check_position_encoding,
    "sentence_vectors": check_sentence_vectors,
    "sentence_ages": check_ages,
    "memory_hop": check_hop,
}


test_function_agrees_with_every_oracle = passes(CHECKS, functional)


test_oracle_rejects_a_changed_line = rejects_changes(
    CHECKS,
    MODULE,
    ("position_encoding", "place / words", "(place - 1) / words"),
    ("position_encoding", "entry / embed_dim", "(entry - 1) / embed_dim"),
    ("position_encoding", "(1 - 2 * place)", "(1 - place)"),
    ("position_encoding", "(1 - place) - entry", "(1 - place) + entry"),
    ("sentence_vectors", "word_mask.cumsum(-1)", "(word_mask.cumsum(-1) - 1)"),
    ("sentence_vectors", "wide.masked_fill(~word_mask.unsqueeze(-1), 0.0)", "wide"),
    ("sentence_vectors", "word_mask.sum(-1, keepdim=True).clamp(min=1)", "embedded.shape[-2]"),
    ("sentence_vectors", "return words.sum(-2)", "return words.mean(-2)"),
    ("sentence_ages", "sentence_mask.flip(-1).cumsum(-1).flip(-1)", "sentence_mask.cumsum(-1)"),
    ("sentence_ages", ".masked_fill(~sentence_mask, -1)", ""),
    ("memory_hop", "memory_in @ query", "memory_in / 2 @ query"),
    ("memory_hop", "weights.unsqueeze(-2) @ memory_out", "weights.unsqueeze(-2) @ memory_in"),
    ("memory_hop", "masked_softmax(scores, attn_mask)", "scores.softmax(-1)"),
    ("memory_hop", "scores.masked_fill(~attn_mask, 0.0) if linear", "scores if linear"),
    ("memory_hop", "if linear else", "if not linear else"),
    ("memory_hop", "(scores, attn_mask)", "(scores, attn_mask, dim=0)"),
    error=(*REJECTED, ValueError),
)


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    fill=st.integers(0, 2),
    order=st.randoms(use_true_random=False),
)
def test_padding_anywhere_changes_no_hop(words: list[int], fill: int, order: Any) -> None:
    """Sentences of these many words, dense against spread over a padded rectangle."""
    width, rows = max(words) + fill, len(words) + fill
    x = torch.randn(len(words), max(words), 3, **DOUBLE)
    u = torch.randn(3, **DOUBLE)
    dense = [
        functional.sentence_vectors(x[i, :n][None], torch.ones(1, n, dtype=torch.bool))
        for i, n in enumerate(words)
        if n
    ]
    spread = torch.full((rows, width, 3), torch.nan, **DOUBLE)
    mask = torch.zeros(rows, width, dtype=torch.bool)
    places = sorted(order.sample(range(rows), len(words)))
    for i, (n, row) in enumerate(zip(words, places, strict=True)):
        columns = sorted(order.sample(range(width), n))
        spread[row, columns], mask[row, columns] = x[i, :n], True
    there = mask.any(-1)
    vectors = functional.sentence_vectors(spread, mask)
    output, weights = functional.memory_hop(u, vectors, 2 * vectors, there)
    assert_close(weights[~there], torch.zeros(int((~there).sum()), **DOUBLE), rtol=0, atol=0)
    ages = functional.sentence_ages(there)
    assert ages[there].tolist() == list(reversed(range(len(dense))))
    if dense:
        alone = torch.cat(dense)
        expected, close = functional.memory_hop(u, alone, 2 * alone)
        assert_close(output, expected, **FLOAT64)
        assert_close(weights[there], close, **FLOAT64)
    else:
        assert (output == 0).all()


def test_reference_memory_network_by_hand() -> None:
    # one hop hands over (0, 1), the second finds it and hands over (1, 0); with H = 2 I doubled
    first, second = np.array([[1.0, 0.0], [0.0, 50.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    start = np.array([50.0, 0.0])
    u, p = reference.memory_network(start, [first], [second])
    np.testing.assert_allclose(u, [50.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(p, [[1.0, 0.0]], atol=1e-12)
    u, p = reference.memory_network(start, [first] * 2, [second] * 2, update=2 * np.eye(2))
    np.testing.assert_allclose(u, [200.0, 3.0], atol=1e-12)


HOP, VECTORS = functional.memory_hop.__wrapped__, functional.sentence_vectors.__wrapped__
AGES = functional.sentence_ages.__wrapped__
NO_WORDS = r"word_mask: expected a boolean mask of shape \(2, 3\)"
test_bad_arguments_are_refused = refuses(
    (lambda u, m: HOP(u, m[..., :4], m), "memory_in: expected size 5 on axis -1"),
    (lambda u, m: HOP(u, m, m[:, :2]), "memory_out: expected size 3 on axis -2"),
    (lambda u, m: HOP(u, m, m, torch.ones(2, 3)), "attn_mask: expected a boolean mask"),
    (lambda u, m: HOP(u.long(), m, m), "query: expected a floating point"),
    (lambda u, m: HOP(torch.randn(3, 5), m, m), "memory_in: expected axes that broadcast"),
    (lambda u, m: HOP(u, m, torch.randn(3, 3, 4)), "memory_out: expected axes that broadcast"),
    (lambda u, m: HOP(u, m, torch.randn(3)), "memory_out: expected at least 2 axes"),
    (lambda u, m: HOP(u, m, m.to("meta")), "memory_out: expected device cpu, got meta"),
    (lambda u, m: VECTORS(m, torch.ones(2, 3)), NO_WORDS),
    (lambda u, m: VECTORS(m, torch.ones(3) > 0), NO_WORDS),
    (lambda u, m: AGES(u), "sentence_mask: expected a boolean mask"),
    (lambda u, m: functional.position_encoding(2, 0), "embed_dim: expected at least 1, got 0"),
    (lambda u, m: reference.position_encoding(0, 3), "expected at least 1, got 0 and 3"),
    (lambda u, m: reference.memory_network(u, [m], []), "memories_out: expected one per input mem"),
    given=lambda: (torch.randn(2, 5), torch.randn(2, 3, 5)),
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_hop_in_half_precision_is_rounded_once_and_does_not_overflow(dtype: torch.dtype) -> None:
    query, keys, values = (torch.randn(2, *shape, 64).to(dtype) for shape in ((), (61,), (61,)))
    wide = functional.memory_hop(query.double(), keys.double(), values.double())
    for ours, want in zip(functional.memory_hop(query, keys, values), wide, strict=True):
        assert ours.dtype == dtype
        assert_close(ours.double(), want, rtol=0.51 * torch.finfo(dtype).eps, atol=1e-6)
    large = torch.full((300,), 100.0).to(dtype)  # 100 * 100 * 300 is more than float16 holds
    output, weights = functional.memory_hop(large, large[None], large[None])
    assert_close((output, weights), (large, torch.ones(1, dtype=dtype)))


def test_half_precision_counts_beyond_256_words() -> None:
    embedded = torch.randn(2, 600, 50, dtype=torch.float64).bfloat16()
    mask = torch.ones(2, 600, dtype=torch.bool)
    want = by_numpy.sentence_vectors(embedded.double(), mask)
    got = functional.sentence_vectors(embedded, mask)
    assert_close(got, want.bfloat16(), **BFLOAT16_ROUNDING)
    table = functional.position_encoding(600, 300, dtype=torch.bfloat16)
    assert_close(table, by_numpy.position_encoding(600, 300).bfloat16(), rtol=2**-8, atol=1e-6)


def test_a_hop_widens_mixed_dtypes() -> None:
    query, into, out = torch.randn(2, 3), torch.randn(2, 5, 3).double(), torch.randn(2, 5, 4)
    theirs = by_numpy.memory_hop(*(t.double() for t in (query, into, out)))
    assert_close(functional.memory_hop(query, into, out), theirs, **FLOAT64)
