"""Layer norm, forward and backward, with two reads of memory where torch operations need many.

Tiled: the rows, ``ROWS`` of them to a program. On chip: whole rows; mean and variance never leave,
except one number each per row, which the backward pass reads again. The gradients of weight and
bias are sums over all rows: each program sums its own, and the few sums are added afterwards.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_course._checks import check_axes, check_size, check_tensor
from attn_course.kernels._launch import block, check_launch

WIDEST = 1 << 14
PROGRAMS = 256  # of the backward pass: as many partial sums of weight and bias


@no_type_check
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, rows, width, eps,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    column = tl.arange(0, WIDTH)  # [WIDTH]
    inside = (row < rows)[:, None] & (column < width)[None, :]
    at = row[:, None] * width + column[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)  # [ROWS, WIDTH]
    mean = tl.sum(x, axis=1) / width
    # places beyond the edge hold 0 and not the mean: they must not count in the variance
    centred = tl.where(inside, x - mean[:, None], 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=1) / width + eps)
    weight = tl.load(weight_ptr + column, mask=column < width, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=column < width, other=0.0).to(tl.float32)
    y = centred * rstd[:, None] * weight[None, :] + bias[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + row, mean, mask=row < rows)
    tl.store(rstd_ptr + row, rstd, mask=row < rows)


@no_type_check
@triton.jit
def layer_norm_backward_kernel(
    x_ptr, weight_ptr, mean_ptr, rstd_ptr, dy_ptr, dx_ptr, dweight_ptr, dbias_ptr, rows, width,
    each, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)  # [WIDTH]
    weight = tl.load(weight_ptr + column, mask=column < width, other=0.0).to(tl.float32)
    dweight = tl.zeros([WIDTH], tl.float32)
    dbias = tl.zeros([WIDTH], tl.float32)
    for start in range(0, each, ROWS):
        row = program * each + start + tl.arange(0, ROWS)  # [ROWS]
        inside = (row < rows)[:, None] & (column < width)[None, :]
        at = row[:, None] * width + column[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
        normed = tl.where(inside, (x - mean[:, None]) * rstd[:, None], 0.0)
        push = dy * weight[None, :]
        along = tl.sum(push * normed, axis=1) / width
        level = tl.sum(push, axis=1) / width
        dx = (push - normed * along[:, None] - level[:, None]) * rstd[:, None]
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += tl.sum(dy * normed, axis=0)
        dbias += tl.sum(dy, axis=0)
    tl.store(dweight_ptr + program * width + column, dweight, mask=column < width)
    tl.store(dbias_ptr + program * width + column, dbias, mask=column < width)


def _tile(rows: int, width: int) -> dict[str, int]:
    wide = block(width)
    tall = max(1, min(block(rows), 1024 // wide))
    return {"ROWS": tall, "WIDTH": wide, "num_warps": 4 if wide <= 2048 else 8}


@torch.library.custom_op("attn_course::layer_norm", mutates_args=())
def _layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    check_launch("attn_course.functional.layer_norm", x=x, weight=weight, bias=bias)
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    y = torch.empty_like(x)
    mean, rstd = (x.new_empty(len(x), dtype=torch.float32) for _ in range(2))
    if x.numel():
        tile = _tile(*x.shape)
        grid = (triton.cdiv(len(x), tile["ROWS"]),)
        layer_norm_kernel[grid](x, weight, bias, y, mean, rstd, *x.shape, eps, **tile)
    return y, mean, rstd


@torch.library.custom_op("attn_course::layer_norm_backward", mutates_args=())
def _layer_norm_backward(
    x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    check_launch("attn_course.functional.layer_norm", x=x, weight=weight, grad=grad)
    x, weight, grad = x.contiguous(), weight.contiguous(), grad.contiguous()
    dx = torch.empty_like(x)
    tile = _tile(*x.shape)
    programs = max(1, min(PROGRAMS, triton.cdiv(len(x), tile["ROWS"])))
    each = triton.cdiv(triton.cdiv(len(x), programs), tile["ROWS"]) * tile["ROWS"]
    dweight, dbias = (
        torch.zeros(programs, x.shape[1], device=x.device, dtype=torch.float32) for _ in range(2)
    )
    if x.numel():
        layer_norm_backward_kernel[(programs,)](
            x, weight, mean, rstd, grad, dx, dweight, dbias, *x.shape, each, **tile
        )
    return dx, dweight.sum(0).to(weight.dtype), dbias.sum(0).to(weight.dtype)


@_layer_norm.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    mean, rstd = (x.new_empty(x.shape[:1], dtype=torch.float32) for _ in range(2))
    return x.new_empty(x.shape), mean, rstd


@_layer_norm_backward.register_fake
def _(
    x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape)


def _keep(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[Tensor, Tensor, Tensor, float],
    output: tuple[Tensor, Tensor, Tensor],
) -> None:
    ctx.save_for_backward(*inputs[:2], *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _gradient(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor, *_: Tensor
) -> tuple[Tensor, Tensor, Tensor, None]:
    saved = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's stub lacks it
    dx, dweight, dbias = _layer_norm_backward(*saved, grad)
    return dx, dweight, dbias, None


_layer_norm.register_autograd(_gradient, setup_context=_keep)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5) -> Tensor:
    r"""Layer norm over the last axis, in one kernel.

    .. math:: y = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}} \odot w + b

    Ba et al. (2016); :math:`\mu` and :math:`\sigma^2` are mean and biased variance of a row.

    Args:
        x: Rows of at most 16,384 entries, with any leading axes.
        weight: Factor for each entry of a row.
        bias: Summand for each entry of a row.
        eps: Keeps the root away from 0.

    Returns:
        Shape and dtype of ``x``; sums are made in float32.

    Raises:
        ValueError: If shapes do not fit, a row does not fit on the chip, or the tensors lie where
            no kernel runs.
    """
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        check_tensor(name, tensor)
    if x.ndim == 0:
        check_axes("x", x, "D")
    if not 1 <= x.shape[-1] <= WIDEST:
        raise ValueError(f"x: expected 1 to {WIDEST} entries in a row, got {x.shape[-1]}")
    check_size("weight", weight, 0, x.shape[-1])
    check_size("bias", bias, 0, x.shape[-1])
    y, _, _ = _layer_norm(x.reshape(-1, x.shape[-1]), weight, bias, eps)
    rows: Tensor = y
    return rows.reshape(x.shape)
