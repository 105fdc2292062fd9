"""Wrong answers to the recurrence exercises: name, message and the tests each must fail."""

import torch
from torch.nn import functional as F

from attn_course import functional
from attn_course.probes import WrongAnswers, call, student, witnesses

wrong_rnn_cell = WrongAnswers("rnn_cell", tests=("by_hand", "matrices", "biases", "gradient"))
wrong_lstm_cell = WrongAnswers("lstm_cell", tests=("by_hand", "memory", "weights", "gradient"))
wrong_gru_cell = WrongAnswers("gru_cell", tests=("by_hand", "reset", "weights", "gradient"))
wrong_rnn_bptt = WrongAnswers(
    "rnn_bptt", tests=("by_hand", "one_step", "last_output", "every_output")
)
wrong_jacobian_product = WrongAnswers(
    "jacobian_product", tests=("by_hand", "one_step", "many_steps", "no_step")
)
wrong_clip_by_global_norm = WrongAnswers(
    "clip_by_global_norm", tests=("by_hand", "any_shapes", "short_gradients", "all_zero")
)
wrong_fixed_reader = WrongAnswers("fixed_reader", tests=("one_step", "many_steps"))
wrong_check_clipping = WrongAnswers("check_clipping", tests=("first_pair", "mutants"))


# 1. The plain cell


@witnesses(of="rnn_cell")
def rnn_calls(draw):
    none = torch.zeros(1)
    yield call(*(torch.full((1, 1), v) for v in (0.3, 0.5, 1.0, 0.7)), none, none)
    shapes = ((2, 3), (2, 5), (5, 3), (5, 5), (5,), (5,))
    yield call(*(draw.normal(*s) for s in shapes))
    yield call(*(draw.normal(*s, dtype=torch.float64) for s in shapes))
    shapes = ((2, 2), (2, 2), (2, 2), (2, 2), (2,), (2,))
    for wrt in range(4):
        yield call(*(draw.normal(*s) for s in shapes), via=student.grad(wrt))


