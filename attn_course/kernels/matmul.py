"""A matrix product in tiles.

Tiled: the result, ``BLOCK_M`` × ``BLOCK_N`` to a program. On chip: the sum of that tile, in
float32, and one ``BLOCK_K`` wide strip of each factor at a time. An entry of the factors is read
once per tile that needs it, not once per product: with tiles of 128, 128 times less often.
Programs that run at the same time take neighbouring tiles, ``GROUP`` rows of tiles together, and
find the factors of their neighbours in the L2 cache.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_course._checks import check_axes, check_size
from attn_course.kernels._launch import INTERPRETED, check_launch, precision


@no_type_check
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row, a_column, b_row, b_column, c_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = program // (GROUP * across) * GROUP
    tall = tl.minimum(down - first, GROUP)
    tile_m = first + program % (GROUP * across) % tall
    tile_n = program % (GROUP * across) // tall

    m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    n = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    k = tl.arange(0, BLOCK_K).to(tl.int64)  # [BLOCK_K]
    a_at = a_ptr + m[:, None] * a_row + k[None, :] * a_column
    b_at = b_ptr + k[:, None] * b_row + n[None, :] * b_column
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        a = tl.load(a_at, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        b = tl.load(b_at, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)  # [BLOCK_M, BLOCK_N]
        a_at += BLOCK_K * a_column
        b_at += BLOCK_K * b_row
    c_at = c_ptr + m[:, None] * c_row + n[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c_at, total.to(c_ptr.dtype.element_ty), mask=inside)


def tiles(dtype: torch.dtype) -> dict[str, int]:
    """Sizes of a tile, warps and pipeline stages: the interpreter takes small ones."""
    if INTERPRETED:
        return {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16, "GROUP": 2}
    if dtype == torch.float32:
        sizes = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 8}
        return {**sizes, "num_warps": 4, "num_stages": 3}
    sizes = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP": 8}
    return {**sizes, "num_warps": 8, "num_stages": 3}


@torch.library.custom_op("attn_course::matmul", mutates_args=())
def _matmul(a: Tensor, b: Tensor) -> Tensor:
    check_launch("torch.matmul", a=a, b=b)
    M, K = a.shape
    N = b.shape[1]
    c = a.new_empty(M, N)
    if c.numel():
        tile = tiles(a.dtype)
        grid = (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)
        matmul_kernel[grid](
            a, b, c, M, N, K, *a.stride(), *b.stride(), N, PRECISION=precision(a.dtype), **tile
        )
    return c


@_matmul.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


def _keep(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, Tensor], output: Tensor
) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    a, b = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's stub lacks it
    for_a, for_b = ctx.needs_input_grad  # type: ignore[attr-defined]
    return _matmul(grad, b.mT) if for_a else None, _matmul(a.mT, grad) if for_b else None


_matmul.register_autograd(_gradient, setup_context=_keep)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    r"""The product of two matrices, :math:`C_{mn} = \sum_k A_{mk} B_{kn}`, in tiles.

    Args:
        a: ``(M, K)``, of any strides, so a transposed matrix needs no copy.
        b: ``(K, N)``.

    Returns:
        ``(M, N)`` in the dtype of the factors; sums are made in float32. float32 factors are
        multiplied exactly unless ``torch.backends.cuda.matmul.allow_tf32`` is set.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit, or no kernel runs there.
    """
    check_axes("a", a, "M K")
    check_axes("b", b, "K N")
    check_size("b", b, 0, a.shape[1])
    product: Tensor = _matmul(a, b)
    return product
