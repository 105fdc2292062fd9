"""Wrong answers on the way to a Transformer block: name, message, the tests they fail."""

import torch

from attn_course.probes import WrongAnswers, call, student, witnesses


def declare(family, name, message, wrong, *, fails=None, but=()):
    """Put a wrong answer into the catalogue under a name of its own."""
    wrong.__doc__ = message
    wrong.__name__ = f"{family.of}_" + "".join(c if c.isalnum() else "_" for c in name)
    globals()[wrong.__name__] = family(name, fails=fails, but=but)(wrong)


# --- layer_norm and rms_norm -------------------------------------------------------------------


def affine(y, weight, bias):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def root(variance, eps):
    return (variance + eps).sqrt()


def normal(x, weight=None, bias=None, eps=1e-5, *, dims=-1, centre=True, size=root, last=affine):
    """The right answer in three steps; a fault replaces one of them."""
    y = x - x.mean(dims, keepdim=True) if centre else x
    return last(y / size(y.square().mean(dims, keepdim=True), eps), weight, bias)


def scaled_only(x, weight=None, eps=1e-6, **step):
    return normal(x, weight, None, eps, **{"centre": False, **step})


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


def fault(name, message, *, fails=None, but=(), **step):
    """A wrong layer norm that differs from the right one in one step."""

    def wrong(x, weight=None, bias=None, eps=1e-5):
        return normal(x, weight, bias, eps, **step)

    declare(layer, name, message, wrong, fails=fails, but=but)


def rms_fault(name, message, *, fails=None, but=(), **step):
    """A wrong RMS norm that differs from the right one in one step."""

    def wrong(x, weight=None, eps=1e-6):
        return scaled_only(x, weight, eps, **step)

    declare(rms, name, message, wrong, fails=fails, but=but)


def every_token(x):
    return tuple(range(x.ndim - 1))


fault(
    "over the positions",
    """You take mean and variance over the positions, feature by feature. A word then depends on its
    neighbours, those to come included. A layer norm looks along the last axis.""",
    dims=-2,
)


@layer("over all tokens of the batch")
def layer_batch(x, weight=None, bias=None, eps=1e-5):
    """You take mean and variance of each feature over all tokens: a batch norm. A vector then
    depends on the other rows of the batch and on their padding.
    """
    return normal(x, weight, bias, eps, dims=every_token(x))


@layer("one mean for everything")
def layer_everything(x, weight=None, bias=None, eps=1e-5):
    """You take one mean and one variance of the whole tensor. Each vector has its own: look at what
    `mean` gives without an axis.
    """
    return normal(x, weight, bias, eps, dims=tuple(range(x.ndim)))


fault(
    "not centred",
    """You divide by the root mean square and leave the mean in. That is RMS norm; a layer norm takes
    the mean out first.""",
    centre=False,
)
fault(
    "only centred",
    """You take the mean out and do not divide. The vectors keep their lengths, and it is the length
    that grows from block to block.""",
    size=lambda variance, eps: 1.0,
)
fault(
    "divided by the variance",
    """You divide by the variance. Long vectors then become short and short ones long; look at the
    denominator of the formula.""",
    size=lambda variance, eps: variance + eps,
)
fault(
    "epsilon outside the root",
    """You add epsilon to the root. It then acts like the root of the epsilon that is asked for, and
    vectors of nearly equal entries come out much larger.""",
    fails=("small",),
    size=lambda variance, eps: variance.sqrt() + eps,
)
fault(
    "no epsilon",
    """You divide by the root of the variance alone. A vector of equal entries, such as padding, gives
    0 divided by 0, which is NaN.""",
    fails=("small",),
    size=lambda variance, eps: variance.sqrt(),
)
fault(
    "the gain is ignored",
    """You never use the gain. Without it every vector leaves with the same length, whatever would
    serve the next part.""",
    last=lambda y, weight, bias: affine(y, None, bias),
)
fault(
    "the bias is ignored",
    """You never use the bias. Look at the last term of the formula.""",
    last=lambda y, weight, bias: affine(y, weight, None),
)
fault(
    "the gain multiplies the bias",
    """You add the bias before the gain multiplies, so that the bias is multiplied as well. Look at
    the order in the formula.""",
    last=lambda y, weight, bias: affine(affine(y, None, bias), weight, None),
)
fault(
    "gain 1 + g",
    """You multiply by 1 plus the gain. Some models store their gains like that; here a gain of 1
    changes nothing.""",
    last=lambda y, weight, bias: affine(y, None if weight is None else 1 + weight, bias),
)


