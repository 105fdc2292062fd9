"""However the work is spread, and whatever dies, the results are the same."""

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import classroom
import psutil
import pytest

from attn_course.grading import cluster as cluster_module
from attn_course.grading import pool
from attn_course.grading.errors import SandboxError
from attn_course.grading.results import Result
from attn_course.grading.run import AssignmentError, grade_class
from attn_course.grading.sandbox import Limits

COUNT = 14
SEED = 11
EARLIER = set()
LIMITS = Limits(wall_seconds=300.0, call_seconds=100.0)


def graded(**more):
    notebook = classroom.as_bytes(classroom.notebook())
    handed = more.pop("handed", classroom.handed(COUNT))
    return grade_class(
        handed, notebook=notebook, slug=classroom.SLUG, seed=SEED, limits=LIMITS, **more
    )


def essence(results):
    """Everything but the times."""
    timeless = partial(dataclasses.replace, seconds=0.0)
    return [timeless(result, tests=tuple(map(timeless, result.tests))) for result in results]


@pytest.fixture(scope="module")
def alone():
    results = graded(workers=1)
    assert len({result.score for result in results}) >= 4
    return essence(results)


@pytest.fixture(scope="module")
def cluster():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, silence_logs=50
    ) as found:
        yield found


def test_two_workers_give_the_results_of_one(alone):
    assert essence(graded(workers=2)) == alone


def test_a_dask_cluster_with_threads_gives_the_results_of_one(alone, cluster):
    assert essence(graded(scheduler=cluster.scheduler_address)) == alone


def test_a_dask_worker_killed_in_mid_run_changes_nothing(alone, cluster):
    killed = []

    def kill(result, done, total):
        if done == 3:
            worker = next(iter(cluster.workers.values()))
            killed.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)

    assert essence(graded(scheduler=cluster.scheduler_address, progress=kill)) == alone
    assert len(killed) == 1


def workers_of_this_process():
    return [p for p in psutil.Process().children() if p.pid not in EARLIER and is_worker(p)]


def is_worker(process):
    """A living worker: one that has ended may still wait for its parent to take its status."""
    try:
        words = process.cmdline()
        return "spawn_main" in " ".join(words) or words == psutil.Process().cmdline()  # or a fork
    except (psutil.ZombieProcess, psutil.NoSuchProcess):
        return False


@pytest.fixture(autouse=True)
def processes_of_earlier_tests():
    """The cluster's own processes are no workers of a pool."""
    EARLIER.clear()
    EARLIER.update(p.pid for p in psutil.Process().children())


def test_a_worker_process_killed_in_mid_run_changes_nothing(alone):
    killed = []

    def kill(result, done, total):
        # results may be told when the processes that made them are gone already
        alive = workers_of_this_process()
        if len(killed) < 2 and done >= (3, 7)[len(killed)] and alive:
            killed.append(alive[-1].pid)
            alive[-1].kill()

    assert essence(graded(workers=2, progress=kill)) == alone
    assert killed
    assert workers_of_this_process() == []


def poison(task, settings, *, may_die):
    """In place of ``grade_task``: one submission ends the process that grades it."""
    if task.student == "s03":
        os.kill(os.getpid(), signal.SIGKILL)
    return Result(student=task.student, assignment="small", status="graded", score=5.0)


def test_a_submission_that_kills_its_grader_fails_and_the_batch_goes_on(monkeypatch, assignment):
    monkeypatch.setattr(pool, "grade_task", poison)
    tasks = [pool.Task(student=f"s{i:02d}", data=None, seed=1) for i in range(7)]
    settings = pool.Settings(assignment=assignment, sandbox=False)
    done = pool.run_processes(tasks[0], tasks[1:], settings, workers=2)
    results = {r.student: r for r in done}
    assert len(results) == 7
    assert (results["s03"].status, results["s03"].score) == ("sandbox_error", None)
    assert "died each time" in results["s03"].reason
    assert all(r.score == 5.0 for name, r in results.items() if name != "s03")


def test_an_abandoned_run_leaves_no_process(assignment):
    tasks = [pool.Task(student=f"s{i}", data=None, seed=1) for i in range(9)]
    settings = pool.Settings(assignment=assignment)
    running = pool.run_processes(tasks[0], tasks[1:], settings, workers=2)
    assert next(running).student == "s0"  # the first one, alone
    next(running)
    patience = time.monotonic() + 15  # a process that has just been started may have no name yet
    while len(workers_of_this_process()) < 2 and time.monotonic() < patience:
        time.sleep(0.05)
    assert len(workers_of_this_process()) == 2
    running.close()
    assert workers_of_this_process() == []


def test_workers_end_when_their_parent_is_killed(tmp_path):
    program = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import classroom
