# %% [markdown]
# # Exercises: windows in tiles, and reading a cache
#
# You write the operations of the chapter's kernels: the band of a product, windowed attention in tiles, the merge of partial results, and attention over pages.
# All of it is plain PyTorch. The tests compare it with the ordinary formula and measure its memory.
#
# Shapes: `L` positions, `S` keys, `E` the width of queries and keys, `E_v` that of values.
# `...` is any number of leading axes (batch, heads), possibly none.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course.probes import from_numpy, load_oracles

oracles, probes = load_oracles("18_banded_and_decode")

LN3 = 1.0986123  # e to this power is 3
ONE_KEY = torch.tensor([[0.0], [1.0], [2.0], [0.0], [0.0]])


def far_from_garbage(function, query, key, value, *sizes):
    # Queries 24 to the end; the keys and values 0 to 7 are NaN.
    key, value = key.clone(), value.clone()
    key[..., :8, :] = torch.nan
    value[..., :8, :] = torch.nan
    output, lse = function(query, key, value, *sizes)
    return output[..., 24:, :], lse[..., 24:]


def pool(draw, lengths, page_size, heads, size, entries, spare=2):
    # Keys, values and a table: pages in any order, and NaN in slots without a key.
    counts = [-(-length // page_size) for length in lengths]
    order = draw.permutation(sum(counts) + spare).tolist()
    keys = torch.full((len(order), page_size, heads, size), torch.nan)
    values = torch.full((len(order), page_size, heads, entries), torch.nan)
    table = torch.full((len(lengths), max([*counts, 1])), -1)
    for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        for number in range(count):
            table[row, number] = page = order.pop()
            filled = min(page_size, length - number * page_size)
            keys[page, :filled] = draw.normal(filled, heads, size)
            values[page, :filled] = draw.normal(filled, heads, entries)
    return keys, values, table, torch.tensor(lengths)


# %% [markdown]
# ## 1. Merge partial results
#
# A cache is split into pieces, and each piece gives its own output and log-sum-exp. They are merged by
#
# $$\ell = \log \sum_b e^{\ell_b}, \qquad o = \sum_b e^{\ell_b - \ell}\, o_b .$$
#
# `merge_partials(outputs, lses)` returns the pair `(output, lse)`.
#
# - `outputs` is `(pieces, ..., E_v)` and `lses` is `(pieces, ...)`. The results have no axis for the pieces and keep the dtype.
# - It handles all finite `lses`, however large: no exponent may be above 0.
# - A piece without a key has $\ell_b = -\infty$ and adds nothing. If no piece has a key, the output is 0 and the log-sum-exp $-\infty$.
#
# By hand, two pieces with the outputs $\frac{16}3$ and $\frac{16}5$ and the log-sum-exps $\ln 3$ and $\ln 5$: $\ell = \ln 8$, and $o = \frac38 \cdot \frac{16}3 + \frac58 \cdot \frac{16}5 = 2 + 2 = 4$.


# %% nbgrader={"grade_id": "merge_partials", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.kernels"]}
def merge_partials(outputs, lses):
    ### BEGIN SOLUTION
    top = lses.amax(dim=0)
    shift = top.masked_fill(top == -torch.inf, 0.0)  # a row without any key
    shares = (lses - shift).exp()
    total = shares.sum(dim=0)
    empty = total == 0
    whole = total.masked_fill(empty, 1.0)
    output = (shares[..., None] * outputs).sum(dim=0) / whole[..., None]
    return output, (shift + whole.log()).masked_fill(empty, -torch.inf)
    ### END SOLUTION


# %% nbgrader={"grade_id": "merge_partials-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(merge_partials=merge_partials)
probe.gives(
    (torch.tensor([4.0]), torch.tensor(2.0794415)),
    torch.tensor([[16 / 3], [16 / 5]]),
    torch.tensor([LN3, 1.6094379]),
)

# %% nbgrader={"grade_id": "merge_partials-values", "grade": true, "points": 2}
# Three pieces, two rows.
probe = probes(merge_partials=merge_partials)
probe.equals(
    torch.arange(12.0).reshape(3, 2, 2), torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 0.0]])
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(5, 2, 3, 4), 2 * probe.normal(5, 2, 3))
probe.equals(probe.normal(1, 3, 2), probe.normal(1, 3))
probe.equals(probe.normal(4, 3).double(), 3 * probe.normal(4).double())
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "merge_partials-large", "grade": true, "points": 1}
# Log-sum-exps of 1,500 and of -1,500 in double precision, where their exponentials overflow or vanish.
probe = probes(merge_partials=merge_partials)
lses = torch.tensor([[1500.0, -1500.0, 0.0], [1501.0, -1501.0, 900.0]]).double()
probe.equals(torch.arange(6.0).reshape(2, 3, 1).double(), lses)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(4, 5, 2).double(), 1500 * probe.normal(4, 5).double())
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "merge_partials-empty", "grade": true, "points": 2}
# Pieces without a key, and a row without any.
probe = probes(merge_partials=merge_partials)
none = -float("inf")
probe.equals(
    torch.tensor([[[2.0], [0.0]], [[0.0], [0.0]]]), torch.tensor([[1.0, none], [none, none]])
)
### BEGIN HIDDEN TESTS
lses = probe.normal(3, 5)
lses[0, 1] = lses[2, 1] = none
lses[:, 3] = none
probe.equals(probe.normal(3, 5, 2).masked_fill((lses == none)[..., None], 0.0), lses)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Attention over pages
#
# A server keeps the keys of all texts in one pool of pages. A table lists the pages of each text in order.
#
# `paged_attention(query, key_cache, value_cache, block_table, lengths)` returns the output `(B, H, E_v)` of one new query per head and text.
#
# - `query` is `(B, H, E)`. `key_cache` is `(pages, P, G, E)` and `value_cache` `(pages, P, G, E_v)`: a page has slots for `P` keys of `G` heads.
# - Key `j` of text `b` is `key_cache[block_table[b, j // P], j % P]`. `block_table` is `(B, most)` and `lengths` `(B,)`, both integers.
# - `H` is a multiple of `G`: query head `h` uses head `h // (H // G)` of the keys and values.
# - Scores are divided by $\sqrt E$. A text of length 0 gives 0.
# - Everything else is undefined: slots after the last key, unused pages, and table entries after the last page (which may be -1). The tests put NaN there in the caches.
#
# By hand: pages of two, a text of three keys whose table is $(2, 0)$. Its keys are page 2 slot 0, page 2 slot 1 and page 0 slot 0.
# With keys $0, \ln 3, 0$, values $5, 0, 10$ and the query 1 the weights are $\frac15, \frac35, \frac15$: the output is $1 + 0 + 2 = 3$.


