"""Say what is wrong with an answer, and show it on the smallest input that fails like it."""

import inspect
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from attn_course.probes import properties
from attn_course.probes.catalogue import Call, model_answer
from attn_course.probes.evidence import Suspect, floating
from attn_course.probes.memo import remembered
from attn_course.probes.oracle import NumpyOracle
from attn_course.probes.outcome import Outcome, Record, judge, known, write_call
from attn_course.probes.properties import Property
from attn_course.probes.student import Gradient, quiet
from attn_course.probes.values import copy, describe, leaves, show, size, transform

_NUMBER = re.compile(r"\d+")
_NOISE = 1e-7  # of the largest number: less is rounding
_SOME_INPUTS = 3
_LONG = 400  # characters of an example; half of it for a result


def shown(suspect: Suspect, claim: Property | None, *, by_hand: bool) -> tuple[str, str, str]:
    """The symptom, what was tried, and the example.

    Args:
        suspect: The learner's function, with the call that failed.
        claim: The property that broke, where it is one.
        by_hand: Whether the author of the test wrote the call, small enough for a pencil: then it
            is the example, and what is right on it is told.
    """
    failing, right, wrong = suspect.failing, suspect.right, suspect.wrong
    if wrong.kind == "judges":
        return wrong.text, "", ""
    smallest = failing
    if right is not None and not by_hand:
        smallest = _smallest_failure(suspect, right)
    if smallest is not failing and suspect.oracle is not None:
        # The words and the example are of the same input.
        right = known(suspect.oracle, smallest.call)
        wrong = judge(smallest.outcome, right) or wrong
    symptom = wrong.text
    if wrong.kind == "value" and right is not None:
        broken = _broken_property(suspect, smallest.call)
        symptom = f"{broken}; {symptom}" if broken else symptom
    names = _parameters(suspect)
    call = smallest.call
    if isinstance(call.via, Gradient):
        wrt = [names.get(w, f"argument {w}") if type(w) is int else f"`{w}`" for w in call.via.wrt]
        symptom = re.sub(
            r"^item (\d+) of the tuple", lambda m: f"the gradient of {wrt[int(m[1])]}", symptom
        )
        what = f"gradient with respect to {', '.join(wrt)} of "
    else:
        via = getattr(call.via, "__name__", "<lambda>")
        what = "" if via in ("", "<lambda>") else f"{via} of "
    symptom = re.sub(r"argument (\d+)", lambda m: names.get(int(m[1]), m[0]), symptom)
    if hasattr(type(suspect.function), "as_called"):  # in another convention than the book's
        as_called = suspect.function.as_called  # type: ignore[attr-defined]
        smallest, right = as_called(smallest), right and as_called(Record(call, right)).outcome
        call = smallest.call
    parts = [describe(a) for a in call.args]
    parts += [f"{key}={describe(value)}" for key, value in call.kwargs.items()]
    tried = f"{suspect.name}({', '.join(parts)})"
    example = _example(suspect.name, smallest, right if by_hand else None, what)
    return symptom, f"{f'{claim.name}, for ' if claim else ''}{what}{tried}", example


def _parameters(suspect: Suspect) -> dict[int, str]:
    """Names of the arguments, as the learner has them, or a right answer."""
    function: Any = suspect.function
    if not isinstance(function, FunctionType):
        function = model_answer(suspect.slug, suspect.name) or suspect.oracle
    function = function.function if isinstance(function, NumpyOracle) else function
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return {}
    return {i: f"`{p.name}`" for i, p in enumerate(found) if p.kind is p.POSITIONAL_OR_KEYWORD}


def _example(name: str, record: Record, right: Outcome | None, what: str) -> str:
    """The call as the learner would type it, and what it gave; "" where that shows no numbers."""
    text: str = remembered(lambda: write_call(name, record.call), name, record.call, kind="text")
    values = [*leaves((record.call.args, record.call.kwargs))]
    if len(text) > _LONG or ("<" in text and not any(map(_is_written_out, values))):
        return ""
    got = show(_without_noise(record.outcome.value)) if record.outcome.error is None else ""
    got = "" if len(got) > _LONG // 2 else got
    if right is not None and right.error is None:
        expected = show(_without_noise(right.value))
        if len(expected) < _LONG // 2 and not expected.startswith("<"):
            return f"{what}{text}: expected {expected}" + (f", got {got}" if got else "")
    if got and record.call.via is None and not got.startswith("<"):
        text += f" gave {got}"
    return text


