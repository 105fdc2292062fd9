"""The trusted end of the jail: start bubblewrap, fork submissions in it; needs no torch itself."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from attn_course.exercises.sealed import OPEN_PARTS
from attn_course.grading import mounts
from attn_course.grading.errors import SandboxError

PACKAGE = Path(__file__).resolve().parent.parent
JAIL_FILES = (  # side by side in the jail
    *sorted((PACKAGE / "grading" / "jail").glob("*.py")),
    *(PACKAGE / "exercises" / name for name in ("cells.py", "sealed.py", "shortcuts.py")),
)
INSIDE_CODE, INSIDE_PACKAGE, HOME = "/opt/attn/jail", "/opt/attn/package", "/jail"
START_SECONDS = 180.0  # three on a quiet machine


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one submission may use; the wall clock is kept by the trusted side."""

    wall_seconds: float = 60.0
    call_seconds: float = 10.0
    verdict_seconds: float | None = None  # of which the above are a part; None for twice and more
    cpu_seconds: int = 60
    memory_bytes: int = 2 << 30
    file_bytes: int = 16 << 20
    home_megabytes: int = 64
    processes: int = 64


@functools.cache
def still_open(forbidden: tuple[str, ...]) -> tuple[str, ...]:
    """The forbidden names that must be taken out of a process: parts of the course that no
    submission has are closed already, and a process of its own costs a run of all cells."""
    opened = {part.partition("/")[0].removesuffix(".py") for part in OPEN_PARTS}
    course = [name for name in forbidden if name.startswith("import attn_course.")]
    closed = {name for name in course if name.split(".")[1] not in opened}
    return tuple(name for name in forbidden if name not in closed)


def sandbox_problem() -> str | None:
    """Why the jail cannot start on this machine, with the fix; None when it can."""
    if not sys.platform.startswith("linux"):
        return f"the jail needs Linux namespaces, this is {sys.platform}: grade inside a Linux VM"
    if shutil.which("bwrap") is None:
        return (
            "bubblewrap is not installed: apt-get install bubblewrap (or your system's package); "
            "--no-sandbox grades without it, at your own risk"
        )
    probe = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    tried = subprocess.run(probe, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["no message"])[-1]
        return (
            f"bubblewrap cannot make user namespaces here ({reason}): allow them "
            "(sysctl kernel.unprivileged_userns_clone=1; on Ubuntu 24.04 also "
            "kernel.apparmor_restrict_unprivileged_userns=0)"
        )
    return None


def _bubblewrap(private: Iterable[Path]) -> list[str]:
    """The bubblewrap command up to the program; what it mounts is all that a submission sees."""
    command = mounts.system_mounts(private)
    frozen = ["/", "/dev"]  # bubblewrap builds these in memory, and every submission meets them
    for installed in {Path(sysconfig.get_path(n)) / "attn_course" for n in ("purelib", "platlib")}:
        if installed.is_dir():  # installed from a wheel: the answers would lie in site-packages
            command += ["--tmpfs", str(installed)]
            frozen.append(str(installed))
    for file in JAIL_FILES:
        command += ["--ro-bind", str(file), f"{INSIDE_CODE}/{file.name}"]
    for part in OPEN_PARTS:
        command += ["--ro-bind", str(PACKAGE / part), f"{INSIDE_PACKAGE}/attn_course/{part}"]
    command += ["--tmpfs", HOME, "--chdir", HOME, "--clearenv"]
    for name, value in mounts.environment(HOME, INSIDE_PACKAGE).items():
        command += ["--setenv", name, value]
    for place in frozen:
        command += ["--remount-ro", place]
    return command


@functools.cache
def _starter() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(1, "jail")


def _started(
    command: list[str], descriptor: int, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """The first process of a jail, which bubblewrap ends with the *thread* that started it: one
    that lives as long as this process."""
    null, pipe = subprocess.DEVNULL, subprocess.PIPE

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, stdin=null, stdout=null, stderr=pipe, pass_fds=[descriptor], env=environment
        )

    if threading.current_thread() is threading.main_thread():
        return start()
    return _starter().submit(start).result()


