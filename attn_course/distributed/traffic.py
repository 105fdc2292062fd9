"""Counts of what a process sent and computed."""

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class Traffic:
    """What this process did; a backward pass is added to the count of its forward pass.

    Attributes:
        messages: How many it sent.
        nbytes: What they held. Agreement about sizes, a few bytes a call, is not counted.
        blocks: Pairs of shards that it computed.
        skipped: Pairs of shards in which the mask leaves nothing.
        pairs: Allowed pairs of a query and a key in the computed ones, for one head.
    """

    messages: int = 0
    nbytes: int = 0
    blocks: int = 0
    skipped: int = 0
    pairs: int = 0


_COUNT: contextvars.ContextVar[Traffic | None] = contextvars.ContextVar("traffic", default=None)


@contextlib.contextmanager
def counted() -> Iterator[Traffic]:
    """Count what is sent and computed by calls inside, and by their backward passes at any time.

    Example::

        with counted() as traffic:
            output = ring_attention(query, key, value)
        print(traffic.messages, traffic.nbytes)
    """
    traffic = Traffic()
    token = _COUNT.set(traffic)
    try:
        yield traffic
    finally:
        _COUNT.reset(token)


def current() -> Traffic:
    """The count that is under way, or one that nobody looks at."""
    return _COUNT.get() or Traffic()
