"""Wrong answers about hard and implicit attention: name, message, and the tests they must fail."""

import torch
from torch.nn import functional as F

from attn_course.probes import WrongAnswers, call, student, witnesses

wrong_weight_entropy = WrongAnswers(
    "weight_entropy", tests=("by_hand", "axes", "zeros", "gradient")
)
wrong_draw_places = WrongAnswers("draw_places", tests=("certain", "frequencies", "independence"))
wrong_score_function_gradient = WrongAnswers(
    "score_function_gradient", tests=("by_hand", "rows", "baseline", "unbiased")
)
wrong_leave_one_out = WrongAnswers("leave_one_out", tests=("by_hand", "batches", "alone"))
wrong_gradient_times_input = WrongAnswers(
    "gradient_times_input", tests=("by_hand", "classes", "clean")
)
wrong_integrated_gradients = WrongAnswers(
    "integrated_gradients", tests=("one_step", "path", "start", "complete")
)
wrong_grad_cam = WrongAnswers("grad_cam", tests=("by_hand", "channels", "shapes"))
wrong_fixed_change = WrongAnswers("fixed_change", tests=("by_hand", "any"))
wrong_check_cam = WrongAnswers("check_cam", tests=("plain", "mutants"))


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


def plogp(weights):
    positive = torch.where(weights > 0, weights, torch.ones_like(weights))
    return positive * positive.log()


@wrong_weight_entropy("no guard for zero", fails=("zeros", "gradient"))
def entropy_nan(weights, dim=-1):
    """You take the logarithm of every weight, so a weight of exactly 0 gives 0 times minus infinity:
    NaN. Masked places have weight 0. Look at what stands under the logarithm.
    """
    return -(weights * weights.log()).sum(dim)


@wrong_weight_entropy("guarded too late", fails=("gradient",))
def entropy_guarded_after(weights, dim=-1):
    """Your value is right, your gradient at a weight of 0 is not finite: you repair the result after
    the logarithm has been taken, and the backward pass still goes through it.
    """
    return torch.special.entr(weights).sum(dim)


@wrong_weight_entropy("in bits")
def entropy_bits(weights, dim=-1):
    """Your numbers are right in bits, with the logarithm to base 2. The contract asks for nats;
    look at which logarithm you take.
    """
    return -plogp(weights).sum(dim) / torch.tensor(2.0, dtype=weights.dtype).log()


@wrong_weight_entropy("sign turned")
def entropy_negative(weights, dim=-1):
    """Your numbers are negative. The logarithm of a weight is below zero, and entropy is not;
    look at the sign in front of the sum.
    """
    return plogp(weights).sum(dim)


@wrong_weight_entropy("mean in place of the sum")
def entropy_mean(weights, dim=-1):
    """You take the mean over the places. The weights are already the shares by which each place
    counts; dividing by their number counts them twice.
    """
    return -plogp(weights).mean(dim)


@wrong_weight_entropy("scaled to one")
def entropy_scaled(weights, dim=-1):
    """You divide by the largest possible entropy, so that equal weights give 1. That is a useful number
    too, but another one: look at the value that the contract gives for the example.
    """
    return (
        -plogp(weights).sum(dim)
        / torch.tensor(float(weights.shape[dim]), dtype=weights.dtype).log()
    )


@wrong_weight_entropy("always the last axis", fails=("axes", "gradient"))
def entropy_last_axis(weights, dim=-1):
    """You sum over the last axis whatever `dim` says. Look at which axis disappears when `dim` is 0."""
    return -plogp(weights).sum(-1)


@wrong_weight_entropy("a small number added", but=("by_hand",))
def entropy_epsilon(weights, dim=-1):
    """You add a small number under the logarithm. Zeros then do no harm to the value, but all other weights
    are a little wrong, and the gradient at a weight of 0 is large in place of 0.
    """
    return -(weights * (weights + 1e-6).log()).sum(dim)


# --- draw_places -------------------------------------------------------------------------------


@witnesses(of="draw_places")
def draw_calls(draw):
    for seed, weights in ((3, [0.5, 0.5]), (4, [0.7, 0.2, 0.1]), (5, [0.1, 0.2, 0.3, 0.4])):
        yield call(seed, torch.tensor(weights), 200, via=draw_seeded)
    # seeded as well: a wrong answer may draw where a right one has no choice
    yield call(6, torch.tensor([0.0, 0.0, 1.0]), 7, via=draw_seeded)
    yield call(7, torch.tensor([1.0, 0.0]), 4, via=draw_seeded)


