"""Wrong answers on the way to the score functions: name, message, and the tests they must fail."""

import math

import torch
from torch.nn.functional import normalize

from attn_course.probes import WrongAnswers, call, student, witnesses


def as_given(x):
    return x


def first_row(key):
    """The keys of the first set for all sets."""
    return key.reshape(-1, *key.shape[-2:])[0].expand_as(key)


# --- scaled_dot_score --------------------------------------------------------------------------


def usual(query, key):
    return query.shape[-1] ** -0.5


def right_scaled(
    query,
    key,
    scale=None,
    *,
    keys=as_given,
    vectors=as_given,
    factor=lambda scale, usual: usual if scale is None else scale,
    default=usual,
    product=lambda query, key: query @ key.mT,
):
    size = factor(scale, default(query, key))
    return size * product(vectors(query), vectors(keys(key)))


scaled = WrongAnswers(
    "scaled_dot_score", tests=("values", "batch", "other_scale"), right=right_scaled
)


@witnesses(of="scaled_dot_score")
def scaled_calls(draw):
    yield call(draw.normal(2, 3), draw.normal(5, 3))
    yield call(draw.normal(2, 2, 7), draw.normal(2, 3, 7))
    yield call(draw.normal(3, 2, 3, 5), draw.normal(3, 2, 2, 5))
    for scale in (0.7, 0.0, 1.0, 2.0):
        yield call(draw.normal(2, 3), draw.normal(5, 3), scale=scale)


for name, message, default in (
    ("no scale", "You do not scale. `scale=None` means 1 / sqrt(E).", lambda query, key: 1.0),
    (
        "divided by the size",
        "You divide by E. A sum of E independent products grows with the root of E.",
        lambda query, key: 1 / query.shape[-1],
    ),
    (
        "scaled by the number of keys",
        "Your scale depends on the number of keys. It should depend on the size of the vectors.",
        lambda query, key: key.shape[-2] ** -0.5,
    ),
    (
        "multiplied by the root",
        "You multiply by the root of E. The usual scale divides by it.",
        lambda query, key: query.shape[-1] ** 0.5,
    ),
):
    scaled.fault(name, message, fails=("values", "batch"), default=default)
for name, message, factor in (
    (
        "the given scale is ignored",
        "You always use 1 / sqrt(E). A given scale replaces it.",
        lambda scale, usual: usual,
    ),
    (
        "divided by the given scale",
        "You divide by the given scale. Multiply by it.",
        lambda scale, usual: usual if scale is None else 1 / scale if scale else math.inf,
    ),
    (
        "both scales at once",
        "You apply both 1 / sqrt(E) and the given scale. A given scale replaces the usual one.",
        lambda scale, usual: usual if scale is None else scale * usual,
    ),
    (
        "a scale of 0 counts as none",
        "You treat a scale of 0 as missing, because 0 is false. Compare it with None.",
        lambda scale, usual: scale or usual,
    ),
):
    scaled.fault(name, message, fails=("other_scale",), factor=factor)
scaled.fault(
    "the cosine",
    """You divide by the lengths of the vectors, which gives the cosine. The formula has the dot
    product.""",
    vectors=lambda x: normalize(x, dim=-1),
)
scaled.fault(
    "a distance",
    "You return minus the squared distance. The formula has the dot product.",
    product=lambda query, key: -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1),
)

# --- general_score -----------------------------------------------------------------------------


def right_general(
    query,
    key,
    weight,
    *,
    keys=as_given,
    product=lambda query, weight, key: query @ weight @ key.mT,
    last=lambda scores, key: scores,
):
    return last(product(query, weight, keys(key)), key)


general = WrongAnswers("general_score", tests=("values", "sizes_and_batch"), right=right_general)


@witnesses(of="general_score")
def general_calls(draw):
    yield call(draw.normal(3, 5), draw.normal(7, 5), weight=draw.normal(5, 5))
    yield call(draw.normal(2, 3, 5), draw.normal(2, 7, 5), weight=draw.normal(5, 5))
    yield call(draw.normal(2, 3, 5), draw.normal(2, 7, 3), weight=draw.normal(5, 3))