@wrong_rnn_cell("no tanh")
def rnn_linear(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You return the sum itself, without squashing it.
    Check whether a large input can push your state beyond 1.
    """
    return F.linear(input, weight_ih, bias_ih) + F.linear(hidden, weight_hh, bias_hh)


@wrong_rnn_cell("sigmoid instead of tanh")
def rnn_sigmoid(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You squash into (0, 1), so no state can ever be negative.
    Look at the range that the formula promises.
    """
    return torch.sigmoid(F.linear(input, weight_ih, bias_ih) + F.linear(hidden, weight_hh, bias_hh))


@wrong_rnn_cell("the old state is ignored")
def rnn_forgets(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """The new state does not depend on the old one: nothing is remembered.
    Look at which of the arguments you never multiply with a matrix.
    """
    return torch.tanh(F.linear(input, weight_ih, bias_ih) + bias_hh + 0.0 * hidden)


@wrong_rnn_cell("each part squashed by itself")
def rnn_two_tanh(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You squash the input's part and the state's part separately and then add.
    The result can leave (-1, 1). Count the tanh in the formula.
    """
    new = torch.tanh(F.linear(input, weight_ih, bias_ih))
    return new + torch.tanh(F.linear(hidden, weight_hh, bias_hh))


@wrong_rnn_cell("the old state enters unweighted")
def rnn_residual(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You add the old state as it is instead of sending it through its matrix.
    Look at what stands in front of the old state in the formula.
    """
    return torch.tanh(
        F.linear(input, weight_ih, bias_ih) + hidden + bias_hh + 0.0 * weight_hh.sum()
    )


@wrong_rnn_cell("recurrent matrix on the wrong side", but=("by_hand",))
def rnn_untransposed(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """Your recurrent matrix is transposed: the shapes fit, because it is square, the numbers do not.
    Entry (i, j) of the matrix says what old unit j does to new unit i.
    """
    return torch.tanh(F.linear(input, weight_ih, bias_ih) + hidden @ weight_hh + bias_hh)


@wrong_rnn_cell("one bias is missing", fails=("biases", "gradient"))
def rnn_one_bias(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You add one of the two biases only. With zero biases nobody notices.
    Go through the arguments and tick off where each one enters.
    """
    return torch.tanh(F.linear(input, weight_ih, bias_ih) + F.linear(hidden, weight_hh))


@wrong_rnn_cell("biases added after the squashing", fails=("biases", "gradient"))
def rnn_bias_outside(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You add the biases to the squashed state, so it can leave (-1, 1).
    Look at where the bracket of the tanh closes.
    """
    return torch.tanh(F.linear(input, weight_ih) + F.linear(hidden, weight_hh)) + bias_ih + bias_hh


@wrong_rnn_cell("one bias is added twice", fails=("biases", "gradient"))
def rnn_bias_twice(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You add `bias_ih` twice and `bias_hh` never, as happens when a line is copied.
    Go through the arguments and tick off where each one enters.
    """
    return torch.tanh(F.linear(input, weight_ih, bias_ih) + F.linear(hidden, weight_hh, bias_ih))


@wrong_rnn_cell("cut off from the graph", fails=("gradient",))
def rnn_detached(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """The result has lost its connection to the inputs: no gradient can flow back.
    Look for `detach`, `item`, `numpy`, `no_grad` or a new `torch.tensor(...)`.
    """
    return functional.rnn_cell(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh).detach()


@wrong_rnn_cell("no gradient to the old state", fails=("gradient",))
def rnn_truncated(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """The numbers are right, but the old state is cut off, so no gradient can go back in time.
    Cutting the history is the business of whoever calls the cell, not of the cell.
    """
    return functional.rnn_cell(input, hidden.detach(), weight_ih, weight_hh, bias_ih, bias_hh)


# 2. The LSTM


def lstm_blocks(input, state, weight_ih, weight_hh, bias_ih, bias_hh):
    gates = F.linear(input, weight_ih, bias_ih) + F.linear(state[0], weight_hh, bias_hh)
    return gates.chunk(4, dim=-1)


@witnesses(of="lstm_cell")
def lstm_calls(draw):
    one, none = torch.ones(1, 1), torch.zeros(4, 1)
    bias = torch.tensor([0.5, 1.0, -1.5, 2.0])
    yield call(one, (one, one), none, none, bias, torch.zeros(4))
    open_gate = torch.tensor([-30.0, 30.0, 0.5, 1.0])
    yield call(one, (one, 4 * one), none, none, open_gate, torch.zeros(4))
    for dtype in (torch.float32, torch.float64):
        state = (draw.normal(2, 5, dtype=dtype), draw.normal(2, 5, dtype=dtype))
        rest = (draw.normal(*s, dtype=dtype) for s in ((20, 3), (20, 5), (20,), (20,)))
        yield call(draw.normal(2, 3, dtype=dtype), state, *rest)
    for wrt in (0, 2, 3):
        state = (draw.normal(2, 2), draw.normal(2, 2))
        rest = [draw.normal(*s) for s in ((8, 2), (8, 2), (8,), (8,))]
        yield call(draw.normal(2, 2), state, *rest, via=student.grad(wrt))


@wrong_lstm_cell("content and output gate exchanged")
def lstm_ifog(input, state, *weights):
    """You read the blocks in the order input, forget, output, content, as some papers stack them.
    Look at the order that the exercise states.
    """
    i, f, o, g = lstm_blocks(input, state, *weights)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@wrong_lstm_cell("forget gate and content exchanged")
def lstm_igfo(input, state, *weights):
    """You read the blocks in the order input, content, forget, output, as TensorFlow once stacked
    them. Look at the order that the exercise states.
    """
    i, g, f, o = lstm_blocks(input, state, *weights)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@wrong_lstm_cell("input and forget gate exchanged")
def lstm_figo(input, state, *weights):
    """Your input gate keeps the old cell and your forget gate lets the new content in.
    Look at which gate is multiplied with what.
    """
    f, i, g, o = lstm_blocks(input, state, *weights)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@wrong_lstm_cell("the forget gate means forget")
def lstm_one_minus_forget(input, state, *weights):
    """You multiply the old cell by one minus the forget gate, as its name suggests.
    The name is bad: look at what the formula does when the gate is 1.
    """
    i, f, g, o = lstm_blocks(input, state, *weights)
    cell = (1 - f.sigmoid()) * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@wrong_lstm_cell("the cell is shown unsquashed")
def lstm_no_output_tanh(input, state, *weights):
    """Your hidden state is the output gate times the cell itself, so it can leave (-1, 1).
    Look at what happens to the cell on its way out.
    """
    i, f, g, o = lstm_blocks(input, state, *weights)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell, cell


@wrong_lstm_cell("the memory itself is squashed")
def lstm_squashed_cell(input, state, *weights):
    """You carry the squashed cell on to the next step, so the memory can never exceed 1
    and loses a little at every step. Only what is shown is squashed, not what is kept.
    """
    i, f, g, o = lstm_blocks(input, state, *weights)
    cell = torch.tanh(f.sigmoid() * state[1] + i.sigmoid() * g.tanh())
    return o.sigmoid() * cell, cell


@wrong_lstm_cell("the gates are not squashed")
def lstm_raw_gates(input, state, *weights):
    """You multiply with the gates as they come out of the sum, so one can be 3 or -30.
    A gate is a share between 0 and 1; look at what makes it one.
    """
    i, f, g, o = lstm_blocks(input, state, *weights)
    cell = f * state[1] + i * g.tanh()
    return o * cell.tanh(), cell


@wrong_lstm_cell("the pair is turned round")
def lstm_swapped_pair(input, state, *weights):
    """You return the cell first and the hidden state second; both have the same shape.
    Look at the order of the pair that comes in.
    """
    hidden, cell = functional.lstm_cell(input, state, *weights)
    return cell, hidden


@wrong_lstm_cell("the old cell is dropped")
def lstm_no_carry(input, state, *weights):
    """Your new cell holds the new content only: nothing of the old memory is carried on.
    Look at the first half of the formula for the cell.
    """
    i, _, g, o = lstm_blocks(input, state, *weights)
    cell = i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@wrong_lstm_cell("one gate for keeping and writing", but=("memory",))
def lstm_coupled(input, state, *weights):
    """You let in one minus the forget gate, as a GRU does; the input gate plays no part.
    Look at how many gates act on the cell.
    """
    _, f, g, o = lstm_blocks(input, state, *weights)
    cell = f.sigmoid() * state[1] + (1 - f.sigmoid()) * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@wrong_lstm_cell("the forget gate plays no part", but=("memory",))
def lstm_coupled_input(input, state, *weights):
    """You keep one minus the input gate, as a GRU does; the forget gate plays no part.
    Look at how many gates act on the cell.
    """
    i, _, g, o = lstm_blocks(input, state, *weights)
    cell = (1 - i.sigmoid()) * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@wrong_lstm_cell("the content goes through a sigmoid", but=("memory",))
def lstm_sigmoid_content(input, state, *weights):
    """You treat all four blocks as gates, so the content can never be negative.
    One of the four is not a gate.
    """
    i, f, g, o = (b.sigmoid() for b in lstm_blocks(input, state, *weights))
    cell = f * state[1] + i * g
    return o * cell.tanh(), cell


@wrong_lstm_cell("the old cell is shown", but=("memory",))
def lstm_shows_old(input, state, *weights):
    """Your hidden state is made from the old cell, so it lags one step behind.
    Look at the order in which the two states are computed.
    """
    _, _, _, o = lstm_blocks(input, state, *weights)
    _, cell = functional.lstm_cell(input, state, *weights)
    return o.sigmoid() * state[1].tanh(), cell


@wrong_lstm_cell("one bias is missing", fails=("weights", "gradient"))
def lstm_one_bias(input, state, weight_ih, weight_hh, bias_ih, bias_hh):
    """You add one of the two biases only. With one of them zero nobody notices.
    Go through the arguments and tick off where each one enters.
    """
    return functional.lstm_cell(input, state, weight_ih, weight_hh, bias_ih, 0 * bias_hh)


@wrong_lstm_cell("every fourth number to one gate", but=("by_hand",))
def lstm_interleaved(input, state, *weights):
    """You deal the numbers out in turn, one to each gate. With one unit nobody notices.
    Each gate is a block: its H numbers stand next to each other.
    """
    dealt = torch.cat(lstm_blocks(input, state, *weights), dim=-1).unflatten(-1, (-1, 4))
    i, f, g, o = dealt.unbind(-1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@wrong_lstm_cell("cut off from the graph", fails=("gradient",))
def lstm_detached(input, state, *weights):
    """The result has lost its connection to the inputs: no gradient can flow back.
    Look for `detach`, `item`, `numpy`, `no_grad` or a new `torch.tensor(...)`.
    """
    hidden, cell = functional.lstm_cell(input, state, *weights)
    return hidden.detach(), cell.detach()


# 3. The GRU


def gru_halves(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    new = F.linear(input, weight_ih, bias_ih).chunk(3, dim=-1)
    return new, F.linear(hidden, weight_hh, bias_hh).chunk(3, dim=-1)


@witnesses(of="gru_cell")
def gru_calls(draw):
    one, none = torch.ones(1, 1), torch.zeros(3, 1)
    yield call(one, 0.6 * one, none, none, torch.tensor([0.2, 1.0, -1.0]), torch.zeros(3))
    for dtype in (torch.float32, torch.float64):
        shapes = ((2, 3), (2, 5), (15, 3), (15, 5), (15,), (15,))
        yield call(*(draw.normal(*s, dtype=dtype) for s in shapes))
    shapes = ((2, 2), (2, 2), (6, 2), (6, 2), (6,), (6,))
    for wrt in range(4):
        yield call(*(draw.normal(*s) for s in shapes), via=student.grad(wrt))


@wrong_gru_cell("update gate the other way round")
def gru_update_flipped(input, hidden, *weights):
    """Your update gate keeps the proposal where it should keep the old state.
    Papers differ here; look at which term the formula of this exercise multiplies with z.
    """
    (ir, iz, i_n), (hr, hz, hn) = gru_halves(input, hidden, *weights)
    z = torch.sigmoid(iz + hz)
    n = torch.tanh(i_n + torch.sigmoid(ir + hr) * hn)
    return z * n + (1 - z) * hidden


@wrong_gru_cell("reset and update exchanged")
def gru_zrn(input, hidden, *weights):
    """You read the blocks in the order update, reset, new.
    Look at the order in which the exercise stacks them.
    """
    (iz, ir, i_n), (hz, hr, hn) = gru_halves(input, hidden, *weights)
    z = torch.sigmoid(iz + hz)
    return (1 - z) * torch.tanh(i_n + torch.sigmoid(ir + hr) * hn) + z * hidden


@wrong_gru_cell("the reset gate closes the input too")
def gru_reset_all(input, hidden, *weights):
    """Your reset gate multiplies the whole proposal, the part from the new input included.
    It is to hide the past, not the present.
    """
    (ir, iz, i_n), (hr, hz, hn) = gru_halves(input, hidden, *weights)
    z = torch.sigmoid(iz + hz)
    return (1 - z) * torch.tanh(torch.sigmoid(ir + hr) * (i_n + hn)) + z * hidden


@wrong_gru_cell("the reset gate closes the wrong half")
def gru_reset_input(input, hidden, *weights):
    """Your reset gate multiplies what comes from the new input and leaves the past as it is.
    It is to hide the past, not the present.
    """
    (ir, iz, i_n), (hr, hz, hn) = gru_halves(input, hidden, *weights)
    z = torch.sigmoid(iz + hz)
    return (1 - z) * torch.tanh(torch.sigmoid(ir + hr) * i_n + hn) + z * hidden


@wrong_gru_cell("the proposal goes through a sigmoid")
def gru_sigmoid_new(input, hidden, *weights):
    """You squash the proposal into (0, 1), so a state can never become negative.
    One of the three blocks is not a gate.
    """
    (ir, iz, i_n), (hr, hz, hn) = gru_halves(input, hidden, *weights)
    z = torch.sigmoid(iz + hz)
    return (1 - z) * torch.sigmoid(i_n + torch.sigmoid(ir + hr) * hn) + z * hidden


@wrong_gru_cell("the old state is added in full")
def gru_adds(input, hidden, *weights):
    """You add the old state without weighing it, so old and new together can exceed 1.
    Look at what z and 1 - z add up to, and where each of them belongs.
    """
    (ir, iz, i_n), (hr, hz, hn) = gru_halves(input, hidden, *weights)
    z = torch.sigmoid(iz + hz)
    return (1 - z) * torch.tanh(i_n + torch.sigmoid(ir + hr) * hn) + hidden


@wrong_gru_cell("the proposal is added in full")
def gru_adds_new(input, hidden, *weights):
    """You add the proposal without weighing it, so old and new together can exceed 1.
    Look at what z and 1 - z add up to, and where each of them belongs.
    """
    (ir, iz, i_n), (hr, hz, hn) = gru_halves(input, hidden, *weights)
    z = torch.sigmoid(iz + hz)
    return torch.tanh(i_n + torch.sigmoid(ir + hr) * hn) + z * hidden


@wrong_gru_cell("reset before the matrix", but=("by_hand",))
def gru_paper(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You reset the old state before it meets its matrix, as in the paper of Cho et al.
    This exercise follows torch: look at what the reset gate is multiplied with.
    """
    (ir, iz, i_n), (hr, hz, _) = gru_halves(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    old = F.linear(r * hidden, weight_hh.chunk(3)[2], bias_hh.chunk(3)[2])
    return (1 - z) * torch.tanh(i_n + old) + z * hidden


@wrong_gru_cell("reset before the matrix, its bias lost", but=("by_hand",))
def gru_paper_no_bias(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You reset the old state before it meets its matrix, and its bias got lost on the way.
    This exercise follows torch: look at what the reset gate is multiplied with.
    """
    (ir, iz, i_n), (hr, hz, _) = gru_halves(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    old = F.linear(r * hidden, weight_hh.chunk(3)[2])
    return (1 - z) * torch.tanh(i_n + old) + z * hidden


@wrong_gru_cell("the reset gate is left out", but=("by_hand",))
def gru_no_reset(input, hidden, *weights):
    """Your proposal always sees the whole past: the reset gate has no effect.
    Look at where r enters the formula.
    """
    (ir, iz, i_n), (hr, hz, hn) = gru_halves(input, hidden, *weights)
    z = torch.sigmoid(iz + hz)
    return (1 - z) * torch.tanh(i_n + hn + 0.0 * (ir + hr)) + z * hidden


@wrong_gru_cell("the reset gate misses the bias", but=("by_hand",))
def gru_bias_outside(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """Your reset gate multiplies the product but not the bias that was added to it.
    Look at where the bracket closes.
    """
    (ir, iz, i_n), (hr, hz, hn) = gru_halves(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh)
    r, z, bias = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz), bias_hh.chunk(3)[2]
    return (1 - z) * torch.tanh(i_n + r * (hn - bias) + bias) + z * hidden


@wrong_gru_cell("one bias is missing", but=("by_hand",))
def gru_one_bias(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    """You add one of the two biases only. With one of them zero nobody notices.
    Go through the arguments and tick off where each one enters.
    """
    return functional.gru_cell(input, hidden, weight_ih, weight_hh, bias_ih, 0 * bias_hh)


@wrong_gru_cell("cut off from the graph", fails=("gradient",))
def gru_detached(input, hidden, *weights):
    """The result has lost its connection to the inputs: no gradient can flow back.
    Look for `detach`, `item`, `numpy`, `no_grad` or a new `torch.tensor(...)`.
    """
    return functional.gru_cell(input, hidden, *weights).detach()


# 4. Backpropagation through time


@witnesses(of="rnn_bptt")
def bptt_calls(draw):
    one, none = torch.ones(1, 1), torch.zeros(1)
    for hidden in (0.0, 0.5):
        for grads in ((0.0, 1.0), (1.0, 1.0)):
            words = torch.tensor([[[0.8], [-0.3]]])
            direct = torch.tensor(grads).reshape(1, 2, 1)
            yield call(words, hidden * one, one, 0.6 * one, none, none, direct)
    for dtype, batch, length in (
        (torch.float32, 1, 3),
        (torch.float64, 2, 4),
        (torch.float64, 2, 1),
    ):
        shapes = ((batch, length, 3), (batch, 2), (2, 3), (2, 2), (2,), (2,), (batch, length, 2))
        yield call(*(draw.normal(*s, dtype=dtype) for s in shapes))


def walk_back(
    inputs,
    hidden,
    weight_ih,
    weight_hh,
    bias_ih,
    bias_hh,
    grad_outputs,
    slope=lambda before, after: 1 - after**2,
    back=None,
    multiplied=lambda before, after: before,
    direct=lambda grads, t: grads[:, t],
    join=lambda direct, carried, slope: (direct + carried) * slope,
    first=lambda delta, carried: carried,
):
    """The right walk, with the places where one can go wrong left open."""
    back = weight_hh if back is None else back
    states = [hidden]
    for x in inputs.unbind(1):
        states.append(functional.rnn_cell(x, states[-1], weight_ih, weight_hh, bias_ih, bias_hh))
    grad_inputs = torch.zeros_like(inputs)
    grad_ih, grad_hh = torch.zeros_like(weight_ih), torch.zeros_like(weight_hh)
    grad_bias, carried = torch.zeros_like(bias_ih), torch.zeros_like(hidden)
    for t in reversed(range(inputs.shape[1])):
        delta = join(direct(grad_outputs, t), carried, slope(states[t], states[t + 1]))
        grad_inputs[:, t] = delta @ weight_ih
        grad_ih += delta.T @ inputs[:, t]
        grad_hh += delta.T @ multiplied(states[t], states[t + 1])
        grad_bias += delta.sum(0)
        carried = delta @ back
    first_grad = first(delta, carried)
    return grad_inputs, first_grad, grad_ih, grad_hh, grad_bias, grad_bias.clone()


@wrong_rnn_bptt("the slope of tanh is forgotten")
def bptt_no_slope(*args):
    """You send the gradient through the tanh as if it were not there.
    Look at what lies between the sum inside the cell and the state.
    """
    return walk_back(*args, slope=lambda before, after: torch.ones_like(after))


@wrong_rnn_bptt("slope taken at the old state")
def bptt_old_slope(*args):
    """You compute the slope of step t from the state before it.
    The slope of a tanh can be written with its value; ask which state is the value of step t.
    """
    return walk_back(*args, slope=lambda before, after: 1 - before**2)


@wrong_rnn_bptt("tanh applied once more")
def bptt_double_tanh(*args):
    """You put the state through tanh again before you take the slope, but it has been there.
    Look at whether you kept the values before or after the squashing.
    """
    return walk_back(*args, slope=lambda before, after: 1 - after.tanh() ** 2)


@wrong_rnn_bptt("recurrent gradient with the new state")
def bptt_new_state(*args):
    """For `weight_hh` you multiply the blame of step t with the state of the same step.
    Look at which state was multiplied with that matrix on the way forward.
    """
    return walk_back(*args, multiplied=lambda before, after: after)


@wrong_rnn_bptt("no gradient for the first state")
def bptt_no_hidden(*args):
    """Your gradient with respect to the first state is zero, although the network read from it.
    Look at what you carry out of the last turn of the loop backward.
    """
    grads = walk_back(*args)
    return (grads[0], torch.zeros_like(grads[1]), *grads[2:])


@wrong_rnn_bptt("the first state gets the blame as it is")
def bptt_blame_to_first(*args):
    """For the first state you return the blame of the first step, which stands inside the tanh.
    Between that number and the state lies one more matrix, as between any two steps.
    """
    return walk_back(*args, first=lambda delta, carried: delta)


@wrong_rnn_bptt("what is carried back skips the tanh", but=("one_step",))
def bptt_carried_unsquashed(*args):
    """You multiply with the slope of tanh only what the loss reads directly, and then add the rest.
    Both reach the state first; look at what lies between the state and the blame.
    """
    return walk_back(*args, join=lambda direct, carried, slope: direct * slope + carried)


@wrong_rnn_bptt("nothing is carried back", but=("one_step",))
def bptt_not_carried(*args):
    """Each step gets only the gradient of its own output; nothing comes back from later steps.
    With a single step nobody notices. Look at what a state does besides being an output.
    """
    deltas = walk_back(*args, back=torch.zeros_like(args[3]))
    first = walk_back(*(a[:, :1] if a.dim() == 3 else a for a in args))
    return (deltas[0], first[1], *deltas[2:])


@wrong_rnn_bptt("carried back through the wrong side", but=("by_hand",))
def bptt_transposed(*args):
    """Going back you multiply with the transpose of the right matrix; being square, it fits.
    Write down the sum over the units that one old unit has touched.
    """
    return walk_back(*args, back=args[3].T)


@wrong_rnn_bptt("recurrent gradient transposed", but=("by_hand",))
def bptt_hh_transposed(*args):
    """Your gradient for `weight_hh` is transposed: the matrix is square, so the shape does not tell.
    Compare the order of the two factors with that in your line for `weight_ih`.
    """
    grads = walk_back(*args)
    return (*grads[:3], grads[3].T.contiguous(), *grads[4:])


@wrong_rnn_bptt("averaged over the batch", but=("by_hand",))
def bptt_mean(*args):
    """You divide the gradients of the weights by the number of sequences.
    The exercise asks for sums; a mean belongs into the loss, and the caller has put it there.
    """
    grads = walk_back(*args)
    return (*grads[:2], *(g / len(args[0]) for g in grads[2:]))


@wrong_rnn_bptt("everything averaged over the batch", but=("by_hand",))
def bptt_mean_of_all(*args):
    """You divide all gradients by the number of sequences, as a mean loss would.
    The exercise asks for sums; `grad_outputs` holds all that the loss has to say.
    """
    return tuple(g / len(args[0]) for g in walk_back(*args))


@wrong_rnn_bptt("only the last output counts", fails=("every_output",))
def bptt_last_only(*args):
    """You take the loss at the last step and drop what it reads at the steps before.
    Look at where the gradient of each output enters the walk back.
    """
    last = args[0].shape[1] - 1
    return walk_back(*args, direct=lambda grads, t: grads[:, t] * float(t == last))


@wrong_rnn_bptt("the first state counts as zero", fails=("one_step", "every_output"))
def bptt_zero_start(inputs, hidden, *rest):
    """You start from a state of zeros, whatever state is given.
    Look at where `hidden` enters your walk forward.
    """
    return walk_back(inputs, torch.zeros_like(hidden), *rest)


# 5. Jacobians


def chain(hiddens, weight_hh, steps, factor=None):
    product = torch.eye(len(weight_hh), dtype=hiddens.dtype)
    for t in steps:
        slope = (1 - hiddens[t] ** 2)[:, None]
        product = (slope * weight_hh if factor is None else factor(hiddens, weight_hh, t)) @ product
    return product


@witnesses(of="jacobian_product")
def jacobian_calls(draw):
    numbers = torch.tensor([[0.1], [0.4], [-0.5], [0.7]])
    for first, last in ((0, 1), (0, 2), (1, 3), (2, 2)):
        yield call(numbers, torch.tensor([[0.8]]), first, last)
    for first, last in ((0, 0), (0, 1), (0, 2), (1, 3), (0, 4)):
        yield call(draw.normal(5, 3).tanh(), draw.normal(3, 3), first, last)
        wide = torch.float64
        yield call(draw.normal(5, 2, dtype=wide).tanh(), draw.normal(2, 2, dtype=wide), first, last)


@wrong_jacobian_product("the slope of tanh is forgotten", but=("no_step",))
def jacobian_no_slope(hiddens, weight_hh, first, last):
    """You multiply the matrices of the steps as if there were no tanh between them.
    Look at what the page called the second thing that kills the gradient.
    """
    return chain(hiddens, weight_hh, range(first + 1, last + 1), lambda h, w, t: w)


@wrong_jacobian_product("slope taken at the old state", but=("no_step",))
def jacobian_old_slope(hiddens, weight_hh, first, last):
    """You compute the slope of each step from the state before it.
    The slope of a tanh can be written with its value; ask which state is the value of the step.
    """
    return chain(
        hiddens, weight_hh, range(first, last), lambda h, w, t: (1 - h[t] ** 2)[:, None] * w
    )


@wrong_jacobian_product("tanh applied once more", but=("no_step",))
def jacobian_double_tanh(hiddens, weight_hh, first, last):
    """You put the states through tanh again before you take the slope, but they have been there.
    Look at whether `hiddens` are values before or after the squashing.
    """
    return chain(
        hiddens,
        weight_hh,
        range(first + 1, last + 1),
        lambda h, w, t: (1 - h[t].tanh() ** 2)[:, None] * w,
    )


@wrong_jacobian_product("slopes on the columns", fails=("one_step", "many_steps"))
def jacobian_columns(hiddens, weight_hh, first, last):
    """You scale the columns of the matrix by the slopes instead of its rows.
    The slope belongs to the unit that comes out; ask which axis of the matrix that is.
    """
    return chain(
        hiddens, weight_hh, range(first + 1, last + 1), lambda h, w, t: w * (1 - h[t] ** 2)
    )


@wrong_jacobian_product("the matrix is transposed", fails=("one_step", "many_steps"))
def jacobian_matrix_transposed(hiddens, weight_hh, first, last):
    """You use the transpose of the recurrent matrix, as the code of the cell does for its rows.
    Look at what entry (i, j) of the matrix says, and at what entry (i, j) of the result is to say.
    """
    return chain(hiddens, weight_hh.T, range(first + 1, last + 1))


@wrong_jacobian_product("the result is transposed", fails=("one_step", "many_steps"))
def jacobian_transposed(hiddens, weight_hh, first, last):
    """Your rows belong to the early state and your columns to the late one.
    Look at what entry (i, j) is to mean.
    """
    return chain(hiddens, weight_hh, range(first + 1, last + 1)).T.contiguous()


@wrong_jacobian_product("factors in the wrong order", fails=("many_steps",))
def jacobian_wrong_order(hiddens, weight_hh, first, last):
    """You multiply the steps in the order of time from the left. Matrices do not commute.
    Apply your product to a small change of the early state: which step must act first?
    """
    return chain(hiddens, weight_hh, range(last, first, -1))


@wrong_jacobian_product("one step too many")
def jacobian_too_many(hiddens, weight_hh, first, last):
    """You also count the step that leads *into* the early state.
    With `first == last` there is no step between them; try that.
    """
    return chain(hiddens, weight_hh, range(first, last + 1))


@wrong_jacobian_product("one step too few", but=("no_step",))
def jacobian_too_few(hiddens, weight_hh, first, last):
    """You leave out the step that leads into the late state.
    Count the factors between two neighbouring states, and look at where `range` stops.
    """
    return chain(hiddens, weight_hh, range(first + 1, last))


# 6. Clipping


def global_norm(grads):
    return torch.sqrt(sum(g.pow(2).sum() for g in grads))


def shrink(grads, norm, max_norm):
    return [g * torch.clamp(max_norm / (norm + 1e-6), max=1.0) for g in grads]


@witnesses(of="clip_by_global_norm")
def clip_calls(draw):
    yield call([torch.tensor([6.0, 8.0]), torch.tensor([24.0])], 13.0)
    yield call([torch.tensor([6.0, 8.0]), torch.tensor([24.0])], 30.0)
    yield call([torch.tensor([0.6, 0.8])], 3.0)
    yield call([torch.zeros(3), torch.zeros(1, 2)], 2.0)
    yield call([4 * draw.normal(3, 2), 4 * draw.normal(5), 4 * draw.normal(1, 2, 3)], 0.5)
    yield call([draw.normal(3, 2), draw.normal(5)], 50.0)


@wrong_clip_by_global_norm("each tensor by its own norm", fails=("by_hand", "any_shapes"))
def clip_each(grads, max_norm):
    """You clip every tensor by its own norm, so short ones keep their length and long ones do not.
    The step then points somewhere else. Look at the word "global".
    """
    return [shrink([g], global_norm([g]), max_norm)[0] for g in grads], global_norm(grads)


@wrong_clip_by_global_norm("every entry by value", fails=("by_hand", "any_shapes"))
def clip_value(grads, max_norm):
    """You cut each number off at the maximum, which bends the direction of the step.
    Clipping by norm multiplies everything by one factor.
    """
    return [g.clamp(-max_norm, max_norm) for g in grads], global_norm(grads)


@wrong_clip_by_global_norm("the norm after clipping", fails=("by_hand", "any_shapes"))
def clip_norm_after(grads, max_norm):
    """The gradients are right, but the norm that you return is the one after clipping.
    It would tell nobody that the gradient was about to explode.
    """
    clipped = shrink(grads, global_norm(grads), max_norm)
    return clipped, global_norm(clipped)


@wrong_clip_by_global_norm("the gradients are changed in place", fails=("by_hand", "any_shapes"))
def clip_in_place(grads, max_norm):
    """You write into the caller's gradients.
    Look for `*=`, for methods that end in an underscore and for assignments to `g[...]`.
    """
    norm = global_norm(grads)
    for g, new in zip(grads, shrink(grads, norm, max_norm), strict=True):
        g.copy_(new)
    return list(grads), norm


@wrong_clip_by_global_norm("norms are added up", but=("all_zero",))
def clip_summed(grads, max_norm):
    """You add the norms of the tensors. Lengths of perpendicular pieces do not add like that.
    Think of all gradients as one long vector.
    """
    norm = sum(global_norm([g]) for g in grads)
    return shrink(grads, norm, max_norm), norm


@wrong_clip_by_global_norm("the root is missing", but=("all_zero",))
def clip_squared(grads, max_norm):
    """Your norm is the sum of the squares, not its root.
    Check it on (3, 4), whose length is known since Pythagoras.
    """
    norm = global_norm(grads) ** 2
    return shrink(grads, norm, max_norm), norm


@wrong_clip_by_global_norm("sum of absolute values", but=("all_zero",))
def clip_l1(grads, max_norm):
    """Your norm adds up absolute values. Check it on (3, 4), whose length is 5.
    Look at which norm the exercise describes.
    """
    norm = sum(g.abs().sum() for g in grads)
    return shrink(grads, norm, max_norm), norm


@wrong_clip_by_global_norm("short gradients are stretched", fails=("short_gradients",))
def clip_always(grads, max_norm):
    """You bring every gradient to the maximum norm, also those that were shorter.
    Then the step never becomes small, and training never settles. Ask when nothing is to happen.
    """
    norm = global_norm(grads)
    return [g * max_norm / (norm + 1e-6) for g in grads], norm


@wrong_clip_by_global_norm("zero gradients become NaN", fails=("all_zero",))
def clip_nan(grads, max_norm):
    """You divide the gradients by their norm, and the norm of zeros is zero.
    One batch without a gradient would fill the whole network with NaN.
    """
    norm = global_norm(grads)
    return [g / norm * torch.clamp(norm, max=max_norm) for g in grads], norm


@wrong_clip_by_global_norm(
    "always rescaled, and divided by zero", fails=("short_gradients", "all_zero")
)
def clip_unguarded(grads, max_norm):
    """You bring every gradient to the maximum norm. Short ones are stretched, so training never
    settles, and a gradient of zeros becomes NaN. Ask when nothing is to happen.
    """
    norm = global_norm(grads)
    return [g * max_norm / norm for g in grads], norm


@wrong_clip_by_global_norm("the largest entry as norm", but=("all_zero",))
def clip_largest_entry(grads, max_norm):
    """Your norm is the largest absolute entry. Check it on (3, 4), whose length is 5.
    Look at which norm the exercise describes.
    """
    norm = max(g.abs().max() for g in grads)
    return shrink(grads, norm, max_norm), norm


# 7. The reader to be mended


@witnesses(of="fixed_reader")
def reader_calls(draw):
    for length in (1, 2, 4):
        shapes = ((2, length, 2), (2, 3), (2, 3), (12, 2), (12, 3), (12,), (12,))
        yield call(*(draw.normal(*s) for s in shapes))


def read(inputs, hidden, cell, weights, carry, show):
    first, outputs = (hidden, cell), []
    for x in inputs.unbind(1):
        new = functional.lstm_cell(x, (hidden, cell), *weights)
        outputs.append(new[show])
        hidden, cell = (n if c else f for n, f, c in zip(new, first, carry, strict=True))
    return torch.stack(outputs, dim=1), *new


@wrong_fixed_reader("nothing is mended yet")
def reader_broken(inputs, hidden, cell, *weights):
    """This is still the broken reader: it gives exactly the same numbers.
    Follow `state` through two turns of the loop, and look at what is put into the list.
    """
    return read(inputs, hidden, cell, weights, carry=(False, False), show=1)


@wrong_fixed_reader("the cell is shown")
def reader_shows_cell(inputs, hidden, cell, *weights):
    """Your state is carried on, but your outputs are the private memory, not what the cell shows.
    Look at which of the pair belongs into the outputs.
    """
    return read(inputs, hidden, cell, weights, carry=(True, True), show=1)


@wrong_fixed_reader("every step starts afresh", fails=("many_steps",))
def reader_no_carry(inputs, hidden, cell, *weights):
    """Every step starts from the state before the first one: nothing is remembered.
    With a single step nobody notices. Look at what each turn of the loop hands to the next.
    """
    return read(inputs, hidden, cell, weights, carry=(False, False), show=0)


@wrong_fixed_reader("only the hidden state is carried", fails=("many_steps",))
def reader_half_carried(inputs, hidden, cell, *weights):
    """You carry the hidden state on, but each step gets the old cell again.
    An LSTM has two states; follow both through the loop.
    """
    return read(inputs, hidden, cell, weights, carry=(True, False), show=0)


@wrong_fixed_reader("the given state is not used")
def reader_from_zero(inputs, hidden, cell, *weights):
    """You start from zeros, whatever state is given.
    Look at where `hidden` and `cell` enter your first step.
    """
    zeros = torch.zeros_like(hidden), torch.zeros_like(cell)
    return read(inputs, *zeros, weights, carry=(True, True), show=0)


@wrong_fixed_reader("the outputs come one step late")
def reader_late(inputs, hidden, cell, *weights):
    """Your outputs start with the state from before the first step and miss the last one.
    Look at whether you put the state into the list before or after the step.
    """
    shown, *final = read(inputs, hidden, cell, weights, carry=(True, True), show=0)
    return torch.cat([hidden[:, None], shown[:, :-1]], dim=1), *final


@wrong_fixed_reader("the pair is handed over turned round")
def reader_swapped(inputs, hidden, cell, *weights):
    """You hand the cell over as hidden state and the hidden state as cell; both fit in shape.
    Look at the order of the pair that `lstm_cell` takes.
    """
    outputs = []
    for x in inputs.unbind(1):
        hidden, cell = functional.lstm_cell(x, (cell, hidden), *weights)
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), hidden, cell


# 8. The test to be written


@wrong_check_clipping("everything is accepted")
def check_nothing(candidate):
    """Your check accepts whatever it is given, even a function that does nothing.
    Compare what comes back with what is expected, and say False when it differs.
    """
    return True


@wrong_check_clipping("everything is rejected")
def check_refuses(candidate):
    """Your check rejects right answers as well.
    Run it on your own solution, and look at how closely you compare: `==` on floats is too close.
    """
    return False


@wrong_check_clipping("only a long gradient is tried", fails=("mutants",))
def check_one_case(candidate):
    """You try one long gradient and its new length.
    Some mistakes show only on short or zero gradients, in the second result or in the direction.
    """
    grads = [torch.tensor([3.0, 0.0]), torch.tensor([4.0])]
    clipped, _ = candidate(grads, 1.0)
    return bool((global_norm(clipped) - 1).abs() < 1e-4)
