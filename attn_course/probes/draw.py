"""Fresh random inputs from a seed that is written down, so that a failure can be repeated."""

import os
import random
import secrets

import torch
from torch import Tensor

SEED_VARIABLE = "ATTN_COURSE_SEED"

_log: list[tuple[str, int]] = []


def choose_seed() -> int:
    """Return the seed named by ``ATTN_COURSE_SEED``, or a fresh one.

    Raises:
        ValueError: If the variable is set and is not a whole number of at least 0.
    """
    text = os.environ.get(SEED_VARIABLE, "").strip()
    if not text:
        return secrets.randbelow(2**31)
    if not text.isdecimal():
        raise ValueError(f"{SEED_VARIABLE}: expected a whole number of at least 0, got {text!r}")
    return int(text)


def log_seed(name: str, seed: int) -> None:
    """Note that the test of ``name`` drew its inputs from ``seed``."""
    _log.append((name, seed))


def seed_log() -> tuple[tuple[str, int], ...]:
    """Return every ``(test, seed)`` pair noted in this process, oldest first."""
    return tuple(_log)


def shuffled_order(count: int) -> list[int]:
    """A random order of ``count`` things that hangs on no seed, which a page of feedback tells."""
    return random.SystemRandom().sample(range(count), count)


class Draw:
    """A source of random inputs: one generator, one seed.

    Args:
        seed: Where the generator starts.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = torch.Generator().manual_seed(seed)
        self._start = self.rng.get_state()

    @property
    def drawn(self) -> bool:
        """Whether any number has been drawn."""
        return not torch.equal(self.rng.get_state(), self._start)

    def normal(
        self,
        *shape: int,
        dtype: torch.dtype = torch.float32,
        mean: float | int = 0.0,
        std: float | int = 1.0,
    ) -> Tensor:
        """Draw a tensor of independent normal numbers."""
        drawn = torch.randn(shape, generator=self.rng, dtype=torch.float64)
        drawn = drawn if mean == 0 and std == 1 else mean + std * drawn
        return drawn.to(dtype)

    def uniform(
        self,
        *shape: int,
        low: float | int = 0.0,
        high: float | int = 1.0,
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """Draw a tensor of numbers spread evenly over ``[low, high)``."""
        drawn = torch.rand(shape, generator=self.rng, dtype=torch.float64)
        drawn = drawn if low == 0 and high == 1 else low + (high - low) * drawn
        return drawn.to(dtype)

    def integers(
        self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        """Draw a tensor of whole numbers from ``low`` up to, not including, ``high``."""
        return torch.randint(low, high, shape, generator=self.rng).to(dtype)

    def mask(self, *shape: int, keep: float = 0.6) -> Tensor:
        """Draw a boolean mask (True = may attend) with at least one True in every row."""
        drawn = torch.rand(shape, generator=self.rng) < keep
        lucky = torch.randint(0, shape[-1], (*shape[:-1], 1), generator=self.rng)
        return drawn.scatter(-1, lucky, True)

    def permutation(self, size: int) -> Tensor:
        """Draw an order of ``size`` things that is not the identity (for ``size`` above 1)."""
        order = torch.randperm(size, generator=self.rng)
        while size > 1 and bool((order == torch.arange(size)).all()):
            order = torch.randperm(size, generator=self.rng)
        return order
