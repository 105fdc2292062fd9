"""A query, four keys, seven scores: what each score sees of length, direction and place."""

from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import torch
import traitlets
from torch import Tensor

from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import (
    additive_score,
    concat_score,
    cosine_score,
    dot_score,
    general_score,
    location_score,
    scaled_dot_score,
    softmax,
)

HEIGHT, HEIGHT_NARROW = 599, 980
INPUTS = ("query", "key", "sharpness", "joined", "parameters")
# Small round numbers: a reader can check a score by hand.
PARAMETERS: dict[str, dict[str, Any]] = {
    "general": {"weight": [[0.5, 1.0], [-1.0, 0.5]]},
    "additive": {
        "weight_query": [[1.0, 0.0], [0.0, 1.0], [0.5, -0.5]],
        "weight_key": [[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]],
        "v": [1.0, -1.0, 2.0],
    },
    "concat": {"weight": [[1.0, -1.0, 0.5, 0.0], [0.0, 1.0, -1.0, 0.5]], "v": [2.0, -1.0]},
    "location": {"weight": [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]},
}


def compute(
    *,
    query: Sequence[Number],
    key: Sequence[Sequence[Number]],
    sharpness: Number,
    joined: bool,
    parameters: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Seven scores of the query and each key, and the softmax over the keys, in float64.

    Args:
        query: Two numbers.
        key: The keys, two numbers each.
        sharpness: What the cosine is multiplied by.
        joined: Give the concat score the two matrices of the additive one, side by side, and its
            vector: then the two are the same score.
        parameters: Those of ``general_score``, ``additive_score``, ``concat_score`` and
            ``location_score``, by the first word of the function's name.

    Returns:
        ``scores`` and ``weights``: for each score one number per key.

    Raises:
        ValueError: If the sizes do not fit each other, or the sharpness is negative.
    """

    def tensor(values: Any) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    own = {
        name: {part: tensor(values) for part, values in parts.items()}
        for name, parts in parameters.items()
    }
    if joined:
        additive = own["additive"]
        side_by_side = torch.cat([additive["weight_query"], additive["weight_key"]], dim=1)
        own["concat"] = {"weight": side_by_side, "v": additive["v"]}
    q, k = tensor([query]), tensor(key)  # (1, 2) and (S, 2)
    scores = {
        "dot": dot_score(q, k),
        "scaled_dot": scaled_dot_score(q, k),
        "general": general_score(q, k, **own["general"]),
        "additive": additive_score(q, k, **own["additive"]),
        "concat": concat_score(q, k, **own["concat"]),
        "location": location_score(q, k, **own["location"]),
        "cosine": cosine_score(q, k, sharpness=float(sharpness)),
    }
    return {
        "scores": {name: plain(score[0]) for name, score in scores.items()},
        "weights": {name: plain(softmax(score[0], dim=-1)) for name, score in scores.items()},
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: a query, and four keys of several lengths and directions."""
    return {
        "kernel": False,
        "query": [2.0, 1.0],
        # keys 1 and 2 point the same way
        "key": [[0.6, 0.9], [1.8, 2.7], [-1.5, 1.5], [1.5, -2.0]],
        "sharpness": 1.0,
        "joined": False,
        "parameters": PARAMETERS,
    }


class ScorePlayground(anywidget.AnyWidget):
    """The live widget: its scores are those of :mod:`attn_course.functional`.

    Args:
        **state: Start values, such as ``query=[1.0, 0.0]`` or ``sharpness=5.0``.
    """

    _esm = esm("score_playground")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    query = traitlets.List().tag(sync=True)
    key = traitlets.List().tag(sync=True)
    sharpness = traitlets.Float().tag(sync=True)
    joined = traitlets.Bool().tag(sync=True)
    parameters = traitlets.Dict().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
