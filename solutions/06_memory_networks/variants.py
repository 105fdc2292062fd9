"""Right answers to the memory network exercises, written differently."""

from itertools import pairwise

import torch

from attn_course.probes.catalogue import variant


@variant(of="position_encoding")
def places_by_loops(words, embed_dim):
    rows = []
    for j in range(1, words + 1):
        rows.append(
            [
                (1 - j / words) - (k / embed_dim) * (1 - 2 * j / words)
                for k in range(1, embed_dim + 1)
            ]
        )
    return torch.tensor(rows)


@variant(of="position_encoding")
def places_by_outer_product(words, embed_dim):
    j = torch.linspace(1 / words, 1, words) - 0.5
    k = torch.linspace(1 / embed_dim, 1, embed_dim) - 0.5
    return 0.5 + 2 * torch.outer(j, k)


def _weights(words, size):
    return places_by_loops(words, size)


@variant(of="build_memory")
def memory_in_bulk(story, table, ages):
    real = story != 0
    there = real.any(1)
    j = real.cumsum(1) / real.sum(1, keepdim=True).clamp(min=1)  # (N, J)
    k = torch.arange(1, table.shape[1] + 1) / table.shape[1]
    weights = (1 - j[..., None]) - k * (1 - 2 * j[..., None])
    vectors = (weights.to(table.dtype) * table[story] * real[..., None]).sum(1)
    age = there.flip(0).cumsum(0).flip(0) - 1
    return torch.where(there[:, None], vectors + ages[age.clamp(min=0)], 0.0)


@variant(of="build_memory")
def memory_by_lists(story, table, ages):
    told = [[word for word in sentence if word] for sentence in story.tolist()]
    out = torch.zeros(len(told), table.shape[1], dtype=table.dtype)
    order = [i for i, words in enumerate(told) if words]
    for age, i in enumerate(reversed(order)):
        scale = _weights(len(told[i]), table.shape[1]).to(table.dtype)
        vector = ages[age]
        for weight, word in zip(scale, told[i], strict=True):
            vector = vector + weight * table[word]
        out = out.index_put((torch.tensor(i),), vector)
    return out


@variant(of="memory_hop")
def hop_by_matmul(query, memory_in, memory_out, mask=None):
    scores = (memory_in @ query[:, :, None]).squeeze(-1)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=1)
    weights = torch.where(weights.isnan(), torch.zeros_like(weights), weights)
    return (weights[:, None, :] @ memory_out).squeeze(1), weights


@variant(of="memory_hop")
def hop_row_by_row(query, memory_in, memory_out, mask=None):
    outputs, weights = [], []
    for row in range(len(query)):
        keep = [i for i in range(memory_in.shape[1]) if mask is None or bool(mask[row, i])]
        p = torch.zeros(memory_in.shape[1], dtype=query.dtype)
        if keep:
            scores = torch.stack([query[row] @ memory_in[row, i] for i in keep])
            p = p.index_put((torch.tensor(keep),), (scores - scores.logsumexp(0)).exp())
        outputs.append(p @ memory_out[row])
        weights.append(p)
    return torch.stack(outputs), torch.stack(weights)


@variant(of="stack_hops")
def stack_by_pairs(query, memories, hops, tying, update=None, mask=None):
    pairs = list(pairwise(memories)) if tying == "adjacent" else None
    pairs = pairs or [(memories[0], memories[1])] * hops
    looked = []
    for m, c in pairs:
        scores = (m * query[:, None]).sum(-1)
        scores = scores if mask is None else torch.where(mask, scores, -torch.inf)
        p = torch.softmax(scores, dim=-1)
        query = (query if update is None else torch.nn.functional.linear(query, update)) + (
            p[..., None] * c
        ).sum(1)
        looked.append(p)
    return [query, torch.stack(looked, 1)]


@variant(of="stack_hops")
def stack_by_recursion(query, memories, hops, tying, update=None, mask=None):
    if hops == 0:
        return query, query.new_zeros(len(query), 0, memories[0].shape[1])
    scores = torch.einsum("bd,bnd->bn", query, memories[0])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    p = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    output = torch.einsum("bn,bnd->bd", p, memories[1])
    if tying == "adjacent":
        after, rest = query + output, memories[1:]
    else:
        after, rest = torch.einsum("ij,bj->bi", update, query) + output, memories
    last, looked = stack_by_recursion(after, rest, hops - 1, tying, update, mask)
    return last, torch.cat([p[:, None], looked], dim=1)


@variant(of="pointer_chase")
def chase_by_dictionary(story, start, steps):
    ends = []
    for row, here in zip(story.tolist(), start.tolist(), strict=True):
        told = {a: b for a, b in row if a}
        for _ in range(steps):
            here = told.get(here, here)
        ends.append(here)
    return torch.tensor(ends, dtype=start.dtype)


@variant(of="pointer_chase")
def chase_by_a_table(story, start, steps):
    size = int(max(story.max(), start.max())) + 1
    table = torch.arange(size).repeat(len(start), 1)
    table = table.scatter(1, story[:, :, 0].long(), story[:, :, 1].long())
    table[:, 0] = 0
    here = start.long()
    for _ in range(steps):
        here = table.gather(1, here[:, None])[:, 0]
    return here.to(start.dtype)


@variant(of="fixed_two_hops")
def two_hops_written_out(query, memory_in, memory_out):
    first = torch.einsum("bd,bnd->bn", query, memory_in).softmax(1)
    second_query = query + torch.einsum("bn,bnd->bd", first, memory_out)
    second = torch.einsum("bd,bnd->bn", second_query, memory_in).softmax(1)
    return second_query + torch.einsum("bn,bnd->bd", second, memory_out)
