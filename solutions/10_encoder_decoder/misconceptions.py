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
    """You hand the decoder what it should say, at the same place. Copying its input is then the
    whole task, and it learns nothing else. Every word belongs one place later.""",
    move=lambda target, bos, pad: target.clone(),
    clean=lambda ids, eos, pad, bos: ids,
)
shift.fault(
    "shifted to the left",
    """Your words move one place forwards in time: the decoder reads tomorrow's word. They should
    come one place later than they are asked for.""",
    move=lambda target, bos, pad: torch.cat([target[:, 1:], start(target, pad)], dim=1),
    clean=lambda ids, eos, pad, bos: ids,
)
shift.fault(
    "rolled around",
    """What falls off the end comes back at the front. The decoder should start from `bos`, the
    same for every sentence, or it knows something about the end before it has begun.""",
    move=lambda target, bos, pad: target.roll(1, dims=1),
)
shift.fault(
    "eos is read",
    """The decoder reads `eos` in your result. Whoever has read it has already stopped; behind the
    last word there is nothing but padding.""",
    clean=lambda ids, eos, pad, bos: ids,
)
shift.fault(
    "the last place is always padding",
    """You empty the last place of every row. A row that was cut off has a word there: nothing but
    `eos` is taken away.""",
    but=("by_hand",),
    clean=lambda ids, eos, pad, bos: torch.cat(
        [hide(ids, eos, pad, bos)[:, :-1], start(ids, pad)], dim=1
    ),
)
shift.fault(
    "no bos",
    """Your first place holds padding. The decoder needs a token to start from, and padding is
    masked away; look at what `bos` is for.""",
    move=lambda target, bos, pad: late(target, pad),
)
shift.fault(
    "the first word is overwritten",
    """You write `bos` over the first word and leave the others where they were, so that the first
    word is lost and all the others stand beside their own answers.""",
    move=lambda target, bos, pad: torch.cat([start(target, bos), target[:, 1:]], dim=1),
)
shift.fault(
    "padding is always 0",
    """You write 0 where padding belongs. Which number stands for padding is said by the argument
    `pad`; elsewhere 0 is a word like any other.""",
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
    "the future is open",
    """You close padding and nothing else, so that every position sees the words it has to guess.
    The loss will be wonderful, and the model will write nonsense.""",
    order=lambda ids: torch.ones_like(past(ids)),
)
mask.fault(
    "the past is closed",
    """Each position sees itself and what comes after it. Read row 0: the first position should see
    only itself.""",
    order=lambda ids: past(ids).T,
)
mask.fault(
    "itself excluded",
    """A position may not look at itself in your mask. What it reads is the word before, which is
    known; and the first position would have nothing at all.""",
    order=lambda ids: past(ids).tril(-1),
)
mask.fault(
    "one step too far",
    """Every position sees one word of the future: the very one that it has to guess. Look at the
    comparison.""",
    order=lambda ids: torch.ones_like(past(ids)).tril(1),
)
mask.fault(
    "padding is open",
    """You close the future and forget the padding. A short sentence then depends on how long the
    others in its batch are.""",
    but=("no_padding",),
    words=lambda ids, pad: torch.ones_like(ids).bool(),
)
mask.fault(
    "padding is always 0",
    """You compare with 0 whatever `pad` says. Then real words are hidden and padding is open as
    soon as somebody numbers otherwise.""",
    fails=("padding", "other_pad"),
    words=lambda ids, pad: real(ids, 0),
)
mask.fault(
    "closed from the first padding on",
    """You close everything behind the first padding. It may stand anywhere, and words may
    follow.""",
    fails=("padding", "other_pad"),
    words=lambda ids, pad: real(ids, pad).int().cumprod(1).bool(),
)
mask.fault(
    "the first row's padding for all",
    """Every sentence of the batch gets the padding of the first one. The mask needs an entry for
    each row of the batch.""",
    fails=("padding", "other_pad"),
    words=lambda ids, pad: real(ids[:1], pad).expand_as(ids),
)
mask.fault(
    "padding is closed for those who ask",
    """You close the rows of padded positions. What a padded position finds matters to nobody; that
    the others do not look at it is what matters. Which axis are the keys?""",
    but=("no_padding",),
    lift=lambda words: words[:, None, :, None],
)
mask.fault(
    "padding is closed on both sides",
    """You close padding as keys, which is right, and as queries too, so that their rows have
    nothing to look at. The contract asks for the keys only.""",
    but=("no_padding",),
    lift=lambda words: words[:, None, None, :] & words[:, None, :, None],
)
mask.fault(
    "one of the two is enough",
    """You join the two conditions by "or": a key is open if it is in the past or if it is a word,
    so that future words are open. Both conditions must hold.""",
    join=torch.logical_or,
)
mask.fault(
    "True where it is forbidden",
    """Your mask says what is forbidden. Here True means "may be attended to", as in torch's
    `scaled_dot_product_attention`.""",
    finish=torch.logical_not,
)
mask.fault(
    "no axis for the heads",
    """Your result has three axes. The scores have four, with the heads on the second one; without
    an axis for them the rows of the batch would be taken for heads.""",
    finish=lambda m: m[:, 0],
)
mask.fault(
    "numbers in place of booleans",
    """You return 0 and minus infinity. That can be added to scores; here a boolean mask is asked
    for.""",
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
    """The right answer in steps; a fault replaces some of them."""
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
    "the source asks",
    """Your queries come from the source and your keys and values from the target. The decoder
    wants to know something of the source: who asks, and who answers?""",
    texts=lambda x, m: (m, x, x),
    allow=lambda mask: None,
)
cross.fault(
    "the target looks at itself",
    """Keys and values are made from the target: this is self-attention, and the source is never
    read. With equal sizes nothing breaks. Look at where $M$ stands in the formula.""",
    texts=lambda x, m: (x, x, x),
    allow=lambda mask: None,
)
cross.fault(
    "the values come from the target",
    """You compare with the source and then hand over the target. The weights belong to source
    positions, so what they mix must be there, too.""",
    texts=lambda x, m: (x, m, x),
)
cross.fault(
    "key and value exchanged",
    """You compare by the values and hand over the keys. With equal sizes nothing breaks; compare
    your names with the formula.""",
    matrices=lambda q, k, v: (q, v, k),
)
cross.fault(
    "no scale",
    """You compare by the plain product. Divide by the square root of the number of entries of a
    query, as in self-attention.""",
    but=("by_hand",),
    scale=lambda *parts: 1,
)
cross.fault(
    "the root is missing",
    """You divide by the number of entries of a query itself, or by its root in two places. The
    weights come out nearly alike.""",
    but=("by_hand",),
    scale=lambda q, *parts: 1 / q.shape[-1],
)
cross.fault(
    "scaled by the width of a value",
    """You divide by the root of the width of a value. A product is a sum over the entries of query
    and key.""",
    scale=lambda *parts: parts[2].shape[-1] ** -0.5,
)
cross.fault(
    "scaled by the width of the target",
    """You divide by the root of the width of the target vectors. A product is a sum over the
    entries of query and key, after the matrices.""",
    but=("by_hand", "gradient"),
    scale=lambda *parts: parts[3].shape[-1] ** -0.5,
)
cross.fault(
    "softmax over the target",
    """Your softmax runs over the target positions: they compete for each source word. Every target
    position should share out a weight of one over the source.""",
    weigh=lambda s, m: soft(s, m, dim=1),
)
cross.fault(
    "no softmax",
    """You mix by the scores themselves. They may be negative and sum to anything; weights come out
    of a softmax.""",
    weigh=lambda s, m: closed(s, m, 0.0),
)
cross.fault(
    "the padding of the source is open",
    """You never use `memory_mask`, so that padding takes its share of the weight. A translation
    would change with the length of the other sentences in the batch.""",
    fails=("mask", "no_source"),
    allow=lambda mask: None,
)
cross.fault(
    "the mask is inverted",
    """You close the real words and keep the padding. True means "may be attended to"; torch's
    `key_padding_mask` has it the other way round.""",
    fails=("mask", "no_source"),
    allow=lambda mask: None if mask is None else ~mask[:, None, :],
)
cross.fault(
    "the first row's mask for all",
    """Every sentence gets the source mask of the first one. Look at what happens to the axis of
    the batch.""",
    fails=("mask", "no_source"),
    allow=lambda mask: None if mask is None else mask[:1, None, :],
)
cross.fault(
    "masked scores set to 0",
    """You set the scores of padding to 0. That is a score like any other, and its exponential is
    1. Which score has the exponential 0?""",
    fails=("mask", "no_source"),
    weigh=lambda s, m: closed(s, m, 0.0).softmax(-1),
)
cross.fault(
    "the mask comes after the softmax",
    """You take the softmax over everything and take the weights of padding away afterwards. They
    have had their share by then, and the others sum to less than one.""",
    fails=("mask", "no_source"),
    weigh=lambda s, m: s.softmax(-1) * (1.0 if m is None else m),
)
cross.fault(
    "a row without a source becomes NaN",
    """A sentence without any real source word gives NaN: its softmax divides 0 by 0. Decide what
    such a row is given before the softmax, and take its weights away after it.""",
    fails=("no_source",),
    weigh=lambda s, m: closed(s, m).softmax(-1),
)
cross.fault(
    "a row without a source gets the mean",
    """A sentence without any real source word gets the mean of its padding: all its scores are the
    same very negative number, and a softmax of equal scores is even.""",
    fails=("no_source",),
    weigh=lambda s, m: closed(s, m, -1e9).softmax(-1),
)
cross.fault(
    "no gradient to queries and keys",
    """The values are right, but your weights are cut off (detach, no_grad, item or a new tensor),
    so that only the value can learn.""",
    fails=("gradient",),
    weigh=lambda s, m: soft(s, m).detach(),
)
cross.fault(
    "the weights are returned",
    """You return the table of weights, and nothing is mixed. Look at the last factor of the
    formula.""",
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
    """The right answer in steps; a fault replaces some of them."""
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
    "not smoothed",
    """Your loss is the plain cross-entropy: `smoothing` changes nothing. Look at the second term,
    which asks for a little of every word.""",
    mix=lambda right, logs, e, words: right,
)
smooth.fault(
    "the two parts are exchanged",
    """You give the share $1 - \\varepsilon$ to all words and $\\varepsilon$ to the right one. With
    0.1 the model would hardly be asked for the right word.""",
    mix=lambda right, logs, e, words: mixture(right, logs, 1 - e, words),
)
smooth.fault(
    "the right word gets no share of the rest",
    """You spread the rest over the other words only. That is another recipe; in this one every
    word gets its share, the right one too, as in torch.""",
    mix=lambda right, logs, e, words: (
        (1 - e) * right + e * (logs.sum(-1) - right) / (logs.shape[-1] - 1)
    ),
)
smooth.fault(
    "the right word left out, divided by all",
    """You leave the right word out of the sum and divide by V all the same. The parts of the
    target sum to less than one.""",
    mix=lambda right, logs, e, words: (1 - e) * right + e * (logs.sum(-1) - right) / logs.shape[-1],
)
smooth.fault(
    "padding gets no share of the rest",
    """You leave the word `pad` out of the inner sum. It runs over all V words, `pad` included.""",
    but=("by_hand",),
    mix=lambda right, logs, e, words: (1 - e) * right + e * (logs * words).sum(-1) / words.sum(),
)
smooth.fault(
    "the right word keeps its whole share",
    """You add the second term and leave the first as it was. The target would sum to more than
    one: what all words get is taken from the right one.""",
    mix=lambda right, logs, e, words: right + e * logs.mean(-1),
)
smooth.fault(
    "the probabilities are mixed before the logarithm",
    """You mix the probability with an even share and take the logarithm of the mixture. That
    smooths the model; what is smoothed here is the target.""",
    mix=lambda right, logs, e, words: ((1 - e) * right.exp() + e / logs.shape[-1]).log(),
)
smooth.fault(
    "the minus is missing",
    """Your loss is negative: it would be made smaller by being wrong. Look at the sign in front of
    the formula.""",
    sign=lambda x: x,
)
smooth.fault(
    "padding counts",
    """Positions whose target is padding take part. How long the other sentences are then changes
    the loss; leave these positions out of the sum and of the number it is divided by.""",
    fails=("padding", "gradient"),
    over=lambda each, counts: each.mean(),
)
smooth.fault(
    "padding is zero but is counted",
    """You set padded positions to 0 and divide by the number of all positions. The more padding,
    the smaller your loss. Divide by how many count.""",
    fails=("padding", "gradient"),
    over=lambda each, counts: (each * counts).mean(),
)
smooth.fault(
    "the mean of the rows' means",
    """You average every row by itself, and then the rows. A word of a short sentence weighs more
    than one of a long sentence; the formula has one sum over all.""",
    fails=("padding", "gradient"),
    over=lambda each, counts: ((each * counts).sum(1) / counts.sum(1).clamp(min=1)).mean(),
)
smooth.fault(
    "divided by the number of rows",
    """You divide by the number of sentences. A batch of longer sentences then has a larger loss;
    the formula divides by $N$, the words.""",
    but=("by_hand",),
    over=lambda each, counts: each[counts].sum() / len(each),
)
smooth.fault(
    "the sum",
    """You return the sum over all positions. A batch of longer sentences would have a larger loss
    and larger steps; the formula divides by $N$.""",
    but=("by_hand",),
    over=lambda each, counts: each[counts].sum(),
)
smooth.fault(
    "padding is always 0",
    """You leave out the positions whose target is 0, whatever `pad` says. Look at the last
    argument.""",
    fails=("by_hand", "padding"),
    skip=lambda pad: 0,
)
smooth.fault(
    "the softmax leaves the range of numbers",
    """You take exponentials and then a logarithm. A probability that rounds to 0 has the logarithm
    minus infinity, and a large exponential is infinite; `log_softmax` never leaves the
    logarithms.""",
    fails=("large_logits",),
    log=lambda logits: logits.softmax(-1).log(),
)
smooth.fault(
    "a small number inside the logarithm",
    """You add a small number so that the logarithm stays finite. Then no word can cost more than
    the logarithm of that number; `log_softmax` needs no such help.""",
    fails=("large_logits",),
    log=lambda logits: (logits.softmax(-1) + 1e-12).log(),
)
smooth.fault(
    "logits taken for log-probabilities",
    """You use the logits as they are. They are not normalised: log-probabilities come out of a
    `log_softmax`.""",
    log=lambda logits: logits,
)
smooth.fault(
    "probabilities without a logarithm",
    """You average probabilities. The loss is made of their logarithms.""",
    log=lambda logits: logits.softmax(-1),
)
smooth.fault(
    "softmax over the positions",
    """Your softmax runs over the positions of a row: they compete for each word. At each position
    the words compete.""",
    log=lambda logits: logits.log_softmax(1),
)
smooth.detached()

