"""Wrong answers on the way to the Transformer: name, message, the tests they fail."""

import math
from collections import Counter

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses


def declare(wrong, name, message, *, fails=None, but=(), made):
    """Bind a wrong answer that differs from the right one in one step."""
    made.__doc__ = message
    label = "".join(c if c.isalnum() else "_" for c in name)
    made.__name__ = f"{wrong.of}_{label}"
    globals()[made.__name__] = wrong(name, fails=fails, but=but)(made)


# --- shift_right -------------------------------------------------------------------------------

shift = WrongAnswers("shift_right", tests=("by_hand", "rows", "other_ids"))


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


def late(target_out, bos):
    return torch.cat([torch.full_like(target_out[:, :1], bos), target_out[:, :-1]], dim=1)


def shifted(name, message, made, **more):
    declare(shift, name, message, made=made, **more)


shifted(
    "not shifted",
    """You hand the decoder what it should say, at the same place. Copying its input is then the
    whole task, and it learns nothing else. Every word belongs one place later.""",
    lambda target_out, bos, eos, pad=0: target_out.clone(),
)
shifted(
    "shifted to the left",
    """Your words move one place forwards in time: the decoder reads tomorrow's word. They should
    come one place later than they are asked for.""",
    lambda target_out, bos, eos, pad=0: torch.cat(
        [target_out[:, 1:], torch.full_like(target_out[:, :1], pad)], dim=1
    ),
)
shifted(
    "rolled around",
    """What falls off the end comes back at the front. The decoder should start from `bos`, the same
    for every sentence, or it knows something about the end before it has begun.""",
    lambda target_out, bos, eos, pad=0: target_out.roll(1, dims=1).masked_fill(
        target_out.roll(1, dims=1) == eos, pad
    ),
)
shifted(
    "eos is read",
    """The decoder reads `eos` in your result. Whoever has read it has already stopped; behind the
    last word there is nothing but padding.""",
    lambda target_out, bos, eos, pad=0: late(target_out, bos),
)
shifted(
    "no bos",
    """Your first place holds padding. The decoder needs a token to start from, and padding is masked
    away; look at what `bos` is for.""",
    lambda target_out, bos, eos, pad=0: late(target_out, pad).masked_fill(
        late(target_out, pad) == eos, pad
    ),
)
shifted(
    "one place longer",
    """You put `bos` in front and keep everything behind it, so that there is one place more to read
    than to say. Input and target of a decoder have the same length.""",
    lambda target_out, bos, eos, pad=0: (
        torch.cat([torch.full_like(target_out[:, :1], bos), target_out], dim=1)
    ).masked_fill(
        torch.cat([torch.full_like(target_out[:, :1], bos), target_out], dim=1) == eos, pad
    ),
)
shifted(
    "the first word is overwritten",
    """You write `bos` over the first word and leave the others where they were, so that the first
    word is lost and all the others stand beside their own answers.""",
    lambda target_out, bos, eos, pad=0: torch.cat(
        [torch.full_like(target_out[:, :1], bos), target_out[:, 1:]], dim=1
    ).masked_fill(
        torch.cat([torch.full_like(target_out[:, :1], bos), target_out[:, 1:]], dim=1) == eos, pad
    ),
)
shifted(
    "padding is always 0",
    """You write 0 where padding belongs. Which number stands for padding is said by the argument
    `pad`; elsewhere 0 is a word like any other.""",
    lambda target_out, bos, eos, pad=0: late(target_out, bos).masked_fill(
        late(target_out, bos) == eos, 0
    ),
    fails=("rows", "other_ids"),
)
shifted(
    "rows run into each other",
    """You shift the table as one long line, so that each row starts with the last token of the row
    above. Shift along the axis of the positions.""",
    lambda target_out, bos, eos, pad=0: (
        torch.cat([torch.tensor([bos]), target_out.flatten()[:-1]])
        .reshape(target_out.shape)
        .masked_fill(
            torch.cat([torch.tensor([bos]), target_out.flatten()[:-1]]).reshape(target_out.shape)
            == eos,
            pad,
        )
    ),
    fails=("rows", "other_ids"),
)


