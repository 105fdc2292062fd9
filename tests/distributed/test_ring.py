"""Sharded attention in 2 and 4 real processes: exact, counted, refused by all together."""

from typing import Any

import pytest
import ring_cases
import torch
import torch.distributed as dist
from mutation import mutant
from oracles import same_gradients
from refusals import refused
from torch.testing import assert_close

from attn_course.distributed import launch, ring_attention, ulysses_attention
from attn_course.distributed.traffic import counted
from attn_course.functional import scaled_dot_product_attention

# largest difference of an output and of a gradient; bfloat16 keeps 8 bits, and a gradient's
# entries are a few units large
CLOSE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 0.05}


@pytest.fixture(scope="module", params=[2, 4])
def found(request: Any) -> list[dict[str, Any]]:
    """What every process has found; they are started once for all tests."""
    assert ring_cases.names() == []
    return launch(ring_cases.run_all, request.param, timeout=150)


@pytest.mark.parametrize("dtype", CLOSE)
def test_output_and_gradients_are_those_of_attention_to_the_whole(found, dtype):
    names = [name for name in found[0] if name.startswith(dtype)]
    assert len(names) >= 10
    for name in names:
        worst = max(max(one[name]) for one in found)
        assert worst < CLOSE[dtype], name


def test_planted_faults_are_seen(found):
    names = [name for name in found[0] if name.startswith("mutant")]
    assert len(names) == len(ring_cases.MUTANTS)
    for name in names:
        assert max(one[name] for one in found) > 1e-3, name


def test_messages_and_bytes_are_those_of_the_schedule(found):
    P = len(found)
    shard = 2 * 2 * 12 * (5 + 7) * 4  # batch, heads, positions, sizes of key and value, float32
    for one in found:
        for layout in ("contiguous", "zigzag", "striped"):
            forward, both = one[f"counts {layout}"]
            assert (forward["messages"], forward["nbytes"]) == (P - 1, (P - 1) * shard)
            assert both["messages"] == P - 1 + 2 * P - 1
            # keys and values once more, and their gradients until they are home again
            assert both["nbytes"] == (P - 1) * shard + (P - 1) * shard + P * shard


