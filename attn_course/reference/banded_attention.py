"""Attention to near keys and to a few far ones, pair by pair."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def sliding_window_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    *,
    window_size: int,
    dilation: int | Sequence[int] = 1,
    is_causal: bool = False,
    global_mask: ArrayLike | None = None,
    symmetric: bool = True,
    scale: float | None = None,
) -> Float[np.ndarray, "B H L Ev"]:
    r"""Scaled dot-product attention inside a window, plus chosen global positions.

    .. math:: o_i = \sum_{j \in S_i} \frac{e^{q_i \cdot k_j / \sqrt E}}{\sum_{j' \in S_i}
       e^{q_i \cdot k_{j'} / \sqrt E}}\, v_j, \qquad
       S_i = \{ j : \mathrm{window}(i, j) \lor g_i \lor g_j \}

    Beltagy et al. (2020). The window of position :math:`i` is walked outwards, key by key.

    Args:
        query: ``(B, H, L, E)``.
        key: ``(B, H, L, E)``.
        value: ``(B, H, L, Ev)``.
        attn_mask: ``(B or 1, 1, 1, L)``, True = a key that counts.
        window_size: How many keys a query sees, itself included; odd if not causal.
        dilation: Distance of neighbours in the window; a list has one for each head.
        is_causal: Whether a query sees only keys up to its own.
        global_mask: ``(B, L)``, positions that see all and are seen by all.
        symmetric: False: they are seen by all, but see their window only.
        scale: Instead of 1/sqrt(E).

    Returns:
        Rows of 0 where there is nothing to see.

    Raises:
        ValueError: If the window is empty or, where not causal, even.
    """
    if window_size < 1 or not (is_causal or window_size % 2):
        raise ValueError(
            f"window_size: expected a positive number, odd if not causal, got {window_size}"
        )
    q, k, v = (np.asarray(rows, dtype=np.float64) for rows in (query, key, value))
    batch, heads, length, dim = q.shape
    factor = dim**-0.5 if scale is None else scale
    real = np.ones((batch, length), dtype=bool)
    if attn_mask is not None:
        real &= np.asarray(attn_mask)[:, 0, 0]
    chosen = np.zeros((batch, length), dtype=bool)
    if global_mask is not None:
        chosen = np.asarray(global_mask) & real
    steps = [dilation] * heads if isinstance(dilation, int) else list(dilation)
    output = np.zeros((batch, heads, length, v.shape[-1]))
    for b, h, i in np.ndindex(batch, heads, length):
        if is_causal:
            seen = {i - n * steps[h] for n in range(window_size)}
        else:
            half = (window_size - 1) // 2
            seen = {i + n * steps[h] for n in range(-half, half + 1)}
        seen |= {int(j) for j in np.flatnonzero(chosen[b])}
        if symmetric and chosen[b, i]:
            seen = set(range(length))
        keys = [j for j in sorted(seen) if 0 <= j < length and real[b, j]]
        keys = [j for j in keys if j <= i or not is_causal]
        if not keys:
            continue
        scores = np.array([factor * sum(q[b, h, i] * k[b, h, j]) for j in keys])
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        for weight, j in zip(weights, keys, strict=True):
            output[b, h, i] += weight * v[b, h, j]
    return output
