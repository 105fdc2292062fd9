"""The likely cause of a wrong answer, in the order in which it should be mended."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from attn_course.probes import student
from attn_course.probes.catalogue import (
    Call,
    Catalogue,
    Misconception,
    model_answer,
    right_answer,
    right_answers,
)
from attn_course.probes.compare import Difference
from attn_course.probes.diagnosis import explain, name_misconceptions
from attn_course.probes.evidence import Bench, Case, bench_of, numbers, right_on
from attn_course.probes.explanation import Search
from attn_course.probes.helpers import with_right_helpers, wrong_helpers
from attn_course.probes.oracle import parameters
from attn_course.probes.outcome import Outcome, agree, judge, known, run
from attn_course.probes.record import Record
from attn_course.probes.relations import VAGUE, close
from attn_course.probes.slips import slips
from attn_course.probes.student import Gradient, GradientMissing
from attn_course.probes.values import leaves, size, transform

_LARGE = 30.0  # exponentials of larger numbers are what overflows; smaller ones are harmless
_NEARLY = 0.05  # as far as a small constant takes ordinary numbers away
_SHORT = 2e-2  # as far as the rounding of 16 bits takes them
_VARIED = 2  # different wrong answers that a small change must explain
_MOST_WORK = 60_000  # rarer small changes, times the effort that an answer takes
NOT_SEARCHED = ("raises", "judges", "memory", "costly")


@dataclass(frozen=True)
class Cause:
    """A name for programs, None where nothing is sure, and the words for the learner."""

    name: str | None = None
    text: str = ""


@dataclass
class Suspect:
    """A learner's function under diagnosis, with everything that is known about it.

    Args:
        function: The learner's function.
        name: Its name.
        slug: The exercise set.
        catalogue: Of the set.
        namespace: Where the learner's other functions are found by name.
        oracles: Right answers that the set names.
        oracle: The right answer of this probe, where it has one.
        records: Everything that the test has called and found right.
        failing: The call that failed.
        right: What is right on it, where that is known.
        wrong: How the answer differs.
        bench: What earlier tests have found out about the function.
    """

    function: Callable[..., Any]
    name: str
    slug: str
    catalogue: Catalogue
    namespace: Mapping[str, Any]
    oracles: Mapping[str, Callable[..., Any]]
    oracle: Callable[..., Any] | None
    records: Sequence[Record]
    failing: Record
    right: Outcome | None
    wrong: Difference
    bench: Bench

    def right_of(self, name: str) -> Callable[..., Any] | None:
        """A right answer to a graded function; torch's where there is one, for its gradients."""
        found = right_answer(self.slug, name)
        return found if found is not None else self.oracles.get(name)


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
    right = suspect.right
    if right is None and (oracle := suspect.oracle or suspect.right_of(suspect.name)) is not None:
        right = known(oracle, suspect.failing.call)
    if right is None or judge(again, right, brief=True) is None:
        return Cause(name, f"{told}. With a right one in its place this test passes.")
    own = _own_cause(_mended(suspect, mended, again))
    rest = f" There is a fault in `{suspect.name}` as well"
    return Cause(own.name or name, f"{told}.{rest}{': ' + own.text if own.text else '.'}")


def _mended(suspect: Suspect, function: Callable[..., Any], outcome: Outcome) -> Suspect:
    records = [Record(r.call, None, function=function) for r in suspect.records]
    return Suspect(
        **{
            **vars(suspect),
            "function": function,
            "records": records,
            "failing": Record(suspect.failing.call, outcome),
            "bench": bench_of(function, suspect.name, suspect.catalogue),
        }
    )


def _own_cause(suspect: Suspect) -> Cause:
    failing, wrong = suspect.failing, suspect.wrong
    found = name_misconceptions(
        suspect.function,
        suspect.catalogue,
        suspect.name,
        suspect.records,
        failing,
        suspect.right,
        suspect.bench.tried,
    )
    if found:
        return Cause(found[0].name if len(found) == 1 else None, explain(found))
    if _returns_nothing(suspect):
        return Cause(
            "the return is missing",
            "the return is missing. The function computes its result and does not give it back: "
            "without a return statement, Python returns None.",
        )
    if wrong.kind == "judges":
        return _of_judging(suspect)
    if wrong.kind in NOT_SEARCHED:
        return Cause()
    return _by_search(suspect)


