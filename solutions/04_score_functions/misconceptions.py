"""Wrong answers on the way to seven scores: name, message, and the tests they must fail."""

import math

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

wrong_dot_score = WrongAnswers("dot_score", tests=("values", "batch"))
wrong_scaled_dot_score = WrongAnswers("scaled_dot_score", tests=("values", "other_scale"))
wrong_general_score = WrongAnswers("general_score", tests=("values", "sizes_and_batch"))
wrong_additive_score = WrongAnswers("additive_score", tests=("values", "batch"))
wrong_concat_score = WrongAnswers("concat_score", tests=("values", "batch", "memory"))
wrong_location_score = WrongAnswers("location_score", tests=("values", "short_source"))
wrong_cosine_score = WrongAnswers("cosine_score", tests=("values", "sharpness", "zero_vector"))
wrong_local_m_weights = WrongAnswers(
    "local_m_weights", tests=("values", "padding", "beyond_the_end")
)
wrong_local_p_weights = WrongAnswers(
    "local_p_weights", tests=("values", "between_words", "padding", "gradient")
)
wrong_unroll_fed = WrongAnswers("unroll_fed", tests=("first_step", "later_steps"))
wrong_fixed_attention = WrongAnswers("fixed_attention", tests=("everything_counts", "padding"))
wrong_check_general = WrongAnswers("check_general", tests=("plain", "mutants"))


def turned(key):
    return key.transpose(-2, -1)


def first_row(key):
    """The keys of the first set for all sets."""
    return key.reshape(-1, *key.shape[-2:])[0].expand_as(key)


# --- dot_score ---------------------------------------------------------------------------------


@witnesses(of="dot_score")
def dot_calls(draw):
    yield call(draw.normal(2, 3), draw.normal(5, 3))
    yield call(draw.normal(2, 3, 5), draw.normal(2, 7, 5))
    yield call(draw.normal(3, 2, 3, 5), draw.normal(3, 2, 2, 5))


@wrong_dot_score("rows and columns exchanged")
def dot_exchanged(query, key):
    """Your scores stand with the keys in rows and the queries in columns. The softmax of the next
    step runs along the last axis, and that has to be the axis of the keys.
    """
    return key @ turned(query)


@wrong_dot_score("already scaled")
def dot_scaled(query, key):
    """You divide by the root of the size. That is the scaled dot product, the next exercise; this
    one is the plain product.
    """
    return query @ turned(key) / query.shape[-1] ** 0.5


@wrong_dot_score("a mean over the entries")
def dot_mean(query, key):
    """You average the products of the entries instead of summing them: your scores shrink as the vectors
    get longer.
    """
    return query @ turned(key) / query.shape[-1]


@wrong_dot_score("the cosine")
def dot_cosine(query, key):
    """You divide by the lengths of the vectors, which is the cosine of exercise 4. In a dot product
    long vectors get large scores.
    """
    unit = torch.nn.functional.normalize
    return unit(query, dim=-1) @ turned(unit(key, dim=-1))


@wrong_dot_score("a softmax is in it already")
def dot_softmax(query, key):
    """You return weights: your rows sum to one. Scores are the numbers before the softmax, because a
    mask has to come in between.
    """
    return (query @ turned(key)).softmax(dim=-1)


@wrong_dot_score("a distance")
def dot_distance(query, key):
    """You return minus the squared distance between query and key. It ranks keys of one length like
    a dot product, but not keys of different lengths.
    """
    return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(-1)


@wrong_dot_score("the keys of the first set for all", fails=("batch",))
def dot_first_row(query, key):
    """Every query of the batch meets the keys of the first set. Each set has keys of its own; look
    at what your product does with the leading axes.
    """
    return query @ turned(first_row(key))


@wrong_dot_score("the absolute value")
def dot_absolute(query, key):
    """Your scores are never negative. A key that points away from the query must get a lower score
    than one that has nothing to do with it.
    """
    return (query @ turned(key)).abs() + 0.0 * query.sum()


# --- scaled_dot_score --------------------------------------------------------------------------


@witnesses(of="scaled_dot_score")
def scaled_calls(draw):
    yield call(draw.normal(2, 3), draw.normal(5, 3))
    yield call(draw.normal(2, 2, 7), draw.normal(2, 3, 7))
    for scale in (0.7, 0.0, 2.0):
        yield call(draw.normal(2, 3), draw.normal(5, 3), scale=scale)


@wrong_scaled_dot_score("no scale", fails=("values",))
def scaled_not(query, key, scale=None):
    """Without a scale of the caller you do not scale at all, and the scores grow with the size of
    the vectors. Look at what `scale=None` stands for.
    """
    return (1.0 if scale is None else scale) * (query @ turned(key))


@wrong_scaled_dot_score("divided by the size", fails=("values",))
def scaled_by_size(query, key, scale=None):
    """You divide by the size itself. A sum of E independent products spreads less than E times as
    far as one product: compare the formula of the exercise.
    """
    return (1 / query.shape[-1] if scale is None else scale) * (query @ turned(key))


