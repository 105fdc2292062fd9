"""One mask from all that keeps a query from a key: the caller's, padding, causality, a window."""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from attn_course._checks import THREE_AXES, check_tensor
from attn_course.nn.cache import Cache, SlidingCache

PADDING = "write a padding mask (B, S) as mask[:, None, None, :]"


def check_mask(
    attn_mask: Shaped[Tensor, "..."] | None,
    is_causal: bool,
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B Hkv N E"],
    cache: Cache | None = None,
) -> None:
    """Refuse a mask that does not fit queries, new keys and those of the cache.

    Two axes are (L, S), whatever the batch.
    """
    if attn_mask is None:
        return
    if isinstance(cache, SlidingCache):
        raise ValueError("attn_mask: expected none with a sliding cache, which sets its own")
    check_tensor("attn_mask", attn_mask)
    if is_causal:
        raise ValueError(
            "attn_mask: expected none with is_causal=True: join it with masks.causal_mask by &"
        )
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        # joined with another mask, ones and zeros would become a bias, which hides nothing
        raise ValueError(
            "attn_mask: expected a boolean mask (True = may attend) or a floating point bias, "
            f"got {attn_mask.dtype}"
        )
    shape = (*query.shape[:3], key.shape[-2] + (0 if cache is None else cache.length))
    fits = attn_mask.ndim in (2, 4) and all(
        have in (1, want) for have, want in zip(attn_mask.shape[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"attn_mask: expected shape {shape[2:]} or {shape}, where an axis may be 1, got "
            f"{tuple(attn_mask.shape)}: {THREE_AXES if attn_mask.ndim == 3 else PADDING}"
        )


def attention_mask(
    attn_mask: Shaped[Tensor, "..."] | None,
    window: Bool[Tensor, "B 1 L S"] | None,
    bias: Float[Tensor, "*D H L S"] | None,
    at: Int[Tensor, "*B L"],
    keys_at: Int[Tensor, "*C S"],
    *,
    is_causal: bool,
    past: int = 0,
) -> tuple[Shaped[Tensor, "..."] | None, bool]:
    """The mask of an ``AttentionFn``, and its ``is_causal``: True only where no mask is needed.

    Args:
        attn_mask: The caller's.
        window: The cache's, which also masks padding and later keys.
        bias: The one of the positions.
        at: Positions of the queries; two axes if there is padding, which is negative.
        keys_at: Positions of the keys.
        is_causal: Whether later keys are masked.
        past: Number of keys before the first query.
    """
    padded = at.ndim == 2
    if past and at.shape[-1] == 1:
        is_causal = False  # no key is later than the newest token
    mask = window
    if window is None and (padded or (is_causal and (past or bias is not None))):
        mask = position_mask(at, keys_at, is_causal=is_causal)
    return join_masks(attn_mask, mask, bias), is_causal and mask is None


def position_mask(
    at: Int[Tensor, "*B L"], keys_at: Int[Tensor, "*C S"], *, is_causal: bool
) -> Bool[Tensor, "*D #L S"]:
    """Which keys are real (not negative) and, if causal, not later than the query."""
    mask = (keys_at >= 0).unsqueeze(-2)  # (..., 1, S)
    if is_causal:
        mask = mask & (keys_at.unsqueeze(-2) <= at.unsqueeze(-1))  # (..., L, S)
    return mask.unsqueeze(1) if mask.ndim == 3 else mask


def join_masks(*masks: Shaped[Tensor, "..."] | None) -> Shaped[Tensor, "..."] | None:
    """One mask that does what all do: booleans are all True, biases are added, None is skipped."""
    joined: Tensor | None = None
    for mask in masks:
        if joined is None or mask is None:
            joined = mask if joined is None else joined
        elif joined.dtype == mask.dtype == torch.bool:
            joined = joined & mask
        elif joined.dtype == torch.bool:
            joined = torch.where(joined, mask, -torch.inf)
        elif mask.dtype == torch.bool:
            joined = torch.where(mask, joined, -torch.inf)
        else:
            joined = joined + mask
    return joined


def real_tokens(
    attn_mask: Shaped[Tensor, "..."] | None,
    positions: Int[Tensor, "B L"] | None,
    shape: tuple[int, ...],
) -> Bool[Tensor, "B L"] | None:
    """Which tokens are real, (B, L), where a mask may be padding only; None if all are."""
    real: Tensor | None = None if positions is None else positions >= 0
    if attn_mask is None:
        return real
    check_tensor("attn_mask", attn_mask)
    batch, length = shape
    padding = (batch, 1, 1, length)
    if attn_mask.dtype != torch.bool or attn_mask.shape not in (padding, (1, *padding[1:])):
        raise ValueError(
            f"attn_mask: expected a boolean padding mask of shape {padding}, got {attn_mask.dtype} "
            f"of shape {tuple(attn_mask.shape)}: {PADDING}"
        )
    mask: Tensor = attn_mask[:, 0, 0].expand(batch, -1)
    return mask if real is None else mask & real
