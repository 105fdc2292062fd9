"""Numbers on their way to JavaScript, and the link from inputs to results."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

# What a browser sends: a number without a point arrives as an integer.
Number = int | float


def plain(values: Tensor) -> Any:
    """A tensor as nested lists; ``nan`` and ``inf``, which JSON has not, as words."""

    def word(value: Any) -> Any:
        if isinstance(value, list):
            return [word(item) for item in value]
        if math.isnan(value):
            return "nan"
        return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")

    return word(values.detach().cpu().tolist())


def follow(widget: Any, compute: Callable[..., dict[str, Any]], inputs: Iterable[str]) -> None:
    """Compute the widget's ``result`` now and whenever one of its inputs changes."""
    names = tuple(inputs)

    def update(change: Any = None) -> None:
        # Several inputs that change together arrive one by one; some pairs do not fit each other.
        try:
            widget.result = compute(**{name: getattr(widget, name) for name in names})
        except ValueError as error:
            widget.problem = str(error)
        else:
            widget.problem = ""

    widget.observe(update, names=names)
    update()