# --- greedy_decode -----------------------------------------------------------------------------


def write(
    logits_of,
    rows,
    bos,
    eos,
    max_length,
    pad=0,
    *,
    ids=lambda bos, eos, pad: (bos, eos, pad),
    read=lambda prefix, size: prefix,
    at=lambda logits, t: logits[:, -1],
    choose=lambda logits: logits.argmax(-1),
    keep=lambda token, eos, pad: token,
    fill=lambda ended: ended,
    over=lambda ended, said: ended | said,
    stop=torch.all,
    steps=range,
    finish=lambda written, prefix, eos: written,
):
    """The right answer in steps; a fault replaces some of them."""
    bos, eos, pad = ids(bos, eos, pad)
    prefix = torch.full((rows, 1), bos)
    written = torch.full((rows, max_length), pad)
    ended = torch.zeros(rows, dtype=torch.bool)
    for t in steps(max_length):
        token = choose(at(logits_of(read(prefix, max_length + 1)), t))
        written[:, t] = torch.where(fill(ended), written[:, t], keep(token, eos, pad))
        ended = over(ended, token == eos)
        prefix = torch.cat([prefix, token[:, None]], dim=1)
        if bool(stop(ended)):
            break
    return finish(written, prefix, eos)


TESTS = ("by_hand", "whole_prefix", "rows_end_apart", "cut_off", "other_ids")
greedy = WrongAnswers("greedy_decode", tests=TESTS, right=write)