@wrong_scaled_dot_score("scaled by the number of keys", fails=("values",))
def scaled_by_keys(query, key, scale=None):
    """Your scale depends on how many keys there are. What makes a dot product large is how many
    entries are summed; look at which axis that is.
    """
    return (key.shape[-2] ** -0.5 if scale is None else scale) * (query @ turned(key))


@wrong_scaled_dot_score("multiplied by the root", fails=("values",))
def scaled_up(query, key, scale=None):
    """You multiply by the root of the size, so the scores grow twice: once from the sum and once
    from you. The scale should undo the growth.
    """
    return (query.shape[-1] ** 0.5 if scale is None else scale) * (query @ turned(key))


@wrong_scaled_dot_score("the given scale is ignored", fails=("other_scale",))
def scaled_deaf(query, key, scale=None):
    """You always use the usual scale, also when the caller gives another one. Look at where your
    function reads its last argument.
    """
    return query @ turned(key) / query.shape[-1] ** 0.5


@wrong_scaled_dot_score("divided by the given scale", fails=("other_scale",))
def scaled_divided(query, key, scale=None):
    """A scale that is given multiplies the scores; you divide by it. The default has the root in its
    denominator already.
    """
    if scale is None:
        return query @ turned(key) / query.shape[-1] ** 0.5
    return query @ turned(key) / scale


@wrong_scaled_dot_score("both scales at once", fails=("other_scale",))
def scaled_twice(query, key, scale=None):
    """A scale that is given takes the place of the usual one; you apply both. Look at your two
    factors.
    """
    return (1.0 if scale is None else scale) * (query @ turned(key)) / query.shape[-1] ** 0.5


@wrong_scaled_dot_score("a scale of 0 counts as none", fails=("other_scale",))
def scaled_falsy(query, key, scale=None):
    """You take the usual scale whenever the given one is false in Python's eyes, and 0 is. Ask for
    the value that really means "none given".
    """
    return (scale or query.shape[-1] ** -0.5) * (query @ turned(key))


# --- general_score -----------------------------------------------------------------------------


@witnesses(of="general_score")
def general_calls(draw):
    yield call(draw.normal(3, 5), draw.normal(7, 5), weight=draw.normal(5, 5))
    yield call(draw.normal(2, 3, 5), draw.normal(2, 7, 5), weight=draw.normal(5, 5))
    yield call(draw.normal(2, 3, 5), draw.normal(2, 7, 3), weight=draw.normal(5, 3))


def general(query, key, weight):
    return query @ weight @ turned(key)


@wrong_general_score("the matrix is transposed")
def general_transposed(query, key, weight):
    """You let the matrix act the other way round: it has one row for each entry of the query and one
    column for each entry of the key. With two sizes that are equal nothing complains.
    """
    return query @ weight.T @ turned(key)


@wrong_general_score("the matrix is left out")
def general_dot(query, key, weight):
    """Your scores do not depend on the matrix: this is the plain dot product. It also needs vectors
    of one size.
    """
    return query @ turned(key)


@wrong_general_score("rows and columns exchanged")
def general_exchanged(query, key, weight):
    """Your scores have the keys in rows and the queries in columns. One row of scores belongs to
    one query.
    """
    return turned(general(query, key, weight))


@wrong_general_score("scaled as well")
def general_scaled(query, key, weight):
    """You divide by the root of a size. Luong's score has no scale; the matrix can learn one."""
    return general(query, key, weight) / key.shape[-1] ** 0.5


@wrong_general_score("a tanh too many")
def general_tanh(query, key, weight):
    """You squash the product into the range from -1 to 1. The hyperbolic tangent belongs to the
    additive score; here nothing bounds the scores.
    """
    return general(query, key, weight).tanh()


@wrong_general_score("the matrix acts on both sides")
def general_both(query, key, weight):
    """You send the query *and* the key through the matrix. Between query and key it stands once."""
    return (query @ weight) @ turned(key @ weight)


@wrong_general_score("the keys of the first set for all", fails=("sizes_and_batch",))
def general_first_row(query, key, weight):
    """Every query of the batch meets the keys of the first set. Each set has keys of its own."""
    return general(query, first_row(key), weight)


@wrong_general_score("a softmax is in it already")
def general_softmax(query, key, weight):
    """You return weights that sum to one. Scores are the numbers before the softmax."""
    return general(query, key, weight).softmax(-1)


# --- additive_score ----------------------------------------------------------------------------


@witnesses(of="additive_score")
def additive_calls(draw):
    square = {"weight_query": draw.normal(5, 5), "weight_key": draw.normal(5, 5)}
    yield call(draw.normal(5, 5), draw.normal(5, 5), **square, v=draw.normal(5))
    yield call(draw.normal(2, 5), draw.normal(2, 5), **square, v=draw.normal(5))
    mixed = {"weight_query": draw.normal(7, 5), "weight_key": draw.normal(7, 3)}
    yield call(draw.normal(2, 5), draw.normal(3, 3), **mixed, v=draw.normal(7))
    yield call(draw.normal(2, 2, 5), draw.normal(2, 3, 3), **mixed, v=draw.normal(7))


def layer(query, key, weight_query, weight_key):
    return (query @ weight_query.T).unsqueeze(-2), (key @ weight_key.T).unsqueeze(-3)