@layer("the unbiased variance")
def layer_unbiased(x, weight=None, bias=None, eps=1e-5):
    """You divide the squares by D - 1, which is what `var` does unless told otherwise. The formula
    divides by D.
    """
    centred = x - x.mean(-1, keepdim=True)
    return affine(centred / root(x.var(-1, keepdim=True), eps), weight, bias)


@layer("mean square of the entries as variance")
def layer_uncentred_variance(x, weight=None, bias=None, eps=1e-5):
    """You take the mean out above the line, but below it the squares of the entries as they came.
    The variance is the mean square of what is left without the mean.
    """
    centred = x - x.mean(-1, keepdim=True)
    return affine(centred / root(x.square().mean(-1, keepdim=True), eps), weight, bias)


@layer("mean and variance are constants for the gradient", fails=("gradient",))
def layer_cut(x, weight=None, bias=None, eps=1e-5):
    """Your values are right, but mean and variance are cut off (detach, no_grad), so the gradient
    does not know that a change of one entry moves all others.
    """
    mean, variance = x.mean(-1, keepdim=True).detach(), x.var(-1, keepdim=True, correction=0)
    return affine((x - mean) / root(variance.detach(), eps), weight, bias)


layer.detached()
layer.in_place(fails=("by_hand", "values", "small"))

rms_fault(
    "the mean is taken out",
    """You centre the vector first: a layer norm. What RMS norm saves is the mean.""",
    centre=True,
)
rms_fault(
    "over the positions",
    """You take the mean square over the positions, feature by feature. A word then depends on its
    neighbours. Look at the axis of the sum in the formula.""",
    dims=-2,
)
rms_fault(
    "no root",
    """You divide by the mean square. Long vectors then become short and short ones long: look for the
    root in the formula.""",
    size=lambda variance, eps: variance + eps,
)
rms_fault(
    "epsilon outside the root",
    """You add epsilon to the root. It then acts like the root of the epsilon that is asked for, and
    small vectors come out much larger.""",
    fails=("small",),
    size=lambda variance, eps: variance.sqrt() + eps,
)
rms_fault(
    "no epsilon",
    """You divide by the root of the mean square alone. A vector of zeros, such as padding, gives 0
    divided by 0, which is NaN.""",
    fails=("small",),
    size=lambda variance, eps: variance.sqrt(),
)
rms_fault(
    "the gain is ignored",
    """You never use the gain. Without it every vector leaves with the same length, whatever would
    serve the next part.""",
    last=lambda y, weight, bias: y,
)


@rms("divided by the length")
def rms_length(x, weight=None, eps=1e-6):
    """You divide by the length of the vector, the root of the *sum* of squares. The entries then get
    smaller the more of them there are.
    """
    return affine(x / root(x.square().sum(-1, keepdim=True), eps), weight, None)


@rms("mean of the absolute entries")
def rms_absolute(x, weight=None, eps=1e-6):
    """You divide by the mean of the absolute entries. The mean square counts large entries more, and
    its root is what the formula names.
    """
    return affine(x / (x.abs().mean(-1, keepdim=True) + eps), weight, None)


@rms("divided by the standard deviation")
def rms_deviation(x, weight=None, eps=1e-6):
    """You divide by the standard deviation, for which the mean is taken out. Nothing is centred here,
    neither above the line nor below it.
    """
    return affine(x / root(x.var(-1, keepdim=True, correction=0), eps), weight, None)


@rms("the root is a constant for the gradient", fails=("gradient",))
def rms_cut(x, weight=None, eps=1e-6):
    """Your values are right, but the root is cut off (detach, no_grad), so the gradient does not know
    that a change of one entry moves all others.
    """
    return affine(x / root(x.square().mean(-1, keepdim=True), eps).detach(), weight, None)


