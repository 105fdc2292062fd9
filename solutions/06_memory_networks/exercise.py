# %% [markdown]
# # Exercises: memory networks
#
# You write the parts of an end-to-end memory network: the weights that encode word order, one hop, a program that shows how many hops a task needs, the memory of a story, and several hops that share memories.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course import functional
from attn_course.probes import load_oracles, properties

oracles, probes = load_oracles("06_memory_networks")


def place_weights(words, embed_dim):
    """The position encoding of exercise 1, `(words, embed_dim)`."""
    # Self-contained, because answers are graded without attn_course.functional.
    j = torch.arange(1, words + 1)[:, None] / words
    k = torch.arange(1, embed_dim + 1) / embed_dim
    return 1 - j - k * (1 - 2 * j)


def ladder(count, size):
    """A small table of word vectors to compute by hand: row i is i, 10 i, 100 i ..."""
    return torch.arange(float(count))[:, None] * 10.0 ** torch.arange(size)


def hops_adjacent(fn, query, memories, mask=None):
    return fn(query, memories, len(memories) - 1, "adjacent", mask=mask)


def hops_layer_wise(fn, query, memories, hops, update, mask=None):
    return fn(query, memories, hops, "layer-wise", update=update, mask=mask)


# %% [markdown]
# ## 1. Position encoding
#
# `position_encoding(words, embed_dim)` gives a weight for every element of every word vector, which depends on the word's position (Sukhbaatar and others 2015, section 4.1):
#
# $$l_{kj} = \left(1 - \frac{j}{J}\right) - \frac{k}{d}\left(1 - \frac{2j}{J}\right).$$
#
# - $J$ is `words`, $d$ is `embed_dim`; $j$ runs from 1 to $J$ and $k$ from 1 to $d$.
# - The result is a float32 tensor of shape `(words, embed_dim)`: one row per word, one column per element.
#
# By hand, two words and two elements: $l_{11} = \frac12 - \frac12 \cdot 0 = \frac12$ and $l_{21} = \frac12 - 1 \cdot 0 = \frac12$ for the first word, $l_{12} = 0 - \frac12 \cdot (-1) = \frac12$ and $l_{22} = 0 - 1 \cdot (-1) = 1$ for the second: `[[0.5, 0.5], [0.5, 1.0]]`.
#
# <details><summary>Hint</summary>
#
# `torch.arange(1, n + 1)` counts from 1. Give one counter a second axis and broadcast.
#
# </details>


# %% nbgrader={"grade_id": "position_encoding", "solution": true}
def position_encoding(words, embed_dim):
    ### BEGIN SOLUTION
    j = torch.arange(1, words + 1)[:, None] / words  # (J, 1)
    k = torch.arange(1, embed_dim + 1) / embed_dim  # (d,)
    return (1 - j) - k * (1 - 2 * j)
    ### END SOLUTION


# %% nbgrader={"grade_id": "position_encoding-by_hand", "grade": true, "points": 1}
# Two words, two elements.
probe = probes(position_encoding=position_encoding)
probe.equals(2, 2)

# %% nbgrader={"grade_id": "position_encoding-sizes", "grade": true, "points": 2}
# Sentences of several lengths, vectors of several sizes.
probe = probes(position_encoding=position_encoding)
probe.equals(3, 2)
probe.equals(2, 5)
### BEGIN HIDDEN TESTS
probe.equals(int(probe.integers(4, 9, 1)), 11)
probe.equals(7, int(probe.integers(12, 20, 1)))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "position_encoding-one_word", "grade": true, "points": 1}
# A sentence of one word, and d = 1.
probe = probes(position_encoding=position_encoding)
probe.equals(1, 4)
probe.equals(3, 1)
### BEGIN HIDDEN TESTS
probe.equals(1, int(probe.integers(5, 12, 1)))
### END HIDDEN TESTS

# %% [markdown]
# ## 2. One hop
#
# `memory_hop(query, memory_in, memory_out, mask=None)` attends once to all memories:
#
# $$p_i = \operatorname{softmax}(u^\top m_i), \qquad o = \sum_i p_i c_i .$$
#
# - `query` $u$ is `(B, D)`; `memory_in` $m$ is `(B, N, D)`; `memory_out` $c$ is `(B, N, C)`, and `C` may differ from `D`.
# - `mask` is boolean, `(B, N)`: True = the query may attend to this memory. Without a mask it may attend to all. A row whose memories are all masked gets weights 0 and output 0.
# - The result is the pair `(o, p)`: `(B, C)` and `(B, N)`.
# - It handles scores of any size, and gradients reach all three tensors.
#
# By hand: scores $\ln 1, \ln 3$ give the weights $\frac14, \frac34$; with $c = 8$ and $c = 4$ the output is $\frac14 \cdot 8 + \frac34 \cdot 4 = 5$.


