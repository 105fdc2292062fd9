"""Estimates of a gradient from draws: more draws or a baseline bring them together."""

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

HEIGHT, HEIGHT_NARROW = 533, 604
RUNS = 60
LEVELS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
INPUTS = ("scores", "rewards", "baseline", "place", "seed")


def uniforms(seed: int) -> torch.Tensor:
    """Numbers of Park and Miller's generator, which JavaScript has exactly, a row for each run."""
    states = [seed]
    for _ in range(RUNS * LEVELS[-1]):
        states.append(states[-1] * 48271 % (2**31 - 1))
    return torch.tensor(states[1:], dtype=torch.float64).view(RUNS, -1) / (2**31 - 1)


def compute(
    *,
    scores: Sequence[Number],
    rewards: Sequence[Number],
    baseline: Number,
    place: int,
    seed: int,
) -> dict[str, Any]:
    """What the explorer shows, computed by the package in float64.

    Args:
        scores: One score per place; their softmax is what places are drawn from.
        rewards: What each place pays.
        baseline: Subtracted from every reward.
        place: The place by whose score the gradient is taken, from 0.
        seed: What the random numbers start from, 1 or more.

    Returns:
        ``weights``; ``exact``, the gradient of the expected reward by the place's score;
        ``estimates`` of it, for each of ``LEVELS`` the mean of as many draws in every run, and
        their ``spread``; the total ``variance`` of one draw and ``variance_without`` a baseline;
        ``mean_reward`` and the ``best`` baseline.

    Raises:
        ValueError: If scores and rewards differ in number, or there is no such place.
    """
    if len(scores) != len(rewards):
        raise ValueError(f"rewards: expected {len(scores)}, one per score, got {len(rewards)}")
    if not 0 <= place < len(scores):
        raise ValueError(f"place: expected 0 to {len(scores) - 1}, got {place}")
    weights = softmax(torch.tensor(scores, dtype=torch.float64))
    pays = torch.tensor(rewards, dtype=torch.float64)
    numbers = uniforms(seed)
    rows = weights.expand(*numbers.shape, -1)
    drawn = sample_attention(rows, uniform=numbers)
    each = score_function_gradient(rows, drawn, drawn @ pays, float(baseline))[..., place]
    estimates = torch.stack([each[:, :draws].mean(1) for draws in LEVELS])
    return {
        "weights": plain(weights),
        "exact": plain(score_function_moments(weights, pays)[0][place]),
        "estimates": plain(estimates),
        "spread": plain(estimates.std(1, correction=0)),
        "variance": score_function_moments(weights, pays, float(baseline))[1],
        "variance_without": score_function_moments(weights, pays)[1],
        "mean_reward": float(weights @ pays),
        "best": best_baseline(weights, pays),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: the four places of the chapter, eight draws an estimate."""
    return {
        "kernel": False,
        "scores": [1.4, 1.1, 0.7, 0.0],  # weights of about 0.4, 0.3, 0.2, 0.1
        "rewards": [4.0, 28.0, 14.0, 32.0],
        "baseline": 0.0,
        "place": 1,
        "seed": 20_150_706,
        "level": 3,
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
    place = traitlets.Int().tag(sync=True)
    seed = traitlets.Int().tag(sync=True)
    level = traitlets.Float().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
