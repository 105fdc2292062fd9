"""Wrong answers to the warm-up, each with its name, its message and the tests it must fail."""

import math

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

wrong_stable_softmax = WrongAnswers(
    "stable_softmax", tests=("values", "axis", "large_scores", "minus_infinity", "gradient")
)
wrong_logsumexp = WrongAnswers(
    "logsumexp", tests=("values", "axis", "large_scores", "minus_infinity", "gradient")
)
wrong_masked_softmax = WrongAnswers(
    "masked_softmax",
    tests=("values", "no_influence", "shapes", "large_scores", "empty_rows", "gradient"),
)
wrong_cosine_similarity = WrongAnswers(
    "cosine_similarity", tests=("values", "shapes", "zero_vector", "gradient")
)
wrong_weighted_mean = WrongAnswers(
    "weighted_mean", tests=("values", "any_weights", "shapes", "zero_weights", "gradient")
)
wrong_fixed_word_in_context = WrongAnswers("fixed_word_in_context", tests=("example", "sentences"))
wrong_check_softmax = WrongAnswers("check_softmax", tests=("plain", "mutants"))


def but(cells, *left_out):
    return [c for c in cells if c.split("-")[1] not in left_out]


@witnesses(of="stable_softmax")
def softmax_calls(draw):
    square = draw.normal(3, 3)
    yield call(torch.tensor([0.0, 1.0]), dim=0)
    yield call(square, dim=0)
    yield call(square, dim=1)
    yield call(draw.normal(2, 3, 5), dim=1)
    yield call(draw.normal(5, dtype=torch.float64))
    yield call(torch.tensor([120.0, 119.0]), dim=0)
    yield call(torch.tensor([[500.0, 499.0], [-500.0, -501.0]]), dim=1)
    yield call(torch.tensor([0.0, -torch.inf]), dim=0)
    yield call(draw.normal(4), dim=0, via=student.grad(0))


@wrong_stable_softmax("no max subtraction", fails=("large_scores",))
def softmax_naive(scores, dim=-1):
    """You exponentiate the scores as they are.
    From about 89 on, the exponential of a float32 is infinite, and infinity over infinity is NaN.
    Look at what may be done to all scores of a row before `exp` without changing the weights.
    """
    weights = scores.exp()
    return weights / weights.sum(dim, keepdim=True)


@wrong_stable_softmax("a small constant added to every exponential", fails=("minus_infinity",))
def softmax_with_epsilon(scores, dim=-1):
    """You add a small constant to the exponentials, perhaps to avoid a division by zero.
    A position that must get nothing, with a score of minus infinity, then gets a little.
    Look at whether the sum of a row can be zero at all once its maximum is subtracted.
    """
    weights = (scores - scores.amax(dim, keepdim=True)).exp() + 1e-9
    return weights / weights.sum(dim, keepdim=True)


@wrong_stable_softmax("one maximum for the whole tensor", fails=("large_scores",))
def softmax_global_max(scores, dim=-1):
    """You subtract the largest score of the whole tensor from every row.
    A row that lies far below it then has exponentials that are all zero, and zero over zero is NaN.
    Look at which maximum belongs to a row.
    """
    weights = (scores - scores.max()).exp()
    return weights / weights.sum(dim, keepdim=True)


@wrong_stable_softmax("dim is ignored", but=("values", "minus_infinity"))
def softmax_last_axis(scores, dim=-1):
    """You always normalise over the last axis, whatever `dim` says.
    Look at where `dim` enters each reduction.
    """
    return torch.softmax(scores, -1)


@wrong_stable_softmax("normalised over everything", but=("values",))
def softmax_over_all(scores, dim=-1):
    """You divide by the sum over the whole tensor, so all weights together add up to one.
    Each row along `dim` has to add up to one by itself.
    """
    weights = (scores - scores.amax(dim, keepdim=True)).exp()
    return weights / weights.sum()


