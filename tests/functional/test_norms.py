"""Norms: values by hand, the reference, torch forward and backward, and planted mistakes."""

from collections.abc import Callable

import pytest
import torch
from mutation import REJECTED, mutant, passes, rejects_changes
from oracles import agree, by_numpy
from refusals import refused
from tolerances import BFLOAT16_ROUNDING, FLOAT64
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course import functional

MODULE = "attn_course.functional.norms"
Function = Callable[..., Tensor]
B, L, D = 3, 5, 7


def inputs(*sizes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(size, dtype=torch.float64) + 0.5 for size in sizes]


def check_layer_norm(function: Function) -> None:
    by_hand = torch.tensor([[-1.0, 1.0, -1.0, 1.0]])
    assert_close(function(torch.tensor([[3.0, 7.0, 3.0, 7.0]]), eps=0.0), by_hand)
    x, weight, bias = inputs((B, L, D), (D,), (D,))
    agree(
        lambda x, w, b: function(x, w, b, 0.03),
        lambda x, w, b: F.layer_norm(x, (D,), w, b, 0.03),
        lambda x, w, b: by_numpy.layer_norm(x, w, b, 0.03),
        x, weight, bias,
    )  # fmt: skip
    agree(function, lambda x: F.layer_norm(x, (D,)), by_numpy.layer_norm, x)
    # a mean a thousand times the spread: squares must not be taken before the mean
    far = 1000 + torch.randn(11, 131)
    assert_close(function(far), by_numpy.layer_norm(far).float(), rtol=1e-4, atol=1e-4)
    half = (3 + torch.randn(11, 131)).bfloat16()
    oracle = by_numpy.layer_norm(half.double())
    assert function(half).dtype == torch.bfloat16
    assert_close(function(half).double(), oracle, **BFLOAT16_ROUNDING)


def check_rms_norm(function: Function) -> None:
    by_hand = torch.tensor([[0.6, 0.8]]) * 2**0.5
    assert_close(function(torch.tensor([[3.0, 4.0]]), eps=0.0), by_hand)
    x, weight = inputs((B, L, D), (D,))
    agree(
        lambda x, w: function(x, w, 0.03),
        lambda x, w: F.rms_norm(x, (D,), w, 0.03),
        lambda x, w: by_numpy.rms_norm(x, w, 0.03),
        x, weight,
    )  # fmt: skip
    agree(function, lambda x: F.rms_norm(x, (D,), eps=1e-6), by_numpy.rms_norm, x)
    half = torch.full((2, 131), 300.0, dtype=torch.float16)  # squares overflow in half precision
    assert_close(function(half), torch.ones_like(half))
    half = torch.randn(11, 131).bfloat16()
    assert_close(function(half).double(), by_numpy.rms_norm(half.double()), **BFLOAT16_ROUNDING)


