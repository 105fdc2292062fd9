"""Wrong answers on the way to a model that writes: name, message, the tests they fail."""

import math
from functools import partial

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses


def apply_rope(x, positions, base=10000.0):
    """RoPE of neighbouring elements, as the head of the set has it."""
    pairs = torch.arange(0, x.shape[-1], 2, dtype=torch.float64)
    angles = (positions[:, None] * base ** (-pairs / x.shape[-1])).to(x.dtype)
    one, other = x[..., 0::2], x[..., 1::2]
    turned = one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()
    return torch.stack(turned, dim=-1).flatten(-2)


# --- bits_per_character ------------------------------------------------------------------------


def chosen(log_p, targets):
    return log_p.gather(-1, targets.clamp(min=0)[..., None])[..., 0]


def cost(
    logits,
    targets,
    *,
    align=lambda logits, targets: (logits, targets),
    log=lambda logits: logits.log_softmax(-1),
    pick=chosen,
    count=lambda targets: targets >= 0,
    over=lambda each, counts: each[counts].mean(),
    finish=lambda x: -x / math.log(2),
):
    logits, targets = align(logits, targets)
    return finish(over(pick(log(logits), targets), count(targets)))


TESTS = ("by_hand", "values", "padding", "large")
bits = WrongAnswers("bits_per_character", tests=TESTS, right=cost)


bits.fault(
    "shifted although they are aligned",
    """You compare row `i` of the logits with target `i + 1`. Here they are aligned already, so your
    model is asked for the character after next.""",
    align=lambda logits, targets: (logits[:, :-1], targets[:, 1:]),
)


@witnesses(of="bits_per_character")
def bits_calls(draw):
    for rows, length, words in ((1, 4, 4), (2, 5, 7), (3, 3, 3)):
        logits, targets = (
            2 * draw.normal(rows, length, words),
            draw.integers(0, words, rows, length),
        )
        yield call(logits, targets)
        yield call(60 * logits, targets)
        gaps = targets.clone()
        gaps[0, 1:3] = -1
        yield call(logits, gaps)


bits.fault(
    "nats instead of bits",
    """You take the natural logarithm. A bit is a choice between two, and a probability of one half
    should cost exactly 1. Look at the base.""",
    finish=torch.neg,
)
bits.fault(
    "multiplied by ln 2",
    """You multiply by the logarithm of 2 where you should divide: a bit is less than a nat, so
    there are more of them.""",
    finish=lambda x: -x * math.log(2),
)
bits.fault(
    "perplexity",
    """You return two (or e) to the power of the cost. That is the perplexity, among how many equal
    words the model seems to guess; asked are the bits themselves.""",
    finish=lambda x: (-x).exp(),
)
bits.fault(
    "the sign is missing",
    """Your result is below 0. The logarithm of a probability is negative, and surprise should be
    positive: the smaller the probability, the larger.""",
    finish=lambda x: x / math.log(2),
)
bits.fault(
    "the sum over the text",
    """You add the bits up and do not divide. A long text then seems worse than a short one; asked
    is the cost of one character.""",
    over=lambda each, counts: each[counts].sum(),
)
bits.fault(
    "the mean of the texts' means",
    """You average each text by itself, and then the texts. A character of a short text weighs more
    than one of a long one; the formula has one sum.""",
    fails=("padding",),
    over=lambda each, counts: ((each * counts).sum(-1) / counts.sum(-1)).mean(),
)
bits.fault(
    "the logarithm of the mean probability",
    """You average the probabilities and take one logarithm at the end. A text's probability is a
    product, so that logarithms are what must be averaged; one impossible character must hurt.""",
    over=lambda each, counts: each[counts].exp().mean().log(),
)
bits.fault(
    "padding is divided by",
    """You divide by the number of places, padding included, so that a batch with much padding
    looks better than it is. Count the characters that are there.""",
    fails=("padding",),
    over=lambda each, counts: (each * counts).mean(),
)
bits.fault(
    "padding is added up",
    """You divide by the number of characters and add up padding as well. It counts neither in the
    sum nor in N.""",
    fails=("padding",),
    over=lambda each, counts: each.sum() / counts.sum(),
)
bits.fault(
    "padding is read as the first word",
    """You look up word 0 at the places of padding and count them. Padding is no word; leave these
    places out.""",
    fails=("padding",),
    over=lambda each, counts: each.mean(),
)
bits.fault(
    "padding is read as the last word",
    """You look up word -1, the last one, at the places of padding and count them. Padding is no
    word; leave these places out.""",
    fails=("padding",),
    pick=lambda log_p, targets: chosen(log_p, targets % log_p.shape[-1]),
    over=lambda each, counts: each.mean(),
)
bits.fault(
    "softmax over the places",
    """Your softmax runs over the places of the text. At one place the probabilities of all words
    sum to one; look at the axis.""",
    log=lambda logits: logits.log_softmax(-2),
)
bits.fault(
    "logits taken for log-probabilities",
    """You use the logits as they are. They are not normalised: log-probabilities come out of a
    log_softmax.""",
    log=lambda logits: logits,
)
bits.fault(
    "the softmax leaves the range of numbers",
    """You take exponentials first and the logarithm afterwards. A small probability has become 0
    by then, or a large exponential infinite. One function does both at once.""",
    fails=("large",),
    log=lambda logits: logits.softmax(-1).log(),
)
bits.fault(
    "a small number inside the logarithm",
    """You add a small number so that the logarithm stays finite. Then nothing can cost more than
    the logarithm of that number; log_softmax needs no such help.""",
    fails=("large",),
    log=lambda logits: (logits.softmax(-1) + 1e-12).log(),
)

# --- top_p -------------------------------------------------------------------------------------


def reached(sums, ordered, p):
    return sums - ordered < p


def nucleus(
    logits,
    p,
    *,
    weigh=lambda logits: logits.softmax(-1),
    sort=lambda parts: parts.sort(-1, descending=True),
    keep=reached,
    back=lambda kept, order: torch.zeros_like(kept).scatter(-1, order, kept),
    fill=lambda logits, kept: logits.masked_fill(~kept, -torch.inf),
    finish=lambda logits: logits,
):
    ordered, order = sort(weigh(logits))
    return finish(fill(logits, back(keep(ordered.cumsum(-1), ordered, p), order)))


top = WrongAnswers("top_p", tests=("by_hand", "values", "rows", "one"), right=nucleus)


@witnesses(of="top_p")
def top_calls(draw):
    for p in (0.05, 0.4, 0.75, 0.95):
        for shape in ((5,), (11,), (3, 7)):
            yield call(2 * draw.normal(*shape), p)
    yield call(draw.normal(2, 7) * torch.tensor([[8.0], [0.1]]), 0.75)


