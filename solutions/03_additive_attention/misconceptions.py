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
    """Without the tanh the score is a part of the query plus a part of the key. The softmax cancels
    the query's part: every query attends to the same positions.""",
    meet=lambda asked, offered: asked + offered,
)
score.fault(
    "the tanh stands outside",
    """You sum over the hidden units first and take the tanh of the result, so every score lies
    between -1 and 1. What does v multiply in the formula?""",
    meet=lambda asked, offered: asked + offered,
    last=torch.tanh,
)
score.fault(
    "a tanh for each of the two",
    """You take the tanh of the query's part and of the key's part, and add them. The score is then
    a sum of two independent parts; they must meet inside the tanh.""",
    meet=one_by_one,
)
score.fault(
    "relu instead of the tanh",
    "You set negative hidden units to 0. The formula has a tanh.",
    meet=lambda asked, offered: torch.relu(asked + offered),
)
score.fault(
    "product instead of the sum",
    "You multiply the two projections. The formula adds them: hence the name.",
    meet=lambda asked, offered: torch.tanh(asked * offered),
)
score.fault(
    "v is left out",
    """You add up the hidden units with equal weights. Some should count against a match, and only v
    makes them different.""",
    weigh=lambda hidden, v: hidden.sum(-1) + 0.0 * v.sum(),
)
score.fault(
    "v gets no gradient",
    "Your numbers are right, but v is detached: it can never be learned.",
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
    """You multiply the query by the key's matrix and the key by the query's. With equal sizes there
    is no error.""",
    matrices=lambda of_query, of_key: (of_key, of_query),
)
for told, matrices in (
    ("query", lambda of_query, of_key: (of_query, of_query)),
    ("key", lambda of_query, of_key: (of_key, of_key)),
):
    score.fault(
        f"the matrix of the {told} for both",
        "One matrix serves both vectors. With equal sizes there is no error.",
        matrices=matrices,
    )
score.fault(
    "only the first query",
    "You compute one row of scores for all queries. Each query has a row of its own.",
    but=("by_hand",),
    read=lambda query: query[..., :1, :].expand_as(query),
)
score.axes_swapped(
    "keys by queries",
    """Your table has a row per key and a column per query. A softmax over its last axis would let
    the queries compete for each key. Which of the two gets which new axis?""",
)
score.fault(
    "a softmax too early",
    "You return weights. The padding has to be left out before the softmax: return scores.",
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
    """You take the softmax over everything and set the padding to 0 afterwards. The padding has
    taken its share, so the real weights no longer sum to one.""",
    but=("values",),
    weigh=lambda scores, real: scores.softmax(-1) * real,
)
weights.fault(
    "masked scores set to 0",
    """You set the scores of the padding to 0. The exponential of 0 is 1, more than that of every
    negative score: the padding gets weight.""",
    but=("values",),
    weigh=lambda scores, real: (scores * real).softmax(-1),
)
weights.fault(
    "an empty row becomes NaN",
    """Your row of length 0 is NaN: all its scores are minus infinity, and the softmax divides 0 by
    0. One such row makes every parameter NaN in training.""",
    fails=("empty_row",),
    weigh=lambda scores, real: scores.masked_fill(~real, -INF).softmax(-1),
)
weights.fault(
    "an empty row is repaired too late",
    """Your numbers are right, but a row of length 0 sends NaN backwards: it was NaN inside, and you
    replaced it afterwards.""",
    fails=("empty_row",),
    weigh=lambda scores, real: (
        (scores + torch.zeros_like(scores).masked_fill(~real, -INF)).softmax(-1).nan_to_num(0.0)
    ),
)
weights.fault(
    "a very negative number as mask",
    """You mask with a large negative number. A row of length 0 has that number everywhere, and the
    softmax of equal scores is even.""",
    fails=("empty_row",),
    weigh=lambda scores, real: scores.masked_fill(~real, -1e9).softmax(-1),
)
weights.fault(
    "no maximum subtracted",
    """You take the exponential of the scores as they are. Above about 88 it overflows in float32,
    and far below 0 it vanishes: see chapter 00.""",
    fails=("large_scores",),
    weigh=lambda scores, real: guarded(
        scores, real, top=lambda masked: 0.0 * masked[..., :1].nan_to_num()
    ),
)
for guard, fails in ((0.0, ("filling", "empty_row")), (1e-9, ("filling",))):
    weights.fault(
        "renormalised after an unmasked softmax",
        """You take the softmax over everything, drop the padding and divide by the rest. A large
        number in the padding makes all the rest 0.""",
        fails=fails,
        weigh=lambda scores, real, guard=guard: (
            scores.softmax(-1) * real / ((scores.softmax(-1) * real).sum(-1, keepdim=True) + guard)
        ),
    )