# %% nbgrader={"grade_id": "paged_attention", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.kernels"]}
def paged_attention(query, key_cache, value_cache, block_table, lengths):
    ### BEGIN SOLUTION
    page_size, group = key_cache.shape[1], query.shape[1] // key_cache.shape[2]
    output = query.new_zeros(*query.shape[:2], value_cache.shape[-1])
    for b, length in enumerate(lengths.tolist()):
        if not length:
            continue
        place = torch.arange(length)
        page, slot = block_table[b, place // page_size], place % page_size
        keys, values = (
            cache[page, slot].repeat_interleave(group, dim=1).transpose(0, 1)  # (H, length, E)
            for cache in (key_cache, value_cache)
        )
        scores = keys @ query[b, :, :, None] / query.shape[-1] ** 0.5
        output[b] = (scores.softmax(dim=1) * values).sum(dim=1)
    return output
    ### END SOLUTION


# %% nbgrader={"grade_id": "paged_attention-by_hand", "grade": true, "points": 1}
# The example of the text; page 1 and slot 1 of page 0 are undefined.
probe = probes(paged_attention=paged_attention)
nan = float("nan")
probe.gives(
    torch.tensor([[[3.0]]]),
    torch.tensor([[[1.0]]]),
    torch.tensor([0.0, nan, nan, nan, 0.0, LN3]).reshape(3, 2, 1, 1),
    torch.tensor([10.0, nan, nan, nan, 5.0, 0.0]).reshape(3, 2, 1, 1),
    torch.tensor([[2, 0]]),
    torch.tensor([3]),
)

# %% nbgrader={"grade_id": "paged_attention-values", "grade": true, "points": 2}
# Two texts of full pages, two heads.
probe = probes(paged_attention=paged_attention)
cache = torch.arange(32.0).reshape(4, 2, 2, 2) / 8
probe.equals(
    torch.ones(2, 2, 2), cache, 1 - cache, torch.tensor([[3, 1], [0, 2]]), torch.tensor([4, 4])
)
### BEGIN HIDDEN TESTS
for lengths, heads in (((6, 6, 6), 1), ((8, 4), 3)):
    page_size = 3 if heads == 1 else 4
    parts = pool(probe, lengths, page_size, heads, 4, 3)
    probe.equals(2 * probe.normal(len(lengths), heads, 4), *parts)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "paged_attention-ragged", "grade": true, "points": 2}