top.fault(
    "the word that reaches p goes",
    """You stop before the word with which the sum reaches p, so that what stays sums to less than
    p, and for a small p nothing stays. That word belongs to the set.""",
    keep=lambda sums, ordered, p: sums < p,
)
top.fault(
    "the likeliest and what sums to less",
    """You keep the words whose sum is below p, and the likeliest in any case. The word with which
    the sum reaches p belongs to the set.""",
    but=("one",),
    keep=lambda sums, ordered, p: (sums < p) | (torch.arange(sums.shape[-1]) == 0),
)
top.fault(
    "one word too many",
    """You keep one word more than is needed: the sum has reached p before it. Look at what you
    compare with p, the sum with a word or the sum before it.""",
    keep=lambda sums, ordered, p: (
        torch.arange(sums.shape[-1]) < (sums < p).sum(-1, keepdim=True) + 2
    ),
)
top.fault(
    "what goes is kept",
    """You keep the words behind those that reach p: the comparison is the wrong way round.""",
    keep=lambda sums, ordered, p: ~reached(sums, ordered, p),
)
top.fault(
    "each probability against p",
    """You keep the words whose own probability is at least p. For most p there is none. Asked is
    how many of the likeliest are needed to reach p together.""",
    keep=lambda sums, ordered, p: ordered >= p,
)
top.fault(
    "a share of the likeliest",
    """You keep words that are at least p times as likely as the likeliest. That is min-p, another
    filter; here probabilities are added up until they reach p.""",
    keep=lambda sums, ordered, p: ordered >= p * ordered[..., :1],
)
top.fault(
    "a share of the words",
    """You keep the share p of all words, however probable they are. That is a top-k: a sure model
    and an unsure one keep equally many. Add up probabilities, not words.""",
    but=("one",),
    keep=lambda sums, ordered, p: torch.arange(sums.shape[-1]).expand_as(sums) < p * sums.shape[-1],
)
top.fault(
    "the first row's number for all",
    """Every row keeps as many words as the first one. Where the first is sure and the second is
    not, that is far too few. Each row has a set of its own.""",
    fails=("rows",),
    keep=lambda sums, ordered, p: (
        reached(sums, ordered, p).reshape(-1, sums.shape[-1])[0].expand_as(sums)
    ),
)
top.fault(
    "the unlikeliest are kept",
    """You add up from the smallest probability, so that the tail stays and the likely words go.
    Look at the order of your sort.""",
    sort=lambda parts: parts.sort(-1),
)
top.fault(
    "in the order of the ids",
    """You add the probabilities up in the order of the ids. Sort them first: the likeliest words
    are to be kept.""",
    sort=lambda parts: (parts, torch.arange(parts.shape[-1]).expand_as(parts)),
)
top.fault(
    "no softmax",
    """You add up logits. What must reach p are probabilities.""",
    but=("one",),
    weigh=lambda logits: logits,
)
top.fault(
    "softmax over the rows",
    """Your softmax runs over another axis than that of the words. Each row is a distribution.""",
    fails=("rows",),
    weigh=lambda logits: logits.softmax(0),
)
top.fault(
    "logits that are cut become 0",
    """You give the words that go the logit 0. Its exponential is 1, so they can still be drawn,
    some more often than before. Which logit has the probability 0?""",
    fill=lambda logits, kept: logits * kept,
)
top.fault(
    "a very negative number",
    """You give the words that go a very negative logit. Minus infinity is asked for, which is
    below every other.""",
    fill=lambda logits, kept: logits.masked_fill(~kept, -1e9),
)
top.fault(
    "what stays is marked in the order of the sort",
    """You know how many of the likeliest stay, and keep as many words from the left. The marks
    belong to the sorted words: bring each back to the place of its own word.""",
    back=lambda kept, order: kept,
)
top.fault(
    "in the order of the sort",
    """You return the logits in the order of their size. Whoever draws from them gets a place in
    that order and takes it for the id of a word. Put every logit back to where it was.""",
    finish=lambda logits: logits.sort(-1, descending=True).values,
)
top.fault(
    "probabilities are returned",
    """You return probabilities. Filters are applied one after the other, and each expects logits;
    a softmax of probabilities would be nearly flat.""",
    finish=lambda logits: logits.softmax(-1),
)
LOGARITHMS = """You return log-probabilities. The logits of the words that stay are to be returned as
they were given."""
top.fault(
    "log-probabilities are returned", LOGARITHMS, finish=lambda logits: logits.log_softmax(-1)
)
top.fault(
    "log-probabilities of all words are returned",
    LOGARITHMS,
    but=("by_hand",),
    fill=lambda logits, kept: logits.log_softmax(-1).masked_fill(~kept, -torch.inf),
)

# --- sample_next -------------------------------------------------------------------------------


def topmost(logits, k, fill=-torch.inf):
    if k is None or not 0 < k < len(logits):
        return logits
    return logits.masked_fill(logits < logits.sort().values[-k], fill)


def drawn(parts, uniform, below=torch.le):
    count = int(below(parts.double().cumsum(0), uniform).sum())
    return min(count, int(parts.nonzero()[-1]))


def drawing(
    logits,
    uniform,
    temperature=1.0,
    k=None,
    *,
    heat=torch.div,
    limit=topmost,
    weigh=lambda logits, t: logits.softmax(-1),
    cut=lambda parts, k: parts,
    walk=drawn,
):
    return walk(cut(weigh(limit(heat(logits, temperature), k), temperature), k), uniform)


TESTS = ("by_hand", "temperature", "top_k")
sample = WrongAnswers("sample_next", tests=TESTS, right=drawing)


@witnesses(of="sample_next")
def sample_calls(draw):
    logits = torch.tensor([0.4, -0.6, 1.1, 0.2, 1.3, -0.9])
    for place in range(12):
        uniform = place / 12 + 0.02
        yield call(logits, uniform)
        yield call(logits, uniform, 0.5)
        yield call(logits, uniform, 2.5)
        yield call(logits, uniform, 1.0, 3)
        yield call(logits, uniform, 0.7, 2)
    yield from (call(torch.zeros(4), uniform) for uniform in (0.0, 0.25, 0.5, 0.75))
    yield call(torch.tensor([-3.0, 1.0, 0.5]), 0.0, 1.0, 2)


sample.fault(
    "always the likeliest",
    """You take the likeliest word and never look at the random number. A model that does so
    repeats itself soon; every word should come as often as its probability says.""",
    walk=lambda parts, u: int(parts.argmax()),
)


sample.fault(
    "the k smallest are kept",
    """You keep the words with the smallest logits: the least likely ones. Look at the order of your
    sort, or at `largest` of `topk`.""",
    fails=("top_k",),
    limit=lambda logits, k: logits.masked_fill((-topmost(-logits, k)).isinf(), -torch.inf),
)


