"""Feature maps of linear attention: vectors whose products stand for those of the exponential."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attn_course._checks import check_at_least, check_axes, check_floating, check_size


def elu_feature_map(x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
    r"""Positive features: :math:`\phi(x) = \mathrm{elu}(x) + 1`, each entry by itself.

    Katharopoulos et al. (2020): :math:`x + 1` above 0, :math:`e^x` below.

    Args:
        x: Queries or keys.

    Example:
        >>> elu_feature_map(torch.tensor([-1.0, 0.0, 2.0]))
        tensor([0.3679, 1.0000, 3.0000])
    """
    check_floating("x", x)
    return F.elu(x) + 1


def performer_directions(
    num_features: int,
    head_dim: int,
    *,
    orthogonal: bool = True,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, "F E"]:
    """Random directions for :func:`performer_features`: normal, in orthogonal groups of E.

    Args:
        num_features: How many.
        head_dim: Their size, E.
        orthogonal: Groups of E directions at right angles, with the lengths of normal vectors:
            still unbiased, and less noise (Choromanski et al., 2021).
        generator: Where the numbers come from.
        dtype, device: Of the result.

    Example:
        >>> performer_directions(6, 4).shape
        torch.Size([6, 4])
    """
    check_at_least(1, num_features=num_features, head_dim=head_dim)
    groups = -(-num_features // head_dim)
    options: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
    drawn = torch.randn((groups, head_dim, head_dim), **options)
    if orthogonal:
        lengths = torch.randn((groups, head_dim, head_dim), **options).norm(dim=-1, keepdim=True)
        turned, scales = torch.linalg.qr(drawn)
        # without the signs of the diagonal, the first entries would all have the same sign
        drawn = (turned * scales.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).mT * lengths
    return drawn.flatten(0, 1)[:num_features]


def performer_features(
    x: Float[Tensor, "*B E"], directions: Float[Tensor, "F E"]
) -> Float[Tensor, "*B F"]:
    r"""Positive random features of the softmax kernel (FAVOR+).

    .. math:: \phi(x)_i = \frac{1}{\sqrt F} \exp\!\Big(\omega_i \cdot y - \frac{\lVert y
       \rVert^2}{2}\Big), \quad y = x / E^{1/4}, \qquad
       \mathrm{E}[\phi(q) \cdot \phi(k)] = e^{q \cdot k / \sqrt E}

    Choromanski et al. (2021), lemma 1. The mean over the directions is exact; the spread grows
    exponentially with the length of queries and keys. The exponent is at most
    :math:`\lVert \omega_i \rVert^2 / 2`, which float32 holds up to E of about 150.

    Args:
        x: Queries or keys.
        directions: :math:`\omega`, as :func:`performer_directions` draws them.

    Example:
        >>> directions = performer_directions(64, 4)
        >>> query, key, value = torch.randn(3, 1, 2, 9, 4)
        >>> features = lambda x: performer_features(x, directions)
        >>> linear_attention(query, key, value, feature_map=features).shape
        torch.Size([1, 2, 9, 4])
    """
    check_floating("x", x)
    check_axes("directions", directions, "F E")
    check_size("directions", directions, -1, x.shape[-1] if x.ndim else 0)
    if not len(directions):
        raise ValueError("directions: expected at least one, got none")
    scaled = x * x.shape[-1] ** -0.25
    exponents = scaled @ directions.to(x.dtype).mT - scaled.square().sum(-1, keepdim=True) / 2
    return exponents.exp() * directions.shape[0] ** -0.5
