"""Wrong answers on the way to looking inside a model: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses


def causal(scores):
    length = scores.shape[-1]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1)


# --- induction_score ---------------------------------------------------------------------------


def same_before(tokens):
    return (tokens[:, None] == tokens[None, :]).tril(-1)


def moved(marks, by=1):
    after = torch.zeros_like(marks)
    after[:, by:] = marks[:, :-by]
    return after


def repeats(earlier):
    return earlier.any(-1).sum().clamp(min=1)


def alike(tokens):
    return tokens[:, None] == tokens[None, :]


def score(
    weights,
    tokens,
    *,
    earlier=same_before,
    move=moved,
    pick=lambda marks: marks,
    count=repeats,
    finish=lambda score: score,
):
    copies = earlier(tokens)
    marks = pick(move(copies))
    return finish((weights * marks).sum((-2, -1)) / count(copies))


TESTS = ("by_hand", "texts", "no_repeat", "gradient")
induction = WrongAnswers("induction_score", tests=TESTS, right=score)
TEXTS = (
    [5, 7, 5],
    [4, 1, 3, 4, 1, 3],
    [2, 2, 1, 2, 0],
    [1, 2, 1, 3, 1, 2],
    [0, 1, 2, 3],
    [3, 3, 3],
    [1, 2, 3, 1],
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


induction.fault(
    "the earlier copy itself",
    """You count what goes to the earlier copy of the token. That is a head that looks for itself;
    an induction head looks one place further on, at what followed the copy.""",
    but=("no_repeat",),
    move=lambda marks: marks,
)
induction.fault(
    "what stood before the earlier copy",
    """You count what goes to the place *before* the earlier copy. Induction repeats what came
    after it: move the marks the other way.""",
    but=("no_repeat",),
    move=lambda marks: torch.cat([marks[:, 1:], marks[:, :1] & False], dim=-1),
)
induction.fault(
    "two places behind the copy",
    """You move the marks two places. What followed the copy stands right behind it.""",
    but=("no_repeat",),
    move=lambda marks: moved(marks, 2),
)
induction.fault(
    "rows moved instead of columns",
    """You move the marks down: each row gets those of the row above. Columns are the places that
    are looked at.""",
    but=("no_repeat",),
    move=lambda marks: moved(marks.T).T,
)
induction.fault(
    "later copies count too",
    """You also count what follows *later* copies of the token. In weights that are not causal
    these places hold something, but nothing that comes later can be repeated.""",
    fails=("texts", "gradient"),
    earlier=lambda tokens: alike(tokens) & ~torch.eye(len(tokens), dtype=torch.bool),
    count=lambda copies: repeats(copies.tril()),
)
induction.fault(
    "later copies count too, and their positions",
    """You also count what follows *later* copies of the token, and the positions that have only
    such copies. Nothing that comes later can be repeated.""",
    but=("no_repeat",),
    earlier=lambda tokens: alike(tokens) & ~torch.eye(len(tokens), dtype=torch.bool),
)
induction.fault(
    "only later copies",
    """You count what follows *later* copies of the token: the triangle is the wrong one.""",
    but=("no_repeat",),
    earlier=lambda tokens: alike(tokens).triu(1),
)
induction.fault(
    "the token counts as its own copy",
    """You count a token as an earlier copy of itself, so that the place right behind it is marked
    as well.""",
    fails=("texts", "gradient"),
    earlier=lambda tokens: alike(tokens).tril(),
    count=lambda copies: repeats(copies.tril(-1)),
)
induction.fault(
    "the marks wrap round",
    """Your marks are moved by a roll before the later ones are cut off: what falls out on the
    right comes back in column 0. Nothing stands before the first token.""",
    earlier=alike,
    move=lambda marks: marks.roll(1, -1).tril(),
    count=lambda copies: repeats(copies.tril(-1)),
)
induction.fault(
    "its own place is left out",
    """You leave out the place of the token itself. A token that follows its own copy looks there
    rightly: it stands right behind the copy.""",
    fails=("texts", "gradient"),
    pick=lambda marks: marks.tril(-1),
)
induction.fault(
    "only the latest copy",
    """You count only what followed the latest copy. A head that looks after an older copy does
    induction as well: the weights after all of them count.""",
    fails=("texts", "gradient"),
    pick=lambda marks: marks & (marks.flip(-1).cumsum(-1).flip(-1) == 1),
)
induction.fault(
    "only the first copy",
    """You count only what followed the first copy. The weights after all earlier copies count
    together.""",
    fails=("texts", "gradient"),
    pick=lambda marks: marks & (marks.cumsum(-1) == 1),
)
induction.fault(
    "the mean over the copies",
    """You average over the copies of a token before you average over the positions. The weights
    after all copies are added up.""",
    fails=("texts", "gradient"),
    pick=lambda marks: marks / marks.sum(-1, keepdim=True).clamp(min=1),
)
induction.fault(
    "divided by all positions",
    """You divide by the number of positions in the text. Positions whose token is new cannot do
    induction, and do not take part in the mean.""",
    but=("no_repeat",),
    count=len,
)
induction.fault(
    "divided by all positions but the first",
    """You divide by the number of positions less one. Only those whose token has stood before take
    part in the mean.""",
    but=("no_repeat",),
    count=lambda copies: len(copies) - 1,
)
induction.fault(
    "divided by the number of pairs",
    """You divide by the number of pairs of equal tokens. A token that has stood three times before
    is still one position: count positions, not pairs.""",
    fails=("texts", "gradient"),
    count=lambda copies: copies.sum().clamp(min=1),
)
induction.fault(
    "divided by the number of different tokens",
    """You divide by how many different tokens come back. Each *position* whose token has stood
    before counts.""",
    fails=("texts", "gradient"),
    count=lambda copies: max(1, int((copies.any(0) & ~copies.any(1)).sum())),
)
induction.fault(
    "NaN where nothing comes twice",
    """In a text in which no token comes twice you divide 0 by 0. The score of such a text is said
    to be 0.""",
    fails=("texts", "no_repeat"),
    count=lambda copies: copies.any(-1).sum(),
)
induction.fault(
    "summed, not averaged",
    """You add up the weights of all positions. A head would score higher on a longer text; divide
    by the number of positions whose token has stood before.""",
    fails=("texts", "gradient"),
    count=lambda copies: 1,
)
induction.fault(
    "one number for all heads",
    """You average over the heads. The score is there to find *which* head does induction: one
    number for each.""",
    fails=("texts", "gradient"),
    finish=lambda score: score.mean(0, keepdim=True),
)


@induction("rows and columns exchanged", but=("no_repeat",))
def induction_transposed(weights, tokens):
    """You take keys for queries: the marks are transposed against the weights. Row i asks, column j
    answers, in the weights and in the marks.
    """
    return score(weights.mT, tokens)


induction.detached(fails=("texts", "gradient"))

# --- relative_entropy --------------------------------------------------------------------------


def row_entropy(weights):
    return -torch.xlogy(weights, weights).sum(-1)


def possible(weights, first=2):
    return torch.arange(first, weights.shape[-1] + first - 1, dtype=weights.dtype).log()


def evenness(
    weights,
    *,
    rows=row_entropy,
    most=possible,
    share=lambda rows, most: (rows / most).mean(-1),
    finish=lambda score: score,
):
    return finish(share(rows(weights)[..., 1:], most(weights)))


entropy = WrongAnswers("relative_entropy", tests=("by_hand", "heads"), right=evenness)


@witnesses(of="relative_entropy")
def entropy_calls(draw):
    for shape in ((1, 2, 2), (2, 4, 4), (3, 2, 5, 5), (3, 3, 3), (7, 7)):
        yield call(causal(2 * draw.normal(*shape)))
    yield call(torch.eye(4)[None])


entropy.fault(
    "not divided by what is possible",
    """You return the entropy itself. A late position has more keys and may have more of it,
    whatever the head does: divide each row by the entropy of an even row of its length.""",
    most=lambda w: 1.0,
)
entropy.fault(
    "divided by the longest row's",
    """You divide every row by the same number. Position i of a causal head has i + 1 keys, so that
    each row has a maximum of its own.""",
    fails=("heads",),
    most=lambda w: possible(w)[-1],
)
entropy.fault(
    "divided by the number of keys",
    """You divide by the number of keys. The entropy of an even row is its logarithm.""",
    most=lambda w: possible(w).exp(),
)
entropy.fault(
    "one key too many",
    """You divide the row of position i by ln(i + 2). It has the keys 0 to i: count them on the
    fingers for position 1.""",
    most=lambda w: possible(w, 3),
)
entropy.fault(
    "one key too few",
    """You divide the row of position i by ln(i), which is 0 for position 1. It has the keys 0 to
    i: count them on the fingers.""",
    most=lambda w: possible(w, 1),
)
entropy.fault(
    "the first position takes part",
    """You count position 0 among those that you average over. It has a single key and no choice;
    it is left out.""",
    share=lambda rows, most: (rows / most).sum(-1) / (rows.shape[-1] + 1),
)
entropy.fault(
    "the first position is divided by 0",
    """You divide the first row by ln(1), which is 0: NaN. Position 0 has a single key and no
    choice; it is left out.""",
    lambda weights: (row_entropy(weights) / torch.arange(1, weights.shape[-1] + 1).log()).mean(-1),
)
entropy.fault(
    "divided after the mean",
    """You average the entropies and the maxima first and divide then. Long rows then count more
    than short ones; divide row by row.""",
    fails=("heads",),
    share=lambda rows, most: rows.mean(-1) / most.mean(),
)
entropy.fault(
    "summed, not averaged",
    """You add up the rows. Longer texts then have more; the score is a mean over the positions.""",
    fails=("heads",),
    share=lambda rows, most: (rows / most).sum(-1),
)
entropy.fault(
    "the last row alone",
    """You take the last row. The score is a mean over all positions but the first.""",
    fails=("heads",),
    share=lambda rows, most: (rows / most)[..., -1],
)
entropy.fault(
    "NaN at a weight of 0",
    """You multiply a weight of exactly 0 by its logarithm, which is minus infinity: NaN. Every
    causal head has such weights. A weight of 0 adds 0.""",
    rows=lambda w: -(w * w.log()).sum(-1),
)
entropy.fault(
    "a small number changes the weights",
    """You add a number to the weights so that their logarithm exists, and it is large enough to be
    seen. A weight of 0 adds exactly 0.""",
    rows=lambda w: -((w + 1e-2) * (w + 1e-2).log()).sum(-1),
)
entropy.fault(
    "logarithms without weights",
    """You add up the logarithms. Each is multiplied by its weight.""",
    rows=lambda w: -w.clamp(min=1e-9).log().sum(-1),
)
entropy.fault(
    "logarithms to the base 2",
    """You take the logarithm of the weights to the base 2, and that of the number of keys is
    natural. Either base will do, for both.""",
    rows=lambda w: row_entropy(w) / 0.6931471805599453,
)
entropy.fault(
    "the sum of squares",
    """You add the squares of the weights. That also says how sharp a row is; asked is the
    entropy.""",
    rows=lambda w: w.square().sum(-1),
)
entropy.fault(
    "entropy over the queries",
    """You take the entropy of columns: how evenly a key is looked at. The rows are what sums to
    one.""",
    rows=lambda w: row_entropy(w.mT),
)
entropy.fault(
    "the sign is missing",
    """Your result is never positive: logarithms of shares are negative, and the formula has a
    minus in front.""",
    finish=lambda score: -score,
)
entropy.fault(
    "one minus the score",
    """You return how sharp a head is. 1 should mean that every row is even.""",
    finish=lambda score: 1 - score,
)
entropy.fault(
    "one number for all heads",
    """You average over the heads. An even head and a sharp one together look like two ordinary
    ones: keep the leading axes.""",
    fails=("heads",),
    finish=lambda score: score.mean(0, keepdim=True),
)

# --- attention_rollout -------------------------------------------------------------------------


def roll(
    weights,
    residual=0.5,
    *,
    join=lambda weights: weights.mean(1),
    share=lambda residual: residual,
    mix=lambda layer, identity, r: (1 - r) * layer + r * identity,
    order=lambda mixed, done: mixed @ done,
    layers=lambda layers: layers,
    finish=lambda rollout: rollout,
):
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype)
    rollout = identity
    for layer in layers(join(weights)):
        rollout = order(mix(layer, identity, share(residual)), rollout)
    return finish(rollout)


rollout = WrongAnswers("attention_rollout", tests=("by_hand", "layers", "residual"), right=roll)


@witnesses(of="attention_rollout")
def rollout_calls(draw):
    for shape in ((1, 1, 2, 2), (2, 1, 2, 2), (2, 3, 4, 4), (3, 2, 5, 5), (3, 3, 3, 3)):
        weights = draw.normal(*shape).softmax(-1)
        yield call(weights)
        yield call(causal(draw.normal(*shape)))
        yield call(weights, 0.25)
        yield call(weights, 0.0)


rollout.fault(
    "without the residual stream",
    """You multiply the plain weights. Every block adds its input to what attention brings: mix
    each layer with the identity before you multiply.""",
    mix=lambda layer, identity, r: layer,
)
rollout.fault(
    "the identity is added, not mixed in",
    """You add the identity and do not scale: the rows sum to two after one layer and to four after
    two. The two shares sum to one.""",
    mix=lambda layer, identity, r: layer + identity,
)
rollout.fault(
    "the weights keep their whole share",
    """You add a share of the identity to the whole weights. The two shares sum to one.""",
    mix=lambda layer, identity, r: layer + r * identity,
)
rollout.fault(
    "even weights instead of the identity",
    """You mix with a table of equal elements. What goes round the attention stays at its position:
    that is the identity.""",
    mix=lambda layer, identity, r: (1 - r) * layer + r / len(layer),
)
rollout.fault(
    "layers in the wrong order",
    """You multiply in the wrong order: the last layer acts on the inputs and the first one last. A
    vector passes layer 1 first, so that layer stands on the right.""",
    but=("by_hand",),
    order=lambda mixed, done: done @ mixed,
)
rollout.fault(
    "multiplied element by element",
    """You multiply the tables element by element. Layers follow each other, which is a product of
    matrices.""",
    order=lambda mixed, done: mixed if bool((done == torch.eye(len(done))).all()) else mixed * done,
)
rollout.fault(
    "layers added",
    """You add the layers up. What layer 2 brings has been mixed by layer 1 already: layers follow
    each other, which is a product.""",
    order=lambda mixed, done: mixed + done,
)
rollout.fault(
    "only the last layer",
    """You return the last layer's mixture. It says from which positions of the layer below
    something comes, not from which inputs.""",
    layers=lambda layers: layers[-1:],
)
rollout.fault(
    "only the first layer",
    """You return the first layer's mixture. Look at what your loop keeps from layer to layer.""",
    layers=lambda layers: layers[:1],
)
rollout.fault(
    "the last layer is missing",
    """You stop one layer too early. All of them are multiplied.""",
    layers=lambda layers: layers[:-1],
)
rollout.fault(
    "the first layer is missing",
    """You leave the first layer out. All of them are multiplied; the product starts from the
    identity, or from the first mixture.""",
    layers=lambda layers: layers[1:],
)
rollout.fault(
    "layers averaged",
    """You average the layers. What layer 2 brings has been mixed by layer 1 already: layers follow
    each other, which is a product.""",
    layers=lambda layers: layers.mean(0, keepdim=True),
)
rollout.fault(
    "heads summed",
    """You add the heads up: the rows no longer sum to one. Heads count alike in rollout, each with
    its share.""",
    but=("by_hand",),
    join=lambda w: w.sum(1),
)
rollout.fault(
    "only the first head",
    """You follow one head and leave the others out. Rollout takes the mean of the heads of a
    layer.""",
    but=("by_hand",),
    join=lambda w: w[:, 0],
)
rollout.fault(
    "the largest of the heads",
    """You take the largest weight of all heads. Some papers do, but then rows sum to more than
    one; here it is the mean.""",
    but=("by_hand",),
    join=lambda w: w.amax(1),
)
rollout.fault(
    "layers and heads exchanged",
    """You average over the layers and multiply the heads. Axis 0 counts layers, axis 1 heads.""",
    join=lambda w: w.mean(0),
)
rollout.fault(
    "a residual share of one half whatever is asked",
    """You never use the argument `residual`. With 0 the weights are multiplied as they are, with 1
    nothing would be mixed at all.""",
    but=("by_hand",),
    share=lambda r: 0.5,
)
rollout.fault(
    "the shares are exchanged",
    """You give the share `residual` to the attention and the rest to the identity. At one half
    nobody notices.""",
    but=("by_hand",),
    share=lambda r: 1 - r,
)
rollout.fault(
    "inputs by outputs",
    """Your table is transposed: rows should be outputs, columns inputs.""",
    finish=lambda rollout: rollout.T,
)

