"""One submission in the jail, seen from the trusted side: its cells run once, then it is called.

Every wait has a deadline, and every way in which a submission can die ends in an error that says
how it died.
"""

import contextlib
import dataclasses
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attn_course.grading.errors import (
    CannotCross,
    StudentTimeout,
    SubmissionLost,
    student_error,
)
from attn_course.grading.jail import wire
from attn_course.grading.sandbox import Limits, Zygote

MAX_CALLBACKS = 100_000
MAX_CALLBACK_BYTES = 1 << 30  # what a callback may take while it runs
MAX_SESSION_BYTES = 2 << 30  # all that one submission may send to the trusted side
REPORT_SECONDS = 10.0  # for the keeper's word on how the submission ended


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


def _derivative(value: Any, given: list[Any], grads: Any) -> list[Any]:
    """What a callback's result passes back to its arguments: a row for each that needs one.

    Raises:
        RuntimeError: the gradients do not fit the result.
        TypeError: they are no list of tensors.
    """
    import torch

    leaves = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    pairs = [(y, g) for y, g in zip(wire.floating([value]), grads, strict=True) if y.requires_grad]
    found: tuple[Any, ...] = (None,) * len(leaves)
    if pairs and leaves:
        results, weights = zip(*pairs, strict=True)
        found = torch.autograd.grad(results, leaves, weights, allow_unused=True)
    filled = zip(found, leaves, strict=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in filled]


