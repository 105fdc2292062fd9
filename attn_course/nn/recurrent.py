"""Recurrent cells with parameters, and the loop that runs any of them over a padded batch."""

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course._checks import check_at_least, check_axes, check_lengths, check_size
from attn_course.functional.recurrent import gru_cell, lstm_cell, rnn_cell
from attn_course.masks import padding_mask
from attn_course.nn.parameters import check_input, uniform_parameter

# a tensor with the batch on axis 0, or a (nested) tuple of such tensors, the output first
State = Tensor | tuple[Any, ...]


@runtime_checkable
class Cell(Protocol):
    """What :class:`Recurrent` needs of a cell: any module with these members."""

    input_size: int
    hidden_size: int

    def initial_state(self, input: Float[Tensor, "B D"]) -> Any:
        """The state before the first step, for the batch, dtype and device of ``input``."""
        ...

    def __call__(self, input: Float[Tensor, "B D"], state: Any = None) -> Any:
        """The next state; without ``state`` the step starts from :meth:`initial_state`."""
        ...


def hidden_of(state: State) -> Float[Tensor, "B H"]:
    """The output of a cell: its state, or the first part of it (of an LSTM, ``h``)."""
    return state if isinstance(state, Tensor) else hidden_of(state[0])


def state_from(cell: Cell, hidden: Float[Tensor, "B H"]) -> Any:
    """A cell's state with a given hidden part; an LSTM starts with an empty cell."""
    state = cell.initial_state(hidden)
    return hidden if isinstance(state, Tensor) else (hidden, *state[1:])


class _Gates(nn.Module):
    """Parameters in torch's names, layout, order of creation and range.

    Every element is uniform in :math:`\\pm 1/\\sqrt{H}`; the same seed gives torch's numbers.
    """

    num_gates: int

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__()
        check_at_least(1, input_size=input_size, hidden_size=hidden_size)
        self.input_size, self.hidden_size = input_size, hidden_size
        rows = self.num_gates * hidden_size
        self.weight_ih = uniform_parameter(rows, input_size, fan_in=hidden_size)
        self.weight_hh = uniform_parameter(rows, hidden_size, fan_in=hidden_size)
        self.bias_ih = uniform_parameter(rows, fan_in=hidden_size)
        self.bias_hh = uniform_parameter(rows, fan_in=hidden_size)

    def extra_repr(self) -> str:
        return f"input_size={self.input_size}, hidden_size={self.hidden_size}"

    def initial_state(self, input: Float[Tensor, "B D"]) -> Any:
        """Zeros, for the batch, dtype and device of ``input``."""
        return input.new_zeros(input.shape[0], self.hidden_size)

    def _arguments(self, input: Tensor, state: Any) -> tuple[Any, ...]:
        check_input("input", input, "B D", self.input_size, self.weight_ih)
        state = self.initial_state(input) if state is None else state
        return input, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh


class RNNCell(_Gates):
    """One step of a plain recurrent network: see :func:`attn_course.functional.rnn_cell`.

    Parameters have the names and layouts of ``torch.nn.RNNCell``: state dicts are interchangeable.

    Args:
        input_size: Size :math:`D` of the input.
        hidden_size: Size :math:`H` of the state.

    Example:
        >>> cell = RNNCell(input_size=3, hidden_size=4)
        >>> cell(torch.randn(2, 3)).shape
        torch.Size([2, 4])
    """

    num_gates = 1

    def forward(
        self, input: Float[Tensor, "B D"], state: Float[Tensor, "B H"] | None = None
    ) -> Float[Tensor, "B H"]:
        """The next state; from zeros if none is given."""
        return rnn_cell(*self._arguments(input, state))


