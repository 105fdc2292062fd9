"""Sparse attention against full attention under the pattern's mask, in float64."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from mutation import mutant
from oracles import same_gradients, same_hessians, trained
from refusals import refused
from torch import Tensor
from torch.testing import assert_close

from attn_course.functional import (
    Pattern,
    blockwise_pattern,
    causal_pattern,
    fixed_pattern,
    global_pattern,
    patterns,
    random_pattern,
    sliding_window_attention,
    sparse_attention,
    strided_pattern,
    window_pattern,
)
from attn_course.functional import scaled_dot_product_attention as sdpa
from attn_course.probes import student

HEADS = 3
LENGTHS = (1, 2, 7, 31, 67, 131, 197)


def chosen(*lead: int) -> Tensor:
    """Few global positions, for any length."""
    return torch.rand(*lead, 197) < 0.05


# name: a draw to a pattern of another size each time
MADE: dict[str, Callable[[random.Random], Pattern]] = {
    "window": lambda d: window_pattern(
        window_size=d.choice([1, 3, 17, 301]), dilation=d.choice([1, 2, [1, 1, 4]])
    ),
    "causal window": lambda d: window_pattern(
        window_size=d.choice([1, 2, 16]), dilation=d.choice([1, 3]), is_causal=True
    ),
    "strided": lambda d: strided_pattern(stride=d.choice([1, 2, 5, 14, 65, 300])),
    "fixed": lambda d: fixed_pattern(
        stride=d.choice([3, 5, 14, 70, 300]), summary=d.choice([1, 3])
    ),
    "blocks": lambda d: blockwise_pattern(block_size=d.choice([1, 6, 70, 300])),
    "blocks shifted": lambda d: blockwise_pattern(
        block_size=d.choice([7, 70]), shifts=d.choice([[0, 1, 2], [2, 2, 1]]), num_blocks=4
    ),
    "random": lambda d: random_pattern(
        block_size=d.choice([3, 20]), num_blocks=9, per_block=2, num_heads=d.choice([1, 3])
    ),
    "global": lambda d: global_pattern(chosen(*d.choice([(), (2,)]))),
    "BigBird": lambda d: (
        random_pattern(block_size=16, num_blocks=9, per_block=2, num_heads=d.choice([1, 3]))
        | window_pattern(window_size=d.choice([5, 33]), dilation=d.choice([1, [1, 2, 3]]))
        | global_pattern(chosen(*d.choice([(), (2,)])))
    ),
    "strided and causal window": lambda d: (
        causal_pattern() & (strided_pattern(stride=11) | window_pattern(window_size=7))
    ),
}


def case(seed: int, name: str) -> tuple[Pattern, dict[str, Any], Tensor | None, int]:
    draw = random.Random(f"{seed} {name}")
    torch.manual_seed(draw.randrange(1000))
    length = draw.choice(LENGTHS)
    real = draw.choice([None, torch.rand(2, length) < 0.6])
    if real is not None and draw.random() < 0.4:
        real[0] = False
    return MADE[name](draw), {"is_causal": draw.random() < 0.3}, real, length


def check(sparse_attention: Callable[..., Tensor], seeds: range, names: list[str]) -> None:
    for name in names:
        for seed in seeds:
            pattern, options, real, length = case(seed, name)
            rows = [
                torch.randn(2, length, HEADS, dim, dtype=torch.float64).transpose(1, 2)
                for dim in (3, 3, 5)
            ]
            leaves = [one.requires_grad_() for one in rows]
            padding = None if real is None else real[:, None, None]
            got = sparse_attention(*leaves, padding, pattern=pattern, **options)
            mask = pattern.mask(length)
            if options["is_causal"]:
                mask = mask & causal_pattern().mask(length)
            mask = mask if padding is None else mask & padding
            want = sdpa(*leaves, mask.expand(2, HEADS, -1, -1))
            assert_close(got, want, msg=lambda text, at=(name, seed): f"{at}: {text}")
            same_gradients(got, want, leaves)


@pytest.mark.parametrize("name", MADE)
def test_output_and_gradients_are_those_of_full_attention_under_the_mask(name: str) -> None:
    check(sparse_attention, range(12), [name])


@pytest.mark.parametrize("name", MADE)
def test_parts_hold_every_pair_of_the_pattern_once(name: str) -> None:
    for seed in range(12):
        pattern, _, _, length = case(seed, name)
        b = torch.arange(pattern.batch)[:, None, None, None]
        h = torch.arange(pattern.heads)[:, None, None]
        seen = torch.zeros(pattern.batch, pattern.heads, length, length, dtype=torch.long)
        assert pattern.parts is not None
        for part in pattern.parts(length):
            asked = torch.zeros(pattern.heads, length, dtype=torch.long)
            for tile in part.tiles():
                i, j = (patterns._positions(index) for index in (tile.queries, tile.keys))
                assert len(i) <= patterns.QUERIES
                assert len(j.unique()) == len(j)
                heads = h[tile.heads] if pattern.heads > 1 else h
                shown = part.mask_mod(b, heads, i[:, None], j).expand(
                    pattern.batch, len(heads), len(i), len(j)
                )
                rows = torch.zeros(pattern.batch, len(heads), length, length, dtype=torch.long)
                rows[:, :, i[:, None], j] = shown.long()
                seen[:, heads[:, 0, 0]] += rows
                asked[heads[:, 0, 0][:, None], i] += 1
            assert int(asked.max()) <= 1  # in one tile: the others would be overwritten
        assert_close(seen, pattern.mask(length).long())


@pytest.mark.usefixtures("unchecked")  # a mutant's pattern is of a class of its own
@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("sparse_attention", "weights @ v / total", "weights @ v"),
        ("sparse_attention", "g @ v.mT - along[rows]", "g @ v.mT"),
        ("sparse_attention", "grads[1][columns] += ", "grads[1][columns] = "),
        ("sparse_attention", "shown & what.real[:, None, None, tile.keys]", "shown"),
        ("sparse_attention", "shown & (j <= i)", "shown"),
        ("sparse_attention", "h = h[tile.heads]", "h = h[:1]"),
        ("sparse_attention", "lse.masked_fill(lse == -torch.inf, torch.inf)", "lse"),
        (
            "patterns",
            "_every(stride, first, 0, stop - 1)",
            "_every(stride, first, 0, max(1, stop - 2))",
        ),
        ("patterns", "in (near, far)", "in (far,)"),
    ],
)
def test_a_wrong_path_is_noticed(module: str, old: str, new: str) -> None:
    if module == "patterns":
        wrong = mutant("attn_course.functional.patterns", "strided_pattern", old, new)
        rows = [torch.randn(1, 1, 31, 3) for _ in range(3)]
        want = sdpa(*rows, strided_pattern(stride=5).mask(31))
        assert not torch.allclose(sparse_attention(*rows, pattern=wrong(stride=5)), want)
        return
    wrong = mutant("attn_course.functional.sparse_attention", "sparse_attention", old, new)
    with pytest.raises((AssertionError, IndexError, RuntimeError)):
        check(wrong, range(12), ["strided", "random", "BigBird"])


WORK: dict[str, Callable[[], Pattern]] = {
    "strided": lambda: strided_pattern(stride=64),
    "fixed": lambda: fixed_pattern(stride=64),
    "blocks": lambda: blockwise_pattern(block_size=64, shifts=[0, 1], num_blocks=64),
    "BigBird": lambda: (
        random_pattern(block_size=64, num_blocks=64, per_block=2)
        | window_pattern(window_size=65)
        | global_pattern(torch.arange(4096) < 8)
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_no_table_of_all_pairs_is_made(name: str) -> None:
    length, pattern = 2048, WORK[name]()
    rows = [torch.randn(1, 2, length, 16) for _ in range(3)]
    forward = partial(sparse_attention, pattern=pattern)
    # the booleans of one head would be as many bytes, the scores of both eight times as many
    assert student.peak_memory(forward, *rows) < length * length / 2
    assert student.peak_memory(partial(trained, forward), *rows) < length * length


@pytest.mark.parametrize("name", WORK)
def test_tiles_hold_few_pairs_beside_those_of_the_pattern(name: str) -> None:
    length, pattern = 1024, WORK[name]()
    assert pattern.parts is not None
    held = sum(
        len(range(pattern.heads)[tile.heads] if pattern.heads > 1 else [0])
        * len(patterns._positions(tile.queries))
        * len(patterns._positions(tile.keys))
        for part in pattern.parts(length)
        for tile in part.tiles()
    )
    assert held / pattern.heads < 3 * pattern.pairs(length)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["fixed", "BigBird"])
def test_compiled_it_makes_no_table_either(name: str) -> None:
    length = 256
    pattern = {
        "fixed": lambda: fixed_pattern(stride=16),
        "BigBird": lambda: (
            window_pattern(window_size=9)
            | global_pattern(torch.arange(length) % 100 == 0)
            | random_pattern(block_size=16, num_blocks=16, per_block=1)
        ),
    }[name]()
    largest = 0

    def note(graph: torch.fx.GraphModule, _: Any) -> Any:
        nonlocal largest
        for node in graph.graph.nodes:
            made = node.meta.get("example_value")
            if isinstance(made, Tensor):
                largest = max(largest, made.numel())
        return graph.forward

    rows = [torch.randn(1, 1, length, 4) for _ in range(3)]
    compiled = torch.compile(
        lambda q, k, v: sparse_attention(q, k, v, pattern=pattern), backend=note, fullgraph=True
    )
    with torch.no_grad():
        assert_close(compiled(*rows), sparse_attention(*rows, pattern=pattern))
    assert 0 < largest < length * length / 2


def test_half_precision_is_summed_in_float32() -> None:
    rows = [torch.randn(1, 3, 67, 8).bfloat16() for _ in range(3)]
    wide = [one.float() for one in rows]
    pattern = strided_pattern(stride=7)
    got = sparse_attention(*rows, pattern=pattern)
    assert got.dtype == torch.bfloat16
    want = sparse_attention(*wide, pattern=pattern)
    assert_close(got, want.bfloat16(), rtol=1e-2, atol=1e-2)
    assert float((got.float() - want).abs().max()) <= float(want.abs().max()) / 2**8


def test_heads_of_keys_may_be_fewer_and_windows_are_those_of_the_band() -> None:
    query = torch.randn(2, 4, 29, 3)
    key, value = torch.randn(2, 2, 29, 3), torch.randn(2, 2, 29, 5)
    options = {"window_size": 5, "dilation": [1, 1, 2, 3]}
    got = sparse_attention(query, key, value, pattern=window_pattern(**options), enable_gqa=True)
    assert_close(got, sliding_window_attention(query, key, value, **options, enable_gqa=True))


def test_padding_does_not_matter_nan_included() -> None:
    real = torch.arange(31) < torch.tensor([[31], [17]])
    rows = [torch.randn(2, 2, 31, 3) for _ in range(3)]
    pattern = fixed_pattern(stride=4)
    want = sparse_attention(*rows, real[:, None, None], pattern=pattern)
    hurt = [one.masked_fill(~real[:, None, :, None], torch.nan) for one in rows[1:]]
    leaves = [one.requires_grad_() for one in (rows[0], *hurt)]
    got = sparse_attention(*leaves, real[:, None, None], pattern=pattern)
    assert_close(got, want)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(got.sum(), leaves))


@pytest.mark.parametrize("is_causal", [False, True])
def test_second_derivatives_are_those_of_full_attention(is_causal: bool) -> None:
    pattern = strided_pattern(stride=2)
    real = torch.tensor([True, True, True, True, False])[None, None, None]
    mask = pattern.mask(5) & real
    mask = mask.tril() if is_causal else mask

    def sparse(x: Tensor) -> Tensor:
        found = sparse_attention(x, x.tanh(), x, real, pattern=pattern, is_causal=is_causal)
        return found.square().sum()

    def full(x: Tensor) -> Tensor:
        return sdpa(x, x.tanh(), x, mask).square().sum()

    same_hessians(sparse, full, torch.randn(1, 2, 5, 3, dtype=torch.float64))


BAD: dict[str, dict[str, Any]] = {
    "pattern: expected one that is made of tiles": {"pattern": causal_pattern()},
    "pattern: expected one that": {"pattern": causal_pattern() | strided_pattern(stride=2)},
    "expected 1 or 2 for heads": {"pattern": window_pattern(window_size=3, dilation=[1, 2, 3])},
    "pattern: expected 1 or 2 for batch": {"pattern": global_pattern(torch.ones(3, 5) > 0)},
    "dropout_p: expected 0, a pattern has none": {"dropout_p": 0.1},
    "the pattern is the rest": {"attn_mask": torch.ones(5, 5, dtype=torch.bool)},
}


@pytest.mark.parametrize("message", BAD)
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused_by_name(message: str) -> None:
    rows = [torch.randn(2, 2, 5, 3) for _ in range(3)]
    refused(
        message, sparse_attention, *rows, **{"pattern": strided_pattern(stride=2)} | BAD[message]
    )
