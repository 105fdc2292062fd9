"""What keeps the start of a run short: modules imported late, alone, and without collections."""

import contextlib
import gc
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any


def nbgrader_api() -> Any:
    """``nbgrader.api`` without the web server and the notebook tools that its package imports.

    They take five times as long as the tables, and no table needs them. Whoever imports something
    else of nbgrader in the same process gets the whole package, and the same tables.
    """
    if "nbgrader" not in sys.modules:
        package = put_off("nbgrader")
        package.utils = put_off("nbgrader.utils")  # type: ignore[attr-defined]
    return importlib.import_module("nbgrader.api")


def put_off(name: str) -> ModuleType:
    """Let imports find a module, and run its code when something of it is wanted.

    Unlike ``importlib.util.LazyLoader`` this lets a package's modules be imported without it.

    Args:
        name: of the module or package; not imported yet.

    Raises:
        ModuleNotFoundError: there is none.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    loader, module = spec.loader, importlib.util.module_from_spec(spec)

    def run_it(attribute: str) -> Any:
        del vars(module)["__getattr__"]
        loader.exec_module(module)
        return getattr(module, attribute)

    vars(module)["__getattr__"] = run_it
    sys.modules[name] = module
    return module


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
