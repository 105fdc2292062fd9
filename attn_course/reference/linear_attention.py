"""Linear attention, the delta rule and the gate, number by number."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def elu_feature_map(x: ArrayLike) -> Float[np.ndarray, "*B E"]:
    """x + 1 above 0, the exponential below.

    Args:
        x: Queries or keys.
    """
    y = np.asarray(x, dtype=np.float64)
    features: np.ndarray = np.where(y > 0, y + 1, np.exp(np.minimum(y, 0)))
    return features


def performer_features(x: ArrayLike, directions: ArrayLike) -> Float[np.ndarray, "*B F"]:
    r"""Positive features :math:`e^{\omega \cdot y - \lVert y \rVert^2/2} / \sqrt F`,
    :math:`y = x / E^{1/4}`.

    Args:
        x: ``(..., E)``.
        directions: ``(F, E)``.
    """
    y, omega = np.asarray(x, dtype=np.float64), np.asarray(directions, dtype=np.float64)
    y = y / y.shape[-1] ** 0.25
    exponents: np.ndarray = y @ omega.T - (y**2).sum(-1, keepdims=True) / 2
    features: np.ndarray = np.exp(exponents) / np.sqrt(len(omega))
    return features


def linear_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    feature_map: Callable[[ArrayLike], np.ndarray] = elu_feature_map,
    is_causal: bool = False,
    padding_mask: ArrayLike | None = None,
) -> Float[np.ndarray, "B H L Ev"]:
    r"""A mean of the values with the weights :math:`\phi(q_i) \cdot \phi(k_j)`.

    Args:
        query: ``(B, H, L, E)``.
        key: ``(B, H, S, E)``.
        value: ``(B, H, S, Ev)``.
        feature_map: :math:`\phi`, of queries and of keys.
        is_causal: Query i attends to keys 0 to i.
        padding_mask: ``(B, S)``, True = real.
    """
    q, k, v = feature_map(query), feature_map(key), np.asarray(value, dtype=np.float64)
    batch, _, length = k.shape[:3]
    real = np.ones((batch, length), dtype=bool) if padding_mask is None else np.array(padding_mask)
    output = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, h, i in np.ndindex(q.shape[:3]):
        total = 0.0
        for j in range(length):
            if real[b, j] and not (is_causal and j > i):
                weight = float(q[b, h, i] @ k[b, h, j])
                total, output[b, h, i] = total + weight, output[b, h, i] + weight * v[b, h, j]
        if total:
            output[b, h, i] /= total
    return output


def delta_rule(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, beta: ArrayLike
) -> tuple[Float[np.ndarray, "B H L Ev"], Float[np.ndarray, "B H Ev E"]]:
    r"""The product of the factors written out: :math:`S_t = S_{t-1}(I - \beta k k^\top) + \beta v
    k^\top`.

    Args:
        query: ``(B, H, L, E)``.
        key: ``(B, H, L, E)``.
        value: ``(B, H, L, Ev)``.
        beta: ``(B, H, L)``.

    Returns:
        Outputs and the last state.
    """
    q, k, v, share = (np.asarray(x, dtype=np.float64) for x in (query, key, value, beta))
    batch, heads, length, size = q.shape
    output = np.zeros((batch, heads, length, v.shape[-1]))
    states = np.zeros((batch, heads, v.shape[-1], size))
    for b, h, t in np.ndindex(batch, heads, length):
        keep = np.eye(size) - share[b, h, t] * np.outer(k[b, h, t], k[b, h, t])
        states[b, h] = states[b, h] @ keep + share[b, h, t] * np.outer(v[b, h, t], k[b, h, t])
        output[b, h, t] = states[b, h] @ q[b, h, t]
    return output, states


def gated_linear_attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, log_gate: ArrayLike
) -> tuple[Float[np.ndarray, "B H L Ev"], Float[np.ndarray, "B H Ev E"]]:
    r"""Step by step: :math:`S_t = S_{t-1}\,\mathrm{diag}(\alpha_t) + v_t k_t^\top`, read by q.

    Args:
        query: ``(B, H, L, E)``.
        key: ``(B, H, L, E)``.
        value: ``(B, H, L, Ev)``.
        log_gate: ``(B, H, L, E)``, or ``(B, H, L, 1)`` for one gate per head.

    Returns:
        Outputs and the last state.
    """
    q, k, v, g = (np.asarray(x, dtype=np.float64) for x in (query, key, value, log_gate))
    batch, heads, length, size = q.shape
    output = np.zeros((batch, heads, length, v.shape[-1]))
    states = np.zeros((batch, heads, v.shape[-1], size))
    for b, h, t in np.ndindex(batch, heads, length):
        kept = states[b, h] * np.exp(g[b, h, t])
        states[b, h] = kept + np.outer(v[b, h, t], k[b, h, t])
        output[b, h, t] = states[b, h] @ q[b, h, t]
    return output, states
