"""Derivatives through a callback of the trusted side, which computes in another process."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import wire

from attn_course.probes.values import transform

Ask = Callable[[list[torch.Tensor | None]], list[torch.Tensor]]


class _Crossing(torch.autograd.Function):
    """Passes on what the other side computed; backward asks it for its derivative."""

    @staticmethod
    def forward(ctx: Any, ask: Ask, results: Any, *given: torch.Tensor) -> Any:
        ctx.ask = ask
        return tuple(result.detach().clone() for result in results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return None, None, *ctx.ask(list(grads))


def connected(value: Any, given: Sequence[Any], ask: Ask) -> Any:
    """``value``, a callback's result, with a graph back to those of ``given`` that need one."""
    leaves = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    results = wire.floating([value])
    if not (leaves and results and torch.is_grad_enabled()):
        return value
    new = iter(_Crossing.apply(ask, results, *leaves))

    def replaced(x: Any) -> Any:
        return next(new) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return transform(value, replaced)
