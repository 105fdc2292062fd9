"""Interactive pictures: one JavaScript module each, for the book's pages and for Jupyter.

In a page the module computes everything itself. In Jupyter the same module is a live widget whose
numbers come from the package::

    from attn_course import explorers

    explorers.show("softmax_temperature")
"""

from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

NAMES = ("softmax_temperature", "gradient_reach", "bottleneck")


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def esm(name: str) -> str:
    """The JavaScript module of an explorer, complete: what they share, then its own part.

    Args:
        name: One of ``NAMES``.

    Returns:
        Source of an anywidget front-end module, for a page and for Jupyter alike.

    Raises:
        ValueError: If there is no such explorer.
    """
    if name not in NAMES:
        raise ValueError(f"name: expected one of {', '.join(NAMES)}, got {name!r}")
    return _read("_shared.js") + "\n" + _read(f"{name}.js")


def stylesheet() -> str:
    """The style that all explorers share."""
    return _read("explorers.css")


def show(name: str, **state: Any) -> Any:
    """An explorer as a live widget, to be displayed by Jupyter.

    Args:
        name: One of ``NAMES``.
        **state: Start values that replace the default ones.

    Returns:
        The widget.

    Raises:
        ValueError: If there is no such explorer.
    """
    if name not in NAMES:
        raise ValueError(f"name: expected one of {', '.join(NAMES)}, got {name!r}")
    module = import_module(f"{__name__}.{name}")
    title = "".join(part.capitalize() for part in name.split("_"))
    return getattr(module, title)(**state)
