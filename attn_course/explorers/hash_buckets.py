"""Points in a plane that are hashed by direction: which pairs meet, and how much mass they hold."""

import math
from collections.abc import Sequence
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import attention_weights, lsh_buckets, lsh_mask, unit_keys

HEIGHT, HEIGHT_NARROW = 494, 734
POINTS, ROUNDS = 28, 6
STEP = 0.7  # how far the directions of a round are turned against those of the one before
INPUTS = ("points", "turn", "n_buckets", "n_hashes", "sharpness")


def compute(
    *,
    points: Sequence[Sequence[Number]],
    turn: Number,
    n_buckets: int,
    n_hashes: int,
    sharpness: Number,
) -> dict[str, Any]:
    """Buckets and kept pairs by the package, in float64.

    Args:
        points: Two numbers each; a point is query and key.
        turn: Angle of the first direction, in degrees. In place of random directions there are
            evenly spaced ones, turned a little further in every round.
        n_buckets: An even number of directions around the circle.
        n_hashes: Rounds.
        sharpness: Factor of the scores.

    Returns:
        ``buckets`` of every round and point; ``kept``: which pairs share a bucket in any round;
        ``weights`` of full attention, no point to itself; ``share`` of the pairs that are kept,
        and ``mass``: their share of the weights, the mean over the points.

    Raises:
        ValueError: If the number of buckets is odd.
    """
    if n_buckets < 2 or n_buckets % 2:
        raise ValueError(f"n_buckets: expected an even number of at least 2, got {n_buckets}")
    rows = torch.tensor(points, dtype=torch.float64)[None, None]  # (1, 1, L, 2)
    first = math.radians(turn) + STEP * torch.arange(n_hashes, dtype=torch.float64)  # (R,)
    angles = first[:, None] + 2 * math.pi / n_buckets * torch.arange(n_buckets // 2)  # (R, N)
    rotations = torch.stack([angles.cos(), angles.sin()])[None]  # (1, 2, R, N)
    buckets = lsh_buckets(rows, rotations)
    others = ~torch.eye(len(points), dtype=torch.bool)
    kept = lsh_mask(buckets)[0, 0] & others
    weights = attention_weights(rows * sharpness, unit_keys(rows), others, scale=1.0)[0, 0]
    return {
        "buckets": plain(buckets[0, 0]),
        "kept": plain(kept.double()),
        "weights": plain(weights),
        "share": int(kept.sum()) / max(int(others.sum()), 1),
        "mass": (weights * kept).sum(-1).mean().item(),
    }


def _points() -> list[list[float]]:
    """Seven groups of four neighbours, at fixed places around the middle."""
    generator = torch.Generator().manual_seed(11)
    centres = torch.arange(7) * (2 * math.pi / 7) + 0.3
    angles = centres.repeat_interleave(4) + 0.16 * torch.randn(POINTS, generator=generator)
    lengths = 1.1 + 0.5 * torch.rand(POINTS, generator=generator)
    places = torch.stack([angles.cos(), angles.sin()], dim=-1) * lengths[:, None]
    return [[round(x, 3) for x in place] for place in places.tolist()]


def default_state() -> dict[str, Any]:
    """The state a page starts with: eight buckets, one round."""
    return {
        "kernel": False,
        "points": _points(),
        "turn": 10,
        "n_buckets": 8,
        "n_hashes": 1,
        "sharpness": 4.0,
        "rounds": ROUNDS,
        "step": STEP,
    }


class HashBuckets(anywidget.AnyWidget):
    """The live widget: its buckets are those of :mod:`attn_course.functional`.

    Args:
        **state: Start values, such as ``n_buckets=16`` or ``n_hashes=4``.
    """

    _esm = esm("hash_buckets")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    points = traitlets.List().tag(sync=True)
    turn = traitlets.Float().tag(sync=True)
    n_buckets = traitlets.Int().tag(sync=True)
    n_hashes = traitlets.Int().tag(sync=True)
    sharpness = traitlets.Float().tag(sync=True)
    rounds = traitlets.Int().tag(sync=True)
    step = traitlets.Float().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
