"""Checks and preparation of arguments. ``ValueError`` says name, expected, got."""

import math

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

THREE_AXES = "write mask[:, None] for one mask per example, mask[None] for one per head"


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
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name}: expected integers, got {ids.dtype}: write {name}.long()")
    if has_values(ids) and ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= vocab_size):
        raise ValueError(
            f"{name}: expected ids from 0 to {vocab_size - 1}, "
            f"got {int(ids.min())} to {int(ids.max())}"
        )


def check_attn_mask(
    attn_mask: Shaped[Tensor, "..."], shape: tuple[int, ...], other: Shaped[Tensor, "..."]
) -> None:
    """Refuse a mask that is not boolean or does not broadcast to scores of this shape."""
    check_tensor("attn_mask", attn_mask)
    if attn_mask.dtype != torch.bool:
        raise ValueError(
            f"attn_mask: expected a boolean mask (True = may attend), got {attn_mask.dtype}"
        )
    check_mask_shape(attn_mask, shape)
    check_device("attn_mask", attn_mask, other)


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
    if has_values(lengths) and batch_size:
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > longest:
            raise ValueError(f"{name}: expected values from 0 to {longest}, got {low} to {high}")


def compiling() -> bool:
    """Whether values can't be read: torch compiles or exports, or a transform such as vmap.

    Checks of shapes and dtypes still hold there, checks of values are left out.
    """
    return torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None


def transformed() -> bool:
    """Whether a transform such as vmap or jvp runs, outside of a compiler."""
    if torch.compiler.is_compiling():
        return False
    return forward_mode() or torch._C._functorch.maybe_current_level() is not None


def forward_mode() -> bool:
    """Whether derivatives are taken forward, as jvp does."""
    return torch.autograd.forward_ad._current_level >= 0


def check_tensor(name: str, value: object) -> None:
    """Refuse lists and NumPy arrays, which have neither gradient nor device, and nested tensors."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name}: expected a torch tensor, got {type(value).__name__}")
    if value.is_nested:
        raise ValueError(f"{name}: expected a padded tensor and a mask, got a nested tensor")


def check_at_least(least: float, **numbers: float) -> None:
    """Refuse numbers below ``least``, each by its name."""
    for name, number in numbers.items():
        if not number >= least:
            raise ValueError(f"{name}: expected at least {least}, got {number}")


def check_whole(**numbers: object) -> None:
    """Refuse what is no whole number, such as 8 / 2, each by its name."""
    for name, number in numbers.items():
        if not hasattr(number, "__index__"):
            raise ValueError(f"{name}: expected a whole number, got {number!r}")


def check_positive(**numbers: float) -> None:
    """Refuse numbers that are not above 0, each by its name."""
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{name}: expected more than 0, got {number}")


def check_chance(**chances: float) -> None:
    """Refuse what is not a number from 0 to 1, each by its name."""
    for name, chance in chances.items():
        if not isinstance(chance, int | float) or not 0 <= chance <= 1:
            raise ValueError(f"{name}: expected a chance from 0 to 1, got {chance!r}")


def check_same_heads(
    query: Tensor, key: Tensor, value: Tensor, *, enable_gqa: bool = False
) -> None:
    """Refuse rows (B, H, L, E) that differ in batch, heads, dtype or device, or do not fit.

    With ``enable_gqa`` the query's heads are a multiple of the key's.
    """
    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_floating(name, rows)
        check_axes(name, rows, "B H L E")
        check_size(name, rows, 0, query.shape[0])
        check_dtype(name, rows, query)
        check_device(name, rows, query)
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads and not (enable_gqa and kv_heads and heads % kv_heads == 0):
        wanted = f"a divisor of {heads}" if enable_gqa else str(heads)
        raise ValueError(f"key: expected {wanted} heads on axis 1, got {kv_heads}")
    check_size("value", value, 1, kv_heads)
    check_size("key", key, 3, query.shape[3])
    check_size("value", value, 2, key.shape[2])


def check_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    enable_gqa: bool,
) -> tuple[int, ...]:
    """Refuse what scaled dot-product attention can't take; the shape of its scores."""
    check_floating("query", query)
    dtype, device, least = query.dtype, query.device, 2 + enable_gqa
    for name, rows in (("query", query), ("key", key), ("value", value)):
        if not isinstance(rows, Tensor) or rows.dtype != dtype or rows.device != device:
            check_floating(name, rows)
            check_device(name, rows, query)
            raise ValueError(f"{name}: expected {dtype} as the query, got {rows.dtype}")
        if rows.ndim < least:
            axes = "(Hkv, S, E)" if enable_gqa else "(S, E)"
            raise ValueError(f"{name}: expected at least axes {axes}, got {tuple(rows.shape)}")
    if dropout_p:
        check_chance(dropout_p=dropout_p)
    q, k, v = query.shape, key.shape, value.shape
    if k[-1] != q[-1]:
        check_size("key", key, -1, q[-1])
    if v[-2] != k[-2]:
        check_size("value", value, -2, k[-2])
    heads: tuple[int, ...] = ()
    end = -2  # axes before this one broadcast
    if enable_gqa:
        if not k[-3] or q[-3] % k[-3]:
            raise ValueError(
                f"key: expected a number of heads (axis -3) that divides the query's {q[-3]}, "
                f"got {k[-3]}"
            )
        check_size("value", value, -3, k[-3])
        heads, end = (q[-3],), -3
    elif len(q) > 2 < len(k) and q[-3] != k[-3] and 1 not in (q[-3], k[-3]):
        raise ValueError(
            f"key: expected {q[-3]} heads on axis -3, got {k[-3]} "
            "(fewer heads than the query need enable_gqa=True)"
        )
    lead: tuple[int, ...] = q[:end]
    if not lead == k[:end] == v[:end]:  # asking torch takes longer than all other checks
        check_broadcast("key", k[:end], lead)
        check_broadcast("value", v[:end], k[:end])
        check_broadcast("value", v[:end], lead)
        lead = torch.broadcast_shapes(lead, k[:end], v[:end])
    shape = (*lead, *heads, q[-2], k[-2])
    if attn_mask is not None:
        if is_causal:
            raise ValueError(
                "attn_mask: expected None together with is_causal=True; "
                "combine them as attn_mask & causal_mask(L, S)"
            )
        check_tensor("attn_mask", attn_mask)
        if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
            raise ValueError(
                "attn_mask: expected a boolean mask (True = may attend) or a floating point bias, "
                f"got {attn_mask.dtype}"
            )
        got = attn_mask.shape
        if len(got) < 2:
            raise ValueError(f"attn_mask: expected at least axes (L, S), got {tuple(got)}")
        if len(got) == 3 and len(shape) == 4 and attn_mask.dtype == torch.bool:
            raise ValueError(
                f"attn_mask: expected axes (L, S) or (B, H, L, S), got {tuple(got)}: {THREE_AXES}"
            )
        if got != shape[-2:]:
            check_mask_shape(attn_mask, shape)
        check_device("attn_mask", attn_mask, query)
    return shape


