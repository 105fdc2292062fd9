"""Right answers to the exercises on hashing and low rank, written differently."""

import torch

from attn_course.probes import variant


@variant(of="hash_buckets")
def hash_by_einsum(vectors, rotations):
    along = torch.einsum("...le,ren->...rln", vectors, rotations)
    best, where = along.max(-1)
    worst, opposite = along.min(-1)
    return torch.where(best >= -worst, where, opposite + rotations.shape[-1])


@variant(of="hash_buckets")
def hash_round_by_round(vectors, rotations):
    rounds = [torch.argmax(vectors @ torch.cat([turn, -turn], dim=1), dim=-1) for turn in rotations]
    return torch.stack(rounds, dim=-2)


@variant(of="bucket_attention")
def chunks_by_lists(query, value, buckets, chunk_size):
    key, buckets = torch.nn.functional.normalize(query, dim=-1), buckets.tolist()
    order = sorted(range(len(query)), key=lambda i: (buckets[i], i))
    rows = [None] * len(query)
    for rank, i in enumerate(order):
        start = max(0, rank // chunk_size - 1) * chunk_size
        end = (rank // chunk_size + 1) * chunk_size
        seen = [j for j in order[start:end] if j != i and buckets[j] == buckets[i]]
        rows[i] = (key[seen] @ query[i]).softmax(-1) @ value[seen] if seen else value[i]
    return torch.stack(rows)


@variant(of="bucket_attention")
def chunks_one_by_one(query, value, buckets, chunk_size):
    order = torch.sort(buckets, stable=True).indices
    q, v, b = query[order], value[order], buckets[order]
    k = q / q.square().sum(-1, keepdim=True).sqrt()
    rows = []
    for start in range(0, len(q), chunk_size):
        mine, seen = (
            slice(start, start + chunk_size),
            slice(max(0, start - chunk_size), start + chunk_size),
        )
        places = torch.arange(len(q))
        allowed = (b[mine, None] == b[seen]) & (places[mine, None] != places[seen])
        alone = ~allowed.any(-1, keepdim=True)
        # a position without other keys attends to itself
        allowed = allowed | (alone & (places[mine, None] == places[seen]))
        rows.append((q[mine] @ k[seen].T).masked_fill(~allowed, -torch.inf).softmax(-1) @ v[seen])
    output = torch.empty_like(v)
    return output.index_copy(0, order, torch.cat(rows))


@variant(of="linformer_attention")
def mixtures_by_einsum(query, key, value, mix_keys, mix_values):
    length = key.size(-2)
    short = torch.einsum("ks,...se->...ke", mix_keys[:, :length], key)
    scores = torch.einsum("...le,...ke->...lk", query * query.size(-1) ** -0.5, short)
    parts = (scores - scores.amax(-1, keepdim=True)).exp()
    short = torch.einsum("ks,...sv->...kv", mix_values[:, :length], value)
    return parts @ short / parts.sum(-1, keepdim=True)


@variant(of="linformer_attention")
def mixtures_of_a_filled_text(query, key, value, mix_keys, mix_values):
    missing = mix_keys.shape[1] - key.shape[-2]
    key, value = (torch.nn.functional.pad(x, (0, 0, 0, missing)) for x in (key, value))
    scores = torch.matmul(query, (mix_keys @ key).transpose(-2, -1)) / query.shape[-1] ** 0.5
    return torch.softmax(scores, dim=-1) @ (mix_values @ value)


@variant(of="linear_attention")
def linear_by_sums(query, key, value, memory, total):
    memories = memory.unsqueeze(-3) + (key.unsqueeze(-1) * value.unsqueeze(-2)).cumsum(-3)
    totals = total.unsqueeze(-2) + key.cumsum(-2)
    found = (query.unsqueeze(-2) @ memories).squeeze(-2)
    output = found / (query * totals).sum(-1, keepdim=True)
    return output, memories[..., -1, :, :], totals[..., -1, :]


@variant(of="linear_attention")
def linear_by_chunks(query, key, value, memory, total):
    rows = []
    for q, k, v in zip(*(x.split(16, dim=-2) for x in (query, key, value)), strict=True):
        weights = torch.tril(q @ k.mT)
        parts = weights.sum(-1, keepdim=True) + q @ total.unsqueeze(-1)
        rows.append((weights @ v + q @ memory) / parts)
        memory, total = memory + k.mT @ v, total + k.sum(-2)
    return torch.cat(rows, dim=-2), memory, total


@variant(of="delta_rule")
def delta_by_factors(query, key, value, beta, memory):
    rows = []
    for q, k, v, b in zip(
        query.unbind(-2), key.unbind(-2), value.unbind(-2), beta.unbind(-1), strict=True
    ):
        b, k, v = b[..., None, None], k.unsqueeze(-2), v.unsqueeze(-1)
        memory = memory @ (torch.eye(k.shape[-1], dtype=k.dtype) - b * k.mT @ k) + b * v @ k
        rows.append((memory @ q.unsqueeze(-1)).squeeze(-1))
    return torch.stack(rows, dim=-2), memory


@variant(of="delta_rule")
def delta_at_once(query, key, value, beta, memory):
    scaled = beta.unsqueeze(-1) * key
    right = beta.unsqueeze(-1) * value - scaled @ memory.mT
    system = torch.eye(key.shape[-2], dtype=key.dtype) + torch.tril(scaled @ key.mT, -1)
    change = torch.linalg.solve(system, right)
    return query @ memory.mT + torch.tril(query @ key.mT) @ change, memory + change.mT @ key


@variant(of="fixed_merge")
def merge_by_logs(outputs, lses):
    return torch.einsum("rl,rlv->lv", (lses - lses.logsumexp(0)).exp(), outputs)


@variant(of="fixed_merge")
def merge_round_by_round(outputs, lses):
    output, lse = outputs[0], lses[0]
    for other, more in zip(outputs[1:], lses[1:], strict=True):
        share = torch.sigmoid(more - lse).unsqueeze(-1)
        output, lse = output + share * (other - output), torch.logaddexp(lse, more)
    return output
