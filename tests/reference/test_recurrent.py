"""Backpropagation through time by hand against a hand value, torch's autograd, and mutants."""

from collections.abc import Callable

import numpy as np
import torch
from mutation import rejects_changes
from tolerances import FLOAT64
from torch import nn
from torch.testing import assert_close

from attn_course.reference import rnn_bptt
from attn_course.reference.recurrent import RNNGradients, rnn_forward

NAMES = ("inputs", "hidden", "weight_ih", "weight_hh", "bias_ih", "bias_hh")
B, L, D, H = 2, 11, 5, 7


def arguments(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    shapes = [(B, L, D), (B, H), (H, D), (H, H), (H,), (H,)]
    values = [rng.normal(size=shape) for shape in shapes]
    values[3] /= 2
    return values, rng.normal(size=(B, L, H))


def by_autograd(values: list[np.ndarray], grad_outputs: np.ndarray) -> tuple[torch.Tensor, ...]:
    """Outputs of ``torch.nn.RNN`` and the gradient of every argument."""
    rnn = nn.RNN(D, H, batch_first=True, dtype=torch.float64)
    inputs, hidden, *weights = (torch.from_numpy(value).requires_grad_() for value in values)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    parameters = dict(zip(names, weights, strict=True))
    outputs, _ = torch.func.functional_call(rnn, parameters, (inputs, hidden[None]))
    grads = torch.autograd.grad(outputs, (inputs, hidden, *weights), torch.from_numpy(grad_outputs))
    return outputs.detach(), *grads


def check_bptt(bptt: Callable[..., RNNGradients], rng: np.random.Generator) -> None:
    """All oracles for rnn_bptt: every gradient, for a loss on all steps and on the last alone."""
    values, everywhere = arguments(rng)
    last_only = np.zeros_like(everywhere)
    last_only[:, -1] = everywhere[:, -1]
    for grad_outputs in (everywhere, last_only):
        before = [value.copy() for value in values]
        ours = bptt(*values, grad_outputs)
        _, *expected = by_autograd(values, grad_outputs)
        for name, grad in zip(NAMES, expected, strict=True):
            assert_close(torch.from_numpy(getattr(ours, name)), grad, **FLOAT64)
        for value, old in zip(values, before, strict=True):
            np.testing.assert_array_equal(value, old)


def test_forward_agrees_with_torch(rng: np.random.Generator) -> None:
    values, grad_outputs = arguments(rng)
    outputs, *_ = by_autograd(values, grad_outputs)
    assert_close(torch.from_numpy(rnn_forward(*values)), outputs, **FLOAT64)


def test_bptt_agrees_with_autograd(rng: np.random.Generator) -> None:
    check_bptt(rnn_bptt, rng)


def test_bptt_by_hand() -> None:
    # h1 = tanh(x1) = 0.5, h2 = tanh(2 h1) with W_ih = 1, W_hh = 2, x2 = 0; the loss is h2
    x1 = np.arctanh(0.5)
    zero = np.zeros(1)
    ours = rnn_bptt(
        np.array([[x1], [0.0]]), zero, np.eye(1), 2 * np.eye(1), zero, zero,
        np.array([[0.0], [1.0]]),
    )  # fmt: skip
    delta2 = 1 - np.tanh(1.0) ** 2
    delta1 = (1 - 0.25) * 2 * delta2
    np.testing.assert_allclose(ours.weight_hh, [[delta2 * 0.5]])
    np.testing.assert_allclose(ours.weight_ih, [[delta1 * x1]])
    np.testing.assert_allclose(ours.bias_ih, [delta1 + delta2])
    np.testing.assert_allclose(ours.inputs, [[delta1], [delta2]])
    np.testing.assert_allclose(ours.hidden, [2 * delta1])


test_bptt_oracles_reject_a_changed_line = rejects_changes(
    lambda wrong: check_bptt(wrong, np.random.default_rng(1)),
    "attn_course.reference.recurrent.rnn_bptt",
    ("grad_outputs[..., t, :] + carried", "grad_outputs[..., t, :]"),
    ("(1 - hiddens[..., t, :] ** 2) * grad_hidden", "grad_hidden"),
    ("(1 - hiddens[..., t, :] ** 2)", "(1 - before[..., t, :] ** 2)"),
    ("carried = deltas[..., t, :] @ weight_hh", "carried = deltas[..., t, :] @ weight_hh.T"),
    ("in reversed(range(steps))", "in range(steps)"),
    ("rows.T @ before", "rows.T @ hiddens"),
    ("inputs=deltas @ weight_ih", "inputs=grad_outputs @ weight_ih"),
    ("hidden=carried", "hidden=deltas[..., 0, :]"),
    ("weight_hh=rows.T @ before.reshape(len(rows), before.shape[-1])",
     "weight_hh=before.reshape(len(rows), before.shape[-1]).T @ rows"),
    ("bias_hh=bias.copy()", "bias_hh=0 * bias"),
    (".sum(axis=0)", ".mean(axis=0)"),
)  # fmt: skip


def test_bptt_of_an_empty_batch_is_zero(rng: np.random.Generator) -> None:
    values, _ = arguments(rng)
    values = [np.zeros((0, *values[0].shape[1:])), np.zeros((0, *values[1].shape[1:])), *values[2:]]
    size = values[1].shape[-1]
    gradients = rnn_bptt(*values, np.zeros((0, values[0].shape[1], size)))
    for gradient, value in zip(gradients, values, strict=True):
        assert gradient.shape == value.shape
        assert not gradient.any()