@sample("a tensor instead of an int", fails=("by_hand",))
def in_a_tensor(logits, uniform, temperature=1.0, k=None):
    """The id is right, but it is still in a tensor. The contract asks for a plain `int`, which can
    be looked up in a list or a dict."""
    return torch.tensor(drawing(logits, uniform, temperature, k))


sample.fault(
    "the place in the sorted order",
    """You sort the words by probability, walk through them, and return the place in that order. It
    is not the id of a word. Walk in the order of the ids.""",
    walk=lambda parts, u: drawn(parts.sort(descending=True).values, u),
)
sample.fault(
    "the likeliest first",
    """You walk through the words from the likeliest down. The distribution is right, but another
    word belongs to each random number: walk in the order of the ids.""",
    walk=lambda parts, u: int(
        parts.sort(descending=True)[1][drawn(parts.sort(descending=True)[0], u)]
    ),
)
sample.fault(
    "one word too early",
    """You return the last word whose sum does not exceed the random number, one before the word
    that is asked for. Try a random number of almost 0: it must give the first word.""",
    walk=lambda parts, u: max(drawn(parts, u) - 1, 0),
)
sample.fault(
    "one word too late",
    """You return the word behind the one with which the sum exceeds the random number. Count the
    sums that do not exceed it.""",
    walk=lambda parts, u: min(drawn(parts, u) + 1, len(parts) - 1),
)
sample.fault(
    "a sum that is reached",
    """You stop where the sum reaches the random number; it has to exceed it. With a random number
    of 0 a word of probability 0 could be drawn.""",
    but=("temperature",),
    walk=lambda parts, u: drawn(parts, u, torch.lt),
)
sample.fault(
    "each probability against the random number",
    """You take the first word whose own probability exceeds the random number. For large numbers
    there is none. Probabilities must be added up on the way.""",
    walk=lambda parts, u: int((parts > u).long().argmax()),
)
sample.fault(
    "the random number as a place",
    """You multiply the random number by the number of words. Then all words are equally likely.""",
    walk=lambda parts, u: int(u * len(parts)),
)
sample.fault(
    "multiplied by the temperature",
    """You multiply the logits by the temperature. A cold model should be sharp and a hot one flat;
    yours is the other way round.""",
    fails=("temperature",),
    heat=torch.mul,
)
sample.fault(
    "the temperature is ignored",
    """The temperature never enters your numbers. Divide the logits by it before you make
    probabilities.""",
    fails=("temperature",),
    heat=lambda logits, t: logits,
)
sample.fault(
    "the temperature comes after the softmax",
    """You divide the probabilities by the temperature. They no longer sum to one, and their ratios
    have not changed. It belongs to the logits.""",
    fails=("temperature",),
    heat=lambda logits, t: logits,
    weigh=lambda logits, t: logits.softmax(-1) / t,
)
sample.fault(
    "no softmax",
    """You add up logits. What is added up are probabilities.""",
    weigh=lambda logits, t: logits.clamp(min=0),
)
sample.fault(
    "k is ignored",
    """You draw from all words although only k should be left. Look at where k enters your
    function.""",
    fails=("top_k",),
    limit=lambda logits, k: logits,
)
sample.fault(
    "one word more than k",
    """You keep k + 1 words. The k-th largest is the last that stays: count from the end of the
    sorted logits.""",
    fails=("top_k",),
    limit=lambda logits, k: topmost(logits, k and k + 1),
)
sample.fault(
    "one word less than k",
    """You keep k - 1 words. The k-th largest is the last that stays.""",
    fails=("top_k",),
    limit=lambda logits, k: topmost(logits, k and max(k - 1, 1)),
)
sample.fault(
    "the place among the k largest",
    """You return a place in the list of the k largest logits. It is not the id of a word, and that
    list is in another order than the ids.""",
    fails=("top_k",),
    limit=lambda logits, k: logits if k is None else logits.topk(min(k, len(logits))).values,
)
sample.fault(
    "the k probabilities do not sum to one",
    """You take the softmax over all words and drop all but k afterwards. What is left sums to less
    than one, so that large random numbers find no word of their own.""",
    fails=("top_k",),
    limit=lambda logits, k: logits,
    cut=lambda parts, k: topmost(parts, k, 0.0),
)
sample.fault(
    "the first k words",
    """You keep the words with the ids below k. Asked are the k words with the largest logits.""",
    fails=("top_k",),
    limit=lambda logits, k: (
        logits if k is None else logits.masked_fill(torch.arange(len(logits)) >= k, -torch.inf)
    ),
)
sample.fault(
    "words that are cut keep the logit 0",
    """You set the logits of dropped words to 0. The exponential of 0 is 1, so they can still be
    drawn. Only minus infinity has the probability 0.""",
    fails=("top_k",),
    limit=lambda logits, k: topmost(logits, k, 0.0),
)

# --- cached_attention --------------------------------------------------------------------------


def allow(new, total, shift=None):
    return torch.ones(new, total, dtype=torch.bool).tril(total - new if shift is None else shift)


def step(
    query,
    key,
    value,
    cache=None,
    *,
    read=lambda cache: cache,
    join=lambda old, new: torch.cat([old, new], dim=-2),
    mask=allow,
    scale=lambda keys, values: keys.shape[-1] ** 0.5,
    weigh=lambda scores, open: scores.masked_fill(~open, -torch.inf).softmax(-1),
    give=lambda output, all, new, old: (output, all),
):
    old = (key[..., :0, :], value[..., :0, :]) if cache is None else cache
    held = join(old[0], key), join(old[1], value)
    seen = held if read(cache) is not None or cache is None else (key, value)
    scores = query @ seen[0].mT / scale(*seen)
    weights = weigh(scores, mask(query.shape[-2], seen[0].shape[-2]))
    return give(weights @ seen[1], held, (key, value), cache)


TESTS = ("by_hand", "first", "one", "several")
cached = WrongAnswers("cached_attention", tests=TESTS, right=step)


@witnesses(of="cached_attention")
def cached_calls(draw):
    for batch, heads, past, new, size in ((1, 2, 5, 1, 4), (2, 3, 4, 3, 5), (1, 1, 2, 2, 2)):
        held = draw.normal(batch, heads, past, size), draw.normal(batch, heads, past, 3)
        parts = [draw.normal(batch, heads, new, n) for n in (size, size, 3)]
        yield call(*parts, held)
        yield call(*parts)


