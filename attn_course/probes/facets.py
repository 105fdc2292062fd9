"""General faults that a failing call shows by itself, beside its numbers."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import Tensor

from attn_course.probes.catalogue import Call
from attn_course.probes.evidence import Suspect, floating, numbers, right_on, source
from attn_course.probes.oracle import parameters
from attn_course.probes.outcome import judge, run
from attn_course.probes.relations import Numbers, close
from attn_course.probes.student import Gradient, GradientMissing
from attn_course.probes.values import leaves, transform

_LARGE = 30.0  # exponentials of larger numbers are what overflows; smaller ones are harmless
_NEARLY = 0.05  # as far as a small constant takes ordinary numbers away
_SHORT = 2e-2  # as far as the rounding of 16 bits takes them
_CONSTANT = r"(\+|min=|,)\s*([1-9]\.?\d*e-\d+|0\.0\d*[1-9])"
_OUTSIDE = re.compile(r"(reads|writes) element -?\d+ of `")  # of ``bounds``
_WITHOUT_OPERATION = re.compile(r"not implemented for '(\w+)'")

CUT_OFF = (
    "Your result is detached from its inputs (detach, no_grad, item or a new tensor), so no "
    "gradient flows back. Compute it from the inputs with torch operations only."
)
IN_PLACE = "You change a tensor that the caller still needs. Create a new tensor."
_DTYPE = (
    "Your result has another dtype than its inputs. Look for new tensors, for .float(), .double() "
    "and for Python numbers."
)
_LACKS = (
    "In that line, convert the tensor to another dtype first, such as float, then convert the "
    "result back."
)
_LEAVES = (
    "That memory belongs to something else. Lanes beyond the end need a mask, in loads and in "
    "stores; a row begins at its index times the row length in memory, not the block size; and "
    "each axis of the grid has its own program id."
)
_NO_DIFFERENCE = "Your result does not change with it."
_FLOAT = (
    "The number is right, but its type is not: `/`, `float` and most functions of NumPy and torch "
    "return a float, and the text asks for an integer."
)
_ANOTHER_FORM = (
    "The numbers and their order are right. Return them in the form that the text asks for."
)
_ENDLESS = (
    "Your result contains itself, like a list that is appended to itself. Check what you append."
)
_HALF = (
    "Your values are right to about three digits, and your code uses a 16-bit format. Keep the "
    "dtype of the inputs."
)
_CONSTANT_ADDED = (
    "You add it to avoid a division by 0 or a logarithm of 0, but it changes every result, most of "
    "all that of small numbers. Treat the special case separately."
)
_OVERFLOW = (
    "Your result is finite for small numbers. The exponential of a large one is infinite (of a "
    "very negative one 0), and NaN may follow."
)
_SUBTRACT = "You can subtract a common term before the exponential."
_SUBTRACTED = (
    "You do subtract a maximum. Print the argument of each exponential: it must never be above 0, "
    "and in each row one of them must be 0."
)

Facet = tuple[str | None, str]  # a name for programs, None where it is a guess, and the words


def facets(suspect: Suspect, *, named: bool) -> Iterator[Facet]:
    """The general faults of the failing call.

    Args:
        suspect: The learner's function.
        named: Whether something else explains the numbers already.
    """

    def told(name: str, words: str, guess: str = "") -> Facet:
        return name, f"{guess}{name}. {words}"

    right, error = suspect.right, suspect.failing.outcome.error
    if suspect.failing.outcome.mutated and not (right is not None and right.mutated):
        yield told("an argument is changed in place", IN_PLACE)
    if suspect.wrong.kind == "dtype":
        yield told("the dtype is not kept", _DTYPE)
    if named:
        return
    if isinstance(error, RecursionError) and "contains itself" in str(error):
        yield told("the result contains itself", _ENDLESS)
    value, whole = suspect.failing.outcome.value, None if right is None else right.value
    if type(value) is float and type(whole) is int and value == whole:
        yield told("a float instead of an integer", _FLOAT)
    elif type(value) is not type(whole) and _same_numbers(suspect):
        kinds = f"a {type(value).__name__} instead of a {type(whole).__name__}"
        yield told(kinds, _ANOTHER_FORM)
    if isinstance(error, GradientMissing):
        name = _without_gradient(suspect)
        if name == "detached from its inputs":
            yield told(name, CUT_OFF)
        elif name:
            yield told(name, _NO_DIFFERENCE)
    elif isinstance(error, IndexError) and _OUTSIDE.search(str(error)):
        yield told("the kernel leaves its tensor", _LEAVES)
    elif error is not None and (kind := _WITHOUT_OPERATION.search(str(error))):
        yield told(f"torch has no such operation for {kind[1]}", _LACKS)
    mine = numbers(suspect.failing.outcome)
    due = None if right is None else numbers(right)
    if mine is None or due is None or [a.shape for a in mine] != [b.shape for b in due]:
        return
    if spoilt_by(mine, due, np.isnan) or spoilt_by(mine, due, np.isinf):
        yield _not_finite(suspect, mine, due)
    elif _is_rounded(suspect, mine, due):
        yield told("half precision", _HALF, "A guess: ")
    elif _is_guarded_by_a_constant(suspect, mine, due):
        yield told("a small constant changes the result", _CONSTANT_ADDED, "A guess: ")
    elif name := _ignored(suspect):
        yield told(name, _NO_DIFFERENCE)


def _same_numbers(suspect: Suspect) -> bool:
    """Whether a result of another type holds what is right, in the same order."""
    mine = numbers(suspect.failing.outcome)
    due = None if suspect.right is None else numbers(suspect.right)
    if not mine or not due:
        return False
    one, other = (np.concatenate([a.reshape(-1) for a in found]) for found in (mine, due))
    return close([one], [other])


def spoilt_by(mine: Numbers, due: Numbers, is_odd: Callable[[Any], Any]) -> bool:
    """Whether numbers are NaN (or infinite) that should not be."""
    return any(bool((is_odd(a) & ~is_odd(b)).any()) for a, b in zip(mine, due, strict=True))


def _without_gradient(suspect: Suspect) -> str:
    """An argument on which no value depends, or that the result is detached from its inputs.

    "" where a value depends on the argument in another call: then it is neither.
    """
    names = parameters(suspect.right_of(suspect.name) or len)
    for place in map(int, re.findall(r"argument (\d+)", str(suspect.failing.outcome.error))):
        if _ignores(suspect, place, suspect.failing.call):
            return _unused(suspect, place, names)
    return "detached from its inputs"


def _unused(suspect: Suspect, place: int, names: list[str]) -> str:
    """The words for an argument that the learner's function ignores in every call; "" otherwise."""
    plain = [case.call for case in suspect.bench.cases or () if case.call.via is None]
    name = names[place] if place < len(names) else f"argument {place}"
    unused = all(_ignores(suspect, place, call) for call in plain)
    return f"{name} is not used" if unused else ""


