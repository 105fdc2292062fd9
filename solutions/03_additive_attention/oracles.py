"""What the tests of the set judge by."""

from functools import partial

import numpy as np

from attn_course import reference, train
from attn_course.probes import Probes, from_numpy


def right_score(query, key, weight_query, weight_key, v):
    return reference.additive_score(
        query, key, weight_query=weight_query, weight_key=weight_key, v=v
    )


def right_weights(scores, lengths):
    real = np.arange(scores.shape[-1]) < lengths[:, None, None]
    return reference.masked_softmax(scores, real)


def right_rate(weights, alignment):
    return train.alignment_error_rate(weights, alignment) if bool((alignment >= 0).any()) else 0.0


def right_attend(query, key, value, lengths, weight_query, weight_key, v):
    score = partial(reference.additive_score, weight_query=weight_query, weight_key=weight_key, v=v)
    real = np.arange(key.shape[1]) < lengths[:, None, None]
    return reference.attention(query[:, None], key, value, score=score, attn_mask=real)[0][:, 0]


probes = Probes(
    "03_additive_attention",
    additive_score=from_numpy(right_score),
    padded_weights=from_numpy(right_weights),
    alignment_error_rate=right_rate,
    fixed_attend=from_numpy(right_attend),
)