# %% nbgrader={"grade_id": "memory_hop", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "multi_head_attention_forward", "aten::*scaled_dot_product*", "aten::*multi_head_attention*"]}
def memory_hop(query, memory_in, memory_out, mask=None):
    ### BEGIN SOLUTION
    scores = torch.einsum("bd,bnd->bn", query, memory_in)
    if mask is None:
        mask = torch.ones_like(scores, dtype=torch.bool)
    scores = scores.masked_fill(~mask, -torch.inf)
    none = ~mask.any(-1, keepdim=True)
    weights = scores.masked_fill(none, 0.0).softmax(-1).masked_fill(none, 0.0)
    return torch.einsum("bn,bnc->bc", weights, memory_out), weights
    ### END SOLUTION


# %% nbgrader={"grade_id": "memory_hop-values", "grade": true, "points": 2}
# One row, then several.
probe = probes(memory_hop=memory_hop)
probe.equals(
    torch.tensor([[1.0]]),
    torch.tensor([[[1.0], [3.0]]]).log(),
    torch.tensor([[[8.0], [4.0]]]),
)
probe.equals(
    torch.tensor([[1.0, 2.0], [0.0, -1.0]]),
    torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]).repeat(2, 1, 1),
    torch.tensor([[[9.0, 1.0], [5.0, 2.0], [7.0, 4.0]]]).repeat(2, 1, 1),
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.normal(3, 7, 5), probe.normal(3, 7, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "memory_hop-other_size", "grade": true, "points": 1}
# The output memory may have another size than the input memory.
probe = probes(memory_hop=memory_hop)
probe.equals(
    torch.tensor([[1.0, 2.0]]),
    torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]),
    torch.tensor([[[9.0, 1.0, 3.0], [5.0, 2.0, 4.0]]]),
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.normal(3, 7, 5), probe.normal(3, 7, 11))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "memory_hop-mask", "grade": true, "points": 2}
# Masked memories, and rows in which all are masked.
probe = probes(memory_hop=memory_hop)
probe.equals(
    torch.tensor([[1.0, -2.0], [1.0, -2.0]]),
    torch.tensor([[[-3.0, 0.0], [0.0, 2.0], [-1.0, 1.0]]]).repeat(2, 1, 1),
    torch.tensor([[[9.0], [5.0], [7.0]]]).repeat(2, 1, 1),
    torch.tensor([[True, True, False], [False, False, False]]),
)
### BEGIN HIDDEN TESTS
mask = probe.mask(4, 7, keep=0.5)
mask[0], mask[1, :3], mask[1, 3:] = False, True, False
probe.equals(probe.normal(4, 5), probe.normal(4, 7, 5), probe.normal(4, 7, 3), mask)
# a masked memory may have by far the largest score
loud = probe.normal(2, 7, 5)
loud[:, 2] = 100.0
some = torch.arange(7).repeat(2, 1) != 2
probe.equals(1.0 + probe.uniform(2, 5), loud, probe.normal(2, 7, 3), some)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "memory_hop-large_scores", "grade": true, "points": 1}
# Scores whose exponentials overflow.
probe = probes(memory_hop=memory_hop)
probe.equals(
    torch.tensor([[10.0, 10.0]]),
    torch.tensor([[[20.0, 0.0], [0.0, 19.9], [-30.0, 0.0]]]),
    torch.tensor([[[8.0, 1.0], [4.0, 2.0], [1.0, 3.0]]]),
)
### BEGIN HIDDEN TESTS
large = 10 * probe.normal(2, 5, dtype=torch.float64)
probe.equals(
    large,
    20 * probe.normal(2, 7, 5, dtype=torch.float64),
    probe.normal(2, 7, 3, dtype=torch.float64),
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "memory_hop-gradient", "grade": true, "points": 1}
# Gradients reach the query and both memories.
probe = probes(memory_hop=memory_hop)
probe.gradient(
    torch.tensor([[1.0]]),
    torch.tensor([[[1.0], [3.0]]]).log(),
    torch.tensor([[[8.0], [4.0]]]),
    wrt=(0, 1, 2),
)
### BEGIN HIDDEN TESTS
probe.gradient(probe.normal(2, 3), probe.normal(2, 5, 3), probe.normal(2, 5, 3), wrt=(0, 1, 2))
### END HIDDEN TESTS

