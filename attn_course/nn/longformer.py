"""Self-attention in a window and to a few global positions, which have own projections."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from attn_course._checks import has_values
from attn_course.functional._global_positions import (
    attend_globally,
    check_global_mask,
    global_positions,
    put_positions,
)
from attn_course.functional._windows import window_sides
from attn_course.functional.banded_attention import sliding_window_attention
from attn_course.functional.scaled_dot_product import scaled_dot_product_attention
from attn_course.nn.feed_forward import xavier_
from attn_course.nn.heads import head_size, join_heads, project_heads, split_heads
from attn_course.nn.masking import real_tokens
from attn_course.nn.parameters import check_input


class LongformerSelfAttention(nn.Module):
    r"""A window for every position; all attend to global positions, which attend to all.

    .. math::
       o_i = \begin{cases}
       \mathrm{Attention}(q_i, K_{S_i}, V_{S_i}), & S_i = \mathrm{window}(i) \cup \mathcal G
       & i \notin \mathcal G \\
       \mathrm{Attention}(q^g_i, K^g, V^g) & & i \in \mathcal G
       \end{cases}

    Beltagy et al. (2020), section 3.1: :math:`q^g, K^g, V^g` have projections of their own, as a
    global position has other queries. They start as copies of the local ones. Time and memory
    grow with L·(W + G).

    Parameters: those of :class:`~attn_course.nn.MultiHeadAttention`, and
    ``global_query_projection``, ``global_key_projection`` and ``global_value_projection``.

    Differs from Hugging Face: ``window_size`` counts the query itself, their ``attention_window``
    plus one; any length will do; no weights are dropped in training.

    Args:
        embed_dim: Size :math:`D` of inputs and outputs.
        num_heads: Heads.
        window_size: How many keys a position attends to, itself included; odd.
        dilation: Distance of neighbours in the window; a list has one for each head.
        bias: Whether the projections have a bias.

    Example:
        >>> attention = LongformerSelfAttention(embed_dim=8, num_heads=2, window_size=3)
        >>> is_global = torch.tensor([[True, False, False, False, False]])
        >>> attention(torch.randn(1, 5, 8), global_mask=is_global).shape
        torch.Size([1, 5, 8])
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
        head_size(embed_dim, num_heads)  # does it divide?
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
        """The output at each position.

        Args:
            x: One vector per position.
            attn_mask: Padding, ``(B or 1, 1, 1, L)``: True = a real key.
            global_mask: True = a global position.
            is_causal: Whether later positions are masked, for global ones too.
            positions: Negative at padding, which is masked; nothing else is used.
            cache: Refused unless None.
        """
        check_input("x", x, "B L D", self.embed_dim, self.query_projection)
        if cache is not None:
            raise ValueError("cache: expected None, windows with global positions have no cache")
        real = real_tokens(attn_mask, positions, x.shape[:2])
        projections = (self.query_projection, self.key_projection, self.value_projection)
        query, key, value = project_heads(x, self.num_heads, *projections)
        if global_mask is not None:
            check_global_mask(global_mask, query)
        heads = sliding_window_attention(
            query,
            key,
            value,
            None if real is None else real[:, None, None],
            window_size=self.window_size,
            dilation=self.dilation,
            is_causal=is_causal,
            global_mask=global_mask,
            symmetric=False,
        )
        if global_mask is not None:
            heads = self._globally(heads, x, global_mask, real, is_causal)
        return self.output_projection(join_heads(heads))  # (B, L, D)

    def _globally(
        self,
        heads: Float[Tensor, "B H L E"],
        x: Float[Tensor, "B L D"],
        global_mask: Bool[Tensor, "B L"],
        real: Bool[Tensor, "B L"] | None,
        is_causal: bool,
    ) -> Float[Tensor, "B H L E"]:
        """The rows of the global positions, which attend to all, with their own projections."""
        if real is not None:
            global_mask = global_mask & real
        traced = not has_values(global_mask)
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
