r"""Attention without a table: the running sum, and the delta rule that corrects it.

With :math:`\phi(q) \cdot \phi(k)` in place of :math:`e^{q \cdot k}` the sum over the keys can
be kept as one matrix, whatever the length. Masks say which keys are real, True = real.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attn_course._checks import (
    check_at_least,
    check_axes,
    check_device,
    check_dtype,
    check_floating,
    check_like,
    check_same_heads,
    check_size,
    check_tensor,
)
from attn_course.functional._fast import faster
from attn_course.functional._fast import linear_attention as fast
from attn_course.functional._fast.linear_attention import divided, linear_inputs
from attn_course.functional.feature_maps import elu_feature_map
from attn_course.functional.scaled_dot_product import AttentionFn


class LinearState(NamedTuple):
    r"""What linear attention remembers of all keys so far.

    Attributes:
        memory: :math:`S = \sum_j \phi(k_j) v_j^\top`.
        total: :math:`z = \sum_j \phi(k_j)`.
    """

    memory: Float[Tensor, "B H F Ev"]
    total: Float[Tensor, "B H F"]


def linear_attention_parallel(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S Ev"],
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_feature_map,
    is_causal: bool = False,
    padding_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L Ev"]:
    r"""Linear attention as a table of weights: the definition, with all L × S of them.

    .. math:: o_i = \frac{\sum_j \phi(q_i) \cdot \phi(k_j)\, v_j}{\sum_j \phi(q_i) \cdot \phi(k_j)}

    Arguments, result and errors as of :func:`linear_attention`.

    Example:
        >>> one, value = torch.ones(1, 1, 2, 1), torch.tensor([[[[2.0], [4.0]]]])
        >>> linear_attention_parallel(one, one, value, is_causal=True).flatten()
        tensor([2., 3.])
    """
    q, k, v = linear_inputs(query, key, value, feature_map, is_causal, padding_mask)
    weights = q @ k.mT  # (B, H, L, S)
    weights = weights.tril() if is_causal else weights
    return divided(weights @ v, weights.sum(-1, keepdim=True))  # (B, H, L, Ev)


@faster(fast.linear_attention)
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
    r"""Linear attention in time and memory that grow with the length, not with its square.

    .. math:: o_i = \frac{\phi(q_i)^\top S_i}{\phi(q_i) \cdot z_i}, \qquad
       S_i = \sum_{j \le i} \phi(k_j) v_j^\top, \quad z_i = \sum_{j \le i} \phi(k_j)

    Katharopoulos et al. (2020). Without ``is_causal`` the sums run over all keys. What runs cuts a
    causal sequence into chunks: the table of weights is made inside a chunk only, what came before
    is in :math:`S`, and no copy of :math:`S` is kept for every position.

    Args:
        query, key, value: One row for each position.
        feature_map: :math:`\phi`, of queries and of keys, not negative.
        is_causal: Query i attends to keys 0 to i.
        padding_mask: True = a real key.
        chunk_size: How many positions are taken together; the result does not depend on it.

    Returns:
        One row for each query, 0 where it may attend to nothing.

    Example:
        >>> query, key, value = torch.randn(3, 2, 4, 9, 8)
        >>> linear_attention(query, key, value, is_causal=True).shape
        torch.Size([2, 4, 9, 8])
    """
    q, k, v = linear_inputs(query, key, value, feature_map, is_causal, padding_mask)
    pairs = k.unsqueeze(-1) * v.unsqueeze(-2)  # (B, H, S, F, Ev)
    if is_causal:
        memory, total = pairs.cumsum(2), k.cumsum(2)  # S_i and z_i of every position
    else:
        memory, total = pairs.sum(2, keepdim=True), k.sum(2, keepdim=True)
    mixed = (q.unsqueeze(-2) @ memory).squeeze(-2)  # (B, H, L, Ev)
    return divided(mixed, (q * total).sum(-1, keepdim=True))


def linear_attention_step(
    query: Float[Tensor, "B H E"],
    key: Float[Tensor, "B H E"],
    value: Float[Tensor, "B H Ev"],
    state: LinearState | None = None,
    *,
    feature_map: Callable[[Tensor], Tensor] = elu_feature_map,
) -> tuple[Float[Tensor, "B H Ev"], LinearState]:
    r"""One step of linear attention as a recurrent network.

    .. math:: S_i = S_{i-1} + \phi(k_i) v_i^\top, \quad z_i = z_{i-1} + \phi(k_i), \quad
       o_i = \frac{\phi(q_i)^\top S_i}{\phi(q_i) \cdot z_i}

    Katharopoulos et al. (2020). The state has :math:`F (E_v + 1)` numbers per
    head, however long the text is.

    Args:
        query: This position's query.
        key: Its key.
        value: Its value.
        state: After the position before; zeros if not given.
        feature_map: :math:`\phi`, of query and key.

    Returns:
        The output, and the state after this position.

    Example:
        >>> query, key, value = torch.randn(3, 2, 4, 8)
        >>> output, state = linear_attention_step(query, key, value)
        >>> output, state = linear_attention_step(query, key, value, state)
        >>> output.shape
        torch.Size([2, 4, 8])
    """
    _check_step(query, key, value)
    q, k = feature_map(query), feature_map(key)  # (B, H, F)
    memory, total = k.unsqueeze(-1) * value.unsqueeze(-2), k  # (B, H, F, Ev), (B, H, F)
    if state is not None:
        check_like("state.memory", state.memory, memory.shape, query)
        check_like("state.total", state.total, total.shape, query)
        memory, total = state.memory + memory, state.total + total
    mixed = (q.unsqueeze(-2) @ memory).squeeze(-2)  # (B, H, Ev)
    return divided(mixed, (q * total).sum(-1, keepdim=True)), LinearState(memory, total)


def linear_attention_recurrent(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    *,
    state: LinearState | None = None,
    feature_map: Callable[[Tensor], Tensor] = elu_feature_map,
) -> tuple[Float[Tensor, "B H L Ev"], LinearState]:
    """Causal linear attention position by position: :func:`linear_attention_step` in a loop.

    Equal to :func:`linear_attention` with ``is_causal``. For writing text token by token; autograd
    would keep one state per position, so train with the other. Arguments and errors as of
    :func:`linear_attention_step`, with an axis of at least one position.

    Returns:
        One row for each position, and the last state.

    Example:
        >>> query, key, value = torch.randn(3, 2, 4, 9, 8)
        >>> output, state = linear_attention_recurrent(query, key, value)
        >>> output.shape, state.memory.shape, state.total.shape
        (torch.Size([2, 4, 9, 8]), torch.Size([2, 4, 8, 8]), torch.Size([2, 4, 8]))
    """
    _check_rows(query, key, value)
    rows = []
    for q, k, v in zip(query.unbind(2), key.unbind(2), value.unbind(2), strict=True):
        row, state = linear_attention_step(q, k, v, state, feature_map=feature_map)
        rows.append(row)
    assert state is not None
    return torch.stack(rows, dim=2), state


def linear_attention_fn(
    feature_map: Callable[[Tensor], Tensor] = elu_feature_map, *, chunk_size: int = 64
) -> AttentionFn:
    """Linear attention with torch's signature, for any module that takes an ``attn_fn``.

    Args:
        feature_map: Of queries and keys.
        chunk_size: As for :func:`linear_attention`.

    Returns:
        A function that takes queries and keys, and raises ``ValueError`` for a mask that is no
        padding mask (B, 1, 1, S), for a scale, for dropout and for grouped heads.

    Example:
        >>> from attn_course.nn import MultiHeadAttention
        >>> layer = MultiHeadAttention(embed_dim=8, num_heads=2, attn_fn=linear_attention_fn())
        >>> layer(torch.randn(1, 5, 8), is_causal=True).shape
        torch.Size([1, 5, 8])
    """

    return functools.partial(_as_torch, feature_map=feature_map, chunk_size=chunk_size)


def delta_rule_step(
    query: Float[Tensor, "B H E"],
    key: Float[Tensor, "B H E"],
    value: Float[Tensor, "B H Ev"],
    beta: Float[Tensor, "B H"],
    state: Float[Tensor, "B H Ev E"] | None = None,
) -> tuple[Float[Tensor, "B H Ev"], Float[Tensor, "B H Ev E"]]:
    r"""One step of the delta rule: what is stored under a key is replaced, not added to.

    .. math:: S_t = S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top, \qquad o_t = S_t q_t

    Schlag et al. (2021). :math:`S_{t-1} k_t` is what the memory says for this key; the step moves
    it towards :math:`v_t` by the share :math:`\beta_t`, for a key of length 1. Arguments, result
    and errors as of :func:`delta_rule`, for one position.

    Example:
        >>> one, value = torch.ones(1, 1, 1), torch.full((1, 1, 1), 3.0)
        >>> delta_rule_step(one, one, value, torch.ones(1, 1))[0].item()
        3.0
    """
    _check_delta(query, key, value, beta, state)
    if state is None:
        state = value.new_zeros(*value.shape, key.shape[-1])
    said = (state @ key.unsqueeze(-1)).squeeze(-1)  # (B, H, Ev)
    change = beta.unsqueeze(-1) * (value - said)
    state = state + change.unsqueeze(-1) * key.unsqueeze(-2)
    return (state @ query.unsqueeze(-1)).squeeze(-1), state


def delta_rule_recurrent(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    beta: Float[Tensor, "B H L"],
    *,
    state: Float[Tensor, "B H Ev E"] | None = None,
) -> tuple[Float[Tensor, "B H L Ev"], Float[Tensor, "B H Ev E"]]:
    """The delta rule position by position: :func:`delta_rule_step` in a loop.

    Arguments, result and errors as of :func:`delta_rule`; there must be a position.

    Example:
        >>> one, value = torch.ones(1, 1, 2, 1), torch.tensor([[[[3.0], [5.0]]]])
        >>> delta_rule_recurrent(one, one, value, torch.tensor([[[1.0, 0.5]]]))[0].flatten()
        tensor([3., 4.])
    """
    _check_delta(query, key, value, beta, state)
    if not query.shape[2]:
        raise ValueError("query: expected at least one position, got none")
    rows = []
    for t in range(query.shape[2]):
        row, state = delta_rule_step(
            query[:, :, t], key[:, :, t], value[:, :, t], beta[:, :, t], state
        )
        rows.append(row)
    assert state is not None
    return torch.stack(rows, dim=2), state


def delta_rule(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    beta: Float[Tensor, "B H L"],
    *,
    state: Float[Tensor, "B H Ev E"] | None = None,
    chunk_size: int = 64,
) -> tuple[Float[Tensor, "B H L Ev"], Float[Tensor, "B H Ev E"]]:
    r"""The delta rule chunk by chunk: a few matrix products in place of one step per position.

    .. math:: \big(I + \mathrm{tril}(\mathrm{diag}(\beta) K K^\top, -1)\big)\, U =
       \mathrm{diag}(\beta)\,(V - K S_0^\top), \qquad
       O = Q S_0^\top + \mathrm{tril}(Q K^\top)\, U, \qquad S = S_0 + U^\top K

    Yang et al. (2024): the product of the factors :math:`I - \beta k k^\top` in the WY form.
    Row t of :math:`U` is the change that position t makes; each depends on the ones before it in
    its chunk, which is a triangular system. Equal to :func:`delta_rule_recurrent`; autograd keeps
    one state per chunk.

    Args:
        query: Queries.
        key: Keys; length 1 keeps the memory from growing.
        value: Values.
        beta: How much each position replaces, from 0 to 1.
        state: What came before, :math:`S_0`; zeros if not given.
        chunk_size: How many positions are taken together.

    Returns:
        One row for each position, and the last state.

    Example:
        >>> from torch.nn.functional import normalize
        >>> query, key, value = torch.randn(3, 1, 2, 9, 4)
        >>> output, state = delta_rule(query, normalize(key, dim=-1), value, torch.rand(1, 2, 9))
        >>> output.shape, state.shape
        (torch.Size([1, 2, 9, 4]), torch.Size([1, 2, 4, 4]))
    """
    _check_delta(query, key, value, beta, state)
    check_at_least(1, chunk_size=chunk_size)
    if state is None:
        state = value.new_zeros(*value.shape[:2], value.shape[-1], key.shape[-1])
    rows = []
    for q, k, v, b in zip(
        *(part.split(chunk_size, dim=2) for part in (query, key, value, beta)), strict=True
    ):
        scaled = b.unsqueeze(-1) * k  # (B, H, C, E)
        system = scaled @ k.mT  # only what is below the diagonal counts
        right = b.unsqueeze(-1) * v - scaled @ state.mT
        change = torch.linalg.solve_triangular(
            system, right, upper=False, unitriangular=True
        )  # U, (B, H, C, Ev)
        rows.append(q @ state.mT + (q @ k.mT).tril() @ change)
        state = state + change.mT @ k
    return torch.cat(rows, dim=2) if rows else value, state


def _as_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    **kwargs: Any,
) -> Tensor:
    """Linear attention with torch's signature."""
    if scale is not None or dropout_p or enable_gqa:
        raise ValueError(
            "scale, dropout_p, enable_gqa: expected None, 0 and False for linear attention, "
            f"got {scale}, {dropout_p}, {enable_gqa}"
        )
    padding = _as_padding(attn_mask, key)
    return linear_attention(query, key, value, is_causal=is_causal, padding_mask=padding, **kwargs)


