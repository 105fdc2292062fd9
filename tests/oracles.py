"""Oracles that several files share: NumPy's reference for tensors, and equal gradients.

``by_numpy.softmax(scores)`` takes and gives tensors. Its arithmetic is that of
``attn_course.reference``, in float64; gradients do not pass through it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import reference


def _arrays(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().numpy()
    return [_arrays(part) for part in value] if isinstance(value, list) else value


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    return tuple(_tensors(part) for part in value) if isinstance(value, tuple) else value


class _Oracle:
    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(reference, name)

        def call(*args: Any, **options: Any) -> Any:
            given = {key: _arrays(value) for key, value in options.items()}
            return _tensors(function(*(_arrays(value) for value in args), **given))

        return call


by_numpy = _Oracle()


def same_gradients(
    got: Tensor, want: Tensor, leaves: Any, *, unused: bool = False, **tolerance: float
) -> None:
    """Both outputs give the leaves the same gradients, from one random direction."""
    options = {"retain_graph": True, "materialize_grads": unused}
    push = torch.randn_like(want)
    found, wanted = (torch.autograd.grad(out, leaves, push, **options) for out in (got, want))
    assert_close(found, wanted, **tolerance)


def gradients(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    """Of every input, from one direction that is the same for all functions."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    output = function(*leaves)
    push = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
    return torch.autograd.grad(output, leaves, push)


def agrees_with_float64(
    ours: Callable[..., Tensor], right: Callable[..., Tensor], *inputs: Tensor, **close: float
) -> None:
    """Output and all gradients, of a push that is different everywhere."""
    asked = [x.detach().clone().requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    output, expected = ours(*asked), right(*exact)
    assert output.dtype == inputs[-1].dtype
    assert_close(output, expected.to(output.dtype), **close)
    push = torch.randn_like(output)
    found = torch.autograd.grad(output, asked, push)
    wanted = torch.autograd.grad(expected, exact, push.double())
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        said = f"gradient of input {place}: {{}}".format
        assert_close(one, other.to(one.dtype), **close, msg=said)


def gradient(function: Callable[..., Tensor], x: Tensor, *args: Any, **options: Any) -> Tensor:
    """Of the first input alone."""
    return gradients(lambda leaf: function(leaf, *args, **options), x)[0]


def trained(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    """What a step of training takes: the gradients of all inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    return torch.autograd.grad(function(*leaves).sum(), leaves)


def same_hessians(
    ours: Callable[[Tensor], Tensor], right: Callable[[Tensor], Tensor], x: Tensor
) -> None:
    """Second derivatives of a number, in both of torch's ways, are those of the right function."""
    want = torch.func.hessian(right)(x)
    assert_close(torch.autograd.functional.hessian(ours, x), want)
    assert_close(torch.func.hessian(ours)(x), want)


def same_state(left: Any, right: Any, but: tuple[str, ...] = (), **close: float) -> None:
    """Two nested states hold the same in the same types, but for what stands under these keys."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left.keys() - set(but):
            same_state(left[key], right[key], but, **close)
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            same_state(one, other, but, **close)
    elif isinstance(left, Tensor | float):
        assert_close(left, right, **close)
    else:
        assert left == right


def agree(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], oracle: Any, *inputs: Tensor
) -> None:
    """In float64: forward like torch and the reference, every gradient like torch's."""
    assert_close(ours(*inputs), theirs(*inputs), **FLOAT64)
    assert_close(ours(*inputs), oracle(*inputs), **FLOAT64)
    assert_close(gradients(ours, *inputs), gradients(theirs, *inputs), **FLOAT64)
