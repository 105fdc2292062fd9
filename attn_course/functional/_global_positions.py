"""Positions that attend to all and that all attend to; each row of a batch has its own."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from attn_course._checks import check_device
from attn_course.functional.scaled_dot_product import scaled_dot_product_attention


class GlobalPositions(NamedTuple):
    """Where the global positions of each row of a batch stand.

    Attributes:
        places: Positions, those of shorter rows filled up with 0.
        valid: False where filled up.
    """

    places: Int[Tensor, "B G"]
    valid: Bool[Tensor, "B G"]


def global_positions(global_mask: Bool[Tensor, "B L"]) -> GlobalPositions:
    """The positions where a mask is True, row by row."""
    most = int(global_mask.sum(-1).max()) if global_mask.numel() else 0
    order = global_mask.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    valid = global_mask.gather(-1, order)[:, :most]
    return GlobalPositions(order[:, :most] * valid, valid)


def take_positions(rows: Float[Tensor, "B H L E"], at: GlobalPositions) -> Float[Tensor, "B H G E"]:
    """The rows of the global positions."""
    index = at.places[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[-1])
    return rows.gather(2, index)


def put_positions(
    rows: Float[Tensor, "B H L E"], found: Float[Tensor, "B H G E"], at: GlobalPositions
) -> Float[Tensor, "B H L E"]:
    """The rows with those of the global positions replaced, in place."""
    example, slot = at.valid.nonzero(as_tuple=True)
    by_position = rows.transpose(1, 2)
    by_position[example, at.places[example, slot]] = found.transpose(1, 2)[example, slot]
    return rows


def attend_globally(
    query: Float[Tensor, "B H G E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    at: GlobalPositions,
    real: Bool[Tensor, "B L"] | None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> Float[Tensor, "B H G Ev"]:
    """Full attention of a few queries, which stand at given positions, to all keys."""
    mask = None if real is None else real[:, None, None]  # (B, 1, 1, L)
    if is_causal:
        past = torch.arange(key.shape[2], device=key.device) <= at.places[..., None]
        mask = past[:, None] if mask is None else mask & past[:, None]  # (B, 1, G, L)
    # the equation, as it has second derivatives
    attend = scaled_dot_product_attention.__wrapped__  # type: ignore[attr-defined]
    return attend(query, key, value, mask, scale=scale)


def check_global_mask(global_mask: object, query: Shaped[Tensor, "B H L E"]) -> None:
    """Refuse what is not one boolean for each position."""
    expected = (query.shape[0], query.shape[2])
    if not isinstance(global_mask, Tensor) or global_mask.dtype != torch.bool:
        kind = global_mask.dtype if isinstance(global_mask, Tensor) else type(global_mask).__name__
        raise ValueError(f"global_mask: expected a boolean tensor, got {kind}")
    if global_mask.shape != expected:
        raise ValueError(f"global_mask: expected shape {expected}, got {tuple(global_mask.shape)}")
    check_device("global_mask", global_mask, query)
