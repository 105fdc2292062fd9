"""Wrong answers about hard and implicit attention: name, message, and the tests they must fail."""

import torch
from torch.nn.functional import one_hot

from attn_course.probes import WrongAnswers, call, student, witnesses


def as_given(x):
    return x


def network(x, weight_1, bias_1, weight_2, bias_2):
    return torch.tanh(x @ weight_1.T + bias_1) @ weight_2.T + bias_2


def draw_seeded(function, seed, weights, draws):
    student.seed(function, seed)
    return function(weights, draws)


def leaves_no_trace(function, x, label, *parameters):
    """Call with and without `requires_grad`, and record what remains on the tensors."""
    found = []
    for asked in (x.clone().requires_grad_(), x.clone()):
        result, switched, left = student.traces(function, asked, label, *parameters)
        found += [result.detach(), not switched, not left, not result.requires_grad]
    return found


# --- weight_entropy ----------------------------------------------------------------------------


def guarded(weights):
    positive = torch.where(weights > 0, weights, torch.ones_like(weights))
    return positive * positive.log()


def right_entropy(
    weights, dim=-1, *, product=guarded, total=lambda x, dim: x.sum(dim), last=lambda h, size: h
):
    return last(-total(product(weights), dim), weights.shape[dim])


entropy = WrongAnswers(
    "weight_entropy", tests=("by_hand", "axes", "zeros", "gradient"), right=right_entropy
)


@witnesses(of="weight_entropy")
def entropy_calls(draw):
    for dim in (-1, 0, 1):
        yield call(draw.normal(2, 3, 5).softmax(dim), dim=dim)
    yield call(torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]))
    # in float64 a small number added shows, and one that only stands in for zeros does not
    yield call(draw.normal(2, 3, dtype=torch.float64).softmax(-1))
    yield call(torch.tensor([0.5, 0.5, 0.0]), via=student.grad(0))
    yield call(draw.normal(3, 5).softmax(-1), via=student.grad(0))
    yield call(draw.normal(3, 5).softmax(0), via=student.grad(0), dim=0)


entropy.fault(
    "no guard for zero",
    "You take the logarithm of every weight, so a weight of 0 gives NaN. A weight of 0 adds 0.",
    fails=("zeros", "gradient"),
    product=lambda weights: weights * weights.log(),
)
entropy.fault(
    "guarded too late",
    """Your value is right, but the gradient at a weight of 0 is not finite. Replace the weight
    before the logarithm.""",
    fails=("gradient",),
    product=lambda weights: -torch.special.entr(weights),
)
entropy.fault(
    "NaN in the gradient",
    """Your value is right, but the gradient at a weight of 0 is NaN. Replace the weight before the
    logarithm, not the product after it.""",
    fails=("gradient",),
    product=lambda weights: torch.where(weights > 0, weights * weights.log(), 0.0),
)
for constant in (1e-6, 1e-8, 1e-9, 1e-10, 1e-12):
    entropy.fault(
        f"{constant} added under the logarithm",
        """You add a constant to the weights, so the gradient at a weight of 0 is large instead of
        0. Other weights become slightly wrong.""",
        fails=("axes", "zeros", "gradient") if constant > 1e-7 else ("gradient",),
        product=lambda weights, constant=constant: weights * (weights + constant).log(),
    )
entropy.fault(
    "scaled to 1",
    "You divide by the largest possible entropy. The contract asks for nats.",
    last=lambda h, size: h / torch.tensor(float(size)).log(),
)
entropy.fault(
    "the exponential of the entropy",
    "You return the perplexity, the exponential of the entropy. Return the entropy.",
    last=lambda h, size: h.exp(),
)

# --- draw_places -------------------------------------------------------------------------------

places = WrongAnswers("draw_places", tests=("certain", "frequencies", "independence"))


@witnesses(of="draw_places")
def draw_calls(draw):
    for seed, weights in ((3, [0.5, 0.5]), (4, [0.7, 0.2, 0.1]), (5, [0.1, 0.2, 0.3, 0.4])):
        yield call(seed, torch.tensor(weights), 200, via=draw_seeded)
    # seeded as well: a wrong answer may draw where a right one has no choice
    yield call(6, torch.tensor([0.0, 0.0, 1.0]), 7, via=draw_seeded)
    yield call(7, torch.tensor([1.0, 0.0]), 4, via=draw_seeded)


