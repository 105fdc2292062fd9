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
    "You return the sum itself, without a tanh. Can a large input push your state beyond 1?",
    join=lambda new, old, *biases: new + old + sum(biases),
)
rnn.fault(
    "sigmoid instead of tanh",
    "You map into (0, 1), so no state can ever be negative. Which range does the formula give?",
    join=lambda new, old, *biases: torch.sigmoid(new + old + sum(biases)),
)
rnn.fault(
    "each part has a tanh of its own",
    """You take a tanh of the input's part and one of the state's part, and add them. The result
    can leave (-1, 1). Count the tanh in the formula.""",
    join=lambda new, old, one, two: torch.tanh(new + one) + torch.tanh(old + two),
)
for late, join in (
    ("biases", lambda new, old, *biases: torch.tanh(new + old) + sum(biases)),
    ("last bias", lambda new, old, first, last: torch.tanh(new + old + first) + last),
):
    rnn.fault(
        f"{late} added after the tanh",
        f"You add the {late} to the state, so it can leave (-1, 1). Where does the bracket close?",
        fails=("biases", "gradient"),
        join=join,
    )
rnn.fault(
    "the old state is ignored",
    "The new state does not depend on the old one: nothing is remembered.",
    past=lambda hidden, weight: 0.0 * hidden,
)
rnn.fault(
    "the old state enters unweighted",
    "You add the old state itself. In the formula a matrix stands in front of it.",
    past=lambda hidden, weight: hidden + 0.0 * weight.sum(),
)
rnn.fault(
    "recurrent matrix on the wrong side",
    """Your recurrent matrix is transposed. The shapes fit, because it is square; the numbers do
    not. Element (i, j) of the matrix says what old unit j does to new unit i.""",
    but=("by_hand",),
    past=lambda hidden, weight: hidden @ weight,
)
rnn.fault(
    "no gradient to the old state",
    """The numbers are right, but the old state is cut off, so no gradient goes back in time. The
    caller of the cell decides whether to cut the history.""",
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
        """You read the blocks in another order, as some papers and libraries stack them. Compare
        with the order that the exercise states.""",
        cut=lambda gates, order=order: [gates.chunk(4, dim=-1)[at] for at in order],
    )
lstm.fault(
    "every fourth number to one gate",
    """You give the numbers in turn to the four gates. With one unit that is right. Each gate is a
    block: its H numbers are adjacent.""",
    but=("by_hand",),
    cut=lambda gates: gates.unflatten(-1, (-1, 4)).unbind(-1),
)
lstm.fault(
    "the forget gate means forget",
    "You multiply the old cell by one minus the forget gate. A gate of 1 keeps the cell.",
    update=lambda i, f, g, cell: keep_and_write(i, -f, g, cell),
)
lstm.fault(
    "the memory itself goes through a tanh",
    """You carry the tanh of the cell to the next step, so the memory can never exceed 1 and
    shrinks at every step. The tanh belongs to the hidden state only.""",
    update=lambda i, f, g, cell: keep_and_write(i, f, g, cell).tanh(),
    show=lambda o, cell, old: o.sigmoid() * cell,
)
lstm.fault(
    "the gates have no sigmoid",
    "You multiply by the raw sums, which can be 3 or -30. A gate lies between 0 and 1.",
    update=lambda i, f, g, cell: f * cell + i * g.tanh(),
    show=lambda o, cell, old: o * cell.tanh(),
)
lstm.fault(
    "the old cell is dropped",
    "Your new cell holds the new content only: nothing of the old memory is kept.",
    update=lambda i, f, g, cell: i.sigmoid() * g.tanh(),
)
for unused, update in (
    ("input", lambda i, f, g, cell: keep_and_write(-f, f, g, cell)),
    ("forget", lambda i, f, g, cell: keep_and_write(i, -i, g, cell)),
):
    lstm.fault(
        f"the {unused} gate is not used",
        "One gate decides what is kept and what is written, as in a GRU. An LSTM has two for that.",
        but=("memory",),
        update=update,
    )
