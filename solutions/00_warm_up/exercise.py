# %% [markdown]
# # Exercises: warm-up
#
# Write each function in its own cell, then run the test cells below it.
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import math

import torch

from attn_course.probes import load_oracles, properties

oracles, probes = load_oracles("00_warm_up")

# %% [markdown]
# ## 1. A softmax that cannot overflow
#
# `stable_softmax(scores, dim=-1)` turns scores into weights along the axis `dim`:
# $w_i = e^{s_i} / \sum_j e^{s_j}$.
#
# - `scores` is a floating tensor of any shape, `dim` any of its axes, counted from the front (`0`, `1`) or from the back (`-1`).
# - The result has the shape and the dtype of `scores`.
# - It handles every finite score, however large: the weights of `[1000, 0]` are `[1, 0]`.
#   A score of `-inf` gets weight 0 if another score of its row is finite.
# - `scores` is not changed, and gradients reach it.
# - Use `exp` and sums: `torch.softmax` and its relatives are not allowed.
#
# By hand: the scores `[ln 1, ln 3]` have exponentials 1 and 3, so the weights are `[0.25, 0.75]`.
#
# <details><summary>Hint</summary>
#
# Adding the same number to every score of a row does not change the weights.
# Which number prevents overflow?
#
# </details>


# %% nbgrader={"grade_id": "stable_softmax", "solution": true} attn_course={"forbidden": ["softmax", "log_softmax", "softmin", "aten::*softmax*", "aten::*scaled_dot_product*", "import scipy"]}
def stable_softmax(scores, dim=-1):
    ### BEGIN SOLUTION
    shifted = scores - scores.amax(dim, keepdim=True)
    weights = shifted.exp()
    return weights / weights.sum(dim, keepdim=True)
    ### END SOLUTION


# %% nbgrader={"grade_id": "stable_softmax-values", "grade": true, "points": 2}
# The example by hand, and a row of three.
probe = probes(stable_softmax=stable_softmax)
probe.equals(torch.tensor([1.0, 3.0]).log(), dim=0)
probe.equals(torch.tensor([1.0, 2.0, 3.0]), dim=0)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(5))
probe.equals(probe.normal(7, dtype=torch.float64, std=3.0))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stable_softmax-axis", "grade": true, "points": 1}
# Any axis of any shape, counted from either end.
probe = probes(stable_softmax=stable_softmax)
scores = torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, -1.0]])
probe.equals(scores, dim=0)
probe.equals(scores, dim=1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 3), dim=-2)
probe.equals(probe.normal(2, 3, 5), dim=1)
probe.equals(probe.normal(2, 3, 5), dim=-3)
probe.equals(probe.normal(5, 3, 2).transpose(0, 2), dim=0)
probe.equals(probe.normal(2, 3, 5, 7))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stable_softmax-large_scores", "grade": true, "points": 2}
# Scores whose exponential does not fit into a float, also with the rows on different levels.
probe = probes(stable_softmax=stable_softmax)
probe.equals(torch.tensor([1000.0, 0.0]), dim=0)
probe.equals(torch.tensor([[100.0, 99.0], [-100.0, -101.0]]), dim=1)
### BEGIN HIDDEN TESTS
# float32 only up to about 120: beyond, rounding alone would fail right answers
probe.equals(105.0 + probe.normal(3, 5), dim=0)
levels = torch.tensor([[110.0], [0.0], [-110.0]])
probe.equals(levels + probe.normal(3, 5), dim=-1)
probe.equals(probe.normal(4, 3, dtype=torch.float64, std=2000.0), dim=-1)
### END HIDDEN TESTS


# %% nbgrader={"grade_id": "stable_softmax-minus_infinity", "grade": true, "points": 1}
# A score of minus infinity gets weight zero, exactly.
def where_exactly_zero(softmax, scores, dim):
    return softmax(scores, dim=dim) == 0


