"""Attention tile by tile in plain torch: what a fused kernel does, at a size that can be read.

Forward, a tile of queries walks over the keys with a running maximum, a running sum and a running
output; backward, the weights are made again from the log-sum-exp. No L × S table exists at any
time. It is not faster than torch's own function: it is the algorithm, and it runs everywhere.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course._checks import check_at_least, check_same_heads, forward_mode, widest


def tiled_attention(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B G S E"],
    value: Float[Tensor, "B G S Ev"],
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    query_tile: int = 64,
    key_tile: int = 64,
) -> tuple[Float[Tensor, "B H L Ev"], Float[Tensor, "B H L"]]:
    r"""Attention with an online softmax, and its log-sum-exp.

    For every tile :math:`b` of keys, with scores :math:`S_b`:

    .. math::
       m' = \max(m, \max_j S_{bj}), \qquad
       \ell' = e^{m - m'} \ell + \sum_j e^{S_{bj} - m'}, \qquad
       O' = e^{m - m'} O + e^{S_b - m'} V_b

    and at the end :math:`O / \ell` and :math:`m + \log \ell`. Milakov and Gimelshein (2018); Dao et
    al. (2022), algorithm 1, with the loop over queries outside as in Dao (2023). The rest as of
    :func:`scaled_dot_product_attention`.

    Args:
        is_causal: Query i attends to keys 0 to i; tiles above the diagonal are skipped.
        query_tile: Queries of a tile.
        key_tile: Keys of a tile. The result does not depend on either beyond rounding.

    Returns:
        Output in the dtype of the query, 0 for a query without keys; log-sum-exp in float32 or
        better, ``-inf`` there. Both carry gradients.

    Example:
        >>> query, key, value = torch.randn(3, 1, 2, 100, 8)
        >>> output, lse = tiled_attention(query, key, value, is_causal=True)
        >>> output.shape, lse.shape
        (torch.Size([1, 2, 100, 8]), torch.Size([1, 2, 100]))
    """
    check_same_heads(query, key, value, enable_gqa=enable_gqa)
    check_at_least(1, query_tile=query_tile, key_tile=key_tile)
    heads, kv_heads = query.shape[1], key.shape[1]
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    grouped = query.unflatten(1, (kv_heads, heads // kv_heads))  # (B, G, H / G, L, E)
    # forward mode goes through the operations themselves
    run = _Tiled.forward if forward_mode() else _Tiled.apply
    output, lse = run(
        grouped, key[:, :, None], value[:, :, None], is_causal, scale, query_tile, key_tile
    )
    return output.flatten(1, 2), lse.flatten(1, 2)


def _tiles(size: int, tile: int) -> list[slice]:
    return [slice(start, min(start + tile, size)) for start in range(0, size, tile)]


def _scores(
    query: Tensor, key: Tensor, rows: slice, columns: slice, is_causal: bool, scale: float
) -> Tensor:
    """One tile of scores, in float32 or better, forbidden pairs at -inf."""
    dtype = widest(query)
    scores = query.to(dtype) @ key.to(dtype).mT * scale
    if is_causal and columns.stop - 1 > rows.start:  # only tiles on the diagonal need a mask
        row = torch.arange(rows.start, rows.stop, device=query.device)
        column = torch.arange(columns.start, columns.stop, device=query.device)
        scores = scores.masked_fill(column > row[:, None], -math.inf)
    return scores


def _visited(rows: slice, columns: slice, is_causal: bool) -> bool:
    return not is_causal or columns.start < rows.stop


class _Tiled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        is_causal: bool,
        scale: float,
        query_tile: int,
        key_tile: int,
    ) -> tuple[Tensor, Tensor]:
        dtype = widest(query)
        outputs, lses = [], []
        for rows in _tiles(query.shape[-2], query_tile) or [slice(0, 0)]:
            q = query[..., rows, :]
            output = q.new_zeros(*q.shape[:-1], value.shape[-1], dtype=dtype)
            top = torch.full_like(q[..., 0], -math.inf, dtype=dtype)
            total = torch.zeros_like(top)
            for columns in _tiles(key.shape[-2], key_tile):
                if not _visited(rows, columns, is_causal):
                    continue
                scores = _scores(q, key[..., columns, :], rows, columns, is_causal, scale)
                new = torch.maximum(top, scores.amax(-1))
                shift = torch.where(new == -math.inf, 0.0, new)
                parts = (scores - shift[..., None]).exp()
                rescale = (top - shift).exp()
                total = total * rescale + parts.sum(-1)
                output = output * rescale[..., None] + parts @ value[..., columns, :].to(dtype)
                top = new
            whole = torch.where(total == 0, 1.0, total)
            outputs.append(output / whole[..., None])
            lses.append(torch.where(total == 0, -math.inf, top + whole.log()))
        return torch.cat(outputs, -2).to(query.dtype), torch.cat(lses, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[:3], *output)
        ctx.options = inputs[3:]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, lse = ctx.saved_tensors
        is_causal, scale, query_tile, key_tile = ctx.options
        found = _tiled_gradients(
            query, key, value, output, lse, grads[0], grads[1],
            is_causal, scale, query_tile, key_tile,
        )  # fmt: skip
        dquery, dkey, dvalue = (x.to(query.dtype) for x in found)
        return dquery, dkey, dvalue, None, None, None, None


def _tiled_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    grad: Tensor,
    lse_grad: Tensor,
    is_causal: bool,
    scale: float,
    query_tile: int = 64,
    key_tile: int = 64,
) -> tuple[Tensor, Tensor, Tensor]:
    """What these keys and values add to the gradients, in the dtype of the log-sum-exp.

    Output and log-sum-exp may be those over *more* keys: a weight is e to the score minus the
    log-sum-exp whatever else is in the sum, so the parts of a ring add up. Axes are (B, G, H / G,
    L, E) for what belongs to queries and (B, G, 1, S, E) for keys and values.
    """
    dtype = lse.dtype
    # D of Dao et al.; the log-sum-exp's own gradient reaches a score by its weight
    delta = (grad.to(dtype) * output.to(dtype)).sum(-1) - lse_grad
    shift = torch.where(lse == -math.inf, math.inf, lse)
    queries = []
    key_tiles = _tiles(key.shape[-2], key_tile)
    keys: list[Any] = [0.0 for _ in key_tiles]
    values: list[Any] = [0.0 for _ in key_tiles]
    for rows in _tiles(query.shape[-2], query_tile) or [slice(0, 0)]:
        q, g = query[..., rows, :], grad[..., rows, :].to(dtype)
        dquery = torch.zeros_like(q, dtype=dtype)
        for number, columns in enumerate(key_tiles):
            if not _visited(rows, columns, is_causal):
                continue
            k, v = key[..., columns, :], value[..., columns, :].to(dtype)
            scores = _scores(q, k, rows, columns, is_causal, scale)
            weights = (scores - shift[..., rows, None]).exp()
            dscores = weights * (g @ v.mT - delta[..., rows, None]) * scale
            dquery = dquery + dscores @ k.to(dtype)
            # heads that share a key add up
            keys[number] = keys[number] + (dscores.mT @ q.to(dtype)).sum(-3, True)
            values[number] = values[number] + (weights.mT @ g).sum(-3, True)
        queries.append(dquery)
    dkey = _joined(keys, key_tiles, torch.zeros_like(key, dtype=dtype))
    dvalue = _joined(values, key_tiles, torch.zeros_like(value, dtype=dtype))
    return torch.cat(queries, -2), dkey, dvalue


def _joined(parts: list[Any], tiles: list[slice], like: Tensor) -> Tensor:
    """Tiles of a gradient in one piece; what no query attends to has 0."""
    found = [
        part.to(like.dtype) if isinstance(part, Tensor) else like[..., tile, :]
        for part, tile in zip(parts, tiles, strict=True)
    ]
    return torch.cat(found, -2) if found else like
