"""Implicit attention: what a network's output depends on, read off from derivatives."""

import itertools
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course._checks import check_device, check_expands, check_floating, compiling, widest

Function = Callable[[Tensor], Tensor]


def input_gradient(function: Function, inputs: Float[Tensor, "B ..."]) -> Float[Tensor, "..."]:
    r"""Gradient of one number per example by that example, for a whole batch at once.

    .. math:: g_b = \nabla_{x_b} f(x_b)

    Its absolute value is the saliency map of Simonyan, Vedaldi and Zisserman 2014 (section 3).

    Args:
        function: Takes the batch and returns one number per example, each of its own row alone. Put
            a model into ``eval`` mode: batch normalisation in training mode mixes the rows, which
            is refused, and dropout gives the gradient of another network at every call.
        inputs: The batch.

    Returns:
        Gradients of the shape of ``inputs``; 0 where no derivative leads to them, because nothing
        depends on them or because the function detaches them.

    Raises:
        ValueError: If ``inputs`` is not floating point, or the function does not return one number
            per example whose derivatives by all other examples are 0. These are checked for every
            pair of rows, in about :math:`\log_2 B + 2` further backward passes; under
            ``torch.compile``, ``torch.export`` and ``vmap`` they are not.

    Example:
        >>> input_gradient(lambda x: x.square().sum(-1), torch.tensor([[1.0, 2.0]]))
        tensor([[2., 4.]])
    """
    return _row_gradients(function, inputs, check_across=True)


def gradient_times_input(
    function: Function, inputs: Float[Tensor, "B ..."]
) -> Float[Tensor, "..."]:
    r"""First-order share of each input in the output.

    .. math:: a_i = x_i\, \frac{\partial f(x)}{\partial x_i}

    For a linear function without bias the shares add up to the output; for others see
    :func:`integrated_gradients`. An input of 0 always gets 0.

    Args:
        function: As for :func:`input_gradient`.
        inputs: The batch.

    Returns:
        Shares of the shape of ``inputs``.

    Raises:
        ValueError: As for :func:`input_gradient`.

    Example:
        >>> gradient_times_input(lambda x: x.square().sum(-1), torch.tensor([[1.0, 2.0]]))
        tensor([[2., 8.]])
    """
    return inputs.detach() * input_gradient(function, inputs)


def integrated_gradients(
    function: Function,
    inputs: Float[Tensor, "B ..."],
    baseline: Float[Tensor, "..."] | None = None,
    *,
    steps: int = 64,
) -> Float[Tensor, "..."]:
    r"""Shares of the inputs in the change of the output from a baseline.

    .. math:: a_i = (x_i - x'_i) \int_0^1
       \frac{\partial f\big(x' + t\,(x - x')\big)}{\partial x_i}\, dt, \qquad
       \sum_i a_i = f(x) - f(x')

    Sundararajan, Taly and Yan 2017, equation 1 and proposition 1 (completeness). The integral is
    taken by the midpoint rule, whose error falls with ``steps`` squared where f is smooth; their
    equation 3 takes the right ends of the intervals.

    Args:
        function: As for :func:`input_gradient`.
        inputs: The batch :math:`x`.
        baseline: Where the path starts, :math:`x'`: broadcasts to ``inputs``; zeros when None.
        steps: Intervals of the path.

    Returns:
        Shares of the shape of ``inputs``.

    Raises:
        ValueError: As for :func:`input_gradient` (rows that mix are sought at the two ends of
            the path), or if ``steps`` is below 1, the baseline is not floating point or does not
            broadcast to ``inputs``, or the function gives two values at the ends of the path and
            nowhere a derivative: it is detached from its inputs.

    Example:
        >>> integrated_gradients(lambda x: x.square().sum(-1), torch.tensor([[1.0, 2.0]]))
        tensor([[1., 4.]])
    """
    if steps < 1:
        raise ValueError(f"steps: expected at least 1, got {steps}")
    check_floating("inputs", inputs)
    x = inputs.detach()
    start = torch.zeros_like(x)
    if baseline is not None:
        check_floating("baseline", baseline)
        check_expands("baseline", baseline.shape, x.shape)
        check_device("baseline", baseline, x)
        start = baseline.detach().to(x.dtype).expand_as(x)
    # up to hundreds of gradients: half precision would lose the small ones
    wide = widest(x)
    way = x.to(wide) - start.to(wide)
    total = torch.zeros_like(way)
    for k in range(steps):
        point = (start.to(wide) + (k + 0.5) / steps * way).to(x.dtype)
        total = total + _row_gradients(function, point, check_across=k in (0, steps - 1))
    _refuse_detached(function, start, x, total)
    return (way * total / steps).to(x.dtype)


