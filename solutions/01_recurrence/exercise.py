# %% [markdown]
# # Exercises: recurrence
#
# Write each function in its own cell, then run the test cells below it.
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# `B` is the batch, `L` the length, `D` the size of an input and `H` the size of a state.
# Weights have torch's layouts: `weight_ih` is `(H, D)` and `weight_hh` is `(H, H)` per gate; vectors are rows.
# Results have the dtype of the inputs (`float32` or `float64`), and inputs are not changed.

# %% nbgrader={"grade_id": "setup", "locked": true}
import math

import torch

from attn_course import functional
from attn_course.probes import load_oracles

oracles, probes = load_oracles("01_recurrence")


def drawn(probe, *shapes, dtype=torch.float32):
    """One random tensor for each shape, small enough not to saturate the tanh."""
    return [probe.normal(*shape, dtype=dtype, std=0.6) for shape in shapes]


# %% [markdown]
# ## 1. The plain cell
#
# `rnn_cell(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh)` takes one step of a plain recurrent network:
#
# $$h_t = \tanh(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})$$
#
# - `input` is `(B, D)`, `hidden` is `(B, H)`, `weight_ih` is `(H, D)`, `weight_hh` is `(H, H)`, each bias is `(H,)`.
# - The result is the new state, `(B, H)`, in the dtype of its inputs.
# - Gradients reach all arguments. Do not use `torch.nn.RNNCell` or its relatives.
#
# By hand, with all sizes 1: input 1, old state 0, $u = 1$, $w = 0.5$ and no biases give $\tanh(1) = 0.7616$; then input 0 gives $\tanh(0.5 \cdot 0.7616) = 0.3634$.
#
# <details><summary>Hint</summary>
#
# Each row of `input` is multiplied by each row of `weight_ih`. Write down the shapes: which matrix must be transposed?
#
# </details>


# %% nbgrader={"grade_id": "rnn_cell", "solution": true} attn_course={"forbidden": ["rnn_tanh_cell", "rnn_relu_cell", "gru_cell", "lstm_cell", "rnn_tanh", "rnn_relu", "gru", "lstm", "clip_grad_norm_", "clip_grads_with_norm_", "get_total_norm", "aten::*lstm*", "aten::*gru*", "aten::*rnn*"]}
def rnn_cell(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    ### BEGIN SOLUTION
    return torch.tanh(input @ weight_ih.T + bias_ih + hidden @ weight_hh.T + bias_hh)
    ### END SOLUTION


# %% nbgrader={"grade_id": "rnn_cell-by_hand", "grade": true, "points": 1}
# The steps by hand: all sizes are 1, no biases.
probe = probes(rnn_cell=rnn_cell)
one, half, none = torch.tensor([[1.0]]), torch.tensor([[0.5]]), torch.zeros(1)
probe.equals(torch.tensor([[0.0]]), torch.tensor([[0.7616]]), one, half, none, none)
probe.equals(torch.tensor([[-1.0]]), torch.tensor([[0.3634]]), one, half, none, none)
### BEGIN HIDDEN TESTS
number = 0.5 + probe.uniform(4, 1, 1)
probe.equals(number[0], number[1], number[2], number[3], none, none)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "rnn_cell-matrices", "grade": true, "points": 2}
# Matrices of every shape, no biases.
probe = probes(rnn_cell=rnn_cell)
turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
none = torch.zeros(2)
probe.equals(torch.ones(1, 3), torch.tensor([[1.0, 2.0]]), torch.ones(2, 3) / 3, turn, none, none)
### BEGIN HIDDEN TESTS
probe.equals(*drawn(probe, (2, 3), (2, 5), (5, 3), (5, 5)), torch.zeros(5), torch.zeros(5))
wide = drawn(probe, (7, 5), (7, 2), (2, 5), (2, 2), dtype=torch.float64)
probe.equals(*wide, none.double(), none.double())
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "rnn_cell-biases", "grade": true, "points": 1}
# Two nonzero biases.
probe = probes(rnn_cell=rnn_cell)
nothing, one = torch.zeros(1, 2), torch.eye(2)
probe.equals(nothing, nothing, one, one, torch.tensor([1.0, 0.0]), torch.tensor([0.5, -0.5]))
### BEGIN HIDDEN TESTS
probe.equals(*drawn(probe, (2, 3), (2, 5), (5, 3), (5, 5), (5,), (5,)))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "rnn_cell-gradient", "grade": true, "points": 1}
# Gradients with respect to the input, the old state and both matrices.
probe = probes(rnn_cell=rnn_cell)
probe.gradient(*drawn(probe, (2, 3), (2, 2), (2, 3), (2, 2), (2,), (2,)), wrt=(0, 1, 2, 3))