cached.fault(
    "the cache is not looked at",
    """Your new tokens see the new tokens only; the cache is handed on and never read, or your mask
    closes it. What the model knows about the text is in there.""",
    but=("first",),
    read=lambda cache: None,
)
cached.fault(
    "only the new ones are kept",
    """You return the keys and values of the new tokens as the cache. At the next step everything
    before them is forgotten.""",
    but=("first",),
    give=lambda output, all, new, old: (output, new),
)
cached.fault(
    "the old cache is returned",
    """You return the cache as you got it. The next token will not see these; their keys and values
    have to be in it.""",
    give=lambda output, all, new, old: (output, old),
)
cached.fault(
    "keys and values change places in the cache",
    """You return the values first and the keys second. At the next step the one is taken for the
    other.""",
    give=lambda output, all, new, old: (output, all[::-1]),
)
cached.fault(
    "the output alone",
    """You return the output and no cache. The next step has nothing to start from: what was
    computed here would be computed again.""",
    give=lambda output, all, new, old: output,
)
cached.fault(
    "new keys stand before the old ones",
    """You put the new keys and values in front. The mask and the next step count on the oldest
    coming first.""",
    but=("first",),
    join=lambda old, new: torch.cat([new, old], dim=-2),
)
cached.fault(
    "no mask among the new tokens",
    """Of several new tokens the first sees the last. With one new token nothing happens; with a
    prompt your model reads the future.""",
    fails=("first", "several"),
    mask=lambda n, s: allow(n, s, s),
)
cached.fault(
    "no mask with a cache",
    """You mask the prompt, and nothing as soon as there is a cache. Several new tokens may come
    with one, and the first of them must not see the last.""",
    fails=("several",),
    mask=lambda n, s: allow(n, s, 0 if n == s else s),
)
cached.fault(
    "the mask counts from the top left",
    """Your mask gives the first new token the first key only, as torch's `is_causal` does. The new
    tokens stand at the end of the text: the mask has to start there.""",
    but=("first",),
    mask=lambda n, s: allow(n, s, 0),
)
cached.fault(
    "a new token does not see itself",
    """Each new token sees everything before it, but not itself. Its own key and value belong to
    the look. Check the diagonal of your mask.""",
    mask=lambda n, s: allow(n, s, s - n - 1),
)
cached.fault(
    "one step too far",
    """Each new token sees one that comes after it. Check the diagonal of your mask.""",
    fails=("first", "several"),
    mask=lambda n, s: allow(n, s, s - n + 1),
)
cached.fault(
    "the past is closed",
    """Each new token sees itself and what comes after it. Your mask is turned round.""",
    mask=lambda n, s: torch.ones(n, s, dtype=torch.bool).triu(s - n),
)
cached.fault(
    "no scale",
    """You compare by the plain product. The division by the root of the number of elements stays,
    cache or no cache.""",
    scale=lambda keys, values: 1.0,
)
cached.fault(
    "the root is missing",
    """You divide by the number of elements itself, or by its root in two places. The weights come
    out nearly alike.""",
    scale=lambda keys, values: keys.shape[-1],
)
cached.fault(
    "divided by the root of the number of keys",
    """You divide by the root of the number of keys. It grows with every word that is written; a
    product is a sum over the elements of a key.""",
    scale=lambda keys, values: keys.shape[-2] ** 0.5,
)
cached.fault(
    "softmax over the queries",
    """Your softmax runs over the new queries. With one new token every weight is 1. It must run
    over the keys.""",
    weigh=lambda s, open: s.masked_fill(~open, -torch.inf).softmax(-2),
)
cached.fault(
    "masked scores set to 0",
    """You set the scores of later tokens to 0. That is a score like any other, and its exponential
    is 1.""",
    fails=("first", "several"),
    weigh=lambda s, open: (s * open).softmax(-1),
)
cached.fault(
    "the mask comes after the softmax",
    """You take the softmax over everything and set closed weights to 0 afterwards. The others then
    sum to less than one.""",
    fails=("first", "several"),
    weigh=lambda s, open: s.softmax(-1) * open,
)

# --- grouped_query_attention -------------------------------------------------------------------


def spread(x, heads):
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def root(query, value):
    return query.shape[-1] ** 0.5


def look(query, key, value, scale=root, weigh=lambda scores: scores.softmax(-1)):
    return weigh(query @ key.mT / scale(query, value)) @ value


def shared(
    query,
    key,
    value,
    *,
    ask=lambda query, groups: query,
    keys=spread,
    values=spread,
    finish=lambda output, groups: output,
    **more,
):
    heads, groups = query.shape[1], key.shape[1]
    parts = ask(query, groups), keys(key, heads), values(value, heads)
    return finish(look(*parts, **more), groups)


def in_turn(x, heads):
    return x.repeat(1, heads // x.shape[1], 1, 1)


def first_only(x, heads):
    return x[:, :1].expand(-1, heads, -1, -1)


def averaged(x, heads):
    return x.mean(1, keepdim=True).expand(-1, heads, -1, -1)


TESTS = ("by_hand", "values", "one", "same", "gradient")
grouped = WrongAnswers("grouped_query_attention", tests=TESTS, right=shared)


@witnesses(of="grouped_query_attention")
def grouped_calls(draw):
    for heads, groups, length in ((4, 2, 1), (6, 2, 3), (6, 3, 5), (3, 1, 2), (3, 3, 3)):
        parts = [draw.normal(2, heads, length, 4), draw.normal(2, groups, 5, 4)]
        parts.append(draw.normal(2, groups, 5, 3))
        yield call(*parts)
        for wrt in range(3):
            yield call(*parts, via=student.grad(wrt))


grouped.fault(
    "heads dealt in turn",
    """You deal the heads of keys out in turn: 0, 1, 0, 1. Neighbours should share one: 0, 0, 1, 1.
    Trained weights are stored for the second, and a model loaded into the first writes
    nonsense.""",
    but=("one", "same"),
    keys=in_turn,
    values=in_turn,
)
grouped.fault(
    "values dealt in turn",
    """Keys are shared by neighbours, values are dealt in turn. A head then looks with one head's
    keys and takes what another one offers.""",
    but=("one", "same"),
    values=in_turn,
)
grouped.fault(
    "keys dealt in turn",
    """Values are shared by neighbours, keys are dealt in turn. A head then looks with one head's
    keys and takes what another one offers.""",
    but=("one", "same"),
    keys=in_turn,
)
grouped.fault(
    "all use the first",
    """All heads of queries use head 0 of the keys and values. The other heads are never read.""",
    but=("one",),
    keys=first_only,
    values=first_only,
)
grouped.fault(
    "the mean of all keys and values",
    """You average the heads of keys and values and give everybody the mean. Each group has a head
    of its own.""",
    but=("one",),
    keys=averaged,
    values=averaged,
)
grouped.fault(
    "the queries of a group are averaged",
    """You average the queries of a group before they look. Then the heads of a group all find the
    same: only keys and values are shared, every head asks for itself.""",
    but=("same",),
    ask=lambda q, groups: spread(q.unflatten(1, (groups, -1)).mean(2), q.shape[1]),
)
grouped.fault(
    "one output per group",
    """Your result has one head per group. Sharing keys does not make fewer heads: each head of
    queries has an output of its own.""",
    but=("same",),
    finish=lambda y, groups: y.unflatten(1, (groups, -1)).mean(2),
)
grouped.fault(
    "heads joined in the wrong order",
    """The outputs come back in another order than the queries: the axes of groups and heads were
    exchanged before they were joined.""",
    but=("one", "same"),
    finish=lambda y, groups: y.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2),
)
grouped.fault(
    "no scale",
    """You compare by the plain product. The division by the root of the number of elements stays
    when heads are shared.""",
    but=("by_hand",),
    scale=lambda query, value: 1.0,
)
grouped.fault(
    "the root is missing",
    """You divide by the number of elements itself, or by its root in two places.""",
    but=("by_hand",),
    scale=lambda query, value: query.shape[-1],
)
grouped.fault(
    "scaled by the width of a value",
    """You divide by the root of the number of elements of a value. A product is a sum over the
    elements of a key.""",
    but=("by_hand",),
    scale=lambda query, value: value.shape[-1] ** 0.5,
)
grouped.fault(
    "softmax over the queries",
    """Your softmax runs over the queries. Check along which axis the weights sum to one.""",
    weigh=lambda scores: scores.softmax(-2),
)
grouped.fault(
    "causal without being asked",
    """You close the future. No mask is asked for here.""",
    weigh=lambda scores: scores.masked_fill(
        ~torch.ones_like(scores).bool().tril(), -torch.inf
    ).softmax(-1),
)
grouped.detached()

