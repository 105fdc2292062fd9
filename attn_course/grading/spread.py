"""Spread submissions over workers: processes of this machine, or a dask cluster.

Results come back in the order in which they are ready; only the caller writes.
"""

from collections.abc import Sequence

from attn_course.grading.cluster import run_dask
from attn_course.grading.pool import Results, Settings, Task, start
from attn_course.grading.workers import run_processes


def run(
    first: Task,
    tasks: Sequence[Task],
    settings: Settings,
    *,
    workers: int = 1,
    scheduler: str | None = None,
) -> Results:
    """The result of the first task, then those of all others as they are ready.

    Args:
        first: the instructor's; nothing else runs until its result has been taken.
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
        return run_dask(first, tasks, settings, address=scheduler)
    start(settings)
    return run_processes(first, tasks, settings, workers=min(workers, max(1, len(tasks))))
