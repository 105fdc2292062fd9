"""``attn-course check``: what a learner sees for every state that a notebook can be in."""

import hashlib
import json
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.grading.check import check_notebook, read_parts
from attn_course.probes.failure import ProbeFailure, Report

CLEAN = "from attn_course.probes.failure import *\nfrom attn_course.probes.failure import Report\n"


def cell(grade_id, source, *, points=0, solution=False, edited=False, kind="code"):
    meta = {
        "cell_type": kind,
        "grade": bool(points),
        "grade_id": grade_id,
        "locked": not solution,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    if points:
        meta["points"] = points
    parts = [source, kind, str(bool(points)), str(solution), str(not solution), grade_id]
    if points:
        parts.append(str(float(points)))
    meta["checksum"] = hashlib.md5("".join(parts).encode()).hexdigest()
    make = new_code_cell if kind == "code" else new_markdown_cell
    return make(source + ("\n# edited" if edited else ""), metadata={"nbgrader": meta})


def write(path, cells, tests=None):
    notebook = new_notebook(cells=cells)
    if tests is not None:
        notebook.metadata["attn_course"] = {"slug": "x", "solutions": ["f", "g"], "tests": tests}
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """One notebook with a cell in every state, run once."""
    folder = tmp_path_factory.mktemp("check")
    wrong = (
        "raise ProbeFailure(Report(function='f', symptom='off [red]by[/red] 2', probe='f(1)', "
        "cause='because', seed=3))"
    )
    stub = "raise NotStarted(NotStartedReport('f', 'still to do'))"
    cells = [
        cell("setup", CLEAN, edited=True),
        new_code_cell("# the learner's own scratch cell\n1 / 0"),
        cell("f", "def f(x):\n    return x", solution=True),
        cell("f-right", "assert f(1) == 1", points=2),
        cell("f-wrong", wrong, points=3),
        cell("f-stub", stub, points=1),
        cell("f-half", "print('one got through')\n0.5", points=1),
        cell("f-text", "'not a number'", points=1),
        cell("f-edited", "assert False", points=1, edited=True),
        cell("f-error", "{}['key']", points=1),
        cell("f-stderr", "import sys; print('loud', file=sys.stderr)", points=1),
        cell("g", "def g(x:\n    return x", solution=True),
        cell("g-one", "g(1)", points=1),
        cell("g-one", "pass", points=1),
        cell("report", "text", points=4, solution=True, kind="markdown"),
        cell("f-slow", "while True: pass", points=1),
        cell("f-after", "assert True", points=1),
    ]
    tests = {"f-lost": 2, **{c.metadata.nbgrader.grade_id: 1 for c in cells[3:11] if c.metadata}}
    path = write(folder / "42_all.ipynb", cells, tests)
    before = path.read_bytes()
    result = check_notebook(path, timeout=6)
    assert path.read_bytes() == before
    return result


def test_every_state_is_told_apart(everything):
    states = {test.grade_id: test.state for test in everything.tests}
    assert states == {
        "f-lost": "missing",
        "f-right": "ok",
        "f-wrong": "wrong",
        "f-stub": "not started",
        "f-half": "partial",
        "f-text": "ok",
        "f-edited": "edited",
        "f-error": "error",
        "f-stderr": "error",
        "g-one": "error",
        "f-slow": "timeout",
        "f-after": "not run",
    }
    assert not everything.passed
    assert everything.score == 3.5
    assert everything.points == 16


def test_messages_say_what_to_do(everything):
    told = {test.grade_id: test for test in everything.tests}
    assert told["f-wrong"].parts["symptom"] == "off [red]by[/red] 2"
    assert told["f-wrong"].parts["likely cause"] == "because"
    assert told["f-wrong"].parts["seed"].startswith("3 ")
    assert told["f-half"].message == "one got through"
    assert "KeyError" in told["f-error"].message
    assert "SyntaxError" in told["g-one"].message
    assert "stderr: loud" in told["f-stderr"].message
    assert "fresh copy" in told["f-edited"].message
    assert "longer than 6 s" in told["f-slow"].message
    notes = " | ".join(everything.notes)
    assert "'g-one' is there more than once" in notes
    assert "locked cell 'setup' is not as released" in notes
    assert everything.unread == {"report": 4.0}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.ipynb", None, "no such file"),
        ("text.py", "x = 1", "not a notebook"),
        ("broken.ipynb", "{", "not a readable notebook"),
        ("old.ipynb", "[]", "not a readable notebook"),
        ("binary.ipynb", b"\xff\xfe\x00", "not a readable notebook"),
        ("cells.ipynb", '{"cells": 3, "metadata": {}, "nbformat": 4}', "not a readable notebook"),
        ("other.ipynb", json.dumps(new_notebook()), "no test cells"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_status_two(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 2
    assert words in done.output
    assert done.output.count("\n") == 1


def test_a_folder_and_a_dead_kernel_are_told(tmp_path):
    (tmp_path / "folder.ipynb").mkdir()
    assert check_notebook(tmp_path / "folder.ipynb").problem == "not a file"
    cells = [
        cell("f-dead", "import os; os._exit(1)", points=1),
        cell("f-after", "assert True", points=1),
    ]
    result = check_notebook(write(tmp_path / "dead.ipynb", cells), timeout=30)
    assert [t.state for t in result.tests] == ["error", "not run"]
    assert "kernel died" in result.notes[0]


def test_a_missing_kernel_is_told(tmp_path, monkeypatch):
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    def none(self, name):
        raise NoSuchKernel(name)

    monkeypatch.setattr(KernelSpecManager, "get_kernel_spec", none)
    path = write(tmp_path / "a.ipynb", [cell("f-one", "assert True", points=1)])
    assert "no Python kernel" in check_notebook(path).problem


def test_a_right_notebook_exits_with_zero_and_json_is_plain(tmp_path):
    path = write(tmp_path / "a.ipynb", [cell("f-one", "assert True", points=2)], {"f-one": 2})
    done = CliRunner().invoke(app, ["check", "--json", str(path)])
    assert done.exit_code == 0
    (found,) = json.loads(done.output)
    assert found["passed"] is True
    assert found["functions"][0]["tests"][0]["state"] == "ok"
    assert found["notes"] == [f"the cell {n!r} for your answer is missing" for n in "fg"]


def test_the_table_shows_text_as_it_is(tmp_path):
    source = "raise ProbeFailure(Report(function='f', symptom='[bold]x[/bold] [0, 1]'))"
    cells = [cell("setup", CLEAN), cell("f-one", source, points=2)]
    done = CliRunner().invoke(app, ["check", str(write(tmp_path / "a.ipynb", cells))])
    assert done.exit_code == 1
    assert "symptom: [bold]x[/bold] [0, 1]" in done.output
    assert "0/2" in done.output
    assert "0 of 2 points" in done.output


def test_parts_survive_line_breaks():
    long = " ".join(f"word{i}" for i in range(60))
    report = Report(function="f", symptom=long, probe="f(x)", cause=long, seed=1)
    parts = read_parts(str(ProbeFailure(report)))
    assert parts["symptom"] == long
    assert parts["likely cause"] == long
    assert parts["probe"] == "f(x)"


def test_the_command_line_imports_nothing_heavy():
    code = (
        "import sys, attn_course.cli; "
        "print([m for m in ('torch', 'nbgrader', 'nbclient', 'rich.table', 'jupytext')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named_with_its_extra(monkeypatch, tmp_path):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "nbclient" else real(name)
    )
    done = CliRunner().invoke(app, ["check", "a.ipynb"])
    assert done.exit_code == 2
    assert "pip install 'attn-course[exercises]'" in done.output
