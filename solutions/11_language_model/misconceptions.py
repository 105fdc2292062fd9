"""Wrong answers on the way to a model that writes: name, message, the tests they fail."""

import math

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses


def apply_rope(x, positions, base=10000.0):
    """RoPE of neighbouring entries, as the head of the set has it."""
    pairs = torch.arange(0, x.shape[-1], 2, dtype=torch.float64)
    angles = (positions[:, None] * base ** (-pairs / x.shape[-1])).to(x.dtype)
    one, other = x[..., 0::2], x[..., 1::2]
    turned = one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()
    return torch.stack(turned, dim=-1).flatten(-2)


def declare(answers, name, message, wrong, **which):
    """A wrong answer from an expression; the catalogue collects what the module binds."""
    wrong.__doc__ = message
    label = "".join(c if c.isalnum() else "_" for c in f"{answers.of}_{name}")
    wrong.__name__ = wrong.__qualname__ = label
    globals()[label] = answers(name, **which)(wrong)


# --- bits_per_character ------------------------------------------------------------------------

bits = WrongAnswers("bits_per_character", tests=("by_hand", "values", "padding", "large"))


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


def said(logits, targets, dim=-1):
    log_p = logits.log_softmax(dim).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return log_p[targets >= 0] / math.log(2)


declare(
    bits,
    "nats in place of bits",
    """You take the natural logarithm. A bit is a choice between two, and a probability of one half
    should cost exactly 1. Look at the base.""",
    lambda logits, targets: -said(logits, targets).mean() * math.log(2),
)
declare(
    bits,
    "the sum over the text",
    """You add the bits up and do not divide. A long text then seems worse than a short one; asked
    is the cost of one character.""",
    lambda logits, targets: -said(logits, targets).sum(),
)
declare(
    bits,
    "perplexity",
    """You return two to the power of the bits. That is the perplexity, among how many equal words
    the model seems to guess; asked are the bits themselves.""",
    lambda logits, targets: 2 ** -said(logits, targets).mean(),
)
declare(
    bits,
    "the sign is missing",
    """Your result is below 0. The logarithm of a probability is negative, and surprise should be
    positive: the smaller the probability, the larger.""",
    lambda logits, targets: said(logits, targets).mean(),
)
declare(
    bits,
    "the logarithm of the mean probability",
    """You average the probabilities and take one logarithm at the end. A text's probability is a
    product, so that logarithms are what must be averaged; one impossible character must hurt.""",
    lambda logits, targets: -(2 ** said(logits, targets)).mean().log2(),
)
declare(
    bits,
    "softmax over the places",
    """Your softmax runs over the places of the text. At one place the probabilities of all words
    sum to one; look at the axis.""",
    lambda logits, targets: -said(logits, targets, dim=-2).mean(),
)
declare(
    bits,
    "shifted once more",
    """You compare each guess with the target after it. The two are aligned already: the shift was
    made when the targets were cut out of the text.""",
    lambda logits, targets: -said(logits[:, :-1], targets[:, 1:]).mean(),
)
declare(
    bits,
    "padding is counted",
    """You divide by the number of places, padding included, so that a batch with much padding looks
    better than it is. Count the characters that are there.""",
    lambda logits, targets: -said(logits, targets).sum() / targets.numel(),
    fails=("padding",),
)
declare(
    bits,
    "padding is read as a word",
    """You look up the probability of the target -1, which Python takes for the last word. Padding
    is no word; leave these places out before you look up.""",
    lambda logits, targets: -said(logits, targets % logits.shape[-1]).mean(),
    fails=("padding",),
)
declare(
    bits,
    "the logarithm of a zero",
    """You make probabilities first and take the logarithm afterwards. A small probability has
    become 0 by then, and your result is infinite. One function does both at once.""",
    lambda logits, targets: (
        -said(logits.softmax(-1).log(), targets).mean()
        if logits.abs().max() < 80
        else torch.tensor(math.inf)
    ),
    fails=("large",),
)

# --- top_p -------------------------------------------------------------------------------------


def nucleus(logits, p, *, count=lambda sums, p: (sums < p).sum(-1, keepdim=True) + 1, largest=True):
    ordered, order = logits.softmax(-1).sort(-1, descending=largest)
    rank = torch.arange(logits.shape[-1]).expand_as(order)
    keep = torch.zeros_like(logits, dtype=torch.bool)
    keep.scatter_(-1, order, rank < count(ordered.cumsum(-1), p))
    return logits.masked_fill(~keep, -torch.inf)