@wrong_additive_score("no tanh")
def additive_linear(query, key, weight_query, weight_key, v):
    """There is no hyperbolic tangent between the sum and v. Without it the query adds the same
    number to all its scores, and a softmax does not even notice that there is a query.
    """
    asked, answers = layer(query, key, weight_query, weight_key)
    return (asked + answers) @ v


@wrong_additive_score("tanh before the sum")
def additive_early(query, key, weight_query, weight_key, v):
    """You squash the part of the query and the part of the key by themselves and add afterwards.
    Then each acts alone, and the score cannot depend on how the two go together.
    """
    asked, answers = layer(query, key, weight_query, weight_key)
    return (asked.tanh() + answers.tanh()) @ v


@wrong_additive_score("v is left out")
def additive_sum(query, key, weight_query, weight_key, v):
    """You add up the hidden units, each with the weight 1. The vector v says how much each counts,
    and with which sign.
    """
    asked, answers = layer(query, key, weight_query, weight_key)
    return torch.tanh(asked + answers).sum(-1)


@wrong_additive_score("product instead of sum")
def additive_product(query, key, weight_query, weight_key, v):
    """You multiply the two projections. The score has its name from adding them."""
    asked, answers = layer(query, key, weight_query, weight_key)
    return torch.tanh(asked * answers) @ v


@wrong_additive_score("the key is subtracted")
def additive_minus(query, key, weight_query, weight_key, v):
    """You take the difference of the two projections, as in a distance. Here they are added; a
    matrix could turn the sign if that were better.
    """
    asked, answers = layer(query, key, weight_query, weight_key)
    return torch.tanh(asked - answers) @ v


@wrong_additive_score("a sigmoid")
def additive_sigmoid(query, key, weight_query, weight_key, v):
    """Your hidden units lie between 0 and 1. The paper's lie between -1 and 1; look at the name of
    the function.
    """
    asked, answers = layer(query, key, weight_query, weight_key)
    return torch.sigmoid(asked + answers) @ v


@wrong_additive_score("rows and columns exchanged")
def additive_exchanged(query, key, weight_query, weight_key, v):
    """Your scores have the keys in rows and the queries in columns. Look at the two axes that you
    add with unsqueeze.
    """
    asked, answers = layer(query, key, weight_query, weight_key)
    return turned(torch.tanh(asked + answers) @ v)


@wrong_additive_score("one matrix for both")
def additive_one_matrix(query, key, weight_query, weight_key, v):
    """The key goes through the matrix of the query. Queries and keys are vectors of different kinds,
    and each has a matrix of its own.
    """
    asked, answers = layer(query, key, weight_query, weight_query)
    return torch.tanh(asked + answers) @ v


@wrong_additive_score("the keys of the first set for all", fails=("batch",))
def additive_first_row(query, key, weight_query, weight_key, v):
    """Every query of the batch meets the keys of the first set. Each set has keys of its own."""
    asked, answers = layer(query, first_row(key), weight_query, weight_key)
    return torch.tanh(asked + answers) @ v


# --- concat_score ------------------------------------------------------------------------------


@witnesses(of="concat_score")
def concat_calls(draw):
    yield call(draw.normal(2, 5), draw.normal(3, 5), weight=draw.normal(7, 10), v=draw.normal(7))
    yield call(draw.normal(2, 5), draw.normal(7, 3), weight=draw.normal(7, 8), v=draw.normal(7))
    yield call(
        draw.normal(2, 2, 3), draw.normal(2, 5, 2), weight=draw.normal(3, 5), v=draw.normal(3)
    )


def halves(query, key, weight):
    of_query, of_key = weight.split([query.shape[-1], key.shape[-1]], dim=1)
    return layer(query, key, of_query, of_key)


@wrong_concat_score("the key comes first", but=("memory",))
def concat_key_first(query, key, weight, v):
    """You concatenate the key and then the query. The first columns of the matrix belong to the
    query.
    """
    of_key, of_query = weight.split([key.shape[-1], query.shape[-1]], dim=1)
    asked, answers = layer(query, key, of_query, of_key)
    return torch.tanh(asked + answers) @ v


@wrong_concat_score("no tanh", but=("memory",))
def concat_linear(query, key, weight, v):
    """There is no hyperbolic tangent. Without it the query adds one and the same number to all its
    scores, and the softmax takes that out again: the query would not matter.
    """
    asked, answers = halves(query, key, weight)
    return (asked + answers) @ v


@wrong_concat_score("v is left out", but=("memory",))
def concat_sum(query, key, weight, v):
    """You add up the hidden units, each with the weight 1. The vector v says how much each counts."""
    asked, answers = halves(query, key, weight)
    return torch.tanh(asked + answers).sum(-1)


@wrong_concat_score("v inside the tanh", but=("memory",))
def concat_v_inside(query, key, weight, v):
    """You multiply by v first and squash afterwards, so that no hidden unit can count more than 1.
    Look at the order of the three operations in the formula.
    """
    asked, answers = halves(query, key, weight)
    return torch.tanh((asked + answers) * v).sum(-1)


