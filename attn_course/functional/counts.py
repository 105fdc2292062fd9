"""How many parameters, operations and bytes a Transformer costs, in exact formulas.

Operations are those of the matrix products, the only ones that grow with a product of two sizes: a
multiplication and an addition count as two. Softmax, norms, activations, biases and table look-ups
are left out, as ``torch.utils.flop_counter`` leaves them out. A forward pass is counted; the
backward pass of a matrix product is two such products, so a step of training costs three times as
much. All sizes are those of one example: multiply by the size of the batch.
"""

from typing import Any


def attention_parameters(
    *,
    embed_dim: int,
    num_heads: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    value_head_dim: int | None = None,
    kdim: int | None = None,
    bias: bool = True,
) -> int:
    r"""Entries of the four projections of multi-head attention.

    .. math:: D H E + D_k H_{kv} (E + E_v) + H E_v D
       \;\; \left(+ \; H E + H_{kv} (E + E_v) + D\right)

    With :math:`H E = D` and as many key as query heads this is :math:`4 D^2 \; (+ 4 D)`, for any
    number of heads. The part in brackets are the biases.

    Args:
        embed_dim: Width :math:`D` of queries and output.
        num_heads: :math:`H`.
        num_kv_heads: :math:`H_{kv}`; as many as ``num_heads`` if not given.
        head_dim: :math:`E`; ``embed_dim / num_heads`` if not given.
        value_head_dim: :math:`E_v`; ``head_dim`` if not given.
        kdim: Width :math:`D_k` of what is attended to; ``embed_dim`` if not given.
        bias: Whether the projections have one.

    Raises:
        ValueError: If a size is below 1, or the heads do not divide what they must.
    """
    kv_heads, e, ev = _heads(embed_dim, num_heads, num_kv_heads, head_dim, value_head_dim)
    kdim = embed_dim if kdim is None else kdim
    _at_least_one(kdim=kdim)
    query, output = embed_dim * num_heads * e, num_heads * ev * embed_dim
    weights = query + kdim * kv_heads * (e + ev) + output
    return weights + bias * (num_heads * e + kv_heads * (e + ev) + embed_dim)


def attention_flops(
    *,
    query_length: int,
    key_length: int | None = None,
    embed_dim: int,
    num_heads: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    value_head_dim: int | None = None,
    kdim: int | None = None,
    cached_length: int = 0,
    pairs: int | None = None,
) -> int:
    r"""Operations of multi-head attention, projections included.

    .. math:: 2 \left( \underbrace{L D H E}_{\text{queries}}
       + \underbrace{S' D_k H_{kv} (E + E_v)}_{\text{keys, values}}
       + \underbrace{P H (E + E_v)}_{\text{scores, sums}}
       + \underbrace{L H E_v D}_{\text{output}} \right)

    The third part is the only one that grows with the square of the length. Sharing heads of keys
    and values saves some of the second and nothing of the third.

    Args:
        query_length: Queries :math:`L`.
        key_length: Keys :math:`S`, cached ones included; ``cached_length + query_length`` if not
            given.
        embed_dim: Width :math:`D`.
        num_heads: :math:`H`.
        num_kv_heads: :math:`H_{kv}`; as many as ``num_heads`` if not given.
        head_dim: :math:`E`; ``embed_dim / num_heads`` if not given.
        value_head_dim: :math:`E_v`; ``head_dim`` if not given.
        kdim: Width :math:`D_k` of what is attended to; ``embed_dim`` if not given.
        cached_length: Keys that need no projection any more: :math:`S' = S` minus these.
        pairs: Pairs :math:`P` of query and key that are computed; all :math:`L S` if not given,
            :math:`L (L + 1) / 2` for causal attention that leaves out the rest.

    Raises:
        ValueError: If a size is below 1, ``num_heads`` divides ``embed_dim`` not, or there are more
            cached keys than keys.
    """
    kv_heads, e, ev = _heads(embed_dim, num_heads, num_kv_heads, head_dim, value_head_dim)
    key_length = cached_length + query_length if key_length is None else key_length
    kdim = embed_dim if kdim is None else kdim
    pairs = query_length * key_length if pairs is None else pairs
    _at_least_one(query_length=query_length, key_length=key_length, kdim=kdim)
    if not 0 <= cached_length <= key_length:
        raise ValueError(f"cached_length: expected 0 to {key_length}, got {cached_length}")
    projected = query_length * embed_dim * num_heads * (e + ev)  # queries and output
    projected += (key_length - cached_length) * kdim * kv_heads * (e + ev)
    return 2 * (projected + pairs * num_heads * (e + ev))


