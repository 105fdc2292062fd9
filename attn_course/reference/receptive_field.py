"""How far stacked layers of sparse attention can see, step by step."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool


def receptive_field(
    mask: Bool[np.ndarray, "L L"] | Sequence[Bool[np.ndarray, "L L"]], num_layers: int | None = None
) -> Bool[np.ndarray, "N L L"]:
    r"""What the output of each layer can depend on, walked from position to position.

    .. math:: R^{(n)} = M^{(n)} R^{(n-1)}, \qquad R^{(0)} = I

    Args:
        mask: True = may attend; one for all layers, or one for each, the first layer first.
        num_layers: How many layers there are, where they share one mask.

    Returns:
        One reach for each layer, the first layer first.

    Raises:
        ValueError: If there is no layer.
    """
    shared = isinstance(mask, np.ndarray) and mask.ndim == 2
    masks = [np.asarray(mask)] * (num_layers or 0) if shared else [np.asarray(one) for one in mask]
    if not masks:
        raise ValueError(f"num_layers: expected a positive number, got {num_layers}")
    length = len(masks[0])
    reach = np.zeros((len(masks), length, length), dtype=bool)
    for top in range(len(masks)):
        for i in range(length):
            here = {i}
            for layer in range(top, -1, -1):  # from the output down to the input
                here = {int(j) for at in here for j in np.flatnonzero(masks[layer][at])}
            reach[top, i, sorted(here)] = True
    return reach
