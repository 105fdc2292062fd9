"""Mistakes that any function can hold: relations between two answers, and changes of the input.

A relation compares what the learner's function gave with what another one gave on the same input
(the negative of it, its transpose, a multiple). A change makes another input of a call (two
arguments exchanged, the mask inverted): whoever gives on the input what is right on the changed
one has made that mistake.
"""

import itertools
import math
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
    make: Callable[[Call], Call]  # raises where the call does not allow it


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
    """Element by element, whether two arrays of one shape are equal up to rounding."""
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 1.0
    return np.isclose(a, b, rtol=3e-5, atol=3e-6 * min(1.0, scale) + 1e-30, equal_nan=True)


def generic(a: Any) -> Any:
    """Per element, whether a number is one that is not met by chance: no small half-integer."""
    with np.errstate(all="ignore"):
        round_ = (np.abs(2 * a - np.round(2 * a)) <= 1e-4) & (np.abs(a) < 100)
        return np.isfinite(a) & ~round_ & (np.abs(a) > 1e-5)


def _each(change: Callable[..., Any], **more: Any) -> Callable[[Numbers], Numbers | None]:
    def on_all(numbers: Numbers) -> Numbers | None:
        try:
            with np.errstate(all="ignore"):
                return [change(a, **more) for a in numbers]
        except (ValueError, IndexError, np.exceptions.AxisError):
            return None

    return on_all


def _softmax(a: Any, axis: int) -> Any:
    powers = np.exp(a - a.max(axis, keepdims=True))
    return _share(powers, axis)


def _share(a: Any, axis: int) -> Any:
    if not a.ndim:  # of a single number it is 1, whatever the number
        raise ValueError("a: expected an axis, got a single number")
    return a / a.sum(axis, keepdims=True)


def _mean(a: Any, axis: int) -> Any:
    return np.broadcast_to(a.mean(axis, keepdims=True), a.shape)


def _one_for_all(a: Any, axis: int, place: int) -> Any:
    return np.broadcast_to(np.take(a, [place], axis), a.shape)


