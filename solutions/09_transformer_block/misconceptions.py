"""Wrong answers on the way to a Transformer block: name, message, the tests they fail."""

import torch
from torch.nn import functional

from attn_course.probes import WrongAnswers, call, student, witnesses


def family(wrong, step, faults, **more):
    """Declare faults that replace the same step of the right answer."""
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
        "You normalise over the positions. A norm runs along the last axis.",
        dims=lambda x: -2,
    )
    norm.fault(
        "over all tokens of the batch",
        """You normalise each feature over all tokens, as a batch norm does. A norm runs along the
        last axis.""",
        dims=lambda x: tuple(range(x.ndim - 1)),
    )
    norm.fault(
        "over all axes but the first",
        "You normalise all positions of a sequence together. Each vector is normalised alone.",
        fails=("values",),
        dims=lambda x: tuple(range(1, x.ndim)) or -1,
    )
    norm.fault(
        "one size for everything",
        "You normalise the whole tensor as one vector. Each vector is normalised alone.",
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
            "no root": (
                "You divide by the mean square itself. The formula divides by its root.",
                torch.add,
            ),
            "the root of the root": (
                "You take the root twice. A standard deviation is already a root.",
                lambda variance, eps: (variance.sqrt() + eps).sqrt(),
            ),
            "multiplied by the root": (
                "You multiply by the root. The formula divides by it.",
                lambda variance, eps: 1 / root(variance, eps),
            ),
        },
    )
    family(
        norm,
        "size",
        {
            "epsilon outside the root": (
                "You add epsilon outside the root. The formula adds it under the root.",
                lambda variance, eps: variance.sqrt() + eps,
            ),
            "no epsilon": (
                "You use no epsilon. A vector of equal elements then gives 0/0, which is NaN.",
                lambda variance, eps: variance.sqrt(),
            ),
            "epsilon as a floor": (
                "You use epsilon as a lower limit of the mean square. The formula adds it.",
                lambda variance, eps: variance.clamp(min=eps).sqrt(),
            ),
            "epsilon as a floor of the root": (
                "You use epsilon as a lower limit of the root. The formula adds it under the root.",
                lambda variance, eps: variance.sqrt().clamp(min=eps),
            ),
            "`eps` ignored": (
                "You use a fixed epsilon. Use the argument `eps`.",
                lambda variance, eps: (variance + (1e-5 if eps else 0.0)).sqrt(),
            ),
        },
        fails=("small",),
    )
    norm.fault(
        "gain 1 + g",
        "You multiply by 1 + gain. The formula multiplies by the gain.",
        last=lambda y, w, bias, x: affine(y, None if w is None else 1 + w, bias),
    )
    norm.fault(
        "the gain is added",
        "You add the gain. The formula multiplies by it.",
        last=lambda y, w, bias, x: affine(y if w is None else y + w, None, bias),
    )
    norm.fault(
        "the gain comes before the norm",
        "You multiply by the gain before you normalise. The gain comes after the division.",
        read=lambda x, w: affine(x, w, None),
        last=lambda y, weight, bias, x: affine(y, None, bias),
    )
    norm.fault(
        "the size is a constant for the gradient",
        """Your values are right, but you detach the divisor. It depends on every element, so the
        gradient passes through it.""",
        fails=("gradient",),
        size=lambda variance, eps: root(variance, eps).detach(),
    )
    norm.detached()

layer.in_place(fails=("by_hand", "values", "small"))
rms.in_place()

