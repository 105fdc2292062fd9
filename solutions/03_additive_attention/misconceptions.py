"""Wrong answers on the way to additive attention: name, message, and the tests they must fail."""

import torch
from torch.nn.functional import one_hot

from attn_course.probes import WrongAnswers, call, student, witnesses

INF = torch.inf

# --- additive_score ----------------------------------------------------------------------------


def bent_together(asked, offered):
    return torch.tanh(asked + offered)


def one_by_one(asked, offered):
    return torch.tanh(asked) + torch.tanh(offered)


def right_score(
    query,
    key,
    weight_query,
    weight_key,
    v,
    *,
    read=lambda query: query,
    matrices=lambda of_query, of_key: (of_query, of_key),
    meet=bent_together,
    weigh=lambda hidden, v: hidden @ v,
    last=lambda scores: scores,
):
    of_query, of_key = matrices(weight_query, weight_key)
    asked = (read(query) @ of_query.T).unsqueeze(-2)
    return last(weigh(meet(asked, (key @ of_key.T).unsqueeze(-3)), v))


score = WrongAnswers(
    "additive_score", tests=("by_hand", "many_queries", "batch", "gradient"), right=right_score
)
score.detached()


@witnesses(of="additive_score")
def score_calls(draw):
    for lead, queries, keys, q, k, a in [
        ((), 1, 1, 1, 1, 1),
        ((), 1, 5, 3, 2, 7),
        ((), 4, 5, 3, 2, 7),
        ((), 3, 3, 3, 3, 3),
        ((2,), 4, 5, 3, 2, 7),
        ((2,), 3, 3, 3, 3, 3),
        ((2, 3), 2, 5, 3, 4, 1),
    ]:
        shapes = (*lead, queries, q), (*lead, keys, k), (a, q), (a, k), (a,)
        yield call(*(draw.normal(*shape) for shape in shapes))
    shapes = (2, 3), (3, 2), (5, 3), (5, 2), (5,)
    for place in range(5):
        yield call(*(draw.normal(*shape) for shape in shapes), via=student.grad(place))


score.fault(
    "no tanh",
    """You leave out the tanh. The softmax then cancels the query's part, so every query has the
    same weights.""",
    meet=lambda asked, offered: asked + offered,
)
score.fault(
    "the tanh is outside",
    "You apply the tanh to the score. The formula applies it to the hidden units, before v.",
    meet=lambda asked, offered: asked + offered,
    last=torch.tanh,
)
score.fault(
    "a tanh for each",
    "You apply a tanh to each part and add them. The formula has one tanh of the sum.",
    meet=one_by_one,
)
score.fault(
    "relu instead of the tanh",
    "You use a ReLU on the hidden units. The formula has a tanh.",
    meet=lambda asked, offered: torch.relu(asked + offered),
)
score.fault(
    "product instead of the sum",
    "You multiply the two projections. Additive attention adds them.",
    meet=lambda asked, offered: torch.tanh(asked * offered),
)
score.fault(
    "v is left out",
    "You add up the hidden units with equal weights. Weight them by v.",
    weigh=lambda hidden, v: hidden.sum(-1) + 0.0 * v.sum(),
)
score.fault(
    "v gets no gradient",
    "Your values are right, but you detach v, so it gets no gradient.",
    fails=("gradient",),
    weigh=lambda hidden, v: hidden @ v.detach(),
)
score.fault(
    "scaled by the hidden size",
    "You divide by the root of the number of hidden units. The formula has no such factor.",
    weigh=lambda hidden, v: hidden @ v / len(v) ** 0.5,
)
score.fault(
    "the two matrices exchanged",
    "You multiply the query by the key's matrix and the key by the query's. Exchange them.",
    matrices=lambda of_query, of_key: (of_key, of_query),
)
for told, matrices in (
    ("query", lambda of_query, of_key: (of_query, of_query)),
    ("key", lambda of_query, of_key: (of_key, of_key)),
):
    score.fault(
        f"the matrix of the {told} for both",
        "You use one matrix for both vectors. Query and key each have their own.",
        matrices=matrices,
    )
