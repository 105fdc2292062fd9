"""Wrong answers on the way to several heads and to positions: name, message, the tests they fail."""

import math
from functools import partial

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

# --- multi_head_attention ----------------------------------------------------------------------


def cut(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B, H, ., E)


def dealt(x, num_heads):
    return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)


def join(heads):
    return heads.transpose(1, 2).flatten(2)


def unmoved(heads):
    return heads.reshape(len(heads), heads.shape[2], -1)


def shut(scores, mask, fill=-torch.inf):
    return scores if mask is None else scores.masked_fill(~mask, fill)


def soft(scores, mask):
    return shut(scores, mask).softmax(-1)


def from_left(x, w):
    return x @ w.T


def attend(
    *inputs,
    read=lambda q, k, v: (q, k, v),
    enter=from_left,
    split=cut,
    scale=lambda q, v, x: q.shape[-1] ** -0.5,
    weigh=soft,
    mix=lambda w, v: w @ v,
    merge=join,
    leave=from_left,
    finish=lambda y, x: y,
):
    """The right answer in steps; a fault replaces some of them."""
    query, key, value, w_q, w_k, w_v, w_o, num_heads, mask = (*inputs, None)[:9]
    texts, matrices = read(query, key, value), (w_q, w_k, w_v)
    q, k, v = (split(enter(x, w), num_heads) for x, w in zip(texts, matrices, strict=True))
    weights = weigh(q @ k.mT * scale(q, v, query), mask)
    return finish(leave(merge(mix(weights, v)), w_o), query)


TESTS = ("by_hand", "self", "cross", "mask", "gradient", "dtype")
heads = WrongAnswers("multi_head_attention", tests=TESTS, right=attend)


@witnesses(of="multi_head_attention")
def head_calls(draw):
    for b, n, s, d, h, e, ev in (
        (1, 3, 3, 4, 2, 2, 2),
        (2, 5, 4, 6, 3, 2, 4),
        (2, 4, 4, 6, 2, 3, 3),
        (2, 3, 4, 5, 2, 3, 4),
    ):
        matrices = [draw.normal(h * e, d), draw.normal(h * e, d), draw.normal(h * ev, d)]
        matrices.append(draw.normal(d, h * ev))
        texts = draw.normal(b, n, d), draw.normal(b, s, d), draw.normal(b, s, d)
        yield call(*texts, *matrices, h)
        yield call(*(x.double() for x in (*texts, *matrices)), h)
        yield call(*texts, *matrices, h, draw.mask(n, s))
        yield call(*texts, *matrices, h, draw.mask(b, h, n, s))
        yield call(*(texts[:1] * 3), *matrices, h)
        yield call(*texts, *matrices, h, via=student.grad(*range(7)))


