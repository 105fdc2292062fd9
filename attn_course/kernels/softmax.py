"""A softmax that reads every entry once and writes every entry once.

Tiled: the rows, ``ROWS`` of them to a program. On chip: whole rows, so that maximum, exponentials,
sum and quotient touch no memory in between. Written with torch operations one by one, the same
softmax moves eight times the bytes of its input and not two.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_course._checks import check_axes, check_tensor
from attn_course.kernels._launch import block, check_launch

WIDEST = 1 << 16


@no_type_check
@triton.jit
def softmax_kernel(scores, weights, rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    column = tl.arange(0, WIDTH)[None, :]  # [1, WIDTH]
    inside = (row < rows) & (column < width)
    # entries beyond the edge are -inf: they change neither the maximum nor the sum
    x = tl.load(scores + row * width + column, mask=inside, other=-float("inf"))
    x = x.to(tl.float32)  # [ROWS, WIDTH]
    top = tl.max(x, axis=1, keep_dims=True)
    top = tl.where(top == -float("inf"), 0.0, top)  # a row of nothing but -inf
    parts = tl.exp(x - top)
    total = tl.sum(parts, axis=1, keep_dims=True)
    y = parts / tl.where(total == 0.0, 1.0, total)
    tl.store(weights + row * width + column, y.to(weights.dtype.element_ty), mask=inside)


@no_type_check
@triton.jit
def softmax_backward_kernel(
    weights, grad, into, rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]  # [ROWS, 1]
    column = tl.arange(0, WIDTH)[None, :]  # [1, WIDTH]
    inside = (row < rows) & (column < width)
    at = row * width + column
    y = tl.load(weights + at, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, axis=1, keep_dims=True))
    tl.store(into + at, dx.to(into.dtype.element_ty), mask=inside)


def _grid(x: Tensor) -> tuple[tuple[int], dict[str, int]]:
    rows, width = x.shape
    wide = block(width)
    tall = max(1, min(block(rows), 2048 // wide))
    return (triton.cdiv(rows, tall),), {"ROWS": tall, "WIDTH": wide, "num_warps": _warps(wide)}


def _warps(wide: int) -> int:
    return 4 if wide <= 2048 else 8 if wide <= 8192 else 16


@torch.library.custom_op("attn_course::softmax", mutates_args=())
def _softmax(scores: Tensor) -> Tensor:
    check_launch("attn_course.functional.softmax", scores=scores)
    scores = scores.contiguous()
    weights = torch.empty_like(scores)
    if scores.numel():
        grid, tile = _grid(scores)
        softmax_kernel[grid](scores, weights, *scores.shape, **tile)
    return weights


@torch.library.custom_op("attn_course::softmax_backward", mutates_args=())
def _softmax_backward(weights: Tensor, grad: Tensor) -> Tensor:
    check_launch("attn_course.functional.softmax", weights=weights, grad=grad)
    weights, grad = weights.contiguous(), grad.contiguous()
    into = torch.empty_like(weights)
    if weights.numel():
        grid, tile = _grid(weights)
        softmax_backward_kernel[grid](weights, grad, into, *weights.shape, **tile)
    return into


@_softmax.register_fake
def _(scores: Tensor) -> Tensor:
    return scores.new_empty(scores.shape)


@_softmax_backward.register_fake
def _(weights: Tensor, grad: Tensor) -> Tensor:
    return weights.new_empty(weights.shape)


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _gradient(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:
    (weights,) = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's stub lacks it
    found: Tensor = _softmax_backward(weights, grad)
    return found


_softmax.register_autograd(_gradient, setup_context=_keep)


def softmax(scores: Tensor) -> Tensor:
    r"""Softmax over the last axis, in one kernel.

    .. math:: y_i = \frac{e^{x_i - \max_j x_j}}{\sum_j e^{x_j - \max_j x_j}}

    Args:
        scores: At least one axis; the last one holds at most 65,536 entries.

    Returns:
        Weights of the same shape and dtype; sums are made in float32. A row of nothing but ``-inf``
        is 0, with gradient 0.

    Raises:
        ValueError: If a row does not fit on the chip, or the tensor lies where no kernel runs.

    Note:
        *Differs from torch*: the row of nothing but ``-inf``, which torch answers with NaN.
    """
    check_tensor("scores", scores)
    if scores.ndim == 0:
        check_axes("scores", scores, "N")
    if scores.shape[-1] > WIDEST:
        raise ValueError(
            f"scores: expected at most {WIDEST} entries in a row, got {scores.shape[-1]}"
        )
    if not scores.numel():
        return scores.clone()
    rows: Tensor = _softmax(scores.reshape(-1, scores.shape[-1]))
    return rows.reshape(scores.shape)