probe = probes(stable_softmax=stable_softmax)
probe.equals(torch.tensor([0.0, float("-inf"), 0.0]), dim=0)
probe.equals(torch.tensor([0.0, float("-inf"), 0.0]), dim=0, via=where_exactly_zero)
### BEGIN HIDDEN TESTS
scores = probe.normal(3, 5).masked_fill(~probe.mask(3, 5), float("-inf"))
probe.equals(scores, dim=-1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "stable_softmax-gradient", "grade": true, "points": 1}
# Gradients.
probe = probes(stable_softmax=stable_softmax)
probe.gradient(torch.tensor([1.0, 2.0, 3.0]), dim=0)
### BEGIN HIDDEN TESTS
probe.gradient(probe.normal(3, 5), dim=-1)
probe.gradient(probe.normal(3, 5), dim=0)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. A softmax over allowed positions
#
# `masked_softmax(scores, attn_mask, dim=-1)` is a softmax over the allowed positions only.
#
# - `attn_mask` is a boolean tensor, True = may attend; its shape is that of `scores`, or broadcasts to it.
# - A masked position gets weight exactly 0. Its score, however large, has no influence on the other weights.
# - A row in which every position is masked gets weights 0, not NaN, and gradient 0.
# - Otherwise the contract of `stable_softmax` applies: shape, dtype, large scores, any `dim`, unchanged inputs, gradients.
#
# By hand: the scores `[ln 1, ln 3, 5]` with the mask `[True, True, False]` give `[0.25, 0.75, 0]`.
#
# <details><summary>Hint</summary>
#
# Which score has an exponential of exactly zero?
# Give it to the masked positions *before* anything else. Then check a row in which every position is masked.
#
# </details>


# %% nbgrader={"grade_id": "masked_softmax", "solution": true}
def masked_softmax(scores, attn_mask, dim=-1):
    ### BEGIN SOLUTION
    allowed = scores.masked_fill(~attn_mask, -torch.inf)
    largest = allowed.amax(dim, keepdim=True)
    weights = (allowed - largest.masked_fill(largest == -torch.inf, 0.0)).exp()
    total = weights.sum(dim, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "masked_softmax-values", "grade": true, "points": 2}
