# %% [markdown]
# # Exercises: attention in tiles
#
# You write attention that never stores its matrix of scores: the softmax in one pass, attention in tiles, the tiles under a causal mask, and the backward pass.
# Most of it is plain PyTorch. The tests compare it with the ordinary formula and measure its memory.
# Exercise 7 is the kernel in Triton, run by Triton's interpreter.
#
# Shapes: `L` queries, `S` keys with one value each, `E` the width of queries and keys, `E_v` that of values.
# `...` is any number of leading axes (batch, heads), possibly none.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.
#
# Triton has wheels for Linux on x86-64 only. On other machines do exercise 7 elsewhere, such as in a cloud notebook; all others work.

# %% nbgrader={"grade_id": "setup", "locked": true}
import os

os.environ["TRITON_INTERPRET"] = "1"  # before the first import of Triton

import torch

from attn_course.probes import from_numpy, load_oracles, student

oracles, probes = load_oracles("17_flash_attention")

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:

    class NoTriton:
        def __getattr__(self, name):
            if name == "jit":  # the cell of the kernel can be run, what it defines cannot
                return lambda kernel: self
            if name == "constexpr":
                return int
            raise ModuleNotFoundError(
                "Triton has wheels for Linux on x86-64 only. Do exercise 7 on such a machine; "
                "the others need no Triton."
            )

        def __getitem__(self, grid):
            return self.launched

    triton = tl = NoTriton()

LN3 = 1.0986123  # e to this power is 3
# By hand: one query, three keys with the scores 0, ln 3 and 0, tiles of two keys.
ASKED = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
OFFERED = torch.tensor([[0.0, 0.0, 0.0, 0.0], [LN3, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
HANDED = torch.tensor([[5.0, 0.0], [0.0, 10.0], [5.0, 5.0]])


def far_apart(draw):
    # Scores within a row are close; those of different rows are thousands apart.
    level = torch.tensor([[60.0], [30.0], [0.0], [-60.0], [10.0]])
    query = torch.cat([level, draw.normal(5, 2)], dim=1)
    key = torch.cat([torch.full((7, 1), 60.0), draw.normal(7, 2)], dim=1)
    return query.double(), key.double()


# %% [markdown]
# ## 1. The online softmax
#
# The softmax of a row divides by the sum of its exponentials. To avoid overflow, it subtracts the maximum first.
# *One* pass over blocks of the row gives both, if you rescale the sum whenever the maximum grows.
#
# `online_logsumexp(scores, block_size)` returns $\log \sum_j e^{s_j}$ over the last axis.
#
# - `scores` is `(..., S)`, the result `(...)`, of the same dtype.
# - Read blocks of `block_size` scores from left to right, each block once. The last one may be shorter.
# - Keep one maximum and one sum per row, and no tensor of the size of `scores`: the memory is measured.
# - It handles every finite score, however large. A score of $-\infty$ adds nothing; a row of only $-\infty$ gives $-\infty$.
#
# By hand, `[0, ln 3, ln 4]` in blocks of two. First block: maximum $\ln 3$, sum $\frac13 + 1 = \frac43$.
# Second block: the maximum is now $\ln 4$. The old sum becomes $\frac43 \cdot \frac34 = 1$, and the new one is $1 + 1 = 2$. The result is $\ln 4 + \ln 2 = \ln 8$.
#
# `torch.logsumexp` and its relatives are not allowed.
#
# <details><summary>Hint</summary>
#
# $e^{s - m_{\text{new}}} = e^{s - m_{\text{old}}} \cdot e^{m_{\text{old}} - m_{\text{new}}}$. Start with the maximum $-\infty$ and the sum 0. What is $-\infty - (-\infty)$?
#
# </details>


# %% nbgrader={"grade_id": "online_logsumexp", "solution": true} attn_course={"forbidden": ["softmax", "log_softmax", "logsumexp", "logcumsumexp", "logaddexp", "scaled_dot_product_attention", "autograd", "aten::*softmax*", "aten::logsumexp", "aten::*logcumsumexp*", "aten::logaddexp*", "aten::*scaled_dot_product*"]}
def online_logsumexp(scores, block_size):
    ### BEGIN SOLUTION
    top = scores.new_full(scores.shape[:-1], -torch.inf)
    total = torch.zeros_like(top)
    for block in scores.split(block_size, dim=-1):
        new = torch.maximum(top, block.amax(dim=-1))
        shift = new.masked_fill(new == -torch.inf, 0.0)  # nothing but -inf so far
        total = total * (top - shift).exp() + (block - shift[..., None]).exp().sum(dim=-1)
        top = new
    return total.log() + top.masked_fill(top == -torch.inf, 0.0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "online_logsumexp-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(online_logsumexp=online_logsumexp)
probe.gives(torch.tensor([2.0794415]), torch.tensor([[0.0, LN3, 1.3862944]]), 2)

# %% nbgrader={"grade_id": "online_logsumexp-values", "grade": true, "points": 1}
# Several rows, whole blocks.
probe = probes(online_logsumexp=online_logsumexp)
probe.equals(torch.tensor([[3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 2.0, 3.0]]), 2)
### BEGIN HIDDEN TESTS
probe.equals(2 * probe.normal(2, 3, 12), 4)
probe.equals(2 * probe.normal(5, 6), 1)
probe.equals(2 * probe.normal(5, 6).double(), 6)
probe.equals(2 * probe.normal(8), 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "online_logsumexp-ragged", "grade": true, "points": 1}
# The last block is shorter.
probe = probes(online_logsumexp=online_logsumexp)
probe.equals(torch.tensor([[0.0, 0.0, 0.0, 0.0, 2.0]]), 2)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 7), 4)
probe.equals(probe.normal(3, 7), 6)
probe.equals(probe.normal(3, 5), 9)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "online_logsumexp-large", "grade": true, "points": 1}
# Scores whose exponentials overflow in float32, growing and falling from block to block.
probe = probes(online_logsumexp=online_logsumexp)
probe.equals(torch.tensor([[0.0, 1.0, 200.0, 201.0], [300.0, 301.0, 0.0, 1.0]]), 2)
### BEGIN HIDDEN TESTS
probe.equals(150 * probe.normal(6, 9), 2)
probe.equals(-400 + 9 * probe.normal(6, 9), 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "online_logsumexp-closed", "grade": true, "points": 1}
# A first block of minus infinity, and a whole row of it.
probe = probes(online_logsumexp=online_logsumexp)
inf = float("inf")
probe.equals(torch.tensor([[-inf, -inf, 1.0, 2.0], [-inf, -inf, -inf, -inf]]), 2)
### BEGIN HIDDEN TESTS
some = (probe.normal(6, 9) + torch.arange(9.0)).masked_fill(~probe.mask(6, 9), -inf)
some[2] = -inf
some[4, :3] = -inf
some[1, 6:] = -inf
probe.equals(some, 3)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "online_logsumexp-memory", "grade": true, "points": 1}
# 2,048 rows of 4,096 scores take 32 MiB. A block of 128 takes 1 MiB.
probe = probes(online_logsumexp=online_logsumexp)
probe.memory(probe.normal(2048, 4096), 128, below=6_000_000)

