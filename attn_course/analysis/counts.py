"""How many parameters, operations and bytes a Transformer costs, in exact formulas."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    r"""Sizes of a Transformer, and what they cost.

    Operations are those of the matrix products, the only ones that grow with a product of two
    sizes: a multiplication and an addition count as two. Softmax, norms, activations, biases and
    table lookups are left out, as ``torch.utils.flop_counter`` leaves them out. A forward pass is
    counted; the backward pass of a matrix product is two such products, so a step of training costs
    three times as much. All counts are those of one example: multiply by the size of the batch.

    Example:
        >>> gpt2 = Sizes(embed_dim=768, num_heads=12, num_layers=12, vocab_size=50257)
        >>> gpt2.language_model_parameters(positions=1024)
        124439808

    Attributes:
        embed_dim: Width :math:`D` of queries and output.
        num_heads: :math:`H`, of each attention.
        hidden_dim: Hidden width :math:`F` of the feed-forward part; :math:`4 D` if not given.
        num_layers: Blocks :math:`N`; of encoder and of decoder where there are both.
        vocab_size: Words :math:`V`; 0 leaves tables and logits out.
        num_kv_heads: :math:`H_{kv}`; as many as ``num_heads`` if not given.
        head_dim: :math:`E`; ``embed_dim / num_heads`` if not given.
        value_head_dim: :math:`E_v`; ``head_dim`` if not given.
        kdim: Width :math:`D_k` of what is attended to; ``embed_dim`` if not given.
        kv_rank: Size :math:`r` of the latent vector that multi-head latent attention caches; 0 for
            any other attention.
        rope_dim: Size :math:`R` of its key that carries the position.
        gated: Whether the feed-forward part has a third matrix, as in SwiGLU.
        attention_bias: Whether the projections of the attention have a bias; those of Vaswani et
            al. (2017) have none.
        feed_forward_bias: Whether the feed-forward part has biases.
        norm_bias: Whether the norms have one: layer norms do, RMS norms do not.

    Raises:
        ValueError: If a size is below 1, or the heads do not divide what they must. Methods refuse
            lengths likewise.
    """

    embed_dim: int
    num_heads: int
    hidden_dim: int | None = None
    num_layers: int = 1
    vocab_size: int = 0
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    kdim: int | None = None
    kv_rank: int = 0
    rope_dim: int = 0
    gated: bool = False
    attention_bias: bool = True
    feed_forward_bias: bool = True
    norm_bias: bool = True

    def __post_init__(self) -> None:
        d, heads = self.embed_dim, self.num_heads
        _at_least(1, embed_dim=d, num_heads=heads, num_layers=self.num_layers)
        _at_least(0, vocab_size=self.vocab_size, kv_rank=self.kv_rank, rope_dim=self.rope_dim)
        if self.head_dim is None and d % heads:
            raise ValueError(
                f"embed_dim: expected a multiple of num_heads = {heads} where head_dim is not "
                f"given, got {d}"
            )
        defaults = {"hidden_dim": 4 * d, "num_kv_heads": heads, "head_dim": d // heads, "kdim": d}
        for name, size in defaults.items():
            self._default(name, size)
        self._default("value_head_dim", self._widths[1])
        if heads % self._widths[0]:
            raise ValueError(f"num_kv_heads: expected a divisor of {heads}, got {self._widths[0]}")

    def attention_parameters(self) -> int:
        r"""Entries of the four projections of multi-head attention.

        .. math:: D H E + D_k H_{kv} (E + E_v) + H E_v D
           \;\; \left(+ \; H E + H_{kv} (E + E_v) + D\right)

        With :math:`H E = D` and as many key as query heads this is :math:`4 D^2 \; (+ 4 D)`, for
        any number of heads. The part in brackets are the biases.
        """
        kv_heads, e, ev, kdim, _ = self._widths
        query, output = self.embed_dim * self.num_heads * e, self.num_heads * ev * self.embed_dim
        weights = query + kdim * kv_heads * (e + ev) + output
        bias = self.num_heads * e + kv_heads * (e + ev) + self.embed_dim
        return weights + self.attention_bias * bias

    def attention_flops(
        self,
        query_length: int,
        key_length: int | None = None,
        *,
        cached_length: int = 0,
        pairs: int | None = None,
    ) -> int:
        r"""Operations of multi-head attention, projections included.

        .. math:: 2 \left( \underbrace{L D H E}_{\text{queries}}
           + \underbrace{S' D_k H_{kv} (E + E_v)}_{\text{keys, values}}
           + \underbrace{P H (E + E_v)}_{\text{scores, sums}}
           + \underbrace{L H E_v D}_{\text{output}} \right)

        The third part is the only one that grows with the square of the length. Sharing heads of
        keys and values saves some of the second and nothing of the third.

        Args:
            query_length: Queries :math:`L`.
            key_length: Keys :math:`S`, cached ones included; ``cached_length + query_length`` if
                not given.
            cached_length: Keys that need no projection any more: :math:`S' = S` minus these.
            pairs: Pairs :math:`P` of query and key that are computed; all :math:`L S` if not given,
                :math:`L (L + 1) / 2` for causal attention that leaves out the rest.
        """
        kv_heads, e, ev, kdim, _ = self._widths
        key_length = cached_length + query_length if key_length is None else key_length
        pairs = query_length * key_length if pairs is None else pairs
        _at_least(1, query_length=query_length, key_length=key_length)
        if not 0 <= cached_length <= key_length:
            raise ValueError(f"cached_length: expected 0 to {key_length}, got {cached_length}")
        projected = query_length * self.embed_dim * self.num_heads * (e + ev)  # queries and output
        projected += (key_length - cached_length) * kdim * kv_heads * (e + ev)
        return 2 * (projected + pairs * self.num_heads * (e + ev))

    def feed_forward_parameters(self) -> int:
        r"""Entries of the feed-forward part.

        .. math:: 2 D F \; (+ F + D) \qquad \text{or, gated,} \qquad 3 D F \; (+ 2 F + D)
        """
        hidden_dim, inward = self._widths[4], 2 if self.gated else 1
        weights = (inward + 1) * self.embed_dim * hidden_dim
        return weights + self.feed_forward_bias * (inward * hidden_dim + self.embed_dim)

    def feed_forward_flops(self, length: int) -> int:
        r"""Operations of the feed-forward part: :math:`4 L D F`, gated :math:`6 L D F`."""
        _at_least(1, length=length)
        return 2 * length * (3 if self.gated else 2) * self.embed_dim * self._widths[4]

    def block_parameters(self, *, cross_attention: bool = False) -> int:
        """Entries of a block: attention, feed-forward part, and one norm for each.

        Pre-norm or post-norm makes no difference here.

        Args:
            cross_attention: Whether there is a second attention, with a norm, as in a decoder that
                attends to an encoder of the same width.
        """
        attentions = 2 if cross_attention else 1
        attention = attentions * self.attention_parameters()
        return attention + self.feed_forward_parameters() + (attentions + 1) * self._norm

    def block_flops(
        self,
        length: int,
        *,
        memory_length: int | None = None,
        cached_length: int = 0,
        pairs: int | None = None,
    ) -> int:
        r"""Operations of a block on :math:`L` positions.

        Without sharing or gate this is :math:`8 L D^2 + 4 L^2 D + 4 L D F`: with :math:`F = 4 D`
        the square of the length outgrows the rest when :math:`L > 6 D`.

        Args:
            length: Positions :math:`L`.
            memory_length: Positions of the encoder that a second attention attends to; None where
                there is no second attention. Its keys and values are counted, as if at the first
                step.
            cached_length: Earlier positions whose keys and values are at hand.
            pairs: Pairs of query and key of the self-attention; all of them if not given.
        """
        flops = self.attention_flops(length, cached_length=cached_length, pairs=pairs)
        if memory_length is not None:
            flops += self.attention_flops(length, memory_length)
        return flops + self.feed_forward_flops(length)

    def transformer_parameters(self, *, tied: bool = True, last_norms: bool = False) -> int:
        r"""Entries of an encoder-decoder with sinusoidal positions.

        .. math:: V D + N \left[ \underbrace{4 D^2 + 2 D F + F + D + 4 D}_{\text{encoder}}
           + \underbrace{8 D^2 + 2 D F + F + D + 6 D}_{\text{decoder}} \right]

        The base model of Vaswani et al. (2017) is ``Sizes(embed_dim=512, num_heads=8, num_layers=6,
        vocab_size=37000, attention_bias=False)``, with their "about 37000" words of source and
        target together: 63,045,632, which they print as 65 million.

        Args:
            tied: One table for source, target and output (section 3.4), otherwise three.
            last_norms: Whether encoder and decoder end in a norm, as pre-norm stacks do.
        """
        blocks = self.block_parameters() + self.block_parameters(cross_attention=True)
        tables = self.vocab_size * self.embed_dim * (1 if tied else 3)
        return tables + self.num_layers * blocks + last_norms * 2 * self._norm

    def transformer_flops(self, source_length: int, target_length: int) -> int:
        """Operations of an encoder-decoder on one pair of sentences, logits included.

        Args:
            source_length: Tokens that are read.
            target_length: Tokens that are written, all at once, as in training.
        """
        encoder = self.block_flops(source_length)
        decoder = self.block_flops(target_length, memory_length=source_length)
        return self.num_layers * (encoder + decoder) + self._logits(target_length)

    def language_model_parameters(
        self, *, positions: int = 0, tied: bool = True, last_norm: bool = True
    ) -> int:
        r"""Entries of a decoder-only language model.

        .. math:: (1 \text{ or } 2)\, V D + T D + N \cdot \mathrm{block} \; (+ \text{ last norm})

        Args:
            positions: Learned positions :math:`T`; 0 for sinusoids, RoPE and ALiBi.
            tied: Whether the output uses the table of the input.
            last_norm: Whether the stack ends in a norm, as pre-norm stacks do.
        """
        tables = (self.vocab_size * (1 if tied else 2) + positions) * self.embed_dim
        return tables + self.num_layers * self.block_parameters() + last_norm * self._norm

    def language_model_flops(
        self, length: int, *, cached_length: int = 0, pairs: int | None = None
    ) -> int:
        """Operations of a decoder-only language model on ``length`` new tokens, logits included.

        Args:
            length: New tokens; 1 in a step of decoding with a cache.
            cached_length: Tokens in the cache.
            pairs: Pairs of query and key of each attention; all of them if not given.
        """
        block = self.block_flops(length, cached_length=cached_length, pairs=pairs)
        return self.num_layers * block + self._logits(length)

    def cache_bytes(self, length: int, *, bytes_per_number: int = 2) -> int:
        r"""Bytes of the cache of one sequence: :math:`N T H_{kv} (E + E_v)` numbers.

        Multi-head attention has as many heads of keys as of queries, grouped attention fewer,
        multi-query attention one. Multi-head latent attention keeps :math:`N T (r + R)` numbers,
        however many heads there are: DeepSeek-AI (2024), section 2.1, table 1, where :math:`r` is
        :math:`d_c` and :math:`R` is :math:`d_h^R`.

        Args:
            length: Tokens :math:`T`.
            bytes_per_number: 2 for half precision.
        """
        _at_least(0, length=length)
        _at_least(1, bytes_per_number=bytes_per_number)
        kv_heads, e, ev, _, _ = self._widths
        numbers = self.kv_rank + self.rope_dim if self.kv_rank else kv_heads * (e + ev)
        return length * self.num_layers * numbers * bytes_per_number

    def _default(self, name: str, size: int) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, size)
        _at_least(1, **{name: getattr(self, name)})

    @property
    def _widths(self) -> tuple[int, int, int, int, int]:
        """Heads of keys, their width, that of values, what is attended to, the hidden width."""
        kdim, hidden_dim = self.kdim or 0, self.hidden_dim or 0
        return (
            self.num_kv_heads or 0,
            self.head_dim or 0,
            self.value_head_dim or 0,
            kdim,
            hidden_dim,
        )

    @property
    def _norm(self) -> int:
        return self.embed_dim * (2 if self.norm_bias else 1)

    def _logits(self, length: int) -> int:
        return 2 * length * self.embed_dim * self.vocab_size


def _at_least(least: int, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"{name}: expected at least {least}, got {size}")
