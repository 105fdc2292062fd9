"""Jacobian, gradients, integrated gradients and Grad-CAM: four kinds of oracle, and mutants."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from mutation import REJECTED, passes, rejects, rejects_changes
from oracles import by_numpy
from refusals import refused, refuses
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course import analysis, reference
from attn_course.analysis import (
    grad_cam,
    gradient_times_input,
    input_gradient,
    integrated_gradients,
)

MODULE = "attn_course.analysis.saliency"
Function = Callable[..., Any]
# central differences with a step of 1e-5 on smooth functions of size 1
DIFFERENCES = {"rtol": 1e-7, "atol": 1e-8}


def smooth(x: Tensor) -> Tensor:
    """One number per row of ``(B, 3, 2)``, curved in every input."""
    flat = x.flatten(1)
    return (flat[:, 0] * flat[:, 5]).tanh() + flat.sin().sum(-1) + (flat[:, 1] ** 3) / 3


def smooth_numpy(x: np.ndarray) -> np.ndarray:
    flat = x.reshape(len(x), -1)
    return np.tanh(flat[:, 0] * flat[:, 5]) + np.sin(flat).sum(-1) + flat[:, 1] ** 3 / 3


def check_gradient(gradient: Function, times: Function) -> None:
    weight = torch.tensor([1.0, -2.0, 0.5])
    x = torch.tensor([[1.0, 1.0, 1.0], [2.0, 0.0, -4.0]])
    assert_close(gradient(lambda z: z @ weight, x), weight.expand(2, 3))
    assert_close(times(lambda z: z @ weight, x), torch.tensor([[1.0, -2, 0.5], [2, 0, -2]]))
    # for a linear function the shares add up to the output
    assert_close(times(lambda z: z @ weight, x).sum(-1), x @ weight)
    x = torch.randn(5, 3, 2, dtype=torch.float64)
    oracle = by_numpy.input_gradient(smooth_numpy, x)
    assert_close(gradient(smooth, x), oracle, **DIFFERENCES)
    assert_close(times(smooth, x), x * oracle, **DIFFERENCES)
    assert_close(times(smooth, x), by_numpy.gradient_times_input(smooth_numpy, x), **DIFFERENCES)
    each = torch.stack([torch.func.grad(lambda r: smooth(r[None])[0])(row) for row in x])
    assert_close(gradient(smooth, x), each, **FLOAT64)
    assert_close(gradient(lambda z: torch.ones(5), x), torch.zeros_like(x))


def test_gradient_agrees_with_every_oracle() -> None:
    check_gradient(input_gradient, gradient_times_input)


@pytest.mark.parametrize(("gradient", "times"), [
    (lambda f, x: input_gradient(f, x).abs(), gradient_times_input),
    (lambda f, x: input_gradient(f, x) / len(x), gradient_times_input),
    (lambda f, x: F.normalize(input_gradient(f, x), dim=-1), gradient_times_input),
    (gradient_times_input, gradient_times_input),
    (input_gradient, input_gradient),
    (input_gradient, lambda f, x: (x * input_gradient(f, x)).abs()),
    (input_gradient, lambda f, x: x * f(x).view(-1, *[1] * (x.ndim - 1))),
])  # fmt: skip
def test_gradient_oracles_reject(gradient: Function, times: Function) -> None:
    with pytest.raises((AssertionError, RuntimeError)):
        check_gradient(gradient, times)


def check_integrated(integrated: Function) -> None:
    # f = x0 * x1 from (0, 0) to (2, 3): both shares are 3; from (1, 0): 3 * 1/2 ... by the integral
    product = lambda z: z[:, 0] * z[:, 1]  # noqa: E731
    x = torch.tensor([[2.0, 3.0]], dtype=torch.float64)
    assert_close(integrated(product, x, steps=1), torch.full_like(x, 3.0))
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert_close(integrated(product, x, start, steps=8), torch.tensor([[1.5, 4.5]]).double())
    x = torch.randn(5, 3, 2, dtype=torch.float64)
    baseline = torch.randn(3, 2, dtype=torch.float64)
    for start in (None, baseline, torch.randn(5, 3, 2, dtype=torch.float64)):
        for steps in (1, 7):
            plain = None if start is None else start.numpy()
            oracle = by_numpy.integrated_gradients(smooth_numpy, x, plain, steps=steps)
            ours = integrated(smooth, x, start, steps=steps)
            assert_close(ours, oracle, rtol=1e-6, atol=1e-7)
        # completeness, and the midpoint rule's error of the second order
        origin = torch.zeros_like(x) if start is None else start.expand_as(x)
        due = smooth(x) - smooth(origin)
        gaps = [
            float((integrated(smooth, x, start, steps=m).flatten(1).sum(-1) - due).abs().max())
            for m in (32, 64)
        ]
        assert gaps[1] < 1e-2
        assert 3.5 < gaps[0] / gaps[1] < 4.5
    # an input that does not matter gets exactly 0
    blind = integrated(lambda z: z[:, 0, 0].exp(), x)
    assert (blind.flatten(1)[:, 1:] == 0).all()
    # two networks that compute the same function get the same shares (implementation invariance)
    other = integrated(lambda z: z.flatten(1)[:, :1].exp().sum(-1) * 2 - z[:, 0, 0].exp(), x)
    assert_close(other, blind, **FLOAT64)


test_integrated_oracles_reject_a_changed_line = rejects_changes(
    check_integrated, f"{MODULE}.integrated_gradients",
    ("(k + 0.5) / steps", "k / steps"),
    ("(k + 0.5) / steps", "(k + 1) / steps"),
    ("return (way * total / steps)", "return (total / steps)"),
    ("return (way * total / steps)", "return (x * total / steps)"),
    ("return (way * total / steps)", "return (way * total)"),
    ("(start.to(wide) + (k + 0.5) / steps * way)", "((k + 0.5) / steps * x)"),
    ("(start.to(wide) + (k + 0.5) / steps * way)", "(x + (k + 0.5) / steps * way)"),
    error=(*REJECTED, ValueError),
)  # fmt: skip


def test_integrated_gradients_see_past_a_saturated_unit() -> None:
    # 1 - relu(1 - x) is flat at 2: the gradient is 0, yet x is all that the output comes from
    unit = lambda z: 1 - (1 - z[:, 0]).relu()  # noqa: E731
    x = torch.tensor([[2.0]], dtype=torch.float64)
    assert float(input_gradient(unit, x)) == 0
    assert float(integrated_gradients(unit, x, steps=64)) == pytest.approx(1.0)


@pytest.mark.parametrize("steps", [0, -3])
def test_too_few_steps_are_refused(steps: int) -> None:
    said, x = f"steps: expected at least 1, got {steps}", torch.zeros(1, 3, 2)
    refused(said, integrated_gradients, smooth, x, steps=steps)
    refused(said, reference.integrated_gradients, smooth_numpy, x.numpy(), steps=steps)


def check_cam(cam: Function) -> None:
    activations = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[0.0, 3.0], [1.0, 0.0]]])
    gradients = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[-2.0, 0.0], [0.0, 0.0]]])
    # channel weights 1 and -1/2: 1*A1 - A2/2 = [[1, -1.5], [-0.5, 2]]
    assert_close(cam(activations, gradients), torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    for shape in ((2, 3, 5, 7), (2, 1, 3, 5, 7)):
        a, g = torch.randn(2, *shape, dtype=torch.float64)
        assert_close(cam(a, g), by_numpy.grad_cam(a, g), **FLOAT64)
    # Zhou and others 2016: after a global mean, CAM = sum_k w_k A_k, and Grad-CAM is CAM / Z
    features, head = torch.randn(4, 11, 3, 5).double().relu().requires_grad_(), nn.Linear(11, 6)
    head = head.double()
    score = head(features.mean((-2, -1)))[:, 2].sum()
    (g,) = torch.autograd.grad(score, features)
    by_cam = torch.einsum("k,bkij->bij", head.weight[2], features).relu() / 15
    assert_close(cam(features, g).detach(), by_cam.detach(), **FLOAT64)


CHECKS = {"integrated_gradients": check_integrated, "grad_cam": check_cam}
test_agrees_with_every_oracle = passes(CHECKS, analysis)


def _mean(maps: Tensor) -> Tensor:
    return maps.mean((-2, -1), keepdim=True)


def _sum(weights: Tensor, maps: Tensor) -> Tensor:
    return (weights * maps).sum(-3)


test_cam_oracles_reject = rejects(
    check_cam,
    {
        "no rectifier": lambda a, g: _sum(_mean(g), a),
        "rectified before the sum": lambda a, g: (_mean(g) * a).relu().sum(-3),
        "only positive gradients": lambda a, g: _sum(_mean(g.relu()), a).relu(),
        "gradients not averaged": lambda a, g: _sum(g, a).relu(),
        "summed, not averaged": lambda a, g: _sum(g.sum((-2, -1), keepdim=True), a).relu(),
        "averaged over the channels": lambda a, g: _sum(g.mean(-3, keepdim=True), a).relu(),
        "mean over the channels": lambda a, g: (_mean(g) * a).mean(-3).relu(),
        "roles exchanged": lambda a, g: _sum(_mean(a), g).relu(),
        "scaled to a maximum of 1": lambda a, g: (
            grad_cam(a, g) / grad_cam(a, g).amax((-2, -1), keepdim=True).clamp(min=1e-9)
        ),
        "absolute value": lambda a, g: _sum(_mean(g), a).abs(),
    },
)


test_what_does_not_fit_is_refused = refuses(
    (lambda: input_gradient(lambda z: z.sum(), torch.zeros(2, 3)), "one number per example"),
    (lambda: input_gradient(lambda z: z, torch.zeros(2, 3)), "one number per example"),
    (lambda: grad_cam.__wrapped__(torch.zeros(2, 3, 5), torch.zeros(2, 5, 3)),
     "gradients: expected the shape of activations"),
    (lambda: grad_cam.__wrapped__(torch.zeros(3, 5), torch.zeros(3, 5)), "gradients: expected"),
    (lambda: reference.grad_cam(np.zeros((3, 5)), np.zeros((3, 5))), "gradients: expected"),
)  # fmt: skip


def test_rows_that_mix_are_refused_and_eval_mode_is_complete() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    x = torch.randn(4, 6, dtype=torch.float64)

    def score(z: Tensor) -> Tensor:
        return model(z)[:, 1]

    for method in (input_gradient, gradient_times_input, integrated_gradients):
        refused("function: expected numbers that depend on their own", method, score, x)
    model.eval()
    shares = integrated_gradients(score, x, steps=200)
    change = score(x) - score(torch.zeros_like(x))
    assert_close(shares.sum(-1), change, rtol=1e-4, atol=1e-4)


def test_gradients_come_out_of_inference_mode_too() -> None:
    x = torch.randn(3, 4)
    with torch.inference_mode():
        assert_close(input_gradient(lambda z: z.square().sum(-1), x), 2 * x)


def test_a_baseline_must_fit_and_half_precision_adds_up_in_float32() -> None:
    integrate = integrated_gradients.__wrapped__
    x = torch.randn(3, 4)
    said, stretched = "baseline: expected a shape that broadcasts to", torch.zeros(2, 3, 4)
    refused(said, integrate, lambda z: z.sum(-1), x, stretched)
    refused("function: expected a tensor, got NoneType", integrate, lambda z: None, x)
    assert_close(integrate(lambda z: z.sum(-1), x, torch.zeros(4).double()), x)
    half = x.half()
    got = integrated_gradients(lambda z: z.float().pow(2).sum(-1), half, steps=500)
    assert_close(got, half.float().square().half())
    maps, grads = torch.full((1, 8, 4, 4), 200.0).half(), torch.full((1, 8, 4, 4), -100.0).half()
    assert (grad_cam(maps, grads) == 0).all()  # a sum over channels of -160,000 is no half


def _one_pair(asked: int, by: int) -> Callable[[Tensor], Tensor]:
    """Every number is of its own row, but one looks at one other row."""

    def function(z: Tensor) -> Tensor:
        own = z.sin().flatten(1).sum(-1)
        stranger = torch.zeros(len(z), dtype=z.dtype)
        stranger[by] = 1e-3
        return own + stranger * z[asked].sum()

    return function


@pytest.mark.parametrize("rows", [2, 3, 7])
def test_every_pair_of_rows_that_mixes_is_found(rows: int) -> None:
    x = torch.randn(rows, 3)
    for asked, by in permutations(range(rows), 2):
        refused("depend on their own example alone", input_gradient, _one_pair(asked, by), x)


@pytest.mark.parametrize("mixing", [
    lambda z: z.sum(-1).cumsum(0), lambda z: z.sum(-1).flip(0).cumsum(0),
    lambda z: z.sum(-1) - z.sum(-1).mean(), lambda z: z.sum(-1) / z.norm(),
    lambda z: z.sum(-1).softmax(0), lambda z: z.sum(-1).roll(1),
])  # fmt: skip
def test_mixing_after_the_first_row_is_refused(mixing: Function) -> None:
    for method in (input_gradient, gradient_times_input, integrated_gradients):
        for rows in (2, 13):
            refused("depend on their own example alone", method, mixing, torch.rand(rows, 3) + 1)


def test_rows_that_do_not_mix_are_taken_even_at_an_infinite_slope() -> None:
    x = torch.tensor([[0.0, 1.0], [4.0, 9.0], [0.0, 0.0]])
    root = input_gradient(lambda z: z.sqrt().sum(-1), x)
    assert root[0, 0] == torch.inf
    assert_close(root[1], torch.tensor([0.25, 1 / 6]))


@pytest.mark.parametrize(
    "detached", [lambda z: z.detach().sum(-1), lambda z: z.round().sum(-1) + 0 * z.sum(-1)]
)
def test_a_function_detached_from_its_inputs_is_refused_on_a_path(detached: Function) -> None:
    x = torch.full((2, 3), 2.0)
    said = "changes along the path with derivative 0 throughout"
    refused(said, integrated_gradients, detached, x)
    assert (input_gradient(detached, x) == 0).all()  # as documented
    assert (integrated_gradients(lambda z: torch.ones(2), x) == 0).all()
    model = nn.Linear(3, 1)
    refused(said, integrated_gradients, lambda z: model(z.detach()).squeeze(-1), x)
