"""Attention of one new token to a cache of keys and values, in one piece or in pages.

Tiled: the keys, cut into ``splits`` pieces, so that one token of one sequence keeps the whole chip
busy; a program takes one piece of one head of keys, with all the query heads that share it, so
that a key is read once. On chip: those queries, and the running maximum, sum and output. Each piece
leaves an output and a log-sum-exp; a second, small kernel joins them by the rule of
``merge_attention``: o = Σ exp(lse_b - lse) o_b.

The work is reading the cache: its bytes over the copy rate of the memory is the least time.
"""

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_course._checks import check_axes, check_floating, check_size, check_tensor
from attn_course.kernels._launch import (
    INTERPRETED,
    block,
    check_launch,
    precision,
    rows_contiguous,
)

INSTEAD = "attn_course.functional.scaled_dot_product_attention"


@no_type_check
@triton.jit
def decode_split_kernel(
    query_ptr, key_ptr, value_ptr, table_ptr, lengths_ptr, part_ptr, lse_ptr,
    query_batch, query_head, key_batch, key_head, key_row, value_batch, value_head, value_row,
    table_row, HEADS, each, factor,
    GROUP: tl.constexpr, E: tl.constexpr, EV: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_EV: tl.constexpr, PAGE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    split, splits = tl.program_id(0), tl.num_programs(0)
    batch, head = (tl.program_id(1) // HEADS).to(tl.int64), (tl.program_id(1) % HEADS).to(tl.int64)
    member, e, ev = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_EV)
    query = tl.load(
        query_ptr
        + batch * query_batch
        + (head * GROUP + member)[:, None] * query_head
        + e[None, :],
        mask=(member < GROUP)[:, None] & (e < E)[None, :],
        other=0.0,
    )  # [BLOCK_G, BLOCK_E]
    length = tl.load(lengths_ptr + batch)
    key_ptr += head * key_head
    value_ptr += head * value_head
    if not PAGE:  # with pages, the first axis is that of the pages
        key_ptr += batch * key_batch
        value_ptr += batch * value_batch

    top = tl.full([BLOCK_G], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_G], tl.float32)
    output = tl.zeros([BLOCK_G, BLOCK_EV], tl.float32)
    for first in range(split * each, tl.minimum((split + 1) * each, length), BLOCK_S):
        column = first + tl.arange(0, BLOCK_S)  # [BLOCK_S]
        inside = column < length
        if PAGE:
            page = tl.load(table_ptr + batch * table_row + column // PAGE, mask=inside, other=0)
            key_at = page.to(tl.int64) * key_batch + (column % PAGE).to(tl.int64) * key_row
            value_at = page.to(tl.int64) * value_batch + (column % PAGE).to(tl.int64) * value_row
        else:
            key_at = column.to(tl.int64) * key_row
            value_at = column.to(tl.int64) * value_row
        key = tl.load(
            key_ptr + key_at[:, None] + e[None, :],
            mask=inside[:, None] & (e < E)[None, :],
            other=0.0,
        )  # [BLOCK_S, BLOCK_E]
        value = tl.load(
            value_ptr + value_at[:, None] + ev[None, :],
            mask=inside[:, None] & (ev < EV)[None, :],
            other=0.0,
        )  # [BLOCK_S, BLOCK_EV]
        scores = tl.dot(query, tl.trans(key), input_precision=PRECISION) * factor
        scores = tl.where(inside[None, :], scores, -float("inf"))  # [BLOCK_G, BLOCK_S]
        # a tile starts inside the sequence: every row sees a key of it
        new = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new[:, None])
        rescale = tl.exp2(top - new)
        total = total * rescale + tl.sum(weights, axis=1)
        output = tl.dot(
            weights.to(value.dtype), value, output * rescale[:, None], input_precision=PRECISION
        )
        top = new
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    lse = tl.where(empty, -float("inf"), (top + tl.log2(total)) / 1.4426950408889634)
    place = ((batch * HEADS + head) * GROUP + member) * splits + split
    tl.store(
        part_ptr + place[:, None] * EV + ev[None, :],
        output / total[:, None],
        mask=(member < GROUP)[:, None] & (ev < EV)[None, :],
    )
    tl.store(lse_ptr + place, lse, mask=member < GROUP)


