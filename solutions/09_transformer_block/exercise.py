# %% [markdown]
# # Exercises: the Transformer block
#
# You write the parts of a block, combine them in both orders, and count its parameters and operations.
#
# Shapes: `D` is the width of the model, `F` the number of hidden units.
# `...` is any number of leading axes (batch, positions), possibly none.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course import reference
from attn_course.probes import from_numpy, load_oracles

oracles, probes = load_oracles("09_transformer_block")


# Simple parts for the block, to compute by hand.
def doubled(x):
    return 2 * x


def plus_one(x):
    return x + 1


def third(x):
    return x / 3


def half(x):
    return x / 2


# %% [markdown]
# ## 1. Layer norm
#
# `layer_norm(x, weight=None, bias=None, eps=1e-5)` normalises every vector to mean 0 and variance 1 (Ba and others 2016):
#
# $$y = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} \odot g + b, \qquad
# \mu = \frac1D \sum_d x_d, \quad \sigma^2 = \frac1D \sum_d (x_d - \mu)^2 .$$
#
# - `x` is `(..., D)`. Each vector is normalised by its own elements only.
# - `weight` is $g$ and `bias` is $b$, both `(D,)`. Their defaults are 1 and 0.
# - A vector whose elements are all equal gives `bias`, not NaN.
# - Gradients reach all tensors. No argument is changed.
#
# By hand, with $\epsilon = 0$: $[1, 5]$ has the mean $3$ and the variance $4$, so it becomes $[-1, 1]$. With $g = [2, 3]$ and $b = [10, 20]$ it becomes $[8, 23]$.
#
# torch's own norms are not allowed.


# %% nbgrader={"grade_id": "layer_norm", "solution": true} attn_course={"forbidden": ["layer_norm", "native_layer_norm", "torch._refs._normalize", "rms_norm", "batch_norm", "group_norm", "instance_norm", "aten::*layer_norm*", "aten::*rms_norm*", "aten::*batch_norm*", "aten::*group_norm*"]}
def layer_norm(x, weight=None, bias=None, eps=1e-5):
    ### BEGIN SOLUTION
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    y = centred / (variance + eps).sqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias
    ### END SOLUTION


# %% nbgrader={"grade_id": "layer_norm-by_hand", "grade": true, "points": 1}
# The vector of the text and three others; then with gain and bias.
probe = probes(layer_norm=layer_norm)
three = torch.tensor([[1.0, 5.0], [8.0, 4.0], [-5.0, 7.0]])
probe.gives(torch.tensor([[-1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]]), three, eps=0.0)
uneven = torch.tensor([3.0, 3.0, 3.0, 3.0, 8.0])  # mean 4, variance 4
probe.gives(torch.tensor([-0.5, -0.5, -0.5, -0.5, 2.0]), uneven, eps=0.0)
probe.gives(
    torch.tensor([[8.0, 23.0], [12.0, 17.0], [8.0, 23.0]]),
    three,
    torch.tensor([2.0, 3.0]),
    torch.tensor([10.0, 20.0]),
    eps=0.0,
)

