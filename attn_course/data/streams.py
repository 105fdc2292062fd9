"""Endless batches that can stop anywhere and go on exactly there."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from attn_course.data.batch import Batch, collate


class BatchStream:
    """Endless batches of a generated task: ``sample(batch_size, generator)`` again and again.

    Two streams with the same arguments give the same batches. ``state_dict`` is the state of the
    stream's own generator, so a stream that loads it goes on with the very next batch; the global
    random state is neither read nor changed.

    Args:
        sample: A task, such as ``functools.partial(reversal, max_length=20)``.
        batch_size: Rows per batch.
        seed: Start of the stream.

    Raises:
        ValueError: If ``batch_size < 1``.
    """

    def __init__(
        self, sample: Callable[[int, torch.Generator], Batch], *, batch_size: int, seed: int
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
        self.sample = sample
        self.batch_size = batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self.sample(self.batch_size, self.generator)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on with the next batch."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self.generator.set_state(state["generator"])


class PairStream:
    """Endless batches from a finite set of pairs: shuffled anew in every epoch.

    Rows of about equal length are put together (``pool`` batches are drawn, sorted by length and
    cut), which wastes little on padding; the batches of a pool come in random order. The rows that
    do not fill the last batch of an epoch make a smaller batch, so that an epoch shows every pair
    exactly once.

    Args:
        sources: One list of ids per pair.
        targets: As many lists of ids, without ``BOS`` and ``EOS``.
        batch_size: Rows per batch.
        seed: Decides the order; epoch ``e`` depends on ``seed`` and ``e`` alone.
        pool: How many batches are sorted together; 1 keeps the order fully random.

    Raises:
        ValueError: If there are no pairs, their numbers differ, ``batch_size < 1`` or ``pool < 1``.
    """

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        *,
        batch_size: int,
        seed: int,
        pool: int = 20,
    ) -> None:
        if not sources or len(sources) != len(targets):
            raise ValueError(
                f"targets: expected one per source and at least one, "
                f"got {len(targets)} targets for {len(sources)} sources"
            )
        if batch_size < 1 or pool < 1:
            raise ValueError(f"batch_size, pool: expected at least 1, got {batch_size} and {pool}")
        self.sources, self.targets = sources, targets
        self.batch_size, self.seed, self.pool = batch_size, seed, pool
        self.epoch, self.position = 0, 0
        self._order = self._shuffled()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.position == len(self._order):
            self.epoch, self.position = self.epoch + 1, 0
            self._order = self._shuffled()
        rows = self._order[self.position]
        self.position += 1
        return collate([self.sources[row] for row in rows], [self.targets[row] for row in rows])

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position inside it."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken.

        Raises:
            ValueError: If the state belongs to a stream with another seed.
        """
        if state["seed"] != self.seed:
            raise ValueError(f"seed: expected that of the state, {state['seed']}, got {self.seed}")
        self.epoch, self.position = state["epoch"], state["position"]
        self._order = self._shuffled()

    def _shuffled(self) -> list[list[int]]:
        generator = torch.Generator().manual_seed(_mix(self.seed, self.epoch))
        rows = torch.randperm(len(self.sources), generator=generator).tolist()
        size, batches = self.batch_size, []
        for start in range(0, len(rows), size * self.pool):
            part = rows[start : start + size * self.pool]
            if self.pool > 1:
                part.sort(key=lambda row: (len(self.sources[row]), len(self.targets[row])))
            cut = [part[i : i + size] for i in range(0, len(part), size)]
            batches += [cut[i] for i in torch.randperm(len(cut), generator=generator).tolist()]
        return batches


def _mix(seed: int, epoch: int) -> int:
    # an odd 64-bit constant (2**64 / golden ratio) keeps (seed, epoch) pairs apart
    return (seed + epoch * 0x9E3779B97F4A7C15) % 2**63