general.fault(
    "the matrix is transposed",
    """You transpose the matrix. It has one row per element of the query and one column per element
    of the key.""",
    product=lambda query, weight, key: query @ weight.T @ key.mT,
)
general.fault(
    "the matrix is left out",
    "You leave out the matrix and return the dot product. The formula has W between query and key.",
    product=lambda query, weight, key: query @ key.mT,
)
general.fault(
    "the matrix acts on both sides",
    "You multiply the query *and* the key by the matrix. The formula has it once.",
    product=lambda query, weight, key: (query @ weight) @ (key @ weight).mT,
)
general.fault(
    "tanh of the projected query",
    "You apply a tanh to the projection. Only the additive score has a tanh.",
    product=lambda query, weight, key: torch.tanh(query @ weight) @ key.mT,
)
general.fault(
    "tanh of the scores",
    "You apply a tanh to the scores. Only the additive score has a tanh.",
    last=lambda scores, key: scores.tanh(),
)
general.fault(
    "scaled as well",
    "You divide by the root of a size. This score has no scale.",
    last=lambda scores, key: scores / key.shape[-1] ** 0.5,
)

# --- concat_score ------------------------------------------------------------------------------


def right_concat(
    query,
    key,
    weight,
    v,
    *,
    keys=as_given,
    cut=lambda weight, query, key: weight.split([query, key], dim=1),
    meet=lambda asked, offered: torch.tanh(asked + offered),
    weigh=lambda hidden, v: hidden @ v,
):
    of_query, of_key = cut(weight, query.shape[-1], key.shape[-1])
    asked, offered = (query @ of_query.T).unsqueeze(-2), (keys(key) @ of_key.T).unsqueeze(-3)
    return weigh(meet(asked, offered), v)


concat = WrongAnswers("concat_score", tests=("values", "batch", "memory"), right=right_concat)


@witnesses(of="concat_score")
def concat_calls(draw):
    yield call(draw.normal(2, 5), draw.normal(3, 5), weight=draw.normal(7, 10), v=draw.normal(7))
    yield call(draw.normal(2, 5), draw.normal(7, 3), weight=draw.normal(7, 8), v=draw.normal(7))
    yield call(
        draw.normal(2, 2, 3), draw.normal(2, 5, 2), weight=draw.normal(3, 5), v=draw.normal(3)
    )


concat.fault(
    "the key comes first",
    "You concatenate the key and then the query. The first columns of W belong to the query.",
    but=("memory",),
    cut=lambda weight, query, key: weight.split([key, query], dim=1)[::-1],
)
concat.fault(
    "split in the middle",
    "You split the matrix in the middle. Query and key may have different sizes.",
    fails=("values", "batch"),
    cut=lambda weight, query, key: weight.chunk(2, dim=1),
)
concat.fault(
    "no tanh",
    """You leave out the tanh. The query then adds the same number to all its scores, which a
    softmax cancels.""",
    but=("memory",),
    meet=lambda asked, offered: asked + offered,
)
concat.fault(
    "tanh before the sum",
    "You apply a tanh to each part and add them. The formula has one tanh of the sum.",
    but=("memory",),
    meet=lambda asked, offered: torch.tanh(asked) + torch.tanh(offered),
)
concat.fault(
    "v inside the tanh",
    "You multiply by v before the tanh. The formula multiplies by v after it.",
    but=("memory",),
    meet=lambda asked, offered: asked + offered,
    weigh=lambda hidden, v: torch.tanh(hidden * v).sum(-1),
)
concat.fault(
    "the tanh of the score",
    "You apply the tanh to the score. The formula applies it to the hidden units, before v.",
    but=("memory",),
    meet=lambda asked, offered: asked + offered,
    weigh=lambda hidden, v: torch.tanh(hidden @ v),
)
concat.fault(
    "v is left out",
    "You add up the hidden units with equal weights. Weight them by v.",
    but=("memory",),
    weigh=lambda hidden, v: hidden.sum(-1) + 0.0 * v.sum(),
)


