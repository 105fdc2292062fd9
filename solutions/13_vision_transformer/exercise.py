# %% [markdown]
# # Exercises: the Vision Transformer
#
# You cut images into patches, run a Vision Transformer from its parts, and build a convolution out of attention heads.
#
# Shapes: images are `(B, C, H, W)`: batch, channels, rows, columns. A patch is `P` by `P` pixels, there are `N` patches, and vectors have width `D`.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course.probes import from_numpy, load_oracles

oracles, probes = load_oracles("13_vision_transformer")

# An image of 4 by 4 pixels, numbered in reading order.
NUMBERED = torch.arange(16.0).reshape(1, 1, 4, 4)

# %% [markdown]
# ## 1. Patches
#
# `patchify(images, patch_size)` cuts images into square patches that do not overlap.
#
# - `images` is `(B, C, H, W)`; `H` and `W` are multiples of `patch_size`, and may differ.
# - The result is `(B, N, C * patch_size * patch_size)`, with the patches in reading order: the first row of patches from left to right, then the second row.
# - Inside a patch, the order is channel by channel, and each channel row by row.
# - Gradients reach `images`.
#
# By hand: one channel of 4 by 4 pixels, numbered from 0, gives four 2 by 2 patches: `[0, 1, 4, 5]`, `[2, 3, 6, 7]`, `[8, 9, 12, 13]`, `[10, 11, 14, 15]`.
#
# <details><summary>Hint</summary>
#
# Split each side into two axes, which gives six axes. Permute them into the order of the result, then merge them.
#
# </details>


# %% nbgrader={"grade_id": "patchify", "solution": true}
def patchify(images, patch_size):
    ### BEGIN SOLUTION
    b, c, h, w = images.shape
    p = patch_size
    grid = images.reshape(b, c, h // p, p, w // p, p)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(b, (h // p) * (w // p), c * p * p)
    ### END SOLUTION


# %% nbgrader={"grade_id": "patchify-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(patchify=patchify)
probe.gives(
    torch.tensor([[[0.0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]), NUMBERED, 2
)

# %% nbgrader={"grade_id": "patchify-channels", "grade": true, "points": 2}
# Two images, two channels, different sides.
probe = probes(patchify=patchify)
probe.equals(torch.arange(96.0).reshape(2, 2, 4, 6), 2)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "patchify-gradient", "grade": true, "points": 1}
# Gradients reach the images.
probe = probes(patchify=patchify)
probe.gradient(probe.normal(2, 2, 4, 6), 2)

# %% [markdown]
# ## 2. A Vision Transformer from its parts
#
# `vit_forward(patches, projection, class_token, positions, encoder, head)` computes logits from patches:
#
# $$z_0 = [c;\; x_1 E^\top;\; \ldots;\; x_N E^\top] + E_{pos}, \qquad z = \operatorname{encoder}(z_0), \qquad y = z^{(0)} W^\top .$$
#
# - `patches` is `(B, N, P)`, `projection` is $E$, `(D, P)`.
# - `class_token` is $c$, `(D,)`. It comes before the patches. `positions` is `(N + 1, D)`.
# - `encoder` is a function from `(B, N + 1, D)` to the same shape. Call it once.
# - `head` is $W$, `(K, D)`. It reads the vector at the position of the class token. The result is `(B, K)`.
# - Gradients reach `projection`, `class_token`, `positions` and `head`.
#
# By hand: one patch `[2]`, $E = [3]$, $c = 1$, positions `[10], [20]`. Then $z_0 = [11, 26]$. An encoder that adds the sum of the sequence gives $[48, 63]$, and the head $[2]$ reads 96.


# %% nbgrader={"grade_id": "vit_forward", "solution": true}
def vit_forward(patches, projection, class_token, positions, encoder, head):
    ### BEGIN SOLUTION
    x = patches @ projection.T  # (B, N, D)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1)  # (B, N + 1, D)
    return encoder(x + positions)[:, 0] @ head.T
    ### END SOLUTION


# %% nbgrader={"grade_id": "vit_forward-by_hand", "grade": true, "points": 1}
# The example of the text.
def adds_the_sum(x):
    return x + x.sum(1, keepdim=True)


probe = probes(vit_forward=vit_forward)
probe.gives(
    torch.tensor([[96.0]]),
    torch.tensor([[[2.0]]]),
    torch.tensor([[3.0]]),
    torch.tensor([1.0]),
    torch.tensor([[10.0], [20.0]]),
    adds_the_sum,
    torch.tensor([[2.0]]),
)

# %% nbgrader={"grade_id": "vit_forward-values", "grade": true, "points": 3}
# Several images, several patches.
probe = probes(vit_forward=vit_forward)
probe.equals(
    probe.normal(2, 3, 5),
    probe.normal(4, 5),
    probe.normal(4),
    probe.normal(4, 4),
    adds_the_sum,
    probe.normal(2, 4),
)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 3. A head that attends to a neighbour
#
# A convolution reads fixed neighbours. An attention head can do the same.
# `shift_weights(height, width, down, right)` returns the weights of a head in which each pixel attends to the pixel `down` rows below it and `right` columns to its right.
#
# - The result is `(N, N)` with `N = height * width`, of torch's default dtype. Row `i` belongs to pixel `i`, in reading order. It is 1 at the pixel that `i` attends to, and 0 elsewhere.
# - `down` and `right` may be negative.
# - Row and column are each clamped at the edge of the image: a pixel whose target is outside attends to the nearest pixel inside.
#
# By hand, for one row of three pixels and `right = 1`: pixel 0 attends to 1, pixel 1 to 2, pixel 2 to itself: `[[0, 1, 0], [0, 0, 1], [0, 0, 1]]`.


# %% nbgrader={"grade_id": "shift_weights", "solution": true}
def shift_weights(height, width, down, right):
    ### BEGIN SOLUTION
    pixel = torch.arange(height * width)
    row = (pixel // width + down).clamp(0, height - 1)
    column = (pixel % width + right).clamp(0, width - 1)
    return torch.eye(height * width)[row * width + column]
    ### END SOLUTION


# %% nbgrader={"grade_id": "shift_weights-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(shift_weights=shift_weights)
probe.gives(torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 1]]), 1, 3, 0, 1)

