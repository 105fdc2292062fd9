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
    """Asks with and without `requires_grad`, and looks at what is left on the tensors given."""
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
    """You take the logarithm of every weight, so a weight of exactly 0 gives 0 times minus
    infinity: NaN. Masked positions have weight 0.""",
    fails=("zeros", "gradient"),
    product=lambda weights: weights * weights.log(),
)
entropy.fault(
    "guarded too late",
    """Your value is right, but the gradient at a weight of 0 is not finite: you repair the result
    after the logarithm, and the backward pass still goes through it.""",
    fails=("gradient",),
    product=lambda weights: -torch.special.entr(weights),
)
entropy.fault(
    "NaN in the gradient",
    """Your value is right, but the gradient at a weight of 0 is NaN: you replace the NaN of the
    product, and the backward pass still goes through it.""",
    fails=("gradient",),
    product=lambda weights: torch.where(weights > 0, weights * weights.log(), 0.0),
)
for constant in (1e-6, 1e-8, 1e-9, 1e-10, 1e-12):
    entropy.fault(
        f"{constant} added under the logarithm",
        """Zeros then do no harm to the value, but all other weights are a little wrong, and the
        gradient at a weight of 0 is large instead of 0.""",
        fails=("axes", "zeros", "gradient") if constant > 1e-7 else ("gradient",),
        product=lambda weights, constant=constant: weights * (weights + constant).log(),
    )