# %% [markdown]
# ## 2. The long short-term memory
#
# `lstm_cell(input, state, weight_ih, weight_hh, bias_ih, bias_hh)` takes one step of an LSTM.
# The four blocks of the weights are stacked in torch's order: input gate, forget gate, content, output gate.
#
# $$(i, f, g, o) = W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh}, \qquad
# c_t = \sigma(f) \odot c_{t-1} + \sigma(i) \odot \tanh(g), \qquad h_t = \sigma(o) \odot \tanh(c_t)$$
#
# - `state` is the pair `(hidden, cell)`, each `(B, H)`; `weight_ih` is `(4H, D)`, `weight_hh` is `(4H, H)`, each bias is `(4H,)`.
# - The result is the new pair `(hidden, cell)`.
# - Gradients reach all arguments. Do not use `torch.nn.LSTMCell` or its relatives.
#
# By hand, with `H = 1`: if the four numbers are 2, 3, 1, 0 and the old cell is 1, then the new cell is $0.9526 \cdot 1 + 0.8808 \cdot 0.7616 = 1.6234$ and the new hidden state $0.5 \cdot \tanh(1.6234) = 0.4626$.
#
# <details><summary>Hint</summary>
#
# One product gives all four blocks; `chunk(4, dim=-1)` splits it.
#
# </details>


# %% nbgrader={"grade_id": "lstm_cell", "solution": true} attn_course={"forbidden": ["rnn_tanh_cell", "rnn_relu_cell", "gru_cell", "lstm_cell", "rnn_tanh", "rnn_relu", "gru", "lstm", "clip_grad_norm_", "clip_grads_with_norm_", "get_total_norm", "aten::*lstm*", "aten::*gru*", "aten::*rnn*"]}
def lstm_cell(input, state, weight_ih, weight_hh, bias_ih, bias_hh):
    ### BEGIN SOLUTION
    hidden, cell = state
    gates = input @ weight_ih.T + bias_ih + hidden @ weight_hh.T + bias_hh  # (B, 4H)
    i, f, g, o = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell
    ### END SOLUTION


# %% nbgrader={"grade_id": "lstm_cell-by_hand", "grade": true, "points": 2}
# The example by hand: one unit, the four numbers come from the first bias alone.
probe = probes(lstm_cell=lstm_cell)
unit, no_weight = torch.ones(1, 1), torch.zeros(4, 1)
numbers = torch.tensor([2.0, 3.0, 1.0, 0.0])
probe.equals(unit, (unit, unit), no_weight, no_weight, numbers, torch.zeros(4))
### BEGIN HIDDEN TESTS
numbers = torch.tensor([0.4, 2.0, -1.5, 1.0]) + 0.2 * probe.uniform(4)
probe.equals(unit, (unit, 0.5 + probe.uniform(1, 1)), no_weight, no_weight, numbers, torch.zeros(4))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "lstm_cell-memory", "grade": true, "points": 1}
# The forget gate is 1, the input gate 0, and the old cell is large: it must not change.
probe = probes(lstm_cell=lstm_cell)
keep = torch.tensor([-30.0, 30.0, 1.0, 0.5])
probe.equals(unit, (unit, 3 * unit), no_weight, no_weight, keep, torch.zeros(4))
### BEGIN HIDDEN TESTS
state = (probe.normal(3, 5), 2.0 + probe.uniform(3, 5))
no_weights = torch.zeros(20, 2), torch.zeros(20, 5)
probe.equals(probe.normal(3, 2), state, *no_weights, keep.repeat_interleave(5), torch.zeros(20))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "lstm_cell-weights", "grade": true, "points": 2}
# Full weights and both biases, several sequences and units.
probe = probes(lstm_cell=lstm_cell)
x, *state = drawn(probe, (2, 5), (2, 3), (2, 3))
probe.equals(x, tuple(state), *drawn(probe, (12, 5), (12, 3), (12,), (12,)))
### BEGIN HIDDEN TESTS
double = {"dtype": torch.float64}
x, *state = drawn(probe, (3, 2), (3, 7), (3, 7), **double)
probe.equals(x, tuple(state), *drawn(probe, (28, 2), (28, 7), (28,), (28,), **double))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "lstm_cell-gradient", "grade": true, "points": 1}
# Gradients with respect to the input and both matrices.
probe = probes(lstm_cell=lstm_cell)
x, *state = drawn(probe, (2, 3), (2, 2), (2, 2))
probe.gradient(x, tuple(state), *drawn(probe, (8, 3), (8, 2), (8,), (8,)), wrt=(0, 2, 3))

