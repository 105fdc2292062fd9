"""Wrong answers on the way to hashing and low rank: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

# --- hash_buckets ------------------------------------------------------------------------------


def both_ways(along):
    return torch.cat([along, -along], dim=-1)


def largest(along):
    return along.argmax(dim=-1)


def right_hash(vectors, rotations, *, sides=both_ways, pick=largest):
    return pick(sides(vectors.unsqueeze(-3) @ rotations))


hashes = WrongAnswers("hash_buckets", tests=("by_hand", "rounds", "heads"), right=right_hash)


@witnesses(of="hash_buckets")
def hash_calls(draw):
    yield call(draw.normal(9, 2), draw.normal(1, 2, 2))
    yield call(draw.normal(11, 4), draw.normal(3, 4, 3))
    yield call(draw.normal(2, 7, 4), draw.normal(2, 4, 2))


hashes.fault(
    "the opposite directions are left out",
    """You use only the products with the columns, so half of the buckets stay empty. Include the
    opposite directions.""",
    sides=lambda along: along,
)
hashes.fault(
    "the sign is lost",
    """You take the largest product in absolute value, so a vector and its opposite share a bucket.
    They need different buckets.""",
    sides=lambda along: along.abs(),
)
hashes.fault(
    "the opposite directions come first",
    """You number the opposite directions first, or take the smallest product. The columns come
    first.""",
    sides=lambda along: torch.cat([-along, along], dim=-1),
)
hashes.fault(
    "each direction next to its opposite",
    """You number each direction and its opposite in succession. Columns have the first half of the
    numbers, opposite directions the second.""",
    fails=("by_hand", "rounds", "heads"),
    sides=lambda along: torch.stack([along, -along], dim=-1).flatten(-2),
)
hashes.fault(
    "the signs as bits of a number",
    """You build a number from the signs of the products. The bucket is the index of the largest
    product.""",
    fails=("by_hand", "rounds", "heads"),
    pick=lambda both: ((both > 0) * 2 ** torch.arange(both.shape[-1])).sum(-1),
    sides=lambda along: along,
)
hashes.fault(
    "the product is returned",
    "You return the largest product. Return its index.",
    pick=lambda along: along.amax(dim=-1),
)
hashes.first_row_for_all(
    "the first round for all",
    "You use the directions of the first round in every round. Each round has its own.",
    dim=-2,
    fails=("rounds", "heads"),
)
hashes.axes_swapped(
    "rounds and positions exchanged",
    "Your result has positions before rounds. The contract has rounds first.",
)

# --- bucket_attention --------------------------------------------------------------------------


def unit(query):
    return query / query.norm(dim=-1, keepdim=True)


def by_bucket(buckets):
    return buckets.argsort(stable=True)


def rolled(x):
    return torch.cat([x.roll(1, 0), x], dim=1)


def closed_start(allowed, chunk_size):
    allowed = allowed.clone()
    allowed[0, :, :chunk_size] = False
    return allowed


def same_bucket(mine, theirs):
    return mine[:, :, None] == theirs[:, None]


def not_itself(place, seen):
    return place[:, :, None] != seen[:, None]


def own_value(lonely, value):
    return lonely * value


def sorted_back(output, order):
    return output[order.argsort()]


def product(q, k):
    return q @ k.mT


def right_chunks(
    query,
    value,
    buckets,
    chunk_size,
    *,
    keys=unit,
    sort=by_bucket,
    around=rolled,
    start=closed_start,
    same=same_bucket,
    itself=not_itself,
    alone=own_value,
    back=sorted_back,
    score=product,
):
    order = sort(buckets)
    rows = (query, keys(query), value, buckets, torch.arange(len(query)))
    q, k, v, b, place = (x[order].unflatten(0, (-1, chunk_size)) for x in rows)
    mine = v
    k, v, b_k, seen = (around(x) for x in (k, v, b, place))
    allowed = start(same(b, b_k) & itself(place, seen), chunk_size)
    lonely = ~allowed.any(-1, keepdim=True)
    weights = score(q, k).masked_fill(~allowed & ~lonely, -torch.inf).softmax(-1)
    return back(((weights * ~lonely) @ v + alone(lonely, mine)).flatten(0, 1), order)


VALUES = ("by_hand", "chunks", "gradient")
chunks = WrongAnswers(
    "bucket_attention", tests=("by_hand", "chunks", "long", "gradient"), right=right_chunks
)


@witnesses(of="bucket_attention")
def chunk_calls(draw):
    for length, size, most in ((6, 3, 2), (12, 3, 3), (8, 2, 1), (8, 4, 4)):
        inputs = draw.normal(length, 3), draw.normal(length, 2), draw.integers(0, most, length)
        yield call(*inputs, size)
        for wrt in range(2):
            yield call(*inputs, size, via=student.grad(wrt))


chunks.fault(
    "keys are not scaled to length 1",
    "You use the queries as keys without scaling. Divide the keys by their length.",
    fails=("chunks", "gradient"),
    keys=lambda query: query,
)
chunks.fault(
    "the scores are divided by the root",
    "You divide the scores by the root of E. This exercise does not scale them.",
    fails=("chunks", "gradient"),
    score=lambda q, k: q @ k.mT / q.shape[-1] ** 0.5,
)
chunks.fault(
    "a position attends to itself",
    "Your positions attend to themselves. They may do so only without any other key.",
    fails=VALUES,
    itself=lambda place, seen: torch.ones_like(place[:, :, None] != seen[:, None]),
)
chunks.fault(
    "a position without other keys gets 0",
    "Your position without other keys gets 0. It should get its own value.",
    fails=VALUES,
    alone=lambda lonely, value: 0 * value,
)
chunks.fault(
    "the previous chunk is ignored",
    "Your chunks attend only to themselves. They should also attend to the previous chunk.",
    fails=("chunks",),
    around=lambda x: (
        torch.cat([torch.zeros_like(x), x], dim=1)
        if x.is_floating_point()
        else torch.cat([x - 10**6, x], dim=1)
    ),
)
chunks.fault(
    "the next chunk instead of the previous one",
    """You join each chunk with the next one. Join it with the previous one: check the sign of the
    roll.""",
    fails=("chunks",),
    around=lambda x: torch.cat([x, x.roll(-1, 0)], dim=1),
    start=lambda allowed, size: torch.cat(
        [allowed[:-1], torch.cat([allowed[-1:, :, :size], allowed[-1:, :, size:] & False], dim=-1)]
    ),
)
chunks.fault(
    "the first chunk attends to the last",
    "Your first chunk attends to the last one, because the roll wraps around. Mask it.",
    fails=("chunks",),
    start=lambda allowed, size: torch.cat(
        [allowed[:1] if len(allowed) > 1 else closed_start(allowed, size), allowed[1:]]
    ),
)
chunks.fault(
    "buckets are ignored inside chunks",
    """Your positions attend to all positions of their chunks. Only those of the same bucket are
    allowed.""",
    fails=VALUES,
    same=lambda mine, theirs: torch.ones_like(mine[:, :, None] == theirs[:, None]),
)
chunks.fault(
    "not sorted back",
    "Your result is in the sorted order. Restore the order of the text.",
    fails=VALUES,
    back=lambda output, order: output,
)
chunks.fault(
    "sorted by the order again",
    "You apply the sorted order a second time. Apply its inverse, which is its argsort.",
    fails=("chunks", "gradient"),
    back=lambda output, order: output[order],
)
chunks.fault(
    "not sorted at all",
    "You split the text into chunks without sorting. Sort the positions by bucket first.",
    fails=("chunks", "gradient"),
    sort=lambda buckets: torch.arange(len(buckets)),
)
chunks.detached()


@chunks("the full matrix is built", fails=("long",))
def chunk_table(query, value, buckets, chunk_size):
    """Your values are right, but you build all L × L scores. You need only those of a chunk and the
    previous one.
    """
    chunk = buckets.argsort(stable=True).argsort() // chunk_size
    apart = chunk[:, None] - chunk
    allowed = (buckets[:, None] == buckets) & (apart >= 0) & (apart <= 1)
    allowed = allowed & ~torch.eye(len(query), dtype=torch.bool)
    lonely = ~allowed.any(-1, keepdim=True)
    scores = (query @ unit(query).T).masked_fill(~allowed & ~lonely, -torch.inf)
    return (scores.softmax(-1) * ~lonely) @ value + lonely * value


# --- linformer_attention -----------------------------------------------------------------------


def first_columns(mix, rows):
    return mix[:, : rows.shape[-2]] @ rows


def over_root(query, short):
    return query @ short.mT / query.shape[-1] ** 0.5


def over_keys(scores):
    return scores.softmax(-1)


def right_linformer(
    query, key, value, mix_keys, mix_values, *, shorten=first_columns, score=over_root, weigh=over_keys,
    mixes=lambda one, other: (one, other),
):  # fmt: skip
    first, second = mixes(mix_keys, mix_values)
    return weigh(score(query, shorten(first, key))) @ shorten(second, value)


mixed = WrongAnswers(
    "linformer_attention",
    tests=("by_hand", "values", "shorter", "long", "gradient"),
    right=right_linformer,
)


@witnesses(of="linformer_attention")
def mixture_calls(draw):
    for lead, keys, width in (((), 5, 5), ((2,), 5, 8), ((2, 3), 4, 4)):
        inputs = draw.normal(*lead, 3, 4), draw.normal(*lead, keys, 4), draw.normal(*lead, keys, 4)
        inputs = (*inputs, draw.normal(4, width), draw.normal(4, width))
        yield call(*inputs)
        for wrt in range(5):
            yield call(*inputs, via=student.grad(wrt))


MIXED = ("values", "shorter", "gradient")
mixed.fault(
    "no scale",
    "You do not scale the scores. Divide them by the root of E.",
    fails=MIXED,
    score=lambda query, short: query @ short.mT,
)
mixed.fault(
    "divided by the root of the number of mixtures",
    """You divide by the root of the number of mixtures. A product sums over the E elements of a
    key.""",
    fails=MIXED,
    score=lambda query, short: query @ short.mT / short.shape[-2] ** 0.5,
)
mixed.fault(
    "softmax over the queries",
    "Your softmax runs over the queries. It should run over the mixtures.",
    fails=MIXED,
    weigh=lambda scores: scores.softmax(-2),
)
mixed.fault(
    "no softmax",
    "You leave out the softmax. Linformer keeps it.",
    fails=("by_hand", *MIXED),
    weigh=lambda scores: scores,
)
mixed.fault(
    "one matrix for keys and values",
    "You use `mix_keys` for the values as well. Use `mix_values`.",
    fails=MIXED,
    mixes=lambda one, other: (one, one),
)
mixed.fault(
    "the two matrices are exchanged",
    "You use `mix_values` for the keys and `mix_keys` for the values. Exchange them.",
    fails=MIXED,
    mixes=lambda one, other: (other, one),
)
mixed.fault(
    "the last columns for a shorter text",
    """For a shorter text you use the last columns. Use the first ones: position s belongs to column
    s.""",
    fails=("shorter",),
    shorten=lambda mix, rows: mix[:, mix.shape[1] - rows.shape[-2] :] @ rows,
)
mixed.fault(
    "a shorter text is refused",
    """You multiply by the whole matrix, which fails for a shorter text. Use only the first S
    columns.""",
    fails=("shorter",),
    shorten=lambda mix, rows: mix @ rows,
)
mixed.detached()


@mixed(
    "the full matrix is built and mixed afterwards",
    fails=("by_hand", "values", "shorter", "long", "gradient"),
)
def mixture_late(query, key, value, mix_keys, mix_values):
    """You compute the weights of all keys and mix them afterwards. Mix keys and values first: the
    result differs, and the full matrix is never needed.
    """
    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
    length = key.shape[-2]
    return weights @ mix_keys[:, :length].T @ (mix_values[:, :length] @ value)


# --- linear_attention --------------------------------------------------------------------------


def add_pair(memory, k, v):
    return memory + k.unsqueeze(-1) * v.unsqueeze(-2)


def add_key(total, k):
    return total + k


def divide(found, q, total):
    return found / (q * total).sum(-1, keepdim=True)


def write_first(q, k, v, memory, total, write, count, norm):
    memory, total = write(memory, k, v), count(total, k)
    return norm((q.unsqueeze(-2) @ memory).squeeze(-2), q, total), memory, total


def given(memory, total):
    return memory, total


def all_three(output, memory, total):
    return output, memory, total


def elu_plus_one(x):
    return torch.nn.functional.elu(x) + 1


def right_linear(
    query, key, value, memory, total, *, write=add_pair, count=add_key, norm=divide, step=write_first,
    begin=given, end=all_three, features=lambda query, key: (query, key),
):  # fmt: skip
    memory, total = begin(memory, total)
    query, key = features(query, key)
    rows = []
    for q, k, v in zip(query.unbind(-2), key.unbind(-2), value.unbind(-2), strict=True):
        row, memory, total = step(q, k, v, memory, total, write, count, norm)
        rows.append(row)
    return end(torch.stack(rows, dim=-2), memory, total)


linear = WrongAnswers(
    "linear_attention",
    tests=("by_hand", "values", "goes_on", "long", "gradient"),
    right=right_linear,
)
NUMBERS = ("by_hand", "values", "goes_on", "gradient")


@witnesses(of="linear_attention")
def linear_calls(draw):
    for lead, length in (((), 1), ((), 4), ((2,), 3)):
        inputs = draw.uniform(*lead, length, 3) + 0.2, draw.uniform(*lead, length, 3) + 0.2
        inputs = (*inputs, draw.normal(*lead, length, 3))
        for state in (
            (torch.zeros(*lead, 3, 3), torch.zeros(*lead, 3)),
            (draw.normal(*lead, 3, 3), draw.uniform(*lead, 3) + 0.5),
        ):
            yield call(*inputs, *state)
        yield call(*inputs, *state, via=student.grad(1))
    yield call(*inputs, *state, via=student.grad(4))


def read_first(q, k, v, memory, total, write, count, norm):
    found = norm((q.unsqueeze(-2) @ memory).squeeze(-2), q, total + 1e-9)
    return found, write(memory, k, v), count(total, k)


linear.fault(
    "read before writing",
    """You read the memory before this position writes to it. Write first: a position attends to
    itself.""",
    fails=NUMBERS,
    step=read_first,
)
linear.fault(
    "not divided",
    "You do not divide the outputs. Divide by the product of query and `total`.",
    fails=NUMBERS,
    norm=lambda found, q, total: found,
)
linear.fault(
    "divided by the sum of the keys",
    "You divide by the sum of the elements of `total`. Divide by its product with the query.",
    fails=("values", "goes_on", "gradient"),
    norm=lambda found, q, total: found / total.sum(-1, keepdim=True),
)
linear.fault(
    "the given memory is ignored",
    "You start from zeros. Start from `memory` and `total`.",
    fails=("goes_on", "gradient"),
    begin=lambda memory, total: (0 * memory, 0 * total),
)
linear.fault(
    "the given total is ignored",
    "You start from `memory`, but set `total` to 0. Start from both.",
    fails=("goes_on", "gradient"),
    begin=lambda memory, total: (memory, 0 * total),
)
linear.fault(
    "only the last pair is kept",
    "Each of your pairs replaces the memory. Add it to the memory.",
    fails=NUMBERS,
    write=lambda memory, k, v: k.unsqueeze(-1) * v.unsqueeze(-2),
)
linear.fault(
    "the total counts positions",
    "You add 1 to `total` for every position. Add the key.",
    fails=("by_hand", "values", "goes_on", "gradient"),
    count=lambda total, k: total + 1,
)
linear.fault(
    "the output alone is returned",
    "You return the output alone. Return memory and total as well.",
    fails=NUMBERS,
    end=lambda output, memory, total: output,
)
for whose, mapped in (("query", (True, False)), ("key", (False, True)), ("both", (True, True))):
    for kind, phi in (("elu + 1", elu_plus_one), ("an exponential", torch.exp)):
        linear.fault(
            f"{kind} on {whose}: a feature map too many",
            f"""You apply {kind} to {"query and key" if whose == "both" else f"the {whose}"}. Query and key
            are already features.""",
            fails=NUMBERS[1:] if whose == "query" else NUMBERS,
            features=lambda query, key, mapped=mapped, phi=phi: tuple(
                phi(x) if chosen else x for x, chosen in zip((query, key), mapped, strict=True)
            ),
        )
linear.detached()


@linear("the old memory is returned", fails=NUMBERS)
def linear_as_given(query, key, value, memory, total):
    """You return the memory and the total unchanged. Return the updated ones."""
    return right_linear(query, key, value, memory, total)[0], memory, total


@linear("divided by the number of positions", fails=NUMBERS)
def linear_mean(query, key, value, memory, total):
    """You divide by the number of positions. Divide by the product of query and `total`."""
    found, *state = right_linear(
        query, key, value, memory, total, norm=lambda found, q, total: found
    )
    return found / torch.arange(1, query.shape[-2] + 1)[:, None], *state


@linear("the future is read", fails=("by_hand", "values", "goes_on", "gradient"))
def linear_whole(query, key, value, memory, total):
    """Your positions read the final memory, which contains the future. Position i reads the memory
    after its own update.
    """
    memory, total = memory + key.mT @ value, total + key.sum(-2)
    return query @ memory / (query @ total.unsqueeze(-1)), memory, total


@linear("the full matrix is built", fails=("long",))
def linear_table(query, key, value, memory, total):
    """Your values are right, but you build all L × L weights. The memory of F × E_v numbers
    replaces them.
    """
    weights = (query @ key.mT).tril()
    found = weights @ value + query @ memory
    parts = weights.sum(-1, keepdim=True) + query @ total.unsqueeze(-1)
    return found / parts, memory + key.mT @ value, total + key.sum(-2)


# --- delta_rule --------------------------------------------------------------------------------


def what_it_says(memory, k):
    return (memory @ k.unsqueeze(-1)).squeeze(-1)


def difference(beta, value, said):
    return beta * (value - said)


def outer(change, k):
    return change.unsqueeze(-1) * k.unsqueeze(-2)


def as_given(key):
    return key


def right_delta(
    query, key, value, beta, memory, *, keys=as_given, says=what_it_says, change=difference,
    put=outer, begin=as_given, late=False,
):  # fmt: skip
    memory, key, rows = begin(memory), keys(key), []
    for t in range(query.shape[-2]):
        k, before = key[..., t, :], memory
        new = change(beta[..., t, None], value[..., t, :], says(memory, k))
        memory = memory + put(new, k)
        rows.append(((before if late else memory) @ query[..., t, :, None]).squeeze(-1))
    return torch.stack(rows, dim=-2), memory


delta = WrongAnswers("delta_rule", tests=("by_hand", "values", "gradient"), right=right_delta)


@witnesses(of="delta_rule")
def delta_calls(draw):
    for lead, length in (((), 1), ((), 4), ((2,), 3)):
        inputs = (
            *(draw.normal(*lead, length, 3), 0.5 * draw.normal(*lead, length, 3)),
            *(draw.normal(*lead, length, 3), draw.uniform(*lead, length)),
            draw.normal(*lead, 3, 3),
        )
        yield call(*inputs)
        for wrt in range(5):
            yield call(*inputs, via=student.grad(wrt))


delta.fault(
    "nothing is subtracted",
    """You add the new value without subtracting the stored one, as linear attention does. The delta
    rule writes their difference.""",
    change=lambda beta, value, said: beta * value,
)
delta.fault(
    "the old value is not scaled by β",
    "You subtract the whole stored value. Multiply it by β, like the new one.",
    change=lambda beta, value, said: beta * value - said,
)
delta.fault(
    "the new value is not scaled by β",
    "You add the whole new value. Multiply it by β, like the stored one.",
    change=lambda beta, value, said: value - beta * said,
)
delta.fault(
    "no beta",
    "You ignore β. It scales the change of the memory.",
    change=lambda beta, value, said: value - said,
)
delta.fault(
    "the wrong sign",
    "Your difference has the wrong sign, so the memory moves away from the new value.",
    change=lambda beta, value, said: beta * (said - value),
)
delta.fault(
    "the memory is transposed",
    "You read the memory with its transpose. It is `(E_v, E)`, so $S k$ is a value.",
    fails=("values", "gradient"),
    says=lambda memory, k: (memory.mT @ k.unsqueeze(-1)).squeeze(-1),
)
delta.fault(
    "keys scaled to length 1",
    "You divide the keys by their length. Use them as given.",
    fails=("values", "gradient"),
    keys=lambda key: key / key.norm(dim=-1, keepdim=True),
)
delta.fault(
    "the given memory is ignored",
    "You start from a memory of zeros. Start from `memory`.",
    fails=("values", "gradient"),
    begin=lambda memory: 0 * memory,
)
delta.detached()


@delta("read before writing")
def delta_late(query, key, value, beta, memory):
    """You read the memory before this position writes to it. Read it afterwards."""
    return right_delta(query, key, value, beta, memory, late=True)


# --- the repair and the test -------------------------------------------------------------------

merge = WrongAnswers("fixed_merge", tests=("small", "large"))


@witnesses(of="fixed_merge")
def merge_calls(draw):
    for rounds, length in ((2, 3), (4, 4), (3, 1)):
        for shift in (0.0, 120.0, -200.0):
            yield call(draw.normal(rounds, length, 2), draw.normal(rounds, length) + shift)


def merged(outputs, shares):
    return (shares.unsqueeze(-1) * outputs).sum(dim=0)


@merge("both faults are still there")
def merge_broken(outputs, lses):
    """This is the broken code. Which shares should sum to one, and what is the exponential of 200
    in float32?
    """
    parts = lses.exp()
    return merged(outputs, parts / parts.sum(dim=-1, keepdim=True))


@merge("still normalised over the positions")
def merge_positions(outputs, lses):
    """Large scores now work. Your shares still sum to one over the positions, not over the rounds."""
    return merged(outputs, lses.softmax(dim=-1))


@merge("exponentials overflow", fails=("large",))
def merge_overflow(outputs, lses):
    """The shares now sum to one over the rounds. You still take raw exponentials, which overflow
    above about 88 and vanish far below 0.
    """
    parts = lses.exp()
    return merged(outputs, parts / parts.sum(dim=0, keepdim=True))


@merge("one maximum for all positions", fails=("large",))
def merge_one_top(outputs, lses):
    """You subtract the largest number of the whole tensor, so positions far below it get only
    zeros. Each position needs its own maximum.
    """
    parts = (lses - lses.max()).exp()
    return merged(outputs, parts / parts.sum(dim=0, keepdim=True))


@merge("the mean of the rounds")
def merge_mean(outputs, lses):
    """You average the rounds. Weight them by their log-sum-exps."""
    return outputs.mean(dim=0)


@merge("shares proportional to the log-sum-exps")
def merge_linear(outputs, lses):
    """Your shares are proportional to the log-sum-exps. They must be proportional to their
    exponentials.
    """
    return merged(outputs, lses / lses.sum(dim=0, keepdim=True))


checks = WrongAnswers("check_linear", tests=("plain", "mutants"))


def by_table(query, key, value):
    weights = (query @ key.mT).tril()
    return weights @ value / weights.sum(-1, keepdim=True)


@witnesses(of="check_linear")
def check_calls(draw):
    for candidate in (
        by_table,
        lambda query, key, value: 0 * value,
        lambda query, key, value: value.clone(),
        lambda *inputs: 2 * by_table(*inputs),
        lambda query, key, value: query @ (key.mT @ value) / (query @ key.sum(-2)[:, None]),
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
    """Your test returns False even for a right answer. Check your tolerance, the dtype of your
    numbers, and your return value.
    """
    return False


@checks("only the shape is compared")
def check_shape(candidate):
    """You compare only the shape. Most wrong answers have the right shape."""
    try:
        got = candidate(torch.ones(3, 2), torch.ones(3, 2), torch.ones(3, 4))
    except Exception:
        return False
    return tuple(got.shape) == (3, 4)


@checks("only one position")
def check_one(candidate):
    """Your text has one position, whose output is its value for all features. Use several
    positions.
    """
    value = torch.tensor([[1.0, 2.0]])
    try:
        got = candidate(torch.ones(1, 3), torch.ones(1, 3), value)
    except Exception:
        return False
    return got.shape == value.shape and bool(torch.allclose(got, value, atol=1e-5))


@checks("equal features", fails=("mutants",))
def check_equal(candidate):
    """All your features are equal, so a plain mean passes. Draw features that differ."""
    value = torch.tensor([[1.0], [3.0], [8.0]])
    try:
        got = candidate(torch.ones(3, 2), torch.ones(3, 2), value)
    except Exception:
        return False
    wanted = torch.tensor([[1.0], [2.0], [4.0]]).to(got.dtype)
    return got.shape == wanted.shape and bool(torch.allclose(got, wanted, atol=1e-4))


@checks("a short text", fails=("mutants",))
def check_short(candidate):
    """Your text is short. A candidate that works in chunks may lose the memory between them: test a
    longer text.
    """
    draw = torch.Generator().manual_seed(2)
    query, key = torch.rand(2, 5, 3, generator=draw) + 0.1
    value = torch.randn(5, 2, generator=draw)
    try:
        got = candidate(query, key, value)
    except Exception:
        return False
    return got.shape == value.shape and bool(
        torch.allclose(got, by_table(query, key, value), atol=1e-4)
    )
