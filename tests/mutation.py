"""Planted mistakes: a module of the package with one line of its text changed.

An oracle that cannot tell such a mutant from the original proves nothing.
"""

import importlib.util
import types
from pathlib import Path
from typing import Any

import pytest


def mutant(module: str, name: str, old: str, new: str) -> Any:
    """``name`` from a copy of ``module`` in which the text ``old`` reads ``new``."""
    spec: Any = importlib.util.find_spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8")
    if old not in source:  # no AssertionError: that is what a rejected mutant raises
        raise LookupError(f"{module}: the text to mutate is gone: {old!r}")
    copy = types.ModuleType(f"{module}__mutant")
    exec(compile(source.replace(old, new), f"<mutant of {module}>", "exec"), copy.__dict__)
    return getattr(copy, name)


def changes(**of: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """A test of ``name, old, new`` for each changed line, by the function that it changes."""
    rows = [(name, *pair) for name, pairs in of.items() for pair in pairs]
    return pytest.mark.parametrize(("name", "old", "new"), rows)