# --- ablate_heads ------------------------------------------------------------------------------


def replaced(
    found,
    heads,
    how,
    *,
    which=lambda heads, count: heads,
    way=lambda how: how,
    zero=lambda found, head: 0.0,
    mean=lambda found, head: found[:, head].mean((0, 1)),
    copy=torch.clone,
    axis=1,
):
    changed = copy(found)
    for head in which(heads, found.shape[axis]):
        new = (zero if way(how) == "zero" else mean)(found.transpose(1, axis), head)
        changed.transpose(1, axis)[:, head] = new
    return changed


TESTS = ("by_hand", "zero", "mean", "gradient")
ablate = WrongAnswers("ablate_heads", tests=TESTS, right=replaced)


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


ablate.fault(
    "always zeros",
    """You set heads to zero, whatever is asked. With `how = "mean"` a head keeps what it finds on
    average and loses only what depends on the text.""",
    but=("zero",),
    way=lambda how: "zero",
)
ablate.fault(
    "always the mean",
    """You put in the mean, whatever is asked. With `how = "zero"` nothing is left of the head.""",
    but=("mean",),
    way=lambda how: "mean",
)
ablate.fault(
    "the two ways exchanged",
    """You put in the mean where zeros are asked, and the other way round.""",
    way=lambda how: "mean" if how == "zero" else "zero",
)
ablate.fault(
    "a mean for each text",
    """You take the mean over the positions of each text. It still depends on the text, so that the
    head can go on telling texts apart: average over the texts as well.""",
    fails=("mean", "gradient"),
    mean=lambda found, head: found[:, head].mean(1, keepdim=True),
)
ablate.fault(
    "a mean for each position",
    """You take the mean over the texts, position by position. Asked is one vector for all texts
    and positions.""",
    but=("zero",),
    mean=lambda found, head: found[:, head].mean(0, keepdim=True),
)
ablate.fault(
    "one number for the whole head",
    """You average over the elements, too, and put one number everywhere. The mean of a head is a
    vector: E numbers.""",
    fails=("mean", "gradient"),
    mean=lambda found, head: found[:, head].mean(),
)
ablate.fault(
    "a mean over the elements",
    """You average over the elements of each vector. The mean runs over texts and positions, and
    leaves E numbers.""",
    but=("zero",),
    mean=lambda found, head: found[:, head].mean(-1, keepdim=True),
)
ablate.fault(
    "the mean of all heads",
    """You put in the mean of all heads. Each head keeps its *own* mean; what the others find has
    nothing to do with it.""",
    fails=("mean", "gradient"),
    mean=lambda found, head: found.mean((0, 1, 2)),
)
ablate.fault(
    "the mean over the heads",
    """You put in the mean over the heads, place by place. Each head keeps its *own* mean, over
    texts and positions.""",
    but=("zero",),
    mean=lambda found, head: found.mean(1),
)
ablate.fault(
    "the sum instead of the mean",
    """You put in the sum over texts and positions. Divide by how many there are.""",
    but=("zero",),
    mean=lambda found, head: found[:, head].sum((0, 1)),
)
ablate.fault(
    "the mean of the first text",
    """You take the mean of the first text for all. It runs over all texts and positions.""",
    fails=("mean", "gradient"),
    mean=lambda found, head: found[0, head].mean(0),
)
ablate.fault(
    "the mean passes no gradient",
    """Your mean is cut off (detach, no_grad, item), so that a head which is set to its mean passes
    no gradient back. It should.""",
    fails=("gradient",),
    mean=lambda found, head: found[:, head].mean((0, 1)).detach(),
)
ablate.fault(
    "the zeros pass a gradient",
    """Your zeros are made of the head itself (subtracted, say), so that a gradient passes where
    none should.""",
    fails=("gradient",),
    zero=lambda found, head: found[:, head] - found[:, head].detach(),
)
ablate.fault(
    "the others are taken out",
    """You replace every head that is *not* named. The list names the heads that go.""",
    which=lambda heads, count: [h for h in range(count) if h not in heads],
)
ablate.fault(
    "only the first of the list",
    """You replace one head of the list and leave the others as they are. All named heads go.""",
    fails=("zero", "mean"),
    which=lambda heads, count: heads[:1],
)
ablate.fault(
    "only the last of the list",
    """You keep the change of the last head alone: each one starts from `found` anew. All named
    heads go.""",
    fails=("zero", "mean"),
    which=lambda heads, count: heads[-1:],
)
ablate.fault(
    "so many heads from the left",
    """You replace as many heads as are named, counted from head 0. The list says which.""",
    but=("by_hand",),
    which=lambda heads, count: range(len(heads)),
)
ablate.fault(
    "all heads",
    """You replace every head. The list names those that go.""",
    but=("by_hand",),
    which=lambda heads, count: range(count),
)
ablate.fault(
    "the next head",
    """You replace the head after each that is named. Heads count from 0.""",
    but=("by_hand",),
    which=lambda heads, count: [(h + 1) % count for h in heads],
)
ablate.in_place(fails=("by_hand", "zero", "mean"))
ablate.detached()


