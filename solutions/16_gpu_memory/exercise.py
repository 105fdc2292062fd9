# %% [markdown]
# # Exercises: memory on a GPU
#
# You write three Triton kernels with ragged edges and two counts without a kernel, repair a kernel, and write a test of copies.
#
# Everything runs on a CPU through Triton's interpreter; you need neither a network nor a GPU.
# The interpreter is slow: use small tensors for your own trials.
#
# Triton has wheels for Linux on x86-64 only.
# On other machines exercises 3 and 6 and the report still work; do the others on a Linux machine, such as a cloud notebook.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.

# %% nbgrader={"grade_id": "setup", "locked": true}
import os

os.environ["TRITON_INTERPRET"] = "1"  # before the first import of Triton

import torch

from attn_course.probes import bounds, load_oracles, properties, student

oracles, probes = load_oracles("16_gpu_memory")

try:
    import triton
    import triton.language as tl

    bounds.keep_inside()  # a kernel that leaves its tensors raises an error
except ModuleNotFoundError:

    class NoTriton:
        def __getattr__(self, name):
            raise ModuleNotFoundError(
                "Triton has wheels for Linux on x86-64 only. Do this exercise on such a machine; "
                "exercises 3 and 6 need no Triton."
            )

    triton = tl = NoTriton()

# %% [markdown]
# ## 1. A copy with a ragged edge
#
# `blocked_copy(x, block_size)` copies a vector `x` of any length, one block of `block_size` elements per program.
#
# - `block_size` is a power of two. The last block may extend beyond the end of `x`; do not read or write beyond the end.
# - Write the kernel `copy_kernel(x, y, size, BLOCK)` and the function that launches it.
# - Start from `y = torch.zeros_like(x)`, so that elements never written are 0.
#
# By hand: ten elements in blocks of four take three programs; the last one copies two elements.
#
# <details><summary>Hint</summary>
#
# `tl.program_id(0)` is the number of the program, `tl.arange(0, BLOCK)` is 0 to BLOCK - 1, and `tl.load` and `tl.store` take a `mask`. `triton.cdiv` divides and rounds up.
#
# </details>


# %% nbgrader={"grade_id": "copy_kernel", "solution": true}
@triton.jit
def copy_kernel(x, y, size, BLOCK: tl.constexpr):
    ### BEGIN SOLUTION
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < size), mask=at < size)
    ### END SOLUTION


# %% nbgrader={"grade_id": "blocked_copy", "solution": true}
def blocked_copy(x, block_size):
    ### BEGIN SOLUTION
    y = torch.zeros_like(x)
    copy_kernel[(triton.cdiv(len(x), block_size),)](x, y, len(x), BLOCK=block_size)
    return y
    ### END SOLUTION


# %% nbgrader={"grade_id": "blocked_copy-by_hand", "grade": true, "points": 1}
# Two whole blocks of four.
probe = probes(blocked_copy=blocked_copy)
probe.gives(torch.arange(1.0, 9.0), torch.arange(1.0, 9.0), 4)

# %% nbgrader={"grade_id": "blocked_copy-ragged", "grade": true, "points": 2}
# Ten elements in blocks of four, and other lengths.
probe = probes(blocked_copy=blocked_copy)
probe.equals(torch.arange(1.0, 11.0), 4)
### BEGIN HIDDEN TESTS
for size, block in ((1, 8), (13, 2), (31, 16), (17, 1)):
    probe.equals(probe.normal(size), block)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "blocked_copy-kernel", "grade": true, "points": 2}
# Your function launches the kernel; and the kernel alone, with one program too many: memory after element 6 belongs to another array.
probe = probes(blocked_copy=blocked_copy)
probe.gives(torch.tensor([3.0, 1.0]), torch.tensor([3.0, 1.0]), 2)
probe.holds(properties.starts_a_kernel, torch.arange(1.0, 11.0), 4)
written = student.launch(
    copy_kernel, (3,), torch.arange(12.0), torch.full((12,), -1.0), 7, BLOCK=4, writes=1
).tolist()
assert written[:7] == [0, 1, 2, 3, 4, 5, 6], "copy_kernel: the first seven elements are not copied"
assert written[7:] == [-1] * 5, "copy_kernel: it writes behind the end: what does the mask say?"

# %% [markdown]
# ## 2. Softmax, fused
#
# `row_softmax(scores)` takes `(rows, width)` and returns the softmax of each row, in **one kernel with one program per row**.
#
# - The block must be a power of two at least as wide as a row: `triton.next_power_of_2(width)`. The lanes beyond the end must never change the result.
# - It handles every finite score, however large.
# - The kernel is `softmax_kernel(scores, weights, width, WIDTH)`; row `i` starts at `scores + i * width`.
#
# By hand: the row $[0, \ln 3]$ gives $[\frac14, \frac34]$.


