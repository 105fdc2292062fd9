"""A language model while it learns: its text and the map of one head, step by step."""

from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from attn_course.data import load_results
from attn_course.explorers._result import follow
from attn_course.explorers._source import esm, stylesheet

HEIGHT, HEIGHT_NARROW = 508, 631
INPUTS = ("maps", "at")


def compute(*, maps: Sequence[Sequence[Sequence[int]]], at: int) -> dict[str, Any]:
    """What the map of one stage shows.

    Args:
        maps: For each stage the weights of each query, in hundredths; query ``i`` has ``i + 1``.
        at: Which stage.

    Returns:
        ``previous``: the mean weight on the token just before; ``shades``: the weights in tenths,
        rounded, row by row.

    Raises:
        ValueError: If there is no such stage.
    """
    if not 0 <= at < len(maps):
        raise ValueError(f"at: expected 0 to {len(maps) - 1}, got {at}")
    rows = maps[at]
    before = [row[i - 1] for i, row in enumerate(rows) if i]
    return {
        "previous": sum(before) / len(before) / 100,
        "shades": [[(weight + 5) // 10 for weight in row] for row in rows],
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: the trained model, with the whole way behind it."""
    record = load_results("language_contest")
    if record is None:
        raise FileNotFoundError("experiments/results/language_contest.json is not there")
    grown = record["growing up"]
    return {
        "kernel": False,
        "line": grown["line"],
        "stages": [{key: one[key] for key in ("step", "text")} for one in grown["stages"]],
        "maps": [one["weights"] for one in grown["stages"]],
        "at": len(grown["stages"]) - 1,
    }


class GrowingUp(anywidget.AnyWidget):
    """The live widget.

    Args:
        **state: Start values, such as ``at=0``.
    """

    _esm = esm("growing_up")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    line = traitlets.Unicode().tag(sync=True)
    stages = traitlets.List().tag(sync=True)
    maps = traitlets.List().tag(sync=True)
    at = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
