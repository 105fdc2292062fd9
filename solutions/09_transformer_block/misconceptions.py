"""Wrong answers on the way to a Transformer block: name, message, the tests they fail."""

import torch
from torch.nn import functional

from attn_course.probes import WrongAnswers, call, student, witnesses


def family(wrong, step, faults, **more):
    """Faults that all replace the same step of the right answer."""
    for name, (message, change) in faults.items():
        wrong.fault(name, message, **{step: change}, **more)


# --- layer_norm and rms_norm -------------------------------------------------------------------


def affine(y, weight, bias, x=None):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def root(variance, eps):
    return (variance + eps).sqrt()


def mean_out(x, dims):
    return x - x.mean(dims, keepdim=True)


def mean_square(x, y, dims):
    return y.square().mean(dims, keepdim=True)


def normal(
    x,
    weight=None,
    bias=None,
    eps=1e-5,
    *,
    read=lambda x, weight: x,
    dims=lambda x: -1,
    centre=mean_out,
    spread=mean_square,
    size=root,
    last=affine,
):
    x = read(x, weight)
    y = centre(x, dims(x))
    return last(y / size(spread(x, y, dims(x)), eps), weight, bias, x)


def scaled_only(x, weight=None, eps=1e-6, **step):
    return normal(x, weight, None, eps, **{"centre": lambda x, dims: x, **step})


layer = WrongAnswers("layer_norm", tests=("by_hand", "values", "small", "gradient"), right=normal)
rms = WrongAnswers("rms_norm", tests=("by_hand", "values", "small", "gradient"), right=scaled_only)


def vectors(draw):
    for shape in ((2, 5), (5, 5), (2, 3, 7), (3, 3, 3)):
        x = draw.normal(*shape, mean=1.0)
        yield x, x.shape[-1]


@witnesses(of="layer_norm")
def layer_calls(draw):
    for x, d in vectors(draw):
        yield call(x)
        yield call(x, draw.normal(d), draw.normal(d))
        yield call(x, None, draw.normal(d), eps=0.5)
        yield call(0.003 * x, draw.normal(d))
        for wrt in range(3):
            yield call(x, draw.normal(d), draw.normal(d), via=student.grad(wrt))
    yield call(torch.full((2, 4), 3.0), draw.normal(4), draw.normal(4))


@witnesses(of="rms_norm")
def rms_calls(draw):
    for x, d in vectors(draw):
        yield call(x)
        yield call(x, draw.normal(d))
        yield call(x, draw.normal(d), eps=0.5)
        yield call(0.001 * x, draw.normal(d))
        for wrt in range(2):
            yield call(x, draw.normal(d), via=student.grad(wrt))
    yield call(torch.zeros(2, 4), draw.normal(4))


for norm in (layer, rms):  # mistakes that both allow
    norm.fault(
        "over the positions",
        "You take mean squares over the positions. A norm runs along the last axis.",
        dims=lambda x: -2,
    )
    norm.fault(
        "over all tokens of the batch",
        "You normalise each feature over all tokens: a batch norm.",
        dims=lambda x: tuple(range(x.ndim - 1)),
    )
    norm.fault(
        "over all axes but the first",
        "You normalise the positions of a row together. Each vector has its own size.",
        fails=("values",),
        dims=lambda x: tuple(range(1, x.ndim)) or -1,
    )
    norm.fault(
        "one size for everything",
        "You normalise the whole tensor as one vector. Each vector has its own size.",
        dims=lambda x: tuple(range(x.ndim)),
    )
    norm.fault(
        "the sum of squares",
        "You divide by the root of the *sum* of squares. The formula has their mean.",
        spread=lambda x, y, dims: y.square().sum(dims, keepdim=True),
    )
    norm.fault(
        "mean of the absolute elements",
        "You take the mean of the absolute elements. The formula has the mean square.",
        spread=lambda x, y, dims: y.abs().mean(dims, keepdim=True).square(),
    )
    norm.fault(
        "divided by the largest element",
        "You divide by the largest absolute element. The formula has the root mean square.",
        spread=lambda x, y, dims: y.abs().amax(dims, keepdim=True).square(),
    )
    family(
        norm,
        "size",
        {
            "no root": ("You divide by the mean square itself. Take its root.", torch.add),
            "the root of the root": (
                "You take the root twice: a standard deviation is a root already.",
                lambda variance, eps: (variance.sqrt() + eps).sqrt(),
            ),
            "multiplied by the root": (
                "You multiply by the root. The formula divides.",
                lambda variance, eps: 1 / root(variance, eps),
            ),
        },
    )
    family(
        norm,
        "size",
        {
            "epsilon outside the root": (
                "You add epsilon to the root. Add it under the root.",
                lambda variance, eps: variance.sqrt() + eps,
            ),
            "no epsilon": (
                "You use no epsilon. A vector of equal elements then gives 0/0, which is NaN.",
                lambda variance, eps: variance.sqrt(),
            ),
            "epsilon as a floor": (
                "You use epsilon as a smallest value. It is added.",
                lambda variance, eps: variance.clamp(min=eps).sqrt(),
            ),
            "epsilon as a floor of the root": (
                "You use epsilon as the smallest value of the root. It is added under the root.",
                lambda variance, eps: variance.sqrt().clamp(min=eps),
            ),
            "the default epsilon whatever is asked": (
                "You write a number instead of the argument `eps`.",
                lambda variance, eps: (variance + (1e-5 if eps else 0.0)).sqrt(),
            ),
        },
        fails=("small",),
    )
    norm.fault(
        "gain 1 + g",
        "You multiply by 1 plus the gain. A gain of 1 should change nothing.",
        last=lambda y, w, bias, x: affine(y, None if w is None else 1 + w, bias),
    )
    norm.fault(
        "the gain is added",
        "You add the gain. The formula multiplies by it.",
        last=lambda y, w, bias, x: affine(y if w is None else y + w, None, bias),
    )
    norm.fault(
        "the gain comes before the norm",
        "You multiply by the gain before you normalise. It comes last.",
        read=lambda x, w: affine(x, w, None),
        last=lambda y, weight, bias, x: affine(y, None, bias),
    )
    norm.fault(
        "the size is a constant for the gradient",
        """Your values are right, but the size is detached: one element changes all others through
        it.""",
        fails=("gradient",),
        size=lambda variance, eps: root(variance, eps).detach(),
    )
    norm.detached()

