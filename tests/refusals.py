"""A call that must be refused, with the words of its message, in one line."""

from collections.abc import Callable
from typing import Any

import pytest


def refused(message: str, call: Callable[..., object], /, *args: Any, **options: Any) -> None:
    """``call(*args, **options)`` must raise a ValueError whose message matches."""
    with pytest.raises(ValueError, match=message):
        call(*args, **options)


def refuses(*rows: tuple[Callable[..., object], str], given: Callable[[], Any] = tuple) -> Any:
    """A test of each ``(call, message)``; ``given()`` makes the arguments of all calls.

    Shapes are not checked here as in other tests: users have no such checks.
    """

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(("call", "message"), rows)
    def test(call: Callable[..., object], message: str) -> None:
        refused(message, call, *given())

    return test
