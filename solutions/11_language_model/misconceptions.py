"""Wrong answers on the way to a model that writes: name, message, the tests they fail."""

import math
from functools import partial

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses


def apply_rope(x, positions, base=10000.0):
    """RoPE of adjacent pairs, as at the top of the exercises."""
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
    "shifted although already aligned",
    """You compare row `i` of the logits with target `i + 1`. Here row `i` already predicts target
    `i`.""",
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
    "You use the natural logarithm. In bits, a probability of one half costs exactly 1.",
    finish=torch.neg,
)
bits.fault(
    "multiplied by ln 2",
    "You multiply by ln 2. Divide by it: a nat is more than one bit.",
    finish=lambda x: -x * math.log(2),
)
bits.fault(
    "perplexity",
    "You return the perplexity, an exponential of the cost. The exercise asks for the bits.",
    finish=lambda x: (-x).exp(),
)
bits.fault(
    "the sign is missing",
    "Your result is negative. The cost is minus the logarithm.",
    finish=lambda x: x / math.log(2),
)
bits.fault(
    "the sum over the text",
    "You return the sum over all characters. The formula divides by N.",
    over=lambda each, counts: each[counts].sum(),
)
bits.fault(
    "the mean of the texts' means",
    """You average each text and then the texts, so characters of short texts weigh more. The
    formula has one sum over all characters.""",
    fails=("padding",),
    over=lambda each, counts: ((each * counts).sum(-1) / counts.sum(-1)).mean(),
)
bits.fault(
    "the logarithm of the mean probability",
    "You take the logarithm of the mean probability. The formula averages the logarithms.",
    over=lambda each, counts: each[counts].exp().mean().log(),
)
bits.fault(
    "padding is divided by",
    "You divide by the number of positions, padding included. N counts only characters.",
    fails=("padding",),
    over=lambda each, counts: (each * counts).mean(),
)
bits.fault(
    "padding is added up",
    "You divide by the right N, but your sum includes padding. Leave it out of both.",
    fails=("padding",),
    over=lambda each, counts: each.sum() / counts.sum(),
)
bits.fault(
    "padding is read as token 0",
    "You treat padding as token 0 and count it. Leave out these positions.",
    fails=("padding",),
    over=lambda each, counts: each.mean(),
)
bits.fault(
    "padding is read as the last token",
    "You treat padding as token -1, the last one, and count it. Leave out these positions.",
    fails=("padding",),
    pick=lambda log_p, targets: chosen(log_p, targets % log_p.shape[-1]),
    over=lambda each, counts: each.mean(),
)
bits.fault(
    "softmax over the positions",
    """Your softmax runs over the positions. At each position the probabilities of all tokens sum to
    one.""",
    log=lambda logits: logits.log_softmax(-2),
)
bits.fault(
    "logits taken for log-probabilities",
    "You use the logits as log-probabilities. They are not normalised.",
    log=lambda logits: logits,
)
bits.fault(
    "the softmax underflows",
    """You take the softmax first and the logarithm afterwards, so small probabilities become 0. One
    torch function does both safely.""",
    fails=("large",),
    log=lambda logits: logits.softmax(-1).log(),
)
bits.fault(
    "a small number inside the logarithm",
    """You add a small number inside the logarithm, which limits the cost of a token. A log-softmax
    needs no such number.""",
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
    "the token that reaches p is dropped",
    """You drop the token at which the sum reaches p, so the kept tokens sum to less than p. That
    token belongs to the set.""",
    keep=lambda sums, ordered, p: sums < p,
)
top.fault(
    "the most likely token and a sum below p",
    """You keep the tokens whose sum is below p, and always the most likely one. The token at which
    the sum reaches p belongs to the set.""",
    but=("one",),
    keep=lambda sums, ordered, p: (sums < p) | (torch.arange(sums.shape[-1]) == 0),
)
top.fault(
    "one token too many",
    """You keep one token too many: the sum has already reached p before it. Check whether you
    compare p with the sum before a token or after it.""",
    keep=lambda sums, ordered, p: (
        torch.arange(sums.shape[-1]) < (sums < p).sum(-1, keepdim=True) + 2
    ),
)
top.fault(
    "kept and dropped exchanged",
    "You keep the tokens after those that reach p. Reverse the comparison.",
    keep=lambda sums, ordered, p: ~reached(sums, ordered, p),
)
top.fault(
    "each probability against p",
    """You keep the tokens whose own probability is at least p. The *sum* of the most likely ones
    must reach p.""",
    keep=lambda sums, ordered, p: ordered >= p,
)
top.fault(
    "a share of the largest probability",
    """You keep tokens at least p times as likely as the most likely one, which is min-p. Here the
    sum of probabilities must reach p.""",
    keep=lambda sums, ordered, p: ordered >= p * ordered[..., :1],
)
top.fault(
    "a share of the tokens",
    """You keep the share p of all tokens, whatever their probabilities. Add up probabilities, not
    tokens.""",
    but=("one",),
    keep=lambda sums, ordered, p: torch.arange(sums.shape[-1]).expand_as(sums) < p * sums.shape[-1],
)
top.fault(
    "the first row's number for all",
    "Every row keeps as many tokens as the first one. Each row has its own set.",
    fails=("rows",),
    keep=lambda sums, ordered, p: (
        reached(sums, ordered, p).reshape(-1, sums.shape[-1])[0].expand_as(sums)
    ),
)
top.fault(
    "the least likely are kept",
    "You add up from the smallest probability. Start from the largest.",
    sort=lambda parts: parts.sort(-1),
)
top.fault(
    "in the order of the ids",
    """You add up the probabilities in the order of the ids. Sort them first: the most likely tokens
    are kept.""",
    sort=lambda parts: (parts, torch.arange(parts.shape[-1]).expand_as(parts)),
)
top.fault(
    "no softmax",
    "You compare sums of logits with p. Use probabilities.",
    but=("one",),
    weigh=lambda logits: logits,
)
top.fault(
    "softmax over the rows",
    "Your softmax runs over the rows. Each row is a distribution over the tokens.",
    fails=("rows",),
    weigh=lambda logits: logits.softmax(0),
)
top.fault(
    "dropped logits become 0",
    "You set dropped logits to 0, whose exponential is 1. Which logit has probability 0?",
    fill=lambda logits, kept: logits * kept,
)
top.fault(
    "a very negative number",
    "You set dropped logits to a large negative number. The contract asks for minus infinity.",
    fill=lambda logits, kept: logits.masked_fill(~kept, -1e9),
)
top.fault(
    "the mask stays in sorted order",
    "Your mask is in the order of the sort, but you apply it in the order of the ids. Map it back.",
    back=lambda kept, order: kept,
)
top.fault(
    "sorted logits are returned",
    """You return the logits in sorted order, so their index is no longer the id. Keep the original
    order.""",
    finish=lambda logits: logits.sort(-1, descending=True).values,
)
top.fault(
    "probabilities are returned",
    "You return probabilities. The contract asks for logits.",
    finish=lambda logits: logits.softmax(-1),
)
LOGARITHMS = "You return log-probabilities. Return the kept logits unchanged."
top.fault(
    "log-probabilities are returned", LOGARITHMS, finish=lambda logits: logits.log_softmax(-1)
)
top.fault(
    "log-probabilities of all tokens are returned",
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
    "always the most likely",
    """You return the most likely token and ignore the random number. Each token should occur with
    its probability.""",
    walk=lambda parts, u: int(parts.argmax()),
)