@places("the largest weight", but=("certain",))
def draw_argmax(weights, draws):
    """You always return the position of the largest weight. Draw positions at random."""
    return weights.argmax().expand(draws).clone()


@places("a second softmax")
def draw_softmax(weights, draws):
    """You apply a softmax to the weights, which are already probabilities. Positions of weight 0
    are then drawn.
    """
    return torch.multinomial(weights.softmax(-1), draws, replacement=True)


@places("evenly")
def draw_evenly(weights, draws):
    """You draw all positions with equal probability. Use the weights."""
    return torch.randint(len(weights), (draws,))


@places("one draw for all", but=("certain",))
def draw_once(weights, draws):
    """You draw a single position and repeat it. The draws must be independent."""
    return torch.multinomial(weights, 1).expand(draws).clone()


@places("in proportion, without chance", fails=("independence",))
def draw_in_proportion(weights, draws):
    """You return each position in exact proportion to its weight. Draw at random."""
    reached = weights.double().cumsum(-1)
    at = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws * reached[-1]
    return (reached <= at[:, None]).sum(-1).clamp(max=len(weights) - 1)


@places("squared weights", but=("certain",))
def draw_squared(weights, draws):
    """You draw with the squared weights. Use the weights themselves."""
    return torch.multinomial(weights * weights, draws, replacement=True)


@places("shifted by one position", but=("independence",))
def draw_shifted(weights, draws):
    """Your positions are one too large. Positions count from 0."""
    return (torch.multinomial(weights, draws, replacement=True) + 1) % len(weights)


@places("seeded inside", fails=("independence",))
def draw_with_own_seed(weights, draws):
    """You seed torch inside the function, so every call returns the same draws. Do not seed it."""
    torch.manual_seed(0)
    return torch.multinomial(weights, draws, replacement=True)


# --- score_function_gradient -------------------------------------------------------------------


def right_estimate(
    weights,
    place,
    reward,
    baseline=0.0,
    *,
    advantage=lambda reward, baseline: reward - baseline,
    direction=lambda drawn, weights: drawn - weights,
    join=lambda advantage, direction, weights, drawn, reward: advantage[:, None] * direction,
):
    drawn = one_hot(place, weights.shape[-1]).to(weights.dtype)
    gain = advantage(reward, baseline)
    return join(gain, direction(drawn, weights), weights, drawn, reward)


estimate = WrongAnswers(
    "score_function_gradient",
    tests=("by_hand", "rows", "baseline", "unbiased"),
    right=right_estimate,
)


@witnesses(of="score_function_gradient")
def estimate_calls(draw):
    weights = draw.normal(4, 3).softmax(-1)
    place, reward = draw.integers(0, 3, 4), 3 + draw.normal(4)
    yield call(weights, place, reward)
    yield call(weights, place, reward, 2.5)
    yield call(weights, place, reward, baseline=draw.normal(4))
    yield call(weights.double(), place, reward.double(), 1.0)


estimate.fault(
    "one-hot without the weights",
    """Only the drawn position gets a gradient. A softmax also passes one to the scores of all other
    positions.""",
    direction=lambda drawn, weights: drawn,
)
estimate.fault(
    "gradient with respect to the weights",
    """You differentiate with respect to the *weight*. The contract asks for the score before the
    softmax.""",
    direction=lambda drawn, weights: drawn / weights,
)
estimate.fault(
    "no baseline",
    "You ignore `baseline`. Subtract it from the reward.",
    fails=("baseline",),
    advantage=lambda reward, baseline: reward,
)
estimate.fault(
    "baseline only at the drawn position",
    """You subtract the baseline only at the drawn position, so the estimate is biased. It belongs
    to the reward in both terms.""",
    fails=("baseline", "unbiased"),
    join=lambda advantage, direction, weights, drawn, reward: (
        advantage[:, None] * drawn - reward[:, None] * weights
    ),
)
for told, chance in (
    ("drawn position", lambda weights, drawn: (weights * drawn).sum(-1, keepdim=True)),
    ("weight of each position", lambda weights, drawn: weights),
):
    estimate.fault(
        f"weighted once more by the {told}",
        "You multiply by a probability. Drawing already accounts for it.",
        join=lambda advantage, direction, weights, drawn, reward, chance=chance: (
            advantage[:, None] * direction * chance(weights, drawn)
        ),
    )

