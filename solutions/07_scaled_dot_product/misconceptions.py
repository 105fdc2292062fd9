"""Wrong answers on the way to scaled dot-product attention: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses


def scaled(query, key, value):
    return query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5


def closed(scores, mask, fill=-torch.inf):
    return scores if mask is None else scores.masked_fill(~mask, fill)


def soft(scores, mask, dim=-1):
    scores = closed(scores, mask)
    top = scores.amax(dim, keepdim=True).detach()
    parts = (scores - top.masked_fill(top == -torch.inf, 0.0)).exp()
    total = parts.sum(dim, keepdim=True)
    return parts / total.masked_fill(total == 0, 1.0)


def mixed(weights, query, key, value):
    return weights @ value


def attend(query, key, value, attn_mask=None, *, score=scaled, weigh=soft, mix=mixed):
    """The right answer in three steps; a fault replaces one of them."""
    return mix(weigh(score(query, key, value), attn_mask), query, key, value)


# --- scaled_dot_product_attention --------------------------------------------------------------

MASKED = ("mask", "empty_row", "large_scores", "gradient")
sdpa = WrongAnswers(
    "scaled_dot_product_attention",
    tests=(
        *("by_hand", "values", "heads", "mask", "empty_row", "large_scores", "gradient"),
        "dtype",
    ),
    right=attend,
)


def sizes(draw):
    yield draw.normal(1, 4), draw.normal(2, 4), draw.normal(2, 2)
    yield draw.normal(5, 3), draw.normal(7, 3), draw.normal(7, 2)
    yield draw.normal(4, 4), draw.normal(4, 4), draw.normal(4, 4)
    yield draw.normal(2, 3, 5, 3), draw.normal(2, 3, 7, 3), draw.normal(2, 3, 7, 2)
    yield draw.normal(3, 3, 3), draw.normal(3, 3, 3), draw.normal(3, 3, 3)


@witnesses(of="scaled_dot_product_attention")
def attention_calls(draw):
    for inputs in sizes(draw):
        queries, keys = inputs[0].shape[-2], inputs[1].shape[-2]
        empty = draw.mask(queries, keys)
        empty[-1] = False
        yield call(*inputs)
        yield call(*(part.double() for part in inputs))
        yield call(*inputs, draw.mask(queries, keys))
        yield call(*inputs, empty)
        yield call(60 * inputs[0], *inputs[1:])
        for wrt in range(3):
            yield call(*inputs, via=student.grad(wrt))
    yield call(*inputs, empty, via=student.grad(0))
    yield call(-1e4 + 0 * inputs[0], 3 + 0 * inputs[1], inputs[2], torch.arange(3) < 2)


sdpa.fault(
    "no scale",
    """You compare by the plain product. Its variance grows with the number of entries, and the
    softmax of large scores is all but a one. Look at what the formula divides by.""",
    score=lambda q, k, v: q @ k.transpose(-2, -1),
)
sdpa.fault(
    "divided by the root of the value's size",
    """You divide by the square root of the number of entries of a value. The products are sums over
    the entries of query and key; with equal sizes nobody notices.""",
    score=lambda q, k, v: q @ k.transpose(-2, -1) / v.shape[-1] ** 0.5,
)
sdpa.fault(
    "divided by the root of the number of keys",
    """You divide by the square root of the length of the sequence. A product is a sum over the
    entries of a vector, and the number of keys does not enter it.""",
    score=lambda q, k, v: q @ k.transpose(-2, -1) / k.shape[-2] ** 0.5,
)
sdpa.fault(
    "scaled twice",
    """Your products are divided by the size itself: the root is missing, or you scale in two places.
    The scores come out too small and all weights nearly alike.""",
    score=lambda q, k, v: q @ k.transpose(-2, -1) / q.shape[-1],
)
sdpa.fault(
    "multiplied by the root",
    """You multiply the products by the root of the size where the formula divides. Larger vectors
    then push the softmax further to a one, which the factor should prevent.""",
    score=lambda q, k, v: q @ k.transpose(-2, -1) * q.shape[-1] ** 0.5,
)
sdpa.fault(
    "scaled after the softmax",
    """Your scores meet the softmax unscaled, and the result is divided by the root afterwards. The
    weights no longer sum to one. Look at what stands inside the softmax.""",
    score=lambda q, k, v: q @ k.transpose(-2, -1),
    mix=lambda w, q, k, v: w @ v / q.shape[-1] ** 0.5,
)
sdpa.fault(
    "the value is scaled",
    """You divide by the root twice: once the scores, which is right, and once the values or the
    result. The weights sum to one, so that the result should keep the size of the values.""",
    mix=lambda w, q, k, v: w @ v / q.shape[-1] ** 0.5,
)
sdpa.fault(
    "keys reshaped in place of transposed",
    """You bring the keys into shape by reshape or view. The numbers stay in their order, so each
    column is pieced together from several keys. Exchange two axes instead.""",
    score=lambda q, k, v: q @ k.reshape(*k.shape[:-2], k.shape[-1], -1) / q.shape[-1] ** 0.5,
)
sdpa.fault(
    "softmax over the queries",
    """Your softmax runs over the queries: they compete for each key, and a query may be left with
    nothing. Check along which axis the weights sum to one.""",
    weigh=lambda s, m: soft(s, m, dim=-2),
)
sdpa.fault(
    "softmax over a fixed axis",
    """Your softmax runs over axis 1, counted from the front. That is the axis of the keys without
    leading axes, and another one with them. Count from the back.""",
    fails=("heads", "mask", "empty_row"),
    weigh=lambda s, m: soft(s, m, dim=1),
)
sdpa.fault(
    "two softmaxes",
    """You take the softmax of weights that are the result of one already. It pulls them together:
    even 0 against 1 becomes 0.27 against 0.73, and closed positions come back.""",
    weigh=lambda s, m: soft(s, m).softmax(-1),
)
sdpa.fault(
    "only the best key",
    """You take the value of the key that fits best and leave the others out. The choice has no
    derivative, so neither query nor key can learn. A softmax takes a little of everything.""",
    weigh=lambda s, m: (
        (soft(s, m) == soft(s, m).amax(-1, keepdim=True)).to(s.dtype) * (1.0 if m is None else m)
    ),
)
sdpa.fault(
    "no maximum subtracted",
    """You take the exponential of the scores as they are. Above about 88 it overflows in float32,
    and far below 0 all of them vanish. Chapter 00 has the cure.""",
    fails=("large_scores",),
    weigh=lambda s, m: summed(closed(s, m).exp()),
)
sdpa.fault(
    "one maximum for all rows",
    """You subtract the largest score of the whole table. A row far below it keeps nothing but zeros,
    and 0 is divided by 0. Every row has a maximum of its own.""",
    fails=("large_scores",),
    weigh=lambda s, m: summed((closed(s, m) - closed(s, m).max()).exp()),
)
sdpa.fault(
    "the mask is ignored",
    """You never use the mask: closed keys are mixed in like all others. Look at where `attn_mask`
    enters your function.""",
    fails=MASKED,
    weigh=lambda s, m: s.softmax(-1),
)
sdpa.fault(
    "the mask is inverted",
    """You close what is allowed and keep what is not. True means "may attend" here, as in torch's
    function of this name; `nn.MultiheadAttention` has it the other way round.""",
    fails=MASKED,
    weigh=lambda s, m: soft(s, None if m is None else ~m),
)
sdpa.fault(
    "masked scores set to 0",
    """You set closed scores to 0 before the softmax. 0 is a score like any other: its exponential is
    1, more than every negative score gets. Which score has the exponential 0?""",
    fails=MASKED,
    weigh=lambda s, m: closed(s, m, 0.0).softmax(-1),
)
sdpa.fault(
    "the mask is added as a number",
    """You add the mask to the scores, so that allowed keys get 1 more than closed ones. A boolean is
    not a bias: a closed position needs a score that no other can be compared with.""",
    fails=MASKED,
    weigh=lambda s, m: (s if m is None else s + m.to(s.dtype)).softmax(-1),
)
sdpa.fault(
    "the mask comes after the softmax",
    """You take the softmax over everything and set closed weights to 0 afterwards. They have taken
    their share by then, so that the others sum to less than one.""",
    fails=MASKED,
    weigh=lambda s, m: s.softmax(-1) * (1.0 if m is None else m),
)
sdpa.fault(
    "renormalised after an unmasked softmax",
    """You take the softmax over everything, drop the closed weights and divide by what is left. On
    paper that is right; beside a large closed score nothing but zeros is left to divide.""",
    fails=("mask", "empty_row", "large_scores"),
    weigh=lambda s, m: s.softmax(-1) if m is None else summed(s.softmax(-1) * m, keep=False),
)
sdpa.fault(
    "a closed row becomes NaN",
    """A query that is allowed nothing gets NaN: all its scores are minus infinity, and the softmax
    divides 0 by 0. One such row in a batch poisons every parameter in the backward pass.""",
    fails=("empty_row",),
    weigh=lambda s, m: closed(s, m).softmax(-1),
)
sdpa.fault(
    "a closed row is mended too late",
    """Your numbers are right, but a query that is allowed nothing sends NaN backwards: it was NaN
    inside, and you replaced it afterwards. Keep the NaN from arising.""",
    fails=("empty_row",),
    weigh=lambda s, m: (
        (s if m is None else s + torch.where(m, 0.0, -torch.inf).to(s.dtype))
        .softmax(-1)
        .nan_to_num(0.0)
    ),
)
sdpa.fault(
    "a very negative number as mask",
    """You close positions with a large negative number. A query that is allowed nothing has it
    everywhere, and a softmax over equal scores is even: it takes the mean of closed values.""",
    fails=("empty_row",),
    weigh=lambda s, m: closed(s, m, -1e9).softmax(-1),
)
sdpa.fault(
    "the fill is not low enough",
    """You close positions with -10,000 or so. Real scores may lie below that, and then the closed
    position wins. Only minus infinity is below every score.""",
    fails=("empty_row", "large_scores"),
    weigh=lambda s, m: closed(s, m, -1e4).softmax(-1),
)
sdpa.fault(
    "closed scores are lowered by a number",
    """You subtract a large number from closed scores. Where a closed key fits better by more than
    that, it still wins. A closed position keeps nothing of its score.""",
    fails=("large_scores",),
    weigh=lambda s, m: (
        s.softmax(-1)
        if m is None
        else (s - 1e4 * (~m).to(s.dtype)).softmax(-1) * m.any(-1, keepdim=True)
    ),
)
sdpa.fault(
    "the first query's mask for all",
    """Every query gets the mask of the first one. Each row of the mask belongs to one query; look at
    what happens to its second axis from the back.""",
    fails=("mask", "empty_row", "gradient"),
    weigh=lambda s, m: soft(s, None if m is None else m[..., :1, :]),
)
sdpa.fault(
    "causal without being asked",
    """You close the future although nobody asked for it. A query may attend to every key unless
    the mask says otherwise; what is causal is decided by the caller.""",
    weigh=lambda s, m: soft(s, torch.ones_like(s, dtype=torch.bool).tril() & (m is None or m)),
)
sdpa.fault(
    "no gradient to query and key",
    """The values are right, but your weights are cut off (detach, no_grad, item or a new tensor), so
    that query and key can learn nothing. Only the value gets a gradient.""",
    fails=("empty_row", "gradient"),
    weigh=lambda s, m: soft(s, m).detach(),
)
sdpa.fault(
    "weights transposed before mixing",
    """You multiply the values by the transposed weights: each key collects the queries that look at
    it. With as many queries as keys nothing breaks, and the answer is wrong.""",
    mix=lambda w, q, k, v: w.transpose(-2, -1) @ v,
)
sdpa.fault(
    "the keys are mixed",
    """You use the keys twice: to compare, which is right, and to mix. What a key is found by and what
    it hands over are two things; look at what `value` is for.""",
    mix=lambda w, q, k, v: w @ k,
)
sdpa.fault(
    "the weights are returned",
    """You return the table of weights, and the values are never mixed. Look at the last factor of the
    formula, and at the shape that is promised.""",
    mix=lambda w, q, k, v: w,
)
sdpa.fault(
    "output and weights are returned",
    """You return a pair of output and weights. Whoever calls this function uses its result as the
    output right away; torch's function of this name returns one tensor, too.""",
    mix=lambda w, q, k, v: (w @ v, w),
)
sdpa.fault(
    "an argument is changed in place",
    """You scale the query in place, and the tensor of the caller changes with it. Whoever uses it
    again gets other numbers, and autograd refuses. Make a new tensor.""",
    score=lambda q, k, v: q.div_(q.shape[-1] ** 0.5) @ k.transpose(-2, -1),
)
sdpa.detached(fails=("empty_row", "gradient"))