# The example by hand; then a mask for each row.
probe = probes(masked_softmax=masked_softmax)
probe.equals(torch.tensor([1.0, 3.0, 148.413]).log(), torch.tensor([True, True, False]), dim=0)
scores = torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, -1.0]])
probe.equals(scores, torch.tensor([[True, False, True], [False, True, True]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5), probe.mask(3, 5))
probe.equals(probe.normal(2, 3, 5, dtype=torch.float64), probe.mask(2, 3, 5))
probe.equals(probe.normal(3, 5), torch.ones(3, 5, dtype=torch.bool))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "masked_softmax-no_influence", "grade": true, "points": 1}
# A masked score has weight exactly 0 and changes no other weight.
probe = probes(masked_softmax=masked_softmax)
mask = torch.tensor([True, False, True])
probe.holds(properties.zero_where_masked(mask=1), torch.tensor([1.0, 2.0, 3.0]), mask)
probe.equals(torch.tensor([1.0, 10000.0, 3.0]), mask)
### BEGIN HIDDEN TESTS
mask = probe.mask(3, 7)
scores = probe.normal(3, 7)
probe.holds(properties.zero_where_masked(mask=1), scores, mask)
probe.equals(torch.where(mask, scores, 1000.0 + scores), mask)
probe.equals(torch.where(mask, scores, -1000.0 + scores), mask)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "masked_softmax-shapes", "grade": true, "points": 1}
# One mask for many rows, and any axis.
probe = probes(masked_softmax=masked_softmax)
scores = torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, -1.0]])
probe.equals(scores, torch.tensor([True, True, False]))
probe.equals(scores, torch.tensor([[True, False, True], [True, True, False]]), dim=0)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 5), probe.mask(3, 5))
probe.equals(probe.normal(2, 3, 5), probe.mask(2, 1, 5))
probe.equals(probe.normal(2, 3, 5), probe.mask(2, 5, 3).transpose(1, 2), dim=1)
probe.equals(probe.normal(3, 3).t(), probe.mask(3, 3).t(), dim=-2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "masked_softmax-large_scores", "grade": true, "points": 1}
# Large scores at allowed positions.
probe = probes(masked_softmax=masked_softmax)
probe.equals(torch.tensor([1000.0, 0.0, 0.0]), torch.tensor([True, True, False]))
### BEGIN HIDDEN TESTS
levels = torch.tensor([[110.0], [0.0], [-110.0]])
probe.equals(levels + probe.normal(3, 5), probe.mask(3, 5))
mask = probe.mask(3, 5)
scores = probe.normal(3, 5, dtype=torch.float64, std=2000.0)
probe.equals(torch.where(mask, scores, scores - 20000.0), mask)
probe.equals(probe.normal(3, 5, dtype=torch.float64) - 200000.0, mask)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "masked_softmax-empty_rows", "grade": true, "points": 1}
# A row in which every position is masked.
probe = probes(masked_softmax=masked_softmax)
mask = torch.tensor([[True, True], [False, False]])
probe.equals(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), mask)
### BEGIN HIDDEN TESTS
mask = torch.ones(3, 5, dtype=torch.bool)
mask[1] = False
probe.equals(probe.normal(3, 5), mask)
probe.equals(probe.normal(2, 3), torch.zeros(2, 3, dtype=torch.bool))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "masked_softmax-gradient", "grade": true, "points": 1}
# Gradients: right at allowed positions, exactly 0 at masked ones and in empty rows.
probe = probes(masked_softmax=masked_softmax)
mask = torch.tensor([[True, True, False], [True, False, True]])
probe.gradient(torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, -1.0]]), mask)
### BEGIN HIDDEN TESTS
mask = probe.mask(3, 5)
probe.gradient(probe.normal(3, 5), mask)
mask[1] = False
probe.gradient(probe.normal(3, 5), mask)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. A weighted mean
#
# `weighted_mean(weights, value)` returns $\frac{\sum_s w_s\, v_s}{\sum_s w_s}$: the mean of vectors, each counted by its weight.
#
# - `weights` has shape `(..., S)` and is not negative; `value` has shape `(..., S, E)`; the result has shape `(..., E)`.
#   The leading axes broadcast, so one set of `S` vectors can serve many rows of weights.
# - The weights need not sum to one: twice the weights give the same mean.
# - Where all weights are 0 the result is 0, not NaN, and the gradient of `value` is 0.
# - The inputs are not changed, and gradients reach both.
#
# By hand: the vectors `[1, 0]` and `[5, 8]` with weights 3 and 1 have the mean `[2, 2]`.


# %% nbgrader={"grade_id": "weighted_mean", "solution": true}
def weighted_mean(weights, value):
    ### BEGIN SOLUTION
    total = weights.sum(-1, keepdim=True)
    summed = (weights[..., None] * value).sum(-2)
    return summed / total.masked_fill(total == 0, 1.0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "weighted_mean-values", "grade": true, "points": 1}
