"""Attention inside a window, block by block, without the scores of the pairs beside it.

A block of queries meets the keys in its windows: one product for the scores, a softmax, one product
with the values. The backward pass computes the weights of a block again, so that neither pass keeps
more of them than one block has. A dilation of d makes d shorter sequences of every d-th position.
Global keys stand before those of each block. Measured by ``benchmarks/banded_attention.py``.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from attn_course._checks import compiling, default_scale, has_values, widest
from attn_course.functional._fast import second_order
from attn_course.functional._global_positions import (
    GlobalPositions,
    attend_globally,
    global_positions,
    put_positions,
    take_positions,
)
from attn_course.functional._windows import check_window, for_each_head, window_sides
from attn_course.functional.scaled_dot_product import scaled_dot_product_attention

# scores kept at a time: in float32 0.6 MB, what the cache of one core keeps
TILE = 150_000
# queries of a block: an eighth of the window, so that few scores beside it are computed
FEWEST_QUERIES, MOST_QUERIES = 32, 64


def sliding_window_attention(
    query: Float[Tensor, "B Hq L E"],
    key: Float[Tensor, "B Hkv L E"],
    value: Float[Tensor, "B Hkv L Ev"],
    attn_mask: Shaped[Tensor, "..."] | None = None,
    *,
    window_size: int,
    dilation: int | Sequence[int] = 1,
    is_causal: bool = False,
    global_mask: Bool[Tensor, "B L"] | None = None,
    symmetric: bool = True,
    scale: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
) -> Float[Tensor, "B Hq L Ev"] | None:
    """The same in blocks. None where it is not known how many positions are global."""
    if isinstance(global_mask, Tensor) and not has_values(global_mask):
        return None
    dilations, real, chosen = check_window(
        query, key, value, attn_mask, window_size, dilation, is_causal, global_mask,
        dropout_p, enable_gqa,
    )  # fmt: skip
    if not query.numel() or not value.numel():
        return query.new_zeros(*query.shape[:3], value.shape[-1]) + 0 * query.sum()
    if attn_mask is not None:
        counts = real[:, None, :, None]
        key, value = torch.where(counts, key, 0.0), torch.where(counts, value, 0.0)
    key, value = for_each_head(key, query), for_each_head(value, query)
    sides, factor = window_sides(window_size, is_causal), default_scale(query, scale)
    hidden = None if attn_mask is None else ~real
    at = global_positions(chosen) if global_mask is not None and chosen.any() else None
    if at is not None:
        hidden = chosen | ~real
    outputs, order = [], []
    for step in sorted(set(dilations)):
        heads = [head for head, own in enumerate(dilations) if own == step]
        some = (query, key, value)
        if len(heads) < len(dilations):
            some = (query[:, heads], key[:, heads], value[:, heads])
        outputs.append(_dilated(*some, hidden, at, *sides, step, is_causal, factor))
        order += heads
    output = outputs[0]
    if len(outputs) > 1:
        output = torch.cat(outputs, dim=1)[:, [order.index(head) for head in range(len(order))]]
    if at is not None and symmetric:
        rows = take_positions(query, at)  # (B, H, X, E)
        found = attend_globally(rows, key, value, at, real, is_causal=is_causal, scale=scale)
        output = put_positions(output, found, at)
    return output


class _Window(NamedTuple):
    """A window over queries (G, L, E) and keys (G, X + L, E), of which X global ones come first.

    Attributes:
        left: How many keys before its own a query attends to.
        right: How many after it.
        scale: Factor of the products.
        beside: For the queries of a block and the keys from the first in any of their windows on:
            0 in the window, -inf beside it.
        hidden: Keys that do not count in the window: padding, and global ones.
        since: The first query that attends to a global key; L: none does.
        empty: Queries that attend to nothing.
    """

    left: int
    right: int
    scale: float
    beside: Float[Tensor, "Q K"]
    hidden: Bool[Tensor, "G L"] | None = None
    since: Int[Tensor, "G X"] | None = None
    empty: Bool[Tensor, "G L"] | None = None

    @property
    def extra(self) -> int:
        """How many global keys there are, X."""
        return 0 if self.since is None else self.since.shape[1]

    def groups(self, query: Float[Tensor, "G L E"]) -> Iterator[tuple[slice, "_Window"]]:
        """As many rows at a time as have their scores in the cache, and their window."""
        block, reach = self.beside.shape
        scores = block * (min(reach, query.shape[1]) + self.extra)
        narrow = query.dtype.itemsize < 4  # has its widened copies in the cache too
        size = max(1, TILE // (1 + narrow) // scores)
        for start in range(0, len(query), size):
            rows = slice(start, start + size)
            masks = (None if one is None else one[rows] for one in self[4:])
            yield rows, _Window(*self[:4], *masks)

    def blocks(self, query: Float[Tensor, "G L E"]) -> Iterator[tuple[slice, list[slice]]]:
        """Queries of a block, and where their keys are: the global ones, those in their windows."""
        size, length, extra = len(self.beside), query.shape[1], self.extra
        outer = [slice(0, extra)] if extra else []
        for start in range(0, length, size):
            stop = min(length, start + size)
            first, last = max(0, start - self.left), min(length, stop + self.right)
            yield slice(start, stop), [*outer, slice(extra + first, extra + last)]


def _dilated(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    hidden: Bool[Tensor, "B L"] | None,
    at: GlobalPositions | None,
    left: int,
    right: int,
    step: int,
    is_causal: bool,
    scale: float,
) -> Float[Tensor, "B H L Ev"]:
    """The windows of heads with one dilation."""
    batch, heads, length, _ = query.shape
    if hidden is None and length % step:
        hidden = torch.zeros(batch, length, dtype=torch.bool, device=query.device)
    if hidden is not None:
        spread = hidden[:, None, :, None].expand(-1, heads, -1, -1)
        hidden = _every(spread, step, filler=True).squeeze(-1)  # (G, l)
    rows = [_every(one, step) for one in (query, key, value)]
    since = None
    if at is not None:
        first = torch.zeros_like(at.places)[:, None].expand(-1, step, -1)  # (B, step, X)
        if is_causal:
            start = torch.arange(step, device=query.device)[:, None]
            first = (at.places[:, None] - start + step - 1).div(step, rounding_mode="floor")
        first = torch.where(at.valid[:, None], first, length)
        since = first[:, None].expand(-1, heads, -1, -1).flatten(0, 2)  # (G, X)
        for number, one in ((1, key), (2, value)):
            outer = take_positions(one, at)[:, :, None].expand(-1, -1, step, -1, -1).flatten(0, 2)
            rows[number] = torch.cat([outer, rows[number]], dim=1)
    block = min(max(FEWEST_QUERIES, (left + right) // 8), MOST_QUERIES, rows[0].shape[1])
    outside = torch.ones(block, block + left + right, dtype=torch.bool, device=query.device)
    outside = outside.tril(-1) | outside.triu(left + right + 1)
    beside = outside.to(widest(query)).masked_fill(outside, -torch.inf)
    empty = None if hidden is None else _empty(hidden, since, left, right)
    window = _Window(left, right, scale, beside, hidden, since, empty)
    if compiling():
        q, k, v = (one.to(beside.dtype) for one in rows)
        found = torch.cat([part for _, part in _forward(q, k, v, window)], dim=1)
    else:
        found = _Band.apply(*rows, window)
    output: Tensor = found.unflatten(0, (batch, heads, step)).transpose(2, 3).flatten(2, 3)
    return output[:, :, :length].to(query.dtype)  # (B, H, L, Ev)


def _every(
    rows: Shaped[Tensor, "B H L E"], step: int, *, filler: float = 0.0
) -> Shaped[Tensor, "G l E"]:
    """Every step-th position as a sequence of its own, all filled up to the same length."""
    if rest := -rows.shape[2] % step:
        rows = F.pad(rows, (0, 0, 0, rest), value=filler)
    return rows.unflatten(2, (-1, step)).transpose(2, 3).flatten(0, 2)


def _empty(
    hidden: Bool[Tensor, "G L"], since: Int[Tensor, "G X"] | None, left: int, right: int
) -> Bool[Tensor, "G L"] | None:
    """Queries that attend to nothing; None where it can be seen that there are none."""
    places = torch.arange(hidden.shape[1], device=hidden.device)
    counts = F.pad((~hidden).long().cumsum(-1), (1, 0))  # (G, L + 1)
    above = (places + right + 1).clamp(max=len(places))
    empty = counts[:, above] == counts[:, (places - left).clamp(min=0)]  # (G, L)
    if since is not None:
        empty = empty & (since.amin(-1, keepdim=True) > places)
    return empty if not has_values(empty) or empty.any() else None


def _weights(
    query: Float[Tensor, "G Q E"],
    key: Float[Tensor, "G S E"],
    window: _Window,
    queries: slice,
    parts: list[slice],
) -> Float[Tensor, "G Q XK"]:
    """The weights of a block: of global keys, if there are any, then of those in its windows."""
    keys = slice(parts[-1].start - window.extra, parts[-1].stop - window.extra)
    scores = _products(query, key, parts)
    outside, inside = scores[:, :, : window.extra], scores[:, :, window.extra :]
    before = keys.start - queries.start + window.left
    inside.add_(window.beside[: query.shape[1], before : before + inside.shape[2]])
    if window.hidden is not None:
        inside.masked_fill_(window.hidden[:, None, keys], -torch.inf)
    if window.since is not None:
        at = torch.arange(queries.start, queries.stop, device=query.device)[:, None]
        outside.masked_fill_(window.since[:, None] > at, -torch.inf)
    weights = torch.softmax(scores, -1, out=None if compiling() else scores)
    if window.empty is not None:
        weights = weights.masked_fill(window.empty[:, queries, None], 0.0)
    return weights


def _products(
    rows: Float[Tensor, "G Q E"], others: Float[Tensor, "G S E"], parts: list[slice]
) -> Float[Tensor, "G Q XK"]:
    """The products of a block's rows with the others in all parts."""
    found = [rows @ others[:, part].mT for part in parts]
    return found[0] if len(found) == 1 else torch.cat(found, dim=-1)