# --- decoder_mask ------------------------------------------------------------------------------

mask = WrongAnswers("decoder_mask", tests=("by_hand", "no_padding", "padding", "other_pad"))


@witnesses(of="decoder_mask")
def mask_calls(draw):
    for rows, size in ((1, 3), (2, 5), (3, 4)):
        ids = draw.integers(1, 6, rows, size)
        yield call(ids)
        yield call(draw.integers(0, 3, rows, size))
        tail = draw.integers(1, size, rows)
        yield call(ids.masked_fill(torch.arange(size) >= tail[:, None], 0))
        yield call(ids, 4)


def past(ids):
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()


def real(ids, pad):
    return (ids != pad)[:, None, None, :]


def full(ids):
    return torch.ones(ids.shape[0], 1, ids.shape[1], ids.shape[1], dtype=torch.bool)


def masked(name, message, made, **more):
    declare(mask, name, message, made=made, **more)


masked(
    "the future is open",
    """You close padding and nothing else, so that every position sees the words it has to guess. The
    loss will be wonderful, and the model will write nonsense.""",
    lambda target_in, pad=0: full(target_in) & real(target_in, pad),
)
masked(
    "padding is open",
    """You close the future and forget the padding. A short sentence then depends on how long the
    others in its batch are.""",
    lambda target_in, pad=0: full(target_in) & past(target_in),
    fails=("by_hand", "padding", "other_pad"),
)
masked(
    "padding is closed for those who ask",
    """You close the rows of padded positions. What a padded position finds matters to nobody; that
    the others do not look at it is what matters. Which axis are the keys?""",
    lambda target_in, pad=0: past(target_in) & (target_in != pad)[:, None, :, None],
    fails=("by_hand", "padding", "other_pad"),
)
masked(
    "padding is closed on both sides",
    """You close padding as keys, which is right, and as queries too, so that their rows have nothing
    to look at. The contract asks for the keys only.""",
    lambda target_in, pad=0: (
        past(target_in) & real(target_in, pad) & (target_in != pad)[:, None, :, None]
    ),
    fails=("by_hand", "padding", "other_pad"),
)
masked(
    "one of the two is enough",
    """You join the two conditions by "or": a key is open if it is in the past or if it is a word, so
    that future words are open. Both conditions must hold.""",
    lambda target_in, pad=0: past(target_in) | real(target_in, pad),
)
masked(
    "True where it is forbidden",
    """Your mask says what is forbidden. Here True means "may be attended to", as in torch's
    `scaled_dot_product_attention`.""",
    lambda target_in, pad=0: ~(past(target_in) & real(target_in, pad)),
)
masked(
    "the past is closed",
    """Each position sees itself and what comes after it. Read row 0: the first position should see
    only itself.""",
    lambda target_in, pad=0: past(target_in).T & real(target_in, pad),
)
masked(
    "itself excluded",
    """A position may not look at itself in your mask. What it reads is the word before, which is
    known; and the first position would have nothing at all.""",
    lambda target_in, pad=0: past(target_in).tril(-1) & real(target_in, pad),
)
masked(
    "no axis for the heads",
    """Your result has three axes. The scores have four, with the heads on the second one; without an
    axis for them the rows of the batch would be taken for heads.""",
    lambda target_in, pad=0: past(target_in) & (target_in != pad)[:, None, :],
)
masked(
    "numbers in place of booleans",
    """You return 0 and minus infinity, or 0 and 1. That can be added to scores; here a boolean mask
    is asked for.""",
    lambda target_in, pad=0: torch.zeros(full(target_in).shape).masked_fill(
        ~(past(target_in) & real(target_in, pad)), -torch.inf
    ),
)
masked(
    "padding is always 0",
    """You compare with 0 whatever `pad` says. Then real words are hidden and padding is open as soon
    as somebody numbers otherwise.""",
    lambda target_in, pad=0: past(target_in) & real(target_in, 0),
    fails=("padding", "other_pad"),
)
masked(
    "the first row's padding for all",
    """Every sentence of the batch gets the padding of the first one. The mask needs an entry for
    each row of the batch.""",
    lambda target_in, pad=0: full(target_in) & past(target_in) & real(target_in[:1], pad),
    fails=("padding", "other_pad"),
)