# Weights that sum to one, as after a softmax.
probe = probes(weighted_mean=weighted_mean)
probe.equals(torch.tensor([0.75, 0.25]), torch.tensor([[1.0, 0.0], [5.0, 8.0]]))
### BEGIN HIDDEN TESTS
probe.equals(torch.softmax(probe.normal(5), 0), probe.normal(5, 3))
probe.equals(
    torch.softmax(probe.normal(3, dtype=torch.float64), 0), probe.normal(3, 7, dtype=torch.float64)
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "weighted_mean-any_weights", "grade": true, "points": 1}
# Weights that sum to more than one (the example by hand), or to less.
probe = probes(weighted_mean=weighted_mean)
probe.equals(torch.tensor([3.0, 1.0]), torch.tensor([[1.0, 0.0], [5.0, 8.0]]))
probe.equals(torch.tensor([0.3, 0.1]), torch.tensor([[1.0, 0.0], [5.0, 8.0]]))
### BEGIN HIDDEN TESTS
probe.equals(0.1 + probe.uniform(5), probe.normal(5, 3))
probe.equals(0.1 + 7.0 * probe.uniform(5), probe.normal(5, 3))
probe.equals(0.1 * (0.1 + probe.uniform(5)), probe.normal(5, 3))
probe.equals(0.001 * (0.5 + probe.uniform(5)), probe.normal(5, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "weighted_mean-shapes", "grade": true, "points": 1}
# Many rows of weights at once, each with its own vectors or all with the same ones.
probe = probes(weighted_mean=weighted_mean)
weights = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]])
probe.equals(weights, torch.tensor([[1.0, 0.0], [5.0, 8.0]]))
### BEGIN HIDDEN TESTS
probe.equals(torch.softmax(probe.normal(3, 5), -1), probe.normal(3, 5, 7))
probe.equals(torch.softmax(probe.normal(2, 3, 5), -1), probe.normal(2, 1, 5, 7))
probe.equals(torch.softmax(probe.normal(3, 3), -1), probe.normal(3, 3))
probe.equals(torch.softmax(probe.normal(5), -1), probe.normal(2, 5, 3))
probe.equals(torch.softmax(probe.normal(1, 5), -1), probe.normal(5, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "weighted_mean-zero_weights", "grade": true, "points": 1}
# A row whose weights are all 0.
probe = probes(weighted_mean=weighted_mean)
probe.equals(torch.tensor([0.0, 0.0]), torch.tensor([[1.0, 0.0], [5.0, 8.0]]))
### BEGIN HIDDEN TESTS
weights = torch.softmax(probe.normal(3, 5), -1)
weights[2] = 0.0
probe.equals(weights, probe.normal(5, 7))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "weighted_mean-gradient", "grade": true, "points": 1}
# Gradients with respect to the weights and to the values.
probe = probes(weighted_mean=weighted_mean)
probe.gradient(torch.tensor([3.0, 1.0]), torch.tensor([[1.0, 0.0], [5.0, 8.0]]), wrt=(0, 1))
### BEGIN HIDDEN TESTS
probe.gradient(0.4 + probe.uniform(2, 3), probe.normal(2, 3, 5), wrt=(0, 1))
weights = 0.4 + probe.uniform(2, 3)
weights[1] = 0.0
probe.gradient(weights, probe.normal(2, 3, 5), wrt=(1,))
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# Your functions find the sense of a word in its context: each *bank* takes its meaning from the words before it, so the two get different vectors.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

names = ["river", "bank", "money", "money", "bank"]
meaning = {"river": [3.0, 0.0], "money": [0.0, 3.0], "bank": [1.0, 1.0]}  # water, finance
words = torch.tensor([meaning[name] for name in names])
past = torch.ones(5, 5, dtype=torch.bool).tril()
weights = masked_softmax(words @ words.T, past)
for name, before, after in zip(names, words, weighted_mean(weights, words), strict=True):
    print(name, before.tolist(), "->", [round(x, 2) for x in after.tolist()])
print("without a mask:", stable_softmax(words @ words[1]))
plt.imshow(weights)
plt.xticks(range(5), names)
plt.yticks(range(5), names)
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. The logarithm of a sum of exponentials
#
# `logsumexp(scores, dim=-1)` returns $\log \sum_j e^{s_j}$ along the axis `dim`: a smooth maximum, and the logarithm of the divisor of a softmax.
#
# - Only the axis `dim` disappears: scores of shape `(2, 3, 5)` with `dim=1` give a result of shape `(2, 5)`, in the dtype of `scores`.
# - It handles every finite score, however large: `[1000, 1000]` gives $1000 + \ln 2$.
# - A score of `-inf` adds nothing; a row of only `-inf` gives `-inf`, not NaN.
# - `scores` is not changed, and gradients reach it.
# - `torch.logsumexp` is not allowed.
#
# By hand: `[ln 1, ln 3]` gives $\ln 4$.
#
# <details><summary>Hint</summary>
#
# The method of the softmax works here, too, but now you must add back what you subtracted.
# For a row of only `-inf`: what is `-inf - (-inf)`?
#
# </details>


# %% nbgrader={"grade_id": "logsumexp", "solution": true} attn_course={"forbidden": ["logsumexp", "aten::*logsumexp*", "import scipy"]}
def logsumexp(scores, dim=-1):
    ### BEGIN SOLUTION
    largest = scores.amax(dim, keepdim=True)
    largest = largest.masked_fill(largest == -torch.inf, 0.0)
    return (scores - largest).exp().sum(dim).log() + largest.squeeze(dim)
    ### END SOLUTION