score.fault(
    "only the first query",
    "You use the scores of the first query for all queries. Each query has its own row.",
    but=("by_hand",),
    read=lambda query: query[..., :1, :].expand_as(query),
)
score.axes_swapped(
    "keys by queries",
    "Your result has a row per key and a column per query. It should have a row per query.",
)
score.fault(
    "a softmax too early",
    "You apply a softmax. Return scores, because padding is masked before the softmax.",
    last=lambda scores: scores.softmax(-1),
)

# --- padded_weights ----------------------------------------------------------------------------


def guarded(scores, real, *, top=lambda masked: masked.amax(-1, keepdim=True)):
    masked = scores.masked_fill(~real, -INF)
    highest = top(masked)
    parts = (masked - highest.masked_fill(highest == -INF, 0.0)).exp()
    total = parts.sum(-1, keepdim=True)
    return parts / total.masked_fill(total == 0, 1.0)


def right_weights(
    scores,
    lengths,
    *,
    real=lambda places, lengths: places < lengths,
    weigh=guarded,
):
    mask = real(torch.arange(scores.shape[-1]), lengths[:, None, None])
    return weigh(scores, mask.expand(scores.shape))


weights = WrongAnswers(
    "padded_weights",
    tests=("values", "padding", "filling", "large_scores", "empty_row", "gradient"),
    right=right_weights,
)


@witnesses(of="padded_weights")
def weights_calls(draw):
    for lengths in ([5, 5, 5], [5, 2, 3], [2, 4, 1], [0, 5, 1], [0, 0, 0]):
        yield call(draw.normal(3, 4, 5), torch.tensor(lengths))
        yield call(draw.normal(3, 5, 5), torch.tensor(lengths))
        yield call(draw.normal(3, 1, 5, std=100.0), torch.tensor(lengths))
        yield call(400 + draw.normal(3, 2, 5), torch.tensor(lengths))
        yield call(-400 + draw.normal(3, 2, 5), torch.tensor(lengths))
    for large in (60.0, 300.0):
        filled = draw.normal(2, 3, 5)
        filled[:, :, 3:] = large
        yield call(filled, torch.tensor([3, 2]))
    yield call(draw.normal(2, 3, 4), torch.tensor([3, 2]), via=student.grad(0))
    yield call(draw.normal(2, 3, 4), torch.tensor([0, 4]), via=student.grad(0))


weights.fault(
    "masked after the softmax",
    "You set the padding to 0 after the softmax, so the real weights sum to less than one.",
    but=("values",),
    weigh=lambda scores, real: scores.softmax(-1) * real,
)
weights.fault(
    "masked scores set to 0",
    """You set the scores of the padding to 0, whose exponential is 1. Which score has the
    exponential 0?""",
    but=("values",),
    weigh=lambda scores, real: (scores * real).softmax(-1),
)
weights.fault(
    "an empty row becomes NaN",
    "Your row of length 0 is NaN: its softmax divides 0 by 0. The contract asks for 0.",
    fails=("empty_row",),
    weigh=lambda scores, real: scores.masked_fill(~real, -INF).softmax(-1),
)
weights.fault(
    "an empty row is repaired too late",
    """Your values are right, but a row of length 0 has NaN gradients: you replaced the NaN after
    the softmax.""",
    fails=("empty_row",),
    weigh=lambda scores, real: (
        (scores + torch.zeros_like(scores).masked_fill(~real, -INF)).softmax(-1).nan_to_num(0.0)
    ),
)
weights.fault(
    "a very negative number as mask",
    """You mask with a large negative number, so a row of length 0 gets equal weights. It should get
    0.""",
    fails=("empty_row",),
    weigh=lambda scores, real: scores.masked_fill(~real, -1e9).softmax(-1),
)
weights.fault(
    "no maximum subtracted",
    """You take the exponential of the raw scores. In float32 it overflows above about 88 and
    vanishes far below 0: see chapter 00.""",
    fails=("large_scores",),
    weigh=lambda scores, real: guarded(
        scores, real, top=lambda masked: 0.0 * masked[..., :1].nan_to_num()
    ),
)
for guard, fails in ((0.0, ("filling", "empty_row")), (1e-9, ("filling",))):
    weights.fault(
        "renormalised after an unmasked softmax",
        """You take the softmax over all positions, drop the padding and renormalise. A large score
        in the padding leaves all other weights at 0.""",
        fails=fails,
        weigh=lambda scores, real, guard=guard: (
            scores.softmax(-1) * real / ((scores.softmax(-1) * real).sum(-1, keepdim=True) + guard)
        ),
    )