# %% nbgrader={"grade_id": "layer_norm-values", "grade": true, "points": 2}
# Leading axes: batch and positions.
probe = probes(layer_norm=layer_norm)
probe.equals(torch.tensor([[[1.0, 2.0, 6.0], [0.0, 4.0, 4.0]]]), eps=0.0)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 7, mean=1), eps=0.0)
probe.equals(probe.normal(3, 3, 3, mean=1), probe.normal(3), probe.normal(3), eps=0.0)
probe.equals(probe.normal(5, 7), None, probe.normal(7), eps=0.0)
probe.equals(probe.normal(5, 5), probe.normal(5), eps=0.0)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "layer_norm-small", "grade": true, "points": 2}
# Vectors of equal or nearly equal elements, where epsilon matters.
probe = probes(layer_norm=layer_norm)
probe.equals(
    torch.tensor([[3.0, 3.0, 3.0], [-0.01, 0.0, 0.01]]), None, torch.tensor([1.0, 2.0, 3.0])
)
### BEGIN HIDDEN TESTS
probe.equals(0.003 * probe.normal(4, 7), probe.normal(7))
probe.equals(probe.normal(4, 7), probe.normal(7), eps=0.5)
probe.equals(torch.full((2, 3, 5), -7.0), probe.normal(5), probe.normal(5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "layer_norm-gradient", "grade": true, "points": 2}
# Gradients reach the vectors, the gain and the bias.
probe = probes(layer_norm=layer_norm)
probe.gradient(
    torch.tensor([[1.0, 2.0, 6.0]]), torch.ones(3), torch.zeros(3), eps=0.0, wrt=(0, 1, 2)
)
### BEGIN HIDDEN TESTS
probe.gradient(probe.normal(3, 5), probe.normal(5), probe.normal(5), eps=0.0, wrt=(0, 1, 2))
### END HIDDEN TESTS

# %% [markdown]
# ## 2. The feed-forward part
#
# `feed_forward(x, weight_in, weight_out, bias_in=None, bias_out=None)` is a network with one hidden layer, applied at every position (Vaswani and others 2017, equation 2):
#
# $$\operatorname{FFN}(x) = W_2 \max(0,\, W_1 x + b_1) + b_2 .$$
#
# - `x` is `(..., D)`; `weight_in` is $W_1$, `(F, D)`; `weight_out` is $W_2$, `(D, F)`, both in the layout of `torch.nn.Linear`.
# - `bias_in` is `(F,)` and `bias_out` is `(D,)`. Their default is 0. The result is `(..., D)`.
# - Positions are independent of each other.
#
# By hand: $x = [1, 2]$ with $W_1$ of rows $[1, 0]$, $[0, -1]$, $[1, 1]$ has the hidden units $1, -2, 3$; the ReLU sets the second to 0. $W_2$ of rows $[1, 1, 0]$ and $[0, 1, 2]$ gives $[1, 6]$.


# %% nbgrader={"grade_id": "feed_forward", "solution": true}
def feed_forward(x, weight_in, weight_out, bias_in=None, bias_out=None):
    ### BEGIN SOLUTION
    hidden = x @ weight_in.T  # (..., F)
    hidden = torch.relu(hidden if bias_in is None else hidden + bias_in)
    output = hidden @ weight_out.T  # (..., D)
    return output if bias_out is None else output + bias_out
    ### END SOLUTION


# %% nbgrader={"grade_id": "feed_forward-by_hand", "grade": true, "points": 1}
# The example of the text, and the same with biases.
probe = probes(feed_forward=feed_forward)
inward = torch.tensor([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]])
outward = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
one = torch.tensor([[1.0, 2.0], [3.0, -2.0]])
probe.gives(torch.tensor([[1.0, 6.0], [5.0, 4.0]]), one, inward, outward)
probe.gives(
    torch.tensor([[21.0, 37.0], [26.0, 36.0]]),
    *(one, inward, outward),
    torch.tensor([10.0, 1.0, 2.0]),
    torch.tensor([10.0, 27.0]),
)

# %% nbgrader={"grade_id": "feed_forward-values", "grade": true, "points": 2}
# Several positions, several sequences.
probe = probes(feed_forward=feed_forward)
probe.equals(torch.tensor([[[1.0, 2.0], [-3.0, 1.0]]]), inward, outward)
### BEGIN HIDDEN TESTS
for lead, d, f in (((2, 3), 4, 7), ((3, 3), 3, 3), ((2,), 5, 3)):
    weights = probe.normal(f, d), probe.normal(d, f)
    probe.equals(probe.normal(*lead, d), *weights, probe.normal(f), probe.normal(d))
    probe.equals(probe.normal(*lead, d), *weights, None, probe.normal(d))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "feed_forward-gradient", "grade": true, "points": 1}
# Gradients reach the vectors and all weights.
probe = probes(feed_forward=feed_forward)
probe.gradient(one, inward, outward, wrt=(0, 1, 2))
### BEGIN HIDDEN TESTS
inputs = (
    probe.normal(3, 4),
    probe.normal(7, 4),
    probe.normal(4, 7),
    probe.normal(7),
    probe.normal(4),
)
probe.gradient(*inputs, wrt=(0, 1, 2, 3, 4))
### END HIDDEN TESTS