@wrong_concat_score("tanh before the sum", but=("memory",))
def concat_early(query, key, weight, v):
    """You squash the two halves by themselves and add afterwards. The matrix acts on the whole
    concatenation before the hyperbolic tangent does.
    """
    asked, answers = halves(query, key, weight)
    return (asked.tanh() + answers.tanh()) @ v


@wrong_concat_score("rows and columns exchanged", but=("memory",))
def concat_exchanged(query, key, weight, v):
    """Your scores have the keys in rows and the queries in columns. One row of scores belongs to one
    query.
    """
    asked, answers = halves(query, key, weight)
    return turned(torch.tanh(asked + answers) @ v)


@wrong_concat_score("every pair is built", fails=("memory",))
def concat_pairs(query, key, weight, v):
    """Your numbers are right, but you build the concatenation of every query with every key. Most of
    that memory holds copies: the same query appears once for each key. Ask what the matrix does to
    each half by itself.
    """
    many = (query.shape[-2], key.shape[-2])
    left = query.unsqueeze(-2).expand(*query.shape[:-2], *many, query.shape[-1])
    right = key.unsqueeze(-3).expand(*key.shape[:-2], *many, key.shape[-1])
    return torch.tanh(torch.cat([left, right], dim=-1) @ weight.T) @ v


@wrong_concat_score("the keys of the first set for all", fails=("batch",))
def concat_first_row(query, key, weight, v):
    """Every query of the batch meets the keys of the first set. Each set has keys of its own."""
    asked, answers = halves(query, first_row(key), weight)
    return torch.tanh(asked + answers) @ v


# --- location_score ----------------------------------------------------------------------------


@witnesses(of="location_score")
def location_calls(draw):
    yield call(draw.normal(3, 5), draw.normal(5, 5), weight=draw.normal(5, 5))
    yield call(draw.normal(3, 5), draw.normal(4, 5), weight=draw.normal(5, 5))
    yield call(draw.normal(2, 3, 5), draw.normal(2, 4, 3), weight=draw.normal(9, 5))


@wrong_location_score("the last rows", fails=("short_source",))
def location_last(query, key, weight):
    """For a short source you use the last rows of the matrix. Row 0 is the place of the first word,
    however long the sentence is.
    """
    return query @ weight[-key.shape[-2] :].T


@wrong_location_score("all rows", fails=("short_source",))
def location_all(query, key, weight):
    """You return a score for every row of the matrix, also for places where there is no word. Look
    at how many keys there are.
    """
    return query @ weight.T


@wrong_location_score("the rest is padded with zeros", fails=("short_source",))  # fmt: skip
def location_padded(query, key, weight):
    """You keep the places without a word and give them the score 0, which is no small score for a
    softmax. They must not be there at all.
    """
    real = torch.arange(weight.shape[0]) < key.shape[-2]
    return (query @ weight.T) * real


@wrong_location_score("places count from one")
def location_from_one(query, key, weight):
    """You leave out row 0. Places count from 0 here, as rows of a tensor do."""
    return query @ weight[1 : key.shape[-2] + 1].T


@wrong_location_score("the keys are asked")
def location_keys(query, key, weight):
    """You multiply the matrix with the keys. A location score does not look at them: the state of the
    decoder alone says where to look.
    """
    return turned(key @ weight[: query.shape[-2]].T)


@wrong_location_score("a softmax is in it already")
def location_softmax(query, key, weight):
    """You return weights that sum to one. In the paper the softmax stands in the same equation; in
    this exercise scores are the numbers before it.
    """
    return (query @ weight[: key.shape[-2]].T).softmax(-1)


@wrong_location_score("rows and columns exchanged")
def location_exchanged(query, key, weight):
    """Your scores have the places in rows and the queries in columns. One row of scores belongs to
    one query.
    """
    return turned(query @ weight[: key.shape[-2]].T)


@wrong_location_score("the first query for all")
def location_first_query(query, key, weight):
    """All your queries get the scores of the first one. Places do not depend on the keys, but they do
    depend on the query.
    """
    return query[..., :1, :].expand_as(query) @ weight[: key.shape[-2]].T


# --- cosine_score ------------------------------------------------------------------------------


@witnesses(of="cosine_score")
def cosine_calls(draw):
    yield call(draw.normal(3, 5), draw.normal(7, 5))
    yield call(1e-4 * draw.normal(3, 5), 1e-4 * draw.normal(7, 5))
    yield call(draw.normal(2, 3, 5), draw.normal(2, 7, 5), sharpness=2.5)
    yield call(draw.normal(3, 5) * torch.tensor([[0.0], [1.0], [1.0]]), draw.normal(2, 5))


def safe(query, key, lengths, sharpness=1.0):
    return sharpness * torch.where(lengths > 0, query @ turned(key) / lengths, 0.0)


def two_lengths(query, key, p=2):
    return query.norm(dim=-1, p=p)[..., :, None] * key.norm(dim=-1, p=p)[..., None, :]


@wrong_cosine_score("the dot product")
def cosine_dot(query, key, sharpness=1.0):
    """You do not divide by the lengths of the vectors: a long key gets a large score whatever its
    direction.
    """
    return sharpness * (query @ turned(key))


