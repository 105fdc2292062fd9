# %% [markdown]
# # Exercises: soft, hard and implicit attention
#
# You write parts of hard attention (an estimator, a baseline, a sampler), three ways to explain a network without an attention module, and a test.
#
# Some tests here are *statistical*: they compare the mean of many draws with its expected value.
# Their bound is 5 standard errors per number: a right answer fails a comparison by chance once in 1.7 million, and a test cell makes fewer than 40.
#
# `S` is the number of positions, `B` the number of rows of a batch.
# Results have the dtype of their inputs (`float32` or `float64`), and inputs are not changed.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course import analysis
from attn_course.probes import load_oracles, properties, student

oracles, probes = load_oracles("05_soft_hard_implicit")


def network(x, weight_1, bias_1, weight_2, bias_2):
    """A small network without attention: pixels (B, D) to class scores (B, C)."""
    return torch.tanh(x @ weight_1.T + bias_1) @ weight_2.T + bias_2


def draw_seeded(function, seed, weights, draws):
    """Seed torch in the process of the function, then draw."""
    student.seed(function, seed)
    return function(weights, draws)


def draw_twice(function, seed, weights, draws):
    """Seed torch once, then draw in two halves and pair them."""
    student.seed(function, seed)
    first, second = function(weights, draws // 2), function(weights, draws // 2)
    return torch.stack([first, second], -1).flatten()


# %% [markdown]
# ## 1. Entropy of weights
#
# `weight_entropy(weights, dim=-1)` returns $-\sum_s \alpha_s \ln \alpha_s$ along the axis `dim`, in nats.
#
# - Only the axis `dim` disappears.
# - A weight of exactly 0 adds 0, not NaN.
# - Gradients are finite; that of a weight of exactly 0 is 0.
#
# By hand: `[0.5, 0.25, 0.25, 0]` gives $1.5 \ln 2 = 1.0397$.
#
# <details><summary>Hint</summary>
#
# `torch.where` on the result does not repair the gradient: 0 times infinity is NaN in the backward pass, too.
# Replace a weight of 0 *before* you take the logarithm.
#
# </details>


# %% nbgrader={"grade_id": "weight_entropy", "solution": true} attn_course={"forbidden": ["torch.special.entr", "import torch.distributions"]}
def weight_entropy(weights, dim=-1):
    ### BEGIN SOLUTION
    positive = torch.where(weights > 0, weights, torch.ones_like(weights))
    return -(positive * positive.log()).sum(dim)
    ### END SOLUTION


# %% nbgrader={"grade_id": "weight_entropy-by_hand", "grade": true, "points": 1}
# The example, without its zero.
probe = probes(weight_entropy=weight_entropy)
probe.equals(torch.tensor([0.5, 0.25, 0.25]))
probe.equals(torch.tensor([0.9, 0.1]), dim=0)

# %% nbgrader={"grade_id": "weight_entropy-axes", "grade": true, "points": 1}
# Other shapes and other axes.
probe = probes(weight_entropy=weight_entropy)
probe.equals(torch.tensor([[0.5, 0.25], [0.5, 0.75]]), dim=0)
### BEGIN HIDDEN TESTS
shares = probe.normal(2, 3, 5).softmax(-1)
probe.equals(shares)
probe.equals(probe.normal(2, 3, 5).softmax(1), dim=1)
probe.equals(probe.normal(7, 3, dtype=torch.float64).softmax(0), dim=-2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "weight_entropy-zeros", "grade": true, "points": 2}
# Weights of exactly 0, and a single weight of 1.
probe = probes(weight_entropy=weight_entropy)
probe.equals(torch.tensor([0.5, 0.25, 0.25, 0.0]))
probe.equals(torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]], dtype=torch.float64))
### BEGIN HIDDEN TESTS
scores = probe.normal(4, 7).masked_fill(~probe.mask(4, 7), -torch.inf)
probe.equals(scores.softmax(-1))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "weight_entropy-gradient", "grade": true, "points": 2}
# Gradients, also at a weight of exactly 0.
probe = probes(weight_entropy=weight_entropy, oracle=oracles.entropy_with_gradient)
probe.gradient(torch.tensor([0.5, 0.3, 0.2]))
probe.gradient(torch.tensor([0.5, 0.5, 0.0]))
### BEGIN HIDDEN TESTS
scores = probe.normal(3, 5).masked_fill(~probe.mask(3, 5), -torch.inf)
probe.gradient(scores.softmax(-1))
probe.gradient(probe.normal(3, 5).softmax(0), dim=0)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. The score-function estimator
#
# `score_function_gradient(weights, place, reward, baseline=0.0)` returns the REINFORCE estimate of the gradient of the expected reward *with respect to the scores* before the softmax, one per row.
#
# - `weights` is `(B, S)`, rows of a softmax; `place` is `(B,)`, the position drawn in each row; `reward` is `(B,)`.
# - `baseline` is a number, or `(B,)`; it is subtracted from the reward.
# - The result is `(B, S)`, in the dtype of `weights`. It points in the direction of *larger* expected reward.
#
# By hand: weights `[0.5, 0.3, 0.2]`, position 1, reward 10, baseline 4 give `[-3, 4.2, -1.2]`.
#
# <details><summary>Hint</summary>
#
# What is the derivative of $\log \alpha_s$ with respect to $e_i$, for $i = s$ and for $i \ne s$?
# The baseline belongs to the reward, so it enters both cases.
#
# </details>


