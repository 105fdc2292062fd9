"""What runs in place of an equation, where that is faster. Each agrees with its equation."""

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from attn_course._calls import advice
from attn_course._checks import transformed

P = ParamSpec("P")
T = TypeVar("T")


def faster(implementation: Callable[P, T | None]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Run ``implementation`` for the decorated equation, which stays ``function.__wrapped__``.

    Transforms such as jvp and vmap run the equation: each of its operations has all rules.

    Args:
        implementation: Takes the same arguments; None leaves a call to the equation.
    """

    def decorate(equation: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(equation)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                result = None if transformed() else implementation(*args, **kwargs)
                return equation(*args, **kwargs) if result is None else result
            except TypeError as error:
                raise advice(equation, args, kwargs, error) from error.__cause__

        return run

    return decorate


def second_order(
    equation: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Sequence[Tensor | None],
    grads: Tensor | Sequence[Tensor],
) -> tuple[Tensor | None, ...]:
    """Gradients of the equation, which can be differentiated again: for a backward pass.

    That is asked for (``create_graph``) where gradients are enabled in a backward pass.
    """
    # aliases, as one tensor may be several inputs, or one may be made of another
    own = [x if x is None or not x.requires_grad else x.view_as(x) for x in inputs]
    tracked = [x for x in own if x is not None and x.requires_grad]
    found = torch.autograd.grad(
        equation(*own), tracked, grads, create_graph=True, allow_unused=True
    )
    rest = iter(found)
    return tuple(next(rest) if x is not None and x.requires_grad else None for x in own)
