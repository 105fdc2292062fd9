"""The short start of a run changes nothing but its time."""

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import classroom
import pytest

from attn_course.grading import startup


def said(program: str, *, status: int = 0) -> list[str]:
    """Lines that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout.splitlines()


TABLES_FIRST = """
import sys
from attn_course.grading.gradebook import GradebookWriter
from attn_course.exercises.assignment import load_assignment
import classroom
found = load_assignment(classroom.as_bytes(classroom.notebook()), "small")
with GradebookWriter(f"sqlite:///{sys.path[0]}/gradebook.db", found) as book:
    mine = book._api
"""


def test_a_gradebook_needs_neither_nbgraders_programs_nor_the_notebook_tools(
    tmp_path: Path,
) -> None:
    here = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(Path(__file__).parent)!r}]"
    heavy = "'nbformat', 'jsonschema', 'jupyter_server', 'nbconvert', 'torch', 'setuptools'"
    program = f"{here}\n{TABLES_FIRST}\nprint([m for m in ({heavy}) if m in sys.modules])"
    assert said(program) == ["[]"]
    assert (tmp_path / "gradebook.db").stat().st_size > 0


@pytest.mark.parametrize("first", ["from nbgrader.apps import NbGraderAPI", "import nbgrader"])
def test_nbgrader_is_whole_for_whoever_imports_it_afterwards(tmp_path: Path, first: str) -> None:
    here = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(Path(__file__).parent)!r}]"
    program = f"""{here}
{TABLES_FIRST}
print([name for name in sys.modules if name.startswith("nbgrader")])
{first}
import importlib.metadata, nbgrader.api, nbgrader.apps.api, nbgrader.utils
print(nbgrader.__version__ == importlib.metadata.version("nbgrader"))
print(nbgrader.apps.api.Gradebook is nbgrader.api.Gradebook, nbgrader.api is mine)
print(callable(nbgrader._jupyter_server_extension_points), callable(nbgrader.utils.parse_utc))
with nbgrader.api.Gradebook(f"sqlite:///{{sys.path[0]}}/gradebook.db") as book:
    print(sorted(cell.name for cell in book.find_notebook("small", "small").grade_cells))
print(mine.utils.parse_utc("2026-03-01 12:30 UTC"))
"""
    assert said(program) == [
        "[]",
        "True",
        "True False",
        "True True",
        "['double-values', 'report', 'squares-share']",
        "2026-03-01 12:30:00",
    ]


def test_where_nbgrader_is_imported_already_the_gradebook_uses_that() -> None:
    from nbgrader import api

    assert startup.nbgrader_api() is api


def test_a_module_that_is_put_off_runs_once_and_when_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "put_off_here.py").write_text("print('runs')\nvalue = 1\nother = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = startup.put_off("put_off_here")
    monkeypatch.setitem(sys.modules, "put_off_here", found)
    import put_off_here

    assert capsys.readouterr().out == ""
    assert (put_off_here.value, found.other) == (1, 2)
    assert not hasattr(found, "absent")
    assert capsys.readouterr().out == "runs\n"
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        startup.put_off("no_such_module_here")


def test_the_instructors_notebook_is_the_same_without_the_grammar_of_addresses() -> None:
    program = """
import sys, hashlib
from pathlib import Path
from attn_course.grading.command import instructor_notebook
root = Path({root!r})
if {before}:
    import nbformat, jupytext
found = instructor_notebook("00_warm_up", root, None)
print(hashlib.sha256(found).hexdigest(), "rfc3987_syntax" in sys.modules)
import rfc3987_syntax
"""
    root = str(Path(__file__).resolve().parents[2])
    alone, whole = (said(program.format(root=root, before=before)) for before in (False, True))
    assert [line.split()[0] for line in alone] == [line.split()[0] for line in whole]
    assert (alone[0].split()[1], whole[0].split()[1]) == ("False", "True")


def test_collections_go_on_after_the_imports() -> None:
    with startup.no_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with startup.no_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


PROGRAM = """
import atexit, sys, threading
from attn_course import cli
atexit.register(print, "last")
def app():
    print("x" * 300_000)
    {work}
cli.app = app
cli.main()
"""


@pytest.mark.parametrize(("work", "status"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("pass", 0)])
def test_the_programs_quick_end_loses_no_output_and_no_status(work: str, status: int) -> None:
    lines = said(PROGRAM.format(work=work), status=status)
    assert [len(lines[0]), *lines[1:]] == [300_000, "last"]


def test_the_program_waits_for_threads_and_tells_of_its_failures() -> None:
    work = "threading.Timer(0.3, print, ['thread']).start()\n    sys.exit(2)"
    assert said(PROGRAM.format(work=work), status=2)[1:] == ["thread", "last"]
    broken = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work="raise RuntimeError('seen')")],
        capture_output=True,
        text=True,
    )
    assert broken.returncode == 1
    assert "RuntimeError: seen" in broken.stderr


def test_a_reader_that_goes_away_ends_the_program_as_python_does() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work="sys.stdout.flush()")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=60) != 0


def test_the_jail_starts_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attn_course.grading import command

    order: list[str] = []
    monkeypatch.setattr(command, "_start_jail", lambda **_: order.append("jail"))
    monkeypatch.setattr(command, "collect", lambda *_: order.append("read") or [])
    monkeypatch.setattr(command, "instructor_notebook", lambda *_: 1 / 0)
    nothing = ("source", "scheduler", "json_path", "junit", "gradescope", "csv_path", "feedback")
    options: dict[str, Any] = {"gradebook": "none", "csv_form": "plain", "workers": 1, "seed": 1}
    options |= {"timeout": 60, "call_timeout": 10, "sandbox": True, "fresh": False}
    options |= dict.fromkeys(nothing)
    with pytest.raises(ZeroDivisionError):
        command.grade(tmp_path, slug=classroom.SLUG, root=tmp_path, **options)
    assert order == ["jail", "read"]
