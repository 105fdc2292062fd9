# %% [markdown]
# # Exercises: scaled dot-product attention
#
# You write the function that the rest of the course is built on, with the names that torch gives it.
# Then you write the causal mask, a bias on the scores, the graph behind a stack of layers, and attention with one part removed.
#
# Shapes: `L` queries, `S` keys with one value each, `E` elements in a query and in a key, `E_v` elements in a value.
# `...` is any number of leading axes (batch, heads), possibly none.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course.probes import from_numpy, load_oracles

oracles, probes = load_oracles("07_scaled_dot_product")

# By hand: the query 2, 0, 0, 0 and two keys; values 4, 0 and 0, 8.
QUERY = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
KEYS = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0986123, 0.0, 0.0, 0.0]])
VALUES = torch.tensor([[4.0, 0.0], [0.0, 8.0]])

# %% [markdown]
# ## 1. Scaled dot-product attention
#
# `scaled_dot_product_attention(query, key, value, attn_mask=None)` compares every query with every key and mixes the values (Vaswani and others 2017):
#
# $$\operatorname{Attention}(Q, K, V) = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{E}}\right) V .$$
#
# - `query` is `(..., L, E)`, `key` is `(..., S, E)`, `value` is `(..., S, E_v)`, with the same leading axes.
#   The result is `(..., L, E_v)`, of the dtype of the inputs.
# - `attn_mask` is boolean and broadcasts to `(..., L, S)`. `True` means: this query may attend to this key. Without a mask every key is allowed.
# - A masked key has no influence, however large its score is.
# - A query whose keys are all masked gets an output of 0, not NaN, and a gradient of 0.
# - It handles every finite score, however large.
# - Gradients reach `query`, `key` and `value`. No argument is changed.
#
# By hand, with $E = 4$: the query $[2, 0, 0, 0]$ and the keys $[0, 0, 0, 0]$ and $[\ln 3, 0, 0, 0]$ have the products $0$ and $2 \ln 3$.
# Divided by $\sqrt 4$ they are $0$ and $\ln 3$, so the weights are $\frac14$ and $\frac34$. The values $[4, 0]$ and $[0, 8]$ give $[1, 6]$.
#
# `torch.softmax` is allowed. torch's own `scaled_dot_product_attention` is not.
#
# <details><summary>Hint 1</summary>
#
# `key.transpose(-2, -1)` swaps the last two axes and keeps the others.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Mask the scores before the softmax. A row that is masked everywhere needs care in the forward and in the backward pass: give it harmless scores first, and remove its weights after the softmax.
#
# </details>


