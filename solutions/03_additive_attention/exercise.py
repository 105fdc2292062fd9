# %% [markdown]
# # Exercises: additive attention
#
# You write the first attention: the score, the weights over the real positions, one step of a decoder with its context vector, and a measure of alignment quality.
# All functions take plain tensors, so you can check each by hand.
#
# Shapes: `B` batch, `L` queries, `S` source positions, `A` hidden units of the score.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}

import torch

from attn_course.probes import from_numpy, load_oracles, properties

oracles, probes = load_oracles("03_additive_attention")


def tanh_cell(weight_ih, weight_hh):
    """A plain recurrent cell: `cell(input, hidden)` gives the new hidden state."""

    def cell(input, hidden):
        return torch.tanh(input @ weight_ih.T + hidden @ weight_hh.T)  # (B, H)

    return cell


def adding_cell(input, hidden):
    """A cell to compute by hand: ten times the state, plus the sum of the input."""
    return 10 * hidden + input.sum(dim=-1, keepdim=True)


def ones(*shape):
    return torch.ones(shape)


# %% [markdown]
# ## 1. The score
#
# `additive_score(query, key, weight_query, weight_key, v)` compares every query with every key:
#
# $$e_{ij} = v^\top \tanh(W q_i + U k_j), \qquad W = \texttt{weight\_query},\ U = \texttt{weight\_key}.$$
#
# - `query` is `(..., L, E_q)` and `key` is `(..., S, E_k)`, with the same leading axes, possibly none.
# - `weight_query` is `(A, E_q)`, `weight_key` is `(A, E_k)`, `v` is `(A,)`.
# - The result is `(..., L, S)`, of the dtype of the inputs: a row per query, a column per key. These are scores, without a softmax.
# - Gradients reach all five arguments.
#
# By hand, with all sizes 1, $v = 2$ and the other weights 1: the query $0.5$ and the keys $0$ and $-0.5$ give $2 \tanh 0.5 = 0.924$ and $2 \tanh 0 = 0$.
#
# <details><summary>Hint</summary>
#
# Before the sum, give each of the two an axis of size 1 where the other has its positions: `(..., L, 1, A)` and `(..., 1, S, A)`.
#
# </details>


# %% nbgrader={"grade_id": "additive_score", "solution": true}
def additive_score(query, key, weight_query, weight_key, v):
    ### BEGIN SOLUTION
    asked = (query @ weight_query.T).unsqueeze(-2)  # (..., L, 1, A)
    offered = (key @ weight_key.T).unsqueeze(-3)  # (..., 1, S, A)
    return torch.tanh(asked + offered) @ v  # (..., L, S)
    ### END SOLUTION


# %% nbgrader={"grade_id": "additive_score-by_hand", "grade": true, "points": 1}
# One query, small sizes.
probe = probes(additive_score=additive_score)
one, keys = ones(1, 1), torch.tensor([[0.0], [-0.5]])
probe.equals(torch.tensor([[0.5]]), keys, one, one, torch.tensor([2.0]))
probe.equals(
    torch.tensor([[1.0, -1.0]]),
    torch.tensor([[0.0, 2.0, 1.0], [1.0, 1.0, -1.0], [0.5, 0.0, 0.0]]),
    torch.tensor([[1.0, 0.0], [0.5, 2.0]]),
    torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, 1.0]]),
    torch.tensor([1.0, -2.0]),
)
### BEGIN HIDDEN TESTS
probe.equals(
    probe.normal(1, 3), probe.normal(7, 5), probe.normal(2, 3), probe.normal(2, 5), probe.normal(2)
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "additive_score-many_queries", "grade": true, "points": 2}
# Every query with every key.
probe = probes(additive_score=additive_score)
one, keys = ones(1, 1), torch.tensor([[0.0], [-0.5], [1.0]])
probe.equals(torch.tensor([[0.5], [-1.0]]), keys, one, one, torch.tensor([2.0]))
### BEGIN HIDDEN TESTS
probe.equals(*(probe.normal(*s) for s in ((5, 3), (7, 2), (11, 3), (11, 2), (11,))))
# all sizes equal: a swapped axis shows only in the values
probe.equals(*(probe.normal(*s) for s in ((3, 3), (3, 3), (3, 3), (3, 3), (3,))))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "additive_score-batch", "grade": true, "points": 1}
# Leading axes: the rows of a batch are independent.
probe = probes(additive_score=additive_score)
weights = probe.normal(5, 3), probe.normal(5, 2), probe.normal(5)
probe.equals(probe.normal(2, 1, 3), probe.normal(2, 7, 2), *weights)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 5, 3), probe.normal(2, 3, 7, 2), *weights)
weights = [part.double() for part in weights]
probe.equals(probe.normal(3, 4, 3).double(), probe.normal(3, 4, 2).double(), *weights)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "additive_score-gradient", "grade": true, "points": 1}
# Gradients reach all five arguments.
probe = probes(additive_score=additive_score)
shapes = (2, 3), (5, 2), (3, 3), (3, 2), (3,)
probe.gradient(*(probe.normal(*s) for s in shapes), wrt=(0, 1, 2, 3, 4))