# --- cross_attention ---------------------------------------------------------------------------

MASKED = ("mask", "no_source")
cross = WrongAnswers(
    "cross_attention", tests=("by_hand", "values", "mask", "no_source", "gradient")
)


@witnesses(of="cross_attention")
def cross_calls(draw):
    for b, length, source, d, dm, e, ev in (
        (1, 1, 2, 1, 2, 1, 2),
        (2, 4, 3, 5, 7, 2, 3),
        (3, 4, 4, 4, 4, 4, 4),
        (1, 3, 4, 2, 3, 2, 3),
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


def scaled(query, key):
    return query @ key.transpose(1, 2) / query.shape[-1] ** 0.5


def soft(scores, allowed, dim=-1):
    if allowed is None:
        return scores.softmax(dim)
    closed = scores.masked_fill(~allowed, -torch.inf)
    top = closed.amax(dim, keepdim=True).detach()
    parts = (closed - top.masked_fill(top == -torch.inf, 0.0)).exp()
    total = parts.sum(dim, keepdim=True)
    return parts / total.masked_fill(total == 0, 1.0)


def keys_of(memory_mask):
    return None if memory_mask is None else memory_mask[:, None, :]


def look(x, memory, wq, wk, wv, memory_mask=None, *, score=scaled, weigh=soft, allow=keys_of):
    """The right answer; a fault replaces one of its steps."""
    query, key, value = x @ wq.T, memory @ wk.T, memory @ wv.T
    return weigh(score(query, key), allow(memory_mask)) @ value


def crossed(name, message, made=None, *, fails=None, but=(), **step):
    if made is None:

        def made(x, memory, weight_query, weight_key, weight_value, memory_mask=None):
            return look(x, memory, weight_query, weight_key, weight_value, memory_mask, **step)

    declare(cross, name, message, fails=fails, but=but, made=made)


cross.right = look
cross.detached()
crossed(
    "the source asks",
    """Your queries come from the source and your keys and values from the target. The decoder wants
    to know something of the source: who asks, and who answers?""",
    lambda x, memory, wq, wk, wv, memory_mask=None: look(memory, x, wq, wk, wv),
)
crossed(
    "the target looks at itself",
    """Keys and values are made from the target: this is self-attention, and the source is never
    read. With equal sizes nothing breaks. Look at where $M$ stands in the formula.""",
    lambda x, memory, wq, wk, wv, memory_mask=None: look(x, x, wq, wk, wv),
)
crossed(
    "the values come from the target",
    """You compare with the source and then hand over the target. The weights belong to source
    positions, so what they mix must be there, too.""",
    lambda x, memory, wq, wk, wv, memory_mask=None: (
        soft(scaled(x @ wq.T, memory @ wk.T), keys_of(memory_mask)) @ (x @ wv.T)
    ),
)
crossed(
    "the look at the source is causal",
    """Your first target position sees the first source word only, the second one two. The whole
    source is known before the first word is written; nothing in it is the future.""",
    weigh=lambda s, m: soft(s, torch.ones_like(s).bool().tril() & (m is None or m)),
)
crossed(
    "no scale",
    """You compare by the plain product. Divide by the square root of the number of entries of a
    query, as in self-attention.""",
    but=("by_hand",),
    score=lambda q, k: q @ k.transpose(1, 2),
)
crossed(
    "softmax over the target",
    """Your softmax runs over the target positions: they compete for each source word. Every target
    position should share out a weight of one over the source.""",
    weigh=lambda s, m: soft(s, m, dim=1),
)
crossed(
    "the keys are handed over",
    """You mix the keys. What a source word is found by and what it hands over are made by two
    matrices; look at the last factor of the formula.""",
    lambda x, memory, wq, wk, wv, memory_mask=None: (
        soft(scaled(x @ wq.T, memory @ wk.T), keys_of(memory_mask)) @ (memory @ wk.T)
    ),
)
crossed(
    "the padding of the source is open",
    """You never use `memory_mask`, so that padding takes its share of the weight. A translation would
    change with the length of the other sentences in the batch.""",
    fails=MASKED,
    allow=lambda mask: None,
)
crossed(
    "the mask is inverted",
    """You close the real words and keep the padding. True means "may be attended to"; torch's
    `key_padding_mask` has it the other way round.""",
    fails=MASKED,
    allow=lambda mask: None if mask is None else ~mask[:, None, :],
)
crossed(
    "masked scores set to 0",
    """You set the scores of padding to 0. That is a score like any other, and its exponential is 1.
    Which score has the exponential 0?""",
    fails=MASKED,
    weigh=lambda s, m: (s if m is None else s.masked_fill(~m, 0.0)).softmax(-1),
)
crossed(
    "a row without a source becomes NaN",
    """A sentence without any real source word gives NaN: its softmax divides 0 by 0. Decide what such
    a row is given before the softmax, and take its weights away after it.""",
    fails=("no_source",),
    weigh=lambda s, m: (s if m is None else s.masked_fill(~m, -torch.inf)).softmax(-1),
)
crossed(
    "the first row's mask for all",
    """Every sentence gets the source mask of the first one. Look at what happens to the axis of the
    batch.""",
    fails=MASKED,
    allow=lambda mask: None if mask is None else mask[:1, None, :],
)


# --- label_smoothed_loss -----------------------------------------------------------------------

smooth = WrongAnswers(
    "label_smoothed_loss", tests=("by_hand", "values", "padding", "large_logits", "gradient")
)


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


def parts(logits, target_out):
    logs = logits.log_softmax(-1)
    return logs.gather(-1, target_out[..., None])[..., 0], logs


def smoothed(logits, target_out, smoothing, pad=0, *, mix=None, over=None):
    """The right loss; ``mix`` replaces the loss of a position, ``over`` the mean."""
    right, logs = parts(logits, target_out)
    each = (
        -((1 - smoothing) * right + smoothing * logs.mean(-1))
        if mix is None
        else mix(right, logs, smoothing)
    )
    counts = target_out != pad
    return each[counts].mean() if over is None else over(each, counts)


smooth.right = smoothed
smooth.detached()


def softly(name, message, *, fails=None, but=(), made=None, **step):
    if made is None:

        def made(logits, target_out, smoothing, pad=0):
            return smoothed(logits, target_out, smoothing, pad, **step)

    declare(smooth, name, message, fails=fails, but=but, made=made)


softly(
    "not smoothed",
    """Your loss is the plain cross-entropy: `smoothing` changes nothing. Look at the second term,
    which asks for a little of every word.""",
    mix=lambda right, logs, e: -right,
)
softly(
    "the two parts are exchanged",
    """You give the share $1 - \\varepsilon$ to all words and $\\varepsilon$ to the right one. With
    0.1 the model would hardly be asked for the right word.""",
    mix=lambda right, logs, e: -(e * right + (1 - e) * logs.mean(-1)),
)
softly(
    "the right word gets no share of the rest",
    """You spread the rest over the other words only. That is another recipe; in this one every word
    gets its share, the right one too, as in torch.""",
    mix=lambda right, logs, e: (
        -((1 - e) * right + e * (logs.sum(-1) - right) / (logs.shape[-1] - 1))
    ),
)
softly(
    "a share for every word, not one for all",
    """You give $\\varepsilon$ to each word, where all of them share one $\\varepsilon$. The inner
    sum is divided by the number of words.""",
    mix=lambda right, logs, e: -((1 - e) * right + e * logs.sum(-1)),
)
softly(
    "the right word keeps its whole share",
    """You add the second term and leave the first as it was. The target would sum to more than one:
    what all words get is taken from the right one.""",
    mix=lambda right, logs, e: -(right + e * logs.mean(-1)),
)
softly(
    "the probabilities are mixed before the logarithm",
    """You mix the probability with an even share and take the logarithm of the mixture. That
    smooths the model; what is smoothed here is the target.""",
    mix=lambda right, logs, e: -((1 - e) * right.exp() + e / logs.shape[-1]).log(),
    but=(),
)
softly(
    "padding counts",
    """Positions whose target is padding take part. How long the other sentences are then changes the
    loss; leave these positions out of the sum and of the number it is divided by.""",
    fails=("padding", "gradient"),
    over=lambda each, counts: each.mean(),
)
softly(
    "padding is zero but is counted",
    """You set padded positions to 0 and divide by the number of all positions. The more padding, the
    smaller your loss. Divide by how many count.""",
    fails=("padding", "gradient"),
    over=lambda each, counts: (each * counts).mean(),
)
softly(
    "the mean of the rows' means",
    """You average every row by itself, and then the rows. A word of a short sentence weighs more than
    one of a long sentence; the formula has one sum over all.""",
    fails=("padding", "gradient"),
    over=lambda each, counts: ((each * counts).sum(1) / counts.sum(1).clamp(min=1)).mean(),
)
softly(
    "the sum",
    """You return the sum over all positions. A batch of longer sentences would have a larger loss and
    larger steps; the formula divides by $N$.""",
    but=("by_hand",),
    over=lambda each, counts: each[counts].sum(),
)
softly(
    "padding is always 0",
    """You leave out the positions whose target is 0, whatever `pad` says. Look at the last
    argument.""",
    fails=("by_hand", "padding"),
    made=lambda logits, target_out, smoothing, pad=0: smoothed(logits, target_out, smoothing, 0),
)
softly(
    "the softmax underflows",
    """You take the softmax and then its logarithm. A probability that rounds to 0 has the logarithm
    minus infinity; `log_softmax` never leaves the logarithms.""",
    fails=("large_logits",),
    made=lambda logits, target_out, smoothing, pad=0: smoothed(
        logits,
        target_out,
        smoothing,
        pad,
        mix=lambda right, logs, e: (
            -(
                (1 - e) * logits.softmax(-1).gather(-1, target_out[..., None])[..., 0].log()
                + e * logits.softmax(-1).log().mean(-1)
            )
        ),
    ),
)


# --- warmup_rate -------------------------------------------------------------------------------

rate = WrongAnswers("warmup_rate", tests=("by_hand", "rise", "fall"))


@witnesses(of="warmup_rate")
def rate_calls(draw):
    for dim, warmup in ((16, 4), (512, 4000), (256, 1), (1024, 4000)):
        for step in (1, 2, 4, 9, 16, 1000, 4000, 5000, 100000):
            yield call(step, dim, warmup)


def paced(name, message, made, **more):
    declare(rate, name, message, made=made, **more)


paced(
    "the larger of the two",
    """You take the larger branch: the rate starts high, falls, and then rises without end. Evaluate
    both branches at step 1 and see which one is small there.""",
    lambda step, embed_dim, warmup: embed_dim**-0.5 * max(step**-0.5, step * warmup**-1.5),
    # where the branches meet they are one; elsewhere the larger one is wrong
)
paced(
    "steps counted from 0",
    """You add 1 to the step. Here steps are counted from 1 already; at the end of the warm-up your
    rate is one step off.""",
    lambda step, embed_dim, warmup: (
        embed_dim**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)
    ),
)
paced(
    "the width is left out",
    """Your rate does not depend on the width of the model. Wider models get smaller steps: look at
    the factor in front.""",
    lambda step, embed_dim, warmup: min(step**-0.5, step * warmup**-1.5),
)
paced(
    "multiplied by the root of the width",
    """You multiply by the square root of the width, where its inverse stands: wider models would get
    larger steps.""",
    lambda step, embed_dim, warmup: embed_dim**0.5 * min(step**-0.5, step * warmup**-1.5),
)
paced(
    "no warm-up",
    """You use the falling branch alone: the first step is the largest of all. The other branch is what
    the warm-up is.""",
    lambda step, embed_dim, warmup: embed_dim**-0.5 * step**-0.5,
    fails=("by_hand", "rise"),
)
paced(
    "it never falls",
    """Your rate stays at its peak after the warm-up. Look at what the first branch does as the step
    grows.""",
    lambda step, embed_dim, warmup: embed_dim**-0.5 * min(warmup**-0.5, step * warmup**-1.5),
    fails=("by_hand", "fall"),
)
paced(
    "it rises to 1",
    """You multiply by the share of the warm-up that is over, so that the branches do not meet: at its
    end your rate jumps. Look at the exponent of the warm-up.""",
    lambda step, embed_dim, warmup: embed_dim**-0.5 * min(step**-0.5, step / warmup),
    fails=("by_hand", "rise"),
)
paced(
    "it falls with the step, not with its root",
    """After the warm-up your rate falls like one over the step. The formula has the inverse of the
    square root, which falls more slowly.""",
    lambda step, embed_dim, warmup: embed_dim**-0.5 * min(warmup**0.5 / step, step * warmup**-1.5),
    fails=("by_hand", "fall"),
)