# %% nbgrader={"grade_id": "softmax_kernel", "solution": true}
@triton.jit
def softmax_kernel(scores, weights, width, WIDTH: tl.constexpr):
    ### BEGIN SOLUTION
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    x = tl.load(scores + row * width + column, mask=column < width, other=-float("inf"))
    parts = tl.exp(x - tl.max(x))
    tl.store(weights + row * width + column, parts / tl.sum(parts), mask=column < width)
    ### END SOLUTION


# %% nbgrader={"grade_id": "row_softmax", "solution": true}
def row_softmax(scores):
    ### BEGIN SOLUTION
    rows, width = scores.shape
    weights = torch.zeros_like(scores)
    wide = triton.next_power_of_2(width)
    softmax_kernel[(rows,)](scores.contiguous(), weights, width, WIDTH=wide)
    return weights
    ### END SOLUTION


# %% nbgrader={"grade_id": "row_softmax-by_hand", "grade": true, "points": 1}
# Two elements fill a block.
probe = probes(row_softmax=row_softmax)
probe.gives(torch.tensor([[0.25, 0.75], [0.5, 0.5]]), torch.tensor([[0.0, 1.0986123], [2.0, 2.0]]))

# %% nbgrader={"grade_id": "row_softmax-ragged", "grade": true, "points": 2}
# Widths that are not powers of two, with scores on both sides of 0.
probe = probes(row_softmax=row_softmax)
probe.equals(torch.tensor([[-3.0, -1.0, -2.0], [1.0, 0.0, 2.0]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(4, 11) - 5)
probe.equals(probe.normal(3, 33))
probe.equals(probe.normal(5, 1))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "row_softmax-large", "grade": true, "points": 1}
# Scores whose exponentials overflow in float32.
probe = probes(row_softmax=row_softmax)
probe.equals(torch.tensor([[200.0, 199.0, 0.0, 198.0], [-300.0, -301.0, -299.0, -300.0]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 8) + 500)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "row_softmax-kernel", "grade": true, "points": 1}
# The kernel alone, on the first row only: it must not change the second row.
probe = probes(row_softmax=row_softmax)
probe.gives(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 1.0]]))
probe.holds(properties.starts_a_kernel, torch.zeros(2, 3))
written = student.launch(
    softmax_kernel, (1,), torch.zeros(2, 3), torch.full((2, 3), -1.0), 3, WIDTH=4, writes=1
)
third = torch.allclose(written[0], torch.full((3,), 1 / 3))
assert third, "softmax_kernel: the weights of three equal scores are not a third each"
assert written[1].tolist() == [-1] * 3, "softmax_kernel: one program writes into another row"

# %% [markdown]
# ## 3. Memory traffic of a tiled product
#
# `matmul_bytes(M, N, K, itemsize, block_m, block_n)` returns the bytes that a product of `(M, K)` and `(K, N)` moves in tiles of `block_m` × `block_n`, with `itemsize` bytes per number.
#
# - A tile of the result reads its rows of the first factor and its columns of the second, all $K$ of each, and is written once.
# - Tiles at the edge may be smaller; masked elements are not read. The result is an integer.
#
# By hand: $M = N = K = 4$ in tiles of 2 × 2, one byte per number. With two tiles across, the 16 numbers of the first factor are read twice, and so are those of the second; 16 are written. Together 80.


