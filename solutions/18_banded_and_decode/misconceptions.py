"""Wrong answers on the way to bands, pieces and pages: name, message, the tests they fail."""

import itertools
import math

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

# --- banded_scores -----------------------------------------------------------------------------


def product(query, key):
    return (query * key).sum(-1)


def band(
    query, key, half, *, column=lambda half, away: half + away,
    other=lambda rows, away, length: rows + away, score=product, reach=lambda half: half,
    sees=lambda away, most: True, hole=-torch.inf, finish=lambda band, half: band,
):  # fmt: skip
    length = query.shape[-2]
    result = query.new_full((*query.shape[:-1], 2 * half + 1), hole)
    rows = torch.arange(length)
    for away in range(-reach(half), reach(half) + 1):
        place = other(rows, away, length)
        inside = (place >= 0) & (place < length)
        if sees(away, min(half, length - 1)) and inside.any():
            found = score(query[..., rows[inside], :], key[..., place[inside], :])
            result[..., rows[inside], column(half, away)] = found
    return finish(result, half)


BAND = ("by_hand", "values", "edges", "gradient")
banded = WrongAnswers("banded_scores", tests=(*BAND, "memory"), right=band)


@witnesses(of="banded_scores")
def band_calls(draw):
    for lead, length, half in (((), 5, 1), ((2,), 7, 2), ((), 3, 4), ((), 1, 2), ((2, 3), 4, 0)):
        yield call(draw.normal(*lead, length, 3), draw.normal(*lead, length, 3), half)
    yield call(draw.normal(3, 3), draw.normal(3, 3), 0, via=student.grad(0, 1))


for name, message, column in (
    ("the columns are reversed", "Your columns are reversed.", lambda half, away: half - away),
    (
        "both sides in one column",
        "You put both sides into one column.",
        lambda half, away: half + abs(away),
    ),
    (
        "the columns are shifted by one",
        "Your columns are shifted by one.",
        lambda half, away: (half + away + 1) % (2 * half + 1),
    ),
):
    banded.fault(
        name,
        f"{message} The first column is for the earliest key, the middle one for the query's own.",
        fails=BAND,
        column=column,
    )
for name, hole in (("zero", 0.0), ("NaN", math.nan), ("a large negative number", -1e9)):
    banded.fault(
        f"{name} where there is no key",
        f"You put {name} into columns without a key. They should be minus infinity.",
        fails=BAND[:3],
        hole=hole,
    )
for name, message, score in (
    ("scaled", "You scale the products.", lambda q, k: product(q, k) / q.shape[-1] ** 0.5),
    ("averaged", "You take means.", lambda q, k: (q * k).mean(-1)),
    (
        "distances instead of products",
        "You compute squared distances.",
        lambda q, k: (q - k).square().sum(-1),
    ),
    (
        "half precision",
        "You compute the products in half precision.",
        lambda q, k: product(q.half(), k.half()).to(q.dtype),
    ),
):
    banded.fault(
        name,
        f"{message} The band contains the plain products of queries and keys.",
        fails=BAND if "distances" in name else BAND[1:],
        score=score,
    )
banded.fault(
    "one column too few",
    """Your band has 2 * half columns. It should have `half` on each side, and one for the query's
    own key.""",
    fails=BAND,
    finish=lambda band, half: band[..., : 2 * half],
)
banded.fault(
    "the keys fill each row from its left",
    "Your rows begin with the first existing key. Each column is for one distance.",
    fails=BAND,
    finish=lambda band, half: torch.stack(
        [row.roll(min(i - half, 0), -1) for i, row in enumerate(band.unbind(-2))], -2
    ),
)
for name, message, steps in (
    ("the query's own key is missing", "Distance 0 is missing.", {"sees": lambda away, most: away}),
    (
        "every column is empty",
        "Write the products into the band: adding them to minus infinity has no effect.",
        {"sees": lambda away, most: False},
    ),
    (
        "only keys before the query",
        "Later keys are missing.",
        {"sees": lambda away, most: away <= 0},
    ),
    (
        "one pass too few",
        "Your loop ends before its last distance: a range excludes its end.",
        {"sees": lambda away, most: away < most},
    ),
    (
        "the outer columns are empty",
        "The band has `half` keys on each side.",
        {"reach": lambda half: half - 1},
    ),
):
    banded.fault(
        name,
        f"Some of your columns are empty. {message}",
        fails=BAND,
        **steps,
    )
