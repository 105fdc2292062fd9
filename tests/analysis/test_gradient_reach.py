"""Gradient reach: hand value, Jacobian product, autograd; what is claimed of it; path lengths."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from mutation import mutant, passes, rejects_changes
from refusals import refuses
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course import analysis
from attn_course.analysis import gradient_map, gradient_reach, path_length, recurrent_steps
from attn_course.functional import attention, causal_convolution
from attn_course.nn import GRUCell, LSTMCell, Recurrent, RNNCell
from attn_course.reference import jacobian_product

MODULE = "attn_course.analysis.gradient_reach"
Reach = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
B, L, D, H = 3, 11, 5, 7


def outputs_of(cell: Any) -> Callable[[Tensor], Tensor]:
    layer = Recurrent(cell=cell)
    return lambda inputs: layer(inputs)[0]


def check_reach(reach: Reach) -> None:
    inputs = torch.randn(B, L, D, dtype=torch.float64)

    # by hand: y_t = x_t + 3 x_{t-2}, summed over features; |(1, ..., 1)| = sqrt(D)
    def delayed(x: Tensor) -> Tensor:
        return (x + 3 * x.roll(2, dims=1)).sum(-1, keepdim=True)

    expected = torch.zeros(L, dtype=torch.float64)
    expected[0], expected[2] = math.sqrt(D), 3 * math.sqrt(D)
    assert_close(reach(delayed, inputs), expected, **FLOAT64)
    # a plain network: (product of Jacobians) times diag(1 - h^2) W_ih
    cell = RNNCell(input_size=D, hidden_size=H).double()
    function = outputs_of(cell)
    hiddens, weight_hh = function(inputs).detach(), cell.weight_hh.detach()
    norms = torch.zeros(B, L, dtype=torch.float64)
    for lag in range(L):
        t = L - 1 - lag
        product = torch.from_numpy(jacobian_product(hiddens.numpy(), weight_hh.numpy(), t, L - 1))
        inner = (1 - hiddens[:, t] ** 2).unsqueeze(-1) * cell.weight_ih.detach()
        norms[:, lag] = torch.linalg.matrix_norm(product @ inner)
    assert_close(reach(function, inputs), norms.mean(0), **FLOAT64)
    # all positions or the last alone
    assert_close(reach(lambda x: function(x)[:, -1], inputs), norms.mean(0), **FLOAT64)
    # autograd's own Jacobian, for another model
    gru = nn.GRU(D, H, batch_first=True).double()
    jacobian = torch.autograd.functional.jacobian(lambda x: gru(x)[0][:, -1].sum(0), inputs)
    theirs = jacobian.square().sum(dim=(0, 3)).sqrt().mean(0).flip(0)  # (H, B, L, D) -> (L,)
    assert_close(reach(lambda x: gru(x)[0], inputs), theirs, **FLOAT64)


def reach_at_start(cell: Any, seed: int) -> Tensor:
    """Set-up of the chapter on recurrence: D = H = 32, torch's initialisation, normal inputs."""
    torch.manual_seed(seed)
    function = outputs_of(cell(input_size=32, hidden_size=32))
    return gradient_reach(function, torch.randn(8, 30, 32))


def test_a_plain_network_forgets_and_gates_reach_a_hundred_times_further() -> None:
    log_mean = {
        cell: torch.stack([reach_at_start(cell, seed) for seed in range(5)]).log().mean(0).exp()
        for cell in (RNNCell, LSTMCell, GRUCell)
    }
    rnn, lstm, gru = (log_mean[cell] for cell in (RNNCell, LSTMCell, GRUCell))
    assert 2.3 < float(rnn[0]) < 2.9
    assert 1e-9 < float(rnn[25]) < 1e-7
    assert 3e-7 < float(lstm[25]) < 1e-5
    assert float(lstm[25] / rnn[25]) > 30
    assert float(gru[25] / rnn[25]) > 30
    assert (rnn[1:] < rnn[:-1]).all()