def _returns_nothing(suspect: Suspect) -> bool:
    outcome = suspect.failing.outcome
    if outcome.error is not None:
        return isinstance(outcome.error, GradientMissing) and "None" in str(outcome.error)
    return outcome.value is None and suspect.right is not None and suspect.right.value is not None


def _by_search(suspect: Suspect) -> Cause:
    right = suspect.right_of(suspect.name) or suspect.oracle
    if right is None:
        return Cause()
    bench, first = suspect.bench, _first_cases(suspect, right)
    cases = bench.evidence(suspect.function, suspect.name, right, first)
    if not _steady(suspect):
        return Cause(
            "another result at every call",
            "another result at every call. With the same input your function returns other numbers "
            "each time: it draws random numbers, or keeps something from call to call.",
        )
    mistakes = suspect.catalogue.of(suspect.name)
    found = Search(bench, cases, right, mistakes, parameters(right)).explain()
    why = found[0].why if len(found) == 1 else None
    # the sign of an argument may be that of a term it stands in
    sign = why is not None and why.change is not None and why.change[0][0] == "minus"
    if why is None or len(why.parts) > 1 or sign or why.relation is VAGUE:
        slip = _slip(suspect, bench, first)
        if slip is not None:
            return Cause(slip.name, explain([slip]))
    parts = [Cause(" and ".join(one.names), one.text) for one in found]
    parts = parts or _patterns(bench, cases, mistakes)
    parts += _facets(suspect, named=bool(parts))
    if not parts:
        return Cause()
    text = " It is also so: ".join(p.text for p in parts[:3])
    names = dict.fromkeys(p.name for p in parts[:3] if p.name)
    return Cause(" and ".join(names) or None, text)


def _slip(suspect: Suspect, bench: Bench, first: Sequence[Case]) -> Misconception | None:
    """A right answer with one small change that gives the learner's numbers on every input."""
    if bench.slips is None:
        mistakes = suspect.catalogue.of(suspect.name)
        answers = [model_answer(suspect.slug, suspect.name), *(m.right for m in mistakes)]
        answers += right_answers(suspect.slug, suspect.name)
        rights = [r for r in dict.fromkeys(answers) if r is not None]
        seen = bench.cases or first
        bench.slips = _agreeing([s for r in rights for s in slips(suspect.name, r)], seen)
        for right in rights[:2] if not bench.slips else ():
            most = _MOST_WORK // max(bench.effort, 1)
            bench.slips += _agreeing(list(slips(suspect.name, right, more=True)[:most]), seen)
    if not bench.slips:
        return None
    known_cases = [*(bench.cases or ()), *first]
    wrong = [case.got or [] for case in known_cases if case.wrong and case.usable]
    # The same constant everywhere may be given by much else.
    varied = {
        tuple(a.tobytes() for a in got) for got in wrong if any(a.size and np.ptp(a) for a in got)
    }
    if len(varied) < _VARIED:
        return None
    found = _agreeing(bench.slips, first)
    # names and indices that hold the same numbers can be exchanged: the least that can be said
    least = ("` in place of `", "a number is off by one")
    return min(found, key=lambda slip: any(words in slip.name for words in least), default=None)


def _agreeing(left: list[Misconception], cases: Sequence[Case]) -> list[Misconception]:
    """Those that give what the learner's function gives on all of these calls."""

    def cost(case: Case) -> tuple[bool, int]:
        return not (case.wrong and case.usable), size((case.call.args, case.call.kwargs))

    for case in sorted(cases, key=cost):
        if left:
            left = [one for one in left if agree(case.mine, run(one.function, case.call))]
    return left


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
    """Mistakes that show as NaN or infinity: the same places of them, whatever the other numbers.

    A second fault changes numbers, and leaves alone where they are finite.
    """
    seen = [(case, _holes(case.got)) for case in cases if case.usable]
    # where there are some that do not belong there, most mistakes are out
    seen.sort(key=lambda pair: _same(pair[1], _holes(pair[0].expected)))
    if not seen or _same(seen[0][1], _holes(seen[0][0].expected)):
        return []

    def same(mistake: Misconception, case: Case, holes: list[Any] | None) -> bool:
        theirs = bench.of_mistake(mistake, case.call)
        if not _same(_holes(theirs), holes):
            return False
        # a mistake that spoils other numbers too has to be found by these
        return (
            _any(holes) or not Case(case.call, case.right, known(mistake.function, case.call)).wrong
        )

    found = [m for m in mistakes if all(same(m, case, h) for case, h in seen)]
    guess = "A guess, from where the numbers are not finite: "
    return [Cause(None, guess + explain(found))] if found else []


