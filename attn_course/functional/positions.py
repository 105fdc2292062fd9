"""The position of a token: added to it, turned into its query and key, or added to the scores."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from attn_course._checks import (
    check_at_least,
    check_device,
    check_expands,
    check_floating,
    check_positive,
    widest,
)


def sinusoidal_positions(
    length: int,
    embed_dim: int,
    *,
    base: float = 10000.0,
    offset: int = 0,
    interleaved: bool = True,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "L D"]:
    r"""One fixed vector per position, to be added to the embedding of the token there.

    .. math:: \mathrm{PE}_{p, 2i} = \sin(p \, \theta_i), \qquad
       \mathrm{PE}_{p, 2i+1} = \cos(p \, \theta_i), \qquad \theta_i = \mathrm{base}^{-2i/D}

    Vaswani et al. (2017), section 3.5. The vector at :math:`p + k` is a rotation of the vector at
    :math:`p` that depends on :math:`k` only.

    Args:
        length: Number of positions.
        embed_dim: Width :math:`D`; if it is odd, the last pair lacks its cosine.
        base: The longest wavelength is just below :math:`2\pi\,\mathrm{base}` positions.
        offset: First position, such as the number of tokens in a cache.
        interleaved: Sine and cosine alternate, as in the paper. Otherwise all sines stand before
            all cosines, as in Tensor2Tensor and in Marian's weights.
        dtype, device: Of the result; torch's defaults when not given.

    Returns:
        One row per position. Angles, which reach the number of positions, are taken in float64.

    Example:
        >>> sinusoidal_positions(2, 4)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    check_at_least(0, length=length, offset=offset)
    check_at_least(1, embed_dim=embed_dim)
    check_positive(base=base)
    position = torch.arange(offset, offset + length, dtype=torch.float64, device=device)
    pair = torch.arange(0, embed_dim, 2, dtype=torch.float64, device=device)
    angles = position.unsqueeze(1) * base ** (-pair / embed_dim)  # (L, ceil(D / 2))
    sine, cosine = angles.sin(), angles[:, : embed_dim // 2].cos()
    if interleaved:
        table = torch.stack([sine, angles.cos()], dim=-1).flatten(1)[:, :embed_dim]  # (L, D)
    else:
        table = torch.cat([sine, cosine], dim=1)
    return table.to(dtype or torch.get_default_dtype())


def rope_frequencies(
    head_dim: int,
    *,
    base: float = 10000.0,
    scaling: Callable[[Tensor], Tensor] | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, " F"]:
    r"""How fast each pair of entries turns, in radians per position.

    .. math:: \theta_i = \mathrm{base}^{-2i/E}, \qquad i = 0, \ldots, E/2 - 1

    Su et al. (2021), section 3.2.2, with the frequencies of :func:`sinusoidal_positions`.

    Args:
        head_dim: Number :math:`E` of entries that turn, two per pair.
        base: Larger turns slower; see :func:`scaled_base`.
        scaling: Applied to the frequencies, such as
            ``functools.partial(linear_scaling, factor=4.0)``.
        device: Of the result.

    Returns:
        :math:`E/2` frequencies in float64, fastest first.

    Example:
        >>> rope_frequencies(4)
        tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    _even(head_dim=head_dim)
    check_positive(base=base)
    pair = torch.arange(0, head_dim, 2, dtype=torch.float64, device=device)
    frequencies = base ** (-pair / head_dim)
    return frequencies if scaling is None else scaling(frequencies)


def scaled_base(base: float, factor: float, head_dim: int) -> float:
    r"""The base with which the slowest pair turns ``factor`` times slower, the fastest as before.

    .. math:: \mathrm{base}' = \mathrm{base} \cdot \mathrm{factor}^{E/(E-2)}

    "NTK-aware" interpolation (bloc97, 2023; Peng et al., 2024, section 3.1): positions up to
    ``factor`` times the trained length give the slowest pair no angle outside of training, and
    neighbours stay as easy to tell apart as before.

    Args:
        base: The trained base.
        factor: How many times longer the text may become.
        head_dim: Number :math:`E` of entries that turn, even and above 2.

    Example:
        >>> round(scaled_base(100.0, 3.0, 4), 6)
        900.0
    """
    check_positive(base=base, factor=factor)
    _even(head_dim=head_dim)
    check_at_least(4, head_dim=head_dim)
    return float(base * factor ** (head_dim / (head_dim - 2)))


def linear_scaling(frequencies: Float[Tensor, " F"], *, factor: float) -> Float[Tensor, " F"]:
    r"""Every pair turns ``factor`` times slower: positions are interpolated.

    .. math:: \theta'_i = \theta_i / \mathrm{factor}

    Chen et al. (2023), *Extending context window of large language models via positional
    interpolation*.

    Args:
        frequencies: As trained.
        factor: How many times longer the text may become.

    Example:
        >>> linear_scaling(torch.tensor([1.0, 0.5]), factor=2.0)
        tensor([0.5000, 0.2500])
    """
    check_positive(factor=factor)
    return frequencies / factor


def llama3_scaling(
    frequencies: Float[Tensor, " F"],
    *,
    factor: float = 8.0,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    original_length: int = 8192,
) -> Float[Tensor, " F"]:
    r"""Slow pairs are interpolated, fast ones are left alone, those between are mixed.

    .. math:: \theta' = \left((1 - s) \frac{1}{\mathrm{factor}} + s\right) \theta, \qquad
       s = \mathrm{clip}\left(\frac{L_0 \theta / 2\pi - a}{b - a}, 0, 1\right)

    :math:`L_0 \theta / 2\pi` is the number of full turns in the trained length :math:`L_0`; pairs
    with fewer than :math:`a` turns are slow, those with more than :math:`b` fast. This is the rule
    of the released Llama 3.1 code. The rest as of :func:`linear_scaling`.

    Args:
        low_freq_factor: :math:`a`.
        high_freq_factor: :math:`b`, above :math:`a`.
        original_length: :math:`L_0`, in tokens.

    Example:
        >>> llama3_scaling(torch.tensor([1.0, 1e-4]))
        tensor([1.0000e+00, 1.2500e-05])
    """
    check_positive(factor=factor, low_freq_factor=low_freq_factor, original_length=original_length)
    if not high_freq_factor > low_freq_factor:
        raise ValueError(
            f"high_freq_factor: expected more than low_freq_factor = {low_freq_factor}, "
            f"got {high_freq_factor}"
        )
    turns = original_length * frequencies / (2 * math.pi)
    fast = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return ((1 - fast) / factor + fast) * frequencies


def yarn_scaling(
    frequencies: Float[Tensor, " F"],
    *,
    factor: float,
    original_length: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Float[Tensor, " F"]:
    r"""Slow pairs are interpolated, fast ones are left alone; between them the mix is by index.

    .. math:: \theta'_i = \left(1 - r_i + \frac{r_i}{\mathrm{factor}}\right) \theta_i, \qquad
       r_i = \mathrm{clip}\left(\frac{i - a}{b - a}, 0, 1\right), \qquad
       \frac{L_0 \theta_a}{2\pi} = \beta_{\mathrm{fast}}, \qquad
       \frac{L_0 \theta_b}{2\pi} = \beta_{\mathrm{slow}}

    YaRN (Peng et al., 2024), section 3.2: :math:`a` and :math:`b` are the indices of the pairs that
    make so many full turns in the trained length :math:`L_0`, as in the released code. The paper
    also multiplies the scores by :math:`(0.1 \ln \mathrm{factor} + 1)^2`: pass that as ``scale``.

    Args:
        frequencies: As trained, at least two: a geometric sequence.
        factor: As of :func:`linear_scaling`.
        original_length: :math:`L_0`, in tokens.
        beta_fast: Turns from which on a pair is fast.
        beta_slow: Turns up to which a pair is slow.
        truncate: Whether :math:`a` and :math:`b` are rounded outwards to whole numbers.

    Example:
        >>> yarn_scaling(rope_frequencies(4), factor=4.0, original_length=32)
        tensor([1.0000, 0.0025], dtype=torch.float64)
    """
    check_positive(
        factor=factor, original_length=original_length, beta_fast=beta_fast, beta_slow=beta_slow
    )
    pairs = frequencies.shape[-1]
    check_at_least(2, frequencies=pairs)
    ratio = (frequencies[0] / frequencies[1]).log()
    turns = original_length * frequencies[0] / (2 * math.pi)
    low, high = (turns / beta_fast).log() / ratio, (turns / beta_slow).log() / ratio
    if truncate:
        low, high = low.floor(), high.ceil()
    low, high = low.clamp(min=0), high.clamp(max=2 * pairs - 1)
    width = torch.where(high == low, 1e-3, high - low)
    index = torch.arange(pairs, device=frequencies.device)
    slow = ((index - low) / width).clamp(0, 1)
    return (1 - slow + slow / factor) * frequencies


def apply_rope(
    x: Float[Tensor, "*shape L E"],
    positions: Shaped[Tensor, "*pshape L"],
    *,
    base: float = 10000.0,
    interleaved: bool = True,
    frequencies: Float[Tensor, " F"] | None = None,
) -> Float[Tensor, "*shape L E"]:
    r"""Turn each pair of entries of a query or key by an angle proportional to its position.

    .. math:: \begin{pmatrix} x'_a \\ x'_b \end{pmatrix} =
       \begin{pmatrix} \cos p\theta_i & -\sin p\theta_i \\
       \sin p\theta_i & \cos p\theta_i \end{pmatrix}
       \begin{pmatrix} x_a \\ x_b \end{pmatrix}

    Pair :math:`i` is :math:`(a, b) = (2i, 2i+1)` when interleaved and :math:`(i, i + E/2)` when
    half-split. Lengths stay as they are, and the product of a turned query and a turned key depends
    on their distance only. Su et al. (2021), section 3.2.2, where pairs are interleaved.

    Args:
        x: Queries or keys.
        positions: One per row of ``x``, or with all of its leading axes, such as (B, 1, L) for
            queries (B, H, L, E). Need not be whole numbers.
        base: Of :func:`rope_frequencies`; not used when ``frequencies`` are given.
        interleaved: Neighbours are a pair, as in the paper. Otherwise entry and entry half the
            width further on, as in the weights of Llama and GPT-NeoX on Hugging Face.
        frequencies: One per pair. If these are fewer than :math:`E/2`, the first :math:`2F` entries
            turn and the others stay: rotary positions on a part of the head.

    Returns:
        The turned vectors in the dtype of ``x``; computed in float32 at least, angles in float64.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> apply_rope(x, torch.arange(2))
        tensor([[1.0000, 0.0000],
                [0.5403, 0.8415]])
    """
    frequencies = _turning(x, positions, base, frequencies)
    turning = 2 * frequencies.shape[-1]
    angles = positions.unsqueeze(-1) * frequencies.double()  # (..., L, F)
    wide = x.to(widest(x))
    cosine, sine = angles.cos().to(wide.dtype), angles.sin().to(wide.dtype)
    part, rest = wide[..., :turning], wide[..., turning:]
    if interleaved:
        first, second = part[..., 0::2], part[..., 1::2]  # (..., L, F)
    else:
        first, second = part.chunk(2, dim=-1)
    turned = (first * cosine - second * sine, first * sine + second * cosine)
    # stacked on a new axis neighbours alternate, concatenated the halves follow each other
    part = torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)
    return torch.cat([part, rest], dim=-1).to(x.dtype)


def _turning(
    x: Tensor, positions: Tensor, base: float, frequencies: Tensor | None
) -> Float[Tensor, " F"]:
    """How fast each pair turns, once all has been checked."""
    check_floating("x", x)
    check_device("positions", positions, x)
    if x.ndim < 2:
        raise ValueError(f"x: expected axes (..., L, E), got shape {tuple(x.shape)}")
    if positions.ndim not in (1, x.ndim - 1):
        # (B, L) beside (B, H, L, E) would be read as (H, L)
        raise ValueError(
            f"positions: expected shape ({x.shape[-2]},) or one that broadcasts to "
            f"{tuple(x.shape[:-1])} with as many axes, got {tuple(positions.shape)}"
        )
    check_expands("positions", positions.shape, x.shape[:-1])
    if frequencies is None:
        return rope_frequencies(x.shape[-1], base=base, device=x.device)
    check_device("frequencies", frequencies, x)
    if not 0 < 2 * frequencies.shape[-1] <= x.shape[-1]:
        raise ValueError(
            f"frequencies: expected 1 to {x.shape[-1] // 2}, got {frequencies.shape[-1]}"
        )
    return frequencies


def alibi_slopes(
    num_heads: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, " H"]:
    r"""How much each head dislikes distance: a geometric sequence.

    .. math:: m_h = 2^{-8h/H}, \qquad h = 1, \ldots, H

    Press et al. (2022), section 3, for a power of two. For other numbers of heads their code takes
    the slopes for the power of two below, then every other slope of the power of two above, from
    the first on, as we do.

    Args:
        num_heads: Number :math:`H` of heads.
        dtype, device: Of the result; torch's defaults when not given.

    Example:
        >>> alibi_slopes(4)
        tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    check_at_least(1, num_heads=num_heads)
    below = 2 ** (num_heads.bit_length() - 1)  # the largest power of two that is not above
    slopes = [2.0 ** (-8 * h / below) for h in range(1, below + 1)]
    slopes += [2.0 ** (-4 * h / below) for h in range(1, 2 * (num_heads - below), 2)]
    return torch.tensor(slopes, dtype=dtype or torch.get_default_dtype(), device=device)


def alibi_bias(
    num_heads: int,
    query_length: int,
    key_length: int | None = None,
    *,
    offset: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "H L S"]:
    r"""A penalty on the scores that grows with the distance of query and key.

    .. math:: b_{hij} = -m_h \, | i + \mathrm{offset} - j |

    Press et al. (2022), section 3, with the slopes of :func:`alibi_slopes`. It masks nothing: a
    causal model adds :math:`-\infty` for the keys to come. The paper is about such models; the
    absolute value is ours, so that a model without a causal mask can use it too. The rest as of
    :func:`alibi_slopes`.

    Args:
        query_length: Number of queries.
        key_length: Number of keys, which stand at 0, 1, ...; ``offset + query_length`` if none is
            given.
        offset: Position of the first query, such as the number of tokens in a cache.

    Example:
        >>> alibi_bias(2, 3)[0]
        tensor([[-0.0000, -0.0625, -0.1250],
                [-0.0625, -0.0000, -0.0625],
                [-0.1250, -0.0625, -0.0000]])
    """
    key_length = offset + query_length if key_length is None else key_length
    check_at_least(0, offset=offset, query_length=query_length, key_length=key_length)
    dtype = dtype or torch.get_default_dtype()
    wide = torch.promote_types(dtype, torch.float32)  # half precision does not count beyond 2048
    query = torch.arange(offset, offset + query_length, device=device).unsqueeze(1)
    distance = (query - torch.arange(key_length, device=device)).abs()  # (L, S)
    slopes = alibi_slopes(num_heads, dtype=wide, device=device).view(-1, 1, 1)
    return (-slopes * distance).to(dtype)


def relative_position_bucket(
    relative_position: Int[Tensor, "..."],
    *,
    bidirectional: bool = True,
    num_buckets: int = 32,
    max_distance: int = 128,
) -> Int[Tensor, "..."]:
    r"""Which learned number a distance shares with others: exact if small, coarse if large.

    .. math::
       \mathrm{bucket}(n) = \begin{cases} n & n < e \\
       \min\left(N - 1,\; e + \left\lfloor (N - e)
       \frac{\ln(n/e)}{\ln(\mathrm{max\_distance}/e)} \right\rfloor\right) & n \ge e \end{cases},
       \qquad e = \lfloor N/2 \rfloor

    One-sided, :math:`n` is how far the key lies behind the query, 0 if it lies ahead, and :math:`N`
    the number of buckets. On both sides :math:`N` is half of it, :math:`n` the absolute distance,
    and keys ahead use the second half. Raffel et al. (2020), section 2.1, describe it; the formula
    is that of their code, in float32 as there, so that trained tables fit.

    Args:
        relative_position: Position of the key minus that of the query.
        bidirectional: Keys ahead have buckets of their own, as in T5's encoder.
        num_buckets: Number of learned numbers per head, at least 2; on both sides even, at least 4.
        max_distance: From here on all distances share the last bucket; above :math:`e`.

    Returns:
        Bucket of each distance, 0 to ``num_buckets - 1``.

    Example:
        >>> relative_position_bucket(torch.tensor([-100, -1, 0, 1, 100]))
        tensor([15,  1,  0, 17, 31])
    """
    if relative_position.is_floating_point() or relative_position.dtype == torch.bool:
        raise ValueError(f"relative_position: expected integers, got {relative_position.dtype}")
    check_at_least(4 if bidirectional else 2, num_buckets=num_buckets)
    if bidirectional:
        _even(num_buckets=num_buckets)
    count = num_buckets // 2 if bidirectional else num_buckets
    exact = count // 2
    check_at_least(exact + 1, max_distance=max_distance)
    distance = relative_position.abs() if bidirectional else (-relative_position).clamp(min=0)
    ratio = (distance.clamp(min=exact).float() / exact).log() / math.log(max_distance / exact)
    coarse = (exact + (ratio * (count - exact)).long()).clamp(max=count - 1)
    bucket = torch.where(distance < exact, distance, coarse)
    return bucket + count * (relative_position > 0) if bidirectional else bucket


def _even(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 2 or number % 2:
            raise ValueError(f"{name}: expected a positive even number, got {number}")
