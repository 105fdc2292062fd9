"""A text that grows word by word: the work for each, with a cache and without one."""

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from attn_course.analysis import Sizes
from attn_course.explorers._result import follow
from attn_course.explorers._source import esm, stylesheet

HEIGHT, HEIGHT_NARROW = 507, 716
TEXT = (
    "When the model writes a word, it reads the whole text before it: each earlier word has a key "
    "and a value, and the new word attends to all of them. None of these keys and values changes "
    "when one more word is written. So a program can store them once and read them again. Without "
    "such a store, the model starts over for every word, from the first one to the last, and the "
    "longer the text is, the more it repeats."
)
INPUTS = ("step", "model")
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
SIZES = ("embed_dim", "num_heads", "hidden_dim", "num_layers", "head_dim", "vocab_size")


def compute(*, step: int, model: Mapping[str, int]) -> dict[str, Any]:
    """What each token so far has cost, by the package's formulas.

    Args:
        step: How many tokens there are, the newest included.
        model: Sizes, as in ``MODEL``.

    Returns:
        ``work``, the operations of each step with a cache and without one, for ordinary heads;
        ``total`` of both; ``bytes`` of the cache after the last step, for four kinds of heads.

    Raises:
        ValueError: If there is no token.
    """
    if step < 1:
        raise ValueError(f"step: expected 1 or more, got {step}")
    kinds: dict[str, dict[str, Any]] = {
        "MHA": {},
        "GQA": {"num_kv_heads": model["num_groups"]},
        "MQA": {"num_kv_heads": 1},
        "MLA": {"kv_rank": model["kv_rank"], "rope_dim": model["rope_dim"]},
    }
    common: dict[str, Any] = {key: model[key] for key in SIZES}
    sizes = {name: Sizes(**common, **own) for name, own in kinds.items()}
    mha, steps = sizes["MHA"], range(1, step + 1)
    work = {
        "with": [mha.language_model_flops(1, pairs=n) for n in steps],
        "without": [mha.language_model_flops(n, pairs=n * (n + 1) // 2) for n in steps],
    }
    return {
        "work": work,
        "total": {way: sum(flops) for way, flops in work.items()},
        "bytes": {name: kind.cache_bytes(step) for name, kind in sizes.items()},
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: a text of which the first half is written."""
    return {"kernel": False, "text": TEXT, "step": 40, "model": dict(MODEL)}


class KvCache(anywidget.AnyWidget):
    """The live widget: its numbers are those of :mod:`attn_course.functional`.

    Args:
        **state: Start values, such as ``step=8``.
    """

    _esm = esm("kv_cache")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    model = traitlets.Dict().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
