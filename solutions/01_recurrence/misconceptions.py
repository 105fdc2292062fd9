"""Wrong answers to the recurrence exercises: name, message and the tests each must fail."""

import torch
from torch.nn import functional as F

from attn_course import functional
from attn_course.probes import WrongAnswers, call, student, witnesses

# 1. The plain cell


def right_rnn(
    input,
    hidden,
    weight_ih,
    weight_hh,
    bias_ih,
    bias_hh,
    *,
    past=lambda hidden, weight: hidden @ weight.T,
    join=lambda new, old, *biases: torch.tanh(new + old + sum(biases)),
):
    return join(input @ weight_ih.T, past(hidden, weight_hh), bias_ih, bias_hh)


rnn = WrongAnswers("rnn_cell", tests=("by_hand", "matrices", "biases", "gradient"), right=right_rnn)
rnn.detached()


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


rnn.fault(
    "no tanh",
    "You return the sum without a tanh, so the state can leave (-1, 1).",
    join=lambda new, old, *biases: new + old + sum(biases),
)
rnn.fault(
    "sigmoid instead of tanh",
    "You use a sigmoid, so no state is negative. The formula has a tanh.",
    join=lambda new, old, *biases: torch.sigmoid(new + old + sum(biases)),
)
rnn.fault(
    "each part has its own tanh",
    "You apply a tanh to each part and add the results. The formula has one tanh of the sum.",
    join=lambda new, old, one, two: torch.tanh(new + one) + torch.tanh(old + two),
)
for late, join in (
    ("biases", lambda new, old, *biases: torch.tanh(new + old) + sum(biases)),
    ("last bias", lambda new, old, first, last: torch.tanh(new + old + first) + last),
):
    rnn.fault(
        f"{late} added after the tanh",
        f"You add the {late} to the state, so it can leave (-1, 1). It belongs inside the tanh.",
        fails=("biases", "gradient"),
        join=join,
    )
rnn.fault(
    "the old state is ignored",
    "Your new state does not depend on the old one, so nothing is remembered.",
    past=lambda hidden, weight: 0.0 * hidden,
)
rnn.fault(
    "the old state enters unweighted",
    "You add the old state itself. The formula multiplies it by a matrix first.",
    past=lambda hidden, weight: hidden + 0.0 * weight.sum(),
)
rnn.fault(
    "recurrent matrix on the wrong side",
    """Your recurrent matrix is transposed; it is square, so the shapes fit. Element (i, j) is the
    weight from old unit j to new unit i.""",
    but=("by_hand",),
    past=lambda hidden, weight: hidden @ weight,
)
rnn.fault(
    "no gradient to the old state",
    "Your values are right, but you detach the old state, so no gradient goes back in time.",
    fails=("gradient",),
    past=lambda hidden, weight: hidden.detach() @ weight.T,
)

# 2. The LSTM


def keep_and_write(i, f, g, cell):
    return f.sigmoid() * cell + i.sigmoid() * g.tanh()


def right_lstm(
    input,
    state,
    weight_ih,
    weight_hh,
    bias_ih,
    bias_hh,
    *,
    cut=lambda gates: gates.chunk(4, dim=-1),
    update=keep_and_write,
    show=lambda o, cell, old: o.sigmoid() * cell.tanh(),
    pair=lambda hidden, cell: (hidden, cell),
):
    gates = F.linear(input, weight_ih, bias_ih) + F.linear(state[0], weight_hh, bias_hh)
    i, f, g, o = cut(gates)
    cell = update(i, f, g, state[1])
    return pair(show(o, cell, state[1]), cell)


lstm = WrongAnswers(
    "lstm_cell", tests=("by_hand", "memory", "weights", "gradient"), right=right_lstm
)
lstm.detached()


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


for blocks, order in (
    ("content and output gate", (0, 1, 3, 2)),
    ("forget gate and content", (0, 2, 1, 3)),
    ("input and forget gate", (1, 0, 2, 3)),
):
    lstm.fault(
        f"{blocks} exchanged",
        """You read the blocks in another order, as in some papers and libraries. Compare with the
        order in the exercise.""",
        cut=lambda gates, order=order: [gates.chunk(4, dim=-1)[at] for at in order],
    )
