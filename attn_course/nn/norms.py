"""Norms over the features of one position, with and without subtraction of the mean."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attn_course.functional.norms import layer_norm, rms_norm


class LayerNorm(nn.Module):
    r"""Mean 0 and variance 1 over the features, then a learned scale and shift.

    .. math:: y = \frac{x - \mathrm{E}[x]}{\sqrt{\mathrm{Var}[x] + \epsilon}} \odot w + b

    Ba et al. (2016). Initialisation: :math:`w = 1`, :math:`b = 0`.

    Differs from torch: the constructor takes keywords only, and one axis.

    Args:
        embed_dim: Number of features.
        eps: Added to the variance.
        bias: Whether there is a shift :math:`b`.

    Example:
        >>> LayerNorm(embed_dim=4)(torch.tensor([1.0, 1.0, 3.0, 3.0])).detach().round()
        tensor([-1., -1.,  1.,  1.])
    """

    def __init__(self, *, embed_dim: int, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(embed_dim))
        self.bias = nn.Parameter(torch.zeros(embed_dim)) if bias else None

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The normalised features."""
        return layer_norm(x, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"embed_dim={self.weight.shape[0]}, eps={self.eps}, bias={self.bias is not None}"


class RMSNorm(nn.Module):
    r"""Root mean square 1 over the features, then a learned scale; the mean stays in.

    .. math:: y = \frac{x}{\sqrt{\mathrm{E}[x^2] + \epsilon}} \odot w

    Zhang and Sennrich (2019). Initialisation: :math:`w = 1`.

    Differs from torch: ``eps`` is 1e-6 unless given, not the machine epsilon of the dtype.

    Args:
        embed_dim: Number of features.
        eps: Added to the mean square.

    Example:
        >>> RMSNorm(embed_dim=4)(torch.tensor([3.0, 3.0, 3.0, -3.0])).detach().round()
        tensor([ 1.,  1.,  1., -1.])
    """

    def __init__(self, *, embed_dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(embed_dim))

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The normalised features."""
        return rms_norm(x, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"embed_dim={self.weight.shape[0]}, eps={self.eps}"