rms.detached()

# --- feed_forward and swiglu -------------------------------------------------------------------


def plus(x, bias):
    return x if bias is None else x + bias


def network(x, weight_in, weight_out, bias_in=None, bias_out=None, *, bend=torch.relu):
    return plus(bend(plus(x @ weight_in.T, bias_in)) @ weight_out.T, bias_out)


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


def ffn_fault(name, message, bend):
    def wrong(x, weight_in, weight_out, bias_in=None, bias_out=None):
        return network(x, weight_in, weight_out, bias_in, bias_out, bend=bend)

    declare(ffn, name, message, wrong)


ffn_fault(
    "no ReLU",
    """You leave the ReLU out. Two linear maps in a row are one linear map, and the hidden units are
    for nothing.""",
    lambda hidden: hidden,
)
ffn_fault(
    "another bend",
    """You bend by GELU. Many models do, and nearly everything is alike; the formula here has a
    maximum with 0.""",
    torch.nn.functional.gelu,
)
ffn_fault(
    "absolute values",
    """You take the absolute values of the hidden units. A negative one should be shut, not turned
    round.""",
    torch.abs,
)
ffn_fault(
    "negative parts kept",
    """You keep the negative hidden units and shut the positive ones. Look at the sign inside the
    maximum.""",
    lambda hidden: hidden.clamp(max=0),
)


@ffn("the ReLU comes last")
def ffn_relu_last(x, weight_in, weight_out, bias_in=None, bias_out=None):
    """Your ReLU stands around the result. Nothing bends between the two maps, and the part can only
    add what is positive.
    """
    return torch.relu(network(x, weight_in, weight_out, bias_in, bias_out, bend=lambda h: h))


@ffn("a second ReLU", but=("by_hand",))
def ffn_relu_twice(x, weight_in, weight_out, bias_in=None, bias_out=None):
    """There is a ReLU around the result as well. The part could then never take anything away from
    the vector to which it is added.
    """
    return torch.relu(network(x, weight_in, weight_out, bias_in, bias_out))


@ffn("the first bias comes after the ReLU")
def ffn_late_bias(x, weight_in, weight_out, bias_in=None, bias_out=None):
    """You add the first bias after the ReLU. There it cannot decide where a unit opens; look at what
    stands inside the maximum.
    """
    return plus(plus(torch.relu(x @ weight_in.T), bias_in) @ weight_out.T, bias_out)


@ffn("biases ignored", but=())
def ffn_no_bias(x, weight_in, weight_out, bias_in=None, bias_out=None):
    """You never use the biases. Look at the signature: both are optional, and neither is
    decoration.
    """
    return network(x, weight_in, weight_out)


@ffn("the input is added")
def ffn_residual(x, weight_in, weight_out, bias_in=None, bias_out=None):
    """You add the input to the result. The residual connection belongs to the block, which adds it
    once; here is only the part inside.
    """
    return x + network(x, weight_in, weight_out, bias_in, bias_out)


@ffn("positions are averaged", but=())
def ffn_mixed(x, weight_in, weight_out, bias_in=None, bias_out=None):
    """Your hidden units are averaged over the positions, so that all of them get the same. This part
    works on every position alone; the attention is what mixes.
    """
    hidden = torch.relu(plus(x @ weight_in.T, bias_in))
    mean = hidden.mean(-2, keepdim=True).expand_as(hidden)
    return plus(mean @ weight_out.T, bias_out)


@ffn("the first map used twice", but=())
def ffn_tied(x, weight_in, weight_out, bias_in=None, bias_out=None):
    """You go back by the transpose of the first matrix. The second map has a matrix of its own, and
    it has just the same shape.
    """
    return network(x, weight_in, weight_in.T, bias_in, bias_out)


ffn.detached()


def gated(x, weight_gate, weight_up, *, bend=torch.nn.functional.silu, join=torch.mul):
    return join(bend(x @ weight_gate.T), x @ weight_up.T)


