"""Scaled dot-product attention by torch's fused kernel, and where that is slow on a CPU.

Empty rows and padding are handled around the kernel, without a copy where values can be read.
Measured by ``benchmarks/attention.py`` on processors of two makers. torch's kernel takes grouped
heads one query row at a time, so that one step of decoding reads every key once for each of its
query heads; here the heads that share a key are the rows of one call. Products of half precision
are slow where the processor has no matrix instructions for them; there a head at a time is widened
to float32, and only the output is rounded.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from attn_course._checks import (
    check_attention,
    compiling,
    default_scale,
    is_finite,
    masked,
    may_read,
    widest,
    without_padding,
)

# queries that share their keys are folded into one product up to this many positions
FOLDED_POSITIONS = 16
# up to so many numbers (256 KiB in float32) all keys are widened at once, not a head at a time
SMALL_KEYS = 2**16
# keys widened at a time: with 8 heads of 128 elements, 1 MiB
WIDENED_KEYS = 256


def scaled_dot_product_attention(
    query: Float[Tensor, "*#B L E"],
    key: Float[Tensor, "*#C S E"],
    value: Float[Tensor, "*#C S Ev"],
    attn_mask: Shaped[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
) -> Float[Tensor, "*D L Ev"]:
    """The same by fused kernels."""
    shape = check_attention(query, key, value, attn_mask, is_causal, dropout_p, enable_gqa)
    length, keys = shape[-2:]
    if is_causal:
        if keys > length:  # top-left: no query attends to the keys after the last one
            key, value = key[..., :length, :], value[..., :length, :]
        if scale is not None and scale <= 0:
            # torch's kernel multiplies the scores that it has masked: 0 * -inf is NaN
            query, scale = (-query, -scale) if scale else (query * 0.0, 1.0)
    if enable_gqa or not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]:
        lead = (*shape[:-3], key.shape[-3]) if enable_gqa else shape[:-2]
        query = _expanded(query, shape[:-2])
        key, value = _expanded(key, lead), _expanded(value, lead)
    readable = may_read(query)
    options = (readable and not dropout_p, is_causal, scale, dropout_p, enable_gqa)
    if attn_mask is None:
        return _kernel(query, key, value, None, *options)
    is_bias = attn_mask.dtype != torch.bool
    if is_bias:
        attn_mask = attn_mask.to(widest(query))
    if readable and not dropout_p and not _tracked(query, key, value, attn_mask):
        output = _kernel(query, key, value, attn_mask, *options)
        # a row without keys and what is not finite in any key or value that counts show in it
        if is_finite(output):
            return output
    allowed = attn_mask != -torch.inf if is_bias else attn_mask
    # a softmax of nothing is 0/0: such a row attends to anything, and its output is replaced
    empty = ~allowed.any(dim=-1, keepdim=True)
    key, value = (without_padding(rows, allowed) for rows in (key, value))
    if readable and not empty.any():
        return _kernel(query, key, value, attn_mask, *options)
    attn_mask = attn_mask.masked_fill(empty, 0.0) if is_bias else attn_mask | empty
    return _kernel(query, key, value, attn_mask, *options).masked_fill(empty, 0.0)


def _tracked(*tensors: Tensor) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def _expanded(rows: Tensor, lead: tuple[int, ...]) -> Tensor:
    return rows if rows.shape[:-2] == lead else rows.expand(*lead, *rows.shape[-2:])


def _kernel(
    query: Float[Tensor, "*B L E"],
    key: Float[Tensor, "*C S E"],
    value: Float[Tensor, "*C S Ev"],
    attn_mask: Shaped[Tensor, "..."] | None,
    readable: bool,
    is_causal: bool,
    scale: float | None,
    dropout_p: float,
    enable_gqa: bool,
) -> Float[Tensor, "*B L Ev"]:
    """The fastest way that was found; no row is empty."""
    shape = query.shape
    length, groups = shape[-2], 1
    if readable and len(shape) == 4 and key.shape[2]:
        groups = shape[1] // key.shape[1] if key.shape[1] else 1
        if not is_causal and (length == 1 or (groups > 1 and length <= FOLDED_POSITIONS)):
            if attn_mask is not None:
                attn_mask = attn_mask[(None,) * (4 - attn_mask.ndim)]
            rows = query.reshape(*key.shape[:2], groups * length, shape[-1])
            mask = _folded(attn_mask, key.shape[1], groups, length)
            return _few_rows(rows, key, value, mask, scale).view(*shape[:3], value.shape[-1])
        if query.dtype in (torch.bfloat16, torch.float16):
            tracked = _tracked(query, key, value)
            if _is_slow(query.dtype, tracked):
                whole = tracked or key.numel() <= SMALL_KEYS
                return _widened(query, key, value, attn_mask, is_causal, scale, whole)
    return _fused(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _fused(*args: Any, **options: Any) -> Tensor:
    """Torch's function, whose kernels have no second derivative: that is said in our words."""
    output = F.scaled_dot_product_attention(*args, **options)
    if output.requires_grad and not compiling():
        node = output.grad_fn
        if node is not None and node.name().startswith("ScaledDotProduct"):
            node.register_hook(_refusing)
    return output