# --- leave_one_out -----------------------------------------------------------------------------


def refuse(draws):
    if draws < 2:
        raise ValueError("reward: expected at least 2 draws")
    return draws - 1


def right_others(
    reward,
    *,
    total=lambda reward: reward.sum(-1, keepdim=True) - reward,
    count=refuse,
    last=lambda mean, reward: mean,
):
    return last(total(reward) / count(reward.shape[-1]), reward)


others = WrongAnswers("leave_one_out", tests=("by_hand", "batches", "alone"), right=right_others)


@witnesses(of="leave_one_out")
def leave_calls(draw):
    yield call(draw.normal(5))
    yield call(draw.normal(3, 2))
    yield call(draw.normal(2, 3, 4, dtype=torch.float64))


others.fault(
    "the draw itself included",
    "Your mean includes the draw itself, which makes the estimate biased. Leave it out.",
    total=lambda reward: reward.mean(-1, keepdim=True).expand_as(reward),
    count=lambda draws: 1,
)
others.fault(
    "divided by all",
    """You leave the draw out of the sum but divide by the number of all draws. Divide by the number
    of the others.""",
    count=as_given,
)
others.fault(
    "sum of the others",
    "You return the sum of the other rewards. Divide by their number.",
    count=lambda draws: 1,
)
others.fault(
    "advantage instead of the baseline",
    "You return the reward minus its baseline. The contract asks for the baseline alone.",
    last=lambda mean, reward: reward - mean,
)
others.fault(
    "over the whole batch",
    "You average over all examples. Average over the draws of the same example.",
    fails=("batches",),
    total=lambda reward: (reward.sum() - reward) / (reward.numel() - 1) * (reward.shape[-1] - 1),
)
for found, count in (("NaN", lambda draws: draws - 1), ("zero", lambda draws: max(draws - 1, 1))):
    others.fault(
        f"one draw alone gives {found}",
        f"You return {found} for a single draw. The contract asks for an error.",
        fails=("alone",),
        count=count,
    )

# --- grad_cam ----------------------------------------------------------------------------------


def averaged(gradients):
    return gradients.mean((-2, -1), keepdim=True)


def right_cam(
    activations,
    gradients,
    *,
    weigh=averaged,
    join=lambda maps: maps.sum(1).relu(),
    last=as_given,
):
    return last(join(weigh(gradients) * activations))


cam = WrongAnswers("grad_cam", tests=("by_hand", "channels", "shapes"), right=right_cam)


@witnesses(of="grad_cam")
def cam_calls(draw):
    for shape in ((2, 3, 5, 7), (1, 4, 2, 2), (3, 1, 3, 4)):
        yield call(draw.normal(*shape), draw.normal(*shape))
    yield call(*(draw.normal(2, 3, 4, 2, dtype=torch.float64) for _ in range(2)))


for name, message, join in (
    (
        "no ReLU",
        "You leave out the ReLU, so the map has negative elements.",
        lambda maps: maps.sum(1),
    ),
    (
        "ReLU before the sum",
        "You apply the ReLU to each channel. The formula applies it to the sum.",
        lambda maps: maps.relu().sum(1),
    ),
    (
        "mean over the channels",
        "You take the mean over the channels. The formula has a sum.",
        lambda maps: maps.mean(1).relu(),
    ),
):
    cam.fault(name, message, but=("by_hand",), join=join)
for name, message, weigh in (
    (
        "positive gradients only",
        "You apply a ReLU to the gradients. The formula averages them with their sign.",
        lambda gradients: averaged(gradients.relu()),
    ),
    (
        "absolute gradients",
        "You average absolute gradients. The formula averages them with their sign.",
        lambda gradients: averaged(gradients.abs()),
    ),
    (
        "gradients not averaged",
        "You multiply position by position. The first formula gives one weight per map.",
        as_given,
    ),
    (
        "averaged over the channels",
        "You average the gradients over the channels. Average over the positions of each channel.",
        lambda gradients: gradients.mean(1, keepdim=True),
    ),
    (
        "averaged over everything",
        "You average over the channels, too. Each channel has its own weight.",
        lambda gradients: gradients.mean((-3, -2, -1), keepdim=True),
    ),
):
    cam.fault(name, message, but=("by_hand",), weigh=weigh)
