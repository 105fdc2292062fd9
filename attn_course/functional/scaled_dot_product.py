"""Scaled dot-product attention with torch's signature, its weights, and blocks that can be joined.

Masks, everywhere: True = may attend, or a float bias that is added to the scores. A row that may
attend to nothing gives 0, forward and backward.
"""

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from attn_course._checks import (
    check_broadcast,
    check_device,
    check_expands,
    check_floating,
    check_size,
    check_tensor,
    compiling,
)
from attn_course.functional._cpu_attention import cpu_attention
from attn_course.functional.softmax import logsumexp


@runtime_checkable
class AttentionFn(Protocol):
    """What attention is to a module: the signature of torch's own function.

    ``torch.nn.functional.scaled_dot_product_attention`` fits as it is, and so does ours. Windows
    and patterns come by ``functools.partial``, FlexAttention by :func:`flex_attention_fn`. An
    implementation raises ``ValueError`` for what it can't do.
    """

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        scale: float | None = None,
        dropout_p: float = 0.0,
        enable_gqa: bool = False,
    ) -> Tensor:
        """The output, one row for each query."""


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
    r"""Mix the values by the softmax of the scaled dot products of queries and keys.

    .. math:: O = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{E}} + M\right) V

    Vaswani et al. (2017), equation 1; :math:`E` is their :math:`d_k`. :math:`M` is 0 where a query
    may attend and :math:`-\infty` elsewhere, or any bias. Scores are summed in float32 or better
    and never rounded to half precision.

    Args:
        query: What is looked for; ``(B, H, L, E)`` for modules, any leading axes here.
        key: What it is compared with.
        value: What is mixed, one row per key.
        attn_mask: Boolean, True = may attend, or floating point, added to the scores. At least two
            axes, ``(L, S)``; it broadcasts to the scores. A boolean mask for ``(B, H, L, E)`` has
            2 or 4 axes: with 3, nobody knows whether the first one means examples or heads. A
            padding mask is written ``mask[:, None, None, :]``.
        is_causal: Query i attends to keys 0 to i (top-left when L and S differ, as in torch).
        scale: What the dot products are multiplied with; 1/sqrt(E) if not given.
        dropout_p: Chance that a weight is set to 0, the others growing by 1/(1 - p). Also in
            evaluation, as in torch: modules pass 0 there.
        enable_gqa: Query heads are a multiple of the key heads; head h looks at key head
            h // (Hq / Hkv).

    Returns:
        One row for each query. Keys and values that no query may attend to do not matter, NaN
        included, neither forward nor backward.

    Raises:
        ValueError: If ``attn_mask`` and ``is_causal`` are both given, or sizes, head counts,
            dtypes or devices do not fit.

    Note:
        *Differs from torch*: a row that may attend to nothing, or whose bias is all ``-inf``, is 0
        with gradient 0 (in torch that depends on version and device); ``attn_mask`` with
        ``is_causal`` is an error on every device; NaN in padding stays there. Keys and values are
        copied for that last promise only where they do hold NaN or inf behind a mask; where values
        can't be looked at (compiled, exported, vmapped, on a GPU) always, if there is a mask.
    """
    shape = _scores_shape(query, key, value, enable_gqa)
    _check_mask(attn_mask, shape, query, is_causal)
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p: expected a chance from 0 to 1, got {dropout_p}")
    if is_causal and key.shape[-2] > query.shape[-2]:
        # top-left: nobody attends to the keys behind the last query
        key, value = key[..., : query.shape[-2], :], value[..., : query.shape[-2], :]

    may_look = _may_look(query)
    empty, allowed = None, None
    if attn_mask is not None:
        allowed = _allowed(attn_mask)
        empty = ~allowed.any(dim=-1, keepdim=True)
        if may_look and not empty.any():
            empty = None
    fused = functools.partial(
        _fused,
        lead=shape[:-2],
        attn_mask=attn_mask,
        empty=empty,
        is_causal=is_causal,
        scale=scale,
        dropout_p=dropout_p,
        enable_gqa=enable_gqa,
    )
    if allowed is None:
        return fused(query, key, value)
    if may_look and (dropout_p or _tracked(query, key, value, attn_mask)):
        if _finite(key, value):
            return fused(query, key, value)
    elif may_look:
        # NaN or inf in any key or value that counts shows in the output
        output = fused(query, key, value)
        if _finite(output):
            return output
    return fused(query, _without_padding(key, allowed), _without_padding(value, allowed))


