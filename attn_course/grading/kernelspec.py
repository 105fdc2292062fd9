"""``attn-course jailed-kernel``: a Jupyter kernelspec that runs the kernel inside the jail.

For those who stay with stock ``nbgrader autograde``: a student's code then reaches neither files
nor network. It cures no more than that: the marks are still computed in the student's own process,
which can fake them. ``attn-course grade`` computes them outside.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from attn_course.grading.errors import SandboxError

NAME = "attn-jailed"


def spec() -> dict[str, Any]:
    """The contents of ``kernel.json`` for this Python.

    ``-P`` keeps the student's folder, in which Jupyter starts a kernel, off the import path.
    """
    start = [sys.executable, "-P", "-m", "attn_course.grading.jailed_kernel"]
    return {
        "argv": [*start, "{connection_file}"],
        "display_name": "Python 3 (jailed)",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"attn_course": {"jailed": True}},
    }


def install(*, user: bool = False, prefix: Path | None = None) -> Path:
    """Install the kernelspec.

    Args:
        user: into the user's Jupyter folder instead of this environment's.
        prefix: into ``prefix/share/jupyter`` instead.

    Returns:
        The kernelspec's folder.

    Raises:
        SandboxError: the jail cannot start on this machine; the text says what to do.
        ValueError: both places were given.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    from attn_course.grading.sandbox import sandbox_problem

    if user and prefix is not None:
        raise ValueError(f"expected --user or --prefix, got both (--prefix {prefix})")
    problem = sandbox_problem()
    if problem is not None:
        raise SandboxError(problem)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.json").write_text(json.dumps(spec(), indent=1) + "\n")
        place = None if user else str(prefix or sys.prefix)
        installed = KernelSpecManager().install_kernel_spec(
            folder, kernel_name=NAME, user=user, prefix=place
        )
    return Path(installed)


def remove(*, user: bool = False, prefix: Path | None = None) -> Path:
    """Remove what :func:`install` wrote with the same arguments.

    Returns:
        The folder that is gone.

    Raises:
        ValueError: it is not there.
    """
    from jupyter_core.paths import jupyter_data_dir

    base = Path(jupyter_data_dir()) if user else Path(prefix or sys.prefix) / "share" / "jupyter"
    folder = base / "kernels" / NAME
    if not (folder / "kernel.json").is_file():
        raise ValueError(f"expected a jailed kernel in {folder}, got none: nothing to remove")
    shutil.rmtree(folder)
    return folder