@wrong_stable_softmax("log-softmax returned")
def softmax_log(scores, dim=-1):
    """You return the logarithms of the weights.
    Weights lie between 0 and 1; yours are negative.
    """
    return torch.log_softmax(scores, dim)


@wrong_stable_softmax("sigmoid instead of softmax")
def softmax_sigmoid(scores, dim=-1):
    """You squash each score by itself, so a weight does not depend on the other scores.
    In a softmax the scores of a row compete for a total of one.
    """
    return torch.sigmoid(scores)


@wrong_stable_softmax("cut off from the graph", fails=("gradient",))
def softmax_detached(scores, dim=-1):
    """The result has lost its connection to `scores`: no gradient can flow back.
    Look for `detach`, `item`, `numpy`, `no_grad` or a new `torch.tensor(...)`.
    """
    return torch.softmax(scores, dim).detach()


@wrong_stable_softmax("the input is changed in place")
def softmax_in_place(scores, dim=-1):
    """You write into `scores` itself, so the caller's tensor is no longer what it was.
    Look for `-=`, `/=` and for methods that end in an underscore.
    """
    scores -= scores.amax(dim, keepdim=True)
    weights = scores.exp()
    return weights / weights.sum(dim, keepdim=True)


@wrong_stable_softmax("scores instead of exponentials")
def softmax_linear(scores, dim=-1):
    """You divide the scores by their sum, without the exponential.
    Negative scores then get negative weights, and a sum near zero blows them up.
    """
    return scores / scores.sum(dim, keepdim=True)


@wrong_stable_softmax("powers of two")
def softmax_base_two(scores, dim=-1):
    """You raise 2, not e, to the scores, so all differences count for less.
    Look at the formula's base.
    """
    return torch.softmax(scores * math.log(2.0), dim)


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
    yield call(torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf]]), dim=1)
    yield call(draw.normal(3, 4), dim=1, via=student.grad(0))
    yield call(draw.normal(1, 3), dim=1)


@wrong_logsumexp("no max subtraction", fails=("large_scores",))
def logsumexp_naive(scores, dim=-1):
    """You exponentiate the scores as they are.
    From about 89 on that is infinite in float32, and below about -104 it is zero, with logarithm minus infinity.
    Look at what may be taken out of the sum before `exp`.
    """
    return scores.exp().sum(dim).log()