# %% [markdown]
# ## 3. The pointer chase
#
# Before you train a network on a task, write a program that solves it: it shows how many hops the task needs.
#
# `pointer_chase(story, start, steps)` follows pointers.
#
# - `story` is `(B, N, 2)`: the sentence `[a, b]` means that *a* points to *b*; sentences are in any order. `[0, 0]` is padding. No symbol points twice in one story, and symbols are positive.
# - `start` is `(B,)`; `steps` is a nonnegative integer, the same for all rows.
# - The result is `(B,)`, of the dtype of `start`: the symbol after `steps` steps. A symbol without a pointer stays.
#
# By hand: with $7 \to 4$, $5 \to 7$, $4 \to 5$, two steps from 5 lead to 7, then to 4.


# %% nbgrader={"grade_id": "pointer_chase", "solution": true}
def pointer_chase(story, start, steps):
    ### BEGIN SOLUTION
    here = start
    for _ in range(steps):
        found = story[:, :, 0] == here[:, None]  # (B, N): at most one per row
        there = (story[:, :, 1] * found).sum(1)
        here = torch.where(found.any(1), there, here)
    return here
    ### END SOLUTION


# %% nbgrader={"grade_id": "pointer_chase-one_step", "grade": true, "points": 1}
# One step.
### BEGIN HIDDEN TESTS
def right_chase(story, start, steps):
    ends = []
    for sentences, here in zip(story.tolist(), start.tolist(), strict=True):
        told = dict(sentences)
        for _ in range(steps):
            here = told.get(here, here)
        ends.append(here)
    return torch.tensor(ends, dtype=start.dtype)


def draw_cycles(probe, rows, size):
    """Stories whose pointers pass through all symbols, with their starts."""
    order = torch.stack([probe.permutation(size) for _ in range(rows)]) + 4
    pairs = torch.stack([order, order.roll(-1, dims=1)], dim=-1)
    shuffled = [pair[probe.permutation(size)] for pair in pairs]
    return torch.stack(shuffled), order[:, 0]


### END HIDDEN TESTS
probe = probes(pointer_chase=pointer_chase)
chain = torch.tensor([[[7, 4], [5, 7], [4, 5]], [[4, 5], [7, 4], [5, 7]]])
probe.gives(torch.tensor([7, 4]), chain, torch.tensor([5, 7]), 1)
### BEGIN HIDDEN TESTS
probe = probes(pointer_chase=pointer_chase, oracle=right_chase)
story, start = draw_cycles(probe, 5, 7)
probe.equals(story, start, 1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "pointer_chase-many_steps", "grade": true, "points": 2}
# Two steps, and more than there are sentences.
probe = probes(pointer_chase=pointer_chase)
longer = torch.tensor([[[4, 8], [7, 4], [9, 5], [5, 7], [8, 9]]])
probe.gives(torch.tensor([7]), longer, torch.tensor([9]), 2)
probe.gives(torch.tensor([4]), longer, torch.tensor([9]), 3)
### BEGIN HIDDEN TESTS
probe = probes(pointer_chase=pointer_chase, oracle=right_chase)
story, start = draw_cycles(probe, 4, 11)
for steps in (3, 4, 13):
    probe.equals(story, start, steps)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "pointer_chase-no_step", "grade": true, "points": 1}