def summed(parts, *, keep=True):
    """Divided by the sum; ``keep``: a row of zeros stays one, as far as it was closed."""
    total = parts.sum(-1, keepdim=True)
    return parts / (total.masked_fill(total == 0, 1.0) if keep else total)


@sdpa("float32 whatever comes in", fails=("dtype",))
def sdpa_single(query, key, value, attn_mask=None):
    """You compute in float32 whatever comes in, and return float32. A caller who works in double
    precision loses half of the digits. Keep the dtype of the inputs.
    """
    return attend(query.float(), key.float(), value.float(), attn_mask)


# --- causal_mask -------------------------------------------------------------------------------

causal = WrongAnswers("causal_mask", tests=("by_hand", "square", "unequal"))


@witnesses(of="causal_mask")
def mask_calls(draw):
    for queries, keys in ((1, 1), (3, 3), (5, 5), (2, 3), (1, 5), (3, 7), (5, 2), (7, 1)):
        yield call(queries, keys)


def ones(queries, keys):
    return torch.ones(queries, keys, dtype=torch.bool)


@causal("True where it is forbidden")
def causal_inverted(query_length, key_length):
    """Your mask is True for the future: it says what is forbidden. Here, as in torch's
    `scaled_dot_product_attention`, True means "may attend".
    """
    return ones(query_length, key_length).triu(1)


