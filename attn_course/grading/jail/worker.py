"""Runs one submission's cells, then answers calls from the trusted side until it is killed.

Everything here may be tampered with by the code it runs: it holds nothing worth taking, and its
answers are data that the trusted side checks.
"""

import builtins
import contextlib
import gc
import importlib
import io
import os
import random
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import cells
import crossing
import numpy as np
import torch
import wire
from sealed import ForbiddenShortcut, SealedError, SealedFinder

MAX_TEXT = 2000
SKIPPED = (ForbiddenShortcut, SealedError)


def warm_up(modules: Sequence[str]) -> None:
    """Import and touch what every submission needs, once, before the first fork."""
    import IPython.display  # noqa: F401
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot

    from attn_course.probes import student

    torch.set_num_threads(1)
    sys.meta_path.append(SealedFinder("attn_course"))  # what the jail does not have of the course
    for name in ("reference", "masks", "probes.watch"):  # set-up cells import the first two
        importlib.import_module(f"attn_course.{name}")
    x = torch.randn(2, 3, requires_grad=True)
    x.softmax(-1).sum().backward()
    torch.nn.Linear(3, 2)(x.detach())
    student.peak_memory(lambda y: y.exp().sum(), x)  # imports half of torch the first time
    cells.parse_cell("%matplotlib inline", "<cell>")
    for name in modules:
        with contextlib.suppress(Exception):  # it may be for those cells alone, outside
            importlib.import_module(name)
    seed(0)
    # What is here now is never garbage; a collection would write to every page that it looks at.
    gc.collect()
    gc.freeze()


class Worker:
    """The submission's namespace, and the objects that the trusted side holds handles of."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.names: dict[str, Any] = {}
        self.objects: dict[int, object] = {}

    def run_cells(self, given: list[dict[str, str]]) -> dict[str, Any]:
        """Run the cells in order; an error ends its own cell only."""
        self.names = cells.new_namespace()
        errors = {}
        for cell in given:
            try:
                cells.run_cell(cell["id"], cell["source"], self.names, SKIPPED)
            except BaseException as error:
                errors[cell["id"]] = describe(error)
        names = [name for name in self.names if type(name) is str]
        return {"errors": errors, "names": names}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request of the trusted side."""
        operation = request["op"]
        if operation == "cells":
            seed(request["seed"])
            return {"ok": self.run_cells(request["cells"])}
        target = self.target(request)
        if operation == "get":
            return {"ok": target}
        if operation == "next":
            try:
                return {"ok": [next(target)]}
            except StopIteration:
                return {"ok": []}
        if operation != "call":
            raise ValueError(f"unknown operation {operation!r}")
        args, kwargs = request["args"], request["kwargs"]
        if helper := request.get("helper"):
            target = _Helped(helper, target, request["options"])
        watched = wire.arrays([args, kwargs])
        before, noted = [wire.digest(x) for x in watched], wire.noted([args, kwargs])
        result = target(*args, **kwargs)
        changed = any(wire.digest(x) != old for x, old in zip(watched, before, strict=True))
        changed = changed or wire.noted([args, kwargs]) != noted
        nan = target.watch.nan if isinstance(target, _Helped) else None
        return {"ok": result, "changed": changed, "nan": nan}

    def target(self, request: dict[str, Any]) -> Any:
        """The name, object, attribute or method that a request is about."""
        if "name" in request:
            if request["name"] not in self.names:
                raise NameError(f"name '{request['name']}' is not defined")
            found = self.names[request["name"]]
        else:
            found = request["object"]
        for attribute in request.get("path", ()):
            found = getattr(found, attribute)
        return found

    def hold(self, value: object) -> dict[str, Any]:
        """A handle for an object of no plain kind."""
        number = len(self.objects)
        self.objects[number] = value
        kind = "iterator" if hasattr(type(value), "__next__") else "object"
        return {"$": "object", "id": number, "kind": kind, "type": type(value).__name__[:80]}

    def resolve(self, node: dict[str, Any]) -> object:
        """What a handle or a callback of the trusted side stands for here."""
        if node["$"] == "object":
            return self.objects[node["id"]]
        number = node["id"]

        def ask(args: Any, kwargs: Any, **more: Any) -> Any:
            message = {"callback": number, "args": list(args), "kwargs": kwargs, **more}
            wire.send(self.connection, message, self.hold)
            while "op" in (reply := self.receive()):
                self.reply(reply)  # the callback calls back into this notebook
            if "exc" in reply:
                raise _error(reply["exc"])
            if "written" in reply:
                _write_back(wire.arrays([list(args), kwargs]), reply["written"])
            return reply["ok"]

        def callback(*args: Any, **kwargs: Any) -> Any:
            def derivative(grads: list[Any]) -> Any:
                return ask(args, kwargs, grads=grads)

            given = wire.arrays([args, kwargs])
            return crossing.connected(ask(args, kwargs), given, derivative)

        return callback

    def loop(self) -> None:
        """Answer until the trusted side hangs up."""
        with contextlib.suppress(EOFError):
            while True:
                self.reply(self.receive())  # and no name keeps what it gave
        os._exit(0)

    def receive(self) -> Any:
        """The next message of the trusted side."""
        return wire.receive(self.connection, self.resolve, strides=True)

    def reply(self, request: dict[str, Any]) -> None:
        """Answer one request, with what it raised when it raised."""
        try:
            reply = self.answer(request)
        except BaseException as error:
            reply = {"exc": describe(error)}
        try:
            wire.send(self.connection, reply, self.hold)
        except (wire.WireError, RecursionError, MemoryError) as error:
            wire.send(self.connection, {"exc": describe(error)})


