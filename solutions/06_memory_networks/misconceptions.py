"""Wrong answers to the memory network exercises: name, message and the tests each must fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

wrong_position_encoding = WrongAnswers("position_encoding", tests=("by_hand", "sizes", "one_word"))
wrong_build_memory = WrongAnswers(
    "build_memory", tests=("words", "ages", "padded_words", "empty_sentences", "gradient")
)
wrong_memory_hop = WrongAnswers(
    "memory_hop", tests=("values", "other_size", "mask", "large_scores", "gradient")
)
wrong_stack_hops = WrongAnswers("stack_hops", tests=("one_hop", "adjacent", "layer_wise", "mask"))
wrong_pointer_chase = WrongAnswers(
    "pointer_chase", tests=("one_step", "many_steps", "no_step", "dead_ends")
)
wrong_fixed_two_hops = WrongAnswers("fixed_two_hops", tests=("one_memory", "second_look"))
wrong_check_hop = WrongAnswers("check_hop", tests=("plain", "mutants"))


def cells(function, *names):
    return [f"{function}-{name}" for name in names]


def place_weights(words, embed_dim):
    j = torch.arange(1, words + 1)[:, None] / words
    k = torch.arange(1, embed_dim + 1) / embed_dim
    return 1 - j - k * (1 - 2 * j)


def ladder(count, size):
    return torch.arange(float(count))[:, None] * 10.0 ** torch.arange(size)


def hops_adjacent(fn, query, memories, mask=None):
    return fn(query, memories, len(memories) - 1, "adjacent", mask=mask)


def hops_layer_wise(fn, query, memories, hops, update, mask=None):
    return fn(query, memories, hops, "layer-wise", update=update, mask=mask)


# --- position_encoding -------------------------------------------------------------------------


@witnesses(of="position_encoding")
def place_calls(draw):
    for words, size in ((1, 1), (2, 2), (3, 2), (2, 5), (7, 11), (1, 6), (5, 1), (4, 4)):
        yield call(words, size)


@wrong_position_encoding("counted from 0")
def places_from_zero(words, embed_dim):
    """Your words and entries are counted from 0, as Python counts. In the formula both counters
    start at 1; look at the value it gives for the last word.
    """
    j = torch.arange(words)[:, None] / words
    k = torch.arange(embed_dim) / embed_dim
    return 1 - j - k * (1 - 2 * j)


@wrong_position_encoding("words counted from 0")
def words_from_zero(words, embed_dim):
    """The entries are counted from 1, the words from 0, so every word has the weights of the one
    before it. Look at where j starts.
    """
    j = torch.arange(words)[:, None] / words
    k = torch.arange(1, embed_dim + 1) / embed_dim
    return 1 - j - k * (1 - 2 * j)


@wrong_position_encoding("entries counted from 0")
def entries_from_zero(words, embed_dim):
    """The words are counted from 1, the entries of a vector from 0, so every entry has the weights
    of the one before it. Look at where k starts.
    """
    j = torch.arange(1, words + 1)[:, None] / words
    k = torch.arange(embed_dim) / embed_dim
    return 1 - j - k * (1 - 2 * j)


@wrong_position_encoding("rows and columns exchanged", but=("by_hand",))
def places_transposed(words, embed_dim):
    """Your table has one row per entry and one column per word. The paper writes it that way; here
    a row belongs to a word, so that it can be multiplied with the word vectors.
    """
    return place_weights(words, embed_dim).T


@wrong_position_encoding("the roles of words and entries exchanged", but=("by_hand",))
def places_swapped(words, embed_dim):
    """You divide the word's number by the size of the vector and the entry's number by the length
    of the sentence. Look at which counter goes with which size.
    """
    j = torch.arange(1, words + 1)[:, None] / embed_dim
    k = torch.arange(1, embed_dim + 1) / words
    return 1 - j - k * (1 - 2 * j)


@wrong_position_encoding("the factor 2 is missing")
def places_without_two(words, embed_dim):
    """In your last bracket j is not doubled, so the weights no longer rise for one half of the entries
    and fall for the other. Compare the last bracket with the formula.
    """
    j = torch.arange(1, words + 1)[:, None] / words
    k = torch.arange(1, embed_dim + 1) / embed_dim
    return 1 - j - k * (1 - j)


@wrong_position_encoding("the released code's variant")
def places_of_the_code(words, embed_dim):
    """This is what the authors' program and many ports of it compute: twice as large and centred half
    a step later. It serves as well, but it is not the printed formula that is asked for here.
    """
    j = torch.arange(1, words + 1)[:, None] - (words + 1) / 2
    k = torch.arange(1, embed_dim + 1) - (embed_dim + 1) / 2
    return 1 + 4 * j * k / (words * embed_dim)


@wrong_position_encoding("the order of words reversed")
def places_backwards(words, embed_dim):
    """Your rows stand in the opposite order: the last word gets the weights of the first one.
    Look at which row the first word reads.
    """
    return place_weights(words, embed_dim).flip(0)


# --- build_memory ------------------------------------------------------------------------------

WORDS, AGES, PADDED, EMPTY, GRADIENT = cells(
    "build_memory", "words", "ages", "padded_words", "empty_sentences", "gradient"
)


@witnesses(of="build_memory")
def memory_calls(draw):
    table, ages = draw.normal(11, 5), draw.normal(9, 5)
    for n in (1, 3, 6):
        yield call(draw.integers(1, 11, n, 4), table, ages)
    story = draw.integers(1, 11, 5, 4)
    story[0, 1:], story[2, 3:], story[4, 2:] = 0, 0, 0
    yield call(story, table, ages)
    for empty in ([0], [4], [1, 3]):
        holes = draw.integers(1, 11, 5, 4)
        holes[empty] = 0
        yield call(holes, table, ages)
        yield call(holes, table, torch.zeros(9, 5))
    yield call(torch.tensor([[2, 4], [6, 0]]), ladder(7, 1), torch.tensor([[100.0], [200.0]]))
    for wrt in (1, 2):
        yield call(
            draw.integers(1, 7, 3, 2),
            draw.normal(7, 3),
            draw.normal(4, 3),
            via=student.grad(wrt),
        )


def memory(
    story,
    table,
    ages,
    *,
    weights=place_weights,
    forward=False,
    count_empty=False,
    fill_empty=False,
    all_words=False,
    longest=False,
    oldest_from_end=False,
):
    """The right answer with one fault at a time."""
    real = (story != 0).any(1)
    count = int(real.sum())
    rows, before = [], 0
    for i, sentence in enumerate(story):
        words = sentence if all_words else sentence[sentence != 0]
        age = (len(story) - 1 - i) if count_empty else count - 1 - before
        if forward:
            age = before
        if oldest_from_end:
            age = len(ages) - 1 - before
        row = torch.zeros_like(table[0])
        if real[i]:
            size = len(sentence) if longest else len(words)
            scale = weights(size, table.shape[1]).to(table.dtype)[: len(words)]
            row = (scale * table[words]).sum(0) + ages[age]
        elif fill_empty:
            row = ages[max(age, 0)] + 0 * table[0]
        rows.append(row)
        before += int(real[i])
    return torch.stack(rows)


@wrong_build_memory("a bag of words")
def memory_bag(story, table, ages):
    """You add the word vectors as they are, so a sentence and the same words in another order become
    one vector. Look at where the weights of exercise 1 enter.
    """
    return memory(story, table, ages, weights=lambda words, size: torch.ones(words, size))


@wrong_build_memory("ages counted from the oldest", but=("words",))
def memory_forward(story, table, ages):
    """Your oldest sentence gets row 0 of the ages. Then "just now" is another row in every length of
    story; look at which sentence has none behind it.
    """
    return memory(story, table, ages, forward=True)


@wrong_build_memory("no ages", but=("words",))
def memory_timeless(story, table, ages):
    """Nothing of `ages` enters your memory, so two sentences that say the same at different times
    become one vector. Look at the last term of the formula.
    """
    return memory(story, table, 0 * ages)


@wrong_build_memory("empty sentences count for the age", fails=("empty_sentences",))
def memory_counts_empty(story, table, ages):
    """In your memory a sentence grows older by padding that stands behind it. The same story then
    means something else in a longer batch; look at what counts as a sentence.
    """
    return memory(story, table, ages, count_empty=True)


@wrong_build_memory("empty sentences have an age", fails=("empty_sentences",))
def memory_fills_empty(story, table, ages):
    """A sentence of padding gets the vector of an age, so a look at the memory can find something
    where nothing was told. Look at what its vector should be.
    """
    return memory(story, table, ages, fill_empty=True)


@wrong_build_memory("padding is a word", fails=("padded_words",))
def memory_pads(story, table, ages):
    """You add the vector of word 0 and count its places, so the vector of a sentence depends on how
    long other sentences are. Look at what id 0 stands for.
    """
    return memory(story, table, ages, all_words=True)


@wrong_build_memory("the width instead of the length", fails=("padded_words",))
def memory_width(story, table, ages):
    """You leave padding out of the sum but count it in J, the number of words. The weights of a short
    sentence then depend on the longest one; look at what J counts.
    """
    return memory(story, table, ages, longest=True)


@wrong_build_memory("the table of ages read from its end", but=("words", "padded_words"))
def memory_ages_from_end(story, table, ages):
    """Your oldest sentence gets the last row of the table of ages, whatever the length of the story.
    The age of a sentence counts what stands behind it, not what the table could hold.
    """
    return memory(story, table, ages, oldest_from_end=True)


# --- memory_hop --------------------------------------------------------------------------------

HOP = cells("memory_hop", "values", "other_size", "mask", "large_scores", "gradient")
VALUES, OTHER, MASK, LARGE, HOP_GRADIENT = HOP


@witnesses(of="memory_hop")
def hop_calls(draw):
    for rows, n, size, out in ((1, 2, 3, 3), (3, 7, 5, 5), (2, 5, 3, 7), (4, 4, 4, 4)):
        yield call(draw.normal(rows, size), draw.normal(rows, n, size), draw.normal(rows, n, out))
    mask = draw.mask(4, 6, keep=0.5)
    mask[0], mask[1, 2], mask[1, 3] = False, True, False
    yield call(draw.normal(4, 5), draw.normal(4, 6, 5), draw.normal(4, 6, 5), mask)
    yield call(
        -3 - draw.uniform(2, 3), 1 + draw.uniform(2, 4, 3), draw.normal(2, 4, 3), draw.mask(2, 4)
    )
    large = [draw.normal(*shape, std=30.0, dtype=torch.float64) for shape in ((2, 3), (2, 5, 3))]
    yield call(*large, draw.normal(2, 5, 3, dtype=torch.float64))
    for wrt in range(3):
        shapes = ((2, 3), (2, 4, 3), (2, 4, 3))
        yield call(*(draw.normal(*shape) for shape in shapes), via=student.grad(wrt))


def hop(
    query,
    memory_in,
    memory_out,
    mask=None,
    *,
    scale=1.0,
    dim=-1,
    read=None,
    fill=-torch.inf,
    empty=0.0,
    hard=False,
):
    """The right answer with one fault at a time."""
    scores = scale * torch.einsum("bd,bnd->bn", query, memory_in)
    keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    none = ~keep.any(-1, keepdim=True)
    scores = scores.masked_fill(~keep, fill).masked_fill(none, 0.0)
    weights = scores.softmax(dim)
    if hard:
        weights = torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)
    weights = weights.masked_fill(none, empty)
    source = memory_out if read is None else read
    return torch.einsum("bn,bnc->bc", weights, source), weights


@wrong_memory_hop("reads the memory it compares with")
def hop_reads_input(query, memory_in, memory_out, mask=None):
    """You take the weighted sum of the input memory. What is compared and what is handed over are two
    memories; look at where `memory_out` enters.
    """
    return hop(query, memory_in, memory_out, mask, read=memory_in + 0 * memory_out.sum())


@wrong_memory_hop("compares with the memory it reads")
def hop_compares_output(query, memory_in, memory_out, mask=None):
    """Your scores come from the output memory. What is compared and what is handed over are two
    memories; look at where `memory_in` enters.
    """
    return hop(query, memory_out + 0 * memory_in.sum(), memory_out, mask)


@wrong_memory_hop("softmax over the rows of the batch")
def hop_over_rows(query, memory_in, memory_out, mask=None):
    """Your weights sum to one over the rows of the batch, so stories that know nothing of each other
    compete. Look at the axis that belongs to the memories.
    """
    scores = torch.einsum("bd,bnd->bn", query, memory_in)
    keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    weights = scores.masked_fill(~keep, -torch.inf).softmax(0).nan_to_num(0.0)
    return torch.einsum("bn,bnc->bc", weights, memory_out), weights


@wrong_memory_hop("the mask is ignored", fails=("mask",))
def hop_unmasked(query, memory_in, memory_out, mask=None):
    """Memories that do not count get weight in your answer. An argument of the function is never
    used; look at what the contract says about it.
    """
    return hop(query, memory_in, memory_out)


@wrong_memory_hop("masked scores set to 0", fails=("mask",))
def hop_masked_to_zero(query, memory_in, memory_out, mask=None):
    """You set the scores of memories that do not count to 0. Zero is a score like any other, and beats
    every negative one; look at which score gives the weight 0 (chapter 00).
    """
    return hop(query, memory_in, memory_out, mask, fill=0.0)


@wrong_memory_hop("masked after the softmax", fails=("mask",))
def hop_masked_after(query, memory_in, memory_out, mask=None):
    """You set weights to 0 behind the softmax, so those that are left no longer sum to one.
    Look at where the mask has to act.
    """
    _, weights = hop(query, memory_in, memory_out)
    weights = weights if mask is None else weights * mask
    return torch.einsum("bn,bnc->bc", weights, memory_out), weights


@wrong_memory_hop("NaN where nothing counts", fails=("mask",))
def hop_nan(query, memory_in, memory_out, mask=None):
    """A row in which no memory counts is a softmax over nothing, 0 divided by 0. Look at what the
    contract asks of such a row.
    """
    return hop(query, memory_in, memory_out, mask, empty=torch.nan)


@wrong_memory_hop("even weights where nothing counts", fails=("mask",))
def hop_finite_fill(query, memory_in, memory_out, mask=None):
    """You set masked scores to a large negative number. Where no memory counts all scores are equal
    then, and the softmax of equal scores is not 0; look at what the contract asks of such a row.
    """
    scores = torch.einsum("bd,bnd->bn", query, memory_in)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    weights = scores.softmax(-1)
    return torch.einsum("bn,bnc->bc", weights, memory_out), weights


@wrong_memory_hop("scaled scores")
def hop_scaled(query, memory_in, memory_out, mask=None):
    """You divide the scores by the square root of the size of the vectors. That is a good idea, and
    the subject of the next chapter; the formula here has plain dot products.
    """
    return hop(query, memory_in, memory_out, mask, scale=query.shape[-1] ** -0.5)


@wrong_memory_hop("only the best memory")
def hop_hard(query, memory_in, memory_out, mask=None):
    """You hand over the single best memory. Then no gradient tells the network where it should have
    looked instead (chapter 05); look at what the weights should sum up.
    """
    return hop(query, memory_in, memory_out, mask, hard=True)


@wrong_memory_hop("exponentials that overflow", fails=("mask", "large_scores"))
def hop_overflows(query, memory_in, memory_out, mask=None):
    """Your exponentials leave the range of the numbers before you divide. The contract says scores of
    any size; chapter 00 has the shift that keeps them small.
    """
    scores = torch.einsum("bd,bnd->bn", query, memory_in)
    powers = scores.exp() if mask is None else scores.exp() * mask
    weights = powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)
    return torch.einsum("bn,bnc->bc", weights, memory_out), weights


# --- stack_hops --------------------------------------------------------------------------------

ONE, ADJACENT, LAYERED, STACK_MASK = cells(
    "stack_hops", "one_hop", "adjacent", "layer_wise", "mask"
)


@witnesses(of="stack_hops")
def stack_calls(draw):
    for hops in (1, 2, 3):
        memories = [draw.normal(3, 7, 5) for _ in range(hops + 1)]
        yield call(draw.normal(3, 5), memories, via=hops_adjacent)
        mask = draw.mask(3, 7, keep=0.6)
        mask[:, 2], mask[:, 4] = True, False
        yield call(draw.normal(3, 5), memories, mask, via=hops_adjacent)
        pair = [draw.normal(3, 7, 5) for _ in range(2)]
        yield call(draw.normal(3, 5), pair, hops, draw.normal(5, 5), via=hops_layer_wise)
        yield call(draw.normal(3, 5), pair, hops, draw.normal(5, 5), mask, via=hops_layer_wise)


def stack(
    query,
    memories,
    hops,
    tying,
    update=None,
    mask=None,
    *,
    into=lambda k: k,
    out=lambda k: k + 1,
    forget=False,
    fixed=False,
    turned=False,
    late=False,
    identity=False,
    layer_out=1,
):
    """The right answer with one fault at a time."""
    asked, weights = query, []
    if turned and update is not None:
        update = update.T
    if identity:
        update = None
    for k in range(hops):
        a, c = (into(k), out(k)) if tying == "adjacent" else (0, layer_out)
        scores = torch.einsum("bd,bnd->bn", asked if fixed else query, memories[a])
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights.append(scores.softmax(-1))
        output = torch.einsum("bn,bnd->bd", weights[-1], memories[c])
        if forget:
            query = output
        elif late and update is not None:
            query = (query + output) @ update.T
        else:
            query = (query if update is None else query @ update.T) + output
    return query, torch.stack(weights, dim=1)


@wrong_stack_hops("the query is replaced, not added to")
def stack_forgets(query, memories, hops, tying, update=None, mask=None):
    """After a hop you go on with what was read and forget what was asked. The next look then does not
    know the question; look at both terms of the new query.
    """
    return stack(query, memories, hops, tying, update, mask, forget=True)


@wrong_stack_hops("an adjacent hop replaces the query", but=("layer_wise",))
def stack_forgets_adjacent(query, memories, hops, tying, update=None, mask=None):
    """With the adjacent tying you go on with what was read alone. The query is added there as well:
    it is the matrix that is missing, and not the question.
    """
    return stack(query, memories, hops, tying, update, mask, forget=tying == "adjacent")


@wrong_stack_hops("every hop asks the first question", but=("one_hop",))
def stack_fixed(query, memories, hops, tying, update=None, mask=None):
    """All your hops compare the memories with the same first query, so the second look finds nothing
    that the first did not. Look at what a hop should be asked with.
    """
    return stack(query, memories, hops, tying, update, mask, fixed=True)


@wrong_stack_hops("every hop uses the first two memories", fails=("adjacent", "mask"))
def stack_first_two(query, memories, hops, tying, update=None, mask=None):
    """With adjacent tying all your hops use memories 0 and 1, which is the layer-wise rule. Most of the
    memories are never looked at; look at which ones belong to hop k.
    """
    return stack(query, memories, hops, tying, update, mask, into=lambda k: 0, out=lambda k: 1)


@wrong_stack_hops("compares with the first memory at every hop", fails=("adjacent", "mask"))
def stack_input_fixed(query, memories, hops, tying, update=None, mask=None):
    """What you read out moves on from hop to hop, what you compare with does not. With adjacent tying
    the two are neighbours; look at the input memory of the second hop.
    """
    return stack(query, memories, hops, tying, update, mask, into=lambda k: 0)


@wrong_stack_hops("one memory in both roles", but=("layer_wise",))
def stack_same(query, memories, hops, tying, update=None, mask=None):
    """With adjacent tying you read out the memory that you have just compared with, and the last one is
    never used. Look at which memory is the output of hop k.
    """
    return stack(query, memories, hops, tying, update, mask, out=lambda k: k)


@wrong_stack_hops("the linear map is left out", fails=("layer_wise", "mask"))
def stack_no_update(query, memories, hops, tying, update=None, mask=None):
    """With layer-wise tying the query goes on as it is. An argument of the function is never used;
    look at what stands in front of the old query in the second rule.
    """
    return stack(query, memories, hops, tying, update, mask, identity=True)


@wrong_stack_hops("the linear map is transposed", fails=("layer_wise", "mask"))
def stack_turned(query, memories, hops, tying, update=None, mask=None):
    """Your linear map is applied from the wrong side: H is square, so the shapes fit and the numbers
    do not. Look at what H u means when the queries are rows.
    """
    return stack(query, memories, hops, tying, update, mask, turned=True)


@wrong_stack_hops("the linear map is applied to the sum", fails=("layer_wise", "mask"))
def stack_late(query, memories, hops, tying, update=None, mask=None):
    """You send the sum of query and output through the linear map. In the second rule the map stands
    in front of the query only; look at what it leaves alone.
    """
    return stack(query, memories, hops, tying, update, mask, late=True)


@wrong_stack_hops("the mask is ignored", fails=("mask",))
def stack_unmasked(query, memories, hops, tying, update=None, mask=None):
    """Memories that do not count are looked at by your hops. An argument of the function is never
    used; look at exercise 2.
    """
    return stack(query, memories, hops, tying, update)


# --- pointer_chase -----------------------------------------------------------------------------

ONE_STEP, MANY, NO_STEP, DEAD = cells(
    "pointer_chase", "one_step", "many_steps", "no_step", "dead_ends"
)


@witnesses(of="pointer_chase")
def chase_calls(draw):
    story = torch.tensor([[[7, 4], [5, 7], [4, 5]], [[4, 5], [7, 4], [5, 7]]])
    ending = torch.tensor([[[7, 4], [5, 7], [0, 0]], [[0, 0], [6, 8], [8, 9]]])
    longer = torch.tensor([[[4, 8], [7, 4], [9, 5], [5, 7], [8, 9]]])
    for steps in range(5):
        yield call(story, torch.tensor([5, 7]), steps)
        yield call(ending, torch.tensor([5, 6]), steps)
        yield call(longer, torch.tensor([7]), steps)
    order = draw.permutation(7) + 4
    pairs = torch.stack([order, order.roll(-1)], dim=-1)[draw.permutation(7)]
    for steps in (2, 6, 9):
        yield call(pairs[None], order[:1], steps)


def chase(story, start, steps, *, stay=True, rounds=0, floor=0, turned=False, once=False):
    """The right answer with one fault at a time, row by row."""
    ends = []
    for row, here in zip(story.tolist(), start.tolist(), strict=True):
        pairs = [(b, a) if turned else (a, b) for a, b in row]
        if once:
            left = steps
            for a, b in pairs:
                if a == here and left:
                    here, left = b, left - 1
        else:
            told = dict(pairs)
            for _ in range(max(steps + rounds, floor)):
                here = told.get(here, here if stay else 0)
        ends.append(here)
    return torch.tensor(ends, dtype=start.dtype)


@wrong_pointer_chase("one step too many", but=("dead_ends",))
def chase_one_more(story, start, steps):
    """You take one step more than asked for: with no step at all one should still stand at the start.
    Look at how often your loop runs.
    """
    return chase(story, start, steps, rounds=1)


@wrong_pointer_chase("one step too few", fails=("one_step", "many_steps"))
def chase_one_less(story, start, steps):
    """You take one step less than asked for: after a single step you still stand at the start.
    Look at how often your loop runs.
    """
    return chase(story, start, steps, rounds=-1)


@wrong_pointer_chase("backwards", but=("no_step",))
def chase_backwards(story, start, steps):
    """You look for the symbol among the goals and go to where the pointer comes from. Look at which of
    the two symbols of a sentence the pointer leaves.
    """
    return chase(story, start, steps, turned=True)


@wrong_pointer_chase("one pass through the story", fails=("many_steps", "dead_ends"))
def chase_one_pass(story, start, steps):
    """You go through the story once and follow a pointer when it comes by. The next one may have been
    told earlier: each step has to look at the whole story again.
    """
    return chase(story, start, steps, once=True)


@wrong_pointer_chase("only one step", fails=("many_steps", "dead_ends"))
def chase_single(story, start, steps):
    """You look once, however many steps were asked for. Look at where `steps` enters beyond the question
    whether there is any.
    """
    return chase(story, start, min(steps, 1))


@wrong_pointer_chase("at least one step", fails=("no_step",))
def chase_at_least_one(story, start, steps):
    """You step before you ask whether a step is due. With none one should still stand at the start.
    Look at the order of looking and counting.
    """
    return chase(story, start, steps, floor=1)


@wrong_pointer_chase("lost where no pointer leaves", fails=("dead_ends",))
def chase_lost(story, start, steps):
    """Where no pointer leaves, your sum over nothing gives 0, which is padding and no place at all.
    Look at what the contract says about a symbol that points nowhere.
    """
    return chase(story, start, steps, stay=False)


@wrong_pointer_chase("the first sentence where none fits", fails=("dead_ends",))
def chase_argmax(story, start, steps):
    """Where no sentence fits, `argmax` over nothing but False points at the first one, and you follow
    it. Look at whether any sentence fits before you use its place.
    """
    here, rows = start, torch.arange(len(start))
    for _ in range(steps):
        place = (story[:, :, 0] == here[:, None]).to(torch.int8).argmax(1)
        here = story[rows, place, 1]
    return here


# --- the two other items -----------------------------------------------------------------------


@witnesses(of="fixed_two_hops")
def two_hop_calls(draw):
    for rows, n, size in ((1, 3, 5), (3, 7, 5), (4, 4, 4), (2, 1, 3)):
        yield call(draw.normal(rows, size), draw.normal(rows, n, size), draw.normal(rows, n, size))


@wrong_fixed_two_hops("nothing repaired")
def still_broken(query, memory_in, memory_out):
    """This is the broken function itself: look at the axis over which the weights sum to one, and at
    what the second look is asked with.
    """
    first = (query[:, None] * memory_in).sum(-1).softmax(0)
    output = (first[..., None] * memory_out).sum(1)
    second = (query[:, None] * memory_in).sum(-1).softmax(0)
    return query + output + (second[..., None] * memory_out).sum(1)


@wrong_fixed_two_hops("the second look still asks the first question", fails=("second_look",))
def still_first_question(query, memory_in, memory_out):
    """The weights sum to one over the memories now, but both looks are asked with the same query and
    find the same. Look at what the first look has added to what is known.
    """
    weights = (query[:, None] * memory_in).sum(-1).softmax(-1)
    return query + 2 * (weights[..., None] * memory_out).sum(1)


@wrong_fixed_two_hops("the stories still compete")
def still_over_rows(query, memory_in, memory_out):
    """The second look is asked with the new query now, but your weights still sum to one over the rows
    of the batch. Stories know nothing of each other; look at the axis of the softmax.
    """
    for _ in range(2):
        weights = (query[:, None] * memory_in).sum(-1).softmax(0)
        query = query + (weights[..., None] * memory_out).sum(1)
    return query


@wrong_fixed_two_hops("the second look forgets the question", fails=("second_look",))
def only_the_clue(query, memory_in, memory_out):
    """Your second look is asked with what the first one read and with nothing else. Look at what u
    means after a hop: the question and all that was read.
    """
    first = (query[:, None] * memory_in).sum(-1).softmax(-1)
    output = (first[..., None] * memory_out).sum(1)
    second = (output[:, None] * memory_in).sum(-1).softmax(-1)
    return query + output + (second[..., None] * memory_out).sum(1)


def _right(query, memory_in, memory_out, mask=None):
    return hop(query, memory_in, memory_out, mask)


def _even(query, memory_in, memory_out, mask=None):
    weights = torch.full(memory_in.shape[:2], 1 / memory_in.shape[1])
    return memory_out.mean(1), weights


def _wrong_shape(query, memory_in, memory_out, mask=None):
    output, weights = _right(query, memory_in, memory_out, mask)
    return output[:, None], weights[:, None]


def _half_weights(query, memory_in, memory_out, mask=None):
    output, weights = _right(query, memory_in, memory_out, mask)
    return output, weights / 2


@witnesses(of="check_hop")
def check_calls(draw):
    wrong = (hop_unmasked, hop_over_rows, hop_finite_fill, hop_scaled, hop_hard)
    for candidate in (_right, _even, _wrong_shape, _half_weights, *wrong):
        yield call(candidate)


@wrong_check_hop("accepts everything")
def check_nothing(candidate):
    """Your test says True whatever it is given, so nothing wrong is caught. Call the candidate and
    compare what comes back with numbers of your own.
    """
    return True


@wrong_check_hop("rejects everything")
def check_refuse(candidate):
    """Your test says False even for a right hop. Look at whether you leave room for rounding, at rows
    without memories, and at what you return in the end.
    """
    return False


@wrong_check_hop("no mask in the test", fails=("mutants",))
def check_without_mask(candidate):
    """Your test never passes a mask, so whoever ignores it, turns it round or mistreats an empty row
    passes. Look at all that the contract promises.
    """
    query = torch.tensor([[1.0, 2.0], [0.5, -1.0]])
    memory_in = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.3]]]).repeat(2, 1, 1)
    memory_out = torch.tensor([[[9.0, 1.0], [5.0, 2.0], [7.0, 4.0]]]).repeat(2, 1, 1)
    expected = _right(query, memory_in, memory_out)
    got = candidate(query, memory_in, memory_out)
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, expected, strict=True))


@wrong_check_hop("the shapes only")
def check_shapes(candidate):
    """You look at shapes and never at numbers. Nearly every wrong answer has the right shape; compare
    with values that you have worked out yourself.
    """
    got = candidate(torch.ones(3, 5), torch.ones(3, 7, 5), torch.ones(3, 7, 5))
    return got[0].shape == (3, 5) and got[1].shape == (3, 7)


@wrong_check_hop("weights not compared row by row")
def check_sums(candidate):
    """You check that the weights sum to one, which even weights and many wrong ones do as well.
    Compare each weight with the value that it should have.
    """
    _, weights = candidate(torch.ones(3, 5), torch.rand(3, 7, 5), torch.rand(3, 7, 5))
    return bool(torch.allclose(weights.sum(-1), torch.ones(3), atol=1e-5))
