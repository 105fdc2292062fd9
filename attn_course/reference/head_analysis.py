"""What a head attends to, one token at a time."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def attention_rollout(
    weights: Sequence[ArrayLike], *, residual: float = 0.5
) -> Float[np.ndarray, "..."]:
    r"""How much of each input there is in each output, layer after layer.

    .. math:: R_n = (1 - r) \bar A_n R_{n-1} + r R_{n-1}, \qquad R_0 = I

    Abnar and Zuidema (2020); :math:`\bar A_n` is the mean over the heads.

    Args:
        weights: Of each layer, ``(..., H, L, L)``, the first layer first.
        residual: Share :math:`r` of what goes round the attention.
    """
    layers = [np.asarray(layer, dtype=np.float64).mean(axis=-3) for layer in weights]
    rollout = np.broadcast_to(np.eye(layers[0].shape[-1]), layers[0].shape)
    for mean in layers:
        rollout = (1 - residual) * mean @ rollout + residual * rollout
    return np.asarray(rollout)


def previous_token_score(weights: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""How much of its weight a head gives to the token before, on average.

    .. math:: \frac{1}{L-1} \sum_{i=1}^{L-1} A_{i,\,i-1}

    Args:
        weights: ``(..., H, L, L)``.
    """
    a = np.asarray(weights, dtype=np.float64)
    score = np.zeros(a.shape[:-2])
    for i in range(1, a.shape[-1]):
        score += a[..., i, i - 1] / (a.shape[-1] - 1)
    return score


def induction_score(weights: ArrayLike, tokens: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""How much of its weight a head gives to what followed the same token earlier, on average.

    .. math:: \frac{1}{|I|} \sum_{i \in I} \; \sum_{j \le i \,:\, t_{j-1} = t_i,\, j \ge 1} A_{ij},
       \qquad I = \{ i : t_i \text{ has stood before} \}

    Olsson et al. (2022).

    Args:
        weights: ``(..., H, L, L)``.
        tokens: Ids, ``(..., L)``.
    """
    a, ids = np.asarray(weights, dtype=np.float64), np.asarray(tokens)
    score = np.zeros(a.shape[:-2])
    for row in np.ndindex(ids.shape[:-1]):
        text = list(ids[row])
        repeats = [i for i, token in enumerate(text) if token in text[:i]]
        for i in repeats:
            for earlier in range(i):
                if text[earlier] == text[i]:
                    score[row] += a[row][:, i, earlier + 1] / len(repeats)
    return score