layer.in_place(fails=("by_hand", "values", "small"))
rms.in_place()

layer.fault(
    "not centred",
    "You leave the mean in. That is RMS norm.",
    centre=lambda x, dims: x,
)
layer.fault(
    "only the variance knows the mean",
    "Your variance is right, but you do not subtract the mean from the vector.",
    centre=lambda x, dims: x,
    spread=lambda x, y, dims: mean_out(x, dims).square().mean(dims, keepdim=True),
)
layer.fault(
    "only centred",
    "You subtract the mean and do not divide.",
    size=lambda variance, eps: 1.0,
)
layer.fault(
    "one mean for all vectors",
    "You subtract the mean of the whole tensor. Each vector has its own.",
    centre=lambda x, dims: x - x.mean(),
)
layer.fault(
    "one variance for all vectors",
    "You divide every vector by one number. Each has its own variance.",
    spread=lambda x, y, dims: y.square().mean(),
)
layer.fault(
    "the unbiased variance",
    "You divide the squares by D - 1, as `var` does by default. The formula divides by D.",
    spread=lambda x, y, dims: x.var(dims, keepdim=True),
)
layer.fault(
    "mean square of the elements as variance",
    "Your variance is the mean square of the raw elements. Subtract the mean first.",
    spread=lambda x, y, dims: x.square().mean(dims, keepdim=True),
)
layer.fault(
    "the median instead of the mean",
    "You subtract the median. The formula has the mean.",
    centre=lambda x, dims: x - (x.median(-1, keepdim=True).values),
)
layer.fault(
    "gain and bias are ignored",
    "You ignore gain and bias. Both come after the division.",
    last=lambda y, weight, bias, x: y,
)
layer.fault(
    "the gain multiplies the bias",
    "You add the bias before the gain multiplies. Check the order in the formula.",
    last=lambda y, weight, bias, x: affine(affine(y, None, bias), weight, None),
)
layer.fault(
    "mean and variance are constants for the gradient",
    "Your values are right, but mean and variance are detached.",
    fails=("gradient",),
    centre=lambda x, dims: x - x.mean(dims, keepdim=True).detach(),
    size=lambda variance, eps: root(variance, eps).detach(),
)
layer.fault(
    "the mean is a constant for the gradient",
    "Your values are right, but the mean is detached.",
    fails=("gradient",),
    centre=lambda x, dims: x - x.mean(dims, keepdim=True).detach(),
)
rms.fault(
    "the mean is taken out",
    "You subtract the mean. RMS norm does not centre.",
    centre=mean_out,
)
rms.fault(
    "divided by the standard deviation",
    "You divide by the standard deviation, which is without the mean. Nothing is centred here.",
    spread=lambda x, y, dims: x.var(dims, keepdim=True, correction=0),
)
rms.fault(
    "the square of the mean",
    "You square the mean. The formula has the mean of the squares.",
    spread=lambda x, y, dims: y.mean(dims, keepdim=True).square(),
)

# --- feed_forward and swiglu -------------------------------------------------------------------


