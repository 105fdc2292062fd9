# %% [markdown]
# # Exercises: multi-head attention and positions
#
# You write multi-head attention with the projections of the paper, and three encodings of position.
# Then you compute the output of one head without its full matrix, repair a function, and write a test of causality.
#
# Shapes: `B` batch, `L` queries, `S` keys, `D` width of the model, `H` heads with `E` elements each for queries and keys, and `E_v` for values.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course.probes import load_oracles

oracles, probes = load_oracles("08_multi_head")

# By hand: one query of ones and two keys; ln 3 gives weights of 1/4 and 3/4.
QUERY = torch.tensor([[[1.0, 1.0]]])
KEYS = torch.tensor([[[0.0, 1.0986123], [1.0986123, 0.0]]])
VALUES = torch.tensor([[[4.0, 0.0], [0.0, 8.0]]])
ONE = torch.eye(2)

# %% [markdown]
# ## 1. Multi-head attention
#
# `multi_head_attention(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None)` computes `num_heads` attentions in parallel (Vaswani and others 2017, section 3.2.2):
#
# $$\operatorname{head}_h = \operatorname{Attention}(Q {W_Q^h}^\top, K {W_K^h}^\top, V {W_V^h}^\top), \qquad [\operatorname{head}_1; \ldots; \operatorname{head}_H]\, W_O^\top .$$
#
# - `query` is `(B, L, D)`, `key` is `(B, S, D_k)`, `value` is `(B, S, D_v)`. In self-attention the three are the same tensor.
# - `w_q` is `(H E, D)`, `w_k` is `(H E, D_k)`, `w_v` is `(H E_v, D_v)`, `w_o` is `(D, H E_v)`. The first `E` rows of `w_q` belong to head 0, the next `E` to head 1, and so on. There are no biases.
# - `attn_mask` is boolean and broadcasts to `(B, H, L, S)`; `True` means: may attend. Every query may attend to at least one key.
# - The result is `(B, L, D)`, of the dtype of the inputs. Gradients reach the inputs and the four matrices. No argument is changed.
#
# By hand, two heads with $E = 1$ and identity matrices: the query $(1, 1)$ and the keys $(0, \ln 3)$ and $(\ln 3, 0)$. Head 0 has the scores $0$ and $\ln 3$, head 1 the scores $\ln 3$ and $0$.
# The values $(4, 0)$ and $(0, 8)$: head 0 mixes the first elements, $\frac14 4 + \frac34 0 = 1$, head 1 the second ones, $\frac34 0 + \frac14 8 = 2$. The output is $(1, 2)$.
#
# `F.scaled_dot_product_attention` is allowed. torch's multi-head attention is not.
#
# <details><summary>Hint</summary>
#
# `x.unflatten(-1, (num_heads, -1))` splits the last axis into heads. Move the head axis in front of the position axis, and back at the end.
#
# </details>


# %% nbgrader={"grade_id": "multi_head_attention", "solution": true} attn_course={"forbidden": ["multi_head_attention_forward", "aten::*multi_head_attention*"]}
def multi_head_attention(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    ### BEGIN SOLUTION
    def split(x, weight):
        return (x @ weight.T).unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B, H, ., E)

    q, k, v = split(query, w_q), split(key, w_k), split(value, w_v)
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, H, L, S)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    heads = scores.softmax(dim=-1) @ v
    return heads.transpose(1, 2).flatten(2) @ w_o.T  # (B, L, D)
    ### END SOLUTION


# %% nbgrader={"grade_id": "multi_head_attention-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(multi_head_attention=multi_head_attention)
probe.gives(torch.tensor([[[1.0, 2.0]]]), QUERY, KEYS, VALUES, ONE, ONE, ONE, ONE, 2)

