"""A window over the source: what local-m and local-p attention keep of a global softmax."""

import math
from collections.abc import Sequence
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import local_m_mask, local_p_weights, masked_softmax

HEIGHT, HEIGHT_NARROW = 504, 601
SENTENCE = "the old man walked his small dog slowly through the park in the rain"
WORDS = SENTENCE.split()
POSITIONS, FURTHEST, WIDEST = len(WORDS), 17, 6
INPUTS = ("scores", "length", "position", "half_width")


def compute(
    *, scores: Sequence[Number], length: int, position: Number, half_width: int
) -> dict[str, Any]:
    """Three kinds of weights for the same scores, by the package, in float64.

    Args:
        scores: One per position, padding included.
        length: How many positions the source has; the others are padding.
        position: Where the window of local-p has its centre. Local-m takes the step of the decoder,
            a whole number: the nearest one.
        half_width: How far the window reaches to either side.

    Returns:
        ``all``: softmax over the source; ``local_m``: softmax over the window; ``local_p``:
        softmax over the window times a Gaussian around its centre.

    Raises:
        ValueError: If the length does not fit the scores, or the half-width is not positive.
    """
    places = len(scores)
    if not 1 <= length <= places:
        raise ValueError(f"length: expected 1 to {places}, got {length}")
    row = torch.tensor([[scores]], dtype=torch.float64)  # (1, 1, S)
    lengths = torch.tensor([length])
    read = (torch.arange(places) < length).expand(1, 1, -1)
    step = torch.tensor([math.floor(position + 0.5)])
    window = local_m_mask(step, lengths, half_width, places)  # (1, 1, S)
    centre = torch.tensor([[position]], dtype=torch.float64)  # (1, 1)
    weights = {
        "all": masked_softmax(row, read),
        "local_m": masked_softmax(row, window),
        "local_p": local_p_weights(row, centre, half_width, attn_mask=read),
    }
    return {name: plain(weight[0, 0]) for name, weight in weights.items()}


def _examples() -> list[dict[str, Any]]:
    """Rows of scores by name: bumps of a height at a place, and a fixed scatter."""
    scatter = torch.randn(POSITIONS, generator=torch.Generator().manual_seed(4))

    def bumps(*peaks: tuple[float, float]) -> list[float]:
        places = torch.arange(POSITIONS, dtype=torch.float64)
        total = 0.4 * scatter.double()
        for height, place in peaks:
            total = total + height * torch.exp(-((places - place) ** 2) / 2)
        return [round(value, 1) for value in total.tolist()]

    return [
        {"name": "two distant peaks", "scores": bumps((2.0, 3), (3.5, 10))},
        {"name": "one peak", "scores": bumps((3.0, 6))},
        {"name": "noise", "scores": [round(2 * value, 1) for value in scatter.tolist()]},
        {"name": "all equal", "scores": [0.0] * POSITIONS},
    ]


def default_state() -> dict[str, Any]:
    """The state a page starts with: a sentence, a window around its fourth word."""
    examples = _examples()
    return {
        "kernel": False,
        "words": list(WORDS),
        "examples": examples,
        "scores": examples[0]["scores"],
        "length": POSITIONS,
        "position": 3.4,
        "half_width": 3,
        "furthest": FURTHEST,
        "widest": WIDEST,
    }


class LocalWindow(anywidget.AnyWidget):
    """The live widget: its weights are those of :mod:`attn_course.functional`.

    Args:
        **state: Start values, such as ``position=18.0`` or ``half_width=2``.
    """

    _esm = esm("local_window")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    words = traitlets.List().tag(sync=True)
    examples = traitlets.List().tag(sync=True)
    scores = traitlets.List().tag(sync=True)
    length = traitlets.Int().tag(sync=True)
    position = traitlets.Float().tag(sync=True)
    half_width = traitlets.Int().tag(sync=True)
    furthest = traitlets.Int().tag(sync=True)
    widest = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