# %% nbgrader={"grade_id": "scaled_dot_product_attention", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "multi_head_attention_forward", "aten::*scaled_dot_product*", "aten::*multi_head_attention*"]}
def scaled_dot_product_attention(query, key, value, attn_mask=None):
    ### BEGIN SOLUTION
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5  # (..., L, S)
    if attn_mask is None:
        return scores.softmax(dim=-1) @ value
    none = ~attn_mask.any(dim=-1, keepdim=True)  # queries whose keys are all masked
    weights = scores.masked_fill(~attn_mask & ~none, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(none, 0.0) @ value  # (..., L, E_v)
    ### END SOLUTION


# %% nbgrader={"grade_id": "scaled_dot_product_attention-by_hand", "grade": true, "points": 1}
# One query and two keys, as in the text.
probe = probes(scaled_dot_product_attention=scaled_dot_product_attention)
probe.gives(torch.tensor([[1.0, 6.0]]), QUERY, KEYS, VALUES)

# %% nbgrader={"grade_id": "scaled_dot_product_attention-values", "grade": true, "points": 2}
# Several queries, no mask.
probe = probes(scaled_dot_product_attention=scaled_dot_product_attention)
probe.equals(
    torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
    torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    torch.tensor([[9.0], [5.0], [7.0]]),
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(5, 3), probe.normal(7, 3), probe.normal(7, 2))
# all sizes equal: a swapped axis shows only in the values
probe.equals(probe.normal(4, 4), probe.normal(4, 4), probe.normal(4, 4))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "scaled_dot_product_attention-heads", "grade": true, "points": 1}
# Leading axes: batch and heads.
probe = probes(scaled_dot_product_attention=scaled_dot_product_attention)
probe.equals(probe.normal(2, 3, 1, 2), probe.normal(2, 3, 5, 2), probe.normal(2, 3, 5, 4))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5, 2), probe.normal(3, 7, 2), probe.normal(3, 7, 3))
probe.equals(probe.normal(2, 3, 5, 3), probe.normal(2, 3, 5, 3), probe.normal(2, 3, 5, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "scaled_dot_product_attention-mask", "grade": true, "points": 2}
# The third key, which matches best, is masked.
probe = probes(scaled_dot_product_attention=scaled_dot_product_attention)
probe.gives(
    torch.tensor([[1.0, 6.0]]),
    QUERY,
    torch.cat([KEYS, torch.tensor([[5.0, 0.0, 0.0, 0.0]])]),
    torch.cat([VALUES, torch.tensor([[90.0, 90.0]])]),
    torch.tensor([[True, True, False]]),
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(5, 3), probe.normal(7, 3), probe.normal(7, 2), probe.mask(5, 7))
heads = probe.normal(2, 3, 4, 5), probe.normal(2, 3, 4, 5), probe.normal(2, 3, 4, 5)
probe.equals(*heads, probe.mask(4, 4))
probe.equals(*heads, probe.mask(2, 1, 1, 4))
probe.equals(*heads, torch.ones(4, 4, dtype=torch.bool).tril())
# the masked key has by far the largest score
loud = torch.cat([probe.normal(4, 4), torch.full((1, 4), 300.0)])
probe.equals(1.0 + probe.uniform(3, 4), loud, probe.normal(5, 2), torch.arange(5).repeat(3, 1) < 4)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "scaled_dot_product_attention-empty_row", "grade": true, "points": 2}
# All keys of the second query are masked.
probe = probes(scaled_dot_product_attention=scaled_dot_product_attention)
probe.gives(
    torch.tensor([[1.0, 6.0], [0.0, 0.0]]),
    QUERY.repeat(2, 1),
    KEYS,
    VALUES,
    torch.tensor([[True, True], [False, False]]),
)
### BEGIN HIDDEN TESTS
some = probe.mask(5, 7)
some[1], some[4] = False, False
probe.equals(probe.normal(2, 5, 3), probe.normal(2, 7, 3), probe.normal(2, 7, 2), some)
probe.gradient(
    probe.normal(3, 4),
    probe.normal(3, 4),
    probe.normal(3, 2),
    torch.tensor([[True, True, False], [False, False, False], [True, False, True]]),
    wrt=(0, 1, 2),
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "scaled_dot_product_attention-large_scores", "grade": true, "points": 1}
# Scores of 200, 199 and 0: the first two exponentials overflow in float32.
probe = probes(scaled_dot_product_attention=scaled_dot_product_attention)
probe.equals(
    torch.tensor([[20.0, 2.0, 0.0, 0.0]]),
    torch.tensor([[20.0, 0.0, 0.0, 0.0], [20.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]),
    torch.tensor([[8.0, 1.0], [4.0, 2.0], [1.0, 3.0]]),
)
### BEGIN HIDDEN TESTS
# rows far above 0 and rows far below it
base = torch.tensor([30.0, 0.0, 0.0, 0.0])
sign = torch.tensor([[1.0], [-1.0], [1.0]])
probe.equals(
    sign * base + probe.integers(0, 2, 3, 4),
    base + probe.integers(0, 2, 5, 4),
    probe.normal(5, 2),
)
# all scores are below -10,000, and some keys are masked
probe.equals(
    -base * 40 + probe.integers(0, 2, 3, 4),
    base + probe.integers(0, 2, 5, 4) * torch.tensor([0, 1, 1, 1]),
    probe.normal(5, 2),
    torch.tensor([True, True, False, True, False]).repeat(3, 1),
)
# the scores of masked keys are 18,000 above all others
probe.equals(
    -base * 40 + probe.integers(0, 2, 3, 4),
    base * torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0])[:, None],
    probe.normal(5, 2),
    torch.tensor([True, True, False, True, False]).repeat(3, 1),
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "scaled_dot_product_attention-gradient", "grade": true, "points": 2}
# Gradients reach the query, the key and the value.
probe = probes(scaled_dot_product_attention=scaled_dot_product_attention)
probe.gradient(
    torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
    torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    torch.tensor([[9.0], [5.0], [7.0]]),
    wrt=(0, 1, 2),
)
### BEGIN HIDDEN TESTS
probe.gradient(probe.normal(3, 4), probe.normal(5, 4), probe.normal(5, 2), wrt=(0, 1, 2))
some = torch.tensor([[1, 1, 1, 0, 1], [0, 1, 1, 1, 1], [1, 0, 0, 1, 1]]).bool()
probe.gradient(probe.normal(3, 4), probe.normal(5, 4), probe.normal(5, 2), some, wrt=(0, 1, 2))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "scaled_dot_product_attention-dtype", "grade": true, "points": 1}
# Double precision in, double precision out.
probe = probes(scaled_dot_product_attention=scaled_dot_product_attention)
double = torch.float64
probe.equals(QUERY.double(), KEYS.double(), VALUES.double())
### BEGIN HIDDEN TESTS
probe.equals(
    probe.normal(5, 3, dtype=double), probe.normal(7, 3, dtype=double), probe.normal(7, 2).double()
)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. The causal mask
#
# A model that generates text from left to right must not attend to tokens that it has yet to generate.
# `causal_mask(query_length, key_length)` returns its mask.
#
# - The result is boolean, `(query_length, key_length)`. `True` means: may attend.
# - Query `i` may attend to keys `0` to `i`. Both count from the left, for any two lengths, as in torch's `is_causal`.
#
# By hand, two queries and three keys: `[[True, False, False], [True, True, False]]`.