lstm.fault(
    "every fourth number to one gate",
    """You deal out the numbers to the four gates in turn. Each gate is a block of H adjacent
    numbers.""",
    but=("by_hand",),
    cut=lambda gates: gates.unflatten(-1, (-1, 4)).unbind(-1),
)
lstm.fault(
    "the forget gate means forget",
    "You multiply the old cell by 1 minus the forget gate. A gate of 1 keeps the cell.",
    update=lambda i, f, g, cell: keep_and_write(i, -f, g, cell),
)
lstm.fault(
    "the memory itself goes through a tanh",
    """You return the tanh of the cell as the new cell, so it shrinks at every step. The tanh
    belongs to the hidden state only.""",
    update=lambda i, f, g, cell: keep_and_write(i, f, g, cell).tanh(),
    show=lambda o, cell, old: o.sigmoid() * cell,
)
lstm.fault(
    "the gates have no sigmoid",
    "You multiply by the raw sums. A gate lies between 0 and 1.",
    update=lambda i, f, g, cell: f * cell + i * g.tanh(),
    show=lambda o, cell, old: o * cell.tanh(),
)
lstm.fault(
    "the old cell is dropped",
    "Your new cell contains only the new content. Add the old cell times the forget gate.",
    update=lambda i, f, g, cell: i.sigmoid() * g.tanh(),
)
for unused, update in (
    ("input", lambda i, f, g, cell: keep_and_write(-f, f, g, cell)),
    ("forget", lambda i, f, g, cell: keep_and_write(i, -i, g, cell)),
):
    lstm.fault(
        f"the {unused} gate is not used",
        "You use one gate for keeping and for writing, as a GRU does. An LSTM has two gates.",
        but=("memory",),
        update=update,
    )
lstm.fault(
    "the content goes through a sigmoid",
    """You treat all four blocks as gates, so the content is never negative. The content is not a
    gate.""",
    but=("memory",),
    update=lambda i, f, g, cell: f.sigmoid() * cell + i.sigmoid() * g.sigmoid(),
)
lstm.fault(
    "the hidden state is made from the cell without tanh",
    """Your hidden state is the output gate times the cell itself. The formula has the tanh of the
    cell.""",
    show=lambda o, cell, old: o.sigmoid() * cell,
)
lstm.fault(
    "the hidden state is made from the old cell",
    "You compute the hidden state from the old cell. Compute the new cell first.",
    but=("memory",),
    show=lambda o, cell, old: o.sigmoid() * old.tanh(),
)
lstm.fault(
    "the pair is reversed",
    "You return the cell first and the hidden state second. Exchange them.",
    pair=lambda hidden, cell: (cell, hidden),
)

# 3. The GRU


def right_gru(
    input,
    hidden,
    weight_ih,
    weight_hh,
    bias_ih,
    bias_hh,
    *,
    order=(0, 1, 2),
    propose=lambda new, reset, old: torch.tanh(new + reset * old),
    past=lambda reset, hidden, weight, bias: F.linear(hidden, weight, bias),
    mix=lambda update, new, hidden: (1 - update) * new + update * hidden,
):
    new = F.linear(input, weight_ih, bias_ih).chunk(3, dim=-1)
    old = F.linear(hidden, weight_hh, bias_hh).chunk(3, dim=-1)
    reset, update = (torch.sigmoid(new[at] + old[at]) for at in order[:2])
    past = past(reset, hidden, weight_hh.chunk(3)[2], bias_hh.chunk(3)[2])
    return mix(update, propose(new[2], reset, past), hidden)


gru = WrongAnswers("gru_cell", tests=("by_hand", "reset", "weights", "gradient"), right=right_gru)
gru.detached()


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


gru.fault(
    "reset and update exchanged",
    """You read the blocks in the order update, reset, new. The exercise stacks them as reset,
    update, new.""",
    order=(1, 0, 2),
)
gru.fault(
    "update gate reversed",
    """Your update gate keeps the proposal instead of the old state. Papers differ here; see the
    formula.""",
    mix=lambda update, new, hidden: update * new + (1 - update) * hidden,
)
for added, mix in (
    ("old state", lambda update, new, hidden: (1 - update) * new + hidden),
    ("proposal", lambda update, new, hidden: new + update * hidden),
):
    gru.fault(
        f"the {added} is added in full",
        f"""You add the {added} without its factor, so the sum can exceed 1. See the
        formula.""",
        mix=mix,
    )