@causal("the future in place of the past")
def causal_future(query_length, key_length):
    """Each query may attend to itself and to what comes after it. Read row 0 of your mask: the first
    position should see only itself.
    """
    return ones(query_length, key_length).triu()


@causal("itself excluded")
def causal_strict(query_length, key_length):
    """A query may not attend to its own position in your mask. The first one is then left with
    nothing at all. Look at the comparison.
    """
    return ones(query_length, key_length).tril(-1)


@causal("one step too far")
def causal_one_more(query_length, key_length):
    """Every query sees one key of the future: the very one that a language model has to guess. Its
    loss would fall to almost nothing. Look at the comparison.
    """
    return ones(query_length, key_length).tril(1)


@causal("aligned at the end", fails=("by_hand", "unequal"))
def causal_bottom_right(query_length, key_length):
    """You align the last query with the last key. That suits a model with a cache; here both count
    from the left, as torch's `is_causal` does. With as many queries as keys they agree.
    """
    return ones(query_length, key_length).tril(key_length - query_length)


@causal("always square", fails=("by_hand", "unequal"))
def causal_square(query_length, key_length):
    """You use one length for both axes. The mask should have a row per query and a column per key;
    look at where `key_length` enters.
    """
    return ones(query_length, query_length).tril()


@causal("keys by queries")
def causal_transposed(query_length, key_length):
    """Your mask has a row per key and a column per query. Look at which of the two lengths comes
    first in the shape that is promised.
    """
    return ones(query_length, key_length).tril().T


