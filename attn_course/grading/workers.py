"""Grade in several processes of this machine; one that dies is replaced."""

import concurrent.futures
import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from attn_course.grading.errors import SandboxError
from attn_course.grading.pool import (
    Results,
    Settings,
    Task,
    close_zygotes,
    failed_result,
    grade_task,
    keep_to_one_core,
    load_grader,
    zygote_of_this_process,
)
from attn_course.grading.results import Result

ATTEMPTS = 3  # as they come, alone, alone again
PR_SET_PDEATHSIG = 1


def _prepare_worker(settings: Settings, parent: int, counter: Any, forked: bool) -> None:
    """Leave Ctrl-C to the parent, end when the parent does, have the jail at hand."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a verdict without end ends this process
    if forked:
        # At once: a fork holds the locks of its parent, and the next run would find them taken.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        close_zygotes()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    with counter.get_lock():
        number = counter.value
        counter.value += 1
    keep_to_one_core(number)
    with contextlib.suppress(SandboxError):  # the first task will say so
        zygote_of_this_process(settings, wait=False)
        load_grader()
        gc.freeze()


def _context(settings: Settings) -> Any:
    """Fork where that is safe and shares what has been imported, else start anew.

    A process with other threads must not be forked. Neither may workers share a jail where no
    filter of system calls keeps its submissions from each other's sockets.
    """
    alone = sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    if alone and settings.sandbox and threading.current_thread() is threading.main_thread():
        with contextlib.suppress(OSError):
            ctypes.CDLL("libseccomp.so.2")
            return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


class _Workers:
    """Processes of which at most ``count`` tasks are in flight, so that a crash has few suspects.

    Args:
        settings: the same for every task.
        count: number of processes.
    """

    def __init__(self, settings: Settings, count: int) -> None:
        self.settings, self.count = settings, count
        self.too_slow = False  # a process of the last crash was ended by its alarm
        self._pool = self._new()

    def _new(self) -> concurrent.futures.ProcessPoolExecutor:
        context = _context(self.settings)
        forked = context.get_start_method() == "fork"
        if forked:
            load_grader()
            zygote_of_this_process(self.settings)
            gc.freeze()  # no collection in a worker need look at, and copy, what is shared
        return concurrent.futures.ProcessPoolExecutor(
            self.count,
            mp_context=context,
            initializer=_prepare_worker,
            initargs=(self.settings, os.getpid(), context.Value("i", 0), forked),
        )

    def grade(self, tasks: list[Task], *, at_once: int) -> Iterator[Result | Task]:
        """Results as they are ready; a task that was in flight at a crash comes back as itself."""
        waiting = list(reversed(tasks))
        in_flight: dict[concurrent.futures.Future[Result], Task] = {}
        while waiting or in_flight:
            if not self._send(waiting, in_flight, at_once) and not in_flight:
                self.restart()
                continue
            ready, _ = concurrent.futures.wait(in_flight, return_when="FIRST_COMPLETED")
            broken = False
            outcomes: list[Result | Task] = []
            for future in ready:
                task = in_flight.pop(future)
                try:
                    outcomes.append(future.result())
                except concurrent.futures.BrokenExecutor:
                    broken = True
                    outcomes.append(task)
            if broken:
                outcomes += in_flight.values()
                in_flight.clear()
            else:
                self._send(waiting, in_flight, at_once)  # no worker waits until these are written
            if broken:
                self.restart()
            yield from outcomes

    def _send(
        self,
        waiting: list[Task],
        in_flight: dict[concurrent.futures.Future[Result], Task],
        at_once: int,
    ) -> bool:
        """Give the workers what they have room for; False when they have died."""
        try:
            while waiting and len(in_flight) < at_once:
                future = self._pool.submit(grade_task, waiting[-1], self.settings, may_die=True)
                in_flight[future] = waiting.pop()
        except concurrent.futures.BrokenExecutor:
            return False
        return True

    def restart(self) -> None:
        """Replace every process."""
        self.end()
        self._pool = self._new()

    def end(self) -> None:
        """Kill every process; none holds anything that is not written elsewhere."""
        processes = list((self._pool._processes or {}).values())
        for process in processes:
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.too_slow = any(process.exitcode == -signal.SIGALRM for process in processes)


def run_processes(
    first: Task, tasks: Sequence[Task], settings: Settings, *, workers: int
) -> Results:
    """Grade in ``workers`` processes; a worker that dies is replaced and its task done again.

    A task that is in flight when a worker dies is done again, then alone; if its worker dies once
    more its result is a failure with a reason, and the batch goes on. Nothing else is in flight
    until the result of ``first`` has been taken.

    Raises:
        SandboxError: the jail cannot start.
    """
    pool = _Workers(settings, workers)
    try:
        for left, at_once in (([first], 1), (list(tasks), workers + 1)):
            yield from _with_retries(pool, left, at_once)
    finally:
        pool.end()


def _with_retries(pool: _Workers, left: list[Task], at_once: int) -> Results:
    settings = pool.settings
    for _ in range(ATTEMPTS):
        suspects = []
        for outcome in pool.grade(left, at_once=at_once):
            if not isinstance(outcome, Task):
                yield outcome
            elif at_once == 1 and pool.too_slow:
                seconds = f"{settings.verdict_seconds:g} s"
                yield failed_result(outcome, settings, f"its verdict took more than {seconds}")
            else:
                suspects.append(outcome)
        left, at_once = suspects, 1
    for task in left:
        why = "the grading process died each time it was graded (out of memory?)"
        yield failed_result(task, settings, why)