@no_type_check
@triton.jit
def decode_merge_kernel(
    part_ptr, part_lse_ptr, output_ptr, lse_ptr, splits,
    EV: tl.constexpr, BLOCK_EV: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    split, ev = tl.arange(0, SPLITS), tl.arange(0, BLOCK_EV)
    lses = tl.load(part_lse_ptr + row * splits + split, mask=split < splits, other=-float("inf"))
    top = tl.max(lses, axis=0)
    shift = tl.where(top == -float("inf"), 0.0, top)
    weights = tl.exp(lses - shift)  # [SPLITS]; 0 for a piece without keys
    total = tl.sum(weights, axis=0)
    parts = tl.load(
        part_ptr + (row * splits + split)[:, None] * EV + ev[None, :],
        mask=(split < splits)[:, None] & (ev < EV)[None, :],
        other=0.0,
    )  # [SPLITS, BLOCK_EV]
    safe = tl.where(total == 0.0, 1.0, total)
    output = tl.sum(parts * weights[:, None], axis=0) / safe
    tl.store(output_ptr + row * EV + ev, output.to(output_ptr.dtype.element_ty), mask=ev < EV)
    tl.store(lse_ptr + row, tl.where(total == 0.0, -float("inf"), top + tl.log(safe)))


def tiles(head_dim: int, dtype: torch.dtype) -> dict[str, int]:
    """Keys of a tile, warps and pipeline stages."""
    if INTERPRETED:
        return {"BLOCK_S": 16}
    wide = dtype == torch.float32
    if wide or head_dim > 128:
        return {"BLOCK_S": 32, "num_warps": 8 if wide else 4, "num_stages": 2}
    return {"BLOCK_S": 64, "num_warps": 4, "num_stages": 3}


def _splits(programs: int, length: int, tile: int, device: torch.device) -> int:
    """As many pieces as keep every processor of the chip busy twice, none below four tiles."""
    processors = 132  # of an H100
    if device.type == "cuda":
        processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(-(-2 * processors // max(1, programs)), length // (4 * tile), 128))


def _decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor | None,
    lengths: Tensor,
    scale: float,
    num_splits: int,
) -> tuple[Tensor, Tensor]:
    """Both operators: keys are (B, heads, S, E), or with a table (pages, P, heads, E)."""
    check_launch(INSTEAD, query=query, key=key, value=value)
    query, key, value = (rows_contiguous(x) for x in (query, key, value))
    (B, H, E), ev = query.shape, value.shape[-1]
    paged = table is not None
    row_axis, head_axis = (1, 2) if paged else (2, 1)
    heads, page = key.shape[head_axis], key.shape[1] if paged else 0
    longest = page * table.shape[1] if table is not None else key.shape[2]
    output = query.new_empty(B, H, ev)
    lse = query.new_empty(B, H, dtype=torch.float32)
    if B * H == 0:
        return output, lse
    tile = tiles(max(E, ev), query.dtype)
    splits = num_splits or _splits(B * heads, longest, tile["BLOCK_S"], query.device)
    each = triton.cdiv(triton.cdiv(longest, splits), tile["BLOCK_S"]) * tile["BLOCK_S"]
    parts = query.new_empty(B, H, splits, ev, dtype=torch.float32)
    part_lses = query.new_empty(B, H, splits, dtype=torch.float32)
    decode_split_kernel[(splits, B * heads)](
        query, key, value, table, lengths, parts, part_lses, *query.stride()[:2],
        key.stride(0), key.stride(head_axis), key.stride(row_axis),
        value.stride(0), value.stride(head_axis), value.stride(row_axis),
        table.stride(0) if table is not None else 0, heads, each, scale * math.log2(math.e),
        GROUP=H // heads, E=E, EV=ev, BLOCK_G=block(H // heads, least=16),
        BLOCK_E=block(E, least=16), BLOCK_EV=block(ev, least=16), PAGE=page,
        PRECISION=precision(query.dtype), **tile,
    )  # fmt: skip
    decode_merge_kernel[(B * H,)](
        parts, part_lses, output, lse, splits,
        EV=ev, BLOCK_EV=block(ev), SPLITS=block(splits), num_warps=4,
    )  # fmt: skip
    return output, lse


@torch.library.custom_op("attn_course::decode_attention", mutates_args=())
def _whole(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: float, num_splits: int
) -> tuple[Tensor, Tensor]:
    return _decode(query, key, value, None, lengths, scale, num_splits)


@torch.library.custom_op("attn_course::paged_decode_attention", mutates_args=())
def _paged(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale: float,
    num_splits: int,
) -> tuple[Tensor, Tensor]:
    return _decode(query, key, value, table.contiguous(), lengths, scale, num_splits)


@_whole.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor, scale: float, num_splits: int
) -> tuple[Tensor, Tensor]:
    rows = query.shape[:-1]
    return query.new_empty(*rows, value.shape[-1]), query.new_empty(rows, dtype=torch.float32)


@_paged.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    lengths: Tensor,
    scale: float,
    num_splits: int,
) -> tuple[Tensor, Tensor]:
    rows = query.shape[:-1]
    return query.new_empty(*rows, value.shape[-1]), query.new_empty(rows, dtype=torch.float32)


