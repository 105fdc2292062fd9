# %% [markdown]
# # Exercises: the sequence-to-sequence bottleneck
#
# You write five parts of an encoder-decoder: the state of a padded row, the masked loss, the unrolled decoder, greedy decoding and beam search.
# The networks are given as *step functions*: plain functions that take tokens and a state and return the result of one step.
# So you can test every part alone, with steps that you can compute by hand.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course.probes import load_oracles, properties

oracles, probes = load_oracles("02_seq2seq_bottleneck")


def reader(table, decay):
    """An encoder step: decay the state by a factor and add the token's row of a table."""

    def step(token, state):
        return decay * state + table[token]  # (B, H)

    step.table, step.decay = table, decay
    return step


def writer(table, decay, mix):
    """A decoder step: the state as in `reader`, with logits computed from it."""

    def step(token, state):
        state = decay * state + table[token]  # (B, H)
        return state @ mix, state  # (B, V), (B, H)

    step.table, step.decay, step.mix = table, decay, mix
    return step


def markov(logits):
    """A decoder step that depends only on its last token."""

    def step(token, state):
        return logits[token], state  # (B, V), (B, H)

    return step


def countdown(token, state):
    """A decoder step that predicts 3, and `eos` = 2 where its state is above 0 and at most 1."""
    ends = (state[:, 0] > 0) & (state[:, 0] <= 1)
    logits = torch.zeros(len(state), 5)
    logits[torch.arange(len(state)), torch.where(ends, 2, 3)] = 5.0
    return logits, state - 1


def table(probabilities):
    """Logits `(V, V)` from the probabilities of the next token; each row may be shifted."""
    size = 1 + max(token for row in probabilities.values() for token in row)
    filled = 1e-6 * torch.arange(1.0, size + 1.0, dtype=torch.float64).repeat(size, 1)  # no ties
    for last, row in probabilities.items():
        for token, probability in row.items():
            filled[last, token] = probability
    return filled.log() + torch.arange(size)[:, None]


def draw_table(probe, size):
    """Random logits of a decoder that depends only on its last token."""
    return probe.normal(size, size, dtype=torch.float64)


# twice the state plus the token, to compute by hand
count = reader(torch.arange(20.0)[:, None], 2.0)
# 0 pad, 1 bos, 2 eos, 3 a, 4 b, 5 c, 6 d; the first one is the table of the chapter
TREE = table(
    {1: {3: 0.5, 4: 0.4, 2: 0.1}, 3: {3: 0.3, 4: 0.4, 2: 0.3}, 4: {3: 0.05, 4: 0.05, 2: 0.9}}
)
FORK = table(
    {
        1: {3: 0.9, 4: 0.1},
        3: {5: 0.5, 6: 0.45, 2: 0.05},
        4: {2: 0.9, 3: 0.1},
        5: {2: 0.2, 3: 0.45, 4: 0.35},
        6: {2: 0.95, 3: 0.05},
    }
)
LATE = table(
    {
        1: {3: 0.6, 4: 0.4},
        3: {2: 0.3, 5: 0.7},
        4: {3: 0.24, 4: 0.26, 5: 0.2, 6: 0.3},
        5: {2: 0.95, 3: 0.05},
        6: {2: 0.6, 3: 0.4},
    }
)
SHORT = table(
    {
        1: {2: 0.35, 3: 0.5, 6: 0.15},
        3: {4: 0.8, 2: 0.12, 3: 0.08},
        4: {5: 0.9, 2: 0.06, 3: 0.04},
        5: {2: 0.95, 3: 0.05},
        6: {6: 0.7, 4: 0.2, 2: 0.1},
    }
)
# here one prefix ends at once, and a better one ends later
SLOW = table(
    {
        1: {3: 0.4, 2: 0.32, 4: 0.28},
        3: {5: 0.95, 4: 0.05},
        4: {4: 0.55, 3: 0.45},
        5: {5: 0.9, 2: 0.1},
    }
)
# and here the second prefix to end stops the search
STOP = table(
    {
        1: {3: 0.5, 2: 0.2, 4: 0.18, 6: 0.12},
        3: {5: 0.95, 6: 0.05},
        4: {2: 0.97, 3: 0.03},
        5: {2: 0.95, 3: 0.05},
    }
)
ENDLESS = table({1: {3: 0.6, 4: 0.4}, 3: {3: 0.48, 4: 0.52}, 4: {5: 0.95, 3: 0.05}, 5: {5: 1.0}})
fixed = torch.Generator().manual_seed(45)
remembering = writer(
    1.5 * torch.randn(7, 5, generator=fixed, dtype=torch.float64),
    0.8,
    torch.randn(5, 7, generator=fixed, dtype=torch.float64),
)

