"""A submission in the jail, seen from the trusted side: its cells run, then it is called.

Every wait has a deadline, and every way in which a submission can die ends in an error that says
how it died.
"""

import contextlib
import dataclasses
import functools
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attn_course.grading.callbacks import call_back, packed
from attn_course.grading.errors import (
    CannotCross,
    StudentTimeout,
    SubmissionLost,
    said,
    student_error,
)
from attn_course.grading.jail import wire
from attn_course.grading.jail.children import number_in_proc
from attn_course.grading.remote import RemoteObject
from attn_course.grading.sandbox import Limits, Zygote

MAX_CALLBACKS = 100_000
MAX_SESSION_BYTES = 2 << 30  # all that one submission may send to the trusted side
EXIT_SECONDS = 1.0  # from hanging up to having exited
REPORT_SECONDS = 10.0  # for the zygote's word on how the submission ended


def touched_kib(number: int) -> int:
    """KiB of pages that a process used since they were last marked, code of libraries left out.

    Of a file that is mapped read-only those count that were written to: it may have been writable.
    The kernel says so to whoever made the jail; 0 where it does not.
    """
    total, file_only, dirty = 0, False, 0
    with contextlib.suppress(OSError), open(f"/proc/{number}/smaps") as file:
        for line in file:
            name, kib = line.split()[:2]
            if "-" in name:  # a range of addresses, and what is mapped there
                file_only, dirty = "/" in line and "w" not in kib, 0
            elif name in ("Shared_Dirty:", "Private_Dirty:"):
                dirty += int(kib)
            elif name == "Referenced:":
                total += min(int(kib), dirty) if file_only else int(kib)
    return total