@wrong_logsumexp("the maximum is not added back")
def logsumexp_without_the_maximum(scores, dim=-1):
    """You take the maximum away before `exp` and leave it away.
    In a softmax it cancels between numerator and denominator; here there is nothing to cancel it.
    """
    largest = scores.amax(dim, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    return (scores - largest).exp().sum(dim).log()


@wrong_logsumexp("the summed axis is kept", but=("gradient",))
def logsumexp_keepdim(scores, dim=-1):
    """The axis that you sum over is still there, with size 1.
    The result should have one axis less than `scores`.
    """
    return torch.logsumexp(scores, dim, keepdim=True)


@wrong_logsumexp("one maximum for the whole tensor", fails=("large_scores",))
def logsumexp_global_max(scores, dim=-1):
    """You subtract the largest score of the whole tensor from every row.
    A row far below it has exponentials that are all zero, with logarithm minus infinity.
    """
    return (scores - scores.max()).exp().sum(dim).log() + scores.max()


@wrong_logsumexp("minus infinity minus itself", fails=("minus_infinity",))
def logsumexp_nan(scores, dim=-1):
    """In a row of nothing but minus infinity the maximum is minus infinity too.
    Its difference with itself is NaN; look at what to take away from such a row instead.
    """
    largest = scores.amax(dim, keepdim=True)
    return (scores - largest).exp().sum(dim).log() + largest.squeeze(dim)


@wrong_logsumexp("every axis of size 1 is dropped", fails=("axis",))
def logsumexp_squeezed(scores, dim=-1):
    """A bare `squeeze()` drops every axis of size 1, not only the one that you summed over.
    A batch of one sentence loses its batch axis that way.
    """
    return torch.logsumexp(scores, dim, keepdim=True).squeeze()


@wrong_logsumexp("mean instead of sum", but=("gradient",))
def logsumexp_mean(scores, dim=-1):
    """You take the mean of the exponentials where their sum is asked for.
    The result is then too small by the logarithm of the number of scores.
    """
    return torch.logsumexp(scores, dim) - math.log(scores.shape[dim])


@wrong_logsumexp("the plain maximum")
def logsumexp_max(scores, dim=-1):
    """You return the largest score alone.
    That is what remains when the others are far below; here they must count too.
    """
    return scores.amax(dim)


@wrong_logsumexp("cut off from the graph", fails=("gradient",))
def logsumexp_detached(scores, dim=-1):
    """The result has lost its connection to `scores`: no gradient can flow back.
    Look for `detach`, `item`, `numpy`, `no_grad` or a new `torch.tensor(...)`.
    """
    return torch.logsumexp(scores, dim).detach()


def guarded_softmax(scores, attn_mask, dim):
    weights = torch.softmax(scores.masked_fill(~attn_mask, -torch.inf), dim)
    return weights.masked_fill(~attn_mask, 0.0)


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


@wrong_masked_softmax("mask inverted")
def masked_inverted(scores, attn_mask, dim=-1):
    """You forbid the positions where the mask is True.
    In this course True means: may attend.
    """
    return guarded_softmax(scores, ~attn_mask, dim)


@wrong_masked_softmax("masked after the softmax", but=("empty_rows",))
def masked_after(scores, attn_mask, dim=-1):
    """You set weights to zero after the softmax, so the rest of a row no longer adds up to one.
    Forbidden scores still take part in the sum that everybody is divided by.
    """
    return torch.softmax(scores, dim) * attn_mask


@wrong_masked_softmax("forbidden scores set to 0")
def masked_zero_scores(scores, attn_mask, dim=-1):
    """You set forbidden scores to 0, but a score of 0 has exponential 1: it still takes its share.
    Look for the score whose exponential is zero.
    """
    return torch.softmax(scores * attn_mask, dim)


@wrong_masked_softmax("an empty row shares its weight evenly", fails=("empty_rows",))
def masked_large_negative(scores, attn_mask, dim=-1):
    """Where everything is forbidden, all positions get the same weight instead of none.
    A large negative score such as -1e9 does that: it silences a position only beside a larger one.
    """
    return torch.softmax(scores.masked_fill(~attn_mask, -1e9), dim)


@wrong_masked_softmax("empty rows are forgotten", fails=("empty_rows",))
def masked_nan_rows(scores, attn_mask, dim=-1):
    """A row in which nothing is allowed holds nothing but minus infinity, and its softmax is NaN.
    Look at what the maximum and the sum of such a row are.
    """
    return torch.softmax(scores.masked_fill(~attn_mask, -torch.inf), dim)


@wrong_masked_softmax("not negative enough")
def masked_minus_ten(scores, attn_mask, dim=-1):
    """You subtract a number from forbidden scores that is too small to silence them.
    Their weight is then small, not zero, and a large enough score speaks through.
    """
    return torch.softmax(scores - 10.0 * ~attn_mask, dim)


@wrong_masked_softmax("the maximum includes forbidden scores", fails=("no_influence",))
def masked_wrong_maximum(scores, attn_mask, dim=-1):
    """You take the maximum over all scores, the forbidden ones too.
    When it stands at a forbidden position, the allowed exponentials all vanish.
    """
    weights = (scores - scores.amax(dim, keepdim=True)).exp() * attn_mask
    total = weights.sum(dim, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


@wrong_masked_softmax("gradient of an empty row is NaN", fails=("gradient",))
def masked_nan_gradient(scores, attn_mask, dim=-1):
    """You mend the NaN of an empty row after it has arisen, which mends the values but not the gradient.
    It still runs backwards through NaN; see to it that no NaN arises in the first place.
    """
    bias = torch.zeros(attn_mask.shape, dtype=scores.dtype).masked_fill(~attn_mask, -torch.inf)
    return torch.softmax(scores + bias, dim).nan_to_num(0.0)


@wrong_masked_softmax("no max subtraction", fails=("large_scores",))
def masked_naive(scores, attn_mask, dim=-1):
    """You exponentiate the scores as they are, and large ones become infinite.
    Use what you found for `stable_softmax`, on the allowed scores.
    """
    weights = scores.masked_fill(~attn_mask, -torch.inf).exp()
    total = weights.sum(dim, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)


@wrong_masked_softmax("dim is ignored", fails=("shapes",))
def masked_last_axis(scores, attn_mask, dim=-1):
    """You always normalise over the last axis, whatever `dim` says.
    Look at where `dim` enters each reduction.
    """
    return guarded_softmax(scores, attn_mask, -1)


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


def lengths_of(a, b):
    lengths = a.norm(dim=-1) * b.norm(dim=-1)
    return lengths.masked_fill(lengths == 0, 1.0)


@wrong_cosine_similarity("dot product alone")
def cosine_dot(a, b):
    """You return the dot product, which grows with the lengths of the vectors.
    A cosine lies between -1 and 1, whatever the lengths.
    """
    return (a * b).sum(-1)


@wrong_cosine_similarity("one length is missing")
def cosine_one_length(a, b):
    """You divide by the length of one of the two vectors only.
    Making the other one longer must change nothing either.
    """
    length = a.norm(dim=-1)
    return (a * b).sum(-1) / length.masked_fill(length == 0, 1.0)


@wrong_cosine_similarity("lengths without the square root")
def cosine_squared_lengths(a, b):
    """You divide by sums of squares, which are the squares of the lengths.
    Look at what stands between a sum of squares and a length.
    """
    lengths = (a * a).sum(-1) * (b * b).sum(-1)
    return (a * b).sum(-1) / lengths.masked_fill(lengths == 0, 1.0)


@wrong_cosine_similarity("one length for all vectors", but=("values",))
def cosine_global_length(a, b):
    """You divide by the length of the whole tensor, all vectors together.
    Each vector has its own length, along the last axis.
    """
    length = a.norm() * b.norm()
    return (a * b).sum(-1) / length.masked_fill(length == 0, 1.0)


@wrong_cosine_similarity("distance instead of similarity")
def cosine_distance(a, b):
    """You return one minus the cosine, which is a distance: 0 for vectors that point the same way.
    The similarity of such vectors is 1.
    """
    return 1.0 - (a * b).sum(-1) / lengths_of(a, b)


@wrong_cosine_similarity("the sign is lost", fails=("values", "shapes"))
def cosine_absolute(a, b):
    """You return how parallel two vectors are, but opposite ones count as alike.
    Vectors that point in opposite directions have cosine -1.
    """
    return ((a * b).sum(-1) / lengths_of(a, b)).abs()


@wrong_cosine_similarity("zero vectors are forgotten", fails=("zero_vector", "gradient"))
def cosine_nan(a, b):
    """A zero vector has length 0, and zero over zero is NaN.
    Look at what to divide by in that case.
    """
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


@wrong_cosine_similarity("NaN repaired afterwards", fails=("gradient",))
def cosine_patched(a, b):
    """You divide zero by zero and put a 0 over the NaN.
    The result looks right, but its gradient still passes through the NaN.
    Look at what to divide by in that case, before you divide.
    """
    return ((a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))).nan_to_num(0.0)


@wrong_cosine_similarity(
    "only long vectors are divided by their length", fails=("values", "shapes")
)
def cosine_clamped(a, b):
    """You divide by at least 1, which avoids zero over zero.
    Short vectors have a direction as well: their lengths have to be divided out too.
    """
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1)).clamp(min=1.0)