def _ignored(suspect: Suspect) -> str:
    """The words for an argument that makes no difference, and that should; "" if there is none."""
    call, right = suspect.failing.call, suspect.right_of(suspect.name) or suspect.oracle
    if right is None or call.via is not None:
        return ""
    due = numbers(right_on(right, call))
    matter = [
        place
        for place in range(len(call.args))
        if any(not close(numbers(right_on(right, c)), due) for c in _changed(call, place))
    ]
    ignored = [place for place in matter if _ignores(suspect, place, call)]
    constant = len(ignored) == len(matter)
    return "" if constant or not ignored else _unused(suspect, ignored[0], parameters(right))


def _ignores(suspect: Suspect, place: int, call: Call) -> bool:
    """Whether the learner's function gives the same for other numbers in an argument."""
    plain = numbers(run(suspect.function, Call(call.args, call.kwargs)))
    changed = list(_changed(call, place))
    return bool(changed and plain) and all(
        close(numbers(run(suspect.function, other)), plain) for other in changed
    )


def _changed(call: Call, place: int) -> Iterator[Call]:
    """The call with other numbers in an argument, also in another order."""
    value: Any = call.args[place] if place < len(call.args) else None
    others: list[Any] = []
    if isinstance(value, Tensor) and value.numel() > 1:
        value = value.detach()
        mixed = value.flatten().roll(1).reshape(value.shape)
        others = [value.flip(0), mixed]
        if floating(value):
            others = [1.5 * value.flip(-1) + 0.25, 0.5 * mixed]
    elif type(value) is float:
        others = [1.5 * value + 0.25]
    for other in others:
        args = [*call.args[:place], other, *call.args[place + 1 :]]
        yield Call(tuple(args), call.kwargs)


