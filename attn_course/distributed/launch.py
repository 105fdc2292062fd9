"""Several processes on this machine for one function: enough for a test, a page, an exercise."""

import datetime
import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def launch(
    function: Callable[..., Any], world_size: int, *args: object, timeout: float = 120.0
) -> list[Any]:
    """Call ``function(*args)`` in ``world_size`` processes on CPUs that form a process group.

    Each has one thread and speaks to the others through Gloo; they find each other through a file,
    so that no port has to be free. For several machines or GPUs use ``torchrun``.

    Args:
        function: Importable by name: from a module, not from a notebook.
        world_size: How many processes.
        *args: Whatever can be pickled.
        timeout: Seconds after which all of them are ended.

    Returns:
        What each of them returned, in the order of ranks.

    Raises:
        ValueError: If there is no process to start.
        RuntimeError: If one fails; the others are ended. Its traceback is in the message.
        TimeoutError: If they are not through in time.
    """
    if world_size < 1:
        raise ValueError(f"world_size: expected at least 1, got {world_size}")
    # a server that has loaded torch once and forks: a quarter of the time of four fresh starts
    kind = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(kind)
    if kind == "forkserver":
        context.set_forkserver_preload(["attn_course.distributed"])
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryDirectory(prefix="attn-course-") as folder:
        processes = [
            context.Process(
                target=_run, args=(function, args, rank, world_size, folder, timeout), daemon=True
            )
            for rank in range(world_size)
        ]
        try:
            for process in processes:
                process.start()
            _wait(processes, Path(folder), deadline, timeout)
        finally:
            for process in processes:
                if process.pid is not None and process.is_alive():
                    process.kill()
            for process in processes:
                if process.pid is not None:
                    process.join()
        return [
            pickle.loads((Path(folder) / f"{rank}.result").read_bytes())
            for rank in range(world_size)
        ]


def _wait(processes: list[Any], folder: Path, deadline: float, timeout: float) -> None:
    while True:
        for rank, process in enumerate(processes):
            if process.exitcode not in (None, 0):
                # the one that failed first, not those that lost their peer by it
                told = sorted(folder.glob("*.error"), key=lambda path: path.stat().st_mtime_ns)
                if told:
                    raise RuntimeError(f"process {told[0].stem} failed:\n{told[0].read_text()}")
                raise RuntimeError(f"process {rank} ended with exit code {process.exitcode}")
        if all(process.exitcode == 0 for process in processes):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"timeout: expected all processes within {timeout:g} s")
        time.sleep(0.02)


def _run(
    function: Callable[..., Any],
    args: tuple[object, ...],
    rank: int,
    world_size: int,
    folder: str,
    timeout: float,
) -> None:
    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/meeting",
            rank=rank,
            world_size=world_size,
            timeout=datetime.timedelta(seconds=timeout),
        )
        result = function(*args)
        dist.barrier()  # nobody leaves while another one still listens
        (Path(folder) / f"{rank}.result").write_bytes(pickle.dumps(result))
        dist.destroy_process_group()
    except BaseException:
        part = Path(folder) / f"{rank}.part"
        part.write_text(traceback.format_exc())
        part.rename(part.with_suffix(".error"))
        os._exit(1)  # without waiting for threads that wait for others
