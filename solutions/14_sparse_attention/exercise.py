# %% [markdown]
# # Exercises: sparse attention
#
# You write the masks of the chapter, the receptive field of stacked layers, a band without a table of all pairs, and attention with global positions.
#
# Shapes: `L` positions, `E` elements of a query or key, `Ev` of a value, `N` layers. There is one head and one example throughout.
# In a mask, `mask[i, j]` says whether position `i` may attend to position `j`.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import numpy as np
import torch

from attn_course.probes import from_numpy, load_oracles

oracles, probes = load_oracles("14_sparse_attention")
NOBODY = torch.zeros(5, dtype=torch.bool)

# %% [markdown]
# ## 1. A window with gaps, and global positions
#
# `dilated_mask(length, window_size, dilation, is_global)` is a table `(length, length)` of booleans: True where
#
# $$|i - j| \le \tfrac{W-1}{2}\,d \ \text{ and } d \text{ divides } i - j, \quad \text{or } g_i, \quad \text{or } g_j .$$
#
# - `window_size` $W$ is odd and counts the position itself, `dilation` $d$ is at least 1, `is_global` $g$ is `(length,)`, booleans.
# - Nothing is causal here: a window has two sides.
#
# By hand: 5 positions, $W = 3$, $d = 2$, none of them global. Position 0 attends to 0 and 2; position 2 attends to 0, 2 and 4.


# %% nbgrader={"grade_id": "dilated_mask", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.masks"]}
def dilated_mask(length, window_size, dilation, is_global):
    ### BEGIN SOLUTION
    i = torch.arange(length)
    away = i[:, None] - i
    near = (away.abs() <= window_size // 2 * dilation) & (away % dilation == 0)
    return near | is_global[:, None] | is_global
    ### END SOLUTION


# %% nbgrader={"grade_id": "dilated_mask-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(dilated_mask=dilated_mask)
probe.gives(
    torch.tensor(
        [
            [True, False, True, False, False],
            [False, True, False, True, False],
            [True, False, True, False, True],
            [False, True, False, True, False],
            [False, False, True, False, True],
        ]
    ),
    5,
    3,
    2,
    NOBODY,
)

# %% nbgrader={"grade_id": "dilated_mask-windows", "grade": true, "points": 1}
# Other windows and dilations, no global position.
probe = probes(dilated_mask=dilated_mask)
probe.equals(7, 5, 1, torch.zeros(7, dtype=torch.bool))
### BEGIN HIDDEN TESTS
probe.equals(11, 5, 3, torch.zeros(11, dtype=torch.bool))
probe.equals(4, 1, 2, torch.zeros(4, dtype=torch.bool))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "dilated_mask-global", "grade": true, "points": 1}
# Global positions attend to all, and all attend to them.
probe = probes(dilated_mask=dilated_mask)
probe.equals(6, 3, 1, torch.tensor([True, False, False, False, False, False]))
### BEGIN HIDDEN TESTS
probe.equals(9, 3, 2, torch.arange(9) % 5 == 2)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. How far do stacked layers reach?
#
# `receptive_field(masks)` takes one mask for each layer, `(N, L, L)` booleans, the *first* layer first, and gives a table `(L, L)`: True where the output at `i` of the last layer can depend on the input at `j`.
#
# It can if a path leads from `i` down to `j`: in the last layer, `i` attends to some position; in the layer below, that position attends to another one, and so on. There is no residual connection here: a position that may not attend to itself does not keep its own input.
#
# By hand, two layers and two positions: in the first layer both positions attend only to position 0, in the last layer only to position 1. The result is True in column 0 and False in column 1.


# %% nbgrader={"grade_id": "receptive_field", "solution": true} attn_course={"forbidden": ["import attn_course.analysis"]}
def receptive_field(masks):
    ### BEGIN SOLUTION
    reach = masks[0]
    for mask in masks[1:]:
        reach = mask.float() @ reach.float() > 0
    return reach
    ### END SOLUTION