# %% [markdown]
# ## 1. The state of a padded row
#
# `encode(step, source, lengths, state)` reads a batch of sources and returns the context vectors.
#
# - `step(token, state)` is given: tokens `(B,)` and states `(B, H)` in, new states `(B, H)` out, all rows at once.
# - `source` is `(B, S)`, `lengths` is `(B,)`: row `b` has `lengths[b]` symbols, followed by padding.
# - `state` is `(B, H)`, the states before the first symbol.
# - The result is `(B, H)`: for every row the state after *its own* last symbol. A row of length 0 keeps its state.
# - The rows keep their order, and `state` is not changed.
#
# By hand, with the step "twice the state plus the token", from 0: the row `[4, 5]` gives $2 \cdot 4 + 5 = 13$, and the row `[6, <pad>]` of length 1 gives $6$.
#
# <details><summary>Hint</summary>
#
# You may run the step on all rows at every column and discard the result for rows that have ended.
# `torch.where` chooses between two tensors, element by element.
#
# </details>


# %% nbgrader={"grade_id": "encode", "solution": true}
def encode(step, source, lengths, state):
    ### BEGIN SOLUTION
    for t in range(source.shape[1]):
        moved = step(source[:, t], state)
        state = torch.where((t < lengths)[:, None], moved, state)  # (B, H)
    return state
    ### END SOLUTION


# %% nbgrader={"grade_id": "encode-order", "grade": true, "points": 1}
# Rows without padding, read from the first symbol to the last.
### BEGIN HIDDEN TESTS
def all_states(step, tokens, state):
    """The states after 1, 2, ... tokens at once: such a step is a sum with decaying weights."""
    age = torch.arange(tokens.shape[1])
    fading = step.decay ** (age[:, None] - age).clamp(min=0).double()
    fading = fading.tril()  # (L, L), from token k to step t
    start = step.decay ** (age + 1.0).double()[:, None] * state[:, None].double()  # (B, L, H)
    return (start + fading @ step.table[tokens].double()).to(state.dtype)


def right_encode(step, source, lengths, state):
    states = torch.cat([state[:, None], all_states(step, source, state)], dim=1)
    return states[torch.arange(len(lengths)), lengths]


