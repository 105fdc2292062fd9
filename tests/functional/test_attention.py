"""The toolkit: score, normalise, mix, against NumPy, torch, by hand, and blind to padding."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from mutation import rejects_changes
from oracles import by_numpy
from refusals import refused, refuses
from tolerances import FLOAT64
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course import functional, nn, reference
from attn_course.masks import causal_mask
from attn_course.probes import student

MODULE = "attn_course.functional.attention"
B, L, S, E, EV = 2, 3, 7, 5, 4


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query = torch.randn(B, 1, L, E, dtype=torch.float64, requires_grad=True)
    key = torch.randn(3, S, E, dtype=torch.float64, requires_grad=True)
    value = torch.randn(B, 3, S, EV, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(B, 3, L, S) < 0.6
    mask[..., 0] = True
    mask[1, 2, 0] = False  # a query that may attend to nothing
    return query, key, value, mask


def check(attention: Callable[..., tuple[Tensor, Tensor]]) -> None:
    # by hand: scores ln 1 and ln 3, so weights 1/4 and 3/4
    query = torch.tensor([[1.0]])
    key, value = torch.tensor([[0.0], [math.log(3.0)]]), torch.tensor([[8.0, 0.0], [0.0, 4.0]])
    output, weights = attention(query, key, value, score=functional.dot_score)
    assert_close(weights, torch.tensor([[0.25, 0.75]]))
    assert_close(output, torch.tensor([[2.0, 3.0]]))

    query, key, value, mask = inputs()
    by_torch = F.scaled_dot_product_attention(
        query.expand(B, 3, L, E), key.expand(B, 3, S, E), value, attn_mask=mask
    )
    by_torch = torch.where(mask.any(-1, keepdim=True), by_torch, 0.0)
    output, weights = attention(query, key, value, attn_mask=mask)
    assert_close(output, by_torch, **FLOAT64)
    assert_close(weights.sum(-1), mask.any(-1).double(), **FLOAT64)
    assert (weights[~mask] == 0).all()
    for normalize, plain in ((functional.masked_softmax, reference.masked_softmax), (None, None)):
        rows, given = (query, key, value), {"attn_mask": mask}
        theirs = by_numpy.attention(*rows, score=reference.dot_score, normalize=plain, **given)
        ours = attention(*rows, score=functional.dot_score, normalize=normalize, **given)
        assert_close(ours, theirs, **FLOAT64)

    def output_of(*args: Tensor) -> Tensor:
        return attention(*args, attn_mask=mask)[0]

    assert torch.autograd.gradcheck(output_of, (query, key, value), fast_mode=True)

    # rows that nobody attends to: NaN there changes neither the output nor a gradient
    mask[..., -2:] = False
    clean = attention(query, key, value, attn_mask=mask)[0]
    fill = torch.arange(S).unsqueeze(-1) >= S - 2
    dirty = [rows.detach().masked_fill(fill, torch.nan).requires_grad_() for rows in (key, value)]
    output, _ = attention(query, *dirty, attn_mask=mask)
    assert_close(output, clean, **FLOAT64)
    want = torch.autograd.grad(clean.square().sum(), (query, key, value))
    got = torch.autograd.grad(output.square().sum(), (query, *dirty))
    assert_close(got, want, **FLOAT64)


def test_attention_agrees_with_every_oracle() -> None:
    check(functional.attention)


test_oracles_reject_a_changed_line = rejects_changes(
    check,
    f"{MODULE}.attention",
    ("else normalize(scores, mask)", "else normalize(scores, mask, dim=-2)"),
    ("else normalize(scores, mask)", "else scores.softmax(-1)"),
    ("else normalize(scores, mask)", "else scores.softmax(-1) * mask"),
    ("scores.masked_fill(~mask, 0.0)", "scores"),
    ("weights.to(wide) @ value.to(wide)", "weights.mT @ value.to(wide)"),
    ("without_padding(key, attn_mask), without", "key, without"),
    ("without_padding(value, attn_mask), attn", "value, attn"),
)


def test_a_mask_may_speak_of_each_key_of_each_query_or_of_all() -> None:
    query, key, value, _ = inputs()
    row = torch.tensor([True, True, False, True, False, False, True])
    full, _ = functional.attention(query, key, value, attn_mask=row.expand(B, 3, L, S))
    for mask in (row, row.expand(1, S), row.expand(L, S), row.expand(B, 1, 1, S)):
        assert_close(functional.attention(query, key, value, attn_mask=mask)[0], full, **FLOAT64)
    for nothing in (torch.tensor(False), torch.zeros(S, dtype=torch.bool)):
        for part in functional.attention(query, torch.nan * key, value, attn_mask=nothing):
            assert (part == 0).all()


def test_the_score_is_handed_in() -> None:
    query, key, value = torch.randn(L, E), torch.randn(S, EV), torch.randn(S, 2)
    weight = torch.randn(E, EV)
    score = partial(functional.general_score, weight=weight)
    output, weights = functional.attention(query, key, value, score=score)
    assert_close(weights, torch.softmax(query @ weight @ key.T, dim=-1))
    assert_close(output, weights @ value)


BARE, MASK = functional.attention.__wrapped__.__wrapped__, torch.ones(L, S, dtype=torch.bool)
test_bad_arguments_are_refused = refuses(
    (lambda q, k, v: BARE(q, k, v[:-1]), r"value: expected size 7 on axis -2, got shape \(6, 4\)"),
    (lambda q, k, v: BARE(q, k, v, attn_mask=MASK.float()), "attn_mask: expected a boolean mask"),
    (lambda q, k, v: BARE(q, k, v.long()), "value: expected a floating point"),
    (lambda q, k, v: BARE(q, k.to("meta"), v), "key: expected device cpu, got meta"),
    (lambda q, k, v: BARE(q, k, v.to("meta")), "value: expected device cpu, got meta"),
    (lambda q, k, v: BARE(q, k, v, attn_mask=MASK.to("meta")), "attn_mask: expected device"),
    (lambda q, k, v: by_numpy.attention(q, k, v[1:]), "value: expected one row per key"),
    given=lambda: (torch.zeros(L, E), torch.zeros(S, E), torch.zeros(S, EV)),
)


@pytest.mark.parametrize("shape", [(2, L, S), (2, 1, 1), (L, S - 1), (L, S + 1), (L + 1, S)])
def test_a_mask_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    rows, mask = (torch.zeros(L, E), torch.zeros(S, E), torch.zeros(S, EV)), torch.ones(shape) > 0
    refused(r"attn_mask: .* broadcasts to \(3, 7", BARE, *rows, attn_mask=mask)


@pytest.mark.parametrize("shape", [(S,), (1, S), (L, S), (B, 1, S), (B, L, S)])
def test_what_nobody_attends_to_may_be_nan(shape: tuple[int, ...]) -> None:
    query, key, value = torch.randn(B, L, E), torch.randn(B, S, E), torch.randn(B, S, EV)
    mask = torch.ones(shape, dtype=torch.bool)
    mask[..., 4:] = False
    clean = functional.attention(query, key, value, attn_mask=mask)
    key[:, 4:], value[:, 4:] = torch.nan, torch.inf
    leaves = [t.requires_grad_() for t in (query, key, value)]
    output, weights = functional.attention(*leaves, attn_mask=mask)
    assert_close((output, weights), clean)
    for grad in torch.autograd.grad((output**2).sum() + (weights**2).sum(), leaves):
        assert grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(2, 61, 64).to(dtype) for _ in range(3))
    wide = functional.attention(query.double(), key.double(), value.double())
    for ours, want in zip(functional.attention(query, key, value), wide, strict=True):
        assert ours.dtype == dtype
        # half a unit in the last place, and the float32 sums
        assert_close(ours.double(), want, rtol=0.51 * torch.finfo(dtype).eps, atol=1e-6)
    # scores of 4e6 are more than float16 holds: the weights are 0 and 1, not NaN
    query, key = torch.full((1, 4), 1000.0).to(dtype), torch.full((2, 4), 1000.0).to(dtype)
    key[1] = 500
    _, weights = functional.attention(query, key, key, score=functional.dot_score)
    assert_close(weights, torch.tensor([[1.0, 0.0]]).to(dtype))


def test_dtypes_may_differ_and_the_widest_is_the_outputs() -> None:
    query, key, value = torch.randn(L, E), torch.randn(S, E).half(), torch.randn(S, EV).half()
    output, weights = functional.attention(query, key, value)
    assert (output.dtype, weights.dtype) == (torch.float32, torch.float32)
    want, _ = functional.attention(query, key.float(), value.float())
    assert_close(output, want)
    output, weights = functional.attention(query.half(), key, value.double())
    assert (output.dtype, weights.dtype) == (torch.float64, torch.float16)


@pytest.mark.parametrize("batch", [1, 2, L, S])
def test_a_mask_of_two_axes_is_queries_by_keys_whatever_the_batch(batch: int) -> None:
    query, key = torch.randn(batch, L, E), torch.randn(batch, S, E)
    mask = torch.rand(L, S) < 0.6
    want = functional.attention(query, key, key, attn_mask=mask.expand(batch, L, S))
    assert_close(functional.attention(query, key, key, attn_mask=mask), want)
    heads = [rows[:, None] for rows in (query, key, key)]
    assert_close(functional.attention(*heads, attn_mask=mask)[0], want[0][:, None])
    module, several = nn.Attention(), nn.MultiHeadAttention(embed_dim=4, num_heads=2)
    assert_close(module(query, key, attn_mask=mask), want)
    x = torch.randn(batch, L, 4)
    causal = causal_mask(L, L)
    assert_close(several(x, x, x, causal), several(x, x, x, causal.expand(batch, 1, L, L)))


@pytest.mark.usefixtures("unchecked")
def test_a_padding_mask_of_two_axes_is_refused_with_the_way_to_write_it() -> None:
    query, key = torch.randn(4, 2, L, E), torch.randn(4, 2, S, E)
    mask = torch.ones(4, S, dtype=torch.bool)
    said, attend = r"write a padding mask as mask\[:, ", functional.attention
    refused(rf"{said}None, None, :\]", attend, query, key, key, attn_mask=mask)
    refused(rf"{said}None, :\]", attend, query[:, 0], key[:, 0], key[:, 0], attn_mask=mask)


def test_a_decode_step_over_shared_keys_with_a_mask_per_head_copies_no_key() -> None:
    query, key = torch.randn(1, 32, 1, 64), torch.randn(1, 1, 4096, 64)
    mask = torch.rand(1, 32, 1, 4096) < 0.9
    attend = partial(functional.attention, attn_mask=mask)
    assert student.peak_memory(attend, query, key, key) <= 3e6
    want, _ = functional.attention(query, *(key.expand(-1, 32, -1, -1),) * 2, attn_mask=mask)
    assert_close(attend(query, key, key)[0], want)