top = WrongAnswers("top_p", tests=("by_hand", "values", "rows", "one"), right=nucleus)


@witnesses(of="top_p")
def top_calls(draw):
    for p in (0.05, 0.4, 0.75, 0.95):
        for shape in ((5,), (11,), (3, 7)):
            yield call(2 * draw.normal(*shape), p)
    yield call(draw.normal(2, 7) * torch.tensor([[8.0], [0.1]]), 0.75)


declare(
    top,
    "the word that reaches p goes",
    """You stop before the word with which the sum reaches p, so that what stays sums to less than p,
    and for a small p nothing stays. That word belongs to the set.""",
    lambda logits, p: nucleus(logits, p, count=lambda sums, p: (sums < p).sum(-1, keepdim=True)),
)
declare(
    top,
    "one word too many",
    """You keep one word more than is needed: the sum has reached p before it. Look at what you
    compare with p, the sum with a word or the sum before it.""",
    lambda logits, p: nucleus(
        logits, p, count=lambda sums, p: (sums < p).sum(-1, keepdim=True) + 2
    ),
)
declare(
    top,
    "the unlikeliest are kept",
    """You add up from the smallest probability, so that the tail stays and the likely words go. Look
    at the order of your sort.""",
    lambda logits, p: nucleus(logits, p, largest=False),
)
declare(
    top,
    "each probability against p",
    """You keep the words whose own probability is at least p. For most p there is none. Asked is
    how many of the likeliest are needed to reach p together.""",
    lambda logits, p: logits.masked_fill(logits.softmax(-1) < p, -torch.inf),
)
declare(
    top,
    "a share of the likeliest",
    """You keep words that are at least p times as likely as the likeliest. That is min-p, another
    filter; here probabilities are added up until they reach p.""",
    lambda logits, p: logits.masked_fill(
        logits < logits.amax(-1, keepdim=True) + math.log(p), -torch.inf
    ),
)
declare(
    top,
    "a share of the words",
    """You keep the share p of all words, however probable they are. That is a top-k: a sure model
    and an unsure one keep equally many. Add up probabilities, not words.""",
    lambda logits, p: nucleus(
        logits, p, count=lambda sums, p: max(1, math.ceil(p * sums.shape[-1]))
    ),
    but=("one",),
)
declare(
    top,
    "logits that are cut become 0",
    """You give the words that go the logit 0. Its exponential is 1, so they can still be drawn,
    some more often than before. Which logit has the probability 0?""",
    lambda logits, p: nucleus(logits, p).nan_to_num(neginf=0.0),
)
declare(
    top,
    "in the order of the sort",
    """You return the logits in the order of their size. Whoever draws from them gets a place in that
    order and takes it for the id of a word. Put every logit back to where it was.""",
    lambda logits, p: nucleus(logits, p).sort(-1, descending=True).values,
)
declare(
    top,
    "probabilities are returned",
    """You return probabilities. Filters are applied one after the other, and each expects logits;
    a softmax of probabilities would be nearly flat.""",
    lambda logits, p: nucleus(logits, p).softmax(-1),
)
declare(
    top,
    "the first row's number for all",
    """Every row keeps as many words as the first one. Where the first is sure and the second is not,
    that is far too few. Each row has a set of its own.""",
    lambda logits, p: nucleus(
        logits,
        p,
        count=lambda sums, p: (sums.reshape(-1, sums.shape[-1])[0] < p).sum() + 1,
    ),
    fails=("rows",),
)

# --- sample_next -------------------------------------------------------------------------------


def cut(logits, k, fill=-torch.inf):
    if k is None or k >= len(logits):
        return logits
    return logits.masked_fill(logits < logits.sort().values[-k], fill)


def drawn(parts, uniform):
    below = int((parts.double().cumsum(0) <= uniform).sum())
    return min(below, int(parts.nonzero()[-1]))


def drawing(logits, uniform, temperature=1.0, k=None):
    return drawn(cut(logits / temperature, k).softmax(-1), uniform)


sample = WrongAnswers("sample_next", tests=("by_hand", "temperature", "top_k"), right=drawing)


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