# %% nbgrader={"grade_id": "receptive_field-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(receptive_field=receptive_field)
probe.gives(
    torch.tensor([[True, False], [True, False]]),
    torch.tensor([[[True, False], [True, False]], [[False, True], [False, True]]]),
)

# %% nbgrader={"grade_id": "receptive_field-windows", "grade": true, "points": 1}
# One layer, then the same window three times.
probe = probes(receptive_field=receptive_field)
WINDOW = (torch.arange(9)[:, None] - torch.arange(9)).abs() <= 1
probe.equals(WINDOW[None])
probe.equals(WINDOW.expand(3, 9, 9))

# %% nbgrader={"grade_id": "receptive_field-layers", "grade": true, "points": 2}
# Layers that differ.
probe = probes(receptive_field=receptive_field)
CAUSAL = torch.ones(6, 6, dtype=torch.bool).tril() & (WINDOW[:6, :6])
probe.equals(torch.stack([CAUSAL, torch.eye(6).roll(2, 0).bool()]))
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 3. The band without the square
#
# `band_attention(query, key, value, half_width)`: position `i` attends to the positions with $|i - j| \le$ `half_width`, scaled by $1/\sqrt{E}$, with a softmax over those that exist.
#
# - `query` and `key` are `(L, E)`, `value` is `(L, Ev)`, the result is `(L, Ev)`. `half_width` may be 0, or larger than the text.
# - **Make no table of $L \times L$**, not even of booleans. The memory test has `L = 3000`, `E = Ev = 4` and `half_width = 4`, and allows 5.2 MB; one table of all pairs in float32 takes 36 MB.
# - Gradients reach all three.
#
# <details><summary>Hint</summary>
#
# Make a row of `2 * half_width + 1` positions for each query; `key[positions]` selects their keys. A position outside of the text needs an index that exists and a score that does not count.
#
# </details>


# %% nbgrader={"grade_id": "band_attention", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.nn"]}
def band_attention(query, key, value, half_width):
    ### BEGIN SOLUTION
    length, size = query.shape
    steps = torch.arange(-half_width, half_width + 1)
    places = torch.arange(length)[:, None] + steps  # (L, W)
    inside = (places >= 0) & (places < length)
    places = places.clamp(0, length - 1)
    scores = (query[:, None] * key[places]).sum(-1) / size**0.5  # (L, W)
    weights = scores.masked_fill(~inside, -torch.inf).softmax(-1)
    return (weights[..., None] * value[places]).sum(1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "band_attention-by_hand", "grade": true, "points": 1}
# Equal scores: each position takes the mean of itself and the neighbours that it has.
probe = probes(band_attention=band_attention)
probe.gives(
    torch.tensor([[1.5], [2.0], [2.5]]),
    torch.zeros(3, 2),
    torch.ones(3, 2),
    torch.tensor([[1.0], [2.0], [3.0]]),
    1,
)

# %% nbgrader={"grade_id": "band_attention-values", "grade": true, "points": 2}
# Other sizes, a window of one, a window wider than the text.
probe = probes(band_attention=band_attention)
probe.equals(probe.normal(7, 3), probe.normal(7, 3), probe.normal(7, 2), 2)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "band_attention-gradient", "grade": true, "points": 1}
# Gradients reach queries, keys and values.
probe = probes(band_attention=band_attention)
for argument in range(3):
    probe.gradient(probe.normal(5, 3), probe.normal(5, 3), probe.normal(5, 2), 1, wrt=argument)

# %% nbgrader={"grade_id": "band_attention-memory", "grade": true, "points": 2}
# 3000 positions, 9 of them in a window: a table of all pairs would be 36 MB of float32.
probe = probes(band_attention=band_attention)
probe.memory(*(probe.normal(3000, 4) for _ in range(3)), 4, below=5_200_000)

# %% [markdown]
# ## Look
#
# Left: your mask with two global positions. Right: how far three layers of a plain window of five reach.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