weights.fault(
    "softmax over the queries",
    "Your softmax runs over the queries. Each query's row should sum to one.",
    weigh=lambda scores, real: guarded(scores.mT, real.mT).mT,
)
for amount, real in (
    ("many", lambda places, lengths: places <= lengths),
    ("few", lambda places, lengths: places < lengths - 1),
):
    weights.fault(
        f"one position too {amount}",
        f"Every row has one position too {amount}. Positions are counted from 0.",
        but=("values",) if amount == "many" else (),
        real=real,
    )
weights.fault(
    "the mask is inverted",
    "You keep the padding and mask the real positions. Invert your mask.",
    real=lambda places, lengths: places >= lengths,
)
weights.fault(
    "the longest row decides",
    "You use the longest length of the batch for all rows. Every row has its own length.",
    but=("values",),
    real=lambda places, lengths: (places < lengths.max()) & (lengths > -1),
)
weights.fault(
    "the queries are masked",
    "You mask queries. The lengths count positions on the last axis.",
    but=("values",),
    weigh=lambda scores, real: guarded(
        scores,
        (torch.arange(scores.shape[1]) < real.sum(-1)[:, :1])[..., None].expand(scores.shape),
    ),
)

# --- decoder_step ------------------------------------------------------------------------------


def masked_weights(scores, real):
    return scores.masked_fill(~real, -INF).softmax(-1)


def right_step(
    cell,
    word,
    state,
    annotations,
    lengths,
    score,
    *,
    weigh=masked_weights,
    mix=lambda weights, annotations: (weights @ annotations)[:, 0],
    enter=lambda word, context: torch.cat([word, context], dim=-1),
    old=lambda state: state,
    give=lambda new, state, context, weights, again: (new, context, weights),
):
    real = (torch.arange(annotations.shape[1]) < lengths[:, None])[:, None]

    def attend(state):
        weights = weigh(score(state[:, None], annotations), real)
        return mix(weights, annotations), weights[:, 0]

    context, weights = attend(state)
    new = cell(enter(word, context), old(state))
    return give(new, state, context, weights, attend)


step = WrongAnswers(
    "decoder_step", tests=("by_hand", "no_padding", "padding", "gradient"), right=right_step
)


@witnesses(of="decoder_step")
def step_calls(draw):
    for d, h, e, s, lengths in [
        (3, 5, 7, 4, [4, 4]),
        (3, 3, 3, 3, [3, 1]),
        (2, 2, 2, 5, [2, 4]),
        (1, 1, 1, 3, [3, 2]),
        (2, 3, 1, 1, [1, 1]),
    ]:
        weight_ih, weight_hh = draw.normal(h, d + e), draw.normal(h, h)
        of_score = draw.normal(6, h), draw.normal(6, e), draw.normal(6)

        def cell(input, hidden, weight_ih=weight_ih, weight_hh=weight_hh):
            return torch.tanh(input @ weight_ih.T + hidden @ weight_hh.T)

        def score(query, key, of_score=of_score):
            return right_score(query, key, *of_score)

        tensors = draw.normal(2, d), draw.normal(2, h), draw.normal(2, s, e), torch.tensor(lengths)
        yield call(cell, *tensors, score)
        for place in (1, 2, 3):
            yield call(cell, *tensors, score, via=student.grad(place))


