"""Wrong answers on the way to kernels: name, message, the tests they fail.

Kernels are imitated in torch, block by block, so that a mistake is recognised without Triton.
"""

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
    "the last block is left out",
    """The last elements stay 0: you start as many programs as whole blocks fit. A block that is not
    full needs a program too; its mask takes care of the rest.""",
    but=("by_hand",),
    programs=lambda size, block: size // block,
)
copy.fault(
    "only the first block is copied",
    """Only the first block is copied. Look at the grid, which says how many programs run, and at
    what tells one program from another: it has to enter the places.""",
    programs=lambda size, block: 1,
)
copy.fault(
    "blocks overlap",
    """Your programs start at element 0, 1, 2 and so on, so that their blocks overlap and the end is
    never reached. By how much does the start move from one program to the next?""",
    places=lambda program, block: program + torch.arange(block),
)
copy.fault(
    "the last element is masked",
    """Every element is copied but the last. Which places are inside, if they count from 0 and there
    are `size` of them?""",
    inside=lambda at, size, block: at < size - 1,
)
copy.fault(
    "the mask compares with the size of a block",
    """Your mask lets places below the size of a block through, so that nothing behind the first
    block is copied. Inside is what lies below the length of the vector.""",
    inside=lambda at, size, block: at < block,
)
copy.fault(
    "places count from one",
    """The first element is missing: your places begin at 1. `tl.arange(0, BLOCK)` begins at 0, and
    so do the elements of a tensor.""",
    places=lambda program, block: own_block(program, block) + 1,
)
copy.fault(
    "only even programs",
    """Every other block is missing: the start of a block moves by two blocks from one program to
    the next. Compare with the example of the text.""",
    places=lambda program, block: 2 * program * block + torch.arange(block),
)
copy.fault(
    "every block is written to the first",
    """Your programs read their own blocks and all write to the same places. The start of the block
    has to enter the address that you store to as well.""",
    target=lambda at, block: at % block,
)
copy.fault(
    "every block is read from the first",
    """Your programs write their own blocks and all read the same places. The start of the block has
    to enter the address that you load from as well.""",
    source=lambda at, block: at % block,
)
copy.fault(
    "as many programs as elements in a block",
    """The size of a block is the number of your programs. It takes as many as there are blocks: the
    length divided by the size of a block, rounded up.""",
    but=("by_hand",),
    programs=lambda size, block: block,
)
copy.fault(
    "the result is copied to the input",
    """Your kernel fills the vector that you were given with the zeros of the result. It loads from
    its first argument and stores to its second: compare with the order in which you pass them.""",
    lambda x, block_size: torch.zeros_like(x.zero_()),
)
copy.fault(
    "no kernel is started",
    """The numbers are right, but no program of yours has moved them: your function returns its
    input or lets torch copy it. Start your kernel on a grid, and return what it has written.""",
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


NO_KERNEL = """The numbers are right, but torch has computed them. Start a kernel of yours on a grid, and
return what it has written."""


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
    """Lanes behind the end of a row hold 0, and take part: in the maximum, and with e⁰ = 1 or so in
    the sum. What must a lane hold so that it changes neither?""",
    fails=("ragged", "kernel"),
    fill=0.0,
)
soft.fault(
    "every row is written to the first",
    """Your programs read their own rows and all write to the first one. The start of the row has to
    enter the address that you store to as well.""",
    rows=lambda weights: torch.cat([weights[-1:], torch.zeros_like(weights[1:])]),
)
soft.fault(
    "no maximum subtracted",
    """You take the exponentials of the scores as they are. Above about 88 they overflow in float32,
    and far below 0 all of them vanish.""",
    fails=("large", "kernel"),
    top=lambda x: torch.zeros_like(x[:, :1]),
)
soft.fault(
    "powers of two",
    """Your weights are made of powers of two instead of e. `tl.exp2` is what fast kernels take, and
    then the scores carry a factor that is missing here.""",
    power=torch.exp2,
)
soft.fault(
    "divided by the width",
    """You divide by the number of elements. Weights that sum to one are divided by the sum of the
    exponentials of their own row.""",
    total=lambda parts, width: width,
)
soft.fault(
    "not divided",
    """Your weights do not sum to one: the exponentials are stored as they are. The sum over the row
    is missing.""",
    total=lambda parts, width: 1.0,
)
soft.fault(
    "only the first row is computed",
    """Only the first row is computed, the others are still 0. There is one program per row: look at
    the grid, and at what tells one program from another.""",
    rows=without_first,
)
soft.fault(
    "the first row for all",
    """Every row shows the weights of the first one: the row's number enters where you store, and
    not where you load.""",
    rows=first_row,
)