is_global = torch.zeros(24, dtype=torch.bool)
is_global[[0, 12]] = True
window = dilated_mask(24, 5, 1, torch.zeros(24, dtype=torch.bool))
figure, axes = plt.subplots(1, 2, figsize=(8, 4))
axes[0].imshow(dilated_mask(24, 5, 2, is_global))
axes[1].imshow(receptive_field(torch.stack([window] * 3)))
for ax, title in zip(axes, ("window 5, dilation 2, two global", "three layers"), strict=True):
    ax.set(title=title, xlabel="key", ylabel="query")
plt.show()
x = torch.eye(24)
print("the band holds", int((band_attention(x, x, x, 2) > 0).sum()), "of", 24 * 24, "weights")

# %% [markdown]
# # More

# %% [markdown]
# ## 4. Two heads that reach everything in two steps
#
# The strided pattern has two kinds of heads. `strided_masks(length, stride)` gives both, `(2, length, length)`:
#
# 1. the *local* head attends to the last `stride` positions, its own included;
# 2. the *strided* head attends to its own position and every `stride`-th before it, back to the start.
#
# Both are causal. One step of each head reaches any earlier position.


# %% nbgrader={"grade_id": "strided_masks", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.masks"]}
def strided_masks(length, stride):
    ### BEGIN SOLUTION
    i = torch.arange(length)
    away = i[:, None] - i
    past = away >= 0
    return torch.stack([past & (away < stride), past & (away % stride == 0)])
    ### END SOLUTION


# %% nbgrader={"grade_id": "strided_masks-by_hand", "grade": true, "points": 1}
# Four positions, stride 2.
probe = probes(strided_masks=strided_masks)
probe.gives(
    torch.tensor(
        [
            [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]],
            [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]],
        ]
    ).bool(),
    4,
    2,
)

# %% nbgrader={"grade_id": "strided_masks-two_steps", "grade": true, "points": 2}
# Longer texts, where two steps must reach every earlier position.
probe = probes(strided_masks=strided_masks)
probe.equals(10, 3)
### BEGIN HIDDEN TESTS
probe.equals(17, 5)
probe.equals(6, 1)
probe.equals(5, 9)
local, strided = oracles.right_strided(17, 5)
assert ((local.astype(int) @ strided.astype(int) > 0) == np.tri(17, dtype=bool)).all()
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Global positions have projections of their own
#
# In Longformer a global position has queries, keys and values from other projections.
# `global_attention(query, key, value, global_query, global_key, global_value, mask, is_global)`, with the first six `(L, E)`:
#
# - the row of a position that is *not* global: softmax of `query` and `key` under `mask` (`(L, L)`, True = may attend), over `value`;
# - the row of a global position: softmax of its `global_query` and *all* `global_key`, over `global_value`;
# - both scaled by $1/\sqrt{E}$. The mask already lets all positions attend to the global ones; a position that is not global uses their `key` and `value`, not the global ones.


# %% nbgrader={"grade_id": "global_attention", "solution": true} attn_course={"forbidden": ["import attn_course.functional", "import attn_course.nn"]}
def global_attention(query, key, value, global_query, global_key, global_value, mask, is_global):
    ### BEGIN SOLUTION
    scale = query.shape[-1] ** -0.5
    scores = (query @ key.T * scale).masked_fill(~mask, -torch.inf)
    local = scores.softmax(-1) @ value
    everywhere = (global_query @ global_key.T * scale).softmax(-1) @ global_value
    return torch.where(is_global[:, None], everywhere, local)
    ### END SOLUTION


# %% nbgrader={"grade_id": "global_attention-by_hand", "grade": true, "points": 1}
# Equal scores. Position 0 is global and takes the mean of all global values; the others average what they attend to.
probe = probes(global_attention=global_attention)
probe.gives(
    torch.tensor([[20.0], [1.5], [2.0]]),
    *[torch.zeros(3, 1)] * 2,
    torch.tensor([[1.0], [2.0], [3.0]]),
    *[torch.zeros(3, 1)] * 2,
    torch.tensor([[10.0], [20.0], [30.0]]),
    torch.tensor([[True, True, True], [True, True, False], [True, False, True]]),
    torch.tensor([True, False, False]),
)

