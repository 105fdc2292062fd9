"""Linear attention and the delta rule: by hand, NumPy, all forms equal, gradients, memory."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from mutation import rejects_changes
from oracles import by_numpy, same_gradients, trained
from refusals import refused, refuses
from tolerances import FLOAT64
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course.functional import (
    AttentionFn,
    delta_rule,
    delta_rule_recurrent,
    delta_rule_step,
    elu_feature_map,
    linear_attention,
    linear_attention_fn,
    linear_attention_parallel,
    linear_attention_recurrent,
    linear_attention_step,
    performer_directions,
    performer_features,
)
from attn_course.functional.linear_attention import LinearState
from attn_course.probes import student

MODULE = "attn_course.functional.linear_attention"
FAST = "attn_course.functional._fast.linear_attention"
B, H, S, E, EV = 2, 3, 7, 5, 11
LENGTHS = (1, 2, 7, 13)


def inputs_of(length: int, keys: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    keys = length if keys is None else keys
    sizes = ((length, E), (keys, E), (keys, EV))
    query, key, value = (
        torch.randn(B, H, n, size, dtype=torch.float64, requires_grad=True) for n, size in sizes
    )
    return query, key, value


def first_of(*inputs: Tensor) -> list[Tensor]:
    return [x[:, :, 0] for x in inputs]


def nothing(*inputs: Tensor) -> list[Tensor]:
    return [x[:, :, :0] for x in inputs]


def check(attention: Callable[..., Tensor]) -> None:
    one = torch.ones(1, 1, 2, 1)
    value = torch.tensor([[[[2.0], [4.0]]]])
    assert attention(one, one, value).flatten().tolist() == [3.0, 3.0]
    assert attention(one, one, value, is_causal=True).flatten().tolist() == [2.0, 3.0]
    for length in LENGTHS:
        for causal in (False, True):
            inputs = inputs_of(length, length if causal else S)
            keys = inputs[1].shape[2]
            real = torch.rand(B, keys) < 0.6
            real[1] = False
            for padding in (None, real):
                got = attention(*inputs, is_causal=causal, padding_mask=padding)
                want = by_numpy.linear_attention(*inputs, is_causal=causal, padding_mask=padding)
                assert_close(got.detach(), want, **FLOAT64)
                table = linear_attention_parallel(*inputs, is_causal=causal, padding_mask=padding)
                same_gradients(got, table, inputs, rtol=1e-9, atol=1e-11)


def check_with_nan(attention: Callable[..., Tensor]) -> None:
    check(attention)
    value = torch.tensor([1.0, 3.0, torch.nan, torch.inf]).reshape(1, 1, 4, 1).requires_grad_()
    real = torch.tensor([[True, True, False, False]])
    same = {"feature_map": torch.ones_like, "padding_mask": real}
    one = torch.ones(1, 1, 4, 1)
    assert (attention(one, value, value, **same) == 2).all()
    output = attention(one, value, value, feature_map=torch.exp, padding_mask=real)
    assert torch.autograd.grad(output.sum(), value)[0].isfinite().all()


@pytest.mark.parametrize(
    "form",
    [
        *(partial(linear_attention, chunk_size=chunk) for chunk in (1, 3, 64)),
        *(linear_attention_parallel, linear_attention.__wrapped__),
    ],
)
def test_chunks_table_and_equation_agree_with_every_oracle(form: Callable[..., Tensor]) -> None:
    check_with_nan(form)


test_oracles_reject_a_changed_equation = rejects_changes(
    lambda wrong: check(wrong.__wrapped__),
    f"{MODULE}.linear_attention",
    ("pairs.cumsum(2), k.cumsum(2)", "pairs.cumsum(2), k.cumsum(3)"),
    ("pairs.cumsum(2), k.cumsum(2)", "pairs.sum(2, True), k.sum(2, True)"),
    ("(q * total).sum(-1", "q.sum(-1"),
)


test_oracles_reject_a_changed_line = rejects_changes(
    lambda wrong: check_with_nan(partial(wrong, chunk_size=3)), f"{FAST}.linear_attention",
    ("table @ z + x @ memory", "table @ z"),
    ("memory = memory + y.mT @ z", "memory = y.mT @ z"),
    ("table.triu() if backwards else table.tril()", "table.tril()"),
    ("reversed(starts) if backwards else starts", "starts"),
    ("product(grad, c, b, size, backwards)", "product(grad, c, b, size, not backwards)"),
    ("product(c, grad, a, size", "product(a, grad, c, size"),
    ("torch.where(real, value, 0.0)", "value"),
    ("torch.where(real, features, 0.0)", "features"),
    ("torch.where(real, key, 0.0)", "key"),
    ("torch.ones_like(v[..., :1])", "torch.zeros_like(v[..., :1])"),
)  # fmt: skip


def test_the_recurrent_form_is_the_parallel_one_and_goes_on_from_its_state() -> None:
    for length in LENGTHS:
        inputs = inputs_of(length)
        want = linear_attention_parallel(*inputs, is_causal=True)
        got, state = linear_attention_recurrent(*inputs)
        assert_close(got, want, rtol=1e-9, atol=1e-11)
        same_gradients(got, want, inputs, rtol=1e-9, atol=1e-11)
        assert state.memory.shape == (B, H, E, EV)
        assert state.total.shape == (B, H, E)
        if length > 1:
            cut = length // 2
            first, middle = linear_attention_recurrent(*(x[:, :, :cut] for x in inputs))
            second, end = linear_attention_recurrent(*(x[:, :, cut:] for x in inputs), state=middle)
            assert_close(torch.cat([first, second], dim=2), got)
            assert_close(end, state)
    row, _ = linear_attention_step(*first_of(*inputs), LinearState(*state))
    assert row.shape == (B, H, EV)


def test_transforms_see_the_equation() -> None:
    query, key, value = (x.detach()[:1] for x in inputs_of(5))
    direction = torch.randn_like(key)

    def causal(k: Tensor) -> Tensor:
        return linear_attention(query, k, value, is_causal=True)

    _, found = torch.func.jvp(causal, (key,), (direction,))
    step = 1e-6 * direction
    assert_close(found, (causal(key + step) - causal(key - step)) / 2e-6, rtol=1e-6, atol=1e-8)


def test_the_second_derivative() -> None:
    inputs = tuple(x[:1, :1, :, :2].detach().clone().requires_grad_() for x in inputs_of(5))

    def causal(*x: Tensor) -> Tensor:
        return linear_attention(*x, is_causal=True, chunk_size=2)

    assert torch.autograd.gradgradcheck(causal, inputs)


def test_training_memory_grows_with_the_length_only() -> None:
    step = partial(trained, partial(linear_attention, is_causal=True))
    small, large = (student.peak_memory(step, *torch.rand(3, 1, 1, n, 32)) for n in (512, 2048))
    assert large < 4.2 * small
    assert large < 2048 * 32 * 32 * 4  # one state for each position
    assert large < 2048 * 2048 * 4  # one table


def test_elu_features_are_positive_and_by_hand() -> None:
    found = elu_feature_map(torch.tensor([-math.log(4.0), 0.0, 2.0]))
    assert_close(found, torch.tensor([0.25, 1.0, 3.0]))
    x = torch.randn(50, dtype=torch.float64)
    assert_close(elu_feature_map(x), by_numpy.elu_feature_map(x))


@pytest.mark.parametrize("orthogonal", [False, True])
def test_performer_features_are_positive_and_unbiased(orthogonal: bool) -> None:
    size = 4
    q, k = 0.5 * torch.randn(2, 3, size, dtype=torch.float64)
    directions = performer_directions(40_000, size, orthogonal=orthogonal, dtype=torch.float64)
    phi_q, phi_k = performer_features(q, directions), performer_features(k, directions)
    assert (phi_q > 0).all()
    assert_close(phi_q, by_numpy.performer_features(q, directions))  # fmt: skip
    assert_close(phi_q @ phi_k.mT, (q @ k.mT / size**0.5).exp(), rtol=0.05, atol=0.01)


def test_orthogonal_directions_are_less_noisy() -> None:
    q, k = 0.5 * torch.randn(2, 1, 8, dtype=torch.float64)
    wanted, error = (q @ k.mT / 8**0.5).exp(), {}
    for orthogonal in (False, True):
        drawn = performer_directions(32_000, 8, orthogonal=orthogonal, dtype=torch.float64)
        features = [performer_features(x, drawn) * 32_000**0.5 for x in (q, k)]
        found = (features[0] * features[1]).unflatten(-1, (-1, 8)).mean(-1)  # 4,000 times eight
        error[orthogonal] = (found - wanted).square().mean().item()
    assert error[True] < 0.9 * error[False]
    group = performer_directions(5, 5)
    assert_close(group @ group.mT, torch.diag((group @ group.mT).diag()), atol=1e-4, rtol=0)
    assert performer_directions(7, 5).shape == (7, 5)


def test_it_stands_where_torchs_attention_stands() -> None:
    attend: AttentionFn = linear_attention_fn(chunk_size=3)
    heads = torch.randn(3, B, H, S, E)
    real = torch.ones(B, S, dtype=torch.bool)
    real[0, 4:] = False
    assert_close(attend(*heads, is_causal=True), linear_attention(*heads, is_causal=True))
    assert_close(attend(*heads, real[:, None, None]), linear_attention(*heads, padding_mask=real))
    for options in ({"scale": 1.0}, {"dropout_p": 0.1}, {"enable_gqa": True}):
        refused("scale, dropout_p, enable_gqa", attend, *heads, **options)
    refused("attn_mask: expected a boolean padding mask", attend, *heads, torch.ones(S, S) > 0)


def delta_inputs(length: int) -> tuple[Tensor, ...]:
    query, key = (torch.randn(B, H, length, E, dtype=torch.float64) for _ in range(2))
    value = torch.randn(B, H, length, EV, dtype=torch.float64)
    beta = torch.rand(B, H, length, dtype=torch.float64)
    return tuple(x.requires_grad_() for x in (query, F.normalize(key, dim=-1), value, beta))


def check_delta(rule: Callable[..., tuple[Tensor, Tensor]]) -> None:
    # by hand: 3 is stored under a key, then half of it is replaced by 5
    one = torch.ones(1, 1, 2, 1)
    value = torch.tensor([[[[3.0], [5.0]]]])
    found, state = rule(one, one, value, torch.tensor([[[1.0, 0.5]]]))
    assert found.flatten().tolist() == [3.0, 4.0]
    assert state.item() == 4.0
    for length in LENGTHS:
        inputs = delta_inputs(length)
        assert_close(rule(*inputs), by_numpy.delta_rule(*inputs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "rule", [delta_rule_recurrent, *(partial(delta_rule, chunk_size=chunk) for chunk in (1, 3, 64))]
)
def test_the_delta_rule_agrees_with_the_product_of_the_factors(rule: Callable[..., Any]) -> None:
    check_delta(rule)


def test_both_delta_rules_have_the_same_gradients_and_go_on_from_a_state() -> None:
    inputs = delta_inputs(13)
    start = torch.randn(B, H, EV, E, dtype=torch.float64, requires_grad=True)
    pushes = torch.randn(B, H, 13, EV, dtype=torch.float64), torch.randn_like(start)
    found = []
    for rule in (delta_rule_recurrent, lambda *a, **k: delta_rule(*a, **k, chunk_size=4)):
        results = rule(*inputs, state=start)
        found.append((*results, *torch.autograd.grad(results, (*inputs, start), pushes)))
    assert_close(found[0], found[1], rtol=1e-9, atol=1e-11)
    first, middle = delta_rule(*(x[:, :, :5] for x in inputs), state=start, chunk_size=4)
    second, end = delta_rule(*(x[:, :, 5:] for x in inputs), state=middle, chunk_size=4)
    assert_close(torch.cat([first, second], dim=2), found[0][0])
    assert_close(end, found[0][1])
    row, _ = delta_rule_step(*first_of(*inputs))
    assert_close(row, delta_rule(*inputs)[0][:, :, 0])


test_oracles_reject_a_changed_delta_rule = rejects_changes(
    lambda wrong: check_delta(lambda *a: wrong(*a, chunk_size=3)),
    f"{MODULE}.delta_rule",
    ("unitriangular=True", "unitriangular=False"),
    ("right = b.unsqueeze(-1) * v - scaled", "right = b.unsqueeze(-1) * v - k"),
    ("(q @ k.mT).tril() @ change", "(q @ k.mT).tril(-1) @ change"),
    ("state = state + change.mT @ k\n    return", "state = change.mT @ k\n    return"),
    ("q @ state.mT + ", ""),
)


REAL = torch.ones(B, S)
test_what_does_not_fit_is_refused = refuses(
    (lambda q, k, v: linear_attention(q, k[..., 1:], v), "key: expected size 5"),
    (lambda q, k, v: linear_attention(q, k, v[:, :, 1:]), "value: expected size 7"),
    (lambda q, k, v: linear_attention(q[:, :, 1:], k, v, is_causal=True), "key: expected"),
    (lambda q, k, v: linear_attention(q, k, v, chunk_size=0), "chunk_size"),
    (lambda q, k, v: linear_attention(q, k, v, padding_mask=REAL[:1, :2].bool()),
     "padding_mask: expected a boolean mask of shape"),
    (lambda q, k, v: linear_attention_recurrent(*nothing(q, k, v)), "query"),
    (lambda q, k, v: delta_rule_recurrent(*nothing(q, k, v), q[:, :, :0, 0]), "query"),
    (lambda q, k, v: delta_rule(q, k, v, q[:, :, 1:, 0]), "beta: expected shape"),
    (lambda q, k, v: delta_rule(q, k, v, q[..., 0], chunk_size=0), "chunk_size"),
    (lambda q, k, v: performer_directions(0, 2), "num_features"),
    (lambda q, k, v: performer_features(q, torch.randn(3, 4)), "directions: expected size"),
    (lambda q, k, v: performer_features(q, q.new_zeros(0, q.shape[-1])), "directions"),
    (lambda q, k, v: linear_attention(q, k, v.float()), "value: expected torch.float64"),
    (lambda q, k, v: linear_attention(q, k, v, padding_mask=REAL), "padding_mask: .*float32"),
    (lambda q, k, v: linear_attention_step(q, k, v), "query: expected axes"),
    (lambda q, k, v: linear_attention_step(*first_of(q, k[:, :1], v)), "key: expected shape"),
    (lambda q, k, v: linear_attention_step(*first_of(q, k, v), LinearState(v[:, :, :2], k)),
     "state.memory: expected shape"),
    (lambda q, k, v: delta_rule(q, k, v, q[..., 0], state=v), "state: expected shape"),
    (lambda q, k, v: delta_rule(q, k, v, q[..., 0].float()), "beta: expected torch.float64"),
    (lambda q, k, v: delta_rule_step(*first_of(q, k, v), q[:, :1, 0, 0]), "beta: expected shape"),
    given=lambda: inputs_of(S),
)  # fmt: skip
