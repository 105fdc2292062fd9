# %% [markdown]
# # Exercises: score functions
#
# You write the scores of the chapter, the two windows, and the loop that feeds the attentional vector back. (The additive score is in the set of chapter 03.)
# All scores have one shape: queries `(..., L, E_q)` and keys `(..., S, E_k)` give scores `(..., L, S)`, one number for each query and each key, before any mask or softmax.
# `...` is any number of leading axes, the same for queries and keys; the sets are independent.
# Gradients reach all arguments.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import math

import torch

from attn_course import reference
from attn_course.probes import from_numpy, load_oracles

oracles, probes = load_oracles("04_score_functions")

# the vectors of the chapter: one query, two keys
QUERY = torch.tensor([[1.0, 2.0]])
KEYS = torch.tensor([[3.0, -1.0], [0.0, 2.0]])


def mixing_cell(weight_input, weight_state):
    """A cell: `cell(input, state)` returns the next state of all rows."""

    def cell(entered, state):
        return torch.tanh(entered @ weight_input + state @ weight_state)

    cell.weight_input, cell.weight_state = weight_input, weight_state
    return cell


def looking(weight, shift):
    """An attention: `look(state)` returns the attentional vector."""

    def look(state):
        return torch.tanh(state @ weight + shift)

    look.weight, look.shift = weight, shift
    return look


# %% [markdown]
# ## 1. The scaled dot product
#
# `scaled_dot_score(query, key, scale=None)` gives $s_{ij} = \text{scale} \cdot q_i \cdot k_j$, where `scale` is $1/\sqrt{E}$ unless one is given.
#
# - `query` is `(..., L, E)`, `key` is `(..., S, E)`, the result `(..., L, S)`.
# - A given `scale` replaces $1/\sqrt{E}$; `scale=1.0` is Luong's *dot*.
#
# By hand: the query $(1, 2)$ against the keys $(3, -1)$ and $(0, 2)$ gives the products $3 - 2 = 1$ and $4$. With $E = 2$ the scores are $1/\sqrt 2 = 0.707$ and $4/\sqrt 2 = 2.828$; with `scale=1.0` they are $1$ and $4$.


# %% nbgrader={"grade_id": "scaled_dot_score", "solution": true}
def scaled_dot_score(query, key, scale=None):
    ### BEGIN SOLUTION
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    return scale * (query @ key.transpose(-2, -1))
    ### END SOLUTION


# %% nbgrader={"grade_id": "scaled_dot_score-values", "grade": true, "points": 1}
# The usual scale.
probe = probes(scaled_dot_score=scaled_dot_score)
probe.equals(QUERY, KEYS)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.normal(7, 5))
probe.gradient(probe.normal(2, 3), probe.normal(4, 3), wrt=(0, 1))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "scaled_dot_score-batch", "grade": true, "points": 1}
# Several independent sets.
probe = probes(scaled_dot_score=scaled_dot_score)
probe.equals(QUERY[None].expand(3, 1, 2), torch.stack([KEYS, KEYS.flip(0), -2 * KEYS]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 11), probe.normal(2, 5, 11))
probe.equals(probe.normal(3, 2, 2, 5), probe.normal(3, 2, 3, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "scaled_dot_score-other_scale", "grade": true, "points": 1}
# Other scales: that of Luong's dot, then others, including 0.
probe = probes(scaled_dot_score=scaled_dot_score)
probe.equals(QUERY, KEYS, scale=1.0)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.normal(7, 5), scale=0.3)
probe.equals(probe.normal(3, 5), probe.normal(7, 5), scale=0.0)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Luong's *general*
#
# `general_score(query, key, weight)` gives $s_{ij} = q_i^\top W k_j$.
#
# - `query` is `(..., L, E_q)`, `key` is `(..., S, E_k)`, `weight` is `(E_q, E_k)`: the two sizes need not be equal.
#
# By hand, with $W = \begin{pmatrix} 1 & 0 \\ 1 & 1 \end{pmatrix}$: $q^\top W = (3, 2)$, so the scores are $9 - 2 = 7$ and $4$.


# %% nbgrader={"grade_id": "general_score", "solution": true}
def general_score(query, key, weight):
    ### BEGIN SOLUTION
    return query @ weight @ key.transpose(-2, -1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "general_score-values", "grade": true, "points": 1}
