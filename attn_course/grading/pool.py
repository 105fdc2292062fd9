"""A worker keeps one jail and grades one submission at a time in it; several of this machine work
at once, and one that dies is replaced."""

import atexit
import contextlib
import ctypes
import dataclasses
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Generator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import Assignment
from attn_course.grading.errors import SandboxError
from attn_course.grading.results import Result
from attn_course.grading.sandbox import Limits, Zygote

ATTEMPTS = 3  # a submission may have been near when something else ended its process
PR_SET_PDEATHSIG = 1


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


def jail_of_this_process(settings: Settings) -> Zygote:
    """The jail for such tasks, started at the first call; what grades in it is imported as well."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # a process with threads cannot be forked
    import torch

    import attn_course.grading.verdict  # noqa: F401  it takes longer than anything else here

    torch.set_num_threads(1)
    key = settings.sandbox, settings.private, settings.assignment.imports
    if key not in _zygotes:
        _zygotes[key] = Zygote(sandbox=key[0], private=key[1], modules=key[2])
    return _zygotes[key]


def close_zygotes() -> None:
    """End the jails of this process."""
    while _zygotes:
        _zygotes.popitem()[1].close()


atexit.register(close_zygotes)


def grade_task(task: Task, settings: Settings, *, may_die: bool = False) -> Result:
    """Grade one submission in this process, which an alarm may end if it ``may_die``.

    Nothing else stops a tensor operation, and an answer chooses what our tests compute with.
    """
    with _one_at_a_time:
        zygote = jail_of_this_process(settings)
        from attn_course.grading.verdict import grade_notebook

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


def _work(pipe: Connection, grade: Any, settings: Settings, forked: bool) -> None:
    """The life of a worker: a task comes, its result goes, or what keeps the jail from starting."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a verdict without end ends this process
    if forked:
        # At once: a fork holds the locks of its parent, and the next run would find them taken.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def watch() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        close_zygotes()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    with contextlib.suppress(EOFError):
        while True:
            try:
                found = grade(pipe.recv(), settings, may_die=True)
            except SandboxError as error:
                found = error
            pipe.send(found)


def _context(settings: Settings) -> Any:
    """Fork where that is safe and shares what has been imported, else start anew.

    A process with other threads must not be forked. Neither may workers share a jail where no
    filter of system calls keeps its submissions from each other's sockets.
    """
    alone = sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    if alone and settings.sandbox:
        with contextlib.suppress(OSError):
            ctypes.CDLL("libseccomp.so.2")
            return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


class _Team:
    """Processes that grade one task each at a time, so that one that dies is known by its task."""

    def __init__(self, settings: Settings, count: int) -> None:
        self.settings, self.count = settings, count
        self._processes: dict[Connection, Any] = {}
        self._idle: list[Connection] = []

    def _start(self) -> Connection:
        context = _context(self.settings)
        if forked := context.get_start_method() == "fork":
            jail_of_this_process(self.settings)
            gc.freeze()  # no collection in a worker need look at, and copy, what is shared
        ours: Connection
        ours, theirs = context.Pipe()
        about = (theirs, grade_task, self.settings, forked)
        process = context.Process(target=_work, args=about, daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is the end of what ours can read
        self._processes[ours] = process
        return ours

    def grade(self, tasks: Sequence[Task]) -> Results:
        """Results as they are ready; a task whose process dies is done again, in a new one."""
        waiting = [(task, 1) for task in reversed(tasks)]
        busy: dict[Connection, tuple[Task, int]] = {}
        while waiting or busy:
            over = wait(list(busy)) if busy else []
            ready = [(pipe, *busy.pop(pipe)) for pipe in list(busy) if pipe in over]
            found = []
            for pipe, task, attempt in ready:
                outcome = self._outcome(pipe, task, attempt)
                if isinstance(outcome, SandboxError):
                    raise outcome
                if isinstance(outcome, Result):
                    found.append(outcome)
                else:
                    waiting.append((task, attempt + 1))
            while waiting and len(busy) < self.count:  # before these are written
                pipe = self._idle.pop() if self._idle else self._start()
                busy[pipe] = waiting.pop()
                with contextlib.suppress(BrokenPipeError):  # reading will tell that it has died
                    pipe.send(busy[pipe][0])
            yield from found

    def _outcome(self, pipe: Any, task: Task, attempt: int) -> Result | SandboxError | None:
        """What a worker gave; None when it died and the task should be tried again."""
        try:
            found: Result | SandboxError = pipe.recv()
        except (EOFError, ConnectionResetError):
            process = self._processes.pop(pipe)
            pipe.close()
            process.join()
            if process.exitcode == -signal.SIGALRM:
                why = f"its verdict took more than {self.settings.verdict_seconds:g} s"
                return failed_result(task, self.settings, why)
            why = "the grading process died each time it was graded (out of memory?)"
            return None if attempt < ATTEMPTS else failed_result(task, self.settings, why)
        self._idle.append(pipe)
        return found

    def end(self) -> None:
        """Kill every process; none holds anything that is not written elsewhere."""
        for process in self._processes.values():
            process.kill()
        for pipe, process in self._processes.items():
            process.join()
            pipe.close()


def run_processes(
    first: Task, tasks: Sequence[Task], settings: Settings, *, workers: int
) -> Results:
    """Grade in ``workers`` processes; a worker that dies is replaced and its task done again.

    If the workers of a task die each time, its result is a failure with a reason, and the batch
    goes on. Nothing else is begun until the result of ``first`` has been taken.
    """
    team = _Team(settings, workers)
    try:
        yield from team.grade([first])
        yield from team.grade(tasks)
    finally:
        team.end()
