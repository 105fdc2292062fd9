"""Attention among positions that a random hash puts together: Reformer (Kitaev et al., 2020)."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attn_course._checks import (
    check_axes,
    check_device,
    check_floating,
    check_padding_mask,
    check_same_heads,
    check_size,
    widest,
)
from attn_course.functional.scaled_dot_product import merge_attention
from attn_course.functional.softmax import logsumexp, masked_softmax


def random_rotations(
    num_heads: int,
    head_dim: int,
    *,
    n_buckets: int | Sequence[int],
    n_hashes: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, "H E R N"]:
    """Directions of a normal distribution, on which :func:`lsh_buckets` finds the largest.

    Args:
        num_heads: Heads, each with directions of its own.
        head_dim: Size of a query.
        n_buckets: An even number of buckets, or factors of it, each even: 64 and 128 make 8,192
            buckets from 96 directions.
        n_hashes: Rounds.
        generator: Where the numbers come from; torch's own if not given.
        dtype, device: Of the result.

    Example:
        >>> random_rotations(2, 8, n_buckets=4, n_hashes=3).shape
        torch.Size([2, 8, 3, 2])
    """
    if min(num_heads, head_dim, n_hashes) < 1:
        raise ValueError(
            "num_heads, head_dim, n_hashes: expected at least 1, "
            f"got {num_heads}, {head_dim}, {n_hashes}"
        )
    shape = (num_heads, head_dim, n_hashes, sum(_factors(n_buckets)) // 2)
    return torch.randn(shape, generator=generator, dtype=dtype, device=device)


def lsh_buckets(
    vectors: Float[Tensor, "B H L E"],
    rotations: Float[Tensor, "H E R N"],
    *,
    n_buckets: int | Sequence[int] | None = None,
) -> Int[Tensor, "B H R L"]:
    r"""The bucket of every vector in every round: the nearest of random directions and their
    opposites.

    .. math:: h(x) = \operatorname{argmax}\,[x R;\, -x R]

    Andoni et al. (2015); Kitaev et al. (2020), section 2. Vectors at a small angle to each other
    often have the same bucket, opposite ones never. The length of a vector does not matter.

    Args:
        vectors: What is hashed; no gradient goes through it.
        rotations: As :func:`random_rotations` makes them, :math:`R`.
        n_buckets: Twice the directions if not given. Factors: each takes its share of the
            directions, and the bucket is :math:`h_1 + b_1 (h_2 + b_2 (\ldots))`.

    Example:
        >>> rotations = random_rotations(2, 8, n_buckets=4, n_hashes=3)
        >>> lsh_buckets(torch.randn(1, 2, 16, 8), rotations).shape
        torch.Size([1, 2, 3, 16])
    """
    check_floating("vectors", vectors)
    check_axes("vectors", vectors, "B H L E")
    check_axes("rotations", rotations, "H E R N")
    check_size("rotations", rotations, 0, vectors.shape[1])
    check_size("rotations", rotations, 1, vectors.shape[-1])
    check_device("rotations", rotations, vectors)
    factors = _factors(2 * rotations.shape[-1] if n_buckets is None else n_buckets)
    check_size("rotations", rotations, -1, sum(factors) // 2)
    turned = torch.einsum("bhle,hern->bhrln", vectors.detach(), rotations.to(vectors.dtype))
    buckets, weight = torch.zeros_like(turned[..., 0], dtype=torch.long), 1
    for factor, part in zip(factors, turned.split([f // 2 for f in factors], dim=-1), strict=True):
        buckets = buckets + weight * torch.cat([part, -part], dim=-1).argmax(dim=-1)
        weight *= factor
    return buckets


def unit_keys(query: Float[Tensor, "*B E"]) -> Float[Tensor, "*B E"]:
    r"""The keys of shared-QK attention: the queries, scaled to length 1.

    .. math:: k_j = \frac{q_j}{\sqrt{\lVert q_j \rVert^2 + 10^{-6} E}}

    Args:
        query: Queries, which are the keys as well.

    Example:
        >>> unit_keys(torch.tensor([3.0, 4.0]))
        tensor([0.6000, 0.8000])
    """
    check_floating("query", query)
    if not query.ndim:
        raise ValueError("query: expected at least one axis, got shape ()")
    size = query.shape[-1]
    return query * torch.rsqrt(query.square().mean(-1, keepdim=True) + 1e-6) / size**0.5


def lsh_attention(
    query_key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    buckets: Int[Tensor, "B H R L"],
    *,
    chunk_size: int,
    chunks_before: int = 1,
    chunks_after: int = 0,
    is_causal: bool = False,
    padding_mask: Bool[Tensor, "B L"] | None = None,
    attend_across_buckets: bool = False,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L Ev"]:
    r"""Attention among the positions that share a bucket, in any of several rounds.

    .. math::
       o_i = \sum_r e^{z_i^r - z_i}\, o_i^r, \qquad
       o_i^r = \sum_{j \in P_i^r} e^{q_i \cdot k_j - \log N_{ij} - z_i^r}\, v_j, \qquad
       k_j = q_j / \lVert q_j \rVert

    Kitaev et al. (2020), section 2 and appendix A. In round :math:`r` the positions are sorted by
    bucket, then by place, and cut into chunks; :math:`P_i^r` are the positions of the same bucket
    in the chunk of :math:`i` and the one before it. :math:`N_{ij}` is in how many rounds :math:`j`
    is offered to :math:`i`, so that a pair counts once: the result is that of full attention under
    :func:`lsh_mask`. A position attends to itself only where it has no other key. Keys have length
    1, and so nothing is divided by :math:`\sqrt E`.

    Nothing of size L × L is made: the scores are :math:`R \cdot L \cdot 2 m` for chunks of
    :math:`m`.

    Args:
        query_key: Queries, and keys before :func:`unit_keys`.
        value: Values.
        buckets: As :func:`lsh_buckets` finds them.
        chunk_size: :math:`m`; the last chunk of a round may be shorter.
        chunks_before: How many chunks before its own a position attends to.
        chunks_after: How many behind it.
        is_causal: Only positions up to the own one.
        padding_mask: True = real; padding is no key and gets 0.
        attend_across_buckets: As in the authors' code and in transformers: within its chunks a
            position attends to every bucket, the chunks of all rounds form a ring, so that the
            first attends to the last, and a pair counts as often as it is offered.
        dropout_p: Chance that a weight is set to 0, in every round by itself.

    Returns:
        One row for each position; a position that is padding gets 0.

    Example:
        >>> query_key, value = torch.randn(2, 1, 2, 16, 8)
        >>> buckets = lsh_buckets(query_key, random_rotations(2, 8, n_buckets=4, n_hashes=3))
        >>> lsh_attention(query_key, value, buckets, chunk_size=4).shape
        torch.Size([1, 2, 16, 8])
    """
    _check_lsh(query_key, value, buckets, chunk_size, chunks_before, chunks_after)
    offsets, length = range(-chunks_before, chunks_after + 1), query_key.shape[2]
    fill = -length % chunk_size
    buckets, real = _padded(buckets, _real(padding_mask, query_key, length), fill)
    query_key, value = F.pad(query_key, (0, 0, 0, fill)), F.pad(value, (0, 0, 0, fill))
    value = torch.where(real[:, None, :, None], value, 0.0)
    order = buckets.argsort(dim=-1, stable=True)  # (B, H, R, N), by bucket, then by position
    place = order.flatten(2).unflatten(2, (-1, chunk_size))  # (B, H, C, m)
    query, key, values = (_taken(rows, place) for rows in (query_key, unit_keys(query_key), value))
    allowed, times = _slots(buckets, real, order, place, offsets, is_causal, attend_across_buckets)
    scores = (query @ _around(key, offsets).mT).to(widest(query))  # (B, H, C, m, O m)
    scores = (scores - times.to(scores.dtype).log()).masked_fill(~allowed, -torch.inf)
    lse = logsumexp(scores)  # (B, H, C, m)
    weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(-1))
    weights = F.dropout(weights, dropout_p) if dropout_p else weights
    parts = weights @ _around(values, offsets).to(weights.dtype)  # (B, H, C, m, Ev)
    output, total = merge_attention(*_rounds(parts, lse, order))  # (B, H, N, Ev)
    # no other key: the position itself, if it is real
    output = torch.where(total.unsqueeze(-1) == -torch.inf, value.to(output.dtype), output)
    return torch.where(real[:, None, :, None], output, 0.0)[:, :, :length].to(query_key.dtype)


def lsh_mask(
    buckets: Int[Tensor, "B H R L"],
    *,
    chunk_size: int | None = None,
    is_causal: bool = False,
    padding_mask: Bool[Tensor, "B L"] | None = None,
) -> Bool[Tensor, "B H L L"]:
    """Which pairs :func:`lsh_attention` keeps in any of its rounds, all L × L of them.

    Full attention with the same keys under this mask gives the same output.

    Args:
        buckets: As :func:`lsh_buckets` finds them.
        chunk_size: Size of a chunk, with one chunk before it; no limit if not given. The rest as of
            :func:`lsh_attention`.

    Returns:
        True where query i attends to key j; to itself only where it has no other key.

    Example:
        >>> lsh_mask(torch.tensor([[[[0, 1, 0]]]]))[0, 0].int()
        tensor([[0, 0, 1],
                [0, 1, 0],
                [1, 0, 0]], dtype=torch.int32)
    """
    check_axes("buckets", buckets, "B H R L")
    length = buckets.shape[-1]
    if chunk_size is not None:
        _check_chunks(chunk_size, 1, 0)
    real = _real(padding_mask, buckets, length)
    buckets, _ = _padded(buckets, real, 0)
    kept = buckets.unsqueeze(-1) == buckets.unsqueeze(-2)  # (B, H, R, L, L)
    if chunk_size is not None:
        chunk = buckets.argsort(dim=-1, stable=True).argsort(dim=-1) // chunk_size
        apart = chunk.unsqueeze(-1) - chunk.unsqueeze(-2)
        kept = kept & (apart >= 0) & (apart <= 1)
    mask = kept.any(dim=2) & real[:, None, None, :] & real[:, None, :, None]
    itself = torch.eye(length, dtype=torch.bool, device=buckets.device)
    if is_causal:
        mask = mask & itself.new_ones(length, length).tril()
    mask = mask & ~itself
    return mask | (itself & ~mask.any(dim=-1, keepdim=True) & real[:, None, :, None])


def chunk_attention(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H L E"],
    value: Float[Tensor, "B H L Ev"],
    *,
    chunk_size: int,
    chunks_before: int = 1,
    chunks_after: int = 0,
    is_causal: bool = False,
    padding_mask: Bool[Tensor, "B L"] | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L Ev"]:
    r"""Attention of every chunk of neighbours to itself and the chunks beside it.

    The local layers of Reformer's released code: scaled dot products, and chunks in a ring, so that
    without ``is_causal`` the first chunk attends to the last one. Scores are
    :math:`L \cdot m \cdot (1 + \mathrm{before} + \mathrm{after})`. Arguments as of
    :func:`lsh_attention`; a query has a key of its own.

    Returns:
        One row for each position; 0 where it may attend to nothing.

    Example:
        >>> x = torch.randn(1, 2, 12, 8)
        >>> chunk_attention(x, x, x, chunk_size=4).shape
        torch.Size([1, 2, 12, 8])
    """
    check_same_heads(query, key, value)
    check_size("key", key, 2, query.shape[2])
    _check_chunks(chunk_size, chunks_before, chunks_after)
    length, fill = query.shape[2], -query.shape[2] % chunk_size
    real = F.pad(_real(padding_mask, query, length), (0, fill))
    place = torch.arange(length + fill, device=query.device).view(1, 1, -1, chunk_size)
    offsets = range(-chunks_before, chunks_after + 1) if length > chunk_size else range(1)
    seen = _around(place, offsets)  # (1, 1, C, O m)
    allowed = _at(real, seen.expand(len(query), 1, *seen.shape[2:])).unsqueeze(-2)
    if is_causal:
        allowed = allowed & (seen.unsqueeze(-2) <= place.unsqueeze(-1))
    q, k, v = (
        F.pad(rows, (0, 0, 0, fill)).unflatten(2, (-1, chunk_size)) for rows in (query, key, value)
    )
    scores = (q @ _around(k, offsets).mT).to(widest(q)) / q.shape[-1] ** 0.5  # (B, H, C, m, O m)
    weights = masked_softmax(scores, allowed)
    weights = F.dropout(weights, dropout_p) if dropout_p else weights
    output = (weights @ _around(v, offsets).to(weights.dtype)).flatten(2, 3)
    return output[:, :, :length].to(query.dtype)


def _factors(n_buckets: int | Sequence[int]) -> list[int]:
    factors = [n_buckets] if isinstance(n_buckets, int) else list(n_buckets)
    if not factors or any(factor < 2 or factor % 2 for factor in factors):
        raise ValueError(f"n_buckets: expected even numbers of at least 2, got {n_buckets}")
    return factors


def _real(padding_mask: Tensor | None, rows: Tensor, length: int) -> Bool[Tensor, "B L"]:
    """Which positions are real: all, if there is no mask."""
    if padding_mask is None:
        return rows.new_ones((rows.shape[0], length), dtype=torch.bool)
    check_padding_mask(padding_mask, rows.shape[0], length, rows)
    return padding_mask


def _check_lsh(
    query_key: Tensor, value: Tensor, buckets: Tensor, size: int, before: int, after: int
) -> None:
    check_floating("query_key", query_key)
    check_axes("query_key", query_key, "B H L E")
    check_axes("value", value, "B H L E")
    check_axes("buckets", buckets, "B H R L")
    for axis in (0, 1):
        check_size("value", value, axis, query_key.shape[axis])
        check_size("buckets", buckets, axis, query_key.shape[axis])
    check_size("value", value, 2, query_key.shape[2])
    check_device("value", value, query_key)
    check_device("buckets", buckets, query_key)
    check_size("buckets", buckets, 3, query_key.shape[2])
    _check_chunks(size, before, after)


def _check_chunks(chunk_size: int, chunks_before: int, chunks_after: int) -> None:
    if chunk_size < 1 or min(chunks_before, chunks_after) < 0:
        raise ValueError(
            "chunk_size, chunks_before, chunks_after: expected at least 1, 0 and 0, "
            f"got {chunk_size}, {chunks_before}, {chunks_after}"
        )


def _padded(buckets: Tensor, real: Tensor, fill: int) -> tuple[Tensor, Tensor]:
    """Padding, given and filled up, goes into a bucket of its own behind all others."""
    last = 2**31  # more than there are of any other; exact as a float too, which pad makes of it
    buckets = torch.where(real[:, None, None, :], buckets, last)
    return F.pad(buckets, (0, fill), value=last), F.pad(real, (0, fill))


def _at(rows: Bool[Tensor, "B N"], index: Int[Tensor, "B H C S"]) -> Bool[Tensor, "B H C S"]:
    """One flag for each position of an index."""
    flat = rows[:, None].expand(-1, index.shape[1], -1).gather(-1, index.flatten(2))
    return flat.reshape(index.shape)


def _around(rows: Tensor, offsets: range) -> Tensor:
    """The rows of each chunk's neighbours and its own, (B, H, C, O m, ...), chunks in a ring."""
    return torch.cat([rows.roll(-offset, dims=2) for offset in offsets], dim=3)