weights.fault(
    "softmax over the queries",
    "You normalise along the axis of the queries. Each query's own row should sum to one.",
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
    "the mask is turned round",
    "You keep the padding and drop what is real. In this course True means: may be attended to.",
    real=lambda places, lengths: places >= lengths,
)
weights.fault(
    "the longest row decides",
    "You cut all rows at the longest length of the batch. Every row has a length of its own.",
    but=("values",),
    real=lambda places, lengths: (places < lengths.max()) & (lengths > -1),
)
weights.fault(
    "the queries are masked",
    "Your mask closes rows of queries. The lengths count the positions on the last axis.",
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
    """You update the state first and attend to the source with the new one, as Luong does. Here the
    state before the update is the query.""",
    give=lambda new, state, context, weights, again: (new, *again(new)),
)
step.fault(
    "the cell never sees the context",
    """You pass zeros to the cell instead of the context. The new state then knows nothing of what
    was attended to.""",
    enter=lambda word, context: torch.cat([word, torch.zeros_like(context)], dim=-1),
)
step.fault(
    "context first, word second",
    "You put the context before the word. The columns of the cell's matrix have another order.",
    but=("by_hand",),
    enter=lambda word, context: torch.cat([context, word], dim=-1),
)
step.fault(
    "the padding gets weight",
    "You take the softmax over all positions, padding included. Where does `lengths` enter?",
    fails=("padding",),
    weigh=lambda scores, real: scores.softmax(-1),
)
step.fault(
    "masked after the softmax",
    "You set the padding's weights to 0 after the softmax, so the others do not sum to one.",
    fails=("padding",),
    weigh=lambda scores, real: scores.softmax(-1) * real,
)
step.fault(
    "the same weight for every position",
    """You take the mean of the real annotations and never use the scores: a fixed context vector
    again.""",
    weigh=lambda scores, real: masked_weights(0.0 * scores, real),
)
step.fault(
    "only the best position",
    "You take the annotation with the largest weight. Soft attention takes part of each.",
    weigh=lambda scores, real: one_hot(
        masked_weights(scores, real).argmax(-1), scores.shape[-1]
    ).to(scores.dtype),
)
step.fault(
    "the context is divided by the number of positions",
    "You take a mean of the weighted annotations. The weights sum to one already.",
    but=(),
    mix=lambda weights, annotations: (weights @ annotations)[:, 0] / annotations.shape[1],
)
step.fault(
    "the old state is returned",
    "You return the state that came in, so the next step would do the same again.",
    give=lambda new, state, context, weights, again: (state.clone(), context, weights),
)
step.fault(
    "context and state exchanged",
    "You return the context first. The contract asks for state, context, weights.",
    give=lambda new, state, context, weights, again: (context, new, weights),
)
step.fault(
    "the cell starts from zeros",
    "You pass zeros to the cell as its state. The old state is the query, and it is updated.",
    old=torch.zeros_like,
)
step.fault(
    "no gradient through context and weights",
    "Your numbers are right, but weights and context are detached: the score is never trained.",
    fails=("gradient",),
    weigh=lambda scores, real: masked_weights(scores, real).detach(),
    mix=lambda weights, annotations: (weights @ annotations)[:, 0].detach(),
)
step.fault(
    "no gradient through the weights",
    "Your numbers are right, but the weights are detached: the score never learns.",
    fails=("gradient",),
    weigh=lambda scores, real: masked_weights(scores, real).detach(),
)
step.fault(
    "no gradient through the context",
    "Your numbers are right, but the context is detached: it teaches the encoder nothing.",
    fails=("gradient",),
    mix=lambda weights, annotations: (weights @ annotations)[:, 0].detach(),
)
step.fault(
    "the cell gets a context without gradient",
    "Your numbers are right, but the context that enters the cell is detached.",
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
        "A target position with -1 counts as an error. It does not belong into the rate.",
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
    "positions without a source count as right",
    "You leave out the errors at -1 but divide by all positions.",
    fails=("no_source",),
    rate=lambda wrong, known: float((wrong & known).double().mean()),
)
error_rate.fault(
    "source position 0 counts as unknown",
    "You take 0 for `nowhere`. Positions count from 0, and only -1 means that there is none.",
    but=("none_known",),
    known=lambda alignment: alignment > 0,
)
error_rate.fault(
    "accuracy instead of error",
    "You return the share that is right. The error rate is the other share: 0 is best.",
    but=("none_known",),
    rate=lambda wrong, known: share(~wrong, known),
)
error_rate.fault(
    "the mean of the rows' rates",
    """You average the rates of the rows. A position in a short sentence then weighs more: count
    positions over the whole batch.""",
    fails=("no_source",),
    rate=lambda wrong, known: (
        float(((wrong & known).double().sum(1) / known.sum(1).clamp(min=1))[known.any(1)].mean())
        if known.any()
        else 0.0
    ),
)
error_rate.fault(
    "wrong sentences instead of positions",
    "You count a sentence as wrong when one of its positions is wrong. Count positions.",
    but=("none_known",),
    rate=lambda wrong, known: float((wrong & known).any(1).double().mean()),
)
error_rate.fault(
    "the mass in the wrong place",
    """You measure how much weight lies in the wrong place. Here only the position of the largest
    weight counts.""",
    but=("none_known",),
    wrong=lambda weights, alignment: 1 - of_weight(weights, alignment),
)
error_rate.fault(
    "the largest weight of a column",
    """You search along the targets: for each source position the target that attends to it most.
    The alignment goes from target to source.""",
    but=("none_known",),
    wrong=by_columns,
)
error_rate.fault(
    "the last of equal weights",
    "Where two weights are equal you take the later position. The first one counts.",
    fails=("ties",),
    wrong=lambda weights, alignment: (
        weights.shape[-1] - 1 - weights.flip(-1).argmax(-1) != alignment
    ),
)
error_rate.fault(
    "any of the equal weights counts",
    "Where several weights are the largest you accept any of them. The first one counts.",
    fails=("ties",),
    wrong=lambda weights, alignment: of_weight(weights, alignment) < weights.amax(-1),
)
error_rate.fault(
    "nothing known gives NaN",
    "When no position is known you divide 0 by 0. Which value does the contract ask for?",
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
    """This is the broken code. Which range can a score take, and what do the weights of a padded
    row add up to?""",
    meet=lambda asked, offered: asked + offered,
    last=torch.tanh,
    weigh=late,
)
attend.fault(
    "the tanh still stands outside",
    "The padding is right; the scores still lie between -1 and 1. What belongs in the tanh?",
    meet=lambda asked, offered: asked + offered,
    last=torch.tanh,
)
attend.fault(
    "the padding still takes its share",
    "The scores are right; in a padded row the real weights still sum to less than one.",
    fails=("padding",),
    weigh=late,
)
attend.fault(
    "no tanh at all",
    "The tanh is gone. The query then adds the same number to every score of its row.",
    meet=lambda asked, offered: asked + offered,
)
attend.fault(
    "a tanh for each of the two",
    "Query and key have a tanh each. They must meet inside of one.",
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
    "Positions count from 0: the position whose number is the length is padding.",
    fails=("padding",),
    real=lambda places, lengths: places <= lengths,
)
attend.fault(
    "padding is the only thing that counts",
    "Your mask is turned round: what is real gets no weight.",
    real=lambda places, lengths: places >= lengths,
)
attend.fault(
    "softmax over the rows of the batch",
    "Your softmax runs over the rows of the batch. Along which axis do the weights sum to one?",
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
    """Your test always returns True, so it catches no wrong score. Call the candidate and compare
    its result with numbers of your own.
    """
    return True


@check("rejects everything")
def check_refuse(candidate):
    """Your test returns False even for a right score. Do you leave room for rounding, and which
    dtype do your own numbers have?
    """
    return False


@check("only the shape is compared")
def check_shape(candidate):
    """You compare the shape of the answer and no value. Most wrong scores have the right shape."""
    sizes = (2, 3), (4, 2), (5, 3), (5, 2), (5,)
    return tuple(candidate(*(torch.ones(size) for size in sizes)).shape) == (2, 4)


@check("inputs of zeros")
def check_zeros(candidate):
    """Your inputs are all 0, and so is every score, right or wrong. Choose numbers on which the
    wrong ones differ.
    """
    zeros, sizes = (torch.zeros(2, 3), torch.zeros(4, 2)), ((5, 3), (5, 2), (5,))
    got = candidate(*zeros, *(torch.ones(size) for size in sizes))
    return bool(torch.allclose(got, torch.zeros(2, 4).to(got.dtype)))


@check("one query, one hidden unit", fails=("mutants",))
def check_small(candidate):
    """You try one query, one key and one hidden unit with weights 1. Exchanged matrices or a mean
    over the hidden units change nothing there. Use several of each, all different.
    """
    one = torch.ones(1, 1)
    got = candidate(0.5 * one, one, one, one, torch.tensor([2.0]))
    return tuple(got.shape) == (1, 1) and bool(torch.allclose(got.float(), 2 * (1.5 * one).tanh()))
