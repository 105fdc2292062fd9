"""Grade one submission: run the instructor's test cells here, the student's code in the jail."""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Iterator
from typing import Any

from attn_course.exercises.assignment import Assignment, TestCell, TestResult
from attn_course.exercises.submission import Submission, Unreadable, parse_notebook, read_submission
from attn_course.exercises.testcell import (
    keep_randomness,
    names_used,
    plain_text,
    run_locked,
    run_test,
    seeded,
)
from attn_course.grading.board import Board
from attn_course.grading.errors import SandboxError, StudentTimeout, SubmissionLost
from attn_course.grading.remote import Missing, RemoteFunction
from attn_course.grading.replay import Conversations
from attn_course.grading.results import Result
from attn_course.grading.sandbox import Limits, Zygote
from attn_course.grading.session import Session
from attn_course.probes.draw import same_order
from attn_course.probes.memo import Memo, remembering

Key = tuple[str, int, str | None]  # assignment, seed, order
_known: dict[Key, Conversations] = {}  # the latest assignment only
_board: Board | None = None
_memo = Memo()  # what the instructor's own functions give; the class is put the same questions


def grade_notebook(
    data: bytes | str | None,
    assignment: Assignment,
    zygote: Zygote,
    *,
    student: str,
    seed: int,
    limits: Limits,
    order: str | None = None,
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
        order: a secret of this run, from which tests in an order of chance have the same order for
            all of a class; None draws another order for each.
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
        session = Session(
            zygote,
            submission.cells,
            limits=limits,
            seed=_students_seed(seed),
            forbidden=assignment.forbidden_together,
            shared=True,
        )
    except StudentTimeout as error:
        return result("timeout", str(error), notes=submission.notes)
    except SubmissionLost as error:
        return result("sandbox_error", str(error), notes=submission.notes)
    except SandboxError as error:
        return result("sandbox_error", str(error))
    with session:
        tests = tuple(_run_tests(assignment, submission, session, seed, order))
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


def share(board: Board) -> None:
    """Learn with other processes from now on."""
    global _board
    _board = board


def _tell(key: Key, entry: tuple[Any, ...]) -> None:
    if _board is not None:
        _board.post((key, entry))


def _students_seed(seed: int) -> int:
    """For what a submission draws itself. It can read this one: eight bits, which say as little.

    A longer hash of a seed of 31 bits would give that seed to whoever makes a table once.
    """
    return hashlib.sha256(f"submission {seed}".encode()).digest()[0]


def _status(
    tests: tuple[TestResult, ...], submission: Submission, session: Session
) -> tuple[str, str]:
    if session.seconds_left <= 0:
        return "timeout", f"the submission used its {session.limits.wall_seconds:g} s"
    if submission.lost:
        lost = [f"{name}: {why}" for name, why in submission.lost.items()]
        return "needs_review", "; ".join(lost + submission.doubled)
    if all(test.score is None for test in tests):
        return "sandbox_error", tests[0].message.splitlines()[0]
    doubled = "; ".join(submission.doubled)
    return ("needs_review", doubled) if doubled else ("graded", "")


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
        stubs[name] = Missing(text)
    return stubs


def _run_tests(
    assignment: Assignment,
    submission: Submission,
    session: Session,
    seed: int,
    order: str | None,
) -> Iterator[TestResult]:
    names: dict[str, Any] = {"__name__": "__main__", **_stubs(assignment, session)}
    if (key := (assignment.digest, seed, order)) not in _known:
        _known.clear()
        _known[key] = Conversations(
            assignment, lambda *entry: _tell(key, entry), chance=order is None
        )
    known = _known[key]
    for which, entry in _board.news() if _board is not None else ():
        if which == key:
            known.learn(*entry)
    with seeded(seed), remembering(_memo), same_order(order):
        for identity, source in assignment.locked.items():
            run_locked(identity, source, names)
        for test in assignment.tests:
            used = names_used(test)
            needed = [cell for name, cell in assignment.solutions.items() if name in used]
            gone = [cell for cell in needed if cell in submission.lost]
            if gone:
                why = f"not graded: {gone[0]}: {submission.lost[gone[0]]}"
                run_test(test, names)  # for what it defines: a later test may use it
                yield TestResult(test.grade_id, None, test.points, why)
                continue
            begun = time.monotonic()
            restore = keep_randomness() if session.shared else None
            outcome = _run_one(test, names, assignment, session, known)
            if session.unshare():  # it wanted what is forbidden, perhaps in another question only
                if restore is not None:
                    restore()
                outcome = _run_one(test, names, assignment, session, known)
            yield dataclasses.replace(outcome, seconds=time.monotonic() - begun)


def _run_one(
    test: TestCell,
    names: dict[str, Any],
    assignment: Assignment,
    session: Session,
    conversations: Conversations,
) -> TestResult:
    session.forget_dead()
    if not session.alive and session.seconds_left > 0:
        with contextlib.suppress(SubmissionLost, SandboxError):
            session.restart()
    if session.seconds_left <= 0:
        return TestResult(test.grade_id, None, test.points, "not graded: out of time")
    names.update(_stubs(assignment, session))
    outcome = conversations.run(test, names, session, lambda: run_test(test, names))
    if (lost := session.why_lost()) and outcome.score:  # taken for an answer
        text = plain_text(f"{lost}, so that this test could not be finished")
        outcome = dataclasses.replace(outcome, score=0.0, message=text)
    return outcome
