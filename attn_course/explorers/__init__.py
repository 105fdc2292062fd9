"""Interactive pictures: one JavaScript module each, for the book's pages and for Jupyter.

In a page the module computes everything itself. In Jupyter the same module is a live widget whose
numbers come from the package::

    from attn_course import explorers

    explorers.show("softmax_temperature")
"""

from typing import Any

from attn_course.explorers._source import NAMES, check_name, esm, stylesheet
from attn_course.explorers.bottleneck import Bottleneck
from attn_course.explorers.gradient_reach import GradientReach
from attn_course.explorers.softmax_temperature import SoftmaxTemperature

__all__ = [
    "NAMES",
    "Bottleneck",
    "GradientReach",
    "SoftmaxTemperature",
    "esm",
    "show",
    "stylesheet",
]

_WIDGETS = dict(zip(NAMES, (SoftmaxTemperature, GradientReach, Bottleneck), strict=True))


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
    return _WIDGETS[name](**state)
