"""What the tests of the set judge by."""

import numpy as np
import torch

from attn_course import reference
from attn_course.probes import Probes, from_numpy


def right_dilated(length, window_size, dilation, is_global):
    mask = np.zeros((length, length), dtype=bool)
    for i in range(length):
        for step in range(-(window_size // 2), window_size // 2 + 1):
            if 0 <= i + step * dilation < length:
                mask[i, i + step * dilation] = True
        for j in range(length):
            if is_global[i] or is_global[j]:
                mask[i, j] = True
    return mask


def right_strided(length, stride):
    masks = np.zeros((2, length, length), dtype=bool)
    for i in range(length):
        for j in range(i + 1):
            masks[0, i, j] = i - j < stride
            masks[1, i, j] = (i - j) % stride == 0
    return masks


def right_reach(masks):
    return reference.receptive_field(list(masks))[-1]


def right_band(query, key, value, half_width):
    rows = (x[None, None] for x in (query, key, value))
    return reference.sliding_window_attention(*rows, window_size=2 * half_width + 1)[0, 0]


def right_global(query, key, value, global_query, global_key, global_value, mask, is_global):
    def rows(*parts, allowed):
        three = (x[None, None] for x in parts)
        return reference.scaled_dot_product_attention(*three, allowed[None, None])[0, 0]

    local = rows(query, key, value, allowed=mask)
    everywhere = rows(global_query, global_key, global_value, allowed=np.ones_like(mask))
    return np.where(is_global[:, None], everywhere, local)


probes = Probes(
    "14_sparse_attention",
    dilated_mask=from_numpy(right_dilated),
    strided_masks=lambda length, stride: torch.from_numpy(right_strided(length, stride)),
    receptive_field=from_numpy(right_reach),
    band_attention=from_numpy(right_band),
    global_attention=from_numpy(right_global),
    fixed_band=from_numpy(right_band),
)
