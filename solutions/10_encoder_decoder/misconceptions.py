"""Wrong answers on the way to the Transformer: name, message, the tests they fail."""

import math
from collections import Counter

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

# --- shift_right -------------------------------------------------------------------------------


def start(target_out, bos):
    return torch.full_like(target_out[:, :1], bos)


def late(target_out, bos, pad=0):
    return torch.cat([start(target_out, bos), target_out[:, :-1]], dim=1)


def hide(ids, eos, pad, bos):
    return ids.masked_fill(ids == eos, pad)


def moved(target_out, bos, eos, pad=0, *, move=late, clean=hide):
    return clean(move(target_out, bos, pad), eos, pad, bos)


shift = WrongAnswers("shift_right", tests=("by_hand", "rows", "other_ids"), right=moved)


@witnesses(of="shift_right")
def shift_calls(draw):
    for rows, size in ((1, 3), (2, 5), (3, 4), (1, 1)):
        target = draw.integers(4, 10, rows, size)
        yield call(target.clone(), 1, 2)
        ends = draw.integers(0, size, rows)
        places = torch.arange(size)
        target = target.masked_fill(places > ends[:, None], 0)
        target[torch.arange(rows), ends] = 2
        yield call(target, 1, 2)
        yield call(target.where(target > 3, 17 + target), 11, 19, 17)


shift.fault(
    "not shifted",
    """You return the target unshifted, so the decoder reads the token that it should predict. Shift
    it by one position to the right.""",
    move=lambda target, bos, pad: target.clone(),
    clean=lambda ids, eos, pad, bos: ids,
)
shift.fault(
    "shifted to the left",
    "You shift the target to the left. Shift it to the right.",
    move=lambda target, bos, pad: torch.cat([target[:, 1:], start(target, pad)], dim=1),
    clean=lambda ids, eos, pad, bos: ids,
)
shift.fault(
    "rolled around",
    "You roll the target, so its last token becomes the first. The first one is `bos`.",
    move=lambda target, bos, pad: target.roll(1, dims=1),
)
shift.fault(
    "eos is read",
    "Your result contains `eos`. Replace it by padding.",
    clean=lambda ids, eos, pad, bos: ids,
)
shift.fault(
    "the last position is always padding",
    "You set the last position of every row to padding. A truncated row has a token there.",
    but=("by_hand",),
    clean=lambda ids, eos, pad, bos: torch.cat(
        [hide(ids, eos, pad, bos)[:, :-1], start(ids, pad)], dim=1
    ),
)
shift.fault(
    "no bos",
    "Your first position is padding. The decoder starts from `bos`.",
    move=lambda target, bos, pad: late(target, pad),
)
shift.fault(
    "the first token is overwritten",
    "You overwrite the first token with `bos`. Shift the tokens to the right.",
    move=lambda target, bos, pad: torch.cat([start(target, bos), target[:, 1:]], dim=1),
)
shift.fault(
    "padding is always 0",
    "You treat 0 as the padding id. Use the argument `pad`.",
    but=("by_hand",),
    clean=lambda ids, eos, pad, bos: hide(ids, eos, 0, bos),
)
shift.in_place()

# --- decoder_mask ------------------------------------------------------------------------------


def past(ids):
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()


def real(ids, pad):
    return ids != pad


def seen(
    target_in,
    pad=0,
    *,
    order=past,
    words=real,
    lift=lambda words: words[:, None, None, :],
    join=torch.logical_and,
    finish=lambda m: m,
):
    rows = join(order(target_in), lift(words(target_in, pad)))
    return finish(rows.expand(len(target_in), 1, *rows.shape[-2:]))


TESTS = ("by_hand", "no_padding", "padding", "other_pad")
mask = WrongAnswers("decoder_mask", tests=TESTS, right=seen)


