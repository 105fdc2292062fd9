"""Right answers to the exercises on bands, merged pieces and pages, written differently."""

import torch

from attn_course.probes import variant


@variant(of="banded_scores")
def band_by_shifts(query, key, half):
    # the keys are shifted
    length = query.shape[-2]
    padded = torch.nn.functional.pad(key, (0, 0, half, half))
    columns = []
    for c in range(2 * half + 1):
        products = torch.einsum("...le,...le->...l", query, padded[..., c : c + length, :])
        place = torch.arange(length) + c - half
        columns.append(products.where((place >= 0) & (place < length), -torch.inf))
    return torch.stack(columns, dim=-1)


@variant(of="banded_scores")
def band_by_rows(query, key, half):
    # a loop over queries, as the naive version does
    length, rows = query.shape[-2], []
    for i in range(length):
        first, last = max(0, i - half), min(length, i + half + 1)
        row = query.new_full((*query.shape[:-2], 2 * half + 1), -float("inf"))
        near = key[..., first:last, :]
        row[..., first - i + half : last - i + half] = (near @ query[..., i, :, None])[..., 0]
        rows.append(row)
    return torch.stack(rows, dim=-2)


@variant(of="sliding_window_forward")
def window_online(query, key, value, window_size, tile_size):
    # tiles of keys, a running maximum, sum and mixture
    length, scale = query.shape[-2], query.shape[-1] ** -0.5
    output = query.new_zeros(*query.shape[:-1], value.shape[-1])
    lse = query.new_zeros(query.shape[:-1])
    for i in range(0, length, tile_size):
        rows = torch.arange(i, min(i + tile_size, length))
        top = query.new_full((*query.shape[:-2], len(rows)), -torch.inf)
        total, mixture = torch.zeros_like(top), output[..., rows, :]
        begin = max(0, i - window_size + 1) // tile_size * tile_size
        for j in range(begin, i + len(rows), tile_size):
            columns = torch.arange(j, min(j + tile_size, length))
            away = rows[:, None] - columns
            scores = query[..., rows, :] @ key[..., columns, :].mT * scale
            scores = scores.masked_fill((away < 0) | (away >= window_size), -torch.inf)
            new = torch.maximum(top, scores.amax(-1))
            shift = torch.where(new == -torch.inf, 0.0, new)
            weights, rescale = (scores - shift[..., None]).exp(), (top - shift).exp()
            total = total * rescale + weights.sum(-1)
            mixture = mixture * rescale[..., None] + weights @ value[..., columns, :]
            top = new
        output[..., rows, :] = mixture / total[..., None]
        lse[..., rows] = top + total.log()
    return output, lse


@variant(of="sliding_window_forward")
def window_by_merging(query, key, value, window_size, tile_size):
    # the keys before the tile and the keys of the tile, each with a log-sum-exp, then merged
    def part(rows, columns):
        scores = torch.einsum("...le,...se->...ls", query[..., rows, :], key[..., columns, :])
        away = rows[:, None] - columns
        closed = (away < 0) | (away >= window_size)
        scores = (scores / query.shape[-1] ** 0.5).masked_fill(closed, -torch.inf)
        lse = torch.logsumexp(scores, -1)
        safe = torch.where(lse == -torch.inf, 0.0, lse)
        return (scores - safe[..., None]).exp() @ value[..., columns, :], lse

    outputs, sums = [], []
    for i in range(0, query.shape[-2], tile_size):
        rows = torch.arange(i, min(i + tile_size, query.shape[-2]))
        output, lse = part(rows, rows)
        if i and window_size > 1:
            before, more = part(rows, torch.arange(max(0, i - window_size + 1), i))
            joined = torch.logaddexp(lse, more)
            shares = (lse - joined).exp(), (more - joined).exp()
            output = shares[0][..., None] * output + shares[1][..., None] * before
            lse = joined
        outputs.append(output)
        sums.append(lse)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


