"""Interactive pictures: one JavaScript module each, for the book's pages and for Jupyter.

In a page the module computes everything itself. In Jupyter the same module is a live widget whose
numbers come from the package::

    from attn_course import explorers

    explorers.show("softmax_temperature")

An explorer is two files of this folder: ``name.py`` with ``compute``, ``default_state`` and the
widget, and ``name.js`` with the same ``compute`` and ``render``. Nothing else lists them.
"""

from importlib import import_module
from typing import Any

from attn_course.explorers._source import NAMES, check_name, class_name, esm, stylesheet

_CLASSES = {class_name(name): name for name in NAMES}

__all__ = ["NAMES", "esm", "show", "stylesheet"]
__all__ += list(_CLASSES)


def __getattr__(name: str) -> Any:
    # The widgets need anywidget, the modules' JavaScript does not: load them when asked for.
    if name in _CLASSES:
        return getattr(import_module(f"attn_course.explorers.{_CLASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


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
    check_name(name)
    return __getattr__(class_name(name))(**state)
