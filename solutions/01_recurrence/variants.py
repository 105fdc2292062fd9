"""Right answers to the recurrence exercises that are written differently from the solution."""

import torch
from torch.nn import functional as F

from attn_course.probes import variant


@variant(of="rnn_cell")
def rnn_by_linear(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    return F.linear(input, weight_ih, bias_ih).add(F.linear(hidden, weight_hh, bias_hh)).tanh()


@variant(of="rnn_cell")
def rnn_by_one_matrix(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    both = torch.cat([input, hidden], dim=-1)
    weight = torch.cat([weight_ih, weight_hh], dim=-1)
    return torch.tanh(torch.einsum("bk,hk->bh", both, weight) + (bias_ih + bias_hh))


@variant(of="lstm_cell")
def lstm_by_slices(input, state, weight_ih, weight_hh, bias_ih, bias_hh):
    size = state[0].shape[-1]
    a = F.linear(input, weight_ih, bias_ih) + F.linear(state[0], weight_hh, bias_hh)
    keep, write = a[:, size : 2 * size].sigmoid(), a[:, :size].sigmoid()
    cell = keep * state[1] + write * a[:, 2 * size : 3 * size].tanh()
    return a[:, 3 * size :].sigmoid() * cell.tanh(), cell


@variant(of="lstm_cell")
def lstm_gate_by_gate(input, state, weight_ih, weight_hh, bias_ih, bias_hh):
    hidden, cell = state
    blocks = []
    for k in range(4):
        rows = slice(k * hidden.shape[1], (k + 1) * hidden.shape[1])
        new = input @ weight_ih[rows].mT + bias_ih[rows]
        blocks.append(new + hidden @ weight_hh[rows].mT + bias_hh[rows])
    cell = torch.addcmul(cell * blocks[1].sigmoid(), blocks[0].sigmoid(), blocks[2].tanh())
    return [torch.tanh(cell) * blocks[3].sigmoid(), cell]


@variant(of="gru_cell")
def gru_as_a_step_towards_the_proposal(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    new = F.linear(input, weight_ih, bias_ih)
    old = F.linear(hidden, weight_hh, bias_hh)
    size = hidden.shape[-1]
    gates = torch.sigmoid(new[:, : 2 * size] + old[:, : 2 * size])
    proposal = torch.tanh(new[:, 2 * size :] + gates[:, :size] * old[:, 2 * size :])
    return proposal + gates[:, size:] * (hidden - proposal)


@variant(of="gru_cell")
def gru_by_lerp(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    blocks = zip(
        weight_ih.chunk(3), weight_hh.chunk(3), bias_ih.chunk(3), bias_hh.chunk(3), strict=True
    )
    halves = [(input @ wi.T + bi, hidden @ wh.T + bh) for wi, wh, bi, bh in blocks]
    reset, update = (torch.sigmoid(new + old) for new, old in halves[:2])
    return torch.lerp(torch.tanh(halves[2][0] + reset * halves[2][1]), hidden, update)


@variant(of="rnn_bptt")
def bptt_by_recursion(inputs, hidden, weight_ih, weight_hh, bias_ih, bias_hh, grad_outputs):
    if inputs.shape[1] == 0:
        given = (inputs, hidden, weight_ih, weight_hh, bias_ih, bias_hh)
        return tuple(torch.zeros_like(g) for g in given)
    weights = (weight_ih, weight_hh, bias_ih, bias_hh)
    new = torch.tanh(
        F.linear(inputs[:, 0], weight_ih, bias_ih) + F.linear(hidden, weight_hh, bias_hh)
    )
    later, blame, ih, hh, bi, bh = bptt_by_recursion(
        inputs[:, 1:], new, *weights, grad_outputs[:, 1:]
    )
    delta = (blame + grad_outputs[:, 0]) * (1 - new * new)
    return (
        torch.cat([(delta @ weight_ih)[:, None], later], dim=1),
        delta @ weight_hh,
        ih + delta.T @ inputs[:, 0],
        hh + delta.T @ hidden,
        bi + delta.sum(0),
        bh + delta.sum(0),
    )


@variant(of="rnn_bptt")
def bptt_with_all_blames_first(
    inputs, hidden, weight_ih, weight_hh, bias_ih, bias_hh, grad_outputs
):
    states = [hidden]
    for x in inputs.unbind(1):
        states.append(torch.tanh(x @ weight_ih.T + states[-1] @ weight_hh.T + bias_ih + bias_hh))
    blame, blames = torch.zeros_like(hidden), []
    for state, direct in zip(reversed(states[1:]), reversed(grad_outputs.unbind(1)), strict=True):
        blame = (direct + blame @ weight_hh) * (1 - state.square())
        blames.insert(0, blame)
    blames = torch.stack(blames, dim=1)
    before = torch.stack(states[:-1], dim=1)
    bias = blames.sum((0, 1))
    return [
        blames @ weight_ih,
        blames[:, 0] @ weight_hh,
        torch.einsum("blh,bld->hd", blames, inputs),
        torch.einsum("blh,blk->hk", blames, before),
        bias,
        bias,
    ]


@variant(of="jacobian_product")
def jacobian_by_diag(hiddens, weight_hh, first, last):
    product = torch.eye(len(weight_hh), dtype=weight_hh.dtype)
    for t in range(last, first, -1):
        product = product @ torch.diag(1 - hiddens[t].square()) @ weight_hh
    return product


@variant(of="jacobian_product")
def jacobian_by_recursion(hiddens, weight_hh, first, last):
    if first == last:
        return torch.eye(hiddens.shape[1]).to(hiddens)
    rest = jacobian_by_recursion(hiddens, weight_hh, first, last - 1)
    return (1 - hiddens[last] ** 2).unsqueeze(1) * (weight_hh @ rest)


@variant(of="clip_by_global_norm")
def clip_by_one_long_vector(grads, max_norm):
    norm = torch.cat([g.reshape(-1) for g in grads]).norm()
    if norm > max_norm:
        return tuple(g / norm * max_norm for g in grads), norm
    return tuple(g.clone() for g in grads), norm


@variant(of="clip_by_global_norm")
def clip_by_norm_of_norms(grads, max_norm):
    norm = torch.stack([torch.linalg.vector_norm(g) for g in grads]).norm()
    return [g * min(1.0, max_norm / max(float(norm), 1e-12)) for g in grads], norm


@variant(of="fixed_reader")
def reader_with_written_outputs(inputs, hidden, cell, weight_ih, weight_hh, bias_ih, bias_hh):
    outputs = inputs.new_empty(*inputs.shape[:2], hidden.shape[-1])
    for t, x in enumerate(inputs.unbind(1)):
        a = F.linear(x, weight_ih, bias_ih) + F.linear(hidden, weight_hh, bias_hh)
        i, f, g, o = a.chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        outputs[:, t] = hidden
    return outputs, hidden, cell