def _refusing(grads: tuple[Tensor | None, ...], _: Any) -> tuple[Tensor | None, ...] | None:
    """The gradients, which refuse to be differentiated; asked for by ``create_graph``."""
    if not torch.is_grad_enabled():
        return None
    return tuple(None if grad is None else _Last.apply(grad) for grad in grads)


class _Last(torch.autograd.Function):
    """A gradient that has none."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise ValueError(
            "scaled_dot_product_attention: expected a first derivative, got a second one, which "
            "the fused kernel has not: write scaled_dot_product_attention.__wrapped__ (of a module "
            "as attn_fn=...), or use torch.func"
        )


def _widened(
    query: Float[Tensor, "B Hq L E"],
    key: Float[Tensor, "B Hkv S E"],
    value: Float[Tensor, "B Hkv S Ev"],
    attn_mask: Shaped[Tensor, "..."] | None,
    is_causal: bool,
    scale: float | None,
    whole: bool,
) -> Float[Tensor, "B Hq L Ev"]:
    """Attention in float32, with everything or one head of one example widened at a time."""
    groups = query.shape[1] // key.shape[1]
    attend = partial(_fused, is_causal=is_causal, scale=scale, enable_gqa=groups > 1)
    if whole:
        return attend(query.float(), key.float(), value.float(), attn_mask).to(query.dtype)
    output = query.new_empty(*query.shape[:3], value.shape[-1])
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:2], *attn_mask.shape[-2:])
    for example in range(query.shape[0]):
        for head in range(key.shape[1]):
            # slices, as torch's fused kernel wants all four axes
            one = slice(example, example + 1)
            its = one, slice(head * groups, (head + 1) * groups)
            shared = one, slice(head, head + 1)
            mask = None if attn_mask is None else attn_mask[its]
            output[its] = attend(
                query[its].float(), key[shared].float(), value[shared].float(), mask
            )
    return output


def _folded(
    attn_mask: Shaped[Tensor, "#B #Hq #L #S"] | None, kv_heads: int, groups: int, length: int
) -> Shaped[Tensor, "#B #Hkv GL #S"] | None:
    """The mask of queries whose group is folded into their positions."""
    if attn_mask is None or groups == 1 or attn_mask.shape[1:3] == (1, 1):
        return attn_mask
    if attn_mask.shape[1] == 1:
        return attn_mask.repeat(1, 1, groups, 1)  # (B, 1, G L, S)
    spread = attn_mask.expand(-1, kv_heads * groups, length, -1)
    return spread.reshape(len(spread), kv_heads, groups * length, spread.shape[-1])


def _few_rows(
    query: Float[Tensor, "B H R E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S Ev"],
    attn_mask: Shaped[Tensor, "#B #H #R #S"] | None,
    scale: float | None,
) -> Float[Tensor, "B H R Ev"]:
    """Attention of a few query rows to many keys: bound by how fast keys and values are read."""
    dtype, plain = query.dtype, _has("_is_amx_tile_supported")
    if dtype == torch.float16 and not plain and _is_flat(key, value):
        return _widened_rows(query, key, value, attn_mask, default_scale(query, scale))
    # one row is a matrix-vector product, which torch computes slowly in bfloat16: make it two
    doubled = query.shape[-2] == 1 and dtype == torch.bfloat16 and not plain
    if doubled:
        query = query.expand(-1, -1, 2, -1)
    output = _fused(query, key, value, attn_mask, scale=scale)
    return output[:, :, :1] if doubled else output


def _widened_rows(
    query: Float[Tensor, "B H R E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S Ev"],
    attn_mask: Shaped[Tensor, "#B #H #R #S"] | None,
    scale: float,
) -> Float[Tensor, "B H R Ev"]:
    """The same in float32, with some hundred keys at a time widened to it."""
    thin = (query.float() * scale).mT  # (B, H, E, R)
    blocks = [block.float() @ thin for block in key.split(WIDENED_KEYS, dim=-2)]
    scores = masked(torch.cat(blocks, dim=-2).mT, attn_mask)  # (B, H, R, S)
    parts = zip(
        scores.softmax(dim=-1).split(WIDENED_KEYS, dim=-1),
        value.split(WIDENED_KEYS, dim=-2),
        strict=True,
    )
    output = torch.zeros(*query.shape[:3], value.shape[-1])
    for weights, block in parts:
        output += weights @ block.float()
    return output.to(query.dtype)


def _is_flat(*tensors: Shaped[Tensor, "_ _ _ _"]) -> bool:
    """Whether batch and heads are one axis in memory: a batched product copies them otherwise."""
    return all(
        (len(rows) == 1 or rows.stride(0) == rows.shape[1] * rows.stride(1))
        and rows.stride(-1) == 1
        for rows in tensors
    )


def _is_slow(dtype: torch.dtype, tracked: bool) -> bool:
    """Whether products of this type take longer than widening and products of float32."""
    if dtype == torch.bfloat16:
        wins = tracked or _has("_is_avx512_supported")  # with AVX2 forward alone is as fast
        return wins and not _has("_is_amx_tile_supported")
    return dtype == torch.float16 and not _has("_is_amx_fp16_supported")


def _has(feature: str) -> bool:
    """Whether torch says that this processor has a feature; True if it can't tell."""
    question = getattr(torch.cpu, feature, None)
    return question is None or question()