for name, other in (
    ("the text wraps around", lambda rows, away, length: (rows + away) % length),
    ("the key at the edge is repeated", lambda rows, away, size: (rows + away).clamp(0, size - 1)),
):
    banded.fault(
        name,
        """You use other keys before the first and after the last one. Those columns are minus
        infinity.""",
        fails=BAND,
        other=other,
    )
banded.detached(fails=("gradient",))


@banded("queries and keys exchanged", fails=BAND)
def band_exchanged(query, key, half):
    """Your row i has the products of key i with queries. A row belongs to a query."""
    return band(key, query, half)


@banded("the full matrix is built", fails=("memory",))
def band_of_table(query, key, half):
    """Your values are right, but you build all L × L products. Compute only the diagonals of the
    band.
    """
    place = torch.arange(query.shape[-2])[:, None] + torch.arange(-half, half + 1)
    inside = (place >= 0) & (place < len(place))
    table = (query @ key.mT)[..., torch.arange(len(place))[:, None], place.clamp(0, len(place) - 1)]
    return table.masked_fill(~inside, -torch.inf)


# --- sliding_window_forward --------------------------------------------------------------------


def up_to(length, tile_size):
    return range(0, length, tile_size)


def window(
    query, key, value, window_size, tile_size, *, tiles=up_to, reach=lambda size: size,
    first_key=lambda first, reach: first - reach + 1, after=lambda window_size: 0,
    score=lambda query, key, value: query @ key.mT / query.shape[-1] ** 0.5,
    seen=lambda away, reach, after: (away < reach) & (away >= -after),
    mix=lambda scores, seen, value: scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value,
    logarithm=lambda scores: scores.logsumexp(-1),
    hide=lambda scores, near: scores.masked_fill(~near, -torch.inf), join=torch.cat,
    sum_of=lambda scores, size: scores, row=lambda i, first: i, column=lambda j, start: j,
):  # fmt: skip
    length, outputs, lses = query.shape[-2], [], []
    for first in tiles(length, tile_size):
        last = min(first + tile_size, length)
        start = max(0, first_key(first, reach(window_size)))
        end = min(length, last + after(window_size))
        scores = score(query[..., first:last, :], key[..., start:end, :], value)
        rows, columns = torch.arange(first, last), torch.arange(start, end)
        away = row(rows, first)[:, None] - column(columns, start)
        near = seen(away, reach(window_size), after(window_size))
        lses.append(logarithm(hide(sum_of(scores, query.shape[-1]), near)))
        outputs.append(mix(scores, near, value[..., start:end, :]))
    return join(outputs, -2), torch.cat(lses, -1)


NUMBERS = ("by_hand", "values", "ragged", "large", "skips")
SCALE = {"fails": ("values", "ragged", "skips")}
sliding = WrongAnswers("sliding_window_forward", tests=(*NUMBERS, "memory"), right=window)


@witnesses(of="sliding_window_forward")
def window_calls(draw):
    for lead, length, size, window_size, tile_size in (
        *(((), 4, 4, 2, 2), ((2,), 6, 3, 3, 3), ((), 7, 2, 5, 3), ((1, 2), 5, 4, 2, 4)),
        *(((), 6, 3, 9, 2), ((), 5, 2, 1, 2)),
    ):
        three = 2 * draw.normal(*lead, length, size), 2 * draw.normal(*lead, length, size)
        yield call(*three, draw.normal(*lead, length, 3), window_size, tile_size)
    yield call(torch.full((6, 1), 90.0), torch.arange(6.0)[:, None], draw.normal(6, 2), 3, 2)