def fading(table, decay):
    def logits_of(prefix):
        age = torch.arange(prefix.shape[1])
        weights = (float(decay) ** (age[:, None] - age).clamp(min=0).double()).tril()
        return weights @ table[prefix]

    return logits_of


def until(lengths, compare=torch.ge):
    def logits_of(prefix):
        over = compare(torch.arange(1, prefix.shape[1] + 1), lengths[:, None])
        logits = torch.zeros(*over.shape, 5, dtype=torch.float64)
        logits[..., 3] = 1.0
        logits[..., 2] = 2.0 * over
        return logits

    return logits_of


@witnesses(of="greedy_decode")
def greedy_calls(draw):
    double = torch.float64
    for decay in (0.0, 0.8, 0.9):
        yield call(fading(draw.normal(7, 7, dtype=double), decay), 1, 1, 2, 6)
        yield call(fading(draw.normal(7, 7, dtype=double), decay), 2, 3, 4, 6, pad=9)
    yield call(until(torch.tensor([3, 1])), 2, 1, 2, 5)
    yield call(until(torch.tensor([1, 4, 2])), 3, 1, 2, 6)
    yield call(until(torch.tensor([1, 4, 2]), torch.eq), 3, 1, 2, 6)
    endless = torch.zeros(6, 6, dtype=double)
    endless[1, 3] = endless[3, 4] = endless[4, 5] = endless[5, 3] = 3.0
    yield call(fading(endless, 0.0), 2, 1, 2, 4)