# --- latent_attention --------------------------------------------------------------------------


def absorbed(
    query,
    latent,
    key_up,
    value_up,
    *,
    matrices=lambda k, v: (k, v),
    scale=lambda query, latent, up: query.shape[-1] ** 0.5,
    weigh=lambda scores: scores.softmax(-1),
    up=lambda mixed, up: mixed @ up.mT,
):
    key_up, value_up = matrices(key_up, value_up)
    scores = (query @ key_up) @ latent.unsqueeze(1).mT / scale(query, latent, value_up)
    return up(weigh(scores) @ latent.unsqueeze(1), value_up)


TESTS = ("by_hand", "values", "memory", "gradient")
latent = WrongAnswers("latent_attention", tests=TESTS, right=absorbed)


@witnesses(of="latent_attention")
def latent_calls(draw):
    for heads, new, rank, size in ((1, 1, 2, 6), (3, 2, 4, 6), (2, 5, 3, 6), (2, 3, 4, 5)):
        parts = [draw.normal(2, heads, new, 5), draw.normal(2, 7, rank)]
        parts += [draw.normal(heads, 5, rank), draw.normal(heads, size, rank)]
        yield call(*parts)
        for wrt in range(4):
            yield call(*parts, via=student.grad(wrt))


@latent("keys and values are built", fails=("memory",))
def latent_built(query, latent, key_up, value_up):
    """Your numbers are right, but the keys and values of all heads stand in memory: that is what
    the latent vector should save. Which factor of the product could be moved to the query?
    """
    return look(query, latent.unsqueeze(1) @ key_up.mT, latent.unsqueeze(1) @ value_up.mT)


latent.fault(
    "divided by the root of the latent's size",
    """You divide by the root of the size of the latent vector. The score is still the product of a
    query and a key with E elements, computed in another order.""",
    but=("memory",),
    scale=lambda query, latent, up: latent.shape[-1] ** 0.5,
)
latent.fault(
    "divided by the root of the value's size",
    """You divide by the root of the number of elements of a value. The score is a product of a
    query and a key.""",
    but=("memory",),
    scale=lambda query, latent, up: up.shape[-2] ** 0.5,
)
latent.fault(
    "no scale",
    """You compare by the plain product. The division by the root of the number of elements of a
    query stays.""",
    but=("memory",),
    scale=lambda query, latent, up: 1.0,
)
latent.fault(
    "the root is missing",
    """You divide by the number of elements of a query itself. Its root is asked for.""",
    but=("memory",),
    scale=lambda query, latent, up: query.shape[-1],
)
latent.fault(
    "the latent vectors are the values",
    """You return the sum of the latent vectors. They still have to become values, by the matrix of
    each head.""",
    but=("memory",),
    up=lambda mixed, up: mixed,
)
latent.fault(
    "values made by the keys' matrix",
    """You bring the sum up with the matrix that makes keys. Keys and values come from the same
    vector, by two matrices.""",
    but=("memory",),
    matrices=lambda k, v: (k, k),
)
latent.fault(
    "keys and values exchanged",
    """You use the matrix of the values for the scores and that of the keys for the result.""",
    but=("memory",),
    matrices=lambda k, v: (v, k),
)
latent.fault(
    "one head's matrices for all",
    """All heads use the matrices of head 0. The latent vector is shared, the way up is not: each
    head has its own.""",
    fails=("values", "gradient"),
    matrices=lambda k, v: (k[:1], v[:1]),
)
latent.fault(
    "softmax over the queries",
    """Your softmax runs over the queries. Check along which axis the weights sum to one.""",
    but=("memory",),
    weigh=lambda scores: scores.softmax(-2),
)
latent.fault(
    "softmax over the heads",
    """Your softmax runs over the heads, so that these compete for each token. It runs over the
    tokens.""",
    but=("memory",),
    weigh=lambda scores: scores.softmax(1),
)
latent.fault(
    "no softmax",
    """You mix by the scores themselves. Weights come out of a softmax.""",
    but=("memory",),
    weigh=lambda scores: scores,
)
latent.detached()

# --- speculative_accept ------------------------------------------------------------------------


def accepting(
    target,
    draft,
    words,
    uniforms,
    *,
    chance=lambda uniforms, i: float(uniforms[i]),
    take=lambda u, p, q: u * q < p,
    left=lambda target, draft, i: (target[i] - draft[i]).clamp(min=0),
    scale=lambda rest: rest / rest.sum(),
    walk=drawn,
    luck=lambda uniforms, i: float(uniforms[-1]),
    refuse=lambda word, other: ([other], True),
    bonus=lambda target, draft: target[-1],
    add=lambda refused: not refused,
):
    written, refused = [], False
    for i, word in enumerate(words.tolist()):
        if take(chance(uniforms, i), float(target[i, word]), float(draft[i, word])):
            written.append(word)
            continue
        refused = True
        more, stop = refuse(word, walk(scale(left(target, draft, i)), luck(uniforms, i)))
        written += more
        if stop:
            break
    if add(refused):
        written.append(walk(scale(bonus(target, draft)), luck(uniforms, len(words))))
    return torch.tensor(written, dtype=torch.long)