# %% [markdown]
# ## 3. How a late state depends on an early one
#
# `jacobian_product(hiddens, weight_hh, first, last)` returns $\partial h_\text{last} / \partial h_\text{first}$ of a plain tanh network.
#
# - `hiddens` is `(L, H)`, the states $h_0, \dots, h_{L-1}$ of one sequence; `weight_hh` is `(H, H)`.
# - `first` and `last` are positions in `hiddens` with `0 <= first <= last < L`.
# - The result is `(H, H)`: element $(i, j)$ is the derivative of element $i$ of the late state with respect to element $j$ of the early one. For `first == last` it is the identity.
#
# By hand, one unit, states 0, 0.7616, 0.3634, −0.6741 and $w = 0.5$: from state 1 to state 3 it is $0.4340 \cdot 0.2728 = 0.1184$.
#
# <details><summary>Hint</summary>
#
# Write down the factor of one step. On which side of the product does a later step belong?
#
# </details>


# %% nbgrader={"grade_id": "jacobian_product", "solution": true}
def jacobian_product(hiddens, weight_hh, first, last):
    ### BEGIN SOLUTION
    product = torch.eye(hiddens.shape[-1], dtype=hiddens.dtype)
    for t in range(first + 1, last + 1):
        step = (1 - hiddens[t] ** 2)[:, None] * weight_hh  # diag(slope) @ W
        product = step @ product
    return product
    ### END SOLUTION


