"""Multi-head attention: several attentions of fewer dimensions, side by side."""

from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from attn_course._checks import check_axes, check_size
from attn_course.functional.scaled_dot_product import (
    AttentionFn,
    attention_weights,
    scaled_dot_product_attention,
)
from attn_course.nn.cache import CrossCache, KVCache, SlidingCache
from attn_course.nn.feed_forward import xavier_
from attn_course.nn.look import Sight, checked_mask, look, split_heads
from attn_course.nn.positions import Biases, Rotates


class MultiHeadAttention(nn.Module):
    r"""Attend in several subspaces at once, and mix what was found.

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

    Differs from torch: the batch comes first; a mask is True where a query may attend, and goes
    with ``is_causal`` only where a cache is used; weights come from :meth:`weights`; Q, K and V are
    initialised each for itself, where torch takes them for one matrix.

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
            None for no :math:`W^V` at all: the features are dealt to the heads as they are.
        position: An object with ``rotate`` or ``bias`` or both, such as
            :class:`~attn_course.nn.RotaryPositions`.
        attn_fn: The attention itself, with the signature of torch's
            ``scaled_dot_product_attention``. Softmax, scale and masking are its business.
        scale: Factor of the scores; :math:`1/\sqrt E` if not given, 1 in T5.
        dropout: Chance that a weight is dropped, in training mode.

    Raises:
        ValueError: If sizes do not divide, or do not fit without a value projection.
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
        position: Rotates | Biases | None = None,
        attn_fn: AttentionFn = scaled_dot_product_attention,
        scale: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if num_heads < 1 or num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads: expected a divisor of num_heads ({num_heads}), got {num_kv_heads}"
            )
        if head_dim is None:
            if embed_dim % num_heads:
                raise ValueError(
                    f"embed_dim: expected a multiple of num_heads ({num_heads}) "
                    f"where head_dim is not given, got {embed_dim}"
                )
            head_dim = embed_dim // num_heads
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
        self.position, self.attn_fn = position, attn_fn
        self.scale, self.dropout = scale, dropout
        self.query_projection = nn.Linear(embed_dim, num_heads * head_dim, bias=bias)
        self.key_projection = nn.Linear(kdim, num_kv_heads * head_dim, bias=bias)
        self.value_projection: nn.Module | None = (
            nn.Linear(vdim, num_kv_heads * value_head_dim, bias=bias)
            if value_projection == "linear"
            else value_projection
        )
        self.output_projection = nn.Linear(
            num_heads * value_head_dim, embed_dim, bias=bias if output_bias is None else output_bias
        )
        linears = (self.query_projection, self.key_projection, self.output_projection)
        for linear in (*linears, self.value_projection):
            if isinstance(linear, nn.Linear):
                xavier_(linear)

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
        """What each query found.

        Args:
            query: What is looked for.
            key: Where it is looked for; the queries themselves if not given.
            value: What is mixed; the keys, before their projection, if not given.
            attn_mask: (L, S) for all, or (B or 1, H or 1, L, S): True = may attend, or numbers
                added to the scores. With a cache S counts all keys so far.
            is_causal: Query i sees the keys up to its own. Not together with ``attn_mask``.
            positions: Where each query stands in its text, negative at padding, which no query then
                sees; 0, 1, ... or the next of the cache if not given. For self-attention.
            cache: Holds the keys and values of earlier tokens, takes these, and lets the queries
                see them all; a :class:`~attn_course.nn.CrossCache` projects ``key`` and ``value``
                the first time only.

        Raises:
            ValueError: If shapes do not fit, mask and ``is_causal`` come together, or positions are
                asked for between two texts.
        """
        q, sight = self._look(query, key, value, attn_mask, is_causal, positions, cache)
        heads = self.attn_fn(
            q,
            sight.key,
            sight.value,
            attn_mask=sight.attn_mask,
            is_causal=sight.is_causal,
            scale=self.scale,
            dropout_p=self.dropout if self.training else 0.0,
            enable_gqa=self.num_kv_heads != self.num_heads,
        )
        output: Tensor = self.output_projection(heads.transpose(1, 2).flatten(2))  # (B, L, D)
        return output

    def weights(
        self,
        query: Float[Tensor, "B L D"],
        key: Float[Tensor, "B S Dk"] | None = None,
        attn_mask: Shaped[Tensor, "..."] | None = None,
        *,
        is_causal: bool = False,
        positions: Int[Tensor, "B L"] | None = None,
    ) -> Float[Tensor, "B H L S"]:
        """How much each head mixes of each value: the softmax of the scores, without dropout.

        Another ``attn_fn`` may normalise in another way; these weights do not know.

        Args:
            query: As in :meth:`forward`, and so on.
            key: Where it is looked for.
            attn_mask: Which pairs count, or what is added to the scores.
            is_causal: Whether keys after a query are hidden.
            positions: Where each query stands.
        """
        key = query if key is None else key
        nothing = key.new_zeros(*key.shape[:2], self.vdim)
        q, sight = self._look(query, key, nothing, attn_mask, is_causal, positions, None)
        return attention_weights(
            q,
            sight.key,
            sight.attn_mask,
            is_causal=sight.is_causal,
            scale=self.scale,
            enable_gqa=self.num_kv_heads != self.num_heads,
        )

    def _look(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        attn_mask: Tensor | None,
        is_causal: bool,
        positions: Tensor | None,
        cache: KVCache | SlidingCache | CrossCache | None,
    ) -> tuple[Tensor, Sight]:
        """Queries in heads, and what they look at."""
        check_axes("query", query, "B L D")
        check_size("query", query, -1, self.embed_dim)
        q = split_heads(self.query_projection(query), self.num_heads)  # (B, H, L, E)
        if isinstance(cache, CrossCache):
            if self.position is not None:
                raise ValueError("cache: expected no CrossCache where the attention has positions")
            if cache.key is None or cache.value is None:
                cache.key, cache.value = self._project(query if key is None else key, value)
            attn_mask = checked_mask(attn_mask, is_causal, q.shape[:3], cache.key.shape[-2])
            return q, Sight(q, cache.key, cache.value, attn_mask, is_causal)
        k, v = self._project(query if key is None else key, value)
        sight = look(q, k, v, attn_mask, is_causal, positions, cache, self.position)
        return sight.query, sight

    def _project(self, key: Tensor, value: Tensor | None) -> tuple[Tensor, Tensor]:
        """Keys and values in heads."""
        value = key if value is None else value
        check_axes("key", key, "B S D")
        check_size("key", key, -1, self.kdim)
        check_size("value", value, -1, self.vdim)
        check_size("value", value, 1, key.shape[1])
        k = split_heads(self.key_projection(key), self.num_kv_heads)  # (B, Hkv, S, E)
        mixed = value if self.value_projection is None else self.value_projection(value)
        check_size("value_projection(value)", mixed, -1, self.num_kv_heads * self.value_head_dim)
        return k, split_heads(mixed, self.num_kv_heads)  # (B, Hkv, S, Ev)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """The same attention as one of torch's, with a copy of its weights.

        Raises:
            ValueError: If the module has ``add_bias_kv`` or ``add_zero_attn``.
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
        """Torch's module with a copy of these weights, the batch first.

        Raises:
            ValueError: If torch's module cannot do what this one does.
        """
        plain = (
            self.num_kv_heads == self.num_heads
            and self.head_dim * self.num_heads == self.embed_dim
            and self.value_head_dim == self.head_dim
            and isinstance(self.value_projection, nn.Linear)
            and self.position is None
            and self.scale is None
            and (self.query_projection.bias is None) == (self.output_projection.bias is None)
        )
        if not plain:
            raise ValueError(
                "to_torch: expected as many key as query heads, head_dim of embed_dim / num_heads, "
                "a linear value projection, no positions, no scale, biases everywhere or nowhere"
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
