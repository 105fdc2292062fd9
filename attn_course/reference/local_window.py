"""Attention to a window of the source: which places, and how much each counts."""

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from attn_course.reference.softmax import masked_softmax


def local_m_mask(
    steps: ArrayLike, source_lengths: ArrayLike, half_width: float, longest: int
) -> Bool[np.ndarray, "B L S"]:
    r"""The window of *monotonic* local attention: target step ``t`` attends around position ``t``.

    .. math:: m_{bts} = [\, |s - t| \le D \,]\,[\, s < S_b \,]

    Luong et al. (2015), section 3.2, local-m.

    Args:
        steps: ``(L,)`` or ``(B, L)``, numbers of the target steps, from 0.
        source_lengths: ``(B,)``, :math:`S_b`.
        half_width: :math:`D`.
        longest: Width ``S`` of the padded batch.

    Returns:
        True where a step may attend.

    Raises:
        ValueError: If ``half_width`` is negative.
    """
    if half_width < 0:
        raise ValueError(f"half_width: expected at least 0, got {half_width}")
    lengths = np.asarray(source_lengths)
    at = np.asarray(steps)
    at = np.broadcast_to(at, (len(lengths), at.shape[-1]))
    mask = np.zeros((*at.shape, longest), dtype=bool)
    for b, t, s in np.ndindex(mask.shape):
        mask[b, t, s] = abs(s - at[b, t]) <= half_width and s < lengths[b]
    return mask


def local_p_position(
    hidden: ArrayLike, weight: ArrayLike, v: ArrayLike, source_lengths: ArrayLike
) -> Float[np.ndarray, "B L"]:
    r"""The *predicted* centre of the window.

    .. math:: p = S_b \cdot \sigma(v^\top \tanh(W h))

    Luong et al. (2015), equation 9.

    Args:
        hidden: ``(B, L, H)``.
        weight: ``(A, H)``.
        v: ``(A,)``.
        source_lengths: ``(B,)``, :math:`S_b`.

    Returns:
        Places from 0 to :math:`S_b`.

    Raises:
        ValueError: If the sizes of ``hidden``, ``weight`` and ``v`` do not fit.
    """
    h, w, last = (np.asarray(a, dtype=np.float64) for a in (hidden, weight, v))
    if w.shape != (last.shape[-1], h.shape[-1]):
        raise ValueError(
            f"weight: expected shape {(last.shape[-1], h.shape[-1])}, got shape {w.shape}"
        )
    position = np.empty(h.shape[:-1])
    for b, t in np.ndindex(position.shape):
        position[b, t] = np.asarray(source_lengths)[b] / (1 + np.exp(-last @ np.tanh(w @ h[b, t])))
    return position


def local_p_weights(
    scores: ArrayLike,
    position: ArrayLike,
    half_width: float,
    attn_mask: Bool[np.ndarray, "..."] | None = None,
) -> Float[np.ndarray, "..."]:
    r"""Softmax inside the window, times a Gaussian around its centre.

    .. math:: w_s = \mathrm{softmax}_{|s - p| \le D}(\mathrm{scores})_s
       \exp\left(-\frac{(s - p)^2}{2 \sigma^2}\right), \qquad \sigma = D / 2

    Luong et al. (2015), equation 10. The weights are not normalised again.

    Args:
        scores: ``(..., L, S)``.
        position: ``(..., L)``, the centre :math:`p` of each row.
        half_width: :math:`D`, more than 0.
        attn_mask: True = may attend; broadcasts to the scores.

    Returns:
        Weights of the shape of ``scores``; they sum to at most 1.

    Raises:
        ValueError: If ``half_width`` is not positive.
    """
    if not half_width > 0:
        raise ValueError(f"half_width: expected more than 0, got {half_width}")
    s = np.asarray(scores, dtype=np.float64)
    centre = np.asarray(position, dtype=np.float64)[..., None]
    distance = np.arange(s.shape[-1]) - centre
    window = np.broadcast_to(np.abs(distance) <= half_width, s.shape)
    if attn_mask is not None:
        window = window & attn_mask
    sigma = half_width / 2
    return np.asarray(masked_softmax(s, window) * np.exp(-(distance**2) / (2 * sigma**2)))


def local_window_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    position: ArrayLike,
    half_width: float,
    source_lengths: ArrayLike,
    *,
    gaussian: bool = False,
) -> tuple[Float[np.ndarray, "B L Ev"], Float[np.ndarray, "B L S"]]:
    r"""Local attention with scaled dot products, place by place.

    .. math:: o_t = \sum_{|s - p_t| \le D} w_{ts} v_s

    Luong et al. (2015), section 3.2.

    Args:
        query: ``(B, L, E)``.
        key: ``(B, S, E)``.
        value: ``(B, S, Ev)``.
        position: ``(B, L)``, the centre :math:`p` of each step's window.
        half_width: :math:`D`.
        source_lengths: ``(B,)``.
        gaussian: Whether weights fall with the distance from the centre.

    Returns:
        Output, and weights of *all* places.
    """
    q, k, v = (np.asarray(rows, dtype=np.float64) for rows in (query, key, value))
    centres, lengths = np.asarray(position, dtype=np.float64), np.asarray(source_lengths)
    output = np.zeros((*centres.shape, v.shape[-1]))
    weights = np.zeros((*centres.shape, k.shape[1]))
    for b, t in np.ndindex(centres.shape):
        places = [s for s in range(lengths[b]) if abs(s - centres[b, t]) <= half_width]
        if not places:
            continue
        scores = np.array([q[b, t] @ k[b, s] for s in places]) * q.shape[-1] ** -0.5
        row = np.exp(scores - scores.max())
        row /= row.sum()
        if gaussian:
            away = np.array(places) - centres[b, t]
            row = row * np.exp(-(away**2) / (2 * (half_width / 2) ** 2))
        weights[b, t, places] = row
        output[b, t] = row @ v[b, places]
    return output, weights