@wrong_cosine_similarity("correlation instead of cosine")
def cosine_centred(a, b):
    """You take the mean away from each vector first; the result is a correlation.
    A cosine compares the vectors as they are.
    """
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    return (a * b).sum(-1) / lengths_of(a, b)


@wrong_cosine_similarity("the last axis is kept", but=("gradient",))
def cosine_keepdim(a, b):
    """The axis of the vectors is still there, with size 1.
    Two vectors have one cosine: the last axis disappears.
    """
    return ((a * b).sum(-1) / lengths_of(a, b))[..., None]


@wrong_cosine_similarity("cut off from the graph", fails=("gradient",))
def cosine_detached(a, b):
    """The result has lost its connection to the vectors: no gradient can flow back.
    Look for `detach`, `item`, `numpy`, `no_grad` or a new `torch.tensor(...)`.
    """
    return ((a * b).sum(-1) / lengths_of(a, b)).detach()


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


def safe_total(weights):
    total = weights.sum(-1, keepdim=True)
    return total.masked_fill(total == 0, 1.0)


@wrong_weighted_mean("not divided by the total weight", fails=("any_weights", "gradient"))
def mean_sum(weights, value):
    """You return the weighted sum.
    It is the mean only when the weights add up to one, which nobody promises here.
    """
    return (weights[..., None] * value).sum(-2)