# %% nbgrader={"grade_id": "matmul_bytes", "solution": true}
def matmul_bytes(M, N, K, itemsize, block_m, block_n):
    ### BEGIN SOLUTION
    across, down = -(-N // block_n), -(-M // block_m)
    return (M * K * across + K * N * down + M * N) * itemsize
    ### END SOLUTION


# %% nbgrader={"grade_id": "matmul_bytes-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(matmul_bytes=matmul_bytes)
probe.gives(80, 4, 4, 4, 1, 2, 2)

# %% nbgrader={"grade_id": "matmul_bytes-sizes", "grade": true, "points": 2}
# All sizes differ, with ragged tiles. By hand: 3 tiles down and 2 across, 12 · 2 + 20 · 3 + 15 numbers.
probe = probes(matmul_bytes=matmul_bytes)
probe.gives((24 + 60 + 15) * 2, 3, 5, 4, 2, 1, 3)


### BEGIN HIDDEN TESTS
def by_tiles(M, N, K, itemsize, block_m, block_n):
    moved = 0
    for m in range(0, M, block_m):
        for n in range(0, N, block_n):
            rows, columns = min(block_m, M - m), min(block_n, N - n)
            moved += (rows * K + K * columns + rows * columns) * itemsize
    return moved


probe = probes(matmul_bytes=matmul_bytes, oracle=by_tiles)
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ### The roofline
#
# `roofline(flops, nbytes, peak_flops, bandwidth)` returns the best rate, in operations per second, of a step with `flops` operations and `nbytes` bytes of traffic, on a chip with at most `peak_flops` operations and `bandwidth` bytes per second. Arithmetic and traffic overlap.
#
# By hand: 10 operations and 4 bytes, on a chip with 100 operations and 20 bytes per second: the bytes take 0.2 s, the operations 0.1 s. So 10 operations in 0.2 s: a rate of 50.


# %% nbgrader={"grade_id": "roofline", "solution": true}
def roofline(flops, nbytes, peak_flops, bandwidth):
    ### BEGIN SOLUTION
    return min(peak_flops, bandwidth * flops / nbytes)
    ### END SOLUTION


# %% nbgrader={"grade_id": "roofline-slope", "grade": true, "points": 1}
# The example of the text: bound by memory.
probe = probes(roofline=roofline)
probe.gives(50.0, 10.0, 4.0, 100.0, 20.0)
### BEGIN HIDDEN TESTS
probe.equals(5.0e6, 4.0e6, 19.5e12, 1555e9)
probe.equals(10.0, 6.0, 100.0, 20.0)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "roofline-roof", "grade": true, "points": 1}
# Many operations per byte: bound by arithmetic.
probe = probes(roofline=roofline)
probe.gives(100.0, 1000.0, 4.0, 100.0, 20.0)
### BEGIN HIDDEN TESTS
probe.equals(2.0 * 4096**3, 6.0 * 4096**2, 312e12, 1555e9)
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# Your kernels on shapes that fit no block, and the benefit of tiles: the best rate of an H100 for a product of two 1024 by 1024 matrices in half precision, against the tile size.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

scores = torch.linspace(-3, 3, 11) * torch.tensor([[0.0], [1.0], [2.0]])
tiles = [1, 4, 16, 64, 256]
moved = [matmul_bytes(1024, 1024, 1024, 2, tile, tile) for tile in tiles]
rates = [roofline(2 * 1024**3, nbytes, 989e12, 3.35e12) for nbytes in moved]
figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
axes[0].plot(blocked_copy(torch.arange(11.0), 4), "o")
axes[0].set(title="your copy of 0 to 10", xlabel="element", ylabel="number")
axes[1].imshow(row_softmax(scores), vmin=0)
axes[1].set(title="your softmax, row by row", xlabel="element", ylabel="row")
axes[2].loglog([2 * 1024**3 / nbytes for nbytes in moved], rates, "o-")
for tile, nbytes, rate in zip(tiles, moved, rates, strict=True):
    axes[2].annotate(f"tile {tile}", (2 * 1024**3 / nbytes, rate))
axes[2].set(title="roofline", xlabel="operations per byte", ylabel="operations per second")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. A matrix product with ragged edges
#
# `tiled_matmul(a, b)` multiplies `(M, K)` by `(K, N)`, float32, with one program per tile of 16 × 16 of the result, over a grid of two axes: axis 0 counts the tiles down, axis 1 the tiles across.
#
# - A program loops over `K` in strips of 16 and keeps its sum in registers.
# - None of `M`, `N`, `K` need be a multiple of 16. Start from a result of zeros.
# - The kernel is `matmul_kernel(a, b, c, M, N, K, BLOCK)`. `tl.dot` multiplies two blocks; `tl.zeros((BLOCK, BLOCK), tl.float32)` is an empty sum.
#
# By hand: $\begin{pmatrix} 1 & 2 \end{pmatrix} \begin{pmatrix} 3 \\ 4 \end{pmatrix} = 11$, one tile with one valid element.


# %% nbgrader={"grade_id": "matmul_kernel", "solution": true}
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BLOCK: tl.constexpr):
    ### BEGIN SOLUTION
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        left = tl.load(a + row * K + inner[None, :], (row < M) & (inner[None, :] < K), 0.0)
        right = tl.load(b + inner[:, None] * N + column, (inner[:, None] < K) & (column < N), 0.0)
        total += tl.dot(left, right)
    tl.store(c + row * N + column, total, (row < M) & (column < N))
    ### END SOLUTION