def _is_written_out(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() > 0 and not show(value).startswith("<")


def _without_noise(value: Any) -> Any:
    """Numbers without those that are rounding beside the largest one: they are shown as 0."""

    def leaf(one: Any) -> Any:
        if not floating(one) or not one.numel():
            return one
        one = one.detach()
        finite = one.isfinite()
        most = torch.where(finite, one, 0.0).abs().max()
        return torch.where(finite & (one.abs() < _NOISE * most), 0.0, one)

    return transform(value, leaf)


def _broken_property(suspect: Suspect, call: Call) -> str | None:
    """The symptom of the first universal property that the oracle keeps and this breaks.

    It keeps it on some inputs of the catalogue too: on one it may do so by chance.
    """
    oracle = suspect.oracle
    if oracle is None or call.via is not None:
        return None
    if not any(map(floating, leaves(known(oracle, call).value))):
        return None  # sums of a mask say nothing
    plain = [other for other in suspect.bench.inputs if other.via is None]
    keeps = [
        claim
        for claim in properties.UNIVERSAL
        if all(_known_symptom(claim, oracle, c) is None for c in (call, *plain[:_SOME_INPUTS]))
    ]
    for claim in keeps:
        if claim is properties.non_negative and properties.rows_sum_to_one not in keeps:
            continue  # a right answer that happens to be positive here may be negative elsewhere
        if found := _symptom(claim, suspect.function, call):
            return found
    return None


def _smallest_failure(suspect: Suspect, right: Outcome) -> Record:
    """The call with the fewest numbers that fails in the same way as the failing one.

    In the same way is: with the same kind of difference, and where the right answer holds zeros
    (an empty row, padding), on such a one.
    """
    best, oracle, bench = suspect.failing, suspect.oracle, suspect.bench
    if oracle is None:
        return best
    fewest = size((best.call.args, best.call.kwargs))
    failed = best.outcome
    kind, zeros = _kind(failed, right), _zeros_spoilt(failed, right)
    for number, call in enumerate(bench.inputs):
        same_kind = (call.via is None) == (suspect.failing.call.via is None)
        if not same_kind or (numbers := size((call.args, call.kwargs))) >= fewest:
            continue
        due = known(oracle, call)
        if due.error is not None:
            continue
        mine = bench.tried_on(suspect.function, number)
        if not _same_error(mine.error, failed.error):
            continue
        if _kind(mine, due) == kind and _zeros_spoilt(mine, due) == zeros:
            best, fewest = Record(call, mine), numbers
    return best


def _same_error(one: BaseException | None, other: BaseException | None) -> bool:
    """Whether both failed with the same words, sizes apart, or neither raised anything.

    A process that died is gone for every later call: only the first one tells why.
    """
    return type(one) is type(other) and _NUMBER.sub("", str(one)) == _NUMBER.sub("", str(other))


def _kind(mine: Outcome, right: Outcome) -> str | None:
    found = judge(mine, right)
    return None if found is None else found.kind


def _zeros_spoilt(mine: Outcome, right: Outcome) -> bool:
    """Whether something else stands where the right answer holds exact zeros."""
    if mine.error is not None or right.error is not None:
        return False
    pairs = list(zip(leaves(mine.value), leaves(right.value), strict=False))
    return any(
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and a.shape == b.shape
        and bool(((b == 0) & (a != 0)).any())
        for a, b in pairs
    )


def _symptom(claim: Property, function: Callable[..., Any], call: Call) -> str | None:
    """Check a property; an exception counts as not holding, with nothing to say about it."""
    try:
        with quiet():
            return claim(function, *copy(call.args), **copy(call.kwargs))
    except Exception:
        return ""


def _known_symptom(claim: Property, oracle: Callable[..., Any], call: Call) -> str | None:
    """As ``_symptom``, for a function of ours: the grader remembers it."""
    return remembered(  # type: ignore[no-any-return]
        lambda: _symptom(claim, oracle, call), claim, oracle, call, kind="symptom"
    )
