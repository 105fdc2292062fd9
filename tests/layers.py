"""Attention layers with every kind of position, for tests of layers and of their caches."""

from collections.abc import Callable
from typing import Any

from torch import nn

from attn_course import nn as ours

POSITIONS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "rope": ours.RotaryPositions,
    "alibi": lambda: ours.AlibiPositions(num_heads=6),
    "t5": lambda: ours.RelativePositions(
        num_heads=6, bidirectional=False, num_buckets=5, max_distance=9
    ),
}


def attention(position: str, embed_dim: int, **options: Any) -> ours.MultiHeadAttention:
    """Six heads over three of keys, in float64, with weights and biases that all matter."""
    sizes = {"embed_dim": embed_dim, "num_heads": 6, "num_kv_heads": 3, "head_dim": 4}
    module = ours.MultiHeadAttention(**sizes, position=POSITIONS[position](), **options)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.double()