from attn_course.grading import pool
from attn_course.exercises.assignment import load_assignment
if __name__ == "__main__":
    found = load_assignment(classroom.as_bytes(classroom.notebook()), "small")
    tasks = [pool.Task(student=str(i), data=None, seed=1) for i in range(5)]
    running = pool.run_processes(tasks[0], tasks[1:], pool.Settings(assignment=found), workers=1)
    next(running)
    print("graded", flush=True)
    time.sleep(60)
"""
    (tmp_path / "program.py").write_text(program)
    started = [sys.executable, tmp_path / "program.py"]
    parent = subprocess.Popen(started, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "graded\n"
    family = psutil.Process(parent.pid).children(recursive=True)
    assert len(family) >= 3  # the worker, bubblewrap, the zygote
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=15)
    assert alive == []


def test_no_scheduler_is_one_clear_line(monkeypatch):
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts and never answers
        port = silent.getsockname()[1]
        with pytest.raises(SandboxError, match="no dask scheduler answers") as caught:
            graded(scheduler=f"tcp://127.0.0.1:{port}")
    assert len(str(caught.value).splitlines()) == 1
    for address in (f"tcp://127.0.0.1:{port}", "nonsense://x"):
        with pytest.raises(SandboxError, match="no dask scheduler answers"):
            graded(scheduler=address)


def test_a_scheduler_without_workers_is_one_clear_line(monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr(cluster_module, "WORKER_SECONDS", 1)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=None) as empty,
        pytest.raises(SandboxError, match="has no worker after 1 s"),
    ):
        graded(scheduler=empty.scheduler_address)


@pytest.mark.parametrize("workers", [1, 2])
def test_fewer_than_one_worker_is_refused(workers):
    with pytest.raises(ValueError, match="workers: expected at least 1"):
        graded(workers=workers - 2)


def command(folder, *options, path=None):
    """The status of the command for a class of four, and what it prints."""
    classroom.course(folder, 4)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = classroom.started(folder, "--gradebook", "none", *options, path=path, **streams)
    out, said = process.communicate(timeout=200)
    return process.returncode, out, said


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_bubblewrap_grading_is_refused_with_the_fix(tmp_path, workers):
    status, _, said = command(tmp_path, "--workers", workers, path=str(tmp_path))
    assert (status, said.count("\n")) == (3, 1)
    for word in ("bubblewrap is not installed", "apt-get install bubblewrap", "--no-sandbox"):
        assert word in said
    assert classroom.lines(tmp_path) <= 1


def test_where_bubblewrap_cannot_make_namespaces_the_reason_is_told(tmp_path):
    fake = tmp_path / "bwrap"
    told = "No permissions to create a new namespace"
    fake.write_text(f"#!/bin/sh\necho 'bwrap: {told}' >&2\nexit 1\n")
    fake.chmod(0o755)
    status, _, said = command(tmp_path, path=f"{tmp_path}:/usr/bin:/bin")
    assert (status, said.count("\n")) == (3, 1)
    assert told in said
    assert "userns" in said


def test_no_sandbox_grades_and_says_so_on_every_result(tmp_path):
    options = ("--no-sandbox", "--json", "-", "--feedback", "pages")
    status, out, said = command(tmp_path, *options, path=str(tmp_path))
    assert status == 1, said
    assert "warning: --no-sandbox" in said
    found = json.loads(out)["submissions"]
    assert [one["sandboxed"] for one in found] == [False] * 4
    assert [one["score"] for one in found] == [5.0, 3.0, None, None]
    page = (tmp_path / "pages" / "s00" / "small.html").read_text()
    assert "without a sandbox" in page
    until = time.monotonic() + 60  # one that was still starting ends when it has started
    while (left := open_jails(tmp_path)) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []


def open_jails(folder):
    """Those that run without bubblewrap, started in a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):  # another run's, which is just ending
            ours = "zygote.py" in " ".join(process.info["cmdline"] or [])
            found += [process] * (ours and process.cwd() == str(folder))
    return found


def test_a_solution_that_fails_its_own_tests_grades_nobody():
    wrong = {**classroom.SOLUTIONS, "double": "def double(x):\n    return 3 * x"}
    done = []
    settings = {"notebook": classroom.as_bytes(classroom.notebook(wrong)), "slug": classroom.SLUG}
    settings["progress"] = lambda result, *counts: done.append(result.student)
    for count in (1, 2):
        with pytest.raises(AssignmentError, match="double-values"):
            grade_class(classroom.handed(4), workers=count, **settings)
    assert done == []


def test_two_threads_of_one_process_do_not_mix(alone, assignment):
    """A dask worker may run two tasks in one process."""
    settings = pool.Settings(assignment=assignment, limits=LIMITS)
    tasks = [pool.Task(student=h.student, data=h.data, seed=SEED) for h in classroom.handed(COUNT)]
    with concurrent.futures.ThreadPoolExecutor(2) as two:
        results = list(two.map(lambda task: pool.grade_task(task, settings), tasks))
    assert essence(results) == alone