def plus(x, bias):
    return x if bias is None else x + bias


def network(
    x,
    weight_in,
    weight_out,
    bias_in=None,
    bias_out=None,
    *,
    units=lambda x, w, b, bend: bend(plus(x @ w.T, b)),
    bend=torch.relu,
    leave=lambda hidden, w, w_in: hidden @ w.T,
    shift=plus,
    finish=lambda y, x: y,
):
    hidden = units(x, weight_in, bias_in, bend)
    return finish(shift(leave(hidden, weight_out, weight_in), bias_out), x)


ffn = WrongAnswers("feed_forward", tests=("by_hand", "values", "gradient"), right=network)


@witnesses(of="feed_forward")
def ffn_calls(draw):
    for *lead, d, f in ((2, 3, 4), (3, 3, 3), (2, 5, 3, 7), (2, 3, 4, 2)):
        inputs = draw.normal(*lead, d), draw.normal(f, d), draw.normal(d, f)
        biases = draw.normal(f), draw.normal(d)
        yield call(*inputs)
        yield call(*inputs, *biases)
        yield call(*inputs, None, biases[1])
        for wrt in range(5):
            yield call(*inputs, *biases, via=student.grad(wrt))


family(
    ffn,
    "bend",
    {
        "no ReLU": (
            "You leave the ReLU out. Two linear maps in a row are one linear map.",
            lambda hidden: hidden,
        ),
        "a GELU": ("You use a GELU. The formula has a maximum with 0.", functional.gelu),
        "a silu": ("You use a silu. The formula has a maximum with 0.", functional.silu),
        "a sigmoid": ("You use a sigmoid. The formula has a maximum with 0.", torch.sigmoid),
        "a tanh": ("You use a tanh. The formula has a maximum with 0.", torch.tanh),
        "a leaky ReLU": (
            "You let a little of the negative units through. The formula has a maximum with 0.",
            functional.leaky_relu,
        ),
        "negative parts kept": (
            "You keep the negative units and set the positive ones to 0.",
            lambda hidden: hidden.clamp(max=0),
        ),
        "squared": (
            "You square the units. The formula has a maximum with 0.",
            lambda hidden: hidden.clamp(min=0).square(),
        ),
        "a softmax over the units": (
            "You take a softmax over the hidden units. The formula has a maximum with 0.",
            lambda hidden: hidden.softmax(-1),
        ),
    },
)
ffn.fault(
    "the ReLU comes last",
    "Your ReLU is around the result. It belongs between the two maps.",
    bend=lambda hidden: hidden,
    finish=lambda y, x: torch.relu(y),
)
ffn.fault(
    "a second ReLU",
    "You take a ReLU of the result as well.",
    but=("by_hand",),
    finish=lambda y, x: torch.relu(y),
)
ffn.fault(
    "the first bias comes after the ReLU",
    "You add the first bias after the ReLU. It belongs inside the maximum.",
    units=lambda x, w, b, bend: plus(bend(x @ w.T), b),
)
ffn.fault(
    "biases ignored",
    "You ignore both biases. Each map has one in the formula.",
    units=lambda x, w, b, bend: bend(x @ w.T),
    shift=lambda y, b: y,
)
ffn.fault(
    "positions are averaged",
    "Your hidden units are averaged over the positions. Each position is independent.",
    units=lambda x, w, b, bend: (
        bend(plus(x @ w.T, b)).mean(-2, keepdim=True).expand(*x.shape[:-1], len(w))
    ),
)
ffn.fault(
    "the first map used twice",
    "You go back by the first matrix. The second map has its own matrix.",
    leave=lambda hidden, w, w_in: hidden @ w_in,
)
ffn.fault(
    "scaled by the width",
    "You divide by the root of the number of hidden units. The formula does not.",
    leave=lambda hidden, w, w_in: hidden @ w.T / hidden.shape[-1] ** 0.5,
)
ffn.detached()


def gated(
    x,
    weight_gate,
    weight_up,
    *,
    read=lambda gate, up: (gate, up),
    bend=functional.silu,
    join=torch.mul,
):
    gate, up = read(x @ weight_gate.T, x @ weight_up.T)
    return join(bend(gate), up)


swi = WrongAnswers("swiglu", tests=("by_hand", "values", "large", "gradient"), right=gated)


@witnesses(of="swiglu")
def swiglu_calls(draw):
    for *lead, d, f in ((2, 3, 4), (3, 3, 3), (2, 5, 3, 7), (2, 3, 4, 2)):
        inputs = draw.normal(*lead, d), draw.normal(f, d), draw.normal(f, d)
        yield call(*inputs)
        for wrt in range(3):
            yield call(*inputs, via=student.grad(wrt))


