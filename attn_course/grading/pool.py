"""Spread submissions over workers: this process, several processes, or a dask cluster.

Every worker keeps one jail and grades one submission at a time in it. Results come back in the
order in which they are ready; only the caller writes.
"""

import atexit
import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from attn_course.grading.assignment import Assignment
from attn_course.grading.errors import SandboxError
from attn_course.grading.results import Result
from attn_course.grading.sandbox import Limits, Zygote, sandbox_problem
from attn_course.grading.verdict import grade_notebook


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


Results = Generator[Result, None, None]
ATTEMPTS = 3  # as they come, alone, alone again
CONNECT_SECONDS = 10
WORKER_SECONDS = 60

_zygotes: dict[bool, Zygote] = {}
# Seeds, redirected output and warnings belong to the process; a dask worker may have more threads.
_one_at_a_time = threading.Lock()


def zygote_of_this_process(*, sandbox: bool) -> Zygote:
    """The jail of this worker, started at the first call.

    Raises:
        SandboxError: it cannot start here.
    """
    if sandbox not in _zygotes:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        import torch

        torch.set_num_threads(1)
        _zygotes[sandbox] = Zygote(sandbox=sandbox)
    return _zygotes[sandbox]


@atexit.register
def _close_zygotes() -> None:
    while _zygotes:
        _zygotes.popitem()[1].close()


def grade_task(task: Task, settings: Settings) -> Result:
    """Grade one submission in this process.

    Raises:
        SandboxError: the jail cannot start on this machine at all.
    """
    with _one_at_a_time:
        zygote = zygote_of_this_process(sandbox=settings.sandbox)
        return grade_notebook(
            task.data,
            settings.assignment,
            zygote,
            student=task.student,
            seed=task.seed,
            limits=settings.limits,
        )


def run_here(tasks: Sequence[Task], settings: Settings) -> Results:
    """Grade one after the other in this process."""
    for task in tasks:
        yield grade_task(task, settings)


def _prepare_worker(settings: Settings, parent: int) -> None:
    """Leave Ctrl-C to the parent, end when the parent does, start the jail."""
    import signal
    import threading
    import time

    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        _close_zygotes()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    with contextlib.suppress(SandboxError):  # the first task will say so
        zygote_of_this_process(sandbox=settings.sandbox)


class _Workers:
    """Processes of which at most ``count`` tasks are in flight, so that a crash has few suspects.

    Args:
        settings: the same for every task.
        count: number of processes.
    """

    def __init__(self, settings: Settings, count: int) -> None:
        self.settings, self.count = settings, count
        self._pool = self._new()

    def _new(self) -> concurrent.futures.ProcessPoolExecutor:
        return concurrent.futures.ProcessPoolExecutor(
            self.count,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare_worker,
            initargs=(self.settings, os.getpid()),
        )

    def grade(self, tasks: list[Task], *, at_once: int) -> Iterator[Result | Task]:
        """Results as they are ready; a task that was in flight at a crash comes back as itself."""
        waiting = list(reversed(tasks))
        flying: dict[concurrent.futures.Future[Result], Task] = {}
        while waiting or flying:
            try:
                while waiting and len(flying) < at_once:
                    future = self._pool.submit(grade_task, waiting[-1], self.settings)
                    flying[future] = waiting.pop()
            except concurrent.futures.BrokenExecutor:
                if not flying:
                    self.restart()
                    continue
            ready, _ = concurrent.futures.wait(flying, return_when="FIRST_COMPLETED")
            broken = False
            for future in ready:
                try:
                    outcome: Result | Task = future.result()
                except concurrent.futures.BrokenExecutor:
                    broken, outcome = True, flying[future]
                del flying[future]
                yield outcome
            if broken:
                yield from flying.values()
                flying.clear()
                self.restart()

    def restart(self) -> None:
        """Replace every process."""
        self.end()
        self._pool = self._new()

    def end(self) -> None:
        """Kill every process; none holds anything that is not written elsewhere."""
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)


