"""A text that grows token by token: what is computed, what a cache holds, what it costs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anywidget
import traitlets

from attn_course.analysis import Sizes
from attn_course.explorers._result import follow
from attn_course.explorers._source import esm, stylesheet

HEIGHT, HEIGHT_NARROW = 625, 1185
TEXT = "the cat sat down"
KEEPS = ("none", "all", "sliding")
INPUTS = ("step", "keep", "window", "sinks", "model")
# about the sizes of an 8-billion model of 2024; the latent ones are in the same proportion
MODEL = {
    "vocab_size": 128_256,
    "embed_dim": 4096,
    "hidden_dim": 14_336,
    "num_layers": 32,
    "num_heads": 32,
    "num_groups": 8,
    "head_dim": 128,
    "kv_rank": 512,
    "rope_dim": 64,
}


def compute(
    *, step: int, keep: str, window: int, sinks: int, model: Mapping[str, int]
) -> dict[str, Any]:
    """What each token so far has cost, by the package's formulas.

    Args:
        step: How many tokens there are, the newest included.
        keep: What is kept of the earlier ones: ``none``, ``all``, or ``sliding`` for a window and
            the first few.
        window: How many tokens the window holds, the newest included.
        sinks: How many of the first tokens stay.
        model: Sizes, as in ``MODEL``.

    Returns:
        ``rows``: for each token the state of every key at its turn, ``new`` for computed, ``held``
        for read from the cache, ``gone`` for dropped; ``bytes`` of the cache after the last one,
        for four kinds of heads; ``flops`` of the last step, and ``total`` of all steps, with the
        chosen cache and without any, for ordinary heads.

    Raises:
        ValueError: If there is no token, or a choice is unknown.
    """
    if step < 1 or window < 1 or sinks < 0:
        raise ValueError(
            f"step, window, sinks: expected 1, 1, 0 or more, got {step}, {window}, {sinks}"
        )
    if keep not in KEEPS:
        raise ValueError(f"keep: expected one of {', '.join(KEEPS)}, got {keep!r}")

    def state(i: int, j: int) -> str:
        if keep == "sliding" and j >= sinks and i - j >= window:
            return "gone"
        return "new" if keep == "none" or i == j else "held"

    rows = [[state(i, j) for j in range(i + 1)] for i in range(step)]
    sizes = Sizes(
        embed_dim=model["embed_dim"],
        num_heads=model["num_heads"],
        hidden_dim=model["hidden_dim"],
        num_layers=model["num_layers"],
        head_dim=model["head_dim"],
        vocab_size=model["vocab_size"],
    )
    with_cache, without = [], []
    for i, row in enumerate(rows):
        anew = sizes.language_model_flops(i + 1, pairs=(i + 1) * (i + 2) // 2)
        seen = sum(one != "gone" for one in row)
        without.append(anew)
        with_cache.append(anew if keep == "none" else sizes.language_model_flops(1, pairs=seen))
    held = 0 if keep == "none" else sum(one != "gone" for one in rows[-1])
    kinds = {
        "MHA": sizes,
        "GQA": replace(sizes, num_kv_heads=model["num_groups"]),
        "MQA": replace(sizes, num_kv_heads=1),
        "MLA": replace(sizes, kv_rank=model["kv_rank"], rope_dim=model["rope_dim"]),
    }
    return {
        "rows": rows,
        "bytes": {name: kind.cache_bytes(held) for name, kind in kinds.items()},
        "flops": {"with": with_cache[-1], "without": without[-1]},
        "total": {"with": sum(with_cache), "without": sum(without)},
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: three tokens, nothing kept."""
    return {
        "kernel": False,
        "text": TEXT,
        "step": 3,
        "keep": "none",
        "window": 5,
        "sinks": 0,
        "model": dict(MODEL),
    }


class KvCache(anywidget.AnyWidget):
    """The live widget: its numbers are those of :mod:`attn_course.functional`.

    Args:
        **state: Start values, such as ``step=8`` or ``keep="sliding"``.
    """

    _esm = esm("kv_cache")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    keep = traitlets.Unicode().tag(sync=True)
    window = traitlets.Int().tag(sync=True)
    sinks = traitlets.Int().tag(sync=True)
    model = traitlets.Dict().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