def grad_cam(
    activations: Float[Tensor, "*B C height width"],
    gradients: Float[Tensor, "*B C height width"],
) -> Float[Tensor, "*B height width"]:
    r"""Where in its last feature maps a convolutional network finds evidence for a class.

    .. math:: w_k = \frac1Z \sum_{i,j} \frac{\partial y}{\partial A^k_{ij}}, \qquad
       L = \operatorname{ReLU}\Big( \sum_k w_k A^k \Big)

    Selvaraju and others 2017, equations 1 and 2; their :math:`\alpha_k^c` is our :math:`w_k`. The
    sum over the channels comes before the ReLU.

    Args:
        activations: Feature maps :math:`A^k` of a layer.
        gradients: Derivatives of the class score *before* the softmax by these feature maps.

    Returns:
        One map per example, not negative, at the resolution of the feature maps.

    Raises:
        ValueError: If an argument is not floating point, or the shapes differ.

    Example:
        >>> grad_cam(torch.rand(2, 8, 7, 7), torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 7, 7])
    """
    check_floating("activations", activations)
    check_floating("gradients", gradients)
    if activations.shape != gradients.shape or activations.ndim < 3:
        raise ValueError(
            f"gradients: expected the shape of activations {tuple(activations.shape)}, "
            f"(..., C, height, width), got {tuple(gradients.shape)}"
        )
    check_device("gradients", gradients, activations)
    dtype = torch.promote_types(activations.dtype, gradients.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    weights = gradients.to(wide).mean((-2, -1), keepdim=True)  # (*B, C, 1, 1)
    return (weights * activations.to(wide)).sum(-3).relu().to(dtype)


def _row_gradients(function: Function, inputs: Tensor, *, check_across: bool) -> Tensor:
    """Gradient of each row's number by its row; if told, make sure that rows do not mix."""
    check_floating("inputs", inputs)
    if _transforms():
        found: Tensor = torch.func.grad(lambda x: _one_per_row(_tensor(function(x)), x).sum())(
            inputs.detach()
        )
        return found
    with torch.inference_mode(False), torch.enable_grad():
        x = inputs.detach().clone().requires_grad_()
        outputs = _one_per_row(_tensor(function(x)), x)
        if check_across and not compiling() and x.ndim > 0 and len(x) > 1:
            _refuse_mixing(outputs, x)
        return _gradient(outputs.sum(), x)


def _refuse_mixing(outputs: Float[Tensor, " B"], x: Float[Tensor, "B ..."]) -> None:
    """Refuse numbers of which one has a derivative by another's example.

    In every pass half of the rows ask, and the others must have gradient exactly 0. The halves are
    different for all rows and of one size, so each row asks in a pass in which each other does not.
    """
    rows, passes = len(x), 2
    while math.comb(passes, passes // 2) < rows:
        passes += 1
    halves = itertools.islice(itertools.combinations(range(passes), passes // 2), rows)
    asks = torch.zeros(passes, rows, dtype=torch.bool, device=x.device)
    for row, half in enumerate(halves):
        asks[list(half), row] = True
    # uneven shares: what several rows depend on must not cancel in their sum
    shares = 1 + torch.arange(rows, dtype=torch.float64, device=x.device) * 0.618 % 1
    for asking in asks:
        found = _gradient((outputs * shares)[asking].sum(), x)
        if bool((found[~asking].nan_to_num() != 0).any()):
            raise ValueError(
                "function: expected numbers that depend on their own example alone, got one that "
                "depends on others (batch normalisation in training mode?)"
            )


def _refuse_detached(function: Function, start: Tensor, end: Tensor, total: Tensor) -> None:
    """Refuse a function that changes along the path although no derivative says so."""
    if compiling() or bool((total != 0).any()):
        return
    with torch.no_grad():
        before, after = (_tensor(function(point.clone())) for point in (start, end))
    if not torch.equal(before, after):
        raise ValueError(
            "function: expected a number that depends on inputs through operations with a "
            "derivative, got one that changes along the path with derivative 0 throughout "
            "(a detach, an argmax or a rounding inside?)"
        )


def _transforms() -> bool:
    """Whether only torch.func can take the gradient: ``compile`` and ``vmap``, not ``export``."""
    dynamo = bool(torch.compiler.is_dynamo_compiling())
    return dynamo or torch._C._functorch.maybe_current_level() is not None


def _tensor(outputs: object) -> Tensor:
    if not isinstance(outputs, Tensor):
        raise ValueError(f"function: expected a tensor, got {type(outputs).__name__}")
    return outputs


def _gradient(output: Tensor, x: Tensor) -> Tensor:
    """Gradient of a scalar, 0 where it does not depend on ``x``."""
    if not output.requires_grad:
        return torch.zeros_like(x)
    (found,) = torch.autograd.grad(output, x, retain_graph=True, allow_unused=True)
    return torch.zeros_like(x) if found is None else found


def _one_per_row(outputs: Tensor, inputs: Tensor) -> Tensor:
    if outputs.shape != inputs.shape[:1]:
        raise ValueError(
            f"function: expected one number per example, shape {tuple(inputs.shape[:1])}, "
            f"got {tuple(outputs.shape)}"
        )
    return outputs