lstm.fault(
    "the content goes through a sigmoid",
    "You treat all four blocks as gates, so the content is never negative. One is not a gate.",
    but=("memory",),
    update=lambda i, f, g, cell: f.sigmoid() * cell + i.sigmoid() * g.sigmoid(),
)
lstm.fault(
    "the hidden state is made from the cell without tanh",
    "Your hidden state is the output gate times the cell itself, so it can leave (-1, 1).",
    show=lambda o, cell, old: o.sigmoid() * cell,
)
lstm.fault(
    "the hidden state is made from the old cell",
    "Your hidden state lags one step behind. Which of the two states is computed first?",
    but=("memory",),
    show=lambda o, cell, old: o.sigmoid() * old.tanh(),
)
lstm.fault(
    "the pair is turned round",
    "You return the cell first and the hidden state second; both have the same shape.",
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
    "You read the blocks in the order update, reset, new. The exercise stacks them otherwise.",
    order=(1, 0, 2),
)
gru.fault(
    "update gate the other way round",
    "Your update gate keeps the proposal instead of the old state. Papers differ here.",
    mix=lambda update, new, hidden: update * new + (1 - update) * hidden,
)
for added, mix in (
    ("old state", lambda update, new, hidden: (1 - update) * new + hidden),
    ("proposal", lambda update, new, hidden: new + update * hidden),
):
    gru.fault(
        f"the {added} is added in full",
        f"""You add the {added} without its factor, so the sum can exceed 1. What do z and 1 - z add
        up to, and which one belongs to what?""",
        mix=mix,
    )
gru.fault(
    "the reset gate closes the input too",
    "Your reset gate multiplies the part from the new input as well. It hides only the past.",
    propose=lambda new, reset, old: torch.tanh(reset * (new + old)),
)
gru.fault(
    "the reset gate closes the wrong half",
    "Your reset gate multiplies the part from the new input and not the past.",
    propose=lambda new, reset, old: torch.tanh(reset * new + old),
)
gru.fault(
    "the reset gate is left out",
    "Your proposal always contains the whole past: the reset gate has no effect.",
    but=("by_hand",),
    propose=lambda new, reset, old: torch.tanh(new + old + 0.0 * reset),
)
gru.fault(
    "the proposal goes through a sigmoid",
    "Your proposal is never negative. One of the three blocks is not a gate.",
    propose=lambda new, reset, old: torch.sigmoid(new + reset * old),
)
for lost, keep in (("", 1.0), (", its bias lost", 0.0)):
    gru.fault(
        f"reset before the matrix{lost}",
        """You multiply the old state by the reset gate before its matrix, as Cho and others do.
        This exercise follows torch: what does the reset gate multiply there?""",
        but=("by_hand",),
        propose=lambda new, reset, old: torch.tanh(new + old),
        past=lambda reset, hidden, weight, bias, keep=keep: F.linear(
            reset * hidden, weight, keep * bias
        ),
    )