# %% [markdown]
# ## 2. Repair
#
# This attention reads its keys in tiles. It passes some tests with small scores and whole tiles, but it has two faults.
#
# ```python
# def fixed_streaming(query, key, value, tile_size):
#     scale = query.shape[-1] ** -0.5
#     top = torch.full(query.shape[:-1], -torch.inf)
#     total = torch.zeros(query.shape[:-1])
#     output = torch.zeros(*query.shape[:-1], value.shape[-1])
#     for j in range(0, key.shape[-2] // tile_size * tile_size, tile_size):
#         scores = query @ key[..., j : j + tile_size, :].mT * scale
#         top = torch.maximum(top, scores.amax(dim=-1))
#         weights = (scores - top[..., None]).exp()
#         rescale = (top - top).exp()
#         total = total * rescale + weights.sum(dim=-1)
#         output = output * rescale[..., None] + weights @ value[..., j : j + tile_size, :]
#     return output / total[..., None]
# ```
#
# Write `fixed_streaming(query, key, value, tile_size)`: attention without a mask. `query` is `(..., L, E)`, `key` `(..., S, E)`, `value` `(..., S, E_v)`, the output `(..., L, E_v)`. It attends to all keys for any `tile_size`. `torch.softmax`, `torch.logsumexp` and their relatives are not allowed.


