"""What the tests of the set judge by."""

import numpy as np

from attn_course import reference
from attn_course.probes import Probes, from_numpy


def right_hash(vectors, rotations):
    along = np.einsum("...le,ren->...rln", vectors, rotations)
    return np.concatenate([along, -along], axis=-1).argmax(-1)


def right_bucket_attention(query, value, buckets, chunk_size):
    length, output = len(query), np.zeros_like(value)
    key = query / np.sqrt((query**2).sum(-1, keepdims=True))
    order = sorted(range(length), key=lambda i: (buckets[i], i))
    chunk = {i: rank // chunk_size for rank, i in enumerate(order)}
    for i in range(length):
        seen = [
            j
            for j in range(length)
            if j != i and buckets[j] == buckets[i] and 0 <= chunk[i] - chunk[j] <= 1
        ] or [i]
        scores = np.array([query[i] @ key[j] for j in seen])
        parts = np.exp(scores - scores.max())
        output[i] = parts @ value[seen] / parts.sum()
    return output


def right_linformer(query, key, value, mix_keys, mix_values):
    length = key.shape[-2]
    short = mix_keys[:, :length] @ key, mix_values[:, :length] @ value
    scores = query @ np.swapaxes(short[0], -1, -2) / np.sqrt(query.shape[-1])
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return parts @ short[1] / parts.sum(-1, keepdims=True)


def right_linear(query, key, value, memory, total):
    rows = []
    for i in range(query.shape[-2]):
        memory = memory + key[..., i, :, None] * value[..., i, None, :]
        total = total + key[..., i, :]
        found = (query[..., i, None, :] @ memory)[..., 0, :]
        rows.append(found / (query[..., i, :] * total).sum(-1, keepdims=True))
    return np.stack(rows, axis=-2), memory, total


def right_delta(query, key, value, beta, memory):
    rows = []
    for t in range(query.shape[-2]):
        k = key[..., t, :]
        keep = np.eye(k.shape[-1]) - beta[..., t, None, None] * k[..., :, None] * k[..., None, :]
        new = beta[..., t, None, None] * value[..., t, :, None] * k[..., None, :]
        memory = memory @ keep + new
        rows.append((memory @ query[..., t, :, None])[..., 0])
    return np.stack(rows, axis=-2), memory


def right_merge(outputs, lses):
    return reference.merge_attention(list(outputs), list(lses))[0]


probes = Probes(
    "15_hashing_and_low_rank",
    hash_buckets=from_numpy(right_hash),
    bucket_attention=from_numpy(right_bucket_attention),
    linformer_attention=from_numpy(right_linformer),
    linear_attention=from_numpy(right_linear),
    delta_rule=from_numpy(right_delta),
    fixed_merge=from_numpy(right_merge),
)