gru.fault(
    "the reset gate misses the bias",
    "Your reset gate multiplies the product but not the bias added to it.",
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
    "You pass the gradient through the tanh unchanged. It is multiplied by the slope there.",
    slope=lambda before, after: torch.ones_like(after),
)
bptt.fault(
    "slope taken at the old state",
    """You compute the slope of step t from the state before it. The slope of a tanh can be written
    with its value: which state is the value of step t?""",
    slope=lambda before, after: 1 - before**2,
)
bptt.fault(
    "tanh applied once more",
    "You take the tanh of the state again before the slope. The state is a tanh already.",
    slope=lambda before, after: 1 - after.tanh() ** 2,
)
bptt.fault(
    "recurrent gradient with the new state",
    """For `weight_hh` you multiply the delta of step t with the state of the same step. Which state
    was multiplied with that matrix on the way forward?""",
    multiplied=lambda before, after: after,
)
bptt.fault(
    "no gradient for the first state",
    "Your gradient for the first state is zero. What is left after the last turn of your loop?",
    last=lambda grads, delta: (grads[0], torch.zeros_like(grads[1]), *grads[2:]),
)
bptt.fault(
    "the first state gets the delta itself",
    """For the first state you return the delta of the first step, which lies inside the tanh. One
    more matrix lies between the two, as between any two steps.""",
    last=lambda grads, delta: (grads[0], delta, *grads[2:]),
)
bptt.fault(
    "what is carried back skips the tanh",
    """You multiply only what the loss reads directly by the slope, and then add the rest. Both
    reach the state first.""",
    but=("one_step",),
    join=lambda direct, carried, slope: direct * slope + carried,
)
bptt.fault(
    "carried back before the slope",
    """You carry the gradient of the state back to the step before, without the slope of the tanh.
    The matrix stands inside the tanh: carry back what has passed it.""",
    carry=lambda delta, slope, weight: (delta / slope) @ weight,
)
bptt.fault(
    "nothing is carried back",
    """Each step gets only the gradient of its own output. A state is read by the next step as
    well as by the loss.""",
    but=("one_step",),
    join=lambda direct, carried, slope: direct * slope,
)
bptt.fault(
    "carried back through the wrong side",
    """Going back you multiply with the transpose of the right matrix; it is square, so it fits.
    Write down the sum over the units that one old unit affects.""",
    but=("by_hand",),
    carry=lambda delta, slope, weight: delta @ weight.T,
)
bptt.fault(
    "recurrent gradient transposed",
    """Your gradient for `weight_hh` is transposed; the matrix is square, so the shape fits. Compare
    with your line for `weight_ih`.""",
    but=("by_hand",),
    last=lambda grads, delta: (*grads[:3], grads[3].T.contiguous(), *grads[4:]),
)
for averaged, begin in (("averaged", 2), ("everything averaged", 0)):
    bptt.fault(
        f"{averaged} over the batch",
        """You divide gradients by the number of sequences. The exercise asks for sums: a mean is
        part of the loss, and `grad_outputs` contains it already.""",
        but=("by_hand",),
        last=lambda grads, delta, begin=begin: (
            *grads[:begin],
            *(g / len(delta) for g in grads[begin:]),
        ),
    )
bptt.fault(
    "only the last output counts",
    "You use what the loss reads at the last step and drop what it reads at the steps before.",
    fails=("every_output",),
    direct=lambda grads, t: grads[:, t] * float(t == grads.shape[1] - 1),
)
bptt.fault(
    "the first state counts as zero",
    "You start from a state of zeros. Where does `hidden` enter your loop forward?",
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
    "You multiply the matrices of the steps as if there were no tanh between them.",
    but=("no_step",),
    slope=lambda hiddens, t: torch.ones_like(hiddens[t]),
)
jacobian.fault(
    "slope taken at the old state",
    """You compute the slope of each step from the state before it. The slope of a tanh can be
    written with its value: which state is the value of the step?""",
    but=("no_step",),
    slope=lambda hiddens, t: 1 - hiddens[t - 1] ** 2,
)
jacobian.fault(
    "tanh applied once more",
    """You take the tanh of the states again before the slope. `hiddens` are values of a tanh
    already.""",
    but=("no_step",),
    slope=lambda hiddens, t: 1 - hiddens[t].tanh() ** 2,
)
jacobian.fault(
    "slopes on the columns",
    """You multiply the columns of the matrix by the slopes instead of its rows. The slope belongs
    to the unit that is computed: which axis of the matrix is that?""",
    fails=("one_step", "many_steps"),
    step=lambda slope, weight: slope * weight,
)
jacobian.fault(
    "the matrix is transposed",
    """You use the transpose of the recurrent matrix, as the code of the cell does for its rows.
    What does element (i, j) of the matrix say, and element (i, j) of the result?""",
    fails=("one_step", "many_steps"),
    step=lambda slope, weight: slope[:, None] * weight.T,
)
jacobian.fault(
    "the result is transposed",
    "Your rows belong to the early state and your columns to the late one.",
    fails=("one_step", "many_steps"),
    end=lambda product: product.T,
)
jacobian.fault(
    "factors in the wrong order",
    """You multiply the steps in the order of time from the left. Apply your product to a small
    change of the early state: which step must act first?""",
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
        """Your norm is another one than that of the exercise. Think of all gradients as one long
        vector, and compute its length for (3, 0) and (4), which is 5.""",
        but=("all_zero",),
        size=size,
    )
