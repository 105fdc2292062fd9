"""What is known of a learner's function under diagnosis: its outcomes beside the right ones.

Each call is evidence of its own: the call that failed, the inputs of the catalogue, and neutral
forms of both (no padding, small numbers, defaults), on which one of two faults may be silent.
"""

import ast
import dis
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from attn_course.probes import student
from attn_course.probes.catalogue import Call, Catalogue, Misconception, right_answer
from attn_course.probes.compare import Difference, difference
from attn_course.probes.oracle import NumpyOracle
from attn_course.probes.outcome import Outcome, Record, known, run
from attn_course.probes.relations import Numbers, close
from attn_course.probes.student import Gradient
from attn_course.probes.values import leaves, transform

MOST_WITNESSES = 64
_MOST_NEUTRAL = 12
_CALLS = 15  # of functions that take as long as one comparison
MOST_SOURCE = 20_000  # characters: Python may take the square of their number to read them


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
        name: Of the function.
        around: What the function reads by name: with other helpers it is another function.
        tried: What the function gave, by the number of the catalogue's input.
        answers: What has been computed for comparison, with the call that it was computed for.
        found: What has explained an earlier failure.
        slips: Small changes of a right answer that agree so far; None before the first look.
        writing: Mistakes that change their arguments.
        compared: How many comparisons have been made.
        effort: As how many of them an answer counts that is computed for it.
    """

    catalogue: Catalogue
    name: str
    around: list[Any]
    tried: dict[int, Outcome] = field(default_factory=dict)
    answers: dict[Any, tuple[Call, Numbers | None]] = field(default_factory=dict)
    found: list[Any] = field(default_factory=list)
    slips: list[Misconception] | None = None
    writing: set[str] = field(default_factory=set)
    compared: int = 0
    effort: int = 0
    cases: list[Case] | None = None

    @property
    def inputs(self) -> list[Call]:
        """The catalogue's inputs."""
        return self.catalogue.witness_calls(self.name)[:MOST_WITNESSES]

    def tried_on(self, function: Callable[..., Any], number: int) -> Outcome:
        """What the function gives on one of the inputs; it is called once."""
        if number not in self.tried:
            self.tried[number] = run(function, self.inputs[number])
        return self.tried[number]

    def evidence(
        self, function: Callable[..., Any], right: Callable[..., Any], first: Sequence[Case]
    ) -> list[Case]:
        """These cases, then the catalogue's inputs and neutral forms, which are run only once."""
        if self.cases is None:
            self.cases = [
                Case(call, right_on(right, call), self.tried_on(function, number))
                for number, call in enumerate(self.inputs)
            ]
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
        self.effort = self.effort or effort_of(right, call)

    def of_mistake(self, mistake: Misconception, call: Call) -> Numbers | None:
        """What a mistake of the catalogue gives on a call."""

        def work() -> Numbers | None:
            outcome = known(mistake.function, call)
            if outcome.mutated:
                self.writing.add(mistake.name)
            return numbers(outcome)

        return self.answer((mistake.name, None), call, work)


def effort_of(function: Callable[..., Any], call: Call) -> int:
    """As how many comparisons a call of a function of ours counts, by the calls that it makes."""
    made = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal made
        slow = getattr(arg, "__module__", None) not in ("builtins", "math")
        made += event == "call" or (event == "c_call" and slow)

    run(function, call)  # what is imported or kept at first is not counted
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run(function, call)
    finally:
        sys.setprofile(before)
    return 1 + made // _CALLS


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
        same = len(found.around) == len(around) and all(
            one is other for one, other in zip(found.around, around, strict=True)
        )
        if same and found.catalogue == catalogue:
            return found
    made = Bench(catalogue, name, around)
    _BENCHES[key] = ref(function, lambda _: _BENCHES.pop(key, None)), made
    return made


def names_used(function: Callable[..., Any]) -> set[str]:
    """Global names that a function reads, itself or by way of the learner's own functions."""
    plain = inspect.unwrap(function) if isinstance(function, types.FunctionType) else function
    if isinstance(plain, types.FunctionType):
        found: set[str] = set()
        waiting = [plain]
        while waiting:
            one = waiting.pop()
            new = _names_of(one.__code__) - found
            found |= new
            for name in new:
                value = one.__globals__.get(name)
                if isinstance(value, types.FunctionType) and value.__globals__ is one.__globals__:
                    waiting.append(value)
        return found
    text = source(plain)
    try:
        tree = ast.parse(text if len(text) <= MOST_SOURCE else "")
    except Exception:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


@lru_cache(maxsize=256)
def _names_of(code: types.CodeType) -> frozenset[str]:
    inner = [_names_of(c) for c in code.co_consts if isinstance(c, types.CodeType)]
    steps = dis.get_instructions(code)
    read = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return frozenset(read).union(*inner)


def source(function: Callable[..., Any]) -> str:
    """The text of a learner's function; "" where nobody knows it."""
    try:
        return student.source(function)
    except Exception:
        return ""


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

    @cached_property
    def bench(self) -> Bench:
        """What earlier tests have found out about the function."""
        return bench_of(self.function, self.name, self.catalogue)

    def right_of(self, name: str) -> Callable[..., Any] | None:
        """A right answer to a graded function; torch's where there is one, for its gradients."""
        found = right_answer(self.slug, name)
        return found if found is not None else self.oracles.get(name)


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
            _like(call, lambda x: 0.01 * x if floating(x) else x),
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


def floating(value: Any) -> bool:
    """Whether a value is a tensor of floating numbers."""
    return isinstance(value, Tensor) and value.is_floating_point()


def _unmasked(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.bool and not bool(value.all()):
        return torch.ones_like(value)
    if isinstance(value, Tensor) and value.dtype == torch.int64 and value.dim() == 1:
        return torch.full_like(value, int(value.max())) if value.numel() else value
    return value
