"""Wrong answers on the way to looking inside a model: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses


def causal(scores):
    length = scores.shape[-1]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1)


# --- previous_token_score ----------------------------------------------------------------------


def diagonal(weights, offset):
    return weights.diagonal(offset=offset, dim1=-2, dim2=-1)


def right_previous(weights):
    return diagonal(weights, -1).mean(-1)


previous = WrongAnswers(
    "previous_token_score", tests=("by_hand", "heads", "gradient"), right=right_previous
)


@witnesses(of="previous_token_score")
def previous_calls(draw):
    for shape in ((1, 3, 3), (2, 5, 5), (3, 2, 4, 4), (4, 4, 4), (2, 2)):
        yield call(draw.normal(*shape).softmax(-1))
        yield call(causal(draw.normal(*shape)), via=student.grad(0))


@previous("the token itself")
def previous_self(weights):
    """You read the main diagonal: what each position gives to itself. The token before stands one
    column further to the left.
    """
    return diagonal(weights, 0).mean(-1)


@previous("the token after")
def previous_next(weights):
    """You read the diagonal above the main one: what each position gives to the *next* token. In a
    causal head all of it is 0. Rows ask, columns answer.
    """
    return diagonal(weights, 1).mean(-1)


@previous("divided by all positions")
def previous_all(weights):
    """You divide by the number of positions. The first position has no token before it and does not
    take part in the mean.
    """
    return diagonal(weights, -1).sum(-1) / weights.shape[-1]


@previous("summed, not averaged")
def previous_sum(weights):
    """You add the weights up. A longer text would give a higher score to the same head: the score is
    a mean over the positions that have a token before them.
    """
    return diagonal(weights, -1).sum(-1)


@previous("one number for all heads")
def previous_mixed(weights):
    """You average over the heads as well. The score is there to tell heads apart: keep the leading
    axes.
    """
    return right_previous(weights).mean()


@previous("how often it is the largest")
def previous_largest(weights):
    """You count how often the token before gets the largest weight. That is another score, and it has
    no gradient; asked is the mean weight itself.
    """
    places = torch.arange(weights.shape[-1] - 1)
    return (weights[..., 1:, :].argmax(-1) == places).to(weights.dtype).mean(-1)


@previous("the two tokens before", fails=("heads", "gradient", "by_hand"))
def previous_two(weights):
    """You count what goes to the last two tokens, or to the one two places back. Only the neighbour
    to the left counts.
    """
    return diagonal(weights, -2).sum(-1) / (weights.shape[-1] - 1)


previous.detached(fails=("heads", "gradient"))


# --- induction_score ---------------------------------------------------------------------------


def same_before(tokens):
    return (tokens[:, None] == tokens[None, :]).tril(-1)


def moved(marks, by=1):
    after = torch.zeros_like(marks)
    after[:, by:] = marks[:, :-by]
    return after


def repeats(tokens):
    return same_before(tokens).any(-1).sum().clamp(min=1)


def score(weights, tokens, *, marks=None, count=repeats):
    """The right answer in two steps; a fault replaces one of them."""
    chosen = moved(same_before(tokens)) if marks is None else marks(tokens)
    return (weights * chosen).sum((-2, -1)) / count(tokens)


induction = WrongAnswers(
    "induction_score", tests=("by_hand", "texts", "no_repeat", "gradient"), right=score
)
TEXTS = (
    [5, 7, 5],
    [4, 1, 3, 4, 1, 3],
    [2, 2, 1, 2, 0],
    [1, 2, 1, 3, 1, 2],
    [0, 1, 2, 3],
    [3, 3, 3],
)


@witnesses(of="induction_score")
def induction_calls(draw):
    for text in TEXTS:
        tokens = torch.tensor(text)
        scores = draw.normal(3, len(text), len(text))
        yield call(causal(scores), tokens)
        yield call(scores.softmax(-1), tokens)
        if len(set(text)) < len(text):
            yield call(causal(scores), tokens, via=student.grad(0))
    yield call(draw.normal(4, 4, 4).softmax(-1), torch.tensor([2, 5, 2, 5]))


def induces(name, message, *, fails=None, but=(), **step):
    def wrong(weights, tokens):
        return score(weights, tokens, **step)

    wrong.__doc__ = message
    wrong.__name__ = "induction_" + "".join(c if c.isalnum() else "_" for c in name)
    globals()[wrong.__name__] = induction(name, fails=fails, but=but)(wrong)


def latest(tokens):
    marks = moved(same_before(tokens))
    return marks & (marks.flip(-1).cumsum(-1).flip(-1) == 1)


def first_one(tokens):
    marks = moved(same_before(tokens))
    return marks & (marks.cumsum(-1) == 1)


induces(
    "the earlier copy itself",
    """You count what goes to the earlier copy of the token. That is a head that looks for itself; an
    induction head looks one place further on, at what followed the copy.""",
    marks=same_before,
    but=("no_repeat",),
)
induces(
    "what stood before the earlier copy",
    """You count what goes to the place *before* the earlier copy. Induction repeats what came after
    it: move the marks the other way.""",
    marks=lambda tokens: same_before(tokens).roll(-1, -1),
    but=("no_repeat",),
)
induces(
    "divided by all positions",
    """You divide by the number of positions in the text. Positions whose token is new cannot do
    induction, and do not take part in the mean.""",
    count=len,
    but=("no_repeat",),
)
induces(
    "divided by the number of pairs",
    """You divide by the number of pairs of equal tokens. A token that has stood three times before
    is still one position: count positions, not pairs.""",
    count=lambda tokens: same_before(tokens).sum().clamp(min=1),
    fails=("texts", "gradient"),
)
induces(
    "only the latest copy",
    """You count only what followed the latest copy. A head that looks after an older copy does
    induction as well: the weights after all of them count.""",
    marks=latest,
    fails=("texts", "gradient"),
)
induces(
    "only the first copy",
    """You count only what followed the first copy. The weights after all earlier copies count
    together.""",
    marks=first_one,
    fails=("texts", "gradient"),
)
induces(
    "later copies count too",
    """You also count what follows *later* copies of the token. In weights that are not causal these
    places hold something, but nothing that comes later can be repeated.""",
    marks=lambda tokens: moved(
        (tokens[:, None] == tokens[None, :]) & ~torch.eye(len(tokens), dtype=torch.bool)
    ),
    fails=("texts", "gradient"),
)
induces(
    "NaN where nothing comes twice",
    """In a text in which no token comes twice you divide 0 by 0. The score of such a text is said to
    be 0.""",
    count=lambda tokens: same_before(tokens).any(-1).sum(),
    fails=("no_repeat", "texts"),
)
induces(
    "summed, not averaged",
    """You add up the weights of all positions. A head would score higher on a longer text; divide by
    the number of positions whose token has stood before.""",
    count=lambda tokens: 1,
    fails=("texts", "gradient"),
)


@induction("one number for all heads", but=("by_hand", "no_repeat"))
def induction_mixed(weights, tokens):
    """You average over the heads. The score is there to find *which* head does induction: one number
    for each.
    """
    return score(weights, tokens).mean(0, keepdim=True)


@induction("rows and columns exchanged", but=("no_repeat",))
def induction_transposed(weights, tokens):
    """You take keys for queries: the marks are transposed against the weights. Row i asks, column j
    answers, in the weights and in the marks.
    """
    return score(weights.mT, tokens)


induction.detached(fails=("texts", "gradient"))


# --- relative_entropy --------------------------------------------------------------------------


def rows_entropy(weights):
    return -torch.xlogy(weights, weights).sum(-1)


def possible(weights):
    return torch.arange(2, weights.shape[-1] + 1, dtype=weights.dtype).log()


def right_entropy(weights):
    return (rows_entropy(weights)[..., 1:] / possible(weights)).mean(-1)


entropy = WrongAnswers("relative_entropy", tests=("by_hand", "heads"), right=right_entropy)


@witnesses(of="relative_entropy")
def entropy_calls(draw):
    for shape in ((1, 2, 2), (2, 4, 4), (3, 2, 5, 5), (3, 3, 3), (7, 7)):
        yield call(causal(2 * draw.normal(*shape)))
    yield call(torch.eye(4)[None])


@entropy("not divided by what is possible")
def entropy_plain(weights):
    """You return the entropy itself. A late position has more keys and may have more of it, whatever
    the head does: divide each row by the entropy of an even row of its length.
    """
    return rows_entropy(weights)[..., 1:].mean(-1)


@entropy("divided by the longest row's", fails=("heads",))
def entropy_longest(weights):
    """You divide every row by the same number. Position i of a causal head has i + 1 keys, so that
    each row has a maximum of its own.
    """
    return rows_entropy(weights)[..., 1:].mean(-1) / possible(weights)[-1]


@entropy("the first position takes part", fails=("by_hand", "heads"))
def entropy_first(weights):
    """You count position 0 among those that you average over. It has a single key and no choice; it
    is left out.
    """
    return (rows_entropy(weights)[..., 1:] / possible(weights)).sum(-1) / weights.shape[-1]


@entropy("NaN at a weight of 0")
def entropy_nan(weights):
    """You multiply a weight of exactly 0 by its logarithm, which is minus infinity: NaN. Every causal
    head has such weights. A weight of 0 adds 0.
    """
    rows = -(weights * weights.log()).sum(-1)
    return (rows[..., 1:] / possible(weights)).mean(-1)


@entropy("divided after the mean", fails=("heads",))
def entropy_late(weights):
    """You average the entropies and the maxima first and divide then. Long rows then count more than
    short ones; divide row by row.
    """
    return rows_entropy(weights)[..., 1:].mean(-1) / possible(weights).mean()


@entropy("one key too many", fails=("by_hand", "heads"))
def entropy_off_by_one(weights):
    """You divide the row of position i by ln(i + 2). It has the keys 0 to i: count them on the
    fingers for position 1.
    """
    keys = torch.arange(3, weights.shape[-1] + 2, dtype=weights.dtype)
    return (rows_entropy(weights)[..., 1:] / keys.log()).mean(-1)


@entropy("the sign is missing")
def entropy_negative(weights):
    """Your result is never positive: logarithms of shares are negative, and the formula has a minus
    in front.
    """
    return -right_entropy(weights)


@entropy("entropy over the queries")
def entropy_columns(weights):
    """You take the entropy of columns: how evenly a key is looked at. The rows are what sums to one."""
    return right_entropy(weights.mT)


@entropy("one number for all heads", fails=("heads",))
def entropy_mixed(weights):
    """You average over the heads. An even head and a sharp one together look like two ordinary ones:
    keep the leading axes.
    """
    return right_entropy(weights).mean(0, keepdim=True)


# --- attention_rollout -------------------------------------------------------------------------


def roll(weights, residual=0.5, *, join=None, mix=None):
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype)
    mean = weights.mean(1) if join is None else join(weights)
    rollout = identity
    for layer in mean:
        mixed = (1 - residual) * layer + residual * identity
        rollout = mixed @ rollout if mix is None else mix(mixed, rollout)
    return rollout


rollout = WrongAnswers("attention_rollout", tests=("by_hand", "layers", "residual"), right=roll)


@witnesses(of="attention_rollout")
def rollout_calls(draw):
    for shape in ((1, 1, 2, 2), (2, 1, 2, 2), (2, 3, 4, 4), (3, 2, 5, 5), (3, 3, 3, 3)):
        weights = draw.normal(*shape).softmax(-1)
        yield call(weights)
        yield call(causal(draw.normal(*shape)))
        yield call(weights, 0.25)
        yield call(weights, 0.0)


@rollout("without the residual stream")
def rollout_no_residual(weights, residual=0.5):
    """You multiply the plain weights. Every block adds its input to what attention brings: mix each
    layer with the identity before you multiply.
    """
    return roll(weights, 0.0)


@rollout("the identity is added, not mixed in")
def rollout_added(weights, residual=0.5):
    """You add the identity and do not scale: the rows sum to two after one layer and to four after
    two. The two shares sum to one.
    """
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype)
    result = identity
    for layer in weights.mean(1):
        result = (layer + identity) @ result
    return result


@rollout("layers in the wrong order", fails=("layers", "residual"))
def rollout_order(weights, residual=0.5):
    """You multiply in the wrong order: the last layer acts on the inputs and the first one last. A
    vector passes layer 1 first, so that layer stands on the right.
    """
    return roll(weights, residual, mix=lambda mixed, done: done @ mixed)


@rollout("layers averaged")
def rollout_averaged(weights, residual=0.5):
    """You average the layers. What layer 2 brings has been mixed by layer 1 already: layers follow
    each other, which is a product.
    """
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype)
    return (1 - residual) * weights.mean((0, 1)) + residual * identity


@rollout("heads summed", fails=("layers", "residual"))
def rollout_summed(weights, residual=0.5):
    """You add the heads up: the rows no longer sum to one. Heads count alike in rollout, each with
    its share.
    """
    return roll(weights, residual, join=lambda w: w.sum(1))


@rollout("only the first head", fails=("layers", "residual"))
def rollout_first_head(weights, residual=0.5):
    """You follow one head and leave the others out. Rollout takes the mean of the heads of a layer."""
    return roll(weights, residual, join=lambda w: w[:, 0])


@rollout("the largest of the heads", fails=("layers", "residual"))
def rollout_max(weights, residual=0.5):
    """You take the largest weight of all heads. Some papers do, but then rows sum to more than one;
    here it is the mean.
    """
    return roll(weights, residual, join=lambda w: w.amax(1))


@rollout("only the last layer", fails=("by_hand", "layers", "residual"))
def rollout_last(weights, residual=0.5):
    """You return the last layer's mixture. It says from which positions of the layer below something
    comes, not from which inputs.
    """
    return roll(weights[-1:], residual)


@rollout("a residual share of one half whatever is asked", fails=("layers", "residual"))
def rollout_half(weights, residual=0.5):
    """You never use the argument `residual`. With 0 the weights are multiplied as they are, with 1
    nothing would be mixed at all.
    """
    return roll(weights, 0.5)


@rollout("the shares are exchanged", fails=("layers", "residual"))
def rollout_exchanged(weights, residual=0.5):
    """You give the share `residual` to the attention and the rest to the identity. At one half nobody
    notices.
    """
    return roll(weights, 1 - residual)


# --- ablate_heads ------------------------------------------------------------------------------


def mean_of(found, head):
    return found[:, head].mean((0, 1))


def replace(found, heads, how, *, zero=None, mean=mean_of):
    changed = found.clone()
    for head in heads:
        changed[:, head] = (0.0 if zero is None else zero) if how == "zero" else mean(found, head)
    return changed


ablate = WrongAnswers("ablate_heads", tests=("by_hand", "zero", "mean", "gradient"), right=replace)


@witnesses(of="ablate_heads")
def ablate_calls(draw):
    for shape, heads in (
        ((1, 1, 2, 1), [0]),
        ((2, 3, 2, 2), [0, 2]),
        ((3, 3, 3, 3), [1]),
        ((5, 4, 3, 2), [3, 0]),
        ((2, 3, 2, 2), []),
    ):
        found = draw.normal(*shape)
        for how in ("zero", "mean"):
            yield call(found, heads, how)
            yield call(found, heads, how, via=student.grad(0))


@ablate("always zeros", fails=("by_hand", "mean", "gradient"))
def ablate_zeros(found, heads, how):
    """You set heads to zero, whatever is asked. With `how = "mean"` a head keeps what it finds on
    average and loses only what depends on the text.
    """
    return replace(found, heads, "zero")


@ablate("always the mean", fails=("by_hand", "zero", "gradient"))
def ablate_means(found, heads, how):
    """You put in the mean, whatever is asked. With `how = "zero"` nothing is left of the head."""
    return replace(found, heads, "mean")


def ablates(name, message, *, fails=("mean", "gradient"), **step):
    def wrong(found, heads, how):
        return replace(found, heads, how, **step)

    wrong.__doc__ = message
    wrong.__name__ = "ablate_" + "".join(c if c.isalnum() else "_" for c in name)
    globals()[wrong.__name__] = ablate(name, fails=fails)(wrong)


ablates(
    "a mean for each text",
    """You take the mean over the positions of each text. It still depends on the text, so that the head
    can go on telling texts apart: average over the texts as well.""",
    mean=lambda found, head: found[:, head].mean(1, keepdim=True),
)
ablates(
    "a mean for each position",
    """You take the mean over the texts, position by position. Asked is one vector for all texts and
    positions.""",
    fails=("by_hand", "mean", "gradient"),
    mean=lambda found, head: found[:, head].mean(0, keepdim=True),
)
ablates(
    "one number for the whole head",
    """You average over the entries, too, and put one number everywhere. The mean of a head is a
    vector: E numbers.""",
    mean=lambda found, head: found[:, head].mean(),
)
ablates(
    "the mean of all heads",
    """You put in the mean of all heads. Each head keeps its *own* mean; what the others find has
    nothing to do with it.""",
    mean=lambda found, head: found.mean((0, 1, 2)),
)


@ablate("the others are taken out")
def ablate_others(found, heads, how):
    """You replace every head that is *not* named. The list names the heads that go."""
    return replace(found, [h for h in range(found.shape[1]) if h not in heads], how)


@ablate("only the first of the list", fails=("zero", "mean"))
def ablate_first(found, heads, how):
    """You replace one head of the list and leave the others as they are. All named heads go."""
    return replace(found, heads[:1], how)


@ablate("positions in place of heads")
def ablate_positions(found, heads, how):
    """You replace along axis 2, which counts positions. Heads are axis 1 of (B, H, L, E)."""
    places = [head for head in heads if head < found.shape[2]]
    return replace(found.transpose(1, 2), places, how).transpose(1, 2)


ablate.detached()


# --- patch_head --------------------------------------------------------------------------------


def swap(corrupted, clean, head, positions):
    changed = corrupted.clone()
    changed[:, head, positions] = clean[:, head, positions]
    return changed


patch = WrongAnswers("patch_head", tests=("by_hand", "one_head"), right=swap)


@witnesses(of="patch_head")
def patch_calls(draw):
    for shape, head, positions in (
        ((1, 1, 2, 1), 0, [1]),
        ((2, 3, 4, 2), 1, [0, 2]),
        ((3, 3, 3, 3), 2, [1]),
        ((2, 4, 3, 5), 0, [2, 0, 1]),
        ((2, 2, 3, 2), 1, []),
    ):
        yield call(draw.normal(*shape), draw.normal(*shape), head, positions)


@patch("the runs are exchanged")
def patch_exchanged(corrupted, clean, head, positions):
    """You put a piece of the corrupted run into the clean one. That is an experiment too (does the
    damage of one head suffice?), but the other one was asked for.
    """
    return swap(clean, corrupted, head, positions)


@patch("every position is patched")
def patch_everywhere(corrupted, clean, head, positions):
    """You patch the head at all positions. Where something is read matters as much as which head
    reads it: only the named positions change.
    """
    return swap(corrupted, clean, head, list(range(corrupted.shape[2])))


@patch("every head is patched", fails=("one_head",))
def patch_all_heads(corrupted, clean, head, positions):
    """You patch all heads at the named positions. Then nobody knows which of them did it: one head
    at a time.
    """
    changed = corrupted.clone()
    changed[:, :, positions] = clean[:, :, positions]
    return changed


@patch("all positions but these")
def patch_others(corrupted, clean, head, positions):
    """You patch where you should not and leave the named positions alone. The list says which
    positions come from the clean run.
    """
    places = [i for i in range(corrupted.shape[2]) if i not in positions]
    return swap(corrupted, clean, head, places)


@patch("the mean of both runs")
def patch_mean(corrupted, clean, head, positions):
    """You put in the mean of both runs. A patch replaces: the head finds exactly what it found in the
    clean run.
    """
    return swap(corrupted, (corrupted + clean) / 2, head, positions)


@patch("only the first text", fails=("one_head",))
def patch_first_text(corrupted, clean, head, positions):
    """You patch the first text of the batch and no other one. Axis 0 counts texts; all of them are
    patched.
    """
    changed = corrupted.clone()
    changed[0, head, positions] = clean[0, head, positions]
    return changed


@patch("the clean run's first position everywhere", fails=("by_hand", "one_head"))
def patch_first_position(corrupted, clean, head, positions):
    """You take what the head found at position 0 of the clean run and put it at all named
    positions. Each position gets what was found *there*.
    """
    changed = corrupted.clone()
    changed[:, head, positions] = clean[:, head, :1]
    return changed


@patch("an argument is changed in place")
def patch_in_place(corrupted, clean, head, positions):
    """You write into the corrupted run that you were given. The next patch would start from a run
    that is patched already. Change a copy.
    """
    corrupted[:, head, positions] = clean[:, head, positions]
    return corrupted


# --- recovered ---------------------------------------------------------------------------------


def ahead(logits, right, wrong):
    return (logits.gather(1, right[:, None]) - logits.gather(1, wrong[:, None]))[:, 0]


def share(clean, corrupted, patched, right, wrong, lead=ahead):
    leads = [lead(x, right, wrong).mean() for x in (clean, corrupted, patched)]
    return (leads[2] - leads[1]) / (leads[0] - leads[1])


back = WrongAnswers("recovered", tests=("by_hand", "texts"), right=share)


@witnesses(of="recovered")
def recovered_calls(draw):
    for texts, words in ((1, 2), (3, 5), (4, 4), (7, 3)):
        right = draw.integers(0, words, texts)
        wrong = (right + 1 + draw.integers(0, words - 1, texts)) % words
        runs = [draw.normal(texts, words) for _ in range(3)]
        lift = torch.nn.functional.one_hot(right, words)
        yield call(runs[0] + 6 * lift, runs[1], runs[2] + 2 * lift, right, wrong)


@back("the right word's logit alone")
def recovered_no_wrong(clean, corrupted, patched, right, wrong):
    """You look at the logit of the right word and not at the other one. A change that raises all
    logits changes no answer: take the difference of the two.
    """

    def alone(logits, right, wrong):
        return logits.gather(1, right[:, None])

    return share(clean, corrupted, patched, right, wrong, alone)


@back("not measured from the corrupted run")
def recovered_ratio(clean, corrupted, patched, right, wrong):
    """You divide the patched lead by the clean one. A patch that does nothing would then have a score
    of its own: measure from the corrupted run, above and below.
    """
    return ahead(patched, right, wrong).mean() / ahead(clean, right, wrong).mean()


@back("measured from the clean run")
def recovered_lost(clean, corrupted, patched, right, wrong):
    """You measure how much is still missing. 0 should mean that the patch did nothing, 1 that it
    brought everything back; you have it the other way round.
    """
    return 1 - share(clean, corrupted, patched, right, wrong)


@back("not divided")
def recovered_difference(clean, corrupted, patched, right, wrong):
    """You return by how much the lead grew. In a model with larger logits the same patch would seem
    larger: divide by the way from the corrupted run to the clean one.
    """
    return (ahead(patched, right, wrong) - ahead(corrupted, right, wrong)).mean()


@back("a share for each text, then the mean", fails=("texts",))
def recovered_mean_of_shares(clean, corrupted, patched, right, wrong):
    """You divide text by text and average the shares. A text in which the corruption changed little
    has a divisor near 0 and drowns all others: average the leads first.
    """
    leads = [ahead(x, right, wrong) for x in (clean, corrupted, patched)]
    return ((leads[2] - leads[1]) / (leads[0] - leads[1])).mean()


@back("probabilities in place of logits")
def recovered_probabilities(clean, corrupted, patched, right, wrong):
    """You take the softmax first. That is another measure, which hardly moves near 0 and 1; here the
    lead is a difference of logits.
    """
    return share(*(x.softmax(-1) for x in (clean, corrupted, patched)), right, wrong)


@back("the first text's words for all", fails=("texts",))
def recovered_first_words(clean, corrupted, patched, right, wrong):
    """You take the two words of the first text for all texts. Each text has a right word and a wrong
    one of its own.
    """
    first = right[:1].expand_as(right), wrong[:1].expand_as(wrong)
    return share(clean, corrupted, patched, *first)


@back("one share for each text", fails=("by_hand", "texts"))
def recovered_each(clean, corrupted, patched, right, wrong):
    """You return a number for each text. Asked is one for all of them, from the leads averaged over
    the texts.
    """
    leads = [ahead(x, right, wrong) for x in (clean, corrupted, patched)]
    return (leads[2] - leads[1]) / (leads[0] - leads[1])


# --- logit_attribution -------------------------------------------------------------------------


def attribute(parts, scale, unembedding, word, *, divisor=None, centre=True, push=None):
    total = parts.sum(0)
    by = (total.var(correction=0) + 1e-5).sqrt() if divisor is None else divisor(parts)
    centred = parts - parts.mean(-1, keepdim=True) if centre else parts
    way = unembedding[word] - unembedding.mean(0) if push is None else push(unembedding, word)
    return (centred / by * scale) @ way


logits = WrongAnswers("logit_attribution", tests=("one_part", "parts"), right=attribute)


@witnesses(of="logit_attribution")
def logit_calls(draw):
    yield call(draw.normal(1, 3), torch.ones(3), draw.normal(2, 3), 0)
    for count, size, words in ((2, 3, 2), (4, 5, 7), (3, 3, 3), (6, 4, 5)):
        parts, scale = draw.normal(count, size), 1 + draw.uniform(size)
        yield call(parts, scale, draw.normal(words, size), words - 1)


def credits(name, message, *, fails=None, **step):
    def wrong(parts, scale, unembedding, word):
        return attribute(parts, scale, unembedding, word, **step)

    wrong.__doc__ = message
    wrong.__name__ = "credits_" + "".join(c if c.isalnum() else "_" for c in name)
    globals()[wrong.__name__] = logits(name, fails=fails)(wrong)


credits(
    "each part has a divisor of its own",
    """You normalise every part by itself. A tiny part would get as large a share as a big one, and the
    shares would not add up: the divisor is that of the sum.""",
    divisor=lambda parts: (parts.var(-1, correction=0, keepdim=True) + 1e-5).sqrt(),
    fails=("parts",),
)
credits(
    "the norm is left out",
    """You multiply the parts by the output table as they are. Between the stream and the table stands
    a layer norm, with a divisor and a scale.""",
    divisor=lambda parts: 1.0,
)
credits(
    "the mean of a part stays",
    """You leave the mean of each part in. A layer norm takes it out of the sum, so that every part has
    to give up its own.""",
    centre=False,
)
credits(
    "the mean of the table stays",
    """You use the word's row of the output table as it is. A part that raises all logits alike changes
    no chance: take the mean row off.""",
    push=lambda table, word: table[word],
)
credits(
    "the variance is divided by D less one",
    """Your variance is the estimate for a sample, divided by one less than the number of entries. A
    layer norm divides by all of them.""",
    divisor=lambda parts: (parts.sum(0).var() + 1e-5).sqrt(),
)
credits(
    "divided by the variance",
    """You divide by the variance. The norm divides by its root, the standard deviation.""",
    divisor=lambda parts: parts.sum(0).var(correction=0) + 1e-5,
)


@logits("the scale of the norm is left out", fails=("parts",))
def logit_no_scale(parts, scale, unembedding, word):
    """You leave out the learned scale of the norm. It stretches some entries and shrinks others before
    the table sees them.
    """
    return attribute(parts, torch.ones_like(scale), unembedding, word)


@logits("the whole logit", fails=("parts",))
def logit_total(parts, scale, unembedding, word):
    """You return one number, the sum of all shares. Asked is who wrote it: a number for each part."""
    return attribute(parts, scale, unembedding, word).sum(0, keepdim=True)


@logits("the share of every word")
def logit_all_words(parts, scale, unembedding, word):
    """You return a table, a share of every word's logit. Only the named word was asked for."""
    centred = parts - parts.mean(-1, keepdim=True)
    by = (parts.sum(0).var(correction=0) + 1e-5).sqrt()
    return (centred / by * scale) @ (unembedding - unembedding.mean(0)).T


