"""Wrong answers to the memory network exercises: name, message and the tests each must fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses


def as_given(x):
    return x


def ladder(count, size):
    return torch.arange(float(count))[:, None] * 10.0 ** torch.arange(size)


def hops_adjacent(fn, query, memories, mask=None):
    return fn(query, memories, len(memories) - 1, "adjacent", mask=mask)


def hops_layer_wise(fn, query, memories, hops, update, mask=None):
    return fn(query, memories, hops, "layer-wise", update=update, mask=mask)


# --- position_encoding -------------------------------------------------------------------------


def right_places(
    words,
    embed_dim,
    *,
    first_word=1,
    first_entry=1,
    sizes=lambda words, size: (words, size),
    formula=lambda j, k: 1 - j - k * (1 - 2 * j),
    last=as_given,
):
    of_words, of_entries = sizes(words, embed_dim)
    j = torch.arange(first_word, first_word + words)[:, None] / of_words
    k = torch.arange(first_entry, first_entry + embed_dim) / of_entries
    return last(formula(j, k))


places = WrongAnswers(
    "position_encoding", tests=("by_hand", "sizes", "one_word"), right=right_places
)


@witnesses(of="position_encoding")
def place_calls(draw):
    for words, size in ((1, 1), (2, 2), (3, 2), (2, 5), (7, 11), (1, 6), (5, 1), (4, 4)):
        yield call(words, size)


for told, first_word, first_entry in (
    ("words and elements", 0, 0),
    ("words", 0, 1),
    ("elements", 1, 0),
):
    places.fault(
        f"{told} counted from 0",
        f"You count the {told} from 0. In the formula both counters start at 1.",
        first_word=first_word,
        first_entry=first_entry,
    )
places.fault(
    "rows and columns exchanged",
    "Your result has a row per element. It should have a row per word.",
    but=("by_hand",),
    last=lambda table: table.T,
)
places.fault(
    "the two sizes exchanged",
    "You divide the word's number by d and the element's number by J. Exchange the two.",
    but=("by_hand",),
    sizes=lambda words, size: (size, words),
)
places.fault(
    "the factor 2 is missing",
    "You leave out the factor 2 before j in the last bracket. Compare with the formula.",
    formula=lambda j, k: 1 - j - k * (1 - j),
)
places.fault(
    "the order of words reversed",
    "Your rows are in reverse order. Row 0 belongs to the first word.",
    last=lambda table: table.flip(0),
)


@places("the released code's variant")
def places_of_the_code(words, embed_dim):
    """You compute the variant of the authors' code: twice as large and centred half a step later.
    The exercise asks for the printed formula.
    """
    j = torch.arange(1, words + 1)[:, None] - (words + 1) / 2
    k = torch.arange(1, embed_dim + 1) - (embed_dim + 1) / 2
    return 1 + 4 * j * k / (words * embed_dim)


# --- memory_hop --------------------------------------------------------------------------------


def guarded(scores, keep):
    none = ~keep.any(-1, keepdim=True)
    scores = scores.masked_fill(~keep, -torch.inf).masked_fill(none, 0.0)
    return scores.softmax(-1).masked_fill(none, 0.0)


def right_hop(
    query,
    memory_in,
    memory_out,
    mask=None,
    *,
    compare=lambda query, memory: torch.einsum("bd,bnd->bn", query, memory),
    compared=lambda memory_in, memory_out: memory_in,
    allow=as_given,
    weigh=guarded,
    mix=lambda weights, memory: torch.einsum("bn,bnc->bc", weights, memory),
    read=lambda memory_in, memory_out: memory_out,
    last=lambda output, weights, query: (output, weights),
):
    scores = compare(query, compared(memory_in, memory_out))
    keep = torch.ones_like(scores, dtype=torch.bool) if mask is None else allow(mask)
    weights = weigh(scores, keep)
    return last(mix(weights, read(memory_in, memory_out)), weights, query)


hop = WrongAnswers(
    "memory_hop",
    tests=("values", "other_size", "mask", "large_scores", "gradient"),
    right=right_hop,
)
hop.detached()


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


hop.fault(
    "reads the memory that it compares with",
    "You take the weighted sum of `memory_in`. Take that of `memory_out`.",
    read=lambda memory_in, memory_out: memory_in + 0 * memory_out.sum(),
)
hop.fault(
    "compares with the memory that it reads",
    "You compute the scores with `memory_out`. Compute them with `memory_in`.",
    compared=lambda memory_in, memory_out: memory_out + 0 * memory_in.sum(),
)
hop.fault(
    "softmax over the rows of the batch",
    "Your softmax runs over the batch. It should run over the memories.",
    weigh=lambda scores, keep: scores.masked_fill(~keep, -torch.inf).softmax(0).nan_to_num(0.0),
)
hop.fault(
    "the scores are scaled",
    "You divide by the root of the size. This formula has no scale.",
    compare=lambda query, memory: torch.einsum("bd,bnd->bn", query, memory) / query.shape[1] ** 0.5,
)
hop.fault(
    "cosines instead of dot products",
    "You divide by the lengths of the vectors. The formula has the dot product.",
    compare=lambda query, memory: torch.cosine_similarity(query[:, None], memory, dim=-1),
)
hop.fault(
    "only the best memory",
    "You return only the best memory. Return the weighted sum of all.",
    weigh=lambda scores, keep: (
        torch.nn.functional.one_hot(
            scores.masked_fill(~keep, -torch.inf).argmax(-1), scores.shape[-1]
        ).to(scores.dtype)
        * keep.any(-1, keepdim=True)
    ),
)
hop.fault(
    "masked scores set to 0",
    "You set masked scores to 0, whose exponential is 1. Which score has the exponential 0?",
    fails=("mask",),
    weigh=lambda scores, keep: (
        guarded(scores * keep, torch.ones_like(keep)) * keep.any(-1, keepdim=True)
    ),
)
hop.fault(
    "masked after the softmax",
    "You set masked weights to 0 after the softmax, so the rest sum to less than one.",
    fails=("mask",),
    weigh=lambda scores, keep: scores.softmax(-1) * keep,
)
hop.fault(
    "NaN where all memories are masked",
    "For a row without memories you divide 0 by 0, which is NaN. The contract asks for 0.",
    fails=("mask",),
    weigh=lambda scores, keep: scores.masked_fill(~keep, -torch.inf).softmax(-1),
)
hop.fault(
    "equal weights where all memories are masked",
    """Your row without memories gets equal weights, because you mask with a finite number. The
    contract asks for 0.""",
    fails=("mask",),
    weigh=lambda scores, keep: scores.masked_fill(~keep, -1e9).softmax(-1),
)
hop.fault(
    "exponentials overflow",
    "You take the exponential of the raw scores, which overflows. Subtract their maximum first.",
    fails=("mask", "large_scores"),
    weigh=lambda scores, keep: (
        (scores.exp() * keep) / (scores.exp() * keep).sum(-1, keepdim=True).clamp(min=1e-30)
    ),
)
hop.fault(
    "the query is added",
    "You add the query to the output. The hop returns the weighted sum alone.",
    but=("mask", "other_size"),
    last=lambda output, weights, query: (
        (output + query if output.shape == query.shape else output),
        weights,
    ),
)
hop.fault(
    "output and weights exchanged",
    "You return the weights first. The contract asks for output, weights.",
    last=lambda output, weights, query: (weights, output),
)

# --- pointer_chase -----------------------------------------------------------------------------


def right_chase(
    story,
    start,
    steps,
    *,
    pair=as_given,
    count=as_given,
    stay=lambda here, first: here,
    passes=False,
):
    ends = []
    for row, first in zip(story.tolist(), start.tolist(), strict=True):
        pairs, here, left = [pair(one) for one in row], first, count(steps)
        if passes:
            for a, b in pairs:
                here, left = (b, left - 1) if a == here and left else (here, left)
        else:
            for _ in range(left):
                here = dict(map(tuple, pairs)).get(here, stay(here, first))
        ends.append(here)
    return torch.tensor(ends, dtype=start.dtype)


chase = WrongAnswers(
    "pointer_chase", tests=("one_step", "many_steps", "no_step", "dead_ends"), right=right_chase
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


for name, message, missed, count in (
    (
        "one step too many",
        "You take one step too many. With 0 steps the result is the start.",
        ("one_step", "many_steps", "no_step"),
        lambda steps: steps + 1,
    ),
    (
        "one step too few",
        "You take one step too few. Check how often your loop runs.",
        ("one_step", "many_steps"),
        lambda steps: steps - 1,
    ),
    (
        "only one step",
        "You take at most one step. Take `steps` steps.",
        ("many_steps", "dead_ends"),
        lambda steps: min(steps, 1),
    ),
    (
        "at least one step",
        "You always take at least one step. With 0 steps the result is the start.",
        ("no_step",),
        lambda steps: max(steps, 1),
    ),
):
    chase.fault(name, message, fails=missed, count=count)
chase.fault(
    "backwards",
    "You follow the pointers backwards. `[a, b]` points from a to b.",
    but=("no_step",),
    pair=lambda one: one[::-1],
)
chase.fault(
    "one pass through the story",
    """You read the story once from first to last. The next pointer may be earlier: search the whole
    story at each step.""",
    fails=("many_steps", "dead_ends"),
    passes=True,
)
for found, stay in (("0", lambda here, first: 0), ("the start", lambda here, first: first)):
    chase.fault(
        f"{found} where no pointer leaves",
        f"If a symbol has no pointer, you continue at {found}. It should stay.",
        fails=("dead_ends",),
        stay=stay,
    )


@chase("the first sentence where none matches", fails=("dead_ends",))
def chase_argmax(story, start, steps):
    """If no sentence matches, `argmax` returns 0 and you follow the first sentence. Check first
    whether one matches.
    """
    here, rows = start, torch.arange(len(start))
    for _ in range(steps):
        place = (story[:, :, 0] == here[:, None]).to(torch.int8).argmax(1)
        here = story[rows, place, 1]
    return here


# --- build_memory ------------------------------------------------------------------------------


def right_memory(
    story,
    table,
    ages,
    *,
    keep=lambda sentence: sentence[sentence != 0],
    weigh=lambda sentence, words, size: right_places(len(words), size),
    total=lambda x: x.sum(0),
    age=lambda at, behind, before, story, ages: ages[behind],
    empty=lambda row, ages, behind: row,
):
    real = (story != 0).any(1)
    rows, before = [], 0
    for at, sentence in enumerate(story):
        words, behind = keep(sentence), int(real.sum()) - 1 - before
        row = torch.zeros_like(table[0])
        if real[at]:
            scale = weigh(sentence, words, table.shape[1]).to(table.dtype)[: len(words)]
            row = total(scale * table[words]) + age(at, behind, before, story, ages)
        else:
            row = empty(row, ages, behind)
        rows.append(row)
        before += int(real[at])
    return torch.stack(rows)


memory = WrongAnswers(
    "build_memory",
    tests=("words", "ages", "padded_words", "empty_sentences", "gradient"),
    right=right_memory,
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
    story, table, ages = draw.integers(1, 7, 3, 2), draw.normal(7, 3), draw.normal(4, 3)
    for wrt in (1, 2):
        yield call(story, table, ages, via=student.grad(wrt))


memory.fault(
    "a bag of words",
    "You add the word vectors without their position weights, so word order is lost.",
    weigh=lambda sentence, words, size: torch.ones(len(words), size),
)
memory.fault(
    "a mean instead of a sum",
    "You divide by the number of words. The formula has a sum.",
    total=lambda x: x.mean(0),
)
memory.fault(
    "padding is a word",
    "You treat id 0 as a word. It is padding.",
    fails=("padded_words",),
    keep=as_given,
)
memory.fault(
    "the width instead of the length",
    "You include padding in J. It counts only the words of the sentence.",
    fails=("padded_words",),
    weigh=lambda sentence, words, size: right_places(len(sentence), size),
)
for name, message, passed, age in (
    (
        "ages counted from the oldest",
        "You give row 0 to the oldest sentence. It belongs to the newest.",
        ("words",),
        lambda at, behind, before, story, ages: ages[before],
    ),
    (
        "no ages",
        "You ignore `ages`. Add the last term of the formula.",
        ("words",),
        lambda at, behind, before, story, ages: 0 * ages[behind],
    ),
    (
        "the table of ages read from its end",
        """You give the last row of `ages` to the oldest sentence. An age counts the sentences that
        follow.""",
        ("words", "padded_words"),
        lambda at, behind, before, story, ages: ages[len(ages) - 1 - before],
    ),
    (
        "ages counted from 1",
        "You give row 1 to the newest sentence. No sentence follows it, so its age is 0.",
        ("words",),
        lambda at, behind, before, story, ages: ages[min(behind + 1, len(ages) - 1)],
    ),
):
    memory.fault(name, message, but=passed, age=age)
memory.fault(
    "empty sentences count for the age",
    "You count sentences of padding in the age. Count only real sentences.",
    fails=("empty_sentences",),
    age=lambda at, behind, before, story, ages: ages[len(story) - 1 - at],
)
memory.fault(
    "empty sentences have an age",
    "You add an age to sentences of padding. Their vector is 0.",
    fails=("empty_sentences",),
    empty=lambda row, ages, behind: row + ages[max(behind, 0)],
)

# --- stack_hops --------------------------------------------------------------------------------


def right_stack(
    query,
    memories,
    hops,
    tying,
    update=None,
    mask=None,
    *,
    roles=lambda k: (k, k + 1),
    asked=lambda query, first: query,
    allow=as_given,
    move=lambda query, update: query @ update.T,
    join=lambda query, moved, output, tying: moved + output,
):
    first, weights, mask = query, [], allow(mask)
    for k in range(hops):
        into, out = roles(k) if tying == "adjacent" else (0, 1)
        scores = torch.einsum("bd,bnd->bn", asked(query, first), memories[into])
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights.append(scores.softmax(-1))
        output = torch.einsum("bn,bnd->bd", weights[-1], memories[out])
        moved = query if update is None else move(query, update)
        query = join(query, moved, output, tying if update is None else update)
    return query, torch.stack(weights, dim=1)


stack = WrongAnswers(
    "stack_hops", tests=("one_hop", "adjacent", "layer_wise", "mask"), right=right_stack
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


stack.fault(
    "the query is replaced, not added to",
    "You replace the query by the output. Add the two.",
    join=lambda query, moved, output, tying: output,
)
stack.fault(
    "an adjacent hop replaces the query",
    "With adjacent tying you replace the query by the output. Add the two.",
    but=("layer_wise",),
    join=lambda query, moved, output, tying: output if isinstance(tying, str) else moved + output,
)
stack.fault(
    "every hop uses the first query",
    "You use the first query at every hop. Use the updated one.",
    but=("one_hop",),
    asked=lambda query, first: first,
)
for name, message, lost, roles in (
    (
        "every hop uses the first two memories",
        "With adjacent tying you use memories 0 and 1 at every hop. Hop k has its own pair.",
        ("adjacent", "mask"),
        lambda k: (0, 1),
    ),
    (
        "compares with the first memory at every hop",
        "You compare with memory 0 at every hop. The input memory changes as well.",
        ("adjacent", "mask"),
        lambda k: (0, k + 1),
    ),
    (
        "one memory in both roles",
        "You use one memory as input and output of a hop. The output memory is the next one.",
        ("one_hop", "adjacent", "mask"),
        lambda k: (k, k),
    ),
):
    stack.fault(name, message, fails=lost, roles=roles)
for name, message, move in (
    (
        "the linear map is left out",
        "With layer-wise tying you leave out H. Multiply the query by it.",
        lambda query, update: query,
    ),
    (
        "the linear map is transposed",
        "You use the transpose of H; it is square, so the shapes fit. Queries are rows.",
        lambda query, update: query @ update,
    ),
):
    stack.fault(name, message, fails=("layer_wise", "mask"), move=move)
stack.fault(
    "the linear map is applied to the sum",
    "You apply H to query and output. It multiplies only the query.",
    fails=("layer_wise", "mask"),
    join=lambda query, moved, output, tying: (
        moved + output if isinstance(tying, str) else (query + output) @ tying.T
    ),
)
stack.fault(
    "the mask is ignored",
    "You ignore the mask, so your hops attend to masked memories.",
    fails=("mask",),
    allow=lambda mask: None,
)

# --- fixed_two_hops ----------------------------------------------------------------------------


def right_two(query, memory_in, memory_out, *, dim=-1, asks=lambda query, output: query + output):

    def output_of(asked):
        weights = (asked[:, None] * memory_in).sum(-1).softmax(dim)
        return (weights[..., None] * memory_out).sum(1)

    output = output_of(query)
    return query + output + output_of(asks(query, output))


two = WrongAnswers("fixed_two_hops", tests=("one_memory", "second_look"), right=right_two)


@witnesses(of="fixed_two_hops")
def two_hop_calls(draw):
    for rows, n, size in ((1, 3, 5), (3, 7, 5), (4, 4, 4), (2, 1, 3)):
        yield call(draw.normal(rows, size), draw.normal(rows, n, size), draw.normal(rows, n, size))


two.fault(
    "nothing repaired",
    """This is the broken function. Over which axis do the weights sum to one, and which query does
    the second hop use?""",
    dim=0,
    asks=lambda query, output: query,
)
two.fault(
    "the second hop still uses the first query",
    "Both of your hops use the same query. Add the output of the first to it.",
    fails=("second_look",),
    asks=lambda query, output: query,
)
two.fault(
    "the stories still compete",
    "Your softmax still runs over the batch. It should run over the memories.",
    dim=0,
)
two.fault(
    "the second hop drops the query",
    "Your second query is only the output of the first hop. Add the first query.",
    fails=("second_look",),
    asks=lambda query, output: output,
)

# --- check_hop ---------------------------------------------------------------------------------

check = WrongAnswers("check_hop", tests=("plain", "mutants"))


@witnesses(of="check_hop")
def check_calls(draw):
    for steps in (
        {},
        {"allow": torch.ones_like},
        {"weigh": lambda scores, keep: scores.softmax(0)},
        {"weigh": lambda scores, keep: scores.masked_fill(~keep, -1e9).softmax(-1)},
        {"last": lambda output, weights, query: (output[:, None], weights[:, None])},
        {"last": lambda output, weights, query: (output, weights / 2)},
    ):
        yield call(lambda *given, steps=steps: right_hop(*given, **steps))


@check("accepts everything")
def check_nothing(candidate):
    """Your test always returns True. Call the candidate and compare its result with your own
    numbers.
    """
    return True


@check("rejects everything")
def check_refuse(candidate):
    """Your test rejects a right hop. Do you allow for rounding, and what do you expect in a row
    without memories?
    """
    return False


@check("no mask in the test", fails=("mutants",))
def check_without_mask(candidate):
    """Your test passes no mask. Many wrong answers ignore it, invert it or fail on a row without
    memories.
    """
    query = torch.tensor([[1.0, 2.0], [0.5, -1.0]])
    memory_in = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.3]]]).repeat(2, 1, 1)
    memory_out = torch.tensor([[[9.0, 1.0], [5.0, 2.0], [7.0, 4.0]]]).repeat(2, 1, 1)
    expected, got = (f(query, memory_in, memory_out) for f in (right_hop, candidate))
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(got, expected, strict=True))


@check("the shapes only")
def check_shapes(candidate):
    """You compare only shapes. Most wrong answers have the right shape."""
    got = candidate(torch.ones(3, 5), torch.ones(3, 7, 5), torch.ones(3, 7, 5))
    return got[0].shape == (3, 5) and got[1].shape == (3, 7)


@check("only the sums of the weights")
def check_sums(candidate):
    """You only check that the weights sum to one, as equal weights do. Compare each weight."""
    _, weights = candidate(torch.ones(3, 5), torch.rand(3, 7, 5), torch.rand(3, 7, 5))
    return bool(torch.allclose(weights.sum(-1), torch.ones(3), atol=1e-5))