def test_the_work_of_a_causal_mask_is_shared_out_by_zigzag_alone(found):
    P, n = len(found), 12
    pairs = {
        layout: [one[f"counts {layout}"][0]["pairs"] for one in found]
        for layout in ("contiguous", "zigzag", "striped")
    }
    whole = P * n * (P * n + 1) // 2
    assert [sum(each) for each in pairs.values()] == [whole] * 3
    assert pairs["contiguous"] == [n * n * rank + n * (n + 1) // 2 for rank in range(P)]
    assert len(set(pairs["zigzag"])) == 1
    assert max(pairs["striped"]) - min(pairs["striped"]) == n * (P - 1)
    skipped = [one["counts contiguous"][0]["skipped"] for one in found]
    assert skipped == [P - 1 - rank for rank in range(P)]
    assert all(one["counts zigzag"][0]["skipped"] == 0 for one in found)


def test_an_exchange_sends_all_but_the_own_part_and_comes_back(found):
    P = len(found)
    for one in found:
        traffic, shape = one["counts exchange"]
        assert (traffic["messages"], traffic["nbytes"]) == (P - 1, (P - 1) * 3 * 5 * 4)
        assert shape == (1, 1, 3 * P, 5)
        assert one["exchange comes back"]


def test_nothing_as_large_as_the_table_of_scores_is_made(found):
    for one in found:
        largest, table = one["largest"]
        assert largest <= table / len(found) ** 2 < table


REFUSALS = {
    "refused heads": ("query heads: expected the same in all processes", None),
    "refused alone": ("got a refusal in 1", "key: expected shape (1, 2, 4, 3)"),
    "refused mask": ("is_causal: expected the same", None),
    "refused scale": ("scale: expected the same", None),
    "refused lengths": ("key: expected equal shards for layout zigzag, got [4, 2", None),
    "refused ulysses lengths": ("query: expected equal shards", None),
    "refused ulysses": ("query: expected a number of heads that the", None),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_all_refuse_what_one_cannot_do(found, name):
    common, in_one = REFUSALS[name]
    for rank, one in enumerate(found):
        wanted = in_one if in_one and rank == 1 else common
        assert wanted in one[name]


def test_a_group_without_this_process_is_refused(found):
    said = [one["outside"] for one in found if "outside" in one]
    assert len(said) == (2 if len(found) == 4 else 0)
    assert all("group: expected one with this process in it" in each for each in said)


@pytest.fixture
def alone():
    """A process group of one, in this process, where shapes are checked."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("attention", [ring_attention, ulysses_attention])
def test_a_ring_of_one_is_attention_and_sends_nothing(attention, is_causal):
    parts = [torch.randn(2, 3, 7, 5, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    with counted() as traffic:
        output = attention(*parts, is_causal=is_causal)
    expected = scaled_dot_product_attention(*parts, is_causal=is_causal)
    assert_close(output, expected)
    same_gradients(output, expected, parts)
    assert (traffic.messages, traffic.nbytes) == (0, 0)


@pytest.mark.usefixtures("alone")
def test_a_kernel_of_ones_own_computes_the_blocks():
    """The Triton kernels fit: forward as they are, backward by their operator."""
    pytest.importorskip("triton")
    from attn_course.distributed.ring import Block
    from attn_course.kernels import flash_attention_with_lse

    def backward(query, key, value, output, lse, grad, *, is_causal, scale):
        return torch.ops.attn_course.flash_attention_backward(
            query, key, value, output, lse, grad, torch.zeros_like(lse), is_causal, None, scale
        )

    parts = [torch.randn(1, heads, 17, 16, requires_grad=True) for heads in (4, 2, 2)]
    options = {"is_causal": True, "enable_gqa": True}
    output = ring_attention(*parts, **options, block=Block(flash_attention_with_lse, backward))
    expected = scaled_dot_product_attention(*parts, **options)
    assert_close(output, expected)
    same_gradients(output, expected, parts)


@pytest.mark.usefixtures("alone", "unchecked")
def test_what_does_not_fit_is_named():
    x = torch.zeros(1, 2, 3, 4)
    for inputs, options, message in (
        ((x[0], x, x), {}, r"query: expected axes \(B H L E\), got shape \(2, 3, 4\)"),
        ((x, x[:, :, :0], x[:, :, :0]), {}, r"key: expected at least one position"),
        ((x, x, x.double()), {}, r"value: expected torch.float32 as query, got torch.float64"),
        ((x, x[:, :1], x[:, :1]), {}, r"key: expected 2 heads, got 1"),
        ((x, x, x[:, :, :2]), {}, r"value: expected shape \(1, 2, 3\) and a head size"),
        ((x, x, x), {"layout": "round"}, r"layout: expected one of contiguous, zigzag, striped"),
        ((x, x, x), {"layout": "zigzag", "is_causal": True}, r"query: expected an even number"),
        ((x, x[:, :, :2], x[:, :, :2]), {"is_causal": True}, r"key: expected as many keys as"),
    ):
        refused(message, ring_attention, *inputs, **options)


@pytest.mark.parametrize("attention", [ring_attention, ulysses_attention])
def test_without_a_process_group_it_says_how_to_get_one(attention):
    x = torch.zeros(1, 2, 3, 4)
    refused(r"group: expected a process group, got none: .*torchrun", attention, x, x, x)


@pytest.mark.usefixtures("alone")
def test_a_backward_without_the_mean_is_seen():
    """D of the backward pass, in the part of functional that the ring uses."""
    wrong = mutant(
        "attn_course.functional.tiled_attention", "_tiled_gradients",
        "(grad.to(dtype) * output.to(dtype)).sum(-1) - lse_grad", "0 * lse_grad",
    )  # fmt: skip
    from attn_course.functional.tiled_attention import _tiled_gradients

    parts = [torch.randn(1, 1, 1, 5, 3, dtype=torch.float64) for _ in range(5)]
    lse = torch.logsumexp(parts[0] @ parts[1].mT, -1)
    inputs = (*parts[:4], lse, parts[4], torch.zeros_like(lse), False, 1.0)
    assert (wrong(*inputs)[0] - _tiled_gradients(*inputs)[0]).abs().max() > 1e-3
