"""Look at what a function gives while a claim about it is checked.

A claim is checked with comparisons, and NaN makes each of them false: ``gap > 0.05`` would find no
fault in a result of nothing else.
"""

import functools
import types
from typing import Any

from torch import Tensor

from attn_course.probes.values import leaves

_MOST = 1 << 16  # numbers of a tensor that is looked at: the look must not count as memory


class Watch:
    """Notes a result with NaN, of a call in which nothing was NaN or infinite."""

    def __init__(self) -> None:
        self.nan: str | None = None

    def around(self, function: Any) -> Any:
        """The function, watched; what is neither a plain function nor a stub is left as it is."""
        if hasattr(type(function), "__attn_remote__"):
            return _WatchedStub(self, function)
        if not isinstance(function, types.FunctionType):
            return function

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return self.seen(function(*args, **kwargs), args, kwargs)

        return watched

    def seen(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note and return a result."""
        for leaf in leaves(result) if self.nan is None else ():
            if not (isinstance(leaf, Tensor) and leaf.numel() <= _MOST):
                continue
            count = int(leaf.detach().isnan().sum())
            if count and not any(map(_strange, leaves((args, kwargs)))):
                self.nan = f"{count} of {leaf.numel()} numbers of the result are NaN"
        return result


class _WatchedStub:
    def __init__(self, watch: Watch, stub: Any) -> None:
        self.watch, self.stub = watch, stub
        self.__name__ = getattr(stub, "__name__", "function")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.watch.seen(self.stub(*args, **kwargs), args, kwargs)

    def __attn_remote__(
        self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
    ) -> Any:
        _noted(self.stub)  # forget what earlier calls gave
        found = type(self.stub).__attn_remote__(self.stub, operation, args, kwargs, options)
        self.watch.nan = self.watch.nan or _noted(self.stub)
        return self.watch.seen(found, args, kwargs)

    def __attn_mutated__(self) -> bool:
        return bool(type(self.stub).__attn_mutated__(self.stub))


def _noted(stub: Any) -> str | None:
    """What was NaN in a helper's calls since the last time this was asked, where a stub knows."""
    ask = getattr(type(stub), "__attn_nan__", None)
    return None if ask is None else ask(stub)


def _strange(value: Any) -> bool:
    """A test that gives NaN or infinity says itself what it makes of them."""
    if isinstance(value, Tensor):
        return not bool(value.detach().isfinite().all())
    return isinstance(value, float) and not abs(value) < float("inf")