def feed_forward_parameters(
    *, embed_dim: int, hidden_dim: int, gated: bool = False, bias: bool = True
) -> int:
    r"""Entries of the feed-forward part.

    .. math:: 2 D F \; (+ F + D) \qquad \text{or, gated,} \qquad 3 D F \; (+ 2 F + D)

    Args:
        embed_dim: Width :math:`D`.
        hidden_dim: Hidden width :math:`F`.
        gated: Whether there is a third matrix, as in SwiGLU.
        bias: Whether the maps have one.

    Raises:
        ValueError: If a size is below 1.
    """
    _at_least_one(embed_dim=embed_dim, hidden_dim=hidden_dim)
    inward = 2 if gated else 1
    weights = (inward + 1) * embed_dim * hidden_dim
    return weights + bias * (inward * hidden_dim + embed_dim)


def feed_forward_flops(*, length: int, embed_dim: int, hidden_dim: int, gated: bool = False) -> int:
    r"""Operations of the feed-forward part: :math:`4 L D F`, gated :math:`6 L D F`.

    Args:
        length: Positions :math:`L`.
        embed_dim: Width :math:`D`.
        hidden_dim: Hidden width :math:`F`.
        gated: Whether there is a third matrix.

    Raises:
        ValueError: If a size is below 1.
    """
    _at_least_one(length=length)
    weights = feed_forward_parameters(
        embed_dim=embed_dim, hidden_dim=hidden_dim, gated=gated, bias=False
    )
    return 2 * length * weights


def block_parameters(
    *,
    embed_dim: int,
    num_heads: int,
    hidden_dim: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    cross_attention: bool = False,
    gated: bool = False,
    attention_bias: bool = True,
    feed_forward_bias: bool = True,
    norm_bias: bool = True,
) -> int:
    r"""Entries of a block: attention, feed-forward part, and one norm for each.

    Pre-norm or post-norm makes no difference here.

    Args:
        embed_dim: Width :math:`D`.
        num_heads: Heads of each attention.
        hidden_dim: Hidden width :math:`F`.
        num_kv_heads: Heads of keys and values; as many as ``num_heads`` if not given.
        head_dim: Width of a head; ``embed_dim / num_heads`` if not given.
        cross_attention: Whether there is a second attention, with a norm, as in a decoder that
            looks at an encoder of the same width.
        gated: Whether the feed-forward part has a gate.
        attention_bias: Whether the projections of the attention have a bias; those of Vaswani et
            al. (2017) have none.
        feed_forward_bias: Whether the feed-forward part has biases.
        norm_bias: Whether the norms have one: layer norms do, RMS norms do not.

    Raises:
        ValueError: If a size is below 1, or the heads do not divide what they must.
    """
    attention = attention_parameters(
        embed_dim=embed_dim,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        bias=attention_bias,
    )
    feed_forward = feed_forward_parameters(
        embed_dim=embed_dim, hidden_dim=hidden_dim, gated=gated, bias=feed_forward_bias
    )
    attentions = 2 if cross_attention else 1
    norm = embed_dim * (2 if norm_bias else 1)
    return attentions * attention + feed_forward + (attentions + 1) * norm


def block_flops(
    *,
    length: int,
    embed_dim: int,
    num_heads: int,
    hidden_dim: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    memory_length: int | None = None,
    gated: bool = False,
    cached_length: int = 0,
    pairs: int | None = None,
) -> int:
    r"""Operations of a block on :math:`L` positions.

    Without sharing or gate this is :math:`8 L D^2 + 4 L^2 D + 4 L D F`: with :math:`F = 4 D` the
    square of the length outgrows the rest when :math:`L > 6 D`.

    Args:
        length: Positions :math:`L`.
        embed_dim: Width :math:`D`.
        num_heads: Heads of each attention.
        hidden_dim: Hidden width :math:`F`.
        num_kv_heads: Heads of keys and values; as many as ``num_heads`` if not given.
        head_dim: Width of a head; ``embed_dim / num_heads`` if not given.
        memory_length: Positions of the encoder that a second attention looks at; None where there
            is no second attention. Its keys and values are counted, as if at the first step.
        gated: Whether the feed-forward part has a gate.
        cached_length: Earlier positions whose keys and values are at hand.
        pairs: Pairs of query and key of the self-attention; all of them if not given.

    Raises:
        ValueError: If a size is below 1, or the heads do not divide what they must.
    """
    heads: dict[str, Any] = {
        "embed_dim": embed_dim,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
    }
    flops = attention_flops(query_length=length, cached_length=cached_length, pairs=pairs, **heads)
    if memory_length is not None:
        flops += attention_flops(query_length=length, key_length=memory_length, **heads)
    return flops + feed_forward_flops(
        length=length, embed_dim=embed_dim, hidden_dim=hidden_dim, gated=gated
    )