entropy.fault(
    "scaled to one",
    "You divide by the largest possible entropy. Compare with the example of the contract.",
    last=lambda h, size: h / torch.tensor(float(size)).log(),
)
entropy.fault(
    "the exponential of the entropy",
    "You return the perplexity: the exponential of the entropy.",
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
    """You always return the position of the largest weight. That is a choice and no draw: the other
    positions are never visited.
    """
    return weights.argmax().expand(draws).clone()


@places("a second softmax")
def draw_softmax(weights, draws):
    """You take a softmax of the weights, which are probabilities already. It makes them nearly
    equal, and positions of weight 0 are drawn.
    """
    return torch.multinomial(weights.softmax(-1), draws, replacement=True)


@places("evenly")
def draw_evenly(weights, draws):
    """You draw every position equally often. Where do the weights enter?"""
    return torch.randint(len(weights), (draws,))


@places("one draw for all", but=("certain",))
def draw_once(weights, draws):
    """You draw a single position and repeat it. Draw anew each time."""
    return torch.multinomial(weights, 1).expand(draws).clone()


@places("in proportion, without chance", fails=("independence",))
def draw_in_proportion(weights, draws):
    """Your shares are exactly the weights, as you go through the positions in order. Independent
    draws are not that even.
    """
    reached = weights.double().cumsum(-1)
    at = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws * reached[-1]
    return (reached <= at[:, None]).sum(-1).clamp(max=len(weights) - 1)


@places("squared weights", but=("certain",))
def draw_squared(weights, draws):
    """Large weights are drawn too often: the shares are those of the squared weights."""
    return torch.multinomial(weights * weights, draws, replacement=True)


@places("shifted by one place", but=("independence",))
def draw_shifted(weights, draws):
    """Each position is drawn as often as its neighbour's weight says. Positions count from 0."""
    return (torch.multinomial(weights, draws, replacement=True) + 1) % len(weights)


@places("seeded inside", fails=("independence",))
def draw_with_own_seed(weights, draws):
    """You seed torch inside the function, so every call returns the same draws. The caller seeds."""
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
    """You move only the position that was drawn. Behind a softmax, raising one weight lowers all
    others, and that part of the derivative is missing.""",
    direction=lambda drawn, weights: drawn,
)
estimate.fault(
    "gradient by the weights",
    "You differentiate by the *weight*. The contract asks for the scores behind the softmax.",
    direction=lambda drawn, weights: drawn / weights,
)
estimate.fault(
    "no baseline",
    "You leave `baseline` out. The mean is right, but the variance is far larger.",
    fails=("baseline",),
    advantage=lambda reward, baseline: reward,
)
estimate.fault(
    "baseline at the drawn place only",
    """Your baseline multiplies the drawn position only, so it does not cancel on average: your
    estimate is biased.""",
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
        """You multiply by a probability. The position was drawn with its probability already, which
        would count twice in the mean.""",
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
    """You subtract from each draw a mean that contains it. Such a baseline depends on the draw and
    makes the estimate biased.""",
    total=lambda reward: reward.mean(-1, keepdim=True).expand_as(reward),
    count=lambda draws: 1,
)
others.fault(
    "divided by all",
    "You leave the draw out of the sum, and divide by the number of all draws.",
    count=as_given,
)
others.fault(
    "sum of the others",
    "You return the sum of the others' rewards. A baseline has the size of one reward.",
    count=lambda draws: 1,
)
others.fault(
    "advantage instead of the baseline",
    "You return the reward less its baseline. The contract asks for the baseline alone.",
    last=lambda mean, reward: reward - mean,
)
others.fault(
    "over the whole batch",
    "You sum over all examples. Only the draws of the same example are compared.",
    fails=("batches",),
    total=lambda reward: (reward.sum() - reward) / (reward.numel() - 1) * (reward.shape[-1] - 1),
)
for found, count in (("NaN", lambda draws: draws - 1), ("zero", lambda draws: max(draws - 1, 1))):
    others.fault(
        f"one draw alone gives {found}",
        f"A single draw gives {found}. The contract asks for an error: there are no others.",
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
        "Your map has negative positions. Grad-CAM keeps only what speaks *for* the class.",
        lambda maps: maps.sum(1),
    ),
    (
        "ReLU before the sum",
        "You apply the ReLU to each channel, so evidence against the class is lost.",
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
        "You apply a ReLU to the gradients, so no map can count against the class.",
        lambda gradients: averaged(gradients.relu()),
    ),
    (
        "absolute gradients",
        "You average absolute gradients, so no map can count against the class.",
        lambda gradients: averaged(gradients.abs()),
    ),
    (
        "gradients not averaged",
        "You multiply position by position. The first formula gives one weight for a whole map.",
        as_given,
    ),
    (
        "averaged over the channels",
        "You average the gradients over the channels. The weight $w_k$ belongs to a channel.",
        lambda gradients: gradients.mean(1, keepdim=True),
    ),
    (
        "averaged over everything",
        "You average over the channels too. Each channel has a weight of its own.",
        lambda gradients: gradients.mean((-3, -2, -1), keepdim=True),
    ),
):
    cam.fault(name, message, but=("by_hand",), weigh=weigh)
cam.fault(
    "summed over the positions",
    "Your weights are sums and not means: they are Z times too large.",
    weigh=lambda gradients: gradients.sum((-2, -1), keepdim=True),
)
cam.fault(
    "scaled to a maximum of one",
    "You scale every map to a maximum of 1. That hides how strong the evidence is.",
    last=lambda found: found / found.amax((-2, -1), keepdim=True).clamp(min=1e-8),
)


@cam("roles exchanged")
def cam_exchanged(activations, gradients):
    """You average the activations. The gradient says how much a map matters, the activation where
    it is active.
    """
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
    "You return the gradient. The contribution is the gradient times the input.",
    but=("by_hand",),
    give=lambda x, slope: slope,
)
saliency.fault(
    "the result depends on the input",
    "Your numbers are right, but the result requires a gradient: you multiplied with `x` itself.",
    fails=("clean",),
    give=lambda x, slope: x * slope,
)
saliency.fault(
    "all classes together",
    "You differentiate the sum of all class scores. Each row asks for one class.",
    but=("by_hand",),
    score=lambda logits, label: logits.sum(),
)
saliency.fault(
    "behind the softmax",
    "You differentiate the probability of the class. The contract asks for its score.",
    score=lambda logits, label: chosen(logits.softmax(-1), label),
)