class Session(contextlib.AbstractContextManager["Session"]):
    """One process of a submission: its cells run, then what they defined is called.

    Args:
        zygote: the jail to fork from.
        cells: ``{"id", "source"}`` of each cell, in order.
        limits: wall clock and resources.
        seed: of the random numbers that the submission draws itself; known to it.
        forbidden: library calls that are taken out of its process before the cells run.
        believed: whether what only its own process can report counts.
    """

    def __init__(
        self,
        zygote: Zygote,
        cells: Sequence[Mapping[str, str]],
        *,
        limits: Limits,
        seed: int = 0,
        forbidden: Sequence[str] = (),
        believed: bool = True,
    ) -> None:
        self.limits, self.believed = limits, believed
        self.bytes_left = MAX_SESSION_BYTES
        self.deadline = time.monotonic() + limits.wall_seconds
        self.ended: dict[str, Any] | None = None  # the zygote's report
        self.lost: str | None = None  # why it cannot be called any more
        self.mutated = False  # whether some call has written into its arguments
        self.nan: str | None = None  # what a helper's call gave that is NaN, in words
        self._hung_up = False  # it lived on when its connection had been closed
        self._connection: socket.socket | None
        self._connection, self._life = zygote.spawn(limits, forbidden)
        request = {"op": "cells", "cells": [dict(cell) for cell in cells], "seed": seed}
        report: Any = None
        try:
            report = self._exchange(request, limits.wall_seconds, "the notebook's own cells")
        except SubmissionLost:
            raise
        except CannotCross as error:
            raise self._lost(f"its cells are too large for the jail: {error}") from None
        except Exception:  # an honest worker reports what a cell raises, it does not raise it
            pass
        report = report if type(report) is dict else {}
        self.errors, names = report.get("errors"), report.get("names")
        if type(self.errors) is not dict or type(names) is not list:
            raise self._lost("the jail answered garbage after running the cells")
        self.names = frozenset(name for name in names if type(name) is str)

    @property
    def alive(self) -> bool:
        """Whether the worker can still be called."""
        return self._connection is not None

    def call(self, request: dict[str, Any], hold: wire.Hold | None = None) -> Any:
        """One request within the per-call budget; see ``jail/worker.py`` for the operations."""
        seconds = min(self.limits.call_seconds, self.deadline - time.monotonic())
        return self._exchange(request, seconds, "the call", hold)

    def _exchange(
        self, request: dict[str, Any], seconds: float, what: str, hold: wire.Hold | None = None
    ) -> Any:
        """Send a request, answer the callbacks that it leads to, and return what it gives."""
        until = time.monotonic() + max(0.0, seconds)
        callbacks: list[Callable[..., Any]] = []

        def keep(value: object) -> dict[str, Any]:
            if hold is not None and (node := hold(value)) is not None:
                return node
            if callable(value):
                callbacks.append(value)
                return {"$": "callback", "id": len(callbacks) - 1}
            raise wire.WireError(f"a {type(value).__name__} cannot be given to a submission")

        try:
            frame = wire.pack(request, keep)
        except wire.WireError as error:  # the conversation has not begun, and can go on
            raise CannotCross(str(error)) from None
        with self._failing(what, seconds):
            for _ in range(MAX_CALLBACKS):
                reply = self._round_trip(frame, until)
                if "callback" not in reply:
                    break
                frame = packed(call_back(callbacks, reply), keep)
            else:
                raise wire.WireError("too many callbacks")
            if "exc" not in reply:
                if "ok" not in reply:
                    raise wire.WireError("reply without a result")
                self.mutated = self.mutated or (self.believed and bool(reply.get("changed")))
                self.nan = self.nan or said(reply.get("nan"), 200) or None
        if "exc" in reply:  # raised outside the block above, which takes an OSError for a dead jail
            raise student_error(reply["exc"])
        return reply["ok"]

    def _round_trip(self, frame: bytes, until: float) -> dict[str, Any]:
        """Send one message and wait for one."""
        connection = self._connection
        if connection is None:
            raise SubmissionLost("the submission's process has ended")

        def wait() -> None:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)

        wait()
        with contextlib.suppress(BrokenPipeError):  # what it said before it hung up can be read
            connection.sendall(frame)
        try:
            reply = wire.receive(connection, self._resolve, wait=wait, count=self._count)
        except ConnectionResetError:  # told once, and before what it had said
            reply = wire.receive(connection, self._resolve, wait=wait, count=self._count)
        if type(reply) is not dict:
            raise wire.WireError("reply is not a mapping")
        if "failed" in reply:
            raise self._lost(f"the jail could not begin: {said(reply['failed'], 1000)}")
        return reply

    @contextlib.contextmanager
    def _failing(self, what: str, seconds: float) -> Iterator[None]:
        """Turn what goes wrong in a conversation into how the submission was lost."""
        try:
            yield
        except TimeoutError:
            text = f"{what} took longer than {max(0.0, seconds):.3g} s"
            raise self._lost(text, StudentTimeout) from None
        except (EOFError, OSError, wire.WireError) as error:
            raise self._died(error) from None
        except SubmissionLost:
            raise
        except BaseException:  # the conversation is cut in its middle: nothing can follow
            self.end()
            self.lost = self.lost or "a call was broken off"
            raise

    def _count(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise wire.WireError(f"more than {MAX_SESSION_BYTES >> 20} MiB in one submission")

    def _resolve(self, node: dict[str, Any]) -> object:
        number, kind, name = node.get("id"), node.get("kind"), node.get("type")
        if node["$"] != "object" or type(number) is not int or type(name) is not str:
            raise wire.WireError("malformed handle")
        return RemoteObject(self, number, kind=str(kind), type_name=name[:80])

    def memory(self, *, reset: bool = False) -> dict[str, int]:
        """Memory of the worker in KiB, read from outside: nothing in it can move these numbers.

        ``VmRSS`` is resident and ``VmHWM`` its peak, ``RssFile`` the part of libraries;
        ``touched`` is what was used of all other pages, whenever they were taken.
        """
        if self._connection is None:
            raise SubmissionLost("the submission's process has ended")
        with contextlib.suppress(OSError):  # the zygote is gone, and its report waits
            self._life.send(b"r" if reset else b"m")
        found = self._heard()
        if not {"VmRSS", "VmHWM", "RssFile", "touched"} <= found.keys():
            self.ended = found if "exit" in found else None
            raise self._died(EOFError())
        return {key: int(value) for key, value in found.items()}

    def _heard(self, seconds: float = REPORT_SECONDS) -> dict[str, Any]:
        """The next word of the zygote, {} when it has none.

        A life that is closed while a word of ours is on its way resets the connection. The
        error comes before what it had said, and once: the report is still there to be read.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._life.settimeout(left)
            try:
                word, descriptors, _, _ = socket.recv_fds(self._life, 4096, 1)
                found = json.loads(word) if word else {}
                for process in descriptors:
                    found["touched"] = touched_kib(number_in_proc(process))
                    os.close(process)
            except ConnectionResetError:
                continue
            except (OSError, ValueError):
                break
            return found if type(found) is dict else {}
        return {}

    def _cause(self, error: Exception) -> str:
        ended = self.ended or {}
        code = ended.get("exit")
        if isinstance(error, wire.WireError):
            return f"the jail answered garbage: {error}"
        if code == -9 and float(ended.get("cpu", 0)) >= self.limits.cpu_seconds:
            return f"the submission used more than {self.limits.cpu_seconds} s of CPU"
        if ended.get("flooded"):
            return f"the submission had more than {self.limits.processes} threads"
        if code is None:
            return "the submission's process ended, and nothing is known of how"
        if self._hung_up:
            return "the submission closed its connection to the grader"
        if isinstance(code, int) and code < 0:
            return f"the submission's process was ended by signal {-code}"
        return f"the submission's process ended by itself (exit status {code})"

    def _died(self, error: Exception) -> SubmissionLost:
        """End what is left of a submission that broke off; the exception that says how it ended."""
        self.end(EXIT_SECONDS if isinstance(error, EOFError | OSError) else 0.0)
        return self._lost(self._cause(error))

    def _lost(self, reason: str, kind: type[SubmissionLost] = SubmissionLost) -> SubmissionLost:
        self.end()
        self.lost = reason
        return kind(reason)

    def end(self, patience: float = 0.0) -> None:
        """Kill the submission and everything that it started; safe to repeat."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.close()
        if self.ended is None and patience:
            self.ended = self._heard(patience) or None
        self._hung_up = self.ended is None
        with contextlib.suppress(OSError):  # the zygote is gone, and its report waits
            self._life.send(b"k")
        self.ended = self.ended or self._heard() or None
        self._life.close()

    def __exit__(self, *args: object) -> None:
        self.end()


class Processes(contextlib.AbstractContextManager["Processes"]):
    """The processes of one submission, each without some library calls; made when a test needs it.

    In the plain one its code has run already, and could have kept or patched anything.
    """

    def __init__(
        self, zygote: Zygote, cells: Sequence[Mapping[str, str]], *, limits: Limits, **settings: Any
    ) -> None:
        self.deadline = time.monotonic() + limits.wall_seconds
        self._start = functools.partial(Session, zygote, cells, **settings)
        self._limits = limits
        self._running: dict[tuple[str, ...], Session] = {}
        self._problem: str | None = None  # why one could not be had

    @property
    def seconds_left(self) -> float:
        """Wall clock left to the submission."""
        return self.deadline - time.monotonic()

    def without(self, *forbidden: str) -> Session:
        """The process that lacks these calls."""
        if forbidden not in self._running:
            limits = dataclasses.replace(self._limits, wall_seconds=max(0.0, self.seconds_left))
            try:
                self._running[forbidden] = self._start(limits=limits, forbidden=forbidden)
            except Exception as error:  # the test that asks for it cannot be finished
                self._problem = str(error) or type(error).__name__
                raise
        found = self._running[forbidden] = self._running.pop(forbidden)  # the latest comes last
        return found

    def why_lost(self) -> str | None:
        """Why one of them cannot be called any more; None when all can."""
        reasons = (one.lost for one in self._running.values() if one.lost)
        return next(reasons, self._problem)

    def forget_dead(self) -> None:
        """Between tests: the plain one and the latest other one stay, if they are alive.

        The rest is made again when it is needed: each may hold as much memory as the first.
        """
        self._problem = None
        latest = [key for key in self._running if key][-1:]
        for key, one in list(self._running.items()):
            if (key and key not in latest) or not one.alive:
                one.end()
                del self._running[key]

    def __exit__(self, *args: object) -> None:
        for one in self._running.values():
            one.end()
