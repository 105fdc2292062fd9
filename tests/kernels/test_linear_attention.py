"""Causal linear attention in chunks: the interpreter against float64, forward and gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from kernel_mutation import DEVICE, accepts_ours_alone
from oracles import agrees_with_float64
from refusals import refused
from torch import Tensor
from torch.testing import assert_close

from attn_course import kernels
from attn_course.functional import elu_feature_map, linear_attention


def draw(
    B: int, H: int, L: int, F: int, Ev: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = (B, H, L, F), (B, H, L, F), (B, H, L, Ev)
    query, key, value = (torch.randn(*size, device=DEVICE) for size in sizes)
    return elu_feature_map(query).to(dtype), elu_feature_map(key).to(dtype), value.to(dtype)


def check(
    ours: Callable[..., Tensor],
    inputs: tuple[Tensor, Tensor, Tensor],
    *,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    **options: Any,
) -> None:
    right = partial(linear_attention, feature_map=torch.positive, is_causal=True)
    agrees_with_float64(partial(ours, **options), right, *inputs, rtol=rtol, atol=atol)


SIZES = {
    "one": (1, 1, 1, 1, 1), "less than a chunk": (1, 2, 13, 16, 16), "primes": (2, 3, 37, 17, 19),
    "a chunk and one": (1, 1, 65, 16, 32), "whole chunks": (1, 2, 64, 32, 16),
    "wide features": (1, 1, 41, 67, 5), "wide values": (1, 1, 41, 3, 71),
}  # fmt: skip


@pytest.mark.parametrize("chunk_size", [16, 64])
@pytest.mark.parametrize("sizes", SIZES)
def test_output_and_gradients_are_those_of_float64(sizes: str, chunk_size: int) -> None:
    check(kernels.causal_linear_attention, draw(*SIZES[sizes]), chunk_size=chunk_size)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_head_sizes_up_to_256(head_dim: int) -> None:
    check(kernels.causal_linear_attention, draw(1, 1, 35, head_dim, head_dim), chunk_size=16)


def test_half_precision_is_as_good_as_its_inputs() -> None:
    inputs = draw(1, 2, 83, 32, 32, torch.float16)
    # the output is rounded to float16 once; gradients of sums over 83 rows are larger than one
    check(kernels.causal_linear_attention, inputs, chunk_size=32, rtol=2e-3, atol=2e-3)


def test_sums_leave_the_range_of_half_precision_without_harm() -> None:
    query, key, _ = draw(1, 1, 61, 16, 16, torch.float16)
    value = torch.full((1, 1, 61, 16), 300.0, dtype=torch.float16, device=DEVICE)
    output = kernels.causal_linear_attention(20 * query, 20 * key, value, chunk_size=16)
    assert_close(output, value, rtol=2e-3, atol=0.0)  # a mean of equal values


def test_a_row_without_weights_is_zero_forward_and_backward() -> None:
    query, key, value = draw(1, 1, 37, 16, 16)
    key[:, :, :21] = 0.0
    inputs = query, key, value
    check(kernels.causal_linear_attention, inputs, chunk_size=16)
    output = kernels.causal_linear_attention(*inputs, chunk_size=16)
    assert torch.equal(output[:, :, :21], torch.zeros_like(output[:, :, :21]))


def test_the_future_does_not_count() -> None:
    query, key, value = draw(1, 1, 71, 16, 16)
    before = kernels.causal_linear_attention(query, key, value, chunk_size=16)
    key[:, :, 40:], value[:, :, 40:] = 7.0, -50.0
    after = kernels.causal_linear_attention(query, key, value, chunk_size=16)
    assert torch.equal(before[:, :, :40], after[:, :, :40])
    assert not torch.allclose(before[:, :, 40:], after[:, :, 40:])


def test_heads_that_lie_side_by_side_are_read_in_place() -> None:
    rows = elu_feature_map(torch.randn(2, 37, 3, 16, device=DEVICE))
    inputs = tuple((rows * n).transpose(1, 2) for n in (1, 2, 3))
    expected = linear_attention(*inputs, feature_map=torch.positive, is_causal=True)
    found = kernels.causal_linear_attention(*inputs)
    assert_close(found, expected, rtol=1e-5, atol=1e-5)
    turned = tuple(x.mT.contiguous().mT for x in inputs)
    assert_close(kernels.causal_linear_attention(*turned), expected, rtol=1e-5, atol=1e-5)


def test_nothing_in_nothing_out() -> None:
    inputs = tuple(x.requires_grad_() for x in draw(1, 2, 0, 16, 16))
    output = kernels.causal_linear_attention(*inputs)
    assert output.shape == (1, 2, 0, 16)
    output.sum().backward()
    assert inputs[0].grad is not None


def test_what_it_cannot_do_is_refused_by_name() -> None:
    query, key, value = draw(1, 2, 5, 16, 16)
    attention = kernels.causal_linear_attention
    message, wide = "chunk_size: expected 16, 32, 64 or 128, got 24", draw(1, 2, 5, 1, 257)[2]
    refused(message, attention, query, key, value, chunk_size=24)
    message = r"key: expected shape \(1, 2, 5, 16\), got \(1, 2, 4"
    refused(message, attention, query, key[:, :, :4], value)
    refused("value: expected a head size from 1 to 256, got 257", attention, query, key, wide)
    refused(r"query: expected axes \(B H L F\)", attention, query[0], key[0], value[0])


# name: (the line, the same line with a mistake in it)
MUTANTS = {
    "the future counts": ("tl.where(row[:, None] >= row[None, :],", "tl.where(row[:, None] > -1,"),
    "a query misses its own key": ("row[:, None] >= row[None, :]", "row[:, None] > row[None, :]"),
    "a key misses its own query": ("row[:, None] <= row[None, :]", "row[:, None] < row[None, :]"),
    "only the last chunk is in the state": ("), y.to(KIND), state, input", "), y.to(KIND), input"),
    "the state is forgotten": ("tl.dot(a.to(KIND), state", "tl.dot(a.to(KIND) * 0, state"),
    "sums behind run forwards": ("chunks - 1 - step if BACKWARDS", "step if BACKWARDS"),
    "only what stands in the chunk is counted": (
        "total += tl.sum(a.to(tl.float32) * before[None, :], axis=1)", "total += 0.0"),
    "D is missing for the queries": ("table = table - mean[:, None]", "table = table"),
    "D is missing for the keys": ("(table - mean[None, :]) * inverse", "table * inverse"),
    "D is missing in the sums before": ("(output - mean[:, None] * before", "(output - 0 * before"),
    "D is missing in the sums behind": ("output = output - behind", "output = output - 0 * behind"),
    "the values' gradient is not divided": ("table = table * inverse[None, :]", "table = table"),
    "the sums behind are not divided": ("x.to(tl.float32) * inverse[:, None]", "x.to(tl.float32)"),
    "the state lies the wrong way": ("(1, ev) if result in (QUERY", "(1, ev) if result in (VALUE"),
    "an empty row divides": (
        "tl.where(total == 0.0, 0.0, 1.0 / tl.where(total == 0.0, 1.0, total))", "1.0 / total"),
    "the first strip alone": ("range(0, INNER, BLOCK_INNER)", "range(0, BLOCK_INNER, BLOCK_INNER)"),
}  # fmt: skip


def _oracle(attention: Callable[..., Tensor]) -> None:
    query, key, value = draw(1, 2, 53, 37, 41)
    key[:, 1, :3] = 0.0
    check(attention, (query, key, value), chunk_size=16)


test_the_oracle_accepts_our_kernel_alone = accepts_ours_alone(
    _oracle, MUTANTS, "linear_attention", "causal_linear_attention"
)
