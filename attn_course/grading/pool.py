"""What one worker does: it keeps one jail, and grades one submission at a time in it."""

import atexit
import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import Assignment
from attn_course.grading.results import Result
from attn_course.grading.sandbox import Limits, Zygote


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One submission on its way to a worker."""

    student: str
    data: bytes | str | None
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What is the same for every task of a run."""

    assignment: Assignment
    limits: Limits = dataclasses.field(default_factory=Limits)
    sandbox: bool = True
    private: tuple[Path, ...] = ()  # what no submission may see, wherever it lies

    @property
    def verdict_seconds(self) -> float:
        """Wall clock of one verdict, of which the submission's own is a part."""
        return self.limits.verdict_seconds or 2 * self.limits.wall_seconds + 30


Results = Generator[Result, None, None]

_zygotes: dict[Any, Zygote] = {}
# Seeds, redirected output and warnings belong to the process; a dask worker may have more threads.
_one_at_a_time = threading.Lock()


def zygote_of_this_process(settings: Settings) -> Zygote:
    """The jail of this process for such tasks, started at the first call.

    Raises:
        SandboxError: it cannot start here.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a process with threads cannot be forked
    key = settings.sandbox, settings.private, settings.assignment.imports
    if key not in _zygotes:
        _zygotes[key] = Zygote(sandbox=key[0], private=key[1], modules=key[2])
    return _zygotes[key]


def close_zygotes() -> None:
    """End the jails of this process."""
    while _zygotes:
        _zygotes.popitem()[1].close()


atexit.register(close_zygotes)


def load_grader() -> Callable[..., Result]:
    """Import what grades, which takes longer than anything else here, for one thread."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    from attn_course.grading.verdict import grade_notebook

    torch.set_num_threads(1)
    return grade_notebook


def grade_task(task: Task, settings: Settings, *, may_die: bool = False) -> Result:
    """Grade one submission in this process.

    Args:
        task: the submission.
        settings: assignment, limits, sandbox.
        may_die: this process may be ended by an alarm when the verdict takes too long. Nothing
            else stops a tensor operation, and an answer chooses what our tests compute with.

    Raises:
        SandboxError: the jail cannot start on this machine at all.
    """
    with _one_at_a_time:
        zygote = zygote_of_this_process(settings)
        grade_notebook = load_grader()
        try:
            if may_die:
                signal.setitimer(signal.ITIMER_REAL, settings.verdict_seconds)
            return grade_notebook(
                task.data,
                settings.assignment,
                zygote,
                student=task.student,
                seed=task.seed,
                limits=settings.limits,
            )
        finally:
            if may_die:
                signal.setitimer(signal.ITIMER_REAL, 0)


def failed_result(task: Task, settings: Settings, reason: str) -> Result:
    """The result of a submission whose grading process died, and why."""
    return Result(
        student=task.student,
        assignment=settings.assignment.slug,
        status="sandbox_error",
        reason=reason,
        max_score=settings.assignment.max_score,
        seed=task.seed,
        sandboxed=settings.sandbox,
    )
