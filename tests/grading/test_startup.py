"""How the program starts and ends."""

import subprocess
import sys

import pytest


def said(program, *, status=0):
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
def test_the_programs_quick_end_loses_no_output_and_no_status(work, status):
    lines = said(PROGRAM.format(work=work), status=status)
    assert [len(lines[0]), *lines[1:]] == [300_000, "last"]


def test_the_program_waits_for_threads_and_tells_of_its_failures():
    work = "threading.Timer(0.3, print, ['thread']).start()\n    sys.exit(2)"
    assert said(PROGRAM.format(work=work), status=2)[1:] == ["thread", "last"]
    broken = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work="raise RuntimeError('seen')")],
        capture_output=True,
        text=True,
    )
    assert broken.returncode == 1
    assert "RuntimeError: seen" in broken.stderr


def test_a_reader_that_goes_away_ends_the_program_as_python_does():
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work="sys.stdout.flush()")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=60) != 0