def check_batch_norm(function: Function) -> None:
    by_hand = torch.tensor([[[-1.0, -1.0]], [[1.0, 1.0]]])
    assert_close(function(torch.tensor([[[3.0, 5.0]], [[7.0, 5.5]]]), eps=0.0), by_hand)

    def theirs(x: Tensor, w: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        return F.batch_norm(x.mT, None, None, w, b, training=True, eps=0.03).mT

    x, weight, bias = inputs((B, L, D), (D,), (D,))
    agree(
        lambda x, w, b: function(x, w, b, 0.03),
        theirs,
        lambda x, w, b: by_numpy.batch_norm(x, w, b, 0.03),
        x, weight, bias,
    )  # fmt: skip
    # with a mask: torch on the tokens that count, alone
    mask = torch.arange(L) < torch.tensor([5, 2, 3])[:, None]

    def chosen(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        normal = F.batch_norm(x[mask], None, None, w, b, training=True, eps=0.03)
        return torch.zeros_like(x).masked_scatter(mask.unsqueeze(-1), normal)

    agree(
        lambda x, w, b: function(x, w, b, 0.03, mask=mask),
        chosen,
        lambda x, w, b: by_numpy.batch_norm(x, w, b, 0.03, mask=mask),
        x, weight, bias,
    )  # fmt: skip
    wild = x.masked_fill(~mask.unsqueeze(-1), torch.nan)
    assert_close(function(wild, mask=mask), function(x, mask=mask), **FLOAT64)
    half = (3 + torch.randn(11, 13, 7)).bfloat16()
    assert_close(function(half).double(), by_numpy.batch_norm(half.double()), **BFLOAT16_ROUNDING)


CHECKS = {
    "layer_norm": check_layer_norm,
    "rms_norm": check_rms_norm,
    "batch_norm": check_batch_norm,
}


test_agrees_with_every_oracle = passes(CHECKS, functional)


test_oracles_reject_a_changed_line = rejects_changes(
    CHECKS, MODULE,
    ("layer_norm", "wide - wide.mean(-1, keepdim=True)", "wide"),
    ("layer_norm", "wide.mean(-1, keepdim=True)\n", "wide.mean()\n"),
    ("layer_norm", "centred.square().mean(-1, keepdim=True)", "wide.var(-1, keepdim=True)"),
    ("layer_norm", "centred.square().mean(-1, keepdim=True)", "centred.square().mean()"),
    ("layer_norm", "(variance + eps).rsqrt()", "(variance.sqrt() + eps).reciprocal()"),
    ("layer_norm", "(variance + eps).rsqrt()", "(variance + eps).rsqrt().detach()"),
    ("layer_norm", "weight, bias).to(x.dtype)", "weight, None).to(x.dtype)"),
    ("layer_norm", "widen(\"x\", x)", "x"),
    ("layer_norm", "centred.square().mean(-1, keepdim=True)",
     "wide.square().mean(-1, keepdim=True) - wide.mean(-1, keepdim=True).square()"),
    ("rms_norm", "wide.square().mean(-1, keepdim=True)", "wide.var(-1, keepdim=True)"),
    ("rms_norm", "wide.square().mean(-1, keepdim=True)", "wide.square().sum(-1, keepdim=True)"),
    ("rms_norm", "eps: float = 1e-6", "eps: float = 1e-2"),
    ("rms_norm", "widen(\"x\", x)", "x"),
    ("batch_norm", "tuple(range(x.ndim - 1))", "0"),
    ("batch_norm", "tuple(range(x.ndim - 1))", "x.ndim - 1, True"),
    ("batch_norm", "(wide - mean).masked_fill(~counts, 0.0)", "(wide - mean)"),
    ("batch_norm", "return normal.masked_fill(~counts, 0.0)", "return normal"),
    ("batch_norm", "counts.sum().clamp(min=1)", "mask.numel()"),
    error=(*REJECTED, TypeError),
)  # fmt: skip


def test_constant_and_empty_rows_give_numbers() -> None:
    for function in (functional.layer_norm, functional.rms_norm, functional.batch_norm):
        x = torch.zeros(2, 3, 5, requires_grad=True)
        output = function(x)
        (grad,) = torch.autograd.grad(output.sum(), x)
        assert (output == 0).all()
        assert grad.isfinite().all()
    none = torch.zeros(2, 3, dtype=torch.bool)
    assert (functional.batch_norm(torch.randn(2, 3, 5), mask=none) == 0).all()


@pytest.mark.parametrize("name", CHECKS)
def test_bad_arguments_are_refused(name: str) -> None:
    function = mutant(MODULE, name, "def ", "def ")  # without the checks of shapes
    refused("x: expected a floating point tensor", function, torch.zeros(2, 3, 5).long())
    refused("weight: expected size 5 on axis -1", function, torch.zeros(2, 3, 5), torch.ones(3))
    refused(r"x: expected axes \(..., D\)", function, torch.tensor(1.0))
    if name == "batch_norm":
        mask, said = torch.ones(2, 5, dtype=torch.bool), r"a boolean mask of shape \(2, 3\)"
        refused(f"mask: expected {said}", function, torch.zeros(2, 3, 5), mask=mask)
