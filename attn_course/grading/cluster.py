"""Grade on an existing dask.distributed cluster."""

import asyncio
import concurrent.futures
from collections.abc import Sequence

from attn_course.grading.errors import SandboxError
from attn_course.grading.pool import Results, Settings, Task, failed_result, grade_task
from attn_course.grading.results import Result

CONNECT_SECONDS = 10
WORKER_SECONDS = 60


def run_dask(first: Task, tasks: Sequence[Task], settings: Settings, *, address: str) -> Results:
    """Grade on an existing dask.distributed cluster; dask runs the tasks of a lost worker again."""
    try:
        from distributed import Client, KilledWorker, as_completed
    except ImportError:
        raise SandboxError(
            "--scheduler needs dask.distributed: pip install 'attn-course[cluster]'"
        ) from None
    problem = f"no dask scheduler answers at {address}"
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:  # a notebook has a loop running
            thread.submit(asyncio.run, _ping(address)).result()
        with Client(address, timeout=CONNECT_SECONDS, set_as_default=False) as client:
            problem = f"the dask scheduler at {address} has no worker after {WORKER_SECONDS} s"
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
            problem = (
                f"the dask scheduler at {address} was lost; what was graded so far is kept: run "
                "the same command again to go on"
            )
            for part in ([first], tasks):
                sent = {client.submit(_grade, task, settings, pure=False): task for task in part}
                for future in as_completed(list(sent), loop=client.loop):
                    try:
                        yield future.result()
                    except KilledWorker:
                        why = "dask's workers died each time it was graded (out of memory?)"
                        yield failed_result(sent[future], settings, why)
    except (OSError, TimeoutError, ValueError, concurrent.futures.CancelledError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SandboxError(f"{problem} ({reason})") from None


async def _ping(address: str) -> None:
    """Connect once: a client would wait for ever for a port that stays silent."""
    from distributed.comm.core import connect

    connected = connect(address, timeout=CONNECT_SECONDS)
    (await asyncio.wait_for(connected, CONNECT_SECONDS + 1)).abort()


def _grade(task: Task, settings: Settings) -> Result:
    """Grade in a worker of the cluster; one that a nanny starts again may die of a verdict."""
    from distributed import get_worker

    return grade_task(task, settings, may_die=bool(get_worker().nanny))