def _holes(found: list[Any] | None) -> list[Any] | None:
    return None if found is None else [~np.isfinite(a) for a in found]


def _any(holes: list[Any] | None) -> bool:
    return any(bool(h.any()) for h in holes or ())


def _same(one: list[Any] | None, other: list[Any] | None) -> bool:
    if one is None or other is None or len(one) != len(other):
        return False
    return all(a.shape == b.shape and bool((a == b).all()) for a, b in zip(one, other, strict=True))


def _facets(suspect: Suspect, *, named: bool) -> list[Cause]:
    """General faults that the failing call shows by itself, beside its numbers."""
    failing, wrong, right = suspect.failing, suspect.wrong, suspect.right
    outcome = failing.outcome
    found: list[Cause] = []
    if outcome.mutated and not (right is not None and right.mutated):
        found.append(
            Cause(
                "an argument is changed in place",
                f"an argument is changed in place. {IN_PLACE}",
            )
        )
    if isinstance(outcome.error, GradientMissing) and not named:
        missing = _unused(suspect)
        if missing is None:
            missing = Cause("cut off from its inputs", f"cut off from its inputs. {CUT_OFF}")
        found += [missing] if missing.text else []
    if wrong.kind == "dtype":
        found.append(
            Cause(
                "the dtype is not kept",
                "the dtype is not kept. Your result has another dtype than its inputs. Look for "
                "tensors that you make anew, for .float(), .double() and for Python numbers.",
            )
        )
    if not named and (source := _overflowing(suspect)):
        text = (
            "Your function is finite for small numbers; the exponential of a large one is infinite "
            "(of a very negative one 0), and NaN follows. "
        )
        name = "exp without subtracting the maximum"
        found.append(
            Cause(None, f"A guess: an exponential overflows or vanishes. {text}{_SUBTRACTED}")
            if re.search(r"\ba?max", source)
            else Cause(
                name,
                f"A guess: {name}. {text}A common term can be subtracted before the exponential.",
            )
        )
    if not named and _rounded(suspect):
        found.append(
            Cause(
                "half precision",
                "A guess: half precision. Your numbers are right to about three digits, and the "
                "code uses a format of 16 bits. Keep the dtype of the inputs on the way.",
            )
        )
    elif not named and _guarded_by_a_constant(suspect):
        found.append(
            Cause(
                "a small constant changes the result",
                "A guess: a small constant changes the result. Added against a division by 0 or a "
                "logarithm "
                "of 0, it changes every result a little, and those of small numbers much: with "
                "large inputs your function is right. Treat the special case by itself.",
            )
        )
    return found


_SUBTRACTED = (
    "You do use a maximum: print what is left in each exponential when it is subtracted. It must "
    "not be above 0, and in each row it must be 0 somewhere."
)
CUT_OFF = (
    "Your result is cut off from its inputs (detach, no_grad, item or a new tensor), so that no "
    "gradient flows back. Compute it from the inputs by torch operations only."
)
IN_PLACE = (
    "The caller still needs it: every later use of that tensor sees your intermediate result. Make "
    "a new tensor."
)