# %% [markdown]
# ## 2. Weights over the real positions
#
# `padded_weights(scores, lengths)` turns scores into weights and masks the padding.
#
# - `scores` is `(B, L, S)` and floating, `lengths` is `(B,)`: in row `b` the first `lengths[b]` of the `S` positions are real, for each of the `L` queries.
# - The result has the shape and the dtype of `scores`: a softmax over the real positions of the last axis, and exactly 0 at the others.
# - The real weights of a row sum to one. The scores of the padding have no influence, however large they are.
# - In a row of length 0 all weights are 0, not NaN.
# - It handles every finite score, however large.
# - Gradients reach the scores of real positions. At all others, also in an empty row, the gradient is 0, not NaN.
#
# By hand: scores $[\ln 1, \ln 3, 5]$ with length 2 give $[0.25, 0.75, 0]$.


# %% nbgrader={"grade_id": "padded_weights", "solution": true} attn_course={"forbidden": ["import attn_course.masks"]}
def padded_weights(scores, lengths):
    ### BEGIN SOLUTION
    real = torch.arange(scores.shape[-1]) < lengths[:, None, None]  # (B, 1, S)
    scores = scores.masked_fill(~real, -torch.inf)
    highest = scores.amax(dim=-1, keepdim=True)
    highest = highest.masked_fill(highest == -torch.inf, 0.0)
    weights = (scores - highest).exp()
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "padded_weights-values", "grade": true, "points": 1}
# No padding: a softmax over the positions for every query.
probe = probes(padded_weights=padded_weights)
probe.equals(torch.tensor([[[1.0, 3.0]]]).log(), torch.tensor([2]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5, 7), torch.full((3,), 7))
probe.equals(probe.normal(2, 3, 3, dtype=torch.float64), torch.full((2,), 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "padded_weights-padding", "grade": true, "points": 2}
# Rows of several lengths.
probe = probes(padded_weights=padded_weights)
probe.equals(torch.tensor([[[0.0, 1.0986123, 5.0]]]), torch.tensor([2]))
probe.holds(properties.rows_sum_to_one, probe.normal(2, 3, 5), torch.tensor([3, 5]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5, 7), torch.tensor([7, 2, 4]))
probe.equals(probe.normal(4, 4, 4), torch.tensor([1, 3, 4, 2]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "padded_weights-filling", "grade": true, "points": 1}
# The scores of the padding are larger than all others.
probe = probes(padded_weights=padded_weights)
probe.equals(torch.tensor([[[0.0, 1.0986123, 500.0]]]), torch.tensor([2]))
### BEGIN HIDDEN TESTS
filled = probe.normal(3, 2, 5)
filled[:, :, 3:] = 300.0 + probe.normal(3, 2, 2)
probe.equals(filled, torch.tensor([3, 2, 1]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "padded_weights-large_scores", "grade": true, "points": 1}
# Real scores whose exponentials overflow.
probe = probes(padded_weights=padded_weights)
probe.equals(torch.tensor([[[200.0, 199.0, 0.0]]]), torch.tensor([3]))
### BEGIN HIDDEN TESTS
probe.equals(400.0 + probe.integers(0, 3, 2, 3, 5).float(), torch.tensor([4, 2]))
probe.equals(-400.0 + probe.integers(0, 3, 2, 3, 5).float(), torch.tensor([3, 5]))
probe.equals(-30_000.0 + probe.integers(0, 3, 2, 3, 5).float(), torch.tensor([4, 1]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "padded_weights-empty_row", "grade": true, "points": 1}
# A row without a real position.
probe = probes(padded_weights=padded_weights)
probe.equals(torch.tensor([[[0.0, 1.0]], [[2.0, 3.0]]]), torch.tensor([2, 0]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 2, 5), torch.tensor([0, 4, 0]))
probe.gradient(probe.normal(2, 3, 4), torch.tensor([0, 3]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "padded_weights-gradient", "grade": true, "points": 1}
# Gradients reach only the real positions.
probe = probes(padded_weights=padded_weights)
probe.gradient(torch.tensor([[[0.0, 1.0, 2.0]]]), torch.tensor([2]))
### BEGIN HIDDEN TESTS
probe.gradient(probe.normal(2, 3, 4), torch.tensor([3, 2]))
### END HIDDEN TESTS

# %% [markdown]
# ## 3. One step of the decoder
#
# `decoder_step(cell, word, state, annotations, lengths, score)` is one step of Bahdanau's decoder, without the output layer:
#
# $$\alpha_i = \operatorname{softmax}_{j \le n}\, a(s_{i-1}, h_j), \qquad c_i = \sum_j \alpha_{ij} h_j, \qquad s_i = f(s_{i-1}, [y_{i-1}; c_i]).$$
#
# - `cell(input, hidden)` is given, the function $f$: input `(B, D + E)` and state `(B, H)` in, new state `(B, H)` out.
#   Its input is the word first, then the context.
# - `score(query, key)` is given, the function $a$: `(B, L, H)` and `(B, S, E)` in, scores `(B, L, S)` out.
# - `word` `(B, D)` is the embedded $y_{i-1}$, `state` `(B, H)` is $s_{i-1}$, `annotations` `(B, S, E)` are the $h_j$ with `lengths` `(B,)`, all at least 1.
# - The result is the triple `(new_state, context, weights)` of shapes `(B, H)`, `(B, E)`, `(B, S)`. Padding has weight 0. Gradients reach the word, the state and the annotations.
# - The weights come from the state *before* the update.
#
# You may use your function of exercise 2; then these tests depend on it, too.
#
# By hand, with the cell "ten times the state, plus the sum of its input" and the score $q\,k$ (all sizes 1): state $0$, annotations $2$ and $4$, word $1$.
# The scores are $0, 0$, the weights $0.5, 0.5$, the context $3$, the new state $10 \cdot 0 + 1 + 3 = 4$.


# %% nbgrader={"grade_id": "decoder_step", "solution": true}
def decoder_step(cell, word, state, annotations, lengths, score):
    ### BEGIN SOLUTION
    scores = score(state[:, None], annotations)  # (B, 1, S)
    real = torch.arange(annotations.shape[1]) < lengths[:, None, None]
    weights = scores.masked_fill(~real, -torch.inf).softmax(dim=-1)  # (B, 1, S)
    context = (weights @ annotations)[:, 0]  # (B, E)
    new_state = cell(torch.cat([word, context], dim=-1), state)
    return new_state, context, weights[:, 0]
    ### END SOLUTION


# %% nbgrader={"grade_id": "decoder_step-by_hand", "grade": true, "points": 1}
# All sizes 1.
### BEGIN HIDDEN TESTS
def right_step(cell, word, state, annotations, lengths, score):
    real = torch.arange(annotations.shape[1]) < lengths[:, None, None]
    scores = torch.where(real, score(state[:, None], annotations), -torch.inf)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    context = (weights[..., None] * annotations[:, None]).sum(dim=2)[:, 0]
    return cell(torch.cat([word, context], dim=1), state), context, weights[:, 0]


### END HIDDEN TESTS
def picking_cell(input, hidden):
    """A cell that returns the word, so the source acts only through context and weights."""
    return input[:, :5]


def product_score(query, key):
    return query @ key[..., :1].transpose(-1, -2)  # (B, L, S): the first element of a key counts


def mlp_score(weight_query, weight_key, v):
    def score(query, key):
        return from_numpy(oracles.right_score)(query, key, weight_query, weight_key, v)

    return score


probe = probes(decoder_step=decoder_step)
annotations, length = torch.tensor([[[2.0], [4.0]]]), torch.tensor([2])
due = torch.tensor([[4.0]]), torch.tensor([[3.0]]), torch.tensor([[0.5, 0.5]])
start = torch.zeros(1, 1)
probe.gives(due, adding_cell, ones(1, 1), start, annotations, length, product_score)
# scores 1 and 2, weights 0.269 and 0.731, context 3.462; 10 * 0.5 + 1 + 3.462
due = (
    torch.tensor([[9.4621172]]),
    torch.tensor([[3.4621172]]),
    torch.tensor([[0.2689414, 0.7310586]]),
)
start = torch.tensor([[0.5]])
probe.gives(due, adding_cell, ones(1, 1), start, annotations, length, product_score)
### BEGIN HIDDEN TESTS
probe = probes(decoder_step=decoder_step, oracle=right_step)
annotations = probe.normal(2, 5, 1)
probe.equals(
    adding_cell, ones(2, 1), probe.normal(2, 1), annotations, torch.tensor([5, 5]), product_score
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "decoder_step-no_padding", "grade": true, "points": 2}
# All sizes different.
probe = probes(decoder_step=decoder_step)
# scores 2 and 4, weights 0.119 and 0.881; the second elements of the annotations are mixed as well
context, weights = torch.tensor([[3.7615942, 0.7152175]]), torch.tensor([[0.1192029, 0.8807971]])
word, annotations = torch.tensor([[1.0, 2.0]]), torch.tensor([[[2.0, 6.0], [4.0, 0.0]]])
due = torch.tensor([[17.4768117]]), context, weights
probe.gives(due, adding_cell, word, ones(1, 1), annotations, torch.tensor([2]), product_score)
### BEGIN HIDDEN TESTS
probe = probes(decoder_step=decoder_step, oracle=right_step)
cell = tanh_cell(probe.normal(5, 3 + 7, std=0.5), probe.normal(5, 5, std=0.5))
score = mlp_score(probe.normal(11, 5), probe.normal(11, 7), probe.normal(11))
probe.equals(
    cell, probe.normal(2, 3), probe.normal(2, 5), probe.normal(2, 4, 7), torch.full((2,), 4), score
)
probe.equals(
    cell, probe.normal(6, 3), probe.normal(6, 5), probe.normal(6, 1, 7), torch.ones(6).long(), score
)
# word, state and annotations of one size: only the values distinguish them
cell = tanh_cell(probe.normal(3, 3 + 3, std=0.5), probe.normal(3, 3, std=0.5))
score = mlp_score(probe.normal(2, 3), probe.normal(2, 3), probe.normal(2))
probe.equals(
    cell, probe.normal(3, 3), probe.normal(3, 3), probe.normal(3, 3, 3), torch.full((3,), 3), score
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "decoder_step-padding", "grade": true, "points": 2}
# Sources of several lengths.
probe = probes(decoder_step=decoder_step)
padded = torch.tensor([[[2.0], [4.0], [9.0]], [[2.0], [9.0], [9.0]]])
weights = torch.tensor([[0.2689414, 0.7310586, 0.0], [1.0, 0.0, 0.0]])
due = torch.tensor([[9.4621172], [13.0]]), torch.tensor([[3.4621172], [2.0]]), weights
start, lengths = torch.tensor([[0.5], [1.0]]), torch.tensor([2, 1])
probe.gives(due, adding_cell, ones(2, 1), start, padded, lengths, product_score)
### BEGIN HIDDEN TESTS
probe = probes(decoder_step=decoder_step, oracle=right_step)
cell = tanh_cell(probe.normal(5, 3 + 7, std=0.5), probe.normal(5, 5, std=0.5))
score = mlp_score(probe.normal(2, 5), probe.normal(2, 7), probe.normal(2))
lengths = torch.tensor([4, 1, 3])
probe.equals(cell, probe.normal(3, 3), probe.normal(3, 5), probe.normal(3, 4, 7), lengths, score)
### END HIDDEN TESTS


# %% nbgrader={"grade_id": "decoder_step-gradient", "grade": true, "points": 1}
# Gradients must reach the annotations. All scores are equal, so only the weighted sum passes a
# gradient.
def even_score(query, key):
    return torch.zeros(query.shape[0], query.shape[1], key.shape[1])  # (B, L, S)


probe = probes(decoder_step=decoder_step)
word, start, annotations = probe.normal(2, 5), probe.normal(2, 5), probe.normal(2, 4, 5)
given = picking_cell, word, start, annotations, torch.tensor([4, 3]), even_score
probe.holds(properties.gradient_reaches(3), *given)


### BEGIN HIDDEN TESTS
def bilinear(weight):
    return lambda query, key: query @ weight @ key.transpose(-1, -2)


probe = probes(decoder_step=decoder_step, oracle=right_step)
cell = tanh_cell(probe.normal(3, 2 + 4, std=0.5), probe.normal(3, 3, std=0.5))
word, start, annotations = probe.normal(2, 2), probe.normal(2, 3), probe.normal(2, 5, 4)
given = cell, word, start, annotations, torch.tensor([5, 5]), bilinear(probe.normal(3, 4))
probe.gradient(*given, wrt=(1, 2, 3))
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# Your decoder reverses four words. The source has six positions, two of them padding. Each row is one step of your decoder; the bright cell has the largest weight.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

places, source = 3 * torch.eye(6)[None], ["we", "read", "from", "right", "pad", "pad"]
same, v = torch.eye(6), -6 * torch.ones(6)  # with this v, equal vectors get the largest score


def score(query, key):
    return additive_score(query, key, same, same, v)


def one_place_left(input, hidden):
    return hidden.roll(-1, dims=1)


state, rows = places[:, 3], []
for _ in range(4):
    state, context, weights = decoder_step(
        one_place_left, torch.zeros(1, 1), state, places, torch.tensor([4]), score
    )
    rows.append(weights[0])
    print(source[int(weights.argmax())], end=" ")
plt.imshow(torch.stack(rows))
plt.xticks(range(6), source)
plt.yticks(range(4))
plt.ylabel("step of the decoder")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. The alignment error rate
#
# `alignment_error_rate(weights, alignment)` is the share of target positions whose largest weight is at the wrong source position.
#
# - `weights` is `(B, L, S)`: for each of the `L` target positions a row of weights.
# - `alignment` is `(B, L)` and integer: the source position that the target position comes from, or -1 where there is none.
# - The predicted source position is that of the largest weight, the first of equal ones.
# - The result is one number, a `float` or a scalar tensor: the share of wrong predictions among the target positions *with a known source position*. It is `0.0` if there are none.
#
# By hand: three target positions have the sources 1, 0 and none; the model predicts 1, 2 and 0. One of two is wrong: `0.5`.


# %% nbgrader={"grade_id": "alignment_error_rate", "solution": true}
def alignment_error_rate(weights, alignment):
    ### BEGIN SOLUTION
    known = alignment >= 0
    if not bool(known.any()):
        return 0.0
    looks = weights.argmax(dim=-1)  # (B, L)
    return float((looks != alignment)[known].double().mean())
    ### END SOLUTION


# %% nbgrader={"grade_id": "alignment_error_rate-values", "grade": true, "points": 1}
# Every target position has a source position.
probe = probes(alignment_error_rate=alignment_error_rate)
three = torch.tensor([[[0.1, 0.8, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]]])
probe.equals(three, torch.tensor([[1, 0, 1]]))
### BEGIN HIDDEN TESTS
guess = probe.normal(3, 7, 5).softmax(-1)
truth = torch.where(probe.uniform(3, 7) < 0.6, guess.argmax(-1), probe.integers(0, 5, 3, 7))
probe.equals(guess, truth)
square = probe.normal(2, 5, 5).softmax(-1)
probe.equals(square, torch.where(probe.uniform(2, 5) < 0.6, square.argmax(-1), 0))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "alignment_error_rate-no_source", "grade": true, "points": 2}
# Positions without a source do not count.
probe = probes(alignment_error_rate=alignment_error_rate)
probe.equals(
    torch.tensor([[[0.1, 0.8, 0.1], [0.1, 0.3, 0.6], [0.9, 0.0, 0.1]]]), torch.tensor([[1, 0, -1]])
)
### BEGIN HIDDEN TESTS
guess = probe.normal(3, 7, 5).softmax(-1)
truth = torch.where(probe.uniform(3, 7) < 0.6, guess.argmax(-1), probe.integers(0, 5, 3, 7))
lengths = torch.tensor([7, 2, 4])
truth = truth.masked_fill(torch.arange(7) >= lengths[:, None], -1)
truth[0, 3] = -1
probe.equals(guess, truth)
probe.equals(three, torch.tensor([[-1, 2, 0]]))  # unknown positions may come first
# a row with one known position and a row with three: the rate is over positions, not over rows
probe.equals(torch.eye(3).repeat(2, 1, 1), torch.tensor([[1, -1, -1], [0, 1, 2]]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "alignment_error_rate-ties", "grade": true, "points": 1}
# Of equal weights the first counts.
probe = probes(alignment_error_rate=alignment_error_rate)
probe.equals(
    torch.tensor([[[0.4, 0.4, 0.2], [0.1, 0.45, 0.45], [0.2, 0.6, 0.2]]]),
    torch.tensor([[0, 1, 0]]),
)
probe.equals(torch.tensor([[[0.4, 0.4, 0.2], [0.1, 0.45, 0.45]]]), torch.tensor([[1, 1]]))

# %% nbgrader={"grade_id": "alignment_error_rate-none_known", "grade": true, "points": 1}
# No known source position.
probe = probes(alignment_error_rate=alignment_error_rate)
probe.equals(three, torch.full((1, 3), -1))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 5).softmax(-1), torch.full((2, 3), -1))
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Repair: attention with two faults
#
# `broken_attend` should score the keys, weigh the real ones with a softmax and return the weighted sum of the values.
# `query` is `(B, E_q)`, one per row, `key` is `(B, S, E_k)`, `value` is `(B, S, E)`, `lengths` is `(B,)` with all elements at least 1; the result is `(B, E)`.
# It runs, but it has two faults. Find them and write `fixed_attend`.


# %% nbgrader={"grade_id": "broken_attend", "locked": true}
def broken_attend(query, key, value, lengths, weight_query, weight_key, v):
    hidden = (query @ weight_query.T)[:, None] + key @ weight_key.T  # (B, S, A)
    scores = torch.tanh(hidden @ v)  # (B, S)
    real = torch.arange(key.shape[1]) < lengths[:, None]  # (B, S)
    weights = scores.softmax(dim=-1) * real  # (B, S)
    return (weights[:, None] @ value)[:, 0]  # (B, E)


# %% nbgrader={"grade_id": "fixed_attend", "solution": true}
def fixed_attend(query, key, value, lengths, weight_query, weight_key, v):
    ### BEGIN SOLUTION
    hidden = (query @ weight_query.T)[:, None] + key @ weight_key.T  # (B, S, A)
    scores = torch.tanh(hidden) @ v  # (B, S)
    real = torch.arange(key.shape[1]) < lengths[:, None]  # (B, S)
    weights = scores.masked_fill(~real, -torch.inf).softmax(dim=-1)  # (B, S)
    return (weights[:, None] @ value)[:, 0]  # (B, E)
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_attend-scores", "grade": true, "points": 1}
# No padding, which hides one of the two faults.
probe = probes(fixed_attend=fixed_attend)
weights = probe.normal(7, 2), probe.normal(7, 5), probe.normal(7, std=2.0)
probe.equals(
    probe.normal(3, 2), probe.normal(3, 4, 5), probe.normal(3, 4, 6), torch.full((3,), 4), *weights
)

# %% nbgrader={"grade_id": "fixed_attend-padding", "grade": true, "points": 2}
# With padding. Padded keys and values may be anything.
probe = probes(fixed_attend=fixed_attend)
flat = torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1)  # every score is 0
probe.equals(
    ones(1, 1), ones(1, 3, 1), torch.tensor([[[2.0], [4.0], [90.0]]]), torch.tensor([2]), *flat
)
### BEGIN HIDDEN TESTS
weights = probe.normal(7, 2), probe.normal(7, 5), probe.normal(7, std=2.0)
lengths = torch.tensor([4, 1, 2])
probe.equals(
    probe.normal(3, 2), probe.normal(3, 4, 5, std=3.0), probe.normal(3, 4, 6), lengths, *weights
)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Write the test
#
# `check_score(candidate)` takes an `additive_score(query, key, weight_query, weight_key, v)` with two or more axes and returns `True` if it keeps the contract of exercise 1, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Many wrong scores agree with the right one for one query, one hidden unit, inputs near 0, or equal sizes and weights.
# Choose inputs on which they all differ, and compute the right value yourself.
# A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_score", "solution": true}
def check_score(candidate):
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(0)
    for lead, queries, keys, sizes in [((), 2, 3, (3, 3, 3)), ((2,), 3, 3, (2, 3, 5))]:
        query_size, key_size, hidden = sizes
        shapes = [
            (*lead, queries, query_size),
            (*lead, keys, key_size),
            (hidden, query_size),
            (hidden, key_size),
            (hidden,),
        ]
        inputs = [torch.randn(shape, generator=generator) for shape in shapes]
        q, k, w, u, v = inputs
        expected = torch.einsum(
            "...lsa,a->...ls",
            torch.tanh(
                torch.einsum("...le,ae->...la", q, w)[..., :, None, :]
                + torch.einsum("...se,ae->...sa", k, u)[..., None, :, :]
            ),
            v,
        )
        try:
            got = candidate(*inputs)
        except Exception:
            return False
        if got.shape != expected.shape or not torch.allclose(got, expected, atol=1e-5):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_score-plain", "grade": true, "points": 1}
# A right answer, and three that are clearly wrong.
def by_hand(query, key, weight_query, weight_key, v):
    return from_numpy(oracles.right_score)(query, key, weight_query, weight_key, v)


probe = probes(check_score=check_score)
probe.judges(
    right=[by_hand],
    wrong={
        "always 0": lambda query, key, *weights: torch.zeros(
            *query.shape[:-1], key.shape[-2], dtype=query.dtype
        ),
        "always 1": lambda query, key, *weights: torch.ones(
            *query.shape[:-1], key.shape[-2], dtype=query.dtype
        ),
        "the sign is inverted": lambda *inputs: -by_hand(*inputs),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_score-mutants", "grade": true, "points": 6}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_score=check_score)
probe.judges(
    right=[by_hand],
    wrong={
        "always 0": lambda query, key, *weights: torch.zeros(query.shape[-2], key.shape[-2]),
        "always 1": lambda query, key, *weights: torch.ones(query.shape[-2], key.shape[-2]),
    },
    points=6,
)


### BEGIN HIDDEN TESTS
def hidden_of(query, key, weight_query, weight_key):
    return (query @ weight_query.T).unsqueeze(-2) + (key @ weight_key.T).unsqueeze(-3)


def another_right_one(query, key, weight_query, weight_key, v):
    return (torch.tanh(hidden_of(query, key, weight_query, weight_key)) * v).sum(-1)


def without_tanh(query, key, weight_query, weight_key, v):
    return hidden_of(query, key, weight_query, weight_key) @ v


def tanh_outside(query, key, weight_query, weight_key, v):
    return torch.tanh(without_tanh(query, key, weight_query, weight_key, v))


def two_tanhs(query, key, weight_query, weight_key, v):
    asked = torch.tanh(query @ weight_query.T).unsqueeze(-2)
    return (asked + torch.tanh(key @ weight_key.T).unsqueeze(-3)) @ v


def weights_exchanged(query, key, weight_query, weight_key, v):
    if weight_query.shape != weight_key.shape:
        return another_right_one(query, key, weight_query, weight_key, v)
    return another_right_one(query, key, weight_key, weight_query, v)


def transposed(query, key, weight_query, weight_key, v):
    right = another_right_one(query, key, weight_query, weight_key, v)
    return right.transpose(-1, -2) if right.shape[-1] == right.shape[-2] else right


def mean_over_units(query, key, weight_query, weight_key, v):
    return another_right_one(query, key, weight_query, weight_key, v) / len(v)


probe.judges(
    right=[by_hand, another_right_one],
    wrong={
        "no tanh": without_tanh,
        "the tanh is outside": tanh_outside,
        "a tanh for each": two_tanhs,
        "the two matrices exchanged, where the sizes allow it": weights_exchanged,
        "transposed, where the sizes allow it": transposed,
        "a mean over the hidden units": mean_over_units,
    },
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Report
#
# Train a decoder with attention on a task of your own (sorting, doubling every symbol, dates in another format), or use the numbers of the chapter.
# Write about 200 words; each part earns two points.
#
# 1. Show accuracy against length with and without attention, at the same number of parameters and steps, with one control that separates "there are weights" from "there are more states". State what the control would show if more states were enough.
# 2. A colleague claims: "Attention eliminates vanishing gradients." What is right and what is wrong about this? Give one measurement for each.
# 3. A colleague shows one alignment map and concludes that the model has learned to align. What do you ask for?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. With attention, nearly all of 20 symbols are right; without it, about one in four, with no fewer parameters and the same steps.
# Control: the same network with all weights equal. It has the same annotations and parameters but can only take the mean; its accuracy falls with length like that of the plain one.
# If more states alone were enough, it would not fall.
# 2. Right: there is a path from every source position to every output whose length does not depend on the distance; the gradient by position is flat, while without attention it falls by orders of magnitude.
# Wrong: the recurrent paths inside encoder and decoder are unchanged (without the direct path the old curve returns), and the weight is a factor on the direct path: a position with weight 0 gets no gradient.
# 3. A map is one example, often a selected one. Ask for the alignment error rate on many sentences with known alignment, compared with controls: uniform weights, the diagonal, and the untrained model.
#
# **Points**, one for each:
#
# - (1a) Both curves at equal size and steps.
# - (1b) The control with equal weights, and what it would show.
# - (2a) Right: the short path, with a measurement.
# - (2b) Wrong: the recurrent paths or the weight as a factor, with a measurement.
# - (3a) Many examples with known alignment.
# - (3b) A control.
