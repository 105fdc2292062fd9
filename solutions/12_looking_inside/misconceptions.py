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
    "You sum the weights on the earlier copy. An induction head attends to the position after it.",
    but=("no_repeat",),
    move=lambda marks: marks,
)
induction.fault(
    "the position before the earlier copy",
    "You sum the weights on the position *before* the earlier copy. Shift the marks the other way.",
    but=("no_repeat",),
    move=lambda marks: torch.cat([marks[:, 1:], marks[:, :1] & False], dim=-1),
)
induction.fault(
    "two positions after the copy",
    "You shift the marks by two positions. Shift them by one.",
    but=("no_repeat",),
    move=lambda marks: moved(marks, 2),
)
induction.fault(
    "rows shifted instead of columns",
    "You shift the marks down by one row. Shift them along the keys, the columns.",
    but=("no_repeat",),
    move=lambda marks: moved(marks.T).T,
)
induction.fault(
    "later copies count too",
    """You also count positions after *later* copies of the token. Only earlier copies count, even
    if the weights are not causal.""",
    fails=("texts", "gradient"),
    earlier=lambda tokens: alike(tokens) & ~torch.eye(len(tokens), dtype=torch.bool),
    count=lambda copies: repeats(copies.tril()),
)
induction.fault(
    "later copies count too, also in the mean",
    "You count later copies, both in the weights and in the mean. Only earlier copies count.",
    but=("no_repeat",),
    earlier=lambda tokens: alike(tokens) & ~torch.eye(len(tokens), dtype=torch.bool),
)
induction.fault(
    "only later copies",
    "You count positions after *later* copies: you keep the wrong triangle.",
    but=("no_repeat",),
    earlier=lambda tokens: alike(tokens).triu(1),
)
induction.fault(
    "the token counts as its own copy",
    "You count a token as an earlier copy of itself. Exclude the diagonal before you shift.",
    fails=("texts", "gradient"),
    earlier=lambda tokens: alike(tokens).tril(),
    count=lambda copies: repeats(copies.tril(-1)),
)
induction.fault(
    "the marks wrap around",
    """You shift the marks with a roll, so marks from the last column reappear in column 0. No token
    precedes the first one.""",
    earlier=alike,
    move=lambda marks: marks.roll(1, -1).tril(),
    count=lambda copies: repeats(copies.tril(-1)),
)
induction.fault(
    "the token's own position is left out",
    """You exclude the token's own position. If a token occurs twice in succession, that position
    follows the copy and counts.""",
    fails=("texts", "gradient"),
    pick=lambda marks: marks.tril(-1),
)
induction.fault(
    "only the latest copy",
    """You count only the position after the latest copy. The weights after all earlier copies
    count.""",
    fails=("texts", "gradient"),
    pick=lambda marks: marks & (marks.flip(-1).cumsum(-1).flip(-1) == 1),
)
induction.fault(
    "only the first copy",
    "You count only the position after the first copy. The weights after all earlier copies count.",
    fails=("texts", "gradient"),
    pick=lambda marks: marks & (marks.cumsum(-1) == 1),
)
induction.fault(
    "the mean over the copies",
    "You average over the copies of a token. Add up the weights after all of them.",
    fails=("texts", "gradient"),
    pick=lambda marks: marks / marks.sum(-1, keepdim=True).clamp(min=1),
)
induction.fault(
    "divided by all positions",
    """You divide by the number of positions in the text. Only positions whose token occurred before
    count.""",
    but=("no_repeat",),
    count=len,
)
induction.fault(
    "divided by all positions but the first",
    """You divide by the number of positions minus one. Only positions whose token occurred before
    count.""",
    but=("no_repeat",),
    count=lambda copies: len(copies) - 1,
)
induction.fault(
    "divided by the number of pairs",
    """You divide by the number of pairs of equal tokens. Count positions whose token occurred
    before, not pairs.""",
    fails=("texts", "gradient"),
    count=lambda copies: copies.sum().clamp(min=1),
)
induction.fault(
    "divided by the number of different tokens",
    """You divide by the number of distinct repeated tokens. Count each *position* whose token
    occurred before.""",
    fails=("texts", "gradient"),
    count=lambda copies: max(1, int((copies.any(0) & ~copies.any(1)).sum())),
)
induction.fault(
    "NaN where no token repeats",
    "You divide 0 by 0 if no token occurs twice. The contract sets this score to 0.",
    fails=("texts", "no_repeat"),
    count=lambda copies: copies.any(-1).sum(),
)
induction.fault(
    "summed, not averaged",
    """You sum the weights over all positions. Divide by the number of positions whose token
    occurred before.""",
    fails=("texts", "gradient"),
    count=lambda copies: 1,
)
induction.fault(
    "one number for all heads",
    "You average over the heads. Return one score per head.",
    fails=("texts", "gradient"),
    finish=lambda score: score.mean(0, keepdim=True),
)


