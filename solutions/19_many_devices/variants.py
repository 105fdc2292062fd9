"""Right answers to the exercises on many devices, written differently."""

import math

import torch

from attn_course.probes import variant


def pair(output, lse, other, other_lse):
    """Two blocks, by one sigmoid: the share of the second one."""
    high, low = torch.maximum(lse, other_lse), torch.minimum(lse, other_lse)
    safe = torch.where(high == -math.inf, 0.0, high)
    share = torch.where(high == -math.inf, 0.0, (other_lse - safe).exp())
    mine = torch.where(high == -math.inf, 0.0, (lse - safe).exp())
    total = torch.where(high == -math.inf, 1.0, share + mine)
    joined = (mine[..., None] * output + share[..., None] * other) / total[..., None]
    return joined, torch.where(high == -math.inf, high, high + (low - safe).exp().log1p())


@variant(of="zigzag_split")
def split_by_runs(length, world_size):
    size = length // (2 * world_size)
    rows = []
    for rank in range(world_size):
        other = 2 * world_size - 1 - rank
        rows.append(
            [*range(rank * size, (rank + 1) * size), *range(other * size, (other + 1) * size)]
        )
    return torch.tensor(rows)


@variant(of="zigzag_split")
def split_by_owner(length, world_size):
    run = torch.arange(length) // (length // (2 * world_size))
    owner = torch.minimum(run, 2 * world_size - 1 - run)
    return torch.stack([(owner == rank).nonzero()[:, 0] for rank in range(world_size)])


def first_places(shards):
    starts = [0]
    for shard in shards:
        starts.append(starts[-1] + shard.shape[-2])
    return starts


@variant(of="ring_attention")
def ring_with_running_sums(query_shards, key_shards, value_shards, is_causal=False):
    # running maximum, sum and mixture over the blocks, divided once at the end
    starts, outputs = first_places(key_shards), []
    for rank, query in enumerate(query_shards):
        top = query.new_full(query.shape[:-1], -1e30)
        total = torch.zeros_like(top)
        mixture = query.new_zeros(*query.shape[:-1], value_shards[0].shape[-1])
        for step in range(len(query_shards)):
            owner = (rank - step) % len(query_shards)
            if is_causal and owner > rank:
                continue
            key, value = key_shards[owner], value_shards[owner]
            scores = query @ key.mT / math.sqrt(query.shape[-1])
            row = torch.arange(query.shape[-2])[:, None] + starts[rank]
            allowed = row >= torch.arange(key.shape[-2]) + starts[owner]
            allowed = allowed if is_causal else torch.ones_like(allowed)
            new = torch.maximum(top, torch.where(allowed, scores, -1e30).amax(-1))
            parts = torch.where(allowed, (scores - new[..., None]).exp(), 0.0)
            total = total * (top - new).exp() + parts.sum(-1)
            mixture = mixture * (top - new).exp()[..., None] + parts @ value
            top = new
        outputs.append(mixture / total[..., None])
    return outputs


@variant(of="ring_attention")
def ring_step_by_step(query_shards, key_shards, value_shards, is_causal=False):
    # all devices compute a step, then all pass their blocks
    starts, world_size = first_places(key_shards), len(query_shards)
    held = list(range(world_size))
    state = [
        (q.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_full(q.shape[:-1], -math.inf))
        for q, v in zip(query_shards, value_shards, strict=True)
    ]
    for _ in range(world_size):
        for rank, owner in enumerate(held):
            query, key = query_shards[rank], key_shards[owner]
            scores = torch.einsum("...le,...se->...ls", query, key) / math.sqrt(query.shape[-1])
            if is_causal:
                row = torch.arange(starts[rank], starts[rank + 1])[:, None]
                scores = scores.where(
                    row >= torch.arange(starts[owner], starts[owner + 1]), -math.inf
                )
            lse = scores.logsumexp(-1)
            safe = torch.where(lse == -math.inf, 0.0, lse)
            part = (scores - safe[..., None]).exp() @ value_shards[owner]
            state[rank] = pair(*state[rank], part, lse)
        held = [held[-1], *held[:-1]]
    return [output for output, _ in state]


@variant(of="ulysses_exchange")
def exchange_by_a_table(shards):
    world_size = len(shards)
    table = torch.stack(list(shards)).unflatten(1, (world_size, -1))  # (from, to, H / P, l, E)
    table = table.permute(1, 2, 0, 3, 4)  # (to, H / P, from, l, E)
    return [part.flatten(1, 2) for part in table]


@variant(of="ulysses_exchange")
def exchange_message_by_message(shards):
    heads, length, size = shards[0].shape
    group = heads // len(shards)
    results = [shards[0].new_empty(group, length * len(shards), size) for _ in shards]
    for receiver, result in enumerate(results):
        for sender, shard in enumerate(shards):
            message = shard[receiver * group : (receiver + 1) * group]
            result[:, sender * length : (sender + 1) * length] = message
    return results


@variant(of="fixed_average")
def average_of_sums(gradients, counts):
    total = torch.zeros_like(gradients[0])
    for gradient, count in zip(gradients, counts, strict=True):
        if count:
            total = total + count * gradient
    return total / sum(counts)


@variant(of="fixed_average")
def average_by_product(gradients, counts):
    weights = torch.tensor(counts, dtype=gradients[0].dtype)
    stacked = torch.nan_to_num(torch.stack(list(gradients)), nan=0.0)
    return torch.tensordot(weights / weights.sum(), stacked, dims=1)
