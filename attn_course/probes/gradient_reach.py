"""How far back in time a sequence model can feel: the gradient of its last output by lag."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def gradient_reach(
    function: Callable[[Tensor], Tensor], inputs: Float[Tensor, "B L D"]
) -> Float[Tensor, " L"]:
    r"""Norm of the Jacobian of the last output with respect to each input, by lag.

    .. math:: r_k = \frac{1}{B} \sum_b
       \left\lVert \frac{\partial\, \mathrm{output}_{b,L}}{\partial x_{b,L-k}} \right\rVert_F,
       \qquad k = 0, \ldots, L-1

    The Jacobian is exact: one backward pass per output feature. Squares are summed in float64, so
    that a reach of 1e-30 is not rounded to 0.

    Args:
        function: Maps ``(B, L, D)`` to ``(B, L, H)``, of which the last position is taken, or to
            the last output ``(B, H)``. Rows of the batch must not influence each other.
        inputs: Where the Jacobian is taken; the mean is over the batch.

    Returns:
        ``r[k]`` for lag ``k``; the first entry belongs to the last input. Exactly 0 where there is
        no path.

    Raises:
        ValueError: If ``inputs`` or the output of ``function`` has another shape than stated.
    """
    if inputs.ndim != 3 or inputs.numel() == 0:
        raise ValueError(f"inputs: expected shape (B, L, D), not empty, got {tuple(inputs.shape)}")
    x = inputs.detach().clone().requires_grad_()
    with torch.enable_grad():
        output = function(x)
    if not isinstance(output, Tensor):
        raise ValueError(f"function: expected it to return a tensor, got {type(output).__name__}")
    if output.ndim not in (2, 3) or output.shape[0] != x.shape[0]:
        raise ValueError(
            f"function: expected an output of shape (B, L, H) or (B, H) with B = {x.shape[0]}, "
            f"got {tuple(output.shape)}"
        )
    with torch.enable_grad():
        last = output[:, -1] if output.ndim == 3 else output  # (B, H)
        features = last.sum(dim=0)  # rows do not influence each other: one pass for all of them
    squares = torch.zeros(x.shape[:2], dtype=torch.float64, device=x.device)  # (B, L)
    if features.requires_grad:
        one_hot = torch.eye(len(features), dtype=features.dtype, device=features.device)
        for pick in one_hot:
            (grad,) = torch.autograd.grad(
                features, x, pick, retain_graph=True, materialize_grads=True
            )
            squares += grad.double().square().sum(dim=-1)
    return squares.sqrt().mean(dim=0).flip(0).to(x.dtype)