class Zygote(contextlib.AbstractContextManager["Zygote"]):
    """One jail with numpy, torch, matplotlib and IPython imported, ready to fork.

    Args:
        sandbox: False runs the same processes without bubblewrap; only for machines where it
            cannot start, and only when the instructor asked for it.
        private: files and folders of the course that lie elsewhere than the current folder.
        modules: imported as well, as each submission would have to.
    """

    def __init__(
        self, *, sandbox: bool = True, private: Iterable[Path] = (), modules: Sequence[str] = ()
    ) -> None:
        self.sandbox, self.private, self.modules = sandbox, tuple(private), modules
        self._scratch: Path | None = None
        self._start()

    def _start(self) -> None:
        self._owner = os.getpid()  # a fork of this process may use the jail, and not end it
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = str(theirs.fileno())
        if self.sandbox:
            command = _bubblewrap(self.private)
            command += [sys.executable, f"{INSIDE_CODE}/zygote.py", number, "confined"]
            # nothing of ours: the first process of the jail has what bubblewrap was started with
            environment = {"PATH": os.environ.get("PATH", os.defpath)}
        else:
            command, environment = self._open_command(number)
        with theirs:
            try:
                self._process = _started([*command, *self.modules], theirs.fileno(), environment)
            except OSError as error:
                control.close()
                raise SandboxError(sandbox_problem() or str(error)) from None
        control.settimeout(START_SECONDS)
        self._control = control
        try:
            ready = control.recv(64)
        except OSError:
            ready = b""
        if ready != b"ready":
            said = self.close()
            problem = sandbox_problem() if self.sandbox else None
            raise SandboxError(problem or f"the jail did not start: {said or 'no message'}")

    def _open_command(self, number: str) -> tuple[list[str], dict[str, str]]:
        """Without bubblewrap: the same zygote on a scratch copy of the open parts."""
        import tempfile

        scratch = self._scratch = Path(tempfile.mkdtemp(prefix="attn-open-"))
        inside = scratch / "package" / "attn_course"
        for folder in (scratch / "home", scratch / "jail", inside / "probes"):
            folder.mkdir(parents=True)
        for file in JAIL_FILES:
            shutil.copy(file, scratch / "jail")
        for part in OPEN_PARTS:
            copy = shutil.copytree if (PACKAGE / part).is_dir() else shutil.copy
            copy(PACKAGE / part, inside / part)
        environment = mounts.environment(str(scratch / "home"), str(scratch / "package"))
        return [sys.executable, str(scratch / "jail" / "zygote.py"), number, "open"], environment

    def spawn(
        self, limits: Limits, forbidden: Sequence[str] = ()
    ) -> tuple[socket.socket, socket.socket]:
        """Fork a submission whose process lacks some library calls from its beginning.

        Returns:
            The socket for calls, and the one that holds its life.
        """
        order = {"limits": dataclasses.asdict(limits), "confined": self.sandbox}
        message = json.dumps({**order, "forbidden": list(forbidden)}).encode()
        ours, theirs = socket.socketpair()
        life, their_life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptors = [theirs.fileno(), their_life.fileno()]
        with theirs, their_life:
            try:
                socket.send_fds(self._control, [message], descriptors)
            except OSError:  # the jail has died
                self.close()
                self._start()
                socket.send_fds(self._control, [message], descriptors)
        return ours, life

    def close(self) -> str:
        """End the jail and everything in it."""
        self._control.close()
        if self._owner != os.getpid():
            return ""
        self._process.kill()
        said = b""
        with contextlib.suppress(ValueError):  # it has been read before
            said = self._process.communicate()[1]
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        return (said.decode(errors="replace").strip().splitlines() or [""])[-1]

    def __exit__(self, *args: object) -> None:
        self.close()
