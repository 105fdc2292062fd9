"""The models by name, and the hidden size that spends a budget of parameters."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attn_course.nn import (
    AttentionEncoderDecoder,
    BahdanauDecoder,
    BidirectionalEncoder,
    Decoder,
    Encoder,
    EncoderDecoder,
    LuongDecoder,
    make_score,
)
from experiments.translation.transformer import translator


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


def _forward_encoder(sizes: Sizes, hidden_size: int) -> Encoder:
    return Encoder(
        vocab_size=sizes.source_vocab, embed_dim=sizes.embed_dim, hidden_size=hidden_size
    )


def _plain(sizes: Sizes, hidden_size: int) -> nn.Module:
    """Cho's encoder-decoder: one context vector, seen at every step."""
    return EncoderDecoder(
        encoder=_forward_encoder(sizes, hidden_size),
        decoder=Decoder(
            vocab_size=sizes.target_vocab,
            embed_dim=sizes.embed_dim,
            context_size=hidden_size,
            hidden_size=hidden_size,
        ),
    )


def _bahdanau(sizes: Sizes, hidden_size: int, *, both_ways: bool) -> nn.Module:
    """Bahdanau's model; read forwards only it is ``plain`` with another context at every step."""
    return AttentionEncoderDecoder(
        encoder=BidirectionalEncoder(
            vocab_size=sizes.source_vocab, embed_dim=sizes.embed_dim, hidden_size=hidden_size
        )
        if both_ways
        else _forward_encoder(sizes, hidden_size),
        decoder=BahdanauDecoder(
            vocab_size=sizes.target_vocab,
            embed_dim=sizes.embed_dim,
            context_size=2 * hidden_size if both_ways else hidden_size,
            summary_size=hidden_size,
            hidden_size=hidden_size,
        ),
    )


def _luong(sizes: Sizes, hidden_size: int, *, score: str) -> nn.Module:
    """Luong's global attention with input feeding; the encoder reads forwards, as in the paper."""
    return AttentionEncoderDecoder(
        encoder=_forward_encoder(sizes, hidden_size),
        decoder=LuongDecoder(
            vocab_size=sizes.target_vocab,
            embed_dim=sizes.embed_dim,
            context_size=hidden_size,
            summary_size=hidden_size,
            hidden_size=hidden_size,
            score=make_score(
                score,
                query_size=hidden_size,
                key_size=hidden_size,
                hidden_size=hidden_size,
                max_length=sizes.max_source,
            ),
        ),
    )


def _transformer(sizes: Sizes, hidden_size: int) -> nn.Module:
    """Half as wide again as the embeddings of the others: all its layers have that one width.

    The hidden size is that of the feed-forward parts.
    """
    return translator(
        source_vocab=sizes.source_vocab,
        target_vocab=sizes.target_vocab,
        embed_dim=8 * max(1, round(3 * sizes.embed_dim / 16)),
        hidden_dim=hidden_size,
    )


BUILDERS: dict[str, Callable[[Sizes, int], nn.Module]] = {
    "plain": _plain,
    "bahdanau": functools.partial(_bahdanau, both_ways=True),
    "bahdanau_forward": functools.partial(_bahdanau, both_ways=False),
    **{
        score: functools.partial(_luong, score=score)
        for score in ("dot", "general", "concat", "location", "scaled_dot", "cosine")
    },
    "transformer": _transformer,
}


def build(name: str, sizes: Sizes, *, hidden_size: int) -> Any:
    """An untrained model with ``forward``, ``init_state`` and ``step`` of ``EncoderDecoder``.

    All start alike: embeddings from the standard normal distribution, matrices from Glorot's
    uniform one, which keeps the signal of Luong's two squashed layers as large as that of the
    plain decoder, whose output sees the embeddings directly. The Transformer's embeddings are of
    that size where its first block sees them.

    Raises:
        ValueError: If there is no such model.
    """
    if name not in BUILDERS:
        raise ValueError(f"name: expected one of {', '.join(BUILDERS)}, got {name}")
    model = BUILDERS[name](sizes, hidden_size)
    embeddings = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    for parameter in model.parameters():
        if parameter.ndim == 2 and id(parameter) not in embeddings:
            nn.init.xavier_uniform_(parameter)
    return model


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