# %% nbgrader={"grade_id": "causal_mask", "solution": true}
def causal_mask(query_length, key_length):
    ### BEGIN SOLUTION
    return torch.arange(key_length) <= torch.arange(query_length)[:, None]
    ### END SOLUTION


# %% nbgrader={"grade_id": "causal_mask-by_hand", "grade": true, "points": 1}
# Two queries and three keys.
probe = probes(causal_mask=causal_mask)
probe.gives(torch.tensor([[True, False, False], [True, True, False]]), 2, 3)

# %% nbgrader={"grade_id": "causal_mask-square", "grade": true, "points": 1}
# As many queries as keys.
probe = probes(causal_mask=causal_mask)
probe.equals(3, 3)
### BEGIN HIDDEN TESTS
probe.equals(1, 1)
probe.equals(7, 7)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "causal_mask-unequal", "grade": true, "points": 2}
# More keys than queries, and fewer.
probe = probes(causal_mask=causal_mask)
probe.equals(1, 4)
probe.equals(4, 2)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Repair: self-attention with two faults
#
# `broken_self_attention` should project `x` to queries, keys and values and let every position attend to itself and to earlier positions.
# `x` is `(B, L, D)`; `weight_query` and `weight_key` are `(E, D)`, `weight_value` is `(E_v, D)`; the result is `(B, L, E_v)`.
# It runs, it trains and it produces no NaN, but it has two faults. Find them and write `fixed_self_attention`.


# %% nbgrader={"grade_id": "broken_self_attention", "locked": true}
def broken_self_attention(x, weight_query, weight_key, weight_value):
    query, key, value = x @ weight_query.T, x @ weight_key.T, x @ weight_value.T
    scores = query @ key.transpose(1, 2) / x.shape[-1] ** 0.5  # (B, L, L)
    allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=1)
    return weights @ value  # (B, L, E_v)


