"""What constructors share: a look at the sizes and at what is handed in, and fresh parameters."""

import math
from typing import Any

import torch
from torch import nn

SCORE = (
    "a module with prepare and compare, such as GeneralScore(...) (make_score builds one by name)"
)


def check_positive(**sizes: int) -> None:
    """Refuse a size below 1, by its name."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}: expected at least 1, got {size}")


def check_callable(expected: str, /, *methods: str, **given: Any) -> None:
    """Refuse what cannot be called or lacks a method, before the first forward pass.

    Args:
        expected: What it should be, for the message.
        methods: Names of methods that it must have.
        given: The argument, by its name.
    """
    for name, value in given.items():
        if not callable(value) or not all(callable(getattr(value, m, None)) for m in methods):
            raise ValueError(f"{name}: expected {expected}, got {value!r}")


def uniform_parameter(*shape: int, fan_in: int) -> nn.Parameter:
    r"""Uniform in :math:`\pm 1/\sqrt{\mathrm{fan\_in}}`, as ``torch.nn.Linear`` is."""
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))
