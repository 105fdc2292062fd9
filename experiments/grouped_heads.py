"""Do shared keys and values cost quality, if the parameters that they save go elsewhere?

Chapter 11 shows this code and plots its runs. Four language models with four query heads: keys and
values for each head, for each pair, for all together, or from one short latent vector. What the
attention saves in parameters the feed-forward part gets. Each has two learning rates; the better
one on the held-out text counts.
``python -m experiments.grouped_heads`` repeats the recorded runs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from attn_course.nn import KVCache, MultiHeadAttention, MultiHeadLatentAttention, RotaryPositions
from experiments.repeat import repeat
from experiments.writing import (
    HEADS,
    HIDDEN,
    WIDTH,
    held_out_bits,
    small_model,
    text_ids,
    train,
)

RATES = (0.003, 0.006)
LENGTH, STEPS = 64, 300
POSITION = RotaryPositions(base=30.0)  # fast turns: the texts are short
grouped = partial(
    MultiHeadAttention, embed_dim=WIDTH, num_heads=HEADS, bias=False, position=POSITION
)
KINDS: dict[str, Callable[[], nn.Module]] = {
    "4 heads of keys": grouped,
    "2 heads of keys": partial(grouped, num_kv_heads=2),
    "1 head of keys": partial(grouped, num_kv_heads=1),
    "latent": partial(
        MultiHeadLatentAttention,
        embed_dim=WIDTH,
        num_heads=HEADS,
        head_dim=WIDTH // HEADS,
        rope_dim=8,
        kv_rank=24,
        position=POSITION,
    ),
}


def size(module: nn.Module) -> int:
    """Number of parameters."""
    return sum(part.numel() for part in module.parameters())


def hidden_dim(attention: Callable[[], nn.Module]) -> int:
    """The feed-forward width that gives every model about the parameters of the first."""
    saved = size(grouped()) - size(attention())
    return HIDDEN + round(saved / (3 * WIDTH))  # three matrices of WIDTH rows or columns


def run(seed: int) -> dict[str, Any]:
    """Train all kinds at both rates."""
    known, held_out, alphabet = text_ids()
    values: dict[str, Any] = {"rates": list(RATES)}
    for name, attention in KINDS.items():
        bits = []
        for rate in RATES:
            torch.manual_seed(seed)
            model = small_model(
                len(alphabet), attention=attention, hidden_dim=hidden_dim(attention), std=0.2
            )
            train(model, known, steps=STEPS, length=LENGTH, rate=rate, seed=seed)
            bits.append(held_out_bits(model, held_out, length=LENGTH))
        cache = model.new_cache(KVCache)
        with torch.no_grad():
            model(held_out[None, :100], cache=cache)
        values[name] = {
            "bits": min(bits),
            "at rates": bits,
            "parameters": size(model),
            "bytes per token": cache.nbytes // 100,
        }
    return values


if __name__ == "__main__":
    repeat(run, __file__)
