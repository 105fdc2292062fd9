"""The likely cause of a wrong answer, in the order in which it should be mended.

A helper that is wrong goes first; then a mistake of the catalogue that gives the same on everything
tried; then two mistakes, or a general one, that a search finds; then a right answer with one small
change; at last what the failing call shows by itself. Nothing is told that is not sure, and a guess
says that it is one.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from attn_course.probes import student
from attn_course.probes.catalogue import Misconception, model_answer, right_answers
from attn_course.probes.compare import difference
from attn_course.probes.evidence import (
    Bench,
    Case,
    Suspect,
    effort_of,
    numbers,
    right_on,
    spoilt,
)
from attn_course.probes.explanation import Search
from attn_course.probes.facets import facets
from attn_course.probes.helpers import with_right_helpers, wrong_helpers
from attn_course.probes.naming import explain, name_misconceptions
from attn_course.probes.oracle import parameters
from attn_course.probes.outcome import Outcome, Record, agree, judge, known, run
from attn_course.probes.relations import Numbers, Relation, close
from attn_course.probes.slips import slips
from attn_course.probes.student import GradientMissing
from attn_course.probes.values import leaves, size

_VARIED = 2  # different wrong arrays that a small change must explain
_SINGLE = 3  # or different wrong numbers, where an answer is one number
_TEXTS = 2  # or different wrong texts, each beside the right one
_MOST_WORK = 80_000  # small changes, times the effort that an answer to the smallest call takes
_LEAST = "` instead of `|a number is off by one|another power"
_ANY_VALUE = r"`\w+`(?! instead)|an intermediate result|a condition is (?=inverted)"
NOT_SEARCHED = ("raises", "judges", "memory", "costly")


@dataclass(frozen=True)
class Cause:
    """A name for programs, None where nothing is sure, and the words for the learner."""

    name: str | None = None
    text: str = ""


def find_cause(suspect: Suspect) -> Cause:
    """Say what is behind a wrong answer: a helper, a catalogued mistake, a general one."""
    helpers = wrong_helpers(
        suspect.function, suspect.name, suspect.namespace, suspect.catalogue, suspect.right_of
    )
    if not helpers:
        return _own_cause(suspect)
    told = "; ".join(helper.text(suspect.name) for helper in helpers)
    names = [h.found[0].name for h in helpers if len(h.found) == 1]
    name = names[0] if names else f"{helpers[0].name} is not right yet"
    mended = with_right_helpers(suspect.function, helpers)
    if mended is None:
        return Cause(name, f"{told}.")
    again = run(mended, suspect.failing.call)
    passes = _passes(suspect, again)
    if passes is not False:
        return Cause(name, f"{told}.{' Then this test passes.' if passes else ''}")
    records = [Record(r.call, None, function=mended) for r in suspect.records]
    failing = Record(suspect.failing.call, again)
    own = _own_cause(replace(suspect, function=mended, records=records, failing=failing))
    rest = f" `{suspect.name}` has a fault as well"
    return Cause(own.name or name, f"{told}.{rest}{': ' + own.text if own.text else '.'}")


def _passes(suspect: Suspect, again: Outcome) -> bool | None:
    """Whether another outcome of the failing call is right; None where nobody can say."""
    if suspect.wrong.kind == "judges":  # the other verdict
        verdict, before = again.value, suspect.failing.outcome.value
        return type(verdict) is bool and (type(before) is not bool or verdict is not before)
    right = suspect.right
    if right is None and (oracle := suspect.oracle or suspect.right_of(suspect.name)) is not None:
        right = known(oracle, suspect.failing.call)
    return None if right is None else judge(again, right, brief=True) is None


def _own_cause(suspect: Suspect) -> Cause:
    found = name_misconceptions(
        suspect.function, suspect.bench, suspect.failing, suspect.right, suspect.records
    )
    if found:
        guess = (
            "A guess, because none of your numbers is finite: " if _nothing_finite(suspect) else ""
        )
        return Cause(found[0].name if len(found) == 1 else None, guess + explain(found))
    if _returns_nothing(suspect):
        name = "the return is missing"
        text = "Without a return statement, Python returns None."
        return Cause(name, f"{name}. {text}")
    if suspect.wrong.kind == "judges":
        return _of_judging(suspect)
    if suspect.wrong.kind in NOT_SEARCHED:
        return Cause()
    if _only_rounded(suspect):
        return _joined([Cause(*facet) for facet in facets(suspect, named=True)])
    return _by_search(suspect)


def _only_rounded(suspect: Suspect) -> bool:
    """Whether the answer is the right one in another dtype."""
    if suspect.wrong.kind != "dtype" or suspect.right is None:
        return False
    pairs = zip(leaves(suspect.failing.outcome.value), leaves(suspect.right.value), strict=False)
    return all(
        difference(mine, due.to(mine.dtype), brief=True) is None
        for mine, due in pairs
        if isinstance(mine, Tensor) and isinstance(due, Tensor)
    )


def _nothing_finite(suspect: Suspect) -> bool:
    """Whether no answer holds a number that one mistake gives and another does not."""
    right = None if suspect.right is None else numbers(suspect.right)
    if numbers(suspect.failing.outcome) is None or not any(
        np.isfinite(a).any() for a in right or ()
    ):
        return False
    outcomes = suspect.failing.outcome, *suspect.bench.tried.values()
    return not any(np.isfinite(a).any() for one in outcomes for a in numbers(one) or ())


def _returns_nothing(suspect: Suspect) -> bool:
    outcome = suspect.failing.outcome
    if outcome.error is not None:
        return isinstance(outcome.error, GradientMissing) and "None" in str(outcome.error)
    asked = suspect.wrong.kind == "judges" or (suspect.right and suspect.right.value is not None)
    return outcome.value is None and bool(asked)


def _by_search(suspect: Suspect) -> Cause:
    mistakes = suspect.catalogue.of(suspect.name)
    steps = (m.right for m in mistakes if m.right is not None)  # quicker than a kernel
    right = next(steps, None) or suspect.right_of(suspect.name) or suspect.oracle
    if right is None:
        return Cause()
    bench, first = suspect.bench, _first_cases(suspect, right)
    cases = bench.evidence(suspect.function, right, first)
    if not _steady(suspect):
        name = "a different result at every call"
        text = (
            "For the same input your function returns different numbers at each call: it draws "
            "random numbers, keeps a state between calls, or, in a kernel, reads beyond the end of "
            "a tensor (check masks and strides)."
        )
        return Cause(name, f"{name}. {text}")
    found = Search(bench, cases, right, mistakes, parameters(right)).explain()
    why = found[0].why if len(found) == 1 else None
    # the sign of an argument may be that of a term it stands in
    sign = why is not None and why.change is not None and why.change[0][0] == "minus"
    unsure = why is None or len(why.parts) > 1 or sign or _is_vague(why.relation)
    if unsure and (slip := _slip(suspect, bench, first)):
        return Cause(slip.name, f"{slip.name}. {slip.message}")
    parts = [Cause(" and ".join(one.names), one.text) for one in found]
    parts = parts or _patterns(bench, cases, mistakes)
    parts += [Cause(*facet) for facet in facets(suspect, named=bool(parts))]
    return _joined(parts)


def _joined(parts: Sequence[Cause]) -> Cause:
    names = dict.fromkeys(part.name for part in parts if part.name)
    return Cause(" and ".join(names) or None, " Also: ".join(part.text for part in parts))


def _is_vague(relation: Relation | None) -> bool:
    return relation is not None and "factor" in relation.name


def _slip(suspect: Suspect, bench: Bench, first: Sequence[Case]) -> Misconception | None:
    """A right answer with one small change that alone gives the learner's numbers everywhere."""
    if bench.slips is None:
        mistakes = suspect.catalogue.of(suspect.name)
        answers = [model_answer(suspect.slug, suspect.name), *(m.right for m in mistakes)]
        answers += right_answers(suspect.slug, suspect.name)
        rights = [r for r in dict.fromkeys(answers) if r is not None]
        seen = sorted(bench.cases or first, key=_cost)  # nearly all of them fail on the first one
        most = _MOST_WORK // effort_of(rights[-1], seen[0].call) if rights else 0
        made = [slip for right in rights for slip in slips(suspect.name, right)]
        bench.slips = _agreeing(made[:most], seen)
        little = all(re.search(_LEAST, slip.name) for slip in bench.slips)
        for right in rights[:2] if little else ():
            bench.slips += _agreeing(list(slips(suspect.name, right, more=True)[:most]), seen)
    arrays, single, texts = _varied([*(bench.cases or ()), *first])
    few = len(arrays) < _VARIED and len(single) < _SINGLE and len(texts) < _TEXTS
    if few or not bench.slips:
        return None
    failing, wanted = suspect.failing, suspect.right
    found = [  # a right answer may be as near as the learner's, where little is wrong
        slip
        for slip in _agreeing(bench.slips, first)
        if wanted is None or judge(run(slip.function, failing.call), wanted, brief=True)
    ]
    if any("a sign is wrong" in slip.name for slip in found):  # turns the axes of a difference too
        found = [slip for slip in found if not re.search(r"ax[ei]s|index|transposed", slip.name)]
    return _same_slip(_closest(found, [*first, *(bench.cases or ())]))