# Vectors of one size, and a matrix that is not symmetric.
probe = probes(general_score=general_score)
probe.equals(QUERY, KEYS, weight=torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.normal(7, 5), weight=probe.normal(5, 5))
probe.gradient(
    probe.normal(2, 3), probe.normal(4, 3), weight=probe.normal(3, 3), wrt=(0, 1, "weight")
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "general_score-sizes_and_batch", "grade": true, "points": 1}
# Queries and keys of different sizes, several sets at once.
probe = probes(general_score=general_score)
probe.equals(
    torch.stack([QUERY, -QUERY]),
    torch.tensor([[[1.0, 0.0, 2.0]], [[0.0, 3.0, 1.0]]]),
    weight=torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]),
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 5), probe.normal(2, 7, 3), weight=probe.normal(5, 3))
probe.equals(probe.normal(3, 2, 2, 3), probe.normal(3, 2, 5, 7), weight=probe.normal(3, 7))
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Luong's *concat*
#
# `concat_score(query, key, weight, v)` gives $s_{ij} = v^\top \tanh(W [q_i; k_j])$, where $[q; k]$ is the query followed by the key.
#
# - `weight` is `(A, E_q + E_k)`, `v` is `(A,)`.
# - Do not build all pairs: for 64 queries and 64 keys of size 1024 they take 32 MiB, and the last test allows 3 MiB. What does the matrix do to the two parts of a concatenation?
#
# By hand, with the $W$ of two blocks $[I \;\; \operatorname{diag}(1, -1)]$ and $v = (1, 2)$: the query gives $(1, 2)$, the first key $(3, 1)$, so the score is $\tanh 4 + 2 \tanh 3 = 2.989$; the second key gives $(0, -2)$, so it is $\tanh 1 + 2 \tanh 0 = 0.762$.


# %% nbgrader={"grade_id": "concat_score", "solution": true}
def concat_score(query, key, weight, v):
    ### BEGIN SOLUTION
    of_query, of_key = weight.split([query.shape[-1], key.shape[-1]], dim=1)
    hidden = (query @ of_query.T).unsqueeze(-2) + (key @ of_key.T).unsqueeze(-3)
    return torch.tanh(hidden) @ v
    ### END SOLUTION


# %% nbgrader={"grade_id": "concat_score-values", "grade": true, "points": 2}
# The example of the text, then vectors of two sizes.
probe = probes(concat_score=concat_score)
probe.equals(
    QUERY,
    KEYS,
    weight=torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]]),
    v=torch.tensor([1.0, 2.0]),
)
probe.equals(
    QUERY,
    torch.tensor([[0.5, 1.0, -1.0], [2.0, 0.0, 0.3]]),
    weight=torch.tensor([[0.1, 0.2, -0.3, 0.4, 0.5], [0.5, -0.4, 0.3, 0.2, 0.1]]),
    v=torch.tensor([1.0, 2.0]),
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 5), probe.normal(7, 3), weight=probe.normal(11, 8), v=probe.normal(11))
probe.gradient(
    probe.normal(2, 3),
    probe.normal(3, 2),
    weight=probe.normal(2, 5),
    v=probe.normal(2),
    wrt=(0, 1, "weight", "v"),
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "concat_score-batch", "grade": true, "points": 1}
# Several independent sets.
probe = probes(concat_score=concat_score)
probe.equals(
    torch.stack([QUERY, -QUERY]),
    torch.stack([KEYS, KEYS.flip(0)]),
    weight=torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]]),
    v=torch.tensor([1.0, 2.0]),
)
### BEGIN HIDDEN TESTS
probe.equals(
    probe.normal(3, 2, 2, 5), probe.normal(3, 2, 7, 3), weight=probe.normal(5, 8), v=probe.normal(5)
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "concat_score-memory", "grade": true, "points": 1}
# 64 queries, 64 keys, 8 hidden units: 128 KiB for the hidden layer, 32 MiB for all pairs.
probe = probes(concat_score=concat_score)
probe.memory(
    probe.normal(64, 1024),
    probe.normal(64, 1024),
    weight=probe.normal(8, 2048),
    v=probe.normal(8),
    below=3 * 2**20,
)