declare(
    sample,
    "always the likeliest",
    """You take the likeliest word and never look at the random number. A model that does so repeats
    itself soon; every word should come as often as its probability says.""",
    lambda logits, uniform, temperature=1.0, k=None: int(logits.argmax()),
)
declare(
    sample,
    "the place in the sorted order",
    """You sort the words by probability, walk through them, and return the place in that order. It
    is not the id of a word. Walk in the order of the ids.""",
    lambda logits, uniform, temperature=1.0, k=None: drawn(
        cut(logits / temperature, k).softmax(-1).sort(descending=True).values, uniform
    ),
)
declare(
    sample,
    "one word too early",
    """You return the last word whose sum does not exceed the random number, one before the word that
    is asked for. Try a random number of almost 0: it must give the first word.""",
    lambda logits, uniform, temperature=1.0, k=None: max(
        drawing(logits, uniform, temperature, k) - 1, 0
    ),
)
declare(
    sample,
    "each probability against the random number",
    """You take the first word whose own probability exceeds the random number. For large numbers
    there is none. Probabilities must be added up on the way.""",
    lambda logits, uniform, temperature=1.0, k=None: int(
        (cut(logits / temperature, k).softmax(-1) > uniform).long().argmax()
    ),
)
declare(
    sample,
    "multiplied by the temperature",
    """You multiply the logits by the temperature. A cold model should be sharp and a hot one flat;
    yours is the other way round.""",
    lambda logits, uniform, temperature=1.0, k=None: drawing(logits, uniform, 1 / temperature, k),
    fails=("temperature",),
)
declare(
    sample,
    "the temperature is ignored",
    """The temperature never enters your numbers. Divide the logits by it before you make
    probabilities.""",
    lambda logits, uniform, temperature=1.0, k=None: drawing(logits, uniform, 1.0, k),
    fails=("temperature",),
)
declare(
    sample,
    "the temperature comes after the softmax",
    """You divide the probabilities by the temperature. They no longer sum to one, and their ratios
    have not changed. It belongs to the logits.""",
    lambda logits, uniform, temperature=1.0, k=None: drawn(
        cut(logits, k).softmax(-1) / temperature, uniform
    ),
    fails=("temperature",),
)
declare(
    sample,
    "k is ignored",
    """You draw from all words although only k should be left. Look at where k enters your
    function.""",
    lambda logits, uniform, temperature=1.0, k=None: drawing(logits, uniform, temperature),
    fails=("top_k",),
)
declare(
    sample,
    "the k smallest are kept",
    """You keep the k unlikeliest words and drop the others. Look at which end of the sorted logits
    you cut.""",
    lambda logits, uniform, temperature=1.0, k=None: drawn(
        (-cut(-logits / temperature, k, torch.inf)).softmax(-1), uniform
    ),
    fails=("top_k",),
)
declare(
    sample,
    "words that are cut keep the logit 0",
    """You set the logits of dropped words to 0. The exponential of 0 is 1, so they can still be
    drawn. Only minus infinity has the probability 0.""",
    lambda logits, uniform, temperature=1.0, k=None: drawn(
        cut(logits / temperature, k, 0.0).softmax(-1), uniform
    ),
    fails=("top_k",),
)

# --- cached_attention --------------------------------------------------------------------------


def allow(new, total, shift=None):
    return torch.ones(new, total, dtype=torch.bool).tril(total - new if shift is None else shift)


def step(
    query, key, value, cache=None, *, join=None, mask=allow, scale=None, dim=-1, keep=None
):  # fmt: skip
    old = (key[..., :0, :], value[..., :0, :]) if cache is None else cache
    join = join or (lambda old, new: torch.cat([old, new], dim=-2))
    keys, values = join(old[0], key), join(old[1], value)
    divisor = query.shape[-1] ** 0.5 if scale is None else scale(keys)
    scores = query @ keys.transpose(-2, -1) / divisor
    scores = scores.masked_fill(~mask(query.shape[-2], keys.shape[-2]), -torch.inf)
    output = scores.softmax(dim).nan_to_num(0.0) @ values
    return (
        (output, (keys, values)) if keep is None else keep(output, keys, values, key, value, cache)
    )


cached = WrongAnswers("cached_attention", tests=("by_hand", "first", "one", "several"), right=step)
LATER = ("by_hand", "one", "several")


@witnesses(of="cached_attention")
def cached_calls(draw):
    for batch, heads, past, new, size in ((1, 2, 5, 1, 4), (2, 3, 4, 3, 5), (1, 1, 2, 2, 2)):
        held = draw.normal(batch, heads, past, size), draw.normal(batch, heads, past, 3)
        parts = [draw.normal(batch, heads, new, n) for n in (size, size, 3)]
        yield call(*parts, held)
        yield call(*parts)