# %% nbgrader={"grade_id": "fixed_streaming", "solution": true} attn_course={"forbidden": ["softmax", "log_softmax", "logsumexp", "logcumsumexp", "logaddexp", "scaled_dot_product_attention", "autograd", "aten::*softmax*", "aten::logsumexp", "aten::*logcumsumexp*", "aten::logaddexp*", "aten::*scaled_dot_product*"]}
def fixed_streaming(query, key, value, tile_size):
    ### BEGIN SOLUTION
    scale = query.shape[-1] ** -0.5
    top = query.new_full(query.shape[:-1], -torch.inf)
    total = torch.zeros_like(top)
    output = query.new_zeros(*query.shape[:-1], value.shape[-1])
    for j in range(0, key.shape[-2], tile_size):
        scores = query @ key[..., j : j + tile_size, :].mT * scale
        new = torch.maximum(top, scores.amax(dim=-1))
        weights = (scores - new[..., None]).exp()
        rescale = (top - new).exp()
        total = total * rescale + weights.sum(dim=-1)
        output = output * rescale[..., None] + weights @ value[..., j : j + tile_size, :]
        top = new
    return output / total[..., None]
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_streaming-fits", "grade": true, "points": 1}
# Four keys in tiles of two; the second tile has the larger score.
probe = probes(fixed_streaming=fixed_streaming)
probe.equals(torch.eye(2), torch.tensor([[0.0, 3.0], [1.0, 0], [2, 1], [4, 2]]), torch.eye(4), 2)
### BEGIN HIDDEN TESTS
probe.equals(3 * probe.normal(2, 5, 3), 2 * probe.normal(2, 8, 3), probe.normal(2, 8, 2), 2)
probe.equals(3 * probe.normal(5, 3), 2 * probe.normal(6, 3), probe.normal(6, 2), 1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_streaming-ragged", "grade": true, "points": 2}
# Three keys in tiles of two.
probe = probes(fixed_streaming=fixed_streaming)
probe.equals(torch.eye(2), torch.tensor([[0.0, 3.0], [1.0, 0.0], [2.0, 1.0]]), torch.eye(3), 2)
### BEGIN HIDDEN TESTS
probe.equals(3 * probe.normal(2, 5, 3), 2 * probe.normal(2, 7, 3), probe.normal(2, 7, 2), 3)
probe.equals(3 * probe.normal(5, 3), 2 * probe.normal(7, 3), probe.normal(7, 2), 9)
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# Left: attention weights computed from scores with your log-sum-exp, in blocks of 16. Right: the difference of your tiled attention from the plain formula, for several tile sizes.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

angle = torch.arange(48.0)[:, None] / 3
query = key = 3 * torch.cat([angle.sin(), angle.cos()], dim=1)
scores = query @ key.T / 2**0.5
tiles = [1, 2, 5, 16, 30, 48]
outputs = [fixed_streaming(query, key, torch.eye(48), tile) for tile in tiles]
errors = [float((output - scores.softmax(-1)).abs().max()) for output in outputs]
figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
axes[0].imshow((scores - online_logsumexp(scores, 16)[:, None]).exp())
axes[0].set(title="weights", xlabel="key", ylabel="query")
axes[1].bar([str(tile) for tile in tiles], errors)
axes[1].set(title="largest error", xlabel="tile size")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 3. Attention in tiles
#
# `tiled_attention(query, key, value, tile_size, is_causal=False)` returns the pair `(output, lse)`:
#
# $$O = \operatorname{softmax}\!\left(\frac{Q K^\top}{\sqrt E}\right) V, \qquad \ell_i = \log \sum_j e^{q_i \cdot k_j / \sqrt E} .$$
#
# - `query` is `(..., L, E)`, `key` `(..., S, E)`, `value` `(..., S, E_v)` with the same leading axes; `output` is `(..., L, E_v)` and `lse` `(..., L)`, all of one dtype.
# - Process queries and keys in tiles of `tile_size`. Neither `L` nor `S` need be a multiple of it, and the result depends on it only by rounding.
# - With `is_causal`, query `i` may attend to the keys `0` to `i`; both count from the left.
# - Only one tile of scores per leading index exists at a time: the memory is measured.
# - It handles every finite score.
#
# By hand, with $E = 4$ and tiles of two: the scores are $0, \ln 3$ and $0$.
# After the first tile the maximum is $\ln 3$, the sum $\frac13 + 1 = \frac43$, and the sum of values $\frac13 (5, 0) + (0, 10) = (\frac53, 10)$.
# The second tile does not change the maximum and adds $\frac13$ and $\frac13 (5, 5)$: sum $\frac53$, values $(\frac{10}3, \frac{35}3)$.
# The output is their quotient, $(2, 7)$, and $\ell = \ln 3 + \ln \frac53 = \ln 5$.
#
# `torch.softmax` and `torch.logsumexp` are not allowed, since they need whole rows, nor is `torch.logaddexp`, which hides the running maximum.


# %% nbgrader={"grade_id": "tiled_attention", "solution": true} attn_course={"forbidden": ["softmax", "log_softmax", "logsumexp", "logcumsumexp", "logaddexp", "scaled_dot_product_attention", "autograd", "aten::*softmax*", "aten::logsumexp", "aten::*logcumsumexp*", "aten::logaddexp*", "aten::*scaled_dot_product*"]}
def tiled_attention(query, key, value, tile_size, is_causal=False):
    ### BEGIN SOLUTION
    length, keys, scale = query.shape[-2], key.shape[-2], query.shape[-1] ** -0.5
    outputs, lses = [], []
    for i in range(0, length, tile_size):
        rows = query[..., i : i + tile_size, :] * scale
        top = rows.new_full(rows.shape[:-1], -torch.inf)
        total = torch.zeros_like(top)
        output = rows.new_zeros(*rows.shape[:-1], value.shape[-1])
        last = min(keys, i + tile_size) if is_causal else keys  # tiles behind it are closed
        for j in range(0, last, tile_size):
            scores = rows @ key[..., j : j + tile_size, :].mT  # the only tile of scores
            if is_causal and j + tile_size > i:
                row = torch.arange(i, i + scores.shape[-2])[:, None]
                scores = scores.masked_fill(torch.arange(j, j + scores.shape[-1]) > row, -torch.inf)
            new = torch.maximum(top, scores.amax(dim=-1))
            weights = (scores - new[..., None]).exp()
            rescale = (top - new).exp()
            total = total * rescale + weights.sum(dim=-1)
            output = output * rescale[..., None] + weights @ value[..., j : j + tile_size, :]
            top = new
        outputs.append(output / total[..., None])
        lses.append(top + total.log())
    return torch.cat(outputs, dim=-2), torch.cat(lses, dim=-1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "tiled_attention-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(tiled_attention=tiled_attention)
probe.gives((torch.tensor([[2.0, 7.0]]), torch.tensor([1.6094379])), ASKED, OFFERED, HANDED, 2)

# %% nbgrader={"grade_id": "tiled_attention-values", "grade": true, "points": 2}
# Four queries and four keys in tiles of two.
probe = probes(tiled_attention=tiled_attention)
probe.equals(torch.eye(4), torch.arange(16.0).reshape(4, 4) / 8, torch.eye(4)[:, :3], 2)
### BEGIN HIDDEN TESTS
probe.equals(2 * probe.normal(2, 6, 3), 2 * probe.normal(2, 9, 3), probe.normal(2, 9, 2), 3)
probe.equals(2 * probe.normal(8, 4), 2 * probe.normal(8, 4), probe.normal(8, 4).add(1), 1)
double = (2 * probe.normal(1, 3, 4, 5).double() for _ in range(3))
probe.equals(*double, 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "tiled_attention-ragged", "grade": true, "points": 2}
# Five queries and three keys: neither is a multiple of the tile.
probe = probes(tiled_attention=tiled_attention)
probe.equals(torch.ones(5, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 3.0]]), torch.eye(3), 2)
### BEGIN HIDDEN TESTS
parts = probe.normal(2, 7, 3), probe.normal(2, 5, 3), probe.normal(2, 5, 2)
for tile_size in (1, 3, 4, 6, 16):
    probe.equals(*parts, tile_size)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "tiled_attention-causal", "grade": true, "points": 2}