TESTS = ("by_hand", "accepted", "refused")
accept = WrongAnswers("speculative_accept", tests=TESTS, right=accepting)


@witnesses(of="speculative_accept")
def accept_calls(draw):
    for _ in range(12):
        target = (1.5 * draw.normal(4, 5)).softmax(-1)
        draft = (1.5 * draw.normal(3, 5)).softmax(-1)
        yield call(target, draft, draw.integers(0, 5, 3), draw.uniform(4))
        yield call(target, draft, target[:3].argmax(-1), 0.1 * draw.uniform(4))
        yield call(target, draft, draft.argmax(-1), 1 - 0.1 * draw.uniform(4))
    rows = torch.tensor([[0.25, 0.5, 0.25], [0.0, 0.5, 0.5], [0.2, 0.2, 0.6]])
    for last in (0.0, 0.5, 0.75):
        yield call(rows, rows[[1, 0]], torch.tensor([1, 0]), torch.tensor([0.5, 0.5, last]))
        yield call(rows, rows.flip(1)[:2], torch.tensor([1, 0]), torch.tensor([0.5, 0.5, last]))
        yield call(rows, rows[[1, 1]] / 2 + rows[[2, 0]] / 2, *(torch.tensor([1, 1]),), 0 * rows[0])


accept.fault(
    "only what the target likes better",
    """You accept a word only if the target gives it at least the draft's probability. The others
    must have a chance too, the ratio; otherwise they come too rarely.""",
    fails=("accepted",),
    take=lambda u, p, q: p >= q,
)
accept.fault(
    "the ratio turned round",
    """You divide the draft's probability by the target's. Words that the draft likes too much
    would always stay, and those that it likes too little would go.""",
    take=lambda u, p, q: u * p < q,
)
accept.fault(
    "accepted by the target alone",
    """You accept with the probability that the target gives to the word. The draft has made it
    come with probability q already; dividing by it is what corrects that.""",
    take=lambda u, p, q: u < p,
)
accept.fault(
    "accepted above the ratio",
    """You accept where the random number exceeds the ratio. A large ratio should make acceptance
    likely.""",
    take=lambda u, p, q: u * q > p,
)
accept.fault(
    "accepted when the ratio is met",
    """You accept a random number that equals the ratio. It has to be smaller; with a probability
    of 0 in the target a word could otherwise stay.""",
    fails=("refused",),
    take=lambda u, p, q: u * q <= p,
)
accept.fault(
    "everything is accepted",
    """You keep whatever the draft has written. That is sampling from the draft: fast, and another
    distribution.""",
    but=("accepted",),
    take=lambda u, p, q: True,
)
accept.fault(
    "one random number for all",
    """You use the first random number for every word. Each decision has one of its own.""",
    fails=("accepted",),
    chance=lambda uniforms, i: float(uniforms[0]),
)
accept.fault(
    "the refused word's random number again",
    """You draw the word instead of a refused one by the random number that refused it, which is
    large by then. Both draws use the last one.""",
    fails=("refused",),
    luck=lambda uniforms, i: float(uniforms[i]),
)
accept.fault(
    "redrawn from the target",
    """After a refusal you draw from the whole target. Words that the draft proposes often have had
    their share by then and would come too often. What is still owed to each word?""",
    but=("accepted",),
    left=lambda target, draft, i: target[i],
)
accept.fault(
    "redrawn from the draft",
    """After a refusal you draw from the draft, the model that has just been corrected. Draw from
    what the target has more than the draft.""",
    but=("accepted",),
    left=lambda target, draft, i: draft[i],
)
accept.fault(
    "what the draft has more",
    """After a refusal you draw from what the draft has more than the target. It is the other way
    round that something is owed.""",
    but=("accepted",),
    left=lambda target, draft, i: (draft[i] - target[i]).clamp(min=0),
)
accept.fault(
    "the row after the refusal",
    """After a refusal you draw from the next row of the target. The word instead of the refused
    one belongs to its own row.""",
    but=("accepted",),
    left=lambda target, draft, i: target[i + 1],
)
accept.fault(
    "what is left is not scaled to one",
    """You draw from the positive part of the difference as it is. It sums to less than one, so
    that large random numbers all fall on the last word. Divide by the sum first.""",
    fails=("refused",),
    scale=lambda rest: rest,
)
accept.fault(
    "what is left goes through a softmax",
    """You scale what is left by a softmax. Words to which nothing is owed would get a share: the
    exponential of 0 is 1. Divide by the sum.""",
    but=("accepted",),
    scale=lambda rest: rest.softmax(-1),
)
accept.fault(
    "the likeliest of what is left",
    """After the drafts you take the likeliest word. Draw it: the result must have the target's
    distribution, not its favourite.""",
    but=("by_hand",),
    walk=lambda rest, u: int(rest.argmax()),
)
accept.fault(
    "a sum that is reached",
    """You stop where the sum reaches the random number; it has to exceed it. With a random number
    of 0 a word of probability 0 could be drawn.""",
    fails=("refused",),
    walk=lambda rest, u: drawn(rest, u, torch.lt),
)
accept.fault(
    "on after a refusal",
    """You go on with the next drafted word after a refusal. It was written for another beginning
    of the text; everything after a refusal must go.""",
    but=("accepted",),
    refuse=lambda word, other: ([other], False),
    add=lambda refused: True,
)
accept.fault(
    "the refused word is left out",
    """You leave a refused word out and go on with the next one. Another word is drawn in its
    place, and everything after it must go.""",
    but=("accepted",),
    refuse=lambda word, other: ([], False),
    add=lambda refused: True,
)
accept.fault(
    "the refused word stays",
    """You write the refused word and then the one that is drawn for it. It stands *in place* of
    the refused one.""",
    but=("accepted",),
    refuse=lambda word, other: ([word, other], True),
)
accept.fault(
    "nothing instead of the refused word",
    """You stop at a refusal and draw nothing. The target's run has paid for a word there.""",
    but=("accepted",),
    refuse=lambda word, other: ([], True),
)
accept.fault(
    "one more word after a refusal",
    """After the word instead of the refused one you draw another from the last row. It was
    computed for a text that was thrown away.""",
    but=("accepted",),
    add=lambda refused: True,
)
accept.fault(
    "no word of the target's own",
    """When all words are accepted you return them and nothing more. The target's run has paid for
    one word more: the last row is there for it.""",
    fails=("accepted",),
    add=lambda refused: False,
)

# --- the repair --------------------------------------------------------------------------------


def right_places(past, new):
    return past + torch.arange(new)