greedy.fault(
    "only the last token is read",
    """You hand over the last token alone. There is no state that remembers the others: a
    Transformer knows of a word only if it is in the prefix.""",
    fails=("whole_prefix", "rows_end_apart"),
    read=lambda prefix, size: prefix[:, -1:],
)
greedy.fault(
    "padding is read",
    """You fill the prefix up to its full length and read the logits at its end: what the model
    says after padding. The next word is what it says after the last token that was written.""",
    read=lambda prefix, size: torch.nn.functional.pad(prefix, (0, size - prefix.shape[1])),
)
greedy.fault(
    "nothing written is read",
    """You hand over `bos` at every step. What has been written must go into the prefix, or the
    model starts anew each time; and the logits are those of its last place.""",
    read=lambda prefix, size: prefix[:, :1],
)
greedy.fault(
    "bos is forgotten after the first step",
    """You hand over what has been written without `bos`. The prefix starts with it at every
    step.""",
    fails=("whole_prefix", "rows_end_apart"),
    read=lambda prefix, size: prefix[:, 1:] if prefix.shape[1] > 1 else prefix,
)
greedy.fault(
    "the mean of all logits",
    """You average the logits over the places. The next word is what the model says after the last
    one.""",
    at=lambda logits, t: logits.mean(1),
)
greedy.fault(
    "one token for all rows",
    """All rows get the token of the first one. Each row has a prefix of its own.""",
    fails=("rows_end_apart",),
    choose=lambda logits: logits.argmax(-1)[:1].expand(len(logits)),
)
greedy.fault(
    "rows go on after eos",
    """A row that has said `eos` goes on in your result. Behind the end of a row stands `pad`,
    whatever the model says there.""",
    fails=("rows_end_apart",),
    fill=torch.zeros_like,
)
greedy.fault(
    "a row wakes up after eos",
    """You ask at every step whether `eos` was just said, and forget it at the next one: after one
    `pad` the row goes on. What has ended stays ended.""",
    fails=("rows_end_apart",),
    over=lambda ended, said: said,
)
greedy.fault(
    "the first end stops all rows",
    """You stop as soon as one row has ended, and cut the others off. Stop when all of them
    have.""",
    fails=("rows_end_apart",),
    stop=torch.any,
)
greedy.fault(
    "eos is not written",
    """`eos` is missing from your result. Without it nobody can tell a row that ended from one that
    was cut off.""",
    but=("cut_off",),
    keep=lambda token, eos, pad: token.masked_fill(token == eos, pad),
)
greedy.fault(
    "one step too few",
    """You write one token less than there are places. `bos` is not counted among them.""",
    fails=("whole_prefix", "cut_off"),
    steps=lambda size: range(size - 1),
)
greedy.fault(
    "bos is written",
    """Your result starts with `bos`. It is what the model reads first, not something it said.""",
    finish=lambda written, prefix, eos: torch.cat([prefix[:, :1], written], dim=1)[:, :-1],
)
greedy.fault(
    "as wide as the longest row",
    """Your table is only as wide as the longest row that was written. The contract fixes
    `max_length` columns, so that results of several batches fit together.""",
    but=("cut_off",),
    finish=lambda written, prefix, eos: written[:, : prefix.shape[1] - 1],
)
greedy.fault(
    "padding is always 0",
    """You fill up with 0 whatever `pad` says. Look at the last argument.""",
    fails=("other_ids",),
    ids=lambda bos, eos, pad: (bos, eos, 0),
)

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
    """The right answer in steps; a fault replaces some of them."""
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
    "runs are not clipped",
    """A word that is said four times counts four times in your score, though the reference has it
    once: "the the the the" would be perfect. Count it at most as often as the reference does.""",
    fails=("by_hand", "clipped", "corpus"),
    share=lambda said, wanted: sum(times for run, times in said.items() if run in wanted),
)
score.fault(
    "every run counts once",
    """You compare sets of runs, so that a word said twice, rightly, counts once. Runs have
    numbers; take the smaller of the two.""",
    fails=("orders", "clipped", "corpus"),
    share=lambda said, wanted: len(said.keys() & wanted.keys()),
)
score.fault(
    "clipped by all references together",
    """You look a run up in all references at once. A run counts only where it stands in the
    reference of its own sentence, and at most as often.""",
    fails=("corpus",),
    among=together,
)
score.fault(
    "clipped by the largest number in any reference",
    """You look a run up in all references and take the largest of its numbers. A run counts only
    where it stands in the reference of its own sentence.""",
    fails=("corpus",),
    among=largest,
)
score.fault(
    "the corpus as one long sentence",
    """You add the counts up over the corpus before you compare them. A run counts only where it
    stands in the reference of its own sentence: first match, then add.""",
    fails=("corpus",),
    among=lambda pairs, share: share(*(sum(part, Counter()) for part in zip(*pairs, strict=True))),
)
score.fault(
    "candidates and references exchanged",
    """You measure the references by the candidates. Precision asks how much of what was *said* is
    right.""",
    fails=("length", "corpus"),
    texts=lambda candidates, references: (references, candidates),
)
score.fault(
    "the mean of the sentences' precisions",
    """You divide sentence by sentence and take the mean. Matches and runs are each summed over all
    sentences, and then divided.""",
    fails=("corpus",),
    divide=lambda hits, totals: (
        sum(h / t if t else 0.0 for h, t in zip(hits, totals, strict=True)) / len(hits)
    ),
)
score.fault(
    "the last run is missing",
    """You cut one run too few out of each sentence. With n words there is one run of n: look at
    the end of your range.""",
    but=("no_match",),
    cut=lambda sentence, n: runs(sentence[:-1], n),
)
score.fault(
    "the order inside a run does not count",
    """You compare the words of a run in any order. A run is what stands there word after word.""",
    fails=("corpus", "no_match"),
    cut=lambda sentence, n: Counter(
        tuple(sorted(sentence[i : i + n])) for i in range(len(sentence) - n + 1)
    ),
)
score.fault(
    "no penalty for short ones",
    """The lengths are missing: "the" alone would be a perfect translation of everything that
    contains it. Look at the factor in front.""",
    fails=("length", "corpus"),
    lengths=lambda c, r: 1.0,
)
score.fault(
    "long ones are rewarded",
    """Your length factor exceeds 1 for candidates that are longer than their references. It is a
    penalty for short ones; long ones are punished by their precisions.""",
    fails=("length", "corpus"),
    lengths=lambda c, r: math.exp(1 - r / c) if c else 0.0,
)
score.fault(
    "the 1 of the exponent is missing",
    """Your penalty is the exponential of minus the ratio: a candidate as long as its reference
    would be punished, too.""",
    but=("no_match",),
    lengths=lambda c, r: min(1.0, math.exp(-r / c)) if c else 0.0,
)
score.fault(
    "single words only",
    """You count single words whatever `max_order` says. A translation with the right words in any
    order would be perfect.""",
    orders=lambda top: [1],
)
score.fault(
    "the highest order only",
    """You use the longest runs alone. The formula takes all orders up to `max_order` together.""",
    but=("no_match",),
    orders=lambda top: [top],
)
score.fault(
    "the highest order is missing",
    """You stop one order too early. The orders run from 1 to `max_order`, the last one
    included.""",
    orders=lambda top: range(1, max(top, 2)),
)
score.fault(
    "always four orders",
    """You take four orders whatever `max_order` says. With another number, other n-grams count.""",
    but=("no_match",),
    orders=lambda top: range(1, 5),
)
score.fault(
    "the plain mean of the precisions",
    """You add the precisions and divide by their number. The formula multiplies them and takes a
    root, so that an order without a match makes the score 0.""",
    mean=lambda precisions: sum(precisions) / len(precisions),
)
score.fault(
    "the product without the root",
    """You multiply the precisions and leave it at that, so that more orders always mean a smaller
    score. The formula takes the root of the order.""",
    but=("no_match",),
    mean=math.prod,
)
score.fault(
    "orders without a match are left out",
    """You leave out the orders that have no match. Then the result is not 0 as soon as one word is
    right.""",
    fails=("corpus", "no_match"),
    mean=lambda precisions: geometric([p for p in precisions if p] or [0.0]),
)
score.fault(
    "an order without a match is an error",
    """You take the logarithm of a precision of 0. Short candidates have no long runs, so this
    happens; the contract says what the result is.""",
    fails=("corpus", "no_match"),
    mean=lambda precisions: math.exp(sum(map(math.log, precisions)) / len(precisions)),
)


