"""Wrong answers on the way to sparse attention: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

# --- dilated_mask ------------------------------------------------------------------------------


def distance(length):
    i = torch.arange(length)
    return i[:, None] - i


def both_ways(is_global):
    return is_global[:, None] | is_global


def multiple(away, step):
    return away % step == 0


def dilated(
    length, window_size, dilation, is_global, *,
    reach=lambda window_size, dilation: window_size // 2 * dilation, grid=multiple,
    near=lambda away, reach: away.abs() <= reach, everywhere=both_ways,
    join=lambda window, everywhere: window | everywhere,
):  # fmt: skip
    """The right answer in four steps; a fault replaces one of them."""
    away = distance(length)
    window = near(away, reach(window_size, dilation)) & grid(away, dilation)
    return join(window, everywhere(is_global))


dilation = WrongAnswers("dilated_mask", tests=("by_hand", "windows", "global"), right=dilated)
SEVERAL = {"fails": ("global",)}


@witnesses(of="dilated_mask")
def dilated_calls(draw):
    for length, window, step in (
        *((5, 3, 2), (13, 9, 2), (11, 5, 3), (7, 5, 1), (9, 3, 2), (6, 3, 1), (4, 1, 2)),
    ):
        yield call(length, window, step, torch.zeros(length, dtype=torch.bool))
        yield call(length, window, step, torch.arange(length) % 5 == 2)


dilation.fault(
    "the window is not stretched",
    """Your window is as wide as without a dilation. The same *number* of keys covers a wider
    stretch: multiply half of the window by the dilation.""",
    reach=lambda window_size, step: window_size // 2,
)
for what, reached in (
    ("the window size on each side", lambda window_size, step: window_size * step),
    ("twice the window", lambda window_size, step: (window_size - 1) * step),
    ("half of the window is rounded up", lambda window_size, step: (window_size + 1) // 2 * step),
):
    dilation.fault(
        what,
        """Your window is too wide. `window_size` counts the keys of both sides together and the
        position itself.""",
        reach=reached,
    )
dilation.fault(
    "the gaps are filled",
    "You stretch the window without gaps. Skip distances that are no multiple of the dilation.",
    grid=lambda away, step: torch.ones_like(away, dtype=torch.bool),
)
dilation.fault(
    "distances are rounded down",
    "You divide the distance and drop the remainder. Skip distances with a remainder.",
    grid=lambda away, step: torch.ones_like(away, dtype=torch.bool),
    reach=lambda window_size, step: window_size // 2 * step + step - 1,
)
dilation.fault(
    "one-sided window",
    "Your window contains earlier positions only. Nothing is causal here: it has two equal sides.",
    near=lambda away, reach: (away >= 0) & (away <= reach),
)
dilation.fault(
    "one-sided window, later positions only",
    "Your window contains later positions only. It has two equal sides.",
    near=lambda away, reach: (away <= 0) & (-away <= reach),
)
dilation.fault(
    "the end of the window is cut off",
    "You exclude the last key on each side. The distance may *equal* half of the window.",
    near=lambda away, reach: away.abs() < reach,
)
dilation.fault(
    "no position attends to itself",
    "You exclude the position itself. The window counts it as one of its keys.",
    near=lambda away, reach: (away.abs() <= reach) & (away != 0),
)
dilation.fault(
    "the past only",
    "You exclude all later positions at the end. Nothing is causal here.",
    join=lambda window, everywhere: (window | everywhere).tril(),
)
for name, made in (
    ("the grid counts from the start", lambda own: own.expand(len(own), -1)),
    ("whole rows without a window", lambda own: own[:, None].expand(-1, len(own))),
):
    dilation.fault(
        name,
        """You keep positions whose own number is a multiple of the dilation. What counts is the
        distance between query and key.""",
        grid=lambda away, step, made=made: made(torch.arange(len(away)) % step == 0),
    )
dilation.fault(
    "both conditions at once",
    "You keep pairs in the window *and* with a global position. One of the two is enough.",
    join=lambda window, everywhere: window & everywhere,
)
dilation.fault(
    "global positions lose their window",
    "You exclude pairs that both window and global position allow. Use or, not exclusive or.",
    join=lambda window, everywhere: window ^ everywhere,
    **SEVERAL,
)
dilation.fault(
    "True and False exchanged",
    "Your mask is inverted: True means that a position may attend.",
    join=lambda window, everywhere: ~(window | everywhere),
)
dilation.fault(
    "global columns only",
    "All attend to the global positions, which attend to their window only. Open their rows too.",
    everywhere=lambda is_global: is_global.expand(len(is_global), -1),
    **SEVERAL,
)
dilation.fault(
    "global rows only",
    "Global positions attend to all, and few attend to them. Open their columns too.",
    everywhere=lambda is_global: is_global[:, None].expand(-1, len(is_global)),
    **SEVERAL,
)
dilation.fault(
    "the others are global",
    "You open the rows and columns of positions that are *not* global. True marks global ones.",
    everywhere=lambda is_global: both_ways(~is_global),
)
dilation.fault(
    "the window is left out",
    "You keep only the rows and columns of global positions. The others have their window.",
    near=lambda away, reach: away > away.max(),
)
dilation.fault(
    "only global pairs",
    "You open a pair only if *both* positions are global. One of the two is enough.",
    everywhere=lambda is_global: is_global[:, None] & is_global,
    **SEVERAL,
)
dilation.fault(
    "exactly one of two global positions",
    "You exclude the pairs of two global positions. Use or, not exclusive or.",
    everywhere=lambda is_global: is_global[:, None] ^ is_global,
    **SEVERAL,
)

# --- strided_masks -----------------------------------------------------------------------------


def strided(
    length, stride, *, local=lambda away, stride: away < stride, column=multiple,
    past=lambda away: away >= 0,
):  # fmt: skip
    """The right answer in three steps."""
    away = distance(length)
    return torch.stack([past(away) & local(away, stride), past(away) & column(away, stride)])


strides = WrongAnswers("strided_masks", tests=("by_hand", "two_steps"), right=strided)


@witnesses(of="strided_masks")
def strided_calls(draw):
    for length, stride in ((4, 2), (10, 3), (17, 5), (6, 1), (5, 9)):
        yield call(length, stride)


strides.fault(
    "the future is open",
    "Positions attend to later ones. Both heads attend to the position itself and earlier ones.",
    past=lambda away: torch.ones_like(away, dtype=torch.bool),
)
strides.fault(
    "no position attends to itself",
    "You exclude the position itself. It is among the last ones, and the first of the strides.",
    past=lambda away: away > 0,
)
strides.fault(
    "the local head has one position too many",
    "Your local head has `stride` positions and its own. Its own is one of them.",
    local=lambda away, stride: away <= stride,
)
strides.fault(
    "the local head has its block",
    """Your local head attends to the positions of its own block: that is the *fixed* pattern. The
    strided pattern has a window that moves along.""",
    local=lambda away, stride: (
        torch.arange(len(away))[:, None] // stride == torch.arange(len(away)) // stride
    ),
)
strides.fault(
    "the local head has two sides",
    "Your local head also attends to later positions. Both heads are causal.",
    local=lambda away, stride: away.abs() < stride,
    past=lambda away: torch.ones_like(away, dtype=torch.bool),
    column=lambda away, stride: multiple(away, stride) & (away >= 0),
)
for name, own in (
    ("the strided head has the last of each block", lambda i, stride: i % stride == stride - 1),
    ("the strided head counts from the start", lambda i, stride: i % stride == 0),
):
    strides.fault(
        name,
        """Your strided head attends to the same positions from everywhere: that is the *fixed*
        pattern. Count the steps from the query.""",
        column=lambda away, stride, own=own: own(torch.arange(len(away)), stride).expand_as(away),
    )
strides.fault(
    "a single stride back",
    "Your strided head stops after one stride. It goes on to the start of the text.",
    fails=("two_steps",),
    column=lambda away, stride: (away == 0) | (away == stride),
)
strides.fault(
    "the strided head has the window too",
    "Your strided head also has the keys of the local head. Each head has its own pattern.",
    column=lambda away, stride: multiple(away, stride) | (away < stride),
)
strides.fault(
    "the strided head starts one stride back",
    "Your strided head leaves out its own position. Distance 0 is a multiple of the stride too.",
    column=lambda away, stride: multiple(away, stride) & (away > 0),
)


@strides("the heads are exchanged")
def strides_exchanged(length, stride):
    """You return the strided head first. The local one comes first."""
    return strided(length, stride).flip(0)


@strides("both in one")
def strides_joined(length, stride):
    """Each of your masks is the union of both. There are two heads, each with its own pattern."""
    return strided(length, stride).any(0).expand(2, -1, -1)


# --- receptive_field ---------------------------------------------------------------------------


def through(mask, reach):
    return mask.float() @ reach.float() > 0


def with_itself(mask):
    return mask | torch.eye(len(mask), dtype=torch.bool)


def reach_of(
    masks, *, step=through, order=lambda masks: masks, begin=lambda mask: mask
):  # fmt: skip
    masks = order(masks)
    reach = begin(masks[0])
    for mask in masks[1:]:
        reach = step(mask, reach)
    return reach


field = WrongAnswers("receptive_field", tests=("by_hand", "windows", "layers"), right=reach_of)
NOT_WINDOWS = {"fails": ("by_hand", "layers")}


@witnesses(of="receptive_field")
def field_calls(draw):
    for layers, length in ((2, 5), (3, 6), (1, 4), (4, 7)):
        yield call(torch.rand(layers, length, length, generator=draw.rng) < 0.3)
    yield call((distance(9).abs() <= 1).expand(3, 9, 9))


field.fault(
    "the layers in the wrong order",
    """You begin with the last layer. The path ends at the input: the mask of a *later* layer is on
    the left of the product.""",
    order=lambda masks: masks.flip(0),
    **NOT_WINDOWS,
)
field.axes_swapped(
    "rows and columns exchanged",
    "Your row i says which outputs depend on i. It should say on which inputs output i depends.",
    **NOT_WINDOWS,
)
field.fault(
    "only pairs that every layer allows",
    "You keep pairs that all layers allow. A path may go to another position in each layer.",
    step=lambda mask, reach: mask & reach,
)
field.fault(
    "pairs that some layer allows",
    "You join the masks by or. A path takes one step in *each* layer, and reaches further.",
    step=lambda mask, reach: mask | reach,
)
for where, parts in {
    "in every layer": {"begin": with_itself, "step": lambda m, reach: through(m, reach) | reach},
    "in the first layer": {"begin": with_itself},
    "in the later layers": {"step": lambda m, reach: through(m, reach) | reach},
    "after the later layers": {"step": lambda m, reach: with_itself(through(m, reach))},
}.items():
    field.fault(
        f"a residual connection {where}",
        """You keep a position, or what it has reached, without a step. There is no residual
        connection here.""",
        fails=("layers",) if where == "in the later layers" else ("by_hand", "layers"),
        **parts,
    )
field.fault(
    "the layer's own pairs are added",
    "You add the pairs of each later mask. They are only the last step of a path.",
    step=lambda mask, reach: through(mask, reach) | mask,
    **NOT_WINDOWS,
)
field.fault(
    "numbers of paths",
    "You return how many paths there are. Return whether there is one: True or False.",
    step=lambda mask, reach: mask.float() @ reach.float(),
)
field.fault(
    "everything is reached",
    "Each later layer reaches everything. A pair has a path if its number of paths is above 0.",
    step=lambda mask, reach: torch.ones_like(mask),
)
for which, chosen in (
    ("the middle layers are", lambda masks: torch.stack([masks[0], masks[-1]])),
    ("the last layer is", lambda masks: masks[:-1] if len(masks) > 1 else masks),
):
    field.fault(
        f"{which} left out",
        "You leave out layers. A path takes one step in each layer.",
        fails=("windows", "layers"),
        order=chosen,
    )
field.fault(
    "the first layer is left out",
    "You begin with the second layer. A path takes one step in each layer.",
    begin=lambda mask: with_itself(torch.zeros_like(mask)),
)
field.fault(
    "the first mask for all layers",
    "You use the first mask in each layer. Each layer has its own.",
    fails=("layers",),
    order=lambda masks: masks[:1].expand_as(masks),
)

# --- band_attention and its repair -------------------------------------------------------------


def window(half):
    return torch.arange(-half, half + 1)


def scaled(query, keys):
    return (query[:, None] * keys).sum(-1) / query.shape[-1] ** 0.5


def soft(scores, inside):
    return scores.masked_fill(~inside, -torch.inf).softmax(-1)


def mixed(weights, values):
    return (weights[..., None] * values).sum(1)


def band(
    query, key, value, half_width, *, steps=window, score=scaled, weigh=soft, mix=mixed,
    near_of=lambda places, length: places.clamp(0, length - 1),
):  # fmt: skip
    """The right answer in four steps; a fault replaces one of them."""
    length = len(query)
    places = torch.arange(length)[:, None] + steps(half_width)
    inside = (places >= 0) & (places < length)
    near = near_of(places, length)
    return mix(weigh(score(query, key[near]), inside), value[near])


VALUES = ("by_hand", "values", "gradient")
bands = WrongAnswers("band_attention", tests=(*VALUES, "memory"), right=band)
NUMBERS = {"fails": VALUES}
SIZES = ((7, 3, 2, 2), (5, 4, 4, 1), (4, 3, 2, 9), (6, 2, 3, 0), (3, 5, 5, 1), (11, 3, 2, 4))


@witnesses(of="band_attention")
def band_calls(draw):
    for length, size, width, half in SIZES:
        inputs = draw.normal(length, size), draw.normal(length, size), draw.normal(length, width)
        yield call(*inputs, half)
        if half < length:
            for wrt in range(3):
                yield call(*inputs, half, via=student.grad(wrt))


bands.fault(
    "the ends attend to the first and last key again and again",
    """You clamp the positions outside of the text and count them: the first and the last key get
    several shares. They must have no weight.""",
    weigh=lambda scores, inside: scores.softmax(-1),
    **NUMBERS,
)
bands.fault(
    "a position outside has a score of 0",
    """A position outside of the text has a score of 0, and so a share of the softmax. Mask it with
    minus infinity before the softmax.""",
    weigh=lambda scores, inside: scores.masked_fill(~inside, 0.0).softmax(-1),
    **NUMBERS,
)
bands.fault(
    "weights outside are removed after the softmax",
    "You mask after the softmax: rows at the ends do not sum to one. Mask before it.",
    weigh=lambda scores, inside: scores.softmax(-1) * inside,
    **NUMBERS,
)
bands.fault(
    "the softmax over the queries",
    "Your softmax is over the queries. The weights of one query, over its keys, sum to one.",
    weigh=lambda scores, inside: scores.masked_fill(~inside, -1e30).softmax(0),
    **NUMBERS,
)
bands.fault(
    "no scale",
    "Your scores are the plain products. Divide them by the square root of E.",
    score=lambda query, keys: (query[:, None] * keys).sum(-1),
    fails=("values", "gradient"),
)
bands.fault(
    "divided by the root of the window",
    "You divide by the root of the number of keys in the window. Divide by the square root of E.",
    score=lambda query, keys: (query[:, None] * keys).sum(-1) / keys.shape[1] ** 0.5,
    fails=("values",),
)
bands.fault(
    "compared by distance",
    "Your scores are negative squared distances. Compare query and key by their product.",
    score=lambda query, keys: -(query[:, None] - keys).square().sum(-1) / query.shape[-1] ** 0.5,
    fails=("values", "gradient"),
)
bands.fault(
    "no position attends to itself",
    "Your window leaves out the position itself. Distance 0 is in every window.",
    weigh=lambda scores, inside: soft(scores, inside & (window(scores.shape[1] // 2) != 0)),
    **NUMBERS,
)
for name, message, offsets in (
    ("one-sided window", "It lacks the later positions.", lambda half: torch.arange(-half, 1)),
    (
        "the first key of the window is missing",
        "It lacks one key on the left.",
        lambda half: torch.arange(-half + (half > 0), half + 1),
    ),
    (
        "the last key of the window is missing",
        "It lacks one key on the right: a range stops before its end.",
        lambda half: torch.arange(-half, max(half, 1)),
    ),
    ("half of the half width", "It is about half as wide.", lambda half: window(half // 2)),
):
    bands.fault(
        name,
        f"Your window is too small. {message} It has `half_width` keys on each side of the query.",
        steps=offsets,
        **NUMBERS,
    )
bands.fault(
    "the text is a ring",
    "Before the first key you take the last ones. Mask positions outside of the text.",
    near_of=lambda places, length: places % length,
    weigh=lambda scores, inside: scores.softmax(-1),
    **NUMBERS,
)
bands.fault(
    "each position keeps its own value",
    "All weights of a row multiply its own value. Each belongs to the value of its key.",
    mix=lambda weights, values: mixed(weights, values[:, values.shape[1] // 2, None]),
    **NUMBERS,
)
bands.detached(fails=("values", "gradient"))


@bands("a table of all pairs", fails=("memory",))
def band_square(query, key, value, half_width):
    """Your numbers are right, and you make a table of all pairs on the way. Its memory grows with
    the square of the length: take only the keys of each window.
    """
    scores = query @ key.T / query.shape[-1] ** 0.5
    return soft(scores, distance(len(query)).abs() <= half_width) @ value


def shifted(rows, half, sign=-1):
    return torch.stack([rows.roll(sign * step, 0) for step in range(-half, half + 1)], 1)


def rolled(
    query, key, value, half_width, *, weigh=soft,
    keys=lambda key, half: shifted(key, half), values=lambda value, half: shifted(value, half),
):  # fmt: skip
    places = torch.arange(len(query))[:, None] + window(half_width)
    scores = scaled(query, keys(key, half_width))
    weights = weigh(scores, (places >= 0) & (places < len(query)))
    return mixed(weights, values(value, half_width))


fixed = WrongAnswers("fixed_band", tests=("alone", "windows"), right=rolled)
WINDOWS = {"fails": ("windows",)}
TURNED = {"values": lambda value, half: shifted(value, half, 1)}
RING = {"weigh": lambda scores, inside: scores.softmax(-1)}


@witnesses(of="fixed_band")
def fixed_calls(draw):
    for length, size, width, half in SIZES:
        if half < length:
            parts = draw.normal(length, size), draw.normal(length, size)
            yield call(*parts, draw.normal(length, width), half)


fixed.fault(
    "both faults are still there",
    """This is the broken code as it stands. Take three positions, and write down which key and
    which value each step of the window brings to the first one.""",
    **TURNED,
    **RING,
    **WINDOWS,
)
fixed.fault(
    "the text is still a ring",
    """Keys and values agree now. But a roll brings the end of the text to its start: the first
    position still attends to the last one.""",
    **RING,
    **WINDOWS,
)
fixed.fault(
    "values are still shifted the other way",
    """The ends are masked now. But the weight of a key on the left multiplies the value on the
    right: shift both alike.""",
    **TURNED,
    **WINDOWS,
)
fixed.fault(
    "the keys turn round instead of the values",
    """Keys and values are shifted alike now, both in the wrong direction: your mask is for the
    other end of the text.""",
    keys=lambda key, half: shifted(key, half, 1),
    **TURNED,
    **WINDOWS,
)
fixed.fault(
    "masked after the softmax",
    "You set weights outside of the text to 0 after the softmax. Mask before it.",
    weigh=lambda scores, inside: scores.softmax(-1) * inside,
    **WINDOWS,
)


@fixed("the window is gone")
def fixed_full(query, key, value, half_width):
    """You attend to all positions. The window of the broken code was right."""
    return (query @ key.T / query.shape[-1] ** 0.5).softmax(-1) @ value


# --- global_attention --------------------------------------------------------------------------


def open_rows(scores, mask, value):
    return scores.softmax(-1) @ value


def by_row(is_global, far, near):
    return torch.where(is_global[:, None], far, near)


def seen_by_all(
    query, key, value, global_query, global_key, global_value, mask, is_global, *,
    score=lambda query, key: query @ key.T * query.shape[-1] ** -0.5,
    near=lambda scores, mask, value: soft(scores, mask) @ value,
    far=lambda scores, chosen, value: scores.softmax(-1) @ value,
    wide=lambda q, k, v, gq, gk, gv: (gq, gk, gv), join=by_row,
    shared=lambda keys, values, global_key, global_value, is_global: (keys, values),
    seen=lambda mask, is_global: mask,
):  # fmt: skip
    keys, values = shared(key, value, global_key, global_value, is_global)
    local = near(score(query, keys), seen(mask, is_global), values)
    gq, gk, gv = wide(query, key, value, global_query, global_key, global_value)
    everywhere = far(score(gq, gk), is_global, gv)
    return join(is_global, everywhere, local)


globals_ = WrongAnswers(
    "global_attention", tests=("by_hand", "values", "gradient"), right=seen_by_all
)


@witnesses(of="global_attention")
def global_calls(draw):
    for length, size in ((5, 3), (7, 2), (4, 4)):
        chosen = torch.arange(length) % 3 == 1
        near = torch.eye(length).bool() | torch.eye(length).roll(1, 0).bool()
        rows = [draw.normal(length, size) for _ in range(6)]
        yield call(*rows, near | chosen | chosen[:, None], chosen)
        yield call(*rows, near | chosen, chosen)
        for wrt in (0, 2, 3, 4):
            yield call(*rows, near | chosen | chosen[:, None], chosen, via=student.grad(wrt))


for what, taken in (
    ("local queries, keys and values", lambda q, k, v, gq, gk, gv: (q, k, v)),
    ("local keys and values", lambda q, k, v, gq, gk, gv: (gq, k, v)),
    ("local values", lambda q, k, v, gq, gk, gv: (gq, gk, v)),
):
    globals_.fault(
        f"{what} in the global rows",
        f"Your global rows use {what}. They have projections of their own.",
        wide=taken,
    )
globals_.fault(
    "all positions are global",
    "You return the global rows for every position. Only global positions take them.",
    join=lambda is_global, far, near: far + 0 * near,
)
globals_.fault(
    "no position is global",
    "You return the local rows for every position, the global ones too.",
    join=lambda is_global, far, near: near + 0 * far,
)
globals_.fault(
    "the rows are exchanged",
    "Positions that are not global have the global rows. Check the order of your choice.",
    join=lambda is_global, far, near: by_row(is_global, near, far),
)
globals_.fault(
    "both rows are added up",
    "A global position has the sum of both rows. It takes the global one alone.",
    join=lambda chosen, far, near: near + chosen[:, None] * far,
)
globals_.fault(
    "no scale",
    "Your scores are the plain products. Divide both tables by the square root of E.",
    score=lambda query, key: query @ key.T,
    fails=("values", "gradient"),
)
for what, taken in (
    ("key", lambda k, v, gk, gv, chosen: (torch.where(chosen[:, None], gk, k), v)),
    ("value", lambda k, v, gk, gv, chosen: (k, torch.where(chosen[:, None], gv, v))),
    (
        "key and value",
        lambda k, v, gk, gv, chosen: (
            torch.where(chosen[:, None], gk, k),
            torch.where(chosen[:, None], gv, v),
        ),
    ),
):
    globals_.fault(
        f"local rows use the global {what} of global positions",
        """A local row uses `key` and `value` of every position, the global ones too. Global keys
        and values are for the global rows.""",
        shared=taken,
        fails=("values", "gradient") if what == "key" else None,
    )
globals_.fault(
    "local rows exclude global positions",
    "Your local rows do not attend to global positions. The mask opens these columns.",
    seen=lambda mask, chosen: mask & ~chosen,
)
globals_.fault(
    "global positions attend to each other only",
    "Your global rows use the keys of global positions only. They attend to *all* positions.",
    far=lambda scores, chosen, value: soft(scores, chosen) @ value,
)
globals_.fault(
    "masked after the softmax",
    "You mask local weights after the softmax: the rows do not sum to one. Mask before it.",
    near=lambda scores, mask, value: (scores.softmax(-1) * mask) @ value,
)
globals_.fault(
    "the mask is left out",
    "Your local rows attend to everything. Only the global rows have no mask.",
    near=open_rows,
)

# --- check_band --------------------------------------------------------------------------------

checks = WrongAnswers("check_band", tests=("plain", "mutants"))
HARDER = {"fails": ("mutants",)}


@witnesses(of="check_band")
def check_calls(draw):
    for candidate in (
        band,
        lambda q, k, v, half_width: v,
        lambda q, k, v, half_width: rolled(q, k, v, half_width, **RING),
        lambda q, k, v, half_width: band(q, k, v, half_width + 1),
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


def agrees(candidate, length, half_width, rows=slice(None), factor=1.0):
    draw = torch.Generator().manual_seed(1)
    inputs = [torch.randn(length, 3, generator=draw) for _ in range(3)]
    inputs[0] = factor * inputs[0]
    try:
        got, right = candidate(*inputs, half_width), band(*inputs, half_width)
        return got.shape == right.shape and torch.allclose(got[rows], right[rows], atol=1e-5)
    except Exception:
        return False


@checks("accepts everything")
def check_nothing(candidate):
    """Your test always returns True. Call the candidate, and compare its answer with your own
    numbers.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test returns False even for a right answer. Check the room for rounding, and your
    return.
    """
    return False


@checks("only the shape is looked at")
def check_shape(candidate):
    """You compare the shape and no value. Nearly all wrong answers have the right shape."""
    try:
        ones = torch.ones(5, 3)
        return tuple(candidate(ones, ones, ones[:, :2], 1).shape) == (5, 2)
    except Exception:
        return False


@checks("only the middle is looked at", **HARDER)
def check_middle(candidate):
    """You compare rows in the middle of the text. Most wrong bands are wrong only at the ends."""
    return agrees(candidate, 9, 2, slice(3, 6))


@checks("one size", **HARDER)
def check_one_size(candidate):
    """You try one window. Also try a window of one, and a window wider than the text."""
    return agrees(candidate, 7, 2)


@checks("equal scores", **HARDER)
def check_equal_scores(candidate):
    """You try queries of zeros. All scores are then equal, and a missing scale does not show."""
    return all(agrees(candidate, 7, half, factor=0.0) for half in (0, 2, 9))
