"""Grade on an existing dask.distributed cluster."""

import concurrent.futures
import contextlib
from collections.abc import Sequence
from typing import Any

from attn_course.grading.errors import SandboxError
from attn_course.grading.pool import Results, Settings, Task, failed_result, grade_task
from attn_course.grading.results import Result

CONNECT_SECONDS = 10
WORKER_SECONDS = 60


def run_dask(first: Task, tasks: Sequence[Task], settings: Settings, *, address: str) -> Results:
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
        _ping(address)
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
        waiting: dict[Any, Task] = {}
        try:
            for part in ([first], tasks):
                waiting = {client.submit(_grade, t, settings, pure=False): t for t in part}
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


def _grade(task: Task, settings: Settings) -> Result:
    """Grade in a worker of the cluster; one that a nanny starts again may die of a verdict."""
    from distributed import get_worker

    return grade_task(task, settings, may_die=bool(get_worker().nanny))


def _ping(address: str) -> None:
    """Connect to a scheduler once: a client would wait for ever for a port that stays silent.

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
        reason = "dask's workers died each time it was graded (out of memory?)"
        return failed_result(task, settings, reason)
    return result