@score("the mean of the sentences' scores", fails=("corpus",))
def bleu_mean(candidates, references, max_order=4):
    """You score every sentence by itself and take the mean. One sentence without a run of four then
    scores 0; BLEU sums the counts over the corpus before it divides.
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
    """This is the broken code as it stands. Ask of each of the two looks what may be known at that
    moment: the target that is not yet written? The end of the source?""",
    own=lambda full: full,
    source=torch.tril,
)
fixed.fault(
    "the target still sees its future",
    """The whole source is in view now. But a target position still looks at the words behind it,
    which are not there when the model writes.""",
    but=("one_target_word",),
    own=lambda full: full,
)
fixed.fault(
    "the source is still hidden",
    """The target sees only its past now. But the first target word still sees the first source
    word alone, although the whole source has been read.""",
    but=("one_source_word",),
    source=torch.tril,
)
fixed.fault(
    "the masks are turned round",
    """Your target positions look at themselves and what follows. Read the first row of your mask:
    which of its columns are known when the first word is written?""",
    but=("one_target_word",),
    own=torch.triu,
)
fixed.fault(
    "itself excluded",
    """A target position may not look at itself any more, and the first one is left with nothing,
    which is NaN.""",
    own=lambda full: full.tril(-1),
)
fixed.fault(
    "what was there is lost",
    """You return what was found in the source, and the sum it should be added to is gone.""",
    second=lambda x, y: y,
)
fixed.fault(
    "the target is lost after the first look",
    """What the first look found replaces the target. It is added.""",
    first=lambda x, y: y,
)
fixed.fault(
    "both looks read the input",
    """Your second look asks with what came in. It should ask with what the first look has left.""",
    but=("one_source_word",),
    asks=lambda found, x: x,
)
fixed.fault(
    "the scale is gone",
    """You took the scale out. It was not one of the two faults.""",
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
    """Your test says True whatever it is given. Run the decoder twice on inputs that differ only where
    it must not matter, and compare.
    """
    return True


@checks("rejects everything")
def check_refuse(decoder):
    """Your test rejects a sound decoder. Change only what the compared positions may not see, compare
    only these positions, and leave room for rounding.
    """
    return False


@checks("only the shape is looked at")
def check_shape(decoder):
    """You look at the shape of the logits. A decoder that sees the future has the right shape."""
    return tuple(decoder(torch.zeros(2, 5, dtype=torch.long)).shape) == (2, 5, 10)


@checks("every position is compared")
def check_all(decoder):
    """You change the last token and ask that no logits move at all. Those at its own place may: they
    depend on it rightly. Compare the positions before it.
    """
    ids = torch.arange(6)[None]
    other = ids.clone()
    other[0, -1] = 9
    return bool(torch.allclose(decoder(ids), decoder(other)))


@checks("the same input twice")
def check_twice(decoder):
    """You run the decoder twice on the same tokens. It will agree with itself, sound or not. Something
    that must not matter has to change between the two runs.
    """
    ids = torch.arange(6)[None]
    return bool(torch.allclose(decoder(ids), decoder(ids)))