# %% nbgrader={"grade_id": "shift_weights-two_ways", "grade": true, "points": 2}
# Both directions, forward and back.
probe = probes(shift_weights=shift_weights)
probe.equals(3, 4, 1, -1)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# An image, its four patches, and the output of your head: each pixel takes the value of the pixel to which it attends.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

image = torch.zeros(1, 1, 8, 8)
image[..., 1:7, 2] = image[..., 1, 2:6] = image[..., 4, 2:5] = 1.0
patches = patchify(image, 4)
moved = shift_weights(8, 8, 2, -2) @ image.reshape(64)
figure, axes = plt.subplots(1, 6, figsize=(11, 2))
shown = {"image": image[0, 0]} | {f"patch {i}": p.view(4, 4) for i, p in enumerate(patches[0])}
for ax, (title, one) in zip(axes, (shown | {"moved": moved.view(8, 8)}).items(), strict=True):
    ax.imshow(one, vmin=0, vmax=1)
    ax.set(title=title, xticks=[], yticks=[])
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. A convolution as attention
#
# Use one head for each element of the kernel. Together they compute
#
# $$y = \sum_{a, b} A^{(a, b)}\, x\, W_{:, :, a, b}^\top ,$$
#
# where the head of element $(a, b)$ of a $K \times K$ kernel attends $a - \lfloor K/2 \rfloor$ rows down and $b - \lfloor K/2 \rfloor$ columns to the right.
# `convolution_as_attention(images, weight)` computes it.
#
# - `images` is `(B, C, H, W)`, `weight` is `(F, C, K, K)` with odd `K`, in the layout of `torch.nn.Conv2d`. The result is `(B, F, H, W)`.
# - Each head is clamped at the edge, as in exercise 3.
# - Gradients reach both arguments.
#
# torch's convolutions are not allowed.
#
# By hand: one row of three pixels $[1, 2, 4]$ and a kernel whose middle row is $[1, 0, 10]$: a pixel's left neighbour plus ten times its right one gives $[1 + 20,\ 1 + 40,\ 2 + 40]$.