# --- the repair and the test -------------------------------------------------------------------


def project(found, weight, bias, head):
    kept = found.clone()
    kept[:, head] = 0.0
    return kept.transpose(1, 2).flatten(2) @ weight.T + bias


fixed = WrongAnswers("fixed_projection", tests=("one_position", "positions"), right=project)


@witnesses(of="fixed_projection")
def projection_calls(draw):
    for b, h, length, e, d in ((1, 2, 1, 2, 4), (2, 3, 5, 2, 7), (2, 2, 2, 2, 4), (3, 2, 1, 3, 5)):
        yield call(draw.normal(b, h, length, e), draw.normal(d, h * e), draw.normal(d), h - 1)


@fixed("both faults are still there")
def fixed_broken(found, weight, bias, head):
    """This is the broken code as it stands. Ask what the caller's tensor looks like afterwards, and
    which numbers a row of the joined table holds.
    """
    found[:, head] = 0.0
    batch, heads, length, size = found.shape
    return found.reshape(batch, length, heads * size) @ weight.T + bias


@fixed("still reshaped without exchanging axes", fails=("positions",))
def fixed_reshaped(found, weight, bias, head):
    """The caller's tensor is safe now. But a reshape keeps the order of the numbers, and positions
    stand behind heads in it: the rows are pieced together from several positions.
    """
    kept = found.clone()
    kept[:, head] = 0.0
    batch, heads, length, size = found.shape
    return kept.reshape(batch, length, heads * size) @ weight.T + bias