# No step.
probe = probes(pointer_chase=pointer_chase)
probe.gives(torch.tensor([5, 7]), chain, torch.tensor([5, 7]), 0)
### BEGIN HIDDEN TESTS
probe = probes(pointer_chase=pointer_chase, oracle=right_chase)
story, start = draw_cycles(probe, 3, 5)
probe.equals(story, start, 0)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "pointer_chase-dead_ends", "grade": true, "points": 2}
# A path that ends, and padding.
probe = probes(pointer_chase=pointer_chase)
ending = torch.tensor([[[7, 4], [5, 7], [0, 0]], [[0, 0], [6, 8], [8, 9]]])
probe.gives(torch.tensor([4, 9]), ending, torch.tensor([5, 6]), 3)
probe.gives(torch.tensor([4, 9]), ending, torch.tensor([5, 6]), 4)
### BEGIN HIDDEN TESTS
probe = probes(pointer_chase=pointer_chase, oracle=right_chase)
story, start = draw_cycles(probe, 4, 7)
cut = story.masked_fill((story[:, :, :1] == story[:, 2:3, :1]), 0)
for steps in (8, 9):
    probe.equals(cut, start, steps)
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# Your hop follows pointers: each row shows the weights of one hop. Your program prints the expected symbol.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

story = torch.tensor([[[7, 4], [5, 7], [4, 6]]])
memory_in, memory_out = 9 * torch.eye(10)[story[..., 0]], torch.eye(10)[story[..., 1]]
state, rows = torch.eye(10)[[5]], []
for hop in range(1, 4):
    found, weights = memory_hop(state, memory_in, memory_out)
    state = torch.eye(10)[(found - state).argmax(-1)]  # what was read, without the query
    rows.append(weights[0])
    due = pointer_chase(story, torch.tensor([5]), hop)
    print(f"hop {hop}: {int(state.argmax())}, program: {int(due)}")
plt.imshow(torch.stack(rows))
plt.xticks(range(3), [f"{a} to {b}" for a, b in story[0].tolist()])
plt.yticks(range(3), range(1, 4))
plt.ylabel("hop")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. The memory of a story
#
# `build_memory(story, table, ages)` turns a story into one vector per sentence:
#
# $$m_i = \sum_{j} l_j \odot A x_{ij} + T(\text{age of } i).$$
#
# - `story` is `(N, J)`: word ids, oldest sentence first. Id 0 is padding. It may end a sentence, and sentences of padding only may occur anywhere.
# - `table` is `(V, D)`: row `i` is the vector of word `i`. `ages` is `(A, D)`: row `a` is added to the sentence that `a` sentences follow, so the newest one gets row 0.
# - $l$ is `place_weights(number of words, D)` from the first cell, for the number of words of *this* sentence.
# - Sentences of padding do not count in the age of others, and their vector is 0.
# - The result is `(N, D)`, of the dtype of `table`. Gradients reach `table` and `ages`.
#
# By hand, with $d = 1$, where $l_{1j} = j / J$: the story `[[2, 4], [6, 0]]` with the table $i \mapsto i$ and the ages `[100, 200]` gives $\frac12 \cdot 2 + 1 \cdot 4 + 200 = 205$ and $1 \cdot 6 + 100 = 106$.
#
# <details><summary>Hint</summary>
#
# Loop over the sentences from the last to the first, and count those that have words.
#
# </details>


# %% nbgrader={"grade_id": "build_memory", "solution": true}
def build_memory(story, table, ages):
    ### BEGIN SOLUTION
    rows, age = [], 0
    for sentence in story.flip(0):
        words = sentence[sentence != 0]
        row = torch.zeros_like(table[0])
        if len(words):
            weights = place_weights(len(words), table.shape[1]).to(table.dtype)
            row = (weights * table[words]).sum(0) + ages[age]
            age += 1
        rows.insert(0, row)
    return torch.stack(rows)
    ### END SOLUTION


# %% nbgrader={"grade_id": "build_memory-words", "grade": true, "points": 1}
# Sentences without padding, ages of zero.
### BEGIN HIDDEN TESTS
def right_memory(story, table, ages):
    mask = story != 0
    vectors = functional.sentence_vectors(table[story], mask)
    age = functional.sentence_ages(mask.any(-1))
    return (vectors + ages[age.clamp(min=0)]).masked_fill(age[:, None] < 0, 0.0)


