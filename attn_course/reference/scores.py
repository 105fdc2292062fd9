"""How well a query fits a key: the seven score functions, pair by pair in loops."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from attn_course.reference.similarity import cosine_similarity


def _pairwise(
    compare: Callable[..., float], query: ArrayLike, key: ArrayLike
) -> Float[np.ndarray, "..."]:
    """``compare(q, k, s)`` for every query, key and place ``s`` of the key."""
    q, k = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    for name, vectors in (("query", q), ("key", k)):
        if vectors.ndim < 2:
            raise ValueError(f"{name}: expected vectors in rows, got shape {vectors.shape}")
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    q = np.broadcast_to(q, batch + q.shape[-2:])
    k = np.broadcast_to(k, batch + k.shape[-2:])
    scores = np.empty((*batch, q.shape[-2], k.shape[-2]))
    for index in np.ndindex(scores.shape):
        *row, at, s = index
        scores[index] = compare(q[(*row, at)], k[(*row, s)], s)
    return scores


def _check_shape(name: str, value: ArrayLike, expected: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.shape != expected:
        raise ValueError(f"{name}: expected shape {expected}, got {array.shape}")
    return array


def _same_size(query: ArrayLike, key: ArrayLike) -> int:
    q, k = np.shape(query), np.shape(key)
    if not q or not k or q[-1] != k[-1]:
        raise ValueError(f"key: expected vectors of the query's size {q[-1:]}, got shape {k}")
    return int(q[-1])


def dot_score(query: ArrayLike, key: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""The dot product (Luong et al., 2015, section 3.1, *dot*).

    .. math:: s_{ij} = q_i \cdot k_j

    Args:
        query: ``(..., L, E)``.
        key: ``(..., S, E)``.

    Returns:
        Scores ``(..., L, S)``.

    Raises:
        ValueError: If the sizes of query and key differ.
    """
    _same_size(query, key)
    return _pairwise(lambda q, k, s: float(q @ k), query, key)


def scaled_dot_score(
    query: ArrayLike, key: ArrayLike, *, scale: float | None = None
) -> Float[np.ndarray, "..."]:
    r"""The dot product, scaled (Vaswani et al., 2017, equation 1).

    .. math:: s_{ij} = \frac{q_i \cdot k_j}{\sqrt{E}}

    Args:
        query: ``(..., L, E)``.
        key: ``(..., S, E)``.
        scale: Factor in place of :math:`1/\sqrt{E}`.

    Returns:
        Scores ``(..., L, S)``.

    Raises:
        ValueError: If the sizes of query and key differ.
    """
    size = _same_size(query, key)
    factor = size**-0.5 if scale is None else scale
    return _pairwise(lambda q, k, s: float(q @ k) * factor, query, key)


def general_score(
    query: ArrayLike, key: ArrayLike, *, weight: ArrayLike
) -> Float[np.ndarray, "..."]:
    r"""A dot product through a learned matrix (Luong et al., 2015, section 3.1, *general*).

    .. math:: s_{ij} = q_i^\top W k_j

    Args:
        query: ``(..., L, E_q)``.
        key: ``(..., S, E_k)``.
        weight: ``(E_q, E_k)``.

    Returns:
        Scores ``(..., L, S)``.

    Raises:
        ValueError: If the weight does not fit the sizes of query and key.
    """
    w = _check_shape("weight", weight, (np.shape(query)[-1], np.shape(key)[-1]))
    return _pairwise(lambda q, k, s: float(q @ w @ k), query, key)