gru.fault(
    "the reset gate on the input, too",
    "Your reset gate multiplies the part from the new input as well. It multiplies only the past.",
    propose=lambda new, reset, old: torch.tanh(reset * (new + old)),
)
gru.fault(
    "the reset gate on the wrong part",
    "Your reset gate multiplies the part from the new input. It should multiply the past.",
    propose=lambda new, reset, old: torch.tanh(reset * new + old),
)
gru.fault(
    "the reset gate is left out",
    "Your reset gate has no effect: the proposal always contains the whole past.",
    but=("by_hand",),
    propose=lambda new, reset, old: torch.tanh(new + old + 0.0 * reset),
)
gru.fault(
    "the proposal goes through a sigmoid",
    "You apply a sigmoid to the proposal, so it is never negative. The formula has a tanh.",
    propose=lambda new, reset, old: torch.sigmoid(new + reset * old),
)
for lost, keep in (("", 1.0), (", its bias lost", 0.0)):
    gru.fault(
        f"reset before the matrix{lost}",
        """You apply the reset gate to the old state before its matrix, as Cho and others do. This
        exercise follows torch; see the formula.""",
        but=("by_hand",),
        propose=lambda new, reset, old: torch.tanh(new + old),
        past=lambda reset, hidden, weight, bias, keep=keep: F.linear(
            reset * hidden, weight, keep * bias
        ),
    )
gru.fault(
    "the reset gate misses the bias",
    "Your reset gate multiplies the product but not its bias. It multiplies both.",
    but=("by_hand",),
    propose=lambda new, reset, old: torch.tanh(new + old),
    past=lambda reset, hidden, weight, bias: reset * (hidden @ weight.T) + bias,
)

# 4. Backpropagation through time


def walk_back(
    inputs,
    hidden,
    weight_ih,
    weight_hh,
    bias_ih,
    bias_hh,
    grad_outputs,
    *,
    start=lambda hidden: hidden,
    direct=lambda grads, t: grads[:, t],
    slope=lambda before, after: 1 - after**2,
    join=lambda direct, carried, slope: (direct + carried) * slope,
    multiplied=lambda before, after: before,
    carry=lambda delta, slope, weight: delta @ weight,
    last=lambda grads, delta: grads,
):
    states = [start(hidden)]
    for x in inputs.unbind(1):
        states.append(functional.rnn_cell(x, states[-1], weight_ih, weight_hh, bias_ih, bias_hh))
    grad_inputs = torch.zeros_like(inputs)
    grad_ih, grad_hh = torch.zeros_like(weight_ih), torch.zeros_like(weight_hh)
    grad_bias, carried = torch.zeros_like(bias_ih), torch.zeros_like(hidden)
    for t in reversed(range(inputs.shape[1])):
        here = slope(states[t], states[t + 1])
        delta = join(direct(grad_outputs, t), carried, here)
        grad_inputs[:, t] = delta @ weight_ih
        grad_ih += delta.T @ inputs[:, t]
        grad_hh += delta.T @ multiplied(states[t], states[t + 1])
        grad_bias += delta.sum(0)
        carried = carry(delta, here, weight_hh)
    return last((grad_inputs, carried, grad_ih, grad_hh, grad_bias, grad_bias.clone()), delta)


bptt = WrongAnswers(
    "rnn_bptt", tests=("by_hand", "one_step", "last_output", "every_output"), right=walk_back
)


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