### END HIDDEN TESTS
probe = probes(encode=encode)
zero = torch.zeros(1, 1)
probe.gives(torch.tensor([[13.0]]), count, torch.tensor([[4, 5]]), torch.tensor([2]), zero)
two = torch.tensor([[4, 5, 6], [7, 5, 4]])
probe.gives(torch.tensor([[32.0], [42.0]]), count, two, torch.tensor([3, 3]), torch.zeros(2, 1))
### BEGIN HIDDEN TESTS
probe = probes(encode=encode, oracle=right_encode)
step = reader(probe.normal(11, 5), 0.5)
probe.equals(step, probe.integers(4, 11, 3, 7), torch.full((3,), 7), torch.zeros(3, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "encode-padding", "grade": true, "points": 2}
# Rows of several lengths: padding must not change the state.
probe = probes(encode=encode)
start = torch.zeros(2, 1)
padded = torch.tensor([[4, 5], [6, 0]])
probe.gives(torch.tensor([[13.0], [6.0]]), count, padded, torch.tensor([2, 1]), start)
probe.gives(torch.tensor([[6.0], [13.0]]), count, padded.flip(0), torch.tensor([1, 2]), start)
### BEGIN HIDDEN TESTS
probe = probes(encode=encode, oracle=right_encode)
step = reader(probe.normal(11, 5), 0.5)
filled = probe.integers(4, 11, 3, 7)  # the filling may be anything
probe.equals(step, filled, torch.tensor([7, 2, 4]), torch.zeros(3, 5))
probe.equals(step, filled, torch.tensor([3, 5, 1]), torch.zeros(3, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "encode-start", "grade": true, "points": 1}
# Initial states other than zero.
probe = probes(encode=encode)
# 2 * 10 + 4 = 24, 2 * 24 + 5 = 53
ten = torch.tensor([[10.0]])
probe.gives(torch.tensor([[53.0]]), count, torch.tensor([[4, 5]]), torch.tensor([2]), ten)
### BEGIN HIDDEN TESTS
probe = probes(encode=encode, oracle=right_encode)
step = reader(probe.normal(11, 5), 0.5)
probe.equals(step, probe.integers(4, 11, 2, 3), torch.full((2,), 3), probe.normal(2, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "encode-empty_row", "grade": true, "points": 1}
# A row of length 0 keeps its initial state.
probe = probes(encode=encode)
start = torch.tensor([[0.0], [3.0]])
padded = torch.tensor([[4, 5], [0, 0]])
probe.gives(torch.tensor([[13.0], [3.0]]), count, padded, torch.tensor([2, 0]), start)
### BEGIN HIDDEN TESTS
probe = probes(encode=encode, oracle=right_encode)
step = reader(probe.normal(11, 5), 0.5)
probe.equals(step, probe.integers(4, 11, 3, 4), torch.tensor([0, 4, 2]), probe.normal(3, 5))
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Greedy decoding
#
# `greedy_decode(step, state, bos, eos, max_length, pad=0)` writes the most probable token at each step, for every row.
#
# - `step(token, state)` is given: tokens `(B,)` and states `(B, H)` in, the pair of logits `(B, V)` and new states `(B, H)` out. `state` is `(B, H)`, the states before the first step.
# - The decoder reads `bos` first, then each token that it has just written.
# - The result is `(B, max_length)`, integers: the tokens written, `eos` included, without `bos`.
#   After the `eos` of a row comes `pad`. A row without `eos` stops at `max_length`.
# - Rows end at different steps: a finished row must not stop the others.
#
# By hand, with the table of the chapter (a decoder that depends only on its last token): *a* (0.5), then *b* (0.4), then `<eos>` (0.9).


# %% nbgrader={"grade_id": "greedy_decode", "solution": true}
def greedy_decode(step, state, bos, eos, max_length, pad=0):
    ### BEGIN SOLUTION
    rows = state.shape[0]
    token = torch.full((rows,), bos)
    ended = torch.zeros(rows, dtype=torch.bool)
    written = torch.full((rows, max_length), pad)
    for t in range(max_length):
        logits, state = step(token, state)
        token = logits.argmax(dim=-1)
        written[:, t] = torch.where(ended, written[:, t], token)
        ended = ended | (token == eos)
        if bool(ended.all()):
            break
    return written
    ### END SOLUTION


# %% nbgrader={"grade_id": "greedy_decode-by_hand", "grade": true, "points": 1}
# The table of the chapter: bos = 1, eos = 2, a = 3, b = 4.
probe = probes(greedy_decode=greedy_decode)
probe.equals(markov(TREE), torch.zeros(1, 1), 1, 2, 3)
### BEGIN HIDDEN TESTS
# a chain: every token predicts the next one, and the last one eos
order = torch.cat([torch.tensor([1]), 3 + probe.permutation(6), torch.tensor([2])])
chain = torch.zeros(9, 9, dtype=torch.float64)
chain[order[:-1], order[1:]] = 3.0
probe.equals(markov(chain), torch.zeros(1, 1), 1, 2, 7)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "greedy_decode-rows_end_apart", "grade": true, "points": 2}
# Rows that end at different steps: padding after each end, while the others continue.
probe = probes(greedy_decode=greedy_decode)
probe.equals(countdown, torch.tensor([[3.0], [1.0]]), 1, 2, 6)
### BEGIN HIDDEN TESTS
lengths = 1 + probe.permutation(6)[:4].double()
probe.equals(countdown, lengths[:, None], 1, 2, 9, pad=7)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "greedy_decode-cut_off", "grade": true, "points": 1}
# A decoder that never stops ends at max_length.
probe = probes(greedy_decode=greedy_decode)
endless = torch.zeros(6, 6, dtype=torch.float64)
endless[1, 3] = endless[3, 4] = endless[4, 5] = endless[5, 3] = 4.0
probe.equals(markov(endless), torch.zeros(1, 1), 1, 2, 4)
### BEGIN HIDDEN TESTS
probe.equals(markov(endless), torch.zeros(2, 1), 1, 2, 7)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "greedy_decode-other_ids", "grade": true, "points": 1}
# Other ids for the reserved symbols.
probe = probes(greedy_decode=greedy_decode)
moved = TREE[[0, 3, 4, 1, 2]][:, [0, 3, 4, 1, 2]]  # bos = 3, eos = 4, a = 1, b = 2
probe.equals(markov(moved), torch.zeros(1, 1), 3, 4, 6, pad=9)
### BEGIN HIDDEN TESTS
probe.equals(markov(moved), torch.zeros(2, 1), 3, 4, 5, pad=7)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Repair: one step of the beam
#
# `broken_beam_step` should choose the best extensions of a beam.
# Given `scores` `(K,)`, the scores of the live prefixes, and `log_probs` `(K, V)`, the log-probabilities of the next token, it should return three tensors of shape `(beam_size,)`, best first: the scores of the chosen extensions, the prefix that each one extends, and the token it adds.
#
# It has two faults. Find them and write `fixed_beam_step`.


# %% nbgrader={"grade_id": "broken_beam_step", "locked": true}
def broken_beam_step(scores, log_probs, beam_size):
    vocab = log_probs.shape[1]
    best, places = log_probs.flatten().topk(beam_size)
    return best, places % vocab, places // vocab


