"""How alike two vectors are, and the mean of vectors by weight."""

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course._checks import check_broadcast, check_dim, check_floating, check_size, widest


def _unit(name: str, vector: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Vectors of length 1 along the last axis, in float32 at least; a zero vector stays zero."""
    check_floating(name, vector)
    wide = vector.to(widest(vector))
    if vector.shape[-1] == 0:
        return wide
    # the direction does not depend on the scale: squares of 1e30 or 1e-30 would leave float32
    scale = wide.detach().abs().amax(-1, keepdim=True)
    scaled = wide / scale.masked_fill(scale == 0, 1.0)
    norm: Tensor = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / norm.masked_fill(norm == 0, 1.0)


def cosine_similarity(a: Float[Tensor, "*#A E"], b: Float[Tensor, "*#A E"]) -> Float[Tensor, "*#A"]:
    r"""Cosine of the angle between vectors, over the last axis.

    .. math:: \cos(a, b) = \frac{a \cdot b}{\lVert a \rVert\, \lVert b \rVert}

    Args:
        a: Vectors; the other axes broadcast against those of ``b``.
        b: Vectors of the same size.

    Returns:
        Numbers from -1 to 1; 0 where a vector is zero, since it points nowhere. Differs from torch,
        which divides by at least ``eps = 1e-8``: there very short vectors are similar to none.

    Example:
        >>> cosine_similarity(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]))
        tensor(0.7071)
    """
    check_dim(a, -1)
    check_size("b", b, -1, a.shape[-1])
    check_broadcast("b", b.shape, a.shape)
    cosine = (_unit("a", a) * _unit("b", b)).sum(-1)
    return cosine.to(torch.promote_types(a.dtype, b.dtype))


def weighted_mean(
    weights: Float[Tensor, "*#A S"], value: Float[Tensor, "*#A S E"]
) -> Float[Tensor, "*#A E"]:
    r"""Mean of vectors in which each counts by its weight.

    .. math:: o = \frac{\sum_s w_s v_s}{\sum_s w_s}

    The weights of a softmax already sum to one, and then this is :math:`\sum_s w_s v_s`.

    Args:
        weights: One number per vector, not negative.
        value: Vectors. NaN and infinity count even at weight 0: fill padding with numbers.

    Returns:
        One vector per row of weights; 0 (gradient 0) where the weights sum to 0.

    Example:
        >>> weighted_mean(torch.tensor([0.25, 0.75]), torch.tensor([[0.0], [4.0]]))
        tensor([3.])
    """
    check_floating("weights", weights)
    check_floating("value", value)
    check_dim(weights, -1)
    check_size("value", value, -2, weights.shape[-1])
    check_broadcast("value", value.shape[:-2], weights.shape[:-1])
    dtype = torch.promote_types(weights.dtype, value.dtype)
    # half precision sums overflow at 65504: widen, and cast back once at the end
    wide = torch.promote_types(dtype, torch.float32)
    weights, value = weights.to(wide), value.to(wide)
    total = weights.sum(-1, keepdim=True)
    shares = weights / total.masked_fill(total == 0, 1.0)
    mean = (shares.unsqueeze(-2) @ value).squeeze(-2)  # (..., E)
    return mean.masked_fill(total == 0, 0.0).to(dtype)
