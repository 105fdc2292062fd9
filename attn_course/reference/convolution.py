"""Convolution along a sequence, one term of the sum at a time."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def causal_convolution(
    x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None = None, *, dilation: int = 1
) -> Float[np.ndarray, "B L F"]:
    r"""Mix each position with the ones before it, by weights that depend on the distance only.

    .. math:: y_t = b + \sum_{k=0}^{K-1} W_k \, x_{t - (K-1-k)\,\mathrm{dilation}},
       \qquad x_s = 0 \text{ for } s < 0

    Args:
        x: One vector per position.
        weight: One matrix per place of the kernel, ``(F, D, K)``.
        bias: :math:`b`; 0 if none is given.
        dilation: Distance of the places.
    """
    inputs, kernel = np.asarray(x, dtype=np.float64), np.asarray(weight, dtype=np.float64)
    batch, length, _ = inputs.shape
    features, _, places = kernel.shape
    y = np.zeros((batch, length, features))
    for t in range(length):
        for k in range(places):
            s = t - (places - 1 - k) * dilation
            if s >= 0:
                y[:, t] += inputs[:, s] @ kernel[:, :, k].T
    return y if bias is None else y + np.asarray(bias, dtype=np.float64)