bptt.fault(
    "the slope of tanh is forgotten",
    "You pass the gradient through the tanh unchanged. Multiply it by the slope.",
    slope=lambda before, after: torch.ones_like(after),
)
bptt.fault(
    "slope taken at the old state",
    """You compute the slope of step t from the previous state. Use the value of the tanh, the state
    of step t.""",
    slope=lambda before, after: 1 - before**2,
)
bptt.fault(
    "tanh applied once more",
    "You take the tanh of the state again before the slope. The state is already a tanh.",
    slope=lambda before, after: 1 - after.tanh() ** 2,
)
bptt.fault(
    "recurrent gradient with the new state",
    """For `weight_hh` you multiply the delta of step t by the state of the same step. Which state
    did this matrix multiply in the forward pass?""",
    multiplied=lambda before, after: after,
)
bptt.fault(
    "no gradient for the first state",
    "Your gradient for the first state is zero. What remains after the last pass of your loop?",
    last=lambda grads, delta: (grads[0], torch.zeros_like(grads[1]), *grads[2:]),
)
bptt.fault(
    "the first state gets the delta itself",
    """For the first state you return the delta of the first step. Multiply it by one more matrix,
    as between any two steps.""",
    last=lambda grads, delta: (grads[0], delta, *grads[2:]),
)
bptt.fault(
    "the carried gradient skips the tanh",
    "You multiply only the direct gradient by the slope, then add the carried one. Add them first.",
    but=("one_step",),
    join=lambda direct, carried, slope: direct * slope + carried,
)
bptt.fault(
    "carried back before the slope",
    """You carry the gradient back without the slope of the tanh. The matrix is inside the tanh:
    carry back the gradient after the slope.""",
    carry=lambda delta, slope, weight: (delta / slope) @ weight,
)
bptt.fault(
    "nothing is carried back",
    """Each of your steps gets only the gradient of its own output. Add the gradient from the next
    step.""",
    but=("one_step",),
    join=lambda direct, carried, slope: direct * slope,
)
bptt.fault(
    "carried back with the transpose",
    """You carry the gradient back with the transpose of the right matrix; it is square, so the
    shapes fit.""",
    but=("by_hand",),
    carry=lambda delta, slope, weight: delta @ weight.T,
)
bptt.fault(
    "recurrent gradient transposed",
    """Your gradient for `weight_hh` is transposed; the matrix is square, so the shape fits. Compare
    it with that for `weight_ih`.""",
    but=("by_hand",),
    last=lambda grads, delta: (*grads[:3], grads[3].T.contiguous(), *grads[4:]),
)
for averaged, begin in (("averaged", 2), ("everything averaged", 0)):
    bptt.fault(
        f"{averaged} over the batch",
        "You divide gradients by the number of sequences. The exercise asks for sums.",
        but=("by_hand",),
        last=lambda grads, delta, begin=begin: (
            *grads[:begin],
            *(g / len(delta) for g in grads[begin:]),
        ),
    )
bptt.fault(
    "only the last output counts",
    "You use only the last of `grad_outputs`. Add the direct gradient at every step.",
    fails=("every_output",),
    direct=lambda grads, t: grads[:, t] * float(t == grads.shape[1] - 1),
)
bptt.fault(
    "the first state is ignored",
    "You start from a state of zeros. Start from `hidden`.",
    fails=("one_step", "every_output"),
    start=torch.zeros_like,
)

# 5. Jacobians


def chain(
    hiddens,
    weight_hh,
    first,
    last,
    *,
    steps=lambda first, last: range(first + 1, last + 1),
    slope=lambda hiddens, t: 1 - hiddens[t] ** 2,
    step=lambda slope, weight: slope[:, None] * weight,
    end=lambda product: product,
):
    product = torch.eye(len(weight_hh), dtype=hiddens.dtype)
    for t in steps(first, last):
        product = step(slope(hiddens, t), weight_hh) @ product
    return end(product)


jacobian = WrongAnswers(
    "jacobian_product", tests=("by_hand", "one_step", "many_steps", "no_step"), right=chain
)


@witnesses(of="jacobian_product")
def jacobian_calls(draw):
    numbers = torch.tensor([[0.1], [0.4], [-0.5], [0.7]])
    for first, last in ((0, 1), (0, 2), (1, 3), (2, 2)):
        yield call(numbers, torch.tensor([[0.8]]), first, last)
    for first, last in ((0, 0), (0, 1), (0, 2), (1, 3), (0, 4)):
        yield call(draw.normal(5, 3).tanh(), draw.normal(3, 3), first, last)
        wide = torch.float64
        yield call(draw.normal(5, 2, dtype=wide).tanh(), draw.normal(2, 2, dtype=wide), first, last)