step.fault(
    "alignment after the update",
    "You attend with the new state, as Luong does. Here the query is the state before the update.",
    give=lambda new, state, context, weights, again: (new, *again(new)),
)
step.fault(
    "the cell never gets the context",
    "You pass zeros to the cell instead of the context. Pass the context.",
    enter=lambda word, context: torch.cat([word, torch.zeros_like(context)], dim=-1),
)
step.fault(
    "context first, word second",
    "You put the context before the word. The contract has the word first.",
    but=("by_hand",),
    enter=lambda word, context: torch.cat([context, word], dim=-1),
)
step.fault(
    "the padding gets weight",
    "You take the softmax over all positions, padding included. Mask it with `lengths`.",
    fails=("padding",),
    weigh=lambda scores, real: scores.softmax(-1),
)
step.fault(
    "masked after the softmax",
    "You set the padding's weights to 0 after the softmax, so the rest sum to less than one.",
    fails=("padding",),
    weigh=lambda scores, real: scores.softmax(-1) * real,
)
step.fault(
    "the same weight for every position",
    """You take the mean of the real annotations and ignore the scores. Weight the annotations by a
    softmax of the scores.""",
    weigh=lambda scores, real: masked_weights(0.0 * scores, real),
)
step.fault(
    "only the best position",
    "You return the annotation with the largest weight. Return the weighted sum of all.",
    weigh=lambda scores, real: one_hot(
        masked_weights(scores, real).argmax(-1), scores.shape[-1]
    ).to(scores.dtype),
)
step.fault(
    "the context is divided by the number of positions",
    "You divide the weighted sum by the number of positions. The weights already sum to one.",
    but=(),
    mix=lambda weights, annotations: (weights @ annotations)[:, 0] / annotations.shape[1],
)
step.fault(
    "the old state is returned",
    "You return the old state. Return the new one.",
    give=lambda new, state, context, weights, again: (state.clone(), context, weights),
)
step.fault(
    "context and state exchanged",
    "You return the context first. The contract asks for state, context, weights.",
    give=lambda new, state, context, weights, again: (context, new, weights),
)
step.fault(
    "the cell starts from zeros",
    "You pass zeros to the cell as its state. Pass the old state.",
    old=torch.zeros_like,
)
step.fault(
    "no gradient through context and weights",
    "Your values are right, but you detach weights and context, so the score gets no gradient.",
    fails=("gradient",),
    weigh=lambda scores, real: masked_weights(scores, real).detach(),
    mix=lambda weights, annotations: (weights @ annotations)[:, 0].detach(),
)
step.fault(
    "no gradient through the weights",
    "Your values are right, but you detach the weights, so the score gets no gradient.",
    fails=("gradient",),
    weigh=lambda scores, real: masked_weights(scores, real).detach(),
)
step.fault(
    "no gradient through the context",
    "Your values are right, but you detach the context, so the encoder gets no gradient from it.",
    fails=("gradient",),
    mix=lambda weights, annotations: (weights @ annotations)[:, 0].detach(),
)
step.fault(
    "the cell gets a context without gradient",
    """Your values are right, but you detach the context that enters the cell. Gradients pass
    through it.""",
    fails=("gradient",),
    enter=lambda word, context: torch.cat([word, context.detach()], dim=-1),
)

# --- alignment_error_rate ----------------------------------------------------------------------


def largest(weights, alignment):
    return weights.argmax(-1) != alignment


def share(wrong, known):
    return float(wrong[known].double().mean()) if known.any() else 0.0


def right_rate(
    weights, alignment, *, known=lambda alignment: alignment >= 0, wrong=largest, rate=share
):
    return rate(wrong(weights, alignment), known(alignment))


error_rate = WrongAnswers(
    "alignment_error_rate",
    tests=("values", "no_source", "ties", "none_known"),
    right=right_rate,
)


@witnesses(of="alignment_error_rate")
def rate_calls(draw):
    for b, queries, keys in [(1, 4, 3), (3, 5, 5), (2, 7, 4), (4, 3, 6)]:
        weights = draw.normal(b, queries, keys).softmax(-1)
        truth = torch.where(
            draw.uniform(b, queries) < 0.5, weights.argmax(-1), draw.integers(0, keys, b, queries)
        )
        yield call(weights, truth)
        lengths = draw.integers(0, queries + 1, b)
        yield call(weights, truth.masked_fill(torch.arange(queries) >= lengths[:, None], -1))
        yield call(weights, torch.full((b, queries), -1))
        yield call(torch.ones(b, queries, keys) / keys, truth)


def of_weight(weights, alignment):
    return weights.gather(-1, alignment.clamp(min=0)[..., None])[..., 0]