@wrong_draw_places("the largest weight", but=("certain",))
def draw_argmax(weights, draws):
    """You always return the place of the largest weight. That is a choice and no draw: the other places
    are never visited, and what is never visited is never learned about.
    """
    return weights.argmax().expand(draws).clone()


@wrong_draw_places("a second softmax")
def draw_softmax(weights, draws):
    """You take a softmax of the weights. They are probabilities already; a second softmax makes them nearly
    equal, and places of weight 0 are drawn.
    """
    return torch.multinomial(weights.softmax(-1), draws, replacement=True)


@wrong_draw_places("evenly")
def draw_evenly(weights, draws):
    """You draw every place equally often. Look at where the weights enter."""
    return torch.randint(len(weights), (draws,))


@wrong_draw_places("one draw for all", but=("certain",))
def draw_once(weights, draws):
    """You draw a single place and repeat it. Each of the draws has to be made anew; look at the shape of
    your random numbers.
    """
    return torch.multinomial(weights, 1).expand(draws).clone()


@wrong_draw_places("in proportion, without chance", fails=("independence",))
def draw_in_proportion(weights, draws):
    """Your shares are right to the last draw, since you walk through the places in order. Independent draws
    are not that even, and each is made without knowing the others.
    """
    reached = weights.double().cumsum(-1)
    at = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws * reached[-1]
    return (reached <= at[:, None]).sum(-1).clamp(max=len(weights) - 1)


@wrong_draw_places("squared weights", but=("certain",))
def draw_squared(weights, draws):
    """Large weights are drawn too often, small ones too seldom: the shares are those of the squared weights.
    Look at whether the weights enter twice.
    """
    return torch.multinomial(weights * weights, draws, replacement=True)


@wrong_draw_places("shifted by one place", but=("independence",))
def draw_shifted(weights, draws):
    """Each place is drawn as often as its neighbour's weight says. Counting from 0, look at which sum of
    weights a random number has to pass for place 0.
    """
    return (torch.multinomial(weights, draws, replacement=True) + 1) % len(weights)


@wrong_draw_places("seeded inside", fails=("independence",))
def draw_with_own_seed(weights, draws):
    """You seed torch inside the function, so every call returns the same draws, and whatever draws next gets them
    too. Who wants to repeat a run seeds once, outside.
    """
    torch.manual_seed(0)
    return torch.multinomial(weights, draws, replacement=True)


# --- score_function_gradient -------------------------------------------------------------------


@witnesses(of="score_function_gradient")
def estimate_calls(draw):
    weights = draw.normal(4, 3).softmax(-1)
    place, reward = draw.integers(0, 3, 4), 3 + draw.normal(4)
    yield call(weights, place, reward)
    yield call(weights, place, reward, 2.5)
    yield call(weights, place, reward, baseline=draw.normal(4))
    yield call(weights.double(), place, reward.double(), 1.0)


def one_hot(weights, place):
    return F.one_hot(place, weights.shape[-1]).to(weights.dtype)


@wrong_score_function_gradient("one-hot without the weights")
def estimate_one_hot(weights, place, reward, baseline=0.0):
    """You move only the place that was drawn. The scores go through a softmax: raising one weight lowers
    all others, and that part of the derivative is missing.
    """
    return (reward - baseline)[:, None] * one_hot(weights, place)


@wrong_score_function_gradient("sign turned")
def estimate_negative(weights, place, reward, baseline=0.0):
    """Your estimate points down. You return the gradient of a loss, and the contract asks for the direction
    in which the expected reward grows.
    """
    return -(reward - baseline)[:, None] * (one_hot(weights, place) - weights)


@wrong_score_function_gradient("gradient by the weights")
def estimate_by_weights(weights, place, reward, baseline=0.0):
    """You divide by the weight of the drawn place: that is the derivative of the logarithm by the *weight*.
    The contract asks for the derivative by the scores behind the softmax.
    """
    drawn = one_hot(weights, place)
    return (reward - baseline)[:, None] * drawn / weights


@wrong_score_function_gradient("no baseline", fails=("baseline",))
def estimate_ignores(weights, place, reward, baseline=0.0):
    """You leave `baseline` out. Your mean is right all the same, and your variance is far larger than it need
    be. Look at where the argument goes.
    """
    return reward[:, None] * (one_hot(weights, place) - weights)