jacobian.fault(
    "the slope of tanh is forgotten",
    "You multiply the matrices without the slopes of the tanh. Each step has both.",
    but=("no_step",),
    slope=lambda hiddens, t: torch.ones_like(hiddens[t]),
)
jacobian.fault(
    "slope taken at the old state",
    """You compute the slope of each step from the previous state. Use the value of the tanh, the
    state after the step.""",
    but=("no_step",),
    slope=lambda hiddens, t: 1 - hiddens[t - 1] ** 2,
)
jacobian.fault(
    "tanh applied once more",
    """You take the tanh of the states again before the slope. `hiddens` are already values of a
    tanh.""",
    but=("no_step",),
    slope=lambda hiddens, t: 1 - hiddens[t].tanh() ** 2,
)
jacobian.fault(
    "slopes on the columns",
    """You multiply the columns of the matrix by the slopes. The slope belongs to the new unit:
    which axis is that?""",
    fails=("one_step", "many_steps"),
    step=lambda slope, weight: slope * weight,
)
jacobian.fault(
    "the matrix is transposed",
    """You use the transpose of the recurrent matrix. Element (i, j) of both the matrix and the
    result goes from old unit j to new unit i.""",
    fails=("one_step", "many_steps"),
    step=lambda slope, weight: slope[:, None] * weight.T,
)
jacobian.fault(
    "the result is transposed",
    "Your rows belong to the early state and your columns to the late one. Exchange them.",
    fails=("one_step", "many_steps"),
    end=lambda product: product.T,
)
jacobian.fault(
    "factors in the wrong order",
    """You multiply the steps in the wrong order. The earliest step acts first: on which side does
    it belong?""",
    fails=("many_steps",),
    steps=lambda first, last: range(last, first, -1),
)

# 6. Clipping


def global_norm(grads):
    return torch.sqrt(sum(g.pow(2).sum() for g in grads))


def right_clip(
    grads,
    max_norm,
    *,
    size=global_norm,
    factor=lambda norm, most: torch.clamp(most / (norm + 1e-6), max=1.0),
    report=lambda norm, clipped: norm,
):
    norm = size(grads)
    clipped = [g * factor(norm, max_norm) for g in grads]
    return clipped, report(norm, clipped)


clip = WrongAnswers(
    "clip_by_global_norm",
    tests=("by_hand", "any_shapes", "short_gradients", "all_zero"),
    right=right_clip,
)


@witnesses(of="clip_by_global_norm")
def clip_calls(draw):
    yield call([torch.tensor([6.0, 8.0]), torch.tensor([24.0])], 13.0)
    yield call([torch.tensor([6.0, 8.0]), torch.tensor([24.0])], 30.0)
    yield call([torch.tensor([0.6, 0.8])], 3.0)
    yield call([torch.zeros(3), torch.zeros(1, 2)], 2.0)
    yield call([4 * draw.normal(3, 2), 4 * draw.normal(5), 4 * draw.normal(1, 2, 3)], 0.5)
    yield call([draw.normal(3, 2), draw.normal(5)], 50.0)


for name, size in (
    ("norms are added up", lambda grads: sum(g.norm() for g in grads)),
    ("sum of absolute values", lambda grads: sum(g.abs().sum() for g in grads)),
    ("the largest element as norm", lambda grads: max(g.abs().max() for g in grads)),
    ("the root is missing", lambda grads: global_norm(grads) ** 2),
):
    clip.fault(
        name,
        """Your norm differs from that of the exercise. It is the length of all gradients as one
        vector: 5 for (3, 0) and (4).""",
        but=("all_zero",),
        size=size,
    )
clip.fault(
    "the norm after clipping",
    "Your gradients are right, but you return the norm after clipping. Return the norm before it.",
    fails=("by_hand", "any_shapes"),
    report=lambda norm, clipped: global_norm(clipped),
)
clip.fault(
    "short gradients are lengthened",
    "You scale every gradient to the maximum norm. Shorter ones keep their values.",
    fails=("short_gradients",),
    factor=lambda norm, most: most / (norm + 1e-6),
)
clip.fault(
    "always rescaled, and divided by zero",
    """You scale every gradient to the maximum norm, and zeros become NaN. Shorter gradients keep
    their values.""",
    fails=("short_gradients", "all_zero"),
    factor=lambda norm, most: most / norm,
)
clip.fault(
    "zero gradients become NaN",
    "You divide the gradients by their norm, which is 0 for zero gradients. They should stay zero.",
    fails=("all_zero",),
    factor=lambda norm, most: torch.clamp(norm, max=most) / norm,
)