swi = WrongAnswers("swiglu", tests=("by_hand", "values", "large", "gradient"), right=gated)


@witnesses(of="swiglu")
def swiglu_calls(draw):
    for *lead, d, f in ((2, 3, 4), (3, 3, 3), (2, 5, 3, 7), (2, 3, 4, 2)):
        inputs = draw.normal(*lead, d), draw.normal(f, d), draw.normal(f, d)
        yield call(*inputs)
        for wrt in range(3):
            yield call(*inputs, via=student.grad(wrt))


def swi_fault(name, message, *, fails=None, but=(), **step):
    def wrong(x, weight_gate, weight_up):
        return gated(x, weight_gate, weight_up, **step)

    declare(swi, name, message, wrong, fails=fails, but=but)


@swi("gate and value exchanged")
def swi_exchanged(x, weight_gate, weight_up):
    """You bend the wrong one of the two maps: what a unit holds goes through the silu, and the gate
    stays straight. Compare your names with the formula.
    """
    return gated(x, weight_up, weight_gate)


swi_fault(
    "a sigmoid as gate",
    """Your gate is a sigmoid, which is the older gated linear unit. silu multiplies the sigmoid by
    what went into it.""",
    bend=torch.sigmoid,
)
swi_fault(
    "a ReLU as gate",
    """Your gate is a ReLU. silu is smooth, and a little below 0 for negative numbers.""",
    bend=torch.relu,
    but=("large",),
)
swi_fault(
    "a GELU as gate",
    """Your gate is a GELU, the close relative. silu takes the sigmoid where GELU takes the normal
    distribution.""",
    bend=torch.nn.functional.gelu,
    but=("large",),
)
swi_fault(
    "a tanh as gate",
    """Your gate is a tanh, as in an LSTM. The formula has z times the sigmoid of z.""",
    bend=torch.tanh,
)
swi_fault(
    "no bend",
    """Nothing bends your gate. A product of two linear maps is not linear, but the gate of the
    formula goes through silu.""",
    bend=lambda gate: gate,
)
swi_fault(
    "added in place of multiplied",
    """You add the two maps. A gate multiplies: shut, it lets nothing pass.""",
    join=torch.add,
)
swi_fault(
    "the product is bent",
    """You multiply first and bend the product. Only the gate goes through silu, or a negative value
    could not pass an open gate.""",
    bend=lambda gate: gate,
    join=lambda gate, up: torch.nn.functional.silu(gate * up),
)
swi_fault(
    "both are bent",
    """You bend both maps. What a unit holds stays as it is; only the gate goes through silu.""",
    join=lambda gate, up: gate * torch.nn.functional.silu(up),
)
swi_fault(
    "the exponential overflows",
    """Your sigmoid is made of an exponential that overflows for numbers far below 0. 0 times infinity,
    or infinity by infinity, is NaN; torch has a sigmoid that is safe on both sides.""",
    bend=lambda gate: gate * gate.exp() / (1 + gate.exp()),
    fails=("large",),
)
swi.detached()

# --- transformer_block -------------------------------------------------------------------------


def block(x, attention, feed_forward, norm_1, norm_2, norm_first):
    for part, norm in ((attention, norm_1), (feed_forward, norm_2)):
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
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


def block_fault(name, message, change, *, fails=("post", "pre")):
    def wrong(x, attention, feed_forward, norm_1, norm_2, norm_first):
        return change(x, attention, feed_forward, norm_1, norm_2, norm_first)

    declare(whole, name, message, wrong, fails=fails)


def by_parts(join):
    """Both parts one after the other, joined by ``join(x, part, norm, norm_first)``."""

    def change(x, attention, feed_forward, norm_1, norm_2, norm_first):
        x = join(x, attention, norm_1, norm_first)
        return join(x, feed_forward, norm_2, norm_first)

    return change


