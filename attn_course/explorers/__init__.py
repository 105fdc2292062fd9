"""Interactive pictures: one JavaScript module each, for the book's pages and for Jupyter.

In a page the module computes everything itself. In Jupyter the same module is a live widget whose
numbers come from the package::

    from attn_course import explorers

    explorers.show("softmax_temperature")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attn_course.explorers._source import NAMES, check_name, esm, stylesheet

if TYPE_CHECKING:
    from attn_course.explorers.alignment_map import AlignmentMap
    from attn_course.explorers.bottleneck import Bottleneck
    from attn_course.explorers.gradient_reach import GradientReach
    from attn_course.explorers.hard_attention import HardAttention
    from attn_course.explorers.local_window import LocalWindow
    from attn_course.explorers.memory_hops import MemoryHops
    from attn_course.explorers.score_playground import ScorePlayground
    from attn_course.explorers.softmax_temperature import SoftmaxTemperature

__all__ = [
    "NAMES",
    "AlignmentMap",
    "Bottleneck",
    "GradientReach",
    "HardAttention",
    "LocalWindow",
    "MemoryHops",
    "ScorePlayground",
    "SoftmaxTemperature",
    "esm",
    "show",
    "stylesheet",
]

_MODULES = {
    "SoftmaxTemperature": "softmax_temperature",
    "GradientReach": "gradient_reach",
    "Bottleneck": "bottleneck",
    "ScorePlayground": "score_playground",
    "LocalWindow": "local_window",
    "AlignmentMap": "alignment_map",
    "MemoryHops": "memory_hops",
    "HardAttention": "hard_attention",
}


def __getattr__(name: str) -> Any:
    # The widgets need anywidget, the modules' JavaScript does not: load them when asked for.
    if name in _MODULES:
        return getattr(import_module(f"attn_course.explorers.{_MODULES[name]}"), name)
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
    classes = {module: kind for kind, module in _MODULES.items()}
    return __getattr__(classes[name])(**state)