in_wide_heads = partial(heads.fault, but=("by_hand", "dtype"))
in_wide_heads(
    "heads cut by reshape alone",
    """You reshape to the axes (batch, heads, positions, entries) in one go. The numbers stay in
    their order, so a head gets pieces of several positions. Cut the last axis, then exchange
    two.""",
    split=lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
)
in_wide_heads(
    "heads joined by reshape alone",
    """You put the heads side by side without bringing the axis of the heads back behind the
    positions. The shape is right, and a row holds one head at several positions.""",
    merge=unmoved,
)
in_wide_heads(
    "every other row is a head",
    """You deal the rows of the projection to the heads in turns, as cards. Here head 0 has the
    first E rows, head 1 the next E. With one entry for each head nobody notices.""",
    split=dealt,
    merge=lambda y: y.permute(0, 2, 3, 1).flatten(2),
)
in_wide_heads(
    "cut in turns, joined in blocks",
    """Your heads get every H-th entry of the projections and are put side by side as blocks. Both
    ways of cutting exist; here head 0 owns the first E rows, and all of them lie together.""",
    split=dealt,
)
in_wide_heads(
    "cut in blocks, joined in turns",
    """You put the entries of the heads together in turns: the first of every head, then the
    second. What a head has found stays together, in the order of the columns of the output
    matrix.""",
    merge=lambda y: y.permute(0, 2, 3, 1).flatten(2),
)
with_mask = partial(heads.fault, fails=("mask",))
heads.fault(
    "scaled by the width of all heads",
    """You divide by the root of the entries of all heads together. The scale was taken before the
    heads were cut; each head adds up E products.""",
    scale=lambda q, v, x: (q.shape[-1] * q.shape[1]) ** -0.5,
)
heads.fault(
    "scaled by the width of the model",
    """You divide by the root of the width of the text. A score adds up the entries of one head's
    query and key; how wide the text was before the projection does not matter.""",
    scale=lambda q, v, x: x.shape[-1] ** -0.5,
)
heads.fault(
    "scaled by the head's share of the model",
    """You divide by the root of the model's width over the number of heads. What counts is how many
    rows of the projection belong to a head, and that may be another number.""",
    fails=("cross",),
    scale=lambda q, v, x: (x.shape[-1] // q.shape[1]) ** -0.5,
)
heads.fault(
    "scaled by the width of a value",
    """You divide by the root of the entries of a head's value. A score is a sum over the entries
    of query and key; where values are as wide as keys nobody notices.""",
    fails=("cross",),
    scale=lambda q, v, x: v.shape[-1] ** -0.5,
)
heads.fault(
    "scaled by the number of heads",
    """You divide by the root of the number of heads. What counts is how many products one score
    adds up.""",
    but=("mask", "gradient"),
    scale=lambda q, v, x: q.shape[1] ** -0.5,
)
heads.fault(
    "scaled by the number of keys",
    """You divide by the root of the number of keys. A score is a sum over the entries of a vector,
    however long the text is.""",
    scale=lambda q, v, x: v.shape[-2] ** -0.5,
)
in_wide_heads(
    "no scale",
    """You compare by the plain product. The scale of chapter 07 stays, inside each head.""",
    scale=lambda q, v, x: 1,
)
in_wide_heads(
    "the root is missing",
    """You divide the scores by the width of a head itself, or by its root in two places. They come
    out too small, and all weights are nearly alike.""",
    scale=lambda q, v, x: 1 / q.shape[-1],
)
in_wide_heads(
    "multiplied by the root",
    """You multiply the scores by the root where the formula divides: wide heads then choose a
    single key.""",
    scale=lambda q, v, x: q.shape[-1] ** 0.5,
)
in_wide_heads(
    "softmax over the heads",
    """Your softmax runs over the axis of the heads: they compete for each key. Each head has
    weights of its own, which sum to one over the keys.""",
    weigh=lambda s, m: shut(s, m).softmax(1),
)
heads.fault(
    "softmax over the queries",
    """Your softmax runs over the queries, so that these compete for each key. Count the axes from
    the back: which of them are the keys?""",
    weigh=lambda s, m: shut(s, m).softmax(-2),
)
heads.fault(
    "one set of weights for all heads",
    """All your heads use the mean of their weights, so that they look at the same place. Then one
    head would be enough: what differs between heads is where they look.""",
    weigh=lambda s, m: soft(s, m).mean(1, keepdim=True),
)
heads.fault(
    "no softmax",
    """You mix by the scores themselves. They may be negative and sum to anything; weights come out
    of a softmax.""",
    weigh=lambda s, m: shut(s, m, 0.0),
)
heads.fault(
    "two softmaxes",
    """You take the softmax of what is one already. That draws the weights together and opens what
    the mask had closed.""",
    weigh=lambda s, m: soft(s, m).softmax(-1),
)
with_mask(
    "the mask is ignored",
    """You never use the mask: keys that are not allowed are mixed in like all others.""",
    weigh=lambda s, m: s.softmax(-1),
)
with_mask(
    "the mask is inverted",
    """You close what is allowed and keep what is not. True means "may attend" here; torch's
    `nn.MultiheadAttention` has it the other way round.""",
    weigh=lambda s, m: soft(s, None if m is None else ~m),
)
with_mask(
    "the mask of the first head for all",
    """Every head gets the mask of the first one. A mask may have an axis for the heads; look at
    what becomes of it.""",
    weigh=lambda s, m: soft(s, m if m is None or m.ndim < 3 else m[:, :1]),
)
with_mask(
    "the mask of the first text for all",
    """Every text of the batch gets the mask of the first one. Look at what becomes of the leading
    axis of the mask.""",
    weigh=lambda s, m: soft(s, m if m is None or m.ndim < 4 else m[:1]),
)
with_mask(
    "the mask of the first query for all",
    """Every query gets the mask of the first one. The rows of a mask belong to the queries.""",
    weigh=lambda s, m: soft(s, m if m is None else m[..., :1, :]),
)
with_mask(
    "masked scores set to 0",
    """You set closed scores to 0 before the softmax, or multiply by the mask. 0 is a score like
    any other; its exponential is 1.""",
    weigh=lambda s, m: shut(s, m, 0.0).softmax(-1),
)
with_mask(
    "the mask is added as a number",
    """You add the mask to the scores, so that allowed keys get 1 more than closed ones. Which
    score has the exponential 0?""",
    weigh=lambda s, m: (s if m is None else s + m.to(s.dtype)).softmax(-1),
)
with_mask(
    "the mask comes after the softmax",
    """You take the softmax over everything and set closed weights to 0 afterwards. They have taken
    their share by then, and the others sum to less than one.""",
    weigh=lambda s, m: s.softmax(-1) * (1.0 if m is None else m),
)
heads.fault(
    "no gradient to queries and keys",
    """The values are right, but your weights are cut off (detach, no_grad, item or a new tensor),
    so that only values and the output matrix can learn.""",
    fails=("gradient",),
    weigh=lambda s, m: soft(s, m).detach(),
)
heads.fault(
    "weights transposed before mixing",
    """You mix by the transposed weights: each key collects the queries that look at it.""",
    fails=("self", "mask"),
    mix=lambda w, v: w.mT @ v if w.shape[-1] == w.shape[-2] else w @ v,
)
in_wide_heads(
    "no output matrix",
    """You put the heads side by side and stop. The last matrix mixes what they found, and brings
    it to the width of the model.""",
    leave=lambda y, w: y,
)
in_wide_heads(
    "the output matrix from the wrong side",
    """You use the output matrix without turning it round. It has a row for each entry of its
    *output*, as in `nn.Linear`; a square one fits either way.""",
    leave=lambda y, w: y @ w,
)
in_wide_heads(
    "the projections from the wrong side",
    """You use the transposes of the matrices for queries, keys and values. Each has a row for each
    entry of its *output*, as in `nn.Linear`; square ones fit either way.""",
    enter=lambda x, w: x @ w,
)
in_wide_heads(
    "matrices multiplied from the wrong side",
    """You use the transposed matrices. Here a matrix has a row for each entry of its *output*, as
    in `nn.Linear`; with square matrices the shapes agree either way.""",
    enter=lambda x, w: x @ w,
    leave=lambda y, w: y @ w,
)
heads.fault(
    "the queries are asked again",
    """You make keys and values from the queries as well. That is self-attention; look at which
    text each of the three projections reads.""",
    but=("self", "mask"),
    read=lambda q, k, v: (q, q, q),
)
heads.fault(
    "values made from the keys",
    """You read `key` for the values as well. What a word is found by and what it hands over may be
    two texts; look at what `value` is for.""",
    but=("self", "mask"),
    read=lambda q, k, v: (q, k, k),
)
heads.fault(
    "the query is added",
    """You add the query to the result. The way round the attention belongs to the block of the
    next chapter.""",
    finish=lambda y, x: y + x,
)
in_wide_heads(
    "a scale at the end",
    """You scale the result, or the values, as well as the scores. The weights sum to one, so that
    the mixture keeps the size of the values.""",
    mix=lambda w, v: w @ v / v.shape[-1] ** 0.5,
)
heads.detached()


@heads("float32 whatever comes in", fails=("dtype",))
def heads_single(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    """You compute in float32 whatever comes in. A caller who works in double precision loses half
    of the digits. Keep the dtype of the inputs.
    """
    parts = (x.float() for x in (query, key, value, w_q, w_k, w_v, w_o))
    return attend(*parts, num_heads, attn_mask)


# --- sinusoidal_positions ----------------------------------------------------------------------


def table(
    length,
    width,
    *,
    places=lambda p: p,
    base=lambda: 10000.0,
    power=lambda i, d: -2 * i / d,
    turns=lambda p, f, d: p * f,
    parts=(torch.sin, torch.cos),
    lay=lambda pairs: pairs.flatten(1),
):
    p = places(torch.arange(length, dtype=torch.float64))[:, None, None]
    frequencies = base() ** power(torch.arange(width // 2).double()[:, None], width)
    angles = turns(p, frequencies, width).expand(-1, -1, 2)  # (L, D / 2, 2)
    both = [part(angles[..., at]) for at, part in enumerate(parts)]
    return lay(torch.stack(both, dim=-1)).float()


sinus = WrongAnswers("sinusoidal_positions", tests=("by_hand", "values"), right=table)


@witnesses(of="sinusoidal_positions")
def table_calls(draw):
    for length, width in ((1, 2), (4, 4), (3, 8), (7, 6), (50, 10), (300, 4)):
        yield call(length, width)


sinus.fault(
    "cosine before sine",
    """Your even entries hold the cosine and the odd ones the sine. Read position 0: which entries
    should be 0 there?""",
    parts=(torch.cos, torch.sin),
)
sinus.fault(
    "only sines",
    """All your entries are sines. A pair needs both: from a sine alone one cannot tell where on
    the circle it stands.""",
    parts=(torch.sin, torch.sin),
)
sinus.fault(
    "all sines first",
    """You put all sines before all cosines. Some libraries do; here, as in the paper, they
    alternate.""",
    lay=lambda pairs: pairs.transpose(1, 2).flatten(1),
)
sinus.fault(
    "entries by positions",
    """Your table has a column for each position. It should have a row for each, so that it can be
    added to the embeddings.""",
    lay=lambda pairs: pairs.flatten(1).T,
)
sinus.fault(
    "half the exponent",
    """Your exponent grows half as fast as it should: it is i/D where the formula has 2i/D. The
    first pair does not show it.""",
    power=lambda i, d: -i / d,
)
sinus.fault(
    "sine and cosine of different angles",
    """You give every entry an angle of its own. Two neighbours are a pair, with one angle: only
    then is a step along the sequence a rotation.""",
    power=lambda i, d: -(2 * i + torch.arange(2)) / d,
)
sinus.fault(
    "divided by the number of pairs",
    """Your exponent falls twice as fast: it is doubled once too often (a step of 2 counts
    already), or divided by the number of pairs where the width belongs.""",
    power=lambda i, d: -4 * i / d,
)
sinus.fault(
    "another base",
    "You take powers of 1000. The formula has 10000: with less the slowest pair repeats too soon.",
    base=lambda: 1000.0,
)
sinus.fault(
    "frequencies that grow",
    """Your frequencies grow from pair to pair, up to thousands of turns for each step. Look at the
    sign of the exponent.""",
    power=lambda i, d: 2 * i / d,
)
sinus.fault(
    "one frequency for all pairs",
    """All your pairs turn equally fast. If the exponent is an integer division, it is 0
    everywhere.""",
    power=lambda i, d: 0 * i,
)
sinus.fault(
    "pairs from 1",
    """You count the pairs from 1, so that the first one is slower than one radian for each step.
    Pairs count from 0.""",
    power=lambda i, d: -2 * (i + 1) / d,
)
sinus.fault(
    "spread to the last pair",
    """Your last pair reaches the base exactly: you divide by one pair less than there are. Some
    libraries do; the paper's exponent divides by the width.""",
    power=lambda i, d: -2 * i / max(d - 2, 1),
)
sinus.fault(
    "divided by the width outside the power",
    """You divide the angle by the width, and the exponent is left without it. Mind the brackets:
    `**` binds before `/`.""",
    power=lambda i, d: -2 * i,
    turns=lambda p, f, d: p * f / d,
)
sinus.fault(
    "whole turns",
    """You multiply the angles by 2π, so that the first pair turns once around for each whole
    position and never moves.""",
    turns=lambda p, f, d: 2 * math.pi * p * f,
)
sinus.fault(
    "positions from 1",
    """You count positions from 1. The first row should be that of position 0, with sines of 0.""",
    places=lambda p: p + 1,
)
sinus.fault(
    "positions as a share of the length",
    """You divide the positions by the length. Then a position has another vector in another text,
    and a step is not the same rotation everywhere.""",
    places=lambda p: p / len(p),
)

# --- apply_rope --------------------------------------------------------------------------------


def rolled_on(a, b, c, s, *_):
    a = a * c - b * s
    return a, a * s + b * c


def repeated(angles):
    both = torch.cat([angles, angles], dim=-1)
    return both[..., 0::2], both[..., 1::2]


def turn(
    x,
    positions,
    *,
    places=lambda p: p.double(),
    power=lambda i, e: -2 * i / e,
    spread=lambda angles: (angles, angles),
    take=lambda x: (x[..., 0::2], x[..., 1::2]),
    mix=lambda a, b, c, s, c2, s2: (a * c - b * s, a * s2 + b * c2),
    put=lambda a, b: torch.stack([a, b], dim=-1).flatten(-2),
):
    i = torch.arange(x.shape[-1] // 2, dtype=torch.float64)
    angles = spread(places(positions)[:, None] * 10000.0 ** power(i, x.shape[-1]))
    waves = [wave(angle).to(x.dtype) for angle in angles for wave in (torch.cos, torch.sin)]
    return put(*mix(*take(x), *waves))


rope = WrongAnswers("apply_rope", tests=("by_hand", "pairs", "heads", "gradient"), right=turn)


@witnesses(of="apply_rope")
def rope_calls(draw):
    for lead, length, width in (((), 1, 2), ((), 4, 4), ((2,), 3, 6), ((2, 3), 5, 8)):
        x, places = draw.normal(*lead, length, width), draw.uniform(length, high=40)
        yield call(x, places)
        yield call(x, torch.arange(length))
        yield call(x.double(), torch.arange(length) + 9)
        yield call(x, places, via=student.grad(0))


with_pairs = partial(rope.fault, but=("by_hand",))
with_pairs(
    "halves in place of neighbours",
    """You pair an entry with the one half the width further on. Some weights want that; here, as
    in the paper, neighbours are a pair. With two entries it is the same.""",
    take=lambda x: x.chunk(2, -1),
    put=lambda a, b: torch.cat([a, b], -1),
)
with_pairs(
    "taken as neighbours, put back as halves",
    """You turn neighbours, and then put all first entries before all second ones. Every entry must
    go back to where it was taken from.""",
    put=lambda a, b: torch.cat([a, b], -1),
)
with_pairs(
    "taken as halves, put back as neighbours",
    """You cut the vector into two halves, turn them, and then let first and second entries
    alternate. Every entry must go back to where it was taken from.""",
    take=lambda x: x.chunk(2, -1),
)
with_pairs(
    "angles repeated as a whole",
    """You put the list of angles behind itself, where each angle should stand twice in a row. Two
    entries of a pair then turn by different angles: it is no rotation.""",
    spread=repeated,
)
rope.fault(
    "turned backwards",
    """You turn the other way round. Products of queries and keys would not notice; the formula has
    the minus in its first row.""",
    mix=lambda a, b, c, s, *_: (a * c + b * s, b * c - a * s),
)
rope.fault(
    "no turn but a mixture",
    """Both of your rows have the same sign, so that vectors change their length. A rotation has a
    minus in one of them.""",
    mix=lambda a, b, c, s, *_: (a * c + b * s, a * s + b * c),
)
with_pairs(
    "two minus signs",
    """Both of your rows have a minus. That is a reflection, not a rotation: at position 0 the
    second entry changes its sign.""",
    mix=lambda a, b, c, s, *_: (a * c - b * s, a * s - b * c),
)
rope.fault(
    "the second from the turned first",
    """Your second entry is computed from the first one after that has been turned. Both rows of
    the formula read the old entries: keep them until both are done.""",
    mix=rolled_on,
)
rope.fault(
    "sine and cosine exchanged",
    """You use the sine where the cosine belongs. At position 0 a vector should stay as it is: cos
    0 is 1.""",
    mix=lambda a, b, c, s, *_: (a * s - b * c, a * c + b * s),
)
rope.fault(
    "only the cosine",
    """You multiply by the cosine and leave the other entry of the pair out. That shrinks a vector;
    it does not turn it.""",
    mix=lambda a, b, c, s, *_: (a * c, b * c),
)
rope.fault(
    "the entries exchanged",
    """Your two results change places: the first row of the formula is the new first entry.""",
    mix=lambda a, b, c, s, *_: (a * s + b * c, a * c - b * s),
)
rope.fault(
    "positions are added",
    """You add sines and cosines to the vector, as exercise 4 would. Here it is turned and keeps
    its length.""",
    mix=lambda a, b, c, s, *_: (a + s, b + c),
)
rope.fault(
    "rows are counted, positions ignored",
    """You turn row 0 by 0, row 1 by one step, and so on. Where a row stands is told by
    `positions`, which need not start at 0.""",
    places=lambda p: torch.arange(len(p)).double(),
)
rope.fault(
    "positions as whole numbers",
    """You make the positions whole (`long`, `int`, `//`). They may lie between two whole ones, and
    such a row turns by a part of a step.""",
    but=("gradient",),
    places=lambda p: p.long().double(),
)
with_pairs(
    "positions from the first one",
    """You count from the first row. Its own position turns it, too: a query that comes late must
    not look like one at the start.""",
    places=lambda p: p.double() - p[0],
)
rope.fault(
    "positions from 1",
    """You add one to the positions. They are given: a vector at position 0 stays as it is.""",
    places=lambda p: p.double() + 1,
)
with_pairs(
    "one angle for all pairs",
    """All your pairs turn equally fast. Then far and near are hard to tell apart: each pair has a
    frequency of its own.""",
    power=lambda i, e: 0 * i,
)
with_pairs(
    "half the exponent",
    """Your exponent is i/E where the formula has 2i/E. The first pair does not show it.""",
    power=lambda i, e: -i / e,
)
with_pairs(
    "twice the exponent",
    """Your exponent falls twice as fast: it is doubled once too often (a step of 2 counts
    already), or divided by the number of pairs where the width belongs.""",
    power=lambda i, e: -4 * i / e,
)
with_pairs(
    "frequencies that grow",
    """Your frequencies grow from pair to pair. Look at the sign of the exponent.""",
    power=lambda i, e: 2 * i / e,
)
rope.fault(
    "pairs from 1",
    """You count the pairs from 1. The first pair, number 0, turns by the position itself.""",
    power=lambda i, e: -2 * (i + 1) / e,
)
rope.in_place(fails=("by_hand", "pairs", "heads"))
rope.detached(fails=("pairs", "gradient"))

# --- alibi_bias --------------------------------------------------------------------------------


def penalty(
    h,
    n,
    s,
    *,
    slope=lambda k, h: 2.0 ** (-8 * k / h),
    between=lambda n, s: torch.arange(n)[:, None] - torch.arange(s),
    distance=torch.abs,
    finish=lambda x: -x,
):
    slopes = slope(torch.arange(1, h + 1), h)
    return finish((slopes[:, None, None] * distance(between(n, s))).float())


alibi = WrongAnswers("alibi_bias", tests=("by_hand", "heads"), right=penalty)


@witnesses(of="alibi_bias")
def alibi_calls(draw):
    for sizes in ((1, 1, 4), (2, 3, 3), (4, 2, 5), (8, 7, 7), (8, 3, 6), (16, 5, 2)):
        yield call(*sizes)


alibi.fault(
    "far keys are rewarded",
    """Your bias grows with the distance: far keys get the largest scores. Look at the sign.""",
    finish=lambda x: x,
)
alibi.fault(
    "heads from 0",
    """Your heads count from 0, so that the first slope is 1. In the formula they count from 1.""",
    slope=lambda k, h: 2.0 ** (-8 * (k - 1) / h),
)
alibi.fault(
    "the same slope for all heads",
    """All your heads dislike distance equally. They should differ, so that one looks near and
    another far.""",
    slope=lambda k, h: 2.0 ** (-8 / h) + 0 * k,
)
alibi.fault(
    "halved from head to head",
    """Your slopes are 1/2, 1/4, 1/8 for every number of heads. That is right for 8 heads; the
    formula spreads the same range over however many there are.""",
    slope=lambda k, h: 2.0**-k,
)
alibi.fault(
    "evenly spaced slopes",
    """Your slopes fall by the same amount from head to head. They should fall by the same
    factor.""",
    slope=lambda k, h: k / h,
)
alibi.fault(
    "the 8 is missing",
    """Your slopes end at one half, because the exponent ends at -1. The paper's range has a factor
    in it.""",
    slope=lambda k, h: 2.0 ** (-k / h),
)
alibi.fault(
    "divided by the number of the head",
    """Your exponent divides by the number of the head where it should multiply by it. The slopes
    then grow from head to head.""",
    slope=lambda k, h: 2.0 ** (-8 / k),
)
alibi.fault(
    "the heads in reverse",
    """Your first head has the smallest slope. The order of the heads is that of the formula.""",
    slope=lambda k, h: (2.0 ** (-8 * k / h)).flip(0),
)
alibi.fault(
    "powers of e",
    """You take powers of e where the formula has powers of 2.""",
    slope=lambda k, h: (-8 * k / h).exp(),
)
alibi.fault(
    "no absolute value",
    """Keys after the query get a reward in your table, because i − j is negative there. A distance
    has no sign.""",
    distance=lambda d: d,
)
alibi.fault(
    "keys after the query cost nothing",
    """Your bias is 0 for keys after the query. In a causal model nobody notices; here keys on both
    sides get a penalty.""",
    distance=lambda d: d.clamp(min=0),
)
alibi.fault(
    "squared distances",
    """You square the distance. The penalty grows linearly: L stands for linear in the name.""",
    distance=torch.square,
)
alibi.fault(
    "distances from 1",
    """Your nearest key is at distance 1. A key at the query's own position is at distance 0 and
    pays nothing.""",
    distance=lambda d: d.abs() + 1,
)
alibi.fault(
    "distances as a share of the length",
    """You divide the distance by the number of keys. Then a step costs less in a longer text; the
    slope is all there is.""",
    distance=lambda d: d.abs() / d.shape[1],
)
alibi.fault(
    "a mask as well",
    """You close the keys after the query. The bias is added to a mask where there is one; it
    closes nothing by itself.""",
    finish=lambda x: (-x).masked_fill(torch.ones_like(x).bool().triu(1), -torch.inf),
)
alibi.fault(
    "aligned at the end",
    """You let the last query stand at the last key. That suits a model with a cache; here both
    count from the left.""",
    between=lambda n, s: torch.arange(n)[:, None] + s - n - torch.arange(s),
)
alibi.axes_swapped(
    "keys by queries",
    """Your table has a row for each key. Scores have a row for each query; as many of both hide
    it, because a distance is the same both ways.""",
)

# --- low_rank_value ----------------------------------------------------------------------------


def narrow(
    weights,
    value,
    w_v,
    w_o,
    *,
    weigh=lambda w: w,
    enter=lambda x, v, o: x @ v.T,
    leave=lambda y, v, o: y @ o.T,
    finish=lambda y, w, x: y,
):
    return finish(leave(weigh(weights) @ enter(value, w_v, w_o), w_v, w_o), weights, value)


low = WrongAnswers("low_rank_value", tests=("by_hand", "values", "wide", "gradient"), right=narrow)


@witnesses(of="low_rank_value")
def low_calls(draw):
    for n, s, d, e in ((1, 2, 2, 1), (3, 3, 3, 3), (2, 5, 4, 2), (5, 4, 6, 3)):
        weights, value = draw.normal(n, s).softmax(-1), draw.normal(s, d)
        parts = weights, value, draw.normal(e, d), draw.normal(d, e)
        yield call(*parts)
        for wrt in range(4):
            yield call(*parts, via=student.grad(wrt))


@low("the large matrix is built", fails=("wide",))
def low_built(weights, value, w_v, w_o):
    """Your numbers are right, but a matrix with D rows and D columns stands in memory. A product of
    several matrices may be taken in another order.
    """
    return weights @ value @ (w_o @ w_v).T


in_few_words = partial(low.fault, but=("wide",))
in_few_words(
    "the output matrix is missing",
    """You stop inside the head. What a head adds to a position has the width of the model; the
    columns of the output matrix bring it there.""",
    leave=lambda y, v, o: y,
)
in_few_words(
    "the value matrix is missing",
    """You mix the values as they are. A head sees them through its own rows of the value
    matrix.""",
    enter=lambda x, v, o: x,
    leave=lambda y, v, o: y,
)
in_few_words(
    "the output matrix is used twice",
    """You use the output matrix in both places. The way into the head and the way out of it are
    two matrices.""",
    enter=lambda x, v, o: x @ o,
)
in_few_words(
    "the value matrix is used twice",
    """You use the value matrix for the way back as well. The way into the head and the way out of
    it are two matrices.""",
    leave=lambda y, v, o: y @ v,
)
in_few_words(
    "the matrices exchanged",
    """You go in by the output matrix and out by the value matrix. A value is first read by the
    rows of `w_v`, and written by the columns of `w_o`.""",
    enter=lambda x, v, o: x @ o,
    leave=lambda y, v, o: y @ v,
)
in_few_words(
    "a second softmax",
    """You take a softmax of the weights. They are weights already: each row sums to one.""",
    weigh=lambda w: w.softmax(-1),
)
low.fault(
    "weights transposed before mixing",
    """You mix by the transposed weights: each value collects the queries that look at it.""",
    fails=("values",),
    weigh=lambda w: w.T if w.shape[0] == w.shape[1] else w,
)
low.fault(
    "scaled once more",
    """You divide by the root of the width of the head. That belongs to the scores, which have
    become weights already.""",
    fails=("values", "gradient"),
    leave=lambda y, v, o: y @ o.T / o.shape[1] ** 0.5,
)
in_few_words(
    "the values are added again",
    """You add the mean of the unprojected values. What goes round the head is no business of this
    function.""",
    finish=lambda y, w, x: y + w @ x,
)
low.detached()

# --- the repair and the test -------------------------------------------------------------------


def causal_heads(x, w_q, w_k, w_v, w_o, num_heads, *, keep=lambda n: 0, **step):
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(keep(x.shape[1]))
    return attend(x, x, x, w_q, w_k, w_v, w_o, num_heads, past, **step)


def wide_scale(q, v, x):
    return (q.shape[-1] * q.shape[1]) ** -0.5


fixed = WrongAnswers("fixed_causal_heads", tests=("no_scores", "scores"), right=causal_heads)


@witnesses(of="fixed_causal_heads")
def fixed_calls(draw):
    for b, n, d, h in ((1, 3, 2, 2), (2, 5, 6, 3), (2, 4, 4, 2)):
        yield call(draw.normal(b, n, d), *(draw.normal(d, d) for _ in range(4)), h)


fixed.fault(
    "both faults are still there",
    """This is the broken code as it stands. Follow the numbers of one head through every reshape,
    and count how many products a score of one head adds up.""",
    merge=unmoved,
    scale=wide_scale,
)
fixed.fault(
    "the heads are still joined in the wrong order",
    """The scale is right now. But a row of your result holds one head at several positions: look
    at the order of the axes in the last line.""",
    merge=unmoved,
)
fixed.fault(
    "the scale is still that of all heads",
    """The heads are joined as they should be. But a score adds up the entries of one head, and
    your scale is taken before the heads are cut.""",
    fails=("scores",),
    scale=wide_scale,
)
fixed.fault(
    "no scale at all",
    """You took the scale out in place of mending it. Each head divides by the root of its
    entries.""",
    fails=("scores",),
    scale=lambda q, v, x: 1,
)
fixed.fault(
    "the scale of another size",
    """Your scale is the root of the number of heads. A score of one head adds up its entries: look
    at the last axis of the queries after they are cut.""",
    fails=("scores",),
    scale=lambda q, v, x: q.shape[1] ** -0.5,
)
fixed.fault(
    "the root is missing",
    """You divide the scores by the width of a head itself. The broken code had a root there, and
    it was needed.""",
    fails=("scores",),
    scale=lambda q, v, x: 1 / q.shape[-1],
)
fixed.fault(
    "the mask is gone",
    """Every position sees the whole sequence now, its own future included. The mask was right.""",
    keep=lambda n: n,
)
fixed.fault(
    "itself excluded",
    """A position may not attend to itself any more, and the first one is left with nothing. The
    mask was right.""",
    keep=lambda n: -1,
)
fixed.fault(
    "now cut in the wrong order",
    """You changed the way the heads are cut, to suit the way they are joined. The cut was right:
    now a head gets pieces of several positions.""",
    split=lambda y, h: y.reshape(len(y), h, y.shape[1], -1),
    merge=unmoved,
)
fixed.fault(
    "joined in turns",
    """You put the entries of the heads together in turns: the first of every head, then the
    second. The axis of the heads comes right before the entries.""",
    merge=lambda y: y.permute(0, 2, 3, 1).flatten(2),
)


checks = WrongAnswers("check_causal", tests=("plain", "mutants"))


def so_far(x):
    return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


@witnesses(of="check_causal")
def check_calls(draw):
    def last(x):
        return torch.cat([x[:, :1] + x[:, -1:], x[:, 1:]], dim=1)

    for candidate in (
        so_far,
        lambda x: x.mean(1, keepdim=True).expand_as(x),
        lambda x: x.roll(-1, 1),
        last,
        lambda x: so_far(x) + x.sum(1, keepdim=True).sign().detach(),
        lambda x: so_far(x) if x.shape[1] <= 16 else x.roll(-1, 1),
        lambda x: torch.cat([so_far(x)[..., :3], x.roll(-1, 1)[..., 3:]], dim=-1),
        lambda x: x + torch.randn_like(x),
    ):
        yield call(candidate)


def changes(candidate, length, *, entries=4):
    """Whether changing the future changes an output, as somebody might test it."""
    x = torch.randn(2, length, 4, generator=torch.Generator().manual_seed(1))
    before = candidate(x)
    for seen in range(1, length, 3):
        for size in (3.0, -30.0):
            other = x.clone()
            other[:, seen:, :entries] += size
            if (candidate(other)[:, :seen] - before[:, :seen]).abs().max() > 1e-3:
                return True
    return False


@checks("accepts everything")
def check_nothing(candidate):
    """Your test says True whatever it is given. Call the candidate, change what it must not see, and
    call it again.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test says False even for a causal function. Look at whether you leave room for rounding,
    and at which positions you compare: those from the change on may differ.
    """
    return False


@checks("the past is changed in place of the future")
def check_past(candidate):
    """You change the first position and look at the later ones. They may differ: a causal function
    sees its past. Change what comes later, and look at what comes before.
    """
    x = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    other = x.clone()
    other[:, 0] += 3.0
    return bool(torch.allclose(candidate(x)[:, 1:], candidate(other)[:, 1:], atol=1e-4))


@checks("only the first entry is changed", fails=("mutants",))
def check_first_entry(candidate):
    """You change one entry of the later positions. What leaks may be another one: change them all."""
    return not changes(candidate, 24, entries=1)


@checks("short sequences only", fails=("mutants",))
def check_short(candidate):
    """You try short sequences only. A fault may show when a sequence is longer than a block, a
    window or a table.
    """
    return not changes(candidate, 6)


@checks("by the gradient", fails=("mutants",))
def check_gradient(candidate):
    """You look at the gradient of the outputs by later inputs. A step without a derivative, such as
    a sign or a cut-off tensor, leaks and has the gradient 0. Compare values.
    """
    x = torch.randn(2, 24, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = candidate(x)
    for seen in range(1, 24, 5):
        (g,) = torch.autograd.grad(y[:, :seen].sum(), x, retain_graph=True)
        if g[:, seen:].abs().max() > 1e-4:
            return False
    return True


@checks("the same input twice")
def check_repeatable(candidate):
    """You call the candidate twice with the same input. That tells whether it rolls dice, and not
    what it looks at: change something between the two calls.
    """
    x = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    return bool(torch.allclose(candidate(x), candidate(x.clone()), atol=1e-4))