### END HIDDEN TESTS
probe = probes(build_memory=build_memory)
two = torch.tensor([[2, 4], [6, 3]])
probe.gives(torch.tensor([[5.0], [6.0]]), two, ladder(7, 1), torch.zeros(2, 1))
three = torch.tensor([[2, 4, 5], [6, 3, 1]])
probe.gives(torch.tensor([[5.5, 250 / 3], [5.0, 50.0]]), three, ladder(7, 2), torch.zeros(2, 2))
### BEGIN HIDDEN TESTS
probe = probes(build_memory=build_memory, oracle=right_memory)
probe.equals(torch.tensor([[2, 4], [6, 3]]), ladder(7, 1), torch.zeros(2, 1))
probe.equals(torch.tensor([[2, 4, 5], [6, 3, 1]]), ladder(7, 2), torch.zeros(2, 2))
probe.equals(probe.integers(1, 11, 3, 5), probe.normal(11, 7), torch.zeros(3, 7))
# powers of two, so the position weights are exact in either dtype
double = {"dtype": torch.float64}
probe.equals(
    probe.integers(1, 11, 3, 4), probe.normal(11, 4, **double), torch.zeros(3, 4, **double)
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "build_memory-ages", "grade": true, "points": 2}
# The newest sentence gets row 0 of the ages; `ages` may have more rows than the story.
probe = probes(build_memory=build_memory)
ages = torch.tensor([[100.0], [200.0]])
probe.gives(torch.tensor([[205.0], [106.0]]), two, ladder(7, 1), ages)
probe.gives(
    torch.tensor([[3001.0, 21020.0], [2003.0, 11060.0], [1002.0, 1040.0]]),
    torch.tensor([[2], [6], [4]]),
    ladder(7, 2),
    1000 * (1 + ladder(5, 2)),
)
### BEGIN HIDDEN TESTS
probe = probes(build_memory=build_memory, oracle=right_memory)
probe.equals(probe.integers(1, 11, 4, 3), probe.normal(11, 5), probe.normal(7, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "build_memory-padded_words", "grade": true, "points": 2}
# Sentences of several lengths: positions count only real words.
probe = probes(build_memory=build_memory)
table = 5 + ladder(7, 1)  # word 0 has a vector too: it must not be added
probe.gives(
    torch.tensor([[212.5], [111.0]]),
    torch.tensor([[2, 4], [6, 0]]),
    table,
    torch.tensor([[100.0], [200.0]]),
)
### BEGIN HIDDEN TESTS
probe = probes(build_memory=build_memory, oracle=right_memory)
story = probe.integers(1, 11, 3, 5)
story[0, 2:], story[2, 4:] = 0, 0
probe.equals(story, probe.normal(11, 7), probe.normal(3, 7))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "build_memory-empty_sentences", "grade": true, "points": 1}
# Sentences of padding count in no age, and their vector is 0.
probe = probes(build_memory=build_memory)
ages = 100.0 * (1 + ladder(3, 1))
last = torch.tensor([[2, 4], [6, 3], [0, 0]])
probe.gives(torch.tensor([[205.0], [106.0], [0.0]]), last, ladder(7, 1), ages)
holes = torch.tensor([[2, 4], [0, 0], [6, 3]])  # anywhere
probe.gives(torch.tensor([[205.0], [0.0], [106.0]]), holes, ladder(7, 1), ages)
### BEGIN HIDDEN TESTS
probe = probes(build_memory=build_memory, oracle=right_memory)
story = probe.integers(1, 11, 5, 3)
story[1], story[4] = 0, 0
probe.equals(story, probe.normal(11, 7), probe.normal(5, 7))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "build_memory-gradient", "grade": true, "points": 1}
# Gradients reach the words and the ages.
probe = probes(build_memory=build_memory)
probe.holds(
    properties.gradient_reaches(1, 2), torch.tensor([[2, 4], [1, 3]]), ladder(5, 1), ladder(2, 1)
)
### BEGIN HIDDEN TESTS
probe = probes(build_memory=build_memory, oracle=right_memory)
probe.gradient(torch.tensor([[2, 4], [1, 3]]), ladder(5, 1), ladder(2, 1), wrt=(1, 2))
probe.gradient(probe.integers(1, 7, 3, 2), probe.normal(7, 3), probe.normal(4, 3), wrt=(1, 2))
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Several hops with shared memories
#
# `stack_hops(query, memories, hops, tying, update=None, mask=None)` attends to the story `hops` times:
#
# $$o^k = \sum_i p_i^k c_i^k, \qquad p_i^k = \operatorname{softmax}(u^{k\top} m_i^k) .$$
#
# `memories` is a list of tensors `(B, N, D)`: the story, embedded by several tables. The *tying* determines which of them a hop uses, and how $u$ is updated:
#
# - `"adjacent"`: `memories` has `hops + 1` elements. The output memory of one hop is the input memory of the next: $c^k = m^{k+1}$. The query becomes $u^{k+1} = u^k + o^k$.
# - `"layer-wise"`: `memories` has two elements. Every hop compares with the first and reads the second. The query becomes $u^{k+1} = H u^k + o^k$, where `update` is $H$, `(D, D)`.
#
# - `query` is `(B, D)`, `mask` is `(B, N)` as in exercise 2, and every row has a memory that is not masked.
# - The result is the pair of $u^{K+1}$, `(B, D)`, and the weights of all hops, `(B, K, N)`. Gradients pass through all hops.
#
# By hand, adjacent, one hop, one memory: its weight is 1, so $u^2 = u^1 + c^1$, whatever $m^1$ is.