def one_step(
    x,
    weight_query,
    weight_key,
    weight_value,
    cache_key,
    cache_value,
    *,
    asked=right_places,
    kept=right_places,
    shift=lambda past, new: past,
    turn=lambda keys, old, new: keys,
    hand=lambda new, places: new,
    scale=lambda size, count: size**0.5,
):
    past, new = len(cache_key), len(x)
    query = apply_rope(x @ weight_query.T, asked(past, new))
    key = apply_rope(x @ weight_key.T, kept(past, new))
    keys = turn(torch.cat([cache_key, key]), cache_key, x @ weight_key.T)
    values = torch.cat([cache_value, hand(x @ weight_value.T, right_places(past, new))])
    scores = query @ keys.T / scale(query.shape[-1], len(keys))
    allowed = allow(new, past + new, shift(past, new))
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ values, keys, values


def from_zero(past, new):
    return torch.arange(new)


def too_far(past, new):
    return past + 1 + torch.arange(new)


fixed = WrongAnswers("fixed_step", tests=("prompt", "one", "several"), right=one_step)


@witnesses(of="fixed_step")
def fixed_calls(draw):
    for past, new in ((0, 3), (4, 1), (5, 3), (1, 2)):
        parts = [draw.normal(4, 5) for _ in range(3)]
        yield call(draw.normal(new, 5), *parts, draw.normal(past, 4), draw.normal(past, 4))


fixed.fault(
    "both faults are still there",
    """This is the broken code as it stands. Feed it three tokens at once and then one by one, and
    compare: which numbers of a new token do not know how long the text is already?""",
    but=("prompt",),
    asked=from_zero,
    kept=from_zero,
    shift=lambda past, new: 0,
)
fixed.fault(
    "the position still starts at 0",
    """The mask is right now. But each new token is turned as if it were the first of the text, so
    that every distance to the cached keys is wrong.""",
    but=("prompt",),
    asked=from_zero,
    kept=from_zero,
)
fixed.fault(
    "the position of the query still starts at 0",
    """Your new keys are turned to their places, your queries as if they were the first of the
    text. Both stand at the same place.""",
    but=("prompt",),
    asked=from_zero,
)
fixed.fault(
    "the position of the key still starts at 0",
    """Your queries are turned to their places, your new keys as if they were the first of the
    text. Both stand at the same place.""",
    but=("prompt",),
    kept=from_zero,
)
fixed.fault(
    "one position too far",
    """Your new tokens stand one place too far on: with T tokens in the cache, at the positions 0
    to T - 1, the next one stands at T.""",
    asked=too_far,
    kept=too_far,
)
fixed.fault(
    "the mask still counts from the top left",
    """The positions are right now. But a new token sees the first keys of the text only; write the
    mask down for four cached keys and one new token.""",
    but=("prompt",),
    shift=lambda past, new: 0,
)
fixed.fault(
    "the mask is gone",
    """You took the mask out. With one new token nothing is lost; with several the first sees the
    last.""",
    but=("one",),
    shift=lambda past, new: past + new,
)
fixed.fault(
    "no mask with a cache",
    """You mask the prompt, and nothing as soon as there is a cache. Several new tokens may come
    with one.""",
    fails=("several",),
    shift=lambda past, new: past + new if past else 0,
)
fixed.fault(
    "itself excluded",
    """A new token does not see itself any more. Its own key and value belong to the look.""",
    shift=lambda past, new: past - 1,
)
fixed.fault(
    "one step too far",
    """Each new token sees one that comes after it. Check the diagonal of your mask.""",
    but=("one",),
    shift=lambda past, new: past + 1,
)
fixed.fault(
    "cached keys are turned again",
    """You turn the whole list of keys. Those of the cache have been turned already, and each step
    turns them further.""",
    but=("prompt",),
    turn=lambda keys, old, new: apply_rope(torch.cat([old, new]), torch.arange(len(keys))),
)

fixed.fault(
    "the values are turned as well",
    """You turn the values, too. Positions matter for the comparison; what is handed over stays as
    it is.""",
    hand=apply_rope,
)

# --- the test ----------------------------------------------------------------------------------

checks = WrongAnswers("check_cached_attention", tests=("plain", "mutants"))


@witnesses(of="check_cached_attention")
def check_calls(draw):
    for candidate in (
        step,
        lambda query, key, value, cache=None: (0 * value, (key, value)),
        lambda query, key, value, cache=None: step(query, key, value),
        partial(step, mask=lambda n, s: allow(n, s, s)),
        partial(step, scale=lambda keys, values: 1.0),
        lambda query, key, value, cache=None: (value[..., :1], (key, value)),
    ):
        yield call(candidate)


def in_parts(candidate, parts, cuts):
    cache, outputs, start = None, [], 0
    for size in cuts:
        piece = [x[:, :, start : start + size] for x in parts]
        output, cache = candidate(*piece, cache)
        outputs.append(output)
        start += size
    return torch.cat(outputs, dim=2)


def some_parts():
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(1, 2, 5, 4, generator=draw) for _ in range(3)]


@checks("accepts everything")
def check_nothing(candidate):
    """Your test returns True whatever it is given, so that no wrong answer is caught. Call the
    candidate and compare what comes back with numbers of your own.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test returns False even for a right answer. Check that you allow for rounding,
    and at what you return in the end.
    """
    return False


@checks("only the shape is looked at")
def check_shape(candidate):
    """You compare shapes and no value. A cache that is never read has the right shape at every
    step.
    """
    parts = some_parts()
    return in_parts(candidate, parts, (5,)).shape == parts[2].shape


@checks("never a second call", fails=("plain", "mutants"))
def check_prompt_only(candidate):
    """You call the candidate once, without a cache. Everything that can go wrong with a cache goes
    wrong at the second call.
    """
    parts = some_parts()
    got = in_parts(candidate, parts, (5,))
    return got.shape == parts[2].shape and bool(torch.allclose(got, step(*parts)[0], atol=1e-5))


@checks("compared with itself only", fails=("plain", "mutants"))
def check_itself(candidate):
    """You compare the candidate's answer in one piece with its answer token by token. A wrong one
    can agree with itself: always 0, or every key unscaled. Have a number of your own as well.
    """
    try:
        parts = some_parts()
        one, many = (in_parts(candidate, parts, cuts) for cuts in ((5,), (1,) * 5))
    except Exception:
        return False
    return one.shape == many.shape and bool(torch.allclose(one, many, atol=1e-5))


@checks("one new token at a time", fails=("mutants",))
def check_singly(candidate):
    """You feed one token at a time and never several to a cache. A mask among the new tokens is
    needed only there, and in the prompt.
    """
    try:
        parts = some_parts()
        got = in_parts(candidate, parts, (1,) * 5)
    except Exception:
        return False
    return got.shape == parts[2].shape and bool(torch.allclose(got, step(*parts)[0], atol=1e-5))


# --- generate ----------------------------------------------------------------------------------


def norm(x):
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def turned(q, k, v, places):
    return apply_rope(q, places), apply_rope(k, places), v


