"""A call that must be refused, with the words of its message, in one line."""

from collections.abc import Callable
from typing import Any

import pytest


def refused(message: str, call: Callable[..., object], /, *args: Any, **options: Any) -> None:
    """``call(*args, **options)`` must raise a ValueError whose message matches."""
    with pytest.raises(ValueError, match=message):
        call(*args, **options)