# Query i attends to keys 0 to i.
probe = probes(tiled_attention=tiled_attention)
probe.equals(torch.ones(4, 2), torch.eye(4)[:, :2] * 3, torch.eye(4), 2, is_causal=True)
### BEGIN HIDDEN TESTS
parts = probe.normal(2, 7, 3), 3 * probe.normal(2, 7, 3), probe.normal(2, 7, 2)
for tile_size in (1, 2, 3, 5, 7, 9):
    probe.equals(*parts, tile_size, is_causal=True)
probe.equals(parts[0], parts[1][:, :5], parts[2][:, :5], 2, is_causal=True)
probe.equals(parts[0][:, :4], parts[1], parts[2], 3, is_causal=True)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "tiled_attention-large", "grade": true, "points": 1}
# Scores of 0, 100 and 200, growing from tile to tile, and falling.
probe = probes(tiled_attention=tiled_attention)
up = torch.tensor([[0.0], [1.0], [2.0]])
probe.equals(torch.tensor([[100.0]]), up, torch.eye(3), 1)
probe.equals(torch.tensor([[100.0]]), up.flip(0), torch.eye(3), 1)
### BEGIN HIDDEN TESTS
probe.equals(*far_apart(probe), probe.normal(7, 3).double(), 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "tiled_attention-memory", "grade": true, "points": 2}
# 3,072 positions: the matrix of scores would take 36 MiB, inputs and output take 768 KiB each.
probe = probes(tiled_attention=tiled_attention)
many = [probe.normal(3072, 64) for _ in range(3)]
probe.memory(*many, 128, below=5_600_000)
### BEGIN HIDDEN TESTS
probe.memory(*many, 128, is_causal=True, below=5_600_000)
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Tiles under a causal mask
#
# A causal mask excludes half of all pairs. There are three kinds of tiles: those without an allowed pair are skipped, those with only allowed pairs need no mask, and those on the diagonal need it.
#
# `tile_kinds(query_length, key_length, query_tile, key_tile)` returns an integer tensor with a row for each tile of queries and a column for each tile of keys:
#
# - `0` where no pair of the tile is allowed, `2` where every pair is, `1` otherwise.
# - Query `i` may attend to the keys `0` to `i`. The last tiles may be smaller: only existing pairs count.
#
# By hand, four queries in tiles of two and four keys in tiles of one: key 0 is allowed for both queries 0 and 1, key 1 for one of them, and keys 2 and 3 for neither. So the first row is `[2, 1, 0, 0]`; the second one is `[2, 2, 2, 1]`.


# %% nbgrader={"grade_id": "tile_kinds", "solution": true}
def tile_kinds(query_length, key_length, query_tile, key_tile):
    ### BEGIN SOLUTION
    first_query = torch.arange(0, query_length, query_tile)[:, None]
    first_key = torch.arange(0, key_length, key_tile)
    last_query = (first_query + query_tile).clamp(max=query_length) - 1
    last_key = (first_key + key_tile).clamp(max=key_length) - 1
    some = first_key <= last_query  # the lower left corner of the tile
    every = last_key <= first_query  # the upper right one
    return some.long() + every.long()
    ### END SOLUTION