# %% nbgrader={"grade_id": "fixed_beam_step", "solution": true}
def fixed_beam_step(scores, log_probs, beam_size):
    ### BEGIN SOLUTION
    vocab = log_probs.shape[1]
    best, places = (scores[:, None] + log_probs).flatten().topk(beam_size)
    return best, places // vocab, places % vocab
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_beam_step-first_step", "grade": true, "points": 1}
# One prefix whose score is 0, which hides one of the two faults.
probe = probes(fixed_beam_step=fixed_beam_step)
due = torch.tensor([0.5, 0.3]).log(), torch.tensor([0, 0]), torch.tensor([1, 2])
probe.gives(due, torch.zeros(1), torch.tensor([[0.2, 0.5, 0.3]]).log(), 2)

# %% nbgrader={"grade_id": "fixed_beam_step-later_steps", "grade": true, "points": 2}
# Two prefixes with a history, 0.9 and 0.1: the best extensions are 0.9 times 0.6 and 0.9 times 0.3.
probe = probes(fixed_beam_step=fixed_beam_step)
probe.gives(
    (torch.tensor([0.54, 0.27]).log(), torch.tensor([0, 0]), torch.tensor([2, 1])),
    torch.tensor([0.9, 0.1]).log(),
    torch.tensor([[0.1, 0.3, 0.6], [0.9, 0.05, 0.05]]).log(),
    2,
)


### BEGIN HIDDEN TESTS
def right_beam_step(scores, log_probs, beam_size):
    best, places = (scores[:, None] + log_probs).flatten().sort(descending=True)
    vocab = log_probs.shape[1]
    return best[:beam_size], places[:beam_size] // vocab, places[:beam_size] % vocab


probe = probes(fixed_beam_step=fixed_beam_step, oracle=right_beam_step)
scores = torch.tensor([-1.0, -2.0, -4.0]) + probe.normal(3, std=0.1)
probe.equals(scores, probe.normal(3, 7).log_softmax(-1), 3)
probe.equals(probe.normal(5), probe.normal(5, 11).log_softmax(-1), 4)
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# Your encoder reads a word into one vector, and your decoder writes it in reverse. The vector has room for five letters. What happens to longer words? Change the words.

# %% attn_course={"look": true}
letters = ".?abcdefghijklmnopqrstuvwxyz"


def read(token, state):
    return torch.cat([token[:, None], state[:, :-1]], dim=1)


def write(token, state):
    rest = torch.cat([state[:, 1:], torch.zeros_like(state[:, :1])], dim=1)
    return torch.nn.functional.one_hot(state[:, 0], len(letters)).double(), rest


for word in ("cat", "bottleneck"):
    source = torch.tensor([[letters.index(letter) for letter in word]])
    state = encode(read, source, torch.tensor([len(word)]), torch.zeros(1, 5, dtype=torch.long))
    written = greedy_decode(write, state, bos=1, eos=0, max_length=12)
    print(word, "->", "".join(letters[token] for token in written[0]).rstrip("."))

# %% [markdown]
# # More

# %% [markdown]
# ## 4. A loss without the padding
#
# `sequence_loss(logits, target_out, pad=0)` is the cross-entropy per real token:
#
# $$\frac{1}{N} \sum_{(b, t):\ y_{bt} \ne \text{pad}} -\log \operatorname{softmax}(\text{logits}_{bt})_{y_{bt}},$$
#
# where $N$ counts the positions in the sum.
#
# - `logits` is `(B, L, V)` and floating, `target_out` is `(B, L)`; the result is a scalar tensor of the dtype of `logits`.
# - It handles every finite logit, however large.
# - A batch of padding only has the loss 0.
# - Gradients reach the logits.
# - Write the sum and the count yourself, with `log_softmax` and `gather`; you do not need `cross_entropy` or `nll_loss`.
#
# By hand: losses 1 and 2 at two real positions of one row, 3 at the only real position of another: $(1 + 2 + 3) / 3 = 2$.


# %% nbgrader={"grade_id": "sequence_loss", "solution": true}
def sequence_loss(logits, target_out, pad=0):
    ### BEGIN SOLUTION
    log_probs = logits.log_softmax(dim=-1)
    chosen = log_probs.gather(-1, target_out[..., None])[..., 0]  # (B, L)
    real = target_out != pad
    return -chosen.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "sequence_loss-values", "grade": true, "points": 1}
