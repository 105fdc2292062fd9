"""Recurrent cells, in torch's gate order and weight layouts, and the Jacobian of the plain one."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear


def rnn_cell(
    input: Float[Tensor, "*B D"],
    hidden: Float[Tensor, "*B H"],
    weight_ih: Float[Tensor, "H D"],
    weight_hh: Float[Tensor, "H H"],
    bias_ih: Float[Tensor, " H"],
    bias_hh: Float[Tensor, " H"],
) -> Float[Tensor, "*B H"]:
    r"""One step of a plain recurrent network (Elman, 1990).

    .. math:: h_t = \tanh(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})

    Weights and biases are named as in the formula; ``input`` is :math:`x_t`, ``hidden``
    :math:`h_{t-1}`.

    Example:
        >>> weights = torch.randn(4, 3), torch.randn(4, 4), torch.zeros(4), torch.zeros(4)
        >>> rnn_cell(torch.randn(2, 3), torch.zeros(2, 4), *weights).shape
        torch.Size([2, 4])
    """
    return torch.tanh(linear(input, weight_ih, bias_ih) + linear(hidden, weight_hh, bias_hh))


def lstm_cell(
    input: Float[Tensor, "*B D"],
    state: tuple[Float[Tensor, "*B H"], Float[Tensor, "*B H"]],
    weight_ih: Float[Tensor, "G D"],
    weight_hh: Float[Tensor, "G H"],
    bias_ih: Float[Tensor, " G"],
    bias_hh: Float[Tensor, " G"],
) -> tuple[Float[Tensor, "*B H"], Float[Tensor, "*B H"]]:
    r"""One step of a long short-term memory (Hochreiter and Schmidhuber, 1997), with a forget gate.

    .. math::
       (i, f, g, o) &= W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh} \\
       c_t &= \sigma(f) \odot c_{t-1} + \sigma(i) \odot \tanh(g) \\
       h_t &= \sigma(o) \odot \tanh(c_t)

    The cell :math:`c` is carried on by a product with the forget gate alone, not through a matrix
    and a tanh: that is what lets the gradient reach further back. Arguments as of :func:`rnn_cell`;
    ``state`` is :math:`(h_{t-1}, c_{t-1})`, the result :math:`(h_t, c_t)`. Weights and biases are
    four stacked ones, in the order input, forget, cell, output; so :math:`G = 4H`.

    Example:
        >>> weights = torch.randn(16, 3), torch.randn(16, 4), torch.zeros(16), torch.zeros(16)
        >>> state = torch.zeros(2, 4), torch.zeros(2, 4)
        >>> hidden, cell = lstm_cell(torch.randn(2, 3), state, *weights)
        >>> hidden.shape, cell.shape
        (torch.Size([2, 4]), torch.Size([2, 4]))
    """
    hidden, cell = state
    gates = linear(input, weight_ih, bias_ih) + linear(hidden, weight_hh, bias_hh)
    # torch's order: input, forget, cell, output
    i, f, g, o = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def gru_cell(
    input: Float[Tensor, "*B D"],
    hidden: Float[Tensor, "*B H"],
    weight_ih: Float[Tensor, "G D"],
    weight_hh: Float[Tensor, "G H"],
    bias_ih: Float[Tensor, " G"],
    bias_hh: Float[Tensor, " G"],
) -> Float[Tensor, "*B H"]:
    r"""One step of a gated recurrent unit (Cho et al., 2014, equations 5 to 8).

    .. math::
       r &= \sigma(W_{ir} x_t + b_{ir} + W_{hr} h_{t-1} + b_{hr}) \\
       z &= \sigma(W_{iz} x_t + b_{iz} + W_{hz} h_{t-1} + b_{hz}) \\
       n &= \tanh(W_{in} x_t + b_{in} + r \odot (W_{hn} h_{t-1} + b_{hn})) \\
       h_t &= (1 - z) \odot n + z \odot h_{t-1}

    As in torch the reset gate acts *after* the product with :math:`W_{hn}`; the paper has
    :math:`W_{hn} (r \odot h_{t-1})`. Arguments as of :func:`rnn_cell`. Weights and biases are three
    stacked ones, in the order reset, update, new; so :math:`G = 3H`.

    Example:
        >>> weights = torch.randn(12, 3), torch.randn(12, 4), torch.zeros(12), torch.zeros(12)
        >>> gru_cell(torch.randn(2, 3), torch.zeros(2, 4), *weights).shape
        torch.Size([2, 4])
    """
    # torch's order: reset, update, new
    input_r, input_z, input_n = linear(input, weight_ih, bias_ih).chunk(3, dim=-1)
    hidden_r, hidden_z, hidden_n = linear(hidden, weight_hh, bias_hh).chunk(3, dim=-1)
    reset = torch.sigmoid(input_r + hidden_r)
    update = torch.sigmoid(input_z + hidden_z)
    new = torch.tanh(input_n + reset * hidden_n)
    return (1 - update) * new + update * hidden


def rnn_jacobian(
    hidden_next: Float[Tensor, "*B H"], weight_hh: Float[Tensor, "H H"]
) -> Float[Tensor, "*B H H"]:
    r"""How the next hidden state of :func:`rnn_cell` depends on the one before.

    .. math:: \frac{\partial h_t}{\partial h_{t-1}} = \mathrm{diag}(1 - h_t^2)\, W_{hh}

    Args:
        hidden_next: :math:`h_t`, the *new* state: the slope of tanh is a function of its value.
        weight_hh: :math:`W_{hh}`.

    Returns:
        Entry :math:`(i, j)` is :math:`\partial h_{t,i} / \partial h_{t-1,j}`.

    Example:
        >>> rnn_jacobian(torch.tensor([0.5]), torch.tensor([[2.0]]))
        tensor([[1.5000]])
    """
    return (1 - hidden_next**2).unsqueeze(-1) * weight_hh


def jacobian_product(
    hiddens: Float[Tensor, "*B L H"], weight_hh: Float[Tensor, "H H"], first: int, last: int
) -> Float[Tensor, "*B H H"]:
    r"""How a late hidden state of a plain network depends on an early one.

    .. math:: \frac{\partial h_{\mathrm{last}}}{\partial h_{\mathrm{first}}}
       = \prod_{t = \mathrm{last}}^{\mathrm{first}+1} \mathrm{diag}(1 - h_t^2)\, W_{hh}

    Latest factor on the left: matrices do not commute. Pascanu, Mikolov and Bengio (2013),
    equation 5, in column vectors.

    Args:
        hiddens: Hidden states :math:`h_0, \ldots, h_{L-1}`.
        weight_hh: :math:`W_{hh}`.
        first: Index of the early state.
        last: Index of the late state; if it is ``first``, the earliest, the identity results.

    Returns:
        The Jacobian, rows belong to the late state.

    Example:
        >>> jacobian_product(torch.zeros(3, 1), torch.tensor([[0.5]]), first=0, last=2)
        tensor([[0.2500]])
    """
    if not 0 <= first <= last < hiddens.shape[-2]:
        raise ValueError(
            f"first, last: expected 0 <= first <= last < {hiddens.shape[-2]}, "
            f"got first={first}, last={last}"
        )
    eye = torch.eye(hiddens.shape[-1], dtype=hiddens.dtype, device=hiddens.device)
    product = eye.expand(*hiddens.shape[:-2], *eye.shape)
    for t in range(first + 1, last + 1):
        product = rnn_jacobian(hiddens[..., t, :], weight_hh) @ product
    return product
