"""The Transformer with the calls of ``EncoderDecoder``, so that it runs under the same protocol."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attn_course.masks import padding_mask
from attn_course.nn import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    SinusoidalPositions,
    TokenEmbedding,
    Transformer,
    TransformerDecoder,
    TransformerEncoder,
    capture,
)
from attn_course.train import start_from_source


class Translator(nn.Module):
    """A Transformer behind ``forward``, ``init_state`` and ``step`` of ``EncoderDecoder``.

    Args:
        transformer: Any with ``encode`` and ``decode``.
    """

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        self.transformer = transformer

    def forward(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, " B"] | None,
        target_in: Int[Tensor, "B L"],
    ) -> Float[Tensor, "B L V"]:
        """Logits for every position of a known target, whose padding is at the end.

        Args:
            source: Padded ids.
            source_lengths: How many ids of each row count; all, if ``None``.
            target_in: The target, shifted; no position looks ahead into its padding.
        """
        logits: Tensor = self.transformer(
            source, _real(source, source_lengths), decoder_input_ids=target_in
        )
        return logits

    def init_state(
        self, source: Int[Tensor, "B S"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> Any:
        """Read the source; the state from which :meth:`step` starts: memory, mask and cache."""
        return start_from_source(self.transformer, source, _real(source, source_lengths)).state

    def step(self, token: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        """Logits for the next token after ``token``, and the next state."""
        memory, mask, cache = state
        logits = self.transformer.decode(token.unsqueeze(1), memory, mask, cache=cache)
        return logits[:, -1], state

    @torch.no_grad()
    def look_back(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, " B"],
        target_in: Int[Tensor, "B L"],
    ) -> Float[Tensor, "B L S"]:
        """Where each target position looks: the cross-attention of the last block, mean of heads.

        Args:
            source: Padded ids.
            source_lengths: How many ids of each row count.
            target_in: The target, shifted.
        """
        last = len(self.transformer.decoder.blocks) - 1
        place = f"transformer.decoder.blocks.{last}.cross_attention.weights"
        with capture(self, place) as seen:
            self(source, source_lengths, target_in)
        weights: Tensor = seen[place]  # (B, H, L, S)
        return weights.mean(dim=1)


def _real(source: Tensor, lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else padding_mask(lengths, source.shape[1])


def translator(
    *,
    source_vocab: int,
    target_vocab: int,
    embed_dim: int,
    hidden_dim: int,
    num_layers: int = 2,
    num_heads: int = 4,
) -> Translator:
    """Vaswani's model in pre-norm order with a vocabulary for each language.

    The output is tied to the target's embedding and has a bias, as in Marian; no dropout, since
    the recurrent models have none.

    Args:
        source_vocab: Number of source ids.
        target_vocab: Number of target ids.
        embed_dim: Width.
        hidden_dim: Of the feed-forward parts.
        num_layers: Of each stack.
        num_heads: Of every attention.
    """

    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(embed_dim=embed_dim, num_heads=num_heads, bias=False)

    def feed_forward() -> FeedForward:
        return FeedForward(embed_dim=embed_dim, hidden_dim=hidden_dim)

    def norm() -> LayerNorm:
        return LayerNorm(embed_dim=embed_dim)

    def embedding(vocab_size: int) -> TokenEmbedding:
        return TokenEmbedding(
            vocab_size=vocab_size,
            embed_dim=embed_dim,
            position=SinusoidalPositions(embed_dim=embed_dim),
            scale=math.sqrt(embed_dim),
            std=embed_dim**-0.5,
        )

    encoder = [
        EncoderBlock(
            attention=attention(),
            attention_norm=norm(),
            feed_forward=feed_forward(),
            feed_forward_norm=norm(),
            norm_first=True,
        )
        for _ in range(num_layers)
    ]
    decoder = [
        DecoderBlock(
            self_attention=attention(),
            self_attention_norm=norm(),
            cross_attention=attention(),
            cross_attention_norm=norm(),
            feed_forward=feed_forward(),
            feed_forward_norm=norm(),
            norm_first=True,
        )
        for _ in range(num_layers)
    ]
    return Translator(
        Transformer(
            source_embedding=embedding(source_vocab),
            target_embedding=embedding(target_vocab),
            encoder=TransformerEncoder(blocks=encoder, norm=norm()),
            decoder=TransformerDecoder(blocks=decoder, norm=norm()),
            logits_bias=True,
        )
    )