# %% nbgrader={"grade_id": "convolution_as_attention", "solution": true} attn_course={"forbidden": ["conv1d", "conv2d", "conv3d", "convolution", "aten::*conv[1-3_]*", "aten::*convol*"]}
def convolution_as_attention(images, weight):
    ### BEGIN SOLUTION
    height, width = images.shape[2:]
    middle = weight.shape[-1] // 2
    pixel = torch.arange(height * width)
    pixels = images.flatten(2).transpose(1, 2)  # (B, N, C)
    output = 0
    for a in range(weight.shape[2]):
        for b in range(weight.shape[3]):
            row = (pixel // width + a - middle).clamp(0, height - 1)
            column = (pixel % width + b - middle).clamp(0, width - 1)
            looks = torch.eye(height * width, dtype=images.dtype)[row * width + column]
            output = output + looks @ pixels @ weight[:, :, a, b].T  # (B, N, F)
    return output.transpose(1, 2).unflatten(-1, (height, width))
    ### END SOLUTION


# %% nbgrader={"grade_id": "convolution_as_attention-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(convolution_as_attention=convolution_as_attention)
kernel = torch.zeros(1, 1, 3, 3)
kernel[0, 0, 1] = torch.tensor([1.0, 0.0, 10.0])
probe.gives(torch.tensor([[[[21.0, 41.0, 42.0]]]]), torch.tensor([[[[1.0, 2.0, 4.0]]]]), kernel)

# %% nbgrader={"grade_id": "convolution_as_attention-values", "grade": true, "points": 3}
# Several images, channels in and out.
probe = probes(convolution_as_attention=convolution_as_attention)
probe.equals(probe.normal(2, 2, 4, 5), probe.normal(3, 2, 3, 3))
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "convolution_as_attention-gradient", "grade": true, "points": 1}
# Gradients reach image and kernel.
probe = probes(convolution_as_attention=convolution_as_attention)
probe.gradient(probe.normal(1, 2, 3, 4), probe.normal(2, 2, 3, 3), wrt=(0, 1))

# %% [markdown]
# ## 5. Repair: an embedding with two faults
#
# `broken_embed` should cut images into patches, project them, put the class token in front, and add the positions: row 0 belongs to the class token.
# `images` is `(B, C, H, W)`, `projection` is `(D, C * P * P)`, `class_token` is `(D,)`, `positions` is `(N + 1, D)`; the result is `(B, N + 1, D)`.
# It runs with the right shapes, but it has two faults. Find them and write `fixed_embed`.