# %% nbgrader={"grade_id": "logsumexp-values", "grade": true, "points": 1}
# The example by hand, and a row of three.
probe = probes(logsumexp=logsumexp)
probe.equals(torch.tensor([1.0, 3.0]).log(), dim=0)
probe.equals(torch.tensor([1.0, 2.0, 3.0]), dim=0)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(5))
probe.equals(probe.normal(7, dtype=torch.float64, std=3.0))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "logsumexp-axis", "grade": true, "points": 1}
# The summed axis disappears, whichever it is.
probe = probes(logsumexp=logsumexp)
scores = torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, -1.0]])
probe.equals(scores, dim=0)
probe.equals(scores, dim=1)
probe.equals(scores[:1], dim=1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 3), dim=-2)
probe.equals(probe.normal(2, 3, 5), dim=1)
probe.equals(probe.normal(5, 3, 2).transpose(0, 2), dim=-3)
probe.equals(probe.normal(2, 3, 5, 7))
probe.equals(probe.normal(1, 3, 1), dim=1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "logsumexp-large_scores", "grade": true, "points": 1}
# Scores whose exponential does not fit into a float, also with the rows on different levels.
probe = probes(logsumexp=logsumexp)
probe.equals(torch.tensor([1000.0, 1000.0]), dim=0)
probe.equals(torch.tensor([[1000.0, 999.0], [-1000.0, -1001.0]]), dim=1)
### BEGIN HIDDEN TESTS
probe.equals(120.0 + probe.normal(3, 5), dim=0)
probe.equals(probe.normal(4, 3, dtype=torch.float64, std=2000.0), dim=-1)
levels = torch.tensor([[3000.0], [0.0], [-3000.0]], dtype=torch.float64)
probe.equals(levels + probe.normal(3, 5, dtype=torch.float64), dim=-1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "logsumexp-minus_infinity", "grade": true, "points": 1}
# Minus infinity adds nothing; a row of it gives minus infinity.
probe = probes(logsumexp=logsumexp)
probe.equals(torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf]]), dim=1)
### BEGIN HIDDEN TESTS
scores = probe.normal(3, 5).masked_fill(~probe.mask(3, 5), -torch.inf)
scores[1] = -torch.inf
probe.equals(scores, dim=-1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "logsumexp-gradient", "grade": true, "points": 1}
# Gradients.
probe = probes(logsumexp=logsumexp)
probe.gradient(torch.tensor([[1.0, 2.0, 3.0], [0.0, 2.0, -1.0]]), dim=1)
### BEGIN HIDDEN TESTS
probe.gradient(probe.normal(3, 5), dim=0)
probe.gradient(probe.normal(2, 3, 2), dim=1)
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Cosine similarity
#
# `cosine_similarity(a, b)` returns the cosine of the angle between vectors, over the last axis: $\frac{a \cdot b}{\lVert a \rVert\, \lVert b \rVert}$.
#
# - `a` and `b` are floating tensors whose last axes agree; the other axes broadcast.
#   Shapes `(3, 1, 5)` and `(7, 5)` give a result of shape `(3, 7)`.
# - The result does not depend on the lengths of the vectors.
# - The cosine with a zero vector is 0, not NaN, and the other vector gets gradient 0 from it.
# - The inputs are not changed, and gradients reach both.
#
# By hand: `[3, 4]` and `[4, 3]` have dot product 24 and lengths 5 and 5, so the cosine is 0.96.


# %% nbgrader={"grade_id": "cosine_similarity", "solution": true}
def cosine_similarity(a, b):
    ### BEGIN SOLUTION
    dot = (a * b).sum(-1)
    lengths = a.norm(dim=-1) * b.norm(dim=-1)
    return dot / lengths.masked_fill(lengths == 0, 1.0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "cosine_similarity-values", "grade": true, "points": 1}
