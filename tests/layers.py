"""Attention layers with every kind of position, for tests of layers and of their caches."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attn_course import nn as ours

POSITIONS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "rope": ours.RotaryPositions,
    "alibi": lambda: ours.AlibiPositions(num_heads=6),
    "t5": lambda: ours.RelativePositions(
        num_heads=6, bidirectional=False, num_buckets=5, max_distance=9
    ),
}


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def drawn(module: Any, std: float = 0.3) -> Any:
    """The module in float64, with weights and biases that all matter: many begin at 0 or 1."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module.double()


def attention(position: str, embed_dim: int, **options: Any) -> ours.MultiHeadAttention:
    """Six heads over three of keys."""
    sizes = {"embed_dim": embed_dim, "num_heads": 6, "num_kv_heads": 3, "head_dim": 4}
    return drawn(ours.MultiHeadAttention(**sizes, position=POSITIONS[position](), **options))
