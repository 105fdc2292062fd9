"""Wrong answers on the way to sparse attention: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses

# --- dilated_mask ------------------------------------------------------------------------------


def distance(length):
    i = torch.arange(length)
    return i[:, None] - i


def both_ways(is_global):
    return is_global[:, None] | is_global


def half_of(window_size, dilation):
    return window_size // 2 * dilation


def on_grid(away, dilation):
    return away % dilation == 0


def within(away, reach):
    return away.abs() <= reach


def dilated(
    length, window_size, dilation, is_global, *, reach=half_of, grid=on_grid, near=within,
    everywhere=both_ways, join=lambda window, everywhere: window | everywhere,
):  # fmt: skip
    """The right answer in four steps; a fault replaces one of them."""
    away = distance(length)
    window = near(away, reach(window_size, dilation)) & grid(away, dilation)
    return join(window, everywhere(is_global))


dilation = WrongAnswers("dilated_mask", tests=("by_hand", "windows", "global"), right=dilated)


@witnesses(of="dilated_mask")
def dilated_calls(draw):
    for length, window, step in (
        (5, 3, 2),
        (13, 9, 2),
        (11, 5, 3),
        (7, 5, 1),
        (9, 3, 2),
        (6, 3, 1),
        (4, 1, 2),
    ):
        yield call(length, window, step, torch.zeros(length, dtype=torch.bool))
        yield call(length, window, step, torch.arange(length) % 5 == 2)


dilation.fault(
    "the window is not stretched",
    """You keep the window as wide as without a dilation. The same *number* of keys is spread over a
    wider stretch: multiply its half by the dilation.""",
    reach=lambda window_size, step: window_size // 2,
    fails=("by_hand", "windows", "global"),
)
dilation.fault(
    "the gaps are filled",
    """You stretch the window and leave no gaps in it. A dilated window skips the positions whose
    distance is not a multiple of the dilation.""",
    grid=lambda away, step: torch.ones_like(away, dtype=torch.bool),
    fails=("by_hand", "windows", "global"),
)
dilation.fault(
    "the window looks one way",
    """You let a position see only what comes before it. Nothing here is causal: the window has two
    equal sides.""",
    near=lambda away, reach: (away >= 0) & (away <= reach),
)
dilation.fault(
    "the window size on each side",
    """You open the whole window size on each side. It counts all keys, the position itself included:
    half of the others lie on either side.""",
    reach=lambda window_size, step: window_size * step,
)
dilation.fault(
    "the end of the window is cut off",
    """You exclude the last key on each side: the distance may be *equal* to half of the window. A
    window of one would not even see itself.""",
    near=lambda away, reach: away.abs() < reach,
)
dilation.fault(
    "the grid counts from the start",
    """You keep the queries whose own number is a multiple of the dilation. The steps are counted from the
    position that looks: what matters is the distance.""",
    grid=lambda away, step: (torch.arange(len(away)) % step == 0).expand(len(away), -1),
)
dilation.fault(
    "the window looks ahead only",
    """You let a position see only what comes after it. The window has two equal sides.""",
    near=lambda away, reach: (away <= 0) & (-away <= reach),
)
dilation.fault(
    "nobody sees itself",
    """Your positions do not see themselves. The window counts the position itself as one of its keys.""",
    near=lambda away, reach: within(away, reach) & (away != 0),
)
dilation.fault(
    "the past only",
    """You exclude all later positions in the end, from the window and for the global positions. Nothing
    here is causal.""",
    join=lambda window, everywhere: (window | everywhere).tril(),
)
dilation.fault(
    "both conditions at once",
    """You keep the pairs that are in the window *and* belong to a global position. One of the two
    is enough.""",
    join=lambda window, everywhere: window & everywhere,
)
dilation.fault(
    "global positions lose their window",
    """You open a pair when either the window or a global position allows it, but not both. Where both
    do, it is open as well.""",
    join=lambda window, everywhere: window ^ everywhere,
    fails=("global",),
)
dilation.fault(
    "True and False exchanged",
    """Your mask is True where nothing may be seen. True means that a position may attend.""",
    join=lambda window, everywhere: ~(window | everywhere),
)
dilation.fault(
    "global positions are seen, but do not see",
    """You open the columns of the global positions and not their rows. They see all, and are seen by
    all.""",
    everywhere=lambda is_global: is_global.expand(len(is_global), -1),
    fails=("global",),
)
dilation.fault(
    "global positions see, but are not seen",
    """You open the rows of the global positions and not their columns. Nobody else could read what
    they have collected.""",
    everywhere=lambda is_global: is_global[:, None].expand(-1, len(is_global)),
    fails=("global",),
)
dilation.fault(
    "the others are global",
    """You open the rows and columns of the positions that are *not* global. True marks the global ones.""",
    everywhere=lambda is_global: both_ways(~is_global),
)
dilation.fault(
    "twice the window",
    """You open `window_size` - 1 steps on each side. These are the keys of both sides together: half of
    them lie on either.""",
    reach=lambda window_size, step: (window_size - 1) * step,
)
dilation.fault(
    "whole rows without a window",
    """Only queries whose own number is a multiple of the dilation have a window. What matters is the
    distance: every position has one.""",
    grid=lambda away, step: (torch.arange(len(away)) % step == 0)[:, None].expand_as(away),
    fails=("by_hand", "windows", "global"),
)
dilation.fault(
    "the window is left out",
    """Only global positions see, and are seen. The others have their window as well.""",
    near=lambda away, reach: away > away.max(),
)
dilation.fault(
    "only global pairs",
    """You open only the pairs in which *both* are global. One of the two is enough.""",
    everywhere=lambda is_global: is_global[:, None] & is_global,
    fails=("global",),
)


# --- strided_masks -----------------------------------------------------------------------------


def last(away, stride):
    return away < stride


def every(away, stride):
    return away % stride == 0


def causal(away):
    return away >= 0


def strided(length, stride, *, local=last, column=every, past=causal):
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
    """You leave out the causal part: positions look at later ones. Both heads see only themselves and
    what came before.""",
    past=lambda away: torch.ones_like(away, dtype=torch.bool),
)
strides.fault(
    "nobody sees itself",
    """Your positions do not see themselves. The local head counts its own position among the last
    ones, and the strided head starts there.""",
    past=lambda away: away > 0,
)
strides.fault(
    "the local head sees one too many",
    """Your local head sees one position more than the stride. Its own position is one of them.""",
    local=lambda away, stride: away <= stride,
)
strides.fault(
    "the local head sees its block",
    """Your local head sees the positions of its own block. That is the *fixed* pattern; the local head
    of the strided one has a window that moves along.""",
    local=lambda away, stride: (
        torch.arange(len(away))[:, None] // stride == torch.arange(len(away)) // stride
    ),
)
strides.fault(
    "the local head has two sides",
    """Your local head also sees the next positions. Both heads are causal.""",
    local=lambda away, stride: away.abs() < stride,
    past=lambda away: torch.ones_like(away, dtype=torch.bool),
    column=lambda away, stride: (away % stride == 0) & (away >= 0),
)
strides.fault(
    "the strided head sees the last of each block",
    """Your strided head sees the last position of every block. That is the *fixed* pattern; here the steps
    are counted from the position that looks.""",
    column=lambda away, stride: (torch.arange(len(away)) % stride == stride - 1).expand_as(away),
)
strides.fault(
    "a single stride back",
    """Your strided head sees itself and the position one stride before it, and stops there. It goes on to
    the start of the text.""",
    fails=("two_steps",),
    column=lambda away, stride: (away == 0) | (away == stride),
)
strides.fault(
    "the strided head sees the window too",
    """Your strided head also sees what the local head sees. Each head has its own pattern; two steps join
    them.""",
    column=lambda away, stride: (away % stride == 0) | (away < stride),
)
strides.fault(
    "the strided head counts from the start",
    """Your strided head sees the positions whose own number is a multiple of the stride, the same for
    everybody. The steps are counted from the position that looks.""",
    column=lambda away, stride: (torch.arange(len(away)) % stride == 0).expand(len(away), -1),
)
strides.fault(
    "the strided head starts one stride back",
    """Your strided head leaves out its own position. Distance 0 is a multiple of the stride too, and
    without it two steps do not reach everything.""",
    column=lambda away, stride: (away % stride == 0) & (away > 0),
)


@strides("the heads are exchanged")
def strides_exchanged(length, stride):
    """You give the strided head first and the local one second. The text says in which order they are
    asked for.
    """
    return strided(length, stride).flip(0)


@strides("both in one")
def strides_joined(length, stride):
    """Both of your masks are the union of the two. That is a pattern for a single head; here there are
    two heads, each with its own.
    """
    masks = strided(length, stride)
    return masks.any(0).expand(2, -1, -1)


# --- receptive_field ---------------------------------------------------------------------------


def through(mask, reach):
    return mask.float() @ reach.float() > 0


def in_order(masks):
    return masks


def alone(mask):
    return mask


def reached(masks, *, step=through, order=in_order, begin=alone):
    masks = order(masks)
    reach = begin(masks[0])
    for mask in masks[1:]:
        reach = step(mask, reach)
    return reach


field = WrongAnswers("receptive_field", tests=("by_hand", "windows", "layers"), right=reached)


@witnesses(of="receptive_field")
def field_calls(draw):
    for layers, length in ((2, 5), (3, 6), (1, 4), (4, 7)):
        yield call(torch.rand(layers, length, length, generator=draw.rng) < 0.3)
    window = (torch.arange(9)[:, None] - torch.arange(9)).abs() <= 1
    yield call(window.expand(3, 9, 9))


field.fault(
    "the layers in the wrong order",
    """You begin with the last layer. The path starts at the output, in the last layer, and ends at the
    input: the mask of a *later* layer stands on the left of the product.""",
    order=lambda masks: masks.flip(0),
    fails=("by_hand", "layers"),
)
field.axes_swapped(
    "rows and columns exchanged",
    """Rows and columns have changed places. Row i asks what the output at i can depend on; column j
    says which outputs depend on j.""",
    fails=("by_hand", "layers"),
)
field.fault(
    "only pairs that every layer allows",
    """You keep the pairs that are open in all layers. A path may take another position in every layer:
    that is why stacking widens what is seen.""",
    step=lambda mask, reach: mask & reach,
)
field.fault(
    "pairs that some layer allows",
    """You join the masks. A path needs one step in *every* layer, and its steps add up to more than any
    single layer sees.""",
    step=lambda mask, reach: mask | reach,
)
field.fault(
    "what was reached stays reached",
    """You add what the layers below had reached. There is no residual connection here: a position that
    may not look at itself hands nothing on to itself.""",
    step=lambda mask, reach: through(mask, reach) | reach,
    fails=("layers",),
)
field.fault(
    "what the layer itself allows is added",
    """From the second layer on you add the pairs of its own mask. A path takes one step in each of the
    layers: what this layer allows is only its last one.""",
    step=lambda mask, reach: through(mask, reach) | mask,
    fails=("by_hand", "layers"),
)
field.fault(
    "numbers of paths",
    """You return how many paths there are. Asked is whether there is one: True or False.""",
    step=lambda mask, reach: mask.float() @ reach.float(),
    fails=("by_hand", "windows", "layers"),
)


field.fault(
    "everything is reached",
    """Every layer after the first lets you reach everything, whatever its mask is. A number of paths is at
    least 0 for every pair; there is a path where it is larger.""",
    step=lambda mask, reach: torch.ones_like(mask),
)
field.fault(
    "the first layer has a residual connection",
    """In the first layer every position sees itself. There is no residual connection here: a position that
    may not look at itself does not see itself.""",
    begin=lambda mask: mask | torch.eye(len(mask), dtype=torch.bool),
    fails=("by_hand", "layers"),
)
field.fault(
    "every layer after the first has a residual connection",
    """From the second layer on every position keeps itself. There is no residual connection here: only
    what some path of masks allows is reached.""",
    step=lambda mask, reach: through(mask, reach) | torch.eye(len(mask), dtype=torch.bool),
    fails=("by_hand", "layers"),
)
field.fault(
    "the middle layers are left out",
    """You join the first and the last layer only. A path takes one step in each of the layers.""",
    order=lambda masks: torch.stack([masks[0], masks[-1]]),
    fails=("windows", "layers"),
)


@field("one step short", fails=("windows", "layers"))
def field_short(masks):
    """You leave out the last layer. As many layers, as many steps on the path."""
    return reached(masks[:-1]) if len(masks) > 1 else masks[0]


@field("the first mask for all layers", fails=("layers",))
def field_first(masks):
    """You use the mask of the first layer for every layer. Each layer has its own."""
    return reached(masks[:1].expand(len(masks), -1, -1))


# --- band_attention and its repair -------------------------------------------------------------


def window(half_width):
    return torch.arange(-half_width, half_width + 1)


def pushed_in(places, length):
    return places.clamp(0, length - 1)


def scaled(query, keys):
    return (query[:, None] * keys).sum(-1) / query.shape[-1] ** 0.5


def real(places, length):
    return (places >= 0) & (places < length)


def soft(scores, inside):
    return scores.masked_fill(~inside, -torch.inf).softmax(-1)


def mixed(weights, values):
    return (weights[..., None] * values).sum(1)


def by_distance(query, keys):
    return -(query[:, None] - keys).square().sum(-1) / query.shape[-1] ** 0.5


def band(
    query, key, value, half_width, *, steps=window, near_of=pushed_in,
    score=scaled, weigh=soft, mix=mixed,
):  # fmt: skip
    """The right answer in four steps; a fault replaces one of them."""
    length = len(query)
    places = torch.arange(length)[:, None] + steps(half_width)
    inside = real(places, length)
    near = near_of(places, length)
    return mix(weigh(score(query, key[near]), inside), value[near])


TESTS = ("by_hand", "values", "gradient", "memory")
bands = WrongAnswers("band_attention", tests=TESTS, right=band)
SIZES = ((7, 3, 2, 2), (5, 4, 4, 1), (4, 3, 2, 9), (6, 2, 3, 0), (3, 5, 5, 1))


@witnesses(of="band_attention")
def band_calls(draw):
    for length, size, width, half in SIZES:
        inputs = draw.normal(length, size), draw.normal(length, size), draw.normal(length, width)
        yield call(*inputs, half)
        if half < length:
            for wrt in range(3):
                yield call(*inputs, half, via=student.grad(wrt))


VALUES = ("by_hand", "values", "gradient")
bands.fault(
    "the ends see the first and last key again and again",
    """At the ends of the text your places are pushed back inside and counted: the first and the last
    key get several shares. A place outside must have no weight.""",
    weigh=lambda scores, inside: scores.softmax(-1),
    fails=VALUES,
)
bands.fault(
    "a place outside has a score of 0",
    """A place outside of the text gets a score of 0, and a share of the softmax. Before the softmax
    only minus infinity means nothing.""",
    weigh=lambda scores, inside: scores.masked_fill(~inside, 0.0).softmax(-1),
    fails=VALUES,
)
bands.fault(
    "weights outside are removed after the softmax",
    """You set the weights outside of the text to 0 when the softmax is done. What they had is lost, and
    rows at the ends do not sum to one.""",
    weigh=lambda scores, inside: scores.softmax(-1) * inside,
    fails=VALUES,
)
bands.fault(
    "no scale",
    """You compare by the plain product. Divide by the square root of the number of entries before the
    softmax.""",
    score=lambda query, keys: (query[:, None] * keys).sum(-1),
    fails=("values", "gradient"),
)
bands.fault(
    "divided by the root of the window",
    """You divide the scores by the square root of the number of places in the window. The products are
    sums over the entries of query and key.""",
    score=lambda query, keys: (query[:, None] * keys).sum(-1) / keys.shape[1] ** 0.5,
    fails=("values",),
)
bands.fault(
    "compared by distance",
    """Your scores are negative squared distances. Here a query and a key are compared by their product.""",
    score=by_distance,
    fails=VALUES[1:],
)
bands.fault(
    "nobody sees itself",
    """Your window leaves out the position itself. Distance 0 lies within every width.""",
    weigh=lambda scores, inside: soft(
        scores, inside & (torch.arange(scores.shape[1]) != scores.shape[1] // 2)
    ),
    fails=VALUES,
)
bands.fault(
    "the window ends at the query",
    """Your window has only its left side. The distance counts in both directions.""",
    steps=lambda half: torch.arange(-half, 1),
    fails=VALUES,
)
bands.fault(
    "the first step is missing",
    """Your window has one place too few on its left.""",
    steps=lambda half: torch.arange(-half + (half > 0), half + 1),
    fails=VALUES,
)
bands.fault(
    "the text is a ring",
    """Before the first key you find the last one again: places are counted round, and nothing outside is
    closed. There is no key at those places.""",
    near_of=lambda places, length: places % length,
    weigh=lambda scores, inside: scores.softmax(-1),
    fails=VALUES,
)
bands.fault(
    "the last step is missing",
    """Your window has one place too few on its right: a range ends before its last number.""",
    steps=lambda half: torch.arange(-half, max(half, 1)),
    fails=VALUES,
)


@bands("a table of all pairs", fails=("memory",))
def band_square(query, key, value, half_width):
    """Your numbers are right, and you make a table of all pairs on the way. That is what the band is
    there to avoid: its memory grows with the square of the length. Take for every query the places
    of its window only.
    """
    i = torch.arange(len(query))
    far = (i[:, None] - i).abs() > half_width
    scores = query @ key.T / query.shape[-1] ** 0.5
    return scores.masked_fill(far, -torch.inf).softmax(-1) @ value


@bands("every position keeps its own value", fails=VALUES)
def band_of_own(query, key, value, half_width):
    """Your result is `value` itself: the weights of a row all multiply the value of its own position, and
    they sum to one. Each of them belongs to the value at its place.
    """
    return value + 0 * band(query, key, value, half_width)


bands.detached(fails=("values", "gradient"))

fixed = WrongAnswers("fixed_band", tests=("alone", "windows"), right=band)


@witnesses(of="fixed_band")
def fixed_calls(draw):
    for length, size, width, half in SIZES:
        if half < length:
            yield call(
                draw.normal(length, size),
                draw.normal(length, size),
                draw.normal(length, width),
                half,
            )


def shifted(rows, half, sign=-1):
    return torch.stack([rows.roll(sign * step, 0) for step in range(-half, half + 1)], 1)


def rolled(query, key, value, half_width, *, sign=-1, closed=True):
    inside = real(torch.arange(len(query))[:, None] + window(half_width), len(query))
    scores = scaled(query, shifted(key, half_width))
    weights = soft(scores, inside if closed else torch.ones_like(inside))
    return mixed(weights, shifted(value, half_width, sign))


@fixed("both faults are still there", fails=("windows",))
def fixed_broken(query, key, value, half_width):
    """This is the broken code as it stands. Take three positions and write down which key, and which
    value, each step of the window brings to the first of them.
    """
    return rolled(query, key, value, half_width, sign=1, closed=False)


@fixed("the text is still a ring", fails=("windows",))
def fixed_ring(query, key, value, half_width):
    """Keys and values now agree. But a roll brings the end of the text round to its start: the first
    position still looks at the last one.
    """
    return rolled(query, key, value, half_width, closed=False)


@fixed("values are still shifted the other way", fails=("windows",))
def fixed_values(query, key, value, half_width):
    """The ends are closed now. But a weight that was found with the key on the left is given to the
    value on the right: both have to be shifted alike.
    """
    return rolled(query, key, value, half_width, sign=1)


@fixed("the values turn round instead of the keys", fails=("windows",))
def fixed_keys(query, key, value, half_width):
    """Keys and values are shifted alike now, both in the wrong direction: the places that you close
    belong to the other end of the text.
    """
    inside = real(torch.arange(len(query))[:, None] + window(half_width), len(query))
    scores = scaled(query, shifted(key, half_width, 1))
    return mixed(soft(scores, inside), shifted(value, half_width, 1))


@fixed("the window is gone")
def fixed_full(query, key, value, half_width):
    """You attend to all positions. The window was right in the broken code; only what happens at its
    steps was not.
    """
    return (query @ key.T / query.shape[-1] ** 0.5).softmax(-1) @ value


@fixed("the ends are left out", fails=("windows",))
def fixed_ends(query, key, value, half_width):
    """You set the weights at the ends to 0 after the softmax. They have taken their share by then:
    close the places before.
    """
    inside = real(torch.arange(len(query))[:, None] + window(half_width), len(query))
    weights = scaled(query, shifted(key, half_width)).softmax(-1) * inside
    return mixed(weights, shifted(value, half_width))


# --- global_attention --------------------------------------------------------------------------


def plain_scores(query, key):
    return query @ key.T * query.shape[-1] ** -0.5


def masked_rows(scores, mask, value):
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value


def open_rows(scores, mask, value):
    return scores.softmax(-1) @ value


def asked(q, k, v, gq, gk, gv):
    return gq, gk, gv


def own(keys, values, global_key, global_value, is_global):
    return keys, values


def given(mask, is_global):
    return mask


def by_row(is_global, far, near):
    return torch.where(is_global[:, None], far, near)


def seen_by_all(
    query, key, value, global_query, global_key, global_value, mask, is_global, *,
    score=plain_scores, near=masked_rows, far=open_rows, wide=asked, join=by_row,
    shared=own, seen=given,
):  # fmt: skip
    """The right answer in steps."""
    keys, values = shared(key, value, global_key, global_value, is_global)
    local = near(score(query, keys), seen(mask, is_global), values)
    gq, gk, gv = wide(query, key, value, global_query, global_key, global_value)
    everywhere = far(score(gq, gk), mask, gv)
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


globals_.fault(
    "one set of projections for all",
    """Your global positions use the local queries, keys and values. They ask something else, and have
    projections of their own for it.""",
    wide=lambda q, k, v, gq, gk, gv: (q, k, v),
)
globals_.fault(
    "global queries, local keys",
    """Your global queries are compared with the local keys. The global queries, keys and values belong
    together.""",
    wide=lambda q, k, v, gq, gk, gv: (gq, k, v),
)
globals_.fault(
    "local values in the global rows",
    """The global rows mix the local values. Weights from global queries and keys go with the global
    values.""",
    wide=lambda q, k, v, gq, gk, gv: (gq, gk, v),
)
globals_.fault(
    "everybody is global",
    """You return the global rows for every position. Only those that are marked take them.""",
    join=lambda is_global, far, near: far + 0 * near,
)
globals_.fault(
    "nobody is global",
    """You return the local rows for every position, the global ones too.""",
    join=lambda is_global, far, near: near + 0 * far,
)
globals_.fault(
    "the rows are exchanged",
    """You give the global rows to the positions that are not global, and the other way round. Look at
    the order of what you choose between.""",
    join=lambda is_global, far, near: by_row(is_global, near, far),
)
globals_.fault(
    "no scale",
    """You compare by the plain products. Both softmaxes have their scores divided by the square root of
    the number of entries.""",
    score=lambda query, key: query @ key.T,
    fails=("values", "gradient"),
)
globals_.fault(
    "the others see global positions by their global keys",
    """A position that is not global meets the `global_key` of a global one. It sees all positions by
    `key`; the global keys are for the global queries.""",
    shared=lambda k, v, gk, gv, chosen: (torch.where(chosen[:, None], gk, k), v),
    fails=("values", "gradient"),
)
globals_.fault(
    "the others read the global values of global positions",
    """A position that is not global mixes in the `global_value` of a global one. It reads `value` of all
    positions; the global values are for the global rows.""",
    shared=lambda k, v, gk, gv, chosen: (k, torch.where(chosen[:, None], gv, v)),
)
globals_.fault(
    "the others do not see the global positions",
    """Positions that are not global do not see the global ones. The mask opens these columns: what a global
    position has collected is for everybody.""",
    seen=lambda mask, chosen: mask & ~chosen,
)


@globals_("global positions see each other only")
def global_among(q, k, v, gq, gk, gv, mask, chosen):
    """Your global rows take only the keys of global positions. They see *all* positions."""
    far = plain_scores(gq, gk).masked_fill(~chosen, -torch.inf).softmax(-1) @ gv
    return by_row(chosen, far, masked_rows(plain_scores(q, k), mask, v))


globals_.fault(
    "both rows are added up",
    """A global position has the sum of its local and its global row. It takes the global one alone.""",
    join=lambda chosen, far, near: near + chosen[:, None] * far,
)
globals_.fault(
    "weights outside of the mask are removed after the softmax",
    """You set the weights outside of the mask to 0 when the softmax is done. What they had is lost, and
    the local rows do not sum to one.""",
    near=lambda scores, mask, value: (scores.softmax(-1) * mask) @ value,
)
globals_.fault(
    "the mask is left out",
    """Your local rows see everything. They are under the mask; only the global ones are not.""",
    near=open_rows,
)


# --- check_band --------------------------------------------------------------------------------

checks = WrongAnswers("check_band", tests=("plain", "mutants"))


@witnesses(of="check_band")
def check_calls(draw):
    for candidate in (
        band,
        lambda q, k, v, half_width: v,
        lambda q, k, v, half_width: rolled(q, k, v, half_width, closed=False),
        lambda q, k, v, half_width: band(q, k, v, half_width + 1),
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


def tried(candidate, length, half_width, rows=slice(None)):
    draw = torch.Generator().manual_seed(1)
    inputs = [torch.randn(length, 3, generator=draw) for _ in range(3)]
    try:
        got = candidate(*inputs, half_width)
    except Exception:
        return False
    expected = band(*inputs, half_width)
    same = got.shape == expected.shape
    return same and bool(torch.allclose(got[rows], expected[rows], atol=1e-5))


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
    """You compare the shape of the answer and no value in it. Nearly all wrong bands have the right
    shape.
    """
    try:
        return tuple(candidate(torch.ones(5, 3), torch.ones(5, 3), torch.ones(5, 2), 1).shape) == (
            5,
            2,
        )
    except Exception:
        return False


@checks("only the middle is looked at", fails=("mutants",))
def check_middle(candidate):
    """You compare rows from the middle of the text. Most wrong bands are right there, and wrong at the
    ends.
    """
    return tried(candidate, 9, 2, slice(3, 6))


@checks("one size", fails=("mutants",))
def check_one_size(candidate):
    """You try one window in one text. Ask for a window of one and for a window wider than the text as
    well.
    """
    return tried(candidate, 7, 2)


@checks("equal scores", fails=("mutants",))
def check_equal_scores(candidate):
    """You try queries of zeros. All scores are then equal, and a missing scale goes unnoticed."""
    value = torch.arange(7.0)[:, None]
    try:
        found = [candidate(torch.zeros(7, 3), torch.ones(7, 3), value, half) for half in (0, 2, 9)]
    except Exception:
        return False
    wanted = [band(torch.zeros(7, 3), torch.ones(7, 3), value, half) for half in (0, 2, 9)]
    return all(
        one.shape == two.shape and bool(torch.allclose(one, two, atol=1e-5))
        for one, two in zip(found, wanted, strict=True)
    )
