# %% [markdown]
# # Exercises: hashing and low rank
#
# You write the hash of Reformer and the attention inside its chunks, Linformer's attention to mixtures, linear attention as a recurrent network, and the delta rule.
#
# Shapes: `L` positions or queries, `S` keys, `E` the width of queries and keys, `F` features, `E_v` the width of values, `R` rounds of hashing.
# `...` is any number of leading axes, possibly none.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course.probes import load_oracles

oracles, probes = load_oracles("15_hashing_and_low_rank")

# %% [markdown]
# ## 1. Hash
#
# `hash_buckets(vectors, rotations)` returns the bucket of each vector in each round:
#
# $$h(x) = \operatorname{argmax}\,[\,x R;\; -x R\,] .$$
#
# - `vectors` is `(..., L, E)`, `rotations` is `(R, E, b/2)`: one matrix for each round.
# - The result is `(..., R, L)`, integers from 0 to `b - 1`. Bucket `n` below `b/2` is the direction of column `n`; bucket `n + b/2` is the opposite direction.
#
# By hand, with the two axes as directions: $(3, 1)$ is in bucket 0, $(1, 3)$ in 1, $(-3, 1)$ in 2, $(1, -3)$ in 3.


# %% nbgrader={"grade_id": "hash_buckets", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.nn"]}
def hash_buckets(vectors, rotations):
    ### BEGIN SOLUTION
    along = vectors.unsqueeze(-3) @ rotations  # (..., R, L, b/2)
    return torch.cat([along, -along], dim=-1).argmax(dim=-1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "hash_buckets-by_hand", "grade": true, "points": 1}
# Four vectors of the plane, and the axes as directions.
probe = probes(hash_buckets=hash_buckets)
probe.gives(
    torch.tensor([[0, 1, 2, 3]]),
    torch.tensor([[3.0, 1.0], [1.0, 3.0], [-3.0, 1.0], [1.0, -3.0]]),
    torch.eye(2)[None],
)

# %% nbgrader={"grade_id": "hash_buckets-rounds", "grade": true, "points": 2}
# Several rounds with different directions.
probe = probes(hash_buckets=hash_buckets)
probe.equals(
    torch.tensor([[2.1, 2.0], [2.0, 2.1], [-1.0, 0.5]]),
    torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.8, -0.6], [0.6, 0.8]]]),
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(23, 5), probe.normal(3, 5, 4))
probe.equals(probe.normal(7, 4), probe.normal(7, 4, 2))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "hash_buckets-heads", "grade": true, "points": 1}
# Leading axes: batch and heads.
probe = probes(hash_buckets=hash_buckets)
probe.equals(probe.normal(2, 3, 11, 4), probe.normal(2, 4, 3))

# %% [markdown]
# ## 2. Linformer attention
#
# `linformer_attention(query, key, value, mix_keys, mix_values)` is
#
# $$\operatorname{softmax}\!\Big(\frac{Q\,(M_K K)^\top}{\sqrt E}\Big)\, M_V V .$$
#
# - `query` is `(..., L, E)`, `key` is `(..., S, E)`, `value` is `(..., S, E_v)`; `mix_keys` and `mix_values` are `(K, N)` with `N >= S`.
# - Only their first `S` columns are used.
# - The result is `(..., L, E_v)`. Gradients reach all five arguments.
# - The test with `L = S = 4096`, `E = 8` and `K = 4` allows 4 MiB.
#
# By hand: one mixture of two keys. Its weight is one for every query. The values 3 and 5, mixed by $(\frac14, 2)$, give 10.75.


# %% nbgrader={"grade_id": "linformer_attention", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.nn"]}
def linformer_attention(query, key, value, mix_keys, mix_values):
    ### BEGIN SOLUTION
    length = key.shape[-2]
    short_keys, short_values = mix_keys[:, :length] @ key, mix_values[:, :length] @ value
    scores = query @ short_keys.mT / query.shape[-1] ** 0.5  # (..., L, K)
    return scores.softmax(dim=-1) @ short_values
    ### END SOLUTION


# %% nbgrader={"grade_id": "linformer_attention-by_hand", "grade": true, "points": 1}
# One mixture, as in the text.
probe = probes(linformer_attention=linformer_attention)
mixture = torch.tensor([[0.25, 2.0]])
two = torch.tensor([[3.0], [5.0]])
probe.gives(torch.tensor([[10.75]]), torch.tensor([[1.0]]), two, two, mixture, mixture)