@causal("numbers in place of booleans")
def causal_floats(query_length, key_length):
    """You return ones and zeros as floats. A float mask is added to the scores, so that yours would
    close nothing. Make it boolean.
    """
    return torch.ones(query_length, key_length).tril()


@causal("zeros and minus infinities")
def causal_additive(query_length, key_length):
    """You return the additive form, 0 and minus infinity. It works as a bias, but this function
    promises booleans, which can be combined with & and |.
    """
    return torch.full((query_length, key_length), -torch.inf).triu(1)


# --- attention_with_bias -----------------------------------------------------------------------


def biased(query, key, value, bias, *, add=torch.add, weigh=None):
    scores = add(scaled(query, key, value), bias)
    weights = weigh(scores, bias) if weigh else soft(scores, bias != -torch.inf)
    return weights @ value


bias = WrongAnswers(
    "attention_with_bias", tests=("by_hand", "values", "closed", "gradient"), right=biased
)


@witnesses(of="attention_with_bias")
def bias_calls(draw):
    for inputs in sizes(draw):
        queries, keys = inputs[0].shape[-2], inputs[1].shape[-2]
        table = draw.normal(queries, keys)
        yield call(*inputs, table)
        yield call(*inputs, 100 * table)
        yield call(*inputs, draw.normal(keys))
        yield call(*inputs, table.masked_fill(~draw.mask(queries, keys), -torch.inf))
        for wrt in range(4):
            yield call(*inputs, table, via=student.grad(wrt))
    table = table.masked_fill(torch.eye(queries).bool(), -torch.inf)
    table[-1] = -torch.inf
    yield call(*inputs, table)
    yield call(*inputs, table, via=student.grad(0))