swi.fault(
    "gate and value exchanged",
    "You take the silu of the wrong map. It belongs to the gate.",
    read=lambda gate, up: (up, gate),
)
swi.fault(
    "one map for both",
    "You use the gate for both. There are two maps.",
    read=lambda gate, up: (gate, gate),
)
gates = {
    "a sigmoid as gate": ("a sigmoid", torch.sigmoid),
    "a tanh as gate": ("a tanh", torch.tanh),
    "z times tanh": ("z times its tanh", lambda gate: gate * gate.tanh()),
    "the sigmoid turned round": (
        "z times a sigmoid that opens for negative z",
        lambda gate: gate * (-gate).sigmoid(),
    ),
    "no bend": ("linear", lambda gate: gate),
}
close_gates = {
    "a GELU as gate": ("a GELU", functional.gelu),
    "a steeper sigmoid": (
        "z times the sigmoid of 1.702 z, which imitates GELU",
        lambda gate: gate * (1.702 * gate).sigmoid(),
    ),
    "a softplus as gate": ("a softplus", functional.softplus),
}
for kinds, but in ((gates, ()), (close_gates, ("large",))):
    for name, (gate, bend) in kinds.items():
        message = f"Your gate is {gate}. The formula has z times the sigmoid of z."
        swi.fault(name, message, but=but, bend=bend)
swi.fault(
    "added instead of multiplied",
    "You add the two maps. A gate multiplies.",
    join=torch.add,
)
swi.fault(
    "the product is bent",
    "You take the silu of the product. Only the gate goes through silu.",
    bend=lambda gate: gate,
    join=lambda gate, up: functional.silu(gate * up),
)
swi.fault(
    "both are bent",
    "You take the silu of both maps. Only the gate goes through silu.",
    join=lambda gate, up: gate * functional.silu(up),
)
swi.fault(
    "what the gate lets through is left out",
    "You return the gate alone. It multiplies the second map.",
    join=lambda gate, up: gate,
)
swi.fault(
    "the exponential overflows",
    "Your sigmoid is made of an exponential that overflows. torch has a safe sigmoid.",
    fails=("large",),
    bend=lambda gate: gate * gate.exp() / (1 + gate.exp()),
)
swi.detached()

# --- transformer_block -------------------------------------------------------------------------


def ahead(x, part, norm, start, place):
    return x + part(norm(x))


def behind(x, part, norm, start, place):
    return norm(x + part(x))


def block(
    x,
    attention,
    feed_forward,
    norm_1,
    norm_2,
    norm_first,
    *,
    parts=lambda a, f: (a, f),
    norms=lambda n, m: (n, m),
    pre=ahead,
    post=behind,
):
    start = x
    both = zip(parts(attention, feed_forward), norms(norm_1, norm_2), strict=True)
    for place, (part, norm) in enumerate(both):
        x = (pre if norm_first else post)(x, part, norm, start, place)
    return x


whole = WrongAnswers("transformer_block", tests=("post", "pre"), right=block)


@witnesses(of="transformer_block")
def block_calls(draw):
    a, b, c, d = (1.5, 0.7, 3.0, 2.0)

    def attention(x):
        return a * x.flip(1) + 1

    def feed_forward(x):
        return b * x * x

    def norm_1(x):
        return x / c - 1

    def norm_2(x):
        return x / d + 2

    for shape in ((1, 2, 1), (2, 3, 5)):
        for norm_first in (False, True):
            parts = attention, feed_forward, norm_1, norm_2, norm_first
            yield call(draw.normal(*shape), *parts)


def in_both(name, message, *, pre, post):
    """A mistake in both orders, or in one of them alone."""
    whole.fault(name, message, pre=pre, post=post)
    whole.fault(f"{name} (pre-norm)", message, fails=("pre",), pre=pre)
    whole.fault(f"{name} (post-norm)", message, fails=("post",), post=post)


