"""Multi-head latent attention: all heads' keys and values from one short vector per token."""

import math

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from attn_course._checks import check_chance
from attn_course.functional.scaled_dot_product import AttentionFn, scaled_dot_product_attention
from attn_course.nn.cache import (
    ATTENTION_CACHES,
    NO_CACHE,
    Cache,
    KVCache,
    SlidingCache,
    takes_cache,
)
from attn_course.nn.feed_forward import xavier_
from attn_course.nn.heads import join_heads, split_heads
from attn_course.nn.masking import attention_mask, check_mask
from attn_course.nn.norms import RMSNorm
from attn_course.nn.parameters import check_callable, check_input
from attn_course.nn.positions import RotaryPositions, check_position, token_positions


class MultiHeadLatentAttention(nn.Module):
    r"""Self-attention whose cache has one short vector per token, not keys and values per head.

    .. math::
       c_j &= \mathrm{norm}(W^{DKV} x_j), \qquad k^R_j = R_j W^{KR} x_j \\
       k_{jh} &= [W^{UK}_h c_j;\, k^R_j], \qquad v_{jh} = W^{UV}_h c_j \\
       q_{ih} &= [q^C_{ih};\, R_i q^R_{ih}] = W^{UQ}_h\, \mathrm{norm}(W^{DQ} x_i), \qquad
       o_{ih} = \textstyle\sum_j \mathrm{softmax}_j
       \Big(\frac{q_{ih}^\top k_{jh}}{\sqrt{E + R}}\Big) v_{jh}

    DeepSeek-V2 (DeepSeek-AI, 2024), section 2.1, with the norms of the latent vectors of its
    section on hyper-parameters. RoPE turns a part of its own, :math:`k^R`, shared by all heads: a
    rotation between :math:`W^{UK}` and the query would keep :math:`W^{UK}` from being absorbed.

    A cache stores :math:`c_j` and :math:`k^R_j`, ``kv_rank + rope_dim`` numbers per token whatever
    the number of heads, and keys and values are never built: by :math:`q^\top W^{UK} c =
    (W^{UK\top} q)^\top c` all queries share one head of keys, whose values are the :math:`c_j`;
    :math:`W^{UV}` comes last. Without a cache keys and values are built, which is cheaper for many
    queries. Both forms give the same output.

    Parameters: ``query_down`` :math:`W^{DQ}`, ``query_projection`` :math:`W^{UQ}` and
    :math:`W^{QR}` (rows of head h: first E, then R), ``latent_projection`` :math:`W^{DKV}`,
    ``rope_key_projection`` :math:`W^{KR}`, ``key_up`` :math:`W^{UK}`, ``value_up``
    :math:`W^{UV}`, ``output_projection`` :math:`W^O`; no biases. Initialisation: Xavier uniform.

    Args:
        embed_dim: Size of input and output.
        num_heads: :math:`H`.
        head_dim: :math:`E`, the part of queries and keys without position.
        rope_dim: :math:`R`, the part with; even.
        kv_rank: Size of :math:`c`.
        query_rank: Size of the queries' latent vector; None: queries come straight from the input.
        value_head_dim: Size of a head's values; ``head_dim`` if not given.
        position: Turns the second part; RoPE on neighbouring pairs if not given.
        attn_fn: The attention itself, as in :class:`~attn_course.nn.MultiHeadAttention`.
        dropout: Chance that a weight is dropped, in training mode.

    Example:
        >>> attention = MultiHeadLatentAttention(
        ...     embed_dim=8, num_heads=2, head_dim=4, rope_dim=2, kv_rank=3
        ... )
        >>> cache = KVCache()
        >>> attention(torch.randn(1, 5, 8), is_causal=True, cache=cache).shape
        torch.Size([1, 5, 8])
        >>> cache.nbytes  # 5 tokens * (3 + 2) numbers * 4 bytes
        100
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        head_dim: int,
        rope_dim: int,
        kv_rank: int,
        query_rank: int | None = None,
        value_head_dim: int | None = None,
        position: RotaryPositions | None = None,
        attn_fn: AttentionFn = scaled_dot_product_attention,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_position(position)
        check_chance(dropout=dropout)
        check_callable("a function such as scaled_dot_product_attention", attn_fn=attn_fn)
        value_head_dim = head_dim if value_head_dim is None else value_head_dim
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, head_dim
        self.rope_dim, self.kv_rank, self.value_head_dim = rope_dim, kv_rank, value_head_dim
        self.position = RotaryPositions() if position is None else position
        self.attn_fn, self.dropout = attn_fn, dropout
        self.query_down: nn.Module = nn.Identity()
        if query_rank is not None:
            self.query_down = nn.Sequential(
                nn.Linear(embed_dim, query_rank, bias=False), RMSNorm(embed_dim=query_rank)
            )
        self.query_projection = nn.Linear(
            query_rank or embed_dim, num_heads * (head_dim + rope_dim), bias=False
        )
        self.latent_projection = nn.Linear(embed_dim, kv_rank, bias=False)
        self.latent_norm = RMSNorm(embed_dim=kv_rank)
        self.rope_key_projection = nn.Linear(embed_dim, rope_dim, bias=False)
        self.key_up = nn.Linear(kv_rank, num_heads * head_dim, bias=False)
        self.value_up = nn.Linear(kv_rank, num_heads * value_head_dim, bias=False)
        self.output_projection = nn.Linear(num_heads * value_head_dim, embed_dim, bias=False)
        xavier_(self)

    @takes_cache("rotates_late", ATTENTION_CACHES)
    def forward(
        self,
        query: Float[Tensor, "B L D"],
        attn_mask: Shaped[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
        cache: KVCache | SlidingCache | None = None,
    ) -> Float[Tensor, "B L D"]:
        """The output at each position; arguments as in :meth:`MultiHeadAttention.forward`.

        The cache takes the latent vectors as keys of one head, whose values are empty.
        """
        check_input("query", query, "B L D", self.embed_dim, self.latent_projection)
        q = split_heads(self.query_projection(self.query_down(query)), self.num_heads)
        latent = self.latent_norm(self.latent_projection(query))  # (B, L, kv_rank)
        turning = self.rope_key_projection(query).unsqueeze(1)  # (B, 1, L, R)
        if cache is None:
            k = split_heads(self.key_up(latent), self.num_heads)
            k = torch.cat([k, turning.expand(-1, self.num_heads, -1, -1)], dim=-1)
            v = split_heads(self.value_up(latent), self.num_heads)
            heads = self._attend(q, k, v, attn_mask, is_causal, positions, NO_CACHE)
        else:
            up = self.key_up.weight.unflatten(0, (self.num_heads, -1))  # (H, E, kv_rank)
            q = torch.cat([q[..., : self.head_dim] @ up, q[..., self.head_dim :]], dim=-1)
            k = torch.cat([latent.unsqueeze(1), turning], dim=-1)  # (B, 1, L, kv_rank + R)
            mixed = self._attend(q, k, None, attn_mask, is_causal, positions, cache)
            up = self.value_up.weight.unflatten(0, (self.num_heads, -1))  # (H, Ev, kv_rank)
            heads = mixed @ up.mT  # (B, H, L, Ev)
        return self.output_projection(join_heads(heads))

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
        positions: Tensor | None,
        cache: Cache,
    ) -> Tensor:
        """Rotate, cache, mask and attend; the values are part of the keys if not given."""
        past = cache.length
        check_mask(attn_mask, is_causal, q, k, cache)
        at, keys_at = token_positions(q, k, positions, past=past)
        q = self._turn(q, at)
        k = k if cache.rotates_late else self._turn(k, keys_at)
        k, cached, keys_at, window = cache.append(k, k[..., :0] if v is None else v, positions)
        k = self._turn(k, keys_at) if cache.rotates_late else k
        mask, is_causal = attention_mask(
            attn_mask, window, None, at, keys_at, is_causal=is_causal, past=past
        )
        return self.attn_fn(
            q,
            k,
            k[..., : self.kv_rank] if v is None else cached,
            attn_mask=mask,
            is_causal=is_causal,
            # the width that the queries had before anything was absorbed
            scale=1 / math.sqrt(self.head_dim + self.rope_dim),
            dropout_p=self.dropout if self.training else 0.0,
            enable_gqa=k.shape[1] != self.num_heads,
        )

    def _turn(self, x: Tensor, at: Tensor) -> Tensor:
        """Queries or keys whose last features are turned to their positions."""
        still, turning = x[..., : -self.rope_dim], x[..., -self.rope_dim :]
        return torch.cat([still, self.position.rotate(turning, at)], dim=-1)

    def extra_repr(self) -> str:
        names = ("embed_dim", "num_heads", "head_dim", "rope_dim", "kv_rank", "value_head_dim")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)
