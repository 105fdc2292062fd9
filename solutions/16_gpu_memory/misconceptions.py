"""Wrong answers on the way to kernels: name, message, the tests they fail.

Kernels are imitated in torch, block by block, so that mistakes are recognised without Triton."""

import math

import torch

from attn_course.probes import WrongAnswers, call, witnesses


def up(size, block):
    return -(-size // block)


# --- blocked_copy --------------------------------------------------------------------------------


def own_block(program, block):
    return program * block + torch.arange(block)


def copied(
    x,
    block_size,
    *,
    programs=up,
    places=own_block,
    inside=lambda at, size, block: at < size,
    source=lambda at, block: at,
    target=lambda at, block: at,
):
    y = torch.zeros_like(x)
    for program in range(programs(len(x), block_size)):
        at = places(program, block_size)
        at = at[inside(at, len(x), block_size) & (at >= 0)]
        y[target(at, block_size)] = x[source(at, block_size)]
    return y


copy = WrongAnswers("blocked_copy", tests=("by_hand", "ragged", "kernel"), right=copied)


@witnesses(of="blocked_copy")
def copy_calls(draw):
    for size, block in ((8, 4), (10, 4), (1, 8), (13, 2), (5, 1), (31, 16)):
        yield call(draw.normal(size), block)


copy.fault(
    "the last block is missing",
    """You launch programs only for whole blocks, so the last elements stay 0. A partial block needs
    a program, too, with a mask.""",
    but=("by_hand",),
    programs=lambda size, block: size // block,
)
copy.fault(
    "only the first block is copied",
    "You copy only the first block. Check the grid, and use the program id in the offsets.",
    programs=lambda size, block: 1,
)
copy.fault(
    "blocks overlap",
    """Your programs start at elements 0, 1, 2, so their blocks overlap. By how much does the start
    advance from one program to the next?""",
    places=lambda program, block: program + torch.arange(block),
)
copy.fault(
    "the last element is masked",
    "You do not copy the last element. Offsets 0 to `size - 1` are valid.",
    inside=lambda at, size, block: at < size - 1,
)
copy.fault(
    "the mask compares with the size of a block",
    """Your mask compares offsets with the block size, so only the first block is copied. Compare
    them with the length of the vector.""",
    inside=lambda at, size, block: at < block,
)
copy.fault(
    "offsets count from 1",
    "Your offsets begin at 1, so the first element is missing. They begin at 0.",
    places=lambda program, block: own_block(program, block) + 1,
)
copy.fault(
    "only even programs",
    "You skip every other block: the start advances by two blocks from one program to the next.",
    places=lambda program, block: 2 * program * block + torch.arange(block),
)
copy.fault(
    "every block is written to the first",
    """Your programs read their own blocks but all write to the first one. The start of the block
    belongs in the store address, too.""",
    target=lambda at, block: at % block,
)
copy.fault(
    "every block is read from the first",
    """Your programs write their own blocks but all read the first one. The start of the block
    belongs in the load address, too.""",
    source=lambda at, block: at % block,
)
copy.fault(
    "as many programs as elements in a block",
    """You launch `block_size` programs. Launch one per block: the length divided by the block size,
    rounded up.""",
    but=("by_hand",),
    programs=lambda size, block: block,
)
copy.fault(
    "the result is copied to the input",
    """You overwrite the input with the zeros of the result. Check the order of the kernel's
    arguments: it loads from the first and stores to the second.""",
    lambda x, block_size: torch.zeros_like(x.zero_()),
)
copy.fault(
    "no kernel is launched",
    """Your values are right, but torch made the copy. Launch your kernel on a grid, and return its
    result.""",
    lambda x, block_size: x.clone(),
    fails=("kernel",),
)

# --- row_softmax ---------------------------------------------------------------------------------


def own_top(x):
    return x.amax(1, keepdim=True)


def own_total(parts, width):
    return parts.sum(1, keepdim=True)


def softened(scores, *, fill=-math.inf, top=own_top, power=torch.exp, total=own_total, rows=None):
    width = scores.shape[1]
    wide = 1 << (width - 1).bit_length()
    x = scores.new_full((len(scores), wide), fill)
    x[:, :width] = scores
    parts = power(x - top(x))
    weights = (parts / total(parts, width))[:, :width]
    return weights if rows is None else rows(weights)


soft = WrongAnswers("row_softmax", tests=("by_hand", "ragged", "large", "kernel"), right=softened)


NO_KERNEL = "Your values are right, but torch computed them. Launch your kernel on a grid, and return its result."


@witnesses(of="row_softmax")
def softmax_calls(draw):
    for rows, width in ((2, 2), (2, 3), (4, 11), (3, 8), (5, 1), (3, 33)):
        yield call(draw.normal(rows, width))
        yield call(draw.normal(rows, width) - 5)
        yield call(100 * draw.normal(rows, width))


def without_first(weights):
    weights = weights.clone()
    weights[1:] = 0.0
    return weights


def first_row(weights):
    return weights[:1].expand_as(weights).clone()


soft.fault(
    "masked lanes are 0",
    """Your masked lanes contain 0, which enters the maximum and the sum. Which value changes
    neither?""",
    fails=("ragged", "kernel"),
    fill=0.0,
)
soft.fault(
    "every row is written to the first",
    """Your programs read their own rows but all write to the first one. The start of the row
    belongs in the store address, too.""",
    rows=lambda weights: torch.cat([weights[-1:], torch.zeros_like(weights[1:])]),
)
soft.fault(
    "no maximum subtracted",
    """You take the exponentials of the raw scores. In float32 they overflow above about 88 and
    vanish far below 0.""",
    fails=("large", "kernel"),
    top=lambda x: torch.zeros_like(x[:, :1]),
)
soft.fault(
    "powers of two",
    "You use powers of 2 instead of e. With `tl.exp2` the scores need another factor.",
    power=torch.exp2,
)
soft.fault(
    "divided by the width",
    "You divide by the width of the row. Divide by the sum of its exponentials.",
    total=lambda parts, width: width,
)
soft.fault(
    "not divided",
    "You store the exponentials undivided. Divide them by their sum.",
    total=lambda parts, width: 1.0,
)
soft.fault(
    "only the first row is computed",
    "You compute only the first row. Check the grid, and use the program id.",
    rows=without_first,
)
soft.fault(
    "the first row for all",
    """Every row of your result has the weights of the first one: the row index is missing in the
    load address.""",
    rows=first_row,
)

soft.fault(
    "columns instead of rows",
    """Your softmax runs over the columns. The elements of a row are adjacent in memory, and rows
    are `width` apart.""",
    lambda scores: scores.softmax(0),
)
soft.fault("no kernel is launched", NO_KERNEL, lambda scores: softened(scores), fails=("kernel",))

# --- tiled_matmul --------------------------------------------------------------------------------

B = 16


def added(total, part):
    return total + part


def strided(x, step):
    """Elements of x in memory as read with a wrong stride between rows."""
    return x.flatten()[torch.arange(len(x))[:, None] * step + torch.arange(x.shape[1])]


def multiplied(
    a,
    b,
    *,
    left=lambda a, b: a,
    right=lambda a, b: b,
    strips=lambda K: up(K, B),
    add=added,
    down=up,
    across=up,
    place=lambda i, j: (i, j),
    reads=lambda k: k,
):
    (M, K), N = a.shape, b.shape[1]
    a, b, c = left(a, b), right(a, b), a.new_zeros(M, N)
    for i in range(down(M, B)):
        for j in range(across(N, B)):
            m, n = (slice(B * x, B * x + B) for x in place(i, j))
            total = a.new_zeros(c[m, n].shape)
            for k in range(strips(K)):
                strip = slice(B * reads(k), B * reads(k) + B)
                total = add(total, a[m, strip] @ b[strip, n])
            c[m, n] = total
    return c


product = WrongAnswers(
    "tiled_matmul", tests=("by_hand", "whole", "ragged", "kernel"), right=multiplied
)


@witnesses(of="tiled_matmul")
def product_calls(draw):
    for M, K, N in ((1, 2, 1), (32, 32, 48), (5, 20, 3), (19, 37, 41), (40, 3, 17)):
        yield call(draw.normal(M, K), draw.normal(K, N))


product.fault(
    "the end of K is missing",
    """You leave out the last strip if K is not a multiple of 16. A partial strip needs a pass of
    the loop, too, with a mask.""",
    but=("whole",),
    strips=lambda K: K // B,
)
product.fault(
    "only the first strip",
    "You multiply only the first strip along K. Sum over all strips.",
    but=("by_hand",),
    strips=lambda K: 1,
)
product.fault(
    "the first strip repeated",
    """Every pass of your loop reads the same strip along K. The start of the strip belongs in both
    addresses.""",
    but=("by_hand",),
    reads=lambda k: 0,
)
product.fault(
    "the sum is overwritten",
    "Your tiles contain only the product of the last strip. Add the product of every strip.",
    but=("by_hand",),
    add=lambda total, part: part,
)
product.fault(
    "ragged tiles are missing",
    "Your grid counts only whole tiles. Round up, and mask the tiles at the edge.",
    but=("whole",),
    down=lambda size, block: size // block,
    across=lambda size, block: size // block,
)
product.fault(
    "the grid has one axis",
    """You compute only the first column of tiles. The grid needs the number of tiles across as its
    second axis.""",
    but=("by_hand",),
    across=lambda size, block: 1,
)
product.fault(
    "the axes of the grid are exchanged",
    """Your kernel exchanges the two axes of the grid. Axis 0 counts the tiles down, axis 1 the
    tiles across.""",
    but=("by_hand",),
    place=lambda i, j: (j, i),
)
STRIDE = "You use a wrong row stride in one of the factors. Rows are K elements apart in the first factor, N in the second and in the result."
product.fault(
    "the rows of the first factor are not K apart",
    STRIDE,
    fails=("ragged", "kernel"),
    left=lambda a, b: strided(a, len(a)),
)
product.fault(
    "the rows of the second factor are not N apart",
    STRIDE,
    right=lambda a, b: strided(b, len(b)),
)
product.fault("no kernel is launched", NO_KERNEL, lambda a, b: multiplied(a, b), fails=("kernel",))
product.fault(
    "strips are subtracted",
    "Your result has the wrong sign: you subtract the strips. Add them.",
    add=lambda total, part: total - part,
)

# --- matmul_bytes --------------------------------------------------------------------------------


def counted(
    M, N, K, itemsize, block_m, block_n, *, rounded=up, first=None, second=None, result=None,
    size=1, edge=lambda size, block: size,
):  # fmt: skip
    across, down = rounded(N, block_n), rounded(M, block_m)
    M, N = edge(M, block_m), edge(N, block_n)
    entries = M * K * across if first is None else first(M, N, K, across, down)
    entries += K * N * down if second is None else second(M, N, K, across, down)
    entries += M * N if result is None else result(M, N, K)
    return entries * (itemsize if size == 1 else size(itemsize))


moved = WrongAnswers("matmul_bytes", tests=("by_hand", "sizes"), right=counted)


@witnesses(of="matmul_bytes")
def bytes_calls(draw):
    for sizes in (
        *((4, 4, 4, 1, 2, 2), (3, 5, 4, 2, 1, 3), (7, 11, 13, 4, 2, 5)),
        *((64, 32, 16, 2, 16, 8), (9, 9, 5, 8, 4, 2), (1, 100, 3, 2, 1, 10)),
    ):
        yield call(*sizes)


moved.fault(
    "everything is read once",
    """You count every number once. Each tile across reads the first factor again, each tile down
    the second.""",
    first=lambda M, N, K, across, down: M * K,
    second=lambda M, N, K, across, down: K * N,
)
moved.fault(
    "the factors are exchanged",
    """You read the first factor once per tile down and the second once per tile across. Which tiles
    need one row of the first factor?""",
    fails=("sizes",),
    first=lambda M, N, K, across, down: M * K * down,
    second=lambda M, N, K, across, down: K * N * across,
)
moved.fault(
    "ragged tiles are not counted",
    "You round the number of tiles down. Round up: a tile at the edge reads its strips, too.",
    fails=("sizes",),
    rounded=lambda size, block: size // block,
)
moved.fault(
    "one tile too many",
    "You add a tile even where the tiles fit. Round up: 4 in tiles of 2 take 2 tiles, 5 take 3.",
    rounded=lambda size, block: size // block + 1,
)
moved.fault(
    "every tile reads both whole factors",
    """You read both whole factors for each tile. A tile needs only its rows of the first factor and
    its columns of the second.""",
    first=lambda M, N, K, across, down: M * K * across * down,
    second=lambda M, N, K, across, down: K * N * across * down,
)
moved.fault(
    "tiles at the edge count in full",
    "You count tiles at the edge in full. Masked elements are neither read nor written.",
    fails=("sizes",),
    edge=lambda size, block: up(size, block) * block,
)
moved.fault(
    "the result is forgotten",
    "You count only reads. Each element of the result is written once.",
    result=lambda M, N, K: 0,
)
moved.fault(
    "elements instead of bytes",
    "You count elements, not bytes. Each has `itemsize` bytes.",
    fails=("sizes",),
    size=lambda itemsize: 1,
)
moved.fault(
    "one fetch for each product",
    """You load both factors for each of the M · N · K multiplications. Inside a tile, a loaded
    number serves a whole row or column.""",
    first=lambda M, N, K, across, down: M * N * K,
    second=lambda M, N, K, across, down: M * N * K,
)
moved.fault(
    "the result is written once for each strip",
    """You write the result after every step along K. Its sum stays in registers and is written
    once.""",
    result=lambda M, N, K: M * N * K,
)

# --- roofline ------------------------------------------------------------------------------------


def limit(flops, nbytes, peak_flops, bandwidth, *, join=max, move=None):
    arithmetic = flops / peak_flops
    memory = nbytes / bandwidth if move is None else move(flops, nbytes, peak_flops, bandwidth)
    return flops / join(arithmetic, memory)


roof = WrongAnswers("roofline", tests=("slope", "roof"), right=limit)


@witnesses(of="roofline")
def roof_calls(draw):
    for flops in (10.0, 500.0, 1e4, 1e9):
        yield call(flops, 4.0, 100.0, 20.0)
        yield call(flops, 3e6, 312e12, 1555e9)


roof.fault(
    "always the roof",
    "You always return the peak rate. A step with few operations per byte is bound by memory.",
    fails=("slope",),
    join=lambda arithmetic, memory: arithmetic,
)
roof.fault(
    "always the slope",
    "Your rate grows with the intensity without limit. It never exceeds `peak_flops`.",
    fails=("roof",),
    join=lambda arithmetic, memory: memory,
)
roof.fault(
    "the shorter time",
    "You use the shorter of the two times. The step ends after the longer one.",
    join=min,
)
roof.fault(
    "the times add up",
    "You add the two times. Arithmetic and traffic overlap, so only the longer one counts.",
    join=lambda arithmetic, memory: arithmetic + memory,
)
roof.fault(
    "bytes for each operation",
    """You multiply the bandwidth by bytes per operation. Bytes per second times *operations per
    byte* is operations per second.""",
    move=lambda flops, nbytes, peak_flops, bandwidth: flops**2 / nbytes / bandwidth,
)


roof.fault(
    "the bandwidth as a rate",
    "You treat the bandwidth as operations per second. Multiply it by the operations per byte.",
    move=lambda flops, nbytes, peak_flops, bandwidth: flops / bandwidth,
)


@roof("a time instead of a rate")
def seconds(flops, nbytes, peak_flops, bandwidth):
    """You return the time of the step. Divide the operations by that time."""
    return max(flops / peak_flops, nbytes / bandwidth)


# --- fixed_row_max -------------------------------------------------------------------------------


def highest(x, *, fill=-math.inf, rows=lambda top: top):
    wide = 1 << (x.shape[1] - 1).bit_length()
    full = x.new_full((len(x), wide), fill)
    full[:, : x.shape[1]] = x
    return rows(full.amax(1))


fixed = WrongAnswers("fixed_row_max", tests=("whole", "ragged"), right=highest)


def only_first(top):
    return torch.where(torch.arange(len(top)) == 0, top, 0.0)


@witnesses(of="fixed_row_max")
def max_calls(draw):
    for rows, width in ((2, 4), (3, 3), (4, 9), (5, 1)):
        yield call(draw.normal(rows, width))
        yield call(draw.normal(rows, width) - 10)


fixed.fault(
    "only the first row is computed",
    """All your programs process the first row. The grid has one axis, but the kernel reads its id
    from another one.""",
    rows=only_first,
)
fixed.fault(
    "masked lanes are still 0",
    """Your masked lanes contain 0, which exceeds negative elements. Which number is never the
    largest?""",
    fails=("ragged",),
    fill=0.0,
)
fixed.fault("no kernel is launched", NO_KERNEL, lambda x: highest(x), fails=("ragged",))

# --- check_copy ----------------------------------------------------------------------------------

checks = WrongAnswers("check_copy", tests=("plain", "mutants"))


@witnesses(of="check_copy")
def check_calls(draw):
    for candidate in (
        copied,
        lambda x, block_size: torch.zeros_like(x),
        lambda x, block_size: x[:-1].clone(),
        lambda x, block_size: copied(x, block_size, programs=lambda n, b: n // b),
        lambda x, block_size: copied(x, block_size, programs=lambda n, b: 1),
        lambda x, block_size: x.flip(0),
    ):
        yield call(candidate)


def tried(candidate, *sizes):
    for size, block in sizes:
        x, y = torch.arange(1.0, size + 1), candidate(torch.arange(1.0, size + 1), block)
        if y.shape != x.shape or not torch.equal(y, x):
            return False
    return True


@checks("accepts everything")
def check_nothing(candidate):
    """Your test always returns True. Call the candidate and compare its result with the input."""
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test rejects a right answer. Check which of your comparisons it fails."""
    return False


@checks("only one whole block", fails=("mutants",))
def check_one_block(candidate):
    """You test one length, exactly one block. Most mistakes show only with several blocks or a
    partial last one.
    """
    return tried(candidate, (4, 4))


@checks("only whole blocks", fails=("mutants",))
def check_whole_blocks(candidate):
    """All your lengths are multiples of the block. A kernel that skips the partial last block
    passes.
    """
    return tried(candidate, (4, 4), (16, 2))


@checks("only the shape is compared")
def check_shape(candidate):
    """You compare only the shape. Compare the values."""
    return candidate(torch.ones(5), 4).shape == (5,)
