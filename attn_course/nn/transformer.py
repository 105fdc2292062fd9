"""The Transformer: a stack that reads the source, and a stack that writes the target."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from attn_course._calls import explained
from attn_course._checks import check_size
from attn_course.nn.block import DecoderBlock, EncoderBlock
from attn_course.nn.cache import (
    CrossCache,
    DecoderCache,
    KVCache,
    ModelCache,
    SlidingCache,
    takes_cache,
)
from attn_course.nn.embeddings import TokenEmbedding, real_positions
from attn_course.nn.feed_forward import FeedForward
from attn_course.nn.multihead import MultiHeadAttention
from attn_course.nn.norms import LayerNorm
from attn_course.nn.parameters import check_makers
from attn_course.nn.positions import SinusoidalPositions


class TransformerEncoder(nn.Module):
    r"""Encoder blocks in sequence: :math:`x^{n+1} = \mathrm{block}_n(x^n)`.

    Args:
        blocks: Such as :class:`~attn_course.nn.EncoderBlock`.
        norm: Applied to the result; a pre-norm stack needs one.

    Example:
        >>> model = vaswani_like(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2)
        >>> model.encoder(torch.randn(1, 5, 8)).shape
        torch.Size([1, 5, 8])
    """

    def __init__(self, *, blocks: Iterable[nn.Module], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks, self.norm = nn.ModuleList(blocks), norm

    @takes_cache("__getitem__", "one for each block, such as model.new_cache().layers")
    def forward(
        self,
        x: Float[Tensor, "B L D"],
        attn_mask: Shaped[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
        cache: Sequence[KVCache | SlidingCache] | None = None,
        **options: Any,
    ) -> Float[Tensor, "B L D"]:
        """The vectors after the last block; arguments as in :meth:`EncoderBlock.forward`.

        ``cache`` has one for each block.
        """
        for number, block in enumerate(self.blocks):
            layer = None if cache is None else cache[number]
            x = block(
                x, attn_mask, is_causal=is_causal, positions=positions, cache=layer, **options
            )
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(nn.Module):
    """Decoder blocks in sequence, all of which attend to the same memory.

    Arguments as of :class:`TransformerEncoder`, with :class:`~attn_course.nn.DecoderBlock`.

    Example:
        >>> model = vaswani_like(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2)
        >>> model.decoder(torch.randn(1, 5, 8), torch.randn(1, 7, 8), is_causal=True).shape
        torch.Size([1, 5, 8])
    """

    def __init__(self, *, blocks: Iterable[nn.Module], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks, self.norm = nn.ModuleList(blocks), norm

    @takes_cache("__getitem__", "one for each block, such as model.new_cache().layers")
    def forward(
        self,
        x: Float[Tensor, "B L D"],
        memory: Float[Tensor, "B S Dm"],
        attn_mask: Shaped[Tensor, "..."] | None = None,
        memory_mask: Shaped[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
        cache: Sequence[DecoderCache] | None = None,
    ) -> Float[Tensor, "B L D"]:
        """The vectors after the last block; arguments as in :meth:`DecoderBlock.forward`.

        ``cache`` has one for each block.
        """
        for number, block in enumerate(self.blocks):
            x = block(
                x,
                memory,
                attn_mask,
                memory_mask,
                is_causal=is_causal,
                positions=positions,
                cache=None if cache is None else cache[number],
            )
        return x if self.norm is None else self.norm(x)


class Transformer(nn.Module):
    r"""Sequence to sequence, without recurrence: Vaswani et al. (2017), figure 1.

    .. math:: M = \mathrm{encoder}(E_s[x]), \qquad
       \mathrm{logits} = W\, \mathrm{decoder}(E_t[y], M) + b

    Pass the same embedding twice to share it; without ``output_projection`` :math:`W` is the table
    of the target's embedding (section 3.4). :func:`vaswani_like` builds the paper's models.

    Args:
        source_embedding: From ids of the source to vectors.
        target_embedding: From ids of the target to vectors.
        encoder: Stack of encoder blocks.
        decoder: Stack of decoder blocks.
        output_projection: From vectors to logits; the target embedding's table if not given.
        logits_scale: Factor of the vectors before it; :math:`1/\sqrt D` in T5 with tied tables.
        logits_bias: Whether there is :math:`b`, one number per word, as in Marian; 0 at first.

    Example:
        >>> model = vaswani_like(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2)
        >>> source, target = torch.randint(11, (1, 7)), torch.randint(11, (1, 5))
        >>> model(source, decoder_input_ids=target).shape
        torch.Size([1, 5, 11])
    """

    def __init__(
        self,
        *,
        source_embedding: TokenEmbedding,
        target_embedding: TokenEmbedding,
        encoder: TransformerEncoder,
        decoder: TransformerDecoder,
        output_projection: nn.Module | None = None,
        logits_scale: float = 1.0,
        logits_bias: bool = False,
    ) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding = source_embedding, target_embedding
        self.encoder, self.decoder = encoder, decoder
        self.output_projection = output_projection
        self.logits_scale = logits_scale
        words = target_embedding.tokens.num_embeddings
        self.logits_bias = nn.Parameter(torch.zeros(words)) if logits_bias else None

    def encode(
        self, input_ids: Int[Tensor, "B S"], padding_mask: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S D"]:
        """The memory: one vector per token of the source; arguments as in :meth:`forward`."""
        positions = None if padding_mask is None else real_positions(padding_mask, input_ids)
        x = self.source_embedding(input_ids, positions)
        return self.encoder(x, positions=positions)

    @takes_cache("layers", "model.new_cache()")
    def decode(
        self,
        decoder_input_ids: Int[Tensor, "B L"],
        memory: Float[Tensor, "B S D"],
        padding_mask: Bool[Tensor, "B S"] | None = None,
        decoder_padding_mask: Bool[Tensor, "B L"] | None = None,
        *,
        cache: ModelCache | None = None,
    ) -> Float[Tensor, "B L V"]:
        """Logits of the next token after each token of the target; arguments as in :meth:`forward`.

        With a cache from :meth:`new_cache`, ``decoder_input_ids`` are the new tokens only, and
        ``memory`` (from :meth:`encode`) is always the same.
        """
        check_size("memory", memory, 0, decoder_input_ids.shape[0])
        past = 0 if cache is None else cache.length
        positions = cached_positions(decoder_input_ids, decoder_padding_mask, cache)
        x = self.target_embedding(decoder_input_ids, positions, past=past)
        hidden = self.decoder(
            x,
            memory,
            memory_mask=None if padding_mask is None else padding_mask[:, None, None, :],
            is_causal=True,
            positions=positions,
            cache=None if cache is None else cache.layers,
        )
        return self.logits(hidden)

    def logits(self, hidden: Float[Tensor, "B L D"]) -> Float[Tensor, "B L V"]:
        """One logit per word from the decoder's vectors."""
        if self.logits_scale != 1.0:
            hidden = hidden * self.logits_scale
        project = self.output_projection or self.target_embedding.logits
        logits: Tensor = project(hidden)
        return logits if self.logits_bias is None else logits + self.logits_bias

    def forward(
        self,
        input_ids: Int[Tensor, "B S"],
        padding_mask: Bool[Tensor, "B S"] | None = None,
        *,
        decoder_input_ids: Int[Tensor, "B L"],
        decoder_padding_mask: Bool[Tensor, "B L"] | None = None,
    ) -> Float[Tensor, "B L V"]:
        """Logits of the next token after each token of the target, all at once.

        The target begins with the start symbol; masks are True at real tokens.
        """
        memory = self.encode(input_ids, padding_mask)
        return self.decode(decoder_input_ids, memory, padding_mask, decoder_padding_mask)

    def new_cache(self, make: Callable[[], KVCache | SlidingCache] = KVCache) -> ModelCache:
        """An empty cache for one batch of sources; as :meth:`LanguageModel.new_cache`."""
        check_makers("functools.partial(KVCache, max_length=100)", make=make)
        return ModelCache([DecoderCache(make(), CrossCache()) for _ in self.decoder.blocks])


