"""Convolution along a sequence: what ByteNet and ConvS2S have in place of attention."""

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course._checks import check_at_least, check_axes, check_floating, check_size


def causal_convolution(
    x: Float[Tensor, "B L D"],
    weight: Float[Tensor, "F D K"],
    bias: Float[Tensor, " F"] | None = None,
    *,
    dilation: int = 1,
) -> Float[Tensor, "B L F"]:
    r"""Mix each position with the ones before it, by weights that depend on the distance only.

    .. math:: y_t = b + \sum_{k=0}^{K-1} W_k \, x_{t - (K-1-k)\,\mathrm{dilation}},
       \qquad x_s = 0 \text{ for } s < 0

    Stacked with dilation 1 it reaches :math:`K - 1` positions further with every layer, as in
    ConvS2S (Gehring et al., 2017); with dilations :math:`1, K, K^2, \ldots` it reaches :math:`K`
    times the reach, the idea of ByteNet (Kalchbrenner et al., 2016), whose dilations double.

    Args:
        x: One vector per position.
        weight: One matrix per place of the kernel, in the layout of ``torch.nn.Conv1d``; the last
            place is the position itself.
        bias: :math:`b`; 0 if none is given.
        dilation: Distance of the places, at least 1.

    Example:
        >>> x, weight = torch.ones(1, 4, 1), torch.ones(1, 1, 3)
        >>> causal_convolution(x, weight).flatten()
        tensor([1., 2., 3., 3.])
    """
    check_floating("x", x)
    check_axes("x", x, "B L D")
    check_axes("weight", weight, "F D K")
    check_size("weight", weight, 1, x.shape[-1])
    check_at_least(1, dilation=dilation)
    before = (weight.shape[-1] - 1) * dilation
    padded = torch.nn.functional.pad(x.mT, (before, 0))  # (B, D, before + L)
    return torch.nn.functional.conv1d(padded, weight, bias, dilation=dilation).mT