# %% nbgrader={"grade_id": "linformer_attention-values", "grade": true, "points": 2}
# Several mixtures, and leading axes.
probe = probes(linformer_attention=linformer_attention)
probe.equals(
    probe.normal(3, 4),
    probe.normal(5, 4),
    probe.normal(5, 2),
    probe.normal(2, 5),
    probe.normal(2, 5),
)
### BEGIN HIDDEN TESTS
probe.equals(
    *(probe.normal(2, 3, 5, 4), probe.normal(2, 3, 7, 4), probe.normal(2, 3, 7, 6)),
    *(probe.normal(3, 7), probe.normal(3, 7)),
)
probe.equals(*(probe.normal(4, 4) for _ in range(5)))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "linformer_attention-shorter", "grade": true, "points": 1}
# A text shorter than the width of the matrices.
probe = probes(linformer_attention=linformer_attention)
probe.equals(
    probe.normal(3, 4),
    probe.normal(5, 4),
    probe.normal(5, 2),
    probe.normal(2, 9),
    probe.normal(2, 9),
)

# %% nbgrader={"grade_id": "linformer_attention-long", "grade": true, "points": 1}
# 4096 positions in 4 MiB.
probe = probes(linformer_attention=linformer_attention)
probe.memory(
    *(probe.normal(4096, 8) for _ in range(3)),
    probe.normal(4, 4096),
    probe.normal(4, 4096),
    below=2**22,
)

# %% nbgrader={"grade_id": "linformer_attention-gradient", "grade": true, "points": 1}
# Gradients reach all five arguments.
probe = probes(linformer_attention=linformer_attention)
probe.gradient(
    *(probe.normal(3, 3), probe.normal(4, 3), probe.normal(4, 2)),
    *(probe.normal(2, 4), probe.normal(2, 4)),
    wrt=(0, 1, 2, 3, 4),
)

# %% [markdown]
# ## 3. Linear attention, a recurrent network
#
# `linear_attention(query, key, value, memory, total)` returns `(output, memory, total)`:
#
# $$S_i = S_{i-1} + k_i\, v_i^\top, \qquad z_i = z_{i-1} + k_i, \qquad o_i = \frac{q_i^\top S_i}{q_i \cdot z_i} .$$
#
# - `query` and `key` are features, `(..., L, F)`, all positive; `value` is `(..., L, E_v)`.
# - `memory` $S$ is `(..., F, E_v)` and `total` $z$ is `(..., F)`: the state before the first position. The returned state is the one after the last position, so a text may be processed at once, in parts, or token by token, with the same outputs.
# - No argument is changed. Gradients reach all five.
# - You may loop over the positions. The test with `L = 4096` and `F = E_v = 8` allows 20 MiB; a matrix of weights alone needs 64.
#
# By hand, with one feature: queries 1 and 1, keys 1 and 3, values 2 and 6, and a memory of zeros. The outputs are 2 and $(2 + 18)/4 = 5$; memory 20, total 4.


# %% nbgrader={"grade_id": "linear_attention", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.nn"]}
def linear_attention(query, key, value, memory, total):
    ### BEGIN SOLUTION
    rows = []
    for q, k, v in zip(query.unbind(-2), key.unbind(-2), value.unbind(-2), strict=True):
        memory = memory + k.unsqueeze(-1) * v.unsqueeze(-2)
        total = total + k
        found = (q.unsqueeze(-2) @ memory).squeeze(-2)
        rows.append(found / (q * total).sum(-1, keepdim=True))
    return torch.stack(rows, dim=-2), memory, total
    ### END SOLUTION


# %% nbgrader={"grade_id": "linear_attention-by_hand", "grade": true, "points": 1}
# Two positions and one feature, as in the text.
probe = probes(linear_attention=linear_attention)
probe.gives(
    (torch.tensor([[2.0], [5.0]]), torch.tensor([[20.0]]), torch.tensor([4.0])),
    torch.tensor([[1.0], [1.0]]),
    torch.tensor([[1.0], [3.0]]),
    torch.tensor([[2.0], [6.0]]),
    torch.zeros(1, 1),
    torch.zeros(1),
)

