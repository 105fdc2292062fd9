"""Who holds which positions, whose keys are at hand at a step, and which pairs are then allowed."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Shaped
from torch import Tensor

LAYOUTS = ("contiguous", "zigzag", "striped")


class Tile(NamedTuple):
    """The pairs of a shard of queries and a shard of keys that have to be computed.

    Attributes:
        rows: Which queries of the shard.
        columns: Which keys of the other shard.
        is_causal: Query i of ``rows`` sees the keys 0 to i of ``columns``; otherwise all of them.
    """

    rows: slice
    columns: slice
    is_causal: bool

    @property
    def pairs(self) -> int:
        """How many pairs of a query and a key are allowed in it."""
        length: int = self.rows.stop - self.rows.start
        keys: int = self.columns.stop - self.columns.start
        return length * (length + 1) // 2 if self.is_causal else length * keys


def ring_block(world_size: int, step: int, rank: int) -> int:
    """Whose keys and values a process holds at a step, if everybody hands on to the next one.

    Args:
        world_size: Processes of the ring.
        step: 0 is before the first hand-over.
        rank: Which process.
    """
    return (rank - step) % world_size


def shard_positions(length: int, world_size: int, rank: int, layout: str) -> list[int]:
    """Places in the sequence of what a process holds, in rising order.

    Args:
        length: Of the whole sequence.
        world_size: Processes that share it.
        rank: Which process.
        layout: ``"contiguous"``: a run of ``length / world_size``. ``"zigzag"``: of twice as many
            runs the ``rank``-th from the left and the ``rank``-th from the right, so that under a
            causal mask everybody has the same work. ``"striped"``: every ``world_size``-th.

    Raises:
        ValueError: If the layout is unknown or does not divide the length.
    """
    check_layout(layout)
    parts = 2 * world_size if layout == "zigzag" else world_size
    if length % parts:
        raise ValueError(
            f"length: expected a multiple of {parts} for {world_size} processes and layout "
            f"{layout}, got {length}"
        )
    if not 0 <= rank < world_size:
        raise ValueError(f"rank: expected 0 to {world_size - 1}, got {rank}")
    size = length // parts
    if layout == "striped":
        return list(range(rank, length, world_size))
    if layout == "contiguous":
        return list(range(rank * size, (rank + 1) * size))
    right = parts - 1 - rank
    return [*range(rank * size, (rank + 1) * size), *range(right * size, (right + 1) * size)]


def split_sequence(
    rows: Shaped[Tensor, "..."], world_size: int, layout: str = "contiguous", *, dim: int = -2
) -> list[Shaped[Tensor, "..."]]:
    """The shards of all processes, each contiguous in memory.

    Args:
        rows: The whole sequence: queries, keys, values, or anything with one entry a position.
        world_size: Processes that share it.
        layout: As for :func:`shard_positions`.
        dim: The axis of positions.

    Raises:
        ValueError: As :func:`shard_positions`.
    """
    length = rows.shape[dim]
    shards = []
    for rank in range(world_size):
        places = shard_positions(length, world_size, rank, layout)
        shards.append(rows.index_select(dim, torch.tensor(places, device=rows.device)))
    return shards


def join_sequence(
    shards: Sequence[Shaped[Tensor, "..."]], layout: str = "contiguous", *, dim: int = -2
) -> Shaped[Tensor, "..."]:
    """The whole sequence, from the shards of all processes in their order.

    Args:
        shards: As :func:`split_sequence` gives them.
        layout: As for :func:`shard_positions`.
        dim: The axis of positions.

    Raises:
        ValueError: If there is no shard, or as :func:`shard_positions`.
    """
    if not shards:
        raise ValueError("shards: expected one for each process, got none")
    joined = torch.cat(list(shards), dim)
    if layout == "contiguous":
        return joined
    world_size, length = len(shards), joined.shape[dim]
    places = [
        place
        for rank in range(world_size)
        for place in shard_positions(length, world_size, rank, layout)
    ]
    return joined.index_select(dim, torch.tensor(places, device=joined.device).argsort())


def ring_tile(
    query_rank: int,
    key_rank: int,
    lengths: tuple[int, int],
    *,
    is_causal: bool,
    layout: str = "contiguous",
) -> Tile | None:
    """What a process computes with the keys of another one; None where nothing is allowed.

    Shards lie in rising order, so a shard meets its own keys under an ordinary causal mask in every
    layout. With the keys of another device a contiguous shard sees all or nothing, a zigzag one one
    half of either side, a striped one an ordinary causal mask, its diagonal open only for keys from
    a lower rank.

    Args:
        query_rank: Whose queries.
        key_rank: Whose keys.
        lengths: How many queries and how many keys the two shards have.
        is_causal: No query attends to a later key.
        layout: As for :func:`shard_positions`.

    Raises:
        ValueError: If the layout is unknown, or halves of an odd shard are asked for.
    """
    check_layout(layout)
    length, keys = lengths
    whole = Tile(slice(0, length), slice(0, keys), False)
    if not length or not keys:
        return None
    if not is_causal:
        return whole
    if query_rank == key_rank:
        return whole._replace(is_causal=True)
    if layout == "contiguous":
        return whole if key_rank < query_rank else None
    if layout == "striped":
        if key_rank < query_rank:
            return whole._replace(is_causal=True)
        return Tile(slice(1, length), slice(0, keys - 1), True) if length > 1 else None
    if length % 2 or keys % 2:
        raise ValueError(f"lengths: expected even ones for layout zigzag, got {lengths}")
    if key_rank < query_rank:  # all queries see its left half, none the right one
        return Tile(slice(0, length), slice(0, keys // 2), False)
    return Tile(slice(length // 2, length), slice(0, keys), False)


def check_layout(layout: str) -> None:
    """Refuse an unknown layout."""
    if layout not in LAYOUTS:
        raise ValueError(f"layout: expected one of {', '.join(LAYOUTS)}, got {layout!r}")