@fixed("still written into the argument")
def fixed_in_place(found, weight, bias, head):
    """The heads are joined rightly now. But the tensor that you were given has lost a head for good:
    the next experiment with it would be about two heads.
    """
    found[:, head] = 0.0
    return found.transpose(1, 2).flatten(2) @ weight.T + bias


@fixed("the bias is gone")
def fixed_no_bias(found, weight, bias, head):
    """You leave the bias out. It belongs to no head: taking one out does not touch it."""
    return project(found, weight, torch.zeros_like(bias), head)


@fixed("the head is left in")
def fixed_all_heads(found, weight, bias, head):
    """The heads are joined rightly, and all of them take part. Setting one to zero was right in the
    broken code; only where it was written was not.
    """
    return found.transpose(1, 2).flatten(2) @ weight.T + bias


checks = WrongAnswers("check_induction", tests=("plain", "mutants"))


@witnesses(of="check_induction")
def check_calls(draw):
    for candidate in (
        score,
        lambda weights, tokens: weights.new_zeros(len(weights)),
        lambda weights, tokens: score(weights, tokens, marks=same_before),
        lambda weights, tokens: score(weights, tokens, count=len),
        lambda weights, tokens: weights,
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


@checks("accepts everything")
def check_nothing(candidate):
    """Your test says True whatever it is given. Call the candidate and compare what comes back with
    numbers of your own.
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
    """You compare the shape of the answer and no value in it. Nearly all wrong scores have the right
    shape.
    """
    try:
        got = candidate(torch.ones(2, 3, 3) / 3, torch.tensor([1, 2, 1]))
    except Exception:
        return False
    return tuple(got.shape) == (2,)


@checks("one text told twice", fails=("mutants",))
def check_one_text(candidate):
    """You try a single text that is told exactly twice. There every token has one earlier copy, and
    many ways of counting agree. Take texts in which they differ.
    """
    weights = causal(torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1)))
    tokens = torch.tensor([1, 2, 3, 1, 2, 3])
    try:
        got = candidate(weights, tokens)
    except Exception:
        return False
    expected = score(weights, tokens)
    return got.shape == expected.shape and bool(torch.allclose(got, expected, atol=1e-5))


@checks("between 0 and 1")
def check_range(candidate):
    """You check that the scores lie between 0 and 1. So do those of most wrong answers; compare with
    what you have counted yourself.
    """
    weights = torch.ones(2, 5, 5).tril() / torch.arange(1, 6)[:, None]
    try:
        got = candidate(weights, torch.tensor([1, 2, 1, 2, 1]))
        return bool((got >= 0).all() and (got <= 1).all())
    except Exception:
        return False