@concat("every pair is built", fails=("memory",))
def concat_pairs(query, key, weight, v):
    """Your values are right, but you build every pair of query and key. What does the matrix do to
    each part?
    """
    many = (query.shape[-2], key.shape[-2])
    left = query.unsqueeze(-2).expand(*query.shape[:-2], *many, query.shape[-1])
    right = key.unsqueeze(-3).expand(*key.shape[:-2], *many, key.shape[-1])
    return torch.tanh(torch.cat([left, right], dim=-1) @ weight.T) @ v


for scores, batch in ((scaled, "batch"), (general, "sizes_and_batch"), (concat, "batch")):
    scores.fault(
        "the keys of the first set for all",
        "You use the keys of the first set for all sets. Each set has its own keys.",
        fails=(batch,),
        keys=first_row,
    )

# --- cosine_score ------------------------------------------------------------------------------


def norms(query, key):
    return query.norm(dim=-1)[..., :, None], key.norm(dim=-1)[..., None, :]


def right_cosine(
    query,
    key,
    sharpness=1.0,
    *,
    sizes=norms,
    join=lambda of_query, of_key: of_query * of_key,
    divide=lambda dots, lengths: torch.where(lengths > 0, dots / lengths, 0.0),
    sharpen=lambda cosine, sharpness: sharpness * cosine,
):
    dots = query @ key.mT
    return sharpen(divide(dots, join(*sizes(query, key)).expand_as(dots)), sharpness)


cosine = WrongAnswers(
    "cosine_score", tests=("values", "sharpness", "zero_vector"), right=right_cosine
)


@witnesses(of="cosine_score")
def cosine_calls(draw):
    yield call(draw.normal(3, 5), draw.normal(7, 5))
    yield call(1e-4 * draw.normal(3, 5), 1e-4 * draw.normal(7, 5))
    yield call(draw.normal(2, 3, 5), draw.normal(2, 7, 5), sharpness=2.5)
    yield call(draw.normal(3, 5) * torch.tensor([[0.0], [1.0], [1.0]]), draw.normal(2, 5))


cosine.fault(
    "the dot product",
    "You return the dot product. Divide by the lengths of both vectors.",
    divide=lambda dots, lengths: dots,
)
for told, at in (("queries", 0), ("keys", 1)):
    cosine.fault(
        f"only the {told} are normalised",
        f"You divide by the lengths of the {told} alone. Divide by both lengths.",
        join=lambda *sizes, at=at: sizes[at],
    )
cosine.fault(
    "divided by squared lengths",
    "You divide by the squares of the lengths. Take their roots.",
    join=lambda of_query, of_key: (of_query * of_key) ** 2,
)
cosine.fault(
    "one length for all vectors",
    "You divide by the norm of all queries and of all keys. Every vector has its own length.",
    sizes=lambda query, key: (query.norm(), key.norm()),
)
cosine.fault(
    "a small constant in the denominator",
    """You add a small constant to the product of the lengths, which changes the result for short
    vectors. Only a length of exactly 0 needs care.""",
    fails=("values",),
    divide=lambda dots, lengths: dots / (lengths + 1e-8),
)
cosine.fault(
    "NaN for a zero vector",
    "For a zero vector you divide 0 by 0, which is NaN. The score should be 0.",
    fails=("zero_vector",),
    divide=lambda dots, lengths: dots / lengths,
)
cosine.fault(
    "divided by the sharpness",
    "You divide by the sharpness. Multiply by it.",
    fails=("sharpness",),
    sharpen=lambda cosine, sharpness: cosine / sharpness,
)

# --- location_score ----------------------------------------------------------------------------