@ablate("positions instead of heads")
def ablate_positions(found, heads, how):
    """You replace along axis 2, which counts positions. Heads are axis 1 of (B, H, L, E)."""
    return replaced(found, [h for h in heads if h < found.shape[2]], how, axis=2)


# --- patch_head --------------------------------------------------------------------------------


def swap(
    corrupted,
    clean,
    head,
    positions,
    *,
    runs=lambda corrupted, clean: (corrupted, clean),
    where=lambda positions, length: positions,
    take=lambda clean, places: clean[..., places, :],
    texts=lambda count: range(count),
    heads=lambda head: head,
    copy=torch.clone,
):
    corrupted, clean = runs(corrupted, clean)
    changed, places = copy(corrupted), where(list(positions), corrupted.shape[2])
    for row in texts(len(changed)):
        changed[row, heads(head)][..., places, :] = take(clean[row, heads(head)], places)
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
        ((2, 2, 6, 2), 1, [1, 4]),
        ((2, 2, 6, 2), 0, [5, 3]),
    ):
        yield call(draw.normal(*shape), draw.normal(*shape), head, positions)


patch.fault(
    "the runs are exchanged",
    """You put a piece of the corrupted run into the clean one. That is an experiment too (does the
    damage of one head suffice?), but the other one was asked for.""",
    runs=lambda corrupted, clean: (clean, corrupted),
)
patch.fault(
    "nothing is patched",
    """You return the corrupted run as it was. The named head gets what it found in the clean
    run.""",
    runs=lambda corrupted, clean: (corrupted, corrupted),
)
patch.fault(
    "the clean run is returned",
    """You return the clean run. Everything but the named head and positions is the corrupted
    one's.""",
    runs=lambda corrupted, clean: (clean, clean),
)
patch.fault(
    "every position is patched",
    """You patch the head at all positions. Where something is read matters as much as which head
    reads it: only the named positions change.""",
    where=lambda places, length: list(range(length)),
)
patch.fault(
    "all positions but these",
    """You patch where you should not and leave the named positions alone. The list says which
    positions come from the clean run.""",
    where=lambda places, length: [i for i in range(length) if i not in places],
)
patch.fault(
    "everything from the first to the last",
    """You patch the positions between the first and the last named one as well. The list may have
    gaps: only what it names changes.""",
    fails=("one_head",),
    where=lambda places, length: list(range(places[0], places[-1] + 1)) if places else [],
)
patch.fault(
    "from the first up to the last",
    """You patch a slice from the first named position up to the last, which is left out. The list
    names single positions.""",
    where=lambda places, length: list(range(places[0], places[-1])) if places else [],
)
patch.fault(
    "only the first of the positions",
    """You patch one position of the list. All named ones change.""",
    fails=("one_head",),
    where=lambda places, length: places[:1],
)
patch.fault(
    "only the last of the positions",
    """You patch the last position of the list alone: each one starts from the corrupted run anew.
    All named ones change.""",
    fails=("one_head",),
    where=lambda places, length: places[-1:],
)
patch.fault(
    "the position after",
    """You patch the position behind each that is named. Positions count from 0.""",
    where=lambda places, length: [(i + 1) % length for i in places],
)
patch.fault(
    "so many positions from the left",
    """You patch as many positions as are named, counted from 0. The list says which.""",
    where=lambda places, length: list(range(len(places))),
)
patch.fault(
    "the clean run's first positions",
    """You take what the head found at the first positions of the clean run and put it at the named
    ones. Each position gets what was found *there*.""",
    take=lambda clean, places: clean[..., : len(places), :],
)
patch.fault(
    "the clean run's first position everywhere",
    """You take what the head found at position 0 of the clean run and put it at all named
    positions. Each position gets what was found *there*.""",
    take=lambda clean, places: clean[..., :1, :],
)
patch.fault(
    "the mean of the positions",
    """You put the mean over the named positions at all of them. Each position gets what was found
    *there*.""",
    fails=("one_head",),
    take=lambda clean, places: clean[..., places, :].mean(-2, keepdim=True),
)
patch.fault(
    "the order of the list",
    """You sort the positions on one side, or turn them round, and not on the other. Each position
    gets what was found *there*.""",
    fails=("one_head",),
    take=lambda clean, places: clean[..., sorted(places), :],
)
patch.fault(
    "positions turned round",
    """You read the positions of the clean run from last to first. Each position gets what was
    found *there*.""",
    fails=("one_head",),
    take=lambda clean, places: clean[..., places[::-1], :],
)
patch.fault(
    "every head is patched",
    """You patch all heads at the named positions. Then nobody knows which of them did it: one head
    at a time.""",
    fails=("one_head",),
    heads=lambda head: slice(None),
)
patch.fault(
    "the first head is patched",
    """You patch head 0, whichever is named. Use the number that you were given.""",
    fails=("one_head",),
    heads=lambda head: 0,
)
patch.fault(
    "all heads up to this one",
    """You patch a slice of heads. One head at a time.""",
    fails=("one_head",),
    heads=lambda head: slice(head + 1),
)
patch.fault(
    "only the first text",
    """You patch the first text of the batch and no other one. Axis 0 counts texts; all of them are
    patched.""",
    fails=("one_head",),
    texts=lambda count: [0],
)
patch.fault(
    "an argument is changed in place",
    """You write into the corrupted run that you were given. The next patch would start from a run
    that is patched already. Change a copy.""",
    copy=lambda x: x,
)