@variant(of="merge_partials")
def merge_two_by_two(outputs, lses):
    output, lse = outputs[0], lses[0]
    for other, more in zip(outputs[1:], lses[1:], strict=True):
        joined = torch.logaddexp(lse, more)
        safe = torch.where(joined == -torch.inf, 0.0, joined)
        output = (lse - safe).exp()[..., None] * output + (more - safe).exp()[..., None] * other
        lse = joined
    return torch.where((lse == -torch.inf)[..., None], 0.0, output), lse


@variant(of="merge_partials")
def merge_by_softmax(outputs, lses):
    lse = torch.logsumexp(lses, dim=0)
    shares = torch.softmax(lses, dim=0).nan_to_num(0.0)  # NaN where no piece has a key
    return torch.einsum("p...,p...v->...v", shares, outputs), lse


@variant(of="paged_attention")
def paged_by_gathering(query, key_cache, value_cache, block_table, lengths):
    # all pages of all texts; slots after a length are replaced before use
    most = block_table.shape[1]
    page_size, heads = key_cache.shape[1:3]
    behind = torch.arange(most * page_size) >= lengths[:, None]
    gathered = [
        cache[block_table.clamp(min=0)].flatten(1, 2).masked_fill(behind[..., None, None], 0.0)
        for cache in (key_cache, value_cache)
    ]  # (B, most · P, G, E)
    grouped = query.unflatten(1, (heads, -1))  # (B, G, H / G, E)
    scores = torch.einsum("bgme,bsge->bgms", grouped, gathered[0]) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(behind[:, None, None], -torch.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bgms,bsgv->bgmv", weights, gathered[1]).flatten(1, 2)


@variant(of="paged_attention")
def paged_page_by_page(query, key_cache, value_cache, block_table, lengths):
    # a running maximum, sum and mixture over the pages
    size, group = key_cache.shape[1], query.shape[1] // key_cache.shape[2]
    rows = []
    for b in range(query.shape[0]):
        top = query.new_full((query.shape[1], 1), -torch.inf)
        total = torch.zeros_like(top)
        mixture = query.new_zeros(query.shape[1], value_cache.shape[-1])
        for number in range(-(-int(lengths[b]) // size)):
            page = int(block_table[b, number])
            filled = min(size, int(lengths[b]) - number * size)
            key = key_cache[page, :filled].transpose(0, 1).repeat_interleave(group, 0)
            value = value_cache[page, :filled].transpose(0, 1).repeat_interleave(group, 0)
            scores = (key @ query[b, :, :, None])[..., 0] / query.shape[-1] ** 0.5
            new = torch.maximum(top, scores.amax(1, keepdim=True))
            weights, rescale = (scores - new).exp(), (top - new).exp()
            total = total * rescale + weights.sum(1, keepdim=True)
            mixture = mixture * rescale + (weights[..., None] * value).sum(1)
            top = new
        rows.append(mixture / torch.where(total == 0, 1.0, total))
    return torch.stack(rows)


@variant(of="fixed_split")
def split_by_chunks(query, key, value, pieces):
    top = query.new_full(query.shape[:-1], -torch.inf)
    total, mixture = torch.zeros_like(top), 0.0
    for keys, values in zip(key.chunk(pieces, -2), value.chunk(pieces, -2), strict=True):
        scores = torch.einsum("...se,...e->...s", keys, query) / query.shape[-1] ** 0.5
        new = torch.maximum(top, scores.amax(-1))
        weights, rescale = (scores - new[..., None]).exp(), (top - new).exp()
        total = total * rescale + weights.sum(-1)
        mixture = mixture * rescale[..., None] + torch.einsum("...s,...sv->...v", weights, values)
        top = new
    return mixture / total[..., None]


@variant(of="fixed_split")
def split_key_by_key(query, key, value, pieces):
    scores = (key * query[..., None, :]).sum(-1) / query.shape[-1] ** 0.5
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return torch.einsum("...s,...sv->...v", weights, value) / weights.sum(-1, keepdim=True)
