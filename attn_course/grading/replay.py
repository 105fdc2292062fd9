"""Remember how a test went: its outcome is a function of what the submission answers.

The class is put the same questions. As long as a submission answers byte for byte what somebody
answered before, the next question is known, and in the end the outcome: nothing has to be drawn,
packed, unpacked, compared or explained again. At the first answer that is new the test cell is
executed, is handed the answers so far, and goes on with the submission itself; how it goes on is
remembered too. Every submission is asked every question, and a hostile one can only teach what
its own answers lead to.

Left alone are tests whose outcome hangs on more than the answers: on what another test left
behind, on random numbers that no seed of their own fixes, on memory seen from outside, on time.
"""

import contextlib
import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from attn_course.exercises.assignment import Assignment, TestCell, TestResult
from attn_course.exercises.testcell import keep_randomness, randomness
from attn_course.grading.errors import SandboxError, SubmissionLost
from attn_course.grading.independence import Alone, independent_tests
from attn_course.grading.remote import Missing, Remote
from attn_course.grading.rounds import Replay, Round, digest
from attn_course.grading.session import Session

MAX_TEST_BYTES = 8 << 20  # of one conversation; a longer one is not remembered
MAX_BYTES = 128 << 20  # of all questions that are remembered
MAX_BRANCHES = 100_000
CONSTANTS = (
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, functools.partial),
    *(bool, int, float, complex, str, bytes, type(None), Remote, torch.dtype, torch.device),
)
PLAIN = (bool, int, float, complex, str, bytes)
Names = dict[str, Any]


@dataclasses.dataclass(slots=True)
class _Step:
    """A question, and what follows each answer."""

    target: tuple[str, ...]
    question: bytes
    opens: bool
    following: dict[Any, "_Step | TestResult"]


class Conversations:
    """What is remembered of one assignment's tests, all with the same seed.

    Args:
        assignment: its test cells.
        told: is told what is learned, with the arguments of :meth:`learn`.
        chance: an order of chance is another one for each submission.
    """

    def __init__(
        self,
        assignment: Assignment,
        told: Callable[[tuple[Any, ...], list[Round], TestResult], None] = lambda *entry: None,
        *,
        chance: bool = True,
    ) -> None:
        self.told = told
        self._alone = independent_tests(assignment, chance=chance)
        self._first: dict[Any, _Step | TestResult] = {}
        self._bytes = self._branches = self._told = 0

    def run(
        self, test: TestCell, names: Names, session: Session, execute: Callable[[], TestResult]
    ) -> TestResult:
        """The outcome of a test: remembered, or that of executing it.

        Args:
            test: the cell.
            names: what it finds, the learner's among it.
            session: the submission, alive.
            execute: executes the cell.
        """
        alone = self._alone.get(test.grade_id)
        if alone is None or session.any_mutated():
            return execute()
        missing = ((n, v.text) for n, v in names.items() if type(v) is Missing)
        key = (test.grade_id, session.forbidden, *missing)
        rounds: list[Round] = []
        found = self._follow(self._first.get(key), session, rounds)
        if found is None:
            return self._execute(key, alone, names, session, rounds, execute)
        if alone.leaves is not None:
            exec(alone.leaves, names)
        return found

    def _follow(
        self, at: _Step | TestResult | None, session: Session, rounds: list[Round]
    ) -> TestResult | None:
        """Put the known questions; the outcome, or None where an answer leads elsewhere."""
        while isinstance(at, _Step):
            try:
                answered = session.ask(at.target, at.question, opens=at.opens)
            except (SubmissionLost, SandboxError):
                return None  # the cell will find out as well
            rounds.append(answered)
            if answered.error is not None or sum(map(len, answered.answer)) > MAX_TEST_BYTES:
                return None
            answered.mark = digest(answered.answer)
            at = at.following.get(answered.mark)
        return at

    def _execute(
        self,
        key: tuple[Any, ...],
        alone: Alone,
        names: Names,
        session: Session,
        rounds: list[Round],
        execute: Callable[[], TestResult],
    ) -> TestResult:
        restore = keep_randomness()
        before, random = _versions(alone, names), randomness()
        replay = Replay(rounds, MAX_TEST_BYTES)
        replay.complete = all(one.mark for one in rounds)
        session.replay = replay
        try:
            outcome = execute()
        finally:
            session.replay = None
        if replay.diverged:  # the cell does not put the same question twice
            self._alone.pop(key[0], None)
            restore()
            with contextlib.suppress(SubmissionLost, SandboxError):
                session.restart()
            return execute()
        after = _versions(alone, names)
        changed = {name for name, version in before.items() if version != after[name]}
        if changed:
            self._alone = {n: a for n, a in self._alone.items() if not a.reads & changed}
        elif randomness() != random:
            self._alone.pop(key[0], None)
        elif replay.complete and not session.any_mutated() and session.why_lost() is None:
            told = [dataclasses.replace(one, answer=[]) for one in replay.rounds]
            if self.learn(key, told, outcome):
                self._told += sum(len(one.question) for one in told)
                if self._told <= MAX_BYTES:  # what was told is not forgotten
                    self.told(key, told, outcome)
        return outcome

    def learn(self, key: tuple[Any, ...], rounds: list[Round], outcome: TestResult) -> bool:
        """Remember how a test went, here or in another process.

        Args:
            key: the test, and what it was put to.
            rounds: the conversation, with the marks of the answers.
            outcome: of the test.

        Returns:
            False where there is no room for it, or it contradicts what is known.
        """
        place: dict[Any, _Step | TestResult] = self._first
        mark: Any = key
        for one in rounds:
            step = place.get(mark)
            if step is None:
                self._bytes += len(one.question)
                self._branches += 1
                if self._bytes > MAX_BYTES or self._branches > MAX_BRANCHES:
                    return False
                step = place[mark] = _Step(one.target, one.question, one.opens, {})
            if not isinstance(step, _Step) or step.question != one.question:
                self._alone.pop(key[0], None)  # what it asks hangs on more than the answers
                return False
            place, mark = step.following, one.mark
        place[mark] = outcome
        return True


def _versions(alone: Alone, names: Names) -> dict[str, Any]:
    """What a test finds besides the answers and could change; equal when nothing has changed."""
    return {name: _version(names[name]) for name in alone.reads & names.keys()}


def _version(value: Any, inside: frozenset[int] = frozenset()) -> object:
    """Equal to an earlier one of the same value when nothing has changed it since."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if type(value) in PLAIN:
        return type(value), value
    if type(value) in (tuple, frozenset):
        return id(value), *(_version(item, inside) for item in value)
    if not isinstance(value, (*CONSTANTS, Missing)):
        return object()  # it can change without a trace
    if getattr(value, "__module__", None) != "__main__" or id(value) in inside:
        return id(value)
    inside |= {id(value)}
    return id(value), *(_version(part, inside) for part in _state(value))


def _state(value: Any) -> list[Any]:
    """What a function or a class of the instructor keeps from one call to the next."""
    if isinstance(value, types.FunctionType):
        found = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # nothing there yet
                found.append(cell.cell_contents)
        return [*found, *vars(value).values()]
    if isinstance(value, type):
        own = [part for name, part in vars(value).items() if not name.startswith("__")]
        return [p for p in own if type(p) is types.FunctionType or not hasattr(type(p), "__get__")]
    return []
