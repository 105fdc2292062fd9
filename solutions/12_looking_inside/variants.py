"""Right answers to the exercises on looking inside, written differently."""

import torch

from attn_course.probes import variant


@variant(of="induction_score")
def induction_by_loops(weights, tokens):
    ids, total, repeats = tokens.tolist(), weights[:, 0, 0] * 0, 0
    for i, token in enumerate(ids):
        copies = [j + 1 for j in range(i) if ids[j] == token]
        if copies:
            repeats += 1
            total = total + weights[:, i, copies].sum(-1)
    return total / max(1, repeats)


@variant(of="induction_score")
def induction_by_einsum(weights, tokens):
    length = len(tokens)
    one_hot = (tokens[:, None] == tokens.unique()).to(weights.dtype)
    follows = torch.zeros(length, length, dtype=weights.dtype)
    follows[:, 1:] = (one_hot @ one_hot[:-1].T).tril(0)
    follows = follows * (torch.arange(length)[None] <= torch.arange(length)[:, None])
    places = follows.any(-1)
    if not places.any():
        return (weights * 0).sum((-2, -1))
    return torch.einsum("hij,ij->hi", weights, follows)[:, places].mean(-1)


@variant(of="relative_entropy")
def entropy_by_rows(weights):
    rows = []
    for i in range(1, weights.shape[-1]):
        row = weights[..., i, : i + 1]
        logs = torch.where(row > 0, row, 1.0).log()
        rows.append(-(row * logs).sum(-1) / torch.tensor(i + 1.0, dtype=weights.dtype).log())
    return torch.stack(rows).mean(0)


@variant(of="relative_entropy")
def entropy_by_entr(weights):
    keys = torch.ones_like(weights[0] if weights.ndim > 2 else weights).tril().sum(-1)
    keys = keys[0] if keys.ndim > 1 else keys
    return (torch.special.entr(weights).sum(-1)[..., 1:] / keys[1:].log()).mean(-1)


@variant(of="attention_rollout")
def rollout_from_the_top(weights, residual=0.5):
    result = torch.eye(weights.shape[-1], dtype=weights.dtype)
    for layer in reversed(range(len(weights))):
        result = (1 - residual) * result @ weights[layer].mean(0) + residual * result
    return result


@variant(of="attention_rollout")
def rollout_by_columns(weights, residual=0.5):
    columns = []
    for start in torch.eye(weights.shape[-1], dtype=weights.dtype):
        state = start
        for layer in weights:
            state = residual * state + (1 - residual) * torch.stack(
                [a @ state for a in layer]
            ).mean(0)
        columns.append(state)
    return torch.stack(columns, dim=-1)


@variant(of="ablate_heads")
def ablate_by_mask(found, heads, how):
    gone = torch.zeros(found.shape[1], dtype=torch.bool)
    gone[heads] = True
    instead = found.mean((0, 2), keepdim=True) if how == "mean" else torch.zeros_like(found)
    return torch.where(gone[:, None, None], instead, found)


@variant(of="ablate_heads")
def ablate_by_stack(found, heads, how):
    parts = []
    for head, part in enumerate(found.unbind(1)):
        if head in heads:
            mean = part.flatten(0, 1).mean(0).expand_as(part)
            part = mean if how == "mean" else part * 0
        parts.append(part)
    return torch.stack(parts, dim=1)


@variant(of="patch_head")
def patch_by_mask(corrupted, clean, head, positions):
    marks = torch.zeros(corrupted.shape[1:3], dtype=torch.bool)
    for position in positions:
        marks[head, position] = True
    return torch.where(marks[None, :, :, None], clean, corrupted)


@variant(of="patch_head")
def patch_by_difference(corrupted, clean, head, positions):
    change = torch.zeros_like(corrupted)
    for position in positions:
        change[:, head, position] = clean[:, head, position] - corrupted[:, head, position]
    return corrupted + change


@variant(of="recovered")
def recovered_by_rows(clean, corrupted, patched, right, wrong):
    rows = torch.arange(len(right))
    leads = [x[rows, right].mean() - x[rows, wrong].mean() for x in (clean, corrupted, patched)]
    return 1 - (leads[0] - leads[2]) / (leads[0] - leads[1])


@variant(of="recovered")
def recovered_by_one_hot(clean, corrupted, patched, right, wrong):
    eye = torch.eye(clean.shape[1], dtype=clean.dtype)
    push = eye[right] - eye[wrong]
    return ((patched - corrupted) * push).sum() / ((clean - corrupted) * push).sum()


@variant(of="logit_attribution")
def logit_by_centring(parts, scale, unembedding, word):
    size = parts.shape[-1]
    centre = torch.eye(size, dtype=parts.dtype) - 1 / size
    moved = parts @ centre
    root = (moved.sum(0).square().mean() + 1e-5).rsqrt()
    table = moved @ (scale[:, None] * unembedding.T) * root  # (P, V)
    return table[:, word] - table.mean(-1)


@variant(of="logit_attribution")
def logit_part_by_part(parts, scale, unembedding, word):
    total = parts.sum(0)
    deviation = ((total - total.mean()).pow(2).mean() + 1e-5).sqrt()
    found = []
    for part in parts:
        logits = unembedding @ ((part - part.mean()) * scale / deviation)
        found.append(logits[word] - logits.mean())
    return torch.stack(found)