# Batches without padding.
probe = probes(sequence_loss=sequence_loss)
# log-sums 2.4076 and 3.0949: losses 2.4076 - 1 and 3.0949 - 0, and their mean
uneven = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]])
probe.gives(torch.tensor(2.2512645), uneven, torch.tensor([[1, 2]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5, 7), probe.integers(1, 7, 3, 5))
probe.equals(probe.normal(2, 3, 5, dtype=torch.float64), probe.integers(1, 5, 2, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sequence_loss-padding", "grade": true, "points": 2}
# Rows of several lengths, padded with 0.
probe = probes(sequence_loss=sequence_loss)
# losses 1.4076, 3.0949 and 4.0360 at the three real positions
probe.gives(
    torch.tensor(2.8461685),
    torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]], [[0.0, 0.0, 4.0], [9.0, 0.0, 0.0]]]),
    torch.tensor([[1, 2], [1, 0]]),
)
### BEGIN HIDDEN TESTS
lengths = torch.tensor([5, 1, 3])
target = probe.integers(1, 7, 3, 5).masked_fill(torch.arange(5) >= lengths[:, None], 0)
probe.equals(probe.normal(3, 5, 7, std=2.0), target)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sequence_loss-other_pad", "grade": true, "points": 1}
# Another id for the padding; 0 is an ordinary symbol.
probe = probes(sequence_loss=sequence_loss)
probe.gives(torch.tensor(2.4076059), uneven, torch.tensor([[0, 2]]), pad=2)
### BEGIN HIDDEN TESTS
lengths = torch.tensor([2, 5, 4])
target = probe.integers(0, 6, 3, 5).masked_fill(torch.arange(5) >= lengths[:, None], 6)
target[:, 0] = 0
probe.equals(probe.normal(3, 5, 7, std=2.0), target, pad=6)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sequence_loss-large_logits", "grade": true, "points": 1}
# Logits whose exponentials overflow.
probe = probes(sequence_loss=sequence_loss)
probe.gives(torch.tensor(500.0), torch.tensor([[[500.0, 0.0, 200.0]]]), torch.tensor([[1]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(1, 1, 7, std=300.0), probe.integers(1, 7, 1, 1))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sequence_loss-nothing_real", "grade": true, "points": 1}
# A batch of padding only has the loss 0.
probe = probes(sequence_loss=sequence_loss)
probe.gives(torch.tensor(0.0), torch.tensor([[[0.0, 1.0, 2.0]]]), torch.tensor([[0]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 5), torch.full((2, 3), 4), pad=4)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sequence_loss-gradient", "grade": true, "points": 1}
# Gradients reach only the logits of real positions.
probe = probes(sequence_loss=sequence_loss)
probe.holds(properties.gradient_reaches(0), uneven, torch.tensor([[1, 2]]))
### BEGIN HIDDEN TESTS
probe.gradient(uneven, torch.tensor([[1, 0]]))
probe.gradient(probe.normal(2, 3, 5), torch.tensor([[1, 4, 2], [3, 0, 0]]))
### END HIDDEN TESTS

# %% [markdown]
# ## 5. The decoder under teacher forcing
#
# `unroll(step, state, target_in)` runs a decoder over a known target.
#
# - `step` and `state` are as in exercise 2; `target_in` is `(B, L)` and starts with `<bos>`.
# - The result is `(B, L, V)`: the logits at every position when the decoder reads only the given targets.
# - The logits are those of `step`, without a softmax.


# %% nbgrader={"grade_id": "unroll", "solution": true}
def unroll(step, state, target_in):
    ### BEGIN SOLUTION
    logits = []
    for t in range(target_in.shape[1]):
        scores, state = step(target_in[:, t], state)
        logits.append(scores)
    return torch.stack(logits, dim=1)  # (B, L, V)
    ### END SOLUTION


# %% nbgrader={"grade_id": "unroll-one_step", "grade": true, "points": 1}
# A target of one token: the result still has three axes.
### BEGIN HIDDEN TESTS
def right_unroll(step, state, target_in):
    written = []
    for token in target_in.unbind(1):
        state = step.decay * state + step.table[token]
        written.append(state @ step.mix)
    return torch.stack(written, 1)


### END HIDDEN TESTS
probe = probes(unroll=unroll)
# the state is halved, the token adds 1 at its index; the logits weight the four elements
step = writer(torch.eye(4), 0.5, torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0])))
probe.gives(
    torch.tensor([[[0.0, 4.0, 0.0, 0.0]], [[2.0, 0.0, 0.0, 4.0]]]),
    step,
    torch.tensor([[0.0, 2.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.0]]),
    torch.tensor([[1], [3]]),
)
### BEGIN HIDDEN TESTS
probe = probes(unroll=unroll, oracle=right_unroll)
step = writer(probe.normal(7, 3), 0.5, probe.normal(3, 7))
probe.equals(step, probe.normal(2, 3), probe.integers(1, 7, 2, 1))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "unroll-state_is_carried", "grade": true, "points": 1}
# A decoder that ignores its tokens: every step needs the previous state.
probe = probes(unroll=unroll)
deaf = writer(torch.zeros(6, 1), 0.5, torch.tensor([[1.0, -1.0, 2.0]]))
halved = torch.tensor([[[4.0, -4.0, 8.0], [2.0, -2.0, 4.0], [1.0, -1.0, 2.0]]])
probe.gives(halved, deaf, torch.tensor([[8.0]]), torch.tensor([[1, 4, 5]]))
### BEGIN HIDDEN TESTS
probe = probes(unroll=unroll, oracle=right_unroll)
deaf = writer(torch.zeros(7, 3), 0.7, probe.normal(3, 7))
probe.equals(deaf, probe.normal(2, 3), probe.integers(1, 7, 2, 4))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "unroll-targets_are_read", "grade": true, "points": 2}
# A decoder that ignores its state: it must read the targets in order.
probe = probes(unroll=unroll)
forgetful = writer(torch.eye(6), 0.0, 5 * torch.eye(6))  # it says what it reads
told = torch.tensor([1, 4, 5, 3])
probe.gives(5 * torch.eye(6)[told][None], forgetful, torch.zeros(1, 6), told[None])
### BEGIN HIDDEN TESTS
probe = probes(unroll=unroll, oracle=right_unroll)
forgetful = writer(probe.normal(9, 5), 0.0, probe.normal(5, 9))
probe.equals(forgetful, torch.zeros(2, 5), torch.tensor([[1, 8, 3, 5, 4], [1, 5, 7, 2, 6]]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "unroll-both", "grade": true, "points": 1}
# State and token together.
probe = probes(unroll=unroll)
step = writer(torch.eye(4), 0.5, torch.eye(4))
start, told = torch.tensor([[8.0, 0.0, 0.0, 0.0]]), torch.tensor([[1, 3, 2]])
due = torch.tensor([[[4.0, 1.0, 0.0, 0.0], [2.0, 0.5, 0.0, 1.0], [1.0, 0.25, 1.0, 0.5]]])
probe.gives(due, step, start, told)
### BEGIN HIDDEN TESTS
probe = probes(unroll=unroll, oracle=right_unroll)
step = writer(probe.normal(11, 5), 0.5, probe.normal(5, 11))
probe.equals(step, probe.normal(3, 5), torch.tensor([[1, 7, 3, 9], [1, 4, 4, 8], [1, 10, 5, 6]]))
probe.equals(step, probe.normal(1, 5), torch.tensor([[1, 9, 8, 3, 4, 10, 7]]))
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Beam search
#
# `beam_search(step, state, bos, eos, beam_size, max_length, length_penalty=0.0)` searches for the best output of **one** source.
#
# - `step` is as in exercise 2; all live prefixes pass through it as the rows of one batch. `state` is `(1, H)`.
# - Its logits are not normalised: take the log-softmax over the vocabulary. Keep the dtype of the logits.
# - Start with one empty prefix. At every step extend every live prefix by every token. The score of a candidate is the sum of its log-probabilities. Then
#     1. of the `beam_size` best candidates, those that end in `eos` are finished and set aside;
#     2. the `beam_size` best candidates that do *not* end in `eos` stay live, each with the state of the prefix that it extends. Finished candidates do not reduce their number;
#     3. stop when at least `beam_size` candidates are finished, or after `max_length` steps. In the latter case the live prefixes also count as finished.
# - Of all finished ones, return the one with the highest $\log p \,/\, ((5 + n) / 6)^{\alpha}$, where $n$ counts its tokens with `eos` and $\alpha$ is `length_penalty`.
# - The result is the pair `(tokens, score)`: a one-axis integer tensor without `bos`, with `eos` if present, and that highest value as a number.
#
# By hand, with the table of the chapter and two prefixes: *b* and `<eos>`, with the score $\ln 0.36 = -1.0217$.
#
# <details><summary>Hint</summary>
#
# The index of a candidate in the flattened scores gives its prefix and its last token: use `divmod` with the vocabulary size.
#
# </details>


# %% nbgrader={"grade_id": "beam_search", "solution": true}
def beam_search(step, state, bos, eos, beam_size, max_length, length_penalty=0.0):
    ### BEGIN SOLUTION
    prefixes, scores, last = [[]], torch.zeros(1, dtype=torch.float64), torch.tensor([bos])
    finished = []
    for _ in range(max_length):
        logits, state = step(last, state)
        extended = scores[:, None] + logits.log_softmax(dim=-1)  # (K, V)
        ranked, places = extended.flatten().sort(descending=True)
        kept, parents, kept_scores = [], [], []
        for rank, (score, place) in enumerate(zip(ranked.tolist(), places.tolist(), strict=True)):
            parent, token = divmod(place, logits.shape[-1])
            tokens = prefixes[parent] + [token]
            if token == eos:
                if rank < beam_size:
                    finished.append((score, tokens))
            elif len(kept) < beam_size:
                kept.append(tokens)
                parents.append(parent)
                kept_scores.append(score)
        prefixes, scores = kept, torch.tensor(kept_scores, dtype=torch.float64)
        if len(finished) >= beam_size:
            break
        state, last = state[parents], torch.tensor([tokens[-1] for tokens in kept])
    else:
        finished += list(zip(scores.tolist(), prefixes, strict=True))
    ranked = [
        (score / ((5 + len(tokens)) / 6) ** length_penalty, tokens) for score, tokens in finished
    ]
    score, tokens = max(ranked)
    return torch.tensor(tokens), score
    ### END SOLUTION


# %% nbgrader={"grade_id": "beam_search-by_hand", "grade": true, "points": 2}
# The table of the chapter: bos = 1, eos = 2, a = 3, b = 4.
probe = probes(beam_search=beam_search)
probe.equals(markov(TREE), torch.zeros(1, 1), 1, 2, 2, 4)
### BEGIN HIDDEN TESTS
shifted = TREE + probe.normal(5, 1, dtype=torch.float64)  # the same probabilities
probe.equals(markov(shifted), torch.zeros(1, 1), 1, 2, 2, 4)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "beam_search-one_is_greedy", "grade": true, "points": 1}
# A beam of one takes the best token at every step.
probe = probes(beam_search=beam_search)
probe.equals(markov(TREE), torch.zeros(1, 1), 1, 2, 1, 4)
### BEGIN HIDDEN TESTS
for _ in range(3):
    probe.equals(markov(draw_table(probe, 7)), torch.zeros(1, 1), 1, 2, 1, 6)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "beam_search-width", "grade": true, "points": 2}