block_fault(
    "always post-norm",
    """Your block is post-norm whatever is asked. With `norm_first` the norm stands in front of the
    part, on the branch, and the sum leaves as it is.""",
    lambda x, a, f, n, m, first: block(x, a, f, n, m, False),
    fails=("pre",),
)
block_fault(
    "always pre-norm",
    """Your block is pre-norm whatever is asked. Without `norm_first` the norm comes after the sum, as
    in the paper.""",
    lambda x, a, f, n, m, first: block(x, a, f, n, m, True),
    fails=("post",),
)
block_fault(
    "the two orders exchanged",
    """You do post-norm where pre-norm is asked, and the other way round. `norm_first` means that the
    norm comes before the part.""",
    lambda x, a, f, n, m, first: block(x, a, f, n, m, not first),
)
block_fault(
    "no residual",
    """Nothing is added: each part replaces what came in. A stack of such blocks hands its input, and
    the gradient, through every single part.""",
    by_parts(lambda x, part, norm, first: part(norm(x)) if first else norm(part(x))),
)
block_fault(
    "the residual starts behind the norm",
    """In your pre-norm block the normalised vector is what the part is added to. Then the norm stands
    on the direct way after all, and the gradient must pass through it.""",
    by_parts(
        lambda x, part, norm, first: (
            (lambda y: y + part(y))(norm(x)) if first else norm(x + part(x))
        )
    ),
    fails=("pre",),
)
block_fault(
    "only the part is normalised",
    """In your post-norm block the norm acts on what the part returns, and the input is added
    afterwards. Post-norm normalises the sum.""",
    by_parts(lambda x, part, norm, first: x + part(norm(x)) if first else x + norm(part(x))),
    fails=("post",),
)
block_fault(
    "one norm for both parts",
    """You use the first norm twice. Each part has a norm of its own, with a gain of its own.""",
    lambda x, a, f, n, m, first: block(x, a, f, n, n, first),
)
block_fault(
    "the norms exchanged",
    """You give the first norm to the feed-forward part and the second to the attention. With fresh
    gains of 1 nobody notices; with trained weights everything is wrong.""",
    lambda x, a, f, n, m, first: block(x, a, f, m, n, first),
)
block_fault(
    "the feed-forward part comes first",
    """Your feed-forward part works before the attention. It should compute with what the attention
    has found.""",
    lambda x, a, f, n, m, first: block(x, f, a, m, n, first),
)
block_fault(
    "both parts read the input",
    """Your feed-forward part reads what came into the block. It should read what the attention has
    left behind; some models work in parallel, this one does not.""",
    lambda x, a, f, n, m, first: x + a(n(x)) + f(m(x)) if first else m(n(x + a(x)) + f(x)),
)
block_fault(
    "the second residual brings back the input",
    """Around the feed-forward part you add what came into the block, not what the attention has left.
    What the attention found is lost, as far as the feed-forward part does not hand it on.""",
    lambda x, a, f, n, m, first: x + f(m(x + a(n(x)))) if first else m(x + f(n(x + a(x)))),
)
block_fault(
    "a norm at the end of every block",
    """Your pre-norm block ends in a norm. A pre-norm stack needs one after its last block; in every
    block it would stand on the direct way.""",
    lambda x, a, f, n, m, first: (
        m(block(x, a, f, n, m, True)) if first else block(x, a, f, n, m, False)
    ),
    fails=("pre",),
)
# --- the counts --------------------------------------------------------------------------------


def entries(
    d,
    h,
    f,
    cross=False,
    *,
    attention=4,
    biases=0,
    network=2,
    inner=True,
    norms=1,
    norm=2,
    per_head=1,
):
    """The right count; a fault changes one of its factors."""
    attentions = 2 if cross else 1
    one = per_head * attention * d * d + biases * d
    part = network * d * f + (f + d if inner else 0)
    return attentions * one + part + (attentions * norms + 1) * norm * d


sizes = WrongAnswers("block_parameters", tests=("encoder", "decoder"))


@witnesses(of="block_parameters")
def sizes_calls(draw):
    for d, h, f in ((2, 1, 3), (10, 5, 14), (512, 8, 2048), (12, 3, 7)):
        yield call(d, h, f)
        yield call(d, h, f, True)


