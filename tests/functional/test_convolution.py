"""Causal convolution: by hand, the reference, gradients, and planted mistakes."""

from collections.abc import Callable
from functools import partial

import torch
from mutation import mutant, rejects_changes
from oracles import by_numpy
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import functional

MODULE = "attn_course.functional.convolution"
Function = Callable[..., Tensor]


def check(function: Function) -> None:
    x = torch.tensor([[[1.0], [2.0], [3.0], [4.0]]])
    weight = torch.tensor([[[10.0, 1.0]]])  # ten times the one before, and itself
    assert function(x, weight).flatten().tolist() == [1, 12, 23, 34]
    assert function(x, weight, dilation=2).flatten().tolist() == [1, 2, 13, 24]
    x, weight, bias = (torch.randn(n, dtype=torch.float64) for n in ((2, 11, 3), (5, 3, 4), (5,)))
    for dilation in (1, 2, 7):
        oracle = by_numpy.causal_convolution(x, weight, bias, dilation=dilation)
        ours = function(x, weight, bias, dilation=dilation)
        assert_close(ours, oracle, **FLOAT64)
        leaves = [part.clone().requires_grad_() for part in (x, weight, bias)]
        call = partial(function, dilation=dilation)
        assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    assert_close(function(x, weight), by_numpy.causal_convolution(x, weight), **FLOAT64)


def test_agrees_with_every_oracle() -> None:
    check(functional.causal_convolution)


test_oracles_reject_a_changed_line = rejects_changes(
    check,
    f"{MODULE}.causal_convolution",
    ("(before, 0)", "(0, before)"),
    ("(weight.shape[-1] - 1) * dilation", "(weight.shape[-1] - 1)"),
    ("padded, weight, bias", "padded, weight.flip(-1), bias"),
    ("padded, weight, bias", "padded, weight, None"),
    ("padded, weight, bias", "padded.detach(), weight, bias"),
)


def test_bad_arguments_are_refused() -> None:
    function = mutant(MODULE, "causal_convolution", "def ", "def ")  # without checks of shapes
    x = torch.zeros(2, 3, 5)
    refused("weight: expected size 5 on axis 1", function, x, torch.zeros(7, 3, 2))
    refused("dilation: expected at least 1, got 0", function, x, torch.zeros(7, 5, 2), dilation=0)
    refused(r"x: expected axes \(B L D\)", function, x[0], torch.zeros(7, 5, 2))
