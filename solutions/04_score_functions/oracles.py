"""What the tests of the set judge by."""

import torch

from attn_course import functional, reference
from attn_course.probes import Probes


def right_local_m(scores, lengths, half_width):
    steps = torch.arange(scores.shape[1]).numpy()
    mask = reference.local_m_mask(steps, lengths.numpy(), half_width, scores.shape[2])
    weights = reference.masked_softmax(scores.numpy(), mask)
    return torch.from_numpy(weights).to(scores.dtype)


def right_local_p(scores, position, lengths, half_width):
    real = torch.arange(scores.shape[2]) < lengths[:, None, None]
    return functional.local_p_weights(scores, position, half_width, real)


def right_attention(query, key, value, mask):
    arrays = [part.numpy() for part in (query, key, value)]
    output, _ = reference.attention(*arrays, attn_mask=mask[:, None].numpy())
    return torch.from_numpy(output).to(query.dtype)


probes = Probes(
    "04_score_functions",
    scaled_dot_score=reference.scaled_dot_score,
    general_score=reference.general_score,
    concat_score=reference.concat_score,
    location_score=reference.location_score,
    cosine_score=reference.cosine_score,
    local_m_weights=right_local_m,
    local_p_weights=right_local_p,
    fixed_attention=right_attention,
)