# %% [markdown]
# ## 3. The block
#
# `transformer_block(x, attention, feed_forward, norm_1, norm_2, norm_first)` combines the parts.
#
# - `x` and the result are `(B, L, D)`. `x` is not changed.
# - `attention`, `feed_forward`, `norm_1` and `norm_2` are functions from `(B, L, D)` to `(B, L, D)`. You only call them.
# - A block has two steps. The first applies `attention` and `norm_1`, the second applies `feed_forward` and `norm_2` to the result of the first.
# - `norm_first=False`, as in the paper: a step with the function $f$ returns $\operatorname{norm}(x + f(x))$.
# - `norm_first=True`: it returns $x + f(\operatorname{norm}(x))$.
#
# By hand, with numbers for vectors: the attention doubles, the feed-forward part adds 1, `norm_1` divides by 3 and `norm_2` divides by 2.
# From 3, post-norm: $(3 + 6)/3 = 3$, then $(3 + 4)/2 = 3.5$. Pre-norm: $3 + 2 \cdot 1 = 5$, then $5 + (2.5 + 1) = 8.5$.


# %% nbgrader={"grade_id": "transformer_block", "solution": true}
def transformer_block(x, attention, feed_forward, norm_1, norm_2, norm_first):
    ### BEGIN SOLUTION
    for part, norm in ((attention, norm_1), (feed_forward, norm_2)):
        x = x + part(norm(x)) if norm_first else norm(x + part(x))
    return x
    ### END SOLUTION


# %% nbgrader={"grade_id": "transformer_block-post", "grade": true, "points": 2}
# Post-norm: the example of the text.
probe = probes(transformer_block=transformer_block)
numbers = torch.tensor([[[3.0], [6.0]]])


### BEGIN HIDDEN TESTS
from attn_course import functional, nn


def right_block(x, attention, feed_forward, norm_1, norm_2, norm_first):
    join = nn.block.add_residual
    x = join(x, attention, norm_1, torch.clone, norm_first=norm_first)
    return join(x, feed_forward, norm_2, torch.clone, norm_first=norm_first)


def parts_of(probe, d):
    mix, inward, outward = probe.normal(d, d), probe.normal(2 * d, d), probe.normal(d, 2 * d)
    gains = probe.normal(2, d)

    def look(x):
        return (x @ x.mT).softmax(-1) @ x @ mix

    def network(x):
        return functional.feed_forward(x, inward, outward)

    def first(x):
        return functional.layer_norm(x, gains[0])

    def second(x):
        return functional.layer_norm(x, gains[1])

    return look, network, first, second


### END HIDDEN TESTS
probe.gives(torch.tensor([[[3.5], [6.5]]]), numbers, doubled, plus_one, third, half, False)
### BEGIN HIDDEN TESTS
probe = probes(transformer_block=transformer_block, oracle=right_block)
probe.equals(probe.normal(2, 3, 5), *parts_of(probe, 5), False)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "transformer_block-pre", "grade": true, "points": 2}
# Pre-norm: the example of the text.
probe = probes(transformer_block=transformer_block)
probe.gives(torch.tensor([[[8.5], [16.0]]]), numbers, doubled, plus_one, third, half, True)
### BEGIN HIDDEN TESTS
probe = probes(transformer_block=transformer_block, oracle=right_block)
probe.equals(probe.normal(2, 3, 5), *parts_of(probe, 5), True)
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# A stack of sixteen of your blocks: the size of the vectors grows with the norm first, and cannot grow with the norm last.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

draw = torch.Generator().manual_seed(0)
weight_in, weight_out = (
    torch.randn(64, 16, generator=draw) / 4,
    torch.randn(16, 64, generator=draw) / 4,
)


def mean_of_all(x):
    return x.mean(1, keepdim=True).expand_as(x)


def hidden(x):
    return feed_forward(x, weight_in, weight_out)


for norm_first in (True, False):
    x, sizes = torch.randn(1, 5, 16, generator=torch.Generator().manual_seed(1)), []
    for _ in range(16):
        sizes.append(float(x.norm(dim=-1).mean()))
        x = transformer_block(x, mean_of_all, hidden, layer_norm, layer_norm, norm_first)
    plt.plot(sizes, label="norm first" if norm_first else "norm last")
plt.xlabel("block")
plt.ylabel("size of a vector")
plt.legend()
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. RMS norm
#
# `rms_norm(x, weight=None, eps=1e-6)` divides without centring (Zhang and Sennrich 2019):
#
# $$y = \frac{x}{\sqrt{\frac1D \sum_d x_d^2 + \epsilon}} \odot g .$$
#
# - `x` is `(..., D)`, `weight` is $g$, `(D,)`; its default is 1.
# - A vector of zeros gives zeros, not NaN.
# - Gradients reach both.
#
# By hand, with $\epsilon = 0$: $[1, 7]$ has the mean square $25$, so it becomes $[0.2, 1.4]$.


