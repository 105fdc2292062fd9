"""Cells and layers equal torch: outputs, final state, every gradient, padding, both ways."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mutation import rejects_changes
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from attn_course.nn import GRUCell, LSTMCell, Recurrent, RNNCell

MODULE = "attn_course.nn.recurrent"
B, L, D, H = 5, 11, 3, 7
LENGTHS = [4, 11, 1, 7, 2]
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "rnn": (RNNCell, nn.RNNCell, nn.RNN),
    "lstm": (LSTMCell, nn.LSTMCell, nn.LSTM),
    "gru": (GRUCell, nn.GRUCell, nn.GRU),
}


def parts(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


@pytest.mark.parametrize("kind", KINDS)
def test_cell_equals_torch_and_state_dicts_are_interchangeable(kind: str) -> None:
    ours_class, theirs_class, _ = KINDS[kind]
    ours, theirs = ours_class(input_size=D, hidden_size=H), theirs_class(D, H)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    inputs = torch.randn(B, D)
    state = ours(inputs)
    assert_close(parts(state), parts(theirs(inputs)))
    assert_close(parts(ours(inputs, state)), parts(theirs(inputs, state)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_weights_of_torch(kind: str, seed: int) -> None:
    ours_class, theirs_class, _ = KINDS[kind]
    torch.manual_seed(seed)
    ours = ours_class(input_size=D, hidden_size=H)
    torch.manual_seed(seed)
    theirs = theirs_class(D, H)
    for name, value in theirs.state_dict().items():
        assert_close(ours.state_dict()[name], value, rtol=0, atol=0)


def theirs(
    kind: str, cell: nn.Module, inputs: Tensor, states: list[Tensor], lengths: list[int],
    reverse: bool,
) -> tuple[Tensor, list[Tensor], list[nn.Parameter]]:  # fmt: skip
    """torch's layer on a packed batch, with the weights of ``cell`` in one direction."""
    layer = KINDS[kind][2](D, H, batch_first=True, bidirectional=reverse, dtype=torch.float64)
    suffix = "_l0_reverse" if reverse else "_l0"
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    with torch.no_grad():
        for name in names:
            getattr(layer, name + suffix).copy_(getattr(cell, name))
    directions = 2 if reverse else 1
    initial = [torch.stack([state] * directions) for state in states]
    packed = pack_padded_sequence(
        inputs, torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )
    outputs, final = layer(packed, tuple(initial) if kind == "lstm" else initial[0])
    padded, _ = pad_packed_sequence(outputs, batch_first=True, total_length=inputs.shape[1])
    final_states = [part[-1] for part in (final if kind == "lstm" else [final])]
    return padded[..., -H:], final_states, [getattr(layer, name + suffix) for name in names]


def check_layer(layer_class: Callable[..., Any], kind: str, reverse: bool) -> None:
    """All oracles for Recurrent: torch on a packed batch, then each row alone."""
    cell = KINDS[kind][0](input_size=D, hidden_size=H).double()
    layer = layer_class(cell=cell, reverse=reverse)
    inputs = torch.randn(B, L, D, dtype=torch.float64)
    states = [torch.randn(B, H, dtype=torch.float64) for _ in range(2 if kind == "lstm" else 1)]
    cotangents = [torch.randn(B, L, H).double(), *[torch.randn(B, H).double() for _ in states]]
    leaves = [value.clone().requires_grad_() for value in (inputs, *states)]

    expected, expected_final, weights = theirs(kind, cell, leaves[0], leaves[1:], LENGTHS, reverse)
    expected_grads = torch.autograd.grad(
        [expected, *expected_final], [*leaves, *weights], cotangents
    )

    state = tuple(leaves[1:]) if kind == "lstm" else leaves[1]
    real = torch.arange(L) < torch.tensor(LENGTHS)[:, None]
    # whatever stands in the padding, even NaN, decides nothing
    wild = leaves[0].masked_fill(~real[..., None], torch.nan)
    outputs, final = layer(wild, state, torch.tensor(LENGTHS))
    grads = torch.autograd.grad([outputs, *parts(final)], [*leaves, *cell.parameters()], cotangents)
    assert_close(outputs, expected, **FLOAT64)
    assert_close(parts(final), expected_final, **FLOAT64)
    assert_close(grads, expected_grads, **FLOAT64)

    for row, length in enumerate(LENGTHS):
        alone_state = [state[row : row + 1] for state in states]
        alone, alone_final = layer(
            inputs[row : row + 1, :length], tuple(alone_state) if kind == "lstm" else alone_state[0]
        )
        assert_close(outputs[row, :length], alone[0], **FLOAT64)
        assert_close(
            [part[row] for part in parts(final)], [p[0] for p in parts(alone_final)], **FLOAT64
        )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_layer_agrees_with_every_oracle(kind: str, reverse: bool) -> None:
    check_layer(Recurrent, kind, reverse)