# --- greedy_decode -----------------------------------------------------------------------------

greedy = WrongAnswers(
    "greedy_decode",
    tests=("by_hand", "whole_prefix", "rows_end_apart", "cut_off", "other_ids"),
)


def fading(table, decay):
    def logits_of(prefix):
        age = torch.arange(prefix.shape[1])
        weights = (float(decay) ** (age[:, None] - age).clamp(min=0).double()).tril()
        return weights @ table[prefix]

    return logits_of


def until(lengths):
    def logits_of(prefix):
        over = torch.arange(1, prefix.shape[1] + 1) >= lengths[:, None]
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
    endless = torch.zeros(6, 6, dtype=double)
    endless[1, 3] = endless[3, 4] = endless[4, 5] = endless[5, 3] = 3.0
    yield call(fading(endless, 0.0), 2, 1, 2, 4)


def write(
    logits_of, rows, bos, eos, max_length, pad=0,
    *, read=lambda prefix: prefix, place=lambda t: -1, stop="all", keep_eos=True, fill=True,
):  # fmt: skip
    """The right answer; a fault replaces one of its steps."""
    prefix = torch.full((rows, 1), bos)
    written = torch.full((rows, max_length), pad)
    ended = torch.zeros(rows, dtype=torch.bool)
    for t in range(max_length):
        token = logits_of(read(prefix))[:, place(t)].argmax(-1)
        said = token if keep_eos else token.masked_fill(token == eos, pad)
        written[:, t] = torch.where(ended & fill, written[:, t], said)
        ended = ended | (token == eos)
        prefix = torch.cat([prefix, token[:, None]], dim=1)
        if bool(ended.all() if stop == "all" else ended.any()):
            break
    return written


