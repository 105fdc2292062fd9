"""The band against NumPy, full attention under the dense mask, and its own memory."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from mutation import REJECTED, rejects_changes
from oracles import by_numpy, same_gradients, same_hessians, trained
from refusals import refuses
from tolerances import BFLOAT16_ROUNDING
from torch import Tensor
from torch.testing import assert_close

from attn_course.functional import (
    global_pattern,
    scaled_dot_product_attention,
    sliding_window_attention,
    window_pattern,
)
from attn_course.probes import student

FAST = "attn_course.functional._fast.window"


window = partial(sliding_window_attention, window_size=3)


def heads(batch: int, count: int, length: int, dim: int, dtype: torch.dtype) -> Tensor:
    """As a module makes them: not contiguous."""
    rows = torch.randn(batch, length, count, dim, dtype=dtype)
    return rows.transpose(1, 2)


def pattern_mask(
    batch: int, length: int, real: Tensor | None, global_mask: Tensor | None, **window: Any
) -> Tensor:
    """What a pair of positions may do, from the one definition of the pattern."""
    pattern = window_pattern(**window)
    if global_mask is not None:
        chosen = global_mask if real is None else global_mask & real
        pattern = pattern | global_pattern(chosen)
    mask = pattern.mask(length)
    if window["is_causal"]:
        mask = mask & torch.ones(length, length, dtype=torch.bool).tril()
    return mask if real is None else mask & real[:, None, None]


def case(draw: random.Random) -> dict[str, Any]:
    """Awkward sizes: N no multiple of anything, N below the window, window 1, padding only."""
    batch, count = draw.choice([1, 2, 3]), draw.choice([1, 2, 5])
    length, is_causal = draw.choice([1, 2, 7, 31, 67, 131, 197]), draw.random() < 0.5
    window = draw.choice([1, 3, 5, 17, 65, 301]) + (is_causal and draw.random() < 0.5)
    dilation = draw.choice([1, 2, 7, [draw.choice([1, 3, 4]) for _ in range(count)]])
    real = draw.choice([None, torch.rand(batch, length) < 0.6])
    if real is not None and draw.random() < 0.3:
        real[0] = False
    return {
        "sizes": (batch, count, length),
        "real": real,
        "global_mask": draw.choice([None, torch.rand(batch, length) < 0.1]),
        "window": {"window_size": window, "dilation": dilation, "is_causal": is_causal},
    }


def check(attention: Callable[..., Tensor], seeds: range) -> None:
    """Output and gradients are those of full attention in float64 under the dense mask."""
    for seed in seeds:
        torch.manual_seed(seed)
        given = case(random.Random(seed))
        batch, count, length = given["sizes"]
        real, chosen, window = given["real"], given["global_mask"], given["window"]
        rows = [heads(batch, count, length, dim, torch.float64) for dim in (3, 3, 5)]
        leaves = [one.requires_grad_() for one in rows]
        padding = None if real is None else real[:, None, None]
        got = attention(*leaves, padding, global_mask=chosen, **window)
        mask = pattern_mask(batch, length, real, chosen, **window)
        want = scaled_dot_product_attention(*leaves, mask.expand(batch, count, -1, -1))
        assert_close(got, want)
        same_gradients(got, want, leaves)


@pytest.mark.parametrize("form", [sliding_window_attention, sliding_window_attention.__wrapped__])
def test_output_and_gradients_are_those_of_full_attention_under_a_mask(
    form: Callable[..., Tensor],
) -> None:
    check(form, range(40))


test_a_wrong_band_is_noticed = rejects_changes(
    partial(check, seeds=range(40)),
    f"{FAST}.sliding_window_attention",
    ("outside.tril(-1)", "outside.tril()"),
    ("outside.triu(left + right + 1)", "outside.triu(left + right)"),
    ("start - self.left", "start - self.right"),
    ("keys.start - queries.start + window.left", "window.left"),
    ("counts[:, above] ==", "counts[:, above] !="),
    ("empty & (since", "empty | (since"),
    ("window.since[:, None] > at", "window.since[:, None] >= at"),
    ("baddbmm_(s.mT, q)", "baddbmm_(s.mT, q, beta=0)"),
    ("return found + outer[0]", "return outer[0]"),
    ("weights = weights.masked_fill(", "weights.masked_fill("),
    ("hidden = chosen | ~real", "hidden = ~real"),
    ("at.places[:, None] - start", "at.places[:, None]"),
    ("filler=True", "filler=False"),
    ("order.index(head)", "head"),
    error=(*REJECTED, TypeError),
)


def test_the_band_is_what_numpy_walks() -> None:
    for seed in range(6):
        torch.manual_seed(seed)
        draw = random.Random(seed)
        length, causal = draw.choice([1, 5, 13]), bool(seed % 2)
        rows = [heads(2, 3, length, dim, torch.float64) for dim in (3, 3, 2)]
        options: dict[str, Any] = {
            "window_size": draw.choice([1, 3, 7]),
            "dilation": draw.choice([1, 2, [1, 2, 4]]),
            "is_causal": causal,
            "symmetric": seed % 3 != 0,
        }
        real, chosen = torch.rand(2, 1, 1, length) < 0.7, torch.rand(2, length) < 0.3
        options |= {"global_mask": chosen}
        got = sliding_window_attention(*rows, real, **options)
        assert_close(got, by_numpy.sliding_window_attention(*rows, real, **options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_are_taken_in_float32_whatever_the_inputs(dtype: torch.dtype) -> None:
    rows = [heads(2, 3, 131, 8, torch.float64).to(dtype) for _ in range(3)]
    options: dict[str, Any] = {"window_size": 33, "dilation": [1, 1, 3]}
    got = sliding_window_attention(*rows, **options)
    wide = [one.double().requires_grad_() for one in rows]
    want = sliding_window_attention(*wide, **options)
    assert got.dtype == dtype
    tolerance = {torch.float32: {}, torch.bfloat16: BFLOAT16_ROUNDING}.get(
        dtype, {"rtol": 2**-11, "atol": 1e-6}
    )
    assert_close(got.double(), want.detach(), **(tolerance or {"rtol": 1.3e-6, "atol": 1e-5}))
    leaves = [one.detach().requires_grad_() for one in rows]
    upstream = torch.randn(want.shape).to(dtype)
    found = torch.autograd.grad(sliding_window_attention(*leaves, **options), leaves, upstream)
    exact = torch.autograd.grad(want, wide, upstream.double())
    for mine, theirs in zip(found, exact, strict=True):
        scale = float(theirs.abs().max())
        rounding = 4 * torch.finfo(dtype).eps
        assert_close(mine.double(), theirs, rtol=rounding, atol=max(1e-6, rounding * scale))


def test_grouped_heads_share_keys() -> None:
    query, key, value = (heads(2, n, 29, 4, torch.float64) for n in (6, 2, 2))
    got = sliding_window_attention(query, key, value, window_size=5, enable_gqa=True)
    mask = window_pattern(window_size=5).mask(29)
    want = scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
    assert_close(got, want)


def test_padding_that_holds_nan_does_not_matter() -> None:
    real = torch.tensor([[True] * 11 + [False] * 6, [True] * 17])
    rows = [heads(2, 2, 17, 4, torch.float64) for _ in range(3)]
    spoilt = [rows[0], *(one.masked_fill(~real[:, None, :, None], torch.nan) for one in rows[1:])]
    leaves = [one.detach().requires_grad_() for one in spoilt]
    got = sliding_window_attention(*leaves, real[:, None, None], window_size=5)
    assert_close(got, sliding_window_attention(*rows, real[:, None, None], window_size=5))
    assert not any(grad.isnan().any() for grad in torch.autograd.grad(got.sum(), leaves))


def test_workspace_does_not_grow_with_the_length() -> None:
    extra = []
    for length in (2048, 4096):
        rows = [torch.randn(1, 8, length, 64) for _ in range(3)]
        peak = student.peak_memory(sliding_window_attention, *rows, window_size=257)
        extra.append(peak - rows[0].nbytes)
    assert extra[0] <= rows[0].nbytes / 2 / 7  # scores, queries and the mean of one block
    assert extra[1] <= 1.05 * extra[0] + 2**14


def test_training_holds_neither_all_pairs_nor_the_weights_of_the_band() -> None:
    length, window = 2048, 257
    train = partial(trained, partial(sliding_window_attention, window_size=window))
    rows = [torch.randn(1, 2, length, 16) for _ in range(3)]
    assert student.peak_memory(train, *rows) < 4 * 2 * length * window / 3  # a third of the weights


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True, "window_size": 2},
        {"dilation": [1, 2]},
        {"global_mask": torch.tensor([[True, False, False, False, True]])},
        {
            "global_mask": torch.tensor([[False, True, False, False, False]]),
            "symmetric": False,
            "is_causal": True,
            "attn_mask": torch.tensor([True, True, True, True, False])[None, None, None],
        },
    ],
)
def test_second_derivatives_are_those_of_the_equation(options: dict[str, Any]) -> None:
    def attend(function: Any, x: Tensor) -> Tensor:
        # one tensor is query and value, and the key is made of it
        return function(x, x.tanh(), x, **({"window_size": 3} | options)).square().sum()

    x = torch.randn(1, 2, 5, 3, dtype=torch.float64)
    equation = partial(attend, sliding_window_attention.__wrapped__)
    same_hessians(partial(attend, sliding_window_attention), equation, x)


test_bad_input_is_refused_by_name = refuses(
    (partial(window, window_size=4), "window_size: expected an odd positive number, got 4"),
    (partial(window, window_size=0, is_causal=True), "window_size: .* a positive number, got 0"),
    (partial(window, dilation=0), "dilation: expected positive numbers, got 0"),
    (partial(window, dilation=[1, 2, 3]), "dilation: expected one for each of 2 heads"),
    (partial(window, dropout_p=0.1), "dropout_p: expected 0"),
    (partial(window, global_mask=torch.ones(2, 4) > 0), "global_mask: exp"),
    (partial(window, global_mask=torch.ones(2, 5)), "global_mask: expected a boolean"),
    (partial(window, attn_mask=torch.ones(5, 5) > 0), "attn_mask: expect"),
    (lambda q, k, v: window(q, k[:, :, :4], v), "key: expected size 5 on axis 2"),
    given=lambda: torch.randn(3, 2, 2, 5, 3),
)
