"""Linear attention whose memory forgets by a gate."""

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course._checks import check_at_least, check_like, check_same_heads, check_size


def gated_linear_attention(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    log_gate: Float[Tensor, "B H L G"],
    *,
    state: Float[Tensor, "B H Ev E"] | None = None,
    chunk_size: int = 16,
) -> tuple[Float[Tensor, "B H L Ev"], Float[Tensor, "B H Ev E"]]:
    r"""Causal linear attention with a gate on its memory, chunk by chunk.

    .. math:: S_t = S_{t-1}\,\mathrm{diag}(\alpha_t) + v_t k_t^\top, \quad o_t = S_t q_t, \qquad
       o_t = \sum_{s \le t} \Big(\sum_e q_{te} k_{se} \prod_{r=s+1}^{t} \alpha_{re}\Big) v_s

    One gate for each dimension of the keys is gated linear attention (Yang et al., 2024); one gate
    for each head is the recurrence of Mamba-2 (Dao and Gu, 2024). Nothing is divided by a sum of
    weights. The products of gates are differences of sums of logarithms, at most 0, so that no
    exponential overflows. Work grows with L, memory in a chunk with ``chunk_size**2 * G``.

    Args:
        query, key, value: One row for each position.
        log_gate: :math:`\log \alpha_t`, finite and at most 0, such as ``logsigmoid(...)``; G is E
            or 1.
        state: What came before, :math:`S_0`; zeros if not given.
        chunk_size: How many positions are computed together.

    Returns:
        One row for each position, and the last state.

    Example:
        >>> query, key, value = torch.randn(3, 1, 2, 50, 8)
        >>> log_gate = torch.nn.functional.logsigmoid(torch.randn(1, 2, 50, 8))
        >>> output, state = gated_linear_attention(query, key, value, log_gate)
        >>> output.shape, state.shape
        (torch.Size([1, 2, 50, 8]), torch.Size([1, 2, 8, 8]))
    """
    _check_gated(query, key, value, log_gate, chunk_size)
    shape = (*value.shape[:2], value.shape[-1], key.shape[-1])
    state = value.new_zeros(shape) if state is None else state
    check_like("state", state, shape, query)
    rows = []
    chunks = (part.split(chunk_size, dim=2) for part in (query, key, value, log_gate))
    for q, k, v, g in zip(*chunks, strict=True):
        total = g.cumsum(2)  # log of all gates since the chunk began, (B, H, C, G)
        rows.append((q * total.exp()) @ state.mT + _inside(q, k, total) @ v)
        end = total[:, :, -1:]
        state = state * end.exp() + v.mT @ (k * (end - total).exp())
    return torch.cat(rows, dim=2) if rows else value, state


def _inside(
    q: Float[Tensor, "B H C E"], k: Float[Tensor, "B H C E"], total: Float[Tensor, "B H C G"]
) -> Float[Tensor, "B H C C"]:
    """Weights inside a chunk: products of queries and keys, less what gates forgot between them."""
    size = total.shape[2]
    later = torch.ones(size, size, dtype=torch.bool, device=q.device).triu(1)
    kept = total.unsqueeze(3) - total.unsqueeze(2)  # from s to t, (B, H, C, C, G)
    kept = kept.masked_fill(later.unsqueeze(-1), -torch.inf).exp()
    return torch.einsum("bhte,bhse,bhtse->bhts", q, k, kept.expand(*kept.shape[:4], k.shape[-1]))


def _check_gated(
    query: Tensor, key: Tensor, value: Tensor, log_gate: Tensor, chunk_size: int
) -> None:
    check_same_heads(query, key, value)
    check_size("key", key, 2, query.shape[2])
    gates = 1 if log_gate.shape[-1:] == (1,) else query.shape[-1]
    check_like("log_gate", log_gate, (*query.shape[:3], gates), query)
    check_at_least(1, chunk_size=chunk_size)