# The example by hand, opposite vectors, and short vectors against long ones.
probe = probes(cosine_similarity=cosine_similarity)
probe.equals(torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0]))
probe.equals(torch.tensor([1.0, 2.0]), torch.tensor([-3.0, -6.0]))
probe.equals(torch.tensor([0.03, 0.04]), torch.tensor([0.4, 0.3]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(7), probe.normal(7))
probe.equals(
    probe.normal(5, dtype=torch.float64, mean=2.0), 100.0 * probe.normal(5, dtype=torch.float64)
)
probe.equals(0.05 * probe.normal(5), 0.05 * probe.normal(5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "cosine_similarity-shapes", "grade": true, "points": 1}
# Many vectors at once: row by row, and every row with every other row.
probe = probes(cosine_similarity=cosine_similarity)
a = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
b = torch.tensor([[4.0, 3.0], [1.0, 1.0]])
probe.equals(a, b)
probe.equals(a[:, None], b)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(5), probe.normal(3, 5))
probe.equals(probe.normal(3, 1, 5), probe.normal(7, 5))
probe.equals(probe.normal(2, 3, 5), probe.normal(2, 3, 5))
probe.equals(probe.normal(5, 3).t(), probe.normal(5, 3).t())
probe.equals(0.05 * probe.normal(1, 5), probe.normal(5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "cosine_similarity-zero_vector", "grade": true, "points": 1}
# A zero vector, on either side.
probe = probes(cosine_similarity=cosine_similarity)
probe.equals(torch.tensor([0.0, 0.0]), torch.tensor([4.0, 3.0]))
### BEGIN HIDDEN TESTS
vectors = 1.0 + probe.uniform(3, 5)
vectors[1] = 0.0
probe.equals(1.0 + probe.uniform(3, 5), vectors)
probe.equals(vectors, vectors)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "cosine_similarity-gradient", "grade": true, "points": 1}
# Gradients with respect to both arguments.
probe = probes(cosine_similarity=cosine_similarity)
probe.gradient(torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0]), wrt=(0, 1))
### BEGIN HIDDEN TESTS
probe.gradient(1.0 + probe.uniform(3, 5), 1.0 + probe.uniform(3, 5), wrt=(0, 1))
vectors = 1.0 + probe.uniform(3, 5)
vectors[1] = 0.0
probe.gradient(vectors, 1.0 + probe.uniform(3, 5), wrt=(1,))
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Fix this: a word in its context
#
# `broken_word_in_context(words)` below should replace each word of a sentence by a weighted mean of the whole sentence. A word has a larger weight the more similar it is to the replaced word:
#
# - `words` has shape `(L, E)`, one row per word; the result has the same shape.
# - Row $i$ of the result is the mean of the rows of `words` with weights $\mathrm{softmax}_j(\cos(w_i, w_j))$, which sum to one over $j$.
# - A zero vector has cosine 0 with every word.
# - `words` is not changed.
#
# It runs, and the shape is right, but it has three faults.
# Write `fixed_word_in_context` without them.
#
# By hand: two orthogonal words have cosine 1 with themselves and 0 with each other, so each gives its own vector the weight $e / (e + 1) \approx 0.731$.


# %% nbgrader={"grade_id": "broken", "locked": true}
def broken_word_in_context(words):
    lengths = words.norm(dim=-1, keepdim=True)
    words /= torch.where(lengths == 0, 1.0, lengths)
    scores = words @ words.T
    weights = torch.softmax(scores, dim=0)
    return weights @ words


# %% nbgrader={"grade_id": "fixed_word_in_context", "solution": true}
def fixed_word_in_context(words):
    ### BEGIN SOLUTION
    lengths = words.norm(dim=-1, keepdim=True)
    units = words / torch.where(lengths == 0, 1.0, lengths)
    weights = torch.softmax(units @ units.T, dim=-1)
    return weights @ words
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_word_in_context-example", "grade": true, "points": 1}
# The example by hand, with words of length 1 and of length 2.
probe = probes(fixed_word_in_context=fixed_word_in_context)
probe.equals(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))