# %% nbgrader={"grade_id": "multi_head_attention-self", "grade": true, "points": 2}
# Self-attention, two heads with E = 2.
probe = probes(multi_head_attention=multi_head_attention)
x = probe.normal(2, 3, 4)
probe.equals(x, x, x, *(probe.normal(4, 4) for _ in range(4)), 2)
### BEGIN HIDDEN TESTS
x = probe.normal(2, 6, 6)
probe.equals(x, x, x, *(probe.normal(6, 6) for _ in range(4)), 3)
probe.equals(x, x, x, *(probe.normal(6, 6) for _ in range(4)), 1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "multi_head_attention-cross", "grade": true, "points": 2}
# Cross-attention: another text, other widths, values wider than keys.
probe = probes(multi_head_attention=multi_head_attention)
widths = [(4, 5), (4, 3), (6, 2), (5, 6)]  # w_q, w_k, w_v, w_o
probe.equals(
    *(probe.normal(2, 3, 5), probe.normal(2, 4, 3), probe.normal(2, 4, 2)),
    *(probe.normal(*width) for width in widths),
    2,
)
### BEGIN HIDDEN TESTS
texts = probe.normal(2, 4, 6), probe.normal(2, 4, 6), probe.normal(2, 4, 6)  # alike in shape
probe.equals(*texts, *(probe.normal(6, 6) for _ in range(4)), 3)
widths = [(15, 4), (15, 7), (9, 2), (4, 9)]
probe.equals(
    *(probe.normal(2, 5, 4), probe.normal(2, 7, 7), probe.normal(2, 7, 2)),
    *(probe.normal(*width) for width in widths),
    3,
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "multi_head_attention-mask", "grade": true, "points": 2}
# A causal mask, padding, and a mask for each head.
probe = probes(multi_head_attention=multi_head_attention)
x, matrices = probe.normal(2, 4, 4), [probe.normal(4, 4) for _ in range(4)]
probe.equals(x, x, x, *matrices, 2, torch.ones(4, 4, dtype=torch.bool).tril())
### BEGIN HIDDEN TESTS
probe.equals(
    x, x, x, *matrices, 2, torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()[:, None, None]
)
probe.equals(x, x, x, *matrices, 2, probe.mask(1, 2, 4, 4))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "multi_head_attention-gradient", "grade": true, "points": 2}
# Gradients reach the inputs and the four matrices.
probe = probes(multi_head_attention=multi_head_attention)
matrices = [probe.normal(4, 4) for _ in range(4)]
texts = probe.normal(1, 2, 4), probe.normal(1, 3, 4), probe.normal(1, 3, 4)
probe.gradient(*texts, *matrices, 2, wrt=(0, 1, 2, 3, 4, 5, 6))

# %% nbgrader={"grade_id": "multi_head_attention-dtype", "grade": true, "points": 1}
# Double precision in, double precision out.
probe = probes(multi_head_attention=multi_head_attention)
probe.equals(*(part.double() for part in (QUERY, KEYS, VALUES, ONE, ONE, ONE, ONE)), 2)

# %% [markdown]
# ## 2. Rotary positions
#
# `apply_rope(x, positions)` rotates every pair of elements of a query or key by an angle proportional to the position (Su and others 2021), with the frequencies of exercise 4 and $E$ instead of $D$:
#
# $$\begin{pmatrix} x'_{2i} \\ x'_{2i+1} \end{pmatrix} = \begin{pmatrix} \cos p\theta_i & -\sin p\theta_i \\ \sin p\theta_i & \cos p\theta_i \end{pmatrix} \begin{pmatrix} x_{2i} \\ x_{2i+1} \end{pmatrix}, \qquad \theta_i = 10000^{-2i/E} .$$
#
# - `x` is `(..., L, E)` with an even `E`, and `positions` is `(L,)`: the position of each row. Positions need not be 0, 1, 2, …, nor integers.
# - Adjacent elements form a pair: 0 and 1, 2 and 3, and so on.
# - The result has the shape and the dtype of `x`. Gradients reach `x`. No argument is changed.
#
# By hand, with one pair: $\theta_0 = 1$. The vector $(1, 0)$ stays the same at position 0. At position $\pi/2$ it becomes $(0, 1)$, and $(0, 2)$ becomes $(-2, 0)$.