def _closest(found: list[Misconception], cases: Sequence[Case]) -> list[Misconception]:
    """Those that give the learner's numbers up to rounding, where one of several does."""
    if len(found) < 2:
        return found
    seen = [case for case in cases if case.wrong and case.usable]
    near = [m for m in found if all(close(numbers(run(m.function, c.call)), c.got) for c in seen)]
    return near or found


def _same_slip(found: list[Misconception]) -> Misconception | None:
    """One change, where all that fit are of one place, or most are the same in other words."""
    # names and indices that hold the same numbers can be exchanged: the least that can be said
    telling = [slip for slip in found if not re.search(_LEAST, slip.name)] or found
    telling.sort(key=lambda slip: ("an intermediate" in slip.name, "the result)" not in slip.name))
    kinds = [re.sub(_ANY_VALUE, "_", slip.name.partition(" (")[0]) for slip in telling]
    if not telling or len({slip.name.partition(" (")[2] for slip in telling}) == 1:
        return next(iter(telling), None)
    (most, often), *rest = Counter(kinds).most_common(2)
    if any(2 * count > often for _, count in rest):
        return None
    return telling[kinds.index(most)]


def _varied(cases: Sequence[Case]) -> tuple[set[bytes], set[bytes], set[str]]:
    """The wrong arrays that hold different finite numbers, the wrong single numbers and texts.

    A constant array may be given by much else.
    """
    arrays = [a for case in cases if case.wrong and case.usable for a in _wrong_arrays(case)]
    finite = [a[np.isfinite(a)] for a in arrays]
    several = {a.tobytes() for a in finite if a.size and np.ptp(a)}
    both = [(case.right.value, case.mine.value) for case in cases]
    texts = {f"{a!r} {b!r}" for a, b in both if type(a) is type(b) is str and a != b}
    return several, {a.tobytes() for a in finite if a.size == 1}, texts