layer.fault(
    "not centred",
    "You do not subtract the mean. That is RMS norm.",
    centre=lambda x, dims: x,
)
layer.fault(
    "centred only in the variance",
    "Your variance is right, but you do not subtract the mean from the vector.",
    centre=lambda x, dims: x,
    spread=lambda x, y, dims: mean_out(x, dims).square().mean(dims, keepdim=True),
)
layer.fault(
    "only centred",
    "You subtract the mean but do not divide by the standard deviation.",
    size=lambda variance, eps: 1.0,
)
layer.fault(
    "one mean for all vectors",
    "You subtract the mean of the whole tensor. Each vector has its own mean.",
    centre=lambda x, dims: x - x.mean(),
)
layer.fault(
    "one variance for all vectors",
    "You divide all vectors by the same number. Each vector has its own variance.",
    spread=lambda x, y, dims: y.square().mean(),
)
layer.fault(
    "the unbiased variance",
    "You divide the squares by D - 1, as `var` does by default. The formula divides by D.",
    spread=lambda x, y, dims: x.var(dims, keepdim=True),
)
layer.fault(
    "mean square of the elements as variance",
    "Your variance is the mean square of the raw elements. Use the centred ones.",
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
    "You add the bias before you multiply by the gain. The formula adds it afterwards.",
    last=lambda y, weight, bias, x: affine(affine(y, None, bias), weight, None),
)
layer.fault(
    "mean and variance are constants for the gradient",
    "Your values are right, but you detach mean and variance. Gradients pass through both.",
    fails=("gradient",),
    centre=lambda x, dims: x - x.mean(dims, keepdim=True).detach(),
    size=lambda variance, eps: root(variance, eps).detach(),
)
layer.fault(
    "the mean is a constant for the gradient",
    "Your values are right, but you detach the mean. Gradients pass through it.",
    fails=("gradient",),
    centre=lambda x, dims: x - x.mean(dims, keepdim=True).detach(),
)
rms.fault(
    "the mean is taken out",
    "You subtract the mean. RMS norm does not centre the vector.",
    centre=mean_out,
)
rms.fault(
    "divided by the standard deviation",
    "You divide by the standard deviation. RMS norm divides by the root mean square.",
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
            "You leave out the ReLU. Two linear maps in succession are one linear map.",
            lambda hidden: hidden,
        ),
        "a GELU": ("You use a GELU. The formula has a maximum with 0.", functional.gelu),
        "a silu": ("You use a silu. The formula has a maximum with 0.", functional.silu),
        "a sigmoid": ("You use a sigmoid. The formula has a maximum with 0.", torch.sigmoid),
        "a tanh": ("You use a tanh. The formula has a maximum with 0.", torch.tanh),
        "a leaky ReLU": (
            "You keep a fraction of the negative units. The formula has a maximum with 0.",
            functional.leaky_relu,
        ),
        "negative parts kept": (
            """You keep the negative units and set the positive ones to 0. The formula does the
            reverse.""",
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
    "You apply the ReLU to the result. It belongs between the two maps.",
    bend=lambda hidden: hidden,
    finish=lambda y, x: torch.relu(y),
)
ffn.fault(
    "a second ReLU",
    "You apply a ReLU to the result as well. The formula has only one.",
    but=("by_hand",),
    finish=lambda y, x: torch.relu(y),
)
ffn.fault(
    "the first bias comes after the ReLU",
    "You add the first bias after the ReLU. The formula adds it before.",
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
    "You average the hidden units over the positions. Positions are independent.",
    units=lambda x, w, b, bend: (
        bend(plus(x @ w.T, b)).mean(-2, keepdim=True).expand(*x.shape[:-1], len(w))
    ),
)
ffn.fault(
    "the first map used twice",
    "You use the first matrix twice. The second map has its own matrix.",
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
    "You apply the silu to the wrong map. It belongs to the gate.",
    read=lambda gate, up: (up, gate),
)
swi.fault(
    "one map for both",
    "You use the gate for both maps. The value has its own weights.",
    read=lambda gate, up: (gate, gate),
)
gates = {
    "a sigmoid as gate": ("a sigmoid", torch.sigmoid),
    "a tanh as gate": ("a tanh", torch.tanh),
    "z times tanh": ("z times its tanh", lambda gate: gate * gate.tanh()),
    "the sigmoid of -z": (
        "z times the sigmoid of -z",
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
    "You add the two maps. The formula multiplies them.",
    join=torch.add,
)
swi.fault(
    "silu of the product",
    "You apply the silu to the product. Only the gate passes through it.",
    bend=lambda gate: gate,
    join=lambda gate, up: functional.silu(gate * up),
)
swi.fault(
    "silu of both maps",
    "You apply the silu to both maps. Only the gate passes through it.",
    join=lambda gate, up: gate * functional.silu(up),
)
swi.fault(
    "only the gate",
    "You return the gate alone. Multiply the second map by it.",
    join=lambda gate, up: gate,
)
swi.fault(
    "the exponential overflows",
    "Your sigmoid uses an exponential that overflows. torch has a safe sigmoid.",
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
    """Declare a fault in both orders, and in each of them alone."""
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
    "You exchange the two orders. `norm_first` means that the norm comes before the part.",
    pre=behind,
    post=ahead,
)
in_both(
    "no residual",
    "In your block each part replaces its input. A residual connection adds the two.",
    pre=lambda x, part, norm, start, place: part(norm(x)),
    post=lambda x, part, norm, start, place: norm(part(x)),
)
in_both(
    "no residual around the attention",
    "In your block the attention replaces its input. A residual connection adds the two.",
    pre=lambda x, part, norm, start, place: (0 if place == 0 else x) + part(norm(x)),
    post=lambda x, part, norm, start, place: norm((0 if place == 0 else x) + part(x)),
)
in_both(
    "no residual around the feed-forward part",
    "In your block the feed-forward part replaces its input. A residual connection adds the two.",
    pre=lambda x, part, norm, start, place: (0 if place else x) + part(norm(x)),
    post=lambda x, part, norm, start, place: norm((0 if place else x) + part(x)),
)
in_both(
    "no norm",
    "You skip the norms, in one order or in both. Each step has a norm.",
    pre=lambda x, part, norm, start, place: x + part(x),
    post=lambda x, part, norm, start, place: x + part(x),
)
whole.fault(
    "the residual starts after the norm",
    "Your pre-norm block adds the part to the normalised vector. Add it to the original one.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: norm(x) + part(norm(x)),
)
whole.fault(
    "pre-norm on the residual path",
    "Your pre-norm block has the norm on the residual path. It belongs before the part.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: norm(x) + part(x),
)
whole.fault(
    "normalised before and after the part",
    "Your pre-norm block normalises before and after the part. Normalise only before it.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: x + norm(part(norm(x))),
)
whole.fault(
    "only the part is normalised",
    "Your post-norm block normalises the output of the part. Normalise the sum.",
    fails=("post",),
    post=lambda x, part, norm, start, place: x + norm(part(x)),
)
whole.fault(
    "the output of the part is normalised",
    "Your pre-norm block normalises the output of the part. Normalise its input.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: x + norm(part(x)),
)
whole.fault(
    "only the residual path is normalised",
    "Your post-norm block normalises the residual path. Normalise the sum.",
    fails=("post",),
    post=lambda x, part, norm, start, place: norm(x) + part(x),
)
whole.fault(
    "one norm at the end of the post-norm block",
    "Your post-norm block normalises only once. Each of the two sums has a norm.",
    fails=("post",),
    post=lambda x, part, norm, start, place: norm(x + part(x)) if place else x + part(x),
)
in_both(
    "both parts read the input",
    "Your feed-forward part reads the block's input. It should read the result of the first step.",
    pre=lambda x, part, norm, start, place: x + part(norm(start)),
    post=lambda x, part, norm, start, place: norm(x + part(start)),
)
in_both(
    "the second residual adds the block's input",
    "Your second step adds the block's input. It should add the result of the first step.",
    pre=lambda x, part, norm, start, place: start + part(norm(x)),
    post=lambda x, part, norm, start, place: norm(start + part(x)),
)
whole.fault(
    "a norm at the end of every block",
    "Your pre-norm block ends in a norm. That norm comes once, after the last block of a stack.",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: (norm if place else torch.clone)(x + part(norm(x))),
)
in_both(
    "the input is added twice",
    "You add the input of a part twice. The formula adds it once.",
    pre=lambda x, part, norm, start, place: 2 * x + part(norm(x)),
    post=lambda x, part, norm, start, place: norm(2 * x + part(x)),
)
whole.fault(
    "one norm for both parts",
    "You use the first norm twice. Each part has its own norm.",
    norms=lambda n, m: (n, n),
)
whole.fault(
    "the second norm for both parts",
    "You use the second norm twice. Each part has its own norm.",
    norms=lambda n, m: (m, m),
)
whole.fault(
    "the norms exchanged",
    """You exchange the norms: the first belongs to the attention, the second to the feed-forward
    part.""",
    norms=lambda n, m: (m, n),
)
whole.fault(
    "the feed-forward part comes first",
    "Your feed-forward part comes before the attention. Exchange the two steps.",
    parts=lambda a, f: (f, a),
    norms=lambda n, m: (m, n),
)
whole.fault(
    "the parts exchanged",
    "You exchange the two parts, but not the norms. The attention comes first.",
    parts=lambda a, f: (f, a),
)
whole.fault(
    "the attention twice",
    "You call the attention twice and never the feed-forward part.",
    parts=lambda a, f: (a, a),
)
whole.fault(
    "the feed-forward part twice",
    "You call the feed-forward part twice and never the attention.",
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
            "You count the full projections once per head. The heads share the width D.",
            lambda d, h: 4 * d * d * h,
        ),
        "every head as wide as the model, the output once": (
            """You count query, key and value at full width for every head. The heads share the
            width D.""",
            lambda d, h: (3 * h + 1) * d * d,
        ),
        "only one head is counted": (
            "You count the projections of one head of width D / H. There are H heads.",
            lambda d, h: 4 * d * d // h,
        ),
        "query, key and value of one head": (
            "You count query, key and value for one head. There are H heads.",
            lambda d, h: 3 * d * d // h + d * d,
        ),
        "heads that read only their share": (
            "Your matrices have D / H rows and columns. A head reads all D elements.",
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
            "You count D for each projection. A projection is a D × D matrix.",
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
            "You leave out the two biases of the feed-forward part.",
            lambda d, f: 0,
        ),
        "only the hidden bias": (
            "You count only the bias of the hidden units. The second map has one, too.",
            lambda d, f: f,
        ),
        "only the last bias": (
            "You count only the bias of the second map. The hidden units have one, too.",
            lambda d, f: d,
        ),
        "both biases as wide as the hidden layer": (
            "You count two biases of size F. The second has size D.",
            lambda d, f: 2 * f,
        ),
        "both biases as wide as the model": (
            "You count two biases of size D. The first has size F.",
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
        "gated": (
            "You count three matrices, as in a gated part. This part has two.",
            lambda d, f: 3 * d * f,
        ),
        "a hidden layer of 4 D": (
            "You set the hidden width to 4 D. Use the argument `hidden_dim`.",
            lambda d, f: 8 * d * d,
        ),
    },
)
family(
    sizes,
    "norm",
    {
        "norms without a bias": (
            "You count no bias for the norms. Each norm has one.",
            lambda d: d,
        ),
        "norms with two numbers": (
            "You count two numbers for each norm. Every feature has a gain and a bias.",
            lambda d: 2,
        ),
        "norms have no parameters": (
            "You leave out the norms. Each has a gain and a bias for every feature.",
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
        "one norm": ("You count one norm in all. Each part of the block has one.", lambda cross: 1),
    },
)
sizes.fault(
    "three norms always",
    "You count three norms for the encoder. It has two parts, so two norms.",
    fails=("encoder",),
    norms=lambda cross: 3,
)
sizes.fault(
    "the second norm of the decoder is missing",
    "You count two norms for the decoder. It has three parts, so three norms.",
    fails=("decoder",),
    norms=lambda cross: 2,
)
sizes.fault(
    "the second attention has a norm and no projections",
    "You count the third norm of the decoder but not the projections of its second attention.",
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
            """You count one operation for each term of a product. A term takes a multiplication and
            an addition.""",
            lambda: 1,
        ),
        "the backward pass as well": (
            "You count a training step: three times the forward pass. Count only the forward pass.",
            lambda: 6,
        ),
    },
)
family(
    work,
    "sums",
    {
        "scores without sums": (
            """You count the scores or the weighted sums, or half of both. Both count in full:
            nothing is masked.""",
            lambda n, d, h: 0,
        ),
    },
)
for name, message, fails, pairs in (
    (
        "no pairs",
        "You leave out the pairs: the scores and the weighted sums.",
        None,
        lambda n, d, h: 0,
    ),
    (
        "every head as wide as the model",
        "You count the pairs at full width for every head. A head has the width D / H.",
        ("sizes",),
        lambda n, d, h: n * n * d * h,
    ),
    (
        "the pairs of one head",
        "You count the pairs of one head of width D / H. There are H heads.",
        ("sizes",),
        lambda n, d, h: n * n * d // h,
    ),
    (
        "a pair is one number",
        "You count one term per pair. Each pair needs a product of vectors.",
        None,
        lambda n, d, h: n * n,
    ),
    (
        "one pair per position",
        "You count one pair per position. Each position is compared with all L positions.",
        None,
        lambda n, d, h: n * d,
    ),
):
    work.fault(name, message, fails=fails, scores=pairs, sums=pairs)
