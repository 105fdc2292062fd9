"""Mistakes that any function can hold: relations between two answers, and changes of the input.

A relation compares what the learner's function gave with what another one gave on the same input
(the negative of it, its transpose, a multiple). A change makes another input of a call (two
arguments exchanged, the mask turned round): whoever gives on the input what is right on the changed
one has made that mistake.
"""

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attn_course.probes.catalogue import Call
from attn_course.probes.values import leaves

Numbers = list[Any]  # float64 arrays, one for each tensor or number of an answer


@dataclass(frozen=True)
class Relation:
    """A general mistake in what is returned.

    Args:
        name: Short name, shown to the learner.
        message: What it means.
        forward: What this mistake may make of a right answer, one way or another.
        backward: What may make a right answer of this mistake.
        test: Decides by itself; such a mistake need not show on every input.
        hint: More words, from an answer, what is right and the call.
    """

    name: str
    message: str
    forward: tuple[Callable[[Numbers], Numbers | None], ...] = ()
    backward: tuple[Callable[[Numbers], Numbers | None], ...] = ()
    test: Callable[[Numbers, Numbers], bool] | None = None
    hint: Callable[[Numbers, Numbers, Call], str] | None = None

    def holds(self, got: Numbers, base: Numbers) -> bool:
        """Whether an answer has this mistake where ``base`` has not."""
        if self.test is not None:
            return self.test(got, base)
        there = any(close(got, change(base)) for change in self.forward)
        return there or any(close(change(got), base) for change in self.backward)


@dataclass(frozen=True)
class Change:
    """A general mistake in what is read: on a call, it gives what is right on another call."""

    name: str
    message: str
    make: Callable[[Call], Call | None]


def close(one: Numbers | None, other: Numbers | None) -> bool:
    """Whether two answers are equal up to rounding; NaN equals NaN."""
    if one is None or other is None or len(one) != len(other):
        return False
    return all(
        a.shape == b.shape and not _apart(a, b) and bool(alike(a, b).all())
        for a, b in zip(one, other, strict=True)
    )


