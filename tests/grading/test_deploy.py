"""What ``deploy/`` has, used as book/deploy.md says."""

import json
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import nbformat
import pytest
import sets
import yaml

DEPLOY = sets.ROOT / "deploy"
SLUG = "00_warm_up"
PATH = {"PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"], "/usr/sbin"])}
HOSTILE = """def stable_softmax(scores, dim=-1):
    import pathlib
    for place in pathlib.Path("/").glob("**/results"):
        (place / "results.json").write_text('{"score": 100}')
    return scores"""
# the files of the hub's machine are changed in overlays, which are gone with the mount namespace
MACHINE = """set -e
mount -t tmpfs tmpfs /srv
for place in etc root home; do
  mkdir -p /srv/over/$place /srv/work/$place
  mount -t overlay overlay \
    -o lowerdir=/$place,upperdir=/srv/over/$place,workdir=/srv/work/$place /$place
done
chmod 700 /srv/over /srv/work
chmod 711 /root # Python may be installed there
ip link set lo up
exec "$@"
"""


def handed_in(**answers) -> str:
    release = nbformat.read(sets.ROOT / f"exercises/{SLUG}/{SLUG}.ipynb", as_version=4)
    return nbformat.writes(sets.filled(release, sets.answers(SLUG) | answers))


@pytest.fixture(scope="module")
def autograder(tmp_path_factory) -> Path:
    """Gradescope's folder, as its image has it."""
    root = tmp_path_factory.mktemp("autograder")
    pack = runpy.run_path(str(DEPLOY / "gradescope/pack.py"))["pack"]
    pack(SLUG, root / "autograder.zip")
    with zipfile.ZipFile(root / "autograder.zip") as archive:
        assert {"setup.sh", "run_autograder"} <= set(archive.namelist())
        assert archive.getinfo("run_autograder").external_attr >> 16 & 0o111
        archive.extractall(root / "source")
    (root / "results").mkdir()
    return root


def graded(root: Path, notebook: str, **environment) -> tuple[int, dict | None, str]:
    """Status of ``run_autograder``, what it wrote for Gradescope, and its log."""
    shutil.rmtree(root / "submission", ignore_errors=True)
    (root / "submission").mkdir()
    (root / "submission" / "mine.ipynb").write_text(notebook)
    results = root / "results/results.json"
    results.unlink(missing_ok=True)
    done = subprocess.run(
        ["bash", root / "source/run_autograder"],
        env={**os.environ, **PATH, "AUTOGRADER": str(root), **environment},
        capture_output=True,
        text=True,
    )
    found = json.loads(results.read_text()) if results.exists() else None
    return done.returncode, found, done.stdout + done.stderr


def test_gradescope_gets_marks(autograder):
    status, found, said = graded(autograder, handed_in())
    assert status == 0, said
    assert found["score"] == sum(test["max_score"] for test in found["tests"]) > 30
    assert all(test["score"] == test["max_score"] for test in found["tests"])


def test_gradescope_gets_no_mark_from_the_notebook_itself(autograder):
    status, found, said = graded(autograder, handed_in(stable_softmax=HOSTILE))
    assert status == 0, said
    scores = {test["name"]: test["score"] for test in found["tests"]}
    assert not any(score for name, score in scores.items() if name.startswith("stable_softmax"))
    assert 0 < found["score"] == sum(scores.values())


def test_gradescope_grades_nothing_without_a_jail(autograder, tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{PATH['PATH']}"}
    status, found, said = graded(autograder, handed_in(), **path)
    assert (status, found) == (3, None)
    assert "bubblewrap cannot make user namespaces here" in said
    (autograder / "source/options").write_text("--no-sandbox\n")
    status, found, said = graded(autograder, handed_in(), **path)
    (autograder / "source/options").write_text("\n")
    assert status == 0, said
    assert found["output"] == "Graded without a sandbox."


@pytest.mark.parametrize("right", [True, False])
def test_classroom_shows_what_check_says(tmp_path, right):
    text = (DEPLOY / "github-classroom/attention.yml").read_text()
    step = yaml.safe_load(text)["jobs"]["check"]["steps"][-1]["run"]
    answers = {} if right else {"stable_softmax": "def stable_softmax(scores, dim=-1):\n    pass"}
    (tmp_path / f"{SLUG}.ipynb").write_text(handed_in(**answers))
    summary = tmp_path / "summary.md"
    folders = {"RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(summary)}
    environment = {**os.environ, **PATH, **folders}
    done = subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, env=environment)
    assert (done.returncode == 0) is right
    lines = summary.read_text().splitlines()
    assert all(line.startswith("    ") for line in lines)
    assert any("stable_softmax" in line for line in lines)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_term_with_two_students_on_a_hub(tmp_path):
    """Release, fetch, answer, submit, collect, grade, feedback: through the hub, as browsers do."""
    if os.geteuid():
        pytest.skip("needs root: each student is a user of the system")
    names = ("jupyterhub", "configurable-http-proxy", "unshare", "useradd", "ip")
    missing = [name for name in names if not shutil.which(name, path=PATH["PATH"])]
    assert not missing, f"{missing} not found: run 'make hub'"
    program = Path(__file__).with_name("term_on_a_hub.py")
    unshare = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*unshare, "sh", "-c", MACHINE, "machine", sys.executable, program],
        env={**os.environ, **PATH, "PYTHONPATH": f"{sets.ROOT}:{sets.ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    ada, bo = found["marks"]["ada"], found["marks"]["bo"]
    assert ada["status"] == bo["status"] == "graded"
    assert all(one["sandboxed"] for one in (ada, bo))
    lost = [test["grade_id"] for test in ada["tests"] if test["score"] != test["max"]]
    assert lost == ["report"], "the written answer is as it was released"
    assert "no max subtraction" in {test["misconception"] for test in bo["tests"]}
    assert "no max subtraction" in found["pages"]["bo"]
    assert "no max subtraction" not in found["pages"]["ada"]
    # each sees only their own: not the server, the files or the submission of the other
    assert found["of_bo"] == 403
    outbound = "/srv/nbgrader/exchange/attn-course/outbound/"
    assert [path for path in found["seen"] if path.startswith(outbound)]
    assert not [path for path in found["seen"] if not path.startswith(outbound)]
