"""Let a NumPy reference function answer calls that are made with torch tensors."""

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attn_course.probes.values import leaves, transform


class NumpyOracle:
    """Call a NumPy function with torch tensors.

    Floating tensors go in as float64 arrays; floating results come back as tensors of the widest
    floating dtype among the inputs, which is the dtype that an exercise promises.
    Its results carry gradients, by finite differences in float64: a candidate that a learner's test
    is tried on keeps that promise as well.

    Args:
        function: Function of arrays and plain values.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "oracle")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in given):
            return _with_gradient(self, args, kwargs)
        result = self.function(*transform(args, _to_numpy), **transform(kwargs, _to_numpy))
        if not given:
            return result
        dtype = _floating_dtype(given)
        return transform(_plain_containers(result), lambda leaf: _to_torch(leaf, dtype))


def from_numpy(function: Callable[..., Any]) -> NumpyOracle:
    """Wrap a NumPy function so that it can be the oracle of a tensor exercise."""
    return NumpyOracle(function)


def slope(total: Callable[[Tensor], float], point: Tensor) -> Tensor:
    """Differentiate a function of one tensor by the five-point rule, element by element in float64.

    Its error is of order step to the 4th where the function is smooth. Where the two differences
    that it joins disagree, a kink (of a ReLU, of a maximum) lies between the points, and they
    move closer until they agree.
    """
    point = point.detach().double().clone().contiguous()
    found = torch.zeros_like(point)
    flat, slopes = point.view(-1), found.view(-1)
    for i, here in enumerate(flat.tolist()):
        if not math.isfinite(here):
            continue
        step = 1e-3 * max(1.0, abs(here))
        while True:
            values = []
            for factor in (-2, -1, 1, 2):
                flat[i] = here + factor * step
                values.append(total(point))
            near, far = (values[2] - values[1]) / (2 * step), (values[3] - values[0]) / (4 * step)
            if abs(near - far) <= 1e-5 * max(1.0, abs(near)) or step < 1e-6:
                break
            step /= 10
        flat[i] = here
        slopes[i] = (4 * near - far) / 3
    return found


def parameters(function: Callable[..., Any]) -> list[str]:
    """Names of a function's arguments, as far as Python knows them."""
    inner = function.function if isinstance(function, NumpyOracle) else function
    try:
        return list(inspect.signature(inner).parameters)
    except (TypeError, ValueError):
        return []


def as_oracle(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap functions of ``attn_course.reference``; leave every other callable as it is."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    module = str(getattr(inner, "__module__", ""))
    if module == "attn_course.reference" or module.startswith("attn_course.reference."):
        return NumpyOracle(function)
    return function


class _Differences(torch.autograd.Function):
    """The floating results of an oracle, whose derivative is taken by :func:`slope`."""

    @staticmethod
    def forward(ctx: Any, call: Callable[..., list[Tensor]], *inputs: Tensor) -> Any:
        ctx.call = call
        ctx.save_for_backward(*inputs)
        return tuple(call(*inputs))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        inputs = list(ctx.saved_tensors)
        found: list[Tensor | None] = [None]
        for place, point in enumerate(inputs):

            def total(moved: Tensor, place: int = place) -> float:
                wide = [each.double() for each in inputs]
                wide[place] = moved
                rows = zip(ctx.call(*wide), grads, strict=True)
                return sum(float((row.double() * grad.double()).sum()) for row, grad in rows)

            wanted = ctx.needs_input_grad[1 + place]
            found.append(slope(total, point).to(point.dtype) if wanted else None)
        return tuple(found)


def _with_gradient(oracle: NumpyOracle, args: Any, kwargs: Any) -> Any:
    """Call an oracle so that gradients reach its floating inputs."""
    inputs = [leaf for leaf in leaves((args, kwargs)) if _is_floating(leaf)]
    with torch.no_grad():
        result = oracle(*args, **kwargs)
    if not any(map(_is_floating, leaves(result))):
        return result

    def call(*moved: Tensor) -> list[Tensor]:
        rows = iter(moved)
        places, named = transform(
            (args, kwargs), lambda leaf: next(rows) if _is_floating(leaf) else leaf
        )
        with torch.no_grad():
            again = oracle(*places, **named)
        return [leaf for leaf in leaves(again) if _is_floating(leaf)]

    tracked = iter(_Differences.apply(call, *inputs))
    return transform(result, lambda leaf: next(tracked) if _is_floating(leaf) else leaf)


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _floating_dtype(tensors: list[Tensor]) -> torch.dtype:
    dtype: torch.dtype | None = None
    for tensor in tensors:
        if tensor.is_floating_point():
            dtype = tensor.dtype if dtype is None else torch.promote_types(dtype, tensor.dtype)
    return torch.get_default_dtype() if dtype is None else dtype


def _to_numpy(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    plain = value.detach()
    # A copy: an oracle that wrote into its argument would otherwise change the recorded input.
    return (plain.double() if plain.is_floating_point() else plain).numpy().copy()


def _plain_containers(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_plain_containers(item) for item in value)
    if isinstance(value, list):
        return [_plain_containers(item) for item in value]
    return value


def _to_torch(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return torch.tensor(array, dtype=torch.float64).to(dtype)
    return torch.tensor(array)