# %% nbgrader={"grade_id": "apply_rope", "solution": true}
def apply_rope(x, positions):
    ### BEGIN SOLUTION
    pairs = torch.arange(0, x.shape[-1], 2, dtype=torch.float64)
    angles = positions.double()[:, None] * 10000.0 ** (-pairs / x.shape[-1])  # (L, E / 2)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., 0::2], x[..., 1::2]
    turned = first * cosine - second * sine, first * sine + second * cosine
    return torch.stack(turned, dim=-1).flatten(-2)
    ### END SOLUTION


# %% nbgrader={"grade_id": "apply_rope-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(apply_rope=apply_rope)
quarter = 1.5707964
probe.gives(
    torch.tensor([[1.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]),
    torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]),
    torch.tensor([0.0, quarter, quarter]),
)

# %% nbgrader={"grade_id": "apply_rope-pairs", "grade": true, "points": 2}
# Several pairs, each with its own angle.
probe = probes(apply_rope=apply_rope)
probe.equals(torch.tensor([[1.0, 0.0, 1.0, 0.0], [1.0, 2.0, 3.0, 4.0]]), torch.tensor([0.0, 1.0]))
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "apply_rope-heads", "grade": true, "points": 1}
# Leading axes: batch and heads; positions that do not start at 0.
probe = probes(apply_rope=apply_rope)
probe.equals(probe.normal(2, 3, 5, 4), torch.tensor([7.0, 8.0, 9.0, 10.0, 11.0]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 3, 3, 6), torch.tensor([100.0, 3.0, 50.5]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "apply_rope-gradient", "grade": true, "points": 1}
# Gradients reach the vectors.
probe = probes(apply_rope=apply_rope)
probe.gradient(probe.normal(3, 4), torch.tensor([1.0, 2.0, 5.0]))

# %% [markdown]
# ## 3. ALiBi
#
# `alibi_bias(num_heads, query_length, key_length)` is added to the scores (Press and others 2022):
#
# $$b_{hij} = -m_h\, |i - j|, \qquad m_h = 2^{-8h/H}, \qquad h = 1, \ldots, H .$$
#
# - The result is `(num_heads, query_length, key_length)`, float32. `num_heads` is a power of two.
# - Queries and keys count from 0 on the left. It masks nothing: keys on both sides get a penalty.
#
# By hand, with 2 heads: $m_1 = 2^{-4} = 0.0625$ and $m_2 = 2^{-8} = 0.00390625$. The first query of the first head has the biases $0, -0.0625, -0.125$ for three keys, the second query $-0.0625, 0, -0.0625$.


# %% nbgrader={"grade_id": "alibi_bias", "solution": true}
def alibi_bias(num_heads, query_length, key_length):
    ### BEGIN SOLUTION
    slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)
    distance = (torch.arange(query_length)[:, None] - torch.arange(key_length)).abs()  # (L, S)
    return -slopes[:, None, None] * distance
    ### END SOLUTION


# %% nbgrader={"grade_id": "alibi_bias-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(alibi_bias=alibi_bias)
near = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0]])
probe.gives(torch.stack([-0.0625 * near, -0.00390625 * near]), 2, 2, 3)

# %% nbgrader={"grade_id": "alibi_bias-heads", "grade": true, "points": 2}
# Other numbers of heads, and other lengths.
probe = probes(alibi_bias=alibi_bias)
probe.equals(4, 3, 3)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# How positions change a score: one query, and the same key at each distance. RoPE rotates the pair, ALiBi subtracts. On the right: one head of your function with random matrices.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

turned = apply_rope(torch.ones(64, 8), torch.arange(64.0))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(turned[-1] @ turned.T / 8**0.5, label="RoPE")
left.plot(alibi_bias(2, 64, 64)[0, -1], label="ALiBi, head 0")
left.set(title="score of the last query", xlabel="position of the key", ylabel="score or bias")
left.legend()
x = torch.eye(8)[None]
w_q, w_k = torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(0)) * 2
one = multi_head_attention(x, x, x, w_q, w_k, torch.eye(8), torch.eye(8), 1)
right.imshow(one[0])
right.set(title="weights of one head", xlabel="key", ylabel="query")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. Sinusoidal positions
#
# `sinusoidal_positions(length, embed_dim)` returns one fixed vector for every position (Vaswani and others 2017, section 3.5):
#
# $$\mathrm{PE}_{p, 2i} = \sin(p\, \theta_i), \qquad \mathrm{PE}_{p, 2i+1} = \cos(p\, \theta_i), \qquad \theta_i = 10000^{-2i/D} .$$
#
# - The result is `(length, embed_dim)`, float32. `embed_dim` is even; positions and pairs count from 0.
#
# By hand, with $D = 4$: $\theta_0 = 1$ and $\theta_1 = 10000^{-2/4} = 0.01$. Position 0 is $(0, 1, 0, 1)$, position 1 is $(\sin 1, \cos 1, \sin 0.01, \cos 0.01) = (0.8415, 0.5403, 0.0100, 1.0000)$.


