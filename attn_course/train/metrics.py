"""How often a model is right, counted over positions that are not padding."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def _right(
    predictions: Int[Tensor, "B T"], target: Int[Tensor, "B L"], pad: int
) -> tuple[Bool[Tensor, "B L"], Bool[Tensor, "B L"]]:
    """Where the prediction is right, and where a position counts."""
    if predictions.ndim != 2 or target.ndim != 2 or len(predictions) != len(target):
        raise ValueError(
            f"predictions: expected ids with one row per target row {tuple(target.shape)}, "
            f"got {tuple(predictions.shape)}"
        )
    counts = target != pad
    if not bool(counts.any()):
        raise ValueError(f"target: expected at least one id other than pad={pad}, got none")
    width = min(predictions.shape[1], target.shape[1])
    right = torch.zeros_like(counts)
    right[:, :width] = predictions[:, :width] == target[:, :width]
    return right & counts, counts


def token_accuracy(
    predictions: Int[Tensor, "B T"], target: Int[Tensor, "B L"], *, pad: int = 0
) -> float:
    r"""Share of target tokens that are predicted at their own position.

    .. math:: \frac{\sum_{bt} [\, y_{bt} \ne \mathrm{pad} \,]\,[\, \hat y_{bt} = y_{bt} \,]}
       {\sum_{bt} [\, y_{bt} \ne \mathrm{pad} \,]}

    Args:
        predictions: Predicted ids. Positions beyond the target do not count, missing ones are
            wrong.
        target: Right ids, padded at the end.
        pad: Id of padding in the target.

    Returns:
        A number from 0 to 1. Every token counts alike, so long sequences weigh more.

    Raises:
        ValueError: If the numbers of rows differ, or the target holds nothing but padding.
    """
    right, counts = _right(predictions, target, pad)
    return float(right.sum() / counts.sum())


def sequence_accuracy(
    predictions: Int[Tensor, "B T"], target: Int[Tensor, "B L"], *, pad: int = 0
) -> float:
    r"""Share of sequences that are right at every position.

    .. math:: \frac{1}{B} \sum_b \prod_{t : y_{bt} \ne \mathrm{pad}} [\, \hat y_{bt} = y_{bt} \,]

    Let the target end in ``EOS``: then a prediction that goes on too long is wrong.

    Args:
        predictions: Predicted ids. Positions beyond the target do not count, missing ones are
            wrong.
        target: Right ids, padded at the end.
        pad: Id of padding in the target.

    Returns:
        A number from 0 to 1; rows that are all padding are left out.

    Raises:
        ValueError: If the numbers of rows differ, or the target holds nothing but padding.
    """
    right, counts = _right(predictions, target, pad)
    whole = (right == counts).all(dim=1)[counts.any(dim=1)]
    return float(whole.double().mean())
