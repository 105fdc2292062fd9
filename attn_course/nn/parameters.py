"""What modules share: checks of sizes, inputs and options, and fresh parameters."""

import math
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from attn_course._checks import check_axes, check_dtype, check_size, check_tensor

SCORE = (
    "a module with prepare and compare, such as GeneralScore(...) (make_score builds one by name)"
)


def check_callable(expected: str, /, *methods: str, **given: Any) -> None:
    """Refuse an argument that cannot be called or lacks one of these methods, and a class."""
    for name, value in given.items():
        has = all(callable(getattr(value, m, None)) for m in methods)
        if not has or not callable(value) or isinstance(value, type):
            raise ValueError(f"{name}: expected {expected}, got {value!r}")


def check_makers(example: str, **makers: Any) -> None:
    """Refuse what does not make a part for each block, such as a module that all would share."""
    for name, make in makers.items():
        if not callable(make) or isinstance(make, nn.Module):
            got = type(make).__name__
            raise ValueError(
                f"{name}: expected a function that makes one for each block, such as {example}, "
                f"got {got if callable(make) else repr(make)}"
            )


def check_input(
    name: str, x: Shaped[Tensor, "..."], axes: str, size: int, layer: nn.Module | Tensor | None
) -> None:
    """Refuse an input of a linear layer by its name.

    Its ``axes`` are such as ``"B L D"``, or ``"... D"`` for any number, the last of this size; its
    dtype is that of the layer's weight.
    """
    check_tensor(name, x)
    if x.dtype == torch.bool:
        raise ValueError(f"{name}: expected features, got a boolean tensor: write attn_mask={name}")
    if not axes.startswith("..."):
        check_axes(name, x, axes)
    check_size(name, x, -1, size)
    check_weight_dtype(name, x, layer)


def check_weight_dtype(name: str, x: Tensor, layer: nn.Module | Tensor | None) -> None:
    """Refuse an input of another dtype than the weight of a layer, and say what to write."""
    weight = getattr(layer, "weight", layer)
    if isinstance(weight, Tensor) and weight.is_floating_point() and weight.dtype != x.dtype:
        try:
            check_dtype(name, x, weight)
        except ValueError as error:
            raise ValueError(
                f"{error}: write {name}.to({weight.dtype}), module.to({x.dtype}), "
                "or use torch.autocast"
            ) from None


def uniform_parameter(*shape: int, fan_in: int) -> nn.Parameter:
    r"""Uniform in :math:`\pm 1/\sqrt{\mathrm{fan\_in}}`, as ``torch.nn.Linear`` is."""
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))
