"""FlashAttention: the interpreter against float64, forward and gradients, at awkward sizes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_mutation import DEVICE, accepts_ours_alone
from refusals import refused
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course import kernels, masks
from attn_course.functional import attention_with_lse, merge_attention
from attn_course.functional import scaled_dot_product_attention as plain_attention
from attn_course.nn import MultiHeadAttention


def draw(
    B: int, H: int, heads: int, L: int, S: int, E: int, Ev: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = (B, H, L, E), (B, heads, S, E), (B, heads, S, Ev)
    query, key, value = (torch.randn(*size, device=DEVICE).to(dtype) for size in sizes)
    return query, key, value


def right(
    query: Tensor, key: Tensor, value: Tensor, window_size: int | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp in float64, with every score in memory."""
    is_causal = options.pop("is_causal", False)
    L, S = query.shape[-2], key.shape[-2]
    mask = None
    if window_size is not None:
        mask = masks.window_mask(L, S, window_size=window_size, causal=is_causal, device=DEVICE)
    elif is_causal:
        mask = masks.causal_mask(L, S, device=DEVICE)
    return attention_with_lse(query, key, value, mask, enable_gqa=True, **options)


def check(
    ours: Callable[..., tuple[Tensor, Tensor]],
    inputs: tuple[Tensor, Tensor, Tensor],
    *,
    rtol: float = 1e-5,
    atol: float = 2e-5,
    backward: bool = True,
    **options: Any,
) -> None:
    """Output, log-sum-exp and all gradients; the gradient of the log-sum-exp takes part."""
    asked = [x.detach().clone().requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    output, lse = ours(*asked, enable_gqa=True, **options)
    expected, expected_lse = right(*exact, **options)
    assert output.dtype == inputs[0].dtype
    assert lse.dtype == torch.float32
    assert_close(output, expected.to(output.dtype), rtol=rtol, atol=atol)
    assert_close(lse, expected_lse.float(), rtol=rtol, atol=atol)
    if not backward:
        return
    finite = expected_lse.isfinite()
    push, push_lse = torch.randn_like(output), torch.randn_like(lse)
    total = (output * push).sum() + (lse * push_lse)[finite].sum()
    wanted = (expected * push).sum() + (expected_lse * push_lse)[finite].sum()
    for name, found, want in zip(
        ("query", "key", "value"),
        torch.autograd.grad(total, asked),
        torch.autograd.grad(wanted, exact),
        strict=True,
    ):
        said = f"gradient of {name}: {{}}".format
        assert_close(found, want.to(found.dtype), rtol=rtol, atol=atol, msg=said)


SIZES = {
    "one": (1, 1, 1, 1, 1, 16, 16), "primes": (2, 3, 3, 37, 41, 17, 19),
    "fewer keys than queries": (1, 2, 2, 71, 5, 16, 32), "whole tiles": (1, 1, 1, 64, 64, 32, 32),
    "grouped": (2, 4, 2, 33, 37, 16, 16), "one key head": (1, 5, 1, 7, 67, 23, 16),
}  # fmt: skip
PATTERNS: dict[str, dict[str, Any]] = {
    "full": {}, "causal": {"is_causal": True}, "window": {"is_causal": True, "window_size": 19},
    "both sides": {"window_size": 13},
}  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("sizes", SIZES)
def test_output_sums_and_gradients_are_those_of_float64(sizes: str, pattern: str) -> None:
    check(kernels.flash_attention_with_lse, draw(*SIZES[sizes]), **PATTERNS[pattern])


@pytest.mark.parametrize("window_size", [1, 3, 31, 33, 65, 1001])
@pytest.mark.parametrize("is_causal", [True, False])
def test_windows_of_any_width_see_what_the_mask_says(window_size: int, is_causal: bool) -> None:
    options = {"window_size": window_size, "is_causal": is_causal}
    check(kernels.flash_attention_with_lse, draw(1, 1, 1, 131, 97, 16, 16), **options)


@pytest.mark.parametrize("head_dim", [64, 80, 128, 256])
def test_head_sizes_up_to_256(head_dim: int) -> None:
    inputs = draw(1, 1, 1, 33, 35, head_dim, head_dim)
    check(kernels.flash_attention_with_lse, inputs, is_causal=True)


@pytest.mark.parametrize("scale", [0.0, 0.3, -0.7, 3.0])
def test_any_scale(scale: float) -> None:
    inputs = draw(1, 2, 2, 37, 41, 16, 16)
    check(kernels.flash_attention_with_lse, inputs, scale=scale, rtol=1e-4, atol=1e-4)


def test_large_scores_of_both_signs_do_not_overflow() -> None:
    query, key, value = draw(1, 1, 1, 37, 71, 16, 16)
    inputs = 30 * query, 30 * key - 20, value
    check(kernels.flash_attention_with_lse, inputs, backward=False, rtol=1e-3, atol=1e-3)
    output, lse = kernels.flash_attention_with_lse(-1000 * query.abs(), key.abs() + 1, value)
    assert output.isfinite().all()
    assert lse.max() < -1000


def test_half_precision_is_as_good_as_rounding_the_weights_once() -> None:
    inputs = draw(1, 2, 1, 65, 67, 32, 32, torch.float16)
    # weights are rounded to float16 before they meet the values: 2^-11 of the largest value
    check(kernels.flash_attention_with_lse, inputs, is_causal=True, rtol=2e-3, atol=4e-3)


def test_heads_that_lie_side_by_side_are_read_in_place() -> None:
    rows = torch.randn(2, 37, 3, 16, device=DEVICE)
    query, key, value = (rows * n for n in (1, 2, 3))
    inputs = tuple(x.transpose(1, 2) for x in (query, key, value))  # (B, H, L, E), as modules do
    expected, _ = right(*inputs)
    assert_close(kernels.flash_attention(*inputs), expected, rtol=1e-5, atol=2e-5)
    turned = tuple(x.mT.contiguous().mT for x in inputs)  # the last axis is not in one piece
    assert_close(kernels.flash_attention(*turned), expected, rtol=1e-5, atol=2e-5)


def test_queries_without_keys_are_zero_forward_and_backward() -> None:
    inputs = [x.requires_grad_() for x in draw(1, 1, 1, 64, 5, 16, 16)]
    output, lse = kernels.flash_attention_with_lse(*inputs, is_causal=True, window_size=3)
    assert torch.equal(output[..., 7:, :], torch.zeros_like(output[..., 7:, :]))
    assert (lse[..., 7:] == -torch.inf).all()
    output.sum().backward()
    assert torch.equal(inputs[0].grad[..., 7:, :], torch.zeros_like(output[..., 7:, :]))
    nothing = draw(1, 2, 2, 3, 0, 16, 16)
    assert torch.equal(kernels.flash_attention(*nothing), torch.zeros(1, 2, 3, 16, device=DEVICE))


def test_blocks_of_keys_join_by_their_log_sum_exps() -> None:
    query, key, value = draw(1, 2, 2, 37, 71, 16, 16)
    parts = [
        kernels.flash_attention_with_lse(query, key[..., part, :], value[..., part, :])
        for part in (slice(0, 29), slice(29, 71))
    ]
    joined, _ = merge_attention(*zip(*parts, strict=True))
    assert_close(joined, right(query, key, value)[0], rtol=1e-5, atol=2e-5)


def test_it_is_an_attention_function_of_a_module() -> None:
    module = MultiHeadAttention(embed_dim=32, num_heads=2, attn_fn=kernels.flash_attention)
    plain = MultiHeadAttention(embed_dim=32, num_heads=2)
    plain.load_state_dict(module.state_dict())
    x = torch.randn(2, 37, 32)
    for name, one, other in zip(
        ("output", *dict(module.named_parameters())),
        [module(x, is_causal=True), *_gradients(module, x)],
        [plain(x, is_causal=True), *_gradients(plain, x)],
        strict=True,
    ):
        assert_close(one, other, rtol=1e-4, atol=1e-4, msg=f"{name}: {{}}".format)


def _gradients(module: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(module(x, is_causal=True).square().sum(), list(module.parameters()))


def test_autocast_sets_the_dtype() -> None:
    inputs = draw(1, 1, 1, 17, 19, 16, 16)
    with torch.autocast(DEVICE, torch.float16):
        output = kernels.flash_attention(*inputs)
    assert output.dtype == torch.float16
    assert_close(output.float(), right(*inputs)[0], rtol=1e-2, atol=1e-2)


def test_what_it_cannot_do_is_refused_by_name() -> None:
    query, key, value = draw(1, 4, 2, 5, 7, 16, 16)
    attention, same = kernels.flash_attention, (query,) * 3
    refused("attn_mask: expected None", attention, *same, torch.ones(5, 5).bool())
    refused(r"dropout_p: expected 0.* got 0\.1", attention, *same, dropout_p=0.1)
    refused("key: expected 4 heads, got 2", attention, query, key, value)
    refused("window_size: expected an odd positive number, got 4", attention, *same, window_size=4)
    wide = draw(1, 1, 1, 2, 2, 257, 16)
    refused("query: expected a head size from 1 to 256, got 257", attention, *wide)
    key = key.repeat(1, 2, 1, 1)
    refused(r"value: expected shape \(1, 4, 7, 16\)", attention, query, key, query)
    refused(r"query: expected axes \(B H L E\)", attention, query[0], query[0], query[0])


# name: (the line, the same line with a mistake in it)
MUTANTS = {
    "no running maximum": ("new = tl.maximum(top, tl.max(scores, axis=1) * factor)",
        "new = tl.max(scores, axis=1) * factor"),
    "the output is not rescaled": ("output = output * rescale[:, None]", "output = output * 1.0"),
    "the sum is not rescaled": ("total = total * rescale", "total = total"),
    "the tail is not masked": (
        "allowed = (away <= right) & (-away <= left) & (column < S)[None, :]\n"
        '            scores = tl.where(allowed, scores * factor, -float("inf"))',
        "allowed = (away <= right) & (-away <= left)\n"
        '            scores = tl.where(allowed, scores * factor, -float("inf"))',
    ),
    "the tail is dropped": ("end = tl.minimum(tl.maximum(last + right + 1, 0), S)",
        "end = tl.minimum(tl.maximum(last + right + 1, 0), S) // BLOCK_S * BLOCK_S"),
    "one key of the future": ("away <= right) & (-away", "away <= right + 1) & (-away"),
    "tiles on the diagonal need no mask": ("(tl.maximum(first + right", "(tl.maximum(last + right"),
    "causal is forgotten backwards": ("((away <= right) & (-away <= left),", "(away - away == 0,"),
    "D is missing": ("weights * (dweights - delta[None, :])", "weights * dweights"),
    "D is missing for the queries": ("weights * (dweights - delta[:, None])", "weights * dweights"),
    "no scale in the backward": ("(dquery * scale)", "(dquery)"),
    "no scale for the keys": ("(dkey * scale)", "(dkey)"),
    "the sum in base 2": (" / 1.4426950408889634)\n    place", ")\n    place"),
    "only the first head of a group": ("range(0, GROUP)", "range(0, 1)"),
    "every head has keys of its own": ("kv_head = head // GROUP", "kv_head = head % GROUP"),
    "the window is one too wide": ("return (window_size - 1, 0)", "return (window_size, 0)"),
    "the gradient of the sum is lost": (
        "delta -= tl.load(lse_grad_ptr + place, mask=row < L, other=0.0)", "delta -= 0.0"),
}  # fmt: skip


def _oracle(attention: Callable[..., tuple[Tensor, Tensor]]) -> None:
    query, key, value = draw(1, 4, 2, 41, 39, 16, 16)
    check(attention, (3 * query, key, value), is_causal=True, rtol=1e-4, atol=1e-4)
    check(attention, (query, key[:, :, :35], value[:, :, :35]), is_causal=True, window_size=7)
    # all that counts lies in the first tile, far above the second
    steep = torch.full((1, 1, 64, 16), 20.0, device=DEVICE)
    steep[:, :, 32:] = -20.0
    key, value = steep, torch.randn_like(steep)
    check(attention, (torch.ones_like(key[:, :, :1]), key, value), backward=False)


test_the_oracle_accepts_our_kernel_alone = accepts_ours_alone(
    _oracle, MUTANTS, "flash_attention", "flash_attention_with_lse"
)


def test_float32_is_plain_attention_to_rounding() -> None:
    inputs = draw(1, 2, 2, 37, 41, 16, 16)
    assert_close(kernels.flash_attention(*inputs), plain_attention(*inputs))
