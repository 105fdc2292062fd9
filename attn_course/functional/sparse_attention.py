"""Attention under a pattern, tile by tile, without the scores of the pairs that it leaves out.

A pattern says which pairs count, and how they are covered by tiles: some queries, and the keys that
any of them attends to. What a tile contains beside the pattern is masked by the pattern itself, so
that its one definition decides here too. A pattern may need several parts, such as the keys of a
window and those at a stride; each is a softmax of its own, and :func:`merge_attention` joins them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from attn_course._calls import explained
from attn_course._checks import compiling, transformed, widest
from attn_course.functional._fast import second_order
from attn_course.functional._windows import check_heads, for_each_head, padding_alone
from attn_course.functional.patterns import Pattern, PatternPart, PatternTile, _positions
from attn_course.functional.scaled_dot_product import merge_attention, scaled_dot_product_attention


@explained
def sparse_attention(
    query: Float[Tensor, "B Hq L E"],
    key: Float[Tensor, "B Hkv L E"],
    value: Float[Tensor, "B Hkv L Ev"],
    attn_mask: Shaped[Tensor, "..."] | None = None,
    *,
    pattern: Pattern,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
) -> Float[Tensor, "B Hq L Ev"]:
    r"""Scaled dot-product attention to the keys that a pattern shows, and work for no others.

    .. math:: o_i = \sum_{j : m_{hij}} \frac{e^{q_i \cdot k_j / \sqrt E}}{\sum_{j' : m_{hij'}}
       e^{q_i \cdot k_{j'} / \sqrt E}}\, v_j

    The strided and the fixed pattern of Child et al. (2019), the blocks of Qiu et al. (2019), the
    random blocks, windows and global positions of Zaheer et al. (2020), and what is joined of them.
    The result is that of full attention under ``pattern.mask``. Time grows with the pattern's
    pairs; only the scores of one tile are kept at a time, and the backward pass computes them anew.

    Args:
        pattern: Made by the functions of this package and joined by ``|`` and ``&``; at least one
            of two joined by ``&`` must have tiles, and both of two joined by ``|``. All others as
            of :func:`sliding_window_attention`.

    Returns:
        One row for each query, 0 where all its keys are padding. Padding does not matter, NaN
        included.

    Raises:
        ValueError: If the pattern has no tiles, such as ``causal_pattern`` alone, is for other
            heads or examples, or if something is asked for that only a full mask can do.

    Note:
        For windows :func:`sliding_window_attention` is quicker, as its blocks need no mask.
        Second derivatives and transforms such as vmap use full attention under the mask.
        *Differs from torch*: queries and keys are the same positions.

    Example:
        >>> query, key, value = torch.randn(3, 1, 2, 64, 8)
        >>> pattern = window_pattern(window_size=5) | strided_pattern(stride=8)
        >>> sparse_attention(query, key, value, pattern=pattern).shape
        torch.Size([1, 2, 64, 8])
    """
    check_heads(query, key, value, dropout_p, enable_gqa, what="a pattern")
    parts = _parts(pattern, query)
    key, value = for_each_head(key, query), for_each_head(value, query)
    real = padding_alone(attn_mask, query, "the pattern")
    scale = float(query.shape[-1]) ** -0.5 if scale is None else scale
    if real is not None:
        hidden = ~real[:, None, :, None]
        key, value = key.masked_fill(hidden, 0.0), value.masked_fill(hidden, 0.0)
    if not query.numel() or not value.numel():
        return query.new_zeros(*query.shape[:3], value.shape[-1]) + 0 * query.sum()
    what = _What(pattern, real, is_causal, scale)
    if transformed():
        return _equation(what, query, key, value)
    if compiling():
        return _forward(query, key, value, parts, what)[0].to(query.dtype)
    return _Sparse.apply(query, key, value, parts, what)


def _parts(pattern: Pattern, query: Tensor) -> Sequence[PatternPart]:
    """The parts of a pattern for these queries."""
    if not hasattr(pattern, "mask_mod"):
        raise ValueError(
            "pattern: expected a Pattern such as strided_pattern(stride=2), "
            f"got {type(pattern).__name__}"
        )
    if pattern.parts is None:
        raise ValueError(
            "pattern: expected one that is made of tiles, got one that is not, such as "
            "causal_pattern() alone: use scaled_dot_product_attention with pattern.mask(length)"
        )
    for name, wanted, size in (("heads", pattern.heads, 1), ("batch", pattern.batch, 0)):
        if wanted not in (1, query.shape[size]):
            raise ValueError(f"pattern: expected 1 or {query.shape[size]} for {name}, got {wanted}")
    return pattern.parts(query.shape[2])


class _What(NamedTuple):
    """What is asked beside rows: the pattern, padding, causal or not, scale."""

    pattern: Pattern
    real: Bool[Tensor, "B L"] | None
    is_causal: bool
    scale: float


def _equation(what: _What, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same by full attention under the mask."""
    mask = what.pattern.mask(query.shape[2], device=query.device)
    mask = mask.tril() if what.is_causal else mask
    mask = mask if what.real is None else mask & what.real[:, None, None]
    attend = scaled_dot_product_attention.__wrapped__  # type: ignore[attr-defined]
    return attend(query, key, value, mask, scale=what.scale)


def _shown(
    part: PatternPart, tile: PatternTile, what: _What, device: torch.device
) -> Bool[Tensor, "*D Q K"]:
    """Which pairs of a tile count."""
    b = torch.arange(what.pattern.batch, device=device)[:, None, None, None]
    h = torch.arange(what.pattern.heads, device=device)[:, None, None]
    if what.pattern.heads > 1:
        h = h[tile.heads]
    i, j = _positions(tile.queries, device)[:, None], _positions(tile.keys, device)
    shown = part.mask_mod(b, h, i, j)
    if what.is_causal:
        shown = shown & (j <= i)
    if what.real is not None:
        shown = shown & what.real[:, None, None, tile.keys]
    return shown


def _scores(
    query: Tensor, key: Tensor, part: PatternPart, tile: PatternTile, what: _What
) -> tuple[Float[Tensor, "B h Q K"], Float[Tensor, "B h Q E"], Float[Tensor, "B h K E"]]:
    """Scores of a tile, ``-inf`` where a pair does not count, and its queries and keys."""
    wide = widest(query)
    q = query[:, tile.heads, tile.queries].to(wide)
    k = key[:, tile.heads, tile.keys].to(wide)
    shown = _shown(part, tile, what, query.device)
    scores = (q @ k.mT * what.scale).masked_fill(~shown, -torch.inf)
    return scores, q, k


def _forward(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    parts: Sequence[PatternPart],
    what: _What,
) -> tuple[Float[Tensor, "B H L Ev"], Float[Tensor, "B H L"]]:
    """Output and log-sum-exp in the dtype of the sums."""
    wide = widest(query)
    whole: tuple[Tensor, Tensor] | None = None
    for part in parts:
        output = torch.zeros_like(value, dtype=wide)
        lse = torch.zeros_like(output[..., 0]) - torch.inf
        for tile in part.tiles():
            scores, _, _ = _scores(query, key, part, tile, what)
            v = value[:, tile.heads, tile.keys].to(wide)
            top = scores.amax(-1, keepdim=True)
            weights = (scores - top.masked_fill(top == -torch.inf, 0.0)).exp()
            total = weights.sum(-1, keepdim=True)
            empty = total == 0
            total = total.masked_fill(empty, 1.0)
            output[:, tile.heads, tile.queries] = weights @ v / total
            found = (top.masked_fill(empty, 0.0) + total.log()).masked_fill(empty, -torch.inf)
            lse[:, tile.heads, tile.queries] = found[..., 0]
        if whole is None:
            whole = output, lse
        else:
            whole = merge_attention((whole[0], output), (whole[1], lse))
    assert whole is not None
    return whole


class _Sparse(torch.autograd.Function):
    """Keeps inputs, output and log-sum-exp; the backward pass computes each tile again."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        parts: Sequence[PatternPart],
        what: _What,
    ) -> Tensor:
        output, lse = _forward(query, key, value, parts, what)
        output = output.to(query.dtype)
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.parts, ctx.what = parts, what
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            equation = partial(_equation, ctx.what)
            return (*second_order(equation, ctx.saved_tensors[:3], grad), None, None)
        query, key, value, output, lse = ctx.saved_tensors
        wide, scale = lse.dtype, ctx.what.scale
        # sums over tiles: rounded once
        grads = [torch.zeros_like(rows, dtype=wide) for rows in (query, key, value)]
        along = (grad.to(wide) * output.to(wide)).sum(-1, keepdim=True)
        # parts share the log-sum-exp of all: their weights and gradients add up
        divisor = lse.masked_fill(lse == -torch.inf, torch.inf)[..., None]
        for part in ctx.parts:
            for tile in part.tiles():
                rows = (slice(None), tile.heads, tile.queries)
                columns = (slice(None), tile.heads, tile.keys)
                scores, q, k = _scores(query, key, part, tile, ctx.what)
                weights = (scores - divisor[rows]).exp()
                g, v = grad[rows].to(wide), value[columns].to(wide)
                slope = weights * (g @ v.mT - along[rows]) * scale
                grads[0][rows] += slope @ k
                grads[1][columns] += slope.mT @ q
                grads[2][columns] += weights.mT @ g
        return (*(one.to(query.dtype) for one in grads), None, None)
