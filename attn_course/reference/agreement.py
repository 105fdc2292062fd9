"""Measures of agreement between explanations, by counting pairs."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def _pair(a: ArrayLike, b: ArrayLike) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.ndim == 0:
        raise ValueError(f"b: expected the shape of a {x.shape}, got {y.shape}")
    return x, y


def kendall_tau(a: ArrayLike, b: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""How many pairs two rankings put in the same order (tau-b), over the last axis.

    .. math:: \tau = \frac{\#\text{pairs in the same order} - \#\text{pairs in opposite order}}
       {\sqrt{\#\text{pairs untied in } a}\,\sqrt{\#\text{pairs untied in } b}}

    Args:
        a: ``(..., S)``.
        b: The same shape.

    Returns:
        Numbers from -1 to 1; 0 where one of the two is constant.

    Raises:
        ValueError: If the shapes differ.
    """
    x, y = _pair(a, b)
    out = np.zeros(x.shape[:-1])
    for row in np.ndindex(out.shape):
        same = opposite = untied_a = untied_b = 0
        for i in range(x.shape[-1]):
            for j in range(i):
                da, db = (x[row][i] > x[row][j]), (y[row][i] > y[row][j])
                tie_a, tie_b = x[row][i] == x[row][j], y[row][i] == y[row][j]
                untied_a += not tie_a
                untied_b += not tie_b
                if not tie_a and not tie_b:
                    same += da == db
                    opposite += da != db
        if untied_a and untied_b:
            out[row] = (same - opposite) / np.sqrt(float(untied_a) * untied_b)
    return out


def spearman(a: ArrayLike, b: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Correlation of the ranks over the last axis; equal entries share their mean rank.

    Args:
        a: ``(..., S)``.
        b: The same shape.

    Returns:
        Numbers from -1 to 1; 0 where one of the two is constant.

    Raises:
        ValueError: If the shapes differ.
    """
    x, y = _pair(a, b)
    out = np.zeros(x.shape[:-1])
    for row in np.ndindex(out.shape):
        ranks = [
            np.array([(v < t).sum() + ((v == t).sum() + 1) / 2 for t in v])
            for v in (x[row], y[row])
        ]
        p, q = (r - r.mean() for r in ranks)
        if (p @ p) > 0 and (q @ q) > 0:
            out[row] = (p @ q) / np.sqrt((p @ p) * (q @ q))
    return out


def total_variation(p: ArrayLike, q: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Largest difference that two distributions give to any event, over the last axis.

    .. math:: \mathrm{TV}(p, q) = \tfrac12 \sum_s |p_s - q_s|

    Args:
        p: ``(..., S)`` probabilities.
        q: The same shape.

    Returns:
        Numbers from 0 to 1.

    Raises:
        ValueError: If the shapes differ.
    """
    x, y = _pair(p, q)
    return np.asarray(np.abs(x - y).sum(axis=-1) / 2)


def js_divergence(p: ArrayLike, q: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Jensen-Shannon divergence over the last axis, in nats.

    .. math:: \mathrm{JS}(p, q) = \tfrac12 \sum_s p_s \ln \frac{p_s}{m_s}
       + \tfrac12 \sum_s q_s \ln \frac{q_s}{m_s}, \qquad m = \tfrac12 (p + q)

    Args:
        p: ``(..., S)`` probabilities.
        q: The same shape.

    Returns:
        Numbers from 0 to :math:`\ln 2`.

    Raises:
        ValueError: If the shapes differ.
    """
    x, y = _pair(p, q)
    m = (x + y) / 2
    total = np.zeros(x.shape[:-1])
    for part in (x, y):
        ratio = np.where(part > 0, part, 1.0) / np.where(part > 0, m, 1.0)
        total = total + 0.5 * (part * np.log(ratio)).sum(axis=-1)
    return total
