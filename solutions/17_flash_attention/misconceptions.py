"""Wrong answers on the way to attention in tiles: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, witnesses

# --- online_logsumexp --------------------------------------------------------------------------


def finite(top):
    return top.masked_fill(top == -torch.inf, 0.0)


def larger(top, block):
    return torch.maximum(top, block.amax(dim=-1))


def ended(total, top, count):
    return total.log() + finite(top)


def guarded(total, top, count):
    return torch.where(total > 0, total.log() + finite(top), top)


def all_blocks(scores, block_size):
    return scores.split(block_size, dim=-1)


def online(
    scores, block_size, *, blocks=all_blocks, maximum=larger, shifted=finite, finish=ended,
    rescale=lambda total, top, shift: total * (top - shift).exp(),
    power=lambda block, shift: (block - shift[..., None]).exp(), start=lambda top: top,
):  # fmt: skip
    top = start(scores.new_full(scores.shape[:-1], -torch.inf))
    total = torch.zeros_like(top)
    for block in blocks(scores, block_size):
        new = maximum(top, block)
        shift = shifted(new)
        total = rescale(total, top, shift) + power(block, shift).sum(dim=-1)
        top = new
    return finish(total, top, scores.shape[-1])


LSE = ("by_hand", "values", "ragged", "large", "closed")
lse = WrongAnswers("online_logsumexp", tests=(*LSE, "memory"), right=online)
ALL = {"fails": LSE}
LARGE = {"fails": ("large",)}


@witnesses(of="online_logsumexp")
def rows_of_scores(draw):
    for shape, block_size in (((3, 4), 2), ((2, 3, 7), 3), ((5, 6), 1), ((4,), 4), ((5, 5), 2)):
        yield call(2 * draw.normal(*shape), block_size)
        yield call(150 * draw.normal(*shape), block_size)
    yield call(-400 + 9 * draw.normal(4, 7), 3)
    closed = draw.normal(5, 7).masked_fill(~draw.mask(5, 7), -torch.inf)
    closed[1] = -torch.inf
    closed[3, :3] = -torch.inf
    yield call(closed, 3)


lse.fault(
    "the sum is not rescaled",
    "You do not rescale the sum when the maximum grows. Multiply it by e^(old - new).",
    rescale=lambda total, top, shift: total,
    **ALL,
)
# an overflow shows differently if the end of the function handles empty rows
for finish, empty in ((ended, ()), (guarded, ("closed",))):
    lse.fault(
        "the maximum of the last block",
        """Your maximum is that of the current block alone, so it can fall and the rescaling
        overflows. Keep the larger of the two.""",
        maximum=lambda top, block: block.amax(dim=-1),
        finish=finish,
        **LARGE,
    )
    lse.fault(
        "the maximum starts from 0",
        """Your maximum starts at 0, so all exponentials of very negative scores vanish. Start with
        minus infinity.""",
        fails=("large", *empty),
        start=torch.zeros_like,
        finish=finish,
    )
    lse.fault(
        "one maximum for all rows",
        """You subtract the maximum of the whole block, so a row far below it vanishes. Each row
        needs its own maximum.""",
        fails=LARGE["fails"] if finish is ended else ("large", "closed"),
        maximum=lambda top, block: torch.maximum(top, block.max()),
        finish=finish,
    )
    lse.fault(
        "minus infinity minus minus infinity",
        """In a row of only minus infinity you subtract minus infinity from itself, which is NaN.
        Subtract a finite number there.""",
        fails=("closed",),
        shifted=lambda new: new,
        finish=finish,
    )
    lse.fault(
        "the rescaling is inverted",
        "You multiply the sum by e^(new - old). Multiply it by e^(old - new).",
        fails=LSE if finish is guarded else None,
        rescale=lambda total, top, shift: total * (shift - top).exp(),
        finish=finish,
    )
lse.fault(
    "no maximum",
    """You take the exponentials of the raw scores. In float32 they overflow above 88 and vanish
    below -103.""",
    maximum=lambda top, block: torch.zeros_like(top),
    **LARGE,
)
for name, message, ending in (
    ("the maximum is not added back", "Add the maximum.", lambda total, top, count: total.log()),
    (
        "no logarithm",
        "Take its logarithm.",
        lambda total, top, count: total * finite(top).exp(),
    ),
    (
        "the mean of the exponentials",
        "Do not divide the sum by the number of scores.",
        lambda total, top, count: ended(total / count, top, count),
    ),
):
    lse.fault(
        name,
        f"Your result is not max + log(sum of e^(s - max)). {message}",
        finish=ending,
        **ALL,
    )
lse.fault(
    "the last block is dropped",
    "You never read the scores after the last whole block. The last block may be shorter.",
    fails=("by_hand", "ragged", "large"),
    blocks=lambda scores, size: [
        scores[..., i : i + size]
        for i in range(0, scores.shape[-1] - size + 1 if scores.shape[-1] > size else 1, size)
    ],
)
lse.fault(
    "a block by its own maximum",
    """You subtract the block's own maximum from its scores, but rescale with the running one. Use
    the running maximum for both.""",
    fails=("values", "ragged", "large", "closed"),
    power=lambda block, shift: (block - block.amax(dim=-1, keepdim=True)).exp(),
)


@lse("all blocks at once", fails=("memory",))
def lse_whole(scores, block_size):
    """Your values are right, but you build a tensor of the size of `scores`. Keep one block at a
    time.
    """
    top = finite(scores.amax(dim=-1))
    return (scores - top[..., None]).exp().sum(dim=-1).log() + top


# --- tiled_attention and its repair -------------------------------------------------------------


def up_to(length, tile_size):
    return range(0, length, tile_size)


def whole_tiles(length, size):
    return range(0, max(length // size, 1) * size, size)


def scaled(rows, keys, value):
    return rows @ keys.mT * rows.shape[-1] ** -0.5


def closed_above(scores, i, j, *sizes):
    row = torch.arange(i, i + scores.shape[-2])[:, None]
    return scores.masked_fill(torch.arange(j, j + scores.shape[-1]) > row, -torch.inf)


def highest(top, scores):
    return torch.maximum(top, scores.amax(dim=-1))


def shrunk(old, rescale):
    return old * rescale


def kept(old, rescale):
    return old


def divided(output, total):
    return output / total[..., None]


def flash(
    query, key, value, tile_size, is_causal=False, *, row_tiles=up_to, key_tiles=up_to,
    score=scaled, close=closed_above, maximum=highest, shifted=finite, rescale_sum=shrunk,
    rescale_output=shrunk, mix=lambda weights, values, total: weights @ values,
    each=lambda mixture, total: mixture, finish=divided,
    logarithm=lambda top, total: top + total.log(),
):  # fmt: skip
    length, keys = query.shape[-2], key.shape[-2]
    output = query.new_zeros(*query.shape[:-1], value.shape[-1])
    lses = query.new_zeros(query.shape[:-1])
    for i in row_tiles(length, tile_size):
        rows = query[..., i : i + tile_size, :]
        top = rows.new_full(rows.shape[:-1], -torch.inf)
        total = torch.zeros_like(top)
        mixture = rows.new_zeros(*rows.shape[:-1], value.shape[-1])
        for j in key_tiles(keys, tile_size):
            columns = slice(j, j + tile_size)
            scores = score(rows, key[..., columns, :], value)
            scores = close(scores, i, j, length, keys) if is_causal else scores
            new = maximum(top, scores)
            shift = shifted(new)
            weights = (scores - shift[..., None]).exp()
            rescale = (top - shift).exp()
            total = rescale_sum(total, rescale) + weights.sum(dim=-1)
            mixture = rescale_output(mixture, rescale[..., None])
            mixture = each(mixture + mix(weights, value[..., columns, :], total), total)
            top = new
        output[..., i : i + tile_size, :] = finish(mixture, total)
        lses[..., i : i + tile_size] = logarithm(top, total)
    return output, lses


def streaming(query, key, value, tile_size, **steps):
    return flash(query, key, value, tile_size, **steps)[0]


NUMBERS = ("by_hand", "values", "ragged", "causal", "large")
tiled = WrongAnswers("tiled_attention", tests=(*NUMBERS, "memory"), right=flash)
fixed = WrongAnswers("fixed_streaming", tests=("fits", "ragged"), right=streaming)


@witnesses(of="tiled_attention")
def tiled_calls(draw):
    for lead, length, keys, size, tile_size in (
        *(((), 4, 4, 3, 2), ((2,), 6, 9, 3, 3), ((), 7, 5, 2, 3), ((1, 2), 5, 7, 4, 2)),
        ((), 4, 4, 4, 1),
    ):
        parts = 2 * draw.normal(*lead, length, size), 2 * draw.normal(*lead, keys, size)
        parts = *parts, draw.normal(*lead, keys, 3)
        yield call(*parts, tile_size)
        yield call(*parts, tile_size, is_causal=True)
        yield call(30 * parts[0], *parts[1:], tile_size)
    steps = torch.arange(1.0, 6.0)[:, None]
    for sign, order in ((100.0, steps), (-100.0, steps), (90.0, steps.flip(0)), (-120.0, steps)):
        yield call(torch.full((2, 1), sign), order, draw.normal(5, 2), 2)


@witnesses(of="fixed_streaming")
def streaming_calls(draw):
    for lead, length, keys, tile_size in (((), 2, 4, 2), ((2,), 5, 7, 3), ((), 3, 5, 9)):
        parts = 3 * draw.normal(*lead, length, 3), 2 * draw.normal(*lead, keys, 3)
        yield call(*parts, draw.normal(*lead, keys, 2), tile_size)


def overturned(old, rescale):
    return old / rescale


tiled.fault(
    "the maximum starts from 0",
    """Your maximum is never below 0, so exponentials of very negative scores vanish. Start with
    -inf.""",
    fails=("large",),
    maximum=lambda top, scores: highest(top, scores).clamp(min=0.0),
)
tiled.fault(
    "the maximum of the last tile",
    """Your maximum is that of the current tile alone, so it can fall and the rescaling overflows.
    Keep the larger of the two.""",
    fails=("large",),
    maximum=lambda top, scores: torch.where(scores.amax(-1) == -torch.inf, top, scores.amax(-1)),
)
tiled.fault(
    "the last keys are dropped",
    "You never read the keys after the last whole tile. The last tile may be smaller.",
    fails=("by_hand", "ragged", "causal", "large"),
    key_tiles=whole_tiles,
)


def all_closed(scores, closed):
    return scores.masked_fill(torch.full(scores.shape, closed), -torch.inf)


for name, message, close, poisons in (
    ("the mask is ignored", "You ignore `is_causal`.", lambda s, i, j, *n: s, False),
    (
        "the diagonal is masked",
        "You mask each query's own key, so the first query has no key.",
        lambda s, i, j, *n: closed_above(s, i - 1, j),
        True,
    ),
    (
        "the diagonal tiles are left out",
        "Your loop stops before the tile on the diagonal.",
        lambda s, i, j, *n: all_closed(s, j >= i),
        True,
    ),
    (
        "the diagonal tiles after the first are left out",
        "Your loop stops before the tile on the diagonal.",
        lambda s, i, j, *n: closed_above(s, i, j) if i == j == 0 else all_closed(s, j >= i),
        False,
    ),
    (
        "query positions counted within the tile",
        "Your mask counts queries from 0 in each tile.",
        lambda s, i, j, *n: closed_above(s, 0, j),
        False,
    ),
    (
        "key positions counted within the tile",
        "Your mask counts keys from 0 in each tile.",
        lambda s, i, j, *n: closed_above(s, i, 0),
        False,
    ),
    (
        "positions counted within the tile",
        "Your mask counts from 0 in each tile.",
        lambda s, i, j, *n: closed_above(s, 0, 0),
        False,
    ),
    (
        "positions counted within each tile that is read",
        "Your mask counts from 0 in each tile.",
        lambda s, i, j, *n: (
            all_closed(s, True) if j > i + s.shape[-2] - 1 else closed_above(s, 0, 0)
        ),
        False,
    ),
    (
        "counted from the right",
        "Your mask aligns the last query with the last key.",
        lambda s, i, j, length, keys: closed_above(s, i + keys - length, j),
        True,
    ),
    (
        "counted from the right",
        "Your mask aligns the last query with the last key.",
        lambda s, i, j, length, keys: (
            all_closed(s, True)
            if j > i + s.shape[-2] - 1
            else closed_above(s, i + keys - length, j)
        ),
        True,
    ),
    (
        "the future instead of the past",
        "Your mask is reversed: it keeps later keys and excludes earlier ones.",
        lambda s, i, j, *n: s.masked_fill(
            torch.arange(j, j + s.shape[-1]) < torch.arange(i, i + s.shape[-2])[:, None], -torch.inf
        ),
        True,
    ),
):
    # a row without a key is NaN from its first tile on, or only at the end
    for shifted in (finite, lambda new: new) if poisons else (finite,):
        tiled.fault(
            name,
            f"{message} Query i attends to keys 0 to i of the whole sequence.",
            fails=("causal",) if shifted is finite or "right" in name else ("causal", "memory"),
            close=close,
            shifted=shifted,
        )
tiled.fault(
    "no mask but minus infinity for whole tiles",
    "You skip later tiles but do not mask the tile on the diagonal. It contains later keys.",
    fails=("causal",),
    close=lambda s, i, j, *n: all_closed(s, j > i),
)
tiled.fault(
    "divided in every tile",
    "You normalise the weights of each tile. Sum over all tiles, and divide once at the end.",
    fails=NUMBERS,
    mix=lambda weights, values, total: weights / weights.sum(-1, keepdim=True) @ values,
)
for faults, tests in ((tiled, NUMBERS), (fixed, None)):
    faults.fault(
        "divided again in every tile",
        "You divide the running output after each tile. Divide once at the end.",
        fails=tests,
        each=divided,
        finish=lambda output, total: output,
    )
    faults.fault(
        "each tile is divided by the sum so far",
        "You divide each tile by the sum so far. Divide once at the end, by the complete sum.",
        fails=tests,
        mix=lambda weights, values, total: weights @ values / total[..., None],
        finish=lambda output, total: output,
    )
for name, message, ending in (
    ("the maximum is missing", "Add the maximum.", lambda top, total: total.log()),
    ("the maximum alone", "Add the logarithm of the sum.", lambda top, total: top),
    ("the sum in place", "Take its logarithm, and add the maximum.", lambda top, total: total),
):
    tiled.fault(
        f"{name} in the log-sum-exp" if "in place" not in name else f"{name} of the log-sum-exp",
        f"Your output is right, but your second result is not max + log(sum of e^(s - max)). {message}",
        fails=NUMBERS,
        logarithm=ending,
    )


@tiled("the full matrix is built", fails=("memory",))
def tiled_whole(query, key, value, tile_size, is_causal=False):
    """Your values are right, but you keep all scores in memory. Keep one tile at a time."""
    return flash(query, key, value, max(query.shape[-2], key.shape[-2]), is_causal)


def all_but_last(length, size):
    return range(0, length // size * size, size)


fixed.fault(
    "both faults are still there",
    """This is the broken code. Print the maximum and `rescale` after every tile, and the positions
    that the loop reads.""",
    key_tiles=all_but_last,
    rescale_sum=kept,
    rescale_output=kept,
)
fixed.fault(
    "the last keys are still dropped",
    "The rescaling is now right. Your loop still ends at the last whole tile.",
    fails=("ragged",),
    key_tiles=all_but_last,
)

# --- flash_causal: the kernel, tile by tile in torch, so that it is recognised without Triton -----

B = 16


def closed_lanes(scores, first, start, keys):
    row, column = torch.arange(first, first + len(scores))[:, None], torch.arange(start, start + B)
    return scores.masked_fill((column > row) | (column >= keys), -torch.inf)


def kernel_flash(
    query, key, value, *, programs=lambda length: -(-length // B), score=scaled, close=closed_lanes,
    walk=lambda first, keys: range(0, min(first + B, keys), B), maximum=highest,
    power=lambda x: x.exp(), rescale_sum=shrunk, rescale_output=shrunk, finish=divided,
):  # fmt: skip
    output, keys = torch.zeros_like(query), len(key)
    for program in range(programs(len(query))):
        first = program * B
        rows = query[first : first + B]
        top, total = rows.new_full((len(rows),), -torch.inf), rows.new_zeros(len(rows))
        mixture = torch.zeros_like(rows)
        for start in walk(first, keys):
            k, v = (torch.zeros(B, part.shape[1]) for part in (key, value))
            count = max(min(B, keys - start), 0)
            k[:count], v[:count] = key[start : start + B], value[start : start + B]
            scores = close(score(rows, k, v), first, start, keys)
            new = maximum(top, scores)
            weights, rescale = power(scores - new[:, None]), power(top - new)
            total = rescale_sum(total, rescale) + weights.sum(dim=1)
            mixture = rescale_output(mixture, rescale[:, None]) + weights @ v
            top = new
        output[first : first + B] = finish(mixture, total)
    return output


KERNEL = ("by_hand", "whole", "ragged", "large", "skipped")
kernel = WrongAnswers("flash_causal", tests=(*KERNEL, "kernel"), right=kernel_flash)


@witnesses(of="flash_causal")
def causal_calls(draw):
    for length, keys, size in ((3, 3, 16), (32, 32, 16), (37, 21, 16), (21, 37, 16), (35, 35, 32)):
        parts = 2 * draw.normal(length, size), 2 * draw.normal(keys, size), draw.normal(keys, size)
        yield call(*parts)
        yield call(40 * parts[0], *parts[1:])
        yield call(torch.full_like(parts[0], -9.0), 3 + parts[1].abs(), parts[2])
    query, key, value = draw.normal(16, 16), draw.normal(40, 16), draw.normal(40, 16)
    key[16:] = value[16:] = torch.nan
    yield call(query, key, value)


kernel.fault(
    "later tiles are read",
    """Your values are right, but your programs also read fully masked tiles. Stop at the last key
    of the tile's last query.""",
    fails=("skipped",),
    walk=lambda first, keys: range(0, keys, B),
)
kernel.fault(
    "the loop ends before the diagonal",
    "Your programs stop before the tile on the diagonal, so the first one has no keys.",
    walk=lambda first, keys: range(0, min(first, keys), B),
)
kernel.fault(
    "no mask on the diagonal",
    "You skip later tiles but do not mask the tile on the diagonal. It contains later keys.",
    fails=KERNEL,
    close=lambda scores, first, start, keys: closed_lanes(scores, first + B, start, keys),
)
kernel.fault(
    "the diagonal is masked",
    "You mask each query's own key, so the first query has no key. Use <=, not <.",
    close=lambda scores, first, start, keys: closed_lanes(scores, first - 1, start, keys),
)
kernel.fault(
    "lanes after the last key count",
    """You do not mask the lanes after the last key, so they count with a score of 0. They need
    minus infinity.""",
    fails=("ragged",),
    close=lambda scores, first, start, keys: closed_lanes(scores, first, start, start + B),
)
for place, least in (("all", 0), ("some", B)):
    rest = ("ragged", "large")
    kernel.fault(
        "the last keys are dropped",
        "You never read the keys after the last whole tile. A partial tile needs a pass, too.",
        fails=("by_hand", *rest, "kernel") if place == "all" else rest,
        walk=lambda first, keys, least=least: range(
            0, max(min(first + B, keys) // B * B, min(least, keys)), B
        ),
    )
    kernel.fault(
        "the last queries are dropped",
        "You skip the queries after the last whole tile. Round the number of programs up.",
        fails=("by_hand", *rest, "kernel") if place == "all" else rest,
        programs=lambda length, least=least: max(length // B, least // B),
    )

# --- what the tiles of torch, of the repair and of the kernel share ----------------------------------

GROWING = ("whole", "ragged", "large")
for faults, tests, growing in (
    (tiled, NUMBERS, NUMBERS[1:]),
    (fixed, None, None),
    (kernel, ("by_hand", "whole", "ragged", "skipped"), GROWING),
):
    for what, steps in (
        ("the output is not rescaled", {"rescale_output": kept}),
        ("the sum is not rescaled", {"rescale_sum": kept}),
        ("nothing is rescaled", {"rescale_sum": kept, "rescale_output": kept}),
    ):
        faults.fault(
            what,
            f"""When the maximum grows, {what}. Multiply both sum and output by e^(old - new).""",
            fails=growing,
            **steps,
        )
    faults.fault(
        "the rescaling is inverted",
        "You multiply by e^(new - old). Multiply by e^(old - new).",
        rescale_sum=overturned,
        rescale_output=overturned,
    )
    faults.fault(
        "no scale",
        "You do not scale the scores. Divide them by the root of E.",
        fails=tests,
        score=lambda rows, keys, value: rows @ keys.mT,
    )
    faults.fault(
        "never divided",
        "You do not normalise the output. Divide it by the sum of the weights.",
        fails=tests,
        finish=lambda output, total: output,
    )
for faults in (tiled, kernel):
    faults.fault(
        "no running maximum",
        "You take the exponentials of the raw scores. In float32 they overflow above about 88.",
        fails=("large",),
        maximum=lambda top, scores: torch.zeros_like(top),
    )

# --- tile_kinds --------------------------------------------------------------------------------


def kinds(
    query_length, key_length, query_tile, key_tile, *,
    starts=lambda length, tile: torch.arange(0, length, tile),
    ends=lambda first, length, tile: (first + tile).clamp(max=length) - 1,
    some=lambda first_key, last_key, first_query, last_query: first_key <= last_query,
    every=lambda first_key, last_key, first_query, last_query: last_key <= first_query,
    arrange=lambda table: table,
):  # fmt: skip
    first_query = starts(query_length, query_tile)[:, None]
    first_key = starts(key_length, key_tile)
    edges = first_key, ends(first_key, key_length, key_tile)
    edges = *edges, first_query, ends(first_query, query_length, query_tile)
    return arrange(some(*edges).long() + (every(*edges) & some(*edges)).long())


tiles = WrongAnswers("tile_kinds", tests=("by_hand", "square", "oblong", "ragged"), right=kinds)
RAGGED = {"fails": ("ragged",)}


@witnesses(of="tile_kinds")
def tile_calls(draw):
    for sizes in (
        *((5, 5, 2, 2), (7, 7, 3, 2), (7, 4, 2, 3), (4, 9, 3, 2), (1, 5, 4, 2), (9, 2, 4, 4)),
    ):
        yield call(*sizes)
    for length, keys in ((6, 6), (11, 8), (8, 11)):
        yield call(length, keys, *(int(n) for n in draw.integers(1, 6, 2)))


tiles.fault(
    "queries and keys exchanged",
    "Your result has a row per tile of keys. It should have a row per tile of queries.",
    arrange=lambda table: table.T,
)
tiles.fault(
    "0 and 2 exchanged",
    "You return 0 where all pairs are allowed and 2 where none is. Exchange them.",
    arrange=lambda table: 2 - table,
)
tiles.fault(
    "the mask is reversed",
    "You allow later keys and exclude earlier ones. Query i attends to keys 0 to i.",
    some=lambda k0, k1, q0, q1: k1 >= q0,
    every=lambda k0, k1, q0, q1: k0 >= q1,
)
tiles.fault(
    "the diagonal is masked",
    "You exclude each query's own position. Compare with <=.",
    some=lambda k0, k1, q0, q1: k0 < q1,
    every=lambda k0, k1, q0, q1: k1 < q0,
)
tiles.fault(
    "no tile is whole",
    "You return 1 for all tiles with an allowed pair. Where every pair is allowed, return 2.",
    every=lambda k0, k1, q0, q1: torch.zeros_like(k0 <= q0),
)
tiles.fault(
    "every allowed tile is whole",
    "You return only 0 and 2. Tiles on the diagonal are 1.",
    every=lambda k0, k1, q0, q1: torch.ones_like(k0 <= q0),
)
tiles.fault(
    "the last tiles are dropped",
    "You count only whole tiles. The last tile may be smaller.",
    starts=lambda length, tile: torch.arange(0, max(length // tile, 1) * tile, tile),
    **RAGGED,
)
tiles.fault(
    "the last tile counts pairs that do not exist",
    "You treat the last tile as whole. Count only existing positions.",
    ends=lambda first, length, tile: first + tile - 1,
    **RAGGED,
)


@tiles("the indices of the tiles are compared")
def kinds_by_number(query_length, key_length, query_tile, key_tile):
    """You compare the indices of two tiles. Compare positions: query tiles and key tiles may differ
    in size.
    """
    row = torch.arange(-(-query_length // query_tile))[:, None]
    column = torch.arange(-(-key_length // key_tile))
    return (column <= row).long() + (column < row).long()


# --- flash_backward ----------------------------------------------------------------------------


def with_scale(grad_scores, scale):
    return grad_scores * scale


def back(
    query, key, value, output, lse, grad_output, tile_size, *, tiles_of=up_to, score=scaled,
    weigh=lambda scores, lse: (scores - lse[..., None]).exp(),
    mean_of=lambda grad_output, output: (grad_output * output).sum(dim=-1),
    softmax=lambda weights, grad_weights, mean: weights * (grad_weights - mean[..., None]),
    to_query=with_scale, to_key=with_scale,
    to_value=lambda weights, grad_scores, rows, scale: weights.mT @ rows,
):  # fmt: skip
    scale = query.shape[-1] ** -0.5
    mean = mean_of(grad_output, output)
    grads = [torch.zeros_like(part) for part in (query, key, value)]
    for j in tiles_of(key.shape[-2], tile_size):
        keys = slice(j, j + tile_size)
        for i in tiles_of(query.shape[-2], tile_size):
            rows = slice(i, i + tile_size)
            scores = score(query[..., rows, :], key[..., keys, :], value)
            weights = weigh(scores, lse[..., rows])
            grad_rows = grad_output[..., rows, :]
            grad_weights = grad_rows @ value[..., keys, :].mT
            grad_scores = softmax(weights, grad_weights, mean[..., rows])
            grads[0][..., rows, :] += to_query(grad_scores, scale) @ key[..., keys, :]
            grads[1][..., keys, :] += to_key(grad_scores, scale).mT @ query[..., rows, :]
            grads[2][..., keys, :] += to_value(weights, grad_scores, grad_rows, scale)
    return tuple(grads)


BACK = ("by_hand", "values", "ragged", "large")
backward = WrongAnswers("flash_backward", tests=(*BACK, "memory"), right=back)


@witnesses(of="flash_backward")
def backward_calls(draw):
    for lead, length, keys, size, entries, tile_size in (
        *(((), 2, 2, 2, 2, 1), ((2,), 6, 4, 3, 5, 2), ((), 7, 5, 3, 4, 3), ((), 4, 4, 4, 4, 4)),
    ):
        parts = draw.normal(*lead, length, size), draw.normal(*lead, keys, size)
        parts = *parts, draw.normal(*lead, keys, entries)
        for factor in (1, 6):
            output, sums = flash(factor * parts[0], *parts[1:], 2)
            rows = factor * parts[0], *parts[1:], output, sums
            yield call(*rows, draw.normal(*lead, length, entries), tile_size)


for name, message, softmax in (
    ("D is missing", "Subtract D.", lambda p, dp, mean: p * dp),
    ("D is added", "Subtract D.", lambda p, dp, mean: p * (dp + mean[..., None])),
    ("the weights are missing in dS", "Multiply by P.", lambda p, dp, mean: dp - mean[..., None]),
    (
        "D of a tile",
        "D is a sum over the whole row, not over a tile: use dO and O.",
        lambda p, dp, mean: p * (dp - (p * dp).sum(-1, keepdim=True)),
    ),
    (
        "D outside of the brackets",
        "The weights multiply the difference.",
        lambda p, dp, mean: p * dp - mean[..., None],
    ),
    (
        "each weight by itself",
        "Your P (1 - P) dP treats each weight alone; a score changes all weights of its row.",
        lambda p, dp, mean: p * (1 - p) * dp,
    ),
):
    backward.fault(name, f"Your dS is not P (dP - D). {message}", fails=BACK, softmax=softmax)
for name, weigh in (
    (
        "the weights without the log-sum-exp",
        lambda scores, lse: (scores - scores.amax(-1, keepdim=True)).exp(),
    ),
    ("a softmax in every tile", lambda scores, lse: scores.softmax(-1)),
):
    backward.fault(
        name,
        "You compute the weights from one tile alone. Use the log-sum-exp of the whole row.",
        fails=BACK,
        weigh=weigh,
    )
for name, to_value in (
    ("dS", lambda weights, grad_scores, rows, scale: grad_scores.mT @ rows),
    ("the scaled dS", lambda weights, grad_scores, rows, scale: scale * grad_scores.mT @ rows),
):
    backward.fault(
        f"the gradient of the value by {name}",
        f"You multiply dO by {name}. Multiply dO by P.",
        fails=BACK,
        to_value=to_value,
    )
for of, plain in (
    ("gradients", {"to_query": lambda ds, scale: ds, "to_key": lambda ds, scale: ds}),
    ("gradient of the query", {"to_query": lambda ds, scale: ds}),
    ("gradient of the key", {"to_key": lambda ds, scale: ds}),
):
    backward.fault(
        f"no scale in the {of}",
        f"The scale is missing in the {of}. It belongs to both dQ and dK.",
        fails=BACK[1:],
        **plain,
    )
backward.fault(
    "no scale in the scores",
    "You do not scale the scores in the backward pass. The forward pass scaled them.",
    fails=BACK[1:],
    score=lambda rows, keys, value: rows @ keys.mT,
)
backward.fault(
    "the last tiles are dropped",
    "You skip the positions after the last whole tile. The last tile may be smaller.",
    fails=("ragged", "large"),
    tiles_of=whole_tiles,
)


@backward("the full matrix is built", fails=("memory",))
def backward_whole(query, key, value, output, lse, grad_output, tile_size):
    """Your values are right, but you keep all weights in memory. Use one tile for all three
    gradients, then drop it.
    """
    return back(query, key, value, output, lse, grad_output, 1 << 20)


# --- the test ----------------------------------------------------------------------------------

checks = WrongAnswers("check_flash", tests=("plain", "mutants"))


@witnesses(of="check_flash")
def check_calls(draw):
    for candidate in (
        flash,
        lambda query, key, value, tile_size, is_causal=False: (value[..., :1, :1] + 0 * query, 0),
        lambda *inputs: (flash(*inputs)[0], flash(*inputs)[1] / 2),
        lambda *inputs: flash(*inputs, rescale_output=kept),
        lambda query, key, value, tile_size, is_causal=False: flash(query, key, value, tile_size),
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


def case(candidate, tile_size, is_causal=False, size=1.0):
    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(3)]
    parts[0] = size * parts[0]
    got, right = candidate(*parts, tile_size, is_causal), flash(*parts, tile_size, is_causal)
    return [
        mine.shape == theirs.shape and bool(torch.allclose(mine, theirs, atol=1e-6))
        for mine, theirs in zip(got, right, strict=True)
    ]


@checks("accepts everything")
def check_nothing(candidate):
    """Your test always returns True. Call the candidate, and compare its answer with your own
    numbers.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test rejects a right answer. Check your tolerance and your return value."""
    return False


@checks("only the shape is compared")
def check_shape(candidate):
    """You compare only the shape. Most wrong answers have the right shape."""
    output, sums = candidate(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 5), 2, False)
    return tuple(output.shape) == (2, 5) and tuple(sums.shape) == (2,)


@checks("one tile", fails=("mutants",))
def check_one_tile(candidate):
    """Your tile covers the whole sequence, so nothing is rescaled. Use several tiles."""
    return all(case(candidate, 16) + case(candidate, 16, True))


@checks("the second result is ignored")
def check_output_only(candidate):
    """You ignore the second result. Compare the log-sum-exp, too."""
    return all(
        case(candidate, tile, causal, 20.0)[0] for tile in (2, 3) for causal in (False, True)
    )


@checks("never causal", fails=("mutants",))
def check_never_causal(candidate):
    """You never test a causal mask. Many wrong answers fail only on the diagonal."""
    return all(case(candidate, 2) + case(candidate, 3, size=20.0))