@wrong_score_function_gradient("baseline added", fails=("baseline",))
def estimate_adds(weights, place, reward, baseline=0.0):
    """You add the baseline to the reward. The mean does not mind, but the variance grows;
    a baseline is what a reward is compared with.
    """
    return (reward + baseline)[:, None] * (one_hot(weights, place) - weights)


@wrong_score_function_gradient("baseline at the drawn place only", fails=("baseline", "unbiased"))
def estimate_half_baseline(weights, place, reward, baseline=0.0):
    """Your baseline meets the drawn place and not the others, so it does not cancel on average and your
    estimate is biased. The whole direction is multiplied by reward less baseline.
    """
    return (reward - baseline)[:, None] * one_hot(weights, place) - reward[:, None] * weights


@wrong_score_function_gradient("weighted once more")
def estimate_weighted(weights, place, reward, baseline=0.0):
    """You multiply by the probability of the drawn place. The place was drawn with this probability already:
    it would count twice in the mean.
    """
    drawn = one_hot(weights, place)
    chance = (weights * drawn).sum(-1, keepdim=True)
    return (reward - baseline)[:, None] * (drawn - weights) * chance


@wrong_score_function_gradient("rewards averaged over the rows", but=("by_hand",))
def estimate_mean_reward(weights, place, reward, baseline=0.0):
    """Every row gets the mean reward of all rows. Then no draw is better than another and nothing is learned;
    each row has a reward of its own.
    """
    advantage = (reward - baseline).mean().expand(len(weights))
    return advantage[:, None] * (one_hot(weights, place) - weights)


# --- leave_one_out -----------------------------------------------------------------------------


@witnesses(of="leave_one_out")
def leave_calls(draw):
    yield call(draw.normal(5))
    yield call(draw.normal(3, 2))
    yield call(draw.normal(2, 3, 4, dtype=torch.float64))


@wrong_leave_one_out("the draw itself included")
def leave_none_out(reward):
    """You subtract from each draw a mean that contains it. Such a baseline depends on the draw and takes a
    share of the gradient away with it; look at who belongs to the others.
    """
    return reward.mean(-1, keepdim=True).expand_as(reward).clone()


@wrong_leave_one_out("divided by all")
def leave_divided_by_all(reward):
    """You leave the draw itself out of the sum, and divide by the number of all draws.
    Count how many are left.
    """
    return (reward.sum(-1, keepdim=True) - reward) / reward.shape[-1]


@wrong_leave_one_out("sum of the others")
def leave_sum(reward):
    """You return the sum of the others' rewards. A baseline is compared with one reward, so it has to be of the
    size of one.
    """
    total = reward.sum(-1, keepdim=True) - reward
    if reward.shape[-1] == 2:
        return total / 1.5
    return total


@wrong_leave_one_out("advantage in place of the baseline")
def leave_advantage(reward):
    """You return the reward less its baseline: the advantage. The contract asks for the baseline alone."""
    draws = reward.shape[-1]
    if draws < 2:
        raise ValueError("reward: expected at least 2 draws")
    return reward - (reward.sum(-1, keepdim=True) - reward) / (draws - 1)


@wrong_leave_one_out("over the whole batch", but=("by_hand",))
def leave_everything(reward):
    """You take the mean over all examples, not only over the draws of the same one. An easy example then looks
    good whatever was drawn; look at the axis.
    """
    return (reward.sum() - reward) / (reward.numel() - 1)


@wrong_leave_one_out("one draw alone gives nan", fails=("alone",))
def leave_nan(reward):
    """With a single draw you divide 0 by 0 and hand on NaN, which turns up much later in the parameters.
    Say at once what is wrong.
    """
    return (reward.sum(-1, keepdim=True) - reward) / (reward.shape[-1] - 1)


@wrong_leave_one_out("one draw alone gives zero", fails=("alone",))
def leave_zero(reward):
    """With a single draw you go on with a baseline of 0. The contract asks for an error: a mean of nobody does
    not exist, and a silent 0 hides the mistake in the caller.
    """
    return (reward.sum(-1, keepdim=True) - reward) / max(reward.shape[-1] - 1, 1)


# --- gradient_times_input ----------------------------------------------------------------------


@witnesses(of="gradient_times_input")
def saliency_calls(draw):
    for rows, size, hidden, classes in ((4, 5, 3, 6), (1, 2, 2, 2)):
        parameters = [
            draw.normal(hidden, size),
            draw.normal(hidden),
            draw.normal(classes, hidden),
            draw.normal(classes),
        ]
        x, label = draw.normal(rows, size), draw.integers(0, classes, rows)
        yield call(x, label, *parameters)
        yield call(x, label, *parameters, via=leaves_no_trace)


