"""The reach of a sequence model: the gradient of its outputs by its inputs."""

from collections.abc import Callable, Iterable, Iterator

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

    Example:
        >>> gradient_reach(lambda x: x.cumsum(1), torch.ones(1, 3, 1))
        tensor([1., 1., 1.])
    """
    x, output = _run(function, inputs, (2, 3))
    with torch.enable_grad():
        last = output[:, -1] if output.ndim == 3 else output  # (B, H)
    return _norms(last, x).mean(dim=0).flip(0).to(x.dtype)


def gradient_map(
    function: Callable[[Tensor], Tensor], inputs: Float[Tensor, "B L D"]
) -> Float[Tensor, "T L"]:
    r"""Norm of the Jacobian of each output with respect to each input.

    .. math:: r_{ij} = \frac{1}{B} \sum_b
       \left\lVert \frac{\partial\, \mathrm{output}_{b,i}}{\partial x_{b,j}} \right\rVert_F

    Its last row, read backwards, is :func:`gradient_reach`. A causal model has zeros to the right
    of the diagonal, a window leaves a band.

    Args:
        function: Maps ``(B, L, D)`` to ``(B, T, H)``. Rows of the batch must not influence each
            other.
        inputs: Where the Jacobian is taken; the mean is over the batch.

    Returns:
        One row per output position. Exactly 0 where there is no path.

    Raises:
        ValueError: If ``inputs`` or the output of ``function`` has another shape than stated.

    Example:
        >>> gradient_map(lambda x: x.cumsum(1), torch.ones(1, 3, 1))
        tensor([[1., 0., 0.],
                [1., 1., 0.],
                [1., 1., 1.]])
    """
    x, output = _run(function, inputs, (3,))
    rows = []
    for place in range(output.shape[1]):
        with torch.enable_grad():
            here = output[:, place]  # (B, H)
        rows.append(_norms(here, x).mean(dim=0))
    return torch.stack(rows).to(x.dtype)


def path_length(
    operations: Iterable[Callable[[Tensor], Tensor]],
    inputs: Float[Tensor, "B L D"],
    *,
    source: int = 0,
    target: int = -1,
) -> int | None:
    r"""How many operations a signal needs from one position to another, found by the gradient.

    .. math:: \min \left\{ m :
       \frac{\partial\, (f_m \circ \cdots \circ f_1)(x)_{\mathrm{target}}}
       {\partial x_{\mathrm{source}}} \ne 0 \right\}

    With first and last position this is the *maximum path length* in table 1 of Vaswani et al.
    (2017). An operation does at all positions at once whatever does not wait for something: a layer
    of attention or a convolution is one operation, a recurrent layer is as many as there are
    positions, see :func:`recurrent_steps`.

    Args:
        operations: Applied one after another to the result of the one before; may be endless.
        inputs: Where the gradient is taken; float64 keeps small gradients apart from none.
        source: Position of the input.
        target: Position of the output.

    Returns:
        The number of operations; None where they end without a path. Units that are 0 for this
        input, such as a ReLU below 0, are no path: take a few rows, and smooth functions.

    Raises:
        ValueError: If ``inputs`` or the output of an operation has another shape, or there is no
            such position.

    Example:
        >>> path_length([lambda x: x + x.roll(1, dims=1)] * 5, torch.ones(1, 4, 1))
        3
    """
    length = inputs.shape[1] if inputs.ndim == 3 else 0
    for name, place in (("source", source), ("target", target)):
        if inputs.ndim == 3 and not -length <= place < length:
            raise ValueError(f"{name}: expected a position of {length}, got {place}")
    x, state = _run(lambda x: x, inputs, (3,))
    for count, operation in enumerate(operations, start=1):
        with torch.enable_grad():
            state = operation(state)
            _check_output(state, x, (3,))
            here = state[:, target]
            mixed = (here * torch.linspace(1, 2, here.shape[-1]).to(here)).sum()
        if mixed.requires_grad:
            (grad,) = torch.autograd.grad(mixed, x, retain_graph=True, materialize_grads=True)
            if bool((grad[:, source] != 0).any()):
                return count
    return None


def recurrent_steps(
    cell: Callable[[Tensor, Tensor], Tensor], *, hidden_size: int
) -> Iterator[Callable[[Tensor], Tensor]]:
    r"""A recurrent layer as operations that each work on all positions at once, without end.

    .. math:: h^{(m)}_t = \mathrm{cell}\left(x_t, h^{(m-1)}_{t-1}\right), \qquad h^{(0)} = 0

    After :math:`m` of them the first :math:`m` states are those of the layer, and no sooner: each
    state waits for the one before. Each operation but the first takes and returns input and state
    side by side.

    Args:
        cell: Maps input (N, D) and state (N, H) to the next state.
        hidden_size: :math:`H`.

    Example:
        >>> from itertools import islice
        >>> steps = list(islice(recurrent_steps(torch.nn.RNNCell(3, 4), hidden_size=4), 2))
        >>> len(steps)
        2
    """
    yield lambda x: _step(cell, x, x.new_zeros(*x.shape[:2], hidden_size))
    while True:
        yield lambda both: _step(cell, both[..., :-hidden_size], both[..., -hidden_size:])


def _step(
    cell: Callable[[Tensor, Tensor], Tensor],
    x: Float[Tensor, "B L D"],
    hidden: Float[Tensor, "B L H"],
) -> Float[Tensor, "B L DH"]:
    before = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], dim=1)
    after = cell(x.flatten(0, 1), before.flatten(0, 1)).view_as(hidden)
    return torch.cat([x, after], dim=-1)


def _run(
    function: Callable[[Tensor], Tensor], inputs: Float[Tensor, "..."], axes: tuple[int, ...]
) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B ..."]]:
    """A copy of the inputs that has a gradient, and what the function makes of it."""
    if inputs.ndim != 3 or inputs.numel() == 0:
        raise ValueError(f"inputs: expected shape (B, L, D), not empty, got {tuple(inputs.shape)}")
    x = inputs.detach().clone().requires_grad_()
    with torch.enable_grad():
        output = function(x)
    _check_output(output, x, axes)
    return x, output


def _check_output(output: object, x: Float[Tensor, "B L D"], axes: tuple[int, ...]) -> None:
    if not isinstance(output, Tensor):
        raise ValueError(f"function: expected it to return a tensor, got {type(output).__name__}")
    if output.ndim not in axes or output.shape[0] != x.shape[0]:
        shapes = "(B, L, H) or (B, H)" if 2 in axes else "(B, L, H)"
        raise ValueError(
            f"function: expected an output of shape {shapes} with B = {x.shape[0]}, "
            f"got {tuple(output.shape)}"
        )


def _norms(output: Float[Tensor, "B H"], x: Float[Tensor, "B L D"]) -> Float[Tensor, "B L"]:
    """Frobenius norm of the Jacobian of each row by each of its inputs, in float64."""
    with torch.enable_grad():
        features = output.sum(dim=0)  # rows do not influence each other: one pass for all of them
    squares = torch.zeros(x.shape[:2], dtype=torch.float64, device=x.device)  # (B, L)
    if features.requires_grad:
        one_hot = torch.eye(len(features), dtype=features.dtype, device=features.device)
        for pick in one_hot:
            (grad,) = torch.autograd.grad(
                features, x, pick, retain_graph=True, materialize_grads=True
            )
            squares += grad.double().square().sum(dim=-1)
    return squares.sqrt()
