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
    "You reshape in one go, so a head gets pieces of several positions. Cut, then exchange axes.",
    split=lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
)
in_wide_heads(
    "heads joined by reshape alone",
    "You join the heads by a reshape: a row holds one head at several positions.",
    merge=unmoved,
)
in_wide_heads(
    "every other row is a head",
    "You give the rows in turn to the heads. Head 0 has the first E rows, head 1 the next E.",
    split=dealt,
    merge=lambda y: y.permute(0, 2, 3, 1).flatten(2),
)
in_wide_heads(
    "cut in turns, joined in blocks",
    "Your heads get every H-th entry. Head 0 has the first E rows of its matrix.",
    split=dealt,
)
in_wide_heads(
    "cut in blocks, joined in turns",
    "You join the heads in turns. The entries of one head stay together.",
    merge=lambda y: y.permute(0, 2, 3, 1).flatten(2),
)
with_mask = partial(heads.fault, fails=("mask",))
heads.fault(
    "scaled by the width of all heads",
    "You divide by the root of H E. A score sums over the E entries of one head.",
    scale=lambda q, v, x: (q.shape[-1] * q.shape[1]) ** -0.5,
)
heads.fault(
    "scaled by the width of the model",
    "You divide by the root of D. A score sums over the E entries of one head.",
    scale=lambda q, v, x: x.shape[-1] ** -0.5,
)
heads.fault(
    "scaled by the head's share of the model",
    "You divide by the root of D / H. What counts is E, the rows of the projection per head.",
    fails=("cross",),
    scale=lambda q, v, x: (x.shape[-1] // q.shape[1]) ** -0.5,
)
heads.fault(
    "scaled by the width of a value",
    "You divide by the root of the size of a value. A score sums over the entries of a key.",
    fails=("cross",),
    scale=lambda q, v, x: v.shape[-1] ** -0.5,
)
heads.fault(
    "scaled by the number of heads",
    "You divide by the root of H. A score sums over the E entries of one head.",
    but=("mask", "gradient"),
    scale=lambda q, v, x: q.shape[1] ** -0.5,
)
heads.fault(
    "scaled by the number of keys",
    "You divide by the root of the number of keys. A score sums over the entries of a key.",
    scale=lambda q, v, x: v.shape[-2] ** -0.5,
)
in_wide_heads(
    "no scale",
    "You use the plain product. Each head divides by the root of its size E.",
    scale=lambda q, v, x: 1,
)
in_wide_heads(
    "the root is missing",
    "You divide by E itself. The formula has the root.",
    scale=lambda q, v, x: 1 / q.shape[-1],
)
in_wide_heads(
    "softmax over the heads",
    "Your softmax runs over the heads. Each head has weights that sum to one over the keys.",
    weigh=lambda s, m: shut(s, m).softmax(1),
)
heads.fault(
    "softmax over the queries",
    "Your softmax runs over the queries. Along which axis are the keys?",
    weigh=lambda s, m: shut(s, m).softmax(-2),
)
heads.fault(
    "one set of weights for all heads",
    "All heads use the mean of their weights. Each head has weights of its own.",
    weigh=lambda s, m: soft(s, m).mean(1, keepdim=True),
)
heads.fault(
    "two softmaxes",
    "You take the softmax of weights, which makes them more even.",
    weigh=lambda s, m: soft(s, m).softmax(-1),
)
with_mask(
    "the mask is inverted",
    "You mask what is allowed. True means: may attend.",
    weigh=lambda s, m: soft(s, None if m is None else ~m),
)
with_mask(
    "the mask of the first head for all",
    "Every head gets the mask of the first one. A mask may have an axis for the heads.",
    weigh=lambda s, m: soft(s, m if m is None or m.ndim < 3 else m[:, :1]),
)
with_mask(
    "the mask of the first text for all",
    "Every text gets the mask of the first one. A mask may have an axis for the batch.",
    weigh=lambda s, m: soft(s, m if m is None or m.ndim < 4 else m[:1]),
)
with_mask(
    "the mask of the first query for all",
    "Every query gets the mask of the first one. Each row of a mask belongs to one query.",
    weigh=lambda s, m: soft(s, m if m is None else m[..., :1, :]),
)
with_mask(
    "masked scores set to 0",
    "You set masked scores to 0, whose exponential is 1. Which score has the exponential 0?",
    weigh=lambda s, m: shut(s, m, 0.0).softmax(-1),
)
with_mask(
    "the mask is added as a number",
    "You add the mask, so allowed keys get 1 more. A boolean is not a bias.",
    weigh=lambda s, m: (s if m is None else s + m.to(s.dtype)).softmax(-1),
)
with_mask(
    "the mask comes after the softmax",
    "You set masked weights to 0 after the softmax, so the others do not sum to one.",
    weigh=lambda s, m: s.softmax(-1) * (1.0 if m is None else m),
)
heads.fault(
    "no gradient to queries and keys",
    "Your values are right, but the weights are detached: queries and keys learn nothing.",
    fails=("gradient",),
    weigh=lambda s, m: soft(s, m).detach(),
)
heads.fault(
    "weights transposed before mixing",
    "You transpose the weights. Their rows belong to the queries.",
    fails=("self", "cross", "mask"),
    mix=lambda w, v: w.mT @ v if w.shape[-1] == w.shape[-2] else w @ v,
)
in_wide_heads(
    "no output matrix",
    "You return the joined heads. The last matrix mixes them.",
    leave=lambda y, w: y,
)
in_wide_heads(
    "the output matrix from the wrong side",
    "You do not transpose the output matrix. It has a row per *output*, as in `nn.Linear`.",
    leave=lambda y, w: y @ w,
)
in_wide_heads(
    "the projections from the wrong side",
    "You do not transpose the projections. They have a row per *output*, as in `nn.Linear`.",
    enter=lambda x, w: x @ w,
)
in_wide_heads(
    "matrices multiplied from the wrong side",
    "You transpose no matrix. Each has a row per *output*, as in `nn.Linear`.",
    enter=lambda x, w: x @ w,
    leave=lambda y, w: y @ w,
)
heads.fault(
    "the queries are asked again",
    "You make keys and values from `query`. Which text does each projection read?",
    but=("self", "mask"),
    read=lambda q, k, v: (q, q, q),
)
heads.fault(
    "keys made from the query",
    "You make the keys from `query`. Which text does each projection read?",
    but=("self", "mask"),
    read=lambda q, k, v: (q, q, v),
)
heads.fault(
    "values made from the keys",
    "You make the values from `key`. Which text does each projection read?",
    but=("self", "mask"),
    read=lambda q, k, v: (q, k, k),
)
in_wide_heads(
    "a scale at the end",
    "You scale the result as well as the scores. Only the scores are scaled.",
    mix=lambda w, v: w @ v / v.shape[-1] ** 0.5,
)
heads.detached()


@heads("float32 whatever comes in", fails=("dtype",))
def heads_single(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    """You compute in float32 whatever the inputs are. A caller who works in double precision loses
    half of the digits. Keep the dtype of the inputs.
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
    "only sines",
    "All entries are sines. A pair needs both.",
    parts=(torch.sin, torch.sin),
)
sinus.fault(
    "all sines first",
    "You put all sines before all cosines. Here they alternate, as in the paper.",
    lay=lambda pairs: pairs.transpose(1, 2).flatten(1),
)
sinus.fault(
    "half the exponent",
    "Your exponent is i/D. The formula has 2i/D.",
    power=lambda i, d: -i / d,
)
sinus.fault(
    "sine and cosine of different angles",
    "You give every entry its own angle. Two neighbours share one.",
    power=lambda i, d: -(2 * i + torch.arange(2)) / d,
)
sinus.fault(
    "divided by the number of pairs",
    "Your exponent is twice too large: a step of 2 is already a doubling.",
    power=lambda i, d: -4 * i / d,
)
sinus.fault(
    "another base",
    "You take powers of 1000. The formula has 10000.",
    base=lambda: 1000.0,
)
sinus.fault(
    "one frequency for all pairs",
    "All pairs have one frequency. Is your exponent an integer division?",
    power=lambda i, d: 0 * i,
)
sinus.fault(
    "pairs from 1",
    "You count the pairs from 1. They count from 0.",
    power=lambda i, d: -2 * (i + 1) / d,
)
sinus.fault(
    "spread to the last pair",
    "You divide by one pair less than there are. The exponent divides by D.",
    power=lambda i, d: -2 * i / max(d - 2, 1),
)
sinus.fault(
    "divided by the width outside the power",
    "The division by D is outside the exponent: `**` binds before `/`.",
    power=lambda i, d: -2 * i,
    turns=lambda p, f, d: p * f / d,
)
sinus.fault(
    "whole turns",
    "You multiply the angles by 2π. The formula has no such factor.",
    turns=lambda p, f, d: 2 * math.pi * p * f,
)
sinus.fault(
    "positions as a share of the length",
    "You divide the positions by the length. A position has one vector in every text.",
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
    "You pair entries half the width apart. Here neighbours are a pair.",
    take=lambda x: x.chunk(2, -1),
    put=lambda a, b: torch.cat([a, b], -1),
)
with_pairs(
    "taken as neighbours, put back as halves",
    "You turn neighbours and put all first entries before all second ones.",
    put=lambda a, b: torch.cat([a, b], -1),
)
with_pairs(
    "taken as halves, put back as neighbours",
    "You turn halves and let first and second entries alternate.",
    take=lambda x: x.chunk(2, -1),
)
with_pairs(
    "angles repeated as a whole",
    "Your list of angles follows itself. Each angle should stand twice in a row.",
    spread=repeated,
)
rope.fault(
    "turned backwards",
    "You turn the other way. The minus is in the first row of the formula.",
    mix=lambda a, b, c, s, *_: (a * c + b * s, b * c - a * s),
)
rope.fault(
    "no turn but a mixture",
    "Both rows have a plus, so lengths change. A rotation has one minus.",
    mix=lambda a, b, c, s, *_: (a * c + b * s, a * s + b * c),
)
with_pairs(
    "two minus signs",
    "Both rows have a minus: a reflection. A rotation has one.",
    mix=lambda a, b, c, s, *_: (a * c - b * s, a * s - b * c),
)
rope.fault(
    "the second from the turned first",
    "You compute the second entry from the new first one. Both rows read the old entries.",
    mix=rolled_on,
)
rope.fault(
    "only the cosine",
    "You leave the sines out, which shortens a vector. Both entries enter both rows.",
    mix=lambda a, b, c, s, *_: (a * c, b * c),
)
rope.fault(
    "the entries exchanged",
    "Your two results are exchanged. The first row is the new first entry.",
    mix=lambda a, b, c, s, *_: (a * s + b * c, a * c - b * s),
)
rope.fault(
    "positions are added",
    "You add sines and cosines. Here the vector is turned.",
    mix=lambda a, b, c, s, *_: (a + s, b + c),
)
rope.fault(
    "rows are counted, positions ignored",
    "You count the rows. The angle of a row comes from `positions`.",
    places=lambda p: torch.arange(len(p)).double(),
)
rope.fault(
    "positions as whole numbers",
    "You make the positions whole. They may lie between two whole numbers.",
    but=("gradient",),
    places=lambda p: p.long().double(),
)
with_pairs(
    "positions from the first one",
    "You count from the first row. Its own position turns it, too.",
    places=lambda p: p.double() - p[0],
)
with_pairs(
    "one angle for all pairs",
    "All pairs turn by one angle. Each pair has a frequency of its own.",
    power=lambda i, e: 0 * i,
)
with_pairs(
    "half the exponent",
    "Your exponent is i/D. The formula has 2i/D.",
    power=lambda i, e: -i / e,
)
with_pairs(
    "twice the exponent",
    "Your exponent is twice too large: a step of 2 is already a doubling.",
    power=lambda i, e: -4 * i / e,
)
rope.fault(
    "pairs from 1",
    "You count the pairs from 1. They count from 0.",
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
    "heads from 0",
    "Your heads count from 0. In the formula they count from 1.",
    slope=lambda k, h: 2.0 ** (-8 * (k - 1) / h),
)
alibi.fault(
    "the same slope for all heads",
    "All heads have one slope. Each has its own.",
    slope=lambda k, h: 2.0 ** (-8 / h) + 0 * k,
)
alibi.fault(
    "halved from head to head",
    "Your slopes are 1/2, 1/4, 1/8 for every H. That is right for 8 heads only.",
    slope=lambda k, h: 2.0**-k,
)
alibi.fault(
    "evenly spaced slopes",
    "Your slopes fall by one amount from head to head. They fall by one factor.",
    slope=lambda k, h: k / h,
)
alibi.fault(
    "the 8 is missing",
    "Your exponent ends at -1. The formula has a factor 8.",
    slope=lambda k, h: 2.0 ** (-k / h),
)
alibi.fault(
    "divided by the number of the head",
    "Your exponent divides by the number of the head. It multiplies.",
    slope=lambda k, h: 2.0 ** (-8 / k),
)
alibi.fault(
    "the heads in reverse",
    "Your first head has the smallest slope. The formula has the opposite order.",
    slope=lambda k, h: (2.0 ** (-8 * k / h)).flip(0),
)
alibi.fault(
    "no absolute value",
    "Keys after the query get a positive bias. A distance has no sign.",
    distance=lambda d: d,
)
alibi.fault(
    "keys after the query cost nothing",
    "Your bias is 0 for keys after the query. Both sides get a penalty.",
    distance=lambda d: d.clamp(min=0),
)
alibi.fault(
    "distances from 1",
    "Your nearest key is at distance 1. The query's own position is at distance 0.",
    distance=lambda d: d.abs() + 1,
)
alibi.fault(
    "distances as a share of the length",
    "You divide the distance by the number of keys. The formula does not.",
    distance=lambda d: d.abs() / d.shape[1],
)
alibi.fault(
    "a mask as well",
    "You mask the keys after the query. The bias is no mask.",
    finish=lambda x: (-x).masked_fill(torch.ones_like(x).bool().triu(1), -torch.inf),
)
alibi.fault(
    "aligned at the end",
    "You align the last query with the last key. Here both count from the left.",
    between=lambda n, s: torch.arange(n)[:, None] + s - n - torch.arange(s),
)
alibi.axes_swapped(
    "keys by queries",
    "Your table has a row per key. It should have a row per query.",
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
    "You return the vectors of the head. The output matrix brings them to width D.",
    leave=lambda y, v, o: y,
)
in_few_words(
    "the value matrix is missing",
    "You mix the values without `w_v`. They are projected first.",
    enter=lambda x, v, o: x,
    leave=lambda y, v, o: y,
)
in_few_words(
    "the output matrix is used twice",
    "You use the output matrix in both places.",
    enter=lambda x, v, o: x @ o,
)
in_few_words(
    "the value matrix is used twice",
    "You use the value matrix in both places.",
    leave=lambda y, v, o: y @ v,
)
in_few_words(
    "the matrices exchanged",
    "You use `w_o` first and `w_v` last. It is the other way round.",
    enter=lambda x, v, o: x @ o,
    leave=lambda y, v, o: y @ v,
)
in_few_words(
    "a second softmax",
    "You take a softmax of the weights. They sum to one already.",
    weigh=lambda w: w.softmax(-1),
)
low.fault(
    "weights transposed before mixing",
    "You transpose the weights. Their rows belong to the queries.",
    fails=("values",),
    weigh=lambda w: w.T if w.shape[0] == w.shape[1] else w,
)
low.fault(
    "scaled once more",
    "You divide by the root of E. That belongs to the scores.",
    fails=("values", "gradient"),
    leave=lambda y, v, o: y @ o.T / o.shape[1] ** 0.5,
)
in_few_words(
    "the values are added again",
    "You add the mean of the unprojected values.",
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
    "This is the broken code. Follow one head through every reshape, and count what a score sums.",
    merge=unmoved,
    scale=wide_scale,
)
fixed.fault(
    "the heads are still joined in the wrong order",
    "The scale is right. A row of your result holds one head at several positions.",
    merge=unmoved,
)
fixed.fault(
    "the scale is still that of all heads",
    "The join is right. Your scale is taken before the heads are cut.",
    fails=("scores",),
    scale=wide_scale,
)
fixed.fault(
    "no scale at all",
    "You took the scale out. Each head divides by the root of its size.",
    fails=("scores",),
    scale=lambda q, v, x: 1,
)
fixed.fault(
    "the scale of another size",
    "You divide by the root of H. A score sums over the entries of one head.",
    fails=("scores",),
    scale=lambda q, v, x: q.shape[1] ** -0.5,
)
fixed.fault(
    "the root is missing",
    "You divide by E itself. The formula has the root.",
    fails=("scores",),
    scale=lambda q, v, x: 1 / q.shape[-1],
)
fixed.fault(
    "the mask is gone",
    "Every position sees its own future. The mask was right.",
    keep=lambda n: n,
)
fixed.fault(
    "itself excluded",
    "A position may not attend to itself. The mask was right.",
    keep=lambda n: -1,
)
fixed.fault(
    "now cut in the wrong order",
    "You changed the cut to suit the join. The cut was right.",
    split=lambda y, h: y.reshape(len(y), h, y.shape[1], -1),
    merge=unmoved,
)
fixed.fault(
    "joined in turns",
    "You join the heads in turns. The entries of one head stay together.",
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
    """Your test says True whatever it is given. Call the candidate, change what it must not see,
    and call it again.
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