# %% nbgrader={"grade_id": "linear_attention-values", "grade": true, "points": 2}
# Several features and leading axes, from a memory of zeros.
probe = probes(linear_attention=linear_attention)
probe.equals(
    *(probe.uniform(5, 3) + 0.1, probe.uniform(5, 3) + 0.1, probe.normal(5, 2)),
    *(torch.zeros(3, 2), torch.zeros(3)),
)
### BEGIN HIDDEN TESTS
probe.equals(
    *(probe.uniform(2, 3, 7, 4) + 0.1, probe.uniform(2, 3, 7, 4) + 0.1, probe.normal(2, 3, 7, 5)),
    *(torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4)),
)
probe.equals(
    *(probe.uniform(4, 4) + 0.1, probe.uniform(4, 4) + 0.1, probe.normal(4, 4)),
    *(torch.zeros(4, 4), torch.zeros(4)),
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "linear_attention-goes_on", "grade": true, "points": 2}
# One token, with a memory of earlier tokens.
probe = probes(linear_attention=linear_attention)
probe.equals(
    *(probe.uniform(1, 3) + 0.1, probe.uniform(1, 3) + 0.1, probe.normal(1, 2)),
    *(probe.normal(3, 2), probe.uniform(3) + 0.5),
)
### BEGIN HIDDEN TESTS
probe.equals(
    *(probe.uniform(2, 4, 3) + 0.1, probe.uniform(2, 4, 3) + 0.1, probe.normal(2, 4, 2)),
    *(probe.normal(2, 3, 2), probe.uniform(2, 3) + 0.5),
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "linear_attention-long", "grade": true, "points": 1}
# 4096 positions in 20 MiB.
probe = probes(linear_attention=linear_attention)
probe.memory(
    *(probe.uniform(4096, 8) + 0.1, probe.uniform(4096, 8) + 0.1, probe.normal(4096, 8)),
    *(torch.zeros(8, 8), torch.zeros(8)),
    below=20 * 2**20,
)

# %% nbgrader={"grade_id": "linear_attention-gradient", "grade": true, "points": 1}
# Gradients reach all five arguments.
probe = probes(linear_attention=linear_attention)
probe.gradient(
    *(probe.uniform(4, 3) + 0.2, probe.uniform(4, 3) + 0.2, probe.normal(4, 2)),
    *(probe.normal(3, 2), probe.uniform(3) + 0.5),
    wrt=(0, 1, 2, 3, 4),
)

# %% [markdown]
# ## Look
#
# Which vectors share a bucket: eight directions, three noisy copies of each. One round misses some similar pairs, several rounds find more.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

draw = torch.Generator().manual_seed(0)
vectors = torch.randn(8, 4, generator=draw).repeat_interleave(3, 0)
vectors += 0.2 * torch.randn(24, 4, generator=draw)
buckets = hash_buckets(vectors, torch.randn(8, 4, 4, generator=draw))  # 8 rounds, 8 buckets
together = (buckets[:, :, None] == buckets[:, None]).float()
query = key = vectors.exp()
weights, memory, total = linear_attention(
    query, key, torch.eye(24), torch.zeros(4, 24), torch.zeros(4)
)
figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
shown = {
    "one round: same bucket": together[0],
    "share of 8 rounds": together.mean(0),
    "weights of linear attention": weights,
}
for ax, (title, one) in zip(axes, shown.items(), strict=True):
    ax.imshow(one)
    ax.set(title=title, xlabel="key", ylabel="query")
plt.show()
print("linear attention remembers 24 vectors in", memory.numel() + total.numel(), "numbers")

# %% [markdown]
# # More

# %% [markdown]
# ## 4. Attention inside sorted chunks
#
# `bucket_attention(query, value, buckets, chunk_size)` is one round of Reformer's attention for one head.
#
# - `query` is `(L, E)`, `value` is `(L, E_v)`, `buckets` has one integer per position. `L` is a multiple of `chunk_size`.
# - Keys are the queries, divided by their length. Scores are $q_i \cdot k_j$, without a scale.
# - Sort the positions by bucket and, inside a bucket, by position; split them into chunks. A position attends to the positions of its own bucket in its own chunk and in the previous one. The first chunk has no previous one.
# - A position attends to itself only if it has no other key; then its output is its own value.
# - The result `(L, E_v)` is in the order of the text. Gradients reach `query` and `value`.
# - The `L` by `L` matrix of scores is never held in memory. The test with `L = 2048` and chunks of 16 allows 3 MiB; that matrix alone needs 16.
#
# By hand: three positions in buckets 0, 1, 0 and one chunk. The first and the last attend to each other, the second only to itself. The values 1, 10, 100 give 100, 10, 1.
#
# <details><summary>Hint 1</summary>
#
# `torch.argsort(..., stable=True)` gives the order, and `argsort` of the order inverts it.
#
# </details>
# <details><summary>Hint 2</summary>
#
# With the chunks on a separate axis, `torch.cat([roll of the chunks by one, the chunks], dim=1)` joins each with the previous one. Mask the last chunk for the first one.
#
# </details>


