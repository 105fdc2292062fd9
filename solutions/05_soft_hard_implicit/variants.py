"""Right answers to the set on hard and implicit attention, written differently from the solution."""

import torch

from attn_course.probes import variant


def network(x, weight_1, bias_1, weight_2, bias_2):
    return torch.tanh(x @ weight_1.T + bias_1) @ weight_2.T + bias_2


@variant(of="weight_entropy")
def entropy_by_masked_logarithm(weights, dim=-1):
    logs = weights.masked_fill(weights == 0, 1.0).log()
    return -(weights * logs.masked_fill(weights == 0, 0.0)).sum(dim)


@variant(of="weight_entropy")
def entropy_by_rows(weights, dim=-1):
    rows = weights.movedim(dim, -1).reshape(-1, weights.shape[dim])
    total = torch.stack([-(row[row > 0] * row[row > 0].log()).sum() for row in rows])
    shape = list(weights.shape)
    del shape[dim]
    return total.reshape(shape)


@variant(of="draw_places")
def draw_by_sums(weights, draws):
    reached = weights.double().cumsum(0)
    reached = reached / reached[-1]
    return torch.searchsorted(reached, torch.rand(draws, dtype=torch.float64), right=True)


@variant(of="draw_places")
def draw_by_categorical(weights, draws):
    return torch.distributions.Categorical(probs=weights).sample((draws,))


@variant(of="draw_places")
def draw_by_gumbel(weights, draws):
    noise = torch.empty(draws, len(weights), dtype=torch.float64).exponential_()
    return (weights.double() / noise).argmax(-1)


@variant(of="score_function_gradient")
def estimate_by_one_hot(weights, place, reward, baseline=0.0):
    one_hot = (torch.arange(weights.shape[-1]) == place[:, None]).to(weights.dtype)
    return (one_hot - weights) * (reward - baseline).unsqueeze(-1)


@variant(of="score_function_gradient")
def estimate_by_autograd(weights, place, reward, baseline=0.0):
    scores = weights.detach().log().requires_grad_()
    with torch.enable_grad():
        log_prob = scores.log_softmax(-1).gather(-1, place[:, None])[:, 0]
    return torch.autograd.grad(log_prob, scores, reward - baseline)[0]


@variant(of="leave_one_out")
def leave_by_matrix(reward):
    draws = reward.shape[-1]
    if draws == 1:
        raise ValueError("reward: one draw has no others")
    others = torch.ones(draws, draws, dtype=reward.dtype) - torch.eye(draws, dtype=reward.dtype)
    return reward @ others / (draws - 1)


@variant(of="leave_one_out")
def leave_by_loop(reward):
    draws = reward.shape[-1]
    if draws == 1:
        raise ValueError("reward: one draw has no others")
    columns = [reward[..., [j for j in range(draws) if j != i]].mean(-1) for i in range(draws)]
    return torch.stack(columns, -1)


@variant(of="gradient_times_input")
def saliency_by_hand(x, label, weight_1, bias_1, weight_2, bias_2):
    x = x.detach()
    hidden = torch.tanh(x @ weight_1.T + bias_1)
    return x * ((weight_2[label] * (1 - hidden * hidden)) @ weight_1)


@variant(of="gradient_times_input")
def saliency_row_by_row(x, label, *parameters):
    rows = []
    for row, wanted in zip(x.detach(), label, strict=True):
        slope = torch.func.grad(
            lambda z, c=wanted: network(z[None], *parameters)[0].gather(0, c[None])[0]
        )(row)
        rows.append(row * slope)
    return torch.stack(rows)


@variant(of="integrated_gradients")
def integral_by_hand(x, start, label, steps, weight_1, bias_1, weight_2, bias_2):
    middle = (torch.arange(steps, dtype=x.dtype) + 0.5) / steps
    points = start + middle[:, None, None] * (x - start)
    hidden = torch.tanh(points @ weight_1.T + bias_1)
    return (x - start) * ((weight_2[label] * (1 - hidden**2)) @ weight_1).mean(0)


@variant(of="integrated_gradients")
def integral_in_one_batch(x, start, label, steps, *parameters):
    middle = (torch.arange(steps, dtype=x.dtype) + 0.5) / steps
    points = (start + middle[:, None, None] * (x - start)).flatten(0, 1).requires_grad_()
    with torch.enable_grad():
        chosen = network(points, *parameters).gather(1, label.repeat(steps)[:, None])
    slopes = torch.autograd.grad(chosen.sum(), points)[0]
    return (x - start) * slopes.unflatten(0, (steps, len(x))).mean(0)


@variant(of="grad_cam")
def cam_by_einsum(activations, gradients):
    weights = gradients.flatten(2).mean(-1)
    return torch.einsum("bk,bkij->bij", weights, activations).clamp(min=0)


@variant(of="grad_cam")
def cam_by_loop(activations, gradients):
    total = torch.zeros_like(activations[:, 0])
    for k in range(activations.shape[1]):
        total = total + gradients[:, k].mean((1, 2))[:, None, None] * activations[:, k]
    return torch.where(total > 0, total, torch.zeros_like(total))


@variant(of="fixed_change")
def change_by_largest_event(weights, value, head, order):
    before = torch.softmax(torch.einsum("bs,bse,ce->bc", weights, value, head), -1)
    after = torch.softmax(torch.einsum("bs,bse,ce->bc", weights[:, order], value, head), -1)
    return (before - after).clamp(min=0).sum(-1)


@variant(of="check_cam")
def check_by_loops(candidate):
    for shape in ((2, 3, 2, 5), (1, 4, 3, 3)):
        generator = torch.Generator().manual_seed(sum(shape))
        a = torch.randn(*shape, generator=generator, dtype=torch.float64)
        g = torch.randn(*shape, generator=generator, dtype=torch.float64)
        due = torch.zeros(shape[0], shape[2], shape[3], dtype=torch.float64)
        for b in range(shape[0]):
            for i in range(shape[2]):
                for j in range(shape[3]):
                    due[b, i, j] = max(
                        0.0, sum(float(g[b, k].mean() * a[b, k, i, j]) for k in range(shape[1]))
                    )
        given = a.clone()
        got = candidate(given, g.clone())
        if got.shape != due.shape or not torch.allclose(got, due) or not torch.equal(given, a):
            return False
    return True
