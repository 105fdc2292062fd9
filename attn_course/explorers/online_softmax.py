"""A softmax and its mean in one pass: maximum, sum and mixture after every tile of keys."""

import math
from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from attn_course.explorers._result import Number, follow
from attn_course.explorers._source import esm, stylesheet

HEIGHT, HEIGHT_NARROW = 500, 596
ORDERS = ("as given", "rising", "falling")
INPUTS = ("scores", "values", "order", "tile", "corrected")


def compute(
    *,
    scores: Sequence[Number],
    values: Sequence[Number],
    order: str,
    tile: int,
    corrected: bool,
) -> dict[str, Any]:
    """What one query has after every tile of keys.

    Args:
        scores: One score for each key.
        values: One number for each key.
        order: How the keys are sorted by score before they are read, one of ``ORDERS``.
        tile: Keys that are read at a time.
        corrected: Whether sum and mixture are multiplied by the factor when the maximum grows.

    Returns:
        ``places``: the keys in the order of reading; ``steps``: for every tile ``top``, ``factor``,
        ``total``, ``mixture`` and ``output``; ``expected``: the output of attention.

    Raises:
        ValueError: If the order is unknown, the tile is not positive, or there is not one value for
            each score.
    """
    if order not in ORDERS:
        raise ValueError(f"order: expected one of {', '.join(ORDERS)}, got {order!r}")
    if tile < 1:
        raise ValueError(f"tile: expected at least 1, got {tile}")
    if len(scores) != len(values):
        raise ValueError(f"values: expected {len(scores)}, one per score, got {len(values)}")
    sign = {"as given": 0, "rising": 1, "falling": -1}[order]
    places = sorted(range(len(scores)), key=lambda place: sign * scores[place])
    top, total, mixture = -math.inf, 0.0, 0.0
    steps = []
    for first in range(0, len(places), tile):
        read = places[first : first + tile]
        new = max(top, *(scores[place] for place in read))
        factor = math.exp(top - new) if corrected else 1.0
        weights = [math.exp(scores[place] - new) for place in read]
        total = total * factor + sum(weights)
        products = zip(weights, read, strict=True)
        mixture = mixture * factor + sum(weight * values[place] for weight, place in products)
        top = new
        steps.append(
            {
                "top": top,
                "factor": factor,
                "total": total,
                "mixture": mixture,
                "output": mixture / total,
            }
        )
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    return {"places": places, "steps": steps, "expected": expected}


def default_state() -> dict[str, Any]:
    """The state a page starts with: eight keys in tiles of two, the third just read."""
    return {
        "kernel": False,
        "scores": [0.5, -1.0, 1.5, 0.0, 3.0, -0.5, 2.0, 1.0],
        "values": [8.0, 4.0, 2.0, 6.0, 1.0, 9.0, 3.0, 7.0],
        "order": "as given",
        "tile": 2,
        "corrected": True,
        "step": 3,
    }


class OnlineSoftmax(anywidget.AnyWidget):
    """The live widget.

    Args:
        **state: Start values, such as ``tile=4`` or ``corrected=False``.
    """

    _esm = esm("online_softmax")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    scores = traitlets.List().tag(sync=True)
    values = traitlets.List().tag(sync=True)
    order = traitlets.Unicode().tag(sync=True)
    tile = traitlets.Int().tag(sync=True)
    corrected = traitlets.Bool().tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
