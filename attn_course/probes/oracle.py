"""Let a NumPy reference function answer calls that are made with torch tensors."""

import inspect
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
    ``student.grad`` differentiates it by finite differences in float64.

    Args:
        function: Function of arrays and plain values.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "oracle")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        result = self.function(*transform(args, _to_numpy), **transform(kwargs, _to_numpy))
        if not given:
            return result
        dtype = _floating_dtype(given)
        return transform(_plain_containers(result), lambda leaf: _to_torch(leaf, dtype))


def from_numpy(function: Callable[..., Any]) -> NumpyOracle:
    """Wrap a NumPy function so that it can be the oracle of a tensor exercise."""
    return NumpyOracle(function)


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
