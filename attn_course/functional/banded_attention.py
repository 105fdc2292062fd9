"""Attention to near keys, and to a few far ones, without the scores of all the others.

A block of queries looks at the keys that its band touches: one product for the scores, a softmax,
one product with the values. The backward pass computes the weights of a block again, so neither
pass holds more of them than one block has. Nothing is copied into chunks, and a dilation only
strides over the rows. Measured by ``benchmarks/banded_attention.py``.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable

from attn_course._checks import check_axes, check_device, check_floating, compiling
from attn_course.functional.scaled_dot_product import scaled_dot_product_attention

# scores held at a time: in float32 0.6 MB, what the cache of one core keeps
TILE = 150_000
# queries of a block: an eighth of the window, so that few scores beside the band are computed
FEWEST_QUERIES, MOST_QUERIES = 32, 64
# blocks of half precision that are widened together
WIDENED_BLOCKS = 6


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
) -> Float[Tensor, "B Hq L Ev"]:
    r"""Scaled dot-product attention inside a window, plus chosen global positions.

    .. math:: o_i = \sum_{j \in S_i} \frac{e^{q_i \cdot k_j / \sqrt E}}{\sum_{j' \in S_i}
       e^{q_i \cdot k_{j'} / \sqrt E}}\, v_j, \qquad
       S_i = \{ j : \mathrm{window}(i, j) \lor g_i \lor g_j \}

    Beltagy et al. (2020): sliding window, dilated sliding window and global attention. The window
    is that of :func:`attn_course.functional.window_pattern`, and the result that of full attention
    under its mask. Time grows with L·W, not with L²; the backward pass computes the weights again
    instead of keeping them, so that memory grows with L alone.

    Args:
        query: What is looked for, one row per position.
        key: What it is compared with.
        value: What is mixed.
        attn_mask: Padding: True = a key that counts, with axes ``(B or 1, 1, 1, L)``. Other masks
            are refused.
        window_size: How many keys a query sees, itself included; odd if not causal.
        dilation: Distance of neighbours in the window; a list has one for each query head.
        is_causal: Whether a query sees only keys up to its own, global ones included.
        global_mask: Positions that see all and are seen by all; padding among them is not.
        symmetric: False: global positions are seen by all, but see their window only.
        scale: What the dot products are multiplied with; 1/sqrt(E) if not given.
        dropout_p: Refused unless 0.
        enable_gqa: Query heads are a multiple of the key heads.

    Returns:
        One row for each query, 0 where every key in sight is padding. Padding does not matter, NaN
        included.

    Raises:
        ValueError: If the window is empty or, where not causal, even; if a dilation is not
            positive, sizes do not fit, or something is asked for that only a full mask can do.

    Note:
        Compiled, exported or mapped by vmap, blocks become plain operations. A ``global_mask`` then
        costs L² scores: full attention under the dense mask is traced, as the number of global
        positions is not known. Where they are known beforehand, :func:`sparse_attention` under
        ``window_pattern(...) | global_pattern(...)`` compiles to work that grows with L·(W + G).
        *Differs from torch*: queries and keys are the same positions; no second derivative.
    """
    query, key, value = check_heads(query, key, value, dropout_p, enable_gqa, what="a band")
    dilations = _dilations(dilation, query.shape[1])
    left, right = window_sides(window_size, is_causal)
    real = padding_alone(attn_mask, query, "the window")
    if global_mask is not None:
        check_global_mask(global_mask, query)
    scale = float(query.shape[-1]) ** -0.5 if scale is None else scale
    if real is not None:
        hidden = ~real[:, None, :, None]
        key, value = key.masked_fill(hidden, 0.0), value.masked_fill(hidden, 0.0)
    if not query.numel() or not value.numel():
        return query.new_zeros(*query.shape[:3], value.shape[-1]) + 0 * query.sum()
    if global_mask is not None and real is not None:
        global_mask = global_mask & real
    if compiling():
        if global_mask is None:
            return _traced(query, key, value, real, left, right, dilations, scale)
        mask = _dense(query, real, global_mask, left, right, dilations, is_causal, symmetric)
        return scaled_dot_product_attention(query, key, value, mask, scale=scale)
    if global_mask is None or not global_mask.any():
        return _band(query, key, value, None, real, left, right, dilations, is_causal, scale)
    chosen = global_positions(global_mask)
    output = _band(query, key, value, chosen, real, left, right, dilations, is_causal, scale)
    if symmetric:
        rows = take_positions(query, chosen)  # (B, H, G, E)
        found = attend_globally(rows, key, value, chosen, real, is_causal=is_causal, scale=scale)
        output = put_positions(output, found, chosen)
    return output


class GlobalPositions(NamedTuple):
    """Where the global positions of each row of a batch stand.

    Attributes:
        places: Positions, those of shorter rows filled up with 0.
        valid: False where filled up.
    """

    places: Int[Tensor, "B G"]
    valid: Bool[Tensor, "B G"]


def global_positions(global_mask: Bool[Tensor, "B L"]) -> GlobalPositions:
    """The positions where a mask is True, row by row."""
    most = int(global_mask.sum(-1).max()) if global_mask.numel() else 0
    order = global_mask.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    valid = global_mask.gather(-1, order)[:, :most]
    return GlobalPositions(order[:, :most] * valid, valid)


def take_positions(rows: Float[Tensor, "B H L E"], at: GlobalPositions) -> Float[Tensor, "B H G E"]:
    """The rows of the global positions."""
    index = at.places[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[-1])
    return rows.gather(2, index)


def put_positions(
    rows: Float[Tensor, "B H L E"], found: Float[Tensor, "B H G E"], at: GlobalPositions
) -> Float[Tensor, "B H L E"]:
    """The rows with those of the global positions replaced, in place."""
    example, slot = at.valid.nonzero(as_tuple=True)
    by_position = rows.transpose(1, 2)
    by_position[example, at.places[example, slot]] = found.transpose(1, 2)[example, slot]
    return rows


def attend_globally(
    query: Float[Tensor, "B H G E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    at: GlobalPositions,
    real: Bool[Tensor, "B L"] | None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Float[Tensor, "B H G Ev"]:
    """Full attention of a few queries, which stand at given positions, to all keys."""
    mask = None if real is None else real[:, None, None]  # (B, 1, 1, L)
    if is_causal:
        past = torch.arange(key.shape[2], device=key.device) <= at.places[..., None]
        mask = past[:, None] if mask is None else mask & past[:, None]  # (B, 1, G, L)
    return scaled_dot_product_attention(query, key, value, mask, scale=scale)


def window_sides(window_size: int, is_causal: bool) -> tuple[int, int]:
    """How many keys a query sees before itself, and how many after.

    Raises:
        ValueError: If the window is empty or, where not causal, even.
    """
    if window_size < 1 or not (is_causal or window_size % 2):
        kind = "a positive number" if is_causal else "an odd positive number"
        raise ValueError(f"window_size: expected {kind}, got {window_size}")
    return (window_size - 1, 0) if is_causal else ((window_size - 1) // 2,) * 2


def check_global_mask(global_mask: object, query: Shaped[Tensor, "B H L E"]) -> None:
    """Refuse what is not one boolean for each position."""
    expected = (query.shape[0], query.shape[2])
    if not isinstance(global_mask, Tensor) or global_mask.dtype != torch.bool:
        kind = global_mask.dtype if isinstance(global_mask, Tensor) else type(global_mask).__name__
        raise ValueError(f"global_mask: expected a boolean tensor, got {kind}")
    if global_mask.shape != expected:
        raise ValueError(f"global_mask: expected shape {expected}, got {tuple(global_mask.shape)}")
    check_device("global_mask", global_mask, query)


def check_heads(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, enable_gqa: bool, *, what: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with as many heads, after a look at all of them."""
    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_axes(name, rows, "B H L E")
        check_floating(name, rows)
        check_device(name, rows, query)
        if rows.dtype != query.dtype:
            raise ValueError(f"{name}: expected {query.dtype} as the query, got {rows.dtype}")
    if dropout_p:
        raise ValueError(f"dropout_p: expected 0, {what} has none, got {dropout_p}")
    (batch, heads, length, dim), kv_heads = query.shape, key.shape[1]
    if heads != kv_heads and (not enable_gqa or not kv_heads or heads % kv_heads):
        raise ValueError(f"key: expected {heads} heads on axis 1, got {kv_heads}")
    for name, rows, last in (("key", key, dim), ("value", value, value.shape[-1])):
        expected = (batch, kv_heads, length, last)
        if tuple(rows.shape) != expected:
            raise ValueError(f"{name}: expected shape {expected}, got {tuple(rows.shape)}")
    if heads != kv_heads:
        key, value = (rows.repeat_interleave(heads // kv_heads, dim=1) for rows in (key, value))
    return query, key, value


def _dilations(dilation: int | Sequence[int], heads: int) -> list[int]:
    """One dilation for each head."""
    each = [dilation] * heads if isinstance(dilation, int) else [int(one) for one in dilation]
    if len(each) != heads:
        raise ValueError(f"dilation: expected one for each of {heads} heads, got {len(each)}")
    if each and min(each) < 1:
        raise ValueError(f"dilation: expected positive numbers, got {dilation}")
    return each


def padding_alone(
    attn_mask: Tensor | None, query: Tensor, instead: str
) -> Bool[Tensor, "B L"] | None:
    """Which keys count, from a mask that says no more than that."""
    if attn_mask is None:
        return None
    batch, _, length, _ = query.shape
    padding = isinstance(attn_mask, Tensor) and attn_mask.dtype == torch.bool
    if not padding or attn_mask.shape not in ((batch, 1, 1, length), (1, 1, 1, length)):
        got = tuple(attn_mask.shape) if isinstance(attn_mask, Tensor) else type(attn_mask).__name__
        raise ValueError(
            f"attn_mask: expected a boolean padding mask of shape {(batch, 1, 1, length)}, "
            f"got {got}: {instead} stands for the rest"
        )
    check_device("attn_mask", attn_mask, query)
    return attn_mask[:, 0, 0].expand(batch, -1)


class _Shape(NamedTuple):
    """One problem: the same window for all rows; positions are ``first + step * row``."""

    left: int
    right: int
    step: int
    first: int
    is_causal: bool
    scale: float


class _Seen(NamedTuple):
    """What a row of keys may show, for each problem on its own.

    Attributes:
        closed: Keys of the band that nobody sees there: padding, and global ones.
        empty: Queries that see no key at all.
        shut: Global keys of other examples, which only fill up.
        at: Where the global keys stand.
    """

    closed: Bool[Tensor, "G L"] | None
    empty: Bool[Tensor, "G L"] | None
    shut: Bool[Tensor, "G X"] | None
    at: Int[Tensor, "G X"] | None


def _band(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    chosen: GlobalPositions | None,
    real: Bool[Tensor, "B L"] | None,
    left: int,
    right: int,
    dilations: list[int],
    is_causal: bool,
    scale: float,
) -> Tensor:
    """The rows of the band, with global keys beside it."""
    if query.shape[0] > 1:  # else batch and heads are no single axis
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    closed = None if real is None else ~real
    extra = None
    if chosen is not None:
        extra = (take_positions(key, chosen), take_positions(value, chosen))
        inside = torch.zeros(query.shape[0], query.shape[2], dtype=torch.int8, device=query.device)
        inside = inside.scatter_add(1, chosen.places, chosen.valid.to(torch.int8)) > 0
        closed = inside if closed is None else closed | inside
    extra_key, extra_value = extra if extra is not None else (None, None)
    output: Tensor = _Band.apply(
        query, key, value, extra_key, extra_value,
        closed, chosen, (left, right, dilations, is_causal, scale),
    )  # fmt: skip
    return output


class _Band(torch.autograd.Function):
    """Keeps the inputs only; the backward pass computes the weights of each block again."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        extra_key: Tensor | None,
        extra_value: Tensor | None,
        closed: Tensor | None,
        chosen: GlobalPositions | None,
        window: tuple[int, int, list[int], bool, float],
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, extra_key, extra_value)
        ctx.closed, ctx.chosen, ctx.window = closed, chosen, window
        output = query.new_empty(*query.shape[:3], value.shape[-1])
        inputs = (query, key, value, extra_key, extra_value, output)
        for problem in _problems(inputs, closed, chosen, window):
            _forward(*problem)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, extra_key, extra_value = ctx.saved_tensors
        wide = torch.promote_types(query.dtype, torch.float32)
        # sums over blocks: rounded once
        sums = [
            None if rows is None else rows.new_zeros(rows.shape, dtype=wide)
            for rows in (key, value, extra_key, extra_value)
        ]
        grad_query = torch.empty_like(query, memory_format=torch.contiguous_format)
        if query.shape[0] > 1:
            grad = grad.contiguous()
        inputs = (query, key, value, extra_key, extra_value, grad, grad_query, *sums)
        for problem in _problems(inputs, ctx.closed, ctx.chosen, ctx.window):
            _backward(*problem)
        grads = (None if one is None else one.to(query.dtype) for one in sums)
        return (grad_query, *grads, None, None, None)


def _problems(
    inputs: tuple[Tensor | None, ...],
    closed: Tensor | None,
    chosen: GlobalPositions | None,
    window: tuple[int, int, list[int], bool, float],
) -> Iterator[tuple[Any, ...]]:
    """Plain windows: of the heads with one dilation, the positions that see each other.

    Each holds the inputs' parts, what is out of sight, and the shape. All parts are views, so that
    what is written into them arrives. ``inputs`` 3 and 4, and the last two of more than six, belong
    to global keys, which every problem sees whole.
    """
    left, right, dilations, is_causal, scale = window
    query = inputs[0]
    assert query is not None
    for dilation in sorted(set(dilations)):
        heads = [head for head, own in enumerate(dilations) if own == dilation]
        for run in _runs(heads):
            whole = run.stop - run.start == len(dilations)
            for example in _examples(query, whole):
                for first in range(min(dilation, query.shape[2])):
                    parts: list[Any] = []
                    for number, rows in enumerate(inputs):
                        if rows is None:
                            parts.append(None)
                            continue
                        some = rows[example, run]
                        if number not in (3, 4, 9, 10):
                            some = some[:, :, first::dilation]
                        parts.append(some.view(-1, *some.shape[2:]))  # (B H, L, E)
                    shape = _Shape(left, right, dilation, first, is_causal, scale)
                    size = run.stop - run.start
                    yield *parts, _seen(closed, chosen, example, size, shape), shape


def _runs(heads: list[int]) -> Iterator[slice]:
    """Neighbouring heads together."""
    start = 0
    for stop in range(1, len(heads) + 1):
        if stop == len(heads) or heads[stop] != heads[stop - 1] + 1:
            yield slice(heads[start], heads[stop - 1] + 1)
            start = stop


def _examples(query: Tensor, whole: bool) -> Iterator[slice]:
    """All examples at once where batch and heads are one axis in memory, else one by one."""
    together = whole or query.shape[0] == 1
    yield from [slice(None)] if together else (slice(b, b + 1) for b in range(query.shape[0]))


def _seen(
    closed: Tensor | None,
    chosen: GlobalPositions | None,
    example: slice,
    heads: int,
    shape: _Shape,
) -> _Seen:
    """Which keys are out of sight, for every row of a problem."""
    if closed is None:
        return _Seen(None, None, None, None)
    closed = closed[example, shape.first :: shape.step]
    counts = torch.nn.functional.pad((~closed).long().cumsum(-1), (1, 0))  # (B, L + 1)
    places = torch.arange(closed.shape[1], device=closed.device)
    above = (places + shape.right + 1).clamp(max=len(places))
    empty = counts[:, above] == counts[:, (places - shape.left).clamp(min=0)]  # (B, L)
    shut = at = None
    if chosen is not None:
        shut, at = ~chosen.valid[example], chosen.places[example]
        far = shut[:, None]  # (B, 1, X)
        if shape.is_causal:
            far = far | (at[:, None] > (places * shape.step + shape.first)[:, None])
        empty = empty & far.all(-1)
        shut, at = (one.repeat_interleave(heads, 0) for one in (shut, at))
    closed = closed.repeat_interleave(heads, 0)
    rows = empty.repeat_interleave(heads, 0) if bool(empty.any()) else None
    return _Seen(closed, rows, shut, at)


class _Sizes(NamedTuple):
    """How a problem is cut: queries of a block, those widened together, rows of the batch."""

    block: int
    widened: int
    rows: int


def _sizes(query: Float[Tensor, "G L E"], shape: _Shape, extra: int) -> _Sizes:
    """Blocks whose scores fit into the cache."""
    length, span = query.shape[1], shape.left + shape.right
    block = min(max(FEWEST_QUERIES, span // 8), MOST_QUERIES, length)
    area = block * (min(block + span, length) + extra)
    narrow = query.dtype.itemsize < 4
    # half precision has its widened copies in the cache too
    rows = max(1, TILE // area // (2 if narrow else 1))
    return _Sizes(block, block * WIDENED_BLOCKS if narrow else length, min(rows, len(query)))


def _pieces(
    query: Float[Tensor, "G L E"], shape: _Shape, sizes: _Sizes
) -> Iterator[tuple[slice, slice, slice]]:
    """Rows of the batch, queries that are widened together, and the keys these see."""
    count, length = query.shape[:2]
    for row in range(0, count, sizes.rows):
        rows = slice(row, min(count, row + sizes.rows))
        for start in range(0, length, sizes.widened):
            stop = min(length, start + sizes.widened)
            keys = slice(max(0, start - shape.left), min(length, stop + shape.right))
            yield rows, slice(start, stop), keys


def _blocks(
    queries: slice, length: int, shape: _Shape, block: int
) -> Iterator[tuple[slice, slice]]:
    """Blocks of queries, and the keys of their band."""
    for start in range(queries.start, queries.stop, block):
        stop = min(queries.stop, start + block)
        yield (
            slice(start, stop),
            slice(max(0, start - shape.left), min(length, stop + shape.right)),
        )


def _within(part: slice, whole: slice) -> slice:
    """The same positions, counted from the start of another slice."""
    return slice(part.start - whole.start, part.stop - whole.start)


class _Widened:
    """Rows in the dtype of the sums: themselves, or a copy in a place that is used again."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.places: dict[str, Tensor] = {}

    def empty(self, name: str, like: Float[Tensor, "G L E"]) -> Float[Tensor, "G L E"]:
        """Room for as many rows."""
        if like.dtype == self.dtype:
            return like
        place = self.places.get(name)
        if place is None or place.numel() < like.numel():
            place = self.places[name] = like.new_empty(like.numel(), dtype=self.dtype)
        return place[: like.numel()].view(like.shape)

    def __call__(self, name: str, rows: Float[Tensor, "G L E"]) -> Float[Tensor, "G L E"]:
        """The same numbers."""
        return rows if rows.dtype == self.dtype else self.empty(name, rows).copy_(rows)


def _corner(block: int, like: Tensor) -> Float[Tensor, "Q Q"]:
    """``-inf`` below the diagonal: what a block computes before the window of its later queries."""
    return torch.full((block, block), -torch.inf, dtype=like.dtype, device=like.device).tril(-1)


def _weights(
    scores: Float[Tensor, "G Q XK"],
    query: Float[Tensor, "G Q E"],
    key: Float[Tensor, "G K E"],
    extra_key: Float[Tensor, "G X E"] | None,
    corner: Float[Tensor, "P P"],
    rows: slice,
    queries: slice,
    keys: slice,
    seen: _Seen,
    shape: _Shape,
) -> Float[Tensor, "G Q XK"]:
    """The softmax of a block, in place of ``scores``: global keys first, then the band."""
    extra = 0 if extra_key is None else extra_key.shape[1]
    band = scores[:, :, extra:]
    band.baddbmm_(query, key.mT, beta=0, alpha=shape.scale)
    # the band is a parallelogram: two corners of the rectangle lie beside it
    count, before = query.shape[1], keys.start - (queries.start - shape.left)
    if before < count - 1:
        band[:, :, : count - before].add_(corner[:count, before:count])
    beyond = queries.start + shape.right
    if beyond < keys.stop - 1:
        band[:, :, beyond - keys.start :].add_(corner.mT[:count, : keys.stop - beyond])
    if seen.closed is not None:
        band.masked_fill_(seen.closed[rows, None, keys], -torch.inf)
    if extra_key is not None:
        assert seen.shut is not None
        assert seen.at is not None
        far = scores[:, :, :extra]
        far.baddbmm_(query, extra_key.mT, beta=0, alpha=shape.scale)
        shut = seen.shut[rows, None]  # (G, 1, X)
        if shape.is_causal:
            places = torch.arange(queries.start, queries.stop, device=query.device)
            places = places * shape.step + shape.first
            shut = shut | (seen.at[rows, None] > places[:, None])  # (G, Q, X)
        far.masked_fill_(shut, -torch.inf)
    torch.softmax(scores, -1, out=scores)
    if seen.empty is not None:
        scores.masked_fill_(seen.empty[rows, queries, None], 0.0)
    return scores


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    extra_key: Tensor | None,
    extra_value: Tensor | None,
    output: Tensor,
    seen: _Seen,
    shape: _Shape,
) -> None:
    """Fill ``output``; all arguments have axes (G, L, E)."""
    wide = torch.promote_types(query.dtype, torch.float32)
    extra = 0 if extra_key is None else extra_key.shape[1]
    sizes = _sizes(query, shape, extra)
    length, reach = query.shape[1], sizes.block + shape.left + shape.right
    buffer = query.new_empty(sizes.rows * sizes.block * (min(reach, length) + extra), dtype=wide)
    corner, widened = _corner(sizes.block, buffer), _Widened(wide)
    for rows, queries, keys in _pieces(query, shape, sizes):
        q, k = widened("q", query[rows, queries]), widened("k", key[rows, keys])
        v = widened("v", value[rows, keys])
        far_k, far_v = (
            None if one is None else one[rows].to(wide) for one in (extra_key, extra_value)
        )
        target = output[rows, queries]
        found = widened.empty("found", target)
        for block, near in _blocks(queries, length, shape, sizes.block):
            here, there = _within(block, queries), _within(near, keys)
            size = (len(q), block.stop - block.start, extra + near.stop - near.start)
            scores = buffer[: size[0] * size[1] * size[2]].view(size)
            weights = _weights(
                scores, q[:, here], k[:, there], far_k, corner, rows, block, near, seen, shape
            )
            torch.bmm(weights[:, :, extra:], v[:, there], out=found[:, here])
            if far_v is not None:
                found[:, here].baddbmm_(weights[:, :, :extra], far_v)
        if found is not target:
            target.copy_(found)


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    extra_key: Tensor | None,
    extra_value: Tensor | None,
    grad: Tensor,
    grad_query: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    grad_extra_key: Tensor | None,
    grad_extra_value: Tensor | None,
    seen: _Seen,
    shape: _Shape,
) -> None:
    """Fill ``grad_query``, and add to the other gradients, which are sums over blocks."""
    wide = grad_key.dtype
    extra = 0 if extra_key is None else extra_key.shape[1]
    sizes = _sizes(query, shape, extra)
    length, reach = query.shape[1], sizes.block + shape.left + shape.right
    room = sizes.rows * sizes.block * (min(reach, length) + extra)
    buffer, slopes = (query.new_empty(room, dtype=wide) for _ in range(2))
    corner, widened = _corner(sizes.block, buffer), _Widened(wide)
    for rows, queries, keys in _pieces(query, shape, sizes):
        q, k = widened("q", query[rows, queries]), widened("k", key[rows, keys])
        v = widened("v", value[rows, keys])
        far_k, far_v = (
            None if one is None else one[rows].to(wide) for one in (extra_key, extra_value)
        )
        g = widened("g", grad[rows, queries])
        target = grad_query[rows, queries]
        found = widened.empty("found", target)
        for block, near in _blocks(queries, length, shape, sizes.block):
            here, there = _within(block, queries), _within(near, keys)
            size = (len(q), block.stop - block.start, extra + near.stop - near.start)
            scores, slope = (
                one[: size[0] * size[1] * size[2]].view(size) for one in (buffer, slopes)
            )
            q_block, k_block, g_block = q[:, here], k[:, there], g[:, here]
            weights = _weights(
                scores, q_block, k_block, far_k, corner, rows, block, near, seen, shape
            )
            grad_value[rows, near].baddbmm_(weights[:, :, extra:].mT, g_block)
            torch.bmm(g_block, v[:, there].mT, out=slope[:, :, extra:])
            if far_v is not None:
                assert grad_extra_value is not None
                grad_extra_value[rows].baddbmm_(weights[:, :, :extra].mT, g_block)
                torch.bmm(g_block, far_v.mT, out=slope[:, :, :extra])
            # through the softmax: w (dw - sum w dw)
            torch.ops.aten._softmax_backward_data.out(slope, weights, -1, wide, grad_input=slope)
            found_block = found[:, here]
            found_block.baddbmm_(slope[:, :, extra:], k_block, beta=0, alpha=shape.scale)
            grad_key[rows, near].baddbmm_(slope[:, :, extra:].mT, q_block, alpha=shape.scale)
            if far_k is not None:
                assert grad_extra_key is not None
                found_block.baddbmm_(slope[:, :, :extra], far_k, alpha=shape.scale)
                grad_extra_key[rows].baddbmm_(slope[:, :, :extra].mT, q_block, alpha=shape.scale)
        if found is not target:
            target.copy_(found)


def _traced(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    real: Bool[Tensor, "B L"] | None,
    left: int,
    right: int,
    dilations: list[int],
    scale: float,
) -> Float[Tensor, "B H L Ev"]:
    """The same blocks in plain operations, which a compiler can see through."""
    length, wide = query.shape[2], torch.promote_types(query.dtype, torch.float32)
    per_head = []
    for head, dilation in enumerate(dilations):
        rows = [one[:, head] for one in (query, key, value)]
        found, places = [], []
        for first in range(min(dilation, length)):
            q, k, v = (one[:, first::dilation] for one in rows)  # (B, l, E)
            block = min(MOST_QUERIES, q.shape[1])
            for start in range(0, q.shape[1], block):
                stop = min(q.shape[1], start + block)
                near = slice(max(0, start - left), min(q.shape[1], stop + right))
                i = torch.arange(start, stop, device=query.device)[:, None]
                j = torch.arange(near.start, near.stop, device=query.device)
                shown = (j >= i - left) & (j <= i + right)
                if real is not None:
                    shown = shown & real[:, None, first::dilation][:, :, near]
                scores = q[:, start:stop].to(wide) @ k[:, near].to(wide).mT * scale
                empty = ~shown.any(-1, keepdim=True)
                weights = scores.masked_fill(~shown & ~empty, -torch.inf).softmax(-1)
                found.append(weights.masked_fill(empty, 0.0) @ v[:, near].to(wide))
            places.append(torch.arange(first, length, dilation, device=query.device))
        order = torch.cat(places).argsort()
        per_head.append(torch.cat(found, dim=1)[:, order])
    return torch.stack(per_head, dim=1).to(query.dtype)


def _dense(
    query: Tensor,
    real: Bool[Tensor, "B L"] | None,
    global_mask: Bool[Tensor, "B L"],
    left: int,
    right: int,
    dilations: list[int],
    is_causal: bool,
    symmetric: bool,
) -> Bool[Tensor, "B H L L"]:
    """The mask of the whole pattern, for a compiler that does not know how many are global."""
    places = torch.arange(query.shape[2], device=query.device)
    away = places - places[:, None]  # (L, L), key minus query
    step = torch.tensor(dilations, device=query.device)[:, None, None]
    near = (away >= -left * step) & (away <= right * step) & (away % step == 0)  # (H, L, L)
    far = global_mask[:, None, None, :]
    if symmetric:
        far = far | global_mask[:, None, :, None]
    mask = near | far
    if is_causal:
        mask = mask & (away <= 0)
    return mask if real is None else mask & real[:, None, None, :]