# Texts of different lengths with partial last pages.
probe = probes(paged_attention=paged_attention)
cache = torch.arange(12.0).reshape(3, 4, 1, 1) / 4
probe.equals(
    torch.ones(2, 1, 1), cache, 1 - cache, torch.tensor([[2, 0], [1, -1]]), torch.tensor([5, 3])
)
### BEGIN HIDDEN TESTS
for lengths in ((7, 1, 10), (2, 5), (9, 4, 1, 3)):
    parts = pool(probe, lengths, 4, 2, 3, 5)
    probe.equals(2 * probe.normal(len(lengths), 2, 3), *parts)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "paged_attention-groups", "grade": true, "points": 2}
# Four query heads, two key heads.
probe = probes(paged_attention=paged_attention)
cache = torch.arange(8.0).reshape(2, 2, 2, 1) / 4
probe.equals(
    torch.arange(4.0)[None, :, None], cache, 1 - cache, torch.tensor([[1, 0]]), torch.tensor([4])
)
### BEGIN HIDDEN TESTS
for heads, group in ((2, 3), (3, 2), (1, 4)):
    parts = pool(probe, (6, 3), 3, heads, 4, 2)
    probe.equals(2 * probe.normal(2, heads * group, 4), *parts)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "paged_attention-empty", "grade": true, "points": 1}
# A text without keys next to one with two.
probe = probes(paged_attention=paged_attention)
cache = torch.arange(4.0).reshape(2, 2, 1, 1)
probe.equals(torch.ones(2, 1, 1), cache, 1 - cache, torch.tensor([[-1], [1]]), torch.tensor([0, 2]))
### BEGIN HIDDEN TESTS
parts = pool(probe, (0, 5, 0), 3, 2, 3, 2)
probe.equals(probe.normal(3, 4, 3), *parts)
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# Six keys of one text in pages of two: colours number the positions of the text, white is undefined. Your attention reads them through the table and gives the same output as attention over contiguous keys, in one piece or merged from two.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

