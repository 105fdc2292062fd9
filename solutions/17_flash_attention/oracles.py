"""What the tests of the set judge by."""

import numpy as np
import torch

from attn_course.probes import Probes, from_numpy


def right_logsumexp(scores, block_size):
    top = scores.max(-1, keepdims=True)
    top = np.where(np.isinf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(scores - top).sum(-1)) + top[..., 0]


def right_scores(query, key, is_causal=False):
    scores = query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return scores


def right_tiled(query, key, value, tile_size, is_causal=False):
    scores = right_scores(query, key, is_causal)
    lse = right_logsumexp(scores, tile_size)
    return np.exp(scores - lse[..., None]) @ value, lse


def right_kinds(query_length, key_length, query_tile, key_tile):
    allowed = np.tri(query_length, key_length, dtype=bool)
    kinds = [
        [2 if tile.all() else int(tile.any()) for tile in columns]
        for columns in (
            [allowed[i : i + query_tile, j : j + key_tile] for j in range(0, key_length, key_tile)]
            for i in range(0, query_length, query_tile)
        )
    ]
    return torch.tensor(kinds)


def right_backward(query, key, value, output, lse, grad_output, tile_size):
    scale = query.shape[-1] ** -0.5
    weights = np.exp(right_scores(query, key) - lse[..., None])
    grad_weights = grad_output @ np.swapaxes(value, -1, -2)
    mean = (weights * grad_weights).sum(-1, keepdims=True)
    grad_scores = weights * (grad_weights - mean) * scale
    turned = np.swapaxes(grad_scores, -1, -2)
    return grad_scores @ key, turned @ query, np.swapaxes(weights, -1, -2) @ grad_output


def right_causal(query, key, value):
    # Row by row, so that masked keys cannot influence a row.
    rows = [
        right_tiled(query[i : i + 1], key[: i + 1], value[: i + 1], 1)[0] for i in range(len(query))
    ]
    return np.concatenate(rows)


def forward_of(query, key, value):
    # What the forward pass keeps for the backward pass: output and log-sum-exp.
    output, lse = right_tiled(*(part.double().numpy() for part in (query, key, value)), 1)
    return torch.from_numpy(output).to(query.dtype), torch.from_numpy(lse).to(query.dtype)


def right_streaming(query, key, value, tile_size):
    return right_tiled(query, key, value, tile_size)[0]


probes = Probes(
    "17_flash_attention",
    online_logsumexp=from_numpy(right_logsumexp),
    tiled_attention=from_numpy(right_tiled),
    tile_kinds=right_kinds,
    flash_backward=from_numpy(right_backward),
    flash_causal=from_numpy(right_causal),
    fixed_streaming=from_numpy(right_streaming),
)