@witnesses(of="decoder_mask")
def mask_calls(draw):
    for rows, size in ((1, 3), (2, 5), (3, 4)):
        ids = draw.integers(1, 6, rows, size)
        yield call(ids)
        yield call(draw.integers(0, 3, rows, size))
        yield call(ids.masked_fill(torch.arange(size) == 1, 0))
        tail = draw.integers(1, size, rows)
        yield call(ids.masked_fill(torch.arange(size) >= tail[:, None], 0))
        yield call(ids, 4)
        yield call(draw.integers(0, 3, rows, size), 2)


mask.fault(
    "the future is not masked",
    """You mask only padding, so positions attend to the tokens that they have to predict. Mask the
    future, too.""",
    order=lambda ids: torch.ones_like(past(ids)),
)
mask.fault(
    "the past is masked",
    "Your positions attend to themselves and later ones. They should attend to earlier ones.",
    order=lambda ids: past(ids).T,
)
mask.fault(
    "itself excluded",
    "You mask each position's own key, so the first position has no key.",
    order=lambda ids: past(ids).tril(-1),
)
mask.fault(
    "one step too far",
    "Each position attends to one later token, the one that it has to predict.",
    order=lambda ids: torch.ones_like(past(ids)).tril(1),
)
mask.fault(
    "padding is not masked",
    "You mask only the future. Mask padding, too.",
    but=("no_padding",),
    words=lambda ids, pad: torch.ones_like(ids).bool(),
)
mask.fault(
    "padding is always 0",
    "You treat 0 as the padding id. Use the argument `pad`.",
    fails=("padding", "other_pad"),
    words=lambda ids, pad: real(ids, 0),
)
mask.fault(
    "everything after the first padding masked",
    "You mask everything after the first padding. Real tokens may follow it.",
    fails=("padding", "other_pad"),
    words=lambda ids, pad: real(ids, pad).int().cumprod(1).bool(),
)
mask.fault(
    "the first row's padding for all",
    "You use the first row's padding for every row. Each row has its own.",
    fails=("padding", "other_pad"),
    words=lambda ids, pad: real(ids[:1], pad).expand_as(ids),
)
mask.fault(
    "padding is masked as queries",
    "You mask padding as queries. Mask it as keys.",
    but=("no_padding",),
    lift=lambda words: words[:, None, :, None],
)
mask.fault(
    "padding is masked as queries and keys",
    "You mask padded keys, which is right, but also padded queries.",
    but=("no_padding",),
    lift=lambda words: words[:, None, None, :] & words[:, None, :, None],
)
mask.fault(
    "one condition is enough",
    'You combine the two conditions with "or". Both must hold.',
    join=torch.logical_or,
)
mask.fault(
    "True where it is forbidden",
    "Your mask is inverted. True means: may attend.",
    finish=torch.logical_not,
)
mask.fault(
    "no axis for the heads",
    "Your result has three axes. Add an axis for the heads.",
    finish=lambda m: m[:, 0],
)
mask.fault(
    "numbers instead of booleans",
    "You return 0 and minus infinity. The contract asks for booleans.",
    finish=lambda m: torch.zeros(m.shape).masked_fill(~m, -torch.inf),
)

# --- cross_attention ---------------------------------------------------------------------------


def root(query, key, value, x, memory):
    return query.shape[-1] ** -0.5


def closed(scores, allowed, fill=-torch.inf):
    return scores if allowed is None else scores.masked_fill(~allowed, fill)


def soft(scores, allowed, dim=-1):
    scores = closed(scores, allowed)
    top = scores.amax(dim, keepdim=True).detach()
    parts = (scores - top.masked_fill(top == -torch.inf, 0.0)).exp()
    total = parts.sum(dim, keepdim=True)
    return parts / total.masked_fill(total == 0, 1.0)


def keys_of(memory_mask):
    return None if memory_mask is None else memory_mask[:, None, :]


