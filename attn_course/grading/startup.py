"""What keeps the start of a run short: modules imported late, alone, and without collections."""

import contextlib
import gc
import sys
from collections.abc import Iterator


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
