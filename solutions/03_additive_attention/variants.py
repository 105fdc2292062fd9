"""Right answers to the additive-attention exercises, written differently."""

import torch
from torch.nn import functional as F

from attn_course.probes.catalogue import variant


@variant(of="additive_score")
def score_by_einsum(query, key, weight_query, weight_key, v):
    asked = torch.einsum("...le,ae->...la", query, weight_query)
    offered = torch.einsum("...se,ae->...sa", key, weight_key)
    hidden = torch.tanh(asked[..., :, None, :] + offered[..., None, :, :])
    return torch.einsum("...lsa,a->...ls", hidden, v)


@variant(of="additive_score")
def score_query_by_query(query, key, weight_query, weight_key, v):
    offered = F.linear(key, weight_key)
    rows = []
    for i in range(query.shape[-2]):
        asked = F.linear(query[..., i, :], weight_query)
        rows.append((torch.tanh(asked.unsqueeze(-2) + offered) * v).sum(-1))
    return torch.stack(rows, dim=-2)


@variant(of="additive_score")
def score_of_pairs(query, key, weight_query, weight_key, v):
    # one matrix over the concatenation [q; k] is the sum of two matrices
    size = (*query.shape[:-1], key.shape[-2], -1)
    pairs = torch.cat([query.unsqueeze(-2).expand(size), key.unsqueeze(-3).expand(size)], dim=-1)
    return torch.tanh(pairs @ torch.cat([weight_query, weight_key], dim=1).T) @ v


@variant(of="padded_weights")
def weights_with_where(scores, lengths):
    real = torch.arange(scores.shape[-1])[None, None, :] < lengths[:, None, None]
    lowest = torch.finfo(scores.dtype).min
    weights = torch.where(real, scores, lowest).softmax(dim=-1)
    return torch.where(real, weights, 0.0)


@variant(of="padded_weights")
def weights_row_by_row(scores, lengths):
    rows = []
    for row, n in zip(scores, lengths.tolist(), strict=True):
        rows.append(F.pad(row[:, :n].softmax(dim=-1), (0, row.shape[-1] - n)))
    return torch.stack(rows)


@variant(of="padded_weights")
def weights_by_logsumexp(scores, lengths):
    real = (torch.arange(scores.shape[-1]) < lengths[:, None])[:, None]
    filled = scores.double().masked_fill(~real, -1e300)
    weights = (filled - filled.logsumexp(-1, keepdim=True)).exp() * real
    return weights.to(scores.dtype)


@variant(of="decoder_step")
def step_by_parts(cell, word, state, annotations, lengths, score):
    scores = score(state.unsqueeze(1), annotations).squeeze(1)  # (B, S)
    places = torch.arange(annotations.shape[1]).expand(len(lengths), -1)
    scores = torch.where(places < lengths.unsqueeze(1), scores, torch.tensor(-torch.inf))
    parts = (scores - scores.max(dim=1, keepdim=True).values).exp()
    weights = parts / parts.sum(dim=1, keepdim=True)
    context = (weights.unsqueeze(2) * annotations).sum(dim=1)
    return cell(torch.cat((word, context), dim=1), state), context, weights


@variant(of="decoder_step")
def step_row_by_row(cell, word, state, annotations, lengths, score):
    weights = torch.zeros(annotations.shape[:2], dtype=annotations.dtype)
    for b, n in enumerate(lengths.tolist()):
        row = score(state[b : b + 1, None], annotations[b : b + 1, :n])
        weights[b, :n] = row.flatten().softmax(0)
    context = torch.einsum("bs,bse->be", weights, annotations)
    return [cell(torch.hstack([word, context]), state), context, weights]


@variant(of="alignment_error_rate")
def rate_by_counting(weights, alignment):
    wrong = total = 0
    for rows, places in zip(weights, alignment, strict=True):
        for row, place in zip(rows, places, strict=True):
            if int(place) != -1:
                total += 1
                wrong += int(int(row.argmax()) != int(place))
    return wrong / max(total, 1)


@variant(of="alignment_error_rate")
def rate_by_selection(weights, alignment):
    chosen, places = weights[alignment != -1], alignment[alignment != -1]
    right = (chosen.max(dim=-1).indices == places).sum().item()
    return 1 - right / len(places) if len(places) else 0.0


@variant(of="fixed_attend")
def attend_with_cut_rows(query, key, value, lengths, weight_query, weight_key, v):
    rows = []
    for q, k, x, n in zip(query, key, value, lengths.tolist(), strict=True):
        weights = (torch.tanh(q @ weight_query.T + k[:n] @ weight_key.T) @ v).softmax(0)
        rows.append(weights @ x[:n])
    return torch.stack(rows)
