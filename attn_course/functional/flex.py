"""FlexAttention behind the signature that every module takes."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attn_course._checks import check_axes
from attn_course.functional.scaled_dot_product import AttentionFn


def flex_attention_fn(
    *,
    mask_mod: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None = None,
    score_mod: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] | None = None,
) -> AttentionFn:
    r"""An attention function that computes masks and biases from positions and stores neither.

    .. math:: O = \mathrm{softmax}(\mathrm{mod}(s_{ij}, b, h, i, j))\, V

    The pattern is fixed here, as FlexAttention needs it to skip blocks; Dong et al. (2024). Without
    ``torch.compile`` around the result it is torch's plain and slow version.

    Args:
        mask_mod: ``(batch, head, query position, key position)`` to True = may attend.
        score_mod: ``(score, batch, head, query position, key position)`` to another score.

    Returns:
        A function with the signature :class:`AttentionFn`. ``is_causal`` is joined with
        ``mask_mod``; ``attn_mask`` and ``dropout_p`` are refused with ``ValueError``.

    Note:
        *Differs from torch*: the signature is that of ``scaled_dot_product_attention``.

    Example:
        >>> attend = flex_attention_fn(score_mod=lambda score, b, h, i, j: score - (i - j).abs())
        >>> x = torch.randn(1, 2, 128, 16)
        >>> attend(x, x, x).shape
        torch.Size([1, 2, 128, 16])
    """
    blocks = functools.lru_cache(maxsize=8)(functools.partial(_block_mask, mask_mod))
    return functools.partial(_flex, blocks=blocks, score_mod=score_mod)


def _causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


def _block_mask(
    mask_mod: Callable[..., Tensor] | None,
    is_causal: bool,
    length: int,
    keys: int,
    device: torch.device,
) -> Any:
    """FlexAttention's blocks of the pairs that count; None where all do."""
    from torch.nn.attention import flex_attention as flex  # a second of imports

    mods = [mod for mod, used in ((mask_mod, mask_mod), (_causal, is_causal)) if mod and used]
    if not mods:
        return None
    mod = flex.and_masks(*mods) if len(mods) > 1 else mods[0]
    return flex.create_block_mask(mod, None, None, length, keys, device=str(device))


def _flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    blocks: Callable[..., Any],
    score_mod: Callable[..., Tensor] | None,
) -> Tensor:
    from torch.nn.attention import flex_attention as flex

    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_axes(name, rows, "B H L E")
    if attn_mask is not None:
        raise ValueError("attn_mask: expected None, the mask_mod of flex_attention_fn stands")
    if dropout_p:
        raise ValueError(f"dropout_p: expected 0, FlexAttention has none, got {dropout_p}")
    block_mask = blocks(is_causal, query.shape[-2], key.shape[-2], query.device)
    return flex.flex_attention(
        query, key, value, score_mod, block_mask, scale=scale, enable_gqa=enable_gqa
    )