# %% nbgrader={"grade_id": "score_function_gradient", "solution": true}
def score_function_gradient(weights, place, reward, baseline=0.0):
    ### BEGIN SOLUTION
    direction = -weights
    direction = direction.scatter_add(-1, place[:, None], torch.ones_like(weights[:, :1]))
    return (reward - baseline)[:, None] * direction
    ### END SOLUTION


# %% nbgrader={"grade_id": "score_function_gradient-by_hand", "grade": true, "points": 1}
# The example, without a baseline: 10 times [-0.5, 0.7, -0.2].
probe = probes(score_function_gradient=score_function_gradient)
probe.equals(torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([1]), torch.tensor([10.0]))

# %% nbgrader={"grade_id": "score_function_gradient-rows", "grade": true, "points": 1}
# Several rows, each with its own position and reward.
probe = probes(score_function_gradient=score_function_gradient)
probe.equals(
    torch.tensor([[0.5, 0.5], [0.9, 0.1]]), torch.tensor([0, 1]), torch.tensor([2.0, -4.0])
)
### BEGIN HIDDEN TESTS
for rows, size in ((5, 3), (3, 7)):
    weights = probe.normal(rows, size, dtype=torch.float64).softmax(-1)
    probe.equals(weights, probe.integers(0, size, rows), probe.normal(rows, dtype=torch.float64))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "score_function_gradient-baseline", "grade": true, "points": 2}
# With a baseline: a number, or one per row.
probe = probes(score_function_gradient=score_function_gradient)
probe.equals(torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([1]), torch.tensor([10.0]), 4.0)
### BEGIN HIDDEN TESTS
weights = probe.normal(5, 3, dtype=torch.float64).softmax(-1)
place, reward = probe.integers(0, 3, 5), 5 + probe.normal(5, dtype=torch.float64)
probe.equals(weights, place, reward, baseline=4.5)
probe.equals(weights, place, reward, baseline=5 + probe.normal(5, dtype=torch.float64))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "score_function_gradient-unbiased", "grade": true, "points": 2}
# The mean of 20,000 draws against the exact gradient, 5 standard errors (false alarm: 1 in 100,000 for a right answer).
probe = probes(score_function_gradient=score_function_gradient)
probe.holds(
    oracles.UNBIASED, 1, torch.tensor([1.0, 0.0, -1.0]), torch.tensor([4.0, 9.0, 1.0]).double(), 0.0
)
### BEGIN HIDDEN TESTS
for baseline in (0.0, 8.0):
    scores, rewards = (
        0.5 * probe.normal(5, dtype=torch.float64),
        10 + 3 * probe.normal(5, dtype=torch.float64),
    )
    probe.holds(oracles.UNBIASED, int(probe.integers(0, 10_000)), scores, rewards, baseline)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. A leave-one-out baseline
