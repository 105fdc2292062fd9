"""What the tests of the set judge by."""

import numpy as np
import torch

from attn_course import masks, reference
from attn_course.probes import Probes, from_numpy
from attn_course.train import bleu as corpus_bleu
from attn_course.train import label_smoothing_loss


def right_shift(target_out, bos, eos, pad=0):
    rows = [[bos, *(int(i) for i in row if i not in (eos, pad))] for row in target_out]
    width = target_out.shape[1]
    return torch.tensor([(row + [pad] * width)[:width] for row in rows])


def right_mask(target_in, pad=0):
    return masks.causal_mask(target_in.shape[1]) & (target_in != pad)[:, None, None, :]


def right_cross(x, memory, weight_query, weight_key, weight_value, memory_mask=None):
    query, key, value = x @ weight_query.T, memory @ weight_key.T, memory @ weight_value.T
    mask = None if memory_mask is None else memory_mask[:, None, None, :]
    lifted = (part[:, None] for part in (query, key, value))
    return reference.scaled_dot_product_attention(*lifted, mask)[:, 0]


def right_smoothed(logits, target_out, smoothing, pad=0):
    return label_smoothing_loss(logits, target_out, smoothing=smoothing, pad=pad)


def right_bleu(candidates, references, max_order=4):
    return corpus_bleu(candidates, references, max_order=max_order).score


def right_looks(x, memory):
    past = np.tri(x.shape[1], dtype=bool)
    own = reference.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], past)
    x = x + own[:, 0]
    source = memory[:, None]
    return x + reference.scaled_dot_product_attention(x[:, None], source, source)[:, 0]


probes = Probes(
    "10_encoder_decoder",
    shift_right=right_shift,
    decoder_mask=right_mask,
    cross_attention=from_numpy(right_cross),
    label_smoothed_loss=right_smoothed,
    bleu=right_bleu,
    fixed_decoder_looks=from_numpy(right_looks),
)