cam.fault(
    "summed over the positions",
    "You sum the gradients of a map. Divide by Z.",
    weigh=lambda gradients: gradients.sum((-2, -1), keepdim=True),
)
cam.fault(
    "scaled to a maximum of one",
    "You scale every map to a maximum of 1. The formula does not.",
    last=lambda found: found / found.amax((-2, -1), keepdim=True).clamp(min=1e-8),
)


@cam("roles exchanged")
def cam_exchanged(activations, gradients):
    """You average the activations. Average the gradients, and multiply by the activations."""
    return right_cam(gradients, activations)


# --- gradient_times_input ----------------------------------------------------------------------


def chosen(logits, label):
    return logits.gather(1, label[:, None]).sum()


def slopes(x, label, parameters, score=chosen):
    pixels = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        total = score(network(pixels, *parameters), label)
    return torch.autograd.grad(total, pixels)[0]


def right_saliency(
    x, label, *parameters, score=chosen, give=lambda x, slope: x.detach() * slope, ask=as_given
):
    return give(x, slopes(x, ask(label), parameters, score))


saliency = WrongAnswers(
    "gradient_times_input", tests=("by_hand", "classes", "clean"), right=right_saliency
)


@witnesses(of="gradient_times_input")
def saliency_calls(draw):
    for rows, size, hidden, classes in ((4, 5, 3, 6), (1, 2, 2, 2)):
        shapes = (hidden, size), (hidden,), (classes, hidden), (classes,)
        parameters = [draw.normal(*shape) for shape in shapes]
        x, label = draw.normal(rows, size), draw.integers(0, classes, rows)
        yield call(x, label, *parameters)
        yield call(x, label, *parameters, via=leaves_no_trace)


saliency.fault(
    "gradient only",
    "You return the gradient alone. Multiply it by the input.",
    but=("by_hand",),
    give=lambda x, slope: slope,
)
saliency.fault(
    "the result depends on the input",
    """Your values are right, but the result requires a gradient, because you multiply by `x`
    itself.""",
    fails=("clean",),
    give=lambda x, slope: x * slope,
)
saliency.fault(
    "all classes together",
    "You differentiate the sum of all class scores. Differentiate that of the class `label`.",
    but=("by_hand",),
    score=lambda logits, label: logits.sum(),
)
saliency.fault(
    "after the softmax",
    "You differentiate the probability of the class. Differentiate its score.",
    score=lambda logits, label: chosen(logits.softmax(-1), label),
)


@saliency("a gradient is left behind", fails=("clean",))
def saliency_backward(x, label, *parameters):
    """You call `backward` on the caller's tensor and leave a `.grad` there. Work on a copy."""
    with torch.enable_grad():
        own = x if x.requires_grad else x.detach().clone().requires_grad_()
        chosen(network(own, *parameters), label).backward()
    return own.detach() * own.grad


@saliency("the caller's tensor is switched", fails=("clean",))
def saliency_switches(x, label, *parameters):
    """Your values are right, but you call `requires_grad_` on the caller's tensor. Work on a copy."""
    x.requires_grad_()
    with torch.enable_grad():
        total = chosen(network(x, *parameters), label)
    return x.detach() * torch.autograd.grad(total, x)[0]


@saliency("switched, and a gradient left behind", fails=("clean",))
def saliency_switches_and_leaves(x, label, *parameters):
    """You call `requires_grad_` and `backward` on the caller's tensor, which changes it and leaves
    a `.grad`. Work on a copy.
    """
    x.requires_grad_()
    with torch.enable_grad():
        chosen(network(x, *parameters), label).backward()
    return (x * x.grad).detach()


# --- integrated_gradients ----------------------------------------------------------------------


def right_integral(
    x,
    start,
    label,
    steps,
    *parameters,
    begin=as_given,
    at=lambda k: k + 0.5,
    over=as_given,
    factor=lambda x, start: x - start,
):
    first = begin(start)
    points = (first + at(k) / steps * (x - first) for k in range(steps))
    total = sum(slopes(point, label, parameters) for point in points)
    return factor(x, start) * total / over(steps)


integral = WrongAnswers(
    "integrated_gradients", tests=("one_step", "path", "start", "complete"), right=right_integral
)


@witnesses(of="integrated_gradients")
def integral_calls(draw):
    for steps in (1, 2, 5):
        parameters = [draw.normal(*shape) for shape in ((3, 4), (3,), (5, 3), (5,))]
        x, label = draw.normal(2, 4), draw.integers(0, 5, 2)
        yield call(x, torch.zeros_like(x), label, steps, *parameters)
        yield call(x, draw.normal(2, 4), label, steps, *parameters)