def right_location(
    query,
    key,
    weight,
    *,
    read=lambda query, key: query,
    rows=lambda weight, count: weight[:count],
):
    return read(query, key) @ rows(weight, key.shape[-2]).T


location = WrongAnswers("location_score", tests=("values", "short_source"), right=right_location)


@witnesses(of="location_score")
def location_calls(draw):
    yield call(draw.normal(3, 5), draw.normal(5, 5), weight=draw.normal(5, 5))
    yield call(draw.normal(3, 5), draw.normal(4, 5), weight=draw.normal(5, 5))
    yield call(draw.normal(2, 3, 5), draw.normal(2, 4, 3), weight=draw.normal(9, 5))


for name, message, rows in (
    (
        "the last rows",
        """For a short source you use the last rows. Use the first ones: row 0 belongs to position
        0.""",
        lambda weight, count: weight[-count:],
    ),
    (
        "all rows",
        "You return a score for every row of W. Return one score per key.",
        lambda weight, count: weight,
    ),
    (
        "the rest is padded with zeros",
        "You return the score 0 for positions without a key. Return only one score per key.",
        lambda weight, count: weight * (torch.arange(len(weight)) < count)[:, None],
    ),
):
    location.fault(name, message, fails=("short_source",), rows=rows)
location.fault(
    "positions count from 1",
    "You use rows 1 to S. Positions count from 0, so use rows 0 to S - 1.",
    rows=lambda weight, count: weight[1 : count + 1],
)
location.fault(
    "the first query for all",
    "You use the scores of the first query for all queries. Each query has its own scores.",
    read=lambda query, key: query[..., :1, :].expand_as(query),
)


@location("the keys instead of the queries")
def location_keys(query, key, weight):
    """You multiply the matrix by the keys. A location score depends only on the query."""
    return (key @ weight[: query.shape[-2]].T).mT


@location("the dot product is added")
def location_and_content(query, key, weight):
    """You add the dot product with the keys. A location score depends only on the query."""
    content = query @ key.mT if query.shape[-1] == key.shape[-1] else 0.0
    return right_location(query, key, weight) + content


# --- local_m_weights ---------------------------------------------------------------------------


def soft(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0.0)


def right_local_m(
    scores,
    lengths,
    half_width,
    *,
    centre=lambda steps, lengths: steps.expand(len(lengths), -1),
    window=lambda distance, half_width: distance.abs() <= half_width,
    real=lambda places, lengths: places < lengths,
    weigh=soft,
):
    places, steps = torch.arange(scores.shape[2]), torch.arange(scores.shape[1])
    distance = places - centre(steps, lengths)[:, :, None]
    mask = window(distance, half_width) & real(places, lengths[:, None, None])
    return weigh(scores, mask)


local_m = WrongAnswers(
    "local_m_weights", tests=("values", "padding", "beyond_the_end"), right=right_local_m
)


@witnesses(of="local_m_weights")
def local_m_calls(draw):
    yield call(draw.normal(2, 5, 5), torch.tensor([5, 5]), 1)
    yield call(draw.normal(2, 4, 7), torch.tensor([7, 4]), 2)
    yield call(draw.normal(1, 9, 9), torch.tensor([9]), 3)
    yield call(draw.normal(2, 9, 5), torch.tensor([5, 3]), 2)
    yield call(torch.zeros(1, 7, 4), torch.tensor([4]), 1)


local_m.fault(
    "masked after the softmax",
    """You set the weights outside the window to zero after the softmax, so rows sum to less than
    one. Mask the scores before it.""",
    weigh=lambda scores, mask: scores.softmax(-1) * mask,
)
local_m.fault(
    "masked scores set to 0",
    """You set the scores outside the window to 0, whose exponential is 1. Which score has the
    exponential 0?""",
    weigh=lambda scores, mask: (scores * mask).softmax(-1),
)
for name, message, window in (
    (
        "the edges are left out",
        "Your window leaves out the positions exactly D away. They belong to it.",
        lambda distance, half_width: distance.abs() < half_width,
    ),
    (
        "only earlier positions",
        "Your window ends at position t. It extends to both sides.",
        lambda distance, half_width: (distance <= 0) & (distance >= -half_width),
    ),
    (
        "D taken as the whole width",
        "Your window reaches only D / 2 to each side. It should reach D.",
        lambda distance, half_width: distance.abs() <= half_width / 2,
    ),
):
    local_m.fault(name, message, window=window)
