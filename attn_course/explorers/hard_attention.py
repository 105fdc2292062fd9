"""Draws from weights, and what they say about the gradient, with and without a baseline."""

from collections.abc import Sequence
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import (
    best_baseline,
    sample_attention,
    score_function_gradient,
    score_function_moments,
    softmax,
)

HEIGHT, HEIGHT_NARROW = 573, 947
DRAWS = 1000
INPUTS = ("scores", "rewards", "baseline", "draws", "uniforms")


def compute(
    *,
    scores: Sequence[Number],
    rewards: Sequence[Number],
    baseline: Number,
    draws: int,
    uniforms: Sequence[Number],
) -> dict[str, Any]:
    """What the explorer shows, computed by the package in float64.

    Args:
        scores: One score per place; their softmax is what places are drawn from.
        rewards: What each place pays.
        baseline: Subtracted from every reward.
        draws: How many of the random numbers are used.
        uniforms: Random numbers from 0 to below 1, one per draw.

    Returns:
        ``weights``; ``exact``, the gradient of the expected reward by the scores; ``mean`` and
        ``error`` of the draws' estimates; ``counts``; the total ``variance`` of one draw and
        ``variance_without`` a baseline; ``mean_reward`` and the ``best`` baseline.

    Raises:
        ValueError: If scores and rewards differ in number, or there are not that many draws.
    """
    if len(scores) != len(rewards):
        raise ValueError(f"rewards: expected {len(scores)}, one per score, got {len(rewards)}")
    if not 1 <= draws <= len(uniforms):
        raise ValueError(f"draws: expected 1 to {len(uniforms)}, got {draws}")
    weights = softmax(torch.tensor(scores, dtype=torch.float64))
    pays = torch.tensor(rewards, dtype=torch.float64)
    numbers = torch.tensor(uniforms[:draws], dtype=torch.float64)
    counts = sample_attention(weights.expand(draws, -1), uniform=numbers).sum(0)
    share = counts / draws
    one_hot = torch.eye(len(weights), dtype=torch.float64)
    each = score_function_gradient(weights.expand_as(one_hot), one_hot, pays, float(baseline))
    mean = share @ each
    exact, variance = score_function_moments(weights, pays, float(baseline))
    return {
        "weights": plain(weights),
        "exact": plain(exact),
        "mean": plain(mean),
        "error": plain((share @ (each - mean).square() / draws).sqrt()),
        "counts": plain(counts),
        "variance": variance,
        "variance_without": score_function_moments(weights, pays)[1],
        "mean_reward": float(weights @ pays),
        "best": best_baseline(weights, pays),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: the four places of the chapter, and 1,000 random numbers."""
    drawn = torch.rand(DRAWS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return {
        "kernel": False,
        "scores": [1.4, 1.1, 0.7, 0.0],  # weights of about 0.4, 0.3, 0.2, 0.1
        "rewards": [4.0, 28.0, 14.0, 32.0],
        "baseline": 0.0,
        "draws": 40,
        "uniforms": [int(u * 1e4) / 1e4 for u in drawn.tolist()],
    }


class HardAttention(anywidget.AnyWidget):
    """The live widget: draws and estimates by :mod:`attn_course.functional`.

    Args:
        **state: Start values, such as ``rewards=[1.0, 0.0]`` or ``baseline=0.5``.
    """

    _esm = esm("hard_attention")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    scores = traitlets.List().tag(sync=True)
    rewards = traitlets.List().tag(sync=True)
    baseline = traitlets.Float().tag(sync=True)
    draws = traitlets.Int().tag(sync=True)
    uniforms = traitlets.List().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
