"""Cells and Jacobians against hand values, NumPy, torch, finite differences, mutants."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from mutation import passes, rejects_changes
from oracles import by_numpy
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course import functional, reference

MODULE = "attn_course.functional.recurrent"
GATES = {"rnn_cell": 1, "lstm_cell": 4, "gru_cell": 3}
THEIRS = {"rnn_cell": nn.RNNCell, "lstm_cell": nn.LSTMCell, "gru_cell": nn.GRUCell}
B, D, H = 3, 5, 7


def leaves(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def arguments(name: str) -> list[Tensor]:
    rows = GATES[name] * H
    state = [(B, H), (B, H)] if name == "lstm_cell" else [(B, H)]
    return leaves((B, D), *state, (rows, D), (rows, H), (rows,), (rows,))


def call(name: str, cell: Callable[..., Any], values: list[Any]) -> list[Any]:
    """Outputs as a list, whether the state is one part or two."""
    if name == "lstm_cell":
        x, h, c, *weights = values
        return list(cell(x, (h, c), *weights))
    return [cell(*values)]


def theirs(name: str, values: list[Tensor]) -> list[Tensor]:
    module = THEIRS[name](D, H, dtype=torch.float64)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = dict(zip(names, values[-4:], strict=True))

    def run(*inputs: Any) -> Any:
        return torch.func.functional_call(module, weights, inputs)

    if name == "lstm_cell":
        return list(run(values[0], (values[1], values[2])))
    return [run(values[0], values[1])]


def check_cell(name: str, cell: Callable[..., Any]) -> None:
    """All oracles for a cell: NumPy, torch forward and backward."""
    values = arguments(name)
    ours = call(name, cell, values)
    oracle = call(name, getattr(reference, name), [value.detach().numpy() for value in values])
    assert_close([o.detach() for o in ours], [torch.from_numpy(o) for o in oracle], **FLOAT64)
    expected = theirs(name, values)
    assert_close(ours, expected, **FLOAT64)
    cotangents = [torch.randn_like(output) for output in ours]
    assert_close(
        torch.autograd.grad(ours, values, cotangents),
        torch.autograd.grad(expected, values, cotangents),
        **FLOAT64,
    )


@pytest.mark.parametrize("name", GATES)
def test_cells_take_any_leading_axes(name: str) -> None:
    values = arguments(name)
    stacked = [torch.stack([v, 2 * v]) if v.shape[:1] == (B,) else v for v in values]
    cell = getattr(functional, name)
    together, first = call(name, cell, stacked), call(name, cell, values)
    assert_close([output[0] for output in together], first)


@pytest.mark.parametrize("name", GATES)
def test_reference_cells_do_not_overflow(name: str) -> None:
    values = [np.full(v.shape, 1e4) for v in arguments(name)]
    with np.errstate(all="raise", under="ignore"):
        outputs = call(name, getattr(reference, name), values)
    assert all(np.isfinite(output).all() for output in outputs)


def hiddens_and_jacobian(first: int, last: int) -> tuple[Tensor, Tensor, Tensor]:
    """States of a plain network, its weight, and the Jacobian by autograd."""
    weight_ih, weight_hh = torch.randn(H, D).double(), torch.randn(H, H).double() / 2
    bias = torch.randn(H, dtype=torch.float64)
    inputs = torch.randn(B, 11, D, dtype=torch.float64)

    def run(hidden: Tensor, start: int) -> list[Tensor]:
        states = [hidden]
        for t in range(start, 11):
            x = inputs[:, t][: len(hidden)] if hidden.ndim == 2 else inputs[0, t]
            states.append(functional.rnn_cell(x, states[-1], weight_ih, weight_hh, bias, bias))
        return states

    states = run(torch.randn(B, H, dtype=torch.float64), 0)
    hiddens = torch.stack(states, dim=1)  # (B, 12, H)
    jacobian = torch.autograd.functional.jacobian(
        lambda hidden: run(hidden, first)[last - first], hiddens[0, first]
    )
    return hiddens, weight_hh, jacobian


def check_product(product: Callable[..., Tensor]) -> None:
    for first, last in ((0, 1), (3, 10), (0, 11), (4, 4)):
        hiddens, weight_hh, jacobian = hiddens_and_jacobian(first, last)
        ours = product(hiddens, weight_hh, first, last)
        assert_close(ours[0], jacobian, **FLOAT64)
        assert_close(ours, by_numpy.jacobian_product(hiddens, weight_hh, first, last), **FLOAT64)


CHECKS = {name: partial(check_cell, name) for name in GATES} | {"jacobian_product": check_product}
test_agrees_with_every_oracle = passes(CHECKS, functional)


STEP = "rnn_jacobian(hiddens[..., t, :], weight_hh) @ product"
test_oracles_reject_a_changed_line = rejects_changes(
    CHECKS,
    MODULE,
    ("rnn_cell", "torch.tanh(linear(", "torch.sigmoid(linear("),
    ("rnn_cell", "linear(hidden, weight_hh, bias_hh))", "linear(hidden, weight_hh))"),
    ("rnn_cell", "linear(hidden, weight_hh, bias_hh))", "linear(hidden, weight_hh.T, bias_hh))"),
    ("lstm_cell", "i, f, g, o = ", "f, i, g, o = "),
    ("lstm_cell", "i, f, g, o = ", "i, f, o, g = "),
    ("lstm_cell", "torch.sigmoid(o) * torch.tanh(cell), cell", "torch.sigmoid(o) * cell, cell"),
    ("lstm_cell", "torch.sigmoid(i) * torch.tanh(g)", "torch.sigmoid(i) * g"),
    ("lstm_cell", "torch.sigmoid(f) * cell +", "cell +"),
    ("lstm_cell", "torch.sigmoid(f) * cell +", "torch.sigmoid(f) * cell.detach() +"),
    ("gru_cell", "reset * hidden_n", "reset.detach() * hidden_n"),
    ("gru_cell", "input_r, input_z, input_n =", "input_z, input_r, input_n ="),
    ("gru_cell", "(1 - update) * new + update * hidden", "update * new + (1 - update) * hidden"),
    ("gru_cell", "input_n + reset * hidden_n", "reset * (input_n + hidden_n)"),
    ("gru_cell", "reset * hidden_n", "linear(reset * hidden, weight_hh, bias_hh).chunk(3, -1)[2]"),
    ("jacobian_product", STEP, STEP.replace("@ product", "").replace("rnn_j", "product @ rnn_j")),
    ("jacobian_product", "range(first + 1, last + 1)", "range(first, last)"),
    ("jacobian_product", "range(first + 1, last + 1)", "range(first + 1, last)"),
    ("jacobian_product", "(1 - hidden_next**2)", "(1 - hidden_next)"),
    ("jacobian_product", ".unsqueeze(-1) * weight_hh", ".unsqueeze(-2) * weight_hh"),
    ("jacobian_product", ".unsqueeze(-1) * weight_hh", ".unsqueeze(-1) * weight_hh.T"),
)


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (3, 2), (0, 5)])
def test_jacobian_product_refuses_other_ranges(first: int, last: int) -> None:
    for package, hiddens in ((functional, torch.zeros(5, 3)), (reference, np.zeros((5, 3)))):
        said, call = "first, last: expected 0 <= first <= last < 5", package.jacobian_product
        refused(said, call, hiddens, hiddens[:3], first, last)