@clip("each tensor by its own norm", fails=("by_hand", "any_shapes"))
def clip_each(grads, max_norm):
    """You clip every tensor by its own norm, which changes the direction of the step. Use one norm
    for all.
    """
    return [right_clip([g], max_norm)[0][0] for g in grads], global_norm(grads)


@clip("every element by value", fails=("by_hand", "any_shapes"))
def clip_value(grads, max_norm):
    """You clip each element by itself, which changes the direction of the step. Multiply all
    gradients by one factor.
    """
    return [g.clamp(-max_norm, max_norm) for g in grads], global_norm(grads)


@clip("the gradients are changed in place", fails=("by_hand", "any_shapes"))
def clip_in_place(grads, max_norm):
    """You change the caller's gradients. Look for `*=`, methods that end in an underscore and
    assignments to `g[...]`.
    """
    clipped, norm = right_clip(grads, max_norm)
    for g, new in zip(grads, clipped, strict=True):
        g.copy_(new)
    return list(grads), norm


# 7. The reader to be mended


def read(
    inputs,
    hidden,
    cell,
    *weights,
    begin=lambda hidden, cell: (hidden, cell),
    step=functional.lstm_cell,
    carry=(True, True),
    show=lambda before, after: after[0],
):
    first = state = begin(hidden, cell)
    outputs = []
    for x in inputs.unbind(1):
        new = step(x, state, *weights)
        outputs.append(show(state, new))
        state = tuple(n if c else f for n, f, c in zip(new, first, carry, strict=True))
    return torch.stack(outputs, dim=1), *new


reader = WrongAnswers("fixed_reader", tests=("one_step", "many_steps"), right=read)


@witnesses(of="fixed_reader")
def reader_calls(draw):
    for length in (1, 2, 4):
        shapes = ((2, length, 2), (2, 3), (2, 3), (12, 2), (12, 3), (12,), (12,))
        yield call(*(draw.normal(*s) for s in shapes))


reader.fault(
    "nothing is repaired yet",
    "This gives the numbers of the broken reader. Follow `state` through two passes of the loop.",
    carry=(False, False),
    show=lambda before, after: after[1],
)
reader.fault(
    "the cells are returned",
    "You carry the state, but your outputs are the cells. Return the hidden states.",
    show=lambda before, after: after[1],
)
reader.fault(
    "every step starts from the first state",
    "Each of your steps starts from the initial state. Carry the new state to the next step.",
    fails=("many_steps",),
    carry=(False, False),
)
for kept, carry in (("hidden state", (True, False)), ("cell", (False, True))):
    reader.fault(
        f"only the {kept} is carried",
        f"You carry the {kept}, but the other state is always the first one. An LSTM has two states.",
        fails=("many_steps",),
        carry=carry,
    )
reader.fault(
    "the given state is not used",
    "You start from zeros. Start from `hidden` and `cell`.",
    begin=lambda hidden, cell: (torch.zeros_like(hidden), torch.zeros_like(cell)),
)
reader.fault(
    "the outputs come one step late",
    "Your outputs are one step late: they start with the initial state and miss the last one.",
    show=lambda before, after: before[0],
)
reader.fault(
    "hidden state and cell are exchanged",
    "You pass the cell as the hidden state and the hidden state as the cell. Exchange them.",
    step=lambda x, state, *weights: functional.lstm_cell(x, state[::-1], *weights),
)

# 8. The test to be written

check = WrongAnswers("check_clipping", tests=("first_pair", "mutants"))


@check("everything is accepted")
def check_nothing(candidate):
    """Your test accepts every candidate. Compare its result with your own numbers, and return False
    when it differs.
    """
    return True


@check("everything is rejected")
def check_refuses(candidate):
    """Your test rejects right answers. Run it on your own solution: `==` on floats is too strict."""
    return False


@check("only a long gradient is tried", fails=("mutants",))
def check_one_case(candidate):
    """You test only one long gradient and its new length. Test short and zero gradients, the
    direction and the second result, too.
    """
    clipped, _ = candidate([torch.tensor([3.0, 0.0]), torch.tensor([4.0])], 1.0)
    return bool((global_norm(clipped) - 1).abs() < 1e-4)
