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
    "the window is not dilated",
    "You do not widen the window. Multiply its half width by the dilation.",
    reach=lambda window_size, step: window_size // 2,
)
for what, reached in (
    ("the window size on each side", lambda window_size, step: window_size * step),
    ("twice the window", lambda window_size, step: (window_size - 1) * step),
    ("half of the window is rounded up", lambda window_size, step: (window_size + 1) // 2 * step),
):
    dilation.fault(
        what,
        """Your window is too wide. `window_size` counts the keys on both sides and the position
        itself.""",
        reach=reached,
    )
dilation.fault(
    "the gaps are filled",
    "You widen the window without gaps. Skip distances that are not multiples of the dilation.",
    grid=lambda away, step: torch.ones_like(away, dtype=torch.bool),
)
dilation.fault(
    "distances are rounded down",
    """You divide the distance by the dilation and drop the remainder. Skip distances with a
    remainder.""",
    grid=lambda away, step: torch.ones_like(away, dtype=torch.bool),
    reach=lambda window_size, step: window_size // 2 * step + step - 1,
)
dilation.fault(
    "one-sided window",
    "Your window contains only earlier positions. It has two equal sides.",
    near=lambda away, reach: (away >= 0) & (away <= reach),
)
dilation.fault(
    "one-sided window, later positions only",
    "Your window contains only later positions. It has two equal sides.",
    near=lambda away, reach: (away <= 0) & (-away <= reach),
)
dilation.fault(
    "the end of the window is cut off",
    "You exclude the last key on each side. The distance may *equal* half of the window.",
    near=lambda away, reach: away.abs() < reach,
)
dilation.fault(
    "no position attends to itself",
    "You exclude the position itself. The window includes it.",
    near=lambda away, reach: (away.abs() <= reach) & (away != 0),
)
dilation.fault(
    "the past only",
    "You apply a causal mask at the end. This mask is not causal.",
    join=lambda window, everywhere: (window | everywhere).tril(),
)
for name, made in (
    ("the grid counts from the start", lambda own: own.expand(len(own), -1)),
    ("whole rows without a window", lambda own: own[:, None].expand(-1, len(own))),
):
    dilation.fault(
        name,
        """You keep positions whose index is a multiple of the dilation. Use the distance between
        query and key.""",
        grid=lambda away, step, made=made: made(torch.arange(len(away)) % step == 0),
    )
dilation.fault(
    "both conditions at once",
    "You require the window *and* a global position. One condition is enough.",
    join=lambda window, everywhere: window & everywhere,
)
dilation.fault(
    "global positions lose their window",
    "You exclude pairs that satisfy both conditions. Use or, not exclusive or.",
    join=lambda window, everywhere: window ^ everywhere,
    **SEVERAL,
)
dilation.fault(
    "True and False exchanged",
    "Your mask is inverted. True means: may attend.",
    join=lambda window, everywhere: ~(window | everywhere),
)
dilation.fault(
    "global columns only",
    "Your global positions attend only to their window. They should attend to all positions.",
    everywhere=lambda is_global: is_global.expand(len(is_global), -1),
    **SEVERAL,
)
dilation.fault(
    "global rows only",
    "Only positions in their window attend to your global positions. All positions should.",
    everywhere=lambda is_global: is_global[:, None].expand(-1, len(is_global)),
    **SEVERAL,
)
dilation.fault(
    "the others are global",
    "You treat the positions that are *not* global as global. True marks global ones.",
    everywhere=lambda is_global: both_ways(~is_global),
)
dilation.fault(
    "the window is left out",
    "You keep only the rows and columns of global positions. Add the window.",
    near=lambda away, reach: away > away.max(),
)
dilation.fault(
    "only global pairs",
    "You allow a pair only if *both* positions are global. One is enough.",
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
    away = distance(length)
    return torch.stack([past(away) & local(away, stride), past(away) & column(away, stride)])


strides = WrongAnswers("strided_masks", tests=("by_hand", "two_steps"), right=strided)


@witnesses(of="strided_masks")
def strided_calls(draw):
    for length, stride in ((4, 2), (10, 3), (17, 5), (6, 1), (5, 9)):
        yield call(length, stride)


strides.fault(
    "the future is not masked",
    "Your positions attend to later ones. Both heads are causal.",
    past=lambda away: torch.ones_like(away, dtype=torch.bool),
)
strides.fault(
    "no position attends to itself",
    "You exclude the position itself. Both heads include it.",
    past=lambda away: away > 0,
)
strides.fault(
    "the local head has one position too many",
    "Your local head has `stride` positions and its own. Its own position is one of the `stride`.",
    local=lambda away, stride: away <= stride,
)
strides.fault(
    "the local head uses blocks",
    """Your local head attends to its own block, which is the *fixed* pattern. The strided pattern
    has a sliding window.""",
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
        """Your strided head attends to the same positions from every query, which is the *fixed*
        pattern. Count the steps from the query.""",
        column=lambda away, stride, own=own: own(torch.arange(len(away)), stride).expand_as(away),
    )
strides.fault(
    "a single stride back",
    "Your strided head stops after one stride. It should continue to the start of the text.",
    fails=("two_steps",),
    column=lambda away, stride: (away == 0) | (away == stride),
)
strides.fault(
    "the strided head has the window, too",
    "Your strided head includes the window of the local head. Each head has its own pattern.",
    column=lambda away, stride: multiple(away, stride) | (away < stride),
)
strides.fault(
    "the strided head starts one stride back",
    "Your strided head leaves out its own position. Distance 0 is a multiple of the stride.",
    column=lambda away, stride: multiple(away, stride) & (away > 0),
)


@strides("the heads are exchanged")
def strides_exchanged(length, stride):
    """You return the strided head first. The local one comes first."""
    return strided(length, stride).flip(0)


@strides("both in one")
def strides_joined(length, stride):
    """Both of your masks are the union of the two. Each head has its own pattern."""
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
    "You multiply the layers in the wrong order. A *later* layer is further left in the product.",
    order=lambda masks: masks.flip(0),
    **NOT_WINDOWS,
)
field.axes_swapped(
    "rows and columns exchanged",
    """Your row i lists the outputs that depend on i. It should list the inputs on which output i
    depends.""",
    **NOT_WINDOWS,
)
field.fault(
    "only pairs that every layer allows",
    "You keep pairs that all layers allow. A path may move to another position in each layer.",
    step=lambda mask, reach: mask & reach,
)
field.fault(
    "pairs that some layer allows",
    'You combine the masks with "or". A path takes one step in *each* layer.',
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
        "You include a residual connection. In this exercise there is none.",
        fails=("layers",) if where == "in the later layers" else ("by_hand", "layers"),
        **parts,
    )
field.fault(
    "the layer's own pairs are added",
    "You add the pairs of each later mask. A path needs one step in every layer.",
    step=lambda mask, reach: through(mask, reach) | mask,
    **NOT_WINDOWS,
)
field.fault(
    "numbers of paths",
    "You return the number of paths. Return True or False.",
    step=lambda mask, reach: mask.float() @ reach.float(),
)
field.fault(
    "everything is reached",
    """In your result a later layer reaches everything. A pair has a path if its number of paths is
    above 0.""",
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
    "You leave out the first layer. A path takes one step in each layer.",
    begin=lambda mask: with_itself(torch.zeros_like(mask)),
)
field.fault(
    "the first mask for all layers",
    "You use the first mask in every layer. Each layer has its own.",
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
    "clamped positions count",
    """You clamp positions outside the text but do not mask them, so the first and the last key
    count several times.""",
    weigh=lambda scores, inside: scores.softmax(-1),
    **NUMBERS,
)
bands.fault(
    "a position outside has a score of 0",
    """You give positions outside the text a score of 0, whose exponential is 1. Mask them before
    the softmax.""",
    weigh=lambda scores, inside: scores.masked_fill(~inside, 0.0).softmax(-1),
    **NUMBERS,
)
bands.fault(
    "weights outside are removed after the softmax",
    "You mask after the softmax, so rows at the ends sum to less than one. Mask before it.",
    weigh=lambda scores, inside: scores.softmax(-1) * inside,
    **NUMBERS,
)
bands.fault(
    "the softmax over the queries",
    "Your softmax runs over the queries. It should run over the keys of each query.",
    weigh=lambda scores, inside: scores.masked_fill(~inside, -1e30).softmax(0),
    **NUMBERS,
)
bands.fault(
    "no scale",
    "You do not scale the scores. Divide them by the root of E.",
    score=lambda query, keys: (query[:, None] * keys).sum(-1),
    fails=("values", "gradient"),
)
bands.fault(
    "divided by the root of the window",
    "You divide by the root of the number of keys in the window. Divide by the root of E.",
    score=lambda query, keys: (query[:, None] * keys).sum(-1) / keys.shape[1] ** 0.5,
    fails=("values",),
)
bands.fault(
    "compared by distance",
    "Your scores are negative squared distances. Use the dot product.",
    score=lambda query, keys: -(query[:, None] - keys).square().sum(-1) / query.shape[-1] ** 0.5,
    fails=("values", "gradient"),
)
bands.fault(
    "no position attends to itself",
    "You exclude the position itself. The window includes it.",
    weigh=lambda scores, inside: soft(scores, inside & (window(scores.shape[1] // 2) != 0)),
    **NUMBERS,
)
for name, message, offsets in (
    (
        "one-sided window",
        "Your window lacks the later positions.",
        lambda half: torch.arange(-half, 1),
    ),
    (
        "the first key of the window is missing",
        "Your window lacks one key on the left.",
        lambda half: torch.arange(-half + (half > 0), half + 1),
    ),
    (
        "the last key of the window is missing",
        "Your window lacks one key on the right: a range excludes its end.",
        lambda half: torch.arange(-half, max(half, 1)),
    ),
    (
        "half of the half width",
        "Your window is about half as wide.",
        lambda half: window(half // 2),
    ),
):
    bands.fault(
        name,
        f"{message} It needs `half_width` keys on each side.",
        steps=offsets,
        **NUMBERS,
    )
bands.fault(
    "the text is a ring",
    "Your window wraps around the ends of the text. Mask positions outside the text.",
    near_of=lambda places, length: places % length,
    weigh=lambda scores, inside: scores.softmax(-1),
    **NUMBERS,
)
bands.fault(
    "each position keeps its own value",
    "You multiply all weights of a row by its own value. Multiply each by the value of its key.",
    mix=lambda weights, values: mixed(weights, values[:, values.shape[1] // 2, None]),
    **NUMBERS,
)
bands.detached(fails=("values", "gradient"))


@bands("a matrix of all pairs", fails=("memory",))
def band_square(query, key, value, half_width):
    """Your values are right, but you build a matrix of all pairs. Use only the keys of each window."""
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
    """This is the broken code. For three positions, write down which key and which value each step
    of the window pairs with the first one.""",
    **TURNED,
    **RING,
    **WINDOWS,
)
fixed.fault(
    "the text is still a ring",
    """Keys and values now agree. The roll still wraps around: the first position attends to the
    last one.""",
    **RING,
    **WINDOWS,
)
fixed.fault(
    "values are still shifted in the opposite direction",
    "The ends are now masked. You still shift the values in the opposite direction of the keys.",
    **TURNED,
    **WINDOWS,
)
fixed.fault(
    "the keys are reversed instead of the values",
    "You now shift keys and values alike, but in the direction opposite to the mask.",
    keys=lambda key, half: shifted(key, half, 1),
    **TURNED,
    **WINDOWS,
)
fixed.fault(
    "masked after the softmax",
    "You set weights outside the text to 0 after the softmax. Mask before it.",
    weigh=lambda scores, inside: scores.softmax(-1) * inside,
    **WINDOWS,
)


@fixed("the window is missing")
def fixed_full(query, key, value, half_width):
    """You removed the window and attend to all positions. The window was right."""
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
        f"Your global rows use {what}. They have their own projections.",
        wide=taken,
    )
globals_.fault(
    "all positions are global",
    "You return global attention for every position. Only global positions use it.",
    join=lambda is_global, far, near: far + 0 * near,
)
globals_.fault(
    "no position is global",
    "You return local attention for every position. Global positions use global attention.",
    join=lambda is_global, far, near: near + 0 * far,
)
globals_.fault(
    "the rows are exchanged",
    "You exchange the two: positions that are not global get global attention.",
    join=lambda is_global, far, near: by_row(is_global, near, far),
)
globals_.fault(
    "both rows are added up",
    "You add both results at global positions. Return the global one alone.",
    join=lambda chosen, far, near: near + chosen[:, None] * far,
)
globals_.fault(
    "no scale",
    "You do not scale the scores. Divide both by the root of E.",
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
        """Your local rows use global keys or values at global positions. They use `key` and `value`
        everywhere.""",
        shared=taken,
        fails=("values", "gradient") if what == "key" else None,
    )
globals_.fault(
    "local rows exclude global positions",
    "Your local rows exclude global positions. Use the mask alone.",
    seen=lambda mask, chosen: mask & ~chosen,
)
globals_.fault(
    "global positions attend to each other only",
    "Your global rows attend only to global positions. They attend to *all* positions.",
    far=lambda scores, chosen, value: soft(scores, chosen) @ value,
)
globals_.fault(
    "masked after the softmax",
    "You mask local weights after the softmax, so rows sum to less than one. Mask before it.",
    near=lambda scores, mask, value: (scores.softmax(-1) * mask) @ value,
)
globals_.fault(
    "the mask is left out",
    "You leave out the mask of the local rows. Only the global rows have none.",
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
    """Your test rejects a right answer. Check your tolerance and your return value."""
    return False


@checks("only the shape is compared")
def check_shape(candidate):
    """You compare only the shape. Most wrong answers have the right shape."""
    try:
        ones = torch.ones(5, 3)
        return tuple(candidate(ones, ones, ones[:, :2], 1).shape) == (5, 2)
    except Exception:
        return False


@checks("only the middle is compared", **HARDER)
def check_middle(candidate):
    """You compare only rows in the middle of the text. Most wrong answers fail only at the ends."""
    return agrees(candidate, 9, 2, slice(3, 6))


@checks("one size", **HARDER)
def check_one_size(candidate):
    """You test one window. Also test a window of one, and a window wider than the text."""
    return agrees(candidate, 7, 2)


@checks("equal scores", **HARDER)
def check_equal_scores(candidate):
    """Your queries are zero, so all scores are equal and a missing scale does not show."""
    return all(agrees(candidate, 7, half, factor=0.0) for half in (0, 2, 9))
