"""Sparse patterns, pair by pair in the words of their papers: the oracle of the masks and tiles."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool


def strided_pattern(length: int, *, stride: int) -> Bool[np.ndarray, "L L"]:
    r"""Which keys a query sees: the last ``stride``, and every ``stride``-th before them.

    .. math:: A_i^{(1)} = \{\max(0, i - \ell), \ldots, i\}, \qquad
       A_i^{(2)} = \{ j : (i - j) \bmod \ell = 0 \}

    Child et al. (2019), both sets joined. Written as walks back: ``stride`` keys in steps of 1,
    and the whole text in steps of ``stride``.

    Args:
        length: Number of positions.
        stride: :math:`\ell`.
    """
    seen = np.zeros((length, length), dtype=bool)
    for i in range(length):
        for j in range(i, max(-1, i - stride), -1):
            seen[i, j] = True
        for j in range(i, -1, -stride):
            seen[i, j] = True
    return seen


def fixed_pattern(length: int, *, stride: int, summary: int = 1) -> Bool[np.ndarray, "L L"]:
    r"""The own block so far, and the last ``summary`` places of every earlier block.

    .. math:: A_i^{(1)} = \{ j : \lfloor j / \ell \rfloor = \lfloor i / \ell \rfloor \}, \qquad
       A_i^{(2)} = \{ j : j \bmod \ell \in \{\ell - c, \ldots, \ell - 1\} \}

    Child et al. (2019), both sets joined, and no later key.

    Args:
        length: Number of positions.
        stride: Size :math:`\ell` of a block.
        summary: :math:`c`.
    """
    seen = np.zeros((length, length), dtype=bool)
    for start in range(0, length, stride):
        for i in range(start, min(length, start + stride)):
            seen[i, start : i + 1] = True
            for end in range(stride, start + 1, stride):
                seen[i, end - summary : end] = True
    return seen


def blockwise_pattern(
    length: int, *, block_size: int, shifts: Sequence[int] = (0,), num_blocks: int = 1
) -> Bool[np.ndarray, "H L L"]:
    r"""Each block of queries sees one block of keys, another one in each head.

    .. math:: \pi_h(n) = (n + \mathrm{shift}_h) \bmod n_{\mathrm{blocks}}

    Qiu et al. (2019).

    Args:
        length: Number of positions.
        block_size: Positions of a block.
        shifts: One for each head; with none but 0 a block sees itself.
        num_blocks: How many blocks there are.
    """
    blocks = [range(s, min(length, s + block_size)) for s in range(0, length, block_size)]
    seen = np.zeros((len(shifts), length, length), dtype=bool)
    for head, shift in enumerate(shifts):
        for number, queries in enumerate(blocks):
            other = (number + shift) % num_blocks if any(shifts) else number
            if other < len(blocks):
                for i in queries:
                    seen[head, i, blocks[other]] = True
    return seen


def window_pattern(
    length: int, *, window_size: int, dilation: int = 1, is_causal: bool = False
) -> Bool[np.ndarray, "L L"]:
    """Near keys, walked outwards from the query.

    Beltagy et al. (2020).

    Args:
        length: Number of positions.
        window_size: How many keys a query sees, itself included; odd if not causal.
        dilation: Distance of neighbours in the window.
        is_causal: Whether the window ends at the query.
    """
    seen = np.zeros((length, length), dtype=bool)
    half = window_size - 1 if is_causal else (window_size - 1) // 2
    for i in range(length):
        for step in range(-half, 1 if is_causal else half + 1):
            if 0 <= i + step * dilation < length:
                seen[i, i + step * dilation] = True
    return seen