whole.fault(
    "always post-norm",
    "Your block is always post-norm. With `norm_first` the norm comes before the part.",
    fails=("pre",),
    pre=behind,
)
whole.fault(
    "always pre-norm",
    "Your block is always pre-norm. Without `norm_first` the norm comes after the sum.",
    fails=("post",),
    post=ahead,
)
whole.fault(
    "the two orders exchanged",
    "You exchange the two orders. `norm_first` means: before the part.",
    pre=behind,
    post=ahead,
)
in_both(
    "no residual",
    "Each part replaces its input. It is added.",
    pre=lambda x, part, norm, start, place: part(norm(x)),
    post=lambda x, part, norm, start, place: norm(part(x)),
)
in_both(
    "no residual around the attention",
    "The attention replaces its input. It is added.",
    pre=lambda x, part, norm, start, place: (0 if place == 0 else x) + part(norm(x)),
    post=lambda x, part, norm, start, place: norm((0 if place == 0 else x) + part(x)),
)
in_both(
    "no residual around the feed-forward part",
    "The feed-forward part replaces its input. It is added.",
    pre=lambda x, part, norm, start, place: (0 if place else x) + part(norm(x)),
    post=lambda x, part, norm, start, place: norm((0 if place else x) + part(x)),
)
in_both(
    "no norm",
    "You never call the norms, or in one of the two orders only.",
    pre=lambda x, part, norm, start, place: x + part(x),
    post=lambda x, part, norm, start, place: x + part(x),
)
whole.fault(
    "the residual starts behind the norm",
    "In your pre-norm block the part is added to the normalised vector. Add it to the raw one.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: norm(x) + part(norm(x)),
)
whole.fault(
    "the pre-norm block adds the normalised vector to the part of the raw one",
    "In your pre-norm block the norm is on the residual path. It belongs before the part.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: norm(x) + part(x),
)
whole.fault(
    "normalised before and after the part",
    "Your pre-norm block normalises before and after the part. Once, before, is enough.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: x + norm(part(norm(x))),
)
whole.fault(
    "only the part is normalised",
    "Your post-norm block normalises the part. It normalises the sum.",
    fails=("post",),
    post=lambda x, part, norm, start, place: x + norm(part(x)),
)
whole.fault(
    "what the part returns is normalised",
    "Your pre-norm block normalises what the part returns. It normalises what the part reads.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: x + norm(part(x)),
)
whole.fault(
    "only the way round is normalised",
    "Your post-norm block normalises the input. It normalises the sum.",
    fails=("post",),
    post=lambda x, part, norm, start, place: norm(x) + part(x),
)
whole.fault(
    "one norm at the end of the post-norm block",
    "Your post-norm block normalises once. Each of the two sums has a norm.",
    fails=("post",),
    post=lambda x, part, norm, start, place: norm(x + part(x)) if place else x + part(x),
)
in_both(
    "both parts read the input",
    "Your feed-forward part reads the block's input. It reads the result of the first step.",
    pre=lambda x, part, norm, start, place: x + part(norm(start)),
    post=lambda x, part, norm, start, place: norm(x + part(start)),
)
in_both(
    "the second residual brings back the input",
    "You add the block's input in the second step. Add the result of the first step.",
    pre=lambda x, part, norm, start, place: start + part(norm(x)),
    post=lambda x, part, norm, start, place: norm(start + part(x)),
)
whole.fault(
    "a norm at the end of every block",
    "Your pre-norm block ends in a norm. That norm comes once, after the last block.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: (norm if place else torch.clone)(x + part(norm(x))),
)
in_both(
    "the input is added twice",
    "You add the input of a part twice.",
    pre=lambda x, part, norm, start, place: 2 * x + part(norm(x)),
    post=lambda x, part, norm, start, place: norm(2 * x + part(x)),
)
whole.fault(
    "one norm for both parts",
    "You use the first norm twice. Each part has its own.",
    norms=lambda n, m: (n, n),
)
whole.fault(
    "the second norm for both parts",
    "You use the second norm twice. Each part has its own.",
    norms=lambda n, m: (m, m),
)
whole.fault(
    "the norms exchanged",
    "You give the first norm to the feed-forward part and the second to the attention.",
    norms=lambda n, m: (m, n),
)
whole.fault(
    "the feed-forward part comes first",
    "Your feed-forward part comes before the attention. It comes after it.",
    parts=lambda a, f: (f, a),
    norms=lambda n, m: (m, n),
)
whole.fault(
    "the parts exchanged",
    "Your feed-forward part comes first, with the norm of the attention.",
    parts=lambda a, f: (f, a),
)
whole.fault(
    "the attention twice",
    "You call the attention twice and the feed-forward part never.",
    parts=lambda a, f: (a, a),
)
whole.fault(
    "the feed-forward part twice",
    "You call the feed-forward part twice and the attention never.",
    parts=lambda a, f: (f, f),
)
whole.in_place()

# --- the counts --------------------------------------------------------------------------------


def entries(
    d,
    h,
    f,
    cross=False,
    *,
    projections=lambda d, h: 4 * d * d,
    maps=lambda d, f: 2 * d * f,
    biases=lambda d, f: f + d,
    attentions=lambda cross: 2 if cross else 1,
    norms=lambda cross: 3 if cross else 2,
    norm=lambda d: 2 * d,
):
    """The right count; a fault changes some of its terms."""
    part = maps(d, f) + biases(d, f)
    return attentions(cross) * projections(d, h) + part + norms(cross) * norm(d)


sizes = WrongAnswers("block_parameters", tests=("encoder", "decoder"), right=entries)