@wrong_cosine_score("only the keys are normalised")
def cosine_keys_only(query, key, sharpness=1.0):
    """You divide by the length of the key and not by that of the query. Your scores still grow with
    the query.
    """
    return safe(query, key, key.norm(dim=-1)[..., None, :].expand(*query.shape[:-1], -1), sharpness)


@wrong_cosine_score("divided by squared lengths")
def cosine_squared(query, key, sharpness=1.0):
    """You divide by the squares of the lengths; a root is missing."""
    return safe(query, key, two_lengths(query, key) ** 2, sharpness)


@wrong_cosine_score("lengths from absolute values")
def cosine_absolute(query, key, sharpness=1.0):
    """You measure length as a sum of absolute values. The length in a cosine is the root of a sum of
    squares.
    """
    return safe(query, key, two_lengths(query, key, p=1), sharpness)


@wrong_cosine_score("one length for all vectors")
def cosine_whole(query, key, sharpness=1.0):
    """You divide by the length of all queries together and of all keys together. Every vector has a
    length of its own; look at the axis of your norm.
    """
    lengths = (query.norm() * key.norm()).expand(*query.shape[:-1], key.shape[-2])
    return safe(query, key, lengths, sharpness)


@wrong_cosine_score("a small constant below", fails=("values",))
def cosine_constant(query, key, sharpness=1.0):
    """You add a small constant to the product of the lengths. Long vectors do not feel it, but for short ones it is
    as large as the product: their cosine comes out too small. Only a length of exactly 0 needs care.
    """
    lengths = query.norm(dim=-1)[..., :, None] * key.norm(dim=-1)[..., None, :]
    return sharpness * (query @ key.transpose(-2, -1)) / (lengths + 1e-8)


@wrong_cosine_score("NaN for a zero vector", fails=("zero_vector",))
def cosine_nan(query, key, sharpness=1.0):
    """A vector of zeros gives you 0/0. One empty word would then poison the whole softmax; look at
    what you divide by.
    """
    return sharpness * (query @ turned(key)) / two_lengths(query, key)


@wrong_cosine_score("the sharpness is ignored", fails=("sharpness",))
def cosine_blunt(query, key, sharpness=1.0):
    """Your scores are the same for every sharpness. A cosine is at most 1, so without the factor a
    softmax over many keys stays flat.
    """
    return safe(query, key, two_lengths(query, key))


@wrong_cosine_score("divided by the sharpness", fails=("sharpness",))
def cosine_temperature(query, key, sharpness=1.0):
    """You divide by the sharpness, as one does by a temperature. A larger sharpness must make the
    scores larger.
    """
    return safe(query, key, two_lengths(query, key)) / sharpness


# --- local_m_weights ---------------------------------------------------------------------------


@witnesses(of="local_m_weights")
def local_m_calls(draw):
    yield call(draw.normal(2, 5, 5), torch.tensor([5, 5]), 1)
    yield call(draw.normal(2, 4, 7), torch.tensor([7, 4]), 2)
    yield call(draw.normal(1, 9, 9), torch.tensor([9]), 3)
    yield call(draw.normal(2, 9, 5), torch.tensor([5, 3]), 2)
    yield call(torch.zeros(1, 7, 4), torch.tensor([4]), 1)


def places_of(scores, lengths):
    places = torch.arange(scores.shape[2])
    return places - torch.arange(scores.shape[1])[:, None], places < lengths[:, None, None]


def soft(scores, mask):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0.0)


@wrong_local_m_weights("cut after the softmax")
def local_m_cut(scores, lengths, half_width):
    """You take the softmax over all places and set those outside the window to zero afterwards, so
    your rows sum to less than one. The window has to act before the softmax.
    """
    distance, real = places_of(scores, lengths)
    return scores.softmax(-1) * ((distance.abs() <= half_width) & real)


@wrong_local_m_weights("masked scores set to 0")
def local_m_zero(scores, lengths, half_width):
    """You set the scores outside the window to 0. To a softmax 0 is a score like any other, and
    larger than every negative one.
    """
    distance, real = places_of(scores, lengths)
    return (scores * ((distance.abs() <= half_width) & real)).softmax(-1)


@wrong_local_m_weights("the edges are left out")
def local_m_strict(scores, lengths, half_width):
    """Your window leaves out the places that are exactly D away. It has 2D + 1 places; count them."""
    distance, real = places_of(scores, lengths)
    return soft(scores, (distance.abs() < half_width) & real)


@wrong_local_m_weights("only what came before")
def local_m_causal(scores, lengths, half_width):
    """Your window ends at step t. The whole source has been read, so nothing forbids to look at the
    places behind it; the window reaches to both sides.
    """
    distance, real = places_of(scores, lengths)
    return soft(scores, (distance <= 0) & (distance >= -half_width) & real)


@wrong_local_m_weights("D taken as the whole width")  # fmt: skip
def local_m_narrow(scores, lengths, half_width):
    """Your window is D places wide in all. D is its reach to *each* side."""
    distance, real = places_of(scores, lengths)
    return soft(scores, (distance.abs() <= half_width / 2) & real)