local_m.fault(
    "padding is attended to",
    "Your windows include padding. Apply both masks: the window and the lengths.",
    but=("values",),
    real=lambda places, lengths: places < places + lengths + 1,
)
local_m.fault(
    "one window for all steps",
    "Your window does not move. The centre of step t is t.",
    centre=lambda steps, lengths: 0 * steps.expand(len(lengths), -1),
)
local_m.fault(
    "the centre stays inside the sentence",
    "Your centre stops at the last real position. Here the centre of step t is always t.",
    but=("values",),
    centre=lambda steps, lengths: torch.minimum(steps, lengths[:, None] - 1),
)
local_m.fault(
    "NaN for an empty window",
    "For a step without a real position you divide 0 by 0, which is NaN. Its weights should be 0.",
    fails=("beyond_the_end",),
    weigh=lambda scores, mask: scores.masked_fill(~mask, -torch.inf).softmax(-1),
)
local_m.fault(
    "an empty window becomes the whole sentence",
    """Your step without a real position gets equal weights, because you mask with a finite number.
    Its weights should be 0.""",
    fails=("beyond_the_end",),
    weigh=lambda scores, mask: scores.masked_fill(~mask, -1e9).softmax(-1),
)

# --- local_p_weights ---------------------------------------------------------------------------


def gaussian(distance, half_width):
    return torch.exp(-(distance**2) / (2 * (half_width / 2) ** 2))


def right_local_p(
    scores,
    position,
    lengths,
    half_width,
    *,
    centre=as_given,
    window=lambda distance, half_width: distance.abs() <= half_width,
    real=lambda places, lengths: places < lengths,
    weigh=lambda scores, window, real: soft(scores, window & real),
    bell=gaussian,
    last=as_given,
):
    places = torch.arange(scores.shape[2])
    distance = places - centre(position)[:, :, None]
    mask = real(places, lengths[:, None, None]).expand(scores.shape)
    inside = weigh(scores, window(distance, half_width), mask)
    return last(inside * bell(distance, half_width))


local_p = WrongAnswers(
    "local_p_weights",
    tests=("values", "between_words", "padding", "gradient"),
    right=right_local_p,
)


@witnesses(of="local_p_weights")
def local_p_calls(draw):
    full, cut = torch.tensor([9, 9]), torch.tensor([4, 5])
    yield call(draw.normal(2, 5, 9), draw.integers(1, 8, 2, 5).float(), full, 3.0)
    yield call(draw.normal(2, 3, 9), draw.uniform(2, 3, low=0.6, high=7.9), full, 2.7)
    yield call(draw.normal(2, 3, 9), draw.uniform(2, 3, low=2.2, high=3.8), cut, 2.6)
    one = draw.normal(1, 3, 9), draw.uniform(1, 3, low=0.6, high=7.9), torch.tensor([9]), 2.7
    yield call(*one, via=student.grad(1))


for name, message, bell in (
    (
        "sigma is D",
        "Your Gaussian is too wide: sigma is D / 2, not D.",
        lambda distance, width: gaussian(distance, 2 * width),
    ),
    (
        "no 2 in the exponent",
        "Your Gaussian is too narrow: the 2 in the denominator of the exponent is missing.",
        lambda distance, width: gaussian(distance, width) ** 2,
    ),
    (
        "sigma is not squared",
        "You divide by 2 sigma. The exponent has the square of sigma.",
        lambda distance, width: torch.exp(-(distance**2) / width),
    ),
    (
        "no Gaussian",
        "You return the softmax without the Gaussian. The centre then gets no gradient.",
        lambda distance, width: 1.0,
    ),
):
    local_p.fault(name, message, bell=bell)
