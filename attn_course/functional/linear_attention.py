"""Attention without a table: feature maps, the running sum, and the delta rule that corrects it.

With :math:`\\phi(q) \\cdot \\phi(k)` in place of :math:`e^{q \\cdot k}` the sum over the keys can
be kept as one matrix, whatever the length. Masks say which keys are real, True = real.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

from attn_course._checks import (
    check_axes,
    check_device,
    check_dtype,
    check_floating,
    check_like,
    check_padding_mask,
    check_size,
    check_tensor,
)
from attn_course.functional.scaled_dot_product import AttentionFn


class LinearState(NamedTuple):
    """What linear attention remembers of all keys so far.

    Attributes:
        memory: :math:`S = \\sum_j \\phi(k_j) v_j^\\top`.
        total: :math:`z = \\sum_j \\phi(k_j)`.
    """

    memory: Float[Tensor, "B H F Ev"]
    total: Float[Tensor, "B H F"]


def elu_feature_map(x: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
    r"""Positive features: :math:`\phi(x) = \mathrm{elu}(x) + 1`, each entry by itself.

    Katharopoulos et al. (2020): :math:`x + 1` above 0, :math:`e^x` below.

    Args:
        x: Queries or keys.
    """
    check_floating("x", x)
    return F.elu(x) + 1


def performer_directions(
    num_features: int,
    head_dim: int,
    *,
    orthogonal: bool = True,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, "F E"]:
    """Random directions for :func:`performer_features`: normal, in orthogonal groups of E.

    Args:
        num_features: How many.
        head_dim: Their size, E.
        orthogonal: Groups of E directions at right angles, with the lengths of normal vectors:
            still unbiased, and less noise (Choromanski et al., 2021).
        generator: Where the numbers come from.
        dtype: Of the result.
        device: Of the result.

    Raises:
        ValueError: If a number is below 1.
    """
    if min(num_features, head_dim) < 1:
        raise ValueError(
            f"num_features, head_dim: expected at least 1, got {num_features}, {head_dim}"
        )
    groups = -(-num_features // head_dim)
    options: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
    drawn = torch.randn((groups, head_dim, head_dim), **options)
    if orthogonal:
        lengths = torch.randn((groups, head_dim, head_dim), **options).norm(dim=-1, keepdim=True)
        turned, scales = torch.linalg.qr(drawn)
        # without the signs of the diagonal, the first entries would all have the same sign
        drawn = (turned * scales.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).mT * lengths
    return drawn.flatten(0, 1)[:num_features]


def performer_features(
    x: Float[Tensor, "*B E"], directions: Float[Tensor, "F E"]
) -> Float[Tensor, "*B F"]:
    r"""Positive random features of the softmax kernel (FAVOR+).

    .. math:: \phi(x)_i = \frac{1}{\sqrt F} \exp\!\Big(\omega_i \cdot y - \frac{\lVert y
       \rVert^2}{2}\Big), \quad y = x / E^{1/4}, \qquad
       \mathrm{E}[\phi(q) \cdot \phi(k)] = e^{q \cdot k / \sqrt E}

    Choromanski et al. (2021), lemma 1. The mean over the directions is exact; the spread grows
    exponentially with the length of queries and keys. The exponent is at most
    :math:`\lVert \omega_i \rVert^2 / 2`, which float32 holds up to E of about 150.

    Args:
        x: Queries or keys.
        directions: :math:`\omega`, as :func:`performer_directions` draws them.

    Raises:
        ValueError: If sizes do not fit.
    """
    check_floating("x", x)
    check_axes("directions", directions, "F E")
    check_size("directions", directions, -1, x.shape[-1] if x.ndim else 0)
    if not len(directions):
        raise ValueError("directions: expected at least one, got none")
    scaled = x * x.shape[-1] ** -0.25
    exponents = scaled @ directions.to(x.dtype).mT - scaled.square().sum(-1, keepdim=True) / 2
    features: Tensor = exponents.exp() * directions.shape[0] ** -0.5
    return features


def linear_attention_parallel(
    query: Float[Tensor, "B H L F"],
    key: Float[Tensor, "B H S F"],
    value: Float[Tensor, "B H S Ev"],
    *,
    is_causal: bool = False,
    padding_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H L Ev"]:
    r"""Linear attention as a table of weights: the definition, with all L × S of them.

    .. math:: o_i = \frac{\sum_j \phi(q_i) \cdot \phi(k_j)\, v_j}{\sum_j \phi(q_i) \cdot \phi(k_j)}

    Args:
        query: Features of the queries, :math:`\phi(q)`.
        key: Features of the keys.
        value: What is mixed.
        is_causal: Query i sees the keys 0 to i.
        padding_mask: True = a real key.

    Returns:
        One row for each query, 0 where it may attend to nothing.

    Raises:
        ValueError: If sizes do not fit.
    """
    key = _real_features(query, key, value, is_causal, padding_mask)
    weights = query @ key.mT  # (B, H, L, S)
    weights = weights.tril() if is_causal else weights
    value = _without_padding(value, padding_mask)
    return _divided(weights @ value, weights.sum(-1, keepdim=True))


def linear_attention(
    query: Float[Tensor, "B H L F"],
    key: Float[Tensor, "B H S F"],
    value: Float[Tensor, "B H S Ev"],
    *,
    is_causal: bool = False,
    padding_mask: Bool[Tensor, "B S"] | None = None,
    chunk_size: int = 64,
) -> Float[Tensor, "B H L Ev"]:
    r"""Linear attention in time and memory that grow with the length, not with its square.

    .. math:: o_i = \frac{\phi(q_i)^\top S_i}{\phi(q_i) \cdot z_i}, \qquad
       S_i = \sum_{j \le i} \phi(k_j) v_j^\top, \quad z_i = \sum_{j \le i} \phi(k_j)

    Katharopoulos et al. (2020). Without ``is_causal`` the sums run over all
    keys. With it the sequence is cut into chunks: the table of weights is made inside a chunk only,
    what came before is in :math:`S`. The backward pass makes the sums anew, so that neither keeps a
    copy of :math:`S` for every position.

    Args:
        query: Features of the queries, such as :func:`elu_feature_map` of them.
        key: Features of the keys, not negative.
        value: What is mixed.
        is_causal: Query i sees the keys 0 to i.
        padding_mask: True = a real key.
        chunk_size: How many positions are taken together.

    Returns:
        One row for each query, 0 where it may attend to nothing.

    Raises:
        ValueError: If sizes do not fit.
    """
    key = _real_features(query, key, value, is_causal, padding_mask)
    if chunk_size < 1:
        raise ValueError(f"chunk_size: expected at least 1, got {chunk_size}")
    value = _without_padding(value, padding_mask)
    value = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)  # the last column counts
    if is_causal:
        mixed = _causal_product(query, key, value, chunk_size)
    else:
        mixed = query @ (key.mT @ value)
    return _divided(mixed[..., :-1], mixed[..., -1:])


def linear_attention_step(
    query: Float[Tensor, "B H F"],
    key: Float[Tensor, "B H F"],
    value: Float[Tensor, "B H Ev"],
    state: LinearState | None = None,
) -> tuple[Float[Tensor, "B H Ev"], LinearState]:
    r"""One step of linear attention as a recurrent network.

    .. math:: S_i = S_{i-1} + \phi(k_i) v_i^\top, \quad z_i = z_{i-1} + \phi(k_i), \quad
       o_i = \frac{\phi(q_i)^\top S_i}{\phi(q_i) \cdot z_i}

    Katharopoulos et al. (2020). The state has :math:`F (E_v + 1)` numbers per
    head, however long the text is.

    Args:
        query: Features of this position's query.
        key: Features of its key.
        value: Its value.
        state: After the position before; zeros if not given.

    Returns:
        The output, and the state after this position.

    Raises:
        ValueError: If sizes, dtypes or devices do not fit.
    """
    _check_step(query, key, value)
    if state is not None:
        check_like("state.memory", state.memory, (*key.shape, value.shape[-1]), query)
        check_like("state.total", state.total, key.shape, query)
    memory = key.unsqueeze(-1) * value.unsqueeze(-2)  # (B, H, F, Ev)
    total = key
    if state is not None:
        memory, total = state.memory + memory, state.total + total
    mixed = (query.unsqueeze(-2) @ memory).squeeze(-2)
    return _divided(mixed, (query * total).sum(-1, keepdim=True)), LinearState(memory, total)


def linear_attention_recurrent(
    query: Float[Tensor, "B H L F"],
    key: Float[Tensor, "B H L F"],
    value: Float[Tensor, "B H L Ev"],
    *,
    state: LinearState | None = None,
) -> tuple[Float[Tensor, "B H L Ev"], LinearState]:
    """Causal linear attention position by position: :func:`linear_attention_step` in a loop.

    Equal to :func:`linear_attention` with ``is_causal``. For writing text token by token; autograd
    would keep one state per position, so train with the other.

    Args:
        query: Features of the queries.
        key: Features of the keys.
        value: What is mixed.
        state: What came before; nothing if not given.

    Returns:
        One row for each position, and the last state.

    Raises:
        ValueError: If sizes do not fit or there is no position.
    """
    _real_features(query, key, value, True, None)
    if not query.shape[2]:
        raise ValueError("query: expected at least one position, got none")
    rows = []
    for q, k, v in zip(query.unbind(2), key.unbind(2), value.unbind(2), strict=True):
        row, state = linear_attention_step(q, k, v, state)
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
    """

    def attention(
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
        if scale is not None or dropout_p or enable_gqa:
            raise ValueError(
                "scale, dropout_p, enable_gqa: expected None, 0 and False for linear attention, "
                f"got {scale}, {dropout_p}, {enable_gqa}"
            )
        return linear_attention(
            feature_map(query),
            feature_map(key),
            value,
            is_causal=is_causal,
            padding_mask=_as_padding(attn_mask, key),
            chunk_size=chunk_size,
        )

    return attention


def delta_rule_step(
    query: Float[Tensor, "B H E"],
    key: Float[Tensor, "B H E"],
    value: Float[Tensor, "B H Ev"],
    beta: Float[Tensor, "B H"],
    state: Float[Tensor, "B H Ev E"] | None = None,
) -> tuple[Float[Tensor, "B H Ev"], Float[Tensor, "B H Ev E"]]:
    r"""One step of the delta rule: what is stored under a key is replaced, not added to.

    .. math:: S_t = S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top, \qquad o_t = S_t q_t

    Schlag et al. (2021). :math:`S_{t-1} k_t` is what the memory says for this key; the step
    moves it towards :math:`v_t` by the share :math:`\beta_t`, for a key of length 1.

    Args:
        query: This position's query.
        key: Its key; length 1 keeps the memory from growing.
        value: Its value.
        beta: How much is replaced, from 0 to 1.
        state: After the position before; zeros if not given.

    Returns:
        The output, and the state after this position.

    Raises:
        ValueError: If sizes, dtypes or devices do not fit.
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

    Args:
        query: Queries.
        key: Keys.
        value: Values.
        beta: How much each position replaces.
        state: What came before; zeros if not given.

    Returns:
        One row for each position, and the last state.

    Raises:
        ValueError: If sizes do not fit or there is no position.
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

    Raises:
        ValueError: If sizes do not fit.
    """
    _check_delta(query, key, value, beta, state)
    if chunk_size < 1:
        raise ValueError(f"chunk_size: expected at least 1, got {chunk_size}")
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
        # transposing the table turns the order of the sum round
        return (
            _CausalProduct.apply(grad, c, b, size, backwards) if ctx.needs_input_grad[0] else None,
            _CausalProduct.apply(c, grad, a, size, not backwards)
            if ctx.needs_input_grad[1]
            else None,
            _CausalProduct.apply(b, a, grad, size, not backwards)
            if ctx.needs_input_grad[2]
            else None,
            None,
            None,
        )


def _causal_product(a: Tensor, b: Tensor, c: Tensor, chunk_size: int) -> Tensor:
    product: Tensor = _CausalProduct.apply(a, b, c, chunk_size, False)
    return product


def _divided(mixed: Tensor, total: Tensor) -> Tensor:
    """By the sum of the weights; 0 where that is 0."""
    empty = total == 0
    return torch.where(empty, 0.0, mixed / torch.where(empty, 1.0, total))


def _real_features(
    query: Tensor, key: Tensor, value: Tensor, is_causal: bool, padding_mask: Tensor | None
) -> Tensor:
    """The keys with 0 in place of padding, after a look at the sizes."""
    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_floating(name, rows)
        check_axes(name, rows, "B H L F")
        for axis in (0, 1):
            check_size(name, rows, axis, query.shape[axis])
        check_dtype(name, rows, query)
        check_device(name, rows, query)
    check_size("key", key, -1, query.shape[-1])
    check_size("value", value, 2, key.shape[2])
    if is_causal:
        check_size("key", key, 2, query.shape[2])
    if padding_mask is not None:
        check_padding_mask(padding_mask, key.shape[0], key.shape[2], key)
    return _without_padding(key, padding_mask)


def _without_padding(rows: Tensor, padding_mask: Tensor | None) -> Tensor:
    return rows if padding_mask is None else torch.where(padding_mask[:, None, :, None], rows, 0.0)


def _as_padding(attn_mask: Tensor | None, key: Tensor) -> Tensor | None:
    """The padding mask in a mask of four axes."""
    if attn_mask is None:
        return None
    batch, length = key.shape[0], key.shape[2]
    fits = attn_mask.dtype == torch.bool and attn_mask.shape in (
        (batch, 1, 1, length),
        (1, 1, 1, length),
    )
    if not fits:
        raise ValueError(
            f"attn_mask: expected a boolean padding mask of shape {(batch, 1, 1, length)}, "
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
        _real_features(query, key, value, True, None)
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