@induction("rows and columns exchanged", but=("no_repeat",))
def induction_transposed(weights, tokens):
    """Your marks are transposed relative to the weights. Rows are queries and columns are keys in
    both.
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
    "not divided by the maximum",
    "You return the entropy itself. Divide each row by the largest entropy that it can have.",
    most=lambda w: 1.0,
)
entropy.fault(
    "divided by the maximum of the longest row",
    """You divide every row by the maximum of the last row. Position i has i + 1 keys, so each row
    has its own maximum.""",
    fails=("heads",),
    most=lambda w: possible(w)[-1],
)
entropy.fault(
    "divided by the number of keys",
    "You divide by the number of keys. The largest entropy is its logarithm.",
    most=lambda w: possible(w).exp(),
)
entropy.fault(
    "one key too many",
    "You divide the row of position i by ln(i + 2). It has the keys 0 to i: count them.",
    most=lambda w: possible(w, 3),
)
entropy.fault(
    "one key too few",
    """You divide the row of position i by ln(i), which is 0 for position 1. It has the keys 0 to i:
    count them.""",
    most=lambda w: possible(w, 1),
)
entropy.fault(
    "the first position counts in the mean",
    "Your mean includes position 0. It has only one key and is left out.",
    share=lambda rows, most: (rows / most).sum(-1) / (rows.shape[-1] + 1),
)
entropy.fault(
    "the first position is divided by 0",
    "You divide the first row by ln(1) = 0, which gives NaN. Leave out position 0.",
    lambda weights: (row_entropy(weights) / torch.arange(1, weights.shape[-1] + 1).log()).mean(-1),
)
entropy.fault(
    "divided after the mean",
    "You average the entropies and the maxima before you divide. Divide row by row, then average.",
    fails=("heads",),
    share=lambda rows, most: rows.mean(-1) / most.mean(),
)
entropy.fault(
    "summed, not averaged",
    "You sum over the rows. The score is a mean over the positions.",
    fails=("heads",),
    share=lambda rows, most: (rows / most).sum(-1),
)
entropy.fault(
    "the last row alone",
    "You use only the last row. The score is a mean over all positions but the first.",
    fails=("heads",),
    share=lambda rows, most: (rows / most)[..., -1],
)
entropy.fault(
    "NaN at a weight of 0",
    """You multiply a weight of 0 by its logarithm, which gives NaN. A weight of 0 adds 0 to the
    entropy.""",
    rows=lambda w: -(w * w.log()).sum(-1),
)
entropy.fault(
    "a small number changes the weights",
    "You add a number to the weights that changes the result. A weight of 0 adds exactly 0.",
    rows=lambda w: -((w + 1e-2) * (w + 1e-2).log()).sum(-1),
)
entropy.fault(
    "logarithms without weights",
    "You sum the logarithms without their weights. Multiply each by its weight.",
    rows=lambda w: -w.clamp(min=1e-9).log().sum(-1),
)
entropy.fault(
    "logarithms to the base 2",
    "You use base 2 for the entropy but base e for its maximum. Use one base for both.",
    rows=lambda w: row_entropy(w) / 0.6931471805599453,
)
entropy.fault(
    "the sum of squares",
    "You sum the squares of the weights. The formula has the entropy.",
    rows=lambda w: w.square().sum(-1),
)
entropy.fault(
    "entropy over the queries",
    "You take the entropy of the columns. Each row is a distribution over the keys.",
    rows=lambda w: row_entropy(w.mT),
)
entropy.fault(
    "the sign is missing",
    "Your result is never positive. The formula has a minus sign.",
    finish=lambda score: -score,
)
entropy.fault(
    "one minus the score",
    "You return 1 minus the score. A score of 1 means that every row is even.",
    finish=lambda score: 1 - score,
)
entropy.fault(
    "one number for all heads",
    "You average over the first axis. Keep all leading axes.",
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
    "without the residual connection",
    "You multiply the plain weights. Mix each layer with the identity first.",
    mix=lambda layer, identity, r: layer,
)
rollout.fault(
    "the identity is added, not mixed in",
    "You add the identity without weighting, so rows sum to 2. The two shares sum to one.",
    mix=lambda layer, identity, r: layer + identity,
)
rollout.fault(
    "the weights keep their whole share",
    "You add r times the identity to the unscaled weights. The two shares sum to one.",
    mix=lambda layer, identity, r: layer + r * identity,
)
rollout.fault(
    "even weights instead of the identity",
    "You mix with uniform weights. The residual connection keeps each position: use the identity.",
    mix=lambda layer, identity, r: (1 - r) * layer + r / len(layer),
)
rollout.fault(
    "layers in the wrong order",
    "You multiply in the wrong order. Layer 1 acts first, so it is the rightmost factor.",
    but=("by_hand",),
    order=lambda mixed, done: done @ mixed,
)
rollout.fault(
    "multiplied element by element",
    "You multiply element by element. Successive layers need a matrix product.",
    order=lambda mixed, done: mixed if bool((done == torch.eye(len(done))).all()) else mixed * done,
)
rollout.fault(
    "layers added",
    "You add the layers. Successive layers need a matrix product.",
    order=lambda mixed, done: mixed + done,
)
rollout.fault(
    "only the last layer",
    "You return only the last layer. Multiply all layers to reach the inputs.",
    layers=lambda layers: layers[-1:],
)
rollout.fault(
    "only the first layer",
    "You return only the first layer. Check what your loop keeps from layer to layer.",
    layers=lambda layers: layers[:1],
)
rollout.fault(
    "the last layer is missing",
    "You leave out the last layer. Multiply all layers.",
    layers=lambda layers: layers[:-1],
)
rollout.fault(
    "the first layer is missing",
    "You leave out the first layer. Start the product from the identity or from the first layer.",
    layers=lambda layers: layers[1:],
)
rollout.fault(
    "layers averaged",
    "You average the layers. Successive layers need a matrix product.",
    layers=lambda layers: layers.mean(0, keepdim=True),
)
rollout.fault(
    "heads summed",
    "You sum the heads, so rows no longer sum to one. Average them.",
    but=("by_hand",),
    join=lambda w: w.sum(1),
)
rollout.fault(
    "only the first head",
    "You use only head 0. Rollout averages the heads of a layer.",
    but=("by_hand",),
    join=lambda w: w[:, 0],
)
rollout.fault(
    "the largest of the heads",
    "You take the maximum over the heads, so rows sum to more than one. Average the heads.",
    but=("by_hand",),
    join=lambda w: w.amax(1),
)
rollout.fault(
    "layers and heads exchanged",
    "You average over the layers and multiply the heads. Axis 0 is the layers, axis 1 the heads.",
    join=lambda w: w.mean(0),
)
rollout.fault(
    "`residual` ignored",
    "You always use a residual share of one half. Use the argument `residual`.",
    but=("by_hand",),
    share=lambda r: 0.5,
)
rollout.fault(
    "the shares are exchanged",
    "You give the share `residual` to the attention. It belongs to the identity.",
    but=("by_hand",),
    share=lambda r: 1 - r,
)
rollout.fault(
    "inputs by outputs",
    "Your result is transposed. Rows are outputs, columns are inputs.",
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
    'You always set heads to zero. With `how = "mean"` use the head\'s mean.',
    but=("zero",),
    way=lambda how: "zero",
)
ablate.fault(
    "always the mean",
    'You always use the mean. With `how = "zero"` set the head to zero.',
    but=("mean",),
    way=lambda how: "mean",
)
ablate.fault(
    "the two ways exchanged",
    'You use the mean for `how = "zero"` and zeros for `how = "mean"`. Exchange them.',
    way=lambda how: "mean" if how == "zero" else "zero",
)
ablate.fault(
    "a mean for each text",
    """You average over the positions of each text, so the mean still depends on the text. Average
    over the texts as well.""",
    fails=("mean", "gradient"),
    mean=lambda found, head: found[:, head].mean(1, keepdim=True),
)
ablate.fault(
    "a mean for each position",
    "You average over the texts at each position. Average over the positions as well.",
    but=("zero",),
    mean=lambda found, head: found[:, head].mean(0, keepdim=True),
)
ablate.fault(
    "one number for the whole head",
    "You average over the elements, too. The mean of a head is a vector of E numbers.",
    fails=("mean", "gradient"),
    mean=lambda found, head: found[:, head].mean(),
)
ablate.fault(
    "a mean over the elements",
    "You average over the elements of each vector. Average over texts and positions.",
    but=("zero",),
    mean=lambda found, head: found[:, head].mean(-1, keepdim=True),
)
ablate.fault(
    "the mean of all heads",
    "You use the mean of all heads. Each head gets its *own* mean.",
    fails=("mean", "gradient"),
    mean=lambda found, head: found.mean((0, 1, 2)),
)
ablate.fault(
    "the mean over the heads",
    """You use the mean over the heads at each position. Each head gets its *own* mean over texts
    and positions.""",
    but=("zero",),
    mean=lambda found, head: found.mean(1),
)
ablate.fault(
    "the sum instead of the mean",
    "You use the sum over texts and positions. Divide by their number.",
    but=("zero",),
    mean=lambda found, head: found[:, head].sum((0, 1)),
)
ablate.fault(
    "the mean of the first text",
    "You use the mean of the first text for all texts. Average over all texts and positions.",
    fails=("mean", "gradient"),
    mean=lambda found, head: found[0, head].mean(0),
)
ablate.fault(
    "the mean passes no gradient",
    """You detach the mean (detach, no_grad or item). A head that is set to its mean should pass a
    gradient.""",
    fails=("gradient",),
    mean=lambda found, head: found[:, head].mean((0, 1)).detach(),
)
ablate.fault(
    "the zeros pass a gradient",
    """You compute the zeros from the head itself, so it still passes a gradient. Use constant
    zeros.""",
    fails=("gradient",),
    zero=lambda found, head: found[:, head] - found[:, head].detach(),
)
ablate.fault(
    "the other heads are replaced",
    "You replace every head that is *not* in the list. Replace those in the list.",
    which=lambda heads, count: [h for h in range(count) if h not in heads],
)
ablate.fault(
    "only the first of the list",
    "You replace only the first head of the list. Replace all of them.",
    fails=("zero", "mean"),
    which=lambda heads, count: heads[:1],
)
ablate.fault(
    "only the last of the list",
    """You replace only the last head of the list, perhaps because each step starts again from
    `found`. Replace all of them.""",
    fails=("zero", "mean"),
    which=lambda heads, count: heads[-1:],
)
ablate.fault(
    "the first heads instead of the named ones",
    "You replace the right number of heads, counted from head 0. Use the indices in the list.",
    but=("by_hand",),
    which=lambda heads, count: range(len(heads)),
)
ablate.fault(
    "all heads",
    "You replace every head. Replace only those in the list.",
    but=("by_hand",),
    which=lambda heads, count: range(count),
)
ablate.fault(
    "the next head",
    "You replace the head after each listed one. Heads count from 0.",
    but=("by_hand",),
    which=lambda heads, count: [(h + 1) % count for h in heads],
)
ablate.in_place(fails=("by_hand", "zero", "mean"))
ablate.detached()


@ablate("positions instead of heads")
def ablate_positions(found, heads, how):
    """You index axis 2, the positions. Heads are axis 1 of (B, H, L, E)."""
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
    "You patch the corrupted run into the clean one. Patch the clean run into the corrupted one.",
    runs=lambda corrupted, clean: (clean, corrupted),
)
patch.fault(
    "nothing is patched",
    "You return the corrupted run unchanged. The named head gets its output from the clean run.",
    runs=lambda corrupted, clean: (corrupted, corrupted),
)
patch.fault(
    "the clean run is returned",
    "You return the clean run. Take only the named head and positions from it.",
    runs=lambda corrupted, clean: (clean, clean),
)
patch.fault(
    "every position is patched",
    "You patch the head at all positions. Patch only those in the list.",
    where=lambda places, length: list(range(length)),
)
patch.fault(
    "all positions but these",
    "You patch every position that is *not* in the list. Patch those in the list.",
    where=lambda places, length: [i for i in range(length) if i not in places],
)
patch.fault(
    "everything from the first to the last",
    "You patch everything from the first to the last listed position. The list may have gaps.",
    fails=("one_head",),
    where=lambda places, length: list(range(places[0], places[-1] + 1)) if places else [],
)
patch.fault(
    "from the first up to the last",
    "You patch a slice that excludes the last listed position. The list holds single positions.",
    where=lambda places, length: list(range(places[0], places[-1])) if places else [],
)
patch.fault(
    "only the first of the positions",
    "You patch only the first position of the list. Patch all of them.",
    fails=("one_head",),
    where=lambda places, length: places[:1],
)
patch.fault(
    "only the last of the positions",
    """You patch only the last position of the list, perhaps because each step starts again from the
    corrupted run. Patch all of them.""",
    fails=("one_head",),
    where=lambda places, length: places[-1:],
)
patch.fault(
    "the position after",
    "You patch the position after each listed one. Positions count from 0.",
    where=lambda places, length: [(i + 1) % length for i in places],
)
patch.fault(
    "the first positions instead of the named ones",
    "You patch the right number of positions, counted from 0. Use the indices in the list.",
    where=lambda places, length: list(range(len(places))),
)
patch.fault(
    "the clean run's first positions",
    """You insert the clean outputs of the first positions. Each position gets the clean output of
    the *same* position.""",
    take=lambda clean, places: clean[..., : len(places), :],
)
patch.fault(
    "the clean run's first position everywhere",
    """You insert the clean output of position 0 at all listed positions. Each gets the clean output
    of the *same* position.""",
    take=lambda clean, places: clean[..., :1, :],
)
patch.fault(
    "the mean of the positions",
    """You insert the mean over the listed positions. Each gets the clean output of the *same*
    position.""",
    fails=("one_head",),
    take=lambda clean, places: clean[..., places, :].mean(-2, keepdim=True),
)
patch.fault(
    "the order of the list",
    "You sort the positions on one side only. Each gets the clean output of the *same* position.",
    fails=("one_head",),
    take=lambda clean, places: clean[..., sorted(places), :],
)
patch.fault(
    "positions reversed",
    """You read the listed positions of the clean run in reverse order. Each gets the clean output
    of the *same* position.""",
    fails=("one_head",),
    take=lambda clean, places: clean[..., places[::-1], :],
)
patch.fault(
    "every head is patched",
    "You patch all heads at the listed positions. Patch only `head`.",
    fails=("one_head",),
    heads=lambda head: slice(None),
)
patch.fault(
    "the first head is patched",
    "You always patch head 0. Use the argument `head`.",
    fails=("one_head",),
    heads=lambda head: 0,
)
patch.fault(
    "all heads up to this one",
    "You patch all heads up to the named one. Patch only `head`.",
    fails=("one_head",),
    heads=lambda head: slice(head + 1),
)
patch.fault(
    "only the first text",
    "You patch only the first text of the batch. Patch all texts.",
    fails=("one_head",),
    texts=lambda count: [0],
)
patch.fault(
    "an argument is changed in place",
    """You write into the argument `corrupted`, so the next patch starts from a patched run. Change
    a copy.""",
    copy=lambda x: x,
)


patch.fault(
    "added to the corrupted run",
    "You add the clean output to the corrupted one. A patch replaces it.",
    lambda corrupted, clean, head, positions: swap(corrupted, corrupted + clean, head, positions),
)


@patch("the mean of both runs")
def patch_mean(corrupted, clean, head, positions):
    """You insert the mean of both runs. A patch uses the clean output alone."""
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
    "only the right token's logit",
    "You use only the logit of the right token. The lead is the difference of the two logits.",
    lead=lambda logits, right, wrong: logits.gather(1, right[:, None])[:, 0],
)
back.fault(
    "only the wrong token's logit",
    "You use only the logit of the wrong token. The lead is the difference of the two logits.",
    lead=lambda logits, right, wrong: logits.gather(1, wrong[:, None])[:, 0],
)
back.fault(
    "the sum of both logits",
    "You add the two logits. The lead is their difference.",
    lead=lambda logits, right, wrong: (
        logits.gather(1, right[:, None]) + logits.gather(1, wrong[:, None])
    )[:, 0],
)
back.fault(
    "the size of the lead",
    "You take the absolute value of the lead. It is negative when the wrong token is ahead.",
    lead=lambda logits, right, wrong: ahead(logits, right, wrong).abs(),
)
back.fault(
    "the right token against the mean",
    "You subtract the mean of all logits. Subtract the logit of the wrong token.",
    fails=("texts",),
    lead=lambda logits, right, wrong: logits.gather(1, right[:, None])[:, 0] - logits.mean(1),
)
back.fault(
    "the right token against the most likely",
    "You subtract the largest logit. Subtract the logit of the wrong token.",
    lead=lambda logits, right, wrong: logits.gather(1, right[:, None])[:, 0] - logits.amax(1),
)
back.fault(
    "how often the right token is ahead",
    "You count the texts in which the right token is ahead. The lead is a difference of logits.",
    lead=lambda logits, right, wrong: (ahead(logits, right, wrong) > 0).to(logits.dtype),
)
back.fault(
    "not measured from the corrupted run",
    "You divide the patched lead by the clean one. Subtract the corrupted lead from both.",
    compare=lambda clean, bad, patched: patched / clean,
)
back.fault(
    "the divisor measured from 0",
    "You divide by the clean lead. Divide by the clean lead minus the corrupted one.",
    compare=lambda clean, bad, patched: (patched - bad) / clean,
)
back.fault(
    "the numerator measured from 0",
    "Your numerator is the patched lead. Subtract the corrupted lead from it.",
    compare=lambda clean, bad, patched: patched / (clean - bad),
)
back.fault(
    "measured from the clean run",
    "You return the share that is still missing. Return the recovered share.",
    compare=lambda clean, bad, patched: (clean - patched) / (clean - bad),
)
back.fault(
    "missing over recovered",
    """You divide the missing lead by the recovered one. Divide the recovered one by the whole
    difference.""",
    compare=lambda clean, bad, patched: (clean - patched) / (patched - bad),
)
back.fault(
    "inverted",
    "Your fraction is inverted. Divide the recovered lead by the whole difference.",
    compare=lambda clean, bad, patched: (clean - bad) / (patched - bad),
)
back.fault(
    "the sign of the divisor",
    "Your result has the wrong sign: numerator and divisor are differences in opposite directions.",
    compare=lambda clean, bad, patched: (patched - bad) / (bad - clean),
)
back.fault(
    "not divided",
    """You return the increase of the lead. Divide it by the difference of the clean and the
    corrupted lead.""",
    compare=lambda clean, bad, patched: patched - bad,
)
back.fault(
    "a share for each text, then the mean",
    """You average the shares of the texts, where a divisor near 0 dominates. Average the leads
    first, then divide.""",
    fails=("texts",),
    mean=lambda lead: lead,
    finish=lambda share: share.mean(),
)
back.fault(
    "one share for each text",
    "You return one number per text. Average the leads over the texts first.",
    mean=lambda lead: lead,
)
back.fault(
    "the first text alone",
    "You use only the lead of the first text. Average over the texts.",
    fails=("texts",),
    mean=lambda lead: lead[0],
)
back.fault(
    "probabilities instead of logits",
    "You apply a softmax first. The lead is a difference of logits.",
    read=lambda logits: logits.softmax(-1),
)
back.fault(
    "the first text's tokens for all",
    "You use the two tokens of the first text for all texts. Each text has its own pair.",
    fails=("texts",),
    words=lambda right, wrong: (right[:1].expand_as(right), wrong[:1].expand_as(wrong)),
)
back.fault(
    "cut off to 0 and 1",
    "You clip the result to 0 to 1. It may be negative or above 1.",
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
    "each part has its own divisor",
    "You divide each part by its own standard deviation. All parts share the divisor of the sum.",
    fails=("parts",),
    divisor=lambda parts, total, spread: (parts.var(-1, correction=0, keepdim=True) + 1e-5).sqrt(),
)
logits.fault(
    "the divisor of all elements",
    """You take the variance over all elements of all parts. Take the variance of the sum of the
    parts.""",
    fails=("parts",),
    divisor=lambda parts, total, spread: spread(parts).sqrt(),
)
logits.fault(
    "the norm is left out",
    "You leave out the divisor of the norm. Divide by the standard deviation of the sum.",
    divisor=lambda parts, total, spread: 1.0,
)
logits.fault(
    "divided by the variance",
    "You divide by the variance. The norm divides by its root.",
    divisor=lambda parts, total, spread: spread(total),
)
logits.fault(
    "the mean of the parts instead of their sum",
    "You take the variance of the mean of the parts. Take that of their sum.",
    fails=("parts",),
    sum=lambda parts: parts.mean(0),
)
logits.fault(
    "only the last part",
    "You take the variance of the last part. Take that of the sum of all parts.",
    fails=("parts",),
    sum=lambda parts: parts[-1],
)
logits.fault(
    "the unbiased variance",
    "Your variance divides by D - 1, the default of `var`. A layer norm divides by D.",
    spread=lambda total: total.var() + 1e-5,
)
logits.fault(
    "the mean square instead of the variance",
    "You divide by the root of the mean square, as RMS norm does. A layer norm uses the variance.",
    spread=lambda total: total.square().mean() + 1e-5,
)
logits.fault(
    "divided by the length",
    """You divide by the length of the centred sum. The norm divides by the root of its *mean*
    square.""",
    spread=lambda total: (total - total.mean()).square().sum() + 1e-5,
)
logits.fault(
    "the mean of a part stays",
    "You do not subtract the mean of each part. The formula subtracts it.",
    centre=lambda parts: parts,
)
logits.fault(
    "the mean of the sum subtracted from each part",
    "You subtract the mean of the whole sum from every part. Subtract each part's own mean.",
    fails=("parts",),
    centre=lambda parts: parts - parts.sum(0).mean(),
)
logits.fault(
    "the mean over the parts is subtracted",
    "You subtract the mean over the parts. Subtract the mean over the elements of each part.",
    centre=lambda parts: parts - parts.mean(0),
)
logits.fault(
    "the mean of everything is subtracted",
    "You subtract the mean of all elements of all parts. Subtract each part's own mean.",
    fails=("parts",),
    centre=lambda parts: parts - parts.mean(),
)
logits.fault(
    "the scale of the norm is left out",
    "You leave out the learned scale of the norm. Multiply by it before the output matrix.",
    fails=("parts",),
    stretch=lambda x, scale: x,
)
logits.fault(
    "divided by the scale",
    "You divide by the learned scale of the norm. Multiply by it.",
    fails=("parts",),
    stretch=lambda x, scale: x / scale,
)
logits.fault(
    "1 plus the scale",
    "You multiply by 1 + scale. The formula multiplies by the scale.",
    stretch=lambda x, scale: x * (1 + scale),
)
logits.fault(
    "the mean of the table stays",
    "You use the token's row of the output matrix directly. Subtract the mean row.",
    push=lambda table, word: table[word],
)
logits.fault(
    "the mean over the elements of the row",
    "You subtract the mean of the token's own row. Subtract the mean row over all tokens.",
    push=lambda table, word: table[word] - table[word].mean(),
)
logits.fault(
    "one number for the mean of the table",
    """You subtract the mean of all elements of the output matrix. Subtract the mean row over all
    tokens.""",
    push=lambda table, word: table[word] - table.mean(),
)
logits.fault(
    "the mean of the other tokens",
    "You subtract the mean of the other rows. The mean includes the token's own row.",
    push=lambda table, word: table[word] - (table.sum(0) - table[word]) / (len(table) - 1),
)
logits.fault(
    "the share of every token",
    "You return the shares for every token. Return only those of the token `word`.",
    push=lambda table, word: (table - table.mean(0)).T,
)
logits.fault(
    "the whole logit",
    "You return the sum of all shares. Return one share per part.",
    fails=("parts",),
    finish=lambda shares: shares.sum(0, keepdim=True),
)
logits.fault(
    "shares of one",
    "You divide the shares by their sum. They should add up to the logit, not to one.",
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
    """This is the broken code. Check the caller's tensor afterwards, and the origin of the numbers
    in one row of the joined heads.""",
    copy=lambda x: x,
    join=unmoved,
)
fixed.fault(
    "still reshaped without swapping axes",
    """The argument is now unchanged. You still reshape without swapping axes, so a row mixes
    several positions.""",
    fails=("positions",),
    join=unmoved,
)
fixed.fault(
    "joined in turn",
    "You interleave the heads when you join them. In `weight` the elements of head 0 come first.",
    join=lambda kept: kept.permute(0, 2, 3, 1).flatten(2),
)
fixed.fault(
    "still written into the argument",
    "The heads are now joined correctly. You still write zeros into the argument `found`.",
    copy=lambda x: x,
)
fixed.fault(
    "the head is left in",
    "You no longer set the head to zero. Set it to zero in a copy.",
    out=lambda kept, head: None,
)
fixed.fault(
    "the other heads are replaced",
    "You keep the named head and set all others to zero. Set only the named one to zero.",
    out=lambda kept, head: kept.mul_((torch.arange(kept.shape[1]) == head)[:, None, None]),
)
fixed.fault(
    "one element instead of the head",
    "You set one element of the joined heads to zero. A head has E elements, from head * E on.",
    out=lambda kept, head: kept[:, head // kept.shape[-1], :, head % kept.shape[-1]].zero_(),
)
fixed.fault(
    "the bias is gone",
    "You leave out the bias. It belongs to no head and stays.",
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
    """You compare only the shape. Most wrong scores have the right shape."""
    try:
        got = candidate(torch.ones(2, 3, 3) / 3, torch.tensor([1, 2, 1]))
    except Exception:
        return False
    return tuple(got.shape) == (2,)


@checks("one repeated sequence", fails=("mutants",))
def check_one_text(candidate):
    """You try only a sequence that is repeated exactly once, where many wrong scores agree with the
    right one. Try other texts.
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
    """You only check that scores lie between 0 and 1, as most wrong scores do. Compare with your
    own numbers.
    """
    weights = torch.ones(2, 5, 5).tril() / torch.arange(1, 6)[:, None]
    try:
        got = candidate(weights, torch.tensor([1, 2, 1, 2, 1]))
        return bool((got >= 0).all() and (got <= 1).all())
    except Exception:
        return False