for name, message, steps in (
    ("one key too many", "Your window has W + 1 keys.", {"reach": lambda size: size + 1}),
    ("one key too few", "Your window has W - 1 keys.", {"reach": lambda size: max(size - 1, 1)}),
    (
        "the start of the window is one key late",
        "You leave out the oldest key of a tile's first query.",
        {"first_key": lambda first, reach: first - max(reach - 2, 0)},
    ),
    (
        "the window is halved before the tile",
        "You read only half of the window before the tile.",
        {"first_key": lambda first, reach: first - reach // 2},
    ),
    ("a window of two sides", "Your window also has later keys.", {"after": lambda size: size - 1}),
    (
        "the future inside a tile",
        "Your queries attend to later keys of their tile.",
        {"seen": lambda away, reach, after: away < reach},
    ),
    (
        "no left edge inside a tile",
        "Later queries of a tile attend to all keys of the tile's first query.",
        {"seen": lambda away, reach, after: away >= -after},
    ),
    (
        "the query's own key is missing",
        "Your window excludes the query's own key.",
        {"seen": lambda away, reach, after: (away < reach) & (away > 0)},
    ),
    (
        "nothing before the tile",
        "You read only the keys of the tile itself.",
        {"first_key": lambda first, reach: first},
    ),
    (
        "half of the window on each side",
        "Your window is split between earlier and later keys.",
        {
            "after": lambda size: size // 2,
            "seen": lambda away, reach, after: away.abs() <= after,
        },
    ),
    (
        "queries counted within the tile",
        "Your mask counts queries from 0 in each tile.",
        {"row": lambda i, first: i - first},
    ),
    (
        "keys counted within the slice",
        "Your mask counts keys from 0 in each slice.",
        {"column": lambda j, start: j - start},
    ),
    (
        "queries and keys counted within the tile",
        "Your mask counts queries and keys from 0 in each tile.",
        {"row": lambda i, first: i - first, "column": lambda j, start: j - start},
    ),
):
    fails = {
        "the window is halved before the tile": ("values", "ragged", "large", "skips"),
        "the future inside a tile": NUMBERS[1:],
        "no left edge inside a tile": NUMBERS[1:],
    }
    sliding.fault(
        name,
        f"{message} Query i attends to keys i - W + 1 to i.",
        fails=fails.get(name, NUMBERS),
        **steps,
    )
for name, message, score in (
    ("no scale", "You do not scale the scores.", lambda q, k, v: q @ k.mT),
    ("divided by E", "You divide by E itself.", lambda q, k, v: q @ k.mT / q.shape[-1]),
    (
        "divided by the root of the value's size",
        "You divide by the root of E_v.",
        lambda q, k, v: q @ k.mT / v.shape[-1] ** 0.5,
    ),
):
    sliding.fault(
        name,
        f"{message} Scores are products divided by the root of E.",
        fails=NUMBERS[1:] if "value" in name else SCALE["fails"],
        score=score,
    )
sliding.fault(
    "the last queries are dropped",
    "You skip the queries after the last whole tile. The last tile may be smaller.",
    fails=("ragged", "large", "skips"),
    tiles=lambda length, size: range(0, max(length // size, 1) * size, size),
)
sliding.fault(
    "masked after the softmax",
    "You mask after the softmax, so the weights sum to less than one. Mask before it.",
    fails=NUMBERS[1:],
    mix=lambda scores, seen, value: (scores.softmax(-1) * seen) @ value,
)
for logarithm in (lambda scores: scores.logsumexp(-1), lambda scores: scores.exp().sum(-1).log()):
    sliding.fault(
        "no maximum",
        "You take the exponentials of the raw scores. In float32 they overflow above 88.",
        fails=("large",),
        mix=lambda scores, seen, value: (
            (scores.exp() * seen) @ value / (scores.exp() * seen).sum(-1, keepdim=True)
        ),
        logarithm=logarithm,
    )
sliding.fault(
    "tiles concatenated in reverse",
    "You concatenate the tiles in reverse. The first tile has the first queries.",
    fails=NUMBERS,
    join=lambda outputs, axis: torch.cat(outputs[::-1], axis),
)
SECOND = "Your output is right, but your second result is {}. It should be log(sum of e^score)."
for name, told, fails, steps in (
    (
        "the log-sum-exp includes masked pairs",
        "that of all keys of the slice",
        NUMBERS[1:],
        {"hide": lambda scores, near: scores},
    ),
    (
        "the log-sum-exp of base 2",
        "a logarithm of base 2",
        NUMBERS,
        {"logarithm": lambda scores: scores.logsumexp(-1) / math.log(2)},
    ),
    (
        "the log-sum-exp of scores without a scale",
        "that of unscaled products",
        SCALE["fails"],
        {"sum_of": lambda scores, size: scores * size**0.5},
    ),
    (
        "the sum instead of its logarithm",
        "the sum of the exponentials",
        NUMBERS,
        {"logarithm": lambda scores: scores.exp().sum(-1)},
    ),
    (
        "the logarithm of the mean",
        "the logarithm of a mean",
        NUMBERS,
        {"logarithm": lambda s: s.logsumexp(-1) - (s > -torch.inf).sum(-1).to(s).log()},
    ),
    (
        "the largest score instead of the log-sum-exp",
        "the largest score of the row",
        ("by_hand", "values", "ragged", "skips"),
        {"logarithm": lambda scores: scores.amax(-1)},
    ),
):
    sliding.fault(name, SECOND.format(told), fails=fails, **steps)


@sliding("all keys are read", fails=("skips", "memory"))
def window_masked(query, key, value, window_size, tile_size):
    """Your values are right, but each tile reads all keys. Slice the keys that the tile needs."""
    everything = {"first_key": lambda first, reach: 0}
    return window(query, key, value, window_size, tile_size, **everything)


# --- merge_partials ----------------------------------------------------------------------------


def natural(lses, shift, total):
    empty = total == 0
    return (shift + total.masked_fill(empty, 1.0).log()).masked_fill(empty, -torch.inf)


def merge(
    outputs, lses, *, maximum=lambda lses: lses.amax(0),
    guard=lambda top: top.masked_fill(top == -torch.inf, 0.0),
    weigh=lambda shares, total: shares / total.masked_fill(total == 0, 1.0),
    axis=0, logarithm=natural, power=torch.exp,
):  # fmt: skip
    shift = guard(maximum(lses))
    shares = power(lses - shift)
    weights = weigh(shares, shares.sum(axis, keepdim=bool(axis)))
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


for name, message, weigh in (
    (
        "the outputs are averaged",
        "Your shares are equal.",
        lambda shares, total: torch.ones_like(shares) / len(shares),
    ),
    (
        "divided by the number of pieces",
        "You divide by the number of pieces.",
        lambda shares, total: shares / len(shares),
    ),
    (
        "the outputs are summed",
        "Your shares are all 1.",
        lambda shares, total: torch.ones_like(shares),
    ),
    ("never divided", "You do not divide the shares by their sum.", lambda shares, total: shares),
    (
        "the largest piece alone",
        "You keep only the largest piece.",
        lambda shares, total: (shares == shares.amax(0)).to(shares.dtype),
    ),
):
    merging.fault(
        name,
        f"{message} The share of a piece is e^(its lse - the merged lse).",
        weigh=weigh,
    )
merging.fault(
    "shares along the rows",
    "Your shares sum to one over the rows. They should sum to one over the pieces, the first axis.",
    fails=MERGE[1:],
    axis=-1,
)
merging.fault(
    "no maximum",
    "You take the exponentials of the raw log-sum-exps, which overflow. Subtract the maximum.",
    fails=("large",),
    maximum=lambda lses: torch.zeros_like(lses[0]),
)
merging.fault(
    "one maximum for all rows",
    """You subtract the maximum of all rows, so a row far below it vanishes. Each row needs its own
    maximum.""",
    fails=("large",),
    maximum=lambda lses: lses.amax().expand(lses.shape[1:]),
)
merging.fault(
    "minus infinity minus minus infinity",
    """Without any key you subtract minus infinity from itself, which is NaN. Subtract a finite
    number.""",
    fails=("empty",),
    guard=lambda top: top,
)
merging.fault(
    "the largest piece alone",
    """You keep only the largest piece, in both results. The share of a piece is e^(its lse - the
    merged lse).""",
    power=lambda x: (x == 0).to(x.dtype),
)
merging.fault(
    "powers of two",
    "Your shares are powers of 2. The log-sum-exps are natural logarithms: use e.",
    power=torch.exp2,
)
for name, told, logarithm in (
    ("the largest log-sum-exp", "the largest log-sum-exp", lambda lses, *_: lses.amax(0)),
    (
        "the maximum is subtracted",
        "the logarithm minus the maximum",
        lambda lses, shift, total: natural(lses, -shift, total),
    ),
    (
        "the maximum is not added back",
        "the logarithm without the maximum",
        lambda lses, shift, total: natural(lses, torch.zeros_like(shift), total),
    ),
    ("the largest log-sum-exp", "the largest log-sum-exp", lambda lses, shift, total: shift),
    ("the log-sum-exp of the first piece", "that of the first piece", lambda lses, *_: lses[0]),
    ("the log-sum-exp of the last piece", "that of the last piece", lambda lses, *_: lses[-1]),
    ("the mean of the log-sum-exps", "a mean of logarithms", lambda lses, *_: lses.mean(0)),
    ("the log-sum-exps are added up", "a sum of logarithms", lambda lses, *_: lses.sum(0)),
    (
        "the logarithm of the mean",
        "the logarithm of a mean",
        lambda lses, shift, total: natural(lses, shift, total / len(lses)),
    ),
    (
        "the log-sum-exp of base 2",
        "a logarithm of base 2",
        lambda lses, shift, total: torch.where(total > 0, shift + total.log2(), -torch.inf),
    ),
    (
        "the sum instead of its logarithm",
        "the sum of the exponentials",
        lambda lses, shift, total: natural(lses, shift, total).exp(),
    ),
    (
        "a log-sum-exp of 0 without a key",
        "0 where no piece has a key, instead of minus infinity",
        lambda lses, shift, total: torch.where(total > 0, natural(lses, shift, total), 0.0),
    ),
):
    merging.fault(
        name,
        f"Your output is right, but your second result is {told}. It should be log(sum of e^lse).",
        fails=("empty",) if "without a key" in name else MERGE,
        logarithm=logarithm,
    )

# --- paged_attention ---------------------------------------------------------------------------


def looked_up(table, b, number):
    return int(table[b, number])


def whole_pages(length, page_size):
    return -(-length // page_size) * page_size


def paged(
    query, key_cache, value_cache, block_table, lengths, *, page_of=looked_up, value_page=None,
    keys_of=lambda length, page_size: length, skipped=lambda count: 0, hides=False, empty=0.0,
    head_of=lambda h, heads, kv_heads: h // (heads // kv_heads), value_head=lambda one: one,
    scale=lambda size, page_size, length, entries: size**0.5, turn=lambda number, count: number,
    slot_of=lambda slot, size: slot, mix=lambda scores, value, size: scores.softmax(0) @ value,
    clean=lambda cache: cache, place=lambda j, size, used: divmod(j, size),
):  # fmt: skip
    output = query.new_full((*query.shape[:2], value_cache.shape[-1]), empty)
    key_cache, value_cache = clean(key_cache), clean(value_cache)
    page_size, kv_heads = key_cache.shape[1:3]
    for b, length in enumerate(lengths.tolist()):
        count = keys_of(length, page_size)
        used = -(-count // page_size)
        numbers = [place(j, page_size, used) for j in range(skipped(count), count)]
        numbers = [(turn(n, used), slot_of(slot, page_size)) for n, slot in numbers]
        table = block_table[:, :used]
        places = [(page_of(table, b, n), slot) for n, slot in numbers]
        of_values = [((value_page or page_of)(table, b, n), slot) for n, slot in numbers]
        for h in range(query.shape[1] if places else 0):
            one = head_of(h, query.shape[1], kv_heads)
            key = torch.stack([key_cache[page, slot, one] for page, slot in places])
            value = torch.stack(
                [value_cache[page, slot, value_head(one)] for page, slot in of_values]
            )
            scores = key @ query[b, h] / scale(query.shape[-1], page_size, length, value.shape[-1])
            if hides:
                scores = scores.masked_fill(torch.arange(count) >= length, -torch.inf)
            output[b, h] = mix(scores, value, page_size)
    return output


PAGED = ("by_hand", "values", "ragged", "groups", "empty")
NOT_FULL = ("by_hand", "ragged", "empty")
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
        *(((5, 3), 2, 1, 1), ((4, 4), 2, 2, 1), ((7, 1, 6), 3, 2, 2), ((0, 4), 3, 1, 3)),
        *(((5, 0, 4), 3, 1, 2), ((2, 0, 6), 2, 2, 1)),
    ):
        parts = pool(draw, lengths, page_size, heads, 4, 3)
        yield call(draw.normal(len(lengths), heads * group, 4), *parts)
    yield call(draw.normal(1, 1, 4), *pool(draw, (9,), 8, 1, 4, 3))
    # and one text whose last slot is no number
    query, (keys, values, table, lengths) = draw.normal(1, 1, 4), pool(draw, (5,), 2, 1, 4, 3)
    keys[table[0, 2], 1] = values[table[0, 2], 1] = torch.nan
    yield call(query, keys, values, table, lengths)


def in_order(table, b, number):
    return number


for name, message, fails, scale in (
    ("the page size", "the page size", PAGED, lambda e, size, *_: size**0.5),
    ("the length", "the length", PAGED, lambda e, size, length, ev: length**0.5),
    ("the value's size", "E_v", PAGED[1:], lambda e, size, n, ev: ev**0.5),
):
    pages.fault(
        f"divided by the root of {name}",
        f"You divide the scores by the root of {message}. Divide them by the root of E.",
        fails=fails,
        scale=scale,
    )
pages.fault(
    "no scale",
    "You do not scale the scores. Divide them by the root of E.",
    fails=PAGED[1:],
    scale=lambda *sizes: 1.0,
)
TABLE = "{} Page n of text b is `block_table[b, n]`."
for name, message, fails, steps in (
    ("pages in the order of the pool", "You take pages 0, 1, 2.", PAGED, {"page_of": in_order}),
    (
        "the pages sorted by number",
        "You sort the pages.",
        ("by_hand", "ragged"),
        {"page_of": lambda table, b, number: int(table[b].sort().values[number])},
    ),
    (
        "the pages of a text in reverse",
        "You read the pages of a text in reverse.",
        NOT_FULL,
        {"turn": lambda number, count: count - 1 - number},
    ),
    (
        "consecutive pages from the first",
        "You read consecutive pages from the first page of a text.",
        PAGED[:4],
        {"page_of": lambda table, b, number: int(table[b, 0]) + number},
    ),
    (
        "values without the table",
        "You use the table for keys, but pages 0, 1, 2 for values.",
        PAGED,
        {"value_page": in_order},
    ),
    (
        "the table of the first text",
        "You use row 0 of the table for all texts.",
        PAGED[1:],
        {"page_of": lambda table, b, number: int(table[0, number])},
    ),
):
    pages.fault(name, TABLE.format(message), fails=fails, **steps)
KEYS = "{} The keys of a text are 0 to `length` - 1."
for name, message, fails, steps in (
    (
        "the last page counts as a whole",
        "You read slots after the last key.",
        NOT_FULL,
        {"keys_of": whole_pages},
    ),
    (
        "the last page does not count",
        "You leave out a partial page.",
        NOT_FULL,
        {"keys_of": lambda length, page_size: length // page_size * page_size},
    ),
    (
        "the last page does not count, but the first one does",
        "You leave out a partial page.",
        NOT_FULL,
        {
            "keys_of": lambda length, page_size: (
                min(length, page_size) if length < page_size else length // page_size * page_size
            )
        },
    ),
    (
        "only the first page",
        "You read only one page.",
        PAGED,
        {"keys_of": lambda length, page_size: min(length, page_size)},
    ),
    (
        "the newest key is missing",
        "You leave out the newest key.",
        PAGED,
        {"keys_of": lambda length, page_size: max(length - 1, 0)},
    ),
    (
        "the newest of several keys is missing",
        "You leave out the newest key.",
        PAGED,
        {"keys_of": lambda length, page_size: length - (length > 1)},
    ),
    (
        "the first key is missing",
        "You leave out the first key.",
        PAGED,
        {"skipped": lambda count: min(1, max(count - 1, 0))},
    ),
):
    pages.fault(name, KEYS.format(message), fails=fails, **steps)
pages.fault(
    "undefined slots with weight 0",
    "You give slots after the last key weight 0, but 0 times NaN is NaN. Leave them out.",
    fails=NOT_FULL,
    keys_of=whole_pages,
    hides=True,
)
pages.fault(
    "NaN as a key of zeros",
    "You replace NaN by 0, but a score of 0 has a weight. Leave out the slots after the last key.",
    fails=NOT_FULL,
    keys_of=whole_pages,
    clean=lambda cache: cache.nan_to_num(0.0),
)
for name, message, fails, steps in (
    ("only the first slot of each page", "slot 0", PAGED, {"slot_of": lambda slot, size: 0}),
    (
        "the slots of a page reversed",
        "in reverse order",
        NOT_FULL,
        {"slot_of": lambda slot, size: size - 1 - slot},
    ),
    (
        "pages and slots exchanged",
        "the first slot of all pages, then the second",
        ("ragged",),
        {"place": lambda j, size, used: (j % used, j // used)},
    ),
):
    pages.fault(
        name,
        f"You read wrong slots: {message}. Key j is in slot j % P of page j // P of its text.",
        fails=fails,
        **steps,
    )
for name, message, mix in (
    (
        "only the key with the largest score",
        "You take the value of the largest score.",
        lambda scores, value, size: (scores == scores.amax()).to(scores.dtype) @ value,
    ),
    (
        "the mean of the weighted values",
        "You also divide by the number of keys.",
        lambda scores, value, size: scores.softmax(0) @ value / len(value),
    ),
    (
        "the plain mean of the values",
        "You average the values.",
        lambda scores, value, size: value.mean(0),
    ),
    (
        "the pages are averaged",
        "You take a softmax per page, and average.",
        lambda scores, value, size: (
            torch.cat([s.softmax(0) for s in scores.split(size)]) @ value / -(-len(value) // size)
        ),
    ),
):
    pages.fault(
        name,
        f"{message} The weights of a text are one softmax over all its keys.",
        fails=PAGED,
        mix=mix,
    )
for name, message, fails, head_of in (
    ("heads dealt out in turn", "h % G", ("groups", "empty"), lambda h, heads, g: h % g),
    ("query heads divided by G", "h // G", PAGED[1:4], lambda h, heads, g: min(h // g, g - 1)),
    ("the first head of keys for all", "0", PAGED[1:], lambda h, heads, g: 0),
):
    pages.fault(
        name,
        f"Your query head h uses head {message}. Adjacent heads share: use h // (H // G).",
        fails=fails,
        head_of=head_of,
    )
pages.fault(
    "values of the first head for all",
    "You use the values of head 0 for all query heads. Keys and values come from the same head.",
    fails=PAGED[1:],
    value_head=lambda one: 0,
)
pages.fault(
    "NaN where there is no key",
    "For a text without keys you divide 0 by 0, which is NaN. Its output is 0.",
    fails=("empty",),
    empty=math.nan,
)

# --- the repair and the test -------------------------------------------------------------------


def of_size(size, count):
    return [slice(piece * size, (piece + 1) * size) for piece in range(count)]


def rounded_up(keys, count):
    size = -(-keys // count)
    return of_size(size, -(-keys // size))


def even(keys, count):
    return [part for part in torch.arange(keys).tensor_split(count) if len(part)]


def split(
    query, key, value, pieces, *, parts_of=rounded_up,
    shares_of=lambda lses, sizes: lses.softmax(0), part_sum=lambda scores: scores.logsumexp(-2),
    values_of=lambda part, count: part,
):  # fmt: skip
    outputs, lses, sizes = [], [], []
    for part in parts_of(key.shape[-2], pieces):
        keys = key[..., part, :]
        scores = keys @ query[..., None] / query.shape[-1] ** 0.5
        of_part = value[..., values_of(part, keys.shape[-2]), :]
        outputs.append((scores.softmax(-2) * of_part).sum(-2))
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


DROPPED = {"parts_of": lambda keys, count: of_size(keys // count, count)}
ALIKE = {"shares_of": lambda lses, sizes: torch.ones_like(lses) / len(lses)}
fixed.fault(
    "both faults are still there",
    """This is the broken code. Print the pieces that it reads, and the share of each in the whole
    softmax.""",
    **DROPPED,
    **ALIKE,
)
for parts_of in (DROPPED["parts_of"], lambda keys, n: of_size(max(1, keys // n), min(n, keys))):
    fixed.fault(
        "the last keys are still dropped",
        "The shares are now right. You still drop keys that do not fill a piece.",
        fails=("ragged",),
        parts_of=parts_of,
    )
for parts_of, (name, told, steps) in itertools.product(
    (rounded_up, even),
    (
        ("alike", "nothing: all are equal", ALIKE),
        (
            "by the number of keys",
            "the number of its keys",
            {
                "shares_of": lambda lses, sizes: (
                    (sizes / sizes.sum()).reshape(-1, *[1] * (lses.ndim - 1)).to(lses) + 0 * lses
                )
            },
        ),
        (
            "without exponentials",
            "its log-sum-exp itself",
            {"shares_of": lambda lses, sizes: lses / lses.sum(0)},
        ),
        ("by the largest score", "its largest score", {"part_sum": lambda s: s.amax(-2)}),
        ("by the sum of the scores", "the sum of its scores", {"part_sum": lambda s: s.sum(-2)}),
        ("by the mean score", "the mean of its scores", {"part_sum": lambda s: s.mean(-2)}),
        (
            "inverted",
            "minus its log-sum-exp",
            {"shares_of": lambda lses, sizes: (-lses).softmax(0)},
        ),
        (
            "for the largest piece only",
            "whether it is the largest",
            {"shares_of": lambda lses, sizes: (lses == lses.amax(0)).to(lses.dtype)},
        ),
        (
            "that do not sum to one",
            "its log-sum-exp, but is not divided by the sum",
            {"shares_of": lambda s, n: (s - s.amax(0)).exp()},
        ),
    ),
):
    fixed.fault(
        f"shares {name}",
        f"Your share of a piece depends on {told}. It is e^(its log-sum-exp), divided by the sum.",
        parts_of=parts_of,
        **steps,
    )
fixed.fault(
    "the values of the first piece for all",
    "You use the first values in each piece. Keys and values of a piece have the same positions.",
    values_of=lambda part, count: slice(0, count),
)

checks = WrongAnswers("check_paged", tests=("plain", "mutants"))
HARDER = {"fails": ("mutants",)}


@witnesses(of="check_paged")
def check_calls(draw):
    for candidate in (
        paged,
        lambda query, keys, values, table, lengths: 0 * paged(query, keys, values, table, lengths),
        lambda *inputs: 2 * paged(*inputs),
        lambda *inputs: paged(*inputs, page_of=in_order),
        lambda *inputs: paged(*inputs, page_of=lambda table, b, number: int(table[0, number])),
        lambda *inputs: paged(*inputs, head_of=lambda h, heads, kv_heads: h % kv_heads),
        lambda *inputs: paged(*inputs, keys_of=whole_pages),
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
    """Your test always returns True. Call the candidate and compare its result with your own
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
    inputs = torch.ones(1, 2, 3), torch.ones(2, 2, 1, 3), torch.ones(2, 2, 1, 5)
    found = candidate(*inputs, torch.tensor([[1, 0]]), torch.tensor([3]))
    return tuple(found.shape) == (1, 2, 5)


@checks("pages in order", **HARDER)
def check_in_order(candidate):
    """Your pages are in the order of the text. A candidate that ignores the table passes."""
    return case(candidate, lengths=(11,), shuffled=False)


@checks("full pages", **HARDER)
def check_full(candidate):
    """All your pages are full. A candidate that reads slots after the last key passes."""
    return case(candidate, lengths=(8, 4))


@checks("as many key heads as query heads", **HARDER)
def check_no_groups(candidate):
    """Your query heads each have their own key head. A candidate that groups heads wrongly passes."""
    return case(candidate, group=1)


@checks("one text", **HARDER)
def check_one_text(candidate):
    """Your batch has one text. A candidate that uses its pages for all texts passes."""
    return case(candidate, lengths=(7,))