local_p.fault(
    "normalised again",
    """You normalise the rows again after the Gaussian, or add its logarithm to the scores. The
    product is not renormalised.""",
    last=lambda weights: weights / weights.sum(-1, keepdim=True),
)
local_p.fault(
    "softmax over the whole sentence",
    "Your softmax runs over all real positions. It should run only over those inside the window.",
    weigh=lambda scores, window, real: soft(scores, real),
)
local_p.fault(
    "masked after the softmax",
    """You apply the window after a softmax over all real positions, so the weights inside are too
    small.""",
    weigh=lambda scores, window, real: soft(scores, real) * window,
)
local_p.fault(
    "the centre is rounded",
    "You round the centre. It may be fractional, and rounding has no gradient.",
    but=("values",),
    centre=torch.round,
)
local_p.fault(
    "no gradient to the centre",
    "Your values are right, but you detach the position, so it gets no gradient.",
    fails=("gradient",),
    centre=torch.detach,
)
local_p.fault(
    "positions count from 1",
    "Your windows are one position too far left. Positions count from 0.",
    centre=lambda position: position - 1,
)
local_p.fault(
    "the edges are left out",
    "Your window leaves out the positions exactly D away. They belong to it.",
    fails=("values",),
    window=lambda distance, half_width: distance.abs() < half_width,
)
local_p.fault(
    "padding is attended to",
    "Your windows include padding. Use the argument `lengths`.",
    fails=("padding",),
    real=lambda places, lengths: places < places + lengths + 1,
)

# --- unroll_fed --------------------------------------------------------------------------------


def mixing_cell(weight_input, weight_state):
    def cell(entered, state):
        return torch.tanh(entered @ weight_input + state @ weight_state)

    cell.weight_input, cell.weight_state = weight_input, weight_state
    return cell


def looking(weight, shift):
    def look(state):
        return torch.tanh(state @ weight + shift)

    look.weight, look.shift = weight, shift
    return look


def right_fed(
    cell,
    look,
    words,
    state,
    *,
    first=lambda state, look: torch.zeros_like(state),
    enter=lambda word, fed: [word, fed],
    reads=lambda new, old: new,
    feed=lambda vectors, state, fed: vectors[-1],
    carry=lambda state, vector: state,
    last=lambda vectors, states: vectors,
):
    fed, vectors, states = first(state, look), [], []
    for word in words.unbind(1):
        old, state = state, cell(torch.cat(enter(word, fed), dim=-1), state)
        vectors.append(look(reads(state, old)))
        states.append(state)
        fed = feed(vectors, state, fed)
        state = carry(state, vectors[-1])
    return torch.stack(last(vectors, states), dim=1)


fed = WrongAnswers("unroll_fed", tests=("first_step", "later_steps"), right=right_fed)


@witnesses(of="unroll_fed")
def fed_calls(draw):
    for length in (1, 2, 4):
        cell = mixing_cell(draw.normal(8, 5, std=0.5), draw.normal(5, 5, std=0.5))
        look = looking(draw.normal(5, 5), draw.normal(5))
        words, state = draw.normal(2, length, 3), draw.normal(2, 5)
        yield call(cell, look, words, state)
        yield call(cell, look, words, state, via=student.grad(2))


for name, message, feed in (
    (
        "nothing is fed",
        "You feed zeros at every step. Feed the last attentional vector.",
        lambda vectors, state, fed: fed,
    ),
    (
        "the state is fed",
        "You feed the state of the cell. Feed the attentional vector.",
        lambda vectors, state, fed: state,
    ),
    (
        "no gradient through the fed vector",
        "Your values are right, but you detach the fed vector. Gradients pass through it.",
        lambda vectors, state, fed: vectors[-1].detach(),
    ),
    (
        "one step late",
        """Your step t gets the vector of step t - 2. Check the order in which you use and replace
        it.""",
        lambda vectors, state, fed: vectors[-2] if len(vectors) > 1 else fed,
    ),
):
    fed.fault(name, message, fails=("later_steps",), feed=feed)
