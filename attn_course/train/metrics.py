"""How often a model is right, counted over positions that are not padding."""

import torch
from jaxtyping import Bool, Float, Int, Shaped
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

    Example:
        >>> sequence_accuracy(torch.tensor([[1, 2], [1, 3]]), torch.tensor([[1, 2], [1, 2]]))
        0.5
    """
    right, counts = _right(predictions, target, pad)
    whole = (right == counts).all(dim=1)[counts.any(dim=1)]
    return float(whole.double().mean())


def _links(
    weights: Shaped[Tensor, "..."], alignment: Shaped[Tensor, "..."]
) -> tuple[Bool[Tensor, "B L"], Int[Tensor, "B L"]]:
    """Where a target position has a known source position, and which."""
    if weights.ndim != 3 or alignment.shape != weights.shape[:2]:
        raise ValueError(
            f"alignment: expected one source position per target position of weights "
            f"{tuple(weights.shape)}, got {tuple(alignment.shape)}"
        )
    if alignment.is_floating_point() or alignment.dtype == torch.bool:
        raise ValueError(f"alignment: expected integers, got {alignment.dtype}")
    if bool((alignment >= weights.shape[-1]).any()) or bool((alignment < -1).any()):
        raise ValueError(
            f"alignment: expected places from -1 to {weights.shape[-1] - 1}, "
            f"got {int(alignment.min())} to {int(alignment.max())}"
        )
    known = alignment >= 0
    if not bool(known.any()):
        raise ValueError("alignment: expected at least one known position, got none")
    if bool(weights[known].isnan().any()):
        raise ValueError("weights: expected numbers, got NaN")
    return known, alignment.clamp(min=0)


def alignment_error_rate(weights: Float[Tensor, "B L S"], alignment: Int[Tensor, "B L"]) -> float:
    r"""How far the heaviest weights are from a known alignment.

    .. math:: \mathrm{AER} = 1 - \frac{|A \cap S| + |A \cap P|}{|A| + |S|}

    Och and Ney (2003): :math:`A` holds one link for each target position, to the source
    position with the largest weight (as in Luong et al., 2015, section 5.4); :math:`S` and
    :math:`P` are the sure and possible links of the truth, here the same. A row of zeros makes no
    link. With a link everywhere this is the share of wrong links.

    Args:
        weights: Weights over source positions; of equal ones the first counts.
        alignment: For each target position the right source position, -1 where there is none:
            these positions do not count.

    Returns:
        A number from 0 (every link right) to 1 (none).

    Raises:
        ValueError: If the shapes differ, a place is out of range, no position is known, or a weight
            is NaN.

    Example:
        >>> round(alignment_error_rate(torch.eye(3)[None], torch.tensor([[0, 1, 1]])), 4)
        0.3333
    """
    known, right = _links(weights, alignment)
    linked = known & (weights != 0).any(dim=-1)
    hits = linked & (weights.argmax(dim=-1) == right)
    return 1 - 2 * int(hits.sum()) / (int(linked.sum()) + int(known.sum()))


def alignment_mass(weights: Float[Tensor, "B L S"], alignment: Int[Tensor, "B L"]) -> float:
    r"""Mean weight at the right source position.

    .. math:: \frac{1}{|S|} \sum_{(t, s) \in S} w_{ts}

    Where the error rate asks which weight is the largest, this asks how large the right one is.

    Args:
        weights: Weights over source positions.
        alignment: For each target position the right source position, -1 where there is none.

    Returns:
        A number from 0 to 1, if the weights are.

    Raises:
        ValueError: As :func:`alignment_error_rate`.
    """
    known, right = _links(weights, alignment)
    mass = weights.gather(-1, right.unsqueeze(-1)).squeeze(-1)  # (B, L)
    return float(mass[known].double().mean())