soft.fault(
    "columns instead of rows",
    """Your columns sum to one. The softmax is that of each row: the elements of a row lie side by
    side in memory, and rows are `width` apart.""",
    lambda scores: scores.softmax(0),
)
soft.fault("no kernel is started", NO_KERNEL, lambda scores: softened(scores), fails=("kernel",))

# --- tiled_matmul --------------------------------------------------------------------------------

B = 16


def added(total, part):
    return total + part


def strided(x, step):
    """What lies at the places of x in memory if its rows are taken to be so many elements apart."""
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
    "the end of K is left out",
    """The last strip along K is missing where K is no multiple of 16. A strip that is not full
    needs a turn of the loop too, and a mask.""",
    but=("whole",),
    strips=lambda K: K // B,
)
product.fault(
    "only the first strip",
    """You multiply the first strip along K only. A tile of the result is the sum over all of them:
    where is the loop?""",
    but=("by_hand",),
    strips=lambda K: 1,
)
product.fault(
    "the first strip again and again",
    """Every turn of the loop reads the same strip along K. The start of the strip has to enter both
    addresses.""",
    but=("by_hand",),
    reads=lambda k: 0,
)
product.fault(
    "the sum is overwritten",
    """Your tiles hold the product of the last strip alone. Every turn of the loop has to add to
    what is there.""",
    but=("by_hand",),
    add=lambda total, part: part,
)
product.fault(
    "ragged tiles are left out",
    """Tiles at the lower and at the right edge are missing: the grid counts whole tiles only. Round
    up, and let the mask cut.""",
    but=("whole",),
    down=lambda size, block: size // block,
    across=lambda size, block: size // block,
)
product.fault(
    "the grid has one axis",
    """Only the first column of tiles is computed. The grid needs the number of tiles across as its
    second axis.""",
    but=("by_hand",),
    across=lambda size, block: 1,
)
product.fault(
    "the axes of the grid are exchanged",
    """Your kernel takes the tile's row from axis 1 and its column from axis 0, while the grid is
    made the other way round. With as many tiles down as across nobody notices.""",
    but=("by_hand",),
    place=lambda i, j: (j, i),
)
STRIDE = """In memory the rows of a table are as far apart as it has columns: K elements in the first
factor, N in the second and in the result. You step by another size in one of the factors."""
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
product.fault("no kernel is started", NO_KERNEL, lambda a, b: multiplied(a, b), fails=("kernel",))
product.fault(
    "strips are subtracted",
    """The result has the wrong sign: parts are taken away from the sum and not added to it.""",
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
    """You count every number once: that is the least that there could be. A number of the first
    factor is read by each tile across, one of the second by each tile down.""",
    first=lambda M, N, K, across, down: M * K,
    second=lambda M, N, K, across, down: K * N,
)
moved.fault(
    "the factors are exchanged",
    """You read the first factor once for each tile down, and the second once for each tile across.
    Which tiles need one row of the first factor?""",
    fails=("sizes",),
    first=lambda M, N, K, across, down: M * K * down,
    second=lambda M, N, K, across, down: K * N * across,
)
moved.fault(
    "ragged tiles do not count",
    """You round the number of tiles down. A tile that sticks out over the edge reads its strips
    too.""",
    fails=("sizes",),
    rounded=lambda size, block: size // block,
)
moved.fault(
    "one tile too many",
    """You add a tile also where the tiles fit. Round up: 4 in tiles of 2 are 2 tiles, 5 are 3.""",
    rounded=lambda size, block: size // block + 1,
)
moved.fault(
    "every tile reads both factors whole",
    """You read both factors once for each tile of the result. A tile needs its own rows of the
    first factor and its own columns of the second.""",
    first=lambda M, N, K, across, down: M * K * across * down,
    second=lambda M, N, K, across, down: K * N * across * down,
)
moved.fault(
    "tiles at the edge count in full",
    """You count every tile as large as the others. What is masked at the edge is not read, and not
    written.""",
    fails=("sizes",),
    edge=lambda size, block: up(size, block) * block,
)
moved.fault(
    "the result is forgotten",
    """You count what is read and leave out what is written: every element of the result goes to
    memory once.""",
    result=lambda M, N, K: 0,
)
moved.fault(
    "elements and not bytes",
    """You count numbers. Each of them has `itemsize` bytes.""",
    fails=("sizes",),
    size=lambda itemsize: 1,
)
moved.fault(
    "one fetch for each product",
    """You fetch both factors for each of the M · N · K multiplications. Inside a tile a number that
    has been loaded serves a whole row or column.""",
    first=lambda M, N, K, across, down: M * N * K,
    second=lambda M, N, K, across, down: M * N * K,
)
moved.fault(
    "the result is written once for each strip",
    """You write the tile after every step along K. Its sum stays in registers and is stored once,
    at the end.""",
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
    """You return the rate of the arithmetic whatever the bytes are. A step with few operations for
    each byte waits for memory.""",
    fails=("slope",),
    join=lambda arithmetic, memory: arithmetic,
)
roof.fault(
    "always the slope",
    """Your rate grows with the intensity without end. No step is faster than the arithmetic of the
    chip.""",
    fails=("roof",),
    join=lambda arithmetic, memory: memory,
)
roof.fault(
    "the shorter time counts",
    """You take the shorter of the two times. Both have to pass before the step is done, so that the
    longer one counts.""",
    join=min,
)
roof.fault(
    "the times add up",
    """You add the two times. Arithmetic and traffic go on at the same time here: the longer one
    hides the other.""",
    join=lambda arithmetic, memory: arithmetic + memory,
)
roof.fault(
    "bytes for each operation",
    """You multiply the bandwidth by bytes per operation. Bytes per second times *operations per
    byte* is operations per second.""",
    move=lambda flops, nbytes, peak_flops, bandwidth: flops**2 / nbytes / bandwidth,
)