# %% nbgrader={"grade_id": "jacobian_product-by_hand", "grade": true, "points": 1}
# The example by hand, one unit.
probe = probes(jacobian_product=jacobian_product)
states = torch.tensor([[0.0], [0.7616], [0.3634], [-0.6741]])
probe.equals(states, torch.tensor([[0.5]]), 1, 3)
### BEGIN HIDDEN TESTS
states = 0.1 + 0.15 * torch.arange(6.0)[:, None] + 0.05 * probe.uniform(6, 1)
probe.equals(states, 0.7 + probe.uniform(1, 1), 0, 3)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "jacobian_product-one_step", "grade": true, "points": 2}
# A single step with several units.
probe = probes(jacobian_product=jacobian_product)
states = torch.tensor([[0.1, 0.2], [0.5, 0.0], [0.9, -0.5]])
weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
probe.equals(states, weight, 0, 1)
probe.equals(states, weight, 1, 2)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(4, 3).tanh(), probe.normal(3, 3), 2, 3)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "jacobian_product-many_steps", "grade": true, "points": 2}
# Several steps with several units.
probe = probes(jacobian_product=jacobian_product)
probe.equals(states, weight, 0, 2)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(7, 3).tanh(), probe.normal(3, 3), 1, 5)
states, weight = drawn(probe, (6, 5), (5, 5), dtype=torch.float64)
probe.equals(states.tanh(), weight, 0, 5)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "jacobian_product-no_step", "grade": true, "points": 1}
# No step at all.
probe = probes(jacobian_product=jacobian_product)
probe.equals(torch.tensor([[0.1, 0.2], [0.5, 0.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 1, 1)
### BEGIN HIDDEN TESTS
states, weight = drawn(probe, (3, 5), (5, 5), dtype=torch.float64)
probe.equals(states.tanh(), weight, 2, 2)
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# How much of a gradient reaches the state 25 steps earlier? Your cell computes the states, your product the Jacobian. Multiply `weight_hh` by 2 and by 0.5 and compare.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

draw = torch.Generator().manual_seed(0)
weight_ih = torch.randn(16, 4, generator=draw) / 2
weight_hh = torch.randn(16, 16, generator=draw) / 6
zero, states = torch.zeros(16), [torch.zeros(1, 16)]
for x in torch.randn(25, 1, 4, generator=draw):
    states.append(rnn_cell(x, states[-1], weight_ih, weight_hh, zero, zero))
hiddens = torch.cat(states)
plt.semilogy(
    [float(jacobian_product(hiddens, weight_hh, 25 - lag, 25).norm()) for lag in range(26)]
)
plt.xlabel("lag")
plt.ylabel("norm of the Jacobian")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. The gated recurrent unit
#
# `gru_cell(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh)` takes one step of a GRU with torch's conventions.
# The three blocks are stacked in the order reset, update, new.
#
# $$\begin{aligned}
# r &= \sigma(W_{ir} x + b_{ir} + W_{hr} h + b_{hr}), \qquad z = \sigma(W_{iz} x + b_{iz} + W_{hz} h + b_{hz}), \\
# n &= \tanh\bigl(W_{in} x + b_{in} + r \odot (W_{hn} h + b_{hn})\bigr), \qquad h' = (1 - z) \odot n + z \odot h
# \end{aligned}$$
#
# - `input` is `(B, D)`, `hidden` is `(B, H)`, `weight_ih` is `(3H, D)`, `weight_hh` is `(3H, H)`, each bias is `(3H,)`; the result is `(B, H)`.
# - Gradients reach all arguments. Do not use `torch.nn.GRUCell` or its relatives.
#
# By hand, with one unit: $z = 0.9$, $n = -0.5$ and an old state of $0.8$ give $0.1 \cdot (-0.5) + 0.9 \cdot 0.8 = 0.67$.
#
# <details><summary>Hint</summary>
#
# Unlike in the LSTM, one sum of both products is not enough. Which of the three blocks needs the two products separately?
#
# </details>


# %% nbgrader={"grade_id": "gru_cell", "solution": true} attn_course={"forbidden": ["rnn_tanh_cell", "rnn_relu_cell", "gru_cell", "lstm_cell", "rnn_tanh", "rnn_relu", "gru", "lstm", "clip_grad_norm_", "clip_grads_with_norm_", "get_total_norm", "aten::*lstm*", "aten::*gru*", "aten::*rnn*"]}
def gru_cell(input, hidden, weight_ih, weight_hh, bias_ih, bias_hh):
    ### BEGIN SOLUTION
    new_r, new_z, new_n = (input @ weight_ih.T + bias_ih).chunk(3, dim=-1)
    old_r, old_z, old_n = (hidden @ weight_hh.T + bias_hh).chunk(3, dim=-1)
    reset, update = torch.sigmoid(new_r + old_r), torch.sigmoid(new_z + old_z)
    new = torch.tanh(new_n + reset * old_n)
    return (1 - update) * new + update * hidden
    ### END SOLUTION


# %% nbgrader={"grade_id": "gru_cell-by_hand", "grade": true, "points": 1}
# The example by hand: no weights, all numbers come from the first bias.
probe = probes(gru_cell=gru_cell)
unit, no_weight = torch.ones(1, 1), torch.zeros(3, 1)
by_hand = torch.tensor([0.0, math.log(9.0), math.atanh(-0.5)])
probe.equals(unit, 0.8 * unit, no_weight, no_weight, by_hand, torch.zeros(3))
### BEGIN HIDDEN TESTS
numbers = torch.tensor([0.3, 1.5, -0.8]) + 0.2 * probe.uniform(3)
probe.equals(unit, 0.5 + probe.uniform(1, 1), no_weight, no_weight, numbers, torch.zeros(3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "gru_cell-reset", "grade": true, "points": 2}
# One unit whose reset gate is nearly 0, with a recurrent weight and bias.
probe = probes(gru_cell=gru_cell)
behind = torch.tensor([[0.0], [0.0], [2.0]])
biases = torch.tensor([-1.0, 0.7, 0.1]), torch.tensor([0.0, 0.0, 1.0])
probe.equals(unit, 0.8 * unit, no_weight, behind, *biases)
### BEGIN HIDDEN TESTS
turn = torch.zeros(6, 2)
turn[4:] = torch.tensor([[0.0, -1.5], [1.5, 0.0]])
bias = torch.tensor([1.0, -1.0, 0.5, -0.7, 0.1, 0.2])
past = 0.5 + probe.uniform(2, 2)
bias_hh = torch.cat([torch.zeros(4), 0.5 + probe.uniform(2)])
probe.equals(torch.ones(2, 1), past, torch.zeros(6, 1), turn, bias, bias_hh)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "gru_cell-weights", "grade": true, "points": 2}
# Full weights and both biases, several sequences and units.
probe = probes(gru_cell=gru_cell)
probe.equals(*drawn(probe, (2, 5), (2, 3), (9, 5), (9, 3), (9,), (9,)))
### BEGIN HIDDEN TESTS
probe.equals(*drawn(probe, (3, 2), (3, 7), (21, 2), (21, 7), (21,), (21,), dtype=torch.float64))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "gru_cell-gradient", "grade": true, "points": 1}
# Gradients with respect to the input, the old state and both matrices.
probe = probes(gru_cell=gru_cell)
probe.gradient(*drawn(probe, (2, 2), (2, 2), (6, 2), (6, 2), (6,), (6,)), wrt=(0, 1, 2, 3))

# %% [markdown]
# ## 5. Backpropagation through time
#
# `rnn_bptt(inputs, hidden, weight_ih, weight_hh, bias_ih, bias_hh, grad_outputs)` reads a sequence with the plain cell and returns the gradients of a loss with respect to all inputs.
#
# - `inputs` is `(B, L, D)`, `hidden` is $h_0$, `(B, H)`; the weights are as in section 1.
# - `grad_outputs` is `(B, L, H)`: at step $t$ the *direct* gradient of the loss with respect to $h_t$. You add the part that comes through later steps.
# - The result is a tuple of six tensors: the gradients with respect to `inputs`, `hidden`, `weight_ih`, `weight_hh`, `bias_ih`, `bias_hh`, each in the shape of its argument. Gradients of weights and biases are sums over the batch, not means.
# - Autograd is not allowed inside the function; use it outside to check your result.
#
# By hand, all sizes 1: inputs 1, 0, −1, $u = 1$, $w = 0.5$, and `grad_outputs` 0, 0, 0.3259 give 0.1234 for $w$ and −0.1616 for $u$.
#
# <details><summary>Hint</summary>
#
# First loop forward and keep all states. Then loop backward: through the tanh, then to the previous step.
# Which state was multiplied with `weight_hh` at step `t`?
#
# </details>


# %% nbgrader={"grade_id": "rnn_bptt", "solution": true} attn_course={"forbidden": ["autograd"]}
def rnn_bptt(inputs, hidden, weight_ih, weight_hh, bias_ih, bias_hh, grad_outputs):
    ### BEGIN SOLUTION
    states = [hidden]
    for t in range(inputs.shape[1]):
        new = inputs[:, t] @ weight_ih.T + bias_ih
        states.append(torch.tanh(new + states[-1] @ weight_hh.T + bias_hh))
    grad_inputs = torch.zeros_like(inputs)
    grad_ih, grad_hh = torch.zeros_like(weight_ih), torch.zeros_like(weight_hh)
    grad_bias, carried = torch.zeros_like(bias_ih), torch.zeros_like(hidden)
    for t in reversed(range(inputs.shape[1])):
        delta = (grad_outputs[:, t] + carried) * (1 - states[t + 1] ** 2)
        grad_inputs[:, t] = delta @ weight_ih
        grad_ih += delta.T @ inputs[:, t]
        grad_hh += delta.T @ states[t]
        grad_bias += delta.sum(0)
        carried = delta @ weight_hh
    return grad_inputs, carried, grad_ih, grad_hh, grad_bias, grad_bias.clone()
    ### END SOLUTION


# %% nbgrader={"grade_id": "rnn_bptt-by_hand", "grade": true, "points": 2}
# The example by hand: three steps, all sizes 1, the loss reads the last state only.
probe = probes(rnn_bptt=rnn_bptt)
words, last_only = torch.tensor([[[1.0], [0.0], [-1.0]]]), torch.tensor([[[0.0], [0.0], [0.3259]]])
zero, one, none = torch.zeros(1, 1), torch.ones(1, 1), torch.zeros(1)
probe.equals(words, zero, one, 0.5 * one, none, none, last_only)
### BEGIN HIDDEN TESTS
last_only = torch.tensor([[[0.0], [0.0], [0.0], [1.0]]])
probe.equals(0.3 + probe.uniform(1, 4, 1), zero, one, 0.7 * one, none, none, last_only)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "rnn_bptt-one_step", "grade": true, "points": 2}
# A single step, two sequences, an old state that is not zero.
probe = probes(rnn_bptt=rnn_bptt)
probe.equals(*drawn(probe, (2, 1, 3), (2, 2), (2, 3), (2, 2), (2,), (2,), (2, 1, 2)))
### BEGIN HIDDEN TESTS
probe.equals(*drawn(probe, (3, 1, 2), (3, 5), (5, 2), (5, 5), (5,), (5,), (3, 1, 5)))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "rnn_bptt-last_output", "grade": true, "points": 2}
# Several steps from a zero state; the loss reads the last state only.
probe = probes(rnn_bptt=rnn_bptt)
x, *weights, grads = drawn(probe, (2, 4, 2), (3, 2), (3, 3), (3,), (3,), (2, 4, 3))
grads[:, :-1] = 0.0
probe.equals(x, torch.zeros(2, 3), *weights, grads)
### BEGIN HIDDEN TESTS
double = {"dtype": torch.float64}
x, *weights, grads = drawn(probe, (3, 5, 7), (2, 7), (2, 2), (2,), (2,), (3, 5, 2), **double)
grads[:, :-1] = 0.0
probe.equals(x, torch.zeros(3, 2, **double), *weights, grads)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "rnn_bptt-every_output", "grade": true, "points": 2}
# The loss reads every state, and the first state is not zero.
probe = probes(rnn_bptt=rnn_bptt)
probe.equals(*drawn(probe, (2, 3, 2), (2, 2), (2, 2), (2, 2), (2,), (2,), (2, 3, 2)))
### BEGIN HIDDEN TESTS
shapes = (3, 5, 7), (3, 2), (2, 7), (2, 2), (2,), (2,), (3, 5, 2)
probe.equals(*drawn(probe, *shapes, dtype=torch.float64))
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Clipping by the global norm
#
# `clip_by_global_norm(grads, max_norm)` multiplies all gradients by one factor if their joint norm is too large.
#
# - `grads` is a list of tensors of any shapes; `max_norm` is a positive number.
# - The norm $N$ is the root of the sum of the squares of *all* elements of *all* tensors.
# - The result is a pair: the list of clipped gradients, and $N$ *before* clipping as a tensor without axes.
# - If $N$ is above `max_norm`, all gradients are multiplied by one factor, so that their common norm becomes `max_norm`; otherwise they keep their values.
# - Gradients that are all zero stay zero. `grads` are not changed.
# - Do not use `torch.nn.utils`. (torch divides by $N + 10^{-6}$ instead of $N$; the tests accept both.)
#
# By hand: gradients $(3, 0)$ and $(4)$ have the norm 5; with `max_norm=1` they become $(0.6, 0)$ and $(0.8)$.