def additive_score(
    query: ArrayLike,
    key: ArrayLike,
    *,
    weight_query: ArrayLike,
    weight_key: ArrayLike,
    v: ArrayLike,
    bias: ArrayLike | None = None,
) -> Float[np.ndarray, "..."]:
    r"""A small network with one hidden layer (Bahdanau et al., 2015, appendix A.1.2).

    .. math:: s_{ij} = v^\top \tanh(W q_i + U k_j + b)

    Args:
        query: ``(..., L, E_q)``.
        key: ``(..., S, E_k)``.
        weight_query: :math:`W`, ``(A, E_q)``.
        weight_key: :math:`U`, ``(A, E_k)``.
        v: ``(A,)``.
        bias: :math:`b`, ``(A,)``; 0 if none is given.

    Returns:
        Scores ``(..., L, S)``.

    Raises:
        ValueError: If a parameter does not fit the sizes of query and key.
    """
    size = np.shape(v)[-1]
    w = _check_shape("weight_query", weight_query, (size, np.shape(query)[-1]))
    u = _check_shape("weight_key", weight_key, (size, np.shape(key)[-1]))
    b = _check_shape("bias", np.zeros(size) if bias is None else bias, (size,))
    last = _check_shape("v", v, (size,))
    return _pairwise(lambda q, k, s: float(last @ np.tanh(w @ q + u @ k + b)), query, key)


def concat_score(
    query: ArrayLike, key: ArrayLike, *, weight: ArrayLike, v: ArrayLike
) -> Float[np.ndarray, "..."]:
    r"""The same network over the concatenation (Luong et al., 2015, section 3.1, *concat*).

    .. math:: s_{ij} = v^\top \tanh(W [q_i; k_j])

    Args:
        query: ``(..., L, E_q)``.
        key: ``(..., S, E_k)``.
        weight: ``(A, E_q + E_k)``.
        v: ``(A,)``.

    Returns:
        Scores ``(..., L, S)``.

    Raises:
        ValueError: If a parameter does not fit the sizes of query and key.
    """
    size = np.shape(v)[-1]
    w = _check_shape("weight", weight, (size, np.shape(query)[-1] + np.shape(key)[-1]))
    last = _check_shape("v", v, (size,))
    return _pairwise(lambda q, k, s: float(last @ np.tanh(w @ np.concatenate([q, k]))), query, key)


def location_score(
    query: ArrayLike, key: ArrayLike, *, weight: ArrayLike
) -> Float[np.ndarray, "..."]:
    r"""A score of places, blind to what stands there (Luong et al., 2015, equation 8, *location*).

    .. math:: s_{ij} = (W q_i)_j

    Args:
        query: ``(..., L, E_q)``.
        key: ``(..., S, E_k)``; only the number of keys counts.
        weight: ``(S_max, E_q)``; the first ``S`` rows are used.

    Returns:
        Scores ``(..., L, S)``.

    Raises:
        ValueError: If there are more keys than rows, or the rows do not have the query's size.
    """
    w = np.asarray(weight, dtype=np.float64)
    if w.ndim != 2 or w.shape[1] != np.shape(query)[-1] or w.shape[0] < np.shape(key)[-2]:
        raise ValueError(
            f"weight: expected at least {np.shape(key)[-2]} rows of size {np.shape(query)[-1]}, "
            f"got shape {w.shape}"
        )
    return _pairwise(lambda q, k, s: float(w[s] @ q), query, key)


def cosine_score(
    query: ArrayLike, key: ArrayLike, *, sharpness: ArrayLike = 1.0
) -> Float[np.ndarray, "..."]:
    r"""The cosine, times a sharpness (Graves et al., 2014, equations 5 and 6).

    .. math:: s_{ij} = \beta\, \frac{q_i \cdot k_j}{\lVert q_i \rVert \lVert k_j \rVert}

    Args:
        query: ``(..., L, E)``.
        key: ``(..., S, E)``.
        sharpness: :math:`\beta`: a number, or one for each query, ``(..., L)``.

    Returns:
        Scores ``(..., L, S)``; 0 where a vector is zero.

    Raises:
        ValueError: If the sizes of query and key differ.
    """
    _same_size(query, key)
    cosine = _pairwise(lambda q, k, s: float(cosine_similarity(q, k)), query, key)
    return np.asarray(np.asarray(sharpness, dtype=np.float64)[..., None] * cosine)