def look(
    *inputs,
    texts=lambda x, m: (x, m, m),
    matrices=lambda q, k, v: (q, k, v),
    scale=root,
    allow=keys_of,
    weigh=soft,
    mix=lambda w, v: w @ v,
):
    x, memory, *weights, memory_mask = inputs if len(inputs) == 6 else (*inputs, None)
    parts = zip(texts(x, memory), matrices(*weights), strict=True)
    query, key, value = (text @ weight.T for text, weight in parts)
    scores = query @ key.mT * scale(query, key, value, x, memory)
    return mix(weigh(scores, allow(memory_mask)), value)


def with_mask(x, memory, weight_query, weight_key, weight_value, memory_mask=None, **step):
    return look(x, memory, weight_query, weight_key, weight_value, memory_mask, **step)


TESTS = ("by_hand", "values", "mask", "no_source", "gradient")
cross = WrongAnswers("cross_attention", tests=TESTS, right=with_mask)


@witnesses(of="cross_attention")
def cross_calls(draw):
    for b, length, source, d, dm, e, ev in (
        (1, 1, 2, 1, 2, 1, 2),
        (2, 4, 3, 5, 7, 2, 3),
        (3, 4, 4, 4, 4, 4, 4),
        (1, 3, 4, 2, 3, 2, 3),
        (2, 3, 5, 3, 4, 2, 5),
    ):
        shapes = ((b, length, d), (b, source, dm), (e, d), (e, dm), (ev, dm))
        inputs = [draw.normal(*shape) for shape in shapes]
        real_ = draw.mask(b, source)
        none = real_.clone()
        none[-1] = False
        yield call(*inputs)
        yield call(*inputs, real_)
        yield call(*inputs, none)
        for wrt in range(5):
            yield call(*inputs, via=student.grad(wrt))


cross.fault(
    "queries from the source",
    "Your queries come from the source, keys and values from the target. Exchange them.",
    texts=lambda x, m: (m, x, x),
    allow=lambda mask: None,
)
cross.fault(
    "keys and values from the target",
    "Your keys and values come from the target, which is self-attention. They come from `memory`.",
    texts=lambda x, m: (x, x, x),
    allow=lambda mask: None,
)
cross.fault(
    "the values come from the target",
    "Your values come from the target. They come from `memory`.",
    texts=lambda x, m: (x, m, x),
)
cross.fault(
    "key and value exchanged",
    "You exchange keys and values: you compare with the values and mix the keys.",
    matrices=lambda q, k, v: (q, v, k),
)
cross.fault(
    "no scale",
    "You do not scale the scores. Divide them by the root of E.",
    but=("by_hand",),
    scale=lambda *parts: 1,
)
cross.fault(
    "the root is missing",
    "You divide by E itself. The formula has the root.",
    but=("by_hand",),
    scale=lambda q, *parts: 1 / q.shape[-1],
)
cross.fault(
    "scaled by the width of a value",
    "You divide by the root of `E_v`. A score sums over the E elements of a key.",
    scale=lambda *parts: parts[2].shape[-1] ** -0.5,
)
cross.fault(
    "scaled by the width of the target",
    "You divide by the root of D. A score sums over the E elements of a key.",
    but=("by_hand", "gradient"),
    scale=lambda *parts: parts[3].shape[-1] ** -0.5,
)
cross.fault(
    "softmax over the target",
    "Your softmax runs over the target positions. It should run over the source positions.",
    weigh=lambda s, m: soft(s, m, dim=1),
)
cross.fault(
    "no softmax",
    "You use the scores as weights. A softmax is missing.",
    weigh=lambda s, m: closed(s, m, 0.0),
)
cross.fault(
    "the padding of the source is not masked",
    "You ignore `memory_mask`, so padding of the source gets weight.",
    fails=("mask", "no_source"),
    allow=lambda mask: None,
)
cross.fault(
    "the mask is inverted",
    "You mask the real positions. True means: may attend.",
    fails=("mask", "no_source"),
    allow=lambda mask: None if mask is None else ~mask[:, None, :],
)
cross.fault(
    "the first row's mask for all",
    "You use the first sentence's mask for all sentences. Each has its own.",
    fails=("mask", "no_source"),
    allow=lambda mask: None if mask is None else mask[:1, None, :],
)
cross.fault(
    "masked scores set to 0",
    """You set the scores of padding to 0, whose exponential is 1. Which score has the exponential
    0?""",
    fails=("mask", "no_source"),
    weigh=lambda s, m: closed(s, m, 0.0).softmax(-1),
)
cross.fault(
    "the mask comes after the softmax",
    "You set the weights of padding to 0 after the softmax, so the rest sum to less than one.",
    fails=("mask", "no_source"),
    weigh=lambda s, m: s.softmax(-1) * (1.0 if m is None else m),
)
cross.fault(
    "a row without a source becomes NaN",
    "For a row without a source you divide 0 by 0, which is NaN. The contract asks for 0.",
    fails=("no_source",),
    weigh=lambda s, m: closed(s, m).softmax(-1),
)
cross.fault(
    "a row without a source gets the mean",
    """Your row without a source gets equal weights, because you mask with a finite number. The
    contract asks for 0.""",
    fails=("no_source",),
    weigh=lambda s, m: closed(s, m, -1e9).softmax(-1),
)
cross.fault(
    "no gradient to queries and keys",
    "Your values are right, but you detach the weights: queries and keys get no gradient.",
    fails=("gradient",),
    weigh=lambda s, m: soft(s, m).detach(),
)
cross.fault(
    "the weights are returned",
    "You return the weights. The last factor of the formula is missing.",
    mix=lambda w, v: w,
)
cross.detached()