# Wider beams: all candidates compete in one list.
probe = probes(beam_search=beam_search)
probe.equals(markov(FORK), torch.zeros(1, 1), 1, 2, 2, 4)
probe.equals(markov(LATE), torch.zeros(1, 1), 1, 2, 2, 5)
probe.equals(markov(STOP), torch.zeros(1, 1), 1, 2, 2, 5)  # over when two have finished
probe.equals(markov(SLOW), torch.zeros(1, 1), 1, 2, 2, 3)
### BEGIN HIDDEN TESTS
for width in (2, 3, 5):
    probe.equals(markov(draw_table(probe, 7)), torch.zeros(1, 1), 1, 2, width, 6)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "beam_search-states_follow", "grade": true, "points": 2}
# A decoder with a state: each prefix continues with the state of the prefix that it extends.
probe = probes(beam_search=beam_search)
for width in (2, 3, 5):
    probe.equals(remembering, torch.zeros(1, 5, dtype=torch.float64), 1, 2, width, 6)
### BEGIN HIDDEN TESTS
for width in (2, 3, 4):
    table, mix = probe.normal(7, 5, std=1.5).double(), probe.normal(5, 7).double()
    probe.equals(writer(table, 0.8, mix), probe.normal(1, 5).double(), 1, 2, width, 6)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "beam_search-length_penalty", "grade": true, "points": 2}