def transformer_parameters(
    *,
    vocab_size: int,
    embed_dim: int = 512,
    num_heads: int = 8,
    hidden_dim: int = 2048,
    num_layers: int = 6,
    head_dim: int | None = None,
    tied: bool = True,
    attention_bias: bool = False,
    last_norms: bool = False,
) -> int:
    r"""Entries of an encoder-decoder with sinusoidal positions; the defaults are the base model.

    .. math:: V D + N \left[ \underbrace{4 D^2 + 2 D F + F + D + 4 D}_{\text{encoder}}
       + \underbrace{8 D^2 + 2 D F + F + D + 6 D}_{\text{decoder}} \right]

    For Vaswani et al. (2017) with their "about 37000" words: 63,045,632, which they print as 65
    million.

    Args:
        vocab_size: Words :math:`V` of source and target together.
        embed_dim: Width :math:`D`.
        num_heads: Heads of each attention.
        hidden_dim: Hidden width :math:`F`.
        num_layers: Blocks :math:`N` of encoder and of decoder.
        head_dim: Width of a head; ``embed_dim / num_heads`` if not given.
        tied: One table for source, target and output (section 3.4), otherwise three.
        attention_bias: Whether the projections of the attention have a bias.
        last_norms: Whether encoder and decoder end in a norm, as pre-norm stacks do.

    Raises:
        ValueError: If a size is below 1, or the heads do not divide what they must.
    """
    _at_least_one(vocab_size=vocab_size, num_layers=num_layers)
    encoder, decoder = (
        block_parameters(
            embed_dim=embed_dim,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            head_dim=head_dim,
            cross_attention=cross,
            attention_bias=attention_bias,
        )
        for cross in (False, True)
    )
    tables = vocab_size * embed_dim * (1 if tied else 3)
    return tables + num_layers * (encoder + decoder) + last_norms * 4 * embed_dim


def transformer_flops(
    *,
    source_length: int,
    target_length: int,
    vocab_size: int,
    embed_dim: int = 512,
    num_heads: int = 8,
    hidden_dim: int = 2048,
    num_layers: int = 6,
    head_dim: int | None = None,
) -> int:
    r"""Operations of an encoder-decoder on one pair of sentences, logits included.

    Args:
        source_length: Tokens that are read.
        target_length: Tokens that are written, all at once, as in training.
        vocab_size: Words of the target.
        embed_dim: Width.
        num_heads: Heads of each attention.
        hidden_dim: Hidden width.
        num_layers: Blocks of encoder and of decoder.
        head_dim: Width of a head; ``embed_dim / num_heads`` if not given.

    Raises:
        ValueError: If a size is below 1, or the heads do not divide what they must.
    """
    _at_least_one(vocab_size=vocab_size, num_layers=num_layers)
    encoder, decoder = (
        block_flops(
            length=length,
            memory_length=memory,
            embed_dim=embed_dim,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            head_dim=head_dim,
        )
        for length, memory in ((source_length, None), (target_length, source_length))
    )
    return num_layers * (encoder + decoder) + 2 * target_length * embed_dim * vocab_size


def language_model_parameters(
    *,
    vocab_size: int,
    embed_dim: int,
    num_heads: int,
    hidden_dim: int,
    num_layers: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    positions: int = 0,
    tied: bool = True,
    gated: bool = False,
    bias: bool = True,
    norm_bias: bool = True,
    last_norm: bool = True,
) -> int:
    r"""Entries of a decoder-only language model.

    .. math:: (1 \text{ or } 2)\, V D + T D + N \cdot \mathrm{block} \; (+ \text{ last norm})

    GPT-2 small is ``vocab_size=50257, embed_dim=768, num_heads=12, hidden_dim=3072, num_layers=12,
    positions=1024``: 124,439,808. Llama 2 7B is ``vocab_size=32000, embed_dim=4096, num_heads=32,
    hidden_dim=11008, num_layers=32, tied=False, gated=True, bias=False, norm_bias=False``:
    6,738,415,616.

    Args:
        vocab_size: Words :math:`V`.
        embed_dim: Width :math:`D`.
        num_heads: Heads.
        hidden_dim: Hidden width of the feed-forward part.
        num_layers: Blocks :math:`N`.
        num_kv_heads: Heads of keys and values; as many as ``num_heads`` if not given.
        head_dim: Width of a head; ``embed_dim / num_heads`` if not given.
        positions: Learned positions :math:`T`; 0 for sinusoids, RoPE and ALiBi.
        tied: Whether the output uses the table of the input.
        gated: Whether the feed-forward part has a gate.
        bias: Whether the projections have a bias.
        norm_bias: Whether the norms have one.
        last_norm: Whether the stack ends in a norm, as pre-norm stacks do.

    Raises:
        ValueError: If a size is below 1, or the heads do not divide what they must.
    """
    _at_least_one(vocab_size=vocab_size, num_layers=num_layers)
    block = block_parameters(
        embed_dim=embed_dim,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        gated=gated,
        attention_bias=bias,
        feed_forward_bias=bias,
        norm_bias=norm_bias,
    )
    tables = (vocab_size * (1 if tied else 2) + positions) * embed_dim
    return tables + num_layers * block + last_norm * embed_dim * (2 if norm_bias else 1)


