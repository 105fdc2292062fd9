"""Normalisation of features. Means are taken in float32 or better, and cast back once."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attn_course._checks import check_floating, check_size, widen


def layer_norm(
    x: Float[Tensor, "*shape D"],
    weight: Float[Tensor, " D"] | None = None,
    bias: Float[Tensor, " D"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "*shape D"]:
    r"""Mean 0 and variance 1 for each token, over its own features.

    .. math:: y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b, \qquad
       \mu = \frac1D \sum_d x_d, \quad \sigma^2 = \frac1D \sum_d (x_d - \mu)^2

    Ba et al. (2016), section 3. No other token and no other row of the batch has a say.

    Args:
        x: Features on the last axis.
        weight: Gain :math:`g`; 1 if none is given.
        bias: :math:`b`; 0 if none is given.
        eps: Keeps the root of a constant row away from 0.

    Example:
        >>> layer_norm(torch.tensor([1.0, 3.0]))
        tensor([-1.0000,  1.0000])
    """
    wide = _wide(x, weight=weight, bias=bias)
    centred = wide - wide.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return _affine(centred * (variance + eps).rsqrt(), weight, bias).to(x.dtype)


def rms_norm(
    x: Float[Tensor, "*shape D"],
    weight: Float[Tensor, " D"] | None = None,
    eps: float = 1e-6,
) -> Float[Tensor, "*shape D"]:
    r"""Root mean square 1 for each token: a layer norm that does not centre.

    .. math:: y = \frac{x}{\sqrt{\frac1D \sum_d x_d^2 + \epsilon}} \odot g

    Zhang and Sennrich (2019), section 4; the :math:`\epsilon` is of the implementations. Differs
    from torch, where ``eps`` is the machine epsilon of the dtype unless given. Arguments and errors
    as of :func:`layer_norm`.

    Example:
        >>> rms_norm(torch.tensor([1.0, 7.0]))
        tensor([0.2000, 1.4000])
    """
    wide = _wide(x, weight=weight)
    mean_square = wide.square().mean(-1, keepdim=True)
    return _affine(wide * (mean_square + eps).rsqrt(), weight, None).to(x.dtype)


def batch_norm(
    x: Float[Tensor, "*B L D"],
    weight: Float[Tensor, " D"] | None = None,
    bias: Float[Tensor, " D"] | None = None,
    eps: float = 1e-5,
    *,
    mask: Bool[Tensor, "*B L"] | None = None,
) -> Float[Tensor, "*B L D"]:
    r"""Mean 0 and variance 1 for each feature, over all tokens of the batch.

    .. math:: y_{td} = \frac{x_{td} - \mu_d}{\sqrt{\sigma_d^2 + \epsilon}} \, g_d + b_d, \qquad
       \mu_d = \frac1N \sum_t x_{td}, \quad \sigma_d^2 = \frac1N \sum_t (x_{td} - \mu_d)^2

    Ioffe and Szegedy (2015), algorithm 1, in training. It is the control for :func:`layer_norm`:
    here a token's result depends on every other token of the batch, those to come included.

    The rest as of :func:`layer_norm`.

    Args:
        mask: True where a token counts, all :math:`N` of them; the result is 0 elsewhere.

    Example:
        >>> batch_norm(torch.tensor([[[1.0], [3.0]]])).flatten()
        tensor([-1.0000,  1.0000])
    """
    wide = _wide(x, weight=weight, bias=bias)
    if mask is None:
        mask = torch.ones(x.shape[:-1], dtype=torch.bool, device=x.device)
    if mask.dtype != torch.bool or mask.shape != x.shape[:-1]:
        raise ValueError(
            f"mask: expected a boolean mask of shape {tuple(x.shape[:-1])}, "
            f"got {mask.dtype} of shape {tuple(mask.shape)}"
        )
    counts = mask.unsqueeze(-1)  # (..., L, 1)
    number = counts.sum().clamp(min=1)
    tokens = tuple(range(x.ndim - 1))
    mean = wide.masked_fill(~counts, 0.0).sum(tokens) / number
    centred = (wide - mean).masked_fill(~counts, 0.0)
    variance = centred.square().sum(tokens) / number
    normal = _affine(centred * (variance + eps).rsqrt(), weight, bias)
    return normal.masked_fill(~counts, 0.0).to(x.dtype)


def _wide(x: Float[Tensor, "..."], **affine: Tensor | None) -> Float[Tensor, "..."]:
    """The same features in float32 at least, once everything has been checked."""
    wide = widen("x", x)
    if x.ndim < 1:
        raise ValueError(f"x: expected axes (..., D), got shape {tuple(x.shape)}")
    for name, value in affine.items():
        if value is not None:
            check_floating(name, value)
            check_size(name, value, -1, x.shape[-1])
    return wide


def _affine(
    x: Float[Tensor, "*shape D"],
    weight: Float[Tensor, " D"] | None,
    bias: Float[Tensor, " D"] | None,
) -> Float[Tensor, "*shape D"]:
    """Gain and bias, where there are any."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias
