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
    "You return the logarithms of the weights, which are negative. Weights lie between 0 and 1.",
    lambda scores, dim=-1: torch.log_softmax(scores, dim),
)
softmax.fault(
    "no max subtraction",
    """You exponentiate the raw scores, which overflows in float32 from about 89 on. What
    may you subtract from all scores of a row first?""",
    fails=("large_scores",),
    top=lambda scores, dim: 0.0,
)
for what, least in (("mean", torch.mean), ("smallest score", torch.amin)):
    softmax.fault(
        f"the {what} is subtracted",
        f"""You subtract the {what} of a row, so scores far above it still overflow. Which number
        makes every exponential at most 1?""",
        fails=("large_scores", "minus_infinity"),
        top=lambda scores, dim, least=least: least(scores, dim, keepdim=True),
    )
softmax.fault(
    "one maximum for the whole tensor",
    """You subtract the largest score of the whole tensor, so a row far below it becomes 0/0. Each
    row needs its own maximum.""",
    fails=("large_scores",),
    top=lambda scores, dim: scores.max(),
)
softmax.fault(
    "a small constant added to every exponential",
    """You add a small constant to the exponentials, so a score of minus infinity gets some weight.
    Can the sum be zero after you subtract the maximum?""",
    fails=("minus_infinity",),
    power=lambda shifted: shifted.exp() + 1e-9,
)
softmax.fault(
    "scores instead of exponentials",
    "You divide the scores by their sum. The exponential is missing.",
    top=lambda scores, dim: 0.0,
    power=lambda scores: scores,
)
softmax.fault(
    "sigmoid instead of softmax",
    "You map each score by itself. In a softmax the weights of a row sum to one.",
    top=lambda scores, dim: 0.0,
    power=torch.sigmoid,
    total=lambda weights, dim: 1.0,
)
softmax.fault(
    "normalised over everything",
    """You divide by the sum of the whole tensor. The weights along `dim` must sum to one in each
    row.""",
    but=("values",),
    total=lambda weights, dim: weights.sum(),
)


@softmax("the input is changed in place")
def softmax_in_place(scores, dim=-1):
    """You change the caller's `scores`. Look for `-=`, `/=` and methods that end in an underscore."""
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
    """You set weights to zero after the softmax, so a row sums to less than one. Mask the scores
    before the softmax.""",
    but=("empty_rows",),
    weigh=lambda scores, allowed, dim: scores.softmax(dim) * allowed,
)
masked.fault(
    "masked scores set to 0",
    "You set masked scores to 0, whose exponential is 1. Which score has the exponential 0?",
    weigh=lambda scores, allowed, dim: (scores * allowed).softmax(dim),
)
masked.fault(
    "the mask is added",
    """You add the mask as a number, so a masked score still gets weight. Which score has the
    exponential 0?""",
    weigh=lambda scores, allowed, dim: (scores + allowed).softmax(dim),
)
masked.fault(
    "not negative enough",
    "You subtract a finite number from masked scores. Their weight is then small, not zero.",
    weigh=lambda scores, allowed, dim: (scores - 10.0 * ~allowed).softmax(dim),
)
masked.fault(
    "an empty row shares its weight evenly",
    """If all positions are masked, yours get equal weights instead of 0. A large negative number
    such as -1e9 works only if another score is larger.""",
    fails=("empty_rows",),
    weigh=lambda scores, allowed, dim: scores.masked_fill(~allowed, -1e9).softmax(dim),
)
masked.fault(
    "empty rows become NaN",
    """If all positions are masked, your softmax gives NaN. What are the maximum and the sum of such
    a row?""",
    fails=("empty_rows",),
    weigh=lambda scores, allowed, dim: hidden(scores, allowed).softmax(dim),
)
masked.fault(
    "gradient of an empty row is NaN",
    """Your values are right, but you replace the NaN of an empty row afterwards, so its gradient is
    NaN. Prevent the NaN.""",
    fails=("gradient",),
    weigh=lambda scores, allowed, dim: (
        (scores + torch.zeros_like(scores).masked_fill(~allowed, -INF)).softmax(dim).nan_to_num(0.0)
    ),
)
masked.fault(
    "the maximum includes masked scores",
    """Your maximum includes masked scores. If the largest score is masked, all allowed exponentials
    can vanish.""",
    fails=("no_influence",),
    weigh=lambda scores, allowed, dim: shares(
        scores, allowed, dim, top=lambda *_: highest(scores, dim)
    ),
)
masked.fault(
    "no max subtraction",
    """You exponentiate the raw scores, so large ones overflow. Use the method of `stable_softmax`
    on the allowed scores.""",
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
    "You return the weighted sum. It is the mean only if the weights sum to one.",
    fails=("any_weights", "gradient"),
    total=lambda weights: 1.0,
)
mean.fault(
    "divided by the number of vectors",
    "You divide by the number of vectors. Divide by the sum of the weights.",
    total=lambda weights: weights.shape[-1],
)
mean.fault(
    "softmax of the weights",
    "You apply a softmax to the weights. They are already weights: divide by their sum.",
    read=lambda weights: weights.softmax(-1),
)
mean.fault(
    "squared weights",
    "You square the weights. Use each weight once in the sum and once in the divisor.",
    read=torch.square,
)
mean.fault(
    "zero weights become NaN",
    "If all weights are 0 you divide 0 by 0, which is NaN. By what can you divide then?",
    fails=("zero_weights", "gradient"),
    total=lambda weights: weights.sum(-1, keepdim=True),
)
mean.fault(
    "NaN repaired afterwards",
    """You divide 0 by 0 and replace the NaN afterwards, so the gradient is NaN. Choose another
    divisor before you divide.""",
    fails=("gradient",),
    read=lambda weights: weights / weights.sum(-1, keepdim=True),
    total=lambda weights: 1.0,
    last=lambda mean: mean.nan_to_num(0.0),
)
mean.fault(
    "only large totals are divided out",
    """You divide by at least 1. A total between 0 and 1 must be divided out, too: half the weights
    give the same mean.""",
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
    """You exponentiate the raw scores, which overflows in float32 from about 89 on and vanishes
    below about -104. What can you subtract before `exp`?""",
    fails=("large_scores",),
    top=lambda scores, dim: torch.zeros_like(scores.amax(dim, keepdim=True)),
)
logsumexp.fault(
    "one maximum for the whole tensor",
    """You subtract the largest score of the whole tensor, so a row far below it gives minus
    infinity. Each row needs its own maximum.""",
    fails=("large_scores",),
    top=lambda scores, dim: scores.max().expand_as(scores.amax(dim, keepdim=True)),
)
logsumexp.fault(
    "minus infinity minus itself",
    """In a row of only minus infinity you subtract minus infinity from itself, which is NaN. What
    can you subtract from such a row?""",
    fails=("minus_infinity",),
    top=lambda scores, dim: scores.amax(dim, keepdim=True),
)
for largest in (highest, lambda scores, dim: scores.amax(dim, keepdim=True)):
    logsumexp.fault(
        "the maximum is not added back",
        """You subtract the maximum and never add it back. In a softmax it cancels; here it does
        not.""",
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
    """You return the dot product, which grows with the lengths of the vectors. Divide by both
    lengths.""",
    divide=lambda dot, of_a, of_b: dot,
)
for which in (0, 1):
    cosine.fault(
        "one length is missing",
        "You divide by the length of only one vector. Divide by both lengths.",
        divide=lambda dot, *sizes, which=which: dot / no_zero(sizes[which]),
    )
cosine.fault(
    "lengths without the square root",
    "You divide by the squares of the lengths. Take their roots.",
    size=lambda x: x.square().sum(-1),
)
cosine.fault(
    "one length for all vectors",
    "You take the norm of the whole tensor. Each vector has its own length.",
    but=("values",),
    size=torch.norm,
)
cosine.fault(
    "zero vectors become NaN",
    "For a zero vector you divide 0 by 0, which is NaN. By what can you divide then?",
    fails=("zero_vector", "gradient"),
    divide=lambda dot, of_a, of_b: dot / (of_a * of_b),
)
cosine.fault(
    "NaN repaired afterwards",
    """You divide 0 by 0 and replace the NaN afterwards, so the gradient is NaN. Choose another
    divisor before you divide.""",
    fails=("gradient",),
    divide=lambda dot, of_a, of_b: (dot / (of_a * of_b)).nan_to_num(0.0),
)
cosine.fault(
    "only long vectors are divided by their length",
    "You divide by at least 1. Divide by the lengths of short vectors, too.",
    fails=("values", "shapes"),
    divide=lambda dot, of_a, of_b: dot / (of_a * of_b).clamp(min=1.0),
)
cosine.fault(
    "correlation instead of cosine",
    """You subtract the mean from each vector, which gives a correlation. A cosine uses the vectors
    unchanged.""",
    read=lambda x: x - x.mean(-1, keepdim=True),
)


@cosine("a matrix product for all shapes", but=("values",))
def cosine_by_matrix_product(a, b):
    """You compare every row of `a` with every row of `b`. The leading axes broadcast: pair rows as
    the shapes require.
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
    """This behaves exactly like `broken_word_in_context`. Compare each line with the contract to
    find its three faults.
    """
    words /= no_zero(words.norm(dim=-1, keepdim=True))
    return (words @ words.T).softmax(0) @ words


@in_context("the caller's words are changed")
def words_in_place(words):
    """You change the caller's `words`. Look for an assignment that writes into it."""
    words /= no_zero(words.norm(dim=-1, keepdim=True))
    return (words @ words.T).softmax(-1) @ words


in_context.fault(
    "mean of shortened words",
    "You average the normalised words. Normalise them for the comparison only.",
    take=unit,
)
in_context.fault(
    "weights add up along the wrong axis",
    "Your weights of one word do not sum to one. Check the `dim` of the softmax.",
    fails=("sentences",),
    dim=0,
)
in_context.fault(
    "dot products instead of cosines",
    """Your scores are dot products, so long vectors get more weight. A cosine does not depend on
    length.""",
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
    """Your test always returns True. Call the candidate and compare its result with your own
    numbers.
    """
    return True


@check("rejects everything")
def check_refuse(candidate):
    """Your test rejects a right softmax. Check your tolerance and your return value."""
    return False


@check("only the sums are compared")
def check_sums(candidate):
    """You only check that rows sum to one. Equal weights do so, too."""
    weights = candidate(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), dim=-1)
    return bool(torch.allclose(weights.sum(-1), torch.ones(2)))


@check("one small example", fails=("mutants",))
def check_one(candidate):
    """You compare only one small row. Test large scores, other axes and a changed input, too."""
    weights = candidate(torch.tensor([1.0, 2.0, 3.0]), dim=0)
    return bool(torch.allclose(weights, torch.tensor([0.0900, 0.2447, 0.6652]), atol=1e-3))
