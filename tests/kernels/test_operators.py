"""What the operators of all kernels promise to torch: fake results, gradients, whole graphs."""

from functools import partial
from typing import Any

import pytest
import torch
from kernel_mutation import DEVICE
from torch import Tensor
from torch.testing import assert_close

from attn_course import kernels

pytestmark = pytest.mark.usefixtures("unchecked")
HEADS, ROWS = (1, 2, 19, 16), (1, 1, 5, 3)
ONE, PAGES, LENGTHS = (2, 2, 16), (5, 4, 1, 16), torch.tensor([5, 3], device=DEVICE)
TABLE = torch.tensor([[4, 2], [0, 3]], device=DEVICE).int()
# name: (shapes of the tensors with a gradient, shapes of those without, the other arguments)
OPERATORS: dict[str, tuple[list[tuple[int, ...]], list[tuple[int, ...]], tuple[Any, ...]]] = {
    "softmax": ([(3, 5)], [], ()),
    "layer_norm": ([(3, 5), (5,), (5,)], [], (1e-5,)),
    "matmul": ([(3, 5), (5, 7)], [], ()),
    "flash_attention": ([(1, 4, 5, 16), (1, 2, 7, 16), (1, 2, 7, 16)], [], (True, None, 0.25)),
    "causal_linear_attention": ([HEADS] * 3, [], (16,)),
    "banded_matmul": ([ROWS] * 2, [], (1, 3, 1, 0.0)),
    "banded_sum": ([ROWS] * 2, [], (1, 1, False)),
    "decode_attention": ([], [ONE, (2, 1, 5, 16), (2, 1, 5, 16)], (LENGTHS, 0.25, 2)),
    "paged_decode_attention": ([], [ONE, PAGES, PAGES], (TABLE, LENGTHS, 0.25, 2)),
}


@pytest.fixture(autouse=True)
def any_order() -> None:
    torch.use_deterministic_algorithms(False)  # two runs are compared


@pytest.mark.parametrize("name", OPERATORS)
def test_the_operators_keep_what_they_promise_to_torch(name: str) -> None:
    trained, fixed, rest = OPERATORS[name]
    inputs: list[Any] = [torch.randn(shape, device=DEVICE).requires_grad_() for shape in trained]
    inputs += [torch.randn(shape, device=DEVICE) for shape in fixed]
    torch.library.opcheck(getattr(torch.ops.attn_course, name).default, (*inputs, *rest))


@pytest.mark.parametrize("attention", [
    partial(kernels.flash_attention, is_causal=True),
    partial(kernels.causal_linear_attention, chunk_size=16),
], ids=["flash", "linear"])  # fmt: skip
def test_attention_compiles_without_a_break_in_the_graph(attention: Any) -> None:
    inputs = [torch.rand(HEADS, device=DEVICE).requires_grad_() for _ in range(3)]

    def model(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(2 * query, key, value).sin()

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    one, other = model(*inputs), compiled(*inputs)
    assert_close(one, other)
    assert_close(torch.autograd.grad(one.sum(), inputs), torch.autograd.grad(other.sum(), inputs))