# %% nbgrader={"grade_id": "fixed_word_in_context-sentences", "grade": true, "points": 2}
# Whole sentences: two words in the same direction, one in another; then the words reordered.
probe = probes(fixed_word_in_context=fixed_word_in_context)
probe.equals(torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0]]))
words = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
probe.holds(properties.permutation_equivariant(at=(0,), dim=0), words)
### BEGIN HIDDEN TESTS
words = probe.normal(5, 3, std=2.0)
words[2] = 0.0
probe.equals(words)
probe.equals(probe.normal(3, 3))
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Write the test: which softmax is wrong?
#
# `check_softmax(candidate)` takes a softmax that someone else wrote. It returns True if the softmax keeps the contract of exercise 1, False if not.
# It calls `candidate(scores, dim=...)` with tensors of your choice and checks the result.
#
# - Wrong ones have wrong values, use the wrong axis, fail for large scores, or change their input. None raises an exception.
# - Each wrong softmax that you reject earns points; each right one that you reject costs points. Allow for rounding (`torch.allclose`).
# - Here you may use `torch.softmax`.


# %% nbgrader={"grade_id": "check_softmax", "solution": true}
def check_softmax(candidate):
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(0)
    for scale in (1.0, 10.0, 1000.0):
        for dim in (0, 1, -1):
            scores = scale * torch.randn(4, 4, generator=generator)
            given = scores.clone()
            weights = candidate(given, dim=dim)
            if weights.shape != scores.shape or not torch.equal(given, scores):
                return False
            if not torch.allclose(weights, torch.softmax(scores, dim), atol=1e-4):
                return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_softmax-plain", "grade": true, "points": 1}
# A right softmax, and two that are clearly wrong.
probe = probes(check_softmax=check_softmax)
probe.judges(
    right=[torch.softmax],
    wrong={
        "every weight is the same": lambda scores, dim=-1: torch.full_like(
            scores, 1 / scores.shape[dim]
        ),
        "the scores themselves": lambda scores, dim=-1: scores.clone(),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_softmax-mutants", "grade": true, "points": 5}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_softmax=check_softmax)
probe.judges(
    right=[torch.softmax, lambda scores, dim=-1: torch.log_softmax(scores, dim).exp()],
    wrong={"each score by itself": lambda scores, dim=-1: torch.sigmoid(scores)},
    points=5,
)


### BEGIN HIDDEN TESTS
def overflowing(scores, dim=-1):
    return scores.exp() / scores.exp().sum(dim, keepdim=True)


def writing(scores, dim=-1):
    weights = torch.softmax(scores, dim)
    scores.sub_(scores.amax(dim, keepdim=True))
    return weights


probe.judges(
    right=[torch.softmax, lambda scores, dim=-1: torch.log_softmax(scores, dim).exp()],
    wrong={
        "no protection against overflow": overflowing,
        "the input is changed in place": writing,
        "dim is ignored": lambda scores, dim=-1: torch.softmax(scores, -1),
        "one total for the whole tensor": lambda scores, dim=-1: torch.softmax(
            scores.flatten(), 0
        ).view_as(scores),
        "powers of two instead of e": lambda scores, dim=-1: torch.softmax(
            scores * math.log(2.0), dim
        ),
    },
    points=5,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Report
#
# Take *the river bank* and *she opened a bank account* from the chapter.
# In about 150 words: which numbers move *bank* towards water in one sentence and towards money in the other?
# What happens to the result if every score is multiplied by 10, or by 0?
# Name one thing about word order that this weighted mean cannot represent.

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 4}
# *bank* has equal parts of water and money; its dot product with *river* or *account* is as large as with itself, and with *the* it is 0.
# So about half of the weight moves to that word, and the mean moves along its axis.
# Ten times the scores makes the softmax almost an argmax: *the* vanishes, and the tie between *bank* and the other word stays even.
# Scores times zero give equal weights: the plain mean of the sentence.
# A weighted mean does not depend on the order of its items, so *dog bites man* and *man bites dog* give each word the same result.
#
# **Points**, one for each:
#
# - The dot product with *river* or *account* is as large as with itself, the others are 0.
# - About half of the weight moves there, and the mean with it.
# - Times 10 is almost an argmax, with the tie left even; times 0 is the plain mean.
# - Something that word order decides, with an example.
