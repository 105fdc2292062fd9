"""Right answers to the exercises on attention in tiles, written differently."""

import math
from types import SimpleNamespace

import torch

from attn_course.probes import variant

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:  # not Linux on x86-64: all but the variant in Triton can be called
    triton, tl = SimpleNamespace(jit=lambda kernel: kernel), SimpleNamespace(constexpr=int)


@variant(of="online_logsumexp")
def lse_in_pairs(scores, block_size):
    # the log-sum-exp of every block, merged by log(e^a + e^b) = max + log1p(e^-|a - b|)
    result = scores.new_full(scores.shape[:-1], -torch.inf)
    for i in range(0, scores.shape[-1], block_size):
        block = scores[..., i : i + block_size]
        top = block.amax(-1)
        harmless = torch.where(top == -torch.inf, 0.0, top)
        part = (block - harmless[..., None]).exp().sum(-1).log() + harmless
        high, low = torch.maximum(result, part), torch.minimum(result, part)
        joined = high + (low - torch.where(high == -torch.inf, 0.0, high)).exp().log1p()
        result = torch.where(high == -torch.inf, high, joined)
    return result


@variant(of="online_logsumexp")
def lse_entry_by_entry(scores, block_size):
    top, total = scores[..., 0].clone(), torch.ones_like(scores[..., 0])
    total[top == -math.inf] = 0.0
    for i in range(1, scores.shape[-1]):
        entry = scores[..., i]
        new = torch.where(entry > top, entry, top)
        safe = torch.where(new == -math.inf, 0.0, new)
        total = total * torch.exp(top - safe) + torch.exp(entry - safe)
        top = new
    return torch.where(total == 0, -math.inf, total.log() + torch.where(total == 0, 0.0, top))


def causal(i, j, rows, columns):
    return torch.arange(i, i + rows)[:, None] >= torch.arange(j, j + columns)


@variant(of="tiled_attention")
def tiled_by_merging(query, key, value, tile_size, is_causal=False):
    # every tile gives an output and a log-sum-exp, merged by their shares
    outputs, sums = [], []
    for i in range(0, query.shape[-2], tile_size):
        rows = query[..., i : i + tile_size, :]
        output = rows.new_zeros(*rows.shape[:-1], value.shape[-1])
        lse = rows.new_full(rows.shape[:-1], -torch.inf)
        for j in range(0, key.shape[-2], tile_size):
            if is_causal and j > i + rows.shape[-2] - 1:
                continue
            scores = rows @ key[..., j : j + tile_size, :].mT / math.sqrt(query.shape[-1])
            if is_causal:
                scores = scores.where(causal(i, j, *scores.shape[-2:]), -torch.inf)
            top = scores.amax(-1)
            safe = torch.where(top == -torch.inf, 0.0, top)
            parts = (scores - safe[..., None]).exp()
            total = parts.sum(-1)
            one = parts @ value[..., j : j + tile_size, :] / total.clamp(min=1e-30)[..., None]
            mine = torch.where(total == 0, -torch.inf, safe + total.clamp(min=1e-30).log())
            high = torch.maximum(lse, mine)
            old, new = (lse - high).exp(), (mine - high).exp()
            output = (output * old[..., None] + one * new[..., None]) / (old + new)[..., None]
            lse = high + (old + new).log()
        outputs.append(output)
        sums.append(lse)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


@variant(of="tiled_attention")
def tiled_keys_outside(query, key, value, tile_size, is_causal=False):
    # the loop order of the first paper: keys outside, queries inside
    length = query.shape[-2]
    top = query.new_full(query.shape[:-1], -1e30)
    total = torch.zeros_like(top)
    output = query.new_zeros(*query.shape[:-1], value.shape[-1])
    for j in range(0, key.shape[-2], tile_size):
        for i in range(0, length, tile_size):
            at = (..., slice(i, i + tile_size))
            scores = torch.einsum(
                "...le,...se->...ls", query[(*at, slice(None))], key[..., j : j + tile_size, :]
            ) / math.sqrt(query.shape[-1])
            allowed = causal(i, j, *scores.shape[-2:]) if is_causal else torch.tensor(True)
            scores = torch.where(allowed, scores, -1e30)
            new = torch.maximum(top[at], scores.amax(-1))
            weights = torch.where(allowed, (scores - new[..., None]).exp(), 0.0)
            rescale = (top[at] - new).exp()
            total[at] = total[at] * rescale + weights.sum(-1)
            rows = (*at, slice(None))
            output[rows] = output[rows] * rescale[..., None]
            output[rows] += weights @ value[..., j : j + tile_size, :]
            top[at] = new
    return output / total[..., None], top + total.log()


@variant(of="tile_kinds")
def kinds_by_counting(query_length, key_length, query_tile, key_tile):
    allowed = torch.ones(query_length, key_length).tril()
    table = []
    for rows in allowed.split(query_tile):
        tiles = rows.split(key_tile, dim=1)
        table.append([int(t.max()) + int(t.min()) for t in tiles])
    return torch.tensor(table)


@variant(of="tile_kinds")
def kinds_row_by_row(query_length, key_length, query_tile, key_tile):
    table = []
    for i in range(0, query_length, query_tile):
        last = min(i + query_tile, query_length) - 1
        row = []
        for j in range(0, key_length, key_tile):
            end = min(j + key_tile, key_length) - 1
            row.append(0 if j > last else 2 if end <= i else 1)
        table.append(row)
    return torch.tensor(table)


