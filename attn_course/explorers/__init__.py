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

from attn_course.explorers._source import NAMES, check_name, class_name

__all__ = ["NAMES", "show"]


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
    # a widget needs anywidget, its JavaScript does not: load it when it is asked for
    return getattr(import_module(f"{__name__}.{name}"), class_name(name))(**state)
