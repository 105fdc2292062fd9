"""What a Transformer does to each token alone."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def _relu(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0.0))


def gelu(x: ArrayLike, approximate: Literal["none", "tanh"] = "none") -> Float[np.ndarray, "..."]:
    r"""The input times the probability that a normal number lies below it.

    .. math:: x \, \Phi(x) \approx
       \frac{x}{2} \left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right)

    Hendrycks and Gimpel (2016), section 2.

    Args:
        x: Any real numbers.
        approximate: ``"none"`` for the left form, ``"tanh"`` for the right.
    """
    numbers = np.asarray(x, dtype=np.float64)
    if approximate == "tanh":
        factor = np.tanh(math.sqrt(2 / math.pi) * (numbers + 0.044715 * numbers**3))
    else:
        flat = [math.erf(number / math.sqrt(2)) for number in numbers.ravel()]
        factor = np.array(flat).reshape(numbers.shape)
    return np.asarray(numbers / 2 * (1 + factor))


def _silu(x: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""The input times its sigmoid.

    .. math:: x \, \sigma(x) = \frac{x}{1 + e^{-x}}

    Args:
        x: Any real numbers.
    """
    numbers = np.asarray(x, dtype=np.float64)
    # the sigmoid by way of tanh: no exponential overflows
    return np.asarray(numbers * 0.5 * (1 + np.tanh(numbers / 2)))


def swiglu(
    x: ArrayLike,
    weight_gate: ArrayLike,
    weight_up: ArrayLike,
    bias_gate: ArrayLike | None = None,
    bias_up: ArrayLike | None = None,
) -> Float[np.ndarray, "..."]:
    r"""Hidden features, each opened or shut by a gate of its own.

    .. math:: \mathrm{silu}(x W_g^\top + b_g) \odot (x W_u^\top + b_u)

    Shazeer (2020), section 2.

    Args:
        x: Tokens.
        weight_gate: :math:`W_g`, one row per hidden feature.
        weight_up: :math:`W_u`.
        bias_gate: :math:`b_g`; 0 if none is given.
        bias_up: :math:`b_u`; 0 if none is given.
    """
    gated = _silu(_linear(x, weight_gate, bias_gate)) * _linear(x, weight_up, bias_up)
    return np.asarray(gated)


def feed_forward(
    x: ArrayLike,
    weight_in: ArrayLike,
    weight_out: ArrayLike,
    bias_in: ArrayLike | None = None,
    bias_out: ArrayLike | None = None,
    *,
    activation: Callable[[np.ndarray], np.ndarray] = _relu,
) -> Float[np.ndarray, "..."]:
    r"""The same two-layer network at every position.

    .. math:: \mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2

    Vaswani et al. (2017), equation 2.

    Args:
        x: Tokens.
        weight_in: :math:`W_1^\top`, one row per hidden feature.
        weight_out: :math:`W_2^\top`.
        bias_in: :math:`b_1`; 0 if none is given.
        bias_out: :math:`b_2`; 0 if none is given.
        activation: The bend.
    """
    return _linear(activation(_linear(x, weight_in, bias_in)), weight_out, bias_out)


def _linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None) -> Float[np.ndarray, "..."]:
    """One row of ``weight`` per output, as in ``torch.nn.Linear``."""
    rows = np.asarray(x, dtype=np.float64)
    matrix = np.asarray(weight, dtype=np.float64)
    output = np.zeros((*rows.shape[:-1], len(matrix)))
    for index in np.ndindex(rows.shape[:-1]):
        for f, row in enumerate(matrix):
            output[(*index, f)] = float(row @ rows[index])
    return output if bias is None else output + np.asarray(bias, dtype=np.float64)