# %% nbgrader={"grade_id": "fixed_self_attention", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "multi_head_attention_forward", "aten::*scaled_dot_product*", "aten::*multi_head_attention*"]}
def fixed_self_attention(x, weight_query, weight_key, weight_value):
    ### BEGIN SOLUTION
    query, key, value = x @ weight_query.T, x @ weight_key.T, x @ weight_value.T
    scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5  # (B, L, L)
    allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
    return weights @ value  # (B, L, E_v)
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_self_attention-same_size", "grade": true, "points": 1}
# Queries and keys have the width of the input, which hides one of the two faults.
probe = probes(fixed_self_attention=fixed_self_attention)
one = torch.eye(2)
probe.equals(torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]]), one, one, one)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 5, 3), probe.normal(3, 3), probe.normal(3, 3), probe.normal(2, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_self_attention-other_size", "grade": true, "points": 2}
# Queries and keys are narrower than the input.
probe = probes(fixed_self_attention=fixed_self_attention)
probe.equals(
    torch.tensor([[[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]]),
    torch.tensor([[1.0, 1.0, 0.0, 0.0]]),
    torch.tensor([[0.0, 0.5, 1.0, 0.0]]),
    torch.eye(4)[:2],
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 5, 7), probe.normal(2, 7), probe.normal(2, 7), probe.normal(3, 7))
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# Your attention map: with the identity as values, the output is the weights. Check that no weight lies above the diagonal, then remove the mask.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

words = ["the", "cat", "that", "sat", "on", "the", "mat"]
table = torch.randn(20, 16, generator=torch.Generator().manual_seed(1))
x = table[[words.index(word) for word in words]]  # both "the" share one vector
weights = scaled_dot_product_attention(x, x, torch.eye(7), causal_mask(7, 7))
plt.imshow(weights)
plt.xticks(range(7), words)
plt.yticks(range(7), words)
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. A bias on the scores
#
# A mask allows a key or excludes it. A bias is added to the scores and may be learned.
# `attention_with_bias(query, key, value, bias)` is
#
# $$\operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt{E}} + B\right) V .$$
#
# - `bias` is floating and broadcasts to `(..., L, S)`; the rest is as in exercise 1.
# - An element of $-\infty$ masks a key, as `False` does in a mask. A query whose keys are all masked gets 0, not NaN.
# - It handles every finite score and bias, however large.
# - Gradients reach all four arguments; at elements of $-\infty$ the gradient is 0.
#
# By hand, with the query, the keys and the values of exercise 1 and the bias $[\ln 9, 0]$: the scores are $\ln 9$ and $\ln 3$, the weights $\frac34$ and $\frac14$, the output $[3, 2]$.


# %% nbgrader={"grade_id": "attention_with_bias", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "multi_head_attention_forward", "aten::*scaled_dot_product*", "aten::*multi_head_attention*"]}
def attention_with_bias(query, key, value, bias):
    ### BEGIN SOLUTION
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5 + bias
    none = (bias == -torch.inf).all(dim=-1, keepdim=True)
    weights = scores.masked_fill(none, 0.0).softmax(dim=-1)
    return weights.masked_fill(none, 0.0) @ value
    ### END SOLUTION


# %% nbgrader={"grade_id": "attention_with_bias-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(attention_with_bias=attention_with_bias)
probe.gives(torch.tensor([[3.0, 2.0]]), QUERY, KEYS, VALUES, torch.tensor([[2.1972246, 0.0]]))

# %% nbgrader={"grade_id": "attention_with_bias-values", "grade": true, "points": 2}
# A bias for all, a bias per head, and a bias per batch element.
probe = probes(attention_with_bias=attention_with_bias)
probe.equals(probe.normal(5, 3), probe.normal(7, 3), probe.normal(7, 2), probe.normal(5, 7))
### BEGIN HIDDEN TESTS
heads = probe.normal(2, 3, 5, 4), probe.normal(2, 3, 5, 4), probe.normal(2, 3, 5, 4)
probe.equals(*heads, probe.normal(3, 5, 5))
probe.equals(*heads, probe.normal(2, 1, 1, 5))
# a bias whose exponential overflows
probe.equals(probe.normal(3, 4), probe.normal(5, 4), probe.normal(5, 2), 200 * probe.mask(3, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "attention_with_bias-closed", "grade": true, "points": 2}
# The second key is masked for the first query, and every key for the second query.
probe = probes(attention_with_bias=attention_with_bias)
probe.gives(
    torch.tensor([[4.0, 0.0], [0.0, 0.0]]),
    QUERY.repeat(2, 1),
    KEYS,
    VALUES,
    torch.tensor([[0.5, -torch.inf], [-torch.inf, -torch.inf]]),
)
### BEGIN HIDDEN TESTS
closed = probe.normal(5, 7).masked_fill(~probe.mask(5, 7), -torch.inf)
closed[2] = -torch.inf
probe.equals(probe.normal(5, 3), probe.normal(7, 3), probe.normal(7, 2), closed)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "attention_with_bias-gradient", "grade": true, "points": 2}
# Gradients reach all four arguments.
probe = probes(attention_with_bias=attention_with_bias)
probe.gradient(
    torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
    torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    torch.tensor([[9.0], [5.0], [7.0]]),
    torch.tensor([[0.0, 1.0, -1.0], [0.5, 0.0, 0.0]]),
    wrt=(0, 1, 2, 3),
)
### BEGIN HIDDEN TESTS
bias = probe.normal(3, 5)
bias[0, 3], bias[1] = -torch.inf, -torch.inf
probe.gradient(probe.normal(3, 4), probe.normal(5, 4), probe.normal(5, 2), bias, wrt=(0, 1, 2, 3))
### END HIDDEN TESTS

# %% [markdown]
# ## 5. The graph of a stack
#
# A mask is a directed graph: it has an edge from key `j` to query `i` where query `i` may attend to key `j`.
# In a stack of layers, information takes one step per layer. Every layer adds its input to its output, so each position also keeps its own information.
#
# `reachable(mask, layers)` returns which inputs can change which outputs.
#
# - `mask` is boolean and `(L, L)`: `mask[i, j]` is `True` where position `i` may attend to position `j`. It is the same in each layer.
# - The result is boolean and `(L, L)`: element `[i, j]` is `True` where the input at `j` can change the output at `i` after `layers` layers.
# - With `layers = 0` every output depends on its own input only. It must also work for 300 layers.
#
# By hand, three positions that may each attend to their left neighbour only: after one layer, position 2 depends on inputs 1 and 2; after two layers, on 0, 1 and 2.


# %% nbgrader={"grade_id": "reachable", "solution": true}
def reachable(mask, layers):
    ### BEGIN SOLUTION
    step = (mask | torch.eye(len(mask), dtype=torch.bool)).float()
    reached = torch.eye(len(mask))
    for _ in range(layers):
        reached = (step @ reached > 0).float()
    return reached > 0
    ### END SOLUTION


# %% nbgrader={"grade_id": "reachable-by_hand", "grade": true, "points": 1}
# Each position may attend to its left neighbour.
probe = probes(reachable=reachable)
left = torch.tensor([[False, False, False], [True, False, False], [False, True, False]])
probe.gives(torch.tensor([[True, False, False], [True, True, False], [False, True, True]]), left, 1)
probe.gives(torch.tensor([[True, False, False], [True, True, False], [True, True, True]]), left, 2)

# %% nbgrader={"grade_id": "reachable-layers", "grade": true, "points": 2}
# No layer, one, several.
probe = probes(reachable=reachable)
left = torch.tensor([[False, False, False], [True, False, False], [False, True, False]])
probe.equals(left, 0)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "reachable-deep", "grade": true, "points": 1}
# Three hundred layers: the number of paths exceeds the largest float.
probe = probes(reachable=reachable)
probe.equals(torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)).bool(), 300)
### BEGIN HIDDEN TESTS
probe.equals(torch.ones(4, 4, dtype=torch.bool).tril(), 300)
probe.equals(torch.ones(5, 5, dtype=torch.bool).tril(-1), 300)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Without the softmax
#
# Attention without the softmax is
#
# $$\frac{Q K^\top}{\sqrt{E}}\, V .$$
#
# - `attention_without_softmax(query, key, value)`, with the shapes of exercise 1 and no mask.
# - It works for long sequences: the `L` by `S` matrix of scores is never held in memory. The test with `L = S = 4096` and `E = 8` allows 4 MiB; the matrix alone needs 64.
# - Gradients reach all three arguments.
#
# By hand, with the query, the keys and the values of exercise 1: the scores $0$ and $\ln 3$ are the weights, the output is $[0, 8 \ln 3] = [0, 8.789]$.
#
# <details><summary>Hint</summary>
#
# A product of three matrices can be computed in either order. With a softmax in between, it cannot.
#
# </details>


