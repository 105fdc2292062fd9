"""Clipping by the global norm: hand value, NumPy, torch, invariants, mutants."""

from collections.abc import Callable
from typing import Any

import torch
from mutation import rejects, rejects_changes
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course import functional, reference

Clip = Callable[[list[Tensor], float], tuple[list[Tensor], Tensor]]


def theirs(grads: list[Tensor], max_norm: float) -> tuple[list[Tensor], Tensor]:
    parameters = [nn.Parameter(torch.zeros_like(grad)) for grad in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad.clone()
    norm = nn.utils.clip_grad_norm_(parameters, max_norm)
    return [parameter.grad for parameter in parameters if parameter.grad is not None], norm


def check_clip(clip: Clip) -> None:
    clipped, norm = clip([torch.tensor([3.0]), torch.tensor([[0.0, 4.0]])], 1.0)
    assert_close(norm, torch.tensor(5.0))
    assert_close(clipped, [torch.tensor([0.6]), torch.tensor([[0.0, 0.8]])])
    for dtype in (torch.float32, torch.float64):
        grads = [torch.randn(shape, dtype=dtype) for shape in ((3, 5), (7,), (2, 3, 11), ())]
        before = [grad.clone() for grad in grads]
        for max_norm in (1e-4, 0.5, 3.0, 1e4, torch.inf, 0.0):
            expected, expected_norm = theirs(grads, max_norm)
            clipped, norm = clip(grads, max_norm)
            close = FLOAT64 if dtype == torch.float64 else {}
            assert_close(clipped, expected, **close)
            assert_close(norm, expected_norm)
            oracle, exact = reference.clip_by_global_norm([g.numpy() for g in grads], max_norm)
            assert_close(float(norm), exact, rtol=1e-6, atol=0)
            assert_close(clipped, [torch.as_tensor(g).to(dtype) for g in oracle])
        assert_close(grads, before, rtol=0, atol=0)
    zeros = [torch.zeros(3), torch.zeros(2, 2)]
    clipped, norm = clip(zeros, 1.0)
    assert_close(clipped, zeros)
    assert_close(norm, torch.zeros(()))


def test_agrees_with_every_oracle() -> None:
    check_clip(functional.clip_by_global_norm)


def _norm(grads: list[Tensor]) -> Tensor:
    return torch.stack([grad.norm() for grad in grads]).norm()


def _cut(grad: Tensor, max_norm: float, norm: Any) -> Tensor:
    return grad * (max_norm / (norm + 1e-6)).clamp(max=1.0)


def _in_place(grads: list[Tensor], max_norm: float) -> tuple[list[Tensor], Tensor]:
    norm = _norm(grads)
    return [grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0)) for grad in grads], norm


test_oracles_reject = rejects(
    check_clip,
    {
        "each by its own norm": lambda g, m: ([_cut(x, m, x.norm()) for x in g], _norm(g)),
        "element by element": lambda g, m: ([x.clamp(-m, m) for x in g], _norm(g)),
        "sum of norms": lambda g, m: ([_cut(x, m, sum(y.norm() for y in g)) for x in g], _norm(g)),
        "squared norm": lambda g, m: ([_cut(x, m, _norm(g) ** 2) for x in g], _norm(g)),
        "norm after clipping": lambda g, m: (
            (clipped := functional.clip_by_global_norm(g, m)[0]),
            _norm(clipped),
        ),
        "in place": _in_place,
        "not at all": lambda g, m: (list(g), _norm(g)),
    },
)


test_oracles_reject_a_changed_line = rejects_changes(
    check_clip,
    "attn_course.functional.gradient_clipping.clip_by_global_norm",
    (".clamp(max=1.0)", ""),
    ("(norm + 1e-6)", "norm"),
    ("max_norm / (", "1 / ("),
)


def test_no_gradients_and_bad_limits() -> None:
    clipped, norm = functional.clip_by_global_norm([], 1.0)
    assert clipped == []
    assert float(norm) == 0
    for bad in (-1.0, float("nan")):
        for package in (functional, reference):
            clip = package.clip_by_global_norm
            refused("max_norm: expected a number >= 0", clip, [torch.ones(2)], bad)
