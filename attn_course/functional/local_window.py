"""Attention to a window of the source: which places, and how much each counts.

Luong et al. (2015), section 3.2. Their :math:`p_t` is ``position``, :math:`D` is ``half_width``,
:math:`S` is ``source_lengths``; places count from 0.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attn_course._checks import (
    check_at_least,
    check_attn_mask,
    check_axes,
    check_broadcast,
    check_device,
    check_floating,
    check_lengths,
    check_positive,
    check_size,
    widest,
)
from attn_course.functional.scores import scaled_dot_score
from attn_course.functional.softmax import masked_softmax
from attn_course.masks import padding_mask


def local_m_mask(
    steps: Int[Tensor, "*#B L"], source_lengths: Int[Tensor, " B"], half_width: float, longest: int
) -> Bool[Tensor, "B L S"]:
    r"""The window of *monotonic* local attention: target step ``t`` attends around position ``t``.

    .. math:: m_{bts} = [\, |s - t| \le D \,]\,[\, s < S_b \,]

    Luong et al. (2015), section 3.2, local-m: :math:`p_t = t`. The part of a window beyond the
    sentence is ignored; a window that lies wholly beyond it is empty.

    Args:
        steps: Numbers of the target steps, from 0: the same for all rows, or row by row.
        source_lengths: How many places of each row count.
        half_width: :math:`D`, not negative; the window has at most :math:`2 D + 1` places.
        longest: Width :math:`S` of the padded batch.

    Returns:
        True where a step may attend.

    Example:
        >>> local_m_mask(torch.arange(3), torch.tensor([4]), half_width=1, longest=4)[0].int()
        tensor([[1, 1, 0, 0],
                [1, 1, 1, 0],
                [0, 1, 1, 1]], dtype=torch.int32)
    """
    check_at_least(0, half_width=half_width)
    real = padding_mask(source_lengths, longest)  # (B, S)
    if steps.ndim != 1:
        check_axes("steps", steps, "B L")
        if steps.shape[0] != 1:
            check_size("steps", steps, 0, real.shape[0])
    distance = torch.arange(longest, device=steps.device) - steps.unsqueeze(-1)  # (..., L, S)
    return (distance.abs() <= half_width) & real.unsqueeze(1)


def local_p_position(
    hidden: Float[Tensor, "B L H"],
    weight: Float[Tensor, "A H"],
    v: Float[Tensor, " A"],
    source_lengths: Int[Tensor, " B"],
) -> Float[Tensor, "B L"]:
    r"""The *predicted* centre of the window, a real number of places.

    .. math:: p = S_b \cdot \sigma(v^\top \tanh(W h))

    Luong et al. (2015), equation 9; :math:`W, v` are their :math:`W_p, v_p`.

    Args:
        hidden: States of the decoder.
        weight: :math:`W`.
        v: One weight per hidden unit.
        source_lengths: :math:`S_b`, how many places of each row count.

    Returns:
        Places from 0 to :math:`S_b`, in float32 at least; differentiable.

    Example:
        >>> hidden, lengths = torch.zeros(1, 1, 3), torch.tensor([8])
        >>> local_p_position(hidden, torch.randn(5, 3), torch.randn(5), lengths)
        tensor([[4.]])
    """
    check_floating("hidden", hidden)
    check_axes("hidden", hidden, "B L H")
    check_axes("weight", weight, "A H")
    check_size("weight", weight, -1, hidden.shape[-1])
    check_axes("v", v, "A")
    check_size("v", v, 0, weight.shape[0])
    check_lengths(source_lengths, hidden.shape[0], name="source_lengths")
    # a place is a number of its own size: half precision would round place 256.5 to 256
    wide = widest(hidden, weight)
    hidden, weight, v = (part.to(wide) for part in (hidden, weight, v))
    share = torch.sigmoid(torch.tanh(hidden @ weight.mT) @ v)  # (B, L)
    return source_lengths.unsqueeze(-1) * share


def local_p_weights(
    scores: Float[Tensor, "*#B L S"],
    position: Float[Tensor, "*#B L"],
    half_width: float,
    attn_mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*#B L S"]:
    r"""Softmax inside the window, times a Gaussian around its centre.

    .. math:: w_s = \mathrm{softmax}_{|s - p| \le D}(\mathrm{scores})_s
       \exp\left(-\frac{(s - p)^2}{2 \sigma^2}\right), \qquad \sigma = D / 2

    Luong et al. (2015), equation 10. The softmax is over the window only, and its weights are not
    normalised again after the Gaussian. The window itself has a hard edge that carries no gradient;
    the Gaussian is how the loss moves the centre.

    Args:
        scores: One number per step and place.
        position: The centre :math:`p` of each step's window, a real number.
        half_width: :math:`D`, more than 0.
        attn_mask: True = may attend; broadcasts to the scores. Everything may, if none is given.

    Returns:
        Weights; a row sums to at most 1, and to 0 where no place lies in the window.

    Example:
        >>> local_p_weights(torch.zeros(1, 5), torch.tensor([2.0]), half_width=1)
        tensor([[0.0000, 0.0451, 0.3333, 0.0451, 0.0000]])
    """
    check_positive(half_width=half_width)
    check_floating("scores", scores)
    check_floating("position", position)
    if scores.ndim < 2:
        raise ValueError(f"scores: expected scores in rows, got shape {tuple(scores.shape)}")
    check_size("position", position, -1, scores.shape[-2])
    check_broadcast("position", position.shape, scores.shape[:-1])
    check_device("position", position, scores)
    # distances in float32 at least: half precision cannot tell 256.5 places from 256
    wide = widest(scores, position)
    places = torch.arange(scores.shape[-1], device=scores.device)
    distance = places - position.to(wide).unsqueeze(-1)  # (..., L, S)
    raw = scores.to(wide).expand(torch.broadcast_shapes(scores.shape, distance.shape))
    window = distance.detach().abs() <= half_width
    if attn_mask is not None:
        check_attn_mask(attn_mask, raw.shape, raw)
        window = window & attn_mask
    sigma = half_width / 2
    gaussian = torch.exp(-distance.square() / (2 * sigma**2))
    return (masked_softmax(raw, window) * gaussian).to(scores.dtype)


def local_window_attention(
    query: Float[Tensor, "B L Eq"],
    key: Float[Tensor, "B S Ek"],
    value: Float[Tensor, "B S Ev"],
    position: Float[Tensor, "B L"] | Int[Tensor, "B L"],
    half_width: float,
    source_lengths: Int[Tensor, " B"],
    *,
    score: Callable[[Tensor, Tensor], Tensor] = scaled_dot_score,
    gaussian: bool = False,
) -> tuple[Float[Tensor, "B L Ev"], Float[Tensor, "B L K"], Int[Tensor, "B L K"]]:
    r"""Local attention that scores the places of the window and no others.

    .. math:: o_t = \sum_{|s - p_t| \le D} w_{ts} v_s

    Luong et al. (2015), section 3.2: with ``gaussian`` the weights are those of local-p, see
    :func:`local_p_weights`, else the softmax of the window. Time and memory grow with L·D, not with
    L·S.

    Args:
        query: Queries, one per target step.
        key: What it is compared with, one per place.
        value: What is mixed.
        position: The centre :math:`p` of each step's window.
        half_width: :math:`D`, not negative; more than 0 with ``gaussian``.
        source_lengths: How many places of each row count.
        score: Maps queries (B, L, 1, Eq) and keys (B, L, K, Ek) to scores (B, L, 1, K).
        gaussian: Whether weights fall with the distance from the centre.

    Returns:
        Output; weights of the positions in the window, 0 outside of the window; and the numbers
        of these places.

    Example:
        >>> query, key, value = torch.randn(2, 3, 4), torch.randn(2, 9, 4), torch.randn(2, 9, 5)
        >>> position, lengths = torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.tensor([9, 7])
        >>> local_window_attention(query, key, value, position, 2, lengths)[0].shape
        torch.Size([2, 3, 5])
    """
    _check_window(query, key, value, position, half_width, source_lengths, gaussian)
    wide = widest(query, position)
    centre = position.to(wide).unsqueeze(-1)  # (B, L, 1)
    # one place more than the window has: a real centre need not begin at a place
    width = min(math.floor(2 * half_width) + 2, key.shape[1])
    last = max(0, key.shape[1] - width)
    first = (centre.detach() - half_width).floor().long().clamp(0, last)  # (B, L, 1)
    places = first + torch.arange(width, device=key.device)  # (B, L, K)
    rows = torch.arange(len(key), device=key.device)[:, None, None]
    distance = places - centre
    inside = (distance.detach().abs() <= half_width) & (places < source_lengths[:, None, None])
    scores = score(query.unsqueeze(2), key[rows, places]).squeeze(2).to(wide)  # (B, L, K)
    weights = masked_softmax(scores, inside)
    if gaussian:
        weights = weights * torch.exp(-distance.square() / (2 * (half_width / 2) ** 2))
    weights = weights.to(value.dtype)
    output = (weights.unsqueeze(2) @ value[rows, places]).squeeze(2)  # (B, L, Ev)
    return output, weights, places


def _check_window(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    position: Tensor,
    half_width: float,
    source_lengths: Tensor,
    gaussian: bool,
) -> None:
    if not (half_width > 0 or (half_width == 0 and not gaussian)):
        raise ValueError(f"half_width: expected more than 0, got {half_width}")
    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_axes(name, rows, "B S E")
        check_floating(name, rows)
        check_size(name, rows, 0, query.shape[0])
    check_size("value", value, 1, key.shape[1])
    check_axes("position", position, "B L")
    check_size("position", position, 1, query.shape[1])
    check_lengths(source_lengths, query.shape[0], key.shape[1], name="source_lengths")