# With a length penalty the longer output may win.
probe = probes(beam_search=beam_search)
probe.equals(markov(SHORT), torch.zeros(1, 1), 1, 2, 3, 6, length_penalty=1.0)
probe.equals(markov(TREE), torch.zeros(1, 1), 1, 2, 2, 4, length_penalty=1.0)
probe.equals(markov(FORK), torch.zeros(1, 1), 1, 2, 2, 4, length_penalty=1.0)
for width in (2, 3):
    probe.equals(markov(SLOW), torch.zeros(1, 1), 1, 2, width, 5, length_penalty=1.0)
### BEGIN HIDDEN TESTS
for alpha in (0.6, 2.0):
    probe.equals(markov(SHORT), torch.zeros(1, 1), 1, 2, 3, 7, length_penalty=alpha)
    probe.equals(markov(draw_table(probe, 7)), torch.zeros(1, 1), 1, 2, 3, 7, length_penalty=alpha)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "beam_search-cut_off", "grade": true, "points": 1}
# At max_length the live prefixes count, too.
probe = probes(beam_search=beam_search)
probe.equals(markov(ENDLESS), torch.zeros(1, 1), 1, 2, 2, 3)
probe.equals(markov(FORK), torch.zeros(1, 1), 1, 2, 2, 3)
probe.equals(markov(SLOW), torch.zeros(1, 1), 1, 2, 2, 2)  # one finished, and a better one alive
### BEGIN HIDDEN TESTS
never = draw_table(probe, 7)
never[:, 2] = -60.0
probe.equals(markov(never), torch.zeros(1, 1), 1, 2, 3, 5)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Write the test
#
# `check_loss(candidate)` takes a `sequence_loss(logits, target_out, pad=0)` and returns `True` if it keeps the contract of exercise 4, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Choose inputs on which the wrong losses of the chapter *differ* from the right one, and compute the right value yourself.


