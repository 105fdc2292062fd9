"""Longformer's banded products: scores of a window, and the sum that they weigh.

Tiled: the queries, ``BLOCK`` to a program. On chip: a tile of queries and, one diagonal of the band
after the other, the keys that lie on it. Nothing L × L exists; the band ``(L, W)`` is the result.

A product of tiles would waste most of its entries on pairs outside a narrow band. Here every entry
that is computed is one that counts, without matrix units: for history, and for narrow windows. For
attention as a whole take ``flash_attention(window_size=...)``, which stores no band at all.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_course._checks import check_axes
from attn_course.kernels._launch import INTERPRETED, block, check_launch

INSTEAD = "attn_course.functional.scaled_dot_product_attention with a window_mask"


@no_type_check
@triton.jit
def band_scores_kernel(
    a_ptr, b_ptr, band_ptr, L, left, dilation,
    E: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr,
    FILL: tl.constexpr,
):  # fmt: skip
    """band[i, c] = a[i] · b[i + (c - left) dilation], FILL where there is no such row."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    e = tl.arange(0, BLOCK_E)
    start = tl.program_id(1).to(tl.int64) * L
    at = (start + row)[:, None] * E + e[None, :]
    a = tl.load(a_ptr + at, mask=(row < L)[:, None] & (e < E)[None, :], other=0.0).to(tl.float32)
    for column in range(0, WIDTH):
        other = row + (column - left) * dilation
        inside = (other >= 0) & (other < L) & (row < L)
        b = tl.load(
            b_ptr + (start + other)[:, None] * E + e[None, :],
            mask=inside[:, None] & (e < E)[None, :],
            other=0.0,
        )
        scores = tl.sum(a * b.to(tl.float32), axis=1)
        scores = tl.where(inside, scores, FILL)
        tl.store(
            band_ptr + (start + row) * WIDTH + column,
            scores.to(band_ptr.dtype.element_ty),
            mask=row < L,
        )