#
# `leave_one_out(reward)` returns for every draw the mean reward of the *other* draws: a baseline that is independent of the draw itself.
#
# - `reward` is `(..., B)` with `B` draws of the same example on the last axis; the result has the same shape.
# - `B` is at least 2. With `B = 1` there are no others: raise a `ValueError`.
#
# By hand: `[1, 2, 6]` gives `[4, 3.5, 1.5]`.
#
# <details><summary>Hint</summary>
#
# The sum of all rewards, minus the draw's own, divided by the number of the others.
#
# </details>


# %% nbgrader={"grade_id": "leave_one_out", "solution": true}
def leave_one_out(reward):
    ### BEGIN SOLUTION
    draws = reward.shape[-1]
    if draws < 2:
        raise ValueError(f"reward: expected at least 2 draws on the last axis, got {draws}")
    return (reward.sum(-1, keepdim=True) - reward) / (draws - 1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "leave_one_out-by_hand", "grade": true, "points": 1}
# The example.
### BEGIN HIDDEN TESTS
def others(reward):
    size = reward.shape[-1]
    keep = 1 - torch.eye(size, dtype=reward.dtype)
    return reward @ keep / keep.sum(0)


### END HIDDEN TESTS
probe = probes(leave_one_out=leave_one_out)
probe.gives(torch.tensor([4.0, 3.5, 1.5]), torch.tensor([1.0, 2.0, 6.0]))
### BEGIN HIDDEN TESTS
probe = probes(leave_one_out=leave_one_out, oracle=others)
probe.equals(torch.tensor([1.0, 2.0, 6.0]))
probe.equals(10 * probe.normal(6))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "leave_one_out-batches", "grade": true, "points": 1}
# Several examples; with two draws each draw gets the reward of the other one.
probe = probes(leave_one_out=leave_one_out)
probe.gives(
    torch.tensor([[5.0, 3.0], [0.0, -1.0], [7.0, 7.0]]),
    torch.tensor([[3.0, 5.0], [-1.0, 0.0], [7.0, 7.0]]),
)
### BEGIN HIDDEN TESTS
probe = probes(leave_one_out=leave_one_out, oracle=others)
probe.equals(probe.normal(3, 5))
probe.equals(probe.normal(2, 3, 7, dtype=torch.float64))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "leave_one_out-alone", "grade": true, "points": 1}
# A single draw.
probe = probes(leave_one_out=leave_one_out)
probe.gives(torch.tensor([4.0, 2.0]), torch.tensor([2.0, 4.0]))
probe.raises(ValueError, torch.tensor([2.0]))
### BEGIN HIDDEN TESTS
probe = probes(leave_one_out=leave_one_out, oracle=others)
probe.raises(ValueError, probe.normal(3, 1))
### END HIDDEN TESTS

# %% [markdown]
# ## 4. Grad-CAM
#
# `grad_cam(activations, gradients)` shows where the feature maps of a convolutional network contain evidence for a class:
#
# $$w_k = \frac1Z \sum_{i,j} \frac{\partial y}{\partial A^k_{ij}}, \qquad L = \operatorname{ReLU}\Big(\sum_k w_k A^k\Big)$$
#
# - `activations` and `gradients` are `(B, C, height, width)`; $Z$ is the number of positions of a map.
# - The result is `(B, height, width)`.
#
# By hand: one map `[[1, 0], [0, 2]]` with gradients of 1 everywhere gives itself; with gradients of -1 it gives zeros.
#
# <details><summary>Hint</summary>
#
# Which axes disappear in the first formula, and which in the second?
#
# </details>


# %% nbgrader={"grade_id": "grad_cam", "solution": true}
def grad_cam(activations, gradients):
    ### BEGIN SOLUTION
    weights = gradients.mean((-2, -1), keepdim=True)
    return (weights * activations).sum(1).relu()
    ### END SOLUTION


# %% nbgrader={"grade_id": "grad_cam-by_hand", "grade": true, "points": 1}
# One map, gradients of 1.
probe = probes(grad_cam=grad_cam)
probe.equals(torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]]), torch.ones(1, 1, 2, 2))

