"""Multi-head attention: several attentions of fewer dimensions, side by side."""

from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from attn_course._checks import check_chance, check_size
from attn_course.functional.scaled_dot_product import (
    AttentionFn,
    attention_weights,
    scaled_dot_product_attention,
)
from attn_course.nn.cache import (
    ATTENTION_CACHES,
    NO_CACHE,
    Cache,
    CrossCache,
    KVCache,
    SlidingCache,
    takes_cache,
)
from attn_course.nn.feed_forward import xavier_
from attn_course.nn.heads import head_size, join_heads, split_heads
from attn_course.nn.masking import attention_mask, check_mask
from attn_course.nn.parameters import check_callable, check_input
from attn_course.nn.positions import (
    Biases,
    Rotates,
    check_position,
    rotate,
    score_bias,
    token_positions,
)


class MultiHeadAttention(nn.Module):
    r"""Attention in several subspaces at once, whose outputs are mixed.

    .. math::
       \mathrm{head}_h = \mathrm{Attention}(Q W^Q_h,\, K W^K_{g(h)},\, V W^V_{g(h)}), \qquad
       \mathrm{MultiHead}(Q, K, V) = [\mathrm{head}_1; \ldots; \mathrm{head}_H]\, W^O

    Vaswani et al. (2017), section 3.2.2, where every head has keys and values of its own,
    :math:`g(h) = h`. With fewer ``num_kv_heads`` neighbouring heads share them: grouped queries
    (Ainslie et al., 2023), and multi-query attention with one (Shazeer, 2019).

    Parameters: ``query_projection.weight`` (H·E, D), ``key_projection.weight`` (Hkv·E, D),
    ``value_projection.weight`` (Hkv·Ev, D), ``output_projection.weight`` (D, H·Ev), and their
    biases; the rows of head ``h`` are ``h*E`` to ``(h+1)*E - 1``. Initialisation: weights Xavier
    uniform, biases 0.

    Differs from torch: the batch comes first; a mask is True where a query may attend; the output
    is returned alone, and :meth:`weights` computes the weights; Q, K and V are initialised
    separately, where torch takes them for one matrix.

    Args:
        embed_dim: Size :math:`D` of queries and output.
        num_heads: :math:`H`.
        num_kv_heads: Heads of keys and values, a divisor of ``num_heads``; as many if not given.
        head_dim: :math:`E`; ``embed_dim / num_heads`` if not given.
        value_head_dim: Size of a head's values; ``head_dim`` if not given.
        kdim: Size of the keys before their projection; ``embed_dim`` if not given.
        vdim: Size of the values before their projection; ``kdim`` if not given.
        bias: Whether the four projections have a bias.
        output_bias: Whether the last of them has one; as ``bias`` if not given.
        value_projection: ``"linear"``; or a module in its place, such as :class:`LowRankLinear`; or
            None for no :math:`W^V`: the features are split into heads as they are.
        query_norm: Applied to the queries of each head, (B, H, L, E), before any rotation, such as
            ``RMSNorm(embed_dim=head_dim)`` in Qwen3; none if not given.
        key_norm: The same for the keys.
        position: An object with ``rotate`` or ``bias`` or both, such as
            :class:`~attn_course.nn.RotaryPositions`.
        attn_fn: The attention itself: :class:`~attn_course.functional.AttentionFn`; with other
            options by ``functools.partial``, as below.
        scale: Factor of the scores; :math:`1/\sqrt E` if not given, 1 in T5.
        dropout: Chance that a weight is dropped, in training mode.

    Example:
        >>> attention = MultiHeadAttention(embed_dim=8, num_heads=4, num_kv_heads=2)
        >>> x = torch.randn(1, 3, 8)
        >>> attention(x, is_causal=True).shape, attention.weights(x).shape
        (torch.Size([1, 3, 8]), torch.Size([1, 4, 3, 3]))
        >>> from functools import partial
        >>> from attn_course.functional import sliding_window_attention
        >>> window = partial(sliding_window_attention, window_size=3)
        >>> MultiHeadAttention(embed_dim=8, num_heads=2, attn_fn=window)(x, is_causal=True).shape
        torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = True,
        output_bias: bool | None = None,
        value_projection: nn.Module | Literal["linear"] | None = "linear",
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        position: Rotates | Biases | None = None,
        attn_fn: AttentionFn = scaled_dot_product_attention,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_position(position)
        check_chance(dropout=dropout)
        check_callable("a function such as scaled_dot_product_attention", attn_fn=attn_fn)
        head_dim = head_size(embed_dim, num_heads, head_dim)
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads: expected a divisor of num_heads ({num_heads}), got {num_kv_heads}"
            )
        value_head_dim = head_dim if value_head_dim is None else value_head_dim
        kdim = embed_dim if kdim is None else kdim
        vdim = kdim if vdim is None else vdim
        if value_projection is None and vdim != num_kv_heads * value_head_dim:
            raise ValueError(
                "vdim: expected num_kv_heads * value_head_dim = "
                f"{num_kv_heads * value_head_dim} without a value projection, got {vdim}"
            )
        self.embed_dim, self.num_heads, self.num_kv_heads = embed_dim, num_heads, num_kv_heads
        self.head_dim, self.value_head_dim = head_dim, value_head_dim
        self.kdim, self.vdim = kdim, vdim
        self.query_norm, self.key_norm = query_norm, key_norm
        self.position, self.attn_fn = position, attn_fn
        self.scale, self.dropout = scale, dropout
        self.query_projection = nn.Linear(embed_dim, num_heads * head_dim, bias=bias)
        self.key_projection = nn.Linear(kdim, num_kv_heads * head_dim, bias=bias)
        if value_projection == "linear":
            value_projection = nn.Linear(vdim, num_kv_heads * value_head_dim, bias=bias)
        self.value_projection: nn.Module | None = value_projection
        output_bias = bias if output_bias is None else output_bias
        self.output_projection = nn.Linear(num_heads * value_head_dim, embed_dim, bias=output_bias)
        linears = (self.query_projection, self.key_projection, self.output_projection)
        for linear in (*linears, self.value_projection):
            if isinstance(linear, nn.Linear):
                xavier_(linear)

    @takes_cache("rotates_late", ATTENTION_CACHES)
    def forward(
        self,
        query: Float[Tensor, "B L D"],
        key: Float[Tensor, "B S Dk"] | None = None,
        value: Float[Tensor, "B S Dv"] | None = None,
        attn_mask: Shaped[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
        cache: KVCache | SlidingCache | CrossCache | None = None,
    ) -> Float[Tensor, "B L D"]:
        """The output at each query.

        Args:
            query: The queries, before their projection.
            key: The keys, likewise; the queries if not given.
            value: The values, likewise; the keys if not given.
            attn_mask: (L, S) for all, or (B or 1, H or 1, L, S): True = may attend, or a bias that
                is added to the scores. With a cache S counts all keys so far.
            is_causal: Query i attends to keys 0 to i. Not together with ``attn_mask``.
            positions: Position of each token in its text, negative at padding, which is masked;
                0, 1, ... or the next of the cache if not given. For self-attention.
            cache: Keys and values of earlier tokens; it takes these, and the queries attend to all.
                A :class:`~attn_course.nn.CrossCache` projects ``key`` and ``value`` once.
        """
        store: Cache = NO_CACHE if cache is None else cache
        past = store.length
        q = self._queries(query)  # (B, H, L, E)
        k, v = self._keys_and_values(query if key is None else key, value, store)  # (B, Hkv, S, E)
        check_mask(attn_mask, is_causal, q, k, store)
        at, keys_at = token_positions(q, k, positions, past=past)
        q = rotate(self.position, q, at)
        # keys whose positions change in the cache are rotated when they are read
        k = k if store.rotates_late else rotate(self.position, k, keys_at)
        k, v, keys_at, window = store.append(k, v, positions)
        k = rotate(self.position, k, keys_at) if store.rotates_late else k
        bias = score_bias(self.position, at, keys_at, q.dtype)
        mask, is_causal = attention_mask(
            attn_mask, window, bias, at, keys_at, is_causal=is_causal, past=past
        )
        dropout = self.dropout if self.training else 0.0
        heads = self.attn_fn(
            q, k, v, attn_mask=mask, is_causal=is_causal, dropout_p=dropout, **self._score_options
        )
        return self.output_projection(join_heads(heads))  # (B, L, D)

    def weights(
        self,
        query: Float[Tensor, "B L D"],
        key: Float[Tensor, "B S Dk"] | None = None,
        attn_mask: Shaped[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
    ) -> Float[Tensor, "B H L S"]:
        """The weights of each head: :func:`attn_course.functional.attention_weights`.

        Those of the softmax, without dropout, whatever ``attn_fn`` is; arguments as in
        :meth:`forward`.
        """
        q, k = self._queries(query), self._keys(query if key is None else key)
        check_mask(attn_mask, is_causal, q, k)
        at, keys_at = token_positions(q, k, positions)
        q, k = rotate(self.position, q, at), rotate(self.position, k, keys_at)
        bias = score_bias(self.position, at, keys_at, q.dtype)
        mask, is_causal = attention_mask(attn_mask, None, bias, at, keys_at, is_causal=is_causal)
        return attention_weights(q, k, mask, is_causal=is_causal, **self._score_options)

    @property
    def _score_options(self) -> dict[str, Any]:
        return {"scale": self.scale, "enable_gqa": self.num_kv_heads != self.num_heads}

    def _queries(self, query: Tensor) -> Tensor:
        check_input("query", query, "B L D", self.embed_dim, self.query_projection)
        q = split_heads(self.query_projection(query), self.num_heads)  # (B, H, L, E)
        return q if self.query_norm is None else self.query_norm(q)

    def _keys(self, key: Tensor) -> Tensor:
        check_input("key", key, "B S D", self.kdim, self.key_projection)
        k = split_heads(self.key_projection(key), self.num_kv_heads)  # (B, Hkv, S, E)
        return k if self.key_norm is None else self.key_norm(k)

    def _keys_and_values(
        self, key: Tensor, value: Tensor | None, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        if isinstance(cache, CrossCache):
            if self.position is not None:
                raise ValueError("cache: expected no CrossCache where the attention has positions")
            if cache.key is not None and cache.value is not None:
                return cache.key, cache.value
        value = key if value is None else value
        k = self._keys(key)
        check_input("value", value, "B S D", self.vdim, self.value_projection)
        check_size("value", value, 1, key.shape[1])
        mixed = value if self.value_projection is None else self.value_projection(value)
        check_size("value_projection(value)", mixed, -1, self.num_kv_heads * self.value_head_dim)
        return k, split_heads(mixed, self.num_kv_heads)  # (B, Hkv, S, Ev)

    def extra_repr(self) -> str:
        names = ("embed_dim", "num_heads", "num_kv_heads", "head_dim", "value_head_dim")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """The same attention as one of torch's, with a copy of its weights.

        Those with ``add_bias_kv`` or ``add_zero_attn`` are refused.
        """
        if module.bias_k is not None or module.add_zero_attn:
            raise ValueError("module: expected neither add_bias_kv nor add_zero_attn")
        made = cls(
            embed_dim=module.embed_dim,
            num_heads=module.num_heads,
            kdim=module.kdim,
            vdim=module.vdim,
            bias=module.in_proj_bias is not None,
            dropout=module.dropout,
        ).to(module.out_proj.weight)
        if module.in_proj_weight is not None:
            weights = module.in_proj_weight.chunk(3)
        else:
            weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        with torch.no_grad():
            for mine, theirs in zip(made._inputs(), weights, strict=True):
                mine.weight.copy_(theirs)
            if module.in_proj_bias is not None:
                for mine, bias in zip(made._inputs(), module.in_proj_bias.chunk(3), strict=True):
                    mine.bias.copy_(bias)
            made.output_projection.load_state_dict(module.out_proj.state_dict())
        return made.train(module.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """Torch's module with a copy of these weights, the batch first, if it can do the same."""
        plain = (
            self.num_kv_heads == self.num_heads
            and self.head_dim * self.num_heads == self.embed_dim
            and self.value_head_dim == self.head_dim
            and isinstance(self.value_projection, nn.Linear)
            and self.query_norm is None
            and self.key_norm is None
            and self.position is None
            and self.scale is None
            and (self.query_projection.bias is None) == (self.output_projection.bias is None)
        )
        if not plain:
            raise ValueError(
                "to_torch: expected as many key as query heads, head_dim of embed_dim / num_heads, "
                "a linear value projection, no norms, positions or scale, biases all or none"
            )
        bias = self.query_projection.bias is not None
        made = nn.MultiheadAttention(
            self.embed_dim,
            self.num_heads,
            dropout=self.dropout,
            bias=bias,
            kdim=self.kdim,
            vdim=self.vdim,
            batch_first=True,
        ).to(self.output_projection.weight)
        inputs = self._inputs()
        with torch.no_grad():
            if made.in_proj_weight is not None:
                made.in_proj_weight.copy_(torch.cat([part.weight for part in inputs]))
            else:
                names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
                for name, part in zip(names, inputs, strict=True):
                    getattr(made, name).copy_(part.weight)
            if bias:
                made.in_proj_bias.copy_(torch.cat([part.bias for part in inputs]))
            made.out_proj.load_state_dict(self.output_projection.state_dict())
        return made.train(self.training)

    def _inputs(self) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
        assert isinstance(self.value_projection, nn.Linear)
        return self.query_projection, self.key_projection, self.value_projection