roof.fault(
    "the bandwidth is taken for a rate",
    """You take the smaller of the two rates as they are. Bytes per second become operations per
    second by the operations that are done for each byte.""",
    move=lambda flops, nbytes, peak_flops, bandwidth: flops / bandwidth,
)


@roof("a time and not a rate")
def seconds(flops, nbytes, peak_flops, bandwidth):
    """You return how long the step takes. The question is how many operations it does in a second:
    divide the operations by that time.
    """
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
    """All programs work on the first row: the grid has one axis, and the kernel asks for its place
    on another one.""",
    rows=only_first,
)
fixed.fault(
    "masked lanes are still 0",
    """A row of negative numbers gets 0: the lanes behind its end hold a number that is larger.
    Which number is never the largest?""",
    fails=("ragged",),
    fill=0.0,
)
fixed.fault("no kernel is started", NO_KERNEL, lambda x: highest(x), fails=("ragged",))

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
    """Your test accepts every candidate, so it tests nothing. Call the candidate and compare what
    it returns with what a copy has to be.
    """
    return True


@checks("refuses everything")
def check_refuse(candidate):
    """Your test rejects right answers too. A test that never says yes is of no use: compare the
    values, and look at which of your comparisons a right answer fails.
    """
    return False


@checks("one whole block only", fails=("mutants",))
def check_one_block(candidate):
    """You try one length, which is exactly one block. Most mistakes of a kernel show where there
    are several blocks, or where the last one is not full.
    """
    return tried(candidate, (4, 4))


@checks("only whole blocks", fails=("mutants",))
def check_whole_blocks(candidate):
    """Every length that you try is a multiple of the block. The last block is full there, and a
    kernel that forgets the rest passes.
    """
    return tried(candidate, (4, 4), (16, 2))


@checks("only the shape is looked at")
def check_shape(candidate):
    """You compare shapes and no value. A block that was never written has the right shape too."""
    return candidate(torch.ones(5), 4).shape == (5,)