@wrong_local_m_weights("padding is attended to", but=("values",))
def local_m_padding(scores, lengths, half_width):
    """Your windows reach into the padding. Two masks have to hold at once; look at an argument that
    you do not use.
    """
    distance, real = places_of(scores, lengths)
    return soft(scores, (distance.abs() <= half_width).expand(len(real), -1, -1))


@wrong_local_m_weights("NaN for an empty window", fails=("beyond_the_end",))  # fmt: skip
def local_m_nan(scores, lengths, half_width):
    """A step whose window holds no word gives you a softmax over nothing, 0/0. Such a step has
    nothing to look at: its weights are zeros.
    """
    distance, real = places_of(scores, lengths)
    mask = (distance.abs() <= half_width) & real
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


@wrong_local_m_weights("an empty window becomes the whole sentence", fails=("beyond_the_end",))  # fmt: skip
def local_m_large_number(scores, lengths, half_width):
    """A step whose window holds no word gives you equal weights for all places, padding included:
    that is what a very negative number in place of minus infinity does to a row that holds nothing
    else.
    """
    distance, real = places_of(scores, lengths)
    mask = (distance.abs() <= half_width) & real
    return scores.masked_fill(~mask, -1e9).softmax(-1)


@wrong_local_m_weights("the centre stays inside the sentence", but=("values",))  # fmt: skip
def local_m_clamped(scores, lengths, half_width):
    """You hold the centre of the window at the last word once the steps have passed it. That is a
    sensible idea and another method: here the centre of step t is t.
    """
    places, steps = torch.arange(scores.shape[2]), torch.arange(scores.shape[1])
    centre = torch.minimum(steps, lengths[:, None] - 1)  # (B, L)
    window = (places - centre[:, :, None]).abs() <= half_width
    return soft(scores, window & (places < lengths[:, None, None]))


@wrong_local_m_weights("softmax along the steps")
def local_m_steps(scores, lengths, half_width):
    """Your softmax runs along the target steps: columns sum to one instead of rows. Look at its
    axis.
    """
    distance, real = places_of(scores, lengths)
    mask = (distance.abs() <= half_width) & real
    return scores.masked_fill(~mask, -torch.inf).softmax(-2).masked_fill(~mask, 0.0)


# --- local_p_weights ---------------------------------------------------------------------------


@witnesses(of="local_p_weights")
def local_p_calls(draw):
    full, cut = torch.tensor([9, 9]), torch.tensor([4, 5])
    yield call(draw.normal(2, 5, 9), draw.integers(1, 8, 2, 5).float(), full, 3.0)
    yield call(draw.normal(2, 3, 9), draw.uniform(2, 3, low=0.6, high=7.9), full, 2.7)
    yield call(draw.normal(2, 3, 9), draw.uniform(2, 3, low=2.2, high=3.8), cut, 2.6)
    yield call(
        draw.normal(1, 3, 9),
        draw.uniform(1, 3, low=0.6, high=7.9),
        torch.tensor([9]),
        2.7,
        via=student.grad(1),
    )


def parts(scores, position, lengths, half_width):
    """Distance to the centre, the window, and the real places."""
    places = torch.arange(scores.shape[2])
    distance = places - position[:, :, None]
    real = places < lengths[:, None, None]
    return distance, (distance.abs() <= half_width) & real, real


def gaussian(distance, sigma):
    return torch.exp(-(distance**2) / (2 * sigma**2))


@wrong_local_p_weights("sigma is D")
def local_p_sigma(scores, position, lengths, half_width):
    """Your Gaussian is twice as wide as it should be, and at the edge of the window it has hardly
    fallen. Look at what sigma is.
    """
    distance, mask, _ = parts(scores, position, lengths, half_width)
    return soft(scores, mask) * gaussian(distance, half_width)


@wrong_local_p_weights("no 2 in the exponent")
def local_p_exponent(scores, position, lengths, half_width):
    """Your Gaussian falls too fast: a factor is missing in the denominator of its exponent."""
    distance, mask, _ = parts(scores, position, lengths, half_width)
    return soft(scores, mask) * torch.exp(-(distance**2) / (half_width / 2) ** 2)


@wrong_local_p_weights("normalised again")
def local_p_normalised(scores, position, lengths, half_width):
    """You make the rows sum to one again after the Gaussian (adding its logarithm to the scores does
    the same). In the paper a window far from every word also gives little in all.
    """
    distance, mask, _ = parts(scores, position, lengths, half_width)
    weights = soft(scores, mask) * gaussian(distance, half_width / 2)
    return weights / weights.sum(-1, keepdim=True)


@wrong_local_p_weights("softmax over the whole sentence")  # fmt: skip
def local_p_whole(scores, position, lengths, half_width):
    """Your softmax runs over all words, and only the Gaussian makes them fade. The words outside the
    window take part in the sum and keep a little weight of their own.
    """
    distance, _, real = parts(scores, position, lengths, half_width)
    return soft(scores, real.expand_as(scores)) * gaussian(distance, half_width / 2)


