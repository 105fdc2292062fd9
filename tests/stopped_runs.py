"""Experiments that are stopped on their way, and what of their records must repeat."""

import itertools
import signal
from collections.abc import Callable
from typing import Any

CLOCKS = ("training_seconds", "seconds", "date", "commit", "machine", "versions", "cpu_seconds")


class Killed(Exception):
    """Stands for a run that ends without a word."""


def kill() -> None:
    raise Killed


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def untimed(value: Any) -> Any:
    """What must repeat: everything but clocks, dates and the machine's load."""
    if isinstance(value, dict):
        return {key: untimed(each) for key, each in value.items() if key not in CLOCKS}
    return [untimed(each) for each in value] if isinstance(value, list) else value


def stopping(loss: Callable[..., Any], call: int, stop: Callable[[], None]) -> Callable[..., Any]:
    """The loss, with a stop before it answers this call, counted from 1."""
    calls = itertools.count(1)

    def stopped(*arguments: Any) -> Any:
        if next(calls) == call:
            stop()
        return loss(*arguments)

    return stopped