def writes(name, message, *, fails=None, but=(), made=None, **step):
    if made is None:

        def made(logits_of, rows, bos, eos, max_length, pad=0):
            return write(logits_of, rows, bos, eos, max_length, pad, **step)

    declare(greedy, name, message, fails=fails, but=but, made=made)


writes(
    "only the last token is read",
    """You hand over the last token alone. There is no state that remembers the others: a Transformer
    knows of a word only if it is in the prefix.""",
    fails=("whole_prefix", "rows_end_apart"),
    read=lambda prefix: prefix[:, -1:],
)
writes(
    "padding is read",
    """You fill the prefix up to its full length and read the logits at its end: what the model says
    after padding. The next word is what it says after the last token that was written.""",
    made=lambda logits_of, rows, bos, eos, max_length, pad=0: write(
        *(logits_of, rows, bos, eos, max_length, pad),
        read=lambda prefix: torch.nn.functional.pad(
            prefix, (0, max_length + 1 - prefix.shape[1]), value=0
        ),
    ),
)
writes(
    "nothing written is read",
    """You hand over `bos` at every step. What has been written must go into the prefix, or the model
    starts anew each time.""",
    read=lambda prefix: prefix[:, :1],
)
writes(
    "rows go on after eos",
    """A row that has said `eos` goes on in your result. Behind the end of a row stands `pad`, whatever
    the model says there.""",
    fails=("rows_end_apart",),
    fill=False,
)
writes(
    "the first end stops all rows",
    """You stop as soon as one row has ended, and cut the others off. Stop when all of them have.""",
    fails=("rows_end_apart",),
    stop="any",
)
writes(
    "eos is not written",
    """`eos` is missing from your result. Without it nobody can tell a row that ended from one that was
    cut off.""",
    but=("cut_off",),
    keep_eos=False,
)
writes(
    "bos is written",
    """Your result starts with `bos`. It is what the model reads first, not something it said.""",
    made=lambda logits_of, rows, bos, eos, max_length, pad=0: torch.cat(
        [torch.full((rows, 1), bos), write(logits_of, rows, bos, eos, max_length, pad)], dim=1
    )[:, :-1],
)
writes(
    "padding is always 0",
    """You fill up with 0 whatever `pad` says. Look at the last argument.""",
    fails=("other_ids",),
    made=lambda logits_of, rows, bos, eos, max_length, pad=0: write(
        logits_of, rows, bos, eos, max_length, 0
    ),
)
writes(
    "as wide as the longest row",
    """Your table is only as wide as the longest row that was written. The contract fixes
    `max_length` columns, so that results of several batches fit together.""",
    but=("cut_off",),
    made=lambda logits_of, rows, bos, eos, max_length, pad=0: trimmed(
        write(logits_of, rows, bos, eos, max_length, pad), eos
    ),
)


