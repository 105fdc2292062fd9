"""What a head looks at, in one number; and what reaches a position through all layers."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from attn_course._checks import check_floating, check_size


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
    """
    if not weights:
        raise ValueError("weights: expected at least one layer, got none")
    if not 0 <= residual <= 1:
        raise ValueError(f"residual: expected 0 to 1, got {residual}")
    rollout = None
    for layer in weights:
        _check_square(layer)
        mean = layer.to(torch.promote_types(layer.dtype, torch.float32)).mean(-3)  # (..., L, L)
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
    """
    _check_square(weights)
    looked = weights.diagonal(offset=-1, dim1=-2, dim2=-1)  # (..., H, L - 1)
    wide = looked.to(torch.promote_types(weights.dtype, torch.float32))
    return (wide.sum(-1) / max(1, looked.shape[-1])).to(weights.dtype)


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
    wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
    found = (wide * follows.unsqueeze(-3)).sum((-1, -2))  # (..., H)
    return (found / repeats.sum(-1).clamp(min=1).unsqueeze(-1)).to(weights.dtype)


def _check_square(weights: Shaped[Tensor, "..."]) -> None:
    check_floating("weights", weights)
    if weights.ndim < 3 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights: expected shape (..., H, L, L), got {tuple(weights.shape)}")