# %% nbgrader={"grade_id": "grad_cam-channels", "grade": true, "points": 2}
# Several maps, for and against the class, and gradients that differ between positions.
probe = probes(grad_cam=grad_cam)
probe.equals(
    torch.tensor([[[[1.0, 0.0], [0.0, 2.0]], [[0.0, 3.0], [1.0, 0.0]]]]),
    torch.tensor([[[[1.0, 1.0], [1.0, 1.0]], [[-2.0, 0.0], [0.0, 0.0]]]]),
)
probe.equals(
    torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([[[[3.0, -1.0], [0.0, 0.0]]]])
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(1, 5, 3, 3), probe.normal(1, 5, 3, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "grad_cam-shapes", "grade": true, "points": 1}
# Batches, and maps that are not square.
probe = probes(grad_cam=grad_cam)
probe.equals(torch.ones(2, 3, 1, 4), torch.ones(2, 3, 1, 4))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 5, 7), probe.normal(2, 3, 5, 7))
probe.equals(
    probe.normal(3, 7, 5, 2, dtype=torch.float64), probe.normal(3, 7, 5, 2, dtype=torch.float64)
)
### END HIDDEN TESTS

# %% [markdown]
# ## Look
#
# The effect of a baseline on the variance: 10,000 of your estimates for position 0, without a baseline and with yours. Both have the same mean.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

weights = torch.tensor([0.5, 0.3, 0.2]).repeat(10000, 1)
place = torch.multinomial(weights, 1, generator=torch.Generator().manual_seed(0))[:, 0]
reward = torch.tensor([10.0, 11.0, 12.0])[place]
print("entropy of the weights:", float(weight_entropy(weights[0])))
for name, baseline in {"no baseline": 0.0, "the others' mean": leave_one_out(reward)}.items():
    estimates = score_function_gradient(weights, place, reward, baseline)[:, 0]
    print(f"{name}: mean {estimates.mean():.2f}, variance {estimates.var():.2f}")
    plt.hist(estimates, bins=60, range=(-8, 6), alpha=0.6, label=name)
plt.xlabel("estimate for position 0")
plt.legend()
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 5. Draw positions
#
# `draw_places(weights, draws)` draws `draws` positions independently with the probabilities `weights`: hard attention.
#
# - `weights` is `(S,)`, nonnegative, with sum 1. Never draw a position of weight 0.
# - The result is an `int64` tensor of shape `(draws,)` with numbers from 0 to `S - 1`.
# - The randomness comes from torch's global generator. Do not seed it: two calls give different draws.
#
# By hand: with weights `[0, 1, 0]` every draw is 1. With `[0.5, 0.5]` two successive draws are equal half of the time.
#
# <details><summary>Hint</summary>
#
# `torch.multinomial` does it; check its third argument.
# Or draw uniform numbers from 0 to 1 and find the cumulative sums of the weights between which they lie.
#
# </details>


# %% nbgrader={"grade_id": "draw_places", "solution": true}
def draw_places(weights, draws):
    ### BEGIN SOLUTION
    return torch.multinomial(weights, draws, replacement=True)
    ### END SOLUTION


# %% nbgrader={"grade_id": "draw_places-certain", "grade": true, "points": 1}
# A single weight of 1.
probe = probes(
    draw_places=draw_places,
    oracle=lambda weights, draws: torch.full((draws,), int(weights.argmax())),
)
probe.equals(1, torch.tensor([0.0, 1.0, 0.0]), 5, via=draw_seeded)
### BEGIN HIDDEN TESTS
for size in (2, 5, 7):
    certain = torch.zeros(size)
    certain[int(probe.integers(0, size))] = 1.0
    probe.equals(int(probe.integers(0, 10_000)), certain, 3 * size, via=draw_seeded)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "draw_places-frequencies", "grade": true, "points": 2}
# 20,000 draws: shares within 5 standard errors of the weights (false alarm: 1 in 100,000 for a right answer).
probe = probes(draw_places=draw_places)
probe.holds(oracles.FAIR, 1, torch.tensor([0.6, 0.3, 0.1]), 20_000, via=draw_seeded)
### BEGIN HIDDEN TESTS
for size in (4, 7):
    # no weight is so small that the normal approximation fails
    weights = 0.8 * (2 * probe.normal(size, dtype=torch.float64)).softmax(-1) + 0.2 / size
    weights = torch.cat([weights, torch.zeros(1, dtype=torch.float64)])
    probe.holds(oracles.FAIR, int(probe.integers(0, 10_000)), weights, 20_000, via=draw_seeded)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "draw_places-independence", "grade": true, "points": 1}