# %% nbgrader={"grade_id": "sinusoidal_positions", "solution": true}
def sinusoidal_positions(length, embed_dim):
    ### BEGIN SOLUTION
    frequencies = 10000.0 ** (-torch.arange(0, embed_dim, 2, dtype=torch.float64) / embed_dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies  # (L, D / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()
    ### END SOLUTION


# %% nbgrader={"grade_id": "sinusoidal_positions-by_hand", "grade": true, "points": 1}
# Two positions, D = 4.
probe = probes(sinusoidal_positions=sinusoidal_positions)
rows = [[0.0, 1.0, 0.0, 1.0], [0.84147098, 0.54030231, 0.00999983, 0.99995]]
probe.gives(torch.tensor(rows), 2, 4)

# %% nbgrader={"grade_id": "sinusoidal_positions-values", "grade": true, "points": 2}
# Other lengths and widths.
probe = probes(sinusoidal_positions=sinusoidal_positions)
probe.equals(5, 6)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 5. The values of one head
#
# One head adds $\sum_j \alpha_{ij} W_O^h W_V^h x_j$ to position $i$. The product $W_O^h W_V^h$ is a `(D, D)` matrix, which you never need to build.
#
# `low_rank_value(weights, value, w_v, w_o)` returns this sum for each position.
#
# - `weights` is `(L, S)`, `value` is `(S, D)`, `w_v` is `(E, D)`, the rows of one head, and `w_o` is `(D, E)`, its columns. The result is `(L, D)`.
# - It works for wide models: the test with `D = 4096`, `E = 4` and three positions allows 1 MiB; a `(D, D)` matrix alone needs 64.
# - Gradients reach all four arguments.
#
# By hand: with the weights $(\frac14, \frac34)$, the values $(4, 0)$ and $(0, 8)$ have the mean $(1, 6)$. With `w_v` $= (1, 1)$ it becomes $7$, and with `w_o` $= (1, -1)$ the output is $(7, -7)$.


# %% nbgrader={"grade_id": "low_rank_value", "solution": true}
def low_rank_value(weights, value, w_v, w_o):
    ### BEGIN SOLUTION
    return weights @ (value @ w_v.T) @ w_o.T
    ### END SOLUTION


# %% nbgrader={"grade_id": "low_rank_value-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(low_rank_value=low_rank_value)
probe.gives(
    torch.tensor([[7.0, -7.0]]),
    torch.tensor([[0.25, 0.75]]),
    VALUES[0],
    torch.tensor([[1.0, 1.0]]),
    torch.tensor([[1.0], [-1.0]]),
)

# %% nbgrader={"grade_id": "low_rank_value-values", "grade": true, "points": 1}
# Several queries, E above 1.
probe = probes(low_rank_value=low_rank_value)
probe.equals(
    probe.normal(2, 3).softmax(-1), probe.normal(3, 4), probe.normal(2, 4), probe.normal(4, 2)
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 3).softmax(-1), *(probe.normal(3, 3) for _ in range(3)))
probe.equals(
    probe.normal(5, 7).softmax(-1), probe.normal(7, 6), probe.normal(4, 6), probe.normal(6, 4)
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "low_rank_value-wide", "grade": true, "points": 2}
# A wide model in 1 MiB.
probe = probes(low_rank_value=low_rank_value)
wide = probe.normal(3, 4096), probe.normal(4, 4096), probe.normal(4096, 4)
probe.memory(probe.normal(3, 3).softmax(-1), *wide, below=2**20)

