"""Grade in several processes of this machine; one that dies is replaced."""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from attn_course.grading import pool
from attn_course.grading.errors import SandboxError
from attn_course.grading.pool import Results, Settings, Task
from attn_course.grading.results import Result

ATTEMPTS = 3  # a submission may have been near when something else ended its process
PR_SET_PDEATHSIG = 1


def _work(pipe: Connection, grade: Any, settings: Settings, forked: bool) -> None:
    """The life of a worker: a task comes, its result goes, or what keeps the jail from starting."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a verdict without end ends this process
    if forked:
        # At once: a fork holds the locks of its parent, and the next run would find them taken.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def watch() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        pool.close_zygotes()
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
    """Processes that grade one task each at a time, so that one that dies is known by its task.

    Args:
        settings: the same for every task.
        count: number of processes.
    """

    def __init__(self, settings: Settings, count: int) -> None:
        self.settings, self.count = settings, count
        self._processes: dict[Connection, Any] = {}
        self._idle: list[Connection] = []

    def _start(self) -> Connection:
        context = _context(self.settings)
        if forked := context.get_start_method() == "fork":
            pool.load_grader()
            pool.zygote_of_this_process(self.settings)
            gc.freeze()  # no collection in a worker need look at, and copy, what is shared
        ours: Connection
        ours, theirs = context.Pipe()
        about = (theirs, pool.grade_task, self.settings, forked)
        process = context.Process(target=_work, args=about, daemon=True)
        process.start()
        theirs.close()  # so that the end of the process is the end of what ours can read
        self._processes[ours] = process
        return ours

    def grade(self, tasks: Sequence[Task]) -> Results:
        """Results as they are ready; a task whose process dies is done again, in a new one.

        Raises:
            SandboxError: the jail cannot start.
        """
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
                return pool.failed_result(task, self.settings, why)
            why = "the grading process died each time it was graded (out of memory?)"
            return None if attempt < ATTEMPTS else pool.failed_result(task, self.settings, why)
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

    Raises:
        SandboxError: the jail cannot start.
    """
    team = _Team(settings, workers)
    try:
        yield from team.grade([first])
        yield from team.grade(tasks)
    finally:
        team.end()
