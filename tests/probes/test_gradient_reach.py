"""Gradient reach: hand value, Jacobian product, autograd; and what the course claims of it."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mutation import mutant
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course.nn import GRUCell, LSTMCell, Recurrent, RNNCell
from attn_course.probes import gradient_reach
from attn_course.reference import jacobian_product

MODULE = "attn_course.probes.gradient_reach"
Reach = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
B, L, D, H = 3, 11, 5, 7


def outputs_of(cell: Any) -> Callable[[Tensor], Tensor]:
    layer = Recurrent(cell=cell)
    return lambda inputs: layer(inputs)[0]


def check_reach(reach: Reach) -> None:
    """All oracles for gradient_reach."""
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


def test_agrees_with_every_oracle() -> None:
    check_reach(gradient_reach)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".flip(0)", ""),
        ("squares.sqrt().mean(dim=0)", "squares.mean(dim=0).sqrt()"),
        ("squares.sqrt().mean(dim=0)", "squares.mean(dim=0)"),
        ("squares.sqrt().mean(dim=0)", "squares.sqrt().sum(dim=0)"),
        ("output[:, -1]", "output[:, 0]"),
        ("output[:, -1]", "output.sum(1)"),
        ("in one_hot:", "in one_hot[:1]:"),
        ("in one_hot:", "in one_hot.sum(0, keepdim=True):"),
        ("grad.double().square().sum(dim=-1)", "grad.sum(dim=-1).square()"),
    ],
)
def test_oracles_reject_a_changed_line(old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        check_reach(mutant(MODULE, "gradient_reach", old, new))


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


def test_a_running_mean_reaches_all_lags_alike() -> None:
    # control: nothing vanishes where nothing is multiplied up
    reach = gradient_reach(lambda x: x.mean(dim=1), torch.randn(2, 30, 3))
    assert_close(reach, torch.full((30,), math.sqrt(3) / 30))


def test_a_causal_convolution_reaches_its_kernel_and_no_further() -> None:
    conv = nn.Conv1d(D, H, kernel_size=4)
    padded = nn.ConstantPad1d((3, 0), 0.0)
    reach = gradient_reach(lambda x: conv(padded(x.mT)).mT, torch.randn(B, L, D))
    assert (reach[:4] > 0).all()
    assert (reach[4:] == 0).all()


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


def test_bad_arguments_are_refused() -> None:
    reach = gradient_reach.__wrapped__
    with pytest.raises(ValueError, match=r"inputs: expected shape \(B, L, D\), not empty, got"):
        reach(lambda x: x, torch.zeros(3, 5))
    with pytest.raises(ValueError, match="function: expected it to return a tensor, got tuple"):
        reach(lambda x: (x, x), torch.zeros(B, L, D))
    with pytest.raises(ValueError, match=r"with B = 3, got \(11, 5\)"):
        reach(lambda x: x[0], torch.zeros(B, L, D))
