"""Checks of arguments that modules share. ``ValueError`` says name, expected, got."""

import math

import torch
from jaxtyping import Shaped
from torch import Tensor


def check_floating(name: str, value: Shaped[Tensor, "..."]) -> None:
    """Refuse integer and boolean tensors, for which a softmax or a norm has no meaning."""
    check_tensor(name, value)
    if not value.is_floating_point():
        raise ValueError(f"{name}: expected a floating point tensor, got {value.dtype}")


def check_size(name: str, value: Shaped[Tensor, "..."], axis: int, expected: int) -> None:
    """Refuse a tensor whose ``axis`` has another size than ``expected``."""
    if not -value.ndim <= axis < value.ndim or value.shape[axis] != expected:
        raise ValueError(
            f"{name}: expected size {expected} on axis {axis}, got shape {tuple(value.shape)}"
        )


def check_axes(name: str, value: Shaped[Tensor, "..."], axes: str) -> None:
    """Refuse a tensor with another number of axes than ``axes`` names, such as ``"B L D"``."""
    check_tensor(name, value)
    if value.ndim != len(axes.split()):
        raise ValueError(f"{name}: expected axes ({axes}), got shape {tuple(value.shape)}")


def check_dim(value: Shaped[Tensor, "..."], dim: int) -> None:
    """Refuse an axis that the tensor does not have."""
    if not -value.ndim <= dim < value.ndim:
        raise ValueError(f"dim: expected an axis of shape {tuple(value.shape)}, got {dim}")


def check_broadcast(name: str, shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    """Refuse shapes of which one cannot be stretched to fit the other."""
    for have, want in zip(reversed(shape), reversed(other), strict=False):
        if have != want and 1 not in (have, want):
            raise ValueError(
                f"{name}: expected axes that broadcast with {tuple(other)}, got {tuple(shape)}"
            )


def check_expands(name: str, shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Refuse a shape that cannot be stretched to ``target``, or would stretch ``target``."""
    fits = len(shape) <= len(target) and all(
        have in (1, want) for have, want in zip(reversed(shape), reversed(target), strict=False)
    )
    if not fits:
        raise ValueError(
            f"{name}: expected a shape that broadcasts to {tuple(target)}, got {tuple(shape)}"
        )


def check_device(name: str, value: Shaped[Tensor, "..."], other: Shaped[Tensor, "..."]) -> None:
    """Refuse a tensor on another device than ``other``."""
    if value.device != other.device:
        raise ValueError(f"{name}: expected device {other.device}, got {value.device}")


def check_dtype(name: str, value: Shaped[Tensor, "..."], other: Shaped[Tensor, "..."]) -> None:
    """Refuse a tensor of another dtype than ``other``, unless autocast makes them one."""
    if value.dtype == other.dtype:
        return
    kind = other.device.type
    if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
        raise ValueError(f"{name}: expected {other.dtype}, got {value.dtype}")


def check_like(
    name: str, value: Shaped[Tensor, "..."], shape: tuple[int, ...], other: Shaped[Tensor, "..."]
) -> None:
    """Refuse what is not a tensor of this shape, with the dtype and on the device of ``other``."""
    check_tensor(name, value)
    if value.shape != shape:
        raise ValueError(f"{name}: expected shape {tuple(shape)}, got {tuple(value.shape)}")
    check_dtype(name, value, other)
    check_device(name, value, other)


def check_padding_mask(
    padding_mask: Shaped[Tensor, "..."], batch: int, length: int, other: Shaped[Tensor, "..."]
) -> None:
    """Refuse what is not one boolean for each position, on the device of ``other``."""
    check_tensor("padding_mask", padding_mask)
    if padding_mask.dtype != torch.bool or padding_mask.shape != (batch, length):
        raise ValueError(
            f"padding_mask: expected a boolean mask of shape {(batch, length)} (True = real), "
            f"got {padding_mask.dtype} of shape {tuple(padding_mask.shape)}"
        )
    check_device("padding_mask", padding_mask, other)


def check_ids(name: str, ids: Shaped[Tensor, "..."], vocab_size: int) -> None:
    """Refuse ids that are not integers from 0 to ``vocab_size - 1``."""
    check_tensor(name, ids)
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise ValueError(f"{name}: expected integers, got {ids.dtype}")
    if compiling() or ids.device.type == "meta":
        return
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= vocab_size):
        raise ValueError(
            f"{name}: expected ids from 0 to {vocab_size - 1}, "
            f"got {int(ids.min())} to {int(ids.max())}"
        )


def check_attn_mask(attn_mask: Shaped[Tensor, "..."], scores: Shaped[Tensor, "..."]) -> None:
    """Refuse a mask that is not boolean or does not broadcast to the shape of ``scores``."""
    check_tensor("attn_mask", attn_mask)
    if attn_mask.dtype != torch.bool:
        raise ValueError(
            f"attn_mask: expected a boolean mask (True = may attend), got {attn_mask.dtype}"
        )
    check_expands("attn_mask", attn_mask.shape, scores.shape)
    check_device("attn_mask", attn_mask, scores)


def check_lengths(
    lengths: Shaped[Tensor, "..."],
    batch_size: int,
    longest: float = math.inf,
    *,
    name: str = "lengths",
) -> None:
    """Refuse lengths that are not one integer from 0 to ``longest`` per row."""
    check_tensor(name, lengths)
    if lengths.shape != (batch_size,) or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(
            f"{name}: expected {batch_size} integers, one per row, "
            f"got {lengths.dtype} of shape {tuple(lengths.shape)}"
        )
    if compiling() or lengths.device.type == "meta":
        return
    if batch_size and (int(lengths.min()) < 0 or int(lengths.max()) > longest):
        raise ValueError(
            f"{name}: expected values from 0 to {longest}, "
            f"got {int(lengths.min())} to {int(lengths.max())}"
        )


def compiling() -> bool:
    """Whether values can't be looked at: torch compiles or exports, or a transform such as vmap.

    Checks of shapes and dtypes still hold there, checks of values are left out.
    """
    return torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None


def check_tensor(name: str, value: object) -> None:
    """Refuse lists and NumPy arrays by name: they know neither gradient nor device."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{name}: expected a torch tensor, got {type(value).__name__}")
