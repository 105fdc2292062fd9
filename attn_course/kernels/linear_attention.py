"""Causal linear attention in chunks, forward and backward, with a state in float32.

Tiled: the positions, ``BLOCK_L`` of them to a chunk. A first kernel walks over the chunks and
leaves what stood in the state *before* each of them; then every chunk is a program of its own. On
chip: the table of one chunk, and strips of its state.

All four results have one form. With the factors 1/n of the rows, D = dO · O and the sums before
(S, z) or behind (R, r) a chunk,

    O  = (tril(Q Kᵀ) V + Q S) / n                       n = rows of tril(Q Kᵀ) + Q z
    dQ = (tril(dO Vᵀ - D) K + dO Sᵀ - D z) / n
    dK = triu((V dOᵀ - Dᵀ) / nᵀ) Q + V Rᵀ - r           R = Σ q (dO / n)ᵀ,  r = Σ q D / n
    dV = triu(K Qᵀ / nᵀ) dO + K R

so that one kernel serves them all, and one other kernel both kinds of sums.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_course._checks import check_axes, check_floating
from attn_course.kernels._launch import (
    INTERPRETED,
    block,
    check_launch,
    precision,
    rows_contiguous,
)

INSTEAD = "attn_course.functional.linear_attention"
OUTPUT, QUERY, KEY, VALUE = 0, 1, 2, 3  # which of the four results


@no_type_check
@triton.jit
def linear_state_kernel(
    x_ptr, y_ptr, state_ptr, extra_ptr, inverse_ptr, mean_ptr,
    x_batch, x_head, x_row, y_batch, y_head, y_row, H, L, chunks,
    F: tl.constexpr, EV: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_F: tl.constexpr,
    BLOCK_EV: tl.constexpr, BACKWARDS: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """S and z of keys and values before each chunk; R and r of queries and gradients behind it."""
    f = tl.program_id(0) * BLOCK_F + tl.arange(0, BLOCK_F)
    ev = tl.program_id(1) * BLOCK_EV + tl.arange(0, BLOCK_EV)
    which = tl.program_id(2).to(tl.int64)
    batch, head = which // H, which % H
    x_ptr += batch * x_batch + head * x_head
    y_ptr += batch * y_batch + head * y_head
    state = tl.zeros([BLOCK_F, BLOCK_EV], tl.float32)
    extra = tl.zeros([BLOCK_F], tl.float32)
    for step in range(0, chunks):
        chunk = chunks - 1 - step if BACKWARDS else step
        place = which * chunks + chunk
        tl.store(
            state_ptr + (place * F + f)[:, None] * EV + ev[None, :],
            state,
            mask=(f < F)[:, None] & (ev < EV)[None, :],
        )
        tl.store(extra_ptr + place * F + f, extra, mask=(f < F) & (tl.program_id(1) == 0))
        row = chunk * BLOCK_L + tl.arange(0, BLOCK_L)
        at, inside = row.to(tl.int64), row < L
        x = tl.load(
            x_ptr + at[:, None] * x_row + f[None, :],
            mask=inside[:, None] & (f < F)[None, :],
            other=0.0,
        )  # [BLOCK_L, BLOCK_F]
        y = tl.load(
            y_ptr + at[:, None] * y_row + ev[None, :],
            mask=inside[:, None] & (ev < EV)[None, :],
            other=0.0,
        )  # [BLOCK_L, BLOCK_EV]
        if BACKWARDS:
            inverse = tl.load(inverse_ptr + which * L + at, mask=inside, other=0.0)
            mean = tl.load(mean_ptr + which * L + at, mask=inside, other=0.0)
            x = x.to(tl.float32) * inverse[:, None]
            extra += tl.sum(x * mean[:, None], axis=0)
        else:
            extra += tl.sum(x.to(tl.float32), axis=0)
        state = tl.dot(tl.trans(x.to(KIND)), y.to(KIND), state, input_precision=PRECISION)


@no_type_check
@triton.jit
def linear_chunk_kernel(
    a_ptr, b_ptr, c_ptr, state_ptr, extra_ptr, output_ptr, inverse_ptr, mean_ptr,
    a_batch, a_head, a_row, b_batch, b_head, b_row, c_batch, c_head, c_row,
    state_inner, state_outer, H, L, chunks,
    F: tl.constexpr, EV: tl.constexpr, INNER: tl.constexpr, OUTER: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_INNER: tl.constexpr, BLOCK_OUTER: tl.constexpr,
    RESULT: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One of the four results, for a chunk: the table of a and b, times c, and a times the state.

    RESULT: 0 for O, 1 for dQ, 2 for dK, 3 for dV.
    """
    chunk = tl.program_id(0).to(tl.int64)
    outer = tl.program_id(1) * BLOCK_OUTER + tl.arange(0, BLOCK_OUTER)
    which = tl.program_id(2).to(tl.int64)
    batch, head = which // H, which % H
    a_ptr += batch * a_batch + head * a_head
    b_ptr += batch * b_batch + head * b_head
    c_ptr += batch * c_batch + head * c_head
    state_ptr += (which * chunks + chunk) * F * EV
    extra_ptr += (which * chunks + chunk) * F
    row = chunk * BLOCK_L + tl.arange(0, BLOCK_L)  # [BLOCK_L], int64
    inside, out_there = row < L, outer < OUTER

    table = tl.zeros([BLOCK_L, BLOCK_L], tl.float32)
    output = tl.zeros([BLOCK_L, BLOCK_OUTER], tl.float32)
    total = tl.zeros([BLOCK_L], tl.float32)
    for start in range(0, INNER, BLOCK_INNER):
        inner = start + tl.arange(0, BLOCK_INNER)
        there = inside[:, None] & (inner < INNER)[None, :]
        a = tl.load(a_ptr + row[:, None] * a_row + inner[None, :], mask=there, other=0.0)
        b = tl.load(b_ptr + row[:, None] * b_row + inner[None, :], mask=there, other=0.0)
        table = tl.dot(a, tl.trans(b), table, input_precision=PRECISION)  # [BLOCK_L, BLOCK_L]
        state = tl.load(
            state_ptr + inner[:, None] * state_inner + outer[None, :] * state_outer,
            mask=(inner < INNER)[:, None] & out_there[None, :],
            other=0.0,
        )  # [BLOCK_INNER, BLOCK_OUTER]
        output = tl.dot(a.to(KIND), state.to(KIND), output, input_precision=PRECISION)
        if RESULT == 0:
            before = tl.load(extra_ptr + inner, mask=inner < INNER, other=0.0)
            total += tl.sum(a.to(tl.float32) * before[None, :], axis=1)

    if RESULT > 0:
        inverse = tl.load(inverse_ptr + which * L + row, mask=inside, other=0.0)
        mean = tl.load(mean_ptr + which * L + row, mask=inside, other=0.0)
    if RESULT == 1:
        table = table - mean[:, None]
    if RESULT == 2:
        table = (table - mean[None, :]) * inverse[None, :]
    if RESULT == 3:
        table = table * inverse[None, :]
    if RESULT < 2:  # queries look back, keys and values are looked at from behind
        table = tl.where(row[:, None] >= row[None, :], table, 0.0)
    else:
        table = tl.where(row[:, None] <= row[None, :], table, 0.0)
    c = tl.load(
        c_ptr + row[:, None] * c_row + outer[None, :],
        mask=inside[:, None] & out_there[None, :],
        other=0.0,
    )  # [BLOCK_L, BLOCK_OUTER]
    output = tl.dot(table.to(KIND), c.to(KIND), output, input_precision=PRECISION)

    if RESULT == 0:
        total += tl.sum(table, axis=1)
        # a row that may attend to nothing: 0, with gradient 0
        inverse = tl.where(total == 0.0, 0.0, 1.0 / tl.where(total == 0.0, 1.0, total))
        output = output * inverse[:, None]
        first = inside & (tl.program_id(1) == 0)
        tl.store(inverse_ptr + which * L + row, inverse, mask=first)
    if RESULT == 1:
        before = tl.load(extra_ptr + outer, mask=out_there, other=0.0)
        output = (output - mean[:, None] * before[None, :]) * inverse[:, None]
    if RESULT == 2:
        behind = tl.load(extra_ptr + outer, mask=out_there, other=0.0)
        output = output - behind[None, :]
    tl.store(
        output_ptr + (which * L + row)[:, None] * OUTER + outer[None, :],
        output.to(output_ptr.dtype.element_ty),
        mask=inside[:, None] & out_there[None, :],
    )


