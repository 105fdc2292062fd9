"""Wrong answers on the way to a Transformer block: name, message, the tests they fail."""

import torch
from torch.nn import functional

from attn_course.probes import WrongAnswers, call, student, witnesses

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
    """The right answer in steps; a fault replaces some of them."""
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
        """You take the mean of the squares over the positions, feature by feature. A word then
        depends on its neighbours, those to come included. A norm looks along the last axis.""",
        dims=lambda x: -2,
    )
    norm.fault(
        "over all tokens of the batch",
        """You normalise each feature over all tokens: a batch norm. A vector then depends on the
        other rows of the batch and on their padding.""",
        dims=lambda x: tuple(range(x.ndim - 1)),
    )
    norm.fault(
        "one size for everything",
        """You normalise the whole tensor as if it were one vector. Each vector has a size of its
        own: look at what `mean` gives without an axis.""",
        dims=lambda x: tuple(range(x.ndim)),
    )
    norm.fault(
        "the sum of squares",
        """You divide by the length of the vector, the root of the *sum* of squares. The entries
        then get smaller the more of them there are.""",
        spread=lambda x, y, dims: y.square().sum(dims, keepdim=True),
    )
    norm.fault(
        "mean of the absolute entries",
        """You take the mean of the absolute entries. The mean square counts large entries more,
        and its root is what the formula names.""",
        but=("by_hand",) if norm is layer else (),
        spread=lambda x, y, dims: y.abs().mean(dims, keepdim=True).square(),
    )
    norm.fault(
        "divided by the largest entry",
        """You divide by the largest absolute entry. The formula has the root of the mean square,
        to which every entry counts.""",
        but=("by_hand",) if norm is layer else (),
        spread=lambda x, y, dims: y.abs().amax(dims, keepdim=True).square(),
    )
    norm.fault(
        "no root",
        """You divide by the mean square itself. Long vectors then become short and short ones
        long: look for the root in the formula.""",
        size=lambda variance, eps: variance + eps,
    )
    norm.fault(
        "the root of the root",
        """You take the root twice: it is taken of something that is a root (a standard deviation)
        already. Short and long vectors stay short and long.""",
        size=lambda variance, eps: (variance.sqrt() + eps).sqrt(),
    )
    norm.fault(
        "multiplied by the root",
        """You multiply by the root where the formula divides: long vectors become longer.""",
        size=lambda variance, eps: 1 / root(variance, eps),
    )
    norm.fault(
        "epsilon outside the root",
        """You add epsilon to the root. It then acts like the root of the epsilon that is asked
        for, and small vectors come out much larger.""",
        fails=("small",),
        size=lambda variance, eps: variance.sqrt() + eps,
    )
    norm.fault(
        "no epsilon",
        """You divide by the root alone. A vector of equal entries, or of zeros, such as padding,
        gives 0 divided by 0, which is NaN.""",
        fails=("small",),
        size=lambda variance, eps: variance.sqrt(),
    )
    norm.fault(
        "epsilon as a floor",
        """You use epsilon as a smallest value (clamp, maximum). It is added: every vector becomes
        a little shorter by it, not only the smallest ones.""",
        fails=("small",),
        size=lambda variance, eps: variance.clamp(min=eps).sqrt(),
    )
    norm.fault(
        "epsilon as a floor under the root",
        """You use epsilon as a smallest value of the root (clamp, maximum). It stands under the
        root, and it is added.""",
        fails=("small",),
        size=lambda variance, eps: variance.sqrt().clamp(min=eps),
    )
    norm.fault(
        "epsilon squared",
        """You square epsilon before you add it. It is added to a mean of squares as it is.""",
        fails=("small",),
        size=lambda variance, eps: (variance + eps**2).sqrt(),
    )
    norm.fault(
        "the default epsilon whatever is asked",
        """You write a number where the argument belongs, so that nobody can choose another
        epsilon.""",
        fails=("small",),
        size=lambda variance, eps: (variance + (1e-5 if eps else 0.0)).sqrt(),
    )
    norm.fault(
        "the gain is ignored",
        """You never use the gain. Without it every vector leaves with the same length, whatever
        would serve the next part.""",
        last=lambda y, weight, bias, x: affine(y, None, bias),
    )
    norm.fault(
        "gain 1 + g",
        """You multiply by 1 plus the gain. Some models store their gains like that; here a gain of
        1 changes nothing.""",
        last=lambda y, w, bias, x: affine(y, None if w is None else 1 + w, bias),
    )
    norm.fault(
        "the gain is added",
        """You add the gain. It multiplies, feature by feature.""",
        last=lambda y, w, bias, x: affine(y if w is None else y + w, None, bias),
    )
    norm.fault(
        "the gain comes before the norm",
        """You multiply by the gain before you normalise, so that the norm takes most of it out
        again. It comes last.""",
        read=lambda x, w: affine(x, w, None),
        last=lambda y, weight, bias, x: affine(y, None, bias),
    )
    norm.fault(
        "the input is added",
        """You add the input to the result. The way round a part belongs to the block.""",
        last=lambda y, weight, bias, x: x + affine(y, weight, bias),
    )
    norm.fault(
        "the size is a constant for the gradient",
        """Your values are right, but the size is cut off (detach, no_grad), so the gradient does
        not know that a change of one entry moves all others.""",
        fails=("gradient",),
        size=lambda variance, eps: root(variance, eps).detach(),
    )
    norm.detached()

