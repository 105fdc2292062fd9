"""The trusted end of the jail: start bubblewrap, fork a submission, call into it, end it.

A :class:`Zygote` is one bubblewrap with the heavy libraries imported. A :class:`Session` is one
submission in it: its cells run once, then functions are called by name. Every wait has a deadline.
"""

import contextlib
import dataclasses
import json
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_course.grading import mounts
from attn_course.grading.errors import SandboxError, StudentTimeout, SubmissionLost, student_error
from attn_course.grading.jail import wire

PACKAGE = Path(__file__).resolve().parent.parent
JAIL_CODE = Path(__file__).resolve().parent / "jail"
INSIDE_CODE, INSIDE_PACKAGE, HOME = "/opt/attn/jail", "/opt/attn/package", "/jail"
OPEN_PARTS = (
    *("__init__.py", "py.typed", "_checks.py", "masks.py", "data", "viz"),
    *("probes/student.py", "probes/values.py", "probes/oracle.py"),
)
START_SECONDS = 60.0
MAX_CALLBACKS = 100_000
MAX_CALLBACK_BYTES = 1 << 30  # what a callback may take while it runs
MAX_SESSION_BYTES = 2 << 30  # all that one submission may send to the trusted side


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What one submission may use; the wall clock is kept by the trusted side."""

    wall_seconds: float = 60.0
    call_seconds: float = 10.0
    cpu_seconds: int = 60
    memory_bytes: int = 2 << 30
    file_bytes: int = 16 << 20
    home_megabytes: int = 64
    processes: int = 64
    output_characters: int = 100_000


def sandbox_problem() -> str | None:
    """Why the jail cannot start on this machine, with the fix; None when it can."""
    if not sys.platform.startswith("linux"):
        return f"the jail needs Linux namespaces, this is {sys.platform}: grade inside a Linux VM"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed: apt-get install bubblewrap (or your system's package)"
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


def _bubblewrap() -> list[str]:
    """The bubblewrap command up to the program; what it mounts is all that a submission sees."""
    command = mounts.system_mounts()
    frozen = ["/", "/dev"]  # bubblewrap builds these in memory, and every submission meets them
    for installed in {Path(sysconfig.get_path(n)) / "attn_course" for n in ("purelib", "platlib")}:
        if installed.is_dir():  # installed from a wheel: the answers would lie in site-packages
            command += ["--tmpfs", str(installed)]
            frozen.append(str(installed))
    command += ["--ro-bind", str(JAIL_CODE), INSIDE_CODE]
    for part in OPEN_PARTS:
        if (PACKAGE / part).exists():
            inside = f"{INSIDE_PACKAGE}/attn_course/{part}"
            command += ["--ro-bind", str(PACKAGE / part), inside]
    sealed_probes = f"{INSIDE_PACKAGE}/attn_course/probes/__init__.py"
    command += ["--ro-bind", str(JAIL_CODE / "sealed_probes.py"), sealed_probes]
    command += ["--tmpfs", HOME, "--chdir", HOME, "--clearenv"]
    for name, value in mounts.environment(HOME, f"{INSIDE_PACKAGE}").items():
        command += ["--setenv", name, value]
    for place in frozen:
        command += ["--remount-ro", place]
    return command


class Zygote:
    """One jail with numpy, torch, matplotlib and IPython imported, ready to fork.

    Args:
        sandbox: False runs the same processes without bubblewrap; only for machines where it
            cannot start, and only when the instructor asked for it.

    Raises:
        SandboxError: the jail does not start; the text says what to do.
    """

    def __init__(self, *, sandbox: bool = True) -> None:
        self.sandbox = sandbox
        self.restarts = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None
        self._start()

    def _start(self) -> None:
        self.restarts += 1
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = str(theirs.fileno())
        if self.sandbox:
            command = _bubblewrap()
            command += [sys.executable, f"{INSIDE_CODE}/zygote.py", number]
            environment = None
        else:
            command, environment = self._open_command(number)
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        )
        theirs.close()
        control.settimeout(START_SECONDS)
        self._control = control
        try:
            ready = control.recv(64)
        except OSError:
            ready = b""
        if ready != b"ready":
            said = self._end()
            problem = sandbox_problem() if self.sandbox else None
            raise SandboxError(problem or f"the jail did not start: {said or 'no message'}")

    def _open_command(self, number: str) -> tuple[list[str], dict[str, str]]:
        """Without bubblewrap: the same zygote on a scratch copy of the open parts."""
        import tempfile

        scratch = self._scratch = Path(tempfile.mkdtemp(prefix="attn-open-"))
        (scratch / "package").mkdir()
        (scratch / "home").mkdir()
        inside = scratch / "package" / "attn_course"
        (inside / "probes").mkdir(parents=True)
        shutil.copy(JAIL_CODE / "sealed_probes.py", inside / "probes" / "__init__.py")
        for part in OPEN_PARTS:
            source = PACKAGE / part
            if source.is_dir():
                shutil.copytree(source, inside / part)
            elif source.exists():
                shutil.copy(source, inside / part)
        environment = mounts.environment(str(scratch / "home"), str(scratch / "package"))
        return [sys.executable, str(JAIL_CODE / "zygote.py"), number], environment

    def spawn(self, limits: Limits) -> tuple[socket.socket, socket.socket]:
        """Fork a submission: the socket for calls, and the one that holds its life."""
        try:
            return self._spawn(limits)
        except OSError:
            self._end()
            self._start()
            return self._spawn(limits)

    def _spawn(self, limits: Limits) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        life, their_life = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = {"limits": dataclasses.asdict(limits), "confined": self.sandbox}
        try:
            socket.send_fds(
                self._control, [json.dumps(order).encode()], [theirs.fileno(), their_life.fileno()]
            )
        except OSError:
            ours.close()
            life.close()
            raise
        finally:
            theirs.close()
            their_life.close()
        return ours, life

    def _end(self) -> str:
        """Stop the jail; the last line that it wrote to standard error."""
        self._control.close()
        process, said = self._process, ""
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError, ValueError):
                text = process.stderr.read() if process.stderr else b""
                said = (text.decode(errors="replace").strip().splitlines() or [""])[-1]
            process.wait()
            if process.stderr:
                process.stderr.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        return said

    def close(self) -> None:
        """End the jail and everything in it."""
        self._end()

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


@contextlib.contextmanager
def _bounded_memory() -> Iterator[None]:
    """A callback computes with what a submission chose, and two columns broadcast to gigabytes."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    limit = mapped + MAX_CALLBACK_BYTES
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Session:
    """One submission in the jail: run its cells, then call what they defined.

    Args:
        zygote: the jail to fork from.
        cells: ``{"id", "source"}`` of each cell, in order.
        limits: wall clock and resources.
        seed: of the random numbers that the submission draws itself; known to it.

    Raises:
        StudentTimeout: the cells did not end in time.
        SubmissionLost: the jail died or answered garbage while they ran.
    """

    def __init__(
        self,
        zygote: Zygote,
        cells: Sequence[Mapping[str, str]],
        *,
        limits: Limits,
        seed: int = 0,
    ) -> None:
        self.zygote, self.limits, self.seed = zygote, limits, seed
        self.bytes_left = MAX_SESSION_BYTES
        self.deadline = time.monotonic() + limits.wall_seconds
        self.cells = [dict(cell) for cell in cells]
        self.errors: dict[str, Any] = {}
        self.names: frozenset[str] = frozenset()
        self.output = ""
        self.ended: dict[str, Any] | None = None
        self.restarts = 0
        self.mutated = False  # whether some call has written into its arguments
        self._connection: socket.socket | None = None
        self._boot()

    @property
    def alive(self) -> bool:
        """Whether the worker can still be called."""
        return self._connection is not None

    @property
    def seconds_left(self) -> float:
        """Wall clock left to this submission."""
        return self.deadline - time.monotonic()

    def _boot(self) -> None:
        self._connection, self._life = self.zygote.spawn(self.limits)
        request = {"op": "cells", "cells": self.cells, "seed": self.seed}
        what = "the notebook's own cells"
        try:
            report = self._exchange(request, seconds=self.seconds_left, what=what)
        except SubmissionLost:
            raise
        except Exception:  # an honest worker reports what a cell raises, it does not raise it
            report = None
        report = report if type(report) is dict else {}
        errors, names = report.get("errors"), report.get("names")
        if type(errors) is not dict or type(names) is not list:
            self.end()
            raise SubmissionLost("the jail answered garbage after running the cells")
        self.errors = errors
        self.names = frozenset(name for name in names if type(name) is str)
        self.output = str(report.get("output", ""))[: self.limits.output_characters]

    def restart(self) -> None:
        """After a death: the cells once more in a fresh process, in the time that is left."""
        self.end()
        self.restarts += 1
        self._boot()

    def call(self, request: dict[str, Any], hold: wire.Hold | None = None) -> Any:
        """One request within the per-call budget; see ``jail/worker.py`` for the operations."""
        seconds = min(self.limits.call_seconds, self.seconds_left)
        return self._exchange(request, seconds=seconds, what="the call", hold=hold)

    def _exchange(
        self,
        request: dict[str, Any],
        *,
        seconds: float,
        what: str,
        hold: wire.Hold | None = None,
    ) -> Any:
        connection = self._connection
        if connection is None:
            raise SubmissionLost("the submission's process has ended")
        until = time.monotonic() + max(0.0, seconds)

        def wait() -> None:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)

        callbacks: list[Callable[..., Any]] = []

        def keep(value: object) -> dict[str, Any]:
            if hold is not None and (node := hold(value)) is not None:
                return node
            if callable(value):
                callbacks.append(value)
                return {"$": "callback", "id": len(callbacks) - 1}
            raise wire.WireError(f"a {type(value).__name__} cannot be given to a submission")

        frame = wire.pack(request, keep)  # raises before the conversation begins
        try:
            wire.send_frame(connection, frame, wait)
            for _ in range(MAX_CALLBACKS):
                reply = wire.receive(connection, self._resolve, wait=wait, count=self._count)
                if type(reply) is not dict:
                    raise wire.WireError("reply is not a mapping")
                if "callback" not in reply:
                    break
                answer = self._packed(self._call_back(callbacks, reply), keep)
                wire.send_frame(connection, answer, wait)
            else:
                raise wire.WireError("too many callbacks")
            if "exc" not in reply:
                self._accept(reply)
        except TimeoutError:
            self.end()
            raise StudentTimeout(f"{what} took longer than {max(0.0, seconds):.3g} s") from None
        except (EOFError, OSError, wire.WireError) as error:
            self.end()
            raise SubmissionLost(self._cause(error)) from None
        except BaseException:  # the conversation is cut in its middle: nothing can follow
            self.end()
            raise
        if "exc" in reply:  # raised outside the block above, which takes an OSError for a dead jail
            raise student_error(reply["exc"])
        return reply["ok"]

    def _count(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise wire.WireError(f"more than {MAX_SESSION_BYTES >> 20} MiB in one submission")

    @staticmethod
    def _packed(answer: dict[str, Any], keep: wire.Hold) -> wire.Buffers:
        """The frame for what a callback gave; what cannot cross is an error of the callback."""
        try:
            return wire.pack(answer, keep)
        except (wire.WireError, TypeError, MemoryError) as error:
            text = f"the callback's result cannot cross: {error}"
            return wire.pack({"exc": {"type": "TypeError", "text": text}})

    @staticmethod
    def _call_back(callbacks: list[Callable[..., Any]], reply: dict[str, Any]) -> dict[str, Any]:
        number, args, kwargs = reply["callback"], reply.get("args"), reply.get("kwargs")
        if type(number) is not int or not 0 <= number < len(callbacks):
            raise wire.WireError("unknown callback")
        if type(args) is not list or type(kwargs) is not dict:
            raise wire.WireError("malformed callback")
        given = wire.arrays([args, kwargs])
        before = [wire.raw(x) for x in given]
        try:
            with _bounded_memory():
                answer = {"ok": callbacks[number](*args, **kwargs)}
            if any(wire.raw(x) != old for x, old in zip(given, before, strict=True)):
                answer["written"] = given
            return answer
        except Exception as error:
            return {"exc": {"type": type(error).__name__, "text": str(error)[:2000]}}

    def _accept(self, reply: dict[str, Any]) -> None:
        if "ok" not in reply:
            raise wire.WireError("reply without a result")
        self.mutated = self.mutated or bool(reply.get("changed"))

    def _resolve(self, node: dict[str, Any]) -> object:
        from attn_course.grading.remote import RemoteObject

        number, kind, name = node.get("id"), node.get("kind"), node.get("type")
        if node["$"] != "object" or type(number) is not int or type(name) is not str:
            raise wire.WireError("malformed handle")
        return RemoteObject(self, number, kind=str(kind), type_name=name[:80])

    def memory(self, *, reset: bool = False) -> dict[str, int]:
        """Resident (``rss``) and peak (``hwm``) memory of the worker in KiB, read from outside."""
        if self._connection is None:
            raise SubmissionLost("the submission's process has ended")
        self._life.settimeout(5)
        self._life.send(b"r" if reset else b"m")
        found = json.loads(self._life.recv(4096))
        return {key: int(value) for key, value in found.items()}

    def _cause(self, error: Exception) -> str:
        ended = self.ended or {}
        code = ended.get("exit")
        if isinstance(error, wire.WireError):
            return f"the jail answered garbage: {error}"
        if code == -9 and float(ended.get("cpu", 0)) >= self.limits.cpu_seconds:
            return f"the submission used more than {self.limits.cpu_seconds} s of CPU"
        if isinstance(code, int) and code < 0:
            return f"the submission's process was ended by signal {-code}"
        return f"the submission's process ended by itself (exit status {code})"

    def end(self) -> None:
        """Kill the submission and everything that it started; safe to repeat."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.close()
        with contextlib.suppress(OSError, ValueError):
            self._life.settimeout(5)
            self._life.send(b"k")
        with contextlib.suppress(OSError, ValueError):
            while True:
                report = json.loads(self._life.recv(4096))
                if "exit" in report:
                    self.ended = report
                    break
        self._life.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *args: object) -> None:
        self.end()