@wrong_weighted_mean("divided by the number of vectors")
def mean_by_count(weights, value):
    """You divide by how many vectors there are.
    With weights, what counts is how much weight there is.
    """
    return (weights[..., None] * value).mean(-2)


@wrong_weighted_mean("the weights are ignored")
def mean_plain(weights, value):
    """You return the plain mean, in which all vectors count the same.
    Look at where the weights should enter.
    """
    even = torch.ones_like(weights) / weights.shape[-1]
    return (even[..., None] * value + 0.0 * weights[..., None]).sum(-2)


@wrong_weighted_mean("softmax of the weights")
def mean_softmax(weights, value):
    """You send the weights through a softmax once more, which makes them more even.
    They are weights already: dividing by their sum is enough.
    """
    return (torch.softmax(weights, -1)[..., None] * value).sum(-2)


@wrong_weighted_mean("one total for all rows", but=("values", "any_weights"))
def mean_global_total(weights, value):
    """You divide by the sum of all weights, over all rows together.
    Each row of weights has its own total.
    """
    total = weights.sum()
    return (weights[..., None] * value).sum(-2) / total.masked_fill(total == 0, 1.0)


@wrong_weighted_mean("zero weight is forgotten", fails=("zero_weights", "gradient"))
def mean_nan(weights, value):
    """Where all weights are 0 you divide zero by zero, which is NaN.
    Look at what to divide by in that case.
    """
    return (weights[..., None] * value).sum(-2) / weights.sum(-1, keepdim=True)


@wrong_weighted_mean("NaN repaired afterwards", fails=("gradient",))
def mean_patched(weights, value):
    """You divide zero by zero and put a 0 over the NaN.
    The result looks right, but its gradient still passes through the NaN.
    Look at what to divide by in that case, before you divide.
    """
    return ((weights / weights.sum(-1, keepdim=True))[..., None] * value).sum(-2).nan_to_num(0.0)


@wrong_weighted_mean("only large totals are divided out", fails=("any_weights",))
def mean_clamped(weights, value):
    """You divide by at least 1, which avoids zero over zero.
    A total between 0 and 1 has to be divided out too: half the weights give the same mean.
    """
    return (weights[..., None] * value).sum(-2) / weights.sum(-1, keepdim=True).clamp(min=1.0)


@wrong_weighted_mean("squared weights")
def mean_squared(weights, value):
    """The weights enter twice, so heavy vectors count for too much.
    Each weight is a factor once above and once in the total.
    """
    squares = weights * weights
    return (squares[..., None] * value).sum(-2) / safe_total(squares)