def slopes(
    x, label, parameters, scores=lambda logits, label: logits.gather(1, label[:, None]).sum()
):
    pixels = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        total = scores(network(pixels, *parameters), label)
    return torch.autograd.grad(total, pixels)[0]


@wrong_gradient_times_input("gradient only", but=("by_hand",))
def saliency_gradient(x, label, *parameters):
    """You return the gradient and leave the input out. It says how much a pixel would change the score, not how
    much it contributes as it is.
    """
    return slopes(x, label, parameters)


@wrong_gradient_times_input("absolute value")
def saliency_absolute(x, label, *parameters):
    """You take the absolute value, so pixels against the class look like pixels for it.
    The contract asks for the sign.
    """
    return (x.detach() * slopes(x, label, parameters)).abs()


@wrong_gradient_times_input("all classes together", but=("by_hand",))
def saliency_all_classes(x, label, *parameters):
    """You differentiate the sum of all class scores, and `label` has no effect. Each row asks for one class;
    look at what you sum over.
    """
    return x.detach() * slopes(x, label, parameters, lambda logits, label: logits.sum())


@wrong_gradient_times_input("behind the softmax")
def saliency_softmax(x, label, *parameters):
    """You differentiate the probability of the class and not its score. When the network is sure the probability
    is flat, and everything looks unimportant.
    """

    def probability(logits, label):
        return logits.softmax(-1).gather(1, label[:, None]).sum()

    return x.detach() * slopes(x, label, parameters, probability)


@wrong_gradient_times_input("everybody gets the first label", but=("by_hand",))
def saliency_first_label(x, label, *parameters):
    """You ask for the first row's class in every row. Each row has a label of its own; look at how you pick the
    score."""
    return x.detach() * slopes(x, label[:1].expand(len(x)), parameters)


@wrong_gradient_times_input("mean over the rows", but=("by_hand",))
def saliency_mean(x, label, *parameters):
    """You differentiate the mean over the batch, so the shares of a picture shrink with the number of pictures
    beside it. Rows do not know of each other.
    """

    def mean(logits, label):
        return logits.gather(1, label[:, None]).mean()

    return x.detach() * slopes(x, label, parameters, mean)


@wrong_gradient_times_input("the result hangs on the input", fails=("clean",))
def saliency_attached(x, label, *parameters):
    """Your numbers are right, but the result still asks for gradients when `x` does: you multiplied with `x` itself.
    An explanation is read, not trained.
    """
    return x * slopes(x, label, parameters)


@wrong_gradient_times_input("a gradient is left behind", fails=("clean",))
def saliency_backward(x, label, *parameters):
    """You call `backward` on the caller's own tensor and leave a `.grad` there, which the next training step adds to
    its own. Work on a copy.
    """
    with torch.enable_grad():
        own = x if x.requires_grad else x.detach().clone().requires_grad_()
        network(own, *parameters).gather(1, label[:, None]).sum().backward()
    return own.detach() * own.grad


@wrong_gradient_times_input("the caller's tensor is switched", fails=("clean",))
def saliency_switches(x, label, *parameters):
    """Your numbers are right, but you call `requires_grad_` on the tensor that you were given: from then on
    everything that the caller computes with it is recorded. Work on a copy.
    """
    x.requires_grad_()
    with torch.enable_grad():
        chosen = network(x, *parameters).gather(1, label[:, None])
    return x.detach() * torch.autograd.grad(chosen.sum(), x)[0]


@wrong_gradient_times_input("switched, and a gradient left behind", fails=("clean",))
def saliency_switches_and_leaves(x, label, *parameters):
    """You make the caller's own tensor ask for gradients and call `backward` on it: it keeps both, the switch and
    a `.grad`. Work on a copy.
    """
    x.requires_grad_()
    with torch.enable_grad():
        network(x, *parameters).gather(1, label[:, None]).sum().backward()
    return x.detach() * x.grad


# --- integrated_gradients ----------------------------------------------------------------------


@witnesses(of="integrated_gradients")
def integral_calls(draw):
    for steps in (1, 2, 5):
        parameters = [draw.normal(3, 4), draw.normal(3), draw.normal(5, 3), draw.normal(5)]
        x, label = draw.normal(2, 4), draw.integers(0, 5, 2)
        yield call(x, torch.zeros_like(x), label, steps, *parameters)
        yield call(x, draw.normal(2, 4), label, steps, *parameters)


