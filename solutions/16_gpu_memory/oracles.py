"""What the tests of the set judge by."""

import numpy as np

from attn_course.probes import Probes, from_numpy


def right_copy(x, block_size):
    return x.clone()


def right_softmax(scores):
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def right_product(a, b):
    return np.einsum("mk,kn->mn", a, b)


def right_roofline(flops, nbytes, peak_flops, bandwidth):
    return flops / max(flops / peak_flops, nbytes / bandwidth)


probes = Probes(
    "16_gpu_memory",
    blocked_copy=right_copy,
    row_softmax=from_numpy(right_softmax),
    tiled_matmul=from_numpy(right_product),
    roofline=right_roofline,
    fixed_row_max=lambda x: x.amax(-1),
)
