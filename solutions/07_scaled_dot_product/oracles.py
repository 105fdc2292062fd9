"""What the tests of the set judge by."""

import numpy as np
import torch

from attn_course import reference
from attn_course.probes import Probes, from_numpy


def right_attention(query, key, value, attn_mask=None):
    lifted = [x.reshape((1,) * (4 - x.ndim) + x.shape) for x in (query, key, value)]  # (B, H, ...)
    output = reference.scaled_dot_product_attention(*lifted, attn_mask)
    return output.reshape(*query.shape[:-1], value.shape[-1])


def right_causal_mask(query_length, key_length):
    return torch.from_numpy(np.tri(query_length, key_length, dtype=bool))


def right_reach(mask, layers):
    reached = np.eye(len(mask), dtype=bool)
    for _ in range(layers):
        reached = reached | (mask.astype(int) @ reached.astype(int) > 0)
    return reached


def right_product(query, key, value):
    return np.einsum("...le,...se,...sv->...lv", query, key, value) / query.shape[-1] ** 0.5


def right_self_attention(x, weight_query, weight_key, weight_value):
    past = np.tri(x.shape[1], dtype=bool)
    return right_attention(x @ weight_query.T, x @ weight_key.T, x @ weight_value.T, past)


probes = Probes(
    "07_scaled_dot_product",
    scaled_dot_product_attention=from_numpy(right_attention),
    causal_mask=right_causal_mask,
    attention_with_bias=from_numpy(right_attention),
    reachable=from_numpy(right_reach),
    attention_without_softmax=from_numpy(right_product),
    fixed_self_attention=from_numpy(right_self_attention),
)