@wrong_weighted_mean("cut off from the graph", fails=("gradient",))
def mean_detached(weights, value):
    """The result has lost its connection to an input: no gradient can flow back.
    Look for `detach`, `item`, `numpy`, `no_grad` or a new `torch.tensor(...)`.
    """
    return ((weights[..., None] * value).sum(-2) / safe_total(weights)).detach()


@witnesses(of="fixed_word_in_context")
def word_calls(draw):
    words = draw.normal(4, 3, std=2.0)
    words[1] = 0.0
    yield call(words)
    yield call(torch.tensor([[1.0, 0.0], [1.0, 2.0]]))


def unit(words):
    lengths = words.norm(dim=-1, keepdim=True)
    return words / torch.where(lengths == 0, 1.0, lengths)


@wrong_fixed_word_in_context("nothing is fixed")
def words_broken(words):
    """This behaves exactly like `broken_word_in_context`.
    Find its three faults: compare each line with a promise in the list above.
    """
    lengths = words.norm(dim=-1, keepdim=True)
    words /= torch.where(lengths == 0, 1.0, lengths)
    weights = torch.softmax(words @ words.T, dim=0)
    return weights @ words


@wrong_fixed_word_in_context("the caller's words are changed")
def words_in_place(words):
    """The sentence that was handed in is no longer what it was after the call.
    Look for an assignment that writes into `words`.
    """
    lengths = words.norm(dim=-1, keepdim=True)
    words /= torch.where(lengths == 0, 1.0, lengths)
    return torch.softmax(words @ words.T, dim=-1) @ words


@wrong_fixed_word_in_context("mean of shortened words")
def words_of_length_one(words):
    """You average the words after bringing them to length one.
    The lengths leave the comparison, not the mean: the mean is of the words as they are.
    """
    return torch.softmax(unit(words) @ unit(words).T, dim=-1) @ unit(words)


@wrong_fixed_word_in_context("weights add up along the wrong axis", fails=("sentences",))
def words_wrong_axis(words):
    """The weights with which one word looks at all others do not add up to one.
    Look at the `dim` of the softmax: which index is the word that is replaced?
    """
    return torch.softmax(unit(words) @ unit(words).T, dim=0) @ words


@wrong_fixed_word_in_context("dot products instead of cosines")
def words_by_dot_product(words):
    """Long words attract more weight than short ones: the scores are dot products.
    A cosine does not depend on how long the words are.
    """
    return torch.softmax(words @ words.T, dim=-1) @ words


@witnesses(of="check_softmax")
def check_calls(draw):
    for candidate in (torch.softmax, softmax_base_two, softmax_sigmoid, softmax_last_axis) * 3:
        yield call(candidate)


@wrong_check_softmax("accepts everything")
def check_nothing(candidate):
    """Your test never says False, so no wrong softmax is caught.
    Call the candidate and compare what comes back.
    """
    return True


@wrong_check_softmax("rejects everything")
def check_refuse(candidate):
    """Your test says False even for a right softmax.
    Look at whether you leave room for rounding, and at what you return in the end.
    """
    return False


@wrong_check_softmax("looks at the sums only")
def check_sums(candidate):
    """You check that rows add up to one, and nothing else.
    Equal weights add up to one too.
    """
    weights = candidate(torch.tensor([[1.0, 2.0], [3.0, 5.0]]), dim=-1)
    return bool(torch.allclose(weights.sum(-1), torch.ones(2)))


@wrong_check_softmax("one small example", fails=("mutants",))
def check_one(candidate):
    """You compare one small row with the right weights.
    Large scores, other axes and what happens to the input stay unseen.
    """
    scores = torch.tensor([1.0, 2.0, 3.0])
    return bool(
        torch.allclose(candidate(scores, dim=0), torch.tensor([0.0900, 0.2447, 0.6652]), atol=1e-3)
    )