# Two draws, of one call or of two: equal with the expected frequency (false alarm: 1 in 200,000).
probe = probes(draw_places=draw_places)
probe.holds(oracles.FRESH, 2, torch.tensor([0.5, 0.5]), 20_000, via=draw_seeded)
probe.holds(oracles.FRESH, 3, torch.tensor([0.6, 0.3, 0.1]), 20_000, via=draw_twice)
### BEGIN HIDDEN TESTS
weights = torch.tensor([0.4, 0.3, 0.2, 0.1])
probe.holds(oracles.FRESH, int(probe.integers(0, 10_000)), weights, 20_000, via=draw_seeded)
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Saliency: gradient times input
#
# `gradient_times_input(x, label, *parameters)` is the contribution of each pixel, to first order, to the score of the class `label`: $x_i\, \partial f_{\text{label}} / \partial x_i$.
#
# - `network(x, *parameters)` is defined above: `x` is `(B, D)`, its result `(B, C)` the class scores before the softmax.
# - `label` is `(B,)`: the class of interest in each row.
# - The result is `(B, D)` with its sign, and does not require a gradient.
# - `x` may require a gradient or not. It is not changed, and neither `x` nor the parameters get a `.grad`.
#
# By hand: if the network were $f(x) = 2 x_1 - 3 x_2$, the image `[1, 1]` would give `[2, -3]`.
#
# <details><summary>Hint</summary>
#
# Work on a copy that requires a gradient.
# The rows are independent, so one backward pass from the *sum* of the chosen scores is enough.
#
# </details>


# %% nbgrader={"grade_id": "gradient_times_input", "solution": true}
def gradient_times_input(x, label, *parameters):
    ### BEGIN SOLUTION
    pixels = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        chosen = network(pixels, *parameters).gather(1, label[:, None])
    (grad,) = torch.autograd.grad(chosen.sum(), pixels)
    return x.detach() * grad
    ### END SOLUTION


# %% nbgrader={"grade_id": "gradient_times_input-by_hand", "grade": true, "points": 1}
# Close to the example: tanh is nearly linear for small numbers.
probe = probes(gradient_times_input=gradient_times_input)
small = [
    0.01 * torch.tensor([[2.0, -3.0]]),
    torch.zeros(1),
    torch.tensor([[100.0]]),
    torch.zeros(1),
]
probe.equals(torch.tensor([[1.0, 1.0]]), torch.tensor([0]), *small)

# %% nbgrader={"grade_id": "gradient_times_input-classes", "grade": true, "points": 2}
# Several images, each with its own class.
probe = probes(gradient_times_input=gradient_times_input)
probe.equals(
    torch.tensor([[1.0, 0.0], [2.0, -1.0]]),
    torch.tensor([1, 0]),
    torch.eye(2),
    torch.zeros(2),
    torch.tensor([[1.0, 2.0], [3.0, -1.0]]),
    torch.zeros(2),
)
### BEGIN HIDDEN TESTS
for rows, size, hidden, classes in ((5, 7, 3, 4), (2, 3, 5, 7)):
    parameters = [
        probe.normal(hidden, size),
        probe.normal(hidden),
        probe.normal(classes, hidden),
        probe.normal(classes),
    ]
    probe.equals(probe.normal(rows, size), probe.integers(0, classes, rows), *parameters)
### END HIDDEN TESTS


# %% nbgrader={"grade_id": "gradient_times_input-clean", "grade": true, "points": 1}
# Inputs that require gradients and inputs that do not: the result requires none, and no `.grad` remains.
def leaves_no_trace(function, x, label, *parameters):
    """Call with and without `requires_grad`, and record what remains on the tensors."""
    found = []
    for asked in (x.clone().requires_grad_(), x.clone()):
        result, switched, left = student.traces(function, asked, label, *parameters)
        found += [result.detach(), not switched, not left, not result.requires_grad]
    return found


