"""Copy, softmax, layer norm, matmul: the interpreter against float64, at ragged sizes."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from kernel_mutation import DEVICE, mutated
from oracles import agrees_with_float64
from processes import python
from refusals import refused
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course import kernels

SHAPES = [(1, 1), (3, 7), (37, 61), (5, 257), (2, 3, 33)]


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


@pytest.mark.parametrize("size", [0, 1, 7, 1024, 1037])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_copy_is_the_same_to_the_last_entry(size: int, dtype: torch.dtype) -> None:
    source = randn(size, dtype=dtype)
    assert torch.equal(kernels.copy(source, block_size=256), source)


def test_copy_of_a_transposed_tensor_keeps_its_places() -> None:
    source = randn(5, 7)
    assert torch.equal(kernels.copy(source.mT), source.mT)


@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_and_its_gradient_are_those_of_float64(shape: tuple[int, ...]) -> None:
    agrees_with_float64(kernels.softmax, lambda x: x.softmax(-1), 5 * randn(*shape))


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0,), (2, 0, 3)])
def test_softmax_of_nothing_is_nothing(shape: tuple[int, ...]) -> None:
    assert kernels.softmax(torch.zeros(shape)).shape == shape


def test_softmax_holds_large_scores_and_empty_rows() -> None:
    scores = torch.tensor([[1e4, 1e4 - 1, -1e30], [-torch.inf] * 3, [-torch.inf, 3.0, 3.0]])
    scores = scores.to(DEVICE).requires_grad_()
    weights = kernels.softmax(scores)
    expected = scores.detach().double().softmax(-1).nan_to_num(0.0).float()
    assert_close(weights, expected)
    (weights * torch.arange(3, device=DEVICE)).sum().backward()
    assert torch.equal(scores.grad[1], torch.zeros(3, device=DEVICE))
    assert scores.grad.isfinite().all()


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias)


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm_and_its_gradients_are_those_of_float64(shape: tuple[int, ...]) -> None:
    inputs = 3 + randn(*shape), randn(shape[-1]), randn(shape[-1])
    # a mean of 3 costs two digits
    agrees_with_float64(kernels.layer_norm, layer_norm, *inputs, rtol=1e-4, atol=1e-4)


def test_layer_norm_sums_the_gradients_of_more_rows_than_programs() -> None:
    module = sys.modules["attn_course.kernels.layer_norm"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PROGRAMS", 3)
        inputs = randn(101, 307), randn(307), randn(307)
        agrees_with_float64(kernels.layer_norm, layer_norm, *inputs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (37, 41, 23), (64, 16, 32), (5, 97, 130)])
def test_matmul_and_its_gradients_are_those_of_float64(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    close = {"rtol": 1e-5, "atol": 1e-5}
    agrees_with_float64(kernels.matmul, torch.matmul, randn(m, k), randn(k, n), **close)


def test_matmul_reads_a_transposed_factor_in_place() -> None:
    a, b = randn(29, 37), randn(43, 29)
    assert_close(kernels.matmul(a.mT, b.mT), a.mT @ b.mT, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "right", "shapes"), [
    ("softmax", partial(torch.softmax, dim=-1), [(17, 19)]),
    ("layer_norm", layer_norm, [(17, 19), (19,), (19,)]),
    ("matmul", torch.matmul, [(17, 19), (19, 23)]),
])  # fmt: skip
def test_half_precision_comes_back_as_half_precision(name, right, shapes):
    inputs = [randn(*shape, dtype=torch.float16) for shape in shapes]
    assert_close(getattr(kernels, name)(*inputs), right(*(x.double() for x in inputs)).half())


MUTANTS = {
    "the edge is not -inf": ("softmax", 'other=-float("inf")', "other=0.0"),
    "no maximum": ("softmax", "tl.exp(x - top)", "tl.exp(x)"),
    "the gradient forgets the sum": ("softmax", "y * (dy - tl.sum(y * dy, axis=1, keep_dims=True))",
        "y * dy"),
    "the edge counts in the variance": ("layer_norm", "tl.where(inside, x - mean[:, None], 0.0)",
        "x - mean[:, None]"),
    "the gradient forgets the mean": ("layer_norm", "[:, None] - level[:, None]", "[:, None]"),
    "the ragged end of K is read": ("matmul", "left = K - start", "left = K"),
    "the last block is left out": ("matmul", "(0, K, BLOCK_K)", "(0, K - BLOCK_K, BLOCK_K)"),
    "a block is copied without its edge": ("copy", "triton.cdiv(source.numel(), block_size)",
        "source.numel() // block_size"),
}  # fmt: skip


def _copy_oracle(function: Callable[..., Tensor]) -> None:
    source = torch.arange(1037.0, device=DEVICE)
    assert_close(function(source, block_size=256), source)


def _softmax_oracle(function: Callable[..., Tensor]) -> None:
    for scores in (60 * randn(3, 7) + 60, randn(3, 7) - 5):
        agrees_with_float64(function, lambda x: x.softmax(-1), scores)


def _layer_norm_oracle(function: Callable[..., Tensor]) -> None:
    inputs = 3 + randn(3, 7), randn(7), randn(7)
    agrees_with_float64(function, layer_norm, *inputs, rtol=1e-4, atol=1e-4)


def _matmul_oracle(function: Callable[..., Tensor]) -> None:
    a, b = randn(7, 64)[:, :41], randn(64, 5)[:41]  # numbers lie behind the edge
    assert_close(function(a, b), a @ b, rtol=1e-5, atol=1e-5)
    agrees_with_float64(function, torch.matmul, a, b, rtol=1e-5, atol=1e-5)


ORACLES = {
    "copy": _copy_oracle, "softmax": _softmax_oracle, "layer_norm": _layer_norm_oracle,
    "matmul": _matmul_oracle,
}  # fmt: skip


@pytest.mark.parametrize("name", ORACLES)
def test_the_oracles_accept_what_we_ship(name: str) -> None:
    ORACLES[name](getattr(kernels, name))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fault", MUTANTS)
def test_the_oracles_reject_planted_mistakes(fault: str, tmp_path: Path) -> None:
    name, old, new = MUTANTS[fault]
    wrong = getattr(mutated(tmp_path, name, old, new), name)
    with pytest.raises(AssertionError):
        ORACLES[name](wrong)


def test_without_gpu_and_interpreter_the_message_says_what_to_use() -> None:
    code = (
        "import torch; from attn_course import kernels\n"
        "try: kernels.softmax(torch.ones(2, 3))\n"
        "except ValueError as error: print(error)"
    )
    done = python("-c", code, env={**os.environ, "TRITON_INTERPRET": "0"})
    assert "attn_course.functional.softmax" in done.stdout
    assert "TRITON_INTERPRET=1" in done.stdout


def test_what_the_kernels_cannot_do_is_refused_by_name() -> None:
    rows = torch.ones(3, 5)
    refused("scores: expected float16, bfloat16 or float32", kernels.softmax, rows.double())
    refused(r"b: expected size 5 on axis 0, got shape \(3, 5\)", kernels.matmul, rows, rows)
    refused("block_size: expected a power of two, got 100", kernels.copy, rows, block_size=100)
    if DEVICE == "cpu":
        brain = torch.ones(2, 3, 3, dtype=torch.bfloat16)
        refused(r"a: .* tl\.dot is wrong for bfloat16", kernels.matmul, *brain)
