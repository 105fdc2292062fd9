"""Softmax and its relatives, in the plainest form that survives large scores."""

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike


def _scores(scores: ArrayLike, dim: int) -> Float[np.ndarray, "..."]:
    s = np.asarray(scores, dtype=np.float64)
    if not -s.ndim <= dim < s.ndim:
        raise ValueError(f"dim: expected an axis of shape {s.shape}, got {dim}")
    return s


def softmax(scores: ArrayLike, dim: int = -1) -> Float[np.ndarray, "..."]:
    r"""Turn scores into positive weights that sum to one.

    .. math:: p_i = \frac{e^{s_i}}{\sum_j e^{s_j}} = \frac{e^{s_i - m}}{\sum_j e^{s_j - m}},
       \qquad m = \max_j s_j

    Args:
        scores: Any real numbers.
        dim: Axis that sums to one.

    Returns:
        Weights of the same shape.

    Raises:
        ValueError: If there is no axis ``dim``.
    """
    s = _scores(scores, dim)
    if s.shape[dim] == 0:
        return s
    with np.errstate(invalid="ignore"):
        e: np.ndarray = np.exp(s - s.max(axis=dim, keepdims=True))
    weights: np.ndarray = e / e.sum(axis=dim, keepdims=True)
    return weights


def logsumexp(scores: ArrayLike, dim: int = -1) -> Float[np.ndarray, "..."]:
    r"""Logarithm of a sum of exponentials, a smooth maximum.

    .. math:: \mathrm{lse}(s) = \log \sum_j e^{s_j} = m + \log \sum_j e^{s_j - m},
       \qquad m = \max_j s_j

    Args:
        scores: Any real numbers; ``-inf`` adds nothing.
        dim: Axis that is summed away.

    Returns:
        One number per row; ``-inf`` for a row of ``-inf`` and for an empty row.

    Raises:
        ValueError: If there is no axis ``dim``.
    """
    s = _scores(scores, dim)
    m = s.max(axis=dim, keepdims=True, initial=-np.inf)
    m = np.where(np.isfinite(m), m, 0.0)
    with np.errstate(divide="ignore"):
        log: np.ndarray = np.log(np.exp(s - m).sum(axis=dim))
    return np.asarray(log + np.squeeze(m, axis=dim))


def log_softmax(scores: ArrayLike, dim: int = -1) -> Float[np.ndarray, "..."]:
    r"""Logarithm of the softmax, without ever forming the softmax.

    .. math:: \log p_i = (s_i - m) - \log \sum_j e^{s_j - m}, \qquad m = \max_j s_j

    Args:
        scores: Any real numbers.
        dim: Axis whose exponentials sum to one.

    Returns:
        Log-weights of the same shape.

    Raises:
        ValueError: If there is no axis ``dim``.
    """
    s = _scores(scores, dim)
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = s - s.max(axis=dim, keepdims=True, initial=-np.inf)
        logs: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=dim, keepdims=True))
    return logs


def masked_softmax(
    scores: ArrayLike, attn_mask: Bool[np.ndarray, "..."], dim: int = -1
) -> Float[np.ndarray, "..."]:
    r"""Softmax over the allowed positions only; the others get weight exactly 0.

    .. math:: p_i = \frac{m_i e^{s_i}}{\sum_j m_j e^{s_j}}, \qquad
       p = 0 \text{ where no position is allowed}

    Args:
        scores: Any real numbers; what stands at a forbidden position does not matter, NaN included.
        attn_mask: True = may attend; broadcasts to the shape of ``scores``.
        dim: Axis that sums to one.

    Returns:
        Weights of the shape of ``scores``; a fully masked row is 0.

    Raises:
        ValueError: If there is no axis ``dim``, or the mask is not boolean or does not broadcast to
            ``scores``.
    """
    s = _scores(scores, dim)
    mask = np.asarray(attn_mask)
    if mask.dtype != np.bool_:
        raise ValueError(
            f"attn_mask: expected a boolean mask (True = may attend), got {mask.dtype}"
        )
    s = np.where(np.broadcast_to(mask, s.shape), s, -np.inf)
    m = s.max(axis=dim, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(m == -np.inf, 0.0, m))
    total = e.sum(axis=dim, keepdims=True)
    weights: np.ndarray = e / np.where(total == 0, 1.0, total)
    return weights