# %% nbgrader={"grade_id": "rms_norm", "solution": true} attn_course={"forbidden": ["layer_norm", "native_layer_norm", "torch._refs._normalize", "rms_norm", "batch_norm", "group_norm", "instance_norm", "aten::*layer_norm*", "aten::*rms_norm*", "aten::*batch_norm*", "aten::*group_norm*"]}
def rms_norm(x, weight=None, eps=1e-6):
    ### BEGIN SOLUTION
    y = x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    return y if weight is None else y * weight
    ### END SOLUTION


# %% nbgrader={"grade_id": "rms_norm-by_hand", "grade": true, "points": 1}
# The vector of the text and another one; then with a gain.
probe = probes(rms_norm=rms_norm)
pair = torch.tensor([[1.0, 7.0], [-6.0, 8.0]])
probe.gives(torch.tensor([[0.2, 1.4], [-0.8485281, 1.1313709]]), pair, eps=0.0)
probe.gives(
    torch.tensor([[2.0, 4.2], [-8.4852814, 3.3941126]]), pair, torch.tensor([10.0, 3.0]), eps=0.0
)

# %% nbgrader={"grade_id": "rms_norm-values", "grade": true, "points": 1}
# Leading axes: batch and positions.
probe = probes(rms_norm=rms_norm)
probe.equals(torch.tensor([[[1.0, 2.0, 6.0], [0.0, 4.0, 4.0]]]), eps=0.0)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 7, mean=1), eps=0.0)
probe.equals(probe.normal(3, 3, 3, mean=1), probe.normal(3), eps=0.0)
probe.equals(probe.normal(5, 5), probe.normal(5), eps=0.0)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "rms_norm-small", "grade": true, "points": 1}
# Zeros, and small numbers.
probe = probes(rms_norm=rms_norm)
probe.equals(torch.tensor([[0.0, 0.0, 0.0], [0.001, 0.002, -0.001]]))
### BEGIN HIDDEN TESTS
probe.equals(0.001 * probe.normal(4, 7), probe.normal(7))
probe.equals(probe.normal(4, 7), probe.normal(7), eps=0.5)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "rms_norm-gradient", "grade": true, "points": 1}
# Gradients reach the vectors and the gain.
probe = probes(rms_norm=rms_norm)
probe.gradient(torch.tensor([[1.0, 2.0, 6.0]]), torch.ones(3), eps=0.0, wrt=(0, 1))
### BEGIN HIDDEN TESTS
probe.gradient(probe.normal(3, 5), probe.normal(5), eps=0.0, wrt=(0, 1))
### END HIDDEN TESTS

# %% [markdown]
# ## 5. A gated hidden layer
#
# `swiglu(x, weight_gate, weight_up)` computes the hidden units of a gated feed-forward part (Shazeer 2020). One map gives the value of a unit, the other its gate:
#
# $$\operatorname{silu}(W_g x) \odot (W_u x), \qquad \operatorname{silu}(z) = z \cdot \frac{1}{1 + e^{-z}} .$$
#
# - `x` is `(..., D)`, both weights are `(F, D)`, the result is `(..., F)`.
# - It handles inputs of any size. Gradients reach all three.
#
# By hand: for $x = [\ln 3]$, $W_g = [1]$ and $W_u = [2]$ the gate is $\ln 3 \cdot \frac34 = 0.824$, and the result $0.824 \cdot 2 \ln 3 = 1.810$.


# %% nbgrader={"grade_id": "swiglu", "solution": true}
def swiglu(x, weight_gate, weight_up):
    ### BEGIN SOLUTION
    gate = x @ weight_gate.T  # (..., F)
    return gate * torch.sigmoid(gate) * (x @ weight_up.T)
    ### END SOLUTION


# %% nbgrader={"grade_id": "swiglu-by_hand", "grade": true, "points": 1}
# The example of the text, and a negative gate.
probe = probes(swiglu=swiglu)
probe.gives(
    torch.tensor([[1.8104234], [0.6034745]]),
    torch.tensor([[1.0986123], [-1.0986123]]),
    torch.tensor([[1.0]]),
    torch.tensor([[2.0]]),
)