def _apart(a: Any, b: Any) -> bool:
    """Whether one look at the middle shows that two arrays differ: most of them do."""
    if not a.size:
        return False
    x, y = a.item(a.size // 2), b.item(b.size // 2)
    return bool(abs(x - y) > 3e-5 * abs(y) + 4e-6)  # False where something is NaN or infinite


def alike(a: Any, b: Any) -> Any:
    """Entry by entry, whether two arrays of one shape are equal up to rounding."""
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 1.0
    return np.isclose(a, b, rtol=3e-5, atol=3e-6 * min(1.0, scale) + 1e-30, equal_nan=True)


def generic(a: Any) -> Any:
    """Entry by entry, whether a number is one that is not met by chance: no small half-integer."""
    with np.errstate(all="ignore"):
        round_ = (np.abs(2 * a - np.round(2 * a)) <= 1e-4) & (np.abs(a) < 100)
        return np.isfinite(a) & ~round_ & (np.abs(a) > 1e-5)


def _each(change: Callable[[Any], Any]) -> Callable[[Numbers], Numbers | None]:
    def on_all(numbers: Numbers) -> Numbers | None:
        try:
            with np.errstate(all="ignore"):
                return [change(a) for a in numbers]
        except (ValueError, IndexError, np.exceptions.AxisError):
            return None

    return on_all


def _softmax(a: Any, axis: int) -> Any:
    if not a.ndim:  # of a single number it is 1, whatever the number
        raise ValueError("a: expected an axis, got a single number")
    powers = np.exp(a - a.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def _mean(a: Any, axis: int) -> Any:
    return np.broadcast_to(a.mean(axis, keepdims=True), a.shape)


def _share(a: Any, axis: int) -> Any:
    if not a.ndim:
        raise ValueError("a: expected an axis, got a single number")
    return a / a.sum(axis, keepdims=True)


def _first(x: Tensor, axis: int) -> Tensor:
    return x.narrow(axis, 0, 1).expand_as(x).clone()


def _swap(one: int, other: int) -> Callable[[Any], Any]:
    return lambda a: a.swapaxes(one, other)


def _one_for_all(axis: int, place: int) -> Callable[[Any], Any]:
    def change(a: Any) -> Any:
        return np.broadcast_to(np.take(a, [place], axis), a.shape)

    return change


_AXES = {-1: "the last axis", -2: "the second axis from the end", 0: "the first axis"}


def _relations() -> Iterator[Relation]:
    yield Relation(
        "the sign is wrong",
        "Every number is the negative of the expected one. Look for a minus too many or too few.",
        (_each(lambda a: -a),),
    )
    for one, other in ((-1, -2), (0, 1), (-2, -3)):
        yield Relation(
            "two axes are exchanged",
            f"Your result holds the expected numbers with axes {one} and {other} exchanged. Write "
            "the shape of each intermediate result beside it.",
            (_each(_swap(one, other)),),
        )
    for axis, words in _AXES.items():
        yield Relation(
            f"reversed along {words}",
            f"Your result holds the expected numbers in reverse order along {words}.",
            (_each(partial(np.flip, axis=axis)),),
        )
        for step in (1, -1):
            yield Relation(
                f"shifted by one along {words}",
                "Your result holds the expected numbers one position too "
                f"{'late' if step > 0 else 'early'} along {words}. Count positions from 0.",
                (_each(partial(np.roll, shift=step, axis=axis)),),
            )
        for place, which in ((0, "first"), (-1, "last")):
            yield Relation(
                f"the {which} entry of {words} for all",
                f"Along {words}, every entry of your result is what is expected of the {which} "
                "one. Each should be computed from its own input.",
                (_each(_one_for_all(axis, place)),),
            )
        yield Relation(
            f"a mean over {words}",
            f"Every entry of your result is the mean of the expected ones over {words}. Entries "
            "along it should not be mixed.",
            (_each(partial(_mean, axis=axis)),),
        )
    axes = tuple(_AXES)
    yield Relation(
        "a softmax too many",
        "Your result is a softmax of what is expected.",
        tuple(_each(partial(_softmax, axis=axis)) for axis in axes),
    )
    yield Relation(
        "the softmax is missing",
        "A softmax of your result gives what is expected.",
        backward=tuple(_each(partial(_softmax, axis=axis)) for axis in axes),
    )
    yield Relation(
        "not divided by the sum",
        "Your numbers are right up to a factor for each row: they should sum to one.",
        backward=tuple(_each(partial(_share, axis=axis)) for axis in axes),
    )
    for name, message, forward in (
        ("the logarithm is missing", "Your result is the exponential of the expected one.", np.exp),
        ("the exponential is missing", "Your result is the logarithm of the expected one.", np.log),
        ("the square root is missing", "Your result is the square of the expected one.", np.square),
        ("a square root too many", "Your result is the square root of the expected one.", np.sqrt),
        ("the absolute value", "Your result is the absolute value of the expected one.", np.abs),
        ("one minus the result", "Your result is 1 minus the expected one.", lambda a: 1 - a),
        ("the reciprocal", "Your result is 1 divided by the expected one.", lambda a: 1 / a),
        ("a tanh too many", "Your result is the tanh of the expected one.", np.tanh),
        ("a sigmoid too many", "Your result is a sigmoid of the expected one.", _sigmoid),
        ("cut off at 0", "Your result is the expected one with negative numbers set to 0.", _relu),
    ):
        yield Relation(name, message, (_each(forward),))
    for name, message, backward in (
        ("the tanh is missing", "The tanh of your result is the expected one.", np.tanh),
        ("the sigmoid is missing", "The sigmoid of your result is the expected one.", _sigmoid),
        ("the absolute value is missing", "Its absolute value is the expected result.", np.abs),
    ):
        yield Relation(name, message, backward=(_each(backward),))


def _sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def _relu(a: Any) -> Any:
    return np.maximum(a, 0)


def reordered(mine: Numbers, base: Numbers) -> bool:
    """Whether some other order of the parts of an answer gives the base."""
    if len(mine) != len(base) or not 2 <= len(mine) <= 4:
        return False
    orders = itertools.permutations(range(len(mine)))
    next(orders)
    return any(close([mine[i] for i in order], base) for order in orders)


def same_but_axes(mine: Numbers, base: Numbers) -> bool:
    """Whether two answers differ by axes of size 1 only."""
    if [a.shape for a in mine] == [b.shape for b in base]:
        return False
    return close([a.squeeze() for a in mine], [b.squeeze() for b in base])


def _factor(mine: Numbers, base: Numbers) -> float | None:
    """The one number that every entry of the base was multiplied by, if there is one."""
    if len(mine) != 1 or len(base) != 1 or mine[0].shape != base[0].shape or mine[0].size < 2:
        return None
    a, b = mine[0].reshape(-1), base[0].reshape(-1)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    at = int(np.abs(b).argmax())
    if b[at] == 0 or a[at] == 0:
        return None
    ratio = float(a[at] / b[at])
    return ratio if close([a], [ratio * b]) else None


def _multiplied(mine: Numbers, base: Numbers) -> bool:
    return _factor(mine, base) is not None


def _which_factor(mine: Numbers, base: Numbers, call: Call) -> str:
    """Say a factor in words, by a size of the inputs where one explains it."""
    ratio = _factor(mine, base) or 1.0
    tensors = [x for x in leaves((call.args, call.kwargs)) if isinstance(x, Tensor)]
    words = f"{ratio:.4g}"
    for size in sorted({n for x in tensors for n in x.shape} - {0, 1}, reverse=True):
        for power, named in (
            (1.0, f"{size}, a size of the inputs"),
            (-1.0, f"1/{size}, one over a size of the inputs"),
            (0.5, f"the square root of {size}, a size of the inputs"),
            (-0.5, f"one over the square root of {size}, a size of the inputs"),
        ):
            if math.isclose(ratio, size**power, rel_tol=1e-4):
                words = named
    return f" On one of the inputs the factor is {words}."


VAGUE = Relation(
    "every number is multiplied by one factor",
    "Up to that factor your result is right. Look for a scale, a mean or a sum that is too "
    "many or missing.",
    test=_multiplied,
    hint=_which_factor,
)
RELATIONS = (
    Relation(
        "results in the wrong order",
        "You return the expected results in another order. Compare your return with the order that "
        "the task names.",
        test=reordered,
    ),
    Relation(
        "an axis of size 1 too many or too few",
        "The numbers are right, and the shape has an axis of size 1 too many or too few. Look at "
        "keepdim, squeeze and unsqueeze.",
        test=same_but_axes,
    ),
    *_relations(),
    VAGUE,
)


def changes(call: Call, names: list[str]) -> Iterator[tuple[Any, Change]]:
    """The changes that a call allows, each with a key that is the same for every call.

    Args:
        call: A call of the function.
        names: Names of the function's arguments.
    """

    def named(place: int) -> str:
        return names[place] if place < len(names) else f"argument {place}"

    args = call.args
    floats = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.is_floating_point()]
    for i, j in itertools.combinations(range(len(args)), 2):
        if _exchangeable(args[i], args[j]):
            yield (
                ("exchanged", i, j),
                Change(
                    f"{named(i)} and {named(j)} exchanged",
                    f"Your result is what is right with `{named(i)}` and `{named(j)}` exchanged.",
                    _exchange(i, j),
                ),
            )
    for i, value in enumerate(args):
        name = named(i)
        if isinstance(value, Tensor):
            for key, title, message, make in _of_tensor(value, name):
                yield (key, i), Change(title, message, _put(i, make))
        elif type(value) in (int, float):
            for key, title, message, make in _of_number(name):
                yield (key, i), Change(title, message, _put(i, make))
    for i, j in itertools.permutations(floats, 2):
        yield (
            ("in place of", i, j),
            Change(
                f"{named(j)} in place of {named(i)}",
                f"Your result is what is right when `{named(j)}` stands where `{named(i)}` should.",
                _twice(i, j),
            ),
        )
    for key in call.kwargs:
        yield (
            ("dropped", key),
            Change(
                f"{key} is ignored",
                f"Your result is what is right without `{key}`, as if it had not been given.",
                _drop(key),
            ),
        )


def _exchangeable(one: Any, other: Any) -> bool:
    both = isinstance(one, Tensor) and isinstance(other, Tensor)
    return both and one.dtype == other.dtype and 0 < one.dim() == other.dim()


def _of_tensor(value: Tensor, name: str) -> Iterator[tuple[Any, str, str, Callable[[Any], Any]]]:
    if value.dtype == torch.bool:
        yield (
            "not",
            f"{name} is turned round",
            f"You treat True in `{name}` as False, and False as True.",
            torch.logical_not,
        )
        yield (
            "all",
            f"{name} is ignored",
            f"Your result is what is right when every entry of `{name}` is True.",
            torch.ones_like,
        )
        return
    if not value.is_floating_point():
        for step, word in ((1, "many"), (-1, "few")):
            yield (
                step,
                f"one too {word}",
                f"Your result is what is right when every number in `{name}` is "
                f"{'larger' if step > 0 else 'smaller'} by one. Positions count from 0.",
                partial(operator.add, step),
            )
        yield (
            "most",
            f"{name} makes no difference between rows",
            f"Your result is what is right when every number in `{name}` is the largest of them.",
            lambda x: torch.full_like(x, int(x.max())),
        )
    else:
        yield (
            "zeros",
            f"{name} is left out",
            f"Your result is what is right when `{name}` is 0 everywhere.",
            torch.zeros_like,
        )
        yield (
            "ones",
            f"{name} is left out",
            f"Your result is what is right when `{name}` is 1 everywhere.",
            torch.ones_like,
        )
        yield (
            "minus",
            f"the sign of {name} is wrong",
            f"Your result is what is right for the negative of `{name}`.",
            torch.neg,
        )
        if value.dim() >= 2:
            yield (
                "transposed",
                f"{name} is transposed",
                f"Your result is what is right with the last two axes of `{name}` exchanged.",
                lambda x: x.transpose(-1, -2),
            )
    if value.dim() >= 1:
        for axis in {-1, -value.dim()}:
            yield (
                ("flip", axis),
                f"{name} is read in reverse",
                f"Your result is what is right with `{name}` in reverse order along axis {axis}.",
                partial(torch.flip, dims=(axis,)),
            )
            yield (
                ("first", axis),
                f"the first of {name} for all",
                f"Your result is what is right when, along axis {axis}, all of `{name}` is like "
                "its first entry.",
                partial(_first, axis=axis),
            )
            for step in (1, -1):
                yield (
                    ("roll", axis, step),
                    f"{name} is shifted by one",
                    f"Your result is what is right with `{name}` shifted by one along axis {axis}.",
                    partial(torch.roll, shifts=step, dims=axis),
                )


def _of_number(name: str) -> Iterator[tuple[Any, str, str, Callable[[Any], Any]]]:
    yield (
        "inverse",
        f"divided by {name} in place of multiplied",
        f"Your result is what is right for 1 divided by `{name}`.",
        lambda x: 1 / x,
    )
    for step in (1, -1):
        yield (
            step,
            f"{name} is off by one",
            f"Your result is what is right when `{name}` is "
            f"{'larger' if step > 0 else 'smaller'} by one.",
            partial(operator.add, step),
        )
    yield (
        "minus",
        f"the sign of {name} is wrong",
        f"Your result is what is right for the negative of `{name}`.",
        lambda x: -x,
    )


def _put(place: int, make: Callable[[Any], Any]) -> Callable[[Call], Call | None]:
    def change(call: Call) -> Call | None:
        if place >= len(call.args):
            return None
        args = list(call.args)
        args[place] = make(args[place])
        return Call(tuple(args), call.kwargs, call.via)

    return change


def _exchange(i: int, j: int) -> Callable[[Call], Call | None]:
    def change(call: Call) -> Call | None:
        args = list(call.args)
        args[i], args[j] = args[j], args[i]
        return Call(tuple(args), call.kwargs, call.via)

    return change


def _twice(i: int, j: int) -> Callable[[Call], Call | None]:
    def change(call: Call) -> Call | None:
        args = list(call.args)
        if args[i].shape != args[j].shape or args[i].dtype != args[j].dtype:
            return None
        args[i] = args[j]
        return Call(tuple(args), call.kwargs, call.via)

    return change


def _drop(key: str) -> Callable[[Call], Call | None]:
    def change(call: Call) -> Call | None:
        return Call(call.args, {k: v for k, v in call.kwargs.items() if k != key}, call.via)

    return change