def language_model_flops(
    *,
    length: int,
    vocab_size: int,
    embed_dim: int,
    num_heads: int,
    hidden_dim: int,
    num_layers: int,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    gated: bool = False,
    cached_length: int = 0,
    pairs: int | None = None,
) -> int:
    r"""Operations of a decoder-only language model on ``length`` new tokens, logits included.

    Args:
        length: New tokens; 1 in a step of decoding with a cache.
        vocab_size: Words.
        embed_dim: Width.
        num_heads: Heads.
        hidden_dim: Hidden width of the feed-forward part.
        num_layers: Blocks.
        num_kv_heads: Heads of keys and values; as many as ``num_heads`` if not given.
        head_dim: Width of a head; ``embed_dim / num_heads`` if not given.
        gated: Whether the feed-forward part has a gate.
        cached_length: Tokens in the cache.
        pairs: Pairs of query and key of each attention; all of them if not given.

    Raises:
        ValueError: If a size is below 1, or the heads do not divide what they must.
    """
    _at_least_one(vocab_size=vocab_size, num_layers=num_layers)
    block = block_flops(
        length=length,
        embed_dim=embed_dim,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        gated=gated,
        cached_length=cached_length,
        pairs=pairs,
    )
    return num_layers * block + 2 * length * embed_dim * vocab_size


def cache_bytes(
    *,
    length: int,
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    value_head_dim: int | None = None,
    bytes_per_number: int = 2,
) -> int:
    r"""Bytes of the keys and values of one sequence: :math:`N T H_{kv} (E + E_v)` numbers.

    Multi-head attention has as many heads of keys as of queries, grouped attention fewer,
    multi-query attention one. For latent attention see :func:`latent_cache_bytes`.

    Args:
        length: Tokens :math:`T`.
        num_layers: Blocks :math:`N`.
        num_kv_heads: :math:`H_{kv}`.
        head_dim: :math:`E`.
        value_head_dim: :math:`E_v`; ``head_dim`` if not given.
        bytes_per_number: 2 for half precision.

    Raises:
        ValueError: If a size but ``length`` is below 1.
    """
    ev = head_dim if value_head_dim is None else value_head_dim
    _at_least_one(num_layers=num_layers, num_kv_heads=num_kv_heads, head_dim=head_dim)
    _at_least_one(value_head_dim=ev, bytes_per_number=bytes_per_number)
    return length * num_layers * num_kv_heads * (head_dim + ev) * bytes_per_number


def latent_cache_bytes(
    *, length: int, num_layers: int, kv_rank: int, rope_dim: int, bytes_per_number: int = 2
) -> int:
    r"""Bytes of one sequence with multi-head latent attention: :math:`N T (r + R)` numbers.

    DeepSeek-AI (2024), section 2.1, table 1, where :math:`r` is :math:`d_c` and :math:`R` is
    :math:`d_h^R`; however many heads there are.

    Args:
        length: Tokens :math:`T`.
        num_layers: Blocks :math:`N`.
        kv_rank: Size :math:`r` of the latent vector.
        rope_dim: Size :math:`R` of the key that carries the position.
        bytes_per_number: 2 for half precision.

    Raises:
        ValueError: If a size but ``length`` and ``rope_dim`` is below 1.
    """
    _at_least_one(num_layers=num_layers, kv_rank=kv_rank, bytes_per_number=bytes_per_number)
    return length * num_layers * (kv_rank + rope_dim) * bytes_per_number


def _heads(
    embed_dim: int,
    num_heads: int,
    num_kv_heads: int | None,
    head_dim: int | None,
    value_head_dim: int | None,
) -> tuple[int, int, int]:
    """Heads of keys, their width, and the width of values."""
    _at_least_one(embed_dim=embed_dim, num_heads=num_heads)
    if head_dim is None:
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim: expected a multiple of num_heads = {num_heads} where head_dim is not "
                f"given, got {embed_dim}"
            )
        head_dim = embed_dim // num_heads
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    value_head_dim = head_dim if value_head_dim is None else value_head_dim
    _at_least_one(num_kv_heads=kv_heads, head_dim=head_dim, value_head_dim=value_head_dim)
    if num_heads % kv_heads:
        raise ValueError(f"num_kv_heads: expected a divisor of {num_heads}, got {kv_heads}")
    return kv_heads, head_dim, value_head_dim


def _at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}: expected at least 1, got {size}")
