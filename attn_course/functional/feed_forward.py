"""What a Transformer does to each token alone: two linear maps with a bend between them."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear, silu

from attn_course._checks import check_floating, check_size, widen


def gelu(
    x: Float[Tensor, "*shape"], approximate: Literal["none", "tanh"] = "none"
) -> Float[Tensor, "*shape"]:
    r"""A smooth ReLU: the input times the probability that a normal number lies below it.

    .. math:: x \, \Phi(x) = \frac{x}{2} \left(1 + \operatorname{erf} \frac{x}{\sqrt 2}\right)
       \approx \frac{x}{2} \left(1 + \tanh\left(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\right)\right)

    Hendrycks and Gimpel (2016), section 2. BERT uses the left form, GPT-2 the right; they differ by
    at most 0.0005.

    Args:
        x: Any real numbers.
        approximate: ``"none"`` for the left form, ``"tanh"`` for the right; as torch names them.

    Example:
        >>> gelu(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1587,  0.0000,  0.8413])
    """
    wide = widen("x", x)
    if approximate == "none":
        factor = torch.erf(wide / math.sqrt(2))
    elif approximate == "tanh":
        factor = torch.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    else:
        raise ValueError(f'approximate: expected "none" or "tanh", got {approximate!r}')
    return (0.5 * wide * (1 + factor)).to(x.dtype)


def swiglu(
    x: Float[Tensor, "*shape D"],
    weight_gate: Float[Tensor, "F D"],
    weight_up: Float[Tensor, "F D"],
    bias_gate: Float[Tensor, " F"] | None = None,
    bias_up: Float[Tensor, " F"] | None = None,
) -> Float[Tensor, "*shape F"]:
    r"""Hidden features, each multiplied by a gate of its own.

    .. math:: \mathrm{silu}(x W_g^\top + b_g) \odot (x W_u^\top + b_u)

    Shazeer (2020), section 2, whose :math:`W` is our ``weight_gate`` and :math:`V` our
    ``weight_up``. A third matrix leads back to the width of the model; with two thirds of the
    hidden features the three have as many parameters as the two of :func:`feed_forward`.

    Args:
        x: Tokens.
        weight_gate: :math:`W_g`, in the layout of ``torch.nn.Linear``.
        weight_up: :math:`W_u`.
        bias_gate, bias_up: :math:`b_g` and :math:`b_u`; 0 where none is given.

    Example:
        >>> swiglu(torch.randn(2, 5, 8), torch.randn(32, 8), torch.randn(32, 8)).shape
        torch.Size([2, 5, 32])
    """
    check_floating("x", x)
    check_size("weight_gate", weight_gate, -1, x.shape[-1])
    check_size("weight_up", weight_up, -1, x.shape[-1])
    check_size("weight_up", weight_up, -2, weight_gate.shape[0])
    return silu(linear(x, weight_gate, bias_gate)) * linear(x, weight_up, bias_up)


def feed_forward(
    x: Float[Tensor, "*shape D"],
    weight_in: Float[Tensor, "F D"],
    weight_out: Float[Tensor, "Do F"],
    bias_in: Float[Tensor, " F"] | None = None,
    bias_out: Float[Tensor, " Do"] | None = None,
    *,
    activation: Callable[[Tensor], Tensor] = torch.relu,
) -> Float[Tensor, "*shape Do"]:
    r"""The same two-layer network at every position.

    .. math:: \mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2

    Vaswani et al. (2017), equation 2.

    Args:
        x: Tokens.
        weight_in: :math:`W_1^\top`, in the layout of ``torch.nn.Linear``.
        weight_out: :math:`W_2^\top`.
        bias_in, bias_out: :math:`b_1` and :math:`b_2`; 0 where none is given.
        activation: The bend; :func:`gelu` in BERT and GPT-2.

    Example:
        >>> feed_forward(torch.randn(2, 5, 8), torch.randn(32, 8), torch.randn(8, 32)).shape
        torch.Size([2, 5, 8])
    """
    check_floating("x", x)
    check_size("weight_in", weight_in, -1, x.shape[-1])
    check_size("weight_out", weight_out, -1, weight_in.shape[0])
    return linear(activation(linear(x, weight_in, bias_in)), weight_out, bias_out)