@bias("the bias is scaled, too")
def bias_scaled(query, key, value, bias):
    """You add the bias before you divide by the root, so that it is divided with the scores. The
    formula scales the products only.
    """
    return biased(query, key, value, bias, add=lambda s, b: s + b / query.shape[-1] ** 0.5)


@bias("the bias is subtracted")
def bias_subtracted(query, key, value, bias):
    """You subtract the bias: what should be favoured is pushed down. Look at the sign in the
    formula.
    """
    return biased(query, key, value, bias, add=lambda s, b: s - b.masked_fill(b == -torch.inf, 0.0))


@bias("the bias is multiplied")
def bias_multiplied(query, key, value, bias):
    """You multiply the scores by the bias. A bias of 0 should change nothing, and in yours it makes
    every score 0.
    """
    return biased(query, key, value, bias, add=lambda s, b: s * b.masked_fill(b == -torch.inf, 0.0))


@bias("the bias is ignored")
def bias_ignored(query, key, value, bias):
    """Nothing of the bias but its infinities enters your scores. Between 0 and minus infinity there
    are all the numbers that this exercise is about.
    """
    return biased(query, key, value, 0 * bias.masked_fill(bias == -torch.inf, 0.0))


@bias("added after the softmax", but=())
def bias_after(query, key, value, bias):
    """You add the bias to the weights. They sum to one before and no longer do afterwards; a bias
    belongs to the scores, where the softmax can still weigh it.
    """
    after = bias.masked_fill(bias == -torch.inf, 0.0)
    return (soft(scaled(query, key, value), bias != -torch.inf) + after) @ value


@bias("only yes or no")
def bias_as_mask(query, key, value, bias):
    """You read the bias as a mask: positions with a bias below 0 are closed, all others are equal. A
    bias says how much, not whether.
    """
    return soft(scaled(query, key, value), bias >= 0) @ value


@bias("a closed row becomes NaN", fails=("closed", "gradient"))
def bias_nan(query, key, value, bias):
    """A query that is closed everywhere gets NaN, because all its scores are minus infinity and the
    softmax divides 0 by 0. Exercise 1 has the same row.
    """
    return biased(query, key, value, bias, weigh=lambda s, b: s.softmax(-1))