# %% nbgrader={"grade_id": "check_loss", "solution": true}
def check_loss(candidate):
    ### BEGIN SOLUTION
    logits = torch.tensor(
        [
            [[0.0, 1.0, 2.0, 5.0], [3.0, 0.0, 1.0, 0.0], [0.0, 0.0, 4.0, 1.0]],
            [[2.0, 0.0, 0.0, 3.0], [9.0, 0.0, 5.0, 0.0], [0.0, 7.0, 0.0, 0.0]],
        ]
    )
    for scale, pad, target in [
        (1.0, 0, [[1, 2, 3], [1, 0, 0]]),
        (1.0, 3, [[1, 2, 0], [0, 3, 3]]),
        (100.0, 0, [[1, 2, 1], [1, 0, 0]]),
    ]:
        target = torch.tensor(target)
        real = target != pad
        logits_here = scale * logits
        expected = -logits_here.log_softmax(-1)[real].gather(-1, target[real][:, None]).mean()
        got = candidate(logits_here, target, pad)
        if got.shape != () or not torch.allclose(got, expected, rtol=1e-4):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_loss-plain", "grade": true, "points": 1}
# A right answer, and two that are clearly wrong.
probe = probes(check_loss=check_loss)
probe.judges(
    right=[oracles.right_loss],
    wrong={
        "always 1": lambda logits, target_out, pad=0: torch.ones(()),
        "the sign is inverted": lambda logits, target_out, pad=0: (
            -oracles.right_loss(logits, target_out, pad)
        ),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_loss-mutants", "grade": true, "points": 5}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_loss=check_loss)
probe.judges(
    right=[oracles.right_loss],
    wrong={"always 1": lambda logits, target_out, pad=0: torch.ones(())},
    points=5,
)


### BEGIN HIDDEN TESTS
def nll(logits, target_out):
    return -logits.log_softmax(-1).gather(-1, target_out[..., None])[..., 0]


def by_counting(logits, target_out, pad=0):
    real = (target_out != pad).to(logits.dtype)
    return (nll(logits, target_out) * real).sum() / real.sum().clamp(min=1)


def everything(logits, target_out, pad=0):
    return nll(logits, target_out).mean()


def zeroed_but_counted(logits, target_out, pad=0):
    return (nll(logits, target_out) * (target_out != pad)).mean()


def row_means(logits, target_out, pad=0):
    real = (target_out != pad).to(logits.dtype)
    return ((nll(logits, target_out) * real).sum(1) / real.sum(1).clamp(min=1)).mean()


def zero_is_padding(logits, target_out, pad=0):
    return by_counting(logits, target_out, 0)


def underflowing(logits, target_out, pad=0):
    chosen = logits.softmax(-1).gather(-1, target_out[..., None])[..., 0].log()
    real = target_out != pad
    return -chosen[real].sum() / real.sum().clamp(min=1)


probe.judges(
    right=[oracles.right_loss, by_counting],
    wrong={
        "padding is averaged in": everything,
        "padding is set to 0 but counted": zeroed_but_counted,
        "the mean of the rows' means": row_means,
        "padding is always 0": zero_is_padding,
        "the softmax underflows before the logarithm": underflowing,
    },
    points=5,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Report
#
# Train an encoder-decoder on a task of your own (sorting, doubling every symbol, a date format), or use the numbers of the chapter.
# Write about 200 words; each part earns two points.
#
# 1. Show free-running accuracy against length, with one control that rules out an explanation other than the context vector. Name that explanation, and what the control would show if it were true.
# 2. A colleague claims: "64 numbers cannot hold 20 symbols." What is right and what is wrong about this?
# 3. A beam of 50 gives nearly empty outputs. Why, and is the search or the model at fault?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. Free-running accuracy on reversal falls from about 0.9 at 5 symbols to about 0.25 at 20.
# "The network forgets over time" would also explain this. Then copying only the first symbol should fail over the same distance, but it does not (1.00 at 30 symbols).
# Exchanging the sources between rows reduces accuracy to chance, so the information passes through the vector.
# 2. Wrong about bits: 20 symbols out of ten are 66 bits, 64 float32 numbers have 2,048, and one float64 can encode 17 symbols out of eight.
# Right about what training finds: a smooth, robust read-out needs separate dimensions for every position, and gradient descent does not find denser codes.
# 3. A beam at least as wide as the vocabulary keeps every first token, `<eos>` among them.
# Stopping at once costs one improbable symbol, going on costs twenty uncertain ones, so the empty output has the highest probability.
# The search is correct. The model gives the empty output too much probability, and a length penalty repairs the comparison.
#
# **Points**, one for each:
#
# - (1a) Accuracy against length, free-running.
# - (1b) A control, and what it would show if the other explanation were true.
# - (2a) Wrong about bits, by a count.
# - (2b) Right about what training finds.
# - (3a) The empty output is the most probable one, and why.
# - (3b) The model is at fault, not the search.