def test_a_tiny_reach_is_not_rounded_away() -> None:
    reach = gradient_reach(lambda x: 1e-30 * x[:, 0], torch.randn(2, 3, 1))
    assert_close(reach, torch.tensor([0.0, 0.0, 1e-30]), rtol=1e-5, atol=0)


def test_a_constant_has_no_reach() -> None:
    assert_close(gradient_reach(lambda x: torch.ones(B, H), torch.randn(B, L, D)), torch.zeros(L))


def test_nothing_is_left_behind() -> None:
    cell = GRUCell(input_size=D, hidden_size=H)
    inputs = torch.randn(B, L, D)
    before = inputs.clone()
    with torch.no_grad():
        gradient_reach(outputs_of(cell), inputs)
    assert torch.equal(inputs, before)
    assert not inputs.requires_grad
    assert all(parameter.grad is None for parameter in cell.parameters())


def check_map(gradient_map: Reach) -> None:
    inputs = torch.randn(B, L, D, dtype=torch.float64)
    gru = nn.GRU(D, H, batch_first=True).double()
    found = gradient_map(lambda x: gru(x)[0], inputs)
    jacobian = torch.autograd.functional.jacobian(lambda x: gru(x)[0].sum(0), inputs)
    expected = jacobian.square().sum(dim=(1, 4)).sqrt().mean(1)  # (T, H, B, L, D) -> (T, L)
    assert_close(found, expected, **FLOAT64)
    assert (found.triu(1) == 0).all()
    assert_close(found[-1].flip(0), gradient_reach(lambda x: gru(x)[0], inputs), **FLOAT64)
    fewer = gradient_map(lambda x: 2 * x[:, :3], inputs)
    expected = 2 * math.sqrt(D) * torch.eye(L, dtype=torch.float64)[:3]
    assert_close(fewer, expected, **FLOAT64)


def convolutions(kernel: int, growth: int) -> Iterator[Callable[[Tensor], Tensor]]:
    """Layers of which each has ``growth`` times the dilation of the one before."""
    for layer in itertools.count():
        weight = torch.randn(D, D, kernel, dtype=torch.float64) / math.sqrt(D * kernel)
        yield functools.partial(causal_convolution, weight=weight, dilation=growth**layer)


def attentions(window: int) -> Iterator[Callable[[Tensor], Tensor]]:
    """Layers of causal self-attention in which each position sees ``window``, itself included."""
    while True:
        yield lambda x: attention(
            x, x, x, attn_mask=torch.ones(1, *2 * [x.shape[1]]).tril().triu(1 - window).bool()
        )[0]


def check_paths(path_length: Callable[..., int | None]) -> None:
    """Table 1 of Vaswani et al. (2017), last column, counted without a gradient."""
    cell = nn.RNNCell(D, H).double()
    for n in (1, 2, 5, 17):
        x = torch.randn(2, n, D, dtype=torch.float64)
        assert path_length(recurrent_steps(cell, hidden_size=H), x) == n
        assert path_length(attentions(n), x) == 1
        for k in (2, 3, 5):
            # each layer adds k - 1 positions; at least one layer
            assert path_length(convolutions(k, 1), x) == max(1, math.ceil((n - 1) / (k - 1)))
            assert path_length(attentions(k), x) == max(1, math.ceil((n - 1) / (k - 1)))
            layers = next(m for m in itertools.count(1) if k**m >= n)  # multiplies them by k
            assert path_length(convolutions(k, k), x) == layers
        # dilations that double reach 1 + (k - 1)(2^m - 1)
        layers = next(m for m in itertools.count(1) if 1 + 2 * (2**m - 1) >= n)
        assert path_length(convolutions(3, 2), x) == layers
    x = torch.randn(2, 13, D, dtype=torch.float64)
    assert path_length(recurrent_steps(cell, hidden_size=H), x, source=3, target=7) == 5
    assert path_length(recurrent_steps(cell, hidden_size=H), x, source=-9, target=-1) == 9
    # the future has no path to the past
    few = list(itertools.islice(convolutions(3, 1), 9))
    assert path_length(few, x, source=7, target=3) is None
    assert path_length([], x) is None
    assert path_length([torch.zeros_like], x) is None