# %% nbgrader={"grade_id": "broken_embed", "locked": true}
def broken_embed(images, patch_size, projection, class_token, positions):
    b, c, h, w = images.shape
    p = patch_size
    grid = images.reshape(b, c, h // p, p, w // p, p)
    patches = grid.permute(0, 2, 4, 3, 5, 1).reshape(b, -1, c * p * p)
    x = patches @ projection.T + positions[:-1]
    return torch.cat([(class_token + positions[-1]).expand(b, 1, -1), x], dim=1)


# %% nbgrader={"grade_id": "fixed_embed", "solution": true}
def fixed_embed(images, patch_size, projection, class_token, positions):
    ### BEGIN SOLUTION
    b, c, h, w = images.shape
    p = patch_size
    grid = images.reshape(b, c, h // p, p, w // p, p)
    patches = grid.permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * p * p)
    x = torch.cat([class_token.expand(b, 1, -1), patches @ projection.T], dim=1)
    return x + positions
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_embed-one_channel", "grade": true, "points": 1}
# One channel, which shows one of the two faults.
probe = probes(fixed_embed=fixed_embed)
probe.equals(NUMBERED, 2, torch.eye(4), torch.zeros(4), torch.arange(20.0).reshape(5, 4))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 1, 4, 6), 2, probe.normal(3, 4), probe.normal(3), probe.normal(7, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_embed-colours", "grade": true, "points": 2}
# Several channels without positions, which show the other.
probe = probes(fixed_embed=fixed_embed)
probe.equals(
    torch.arange(32.0).reshape(1, 2, 4, 4), 2, torch.eye(8), torch.zeros(8), torch.zeros(5, 8)
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 4, 2), 2, probe.normal(5, 12), probe.normal(5), torch.zeros(3, 5))
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Write the test
#
# `check_patchify(candidate)` takes a candidate for `patchify(images, patch_size)` and returns `True` if it keeps the contract of exercise 1, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Many wrong answers have the right shape, or agree with the right one for one channel, square images or a single patch. Choose an image on which they differ.
# A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_patchify", "solution": true}
def check_patchify(candidate):
    ### BEGIN SOLUTION
    images = torch.arange(2 * 3 * 4 * 6.0).reshape(2, 3, 4, 6)
    expected = torch.empty(2, 6, 12)
    for n in range(2):
        for i in range(2):
            for j in range(3):
                patch = images[n, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
                expected[n, 3 * i + j] = patch.flatten()
    try:
        got = candidate(images, 2)
    except Exception:
        return False
    return got.shape == expected.shape and bool(torch.equal(got, expected))
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_patchify-plain", "grade": true, "points": 1}
# A right candidate, and three that are clearly wrong.
def by_loops(images, patch_size):
    return from_numpy(oracles.right_patches)(images, patch_size)


probe = probes(check_patchify=check_patchify)
probe.judges(
    right=[by_loops],
    wrong={
        "all zeros": lambda images, patch_size: 0 * by_loops(images, patch_size),
        "the image unchanged": lambda images, patch_size: images,
        "twice the right result": lambda images, patch_size: 2 * by_loops(images, patch_size),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_patchify-mutants", "grade": true, "points": 6}
# Wrong candidates that are harder to detect. (Which ones is hidden.)
probe = probes(check_patchify=check_patchify)
probe.judges(right=[by_loops], wrong={"twice": lambda x, p: 2 * by_loops(x, p)}, points=6)


### BEGIN HIDDEN TESTS
def in_order(*order):
    def cut(images, p):
        b, c, h, w = images.shape
        grid = images.reshape(b, c, h // p, p, w // p, p)
        return grid.permute(0, *order).reshape(b, (h // p) * (w // p), c * p * p)

    return cut


def strided(images, p):
    b, c, h, w = images.shape
    grid = images.reshape(b, c, p, h // p, p, w // p)
    return grid.permute(0, 3, 5, 1, 2, 4).reshape(b, (h // p) * (w // p), c * p * p)


probe.judges(
    right=[by_loops, in_order(2, 4, 1, 3, 5)],
    wrong={
        "reshaped only": in_order(1, 2, 3, 4, 5),
        "column by column": in_order(4, 2, 1, 3, 5),
        "channels last": in_order(2, 4, 3, 5, 1),
        "every patch transposed": in_order(2, 4, 1, 5, 3),
        "every second pixel": strided,
        "the first image for all": lambda x, p: by_loops(x[:1].expand_as(x), p),
    },
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. Which inductive biases does a Vision Transformer have, and which biases of a convolution does it lack? Name one experiment of the chapter for each answer.
# 2. A paper compares a ViT with a CNN of three 3×3 layers on images whose two parts are 40 pixels apart, and concludes that convolutions cannot connect distant parts. Which controls would you ask for?
# 3. In the construction of exercise 4, on what do queries and keys depend? If the image changes, what changes in one of these heads, and what in a head of a trained ViT?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. It has patches, and one projection and one block for all positions: it processes a patch in the same way everywhere, except for its position vector. It lacks locality: it must learn from the positions which patches are adjacent.
# The curves over the number of digits show the cost of the missing bias; shuffled pixels show how much a network uses neighbours.
# 2. The receptive field of three such layers is seven pixels. Ask for a network whose receptive field covers both parts (deeper, dilated, strided), for one with a global sum, each with tuned learning rates, and for several seeds.
# 3. They depend only on the positions. Another image changes the values but no weight; in a trained ViT the weights change as well.
#
# **Points**, one for each:
#
# - (1a) A bias that it has, with an experiment.
# - (1b) A bias that it lacks, with an experiment.
# - (2a) A receptive field of seven pixels.
# - (2b) A tuned control that covers both parts, several seeds.
# - (3a) The weights depend only on positions.
# - (3b) What another image changes in each.
