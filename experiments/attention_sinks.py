"""Does a model need its first tokens? A sliding cache with and without them, after training.

Chapter 11 shows this code and plots its runs. A small language model is trained with full attention
on pieces of 128 characters; another one on pieces that all begin with one symbol. Then they read
with a cache of 32 keys: the last 32, or the last 28 and the first 4. What counts is the loss where
the first tokens have long left the window.
``python -m experiments.attention_sinks`` repeats the recorded runs.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.nn import KVCache, LanguageModel, SlidingCache
from experiments.repeat import repeat
from experiments.writing import small_model, text_ids, train

TRAINED, KEYS, SINKS = 128, 32, 4
CACHES = {
    "all keys": KVCache,
    "last 32": partial(SlidingCache, window_size=KEYS),
    "last 28": partial(SlidingCache, window_size=KEYS - SINKS),
    "first 4 + last 28": partial(SlidingCache, window_size=KEYS - SINKS, sinks=SINKS),
}
FOLLOWING = partial(SlidingCache, window_size=KEYS - SINKS, sinks=SINKS, sinks_follow=True)


@torch.no_grad()
def bits_by_place(model: LanguageModel, rows: Tensor, make: Any, *, singly: bool = False) -> Tensor:
    """Bits of each character but the first, mean over the rows, by its place in the text."""
    cache = model.new_cache(make)
    parts = rows[:, :-1].split(1 if singly else rows.shape[1], dim=1)
    logits = torch.cat([model(part, cache=cache) for part in parts], dim=1)
    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
    return loss.view(len(rows), -1).mean(0) / math.log(2)


@torch.no_grad()
def weight_on_first(model: LanguageModel, rows: Tensor) -> list[list[float]]:
    """Weight on the first key, by layer and head, mean over the second half of the queries."""
    x, found = model.embedding(rows), []
    for block in model.blocks:
        weights = block.attention.weights(block.attention_norm(x), is_causal=True)
        found.append(weights[:, :, rows.shape[1] // 2 :, 0].mean((0, 2)).tolist())
        x = block(x, is_causal=True)
    return found


def run(seed: int) -> dict[str, Any]:
    """Train two models, one with a symbol that begins every piece, and read with each cache."""
    known, held_out, alphabet = text_ids()
    values: dict[str, Any] = {"even share": sum(1 / i for i in range(65, 129)) / 64}
    for name, start in (("any first character", None), ("a start symbol", len(alphabet))):
        torch.manual_seed(seed)
        model = small_model(len(alphabet) + 1)
        train(model, known, steps=600, length=TRAINED, batch=4, seed=seed, start=start)
        values[name] = read(model, held_out, start)
    return values


def read(model: LanguageModel, held_out: Tensor, start: int | None) -> dict[str, Any]:
    """Bits per character with each cache, and the weights on the first key."""
    rows = {}
    for length in (TRAINED, 4 * TRAINED):
        count = len(held_out) // (length + 1)
        rows[length] = held_out[: count * (length + 1)].view(count, length + 1).clone()
        if start is not None:
            rows[length][:, 0] = start
    inside, beyond = {}, {}
    for name, make in CACHES.items():
        # from here on the first four tokens are out of reach of any window
        inside[name] = bits_by_place(model, rows[TRAINED], make)[64:].mean().item()
        beyond[name] = bits_by_place(model, rows[4 * TRAINED], make)[128:].mean().item()
    moved = bits_by_place(model, rows[4 * TRAINED], FOLLOWING, singly=True)
    beyond["first 4 moved + last 28"] = moved[128:].mean().item()
    return {
        "within the trained length": inside,
        "four times as long": beyond,
        "weight on the first key": weight_on_first(model, rows[TRAINED][:, :-1]),
    }


if __name__ == "__main__":
    repeat(run, __file__)
