"""Wrong answers on the way to several heads and to positions: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

# --- multi_head_attention ----------------------------------------------------------------------


def cut(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B, H, ., E)


def join(heads):
    return heads.transpose(1, 2).flatten(2)


def shut(scores, mask):
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def attend(
    *inputs,
    split=cut,
    merge=join,
    root=lambda q, x: q.shape[-1],
    close=shut,
    weigh=lambda s: s.softmax(-1),
):
    """The right answer in steps; a fault replaces one of them."""
    query, key, value, w_q, w_k, w_v, w_o, num_heads, mask = (*inputs, None)[:9]
    q, k, v = (split(x @ w.T, num_heads) for x, w in ((query, w_q), (key, w_k), (value, w_v)))
    weights = weigh(close(q @ k.mT / root(q, query) ** 0.5, mask))
    return merge(weights @ v) @ w_o.T


TESTS = ("by_hand", "self", "cross", "mask", "gradient", "dtype")
heads = WrongAnswers("multi_head_attention", tests=TESTS, right=attend)


@witnesses(of="multi_head_attention")
def head_calls(draw):
    for b, n, s, d, h, e, ev in (
        (1, 3, 3, 4, 2, 2, 2),
        (2, 5, 4, 6, 3, 2, 4),
        (2, 4, 4, 6, 2, 3, 3),
    ):
        matrices = [draw.normal(h * e, d), draw.normal(h * e, d), draw.normal(h * ev, d)]
        matrices.append(draw.normal(d, h * ev))
        texts = draw.normal(b, n, d), draw.normal(b, s, d), draw.normal(b, s, d)
        yield call(*texts, *matrices, h)
        yield call(*(x.double() for x in (*texts, *matrices)), h)
        yield call(*texts, *matrices, h, draw.mask(n, s))
        yield call(*texts, *matrices, h, draw.mask(1, h, n, s))
        yield call(*(texts[:1] * 3), *matrices, h)
        for wrt in range(7):
            yield call(*texts, *matrices, h, via=student.grad(wrt))


def fault(name, message, *, fails=None, but=(), **step):
    """A wrong answer that differs from the right one in one step."""

    def wrong(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
        return attend(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask, **step)

    wrong.__doc__ = message
    wrong.__name__ = "wrong_" + "".join(c if c.isalnum() else "_" for c in name)
    globals()[wrong.__name__] = heads(name, fails=fails, but=but)(wrong)


fault(
    "heads cut by reshape alone",
    """You reshape to the axes (batch, heads, positions, entries) in one go. The numbers stay in
    their order, so a head gets pieces of several positions. Cut the last axis, then exchange two.""",
    fails=("self", "cross", "mask", "gradient"),
    split=lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
)
fault(
    "heads joined by reshape alone",
    """You put the heads side by side without bringing the axis of the heads back behind the
    positions. The shape is right, and a row holds one head at several positions.""",
    fails=("self", "cross", "mask", "gradient"),
    merge=lambda y: y.reshape(len(y), y.shape[2], -1),
)
fault(
    "every other row is a head",
    """You deal the rows of the projection to the heads in turns, as cards. Here head 0 has the first
    E rows, head 1 the next E. With one entry for each head nobody notices.""",
    fails=("self", "cross", "mask", "gradient"),
    split=lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
    merge=lambda y: y.permute(0, 2, 3, 1).flatten(2),
)
fault(
    "scaled by the width of all heads",
    """You divide by the root of the entries of all heads together. The scale was taken before the
    heads were cut; each head adds up E products.""",
    root=lambda q, x: q.shape[-1] * q.shape[1],
)
fault(
    "no scale",
    """You compare by the plain product. The scale of chapter 07 stays, inside each head.""",
    fails=("self", "cross", "mask", "gradient"),
    root=lambda q, x: 1,
)
fault(
    "softmax over the heads",
    """Your softmax runs over the axis of the heads: they compete for each key. Each head has weights
    of its own, which sum to one over the keys.""",
    fails=("self", "cross", "mask", "gradient"),
    weigh=lambda s: s.softmax(1),
)
fault(
    "softmax over the queries",
    """Your softmax runs over the queries, so that these compete for each key. Count the axes from
    the back: which of them are the keys?""",
    weigh=lambda s: s.softmax(-2),
)
fault(
    "one set of weights for all heads",
    """All your heads use the mean of their weights, so that they look at the same place. Then one
    head would be enough: what differs between heads is where they look.""",
    weigh=lambda s: s.softmax(-1).mean(1, keepdim=True),
)
fault(
    "the mask is ignored",
    """You never use the mask: keys that are not allowed are mixed in like all others.""",
    fails=("mask",),
    close=lambda s, m: s,
)
fault(
    "the mask is inverted",
    """You close what is allowed and keep what is not. True means "may attend" here; torch's
    `nn.MultiheadAttention` has it the other way round.""",
    fails=("mask",),
    close=lambda s, m: shut(s, None if m is None else ~m),
)
fault(
    "the mask of the first head for all",
    """Every head gets the mask of the first one. A mask may have an axis for the heads; look at what
    becomes of it.""",
    fails=("mask",),
    close=lambda s, m: shut(s, m if m is None or m.ndim < 3 else m[:, :1]),
)
fault(
    "masked scores set to 0",
    """You set closed scores to 0 before the softmax. 0 is a score like any other; its exponential
    is 1.""",
    fails=("mask",),
    close=lambda s, m: s if m is None else s.masked_fill(~m, 0.0),
)


@heads("no output matrix", but=("by_hand", "dtype"))
def heads_unmixed(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    """You put the heads side by side and stop. The last matrix mixes what they found, and brings it
    to the width of the model.
    """
    one = torch.eye(w_v.shape[0], dtype=w_v.dtype)
    return attend(query, key, value, w_q, w_k, w_v, one, num_heads, attn_mask)


@heads("matrices multiplied from the wrong side", but=("by_hand", "dtype"))
def heads_transposed(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    """You use the transposed matrices. Here a matrix has a row for each entry of its *output*, as in
    `nn.Linear`; with square matrices the shapes agree either way.
    """
    return attend(query, key, value, w_q.T, w_k.T, w_v.T, w_o.T, num_heads, attn_mask)


@heads("the queries are asked again", but=("self", "mask"))
def heads_self(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    """You make keys and values from the queries as well. That is self-attention; look at which text
    each of the three projections reads.
    """
    return attend(query, query, query, w_q, w_k, w_v, w_o, num_heads, attn_mask)


heads.detached()


@heads("float32 whatever comes in", fails=("dtype",))
def heads_single(query, key, value, w_q, w_k, w_v, w_o, num_heads, attn_mask=None):
    """You compute in float32 whatever comes in. A caller who works in double precision loses half
    of the digits. Keep the dtype of the inputs.
    """
    parts = (x.float() for x in (query, key, value, w_q, w_k, w_v, w_o))
    return attend(*parts, num_heads, attn_mask)


# --- sinusoidal_positions ----------------------------------------------------------------------

sinus = WrongAnswers("sinusoidal_positions", tests=("by_hand", "values"))


@witnesses(of="sinusoidal_positions")
def table_calls(draw):
    for length, width in ((1, 2), (4, 4), (3, 8), (7, 6), (50, 10), (300, 4)):
        yield call(length, width)


def table(length, width, *, power=lambda i, d: -2 * i / d, first=0, pairs=(torch.sin, torch.cos)):
    i = torch.arange(width // 2, dtype=torch.float64)
    angles = torch.arange(first, first + length).double()[:, None] * 10000.0 ** power(i, width)
    return torch.stack([part(angles) for part in pairs], dim=-1).flatten(1).float()


@sinus("cosine before sine")
def sinus_swapped(length, embed_dim):
    """Your even entries hold the cosine and the odd ones the sine. Read position 0: which entries
    should be 0 there?
    """
    return table(length, embed_dim, pairs=(torch.cos, torch.sin))


@sinus("all sines first")
def sinus_halves(length, embed_dim):
    """You put all sines before all cosines. Some libraries do; here, as in the paper, they
    alternate.
    """
    full = table(length, embed_dim)
    return torch.cat([full[:, 0::2], full[:, 1::2]], dim=1)


@sinus("half the exponent")
def sinus_exponent(length, embed_dim):
    """Your exponent grows half as fast as it should: it is i/D where the formula has 2i/D. The first
    pair does not show it.
    """
    return table(length, embed_dim, power=lambda i, d: -i / d)


@sinus("sine and cosine of different angles")
def sinus_each_its_own(length, embed_dim):
    """You give every entry an angle of its own. Two neighbours are a pair, with one angle: only then
    is a step along the sequence a rotation.
    """
    d = torch.arange(embed_dim, dtype=torch.float64)
    angles = torch.arange(length).double()[:, None] * 10000.0 ** (-d / embed_dim)
    return torch.where(d % 2 == 0, angles.sin(), angles.cos()).float()


@sinus("divided by the number of pairs")
def sinus_pairs(length, embed_dim):
    """You divide the exponent by the number of pairs where the width belongs. The frequencies then
    fall twice as fast.
    """
    return table(length, embed_dim, power=lambda i, d: -4 * i / d)


@sinus("frequencies that grow")
def sinus_growing(length, embed_dim):
    """Your frequencies grow from pair to pair, up to thousands of turns for each step. Look at the
    sign of the exponent.
    """
    return table(length, embed_dim, power=lambda i, d: 2 * i / d)


@sinus("positions from 1")
def sinus_from_one(length, embed_dim):
    """You count positions from 1. The first row should be that of position 0, with sines of 0."""
    return table(length, embed_dim, first=1)


@sinus("entries by positions")
def sinus_transposed(length, embed_dim):
    """Your table has a column for each position. It should have a row for each, so that it can be
    added to the embeddings.
    """
    return table(length, embed_dim).T


# --- apply_rope --------------------------------------------------------------------------------


def turn(
    x,
    positions,
    *,
    sign=1,
    power=lambda i, e: -2 * i / e,
    take=lambda x: (x[..., 0::2], x[..., 1::2]),
    put=lambda a, b: torch.stack([a, b], dim=-1).flatten(-2),
    mix=lambda a, b, c, s: (a * c - b * s, a * s + b * c),
):
    i = torch.arange(x.shape[-1] // 2, dtype=torch.float64)
    angles = sign * positions.double()[:, None] * 10000.0 ** power(i, x.shape[-1])
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = take(x)
    return put(*mix(a, b, cosine, sine))


rope = WrongAnswers("apply_rope", tests=("by_hand", "pairs", "heads", "gradient"), right=turn)


@witnesses(of="apply_rope")
def rope_calls(draw):
    for lead, length, width in (((), 1, 2), ((), 4, 4), ((2,), 3, 6), ((2, 3), 5, 8)):
        x, places = draw.normal(*lead, length, width), draw.uniform(length, high=40)
        yield call(x, places)
        yield call(x, torch.arange(length))
        yield call(x.double(), torch.arange(length) + 9)
        yield call(x, places, via=student.grad(0))


@rope("halves in place of neighbours", but=("by_hand",))
def rope_halves(x, positions):
    """You pair an entry with the one half the width further on. Some weights want that; here, as in
    the paper, neighbours are a pair. With two entries it is the same.
    """
    return turn(x, positions, take=lambda x: x.chunk(2, -1), put=lambda a, b: torch.cat([a, b], -1))


@rope("taken as neighbours, put back as halves", but=("by_hand",))
def rope_put_back(x, positions):
    """You turn neighbours, and then put all first entries before all second ones. Every entry must
    go back to where it was taken from.
    """
    return turn(x, positions, put=lambda a, b: torch.cat([a, b], -1))


@rope("turned backwards")
def rope_backwards(x, positions):
    """You turn the other way round. Products of queries and keys would not notice; the formula has
    the minus in its first row.
    """
    return turn(x, positions, sign=-1)


@rope("no turn but a mixture")
def rope_no_turn(x, positions):
    """Both of your rows have the same sign, so that vectors change their length. A rotation has a
    minus in one of them.
    """
    return turn(x, positions, mix=lambda a, b, c, s: (a * c + b * s, a * s + b * c))


@rope("rows are counted, positions ignored")
def rope_rows(x, positions):
    """You turn row 0 by 0, row 1 by one step, and so on. Where a row stands is told by `positions`,
    which need not start at 0.
    """
    return turn(x, torch.arange(len(positions)))


@rope("one angle for all pairs", but=("by_hand",))
def rope_one_angle(x, positions):
    """All your pairs turn equally fast. Then far and near are hard to tell apart: each pair has a
    frequency of its own.
    """
    return turn(x, positions, power=lambda i, e: 0 * i)


@rope("half the exponent", but=("by_hand",))
def rope_exponent(x, positions):
    """Your exponent is i/E where the formula has 2i/E. The first pair does not show it."""
    return turn(x, positions, power=lambda i, e: -i / e)


@rope("only the cosine", but=())
def rope_cosine(x, positions):
    """You multiply by the cosine and leave the other entry of the pair out. That shrinks a vector;
    it does not turn it.
    """
    return turn(x, positions, mix=lambda a, b, c, s: (a * c, b * c))


@rope("positions are added")
def rope_added(x, positions):
    """You add sines and cosines to the vector, as exercise 2 would. Here it is turned and keeps its
    length.
    """
    ones = torch.zeros_like(x)
    ones[..., 1::2] = 1
    return x + turn(ones, positions, sign=-1)


rope.detached(fails=("pairs", "gradient"))

# --- alibi_bias --------------------------------------------------------------------------------


def penalty(h, n, s, *, slope=lambda k, h: 2.0 ** (-8 * k / h), distance=torch.abs, sign=-1):
    slopes = slope(torch.arange(1, h + 1), h)
    between = torch.arange(n)[:, None] - torch.arange(s)
    return (sign * slopes[:, None, None] * distance(between)).float()


alibi = WrongAnswers("alibi_bias", tests=("by_hand", "heads"), right=penalty)


@witnesses(of="alibi_bias")
def alibi_calls(draw):
    for sizes in ((1, 1, 4), (2, 3, 3), (4, 2, 5), (8, 7, 7), (8, 3, 6), (16, 5, 2)):
        yield call(*sizes)


@alibi("far keys are rewarded")
def alibi_positive(num_heads, query_length, key_length):
    """Your bias grows with the distance: far keys get the largest scores. Look at the sign."""
    return penalty(num_heads, query_length, key_length, sign=1)


@alibi("heads from 0")
def alibi_from_zero(num_heads, query_length, key_length):
    """Your heads count from 0, so that the first slope is 1. In the formula they count from 1."""
    return penalty(
        num_heads, query_length, key_length, slope=lambda k, h: 2.0 ** (-8 * (k - 1) / h)
    )


@alibi("the same slope for all heads")
def alibi_one_slope(num_heads, query_length, key_length):
    """All your heads dislike distance equally. They should differ, so that one looks near and
    another far.
    """
    return penalty(num_heads, query_length, key_length, slope=lambda k, h: 2.0 ** (-8 / h) + 0 * k)


@alibi("halved from head to head")
def alibi_halved(num_heads, query_length, key_length):
    """Your slopes are 1/2, 1/4, 1/8 for every number of heads. That is right for 8 heads; the
    formula spreads the same range over however many there are.
    """
    return penalty(num_heads, query_length, key_length, slope=lambda k, h: 2.0**-k)


@alibi("evenly spaced slopes")
def alibi_linear(num_heads, query_length, key_length):
    """Your slopes fall by the same amount from head to head. They should fall by the same factor."""
    return penalty(num_heads, query_length, key_length, slope=lambda k, h: k / h)


@alibi("no absolute value")
def alibi_signed(num_heads, query_length, key_length):
    """Keys after the query get a reward in your table, because i − j is negative there. A distance
    has no sign.
    """
    return penalty(num_heads, query_length, key_length, distance=lambda d: d)


@alibi("squared distances", but=())
def alibi_squared(num_heads, query_length, key_length):
    """You square the distance. The penalty grows linearly: L stands for linear in the name."""
    return penalty(num_heads, query_length, key_length, distance=lambda d: d**2)


@alibi("a mask as well")
def alibi_masked(num_heads, query_length, key_length):
    """You close the keys after the query. The bias is added to a mask where there is one; it closes
    nothing by itself.
    """
    bias = penalty(num_heads, query_length, key_length)
    return bias.masked_fill(torch.ones_like(bias).bool().triu(1), -torch.inf)


@alibi("aligned at the end")
def alibi_bottom_right(num_heads, query_length, key_length):
    """You let the last query stand at the last key. That suits a model with a cache; here both count
    from the left.
    """
    late = key_length - query_length
    slopes = 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)
    places = torch.arange(query_length)[:, None] + late
    return -slopes[:, None, None] * (places - torch.arange(key_length)).abs()


alibi.axes_swapped(
    "keys by queries",
    """Your table has a row for each key. Scores have a row for each query; as many of both hide it,
    because a distance is the same both ways.""",
)

# --- low_rank_value ----------------------------------------------------------------------------


def narrow(weights, value, w_v, w_o):
    return weights @ (value @ w_v.T) @ w_o.T


low = WrongAnswers("low_rank_value", tests=("by_hand", "values", "wide", "gradient"), right=narrow)


@witnesses(of="low_rank_value")
def low_calls(draw):
    for n, s, d, e in ((1, 2, 2, 1), (3, 3, 3, 3), (2, 5, 4, 2), (5, 4, 6, 3)):
        parts = (
            draw.normal(n, s).softmax(-1),
            draw.normal(s, d),
            draw.normal(e, d),
            draw.normal(d, e),
        )
        yield call(*parts)
        for wrt in range(4):
            yield call(*parts, via=student.grad(wrt))


@low("the large matrix is built", fails=("wide",))
def low_built(weights, value, w_v, w_o):
    """Your numbers are right, but a matrix with D rows and D columns stands in memory. A product of
    several matrices may be taken in another order.
    """
    return weights @ value @ (w_o @ w_v).T


@low("the output matrix is missing", but=("wide",))
def low_no_output(weights, value, w_v, w_o):
    """You stop inside the head. What a head adds to a position has the width of the model; the
    columns of the output matrix bring it there.
    """
    return weights @ (value @ w_v.T)


@low("the value matrix is missing", but=("wide",))
def low_no_value(weights, value, w_v, w_o):
    """You mix the values as they are. A head sees them through its own rows of the value matrix."""
    return weights @ value


@low("the output matrix is used twice", but=("wide",))
def low_output_twice(weights, value, w_v, w_o):
    """You use the output matrix in both places. The way into the head and the way out of it are two
    matrices.
    """
    return weights @ (value @ w_o) @ w_o.T


@low("the value matrix is used twice", but=("wide",))
def low_value_twice(weights, value, w_v, w_o):
    """You use the value matrix for the way back as well. The way into the head and the way out of it
    are two matrices.
    """
    return weights @ (value @ w_v.T) @ w_v


@low("a second softmax", but=("wide",))
def low_softmax(weights, value, w_v, w_o):
    """You take a softmax of the weights. They are weights already: each row sums to one."""
    return narrow(weights.softmax(-1), value, w_v, w_o)


@low("the values are added again", but=("wide",))
def low_residual(weights, value, w_v, w_o):
    """You add the mean of the unprojected values. What goes round the head is no business of this
    function.
    """
    return narrow(weights, value, w_v, w_o) + weights @ value


low.detached()

# --- the repair and the test -------------------------------------------------------------------


def causal_heads(x, w_q, w_k, w_v, w_o, num_heads, *, keep=0, **step):
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(keep)
    return attend(x, x, x, w_q, w_k, w_v, w_o, num_heads, past, **step)


def unmoved(y):
    return y.reshape(len(y), y.shape[2], -1)


def wide_root(q, x):
    return q.shape[-1] * q.shape[1]


fixed = WrongAnswers("fixed_causal_heads", tests=("no_scores", "scores"))


@witnesses(of="fixed_causal_heads")
def fixed_calls(draw):
    for b, n, d, h in ((1, 3, 2, 2), (2, 5, 6, 3), (2, 4, 4, 2)):
        yield call(draw.normal(b, n, d), *(draw.normal(d, d) for _ in range(4)), h)


@fixed("both faults are still there")
def fixed_broken(x, w_q, w_k, w_v, w_o, num_heads):
    """This is the broken code as it stands. Follow the numbers of one head through every reshape,
    and count how many products a score of one head adds up.
    """
    return causal_heads(x, w_q, w_k, w_v, w_o, num_heads, merge=unmoved, root=wide_root)


@fixed("the heads are still joined in the wrong order")
def fixed_merge_left(x, w_q, w_k, w_v, w_o, num_heads):
    """The scale is right now. But a row of your result holds one head at several positions: look at
    the order of the axes in the last line.
    """
    return causal_heads(x, w_q, w_k, w_v, w_o, num_heads, merge=unmoved)


@fixed("the scale is still that of all heads", fails=("scores",))
def fixed_scale_left(x, w_q, w_k, w_v, w_o, num_heads):
    """The heads are joined as they should be. But a score adds up the entries of one head, and your
    scale is taken before the heads are cut.
    """
    return causal_heads(x, w_q, w_k, w_v, w_o, num_heads, root=wide_root)


@fixed("no scale at all", fails=("scores",))
def fixed_no_scale(x, w_q, w_k, w_v, w_o, num_heads):
    """You took the scale out in place of mending it. Each head divides by the root of its entries."""
    return causal_heads(x, w_q, w_k, w_v, w_o, num_heads, root=lambda q, x: 1)


@fixed("the mask is gone")
def fixed_no_mask(x, w_q, w_k, w_v, w_o, num_heads):
    """Every position sees the whole sequence now, its own future included. The mask was right."""
    return causal_heads(x, w_q, w_k, w_v, w_o, num_heads, keep=x.shape[1])


@fixed("now cut in the wrong order")
def fixed_cut(x, w_q, w_k, w_v, w_o, num_heads):
    """You changed the way the heads are cut, to suit the way they are joined. The cut was right:
    now a head gets pieces of several positions.
    """
    return causal_heads(
        *(x, w_q, w_k, w_v, w_o, num_heads),
        split=lambda y, h: y.reshape(len(y), h, y.shape[1], -1),
        merge=unmoved,
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