# %% nbgrader={"grade_id": "swiglu-values", "grade": true, "points": 2}
# Several units, positions and sequences.
probe = probes(swiglu=swiglu)
probe.equals(
    torch.tensor([[1.0, 2.0], [-3.0, 1.0]]),
    torch.tensor([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]),
    torch.tensor([[1.0, 1.0], [2.0, 0.0], [0.0, 3.0]]),
)
### BEGIN HIDDEN TESTS
for lead, d, f in (((2, 3), 4, 7), ((3, 3), 3, 3), ((2,), 5, 3)):
    probe.equals(probe.normal(*lead, d), probe.normal(f, d), probe.normal(f, d))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "swiglu-large", "grade": true, "points": 1}
# Gates far from 0, on both sides.
probe = probes(swiglu=swiglu)
probe.equals(torch.tensor([[200.0], [-200.0]]), torch.tensor([[1.0]]), torch.tensor([[0.5]]))
### BEGIN HIDDEN TESTS
far = torch.tensor([[300.0, -100.0], [-90.0, 150.0]])
probe.equals(far, torch.eye(2), torch.tensor([[-1.0, -2.0], [1.0, 1.0]]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "swiglu-gradient", "grade": true, "points": 1}
# Gradients reach the vectors and both weights.
probe = probes(swiglu=swiglu)
probe.gradient(probe.normal(3, 4), probe.normal(5, 4), probe.normal(5, 4), wrt=(0, 1, 2))

# %% [markdown]
# ## 6. Parameters of a block
#
# `block_parameters(embed_dim, num_heads, hidden_dim, cross_attention=False)` counts the parameters of a block of the paper's base model.
#
# - The attention has four projections without a bias. All heads together have the width of the model.
# - The feed-forward part has two matrices and two biases.
# - Each part has a layer norm with gain and bias.
# - With `cross_attention=True`, as in the decoder, there is a second attention of the same size with its own norm.
#
# By hand, for $D = 2$, one head and $F = 3$: the attention has $4 \cdot 4 = 16$, the feed-forward part $6 + 6 + 3 + 2 = 17$, the norms $2 \cdot 4 = 8$. Together 41.


# %% nbgrader={"grade_id": "block_parameters", "solution": true}
def block_parameters(embed_dim, num_heads, hidden_dim, cross_attention=False):
    ### BEGIN SOLUTION
    attention = 4 * embed_dim**2
    network = 2 * embed_dim * hidden_dim + hidden_dim + embed_dim
    attentions = 2 if cross_attention else 1
    return attentions * attention + network + (attentions + 1) * 2 * embed_dim
    ### END SOLUTION


# %% nbgrader={"grade_id": "block_parameters-encoder", "grade": true, "points": 2}
# The example of the text.
probe = probes(block_parameters=block_parameters)
probe.gives(41, 2, 1, 3)
### BEGIN HIDDEN TESTS
probe.gives(3_150_336, 512, 8, 2048)
probe.gives(3_150_336, 512, 1, 2048)
probe.gives(744, 10, 5, 14)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "block_parameters-decoder", "grade": true, "points": 2}
# With a second attention: 16 for its projections and 4 for its norm.
probe = probes(block_parameters=block_parameters)
probe.gives(61, 2, 1, 3, True)
### BEGIN HIDDEN TESTS
probe.gives(4_199_936, 512, 8, 2048, True)
probe.gives(1164, 10, 5, 14, True)
### END HIDDEN TESTS

# %% [markdown]
# ### Operations of a block
#
# `block_flops(length, embed_dim, num_heads, hidden_dim)` counts the operations of the forward pass of one encoder block on one sequence.
# A matrix product of $(a, b)$ with $(b, c)$ takes $2abc$ operations, a multiplication and an addition for each term. Count matrix products only.
#
# - Count the four projections, the scores of all pairs, the weighted sums, and the two maps of the feed-forward part. Nothing is masked.
#
# By hand, for $L = 3$, $D = 2$, one head and $F = 5$: projections $4 \cdot 2 \cdot 3 \cdot 2 \cdot 2 = 96$, scores and sums $2 \cdot 2 \cdot 3 \cdot 3 \cdot 2 = 72$, feed-forward $2 \cdot 2 \cdot 3 \cdot 2 \cdot 5 = 120$. Together 288.


# %% nbgrader={"grade_id": "block_flops", "solution": true}
def block_flops(length, embed_dim, num_heads, hidden_dim):
    ### BEGIN SOLUTION
    projections = 8 * length * embed_dim**2
    pairs = 4 * length**2 * embed_dim
    return projections + pairs + 4 * length * embed_dim * hidden_dim
    ### END SOLUTION


