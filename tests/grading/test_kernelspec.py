"""The jailed kernel works like any other, and its code reaches neither files nor network."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from attn_course.exercises.release import build_sources
from attn_course.exercises.source import read_exercise
from attn_course.grading import kernelspec
from attn_course.grading.jailed_kernel import shared_files
from attn_course.grading.sandbox import sandbox_problem

ROOT = Path(__file__).resolve().parents[2]
SLUG = "00_warm_up"
SECRET = "canary-" + "5d0c1b"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Jupyter's path to a prefix in which the kernelspec was installed."""
    assert sandbox_problem() is None
    prefix = tmp_path_factory.mktemp("prefix")
    folder = kernelspec.install(prefix=prefix)
    assert folder == prefix / "share/jupyter/kernels/attn-jailed"
    return prefix / "share/jupyter"


def run(cells, folder, installed, monkeypatch, timeout=60):
    """Execute cells through the jailed kernel; the outputs of each, as text."""
    monkeypatch.setenv("JUPYTER_PATH", str(installed))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    nbformat.write(notebook, folder / "work.ipynb")
    client = NotebookClient(
        notebook,
        kernel_name="attn-jailed",
        allow_errors=True,
        timeout=timeout,
        interrupt_on_timeout=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return ["".join(map(json.dumps, cell.outputs)) for cell in notebook.cells]


@pytest.fixture
def server():
    """A loopback server that counts who connects."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    seen, stop = [], threading.Event()

    def serve():
        while not stop.is_set():
            try:
                seen.append(listener.accept()[0])
            except TimeoutError:
                continue

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1], seen
    stop.set()
    thread.join()
    for connection in seen:
        connection.close()
    listener.close()


def outlived(before, patience=5.0):
    """Commands of the jail that were started since ``before`` and do not end by themselves."""
    until = time.monotonic() + patience
    while True:
        commands = []
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.pid not in before and process.status() != psutil.STATUS_ZOMBIE:
                    commands.append(" ".join(process.cmdline()))
        left = [c for c in commands if "bwrap" in c or "jailed_kernel" in c]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


def test_a_process_of_a_kernel_that_outlives_it_is_seen():
    """The check of the next test can fail: a jail that is still there is found."""
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    command = ["bwrap", "--ro-bind", "/", "/", "--die-with-parent", "sleep", "30"]
    with subprocess.Popen(command) as left:
        assert any("bwrap" in c for c in outlived(before, 0.2))
        left.kill()
    assert outlived(before) == []


def test_a_notebook_runs_and_its_code_is_shut_in(
    installed, tmp_path, tmp_path_factory, server, monkeypatch
):
    port, seen = server
    outside = tmp_path_factory.mktemp("outside") / "canary.txt"
    outside.write_text(SECRET)
    monkeypatch.setenv("ATTN_CANARY", SECRET)
    (tmp_path / "points.csv").write_text("1,2")
    before = {p.pid for p in psutil.Process().children(recursive=True)}  # other tests' jails
    # a student's file of this name must not be what starts the kernel outside the jail
    (tmp_path / "json.py").write_text(f"open({str(outside)!r}, 'w').write('stolen')")
    look = f"""
import os, pathlib
paths = [{str(outside)!r}, {str(ROOT / "solutions" / SLUG / "exercise.py")!r}, "/etc/passwd"]
found = []
for path in paths:
    try:
        found.append(pathlib.Path(path).read_text())
    except OSError:
        pass
found += [repr(dict(os.environ)), pathlib.Path("/proc/1/environ").read_text()]
print("read", found)
"""
    connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=2)"
    told = run(
        [
            "import torch, matplotlib.pyplot as plt\n"
            "from attn_course import reference\nfrom attn_course.probes import Probe\n"
            "from attn_course.probes.catalogue import load_catalogue\n"
            f"print(len(load_catalogue({SLUG!r}).misconceptions), 'known')",
            "plt.plot([1, 2]); plt.show()",
            "open('mine.txt', 'w').write('x'); print(open('points.csv').read())",
            look,
            connect,
            "open('points.csv', 'w')",
            "open('/new', 'w')",
            "import os; print('processes', sum(name.isdigit() for name in os.listdir('/proc')))",
            "while True: pass",
            "print(6 * 7)",
        ],
        tmp_path,
        installed,
        monkeypatch,
        timeout=25,
    )
    assert re.search(r'"text": "[1-9]\d+ known', told[0]), told[0]
    assert "image/png" in told[1]
    assert "1,2" in told[2]
    assert "read" in told[3]
    assert SECRET not in told[3]
    assert "BEGIN SOLUTION" not in told[3]
    assert "root:x:0" not in told[3]
    assert "ConnectionRefusedError" in told[4]
    assert not seen
    assert all("Errno 30" in text for text in told[5:7]), told[5:7]
    assert int(told[7].split("processes ")[1].split("\\")[0]) <= 4
    assert "42" in told[9], "an endless loop was not interrupted"
    assert outside.read_text() == SECRET
    assert outlived(before) == []
    assert not (tmp_path / "mine.txt").exists()


def test_only_a_students_own_folder_is_shared(tmp_path):
    (tmp_path / "work.ipynb").touch()
    (tmp_path / "data.csv").touch()
    (tmp_path / ".secret").touch()
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert [p.name for p in shared_files(tmp_path)] == ["data.csv", "work.ipynb"]
    (tmp_path / "gradebook.db").touch()
    assert shared_files(tmp_path) == []
    assert shared_files(Path.home()) == []


def test_install_and_remove_from_the_command_line(tmp_path):
    def command(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "attn_course.cli", "jailed-kernel", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    assert command("remove", "--prefix", str(tmp_path)).returncode == 2
    assert command("install", "--user", "--prefix", str(tmp_path)).returncode == 2
    done = command("install", "--prefix", str(tmp_path))
    assert done.returncode == 0, done.stderr
    spec = json.loads((tmp_path / "share/jupyter/kernels/attn-jailed/kernel.json").read_text())
    assert spec["argv"][1] == "-P"
    assert spec["interrupt_mode"] == "message"
    assert command("remove", "--prefix", str(tmp_path)).returncode == 0
    assert not (tmp_path / "share/jupyter/kernels/attn-jailed").exists()


@pytest.mark.nbgrader
def test_stock_nbgrader_grades_a_real_set_through_it(installed, tmp_path):
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    (tmp_path / "solutions").symlink_to(ROOT / "solutions")
    build_sources(tmp_path, [SLUG])
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
        "JUPYTER_PATH": str(installed),
        "OMP_NUM_THREADS": "1",
    }

    def nbgrader(*arguments):
        done = subprocess.run(
            ["nbgrader", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]

    nbgrader("generate_assignment", SLUG)
    release = nbformat.read(tmp_path / "release" / SLUG / f"{SLUG}.ipynb", as_version=4)
    solution = read_exercise(ROOT / "solutions" / SLUG / "exercise.py")
    right = {c["id"]: c.source for c in solution.cells}
    for cell in release.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = right[cell["id"]]
            if cell["id"] == "stable_softmax":
                cell.source = (
                    "import pathlib, os\n"
                    f"inside = not pathlib.Path({str(ROOT / 'pyproject.toml')!r}).exists()\n"
                    "def stable_softmax(scores, dim=-1):\n"
                    "    return scores.exp() / scores.exp().sum(dim, keepdim=True) if inside else 0"
                )
    place = tmp_path / "submitted/ada" / SLUG
    place.mkdir(parents=True)
    nbformat.write(release, place / f"{SLUG}.ipynb")
    nbgrader("autograde", SLUG, "--ExecutePreprocessor.kernel_name=attn-jailed")

    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        sheet = book.find_submission_notebook(SLUG, SLUG, "ada")
        scores = {g.name: (g.auto_score, g.max_score) for g in sheet.grades}
    lost = {name for name, (score, full) in scores.items() if score is not None and score < full}
    assert lost == {"stable_softmax-large_scores"}
    graded = (tmp_path / "autograded/ada" / SLUG / f"{SLUG}.ipynb").read_text()
    assert "likely cause" in graded, "the catalogue of misconceptions is not seen in the jail"