# %% nbgrader={"grade_id": "clip_by_global_norm", "solution": true} attn_course={"forbidden": ["rnn_tanh_cell", "rnn_relu_cell", "gru_cell", "lstm_cell", "rnn_tanh", "rnn_relu", "gru", "lstm", "clip_grad_norm_", "clip_grads_with_norm_", "get_total_norm", "aten::*lstm*", "aten::*gru*", "aten::*rnn*"]}
def clip_by_global_norm(grads, max_norm):
    ### BEGIN SOLUTION
    norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    return [g * factor for g in grads], norm
    ### END SOLUTION


# %% nbgrader={"grade_id": "clip_by_global_norm-by_hand", "grade": true, "points": 1}
# The example by hand.
probe = probes(clip_by_global_norm=clip_by_global_norm)
probe.equals([torch.tensor([3.0, 0.0]), torch.tensor([4.0])], 1.0)
### BEGIN HIDDEN TESTS
probe.equals([torch.tensor([12.0, 0.0, 3.0]), torch.tensor([[4.0]])], 3.5)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "clip_by_global_norm-any_shapes", "grade": true, "points": 2}
# Several tensors of several shapes, a long gradient.
probe = probes(clip_by_global_norm=clip_by_global_norm)
probe.equals([torch.full((2, 3), 2.0), torch.full((5,), -3.0), torch.tensor(6.0)], 2.0)
### BEGIN HIDDEN TESTS
probe.equals([5 + probe.normal(2, 3), probe.normal(7), 3 * probe.normal(2, 1, 5)], 0.7)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "clip_by_global_norm-short_gradients", "grade": true, "points": 1}
# A gradient that is short enough keeps its length.
probe = probes(clip_by_global_norm=clip_by_global_norm)
probe.equals([torch.tensor([3.0, 0.0]), torch.tensor([4.0])], 10.0)
### BEGIN HIDDEN TESTS
probe.equals([0.3 + 0.1 * probe.uniform(2, 3), 0.5 + 0.1 * probe.uniform(5)], 20.0)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "clip_by_global_norm-all_zero", "grade": true, "points": 1}
# A gradient of zeros.
probe = probes(clip_by_global_norm=clip_by_global_norm)
probe.equals([torch.zeros(2), torch.zeros(3, 1)], 1.0)

