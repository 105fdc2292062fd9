"""The read-only system that every jail sees, as arguments of bubblewrap; needs no torch."""

import json
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


def system_mounts(*, tmp_bytes: int | None = None) -> list[str]:
    """Bubblewrap with new namespaces, no network, and the system and this Python read-only.

    Args:
        tmp_bytes: size of /tmp. It is mounted before anything that may lie below it, such as a
            checkout in /tmp.
    """
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session"]
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += [] if tmp_bytes is None else ["--size", str(tmp_bytes)]
    command += ["--tmpfs", "/tmp"]
    for path in font_lists():
        command += ["--ro-bind-try", str(path), f"{MATPLOTLIB}/{path.name}"]
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


def font_lists() -> list[Path]:
    """The lists of fonts that matplotlib has made for this user; a jail takes 0.5 s to make one.

    One that names a font in a home folder is left out: the jail has no such font, and need not
    know what the folder is called.
    """
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("MPLCONFIGDIR") or Path(user) / "matplotlib")
    return [path for path in sorted(folder.glob("fontlist-*.json")) if _names_known_fonts(path)]


def _names_known_fonts(path: Path) -> bool:
    try:
        found = json.loads(path.read_bytes())
        names = [font["fname"] for kind in ("ttflist", "afmlist") for font in found[kind]]
        # matplotlib's own have no folder in front
        return all(not os.path.isabs(name) or _in_jail(Path(name)) for name in names)
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _in_jail(path: Path) -> bool:
    return ".." not in path.parts and any(
        path.is_relative_to(root) for root in (Path("/usr"), *python_roots())
    )


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
