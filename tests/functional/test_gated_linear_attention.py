"""Gated linear attention: by hand, NumPy, both kinds of gate, gradients, a state, long decays."""

import pytest
import torch
from oracles import by_numpy
from refusals import refuses
from torch import Tensor
from torch.testing import assert_close

from attn_course.functional import gated_linear_attention

B, H, E, EV = 2, 3, 4, 5


def inputs(length: int, gates: int = E) -> tuple[Tensor, ...]:
    torch.manual_seed(length)
    query, key = (torch.randn(B, H, length, E, dtype=torch.float64) for _ in range(2))
    value = torch.randn(B, H, length, EV, dtype=torch.float64)
    log_gate = -torch.rand(B, H, length, gates, dtype=torch.float64)
    return tuple(x.requires_grad_() for x in (query, key, value, log_gate))


def test_by_hand() -> None:
    one = torch.ones(1, 1, 3, 1)
    value = torch.tensor([1.0, 2.0, 4.0]).reshape(1, 1, 3, 1)
    output, state = gated_linear_attention(one, one, value, torch.full((1, 1, 3, 1), 0.5).log())
    assert_close(output.flatten(), torch.tensor([1.0, 2.5, 5.25]))
    assert_close(state.item(), 5.25)


@pytest.mark.parametrize("gates", [1, E])
@pytest.mark.parametrize("chunk", [1, 3, 64])
@pytest.mark.parametrize("length", [1, 7, 12])
def test_chunks_agree_with_the_steps(length: int, chunk: int, gates: int) -> None:
    given = inputs(length, gates)
    found = gated_linear_attention(*given, chunk_size=chunk)
    assert_close(found, by_numpy.gated_linear_attention(*given), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("gates", [1, E])
def test_gradients_and_a_state(gates: int) -> None:
    given = inputs(7, gates)
    start = torch.randn(B, H, EV, E, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda *a: gated_linear_attention(*a[:4], state=a[4], chunk_size=3),
        (*given, start), fast_mode=True,
    )  # fmt: skip
    first, middle = gated_linear_attention(*(x[:, :, :4] for x in given), state=start)
    second, end = gated_linear_attention(*(x[:, :, 4:] for x in given), state=middle)
    output, state = gated_linear_attention(*given, state=start)
    assert_close(torch.cat([first, second], dim=2), output)
    assert_close(end, state)


def test_small_gates_overflow_nowhere() -> None:
    query, key, value, _ = (x.detach().float() for x in inputs(64))
    log_gate = torch.full_like(query, -50.0).requires_grad_()
    output, _ = gated_linear_attention(query, key, value, log_gate)
    assert_close(output, (query * key).sum(-1, keepdim=True) * value)  # only the last pair is left
    output.sum().backward()
    assert log_gate.grad.isfinite().all()


gated = gated_linear_attention
test_bad_input_is_named = refuses(
    (lambda *a: gated(*a[:3], a[3][..., :2]), r"log_gate: expected shape \(2, 3, 7, 4\)"),
    (lambda *a: gated(*a[:3], a[3][..., :1].float()), "log_gate: expected torch.float64"),
    (lambda *a: gated(*a, state=torch.zeros(B, H, EV, E)), "state: expected torch.float64"),
    (lambda *a: gated(*a, chunk_size=0), "chunk_size"),
    given=lambda: inputs(7),
)
