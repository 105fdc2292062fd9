"""Who may attend to whom: one definition for each pattern, and everything that is made of it.

A pattern is a function of batch, head, query position and key position. From it come the dense
mask, which is the oracle, and the ``mask_mod`` of FlexAttention, which is the function itself: so
all paths are compared on the same thing. Patterns join with ``&`` and ``|``. Most also say which
tiles of the table of pairs hold all of theirs: what ``sparse_attention`` computes, and no more.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from attn_course._checks import check_at_least, check_tensor
from attn_course.functional._windows import window_sides

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Index = slice | Tensor
# queries of a tile: few enough that its scores stay in the cache
QUERIES = 64
EVERY_HEAD = slice(None)


class PatternTile(NamedTuple):
    """Some queries, and keys among which are all that they attend to in one part of a pattern.

    Attributes:
        heads: For which heads.
        queries: Their positions.
        keys: Positions of the keys, none twice.
    """

    heads: slice
    queries: Index
    keys: Index


class PatternPart(NamedTuple):
    """Some pairs of a pattern. A query is in at most one tile for each head.

    Attributes:
        mask_mod: Which pairs; no pair is in two parts of a pattern.
        tiles: Makes the tiles that hold them.
    """

    mask_mod: MaskMod
    tiles: Callable[[], Iterator[PatternTile]]


def _positions(index: Index, device: torch.device | str | None = None) -> Int[Tensor, " K"]:
    """The positions of a tile as numbers."""
    if isinstance(index, slice):
        return torch.arange(index.start, index.stop, index.step or 1, device=device)
    return index.to(device)


@dataclass(frozen=True)
class Pattern:
    r"""Which pairs of positions a sparse attention computes.

    .. math:: m_{bhij} = \mathrm{mask\_mod}(b, h, i, j)

    Attributes:
        mask_mod: ``(batch, head, query position, key position)`` to True = may attend, as
            FlexAttention wants it.
        batch: How many examples differ; 1 if none do.
        heads: How many heads differ; 1 if none do.
        parts: From a length to tiles for all pairs; None if the whole table is computed.

    Example:
        >>> pattern = window_pattern(window_size=3) | strided_pattern(stride=8)
        >>> pattern.mask(32).shape
        torch.Size([1, 1, 32, 32])
    """

    mask_mod: MaskMod
    batch: int = 1
    heads: int = 1
    parts: Callable[[int], list[PatternPart]] | None = None

    def mask(
        self, length: int, *, device: torch.device | str | None = None
    ) -> Bool[Tensor, "B H L L"]:
        """The dense mask, ``B`` and ``H`` of size 1 where all are alike.

        Args:
            length: Number of positions.
            device: Where the mask lies.
        """
        b = torch.arange(self.batch, device=device)[:, None, None, None]
        h = torch.arange(self.heads, device=device)[:, None, None]
        i = torch.arange(length, device=device)
        mask = self.mask_mod(b, h, i[:, None], i)
        return mask.expand(self.batch, self.heads, length, length)

    def pairs(self, length: int) -> int:
        """How many pairs of one head and example are computed, the mean of all of them."""
        mask = self.mask(length)
        return round(int(mask.sum()) / (self.batch * self.heads))

    def __and__(self, other: "Pattern") -> "Pattern":
        tiled, more = (other, self) if self.parts is None else (self, other)
        given = tiled.parts

        def parts(length: int) -> list[PatternPart]:
            each = given(length) if given else []
            return [PatternPart(_both(one.mask_mod, more.mask_mod), one.tiles) for one in each]

        return self._joined(other, torch.logical_and, parts if given else None)

    def __or__(self, other: "Pattern") -> "Pattern":
        first, second = self.parts, other.parts

        def parts(length: int) -> list[PatternPart]:
            found, more = (given(length) if given else [] for given in (first, second))
            # what the first pattern has is not counted again
            new = _not(self.mask_mod)
            return found + [PatternPart(_both(one.mask_mod, new), one.tiles) for one in more]

        return self._joined(other, torch.logical_or, parts if first and second else None)

    def _joined(
        self,
        other: "Pattern",
        join: Callable[[Tensor, Tensor], Tensor],
        parts: Callable[[int], list[PatternPart]] | None,
    ) -> "Pattern":
        for name in ("batch", "heads"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs and 1 not in (mine, theirs):
                raise ValueError(f"{name}: expected {mine} as in the other pattern, got {theirs}")
        one, two = self.mask_mod, other.mask_mod
        return Pattern(
            lambda b, h, i, j: join(one(b, h, i, j), two(b, h, i, j)),
            max(self.batch, other.batch),
            max(self.heads, other.heads),
            parts,
        )


def _both(one: MaskMod, two: MaskMod) -> MaskMod:
    return lambda b, h, i, j: one(b, h, i, j) & two(b, h, i, j)


def _not(one: MaskMod) -> MaskMod:
    return lambda b, h, i, j: ~one(b, h, i, j)


def causal_pattern() -> Pattern:
    r"""No query attends to a later key: :math:`j \le i`.

    Example:
        >>> causal_pattern().mask(3)[0, 0].int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    return Pattern(lambda b, h, i, j: j <= i)