@bias("a closed row is mended too late", fails=("gradient",))
def bias_mended_late(query, key, value, bias):
    """Your numbers are right, but a query that is closed everywhere sends NaN backwards: it was NaN
    inside, and you replaced it afterwards. Keep the NaN from arising.
    """
    return biased(query, key, value, bias, weigh=lambda s, b: s.softmax(-1).nan_to_num(0.0))


@bias("no maximum subtracted", fails=("values",))
def bias_overflow(query, key, value, bias):
    """You take the exponential of scores and bias as they are. Above about 88 it overflows in
    float32; chapter 00 has the cure.
    """
    return biased(query, key, value, bias, weigh=lambda s, b: summed(s.exp()))


@bias("the bias cannot learn", fails=("gradient",))
def bias_detached(query, key, value, bias):
    """The values are right, but no gradient reaches the bias (detach, no_grad or a new tensor). A
    learned bias would stay as it was drawn.
    """
    return biased(query, key, value, bias.detach())


@bias("the first query's bias for all", but=("by_hand",))
def bias_first_row(query, key, value, bias):
    """Every query gets the bias of the first one. Each row of the bias belongs to one query; look at
    its second axis from the back.
    """
    return biased(query, key, value, bias[..., :1, :])


# --- reachable ---------------------------------------------------------------------------------


def walk(mask, layers, *, kept=True):
    step = mask | torch.eye(len(mask), dtype=torch.bool) if kept else mask
    reached = torch.eye(len(mask))
    for _ in range(layers):
        reached = (step.float() @ reached > 0).float()
    return reached > 0


reach = WrongAnswers("reachable", tests=("by_hand", "layers", "deep"), right=walk)


@witnesses(of="reachable")
def graphs(draw):
    band = torch.ones(7, 7).tril().triu(-1).bool()
    ring = torch.eye(5).roll(1, 0).bool()
    for graph in (band, ring, torch.zeros(3, 3).bool(), draw.uniform(6, 6) < 0.25):
        for layers in (0, 1, 2, 3, 9):
            yield call(graph, layers)
    yield call(torch.ones(3, 3, dtype=torch.bool).tril(), 200)


@reach("no position keeps what it had")
def reach_forgetful(mask, layers):
    """In your graph a position loses what it had unless the mask lets it attend to itself. Every
    layer adds its input to its output; where is that edge?
    """
    return walk(mask, layers, kept=False)


@reach("the edges are turned round")
def reach_transposed(mask, layers):
    """Your rows say where the input of a position goes, and not where the output of a position comes
    from. The edges have a direction; look at which index of the mask is the query.
    """
    return walk(mask.T, layers)


@reach("the edges have no direction")
def reach_undirected(mask, layers):
    """You let information run both ways along an edge. That i may attend to j gives j nothing of
    i: the graph of attention is directed.
    """
    return walk(mask | mask.T, layers)


@reach("one layer, whatever is asked", fails=("by_hand", "layers"))
def reach_one_layer(mask, layers):
    """You return what one layer reaches. Every further layer passes on what the positions have
    gathered by then.
    """
    return walk(mask, 1)


@reach("one layer too many", fails=("by_hand", "layers"))
def reach_one_more(mask, layers):
    """You take one step more than there are layers. Without a layer every position should have
    nothing but itself.
    """
    return walk(mask, layers + 1)


@reach("one layer too few", fails=("by_hand", "layers"))
def reach_one_less(mask, layers):
    """You take one step less than there are layers. After the first layer the edges of the mask
    should be there already.
    """
    return walk(mask, max(layers - 1, 0))


@reach("as far as it goes", fails=("by_hand", "layers"))
def reach_all(mask, layers):
    """You follow the edges to the end, however many layers there are. One layer is one step, which
    is why a narrow window needs a deep stack.
    """
    return walk(mask, len(mask))