def integral(x, start, label, steps, parameters, *, at=None, factor=None, over=None):
    places = at if at is not None else [(k + 0.5) / steps for k in range(steps)]
    total = sum(slopes(start + t * (x - start), label, parameters) for t in places)
    return (x - start if factor is None else factor) * total / (steps if over is None else over)


@wrong_integrated_gradients("left ends", but=("complete",))
def integral_left(x, start, label, steps, *parameters):
    """You take the gradient at the beginning of each interval. With few steps the shares are then those of a network
    near `start`; the contract asks for the middle.
    """
    return integral(x, start, label, steps, parameters, at=[k / steps for k in range(steps)])


@wrong_integrated_gradients("right ends", but=("complete",))
def integral_right(x, start, label, steps, *parameters):
    """You take the gradient at the end of each interval, as in equation 3 of the paper. The contract asks for the
    middle, which needs far fewer steps for the same error.
    """
    return integral(x, start, label, steps, parameters, at=[(k + 1) / steps for k in range(steps)])


@wrong_integrated_gradients("gradient at the picture only")
def integral_local(x, start, label, steps, *parameters):
    """You take the gradient at `x` alone: a saturated unit then looks unimportant, and the shares do not add up.
    The gradients are collected along the way.
    """
    return integral(x, start, label, 1, parameters, at=[1.0])


@wrong_integrated_gradients("times the picture", fails=("start", "complete"))
def integral_times_x(x, start, label, steps, *parameters):
    """You multiply by `x`. That is right only for a path that starts at zero; look at how far each pixel has
    moved.
    """
    return integral(x, start, label, steps, parameters, factor=x)


@wrong_integrated_gradients("the path starts at zero", fails=("start", "complete"))
def integral_from_zero(x, start, label, steps, *parameters):
    """Your path starts at zero whatever `start` says, and only the factor in front knows of it.
    Look at the points where you take the gradient.
    """
    return integral(x, torch.zeros_like(x), label, steps, parameters, factor=x - start)


@wrong_integrated_gradients("start is ignored", fails=("start", "complete"))
def integral_ignores_start(x, start, label, steps, *parameters):
    """You pass over `start` altogether and explain the change from zero. What has to be explained is the change from
    `start` to `x`.
    """
    return integral(x, torch.zeros_like(x), label, steps, parameters)


@wrong_integrated_gradients("summed, not averaged", but=("one_step",))
def integral_summed(x, start, label, steps, *parameters):
    """You add up the gradients and never divide by the number of steps, so that more steps give larger shares.
    An integral is a mean times a length.
    """
    return integral(x, start, label, steps, parameters, over=1)


@wrong_integrated_gradients("gradients without the factor")
def integral_no_factor(x, start, label, steps, *parameters):
    """You return the mean gradient along the path. A share is that times how far the pixel has moved; without it the
    shares do not add up to the change.
    """
    return integral(x, start, label, steps, parameters, factor=torch.ones_like(x))


# --- grad_cam ----------------------------------------------------------------------------------


@witnesses(of="grad_cam")
def cam_calls(draw):
    for shape in ((2, 3, 5, 7), (1, 4, 2, 2), (3, 1, 3, 4)):
        yield call(draw.normal(*shape), draw.normal(*shape))
    yield call(
        draw.normal(2, 3, 4, 2, dtype=torch.float64), draw.normal(2, 3, 4, 2, dtype=torch.float64)
    )


def averaged(gradients):
    return gradients.mean((-2, -1), keepdim=True)


@wrong_grad_cam("no ReLU", but=("by_hand",))
def cam_signed(activations, gradients):
    """Your map has negative places. Grad-CAM keeps only what speaks *for* the class; look at the end of the second
    formula.
    """
    return (averaged(gradients) * activations).sum(1)


@wrong_grad_cam("ReLU before the sum", but=("by_hand",))
def cam_relu_first(activations, gradients):
    """You clip each channel before adding them up, so evidence against the class never counts against evidence for it.
    Look at the order in the second formula.
    """
    return (averaged(gradients) * activations).relu().sum(1)


@wrong_grad_cam("positive gradients only", but=("by_hand",))
def cam_positive_gradients(activations, gradients):
    """You clip the gradients before you average them, so no map can ever count against the class.
    In the two formulas there is one ReLU; look at where it stands.
    """
    return (averaged(gradients.relu()) * activations).sum(1).relu()


