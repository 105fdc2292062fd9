"""Grade one submission: run the instructor's test cells here, the student's code in the jail."""

import ast
import contextlib
import dataclasses
import hashlib
import io
import math
import numbers
import os
import random
import re
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from attn_course.grading.assignment import Assignment, TestCell
from attn_course.grading.errors import SandboxError, StudentTimeout, SubmissionLost
from attn_course.grading.remote import RemoteFunction
from attn_course.grading.sandbox import Limits, Session, Zygote
from attn_course.grading.submission import Submission, Unreadable, parse_notebook, read_submission
from attn_course.probes.draw import SEED_VARIABLE
from attn_course.probes.failure import ProbeFailure

MAX_MESSAGE = 8000
ROUNDING = 1e-6  # of a float32 that holds the points
_BAD_TEXT = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


@dataclasses.dataclass(frozen=True)
class TestResult:
    """What one test cell gave; ``score`` is None when it could not be graded."""

    grade_id: str
    score: float | None
    max: float
    message: str = ""
    misconception: str | None = None
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a submission gave.

    ``status`` is ``graded``, ``needs_review`` (graded as far as its cells allow), ``missing``,
    ``unreadable``, ``stripped``, ``timeout`` or ``sandbox_error``; only the first two, and a
    ``timeout`` after some tests, carry a score. ``reason`` says why in a sentence.
    """

    student: str
    assignment: str
    status: str
    reason: str = ""
    score: float | None = None
    max_score: float = 0.0
    seed: int = 0
    sandboxed: bool = True
    tests: tuple[TestResult, ...] = ()
    notes: tuple[str, ...] = ()
    answers: dict[str, str] = dataclasses.field(default_factory=dict)
    output: str = ""
    seconds: float = 0.0


def grade_notebook(
    data: bytes | str | None,
    assignment: Assignment,
    zygote: Zygote,
    *,
    student: str,
    seed: int,
    limits: Limits,
) -> Result:
    """Grade one notebook; every outcome is a :class:`Result`, never an exception.

    Args:
        data: the bytes of the submitted file, None when there is none, or the reason why it could
            not be read.
        assignment: what is graded.
        zygote: the jail.
        student: whose it is.
        seed: of the random inputs.
        limits: wall clock and resources.
    """
    begun = time.monotonic()

    def result(status: str, reason: str, **more: Any) -> Result:
        return Result(
            student=student,
            assignment=assignment.slug,
            status=status,
            reason=plain_text(reason),
            max_score=assignment.max_score,
            seed=seed,
            sandboxed=zygote.sandbox,
            seconds=time.monotonic() - begun,
            **more,
        )

    if data is None:
        return result("missing", f"no notebook {assignment.slug}.ipynb was found")
    if isinstance(data, str):
        return result("unreadable", data)
    try:
        submission = read_submission(parse_notebook(data), assignment)
    except Unreadable as error:
        return result("unreadable", str(error))
    if submission.stripped:
        return result(
            "stripped",
            "no cell carries a grade_id of this assignment: the metadata was removed "
            "(a copy into a new notebook does that)",
            notes=submission.notes,
        )
    try:
        session = Session(zygote, submission.cells, limits=limits, seed=_students_seed(seed))
    except StudentTimeout as error:
        return result("timeout", str(error), notes=submission.notes)
    except SubmissionLost as error:
        return result("sandbox_error", str(error), notes=submission.notes)
    except SandboxError as error:
        return result("sandbox_error", str(error))
    with session:
        tests = tuple(_run_tests(assignment, submission, session, seed))
        status, reason = _status(tests, submission, session)
        scores = [test.score for test in tests if test.score is not None]
        return result(
            status,
            reason,
            score=sum(scores) if scores else None,
            tests=tests,
            notes=submission.notes,
            answers={name: plain_text(text) for name, text in submission.answers.items()},
            output=plain_text(session.output),
        )


def _students_seed(seed: int) -> int:
    """For what a submission draws itself. It can read this one: eight bits, which say as little.

    A longer hash of a seed of 31 bits would give that seed to whoever makes a table once.
    """
    return hashlib.sha256(f"submission {seed}".encode()).digest()[0]


def plain_text(text: str) -> str:
    """Text that every file, database and terminal takes and that reads as it is written."""
    return _BAD_TEXT.sub("\ufffd", text.replace("\r\n", "\n"))


def _status(
    tests: tuple[TestResult, ...], submission: Submission, session: Session
) -> tuple[str, str]:
    if session.seconds_left <= 0:
        return "timeout", f"the submission used its {session.limits.wall_seconds:g} s"
    if submission.lost:
        lost = "; ".join(f"{name}: {why}" for name, why in submission.lost.items())
        return "needs_review", lost
    if all(test.score is None for test in tests):
        return "sandbox_error", tests[0].message.splitlines()[0]
    doubled = [note for note in submission.notes if note.endswith(" times")]
    return ("needs_review", "; ".join(doubled)) if doubled else ("graded", "")


class _Missing:
    """Stands for a function that the notebook does not define."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NameError(self.text)

    def __attn_remote__(self, *args: Any) -> Any:
        raise NameError(self.text)


