"""The figures of the book: one function each, from arrays to a figure with caption and description.

A module is a concept, and is loaded when it is first named::

    from attn_course import figures

    figures.heads.right_by_heads([1, 2, 4], {1: one, 2: two}, width=32)

A function takes what it draws as arguments; it loads, trains and runs nothing. It shows its figure
with ``viz.show`` and returns nothing.
"""

import importlib
from pathlib import Path
from types import ModuleType

from attn_course._extras import need

need("matplotlib", "viz", "attn_course.figures")

_MODULES = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