ORACLES = {"gradient_reach": check_reach, "gradient_map": check_map, "path_length": check_paths}


test_function_agrees_with_every_oracle = passes(ORACLES, analysis)


test_oracles_reject_a_changed_line = rejects_changes(
    ORACLES, MODULE,
    ("gradient_reach", ".flip(0)", ""),
    ("gradient_reach", "_norms(last, x).mean(dim=0)",
     "_norms(last, x).square().mean(dim=0).sqrt()"),
    ("gradient_reach", "squares.sqrt()", "squares"),
    ("gradient_reach", "_norms(last, x).mean(dim=0)", "_norms(last, x).sum(dim=0)"),
    ("gradient_reach", "output[:, -1]", "output[:, 0]"),
    ("gradient_reach", "output[:, -1]", "output.sum(1)"),
    ("gradient_reach", "in one_hot:", "in one_hot[:1]:"),
    ("gradient_reach", "in one_hot:", "in one_hot.sum(0, keepdim=True):"),
    ("gradient_reach", "grad.double().square().sum(dim=-1)", "grad.sum(dim=-1).square()"),
    ("gradient_map", "_norms(here, x).mean(dim=0)", "_norms(here, x).sum(dim=0)"),
    ("gradient_map", "output[:, place]", "output[:, -1 - place]"),
    ("gradient_map", "_norms(here, x).mean(dim=0)", "_norms(here, x).mean(dim=0).flip(0)"),
    ("gradient_map", "squares.sqrt()", "squares"),
    error=AssertionError,
)  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [
    ("enumerate(operations, start=1)", "enumerate(operations)"),
    ("grad[:, source]", "grad"),
    ("state[:, target]", "state[:, -1]"),
    ("state = operation(state)", "state = operation(x)"),
    ("torch.zeros_like(hidden[:, :1]), hidden[:, :-1]", "hidden"),
])  # fmt: skip
def test_path_oracles_reject_a_changed_line(old: str, new: str) -> None:
    with pytest.raises((AssertionError, RuntimeError)):
        check_short(old, new)


def check_short(old: str, new: str) -> None:
    """The mutants would search for ever where there is nothing to find: operations that end."""
    changed = mutant(MODULE, "path_length", old, new)
    steps = mutant(MODULE, "recurrent_steps", old, new)
    cell = nn.RNNCell(D, H).double()
    x = torch.randn(2, 5, D, dtype=torch.float64)
    for source, target, expected in ((0, -1, 5), (1, 3, 3), (3, 1, None)):
        operations = itertools.islice(steps(cell, hidden_size=H), 7)
        assert changed(operations, x, source=source, target=target) == expected


def test_recurrent_steps_end_in_the_recurrent_layer() -> None:
    layer = nn.RNN(D, H, batch_first=True)
    cell = nn.RNNCell(D, H)
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
    x = torch.randn(B, 5, D)
    both = x
    for count, operation in enumerate(itertools.islice(recurrent_steps(cell, hidden_size=H), 5)):
        both = operation(both)
        assert_close(both[:, : count + 1, D:], layer(x)[0][:, : count + 1])
    assert torch.equal(both[..., :D], x)


REACH = mutant(MODULE, "gradient_reach", "def ", "def ")  # without the checks of shapes
test_bad_arguments_are_refused = refuses(
    (lambda x: REACH(lambda x: x, x[0]), r"inputs: expected shape \(B, L, D\), not empty, got"),
    (lambda x: REACH(lambda x: (x, x), x), "function: expected it to return a tensor, got tuple"),
    (lambda x: REACH(lambda x: x[0], x), r"with B = 3, got \(11, 5\)"),
    (lambda x: path_length([], x, source=L), "source: expected a position of 11, got 11"),
    (lambda x: path_length([lambda x: x[0]], x), r"of shape \(B, L, H\) with B = 3, got \(11, 5\)"),
    (lambda x: gradient_map(lambda x: x[:, 0], x), r"\(B, L, H\) with B = 3, got \(3, 5\)"),
    given=lambda: [torch.zeros(B, L, D)],
)