# %% nbgrader={"grade_id": "tile_kinds-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(tile_kinds=tile_kinds)
probe.gives(torch.tensor([[2, 1, 0, 0], [2, 2, 2, 1]]), 4, 4, 2, 1)

# %% nbgrader={"grade_id": "tile_kinds-square", "grade": true, "points": 1}
# Square tiles.
probe = probes(tile_kinds=tile_kinds)
probe.equals(6, 6, 2, 2)
### BEGIN HIDDEN TESTS
probe.equals(12, 12, 3, 3)
probe.equals(5, 5, 1, 1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "tile_kinds-oblong", "grade": true, "points": 1}
# Wide and high tiles.
probe = probes(tile_kinds=tile_kinds)
probe.equals(8, 8, 4, 2)
probe.equals(8, 8, 2, 4)
### BEGIN HIDDEN TESTS
probe.equals(12, 12, 2, 6)
probe.equals(12, 12, 6, 2)
probe.equals(12, 12, 3, 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "tile_kinds-ragged", "grade": true, "points": 2}
# The last tiles are smaller; more keys than queries, and fewer.
probe = probes(tile_kinds=tile_kinds)
probe.equals(5, 5, 2, 2)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 5. The backward pass
#
# The forward pass stores no weights. It stores $\ell$, which gives a tile of weights in one step: $P_{ij} = e^{s_{ij} - \ell_i}$.
#
# `flash_backward(query, key, value, output, lse, grad_output, tile_size)` returns the triple `(grad_query, grad_key, grad_value)`, where `grad_output` is the gradient of the loss with respect to the output:
#
# $$dV = P^\top dO, \qquad dP = dO\, V^\top, \qquad dS = P \circ (dP - D), \qquad D_i = \sum_j P_{ij}\, dP_{ij} = dO_i \cdot O_i,$$
#
# $$dQ = \frac{1}{\sqrt E}\, dS\, K, \qquad dK = \frac{1}{\sqrt E}\, dS^\top Q .$$
#
# - Shapes are those of exercise 3, without a mask. Each gradient has the shape of its tensor.
# - Use tiles of `tile_size` queries and keys; the last ones may be smaller. Only one tile of weights exists at a time: the memory is measured.
# - Write out the formulas: autograd is not allowed.
#
# By hand: one query $[2]$ and two keys $[0]$ and $[\frac12 \ln 3]$ ($E = 1$) have the scores $0$ and $\ln 3$, $\ell = \ln 4$ and the weights $\frac14, \frac34$.
# With the values $[0]$ and $[4]$ the output is $3$. For $dO = [1]$: $dV = (\frac14, \frac34)$, $dP = (0, 4)$, $D = 3$, $dS = (\frac14 (0 - 3), \frac34 (4 - 3)) = (-\frac34, \frac34)$.
# So $dQ = \frac34 \cdot \frac12 \ln 3 = 0.412$ and $dK = (-\frac32, \frac32)$.


# %% nbgrader={"grade_id": "flash_backward", "solution": true} attn_course={"forbidden": ["softmax", "log_softmax", "logsumexp", "logcumsumexp", "logaddexp", "scaled_dot_product_attention", "autograd", "aten::*softmax*", "aten::logsumexp", "aten::*logcumsumexp*", "aten::logaddexp*", "aten::*scaled_dot_product*"]}
def flash_backward(query, key, value, output, lse, grad_output, tile_size):
    ### BEGIN SOLUTION
    scale = query.shape[-1] ** -0.5
    mean = (grad_output * output).sum(dim=-1)  # D, one number for each query
    grads = [torch.zeros_like(part) for part in (query, key, value)]
    for j in range(0, key.shape[-2], tile_size):
        keys = slice(j, j + tile_size)
        for i in range(0, query.shape[-2], tile_size):
            rows = slice(i, i + tile_size)
            scores = query[..., rows, :] @ key[..., keys, :].mT * scale
            weights = (scores - lse[..., rows, None]).exp()
            grad_weights = grad_output[..., rows, :] @ value[..., keys, :].mT
            grad_scores = weights * (grad_weights - mean[..., rows, None]) * scale
            grads[0][..., rows, :] += grad_scores @ key[..., keys, :]
            grads[1][..., keys, :] += grad_scores.mT @ query[..., rows, :]
            grads[2][..., keys, :] += weights.mT @ grad_output[..., rows, :]
    return tuple(grads)
    ### END SOLUTION


