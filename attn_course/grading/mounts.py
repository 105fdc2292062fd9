"""The read-only system that every jail sees, as arguments of bubblewrap; needs no torch."""

import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from attn_course.grading.errors import SandboxError

MATPLOTLIB = "/tmp/matplotlib"
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64")  # at the root, where they are not below /usr
COURSE_MARKS = ("solutions", "source", "submitted", "gradebook.db", "nbgrader_config.py")


def python_roots() -> list[Path]:
    """Folders of this interpreter and its packages, none inside another.

    A folder that is reached by a link, as ``.venv`` may be, is there under both of its names.
    """
    roots = {sys.prefix, sys.base_prefix}
    roots |= {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    named = {Path(root) for root in roots if os.path.exists(root)}
    named |= {root.resolve() for root in named}
    return sorted(r for r in named if not any(o != r and r.is_relative_to(o) for o in named))


def hidden_courses(private: Iterable[Path] = ()) -> list[Path]:
    """Folders with tests or marks, ``private`` and here, below one that every submission sees."""
    here, checkout = Path.cwd(), Path(__file__).resolve().parents[2]
    courses = [place if place.is_dir() else place.parent for place in private]
    courses += [here] if any((here / mark).exists() for mark in COURSE_MARKS) else []
    courses += [checkout] if (checkout / "solutions").is_dir() else []
    found = set()
    roots = [*python_roots(), Path("/usr"), *(Path("/") / name for name in SYSTEM)]
    for course in (place.resolve() for place in courses):
        for root in (root.resolve() for root in roots):
            if course == root:
                raise SandboxError(
                    f"every submission could read {course}: it holds the course, and Python itself "
                    f"as well; make the environment in a folder below it ({course / '.venv'}), or "
                    "move the course"
                )
            if course.is_relative_to(root):
                found.add(course)
    return sorted(found)


def system_mounts(private: Iterable[Path] = ()) -> list[str]:
    """Bubblewrap with new namespaces, no network, and the system and this Python read-only."""
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--tmpfs", "/tmp"]  # before anything that may lie below it, as a checkout may
    roots, hidden = python_roots(), hidden_courses(private)
    command += ["--ro-bind", "/usr", "/usr"]
    for name in SYSTEM:
        path = Path("/") / name
        if path.is_symlink():
            command += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            command += ["--ro-bind", str(path), str(path)]
    for name in ("/etc/ld.so.cache", "/etc/fonts", "/etc/localtime"):
        command += ["--ro-bind-try", name, name]
    for root in (root for root in roots if not root.is_relative_to("/usr")):
        command += ["--ro-bind", str(root), str(root)]
    for course in hidden:
        command += ["--tmpfs", str(course)]
        for root in (root for root in roots if root.is_relative_to(course)):
            command += ["--ro-bind", str(root), str(root)]
        command += ["--remount-ro", str(course)]
    return command


def environment(home: str, package: str) -> dict[str, str]:
    """Everything that the jail's processes find in ``os.environ``."""
    return {
        "HOME": home,
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": package,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": MATPLOTLIB,
        "IPYTHONDIR": f"{home}/.ipython",
        # A tensor has pages of its own and gives them back: what a call holds is seen from outside.
        **{"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072"},
        "TORCH_COMPILE_DISABLE": "1",  # there is no compiler: such an answer runs as written
        "TRITON_INTERPRET": "1",
        "TRITON_CACHE_DIR": f"{home}/.triton",
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