@wrong_local_p_weights("cut after the softmax")
def local_p_cut(scores, position, lengths, half_width):
    """You take the softmax over all words and cut out the window afterwards: the weights inside it
    are too small, by what the words outside got.
    """
    distance, mask, real = parts(scores, position, lengths, half_width)
    return soft(scores, real.expand_as(scores)) * mask * gaussian(distance, half_width / 2)


@wrong_local_p_weights("no Gaussian")
def local_p_plain(scores, position, lengths, half_width):
    """You return the softmax inside the window. Without the Gaussian the centre decides only which
    words are in, and no gradient could ever move it.
    """
    _, mask, _ = parts(scores, position, lengths, half_width)
    return soft(scores, mask)


@wrong_local_p_weights("the centre is rounded", but=("values",))  # fmt: skip
def local_p_rounded(scores, position, lengths, half_width):
    """You move the centre to the nearest word. It is a real number, and rounding stops the gradient
    that should move it.
    """
    distance, mask, _ = parts(scores, position.round(), lengths, half_width)
    return soft(scores, mask) * gaussian(distance, half_width / 2)


@wrong_local_p_weights("no gradient to the centre", fails=("gradient",))  # fmt: skip
def local_p_detached(scores, position, lengths, half_width):
    """Your numbers are right, but no gradient reaches the position: something cuts it off on the way
    through the Gaussian.
    """
    distance, mask, _ = parts(scores, position.detach(), lengths, half_width)
    return soft(scores, mask) * gaussian(distance, half_width / 2)


@wrong_local_p_weights("the edges are left out", fails=("values",))
def local_p_strict(scores, position, lengths, half_width):
    """Words exactly D away from the centre are missing in your window. Its edge belongs to it."""
    distance, mask, _ = parts(scores, position, lengths, half_width)
    inside = mask & (distance.abs() < half_width)
    return soft(scores, inside) * gaussian(distance, half_width / 2)


@wrong_local_p_weights("padding is attended to", fails=("padding",))
def local_p_padding(scores, position, lengths, half_width):
    """Your windows reach into the padding, and what stands there takes part in the softmax. Look at
    an argument that you do not use.
    """
    distance, _, _ = parts(scores, position, lengths, half_width)
    inside = soft(scores, distance.abs() <= half_width)
    return inside * gaussian(distance, half_width / 2)


@wrong_local_p_weights("places count from one")
def local_p_from_one(scores, position, lengths, half_width):
    """Your first word stands at place 1, so every window lies one word too far left. Places count
    from 0 here.
    """
    distance = torch.arange(1, scores.shape[2] + 1) - position[:, :, None]
    real = torch.arange(scores.shape[2]) < lengths[:, None, None]
    inside = soft(scores, (distance.abs() <= half_width) & real)
    return inside * gaussian(distance, half_width / 2)


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


@witnesses(of="unroll_fed")
def fed_calls(draw):
    for length in (1, 2, 4):
        cell = mixing_cell(draw.normal(8, 5, std=0.5), draw.normal(5, 5, std=0.5))
        look = looking(draw.normal(5, 5), draw.normal(5))
        words, state = draw.normal(2, length, 3), draw.normal(2, 5)
        yield call(cell, look, words, state)
        yield call(cell, look, words, state, via=student.grad(2))


def unroll(cell, look, words, state, first=None, feed=None, keep=None, join=None):
    """The loop with its parts exchangeable: what is fed first, what next, what is kept."""
    fed = torch.zeros_like(state) if first is None else first
    kept = []
    for t in range(words.shape[1]):
        pair = [words[:, t], fed]
        old, state = state, cell(torch.cat(pair if join is None else join(*pair), -1), state)
        vector = look(state)
        fed = vector if feed is None else feed(vector, state, fed)
        kept.append(vector if keep is None else keep(vector, state, old))
    return torch.stack(kept, dim=1)


@wrong_unroll_fed("nothing is fed", fails=("later_steps",))
def fed_nothing(cell, look, words, state):
    """Every step gets zeros instead of the last attentional vector. Then no step knows where the
    ones before it have looked.
    """
    return unroll(cell, look, words, state, feed=lambda vector, state, fed: fed)


@wrong_unroll_fed("the state is fed", fails=("later_steps",))
def fed_state(cell, look, words, state):
    """You feed the state of the cell, which the cell has anyway. What it lacks is what came out of
    the attention.
    """
    return unroll(cell, look, words, state, feed=lambda vector, state, fed: state)


@wrong_unroll_fed("no gradient through what is fed", fails=("later_steps",))
def fed_detached(cell, look, words, state):
    """Your numbers are right, but the vector that is fed has been cut out of the graph. A step could
    then not learn to leave word for the next one where it has looked.
    """
    return unroll(cell, look, words, state, feed=lambda vector, state, fed: vector.detach())


@wrong_unroll_fed("one step late", fails=("later_steps",))
def fed_late(cell, look, words, state):
    """Your attentional vectors arrive one step late: step t gets the vector of step t - 2. Look at
    the order in which you use and replace it.
    """
    fed, waiting, vectors = torch.zeros_like(state), torch.zeros_like(state), []
    for t in range(words.shape[1]):
        state = cell(torch.cat([words[:, t], fed], -1), state)
        fed, waiting = waiting, look(state)
        vectors.append(waiting)
    return torch.stack(vectors, dim=1)


