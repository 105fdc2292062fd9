"""Clipping of gradients by their common norm."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def clip_by_global_norm(
    grads: Sequence[ArrayLike], max_norm: float
) -> tuple[list[Float[np.ndarray, "..."]], float]:
    r"""Shrink all gradients by one factor, so that their common norm is at most ``max_norm``.

    .. math:: N = \sqrt{\sum_i \lVert g_i \rVert^2}, \qquad
       g_i \leftarrow g_i \cdot \min\left(1, \frac{\mathrm{max\_norm}}{N + 10^{-6}}\right)

    Args:
        grads: Gradients of any shapes.
        max_norm: Largest norm allowed.

    Returns:
        The clipped gradients, and the norm :math:`N` before clipping.

    Raises:
        ValueError: If ``max_norm`` is negative.
    """
    if not max_norm >= 0:
        raise ValueError(f"max_norm: expected a number >= 0, got {max_norm}")
    arrays = [np.asarray(grad, dtype=np.float64) for grad in grads]
    norm = float(np.sqrt(sum(float((array * array).sum()) for array in arrays)))
    factor = min(1.0, max_norm / (norm + 1e-6))
    return [np.asarray(array * factor) for array in arrays], norm
