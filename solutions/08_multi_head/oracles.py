"""What the tests of the set judge by."""

import numpy as np
import torch

from attn_course import reference
from attn_course.probes import Probes, from_numpy


def right_heads(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    def split(x, weight):
        return np.stack(np.split(x @ weight.T, num_heads, axis=-1), axis=1)  # (B, H, ...)

    parts = split(query, w_q), split(key, w_k), split(value, w_v)
    output = reference.scaled_dot_product_attention(*parts, attn_mask)
    return np.concatenate([output[:, h] for h in range(num_heads)], axis=-1) @ w_o.T


def right_sinusoids(length, embed_dim):
    return torch.from_numpy(reference.sinusoidal_positions(length, embed_dim)).float()


def right_alibi(num_heads, query_length, key_length):
    return torch.from_numpy(reference.alibi_bias(num_heads, query_length, key_length)).float()


def right_low_rank(weights, value, w_v, w_o):
    return np.einsum("ls,sd,ed,oe->lo", weights, value, w_v, w_o)


def right_causal_heads(x, w_q, w_k, w_v, w_o, num_heads):
    past = np.tri(x.shape[1], dtype=bool)
    return right_heads(x, x, x, w_q, w_k, w_v, w_o, num_heads, past)


probes = Probes(
    "08_multi_head",
    multi_head_attention=from_numpy(right_heads),
    sinusoidal_positions=right_sinusoids,
    apply_rope=from_numpy(reference.apply_rope),
    alibi_bias=right_alibi,
    low_rank_value=from_numpy(right_low_rank),
    fixed_causal_heads=from_numpy(right_causal_heads),
)