def check_mask_shape(attn_mask: Shaped[Tensor, "..."], shape: tuple[int, ...]) -> None:
    """Refuse a mask that does not broadcast to scores of this shape. Two axes are (L, S)."""
    got = attn_mask.shape
    if len(got) == 2 < len(shape) and got == (shape[0], shape[-1]) and got[0] not in (1, shape[-2]):
        written = ", ".join([":", *["None"] * (len(shape) - 2), ":"])
        raise ValueError(
            f"attn_mask: expected axes (L, S) that broadcast to {tuple(shape)}, got {tuple(got)}: "
            f"write a padding mask as mask[{written}]"
        )
    check_expands("attn_mask", got, shape)


def may_read(tensor: Shaped[Tensor, "..."]) -> bool:
    """Whether values may decide: none that is fake or traced, or that the processor waits for."""
    return tensor.is_cpu and has_values(tensor)


def has_values(tensor: Shaped[Tensor, "..."]) -> bool:
    """Whether there are values: not where a tensor is fake, on the device meta, or traced."""
    plain = type(tensor) is Tensor or type(tensor) is torch.nn.Parameter
    return plain and not tensor.is_meta and not compiling()


def is_finite(*tensors: Shaped[Tensor, "..."]) -> bool:
    """Whether there is neither NaN nor inf: one pass, no copy, as a sum shows both."""
    for tensor in tensors:
        wide = None if tensor.dtype == torch.float32 else widest(tensor)
        if not math.isfinite(tensor.sum(dtype=wide).item()):
            return False
    return True


def widest(*tensors: Shaped[Tensor, "..."]) -> torch.dtype:
    """The dtype of sums: float32, or wider where a tensor is."""
    found = torch.float32
    for tensor in tensors:
        found = torch.promote_types(found, tensor.dtype)
    return found


def widen(name: str, tensor: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
    """The same numbers in float32 or better; integers are refused by name."""
    check_floating(name, tensor)
    return tensor.to(widest(tensor))


def without_padding(
    rows: Float[Tensor, "*B S E"], allowed: Bool[Tensor, "..."]
) -> Float[Tensor, "*C S E"]:
    """Zeros in place of the rows that no query attends to: 0 * NaN = NaN would reach every sum.

    Nothing is copied where it can be seen that there is nothing to hide. ``allowed`` has the axes
    of the scores, (..., L, S), or that of the keys alone; heads may share their rows.
    """
    if may_read(rows) and is_finite(rows):
        return rows
    attended = allowed.any(dim=-2) if allowed.ndim > 1 else allowed  # (..., S)
    attended = attended.reshape((1,) * (rows.ndim - 1 - attended.ndim) + attended.shape)
    while attended.ndim > rows.ndim - 1:
        attended = attended.any(dim=0)
    for axis, size in enumerate(rows.shape[:-2]):
        if attended.shape[axis] not in (1, size):  # several heads or examples share these rows
            attended = attended.unflatten(axis, (size, -1)).any(dim=axis + 1)
    return torch.where(attended.unsqueeze(-1), rows, 0.0)


def default_scale(query: Float[Tensor, "*B L E"], scale: float | None) -> float:
    """1/sqrt(E) unless given, and 1 where E is 0."""
    return max(query.shape[-1], 1) ** -0.5 if scale is None else scale


def masked(
    scores: Float[Tensor, "*B L S"], attn_mask: Shaped[Tensor, "..."] | None
) -> Float[Tensor, "*B L S"]:
    """The scores with ``-inf`` where a boolean mask is False, or with a bias added."""
    if attn_mask is None:
        return scores
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(~attn_mask, -torch.inf)
    return scores + attn_mask