work.fault(
    "the scores once for every head",
    "You count the scores at full width for every head. A head has the width D / H.",
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
            "You count the projections for one position. All L positions are projected.",
            lambda n, d, h: 4 * d * d,
        ),
    },
)
family(
    work,
    "projections",
    {
        "projections once for every head": (
            "You count the full projections once per head. The heads share the width D.",
            lambda n, d, h: 4 * n * d * d * h,
        ),
        "projections of one head": (
            "You count the projections of one head only. There are H heads.",
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
            "You count one map of the feed-forward part. It has two.",
            lambda n, d, f: n * d * f,
        ),
        "a gated feed-forward part": (
            "You count three maps, as in a gated part. This part has two.",
            lambda n, d, f: 3 * n * d * f,
        ),
        "no feed-forward part": (
            "You count the attention alone. The feed-forward part has two maps.",
            lambda n, d, f: 0,
        ),
        "feed-forward part of one position": (
            "You count the feed-forward part for one position. It applies at all L positions.",
            lambda n, d, f: 2 * d * f,
        ),
        "hidden width taken for 4 D": (
            "You set the hidden width to 4 D. Use the argument `hidden_dim`.",
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
    "This is the broken code. Check the axis of its norm, and what the residual connection adds.",
    dims=lambda x: 1,
    join=lambda x, norm, part: norm(x) + part(norm(x)),
)
fixed.fault(
    "the norm still runs over the positions",
    "The residual path is now right. Mean and variance still run over the positions.",
    dims=lambda x: 1,
)
fixed.fault(
    "the norm runs over the batch",
    "Your mean and variance run over the batch. Each vector is normalised alone.",
    dims=lambda x: 0,
)
fixed.fault(
    "the norm is still on the residual path",
    "The axis is now right. You still add the layer to the normalised vector.",
    fails=("layers",),
    join=lambda x, norm, part: norm(x) + part(norm(x)),
)
fixed.fault(
    "no norm in the layers",
    "You removed the norm from the layers. Each layer reads a normalised vector.",
    fails=("layers",),
    join=lambda x, norm, part: x + part(x),
)
fixed.fault(
    "the norm after the part",
    "You normalise the output of each layer. Normalise its input.",
    fails=("layers",),
    join=lambda x, norm, part: x + norm(part(x)),
)
fixed.fault(
    "no norm at the end",
    "The layers are right, but the final norm is missing.",
    end=lambda x, norm: x,
)
fixed.fault(
    "post-norm",
    "You normalise after each sum. The exercise asks for pre-norm.",
    fails=("layers",),
    join=lambda x, norm, part: norm(x + part(x)),
)
fixed.fault(
    "no residual",
    "In your block each part replaces its input. A residual connection adds the two.",
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
    """You compare only the shape. Most wrong norms have the right shape."""
    return tuple(candidate(torch.ones(2, 3, 5)).shape) == (2, 3, 5)


@checks("only mean and variance are compared", fails=("mutants",))
def check_moments(candidate):
    """You test only the mean and the variance of the result. Test gain, bias, small vectors and
    epsilon as well.
    """
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = candidate(x)
    return close(y.mean(-1), torch.zeros(2, 3)) and bool(
        ((y.square().mean(-1) - 1).abs() < 1e-2).all()
    )


@checks("vectors whose mean is 0", fails=("mutants",))
def check_centred(candidate):
    """Your vectors already have mean 0, so your test cannot detect a missing subtraction of the
    mean. Use others.
    """
    x = torch.tensor([[1.0, -1.0], [-2.0, 2.0]], dtype=torch.float64)
    return close(candidate(x), x.sign())


@checks("no gain and no bias", fails=("mutants",))
def check_plain_only(candidate):
    """You never pass a gain, a bias or an epsilon. Many wrong answers fail only there."""
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return close(candidate(x), normal(x))