# %% nbgrader={"grade_id": "low_rank_value-gradient", "grade": true, "points": 1}
# Gradients reach all four arguments.
probe = probes(low_rank_value=low_rank_value)
parts = probe.normal(2, 3), probe.normal(3, 4), probe.normal(2, 4), probe.normal(4, 2)
probe.gradient(*parts, wrt=(0, 1, 2, 3))

# %% [markdown]
# ## 6. Repair: causal heads with two faults
#
# `broken_causal_heads` should be causal multi-head self-attention: `x` is `(B, L, D)`, the four matrices are those of exercise 1.
# It runs, its shapes are right, and with one head its result is right. It has two faults. Find them and write `fixed_causal_heads`.


# %% nbgrader={"grade_id": "broken_causal_heads", "locked": true}
def broken_causal_heads(x, w_q, w_k, w_v, w_o, num_heads):
    q, k, v = x @ w_q.T, x @ w_k.T, x @ w_v.T
    scale = q.shape[-1] ** -0.5
    q, k, v = (part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in (q, k, v))
    scores = scale * q @ k.mT  # (B, H, L, L)
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    heads = scores.masked_fill(~past, -torch.inf).softmax(dim=-1) @ v
    return heads.reshape(len(x), x.shape[1], -1) @ w_o.T  # (B, L, D)


# %% nbgrader={"grade_id": "fixed_causal_heads", "solution": true} attn_course={"forbidden": ["multi_head_attention_forward", "aten::*multi_head_attention*"]}
def fixed_causal_heads(x, w_q, w_k, w_v, w_o, num_heads):
    ### BEGIN SOLUTION
    q, k, v = x @ w_q.T, x @ w_k.T, x @ w_v.T
    q, k, v = (part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, H, L, L)
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    heads = scores.masked_fill(~past, -torch.inf).softmax(dim=-1) @ v
    return heads.transpose(1, 2).flatten(2) @ w_o.T  # (B, L, D)
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_causal_heads-no_scores", "grade": true, "points": 1}
# Every query is 0, so all allowed keys have equal weights, which hides one of the two faults.
probe = probes(fixed_causal_heads=fixed_causal_heads)
x = torch.tensor([[[2.0, 0.0], [0.0, 4.0], [6.0, 2.0]]])
probe.equals(x, 0 * ONE, ONE, ONE, ONE, 2)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 5, 6), torch.zeros(6, 6), *(probe.normal(6, 6) for _ in range(3)), 3)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_causal_heads-scores", "grade": true, "points": 2}
# Queries that differ.
probe = probes(fixed_causal_heads=fixed_causal_heads)
probe.equals(x, ONE, ONE, ONE, ONE, 2)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 5, 6), *(probe.normal(6, 6) for _ in range(4)), 3)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Write the test: is it causal?
#
# `check_causal(candidate)` takes another learner's function. For any `B` and `L`, `candidate(x)` maps `x` of shape `(B, L, 4)` to a result of shape `(B, L, ...)`. The test returns `True` if the result at every position depends only on that position and earlier ones, `False` otherwise.
#
# Your test must accept causal functions; each other function that it rejects earns a share of the points.
# A misplaced `True` in a mask is the simplest fault. Some functions use the future only at one position, only in one element, only in long sequences, or without a gradient.
# Allow for rounding.


