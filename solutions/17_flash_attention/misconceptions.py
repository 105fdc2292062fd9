"""Wrong answers on the way to attention in tiles: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, witnesses

# --- online_logsumexp --------------------------------------------------------------------------


def open_shift(new):
    return new.masked_fill(new == -torch.inf, 0.0)


def larger(top, block):
    return torch.maximum(top, block.amax(dim=-1))


def corrected(total, top, shift):
    return total * (top - shift).exp()


def ended(total, top, count):
    return total.log() + open_shift(top)


def exponentials(block, shift):
    return (block - shift[..., None]).exp()


def all_blocks(scores, block_size):
    return scores.split(block_size, dim=-1)


def online(
    scores, block_size, *, blocks=all_blocks, maximum=larger, rescale=corrected, shifted=open_shift,
    power=exponentials, finish=ended, start=lambda top: top,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    top = start(scores.new_full(scores.shape[:-1], -torch.inf))
    total = torch.zeros_like(top)
    for block in blocks(scores, block_size):
        new = maximum(top, block)
        shift = shifted(new)
        total = rescale(total, top, shift) + power(block, shift).sum(dim=-1)
        top = new
    return finish(total, top, scores.shape[-1])


lse = WrongAnswers(
    "online_logsumexp",
    tests=("by_hand", "values", "ragged", "large", "closed", "memory"),
    right=online,
)


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
    "the sum is not corrected",
    """A larger maximum turns up, and the sum so far stays as it is. It was made with the old maximum,
    so its terms are too large by now. Look at what the new maximum makes of e^(s - old).""",
    but=("memory",),
    rescale=lambda total, top, shift: total,
)
lse.fault(
    "the maximum of the last block",
    """Your maximum is that of the block you read, also where an earlier block had a larger one. It
    may fall then, and the correction overflows. A running maximum never falls.""",
    fails=("large",),
    maximum=lambda top, block: block.amax(dim=-1),
)
lse.fault(
    "no maximum",
    """You add up the exponentials as they are. Above about 88 they overflow in float32, and far below
    0 all of them vanish.""",
    fails=("large",),
    maximum=lambda top, block: torch.zeros_like(top),
)
lse.fault(
    "the maximum is not added back",
    """What you return is the logarithm of a sum of e^(s - maximum). The maximum is still missing.""",
    but=("memory",),
    finish=lambda total, top, count: total.log(),
)
lse.fault(
    "no logarithm",
    """You return the sum itself, not its logarithm. It does not fit into a float32 where scores are
    large, which is why its logarithm is asked for.""",
    but=("memory",),
    finish=lambda total, top, count: total * open_shift(top).exp(),
)
lse.fault(
    "the last block is dropped",
    """The entries behind the last whole block are never read. Count the blocks upwards, and let the
    last one be shorter.""",
    fails=("by_hand", "ragged", "large"),
    blocks=lambda scores, size: [
        scores[..., i : i + size]
        for i in range(0, scores.shape[-1] - size + 1 if scores.shape[-1] > size else 1, size)
    ],
)
lse.fault(
    "the maximum starts from 0",
    """Your running maximum starts at 0, so that it is never below 0. Where all scores lie far below 0
    every exponential vanishes. Start with something that is smaller than any score.""",
    fails=("large",),
    start=lambda top: torch.zeros_like(top),
)
lse.fault(
    "the mean of the exponentials",
    """You divide the sum of the exponentials by the number of scores before the logarithm. Asked for
    is the logarithm of the sum.""",
    but=("memory",),
    finish=lambda total, top, count: ended(total / count, top, count),
)
lse.fault(
    "a block by its own maximum",
    """You subtract the maximum of the block from the block, and scale the sum so far by the running
    maximum. Both must be relative to the same number.""",
    fails=("values", "ragged", "large", "closed"),
    power=lambda block, shift: (block - block.amax(dim=-1, keepdim=True)).exp(),
)
lse.fault(
    "minus infinity minus minus infinity",
    """Where a row has held nothing but minus infinity so far, you subtract minus infinity from minus
    infinity, and that is NaN. Subtract something harmless in such a row.""",
    fails=("closed",),
    shifted=lambda new: new,
)


@lse("all blocks at once", fails=("memory",))
def lse_whole(scores, block_size):
    """Your numbers are right, but something of the size of all scores is in memory. Read one block,
    use it, and forget it.
    """
    top = open_shift(scores.amax(dim=-1))
    return (scores - top[..., None]).exp().sum(dim=-1).log() + top


# --- tiled_attention ---------------------------------------------------------------------------


def up_to(length, tile_size):
    return range(0, length, tile_size)


def scaled(rows, keys, value):
    return rows @ keys.mT * rows.shape[-1] ** -0.5


def closed_above(scores, i, j, length, keys):
    row = torch.arange(i, i + scores.shape[-2])[:, None]
    return scores.masked_fill(torch.arange(j, j + scores.shape[-1]) > row, -torch.inf)


def highest(top, scores):
    return torch.maximum(top, scores.amax(dim=-1))


def shrunk(old, rescale):
    return old * rescale


def mixed(weights, values):
    return weights @ values


def divided(output, total):
    return output / total[..., None]


def natural(top, total):
    return top + total.log()


def flash(
    query, key, value, tile_size, is_causal=False, *, row_tiles=up_to, key_tiles=up_to,
    score=scaled, close=closed_above, maximum=highest, rescale_sum=shrunk, rescale_output=shrunk,
    mix=mixed, each=lambda mixture, total: mixture, finish=divided, logarithm=natural,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
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
            shift = open_shift(new)
            weights = (scores - shift[..., None]).exp()
            rescale = (top - shift).exp()
            total = rescale_sum(total, rescale) + weights.sum(dim=-1)
            mixture = rescale_output(mixture, rescale[..., None])
            mixture = each(mixture + mix(weights, value[..., columns, :]), total)
            top = new
        output[..., i : i + tile_size, :] = finish(mixture, total)
        lses[..., i : i + tile_size] = logarithm(top, total)
    return output, lses


NUMBERS = ("by_hand", "values", "ragged", "causal", "large")
tiled = WrongAnswers("tiled_attention", tests=(*NUMBERS, "memory"), right=flash)


@witnesses(of="tiled_attention")
def tiled_calls(draw):
    for lead, length, keys, size, tile_size in (
        ((), 4, 4, 3, 2),
        ((2,), 6, 9, 3, 3),
        ((), 7, 5, 2, 3),
        ((1, 2), 5, 7, 4, 2),
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


tiled.fault(
    "the output is not rescaled",
    """A larger maximum turns up, and the mixture of values so far stays as it is. It was weighted
    with the old maximum, like the sum, and needs the same correction.""",
    fails=NUMBERS[1:],
    rescale_output=lambda old, rescale: old,
)
tiled.fault(
    "the sum is not rescaled",
    """You correct the mixture of values when the maximum grows, and leave the sum of weights as it
    was. Both were made with the old maximum.""",
    fails=NUMBERS[1:],
    rescale_sum=lambda old, rescale: old,
)
tiled.fault(
    "nothing is rescaled",
    """Every tile has its own maximum, and you add up what the tiles give as if they had the same
    one. Sum and mixture must be corrected when the maximum grows.""",
    fails=NUMBERS[1:],
    rescale_sum=lambda old, rescale: old,
    rescale_output=lambda old, rescale: old,
)
tiled.fault(
    "no running maximum",
    """You take the exponentials of the scores as they are. With ordinary numbers that is right; above
    about 88 they overflow in float32.""",
    fails=("large",),
    maximum=lambda top, scores: torch.zeros_like(top),
)
tiled.fault(
    "the maximum starts from 0",
    """Your running maximum is never below 0. Where all scores of a row lie far below 0 every
    exponential vanishes. Start with something that is smaller than any score.""",
    fails=("large",),
    maximum=lambda top, scores: highest(top, scores).clamp(min=0.0),
)
tiled.fault(
    "the maximum of the last tile",
    """Your maximum is that of the tile you read, also where an earlier tile had a larger one. The
    correction overflows there. A running maximum never falls.""",
    fails=("large",),
    maximum=lambda top, scores: torch.where(scores.amax(-1) == -torch.inf, top, scores.amax(-1)),
)
tiled.fault(
    "no scale",
    """Your scores are the plain products. Look at what the formula divides them by.""",
    fails=NUMBERS,
    score=lambda rows, keys, value: rows @ keys.mT,
)
tiled.fault(
    "the last keys are dropped",
    """The keys behind the last whole tile are never read. Count the tiles upwards, and let the last
    one be smaller.""",
    fails=("by_hand", "ragged", "causal", "large"),
    key_tiles=lambda length, size: range(0, max(length // size, 1) * size, size),
)
tiled.fault(
    "the mask is ignored",
    """`is_causal` changes nothing: every query sees the keys behind it.""",
    fails=("causal",),
    close=lambda scores, i, j, length, keys: scores,
)
tiled.fault(
    "the diagonal is closed",
    """A query does not see its own key: you close the position itself too. The first query is left
    with nothing.""",
    fails=("causal",),
    close=lambda scores, i, j, length, keys: closed_above(scores, i - 1, j, length, keys),
)
tiled.fault(
    "the diagonal tiles are left out",
    """With `is_causal` your loop over the keys ends in front of the tile that the queries lie in. A part
    of that tile is allowed, each query's own key among it; the first queries are left with nothing.""",
    fails=("causal",),
    close=lambda scores, i, j, length, keys: scores.masked_fill(
        torch.full(scores.shape, j >= i), -torch.inf
    ),
)
tiled.fault(
    "positions are counted in the tile",
    """Your mask compares places inside the tile, or only one of the two with its place in the whole
    sequence. Add the first position of the tile to both.""",
    fails=("causal",),
    close=lambda scores, i, j, length, keys: closed_above(scores, 0, j, length, keys),
)
tiled.fault(
    "counted from the right",
    """Your mask lets the last query see the last key and counts back from there. Here both count from the
    left: query i sees the keys 0 to i, however many there are.""",
    fails=("causal",),
    close=lambda scores, i, j, length, keys: closed_above(
        scores, i + keys - length, j, length, keys
    ),
)
tiled.fault(
    "divided in every tile",
    """You divide by the sum after every tile, or the tiles' averages are averaged. Sum up first, and
    divide once, at the end.""",
    fails=NUMBERS,
    mix=lambda weights, values: mixed(weights / weights.sum(-1, keepdim=True), values),
)
tiled.fault(
    "divided again in every tile",
    """You divide what has been added up so far after every tile, so that earlier tiles are divided again
    and again. Divide once, at the end.""",
    fails=NUMBERS,
    each=divided,
    finish=lambda output, total: output,
)
tiled.fault(
    "never divided",
    """Your output is the weighted sum of the values, without the division by the sum of the
    weights.""",
    fails=NUMBERS,
    finish=lambda output, total: output,
)
tiled.fault(
    "the maximum is missing in the log-sum-exp",
    """Your output is right. Your second result is the logarithm of a sum of e^(score - maximum), so
    the maximum is still to be added.""",
    fails=NUMBERS,
    logarithm=lambda top, total: total.log(),
)
tiled.fault(
    "the sum in place of its logarithm",
    """Your output is right. Your second result is the sum of the weights, relative to the maximum;
    asked for is the logarithm of the sum of e^score.""",
    fails=NUMBERS,
    logarithm=lambda top, total: total,
)


