"""What the tests of the set judge by."""

import numpy as np
import torch

from attn_course.probes import Probes, from_numpy


def right_zigzag(length, world_size):
    chunks = torch.arange(length).chunk(2 * world_size)
    return torch.stack([torch.cat([chunks[r], chunks[-1 - r]]) for r in range(world_size)])


def right_ring(query_shards, key_shards, value_shards, is_causal=False):
    query, key, value = (
        np.concatenate(shards, axis=-2) for shards in (query_shards, key_shards, value_shards)
    )
    scores = query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    output = parts / parts.sum(-1, keepdims=True) @ value
    ends = np.cumsum([shard.shape[-2] for shard in query_shards])[:-1]
    return np.split(output, ends, axis=-2)


def right_exchange(shards):
    return [part.contiguous() for part in torch.cat(list(shards), dim=1).chunk(len(shards), dim=0)]


def right_average(gradients, counts):
    total = sum(counts)
    return sum(g * n for g, n in zip(gradients, counts, strict=True) if n) / total


probes = Probes(
    "19_many_devices",
    zigzag_split=right_zigzag,
    ring_attention=from_numpy(right_ring),
    ulysses_exchange=right_exchange,
    fixed_average=right_average,
)
