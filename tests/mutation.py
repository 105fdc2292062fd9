"""Planted mistakes: a module of the package with one line of its text changed.

An oracle that cannot tell such a mutant from the original proves nothing.
"""

import importlib.util
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REJECTED = (AssertionError, RuntimeError)


def mutant(module: str, name: str, old: str, new: str) -> Any:
    """``name`` from a copy of ``module`` in which the text ``old`` reads ``new``."""
    spec: Any = importlib.util.find_spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8")
    if old not in source:  # no AssertionError: that is what a rejected mutant raises
        raise LookupError(f"{module}: the text to mutate is gone: {old!r}")
    copy = types.ModuleType(f"{module}__mutant")
    exec(compile(source.replace(old, new), f"<mutant of {module}>", "exec"), copy.__dict__)
    return getattr(copy, name)


def passes(checks: dict[str, Callable[[Any], object]], of: Any) -> Any:
    """A test for each check that what ``of`` calls by its name passes it."""

    @pytest.mark.parametrize("name", checks)
    def test(name: str) -> None:
        checks[name](getattr(of, name))

    return test


def rejects(check: Callable[[Any], object], wrong: Any, error: Any = REJECTED) -> Any:
    """A test that the check fails with ``error`` for each wrong function of a list or a dict."""
    by_name = wrong if isinstance(wrong, dict) else dict(enumerate(wrong))

    @pytest.mark.parametrize("wrong", by_name.values(), ids=map(str, by_name))
    def test(wrong: Any) -> None:
        with pytest.raises(error):
            check(wrong)

    return test


def rejects_changes(
    check: Any, of: str, *rows: tuple[str, ...], error: Any = REJECTED, **named: Any
) -> Any:
    """A test that the check fails for each changed line.

    Args:
        check: takes the mutant; or a dict of such functions by the mutant's name.
        of: the dotted name of what is changed, or of its module where each row begins with a name.
        rows: ``(old, new)`` or ``(name, old, new)``.
        error: what the check may raise.
        named: lists of ``(old, new)`` by the name of what is changed in the module ``of``.
    """
    rows += tuple((name, *pair) for name, pairs in named.items() for pair in pairs)
    module, _, last = of.rpartition(".")
    places = [(of, *row) if len(row) == 3 else (module, last, *row) for row in rows]

    @pytest.mark.parametrize(("module", "name", "old", "new"), places)
    def test(module: str, name: str, old: str, new: str) -> None:
        wrong = mutant(module, name, old, new)
        with pytest.raises(error):
            (check[name] if isinstance(check, dict) else check)(wrong)

    return test
