"""The models by name, and the hidden size that spends a budget of parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attn_course.nn import Decoder, Encoder, EncoderDecoder


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a model is built from, but the hidden size.

    Attributes:
        source_vocab: Number of source pieces.
        target_vocab: Number of target pieces.
        embed_dim: Size of an embedding.
        max_source: Longest source of all, which the location score has weights for.
    """

    source_vocab: int
    target_vocab: int
    embed_dim: int
    max_source: int


def _plain(sizes: Sizes, hidden_size: int) -> nn.Module:
    return EncoderDecoder(
        encoder=Encoder(
            vocab_size=sizes.source_vocab, embed_dim=sizes.embed_dim, hidden_size=hidden_size
        ),
        decoder=Decoder(
            vocab_size=sizes.target_vocab,
            embed_dim=sizes.embed_dim,
            context_size=hidden_size,
            hidden_size=hidden_size,
        ),
    )


BUILDERS: dict[str, Callable[[Sizes, int], nn.Module]] = {"plain": _plain}


def build(name: str, sizes: Sizes, *, hidden_size: int) -> Any:
    """An untrained model with ``forward``, ``init_state`` and ``step`` of ``EncoderDecoder``.

    Raises:
        ValueError: If there is no such model.
    """
    if name not in BUILDERS:
        raise ValueError(f"name: expected one of {', '.join(BUILDERS)}, got {name}")
    return BUILDERS[name](sizes, hidden_size)


def count(model: nn.Module) -> int:
    """Number of trained parameters."""
    return sum(each.numel() for each in model.parameters() if each.requires_grad)


def fitted_hidden_size(name: str, sizes: Sizes, *, parameters: int, within: float = 0.01) -> int:
    """The hidden size that comes nearest to a budget.

    Args:
        name: Which model.
        sizes: Its other sizes.
        parameters: The budget.
        within: How far from it, as a share, is still called equal.

    Raises:
        ValueError: If no hidden size comes that near.
    """

    def cost(hidden_size: int) -> int:
        with torch.device("meta"):  # shapes without numbers
            return count(build(name, sizes, hidden_size=hidden_size))

    low, high = 1, 2
    while cost(high) < parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) < parameters else (low, middle)
    best = min(low, high, key=lambda size: abs(cost(size) - parameters))
    if abs(cost(best) - parameters) > within * parameters:
        raise ValueError(
            f"parameters: expected a budget that {name} can meet within {within:.0%}, got "
            f"{parameters}; the nearest is {cost(best)} at hidden size {best}"
        )
    return best