# %% nbgrader={"grade_id": "block_flops-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(block_flops=block_flops)
probe.gives(288, 3, 2, 1, 5)

# %% nbgrader={"grade_id": "block_flops-sizes", "grade": true, "points": 2}
# Other sizes.
probe = probes(block_flops=block_flops)
probe.gives(80, 1, 2, 1, 5)
### BEGIN HIDDEN TESTS
probe.gives(314_572_800 + 5_120_000, 50, 512, 8, 2048)
probe.gives(21_560, 7, 10, 5, 50)
probe.gives(6_442_450_944 + 2_147_483_648, 1024, 512, 8, 2048)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Repair: a pre-norm stack with two faults
#
# `broken_stack` should apply pre-norm feed-forward layers in turn, $x \leftarrow x + f_i(\operatorname{norm}(x))$, then a final norm.
# `x` is `(B, L, D)`, `weights_in` is `(N, F, D)`, `weights_out` is `(N, D, F)`; the norms have neither gain nor bias.
# It runs, it trains and it produces no NaN, but it has two faults: one mixes positions, the other weakens the gradient. Find them and write `fixed_stack`.


# %% nbgrader={"grade_id": "broken_stack", "locked": true}
def broken_stack(x, weights_in, weights_out):
    def norm(x):
        mean, variance = x.mean(1, keepdim=True), x.var(1, keepdim=True, correction=0)
        return (x - mean) / (variance + 1e-5).sqrt()

    for weight_in, weight_out in zip(weights_in, weights_out, strict=True):
        x = norm(x)
        x = x + torch.relu(x @ weight_in.T) @ weight_out.T
    return norm(x)


# %% nbgrader={"grade_id": "fixed_stack", "solution": true}
def fixed_stack(x, weights_in, weights_out):
    ### BEGIN SOLUTION
    def norm(x):
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
        return (x - mean) / (variance + 1e-5).sqrt()

    for weight_in, weight_out in zip(weights_in, weights_out, strict=True):
        x = x + torch.relu(norm(x) @ weight_in.T) @ weight_out.T
    return norm(x)
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_stack-no_layers", "grade": true, "points": 1}
# No layers: only the final norm.
probe = probes(fixed_stack=fixed_stack)
sequence = torch.tensor([[[1.0, 3.0], [8.0, 4.0], [-5.0, 7.0]]])
probe.gives(
    torch.tensor([[[-1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]]]),
    sequence,
    torch.zeros(0, 3, 2),
    torch.zeros(0, 2, 3),
)

# %% nbgrader={"grade_id": "fixed_stack-layers", "grade": true, "points": 2}
# A layer whose weights are 0, then other layers.
probe = probes(fixed_stack=fixed_stack)
probe.gives(
    torch.tensor([[[-1.0, 1.0], [1.0, -1.0], [-1.0, 1.0]]]),
    sequence,
    torch.zeros(1, 3, 2),
    torch.zeros(1, 2, 3),
)
### BEGIN HIDDEN TESTS


def right_stack(x, weights_in, weights_out):
    for weight_in, weight_out in zip(weights_in, weights_out, strict=True):
        x = x + reference.feed_forward(reference.layer_norm(x), weight_in, weight_out)
    return reference.layer_norm(x)