def attention_with_lse(
    query: Float[Tensor, "*#B L E"],
    key: Float[Tensor, "*#C S E"],
    value: Float[Tensor, "*#C S Ev"],
    attn_mask: Shaped[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Float[Tensor, "*D L Ev"], Float[Tensor, "*D L"]]:
    r"""Attention, and the logarithm of what its softmax divides by.

    .. math:: \mathrm{lse}_i = \log \sum_j e^{s_{ij}}, \qquad
       s = \frac{Q K^\top}{\sqrt{E}} + M

    With it, attention to one block of keys can be joined with attention to others, see
    :func:`merge_attention`. The scores are held in memory, all L × S of them.

    Args:
        query: What is looked for.
        key: What it is compared with.
        value: What is mixed, one row per key.
        attn_mask: As for :func:`scaled_dot_product_attention`.
        is_causal: Query i attends to keys 0 to i.
        scale: What the dot products are multiplied with; 1/sqrt(E) if not given.
        enable_gqa: Query heads are a multiple of the key heads.

    Returns:
        Output, and its log-sum-exp (natural logarithm) in float32 or better, ``-inf`` where a query
        may attend to nothing. Both carry gradients.

    Raises:
        ValueError: As :func:`scaled_dot_product_attention`.
    """
    scores, value = _scores(query, key, value, attn_mask, is_causal, scale, enable_gqa)
    rows = _fold(_softmax(scores), value, enable_gqa) @ value.to(scores.dtype)
    return _unfold(rows, query, enable_gqa).to(query.dtype), logsumexp(scores)


def attention_weights(
    query: Float[Tensor, "*#B L E"],
    key: Float[Tensor, "*#C S E"],
    attn_mask: Shaped[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "*D L S"]:
    r"""The weights alone, to look at: all L × S of them, which attention itself never keeps.

    .. math:: w = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{E}} + M\right)

    Args:
        query: What is looked for.
        key: What it is compared with.
        attn_mask: As for :func:`scaled_dot_product_attention`.
        is_causal: Query i attends to keys 0 to i.
        scale: What the dot products are multiplied with; 1/sqrt(E) if not given.
        enable_gqa: Query heads are a multiple of the key heads.

    Returns:
        Weights in the dtype of the query. A row sums to one, or is 0 if it may attend to nothing.

    Raises:
        ValueError: As :func:`scaled_dot_product_attention`.
    """
    scores, _ = _scores(query, key, key, attn_mask, is_causal, scale, enable_gqa)
    return _softmax(scores).to(query.dtype)


def merge_attention(
    outputs: Sequence[Float[Tensor, "*B L Ev"]], lses: Sequence[Float[Tensor, "*B L"]]
) -> tuple[Float[Tensor, "*B L Ev"], Float[Tensor, "*B L"]]:
    r"""Join attention to several blocks of keys into attention to all of them.

    .. math:: \mathrm{lse} = \log \sum_b e^{\mathrm{lse}_b}, \qquad
       o = \sum_b e^{\mathrm{lse}_b - \mathrm{lse}}\, o_b

    Exact, whatever the blocks and their order; no exponent is above 0. The rule behind tiles,
    split keys and rings: Milakov and Gimelshein (2018), Dao et al. (2022).

    Args:
        outputs: One for each block of keys.
        lses: Their log-sum-exps, as :func:`attention_with_lse` gives them.

    Returns:
        Output and log-sum-exp of all keys together, 0 and ``-inf`` for a query that may attend to
        nothing in any block.

    Raises:
        ValueError: If there is no block, their numbers differ, or their shapes do.
    """
    if len(outputs) != len(lses) or not len(outputs):
        raise ValueError(
            f"lses: expected one for each output, at least one, got {len(lses)} for {len(outputs)}"
        )
    for number, (output, lse) in enumerate(zip(outputs, lses, strict=True)):
        check_tensor(f"outputs[{number}]", output)
        check_tensor(f"lses[{number}]", lse)
        if output.shape != outputs[0].shape:
            raise ValueError(
                f"outputs[{number}]: expected shape {tuple(outputs[0].shape)}, "
                f"got {tuple(output.shape)}"
            )
        if lse.shape != output.shape[:-1]:
            raise ValueError(
                f"lses[{number}]: expected shape {tuple(output.shape[:-1])}, got {tuple(lse.shape)}"
            )
    stacked = torch.stack(tuple(lses))
    total = logsumexp(stacked, dim=0)
    # an empty row has weight exp(-inf - 0) = 0 in every block
    shares = torch.exp(stacked - total.masked_fill(total == -torch.inf, 0.0))  # (blocks, ..., L)
    output = torch.stack(
        [
            share.unsqueeze(-1) * part.to(share.dtype)
            for share, part in zip(shares, outputs, strict=True)
        ]
    ).sum(0)
    return output.to(outputs[0].dtype), total


def _scores_shape(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple[int, ...]:
    """The shape of the scores, after a look at everything but the mask."""
    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_tensor(name, rows)
        check_floating(name, rows)
        check_device(name, rows, query)
        if rows.dtype != query.dtype:
            raise ValueError(f"{name}: expected {query.dtype} as the query, got {rows.dtype}")
        if rows.ndim < 2 + enable_gqa:
            axes = "(Hkv, S, E)" if enable_gqa else "(S, E)"
            raise ValueError(f"{name}: expected at least axes {axes}, got {tuple(rows.shape)}")
    check_size("key", key, -1, query.shape[-1])
    check_size("value", value, -2, key.shape[-2])
    if not enable_gqa:
        both = query.shape[-3:-2] + key.shape[-3:-2]
        if len(both) == 2 and 1 not in both and both[0] != both[1]:
            raise ValueError(
                f"key: expected {query.shape[-3]} heads on axis -3, got {key.shape[-3]} "
                "(fewer heads than the query need enable_gqa=True)"
            )
        check_broadcast("key", key.shape[:-2], query.shape[:-2])
        check_broadcast("value", value.shape[:-2], key.shape[:-2])
        check_broadcast("value", value.shape[:-2], query.shape[:-2])
        lead = _broadcast(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        return (*lead, query.shape[-2], key.shape[-2])
    heads, kv_heads = query.shape[-3], key.shape[-3]
    if not kv_heads or heads % kv_heads:
        raise ValueError(
            f"key: expected a number of heads (axis -3) that divides the query's {heads}, "
            f"got {kv_heads}"
        )
    check_size("value", value, -3, kv_heads)
    check_broadcast("key", key.shape[:-3], query.shape[:-3])
    check_broadcast("value", value.shape[:-3], key.shape[:-3])
    check_broadcast("value", value.shape[:-3], query.shape[:-3])
    lead = _broadcast(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    return (*lead, heads, query.shape[-2], key.shape[-2])


def _broadcast(*shapes: torch.Size) -> tuple[int, ...]:
    """Their common shape; asking torch takes longer than all other checks together."""
    return shapes[0] if shapes.count(shapes[0]) == len(shapes) else torch.broadcast_shapes(*shapes)


def _check_mask(
    attn_mask: Tensor | None, shape: tuple[int, ...], query: Tensor, is_causal: bool
) -> None:
    """Refuse a mask of another type, one that does not fit, and one that may mean two things."""
    if attn_mask is None:
        return
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
    got = tuple(attn_mask.shape)
    if len(got) < 2:
        raise ValueError(f"attn_mask: expected at least axes (L, S), got {got}")
    if attn_mask.dtype == torch.bool and len(got) == 3 and len(shape) == 4:
        raise ValueError(
            f"attn_mask: expected axes (L, S) or (B, H, L, S), got {got}: write mask[:, None] for "
            "one mask per example, mask[None] for one per head"
        )
    if len(shape) > 2 and got == (shape[0], shape[-1]) and got[0] not in (1, shape[-2]):
        raise ValueError(
            f"attn_mask: expected axes (L, S) that broadcast to {shape}, got {got}: "
            "write a padding mask as mask[:, None, None, :]"
        )
    check_expands("attn_mask", got, shape)
    check_device("attn_mask", attn_mask, query)


def _allowed(attn_mask: Tensor) -> Bool[Tensor, "..."]:
    """Where a query may attend at all."""
    return attn_mask if attn_mask.dtype == torch.bool else attn_mask != -torch.inf


def _without_padding(
    rows: Float[Tensor, "*B S E"], allowed: Bool[Tensor, "..."]
) -> Float[Tensor, "*C S E"]:
    """Zeros in place of the rows that no query attends to: 0 * NaN = NaN would reach every sum."""
    attended = allowed.any(dim=-2)  # (..., Hq, S)
    if rows.ndim > 2 and attended.ndim > 1 and attended.shape[-2] not in (1, rows.shape[-3]):
        # (..., Hkv, S): any query head of the group may attend; one key head serves all without gqa
        attended = attended.unflatten(-2, (rows.shape[-3], -1)).any(dim=-2)
    return torch.where(attended.unsqueeze(-1), rows, 0.0)


def _tracked(*tensors: Tensor | None) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _finite(*tensors: Tensor) -> bool:
    """Whether there is neither NaN nor inf: one pass, no copy, as a sum shows both."""
    wide = torch.promote_types(tensors[0].dtype, torch.float32)
    return all(math.isfinite(t.sum(dtype=wide).item()) for t in tensors)


def _may_look(query: Tensor) -> bool:
    """Whether values may decide: not while compiling, and not where the processor would wait."""
    return query.device.type == "cpu" and not compiling()


def _scores(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> tuple[Float[Tensor, "*D L S"], Tensor]:
    """Masked scores in float32 or better, and the values that may be mixed by their softmax."""
    shape = _scores_shape(query, key, value, enable_gqa)
    _check_mask(attn_mask, shape, query, is_causal)
    if is_causal:
        attn_mask = torch.ones(shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and not (_may_look(query) and _finite(key, value)):
        allowed = _allowed(attn_mask)
        key, value = (_without_padding(rows, allowed) for rows in (key, value))
    dtype = torch.promote_types(query.dtype, torch.float32)
    rows = _fold(query.to(dtype) * _scale(query, scale), key, enable_gqa)
    scores = _unfold(rows @ key.to(dtype).mT, query, enable_gqa).expand(shape)
    if attn_mask is None:
        return scores, value
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(~attn_mask, -torch.inf), value
    return scores + attn_mask.to(dtype), value


def _fold(rows: Tensor, key: Tensor, enable_gqa: bool) -> Tensor:
    """Query heads of one group below each other, so that no key is copied: (..., Hkv, G L, S)."""
    if not enable_gqa:
        return rows
    folded: Tensor = rows.unflatten(-3, (key.shape[-3], -1))
    return folded.flatten(-3, -2)


def _unfold(rows: Tensor, query: Tensor, enable_gqa: bool) -> Tensor:
    """The inverse: (..., Hq, L, S)."""
    if not enable_gqa:
        return rows
    length = query.shape[-2]
    groups = query.shape[-3] // rows.shape[-3]
    unfolded: Tensor = rows.unflatten(-2, (groups, length))
    return unfolded.flatten(-4, -3)


def _softmax(scores: Float[Tensor, "*D L S"]) -> Float[Tensor, "*D L S"]:
    """Softmax of the rows, 0 where a row holds nothing but ``-inf``."""
    empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return torch.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)


def _scale(query: Tensor, scale: float | None) -> float:
    if scale is not None:
        return scale
    return float(query.shape[-1]) ** -0.5 if query.shape[-1] else 1.0


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lead: tuple[int, ...],
    attn_mask: Tensor | None,
    empty: Tensor | None,
    is_causal: bool,
    scale: float | None,
    dropout_p: float,
    enable_gqa: bool,
) -> Tensor:
    """torch's own attention, or a quicker way on a CPU, and 0 for the empty rows."""
    grouped = (*lead[:-1], key.shape[-3]) if enable_gqa else lead
    if is_causal and scale is not None and scale <= 0:
        # torch's kernel multiplies the scores that it has hidden: 0 * -inf is NaN
        query, scale = (-query, -scale) if scale else (query * 0.0, 1.0)
    query = query if query.shape[:-2] == lead else query.expand(*lead, *query.shape[-2:])
    key, value = (
        rows if rows.shape[:-2] == grouped else rows.expand(*grouped, *rows.shape[-2:])
        for rows in (key, value)
    )
    if attn_mask is not None:
        if attn_mask.dtype != torch.bool:
            attn_mask = attn_mask.to(torch.promote_types(query.dtype, torch.float32))
        if empty is not None:
            # any open row will do: a softmax of nothing is 0/0, and its output is replaced below
            is_bias = attn_mask.is_floating_point()
            attn_mask = attn_mask.masked_fill(empty, 0.0) if is_bias else attn_mask | empty
    if _may_look(query) and query.ndim == 4 and key.shape[-2] and not dropout_p:
        if attn_mask is not None:
            attn_mask = attn_mask[(None,) * (4 - attn_mask.ndim)]
        output = cpu_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=_scale(query, scale)
        )
    else:
        output = F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    return output if empty is None else output.masked_fill(empty, 0.0)


if TYPE_CHECKING:
    # mypy holds the promise that these fit
    _TORCHS: AttentionFn = F.scaled_dot_product_attention
    _OURS: AttentionFn = scaled_dot_product_attention
