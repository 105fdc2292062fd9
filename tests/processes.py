"""Python in a process of its own."""

import subprocess
import sys
from typing import Any


def python(
    *arguments: object, succeeds: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    """This interpreter with these arguments, and what it prints."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0 or not succeeds, done.stdout + done.stderr
    return done