@no_type_check
@triton.jit
def band_sum_kernel(
    band_ptr, b_ptr, out_ptr, L, left, dilation,
    E: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_E: tl.constexpr,
    TURNED: tl.constexpr,
):  # fmt: skip
    """out[i] = Σ_c band[i, c] b[i + (c - left) dilation]; turned, the transpose of that product."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    e = tl.arange(0, BLOCK_E)
    start = tl.program_id(1).to(tl.int64) * L
    total = tl.zeros([BLOCK, BLOCK_E], tl.float32)
    for column in range(0, WIDTH):
        away = (column - left) * dilation
        other = row - away if TURNED else row + away
        inside = (other >= 0) & (other < L) & (row < L)
        # row i of the band belongs to query i: turned, that is the other one
        place = start + (other if TURNED else row)
        weight = tl.load(band_ptr + place * WIDTH + column, mask=inside, other=0.0)
        b = tl.load(
            b_ptr + (start + other)[:, None] * E + e[None, :],
            mask=inside[:, None] & (e < E)[None, :],
            other=0.0,
        )
        total += weight.to(tl.float32)[:, None] * b.to(tl.float32)
    tl.store(
        out_ptr + (start + row)[:, None] * E + e[None, :],
        total.to(out_ptr.dtype.element_ty),
        mask=(row < L)[:, None] & (e < E)[None, :],
    )


def _tile(head_dim: int) -> dict[str, int]:
    if INTERPRETED:
        return {"BLOCK": 32}
    return {"BLOCK": 64 if head_dim <= 64 else 32, "num_warps": 4}


def _launched(
    kernel: Any, first: Tensor, b: Tensor, out: Tensor, left: int, width: int, dilation: int,
    **more: float | bool,
) -> None:  # fmt: skip
    L, E = b.shape[-2:]
    programs = b.numel() // max(1, L * E)
    if out.numel():
        tile = _tile(E)
        kernel[(triton.cdiv(L, tile["BLOCK"]), programs)](
            first, b, out, L, left, dilation,
            E=E, WIDTH=width, BLOCK_E=block(E), **tile, **more,
        )  # fmt: skip


@torch.library.custom_op("attn_course::banded_matmul", mutates_args=())
def _banded(a: Tensor, b: Tensor, left: int, width: int, dilation: int, fill: float) -> Tensor:
    check_launch(INSTEAD, a=a, b=b)
    band = a.new_empty(*a.shape[:-1], width)
    _launched(
        band_scores_kernel, a.contiguous(), b.contiguous(), band, left, width, dilation, FILL=fill
    )
    return band


@torch.library.custom_op("attn_course::banded_sum", mutates_args=())
def _summed(band: Tensor, b: Tensor, left: int, dilation: int, turned: bool) -> Tensor:
    check_launch(INSTEAD, band=band, b=b)
    out = torch.empty(b.shape, dtype=b.dtype, device=b.device)
    _launched(
        band_sum_kernel, band.contiguous(), b.contiguous(), out, left, band.shape[-1], dilation,
        TURNED=turned,
    )  # fmt: skip
    return out


@_banded.register_fake
def _(a: Tensor, b: Tensor, left: int, width: int, dilation: int, fill: float) -> Tensor:
    return a.new_empty(*a.shape[:-1], width)


@_summed.register_fake
def _(band: Tensor, b: Tensor, left: int, dilation: int, turned: bool) -> Tensor:
    return b.new_empty(b.shape)


def _keep_product(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Any, ...], output: Tensor
) -> None:
    a, b, left, width, dilation, _ = inputs
    ctx.save_for_backward(a, b)
    ctx.options = left, width, dilation  # type: ignore[attr-defined]


def _product_gradient(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor
) -> tuple[Tensor | None, ...]:
    a, b = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's stub lacks it
    left, _, dilation = ctx.options  # type: ignore[attr-defined]
    da, db = _summed(grad, b, left, dilation, False), _summed(grad, a, left, dilation, True)
    return da, db, None, None, None, None


def _keep_sum(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Any, ...], output: Tensor
) -> None:
    band, b, left, dilation, turned = inputs
    ctx.save_for_backward(band, b)
    ctx.options = left, dilation, turned  # type: ignore[attr-defined]


def _sum_gradient(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor
) -> tuple[Tensor | None, ...]:
    band, b = ctx.saved_tensors  # type: ignore[attr-defined]
    left, dilation, turned = ctx.options  # type: ignore[attr-defined]
    rows, columns = (b, grad) if turned else (grad, b)
    dband = _banded(rows, columns, left, band.shape[-1], dilation, 0.0)
    return dband, _summed(band, grad, left, dilation, not turned), None, None, None


_banded.register_autograd(_product_gradient, setup_context=_keep_product)
_summed.register_autograd(_sum_gradient, setup_context=_keep_sum)


def _band(window_size: int, is_causal: bool, dilation: int) -> int:
    """How many columns of the band lie left of the query."""
    if window_size < 1 or not (is_causal or window_size % 2):
        kind = "a positive number" if is_causal else "an odd positive number"
        raise ValueError(f"window_size: expected {kind}, got {window_size}")
    if dilation < 1:
        raise ValueError(f"dilation: expected at least 1, got {dilation}")
    return window_size - 1 if is_causal else window_size // 2


def banded_matmul(
    query: Tensor, key: Tensor, *, window_size: int, is_causal: bool = False, dilation: int = 1
) -> Tensor:
    r"""The diagonals of :math:`Q K^\top` that lie in a window, and nothing else.

    .. math:: b_{ic} = q_i \cdot k_{i + (c - \ell) d}

    with :math:`\ell` columns left of the query: :math:`W - 1` if causal, else half of the others.
    Beltagy et al. (2020), section 3.2: their "diagonaled" product. Not scaled.

    Args:
        query: ``(B, H, L, E)``.
        key: ``(B, H, L, E)``.
        window_size: Width :math:`W` of the band; odd if not causal.
        is_causal: Whether the window ends at the query.
        dilation: Distance :math:`d` of neighbours in the window.

    Returns:
        ``(B, H, L, W)``, ``-inf`` where a column lies before the first or behind the last key.

    Raises:
        ValueError: If sizes do not fit, and where no kernel runs.
    """
    check_axes("query", query, "B H L E")
    if key.shape != query.shape:
        raise ValueError(f"key: expected shape {tuple(query.shape)}, got {tuple(key.shape)}")
    left = _band(window_size, is_causal, dilation)
    band: Tensor = _banded(query, key, left, window_size, dilation, -float("inf"))
    return band


def banded_sum(
    weights: Tensor, value: Tensor, *, is_causal: bool = False, dilation: int = 1
) -> Tensor:
    r"""The values in the window of each query, weighed by a band of :func:`banded_matmul`'s shape.

    .. math:: o_i = \sum_c w_{ic}\, v_{i + (c - \ell) d}

    Args:
        weights: ``(B, H, L, W)``, such as the softmax of a band. Columns outside do not count.
        value: ``(B, H, L, Ev)``.
        is_causal: As for the band.
        dilation: As for the band.

    Returns:
        ``(B, H, L, Ev)``.

    Raises:
        ValueError: If sizes do not fit, and where no kernel runs.
    """
    check_axes("weights", weights, "B H L W")
    check_axes("value", value, "B H L Ev")
    if weights.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            f"value: expected leading axes {tuple(weights.shape[:-1])}, got {tuple(value.shape)}"
        )
    found: Tensor = _summed(
        weights, value, _band(weights.shape[-1], is_causal, dilation), dilation, False
    )
    return found