def window_pattern(
    *, window_size: int, dilation: int | Sequence[int] = 1, is_causal: bool = False
) -> Pattern:
    r"""Near keys; the pattern of :func:`attn_course.functional.sliding_window_attention`.

    .. math:: m_{ij} = [\, d \mid i - j \,] \cdot \begin{cases}
       [\, 0 \le i - j < W d \,] & \text{causal} \\
       [\, |i - j| \le \tfrac{W - 1}{2}\, d \,] & \text{otherwise}
       \end{cases}

    Beltagy et al. (2020).

    Args:
        window_size: :math:`W`, how many keys a query sees, itself included; odd if not causal.
        dilation: :math:`d`, the distance of neighbours in the window; a list has one for each head.
        is_causal: Whether the window ends at the query.

    Example:
        >>> window_pattern(window_size=3).mask(4)[0, 0].int()
        tensor([[1, 1, 0, 0],
                [1, 1, 1, 0],
                [0, 1, 1, 1],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    left, right = window_sides(window_size, is_causal)
    each = [dilation] if isinstance(dilation, int) else list(dilation)
    if not each or min(each) < 1:
        raise ValueError(f"dilation: expected positive numbers, got {dilation}")
    step = _by_head(each)
    return _of_one_part(
        lambda b, h, i, j: (
            (i - j <= left * step(h)) & (j - i <= right * step(h)) & ((i - j) % step(h) == 0)
        ),
        lambda length: _window_tiles(length, left, right, list(_runs(each))),
        heads=len(each),
    )


def _of_one_part(
    mask_mod: MaskMod, tiles: Callable[[int], Iterator[PatternTile]], *, heads: int = 1
) -> Pattern:
    """A pattern whose tiles hold all of its pairs, from a length to the tiles."""
    return Pattern(
        mask_mod, heads=heads, parts=lambda length: [PatternPart(mask_mod, lambda: tiles(length))]
    )


def _by_head(values: Sequence[int]) -> Callable[[Tensor], Tensor | int]:
    """From heads to their numbers; the only one is that of every head."""
    table = torch.tensor(values)
    return lambda h: values[0] if len(values) == 1 else table.to(h.device)[h]


def _runs(values: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """Neighbouring heads that have the same number; all heads share a single one."""
    if len(values) == 1:
        yield EVERY_HEAD, values[0]
        return
    start = 0
    for value, run in itertools.groupby(values):
        stop = start + len(list(run))
        yield slice(start, stop), value
        start = stop


def _cut(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Queries in pieces of a tile."""
    for first in range(start, stop, QUERIES):
        yield first, min(stop, first + QUERIES)


def _every(step: int, first: int, start: int, stop: int) -> slice:
    """Numbers ``start`` to ``stop - 1`` of the positions ``first``, ``first + step``, ..."""
    return slice(first + start * step, first + (stop - 1) * step + 1, step)


def _window_tiles(
    length: int, left: int, right: int, steps: Sequence[tuple[slice, int]]
) -> Iterator[PatternTile]:
    """Neighbouring queries of one residue, and the keys of all their windows."""
    for heads, step in steps:
        for first in range(min(step, length)):
            count = len(range(first, length, step))
            for start, stop in _cut(0, count):
                keys = _every(step, first, max(0, start - left), min(count, stop + right))
                yield PatternTile(heads, _every(step, first, start, stop), keys)


def strided_pattern(*, stride: int) -> Pattern:
    r"""The last ``stride`` keys, and every ``stride``-th before them.

    .. math:: m_{ij} = [\, j \le i \,] \cdot \big( [\, i - j < \ell \,] \lor
       [\, \ell \mid i - j \,] \big)

    The strided pattern of Child et al. (2019), both of its heads joined: any earlier position is
    two steps away. With :math:`\ell \approx \sqrt N` a row has about :math:`2 \sqrt N` keys.

    Args:
        stride: :math:`\ell`, at least 1.

    Example:
        >>> strided_pattern(stride=2).mask(4)[0, 0].int()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [1, 1, 1, 0],
                [0, 1, 1, 1]], dtype=torch.int32)
    """
    check_at_least(1, stride=stride)
    far = _of_one_part(
        lambda b, h, i, j: (i - j >= stride) & ((i - j) % stride == 0),
        lambda length: _far_tiles(length, stride),
    )
    near = window_pattern(window_size=stride, is_causal=True)
    return Pattern(
        lambda b, h, i, j: (j <= i) & ((i - j < stride) | ((i - j) % stride == 0)),
        parts=lambda length: [
            part for one in (near, far) if one.parts for part in one.parts(length)
        ],
    )


