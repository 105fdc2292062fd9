"""The read-only system that every jail sees, as arguments of bubblewrap; needs no torch."""

import os
import sys
import sysconfig
from pathlib import Path

MATPLOTLIB = "/tmp/matplotlib"


def python_roots() -> list[Path]:
    """Folders of this interpreter and its packages, none inside another."""
    roots = {Path(sys.prefix), Path(sys.base_prefix)}
    roots |= {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    roots = {root.resolve() for root in roots if root.exists()}
    return sorted(r for r in roots if not any(o != r and r.is_relative_to(o) for o in roots))


def system_mounts() -> list[str]:
    """Bubblewrap with new namespaces, no network, and the system and this Python read-only."""
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--tmpfs", "/tmp"]  # before anything that may lie below it, as a checkout may
    roots = [root for root in python_roots() if not root.is_relative_to("/usr")]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/") / name
        if path.is_symlink():
            command += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            command += ["--ro-bind", str(path), str(path)]
    for name in ("/etc/ld.so.cache", "/etc/fonts", "/etc/localtime"):
        command += ["--ro-bind-try", name, name]
    for root in roots:
        command += ["--ro-bind", str(root), str(root)]
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
        "TRITON_INTERPRET": "1",
        "TRITON_CACHE_DIR": f"{home}/.triton",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