def _wrong_arrays(case: Case) -> Numbers:
    got, expected = case.got or [], case.expected or []
    if len(got) != len(expected):
        return got
    return [a for a, b in zip(got, expected, strict=True) if spoilt([a], [b])]


def _agreeing(left: list[Misconception], cases: Sequence[Case]) -> list[Misconception]:
    """Those that give what the learner's function gives on all of these calls."""

    for case in sorted(cases, key=_cost):
        if left:
            left = [one for one in left if agree(case.mine, run(one.function, case.call))]
    return left


def _cost(case: Case) -> tuple[bool, int]:
    return not (case.wrong and case.usable), size((case.call.args, case.call.kwargs))


def _first_cases(suspect: Suspect, right: Callable[..., Any]) -> list[Case]:
    """The failing call first, then what the test called and found right."""
    failing = suspect.failing
    due = right_on(right, failing.call) if suspect.right is None else suspect.right
    cases = [Case(failing.call, due, failing.outcome)]
    return cases + [Case(r.call, right_on(right, r.call), r.outcome) for r in suspect.records]


def _steady(suspect: Suspect) -> bool:
    if suspect.failing.outcome.error is not None:
        return True
    before = numbers(suspect.failing.outcome)
    for _ in range(2):  # one that changes at every second call gives the same after two
        again = numbers(run(suspect.function, suspect.failing.call))
        if before is None or again is None or len(before) != len(again):
            if (before is None) != (again is None):
                return False
        elif not all(
            a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
            for a, b in zip(before, again, strict=True)
        ):
            return False
    return True


