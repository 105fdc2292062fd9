"""Bytes that must move and the time that they take: the roofline, in exact formulas.

Everything here is counted, nothing measured, and needs no GPU. Operations are counted as in
:mod:`attn_course.functional.counts`: a multiplication and an addition are two.
"""


def roofline_seconds(
    flops: float, nbytes: float, *, peak_flops: float, bandwidth: float
) -> tuple[float, float]:
    r"""The least time that the arithmetic takes, and that the memory takes.

    .. math:: t \ge \max\!\left(\frac{\text{flops}}{\pi}, \frac{\text{bytes}}{\beta}\right)

    Williams et al. (2009). Neither can be beaten by any program that does these operations and
    moves these bytes; a real program approaches the larger of the two, if both overlap.

    Args:
        flops: Operations.
        nbytes: Bytes between chip and memory.
        peak_flops: Operations in a second at most, :math:`\pi`.
        bandwidth: Bytes in a second at most, :math:`\beta`.

    Returns:
        Seconds for the arithmetic and seconds for the memory.

    Raises:
        ValueError: If a rate is not positive, or a count negative.

    Example:
        >>> roofline_seconds(1e12, 1e9, peak_flops=1e15, bandwidth=1e12)
        (0.001, 0.001)
    """
    for name, rate in (("peak_flops", peak_flops), ("bandwidth", bandwidth)):
        if not rate > 0:
            raise ValueError(f"{name}: expected a positive rate, got {rate}")
    for name, count in (("flops", flops), ("nbytes", nbytes)):
        if count < 0:
            raise ValueError(f"{name}: expected at least 0, got {count}")
    return flops / peak_flops, nbytes / bandwidth


def matmul_bytes(
    M: int, N: int, K: int, *, itemsize: int, block_m: int | None = None, block_n: int | None = None
) -> int:
    r"""Bytes that a tiled product of ``(M, K)`` and ``(K, N)`` moves.

    .. math:: \left(M K \left\lceil \tfrac{N}{b_n} \right\rceil
       + K N \left\lceil \tfrac{M}{b_m} \right\rceil + M N\right) \cdot \text{itemsize}

    Every tile of the result reads its rows of the first factor and its columns of the second. A
    cache may serve some of these reads; memory serves all of them at the worst.

    Args:
        M: Rows of the result.
        N: Columns of the result.
        K: What is summed over.
        itemsize: Bytes of an entry.
        block_m: Rows of a tile; all of them if not given, which is the least there can be.
        block_n: Columns of a tile; all of them if not given.

    Raises:
        ValueError: If a size is below 1.

    Example:
        >>> matmul_bytes(1024, 1024, 1024, itemsize=2, block_m=128, block_n=128)
        35651584
    """
    block_m, block_n = block_m or M, block_n or N
    for name, size in (
        *(("M", M), ("N", N), ("K", K)),
        *(("itemsize", itemsize), ("block_m", block_m), ("block_n", block_n)),
    ):
        if size < 1:
            raise ValueError(f"{name}: expected at least 1, got {size}")
    return (M * K * -(-N // block_n) + K * N * -(-M // block_m) + M * N) * itemsize


def attention_bytes(
    L: int, S: int, E: int, *, itemsize: int, fused: bool, value_dim: int | None = None
) -> int:
    r"""Bytes that one head of attention moves, at least.

    .. math:: \left(L E + S E + S E_v + L E_v\right) \cdot \text{itemsize}
       \quad (+\; 4 L S \cdot \text{itemsize} \text{ if the scores go to memory})

    In three kernels the scores are written, read by the softmax, written as weights and read again.
    Fused, they never leave the chip.

    Args:
        L: Queries.
        S: Keys.
        E: Head size of queries and keys.
        itemsize: Bytes of an entry.
        fused: Whether one kernel does it all and keeps keys and values on the chip.
        value_dim: Head size of the values; ``E`` if not given.

    Raises:
        ValueError: If a size is below 1.

    Example:
        >>> attention_bytes(1024, 1024, 64, itemsize=2, fused=True)
        524288
    """
    value_dim = E if value_dim is None else value_dim
    for name, size in (
        ("L", L),
        ("S", S),
        ("E", E),
        ("itemsize", itemsize),
        ("value_dim", value_dim),
    ):
        if size < 1:
            raise ValueError(f"{name}: expected at least 1, got {size}")
    outside = L * E + S * E + S * value_dim + L * value_dim
    return (outside + (0 if fused else 4 * L * S)) * itemsize