draw = torch.Generator().manual_seed(0)
key, value = torch.randn(2, 6, 1, 4, generator=draw)
query = torch.randn(1, 1, 4, generator=draw)
table = torch.tensor([[3, 0, 2]])  # three pages of two keys, in this order
pages = torch.full((2, 4, 2, 1, 4), torch.nan)
pages[0][table[0]], pages[1][table[0]] = key.view(3, 2, 1, 4), value.view(3, 2, 1, 4)
scores = query[0] @ key[:, 0].T / 2
halves = [scores[:, :3].softmax(-1) @ value[:3, 0], scores[:, 3:].softmax(-1) @ value[3:, 0]]
lses = [scores[:, :3].logsumexp(-1), scores[:, 3:].logsumexp(-1)]
outputs = {
    "from pages": paged_attention(query, *pages, table, torch.tensor([6]))[0, 0],
    "in a row": (scores.softmax(-1) @ value[:, 0])[0],
    "joined": merge_partials(torch.stack(halves), torch.stack(lses))[0][0],
}
figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
place = torch.full((4, 2), torch.nan)
place[table[0]] = torch.arange(6.0).view(3, 2)
axes[0].imshow(place)
axes[0].set(title="pool", xlabel="slot", ylabel="page", xticks=[0, 1], yticks=range(4))
for number, (name, output) in enumerate(outputs.items()):
    axes[1].bar(torch.arange(4) + 0.25 * number, output, width=0.25, label=name)
axes[1].set(title="output", xticks=range(4))
axes[1].legend()
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 3. The band of a product
#
# A window needs a few diagonals of the matrix $Q K^\top$. Longformer's kernel stores only these, with a row per query and a column per *distance*.
#
# `banded_scores(query, key, half)` returns a tensor `(..., L, 2 * half + 1)`:
#
# $$b_{ic} = q_i \cdot k_{i + c - h} \quad (h = \text{half}), \qquad -\infty \text{ where there is no such key.}$$
#
# - `query` and `key` are `(..., L, E)` with the same leading axes. The middle column is for the query's own position. The products are not scaled.
# - `half` may be 0 or larger than `L`.
# - No tensor of size `L × L` exists at any time: the memory is measured.
# - Gradients reach queries and keys.
#
# By hand, queries $1, 1, 2$ and keys $1, 10, 100$ ($E = 1$), `half` 1:
# query 0 has no earlier key; its own key gives 1 and the next one 10, so its row is $(-\infty, 1, 10)$. The others are $(1, 10, 100)$ and $(20, 200, -\infty)$.


# %% nbgrader={"grade_id": "banded_scores", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.kernels"]}
def banded_scores(query, key, half):
    ### BEGIN SOLUTION
    length = query.shape[-2]
    band = query.new_full((*query.shape[:-1], 2 * half + 1), -torch.inf)
    for away in range(-min(half, length - 1), min(half, length - 1) + 1):
        # one diagonal: the queries with a key at this distance
        rows = slice(max(0, -away), length - max(0, away))
        keys = slice(max(0, away), length - max(0, -away))
        band[..., rows, half + away] = (query[..., rows, :] * key[..., keys, :]).sum(-1)
    return band
    ### END SOLUTION


# %% nbgrader={"grade_id": "banded_scores-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(banded_scores=banded_scores)
inf = float("inf")
probe.gives(
    torch.tensor([[-inf, 1.0, 10.0], [1.0, 10.0, 100.0], [20.0, 200.0, -inf]]),
    torch.tensor([[1.0], [1.0], [2.0]]),
    torch.tensor([[1.0], [10.0], [100.0]]),
    1,
)

# %% nbgrader={"grade_id": "banded_scores-values", "grade": true, "points": 2}
# Five positions, a window of three.
probe = probes(banded_scores=banded_scores)
probe.equals(torch.eye(5), torch.arange(25.0).reshape(5, 5), 1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 9, 4), probe.normal(2, 3, 9, 4), 2)
probe.equals(probe.normal(7, 3).double(), probe.normal(7, 3).double(), 3)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "banded_scores-edges", "grade": true, "points": 1}
# A window of one key, and windows wider than the text.
probe = probes(banded_scores=banded_scores)
probe.equals(torch.ones(3, 2), torch.eye(3)[:, :2], 0)
probe.equals(torch.ones(3, 2), torch.eye(3)[:, :2], 4)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 5, 3), probe.normal(2, 5, 3), 5)
probe.equals(probe.normal(1, 4), probe.normal(1, 4), 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "banded_scores-gradient", "grade": true, "points": 1}
# The gradients of queries and keys. A window of one key: the band is the product, row by row.
probe = probes(banded_scores=banded_scores)
probe.gradient(torch.eye(3), torch.arange(9.0).reshape(3, 3), 0, wrt=(0, 1))


