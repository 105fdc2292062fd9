"""FlashAttention, forward and backward: attention that never stores its scores.

Tiled: forward, ``BLOCK_L`` queries to a program, which walks over the keys ``BLOCK_S`` at a time;
backward, one kernel for the gradients of keys and values (a program holds keys and walks over the
queries of every head that shares them) and one for those of the queries. On chip: a tile of scores,
the running maximum and sum of each row, and the output of the tile. What goes to memory beside the
output is one number a row, the log-sum-exp; from it the backward pass makes the weights again.

Three kinds of tiles: those in which no pair is allowed are never visited, those in which every
pair is allowed need no mask, and only the rest, along the edges, look at positions.

The softmax is made of powers of two (one instruction on the chip): scores carry the factor
scale · log2(e), so that 2^(that) is e^(scaled score).
"""

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_course._checks import check_axes, check_floating
from attn_course.kernels._launch import (
    INTERPRETED,
    architecture,
    block,
    check_launch,
    precision,
    rows_contiguous,
)

LOG2E = math.log2(math.e)


@no_type_check
@triton.jit
def _keys_of(first, S, BLOCK_L: tl.constexpr, BLOCK_S: tl.constexpr, left, right):
    """The tiles of keys for the queries from ``first``: any allowed, all allowed (start, end).

    Query i may attend to the keys i - left to i + right.
    """
    last = first + BLOCK_L - 1
    start = tl.minimum(tl.maximum(first - left, 0), S) // BLOCK_S * BLOCK_S
    end = tl.minimum(tl.maximum(last + right + 1, 0), S)
    # a tile from j is allowed as a whole if last - left <= j and j + BLOCK_S - 1 <= first + right
    full = (tl.maximum(last - left, 0) + BLOCK_S - 1) // BLOCK_S * BLOCK_S
    full_end = tl.minimum(tl.maximum(first + right + 1, 0), S) // BLOCK_S * BLOCK_S
    full = tl.minimum(tl.maximum(full, start), (end + BLOCK_S - 1) // BLOCK_S * BLOCK_S)
    full_end = tl.maximum(full_end, full)
    return start, full, full_end, end


@no_type_check
@triton.jit
def _queries_of(first, L, BLOCK_L: tl.constexpr, BLOCK_S: tl.constexpr, left, right):
    """The tiles of queries for the keys from ``first``, likewise."""
    last = first + BLOCK_S - 1
    start = tl.minimum(tl.maximum(first - right, 0), L) // BLOCK_L * BLOCK_L
    end = tl.minimum(last + left + 1, L)
    full = (tl.maximum(last - right, 0) + BLOCK_L - 1) // BLOCK_L * BLOCK_L
    # rows behind the last query hold zeros and weigh nothing, so that they need no mask
    full_end = tl.where(first + left + 1 >= L, L, (first + left + 1) // BLOCK_L * BLOCK_L)
    full = tl.minimum(tl.maximum(full, start), (end + BLOCK_L - 1) // BLOCK_L * BLOCK_L)
    full_end = tl.maximum(full_end, full)
    return start, full, full_end, end


@no_type_check
@triton.jit
def _forward_tiles(
    output, total, top, query, key_ptr, value_ptr, row, start, end, S, left, right, factor,
    key_row, value_row, E: tl.constexpr, EV: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, BANDED: tl.constexpr, MASKED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    e, ev = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_EV)
    for first in range(start, end, BLOCK_S):
        column = first + tl.arange(0, BLOCK_S)  # [BLOCK_S]
        if BANDED:  # three loops leave no registers for what could be kept from tile to tile
            key_start, value_start, at = key_ptr, value_ptr, column.to(tl.int64)
        else:  # where a tile begins is one number for all threads, and inside it nothing changes
            key_start = key_ptr + tl.cast(first, tl.int64) * key_row
            value_start = value_ptr + tl.cast(first, tl.int64) * value_row
            at = tl.arange(0, BLOCK_S).to(tl.int64)
        inside, value_inside = (e < E)[:, None], (ev < EV)[None, :]
        if MASKED:
            inside = inside & (column < S)[None, :]
            value_inside = value_inside & (column < S)[:, None]
        key = tl.load(key_start + (at[None, :] * key_row + e[:, None]), mask=inside, other=0.0)
        scores = tl.dot(query, key, input_precision=PRECISION)  # [BLOCK_L, BLOCK_S]
        if MASKED:
            away = column[None, :] - row[:, None]
            allowed = (away <= right) & (-away <= left) & (column < S)[None, :]
            scores = tl.where(allowed, scores * factor, -float("inf"))
            new = tl.maximum(top, tl.max(scores, axis=1))
            shift = tl.where(new == -float("inf"), 0.0, new)  # nothing allowed so far
            weights = tl.exp2(scores - shift[:, None])
            rescale = tl.exp2(top - shift)
        else:
            new = tl.maximum(top, tl.max(scores, axis=1) * factor)
            weights = tl.exp2(scores * factor - new[:, None])
            rescale = tl.exp2(top - new)
        total = total * rescale + tl.sum(weights, axis=1)
        output = output * rescale[:, None]  # [BLOCK_L, BLOCK_EV]
        value = tl.load(
            value_start + (at[:, None] * value_row + ev[None, :]), mask=value_inside, other=0.0
        )
        output = tl.dot(weights.to(value.dtype), value, output, input_precision=PRECISION)
        top = new
    return output, total, top


@no_type_check
@triton.jit
def flash_forward_kernel(
    query_ptr, key_ptr, value_ptr, output_ptr, lse_ptr,
    query_batch, query_head, query_row, key_batch, key_head, key_row,
    value_batch, value_head, value_row, H, GROUP, L, S, left, right, factor,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, BANDED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # the last rows have most keys where a mask is causal: they start first
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_L
    batch, head = (tl.program_id(1) // H).to(tl.int64), (tl.program_id(1) % H).to(tl.int64)
    kv_head = head // GROUP
    query_ptr += batch * query_batch + head * query_head
    key_ptr += batch * key_batch + kv_head * key_head
    value_ptr += batch * value_batch + kv_head * value_head

    row = first + tl.arange(0, BLOCK_L)  # [BLOCK_L]
    e, ev = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_EV)
    at = row.to(tl.int64)
    query = tl.load(
        query_ptr + at[:, None] * query_row + e[None, :],
        mask=(row < L)[:, None] & (e < E)[None, :],
        other=0.0,
    )  # [BLOCK_L, BLOCK_E]
    output = tl.zeros([BLOCK_L, BLOCK_EV], tl.float32)
    total = tl.zeros([BLOCK_L], tl.float32)
    top = tl.full([BLOCK_L], -float("inf"), tl.float32)

    start, full, full_end, end = _keys_of(first, S, BLOCK_L, BLOCK_S, left, right)
    if BANDED:  # only a window has an edge on the left
        output, total, top = _forward_tiles(
            output, total, top, query, key_ptr, value_ptr, row, start, full, S, left, right, factor,
            key_row, value_row, E, EV, BLOCK_S, BLOCK_E, BLOCK_EV, BANDED, True, PRECISION,
        )  # fmt: skip
    else:
        full = 0
    output, total, top = _forward_tiles(
        output, total, top, query, key_ptr, value_ptr, row, full, full_end, S, left, right, factor,
        key_row, value_row, E, EV, BLOCK_S, BLOCK_E, BLOCK_EV, BANDED, False, PRECISION,
    )  # fmt: skip
    output, total, top = _forward_tiles(
        output, total, top, query, key_ptr, value_ptr, row, full_end, end, S, left, right, factor,
        key_row, value_row, E, EV, BLOCK_S, BLOCK_E, BLOCK_EV, BANDED, True, PRECISION,
    )  # fmt: skip

    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    output = output / total[:, None]
    lse = tl.where(empty, -float("inf"), (top + tl.log2(total)) / 1.4426950408889634)
    place = tl.program_id(1).to(tl.int64) * L + at
    tl.store(
        output_ptr + place[:, None] * EV + ev[None, :],
        output.to(output_ptr.dtype.element_ty),
        mask=(row < L)[:, None] & (ev < EV)[None, :],
    )
    tl.store(lse_ptr + place, lse, mask=row < L)


@no_type_check
@triton.jit
def flash_delta_kernel(
    output_ptr, grad_ptr, lse_grad_ptr, delta_ptr, grad_batch, grad_head, grad_row, H, L,
    EV: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_EV: tl.constexpr,
):  # fmt: skip
    """D of Dao et al.: what the softmax's derivative subtracts in every row."""
    row = tl.program_id(0) * BLOCK_L + tl.arange(0, BLOCK_L)
    at, ev = row.to(tl.int64), tl.arange(0, BLOCK_EV)
    place = tl.program_id(1).to(tl.int64) * L + at
    inside = (row < L)[:, None] & (ev < EV)[None, :]
    batch, head = (tl.program_id(1) // H).to(tl.int64), (tl.program_id(1) % H).to(tl.int64)
    grad_ptr += batch * grad_batch + head * grad_head
    output = tl.load(output_ptr + place[:, None] * EV + ev[None, :], mask=inside, other=0.0)
    grad = tl.load(grad_ptr + at[:, None] * grad_row + ev[None, :], mask=inside, other=0.0)
    delta = tl.sum(output.to(tl.float32) * grad.to(tl.float32), axis=1)
    # a gradient of the log-sum-exp reaches every score by its weight, like -D
    delta -= tl.load(lse_grad_ptr + place, mask=row < L, other=0.0)
    tl.store(delta_ptr + place, delta, mask=row < L)


@no_type_check
@triton.jit
def _key_value_tiles(
    dkey, dvalue, key, value, query_ptr, grad_ptr, lse_ptr, delta_ptr, column, start, end, L, left,
    right, factor, query_row, grad_row, E: tl.constexpr, EV: tl.constexpr, BLOCK_L: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    e, ev = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_EV)
    for first in range(start, end, BLOCK_L):
        row = first + tl.arange(0, BLOCK_L)
        at, inside = row.to(tl.int64), row < L
        query = tl.load(
            query_ptr + at[:, None] * query_row + e[None, :],
            mask=inside[:, None] & (e < E)[None, :],
            other=0.0,
        )  # [BLOCK_L, BLOCK_E]
        grad = tl.load(
            grad_ptr + at[:, None] * grad_row + ev[None, :],
            mask=inside[:, None] & (ev < EV)[None, :],
            other=0.0,
        )  # [BLOCK_L, BLOCK_EV]
        # a row behind the last one, or without keys, has an infinite sum: its weights are 0
        lse = tl.load(lse_ptr + at, mask=inside, other=float("inf")) * 1.4426950408889634
        lse = tl.where(lse == -float("inf"), float("inf"), lse)
        delta = tl.load(delta_ptr + at, mask=inside, other=0.0)
        # scores lie on their side here, [BLOCK_S, BLOCK_L], so that no tile has to be turned twice
        scores = tl.dot(key, tl.trans(query), input_precision=PRECISION) * factor
        if MASKED:
            away = column[:, None] - row[None, :]
            scores = tl.where((away <= right) & (-away <= left), scores, -float("inf"))
        weights = tl.exp2(scores - lse[None, :])
        dvalue = tl.dot(weights.to(grad.dtype), grad, dvalue, input_precision=PRECISION)
        dweights = tl.dot(value, tl.trans(grad), input_precision=PRECISION)
        dscores = weights * (dweights - delta[None, :])
        dkey = tl.dot(dscores.to(query.dtype), query, dkey, input_precision=PRECISION)
    return dkey, dvalue


@no_type_check
@triton.jit
def flash_key_value_kernel(
    query_ptr, key_ptr, value_ptr, grad_ptr, lse_ptr, delta_ptr, dkey_ptr, dvalue_ptr,
    query_batch, query_head, query_row, key_batch, key_head, key_row,
    value_batch, value_head, value_row, grad_batch, grad_head, grad_row,
    H, GROUP, L, S, left, right, factor, scale,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, BANDED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * BLOCK_S
    kv_heads = H // GROUP
    batch = (tl.program_id(1) // kv_heads).to(tl.int64)
    kv_head = (tl.program_id(1) % kv_heads).to(tl.int64)
    key_ptr += batch * key_batch + kv_head * key_head
    value_ptr += batch * value_batch + kv_head * value_head

    column = first + tl.arange(0, BLOCK_S)  # [BLOCK_S]
    e, ev = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_EV)
    at = column.to(tl.int64)
    inside = (column < S)[:, None] & (e < E)[None, :]
    value_inside = (column < S)[:, None] & (ev < EV)[None, :]
    key = tl.load(key_ptr + at[:, None] * key_row + e[None, :], mask=inside, other=0.0)
    value = tl.load(value_ptr + at[:, None] * value_row + ev[None, :], mask=value_inside, other=0.0)
    dkey = tl.zeros([BLOCK_S, BLOCK_E], tl.float32)
    dvalue = tl.zeros([BLOCK_S, BLOCK_EV], tl.float32)

    start, full, full_end, end = _queries_of(first, L, BLOCK_L, BLOCK_S, left, right)
    for member in range(0, GROUP):  # every head that looks at these keys
        head = kv_head * GROUP + member
        q_ptr = query_ptr + batch * query_batch + head * query_head
        g_ptr = grad_ptr + batch * grad_batch + head * grad_head
        rows = (batch * H + head) * L
        dkey, dvalue = _key_value_tiles(
            dkey, dvalue, key, value, q_ptr, g_ptr, lse_ptr + rows, delta_ptr + rows, column, start,
            full, L, left, right, factor, query_row, grad_row,
            E, EV, BLOCK_L, BLOCK_E, BLOCK_EV, True, PRECISION,
        )  # fmt: skip
        dkey, dvalue = _key_value_tiles(
            dkey, dvalue, key, value, q_ptr, g_ptr, lse_ptr + rows, delta_ptr + rows, column, full,
            full_end, L, left, right, factor, query_row, grad_row,
            E, EV, BLOCK_L, BLOCK_E, BLOCK_EV, False, PRECISION,
        )  # fmt: skip
        if BANDED:
            dkey, dvalue = _key_value_tiles(
                dkey, dvalue, key, value, q_ptr, g_ptr, lse_ptr + rows, delta_ptr + rows, column,
                full_end, end, L, left, right, factor, query_row, grad_row,
                E, EV, BLOCK_L, BLOCK_E, BLOCK_EV, True, PRECISION,
            )  # fmt: skip

    place = tl.program_id(1).to(tl.int64) * S + at
    tl.store(
        dkey_ptr + place[:, None] * E + e[None, :],
        (dkey * scale).to(dkey_ptr.dtype.element_ty),
        mask=inside,
    )
    tl.store(
        dvalue_ptr + place[:, None] * EV + ev[None, :],
        dvalue.to(dvalue_ptr.dtype.element_ty),
        mask=value_inside,
    )


@no_type_check
@triton.jit
def _query_tiles(
    dquery, query, grad, lse, delta, key_ptr, value_ptr, row, start, end, S, left, right, factor,
    key_row, value_row, E: tl.constexpr, EV: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    e, ev = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_EV)
    for first in range(start, end, BLOCK_S):
        column = first + tl.arange(0, BLOCK_S)
        at = column.to(tl.int64)
        inside, value_inside = (e < E)[None, :], (ev < EV)[None, :]
        if MASKED:
            inside = inside & (column < S)[:, None]
            value_inside = value_inside & (column < S)[:, None]
        key = tl.load(key_ptr + at[:, None] * key_row + e[None, :], mask=inside, other=0.0)
        value = tl.load(
            value_ptr + at[:, None] * value_row + ev[None, :], mask=value_inside, other=0.0
        )
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION) * factor
        if MASKED:
            away = column[None, :] - row[:, None]
            allowed = (away <= right) & (-away <= left) & (column < S)[None, :]
            scores = tl.where(allowed, scores, -float("inf"))
        weights = tl.exp2(scores - lse[:, None])  # [BLOCK_L, BLOCK_S]
        dweights = tl.dot(grad, tl.trans(value), input_precision=PRECISION)
        dscores = weights * (dweights - delta[:, None])
        dquery = tl.dot(dscores.to(key.dtype), key, dquery, input_precision=PRECISION)
    return dquery


@no_type_check
@triton.jit
def flash_query_kernel(
    query_ptr, key_ptr, value_ptr, grad_ptr, lse_ptr, delta_ptr, dquery_ptr,
    query_batch, query_head, query_row, key_batch, key_head, key_row,
    value_batch, value_head, value_row, grad_batch, grad_head, grad_row,
    H, GROUP, L, S, left, right, factor, scale,
    E: tl.constexpr, EV: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, BANDED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_L
    batch, head = (tl.program_id(1) // H).to(tl.int64), (tl.program_id(1) % H).to(tl.int64)
    kv_head = head // GROUP
    query_ptr += batch * query_batch + head * query_head
    grad_ptr += batch * grad_batch + head * grad_head
    key_ptr += batch * key_batch + kv_head * key_head
    value_ptr += batch * value_batch + kv_head * value_head

    row = first + tl.arange(0, BLOCK_L)
    e, ev = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_EV)
    at = row.to(tl.int64)
    inside = (row < L)[:, None] & (e < E)[None, :]
    query = tl.load(query_ptr + at[:, None] * query_row + e[None, :], mask=inside, other=0.0)
    grad = tl.load(
        grad_ptr + at[:, None] * grad_row + ev[None, :],
        mask=(row < L)[:, None] & (ev < EV)[None, :],
        other=0.0,
    )
    place = tl.program_id(1).to(tl.int64) * L + at
    lse = tl.load(lse_ptr + place, mask=row < L, other=float("inf")) * 1.4426950408889634
    lse = tl.where(lse == -float("inf"), float("inf"), lse)
    delta = tl.load(delta_ptr + place, mask=row < L, other=0.0)
    dquery = tl.zeros([BLOCK_L, BLOCK_E], tl.float32)

    start, full, full_end, end = _keys_of(first, S, BLOCK_L, BLOCK_S, left, right)
    if BANDED:
        dquery = _query_tiles(
            dquery, query, grad, lse, delta, key_ptr, value_ptr, row, start, full, S, left, right,
            factor, key_row, value_row, E, EV, BLOCK_S, BLOCK_E, BLOCK_EV, True, PRECISION,
        )  # fmt: skip
    else:
        full = 0
    dquery = _query_tiles(
        dquery, query, grad, lse, delta, key_ptr, value_ptr, row, full, full_end, S, left, right,
        factor, key_row, value_row, E, EV, BLOCK_S, BLOCK_E, BLOCK_EV, False, PRECISION,
    )  # fmt: skip
    dquery = _query_tiles(
        dquery, query, grad, lse, delta, key_ptr, value_ptr, row, full_end, end, S, left, right,
        factor, key_row, value_row, E, EV, BLOCK_S, BLOCK_E, BLOCK_EV, True, PRECISION,
    )  # fmt: skip
    tl.store(
        dquery_ptr + place[:, None] * E + e[None, :],
        (dquery * scale).to(dquery_ptr.dtype.element_ty),
        mask=inside,
    )


def tiles(kernel: str, head_dim: int, dtype: torch.dtype, device: torch.device) -> dict[str, int]:
    """Rows and columns of a tile, warps and pipeline stages, for ``kernel`` and a head size.

    Chosen so that nothing spills on sm_80 and sm_90: see the table of compiled artefacts. A matrix
    instruction of four warps (sm_90) takes 64 rows: tiles with fewer do without it.
    """
    if INTERPRETED:
        return {"BLOCK_L": 32, "BLOCK_S": 32}
    wide, hopper = dtype == torch.float32, architecture(device) == 90
    if kernel == "forward":
        if wide:
            if head_dim <= 64:
                rows, columns, warps, stages = 64, 32, 8, 2
            else:
                rows, columns, warps, stages = 32, 32 if head_dim <= 128 else 16, 8, 1
        elif head_dim <= 64:
            rows, columns, warps, stages = 128, 64, 4, 3
        elif head_dim <= 128:
            rows, columns, warps, stages = 128, 64, 8, 3
        else:
            rows, columns, warps, stages = 64, 32, 8, 2
    elif wide:
        if head_dim > 128:
            rows, columns = 16, 16
        elif kernel == "key_value":
            rows, columns = 16, 32
        else:
            rows, columns = 32, 32 if head_dim <= 64 else 16
        warps, stages = 4 if head_dim <= 64 else 8, 1
    elif kernel == "key_value":
        if head_dim <= 64:
            rows, columns, warps, stages = 32, 128, 8, 2
        elif head_dim <= 128:
            rows, columns, warps, stages = 64, 64, 8, 2
        elif hopper:
            rows, columns, warps, stages = 16, 64, 8, 2
        else:
            rows, columns, warps, stages = 32, 32, 8, 1
    elif head_dim <= 64:
        rows, columns, warps, stages = 128, 64, 8, 2
    elif head_dim <= 128:
        rows, columns, warps, stages = 128, 32, 8, 2
    elif hopper:
        rows, columns, warps, stages = 128, 16, 8, 2
    else:
        rows, columns, warps, stages = 32, 32, 4, 1
    return {"BLOCK_L": rows, "BLOCK_S": columns, "num_warps": warps, "num_stages": stages}


_FAR = 1 << 30  # a window that ends nowhere


def _sides(is_causal: bool, window_size: int | None) -> tuple[int, int]:
    """How far a query sees to its left and to its right."""
    if window_size is None:
        return _FAR, 0 if is_causal else _FAR
    return (window_size - 1, 0) if is_causal else (window_size // 2, window_size // 2)


def _shape_options(query: Tensor, value: Tensor, window_size: int | None) -> dict[str, object]:
    e, ev = query.shape[-1], value.shape[-1]
    return {
        "E": e,
        "EV": ev,
        "BLOCK_E": block(e, least=16),
        "BLOCK_EV": block(ev, least=16),
        "BANDED": window_size is not None,
        "PRECISION": precision(query.dtype),
    }


@torch.library.custom_op("attn_course::flash_attention", mutates_args=())
def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    window_size: int | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    check_launch(INSTEAD, query=query, key=key, value=value)
    query, key, value = (rows_contiguous(x) for x in (query, key, value))
    B, H, L, _ = query.shape
    output = query.new_empty(B, H, L, value.shape[-1])
    lse = query.new_empty(B, H, L, dtype=torch.float32)
    if query.shape[0] * H * L:
        tile = tiles("forward", max(query.shape[-1], value.shape[-1]), query.dtype, query.device)
        flash_forward_kernel[(triton.cdiv(L, tile["BLOCK_L"]), B * H)](
            query, key, value, output, lse,
            *query.stride()[:3], *key.stride()[:3], *value.stride()[:3],
            H, H // key.shape[1], L, key.shape[2], *_sides(is_causal, window_size), scale * LOG2E,
            **_shape_options(query, value, window_size), **tile,
        )  # fmt: skip
    return output, lse


@torch.library.custom_op("attn_course::flash_attention_backward", mutates_args=())
def _flash_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    grad: Tensor,
    lse_grad: Tensor,
    is_causal: bool,
    window_size: int | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    check_launch(INSTEAD, query=query, key=key, value=value, grad=grad)
    query, key, value, grad = (rows_contiguous(x) for x in (query, key, value, grad))
    lse_grad = lse_grad.contiguous()
    (B, H, L, E), (_, kv_heads, S, _), ev = query.shape, key.shape, value.shape[-1]
    dquery = query.new_empty(B, H, L, E)
    dkey, dvalue = key.new_empty(B, kv_heads, S, E), value.new_empty(B, kv_heads, S, ev)
    delta = torch.empty_like(lse)
    options = _shape_options(query, value, window_size)
    along = (*query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *grad.stride()[:3])
    sizes = (H, H // kv_heads, L, S, *_sides(is_causal, window_size), scale * LOG2E, scale)
    widest = max(E, ev)
    if B * H * L:
        rows = tiles("query", widest, query.dtype, query.device)
        grid = (triton.cdiv(L, rows["BLOCK_L"]), B * H)
        flash_delta_kernel[grid](
            output, grad, lse_grad, delta, *grad.stride()[:3], H, L,
            EV=ev, BLOCK_L=rows["BLOCK_L"], BLOCK_EV=options["BLOCK_EV"],
        )  # fmt: skip
        flash_query_kernel[grid](
            query, key, value, grad, lse, delta, dquery, *along, *sizes, **options, **rows
        )
    if B * kv_heads * S:
        tile = tiles("key_value", widest, query.dtype, query.device)
        flash_key_value_kernel[(triton.cdiv(S, tile["BLOCK_S"]), B * kv_heads)](
            query, key, value, grad, lse, delta, dkey, dvalue, *along, *sizes, **options, **tile
        )
    return dquery, dkey, dvalue


INSTEAD = "attn_course.functional.scaled_dot_product_attention"


@_flash.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    window_size: int | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    rows = query.shape[:-1]
    return query.new_empty(*rows, value.shape[-1]), query.new_empty(rows, dtype=torch.float32)


@_flash_backward.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    grad: Tensor,
    lse_grad: Tensor,
    is_causal: bool,
    window_size: int | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _keep(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[Tensor, Tensor, Tensor, bool, int | None, float],
    output: tuple[Tensor, Tensor],
) -> None:
    ctx.save_for_backward(*inputs[:3], *output)
    ctx.options = inputs[3:]  # type: ignore[attr-defined]


def _gradient(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor, lse_grad: Tensor
) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
    saved = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's stub lacks it
    dquery, dkey, dvalue = _flash_backward(*saved, grad, lse_grad, *ctx.options)  # type: ignore[attr-defined]
    return dquery, dkey, dvalue, None, None, None


_flash.register_autograd(_gradient, setup_context=_keep)


def flash_attention_with_lse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    window_size: int | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""Attention and the logarithm of what its softmax divides by, as :func:`flash_attention`.

    Blocks of keys that were attended to one by one are joined by ``functional.merge_attention``.

    Args:
        query: ``(B, H, L, E)``.
        key: ``(B, H, S, E)``.
        value: ``(B, H, S, Ev)``.
        is_causal: As for :func:`flash_attention`.
        window_size: As for :func:`flash_attention`.
        scale: As for :func:`flash_attention`.
        enable_gqa: As for :func:`flash_attention`.

    Returns:
        Output, and log-sum-exp ``(B, H, L)`` in float32, ``-inf`` for a query without keys. Both
        carry gradients.

    Raises:
        ValueError: As :func:`flash_attention`.
    """
    query, key, value = _autocast(query, key, value)
    _check_shapes(query, key, value, enable_gqa)
    if window_size is not None and (window_size < 1 or not (is_causal or window_size % 2)):
        kind = "a positive number" if is_causal else "an odd positive number"
        raise ValueError(f"window_size: expected {kind}, got {window_size}")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if scale < 0:  # the running maximum is that of the products, times the scale
        query, scale = -query, -scale
    output, lse = _flash(query, key, value, is_causal, window_size, scale)
    return output, lse


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    window_size: int | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
) -> Tensor:
    r"""Scaled dot-product attention, tile by tile, without the scores in memory.

    .. math:: O = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{E}}\right) V

    Dao et al. (2022), algorithms 1 and 4, with the loop order of Dao (2023). Memory beyond the
    output is one number a query; time is that of the pairs that are allowed, rounded to tiles.

    Args:
        query: ``(B, H, L, E)``, E at most 256, float16, bfloat16 or float32. Strides are free as
            long as the last axis lies in one piece; otherwise it is copied.
        key: ``(B, H, S, E)``; with ``enable_gqa`` the heads divide those of the query.
        value: ``(B, H, S, Ev)``.
        attn_mask: Must be None.
        is_causal: Query i attends to keys 0 to i (top-left when L and S differ, as in torch).
        window_size: How many keys a query sees, itself included: the last ones if causal,
            otherwise half of the others on each side (then it is odd). Tiles outside are skipped.
        scale: What the products are multiplied with; 1/sqrt(E) if not given.
        dropout_p: Must be 0.
        enable_gqa: Query heads are a multiple of the key heads; keys are not copied for it.

    Returns:
        One row for each query, in the dtype of the query (that of autocast, where it is on). A
        query without keys gives 0, with gradient 0. Sums and the softmax are made in float32.

    Raises:
        ValueError: For a mask, dropout, sizes or dtypes that the kernel does not take, and where no
            kernel runs.

    Note:
        *Differs from torch*: no mask and no dropout; float32 is multiplied exactly unless
        ``torch.backends.cuda.matmul.allow_tf32`` is set; the result is contiguous.
    """
    if attn_mask is not None:
        raise ValueError(f"attn_mask: expected None, the kernel has no masks; use {INSTEAD}")
    if dropout_p:
        raise ValueError(f"dropout_p: expected 0, the kernel has no dropout, got {dropout_p}")
    output, _ = flash_attention_with_lse(
        query, key, value,
        is_causal=is_causal, window_size=window_size, scale=scale, enable_gqa=enable_gqa,
    )  # fmt: skip
    return output


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    for name, tensor in zip(("query", "key", "value"), tensors, strict=True):
        check_floating(name, tensor)
    device = tensors[0].device.type
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(x.to(dtype) for x in tensors)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_axes(name, tensor, "B H L E")
        if not 1 <= tensor.shape[-1] <= 256:
            raise ValueError(f"{name}: expected a head size from 1 to 256, got {tensor.shape[-1]}")
    B, H, _, E = query.shape
    heads = key.shape[1]
    if heads != H and not (enable_gqa and heads and H % heads == 0):
        wanted = f"a divisor of {H} heads" if enable_gqa else f"{H} heads"
        raise ValueError(f"key: expected {wanted}, got {heads}")
    for name, tensor, size in (
        ("key", key, (B, heads, key.shape[2], E)),
        ("value", value, (B, heads, key.shape[2], value.shape[-1])),
    ):
        if tuple(tensor.shape) != size:
            raise ValueError(f"{name}: expected shape {size}, got {tuple(tensor.shape)}")