# %% [markdown]
# ## 7. Repair this reader
#
# `broken_reader` should read a whole sequence with an LSTM and return the output of every step and the final state.
# It runs, and its shapes are right, but it has two faults.
#
# - `inputs` is `(B, L, D)`; `hidden` and `cell` are `(B, H)`, the state before the first step; the weights are those of an LSTM cell.
# - The result is three tensors: the hidden state after each step, `(B, L, H)`, and the final hidden state and final cell, `(B, H)` each.
#
# Write `fixed_reader` with the same arguments. You may use `torch.lstm_cell`, which takes the arguments of your cell.


# %% nbgrader={"grade_id": "broken_reader", "locked": true}
def broken_reader(inputs, hidden, cell, weight_ih, weight_hh, bias_ih, bias_hh):
    outputs = []
    for t in range(inputs.shape[1]):
        state = (hidden, cell)
        last_hidden, last_cell = torch.lstm_cell(
            inputs[:, t], state, weight_ih, weight_hh, bias_ih, bias_hh
        )
        outputs.append(last_cell)
    return torch.stack(outputs, dim=1), last_hidden, last_cell


# %% nbgrader={"grade_id": "fixed_reader", "solution": true}
def fixed_reader(inputs, hidden, cell, weight_ih, weight_hh, bias_ih, bias_hh):
    ### BEGIN SOLUTION
    outputs = []
    for t in range(inputs.shape[1]):
        hidden, cell = torch.lstm_cell(
            inputs[:, t], (hidden, cell), weight_ih, weight_hh, bias_ih, bias_hh
        )
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), hidden, cell
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_reader-one_step", "grade": true, "points": 1}
# A sequence of one step, against torch's own LSTM.
probe = probes(fixed_reader=fixed_reader)
probe.equals(*drawn(probe, (2, 1, 3), (2, 2), (2, 2), (8, 3), (8, 2), (8,), (8,)))