declare(
    cached,
    "the cache is not looked at",
    """Your new tokens see the new tokens only; the cache is handed on and never read. What the model
    knows about the text is in there.""",
    lambda query, key, value, cache=None: (
        step(query, key, value)[0],
        step(query, key, value, cache)[1],
    ),
    fails=LATER,
)
declare(
    cached,
    "only the new ones are kept",
    """You return the keys and values of the new tokens as the cache. At the next step everything
    before them is forgotten.""",
    lambda query, key, value, cache=None: step(
        query, key, value, cache, keep=lambda o, ks, vs, k, v, c: (o, (k, v))
    ),
    fails=LATER,
)
declare(
    cached,
    "the old cache is returned",
    """You return the cache as you got it. The next token will not see these; their keys and values
    have to be in it.""",
    lambda query, key, value, cache=None: step(
        query, key, value, cache, keep=lambda o, ks, vs, k, v, c: (o, c)
    ),
)
declare(
    cached,
    "new keys stand before the old ones",
    """You put the new keys and values in front. The mask and the next step count on the oldest
    coming first.""",
    lambda query, key, value, cache=None: step(
        query, key, value, cache, join=lambda old, new: torch.cat([new, old], dim=-2)
    ),
    fails=LATER,
)
declare(
    cached,
    "no mask among the new tokens",
    """Of several new tokens the first sees the last. With one new token nothing happens; with a
    prompt your model reads the future.""",
    lambda query, key, value, cache=None: step(
        query, key, value, cache, mask=lambda n, s: allow(n, s, s)
    ),
    fails=("first", "several"),
)
declare(
    cached,
    "the mask counts from the top left",
    """Your mask gives the first new token the first key only, as torch's `is_causal` does. The new
    tokens stand at the end of the text: the mask has to start there.""",
    lambda query, key, value, cache=None: step(
        query, key, value, cache, mask=lambda n, s: allow(n, s, 0)
    ),
    fails=LATER,
)
declare(
    cached,
    "a new token does not see itself",
    """Each new token sees everything before it, but not itself. Its own key and value belong to the
    look. Check the diagonal of your mask.""",
    lambda query, key, value, cache=None: step(
        query, key, value, cache, mask=lambda n, s: allow(n, s, s - n - 1)
    ),
)
declare(
    cached,
    "no scale",
    """You compare by the plain product. The division by the root of the number of entries stays,
    cache or no cache.""",
    lambda query, key, value, cache=None: step(query, key, value, cache, scale=lambda keys: 1.0),
)
declare(
    cached,
    "divided by the root of the number of keys",
    """You divide by the root of the number of keys. It grows with every word that is written; a
    product is a sum over the entries of a key.""",
    lambda query, key, value, cache=None: step(
        query, key, value, cache, scale=lambda keys: keys.shape[-2] ** 0.5
    ),
)
declare(
    cached,
    "softmax over the queries",
    """Your softmax runs over the new queries. With one new token every weight is 1. It must run over
    the keys.""",
    lambda query, key, value, cache=None: step(query, key, value, cache, dim=-2),
)
declare(
    cached,
    "keys and values change places in the cache",
    """You return the values first and the keys second. At the next step the one is taken for the
    other.""",
    lambda query, key, value, cache=None: step(
        query, key, value, cache, keep=lambda o, ks, vs, k, v, c: (o, (vs, ks))
    ),
)
declare(
    cached,
    "the output alone",
    """You return the output and no cache. The next step has nothing to start from: what was
    computed here would be computed again.""",
    lambda query, key, value, cache=None: step(query, key, value, cache)[0],
)

# --- grouped_query_attention -------------------------------------------------------------------


def spread(x, heads):
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def look(query, key, value, scale=None, dim=-1):
    scores = query @ key.mT / (query.shape[-1] ** 0.5 if scale is None else scale)
    return scores.softmax(dim) @ value


def shared(query, key, value, *, keys=spread, values=spread, **more):
    heads = query.shape[1]
    return look(query, keys(key, heads), values(value, heads), **more)