# %% nbgrader={"grade_id": "attention_without_softmax", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "multi_head_attention_forward", "aten::*scaled_dot_product*", "aten::*multi_head_attention*"]}
def attention_without_softmax(query, key, value):
    ### BEGIN SOLUTION
    return query @ (key.transpose(-2, -1) @ value) / query.shape[-1] ** 0.5
    ### END SOLUTION


# %% nbgrader={"grade_id": "attention_without_softmax-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(attention_without_softmax=attention_without_softmax)
probe.gives(torch.tensor([[0.0, 8.7888983]]), QUERY, KEYS, VALUES)

# %% nbgrader={"grade_id": "attention_without_softmax-values", "grade": true, "points": 1}
# Several queries.
probe = probes(attention_without_softmax=attention_without_softmax)
probe.equals(
    torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
    torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    torch.tensor([[9.0], [5.0], [7.0]]),
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(5, 3), probe.normal(7, 3), probe.normal(7, 2))
heads = probe.normal(2, 3, 5, 4), probe.normal(2, 3, 5, 4), probe.normal(2, 3, 5, 4)
probe.equals(*heads)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "attention_without_softmax-long", "grade": true, "points": 2}
# 4096 queries and 4096 keys in 4 MiB.
probe = probes(attention_without_softmax=attention_without_softmax)
probe.memory(probe.normal(4096, 8), probe.normal(4096, 8), probe.normal(4096, 8), below=2**22)

