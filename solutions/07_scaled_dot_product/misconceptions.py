"""Wrong answers on the way to scaled dot-product attention: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

INF = torch.inf


def scaled(query, key, value):
    return query @ key.mT / query.shape[-1] ** 0.5


def masked(scores, mask, fill=-INF):
    return scores if mask is None else scores.masked_fill(~mask, fill)


def shares(parts):
    """Divide by the sum; a row of zeros stays zero."""
    total = parts.sum(-1, keepdim=True)
    return parts / total.masked_fill(total == 0, 1.0)


def soft(scores, mask):
    scores = masked(scores, mask)
    top = scores.amax(-1, keepdim=True).detach()
    return shares((scores - top.masked_fill(top == -INF, 0.0)).exp())


def over_queries(scores, mask):
    return soft(scores.mT, None if mask is None else mask.expand(scores.shape).mT).mT


def of_allowed(scores, mask):
    """As ``over_queries``, without the queries whose keys are all masked."""
    if mask is None:
        return scores.softmax(-2)
    some = mask.any(-1, keepdim=True)
    return scores.masked_fill(~mask & some, -INF).softmax(-2).masked_fill(~some, 0.0)


def mixed(weights, query, key, value):
    return weights @ value


def attend(query, key, value, attn_mask=None, *, score=scaled, weigh=soft, mix=mixed):
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
sdpa.detached(fails=("empty_row", "gradient"))


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


for name, message, score in (
    (
        "no scale",
        """You use the plain product, whose variance grows with E. What does the formula divide it
        by?""",
        lambda q, k, v: q @ k.mT,
    ),
    (
        "divided by the root of the value's size",
        "You divide by the root of `E_v`. A product sums over the E elements of a key.",
        lambda q, k, v: q @ k.mT / v.shape[-1] ** 0.5,
    ),
    (
        "divided by the root of the number of keys",
        """You divide by the root of the number of keys. A product sums over the E elements of a
        key.""",
        lambda q, k, v: q @ k.mT / k.shape[-2] ** 0.5,
    ),
    (
        "scaled twice",
        "You divide by E itself: the root is missing, or you scale twice.",
        lambda q, k, v: q @ k.mT / q.shape[-1],
    ),
    (
        "multiplied by the root",
        "You multiply by the root of E. The formula divides by it.",
        lambda q, k, v: q @ k.mT * q.shape[-1] ** 0.5,
    ),
    (
        "keys reshaped instead of transposed",
        "You reshape the keys, so each column mixes several keys. Swap two axes instead.",
        lambda q, k, v: q @ k.reshape(*k.shape[:-2], k.shape[-1], -1) / q.shape[-1] ** 0.5,
    ),
):
    sdpa.fault(name, message, score=score)
sdpa.fault(
    "scaled after the softmax",
    "Your softmax gets unscaled scores, and you divide the result by the root. Scale the scores.",
    score=lambda q, k, v: q @ k.mT,
    mix=lambda w, q, k, v: w @ v / q.shape[-1] ** 0.5,
)
sdpa.fault(
    "the value is scaled",
    "You divide the values or the result by the root as well. Only the scores are scaled.",
    mix=lambda w, q, k, v: w @ v / q.shape[-1] ** 0.5,
)
for weigh in (over_queries, lambda s, m: masked(s, m).softmax(-2), of_allowed):
    sdpa.fault(
        "softmax over the queries",
        "Your softmax runs over the queries. Along which axis do the weights sum to one?",
        weigh=weigh,
    )
sdpa.fault(
    "softmax over a fixed axis",
    "Your softmax runs over axis 1. This is the key axis only when there are no leading axes.",
    fails=("heads", "mask", "empty_row"),
    weigh=lambda s, m: soft(s, m) if s.ndim == 2 else masked(s, m).softmax(1).nan_to_num(0.0),
)
sdpa.fault(
    "two softmaxes",
    """You apply the softmax to the weights again, which evens them out: 0 and 1 become 0.27 and
    0.73.""",
    weigh=lambda s, m: soft(s, m).softmax(-1),
)
sdpa.fault(
    "only the best key",
    """You return the value of the best key. That choice has no derivative, so query and key learn
    nothing.""",
    weigh=lambda s, m: (
        (soft(s, m) == soft(s, m).amax(-1, keepdim=True)).to(s.dtype) * (1.0 if m is None else m)
    ),
)
sdpa.fault(
    "no maximum subtracted",
    """You take the exponential of the raw scores. In float32 it overflows above about 88 and
    vanishes far below 0: see chapter 00.""",
    fails=("large_scores",),
    weigh=lambda s, m: shares(masked(s, m).exp()),
)
sdpa.fault(
    "one maximum for all rows",
    "You subtract the largest score of all rows. Each row needs its own maximum.",
    fails=("large_scores",),
    weigh=lambda s, m: shares((masked(s, m) - masked(s, m).max()).exp()),
)
for name, message, weigh in (
    (
        "the mask is ignored",
        "You ignore the mask: masked keys contribute like all others.",
        lambda s, m: s.softmax(-1),
    ),
    (
        "the mask is inverted",
        "You mask the allowed keys. True means: may attend, as in torch's function of this name.",
        lambda s, m: soft(s, None if m is None else ~m),
    ),
    (
        "masked scores set to 0",
        "You set masked scores to 0, whose exponential is 1. Which score has the exponential 0?",
        lambda s, m: masked(s, m, 0.0).softmax(-1),
    ),
    (
        "the mask is added as a number",
        "You add the mask to the scores, so allowed keys gain 1. A boolean mask excludes keys.",
        lambda s, m: (s if m is None else s + m.to(s.dtype)).softmax(-1),
    ),
    (
        "the mask comes after the softmax",
        "You set masked weights to 0 after the softmax, so the rest sum to less than one.",
        lambda s, m: s.softmax(-1) * (1.0 if m is None else m),
    ),
):
    sdpa.fault(name, message, fails=MASKED, weigh=weigh)
sdpa.fault(
    "renormalised after an unmasked softmax",
    """You take the softmax over all keys, drop the masked weights and renormalise. A large masked
    score leaves all other weights at 0.""",
    fails=("mask", "empty_row", "large_scores"),
    weigh=lambda s, m: (
        s.softmax(-1)
        if m is None
        else s.softmax(-1) * m / (s.softmax(-1) * m).sum(-1, keepdim=True)
    ),
)
sdpa.fault(
    "an empty row becomes NaN",
    "A query whose keys are all masked gives NaN: its softmax divides 0 by 0.",
    fails=("empty_row",),
    weigh=lambda s, m: masked(s, m).softmax(-1),
)
sdpa.fault(
    "an empty row is repaired too late",
    """Your values are right, but a query whose keys are all masked has NaN gradients: you replaced
    the NaN after the softmax.""",
    fails=("empty_row",),
    weigh=lambda s, m: (
        (s if m is None else s + torch.where(m, 0.0, -INF).to(s.dtype)).softmax(-1).nan_to_num(0.0)
    ),
)
sdpa.fault(
    "a very negative number as mask",
    """You mask with a large negative number. A query whose keys are all masked then gets equal
    weights; it should get 0.""",
    fails=("empty_row",),
    weigh=lambda s, m: masked(s, m, -1e9).softmax(-1),
)
for even in (True, False):
    sdpa.fault(
        "the fill is not low enough",
        "You mask with a number near -10,000. Real scores may be lower.",
        fails=("empty_row", "large_scores") if even else ("large_scores",),
        weigh=lambda s, m, even=even: (
            masked(s, m, -1e4).softmax(-1) * (1.0 if m is None or even else m.any(-1, keepdim=True))
        ),
    )
sdpa.fault(
    "masked scores are lowered by a number",
    "You subtract a large number from masked scores. A masked key with a larger score still wins.",
    fails=("large_scores",),
    weigh=lambda s, m: (
        s.softmax(-1)
        if m is None
        else (s - 1e4 * (~m).to(s.dtype)).softmax(-1) * m.any(-1, keepdim=True)
    ),
)
sdpa.fault(
    "the first query's mask for all",
    "You use the first query's mask for every query. Each row of the mask belongs to one query.",
    fails=("mask", "empty_row", "gradient"),
    weigh=lambda s, m: soft(s, None if m is None else m[..., :1, :]),
)
sdpa.fault(
    "causal without being asked",
    "You apply a causal mask. The contract asks only for the mask in `attn_mask`.",
    weigh=lambda s, m: soft(s, torch.ones_like(s, dtype=torch.bool).tril() & (m is None or m)),
)
sdpa.fault(
    "no gradient to query and key",
    "Your values are right, but you detach the weights: query and key get no gradient.",
    fails=("empty_row", "gradient"),
    weigh=lambda s, m: soft(s, m).detach(),
)
for name, message, mix in (
    (
        "weights transposed before mixing",
        "You transpose the weights before you multiply. Their rows belong to the queries.",
        lambda w, q, k, v: w.mT @ v,
    ),
    (
        "the keys are mixed",
        "You mix the keys. Keys are for the scores; the output mixes `value`.",
        lambda w, q, k, v: w @ k,
    ),
    (
        "the weights are returned",
        "You return the weights. The last factor of the formula is missing.",
        lambda w, q, k, v: w,
    ),
    (
        "output and weights are returned",
        "You return output and weights. The contract asks for the output alone.",
        lambda w, q, k, v: (w @ v, w),
    ),
):
    sdpa.fault(name, message, mix=mix)
sdpa.fault(
    "an argument is changed in place",
    "You scale the query in place, which changes the caller's tensor. Create a new tensor.",
    score=lambda q, k, v: q.div_(q.shape[-1] ** 0.5) @ k.mT,
)


@sdpa("float32 whatever the inputs are", fails=("dtype",))
def sdpa_single(query, key, value, attn_mask=None):
    """You compute and return float32. The result has the dtype of the inputs."""
    return attend(query.float(), key.float(), value.float(), attn_mask)


# --- causal_mask -------------------------------------------------------------------------------


def right_causal(
    query_length,
    key_length,
    *,
    size=lambda queries, keys: (queries, keys),
    past=lambda ones, queries, keys: ones.tril(),
    last=lambda mask: mask,
):
    ones = torch.ones(*size(query_length, key_length), dtype=torch.bool)
    return last(past(ones, query_length, key_length))


causal = WrongAnswers("causal_mask", tests=("by_hand", "square", "unequal"), right=right_causal)


@witnesses(of="causal_mask")
def mask_calls(draw):
    for queries, keys in ((1, 1), (3, 3), (5, 5), (2, 3), (1, 5), (3, 7), (5, 2), (7, 1)):
        yield call(queries, keys)


for name, message, past in (
    (
        "True where it is forbidden",
        "Your mask is True for the future. Here True means: may attend.",
        lambda ones, queries, keys: ones.triu(1),
    ),
    (
        "the future instead of the past",
        """Each query may attend to itself and to later keys. It should attend to itself and to
        earlier ones.""",
        lambda ones, queries, keys: ones.triu(),
    ),
    (
        "itself excluded",
        "You mask each query's own position, so the first query has no key.",
        lambda ones, queries, keys: ones.tril(-1),
    ),
    (
        "one step too far",
        """Every query may attend to one future key, which holds the token that the model has to
        predict.""",
        lambda ones, queries, keys: ones.tril(1),
    ),
):
    causal.fault(name, message, past=past)
causal.fault(
    "aligned at the end",
    "You align the last query with the last key, as with a cache. Here both count from the left.",
    fails=("by_hand", "unequal"),
    past=lambda ones, queries, keys: ones.tril(keys - queries),
)
causal.fault(
    "always square",
    "You use one length for both axes. Where does `key_length` enter?",
    fails=("by_hand", "unequal"),
    size=lambda queries, keys: (queries, queries),
)
causal.fault(
    "numbers instead of booleans",
    "You return floats. torch adds a float mask to the scores, so yours would mask nothing.",
    last=lambda mask: mask.float(),
)
causal.fault(
    "zeros and minus infinities",
    "You return the additive form. The contract asks for booleans.",
    last=lambda mask: torch.zeros(mask.shape).masked_fill(~mask, -INF),
)

# --- fixed_self_attention ----------------------------------------------------------------------


def right_self(x, wq, wk, wv, *, size=lambda x, q: q.shape[-1], weigh=soft):
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    query = x @ wq.T
    return weigh(query @ (x @ wk.T).mT / size(x, query) ** 0.5, past) @ (x @ wv.T)


def of_model(x, query):
    return x.shape[-1]


fixed = WrongAnswers("fixed_self_attention", tests=("same_size", "other_size"), right=right_self)


@witnesses(of="fixed_self_attention")
def self_calls(draw):
    for b, length, d, e, v in ((1, 3, 2, 2, 2), (2, 5, 7, 3, 2), (3, 4, 4, 2, 3)):
        yield call(draw.normal(b, length, d), *(draw.normal(size, d) for size in (e, e, v)))


fixed.fault(
    "both faults are still there",
    "This is the broken code. Which weights should sum to one, and over what does a score sum?",
    size=of_model,
    weigh=over_queries,
)
fixed.fault(
    "the softmax still runs over the queries",
    "The scale is now right. The weights of one query still do not sum to one.",
    weigh=over_queries,
)
fixed.fault(
    "still scaled by the width of the model",
    "The softmax is now right. A score sums over the E elements of a query, not over the D of `x`.",
    fails=("other_size",),
    size=of_model,
)
fixed.fault(
    "no scale at all",
    "You removed the scale, so the scores grow with the size of a query.",
    size=lambda x, query: 1,
)
fixed.fault(
    "the mask is gone",
    "You removed the mask, so every position attends to later ones. The mask was right.",
    weigh=lambda s, m: s.softmax(-1),
)

# --- attention_with_bias -----------------------------------------------------------------------


def where_allowed(scores, bias):
    none = (bias == -INF).all(-1, keepdim=True)
    return scores.masked_fill(none, 0.0).softmax(-1).masked_fill(none, 0.0)


def biased(
    query,
    key,
    value,
    bias,
    *,
    read=lambda bias: bias,
    add=lambda scores, bias, size: scores + bias,
    weigh=where_allowed,
):
    bias = read(bias)
    return weigh(add(scaled(query, key, value), bias, query.shape[-1]), bias) @ value


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
        yield call(*inputs, table.masked_fill(~draw.mask(queries, keys), -INF))
        for wrt in range(4):
            yield call(*inputs, table, via=student.grad(wrt))
    table = table.masked_fill(torch.eye(queries).bool(), -INF)
    table[-1] = -INF
    yield call(*inputs, table)
    yield call(*inputs, table, via=student.grad(0))


for name, message, add in (
    (
        "the bias is scaled, too",
        "You divide the bias by the root, too. The formula scales only the products.",
        lambda s, b, size: s + b / size**0.5,
    ),
    (
        "the bias is subtracted",
        "You subtract the bias from the scores. The formula adds it.",
        lambda s, b, size: s - b,
    ),
    (
        "the bias is multiplied",
        "You multiply the scores by the bias. A bias of 0 should change nothing.",
        lambda s, b, size: s * b,
    ),
    (
        "only the infinities of the bias",
        "You use only the infinite elements of the bias. The finite ones are added to the scores.",
        lambda s, b, size: s.masked_fill(b == -INF, -INF),
    ),
):
    bias.fault(name, message, add=add)
bias.fault(
    "only yes or no",
    "You use the bias as a mask. The formula adds it to the scores.",
    add=lambda s, b, size: s,
    weigh=lambda s, b: soft(s, b >= 0),
)
for after in (torch.Tensor.clone, lambda bias: bias.masked_fill(bias == -INF, 0.0)):
    bias.fault(
        "added after the softmax",
        "You add the bias to the weights, which then do not sum to one.",
        add=lambda s, b, size: s,
        weigh=lambda s, b, after=after: where_allowed(s, b) + after(b),
    )
bias.fault(
    "an empty row becomes NaN",
    "A query whose keys are all masked gives NaN: its softmax divides 0 by 0.",
    fails=("closed", "gradient"),
    weigh=lambda s, b: s.softmax(-1),
)
bias.fault(
    "an empty row is repaired too late",
    """Your values are right, but a query whose keys are all masked has NaN gradients: you replaced
    the NaN after the softmax.""",
    fails=("gradient",),
    weigh=lambda s, b: s.softmax(-1).nan_to_num(0.0),
)
bias.fault(
    "an empty row is even",
    "A query whose keys are all at minus infinity gets even weights. Its output is 0.",
    fails=("closed", "gradient"),
    weigh=lambda s, b: s.masked_fill((b == -INF).all(-1, keepdim=True), 0.0).softmax(-1),
)
bias.fault(
    "no maximum subtracted",
    "You take the exponential of the raw sum of scores and bias. It overflows above about 88.",
    fails=("values",),
    weigh=lambda s, b: shares(s.exp()),
)
bias.fault(
    "the bias cannot learn",
    "Your values are right, but you detach the bias, so it gets no gradient.",
    fails=("gradient",),
    read=torch.detach,
)
bias.fault(
    "the first query's bias for all",
    "You use the first query's bias for every query. Each row of the bias belongs to one query.",
    but=("by_hand",),
    read=lambda bias: bias[..., :1, :],
)

# --- reachable ---------------------------------------------------------------------------------


def itself(mask):
    return mask | torch.eye(len(mask), dtype=torch.bool)


def right_reach(
    mask,
    layers,
    *,
    edges=lambda mask: mask,
    keep=itself,
    count=lambda layers, size: layers,
    clip=lambda reached: (reached > 0).float(),
    last=lambda reached: reached > 0,
):
    step, reached = keep(edges(mask)).float(), torch.eye(len(mask))
    for _ in range(count(layers, len(mask))):
        reached = clip(step @ reached)
    return last(reached)


reach = WrongAnswers("reachable", tests=("by_hand", "layers", "deep"), right=right_reach)


@witnesses(of="reachable")
def graphs(draw):
    band = torch.ones(7, 7).tril().triu(-1).bool()
    ring = torch.eye(5).roll(1, 0).bool()
    for graph in (band, ring, torch.zeros(3, 3).bool(), draw.uniform(6, 6) < 0.25):
        for layers in (0, 1, 2, 3, 9):
            yield call(graph, layers)
    yield call(torch.ones(3, 3, dtype=torch.bool).tril(), 200)


reach.fault(
    "no position keeps what it had",
    "You drop each position's own information. Every layer adds its input to its output.",
    keep=lambda mask: mask,
)
reach.fault(
    "the edges are reversed",
    """Row i of your result lists the outputs that input i reaches. It should list the inputs that
    reach output i.""",
    edges=lambda mask: mask.T,
)
reach.fault(
    "the edges have no direction",
    "You follow edges in both directions. If i attends to j, information flows from j to i only.",
    edges=lambda mask: mask | mask.T,
)
for name, message, count in (
    (
        "one layer, whatever is asked",
        "You return the reach of one layer, whatever `layers` is. Each further layer adds a step.",
        lambda layers, size: 1,
    ),
    (
        "one layer too many",
        "You take one step too many. With 0 layers every output depends on its own input only.",
        lambda layers, size: layers + 1,
    ),
    (
        "one layer too few",
        "You take one step too few. One layer should already give the edges of the mask.",
        lambda layers, size: max(layers - 1, 0),
    ),
    (
        "as far as it goes",
        "You follow the edges to the end, whatever `layers` is. One layer is one step.",
        lambda layers, size: size,
    ),
):
    reach.fault(name, message, fails=("by_hand", "layers"), count=count)
reach.fault(
    "paths are counted",
    "You return the number of paths. The contract asks for True or False.",
    clip=lambda reached: reached,
    last=lambda reached: reached.double(),
)
reach.fault(
    "the count overflows",
    """You compare with 0 only at the end. The number of paths grows to infinity, and infinity times
    0 is NaN.""",
    fails=("deep",),
    clip=lambda reached: reached,
)

# --- attention_without_softmax -----------------------------------------------------------------


def plain(
    query,
    key,
    value,
    *,
    read=lambda x: x,
    table=lambda key, value: key.mT @ value,
    size=lambda query, value, keys: query.shape[-1] ** 0.5,
):
    return read(query) @ table(read(key), value) / size(query, value, key.shape[-2])


linear = WrongAnswers(
    "attention_without_softmax", tests=("by_hand", "values", "long", "gradient"), right=plain
)
linear.detached()


@witnesses(of="attention_without_softmax")
def plain_calls(draw):
    for inputs in sizes(draw):
        yield call(*inputs)
        for wrt in range(3):
            yield call(*inputs, via=student.grad(wrt))


@linear("the score matrix is built", fails=("long",))
def plain_table(query, key, value):
    """Your values are right, but all L × S scores are in memory at once."""
    return scaled(query, key, value) @ value


@linear("the softmax is still there")
def plain_softmax(query, key, value):
    """You apply a softmax to the scores. This exercise leaves it out."""
    return scaled(query, key, value).softmax(-1) @ value


@linear("rows made to sum to one")
def plain_normalised(query, key, value):
    """You divide every row by the sum of its scores, which may be near 0. The formula does not
    normalise.
    """
    scores = scaled(query, key, value)
    return scores / scores.sum(-1, keepdim=True) @ value


for name, message, steps in (
    (
        "no scale",
        "You left out the scale. Only the softmax goes; the division by the root stays.",
        {"size": lambda query, value, keys: 1},
    ),
    (
        "divided by the root of the value's size",
        "You divide by the root of `E_v`. A product sums over the E elements of a key.",
        {"size": lambda query, value, keys: value.shape[-1] ** 0.5},
    ),
    (
        "the mean over the keys",
        "You also divide by the number of keys. The formula is a sum.",
        {"size": lambda query, value, keys: query.shape[-1] ** 0.5 * keys},
    ),
    (
        "a softmax of keys and values",
        "You take a softmax of the product of keys and values. This exercise has no softmax.",
        {"table": lambda key, value: (key.mT @ value).softmax(-1)},
    ),
    (
        "exponentials of queries and keys",
        "You take exponentials of queries and keys. The formula uses them unchanged.",
        {"read": torch.exp},
    ),
):
    linear.fault(name, message, but=("long",), **steps)
linear.fault(
    "the mean over the keys, not scaled",
    "You divide by the number of keys. The formula divides by the root of E.",
    but=("long", "by_hand"),  # where both are 2
    size=lambda query, value, keys: keys,
)

# --- check_attention ---------------------------------------------------------------------------

checks = WrongAnswers("check_attention", tests=("plain", "mutants"))


@witnesses(of="check_attention")
def check_calls(draw):
    yield call(lambda *given: attend(*given))
    yield call(lambda *given: 2 * attend(*given))
    yield call(lambda *given: attend(*given[:3], weigh=over_queries))
    yield call(lambda query, key, value, attn_mask=None: value[..., :1, :1] + 0 * query)
    yield call(lambda *given: 1 / 0)


@checks("accepts everything")
def check_nothing(candidate):
    """Your test always returns True. Call the candidate and compare its result with your own
    numbers.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test rejects a right answer. Do you allow for rounding, and which dtype do your numbers
    have?
    """
    return False


@checks("only the shape is compared")
def check_shape(candidate):
    """You compare only the shape. Most wrong answers have the right shape."""
    got = candidate(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4, 5))
    return tuple(got.shape) == (2, 5)


@checks("equal keys")
def check_equal_keys(candidate):
    """All your keys are equal, so the plain mean of the values passes. Draw keys that differ."""
    value = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    got = candidate(torch.ones(3, 4), torch.ones(2, 4), value)
    expected = torch.tensor([[2.0, 3.0]]).repeat(3, 1).to(got.dtype)
    return tuple(got.shape) == (3, 2) and bool(torch.allclose(got, expected))


@checks("no mask", fails=("mutants",))
def check_no_mask(candidate):
    """You never pass a mask. Many wrong answers fail only there: inverted, applied too late, or
    with all keys of a query masked.
    """
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(n, 4, generator=generator) for n in (3, 5, 5))
    got, expected = candidate(query, key, value), attend(query, key, value)
    return got.shape == expected.shape and bool(torch.allclose(got, expected, atol=1e-5))
