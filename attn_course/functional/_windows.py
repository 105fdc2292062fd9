"""Checks of attention that takes queries and keys from the same positions: windows, patterns."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from attn_course._checks import check_axes, check_device, check_same_heads, check_size, check_whole
from attn_course.functional._global_positions import check_global_mask


def check_window(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    window_size: int,
    dilation: int | Sequence[int],
    is_causal: bool,
    global_mask: Tensor | None,
    dropout_p: float,
    enable_gqa: bool,
) -> tuple[list[int], Bool[Tensor, "B L"], Bool[Tensor, "B L"]]:
    """Refuse what a window can't do; a dilation per head, the real and the global positions."""
    check_heads(query, key, value, dropout_p, enable_gqa, what="a window")
    window_sides(window_size, is_causal)
    dilations = _dilations(dilation, query.shape[1])
    real = padding_alone(attn_mask, query, "the window")
    if real is None:
        real = torch.ones(len(query), query.shape[2], dtype=torch.bool, device=query.device)
    if global_mask is None:
        return dilations, real, torch.zeros_like(real)
    check_global_mask(global_mask, query)
    return dilations, real, global_mask & real


def window_sides(window_size: int, is_causal: bool) -> tuple[int, int]:
    """How many keys a query attends to before itself, and how many after."""
    check_whole(window_size=window_size)
    if window_size < 1 or not (is_causal or window_size % 2):
        kind = "a positive number" if is_causal else "an odd positive number"
        raise ValueError(f"window_size: expected {kind}, got {window_size}")
    return (window_size - 1, 0) if is_causal else ((window_size - 1) // 2,) * 2


def check_heads(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, enable_gqa: bool, *, what: str
) -> None:
    """Refuse rows of other sizes, dtypes or devices than the query's, and dropout."""
    for name, rows in (("query", query), ("key", key)):
        check_axes(name, rows, "B H L E")
    if key.shape[2] > query.shape[2]:
        raise ValueError(
            f"key: expected {query.shape[2]} positions as the query, got {key.shape[2]}: {what} "
            "goes without a cache; nn.WindowPositions has one"
        )
    check_size("key", key, 2, query.shape[2])
    check_same_heads(query, key, value, enable_gqa=enable_gqa)
    if dropout_p:
        raise ValueError(f"dropout_p: expected 0, {what} has none, got {dropout_p}")


def for_each_head(rows: Tensor, query: Tensor) -> Tensor:
    """Keys or values with as many heads as the query."""
    groups = query.shape[1] // max(rows.shape[1], 1)
    return rows if groups <= 1 else rows.repeat_interleave(groups, dim=1)


def _dilations(dilation: int | Sequence[int], heads: int) -> list[int]:
    """One dilation for each head."""
    each = [dilation] * heads if isinstance(dilation, int) else [int(one) for one in dilation]
    if len(each) != heads:
        raise ValueError(f"dilation: expected one for each of {heads} heads, got {len(each)}")
    if each and min(each) < 1:
        raise ValueError(f"dilation: expected positive numbers, got {dilation}")
    return each


def padding_alone(
    attn_mask: Tensor | None, query: Tensor, instead: str
) -> Bool[Tensor, "B L"] | None:
    """Which keys count, from a mask that says no more than that."""
    if attn_mask is None:
        return None
    batch, _, length, _ = query.shape
    padding = isinstance(attn_mask, Tensor) and attn_mask.dtype == torch.bool
    if not padding or attn_mask.shape not in ((batch, 1, 1, length), (1, 1, 1, length)):
        got = tuple(attn_mask.shape) if isinstance(attn_mask, Tensor) else type(attn_mask).__name__
        raise ValueError(
            f"attn_mask: expected a boolean padding mask of shape {(batch, 1, 1, length)}, "
            f"got {got}: {instead} is the rest"
        )
    check_device("attn_mask", attn_mask, query)
    return attn_mask[:, 0, 0].expand(batch, -1)