patch.fault(
    "added to the corrupted run",
    """You add what the head found in the clean run to what stands there. A patch replaces it.""",
    lambda corrupted, clean, head, positions: swap(corrupted, corrupted + clean, head, positions),
)


@patch("the mean of both runs")
def patch_mean(corrupted, clean, head, positions):
    """You put in the mean of both runs. A patch replaces: the head finds exactly what it found in
    the clean run.
    """
    return swap(corrupted, (corrupted + clean) / 2, head, positions)


# --- recovered ---------------------------------------------------------------------------------


def ahead(logits, right, wrong):
    return (logits.gather(1, right[:, None]) - logits.gather(1, wrong[:, None]))[:, 0]


def share(
    clean,
    corrupted,
    patched,
    right,
    wrong,
    *,
    read=lambda logits: logits,
    words=lambda right, wrong: (right, wrong),
    lead=ahead,
    mean=lambda lead: lead.mean(),
    compare=lambda clean, corrupted, patched: (patched - corrupted) / (clean - corrupted),
    finish=lambda share: share,
):
    pair = words(right, wrong)
    return finish(compare(*(mean(lead(read(x), *pair)) for x in (clean, corrupted, patched))))


back = WrongAnswers("recovered", tests=("by_hand", "texts"), right=share)


@witnesses(of="recovered")
def recovered_calls(draw):
    for texts, words in ((1, 2), (3, 5), (4, 4), (7, 3)):
        right = draw.integers(0, words, texts)
        wrong = (right + 1 + draw.integers(0, words - 1, texts)) % words
        runs = [draw.normal(texts, words) for _ in range(3)]
        lift = torch.nn.functional.one_hot(right, words)
        yield call(runs[0] + 6 * lift, runs[1], runs[2] + 2 * lift, right, wrong)
        yield call(runs[0] + 6 * lift, runs[1], runs[2] - 6 * lift, right, wrong)
        yield call(runs[0] + 2 * lift, runs[1] - 2 * lift, runs[2] + 9 * lift, right, wrong)


