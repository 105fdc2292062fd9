"""Normalisation of features, one row at a time."""

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike


def layer_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
) -> Float[np.ndarray, "..."]:
    r"""Mean 0 and variance 1 for each token, over its own features.

    .. math:: y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b

    Ba et al. (2016), section 3.

    Args:
        x: Features on the last axis.
        weight: Gain :math:`g`; 1 if none is given.
        bias: :math:`b`; 0 if none is given.
        eps: Keeps the root of a constant row away from 0.
    """
    y = np.array(x, dtype=np.float64)
    gain, shift = _affine(y.shape[-1], weight, bias)
    for index in np.ndindex(y.shape[:-1]):
        row = y[index]
        y[index] = (row - row.mean()) / np.sqrt(row.var() + eps) * gain + shift
    return y


def rms_norm(
    x: ArrayLike, weight: ArrayLike | None = None, eps: float = 1e-6
) -> Float[np.ndarray, "..."]:
    r"""Root mean square 1 for each token.

    .. math:: y = \frac{x}{\sqrt{\frac1D \sum_d x_d^2 + \epsilon}} \odot g

    Zhang and Sennrich (2019), section 4.

    Args:
        x: Features on the last axis.
        weight: Gain :math:`g`; 1 if none is given.
        eps: Keeps the root of a row of zeros away from 0.
    """
    y = np.array(x, dtype=np.float64)
    gain, _ = _affine(y.shape[-1], weight, None)
    for index in np.ndindex(y.shape[:-1]):
        y[index] = y[index] / np.sqrt(np.mean(y[index] ** 2) + eps) * gain
    return y


def batch_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    *,
    mask: Bool[np.ndarray, "..."] | None = None,
) -> Float[np.ndarray, "..."]:
    r"""Mean 0 and variance 1 for each feature, over all tokens of the batch that count.

    .. math:: y_{td} = \frac{x_{td} - \mu_d}{\sqrt{\sigma_d^2 + \epsilon}} \, g_d + b_d

    Ioffe and Szegedy (2015), algorithm 1.

    Args:
        x: Tokens in rows, features on the last axis.
        weight: Gain :math:`g`; 1 if none is given.
        bias: :math:`b`; 0 if none is given.
        eps: Keeps the root of a constant feature away from 0.
        mask: True where a token counts; the result is 0 elsewhere.
    """
    given = np.asarray(x, dtype=np.float64)
    counts = np.ones(given.shape[:-1], dtype=bool) if mask is None else np.asarray(mask)
    gain, shift = _affine(given.shape[-1], weight, bias)
    y = np.zeros_like(given)
    for d in range(given.shape[-1]):
        feature = given[..., d][counts]
        if feature.size:
            normal = (feature - feature.mean()) / np.sqrt(feature.var() + eps)
            y[..., d][counts] = normal * gain[d] + shift[d]
    return y


def _affine(
    size: int, weight: ArrayLike | None, bias: ArrayLike | None
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
    """Gain and bias, 1 and 0 where there is none."""
    gain = np.ones(size) if weight is None else np.asarray(weight, dtype=np.float64)
    return gain, np.zeros(size) if bias is None else np.asarray(bias, dtype=np.float64)
