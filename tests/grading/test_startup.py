"""How the program starts and ends."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import classroom
import pytest


def said(program: str, *, status: int = 0) -> list[str]:
    """Lines that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout.splitlines()


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
    options |= {"tests_only": False}
    options |= dict.fromkeys(nothing)
    with pytest.raises(ZeroDivisionError):
        command.grade(tmp_path, slug=classroom.SLUG, root=tmp_path, **options)
    assert order == ["jail", "read"]