# %% [markdown]
# ## 4. The cosine with a sharpness
#
# `cosine_score(query, key, sharpness=1.0)` gives $s_{ij} = \beta \, \frac{q_i \cdot k_j}{\lVert q_i \rVert \lVert k_j \rVert}$.
#
# - `sharpness` is the number $\beta$.
# - The result does not depend on the lengths, even of very short vectors: do not add a constant to the denominator.
# - The scores of a zero vector are 0, not NaN.
#
# By hand: lengths $\sqrt 5$, $\sqrt{10}$ and $2$, so the cosines are $1/\sqrt{50} = 0.141$ and $4/\sqrt{20} = 0.894$.


# %% nbgrader={"grade_id": "cosine_score", "solution": true}
def cosine_score(query, key, sharpness=1.0):
    ### BEGIN SOLUTION
    lengths = query.norm(dim=-1)[..., :, None] * key.norm(dim=-1)[..., None, :]  # (..., L, S)
    dots = query @ key.transpose(-2, -1)
    return sharpness * torch.where(lengths > 0, dots / lengths, 0.0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "cosine_score-values", "grade": true, "points": 1}
# The plain cosine.
probe = probes(cosine_score=cosine_score)
probe.equals(QUERY, KEYS)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.normal(7, 5))
probe.equals(probe.normal(2, 3, 5), probe.normal(2, 7, 5))
probe.equals(1e-4 * (1 + probe.uniform(3, 5)), 1e-4 * (1 + probe.uniform(7, 5)))
probe.gradient(probe.normal(2, 3), probe.normal(4, 3), wrt=(0, 1))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "cosine_score-sharpness", "grade": true, "points": 1}
# A sharpness other than 1.
probe = probes(cosine_score=cosine_score)
probe.equals(QUERY, KEYS, sharpness=10.0)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.normal(7, 5), sharpness=3.5)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "cosine_score-zero_vector", "grade": true, "points": 1}
# A query or a key of zeros.
probe = probes(cosine_score=cosine_score)
probe.equals(torch.zeros(1, 2), KEYS)
probe.equals(QUERY, torch.zeros(2, 2))
### BEGIN HIDDEN TESTS
some = probe.normal(3, 5) * torch.tensor([[1.0], [0.0], [1.0]])
probe.equals(some, probe.normal(7, 5))
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# One query, eight keys, your four scores: the query equals key 2, and key 5 is three times the same vector. Which scores prefer the long key?

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

draw = torch.Generator().manual_seed(0)
key = torch.randn(8, 4, generator=draw)
query = key[2:3].clone()
key[5] = 3 * key[2]
eye, v = torch.eye(4), torch.ones(4)
found = {
    "scaled dot": scaled_dot_score(query, key),
    "general": general_score(query, key, eye / 2),
    "concat": concat_score(query, key, torch.cat([eye, eye], dim=1), v),
    "cosine": cosine_score(query, key, 5.0),
}
plt.imshow(torch.cat(list(found.values())).softmax(-1))
plt.yticks(range(4), list(found))
plt.xlabel("key")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 5. Luong's *location*
#
# `location_score(query, key, weight)` gives $s_{ij} = (W q_i)_j$: a score per position that does not depend on the key.
#
# - `weight` is `(S_max, E_q)`; $S \le S_{\max}$ keys use its first $S$ rows.
# - Only the number of rows of `key`, `(..., S, E_k)`, matters.
#
# By hand, with $W = \begin{pmatrix} 1 & 1 \\ 3 & -1 \\ 9 & 9 \end{pmatrix}$ and two keys: $1 + 2 = 3$ and $3 - 2 = 1$.


# %% nbgrader={"grade_id": "location_score", "solution": true}
def location_score(query, key, weight):
    ### BEGIN SOLUTION
    return query @ weight[: key.shape[-2]].T
    ### END SOLUTION


