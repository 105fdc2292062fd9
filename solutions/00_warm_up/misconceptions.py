"""Wrong answers to the warm-up, each with its name, its message and the tests it must fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

INF = torch.inf


def no_zero(total):
    return total.masked_fill(total == 0, 1.0)


def highest(scores, dim):
    largest = scores.amax(dim, keepdim=True)
    return largest.masked_fill(largest == -INF, 0.0)


# --- stable_softmax ----------------------------------------------------------------------------


def right_softmax(
    scores,
    dim=-1,
    *,
    top=highest,
    power=torch.exp,
    total=lambda weights, dim: weights.sum(dim, keepdim=True),
):
    weights = power(scores - top(scores, dim))
    return weights / total(weights, dim)


softmax = WrongAnswers(
    "stable_softmax",
    tests=("values", "axis", "large_scores", "minus_infinity", "gradient"),
    right=right_softmax,
)
softmax.detached()


@witnesses(of="stable_softmax")
def softmax_calls(draw):
    square = draw.normal(3, 3)
    yield call(torch.tensor([0.0, 1.0]), dim=0)
    yield call(square, dim=0)
    yield call(square, dim=1)
    yield call(draw.normal(2, 3, 5), dim=1)
    yield call(draw.normal(5, dtype=torch.float64))
    yield call(torch.tensor([0.0, 110.0]), dim=0)  # too much above the smallest, not above the mean
    yield call(torch.tensor([120.0, 119.0]), dim=0)
    yield call(torch.tensor([[500.0, 499.0], [-500.0, -501.0]]), dim=1)
    yield call(torch.tensor([0.0, -INF]), dim=0)
    yield call(draw.normal(4), dim=0, via=student.grad(0))


softmax.fault(
    "log-softmax returned",
    "You return the logarithms of the weights. Weights lie between 0 and 1; yours are negative.",
    lambda scores, dim=-1: torch.log_softmax(scores, dim),
)
softmax.fault(
    "no max subtraction",
    """You exponentiate the scores as they are. From about 89 on, the exponential of a float32 is
    infinite, and infinity over infinity is NaN. What may you do to all scores of a row first?""",
    fails=("large_scores",),
    top=lambda scores, dim: 0.0,
)
for what, least in (("mean", torch.mean), ("smallest score", torch.amin)):
    softmax.fault(
        f"the {what} is subtracted",
        f"""You subtract the {what} of a row. Scores far above it still overflow. Which number
        makes every exponential at most 1?""",
        fails=("large_scores", "minus_infinity"),
        top=lambda scores, dim, least=least: least(scores, dim, keepdim=True),
    )
softmax.fault(
    "one maximum for the whole tensor",
    """You subtract the largest score of the whole tensor from every row. In a row far below it all
    exponentials are zero, and zero over zero is NaN. Which maximum belongs to a row?""",
    fails=("large_scores",),
    top=lambda scores, dim: scores.max(),
)
softmax.fault(
    "a small constant added to every exponential",
    """You add a small constant to the exponentials. A score of minus infinity then gets a little
    weight. Can the sum of a row be zero once its maximum is subtracted?""",
    fails=("minus_infinity",),
    power=lambda shifted: shifted.exp() + 1e-9,
)
softmax.fault(
    "scores instead of exponentials",
    """You divide the scores by their sum, without the exponential. Negative scores then get
    negative weights, and a sum near zero makes them huge.""",
    top=lambda scores, dim: 0.0,
    power=lambda scores: scores,
)
softmax.fault(
    "sigmoid instead of softmax",
    """You map each score by itself, so a weight does not depend on the other scores. In a softmax
    the scores of a row compete for a total of one.""",
    top=lambda scores, dim: 0.0,
    power=torch.sigmoid,
    total=lambda weights, dim: 1.0,
)
softmax.fault(
    "normalised over everything",
    """You divide by the sum over the whole tensor, so all weights together add up to one. Each row
    along `dim` has to add up to one by itself.""",
    but=("values",),
    total=lambda weights, dim: weights.sum(),
)


@softmax("the input is changed in place")
def softmax_in_place(scores, dim=-1):
    """You write into `scores` itself, so the caller's tensor has changed. Look for `-=`, `/=` and
    for methods that end in an underscore.
    """
    scores -= scores.amax(dim, keepdim=True)
    return right_softmax(scores, dim)


# --- masked_softmax ----------------------------------------------------------------------------


def hidden(scores, allowed):
    return scores.masked_fill(~allowed, -INF)


def shares(scores, allowed, dim, *, top=highest):
    weights = (hidden(scores, allowed) - top(hidden(scores, allowed), dim)).exp()
    return weights / no_zero(weights.sum(dim, keepdim=True))


def right_masked(
    scores,
    attn_mask,
    dim=-1,
    *,
    weigh=shares,
):
    """The right answer; a fault replaces its one step."""
    return weigh(scores, attn_mask, dim)


masked = WrongAnswers(
    "masked_softmax",
    tests=("values", "no_influence", "shapes", "large_scores", "empty_rows", "gradient"),
    right=right_masked,
)
masked.detached()


@witnesses(of="masked_softmax")
def masked_calls(draw):
    square, mask = draw.normal(3, 3), draw.mask(3, 3)
    yield call(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([True, False, True]))
    yield call(torch.tensor([0.0, 200.0, 2.0]), torch.tensor([True, False, True]))
    yield call(square, mask)
    yield call(square, mask.t(), dim=0)
    yield call(draw.normal(2, 3, 5), draw.mask(3, 5))
    yield call(torch.tensor([120.0, 0.0]), torch.tensor([True, True]))
    yield call(torch.tensor([[500.0, 499.0], [-500.0, -501.0]]), torch.tensor([True, True]))
    empty = torch.tensor([[True, True, False], [False, False, False]])
    yield call(draw.normal(2, 3), empty)
    yield call(draw.normal(2, 3), empty, via=student.grad(0))


masked.fault(
    "masked after the softmax",
    """You set weights to zero after the softmax, so a row no longer adds up to one. Forbidden
    scores still take part in the sum that every weight is divided by.""",
    but=("empty_rows",),
    weigh=lambda scores, allowed, dim: scores.softmax(dim) * allowed,
)
masked.fault(
    "forbidden scores set to 0",
    """You set forbidden scores to 0, but a score of 0 has exponential 1: it still takes its share.
    Which score has the exponential zero?""",
    weigh=lambda scores, allowed, dim: (scores * allowed).softmax(dim),
)
masked.fault(
    "the mask is added",
    """You add the mask as a number: an allowed score grows by 1, and a forbidden one still gets
    weight. Which score has the exponential zero?""",
    weigh=lambda scores, allowed, dim: (scores + allowed).softmax(dim),
)
masked.fault(
    "not negative enough",
    """You subtract a number from forbidden scores that is too small to silence them. Their weight
    is small, not zero, and a large forbidden score still counts.""",
    weigh=lambda scores, allowed, dim: (scores - 10.0 * ~allowed).softmax(dim),
)
masked.fault(
    "an empty row shares its weight evenly",
    """Where everything is forbidden, all positions get the same weight instead of none. A large
    negative score such as -1e9 silences a position only beside a larger one.""",
    fails=("empty_rows",),
    weigh=lambda scores, allowed, dim: scores.masked_fill(~allowed, -1e9).softmax(dim),
)
masked.fault(
    "empty rows are forgotten",
    """A row in which nothing is allowed has only scores of minus infinity, and its softmax is NaN.
    What are the maximum and the sum of such a row?""",
    fails=("empty_rows",),
    weigh=lambda scores, allowed, dim: hidden(scores, allowed).softmax(dim),
)
masked.fault(
    "gradient of an empty row is NaN",
    """You replace the NaN of an empty row after it has arisen. The values are then right, but the
    gradient still runs backwards through NaN: let no NaN arise.""",
    fails=("gradient",),
    weigh=lambda scores, allowed, dim: (
        (scores + torch.zeros_like(scores).masked_fill(~allowed, -INF)).softmax(dim).nan_to_num(0.0)
    ),
)
masked.fault(
    "the maximum includes forbidden scores",
    """You take the maximum over all scores, the forbidden ones too. When it is a forbidden one,
    the allowed exponentials all vanish.""",
    fails=("no_influence",),
    weigh=lambda scores, allowed, dim: shares(
        scores, allowed, dim, top=lambda *_: highest(scores, dim)
    ),
)
masked.fault(
    "no max subtraction",
    """You exponentiate the scores as they are, and large ones become infinite. Use what you found
    for `stable_softmax`, on the allowed scores.""",
    fails=("large_scores",),
    weigh=lambda scores, allowed, dim: shares(scores, allowed, dim, top=lambda *_: 0.0),
)

# --- weighted_mean -----------------------------------------------------------------------------


def right_mean(
    weights,
    value,
    *,
    read=lambda weights: weights,
    total=lambda weights: no_zero(weights.sum(-1, keepdim=True)),
    last=lambda mean: mean,
):
    weights = read(weights)
    return last((weights[..., None] * value).sum(-2) / total(weights))


mean = WrongAnswers(
    "weighted_mean",
    tests=("values", "any_weights", "shapes", "zero_weights", "gradient"),
    right=right_mean,
)
mean.detached()


@witnesses(of="weighted_mean")
def mean_calls(draw):
    yield call(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    yield call(torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    yield call(draw.uniform(3, 3), draw.normal(3, 3))
    yield call(draw.uniform(2, 3, 5), draw.normal(2, 1, 5, 7))
    yield call(draw.uniform(5, dtype=torch.float64), draw.normal(2, 5, 3, dtype=torch.float64))
    yield call(torch.tensor([0.3, 0.1]), torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    yield call(torch.zeros(2), draw.normal(2, 3))
    yield call(torch.zeros(2), draw.normal(2, 3), via=student.grad(1))
    yield call(draw.uniform(2, 3), draw.normal(2, 3, 2), via=student.grad(0, 1))


mean.fault(
    "not divided by the total weight",
    "You return the weighted sum. It is the mean only when the weights add up to one.",
    fails=("any_weights", "gradient"),
    total=lambda weights: 1.0,
)
mean.fault(
    "divided by the number of vectors",
    "You divide by how many vectors there are. Divide by how much weight there is.",
    total=lambda weights: weights.shape[-1],
)
mean.fault(
    "softmax of the weights",
    """You apply a softmax to the weights, which makes them more even. They are weights already:
    dividing by their sum is enough.""",
    read=lambda weights: weights.softmax(-1),
)
mean.fault(
    "squared weights",
    """The weights enter twice, so heavy vectors count for too much. Each weight is a factor once
    above and once in the total.""",
    read=torch.square,
)
mean.fault(
    "zero weight is forgotten",
    "Where all weights are 0 you divide zero by zero, which is NaN. By what can you divide there?",
    fails=("zero_weights", "gradient"),
    total=lambda weights: weights.sum(-1, keepdim=True),
)
mean.fault(
    "NaN repaired afterwards",
    """You divide zero by zero and replace the NaN by 0. The result is right, but its gradient
    still passes through the NaN: choose what to divide by before you divide.""",
    fails=("gradient",),
    read=lambda weights: weights / weights.sum(-1, keepdim=True),
    total=lambda weights: 1.0,
    last=lambda mean: mean.nan_to_num(0.0),
)
mean.fault(
    "only large totals are divided out",
    """You divide by at least 1, which avoids zero over zero. A total between 0 and 1 has to be
    divided out too: half the weights give the same mean.""",
    fails=("any_weights",),
    total=lambda weights: weights.sum(-1, keepdim=True).clamp(min=1.0),
)

# --- logsumexp ---------------------------------------------------------------------------------


def right_logsumexp(
    scores,
    dim=-1,
    *,
    top=highest,
    back=lambda logs, top: logs + top,
):
    largest = top(scores, dim)
    return back((scores - largest).exp().sum(dim, keepdim=True).log(), largest).squeeze(dim)


logsumexp = WrongAnswers(
    "logsumexp",
    tests=("values", "axis", "large_scores", "minus_infinity", "gradient"),
    right=right_logsumexp,
)
logsumexp.detached()


@witnesses(of="logsumexp")
def logsumexp_calls(draw):
    square = draw.normal(3, 3)
    yield call(torch.tensor([0.0, 1.0]), dim=0)
    yield call(square, dim=0)
    yield call(square, dim=1)
    yield call(draw.normal(2, 3, 5), dim=1)
    yield call(draw.normal(5, dtype=torch.float64))
    yield call(torch.tensor([1000.0, 1000.0]), dim=0)
    yield call(torch.tensor([[500.0, 499.0], [-500.0, -501.0]]), dim=1)
    yield call(torch.tensor([[0.0, -INF], [-INF, -INF]]), dim=1)
    yield call(draw.normal(3, 4), dim=1, via=student.grad(0))
    yield call(draw.normal(1, 3), dim=1)


logsumexp.fault(
    "no max subtraction",
    """You exponentiate the scores as they are. From about 89 on that is infinite in float32, and
    below about -104 it is zero. What may be taken out of the sum before `exp`?""",
    fails=("large_scores",),
    top=lambda scores, dim: torch.zeros_like(scores.amax(dim, keepdim=True)),
)
logsumexp.fault(
    "one maximum for the whole tensor",
    """You subtract the largest score of the whole tensor from every row. A row far below it has
    exponentials that are all zero, with logarithm minus infinity.""",
    fails=("large_scores",),
    top=lambda scores, dim: scores.max().expand_as(scores.amax(dim, keepdim=True)),
)
logsumexp.fault(
    "minus infinity minus itself",
    """In a row of nothing but minus infinity the maximum is minus infinity too, and its difference
    with itself is NaN. What can you subtract from such a row?""",
    fails=("minus_infinity",),
    top=lambda scores, dim: scores.amax(dim, keepdim=True),
)
for largest in (highest, lambda scores, dim: scores.amax(dim, keepdim=True)):
    logsumexp.fault(
        "the maximum is not added back",
        """You subtract the maximum before `exp` and never add it again. In a softmax it cancels
        between numerator and denominator; here nothing cancels it.""",
        top=largest,
        back=lambda logs, top: logs,
    )

# --- cosine_similarity -------------------------------------------------------------------------


def right_cosine(
    a,
    b,
    *,
    read=lambda x: x,
    size=lambda x: x.norm(dim=-1),
    divide=lambda dot, of_a, of_b: dot / no_zero(of_a * of_b),
):
    a, b = read(a), read(b)
    return divide((a * b).sum(-1), size(a), size(b))


cosine = WrongAnswers(
    "cosine_similarity",
    tests=("values", "shapes", "zero_vector", "gradient"),
    right=right_cosine,
)
cosine.detached()


@witnesses(of="cosine_similarity")
def cosine_calls(draw):
    yield call(torch.tensor([0.03, 0.04]), torch.tensor([0.4, 0.3]))
    yield call(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 3.0]))
    yield call(torch.tensor([1.0, 2.0]), torch.tensor([-4.0, -5.0]))
    yield call(draw.normal(3, 3), draw.normal(3, 3))
    yield call(draw.normal(3, 1, 5), draw.normal(7, 5))
    yield call(draw.normal(2, 3, dtype=torch.float64), draw.normal(2, 3, dtype=torch.float64))
    yield call(torch.zeros(3), draw.normal(3))
    yield call(torch.zeros(3), draw.normal(3), via=student.grad(1))
    yield call(
        draw.uniform(3, low=1, high=2), draw.uniform(3, low=1, high=2), via=student.grad(0, 1)
    )


cosine.fault(
    "dot product alone",
    """You return the dot product, which grows with the lengths of the vectors. A cosine lies
    between -1 and 1, whatever the lengths.""",
    divide=lambda dot, of_a, of_b: dot,
)
for which in (0, 1):
    cosine.fault(
        "one length is missing",
        """You divide by the length of one of the two vectors only. Making the other one longer
        must change nothing either.""",
        divide=lambda dot, *sizes, which=which: dot / no_zero(sizes[which]),
    )
cosine.fault(
    "lengths without the square root",
    "You divide by sums of squares, which are the squares of the lengths.",
    size=lambda x: x.square().sum(-1),
)
cosine.fault(
    "one length for all vectors",
    "You take the norm of the whole tensor. Each vector has a length of its own.",
    but=("values",),
    size=torch.norm,
)
cosine.fault(
    "zero vectors are forgotten",
    "A zero vector has length 0, and zero over zero is NaN. By what can you divide there?",
    fails=("zero_vector", "gradient"),
    divide=lambda dot, of_a, of_b: dot / (of_a * of_b),
)
cosine.fault(
    "NaN repaired afterwards",
    """You divide zero by zero and replace the NaN by 0. The result is right, but its gradient
    still passes through the NaN: choose what to divide by before you divide.""",
    fails=("gradient",),
    divide=lambda dot, of_a, of_b: (dot / (of_a * of_b)).nan_to_num(0.0),
)
cosine.fault(
    "only long vectors are divided by their length",
    """You divide by at least 1, which avoids zero over zero. Short vectors have a direction as
    well: their lengths have to be divided out too.""",
    fails=("values", "shapes"),
    divide=lambda dot, of_a, of_b: dot / (of_a * of_b).clamp(min=1.0),
)
cosine.fault(
    "correlation instead of cosine",
    """You subtract the mean from each vector first; the result is a correlation. A cosine compares
    the vectors as they are.""",
    read=lambda x: x - x.mean(-1, keepdim=True),
)


@cosine("a matrix product for all shapes", but=("values",))
def cosine_by_matrix_product(a, b):
    """You compare every row of `a` with every row of `b` by a matrix product. The other axes
    broadcast: rows are compared with each other only where the shapes ask for it.
    """
    a, b = (x / no_zero(x.norm(dim=-1, keepdim=True)) for x in (a, b))
    return a @ b.mT if b.dim() > 1 else a @ b


# --- fixed_word_in_context ---------------------------------------------------------------------


def unit(words):
    return words / no_zero(words.norm(dim=-1, keepdim=True))


def right_words(words, *, compare=unit, dim=-1, take=lambda words: words):
    return (compare(words) @ compare(words).T).softmax(dim) @ take(words)


in_context = WrongAnswers(
    "fixed_word_in_context", tests=("example", "sentences"), right=right_words
)


@witnesses(of="fixed_word_in_context")
def word_calls(draw):
    words = draw.normal(4, 3, std=2.0)
    words[1] = 0.0
    yield call(words)
    yield call(torch.tensor([[1.0, 0.0], [1.0, 2.0]]))


@in_context("nothing is fixed")
def words_broken(words):
    """This behaves exactly like `broken_word_in_context`. Find its three faults: compare each line
    with a promise in the list above.
    """
    words /= no_zero(words.norm(dim=-1, keepdim=True))
    return (words @ words.T).softmax(0) @ words


@in_context("the caller's words are changed")
def words_in_place(words):
    """The sentence that was passed in has changed after the call. Look for an assignment that
    writes into `words`.
    """
    words /= no_zero(words.norm(dim=-1, keepdim=True))
    return (words @ words.T).softmax(-1) @ words


in_context.fault(
    "mean of shortened words",
    """You average the words after bringing them to length one. The lengths leave the comparison,
    not the mean: the mean is of the words as they are.""",
    take=unit,
)
in_context.fault(
    "weights add up along the wrong axis",
    """The weights of one word over all others do not add up to one. Check the `dim` of the
    softmax: which index is the word that is replaced?""",
    fails=("sentences",),
    dim=0,
)
in_context.fault(
    "dot products instead of cosines",
    """Long words attract more weight than short ones: the scores are dot products. A cosine does
    not depend on how long the words are.""",
    compare=lambda words: words,
)

# --- check_softmax -----------------------------------------------------------------------------

check = WrongAnswers("check_softmax", tests=("plain", "mutants"))


@witnesses(of="check_softmax")
def check_calls(draw):
    for steps in ({}, {"power": torch.exp2}, {"top": lambda scores, dim: 0.0}) * 3:
        yield call(lambda scores, dim=-1, steps=steps: right_softmax(scores, dim, **steps))


@check("accepts everything")
def check_nothing(candidate):
    """Your test never returns False, so it catches no wrong softmax. Call the candidate and
    compare what it returns.
    """
    return True


@check("rejects everything")
def check_refuse(candidate):
    """Your test returns False even for a right softmax. Do you leave room for rounding, and what
    do you return in the end?
    """
    return False


@check("looks at the sums only")
def check_sums(candidate):
    """You check that rows add up to one, and nothing else. Equal weights add up to one too."""
    weights = candidate(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), dim=-1)
    return bool(torch.allclose(weights.sum(-1), torch.ones(2)))


@check("one small example", fails=("mutants",))
def check_one(candidate):
    """You compare one small row with the right weights. Your test does not see large scores, other
    axes and changes of the input.
    """
    weights = candidate(torch.tensor([1.0, 2.0, 3.0]), dim=0)
    return bool(torch.allclose(weights, torch.tensor([0.0900, 0.2447, 0.6652]), atol=1e-3))
