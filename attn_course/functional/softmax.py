"""Softmax and its relatives. Sums are taken in float32 or better and cast back once at the end."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attn_course._checks import check_attn_mask, check_dim, widen


def _widen(scores: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    """The same scores in float32 at least."""
    check_dim(scores, dim)
    return widen("scores", scores)


def _maximum(scores: Float[Tensor, "..."], dim: int) -> Float[Tensor, "..."]:
    """The maximum of each row, ``-inf`` of an empty one. A constant: it carries no gradient."""
    if scores.shape[dim] == 0:
        return scores.sum(dim, keepdim=True).detach() - torch.inf
    return scores.detach().amax(dim, keepdim=True)


def _finite_maximum(scores: Float[Tensor, "..."], dim: int) -> Float[Tensor, "..."]:
    """The same, but 0 where it is infinite: ``inf - inf`` would be NaN."""
    highest = _maximum(scores, dim)
    return highest.masked_fill(highest.isinf(), 0.0)


def softmax(scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
    r"""Turn scores into positive weights that sum to one.

    .. math:: p_i = \frac{e^{s_i}}{\sum_j e^{s_j}} = \frac{e^{s_i - m}}{\sum_j e^{s_j - m}},
       \qquad m = \max_j s_j

    The right-hand form is the one computed: no exponent is above 0, so nothing overflows.

    Args:
        scores: Any real numbers.
        dim: Axis that sums to one.

    Returns:
        Weights of the same shape and dtype. A row of ``-inf`` only is NaN, as in torch: it has no
        weights; see :func:`masked_softmax` for rows that may be empty.

    Example:
        >>> softmax(torch.tensor([0.0, 1.0]))
        tensor([0.2689, 0.7311])
    """
    wide = _widen(scores, dim)
    exponentials = torch.exp(wide - _maximum(wide, dim))
    return (exponentials / exponentials.sum(dim, keepdim=True)).to(scores.dtype)


def logsumexp(scores: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
    r"""Logarithm of a sum of exponentials, a smooth maximum.

    .. math:: \mathrm{lse}(s) = \log \sum_j e^{s_j} = m + \log \sum_j e^{s_j - m},
       \qquad m = \max_j s_j

    Its gradient is the softmax: :math:`\partial\,\mathrm{lse} / \partial s_i = p_i`.

    Args:
        scores: Any real numbers; ``-inf`` adds nothing.
        dim: Axis that is summed away.

    Returns:
        One number per row; ``-inf`` (gradient 0) for a row of ``-inf`` and for an empty row.

    Example:
        >>> logsumexp(torch.tensor([1000.0, 1000.0]))
        tensor(1000.6932)
    """
    wide = _widen(scores, dim)
    shift = _finite_maximum(wide, dim)
    total = torch.exp(wide - shift).sum(dim)
    empty = total == 0
    # log(1) instead of log(0): the backward pass would be inf * 0 = NaN
    lse = total.masked_fill(empty, 1.0).log().masked_fill(empty, -torch.inf) + shift.squeeze(dim)
    return lse.to(scores.dtype)


def log_softmax(scores: Float[Tensor, "*shape"], dim: int = -1) -> Float[Tensor, "*shape"]:
    r"""Logarithm of the softmax, without ever forming the softmax.

    .. math:: \log p_i = s_i - \mathrm{lse}(s) = (s_i - m) - \log \sum_j e^{s_j - m},
       \qquad m = \max_j s_j

    The right-hand form is the one computed: :math:`s_i - \mathrm{lse}(s)` subtracts two numbers
    that agree in their first digits when all scores are large. Arguments and errors as of
    :func:`softmax`.

    Returns:
        Log-weights of the same shape and dtype, finite even where the weight underflows to 0.

    Example:
        >>> log_softmax(torch.tensor([0.0, 1000.0]))
        tensor([-1000.,     0.])
    """
    wide = _widen(scores, dim)
    shifted = wide - _maximum(wide, dim)
    return (shifted - shifted.exp().sum(dim, keepdim=True).log()).to(scores.dtype)


def masked_softmax(
    scores: Float[Tensor, "*shape"], attn_mask: Bool[Tensor, "..."], dim: int = -1
) -> Float[Tensor, "*shape"]:
    r"""Softmax over the allowed positions only; the others get weight exactly 0.

    .. math:: p_i = \frac{m_i e^{s_i}}{\sum_j m_j e^{s_j}}, \qquad
       p = 0 \text{ where no position is allowed}

    The mask acts on the scores, before the softmax (:math:`s_i = -\infty`): weights set to 0
    afterwards would no longer sum to one.

    Args:
        scores: Any real numbers; those at a forbidden position do not matter, NaN included.
        attn_mask: True = may attend; broadcasts to the shape of ``scores``.
        dim: Axis that sums to one.

    Returns:
        Weights of the same shape and dtype. A fully masked row is 0 and its gradient is 0. Differs
        from torch, where such a row is NaN and poisons every parameter in the backward pass.

    Example:
        >>> mask = torch.tensor([[True, True, False], [False, False, False]])
        >>> masked_softmax(torch.zeros(2, 3), mask)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 0.0000]])
    """
    check_attn_mask(attn_mask, scores.shape, scores)
    wide = _widen(scores, dim).masked_fill(~attn_mask, -torch.inf)
    exponentials = torch.exp(wide - _finite_maximum(wide, dim))
    total = exponentials.sum(dim, keepdim=True)
    return (exponentials / total.masked_fill(total == 0, 1.0)).to(scores.dtype)