@wrong_unroll_fed("the vector replaces the state", fails=("later_steps",))
def fed_replaced(cell, look, words, state):
    """You hand the attentional vector on as the state of the cell as well, and the state is lost.
    Two things travel from step to step.
    """
    fed, vectors = torch.zeros_like(state), []
    for t in range(words.shape[1]):
        state = fed = look(cell(torch.cat([words[:, t], fed], -1), state))
        vectors.append(fed)
    return torch.stack(vectors, dim=1)


@wrong_unroll_fed("the vector comes before the word")
def fed_first(cell, look, words, state):
    """You put the attentional vector in front of the word. The first entries of the input belong to
    the word; the weights of the cell count on that.
    """
    return unroll(cell, look, words, state, join=lambda word, fed: [fed, word])


@wrong_unroll_fed("the states are returned")
def fed_states(cell, look, words, state):
    """You return the states of the cell. The output layer reads the attentional vectors, which have
    seen the source.
    """
    return unroll(cell, look, words, state, keep=lambda vector, state, old: state)


@wrong_unroll_fed("the first step is fed the state")
def fed_start(cell, look, words, state):
    """Before the first step nobody has looked anywhere, so the vector that is fed is zero. You start
    with the initial state in its place.
    """
    return unroll(cell, look, words, state, first=state)


@wrong_unroll_fed("a look before the first step")
def fed_look_first(cell, look, words, state):
    """You let the attention look once before the first step. The loop starts with a vector of zeros."""
    return unroll(cell, look, words, state, first=look(state))


@wrong_unroll_fed("the old state looks")
def fed_old(cell, look, words, state):
    """The state *before* the update looks, which is Bahdanau's order. Luong moves first and looks
    afterwards; see which state you hand to `look`.
    """
    fed, vectors = torch.zeros_like(state), []
    for t in range(words.shape[1]):
        new = cell(torch.cat([words[:, t], fed], -1), state)
        fed = look(state)
        vectors.append(fed)
        state = new
    return torch.stack(vectors, dim=1)


# --- fixed_attention ---------------------------------------------------------------------------


@witnesses(of="fixed_attention")
def attention_calls(draw):
    for lengths in ([7, 7], [4, 6]):
        mask = torch.arange(7) < torch.tensor(lengths)[:, None]
        yield call(draw.normal(2, 3, 5), draw.normal(2, 7, 5), draw.normal(2, 7, 4), mask)


@wrong_fixed_attention("nothing repaired")
def attention_broken(query, key, value, mask):
    """This is the broken function itself: look at what the scores are divided by, and at when the
    mask acts.
    """
    scores = query @ turned(key) / math.sqrt(key.shape[-2])
    return (scores.softmax(-1) * mask[:, None]) @ value


@wrong_fixed_attention("the mask still comes too late", fails=("padding",))
def attention_late_mask(query, key, value, mask):
    """The scale is right now, but masked places still take part in the softmax, and what they got is
    missing from the others.
    """
    scores = query @ turned(key) / math.sqrt(key.shape[-1])
    return (scores.softmax(-1) * mask[:, None]) @ value


@wrong_fixed_attention("still scaled by the number of keys")
def attention_scale(query, key, value, mask):
    """The mask is right now, but the scores still depend on how many keys there are, padding
    included.
    """
    scores = query @ turned(key) / math.sqrt(key.shape[-2])
    return scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1) @ value


@wrong_fixed_attention("masked scores set to 0", fails=("padding",))
def attention_zero(query, key, value, mask):
    """You set the masked scores to 0 before the softmax, and 0 is a score like any other: see the
    first claim of the warm-up.
    """
    scores = query @ turned(key) / math.sqrt(key.shape[-1])
    return (scores * mask[:, None]).softmax(-1) @ value


# --- check_general -----------------------------------------------------------------------------


@wrong_check_general("a symmetric matrix", fails=("mutants",))
def check_symmetric(candidate):
    """Your matrix is its own transpose (the identity, say), so you cannot see which way round it
    acts, or whether it acts at all. Take one that changes when it is transposed.
    """
    generator = torch.Generator().manual_seed(0)
    query, key = (
        torch.randn(2, 3, 4, generator=generator),
        torch.randn(2, 5, 4, generator=generator),
    )
    got = candidate(query, key, torch.eye(4))
    return got.shape == (2, 3, 5) and bool(torch.allclose(got, query @ turned(key), atol=1e-4))


@wrong_check_general("one query and one key", fails=("mutants",))
def check_one(candidate):
    """You try one query and one key. Which axis is which, and whose keys are used, shows only when
    there are several of each.
    """
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    got = candidate(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 1.0]]), weight)
    return bool(torch.allclose(got, torch.tensor([[31.0]])))


@wrong_check_general("only the shape is looked at")
def check_shape(candidate):
    """You look at the shape and not at the numbers. Most wrong scores have the right shape."""
    got = candidate(torch.ones(2, 3, 4), torch.ones(2, 5, 6), torch.ones(4, 6))
    return got.shape == (2, 3, 5)
