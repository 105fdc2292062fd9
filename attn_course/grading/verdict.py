"""Grade one submission: run the instructor's test cells here, the student's code in the jail."""

import dataclasses
import hashlib
import time
from collections.abc import Iterator
from typing import Any

from attn_course.exercises import testcell
from attn_course.exercises.assignment import Assignment, TestCell, TestResult
from attn_course.exercises.submission import Submission, look_at
from attn_course.grading.callbacks import bounded_memory
from attn_course.grading.errors import SandboxError, StudentTimeout, SubmissionLost, said
from attn_course.grading.remote import RemoteFunction
from attn_course.grading.results import Result
from attn_course.grading.sandbox import Limits, Zygote, still_open
from attn_course.grading.session import Processes
from attn_course.probes.memo import Memo, remembering

MAX_BYTES = 4 << 30  # of memory that one verdict may take in this process
_memo = Memo()  # what the instructor's own functions give; the class is given the same inputs


def grade_notebook(
    data: bytes | str | None,
    assignment: Assignment,
    zygote: Zygote,
    *,
    student: str,
    seed: int,
    limits: Limits,
) -> Result:
    """Grade one notebook, or say why it cannot be; every outcome is a :class:`Result`.

    ``data`` is None where there is no file, and a text that says why one cannot be read.
    """
    begun = time.monotonic()
    try:
        with bounded_memory(MAX_BYTES):
            found = _grade(data, assignment, zygote, seed=seed, limits=limits)
    except Exception as error:  # the border: what one submission does ends in its own status
        reason = f"the grader could not finish this submission: {type(error).__name__}"
        found = {"status": "sandbox_error", "reason": reason}
    return Result(
        student=student,
        assignment=assignment.slug,
        max_score=assignment.max_score,
        seed=seed,
        sandboxed=zygote.sandbox,
        seconds=time.monotonic() - begun,
        **found,
    )


def _grade(
    data: bytes | str | None, assignment: Assignment, zygote: Zygote, *, seed: int, limits: Limits
) -> dict[str, Any]:
    """The steps of a verdict: read the file, run its cells in the jail, run our tests on stubs.

    Returns:
        Fields of a :class:`Result`.
    """

    def found(status: str, reason: str, **more: Any) -> dict[str, Any]:
        return {"status": status, "reason": testcell.plain_text(reason), **more}

    status, reason, submission = look_at(data, assignment)
    if submission is None:
        return found(status, reason)
    settings = {"seed": _students_seed(seed), "believed": assignment.believed}
    with Processes(zygote, submission.cells, limits=limits, **settings) as processes:
        try:
            stubs = _stubs(assignment, processes)
        except (SubmissionLost, SandboxError) as error:
            status = "timeout" if isinstance(error, StudentTimeout) else "sandbox_error"
            return found(status, str(error), notes=submission.notes)
        tests = tuple(_run_tests(assignment, submission, processes, stubs, seed))
        if processes.seconds_left <= 0:
            status, reason = "timeout", f"the submission used its {limits.wall_seconds:g} s"
        elif not submission.lost and all(test.score is None for test in tests):
            status, reason = "sandbox_error", tests[0].message.splitlines()[0]
    scores = [test.score for test in tests if test.score is not None]
    score = sum(scores) if scores else None
    return found(status, reason, score=score, tests=tests, notes=submission.notes)


def _students_seed(seed: int) -> int:
    """For what a submission draws itself. It can read this one: eight bits, which say as little.

    A longer hash of a seed of 31 bits would give that seed to whoever makes a table once.
    """
    return hashlib.sha256(f"submission {seed}".encode()).digest()[0]


def _stubs(assignment: Assignment, processes: Processes) -> dict[str, Any]:
    """Stand-ins for the names that the learner writes; for all tests, as a diagnosis keeps what
    one gave."""
    stubs: dict[str, Any] = {}
    first = processes.without()
    for name, grade_id in assignment.solutions.items():
        if name in first.names:
            refused, plain = assignment.forbidden.get(name, ()), name in assignment.plain
            stubs[name] = RemoteFunction(
                processes, name, forbidden=still_open(refused), plain=plain
            )
            continue
        text = f"`{name}` is not defined by the notebook"
        error = first.errors.get(grade_id)
        if type(error) is dict:
            kind, text = said(error.get("type"), 80), said(error.get("text"), 300)
            text = f"`{name}` is not defined: its cell raised {kind}: {text}"
        stubs[name] = testcell.missing(text)
    return stubs


def _run_tests(
    assignment: Assignment,
    submission: Submission,
    processes: Processes,
    stubs: dict[str, Any],
    seed: int,
) -> Iterator[TestResult]:
    names: dict[str, Any] = {"__name__": "__main__", **stubs}
    with testcell.seeded(seed), remembering(_memo):
        for identity, source in assignment.locked.items():
            testcell.run_locked(identity, source, names)
        for test in assignment.tests:
            used = testcell.names_used(test)
            needed = [cell for name, cell in assignment.solutions.items() if name in used]
            gone = [cell for cell in needed if cell in submission.lost]
            if gone:
                why = f"not graded: {gone[0]}: {submission.lost[gone[0]]}"
                testcell.run_test(test, names)  # for what it defines: a later test may use it
                yield TestResult(test.grade_id, None, test.points, why)
                continue
            begun = time.monotonic()
            names.update(stubs)
            outcome = _run_one(test, names, processes)
            yield dataclasses.replace(outcome, seconds=time.monotonic() - begun)


def _run_one(test: TestCell, names: dict[str, Any], processes: Processes) -> TestResult:
    processes.forget_dead()
    if processes.seconds_left <= 0:
        return TestResult(test.grade_id, None, test.points, "not graded: out of time")
    outcome = testcell.run_test(test, names)
    if (lost := processes.why_lost()) and outcome.score:  # taken for an answer
        text = testcell.plain_text(f"{lost}, so that this test could not be finished")
        outcome = dataclasses.replace(outcome, score=0.0, message=text)
    return outcome