# %% nbgrader={"grade_id": "tiled_matmul", "solution": true}
def tiled_matmul(a, b):
    ### BEGIN SOLUTION
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros(M, N)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    matmul_kernel[grid](a.contiguous(), b.contiguous(), c, M, N, K, BLOCK=16)
    return c
    ### END SOLUTION


# %% nbgrader={"grade_id": "tiled_matmul-by_hand", "grade": true, "points": 1}
# One element.
probe = probes(tiled_matmul=tiled_matmul)
probe.gives(torch.tensor([[11.0]]), torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))

# %% nbgrader={"grade_id": "tiled_matmul-whole", "grade": true, "points": 1}
# Whole tiles: two down, three across, two strips.
probe = probes(tiled_matmul=tiled_matmul)
probe.equals(probe.normal(32, 32), probe.normal(32, 48))

# %% nbgrader={"grade_id": "tiled_matmul-ragged", "grade": true, "points": 2}
# Nothing is a multiple of 16.
probe = probes(tiled_matmul=tiled_matmul)
probe.equals(probe.normal(5, 20), probe.normal(20, 3))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(19, 37), probe.normal(37, 41))
probe.equals(probe.normal(40, 3), probe.normal(3, 17))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "tiled_matmul-kernel", "grade": true, "points": 1}
# The kernel alone, launched only for the second tile across.
probe = probes(tiled_matmul=tiled_matmul)
probe.gives(torch.tensor([[6.0]]), torch.tensor([[2.0]]), torch.tensor([[3.0]]))
probe.holds(properties.starts_a_kernel, torch.ones(2, 3), torch.ones(3, 2))
written = student.launch(
    *(matmul_kernel, (1, 2), torch.ones(2, 3), torch.ones(3, 18), torch.full((3, 18), -1.0)),
    *(2, 18, 3),
    BLOCK=16,
    writes=2,
)
assert written[:2].tolist() == [[3.0] * 18] * 2, "matmul_kernel: two rows of 18 should be 3"
assert written[2].tolist() == [-1.0] * 18, "matmul_kernel: it writes behind the last row"

# %% [markdown]
# ## 5. Repair: the largest element of each row
#
# `broken_row_max` should return the largest element of each row of `x`, `(rows, width)`. It runs, but it has two faults. Find them and write `fixed_row_max`, kernel and function.


# %% nbgrader={"grade_id": "broken_row_max", "locked": true}
@triton.jit
def broken_kernel(x, top, width, WIDTH: tl.constexpr):
    row, column = tl.program_id(1), tl.arange(0, WIDTH)
    values = tl.load(x + row * width + column, mask=column < width, other=0.0)
    tl.store(top + row, tl.max(values))


def broken_row_max(x):
    top = torch.zeros(x.shape[0])
    wide = triton.next_power_of_2(x.shape[1])
    broken_kernel[(x.shape[0],)](x, top, x.shape[1], WIDTH=wide)
    return top


# %% nbgrader={"grade_id": "fixed_kernel", "solution": true}
@triton.jit
def fixed_kernel(x, top, width, WIDTH: tl.constexpr):
    ### BEGIN SOLUTION
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    values = tl.load(x + row * width + column, mask=column < width, other=-float("inf"))
    tl.store(top + row, tl.max(values))
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_row_max", "solution": true}
def fixed_row_max(x):
    ### BEGIN SOLUTION
    top = torch.zeros(x.shape[0])
    wide = triton.next_power_of_2(x.shape[1])
    fixed_kernel[(x.shape[0],)](x, top, x.shape[1], WIDTH=wide)
    return top
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_row_max-whole", "grade": true, "points": 1}
# Rows of four: no lane is masked.
probe = probes(fixed_row_max=fixed_row_max)
probe.equals(torch.tensor([[1.0, 4.0, 2.0, 3.0], [-1.0, -4.0, -2.0, -3.0]]))

# %% nbgrader={"grade_id": "fixed_row_max-ragged", "grade": true, "points": 2}
# Rows of three.
probe = probes(fixed_row_max=fixed_row_max)
probe.equals(torch.tensor([[-5.0, -4.0, -6.0], [1.0, 2.0, 0.0]]))
probe.holds(properties.starts_a_kernel, torch.ones(2, 3))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(4, 9) - 10)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Write the test
#
# `check_copy(candidate)` takes another learner's `blocked_copy(x, block_size)` and returns `True` if it keeps the contract of exercise 1, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Many wrong answers are right if the length is a multiple of the block, or for a single block. A candidate that raises an error or changes its input is wrong.