@witnesses(of="block_parameters")
def sizes_calls(draw):
    for d, h, f in ((2, 1, 3), (10, 5, 14), (512, 8, 2048), (12, 3, 7)):
        yield call(d, h, f)
        yield call(d, h, f, True)


family(
    sizes,
    "projections",
    {
        "every head as wide as the model": (
            "You count the projections once for every head. The heads share the width D.",
            lambda d, h: 4 * d * d * h,
        ),
        "every head as wide as the model, the output once": (
            "You count query, key and value once for every head. The heads share the width D.",
            lambda d, h: (3 * h + 1) * d * d,
        ),
        "only one head is counted": (
            "You count the projections of one head, of D / H elements. There are H heads.",
            lambda d, h: 4 * d * d // h,
        ),
        "query, key and value of one head": (
            "You count query, key and value for one head. There are H heads.",
            lambda d, h: 3 * d * d // h + d * d,
        ),
        "heads that read only their share": (
            "Your matrices have D / H rows and columns. A head reads all D elements of a vector.",
            lambda d, h: 4 * (d // h) ** 2,
        ),
        "no output projection": (
            "You count query, key and value. The output projection is missing.",
            lambda d, h: 3 * d * d,
        ),
        "one projection": (
            "You count one projection. The attention has four of them.",
            lambda d, h: d * d,
        ),
        "a width instead of its square": (
            "You count a vector for each projection. A projection is a D by D matrix.",
            lambda d, h: 4 * d,
        ),
        "biases of the attention": (
            "You give a bias to each projection of the attention. They have none here.",
            lambda d, h: 4 * d * d + 4 * d,
        ),
    },
)
family(
    sizes,
    "biases",
    {
        "no biases in the feed-forward part": (
            "You leave out the biases of the feed-forward part.",
            lambda d, f: 0,
        ),
        "only the hidden bias": (
            "You count the bias of the hidden units alone. The second map has one too.",
            lambda d, f: f,
        ),
        "only the last bias": (
            "You count the bias of the second map alone. The hidden units have one too.",
            lambda d, f: d,
        ),
        "both biases as long as the hidden layer": (
            "You count two biases of F elements. The second one has D.",
            lambda d, f: 2 * f,
        ),
        "both biases as wide as the model": (
            "You count two biases of D elements. The first one has F.",
            lambda d, f: 2 * d,
        ),
    },
)
family(
    sizes,
    "maps",
    {
        "one matrix in the feed-forward part": (
            "You count one matrix of the feed-forward part. It has two.",
            lambda d, f: d * f,
        ),
        "gated": ("You count three matrices: a gated part. Here are two.", lambda d, f: 3 * d * f),
        "a hidden layer of 4 D": (
            "You take the hidden width to be 4 D. Here it is an argument.",
            lambda d, f: 8 * d * d,
        ),
    },
)
family(
    sizes,
    "norm",
    {
        "norms without a bias": ("You count no bias for the norms. Each has one.", lambda d: d),
        "norms with two numbers": (
            "You count one gain and one bias for each norm. Each feature has both.",
            lambda d: 2,
        ),
        "norms have no parameters": (
            "You leave the norms out. Each has a gain and a bias for every feature.",
            lambda d: 0,
        ),
    },
)
family(
    sizes,
    "norms",
    {
        "one norm is missing": (
            "You count one norm too few. Each part of the block has one.",
            lambda cross: 2 if cross else 1,
        ),
        "one norm": ("You count one norm. Each part of the block has one.", lambda cross: 1),
    },
)
sizes.fault(
    "three norms always",
    "You count three norms for the encoder as well. It has two parts.",
    fails=("encoder",),
    norms=lambda cross: 3,
)
sizes.fault(
    "the second norm of the decoder is missing",
    "You count two norms for the decoder. It has three parts.",
    fails=("decoder",),
    norms=lambda cross: 2,
)
sizes.fault(
    "the second attention has a norm and no projections",
    "You count a third norm for the decoder and no second set of projections.",
    fails=("decoder",),
    attentions=lambda cross: 1,
)
sizes.fault(
    "the second attention is missing",
    "You ignore `cross`. The second attention has four projections and a norm.",
    fails=("decoder",),
    attentions=lambda cross: 1,
    norms=lambda cross: 2,
)


def operations(
    n,
    d,
    h,
    f,
    *,
    term=lambda: 2,
    projections=lambda n, d, h: 4 * n * d * d,
    scores=lambda n, d, h: n * n * d,
    sums=lambda n, d, h: n * n * d,
    maps=lambda n, d, f: 2 * n * d * f,
    more=lambda n, d, h, f: 0,
):
    """The right count; a fault changes some of its terms."""
    attention = projections(n, d, h) + scores(n, d, h) + sums(n, d, h)
    return term() * (attention + maps(n, d, f)) + more(n, d, h, f)


work = WrongAnswers("block_flops", tests=("by_hand", "sizes"), right=operations)


@witnesses(of="block_flops")
def work_calls(draw):
    for length, d, h, f in ((3, 2, 1, 5), (1, 2, 1, 5), (7, 10, 5, 50), (50, 512, 8, 2048)):
        yield call(length, d, h, f)


family(
    work,
    "term",
    {
        "a term is one operation": (
            "You count one operation for each term of a product: it has two.",
            lambda: 1,
        ),
        "the backward pass as well": (
            "You count a training step, three times the work of the forward pass.",
            lambda: 6,
        ),
    },
)
family(
    work,
    "sums",
    {
        "scores without sums": (
            """You count half of the pairs' work. Nothing is masked, and scores and sums cost the
            same.""",
            lambda n, d, h: 0,
        ),
    },
)
for name, message, fails, pairs in (
    (
        "no pairs",
        "You leave out the scores and the weighted sums of the values.",
        None,
        lambda n, d, h: 0,
    ),
    (
        "every head as wide as the model",
        "You count the pairs for every head at the full width. A head has D / H elements.",
        ("sizes",),
        lambda n, d, h: n * n * d * h,
    ),
    (
        "the pairs of one head",
        "You count the pairs of one head, of D / H elements. There are H heads.",
        ("sizes",),
        lambda n, d, h: n * n * d // h,
    ),
    (
        "a pair is one number",
        "You count the pairs. Each of them needs a product of vectors.",
        None,
        lambda n, d, h: n * n,
    ),
    (
        "every position sees one",
        "Your pairs grow with the length. Each position is compared with all of them.",
        None,
        lambda n, d, h: n * d,
    ),
):
    work.fault(name, message, fails=fails, scores=pairs, sums=pairs)
work.fault(
    "the scores once for every head",
    "You count the scores for every head at the full width. A head has D / H elements.",
    fails=("sizes",),
    scores=lambda n, d, h: n * n * d * h,
)
family(
    work,
    "projections",
    {
        "three projections": (
            "You count three projections. The output projection is missing.",
            lambda n, d, h: 3 * n * d * d,
        ),
        "one projection": (
            "You count one projection. The attention has four of them.",
            lambda n, d, h: n * d * d,
        ),
        "no projections": (
            "You leave out the four projections of the attention.",
            lambda n, d, h: 0,
        ),
        "projections of one position": (
            "You count the projections once. Every position is projected.",
            lambda n, d, h: 4 * d * d,
        ),
    },
)
family(
    work,
    "projections",
    {
        "projections once for every head": (
            "You count the projections for every head at the full width. The heads share it.",
            lambda n, d, h: 4 * n * d * d * h,
        ),
        "projections of one head": (
            "You count the projections of one head. There are H heads.",
            lambda n, d, h: 4 * n * d * d // h,
        ),
    },
    fails=("sizes",),
)
family(
    work,
    "maps",
    {
        "one map in the feed-forward part": (
            "You count one of the two maps of the feed-forward part.",
            lambda n, d, f: n * d * f,
        ),
        "a gated feed-forward part": (
            "You count three maps: a gated part. Here are two.",
            lambda n, d, f: 3 * n * d * f,
        ),
        "no feed-forward part": (
            "You count the attention alone. The feed-forward part has two maps.",
            lambda n, d, f: 0,
        ),
        "feed-forward part of one position": (
            "You count the feed-forward part once. It works at every position.",
            lambda n, d, f: 2 * d * f,
        ),
        "hidden width taken for 4 D": (
            "You take the hidden width to be 4 D. Here it is an argument.",
            lambda n, d, f: 8 * n * d * d,
        ),
    },
)
family(
    work,
    "more",
    {
        "the softmax as well": (
            "You count the softmax. Only matrix products count here.",
            lambda n, d, h, f: 5 * h * n * n,
        ),
        "the biases as well": (
            "You count the biases. Only matrix products count here.",
            lambda n, d, h, f: n * (d + f),
        ),
    },
)

# --- the repair and the test -------------------------------------------------------------------


def stack(
    x,
    weights_in,
    weights_out,
    *,
    dims=lambda x: -1,
    spread=mean_square,
    join=lambda x, norm, part: x + part(norm(x)),
    bend=torch.relu,
    end=lambda x, norm: norm(x),
):
    def norm(x):
        return normal(x, dims=dims, spread=spread)

    for w_in, w_out in zip(weights_in, weights_out, strict=True):
        x = join(x, norm, lambda y, w_in=w_in, w_out=w_out: network(y, w_in, w_out, bend=bend))
    return end(x, norm)


fixed = WrongAnswers("fixed_stack", tests=("no_layers", "layers"), right=stack)


@witnesses(of="fixed_stack")
def stack_calls(draw):
    for b, length, d, f, n in ((1, 3, 2, 3, 1), (2, 3, 5, 7, 2), (3, 3, 3, 3, 3)):
        yield call(draw.normal(b, length, d), draw.normal(n, f, d), draw.normal(n, d, f))


fixed.fault(
    "both faults are still there",
    "This is the broken code. What does its norm do to one vector, and what is added to what?",
    dims=lambda x: 1,
    join=lambda x, norm, part: norm(x) + part(norm(x)),
)
fixed.fault(
    "the norm still runs over the positions",
    "The residual path is right. Mean and variance still run over the positions.",
    dims=lambda x: 1,
)
fixed.fault(
    "the norm runs over the batch",
    "Mean and variance run over the batch. Vectors are independent.",
    dims=lambda x: 0,
)
fixed.fault(
    "the norm still stands on the direct way",
    "The axis is right. The layer is still added to the normalised vector.",
    fails=("layers",),
    join=lambda x, norm, part: norm(x) + part(norm(x)),
)
fixed.fault(
    "no norm in the layers",
    "The norm is gone from the layers. The part reads a normalised vector.",
    fails=("layers",),
    join=lambda x, norm, part: x + part(x),
)
fixed.fault(
    "the norm behind the part",
    "Your norm acts on the result of the part. It belongs before it.",
    fails=("layers",),
    join=lambda x, norm, part: x + norm(part(x)),
)
fixed.fault(
    "no norm at the end",
    "The layers are right, and the last norm is gone.",
    end=lambda x, norm: x,
)
fixed.fault(
    "post-norm",
    "You normalise after each sum. The stack should be pre-norm.",
    fails=("layers",),
    join=lambda x, norm, part: norm(x + part(x)),
)
fixed.fault(
    "no residual",
    "Each part replaces its input. It is added.",
    fails=("layers",),
    join=lambda x, norm, part: part(norm(x)),
)
fixed.fault(
    "the unbiased variance",
    "You divide the squares by D - 1, as `var` does by default. The formula divides by D.",
    spread=lambda x, y, dims: x.var(dims, keepdim=True),
)


checks = WrongAnswers("check_layer_norm", tests=("plain", "mutants"))


@witnesses(of="check_layer_norm")
def check_calls(draw):
    for candidate in (
        normal,
        lambda x, weight=None, bias=None, eps=1e-5: 2 * normal(x, weight, bias, eps),
        lambda x, weight=None, bias=None, eps=1e-5: torch.zeros_like(x),
        lambda x, weight=None, bias=None, eps=1e-5: normal(x, weight, bias, eps, centre=False),
        lambda x, weight=None, bias=None, eps=1e-5: normal(x, weight, bias, eps, dims=-2),
        lambda x, weight=None, bias=None, eps=1e-5: normal(x, None, None, eps),
        lambda *inputs, **more: 1 / 0,
    ):
        yield call(candidate)


def close(got, expected):
    same = isinstance(got, torch.Tensor) and got.shape == expected.shape
    return same and bool(torch.allclose(got.double(), expected.double(), atol=1e-5))


@checks("accepts everything")
def check_nothing(candidate):
    """Your test returns True whatever it is given, so that no wrong answer is caught. Call the
    candidate and compare what comes back with numbers of your own.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test returns False even for a right answer. Check that you allow for rounding, at
    the dtype of your own numbers, and at what you return in the end.
    """
    return False


@checks("only the shape is looked at")
def check_shape(candidate):
    """You compare the shape of the answer and no value in it. Nearly all wrong norms have the right
    shape.
    """
    return tuple(candidate(torch.ones(2, 3, 5)).shape) == (2, 3, 5)


@checks("only mean and variance are looked at", fails=("mutants",))
def check_moments(candidate):
    """You look at the mean and the variance of the result. A gain, a bias, small vectors and the
    place of epsilon are never seen.
    """
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = candidate(x)
    return close(y.mean(-1), torch.zeros(2, 3)) and bool(
        ((y.square().mean(-1) - 1).abs() < 1e-2).all()
    )


@checks("vectors whose mean is 0", fails=("mutants",))
def check_centred(candidate):
    """Your vectors have the mean 0 before they are normalised, and no gain or bias. Whether the
    mean is taken out cannot be seen on them.
    """
    x = torch.tensor([[1.0, -1.0], [-2.0, 2.0]], dtype=torch.float64)
    return close(candidate(x), x.sign())


@checks("no gain and no bias", fails=("mutants",))
def check_plain_only(candidate):
    """You never pass a gain or a bias, and never an epsilon. What can go wrong there is never
    tried.
    """
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return close(candidate(x), normal(x))