# %% nbgrader={"grade_id": "fixed_reader-many_steps", "grade": true, "points": 2}
# Several steps: outputs and final state.
probe = probes(fixed_reader=fixed_reader)
probe.equals(*drawn(probe, (2, 3, 3), (2, 2), (2, 2), (8, 3), (8, 2), (8,), (8,)))
### BEGIN HIDDEN TESTS
probe.equals(*drawn(probe, (3, 7, 2), (3, 5), (3, 5), (20, 2), (20, 5), (20,), (20,)))
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Write the test
#
# `check_clipping(candidate)` tests a `clip_by_global_norm` that someone else wrote.
#
# - `candidate` has the signature and the contract of section 6.
# - Return `True` to accept it and `False` to reject it. Reject a candidate that raises an error.
# - A right candidate may divide by $N$ or by $N + 10^{-6}$: compare with a tolerance.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Think of likely mistakes in section 6.


# %% nbgrader={"grade_id": "check_clipping", "solution": true}
def check_clipping(candidate):
    ### BEGIN SOLUTION
    cases = [
        ([torch.tensor([3.0, 0.0]), torch.tensor([4.0])], 1.0),
        ([torch.tensor([3.0, 0.0]), torch.tensor([4.0])], 10.0),
        ([torch.tensor([[6.0, -8.0]]), torch.tensor(24.0)], 13.0),
        ([torch.zeros(2), torch.zeros(3, 1)], 1.0),
    ]
    for grads, max_norm in cases:
        norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
        factor = min(1.0, max_norm / float(norm)) if float(norm) > 0 else 1.0
        given = [g.clone() for g in grads]
        try:
            clipped, reported = candidate(given, max_norm)
            same = len(clipped) == len(grads) and torch.allclose(torch.as_tensor(reported), norm)
            for before, mine, after in zip(grads, given, clipped, strict=True):
                same = same and torch.equal(before, mine)
                same = same and before.shape == after.shape
                same = same and torch.allclose(after, before * factor, rtol=1e-4)
        except Exception:
            return False
        if not same:
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_clipping-first_pair", "grade": true, "points": 1}
# A right answer, and one that does nothing.
def does_nothing(grads, max_norm):
    return list(grads), torch.sqrt(sum(g.pow(2).sum() for g in grads))


probe = probes(check_clipping=check_clipping)
probe.judges(
    right=[functional.clip_by_global_norm], wrong={"changes nothing": does_nothing}, points=1
)

# %% nbgrader={"grade_id": "check_clipping-mutants", "grade": true, "points": 4}
# More right and wrong answers are hidden; here the pair from above represents them.
probe = probes(check_clipping=check_clipping)
probe.judges(
    right=[functional.clip_by_global_norm], wrong={"changes nothing": does_nothing}, points=4
)