def decode_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Tensor | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor]:
    r"""One new query for each head looks at a cache of keys, which many programs share out.

    Also called split-K attention or flash decoding. For inference: no gradients.

    Args:
        query: ``(B, Hq, 1, E)``.
        key: ``(B, Hkv, S, E)``, of any strides but the last.
        value: ``(B, Hkv, S, Ev)``.
        lengths: How many keys of each row of the batch count; all S if not given.
        scale: What the products are multiplied with; 1/sqrt(E) if not given.
        enable_gqa: Query heads are a multiple of the key heads; head h looks at h // (Hq / Hkv).
        num_splits: Pieces of the keys; chosen by size and device if not given. The result does not
            depend on it beyond rounding.

    Returns:
        Output ``(B, Hq, 1, Ev)``, 0 where there is no key, and log-sum-exp ``(B, Hq, 1)``.

    Raises:
        ValueError: If sizes, dtypes or devices do not fit, and where no kernel runs.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_axes(name, tensor, "B H L E")
        check_floating(name, tensor)
    check_size("query", query, 2, 1)
    B, H, _, E = query.shape
    heads, S = key.shape[1:3]
    _check_heads(H, heads, enable_gqa)
    for name, tensor, size in (
        ("key", key, (B, heads, S, E)),
        ("value", value, (B, heads, S, value.shape[-1])),
    ):
        if tuple(tensor.shape) != size:
            raise ValueError(f"{name}: expected shape {size}, got {tuple(tensor.shape)}")
    if lengths is None:
        lengths = torch.full((B,), S, dtype=torch.int32, device=query.device)
    _check_integers("lengths", lengths, (B,))
    scale = 1 / math.sqrt(E) if scale is None else scale
    output, lse = _whole(query[:, :, 0], key, value, lengths, scale, _pieces(num_splits))
    return output[:, :, None], lse[:, :, None]


def paged_decode_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor]:
    r"""As :func:`decode_attention`, with the keys of a sequence scattered over pages of a pool.

    Key j of row b is ``key_cache[block_table[b, j // P], j % P]``. Kwon et al. (2023).

    Args:
        query: ``(B, Hq, 1, E)``.
        key_cache: ``(pages, P, Hkv, E)``: a pool that all sequences share, P keys to a page.
        value_cache: ``(pages, P, Hkv, Ev)``.
        block_table: ``(B, most pages of a sequence)``, integers. Entries behind the last page that
            a sequence needs are never read.
        lengths: ``(B,)``, how many keys each sequence has.
        scale: What the products are multiplied with; 1/sqrt(E) if not given.
        enable_gqa: Query heads are a multiple of the key heads.
        num_splits: Pieces of the keys; chosen by size and device if not given.

    Returns:
        Output ``(B, Hq, 1, Ev)``, 0 where there is no key, and log-sum-exp ``(B, Hq, 1)``.

    Raises:
        ValueError: If sizes, dtypes or devices do not fit, and where no kernel runs.
    """
    for name, tensor in (("query", query), ("key_cache", key_cache), ("value_cache", value_cache)):
        check_axes(name, tensor, "B H L E" if name == "query" else "pages P H E")
        check_floating(name, tensor)
    check_size("query", query, 2, 1)
    B, H, _, E = query.shape
    pages, P, heads, _ = key_cache.shape
    _check_heads(H, heads, enable_gqa)
    for name, tensor, size in (
        ("key_cache", key_cache, (pages, P, heads, E)),
        ("value_cache", value_cache, (pages, P, heads, value_cache.shape[-1])),
    ):
        if tuple(tensor.shape) != size:
            raise ValueError(f"{name}: expected shape {size}, got {tuple(tensor.shape)}")
    check_axes("block_table", block_table, "B pages")
    _check_integers("block_table", block_table, (B, block_table.shape[1]))
    _check_integers("lengths", lengths, (B,))
    scale = 1 / math.sqrt(E) if scale is None else scale
    output, lse = _paged(
        query[:, :, 0], key_cache, value_cache, block_table, lengths, scale, _pieces(num_splits)
    )
    return output[:, :, None], lse[:, :, None]


def _check_heads(H: int, heads: int, enable_gqa: bool) -> None:
    if heads != H and not (enable_gqa and heads and H % heads == 0):
        wanted = f"a divisor of {H} heads" if enable_gqa else f"{H} heads"
        raise ValueError(f"key: expected {wanted}, got {heads}")


def _check_integers(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    check_tensor(name, tensor)
    if tensor.dtype not in (torch.int32, torch.int64) or tuple(tensor.shape) != shape:
        raise ValueError(
            f"{name}: expected integers of shape {shape}, "
            f"got {tensor.dtype} of shape {tuple(tensor.shape)}"
        )


def _pieces(num_splits: int | None) -> int:
    if num_splits is not None and num_splits < 1:
        raise ValueError(f"num_splits: expected at least 1, got {num_splits}")
    return num_splits or 0  # 0: chosen where the device is known