probe = probes(gradient_times_input=gradient_times_input)
parameters = [torch.tensor([[1.0, -1.0]]), torch.zeros(1), torch.tensor([[2.0]]), torch.zeros(1)]
probe.equals(torch.tensor([[0.5, 0.25]]), torch.tensor([0]), *parameters, via=leaves_no_trace)
### BEGIN HIDDEN TESTS
parameters = [probe.normal(3, 7), probe.normal(3), probe.normal(4, 3), probe.normal(4)]
probe.equals(probe.normal(5, 7), probe.integers(0, 4, 5), *parameters, via=leaves_no_trace)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Integrated gradients
#
# `integrated_gradients(x, start, label, steps, *parameters)` returns each pixel's share of the change of the class score from `start` to `x`:
#
# $$a_i = (x_i - x'_i)\, \frac1m \sum_{k=1}^{m} \frac{\partial f\big(x' + \tfrac{k - 1/2}{m}\,(x - x')\big)}{\partial x_i}$$
#
# with $x'$ = `start` and $m$ = `steps`: gradients at the *middle* of each interval.
#
# - `x` and `start` are `(B, D)`, `label` is `(B,)`, `network` and `parameters` are as in exercise 6.
# - The result is `(B, D)`. With many steps its row sums are $f(x) - f(x')$: completeness.
#
# By hand: with one step, take the gradient half-way between `start` and `x`.
#
# <details><summary>Hint</summary>
#
# The difference of `x` and `start` enters twice: in the point where you take the gradient, and as a factor.
#
# </details>


# %% nbgrader={"grade_id": "integrated_gradients", "solution": true}
def integrated_gradients(x, start, label, steps, *parameters):
    ### BEGIN SOLUTION
    total = torch.zeros_like(x)
    for k in range(steps):
        point = (start + (k + 0.5) / steps * (x - start)).detach().requires_grad_()
        with torch.enable_grad():
            chosen = network(point, *parameters).gather(1, label[:, None])
        total += torch.autograd.grad(chosen.sum(), point)[0]
    return (x - start) * total / steps
    ### END SOLUTION


# %% nbgrader={"grade_id": "integrated_gradients-one_step", "grade": true, "points": 1}
# One step, from zero: the gradient half-way.
probe = probes(integrated_gradients=integrated_gradients)
unit = [torch.tensor([[1.0, -0.5]]), torch.zeros(1), torch.tensor([[1.0]]), torch.zeros(1)]
probe.equals(torch.tensor([[2.0, 1.0]]), torch.zeros(1, 2), torch.tensor([0]), 1, *unit)

# %% nbgrader={"grade_id": "integrated_gradients-path", "grade": true, "points": 2}
# Several steps, several images, from zero.
probe = probes(integrated_gradients=integrated_gradients)
probe.equals(torch.tensor([[2.0, 1.0]]), torch.zeros(1, 2), torch.tensor([0]), 4, *unit)
### BEGIN HIDDEN TESTS
for steps in (3, 8):
    parameters = [probe.normal(3, 5), probe.normal(3), probe.normal(4, 3), probe.normal(4)]
    x = probe.normal(2, 5)
    probe.equals(x, torch.zeros_like(x), probe.integers(0, 4, 2), steps, *parameters)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "integrated_gradients-start", "grade": true, "points": 2}
# A path that starts elsewhere.
probe = probes(integrated_gradients=integrated_gradients)
probe.equals(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5, -1.0]]), torch.tensor([0]), 2, *unit)
### BEGIN HIDDEN TESTS
for steps in (1, 5):
    parameters = [probe.normal(3, 5), probe.normal(3), probe.normal(4, 3), probe.normal(4)]
    probe.equals(
        probe.normal(2, 5), probe.normal(2, 5), probe.integers(0, 4, 2), steps, *parameters
    )
### END HIDDEN TESTS


# %% nbgrader={"grade_id": "integrated_gradients-complete", "grade": true, "points": 1}
# The shares add up to the change of the score.
def adds_up(function, x, start, label, steps, *parameters):
    shares = function(x, start, label, steps, *parameters)
    if type(shares) is not torch.Tensor or shares.shape != x.shape:
        return f"expected a tensor of shape {tuple(x.shape)}"
    change = network(x, *parameters) - network(start, *parameters)
    gap = shares.sum(-1) - change.gather(1, label[:, None])[:, 0]
    if float(gap.abs().max()) > 0.05:
        return f"the shares add up to {float(gap[0]):+.4f} more than the change of the score"
    return None


