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


class _Rows(NamedTuple):
    """The inputs, heads and examples on one axis, or their gradients."""

    query: Float[Tensor, "G L E"]
    key: Float[Tensor, "G L E"]
    value: Float[Tensor, "G L Ev"]
    global_key: Float[Tensor, "G X E"] | None = None
    global_value: Float[Tensor, "G X Ev"] | None = None

    @property
    def extra(self) -> int:
        """How many global keys there are, X."""
        return 0 if self.global_key is None else self.global_key.shape[1]

    def of(self, rows: slice) -> "_Rows":
        """Some of the rows."""
        return _Rows(*(None if one is None else one[rows] for one in self))  # type: ignore[arg-type]

    def to(self, dtype: torch.dtype) -> "_Rows":
        """All in this dtype."""
        return _Rows(*(None if one is None else one.to(dtype) for one in self))  # type: ignore[arg-type]

    def scores(self, window: "_Window") -> int:
        """How many scores a block of one row has."""
        block, reach = window.beside.shape
        return block * (min(reach, self.query.shape[1]) + self.extra)

    def room(self, window: "_Window") -> Float[Tensor, " N"]:
        """Memory for the scores of any block, used again for the next."""
        return self.query.new_empty(len(self.query) * self.scores(window))


class _Window(NamedTuple):
    """A window over rows (G, L, E), and what does not count in it.

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

    def hiding(self, hidden: Tensor, since: Tensor | None) -> "_Window":
        """The same window where some keys do not count."""
        places = torch.arange(hidden.shape[1], device=hidden.device)
        counts = F.pad((~hidden).long().cumsum(-1), (1, 0))  # (G, L + 1)
        above = (places + self.right + 1).clamp(max=len(places))
        empty = counts[:, above] == counts[:, (places - self.left).clamp(min=0)]  # (G, L)
        if since is not None:
            empty = empty & (since.amin(-1, keepdim=True) > places)
        some = not has_values(empty) or empty.any()
        return self._replace(hidden=hidden, since=since, empty=empty if some else None)

    def of(self, rows: slice) -> "_Window":
        """For some of the rows."""
        masks = (self.hidden, self.since, self.empty)
        return _Window(*self[:4], *(None if one is None else one[rows] for one in masks))


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
    rows = _Rows(*(_every(one, step) for one in (query, key, value)))
    since = None
    if at is not None:
        first = torch.zeros_like(at.places)[:, None].expand(-1, step, -1)  # (B, step, X)
        if is_causal:
            start = torch.arange(step, device=query.device)[:, None]
            first = (at.places[:, None] - start + step - 1).div(step, rounding_mode="floor")
        first = torch.where(at.valid[:, None], first, length)
        since = first[:, None].expand(-1, heads, -1, -1).flatten(0, 2)  # (G, X)
        global_key, global_value = (
            take_positions(one, at)[:, :, None].expand(-1, -1, step, -1, -1).flatten(0, 2)
            for one in (key, value)
        )
        rows = rows._replace(global_key=global_key, global_value=global_value)
    block = min(max(FEWEST_QUERIES, (left + right) // 8), MOST_QUERIES, rows.query.shape[1])
    outside = torch.ones(block, block + left + right, dtype=torch.bool, device=query.device)
    outside = outside.tril(-1) | outside.triu(left + right + 1)
    beside = outside.to(widest(query)).masked_fill(outside, -torch.inf)
    window = _Window(left, right, scale, beside)
    if hidden is not None:
        window = window.hiding(hidden, since)
    if compiling():
        found = torch.cat([part for _, part in _forward(rows.to(beside.dtype), window)], dim=1)
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
    every: Tensor = rows.unflatten(2, (-1, step)).transpose(2, 3).flatten(0, 2)
    return every


def _blocks(length: int, window: _Window) -> Iterator[tuple[slice, slice]]:
    """Queries of a block, and the keys in their windows."""
    size = len(window.beside)
    for start in range(0, length, size):
        stop = min(length, start + size)
        keys = slice(max(0, start - window.left), min(length, stop + window.right))
        yield slice(start, stop), keys


def _weights(
    query: Float[Tensor, "G Q E"],
    rows: _Rows,
    window: _Window,
    queries: slice,
    keys: slice,
    room: Float[Tensor, " N"] | None,
) -> Float[Tensor, "G Q XK"]:
    """The weights of a block, global keys first, then its windows; the query is scaled."""
    key, extra = rows.key[:, keys], rows.extra
    if room is None:
        scores = inside = query @ key.mT  # (G, Q, K)
    else:
        scores = _within(room, *query.shape[:2], extra + key.shape[1])
        inside = torch.bmm(query, key.mT, out=scores[:, :, extra:])
    if rows.global_key is not None and window.since is not None:
        at = torch.arange(queries.start, queries.stop, device=query.device)[:, None]
        outer = torch.bmm(query, rows.global_key.mT, out=scores[:, :, :extra])
        outer.masked_fill_(window.since[:, None] > at, -torch.inf)
    # the windows are a parallelogram: two corners of the rectangle lie beside them
    before, count = keys.start - queries.start + window.left, query.shape[1]
    beside = window.beside[:count, before : before + key.shape[1]]
    first, last = max(0, count - before), max(0, window.left + window.right + 1 - before)
    inside[:, :, :first].add_(beside[:, :first])
    inside[:, :, last:].add_(beside[:, last:])
    if window.hidden is not None:
        inside.masked_fill_(window.hidden[:, None, keys], -torch.inf)
    weights = torch.softmax(scores, -1, out=None if room is None else scores)
    if window.empty is None:
        return weights
    empty = window.empty[:, queries, None]
    return weights.masked_fill(empty, 0.0) if room is None else weights.masked_fill_(empty, 0.0)


def _within(room: Float[Tensor, " N"], *shape: int) -> Float[Tensor, "G Q K"]:
    part: Tensor = room[: shape[0] * shape[1] * shape[2]].view(shape)
    return part


def _forward(
    rows: _Rows, window: _Window, place: Float[Tensor, "G L Ev"] | None = None
) -> Iterator[tuple[slice, Float[Tensor, "G Q Ev"]]]:
    """The output, block by block, written into its place if there is one."""
    extra, room = rows.extra, None if compiling() else rows.room(window)
    for queries, keys in _blocks(rows.query.shape[1], window):
        query = rows.query[:, queries] * window.scale
        weights = _weights(query, rows, window, queries, keys, room)
        out = None if place is None else place[:, queries]
        output = torch.bmm(weights[:, :, extra:], rows.value[:, keys], out=out)
        if rows.global_value is not None:
            output += weights[:, :, :extra] @ rows.global_value
        yield queries, output


def _add_gradients(rows: _Rows, window: _Window, grad: Tensor, sums: _Rows) -> None:
    """Fill the query's gradient, and add to the others, which are sums over blocks."""
    extra, room, other = rows.extra, rows.room(window), rows.room(window)
    for queries, keys in _blocks(rows.query.shape[1], window):
        query, upstream = rows.query[:, queries] * window.scale, grad[:, queries]
        weights = _weights(query, rows, window, queries, keys, room)
        slope = _within(other, *weights.shape)
        torch.bmm(upstream, rows.value[:, keys].mT, out=slope[:, :, extra:])
        if rows.global_value is not None:
            torch.bmm(upstream, rows.global_value.mT, out=slope[:, :, :extra])
        # through the softmax: w (dw - sum w dw)
        torch.ops.aten._softmax_backward_data.out(slope, weights, -1, slope.dtype, grad_input=slope)
        torch.bmm(slope[:, :, extra:], rows.key[:, keys], out=sums.query[:, queries])
        sums.key[:, keys].baddbmm_(slope[:, :, extra:].mT, query)
        sums.value[:, keys].baddbmm_(weights[:, :, extra:].mT, upstream)
        if (
            rows.global_key is not None
            and sums.global_key is not None
            and sums.global_value is not None
        ):
            sums.query[:, queries].baddbmm_(slope[:, :, :extra], rows.global_key)
            sums.global_key.baddbmm_(slope[:, :, :extra].mT, query)
            sums.global_value.baddbmm_(weights[:, :, :extra].mT, upstream)
    sums.query.mul_(window.scale)


