"""The three steps of every attention: score, normalise, mix."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attn_course._calls import explained
from attn_course._checks import (
    check_attn_mask,
    check_broadcast,
    check_device,
    check_floating,
    check_size,
    widest,
    without_padding,
)
from attn_course.functional.scores import scaled_dot_score
from attn_course.functional.softmax import masked_softmax


@explained
def attention(
    query: Float[Tensor, "*#B L Eq"],
    key: Float[Tensor, "*#B S Ek"],
    value: Float[Tensor, "*#B S Ev"],
    *,
    score: Callable[..., Tensor] = scaled_dot_score,
    attn_mask: Bool[Tensor, "..."] | None = None,
    normalize: Callable[..., Tensor] | None = masked_softmax,
) -> tuple[Float[Tensor, "*#B L Ev"], Float[Tensor, "*#B L S"]]:
    r"""Mix the values by how well their keys fit the query.

    .. math:: w_{i\cdot} = \mathrm{normalize}(\mathrm{score}(q_i, k_\cdot)), \qquad
       o_i = \sum_j w_{ij} v_j

    With :func:`additive_score` this is Bahdanau et al. (2015), equations 5 and 6, where keys and
    values are both the annotations :math:`h_j`; with a score of Luong et al. (2015) their equation
    7; with :func:`scaled_dot_score` Vaswani et al. (2017), equation 1.

    Args:
        query: Queries.
        key: Keys.
        value: Values, one row per key.
        score: Any function or module that maps query and key to one score per pair.
        attn_mask: True = may attend; broadcasts to the scores, two axes are ``(L, S)``. Everything
            may be attended to if none is given.
        normalize: Maps scores and mask to weights. None takes the scores themselves as weights, 0
            where masked: attention without its softmax.

    Returns:
        Output and weights, computed in float32 at least and rounded once, to the dtype of query and
        key (the output: of query, key and value). Keys and values that no query may attend to do
        not matter, NaN included, neither forward nor backward.

    Example:
        >>> query, key, value = torch.randn(2, 3, 5), torch.randn(2, 7, 5), torch.randn(2, 7, 4)
        >>> output, weights = attention(query, key, value)
        >>> output.shape, weights.shape
        (torch.Size([2, 3, 4]), torch.Size([2, 3, 7]))
    """
    key, value, mask = _inputs(query, key, value, attn_mask)
    scores = score(query, key)  # (..., L, S)
    weights = scores.masked_fill(~mask, 0.0) if normalize is None else normalize(scores, mask)
    wide = widest(weights, value)
    output = weights.to(wide) @ value.to(wide)  # (..., L, Ev)
    dtype = torch.promote_types(query.dtype, key.dtype)
    return output.to(torch.promote_types(dtype, value.dtype)), weights.to(dtype)


def _inputs(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None
) -> tuple[Tensor, Tensor, Bool[Tensor, "..."]]:
    """Keys and values with 0 in padding, and a mask, after a check of everything."""
    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_floating(name, rows)
        check_device(name, rows, query)
        if rows.ndim < 2:
            raise ValueError(f"{name}: expected vectors in rows, got shape {tuple(rows.shape)}")
    check_size("value", value, -2, key.shape[-2])
    check_broadcast("key", key.shape[:-2], query.shape[:-2])
    check_broadcast("value", value.shape[:-2], key.shape[:-2])
    if attn_mask is None:
        return key, value, torch.ones((), dtype=torch.bool, device=query.device)
    lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    check_attn_mask(attn_mask, (*lead, query.shape[-2], key.shape[-2]), query)
    return without_padding(key, attn_mask), without_padding(value, attn_mask), attn_mask
