"""Right answers to the sequence-to-sequence exercises, written differently."""

import torch
from torch.nn import functional as F

from attn_course.probes.catalogue import variant


@variant(of="encode")
def encode_row_by_row(step, source, lengths, state):
    rows = []
    for b, n in enumerate(lengths.tolist()):
        row = state[b : b + 1]
        for t in range(n):
            row = step(source[b : b + 1, t], row)
        rows.append(row[0])
    return torch.stack(rows)


@variant(of="encode")
def encode_all_then_choose(step, source, lengths, state):
    states = [state]
    for column in source.unbind(dim=1):
        states.append(step(column, states[-1]))
    return torch.stack(states, dim=1)[torch.arange(len(lengths)), lengths]


@variant(of="encode")
def encode_with_arithmetic(step, source, lengths, state):
    for t in range(int(lengths.max())):
        real = (t < lengths).to(state.dtype)[:, None]
        state = real * step(source[:, t], state) + (1 - real) * state
    return state


@variant(of="sequence_loss")
def loss_by_cross_entropy(logits, target_out, pad=0):
    total = F.cross_entropy(
        logits.flatten(0, 1), target_out.flatten(), ignore_index=pad, reduction="sum"
    )
    return total / (target_out != pad).sum().clamp(min=1)


@variant(of="sequence_loss")
def loss_by_selection(logits, target_out, pad=0):
    real = target_out != pad
    if not real.any():
        return logits.sum() * 0
    chosen, targets = logits[real], target_out[real]
    right = chosen[torch.arange(len(targets)), targets]
    return (chosen.logsumexp(-1) - right).mean()


@variant(of="unroll")
def unroll_into_a_tensor(step, state, target_in):
    out = None
    for t, token in enumerate(target_in.T):
        logits, state = step(token, state)
        if out is None:
            out = torch.empty(*target_in.shape, logits.shape[-1], dtype=logits.dtype)
        out[:, t] = logits
    return out


@variant(of="unroll")
def unroll_by_recursion(step, state, target_in):
    logits, state = step(target_in[:, 0], state)
    here = logits.unsqueeze(1)
    if target_in.shape[1] == 1:
        return here
    return torch.cat([here, unroll_by_recursion(step, state, target_in[:, 1:])], dim=1)


@variant(of="greedy_decode")
def greedy_with_masked_fill(step, state, bos, eos, max_length, pad=0):
    columns, token = [], torch.full((len(state),), bos)
    ended = torch.zeros(len(state), dtype=torch.bool)
    for _ in range(max_length):
        logits, state = step(token, state)
        token = logits.log_softmax(-1).max(-1).indices
        columns.append(token.masked_fill(ended, pad))
        ended |= token == eos
    return torch.stack(columns, dim=1)


@variant(of="greedy_decode")
def greedy_row_by_row(step, state, bos, eos, max_length, pad=0):
    rows = []
    for b in range(len(state)):
        here, token, row = state[b : b + 1], torch.tensor([bos]), []
        while len(row) < max_length and (not row or row[-1] != eos):
            logits, here = step(token, here)
            token = logits.argmax(-1)
            row.append(int(token))
        rows.append(row + [pad] * (max_length - len(row)))
    return torch.tensor(rows)


@variant(of="beam_search")
def beam_with_topk(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    tokens, scores = torch.empty(1, 0, dtype=torch.long), torch.zeros(1)
    last, done = torch.tensor([bos]), []
    for t in range(max_length):
        logits, state = step(last, state)
        scores = (scores[:, None] + F.log_softmax(logits, -1)).flatten()
        vocab = logits.shape[-1]
        scores, places = scores.topk(min(2 * beam_size, len(scores)))
        tokens = torch.cat([tokens[places // vocab], (places % vocab)[:, None]], dim=1)
        state = state.index_select(0, places // vocab)
        over = tokens[:, -1] == eos
        lp = ((5 + t + 1) / 6) ** length_penalty
        done += [
            (s / lp, y)
            for s, y in zip(scores[:beam_size], tokens[:beam_size], strict=True)
            if y[-1] == eos
        ]
        if len(done) >= beam_size:
            break
        alive = (~over).nonzero()[:beam_size, 0]
        tokens, scores, state, last = tokens[alive], scores[alive], state[alive], tokens[alive, -1]
    else:
        done += [(s / lp, y) for s, y in zip(scores, tokens, strict=True)]
    score, best = max(done, key=lambda item: item[0])
    return best, score


@variant(of="beam_search")
def beam_prefix_by_prefix(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    live, done = [(0.0, (), bos, state)], []
    for _ in range(max_length):
        candidates = []
        for score, tokens, last, before in live:
            logits, after = step(torch.tensor([last]), before)
            for token, value in enumerate(torch.log_softmax(logits[0], dim=0).tolist()):
                candidates.append((score + value, (*tokens, token), token, after))
        candidates.sort(key=lambda c: -c[0])
        done += [c for c in candidates[:beam_size] if c[2] == eos]
        live = [c for c in candidates if c[2] != eos][:beam_size]
        if len(done) >= beam_size:
            live = []
            break
    best = max(done + live, key=lambda c: c[0] / ((5 + len(c[1])) / 6) ** length_penalty)
    return torch.tensor(best[1]), best[0] / ((5 + len(best[1])) / 6) ** length_penalty


@variant(of="fixed_beam_step")
def fixed_by_divmod(scores, log_probs, beam_size):
    total = log_probs + scores.unsqueeze(1)
    best, places = total.reshape(-1).topk(beam_size)
    parents = torch.div(places, log_probs.shape[-1], rounding_mode="floor")
    return best, parents, places - parents * log_probs.shape[-1]
