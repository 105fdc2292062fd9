"""What the tests of the set judge by."""

import numpy as np

from attn_course.probes import Probes, from_numpy


def right_band(query, key, half):
    length = query.shape[-2]
    band = np.full((*query.shape[:-1], 2 * half + 1), -np.inf)
    for i in range(length):
        for j in range(max(0, i - half), min(length, i + half + 1)):
            band[..., i, j - i + half] = (query[..., i, :] * key[..., j, :]).sum(-1)
    return band


def right_rows(scores, value):
    # Attention of rows of scores, and their log-sum-exp.
    top = scores.max(-1, keepdims=True)
    parts = np.exp(scores - top)
    total = parts.sum(-1, keepdims=True)
    return parts @ value / total, (top + np.log(total))[..., 0]


def right_window(query, key, value, window_size, tile_size):
    outputs, sums = [], []
    for i in range(query.shape[-2]):
        near = slice(max(0, i - window_size + 1), i + 1)
        scores = query[..., i : i + 1, :] @ np.swapaxes(key[..., near, :], -1, -2)
        output, lse = right_rows(scores / query.shape[-1] ** 0.5, value[..., near, :])
        outputs.append(output)
        sums.append(lse)
    return np.concatenate(outputs, -2), np.concatenate(sums, -1)


def right_merge(outputs, lses):
    top = lses.max(0)
    safe = np.where(np.isinf(top), 0.0, top)
    shares = np.exp(lses - safe)
    total = shares.sum(0)
    some = np.where(total > 0, total, 1.0)
    output = (shares[..., None] * outputs).sum(0) / some[..., None]
    return output, np.where(total > 0, safe + np.log(some), -np.inf)


def right_paged(query, key_cache, value_cache, block_table, lengths):
    output = np.zeros((*query.shape[:-1], value_cache.shape[-1]))
    page_size, kv_heads = key_cache.shape[1:3]
    group = query.shape[1] // kv_heads
    for b, length in enumerate(lengths):
        places = [divmod(j, page_size) for j in range(int(length))]
        for h in range(query.shape[1] if places else 0):
            keys, values = (
                np.stack([cache[block_table[b, page], slot, h // group] for page, slot in places])
                for cache in (key_cache, value_cache)
            )
            scores = keys @ query[b, h] / query.shape[-1] ** 0.5
            output[b, h] = right_rows(scores[None], values)[0][0]
    return output


def right_split(query, key, value, pieces):
    scores = (key @ query[..., None])[..., 0] / query.shape[-1] ** 0.5
    return right_rows(scores[..., None, :], value)[0][..., 0, :]


probes = Probes(
    "18_banded_and_decode",
    banded_scores=from_numpy(right_band),
    sliding_window_forward=from_numpy(right_window),
    merge_partials=from_numpy(right_merge),
    paged_attention=from_numpy(right_paged),
    fixed_split=from_numpy(right_split),
)