@reach("ways are counted")
def reach_counts(mask, layers):
    """You return how many ways there are. Asked is whether there is one: True or False.
    Compare with 0, after every step, before the numbers outgrow a float.
    """
    step = (mask | torch.eye(len(mask), dtype=torch.bool)).double()
    return torch.linalg.matrix_power(step, layers)


@reach("the count overflows", fails=("deep",))
def reach_overflow(mask, layers):
    """You multiply the steps of all layers and compare with 0 at the end. The number of ways doubles
    with every layer until a float is infinite, and infinity times 0 is NaN.
    """
    step = (mask | torch.eye(len(mask), dtype=torch.bool)).float()
    return torch.linalg.matrix_power(step, layers) > 0


# --- attention_without_softmax -----------------------------------------------------------------


def plain(query, key, value):
    return query @ (key.transpose(-2, -1) @ value) / query.shape[-1] ** 0.5


linear = WrongAnswers(
    "attention_without_softmax", tests=("by_hand", "values", "long", "gradient"), right=plain
)


@witnesses(of="attention_without_softmax")
def plain_calls(draw):
    for inputs in sizes(draw):
        yield call(*inputs)
        for wrt in range(3):
            yield call(*inputs, via=student.grad(wrt))


@linear("the table is built", fails=("long",))
def plain_table(query, key, value):
    """Your numbers are right, but all scores stand in memory at once: L times S of them. Nothing
    but habit makes you multiply from the left.
    """
    return scaled(query, key, value) @ value


@linear("the softmax is still there")
def plain_softmax(query, key, value):
    """There is a softmax between the scores and the values. It has to see a whole row of scores, so
    that the table must be built: this is what leaving it out should save.
    """
    return scaled(query, key, value).softmax(-1) @ value


@linear("no scale", but=("long",))
def plain_unscaled(query, key, value):
    """Only the softmax goes; the division by the root stays where it was. Look at the formula
    again.
    """
    return query @ (key.transpose(-2, -1) @ value)


@linear("divided by the root of the value's size", but=("long",))
def plain_value_size(query, key, value):
    """You divide by the square root of the number of entries of a value. The products are sums over
    the entries of query and key.
    """
    return query @ (key.transpose(-2, -1) @ value) / value.shape[-1] ** 0.5


@linear("a softmax on the small table", but=("long",))
def plain_small_softmax(query, key, value):
    """You take a softmax of the small table of keys and values. Its rows are entries, not positions,
    and it is no longer a sum over the keys; the exercise wants no softmax at all.
    """
    return query @ (key.transpose(-2, -1) @ value).softmax(-1) / query.shape[-1] ** 0.5


@linear("the mean over the keys", but=("long",))
def plain_mean(query, key, value):
    """You divide by the number of keys. That would be a sensible choice, but the formula is a sum:
    without the softmax nobody has normalised the scores.
    """
    return plain(query, key, value) / key.shape[-2]


@linear("rows made to sum to one", but=())
def plain_normalised(query, key, value):
    """You divide every row by the sum of its scores. Scores may be negative, and their sum near 0;
    the softmax could do this because its exponentials are positive.
    """
    scores = scaled(query, key, value)
    return scores / scores.sum(-1, keepdim=True) @ value


@linear("exponentials of queries and keys", but=("long",))
def plain_feature_map(query, key, value):
    """You put exponentials around the queries and the keys. That is a later idea, which imitates the
    softmax; here the products are taken as they are.
    """
    return plain(query.exp(), key.exp(), value)


linear.detached()


# --- the repair and the test -------------------------------------------------------------------


def self_attention(x, wq, wk, wv, *, score=scaled, weigh=soft):
    query, key, value = x @ wq.T, x @ wk.T, x @ wv.T
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return attend(query, key, value, past, score=score, weigh=weigh)


fixed = WrongAnswers("fixed_self_attention", tests=("same_size", "other_size"))


@witnesses(of="fixed_self_attention")
def self_calls(draw):
    for b, length, d, e, v in ((1, 3, 2, 2, 2), (2, 5, 7, 3, 2), (3, 4, 4, 2, 3)):
        yield call(draw.normal(b, length, d), *(draw.normal(size, d) for size in (e, e, v)))