@saliency("a gradient is left behind", fails=("clean",))
def saliency_backward(x, label, *parameters):
    """You call `backward` on the caller's own tensor and leave a `.grad` there, to which the next
    training step adds its own. Work on a copy.
    """
    with torch.enable_grad():
        own = x if x.requires_grad else x.detach().clone().requires_grad_()
        chosen(network(own, *parameters), label).backward()
    return own.detach() * own.grad


@saliency("the caller's tensor is switched", fails=("clean",))
def saliency_switches(x, label, *parameters):
    """Your numbers are right, but you call `requires_grad_` on the caller's tensor: from then on
    everything computed with it is recorded. Work on a copy.
    """
    x.requires_grad_()
    with torch.enable_grad():
        total = chosen(network(x, *parameters), label)
    return x.detach() * torch.autograd.grad(total, x)[0]


@saliency("switched, and a gradient left behind", fails=("clean",))
def saliency_switches_and_leaves(x, label, *parameters):
    """You call `requires_grad_` and `backward` on the caller's own tensor: it keeps the switch and
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
    "times the picture",
    "You multiply by `x`. That is right only for a path that starts at zero.",
    fails=("start", "complete"),
    factor=lambda x, start: x,
)
integral.fault(
    "the path starts at zero",
    "Your path starts at zero, and only the factor uses `start`.",
    fails=("start", "complete"),
    begin=torch.zeros_like,
)
integral.fault(
    "summed, not averaged",
    "You never divide by the number of steps: an integral is a mean times a length.",
    but=("one_step",),
    over=lambda steps: 1,
)
integral.fault(
    "gradients without the factor",
    "You return the mean gradient along the path. A share is that times the change of the pixel.",
    factor=lambda x, start: torch.ones_like(x),
)


@integral("gradient at the picture only")
def integral_local(x, start, label, steps, *parameters):
    """You take the gradient at `x` alone: a saturated unit then looks unimportant. Collect the
    gradients along the path.
    """
    return (x - start) * slopes(x, label, parameters)


@integral("steps that do not start at `start`", fails=("start", "complete"))
def integral_scaled_picture(x, start, label, steps, *parameters):
    """Your points are `start` plus a share of `x`. The path runs along the difference of the two."""
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
    "This is the broken function. Why does it give zero for every order: what moves along?",
    values=lambda value, order: value[:, order],
    predict=as_given,
    half=as_given,
)
change.fault(
    "scores compared",
    "The values stay. But you compare class scores; the contract compares distributions.",
    predict=as_given,
)
change.fault(
    "not halved",
    "You compare distributions, but your number goes up to 2. Total variation goes up to 1.",
    half=as_given,
)
change.fault(
    "the inverse order",
    "Place s gets the weight of place order[s]. You move it the other way.",
    fails=("any",),
    move=lambda weights, order: weights[:, order.argsort()],
)

# --- check_cam ---------------------------------------------------------------------------------

check = WrongAnswers("check_cam", tests=("plain", "mutants"))


@check("only the shape is compared")
def check_shape(candidate):
    """You compare the shape of the result alone, and nearly every wrong answer has the right shape.
    Compute what is expected and compare every number.
    """
    a = torch.randn(2, 3, 4, 5)
    return tuple(candidate(a, a).shape) == (2, 4, 5)


@check("one channel, even gradients")
def check_easy(candidate):
    """Your input has one channel and gradients of one: there most recipes give the same map. Take
    several channels and pictures, and gradients of both signs.
    """
    a = torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]])
    got = candidate(a.clone(), torch.ones_like(a))
    return got.shape == (1, 2, 2) and bool(torch.allclose(got, a[:, 0]))


@check("only negative numbers are rejected")
def check_sign(candidate):
    """You only check that the map has no negative number. A wrong map may be positive too: compare
    with numbers that you have computed in another way.
    """
    a = torch.linspace(-1, 1, 24).reshape(1, 2, 3, 4)
    return bool((candidate(a, a.flip(1)) >= 0).all())
