"""Find out why an answer is wrong: name the misconception, or else the property that broke."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from attn_course.probes import properties
from attn_course.probes.catalogue import Call, Catalogue, Misconception
from attn_course.probes.memo import remembered
from attn_course.probes.outcome import Outcome, agree, judge, known, run
from attn_course.probes.record import Record
from attn_course.probes.student import quiet
from attn_course.probes.values import copy, leaves, size

_MOST_WITNESSES = 64
_NUMBER = re.compile(r"\d+")

Tried = dict[int, Outcome]  # what the learner's function gave, by the number of the witness call


def name_misconceptions(
    function: Callable[..., Any],
    catalogue: Catalogue,
    name: str,
    records: Sequence[Record],
    failing: Record,
    right: Outcome | None,
    tried: Tried,
) -> list[Misconception]:
    """Return the catalogued misconceptions that give what the learner's function gives.

    A misconception is returned when it agrees on every recorded call and on every witness call of
    the catalogue, and is itself wrong on the failing call.

    Args:
        function: The learner's function, for the witness calls.
        catalogue: Where to look.
        name: Name of the graded function.
        records: Everything the test called so far.
        failing: The call that failed.
        right: The oracle's outcome on the failing call, where there is an oracle.
        tried: The outcomes on the witness calls that are known; receives the others.
    """
    left: list[Misconception] = []
    for candidate in catalogue.of(name):
        there = known(candidate.function, failing.call)
        if not agree(failing.outcome, there):
            continue
        if right is not None and judge(there, right, brief=True) is None:
            continue
        if all(agree(record.outcome, known(candidate.function, record.call)) for record in records):
            left.append(candidate)
    for number, call in enumerate(catalogue.witness_calls(name)[:_MOST_WITNESSES]):
        if not left:
            break
        if number not in tried:
            tried[number] = run(function, call)
        mine = tried[number]
        left = [c for c in left if agree(mine, known(c.function, call))]
    # An answer that changes from call to call is no catalogued one, whatever it gave just now.
    if left and not agree(failing.outcome, run(function, failing.call)):
        return []
    return left


def explain(found: Sequence[Misconception]) -> str:
    """Write the likely cause from what ``name_misconceptions`` returned."""
    if not found:
        return ""
    if len(found) == 1:
        return f"{found[0].name}. {' '.join(found[0].message.split())}"
    # On these inputs they give the same numbers: claim no more than that.
    listed = "; or ".join(f"{m.name}. {' '.join(m.message.split())}" for m in found)
    return f"one of these, which agree on everything tried: {listed}"


def broken_property(
    function: Callable[..., Any], oracle: Callable[..., Any] | None, call: Call
) -> str | None:
    """Return the symptom of the first universal property that the oracle keeps and this breaks."""
    if oracle is None or call.via is not None:
        return None
    shares = _known_symptom(properties.rows_sum_to_one, oracle, call) is None
    for claim in properties.UNIVERSAL:
        if claim is properties.non_negative and not shares:
            continue  # a right answer that happens to be positive here may be negative elsewhere
        if _known_symptom(claim, oracle, call) is None:
            found = _symptom(claim, function, call)
            if found:
                return found
    return None


def smallest_failure(
    function: Callable[..., Any],
    oracle: Callable[..., Any] | None,
    catalogue: Catalogue,
    name: str,
    failing: Record,
    right: Outcome,
    tried: Tried,
) -> Record:
    """Return the call with the fewest numbers that fails in the same way as the failing one.

    In the same way is: with the same kind of difference, and where the right answer holds zeros
    (an empty row, padding), on such a one.
    """
    best = failing
    if oracle is None:
        return best
    fewest = size((best.call.args, best.call.kwargs))
    kind, zeros = _kind(failing.outcome, right), _zeros_spoilt(failing.outcome, right)
    for number, call in enumerate(catalogue.witness_calls(name)[:_MOST_WITNESSES]):
        same_kind = (call.via is None) == (failing.call.via is None)
        if not same_kind or (numbers := size((call.args, call.kwargs))) >= fewest:
            continue
        due = known(oracle, call)
        if due.error is not None:
            continue
        mine = tried[number] if number in tried else run(function, call)
        if not _same_error(mine.error, failing.outcome.error):
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


def _symptom(claim: properties.Property, function: Callable[..., Any], call: Call) -> str | None:
    """Check a property; an exception counts as not holding, with nothing to say about it."""
    try:
        with quiet():
            return claim(function, *copy(call.args), **copy(call.kwargs))
    except Exception:
        return ""


def _known_symptom(
    claim: properties.Property, oracle: Callable[..., Any], call: Call
) -> str | None:
    """As ``_symptom``, for a function of ours: the grader remembers it."""
    return remembered(  # type: ignore[no-any-return]
        lambda: _symptom(claim, oracle, call), claim, oracle, call, kind="symptom"
    )
