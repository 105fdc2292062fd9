"""Wrong answers on the way to attention on many devices: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, witnesses


def harmless(lse):
    return lse.masked_fill(lse == -torch.inf, 0.0)


def merge(outputs, lses):
    """Partial results of blocks of keys become one."""
    stacked = torch.stack(list(lses))
    lse = torch.logsumexp(stacked, dim=0)
    return ((stacked - harmless(lse)).exp()[..., None] * torch.stack(list(outputs))).sum(0), lse


# --- zigzag_split ------------------------------------------------------------------------------


def zigzag(
    length, world_size, *, parts=lambda world_size: 2 * world_size,
    right=lambda runs, world_size: runs[world_size:].flip(0),
    order=lambda left, right: (left, right), arrange=lambda table: table,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    runs = torch.arange(length).reshape(parts(world_size), -1)
    left = runs[:world_size]
    return arrange(torch.cat(order(left, right(runs, world_size)), dim=1))


split = WrongAnswers("zigzag_split", tests=("by_hand", "more"), right=zigzag)


@witnesses(of="zigzag_split")
def split_calls(draw):
    for length, world_size in ((8, 2), (12, 3), (12, 2), (24, 4), (6, 1), (30, 5)):
        yield call(length, world_size)


split.fault(
    "contiguous runs",
    """Every device gets one run of neighbouring positions. Then the last one has nearly twice the
    average work under a causal mask, and the first one hardly any.""",
    right=lambda runs, world_size: runs[1::2],
    order=lambda left, right: (torch.stack([right - right.shape[1], right], 1).flatten(1),),
)
split.fault(
    "the second run is not mirrored",
    """Device r gets the runs r and r + P. The later device gets the later run both times, so it still
    has more work. Count the second run from the right.""",
    right=lambda runs, world_size: runs[world_size:],
)
split.fault(
    "the right run first",
    """Your rows begin with the run from the right end. They are to rise: inside of a device the causal
    mask is then an ordinary one.""",
    order=lambda left, right: (right, left),
)
split.fault(
    "the second run backwards",
    """You turn the positions inside the second run round. The *runs* are counted from the right, the
    positions in a run rise.""",
    right=lambda runs, world_size: runs[world_size:].flip(0).flip(1),
)
split.fault(
    "devices in the other order",
    """Device 0 gets the runs in the middle, the last device those at the ends. Device r gets run r.""",
    arrange=lambda table: table.flip(0),
)
split.fault(
    "devices along the columns",
    """A row of your table holds one position of every device. A row stands for a device.""",
    arrange=lambda table: table.T,
)
split.fault(
    "positions count from 1",
    """Your positions are one too large. The first position is 0.""",
    arrange=lambda table: table + 1,
)
split.fault(
    "the left half only",
    """Half of the positions belong to nobody. A device gets two runs.""",
    order=lambda left, right: (left,),
)


@split("every P-th position")
def split_striped(length, world_size):
    """You deal positions out like cards. That is nearly fair under a causal mask too, and has a name,
    the striped layout; asked for are two runs for each device.
    """
    return torch.arange(length).reshape(-1, world_size).T


# --- ring_attention ----------------------------------------------------------------------------


def all_steps(world_size):
    return range(world_size)


def before(rank, step, world_size):
    return (rank - step) % world_size


def place(rank, lengths):
    return sum(lengths[:rank])


def after(row, column):
    return column > row


def divided(scores, query, value):
    return scores * query.shape[-1] ** -0.5


def masked(scores, closed):
    return scores.masked_fill(closed, -torch.inf)


def block_of(scores, value):
    lse = torch.logsumexp(scores, dim=-1)
    return (scores - harmless(lse)[..., None]).exp() @ value, lse


def merged(outputs, lses):
    return merge(outputs, lses)


def ring(
    query_shards, key_shards, value_shards, is_causal=False, *, steps=all_steps, owner_at=before,
    position=place, closed=after, scaled=divided, close=masked, one=block_of, join=merged,
    arrange=lambda outputs: outputs,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    world_size, outputs = len(query_shards), []
    lengths = [shard.shape[-2] for shard in key_shards]
    for rank, query in enumerate(query_shards):
        output = query.new_zeros(*query.shape[:-1], value_shards[0].shape[-1])
        lse = query.new_full(query.shape[:-1], -torch.inf)
        for step in steps(world_size):
            owner = owner_at(rank, step, world_size)
            value = value_shards[owner]
            scores = scaled(query @ key_shards[owner].mT, query, value)
            if is_causal:
                row = torch.arange(scores.shape[-2])[:, None] + position(rank, lengths)
                column = torch.arange(scores.shape[-1]) + position(owner, lengths)
                scores = close(scores, closed(row, column))
            part, part_lse = one(scores, value)
            output, lse = join([output, part], [lse, part_lse])
        outputs.append(output)
    return arrange(outputs)


RING = ("by_hand", "values", "causal", "uneven", "large", "memory")
rings = WrongAnswers("ring_attention", tests=RING, right=ring)


@witnesses(of="ring_attention")
def ring_calls(draw):
    for lengths, lead in (
        ([2, 2], ()),
        ([3, 3, 3], (2,)),
        ([1, 3, 2], ()),
        ([2, 2, 2, 2], ()),
        ([4], ()),
    ):
        parts = [[2 * draw.normal(*lead, n, 3) for n in lengths] for _ in range(2)]
        parts.append([draw.normal(*lead, n, 2) for n in lengths])
        yield call(*parts)
        yield call(*parts, is_causal=True)
        yield call([20 * part for part in parts[0]], *parts[1:])


def plain_exp(scores, value):
    parts = scores.exp()
    return parts @ value / parts.sum(-1, keepdim=True).clamp(min=1e-30), parts.sum(-1).log()


rings.fault(
    "the blocks are averaged",
    """You average what the blocks give, whatever their scores. The share of a block is its part of the
    sum that the softmax divides by.""",
    but=("memory",),
    join=lambda outputs, lses: merge(
        outputs, [lses[0], torch.where(lses[1] > -torch.inf, 0.0, lses[1])]
    ),
)
rings.fault(
    "the outputs are added",
    """You add what the blocks give. Each of them is divided by its own sum; together they need the
    common one.""",
    but=("memory",),
    join=lambda outputs, lses: (outputs[0] + outputs[1], lses[1]),
)
rings.fault(
    "the last block only",
    """Every block takes the place of the one before it. Keep a running output and a running
    log-sum-exp, and join.""",
    but=("memory",),
    join=lambda outputs, lses: (outputs[1], lses[1]),
)
rings.fault(
    "the log-sum-exp is not carried on",
    """Your running output is joined with the log-sum-exp of the first block for ever, or with that of
    the last one: after every step it is that of everything so far.""",
    fails=("values", "causal", "uneven", "large"),
    join=lambda outputs, lses: (merge(outputs, lses)[0], lses[1]),
)
rings.fault(
    "the last block never comes",
    """You make one step too few: P - 1 blocks come from elsewhere, and the own one is a step too.""",
    but=("memory",),
    steps=lambda world_size: range(max(1, world_size - 1)),
)
rings.fault(
    "only the own block",
    """Every device attends to its own keys and to no others. Nothing goes round.""",
    but=("memory",),
    steps=lambda world_size: range(1),
)
rings.fault(
    "one step too many",
    """You make P + 1 steps, so that the own block comes twice and counts twice.""",
    but=("memory",),
    steps=lambda world_size: range(world_size + 1),
)
rings.fault(
    "the mask is ignored",
    """`is_causal` changes nothing: every query sees the keys of later devices.""",
    fails=("by_hand", "causal", "uneven"),
    closed=lambda row, column: torch.zeros_like(column > row),
)
rings.fault(
    "every block has its own mask",
    """Inside a block you count queries and keys from 0, whichever device the keys come from. The
    positions are those of the whole sequence.""",
    fails=("by_hand", "causal", "uneven"),
    position=lambda rank, lengths: 0,
)
rings.fault(
    "later devices are left out, the own block is open",
    """You leave out the blocks of later devices, and inside the own block a query sees keys behind
    it.""",
    fails=("causal", "uneven"),
    closed=lambda row, column: column > row.max(),
)
rings.fault(
    "the mask is turned round",
    """Your queries see what comes after them and not what came before. Position i sees 0 to i.""",
    fails=("by_hand", "causal", "uneven"),
    closed=lambda row, column: column < row,
)
rings.fault(
    "the diagonal is closed",
    """A position does not see its own key: you close it too.""",
    fails=("by_hand", "causal", "uneven"),
    closed=lambda row, column: column >= row,
)
rings.fault(
    "all shards are taken as equally long",
    """You find the first position of a device as its number times the length of one shard. Shards may
    differ in length.""",
    fails=("uneven",),
    position=lambda rank, lengths: rank * lengths[0],
)
rings.fault(
    "no scale",
    """Your scores are the plain products. Look at what the formula divides them by.""",
    fails=("values", "causal", "uneven", "large"),
    scaled=lambda scores, query, value: scores,
)
rings.fault(
    "no maximum",
    """You take the exponentials of the scores as they are. Above about 88 they overflow in float32.""",
    fails=("large",),
    one=plain_exp,
)
rings.fault(
    "the outputs in another order",
    """The outputs come in another order than the devices. The entry r of your list is the output of
    device r.""",
    but=("memory",),
    arrange=lambda outputs: outputs[::-1],
)


@rings("all keys are put together", fails=("memory",))
def ring_gathered(query_shards, key_shards, value_shards, is_causal=False):
    """Your numbers are right, but a device has the scores of all keys at once. That is what a gather
    gives, and what the ring avoids: one block at a time.
    """
    query, key, value = (
        torch.cat(list(x), dim=-2) for x in (query_shards, key_shards, value_shards)
    )
    lengths = [shard.shape[-2] for shard in query_shards]
    return list(ring([query], [key], [value], is_causal)[0].split(lengths, dim=-2))


# --- ulysses_exchange --------------------------------------------------------------------------


def runs_of_heads(shard, world_size):
    return shard.chunk(world_size, dim=0)


def exchange(
    shards, *, cut=runs_of_heads, senders=lambda parts: parts, dim=1,
    pick=lambda part, rank: part[rank], arrange=lambda results: results,
    glue=lambda pieces: torch.cat(pieces, dim=1),
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    world_size = len(shards)
    parts = [cut(shard, world_size) for shard in shards]
    return arrange(
        [glue([pick(part, rank) for part in senders(parts)]) for rank in range(world_size)]
    )


swapped = WrongAnswers("ulysses_exchange", tests=("by_hand", "values"), right=exchange)


@witnesses(of="ulysses_exchange")
def exchange_calls(draw):
    for world_size, heads, length in ((2, 4, 3), (3, 6, 2), (2, 2, 2), (3, 3, 1), (4, 8, 3)):
        yield call([draw.normal(heads, length, 2) for _ in range(world_size)])


swapped.fault(
    "heads dealt out like cards",
    """Device r gets every P-th head. Asked for is a run of neighbouring heads, as the heads that share a
    key are neighbours.""",
    fails=("values",),
    cut=lambda shard, world_size: [shard[rank::world_size] for rank in range(world_size)],
)
swapped.fault(
    "the first heads for all",
    """Every device gets the same heads. Device r gets those from r H / P on.""",
    pick=lambda part, rank: part[0],
)
swapped.fault(
    "the heads in the other order",
    """Device 0 gets the last heads. Device r gets those from r H / P on.""",
    arrange=lambda results: results[::-1],
)
swapped.fault(
    "the positions in another order",
    """The runs of the sequence come in the wrong order: the shard of device 0 comes first.""",
    senders=lambda parts: parts[::-1],
)
swapped.fault(
    "joined along the heads",
    """You put what comes from the others below each other as heads. It is more positions of the same
    heads.""",
    glue=lambda pieces: torch.cat(pieces, dim=0),
)
swapped.fault(
    "the positions are added up",
    """You add what comes from the others. Nothing is computed here; the pieces are different positions.""",
    glue=lambda pieces: torch.stack(pieces).sum(dim=0),
)
swapped.fault(
    "all heads everywhere",
    """Every device ends with all heads of all positions. That is a gather: P times the numbers, and P
    times the work.""",
    cut=lambda shard, world_size: [shard] * world_size,
)


@swapped("nothing is exchanged")
def exchange_nothing(shards):
    """Your devices keep what they had: the shapes did not change either."""
    return [shard.clone() for shard in shards]


@swapped("a view in place of an exchange")
def exchange_view(shards):
    """You give the numbers of each device another shape. They have to change the device: no reshape
    brings in what another device holds.
    """
    return [s.reshape(s.shape[0] // len(shards), -1, s.shape[2]) for s in shards]


# --- the repair and the test -------------------------------------------------------------------


def average(
    gradients, counts, *, keep=lambda count: count > 0,
    weigh=lambda count, counts: count / sum(counts),
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    parts = [g * weigh(n, counts) for g, n in zip(gradients, counts, strict=True) if keep(n)]
    return torch.stack(parts).sum(dim=0)


fixed = WrongAnswers("fixed_average", tests=("even", "uneven", "nothing"), right=average)


@witnesses(of="fixed_average")
def average_calls(draw):
    for counts in ([3, 3], [1, 4, 2], [5, 0, 2], [1], [2, 2, 2, 2]):
        yield call([draw.normal(3) if n else torch.full((3,), torch.nan) for n in counts], counts)


fixed.fault(
    "both faults are still there",
    """This is the broken code as it stands. Work the example of the text by hand, and ask what NaN
    becomes in a mean.""",
    fails=("uneven", "nothing"),
    keep=lambda count: True,
    weigh=lambda count, counts: 1 / len(counts),
)
fixed.fault(
    "still every process counts the same",
    """A process without an example is left out now. But the others count the same, however many
    examples they had.""",
    fails=("uneven", "nothing"),
    weigh=lambda count, counts: 1 / sum(n > 0 for n in counts),
)
fixed.fault(
    "NaN is still in the sum",
    """The weights are right now. But 0 times NaN is NaN: a process without an example has to be left
    out, not weighted with 0.""",
    fails=("nothing",),
    keep=lambda count: True,
)
fixed.fault(
    "the process without an example still divides",
    """You leave out its gradient, but divide by the number of all processes.""",
    fails=("uneven", "nothing"),
    weigh=lambda count, counts: 1 / len(counts),
)
fixed.fault(
    "divided twice",
    """You weight by the share of the examples and then divide by the number of processes as well. The
    shares sum to one already.""",
    weigh=lambda count, counts: count / sum(counts) / len(counts),
)
fixed.fault(
    "never divided",
    """You multiply each gradient by its number of examples, and do not divide by the number of all.""",
    weigh=lambda count, counts: count,
)
fixed.fault(
    "weighted the wrong way round",
    """A process with more examples counts less in your average. Its mean stands for more of them.""",
    fails=("uneven", "nothing"),
    weigh=lambda count, counts: 1 / count / sum(1 / n for n in counts if n),
)


checks = WrongAnswers("check_ring", tests=("plain", "mutants"))


@witnesses(of="check_ring")
def check_calls(draw):
    for candidate in (
        ring,
        lambda query, key, value, is_causal=False: [1 * part for part in value],
        lambda *shards: [2 * part for part in ring(*shards)],
        lambda *shards: ring(*shards, steps=lambda world_size: range(max(1, world_size - 1))),
        lambda *shards: ring(*shards, position=lambda rank, lengths: 0),
        lambda *shards: ring(*shards, position=lambda rank, lengths: rank * lengths[0]),
        lambda *shards: 1 / 0,
    ):
        yield call(candidate)


def case(candidate, lengths, is_causal=False, size=1.0):
    generator = torch.Generator().manual_seed(1)
    parts = [
        [torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in lengths]
        for _ in range(3)
    ]
    parts[0] = [size * part for part in parts[0]]
    pairs = zip(candidate(*parts, is_causal), ring(*parts, is_causal), strict=True)
    return all(
        mine.shape == right.shape and bool(torch.allclose(mine, right, atol=1e-6))
        for mine, right in pairs
    )


@checks("accepts everything")
def check_nothing(candidate):
    """Your test says True whatever it is given, so that no wrong answer is caught. Call the candidate
    and compare what comes back with numbers of your own.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test says False even for a right answer. Look at whether you leave room for rounding, at
    the dtype of your own numbers, and at what you return in the end.
    """
    return False


@checks("only the shape is looked at")
def check_shape(candidate):
    """You compare the shapes of the answers and no value in them. Nearly everything that can go wrong
    on the way round keeps the shape.
    """
    x = [torch.ones(2, 3), torch.ones(2, 3)]
    return [tuple(part.shape) for part in candidate(x, x, x, False)] == [(2, 3)] * 2


@checks("one device", fails=("plain", "mutants"))
def check_one_device(candidate):
    """Your sequence lies on a single device. Then nothing goes round and nothing is joined."""
    return case(candidate, [5]) and case(candidate, [5], True)


@checks("never causal", fails=("mutants",))
def check_never_causal(candidate):
    """You never ask for a causal mask. What it means across devices is where a ring goes wrong most
    easily.
    """
    return (
        case(candidate, [2, 2, 2])
        and case(candidate, [1, 3, 2])
        and case(candidate, [2, 2], size=900.0)
    )


@checks("two devices", fails=("mutants",))
def check_two_devices(candidate):
    """You try two devices with shards of the same length. There the next device is also the one before,
    and each block is either the first or the last one.
    """
    return case(candidate, [2, 2]) and case(candidate, [2, 2], True)