def _mixed(
    weights: Float[Tensor, "G Q XK"], rows: Float[Tensor, "G S E"], parts: list[slice]
) -> Float[Tensor, "G Q E"]:
    """The rows in all parts, mixed by a block's weights."""
    *outer, inside = _each(weights, parts)
    found = inside @ rows[:, parts[-1]]
    return found + outer[0] @ rows[:, parts[0]] if outer else found


def _each(weights: Float[Tensor, "G Q XK"], parts: list[slice]) -> tuple[Tensor, ...]:
    """The columns of each part."""
    return weights.split([part.stop - part.start for part in parts], dim=-1)


def _forward(
    query: Tensor, key: Tensor, value: Tensor, window: _Window
) -> Iterator[tuple[slice, Float[Tensor, "G Q Ev"]]]:
    """The output, block by block: scores, their softmax, the mean of the values."""
    for queries, parts in window.blocks(query):
        scaled = query[:, queries] * window.scale
        yield queries, _mixed(_weights(scaled, key, window, queries, parts), value, parts)


class _Band(torch.autograd.Function):
    """Keeps the inputs only; the backward pass computes the weights of each block again."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, window: _Window) -> Tensor:
        ctx.window = window
        ctx.save_for_backward(query, key, value)
        output = query.new_empty(*query.shape[:2], value.shape[-1])
        for rows, some in window.groups(query):
            q, k, v = (one[rows].to(window.beside.dtype) for one in (query, key, value))
            for queries, found in _forward(q, k, v, some):
                output[rows, queries] = found
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, window, wide = ctx.saved_tensors, ctx.window, ctx.window.beside.dtype
        if torch.is_grad_enabled():
            return (*second_order(partial(_equation, window), inputs, grad), None)
        sums = [torch.zeros_like(one, dtype=wide) for one in inputs]  # rounded once
        for rows, some in window.groups(grad):
            query, key, value, upstream = (one[rows].to(wide) for one in (*inputs, grad))
            dquery, dkey, dvalue = (one[rows] for one in sums)
            for queries, parts in some.blocks(query):
                q, g = query[:, queries] * window.scale, upstream[:, queries]
                weights, slope = _weights(q, key, some, queries, parts), _products(g, value, parts)
                # through the softmax: w (dw - sum w dw)
                torch.ops.aten._softmax_backward_data.out(
                    slope, weights, -1, wide, grad_input=slope
                )
                dquery[:, queries] = _mixed(slope, key, parts) * window.scale
                for part, s, w in zip(
                    parts, _each(slope, parts), _each(weights, parts), strict=True
                ):
                    dkey[:, part].baddbmm_(s.mT, q)
                    dvalue[:, part].baddbmm_(w.mT, g)
                del weights, slope, s, w  # before the next block takes as much
        return (*(one.to(grad.dtype) for one in sums), None)


def _equation(
    window: _Window, query: Tensor, key: Tensor, value: Tensor
) -> Float[Tensor, "G L Ev"]:
    """The same from all L x (X + L) scores."""
    at = torch.arange(query.shape[1], device=query.device)
    behind = at[:, None] - at
    mask = ((behind <= window.left) & (behind >= -window.right)).expand(len(query), -1, -1)
    if window.hidden is not None:
        mask = mask & ~window.hidden[:, None]
    if window.since is not None:
        mask = torch.cat([window.since[:, None] <= at[:, None], mask], -1)
    attend = scaled_dot_product_attention.__wrapped__  # type: ignore[attr-defined]
    return attend(query, key, value, mask, scale=window.scale)