# %% nbgrader={"grade_id": "flash_backward-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(flash_backward=flash_backward)
probe.gives(
    (
        torch.tensor([[0.41197958]]),
        torch.tensor([[-1.5], [1.5]]),
        torch.tensor([[0.25], [0.75]]),
    ),
    torch.tensor([[2.0]]),
    torch.tensor([[0.0], [LN3 / 2]]),
    torch.tensor([[0.0], [4.0]]),
    torch.tensor([[3.0]]),
    torch.tensor([1.3862944]),
    torch.tensor([[1.0]]),
    1,
)

# %% nbgrader={"grade_id": "flash_backward-values", "grade": true, "points": 3}
# Two queries, two keys.
probe = probes(flash_backward=flash_backward)
parts = torch.eye(2), torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [3.0, 2.0]])
probe.equals(*parts, *oracles.forward_of(*parts), torch.tensor([[1.0, 0.0], [2.0, -1.0]]), 1)
### BEGIN HIDDEN TESTS
parts = probe.normal(2, 6, 3), probe.normal(2, 4, 3), probe.normal(2, 4, 5)
probe.equals(*parts, *oracles.forward_of(*parts), probe.normal(2, 6, 5), 2)
parts = tuple(probe.normal(4, 4).double() for _ in range(3))
probe.equals(*parts, *oracles.forward_of(*parts), probe.normal(4, 4).double(), 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "flash_backward-ragged", "grade": true, "points": 2}
# Three queries and two keys in tiles of two.
probe = probes(flash_backward=flash_backward)
parts = torch.eye(3)[:, :2], torch.tensor([[1.0, 2.0], [0.0, 1.0]]), torch.eye(2)
probe.equals(
    *parts, *oracles.forward_of(*parts), torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]), 2
)
### BEGIN HIDDEN TESTS
parts = probe.normal(2, 7, 3), probe.normal(2, 5, 3), probe.normal(2, 5, 4)
for tile_size in (1, 3, 4, 6, 16):
    probe.equals(*parts, *oracles.forward_of(*parts), probe.normal(2, 7, 4), tile_size)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "flash_backward-large", "grade": true, "points": 1}
# Scores of 0, 100 and 200.
probe = probes(flash_backward=flash_backward)
parts = torch.tensor([[100.0]]), torch.tensor([[0.0], [1.0], [2.0]]), torch.eye(3)
probe.equals(*parts, *oracles.forward_of(*parts), torch.tensor([[1.0, 2.0, 4.0]]), 1)
### BEGIN HIDDEN TESTS
parts = (
    30 * probe.normal(5, 2).double(),
    9 * probe.normal(7, 2).double(),
    probe.normal(7, 3).double(),
)
probe.equals(*parts, *oracles.forward_of(*parts), probe.normal(5, 3).double(), 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "flash_backward-memory", "grade": true, "points": 1}
# 3,072 positions: the matrix of weights would take 36 MiB, each gradient takes 768 KiB.
probe = probes(flash_backward=flash_backward)
many = [probe.normal(3072, 64) for _ in range(3)]
probe.memory(*many, *oracles.forward_of(*many), probe.normal(3072, 64), 128, below=8_000_000)