# %% nbgrader={"grade_id": "stack_hops", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "multi_head_attention_forward", "aten::*scaled_dot_product*", "aten::*multi_head_attention*"]}
def stack_hops(query, memories, hops, tying, update=None, mask=None):
    ### BEGIN SOLUTION
    weights = []
    for hop in range(hops):
        if tying == "adjacent":
            into, out, kept = memories[hop], memories[hop + 1], query
        else:
            into, out, kept = memories[0], memories[1], query @ update.T
        scores = torch.einsum("bd,bnd->bn", query, into)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights.append(scores.softmax(-1))
        query = kept + torch.einsum("bn,bnd->bd", weights[-1], out)
    return query, torch.stack(weights, dim=1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "stack_hops-one_hop", "grade": true, "points": 1}
# One hop, adjacent.
probe = probes(stack_hops=stack_hops)
one = [torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[[2.0, 0.0], [0.0, 6.0]]])]
probe.equals(torch.tensor([[1.0, 3.0]]), one, via=hops_adjacent)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), [probe.normal(3, 7, 5) for _ in range(2)], via=hops_adjacent)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stack_hops-adjacent", "grade": true, "points": 2}
# Two and three hops: the output memory of one is the input memory of the next.
probe = probes(stack_hops=stack_hops)
two = [*one, torch.tensor([[[5.0, 1.0], [3.0, -4.0]]])]
probe.equals(torch.tensor([[1.0, 0.5]]), two, via=hops_adjacent)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), [probe.normal(3, 7, 5) for _ in range(4)], via=hops_adjacent)
three = [probe.normal(2, 4, 3) for _ in range(3)]
probe.gradient(probe.normal(2, 3), three, 2, "adjacent", wrt=0)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stack_hops-layer_wise", "grade": true, "points": 2}
# The same two memories at every hop, with a linear map between hops.
probe = probes(stack_hops=stack_hops)
quarter_turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
probe.equals(torch.tensor([[1.0, 0.5]]), one, 2, quarter_turn, via=hops_layer_wise)
### BEGIN HIDDEN TESTS
pair = [probe.normal(3, 7, 5) for _ in range(2)]
probe.equals(probe.normal(3, 5), pair, 3, 0.5 * probe.normal(5, 5), via=hops_layer_wise)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stack_hops-mask", "grade": true, "points": 1}
# No hop attends to masked memories.
probe = probes(stack_hops=stack_hops)
mask = torch.tensor([[True, False]])
probe.equals(torch.tensor([[1.0, 0.5]]), two, mask, via=hops_adjacent)
probe.equals(torch.tensor([[1.0, 0.5]]), one, 2, quarter_turn, mask, via=hops_layer_wise)
### BEGIN HIDDEN TESTS
mask = probe.mask(3, 7, keep=0.5)
mask[:, 3], mask[:, 5] = True, False
three = [probe.normal(3, 7, 5) for _ in range(3)]
probe.equals(probe.normal(3, 5), three, mask, via=hops_adjacent)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Repair: two hops
#
# `broken_two_hops` should attend to a story twice and return $u^3 = u^1 + o^1 + o^2$, with the same two memories at both hops.
# `query` is `(B, D)`, `memory_in` and `memory_out` are `(B, N, D)`.
#
# It has two faults. Find them and write `fixed_two_hops`.


# %% nbgrader={"grade_id": "broken_two_hops", "locked": true}
def broken_two_hops(query, memory_in, memory_out):
    first = (query[:, None] * memory_in).sum(-1).softmax(0)
    output = (first[..., None] * memory_out).sum(1)
    second = (query[:, None] * memory_in).sum(-1).softmax(0)
    return query + output + (second[..., None] * memory_out).sum(1)