def by_columns(weights, alignment):
    best, width = weights.argmax(dim=1), weights.shape[1]
    best = torch.nn.functional.pad(best, (0, max(0, width - best.shape[1])), value=-2)
    return best[:, :width] != alignment


for lost, count in (
    (("no_source", "none_known"), lambda wrong, known: float(wrong.double().mean())),
    (("no_source",), lambda wrong, known: float(wrong.double().mean()) if known.any() else 0.0),
):
    error_rate.fault(
        "positions without a source count as wrong",
        "You count positions with -1 as errors. They do not count at all.",
        fails=lost,
        rate=count,
    )
error_rate.fault(
    "a percentage",
    "You return a percentage. The contract asks for a share from 0 to 1.",
    but=("none_known",),
    rate=lambda wrong, known: 100 * share(wrong, known),
)
error_rate.fault(
    "positions without a source count in the divisor",
    "You leave out errors at -1, but divide by all positions. Divide by those with a known source.",
    fails=("no_source",),
    rate=lambda wrong, known: float((wrong & known).double().mean()),
)
error_rate.fault(
    "source position 0 counts as unknown",
    "You treat source position 0 as unknown. Only -1 means that there is none.",
    but=("none_known",),
    known=lambda alignment: alignment > 0,
)
error_rate.fault(
    "accuracy instead of error",
    "You return the share of right predictions. The error rate is the share of wrong ones.",
    but=("none_known",),
    rate=lambda wrong, known: share(~wrong, known),
)
error_rate.fault(
    "the mean of the rows' rates",
    """You average the rates of the rows, so positions of short rows weigh more. Count positions
    over the whole batch.""",
    fails=("no_source",),
    rate=lambda wrong, known: (
        float(((wrong & known).double().sum(1) / known.sum(1).clamp(min=1))[known.any(1)].mean())
        if known.any()
        else 0.0
    ),
)
error_rate.fault(
    "wrong sentences instead of positions",
    "You count sentences with a wrong position. Count wrong positions.",
    but=("none_known",),
    rate=lambda wrong, known: float((wrong & known).any(1).double().mean()),
)
error_rate.fault(
    "the weight on wrong positions",
    "You measure the weight on wrong positions. Only the position of the largest weight counts.",
    but=("none_known",),
    wrong=lambda weights, alignment: 1 - of_weight(weights, alignment),
)
error_rate.fault(
    "the largest weight of a column",
    """You take the largest weight over the targets. Take it over the source positions, for each
    target.""",
    but=("none_known",),
    wrong=by_columns,
)
error_rate.fault(
    "the last of equal weights",
    "Of equal weights you take the last position. Take the first.",
    fails=("ties",),
    wrong=lambda weights, alignment: (
        weights.shape[-1] - 1 - weights.flip(-1).argmax(-1) != alignment
    ),
)
error_rate.fault(
    "any of the equal weights counts",
    "Of equal largest weights you accept any position. Only the first counts.",
    fails=("ties",),
    wrong=lambda weights, alignment: of_weight(weights, alignment) < weights.amax(-1),
)
error_rate.fault(
    "nothing known gives NaN",
    "You divide 0 by 0 when no position is known. The contract asks for `0.0`.",
    fails=("none_known",),
    rate=lambda wrong, known: float(wrong[known].double().mean()),
)

# --- fixed_attend ------------------------------------------------------------------------------


def right_attend(
    query,
    key,
    value,
    lengths,
    weight_query,
    weight_key,
    v,
    *,
    meet=bent_together,
    last=lambda scores: scores,
    real=lambda places, lengths: places < lengths,
    weigh=masked_weights,
):
    scores = last(meet((query @ weight_query.T)[:, None], key @ weight_key.T) @ v)
    weights = weigh(scores, real(torch.arange(key.shape[1]), lengths[:, None]))
    return (weights[:, None] @ value)[:, 0]


def late(scores, real):
    return scores.softmax(-1) * real


attend = WrongAnswers("fixed_attend", tests=("scores", "padding"), right=right_attend)


