"""Linformer, sum by sum."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from attn_course.reference.scaled_dot_product import scaled_dot_product_attention


def _project_length(
    x: ArrayLike, projection: ArrayLike, padding_mask: ArrayLike | None = None
) -> Float[np.ndarray, "B H K E"]:
    r"""Mixtures of positions: :math:`x'_k = \sum_s P_{ks}\, x_s` over the real ones.

    Args:
        x: ``(B, H, S, E)``.
        projection: ``(K, N)`` or ``(H, K, N)`` with N of at least S.
        padding_mask: ``(B, S)``, True = real.
    """
    rows, mix = np.asarray(x, dtype=np.float64), np.asarray(projection, dtype=np.float64)
    batch, heads, length, size = rows.shape
    real = np.ones((batch, length), dtype=bool) if padding_mask is None else np.array(padding_mask)
    short = np.zeros((batch, heads, mix.shape[-2], size))
    for b, h, k, s in np.ndindex(batch, heads, mix.shape[-2], length):
        if real[b, s]:
            short[b, h, k] += (mix[h] if mix.ndim == 3 else mix)[k, s] * rows[b, h, s]
    return short


def linformer_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    key_projection: ArrayLike,
    value_projection: ArrayLike,
    *,
    padding_mask: ArrayLike | None = None,
    scale: float | None = None,
) -> Float[np.ndarray, "B H L Ev"]:
    """Attention to mixtures of the keys.

    Args:
        query: ``(B, H, L, E)``.
        key: ``(B, H, S, E)``.
        value: ``(B, H, S, Ev)``.
        key_projection: ``(K, N)`` or ``(H, K, N)``.
        value_projection: Likewise.
        padding_mask: ``(B, S)``, True = real.
        scale: Instead of 1/sqrt(E).
    """
    return scaled_dot_product_attention(
        query,
        _project_length(key, key_projection, padding_mask),
        _project_length(value, value_projection, padding_mask),
        scale=scale,
    )