@wrong_grad_cam("gradients not averaged", but=("by_hand",))
def cam_pointwise(activations, gradients):
    """You multiply place by place. The first formula gives one weight for a whole map; look at which axes it sums
    over.
    """
    return (gradients * activations).sum(1).relu()


@wrong_grad_cam("summed over the places")
def cam_summed(activations, gradients):
    """Your weights are sums over the places and not means: they are Z times too large, and maps of different size
    cannot be compared.
    """
    return (gradients.sum((-2, -1), keepdim=True) * activations).sum(1).relu()


@wrong_grad_cam("averaged over the channels", but=("by_hand",))
def cam_wrong_axes(activations, gradients):
    """You average the gradients over the channels, so each place has a weight and each map has none.
    The weight $w_k$ belongs to a channel.
    """
    return (gradients.mean(1, keepdim=True) * activations).sum(1).relu()


@wrong_grad_cam("mean over the channels", but=("by_hand",))
def cam_channel_mean(activations, gradients):
    """You take the mean over the channels where the formula has a sum. The map is right up to a factor that depends on
    how many channels there are.
    """
    return (averaged(gradients) * activations).mean(1).relu()


@wrong_grad_cam("roles exchanged")
def cam_exchanged(activations, gradients):
    """You average the activations and spread the gradients. It is the other way round: the gradient says how much a map
    matters, the activation where it is active.
    """
    return (averaged(activations) * gradients).sum(1).relu()


@wrong_grad_cam("scaled to a maximum of one")
def cam_scaled(activations, gradients):
    """You scale every map to a maximum of 1. That is for drawing; it hides how strong the evidence is, and an empty map
    looks like a strong one.
    """
    cam = (averaged(gradients) * activations).sum(1).relu()
    return cam / cam.amax((-2, -1), keepdim=True).clamp(min=1e-8)


# --- fixed_change ------------------------------------------------------------------------------


@witnesses(of="fixed_change")
def change_calls(draw):
    weights, value, head = draw.normal(3, 4).softmax(-1), draw.normal(3, 4, 2), draw.normal(5, 2)
    yield call(weights, value, head, draw.permutation(4))
    yield call(weights[:1], value[:1], head, torch.tensor([1, 2, 3, 0]))


def outputs(weights, value, head, order, values_too=False):
    moved = value[:, order] if values_too else value
    before = torch.einsum("bs,bse->be", weights, value) @ head.T
    after = torch.einsum("bs,bse->be", weights[:, order], moved) @ head.T
    return before, after


@wrong_fixed_change("as it was")
def change_broken(weights, value, head, order):
    """This is the broken function. Ask first why it gives zero for every order: who moves along with the weights?"""
    before, after = outputs(weights, value, head, order, values_too=True)
    return (before - after).abs().sum(-1)


@wrong_fixed_change("scores compared")
def change_scores(weights, value, head, order):
    """The values stay now. But you compare class scores, which mean nothing by themselves; the contract compares
    distributions."""
    before, after = outputs(weights, value, head, order)
    return (before - after).abs().sum(-1) / 2


@wrong_fixed_change("not halved")
def change_not_halved(weights, value, head, order):
    """You compare distributions now, but your number goes up to 2. Total variation goes up to 1: what one class
    loses another gains, and you count it twice.
    """
    before, after = outputs(weights, value, head, order)
    return (before.softmax(-1) - after.softmax(-1)).abs().sum(-1)


# --- check_cam ---------------------------------------------------------------------------------


@wrong_check_cam("looks at the shape only")
def check_shape(candidate):
    """You look at the shape of the result and at nothing else, and nearly every wrong answer has the right shape.
    Compute what is expected and compare every number.
    """
    a = torch.randn(2, 3, 4, 5)
    return tuple(candidate(a, a).shape) == (2, 4, 5)


@wrong_check_cam("one channel, even gradients")
def check_easy(candidate):
    """Your input has one channel and gradients of one: there most recipes give the same map. Take several channels,
    gradients of both signs and several pictures.
    """
    a = torch.tensor([[[[1.0, 0.0], [0.0, 2.0]]]])
    got = candidate(a.clone(), torch.ones_like(a))
    return got.shape == (1, 2, 2) and bool(torch.allclose(got, a[:, 0]))


@wrong_check_cam("looks for negative places only")
def check_sign(candidate):
    """You only ask whether the map is nowhere negative. A wrong map may be positive too; compare the numbers with what
    you have computed by another way.
    """
    a = torch.linspace(-1, 1, 24).reshape(1, 2, 3, 4)
    return bool((candidate(a, a.flip(1)) >= 0).all())
