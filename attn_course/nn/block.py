"""One block of a Transformer: attention, then a feed-forward part, each added to its input."""

from collections.abc import Callable
from functools import partial
from typing import Any

from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from attn_course.nn.cache import DecoderCache, KVCache, SlidingCache, takes_cache
from attn_course.nn.feed_forward import FeedForward
from attn_course.nn.multihead import MultiHeadAttention
from attn_course.nn.norms import LayerNorm
from attn_course.nn.parameters import check_callable


def add_residual(
    x: Float[Tensor, "B L D"],
    sublayer: Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor],
    dropout: Callable[[Tensor], Tensor],
    *,
    norm_first: bool,
) -> Float[Tensor, "B L D"]:
    r"""The input plus what a sub-layer makes of it.

    .. math:: \text{post-norm: } \mathrm{norm}(x + f(x)), \qquad
       \text{pre-norm: } x + f(\mathrm{norm}(x))

    Post-norm: Vaswani et al. (2017), section 3.1. Pre-norm: Xiong et al. (2020), who compare both:
    the gradient passes from output to input unchanged, and a norm is needed after the last block.
    """
    if norm_first:
        return x + dropout(sublayer(norm(x)))
    return norm(x + dropout(sublayer(x)))


class EncoderBlock(nn.Module):
    r"""Self-attention and a feed-forward part, each with a residual connection and a norm.

    Vaswani et al. (2017), section 3.1. With ``is_causal`` it is the block of a decoder-only model.

    Differs from torch: the parts are passed in; a mask is True where a query may attend.

    Args:
        attention: Such as :class:`~attn_course.nn.MultiHeadAttention` or
            :class:`~attn_course.nn.MultiHeadLatentAttention`.
        attention_norm: Norm of the attention's residual connection.
        feed_forward: Such as :class:`~attn_course.nn.FeedForward`; None leaves it out, as in
            attention-only models (Elhage et al., 2021).
        feed_forward_norm: Norm of its residual connection, given if and only if it is.
        norm_first: Pre-norm; otherwise post-norm, as in the paper.
        dropout: Chance that an element of what a sub-layer adds is dropped, in training mode.

    Example:
        >>> block = EncoderBlock(
        ...     attention=MultiHeadAttention(embed_dim=8, num_heads=2),
        ...     attention_norm=LayerNorm(embed_dim=8),
        ...     feed_forward=FeedForward(embed_dim=8, hidden_dim=32),
        ...     feed_forward_norm=LayerNorm(embed_dim=8),
        ... )
        >>> block(torch.randn(1, 5, 8), is_causal=True).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        *,
        attention: nn.Module,
        attention_norm: nn.Module,
        feed_forward: nn.Module | None = None,
        feed_forward_norm: nn.Module | None = None,
        norm_first: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if (feed_forward is None) != (feed_forward_norm is None):
            raise ValueError("feed_forward, feed_forward_norm: expected both or neither")
        check_callable("a module", attention=attention, attention_norm=attention_norm)
        self.attention, self.attention_norm = attention, attention_norm
        self.feed_forward, self.feed_forward_norm = feed_forward, feed_forward_norm
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B L D"],
        attn_mask: Shaped[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
        cache: KVCache | SlidingCache | None = None,
        **options: Any,
    ) -> Float[Tensor, "B L D"]:
        """The vectors after this block; arguments as in :meth:`MultiHeadAttention.forward`.

        ``options`` are further ones of the attention, such as ``global_mask`` of
        :class:`~attn_course.nn.LongformerSelfAttention`.
        """
        attend = partial(
            self.attention,
            attn_mask=attn_mask,
            is_causal=is_causal,
            positions=positions,
            cache=cache,
            **options,
        )
        join = partial(add_residual, dropout=self.dropout, norm_first=self.norm_first)
        x = join(x, attend, self.attention_norm)
        if self.feed_forward is not None and self.feed_forward_norm is not None:
            x = join(x, self.feed_forward, self.feed_forward_norm)
        return x

    @classmethod
    def from_torch(cls, layer: nn.TransformerEncoderLayer) -> "EncoderBlock":
        """The same block as one of torch's, with a copy of its weights."""
        made = cls(
            attention=MultiHeadAttention.from_torch(layer.self_attn),
            attention_norm=_norm_like(layer.norm1),
            feed_forward=_feed_forward_like(layer),
            feed_forward_norm=_norm_like(layer.norm2),
            norm_first=layer.norm_first,
            dropout=layer.dropout1.p,
        )
        return made.train(layer.training)


