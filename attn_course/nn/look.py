"""What the queries of one call may look at: positions, cache and masks settled together."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from attn_course._checks import check_tensor
from attn_course.masks import causal_mask
from attn_course.nn.cache import Cache, SlidingCache


class Sight(NamedTuple):
    """What the queries look at: the first five arguments of an ``AttentionFn``."""

    query: Float[Tensor, "B H L E"]
    key: Float[Tensor, "B Hkv S E"]
    value: Float[Tensor, "B Hkv S Ev"]
    attn_mask: Shaped[Tensor, "..."] | None
    is_causal: bool


def look(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B Hkv N E"],
    value: Float[Tensor, "B Hkv N Ev"],
    attn_mask: Shaped[Tensor, "..."] | None,
    is_causal: bool,
    positions: Int[Tensor, "B L"] | None,
    cache: Cache | None,
    position: Any,
) -> Sight:
    """Positions, cache and masks of one call, settled in the order in which they depend.

    Queries and new keys are turned to where they stand, the cache takes the keys and gives back all
    that there are, and mask, causality and bias are joined to one ``attn_mask`` where two of them
    meet.

    Args:
        query: In heads, before any rotation.
        key: New keys, likewise.
        value: Their values.
        attn_mask: As in :meth:`MultiHeadAttention.forward`.
        is_causal: Likewise.
        positions: Likewise.
        cache: Likewise.
        position: An object with ``rotate`` or ``bias`` or both, or None.

    Raises:
        ValueError: If the mask does not fit, comes together with ``is_causal``, or comes together
            with a sliding cache; or there are positions for queries but not for keys.
    """
    length, new = query.shape[-2], key.shape[-2]
    past = 0 if cache is None else cache.length
    if positions is not None and length != new:
        raise ValueError("positions: expected self-attention, got a key of another length")
    if positions is not None and positions.shape != (query.shape[0], new):
        raise ValueError(
            f"positions: expected shape {(query.shape[0], new)}, one per token, "
            f"got {tuple(positions.shape)}"
        )
    attn_mask = checked_mask(attn_mask, is_causal, query.shape[:3], past + new)
    if attn_mask is not None and isinstance(cache, SlidingCache):
        raise ValueError("attn_mask: expected none with a sliding cache, which sets its own")
    here = torch.arange(past, past + max(length, new), device=query.device)
    query_positions = here[:length] if positions is None else positions
    key_positions = here[:new] if positions is None else positions
    rotate, bias = getattr(position, "rotate", None), getattr(position, "bias", None)
    late = cache is not None and cache.rotates_late
    if rotate is not None:
        query = rotate(query, query_positions)
        key = key if late else rotate(key, key_positions)
    window = None
    if cache is not None:
        held = cache.append(key, value, positions)
        key, value, window = held.key, held.value, held.window
        if held.positions is not None:
            key_positions = held.positions
        else:
            key_positions = torch.arange(cache.length, device=query.device)
        if late and rotate is not None:
            key = rotate(key, key_positions)
    if window is not None:
        attn_mask, is_causal = window, False
    elif positions is not None:  # padding is hidden
        real = (key_positions >= 0).unsqueeze(-2)  # (B, 1, S)
        if is_causal:
            real = real & (key_positions.unsqueeze(-2) <= positions.unsqueeze(-1))  # (B, L, S)
        attn_mask, is_causal = join_masks(attn_mask, real.unsqueeze(1)), False
    elif is_causal and past:
        # one new token sees everything: there is nothing to mask
        attn_mask = None if length == 1 else _causal(length, key.shape[-2], past, query)
        is_causal = False
    if bias is not None:
        if is_causal:
            attn_mask, is_causal = _causal(length, key.shape[-2], past, query), False
        numbers = bias(query_positions, key_positions).to(query.dtype)
        attn_mask = join_masks(attn_mask, numbers)
    return Sight(query, key, value, attn_mask, is_causal)


def _causal(length: int, keys: int, past: int, like: Tensor) -> Tensor:
    return causal_mask(length, keys, offset=past).to(like.device)


def join_masks(
    mask: Shaped[Tensor, "..."] | None, other: Shaped[Tensor, "..."]
) -> Shaped[Tensor, "..."]:
    """One mask that does what two do: booleans are both True, numbers are added."""
    if mask is None:
        return other
    if mask.dtype == torch.bool and other.dtype == torch.bool:
        return mask & other
    if mask.dtype == torch.bool:
        mask, other = other, mask
    if other.dtype == torch.bool:
        return torch.where(other, mask, -torch.inf)
    return mask + other


def checked_mask(
    attn_mask: Shaped[Tensor, "..."] | None,
    is_causal: bool,
    rows: tuple[int, ...],
    keys: int,
) -> Shaped[Tensor, "..."] | None:
    """The mask, if it can mean one thing only.

    Args:
        attn_mask: As in :meth:`MultiHeadAttention.forward`.
        is_causal: Must be False if there is a mask.
        rows: Batch, heads and number of queries.
        keys: Number of keys.

    Raises:
        ValueError: If not.
    """
    if attn_mask is None:
        return None
    if is_causal:
        raise ValueError(
            "attn_mask: expected none with is_causal=True: join it with masks.causal_mask by &"
        )
    check_tensor("attn_mask", attn_mask)
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        # joined with another mask, ones and zeros would become a bias, which hides nothing
        raise ValueError(
            "attn_mask: expected a boolean mask (True = may attend) or a floating point bias, "
            f"got {attn_mask.dtype}"
        )
    target = (*rows, keys)
    fits = attn_mask.ndim in (2, 4) and all(
        have in (1, want) for have, want in zip(attn_mask.shape[::-1], target[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"attn_mask: expected shape {target[2:]} or {target}, where an axis may be 1, "
            f"got {tuple(attn_mask.shape)}; a padding mask (B, S) goes in as mask[:, None, None, :]"
        )
    return attn_mask


def split_heads(x: Float[Tensor, "B L D"], num_heads: int) -> Float[Tensor, "B H L E"]:
    """The features of each position, dealt to heads one after the other."""
    heads: Tensor = x.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B, H, L, E)
    return heads
