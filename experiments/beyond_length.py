"""The package's Shakespeare model on texts four times as long as those of its training.

Windows of 1,024 characters of the validation text, bits by position, for the positions as trained
and three ways to read them without training: all pairs of RoPE turn four times slower (position
interpolation), the slow ones do (as in Llama 3.1), or the cache keeps the last 256 characters. And
what the model writes each way, 512 characters. The model is one: a seed draws windows and a text.
``python -m experiments.beyond_length --sets native`` repeats the recorded runs.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attn_course.data import load_language_model, load_shakespeare
from attn_course.functional import linear_scaling, llama3_scaling
from attn_course.nn import KVCache, LanguageModel, SlidingCache
from attn_course.train import generate
from experiments.inside_shakespeare import bits
from experiments.repeat import repeat

TRAINED, LENGTH, WINDOWS, PART = 256, 1024, 8, 64
WRITTEN, TEMPERATURE = 512, 0.7
Scaling = Callable[[Tensor], Tensor] | None
WAYS: dict[str, tuple[Scaling, Callable[[], KVCache | SlidingCache]]] = {
    "as trained": (None, KVCache),
    "all pairs slower": (partial(linear_scaling, factor=LENGTH / TRAINED), KVCache),
    "slow pairs slower": (
        partial(llama3_scaling, factor=LENGTH / TRAINED, original_length=TRAINED),
        KVCache,
    ),
    "last 256 characters": (None, partial(SlidingCache, window_size=TRAINED)),
}


def set_scaling(model: LanguageModel, scaling: Scaling) -> None:
    """How fast the pairs of RoPE turn, in every block."""
    for block in model.blocks:
        block.attention.position.scaling = scaling


@torch.no_grad()
def run(seed: int) -> dict[str, Any]:
    """Bits by position; a text, and the share of known words in its first and second half."""
    model, characters = load_language_model()
    rest = load_shakespeare("val")
    ids = characters.encode(rest[: len(rest) // 2])  # the other half is the test text
    known = set(re.findall("[a-z]+", load_shakespeare("train").lower()))
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(ids) - LENGTH - 1, (WINDOWS, 1), generator=generator)
    windows = ids[starts + torch.arange(LENGTH + 1)]
    found: dict[str, Any] = {"positions": list(range(PART // 2, LENGTH, PART))}
    for way, (scaling, make) in WAYS.items():
        set_scaling(model, scaling)
        by_place = [
            bits(model(window[None], cache=model.new_cache(make)), window[None])
            for window in windows
        ]
        drawn = generate(
            model, characters.encode("\n"), max_length=WRITTEN, temperature=TEMPERATURE, seed=seed,
            cache=model.new_cache(make),
        )  # fmt: skip
        text = characters.decode(drawn.tokens[0])
        halves = text[:TRAINED], text[TRAINED:]
        words = [re.findall("[a-z]+", half.lower()) for half in halves]
        found[way] = {
            "bits": torch.cat(by_place).mean(0).view(-1, PART).mean(1).tolist(),
            "known words": [sum(word in known for word in half) / len(half) for half in words],
            "text": text,
        }
    return found


if __name__ == "__main__":
    repeat(run, __file__)