def _far_tiles(length: int, stride: int) -> Iterator[PatternTile]:
    """Queries of one residue, and the keys of that residue which are not in the window."""
    for first in range(min(stride, length)):
        for start, stop in _cut(1, len(range(first, length, stride))):
            # the own key is in the window: the last one is that of the query before
            keys = _every(stride, first, 0, stop - 1)
            yield PatternTile(EVERY_HEAD, _every(stride, first, start, stop), keys)


def fixed_pattern(*, stride: int, summary: int = 1) -> Pattern:
    r"""The own block so far, and the last ``summary`` places of every earlier block.

    .. math:: m_{ij} = [\, j \le i \,] \cdot \big(
       [\, \lfloor j / \ell \rfloor = \lfloor i / \ell \rfloor \,] \lor
       [\, j \bmod \ell \ge \ell - c \,] \big)

    The fixed pattern of Child et al. (2019), for texts, where a stride means nothing.

    Args:
        stride: Size :math:`\ell` of a block.
        summary: How many places :math:`c` of it everybody sees later, from 1 to all.

    Example:
        >>> fixed_pattern(stride=2).mask(4)[0, 0].int()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [0, 1, 1, 0],
                [0, 1, 1, 1]], dtype=torch.int32)
    """
    check_at_least(1, stride=stride)
    if not 1 <= summary <= stride:
        raise ValueError(f"summary: expected 1 to the stride {stride}, got {summary}")
    return _of_one_part(
        lambda b, h, i, j: (
            (j <= i) & ((j // stride == i // stride) | (j % stride >= stride - summary))
        ),
        lambda length: _fixed_tiles(length, stride, summary),
    )


def _fixed_tiles(length: int, stride: int, summary: int) -> Iterator[PatternTile]:
    """Queries, the last keys of all blocks before, and their own block up to them."""
    places = torch.arange(length)
    # numbers and not a mask: how many they are is known when this is compiled
    ends = torch.tensor([j for j in range(length) if j % stride >= stride - summary]).long()
    for start, stop in _cut(0, length):
        block = start // stride
        keys = torch.cat([ends[: block * summary], places[block * stride : stop]])
        yield PatternTile(EVERY_HEAD, slice(start, stop), keys)


def blockwise_pattern(
    *, block_size: int, shifts: Sequence[int] = (0,), num_blocks: int = 1
) -> Pattern:
    r"""Each block of queries attends to one block of keys, another one in each head.

    .. math:: m_{hij} = [\, \lfloor j / s \rfloor = \pi_h(\lfloor i / s \rfloor) \,], \qquad
       \pi_h(n) = (n + \mathrm{shift}_h) \bmod n_{\mathrm{blocks}}

    Qiu et al. (2019), whose permutations are such shifts; with shift 0 alone this is block-local
    attention.

    Args:
        block_size: :math:`s`.
        shifts: One for each head.
        num_blocks: How many blocks the text has; needed for shifts other than 0.

    Example:
        >>> blockwise_pattern(block_size=2, num_blocks=2, shifts=[1]).mask(4)[0, 0].int()
        tensor([[0, 0, 1, 1],
                [0, 0, 1, 1],
                [1, 1, 0, 0],
                [1, 1, 0, 0]], dtype=torch.int32)
    """
    check_at_least(1, block_size=block_size, num_blocks=num_blocks)
    if not len(shifts):
        raise ValueError("shifts: expected one for each head, got none")
    if not any(shifts):
        return _of_one_part(
            lambda b, h, i, j: j // block_size == i // block_size,
            lambda length: _block_tiles(length, block_size, None, [(EVERY_HEAD, 0)]),
        )
    table = torch.tensor(list(shifts))
    return _of_one_part(
        lambda b, h, i, j: (
            j // block_size == (i // block_size + table.to(h.device)[h]) % num_blocks
        ),
        lambda length: _block_tiles(length, block_size, num_blocks, list(_runs(shifts))),
        heads=len(shifts),
    )


def _block_tiles(
    length: int, block_size: int, num_blocks: int | None, shifts: Sequence[tuple[slice, int]]
) -> Iterator[PatternTile]:
    """Blocks of queries, and the block of keys that each attends to; ``num_blocks`` go round."""
    for heads, shift in shifts:
        for number, begin in enumerate(range(0, length, block_size)):
            block = number if num_blocks is None else (number + shift) % num_blocks
            keys = slice(block * block_size, min(length, (block + 1) * block_size))
            if keys.start < keys.stop:
                for start, stop in _cut(begin, min(length, begin + block_size)):
                    yield PatternTile(heads, slice(start, stop), keys)


def random_pattern(
    *, block_size: int, num_blocks: int, per_block: int, num_heads: int = 1, seed: int = 0
) -> Pattern:
    r"""Some blocks of keys for every block of queries, drawn once.

    .. math:: m_{hij} = [\, \lfloor j / s \rfloor \in R_h(\lfloor i / s \rfloor) \,]

    The random part of Zaheer et al. (2020), BigBird; with a window and global tokens,
    ``random | window | global``, their whole pattern.

    Args:
        block_size: :math:`s`.
        num_blocks: Blocks of the text.
        per_block: How many each block of queries attends to, from 1 to all.
        num_heads: Each draws for itself.
        seed: Of the draw.

    Example:
        >>> random_pattern(block_size=1, num_blocks=4, per_block=2).mask(4)[0, 0].sum(-1)
        tensor([2, 2, 2, 2])
    """
    check_at_least(1, block_size=block_size, num_blocks=num_blocks, num_heads=num_heads)
    if not 1 <= per_block <= num_blocks:
        raise ValueError(f"per_block: expected 1 to {num_blocks}, got {per_block}")
    chance = torch.Generator().manual_seed(seed)
    draws = torch.rand(num_heads, num_blocks, num_blocks, generator=chance).argsort(dim=-1)
    table = torch.zeros(num_heads, num_blocks + 1, num_blocks + 1, dtype=torch.bool)
    # so many True in each row; the last block is also that of all that come after the text
    table[:, :-1, :-1] = draws < per_block
    drawn = [[row.nonzero()[:, 0].tolist() for row in rows] for rows in table]
    return _of_one_part(
        lambda b, h, i, j: table.to(h.device)[
            h % num_heads,
            (i // block_size).clamp(max=num_blocks),
            (j // block_size).clamp(max=num_blocks),
        ],
        lambda length: _random_tiles(length, block_size, drawn),
        heads=num_heads,
    )


def _random_tiles(
    length: int, block_size: int, drawn: Sequence[Sequence[Sequence[int]]]
) -> Iterator[PatternTile]:
    """For each head its blocks of queries, and the keys of the blocks drawn for them."""
    places = torch.arange(length)
    for head, blocks in enumerate(drawn):
        heads = slice(head, head + 1) if len(drawn) > 1 else EVERY_HEAD
        for number in range(min(len(blocks) - 1, -(-length // block_size))):
            keys = torch.cat(
                [places[:0]] + [places[n * block_size :][:block_size] for n in blocks[number]]
            )
            if len(keys):
                first = number * block_size
                for start, stop in _cut(first, min(length, first + block_size)):
                    yield PatternTile(heads, slice(start, stop), keys)


def global_pattern(is_global: Shaped[Tensor, "*B L"]) -> Pattern:
    r"""Chosen positions see all, and all see them: :math:`g_i \lor g_j`.

    Beltagy et al. (2020).

    Args:
        is_global: The chosen positions, the same for all examples or one row for each.

    Example:
        >>> global_pattern(torch.tensor([False, True, False])).mask(3)[0, 0].int()
        tensor([[0, 1, 0],
                [1, 1, 1],
                [0, 1, 0]], dtype=torch.int32)
    """
    rows = _flags(is_global)
    some = rows.any(0).nonzero()[:, 0].tolist()  # global in any example
    return Pattern(
        lambda b, h, i, j: rows[b % len(rows), i] | rows[b % len(rows), j],
        batch=len(rows),
        parts=lambda length: [
            PatternPart(
                lambda b, h, i, j: rows[b % len(rows), i],
                lambda: _global_tiles(some, length, keys=False),
            ),
            PatternPart(
                lambda b, h, i, j: rows[b % len(rows), j] & ~rows[b % len(rows), i],
                lambda: _global_tiles(some, length, keys=True),
            ),
        ],
    )


def _flags(is_global: Tensor) -> Bool[Tensor, "B L"]:
    """A row of booleans for each example, or one for all."""
    check_tensor("is_global", is_global)
    if is_global.dtype != torch.bool or is_global.ndim not in (1, 2):
        raise ValueError(
            f"is_global: expected booleans (L) or (B, L), got {is_global.dtype} "
            f"of shape {tuple(is_global.shape)}"
        )
    return is_global if is_global.ndim == 2 else is_global[None]


def _global_tiles(chosen: Sequence[int], length: int, *, keys: bool) -> Iterator[PatternTile]:
    """The chosen queries and all keys, or all queries and the chosen keys."""
    here = torch.tensor([n for n in chosen if n < length]).long()
    for start, stop in _cut(0, len(here) if not keys else length * bool(len(here))):
        if keys:
            yield PatternTile(EVERY_HEAD, slice(start, stop), here)
        else:
            yield PatternTile(EVERY_HEAD, here[start:stop], slice(0, length))