@variant(of="tile_kinds")
def kinds_by_corners(query_length, key_length, query_tile, key_tile):
    first_query = torch.arange(0, query_length, query_tile)[:, None]
    first_key = torch.arange(0, key_length, key_tile)
    last_query = (first_query + query_tile - 1).clamp(max=query_length - 1)
    last_key = (first_key + key_tile - 1).clamp(max=key_length - 1)
    return (first_key <= last_query).long() + (last_key <= first_query).long()


def gradient_tiles(query, key, value, output, lse, grad_output, tile_size):
    root = math.sqrt(query.shape[-1])
    mean = torch.einsum("...lv,...lv->...l", grad_output, output)
    for i in range(0, query.shape[-2], tile_size):
        for j in range(0, key.shape[-2], tile_size):
            rows, keys = slice(i, i + tile_size), slice(j, j + tile_size)
            scores = torch.matmul(query[..., rows, :], key[..., keys, :].transpose(-1, -2)) / root
            weights = torch.exp(scores - lse[..., rows].unsqueeze(-1))
            wanted = torch.matmul(grad_output[..., rows, :], value[..., keys, :].transpose(-1, -2))
            yield rows, keys, weights, weights * (wanted - mean[..., rows, None]) / root


@variant(of="flash_backward")
def backward_by_rows(query, key, value, output, lse, grad_output, tile_size):
    grad_query = torch.zeros_like(query)
    grad_key, grad_value = torch.zeros_like(key), torch.zeros_like(value)
    parts = query, key, value, output, lse, grad_output, tile_size
    for rows, keys, weights, grad_scores in gradient_tiles(*parts):
        grad_query[..., rows, :] += grad_scores @ key[..., keys, :]
        grad_key[..., keys, :] += grad_scores.transpose(-1, -2) @ query[..., rows, :]
        grad_value[..., keys, :] += weights.transpose(-1, -2) @ grad_output[..., rows, :]
    return grad_query, grad_key, grad_value


@variant(of="flash_backward")
def backward_two_passes(query, key, value, output, lse, grad_output, tile_size):
    # once for the queries, once for keys and values, as the kernels do it
    parts = query, key, value, output, lse, grad_output, tile_size
    grad_query = torch.zeros_like(query)
    for rows, keys, _, grad_scores in gradient_tiles(*parts):
        grad_query[..., rows, :] += torch.einsum(
            "...ls,...se->...le", grad_scores, key[..., keys, :]
        )
    grad_key, grad_value = torch.zeros_like(key), torch.zeros_like(value)
    for rows, keys, weights, grad_scores in gradient_tiles(*parts):
        grad_key[..., keys, :] += torch.einsum(
            "...ls,...le->...se", grad_scores, query[..., rows, :]
        )
        grad_value[..., keys, :] += torch.einsum(
            "...ls,...lv->...sv", weights, grad_output[..., rows, :]
        )
    return grad_query, grad_key, grad_value


@variant(of="fixed_streaming")
def streaming_by_merging(query, key, value, tile_size):
    return tiled_by_merging(query, key, value, tile_size)[0]


@variant(of="fixed_streaming")
def streaming_key_by_key(query, key, value, tile_size):
    return tiled_keys_outside(query, key, value, 1)[0]


@triton.jit
def backward_walk_kernel(q, k, v, o, L, S, scale, E: tl.constexpr):
    # a program has one query, starts at its own key and goes backwards, in powers of two
    row, e, lane = tl.program_id(0), tl.arange(0, E), tl.arange(0, 16)
    query = tl.load(q + row * E + e) * scale * 1.4426950408889634
    top, total, output = -float("inf"), 0.0, tl.zeros([E], tl.float32)
    last = tl.minimum(row + 1, S)
    for step in range(0, tl.cdiv(last, 16)):
        column = last - 1 - step * 16 - lane
        at = column[:, None] * E + e[None, :]
        key = tl.load(k + at, mask=column[:, None] >= 0, other=0.0)
        value = tl.load(v + at, mask=column[:, None] >= 0, other=0.0)
        scores = tl.where(column >= 0, tl.sum(key * query[None, :], axis=1), -float("inf"))
        new = tl.maximum(top, tl.max(scores, axis=0))
        weights = tl.exp2(scores - new)
        rescale = tl.exp2(top - new)
        total = total * rescale + tl.sum(weights, axis=0)
        output = output * rescale + tl.sum(weights[:, None] * value, axis=0)
        top = new
    tl.store(o + row * E + e, output / total)


@variant(of="flash_causal")
def causal_by_single_queries(query, key, value):
    output = torch.empty_like(query)
    (L, E), S = query.shape, len(key)
    backward_walk_kernel[(L,)](query, key, value, output, L, S, 1 / math.sqrt(E), E=E)
    return output


@variant(of="flash_causal")
def causal_by_rows(query, key, value):
    rows = []
    for i, row in enumerate(query):
        scores = key[: i + 1] @ row / math.sqrt(len(row))
        weights = (scores - scores.max()).exp()
        rows.append(weights @ value[: i + 1] / weights.sum())
    return torch.stack(rows)