### BEGIN HIDDEN TESTS
def total(grads):
    return torch.sqrt(sum(g.pow(2).sum() for g in grads))


def factor(grads, max_norm):
    return torch.clamp(max_norm / (total(grads) + 1e-6), max=1.0)


def plain(grads, max_norm):
    norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in grads]))
    scale = max_norm / norm if norm > max_norm else torch.ones(())
    return [g * scale for g in grads], norm


def in_place(grads, max_norm):
    norm, scale = total(grads), factor(grads, max_norm)
    for g in grads:
        g.mul_(scale)
    return list(grads), norm


def always(grads, max_norm):
    return [g * max_norm / (total(grads) + 1e-6) for g in grads], total(grads)


def each(grads, max_norm):
    return [g * factor([g], max_norm) for g in grads], total(grads)


def by_value(grads, max_norm):
    return [g.clamp(-max_norm, max_norm) for g in grads], total(grads)


def norm_after(grads, max_norm):
    clipped = [g * factor(grads, max_norm) for g in grads]
    return clipped, total(clipped)


def summed(grads, max_norm):
    norm = sum(g.pow(2).sum().sqrt() for g in grads)
    return [g * torch.clamp(max_norm / (norm + 1e-6), max=1.0) for g in grads], norm


def nan_at_zero(grads, max_norm):
    norm = total(grads)
    return [g / norm * torch.clamp(norm, max=max_norm) for g in grads], norm


def largest_entry(grads, max_norm):
    top = max(g.abs().max() for g in grads)
    return [g * torch.clamp(max_norm / (top + 1e-6), max=1.0) for g in grads], total(grads)


def vectors_only(grads, max_norm):
    flat = torch.cat(list(grads)) * factor(grads, max_norm)
    return list(flat.split([len(g) for g in grads])), total(grads)


def flattened(grads, max_norm):
    return [g.flatten() * factor(grads, max_norm) for g in grads], total(grads)


probe = probes(check_clipping=check_clipping)
probe.judges(
    right=[functional.clip_by_global_norm, plain],
    wrong={
        "the caller's gradients are changed": in_place,
        "short gradients are lengthened": always,
        "each tensor is clipped by its own norm": each,
        "every element is clipped by value": by_value,
        "the norm after clipping is returned": norm_after,
        "the norms of the tensors are added up": summed,
        "zero gradients become NaN": nan_at_zero,
        "the largest element is taken for the norm": largest_entry,
        "shapes are lost": flattened,
        "only vectors are accepted": vectors_only,
    },
    points=4,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Report
#
# In about 200 words: a friend trains a plain RNN on sequences of 200 steps, where the answer depends on the first token. The loss does not decrease. With gradient clipping it still does not decrease, and neither does it with an LSTM in torch's default initialisation.
#
# Explain each of the three observations with the product of Jacobians. State which numbers you would measure, what you would change first, and why that has a limit. Use at least one number that you measured on your own network.

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 5}
# The gradient of the last state with respect to the first is a product of 200 Jacobians, diag(1 − h²) W.
# At torch's start each factor shrinks it by about 0.45 (measured: from 2.5 at lag 0 to about 1e-8 at lag 25), so at lag 200 nothing is left in float32 beside the gradient of nearby tokens, and the loss stays at chance level.
# Clipping multiplies all gradients by one factor of at most 1: the ratio of distant to nearby gradients does not change.
# The LSTM adds a path whose factor is the forget gate, but initially that gate is σ(about 0) = 0.5, and 0.5 to the power 200 is negligible, too.
# I would measure the gradient norm by lag, the size of the states (saturation) and the mean forget gate.
# I would first set the forget bias to 3 to 5 (σ(3) = 0.95, σ(5) = 0.993), perhaps train on shorter sequences first, and measure again.
# Along the cell a gate below 1 only moves the horizon: 0.993 to the power 200 is 0.24, but to the power 2000 it is 1e-6; and the state must keep the token through 200 updates.
# A direct path from the answer to the token would not have this limit.
#
# **Points**, one for each:
#
# - The product of Jacobians, with its number of factors.
# - Clipping does not change the ratio of distant to nearby gradients.
# - The LSTM's factor is its forget gate, about 0.5 initially.
# - A measured number, and the network on which it was measured.
# - A first change, and the length at which it fails, too.