### BEGIN HIDDEN TESTS
def from_the_table(query, key, half):
    # From the matrix of all pairs, where the numeric oracle would subtract infinities.
    i = torch.arange(query.shape[-2])[:, None]
    place = i + torch.arange(-half, half + 1)
    inside = (place >= 0) & (place < len(i))
    return (query @ key.mT)[..., i, place.clamp(0, len(i) - 1)].masked_fill(~inside, -torch.inf)


probe = probes(banded_scores=banded_scores, oracle=from_the_table)
probe.gradient(probe.normal(2, 6, 3).double(), probe.normal(2, 6, 3).double(), 2, wrt=(0, 1))
probe.gradient(probe.normal(3, 2).double(), probe.normal(3, 2).double(), 4, wrt=(0, 1))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "banded_scores-memory", "grade": true, "points": 1}
# 4,096 positions and 17 columns: the band takes 272 KiB, the matrix of all pairs 64 MiB.
probe = probes(banded_scores=banded_scores)
probe.memory(probe.normal(4096, 16), probe.normal(4096, 16), 8, below=10_000_000)

# %% [markdown]
# ## 4. A window in tiles
#
# Language models use causal windows: query $i$ attends to keys $i - W + 1$ to $i$.
# Process one tile of queries at a time. A tile of $T$ queries that begins at query $t$ needs only keys $t - W + 1$ to $t + T - 1$. Compute their scores, mask those outside each window, and take the softmax.
#
# `sliding_window_forward(query, key, value, window_size, tile_size)` returns the pair `(output, lse)`:
#
# $$O_i = \sum_j \operatorname{softmax}_j\!\left(\frac{q_i \cdot k_j}{\sqrt E}\right) v_j, \qquad \ell_i = \log \sum_j e^{q_i \cdot k_j / \sqrt E}, \qquad i - W < j \le i .$$
#
# - `query`, `key` are `(..., L, E)`, `value` is `(..., L, E_v)`; `output` is `(..., L, E_v)` and `lse` `(..., L)`, all of one dtype. `window_size` is $W \ge 1$.
# - A tile has `tile_size` queries; the last one may have fewer. The result depends on `tile_size` only by rounding.
# - A tile that begins at query $t$ reads no key or value before position $t - W - 2T$, where $T$ is `tile_size`: the test puts NaN there.
# - Only the scores of one tile exist at any time: the test with `L = 8192`, `E = E_v = 16`, a window of 16 and tiles of 512 allows 8,000,000 bytes.
# - It handles every finite score.
#
# torch's own `scaled_dot_product_attention` is not allowed.
#
# By hand, $E = 1$, all queries 1, keys $0, \ln 3, 0$, values $0, 4, 8$, $W = 2$.
# Query 0 attends to itself: output 0, $\ell = \ln 1 = 0$. Query 1 has the scores $0$ and $\ln 3$: weights $\frac14, \frac34$, output 3, $\ell = \ln 4$.
# Query 2 has the scores $\ln 3$ and $0$: output $\frac34 \cdot 4 + \frac14 \cdot 8 = 5$, $\ell = \ln 4$.