def trimmed(written, eos):
    ends = [row.index(eos) + 1 if eos in row else len(row) for row in written.tolist()]
    return written[:, : max(ends)]


# --- bleu --------------------------------------------------------------------------------------

score = WrongAnswers("bleu", tests=("by_hand", "orders", "clipped", "length", "corpus", "no_match"))


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
    yield call([["cat", "the"]], [["the", "cat"]], 2)
    yield call([[]], [["the", "cat"]], 2)


def runs(sentence, n):
    return Counter(tuple(sentence[i : i + n]) for i in range(len(sentence) - n + 1))


def clipped(said, wanted):
    return sum((said & wanted).values())


def brevity(c, r):
    return min(1.0, math.exp(1 - r / c)) if c else 0.0


def geometric(precisions):
    if min(precisions) == 0:
        return 0.0
    return math.exp(sum(map(math.log, precisions)) / len(precisions))


def scored(
    candidates, references, max_order=4,
    *, match=clipped, bp=brevity, mean=geometric, orders=None, divide=None,
):  # fmt: skip
    """The right answer; a fault replaces one of its steps."""
    precisions = []
    for n in (orders or (lambda top: range(1, top + 1)))(max_order):
        pairs = [(runs(c, n), runs(r, n)) for c, r in zip(candidates, references, strict=True)]
        hits = sum(match(c, r) for c, r in pairs)
        total = sum(sum((r if divide else c).values()) for c, r in pairs)
        precisions.append(hits / total if total else 0.0)
    return bp(sum(map(len, candidates)), sum(map(len, references))) * mean(precisions)