@fixed("both faults are still there")
def self_broken(x, weight_query, weight_key, weight_value):
    """This is the broken code as it stands. Work out by hand which sum each of your softmaxes makes
    one, and how many products a score adds up.
    """
    return self_attention(
        *(x, weight_query, weight_key, weight_value),
        score=lambda q, k, v: q @ k.transpose(1, 2) / x.shape[-1] ** 0.5,
        weigh=lambda s, m: soft(s, m, dim=1),
    )


@fixed("the softmax still runs over the queries")
def self_over_queries(x, weight_query, weight_key, weight_value):
    """The scale is right now. Add up the weights of one query: they do not sum to one. Look at the
    axis of the softmax, and count axes from the back.
    """
    parts = x, weight_query, weight_key, weight_value
    return self_attention(*parts, weigh=lambda s, m: soft(s, m, dim=1))


@fixed("still scaled by the width of the model", fails=("other_size",))
def self_wide_scale(x, weight_query, weight_key, weight_value):
    """The weights sum to one now. But a score adds up as many products as a query has entries, and
    you still divide by the root of the number of entries of `x`.
    """
    return self_attention(
        *(x, weight_query, weight_key, weight_value),
        score=lambda q, k, v: q @ k.transpose(1, 2) / x.shape[-1] ** 0.5,
    )


@fixed("no scale at all")
def self_unscaled(x, weight_query, weight_key, weight_value):
    """You took the scale out in place of mending it. Without it the scores grow with the number of
    entries of a query.
    """
    parts = x, weight_query, weight_key, weight_value
    return self_attention(*parts, score=lambda q, k, v: q @ k.transpose(1, 2))


@fixed("the mask is gone")
def self_unmasked(x, weight_query, weight_key, weight_value):
    """Every position sees the whole sequence now, its own future included. The mask was right; look
    at what else changed.
    """
    parts = x, weight_query, weight_key, weight_value
    return self_attention(*parts, weigh=lambda s, m: s.softmax(-1))


checks = WrongAnswers("check_attention", tests=("plain", "mutants"))


@witnesses(of="check_attention")
def check_calls(draw):
    for candidate in (
        attend,
        lambda query, key, value, attn_mask=None: value[..., :1, :1] + 0 * query,
        lambda query, key, value, attn_mask=None: 2 * attend(query, key, value, attn_mask),
        lambda query, key, value, attn_mask=None: attend(query, key, value, weigh=late),
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


def late(scores, mask):
    return scores.softmax(-2)


@checks("accepts everything")
def check_nothing(candidate):
    """Your test says True whatever it is given, so that no wrong answer is caught. Call the
    candidate and compare what comes back with numbers of your own.
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
    """You compare the shape of the answer and no value in it. Nearly all wrong attentions have the
    right shape.
    """
    got = candidate(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 5))
    return tuple(got.shape) == (2, 5)


@checks("equal keys", fails=("plain", "mutants"))
def check_equal_keys(candidate):
    """All your keys are the same, so that every weight is the same, whatever is done to the scores.
    The mean of the values passes your test. Draw keys that differ.
    """
    value = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    got = candidate(torch.ones(3, 4), torch.ones(2, 4), value)
    expected = torch.tensor([[2.0, 3.0]]).repeat(3, 1).to(got.dtype)
    return tuple(got.shape) == (3, 2) and bool(torch.allclose(got, expected))


@checks("no mask", fails=("mutants",))
def check_no_mask(candidate):
    """You never pass a mask. Half of what can go wrong here goes wrong with masks: their sense, the
    moment they are applied, a query that is allowed nothing.
    """
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(n, 4, generator=generator) for n in (3, 5, 5))
    got, expected = candidate(query, key, value), attend(query, key, value)
    return got.shape == expected.shape and bool(torch.allclose(got, expected, atol=1e-5))