# %% nbgrader={"grade_id": "check_causal", "solution": true}
def check_causal(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    for length in (2, 5, 24):
        x = torch.randn(2, length, 4, generator=draw)
        before = candidate(x)
        for seen in range(1, length, 1 if length < 10 else 5):  # so many positions stay
            for size in (3.0, -30.0):
                other = x.clone()
                other[:, seen:] += size * torch.rand(2, length - seen, 4, generator=draw)
                after = candidate(other)[:, :seen]
                if not torch.allclose(after, before[:, :seen], rtol=1e-3, atol=1e-4):
                    return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_causal-plain", "grade": true, "points": 1}
# Two causal functions, and three that are clearly not.
def mean_so_far(x):
    return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


probe = probes(check_causal=check_causal)
probe.judges(
    right=[mean_so_far, lambda x: 2 * x],
    wrong={
        "the mean of everything": lambda x: x.mean(1, keepdim=True).expand_as(x),
        "the next position": lambda x: x.roll(-1, 1),
        "the order is reversed": lambda x: x.flip(1),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_causal-mutants", "grade": true, "points": 8}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_causal=check_causal)
probe.judges(right=[mean_so_far], wrong={"the next position": lambda x: x.roll(-1, 1)}, points=8)


### BEGIN HIDDEN TESTS
def causal_heads(x, keep=None, late=False):
    scores = x @ x.mT / 2
    past = torch.ones(x.shape[1], x.shape[1]).tril(0 if keep is None else keep).bool()
    if late:
        return (scores.softmax(-1) * past) @ x
    return scores.masked_fill(~past, -torch.inf).softmax(-1) @ x


def zero_scores(x):
    past = torch.ones(x.shape[1], x.shape[1]).tril().bool()
    return (x @ x.mT / 2).masked_fill(~past, 0.0).softmax(-1) @ x


def first_leaks(x):
    first = x[:, :1] + 0.1 * x[:, -1:]
    return torch.cat([first, mean_so_far(x)[:, 1:]], dim=1)


def last_entry_leaks(x):
    y = mean_so_far(x)
    return torch.cat([y[..., :3], x.mean(1, keepdim=True).expand_as(x)[..., 3:]], dim=-1)


def by_fourier(x):
    # the running sum as a convolution: causal, with rounding at every position
    n, wide = 2 * x.shape[1], x.double()
    ones = torch.fft.rfft(wide.new_ones(x.shape[1], 1), n, dim=0)
    sums = torch.fft.irfft(torch.fft.rfft(wide, n, dim=1) * ones, n, dim=1)[:, : x.shape[1]]
    return sums.to(x.dtype)


probe.judges(
    right=[causal_heads, lambda x: x.cummax(1).values, by_fourier],
    wrong={
        "one step too far": lambda x: causal_heads(x, keep=1),
        "masked scores are 0": zero_scores,
        "the mask comes after the softmax": lambda x: causal_heads(x, late=True),
        "normalised over the whole sequence": lambda x: (
            mean_so_far(x) - 0.1 * x.mean(1, keepdim=True)
        ),
        "only the first position uses the end": first_leaks,
        "only the last element leaks": last_entry_leaks,
        "beyond sixteen positions": lambda x: mean_so_far(x) if x.shape[1] <= 16 else x.roll(-1, 1),
        "without a gradient": lambda x: (
            mean_so_far(x) + 0.1 * x.sum(1, keepdim=True).sign().detach()
        ),
    },
    points=8,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. One head can do two look-ups. How, and why did it fail with one of the 4 seeds? Why are sixteen heads no better than four on the task with four names?
# 2. Apply `apply_rope` to a query and a key at positions 3 and 5, then at positions 103 and 105. Compare the two products and explain. Do the same with two vectors to which you add `sinusoidal_positions`. What differs?
# 3. A colleague claims: "With ALiBi a model can use texts of any length." What does the chapter's experiment show, and what does it not show?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. One head can give the two names unequal weights, say two thirds and one third. Then the sum distinguishes the two numbers, if the following layers can decode it.
# Training has to find such weights. From some initialisations, or with a larger learning rate, it did not. With sixteen heads each query has two dimensions, too few to distinguish sixteen names; no head attends sharply.
# 2. The products of the rotated vectors are equal: rotating both by the same angle changes no product, so only the distance counts.
# With added sinusoids the product changes: it has four terms, and those of content times position depend on the absolute positions.
# 3. It shows that the bits per character do not get worse at eight times the length. They hardly improve either: the penalty suppresses distant keys, so the model behaves much as on short texts.
# Only a task that needs distant text could show that the model *uses* it.
#
# **Points**, one for each:
#
# - (1a) Unequal weights in one head, which training may not find.
# - (1b) Sixteen heads have too few dimensions each.
# - (2a) Equal products after the rotation, as only the distance counts.
# - (2b) Added sinusoids leave terms that depend on the absolute position.
# - (3a) Shown: it does not get worse.
# - (3b) Not shown: that the model uses distant text; a task that would show it.