class DecoderBlock(nn.Module):
    r"""Causal self-attention, attention over the encoder's output, and a feed-forward part.

    Vaswani et al. (2017), section 3.1.

    Differs from torch: the parts are passed in; a mask is True where a query may attend;
    ``is_causal`` masks, and is no hint about a mask.

    Args:
        self_attention: Over the target so far.
        self_attention_norm: Norm of its residual connection.
        cross_attention: From the target to the memory.
        cross_attention_norm: Norm of its residual connection.
        feed_forward: As of :class:`EncoderBlock`, like all that follows.

    Example:
        >>> block = DecoderBlock(
        ...     self_attention=MultiHeadAttention(embed_dim=8, num_heads=2),
        ...     self_attention_norm=LayerNorm(embed_dim=8),
        ...     cross_attention=MultiHeadAttention(embed_dim=8, num_heads=2),
        ...     cross_attention_norm=LayerNorm(embed_dim=8),
        ...     feed_forward=FeedForward(embed_dim=8, hidden_dim=32),
        ...     feed_forward_norm=LayerNorm(embed_dim=8),
        ... )
        >>> block(torch.randn(1, 5, 8), torch.randn(1, 7, 8), is_causal=True).shape
        torch.Size([1, 5, 8])
    """

    def __init__(
        self,
        *,
        self_attention: nn.Module,
        self_attention_norm: nn.Module,
        cross_attention: nn.Module,
        cross_attention_norm: nn.Module,
        feed_forward: nn.Module,
        feed_forward_norm: nn.Module,
        norm_first: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.self_attention, self.self_attention_norm = self_attention, self_attention_norm
        self.cross_attention, self.cross_attention_norm = cross_attention, cross_attention_norm
        self.feed_forward, self.feed_forward_norm = feed_forward, feed_forward_norm
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)

    @takes_cache("self_attention", "a DecoderCache")
    def forward(
        self,
        x: Float[Tensor, "B L D"],
        memory: Float[Tensor, "B S Dm"],
        attn_mask: Shaped[Tensor, "..."] | None = None,
        memory_mask: Shaped[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "B L D"]:
        """The vectors after this block.

        Args:
            x: One vector per position of the target.
            memory: One vector per position of the source.
            attn_mask: Mask of the self-attention, as in :meth:`MultiHeadAttention.forward`.
            memory_mask: Mask of the cross-attention, likewise.
            is_causal: Whether later positions of the target are masked.
            positions: Positions of the target's tokens, negative at padding.
            cache: Keys and values of earlier steps, and those of the memory.
        """
        attend = partial(
            self.self_attention,
            attn_mask=attn_mask,
            is_causal=is_causal,
            positions=positions,
            cache=None if cache is None else cache.self_attention,
        )
        attend_memory = partial(
            self.cross_attention,
            key=memory,
            attn_mask=memory_mask,
            cache=None if cache is None else cache.cross_attention,
        )
        join = partial(add_residual, dropout=self.dropout, norm_first=self.norm_first)
        x = join(x, attend, self.self_attention_norm)
        x = join(x, attend_memory, self.cross_attention_norm)
        return join(x, self.feed_forward, self.feed_forward_norm)

    @classmethod
    def from_torch(cls, layer: nn.TransformerDecoderLayer) -> "DecoderBlock":
        """The same block as one of torch's, with a copy of its weights."""
        made = cls(
            self_attention=MultiHeadAttention.from_torch(layer.self_attn),
            self_attention_norm=_norm_like(layer.norm1),
            cross_attention=MultiHeadAttention.from_torch(layer.multihead_attn),
            cross_attention_norm=_norm_like(layer.norm2),
            feed_forward=_feed_forward_like(layer),
            feed_forward_norm=_norm_like(layer.norm3),
            norm_first=layer.norm_first,
            dropout=layer.dropout1.p,
        )
        return made.train(layer.training)


def _norm_like(norm: nn.LayerNorm) -> LayerNorm:
    made = LayerNorm(
        embed_dim=norm.normalized_shape[0], eps=norm.eps, bias=norm.bias is not None
    ).to(norm.weight)
    made.load_state_dict(norm.state_dict())
    return made


def _feed_forward_like(
    layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer,
) -> FeedForward:
    made = FeedForward(
        embed_dim=layer.linear1.in_features,
        hidden_dim=layer.linear1.out_features,
        activation=layer.activation,
        bias=layer.linear1.bias is not None,
        dropout=layer.dropout.p,
    ).to(layer.linear1.weight)
    made.up_projection.load_state_dict(layer.linear1.state_dict())
    made.down_projection.load_state_dict(layer.linear2.state_dict())
    return made
