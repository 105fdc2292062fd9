"""Where the batches of a run come from, and at which of them it stands."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from torch import Tensor

BatchT = TypeVar("BatchT")


class BatchSource(Generic[BatchT]):
    """Draws batches without end and can be put back to where it was.

    Args:
        batches: An endless iterator, or something that can be iterated again and again. With
            ``state_dict`` and ``load_state_dict`` the position is loaded; without them the batches
            already used are drawn again and dropped, which is exact if their order does not depend
            on the global random state.
    """

    def __init__(self, batches: Iterable[BatchT]) -> None:
        if isinstance(batches, Tensor) or not hasattr(batches, "__iter__"):
            raise ValueError(
                "batches: expected a list of batches, a DataLoader or an endless iterator, "
                f"got {type(batches).__name__}: write [batch] for the same batch in every step"
            )
        self.batches = batches
        self.drawn = 0
        self._iterator: Iterator[BatchT] | None = None

    def draw(self) -> BatchT:
        """The next batch.

        Raises:
            ValueError: If an iterator ran out or there is no batch at all.
        """
        if self._iterator is None:
            self._iterator = iter(self.batches)
        try:
            batch = next(self._iterator)
        except StopIteration:
            if self._iterator is self.batches:
                raise ValueError(
                    f"batches: expected an endless iterator, got one with {self.drawn} batches"
                ) from None
            self._iterator = iter(self.batches)
            try:
                batch = next(self._iterator)
            except StopIteration:
                raise ValueError("batches: expected at least one batch, got none") from None
        self.drawn += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The number of batches drawn, and the state of ``batches`` where it has one."""
        stateful = hasattr(self.batches, "state_dict") and hasattr(self.batches, "load_state_dict")
        return {
            "drawn": self.drawn,
            "batches": self.batches.state_dict() if stateful else None,  # type: ignore[attr-defined]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken.

        Raises:
            ValueError: If the state was taken from batches of another kind.
        """
        stateful = hasattr(self.batches, "load_state_dict")
        if (state["batches"] is not None) != stateful:
            kinds = ("without load_state_dict", "with load_state_dict")
            raise ValueError(
                f"batches: expected the kind of the checkpoint, {kinds[not stateful]}, "
                f"got {type(self.batches).__name__} {kinds[stateful]}"
            )
        if stateful:
            self.batches.load_state_dict(state["batches"])  # type: ignore[attr-defined]
            self.drawn = state["drawn"]
            return
        while self.drawn < state["drawn"]:
            self.draw()