def _patterns(
    bench: Bench, cases: Sequence[Case], mistakes: Sequence[Misconception]
) -> list[Cause]:
    """Mistakes that show as NaN or infinity.

    One is told if it gives all finite numbers as well, with infinity instead of NaN or the other
    way round. It is a guess if it gives the same places, whatever the other numbers, and only where
    the call that failed has them: a second fault changes finite numbers alone.
    """
    failing, seen = cases[0], [(case, _holes(case.got)) for case in cases if case.usable]
    if not failing.usable:
        return []
    exact = [
        m
        for m in mistakes
        if all(close(_filled(bench.of_mistake(m, c.call)), _filled(c.got)) for c, _ in seen)
    ]
    if exact:
        return [Cause(exact[0].name if len(exact) == 1 else None, explain(exact))]
    if _same(_holes(failing.got), _holes(failing.expected)):
        return []
    # where there are some that do not belong there, most mistakes are out
    seen.sort(key=lambda pair: _same(pair[1], _holes(pair[0].expected)))

    def same(mistake: Misconception, case: Case, holes: list[Any] | None) -> bool:
        theirs = bench.of_mistake(mistake, case.call)
        if not _same(_holes(theirs), holes):
            return False
        # a mistake that spoils other numbers too has to be found by these
        odd = any(bool(h.any()) for h in holes or ())
        return odd or not Case(case.call, case.right, known(mistake.function, case.call)).wrong

    found = [m for m in mistakes if all(same(m, case, h) for case, h in seen)]
    guess = "A guess, from the positions of NaN and infinity: "
    return [Cause(None, guess + explain(found))] if found else []


def _filled(found: Numbers | None) -> Numbers | None:
    return None if found is None else [np.where(np.isfinite(a), a, np.nan) for a in found]


def _holes(found: list[Any] | None) -> list[Any] | None:
    return None if found is None else [~np.isfinite(a) for a in found]


def _same(one: list[Any] | None, other: list[Any] | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return False
    return all(a.shape == b.shape and bool((a == b).all()) for a, b in zip(one, other, strict=True))


def _of_judging(suspect: Suspect) -> Cause:
    """A test that the learner wrote: an error, or exact comparison where numbers are rounded."""
    if suspect.failing.outcome.error is not None and "the wrong answer" in suspect.wrong.text:
        name = "an error instead of a verdict"
        text = (
            "Your test raises an error for a wrong answer. A candidate that raises an error is "
            "wrong: call it in a try block."
        )
        return Cause(name, f"{name}. {text}")
    candidate = suspect.failing.call.args[0]
    rejects = "rejects a right answer" in suspect.wrong.text
    if not rejects or not student.accepts_tolerantly(suspect.function, candidate):
        return Cause()
    name = "exact comparison of rounded numbers"
    text = (
        "Right answers differ in the last digits, because sums are rounded in another order. "
        "Compare up to a tolerance with torch.allclose, not with torch.equal or ==."
    )
    return Cause(name, f"{name}. {text}")