# %% nbgrader={"grade_id": "bucket_attention", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.nn"]}
def bucket_attention(query, value, buckets, chunk_size):
    ### BEGIN SOLUTION
    order = buckets.argsort(stable=True)
    key = query / query.norm(dim=-1, keepdim=True)
    q, k, v, b, place = (
        x[order].unflatten(0, (-1, chunk_size))
        for x in (query, key, value, buckets, torch.arange(len(query)))
    )
    k, v, b_k, seen = (torch.cat([x.roll(1, 0), x], dim=1) for x in (k, v, b, place))
    allowed = (b[:, :, None] == b_k[:, None]) & (place[:, :, None] != seen[:, None])
    allowed[0, :, :chunk_size] = False
    lonely = ~allowed.any(-1, keepdim=True)
    scores = (q @ k.mT).masked_fill(~allowed & ~lonely, -torch.inf)
    output = (scores.softmax(-1) * ~lonely) @ v + lonely * value[order].unflatten(
        0, (-1, chunk_size)
    )
    return output.flatten(0, 1)[order.argsort()]
    ### END SOLUTION


# %% nbgrader={"grade_id": "bucket_attention-by_hand", "grade": true, "points": 1}
# Three positions and one chunk, as in the text.
probe = probes(bucket_attention=bucket_attention)
probe.gives(
    torch.tensor([[100.0], [10.0], [1.0]]),
    torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]),
    torch.tensor([[1.0], [10.0], [100.0]]),
    torch.tensor([0, 1, 0]),
    3,
)

# %% nbgrader={"grade_id": "bucket_attention-chunks", "grade": true, "points": 3}
# Several chunks.
probe = probes(bucket_attention=bucket_attention)
probe.equals(
    torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0], [1.0, 1.0]]),
    torch.tensor([[1.0], [2.0], [4.0], [8.0]]),
    torch.tensor([1, 1, 1, 0]),
    2,
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(12, 3), probe.normal(12, 2), probe.integers(0, 3, 12), 3)
probe.equals(probe.normal(15, 4), probe.normal(15, 3), probe.integers(0, 3, 15), 5)
probe.equals(probe.normal(8, 2), probe.normal(8, 2), torch.tensor([0, 0, 1, 0, 0, 0, 0, 2]), 2)
probe.equals(probe.normal(8, 2), probe.normal(8, 2), torch.zeros(8, dtype=torch.long), 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "bucket_attention-long", "grade": true, "points": 2}
# 2048 positions in chunks of 16, in 3 MiB.
probe = probes(bucket_attention=bucket_attention)
probe.memory(
    *(probe.normal(2048, 8), probe.normal(2048, 8), probe.integers(0, 16, 2048), 16),
    below=3 * 2**20,
)

# %% nbgrader={"grade_id": "bucket_attention-gradient", "grade": true, "points": 1}
# Gradients reach queries and values, also at a position without other keys.
probe = probes(bucket_attention=bucket_attention)
probe.gradient(
    probe.normal(6, 3), probe.normal(6, 2), torch.tensor([0, 1, 0, 2, 0, 1]), 3, wrt=(0, 1)
)

# %% [markdown]
# ## 5. The delta rule
#
# `delta_rule(query, key, value, beta, memory)` returns `(output, memory)`:
#
# $$S_t = S_{t-1}\,(I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top, \qquad o_t = S_t\, q_t .$$
#
# - `query` and `key` are `(..., L, E)`, `value` is `(..., L, E_v)`, `beta` is `(..., L)`, `memory` $S$ is `(..., E_v, E)`. Here values come first.
# - Keys are used as given: the caller has set their length.
# - No argument is changed. Gradients reach all five.
#
# By hand, with $E = E_v = 1$: queries and keys 1, values 3 and 5, $\beta$ 1 and $\frac12$, a memory of zero. The outputs are 3 and $3 + \frac12 (5 - 3) = 4$; the final memory is 4.