def seed(value: int) -> None:
    """One seed for everything a submission may draw from, so that a regrade repeats it."""
    random.seed(value)
    np.random.seed(value % 2**32)  # noqa: NPY002  what a notebook may draw from
    torch.default_generator.manual_seed(value)  # torch.manual_seed looks for devices, slowly


class _Helped:
    """A function under a helper of ``student``: its gradient, its source, its memory."""

    def __init__(self, operation: str, function: Any, options: dict[str, Any]) -> None:
        from attn_course.probes.watch import Watch

        self.operation, self.options, self.watch = operation, options, Watch()
        self.function = self.watch.around(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from attn_course.probes import student

        return student.perform(self.operation, self.function, args, kwargs, self.options)


def _write_back(ours: list[Any], written: list[Any]) -> None:
    """What a callback wrote into its arguments, which crossed as copies."""
    for old, new in zip(ours, written, strict=True):
        if isinstance(old, torch.Tensor):
            with torch.no_grad():
                old.copy_(new)
        else:
            old[...] = new


def _error(described: dict[str, Any]) -> BaseException:
    kind = getattr(builtins, described["type"], None)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        kind = RuntimeError
    return kind(described["text"])


def describe(error: BaseException) -> dict[str, Any]:
    """Type, builtin ancestors, text, and the line of the submission where it was raised."""
    kinds = [k.__name__ for k in type(error).__mro__ if hasattr(builtins, k.__name__)]
    try:
        text = str(error)[:MAX_TEXT]
    except BaseException:
        text = ""
    where: tuple[str, int, str] | None = None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith("<cell "):
            where = (frame.filename[6:-1], frame.lineno or 0, (frame.line or "")[:200])
    if where is None and isinstance(error, SyntaxError) and error.filename:
        where = (str(error.filename)[6:-1], error.lineno or 0, (error.text or "").strip()[:200])
    return {"type": type(error).__name__[:80], "kinds": kinds, "text": text, "where": where}


def serve(connection: socket.socket) -> None:
    """Become the worker of one submission; never returns."""
    sys.stdout = sys.stderr = open(1, "w", errors="replace", closefd=False)  # noqa: SIM115
    sys.stdin = io.StringIO("")
    Worker(connection).loop()
