"""Attention, from recurrence to kernels: small, typed, tested reference code for the course.

Subpackages are imported on demand: ``import attn_course`` alone loads none of them, and
``attn_course.nn`` loads that part when it is first named.
"""

import importlib
from types import ModuleType

__version__ = "0.1.0"

PARTS = (
    "data",
    "distributed",
    "exercises",
    "explorers",
    "functional",
    "grading",
    "interop",
    "kernels",
    "masks",
    "nn",
    "probes",
    "reference",
    "train",
    "viz",
)


def __getattr__(name: str) -> ModuleType:
    if name in PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *PARTS})
