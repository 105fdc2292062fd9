# %% [markdown]
# # Exercises: sparse attention
#
# You write the masks of the chapter, the receptive field of stacked layers, banded attention without a matrix of all pairs, and attention with global positions.
#
# Shapes: `L` positions, `E` the width of queries and keys, `Ev` that of values, `N` layers. There is one head and no batch.
# In a mask, `mask[i, j]` is True where position `i` may attend to position `j`.
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
# `dilated_mask(length, window_size, dilation, is_global)` is a boolean mask `(length, length)`, True where
#
# $$|i - j| \le \tfrac{W-1}{2}\,d \ \text{ and } d \text{ divides } i - j, \quad \text{or } g_i, \quad \text{or } g_j .$$
#
# - `window_size` $W$ is odd and counts the position itself, `dilation` $d$ is at least 1, `is_global` $g$ is `(length,)`, boolean.
# - The mask is not causal: a window has two sides.
#
# By hand: 5 positions, $W = 3$, $d = 2$, none global. Position 0 attends to 0 and 2; position 2 attends to 0, 2 and 4.


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
# ## 2. Receptive field
#
# `receptive_field(masks)` takes one mask per layer, boolean `(N, L, L)`, the *first* layer first. It returns a boolean `(L, L)`: True where the output at `i` of the last layer can depend on the input at `j`.
#
# It can if a path leads from `i` down to `j`: in the last layer, `i` attends to a position; in the layer below, that position attends to another, and so on. There is no residual connection: a position that may not attend to itself loses its own input.
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
# Different layers.
probe = probes(receptive_field=receptive_field)
CAUSAL = torch.ones(6, 6, dtype=torch.bool).tril() & (WINDOW[:6, :6])
probe.equals(torch.stack([CAUSAL, torch.eye(6).roll(2, 0).bool()]))
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Banded attention in linear memory
#
# `band_attention(query, key, value, half_width)`: position `i` attends to the positions with $|i - j| \le$ `half_width`, scaled by $1/\sqrt{E}$, with a softmax over the existing ones.
#
# - `query` and `key` are `(L, E)`, `value` is `(L, Ev)`, the result is `(L, Ev)`. `half_width` may be 0 or exceed the text.
# - **Build no $L \times L$ matrix**, not even a boolean one. The memory test has `L = 3000`, `E = Ev = 4` and `half_width = 4`, and allows 5.2 MB; a float32 matrix of all pairs takes 36 MB.
# - Gradients reach all three.
#
# <details><summary>Hint</summary>
#
# Build a row of `2 * half_width + 1` positions for each query; `key[positions]` selects their keys. A position outside the text needs a valid index and a masked score.
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
# Equal scores: each position gets the mean over its window.
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
# 3000 positions, windows of 9: a float32 matrix of all pairs would take 36 MB.
probe = probes(band_attention=band_attention)
probe.memory(*(probe.normal(3000, 4) for _ in range(3)), 4, below=5_200_000)

# %% [markdown]
# ## Look
#
# Left: your mask with two global positions. Right: the receptive field of three layers with a plain window of five.

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
# ## 4. The strided pattern
#
# The strided pattern has two kinds of heads. `strided_masks(length, stride)` returns both masks, `(2, length, length)`:
#
# 1. the *local* head attends to the last `stride` positions, its own included;
# 2. the *strided* head attends to its own position and every `stride`-th position before it, back to the start.
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
# ## 5. Global attention
#
# In Longformer a global position has separate projections for its query, keys and values.
# `global_attention(query, key, value, global_query, global_key, global_value, mask, is_global)`, with the first six `(L, E)`:
#
# - the row of a position that is *not* global: attention of `query` to `key` and `value` under `mask` (`(L, L)`, True = may attend);
# - the row of a global position: attention of its `global_query` to *all* of `global_key` and `global_value`;
# - both scaled by $1/\sqrt{E}$. The mask already allows all positions to attend to the global ones. A position that is not global uses their `key` and `value`.


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
# Equal scores. Position 0 is global and gets the mean of all global values; the others average their allowed values.
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
# ## 6. Repair: a band of shifted copies
#
# `broken_band(query, key, value, half_width)` should do the same as exercise 3 (`half_width` is smaller than the text). It shifts keys and values by every step of the window and never builds a square matrix.
# It runs with the right shape, but it has two faults. Find them and write `fixed_band`.


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
# A window of one, without shifts.
probe = probes(fixed_band=fixed_band)
probe.equals(torch.ones(3, 2), torch.ones(3, 2), torch.tensor([[1.0], [2.0], [3.0]]), 0)

# %% nbgrader={"grade_id": "fixed_band-windows", "grade": true, "points": 2}
# Wider windows.
probe = probes(fixed_band=fixed_band)
probe.equals(probe.normal(6, 3), probe.normal(6, 3), probe.normal(6, 2), 1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(9, 2), probe.normal(9, 2), probe.normal(9, 3), 3)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Write the test
#
# `check_band(candidate)` takes a candidate for `band_attention(query, key, value, half_width)` and returns `True` if it keeps the contract of exercise 3 (its memory aside), `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Many wrong answers are right in the middle of a text. Try its ends, a window of one, and a window wider than the text.
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
# A right candidate, and two that are clearly wrong.
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
        "the values unchanged": lambda q, k, v, half_width: v,
        "full attention": lambda q, k, v, half_width: by_mask(q, k, v, len(q)),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_band-mutants", "grade": true, "points": 6}
# Wrong candidates that are harder to detect. (Which ones is hidden.)
probe = probes(check_band=check_band)
probe.judges(
    right=[by_mask],
    wrong={"the values unchanged": lambda q, k, v, half_width: v},
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
        "one position too far": lambda q, k, v, h: by_mask(q, k, v, h + 1),
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
# A text has 8192 tokens. You may use 65 pairs per token and layer, and 8 layers. Write about 200 words; each part earns two points.
#
# 1. Choose a pattern (window, dilation by layer or head, strides, blocks, global positions) for a question that *one sentence anywhere* in the text answers, and give its receptive field by the formula.
# 2. Name a task that your pattern cannot solve, or solves worse than full attention, although its receptive field is large enough.
# 3. At 512 tokens the model is no faster than full attention. Is that a bug? Which two measurements would decide it?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. Windows of 63 keys, dilation 1, and one or two global positions (the question). With windows alone 8 layers reach $1 + 8 \cdot 62 = 497$ positions, far less than 8192; dilations of 1, 2, 4, ... 128 would span $1 + 62 \cdot 255 = 15811$. The global position connects any two positions in two steps, and the answer is read from it.
# 2. A path need not be used. Information from a distant token must pass through the single vector of a global position or through up to 8 learned steps; full attention compares any two tokens directly, for instance to find two equal names. With dilation there are also gaps between the keys of a position.
# 3. Not a bug by itself: at 512 tokens a window of 65 computes about an eighth of the pairs, but the unchanged projections and feed-forward parts take most of the time, and small products are less efficient. I would measure the time of attention alone against length (log-log slopes near 1 and 2), and the share of attention in the time of the whole model.
#
# **Points**, one for each:
#
# - (1a) A pattern within 65 pairs.
# - (1b) Its receptive field by the formula.
# - (2a) A task that it solves worse.
# - (2b) Although a path exists, and why.
# - (3a) Not a bug by itself, and why.
# - (3b) Slopes over length, and the share of attention in the total time.
