"""A clock for each pair of numbers: RoPE turns its hands, the score depends on the distance."""

from collections.abc import Sequence
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import alibi_bias, alibi_slopes, apply_rope, rope_frequencies

HEIGHT, HEIGHT_NARROW = 553, 591
LONGEST = 64  # places on the line
INPUTS = ("query", "key", "query_place", "key_place", "head_dim", "base", "heads", "head")


def compute(
    *,
    query: Sequence[Number],
    key: Sequence[Number],
    query_place: Number,
    key_place: Number,
    head_dim: int,
    base: Number,
    heads: int,
    head: int,
) -> dict[str, Any]:
    """Scores of one query and one key, by the package, in float64.

    Args:
        query: Entries of the query; the first ``head_dim`` are used.
        key: Entries of the key.
        query_place: Where the query stands.
        key_place: Where the key stands.
        head_dim: Number of entries, two for each rotating pair.
        base: Ratio of the slowest to the fastest rotation, about.
        heads: Number of heads, which sets the slopes of ALiBi.
        head: The head whose slope is used, from 1.

    Returns:
        ``frequencies`` of the pairs; ``query_turned`` and ``key_turned``, the turned vectors, pair
        by pair; ``parts``, what each pair adds to the score; ``rope``, the score; ``slope`` of the
        head; ``curve_rope`` and ``curve_alibi``, the scores at every distance from 0 on with the
        key before the query.

    Raises:
        ValueError: If a vector is too short, a place is off the line, or there is no such head.
    """
    if min(len(query), len(key)) < head_dim:
        raise ValueError(f"query, key: expected {head_dim} entries or more")
    if not 1 <= head <= heads:
        raise ValueError(f"head: expected 1 to {heads}, got {head}")
    if not all(0 <= place < LONGEST for place in (query_place, key_place)):
        raise ValueError(f"places: expected 0 to {LONGEST - 1}, got {query_place} and {key_place}")
    q = torch.tensor(query[:head_dim], dtype=torch.float64)
    k = torch.tensor(key[:head_dim], dtype=torch.float64)
    frequencies = rope_frequencies(head_dim, base=float(base))

    def turned(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return apply_rope(x.expand(len(places), -1), places, frequencies=frequencies)

    q_turned = turned(q, torch.tensor([query_place]))[0]
    k_turned = turned(k, torch.tensor([key_place]))[0]
    parts = (q_turned * k_turned).unflatten(0, (-1, 2)).sum(-1) / head_dim**0.5
    # the query at the far end, so that row LONGEST - 1 holds every distance
    bias = alibi_bias(heads, LONGEST, dtype=torch.float64)[head - 1, LONGEST - 1].flip(0)
    far = turned(k, -torch.arange(LONGEST)) @ q / head_dim**0.5
    return {
        "frequencies": plain(frequencies),
        "query_turned": plain(q_turned.unflatten(0, (-1, 2))),
        "key_turned": plain(k_turned.unflatten(0, (-1, 2))),
        "parts": plain(parts),
        "rope": plain(parts.sum()),
        "slope": plain(alibi_slopes(heads, dtype=torch.float64)[head - 1]),
        "curve_rope": plain(far),
        "curve_alibi": plain((q @ k) / head_dim**0.5 + bias),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: a query and a key that point the same way."""
    generator = torch.Generator().manual_seed(5)
    both = 0.6 + 0.5 * torch.rand(16, generator=generator)
    query = [round(one, 2) for one in both.tolist()]
    return {
        "kernel": False,
        "query": query,
        "key": list(query),
        "query_place": 19,
        "key_place": 12,
        "head_dim": 8,
        "base": 100,
        "heads": 8,
        "head": 3,
    }


class RopeDistances(anywidget.AnyWidget):
    """The live widget: its scores come from :mod:`attn_course.functional`.

    Args:
        **state: Start values, such as ``base=500`` or ``head=1``.
    """

    _esm = esm("rope_distances")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    query = traitlets.List().tag(sync=True)
    key = traitlets.List().tag(sync=True)
    query_place = traitlets.Float().tag(sync=True)
    key_place = traitlets.Float().tag(sync=True)
    head_dim = traitlets.Int().tag(sync=True)
    base = traitlets.Float().tag(sync=True)
    heads = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
