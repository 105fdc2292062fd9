"""Wrong answers on the way to bands, merged pieces and pages: name, message, the tests they fail."""

import math

import torch

from attn_course.probes import WrongAnswers, call, witnesses

# --- banded_scores -----------------------------------------------------------------------------


def in_column(half, away):
    return half + away


def beside(rows, away, length):
    return rows + away


def product(query, key):
    return (query * key).sum(-1)


def band(
    query, key, half, *, column=in_column, other=beside, score=product, reach=lambda half: half,
    sees=lambda away: True, hole=lambda: -torch.inf, finish=lambda band, half: band,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    length = query.shape[-2]
    result = query.new_full((*query.shape[:-1], 2 * half + 1), hole())
    rows = torch.arange(length)
    for away in range(-reach(half), reach(half) + 1):
        place = other(rows, away, length)
        inside = (place >= 0) & (place < length)
        if sees(away) and inside.any():
            found = score(query[..., rows[inside], :], key[..., place[inside], :])
            result[..., rows[inside], column(half, away)] = found
    return finish(result, half)


BAND = ("by_hand", "values", "edges", "gradient")
banded = WrongAnswers("banded_scores", tests=(*BAND, "memory"), right=band)


@witnesses(of="banded_scores")
def band_calls(draw):
    for lead, length, half in (((), 5, 1), ((2,), 7, 2), ((), 3, 4), ((), 1, 2), ((2, 3), 4, 0)):
        yield call(draw.normal(*lead, length, 3), draw.normal(*lead, length, 3), half)


banded.fault(
    "the columns run backwards",
    """Your first column belongs to the key after the query, your last one to the key before it. The
    column grows with the position of the key.""",
    fails=BAND,
    column=lambda half, away: half - away,
)
banded.fault(
    "zero where there is no key",
    """Columns without a key hold 0. A softmax would give them weight, as if there were a key with
    that score. What has no key must get no weight.""",
    fails=BAND[:3],
    hole=lambda: 0.0,
)
banded.fault(
    "scaled",
    """Your products are divided by the square root of the number of entries. Here the plain products
    are asked for; the scale comes later.""",
    fails=BAND[1:],
    score=lambda query, key: product(query, key) / query.shape[-1] ** 0.5,
)
banded.fault(
    "distances in place of products",
    """Your numbers are squared distances of query and key. The band holds their products.""",
    fails=BAND,
    score=lambda query, key: (query - key).square().sum(-1),
)
banded.fault(
    "the keys fill each row from its left",
    """Your rows begin with the first key that there is. A column stands for one distance: where there is no
    such key it stays empty.""",
    fails=BAND,
    finish=lambda band, half: torch.stack(
        [row.roll(min(i - half, 0), -1) for i, row in enumerate(band.unbind(-2))], -2
    ),
)
banded.fault(
    "the query's own key is missing",
    """The middle column is empty. It belongs to the key at the position of the query.""",
    fails=BAND,
    sees=lambda away: away != 0,
)
banded.fault(
    "every column is empty",
    """All numbers are minus infinity. It stays so whatever is added to it: write the products into the band
    in place of adding them.""",
    fails=BAND,
    sees=lambda away: False,
)
banded.fault(
    "only keys before the query",
    """The columns behind the middle are empty: your window ends at the query. This one has two
    sides.""",
    fails=BAND,
    sees=lambda away: away <= 0,
)
banded.fault(
    "the text is a ring",
    """Before the first key you find the last one again: positions are counted round. There is no key
    at those places.""",
    fails=BAND,
    other=lambda rows, away, length: (rows + away) % length,
)
banded.fault(
    "the key at the edge is repeated",
    """Places before the first key hold the product with the first key, places behind the last one that
    with the last. You moved them into the text; there is no key at those places.""",
    fails=BAND,
    other=lambda rows, away, length: (rows + away).clamp(0, length - 1),
)
banded.fault(
    "NaN where there is no key",
    """Columns without a key hold NaN, which spoils every softmax of the row. What has no key must get no
    weight.""",
    fails=BAND[:3],
    hole=lambda: math.nan,
)
banded.fault(
    "both sides in one column",
    """Keys before and behind the query share a column: you count how far a key is away, not on which
    side. The column grows with the position of the key.""",
    fails=BAND,
    column=lambda half, away: half + abs(away),
)
banded.fault(
    "the outer columns are empty",
    """The first and the last column hold nothing, as if the window were narrower. `half` keys on each
    side belong to it.""",
    fails=BAND,
    reach=lambda half: half - 1,
)


@banded("one turn too few", fails=BAND)
def band_short(query, key, half):
    """Your loop over the distances ends before its last one: the furthest key behind the query is never
    reached. A range does not contain its end.
    """
    most = min(half, query.shape[-2] - 1)
    return band(query, key, half, sees=lambda away: away < most)


@banded("queries and keys exchanged", fails=BAND)
def band_exchanged(query, key, half):
    """Your row i holds the products of key i with the queries around it. That is the band of the
    transposed table; a row belongs to a query.
    """
    return band(key, query, half)


@banded("the whole table is built", fails=("memory",))
def band_of_table(query, key, half):
    """Your numbers are right, but all products stand in memory, L times L of them. Compute the
    diagonals that are asked for, and nothing else.
    """
    length = query.shape[-2]
    place = torch.arange(length)[:, None] + torch.arange(-half, half + 1)
    inside = (place >= 0) & (place < length)
    table = (query @ key.mT)[..., torch.arange(length)[:, None], place.clamp(0, length - 1)]
    return table.masked_fill(~inside, -torch.inf)


# --- sliding_window_forward --------------------------------------------------------------------


def up_to(length, tile_size):
    return range(0, length, tile_size)


def whole_tiles(length, tile_size):
    return range(0, max(length // tile_size, 1) * tile_size, tile_size)


def scaled(query, key, value):
    return query @ key.mT / query.shape[-1] ** 0.5


def nothing(window_size):
    return 0


def mixed(scores, seen, value):
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value


def window(
    query, key, value, window_size, tile_size, *, tiles=up_to, reach=lambda size: size,
    first_key=lambda first, reach: first - reach + 1, after=nothing, score=scaled,
    seen=lambda away, reach, after: (away < reach) & (away >= -after), mix=mixed,
    logarithm=lambda scores: scores.logsumexp(-1),
    hide=lambda scores, near: scores.masked_fill(~near, -torch.inf), join=torch.cat,
    sum_of=lambda scores, size: scores,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    length, outputs, lses = query.shape[-2], [], []
    for first in tiles(length, tile_size):
        last = min(first + tile_size, length)
        start = max(0, first_key(first, reach(window_size)))
        end = min(length, last + after(window_size))
        scores = score(query[..., first:last, :], key[..., start:end, :], value)
        away = torch.arange(first, last)[:, None] - torch.arange(start, end)
        near = seen(away, reach(window_size), after(window_size))
        lses.append(logarithm(hide(sum_of(scores, query.shape[-1]), near)))
        outputs.append(mix(scores, near, value[..., start:end, :]))
    return join(outputs, -2), torch.cat(lses, -1)


NUMBERS = ("by_hand", "values", "ragged", "large", "skips")
sliding = WrongAnswers("sliding_window_forward", tests=(*NUMBERS, "memory"), right=window)


@witnesses(of="sliding_window_forward")
def window_calls(draw):
    for lead, length, size, window_size, tile_size in (
        ((), 4, 4, 2, 2),
        ((2,), 6, 3, 3, 3),
        ((), 7, 2, 5, 3),
        ((1, 2), 5, 4, 2, 4),
        ((), 6, 3, 9, 2),
        ((), 5, 2, 1, 2),
    ):
        three = 2 * draw.normal(*lead, length, size), 2 * draw.normal(*lead, length, size)
        yield call(*three, draw.normal(*lead, length, 3), window_size, tile_size)
    yield call(torch.full((6, 1), 90.0), torch.arange(6.0)[:, None], draw.normal(6, 2), 3, 2)


sliding.fault(
    "one key too many",
    """A query sees W keys before itself, and itself. The window has W keys with the query's own one
    among them.""",
    fails=NUMBERS,
    reach=lambda size: size + 1,
)
sliding.fault(
    "the window is halved before the tile",
    """You read only half of the window before the tile. This window is causal: all W - 1 older keys lie
    before the query.""",
    fails=("values", "ragged", "large", "skips"),
    first_key=lambda first, reach: first - reach // 2,
)
sliding.fault(
    "the log-sum-exp of the hidden pairs too",
    """Your output is right. Your second result counts all keys of the slice, the hidden ones too: take it
    when they are gone.""",
    fails=NUMBERS[1:],
    hide=lambda scores, near: scores,
)
sliding.fault(
    "one key too few",
    """Your window holds W - 1 keys. Count the key at the query's own position once.""",
    fails=NUMBERS,
    reach=lambda size: max(size - 1, 1),
)
sliding.fault(
    "a window of two sides",
    """A query sees as many keys behind itself as before. This window is causal: it ends at the
    query.""",
    fails=NUMBERS,
    after=lambda size: size - 1,
)
sliding.fault(
    "the future inside a tile",
    """Inside its tile a query sees keys that come after it. Which tiles are needed is settled by
    their edges; in those on the diagonal every pair must be looked at.""",
    fails=NUMBERS[1:],
    seen=lambda away, reach, after: away < reach,
)
sliding.fault(
    "no left edge inside a tile",
    """The later queries of a tile see keys that are too old: all that the first query of the tile
    needs. Their windows begin later.""",
    fails=NUMBERS[1:],
    seen=lambda away, reach, after: away >= -after,
)
sliding.fault(
    "nothing before the tile",
    """A tile of queries meets only the keys of the same tile. The windows of its first queries begin
    in an earlier one.""",
    fails=NUMBERS,
    first_key=lambda first, reach: first,
)
sliding.fault(
    "half of the window on each side",
    """You share the window out before and behind the query. This one is causal: W keys, the last of
    them the query's own.""",
    fails=NUMBERS,
    after=lambda size: size // 2,
    seen=lambda away, reach, after: away.abs() <= after,
)
sliding.fault(
    "no scale",
    """Your scores are the plain products. Look at what the formula divides them by.""",
    fails=("values", "ragged", "skips"),
    score=lambda query, key, value: query @ key.mT,
)
sliding.fault(
    "divided by the root of the value's size",
    """You divide by the square root of the number of entries of a value. The products are sums over
    the entries of query and key.""",
    fails=NUMBERS[1:],
    score=lambda query, key, value: query @ key.mT / value.shape[-1] ** 0.5,
)
sliding.fault(
    "the last queries are dropped",
    """The queries behind the last whole tile get no output. Let the last tile be smaller.""",
    fails=("ragged", "large", "skips"),
    tiles=whole_tiles,
)
sliding.fault(
    "masked after the softmax",
    """You hide pairs when the weights are already made, so that the remaining ones do not sum to one.
    What is hidden must be gone before the softmax.""",
    fails=NUMBERS[1:],
    mix=lambda scores, seen, value: (scores.softmax(-1) * seen) @ value,
)
sliding.fault(
    "no maximum",
    """You take exponentials of the scores as they are. Above about 88 they overflow in float32, and
    far below 0 all of a row vanish.""",
    fails=("large",),
    mix=lambda scores, seen, value: (
        (scores.exp() * seen) @ value / (scores.exp() * seen).sum(-1, keepdim=True)
    ),
)
sliding.fault(
    "the log-sum-exp of base 2",
    """Your output is right. Your second result is a logarithm of base 2; here it is natural.""",
    fails=NUMBERS,
    logarithm=lambda scores: scores.logsumexp(-1) / math.log(2),
)
sliding.fault(
    "the log-sum-exp of scores without a scale",
    """Your output is right. Your second result is that of the plain products: the scores in it are divided
    as those of the softmax are.""",
    fails=("values", "ragged", "skips"),
    sum_of=lambda scores, size: scores * size**0.5,
)
sliding.fault(
    "the sum in place of its logarithm",
    """Your output is right. Your second result is the sum of the exponentials. Its logarithm is asked for,
    which never overflows.""",
    logarithm=lambda scores: scores.exp().sum(-1),
    fails=NUMBERS,
)
sliding.fault(
    "the logarithm of the mean",
    """Your output is right. Your second result is the logarithm of the mean of the exponentials over the
    keys in the window. The sum is not divided.""",
    fails=NUMBERS,
    logarithm=lambda scores: scores.logsumexp(-1) - (scores > -torch.inf).sum(-1).to(scores).log(),
)
sliding.fault(
    "tiles joined in reverse",
    """The outputs of your tiles stand in reverse order. The first tile holds the first queries.""",
    fails=NUMBERS,
    join=lambda outputs, axis: torch.cat(outputs[::-1], axis),
)
sliding.fault(
    "the largest score in place of the log-sum-exp",
    """Your output is right. Your second result is the largest score of the row. The logarithm of the
    sum is still to be added.""",
    fails=("by_hand", "values", "ragged", "skips"),
    logarithm=lambda scores: scores.amax(-1),
)


@sliding("all keys are read", fails=("skips", "memory"))
def window_masked(query, key, value, window_size, tile_size):
    """Your numbers are right, but every query meets every key, and most of what is computed is hidden
    again. Hiding does not save anything: a hidden NaN spoils the sum, and the scores fill the memory.
    Slice the keys that the tile can see.
    """
    return window(
        query, key, value, window_size, tile_size, first_key=lambda first, reach: 0
    )  # fmt: skip


# --- merge_partials ----------------------------------------------------------------------------


def highest(lses):
    return lses.amax(0)


def guarded(top):
    return top.masked_fill(top == -torch.inf, 0.0)


def divided(shares, total):
    return shares / total.masked_fill(total == 0, 1.0)


def natural(lses, shift, total):
    empty = total == 0
    return (shift + total.masked_fill(empty, 1.0).log()).masked_fill(empty, -torch.inf)


def merge(
    outputs, lses, *, maximum=highest, guard=guarded, weigh=divided, axis=lambda: 0,
    logarithm=natural,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    shift = guard(maximum(lses))
    shares = (lses - shift).exp()
    weights = weigh(shares, shares.sum(axis(), keepdim=bool(axis())))
    output = (weights[..., None] * outputs).sum(0)
    return output, logarithm(lses, shift, shares.sum(0))


MERGE = ("by_hand", "values", "large", "empty")
merging = WrongAnswers("merge_partials", tests=MERGE, right=merge)


@witnesses(of="merge_partials")
def merge_calls(draw):
    for pieces, rows, size in ((2, 3, 2), (3, 4, 3), (1, 2, 2), (4, 5, 1)):
        yield call(draw.normal(pieces, rows, size), 2 * draw.normal(pieces, rows))
        yield call(draw.normal(pieces, rows, size), 200 * draw.normal(pieces, rows))
    lses = draw.normal(3, 5)
    lses[0, 1] = -torch.inf
    lses[:, 3] = -torch.inf
    yield call(draw.normal(3, 5, 2).masked_fill((lses == -torch.inf)[..., None], 0.0), lses)


merging.fault(
    "the outputs are averaged",
    """Every piece counts the same. A piece with small scores has little of the whole softmax, one
    with large scores has most of it.""",
    fails=MERGE,
    weigh=lambda shares, total: torch.ones_like(shares) / len(shares),
)
merging.fault(
    "divided by the number of pieces",
    """You divide the sum of the weighted outputs by the number of pieces. The weights do not sum to that
    number: divide by their sum.""",
    fails=MERGE,
    weigh=lambda shares, total: shares / len(shares),
)
merging.fault(
    "the outputs are added up",
    """You add the outputs of the pieces. Each of them is an average already; what they need are
    shares that sum to one.""",
    fails=MERGE,
    weigh=lambda shares, total: torch.ones_like(shares),
)
merging.fault(
    "never divided",
    """Your shares are relative to the largest piece, and do not sum to one. Divide by their sum.""",
    fails=MERGE,
    weigh=lambda shares, total: shares,
)
merging.fault(
    "the largest piece alone",
    """You keep the piece with the largest log-sum-exp, and forget the others. All of them have a
    share.""",
    fails=MERGE,
    weigh=lambda shares, total: (shares == shares.amax(0)).to(shares.dtype),
)
merging.fault(
    "shares along the rows",
    """Your shares sum to one over the rows, not over the pieces: you sum along the wrong axis.""",
    fails=MERGE[1:],
    axis=lambda: -1,
)
merging.fault(
    "no maximum",
    """You take exponentials of the log-sum-exps as they are. Above about 88 they overflow in float32.
    Subtract the largest one first.""",
    fails=("large",),
    maximum=lambda lses: torch.zeros_like(lses[0]),
)
merging.fault(
    "minus infinity minus minus infinity",
    """Where no piece has a key you subtract minus infinity from minus infinity, and that is NaN.
    Subtract something harmless in such a row.""",
    fails=("empty",),
    guard=lambda top: top,
)
merging.fault(
    "the largest log-sum-exp",
    """Your output is right. Your second result is the largest log-sum-exp of the pieces; the sum of
    all is larger.""",
    fails=MERGE,
    logarithm=lambda lses, shift, total: lses.amax(0),
)
merging.fault(
    "the maximum is subtracted",
    """Your output is right. In your second result the maximum has the wrong sign: it was subtracted before
    the exponentials, and is added back after the logarithm.""",
    fails=MERGE,
    logarithm=lambda lses, shift, total: natural(lses, -shift, total),
)
merging.fault(
    "the log-sum-exp of the first piece",
    """Your output is right. Your second result is that of the first piece alone; the others are part of
    the sum.""",
    fails=MERGE,
    logarithm=lambda lses, shift, total: lses[0],
)
merging.fault(
    "the log-sum-exp of the last piece",
    """Your output is right. Your second result is that of the last piece alone; the others are part of the
    sum.""",
    fails=MERGE,
    logarithm=lambda lses, shift, total: lses[-1],
)
merging.fault(
    "the mean of the log-sum-exps",
    """Your output is right. Your second result is the mean of the log-sum-exps of the pieces. What adds up
    are their exponentials.""",
    fails=MERGE,
    logarithm=lambda lses, shift, total: lses.mean(0),
)
merging.fault(
    "the log-sum-exps are added up",
    """Your output is right. Your second result is the sum of the log-sum-exps. Logarithms of sums do
    not add: e^a + e^b is not e^(a + b).""",
    fails=MERGE,
    logarithm=lambda lses, shift, total: lses.sum(0),
)
merging.fault(
    "the maximum is not added back",
    """Your output is right. Your second result is the logarithm of a sum that is relative to the
    maximum, and the maximum is still missing.""",
    fails=MERGE,
    logarithm=lambda lses, shift, total: natural(lses, torch.zeros_like(shift), total),
)

# --- paged_attention ---------------------------------------------------------------------------


def looked_up(table, b, number):
    return int(table[b, number])


def exactly(length, page_size):
    return length


def in_groups(h, heads, kv_heads):
    return h // (heads // kv_heads)


def root(size, page_size, length):
    return size**0.5


def paged(
    query, key_cache, value_cache, block_table, lengths, *, page_of=looked_up, keys_of=exactly,
    head_of=in_groups, value_page=None, scale=root, empty=lambda: 0.0, hides=False, skipped=lambda count: 0, slot_of=lambda slot, size: slot,
    turn=lambda number, count: number,
    mix=lambda scores, value: scores.softmax(0) @ value,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    output = query.new_full((*query.shape[:2], value_cache.shape[-1]), empty())
    page_size, kv_heads = key_cache.shape[1:3]
    for b, length in enumerate(lengths.tolist()):
        count = keys_of(length, page_size)
        numbers = [divmod(j, page_size) for j in range(skipped(count), count)]
        used = -(-count // page_size)
        numbers = [(turn(n, used), slot_of(slot, page_size)) for n, slot in numbers]
        places = [(page_of(block_table, b, n), slot) for n, slot in numbers]
        of_values = [((value_page or page_of)(block_table, b, n), slot) for n, slot in numbers]
        for h in range(query.shape[1] if places else 0):
            one = head_of(h, query.shape[1], kv_heads)
            key = torch.stack([key_cache[page, slot, one] for page, slot in places])
            value = torch.stack([value_cache[page, slot, one] for page, slot in of_values])
            scores = key @ query[b, h] / scale(query.shape[-1], page_size, length)
            if hides:
                scores = scores.masked_fill(torch.arange(count) >= length, -torch.inf)
            output[b, h] = mix(scores, value)
    return output


PAGED = ("by_hand", "values", "ragged", "groups", "empty")
pages = WrongAnswers("paged_attention", tests=PAGED, right=paged)


def pool(draw, lengths, page_size, heads, size, entries):
    """Pages in any order; what nobody owns is large but finite, so that wrong answers differ."""
    counts = [-(-length // page_size) for length in lengths]
    order = draw.permutation(sum(counts) + 2).tolist()
    keys = 5 * draw.normal(len(order), page_size, heads, size)
    values = 5 * draw.normal(len(order), page_size, heads, entries)
    table = torch.full((len(lengths), max([*counts, 1])), 0)
    for row, count in enumerate(counts):
        for number in range(count):
            table[row, number] = order.pop()
    return keys, values, table, torch.tensor(lengths)


@witnesses(of="paged_attention")
def paged_calls(draw):
    for lengths, page_size, heads, group in (
        ((5, 3), 2, 1, 1),
        ((4, 4), 2, 2, 1),
        ((7, 1, 6), 3, 2, 2),
        ((0, 4), 3, 1, 3),
        ((5, 0, 4), 3, 1, 2),
        ((2, 0, 6), 2, 2, 1),
    ):
        parts = pool(draw, lengths, page_size, heads, 4, 3)
        yield call(draw.normal(len(lengths), heads * group, 4), *parts)
    # and one text whose last slot is no number
    query, (keys, values, table, lengths) = draw.normal(1, 1, 4), pool(draw, (5,), 2, 1, 4, 3)
    keys[table[0, 2], 1] = values[table[0, 2], 1] = torch.nan
    yield call(query, keys, values, table, lengths)


def in_order(table, b, number):
    return number


pages.fault(
    "divided by the root of the page size",
    """You divide the scores by the square root of the page size. The products are sums over the entries of
    query and key; how keys are stored makes no difference.""",
    scale=lambda size, page_size, length: page_size**0.5,
)
pages.fault(
    "divided by the root of the length",
    """You divide the scores by the square root of the number of keys. The products are sums over the entries
    of query and key.""",
    scale=lambda size, page_size, length: length**0.5,
)
pages.fault(
    "the key with the largest score alone",
    """You return the value of the key with the largest score. All keys of the text have a share of the
    softmax.""",
    mix=lambda scores, value: (scores == scores.amax()).to(scores.dtype) @ value,
)
pages.fault(
    "pages in the order of the pool",
    """You read the pages 0, 1, 2 of the pool, as if the text lay there in one piece. The table says
    which pages are its own.""",
    page_of=in_order,
)
pages.fault(
    "the pages in the order of their numbers",
    """You sort the pages of a text. They lie anywhere in the pool: their order in the table is that of
    the text.""",
    fails=PAGED[:4],
    page_of=lambda table, b, number: int(table[b].sort().values[number]),
)
pages.fault(
    "the pages of a text in reverse",
    """You read the pages of a text from its last one to its first. The first entry of its row in the table
    is its first page.""",
    fails=("by_hand", "ragged", "empty"),
    turn=lambda number, count: count - 1 - number,
)
pages.fault(
    "one page after the other from the first on",
    """Only the first page is looked up; for the others you count on from it. Each page of a text may lie
    anywhere in the pool.""",
    fails=PAGED[:4],
    page_of=lambda table, b, number: int(table[b, 0]) + number,
)
pages.fault(
    "values without the table",
    """Keys are looked up in the table, values are read from the pages 0, 1, 2 of the pool. Both lie
    at the same places of their pools.""",
    value_page=in_order,
)
pages.fault(
    "the table of the first text",
    """All texts use the first row of the table, and so the keys of the first text.""",
    fails=PAGED[1:],
    page_of=lambda table, b, number: int(table[0, number]),
)
pages.fault(
    "the last page counts as a whole",
    """You read all slots of the last page. Behind the last key of the text they hold garbage: the
    length says how many count.""",
    fails=("by_hand", "ragged", "empty"),
    keys_of=lambda length, page_size: -(-length // page_size) * page_size,
)
pages.fault(
    "garbage with the weight 0",
    """You hide the slots behind the last key, so that their weights are 0, and then you mix their values
    in. What lies there may be anything, and 0 times NaN is NaN.""",
    fails=("by_hand", "ragged", "empty"),
    keys_of=lambda length, page_size: -(-length // page_size) * page_size,
    hides=True,
)
pages.fault(
    "the last page does not count",
    """A page that is not full is left out, and with it the newest keys.""",
    fails=("by_hand", "ragged", "empty"),
    keys_of=lambda length, page_size: length // page_size * page_size,
)
pages.fault(
    "the first page alone",
    """Only the first page of each text is read. Look at how many pages a text of this length has.""",
    keys_of=lambda length, page_size: min(length, page_size),
)
pages.fault(
    "the newest key is missing",
    """The last key of each text has no weight. `lengths` counts the keys, so the last one is at
    length - 1.""",
    keys_of=lambda length, page_size: max(length - 1, 0),
)
pages.fault(
    "the first key is missing",
    """The first key of each text has no weight. Places are counted from 0.""",
    skipped=lambda count: min(1, max(count - 1, 0)),
)
pages.fault(
    "the first slot of each page only",
    """You read slot 0 of a page again and again. Key j stands in the slot that is left over when j is
    divided by the page size.""",
    slot_of=lambda slot, size: 0,
)
pages.fault(
    "the slots of a page backwards",
    """You read each page from its last slot to its first. The keys of a text stand in a page in the order of
    the text.""",
    fails=("by_hand", "ragged", "empty"),
    slot_of=lambda slot, size: size - 1 - slot,
)
pages.fault(
    "the mean of the weighted values",
    """You divide the sum of the weighted values by the number of keys. The weights sum to one already.""",
    mix=lambda scores, value: scores.softmax(0) @ value / len(value),
)
pages.fault(
    "the plain mean of the values",
    """Every key has the same weight: you average the values, and the scores have no say. The weights are
    the softmax of the scores over the keys of a text.""",
    mix=lambda scores, value: value.mean(0),
)


@pages("the pages are averaged", fails=PAGED)
def paged_by_page(query, key_cache, value_cache, block_table, lengths):
    """Each page has a softmax of its own, and you average what they give. The softmax of a text runs
    over all of its keys.
    """
    output, size = (
        0 * paged(query, key_cache, value_cache, block_table, lengths),
        key_cache.shape[1],
    )
    for b, length in enumerate(lengths.tolist()):
        count = -(-length // size)
        for n in range(count):
            part = torch.tensor([min(size, length - n * size)])
            table = block_table[b : b + 1, n : n + 1]
            output[b] += paged(query[b : b + 1], key_cache, value_cache, table, part)[0] / count
    return output


pages.fault(
    "heads are dealt out in turn",
    """Query head h looks at head h modulo G of the keys. Here neighbours share a head: the first H / G
    query heads look at head 0.""",
    fails=("groups", "empty"),
    head_of=lambda h, heads, kv_heads: h % kv_heads,
)
pages.fault(
    "the first head of keys for all",
    """All query heads look at head 0 of the keys.""",
    fails=PAGED[1:],
    head_of=lambda h, heads, kv_heads: 0,
)
pages.fault(
    "no scale",
    """Your scores are the plain products. Look at what they are divided by.""",
    fails=PAGED[1:],
    scale=lambda size, page_size, length: 1.0,
)
pages.fault(
    "NaN where there is no key",
    """A text without keys gives NaN: 0 divided by 0. Its output is 0.""",
    fails=("empty",),
    empty=lambda: math.nan,
)

# --- the repair and the test -------------------------------------------------------------------


def rounded_up(keys, count):
    return -(-keys // count)


def rounded_down(keys, count):
    return keys // count


def by_sums(lses, sizes):
    return lses.softmax(0)


def alike(lses, sizes):
    return torch.ones_like(lses) / len(lses)


def log_sum(scores):
    return scores.logsumexp(-2)


def split(
    query,
    key,
    value,
    pieces,
    *,
    size_of=rounded_up,
    shares_of=by_sums,
    part_sum=log_sum,
    values_of=lambda part, count: part,
):
    """The right answer in steps; a fault replaces one of them."""
    size = size_of(key.shape[-2], pieces)
    outputs, lses, sizes = [], [], []
    for piece in range(pieces):
        part = slice(piece * size, (piece + 1) * size)
        keys = key[..., part, :]
        if not keys.shape[-2] and size_of is rounded_up:
            break
        scores = keys @ query[..., None] / query.shape[-1] ** 0.5
        outputs.append(
            (scores.softmax(-2) * value[..., values_of(part, keys.shape[-2]), :]).sum(-2)
        )
        lses.append(part_sum(scores))
        sizes.append(keys.shape[-2])
    shares = shares_of(torch.stack(lses), torch.tensor(sizes))
    return (shares * torch.stack(outputs)).sum(0)


fixed = WrongAnswers("fixed_split", tests=("fits", "ragged"), right=split)


@witnesses(of="fixed_split")
def split_calls(draw):
    for lead, keys, pieces in (((), 4, 2), ((2,), 7, 3), ((), 9, 4), ((), 3, 5)):
        three = 3 * draw.normal(*lead, 3), 2 * draw.normal(*lead, keys, 3)
        yield call(*three, draw.normal(*lead, keys, 2), pieces)


fixed.fault(
    "both faults are still there",
    """This is the broken code as it stands. Print the pieces that it reads, and ask how much of the
    whole softmax each of them has.""",
    size_of=rounded_down,
    shares_of=alike,
)
fixed.fault(
    "the pieces are still averaged",
    """All keys are read now. But every piece still counts the same, whatever its scores are.""",
    shares_of=alike,
)
fixed.fault(
    "the last keys are still dropped",
    """The pieces have their shares now. But keys that do not fill a piece are never read.""",
    fails=("ragged",),
    size_of=rounded_down,
)
fixed.fault(
    "shares by the number of keys",
    """A piece counts by how many keys it has. What matters is how large their exponentials are.""",
    shares_of=lambda lses, sizes: (
        (sizes / sizes.sum()).reshape(-1, *[1] * (lses.ndim - 1)).to(lses) + 0 * lses
    ),
)
fixed.fault(
    "shares without exponentials",
    """Your shares are the log-sum-exps themselves, divided by their sum. They are logarithms: the
    sums are their exponentials.""",
    shares_of=lambda lses, sizes: lses / lses.sum(0),
)
fixed.fault(
    "shares by the largest score",
    """A piece counts by its largest score. All of its keys count: their log-sum-exp says how much.""",
    part_sum=lambda scores: scores.amax(-2),
)
fixed.fault(
    "the values of the first piece for all",
    """Every piece mixes the first values. Keys and values of a piece stand at the same positions.""",
    values_of=lambda part, count: slice(0, count),
)
fixed.fault(
    "shares by the sum of the scores",
    """A piece counts by the sum of its scores. What matters is the logarithm of the sum of their
    exponentials.""",
    part_sum=lambda scores: scores.sum(-2),
)
fixed.fault(
    "shares by the mean score",
    """A piece counts by the mean of its scores. What matters is the logarithm of the sum of their
    exponentials.""",
    part_sum=lambda scores: scores.mean(-2),
)
fixed.fault(
    "shares upside down",
    """The piece with the largest log-sum-exp gets the smallest share. Look at the sign.""",
    shares_of=lambda lses, sizes: (-lses).softmax(0),
)
fixed.fault(
    "the largest piece alone",
    """You take the output of the piece with the largest log-sum-exp. The others have a share too.""",
    shares_of=lambda lses, sizes: (lses == lses.amax(0)).to(lses.dtype),
)


checks = WrongAnswers("check_paged", tests=("plain", "mutants"))


@witnesses(of="check_paged")
def check_calls(draw):
    for candidate in (
        paged,
        lambda query, keys, values, table, lengths: 0 * paged(query, keys, values, table, lengths),
        lambda *inputs: 2 * paged(*inputs),
        lambda *inputs: paged(*inputs, page_of=in_order),
        lambda *inputs: paged(*inputs, page_of=lambda table, b, number: int(table[0, number])),
        lambda *inputs: paged(*inputs, head_of=lambda h, heads, kv_heads: h % kv_heads),
        lambda *inputs: paged(*inputs, keys_of=lambda length, size: -(-length // size) * size),
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


def case(candidate, lengths=(7, 3), page_size=4, heads=2, group=2, shuffled=True):
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return 2 * torch.randn(*shape, generator=generator, dtype=torch.float64)

    counts = [-(-length // page_size) for length in lengths]
    keys = normal(sum(counts) + 1, page_size, heads, 3)
    values = normal(sum(counts) + 1, page_size, heads, 2)
    order = list(range(sum(counts) + 1))
    order = order[::-1] if shuffled else order
    table = torch.zeros(len(lengths), max(counts), dtype=torch.int64)
    for row, count in enumerate(counts):
        for number in range(count):
            table[row, number] = order.pop(0)
    inputs = normal(len(lengths), heads * group, 3), keys, values, table, torch.tensor(lengths)
    got, right = candidate(*inputs), paged(*inputs)
    return got.shape == right.shape and bool(torch.allclose(got, right, atol=1e-6))


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
    """You compare the shape of the answer and no value in it. A wrong page has the right shape."""
    inputs = torch.ones(1, 2, 3), torch.ones(2, 2, 1, 3), torch.ones(2, 2, 1, 5)
    found = candidate(*inputs, torch.tensor([[1, 0]]), torch.tensor([3]))
    return tuple(found.shape) == (1, 2, 5)


@checks("pages in their order", fails=("mutants",))
def check_in_order(candidate):
    """Your pages lie in the pool in the order of the text, from the first one on. A candidate that
    never looks at the table passes.
    """
    return case(candidate, lengths=(11,), shuffled=False)


@checks("full pages", fails=("mutants",))
def check_full(candidate):
    """All your pages are full. Whoever reads slots behind the last key, or leaves out a page that has
    some free, passes.
    """
    return case(candidate, lengths=(8, 4))


@checks("as many heads of keys as of queries", fails=("mutants",))
def check_no_groups(candidate):
    """Every query head has a head of keys of its own. Whoever shares them out wrongly passes."""
    return case(candidate, group=1)


@checks("one text", fails=("mutants",))
def check_one_text(candidate):
    """Your batch has one text. Whoever gives its pages to all others passes."""
    return case(candidate, lengths=(7,))
