"""What is known of a learner's function under diagnosis: its outcomes beside the right ones.

Each call is evidence of its own: the call that failed, the inputs of the catalogue, and neutral
forms of both (no padding, small numbers, defaults), on which one of two faults may be silent.
"""

import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from attn_course.probes.catalogue import Call, Catalogue, Misconception
from attn_course.probes.compare import difference
from attn_course.probes.diagnosis import Tried
from attn_course.probes.helpers import names_used
from attn_course.probes.oracle import NumpyOracle
from attn_course.probes.outcome import Outcome, known, run
from attn_course.probes.relations import Numbers, close
from attn_course.probes.student import Gradient
from attn_course.probes.values import leaves, transform

MOST_WITNESSES = 64
_MOST_NEUTRAL = 12
_CALLS = 15  # of functions that take as long as one comparison


@dataclass
class Case:
    """A call with the right outcome and the learner's."""

    call: Call
    right: Outcome
    mine: Outcome
    expected: Numbers | None = None
    got: Numbers | None = None
    wrong: bool = False

    def __post_init__(self) -> None:
        self.expected, self.got = numbers(self.right), numbers(self.mine)
        if self.expected is None or self.got is None:
            self.wrong = self.expected is not None
        else:
            self.wrong = spoilt(self.got, self.expected)

    @property
    def usable(self) -> bool:
        """Whether both sides gave numbers."""
        return self.expected is not None and self.got is not None


def spoilt(got: Numbers, expected: Numbers) -> bool:
    """Whether an answer is wrong as the test judges, whatever a stricter look would say."""
    if close(got, expected):
        return False
    return len(got) != len(expected) or any(
        difference(torch.tensor(a), torch.tensor(b), slack=10.0, brief=True) is not None
        for a, b in zip(got, expected, strict=True)
    )


def numbers(outcome: Outcome) -> Numbers | None:
    """The numbers of an answer as float64 arrays; None when it holds anything else."""
    if outcome.error is not None:
        return None
    found = []
    for leaf in leaves(outcome.value):
        if isinstance(leaf, Tensor):
            if leaf.is_complex() or leaf.layout != torch.strided:
                return None
            found.append(leaf.detach().double().numpy())
        elif isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "biuf":
            found.append(np.asarray(leaf, dtype=np.float64))
        elif type(leaf) in (int, float, bool):
            found.append(np.asarray(float(leaf)))
        else:
            return None
    return found or None


@dataclass
class Bench:
    """What the tests of one function share: nearly all of the evidence is the same for each.

    Args:
        catalogue: Where the evidence comes from.
        around: What the function reads by name: with other helpers it is another function.
        tried: What the function gave, by the number of the witness call.
        answers: What has been computed for comparison, with the call that it was computed for.
        found: What has explained an earlier failure.
        slips: Small changes of a right answer that agree so far; None before the first look.
        writing: Mistakes that change their arguments.
        compared: How many comparisons have been made.
        effort: As how many of them an answer counts that is computed for it.
    """

    catalogue: Catalogue
    around: list[Any]
    tried: Tried = field(default_factory=dict)
    answers: dict[Any, tuple[Call, Numbers | None]] = field(default_factory=dict)
    found: list[Any] = field(default_factory=list)
    slips: list[Misconception] | None = None
    writing: set[str] = field(default_factory=set)
    compared: int = 0
    effort: int = 0
    cases: list[Case] | None = None

    def evidence(
        self,
        function: Callable[..., Any],
        name: str,
        right: Callable[..., Any],
        first: Sequence[Case],
    ) -> list[Case]:
        """These cases, then the catalogue's inputs and neutral forms, which are run only once."""
        if self.cases is None:
            self.cases = []
            for number, call in enumerate(self.catalogue.witness_calls(name)[:MOST_WITNESSES]):
                if number not in self.tried:
                    self.tried[number] = run(function, call)
                self.cases.append(Case(call, right_on(right, call), self.tried[number]))
            for call in _neutral([case.call for case in (*first, *self.cases)]):
                due = right_on(right, call)
                if due.error is None:
                    self.cases.append(Case(call, due, run(function, call)))
        return [*first, *self.cases]

    def answer(self, key: Any, call: Call, work: Callable[[], Numbers | None]) -> Numbers | None:
        """What ``work()`` gives on a call; it is done once."""
        if (key, id(call)) not in self.answers:
            self.compared += self.effort
            self.answers[key, id(call)] = call, work()
        return self.answers[key, id(call)][1]

    def weigh_answers(self, right: Callable[..., Any], call: Call) -> None:
        """Let an answer count by the number of function calls in a right one."""
        if self.effort:
            return
        made = 0

        def note(frame: Any, event: str, arg: Any) -> None:
            nonlocal made
            slow = getattr(arg, "__module__", None) not in ("builtins", "math")
            made += event == "call" or (event == "c_call" and slow)

        run(right, call)  # what is imported or kept at first is not counted
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            run(right, call)
        finally:
            sys.setprofile(before)
        self.effort = 1 + made // _CALLS

    def of_mistake(self, mistake: Misconception, call: Call) -> Numbers | None:
        """What a mistake of the catalogue gives on a call."""

        def work() -> Numbers | None:
            outcome = known(mistake.function, call)
            if outcome.mutated:
                self.writing.add(mistake.name)
            return numbers(outcome)

        return self.answer((mistake.name, None), call, work)


# by identity: a function in the jail has no hash
_BENCHES: dict[tuple[int, str], tuple[ref[Callable[..., Any]], Bench]] = {}


def bench_of(function: Callable[..., Any], name: str, catalogue: Catalogue) -> Bench:
    """The bench of a function; it is forgotten together with the function."""
    key = id(function), name
    around: list[Any] = []
    if isinstance(function, types.FunctionType):
        around = [function.__globals__.get(one) for one in sorted(names_used(function))]
    there, found = _BENCHES.get(key, (None, None))
    if there is not None and found is not None and there() is function:
        same = len(found.around) == len(around) and all(map(_is, found.around, around))
        if same and found.catalogue == catalogue:
            return found
    made = Bench(catalogue, around)
    _BENCHES[key] = ref(function, lambda _: _BENCHES.pop(key, None)), made
    return made


def _is(one: Any, other: Any) -> bool:
    return one is other


def right_on(right: Callable[..., Any], call: Call) -> Outcome:
    """What is right on a call, unless it takes too long to find out."""
    if isinstance(right, NumpyOracle) and isinstance(call.via, Gradient):
        return Outcome(error=ValueError("finite differences take long"))
    return known(right, call)


def _neutral(calls: Sequence[Call]) -> Iterator[Call]:
    """The calls in forms that may silence a second fault: no padding, small numbers, defaults."""
    made = 0
    for call in calls:
        if call.via is not None:
            continue
        forms = [
            _like(call, _unmasked),
            _like(call, lambda x: 0.01 * x if _floating(x) else x),
            Call(call.args, {}) if call.kwargs else None,
        ]
        for form in forms:
            if form is not None:
                yield form
                made += 1
        if made >= _MOST_NEUTRAL:
            return


def _like(call: Call, leaf: Callable[[Any], Any]) -> Call | None:
    args, kwargs = transform(call.args, leaf), transform(call.kwargs, leaf)
    same = all(a is b for a, b in zip(leaves(args), leaves(call.args), strict=True))
    return None if same and not kwargs else Call(args, kwargs)


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _unmasked(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.bool and not bool(value.all()):
        return torch.ones_like(value)
    if isinstance(value, Tensor) and value.dtype == torch.int64 and value.dim() == 1:
        return torch.full_like(value, int(value.max())) if value.numel() else value
    return value