# %% nbgrader={"grade_id": "delta_rule", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.nn"]}
def delta_rule(query, key, value, beta, memory):
    ### BEGIN SOLUTION
    rows = []
    for t in range(query.shape[-2]):
        k = key[..., t, :]
        said = (memory @ k.unsqueeze(-1)).squeeze(-1)  # (..., E_v)
        change = beta[..., t, None] * (value[..., t, :] - said)
        memory = memory + change.unsqueeze(-1) * k.unsqueeze(-2)
        rows.append((memory @ query[..., t, :, None]).squeeze(-1))
    return torch.stack(rows, dim=-2), memory
    ### END SOLUTION


# %% nbgrader={"grade_id": "delta_rule-by_hand", "grade": true, "points": 1}
# Two values under one key, as in the text.
probe = probes(delta_rule=delta_rule)
one = torch.tensor([[1.0], [1.0]])
probe.gives(
    (torch.tensor([[3.0], [4.0]]), torch.tensor([[4.0]])),
    *(one, one, torch.tensor([[3.0], [5.0]]), torch.tensor([1.0, 0.5]), torch.zeros(1, 1)),
)

# %% nbgrader={"grade_id": "delta_rule-values", "grade": true, "points": 2}
# Wider vectors, leading axes, and a nonzero memory.
probe = probes(delta_rule=delta_rule)
probe.equals(
    *(probe.normal(4, 3), 0.5 * probe.normal(4, 3), probe.normal(4, 2)),
    *(probe.uniform(4), probe.normal(2, 3)),
)
### BEGIN HIDDEN TESTS
probe.equals(
    *(probe.normal(2, 3, 5, 4), 0.5 * probe.normal(2, 3, 5, 4), probe.normal(2, 3, 5, 7)),
    *(probe.uniform(2, 3, 5), probe.normal(2, 3, 7, 4)),
)
probe.equals(
    *(probe.normal(3, 3), 0.5 * probe.normal(3, 3), probe.normal(3, 3)),
    *(probe.uniform(3), probe.normal(3, 3)),
)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "delta_rule-gradient", "grade": true, "points": 1}
# Gradients reach all five arguments.
probe = probes(delta_rule=delta_rule)
probe.gradient(
    *(probe.normal(3, 3), 0.5 * probe.normal(3, 3), probe.normal(3, 2)),
    *(probe.uniform(3), probe.normal(2, 3)),
    wrt=(0, 1, 2, 3, 4),
)

# %% [markdown]
# ## 6. Repair: merging rounds
#
# `broken_merge` should merge the results of several rounds of hashing: `outputs` is `(R, L, E_v)`, `lses` is `(R, L)`, the log-sum-exp of each round and position. Every position has a key in every round.
# It runs, and its shapes are right, but it has two faults. Find them and write `fixed_merge`.


# %% nbgrader={"grade_id": "broken_merge", "locked": true}
def broken_merge(outputs, lses):
    parts = lses.exp()  # (R, L)
    shares = parts / parts.sum(dim=-1, keepdim=True)
    return (shares.unsqueeze(-1) * outputs).sum(dim=0)  # (L, E_v)