# %% nbgrader={"grade_id": "sliding_window_forward", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "aten::*scaled_dot_product*", "import attn_course.functional", "import attn_course.kernels"]}
def sliding_window_forward(query, key, value, window_size, tile_size):
    ### BEGIN SOLUTION
    length, scale = query.shape[-2], query.shape[-1] ** -0.5
    outputs, lses = [], []
    for first in range(0, length, tile_size):
        last = min(first + tile_size, length)
        start = max(0, first - window_size + 1)  # the first key that any query of the tile sees
        rows, keys = torch.arange(first, last)[:, None], torch.arange(start, last)
        scores = query[..., first:last, :] @ key[..., start:last, :].mT * scale
        seen = (keys <= rows) & (rows - keys < window_size)
        scores = scores.masked_fill(~seen, -torch.inf)
        lses.append(scores.logsumexp(dim=-1))
        outputs.append(scores.softmax(dim=-1) @ value[..., start:last, :])
    return torch.cat(outputs, dim=-2), torch.cat(lses, dim=-1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "sliding_window_forward-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(sliding_window_forward=sliding_window_forward)
probe.gives(
    (torch.tensor([[0.0], [3.0], [5.0]]), torch.tensor([0.0, 1.3862944, 1.3862944])),
    torch.ones(3, 1),
    torch.tensor([[0.0], [LN3], [0.0]]),
    torch.tensor([[0.0], [4.0], [8.0]]),
    2,
    1,
)

# %% nbgrader={"grade_id": "sliding_window_forward-values", "grade": true, "points": 2}
# Four positions, a window of two, tiles of two.
probe = probes(sliding_window_forward=sliding_window_forward)
probe.equals(torch.eye(4), torch.arange(16.0).reshape(4, 4) / 8, torch.eye(4)[:, :3], 2, 2)
### BEGIN HIDDEN TESTS
three = probe.normal(2, 8, 3), 2 * probe.normal(2, 8, 3), probe.normal(2, 8, 2)
probe.equals(*three, 3, 4)
probe.equals(*three, 4, 2)
probe.equals(*(x.double() for x in three), 3, 1)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sliding_window_forward-ragged", "grade": true, "points": 2}
# Five positions in tiles of two; a window of one key, and one wider than the text.
probe = probes(sliding_window_forward=sliding_window_forward)
for window_size in (1, 3, 9):
    probe.equals(torch.ones(5, 2), torch.eye(5)[:, :2] * 3, torch.eye(5), window_size, 2)
### BEGIN HIDDEN TESTS
three = probe.normal(2, 7, 3), 2 * probe.normal(2, 7, 3), probe.normal(2, 7, 4)
for window_size, tile_size in ((1, 3), (2, 3), (5, 3), (4, 16), (6, 5), (20, 2)):
    probe.equals(*three, window_size, tile_size)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sliding_window_forward-large", "grade": true, "points": 1}
# Scores of 0 to 400.
probe = probes(sliding_window_forward=sliding_window_forward)
probe.equals(torch.full((5, 1), 100.0), torch.arange(5.0)[:, None], torch.eye(5), 3, 2)
### BEGIN HIDDEN TESTS
steep = torch.arange(9.0).flip(0)[:, None].double()
probe.equals(torch.full((9, 1), 90.0).double(), steep, probe.normal(9, 3).double(), 4, 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sliding_window_forward-skips", "grade": true, "points": 2}
# 40 positions. The keys and values 0 to 7 are NaN; the queries from 24 on do not depend on them.
probe = probes(sliding_window_forward=sliding_window_forward)
ones = torch.ones(40, 2)
probe.equals(ones, ones, torch.arange(40.0)[:, None], 5, 4, via=far_from_garbage)
### BEGIN HIDDEN TESTS
three = probe.normal(2, 40, 3), probe.normal(2, 40, 3), probe.normal(2, 40, 2)
for window_size, tile_size in ((4, 4), (1, 6), (7, 3)):
    probe.equals(*three, window_size, tile_size, via=far_from_garbage)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sliding_window_forward-memory", "grade": true, "points": 1}
# 8,192 positions: the output takes 512 KiB, the scores of a tile of queries and all keys 16 MiB.
probe = probes(sliding_window_forward=sliding_window_forward)
probe.memory(*(probe.normal(8192, 16) for _ in range(3)), 16, 512, below=8_000_000)

# %% [markdown]
# ## 5. Repair
#
# This attention of one query splits its keys into pieces. It is right for equal scores and whole pieces, but it has two faults.
#
# ```python
# def fixed_split(query, key, value, pieces):
#     size = key.shape[-2] // pieces
#     outputs = []
#     for piece in range(pieces):
#         part = slice(piece * size, (piece + 1) * size)
#         scores = key[..., part, :] @ query[..., None] / query.shape[-1] ** 0.5
#         outputs.append((scores.softmax(dim=-2) * value[..., part, :]).sum(dim=-2))
#     return torch.stack(outputs).mean(dim=0)
# ```
#
# Write `fixed_split(query, key, value, pieces)`: `query` is `(..., E)`, `key` `(..., S, E)`, `value` `(..., S, E_v)`; the output is `(..., E_v)`. It attends to all keys for any number of `pieces`, which may exceed the number of keys.
# torch's own `scaled_dot_product_attention` is not allowed.


# %% nbgrader={"grade_id": "fixed_split", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "aten::*scaled_dot_product*", "import attn_course.functional", "import attn_course.kernels"]}
def fixed_split(query, key, value, pieces):
    ### BEGIN SOLUTION
    size = -(-key.shape[-2] // pieces)  # rounded up: the last piece is smaller
    outputs, lses = [], []
    for first in range(0, key.shape[-2], size):
        part = slice(first, first + size)
        scores = key[..., part, :] @ query[..., None] / query.shape[-1] ** 0.5
        outputs.append((scores.softmax(dim=-2) * value[..., part, :]).sum(dim=-2))
        lses.append(scores.logsumexp(dim=-2))  # (..., 1)
    shares = torch.stack(lses).softmax(dim=0)
    return (shares * torch.stack(outputs)).sum(dim=0)
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_split-fits", "grade": true, "points": 1}
# Four keys in two pieces; one score is larger than the others.
probe = probes(fixed_split=fixed_split)
probe.equals(torch.tensor([1.0, 0.0]), torch.eye(4)[:, :2] * 3, torch.eye(4), 2)
### BEGIN HIDDEN TESTS
probe.equals(3 * probe.normal(2, 3), 2 * probe.normal(2, 8, 3), probe.normal(2, 8, 4), 4)
probe.equals(3 * probe.normal(3), 2 * probe.normal(6, 3), probe.normal(6, 2), 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_split-ragged", "grade": true, "points": 2}
# Five keys in two pieces, and in more pieces than keys.
probe = probes(fixed_split=fixed_split)
probe.equals(torch.tensor([1.0, 0.0]), torch.eye(5)[:, :2] * 3, torch.eye(5), 2)
### BEGIN HIDDEN TESTS
parts = 3 * probe.normal(2, 3), 2 * probe.normal(2, 7, 3), probe.normal(2, 7, 4)
for pieces in (2, 3, 5, 9):
    probe.equals(*parts, pieces)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Write the test
#
# `check_paged(candidate)` takes a candidate for `paged_attention(query, key_cache, value_cache, block_table, lengths)` and returns `True` if it keeps the contract of exercise 2, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Most wrong answers pass a test with one text, one head and pages in order. Test the table, the lengths and the groups of heads.
# Allow for rounding. A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_paged", "solution": true}
def check_paged(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    lengths, page_size, heads, group = [7, 3, 8, 0], 4, 2, 3
    order = torch.randperm(9, generator=draw).tolist()
    keys = torch.full((9, page_size, heads, 5), torch.nan, dtype=torch.float64)
    values = keys.clone()[..., :3]
    query = 3 * torch.randn(4, heads * group, 5, generator=draw, dtype=torch.float64)
    expected = torch.zeros(4, heads * group, 3, dtype=torch.float64)
    table = torch.full((4, 3), -1)
    for b, length in enumerate(lengths):
        key = torch.randn(length, heads, 5, generator=draw, dtype=torch.float64)
        value = torch.randn(length, heads, 3, generator=draw, dtype=torch.float64)
        for j in range(length):
            if j % page_size == 0:
                table[b, j // page_size] = order.pop()
            keys[table[b, j // page_size], j % page_size] = key[j]
            values[table[b, j // page_size], j % page_size] = value[j]
        for h in range(heads * group if length else 0):
            weights = (key[:, h // group] @ query[b, h] / 5**0.5).softmax(dim=0)
            expected[b, h] = weights @ value[:, h // group]
    try:
        got = candidate(query, keys, values, table, torch.tensor(lengths))
    except Exception:
        return False
    return got.shape == expected.shape and torch.allclose(got, expected, atol=1e-6)
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_paged-plain", "grade": true, "points": 1}
# A right candidate, and three that are clearly wrong.
def by_loops(*inputs):
    return from_numpy(oracles.right_paged)(*inputs)


probe = probes(check_paged=check_paged)
probe.judges(
    right=[by_loops],
    wrong={
        "all zeros": lambda query, keys, values, table, lengths: (
            0 * query[..., :1].expand(*query.shape[:2], values.shape[-1])
        ),
        "twice the right output": lambda *x: 2 * by_loops(*x),
        "one number more": lambda *x: torch.cat([by_loops(*x), by_loops(*x)[..., :1]], dim=-1),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_paged-mutants", "grade": true, "points": 8}
# Wrong candidates that are harder to detect. (Which ones is hidden.)
probe = probes(check_paged=check_paged)
probe.judges(
    right=[by_loops],
    wrong={"twice the right output": lambda *x: 2 * by_loops(*x)},
    points=8,
)


### BEGIN HIDDEN TESTS
HARD = (
    *("pages in the order of the pool", "the table of the first text", "no scale"),
    *("the last page counts as a whole", "the last page does not count", "the first page alone"),
    *("the newest key is missing", "heads are dealt out in turn", "NaN where there is no key"),
    *("the first head of keys for all", "the pages of a text in reverse"),
)
paged = probe.catalogue.of("paged_attention")
probe.judges(
    right=[by_loops, paged[0].right],
    wrong={one.name: one.function for one in paged if one.name in HARD},
    points=8,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. A model has 32 query heads, 8 key heads and E = 128, in 16 bits. How many bytes does one layer read for one new token after 16,384 tokens, how many operations does it do, and what limits its speed on an H100? What would 32 key heads change?
# 2. First 8, then 128 programs read the keys of that layer. What stays the same, what is added, and which rule merges the parts? What goes wrong if the parts are averaged?
# 3. A server has pages of 16 tokens and could use pages of 256. Name an advantage of each. Measure or calculate the unused share for texts of about 400 tokens.

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. Keys and values: 2 · 8 · 16384 · 128 · 2 bytes = 67 MB. Each of 32 heads does two multiplications and two additions for 16384 · 128 numbers: 4 · 32 · 16384 · 128 = 268 million operations, 4 per byte. An H100 can do 295 per byte that it reads, so memory limits: 20 µs at 3,350 GB/s. 32 key heads need four times the bytes for the same operations.
# 2. The same keys are read, each once. An output and a log-sum-exp per part and query head are added, written once and read once, and a second, small kernel. The parts are merged with the shares exp(lse of the part − lse of all). An average gives parts with small and large scores the same weight.
# 3. On average half a page of each text is unused: 8 of about 408 slots, 2 %, against 128 of about 528, 24 %. Large pages need a smaller table and fewer look-ups and are read in longer runs; small pages waste less, and texts with the same beginning can share more of them.
#
# **Points**, one for each:
#
# - (1a) Bytes and operations.
# - (1b) What limits, and what 32 heads change.
# - (2a) What stays the same and what is added.
# - (2b) The rule of merging, and the fault of an average.
# - (3a) One reason for each size.
# - (3b) The unused shares.
