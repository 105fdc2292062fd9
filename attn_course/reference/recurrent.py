"""Recurrent cells, and backpropagation through time by hand. Names and layouts are torch's."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray


def _sigmoid(x: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    # tanh does not overflow, exp(-x) does
    gate: ndarray = 0.5 * (1.0 + np.tanh(0.5 * x))
    return gate


def rnn_cell(
    input: Float[ndarray, "*B D"],
    hidden: Float[ndarray, "*B H"],
    weight_ih: Float[ndarray, "H D"],
    weight_hh: Float[ndarray, "H H"],
    bias_ih: Float[ndarray, " H"],
    bias_hh: Float[ndarray, " H"],
) -> Float[ndarray, "*B H"]:
    r"""One step of a plain recurrent network.

    .. math:: h_t = \tanh(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})

    Args:
        input: :math:`x_t`.
        hidden: :math:`h_{t-1}`.
        weight_ih: :math:`W_{ih}`.
        weight_hh: :math:`W_{hh}`.
        bias_ih: :math:`b_{ih}`.
        bias_hh: :math:`b_{hh}`.

    Returns:
        The next hidden state :math:`h_t`.
    """
    return np.asarray(np.tanh(input @ weight_ih.T + bias_ih + hidden @ weight_hh.T + bias_hh))


def lstm_cell(
    input: Float[ndarray, "*B D"],
    state: tuple[Float[ndarray, "*B H"], Float[ndarray, "*B H"]],
    weight_ih: Float[ndarray, "G D"],
    weight_hh: Float[ndarray, "G H"],
    bias_ih: Float[ndarray, " G"],
    bias_hh: Float[ndarray, " G"],
) -> tuple[Float[ndarray, "*B H"], Float[ndarray, "*B H"]]:
    r"""One step of a long short-term memory, gates in the order input, forget, cell, output.

    .. math::
       (i, f, g, o) &= W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh} \\
       c_t &= \sigma(f) \odot c_{t-1} + \sigma(i) \odot \tanh(g) \\
       h_t &= \sigma(o) \odot \tanh(c_t)

    Args:
        input: :math:`x_t`.
        state: :math:`(h_{t-1}, c_{t-1})`.
        weight_ih: Four stacked matrices, :math:`G = 4H`.
        weight_hh: Four stacked matrices.
        bias_ih: Four stacked biases.
        bias_hh: Four stacked biases.

    Returns:
        :math:`(h_t, c_t)`.
    """
    hidden, cell = state
    size = hidden.shape[-1]
    gates = input @ weight_ih.T + bias_ih + hidden @ weight_hh.T + bias_hh
    i, f, g, o = (gates[..., k * size : (k + 1) * size] for k in range(4))
    cell_next = _sigmoid(f) * cell + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(cell_next), cell_next


def gru_cell(
    input: Float[ndarray, "*B D"],
    hidden: Float[ndarray, "*B H"],
    weight_ih: Float[ndarray, "G D"],
    weight_hh: Float[ndarray, "G H"],
    bias_ih: Float[ndarray, " G"],
    bias_hh: Float[ndarray, " G"],
) -> Float[ndarray, "*B H"]:
    r"""One step of a gated recurrent unit, gates in the order reset, update, new.

    .. math::
       r &= \sigma(W_{ir} x_t + b_{ir} + W_{hr} h_{t-1} + b_{hr}) \\
       z &= \sigma(W_{iz} x_t + b_{iz} + W_{hz} h_{t-1} + b_{hz}) \\
       n &= \tanh(W_{in} x_t + b_{in} + r \odot (W_{hn} h_{t-1} + b_{hn})) \\
       h_t &= (1 - z) \odot n + z \odot h_{t-1}

    Args:
        input: :math:`x_t`.
        hidden: :math:`h_{t-1}`.
        weight_ih: Three stacked matrices, :math:`G = 3H`.
        weight_hh: Three stacked matrices.
        bias_ih: Three stacked biases.
        bias_hh: Three stacked biases.

    Returns:
        The next hidden state :math:`h_t`.
    """
    size = hidden.shape[-1]
    from_input = input @ weight_ih.T + bias_ih
    from_hidden = hidden @ weight_hh.T + bias_hh
    reset = _sigmoid(from_input[..., :size] + from_hidden[..., :size])
    update = _sigmoid(from_input[..., size : 2 * size] + from_hidden[..., size : 2 * size])
    new = np.tanh(from_input[..., 2 * size :] + reset * from_hidden[..., 2 * size :])
    return np.asarray((1 - update) * new + update * hidden)


def rnn_jacobian(
    hidden_next: Float[ndarray, "*B H"], weight_hh: Float[ndarray, "H H"]
) -> Float[ndarray, "*B H H"]:
    r"""How the next hidden state of :func:`rnn_cell` depends on the one before.

    .. math:: \frac{\partial h_t}{\partial h_{t-1}} = \mathrm{diag}(1 - h_t^2)\, W_{hh}

    Args:
        hidden_next: :math:`h_t`, the new state.
        weight_hh: :math:`W_{hh}`.

    Returns:
        Entry :math:`(i, j)` is :math:`\partial h_{t,i} / \partial h_{t-1,j}`.
    """
    return np.asarray((1 - hidden_next**2)[..., None] * weight_hh)


def jacobian_product(
    hiddens: Float[ndarray, "*B L H"], weight_hh: Float[ndarray, "H H"], first: int, last: int
) -> Float[ndarray, "*B H H"]:
    r"""How a late hidden state of a plain network depends on an early one.

    .. math:: \frac{\partial h_{\mathrm{last}}}{\partial h_{\mathrm{first}}}
       = \prod_{t = \mathrm{last}}^{\mathrm{first}+1} \mathrm{diag}(1 - h_t^2)\, W_{hh}

    Args:
        hiddens: Hidden states :math:`h_0, \ldots, h_{L-1}`.
        weight_hh: :math:`W_{hh}`.
        first: Index of the early state.
        last: Index of the late state; if it equals ``first`` the product is the identity.

    Returns:
        The Jacobian, rows belong to the late state.

    Raises:
        ValueError: Unless ``0 <= first <= last < L``.
    """
    if not 0 <= first <= last < hiddens.shape[-2]:
        raise ValueError(
            f"first, last: expected 0 <= first <= last < {hiddens.shape[-2]}, "
            f"got first={first}, last={last}"
        )
    size = hiddens.shape[-1]
    product = np.zeros((*hiddens.shape[:-2], size, size)) + np.eye(size)
    for t in range(first + 1, last + 1):
        product = rnn_jacobian(hiddens[..., t, :], weight_hh) @ product
    return product


def rnn_forward(
    inputs: Float[ndarray, "*B L D"],
    hidden: Float[ndarray, "*B H"],
    weight_ih: Float[ndarray, "H D"],
    weight_hh: Float[ndarray, "H H"],
    bias_ih: Float[ndarray, " H"],
    bias_hh: Float[ndarray, " H"],
) -> Float[ndarray, "*B L H"]:
    """All hidden states of a plain network, step by step; the last one is the final state."""
    hiddens = []
    for t in range(inputs.shape[-2]):
        hidden = rnn_cell(inputs[..., t, :], hidden, weight_ih, weight_hh, bias_ih, bias_hh)
        hiddens.append(hidden)
    return np.stack(hiddens, axis=-2)


class RNNGradients(NamedTuple):
    """Gradient of the loss with respect to every argument of :func:`rnn_forward`, same names."""

    inputs: Float[ndarray, "*B L D"]
    hidden: Float[ndarray, "*B H"]
    weight_ih: Float[ndarray, "H D"]
    weight_hh: Float[ndarray, "H H"]
    bias_ih: Float[ndarray, " H"]
    bias_hh: Float[ndarray, " H"]


def rnn_bptt(
    inputs: Float[ndarray, "*B L D"],
    hidden: Float[ndarray, "*B H"],
    weight_ih: Float[ndarray, "H D"],
    weight_hh: Float[ndarray, "H H"],
    bias_ih: Float[ndarray, " H"],
    bias_hh: Float[ndarray, " H"],
    grad_outputs: Float[ndarray, "*B L H"],
) -> RNNGradients:
    r"""Backpropagation through time: walk the unrolled network backwards, summing up.

    With :math:`\bar h_t` the gradient of the loss with respect to :math:`h_t` through everything
    that comes after it, and :math:`\delta_t` the same for the argument of the tanh:

    .. math::
       \bar h_t &= \frac{\partial \mathcal L}{\partial \mathrm{outputs}_t}
                   + W_{hh}^\top \delta_{t+1}, \qquad
       \delta_t = (1 - h_t^2) \odot \bar h_t \\
       \frac{\partial \mathcal L}{\partial W_{hh}} &= \sum_t \delta_t h_{t-1}^\top, \qquad
       \frac{\partial \mathcal L}{\partial W_{ih}} = \sum_t \delta_t x_t^\top, \qquad
       \frac{\partial \mathcal L}{\partial b} = \sum_t \delta_t

    The same weights are used at every step, so their gradients are sums over the steps.

    Args:
        inputs: :math:`x_1, \ldots, x_L`.
        hidden: :math:`h_0`.
        weight_ih: :math:`W_{ih}`.
        weight_hh: :math:`W_{hh}`.
        bias_ih: :math:`b_{ih}`.
        bias_hh: :math:`b_{hh}`.
        grad_outputs: Gradient of the loss with respect to each output :math:`h_t` where the loss
            reads it directly; zero at steps that it does not read.

    Returns:
        One gradient per argument.
    """
    hiddens = rnn_forward(inputs, hidden, weight_ih, weight_hh, bias_ih, bias_hh)
    steps = inputs.shape[-2]
    before = np.concatenate([hidden[..., None, :], hiddens[..., :-1, :]], axis=-2)  # h_{t-1}
    deltas = np.zeros_like(hiddens)
    carried = np.zeros_like(hidden)
    for t in reversed(range(steps)):
        grad_hidden = grad_outputs[..., t, :] + carried
        deltas[..., t, :] = (1 - hiddens[..., t, :] ** 2) * grad_hidden
        carried = deltas[..., t, :] @ weight_hh
    rows = deltas.reshape(-1, deltas.shape[-1])  # (B L, H): batch and steps are summed alike
    bias = rows.sum(axis=0)
    return RNNGradients(
        inputs=deltas @ weight_ih,
        hidden=carried,
        weight_ih=rows.T @ inputs.reshape(len(rows), inputs.shape[-1]),
        weight_hh=rows.T @ before.reshape(len(rows), before.shape[-1]),
        bias_ih=bias,
        bias_hh=bias.copy(),
    )