# %% nbgrader={"grade_id": "fixed_merge", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.nn"]}
def fixed_merge(outputs, lses):
    ### BEGIN SOLUTION
    shares = lses.softmax(dim=0)  # (R, L)
    return (shares.unsqueeze(-1) * outputs).sum(dim=0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_merge-small", "grade": true, "points": 1}
# Small scores, which hide one of the two faults.
probe = probes(fixed_merge=fixed_merge)
probe.equals(
    torch.tensor([[[1.0], [2.0], [3.0]], [[5.0], [6.0], [7.0]]]),
    torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]),
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5, 2), probe.normal(3, 5))
probe.equals(probe.normal(4, 4, 4), probe.normal(4, 4))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_merge-large", "grade": true, "points": 2}
# Large scores.
probe = probes(fixed_merge=fixed_merge)
probe.equals(torch.tensor([[[1.0]], [[5.0]]]), torch.tensor([[200.0], [199.0]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 5, 2), probe.normal(3, 5) + 150.0)
probe.equals(probe.normal(3, 5, 2), probe.normal(3, 5) - 200.0)
probe.equals(probe.normal(2, 2, 2), torch.tensor([[300.0, -300.0], [301.0, -301.0]]))
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Write the test
#
# `check_linear(candidate)` takes another learner's causal linear attention, `candidate(query, key, value)` with positive features `(L, F)` and values `(L, E_v)`, from a memory of zeros, which returns the output alone, `(L, E_v)`. The test returns `True` if the candidate is right, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# A test with one position, or with equal values, accepts most wrong answers. Allow for rounding. A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_linear", "solution": true}
def check_linear(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    for length in (1, 7, 70):
        query, key = torch.rand(2, length, 3, generator=draw, dtype=torch.float64) + 0.1
        value = torch.randn(length, 2, generator=draw, dtype=torch.float64)
        weights = (query @ key.T).tril()
        expected = weights @ value / weights.sum(-1, keepdim=True)
        try:
            got = candidate(query, key, value)
        except Exception:
            return False
        if got.shape != expected.shape or not torch.allclose(got.double(), expected, atol=1e-5):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_linear-plain", "grade": true, "points": 1}
# A right answer, and three that are clearly wrong.
def by_table(query, key, value):
    weights = (query @ key.T).tril()
    return weights @ value / weights.sum(-1, keepdim=True)


probe = probes(check_linear=check_linear)
probe.judges(
    right=[by_table],
    wrong={
        "always 0": lambda query, key, value: 0 * value,
        "the values themselves": lambda query, key, value: value.clone(),
        "twice the right result": lambda *inputs: 2 * by_table(*inputs),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_linear-mutants", "grade": true, "points": 6}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_linear=check_linear)
probe.judges(
    right=[by_table], wrong={"twice the right result": lambda *x: 2 * by_table(*x)}, points=6
)


### BEGIN HIDDEN TESTS
def from_weights(change, divide=lambda w: w.sum(-1, keepdim=True)):
    def attention(query, key, value):
        weights = change(query @ key.T)
        return weights @ value / divide(weights)

    return attention


def count(weights):
    return torch.arange(1, len(weights) + 1, dtype=weights.dtype)[:, None]


probe.judges(
    right=[by_table, lambda query, key, value: by_table(3 * query, 5 * key, value)],
    wrong={
        "the future is read": from_weights(lambda w: w),
        "itself excluded": from_weights(
            lambda w: w.tril(-1) + 1e-9 * torch.eye(len(w), dtype=w.dtype)
        ),
        "softmax instead of features": lambda q, k, v: (
            (q @ k.T).masked_fill(torch.ones(len(q), len(q)).triu(1) > 0, -torch.inf).softmax(-1)
            @ v
        ),
        "divided by the number of keys": from_weights(torch.tril, count),
        "the sum is not divided": from_weights(torch.tril, lambda w: 1.0),
        "the memory is reset after 64 positions": from_weights(
            lambda w: w.tril() * (torch.arange(len(w))[:, None] // 64 == torch.arange(len(w)) // 64)
        ),
    },
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. Hash vectors in groups and independent ones with 1, 4 and 16 rounds. Show the kept shares of pairs and of attention, compared with random buckets. For which attention is LSH a good idea?
# 2. The first 16 singular values of an attention matrix make up half of the sum. A colleague concludes that training has made it low-rank. Which control do you ask for, and which result would support the claim?
# 3. Store 4, 8 and 32 pairs in a memory of 8 × 8 by linear attention and by the delta rule, then store a second value under each key. What does each of them forget, and why?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. The kept share of pairs grows equally for both, from a few percent to nearly half. For groups a few rounds keep nearly all of the weight; for independent directions the kept weight lies between random buckets and the best keys.
# LSH is a good idea where the weight is on nearly parallel vectors, as shared queries and keys of one length encourage, but not where the largest scores come from wide angles.
# 2. Random scores of several sizes with the same mask and softmax, and the same model before training. The claim holds only if the share of the trained weights clearly exceeds all of these; in the chapter it does not.
# 3. With 8 orthogonal keys both are right. More than 8 keys cannot be orthogonal: the sum reads a mixture, and the delta rule keeps late pairs better than early ones.
# With a second value, the sum returns both values added, while the delta rule replaces the old one, since it writes the difference to the stored value.
#
# **Points**, one for each:
#
# - (1a) Both shares compared with random buckets.
# - (1b) Where LSH is a good idea.
# - (2a) Random scores or the untrained model as a control.
# - (2b) The result that would support the claim.
# - (3a) What each forgets beyond 8 keys.
# - (3b) What each does with a second value.