def scores(name, message, *, fails=None, but=(), made=None, **step):
    if made is None:

        def made(candidates, references, max_order=4):
            return scored(candidates, references, max_order, **step)

    declare(score, name, message, fails=fails, but=but, made=made)


scores(
    "runs are not clipped",
    """A word that is said four times counts four times in your score, though the reference has it
    once: "the the the the" would be perfect. Count it at most as often as the reference does.""",
    fails=("by_hand", "clipped", "corpus"),
    match=lambda said, wanted: sum(times for run, times in said.items() if run in wanted),
)
scores(
    "every run counts once",
    """You compare sets of runs, so that a word said twice, rightly, counts once. Runs have numbers;
    take the smaller of the two.""",
    fails=("orders", "clipped", "corpus"),
    match=lambda said, wanted: len(said.keys() & wanted.keys()),
)
scores(
    "no penalty for short ones",
    """The lengths are missing: "the" alone would be a perfect translation of everything that contains
    it. Look at the factor in front.""",
    fails=("length", "corpus"),
    bp=lambda c, r: 1.0,
)
scores(
    "long ones are rewarded",
    """Your length factor exceeds 1 for candidates that are longer than their references. It is a
    penalty for short ones; long ones are punished by their precisions.""",
    fails=("length", "corpus"),
    bp=lambda c, r: math.exp(1 - r / c) if c else 0.0,
)
scores(
    "length as a plain ratio",
    """You multiply by the ratio of the lengths. The formula has an exponential, which punishes a
    candidate of half the length by more than a half.""",
    fails=("length", "corpus"),
    bp=lambda c, r: min(1.0, c / r) if c else 0.0,
)
scores(
    "the mean of the sentences' scores",
    """You score every sentence by itself and take the mean. One sentence without a run of four then
    scores 0; BLEU sums the counts over the corpus before it divides.""",
    fails=("corpus",),
    made=lambda candidates, references, max_order=4: (
        sum(scored([c], [r], max_order) for c, r in zip(candidates, references, strict=True))
        / len(candidates)
    ),
)
scores(
    "the plain mean of the precisions",
    """You add the precisions and divide by their number. The formula multiplies them and takes a root,
    so that an order without a match makes the score 0.""",
    mean=lambda precisions: sum(precisions) / len(precisions),
)
scores(
    "the product without the root",
    """You multiply the precisions and leave it at that, so that more orders always mean a smaller
    score. The formula takes the root of the order.""",
    but=("no_match",),
    mean=math.prod,
)
scores(
    "shares of the reference",
    """You divide by the runs of the reference: how much of it was found. That is recall; BLEU asks how
    much of what was said is right, and leaves the rest to the length.""",
    fails=("length", "corpus"),
    divide=True,
)
scores(
    "single words only",
    """You count single words whatever `max_order` says. A translation with the right words in any order
    would be perfect.""",
    orders=lambda top: [1],
)
scores(
    "the highest order only",
    """You use the longest runs alone. The formula takes all orders up to `max_order` together.""",
    but=("no_match",),
    orders=lambda top: [top],
)
scores(
    "times a hundred",
    """You return a percentage. Papers print BLEU like that; here a number from 0 to 1 is asked for.""",
    but=("no_match",),
    made=lambda candidates, references, max_order=4: (
        100 * scored(candidates, references, max_order)
    ),
)


