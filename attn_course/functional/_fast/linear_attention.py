"""Linear attention chunk by chunk: a table of weights inside a chunk, a running sum between them.

The backward pass makes the sums again, so that neither pass keeps one for every position.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import FunctionCtx

from attn_course._checks import check_at_least, check_padding_mask, check_same_heads
from attn_course.functional.feature_maps import elu_feature_map


def linear_attention(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S Ev"],
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_feature_map,
    is_causal: bool = False,
    padding_mask: Bool[Tensor, "B S"] | None = None,
    chunk_size: int = 64,
) -> Float[Tensor, "B H L Ev"]:
    """The same; see :func:`attn_course.functional.linear_attention`."""
    check_at_least(1, chunk_size=chunk_size)
    q, k, v = linear_inputs(query, key, value, feature_map, is_causal, padding_mask)
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)  # the last column counts
    mixed = _causal_product(q, k, v, chunk_size) if is_causal else q @ (k.mT @ v)
    return divided(mixed[..., :-1], mixed[..., -1:])


def linear_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    feature_map: Callable[[Tensor], Tensor],
    is_causal: bool,
    padding_mask: Tensor | None,
) -> tuple[Float[Tensor, "B H L F"], Float[Tensor, "B H S F"], Float[Tensor, "B H S Ev"]]:
    """Features of queries and keys, and the values, all checked, with 0 in padding."""
    check_same_heads(query, key, value)
    if is_causal and key.shape[2] != query.shape[2]:
        raise ValueError(
            f"key: expected {query.shape[2]} positions as the query with is_causal, "
            f"got {key.shape[2]}"
        )
    if padding_mask is None:
        return feature_map(query), feature_map(key), value
    check_padding_mask(padding_mask, key.shape[0], key.shape[2], key)
    real = padding_mask[:, None, :, None]  # (B, 1, S, 1)
    features = feature_map(torch.where(real, key, 0.0))
    return feature_map(query), torch.where(real, features, 0.0), torch.where(real, value, 0.0)


def divided(mixed: Tensor, total: Tensor) -> Tensor:
    """By the sum of the weights; 0 where that is 0."""
    empty = total == 0
    return torch.where(empty, 0.0, mixed / torch.where(empty, 1.0, total))


class _CausalProduct(torch.autograd.Function):
    """Row i is the sum over j <= i of (a_i . b_j) c_j. Its gradients are such products as well."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, c: Tensor, chunk_size: int, backwards: bool) -> Tensor:
        output = c.new_empty(*a.shape[:-1], c.shape[-1])
        memory = c.new_zeros(*a.shape[:-2], b.shape[-1], c.shape[-1])
        starts = range(0, a.shape[-2], chunk_size)
        for start in reversed(starts) if backwards else starts:
            part = slice(start, start + chunk_size)
            x, y, z = a[..., part, :], b[..., part, :], c[..., part, :]
            table = x @ y.mT
            table = table.triu() if backwards else table.tril()
            output[..., part, :] = table @ z + x @ memory
            memory = memory + y.mT @ z
        return output

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b, c, chunk_size, backwards = inputs
        ctx.save_for_backward(a, b, c)
        ctx.options = (chunk_size, backwards)  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (a, b, c), (size, backwards) = grads, ctx.saved_tensors, ctx.options
        product, needed = _CausalProduct.apply, ctx.needs_input_grad
        # transposing the table turns the order of the sum round
        da = product(grad, c, b, size, backwards) if needed[0] else None
        db = product(c, grad, a, size, not backwards) if needed[1] else None
        dc = product(b, a, grad, size, not backwards) if needed[2] else None
        return da, db, dc, None, None


def _causal_product(a: Tensor, b: Tensor, c: Tensor, chunk_size: int) -> Tensor:
    return _CausalProduct.apply(a, b, c, chunk_size, False)