class LSTMCell(_Gates):
    """One step of a long short-term memory: see :func:`attn_course.functional.lstm_cell`.

    Arguments and parameters as of :class:`RNNCell`. The state has two parts, hidden state and cell.

    Example:
        >>> hidden, cell = LSTMCell(input_size=3, hidden_size=4)(torch.randn(2, 3))
        >>> hidden.shape, cell.shape
        (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    num_gates = 4

    def initial_state(
        self, input: Float[Tensor, "B D"]
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
        """Zeros for hidden state and cell, for the batch, dtype and device of ``input``."""
        zeros = input.new_zeros(input.shape[0], self.hidden_size)
        return zeros, zeros.clone()

    def forward(
        self,
        input: Float[Tensor, "B D"],
        state: tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]] | None = None,
    ) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
        """The next hidden state and cell; from zeros if none are given."""
        return lstm_cell(*self._arguments(input, state))


class GRUCell(_Gates):
    """One step of a gated recurrent unit: see :func:`attn_course.functional.gru_cell`.

    Arguments and parameters as of :class:`RNNCell`.

    Example:
        >>> cell = GRUCell(input_size=3, hidden_size=4)
        >>> cell(torch.randn(2, 3), torch.zeros(2, 4)).shape
        torch.Size([2, 4])
    """

    num_gates = 3

    def forward(
        self, input: Float[Tensor, "B D"], state: Float[Tensor, "B H"] | None = None
    ) -> Float[Tensor, "B H"]:
        """The next state; from zeros if none is given."""
        return gru_cell(*self._arguments(input, state))


def _check_state(name: str, state: Any, like: State) -> None:
    """Refuse a state that is not built like another: broadcasting would carry on silently."""
    if isinstance(like, Tensor):
        got = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
        if got != tuple(like.shape):
            raise ValueError(f"{name}: expected shape {tuple(like.shape)}, got {got}")
        return
    if not isinstance(state, tuple) or len(state) != len(like):
        got = f"a tuple of {len(state)}" if isinstance(state, tuple) else type(state).__name__
        raise ValueError(f"{name}: expected a tuple of {len(like)}, got {got}")
    for place, (part, want) in enumerate(zip(state, like, strict=True)):
        _check_state(f"{name}[{place}]", part, want)


def _where(active: Bool[Tensor, " B"], new: State, old: State) -> State:
    """Row by row the new state where active, else the old one; through nested tuples."""
    if isinstance(new, Tensor):
        assert isinstance(old, Tensor)
        return torch.where(active.view(-1, *[1] * (new.ndim - 1)), new, old)
    return tuple(_where(active, n, o) for n, o in zip(new, old, strict=True))


class Recurrent(nn.Module):
    r"""Run a cell along a sequence.

    .. math:: s_t = \mathrm{cell}(x_t, s_{t-1}), \qquad \mathrm{outputs}_t = h_t

    Padding is skipped: at a padded position the state does not change. So the final state of a row
    is that of the row alone, whatever its padding contains.

    Args:
        cell: :class:`RNNCell`, :class:`LSTMCell`, :class:`GRUCell` or any
            :class:`~attn_course.nn.recurrent.Cell`.
        reverse: Read from the last real position to the first. Outputs stay at the positions of
            their inputs, as in the reverse direction of a bidirectional ``torch.nn.GRU``.

    Example:
        >>> layer = Recurrent(cell=GRUCell(input_size=3, hidden_size=4))
        >>> outputs, state = layer(torch.randn(2, 5, 3), lengths=torch.tensor([5, 3]))
        >>> outputs.shape, state.shape
        (torch.Size([2, 5, 4]), torch.Size([2, 4]))
    """

    def __init__(self, *, cell: Cell, reverse: bool = False) -> None:
        super().__init__()
        self.cell = cell
        self.reverse = reverse

    def forward(
        self,
        inputs: Float[Tensor, "B L D"],
        state: Any = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B L H"], Any]:
        """All outputs and the final state.

        Args:
            inputs: Padded sequences.
            state: State before the first step, without an axis of layers; zeros if not given.
            lengths: Number of real positions in each row; all if not given.

        Returns:
            Outputs, 0 at padded positions, and the state after the last step of each row.
        """
        check_axes("inputs", inputs, "B L D")
        check_size("inputs", inputs, -1, self.cell.input_size)
        longest = inputs.shape[1]
        if longest == 0:
            raise ValueError(f"inputs: expected at least one position, got {tuple(inputs.shape)}")
        real = None
        if lengths is not None:
            check_lengths(lengths, inputs.shape[0], longest)
            real = padding_mask(lengths, longest)  # (B, L)
            # even NaN in the padding must not reach the weights' gradients (0 * NaN = NaN)
            inputs = inputs.masked_fill(~real.unsqueeze(-1), 0.0)
        zeros = self.cell.initial_state(inputs[:, 0])
        if state is None:
            state = zeros
        _check_state("state", state, zeros)
        outputs: list[Tensor] = [inputs] * longest
        for t in reversed(range(longest)) if self.reverse else range(longest):
            after = self.cell(inputs[:, t], state)
            state = after if real is None else _where(real[:, t], after, state)
            outputs[t] = hidden_of(state)
        stacked = torch.stack(outputs, dim=1)  # (B, L, H)
        return stacked if real is None else stacked.masked_fill(~real.unsqueeze(-1), 0.0), state