def _stubs(assignment: Assignment, session: Session) -> dict[str, Any]:
    """Stand-ins for the names that the learner writes."""
    stubs: dict[str, Any] = {}
    for name, grade_id in assignment.solutions.items():
        if name in session.names:
            stubs[name] = RemoteFunction(
                session, name, forbidden=assignment.forbidden.get(name, ())
            )
            continue
        text = f"`{name}` is not defined by the notebook"
        error = session.errors.get(grade_id)
        if type(error) is dict:
            text = f"`{name}` is not defined: its cell raised {error.get('type')}: "
            text += str(error.get("text"))[:300]
        stubs[name] = _Missing(text)
    return stubs


def _run_tests(
    assignment: Assignment, submission: Submission, session: Session, seed: int
) -> Iterator[TestResult]:
    names: dict[str, Any] = {"__name__": "__main__", **_stubs(assignment, session)}
    with _seeded(seed):
        for identity, source in assignment.locked.items():
            _run_locked(identity, source, names)
        for test in assignment.tests:
            needed = _mentioned(test, assignment)
            gone = [
                assignment.solutions[n]
                for n in needed
                if assignment.solutions[n] in submission.lost
            ]
            if gone:
                why = f"not graded: {gone[0]}: {submission.lost[gone[0]]}"
                run_test(test, names)  # for what it defines: a later test may use it
                yield TestResult(test.grade_id, None, test.points, why)
                continue
            begun = time.monotonic()
            if not session.alive and session.seconds_left > 0:
                with contextlib.suppress(SubmissionLost, SandboxError):
                    session.restart()
            if session.seconds_left <= 0:
                yield TestResult(test.grade_id, None, test.points, "not graded: out of time")
                continue
            names.update(_stubs(assignment, session))
            outcome = run_test(test, names)
            yield dataclasses.replace(outcome, seconds=time.monotonic() - begun)


def _run_locked(identity: str, source: str, names: dict[str, Any]) -> None:
    """A cell of the instructor that is no test; one that shows a learner's result may fail.

    A cell that fails for the instructor's own solution is found before anybody is graded: the
    tests that need its names fail.
    """
    with (
        contextlib.suppress(Exception),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        exec(compile(source, f"<{identity}>", "exec"), names)


def _mentioned(test: TestCell, assignment: Assignment) -> list[str]:
    names = {node.id for node in ast.walk(ast.parse(test.source)) if isinstance(node, ast.Name)}
    return [name for name in assignment.solutions if name in names]


def run_test(test: TestCell, names: dict[str, Any]) -> TestResult:
    """Execute a test cell; an exception is 0, a plain number as last value is partial credit."""
    tree = ast.parse(test.source)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    where, said = f"<{test.grade_id}>", io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            exec(compile(tree, where, "exec"), names)
            value = None if last is None else eval(compile(last, where, "eval"), names)
        score = _score(value, test)
    except ProbeFailure as failure:
        text = plain_text(str(failure)[:MAX_MESSAGE])
        return TestResult(test.grade_id, 0.0, test.points, text, failure.misconception)
    except Exception as error:
        text = plain_text(f"{type(error).__name__}: {error}"[:MAX_MESSAGE])
        return TestResult(test.grade_id, 0.0, test.points, text)
    text = plain_text(said.getvalue()[:MAX_MESSAGE]).strip()
    return TestResult(test.grade_id, score, test.points, text)


def _score(value: object, test: TestCell) -> float:
    """Points from the last value of a test cell.

    None, text and anything else that is no single number are full marks, as in nbgrader; a truth
    value is all or nothing. A number above the points, beyond rounding, is no score: capping it
    would let a submission that the cell trusts too much buy full marks.

    Raises:
        ValueError: it is a number that can be no score.
    """
    if isinstance(value, torch.Tensor):
        value = value.item() if value.numel() == 1 else None
    if isinstance(value, np.bool_ | np.number | np.ndarray) and np.size(value) == 1:
        value = value.item()
    if type(value) is bool:
        return test.points if value else 0.0
    if not isinstance(value, numbers.Number):
        return test.points
    score = float(value) if isinstance(value, numbers.Real) else math.nan
    if not -ROUNDING <= score <= test.points + ROUNDING * max(1.0, test.points):
        raise ValueError(f"{test.grade_id}: expected a score from 0 to {test.points}, got {value}")
    return min(max(score, 0.0), test.points)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Every source of randomness of a test cell from one seed; all restored afterwards."""
    before = os.environ.get(SEED_VARIABLE)
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    os.environ[SEED_VARIABLE] = str(seed)
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  a test cell may use the old interface
    random.seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
        if before is None:
            os.environ.pop(SEED_VARIABLE, None)
        else:
            os.environ[SEED_VARIABLE] = before
