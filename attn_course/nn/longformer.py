"""Self-attention in a window, and to a few global positions with projections of their own."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from attn_course._checks import check_axes, check_size, check_tensor, compiling
from attn_course.functional.banded_attention import (
    attend_globally,
    check_global_mask,
    global_positions,
    put_positions,
    sliding_window_attention,
    window_sides,
)
from attn_course.functional.scaled_dot_product import scaled_dot_product_attention
from attn_course.nn.feed_forward import xavier_
from attn_course.nn.look import split_heads


class LongformerSelfAttention(nn.Module):
    r"""A window for every position; global positions are seen by all, and see all.

    .. math::
       o_i = \begin{cases}
       \mathrm{Attention}(q_i, K_{S_i}, V_{S_i}), & S_i = \mathrm{window}(i) \cup \mathcal G
       & i \notin \mathcal G \\
       \mathrm{Attention}(q^g_i, K^g, V^g) & & i \in \mathcal G
       \end{cases}

    Beltagy et al. (2020), section 3.1: :math:`q^g, K^g, V^g` have projections of their own, as a
    global position asks something else. They start as copies of the local ones. Time and memory
    grow with L·(W + G).

    Parameters: those of :class:`~attn_course.nn.MultiHeadAttention`, and
    ``global_query_projection``, ``global_key_projection`` and ``global_value_projection``.

    Differs from Hugging Face: ``window_size`` counts the query itself, their ``attention_window``
    plus one; any length will do; no weights are dropped in training.

    Args:
        embed_dim: Size :math:`D` of inputs and outputs.
        num_heads: Heads.
        window_size: How many keys a position sees, itself included; odd.
        dilation: Distance of neighbours in the window; a list has one for each head.
        bias: Whether the projections have a bias.

    Raises:
        ValueError: If sizes do not divide, or the window is even.
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        window_size: int,
        dilation: int | Sequence[int] = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(
                f"embed_dim: expected a multiple of num_heads ({num_heads}), got {embed_dim}"
            )
        window_sides(window_size, is_causal=False)
        each = [dilation] if isinstance(dilation, int) else list(dilation)
        if min(each, default=0) < 1 or len(each) not in (1, num_heads):
            raise ValueError(
                f"dilation: expected a positive number, or {num_heads} of them, got {dilation}"
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.window_size, self.dilation = window_size, dilation
        self.query_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.value_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.global_query_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.global_key_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.global_value_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.output_projection = nn.Linear(embed_dim, embed_dim, bias=bias)
        for local, wide in (
            (self.query_projection, self.global_query_projection),
            (self.key_projection, self.global_key_projection),
            (self.value_projection, self.global_value_projection),
        ):
            xavier_(local)
            wide.load_state_dict(local.state_dict())
        xavier_(self.output_projection)

    def forward(
        self,
        x: Float[Tensor, "B L D"],
        attn_mask: Shaped[Tensor, "..."] | None = None,
        *,
        global_mask: Bool[Tensor, "B L"] | None = None,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
        cache: None = None,
    ) -> Float[Tensor, "B L D"]:
        """What each position found.

        Args:
            x: One vector per position.
            attn_mask: Padding, ``(B or 1, 1, 1, L)``: True = a key that counts.
            global_mask: True = a global position.
            is_causal: Whether later positions are hidden, from global ones too.
            positions: Negative at padding, which is hidden; the rest does not matter here.
            cache: Refused unless None.

        Raises:
            ValueError: If shapes do not fit, or a mask is more than padding.
        """
        check_axes("x", x, "B L D")
        check_size("x", x, -1, self.embed_dim)
        if cache is not None:
            raise ValueError("cache: expected None, windows with global positions have no cache")
        if attn_mask is not None:
            check_tensor("attn_mask", attn_mask)
            if attn_mask.dtype != torch.bool:
                raise ValueError(f"attn_mask: expected booleans, got {attn_mask.dtype}")
        if positions is not None:
            real = (positions >= 0)[:, None, None]
            attn_mask = real if attn_mask is None else attn_mask & real
        query, key, value = (
            split_heads(project(x), self.num_heads)
            for project in (self.query_projection, self.key_projection, self.value_projection)
        )
        if global_mask is not None:
            check_global_mask(global_mask, query)
        heads = sliding_window_attention(
            query,
            key,
            value,
            attn_mask,
            window_size=self.window_size,
            dilation=self.dilation,
            is_causal=is_causal,
            global_mask=global_mask,
            symmetric=False,
        )
        if global_mask is not None:
            padding = None if attn_mask is None else attn_mask[:, 0, 0].expand(len(x), -1)
            heads = self._globally(heads, x, global_mask, padding, is_causal)
        output: Tensor = self.output_projection(heads.transpose(1, 2).flatten(2))  # (B, L, D)
        return output

    def _globally(
        self,
        heads: Float[Tensor, "B H L E"],
        x: Float[Tensor, "B L D"],
        global_mask: Bool[Tensor, "B L"],
        real: Bool[Tensor, "B L"] | None,
        is_causal: bool,
    ) -> Float[Tensor, "B H L E"]:
        """The rows of the global positions, which see all with projections of their own."""
        if real is not None:
            global_mask = global_mask & real
        traced = compiling()
        if not traced and not global_mask.any():
            return heads
        key = split_heads(self.global_key_projection(x), self.num_heads)
        value = split_heads(self.global_value_projection(x), self.num_heads)
        if traced:  # how many they are is not known: all rows are computed
            query = split_heads(self.global_query_projection(x), self.num_heads)
            mask = None if real is None else real[:, None, None]
            if is_causal:
                past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
                mask = past if mask is None else mask & past
            found = scaled_dot_product_attention(query, key, value, mask)
            return torch.where(global_mask[:, None, :, None], found, heads)
        chosen = global_positions(global_mask)
        index = chosen.places[..., None].expand(-1, -1, self.embed_dim)
        query = split_heads(self.global_query_projection(x.gather(1, index)), self.num_heads)
        found = attend_globally(query, key, value, chosen, real, is_causal=is_causal)
        return put_positions(heads, found, chosen)