def count_fault(name, message, *, fails=None, **step):
    def wrong(embed_dim, num_heads, hidden_dim, cross_attention=False):
        return entries(embed_dim, num_heads, hidden_dim, cross_attention, **step)

    declare(sizes, name, message, wrong, fails=fails)


@sizes("every head as wide as the model")
def sizes_heads(embed_dim, num_heads, hidden_dim, cross_attention=False):
    """You count the projections once for every head. The heads share the width: each has D / H
    entries, and all of them together D.
    """
    return entries(embed_dim, num_heads, hidden_dim, cross_attention, per_head=num_heads)


@sizes("only one head is counted")
def sizes_one_head(embed_dim, num_heads, hidden_dim, cross_attention=False):
    """You count the projections of a single head. There are H of them, and together they are as wide
    as the model.
    """
    return entries(embed_dim, num_heads, hidden_dim, cross_attention, per_head=1 / num_heads)


count_fault(
    "no output projection",
    """You count query, key and value. A fourth matrix leads from the heads, side by side, back to the
    model.""",
    attention=3,
)
count_fault(
    "biases of the attention",
    """You give a bias to each projection of the attention. torch does; the paper's formulas, and this
    exercise, have none.""",
    biases=4,
)
count_fault(
    "no biases in the feed-forward part",
    """You leave out the biases of the feed-forward part. One of them is as long as there are hidden
    units, the other as wide as the model.""",
    inner=False,
)
count_fault(
    "one matrix in the feed-forward part",
    """You count the way up and not the way back down. The feed-forward part has two matrices.""",
    network=1,
)
count_fault(
    "gated",
    """You count three matrices in the feed-forward part. A gated one has three; the paper's has
    two.""",
    network=3,
)
count_fault(
    "a norm for the attention is missing",
    """You count one norm. The attention has one, and the feed-forward part has one of its own.""",
    norms=0,
)
count_fault(
    "norms without a bias",
    """You count a gain for each norm and no bias. A layer norm has both.""",
    norm=1,
)
count_fault(
    "norms have no parameters",
    """You leave the norms out. There are few entries in them, but each has a gain and a bias for
    every feature.""",
    norm=0,
)


@sizes("the second norm of the decoder is missing", fails=("decoder",))
def sizes_cross_norm(embed_dim, num_heads, hidden_dim, cross_attention=False):
    """Your decoder has a second attention without a norm. Each part of a block has one, so there are
    three.
    """
    right = entries(embed_dim, num_heads, hidden_dim, cross_attention)
    return right - (2 * embed_dim if cross_attention else 0)


@sizes("the second attention is missing", fails=("decoder",))
def sizes_no_cross(embed_dim, num_heads, hidden_dim, cross_attention=False):
    """You count the same whether or not there is a second attention. It has four projections of its
    own, and a norm.
    """
    return entries(embed_dim, num_heads, hidden_dim)


work = WrongAnswers("block_flops", tests=("by_hand", "sizes"))


@witnesses(of="block_flops")
def work_calls(draw):
    for length, d, h, f in ((3, 2, 1, 5), (1, 2, 1, 5), (7, 10, 5, 50), (50, 512, 8, 2048)):
        yield call(length, d, h, f)


def work_fault(name, message, count):
    def wrong(length, embed_dim, num_heads, hidden_dim):
        return count(length, embed_dim, num_heads, hidden_dim)

    declare(work, name, message, wrong)