fed.fault(
    "the vector replaces the state",
    "You also use the attentional vector as the state. State and fed vector are separate.",
    fails=("later_steps",),
    carry=lambda state, vector: vector,
)
fed.fault(
    "the vector comes before the token",
    "You put the attentional vector before the token. The contract has the token first.",
    enter=lambda word, fed: [fed, word],
)
fed.fault(
    "the states are returned",
    "You return the states of the cell. The contract asks for the attentional vectors.",
    last=lambda vectors, states: states,
)
for name, first in (
    ("the first step is fed the state", lambda state, look: state),
    ("attention before the first step", lambda state, look: look(state)),
):
    fed.fault(name, "You feed a nonzero vector at the first step. Feed zeros there.", first=first)
fed.fault(
    "attention from the old state",
    "You attend with the state *before* the update, as Bahdanau does. Luong updates it first.",
    reads=lambda new, old: old,
)

# --- fixed_attention ---------------------------------------------------------------------------


def right_attention(
    query,
    key,
    value,
    mask,
    *,
    size=lambda query, key: query.shape[-1],
    weigh=lambda scores, mask: scores.masked_fill(~mask, -torch.inf).softmax(-1),
):
    return weigh(query @ key.mT / size(query, key) ** 0.5, mask[:, None]) @ value


def by_keys(query, key):
    return key.shape[-2]


def late(scores, mask):
    return scores.softmax(-1) * mask


attention = WrongAnswers(
    "fixed_attention", tests=("everything_counts", "padding"), right=right_attention
)


@witnesses(of="fixed_attention")
def attention_calls(draw):
    for lengths in ([7, 7], [4, 6]):
        mask = torch.arange(7) < torch.tensor(lengths)[:, None]
        yield call(draw.normal(2, 3, 5), draw.normal(2, 7, 5), draw.normal(2, 7, 4), mask)


attention.fault(
    "nothing repaired",
    "This is the broken function. By what does it divide the scores, and when does it mask?",
    size=by_keys,
    weigh=late,
)
attention.fault(
    "the mask still comes too late",
    "The scale is now right, but masked positions still take part in the softmax.",
    fails=("padding",),
    weigh=late,
)
attention.fault(
    "still scaled by the number of keys",
    "The mask is now right, but you still divide by the root of the number of keys.",
    size=by_keys,
)
attention.fault(
    "masked scores set to 0",
    "You set masked scores to 0, whose exponential is 1. Which score has the exponential 0?",
    fails=("padding",),
    weigh=lambda scores, mask: (scores * mask).softmax(-1),
)

# --- check_general -----------------------------------------------------------------------------

check = WrongAnswers("check_general", tests=("plain", "mutants"))


@check("a symmetric matrix", fails=("mutants",))
def check_symmetric(candidate):
    """Your matrix is symmetric, so a transposed one gives the same scores. Use one that is not."""
    query, key = torch.arange(24.0).view(2, 3, 4).sin(), torch.arange(40.0).view(2, 5, 4).cos()
    got = candidate(query, key, torch.eye(4))
    return got.shape == (2, 3, 5) and bool(torch.allclose(got, query @ key.mT, atol=1e-4))


@check("one query and one key", fails=("mutants",))
def check_one(candidate):
    """You test one query and one key. Exchanged axes and keys of another row show only with several
    of each.
    """
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    got = candidate(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 1.0]]), weight)
    return bool(torch.allclose(got, torch.tensor([[31.0]])))


@check("only the shape is compared")
def check_shape(candidate):
    """You compare only the shape. Most wrong scores have the right shape."""
    got = candidate(torch.ones(2, 3, 4), torch.ones(2, 5, 6), torch.ones(4, 6))
    return got.shape == (2, 3, 5)