probe = probes(fixed_stack=fixed_stack, oracle=from_numpy(right_stack))
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Write the test
#
# `check_layer_norm(candidate)` takes another learner's `layer_norm(x, weight=None, bias=None, eps=1e-5)` and returns `True` if it keeps the contract of exercise 1, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Choose inputs that reveal a norm over the wrong axis, another variance or a misplaced epsilon, and allow for rounding.
# A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_layer_norm", "solution": true}
def check_layer_norm(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    for size, eps in ((1.0, 1e-5), (0.003, 1e-5), (2.0, 0.5)):
        x = 4.0 + size * torch.randn(2, 3, 5, generator=draw, dtype=torch.float64)
        x[0, 0] = 7.0
        gain, bias = torch.randn(2, 5, generator=draw, dtype=torch.float64)
        mean = x.sum(-1, keepdim=True) / 5
        variance = ((x - mean) ** 2).sum(-1, keepdim=True) / 5
        plain = (x - mean) / (variance + eps) ** 0.5
        for inputs, expected in (((x,), plain), ((x, gain, bias), plain * gain + bias)):
            try:
                got = candidate(*inputs, eps=eps)
            except Exception:
                return False
            if got.shape != x.shape or not torch.allclose(got.double(), expected, atol=1e-5):
                return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_layer_norm-plain", "grade": true, "points": 1}
# A right answer, and three that are clearly wrong.
def by_reference(x, weight=None, bias=None, eps=1e-5):
    return from_numpy(reference.layer_norm)(x, weight, bias, eps)


probe = probes(check_layer_norm=check_layer_norm)
probe.judges(
    right=[by_reference],
    wrong={
        "always 0": lambda x, weight=None, bias=None, eps=1e-5: torch.zeros_like(x),
        "the vectors unchanged": lambda x, weight=None, bias=None, eps=1e-5: x.clone(),
        "twice the right result": lambda *inputs, **more: 2 * by_reference(*inputs, **more),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_layer_norm-mutants", "grade": true, "points": 9}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_layer_norm=check_layer_norm)
probe.judges(
    right=[by_reference],
    wrong={"twice the right result": lambda *x, **more: 2 * by_reference(*x, **more)},
    points=9,
)


### BEGIN HIDDEN TESTS
def affine(y, weight, bias):
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def over(dims, *, centre=True, correction=0, inside=True, own_eps=None):
    def candidate(x, weight=None, bias=None, eps=1e-5):
        eps = eps if own_eps is None else own_eps
        mean = x.mean(dims, keepdim=True) if centre else 0.0
        size = x.shape[-1] - correction
        variance = (x - mean).square().mean(dims, keepdim=True) * (x.shape[-1] / size)
        root = (variance + eps).sqrt() if inside else variance.sqrt() + eps
        return affine((x - mean) / root, weight, bias)

    return candidate


def gain_as_well_on_bias(x, weight=None, bias=None, eps=1e-5):
    y = over(-1)(x, None, bias, eps)
    return y if weight is None else y * weight


def no_bias(x, weight=None, bias=None, eps=1e-5):
    return over(-1)(x, weight, None, eps)


probe.judges(
    right=[by_reference, over(-1)],
    wrong={
        "over the positions": over(-2),
        "over positions and features": over((-2, -1)),
        "over the batch": over(0),
        "not centred": over(-1, centre=False),
        "the unbiased variance": over(-1, correction=1),
        "epsilon outside the root": over(-1, inside=False),
        "epsilon is always 0.00001": over(-1, own_eps=1e-5),
        "the gain multiplies the bias": gain_as_well_on_bias,
        "the bias is forgotten": no_bias,
    },
    points=9,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. Put a sentence into a batch alone, then beside a long one (padded with zeros). Normalise its vectors with `layer_norm`, and with a norm over batch and positions. What changes? Name one problem that this causes in training and one in use.
# 2. A colleague trains a post-norm and a pre-norm stack of twelve blocks at one learning rate, and pre-norm wins. What does this show, and what else do you need before you claim that pre-norm is better?
# 3. Count parameters and operations of the encoder of the base model (6 blocks, $D = 512$, 8 heads, $F = 2048$) at $L = 50$ and $L = 5000$. Which part is most expensive at each length? From which length does the quadratic part cost more than all others together?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. With the layer norm nothing changes: each vector is normalised by its own elements. With the other norm every vector changes, because padding and the other sentence enter mean and variance.
# In training, the output at a position, and so the loss, depends on the rest of the batch and, in causal models, on later positions. In use, a batch of one needs stored statistics of other data.
# 2. It shows that post-norm does not train at that rate. Needed: several rates for both, with and without warm-up, chosen on validation data; several seeds; and a shallow stack as a control that both should learn.
# 3. 18.9 million parameters at either length, two thirds of them in the feed-forward part.
# At 50 positions the feed-forward part is the most expensive; scores and sums take 1.6 % of all operations. Scores and sums take $4 L^2 D$, everything else $8 L D^2 + 4 L D F = 24 L D^2$: the quadratic part costs more for $L > 6 D = 3072$, so also at 5000.
#
# **Points**, one for each:
#
# - (1a) Nothing changes with the layer norm, everything with the other.
# - (1b) One place in training and one in use.
# - (2a) Shown for one rate only.
# - (2b) Rates for both, seeds, a shallow control.
# - (3a) The counts at both lengths.
# - (3b) The length from which the quadratic part costs more, derived.
