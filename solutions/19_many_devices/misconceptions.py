"""Wrong answers on the way to attention on many devices: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, witnesses


def harmless(lse):
    return lse.masked_fill(lse == -torch.inf, 0.0)


def merge(outputs, lses, *, total=lambda lses: lses.logsumexp(dim=0)):
    """Merge partial results of blocks of keys."""
    stacked = torch.stack(list(lses))
    lse = total(stacked)
    return ((stacked - harmless(lse)).exp()[..., None] * torch.stack(list(outputs))).sum(0), lse


# --- zigzag_split ------------------------------------------------------------------------------


def zigzag(
    length, world_size, *, right=lambda runs, world_size: runs[world_size:].flip(0),
    order=lambda left, right: (left, right), arrange=lambda table: table,
):  # fmt: skip
    runs = torch.arange(length).reshape(2 * world_size, -1)
    left = runs[:world_size]
    return arrange(torch.cat(order(left, right(runs, world_size)), dim=1))


split = WrongAnswers("zigzag_split", tests=("by_hand", "more"), right=zigzag)


@witnesses(of="zigzag_split")
def split_calls(draw):
    for length, world_size in ((8, 2), (12, 3), (12, 2), (24, 4), (6, 1), (30, 5)):
        yield call(length, world_size)


ZIGZAG = "{} Device r has run r from the left, then run r from the right."
for name, message, steps in (
    (
        "contiguous runs",
        "You give each device two adjacent runs.",
        {
            "right": lambda runs, world_size: runs[1::2],
            "order": lambda left, right: (
                torch.stack([right - right.shape[1], right], 1).flatten(1),
            ),
        },
    ),
    (
        "the second run is not mirrored",
        "You count the second run from the left.",
        {"right": lambda runs, world_size: runs[world_size:]},
    ),
    (
        "the second run is off by one",
        "Your second run is off by one.",
        {"right": lambda runs, world_size: runs[world_size:].roll(-1, 0).flip(0)},
    ),
    (
        "the right run first",
        "Your rows begin with the right run.",
        {"order": lambda left, right: (right, left)},
    ),
    (
        "the second run backwards",
        "You reverse the second run.",
        {"right": lambda runs, world_size: runs[world_size:].flip(0).flip(1)},
    ),
    (
        "devices in reverse order",
        "Your devices are in reverse order.",
        {"arrange": lambda table: table.flip(0)},
    ),
    ("devices along the columns", "Your result is transposed.", {"arrange": lambda table: table.T}),
    ("positions count from 1", "You count positions from 1.", {"arrange": lambda table: table + 1}),
    ("only the left half", "You give each device one run.", {"order": lambda left, right: (left,)}),
):
    split.fault(name, ZIGZAG.format(message), **steps)


@split("every P-th position")
def split_striped(length, world_size):
    """You deal out the positions in turn, which is the striped layout. A device has two runs."""
    return torch.arange(length).reshape(-1, world_size).T


# --- ring_attention ----------------------------------------------------------------------------


def block_of(scores, value):
    lse = torch.logsumexp(scores, dim=-1)
    return (scores - harmless(lse)[..., None]).exp() @ value, lse


def ring(
    query_shards, key_shards, value_shards, is_causal=False, *, steps=range, one=block_of,
    owner_at=lambda rank, step, world_size: (rank - step) % world_size, key_of=None, value_of=None,
    position=lambda device, lengths, own: sum(lengths[:device]), closed=lambda row, column: column > row,
    scaled=lambda scores, query, value: scores * query.shape[-1] ** -0.5, join=merge,
    arrange=lambda outputs: outputs,
):  # fmt: skip
    world_size, outputs = len(query_shards), []
    lengths = [shard.shape[-2] for shard in key_shards]
    for rank, query in enumerate(query_shards):
        output = query.new_zeros(*query.shape[:-1], value_shards[0].shape[-1])
        lse = query.new_full(query.shape[:-1], -torch.inf)
        for step in steps(world_size):
            owner = owner_at(rank, step, world_size)
            value = value_shards[(value_of or owner_at)(rank, step, world_size)]
            key = key_shards[(key_of or owner_at)(rank, step, world_size)]
            scores = scaled(query @ key.mT, query, value)
            if is_causal:
                row = torch.arange(scores.shape[-2])[:, None] + position(
                    rank, lengths, lengths[rank]
                )
                column = torch.arange(scores.shape[-1]) + position(owner, lengths, lengths[rank])
                scores = scores.masked_fill(closed(row, column), -torch.inf)
            part, part_lse = one(scores, value)
            output, lse = join([output, part], [lse, part_lse])
        outputs.append(output)
    return arrange(outputs)


RING = ("by_hand", "values", "causal", "uneven", "large")
CAUSAL = ("by_hand", "causal", "uneven")
rings = WrongAnswers("ring_attention", tests=(*RING, "memory"), right=ring)


@witnesses(of="ring_attention")
def ring_calls(draw):
    for lengths, lead in (
        *(([2, 2], ()), ([3, 3, 3], (2,)), ([2, 5, 1, 3], ()), ([2, 2, 2, 2], ()), ([4], ())),
    ):
        parts = [[2 * draw.normal(*lead, n, 3) for n in lengths] for _ in range(2)]
        parts.append([draw.normal(*lead, n, 2) for n in lengths])
        yield call(*parts)
        yield call(*parts, is_causal=True)
        yield call([20 * part for part in parts[0]], *parts[1:])


for name, message, fails, join in (
    (
        "the blocks are averaged",
        "You average the blocks.",
        RING,
        lambda outputs, lses: merge(
            outputs, [lses[0], torch.where(lses[1] > -torch.inf, 0.0, lses[1])]
        ),
    ),
    (
        "the outputs are added",
        "You add the outputs.",
        RING,
        lambda outputs, lses: (outputs[0] + outputs[1], lses[1]),
    ),
    (
        "the last block only",
        "You keep only the last block.",
        RING,
        lambda outputs, lses: (outputs[1], lses[1]),
    ),
    (
        "the log-sum-exp is not carried on",
        "You keep only the log-sum-exp of the last block.",
        ("values", "causal", "uneven", "large"),
        lambda outputs, lses: (merge(outputs, lses)[0], lses[1]),
    ),
    (
        "the larger log-sum-exp instead of both",
        "You keep only the larger log-sum-exp.",
        RING,
        lambda outputs, lses: merge(outputs, lses, total=lambda x: x.amax(0)),
    ),
):
    rings.fault(
        name,
        f"{message} The share of a block is e^(its lse - the lse of all so far).",
        fails=fails,
        join=join,
    )
for name, message, steps in (
    ("the last block is missing", "You take P - 1 steps.", lambda size: range(max(1, size - 1))),
    ("the own block is missing", "You skip the own block.", lambda size: range(1, max(2, size))),
    ("only the own block", "You take one step.", lambda world_size: range(1)),
    ("one step too many", "You take P + 1 steps.", lambda world_size: range(world_size + 1)),
):
    rings.fault(
        name,
        f"{message} A device takes P steps, its own block first.",
        fails=RING,
        steps=steps,
    )
rings.fault(
    "blocks skip a device",
    "You skip a device at each step. Blocks move by one device.",
    fails=("by_hand", "values", "causal", "uneven"),
    owner_at=lambda rank, step, world_size: (rank - 2 * step) % world_size,
)
for name, message, steps in (
    (
        "values move in the opposite direction",
        "they move in opposite directions",
        {"value_of": lambda rank, step, size: (rank + step) % size},
    ),
    ("the own values for all keys", "always the own values", {"value_of": lambda rank, *_: rank}),
    ("the own keys for all values", "always the own keys", {"key_of": lambda rank, *_: rank}),
):
    rings.fault(
        name,
        f"Your values and keys are of different devices ({message}). They move together.",
        fails=RING if "own" in name else ("values", "causal", "uneven", "large"),
        **steps,
    )
MASK = "{} Position i of the *sequence* attends to positions 0 to i."
for name, message, fails, steps in (
    (
        "the mask is ignored",
        "You ignore `is_causal`.",
        CAUSAL,
        {"closed": lambda row, column: torch.zeros_like(column > row)},
    ),
    (
        "each block has its own mask",
        "You count from 0 in each block.",
        CAUSAL,
        {"position": lambda *_: 0},
    ),
    (
        "later devices skipped, the own block unmasked",
        "You skip later devices, but do not mask the own block.",
        ("causal", "uneven"),
        {"closed": lambda row, column: column > row.max()},
    ),
    (
        "the mask is reversed",
        "Your positions attend to later ones.",
        CAUSAL,
        {"closed": lambda row, column: column < row},
    ),
    (
        "the diagonal is masked",
        "Your positions exclude themselves.",
        CAUSAL,
        {"closed": lambda row, column: column >= row},
    ),
    (
        "the diagonal is masked, except for the first position",
        "Your positions exclude themselves.",
        CAUSAL,
        {"closed": lambda row, column: (column >= row) & (row + column > 0)},
    ),
    (
        "all shards are taken as equally long",
        "You assume equal shards.",
        ("uneven",),
        {"position": lambda device, lengths, own: device * lengths[0]},
    ),
):
    rings.fault(name, MASK.format(message), fails=fails, **steps)
# shards that are as long as the own one, or as the other's
for position in (
    lambda device, lengths, own: device * lengths[device],
    lambda device, lengths, own: device * own,
):
    rings.fault(
        "all shards are taken as equally long",
        MASK.format("You assume equal shards."),
        fails=("uneven",),
        position=position,
    )
for name, message, scaled in (
    ("no scale", "plain products", lambda scores, query, value: scores),
    ("divided by E", "divided by E", lambda scores, query, value: scores / query.shape[-1]),
    (
        "divided by the root of the value's size",
        "divided by the root of E_v",
        lambda scores, query, value: scores * value.shape[-1] ** -0.5,
    ),
):
    rings.fault(
        name,
        f"Your scores are {message}. The formula divides products by the root of E.",
        fails=("values", "causal", "uneven", "large"),
        scaled=scaled,
    )


def plain_exp(scores, value):
    parts = scores.exp()
    return parts @ value / parts.sum(-1, keepdim=True).clamp(min=1e-30), parts.sum(-1).log()


rings.fault(
    "no maximum",
    "You take the exponentials of the raw scores. In float32 they overflow above 88.",
    fails=("large",),
    one=plain_exp,
)
rings.fault(
    "the outputs in another order",
    "Your outputs are in another order. Entry r of the list is the output of device r.",
    fails=RING,
    arrange=lambda outputs: outputs[::-1],
)
rings.fault(
    "the outputs are joined",
    "You return one tensor. Return a list with the output of each device.",
    fails=RING,
    arrange=lambda outputs: torch.cat(outputs, dim=-2),
)


def rescaled(query_shards, key_shards, value_shards, is_causal, total, output, each=False):
    """With a running maximum instead of a log-sum-exp: ``total`` and ``output`` say what is
    rescaled, ``each`` whether each step divides.
    """
    results, starts = [], [0]
    for shard in query_shards:
        starts.append(starts[-1] + shard.shape[-2])
    for rank, query in enumerate(query_shards):
        top, whole, mixture = query.new_full((*query.shape[:-1], 1), -torch.inf), 0.0, 0.0
        for step in range(len(query_shards)):
            owner = (rank - step) % len(query_shards)
            scores = query @ key_shards[owner].mT * query.shape[-1] ** -0.5
            if is_causal:
                row = torch.arange(starts[rank], starts[rank + 1])[:, None]
                later = torch.arange(starts[owner], starts[owner + 1]) > row
                scores = scores.masked_fill(later, -torch.inf)
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            rescale, parts = (top - new).exp(), (scores - new).exp()
            whole = whole * (rescale if total else 1) + parts.sum(-1, keepdim=True)
            mixture = mixture * (rescale if output else 1) + parts @ value_shards[owner]
            mixture = mixture / whole if each else mixture
            top = new
        results.append(mixture if each else mixture / whole)
    return results


@rings("the output is not rescaled", fails=RING)
def ring_output_kept(query_shards, key_shards, value_shards, is_causal=False):
    """You do not rescale the output when the maximum grows. Multiply it by e^(old - new), like the
    sum.
    """
    return rescaled(query_shards, key_shards, value_shards, is_causal, True, False)


@rings("divided again at every step", fails=RING[1:])
def ring_divided(query_shards, key_shards, value_shards, is_causal=False):
    """You divide the running output at each step. Divide once at the end."""
    return rescaled(query_shards, key_shards, value_shards, is_causal, True, True, each=True)


@rings("the sum is not rescaled", fails=RING)
def ring_sum_kept(query_shards, key_shards, value_shards, is_causal=False):
    """You do not rescale the sum when the maximum grows. Multiply it by e^(old - new), like the
    output.
    """
    return rescaled(query_shards, key_shards, value_shards, is_causal, False, True)


@rings("all keys are gathered", fails=("memory",))
def ring_gathered(query_shards, key_shards, value_shards, is_causal=False):
    """Your values are right, but a device builds the scores of all keys. Use one block at a time."""
    joined = (torch.cat(list(x), dim=-2) for x in (query_shards, key_shards, value_shards))
    lengths = [shard.shape[-2] for shard in query_shards]
    return list(ring(*([x] for x in joined), is_causal)[0].split(lengths, dim=-2))


# --- ulysses_exchange --------------------------------------------------------------------------


def exchange(
    shards, *, cut=lambda shard, world_size: shard.chunk(world_size, dim=0),
    senders=lambda parts: parts, pick=lambda parts, rank: [part[rank] for part in parts],
    arrange=lambda results: results, glue=lambda pieces: torch.cat(pieces, dim=1),
):  # fmt: skip
    world_size = len(shards)
    parts = senders([cut(shard, world_size) for shard in shards])
    return arrange([glue(pick(parts, rank)) for rank in range(world_size)])


swapped = WrongAnswers("ulysses_exchange", tests=("by_hand", "values"), right=exchange)


@witnesses(of="ulysses_exchange")
def exchange_calls(draw):
    for world_size, heads, length in ((2, 4, 3), (3, 6, 2), (2, 2, 2), (3, 3, 1), (4, 8, 3)):
        yield call([draw.normal(heads, length, 2) for _ in range(world_size)])


HEADS = "{} Device r has H / P heads from head r H / P on."
for name, message, fails, steps in (
    (
        "every P-th head",
        "You give each device every P-th head.",
        ("values",),
        {"cut": lambda shard, size: [shard[rank::size] for rank in range(size)]},
    ),
    (
        "one head for each device",
        "You give each device one head.",
        ("values",),
        {"cut": lambda shard, size: [shard[rank : rank + 1] for rank in range(size)]},
    ),
    (
        "the first heads for all",
        "You give all devices the first heads.",
        None,
        {"pick": lambda parts, rank: [part[0] for part in parts]},
    ),
    (
        "the heads in reverse order",
        "Your devices are in reverse order.",
        None,
        {"arrange": lambda results: results[::-1]},
    ),
    (
        "all heads everywhere",
        "You give each device all heads.",
        None,
        {"cut": lambda shard, size: [shard] * size},
    ),
):
    swapped.fault(name, HEADS.format(message), fails=fails, **steps)
POSITIONS = "{} A device has the positions of all devices in the order of the sequence."
for name, message, fails, steps in (
    (
        "the positions in another order",
        "You reverse the positions.",
        None,
        {"senders": lambda parts: parts[::-1]},
    ),
    (
        "the positions interleaved",
        "You interleave the positions.",
        ("values",),
        {"glue": lambda pieces: torch.stack(pieces, dim=2).flatten(1, 2)},
    ),
    (
        "concatenated along the heads",
        "You concatenate the positions along the heads.",
        None,
        {"glue": lambda pieces: torch.cat(pieces, dim=0)},
    ),
    (
        "the positions are added up",
        "You add the positions up.",
        None,
        {"glue": lambda pieces: torch.stack(pieces).sum(dim=0)},
    ),
    (
        "only its own positions",
        "You give each device only its own positions.",
        None,
        {"pick": lambda parts, rank: [parts[rank][rank]]},
    ),
):
    swapped.fault(name, POSITIONS.format(message), fails=fails, **steps)


@swapped("nothing is exchanged")
def exchange_nothing(shards):
    """You exchange nothing: each device keeps all heads of its run. It should have some heads of
    all positions.
    """
    return [shard.clone() for shard in shards]


@swapped("a view instead of an exchange")
def exchange_view(shards):
    """You only reshape the data of each device. It needs data from the other devices."""
    return [s.reshape(s.shape[0] // len(shards), -1, s.shape[2]) for s in shards]


@swapped("devices instead of heads")
def exchange_joined(shards):
    """You concatenate the shards along the heads and split that. Split along the heads, concatenate
    along positions.
    """
    count = shards[0].shape[0] // len(shards)
    whole = torch.cat(list(shards), dim=0)
    return [whole[rank * count : (rank + 1) * count] for rank in range(len(shards))]


# --- the repair and the test -------------------------------------------------------------------


def average(
    gradients, counts, *, keep=lambda count: count > 0,
    weigh=lambda count, counts: count / sum(counts),
):  # fmt: skip
    parts = [g * weigh(n, counts) for g, n in zip(gradients, counts, strict=True) if keep(n)]
    return torch.stack(parts).sum(dim=0)


fixed = WrongAnswers("fixed_average", tests=("even", "uneven", "nothing"), right=average)


@witnesses(of="fixed_average")
def average_calls(draw):
    for counts in ([3, 3], [1, 4, 2], [5, 0, 2], [1], [2, 2, 2, 2]):
        yield call([draw.normal(3) if n else torch.full((3,), torch.nan) for n in counts], counts)


fixed.fault(
    "both faults are still there",
    """This is the broken code. Compute the example of the text by hand, and check what NaN does in
    a mean.""",
    fails=("uneven", "nothing"),
    keep=lambda count: True,
    weigh=lambda count, counts: 1 / len(counts),
)
fixed.fault(
    "NaN is still in the sum",
    "The weights are now right. But 0 times NaN is NaN: leave out a process without an example.",
    fails=("nothing",),
    keep=lambda count: True,
)
SHARES = "{} The weight of a process is its share of all examples."
for name, message, fails, weigh in (
    (
        "equal weights for all processes",
        "Your weights are equal.",
        ("uneven", "nothing"),
        lambda count, counts: 1 / sum(n > 0 for n in counts),
    ),
    (
        "the process without an example still counts",
        "You divide by the number of all processes.",
        ("uneven", "nothing"),
        lambda count, counts: 1 / len(counts),
    ),
    (
        "divided twice",
        "You also divide by the number of processes.",
        None,
        lambda count, counts: count / sum(counts) / len(counts),
    ),
    (
        "divided by the number of processes",
        "You divide by the number of processes.",
        None,
        lambda count, counts: count / len(counts),
    ),
    (
        "never divided",
        "You do not divide by the number of examples.",
        None,
        lambda count, counts: count,
    ),
    (
        "weights inverted",
        "Your weights fall with the number of examples.",
        ("uneven", "nothing"),
        lambda count, counts: 1 / count / sum(1 / n for n in counts if n),
    ),
):
    fixed.fault(name, SHARES.format(message), fails=fails, weigh=weigh)

checks = WrongAnswers("check_ring", tests=("plain", "mutants"))
HARDER = {"fails": ("mutants",)}


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
    draw = torch.Generator().manual_seed(1)
    parts = [[torch.randn(n, 3, generator=draw).double() for n in lengths] for _ in range(3)]
    parts[0] = [size * part for part in parts[0]]
    pairs = zip(candidate(*parts, is_causal), ring(*parts, is_causal), strict=True)
    return all(
        mine.shape == right.shape and bool(torch.allclose(mine, right, atol=1e-6))
        for mine, right in pairs
    )


@checks("accepts everything")
def check_nothing(candidate):
    """Your test always returns True. Call the candidate and compare its result with your own
    numbers.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test rejects a right answer. Check your tolerance and your return value."""
    return False


@checks("only the shape is compared")
def check_shape(candidate):
    """You compare only the shapes. Most wrong answers have the right shapes."""
    x = [torch.ones(2, 3), torch.ones(2, 3)]
    return [tuple(part.shape) for part in candidate(x, x, x, False)] == [(2, 3)] * 2


@checks("one device")
def check_one_device(candidate):
    """Your sequence is on one device, so nothing is passed or merged. Use several devices."""
    return case(candidate, [5]) and case(candidate, [5], True)


@checks("never causal", **HARDER)
def check_never_causal(candidate):
    """You never test a causal mask. Many wrong answers fail only with it."""
    return all(
        case(candidate, n, size=s) for n, s in (([2, 2, 2], 1), ([1, 3, 2], 1), ([2, 2], 900))
    )


@checks("two devices", **HARDER)
def check_two_devices(candidate):
    """You test two devices with equal shards, where the next device is also the previous one. Use
    more devices.
    """
    return case(candidate, [2, 2]) and case(candidate, [2, 2], True)