back.fault(
    "the right word's logit alone",
    """You look at the logit of the right word and not at the other one. A change that raises all
    logits changes no answer: take the difference of the two.""",
    lead=lambda logits, right, wrong: logits.gather(1, right[:, None])[:, 0],
)
back.fault(
    "the wrong word's logit alone",
    """You look at the logit of the wrong word and not at the right one. The lead is the difference
    of the two.""",
    lead=lambda logits, right, wrong: logits.gather(1, wrong[:, None])[:, 0],
)
back.fault(
    "the sum of both logits",
    """You add the two logits. The lead is by how much the right word is ahead of the wrong one.""",
    lead=lambda logits, right, wrong: (
        logits.gather(1, right[:, None]) + logits.gather(1, wrong[:, None])
    )[:, 0],
)
back.fault(
    "the size of the lead",
    """You take the absolute value. A lead may be negative: then the wrong word is ahead.""",
    lead=lambda logits, right, wrong: ahead(logits, right, wrong).abs(),
)
back.fault(
    "the right word against all others",
    """You compare with the mean, or the largest, of all logits. The lead is that over the one word
    that is named.""",
    fails=("texts",),
    lead=lambda logits, right, wrong: logits.gather(1, right[:, None])[:, 0] - logits.mean(1),
)
back.fault(
    "the right word against the likeliest",
    """You compare with the largest logit. The lead is that over the one word that is named.""",
    lead=lambda logits, right, wrong: logits.gather(1, right[:, None])[:, 0] - logits.amax(1),
)
back.fault(
    "how often the right word is ahead",
    """You count the texts in which the right word wins. That changes in steps; the lead is a
    difference of logits.""",
    lead=lambda logits, right, wrong: (ahead(logits, right, wrong) > 0).to(logits.dtype),
)
back.fault(
    "not measured from the corrupted run",
    """You divide the patched lead by the clean one. A patch that does nothing would then have a
    score of its own: measure from the corrupted run, above and below.""",
    compare=lambda clean, bad, patched: patched / clean,
)
back.fault(
    "measured from 0 below",
    """You divide by the clean lead. What could come back is the way from the corrupted run to the
    clean one.""",
    compare=lambda clean, bad, patched: (patched - bad) / clean,
)
back.fault(
    "measured from 0 above",
    """You divide the whole patched lead by the way from the corrupted run to the clean one.
    Measure it from the corrupted run, too.""",
    compare=lambda clean, bad, patched: patched / (clean - bad),
)
back.fault(
    "measured from the clean run",
    """You measure how much is still missing. 0 should mean that the patch did nothing, 1 that it
    brought everything back; you have it the other way round.""",
    compare=lambda clean, bad, patched: (clean - patched) / (clean - bad),
)
back.fault(
    "missing over brought back",
    """You divide what is still missing by what has come back. The whole way is the divisor.""",
    compare=lambda clean, bad, patched: (clean - patched) / (patched - bad),
)
back.fault(
    "turned round",
    """You divide the way from the corrupted run to the clean one by what came back. It is the
    other way round.""",
    compare=lambda clean, bad, patched: (clean - bad) / (patched - bad),
)
back.fault(
    "the sign of the way",
    """Your result has the wrong sign: the differences above and below the line run in opposite
    directions.""",
    compare=lambda clean, bad, patched: (patched - bad) / (bad - clean),
)
back.fault(
    "not divided",
    """You return by how much the lead grew. In a model with larger logits the same patch would
    seem larger: divide by the way from the corrupted run to the clean one.""",
    compare=lambda clean, bad, patched: patched - bad,
)
back.fault(
    "a share for each text, then the mean",
    """You divide text by text and average the shares. A text in which the corruption changed
    little has a divisor near 0 and drowns all others: average the leads first.""",
    fails=("texts",),
    mean=lambda lead: lead,
    finish=lambda share: share.mean(),
)
back.fault(
    "one share for each text",
    """You return a number for each text. Asked is one for all of them, from the leads averaged
    over the texts.""",
    mean=lambda lead: lead,
)
back.fault(
    "the first text alone",
    """You take the lead of the first text. It is averaged over the texts.""",
    fails=("texts",),
    mean=lambda lead: lead[0],
)
back.fault(
    "probabilities instead of logits",
    """You take the softmax first. That is another measure, which hardly moves near 0 and 1; here
    the lead is a difference of logits.""",
    read=lambda logits: logits.softmax(-1),
)
back.fault(
    "the first text's words for all",
    """You take the two words of the first text for all texts. Each text has a right word and a
    wrong one of its own.""",
    fails=("texts",),
    words=lambda right, wrong: (right[:1].expand_as(right), wrong[:1].expand_as(wrong)),
)
back.fault(
    "cut off to 0 and 1",
    """You cut the result off at 0 and 1. It may be negative, or larger than 1.""",
    fails=("texts",),
    finish=lambda share: share.clamp(0, 1),
)

