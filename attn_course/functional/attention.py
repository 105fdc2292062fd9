"""The three steps of every attention: score, normalise, mix."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from attn_course._checks import (
    check_attn_mask,
    check_broadcast,
    check_device,
    check_expands,
    check_floating,
    check_size,
    check_tensor,
)
from attn_course.functional.scores import scaled_dot_score
from attn_course.functional.softmax import masked_softmax


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
        query: What is looked for.
        key: What it is compared with.
        value: What is mixed, one row per key.
        score: Any function or module that maps query and key to one score per pair.
        attn_mask: True = may attend; broadcasts to the scores. Everything may, if none is given.
        normalize: Maps scores and mask to weights. None takes the scores themselves as weights, 0
            where masked: attention without its softmax.

    Returns:
        Output and weights, computed in float32 at least and rounded once, to the dtype of query and
        key (the output: of query, key and value). Keys and values that no query may attend to do
        not matter, NaN included, neither forward nor backward.

    Raises:
        ValueError: If the numbers of keys and of values differ, the leading axes do not broadcast,
            a tensor is not floating point or on another device, or the mask is not boolean, does
            not broadcast to the scores, or has two axes of which the first could be the batch as
            well as the queries.
    """
    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_floating(name, rows)
        check_device(name, rows, query)
        if rows.ndim < 2:
            raise ValueError(f"{name}: expected vectors in rows, got shape {tuple(rows.shape)}")
    check_size("value", value, -2, key.shape[-2])
    check_broadcast("key", key.shape[:-2], query.shape[:-2])
    check_broadcast("value", value.shape[:-2], key.shape[:-2])
    if attn_mask is None:
        attn_mask = torch.ones((), dtype=torch.bool, device=query.device)
    else:
        check_tensor("attn_mask", attn_mask)
        lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
        check_expands("attn_mask", attn_mask.shape, (*lead, query.shape[-2], key.shape[-2]))
        check_unambiguous(attn_mask, lead, query.shape[-2])
        key, value = (without_padding(rows, attn_mask) for rows in (key, value))
    scores = score(query, key)
    check_attn_mask(attn_mask, scores)
    if normalize is None:
        weights = scores.masked_fill(~attn_mask, 0.0)
    else:
        weights = normalize(scores, attn_mask)
    wide = torch.promote_types(weights.dtype, torch.promote_types(value.dtype, torch.float32))
    output = weights.to(wide) @ value.to(wide)
    dtype = torch.promote_types(query.dtype, key.dtype)
    return output.to(torch.promote_types(dtype, value.dtype)), weights.to(dtype)


def check_unambiguous(
    attn_mask: Shaped[Tensor, "..."], lead: tuple[int, ...], queries: int
) -> None:
    """Refuse a mask (B, S) that would be read as (L, S) because there are as many queries."""
    batch = lead[0] if lead else 1
    if attn_mask.ndim == 2 and attn_mask.shape[0] == batch == queries > 1:
        places = attn_mask.shape[1]
        raise ValueError(
            f"attn_mask: expected shape {(batch, *[1] * len(lead), places)} for one row per "
            f"example, or {(*[1] * len(lead), queries, places)} for one row per query, "
            f"got {tuple(attn_mask.shape)}, which could be either"
        )


def without_padding(
    rows: Shaped[Tensor, "*#B S E"], attn_mask: Shaped[Tensor, "..."]
) -> Shaped[Tensor, "*#B S E"]:
    """Zeros in place of the rows that no query attends to.

    They may hold anything, and 0 * NaN = NaN would reach every sum, forward or backward.
    """
    check_attn_mask(attn_mask, attn_mask)
    check_device("attn_mask", attn_mask, rows)
    attended = attn_mask.any(dim=-2) if attn_mask.ndim > 1 else attn_mask  # (..., S)
    check_broadcast("attn_mask", attended.shape, rows.shape[:-1])
    return torch.where(attended.unsqueeze(-1), rows, 0.0)
