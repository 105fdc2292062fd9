"""What a head attends to, in one number; and what reaches a position through all layers."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from attn_course._checks import check_dim, check_floating, check_size, compiling, widest


def attention_rollout(
    weights: Sequence[Float[Tensor, "*B _ L L"]], *, residual: float = 0.5
) -> Float[Tensor, "*B L L"]:
    r"""How much of each input there is in each output, if layers did nothing but mix.

    .. math:: R = \tilde A_N \cdots \tilde A_2 \tilde A_1, \qquad
       \tilde A_n = (1 - r) \frac1H \sum_h A_{nh} + r I

    Abnar and Zuidema (2020), with :math:`r = 1/2` for the residual connection. Heads count alike,
    and values, feed-forward parts and norms are left out of account: a picture, not a proof.

    Args:
        weights: Of each layer, the first layer first; each row sums to one.
        residual: Share :math:`r` of what goes round the attention.

    Returns:
        Rows are outputs, columns inputs; each row sums to one.

    Raises:
        ValueError: If there is no layer, the weights are not square or not floating point, or
            ``residual`` is not between 0 and 1.

    Example:
        >>> attention_rollout([torch.full((1, 1, 2, 2), 0.5)] * 2)
        tensor([[[0.6250, 0.3750],
                 [0.3750, 0.6250]]])
    """
    if not weights:
        raise ValueError("weights: expected at least one layer, got none")
    if not 0 <= residual <= 1:
        raise ValueError(f"residual: expected 0 to 1, got {residual}")
    rollout = None
    for layer in weights:
        _check_square(layer)
        mean = layer.to(widest(layer)).mean(-3)  # (..., L, L)
        identity = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
        mixed = (1 - residual) * mean + residual * identity
        rollout = mixed if rollout is None else mixed @ rollout
    assert rollout is not None
    return rollout.to(weights[0].dtype)


def previous_token_score(weights: Float[Tensor, "*B H L L"]) -> Float[Tensor, "*B H"]:
    r"""How much of its weight a head gives to the token before, on average.

    .. math:: \frac{1}{L-1} \sum_{i=1}^{L-1} A_{i,\,i-1}

    The first half of an induction circuit is such a head: Elhage et al. (2021), Olsson et al.
    (2022).

    Args:
        weights: Each row sums to one.

    Returns:
        One number per head, 0 to 1; 0 for a text of one token.

    Raises:
        ValueError: If the weights are not square or not floating point.

    Example:
        >>> previous_token_score(torch.eye(4).roll(-1, 1).expand(1, 1, 4, 4))
        tensor([[1.]])
    """
    _check_square(weights)
    previous = weights.diagonal(offset=-1, dim1=-2, dim2=-1)  # (..., H, L - 1)
    wide = previous.to(widest(weights))
    return (wide.sum(-1) / max(1, previous.shape[-1])).to(weights.dtype)


def induction_score(
    weights: Float[Tensor, "*B H L L"], tokens: Int[Tensor, "*B L"]
) -> Float[Tensor, "*B H"]:
    r"""How much of its weight a head gives to what followed the same token earlier, on average.

    .. math:: \frac{1}{|I|} \sum_{i \in I} \; \sum_{j \le i \,:\, t_{j-1} = t_i,\, j \ge 1} A_{ij},
       \qquad I = \{ i : t_i \text{ has stood before} \}

    Olsson et al. (2022) call it the prefix-matching score, and measure it on random tokens that are
    repeated: there, with period :math:`T`, it is the mean of :math:`A_{i,\,i-T+1}`.

    Args:
        weights: Each row sums to one.
        tokens: Ids.

    Returns:
        One number per head, 0 to 1; 0 for a text in which no token comes twice.

    Raises:
        ValueError: If the weights are not square or not floating point, or the tokens are not one
            per position.

    Example:
        >>> weights, tokens = torch.rand(2, 4, 8, 8).tril(), torch.randint(3, (2, 8))
        >>> induction_score(weights, tokens).shape
        torch.Size([2, 4])
    """
    _check_square(weights)
    check_size("tokens", tokens, -1, weights.shape[-1])
    if tokens.shape != (*weights.shape[:-3], weights.shape[-1]):
        raise ValueError(
            f"tokens: expected shape {(*weights.shape[:-3], weights.shape[-1])}, "
            f"got {tuple(tokens.shape)}"
        )
    same = tokens.unsqueeze(-1) == tokens.unsqueeze(-2)  # (..., i, j): t_i = t_j
    follows = same.tril(-1)[..., :-1]  # (..., i, j - 1): t_{j-1} = t_i, j - 1 < i
    follows = torch.nn.functional.pad(follows, (1, 0))  # (..., i, j)
    repeats = same.tril(-1).any(-1)  # (..., L)
    wide = weights.to(widest(weights))
    found = (wide * follows.unsqueeze(-3)).sum((-1, -2))  # (..., H)
    return (found / repeats.sum(-1).clamp(min=1).unsqueeze(-1)).to(weights.dtype)


def _check_square(weights: Shaped[Tensor, "..."]) -> None:
    check_floating("weights", weights)
    if weights.ndim < 3 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights: expected shape (..., H, L, L), got {tuple(weights.shape)}")


def weight_entropy(weights: Float[Tensor, "..."], dim: int = -1) -> Float[Tensor, "..."]:
    r"""How spread out weights are, in nats: 0 for one place, :math:`\ln S` for all alike.

    .. math:: H(\alpha) = -\sum_s \alpha_s \ln \alpha_s, \qquad 0 \ln 0 = 0

    :math:`e^{H}` is the number of places that weights attend to, so to speak. Xu and others 2015
    add :math:`\lambda_e H` to what hard attention maximises (section 4.1).

    Args:
        weights: Probabilities along ``dim``.
        dim: Axis that sums to one.

    Returns:
        One number per row. A weight of exactly 0 gets gradient 0, not the infinite one of the
        formula, so that masked places do no harm.

    Raises:
        ValueError: If ``weights`` is not floating point, has no axis ``dim`` or contains a negative
            number.

    Example:
        >>> weight_entropy(torch.tensor([0.5, 0.5]))
        tensor(0.6931)
    """
    check_floating("weights", weights)
    check_dim(weights, dim)
    if not compiling() and bool((weights < 0).any()):
        raise ValueError(f"weights: expected at least 0, got {float(weights.min())}")
    wide = weights.to(widest(weights))
    positive = torch.where(wide == 0, torch.ones_like(wide), wide)
    return -(positive * positive.log()).sum(dim).to(weights.dtype)


def cumulative_spectrum(matrix: Float[Tensor, "*B L S"]) -> Float[Tensor, "*B K"]:
    r"""The share of the singular values that the first of them hold.

    .. math:: c_k = \frac{\sum_{i \le k} \sigma_i}{\sum_i \sigma_i}, \qquad
       \sigma_1 \ge \sigma_2 \ge \ldots

    What Wang et al. (2020), figure 1, plot for attention matrices. Mind the control: random
    matrices have no flat spectrum either.

    Args:
        matrix: Such as weights.

    Returns:
        Shares for :math:`k = 1, \ldots, \min(L, S)`; 0 for a matrix of zeros.

    Raises:
        ValueError: If ``matrix`` is not floating point or has fewer than two axes.

    Example:
        >>> cumulative_spectrum(torch.eye(4))
        tensor([0.2500, 0.5000, 0.7500, 1.0000])
    """
    check_floating("matrix", matrix)
    if matrix.ndim < 2:
        raise ValueError(f"matrix: expected at least axes (L, S), got {tuple(matrix.shape)}")
    sizes = torch.linalg.svdvals(matrix)
    total = sizes.sum(-1, keepdim=True)
    shares: Tensor = sizes.cumsum(-1) / torch.where(total == 0, 1.0, total)
    return shares
