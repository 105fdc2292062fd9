"""Derivatives by finite differences, so that they need no automatic differentiation."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

Function = Callable[[Float[np.ndarray, "..."]], ArrayLike]

_STEP = 1e-5


def _input_jacobian(function: Function, inputs: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Derivative of every output by every input, by central differences.

    .. math:: J_{o,i} \approx \frac{f_o(x + h \mathbf 1_i) - f_o(x - h \mathbf 1_i)}{2h}

    Args:
        function: Takes one example and returns an array of any shape.
        inputs: The example.

    Returns:
        An array whose axes are those of the output, then those of the input; good to about ten
        digits for a smooth function.
    """
    x = np.array(inputs, dtype=np.float64)
    outputs = np.asarray(function(x), dtype=np.float64)
    jacobian = np.zeros((*outputs.shape, *x.shape))
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += _STEP
        down[i] -= _STEP
        rise = np.asarray(function(up), dtype=np.float64) - np.asarray(function(down))
        jacobian[(..., *i)] = rise / (up[i] - down[i])
    return jacobian


def input_gradient(function: Function, inputs: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Gradient of one number per example by that example.

    Args:
        function: Takes a batch and returns one number per example, each of its own row alone.
        inputs: ``(B, ...)``.

    Returns:
        Gradients of the shape of ``inputs``.
    """
    x = np.asarray(inputs, dtype=np.float64)
    return np.stack(
        [_input_jacobian(lambda row: np.asarray(function(row[None]))[0], row) for row in x]
    )


def gradient_times_input(function: Function, inputs: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""First-order share of each input in the output, :math:`x_i\, \partial f / \partial x_i`.

    Args:
        function: As for :func:`input_gradient`.
        inputs: ``(B, ...)``.

    Returns:
        Shares of the shape of ``inputs``.
    """
    shares: np.ndarray = np.asarray(inputs, dtype=np.float64) * input_gradient(function, inputs)
    return shares


def integrated_gradients(
    function: Function,
    inputs: ArrayLike,
    baseline: ArrayLike | None = None,
    *,
    steps: int = 64,
) -> Float[np.ndarray, "..."]:
    r"""Shares of the inputs in the change of the output from a baseline, by the midpoint rule.

    .. math:: a_i = (x_i - x'_i)\, \frac1m \sum_{k=1}^{m}
       \frac{\partial f\big(x' + \tfrac{k - 1/2}{m} (x - x')\big)}{\partial x_i}

    Args:
        function: As for :func:`input_gradient`.
        inputs: ``(B, ...)``.
        baseline: Broadcasts to ``inputs``; zeros when None.
        steps: Intervals of the path, :math:`m`.

    Returns:
        Shares of the shape of ``inputs``.

    Raises:
        ValueError: If ``steps`` is below 1.
    """
    if steps < 1:
        raise ValueError(f"steps: expected at least 1, got {steps}")
    x = np.asarray(inputs, dtype=np.float64)
    start = np.zeros_like(x) if baseline is None else np.broadcast_to(baseline, x.shape)
    path = [(k + 0.5) / steps for k in range(steps)]
    slopes = [input_gradient(function, start + t * (x - start)) for t in path]
    return np.asarray((x - start) * np.mean(slopes, axis=0))


def grad_cam(activations: ArrayLike, gradients: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Where in its last feature maps a convolutional network finds evidence for a class.

    .. math:: w_k = \frac1Z \sum_{i,j} \frac{\partial y}{\partial A^k_{ij}}, \qquad
       L = \operatorname{ReLU}\Big( \sum_k w_k A^k \Big)

    Args:
        activations: ``(..., C, height, width)``.
        gradients: The same shape.

    Returns:
        ``(..., height, width)``, not negative.

    Raises:
        ValueError: If the shapes differ.
    """
    a, g = np.asarray(activations, dtype=np.float64), np.asarray(gradients, dtype=np.float64)
    if a.shape != g.shape or a.ndim < 3:
        raise ValueError(f"gradients: expected the shape of activations {a.shape}, got {g.shape}")
    total = np.zeros((*a.shape[:-3], *a.shape[-2:]))
    for k in range(a.shape[-3]):
        weight = g[..., k, :, :].mean(axis=(-2, -1))
        total += weight[..., None, None] * a[..., k, :, :]
    clipped: np.ndarray = np.maximum(total, 0.0)
    return clipped