for ends, at in (("left", lambda k: k), ("right", lambda k: k + 1)):
    integral.fault(
        f"{ends} ends",
        f"You take the gradient at the {ends} end of each interval. The contract asks for the middle.",
        but=("complete",),
        at=at,
    )
integral.fault(
    "times the image",
    "You multiply by `x`. Multiply by `x - start`.",
    fails=("start", "complete"),
    factor=lambda x, start: x,
)
integral.fault(
    "the path starts at zero",
    "Your path starts at zero. It should start at `start`.",
    fails=("start", "complete"),
    begin=torch.zeros_like,
)
integral.fault(
    "summed, not averaged",
    "You do not divide by the number of steps. The formula has a mean.",
    but=("one_step",),
    over=lambda steps: 1,
)
integral.fault(
    "gradients without the factor",
    "You return the mean gradient along the path. Multiply it by `x - start`.",
    factor=lambda x, start: torch.ones_like(x),
)


@integral("gradient only at the image")
def integral_local(x, start, label, steps, *parameters):
    """You take the gradient only at `x`. Average the gradients along the path."""
    return (x - start) * slopes(x, label, parameters)


@integral("the path runs along `x`", fails=("start", "complete"))
def integral_scaled_picture(x, start, label, steps, *parameters):
    """Your points are `start` plus a fraction of `x`. Add the same fraction of `x - start`."""
    points = (start + (k + 0.5) / steps * x for k in range(steps))
    return (x - start) * sum(slopes(point, label, parameters) for point in points) / steps


# --- fixed_change ------------------------------------------------------------------------------


def right_change(
    weights,
    value,
    head,
    order,
    *,
    values=lambda value, order: value,
    move=lambda weights, order: weights[:, order],
    predict=lambda scores: scores.softmax(-1),
    half=lambda distance: distance / 2,
):
    before = torch.einsum("bs,bse->be", weights, value) @ head.T
    after = torch.einsum("bs,bse->be", move(weights, order), values(value, order)) @ head.T
    return half((predict(before) - predict(after)).abs().sum(-1))


change = WrongAnswers("fixed_change", tests=("by_hand", "any"), right=right_change)


@witnesses(of="fixed_change")
def change_calls(draw):
    weights, value, head = draw.normal(3, 4).softmax(-1), draw.normal(3, 4, 2), draw.normal(5, 2)
    yield call(weights, value, head, draw.permutation(4))
    yield call(weights[:1], value[:1], head, torch.tensor([1, 2, 3, 0]))


change.fault(
    "as it was",
    "This is the broken function. It gives zero for every order: what else does it move?",
    values=lambda value, order: value[:, order],
    predict=as_given,
    half=as_given,
)
change.fault(
    "scores compared",
    "The values no longer move, but you compare class scores. Compare distributions.",
    predict=as_given,
)
change.fault(
    "not halved",
    "You compare distributions, but do not halve the sum. Total variation is at most 1.",
    half=as_given,
)
change.fault(
    "the inverse order",
    "You apply the inverse order. Position s gets the weight of position order[s].",
    fails=("any",),
    move=lambda weights, order: weights[:, order.argsort()],
)

# --- check_cam ---------------------------------------------------------------------------------

check = WrongAnswers("check_cam", tests=("plain", "mutants"))


@check("only the shape is compared")
def check_shape(candidate):
    """You compare only the shape. Most wrong answers have the right shape."""
    a = torch.randn(2, 3, 4, 5)
    return tuple(candidate(a, a).shape) == (2, 4, 5)


@check("one channel, even gradients")
def check_easy(candidate):
    """Your input has one channel and gradients of 1, where most wrong answers give the right map.
    Use several channels and images, and gradients of both signs.
    """
    a = torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]])
    got = candidate(a.clone(), torch.ones_like(a))
    return got.shape == (1, 2, 2) and bool(torch.allclose(got, a[:, 0]))


@check("only negative numbers are rejected")
def check_sign(candidate):
    """You only check that the map has no negative element. Compare it with your own numbers."""
    a = torch.linspace(-1, 1, 24).reshape(1, 2, 3, 4)
    return bool((candidate(a, a.flip(1)) >= 0).all())