def _taken(rows: Float[Tensor, "B H N E"], place: Int[Tensor, "B H C M"]) -> Tensor:
    """The rows of each slot, (B, H, C, m, E)."""
    index = place.flatten(2).unsqueeze(-1).expand(-1, -1, -1, rows.shape[-1])
    return rows.gather(2, index).unflatten(2, place.shape[2:])


def _rounds(
    parts: Float[Tensor, "B H C M Ev"], lse: Float[Tensor, "B H C M"], order: Int[Tensor, "B H R N"]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Outputs and log-sum-exps of each round, in the order of the text again."""
    spots = order.argsort(dim=-1)  # where each position went
    parts = parts.reshape(*spots.shape, parts.shape[-1])
    parts = parts.gather(3, spots.unsqueeze(-1).expand_as(parts))
    return parts.unbind(2), lse.reshape(spots.shape).gather(-1, spots).unbind(2)


def _slots(
    buckets: Int[Tensor, "B H R N"],
    real: Bool[Tensor, "B N"],
    order: Int[Tensor, "B H R N"],
    place: Int[Tensor, "B H C M"],
    offsets: range,
    is_causal: bool,
    across: bool,
) -> tuple[Bool[Tensor, "B H C M S"], Int[Tensor, "..."]]:
    """Which of the slots around a chunk each of its queries may attend to, and in how many rounds
    each is offered (1 where all buckets are)."""
    rounds, size = order.shape[2], place.shape[-1]
    seen = _around(place, offsets)  # (B, H, C, O m)
    mine, theirs = place.unsqueeze(-1), seen.unsqueeze(-2)
    allowed = (mine != theirs) & _at(real, seen).unsqueeze(-2)
    if is_causal:
        allowed = allowed & (theirs <= mine)
    if across:
        return allowed, torch.ones((), dtype=torch.long, device=place.device)
    own = buckets.gather(-1, order).reshape(place.shape)  # the bucket of each slot
    allowed = allowed & (own.unsqueeze(-1) == _around(own, offsets).unsqueeze(-2))
    allowed = allowed & _linked(place.shape[2] // rounds, rounds, size, offsets, place.device)
    times = _times_offered(buckets, order.argsort(dim=-1) // size, place, seen, offsets)
    return allowed, times.clamp(min=1)


def _linked(
    per_round: int, rounds: int, chunk_size: int, offsets: range, device: torch.device
) -> Bool[Tensor, "C 1 S"]:
    """Which slots around a chunk are of the same round, not of the ring's other end."""
    chunk = torch.arange(per_round, device=device).repeat(rounds)  # (C,)
    step = torch.tensor(list(offsets), device=device).repeat_interleave(chunk_size)  # (O m,)
    target = chunk[:, None] + step
    return ((target >= 0) & (target < per_round)).unsqueeze(1)


def _times_offered(
    buckets: Int[Tensor, "B H R N"],
    chunk: Int[Tensor, "B H R N"],
    place: Int[Tensor, "B H C M"],
    seen: Int[Tensor, "B H C S"],
    offsets: range,
) -> Int[Tensor, "B H C M S"]:
    """In how many rounds each key of a chunk's neighbourhood is offered to each query of it."""
    count = torch.zeros((), dtype=torch.long, device=place.device)
    for bucket, spot in zip(buckets.unbind(2), chunk.unbind(2), strict=True):  # (B, H, N)
        (b_i, b_j), (c_i, c_j) = (
            (
                rows.gather(-1, place.flatten(2)).reshape(place.shape).unsqueeze(-1),
                rows.gather(-1, seen.flatten(2)).reshape(seen.shape).unsqueeze(-2),
            )
            for rows in (bucket, spot)
        )
        apart = c_j - c_i
        count = count + ((b_i == b_j) & (apart >= offsets[0]) & (apart <= offsets[-1]))
    return count
