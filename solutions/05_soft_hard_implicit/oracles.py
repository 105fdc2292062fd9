"""What the tests of the set judge by."""

import torch

from attn_course import analysis, functional, reference
from attn_course.probes import Probes, properties


def network(x, weight_1, bias_1, weight_2, bias_2):
    """A small network without any attention: pixels (B, D) to class scores (B, C)."""
    return torch.tanh(x @ weight_1.T + bias_1) @ weight_2.T + bias_2


# unlike the reference, finite at a weight of 0
entropy_with_gradient = analysis.weight_entropy


def right_gradient(weights, place, reward, baseline=0.0):
    one_hot = torch.nn.functional.one_hot(place, weights.shape[-1]).to(weights.dtype)
    return functional.score_function_gradient(weights, one_hot, reward, baseline)


def right_saliency(x, label, *parameters):
    chosen = lambda z: network(z, *parameters).gather(1, label[:, None])[:, 0]  # noqa: E731
    return analysis.gradient_times_input(chosen, x)


def right_integral(x, start, label, steps, *parameters):
    chosen = lambda z: network(z, *parameters).gather(1, label[:, None])[:, 0]  # noqa: E731
    return analysis.integrated_gradients(chosen, x, start, steps=steps)


def as_often_as_due(function, seed, weights, draws):
    """Each position is drawn with the frequency of its weight, within 5 standard errors."""
    places = function(seed, weights, draws)
    if type(places) is not torch.Tensor or places.shape != (draws,) or places.dtype != torch.int64:
        return f"expected {draws} places as an int64 tensor of shape ({draws},)"
    if bool(((places < 0) | (places >= len(weights))).any()):
        return f"a place outside 0 to {len(weights) - 1} was drawn"
    share = torch.bincount(places, minlength=len(weights)).double() / draws
    w = weights.double()
    off = (share - w).abs() > 5 * (w * (1 - w) / draws).sqrt()
    if bool(off.any()):
        s = int(off.nonzero()[0])
        return f"place {s} has the weight {float(w[s]):.3f} and {float(share[s]):.3f} of the draws"
    return None


def no_memory(function, seed, weights, draws):
    """Draws are independent: pairs occur with the product of their frequencies."""
    places = function(seed, weights, draws)
    if type(places) is not torch.Tensor or places.shape != (draws,) or places.dtype != torch.int64:
        return f"expected {draws} places as an int64 tensor of shape ({draws},)"
    w = weights.double()
    due = float((w * w).sum())
    pairs = {
        "two draws in a row": (places[0::2], places[1::2]),
        "a draw and the one half of all draws later": (places[: draws // 2], places[draws // 2 :]),
    }
    for which, (one, other) in pairs.items():
        same = float((one == other).double().mean())
        if abs(same - due) > 5 * (due * (1 - due) / (draws // 2)) ** 0.5:
            return f"{which} are equal in {same:.3f} of all cases, expected {due:.3f}"
    return None


def mean_is_right(function, seed, scores, rewards, baseline):
    """The mean of 20,000 estimates is the gradient of the expected reward, within 5 errors."""
    drawn = torch.Generator().manual_seed(seed)
    weights = scores.double().softmax(-1)
    place = torch.multinomial(weights, 20_000, replacement=True, generator=drawn)
    each = function(weights.expand(20_000, -1), place, rewards[place], baseline)
    if type(each) is not torch.Tensor or each.shape != (20_000, len(scores)):
        return f"expected a tensor of shape (20000, {len(scores)})"
    exact = weights * (rewards - weights @ rewards)
    error = each.std(0) / 20_000**0.5
    off = (each.mean(0) - exact).abs() > 5 * error + 1e-9
    if bool(off.any()):
        s = int(off.nonzero()[0])
        mean = float(each.mean(0)[s])
        return f"the mean for place {s} is {mean:.3f}, the exact gradient {float(exact[s]):.3f}"
    return None


FAIR = properties.Property("places come as often as their weights say", as_often_as_due)
FRESH = properties.Property("a draw does not depend on another", no_memory)
UNBIASED = properties.Property("the estimate is right on average", mean_is_right)


probes = Probes(
    "05_soft_hard_implicit",
    weight_entropy=reference.weight_entropy,
    grad_cam=reference.grad_cam,
    score_function_gradient=right_gradient,
    gradient_times_input=right_saliency,
    integrated_gradients=right_integral,
)