# %% [markdown]
# ## 6. Write the test
#
# `check_flash(candidate)` takes a candidate for `tiled_attention(query, key, value, tile_size, is_causal=False)` and returns `True` if it keeps the contract of exercise 3 (its memory aside), `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Most wrong answers pass a test with small random numbers, whole tiles and one tile. Test rescaling *between* tiles, the last tile, the diagonal, and the second result.
# Allow for rounding. A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_flash", "solution": true}
def check_flash(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    for length, keys, tile_size, size in [(5, 7, 2, 1.0), (7, 7, 3, 9.0), (4, 4, 2, 900.0)]:
        query = size * torch.randn(2, length, 3, generator=draw, dtype=torch.float64)
        key = torch.randn(2, keys, 3, generator=draw, dtype=torch.float64)
        key = key * torch.linspace(0.1, 3, keys, dtype=torch.float64)[:, None]  # scores grow
        value = torch.randn(2, keys, 2, generator=draw, dtype=torch.float64)
        for is_causal in (False, True):
            scores = query @ key.mT / 3**0.5
            if is_causal:
                closed = torch.ones(length, keys, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(closed, -torch.inf)
            top = scores.amax(dim=-1, keepdim=True)
            parts = (scores - top).exp()
            total = parts.sum(dim=-1, keepdim=True)
            expected = parts @ value / total, (top + total.log())[..., 0]
            try:
                got = candidate(query, key, value, tile_size, is_causal)
                pairs = list(zip(got, expected, strict=True))
            except Exception:
                return False
            for mine, right in pairs:
                if mine.shape != right.shape or not torch.allclose(mine, right, atol=1e-6):
                    return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_flash-plain", "grade": true, "points": 1}
# A right candidate, and three that are clearly wrong.
def by_rows(query, key, value, tile_size, is_causal=False):
    return from_numpy(oracles.right_tiled)(query, key, value, tile_size, is_causal)


probe = probes(check_flash=check_flash)
probe.judges(
    right=[by_rows],
    wrong={
        "the mean of the values": lambda query, key, value, tile_size, is_causal=False: (
            0 * query[..., :1] + value.mean(dim=-2, keepdim=True),
            0 * query[..., 0],
        ),
        "twice the right output": lambda *x: (2 * by_rows(*x)[0], by_rows(*x)[1]),
        "half of the right sums": lambda *x: (by_rows(*x)[0], by_rows(*x)[1] / 2),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_flash-mutants", "grade": true, "points": 8}
# Wrong candidates that are harder to detect. (Which ones is hidden.)
probe = probes(check_flash=check_flash)
probe.judges(
    right=[by_rows],
    wrong={"twice the right output": lambda *x: (2 * by_rows(*x)[0], by_rows(*x)[1])},
    points=8,
)


### BEGIN HIDDEN TESTS
HARD = (
    *("no running maximum", "the output is not rescaled", "the sum is not rescaled", "no scale"),
    *("the last keys are dropped", "the mask is ignored", "the diagonal is masked"),
    *("counted from the right", "the maximum is missing in the log-sum-exp"),
)
tiled = probe.catalogue.of("tiled_attention")
wrong = {one.name: one.function for one in tiled if one.name in HARD}


def in_bits(*inputs):
    output, lse = by_rows(*inputs)
    return output, lse * 1.4426950408889634


probe.judges(
    right=[by_rows, tiled[0].right],
    wrong=wrong | {"the log-sum-exp is one of powers of two": in_bits},
    points=8,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. The causal kernel
#
# `flash_causal(query, key, value)` is causal attention in **one kernel**, with one program per tile of 16 queries.
#
# - `query` is `(L, E)`, `key` and `value` are `(S, E)`, float32; `E` is 16 or 32. Query `i` attends to the keys `0` to `i`. The result is `(L, E)`.
# - A program reads the keys 16 at a time, from the first tile to the last one to which its queries may attend. **It never reads a later tile**, which saves half of the work; a test checks it.
# - Neither `L` nor `S` need be a multiple of 16, and there may be more queries than keys. It handles every finite score.
# - The beginning and the end of the kernel are given: the tile of queries, the running maximum, sum and output, and the final division. Write the loop between them, and the function that launches the kernel with `BLOCK=16` and a result of zeros.
#
# By hand: three queries and three keys take one program and one tile. With the scores $0, \ln 3, 0$ in each row, the rows have one, two and three keys: the weights are $(1)$, $(\frac14, \frac34)$ and $(\frac15, \frac35, \frac15)$.
#
# <details><summary>Hint</summary>
#
# `tl.dot(q, tl.trans(k), input_precision="ieee")` multiplies tiles exactly, `tl.max(scores, axis=1)` and `tl.sum` reduce rows, `tl.where` selects. The end of the loop is a minimum of two numbers: `tl.minimum`.
#
# </details>


# %% nbgrader={"grade_id": "flash_kernel", "solution": true}
@triton.jit
def flash_kernel(query, key, value, output, L, S, scale, E: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    row, e = first + tl.arange(0, BLOCK), tl.arange(0, E)
    q = tl.load(query + row[:, None] * E + e[None, :], mask=row[:, None] < L, other=0.0)
    top = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mixture = tl.zeros([BLOCK, E], tl.float32)
    ### BEGIN SOLUTION
    for start in range(0, tl.minimum(first + BLOCK, S), BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column[:, None] < S
        k = tl.load(key + column[:, None] * E + e[None, :], mask=inside, other=0.0)
        v = tl.load(value + column[:, None] * E + e[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        allowed = (column[None, :] <= row[:, None]) & (column[None, :] < S)
        scores = tl.where(allowed, scores, -float("inf"))
        new = tl.maximum(top, tl.max(scores, axis=1))
        weights, rescale = tl.exp(scores - new[:, None]), tl.exp(top - new)
        total = total * rescale + tl.sum(weights, axis=1)
        mixture = mixture * rescale[:, None] + tl.dot(weights, v, input_precision="ieee")
        top = new
    ### END SOLUTION
    place = row[:, None] * E + e[None, :]
    tl.store(output + place, mixture / total[:, None], mask=row[:, None] < L)


# %% nbgrader={"grade_id": "flash_causal", "solution": true}
def flash_causal(query, key, value):
    ### BEGIN SOLUTION
    (L, E), S = query.shape, len(key)
    output = torch.zeros_like(query)
    parts = (part.contiguous() for part in (query, key, value))
    flash_kernel[(triton.cdiv(L, 16),)](*parts, output, L, S, E**-0.5, E=E, BLOCK=16)
    return output
    ### END SOLUTION


# %% nbgrader={"grade_id": "flash_causal-by_hand", "grade": true, "points": 1}
# The example of the text: the first element of a query is 4, and 1/sqrt(16) scales it to 1.
probe = probes(flash_causal=flash_causal)
query, key, value = torch.zeros(3, 16), torch.zeros(3, 16), torch.zeros(3, 16)
query[:, 0] = 4.0
key[1, 0] = LN3
value[:, 0] = torch.tensor([20.0, 40.0, 80.0])
expected = torch.zeros(3, 16)
expected[:, 0] = torch.tensor([20.0, 35.0, 44.0])
probe.gives(expected, query, key, value)

# %% nbgrader={"grade_id": "flash_causal-whole", "grade": true, "points": 1}
# Two whole tiles of queries and of keys.
probe = probes(flash_causal=flash_causal)
probe.equals(2 * probe.normal(32, 16), 2 * probe.normal(32, 16), probe.normal(32, 16))

# %% nbgrader={"grade_id": "flash_causal-ragged", "grade": true, "points": 2}
# Nothing is a multiple of 16: more queries than keys, and fewer.
probe = probes(flash_causal=flash_causal)
probe.equals(probe.normal(37, 16), probe.normal(21, 16), probe.normal(21, 16))
### BEGIN HIDDEN TESTS
probe.equals(2 * probe.normal(21, 16), 2 * probe.normal(37, 16), probe.normal(37, 16))
probe.equals(probe.normal(19, 32), probe.normal(19, 32), probe.normal(19, 32))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "flash_causal-large", "grade": true, "points": 1}
# Scores of 0, 100 and 200, growing from key to key, and falling.
probe = probes(flash_causal=flash_causal)
rising = torch.zeros(20, 16)
rising[:, 0] = torch.arange(20.0)
for keys in (rising, rising.flip(0)):
    probe.equals(400 * torch.eye(1, 16).expand(20, 16), keys, probe.normal(20, 16))

# %% nbgrader={"grade_id": "flash_causal-skipped", "grade": true, "points": 2}
# One tile of queries. Keys from 16 on are NaN, so reading them shows.
probe = probes(flash_causal=flash_causal)
poisoned = torch.ones(40, 16)
poisoned[16:] = float("nan")
probe.equals(torch.ones(16, 16), poisoned, poisoned)
### BEGIN HIDDEN TESTS
query, key, value = probe.normal(16, 16), probe.normal(55, 16), probe.normal(55, 16)
key[16:] = value[16:] = float("nan")
probe.equals(query, key, value)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "flash_causal-kernel", "grade": true, "points": 2}
# The kernel alone, over three tiles. Keys and values of the last ones are NaN, which shows in each
# program that reads a tile of later keys.
probe = probes(flash_causal=flash_causal)
probe.gives(torch.ones(1, 16), torch.zeros(1, 16), torch.zeros(1, 16), torch.ones(1, 16))
for tiles in (3, 2, 1):
    query, key, value = (probe.normal(48, 16) for _ in range(3))
    expected = probe.oracle(query, key, value)[: 16 * tiles]
    key[16 * tiles :] = value[16 * tiles :] = torch.nan
    given = query, key, value, torch.zeros(48, 16), 48, 48, 0.25
    found = student.launch(flash_kernel, (3,), *given, E=16, BLOCK=16, writes=3)[: 16 * tiles]
    assert not found.isnan().any(), "flash_kernel: a program reads a tile of keys of its future"
    torch.testing.assert_close(found, expected)

# %% [markdown]
# ## 8. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. Measure the peak memory of `tiled_attention` and of attention in one line, for lengths from 256 to 4,096. How does each grow, and how large is the difference in the backward pass?
# 2. Count the bytes that a tile size of 64 and one of 128 *queries* read and write, for 4,096 positions with E = 64 in 16 bits. What limits the tile size, and what does the size of the *key* tile change?
# 3. Your tiled attention is exact. Does it do fewer multiplications than the plain one, in the forward pass, in the backward pass, with a causal mask? Why is it faster on a GPU?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. The plain one grows with the square of the length (four times as much for twice the length), the tiled one with the output, linearly. In the backward pass autograd keeps the weights of the plain one; the tiled backward pass keeps inputs, output and one number per row, and recomputes the weights.
# 2. Every tile of queries reads all keys and values: 4096/64 = 64 times 1 MiB, against 32 times with 128. Queries, output and log-sum-exp are moved once. The bytes depend only on the query tile; the key tile changes how much must be on chip at once. On-chip memory limits both: queries, keys, values, output and scores of a tile must fit.
# 3. In the forward pass it does as many, plus a few for rescaling. In the backward pass it does more, since it recomputes the scores (five products instead of four). With a causal mask it does about half, as it skips tiles above the diagonal.
# On a GPU the plain version spends its time on moving the scores to memory and back, not on multiplications; tiling saves that traffic.
#
# **Points**, one for each:
#
# - (1a) Both growths measured.
# - (1b) What is kept for the backward pass.
# - (2a) Bytes for both tiles.
# - (2b) On-chip memory limits both; the key tile does not change the bytes.
# - (3a) The counts forward, backward and causal.
# - (3b) It saves traffic, not multiplications.