def _sigmoid(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def _relu(a: Any) -> Any:
    return np.maximum(a, 0)


_AXES = {-1: "the last axis", -2: "the second axis from the end", 0: "the first axis"}
# A name, what is done to a right result, and the words for it.
_DONE = (
    ("the sign is wrong", np.negative, "the negative of the expected one: look for a minus"),
    ("the logarithm is missing", np.exp, "the exponential of the expected one"),
    ("the square root is missing", np.square, "the square of the expected one"),
    ("a square root too many", np.sqrt, "the square root of the expected one"),
    ("the absolute value", np.abs, "the absolute value of the expected one"),
    ("one minus the result", lambda a: 1 - a, "1 minus the expected one"),
    ("the reciprocal", lambda a: 1 / a, "1 divided by the expected one"),
    ("a tanh too many", np.tanh, "the tanh of the expected one"),
    ("a sigmoid too many", _sigmoid, "the sigmoid of the expected one"),
    ("clipped at 0", _relu, "the expected one with negative numbers set to 0"),
)  # fmt: skip
_UNDONE = (
    *(("exponential", np.exp), ("tanh", np.tanh)),
    *(("sigmoid", _sigmoid), ("absolute value", np.abs)),
)


def _relations() -> Iterator[Relation]:
    for name, change, words in _DONE:
        yield Relation(name, f"Your result is {words}.", (_each(change),))
    for one, other in ((-1, -2), (0, 1), (-2, -3)):
        yield Relation(
            "two axes are exchanged",
            f"Your result has the expected numbers with axes {one} and {other} exchanged. Write "
            "down the shape of each intermediate result.",
            (_each(np.swapaxes, axis1=one, axis2=other),),
        )
    for axis, words in _AXES.items():
        yield Relation(
            f"reversed along {words}",
            f"Your result has the expected numbers in reverse order along {words}.",
            (_each(np.flip, axis=axis),),
        )
        for step, side in ((1, "late"), (-1, "early")):
            yield Relation(
                f"shifted by one along {words}",
                f"Your result has the expected numbers one position too {side} along {words}. "
                "Positions count from 0.",
                (_each(np.roll, shift=step, axis=axis),),
            )
        for place, which in ((0, "first"), (-1, "last")):
            yield Relation(
                f"the {which} element of {words} for all",
                f"Along {words}, every element of your result is the {which} of the expected ones. "
                "Compute each from its own input.",
                (_each(_one_for_all, axis=axis, place=place),),
            )
        yield Relation(
            f"a mean over {words}",
            f"Every element of your result is the mean of the expected ones over {words}. "
            "They should not be averaged.",
            (_each(_mean, axis=axis),),
        )
    for name, change in _UNDONE:
        message = f"The {name} of your result is the expected one."
        yield Relation(f"the {name} is missing", message, (), (_each(change),))
    softmaxes = tuple(_each(_softmax, axis=axis) for axis in _AXES)
    yield Relation("a softmax too many", "Your result is a softmax of the expected one.", softmaxes)
    yield Relation(
        "the softmax is missing", "A softmax of your result is the expected one.", (), softmaxes
    )
    yield Relation(
        "right up to a factor for each row",
        "Each row of your result is the expected one, multiplied by a number. The rows should sum "
        "to one.",
        backward=tuple(_each(_share, axis=axis) for axis in _AXES),
    )


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
    """The one number that every element of the base was multiplied by, if there is one."""
    shapes = [a.shape for a in mine], [b.shape for b in base]
    whole = len(mine) == 1 or not any(shapes[0])  # one array, or numbers that stand in a list
    if not mine or not whole or shapes[0] != shapes[1]:
        return None
    a, b = (np.concatenate([x.reshape(-1) for x in one]) for one in (mine, base))
    if a.size < 2:
        return None
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    at = int(np.abs(b).argmax())
    if np.count_nonzero(b) < 2 or a[at] == 0:  # any factor fits one number
        return None
    ratio = float(a[at] / b[at])
    return ratio if close([a], [ratio * b]) else None


def _multiplied(mine: Numbers, base: Numbers) -> bool:
    if [a.shape for a in mine] == [b.shape for b in base] and mine[0].ndim and mine[0].size == 1:
        return bool(mine[0].item() and base[0].item())  # any factor fits, the other inputs decide
    return _factor(mine, base) is not None


def _which_factor(mine: Numbers, base: Numbers, call: Call) -> str:
    """Say a factor in words, by a size of the inputs where one explains it; "" where it is 1."""
    ratio = _factor(mine, base) or 1.0
    if math.isclose(ratio, 1.0, rel_tol=1e-4):
        return ""
    tensors = [x for x in leaves((call.args, call.kwargs)) if isinstance(x, Tensor)]
    words = f"{ratio:.4g}"
    for size in sorted({n for x in tensors for n in x.shape} - {0, 1}, reverse=True):
        for power, named in (
            (1.0, f"{size}"),
            (-1.0, f"1/{size}"),
            (0.5, f"the square root of {size}"),
            (-0.5, f"one over the square root of {size}"),
        ):
            if abs(power) < 1 and math.isqrt(size) ** 2 == size:  # 2 or a half is met by chance
                continue
            if math.isclose(ratio, size**power, rel_tol=1e-4):
                words = f"{named}, and {size} is a size of the inputs"
    return f" On one of the inputs the factor is {words}."


VAGUE = Relation(
    "every number is multiplied by one factor",
    "Up to this factor your result is right. Look for a scale, a mean or a sum that is missing or "
    "applied twice.",
    test=_multiplied,
    hint=_which_factor,
)
RELATIONS = (
    Relation(
        "results in the wrong order",
        "You return the expected results in another order. Use the order in the text.",
        test=reordered,
    ),
    Relation(
        "an axis of size 1 too many or too few",
        "The values are right, but the shape has an axis of size 1 too many or too few. Check "
        "keepdim, squeeze and unsqueeze.",
        test=same_but_axes,
    ),
    *_relations(),
    VAGUE,
)
SIGN = next(relation for relation in RELATIONS if relation.name == "the sign is wrong")

Row = tuple[Any, str, str, Callable[[Any], Any]]
# A key, a name, how the input would have to differ, and the change; {} is the argument.
_OF_BOOLEANS: tuple[Row, ...] = (
    ("not", "`{}` is inverted", "True and False were exchanged in `{}`", torch.logical_not),
    ("all", "`{}` is ignored", "every element of `{}` were True", torch.ones_like),
)
_OF_INTEGERS: tuple[Row, ...] = (
    (1, "one too many", "every number in `{}` were larger by one", lambda x: x + 1),
    (-1, "one too few", "every number in `{}` were smaller by one", lambda x: x - 1),
    ("most", "`{}` makes no difference between rows", "every number in `{}` were its largest",
     lambda x: torch.full_like(x, int(x.max()))),
)  # fmt: skip
_OF_FLOATS: tuple[Row, ...] = (
    ("zeros", "`{}` is left out", "`{}` were 0 everywhere", torch.zeros_like),
    ("ones", "`{}` is left out", "`{}` were 1 everywhere", torch.ones_like),
    ("minus", "the sign of `{}` is wrong", "`{}` were its negative", torch.neg),
)
_OF_MATRICES: tuple[Row, ...] = (
    (
        "transposed",
        "`{}` is transposed",
        "the last two axes of `{}` were exchanged",
        lambda x: x.mT,
    ),
)
_OF_NUMBERS: tuple[Row, ...] = (
    ("inverse", "divided by `{}` instead of multiplied", "`{}` were 1 divided by it",
     lambda x: 1 / x),
    (1, "`{}` is off by one", "`{}` were larger by one", lambda x: x + 1),
    (-1, "`{}` is off by one", "`{}` were smaller by one", lambda x: x - 1),
    ("minus", "the sign of `{}` is wrong", "`{}` were its negative", lambda x: -x),
)  # fmt: skip


def _along(axis: int) -> tuple[Row, ...]:
    """Changes of a tensor along an axis."""
    return (
        (("flip", axis), "`{}` is read in reverse", f"`{{}}` were reversed along axis {axis}",
         partial(torch.flip, dims=(axis,))),
        (("first", axis), "the first of `{}` for all",
         f"along axis {axis} all of `{{}}` were like its first element",
         lambda x: x.narrow(axis, 0, 1).expand_as(x).clone()),
        *((("roll", axis, step), "`{}` is shifted by one",
           f"`{{}}` were shifted by one along axis {axis}",
           partial(torch.roll, shifts=step, dims=axis)) for step in (1, -1)),
    )  # fmt: skip


def _rows(value: Any) -> tuple[Row, ...]:
    """The changes that an argument allows."""
    if not isinstance(value, Tensor):
        return _OF_NUMBERS if type(value) in (int, float) else ()
    if value.dtype == torch.bool:
        return _OF_BOOLEANS
    axes = dict.fromkeys((-value.dim(), -1)) if value.dim() else ()
    along = tuple(row for axis in axes for row in _along(axis))
    if not value.is_floating_point():
        return _OF_INTEGERS + along
    return _OF_FLOATS + _OF_MATRICES * (value.dim() >= 2) + along


def changes(call: Call, names: list[str]) -> Iterator[tuple[Any, Change]]:
    """The changes that a call allows, each with a key that is the same for every call.

    Args:
        call: A call of the function.
        names: Names of the function's arguments.
    """
    args = call.args
    told = [*names, *(f"argument {place}" for place in range(len(names), len(args)))]
    for i, j in itertools.combinations(range(len(args)), 2):
        if _exchangeable(args[i], args[j]):
            name = f"`{told[i]}` and `{told[j]}` exchanged"
            condition = f"`{told[i]}` and `{told[j]}` were exchanged"
            yield ("exchanged", i, j), _change(name, condition, partial(_exchange, i=i, j=j))
    for i, value in enumerate(args):
        for key, name, condition, make in _rows(value):
            words = name.format(told[i]), condition.format(told[i])
            yield (key, i), _change(*words, partial(_put, i=i, make=make))
    floats = [i for i, a in enumerate(args) if isinstance(a, Tensor) and a.is_floating_point()]
    for i, j in itertools.permutations(floats, 2):
        words = f"`{told[j]}` instead of `{told[i]}`", f"`{told[i]}` were `{told[j]}`"
        yield ("instead of", i, j), _change(*words, partial(_instead, i=i, j=j))
    for key in call.kwargs:
        message = f"Your result would be right if `{key}` had not been given."
        yield ("dropped", key), Change(f"`{key}` is ignored", message, partial(_without, key=key))


def _change(name: str, condition: str, edit: Callable[[list[Any]], None]) -> Change:
    def make(call: Call) -> Call:
        args = list(call.args)
        edit(args)
        return Call(tuple(args), call.kwargs, call.via)

    return Change(name, f"Your result would be right if {condition}.", make)


def _put(args: list[Any], i: int, make: Callable[[Any], Any]) -> None:
    args[i] = make(args[i])


def _exchange(args: list[Any], i: int, j: int) -> None:
    args[i], args[j] = args[j], args[i]


def _instead(args: list[Any], i: int, j: int) -> None:
    if args[i].shape != args[j].shape or args[i].dtype != args[j].dtype:
        raise ValueError("expected two tensors of one form")
    args[i] = args[j]


def _exchangeable(one: Any, other: Any) -> bool:
    if type(one) is type(other) and type(one) in (int, float):
        return True
    both = isinstance(one, Tensor) and isinstance(other, Tensor)
    return both and one.dtype == other.dtype and 0 < one.dim() == other.dim()


def _without(call: Call, *, key: str) -> Call:
    return Call(call.args, {k: v for k, v in call.kwargs.items() if k != key}, call.via)