sample.fault(
    "the k smallest are kept",
    "You keep the k smallest logits. Check the order of your sort, or `largest` of `topk`.",
    fails=("top_k",),
    limit=lambda logits, k: logits.masked_fill((-topmost(-logits, k)).isinf(), -torch.inf),
)


@sample("a tensor instead of an int", fails=("by_hand",))
def in_a_tensor(logits, uniform, temperature=1.0, k=None):
    """You return the right id, but as a tensor. The contract asks for a plain `int`."""
    return torch.tensor(drawing(logits, uniform, temperature, k))


sample.fault(
    "the index in the sorted order",
    """You sort by probability and return the index in that order, which is not an id. Add up in the
    order of the ids.""",
    walk=lambda parts, u: drawn(parts.sort(descending=True).values, u),
)
sample.fault(
    "the most likely first",
    """You add up from the most likely token down. The distribution is right, but the contract adds
    up in the order of the ids.""",
    walk=lambda parts, u: int(
        parts.sort(descending=True)[1][drawn(parts.sort(descending=True)[0], u)]
    ),
)
sample.fault(
    "one token too early",
    "You return the last token whose sum does not exceed the random number. Return the next one.",
    walk=lambda parts, u: max(drawn(parts, u) - 1, 0),
)
sample.fault(
    "one token too late",
    """You return the token after the one at which the sum exceeds the random number. Count the sums
    that do not exceed it.""",
    walk=lambda parts, u: min(drawn(parts, u) + 1, len(parts) - 1),
)
sample.fault(
    "a sum that is reached",
    """You stop where the sum reaches the random number. It must exceed it, so that a token of
    probability 0 is never drawn.""",
    but=("temperature",),
    walk=lambda parts, u: drawn(parts, u, torch.lt),
)
sample.fault(
    "each probability against the random number",
    """You return the first token whose own probability exceeds the random number. Compare the
    running sum.""",
    walk=lambda parts, u: int((parts > u).long().argmax()),
)
sample.fault(
    "the random number as an index",
    """You multiply the random number by the number of tokens, so all tokens are equally likely. Use
    their probabilities.""",
    walk=lambda parts, u: int(u * len(parts)),
)
sample.fault(
    "multiplied by the temperature",
    "You multiply the logits by the temperature. Divide by it.",
    fails=("temperature",),
    heat=torch.mul,
)
sample.fault(
    "the temperature is ignored",
    "You ignore the temperature. Divide the logits by it before the softmax.",
    fails=("temperature",),
    heat=lambda logits, t: logits,
)
sample.fault(
    "the temperature comes after the softmax",
    """You divide the probabilities by the temperature, so they no longer sum to one. Divide the
    logits.""",
    fails=("temperature",),
    heat=lambda logits, t: logits,
    weigh=lambda logits, t: logits.softmax(-1) / t,
)
sample.fault(
    "no softmax",
    "You add up logits. Add up probabilities: a softmax is missing.",
    weigh=lambda logits, t: logits.clamp(min=0),
)
sample.fault(
    "k is ignored",
    "You draw from all tokens and ignore k. Only the k most likely remain.",
    fails=("top_k",),
    limit=lambda logits, k: logits,
)
sample.fault(
    "one token more than k",
    "You keep k + 1 tokens. The k-th largest logit is the last that remains.",
    fails=("top_k",),
    limit=lambda logits, k: topmost(logits, k and k + 1),
)
sample.fault(
    "one token fewer than k",
    "You keep k - 1 tokens. The k-th largest logit is the last that remains.",
    fails=("top_k",),
    limit=lambda logits, k: topmost(logits, k and max(k - 1, 1)),
)
sample.fault(
    "the index among the k largest",
    "You return an index into the list of the k largest logits. Return the id of the token.",
    fails=("top_k",),
    limit=lambda logits, k: logits if k is None else logits.topk(min(k, len(logits))).values,
)
sample.fault(
    "the k probabilities do not sum to one",
    """You take the softmax over all tokens and drop all but k afterwards. The rest sums to less
    than one.""",
    fails=("top_k",),
    limit=lambda logits, k: logits,
    cut=lambda parts, k: topmost(parts, k, 0.0),
)
sample.fault(
    "the first k tokens",
    "You keep the tokens with ids below k. Keep those with the k largest logits.",
    fails=("top_k",),
    limit=lambda logits, k: (
        logits if k is None else logits.masked_fill(torch.arange(len(logits)) >= k, -torch.inf)
    ),
)
sample.fault(
    "dropped tokens get the logit 0",
    "You set the dropped logits to 0, whose exponential is 1. Which logit has probability 0?",
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
    "the cache is never read",
    """Your new tokens attend only to new tokens: you never read the cache, or your mask excludes
    it.""",
    but=("first",),
    read=lambda cache: None,
)
cached.fault(
    "only the new keys are kept",
    """You return only the new keys and values as the cache. Earlier tokens are lost at the next
    step.""",
    but=("first",),
    give=lambda output, all, new, old: (output, new),
)
cached.fault(
    "the old cache is returned",
    "You return the old cache unchanged. Append the new keys and values.",
    give=lambda output, all, new, old: (output, old),
)
cached.fault(
    "keys and values exchanged in the cache",
    "You return values first and keys second. The contract asks for `(keys, values)`.",
    give=lambda output, all, new, old: (output, all[::-1]),
)
cached.fault(
    "the output alone",
    "You return the output without a cache. The contract asks for both.",
    give=lambda output, all, new, old: output,
)
cached.fault(
    "new keys before the old ones",
    """You put the new keys and values in front of the old ones. The contract asks for the oldest
    first.""",
    but=("first",),
    join=lambda old, new: torch.cat([new, old], dim=-2),
)
cached.fault(
    "no mask among the new tokens",
    """You do not mask among the new tokens, so the first attends to the last. Each attends only to
    earlier tokens and itself.""",
    fails=("first", "several"),
    mask=lambda n, s: allow(n, s, s),
)
cached.fault(
    "no mask with a cache",
    """You mask the prompt, but not new tokens after a cache. Several may arrive at once, and the
    first must not attend to the last.""",
    fails=("several",),
    mask=lambda n, s: allow(n, s, 0 if n == s else s),
)
cached.fault(
    "the mask counts from the top left",
    """Your mask aligns the first new token with the first key, as torch's `is_causal` does. The new
    tokens are the last of the text.""",
    but=("first",),
    mask=lambda n, s: allow(n, s, 0),
)
cached.fault(
    "a new token does not attend to itself",
    "Each new token attends to earlier tokens but not to itself. Check the diagonal of your mask.",
    mask=lambda n, s: allow(n, s, s - n - 1),
)
cached.fault(
    "one step too far",
    "Each new token attends to one later token. Check the diagonal of your mask.",
    fails=("first", "several"),
    mask=lambda n, s: allow(n, s, s - n + 1),
)
cached.fault(
    "the past is masked",
    "Each new token attends to itself and to later tokens. Your mask is reversed.",
    mask=lambda n, s: torch.ones(n, s, dtype=torch.bool).triu(s - n),
)
cached.fault(
    "no scale",
    "You do not scale the scores. Divide them by the root of E.",
    scale=lambda keys, values: 1.0,
)
cached.fault(
    "the root is missing",
    "You divide by E itself: the root is missing, or you scale twice.",
    scale=lambda keys, values: keys.shape[-1],
)
cached.fault(
    "divided by the root of the number of keys",
    "You divide by the root of the number of keys. A product sums over the E elements of a key.",
    scale=lambda keys, values: keys.shape[-2] ** 0.5,
)
cached.fault(
    "softmax over the queries",
    "Your softmax runs over the new queries. It must run over the keys.",
    weigh=lambda s, open: s.masked_fill(~open, -torch.inf).softmax(-2),
)
cached.fault(
    "masked scores set to 0",
    "You set masked scores to 0, whose exponential is 1. Which score has the exponential 0?",
    fails=("first", "several"),
    weigh=lambda s, open: (s * open).softmax(-1),
)
cached.fault(
    "the mask comes after the softmax",
    "You set masked weights to 0 after the softmax, so the rest sum to less than one.",
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
    "You deal out the key heads in turn: 0, 1, 0, 1. Adjacent query heads share one: 0, 0, 1, 1.",
    but=("one", "same"),
    keys=in_turn,
    values=in_turn,
)
grouped.fault(
    "values dealt in turn",
    """Your keys are shared by adjacent heads, but your values are dealt in turn. Both follow the
    same rule.""",
    but=("one", "same"),
    values=in_turn,
)
grouped.fault(
    "keys dealt in turn",
    """Your values are shared by adjacent heads, but your keys are dealt in turn. Both follow the
    same rule.""",
    but=("one", "same"),
    keys=in_turn,
)
grouped.fault(
    "all use head 0",
    "All your query heads use head 0 of keys and values. Each group has its own head.",
    but=("one",),
    keys=first_only,
    values=first_only,
)
grouped.fault(
    "the mean of all keys and values",
    "You average the heads of keys and values. Each group has its own head.",
    but=("one",),
    keys=averaged,
    values=averaged,
)
grouped.fault(
    "the queries of a group are averaged",
    """You average the queries of a group. Only keys and values are shared; each head has its own
    query.""",
    but=("same",),
    ask=lambda q, groups: spread(q.unflatten(1, (groups, -1)).mean(2), q.shape[1]),
)
grouped.fault(
    "one output per group",
    "Your result has one head per group. Each query head has its own output.",
    but=("same",),
    finish=lambda y, groups: y.unflatten(1, (groups, -1)).mean(2),
)
grouped.fault(
    "heads joined in the wrong order",
    """Your outputs are not in the order of the queries: you exchanged the axes of groups and heads
    before you joined them.""",
    but=("one", "same"),
    finish=lambda y, groups: y.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2),
)
grouped.fault(
    "no scale",
    "You do not scale the scores. Divide them by the root of E.",
    but=("by_hand",),
    scale=lambda query, value: 1.0,
)
grouped.fault(
    "the root is missing",
    "You divide by E itself: the root is missing, or you scale twice.",
    but=("by_hand",),
    scale=lambda query, value: query.shape[-1],
)
grouped.fault(
    "scaled by the width of a value",
    "You divide by the root of `E_v`. A product sums over the E elements of a key.",
    but=("by_hand",),
    scale=lambda query, value: value.shape[-1] ** 0.5,
)
grouped.fault(
    "softmax over the queries",
    "Your softmax runs over the queries. The weights of one query sum to one over the keys.",
    weigh=lambda scores: scores.softmax(-2),
)
grouped.fault(
    "causal without being asked",
    "You apply a causal mask. This exercise has no mask.",
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
    """Your values are right, but you build the keys and values of all heads. Which factor of the
    product can you move to the query?
    """
    return look(query, latent.unsqueeze(1) @ key_up.mT, latent.unsqueeze(1) @ value_up.mT)


latent.fault(
    "divided by the root of the latent's size",
    """You divide by the root of r. The score is still a product of a query and a key with E
    elements.""",
    but=("memory",),
    scale=lambda query, latent, up: latent.shape[-1] ** 0.5,
)
latent.fault(
    "divided by the root of the value's size",
    "You divide by the root of `E_v`. The score is a product of a query and a key with E elements.",
    but=("memory",),
    scale=lambda query, latent, up: up.shape[-2] ** 0.5,
)
latent.fault(
    "no scale",
    "You do not scale the scores. Divide them by the root of E.",
    but=("memory",),
    scale=lambda query, latent, up: 1.0,
)
latent.fault(
    "the root is missing",
    "You divide by E itself. The formula has the root of E.",
    but=("memory",),
    scale=lambda query, latent, up: query.shape[-1],
)
latent.fault(
    "the latent vectors are the values",
    "You return the weighted sum of the latent vectors. Multiply it by `value_up` of each head.",
    but=("memory",),
    up=lambda mixed, up: mixed,
)
latent.fault(
    "values made with `key_up`",
    "You use `key_up` for the values as well. Values are made with `value_up`.",
    but=("memory",),
    matrices=lambda k, v: (k, k),
)
latent.fault(
    "keys and values exchanged",
    "You use `value_up` for the scores and `key_up` for the result. Exchange them.",
    but=("memory",),
    matrices=lambda k, v: (v, k),
)
latent.fault(
    "one head's matrices for all",
    """All heads use the matrices of head 0. The heads share the latent vector, but each has its own
    matrices.""",
    fails=("values", "gradient"),
    matrices=lambda k, v: (k[:1], v[:1]),
)
latent.fault(
    "softmax over the queries",
    "Your softmax runs over the queries. The weights of one query sum to one over the keys.",
    but=("memory",),
    weigh=lambda scores: scores.softmax(-2),
)
latent.fault(
    "softmax over the heads",
    "Your softmax runs over the heads. It must run over the tokens.",
    but=("memory",),
    weigh=lambda scores: scores.softmax(1),
)
latent.fault(
    "no softmax",
    "You use the scores as weights. A softmax is missing.",
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
    "only where p is at least q",
    "You accept a token only if p is at least q. Otherwise accept it with probability p/q.",
    fails=("accepted",),
    take=lambda u, p, q: p >= q,
)
accept.fault(
    "the ratio inverted",
    "You accept by the ratio q/p. The formula has p/q.",
    take=lambda u, p, q: u * p < q,
)
accept.fault(
    "accepted by the target alone",
    "You accept with probability p. The formula divides p by q.",
    take=lambda u, p, q: u < p,
)
accept.fault(
    "accepted above the ratio",
    "You accept when the random number exceeds the ratio. Accept when it is smaller.",
    take=lambda u, p, q: u * q > p,
)
accept.fault(
    "accepted when the ratio is met",
    """You accept when the random number equals the ratio. It must be smaller, so that a token with
    p = 0 is never accepted.""",
    fails=("refused",),
    take=lambda u, p, q: u * q <= p,
)
accept.fault(
    "everything is accepted",
    """You accept every token of the draft, so you sample from the draft. Compare the random number
    with the ratio.""",
    but=("accepted",),
    take=lambda u, p, q: True,
)
accept.fault(
    "one random number for all",
    "You use the first random number for every token. Each decision has its own.",
    fails=("accepted",),
    chance=lambda uniforms, i: float(uniforms[0]),
)
accept.fault(
    "the random number of the refusal used again",
    """You draw the replacement with the random number that refused the token. Both draws use the
    last random number.""",
    fails=("refused",),
    luck=lambda uniforms, i: float(uniforms[i]),
)
accept.fault(
    "redrawn from the target",
    """After a refusal you draw from p, so tokens that the draft proposes occur too often. See the
    formula.""",
    but=("accepted",),
    left=lambda target, draft, i: target[i],
)
accept.fault(
    "redrawn from the draft",
    "After a refusal you draw from q. Draw from the positive part of p - q.",
    but=("accepted",),
    left=lambda target, draft, i: draft[i],
)
accept.fault(
    "q - p instead of p - q",
    "After a refusal you draw from the positive part of q - p. The formula has p - q.",
    but=("accepted",),
    left=lambda target, draft, i: (draft[i] - target[i]).clamp(min=0),
)
accept.fault(
    "the row after the refusal",
    """After a refusal you draw from the next row of the target. The replacement belongs to the row
    of the refused token.""",
    but=("accepted",),
    left=lambda target, draft, i: target[i + 1],
)
accept.fault(
    "p - q is not normalised",
    "You draw from the positive part of p - q without normalising it. Divide by its sum first.",
    fails=("refused",),
    scale=lambda rest: rest,
)
accept.fault(
    "a softmax of p - q",
    """You apply a softmax to the positive part of p - q, so tokens with 0 can be drawn. Divide by
    the sum.""",
    but=("accepted",),
    scale=lambda rest: rest.softmax(-1),
)
accept.fault(
    "the most likely instead of a draw",
    "You take the most likely token after the accepted ones. Draw it with the last random number.",
    but=("by_hand",),
    walk=lambda rest, u: int(rest.argmax()),
)
accept.fault(
    "a sum that is reached",
    """You stop where the sum reaches the random number. It must exceed it, so that a token of
    probability 0 is never drawn.""",
    fails=("refused",),
    walk=lambda rest, u: drawn(rest, u, torch.lt),
)
accept.fault(
    "continued after a refusal",
    """You go on with the next draft token after a refusal. Discard all draft tokens after a
    refusal.""",
    but=("accepted",),
    refuse=lambda word, other: ([other], False),
    add=lambda refused: True,
)
accept.fault(
    "the refused token is skipped",
    """You skip a refused token and go on with the next one. Draw a replacement, and discard the
    rest.""",
    but=("accepted",),
    refuse=lambda word, other: ([], False),
    add=lambda refused: True,
)
accept.fault(
    "the refused token is kept",
    "You keep the refused token and append its replacement. Return only the replacement.",
    but=("accepted",),
    refuse=lambda word, other: ([word, other], True),
)
accept.fault(
    "no replacement for the refused token",
    "You stop at a refusal without drawing. Draw a replacement from the positive part of p - q.",
    but=("accepted",),
    refuse=lambda word, other: ([], True),
)
accept.fault(
    "one more token after a refusal",
    """After the replacement you draw one more token from the last row. That row applies only if all
    tokens are accepted.""",
    but=("accepted",),
    add=lambda refused: True,
)
accept.fault(
    "no extra token from the target",
    """When all tokens are accepted you return only them. Draw one more from the last row of
    `target`.""",
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
    """This is the broken code. Feed it three tokens at once, then one by one: which numbers ignore
    the length of the cache?""",
    but=("prompt",),
    asked=from_zero,
    kept=from_zero,
    shift=lambda past, new: 0,
)
fixed.fault(
    "the position still starts at 0",
    "The mask is now right. You still rotate new tokens as if the text began with them.",
    but=("prompt",),
    asked=from_zero,
    kept=from_zero,
)
fixed.fault(
    "the position of the query still starts at 0",
    """You rotate new keys to the right positions, but queries as if the text began with them. Both
    have the same positions.""",
    but=("prompt",),
    asked=from_zero,
)
fixed.fault(
    "the position of the key still starts at 0",
    """You rotate queries to the right positions, but new keys as if the text began with them. Both
    have the same positions.""",
    but=("prompt",),
    kept=from_zero,
)
fixed.fault(
    "one position too far",
    """Your positions are one too large. With T cached tokens at positions 0 to T - 1, the next
    token is at T.""",
    asked=too_far,
    kept=too_far,
)
fixed.fault(
    "the mask still counts from the top left",
    """The positions are now right. Your mask still aligns the first new token with the first key:
    write it down for four cached keys and one new token.""",
    but=("prompt",),
    shift=lambda past, new: 0,
)
fixed.fault(
    "the mask is gone",
    "You removed the mask. With several new tokens the first then attends to the last.",
    but=("one",),
    shift=lambda past, new: past + new,
)
fixed.fault(
    "no mask with a cache",
    "You mask the prompt, but not new tokens after a cache. Several may arrive at once.",
    fails=("several",),
    shift=lambda past, new: past + new if past else 0,
)
fixed.fault(
    "itself excluded",
    "Your new token no longer attends to itself. Check the diagonal of your mask.",
    shift=lambda past, new: past - 1,
)
fixed.fault(
    "one step too far",
    "Each new token attends to one later token. Check the diagonal of your mask.",
    but=("one",),
    shift=lambda past, new: past + 1,
)
fixed.fault(
    "cached keys are rotated again",
    "You rotate all keys. The cached ones are already rotated.",
    but=("prompt",),
    turn=lambda keys, old, new: apply_rope(torch.cat([old, new]), torch.arange(len(keys))),
)

fixed.fault(
    "the values are rotated as well",
    "You rotate the values, too. RoPE rotates only queries and keys.",
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
    """Your test always returns True. Call the candidate and compare its result with your own
    numbers.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test returns False even for a right answer. Check your tolerance and your return value."""
    return False


@checks("only the shape is compared")
def check_shape(candidate):
    """You compare only shapes. A cache that is never read has the right shape at every step."""
    parts = some_parts()
    return in_parts(candidate, parts, (5,)).shape == parts[2].shape


@checks("never a second call", fails=("plain", "mutants"))
def check_prompt_only(candidate):
    """You call the candidate once, without a cache. Faults of the cache show only at the second
    call.
    """
    parts = some_parts()
    got = in_parts(candidate, parts, (5,))
    return got.shape == parts[2].shape and bool(torch.allclose(got, step(*parts)[0], atol=1e-5))


@checks("compared with itself only", fails=("plain", "mutants"))
def check_itself(candidate):
    """You compare the candidate only with itself, all at once and token by token. A wrong one can
    agree with itself: compare with your own numbers, too.
    """
    try:
        parts = some_parts()
        one, many = (in_parts(candidate, parts, cuts) for cuts in ((5,), (1,) * 5))
    except Exception:
        return False
    return one.shape == many.shape and bool(torch.allclose(one, many, atol=1e-5))


@checks("one new token at a time", fails=("mutants",))
def check_singly(candidate):
    """You feed one token at a time. The mask among new tokens matters only when there are several."""
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
    """Your tokens are right, but each step recomputes the whole text. With the caches, only the new
    token passes through the blocks.""",
    fails=("text",),
    feed=lambda text, past: text,
)
whole.fault(
    "the position starts at 0 with every token",
    """From the second step on you rotate each token as if it were the first of the text. Its
    position is the number of tokens before it.""",
    fails=("text",),
    places=lambda past, new: torch.arange(new),
)
whole.fault(
    "no norm before the parts",
    """You apply no norm inside the blocks. Attention and the feed-forward part each read
    `normed(x)`.""",
    before=lambda x: x,
    ahead=lambda x, y: x,
)
whole.fault(
    "no norm before the attention",
    "Your attention reads the vectors without a norm. It should read `normed(x)`.",
    before=lambda x: x,
)
whole.fault(
    "no norm before the feed-forward part",
    "Your feed-forward part reads the vectors without a norm. It should read `normed(x)`.",
    ahead=lambda x, y: x,
)
whole.fault(
    "no norm before the logits",
    """You compute the logits from the last block's output without a norm. Apply `normed` before the
    output table.""",
    last=lambda x: x,
)
whole.fault(
    "the feed-forward part reads what the attention read",
    """Your feed-forward part reads the input of the attention. It should read the norm of the
    updated vectors.""",
    ahead=lambda x, y: y,
)
whole.fault(
    "the attention replaces its input",
    "You replace the vectors by the output of attention. A block adds it to its input.",
    first=lambda x, y: y,
)
whole.fault(
    "the feed-forward part replaces its input",
    "You replace the vectors by the output of the feed-forward part. A block adds it to its input.",
    second=lambda x, y: y,
)
whole.fault(
    "no SiLU",
    """You multiply the products with `gate` and `up` directly. Apply the SiLU to the product with
    `gate` first.""",
    bend=lambda gate, up: gate * up,
)
whole.fault(
    "gate and up exchanged",
    "You apply the SiLU to the product with `up`. Apply it to the product with `gate`.",
    bend=lambda gate, up: gate * torch.nn.functional.silu(up),
)
whole.fault(
    "the logits are made with the embedding",
    "You compute the logits with the embedding. This model has a separate `output_table`.",
    table="embedding",
)
whole.fault(
    "the logits of the first token",
    "You use the logits of the first new token. The next token follows the last one of the prompt.",
    which=lambda x: x[0],
)
whole.fault(
    "nothing is rotated",
    "You never call `rotate`. Queries and keys need their positions.",
    turn=lambda q, k, v, places: (q, k, v),
)
whole.fault(
    "only the keys are rotated",
    "You do not rotate the queries. Rotate queries and keys.",
    turn=lambda q, k, v, places: (q, apply_rope(k, places), v),
)
whole.fault(
    "only the queries are rotated",
    "You do not rotate the keys. Rotate queries and keys.",
    turn=lambda q, k, v, places: (apply_rope(q, places), k, v),
)
whole.fault(
    "the heads take their elements in turn",
    """You deal the elements out to the heads in turn. Head `h` has the adjacent elements `h * E` to
    `(h + 1) * E - 1`.""",
    deal=lambda x, heads: x.unflatten(-1, (-1, heads)).permute(2, 0, 1)[None],
)
whole.fault(
    "the values are rotated as well",
    "You rotate the values, too. RoPE rotates only queries and keys.",
    turn=lambda q, k, v, places: turned(q, k, apply_rope(v, places), places),
)
whole.fault(
    "one cache for all blocks",
    "Your blocks share one cache. Each block has its own keys and values.",
    slot=lambda i: 0,
)
whole.fault(
    "the prompt is returned as well",
    "Your result starts with the prompt. Return only the new tokens.",
    finish=lambda written, prompt: torch.cat([prompt, written]),
)
