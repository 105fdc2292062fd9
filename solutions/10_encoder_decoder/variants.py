"""Right answers to the exercises on the Transformer, written differently."""

import math
from collections import Counter

import torch

from attn_course.probes import variant


@variant(of="shift_right")
def shift_by_cat(target_out, bos, eos, pad=0):
    start = target_out.new_full((len(target_out), 1), bos)
    late = torch.cat([start, target_out[:, :-1]], dim=1)
    return torch.where(late == eos, torch.full_like(late, pad), late)


@variant(of="shift_right")
def shift_row_by_row(target_out, bos, eos, pad=0):
    result = torch.full_like(target_out, pad)
    for row, ids in enumerate(target_out.tolist()):
        words = ids[: ids.index(eos)] if eos in ids else ids
        words = [word for word in words if word != pad]
        read = [bos, *words][: len(ids)]
        result[row, : len(read)] = torch.tensor(read, dtype=result.dtype)
    return result


@variant(of="decoder_mask")
def mask_by_positions(target_in, pad=0):
    place = torch.arange(target_in.size(1))
    order = place[:, None].ge(place[None, :])
    return torch.logical_and(order.unsqueeze(0), target_in.ne(pad).unsqueeze(1)).unsqueeze(1)


@variant(of="decoder_mask")
def mask_by_loops(target_in, pad=0):
    rows = [
        [[[j <= i and word != pad for j, word in enumerate(row)] for i in range(len(row))]]
        for row in target_in.tolist()
    ]
    return torch.tensor(rows)


@variant(of="cross_attention")
def cross_by_einsum(x, memory, weight_query, weight_key, weight_value, memory_mask=None):
    query = torch.einsum("bld,ed->ble", x, weight_query) / math.sqrt(len(weight_query))
    scores = torch.einsum("ble,bse->bls", query, torch.einsum("bsd,ed->bse", memory, weight_key))
    allowed = torch.tensor(True) if memory_mask is None else memory_mask[:, None, :]
    scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
    weights = torch.where(allowed, torch.softmax(scores, dim=-1), 0.0)
    return torch.einsum("bls,bsd,vd->blv", weights, memory, weight_value)


@variant(of="cross_attention")
def cross_by_exponentials(x, memory, weight_query, weight_key, weight_value, memory_mask=None):
    # combine W_Q and W_K first; apply W_V to the mixture
    scores = x @ (weight_query.T @ weight_key) @ memory.mT / weight_query.shape[0] ** 0.5
    if memory_mask is not None:
        scores = scores.masked_fill(memory_mask.logical_not()[:, None], float("-inf"))
    parts = torch.exp(scores - scores.amax(-1, keepdim=True).clamp(min=-1e30))
    return (parts @ memory) / parts.sum(-1, keepdim=True).clamp(min=1e-30) @ weight_value.T


@variant(of="label_smoothed_loss")
def smoothed_by_targets(logits, target_out, smoothing, pad=0):
    size = logits.shape[-1]
    wanted = torch.nn.functional.one_hot(target_out, size).to(logits.dtype)
    wanted = (1 - smoothing) * wanted + smoothing / size
    each = -(wanted * torch.log_softmax(logits, -1)).sum(-1)
    counts = (target_out != pad).to(logits.dtype)
    return (each * counts).sum() / counts.sum()


@variant(of="label_smoothed_loss")
def smoothed_by_logsumexp(logits, target_out, smoothing, pad=0):
    total = logits.logsumexp(-1)
    right = torch.take_along_dim(logits, target_out[..., None], dim=-1).squeeze(-1)
    each = total - (1 - smoothing) * right - smoothing * logits.mean(-1)
    return each[target_out.ne(pad)].mean()


@variant(of="bleu")
def bleu_by_counters(candidates, references, max_order=4):
    def grams(sentence, n):
        return Counter(zip(*(sentence[i:] for i in range(n)), strict=False))

    logs = 0.0
    for n in range(1, max_order + 1):
        pairs = [(grams(c, n), grams(r, n)) for c, r in zip(candidates, references, strict=True)]
        hits = sum(sum((said & wanted).values()) for said, wanted in pairs)
        if not hits:
            return 0.0
        logs += math.log(hits) - math.log(sum(sum(said.values()) for said, _ in pairs))
    c, r = (sum(len(row) for row in rows) for rows in (candidates, references))
    return math.exp(logs / max_order + min(0.0, 1 - r / c))


@variant(of="bleu")
def bleu_by_striking_out(candidates, references, max_order=4):
    # each n-gram of a reference may match once: remove it when matched
    precisions = []
    for n in range(1, max_order + 1):
        hits, total = 0, 0
        for said, right in zip(candidates, references, strict=True):
            left = [right[i : i + n] for i in range(len(right) - n + 1)]
            for i in range(len(said) - n + 1):
                total += 1
                if said[i : i + n] in left:
                    left.remove(said[i : i + n])
                    hits += 1
        precisions.append(hits / total if total else 0.0)
    c, r = sum(map(len, candidates)), sum(map(len, references))
    penalty = 1.0 if c >= r else math.exp(1 - r / c) if c else 0.0
    return penalty * math.prod(precisions) ** (1 / max_order)


@variant(of="fixed_decoder_looks")
def looks_word_by_word(x, memory):
    rows = []
    for i in range(x.shape[1]):
        past = x[:, : i + 1]
        weights = (torch.einsum("be,bse->bs", x[:, i], past) / x.shape[-1] ** 0.5).softmax(-1)
        own = x[:, i] + torch.einsum("bs,bse->be", weights, past)
        weights = (torch.einsum("be,bse->bs", own, memory) / x.shape[-1] ** 0.5).softmax(-1)
        rows.append(own + torch.einsum("bs,bse->be", weights, memory))
    return torch.stack(rows, dim=1)