class Session:
    """One submission in the jail: run its cells, then call what they defined.

    Args:
        zygote: the jail to fork from.
        cells: ``{"id", "source"}`` of each cell, in order.
        limits: wall clock and resources.
        seed: of the random numbers that the submission draws itself; known to it.
        forbidden: library calls that are taken out of its process before the cells run.

    Raises:
        StudentTimeout: the cells did not end in time.
        SandboxError: the jail cannot be started again.
        SubmissionLost: the jail died or answered garbage while they ran.
    """

    def __init__(
        self,
        zygote: Zygote,
        cells: Sequence[Mapping[str, str]],
        *,
        limits: Limits,
        seed: int = 0,
        forbidden: Sequence[str] = (),
    ) -> None:
        self.zygote, self.limits, self.seed = zygote, limits, seed
        self.forbidden = tuple(forbidden)
        self._restricted: dict[tuple[str, ...], Session] = {}
        self.bytes_left = MAX_SESSION_BYTES
        self.deadline = time.monotonic() + limits.wall_seconds
        self.cells = [dict(cell) for cell in cells]
        self.errors: dict[str, Any] = {}
        self.names: frozenset[str] = frozenset()
        self.output = ""
        self.ended: dict[str, Any] | None = None  # the keeper's report
        self.lost: str | None = None  # why it cannot be called any more
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
        self.ended = self.lost = None
        self._ahead = bytearray()
        self._connection, self._life = self.zygote.spawn(self.limits, self.forbidden)
        request = {"op": "cells", "cells": self.cells, "seed": self.seed}
        what = "the notebook's own cells"
        try:
            report = self._exchange(request, seconds=self.seconds_left, what=what)
        except SubmissionLost:
            raise
        except CannotCross as error:
            self.end()
            raise self._lost(f"its cells are too large for the jail: {error}") from None
        except Exception:  # an honest worker reports what a cell raises, it does not raise it
            report = None
        report = report if type(report) is dict else {}
        errors, names = report.get("errors"), report.get("names")
        if type(errors) is not dict or type(names) is not list:
            self.end()
            raise self._lost("the jail answered garbage after running the cells")
        self.errors = errors
        self.names = frozenset(name for name in names if type(name) is str)
        self.output = str(report.get("output", ""))[: self.limits.output_characters]

    def restart(self) -> None:
        """After a death: the cells once more in a fresh process, in the time that is left."""
        self.end()
        self.restarts += 1
        self._boot()

    def restricted(self, forbidden: Sequence[str]) -> "Session":
        """The same submission in a process of its own that lacks ``forbidden``; made when needed.

        In this one its code has run already, and could have kept or patched anything.

        Raises:
            StudentTimeout: the cells did not end in time.
            SubmissionLost: the jail died or answered garbage while they ran.
        """
        key = tuple(forbidden)
        if key == self.forbidden:
            return self
        if key not in self._restricted:
            limits = dataclasses.replace(self.limits, wall_seconds=max(0.0, self.seconds_left))
            self._restricted[key] = Session(
                self.zygote, self.cells, limits=limits, seed=self.seed, forbidden=key
            )
        found = self._restricted[key] = self._restricted.pop(key)  # the latest comes last
        return found

    def why_lost(self) -> str | None:
        """Why one of its processes cannot be called any more; None when all can."""
        reasons = (one.lost for one in (self, *self._restricted.values()) if one.lost)
        return next(reasons, None)

    def forget_dead(self) -> None:
        """Between tests: the restricted process of the last one stays, if it is alive.

        Others are made again when they are needed: each may hold as much memory as this one.
        """
        latest = list(self._restricted)[-1:]
        for key, one in list(self._restricted.items()):
            if key not in latest or not one.alive:
                one.end()
                del self._restricted[key]

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

        try:
            frame = wire.pack(request, keep)
        except wire.WireError as error:  # the conversation has not begun, and can go on
            raise CannotCross(str(error)) from None
        try:
            wire.send_frame(connection, frame, wait)
            for _ in range(MAX_CALLBACKS):
                reply = wire.receive(
                    connection, self._resolve, wait=wait, count=self._count, ahead=self._ahead
                )
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
            text = f"{what} took longer than {max(0.0, seconds):.3g} s"
            raise self._lost(text, StudentTimeout) from None
        except (EOFError, OSError, wire.WireError) as error:
            raise self._died(error) from None
        except BaseException:  # the conversation is cut in its middle: nothing can follow
            self.end()
            self.lost = self.lost or "a call was broken off"
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
                value = callbacks[number](*args, **kwargs)
                if "grads" in reply:
                    return {"ok": _derivative(value, given, reply["grads"])}
            answer = {"ok": value}
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
        """Resident (``rss``) and peak (``hwm``) memory of the worker in KiB, read from outside.

        Raises:
            SubmissionLost: it has ended.
        """
        if self._connection is None:
            raise SubmissionLost("the submission's process has ended")
        with contextlib.suppress(OSError):  # the keeper is gone, and its report waits
            self._life.send(b"r" if reset else b"m")
        found = self._heard()
        if "exit" in found or not (reset or {"rss", "hwm"} <= found.keys()):
            self.ended = found if "exit" in found else None
            raise self._died(EOFError())
        return {key: int(value) for key, value in found.items()}

    def _heard(self) -> dict[str, Any]:
        """The next word of the keeper, {} when it has none.

        A keeper that ends while a word of ours is on its way to it resets the connection. The
        error comes before what it had said, and once: the report is still there to be read.
        """
        until = time.monotonic() + REPORT_SECONDS
        while (left := until - time.monotonic()) > 0:
            self._life.settimeout(left)
            try:
                word = self._life.recv(4096)
                found = json.loads(word) if word else {}
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
        if ended.get("told"):
            return "the submission closed its connection to the grader"
        if isinstance(code, int) and code < 0:
            return f"the submission's process was ended by signal {-code}"
        if code is None:
            return "the submission's process ended, and nothing is known of how"
        return f"the submission's process ended by itself (exit status {code})"

    def _died(self, error: Exception) -> SubmissionLost:
        """End what is left of a submission that broke off; the exception that says how it ended."""
        said = self._last_words() if isinstance(error, OSError) else ""
        self.end(b"e" if isinstance(error, EOFError | OSError) else b"k")
        return self._lost(said or self._cause(error))

    def _last_words(self) -> str:
        """What the jail's own code said when it could not begin; it has hung up already."""
        said = b""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.settimeout(1.0)
                said = self._connection.recv(1004)
        text = said[4:].decode(errors="replace") if said.startswith(b"FAIL") else ""
        return f"the jail could not begin: {text}" if text else ""

    def _lost(self, reason: str, kind: type[SubmissionLost] = SubmissionLost) -> SubmissionLost:
        self.lost = reason
        return kind(reason)

    def end(self, word: bytes = b"k") -> None:
        """Kill the submission and everything that it started; safe to repeat.

        Args:
            word: to the keeper: ``b"k"`` kills at once, ``b"e"`` lets a process that seems to be
                ending finish, so that its own exit status is reported.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.close()
        with contextlib.suppress(OSError):  # the keeper is gone, and its report waits
            self._life.send(word)
        while self.ended is None and (said := self._heard()):
            self.ended = said if "exit" in said else None
        self._life.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *args: object) -> None:
        for one in self._restricted.values():
            one.end()
        self.end()