# --- label_smoothed_loss -----------------------------------------------------------------------


def mixture(right, logs, e, words):
    return (1 - e) * right + e * logs.mean(-1)


def chosen(logs, target):
    return logs.gather(-1, target[..., None])[..., 0]


def smoothed(
    logits,
    target_out,
    smoothing,
    pad=0,
    *,
    log=lambda logits: logits.log_softmax(-1),
    pick=chosen,
    skip=lambda pad: pad,
    mix=mixture,
    over=lambda each, counts: each[counts].mean(),
    sign=torch.neg,
):
    logs, counts = log(logits), target_out != skip(pad)
    words = torch.arange(logs.shape[-1]) != pad
    return sign(over(mix(pick(logs, target_out), logs, smoothing, words), counts))


TESTS = ("by_hand", "values", "padding", "large_logits", "gradient")
smooth = WrongAnswers("label_smoothed_loss", tests=TESTS, right=smoothed)


@witnesses(of="label_smoothed_loss")
def smooth_calls(draw):
    for b, length, v in ((1, 1, 2), (2, 3, 5), (3, 5, 7)):
        logits = 2 * draw.normal(b, length, v)
        target = draw.integers(1, v, b, length)
        padded = target.clone()
        padded[-1, length // 2 + 1 :] = 0
        for smoothing in (0.0, 0.1, 0.6):
            yield call(logits, target, smoothing)
            yield call(logits, padded, smoothing)
        yield call(logits, target, 0.2, 9)
        yield call(logits, padded.where(padded > 0, v - 1), 0.2, v - 1)
        yield call(100 * logits, target, 0.1)
        yield call(logits, padded, 0.1, via=student.grad(0))


smooth.fault(
    "the two parts are exchanged",
    "You exchange $\\varepsilon$ and $1 - \\varepsilon$. The right token gets $1 - \\varepsilon$.",
    mix=lambda right, logs, e, words: mixture(right, logs, 1 - e, words),
)
smooth.fault(
    "the right token gets no share of the rest",
    "You spread $\\varepsilon$ over the other tokens only. The inner sum includes the right one.",
    mix=lambda right, logs, e, words: (
        (1 - e) * right + e * (logs.sum(-1) - right) / (logs.shape[-1] - 1)
    ),
)
smooth.fault(
    "the right token left out, divided by all",
    "You leave the right token out of the inner sum. It runs over all V tokens.",
    mix=lambda right, logs, e, words: (1 - e) * right + e * (logs.sum(-1) - right) / logs.shape[-1],
)
smooth.fault(
    "padding gets no share of the rest",
    "You leave `pad` out of the inner sum. It runs over all V tokens.",
    but=("by_hand",),
    mix=lambda right, logs, e, words: (1 - e) * right + e * (logs * words).sum(-1) / words.sum(),
)
smooth.fault(
    "the right token keeps its whole share",
    "You leave out the factor $1 - \\varepsilon$ of the first term.",
    mix=lambda right, logs, e, words: right + e * logs.mean(-1),
)
smooth.fault(
    "the probabilities are mixed before the logarithm",
    "You take the logarithm of a mixture of probabilities. The formula mixes logarithms.",
    mix=lambda right, logs, e, words: ((1 - e) * right.exp() + e / logs.shape[-1]).log(),
)
smooth.fault(
    "padding counts",
    "You include padded positions. Leave them out of the sum and of N.",
    fails=("padding", "gradient"),
    over=lambda each, counts: each.mean(),
)
smooth.fault(
    "padding is zero but counted",
    "You set padded positions to 0 but divide by the number of all positions. N counts real ones.",
    fails=("padding", "gradient"),
    over=lambda each, counts: (each * counts).mean(),
)
smooth.fault(
    "the mean of the rows' means",
    "You average rows first, so tokens of short rows weigh more. Average over all real tokens.",
    fails=("padding", "gradient"),
    over=lambda each, counts: ((each * counts).sum(1) / counts.sum(1).clamp(min=1)).mean(),
)
smooth.fault(
    "divided by the number of rows",
    "You divide by the number of rows. The formula divides by $N$.",
    but=("by_hand",),
    over=lambda each, counts: each[counts].sum() / len(each),
)
smooth.fault(
    "the sum",
    "You return the sum. The formula divides by $N$.",
    but=("by_hand",),
    over=lambda each, counts: each[counts].sum(),
)
smooth.fault(
    "padding is always 0",
    "You treat 0 as the padding id. Use the argument `pad`.",
    fails=("by_hand", "padding"),
    skip=lambda pad: 0,
)
smooth.fault(
    "the softmax underflows",
    "You take the logarithm of a softmax, which underflows to 0. Use `log_softmax`.",
    fails=("large_logits",),
    log=lambda logits: logits.softmax(-1).log(),
)
smooth.fault(
    "a small number inside the logarithm",
    "You add a small number inside the logarithm, which limits the loss. Use `log_softmax`.",
    fails=("large_logits",),
    log=lambda logits: (logits.softmax(-1) + 1e-12).log(),
)
smooth.fault(
    "logits taken for log-probabilities",
    "You use the logits as log-probabilities. Normalise them with `log_softmax`.",
    log=lambda logits: logits,
)
smooth.fault(
    "probabilities without a logarithm",
    "You average the probabilities. The formula averages their logarithms.",
    log=lambda logits: logits.softmax(-1),
)
smooth.fault(
    "softmax over the positions",
    "Your softmax runs over the positions. It should run over the vocabulary.",
    log=lambda logits: logits.log_softmax(1),
)
smooth.detached()

# --- bleu --------------------------------------------------------------------------------------


def runs(sentence, n):
    return Counter(tuple(sentence[i : i + n]) for i in range(len(sentence) - n + 1))


def paired(pairs, share):
    return sum(share(said, wanted) for said, wanted in pairs)


def clipped(said, wanted):
    return sum((said & wanted).values())


def together(pairs, share):
    everything = sum((wanted for _, wanted in pairs), Counter())
    return sum(share(said, everything) for said, _ in pairs)


def largest(pairs, share):
    most = Counter()
    for _, wanted in pairs:
        most |= wanted
    return sum(share(said, most) for said, _ in pairs)


def over_all(hits, totals):
    return sum(hits) / sum(totals) if sum(totals) else 0.0


def brevity(c, r):
    return min(1.0, math.exp(1 - r / c)) if c else 0.0


def geometric(precisions):
    if min(precisions) == 0:
        return 0.0
    return math.exp(sum(map(math.log, precisions)) / len(precisions))


def scored(
    candidates,
    references,
    max_order=4,
    *,
    texts=lambda candidates, references: (candidates, references),
    cut=runs,
    share=clipped,
    among=paired,
    base=lambda said, wanted: said,
    divide=over_all,
    lengths=brevity,
    orders=lambda top: range(1, top + 1),
    mean=geometric,
    finish=lambda score: score,
):
    candidates, references = texts(candidates, references)
    precisions = []
    for n in orders(max_order):
        pairs = [(cut(c, n), cut(r, n)) for c, r in zip(candidates, references, strict=True)]
        totals = [sum(base(*pair).values()) for pair in pairs]
        if among is paired:
            hits = [share(*pair) for pair in pairs]
        else:
            hits, totals = [among(pairs, share)], [sum(totals)]
        precisions.append(divide(hits, totals))
    penalty = lengths(sum(map(len, candidates)), sum(map(len, references)))
    return finish(penalty * mean(precisions))


TESTS = ("by_hand", "orders", "clipped", "length", "corpus", "no_match")
score = WrongAnswers("bleu", tests=TESTS, right=scored)


@witnesses(of="bleu")
def bleu_calls(draw):
    words = ["the", "a", "cat", "dog", "sees", "old", "red", "house", "sat"]

    def sentence(size):
        return [words[i] for i in draw.integers(0, len(words), size).tolist()]

    for sizes in ((5,), (2, 8), (9, 3, 6)):
        right = [sentence(size) for size in sizes]
        near = [[*row[: max(2, len(row) - 2)], *sentence(1)] for row in right]
        longer = [[*row, row[0], row[0]] for row in right]
        for said in (near, longer, right):
            for order in (1, 2, 4):
                yield call(said, right, order)
        # words that another reference has
        yield call([[*a, *b[:2]] for a, b in zip(near, right[::-1], strict=True)], right, 1)
    yield call([["cat", "the"]], [["the", "cat"]], 2)
    yield call([[]], [["the", "cat"]], 2)


score.fault(
    "n-grams are not clipped",
    "You count an n-gram as often as it occurs in the candidate. Limit the count by the reference.",
    fails=("by_hand", "clipped", "corpus"),
    share=lambda said, wanted: sum(times for run, times in said.items() if run in wanted),
)
score.fault(
    "every n-gram counts once",
    "You compare sets of n-grams. Compare counts: take the smaller one.",
    fails=("orders", "clipped", "corpus"),
    share=lambda said, wanted: len(said.keys() & wanted.keys()),
)
score.fault(
    "clipped by all references together",
    "You clip by all references together. Use the reference of the same sentence.",
    fails=("corpus",),
    among=together,
)
score.fault(
    "clipped by the largest count in any reference",
    "You clip by the largest count in any reference. Use the reference of the same sentence.",
    fails=("corpus",),
    among=largest,
)
score.fault(
    "the corpus as one long sentence",
    "You add the counts of the corpus before you match. First match each sentence, then add.",
    fails=("corpus",),
    among=lambda pairs, share: share(*(sum(part, Counter()) for part in zip(*pairs, strict=True))),
)
score.fault(
    "candidates and references exchanged",
    "You exchange candidates and references. Divide by the n-grams of the candidates.",
    fails=("length", "corpus"),
    texts=lambda candidates, references: (references, candidates),
)
score.fault(
    "the mean of the sentences' precisions",
    "You average the precisions of sentences. Sum matches and n-grams first, then divide.",
    fails=("corpus",),
    divide=lambda hits, totals: (
        sum(h / t if t else 0.0 for h, t in zip(hits, totals, strict=True)) / len(hits)
    ),
)
score.fault(
    "the last n-gram is missing",
    "You leave out the last n-gram of each sentence. Check the end of your range.",
    but=("no_match",),
    cut=lambda sentence, n: runs(sentence[:-1], n),
)
score.fault(
    "the order inside an n-gram is ignored",
    "You ignore the order of the words in an n-gram. It matters.",
    fails=("corpus", "no_match"),
    cut=lambda sentence, n: Counter(
        tuple(sorted(sentence[i : i + n])) for i in range(len(sentence) - n + 1)
    ),
)
score.fault(
    "no brevity penalty",
    "You leave out the brevity penalty. Multiply by BP.",
    fails=("length", "corpus"),
    lengths=lambda c, r: 1.0,
)
score.fault(
    "long candidates are rewarded",
    "Your length factor exceeds 1 for long candidates. BP is at most 1.",
    fails=("length", "corpus"),
    lengths=lambda c, r: math.exp(1 - r / c) if c else 0.0,
)
score.fault(
    "the 1 of the exponent is missing",
    "Your exponent is -r / c. The formula has 1 - r / c.",
    but=("no_match",),
    lengths=lambda c, r: min(1.0, math.exp(-r / c)) if c else 0.0,
)
score.fault(
    "single words only",
    "You use only single words. Use all orders up to `max_order`.",
    orders=lambda top: [1],
)
score.fault(
    "the highest order only",
    "You use only the highest order. Use all orders.",
    but=("no_match",),
    orders=lambda top: [top],
)
score.fault(
    "the highest order is missing",
    "You stop one order too early. Include `max_order`.",
    orders=lambda top: range(1, max(top, 2)),
)
score.fault(
    "the plain mean of the precisions",
    "You average the precisions. The formula has the root of their product.",
    mean=lambda precisions: sum(precisions) / len(precisions),
)
score.fault(
    "the product without the root",
    "You leave out the root of the product of precisions.",
    but=("no_match",),
    mean=math.prod,
)
score.fault(
    "orders without a match are left out",
    "You leave out orders without a match. The result is 0 if an order has none.",
    fails=("corpus", "no_match"),
    mean=lambda precisions: geometric([p for p in precisions if p] or [0.0]),
)
score.fault(
    "an order without a match is an error",
    "You take the logarithm of 0. The contract sets the result to 0.0.",
    fails=("corpus", "no_match"),
    mean=lambda precisions: math.exp(sum(map(math.log, precisions)) / len(precisions)),
)


@score("the mean of the sentences' scores", fails=("corpus",))
def bleu_mean(candidates, references, max_order=4):
    """You average the scores of the sentences. BLEU sums the counts over the corpus before it
    divides.
    """
    each = (scored([c], [r], max_order) for c, r in zip(candidates, references, strict=True))
    return sum(each) / len(candidates)


# --- the repair and the test -------------------------------------------------------------------


def two_looks(
    x,
    memory,
    *,
    own=torch.tril,
    source=lambda full: full,
    scale=lambda d: d**-0.5,
    first=torch.add,
    second=torch.add,
    asks=lambda found, x: found,
):
    def at(query, key, allowed):
        allowed = allowed(torch.ones(query.shape[1], key.shape[1], dtype=torch.bool))
        scores = query @ key.mT * scale(query.shape[-1])
        return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ key

    found = first(x, at(x, x, own))
    return second(found, at(asks(found, x), memory, source))


TESTS = ("one_source_word", "one_target_word", "both")
fixed = WrongAnswers("fixed_decoder_looks", tests=TESTS, right=two_looks)


@witnesses(of="fixed_decoder_looks")
def fixed_calls(draw):
    for b, length, source in ((1, 2, 1), (1, 1, 2), (2, 4, 5), (2, 5, 3)):
        yield call(draw.normal(b, length, 3), draw.normal(b, source, 3))


fixed.fault(
    "both faults are still there",
    "This is the broken code. Which positions may each of the two attentions read?",
    own=lambda full: full,
    source=torch.tril,
)
fixed.fault(
    "the target still attends to its future",
    "The source is now right. Target positions still attend to later ones.",
    but=("one_target_word",),
    own=lambda full: full,
)
fixed.fault(
    "the source is still masked",
    """The target is now right. The source is still masked: every target position may attend to all
    of it.""",
    but=("one_source_word",),
    source=torch.tril,
)
fixed.fault(
    "the target mask is reversed",
    """Your target positions attend to themselves and later ones. They should attend to earlier
    ones.""",
    but=("one_target_word",),
    own=torch.triu,
)
fixed.fault(
    "itself excluded",
    "You mask each position's own key, so the first position has no key.",
    own=lambda full: full.tril(-1),
)
fixed.fault(
    "the input of the second attention is lost",
    "You return the second result alone. Add it to the first sum.",
    second=lambda x, y: y,
)
fixed.fault(
    "the target is lost after the first attention",
    "You replace the target by the first result. Add the two.",
    first=lambda x, y: y,
)
fixed.fault(
    "both attentions read the input",
    "Your second attention reads the block's input. It should read the sum after the first.",
    but=("one_source_word",),
    asks=lambda found, x: x,
)
fixed.fault(
    "the scale is gone",
    "You removed the scale of the scores. It was right.",
    scale=lambda d: 1,
)


checks = WrongAnswers("check_decoder", tests=("plain", "mutants"))
NUMBERS = torch.linspace(-1, 1, 100, dtype=torch.float64).reshape(10, 10).sin()


@witnesses(of="check_decoder")
def check_calls(draw):
    def sound(ids):
        return NUMBERS[ids].cumsum(1)

    def ahead(ids):
        return NUMBERS[ids.roll(-1, dims=1)]

    def faint(ids):
        return sound(ids) + 1e-4 * NUMBERS[ids].flip(1).cumsum(1).flip(1)

    def rows(ids):
        return sound(ids) + sound(ids).mean(0)

    def mean(ids):
        return NUMBERS[ids].mean(1, keepdim=True).expand(-1, ids.shape[1], -1)

    def narrow(ids):
        return sound(ids)[..., :9]

    for candidate in (sound, ahead, faint, rows, mean, narrow, lambda ids: 1 / 0):
        yield call(candidate)


@checks("accepts everything")
def check_nothing(decoder):
    """Your test always returns True. Run the decoder on two inputs that differ only where it must
    not matter, and compare.
    """
    return True


@checks("rejects everything")
def check_refuse(decoder):
    """Your test rejects a sound decoder. Compare only positions that must not depend on the change,
    and allow for rounding.
    """
    return False


@checks("only the shape is compared")
def check_shape(decoder):
    """You compare only the shape of the logits. An unsound decoder has the right shape."""
    return tuple(decoder(torch.zeros(2, 5, dtype=torch.long)).shape) == (2, 5, 10)


@checks("every position is compared")
def check_all(decoder):
    """You change the last token and compare all logits. Those at its own position may change:
    compare the positions before it.
    """
    ids = torch.arange(6)[None]
    other = ids.clone()
    other[0, -1] = 9
    return bool(torch.allclose(decoder(ids), decoder(other)))


@checks("the same input twice")
def check_twice(decoder):
    """You run the decoder twice on the same tokens, so the results agree. Change later tokens
    between the runs.
    """
    ids = torch.arange(6)[None]
    return bool(torch.allclose(decoder(ids), decoder(ids)))