clip.fault(
    "the norm after clipping",
    "The gradients are right, but you return the norm after clipping. It hides an explosion.",
    fails=("by_hand", "any_shapes"),
    report=lambda norm, clipped: global_norm(clipped),
)
clip.fault(
    "short gradients are stretched",
    "You bring every gradient to the maximum norm, also shorter ones. When should nothing happen?",
    fails=("short_gradients",),
    factor=lambda norm, most: most / (norm + 1e-6),
)
clip.fault(
    "always rescaled, and divided by zero",
    """You bring every gradient to the maximum norm. Short ones are stretched, and a gradient of
    zeros becomes NaN. When should nothing happen?""",
    fails=("short_gradients", "all_zero"),
    factor=lambda norm, most: most / norm,
)
clip.fault(
    "zero gradients become NaN",
    "You divide the gradients by their norm, and the norm of zeros is zero.",
    fails=("all_zero",),
    factor=lambda norm, most: torch.clamp(norm, max=most) / norm,
)


@clip("each tensor by its own norm", fails=("by_hand", "any_shapes"))
def clip_each(grads, max_norm):
    """You clip every tensor by its own norm, so short ones keep their length and long ones do not.
    The step then has another direction: the norm is global.
    """
    return [right_clip([g], max_norm)[0][0] for g in grads], global_norm(grads)


@clip("every element by value", fails=("by_hand", "any_shapes"))
def clip_value(grads, max_norm):
    """You limit each number by itself, which changes the direction of the step. Clipping by norm
    multiplies everything by one factor.
    """
    return [g.clamp(-max_norm, max_norm) for g in grads], global_norm(grads)


@clip("the gradients are changed in place", fails=("by_hand", "any_shapes"))
def clip_in_place(grads, max_norm):
    """You write into the caller's gradients. Look for `*=`, for methods that end in an underscore
    and for assignments to `g[...]`.
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
    "nothing is mended yet",
    "This gives the numbers of the broken reader. Follow `state` through two turns of the loop.",
    carry=(False, False),
    show=lambda before, after: after[1],
)
reader.fault(
    "the cells are returned",
    "You carry the state, but your outputs are the cells. Which of the pair is the output?",
    show=lambda before, after: after[1],
)
reader.fault(
    "every step starts from the first state",
    "Every step starts from the state before the first one: nothing is remembered.",
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
    "You start from zeros. Where do `hidden` and `cell` enter your first step?",
    begin=lambda hidden, cell: (torch.zeros_like(hidden), torch.zeros_like(cell)),
)
reader.fault(
    "the outputs come one step late",
    "Your outputs start with the state before the first step and miss the last one.",
    show=lambda before, after: before[0],
)
reader.fault(
    "hidden state and cell are exchanged",
    "You pass the cell as hidden state and the hidden state as cell; both fit in shape.",
    step=lambda x, state, *weights: functional.lstm_cell(x, state[::-1], *weights),
)

# 8. The test to be written

check = WrongAnswers("check_clipping", tests=("first_pair", "mutants"))


@check("everything is accepted")
def check_nothing(candidate):
    """Your check accepts every candidate, even one that does nothing. Compare what it returns with
    what is expected, and return False when it differs.
    """
    return True


@check("everything is rejected")
def check_refuses(candidate):
    """Your check rejects right answers as well. Run it on your own solution. How closely do you
    compare? `==` on floats is too close.
    """
    return False


@check("only a long gradient is tried", fails=("mutants",))
def check_one_case(candidate):
    """You try one long gradient and its new length. Some mistakes show only on short or zero
    gradients, in the second result or in the direction.
    """
    clipped, _ = candidate([torch.tensor([3.0, 0.0]), torch.tensor([4.0])], 1.0)
    return bool((global_norm(clipped) - 1).abs() < 1e-4)