@score("an order without a match is an error", fails=("corpus", "no_match"))
def bleu_log_of_zero(candidates, references, max_order=4):
    """You take the logarithm of a precision of 0. Short candidates have no long runs, so this happens;
    the contract says what the result is.
    """
    return scored(
        candidates,
        references,
        max_order,
        mean=lambda precisions: math.exp(sum(map(math.log, precisions)) / len(precisions)),
    )


# --- the repair and the test -------------------------------------------------------------------


def two_looks(x, memory, own, source, *, add=True):
    def at(query, key, allowed):
        allowed = allowed(torch.ones(query.shape[1], key.shape[1], dtype=torch.bool))
        weights = scaled(query, key).masked_fill(~allowed, -torch.inf).softmax(-1)
        return weights @ key

    x = x + at(x, x, own)
    return at(x, memory, source) + (x if add else 0)


fixed = WrongAnswers("fixed_decoder_looks", tests=("one_source_word", "one_target_word", "both"))


@witnesses(of="fixed_decoder_looks")
def fixed_calls(draw):
    for b, length, source in ((1, 2, 1), (1, 1, 2), (2, 4, 5), (2, 5, 3)):
        yield call(draw.normal(b, length, 3), draw.normal(b, source, 3))


def same(mask_):
    return mask_


@fixed("both faults are still there")
def looks_broken(x, memory):
    """This is the broken code as it stands. Ask of each of the two looks what may be known at that
    moment: the target that is not yet written? The end of the source?
    """
    return two_looks(x, memory, same, torch.tril)


@fixed("the target still sees its future", but=("one_target_word",))
def looks_future(x, memory):
    """The whole source is in view now. But a target position still looks at the words behind it,
    which are not there when the model writes.
    """
    return two_looks(x, memory, same, same)


@fixed("the source is still hidden", but=("one_source_word",))
def looks_source(x, memory):
    """The target sees only its past now. But the first target word still sees the first source word
    alone, although the whole source has been read.
    """
    return two_looks(x, memory, torch.tril, torch.tril)


@fixed("what was there is lost")
def looks_not_added(x, memory):
    """You return what was found in the source, and the sum it should be added to is gone."""
    return two_looks(x, memory, torch.tril, same, add=False)


@fixed("the masks are turned round", but=("one_target_word",))
def looks_turned(x, memory):
    """Your target positions look at themselves and what follows. Read the first row of your mask: which
    of its columns are known when the first word is written?
    """
    return two_looks(x, memory, torch.triu, same)


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