# %% nbgrader={"grade_id": "fixed_two_hops", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "multi_head_attention_forward", "aten::*scaled_dot_product*", "aten::*multi_head_attention*"]}
def fixed_two_hops(query, memory_in, memory_out):
    ### BEGIN SOLUTION
    for _ in range(2):
        weights = (query[:, None] * memory_in).sum(-1).softmax(-1)
        query = query + (weights[..., None] * memory_out).sum(1)
    return query
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_two_hops-one_memory", "grade": true, "points": 1}
# Two stories of a single memory: its weight is 1, whatever the query is.
probe = probes(fixed_two_hops=fixed_two_hops)
probe.gives(
    torch.tensor([[15.0], [10.0]]),
    torch.tensor([[1.0], [2.0]]),
    torch.tensor([[[3.0]], [[5.0]]]),
    torch.tensor([[[7.0]], [[4.0]]]),
)

# %% nbgrader={"grade_id": "fixed_two_hops-second_look", "grade": true, "points": 2}
# The first hop reads the clue for the second: 50 e1 retrieves 60 e2, and their sum retrieves 70 e1.
# The clue alone would retrieve the third memory.
probe = probes(fixed_two_hops=fixed_two_hops)
probe.gives(
    torch.tensor([[120.0, 60.0]]),
    torch.tensor([[50.0, 0.0]]),
    torch.tensor([[[1.0, 0.0], [0.0, 2.0], [-2.0, 3.0]]]),
    torch.tensor([[[0.0, 60.0], [70.0, 0.0], [0.0, -90.0]]]),
)


### BEGIN HIDDEN TESTS
def right_two_hops(query, memory_in, memory_out):
    for _ in range(2):
        query = query + functional.memory_hop(query, memory_in, memory_out)[0]
    return query


probe = probes(fixed_two_hops=fixed_two_hops, oracle=right_two_hops)
probe.equals(probe.normal(3, 5), probe.normal(3, 7, 5), probe.normal(3, 7, 5))
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Write the test
#
# `check_hop(candidate)` takes a `memory_hop(query, memory_in, memory_out, mask=None)` and returns `True` if it keeps the contract of exercise 2, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Choose inputs on which wrong answers *differ*: two different memories, several rows, a mask, a row without memories, large scores.


# %% nbgrader={"grade_id": "check_hop", "solution": true}
def check_hop(candidate):
    ### BEGIN SOLUTION
    query = torch.tensor([[1.0, 2.0], [0.5, -1.0], [30.0, 9.0]])
    memory_in = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [10.0, 0.3]]]).repeat(3, 1, 1)
    memory_out = torch.tensor([[[9.0, 1.0, 2.0], [5.0, 2.0, -1.0], [7.0, 4.0, 0.0]]])
    memory_out = memory_out * torch.tensor([1.0, 2.0, 3.0])[:, None, None]
    some = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])
    for mask in (None, some):
        output, weights = candidate(query, memory_in, memory_out, mask)
        if output.shape != (3, 3) or weights.shape != (3, 3):
            return False
        for row in range(3):
            kept = [i for i in range(3) if mask is None or bool(mask[row, i])]
            right = torch.zeros(3)
            if kept:
                right[kept] = (memory_in[row, kept] @ query[row]).softmax(0)
            if not torch.allclose(weights[row], right, atol=1e-5):
                return False
            if not torch.allclose(output[row], right @ memory_out[row], atol=1e-4):
                return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_hop-plain", "grade": true, "points": 1}
# A right answer, and three that are clearly wrong.
def doubled(query, memory_in, memory_out, mask=None):
    output, weights = oracles.right_hop(query, memory_in, memory_out, mask)
    return output, 2 * weights


