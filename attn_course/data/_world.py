"""A small world of people, places and objects, simulated for many stories at once."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Generator, Tensor

MOVE, TAKE, DROP = 0, 1, 2
NOWHERE = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """What happened, and how things stood before every event (index 0) up to the end (index T).

    Attributes:
        kind: ``MOVE``, ``TAKE`` or ``DROP``.
        actor: Who.
        thing: The place or the object.
        place: Where each person is; ``NOWHERE`` before the first move.
        holder: Who holds each object; ``NOWHERE`` when nobody does.
        lies: Where each object lies or is carried; ``NOWHERE`` before it is first taken.
        moved_at: The event of each person's last move; ``NOWHERE`` before the first.
        touched_at: The event of each object's last take or drop.
    """

    kind: Int[Tensor, "B T"]
    actor: Int[Tensor, "B T"]
    thing: Int[Tensor, "B T"]
    place: Int[Tensor, "B T1 P"]
    holder: Int[Tensor, "B T1 O"]
    lies: Int[Tensor, "B T1 O"]
    moved_at: Int[Tensor, "B T1 P"]
    touched_at: Int[Tensor, "B T1 O"]


def simulate(
    batch_size: int,
    events: int,
    generator: Generator,
    *,
    people: int,
    places: int,
    objects: int,
    move_rate: float,
) -> World:
    """Draw events that are possible: a person moves to another place, takes what lies there, drops.

    An object that was never touched lies anywhere. A person takes or drops only where the story has
    told where that person is; whoever can do neither moves.
    """
    rows = torch.arange(batch_size)
    place = torch.full((batch_size, people), NOWHERE)
    holder = torch.full((batch_size, objects), NOWHERE)
    lies = torch.full((batch_size, objects), NOWHERE)
    moved_at, touched_at = place.clone(), holder.clone()
    states = [[x.clone()] for x in (place, holder, lies, moved_at, touched_at)]
    told: list[tuple[Tensor, Tensor, Tensor]] = []
    for t in range(events):
        actor = torch.randint(people, (batch_size,), generator=generator)
        here = place[rows, actor][:, None]  # (B, 1)
        held = holder == actor[:, None]  # (B, O)
        free = (holder == NOWHERE) & ((lies == here) | (lies == NOWHERE))
        possible = (held | free) & (here != NOWHERE)
        wants_to_move = torch.rand(batch_size, generator=generator) < move_rate
        moves = wants_to_move | ~possible.any(1)
        draw = torch.rand(batch_size, objects, generator=generator).masked_fill(~possible, -1.0)
        target = draw.argmax(1)
        # one of the other places, or any place at first
        step = torch.randint(places, (batch_size,), generator=generator)
        other = (here[:, 0] + 1 + step % max(places - 1, 1)) % places
        goal = torch.where(here[:, 0] == NOWHERE, step, other)
        drops = ~moves & held[rows, target]
        takes = ~moves & ~drops
        place[rows[moves], actor[moves]] = goal[moves]
        moved_at[rows[moves], actor[moves]] = t
        holder[rows[takes], target[takes]] = actor[takes]
        holder[rows[drops], target[drops]] = NOWHERE
        touched_at[rows[~moves], target[~moves]] = t
        carried = holder != NOWHERE
        lies = torch.where(carried, place.gather(1, holder.clamp(min=0)), lies)
        kind = torch.where(moves, MOVE, torch.where(drops, DROP, TAKE))
        told.append((kind, actor, torch.where(moves, goal, target)))
        for history, now in zip(states, (place, holder, lies, moved_at, touched_at), strict=True):
            history.append(now.clone())
    events_told = [torch.stack(parts, dim=1) for parts in zip(*told, strict=True)]
    histories = [torch.stack(history, dim=1) for history in states]
    return World(
        kind=events_told[0],
        actor=events_told[1],
        thing=events_told[2],
        place=histories[0],
        holder=histories[1],
        lies=histories[2],
        moved_at=histories[3],
        touched_at=histories[4],
    )
