"""Positions, one entry at a time."""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike


def sinusoidal_positions(
    length: int,
    embed_dim: int,
    *,
    base: float = 10000.0,
    offset: int = 0,
    interleaved: bool = True,
) -> Float[np.ndarray, "L D"]:
    r"""One fixed vector per position.

    .. math:: \mathrm{PE}_{p, 2i} = \sin(p \, \mathrm{base}^{-2i/D}), \qquad
       \mathrm{PE}_{p, 2i+1} = \cos(p \, \mathrm{base}^{-2i/D})

    Vaswani et al. (2017), section 3.5.

    Args:
        length: Number of positions.
        embed_dim: Width :math:`D`.
        base: The longest wavelength is just below :math:`2\pi\,\mathrm{base}` positions.
        offset: First position.
        interleaved: Sine and cosine alternate; otherwise all sines stand before all cosines.
    """
    table = np.zeros((length, embed_dim))
    sines = (embed_dim + 1) // 2
    for row in range(length):
        for d in range(embed_dim):
            angle = (row + offset) / base ** (2 * (d // 2) / embed_dim)
            column = d if interleaved else (d // 2 if d % 2 == 0 else sines + d // 2)
            table[row, column] = math.sin(angle) if d % 2 == 0 else math.cos(angle)
    return table


def rope_frequencies(
    head_dim: int,
    *,
    base: float = 10000.0,
    scaling: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Float[np.ndarray, " F"]:
    r"""How fast each pair of entries turns, in radians per position.

    .. math:: \theta_i = \mathrm{base}^{-2i/E}

    Su et al. (2021), section 3.2.2.

    Args:
        head_dim: Number :math:`E` of entries that turn.
        base: Larger turns slower.
        scaling: Applied to the frequencies.
    """
    frequencies = np.array([1 / base ** (2 * i / head_dim) for i in range(head_dim // 2)])
    return frequencies if scaling is None else scaling(frequencies)


def scaled_base(base: float, factor: float, head_dim: int) -> float:
    r"""The base with which the slowest pair turns ``factor`` times slower, the fastest as before.

    .. math:: \mathrm{base}'^{-(E-2)/E} = \mathrm{base}^{-(E-2)/E} / \mathrm{factor}

    Args:
        base: The trained base.
        factor: How many times longer the text may become.
        head_dim: Number :math:`E` of entries that turn.
    """
    slowest = base ** (-(head_dim - 2) / head_dim) / factor
    return float(slowest ** (-head_dim / (head_dim - 2)))


def linear_scaling(frequencies: ArrayLike, *, factor: float) -> Float[np.ndarray, " F"]:
    r"""Every pair turns ``factor`` times slower.

    .. math:: \theta'_i = \theta_i / \mathrm{factor}

    Args:
        frequencies: As trained.
        factor: How many times longer the text may become.
    """
    return np.asarray(np.asarray(frequencies, dtype=np.float64) / factor)


def llama3_scaling(
    frequencies: ArrayLike,
    *,
    factor: float = 8.0,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    original_length: int = 8192,
) -> Float[np.ndarray, " F"]:
    """Slow pairs are interpolated, fast ones are left alone, those between are mixed.

    Written by wavelengths :math:`2\\pi/\\theta`, as in the released Llama 3.1 code.

    Args:
        frequencies: As trained.
        factor: How many times longer the text may become.
        low_freq_factor: A pair with fewer turns in the trained length is slow.
        high_freq_factor: A pair with more turns is fast.
        original_length: The trained length, in tokens.
    """
    scaled = []
    for frequency in np.asarray(frequencies, dtype=np.float64):
        wavelength = 2 * math.pi / frequency
        if wavelength < original_length / high_freq_factor:
            scaled.append(frequency)
        elif wavelength > original_length / low_freq_factor:
            scaled.append(frequency / factor)
        else:
            smooth = (original_length / wavelength - low_freq_factor) / (
                high_freq_factor - low_freq_factor
            )
            scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
    return np.array(scaled)


def yarn_scaling(
    frequencies: ArrayLike,
    *,
    factor: float,
    original_length: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Float[np.ndarray, " F"]:
    """Slow pairs are interpolated, fast ones are left alone; between them the mix is by index.

    Written with the base, as in the released code of YaRN (Peng et al., 2024).

    Args:
        frequencies: As trained.
        factor: How many times longer the text may become.
        original_length: The trained length, in tokens.
        beta_fast: Turns from which on a pair is fast.
        beta_slow: Turns up to which a pair is slow.
        truncate: Whether the borders are rounded outwards.
    """
    trained = np.asarray(frequencies, dtype=np.float64)
    size = 2 * len(trained)
    base = (trained[0] / trained[1]) ** (size / 2)
    borders = [
        size * math.log(original_length / (turns * 2 * math.pi)) / (2 * math.log(base))
        for turns in (beta_fast, beta_slow)
    ]
    if truncate:
        borders = [math.floor(borders[0]), math.ceil(borders[1])]
    low, high = max(borders[0], 0), min(borders[1], size - 1)
    scaled = []
    for index, frequency in enumerate(trained):
        slow = (index - low) / (high - low or 1e-3)
        slow = min(max(slow, 0.0), 1.0)
        scaled.append((1 - slow) * frequency + slow * frequency / factor)
    return np.array(scaled)


def apply_rope(
    x: ArrayLike,
    positions: ArrayLike,
    *,
    base: float = 10000.0,
    interleaved: bool = True,
    frequencies: ArrayLike | None = None,
) -> Float[np.ndarray, "..."]:
    r"""Turn each pair of entries by an angle proportional to its position, as complex numbers.

    .. math:: x'_a + i x'_b = (x_a + i x_b)\, e^{i p \theta}

    Su et al. (2021), section 3.2.2.

    Args:
        x: Queries or keys, ``(..., L, E)``.
        positions: One per row, or with all leading axes of ``x``.
        base: Of :func:`rope_frequencies`; not used when ``frequencies`` are given.
        interleaved: Neighbours are a pair; otherwise entries half the width apart.
        frequencies: One per pair; the first :math:`2F` entries turn.
    """
    x = np.array(x, dtype=np.float64)  # a copy
    if frequencies is None:
        frequencies = rope_frequencies(x.shape[-1], base=base)
    turns = np.asarray(frequencies, dtype=np.float64)
    places = np.broadcast_to(np.asarray(positions, dtype=np.float64), x.shape[:-1])
    half = len(turns)
    for i, frequency in enumerate(turns):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        turned = (x[..., a] + 1j * x[..., b]) * np.exp(1j * places * frequency)
        x[..., a], x[..., b] = turned.real, turned.imag
    return x


def alibi_slopes(num_heads: int) -> Float[np.ndarray, " H"]:
    r"""How much each head dislikes distance.

    .. math:: m_h = 2^{-8h/H}

    for a power of two. Otherwise the slopes of the power of two below are followed by the first,
    third, fifth ... of the power of two above. Press et al. (2022), section 3, and their code.

    Args:
        num_heads: Number :math:`H` of heads.
    """

    def of_power(heads: int) -> list[float]:
        ratio = 2 ** (-8 / heads)
        return [ratio ** (h + 1) for h in range(heads)]

    below = 2 ** math.floor(math.log2(num_heads))
    more = of_power(2 * below)[0::2][: num_heads - below]
    return np.array(of_power(below) + more)


def alibi_bias(
    num_heads: int, query_length: int, key_length: int | None = None, *, offset: int = 0
) -> Float[np.ndarray, "H L S"]:
    r"""A penalty on the scores that grows with the distance of query and key.

    .. math:: b_{hij} = -m_h \, | i + \mathrm{offset} - j |

    Press et al. (2022), section 3.

    Args:
        num_heads: Number of heads.
        query_length: Number of queries.
        key_length: Number of keys; ``offset + query_length`` if none is given.
        offset: Position of the first query.
    """
    keys = offset + query_length if key_length is None else key_length
    bias = np.zeros((num_heads, query_length, keys))
    for h, slope in enumerate(alibi_slopes(num_heads)):
        for i in range(query_length):
            for j in range(keys):
                bias[h, i, j] = -slope * abs(i + offset - j)
    return bias


def relative_position_bucket(
    relative_position: ArrayLike,
    *,
    bidirectional: bool = True,
    num_buckets: int = 32,
    max_distance: int = 128,
) -> Int[np.ndarray, "..."]:
    r"""Which learned number a distance shares with others, without a logarithm.

    Beyond the exact half, bucket :math:`e + k` holds the distances :math:`n` with

    .. math:: \left(\frac{n}{e}\right)^{N-e} \ge \left(\frac{\mathrm{max\_distance}}{e}\right)^k

    for the largest such :math:`k`, compared in whole numbers. Raffel et al. (2020), section 2.1,
    and their code.

    Args:
        relative_position: Position of the key minus that of the query.
        bidirectional: Keys ahead have buckets of their own.
        num_buckets: Number of learned numbers per head.
        max_distance: From here on all distances share the last bucket.
    """
    count = num_buckets // 2 if bidirectional else num_buckets
    exact = count // 2
    more = count - exact

    def bucket(relative: int) -> int:
        distance = abs(relative) if bidirectional else max(0, -relative)
        first = count if bidirectional and relative > 0 else 0
        if distance < exact:
            return first + distance
        k = 0
        while k < more - 1 and (
            distance**more * exact ** (k + 1) >= max_distance ** (k + 1) * exact**more
        ):
            k += 1
        return first + exact + k

    given = np.asarray(relative_position)
    flat = [bucket(int(relative)) for relative in given.ravel()]
    return np.array(flat, dtype=np.int64).reshape(given.shape)