probe = probes(check_hop=check_hop)
probe.judges(
    right=[oracles.right_hop],
    wrong={
        "the weights are doubled": doubled,
        "every memory with equal weight": lambda query, memory_in, memory_out, mask=None: (
            memory_out.mean(1),
            torch.full(memory_in.shape[:2], 1 / memory_in.shape[1]),
        ),
        "the output is the query": lambda query, memory_in, memory_out, mask=None: (
            query,
            oracles.right_hop(query, memory_in, memory_out, mask)[1],
        ),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_hop-mutants", "grade": true, "points": 5}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_hop=check_hop)
probe.judges(right=[oracles.right_hop], wrong={"the weights are doubled": doubled}, points=5)


### BEGIN HIDDEN TESTS
def by_matmul(query, memory_in, memory_out, mask=None):
    weights = functional.masked_softmax(
        (memory_in @ query[:, :, None])[..., 0],
        torch.ones(memory_in.shape[:2], dtype=torch.bool) if mask is None else mask,
    )
    return (weights[:, None] @ memory_out)[:, 0], weights


def weights_of(query, memory_in, mask):
    return oracles.right_hop(query, memory_in, memory_in, mask)[1]


def reads_input(query, memory_in, memory_out, mask=None):
    weights = weights_of(query, memory_in, mask)
    mixed = (weights[..., None] * memory_in).sum(1)
    short = memory_out.shape[-1] - mixed.shape[-1]
    return torch.nn.functional.pad(mixed, (0, max(short, 0))), weights


def over_rows(query, memory_in, memory_out, mask=None):
    scores = (query[:, None] * memory_in).sum(-1)
    keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    weights = functional.masked_softmax(scores, keep, dim=0)
    return (weights[..., None] * memory_out).sum(1), weights


def no_mask(query, memory_in, memory_out, mask=None):
    return oracles.right_hop(query, memory_in, memory_out)


def turned_mask(query, memory_in, memory_out, mask=None):
    return oracles.right_hop(query, memory_in, memory_out, None if mask is None else ~mask)


def unshifted(query, memory_in, memory_out, mask=None):
    scores = (query[:, None] * memory_in).sum(-1)
    keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    powers = scores.exp() * keep
    weights = powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)
    return (weights[..., None] * memory_out).sum(1), weights


def uniform_when_empty(query, memory_in, memory_out, mask=None):
    scores = (query[:, None] * memory_in).sum(-1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = scores.softmax(-1)
    return (weights[..., None] * memory_out).sum(1), weights


def hard(query, memory_in, memory_out, mask=None):
    scores = (query[:, None] * memory_in).sum(-1)
    keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    best = scores.masked_fill(~keep, -torch.inf).argmax(-1)
    weights = torch.nn.functional.one_hot(best, scores.shape[-1]).to(scores.dtype) * keep
    return (weights[..., None] * memory_out).sum(1), weights


probe.judges(
    right=[oracles.right_hop, by_matmul],
    wrong={
        "reads the memory that it compares with": reads_input,
        "the softmax runs over the rows of the batch": over_rows,
        "the mask is ignored": no_mask,
        "the mask is inverted": turned_mask,
        "exponentials overflow": unshifted,
        "a row without memories gets even weights": uniform_when_empty,
        "only the best memory counts": hard,
    },
    points=5,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Report
#
# Train memory networks on a task of `attn_course.data` (three supporting facts, counting, yes or no) or on your own, or use the numbers of the chapter.
# Write about 200 words; each part earns two points.
#
# 1. Show error against the number of hops, with at least two controls. For each control name the explanation that it rules out, and what it would show if that explanation were true.
# 2. Plot the weights of each hop on some stories with right and some with wrong answers. Are they large on the supporting facts? Does that prove that the model uses them? (Chapter 05.)
# 3. A colleague claims: "A memory network learns to write facts into its memory and to read them back." What is right and what is wrong about this?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. Two supporting facts: with one hop about half of the answers are wrong, with two hops nearly none.
# A single hop finds the sentence that names the object, or a recent place, but the place depends on a person whom only the first fact names.
# Without temporal encoding two hops fail as well, so the number of parameters is not the reason: choosing among several moves needs the order of the story.
# With the sentences of another story the accuracy falls to chance, so the answer comes from the memory, not from the question alone.
# If frequent answers explained the result, the most frequent one would do well; it is right one time in six.
# 2. The first hop attends to the last sentence that names the object, the second to the last move of its person.
# Such weights are compatible with use but do not prove it; removing the sentence and observing a changed answer is better evidence.
# 3. Right: attention reads facts several times. Wrong: nothing is written. Each sentence becomes a vector that is the same for every question, and no hop changes it; only the query changes.
#
# **Points**, one for each:
#
# - (1a) Error against hops with two controls.
# - (1b) For each control, the explanation that it rules out.
# - (2a) Weights on right and wrong answers.
# - (2b) Large weights do not prove use; an intervention is named.
# - (3a) Reading is right.
# - (3b) Nothing is written.