COMPLETE = properties.Property("the shares add up to the change of the score", adds_up)
probe = probes(integrated_gradients=integrated_gradients)
probe.holds(
    COMPLETE, torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5, -1.0]]), torch.tensor([0]), 200, *unit
)
### BEGIN HIDDEN TESTS
parameters = [probe.normal(3, 5, std=0.5), probe.normal(3), probe.normal(4, 3), probe.normal(4)]
probe.holds(
    COMPLETE, probe.normal(2, 5), 1 + probe.normal(2, 5), probe.integers(0, 4, 2), 400, *parameters
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Repair: the permutation test
#
# `broken_change` should measure how much the output of an attention model changes when the weights move to other positions.
# It takes `weights` `(B, S)`, `value` `(B, S, E)`, the classifier's matrix `head` `(C, E)` and a new order of the positions, `order` `(S,)`. For each row it should return the total variation between the *predicted distributions* (softmax of the class scores) before and after: $\tfrac12 \sum_c |p_c - q_c|$, a `(B,)` tensor.
# Position `s` gets the weight of position `order[s]`; the values do not move.
#
# It has three faults. Find them and write `fixed_change`.


# %% nbgrader={"grade_id": "broken_change", "locked": true}
def broken_change(weights, value, head, order):
    before = (weights[:, None] @ value)[:, 0] @ head.T
    after = (weights[:, None, order] @ value[:, order])[:, 0] @ head.T
    return (before - after).abs().sum(-1)


# %% nbgrader={"grade_id": "fixed_change", "solution": true}
def fixed_change(weights, value, head, order):
    ### BEGIN SOLUTION
    before = ((weights[:, None] @ value)[:, 0] @ head.T).softmax(-1)
    after = ((weights[:, None, order] @ value)[:, 0] @ head.T).softmax(-1)
    return (before - after).abs().sum(-1) / 2
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_change-by_hand", "grade": true, "points": 1}
# All weight on position 0, then on position 1, whose value reverses the answer.
### BEGIN HIDDEN TESTS
def right_change(weights, value, head, order):
    answer = lambda w: torch.einsum("bs,bse,ce->bc", w, value, head).softmax(-1)  # noqa: E731
    return analysis.total_variation(answer(weights), answer(weights[:, order]))


### END HIDDEN TESTS
probe = probes(fixed_change=fixed_change)
# softmax of (9, 0), then of (0, 9): 0.99988 and 0.00012 are exchanged
probe.gives(
    torch.tensor([0.9997532]),
    torch.tensor([[1.0, 0.0]]),
    torch.tensor([[[9.0, 0.0], [0.0, 9.0]]]),
    torch.eye(2),
    torch.tensor([1, 0]),
)

# %% nbgrader={"grade_id": "fixed_change-any", "grade": true, "points": 3}
# Any weights, any order.
probe = probes(fixed_change=fixed_change)
# outputs 0.5 and -0.3, so scores (0.5, -0.5) and (-0.3, 0.3)
probe.gives(
    torch.tensor([0.3767149]),
    torch.tensor([[0.7, 0.2, 0.1]]),
    torch.tensor([[[1.0], [0.0], [-2.0]]]),
    torch.tensor([[1.0], [-1.0]]),
    torch.tensor([2, 0, 1]),
)
### BEGIN HIDDEN TESTS
probe = probes(fixed_change=fixed_change, oracle=right_change)
for rows, size, width, classes in ((3, 5, 2, 4), (2, 7, 3, 5)):
    weights, value = probe.normal(rows, size).softmax(-1), probe.normal(rows, size, width)
    probe.equals(weights, value, probe.normal(classes, width), probe.permutation(size))
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Write the test
#
# `check_cam(candidate)` takes a `grad_cam(activations, gradients)` and returns `True` if it keeps the contract of exercise 4, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Compute the right value yourself, and choose inputs on which wrong answers *differ*: negative weights, non-square maps, several channels and several images.


# %% nbgrader={"grade_id": "check_cam", "solution": true}
def check_cam(candidate):
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(3)
    for shape in ((1, 2, 2, 2), (2, 5, 3, 7), (3, 1, 4, 2)):
        activations, gradients = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
        kept = activations.clone(), gradients.clone()
        expected = torch.zeros(shape[0], *shape[2:], dtype=torch.float64)
        for b in range(shape[0]):
            for k in range(shape[1]):
                expected[b] += gradients[b, k].mean() * activations[b, k]
        got = candidate(activations, gradients)
        if got.shape != expected.shape or not torch.allclose(got, expected.clamp(min=0)):
            return False
        if not torch.equal(activations, kept[0]) or not torch.equal(gradients, kept[1]):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_cam-plain", "grade": true, "points": 1}
# A right answer, and two that are clearly wrong.
probe = probes(check_cam=check_cam)
probe.judges(
    right=[analysis.grad_cam],
    wrong={
        "always 0": lambda activations, gradients: torch.zeros_like(activations[:, 0]),
        "the sum of the maps": lambda activations, gradients: activations.sum(1),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_cam-mutants", "grade": true, "points": 5}
# Wrong answers that are harder to detect: two here, the others hidden.
probe = probes(check_cam=check_cam)
probe.judges(
    right=[analysis.grad_cam],
    wrong={
        "the ReLU is forgotten": lambda activations, gradients: (
            gradients.mean((-2, -1), keepdim=True) * activations
        ).sum(1),
        "always 0": lambda activations, gradients: torch.zeros_like(activations[:, 0]),
    },
    points=5,
)


### BEGIN HIDDEN TESTS
def averaged(gradients):
    return gradients.mean((-2, -1), keepdim=True)


def by_einsum(activations, gradients):
    return torch.einsum("bk,bkij->bij", gradients.mean((-2, -1)), activations).clamp(min=0)


def changes_its_input(activations, gradients):
    activations *= averaged(gradients)
    return activations.sum(1).relu()


probe.judges(
    right=[analysis.grad_cam, by_einsum],
    wrong={
        "no ReLU": lambda a, g: (averaged(g) * a).sum(1),
        "ReLU before the sum": lambda a, g: (averaged(g) * a).relu().sum(1),
        "positive gradients only": lambda a, g: (averaged(g.relu()) * a).sum(1).relu(),
        "gradients not averaged": lambda a, g: (g * a).sum(1).relu(),
        "summed over the positions": lambda a, g: (g.sum((-2, -1), keepdim=True) * a).sum(1).relu(),
        "divided by height squared": lambda a, g: (
            (g.sum((-2, -1), keepdim=True) * a).sum(1).relu() / a.shape[-2] ** 2
        ),
        "mean over the channels": lambda a, g: (averaged(g) * a).mean(1).relu(),
        "weights of the first image": lambda a, g: (averaged(g[:1]) * a).sum(1).relu(),
        "the input is overwritten": changes_its_input,
    },
    points=5,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 10. Report
#
# Take the tile reader of the chapter, or a model of your own, and one map that a paper would present as an explanation: weights, gradients or Grad-CAM.
# Write about 200 words; each part earns two points.
#
# 1. Show one experiment whose result would differ if the map were *not* the reason for the output, with its control.
# 2. A colleague claims: "Permuting the weights hardly changes my model's output, so attention is useless." Give two other explanations, and describe how to distinguish them.
# 3. A colleague trains hard attention with REINFORCE, and the loss does not fall. What should they plot instead, and what would you try first if that does not improve?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. Putting all weight on a tile that is not the digit: the local model falls from 0.94 to chance, so its weights decide.
# Control: the mixed model with equal weights stays at 0.91 under the same intervention, so both results are possible.
# 2. The states may be mixed, so every position contains the answer: encode the positions separately, or erase the input at the position with the largest weight.
# Or the weights are nearly equal, so a permutation changes little: measure their entropy, and put all weight on one position instead.
# 3. The surrogate's value has no meaning; plot the reward.
# If that does not improve: a baseline that does not depend on the draw, then an entropy term if the weights have collapsed early.
#
# **Points**, one for each:
#
# - (1a) An intervention with two possible results.
# - (1b) Its control.
# - (2a) Mixed states, and how to detect them.
# - (2b) Nearly equal weights, and how to detect them.
# - (3a) The value of the surrogate has no meaning: plot the reward.
# - (3b) First a baseline that does not depend on the draw.