def run_processes(tasks: Sequence[Task], settings: Settings, *, workers: int) -> Results:
    """Grade in ``workers`` processes; a worker that dies is replaced and its task done again.

    A task that is in flight when a worker dies is done again, then alone; if its worker dies once
    more it is given up with a reason, and the batch goes on.

    Raises:
        SandboxError: the jail cannot start.
    """
    pool = _Workers(settings, workers)
    try:
        left, at_once = list(tasks), workers + 1
        for _ in range(ATTEMPTS):
            suspects = []
            for outcome in pool.grade(left, at_once=at_once):
                if isinstance(outcome, Task):
                    suspects.append(outcome)
                else:
                    yield outcome
            left = suspects
            at_once = 1
        for task in left:
            yield _given_up(task, settings, "the grading process died each time it was graded")
    finally:
        pool.end()


def _given_up(task: Task, settings: Settings, reason: str) -> Result:
    return Result(
        student=task.student,
        assignment=settings.assignment.slug,
        status="sandbox_error",
        reason=f"{reason} (out of memory?)",
        max_score=settings.assignment.max_score,
        seed=task.seed,
        sandboxed=settings.sandbox,
    )


def run_dask(tasks: Sequence[Task], settings: Settings, *, address: str) -> Results:
    """Grade on an existing dask.distributed cluster; dask runs the tasks of a lost worker again.

    Raises:
        SandboxError: the scheduler does not answer, or dask is not installed.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise SandboxError(
            "--scheduler needs dask.distributed: pip install 'attn-course[cluster]'"
        ) from None
    try:
        _knock(address)
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SandboxError(f"no dask scheduler answers at {address}: {reason}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError:
            raise SandboxError(
                f"the dask scheduler at {address} has no worker after {WORKER_SECONDS} s"
            ) from None
        waiting = {client.submit(grade_task, task, settings, pure=False): task for task in tasks}
        try:
            for future in as_completed(list(waiting), loop=client.loop):
                yield _dask_result(future, waiting.pop(future), settings)
        except (OSError, TimeoutError, concurrent.futures.CancelledError) as error:
            raise SandboxError(
                f"the dask scheduler at {address} was lost: {type(error).__name__}; what was "
                "graded so far is kept: run the same command again to go on"
            ) from None
        finally:
            with contextlib.suppress(Exception):
                client.cancel(list(waiting))


def _knock(address: str) -> None:
    """Shake hands with a scheduler: a client would wait for ever for a port that stays silent.

    Raises:
        OSError: nobody answers in time.
        ValueError: it is no address.
    """
    import asyncio

    from distributed.comm.core import connect

    async def shake_hands() -> None:
        comm = await connect(address, timeout=CONNECT_SECONDS)
        comm.abort()

    asyncio.run(asyncio.wait_for(shake_hands(), CONNECT_SECONDS + 1))


def _dask_result(future: Any, task: Task, settings: Settings) -> Result:
    """A result, or why there is none.

    Raises:
        SandboxError: the jail does not start on that worker.
    """
    from distributed import KilledWorker

    try:
        result: Result = future.result()
    except KilledWorker:
        return _given_up(task, settings, "dask's workers died each time it was graded")
    return result


def run(
    tasks: Sequence[Task],
    settings: Settings,
    *,
    workers: int = 1,
    scheduler: str | None = None,
) -> Results:
    """Results of all tasks, as they are ready.

    Args:
        tasks: one for each student.
        settings: assignment, limits, sandbox.
        workers: processes on this machine.
        scheduler: address of a dask scheduler to use instead.

    Raises:
        ValueError: fewer than one worker.
        SandboxError: the jail or the cluster cannot be used.
    """
    if workers < 1:
        raise ValueError(f"workers: expected at least 1, got {workers}")
    if scheduler is not None:
        return run_dask(tasks, settings, address=scheduler)
    if settings.sandbox and (problem := sandbox_problem()):
        raise SandboxError(problem)
    if workers == 1 or len(tasks) < 2:
        return run_here(tasks, settings)
    return run_processes(tasks, settings, workers=min(workers, len(tasks)))
