"""Right answers to the exercises on score functions, written differently."""

import torch
from torch.nn import functional as F

from attn_course.probes.catalogue import variant


@variant(of="scaled_dot_score")
def scaled_query_first(query, key, scale=None):
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return torch.matmul(query * factor, key.mT)


@variant(of="scaled_dot_score")
def scaled_by_einsum(query, key, scale=None):
    scores = torch.einsum("...le,...se->...ls", query, key)
    return scores / query.shape[-1] ** 0.5 if scale is None else scores * scale


@variant(of="general_score")
def general_keys_first(query, key, weight):
    return query @ (key @ weight.T).mT


@variant(of="general_score")
def general_bilinear(query, key, weight):
    return torch.einsum("...le,ef,...sf->...ls", query, weight, key)


@variant(of="concat_score")
def concat_by_columns(query, key, weight, v):
    size = query.shape[-1]
    asked = query @ weight[:, :size].mT
    answers = key @ weight[:, size:].mT
    return torch.tanh(asked[..., :, None, :] + answers[..., None, :, :]) @ v


@variant(of="concat_score")
def concat_query_by_query(query, key, weight, v):
    rows = []
    for i in range(query.shape[-2]):
        one = query[..., i : i + 1, :].expand(*key.shape[:-1], -1)
        rows.append(torch.tanh(torch.cat([one, key], dim=-1) @ weight.T) @ v)
    return torch.stack(rows, dim=-2)


@variant(of="location_score")
def location_cut_afterwards(query, key, weight):
    return (query @ weight.T)[..., : key.shape[-2]]


@variant(of="location_score")
def location_by_einsum(query, key, weight):
    return torch.einsum("...le,se->...ls", query, weight.narrow(0, 0, key.shape[-2]))


@variant(of="cosine_score")
def cosine_by_torch(query, key, sharpness=1.0):
    return sharpness * F.cosine_similarity(query.unsqueeze(-2), key.unsqueeze(-3), dim=-1)


@variant(of="cosine_score")
def cosine_of_unit_vectors(query, key, sharpness=1.0):
    return sharpness * F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT


@variant(of="local_m_weights")
def local_m_by_exponentials(scores, lengths, half_width):
    places = torch.arange(scores.shape[2])
    mask = (places - torch.arange(scores.shape[1])[:, None]).abs() <= half_width
    mask = mask & (places < lengths[:, None, None])
    raised = (scores - scores.amax(-1, keepdim=True)).exp() * mask
    return raised / raised.sum(-1, keepdim=True).clamp(min=1e-30)


@variant(of="local_m_weights")
def local_m_in_loops(scores, lengths, half_width):
    weights = torch.zeros_like(scores)
    for b, length in enumerate(lengths.tolist()):
        for t in range(scores.shape[1]):
            first, last = max(0, t - half_width), min(length, t + half_width + 1)
            if first < last:
                weights[b, t, first:last] = scores[b, t, first:last].softmax(-1)
    return weights


@variant(of="local_p_weights")
def local_p_by_logarithms(scores, position, lengths, half_width):
    places = torch.arange(scores.shape[2])
    distance = places - position.unsqueeze(-1)
    mask = (distance.abs() <= half_width) & (places < lengths[:, None, None])
    logs = scores.masked_fill(~mask, -torch.inf).log_softmax(-1)
    return torch.exp(logs - 2 * (distance / half_width) ** 2)


@variant(of="local_p_weights")
def local_p_row_by_row(scores, position, lengths, half_width):
    rows = []
    for b in range(scores.shape[0]):
        for t in range(scores.shape[1]):
            distance = torch.arange(scores.shape[2]) - position[b, t]
            inside = (distance.abs() <= half_width) & (torch.arange(scores.shape[2]) < lengths[b])
            row = torch.where(inside, scores[b, t], -torch.inf).softmax(-1)
            rows.append(row * torch.exp(-0.5 * (distance / (half_width / 2)) ** 2))
    return torch.stack(rows).view_as(scores)


@variant(of="unroll_fed")
def fed_by_splitting(cell, look, words, state):
    fed, out = state.new_zeros(state.shape), words.new_zeros(*words.shape[:2], state.shape[1])
    for t, word in enumerate(words.unbind(dim=1)):
        state = cell(torch.hstack([word, fed]), state)
        fed = look(state)
        out[:, t] = fed
    return out


@variant(of="unroll_fed")
def fed_recursively(cell, look, words, state, fed=None):
    fed = torch.zeros_like(state) if fed is None else fed
    state = cell(torch.cat([words[:, 0], fed], dim=1), state)
    vector = look(state)
    if words.shape[1] == 1:
        return vector[:, None]
    return torch.cat([vector[:, None], fed_recursively(cell, look, words[:, 1:], state, vector)], 1)
