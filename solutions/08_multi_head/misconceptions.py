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
    "You use one reshape, so a head mixes several positions. Split the last axis, then swap axes.",
    split=lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
)
in_wide_heads(
    "heads joined by reshape alone",
    """You join the heads with one reshape, so a row mixes several positions. Swap the axes back
    first.""",
    merge=unmoved,
)
in_wide_heads(
    "every other row is a head",
    "You deal the rows out to the heads in turn. Head 0 has the first E rows, head 1 the next E.",
    split=dealt,
    merge=lambda y: y.permute(0, 2, 3, 1).flatten(2),
)
in_wide_heads(
    "split in turns, joined in blocks",
    "Each of your heads gets every H-th element. Head 0 has the first E, head 1 the next E.",
    split=dealt,
)
in_wide_heads(
    "split in blocks, joined in turns",
    "You interleave the heads when you join them. The elements of one head stay together.",
    merge=lambda y: y.permute(0, 2, 3, 1).flatten(2),
)
with_mask = partial(heads.fault, fails=("mask",))
heads.fault(
    "scaled by the width of all heads",
    "You divide by the root of H × E. A score sums over the E elements of one head.",
    scale=lambda q, v, x: (q.shape[-1] * q.shape[1]) ** -0.5,
)
heads.fault(
    "scaled by the width of the model",
    "You divide by the root of D. A score sums over the E elements of one head.",
    scale=lambda q, v, x: x.shape[-1] ** -0.5,
)
heads.fault(
    "scaled by the head's share of the model",
    "You divide by the root of D / H. A score sums over the E rows that a head has in `w_q`.",
    fails=("cross",),
    scale=lambda q, v, x: (x.shape[-1] // q.shape[1]) ** -0.5,
)
heads.fault(
    "scaled by the width of a value",
    "You divide by the root of `E_v`. A score sums over the E elements of a key.",
    fails=("cross",),
    scale=lambda q, v, x: v.shape[-1] ** -0.5,
)
heads.fault(
    "scaled by the number of heads",
    "You divide by the root of H. A score sums over the E elements of one head.",
    but=("mask", "gradient"),
    scale=lambda q, v, x: q.shape[1] ** -0.5,
)
heads.fault(
    "scaled by the number of keys",
    "You divide by the root of the number of keys. A score sums over the E elements of a key.",
    scale=lambda q, v, x: v.shape[-2] ** -0.5,
)
in_wide_heads(
    "no scale",
    "You do not scale the scores. Each head divides them by the root of E.",
    scale=lambda q, v, x: 1,
)
in_wide_heads(
    "the root is missing",
    "You divide by E itself. The formula has the root.",
    scale=lambda q, v, x: 1 / q.shape[-1],
)
in_wide_heads(
    "softmax over the heads",
    "Your softmax runs over the heads. In each head the weights sum to one over the keys.",
    weigh=lambda s, m: shut(s, m).softmax(1),
)
heads.fault(
    "softmax over the queries",
    "Your softmax runs over the queries. Along which axis are the keys?",
    weigh=lambda s, m: shut(s, m).softmax(-2),
)
heads.fault(
    "one set of weights for all heads",
    "All your heads use the mean of their weights. Each head needs its own weights.",
    weigh=lambda s, m: soft(s, m).mean(1, keepdim=True),
)
heads.fault(
    "two softmaxes",
    "You apply the softmax to the weights again, which evens them out.",
    weigh=lambda s, m: soft(s, m).softmax(-1),
)
with_mask(
    "the mask is inverted",
    "You mask the allowed keys. True means: may attend.",
    weigh=lambda s, m: soft(s, None if m is None else ~m),
)
with_mask(
    "the mask of the first head for all",
    "You use the first head's mask for every head. A mask may differ between heads.",
    weigh=lambda s, m: soft(s, m if m is None or m.ndim < 3 else m[:, :1]),
)
with_mask(
    "the mask of the first batch element for all",
    "You use the first batch element's mask for all. A mask may differ along the batch axis.",
    weigh=lambda s, m: soft(s, m if m is None or m.ndim < 4 else m[:1]),
)
with_mask(
    "the mask of the first query for all",
    "You use the first query's mask for every query. Each row of a mask belongs to one query.",
    weigh=lambda s, m: soft(s, m if m is None else m[..., :1, :]),
)
with_mask(
    "masked scores set to 0",
    "You set masked scores to 0, whose exponential is 1. Which score has the exponential 0?",
    weigh=lambda s, m: shut(s, m, 0.0).softmax(-1),
)
with_mask(
    "the mask is added as a number",
    "You add the mask to the scores, so allowed keys gain 1. A boolean mask excludes keys.",
    weigh=lambda s, m: (s if m is None else s + m.to(s.dtype)).softmax(-1),
)
with_mask(
    "the mask comes after the softmax",
    "You set masked weights to 0 after the softmax, so the rest sum to less than one.",
    weigh=lambda s, m: s.softmax(-1) * (1.0 if m is None else m),
)
heads.fault(
    "no gradient to queries and keys",
    "Your values are right, but you detach the weights: queries and keys get no gradient.",
    fails=("gradient",),
    weigh=lambda s, m: soft(s, m).detach(),
)
heads.fault(
    "weights transposed before mixing",
    "You transpose the weights before you multiply. Their rows belong to the queries.",
    fails=("self", "cross", "mask"),
    mix=lambda w, v: w.mT @ v if w.shape[-1] == w.shape[-2] else w @ v,
)
in_wide_heads(
    "no output matrix",
    "You return the joined heads. The output matrix `w_o` is missing.",
    leave=lambda y, w: y,
)
in_wide_heads(
    "the output matrix from the wrong side",
    "You do not transpose `w_o`. It has one row per *output*, as in `nn.Linear`.",
    leave=lambda y, w: y @ w,
)
in_wide_heads(
    "the projections from the wrong side",
    "You do not transpose the projections. They have one row per *output*, as in `nn.Linear`.",
    enter=lambda x, w: x @ w,
)
in_wide_heads(
    "matrices multiplied from the wrong side",
    "You transpose no matrix. Each has one row per *output*, as in `nn.Linear`.",
    enter=lambda x, w: x @ w,
    leave=lambda y, w: y @ w,
)
heads.fault(
    "keys and values made from the query",
    "You make keys and values from `query`. They come from `key` and `value`.",
    but=("self", "mask"),
    read=lambda q, k, v: (q, q, q),
)
heads.fault(
    "keys made from the query",
    "You make the keys from `query`. They come from `key`.",
    but=("self", "mask"),
    read=lambda q, k, v: (q, q, v),
)
heads.fault(
    "values made from the keys",
    "You make the values from `key`. They come from `value`.",
    but=("self", "mask"),
    read=lambda q, k, v: (q, k, k),
)
in_wide_heads(
    "a scale at the end",
    "You scale the values or the result, too. Only the scores are scaled.",
    mix=lambda w, v: w @ v / v.shape[-1] ** 0.5,
)
heads.detached()


@heads("float32 whatever comes in", fails=("dtype",))
def heads_single(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    """You compute and return float32. The result has the dtype of the inputs."""
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
    "All your elements are sines. Each pair has a sine and a cosine.",
    parts=(torch.sin, torch.sin),
)
sinus.fault(
    "all sines first",
    "You put all sines before all cosines. Here they alternate, as in the paper.",
    lay=lambda pairs: pairs.transpose(1, 2).flatten(1),
)
sinus.fault(
    "half the exponent",
    "Your exponent is half of the right one. The formula has 2i over the width.",
    power=lambda i, d: -i / d,
)
sinus.fault(
    "sine and cosine of different angles",
    "You give every element its own angle. The sine and the cosine of a pair share one.",
    power=lambda i, d: -(2 * i + torch.arange(2)) / d,
)
sinus.fault(
    "divided by the number of pairs",
    "Your exponent is twice the right one. The formula has 2i over the width, and i counts pairs.",
    power=lambda i, d: -4 * i / d,
)
sinus.fault(
    "another base",
    "You take powers of 1000. The base in the formula is 10000.",
    base=lambda: 1000.0,
)
sinus.fault(
    "one frequency for all pairs",
    "All your pairs have the same frequency. Is your exponent an integer division?",
    power=lambda i, d: 0 * i,
)
sinus.fault(
    "pairs from 1",
    "You count the pairs from 1. The formula counts them from 0.",
    power=lambda i, d: -2 * (i + 1) / d,
)
sinus.fault(
    "spread to the last pair",
    "You divide the exponent by D - 2. The formula divides it by D.",
    power=lambda i, d: -2 * i / max(d - 2, 1),
)
sinus.fault(
    "divided by the width outside the power",
    "Your division by D is outside the exponent, because `**` binds before `/`.",
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
    "You divide the positions by the length. A position has the same vector at every length.",
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
    "halves instead of adjacent elements",
    "You pair elements that are half the width apart. Here adjacent elements form a pair.",
    take=lambda x: x.chunk(2, -1),
    put=lambda a, b: torch.cat([a, b], -1),
)
with_pairs(
    "adjacent pairs returned as halves",
    """You rotate adjacent pairs but return all first elements, then all second ones. Keep the order
    of `x`.""",
    put=lambda a, b: torch.cat([a, b], -1),
)
with_pairs(
    "halves returned as adjacent pairs",
    "You pair elements half the width apart, then interleave the results. Pairs are adjacent.",
    take=lambda x: x.chunk(2, -1),
)
with_pairs(
    "angles repeated as a whole",
    "You repeat the whole list of angles. Each angle should appear twice in succession.",
    spread=repeated,
)
rope.fault(
    "rotated backwards",
    "You rotate in the opposite direction. The minus is in the first row of the formula.",
    mix=lambda a, b, c, s, *_: (a * c + b * s, b * c - a * s),
)
rope.fault(
    "no minus sign",
    "Both your rows have a plus, so lengths change. A rotation has one minus.",
    mix=lambda a, b, c, s, *_: (a * c + b * s, a * s + b * c),
)
with_pairs(
    "two minus signs",
    "Both your rows have a minus, which is a reflection. A rotation has one minus.",
    mix=lambda a, b, c, s, *_: (a * c - b * s, a * s - b * c),
)
rope.fault(
    "the second from the rotated first",
    "You compute the second element from the new first one. Both rows use the old elements.",
    mix=rolled_on,
)
rope.fault(
    "only the cosine",
    "You leave out the sines, which shortens the vector. Both elements enter both rows.",
    mix=lambda a, b, c, s, *_: (a * c, b * c),
)
rope.fault(
    "the elements exchanged",
    "You exchange the two results. The first row gives the new first element.",
    mix=lambda a, b, c, s, *_: (a * s + b * c, a * c - b * s),
)
rope.fault(
    "positions are added",
    "You add sines and cosines. RoPE rotates the vector.",
    mix=lambda a, b, c, s, *_: (a + s, b + c),
)
rope.fault(
    "rows are counted, positions ignored",
    "You use the row number as the position. The angle comes from `positions`.",
    places=lambda p: torch.arange(len(p)).double(),
)
rope.fault(
    "positions as whole numbers",
    "You round the positions to integers. They may be fractional.",
    but=("gradient",),
    places=lambda p: p.long().double(),
)
with_pairs(
    "positions from the first one",
    "You subtract the first position. The angles use the positions as they are.",
    places=lambda p: p.double() - p[0],
)
with_pairs(
    "one angle for all pairs",
    "You rotate all pairs by the same angle. Each pair has its own frequency.",
    power=lambda i, e: 0 * i,
)
with_pairs(
    "half the exponent",
    "Your exponent is half of the right one. The formula has 2i over the width.",
    power=lambda i, e: -i / e,
)
with_pairs(
    "twice the exponent",
    "Your exponent is twice the right one. The formula has 2i over the width, and i counts pairs.",
    power=lambda i, e: -4 * i / e,
)
rope.fault(
    "pairs from 1",
    "You count the pairs from 1. The formula counts them from 0.",
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
    "You count the heads from 0. The formula counts them from 1.",
    slope=lambda k, h: 2.0 ** (-8 * (k - 1) / h),
)
alibi.fault(
    "the same slope for all heads",
    "All your heads have the same slope. Each head has its own.",
    slope=lambda k, h: 2.0 ** (-8 / h) + 0 * k,
)
alibi.fault(
    "halved from head to head",
    "Your slopes are 1/2, 1/4, 1/8 … for every H. They are right only for 8 heads.",
    slope=lambda k, h: 2.0**-k,
)
alibi.fault(
    "evenly spaced slopes",
    "Your slopes rise by a constant amount from head to head. They fall by a constant factor.",
    slope=lambda k, h: k / h,
)
alibi.fault(
    "the 8 is missing",
    "Your last exponent is -1. The formula has a factor 8 in the exponent.",
    slope=lambda k, h: 2.0 ** (-k / h),
)
alibi.fault(
    "divided by the number of the head",
    "You divide the exponent by the number of the head. The formula multiplies by it.",
    slope=lambda k, h: 2.0 ** (-8 / k),
)
alibi.fault(
    "the heads in reverse",
    "Your first head has the smallest slope. In the formula it has the largest.",
    slope=lambda k, h: (2.0 ** (-8 * k / h)).flip(0),
)
alibi.fault(
    "no absolute value",
    "Your keys after the query get a positive bias. The formula has the absolute distance.",
    distance=lambda d: d,
)
alibi.fault(
    "no penalty after the query",
    "Your bias is 0 for keys after the query. Keys on both sides get a penalty.",
    distance=lambda d: d.clamp(min=0),
)
alibi.fault(
    "distances from 1",
    "Your distances start at 1. The query's own position has distance 0.",
    distance=lambda d: d.abs() + 1,
)
alibi.fault(
    "distances as a share of the length",
    "You divide the distance by the number of keys. The formula does not.",
    distance=lambda d: d.abs() / d.shape[1],
)
alibi.fault(
    "a mask as well",
    "You mask the keys after the query. This bias masks nothing.",
    finish=lambda x: (-x).masked_fill(torch.ones_like(x).bool().triu(1), -torch.inf),
)
alibi.fault(
    "aligned at the end",
    "You align the last query with the last key. Here both count from the left.",
    between=lambda n, s: torch.arange(n)[:, None] + s - n - torch.arange(s),
)
alibi.axes_swapped(
    "keys by queries",
    "Your table has one row per key. It should have one row per query.",
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
    """Your values are right, but you build a D × D matrix. Compute the product in another order."""
    return weights @ value @ (w_o @ w_v).T


in_few_words = partial(low.fault, but=("wide",))
in_few_words(
    "the output matrix is missing",
    "You return the vectors of the head. Multiply by `w_o` to get width D.",
    leave=lambda y, v, o: y,
)
in_few_words(
    "the value matrix is missing",
    "You mix the unprojected values and return them. Both `w_v` and `w_o` are missing.",
    enter=lambda x, v, o: x,
    leave=lambda y, v, o: y,
)
in_few_words(
    "the output matrix is used twice",
    "You use `w_o` for both projections. The first one is `w_v`.",
    enter=lambda x, v, o: x @ o,
)
in_few_words(
    "the value matrix is used twice",
    "You use `w_v` for both projections. The second one is `w_o`.",
    leave=lambda y, v, o: y @ v,
)
in_few_words(
    "the matrices exchanged",
    "You use `w_o` first and `w_v` last. Exchange them.",
    enter=lambda x, v, o: x @ o,
    leave=lambda y, v, o: y @ v,
)
in_few_words(
    "a second softmax",
    "You apply a softmax to the weights. They already sum to one.",
    weigh=lambda w: w.softmax(-1),
)
low.fault(
    "weights transposed before mixing",
    "You transpose the weights before you multiply. Their rows belong to the queries.",
    fails=("values",),
    weigh=lambda w: w.T if w.shape[0] == w.shape[1] else w,
)
low.fault(
    "scaled once more",
    "You divide by the root of E. Only scores are scaled.",
    fails=("values", "gradient"),
    leave=lambda y, v, o: y @ o.T / o.shape[1] ** 0.5,
)
in_few_words(
    "the values are added again",
    "You add the weighted mean of the unprojected values. The formula has no such term.",
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
    """This is the broken code. Follow one head through every reshape, and check over what a score
    sums.""",
    merge=unmoved,
    scale=wide_scale,
)
fixed.fault(
    "the heads are still joined in the wrong order",
    "The scale is now right. A row of your joined heads still mixes several positions.",
    merge=unmoved,
)
fixed.fault(
    "the scale is still that of all heads",
    "The join is now right. Your scale is still that of the width before the split into heads.",
    fails=("scores",),
    scale=wide_scale,
)
fixed.fault(
    "no scale at all",
    "You removed the scale. Each head divides its scores by the root of E.",
    fails=("scores",),
    scale=lambda q, v, x: 1,
)
fixed.fault(
    "the scale of another size",
    "You divide by the root of H. A score sums over the elements of one head.",
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
    "You removed the mask, so every position attends to later ones. The mask was right.",
    keep=lambda n: n,
)
fixed.fault(
    "itself excluded",
    "You mask each position's own key. The mask was right.",
    keep=lambda n: -1,
)
fixed.fault(
    "now split in the wrong order",
    "You changed the split to match the join. The split was right.",
    split=lambda y, h: y.reshape(len(y), h, y.shape[1], -1),
    merge=unmoved,
)
fixed.fault(
    "joined in turns",
    "You interleave the heads when you join them. The elements of one head stay together.",
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
    """Whether a change of the future changes an output."""
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
    """Your test always returns True. Call the candidate, change later positions, and call it again."""
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test returns False even for a causal function. Allow for rounding, and compare only the
    positions before the change.
    """
    return False


@checks("the past is changed instead of the future")
def check_past(candidate):
    """You change the first position and compare later outputs, which may depend on it. Change later
    positions and compare earlier outputs.
    """
    x = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    other = x.clone()
    other[:, 0] += 3.0
    return bool(torch.allclose(candidate(x)[:, 1:], candidate(other)[:, 1:], atol=1e-4))


@checks("only the first element is changed", fails=("mutants",))
def check_first_entry(candidate):
    """You change only one element of the later positions. Another one may leak: change them all."""
    return not changes(candidate, 24, entries=1)


@checks("short sequences only", fails=("mutants",))
def check_short(candidate):
    """You try only short sequences. Some faults show only when a sequence is longer than a block, a
    window or a table.
    """
    return not changes(candidate, 6)


@checks("by the gradient", fails=("mutants",))
def check_gradient(candidate):
    """You test the gradient with respect to later inputs. A sign or a detached tensor leaks with a
    gradient of 0: compare values.
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
    """You call the candidate twice with the same input, which tests only for randomness. Change
    later positions between the calls.
    """
    x = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    return bool(torch.allclose(candidate(x), candidate(x.clone()), atol=1e-4))
