"""A sparse pattern put together from its parts, what it costs, and how far stacked layers see."""

from collections.abc import Sequence
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.analysis import receptive_field
from attn_course.explorers._result import follow
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import (
    blockwise_pattern,
    causal_pattern,
    global_pattern,
    strided_pattern,
    window_pattern,
)

HEIGHT, HEIGHT_NARROW = 577, 839
SIZE, LAYERS = 20, 6
INPUTS = (
    "size",
    "window",
    "dilation",
    "stride",
    "block",
    "num_global",
    "causal",
    "painted",
)


def compute(
    *,
    size: int,
    window: int,
    dilation: int,
    stride: int,
    block: int,
    num_global: int,
    causal: bool,
    painted: Sequence[Sequence[int]],
) -> dict[str, Any]:
    """Mask, cost and reach of a pattern, by the package.

    Args:
        size: Positions.
        window: Keys of the window, the own one included, odd; 0 leaves the window out.
        dilation: Distance of neighbours in the window.
        stride: Of the strided pattern, which is causal; 0 leaves it out.
        block: Size of a block of block-local attention; 0 leaves it out.
        num_global: How many positions at the start see all and are seen by all.
        causal: Whether later positions are hidden.
        painted: Pairs of query and key that the reader has switched.

    Returns:
        ``mask``, row by row; ``pairs`` that are computed; ``layer``, for each pair the first
        layer after which the query can depend on the key, 0 if none does; ``complete``, after how
        many layers every position reaches all that causality allows, 0 if not within ``LAYERS``.
    """
    parts = []
    if window:
        parts.append(window_pattern(window_size=window, dilation=dilation))
    if stride:
        parts.append(strided_pattern(stride=stride))
    if block:
        parts.append(blockwise_pattern(block_size=block))
    if num_global:
        parts.append(global_pattern(torch.arange(size) < num_global))
    mask = torch.zeros(size, size, dtype=torch.bool)
    for part in parts:
        mask = mask | part.mask(size)[0, 0]
    for i, j in painted:
        mask[i, j] = ~mask[i, j]
    everything = torch.ones(size, size, dtype=torch.bool)
    if causal:
        everything = causal_pattern().mask(size)[0, 0]
        mask = mask & everything
    # a residual connection keeps what was reached
    reach = receptive_field(mask | torch.eye(size, dtype=torch.bool), LAYERS)
    first = LAYERS + 1 - reach.sum(0)  # reach only grows
    full = [bool(torch.equal(one, everything)) for one in reach]
    return {
        "mask": mask.tolist(),
        "pairs": int(mask.sum()),
        "layer": torch.where(first > LAYERS, 0, first).tolist(),
        "complete": full.index(True) + 1 if any(full) else 0,
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: a window of three, and three layers of it."""
    return {
        "kernel": False,
        "size": SIZE,
        "window": 3,
        "dilation": 1,
        "stride": 0,
        "block": 0,
        "num_global": 0,
        "causal": False,
        "painted": [],
        "layers": 3,
    }


class PatternPainter(anywidget.AnyWidget):
    """The live widget: its patterns are those of :mod:`attn_course.functional`.

    Args:
        **state: Start values, such as ``window=5`` or ``causal=True``.
    """

    _esm = esm("pattern_painter")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    size = traitlets.Int().tag(sync=True)
    window = traitlets.Int().tag(sync=True)
    dilation = traitlets.Int().tag(sync=True)
    stride = traitlets.Int().tag(sync=True)
    block = traitlets.Int().tag(sync=True)
    num_global = traitlets.Int().tag(sync=True)
    causal = traitlets.Bool().tag(sync=True)
    painted = traitlets.List().tag(sync=True)
    layers = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
