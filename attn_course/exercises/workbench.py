"""A process of its own for one learner's notebook: ``python -m attn_course.exercises.workbench``.

Reads a job from standard input (the assignment, the learner's cells, the seconds that a cell may
take) and writes a message for each cell that begins or fails and each test that ends. A cell that
takes too long ends the process. The test cells run through ``testcell``, as in the grader; the
learner's names are the only ones that they share with the cells of the notebook.
"""

import contextlib
import faulthandler
import io
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from attn_course.exercises.assignment import Assignment, TestCell
from attn_course.exercises.cells import new_namespace, run_cell
from attn_course.exercises.check import CheckedTest
from attn_course.exercises.sealed import SealedError, closed
from attn_course.exercises.shortcuts import guarded
from attn_course.exercises.testcell import (
    attempt,
    error_text,
    missing,
    plain_text,
    run_locked,
    seeded,
)
from attn_course.probes.draw import choose_seed
from attn_course.probes.failure import NotStarted, ProbeFailure
from attn_course.probes.memo import Memo, remembering

TEXT = 300  # characters of an error that are told
SETUP = ("installed", "setup")  # cells that stand before all others


def _line(error: BaseException) -> str:
    """The learner's own line in which an exception was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "<cell " in f.filename]
    return f" (in: {frames[-1].line})" if frames and frames[-1].line else ""


def _checked(test: TestCell, names: dict[str, Any]) -> CheckedTest:
    """Run a test cell as the grader does, and tell what state the answer is in."""
    result, error = attempt(test, names)
    parts: dict[str, str] = {}
    if error is None:
        state = "ok" if result.score == result.max else "partial" if result.score else "wrong"
    elif isinstance(error, NotStarted):
        state = "not started"
    elif isinstance(error, ProbeFailure):
        state = "wrong"
        parts = {label: plain_text(text) for label, text in error.report.parts().items()}
    else:
        state = "error"
    return CheckedTest(**vars(result), state=state, parts=parts)


def work(
    assignment: Assignment, cells: Sequence[dict[str, str]], tell: Callable[..., None]
) -> None:
    """Run the notebook, then its tests.

    Args:
        assignment: What is graded.
        cells: The code cells of the notebook, in order.
        tell: Called with the kind of a message, a cell, and what there is to say of it.
    """
    seed = choose_seed()
    torch.set_num_threads(1)
    learner = new_namespace()
    errors: dict[str, str] = {}
    with seeded(seed):
        for cell in cells:
            identity = cell["id"]
            tell("cell", identity)
            quiet = contextlib.redirect_stdout(io.StringIO())
            silent = contextlib.redirect_stderr(io.StringIO())
            try:
                with closed(), quiet, silent:
                    run_cell(identity, cell["source"], learner, (SealedError,))
            except (Exception, SystemExit) as error:
                if identity in assignment.locked:
                    continue  # ours: it may use what is closed here, the tests have it open
                errors[identity] = error_text(error)[:TEXT]
                tell("raised", identity, errors[identity] + _line(error))
    names: dict[str, Any] = {"__name__": "__main__"}
    for name, identity in assignment.solutions.items():
        if name in learner:
            names[name] = guarded(learner[name], assignment.forbidden.get(name, ()), learner)
        elif identity in errors:
            names[name] = missing(f"`{name}` is not defined: its cell raised {errors[identity]}")
        else:
            names[name] = missing(f"`{name}` is not defined by the notebook")
    stubs = dict(names)
    with seeded(seed), remembering(Memo()):
        for identity, source in assignment.locked.items():
            failed = run_locked(identity, source, names)
            if failed and identity in SETUP:  # every test needs something of it
                tell("error", identity, failed[:TEXT])
                return
        for test in assignment.tests:
            names.update(stubs)
            tell("test", test.grade_id)
            tell("result", test.grade_id, _checked(test, names))


def main() -> None:
    """Read the job, keep the channel to the parent, do the work."""
    assignment, cells, timeout = pickle.load(sys.stdin.buffer)
    channel = os.fdopen(os.dup(1), "wb")
    if hasattr(os, "register_at_fork"):  # a process that a learner's library leaves behind
        os.register_at_fork(after_in_child=channel.close)
    sys.stdin = io.StringIO("")
    os.dup2(2, 1)  # what a learner's library prints past Python is not taken for a message

    def tell(kind: str, place: str, found: object = None) -> None:
        faulthandler.dump_traceback_later(timeout, exit=True, file=2)
        pickle.dump((kind, place, found), channel)
        channel.flush()

    work(assignment, cells, tell)


if __name__ == "__main__":
    main()