work_fault(
    "a term is one operation",
    """You count one operation for each term of a product. It is multiplied and added: two.""",
    lambda n, d, h, f: 4 * n * d * d + 2 * n * n * d + 2 * n * d * f,
)
work_fault(
    "no pairs",
    """You count the maps and leave out the scores and the weighted sums, the only parts that grow
    with the square of the length.""",
    lambda n, d, h, f: 8 * n * d * d + 4 * n * d * f,
)
work_fault(
    "scores without sums",
    """You count the scores of all pairs. The weighted sums of the values cost as much again.""",
    lambda n, d, h, f: 8 * n * d * d + 2 * n * n * d + 4 * n * d * f,
)
work_fault(
    "every head as wide as the model",
    """You count the pairs once for every head at the full width. A head compares vectors of D / H
    entries, so that all heads together cost what one wide one would.""",
    lambda n, d, h, f: 8 * n * d * d + 4 * n * n * d * (h + 1) + 4 * n * d * f,
)
work_fault(
    "three projections",
    """You count the projections of query, key and value. A fourth one follows after the heads.""",
    lambda n, d, h, f: 6 * n * d * d + 4 * n * n * d + 4 * n * d * f,
)
work_fault(
    "one map in the feed-forward part",
    """You count one of the two maps of the feed-forward part. It leads up, and down again.""",
    lambda n, d, h, f: 8 * n * d * d + 4 * n * n * d + 2 * n * d * f,
)
work_fault(
    "hidden width taken for 4 D",
    """You take the hidden width to be four times the width of the model. So it is in the paper; here
    it is an argument.""",
    lambda n, d, h, f: 24 * n * d * d + 4 * n * n * d,
)
work_fault(
    "the backward pass as well",
    """You count a step of training, three times the work of the forward pass. Asked is the forward
    pass.""",
    lambda n, d, h, f: 3 * (8 * n * d * d + 4 * n * n * d + 4 * n * d * f),
)
work_fault(
    "the softmax as well",
    """You count the softmax or the norms. They grow with no product of two sizes of the model, and
    the exercise leaves out everything but matrix products.""",
    lambda n, d, h, f: 8 * n * d * d + 4 * n * n * d + 4 * n * d * f + 5 * h * n * n,
)

# --- the repair and the test -------------------------------------------------------------------


def stack(x, weights_in, weights_out, *, dims=-1, keep=True, last=True):
    for weight_in, weight_out in zip(weights_in, weights_out, strict=True):
        y = normal(x, dims=dims)
        x = (x if keep else y) + network(y, weight_in, weight_out)
    return normal(x, dims=dims) if last else x


fixed = WrongAnswers("fixed_stack", tests=("no_layers", "layers"))


@witnesses(of="fixed_stack")
def stack_calls(draw):
    for b, length, d, f, n in ((1, 3, 2, 3, 1), (2, 3, 5, 7, 2), (3, 3, 3, 3, 3)):
        yield call(draw.normal(b, length, d), draw.normal(n, f, d), draw.normal(n, d, f))


def stack_fault(name, message, *, fails=None, **step):
    def wrong(x, weights_in, weights_out):
        return stack(x, weights_in, weights_out, **step)

    declare(fixed, name, message, wrong, fails=fails)


stack_fault(
    "both faults are still there",
    """This is the broken code as it stands. Work out by hand, for one vector, what its norm makes of
    it, and what a layer adds to what.""",
    dims=1,
    keep=False,
)
stack_fault(
    "the norm still runs over the positions",
    """The direct way is free now. But mean and variance are taken over the positions: a vector
    depends on its neighbours. Count the axis from the back.""",
    dims=1,
)
stack_fault(
    "the norm still stands on the direct way",
    """Each vector is normalised by itself now. But the layer is added to the normalised vector, so the
    gradient passes through every norm. What should it be added to?""",
    fails=("layers",),
    keep=False,
)
stack_fault(
    "no norm at the end",
    """The layers are right, and the last norm is gone. Without it the result is as long as the sum of
    all layers has made it.""",
    last=False,
)


@fixed("post-norm", fails=("layers",))
def stack_post(x, weights_in, weights_out):
    """You normalise after each sum: a post-norm stack. It is asked to be pre-norm, with the norm on
    the branch and one more at the end.
    """
    for weight_in, weight_out in zip(weights_in, weights_out, strict=True):
        x = normal(x + network(x, weight_in, weight_out))
    return normal(x)


@fixed("no residual", fails=("layers",))
def stack_bare(x, weights_in, weights_out):
    """Nothing is added any more: each layer replaces what came in. A layer that does nothing should
    leave the vectors as they are.
    """
    for weight_in, weight_out in zip(weights_in, weights_out, strict=True):
        x = network(normal(x), weight_in, weight_out)
    return normal(x)


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