def _not_finite(suspect: Suspect, mine: Numbers, due: Numbers) -> Facet:
    """Where NaN or infinity may come from."""
    call, text = suspect.failing.call, source(suspect.function)
    given = [x for x in leaves((call.args, call.kwargs)) if floating(x) and x.numel()]
    large = max((float(x.detach().abs().max()) for x in given), default=0.0) >= _LARGE
    takes_powers = re.search(r"\bexp_?\(|logsumexp|\*\*", text) is not None
    plain = call.via is None or isinstance(call.via, Gradient)
    finite = not any(bool((~np.isfinite(b)).any()) for b in due)
    if large and takes_powers and plain and finite:
        small = _multiplied(call, 1e-3)
        got = numbers(run(suspect.function, small))
        if got is not None and all(bool(np.isfinite(a).all()) for a in got):
            if re.search(r"\ba?max", text):
                return None, f"A guess: an exponential overflows. {_OVERFLOW} {_SUBTRACTED}"
            name = "exp without subtracting the maximum"
            return name, f"A guess: {name}. {_OVERFLOW} {_SUBTRACT}"
    kind = "NaN" if spoilt_by(mine, due, np.isnan) else "infinity"
    sources = {
        "NaN": "0 divided by 0, infinity minus infinity, or 0 times infinity",
        "infinity": "a division by 0, the logarithm of 0, or the exponential of a large number",
    }
    return None, (
        f"A guess: {kind} comes from {sources[kind]}. Print the intermediate results for the "
        f"example, and look for the first that holds {kind}."
    )


def _is_rounded(suspect: Suspect, mine: Numbers, due: Numbers) -> bool:
    """Whether the code names a short format and the errors have the size of its rounding."""
    for a, b in zip(mine, due, strict=True):
        largest = max(1.0, *np.abs(b[np.isfinite(b)]).reshape(-1), 0.0)
        if not np.allclose(a, b, rtol=_SHORT, atol=_SHORT * largest):
            return False
    return re.search(r"half\(|float16", source(suspect.function)) is not None


def _is_guarded_by_a_constant(suspect: Suspect, mine: Numbers, due: Numbers) -> bool:
    """Whether the code adds a small constant, is nearly right, and right for large numbers."""
    oracle = suspect.oracle or suspect.right_of(suspect.name)
    if oracle is None or not all(
        np.allclose(a, b, rtol=_NEARLY, atol=_NEARLY * np.ptp(b))
        for a, b in zip(mine, due, strict=True)
    ):
        return False
    large = _multiplied(suspect.failing.call, 1e4)
    there = right_on(oracle, large)
    if (
        there.error is not None
        or judge(run(suspect.function, large), there, brief=True) is not None
    ):
        return False
    return re.search(_CONSTANT, source(suspect.function)) is not None


def _multiplied(call: Call, factor: float) -> Call:
    def leaf(value: Any) -> Any:
        return factor * value if floating(value) else value

    return Call(transform(call.args, leaf), transform(call.kwargs, leaf), call.via)