class _Band(torch.autograd.Function):
    """Keeps the inputs only; the backward pass computes the weights of each block again."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        rows, ctx.window = _Rows(*inputs[:-1]), inputs[-1]
        ctx.save_for_backward(*rows)
        output = rows.query.new_empty(*rows.query.shape[:2], rows.value.shape[-1])
        for part in _parts(rows, ctx.window):
            some = rows.of(part).to(ctx.window.beside.dtype)
            place = output[part] if output.dtype == some.query.dtype else None
            for queries, found in _forward(some, ctx.window.of(part), place):
                if place is None:
                    output[part, queries] = found
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            equation = partial(_equation, ctx.window)
            return (*second_order(equation, ctx.saved_tensors, grad), None)
        rows, wide = _Rows(*ctx.saved_tensors), ctx.window.beside.dtype
        # rounded once
        zeros = (None if one is None else torch.zeros_like(one, dtype=wide) for one in rows)
        sums = _Rows(*zeros)  # type: ignore[arg-type]
        for part in _parts(rows, ctx.window):
            some, window = rows.of(part).to(wide), ctx.window.of(part)
            _add_gradients(some, window, grad[part].to(wide), sums.of(part))
        return (*sums.to(grad.dtype), None)


def _equation(window: _Window, *inputs: Any) -> Float[Tensor, "G L Ev"]:
    """The same from all L x (X + L) scores."""
    query, key, value, *outer = inputs
    at = torch.arange(query.shape[1], device=query.device)
    behind = at[:, None] - at
    mask = ((behind <= window.left) & (behind >= -window.right)).expand(len(query), -1, -1)
    if window.hidden is not None:
        mask = mask & ~window.hidden[:, None]
    if window.since is not None:
        key, value = torch.cat([outer[0], key], 1), torch.cat([outer[1], value], 1)
        mask = torch.cat([window.since[:, None] <= at[:, None], mask], -1)
    attend = scaled_dot_product_attention.__wrapped__  # type: ignore[attr-defined]
    output: Tensor = attend(query, key, value, mask, scale=window.scale)
    return output


def _parts(rows: _Rows, window: _Window) -> Iterator[slice]:
    """As many rows at a time as have their scores in the cache."""
    narrow = rows.query.dtype.itemsize < 4  # has its widened copies in the cache too
    size = max(1, TILE // (1 + narrow) // rows.scores(window))
    for start in range(0, len(rows.query), size):
        yield slice(start, start + size)