def cached_positions(
    input_ids: Int[Tensor, "B L"],
    padding_mask: Bool[Tensor, "B L"] | None,
    cache: ModelCache | None,
) -> Int[Tensor, "B L"] | None:
    """Positions of new tokens in a batch with padding; None where there is none.

    The cache counts the real tokens of each row from the first padding mask on.
    """
    real = None if cache is None else cache.real
    if real is not None:
        check_size("input_ids", input_ids, 0, len(real))
    if padding_mask is None:
        if real is None:
            return None
        padding_mask = torch.ones_like(input_ids, dtype=torch.bool)
    positions = real_positions(padding_mask, input_ids, past=real)
    if cache is not None:
        if real is None and cache.length:
            raise ValueError("padding_mask: expected from the first call of a cache on, or never")
        cache.real = padding_mask.sum(-1) if real is None else real + padding_mask.sum(-1)
    return positions


@explained
def vaswani_like(
    *,
    vocab_size: int,
    embed_dim: int = 512,
    num_heads: int = 8,
    num_layers: int = 6,
    hidden_dim: int = 2048,
    head_dim: int | None = None,
    value_head_dim: int | None = None,
    norm_first: bool = False,
    dropout: float = 0.1,
) -> Transformer:
    r"""The models of Vaswani et al. (2017), Table 3: one table of words for source, target, output.

    The defaults are the base model; the big one has ``embed_dim=1024, num_heads=16,
    hidden_dim=4096, dropout=0.3``. Projections of the attention have no bias, as in the paper's
    formulas; those of the feed-forward part have one.

    With :math:`D` the width, :math:`F` the hidden width, :math:`N` the layers and :math:`V` the
    words, the parameters are

    .. math:: V D + N \left[ \underbrace{4 D^2 + (2 D F + F + D) + 2 \cdot 2 D}_{\text{encoder}}
       + \underbrace{2 \cdot 4 D^2 + (2 D F + F + D) + 3 \cdot 2 D}_{\text{decoder}} \right]

    which is 44,101,632 + 512 V for the base model. The paper prints 65 million and "about 37000"
    words, which make 63,045,632; with 41,004 to 41,208 words all rows (A) to (C) of its Table 3
    agree with the print. The big model, printed as 213 million, has 214,171,648 and 218 million.

    Args:
        vocab_size: Words, shared by source and target.
        head_dim: The paper's :math:`d_k`; ``embed_dim / num_heads`` if not given.
        value_head_dim: The paper's :math:`d_v`; ``head_dim`` if not given.
        norm_first: Pre-norm, with a last norm on both stacks.

    Example:
        >>> sizes = {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "hidden_dim": 16}
        >>> model = vaswani_like(vocab_size=11, **sizes)
        >>> model(torch.tensor([[4, 5, 6]]), decoder_input_ids=torch.tensor([[1, 4]])).shape
        torch.Size([1, 2, 11])
    """
    attention = partial(
        MultiHeadAttention,
        embed_dim=embed_dim,
        num_heads=num_heads,
        head_dim=head_dim,
        value_head_dim=value_head_dim,
        bias=False,
    )
    feed_forward = partial(FeedForward, embed_dim=embed_dim, hidden_dim=hidden_dim)
    norm = partial(LayerNorm, embed_dim=embed_dim)

    def encoder_block() -> EncoderBlock:
        return EncoderBlock(
            attention=attention(),
            attention_norm=norm(),
            feed_forward=feed_forward(),
            feed_forward_norm=norm(),
            norm_first=norm_first,
            dropout=dropout,
        )

    def decoder_block() -> DecoderBlock:
        return DecoderBlock(
            self_attention=attention(),
            self_attention_norm=norm(),
            cross_attention=attention(),
            cross_attention_norm=norm(),
            feed_forward=feed_forward(),
            feed_forward_norm=norm(),
            norm_first=norm_first,
            dropout=dropout,
        )

    embedding = TokenEmbedding(
        vocab_size=vocab_size,
        embed_dim=embed_dim,
        position=SinusoidalPositions(embed_dim=embed_dim),
        scale=math.sqrt(embed_dim),
        dropout=dropout,
        std=embed_dim**-0.5,
    )
    return Transformer(
        source_embedding=embedding,
        target_embedding=embedding,
        encoder=TransformerEncoder(
            blocks=[encoder_block() for _ in range(num_layers)], norm=norm() if norm_first else None
        ),
        decoder=TransformerDecoder(
            blocks=[decoder_block() for _ in range(num_layers)], norm=norm() if norm_first else None
        ),
    )
