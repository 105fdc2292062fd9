"""Attention inside buckets of a random hash, pair by pair."""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike


def lsh_buckets(vectors: ArrayLike, rotations: ArrayLike) -> Int[np.ndarray, "B H R L"]:
    r"""The bucket of every vector in every round: :math:`\operatorname{argmax}\,[x R;\, -x R]`.

    Args:
        vectors: ``(B, H, L, E)``.
        rotations: ``(H, E, R, N)``, for twice as many buckets as N.
    """
    x, turn = np.asarray(vectors, dtype=np.float64), np.asarray(rotations, dtype=np.float64)
    batch, heads, length, _ = x.shape
    buckets = np.zeros((batch, heads, turn.shape[2], length), dtype=np.int64)
    for b, h, r, i in np.ndindex(buckets.shape):
        best, largest = 0, -np.inf
        for n in range(2 * turn.shape[3]):
            sign, direction = (1, n) if n < turn.shape[3] else (-1, n - turn.shape[3])
            along = sign * float(x[b, h, i] @ turn[h, :, r, direction])
            if along > largest:
                best, largest = n, along
        buckets[b, h, r, i] = best
    return buckets


def unit_keys(query: ArrayLike) -> Float[np.ndarray, "*B E"]:
    """Each query divided by its length, up to a small number.

    Args:
        query: ``(..., E)``.
    """
    q = np.asarray(query, dtype=np.float64)
    keys: np.ndarray = q / np.sqrt((q**2).sum(-1, keepdims=True) + 1e-6 * q.shape[-1])
    return keys


def lsh_attention(
    query_key: ArrayLike,
    value: ArrayLike,
    buckets: ArrayLike,
    *,
    chunk_size: int,
    chunks_before: int = 1,
    chunks_after: int = 0,
    is_causal: bool = False,
    padding_mask: ArrayLike | None = None,
    attend_across_buckets: bool = False,
) -> Float[np.ndarray, "B H L Ev"]:
    r"""Attention among the positions that share a bucket and lie in neighbouring chunks.

    .. math:: o_i = \frac{\sum_j c_{ij}\, e^{q_i \cdot k_j} v_j}{\sum_j c_{ij}\, e^{q_i \cdot k_j}}

    :math:`c_{ij}` is 1 if any round offers :math:`j` to :math:`i`; with ``attend_across_buckets``
    it is how often that happens.

    Args:
        query_key: ``(B, H, L, E)``.
        value: ``(B, H, L, Ev)``.
        buckets: ``(B, H, R, L)``.
        chunk_size: Size of a chunk.
        chunks_before: Chunks attended to before the own one.
        chunks_after: Chunks attended to after it.
        is_causal: Only positions up to the own one.
        padding_mask: ``(B, L)``, True = real.
        attend_across_buckets: Whatever the bucket, chunks in a ring, pairs count as often as they
            are offered.
    """
    q, v = np.asarray(query_key, dtype=np.float64), np.asarray(value, dtype=np.float64)
    k, found = unit_keys(q), np.asarray(buckets)
    batch, heads, length, _ = q.shape
    real = np.ones((batch, length), dtype=bool) if padding_mask is None else np.array(padding_mask)
    output = np.zeros((batch, heads, length, v.shape[-1]))
    for b, h in np.ndindex(batch, heads):
        count = _offered(
            *(found[b, h], real[b], chunk_size, chunks_before, chunks_after),
            attend_across_buckets,
        )
        for i in np.flatnonzero(real[b]):
            total, mixed = 0.0, np.zeros(v.shape[-1])
            for j in range(length):
                if j == i or not real[b, j] or (is_causal and j > i):
                    continue
                times = count[i, j] if attend_across_buckets else min(count[i, j], 1)
                share = times * np.exp(q[b, h, i] @ k[b, h, j])
                total, mixed = total + share, mixed + share * v[b, h, j]
            output[b, h, i] = mixed / total if total else v[b, h, i]
    return output