@no_type_check
@triton.jit
def linear_mean_kernel(
    output_ptr, grad_ptr, mean_ptr, grad_batch, grad_head, grad_row, H, L,
    EV: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_EV: tl.constexpr,
):  # fmt: skip
    """D: the product of output and gradient, a number for each row."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_L + tl.arange(0, BLOCK_L)
    ev = tl.arange(0, BLOCK_EV)
    which = tl.program_id(1).to(tl.int64)
    grad_ptr += which // H * grad_batch + which % H * grad_head
    inside = (row < L)[:, None] & (ev < EV)[None, :]
    output = tl.load(output_ptr + (which * L + row)[:, None] * EV + ev, mask=inside, other=0.0)
    grad = tl.load(grad_ptr + row[:, None] * grad_row + ev[None, :], mask=inside, other=0.0)
    mean = tl.sum(output.to(tl.float32) * grad.to(tl.float32), axis=1)
    tl.store(mean_ptr + which * L + row, mean, mask=row < L)


# what the second factor of a product with the state, or with a table, is made of: the sums of
# linear attention are no weights between 0 and 1 and leave the range of float16
KINDS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float32, torch.float32: tl.float32}


def tiles(dtype: torch.dtype, result: int | None = None) -> dict[str, int]:
    """The widest strip of a state, warps and pipeline stages, for the states or a result."""
    if INTERPRETED:
        return {"strip": 32}
    # without matrix instructions the table and its sums fill the registers
    warps = 8 if dtype == torch.float32 and result == OUTPUT else 4
    return {"strip": 64 if dtype == torch.bfloat16 else 32, "num_warps": warps, "num_stages": 2}


def _options(dtype: torch.dtype) -> dict[str, object]:
    exact = precision(dtype) if dtype == torch.float32 else "tf32"
    return {"KIND": KINDS[dtype], "PRECISION": exact}


def _states(
    x: Tensor,
    y: Tensor,
    chunk_size: int,
    inverse: Tensor | None = None,
    mean: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """S and z before each chunk, (B, H, chunks, F, Ev) and (B, H, chunks, F); R and r behind it."""
    (B, H, L, F), ev = x.shape, y.shape[-1]
    chunks = triton.cdiv(L, chunk_size)
    state = x.new_empty(B, H, chunks, F, ev, dtype=torch.float32)
    extra = x.new_empty(B, H, chunks, F, dtype=torch.float32)
    tile = tiles(x.dtype)
    strip = tile.pop("strip")
    block_f, block_ev = (min(strip, block(size, least=16)) for size in (F, ev))
    linear_state_kernel[(triton.cdiv(F, block_f), triton.cdiv(ev, block_ev), B * H)](
        x, y, state, extra, inverse, mean, *x.stride()[:3], *y.stride()[:3], H, L, chunks,
        F=F, EV=ev, BLOCK_L=chunk_size, BLOCK_F=block_f, BLOCK_EV=block_ev,
        BACKWARDS=inverse is not None, **_options(x.dtype), **tile,
    )  # fmt: skip
    return state, extra


def _chunks(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    sums: tuple[Tensor, Tensor],
    inverse: Tensor,
    mean: Tensor | None,
    chunk_size: int,
    result: int,
) -> Tensor:
    """One of the four results, (B, H, L, size of a row of c)."""
    (B, H, L, inner), outer = a.shape, c.shape[-1]
    state, extra = sums
    F, ev = state.shape[-2:]
    # dQ and dK take the state the other way round
    along = (1, ev) if result in (QUERY, KEY) else (ev, 1)
    output = c.new_empty(B, H, L, outer)
    tile = tiles(a.dtype, result)
    strip = tile.pop("strip")
    block_inner, block_outer = (min(strip, block(size, least=16)) for size in (inner, outer))
    linear_chunk_kernel[(triton.cdiv(L, chunk_size), triton.cdiv(outer, block_outer), B * H)](
        a, b, c, state, extra, output, inverse, mean,
        *a.stride()[:3], *b.stride()[:3], *c.stride()[:3], *along, H, L, state.shape[2],
        F=F, EV=ev, INNER=inner, OUTER=outer, BLOCK_L=chunk_size, BLOCK_INNER=block_inner,
        BLOCK_OUTER=block_outer, RESULT=result, **_options(a.dtype), **tile,
    )  # fmt: skip
    return output


@torch.library.custom_op("attn_course::causal_linear_attention", mutates_args=())
def _linear(query: Tensor, key: Tensor, value: Tensor, chunk_size: int) -> tuple[Tensor, Tensor]:
    check_launch(INSTEAD, query=query, key=key, value=value)
    query, key, value = (rows_contiguous(x) for x in (query, key, value))
    inverse = query.new_empty(query.shape[:3], dtype=torch.float32)
    if not inverse.numel():
        return value.new_empty(value.shape), inverse
    sums = _states(key, value, chunk_size)
    output = _chunks(query, key, value, sums, inverse, None, chunk_size, OUTPUT)
    return output, inverse


@torch.library.custom_op("attn_course::causal_linear_attention_backward", mutates_args=())
def _linear_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    inverse: Tensor,
    grad: Tensor,
    chunk_size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    check_launch(INSTEAD, query=query, key=key, value=value, grad=grad)
    query, key, value, grad = (rows_contiguous(x) for x in (query, key, value, grad))
    (B, H, L, _), ev = query.shape, value.shape[-1]
    if not inverse.numel():
        return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)
    mean = torch.empty_like(inverse)
    linear_mean_kernel[(triton.cdiv(L, chunk_size), B * H)](
        output, grad, mean, *grad.stride()[:3], H, L,
        EV=ev, BLOCK_L=chunk_size, BLOCK_EV=block(ev),
    )  # fmt: skip
    # made anew: kept from the forward pass they would be a state for every chunk of every layer
    before = _states(key, value, chunk_size)
    behind = _states(query, grad, chunk_size, inverse, mean)
    rows = inverse, mean, chunk_size
    return (
        _chunks(grad, value, key, before, *rows, QUERY),
        _chunks(value, grad, query, behind, *rows, KEY),
        _chunks(key, query, grad, behind, *rows, VALUE),
    )


@_linear.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, chunk_size: int) -> tuple[Tensor, Tensor]:
    return value.new_empty(value.shape), query.new_empty(query.shape[:3], dtype=torch.float32)


@_linear_backward.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    inverse: Tensor,
    grad: Tensor,
    chunk_size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


def _keep(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[Tensor, Tensor, Tensor, int],
    output: tuple[Tensor, Tensor],
) -> None:
    ctx.save_for_backward(*inputs[:3], *output)
    ctx.chunk_size = inputs[3]  # type: ignore[attr-defined]


def _gradient(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor, _: Tensor
) -> tuple[Tensor, Tensor, Tensor, None]:
    saved = ctx.saved_tensors  # type: ignore[attr-defined]  # torch's stub lacks it
    dquery, dkey, dvalue = _linear_backward(*saved, grad, ctx.chunk_size)  # type: ignore[attr-defined]
    return dquery, dkey, dvalue, None


_linear.register_autograd(_gradient, setup_context=_keep)


def causal_linear_attention(
    query: Tensor, key: Tensor, value: Tensor, *, chunk_size: int = 64
) -> Tensor:
    r"""Causal linear attention chunk by chunk, in time that grows with the length.

    .. math:: o_i = \frac{\phi(q_i)^\top S_i}{\phi(q_i) \cdot z_i}, \qquad
       S_i = \sum_{j \le i} \phi(k_j) v_j^\top, \quad z_i = \sum_{j \le i} \phi(k_j)

    Katharopoulos et al. (2020); as ``functional.linear_attention`` with ``is_causal``, but of
    features. Without a mask two matrix products do, and no kernel is needed.

    Args:
        query: ``(B, H, L, F)``, features of the queries, F at most 256; float16, bfloat16 or
            float32.
        key: ``(B, H, L, F)``, features of the keys, not negative.
        value: ``(B, H, L, Ev)``, Ev at most 256.
        chunk_size: How many positions are taken together, a power of two from 16 to 128. The result
            does not depend on it, but for rounding.

    Returns:
        One row for each query, in the dtype of the value, 0 where the weights sum to 0. States and
        sums are made in float32; their products are rounded as bfloat16 for bfloat16, to TF32 for
        float16 and not at all for float32 (unless torch allows TF32).

    Raises:
        ValueError: For sizes or dtypes that do not fit, and where no kernel runs.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_floating(name, tensor)
        check_axes(name, tensor, "B H L F")
        if not 1 <= tensor.shape[-1] <= 256:
            raise ValueError(f"{name}: expected a head size from 1 to 256, got {tensor.shape[-1]}")
    for name, tensor, size in (
        ("key", key, tuple(query.shape)),
        ("value", value, (*query.shape[:3], value.shape[-1])),
    ):
        if tuple(tensor.shape) != size:
            raise ValueError(f"{name}: expected shape {size}, got {tuple(tensor.shape)}")
    if chunk_size not in (16, 32, 64, 128):
        raise ValueError(f"chunk_size: expected 16, 32, 64 or 128, got {chunk_size}")
    output: Tensor
    output, _ = _linear(query, key, value, chunk_size)
    return output