def _unused(suspect: Suspect) -> Cause | None:
    """An argument whose gradient is missing because no value depends on it.

    A cause without words where a value depends on it in another call: neither is it unused, nor
    is the result cut off.
    """
    call, names = suspect.failing.call, parameters(suspect.right_of(suspect.name) or len)
    others = [case.call for case in suspect.bench.cases or () if case.call.via is None]

    def ignores(place: int, call: Call) -> bool:
        args = [*call.args]
        plain = numbers(run(suspect.function, Call(call.args, call.kwargs)))
        if plain is None or place >= len(args) or not _floating(args[place]):
            return False
        args[place] = args[place].detach() * 1.5 + 0.25
        return close(numbers(run(suspect.function, Call(tuple(args), call.kwargs))), plain)

    for place in map(int, re.findall(r"argument (\d+)", str(suspect.failing.outcome.error))):
        if ignores(place, call):
            if not all(ignores(place, other) for other in others):
                return Cause()
            title = f"{names[place] if place < len(names) else f'argument {place}'} is not used"
            text = "Other numbers in it change nothing in your result."
            return Cause(title, f"{title}. {text}")
    return None


def _rounded(suspect: Suspect) -> bool:
    """Whether the code names a short format and the errors have the size of its rounding."""
    mine = numbers(suspect.failing.outcome)
    expected = None if suspect.right is None else numbers(suspect.right)
    if mine is None or expected is None or len(mine) != len(expected):
        return False
    for a, b in zip(mine, expected, strict=True):
        due = b[np.isfinite(b)]
        if a.shape != b.shape or not np.allclose(
            a, b, rtol=_SHORT, atol=_SHORT * max(1.0, *abs(due).reshape(-1), 0.0)
        ):
            return False
    try:
        source = student.source(suspect.function)
    except Exception:
        return False
    return re.search(r"half\(|float16", source) is not None


def _guarded_by_a_constant(suspect: Suspect) -> bool:
    """Whether the code adds a small constant, is nearly right, and right for large numbers."""
    oracle = suspect.oracle or suspect.right_of(suspect.name)
    mine = numbers(suspect.failing.outcome)
    expected = None if suspect.right is None else numbers(suspect.right)
    if oracle is None or mine is None or expected is None or len(mine) != len(expected):
        return False
    for a, b in zip(mine, expected, strict=True):
        if a.shape != b.shape or not np.allclose(a, b, rtol=_NEARLY, atol=_NEARLY * np.ptp(b)):
            return False

    def grown(value: Any) -> Any:
        return 1e4 * value if _floating(value) else value

    call = suspect.failing.call
    large = Call(transform(call.args, grown), transform(call.kwargs, grown), call.via)
    due = right_on(oracle, large)
    if due.error is not None or judge(run(suspect.function, large), due, brief=True) is not None:
        return False
    try:
        source = student.source(suspect.function)
    except Exception:
        return False
    return re.search(r"(\+|min=|,)\s*([1-9]\.?\d*e-\d+|0\.0\d*[1-9])", source) is not None


def _overflowing(suspect: Suspect) -> str:
    """The learner's code, if it takes an exponential and small forms of the input work; else ''."""
    mine, call = numbers(suspect.failing.outcome), suspect.failing.call
    due = None if suspect.right is None else numbers(suspect.right)
    if mine is None or due is None or not _any(_holes(mine)) or _any(_holes(due)):
        return ""
    if call.via is not None and not isinstance(call.via, Gradient):
        return ""
    given = [x for x in leaves((call.args, call.kwargs)) if _floating(x)]
    if not given or max(float(x.detach().abs().max()) for x in given if x.numel()) < _LARGE:
        return ""

    def shrunk(value: Any) -> Any:
        return 1e-3 * value if _floating(value) else value

    small = Call(transform(call.args, shrunk), transform(call.kwargs, shrunk), call.via)
    if (got := numbers(run(suspect.function, small))) is None or _any(_holes(got)):
        return ""
    try:
        source = student.source(suspect.function)
    except Exception:
        return ""
    return source if re.search(r"\bexp_?\(|logsumexp|\*\*", source) else ""


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _of_judging(suspect: Suspect) -> Cause:
    """A test that the learner wrote: exact comparison where numbers are rounded."""
    if "rejects a right answer" not in suspect.wrong.text:
        return Cause()
    candidate = suspect.failing.call.args[0]
    name = "exact comparison of rounded numbers"
    text = (
        f"{name}. Two right answers differ in the last digits, because sums are rounded in another "
        "order: torch.equal and == call them different. Compare up to a tolerance, as "
        "torch.allclose does."
    )
    if student.accepts_tolerantly(suspect.function, candidate):
        return Cause(name, text)
    return Cause()