def lsh_mask(
    buckets: ArrayLike,
    *,
    chunk_size: int | None = None,
    is_causal: bool = False,
    padding_mask: ArrayLike | None = None,
) -> Bool[np.ndarray, "B H L L"]:
    """Which pairs any round keeps; a position sees itself only where it sees nothing else.

    Args:
        buckets: ``(B, H, R, L)``.
        chunk_size: Size of a chunk, one chunk before it; no limit if not given.
        is_causal: Only positions up to the own one.
        padding_mask: ``(B, L)``, True = real.
    """
    found = np.asarray(buckets)
    batch, heads, _, length = found.shape
    real = np.ones((batch, length), dtype=bool) if padding_mask is None else np.array(padding_mask)
    mask = np.zeros((batch, heads, length, length), dtype=bool)
    for b, h in np.ndindex(batch, heads):
        count = _offered(found[b, h], real[b], chunk_size or length, 1, 0, False)
        for i in np.flatnonzero(real[b]):
            for j in np.flatnonzero(real[b]):
                mask[b, h, i, j] = count[i, j] > 0 and i != j and (j <= i or not is_causal)
            mask[b, h, i, i] = not mask[b, h, i].any()
    return mask


def _offered(
    buckets: Int[np.ndarray, "R L"],
    real: Bool[np.ndarray, " L"],
    chunk_size: int,
    before: int,
    after: int,
    ring: bool,
) -> Int[np.ndarray, "L L"]:
    """How often each position is offered to each other one, over all rounds."""
    rounds, length = buckets.shape
    chunks: list[list[int]] = []  # of all rounds, one after the other
    for r in range(rounds):
        ranked = sorted(range(length), key=lambda i: (not real[i], buckets[r, i], i))
        per_round = -(-length // chunk_size)
        chunks += [ranked[c * chunk_size : (c + 1) * chunk_size] for c in range(per_round)]
    count = np.zeros((length, length), dtype=np.int64)
    for here, members in enumerate(chunks):
        r = here // per_round
        for step in range(-before, after + 1):
            there = here + step
            if ring:
                there %= len(chunks)
            elif there // per_round != r:
                continue
            for i in members:
                for j in chunks[there]:
                    if ring or buckets[r, i] == buckets[r, j]:
                        count[i, j] += 1
    return count


def chunk_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    chunk_size: int,
    chunks_before: int = 1,
    chunks_after: int = 0,
    is_causal: bool = False,
    padding_mask: ArrayLike | None = None,
) -> Float[np.ndarray, "B H L Ev"]:
    """Attention of every chunk of neighbours to itself and the chunks beside it, in a ring.

    Args:
        query: ``(B, H, L, E)``.
        key: ``(B, H, L, E)``.
        value: ``(B, H, L, Ev)``.
        chunk_size: Size of a chunk.
        chunks_before: Chunks attended to before the own one.
        chunks_after: Chunks attended to after it.
        is_causal: Only positions up to the own one.
        padding_mask: ``(B, L)``, True = real.
    """
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (query, key, value))
    batch, heads, length, size = q.shape
    real = np.ones((batch, length), dtype=bool) if padding_mask is None else np.array(padding_mask)
    chunks = -(-length // chunk_size)
    steps = range(-chunks_before, chunks_after + 1) if chunks > 1 else range(1)
    output = np.zeros((batch, heads, length, v.shape[-1]))
    for b, h, i in np.ndindex(batch, heads, length):
        total = 0.0
        for step in steps:
            there = (i // chunk_size + step) % chunks
            for j in range(there * chunk_size, min((there + 1) * chunk_size, length)):
                if real[b, j] and not (is_causal and j > i):
                    share = np.exp(q[b, h, i] @ k[b, h, j] / size**0.5)
                    total, output[b, h, i] = total + share, output[b, h, i] + share * v[b, h, j]
        if total:
            output[b, h, i] /= total
    return output
