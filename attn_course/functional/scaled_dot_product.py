"""Scaled dot-product attention with torch's signature, its weights, and blocks that can be joined.

Masks, everywhere: True = may attend, or a float bias that is added to the scores. A row that may
attend to nothing gives 0, forward and backward.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from attn_course._checks import (
    check_attention,
    check_tensor,
    default_scale,
    masked,
    widest,
    without_padding,
)
from attn_course.functional._fast import faster
from attn_course.functional._fast import scaled_dot_product as fast
from attn_course.functional.softmax import logsumexp
from attn_course.masks import causal_mask


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


@faster(fast.scaled_dot_product_attention)
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
        query: Queries; ``(B, H, L, E)`` for modules, any leading axes here.
        key: Keys.
        value: Values, one row per key.
        attn_mask: Boolean, True = may attend, or floating point, added to the scores. It broadcasts
            to the scores; two axes are ``(L, S)``, whatever the batch. A padding mask is written
            ``mask[:, None, None, :]``. A boolean mask for ``(B, H, L, E)`` has 2 or 4 axes: with 3,
            the first one could mean examples or heads.
        is_causal: Query i attends to keys 0 to i (top-left when L and S differ, as in torch).
        scale: Factor of the dot products; 1/sqrt(E) if not given.
        dropout_p: Chance that a weight is set to 0, the others growing by 1/(1 - p). Also in
            evaluation, as in torch: modules pass 0 there.
        enable_gqa: Query heads are a multiple of the key heads; query head h uses key head
            h // (Hq / Hkv).

    Returns:
        One row for each query. Keys and values that no query may attend to do not matter, NaN
        included, neither forward nor backward.

    Raises:
        ValueError: If ``attn_mask`` and ``is_causal`` are both given, or sizes, head counts,
            dtypes or devices do not fit; or, in a second derivative, if the fused kernel ran.

    Note:
        What runs is a fused kernel that agrees with this equation; the equation itself, which has
        second derivatives, is ``scaled_dot_product_attention.__wrapped__``. Transforms of
        ``torch.func`` (jvp, vmap, hessian) use it. *Differs from torch*: a row that may attend to
        nothing, or whose bias is all ``-inf``, is 0 with gradient 0; ``attn_mask`` with
        ``is_causal`` is an error on every device; NaN in padding stays there. For that last promise
        keys and values are copied where they hold NaN or inf behind a mask, and where values can't
        be read (compiled, exported, on a GPU) always, if there is a mask.

    Example:
        >>> query, key, value = torch.randn(2, 8, 5, 16), *torch.randn(2, 2, 2, 7, 16)
        >>> scaled_dot_product_attention(query, key, value, enable_gqa=True).shape
        torch.Size([2, 8, 5, 16])
    """
    q, k, v, mask = _inputs(query, key, value, attn_mask, is_causal, enable_gqa, dropout_p)
    scores = masked(q @ k.mT * default_scale(query, scale), mask)  # (B, Hq, L, S)
    weights = F.dropout(_softmax(scores), dropout_p)  # (B, Hq, L, S)
    return (weights @ v).to(query.dtype)  # (B, Hq, L, Ev)


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
    :func:`merge_attention`. All L × S scores are kept in memory. Arguments as of
    :func:`scaled_dot_product_attention`.

    Returns:
        Output, and its log-sum-exp (natural logarithm) in float32 or better, ``-inf`` where a query
        may attend to nothing. Both carry gradients.

    Example:
        >>> query, key, value = torch.randn(3, 2, 4, 7, 8)
        >>> output, lse = attention_with_lse(query, key, value)
        >>> output.shape, lse.shape
        (torch.Size([2, 4, 7, 8]), torch.Size([2, 4, 7]))
    """
    q, k, v, mask = _inputs(query, key, value, attn_mask, is_causal, enable_gqa)
    scores = masked(q @ k.mT * default_scale(query, scale), mask)  # (B, Hq, L, S)
    output = _softmax(scores) @ v  # (B, Hq, L, Ev)
    return output.to(query.dtype), logsumexp(scores).expand(output.shape[:-1])


def attention_weights(
    query: Float[Tensor, "*#B L E"],
    key: Float[Tensor, "*#C S E"],
    attn_mask: Shaped[Tensor, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "*D L S"]:
    r"""The weights alone, all L × S of them, which fused attention never keeps.

    .. math:: w = \mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{E}} + M\right)

    Arguments as of :func:`scaled_dot_product_attention`.

    Returns:
        Weights in the dtype of the query. A row sums to one, or is 0 if it may attend to nothing.

    Example:
        >>> query, key = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 7, 8)
        >>> attention_weights(query, key).shape
        torch.Size([2, 4, 3, 7])
    """
    q, k, _, mask = _inputs(query, key, key, attn_mask, is_causal, enable_gqa)
    scores = masked(q @ k.mT * default_scale(query, scale), mask)  # (B, Hq, L, S)
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
        outputs: One for each block of keys, at least one.
        lses: Their log-sum-exps, as :func:`attention_with_lse` gives them.

    Returns:
        Output and log-sum-exp of all keys together, 0 and ``-inf`` for a query that may attend to
        nothing in any block.

    Example:
        >>> query, key, value = torch.randn(3, 1, 2, 6, 4)
        >>> first = attention_with_lse(query, key[:, :, :4], value[:, :, :4])
        >>> second = attention_with_lse(query, key[:, :, 4:], value[:, :, 4:])
        >>> output, lse = merge_attention(*zip(first, second))
        >>> torch.allclose(output, scaled_dot_product_attention(query, key, value), atol=1e-6)
        True
    """
    _check_blocks(outputs, lses)
    stacked = torch.stack(tuple(lses))
    total = logsumexp(stacked, dim=0)
    # an empty row has weight exp(-inf - 0) = 0 in every block
    shares = torch.exp(stacked - total.masked_fill(total == -torch.inf, 0.0))  # (blocks, ..., L)
    pairs = zip(shares, outputs, strict=True)
    output = torch.stack([share.unsqueeze(-1) * part.to(share.dtype) for share, part in pairs])
    return output.sum(0).to(outputs[0].dtype), total


def _check_blocks(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> None:
    """Refuse blocks that do not fit each other."""
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


def _inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """All checked, in float32 or better: a key for each query head, 0 in padding, and one mask."""
    shape = check_attention(query, key, value, attn_mask, is_causal, dropout_p, enable_gqa)
    if is_causal:
        attn_mask = causal_mask(*shape[-2:], device=query.device)
    if attn_mask is not None:
        allowed = attn_mask if attn_mask.dtype == torch.bool else attn_mask != -torch.inf
        key, value = (without_padding(rows, allowed) for rows in (key, value))
    if enable_gqa and key.shape[-3] < shape[-3]:
        groups = shape[-3] // key.shape[-3]
        key, value = (rows.repeat_interleave(groups, dim=-3) for rows in (key, value))
    wide = widest(query)
    return query.to(wide), key.to(wide), value.to(wide), attn_mask


def _softmax(scores: Float[Tensor, "*D L S"]) -> Float[Tensor, "*D L S"]:
    """Softmax of the rows, 0 where a row holds nothing but ``-inf``."""
    empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return torch.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)


if TYPE_CHECKING:
    # mypy checks that these fit
    _TORCHS: AttentionFn = F.scaled_dot_product_attention
    _OURS: AttentionFn = scaled_dot_product_attention
