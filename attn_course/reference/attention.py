"""The three steps of every attention, query by query: score, normalise, mix."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from attn_course.reference.scores import scaled_dot_score
from attn_course.reference.softmax import masked_softmax


def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    score: Callable[..., np.ndarray] = scaled_dot_score,
    attn_mask: Bool[np.ndarray, "..."] | None = None,
    normalize: Callable[..., np.ndarray] | None = masked_softmax,
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    r"""Mix the values by how well their keys fit the query.

    .. math:: w_{i\cdot} = \mathrm{normalize}(\mathrm{score}(q_i, k_\cdot)), \qquad
       o_i = \sum_j w_{ij} v_j

    Args:
        query: ``(..., L, E_q)``.
        key: ``(..., S, E_k)``.
        value: ``(..., S, E_v)``.
        score: Maps query and key to ``(..., L, S)``.
        attn_mask: True = may attend; broadcasts to the scores. Everything may, if none is given.
        normalize: Maps scores and mask to weights; None takes the scores themselves, 0 where
            masked.

    Returns:
        Output ``(..., L, E_v)`` and weights ``(..., L, S)``.

    Raises:
        ValueError: If the numbers of keys and of values differ, or the mask does not fit.
    """
    k, v = np.asarray(key, dtype=np.float64), np.asarray(value, dtype=np.float64)
    if v.ndim < 2 or k.shape[-2] != v.shape[-2]:
        raise ValueError(f"value: expected one row per key of {k.shape}, got shape {v.shape}")
    scores = score(query, k)
    mask = np.broadcast_to(True if attn_mask is None else attn_mask, scores.shape)
    weights = np.where(mask, scores, 0.0) if normalize is None else normalize(scores, mask)
    batch = np.broadcast_shapes(weights.shape[:-2], v.shape[:-2])
    weights = np.broadcast_to(weights, batch + weights.shape[-2:])
    v = np.broadcast_to(v, batch + v.shape[-2:])
    output = np.zeros((*batch, weights.shape[-2], v.shape[-1]))
    for index in np.ndindex(weights.shape):
        *row, i, j = index
        if weights[index] != 0:  # 0 * NaN of padding must not count
            output[(*row, i)] += weights[index] * v[(*row, j)]
    return output, np.array(weights)
