"""Scaled dot-product attention, number by number."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from attn_course.reference.softmax import logsumexp


def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[np.ndarray, "B Hq L Ev"]:
    r"""Mix the values by the softmax of the scaled dot products of queries and keys.

    .. math:: o_i = \sum_j w_{ij} v_j, \qquad
       w_{ij} = \frac{e^{s_{ij}}}{\sum_{j'} e^{s_{ij'}}}, \qquad
       s_{ij} = \frac{q_i \cdot k_j}{\sqrt{E}} + M_{ij}

    Args:
        query: ``(B, Hq, L, E)``.
        key: ``(B, Hkv, S, E)``.
        value: ``(B, Hkv, S, Ev)``.
        attn_mask: Boolean, True = may attend, or a bias; broadcasts to ``(B, Hq, L, S)``.
        is_causal: Query i attends to keys 0 to i.
        scale: Instead of 1/sqrt(E).
        enable_gqa: Query head h uses key head h // (Hq / Hkv).

    Returns:
        Rows of 0 where a query may attend to nothing.

    Raises:
        ValueError: If ``attn_mask`` and ``is_causal`` are both given, or heads do not fit.
    """
    return attention_with_lse(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def attention_with_lse(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Float[np.ndarray, "B Hq L Ev"], Float[np.ndarray, "B Hq L"]]:
    r"""The output, and :math:`\mathrm{lse}_i = \log \sum_j e^{s_{ij}}`.

    Args:
        query: ``(B, Hq, L, E)``.
        key: ``(B, Hkv, S, E)``.
        value: ``(B, Hkv, S, Ev)``.
        attn_mask: Boolean, True = may attend, or a bias; broadcasts to ``(B, Hq, L, S)``.
        is_causal: Query i attends to keys 0 to i.
        scale: Instead of 1/sqrt(E).
        enable_gqa: Query head h uses key head h // (Hq / Hkv).

    Returns:
        Output and log-sum-exp, 0 and ``-inf`` where a query may attend to nothing.

    Raises:
        ValueError: If ``attn_mask`` and ``is_causal`` are both given, or heads do not fit.
    """
    scores = _scores(query, key, attn_mask, is_causal, scale, enable_gqa)
    v = np.asarray(value, dtype=np.float64)
    lse = np.full(scores.shape[:3], -np.inf)
    output = np.zeros((*scores.shape[:3], v.shape[-1]))
    group = scores.shape[1] // v.shape[1]
    for b, h, i in np.ndindex(scores.shape[:3]):
        row = scores[b, h, i]
        if np.all(row == -np.inf):
            continue
        lse[b, h, i] = logsumexp(row)
        for j in np.flatnonzero(row > -np.inf):  # 0 * NaN of padding must not count
            output[b, h, i] += np.exp(row[j] - lse[b, h, i]) * v[b, h // group, j]
    return output, lse


def attention_weights(
    query: ArrayLike,
    key: ArrayLike,
    attn_mask: ArrayLike | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[np.ndarray, "B Hq L S"]:
    r"""The weights :math:`w_{ij}` alone.

    Args:
        query: ``(B, Hq, L, E)``.
        key: ``(B, Hkv, S, E)``.
        attn_mask: Boolean, True = may attend, or a bias; broadcasts to ``(B, Hq, L, S)``.
        is_causal: Query i attends to keys 0 to i.
        scale: Instead of 1/sqrt(E).
        enable_gqa: Query head h uses key head h // (Hq / Hkv).

    Returns:
        Weights; rows of 0 where a query may attend to nothing.

    Raises:
        ValueError: If ``attn_mask`` and ``is_causal`` are both given, or heads do not fit.
    """
    scores = _scores(query, key, attn_mask, is_causal, scale, enable_gqa)
    weights = np.zeros_like(scores)
    for b, h, i in np.ndindex(scores.shape[:3]):
        row = scores[b, h, i]
        if np.any(row > -np.inf):
            weights[b, h, i] = np.exp(row - logsumexp(row))
    return weights


def merge_attention(
    outputs: Sequence[ArrayLike], lses: Sequence[ArrayLike]
) -> tuple[Float[np.ndarray, "*B L Ev"], Float[np.ndarray, "*B L"]]:
    r"""Join attention to several blocks of keys.

    .. math:: \mathrm{lse} = \log \sum_b e^{\mathrm{lse}_b}, \qquad
       o = \sum_b e^{\mathrm{lse}_b - \mathrm{lse}}\, o_b

    Args:
        outputs: ``(..., L, Ev)`` for each block.
        lses: ``(..., L)`` for each block.

    Returns:
        Output and log-sum-exp of all keys together.

    Raises:
        ValueError: If there is no block, or their numbers differ.
    """
    if not len(outputs) or len(outputs) != len(lses):
        raise ValueError(f"lses: expected one for each output, got {len(lses)} of {len(outputs)}")
    parts = np.asarray(outputs, dtype=np.float64)
    each = np.asarray(lses, dtype=np.float64)
    output, total = np.zeros(parts.shape[1:]), np.full(each.shape[1:], -np.inf)
    for row in np.ndindex(total.shape):
        column = each[(slice(None), *row)]
        if np.any(column > -np.inf):
            total[row] = logsumexp(column)
            for b in range(len(parts)):
                output[row] += np.exp(column[b] - total[row]) * parts[(b, *row)]
    return output, total


def _scores(
    query: ArrayLike,
    key: ArrayLike,
    attn_mask: ArrayLike | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Float[np.ndarray, "B Hq L S"]:
    """Every score by itself; ``-inf`` where a query may not attend."""
    q, k = np.asarray(query, dtype=np.float64), np.asarray(key, dtype=np.float64)
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads % kv_heads if enable_gqa else heads != kv_heads:
        raise ValueError(f"key: expected heads that fit the query's {heads}, got {kv_heads}")
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask: expected None together with is_causal=True")
    shape = (*q.shape[:3], k.shape[2])
    mask = np.broadcast_to(True if attn_mask is None else np.asarray(attn_mask), shape)
    scores = np.full(shape, -np.inf)
    for b, h, i, j in np.ndindex(shape):
        bias = float(mask[b, h, i, j])
        if mask.dtype == bool:
            bias = 0.0 if mask[b, h, i, j] else -np.inf
        if bias == -np.inf or (is_causal and j > i):
            continue
        product = sum(
            q[b, h, i, e] * k[b, h // (heads // kv_heads), j, e] for e in range(q.shape[3])
        )
        scores[b, h, i, j] = product * (q.shape[3] ** -0.5 if scale is None else scale) + bias
    return scores