# %% nbgrader={"grade_id": "attention_without_softmax-gradient", "grade": true, "points": 1}
# Gradients reach all three arguments.
probe = probes(attention_without_softmax=attention_without_softmax)
probe.gradient(probe.normal(3, 4), probe.normal(5, 4), probe.normal(5, 2), wrt=(0, 1, 2))

# %% [markdown]
# ## 7. Write the test
#
# `check_attention(candidate)` takes another learner's `scaled_dot_product_attention(query, key, value, attn_mask=None)` and returns `True` if it keeps the contract of exercise 1, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Many wrong answers agree with the right one when sizes are equal, nothing is masked or scores are small. A test of the shape alone accepts them all.
# Choose inputs on which they differ, and allow for rounding. A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_attention", "solution": true}
def check_attention(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    some = torch.tensor([[True, False, True, True], [False] * 4, [True, True, False, False]])
    for lead, size, mask in [((), 1.0, None), ((), 1.0, some), ((2, 2), 9.0, some)]:
        query = size * torch.randn(*lead, 3, 5, generator=draw, dtype=torch.float64)
        key = size * torch.randn(*lead, 4, 5, generator=draw, dtype=torch.float64)
        value = torch.randn(*lead, 4, 2, generator=draw, dtype=torch.float64)
        key[..., 2, :] *= 10
        scores = torch.einsum("...le,...se->...ls", query, key) / 5**0.5
        if mask is not None:
            scores = torch.where(mask, scores, -1e30)
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        if mask is not None:
            weights = weights * mask
        expected = torch.einsum("...ls,...sv->...lv", weights, value)
        try:
            got = candidate(query, key, value, mask)
        except Exception:
            return False
        if got.shape != expected.shape or not torch.allclose(got.double(), expected, atol=1e-5):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_attention-plain", "grade": true, "points": 1}
# A right answer, and three that are clearly wrong.
def by_loops(query, key, value, attn_mask=None):
    return from_numpy(oracles.right_attention)(query, key, value, attn_mask)


def always_zero(query, key, value, attn_mask=None):
    return torch.zeros(*query.shape[:-1], value.shape[-1], dtype=query.dtype)


probe = probes(check_attention=check_attention)
probe.judges(
    right=[by_loops],
    wrong={
        "always 0": always_zero,
        "the mean of the values": lambda query, key, value, attn_mask=None: (
            always_zero(query, key, value) + value.mean(dim=-2, keepdim=True)
        ),
        "twice the right result": lambda *inputs: 2 * by_loops(*inputs),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_attention-mutants", "grade": true, "points": 8}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_attention=check_attention)
probe.judges(
    right=[by_loops], wrong={"twice the right result": lambda *x: 2 * by_loops(*x)}, points=8
)


### BEGIN HIDDEN TESTS
def soft(scores, mask, dim=-1):
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    top = scores.amax(dim, keepdim=True)
    parts = (scores - top.masked_fill(top == -torch.inf, 0.0)).exp()
    total = parts.sum(dim, keepdim=True)
    return parts / total.masked_fill(total == 0, 1.0)


def product(query, key):
    return query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5


def with_weights(weigh):
    return lambda query, key, value, attn_mask=None: weigh(product(query, key), attn_mask) @ value


def over_root_of_value_size(query, key, value, attn_mask=None):
    scores = query @ key.transpose(-2, -1) / value.shape[-1] ** 0.5
    return soft(scores, attn_mask) @ value


def zeroed(scores, mask):
    return (scores if mask is None else scores.masked_fill(~mask, 0.0)).softmax(-1)


def late(scores, mask):
    return scores.softmax(-1) * (1.0 if mask is None else mask)


def overflowing(scores, mask):
    parts = scores.exp() if mask is None else scores.exp() * mask
    return parts / parts.sum(-1, keepdim=True).clamp(min=1e-30)


def uniform_when_empty(scores, mask):
    return (scores if mask is None else scores.masked_fill(~mask, -1e9)).softmax(-1)


def hard(scores, mask):
    best = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    only = torch.nn.functional.one_hot(best.argmax(-1), scores.shape[-1]).to(scores.dtype)
    return only if mask is None else only * mask


probe.judges(
    right=[by_loops, with_weights(soft)],
    wrong={
        "divided by the root of the value's size": over_root_of_value_size,
        "the softmax runs over the queries": with_weights(lambda s, m: soft(s, m, dim=-2)),
        "the mask is inverted": with_weights(lambda s, m: soft(s, None if m is None else ~m)),
        "masked scores are 0": with_weights(zeroed),
        "the mask comes after the softmax": with_weights(late),
        "exponentials overflow": with_weights(overflowing),
        "a query without keys gets the mean": with_weights(uniform_when_empty),
        "only the best key counts": with_weights(hard),
    },
    points=8,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. Draw queries and keys with independent elements of mean 0 and variance 1, for $E$ from 4 to 1024. Show the variance of the products and the largest weight of a row, with and without $1/\sqrt E$. Repeat it with keys multiplied by 5. What does the factor guarantee, and what does it not?
# 2. Use the same matrix for queries and keys. Are the scores symmetric? Are the weights? Explain why, and what that means for the graph.
# 3. Compare `attention_without_softmax` with `scaled_dot_product_attention` on a look-up (one key matches exactly, the others are random). What do you lose and gain without the softmax?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. The variance of a product is $E$, so the largest weight goes to 1 as $E$ grows. Divided by $\sqrt E$, the products have variance 1 and the largest weight keeps its size.
# The factor assumes unit variance. With keys five times as large, the scaled scores have variance 25 for every $E$: they do not grow with $E$, but they still saturate.
# 2. The scores are symmetric: $x_i^\top W^\top W x_j$ does not change when $i$ and $j$ are exchanged. The weights are not: each row is divided by its own sum.
# So the graph is still directed: the weight of $j$ for $i$ does not determine the weight of $i$ for $j$.
# 3. Lost: competition. The random keys add noise that grows with their number, and weights may be negative and do not sum to one. The softmax suppresses the other keys exponentially.
# Gained: the product can be computed from the right, in memory and time linear in the length.
#
# **Points**, one for each:
#
# - (1a) Variance and largest weight over E, with and without the factor.
# - (1b) The factor assumes unit variance; keys five times as large show it.
# - (2a) Scores symmetric, weights not.
# - (2b) Because each row is divided by its own sum; the graph is directed.
# - (3a) Lost: competition, or weights that sum to one.
# - (3b) Gained: the order of the products, linear in the length.