def _check_rows(query: Tensor, key: Tensor, value: Tensor) -> None:
    """The rows of several positions, at least one."""
    check_same_heads(query, key, value)
    check_size("key", key, 2, query.shape[2])
    if not query.shape[2]:
        raise ValueError("query: expected at least one position, got none")


def _as_padding(attn_mask: Tensor | None, key: Tensor) -> Tensor | None:
    """The padding mask in a mask of four axes."""
    if attn_mask is None:
        return None
    batch, length = key.shape[0], key.shape[2]
    padding = (batch, 1, 1, length)
    if attn_mask.dtype != torch.bool or attn_mask.shape not in (padding, (1, *padding[1:])):
        raise ValueError(
            f"attn_mask: expected a boolean padding mask of shape {padding}, "
            f"got {attn_mask.dtype} of shape {tuple(attn_mask.shape)}"
        )
    return attn_mask[:, 0, 0].expand(batch, length)


def _check_step(query: Tensor, key: Tensor, value: Tensor) -> None:
    """The rows of one position."""
    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_floating(name, rows)
        check_axes(name, rows, "B H F")
    check_like("key", key, query.shape, query)
    check_like("value", value, (*query.shape[:2], value.shape[-1]), query)


def _check_delta(
    query: Tensor, key: Tensor, value: Tensor, beta: Tensor, state: Tensor | None
) -> None:
    check_tensor("query", query)
    if query.ndim == 3:
        _check_step(query, key, value)
    else:
        check_same_heads(query, key, value)
        check_size("key", key, 2, query.shape[2])
    if state is not None:
        shape = (*query.shape[:2], value.shape[-1], query.shape[-1])
        check_like("state", state, shape, query)
    check_floating("beta", beta)
    check_dtype("beta", beta, query)
    check_device("beta", beta, query)
    if beta.shape != query.shape[:-1]:
        raise ValueError(
            f"beta: expected shape {tuple(query.shape[:-1])}, one per position, "
            f"got {tuple(beta.shape)}"
        )