# %% nbgrader={"grade_id": "global_attention-values", "grade": true, "points": 2}
# Ordinary scores.
probe = probes(global_attention=global_attention)
GLOBAL = torch.tensor([False, True, False, False, True])
NEAR = torch.eye(5).bool() | torch.eye(5).roll(1, 0).bool() | GLOBAL | GLOBAL[:, None]
probe.equals(*[probe.normal(5, 3) for _ in range(6)], NEAR, GLOBAL)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "global_attention-gradient", "grade": true, "points": 1}
# Gradients reach both sets of projections.
probe = probes(global_attention=global_attention)
for argument in (0, 2, 3, 4):
    probe.gradient(*[probe.normal(5, 3) for _ in range(6)], NEAR, GLOBAL, wrt=argument)

# %% [markdown]
# ## 6. Repair: a band made of shifted copies
#
# `broken_band(query, key, value, half_width)` should do what exercise 3 asks for (`half_width` is smaller than the text). It shifts keys and values by every step of the window and never makes a square.
# It runs with the right shape, and it has two faults. Find them, and write `fixed_band`.


# %% nbgrader={"grade_id": "broken_band", "locked": true}
def broken_band(query, key, value, half_width):
    steps = range(-half_width, half_width + 1)
    keys = torch.stack([key.roll(-step, 0) for step in steps], 1)  # (L, W, E)
    values = torch.stack([value.roll(step, 0) for step in steps], 1)
    scores = (query[:, None] * keys).sum(-1) / query.shape[-1] ** 0.5
    return (scores.softmax(-1)[..., None] * values).sum(1)