def writing(
    parameters,
    prompt,
    uniforms,
    attention,
    choose,
    *,
    feed=lambda text, past: text[past:],
    places=lambda past, new: past + torch.arange(new),
    before=norm,
    ahead=lambda x, y: norm(x),
    last=norm,
    turn=turned,
    slot=lambda i: i,
    first=torch.add,
    second=torch.add,
    bend=lambda gate, up: torch.nn.functional.silu(gate) * up,
    table="output_table",
    which=lambda x: x[-1],
    deal=lambda x, heads: x.unflatten(-1, (heads, -1)).transpose(0, 1)[None],
    finish=lambda written, prompt: written,
):
    heads = parameters["num_heads"]
    caches = [None] * len(parameters["blocks"])
    text, past, rows = prompt.tolist(), 0, []
    for uniform in uniforms.tolist():
        new = feed(text, past)
        if len(new) == len(text):
            caches = [None] * len(caches)
        x, positions = parameters["embedding"][new], places(len(text) - len(new), len(new))
        for i, block in enumerate(parameters["blocks"]):
            y = before(x)
            parts = (deal(y @ block[name].T, heads) for name in ("query", "key", "value"))
            found, caches[slot(i)] = attention(*turn(*parts, positions), caches[slot(i)])
            x = first(x, found[0].transpose(0, 1).flatten(1) @ block["output"].T)
            y = ahead(x, y)
            x = second(x, bend(y @ block["gate"].T, y @ block["up"].T) @ block["down"].T)
        rows.append(last(which(x)) @ parameters[table].T)
        past = len(text)
        text.append(choose(rows[-1], uniform))
    return finish(torch.tensor(text[len(prompt) :]), prompt), torch.stack(rows)


whole = WrongAnswers("generate", tests=("one", "text"), right=writing)


def kept_short(query, key, value, cache=None):
    if query.shape[-2] > 3:
        raise ValueError("more new tokens at once than the prompt has: some are computed again")
    return step(query, key, value, cache)


@witnesses(of="generate")
def generate_calls(draw):
    for heads, blocks, count in ((2, 2, 1), (2, 2, 5), (1, 1, 4)):
        shapes = dict.fromkeys(("query", "key", "value"), (heads * 4, 6))
        shapes |= {"output": (6, heads * 4), "gate": (5, 6), "up": (5, 6), "down": (6, 5)}
        tables = [
            {name: 0.5 * draw.normal(*s) for name, s in shapes.items()} for _ in range(blocks)
        ]
        parameters = {"embedding": draw.normal(7, 6), "output_table": draw.normal(7, 6)}
        parameters |= {"num_heads": heads, "blocks": tables}
        given = parameters, torch.tensor([1, 4, 2]), 0.05 + 0.9 * draw.uniform(count)
        yield call(*given, kept_short, drawing)


whole.fault(
    "everything is computed again",
    """Your words are right, but for each of them the whole text goes through the blocks again.
    With the caches only the newest word has to.""",
    fails=("text",),
    feed=lambda text, past: text,
)
whole.fault(
    "the position starts at 0 with every word",
    """From the second word on each new token is turned as if it were the first of the text. Its
    position is the number of tokens before it.""",
    fails=("text",),
    places=lambda past, new: torch.arange(new),
)
whole.fault(
    "no norm before the parts",
    """You feed attention and the feed-forward part with the vectors as they are. Each of them
    reads what the norm makes of its input.""",
    before=lambda x: x,
    ahead=lambda x, y: x,
)
whole.fault(
    "no norm before the attention",
    """You feed the attention with the vectors as they are. It reads what the norm makes of
    them.""",
    before=lambda x: x,
)
whole.fault(
    "no norm before the feed-forward part",
    """You feed the feed-forward part with the vectors as they are. It reads what the norm makes of
    them.""",
    ahead=lambda x, y: x,
)
whole.fault(
    "no norm before the logits",
    """You make logits of the last block's output as it is. Its size has grown from block to block;
    one more norm stands before the output table.""",
    last=lambda x: x,
)
whole.fault(
    "the feed-forward part reads what the attention read",
    """Your feed-forward part reads the input of the attention once more. It should read the norm of
    what the attention has left.""",
    ahead=lambda x, y: y,
)
whole.fault(
    "what attention found replaces the input",
    """You replace the vectors by what attention found. A block adds to its input: whoever finds
    nothing useful must be able to stay as it was.""",
    first=lambda x, y: y,
)
whole.fault(
    "the feed-forward part replaces its input",
    """You replace the vectors by what the feed-forward part returns. A block adds to its input.""",
    second=lambda x, y: y,
)
whole.fault(
    "no SiLU",
    """You multiply `gate` and `up` as they are. The SiLU acts on the product with `gate` first.""",
    bend=lambda gate, up: gate * up,
)
whole.fault(
    "gate and up change places",
    """Your SiLU acts on the product with `up`. It should act on that with `gate`.""",
    bend=lambda gate, up: gate * torch.nn.functional.silu(up),
)
whole.fault(
    "the logits are made with the embedding",
    """You make the logits with the embedding. This model has another table for its output.""",
    table="embedding",
)
whole.fault(
    "the logits of the first token",
    """You take the logits of the first of the new tokens. The next word follows the last one of
    the prompt; after the prompt there is only one, so that nothing is noticed later.""",
    which=lambda x: x[0],
)
whole.fault(
    "nothing is turned",
    """You never call `rotate`. Without it the model does not know where a word stands.""",
    turn=lambda q, k, v, places: (q, k, v),
)
whole.fault(
    "only the keys are turned",
    """Your queries are not turned. A distance shows only where both are.""",
    turn=lambda q, k, v, places: (q, apply_rope(k, places), v),
)
whole.fault(
    "only the queries are turned",
    """Your keys are not turned. A distance shows only where both are.""",
    turn=lambda q, k, v, places: (apply_rope(q, places), k, v),
)
whole.fault(
    "the heads take their elements in turn",
    """You deal the elements out to the heads in turn. Head `h` has the elements `h * E` to
    `(h + 1) * E - 1`, side by side.""",
    deal=lambda x, heads: x.unflatten(-1, (-1, heads)).permute(2, 0, 1)[None],
)
whole.fault(
    "the values are turned as well",
    """You turn the values, too. Positions matter for the comparison; what is handed over stays as
    it is.""",
    turn=lambda q, k, v, places: turned(q, k, apply_rope(v, places), places),
)
whole.fault(
    "one cache for all blocks",
    """Your blocks share one cache. Each block has keys and values of its own.""",
    slot=lambda i: 0,
)
whole.fault(
    "the prompt is returned as well",
    """Your ids start with the prompt. Asked are the words that were written.""",
    finish=lambda written, prompt: torch.cat([prompt, written]),
)