layer.in_place(fails=("by_hand", "values", "small"))
rms.in_place()

layer.fault(
    "not centred",
    """You divide by the root mean square and leave the mean in. That is RMS norm; a layer norm
    takes the mean out first.""",
    centre=lambda x, dims: x,
)
layer.fault(
    "only the variance knows the mean",
    """Your variance is right, but above the line the vector stands as it came. The mean is taken
    out there as well.""",
    centre=lambda x, dims: x,
    spread=lambda x, y, dims: mean_out(x, dims).square().mean(dims, keepdim=True),
)
layer.fault(
    "only centred",
    """You take the mean out and do not divide. The vectors keep their lengths, and it is the
    length that grows from block to block.""",
    size=lambda variance, eps: 1.0,
)
layer.fault(
    "one mean for all vectors",
    """You take one mean of the whole tensor out of every vector. Each has its own: look at what
    `mean` gives without an axis.""",
    centre=lambda x, dims: x - x.mean(),
)
layer.fault(
    "one variance for all vectors",
    """You divide every vector by the same number. Each has a variance of its own: look at what
    `var` gives without an axis.""",
    spread=lambda x, y, dims: y.square().mean(),
)
layer.fault(
    "the unbiased variance",
    """You divide the squares by D - 1, which is what `var` does unless told otherwise. The formula
    divides by D.""",
    spread=lambda x, y, dims: x.var(dims, keepdim=True),
)
layer.fault(
    "mean square of the entries as variance",
    """You take the mean out above the line, but below it the squares of the entries as they came.
    The variance is the mean square of what is left without the mean.""",
    spread=lambda x, y, dims: x.square().mean(dims, keepdim=True),
)
layer.fault(
    "the median in place of the mean",
    """You take out the entry in the middle. One large entry moves the mean and leaves the median;
    the formula has the mean.""",
    centre=lambda x, dims: x - (x.median(-1, keepdim=True).values),
)
layer.fault(
    "the bias is ignored",
    """You never use the bias. Look at the last term of the formula.""",
    last=lambda y, weight, bias, x: affine(y, weight, None),
)
layer.fault(
    "gain and bias are ignored",
    """You use neither gain nor bias. Look at the end of the formula.""",
    last=lambda y, weight, bias, x: y,
)
layer.fault(
    "the gain multiplies the bias",
    """You add the bias before the gain multiplies, so that the bias is multiplied as well. Look at
    the order in the formula.""",
    last=lambda y, weight, bias, x: affine(affine(y, None, bias), weight, None),
)
layer.fault(
    "mean and variance are constants for the gradient",
    """Your values are right, but mean and variance are cut off (detach, no_grad), so the gradient
    does not know that a change of one entry moves all others.""",
    fails=("gradient",),
    centre=lambda x, dims: x - x.mean(dims, keepdim=True).detach(),
    size=lambda variance, eps: root(variance, eps).detach(),
)
layer.fault(
    "the mean is a constant for the gradient",
    """Your values are right, but the mean is cut off (detach, item), so the gradient does not know
    that one entry moves it.""",
    fails=("gradient",),
    centre=lambda x, dims: x - x.mean(dims, keepdim=True).detach(),
)
rms.fault(
    "the mean is taken out",
    """You centre the vector first: a layer norm. What RMS norm saves is the mean.""",
    centre=mean_out,
)
rms.fault(
    "divided by the standard deviation",
    """You divide by the standard deviation, for which the mean is taken out. Nothing is centred
    here, neither above the line nor below it.""",
    spread=lambda x, y, dims: x.var(dims, keepdim=True, correction=0),
)
rms.fault(
    "the square of the mean",
    """You square the mean. The formula has the mean of the squares, which is larger; entries of
    both signs make the mean vanish.""",
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


ffn.fault(
    "no ReLU",
    """You leave the ReLU out. Two linear maps in a row are one linear map, and the hidden units
    are for nothing.""",
    bend=lambda hidden: hidden,
)
ffn.fault(
    "a GELU",
    """You bend by GELU. Many models do, and nearly everything is alike; the formula here has a
    maximum with 0.""",
    bend=functional.gelu,
)
ffn.fault(
    "a silu",
    """You bend by silu, which comes in the next exercise. The formula here has a maximum with
    0.""",
    bend=functional.silu,
)
ffn.fault(
    "a leaky ReLU",
    """You let a little of the negative units through. The formula has a maximum with 0: a negative
    unit is shut.""",
    bend=functional.leaky_relu,
)
ffn.fault(
    "a tanh",
    """You bend by tanh, so that large units are cut off at 1. The formula has a maximum with 0.""",
    bend=torch.tanh,
)
ffn.fault(
    "a sigmoid",
    """You bend by a sigmoid, so that shut units still hand something on. The formula has a maximum
    with 0.""",
    bend=torch.sigmoid,
)
ffn.fault(
    "absolute values",
    """You take the absolute values of the hidden units. A negative one should be shut, not turned
    round.""",
    bend=torch.abs,
)
ffn.fault(
    "negative parts kept",
    """You keep the negative hidden units and shut the positive ones. Look at the sign inside the
    maximum.""",
    bend=lambda hidden: hidden.clamp(max=0),
)
ffn.fault(
    "squared",
    """You square the open units. Some models do; the formula keeps them as they are.""",
    bend=lambda hidden: hidden.clamp(min=0).square(),
)
ffn.fault(
    "a softmax over the units",
    """You take a softmax over the hidden units, so that they compete. The formula has a maximum
    with 0, unit by unit.""",
    bend=lambda hidden: hidden.softmax(-1),
)
ffn.fault(
    "the ReLU comes last",
    """Your ReLU stands around the result. Nothing bends between the two maps, and the part can
    only add what is positive.""",
    bend=lambda hidden: hidden,
    finish=lambda y, x: torch.relu(y),
)
ffn.fault(
    "a second ReLU",
    """There is a ReLU around the result as well. The part could then never take anything away from
    the vector to which it is added.""",
    but=("by_hand",),
    finish=lambda y, x: torch.relu(y),
)
ffn.fault(
    "the first bias comes after the ReLU",
    """You add the first bias after the ReLU. There it cannot decide where a unit opens; look at
    what stands inside the maximum.""",
    units=lambda x, w, b, bend: plus(bend(x @ w.T), b),
)
ffn.fault(
    "biases ignored",
    """You never use the biases. Look at the signature: both are optional, and neither is
    decoration.""",
    units=lambda x, w, b, bend: bend(x @ w.T),
    shift=lambda y, b: y,
)
ffn.fault(
    "the first bias is ignored",
    """You never use the first bias. It decides where a unit opens.""",
    units=lambda x, w, b, bend: bend(x @ w.T),
)
ffn.fault(
    "the second bias is ignored",
    """You never use the second bias. Look at the last term of the formula.""",
    shift=lambda y, b: y,
)
ffn.fault(
    "the input is added",
    """You add the input to the result. The residual connection belongs to the block, which adds it
    once; here is only the part inside.""",
    finish=lambda y, x: x + y,
)
ffn.fault(
    "positions are averaged",
    """Your hidden units are averaged over the positions, so that all of them get the same. This
    part works on every position alone; the attention is what mixes.""",
    units=lambda x, w, b, bend: (
        bend(plus(x @ w.T, b)).mean(-2, keepdim=True).expand(*x.shape[:-1], len(w))
    ),
)
ffn.fault(
    "the first map used twice",
    """You go back by the transpose of the first matrix. The second map has a matrix of its own,
    and it has just the same shape.""",
    leave=lambda hidden, w, w_in: hidden @ w_in,
)
ffn.fault(
    "scaled by the width",
    """You divide the result by the root of the number of hidden units. Nothing of the kind stands
    in the formula.""",
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
    """You bend the wrong one of the two maps: what a unit holds goes through the silu, and the
    gate stays straight. Compare your names with the formula.""",
    read=lambda gate, up: (up, gate),
)
swi.fault(
    "one map for both",
    """You use the gate for what a unit holds as well. There are two maps: one opens, the other is
    let through.""",
    read=lambda gate, up: (gate, gate),
)
swi.fault(
    "a sigmoid as gate",
    """Your gate is a sigmoid, which is the older gated linear unit. silu multiplies the sigmoid by
    what went into it.""",
    bend=torch.sigmoid,
)
swi.fault(
    "a ReLU as gate",
    """Your gate is a ReLU. silu is smooth, and a little below 0 for negative numbers.""",
    but=("large",),
    bend=torch.relu,
)
swi.fault(
    "a GELU as gate",
    """Your gate is a GELU, the close relative. silu takes the sigmoid where GELU takes the normal
    distribution.""",
    but=("large",),
    bend=functional.gelu,
)
swi.fault(
    "a steeper sigmoid",
    """The sigmoid of your gate is stretched by 1.702, which imitates GELU. silu takes z as it
    is.""",
    but=("large",),
    bend=lambda gate: gate * (1.702 * gate).sigmoid(),
)
swi.fault(
    "a softplus as gate",
    """Your gate is a softplus, the integral of the sigmoid. It never comes below 0; silu does.""",
    but=("large",),
    bend=functional.softplus,
)
swi.fault(
    "a tanh as gate",
    """Your gate is a tanh, as in an LSTM. The formula has z times the sigmoid of z.""",
    bend=torch.tanh,
)
swi.fault(
    "z times tanh",
    """Your gate is z times the tanh of z, which is open on both sides. Far below 0 the sigmoid
    shuts.""",
    bend=lambda gate: gate * gate.tanh(),
)
swi.fault(
    "the sigmoid turned round",
    """Your sigmoid opens for negative numbers: the sign in the exponent is wrong. Far above 0 the
    gate should be z itself.""",
    bend=lambda gate: gate * (-gate).sigmoid(),
)
swi.fault(
    "no bend",
    """Nothing bends your gate. A product of two linear maps is not linear, but the gate of the
    formula goes through silu.""",
    bend=lambda gate: gate,
)
swi.fault(
    "added in place of multiplied",
    """You add the two maps. A gate multiplies: shut, it lets nothing pass.""",
    join=torch.add,
)
swi.fault(
    "the product is bent",
    """You multiply first and bend the product. Only the gate goes through silu, or a negative
    value could not pass an open gate.""",
    bend=lambda gate: gate,
    join=lambda gate, up: functional.silu(gate * up),
)
swi.fault(
    "both are bent",
    """You bend both maps. What a unit holds stays as it is; only the gate goes through silu.""",
    join=lambda gate, up: gate * functional.silu(up),
)
swi.fault(
    "what the gate lets through is left out",
    """You return the gate alone. It says how far a unit is open, and not what the unit holds.""",
    join=lambda gate, up: gate,
)
swi.fault(
    "the exponential overflows",
    """Your sigmoid is made of an exponential that overflows for numbers far from 0. 0 times
    infinity, or infinity by infinity, is NaN; torch has a sigmoid that is safe on both sides.""",
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
    """Your block is post-norm whatever is asked. With `norm_first` the norm stands in front of the
    part, on the branch, and the sum leaves as it is.""",
    fails=("pre",),
    pre=behind,
)
whole.fault(
    "always pre-norm",
    """Your block is pre-norm whatever is asked. Without `norm_first` the norm comes after the sum,
    as in the paper.""",
    fails=("post",),
    post=ahead,
)
whole.fault(
    "the two orders exchanged",
    """You do post-norm where pre-norm is asked, and the other way round. `norm_first` means that
    the norm comes before the part.""",
    pre=behind,
    post=ahead,
)
in_both(
    "no residual",
    """Nothing is added: each part replaces what came in. A stack of such blocks hands its input,
    and the gradient, through every single part.""",
    pre=lambda x, part, norm, start, place: part(norm(x)),
    post=lambda x, part, norm, start, place: norm(part(x)),
)
in_both(
    "no residual around the attention",
    """What the attention returns replaces what came in. Both parts are added to what they read.""",
    pre=lambda x, part, norm, start, place: (0 if place == 0 else x) + part(norm(x)),
    post=lambda x, part, norm, start, place: norm((0 if place == 0 else x) + part(x)),
)
in_both(
    "no residual around the feed-forward part",
    """What the feed-forward part returns replaces what the attention has left. Both parts are
    added to what they read.""",
    pre=lambda x, part, norm, start, place: (0 if place else x) + part(norm(x)),
    post=lambda x, part, norm, start, place: norm((0 if place else x) + part(x)),
)
in_both(
    "no norm",
    """You never call the norms, or in one of the two orders only. Each part has one.""",
    pre=lambda x, part, norm, start, place: x + part(x),
    post=lambda x, part, norm, start, place: x + part(x),
)
whole.fault(
    "the residual starts behind the norm",
    """In your pre-norm block the normalised vector is what the part is added to. Then the norm
    stands on the direct way after all, and the gradient must pass through it.""",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: norm(x) + part(norm(x)),
)
whole.fault(
    "the pre-norm block adds the normalised vector to the part of the raw one",
    """In your pre-norm block the norm stands on the direct way and not on the branch: it should be
    the other way round.""",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: norm(x) + part(x),
)
whole.fault(
    "normalised before and after the part",
    """In your pre-norm block the norm stands on both sides of the part. It is called once, in
    front.""",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: x + norm(part(norm(x))),
)
whole.fault(
    "only the part is normalised",
    """In your post-norm block the norm acts on what the part returns, and the input is added
    afterwards. Post-norm normalises the sum.""",
    fails=("post",),
    post=lambda x, part, norm, start, place: x + norm(part(x)),
)
whole.fault(
    "only the way round is normalised",
    """In your post-norm block the norm acts on the input, and the part is added afterwards.
    Post-norm normalises the sum.""",
    fails=("post",),
    post=lambda x, part, norm, start, place: norm(x) + part(x),
)
whole.fault(
    "one norm at the end of the post-norm block",
    """Your post-norm block normalises once, at its end. Each of the two sums has a norm of its
    own.""",
    fails=("post",),
    post=lambda x, part, norm, start, place: norm(x + part(x)) if place else x + part(x),
)
in_both(
    "both parts read the input",
    """Your feed-forward part reads what came into the block. It should read what the attention has
    left behind; some models work in parallel, this one does not.""",
    pre=lambda x, part, norm, start, place: x + part(norm(start)),
    post=lambda x, part, norm, start, place: norm(x + part(start)),
)
in_both(
    "the second residual brings back the input",
    """Around the feed-forward part you add what came into the block, not what the attention has
    left. What the attention found is lost, as far as the feed-forward part does not hand it on.""",
    pre=lambda x, part, norm, start, place: start + part(norm(x)),
    post=lambda x, part, norm, start, place: norm(start + part(x)),
)
whole.fault(
    "a norm at the end of every block",
    """Your pre-norm block ends in a norm. A pre-norm stack needs one after its last block; in
    every block it would stand on the direct way.""",
    fails=("pre",),
    pre=lambda x, part, norm, start, place: (norm if place else torch.clone)(x + part(norm(x))),
)
in_both(
    "the input is added twice",
    """You add the input of a part to what is a sum already. Each part is added once.""",
    pre=lambda x, part, norm, start, place: 2 * x + part(norm(x)),
    post=lambda x, part, norm, start, place: norm(2 * x + part(x)),
)
whole.fault(
    "one norm for both parts",
    """You use the first norm twice. Each part has a norm of its own, with a gain of its own.""",
    norms=lambda n, m: (n, n),
)
whole.fault(
    "the second norm for both parts",
    """You use the second norm twice. Each part has a norm of its own, with a gain of its own.""",
    norms=lambda n, m: (m, m),
)
whole.fault(
    "the norms exchanged",
    """You give the first norm to the feed-forward part and the second to the attention. With fresh
    gains of 1 nobody notices; with trained weights everything is wrong.""",
    norms=lambda n, m: (m, n),
)
whole.fault(
    "the feed-forward part comes first",
    """Your feed-forward part works before the attention. It should compute with what the attention
    has found.""",
    parts=lambda a, f: (f, a),
    norms=lambda n, m: (m, n),
)
whole.fault(
    "the parts exchanged",
    """Your feed-forward part comes first, and with the norm of the attention. It should compute
    with what the attention has found.""",
    parts=lambda a, f: (f, a),
)
whole.fault(
    "the attention twice",
    """You call the attention twice and the feed-forward part never.""",
    parts=lambda a, f: (a, a),
)
whole.fault(
    "the feed-forward part twice",
    """You call the feed-forward part twice and the attention never.""",
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


sizes.fault(
    "every head as wide as the model",
    """You count the projections once for every head. The heads share the width: each has D / H
    entries, and all of them together D.""",
    projections=lambda d, h: 4 * d * d * h,
)
sizes.fault(
    "every head as wide as the model, the output once",
    """You count query, key and value once for every head at the full width. The heads share it:
    each has D / H entries, and all of them together D.""",
    projections=lambda d, h: (3 * h + 1) * d * d,
)
sizes.fault(
    "only one head is counted",
    """You count the projections of a single head, of D / H entries. There are H of them, and
    together they are as wide as the model.""",
    projections=lambda d, h: 4 * d * d // h,
)
sizes.fault(
    "query, key and value of one head",
    """You count query, key and value with the width of one head, and the output in full. There are
    H heads, and together they are as wide as the model.""",
    projections=lambda d, h: 3 * d * d // h + d * d,
)
sizes.fault(
    "heads that read only their share",
    """You count square matrices with the width of one head. A head has D / H entries, but it reads
    all D entries of a vector.""",
    projections=lambda d, h: 4 * (d // h) ** 2,
)
sizes.fault(
    "no output projection",
    """You count query, key and value. A fourth matrix leads from the heads, side by side, back to
    the model.""",
    projections=lambda d, h: 3 * d * d,
)
sizes.fault(
    "one projection",
    """You count one matrix for the attention. Queries, keys, values and the way back have one
    each.""",
    projections=lambda d, h: d * d,
)
sizes.fault(
    "a width in place of its square",
    """You count a vector for each projection. A projection is a matrix: every entry of its output
    reads every entry of its input.""",
    projections=lambda d, h: 4 * d,
)
sizes.fault(
    "biases of the attention",
    """You give a bias to each projection of the attention. torch does; the paper's formulas, and
    this exercise, have none.""",
    projections=lambda d, h: 4 * d * d + 4 * d,
)
sizes.fault(
    "no biases in the feed-forward part",
    """You leave out the biases of the feed-forward part. One of them is as long as there are
    hidden units, the other as wide as the model.""",
    biases=lambda d, f: 0,
)
sizes.fault(
    "one bias in the feed-forward part: the hidden one",
    """You count the bias of the hidden units alone. The way back has a bias, too.""",
    biases=lambda d, f: f,
)
sizes.fault(
    "one bias in the feed-forward part: the last one",
    """You count the bias of the way back alone. The hidden units have a bias, too.""",
    biases=lambda d, f: d,
)
sizes.fault(
    "both biases as long as the hidden layer",
    """You count two biases of the same length. Each is as long as what its map returns.""",
    biases=lambda d, f: 2 * f,
)
sizes.fault(
    "both biases as wide as the model",
    """You count two biases of the same length. Each is as long as what its map returns.""",
    biases=lambda d, f: 2 * d,
)
sizes.fault(
    "one matrix in the feed-forward part",
    """You count the way up and not the way back down. The feed-forward part has two matrices.""",
    maps=lambda d, f: d * f,
)
sizes.fault(
    "gated",
    """You count three matrices in the feed-forward part. A gated one has three; the paper's has
    two.""",
    maps=lambda d, f: 3 * d * f,
)
sizes.fault(
    "a hidden layer of 4 D",
    """You take the hidden width to be four times the width of the model. So it is in the paper;
    here it is an argument.""",
    maps=lambda d, f: 8 * d * d,
)
sizes.fault(
    "one norm is missing",
    """You count one norm too few. Each part of the block has one: the attention, the second
    attention where there is one, and the feed-forward part.""",
    norms=lambda cross: 2 if cross else 1,
)
sizes.fault(
    "a norm for the feed-forward part alone",
    """You count one norm, whatever there is. Each attention has one of its own.""",
    norms=lambda cross: 1,
)
sizes.fault(
    "norms without a bias",
    """You count a gain for each norm and no bias. A layer norm has both.""",
    norm=lambda d: d,
)
sizes.fault(
    "norms with two numbers",
    """You count one gain and one bias for each norm. There is one of each for every feature.""",
    norm=lambda d: 2,
)
sizes.fault(
    "norms have no parameters",
    """You leave the norms out. There are few entries in them, but each has a gain and a bias for
    every feature.""",
    norm=lambda d: 0,
)
sizes.fault(
    "three norms always",
    """You count three norms, also where there is one attention. Each part has one.""",
    fails=("encoder",),
    norms=lambda cross: 3,
)
sizes.fault(
    "the second norm of the decoder is missing",
    """Your decoder has a second attention without a norm. Each part of a block has one, so there
    are three.""",
    fails=("decoder",),
    norms=lambda cross: 2,
)
sizes.fault(
    "the second attention has a norm and no projections",
    """Your decoder has a third norm, but the second attention brings no matrices. It has four
    projections of its own.""",
    fails=("decoder",),
    attentions=lambda cross: 1,
)
sizes.fault(
    "the second attention is missing",
    """You count the same whether or not there is a second attention. It has four projections of
    its own, and a norm.""",
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


work.fault(
    "a term is one operation",
    """You count one operation for each term of a product. It is multiplied and added: two.""",
    term=lambda: 1,
)
work.fault(
    "the backward pass as well",
    """You count a step of training, three times the work of the forward pass. Asked is the forward
    pass.""",
    term=lambda: 6,
)
work.fault(
    "no pairs",
    """You count the maps and leave out the scores and the weighted sums, the only parts that grow
    with the square of the length.""",
    scores=lambda n, d, h: 0,
    sums=lambda n, d, h: 0,
)
work.fault(
    "scores without sums",
    """You count the scores of all pairs and not the weighted sums of the values, which cost as
    much again; or half of both, as under a causal mask. Nothing is masked here.""",
    sums=lambda n, d, h: 0,
)
work.fault(
    "every head as wide as the model",
    """You count the pairs once for every head at the full width. A head compares vectors of D / H
    entries, so that all heads together cost what one wide one would.""",
    fails=("sizes",),
    scores=lambda n, d, h: n * n * d * h,
    sums=lambda n, d, h: n * n * d * h,
)
work.fault(
    "the scores once for every head",
    """You count the scores once for every head at the full width, and the sums once. A head
    compares vectors of D / H entries.""",
    fails=("sizes",),
    scores=lambda n, d, h: n * n * d * h,
)
work.fault(
    "the pairs of one head",
    """You count the pairs of one head, of D / H entries. There are H of them.""",
    fails=("sizes",),
    scores=lambda n, d, h: n * n * d // h,
    sums=lambda n, d, h: n * n * d // h,
)
work.fault(
    "a pair is one number",
    """You count the pairs and not the entries that are multiplied for each of them.""",
    scores=lambda n, d, h: n * n,
    sums=lambda n, d, h: n * n,
)
work.fault(
    "every position sees one",
    """Your scores and sums grow with the length and not with its square. Each position is compared
    with all of them.""",
    scores=lambda n, d, h: n * d,
    sums=lambda n, d, h: n * d,
)
work.fault(
    "three projections",
    """You count the projections of query, key and value. A fourth one follows after the heads.""",
    projections=lambda n, d, h: 3 * n * d * d,
)
work.fault(
    "one projection",
    """You count one projection. Queries, keys, values and the way back have one each.""",
    projections=lambda n, d, h: n * d * d,
)
work.fault(
    "no projections",
    """You leave out the four projections of the attention.""",
    projections=lambda n, d, h: 0,
)
work.fault(
    "projections once for every head",
    """You count the projections once for every head at the full width. The heads share the
    width.""",
    fails=("sizes",),
    projections=lambda n, d, h: 4 * n * d * d * h,
)
work.fault(
    "projections of one head",
    """You count the projections of one head, of D / H entries. There are H of them.""",
    fails=("sizes",),
    projections=lambda n, d, h: 4 * n * d * d // h,
)
work.fault(
    "projections of one position",
    """You count the projections once. Every position is projected.""",
    projections=lambda n, d, h: 4 * d * d,
)
work.fault(
    "one map in the feed-forward part",
    """You count one of the two maps of the feed-forward part. It leads up, and down again.""",
    maps=lambda n, d, f: n * d * f,
)
work.fault(
    "a gated feed-forward part",
    """You count three maps in the feed-forward part. A gated one has three; the paper's has
    two.""",
    maps=lambda n, d, f: 3 * n * d * f,
)
work.fault(
    "no feed-forward part",
    """You count the attention alone. The feed-forward part of the block has two maps.""",
    maps=lambda n, d, f: 0,
)
work.fault(
    "feed-forward part of one position",
    """You count the feed-forward part once. It works at every position.""",
    maps=lambda n, d, f: 2 * d * f,
)
work.fault(
    "hidden width taken for 4 D",
    """You take the hidden width to be four times the width of the model. So it is in the paper;
    here it is an argument.""",
    maps=lambda n, d, f: 8 * n * d * d,
)
work.fault(
    "the softmax as well",
    """You count the softmax. It grows with no product of two sizes of the model, and the exercise
    leaves out everything but matrix products.""",
    more=lambda n, d, h, f: 5 * h * n * n,
)
work.fault(
    "the biases as well",
    """You count the biases of the feed-forward part. The exercise leaves out everything but matrix
    products.""",
    more=lambda n, d, h, f: n * (d + f),
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
    """This is the broken code as it stands. Work out by hand, for one vector, what its norm makes
    of it, and what a layer adds to what.""",
    dims=lambda x: 1,
    join=lambda x, norm, part: norm(x) + part(norm(x)),
)
fixed.fault(
    "the norm still runs over the positions",
    """The direct way is free now. But mean and variance are taken over the positions: a vector
    depends on its neighbours. Count the axis from the back.""",
    dims=lambda x: 1,
)
fixed.fault(
    "the norm runs over the batch",
    """Mean and variance are taken over the batch now. A vector has nothing to do with its
    neighbours, nor with other texts.""",
    dims=lambda x: 0,
)
fixed.fault(
    "the norm still stands on the direct way",
    """Each vector is normalised by itself now. But the layer is added to the normalised vector, so
    the gradient passes through every norm. What should it be added to?""",
    fails=("layers",),
    join=lambda x, norm, part: norm(x) + part(norm(x)),
)
fixed.fault(
    "no norm in the layers",
    """The norm is gone from the layers. It was wrong where it stood, but the part should read a
    normalised vector.""",
    fails=("layers",),
    join=lambda x, norm, part: x + part(x),
)
fixed.fault(
    "the norm behind the part",
    """Your norm acts on what the layer returns. It belongs in front of the layer, on the branch.""",
    fails=("layers",),
    join=lambda x, norm, part: x + norm(part(x)),
)
fixed.fault(
    "no norm at the end",
    """The layers are right, and the last norm is gone. Without it the result is as long as the sum
    of all layers has made it.""",
    end=lambda x, norm: x,
)
fixed.fault(
    "post-norm",
    """You normalise after each sum: a post-norm stack. It is asked to be pre-norm, with the norm
    on the branch and one more at the end.""",
    fails=("layers",),
    join=lambda x, norm, part: norm(x + part(x)),
)
fixed.fault(
    "no residual",
    """Nothing is added any more: each layer replaces what came in. A layer that does nothing
    should leave the vectors as they are.""",
    fails=("layers",),
    join=lambda x, norm, part: part(norm(x)),
)
fixed.fault(
    "the unbiased variance",
    """You divide the squares by D - 1. The broken code said `correction=0`, and that was right.""",
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
    """Your test says True whatever it is given, so that no wrong answer is caught. Call the
    candidate and compare what comes back with numbers of your own.
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
    """Your vectors have the mean 0 before they are normalised, and no gain or bias. Whether the mean
    is taken out cannot be seen on them.
    """
    x = torch.tensor([[1.0, -1.0], [-2.0, 2.0]], dtype=torch.float64)
    return close(candidate(x), x.sign())


@checks("no gain and no bias", fails=("mutants",))
def check_plain_only(candidate):
    """You never pass a gain or a bias, and never an epsilon. What can go wrong there is never tried."""
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return close(candidate(x), normal(x))