# %% nbgrader={"grade_id": "fixed_band", "solution": true}
def fixed_band(query, key, value, half_width):
    ### BEGIN SOLUTION
    steps = range(-half_width, half_width + 1)
    keys = torch.stack([key.roll(-step, 0) for step in steps], 1)
    values = torch.stack([value.roll(-step, 0) for step in steps], 1)
    places = torch.arange(len(query))[:, None] + torch.tensor(list(steps))
    outside = (places < 0) | (places >= len(query))
    scores = (query[:, None] * keys).sum(-1) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(outside, -torch.inf).softmax(-1)
    return (weights[..., None] * values).sum(1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_band-alone", "grade": true, "points": 1}
# A window of one: the shifts do nothing.
probe = probes(fixed_band=fixed_band)
probe.equals(torch.ones(3, 2), torch.ones(3, 2), torch.tensor([[1.0], [2.0], [3.0]]), 0)

# %% nbgrader={"grade_id": "fixed_band-windows", "grade": true, "points": 2}
# Real windows.
probe = probes(fixed_band=fixed_band)
probe.equals(probe.normal(6, 3), probe.normal(6, 3), probe.normal(6, 2), 1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(9, 2), probe.normal(9, 2), probe.normal(9, 3), 3)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Write the test
#
# `check_band(candidate)` takes a candidate for `band_attention(query, key, value, half_width)` of exercise 3 (its memory does not count) and returns `True` if it is right, `False` if it is wrong.
#
# It must accept right candidates, and earns a share of the points for each wrong one that it rejects.
# Many wrong ones are right in the middle of a text. Try its ends, a window of one, and a window wider than the text.
# Allow for rounding. A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_band", "solution": true}
def check_band(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    for length, half_width in ((7, 2), (5, 0), (4, 6)):
        query, key, value = (
            torch.randn(length, 3, generator=draw, dtype=torch.float64) for _ in range(3)
        )
        i = torch.arange(length)
        far = (i[:, None] - i).abs() > half_width
        scores = (query @ key.T / 3**0.5).masked_fill(far, -torch.inf)
        expected = scores.softmax(-1) @ value
        try:
            got = candidate(query, key, value, half_width)
        except Exception:
            return False
        if got.shape != expected.shape or not torch.allclose(got, expected, atol=1e-6):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_band-plain", "grade": true, "points": 1}
# A right candidate, and two that are plainly wrong.
def by_mask(query, key, value, half_width, seen=None, scale=None):
    i = torch.arange(len(query))
    away = i[:, None] - i
    mask = away.abs() <= half_width if seen is None else seen(away, half_width)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return (query @ key.T * scale).masked_fill(~mask, -torch.inf).softmax(-1) @ value


probe = probes(check_band=check_band)
probe.judges(
    right=[by_mask],
    wrong={
        "the values as they are": lambda q, k, v, half_width: v,
        "full attention": lambda q, k, v, half_width: by_mask(q, k, v, len(q)),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_band-mutants", "grade": true, "points": 6}
# Wrong candidates that are harder to detect. (Hidden: which.)
probe = probes(check_band=check_band)
probe.judges(
    right=[by_mask],
    wrong={"the values as they are": lambda q, k, v, half_width: v},
    points=6,
)


### BEGIN HIDDEN TESTS
def wrapped(query, key, value, half_width):
    steps = range(-half_width, half_width + 1)
    keys, values = (torch.stack([x.roll(-s, 0) for s in steps], 1) for x in (key, value))
    scores = (query[:, None] * keys).sum(-1) / query.shape[-1] ** 0.5
    return (scores.softmax(-1)[..., None] * values).sum(1)


def padded(query, key, value, half_width):
    keys, values = (
        torch.nn.functional.pad(x, (0, 0, half_width, half_width)) for x in (key, value)
    )
    places = torch.arange(len(query))[:, None] + torch.arange(2 * half_width + 1)
    scores = (query[:, None] * keys[places]).sum(-1) / query.shape[-1] ** 0.5
    return (scores.softmax(-1)[..., None] * values[places]).sum(1)


def never_alone(query, key, value, half_width):
    return by_mask(query, key, value, max(1, half_width))


def at_most_the_text(query, key, value, half_width):
    return by_mask(query, key, value, min(half_width, len(query) - 2))


probe.judges(
    right=[
        by_mask,
        lambda q, k, v, half_width: from_numpy(oracles.right_band)(q, k, v, half_width),
    ],
    wrong={
        "wraps around": wrapped,
        "zeros count at the ends": padded,
        "a window of one is widened": never_alone,
        "too narrow where the window is wide": at_most_the_text,
        "one too far": lambda q, k, v, h: by_mask(q, k, v, h + 1),
        "only the past": lambda q, k, v, h: by_mask(
            q, k, v, h, seen=lambda away, half: (away >= 0) & (away <= half)
        ),
        "not scaled": lambda q, k, v, h: by_mask(q, k, v, h, scale=1.0),
    },
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Report
#
# A text has 8192 tokens. You may spend 65 pairs for each token and layer, and you have 8 layers. In about 200 words, two points for each part:
#
# 1. Choose a pattern (window, dilation by layer or head, strides, blocks, global positions) for a question that is answered by *one sentence anywhere* in the text, and give its receptive field by the formula.
# 2. Name something that your pattern cannot do, or does worse than full attention, although its receptive field is large enough.
# 3. You measure that the model is no faster than full attention at 512 tokens. Is that a bug? Which two measurements would settle it?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. Windows of 63 keys, dilation 1, and one or two global positions (the question). By windows alone 8 layers reach $1 + 8 \cdot 62 = 497$ positions, far less than 8192; dilations of 1, 2, 4, ... 128 would span $1 + 62 \cdot 255 = 15811$. The global position connects any two positions in two steps, and the answer is read there.
# 2. A path need not be used. Information from a distant token must pass through the one vector of a global position or through up to 8 steps, each of which must be learned; full attention compares any two tokens directly, for instance to find two equal names. With dilation there are also gaps between the keys of a position.
# 3. Not a bug by itself: at 512 tokens a window of 65 computes about an eighth of the pairs, but the projections and feed-forward parts, which do not change, take most of the time, and small products are less efficient. I would measure time against length for the attention alone (slopes near 1 and 2 in logarithms), and the share of the attention in the time of the whole model at both lengths.
#
# **Points**, one for each:
#
# - (1a) A pattern within 65 pairs.
# - (1b) Its receptive field by the formula.
# - (2a) Something it does worse.
# - (2b) Although the path is there, and why.
# - (3a) No bug by itself, and why.
# - (3b) Slopes over length, and the share of the attention in the whole.
