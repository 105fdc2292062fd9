"""Undo one suspicious operation of a learner's function while it runs, and see what it gives then.

An answer that is right as soon as, say, its means are sums has a mean in place of a sum. This needs
the function in this process.
"""

import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_SMALL = 0.05  # a constant that only guards a division or a logarithm
_REDUCTIONS = ("sum", "mean", "amax", "amin", "max", "min", "logsumexp", "norm", "prod")
Rewrite = Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]
_NO: Any = object()


@dataclass(frozen=True)
class Undo:
    """What is undone, under the name of the mistake that it shows.

    Args:
        name: Short name, shown to the learner.
        message: What it means.
        rewrite: Gives another result for a torch function, or ``_NO`` to leave it alone.
        guards: It keeps something from being NaN: what is NaN without it says nothing.
        removes: A step goes away altogether: what is left may be another known mistake by that.
    """

    name: str
    message: str
    rewrite: Rewrite
    guards: bool = False
    removes: bool = False


class _Mode(TorchFunctionMode):
    def __init__(self, rewrites: Sequence[Rewrite]) -> None:
        super().__init__()
        self.rewrites = rewrites
        self.used = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = getattr(func, "__name__", ""), dict(kwargs or {})
        for rewrite in self.rewrites:
            found = rewrite(func, name, args, named)
            if found is not _NO:
                self.used += 1
                return found
        return func(*args, **named)


class Undone:
    """A learner's function with some operations undone; counts how often it was."""

    def __init__(self, function: Callable[..., Any], undone: Sequence[Undo]) -> None:
        self.function = function
        self.undone = undone
        self.used = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _Mode([one.rewrite for one in self.undone]) as mode:
            result = self.function(*args, **kwargs)
        self.used += mode.used
        return result


def possible(function: Callable[..., Any]) -> bool:
    """Whether a function runs in this process."""
    return isinstance(function, types.FunctionType)


def _axis_of(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return named.get("dim", args[1] if len(args) > 1 else None)


def _keep(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    if name not in _REDUCTIONS or _axis_of(name, args, named) is None or len(args) > 2:
        return _NO
    return _NO if "keepdim" in named else func(*args, **named, keepdim=True)


def _attached(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    if name == "detach" or func is getattr(Tensor.data, "__get__", None):
        return args[0]
    computes = any(isinstance(a, Tensor) for a in args) and not name.startswith("_")
    if computes and name != "requires_grad_" and not torch.is_grad_enabled():
        with torch.enable_grad():
            return func(*args, **named)
    return _NO


def _divided(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    if name in ("__floordiv__", "floor_divide", "floordiv"):
        return torch.true_divide(args[0], args[1])
    return _NO


def _unguarded(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    if name in ("__add__", "__radd__", "add", "add_") and len(args) == 2:
        for one, other in (args, args[::-1]):
            if isinstance(one, Tensor) and type(other) is float and 0 < abs(other) <= _SMALL:
                return one
    if name in ("clamp", "clamp_min", "clip"):
        low = named.get("min", args[1] if len(args) > 1 else None)
        if type(low) is float and 0 < low <= _SMALL and named.get("max") is None:
            return args[0]
    return _NO


def _infinite(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    def lowered(x: Any) -> bool:
        return type(x) in (float, int) and -torch.inf < x <= -100

    if name in ("masked_fill", "masked_fill_", "where") and any(lowered(a) for a in args):
        return func(*(-torch.inf if lowered(a) else a for a in args), **named)
    return _NO


def _last_two(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    if func is Tensor.T.__get__ and args[0].dim() > 2:  # type: ignore[attr-defined]
        return args[0].mT
    return _NO


def _exchanged(one: str, other: str) -> Rewrite:
    def rewrite(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name == one:
            return getattr(torch, other)(*args, **named)
        return _NO

    return rewrite


def _removed(what: str) -> Rewrite:
    def rewrite(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return args[0] if name == what and isinstance(args[0], Tensor) else _NO

    return rewrite


def _along(what: str, axis: int) -> Rewrite:
    def rewrite(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name != what or not isinstance(args[0], Tensor) or args[0].dim() < 2:
            return _NO
        now = _axis_of(name, args, named)
        if type(now) is not int or now % args[0].dim() == axis % args[0].dim():
            return _NO
        return func(args[0], **{**named, "dim": axis})

    return rewrite


def _squeezed(axis: int) -> Rewrite:
    def rewrite(func: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name == "squeeze" and len(args) == 1 and not named and args[0].dim() >= abs(axis):
            return args[0].squeeze(axis)
        return _NO

    return rewrite


def _all() -> Iterator[Undo]:
    yield Undo(
        "keepdim is missing",
        "A sum or a maximum over an axis drops this axis, and what follows is then matched with "
        "another one. With keepdim=True your function is right.",
        _keep,
    )
    yield Undo(
        "a part is cut off from the gradient",
        "A detach, a no_grad or .data hides a part of the computation from the gradient. Without "
        "it your function is right.",
        _attached,
    )
    yield Undo(
        "whole division",
        "The operator // rounds down and throws the fraction away. With / your function is right.",
        _divided,
    )
    yield Undo(
        "a small constant changes the result",
        "A small constant, added against a division by 0 or a logarithm of 0, changes every result "
        "a little, and those of small numbers much. Treat the special case by itself.",
        _unguarded,
        guards=True,
    )
    yield Undo(
        "a finite number in place of minus infinity",
        "A large negative number is not minus infinity: its exponential is 0 only beside larger "
        "ones. With -inf your function is right.",
        _infinite,
    )
    yield Undo(
        ".T turns all axes",
        "On a tensor with more than two axes .T reverses all of them, the leading ones too. "
        "Exchange the last two only.",
        _last_two,
    )
    for one, other in (
        *(("mean", "sum"), ("sum", "mean"), ("sigmoid", "tanh"), ("tanh", "sigmoid")),
        *(("log2", "log"), ("log10", "log"), ("argmin", "argmax"), ("amin", "amax")),
        *(("amax", "mean"), ("cumsum", "cumprod"), ("softmax", "log_softmax")),
    ):
        yield Undo(
            f"{one} in place of {other}",
            f"With {other} where you call {one}, your function is right.",
            _exchanged(one, other),
        )
    for what in ("tanh", "sigmoid", "relu", "abs", "sqrt", "exp", "log", "softmax", "round"):
        yield Undo(
            f"{what} is one too many",
            f"Without {what} your function is right.",
            _removed(what),
            removes=True,
        )
    for what in ("softmax", "log_softmax", "sum", "mean", "amax", "argmax", "flip", "cumsum"):
        for axis in (-1, -2, 0, 1):
            yield Undo(
                f"{what} over the wrong axis",
                f"With {what} over axis {axis} your function is right. Check along which axis the "
                "numbers belong together.",
                _along(what, axis),
            )
    for axis in (-1, -2, 0, 1):
        yield Undo(
            "squeeze drops every axis of size 1",
            "squeeze() without an axis drops every axis of size 1, that of a batch of one too. "
            "Name the axis.",
            _squeezed(axis),
        )


ALL = tuple(_all())