# --- logit_attribution -------------------------------------------------------------------------


def attribute(
    parts,
    scale,
    unembedding,
    word,
    *,
    sum=lambda parts: parts.sum(0),
    spread=lambda total: total.var(correction=0) + 1e-5,
    divisor=lambda parts, total, spread: spread(total).sqrt(),
    centre=lambda parts: parts - parts.mean(-1, keepdim=True),
    stretch=lambda x, scale: x * scale,
    push=lambda table, word: table[word] - table.mean(0),
    finish=lambda shares: shares,
):
    by = divisor(parts, sum(parts), spread)
    return finish(stretch(centre(parts) / by, scale) @ push(unembedding, word))


logits = WrongAnswers("logit_attribution", tests=("one_part", "parts"), right=attribute)


@witnesses(of="logit_attribution")
def logit_calls(draw):
    yield call(draw.normal(1, 3), torch.ones(3), draw.normal(2, 3), 0)
    for count, size, words in ((2, 3, 2), (4, 5, 7), (3, 3, 3), (6, 4, 5)):
        parts, scale = draw.normal(count, size), 1 + draw.uniform(size)
        yield call(parts, scale, draw.normal(words, size), words // 2)


logits.fault(
    "each part has a divisor of its own",
    """You normalise every part by itself. A tiny part would get as large a share as a big one, and
    the shares would not add up: the divisor is that of the sum.""",
    fails=("parts",),
    divisor=lambda parts, total, spread: (parts.var(-1, correction=0, keepdim=True) + 1e-5).sqrt(),
)
logits.fault(
    "the divisor of all elements",
    """You take the variance of all elements of all parts. The norm sees one vector, the sum of the
    parts.""",
    fails=("parts",),
    divisor=lambda parts, total, spread: spread(parts).sqrt(),
)
logits.fault(
    "the norm is left out",
    """You multiply the parts by the output table as they are. Between the stream and the table
    stands a layer norm, with a divisor and a scale.""",
    divisor=lambda parts, total, spread: 1.0,
)
logits.fault(
    "divided by the variance",
    """You divide by the variance. The norm divides by its root, the standard deviation.""",
    divisor=lambda parts, total, spread: spread(total),
)
logits.fault(
    "the mean of the parts instead of their sum",
    """You take the variance of the mean of the parts. The vector of the residual stream is their
    sum.""",
    fails=("parts",),
    sum=lambda parts: parts.mean(0),
)
logits.fault(
    "the last part alone",
    """You take the variance of the last part. The vector of the residual stream is the sum of
    all.""",
    fails=("parts",),
    sum=lambda parts: parts[-1],
)
logits.fault(
    "the variance is divided by D less one",
    """Your variance is the estimate for a sample, divided by one less than the number of elements.
    A layer norm divides by all of them.""",
    spread=lambda total: total.var() + 1e-5,
)
logits.fault(
    "the mean square instead of the variance",
    """You divide by the root of the mean square: an RMS norm. A layer norm takes the mean out
    before it squares.""",
    spread=lambda total: total.square().mean() + 1e-5,
)
logits.fault(
    "divided by the length",
    """You divide by the length of the centred sum. The norm divides by the root of the *mean*
    square.""",
    spread=lambda total: (total - total.mean()).square().sum() + 1e-5,
)
logits.fault(
    "the mean of a part stays",
    """You leave the mean of each part in. A layer norm takes it out of the sum, so that every part
    has to give up its own.""",
    centre=lambda parts: parts,
)
logits.fault(
    "the mean of the sum is taken from each part",
    """You take the mean of the whole sum out of every part. Together they give up that mean once:
    each gives up its own.""",
    fails=("parts",),
    centre=lambda parts: parts - parts.sum(0).mean(),
)
logits.fault(
    "the mean over the parts is taken out",
    """You take out the mean over the parts, element by element. A norm looks along the elements of
    a vector.""",
    centre=lambda parts: parts - parts.mean(0),
)
logits.fault(
    "the mean of everything is taken out",
    """You take the mean of all elements of all parts out of each. Every part gives up its own
    mean.""",
    fails=("parts",),
    centre=lambda parts: parts - parts.mean(),
)
logits.fault(
    "the scale of the norm is left out",
    """You leave out the learned scale of the norm. It stretches some elements and shrinks others
    before the table sees them.""",
    fails=("parts",),
    stretch=lambda x, scale: x,
)
logits.fault(
    "divided by the scale",
    """You divide by the learned scale of the norm. It multiplies.""",
    fails=("parts",),
    stretch=lambda x, scale: x / scale,
)
logits.fault(
    "1 plus the scale",
    """You multiply by 1 plus the scale. Some models store it like that; here a scale of 1 changes
    nothing.""",
    stretch=lambda x, scale: x * (1 + scale),
)
logits.fault(
    "the mean of the table stays",
    """You use the word's row of the output table as it is. A part that raises all logits alike
    changes no chance: take the mean row off.""",
    push=lambda table, word: table[word],
)
logits.fault(
    "the mean over the elements of the row",
    """You take the mean of the word's row out of it. What is taken off is the mean row of the
    table, over the words.""",
    push=lambda table, word: table[word] - table[word].mean(),
)
logits.fault(
    "one number for the mean of the table",
    """You take the mean of all elements of the table. What is taken off is a row: the mean over the
    words.""",
    push=lambda table, word: table[word] - table.mean(),
)
logits.fault(
    "the mean of the other words",
    """You take the mean of the other rows. It runs over all words, the named one included.""",
    push=lambda table, word: table[word] - (table.sum(0) - table[word]) / (len(table) - 1),
)
logits.fault(
    "the share of every word",
    """You return a table, a share of every word's logit. Only the named word was asked for.""",
    push=lambda table, word: (table - table.mean(0)).T,
)
logits.fault(
    "the whole logit",
    """You return one number, the sum of all shares. Asked is who wrote it: a number for each
    part.""",
    fails=("parts",),
    finish=lambda shares: shares.sum(0, keepdim=True),
)
logits.fault(
    "shares of one",
    """You divide the shares by their sum. They add up to the logit, not to one.""",
    finish=lambda shares: shares / shares.sum(0),
)

# --- the repair and the test -------------------------------------------------------------------


def project(
    found,
    weight,
    bias,
    head,
    *,
    copy=torch.clone,
    out=lambda kept, head: kept[:, head].zero_(),
    join=lambda kept: kept.transpose(1, 2).flatten(2),
    leave=lambda joined, weight: joined @ weight.T,
    shift=torch.add,
):
    kept = copy(found)
    out(kept, head)
    return shift(leave(join(kept), weight), bias)


def unmoved(kept):
    return kept.reshape(len(kept), kept.shape[2], -1)


fixed = WrongAnswers("fixed_projection", tests=("one_position", "positions"), right=project)


@witnesses(of="fixed_projection")
def projection_calls(draw):
    for b, h, length, e, d in ((1, 2, 1, 2, 4), (2, 3, 5, 2, 7), (2, 2, 2, 2, 4), (3, 2, 1, 3, 5)):
        yield call(draw.normal(b, h, length, e), draw.normal(d, h * e), draw.normal(d), h - 1)


fixed.fault(
    "both faults are still there",
    """This is the broken code as it stands. Ask what the caller's tensor looks like afterwards,
    and which numbers a row of the joined table holds.""",
    copy=lambda x: x,
    join=unmoved,
)
fixed.fault(
    "still reshaped without exchanging axes",
    """The caller's tensor is safe now. But a reshape keeps the order of the numbers, and positions
    stand behind heads in it: the rows are pieced together from several positions.""",
    fails=("positions",),
    join=unmoved,
)
fixed.fault(
    "joined in turns",
    """You put the elements of the heads together in turns: the first of every head, then the
    second. The elements of head 0 stand first in `weight`.""",
    join=lambda kept: kept.permute(0, 2, 3, 1).flatten(2),
)
fixed.fault(
    "still written into the argument",
    """The heads are joined rightly now. But the tensor that you were given has lost a head for
    good: the next experiment with it would be about two heads.""",
    copy=lambda x: x,
)
fixed.fault(
    "the head is left in",
    """The heads are joined rightly, and all of them take part. Setting one to zero was right in
    the broken code; only where it was written was not.""",
    out=lambda kept, head: None,
)
fixed.fault(
    "the others are taken out",
    """You keep the named head and take out all others. It is the named one that goes.""",
    out=lambda kept, head: kept.mul_((torch.arange(kept.shape[1]) == head)[:, None, None]),
)
fixed.fault(
    "one element instead of the head",
    """You set one element of the joined table to zero. A head has E of them, from head * E on.""",
    out=lambda kept, head: kept[:, head // kept.shape[-1], :, head % kept.shape[-1]].zero_(),
)
fixed.fault(
    "the bias is gone",
    """You leave the bias out. It belongs to no head: taking one out does not touch it.""",
    shift=lambda y, bias: y,
)


checks = WrongAnswers("check_induction", tests=("plain", "mutants"))


@witnesses(of="check_induction")
def check_calls(draw):
    for candidate in (
        score,
        lambda weights, tokens: weights.new_zeros(len(weights)),
        lambda weights, tokens: score(weights, tokens, move=lambda marks: marks),
        lambda weights, tokens: score(weights, tokens, count=len),
        lambda weights, tokens: weights,
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


@checks("accepts everything")
def check_nothing(candidate):
    """Your test returns True whatever it is given. Call the candidate and compare what comes back
    with numbers of your own.
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
    """You compare the shape of the answer and no value in it. Nearly all wrong scores have the
    right shape.
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
    """You check that the scores lie between 0 and 1. So do those of most wrong answers; compare
    with what you have counted yourself.
    """
    weights = torch.ones(2, 5, 5).tril() / torch.arange(1, 6)[:, None]
    try:
        got = candidate(weights, torch.tensor([1, 2, 1, 2, 1]))
        return bool((got >= 0).all() and (got <= 1).all())
    except Exception:
        return False