# %% nbgrader={"grade_id": "check_copy", "solution": true}
def check_copy(candidate):
    ### BEGIN SOLUTION
    for size, block in ((1, 4), (4, 4), (13, 4), (16, 2), (7, 1), (3, 16)):
        x = torch.arange(1.0, size + 1)
        try:
            y = candidate(x, block)
        except Exception:
            return False
        expected = torch.arange(1.0, size + 1)
        if y is x or y.shape != x.shape or not torch.equal(y, expected):
            return False
        if not torch.equal(x, expected):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_copy-plain", "grade": true, "points": 1}
# A right answer, and two that are clearly wrong.
def with_clone(x, block_size):
    return x.clone()


def always_zero(x, block_size):
    return torch.zeros_like(x)


def one_short(x, block_size):
    return x[:-1].clone()


probe = probes(check_copy=check_copy)
probe.judges(
    right=[with_clone],
    wrong={"always zero": always_zero, "one element short": one_short},
    points=1,
)


# %% nbgrader={"grade_id": "check_copy-mutants", "grade": true, "points": 6}
# Typical mistakes in kernels.
def by_blocks(programs, places, before=lambda x: None):
    def candidate(x, block_size):
        y = torch.zeros_like(x)
        for program in range(programs(len(x), block_size)):
            at = places(program, block_size)
            at = at[at < len(x)]
            y[at] = x[at]
        before(x)
        return y

    return candidate


def own(program, block):
    return program * block + torch.arange(block)


probe = probes(check_copy=check_copy)
probe.judges(
    right=[with_clone],
    wrong={"the last block is missing": by_blocks(lambda n, b: n // b, own)},
    points=1,
)
### BEGIN HIDDEN TESTS
probe.judges(
    right=[with_clone, by_blocks(lambda n, b: -(-n // b), own)],
    wrong={
        "the last block is missing": by_blocks(lambda n, b: n // b, own),
        "one program only": by_blocks(lambda n, b: 1, own),
        "one program too few": by_blocks(lambda n, b: max(1, -(-n // b) - 1), own),
        "blocks overlap": by_blocks(lambda n, b: -(-n // b), lambda p, b: p + torch.arange(b)),
        "the first element is skipped": by_blocks(
            lambda n, b: -(-n // b), lambda p, b: own(p, b) + 1
        ),
        "the input is cleared": by_blocks(lambda n, b: -(-n // b), own, lambda x: x.zero_()),
        "one is added to the input first": lambda x, block_size: x.add_(1).clone(),
        "each block is reversed": lambda x, block_size: torch.cat(
            [block.flip(0) for block in x.split(block_size)]
        ),
        "only the first and the last element": lambda x, block_size: torch.cat(
            [x[:1], 0 * x[1:-1], x[-1:]]
        )[: len(x)],
        "it raises an error": lambda x, block_size: x.view(-1, block_size).flatten(),
    },
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. Choose a chip whose two rates you can find (name the source). From which intensity is a step bound by arithmetic? On which side are your softmax, a product of two 4,096 × 4,096 matrices in half precision, and one token of a language model?
# 2. With `matmul_bytes`: how do the bytes of that product change when the tile grows from 16 to 256? Why can a kernel not use the whole matrix as one tile?
# 3. Which measurement on a GPU, with which control, would support the claim that a fused softmax is faster *because* it moves fewer bytes?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. H100 SXM, by NVIDIA's data sheet: 989 TFLOP/s in half precision, 3,350 GB/s, so the limit is about 295 operations per byte.
# The softmax has about 1.25 (memory), the product 4096 / 3 = 1,365 if every number is read once (arithmetic), one token about 1 (memory).
# 2. Reads fall in proportion to 1 / tile: from 2 · 4096³ / 16 numbers to a sixteenth of that; writes do not change. The sum of a tile must stay in registers: 256 × 256 float32 take 256 KB, all registers of a multiprocessor.
# 3. Time of both versions over many sizes, below and above the size of the L2 cache, as bytes per second, compared with a plain copy on the same GPU.
# If bytes are the reason, both versions reach about the rate of the copy, and the quotient of times is the quotient of bytes. A control with the same bytes and more arithmetic (two exponentials) should take the same time.
#
# **Points**, one for each:
#
# - (1a) The limit, with the source of both rates.
# - (1b) The side of each of the three.
# - (2a) Bytes fall with the tile.
# - (2b) The sum of the tile must stay on chip.
# - (3a) Bytes per second over many sizes, compared with a copy.
# - (3b) A control with equal bytes and more arithmetic.