def in_turn(x, heads):
    return x.repeat(1, heads // x.shape[1], 1, 1)


def first_only(x, heads):
    return x[:, :1].expand(-1, heads, -1, -1)


def averaged(x, heads):
    return x.mean(1, keepdim=True).expand(-1, heads, -1, -1)


grouped = WrongAnswers(
    "grouped_query_attention",
    tests=("by_hand", "values", "one", "same", "gradient"),
    right=shared,
)
GROUPS = ("by_hand", "values", "gradient")


@witnesses(of="grouped_query_attention")
def grouped_calls(draw):
    for heads, groups, length in ((4, 2, 1), (6, 2, 3), (6, 3, 5), (3, 1, 2), (3, 3, 3)):
        parts = [draw.normal(2, heads, length, 4), draw.normal(2, groups, 5, 4)]
        parts.append(draw.normal(2, groups, 5, 3))
        yield call(*parts)
        for wrt in range(3):
            yield call(*parts, via=student.grad(wrt))


declare(
    grouped,
    "heads dealt in turn",
    """You deal the heads of keys out in turn: 0, 1, 0, 1. Neighbours should share one: 0, 0, 1, 1.
    Trained weights are stored for the second, and a model loaded into the first writes nonsense.""",
    lambda query, key, value: shared(query, key, value, keys=in_turn, values=in_turn),
    fails=GROUPS,
)
declare(
    grouped,
    "values dealt in turn",
    """Keys are shared by neighbours, values are dealt in turn. A head then looks with one head's keys
    and takes what another one offers.""",
    lambda query, key, value: shared(query, key, value, values=in_turn),
    fails=GROUPS,
)
declare(
    grouped,
    "all use the first",
    """All heads of queries use head 0 of the keys and values. The other heads are never read.""",
    lambda query, key, value: shared(query, key, value, keys=first_only, values=first_only),
    but=("one",),
)
declare(
    grouped,
    "the mean of all keys and values",
    """You average the heads of keys and values and give everybody the mean. Each group has a head of
    its own.""",
    lambda query, key, value: shared(query, key, value, keys=averaged, values=averaged),
    but=("one",),
)
declare(
    grouped,
    "the queries of a group are averaged",
    """You average the queries of a group before they look. Then the heads of a group all find the
    same: only keys and values are shared, every head asks for itself.""",
    lambda query, key, value: shared(
        spread(query.unflatten(1, (key.shape[1], -1)).mean(2), query.shape[1]), key, value
    ),
    but=("same",),
)
declare(
    grouped,
    "one output per group",
    """Your result has one head per group. Sharing keys does not make fewer heads: each head of
    queries has an output of its own.""",
    lambda query, key, value: shared(query, key, value).unflatten(1, (key.shape[1], -1)).mean(2),
    but=("same",),
)
declare(
    grouped,
    "no scale",
    """You compare by the plain product. The division by the root of the number of entries stays
    when heads are shared.""",
    lambda query, key, value: shared(query, key, value, scale=1.0),
    but=("by_hand",),
)
declare(
    grouped,
    "softmax over the queries",
    """Your softmax runs over the queries. Check along which axis the weights sum to one.""",
    lambda query, key, value: shared(query, key, value, dim=-2),
)
grouped.detached()

# --- latent_attention --------------------------------------------------------------------------


def absorbed(query, latent, key_up, value_up, *, scale=None, dim=-1, up=None):
    short = query @ key_up
    divisor = query.shape[-1] ** 0.5 if scale is None else scale
    scores = short @ latent.unsqueeze(1).mT / divisor
    mixed = scores.softmax(dim) @ latent.unsqueeze(1)
    return mixed @ value_up.mT if up is None else up(mixed, value_up)


latent = WrongAnswers(
    "latent_attention", tests=("by_hand", "values", "memory", "gradient"), right=absorbed
)


@witnesses(of="latent_attention")
def latent_calls(draw):
    for heads, new, rank in ((1, 1, 2), (3, 2, 4), (2, 5, 3)):
        parts = [draw.normal(2, heads, new, 5), draw.normal(2, 7, rank)]
        parts += [draw.normal(heads, 5, rank), draw.normal(heads, 6, rank)]
        yield call(*parts)
        for wrt in range(4):
            yield call(*parts, via=student.grad(wrt))


declare(
    latent,
    "keys and values are built",
    """Your numbers are right, but the keys and values of all heads stand in memory: that is what the
    latent vector should save. Which factor of the product could be moved to the query?""",
    lambda query, latent, key_up, value_up: look(
        query, latent.unsqueeze(1) @ key_up.mT, latent.unsqueeze(1) @ value_up.mT
    ),
    fails=("memory",),
)
declare(
    latent,
    "divided by the root of the latent's size",
    """You divide by the root of the size of the latent vector. The score is still the product of a
    query and a key with E entries, computed in another order.""",
    lambda query, latent, key_up, value_up: absorbed(
        query, latent, key_up, value_up, scale=latent.shape[-1] ** 0.5
    ),
    but=("memory",),
)
declare(
    latent,
    "no scale",
    """You compare by the plain product. The division by the root of the number of entries of a query
    stays.""",
    lambda query, latent, key_up, value_up: absorbed(query, latent, key_up, value_up, scale=1.0),
    but=("memory",),
)
declare(
    latent,
    "the latent vectors are the values",
    """You return the sum of the latent vectors. They still have to become values, by the matrix of
    each head.""",
    lambda query, latent, key_up, value_up: absorbed(
        query, latent, key_up, value_up, up=lambda mixed, up: mixed
    ),
    but=("memory",),
)
declare(
    latent,
    "values made by the keys' matrix",
    """You bring the sum up with the matrix that makes keys. Keys and values come from the same
    vector, by two matrices.""",
    lambda query, latent, key_up, value_up: absorbed(
        query, latent, key_up, value_up, up=lambda mixed, up: mixed @ key_up.mT
    ),
    but=("memory",),
)
declare(
    latent,
    "one head's matrices for all",
    """All heads use the matrices of head 0. The latent vector is shared, the way up is not: each
    head has its own.""",
    lambda query, latent, key_up, value_up: absorbed(query, latent, key_up[:1], value_up[:1]),
    fails=("values", "gradient"),
)
declare(
    latent,
    "softmax over the queries",
    """Your softmax runs over the queries. Check along which axis the weights sum to one.""",
    lambda query, latent, key_up, value_up: absorbed(query, latent, key_up, value_up, dim=-2),
    but=("memory",),
)
latent.detached()

# --- speculative_accept ------------------------------------------------------------------------


def accepting(
    target,
    draft,
    words,
    uniforms,
    *,
    take=lambda u, p, q: u * q < p,
    left=lambda p, q: (p - q).clamp(min=0),
    draw=lambda rest, u: drawn(rest / rest.sum(), u),
    bonus=True,
    stop=True,
):
    written = []
    for i, word in enumerate(words.tolist()):
        if take(float(uniforms[i]), float(target[i, word]), float(draft[i, word])):
            written.append(word)
            continue
        written.append(draw(left(target[i], draft[i]), float(uniforms[-1])))
        if stop:
            return torch.tensor(written)
    if bonus:
        written.append(draw(target[-1], float(uniforms[-1])))
    return torch.tensor(written, dtype=torch.long)


accept = WrongAnswers(
    "speculative_accept", tests=("by_hand", "accepted", "refused"), right=accepting
)


@witnesses(of="speculative_accept")
def accept_calls(draw):
    for _ in range(12):
        target = (1.5 * draw.normal(4, 5)).softmax(-1)
        draft = (1.5 * draw.normal(3, 5)).softmax(-1)
        yield call(target, draft, draw.integers(0, 5, 3), draw.uniform(4))
        yield call(target, draft, target[:3].argmax(-1), 0.1 * draw.uniform(4))
        yield call(target, draft, draft.argmax(-1), 1 - 0.1 * draw.uniform(4))


def variation(name, message, fails=None, but=(), **change):
    def wrong(target, draft, words, uniforms):
        return accepting(target, draft, words, uniforms, **change)

    declare(accept, name, message, wrong, fails=fails, but=but)


variation(
    "only what the target likes better",
    """You accept a word only if the target gives it at least the draft's probability. The others must
    have a chance too, the ratio; otherwise they come too rarely.""",
    take=lambda u, p, q: p >= q,
    fails=("accepted",),
)
variation(
    "the ratio turned round",
    """You divide the draft's probability by the target's. Words that the draft likes too much would
    always stay, and those that it likes too little would go.""",
    take=lambda u, p, q: u * p < q,
    fails=("by_hand", "accepted", "refused"),
)
variation(
    "accepted by the target alone",
    """You accept with the probability that the target gives to the word. The draft has made it come
    with probability q already; dividing by it is what corrects that.""",
    take=lambda u, p, q: u < p,
    fails=("by_hand", "accepted", "refused"),
)
variation(
    "everything is accepted",
    """You keep whatever the draft has written. That is sampling from the draft: fast, and another
    distribution.""",
    take=lambda u, p, q: True,
    fails=("by_hand", "refused"),
)
variation(
    "redrawn from the target",
    """After a refusal you draw from the whole target. Words that the draft proposes often have had
    their share by then and would come too often. What is still owed to each word?""",
    left=lambda p, q: p,
    fails=("by_hand", "refused"),
)
variation(
    "redrawn from the draft",
    """After a refusal you draw from the draft, the model that has just been corrected. Draw from what
    the target has more than the draft.""",
    left=lambda p, q: q,
    fails=("by_hand", "refused"),
)
variation(
    "the size of the difference",
    """After a refusal you draw from the absolute difference. Where the draft has too much, nothing is
    owed: only the positive part counts.""",
    left=lambda p, q: (p - q).abs(),
    fails=("by_hand", "refused"),
)
variation(
    "what is left is not scaled to one",
    """You draw from the positive part of the difference as it is. It sums to less than one, so that
    large random numbers all fall on the last word. Divide by the sum first.""",
    draw=lambda rest, u: drawn(rest, u),
    fails=("refused",),
)
variation(
    "the likeliest of what is left",
    """After the drafts you take the likeliest word. Draw it: the result must have the target's
    distribution, not its favourite.""",
    draw=lambda rest, u: int(rest.argmax()),
    fails=("accepted", "refused"),
)
variation(
    "on after a refusal",
    """You go on with the next drafted word after a refusal. It was written for another beginning of
    the text; everything after a refusal must go.""",
    stop=False,
    fails=("by_hand", "refused"),
)
variation(
    "no word of the target's own",
    """When all words are accepted you return them and nothing more. The target's run has paid for one
    word more: the last row is there for it.""",
    bonus=False,
    fails=("accepted",),
)

# --- the repair --------------------------------------------------------------------------------


def one_step(
    x, weight_query, weight_key, weight_value, cache_key, cache_value, *, places, shift, turn=None
):  # fmt: skip
    past, new = len(cache_key), len(x)
    positions = places(past, new)
    query, key = (apply_rope(x @ w.T, positions) for w in (weight_query, weight_key))
    keys = torch.cat([cache_key, key])
    values = torch.cat([cache_value, x @ weight_value.T])
    if turn is not None:
        keys = turn(keys, cache_key, x @ weight_key.T)
    scores = query @ keys.T / query.shape[-1] ** 0.5
    allowed = allow(new, past + new, shift(past, new))
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ values, keys, values


def right_places(past, new):
    return past + torch.arange(new)


fixed = WrongAnswers("fixed_step", tests=("prompt", "one", "several"))


@witnesses(of="fixed_step")
def fixed_calls(draw):
    for past, new in ((0, 3), (4, 1), (5, 3), (1, 2)):
        parts = [draw.normal(4, 5) for _ in range(3)]
        yield call(draw.normal(new, 5), *parts, draw.normal(past, 4), draw.normal(past, 4))


def repair(name, message, *, fails=("one", "several"), **change):
    settings = {"places": right_places, "shift": lambda past, new: past} | change

    def wrong(x, weight_query, weight_key, weight_value, cache_key, cache_value):
        inputs = x, weight_query, weight_key, weight_value, cache_key, cache_value
        return one_step(*inputs, **settings)

    declare(fixed, name, message, wrong, fails=fails)


repair(
    "both faults are still there",
    """This is the broken code as it stands. Feed it three tokens at once and then one by one, and
    compare: which numbers of a new token do not know how long the text is already?""",
    places=lambda past, new: torch.arange(new),
    shift=lambda past, new: 0,
)
repair(
    "the position still starts at 0",
    """The mask is right now. But each new token is turned as if it were the first of the text, so
    that every distance to the cached keys is wrong.""",
    places=lambda past, new: torch.arange(new),
)
repair(
    "the mask still counts from the top left",
    """The positions are right now. But a new token sees the first keys of the text only; write the
    mask down for four cached keys and one new token.""",
    shift=lambda past, new: 0,
)
repair(
    "the mask is gone",
    """You took the mask out. With one new token nothing is lost; with several the first sees the
    last.""",
    shift=lambda past, new: past + new,
    fails=("prompt", "several"),
)
repair(
    "cached keys are turned again",
    """You turn the whole list of keys. Those of the cache have been turned already, and each step
    turns them further.""",
    turn=lambda keys, old, new: apply_rope(torch.cat([old, new]), torch.arange(len(keys))),
)
repair(
    "one position too far",
    """Your new tokens stand one place too far on: with T tokens in the cache, at the positions 0 to
    T - 1, the next one stands at T.""",
    places=lambda past, new: past + 1 + torch.arange(new),
    fails=("prompt", "one", "several"),
)

# --- the test ----------------------------------------------------------------------------------

checks = WrongAnswers("check_cached_attention", tests=("plain", "mutants"))


@witnesses(of="check_cached_attention")
def check_calls(draw):
    for candidate in (
        step,
        lambda query, key, value, cache=None: (0 * value, (key, value)),
        lambda query, key, value, cache=None: step(query, key, value),
        lambda query, key, value, cache=None: step(
            query, key, value, cache, mask=lambda n, s: allow(n, s, s)
        ),
        lambda query, key, value, cache=None: step(query, key, value, cache, scale=lambda k: 1.0),
        lambda *inputs: 1 / 0,
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
    """Your test says True whatever it is given, so that no wrong answer is caught. Call the
    candidate and compare what comes back with numbers of your own.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test says False even for a right answer. Look at whether you leave room for rounding, and
    at what you return in the end.
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
    """You compare the candidate's answer in one piece with its answer token by token. A wrong one can
    agree with itself: always 0, or every key unscaled. Have a number of your own as well.
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


def writing(
    parameters,
    prompt,
    uniforms,
    attention,
    choose,
    *,
    places=lambda past, new: past + torch.arange(new),
    before=norm,
    last=norm,
    residual=True,
    which=-1,
    again=False,
    deal=lambda x, heads: x.unflatten(-1, (heads, -1)).transpose(0, 1)[None],
):  # fmt: skip
    table, heads = parameters["embedding"], parameters["num_heads"]
    caches = [None] * len(parameters["blocks"])
    text, past, rows = prompt.tolist(), 0, []
    for uniform in uniforms.tolist():
        if again:
            past, caches = 0, [None] * len(caches)
        new = text[past:]
        x, positions = table[new], places(past, len(new))
        for i, block in enumerate(parameters["blocks"]):
            y = before(x)
            q, k, v = (deal(y @ block[name].T, heads) for name in ("query", "key", "value"))
            q, k = apply_rope(q, positions), apply_rope(k, positions)
            found, caches[i] = attention(q, k, v, caches[i])
            mixed = found[0].transpose(0, 1).flatten(1)
            x = (x if residual else 0) + mixed @ block["output"].T
            x = x + (before(x) @ block["up"].T).relu() @ block["down"].T
        rows.append(last(x[which]) @ table.T)
        past = len(text)
        text.append(choose(rows[-1], uniform))
    return torch.tensor(text[len(prompt) :]), torch.stack(rows)


whole = WrongAnswers("generate", tests=("one", "text"), right=writing)


def kept_short(query, key, value, cache=None):
    if query.shape[-2] > 3:
        raise ValueError("more new tokens at once than the prompt has: some are computed again")
    return step(query, key, value, cache)


@witnesses(of="generate")
def generate_calls(draw):
    for heads, blocks, count in ((2, 2, 1), (2, 2, 5), (1, 1, 4)):
        shapes = dict.fromkeys(("query", "key", "value"), (heads * 4, 6))
        shapes |= {"output": (6, heads * 4), "up": (5, 6), "down": (6, 5)}
        tables = [
            {name: 0.5 * draw.normal(*s) for name, s in shapes.items()} for _ in range(blocks)
        ]
        parameters = {"embedding": draw.normal(7, 6), "num_heads": heads, "blocks": tables}
        given = parameters, torch.tensor([1, 4, 2]), 0.05 + 0.9 * draw.uniform(count)
        yield call(*given, kept_short, drawing)


def machine(name, message, *, fails=None, **change):
    def wrong(parameters, prompt, uniforms, attention, choose):
        return writing(parameters, prompt, uniforms, attention, choose, **change)

    declare(whole, name, message, wrong, fails=fails)


machine(
    "everything is computed again",
    """Your words are right, but for each of them the whole text goes through the blocks again. With
    the caches only the newest word has to.""",
    again=True,
    fails=("text",),
)
machine(
    "the position starts at 0 with every word",
    """From the second word on each new token is turned as if it were the first of the text. Its
    position is the number of tokens before it.""",
    places=lambda past, new: torch.arange(new),
    fails=("text",),
)
machine(
    "no norm before the parts",
    """You feed attention and the feed-forward part with the vectors as they are. Each of them reads
    what the norm makes of its input.""",
    before=lambda x: x,
)
machine(
    "no norm before the logits",
    """You make logits of the last block's output as it is. Its size has grown from block to block; one
    more norm stands before the embedding.""",
    last=lambda x: x,
)
machine(
    "what attention found replaces the input",
    """You replace the vectors by what attention found. A block adds to its input: whoever finds
    nothing useful must be able to stay as it was.""",
    residual=False,
)
machine(
    "the logits of the first token",
    """You take the logits of the first of the new tokens. The next word follows the last one of the
    prompt; after the prompt there is only one, so that nothing is noticed later.""",
    which=0,
)
machine(
    "heads cut across",
    """You cut the features into heads across: feature i goes to head i modulo H. Each head has rows
    that stand together. Look at the order of the two sizes when you split.""",
    deal=lambda x, heads: x.unflatten(-1, (-1, heads)).permute(2, 0, 1)[None],
)