# %% nbgrader={"grade_id": "location_score-values", "grade": true, "points": 1}
# As many keys as rows.
probe = probes(location_score=location_score)
probe.equals(QUERY, KEYS, weight=torch.tensor([[1.0, 1.0], [3.0, -1.0]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.normal(7, 5), weight=probe.normal(7, 5))
probe.gradient(probe.normal(2, 3), probe.normal(4, 3), weight=probe.normal(4, 3), wrt=(0, "weight"))
probe.equals(probe.normal(2, 3, 5), probe.normal(2, 7, 3), weight=probe.normal(7, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "location_score-short_source", "grade": true, "points": 1}
# Fewer keys than rows.
probe = probes(location_score=location_score)
probe.equals(QUERY, KEYS, weight=torch.tensor([[1.0, 1.0], [3.0, -1.0], [9.0, 9.0]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.normal(4, 5), weight=probe.normal(11, 5))
probe.equals(probe.normal(2, 3, 5), probe.normal(2, 7, 3), weight=probe.normal(9, 5))
### END HIDDEN TESTS

# %% [markdown]
# ## 6. The window of local-m
#
# `local_m_weights(scores, lengths, half_width)` turns scores into weights: target step $t$ attends only to the positions $s$ with $|s - t| \le D$.
#
# - `scores` is `(B, L, S)`; row $t = 0, 1, \dots$ of its second axis is target step $t$. `lengths` is `(B,)`: row $b$ has `lengths[b]` real positions, then padding. `half_width` is $D$, an integer.
# - The softmax runs over the real positions of the window, so a row sums to one.
# - A step without a real position in its window gets zeros, not NaN.
# - It handles every finite score, however large.
#
# By hand: equal scores, $D = 1$, a sentence of 4 words. Step 0 has positions 0 and 1, with $0.5$ each; step 2 has 1, 2 and 3, with $1/3$ each; step 6 has no real position and gets zeros.


# %% nbgrader={"grade_id": "local_m_weights", "solution": true}
def local_m_weights(scores, lengths, half_width):
    ### BEGIN SOLUTION
    steps, places = torch.arange(scores.shape[1]), torch.arange(scores.shape[2])
    window = (places - steps[:, None]).abs() <= half_width  # (L, S)
    mask = window & (places < lengths[:, None, None])  # (B, L, S)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(~mask, 0.0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "local_m_weights-values", "grade": true, "points": 2}
# As many steps as positions, no padding.
uneven = torch.tensor([[1.0, 0.0, 2.0, 0.0, 3.0]]).expand(1, 5, 5)
probe = probes(local_m_weights=local_m_weights)
probe.equals(uneven, torch.tensor([5]), 1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 7, 7), torch.full((3,), 7), 2)
probe.equals(probe.normal(2, 9, 9), torch.full((2,), 9), 3)
probe.equals(200.0 + probe.integers(0, 3, 2, 5, 5).float(), torch.full((2,), 5), 1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "local_m_weights-padding", "grade": true, "points": 1}
# Sentences of several lengths; every window contains a real position.
probe = probes(local_m_weights=local_m_weights)
probe.equals(uneven[:, :3].expand(2, 3, 5), torch.tensor([3, 2]), 1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5, 7), torch.tensor([5, 7, 4]), 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "local_m_weights-beyond_the_end", "grade": true, "points": 1}
# More target steps than source positions.
probe = probes(local_m_weights=local_m_weights)
probe.equals(torch.zeros(1, 7, 5), torch.tensor([4]), 1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 9, 5), torch.tensor([5, 3]), 2)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. The weights of local-p
#
# `local_p_weights(scores, position, lengths, half_width)` gives weights around a centre $p$, which may be fractional:
#
# $$w_s = \operatorname{softmax}_{|s - p| \le D}(\text{scores})_s \cdot \exp\left(-\frac{(s - p)^2}{2 \sigma^2}\right), \qquad \sigma = \frac{D}{2}.$$
#
# - `scores` is `(B, L, S)`, `position` is `(B, L)` and contains $p$, `lengths` is `(B,)`, `half_width` is $D > 0$.
# - The softmax runs over the real positions inside the window. The product is *not* renormalised.
# - Every window of the tests contains a real position.
# - Gradients reach the scores and, through the Gaussian, the position.
#
# By hand: equal scores, $D = 2$, so $\sigma = 1$, $p = 2.5$ in a sentence of 6 words. The positions 1 to 4 get $1/4$ each from the softmax; 2 and 3 are $0.5$ away, so their weight is $0.25 \, e^{-0.125} = 0.221$; 1 and 4 are $1.5$ away: $0.25 \, e^{-1.125} = 0.081$.


# %% nbgrader={"grade_id": "local_p_weights", "solution": true}
def local_p_weights(scores, position, lengths, half_width):
    ### BEGIN SOLUTION
    places = torch.arange(scores.shape[2])
    distance = places - position[:, :, None]  # (B, L, S)
    mask = (distance.abs() <= half_width) & (places < lengths[:, None, None])
    inside = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    sigma = half_width / 2
    return inside * torch.exp(-(distance**2) / (2 * sigma**2))
    ### END SOLUTION


# %% nbgrader={"grade_id": "local_p_weights-values", "grade": true, "points": 2}
# A centre on a position, no padding.
probe = probes(local_p_weights=local_p_weights)
uneven_p = torch.tensor([[[1.0, 0.0, 2.0, 0.0, 1.0, 0.5, 2.0, 1.0, 0.0]]])
probe.equals(uneven_p, torch.tensor([[4.0]]), torch.tensor([9]), 3.0)
### BEGIN HIDDEN TESTS
centres = probe.integers(0, 9, 2, 5).float()
probe.equals(probe.normal(2, 5, 9), centres, torch.tensor([9, 9]), 3.0)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "local_p_weights-between_words", "grade": true, "points": 1}
# A centre between two positions.
probe = probes(local_p_weights=local_p_weights)
probe.equals(torch.zeros(1, 1, 6), torch.tensor([[2.5]]), torch.tensor([6]), 2.0)
probe.equals(uneven_p, torch.tensor([[3.3]]), torch.tensor([9]), 3.0)
### BEGIN HIDDEN TESTS
probe.equals(
    probe.normal(2, 3, 9), probe.uniform(2, 3, low=0.5, high=8.0), torch.tensor([9, 9]), 2.7
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "local_p_weights-padding", "grade": true, "points": 1}
# Windows that reach into the padding.
probe = probes(local_p_weights=local_p_weights)
probe.equals(uneven_p, torch.tensor([[2.4]]), torch.tensor([4]), 3.0)
### BEGIN HIDDEN TESTS
probe.equals(
    probe.normal(2, 3, 9), probe.uniform(2, 3, low=2.2, high=3.8), torch.tensor([4, 5]), 2.6
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "local_p_weights-gradient", "grade": true, "points": 1}
# Gradients of the scores and of the centre.
probe = probes(local_p_weights=local_p_weights)
probe.gradient(uneven_p, torch.tensor([[3.3]]), torch.tensor([9]), 3.0, wrt=(0, 1))
### BEGIN HIDDEN TESTS
probe.gradient(
    probe.normal(2, 3, 9),
    probe.uniform(2, 3, low=0.6, high=7.9),
    torch.tensor([9, 9]),
    2.7,
    wrt=(0, 1),
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Input feeding
#
# `unroll_fed(cell, look, words, state)` runs Luong's decoder over known target tokens:
#
# $$h_t = \text{cell}([y_t; \tilde h_{t-1}],\; h_{t-1}), \qquad \tilde h_t = \text{look}(h_t), \qquad \tilde h_0 = 0.$$
#
# - `cell(input, state)` and `look(state)` are given; both process all rows and return `(B, H)`.
# - `words` is `(B, L, D)`, the embedded tokens that the decoder reads; `state` is `(B, H)`, the initial state.
# - The input of the cell is the embedded token followed by the last attentional vector $\tilde h_{t-1}$, `(B, D + H)`. At the first step that vector is zero.
# - The result is `(B, L, H)`: the attentional vectors $\tilde h_1 \dots \tilde h_L$.
# - Gradients pass through the whole loop, including the fed vector.


# %% nbgrader={"grade_id": "unroll_fed", "solution": true}
def unroll_fed(cell, look, words, state):
    ### BEGIN SOLUTION
    fed, vectors = torch.zeros_like(state), []
    for t in range(words.shape[1]):
        state = cell(torch.cat([words[:, t], fed], dim=-1), state)
        fed = look(state)
        vectors.append(fed)
    return torch.stack(vectors, dim=1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "unroll_fed-first_step", "grade": true, "points": 1}
# One step: the fed vector is zero.
### BEGIN HIDDEN TESTS
def right_unroll_fed(cell, look, words, state):
    fed, vectors = torch.zeros_like(state), words.new_empty(*words.shape[:2], state.shape[1])
    for t, word in enumerate(words.unbind(1)):
        entered = (
            word @ cell.weight_input[: word.shape[1]] + fed @ cell.weight_input[word.shape[1] :]
        )
        state = torch.tanh(entered + state @ cell.weight_state)
        fed = vectors[:, t] = torch.tanh(state @ look.weight + look.shift)
    return vectors


### END HIDDEN TESTS
probe = probes(unroll_fed=unroll_fed)
half = mixing_cell(torch.tensor([[1.0], [0.5]]), torch.tensor([[0.5]]))
twice = looking(torch.tensor([[2.0]]), torch.tensor([0.1]))
# tanh(1 + 0.5 * 0 + 0.5 * 0.4) = 0.8337, tanh(2 * 0.8337 + 0.1) = 0.9433
probe.gives(
    torch.tensor([[[0.9433138]]]), half, twice, torch.tensor([[[1.0]]]), torch.tensor([[0.4]])
)
### BEGIN HIDDEN TESTS
probe = probes(unroll_fed=unroll_fed, oracle=right_unroll_fed)
cell = mixing_cell(probe.normal(8, 5), probe.normal(5, 5))
look = looking(probe.normal(5, 5), probe.normal(5))
probe.equals(cell, look, probe.normal(3, 1, 3), probe.normal(3, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "unroll_fed-later_steps", "grade": true, "points": 2}
# Several steps: each one gets the last attentional vector.
probe = probes(unroll_fed=unroll_fed)
probe.gives(
    torch.tensor([[[0.9433138], [0.9344837], [0.4035010]]]),
    half,
    twice,
    torch.tensor([[[1.0], [0.2], [-0.7]]]),
    torch.tensor([[0.4]]),
)
### BEGIN HIDDEN TESTS
probe = probes(unroll_fed=unroll_fed, oracle=right_unroll_fed)
probe.equals(half, twice, torch.tensor([[[1.0], [0.2], [-0.7]]]), torch.tensor([[0.4]]))
probe.gradient(half, twice, torch.tensor([[[1.0], [0.2], [-0.7]]]), torch.tensor([[0.4]]), wrt=2)
cell = mixing_cell(probe.normal(8, 5, std=0.5), probe.normal(5, 5, std=0.5))
look = looking(probe.normal(5, 5), probe.normal(5))
probe.equals(cell, look, probe.normal(3, 4, 3), probe.normal(3, 5))
probe.equals(cell, look, probe.normal(2, 6, 3), probe.normal(2, 5))
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Repair: masked attention
#
# `broken_attention(query, key, value, mask)` should be scaled dot-product attention over the positions where `mask` is true: `query` `(B, L, E)`, `key` `(B, S, E)`, `value` `(B, S, E_v)`, `mask` `(B, S)`; the result is `(B, L, E_v)`.
# The mask is true for at least one position of every row.
#
# It has two faults. Find them and write `fixed_attention`.


# %% nbgrader={"grade_id": "broken_attention", "locked": true}
def broken_attention(query, key, value, mask):
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-2])
    weights = scores.softmax(dim=-1) * mask[:, None]
    return weights @ value


# %% nbgrader={"grade_id": "fixed_attention", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "multi_head_attention_forward", "aten::*scaled_dot_product*", "aten::*multi_head_attention*"]}
def fixed_attention(query, key, value, mask):
    ### BEGIN SOLUTION
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
    return weights @ value
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_attention-everything_counts", "grade": true, "points": 1}
# Nothing is masked, which hides one of the two faults.
probe = probes(fixed_attention=fixed_attention)
three = torch.cat([KEYS, torch.tensor([[1.0, 1.0]])])[None]
all_of_them = torch.ones(1, 3, dtype=torch.bool)
probe.equals(QUERY[None], three, three, all_of_them)
### BEGIN HIDDEN TESTS
probe.equals(
    probe.normal(2, 3, 5),
    probe.normal(2, 7, 5),
    probe.normal(2, 7, 4),
    torch.ones(2, 7, dtype=torch.bool),
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_attention-padding", "grade": true, "points": 2}
# The last positions of some rows are padding.
probe = probes(fixed_attention=fixed_attention)
probe.equals(QUERY[None], three, three, torch.tensor([[True, True, False]]))
### BEGIN HIDDEN TESTS
mask = torch.arange(7) < torch.tensor([[4], [6]])
probe.equals(probe.normal(2, 3, 5), probe.normal(2, 7, 5), probe.normal(2, 7, 4), mask)
### END HIDDEN TESTS

# %% [markdown]
# ## 10. Write the test
#
# `check_general(candidate)` takes a `general_score(query, key, weight)` and returns `True` if it keeps the contract of exercise 2, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Some inputs *hide* a mistake: a symmetric matrix, one query, one row in the batch. Compute the right value yourself.


# %% nbgrader={"grade_id": "check_general", "solution": true}
def check_general(candidate):
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(3)
    for batch, queries, keys, size_q, size_k in [
        ((), 3, 3, 4, 4),
        ((2,), 3, 5, 4, 4),
        ((2,), 2, 5, 3, 4),
    ]:
        query = 2 * torch.randn(*batch, queries, size_q, generator=generator)
        key = 2 * torch.randn(*batch, keys, size_k, generator=generator)
        weight = torch.randn(size_q, size_k, generator=generator)
        expected = torch.einsum("...le,ef,...sf->...ls", query, weight, key)
        try:
            got = candidate(query, key, weight)
        except Exception:
            return False
        if got.shape != expected.shape or not torch.allclose(got, expected, atol=1e-4):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_general-plain", "grade": true, "points": 1}
# A right answer, and two that are clearly wrong.
def by_reference(query, key, weight):
    return from_numpy(reference.general_score)(query, key, weight=weight)


probe = probes(check_general=check_general)
probe.judges(
    right=[by_reference],
    wrong={
        "always 0": lambda query, key, weight: 0 * by_reference(query, key, weight),
        "the sign is inverted": lambda query, key, weight: -by_reference(query, key, weight),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_general-mutants", "grade": true, "points": 6}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_general=check_general)
probe.judges(
    right=[by_reference],
    wrong={"always 0": lambda query, key, weight: 0 * by_reference(query, key, weight)},
    points=6,
)


### BEGIN HIDDEN TESTS
def keys_first(query, key, weight):
    return query @ (key @ weight.T).transpose(-2, -1)


def transposed(query, key, weight):
    return by_reference(query, key, weight.T if weight.shape[0] == weight.shape[1] else weight)


def symmetric(query, key, weight):
    return (by_reference(query, key, weight) + transposed(query, key, weight)) / 2


def without_matrix(query, key, weight):
    if query.shape[-1] == key.shape[-1]:
        return query @ key.transpose(-2, -1)
    return by_reference(query, key, weight)


def first_row_only(query, key, weight):
    return by_reference(query, key.reshape(-1, *key.shape[-2:])[0].expand_as(key), weight)


def keys_by_queries(query, key, weight):
    scores = by_reference(query, key, weight)
    square = scores.shape[-1] == scores.shape[-2]
    return scores.transpose(-2, -1) if square else scores


def scaled(query, key, weight):
    return by_reference(query, key, weight) / math.sqrt(key.shape[-1])


probe.judges(
    right=[by_reference, keys_first],
    wrong={
        "the matrix is transposed": transposed,
        "the matrix is made symmetric": symmetric,
        "the matrix is ignored for equal sizes": without_matrix,
        "the keys of the first row serve all rows": first_row_only,
        "as many queries as keys: rows and columns exchanged": keys_by_queries,
        "scaled by the size of the keys": scaled,
    },
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 11. Report
#
# Write about 250 words; each part earns two points.
#
# 1. A colleague claims: "Luong's concat is additive attention." State under which condition both give the same numbers, and how the paper's experiments with concat differed.
# 2. On the task of the chapter, or one of your own, compare two scores or windows by task accuracy *and* by alignment error rate, with a control (an untrained model, or uniform weights). Do the two measures agree? Which would you report, and for which purpose?
# 3. When would you still choose the additive score today, and when a window?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. Cut $W$ into the columns of the query and of the key: $W[q; k] = W_q q + W_k k$, so concat equals the additive score without its bias.
# Luong's published runs with concat fixed the key part of the matrix to the identity (footnote in section 4), so they trained a smaller model. Their "concat is worse" does not apply to additive attention.
# 2. With *general*, sentences are right and the error rate is near 0 (0.1 with another seed); the untrained control has 0.86.
# With Bahdanau's decoder sentences are right as well and the error rate is a quarter: its articles attend to the noun that determines their form, which is no mistake for the task.
# For a claim about translation report accuracy; for a claim about the meaning of the weights report the error rate.
# 3. Additive: vectors of different size and kind, small sizes and short sources, where its hidden layer per pair is cheap.
# A window: long sources whose order is close to the target's (speech, text normalisation), or where all pairs cost too much; not where the order is free.
#
# **Points**, one for each:
#
# - (1a) The matrix cut into two parts, the bias named.
# - (1b) How the published runs differed.
# - (2a) Both measures with a control.
# - (2b) Which measure supports which claim.
# - (3a) A case for the additive score, with its reason.
# - (3b) A case for a window, with its reason.