@tiled("the table is built", fails=("memory",))
def tiled_whole(query, key, value, tile_size, is_causal=False):
    """Your numbers are right, but all scores stand in memory at once, L times S of them. Keep one
    tile, and of the earlier ones only maximum, sum and mixture.
    """
    return flash(query, key, value, max(query.shape[-2], key.shape[-2]), is_causal)


# --- tile_kinds --------------------------------------------------------------------------------


def from_zero(length, tile):
    return torch.arange(0, length, tile)


def cut_off(first, length, tile):
    return (first + tile).clamp(max=length) - 1


def any_open(first_key, last_key, first_query, last_query):
    return first_key <= last_query


def all_open(first_key, last_key, first_query, last_query):
    return last_key <= first_query


def kinds(
    query_length, key_length, query_tile, key_tile, *, starts=from_zero, ends=cut_off,
    some=any_open, every=all_open, arrange=lambda table: table,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    first_query = starts(query_length, query_tile)[:, None]
    first_key = starts(key_length, key_tile)
    edges = (
        first_key,
        ends(first_key, key_length, key_tile),
        first_query,
        ends(first_query, query_length, query_tile),
    )
    return arrange(some(*edges).long() + (every(*edges) & some(*edges)).long())


tiles = WrongAnswers("tile_kinds", tests=("by_hand", "square", "oblong", "ragged"), right=kinds)


@witnesses(of="tile_kinds")
def tile_calls(draw):
    for sizes in (
        (5, 5, 2, 2),
        (7, 7, 3, 2),
        (7, 4, 2, 3),
        (4, 9, 3, 2),
        (1, 5, 4, 2),
        (9, 2, 4, 4),
    ):
        yield call(*sizes)
    for length, keys in ((6, 6), (11, 8), (8, 11)):
        yield call(length, keys, *(int(n) for n in draw.integers(1, 6, 2)))


tiles.fault(
    "queries and keys exchanged",
    """Your table has a row for each tile of keys. A row stands for a tile of queries, as everywhere
    in this course.""",
    arrange=lambda table: table.T,
)
tiles.fault(
    "the mask turned round",
    """You open the tiles behind the diagonal and close those before it: a query would see its own
    future. Query i sees the keys 0 to i.""",
    some=lambda k0, k1, q0, q1: k1 >= q0,
    every=lambda k0, k1, q0, q1: k0 >= q1,
)
tiles.fault(
    "the diagonal is closed",
    """You compare with < where a query may attend to its own position too.""",
    some=lambda k0, k1, q0, q1: k0 < q1,
    every=lambda k0, k1, q0, q1: k1 < q0,
)
tiles.fault(
    "no tile is whole",
    """Every tile that is not closed is marked as one that needs the mask. Those in which every pair is
    allowed can do without it: they are most of them.""",
    every=lambda k0, k1, q0, q1: torch.zeros_like(k0 <= q0),
)
tiles.fault(
    "every open tile is whole",
    """You know only closed and open. The tiles along the diagonal are neither: they need the mask.""",
    every=lambda k0, k1, q0, q1: torch.ones_like(k0 <= q0),
)
tiles.fault(
    "the last tiles are dropped",
    """You count the whole tiles only. Where a length is no multiple of the tile, one more is left.""",
    fails=("ragged",),
    starts=lambda length, tile: torch.arange(0, max(length // tile, 1) * tile, tile),
)
tiles.fault(
    "the last tile counts pairs that do not exist",
    """You treat the last tile as if it were as large as the others. The positions behind the end do
    not exist; without them the tile may be open as a whole.""",
    fails=("ragged",),
    ends=lambda first, length, tile: first + tile - 1,
)

# --- flash_backward ----------------------------------------------------------------------------


def made_again(scores, lse):
    return (scores - lse[..., None]).exp()


def from_output(grad_output, output, value):
    return (grad_output * output).sum(dim=-1)


def through_softmax(weights, grad_weights, mean):
    return weights * (grad_weights - mean[..., None])


def for_query(grad_scores, scale):
    return grad_scores * scale


def back(
    query, key, value, output, lse, grad_output, tile_size, *, tiles_of=up_to, score=scaled,
    weigh=made_again, mean_of=from_output, softmax=through_softmax, to_query=for_query,
    to_key=for_query, to_value=lambda weights, grad_scores, rows, scale: weights.mT @ rows,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    scale = query.shape[-1] ** -0.5
    mean = mean_of(grad_output, output, value)
    grads = [torch.zeros_like(part) for part in (query, key, value)]
    for j in tiles_of(key.shape[-2], tile_size):
        keys = slice(j, j + tile_size)
        for i in tiles_of(query.shape[-2], tile_size):
            rows = slice(i, i + tile_size)
            scores = score(query[..., rows, :], key[..., keys, :], value)
            weights = weigh(scores, lse[..., rows])
            grad_weights = grad_output[..., rows, :] @ value[..., keys, :].mT
            grad_scores = softmax(weights, grad_weights, mean[..., rows])
            grads[0][..., rows, :] += to_query(grad_scores, scale) @ key[..., keys, :]
            grads[1][..., keys, :] += to_key(grad_scores, scale).mT @ query[..., rows, :]
            grads[2][..., keys, :] += to_value(
                weights, grad_scores, grad_output[..., rows, :], scale
            )
    return tuple(grads)


BACK = ("by_hand", "values", "ragged", "large")
backward = WrongAnswers("flash_backward", tests=(*BACK, "memory"), right=back)


@witnesses(of="flash_backward")
def backward_calls(draw):
    for lead, length, keys, size, entries, tile_size in (
        ((), 2, 2, 2, 2, 1),
        ((2,), 6, 4, 3, 5, 2),
        ((), 7, 5, 3, 4, 3),
        ((), 4, 4, 4, 4, 4),
    ):
        parts = draw.normal(*lead, length, size), draw.normal(*lead, keys, size)
        parts = *parts, draw.normal(*lead, keys, entries)
        for factor in (1, 6):
            output, sums = flash(factor * parts[0], *parts[1:], 2)
            rows = factor * parts[0], *parts[1:], output, sums
            yield call(*rows, draw.normal(*lead, length, entries), tile_size)


backward.fault(
    "D is missing",
    """Your dS is P times dP. The softmax of a row sums to one, so that a change of all its scores by
    the same amount changes nothing: the mean of dP under the weights must go.""",
    fails=BACK,
    softmax=lambda weights, grad_weights, mean: weights * grad_weights,
)
backward.fault(
    "the weights are missing in dS",
    """Your dS is dP - D, without the factor P. A key with no weight would get as much gradient as one
    that has it all.""",
    fails=BACK,
    softmax=lambda weights, grad_weights, mean: grad_weights - mean[..., None],
)
backward.fault(
    "the weights without the log-sum-exp",
    """You make the weights again with the maximum of the tile. A tile does not know the sum of its row:
    that is what the forward pass kept the log-sum-exp for.""",
    fails=BACK,
    weigh=lambda scores, lse: (scores - scores.amax(-1, keepdim=True)).exp(),
)
backward.fault(
    "a softmax in every tile",
    """Your weights sum to one in every tile. A row of weights sums to one over all tiles: make it with
    the log-sum-exp that the forward pass kept.""",
    fails=BACK,
    weigh=lambda scores, lse: scores.softmax(-1),
)
backward.fault(
    "the gradient of the value by dS",
    """You multiply the gradient of the output by dS. The values are mixed by the weights themselves,
    and so is their gradient.""",
    fails=BACK,
    to_value=lambda weights, grad_scores, rows, scale: grad_scores.mT @ rows,
)
backward.fault(
    "the gradient of the value by the scaled dS",
    """You multiply the gradient of the output by dS, with its scale. The values are mixed by the weights
    themselves, and so is their gradient.""",
    fails=BACK,
    to_value=lambda weights, grad_scores, rows, scale: scale * grad_scores.mT @ rows,
)
backward.fault(
    "D of a tile",
    """Your D is the sum of P dP over the keys of one tile. D belongs to the whole row, which no tile
    has: take it from dO and O.""",
    fails=("by_hand", "values", "ragged", "large"),
    softmax=lambda weights, grad_weights, mean: (
        weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True))
    ),
)
backward.fault(
    "D outside of the brackets",
    """Your dS is P dP - D. The weights multiply the difference: P (dP - D).""",
    fails=BACK,
    softmax=lambda weights, grad_weights, mean: weights * grad_weights - mean[..., None],
)
backward.fault(
    "each weight by itself",
    """Your dS is P (1 - P) dP, the derivative of each weight by its own score. A score changes all
    other weights of its row as well: that is what D is for.""",
    fails=BACK,
    softmax=lambda weights, grad_weights, mean: weights * (1 - weights) * grad_weights,
)
backward.fault(
    "no scale in the gradients",
    """The scores are scaled, and your gradients of query and key are not: a factor in front of the
    product is also one in front of its derivative.""",
    fails=("values", "ragged", "large"),
    to_query=lambda grad_scores, scale: grad_scores,
    to_key=lambda grad_scores, scale: grad_scores,
)
backward.fault(
    "no scale in the gradient of the query",
    """The gradient of the key is scaled, that of the query is not. The factor stands in front of
    their product, and reaches both.""",
    fails=("values", "ragged", "large"),
    to_query=lambda grad_scores, scale: grad_scores,
)
backward.fault(
    "no scale in the gradient of the key",
    """The gradient of the query is scaled, that of the key is not. The factor stands in front of
    their product, and reaches both.""",
    fails=("values", "ragged", "large"),
    to_key=lambda grad_scores, scale: grad_scores,
)
backward.fault(
    "the last tiles are dropped",
    """Positions behind the last whole tile get no gradient, and pass none on. Let the last tile be
    smaller.""",
    fails=("ragged", "large"),
    tiles_of=lambda length, size: range(0, max(length // size, 1) * size, size),
)


@backward("the table is built", fails=("memory",))
def backward_whole(query, key, value, output, lse, grad_output, tile_size):
    """Your numbers are right, but all weights stand in memory at once. Make one tile of them, use it
    for all three gradients, and forget it.
    """
    return back(query, key, value, output, lse, grad_output, 1 << 20)


# --- the repair and the test -------------------------------------------------------------------


def streaming(query, key, value, tile_size, **steps):
    return flash(query, key, value, tile_size, **steps)[0]


fixed = WrongAnswers("fixed_streaming", tests=("fits", "ragged"), right=streaming)


@witnesses(of="fixed_streaming")
def streaming_calls(draw):
    for lead, length, keys, tile_size in (((), 2, 4, 2), ((2,), 5, 7, 3), ((), 3, 5, 9)):
        parts = 3 * draw.normal(*lead, length, 3), 2 * draw.normal(*lead, keys, 3)
        yield call(*parts, draw.normal(*lead, keys, 2), tile_size)


def dropped(length, size):
    return range(0, length // size * size, size)


@fixed("both faults are still there")
def streaming_broken(query, key, value, tile_size):
    """This is the broken code as it stands. Print the maximum and `rescale` after every tile, and
    the positions that the loop reads.
    """
    keep = {"rescale_sum": lambda old, r: old, "rescale_output": lambda old, r: old}
    return streaming(query, key, value, tile_size, key_tiles=dropped, **keep)


fixed.fault(
    "still nothing is corrected",
    """All keys are read now. But sum and output keep the old maximum when a larger one turns up: look
    at which two numbers `rescale` compares.""",
    rescale_sum=lambda old, rescale: old,
    rescale_output=lambda old, rescale: old,
)
fixed.fault(
    "the last keys are still dropped",
    """The correction is right now. But the loop ends at the last whole tile.""",
    fails=("ragged",),
    key_tiles=dropped,
)
fixed.fault(
    "only the sum is corrected",
    """The sum is corrected now, and the output still has the weights of the old maximum.""",
    rescale_output=lambda old, rescale: old,
)
fixed.fault(
    "only the output is corrected",
    """The output is corrected now, and the sum still has the weights of the old maximum.""",
    rescale_sum=lambda old, rescale: old,
)
fixed.fault(
    "divided in every turn",
    """You divide by the sum in every turn of the loop, so that earlier tiles are divided again and
    again. Sum up first, and divide once, at the end.""",
    each=divided,
    finish=lambda output, total: output,
)
fixed.fault(
    "the correction is upside down",
    """You multiply by e^(new - old). The new maximum is the larger one; what was summed up before must
    become smaller.""",
    rescale_sum=lambda old, rescale: old / rescale.clamp(min=1e-30),
    rescale_output=lambda old, rescale: old / rescale.clamp(min=1e-30),
)


checks = WrongAnswers("check_flash", tests=("plain", "mutants"))


def half_sums(*inputs):
    output, sums = flash(*inputs)
    return output, sums / 2


@witnesses(of="check_flash")
def check_calls(draw):
    for candidate in (
        flash,
        lambda query, key, value, tile_size, is_causal=False: (value[..., :1, :1] + 0 * query, 0),
        half_sums,
        lambda *inputs: flash(*inputs, rescale_output=lambda old, rescale: old),
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
    """Your test says True whatever it is given, so that no wrong answer is caught. Call the candidate
    and compare what comes back with numbers of your own.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test says False even for a right answer. Look at whether you leave room for rounding, at
    the dtype of your own numbers, and at what you return in the end.
    """
    return False


@checks("only the shape is looked at")
def check_shape(candidate):
    """You compare the shape of the answer and no value in it. Nearly everything that can go wrong
    between tiles keeps the shape.
    """
    output, sums = candidate(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 5), 2, False)
    return tuple(output.shape) == (2, 5) and tuple(sums.shape) == (2,)


@checks("one tile", fails=("mutants",))
def check_one_tile(candidate):
    """Your tile is as large as the sequence, so that nothing ever happens between two tiles: no
    maximum grows, nothing is corrected, no last tile is smaller.
    """
    return all(case(candidate, 16) + case(candidate, 16, True))


@checks("the second result is not looked at")
def check_output_only(candidate):
    """You compare the outputs and ignore the log-sum-exp. The backward pass and every merge of blocks
    rely on it.
    """
    return all(
        case(candidate, tile, causal, 20.0)[0] for tile in (2, 3) for causal in (False, True)
    )


@checks("never causal", fails=("mutants",))
def check_never_causal(candidate):
    """You never ask for a causal mask. Its diagonal, and the tiles that it crosses, are where tiled
    attention goes wrong most easily.
    """
    return all(case(candidate, 2) + case(candidate, 3, size=20.0))


# --- flash_causal: the kernel, tile by tile in torch, so that it is recognised without Triton -----

B = 16


def programs_up(length):
    return -(-length // B)


def open_tiles(first, keys):
    return range(0, min(first + B, keys), B)


def closed_lanes(scores, first, start, keys):
    row, column = torch.arange(first, first + len(scores))[:, None], torch.arange(start, start + B)
    return scores.masked_fill((column > row) | (column >= keys), -torch.inf)


def kernel_flash(
    query, key, value, *, programs=programs_up, walk=open_tiles, score=scaled, close=closed_lanes,
    maximum=highest, rescale_sum=shrunk, rescale_output=shrunk, finish=divided,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
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
            weights, rescale = (scores - new[:, None]).exp(), (top - new).exp()
            total = rescale_sum(total, rescale) + weights.sum(dim=1)
            mixture = rescale_output(mixture, rescale[:, None]) + weights @ v
            top = new
        output[first : first + B] = finish(mixture, total)
    return output


VALUES = ("by_hand", "whole", "ragged", "large", "skipped")
kernel = WrongAnswers("flash_causal", tests=(*VALUES, "kernel"), right=kernel_flash)


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
    "closed tiles are read",
    """Your numbers are right, and your programs walk over all keys: also over tiles that none of their
    queries may see. Where is the last key that the last query of a tile sees?""",
    fails=("skipped",),
    walk=lambda first, keys: range(0, keys, B),
)
kernel.fault(
    "the walk ends before the diagonal",
    """Your programs stop in front of the tile that their own positions lie in. The first program has
    no keys at all then, and divides 0 by 0.""",
    walk=lambda first, keys: range(0, min(first, keys), B),
)
kernel.fault(
    "no mask on the diagonal",
    """You leave the closed tiles out, and the tile on the diagonal is open as a whole: a query sees
    keys of its tile that come after it.""",
    fails=VALUES,
    close=lambda scores, first, start, keys: closed_lanes(scores, first + B, start, keys),
)
kernel.fault(
    "the diagonal is closed",
    """A query does not see its own key: you compare with < where the position itself belongs to what
    it may see. The first query is left with nothing.""",
    close=lambda scores, first, start, keys: closed_lanes(scores, first - 1, start, keys),
)
kernel.fault(
    "lanes behind the last key count",
    """The last tile is wider than the keys that are left. Its other lanes hold zeros, and a zero is a
    score like any other: they need -inf.""",
    fails=("ragged",),
    close=lambda scores, first, start, keys: closed_lanes(scores, first, start, start + B),
)
kernel.fault(
    "the last keys are dropped",
    """Keys behind the last whole tile are never read. The loop ends at the smaller of two places, and
    a tile that is not full is one more turn.""",
    fails=("by_hand", "ragged", "large", "kernel"),
    walk=lambda first, keys: range(0, min(first + B, keys) // B * B, B),
)
kernel.fault(
    "the last queries are dropped",
    """Queries behind the last whole tile stay 0: you start as many programs as whole tiles fit. Round
    up.""",
    fails=("by_hand", "ragged", "large", "kernel"),
    programs=lambda length: length // B,
)
kernel.fault(
    "the output is not rescaled",
    """A larger maximum turns up, and the mixture stays as it is. It was weighted with the old maximum,
    like the sum, and needs the same correction.""",
    fails=("whole", "ragged", "large"),
    rescale_output=lambda old, rescale: old,
)
kernel.fault(
    "the sum is not rescaled",
    """You correct the mixture when the maximum grows, and leave the sum of weights as it was.""",
    fails=("whole", "ragged", "large"),
    rescale_sum=lambda old, rescale: old,
)
kernel.fault(
    "no running maximum",
    """You take the exponentials of the scores as they are. Above about 88 they overflow in float32.""",
    fails=("large",),
    maximum=lambda top, scores: torch.zeros_like(top),
)
kernel.fault(
    "no scale",
    """Your scores are the plain products: the kernel is handed a scale, and it is not used, or not
    handed on.""",
    fails=("by_hand", "whole", "ragged", "skipped"),
    score=lambda rows, keys, value: rows @ keys.mT,
)
kernel.fault(
    "never divided",
    """Your output is the weighted sum of the values, without the division by the sum of the weights.
    The kernel's last line divides by `total`: is it added up?""",
    fails=("by_hand", "whole", "ragged", "skipped"),
    finish=lambda output, total: output,
)
