"""How alike two vectors are, and the mean of vectors by weight."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def cosine_similarity(a: ArrayLike, b: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Cosine of the angle between vectors, over the last axis.

    .. math:: \cos(a, b) = \frac{a \cdot b}{\lVert a \rVert\, \lVert b \rVert}

    Args:
        a: Vectors; the other axes broadcast against those of ``b``.
        b: Vectors of the same size.

    Returns:
        Numbers from -1 to 1; 0 where a vector is zero, since it points nowhere.

    Raises:
        ValueError: If the vectors differ in size.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape[-1] != y.shape[-1]:
        raise ValueError(f"b: expected vectors of size {x.shape[-1]}, got shape {y.shape}")
    dot = (x * y).sum(axis=-1)
    norms = np.sqrt((x * x).sum(axis=-1)) * np.sqrt((y * y).sum(axis=-1))
    return np.where(norms == 0, 0.0, dot / np.where(norms == 0, 1.0, norms))


def weighted_mean(weights: ArrayLike, value: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Mean of vectors in which each counts by its weight.

    .. math:: o = \frac{\sum_s w_s v_s}{\sum_s w_s}

    Args:
        weights: ``(..., S)``, not negative.
        value: ``(..., S, E)``.

    Returns:
        ``(..., E)``; 0 where the weights sum to 0.

    Raises:
        ValueError: If the numbers of weights and of vectors differ.
    """
    w, v = np.asarray(weights, dtype=np.float64), np.asarray(value, dtype=np.float64)
    if v.ndim < 2 or w.shape[-1] != v.shape[-2]:
        raise ValueError(
            f"weights: expected one per vector of value {v.shape}, got shape {w.shape}"
        )
    total = w.sum(axis=-1)[..., None]
    summed = (w[..., None] * v).sum(axis=-2)
    return np.where(total == 0, 0.0, summed / np.where(total == 0, 1.0, total))