@witnesses(of="fixed_attend")
def attend_calls(draw):
    for lengths in ([4, 4, 4], [4, 1, 2], [3, 3, 1]):
        tensors = draw.normal(3, 2), draw.normal(3, 4, 5), draw.normal(3, 4, 6)
        matrices = draw.normal(7, 2), draw.normal(7, 5), draw.normal(7, std=2.0)
        yield call(*tensors, torch.tensor(lengths), *matrices)


attend.fault(
    "both faults are still there",
    """This is the broken code. What range can a score have, and what is the sum of the weights of a
    padded row?""",
    meet=lambda asked, offered: asked + offered,
    last=torch.tanh,
    weigh=late,
)
attend.fault(
    "the tanh is still outside",
    "The padding is now right. You still apply the tanh to the score, not to the hidden units.",
    meet=lambda asked, offered: asked + offered,
    last=torch.tanh,
)
attend.fault(
    "the padding still takes its share",
    "The scores are now right. In a padded row the real weights still sum to less than one.",
    fails=("padding",),
    weigh=late,
)
attend.fault(
    "no tanh at all",
    "You removed the tanh, so the query adds the same number to every score of its row.",
    meet=lambda asked, offered: asked + offered,
)
attend.fault(
    "a tanh for each",
    "You apply a tanh to each part. The formula has one tanh of the sum.",
    meet=one_by_one,
)
attend.fault(
    "padding gets the score 0",
    """You set the scores of padding to 0, whose exponential is 1. Which score has the exponential
    0?""",
    fails=("padding",),
    weigh=lambda scores, real: (scores * real).softmax(-1),
)
attend.fault(
    "one position too many",
    "You keep one position too many. Positions count from 0, so position `length` is padding.",
    fails=("padding",),
    real=lambda places, lengths: places <= lengths,
)
attend.fault(
    "the mask is inverted",
    "Your mask is inverted: real positions get no weight.",
    real=lambda places, lengths: places >= lengths,
)
attend.fault(
    "softmax over the rows of the batch",
    "Your softmax runs over the batch. It should run over the source positions.",
    weigh=lambda scores, real: scores.masked_fill(~real, -INF).softmax(0),
)

# --- check_score -------------------------------------------------------------------------------

check = WrongAnswers("check_score", tests=("plain", "mutants"))


@witnesses(of="check_score")
def check_calls(draw):
    yield call(lambda *inputs: right_score(*inputs))
    yield call(lambda *inputs: right_score(*inputs, meet=lambda a, b: a + b))
    yield call(lambda *inputs: torch.ones(3))
    yield call(lambda *inputs: 1 / 0)
    yield call(lambda *inputs: torch.zeros(2, 4))


@check("accepts everything")
def check_nothing(candidate):
    """Your test always returns True. Call the candidate and compare its result with your own
    numbers.
    """
    return True


@check("rejects everything")
def check_refuse(candidate):
    """Your test rejects a right score. Do you allow for rounding, and which dtype do your numbers
    have?
    """
    return False


@check("only the shape is compared")
def check_shape(candidate):
    """You compare only the shape. Most wrong scores have the right shape."""
    sizes = (2, 3), (4, 2), (5, 3), (5, 2), (5,)
    return tuple(candidate(*(torch.ones(size) for size in sizes)).shape) == (2, 4)


@check("inputs of zeros")
def check_zeros(candidate):
    """Your inputs are all 0, so right and wrong scores are 0. Choose inputs on which they differ."""
    zeros, sizes = (torch.zeros(2, 3), torch.zeros(4, 2)), ((5, 3), (5, 2), (5,))
    got = candidate(*zeros, *(torch.ones(size) for size in sizes))
    return bool(torch.allclose(got, torch.zeros(2, 4).to(got.dtype)))


@check("one query, one hidden unit", fails=("mutants",))
def check_small(candidate):
    """You test one query, one key and one hidden unit, where exchanged matrices or a mean over
    hidden units change nothing. Use several of each.
    """
    one = torch.ones(1, 1)
    got = candidate(0.5 * one, one, one, one, torch.tensor([2.0]))
    return tuple(got.shape) == (1, 1) and bool(torch.allclose(got.float(), 2 * (1.5 * one).tanh()))