test_layer_oracles_reject_a_changed_line = rejects_changes(
    lambda wrong: check_layer(wrong, 'lstm', reverse=True), f"{MODULE}.Recurrent",
    ("after if real is None else _where(real[:, t], after, state)", "after"),
    ("torch.where(active.view(-1, *[1] * (new.ndim - 1)), new, old)", "new"),
    ("inputs = inputs.masked_fill(~real.unsqueeze(-1), 0.0)", "pass"),
    ("inputs = inputs.masked_fill(~real.unsqueeze(-1), 0.0)",
     "inputs = torch.where(real.unsqueeze(-1), inputs, inputs.nan_to_num(0.0) * 0 + 1)"
     "; real = None"),
    ("stacked.masked_fill(~real.unsqueeze(-1), 0.0), state", "stacked, state"),
    ("reversed(range(longest)) if self.reverse else range(longest)", "range(longest)"),
    ("outputs[t] = hidden_of(state)", "outputs[longest - 1 - t] = hidden_of(state)"),
    ("outputs[t] = hidden_of(state)", "outputs[t] = hidden_of(state).detach()"),
    ("if state is None:", "if True:"),
    ("else hidden_of(state[0])", "else hidden_of(state[1])"),
)  # fmt: skip


class Counter(nn.Module):
    """A cell of another make, with a nested state: output, and how many steps were read."""

    input_size, hidden_size = D, 1

    def initial_state(self, input: Tensor) -> tuple[Tensor, tuple[Tensor]]:
        return input.new_zeros(len(input), 1), (torch.zeros(len(input), dtype=torch.long),)

    def forward(self, input: Tensor, state: Any = None) -> Any:
        return input.sum(-1, keepdim=True), (state[1][0] + 1,)


def test_any_cell_may_be_injected() -> None:
    inputs = torch.randn(B, L, D)
    outputs, (last, (steps,)) = Recurrent(cell=Counter())(inputs, lengths=torch.tensor(LENGTHS))
    assert steps.tolist() == LENGTHS
    for row, length in enumerate(LENGTHS):
        assert_close(outputs[row, :length, 0], inputs[row, :length].sum(-1))
        assert_close(last[row, 0], inputs[row, length - 1].sum())


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_are_refused() -> None:
    layer, inputs = Recurrent(cell=GRUCell(input_size=D, hidden_size=H)), torch.zeros(2, L, D)
    refused(r"inputs: expected size 3 on axis -1, got shape", layer, torch.zeros(B, L, D + 1))
    refused("inputs: expected at least one position", layer, torch.zeros(B, 0, D))
    refused(r"inputs: expected axes \(B L D\), got shape \(11, 3\)", layer, inputs[0])
    for lengths, expected in (
        ([4, 12], "values from 0 to 11, got 4 to 12"),
        ([-1, 3], "values from 0 to 11, got -1 to 3"),
        ([4], "2 integers, one per row"), ([True, True], "2 integers, one per row"),
    ):  # fmt: skip
        refused(f"lengths: expected {expected}", layer, inputs, lengths=torch.tensor(lengths))
    for kind in (RNNCell, LSTMCell, GRUCell):
        refused("hidden_size: expected at least 1, got 0", kind, input_size=3, hidden_size=0)
        cell = kind(input_size=3, hidden_size=2)
        refused("input: expected size 3 on axis -1", cell, torch.zeros(5, 4))
        refused(r"input: expected axes \(B D\), got shape \(3,\)", cell, torch.zeros(3))


@pytest.mark.parametrize(("kind", "state", "message"), [
    # what torch.nn.GRU returns, with its axis of layers, and what would broadcast
    ("gru", torch.zeros(1, 2, H), r"state: expected shape \(2, 7\), got \(1, 2, 7\)"),
    ("gru", torch.zeros(1, H), r"state: expected shape \(2, 7\), got \(1, 7\)"),
    ("gru", torch.zeros(2, H + 1), r"state: expected shape \(2, 7\), got \(2, 8\)"),
    ("gru", (torch.zeros(2, H),), r"state: expected shape \(2, 7\), got tuple"),
    ("lstm", torch.zeros(2, H), "state: expected a tuple of 2, got Tensor"),
    ("lstm", (torch.zeros(2, H),), "state: expected a tuple of 2, got a tuple of 1"),
    ("lstm", (torch.zeros(2, H), torch.zeros(1, H)), r"state\[1\]: expected shape \(2, 7\)"),
])  # fmt: skip
def test_a_state_of_another_shape_is_refused(kind: str, state: Any, message: str) -> None:
    layer = Recurrent(cell=KINDS[kind][0](input_size=D, hidden_size=H))
    refused(message, layer, torch.zeros(2, L, D), state)


def test_printing_a_cell_shows_its_sizes() -> None:
    assert str(GRUCell(input_size=3, hidden_size=5)) == "GRUCell(input_size=3, hidden_size=5)"
