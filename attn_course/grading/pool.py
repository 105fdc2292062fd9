"""Spread submissions over workers: this process, several processes, or a dask cluster.

Every worker keeps one jail and grades one submission at a time in it. Results come back in the
order in which they are ready; only the caller writes.
"""

import atexit
import concurrent.futures
import dataclasses
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from typing import Any

from attn_course.grading.assignment import Assignment
from attn_course.grading.errors import SandboxError
from attn_course.grading.sandbox import Limits, Zygote
from attn_course.grading.verdict import Result, grade_notebook


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


_zygotes: dict[bool, Zygote] = {}


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
    zygote = zygote_of_this_process(sandbox=settings.sandbox)
    return grade_notebook(
        task.data,
        settings.assignment,
        zygote,
        student=task.student,
        seed=task.seed,
        limits=settings.limits,
    )


def run_here(tasks: Sequence[Task], settings: Settings) -> Iterator[Result]:
    """Grade one after the other in this process."""
    for task in tasks:
        yield grade_task(task, settings)


def _quiet_worker(settings: Settings) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    zygote_of_this_process(sandbox=settings.sandbox)


def run_processes(tasks: Sequence[Task], settings: Settings, *, workers: int) -> Iterator[Result]:
    """Grade in ``workers`` processes; a worker that dies is replaced and its task done again.

    Raises:
        SandboxError: the jail cannot start.
    """
    context = multiprocessing.get_context("spawn")
    left = {task.student: task for task in tasks}
    crashes = 0
    while left:
        pool = concurrent.futures.ProcessPoolExecutor(
            workers, mp_context=context, initializer=_quiet_worker, initargs=(settings,)
        )
        try:
            futures = [pool.submit(grade_task, task, settings) for task in left.values()]
            for future in concurrent.futures.as_completed(futures):
                result = future.result()
                del left[result.student]
                yield result
        except concurrent.futures.BrokenExecutor:
            crashes += 1
            if crashes > 3:
                raise SandboxError(
                    "the grading workers keep dying (out of memory?): use fewer --workers"
                ) from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def run_dask(tasks: Sequence[Task], settings: Settings, *, address: str) -> Iterator[Result]:
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
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise SandboxError(f"no dask scheduler answers at {address}: {error}") from None
    with client:
        shared: Any = client.scatter(settings, broadcast=True)
        futures = [client.submit(grade_task, task, shared, pure=False) for task in tasks]
        for _, result in as_completed(futures, with_results=True):
            yield result


def run(
    tasks: Sequence[Task],
    settings: Settings,
    *,
    workers: int = 1,
    scheduler: str | None = None,
) -> Iterator[Result]:
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
    if workers == 1 or len(tasks) < 2:
        return run_here(tasks, settings)
    return run_processes(tasks, settings, workers=min(workers, len(tasks)))
