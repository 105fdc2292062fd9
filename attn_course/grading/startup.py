"""What keeps the start of a run short: modules imported late, alone, and without collections."""

import contextlib
import functools
import gc
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


def nbgrader_api() -> Any:
    """``nbgrader.api`` without the web server and the notebook tools that its package imports.

    They take five times as long as the tables, and no table needs them. The module is the caller's
    own: whoever imports nbgrader in the same process gets all of it, as always.
    """
    return importlib.import_module("nbgrader.api") if "nbgrader" in sys.modules else _tables_alone()


@functools.cache
def _tables_alone() -> ModuleType:
    sys.modules["nbgrader"] = importlib.util.module_from_spec(_spec("nbgrader"))
    try:
        sys.modules["nbgrader.utils"] = put_off("nbgrader.utils")
        return importlib.import_module("nbgrader.api")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "nbgrader"]:
            del sys.modules[name]


def _spec(name: str) -> ModuleSpec:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return spec


def put_off(name: str) -> ModuleType:
    """A module whose code runs when something of it is wanted for the first time.

    ``importlib.util.LazyLoader`` would run it as soon as it is imported once more.

    Args:
        name: of a module that is not imported yet.

    Raises:
        ModuleNotFoundError: there is none.
    """
    spec = _spec(name)
    module = importlib.util.module_from_spec(spec)

    def run_it(attribute: str) -> Any:
        del vars(module)["__getattr__"]
        assert spec.loader is not None, "or there would be no module"
        spec.loader.exec_module(module)
        return getattr(module, attribute)

    vars(module)["__getattr__"] = run_it
    return module


@contextlib.contextmanager
def notebooks_alone() -> Iterator[None]:
    """Let nbformat and jupytext be imported without the grammar of international addresses.

    ``jsonschema`` makes a parser of it, which takes three times as long as all the rest, in case a
    schema should ask for that format; a notebook's does not.
    """
    name = "rfc3987_syntax"
    if name in sys.modules:
        yield
        return
    # An import of it fails, as where it is not installed.
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Look for no garbage while modules are loaded: an eighth of the time, and none is found."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextlib.contextmanager
def known_head(api: Any) -> Iterator[None]:
    """Tell nbgrader the version of its tables, for which it would start a program of seconds.

    Args:
        api: ``nbgrader.api``.
    """
    asked, head = api.get_alembic_version, alembic_head(Path(api.__file__).parent)
    if head is not None:
        api.get_alembic_version = lambda: head
    try:
        yield
    finally:
        api.get_alembic_version = asked


def alembic_head(nbgrader: Path) -> str | None:
    """The newest of nbgrader's table versions, as ``alembic heads`` says; None if that is unclear.

    Args:
        nbgrader: folder of the package.
    """
    said = re.compile(r"^(down_revision|revision)\b[^=\n]*=\s*(?:['\"](\w+)['\"]|None)\s*$", re.M)
    known: dict[str, set[str]] = {"revision": set(), "down_revision": set()}
    for path in (nbgrader / "alembic" / "versions").glob("*.py"):
        for kind, version in said.findall(path.read_text()):
            known[kind] |= {version} - {""}
    heads = known["revision"] - known["down_revision"]
    return heads.pop() if len(heads) == 1 else None
