"""Patterns against masks drawn by hand, the other definitions, and FlexAttention."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mutation import passes, rejects_changes
from oracles import by_numpy
from refusals import refuses
from torch import Tensor
from torch.testing import assert_close

from attn_course import functional, masks
from attn_course.analysis import receptive_field
from attn_course.functional import (
    Pattern,
    blockwise_pattern,
    causal_pattern,
    fixed_pattern,
    global_pattern,
    random_pattern,
    scaled_dot_product_attention,
    strided_pattern,
    window_pattern,
)
from attn_course.functional.flex import flex_attention_fn

LENGTH = 23
PATTERNS: dict[str, Callable[[], Pattern]] = {
    "window": lambda: window_pattern(window_size=5),
    "dilated per head": lambda: window_pattern(window_size=3, dilation=[1, 2, 5]),
    "causal window": lambda: window_pattern(window_size=4, is_causal=True) & causal_pattern(),
    "strided": lambda: strided_pattern(stride=5),
    "fixed": lambda: fixed_pattern(stride=5, summary=2),
    "blockwise": lambda: blockwise_pattern(block_size=6, shifts=[0, 1, 2], num_blocks=4),
    "BigBird": lambda: (
        random_pattern(block_size=4, num_blocks=6, per_block=2, num_heads=3)
        | window_pattern(window_size=3)
        | global_pattern(torch.arange(LENGTH) < 2)
    ),
}


def drawn(mask: Tensor) -> list[str]:
    return ["".join(".#"[int(one)] for one in row) for row in mask]


def check_strided(strided_pattern: Callable[..., Pattern]) -> None:
    assert drawn(strided_pattern(stride=3).mask(7)[0, 0]) == [
        "#......", "##.....", "###....", "####...", ".####..", "..####.", "#..####",
    ]  # fmt: skip


def check_fixed(fixed_pattern: Callable[..., Pattern]) -> None:
    assert drawn(fixed_pattern(stride=3).mask(7)[0, 0]) == [
        "#......", "##.....", "###....", "..##...", "..###..", "..####.", "..#..##",
    ]  # fmt: skip


def check_blockwise(blockwise_pattern: Callable[..., Pattern]) -> None:
    mask = blockwise_pattern(block_size=2, shifts=[0, 1], num_blocks=3).mask(5)[0]
    assert drawn(mask[0]) == ["##...", "##...", "..##.", "..##.", "....#"]
    assert drawn(mask[1]) == ["..##.", "..##.", "....#", "....#", "##..."]


def check_window(window_pattern: Callable[..., Pattern]) -> None:
    for size, dilation, causal in ((1, 1, False), (5, 1, False), (3, 4, False), (4, 2, True)):
        want = masks.window_mask(13, window_size=size, dilation=dilation, causal=causal)
        got = window_pattern(window_size=size, dilation=dilation, is_causal=causal).mask(13)
        assert_close(got[0, 0], want)
    per_head = window_pattern(window_size=3, dilation=[1, 4]).mask(13)[0]
    assert_close(per_head[1], masks.window_mask(13, window_size=3, dilation=4, causal=False))


CHECKS = {
    "strided_pattern": check_strided,
    "fixed_pattern": check_fixed,
    "blockwise_pattern": check_blockwise,
    "window_pattern": check_window,
}


test_a_pattern_is_the_one_drawn_by_hand = passes(CHECKS, functional)


test_a_wrong_pattern_is_noticed = rejects_changes(
    CHECKS,
    "attn_course.functional.patterns",
    ("strided_pattern", "i - j < stride", "i - j <= stride + 1"),
    ("strided_pattern", "(j <= i) & ((i - j < stride)", "((i - j < stride)"),
    ("fixed_pattern", ">= stride - summary", "> stride - summary"),
    ("fixed_pattern", "j // stride == i // stride", "j // stride <= i // stride"),
    ("blockwise_pattern", "% num_blocks", ""),
    ("window_pattern", "i - j <= left * step", "i - j < left * step"),
    ("window_pattern", "& ((i - j) % step(h) == 0)", ""),
    error=(AssertionError, IndexError),
)


def test_other_definitions_are_the_same() -> None:
    chosen = torch.rand(2, LENGTH) < 0.2
    assert_close(global_pattern(chosen).mask(LENGTH)[:, 0], masks.global_mask(chosen))
    assert_close(causal_pattern().mask(LENGTH)[0, 0], masks.causal_mask(LENGTH))


def test_masks_are_those_of_the_papers_walked_pair_by_pair() -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        *(("strided_pattern", {"stride": n}) for n in (1, 2, 5, 40)),
        *(("fixed_pattern", {"stride": n, "summary": c}) for n, c in ((1, 1), (5, 2), (7, 7))),
        ("blockwise_pattern", {"block_size": 5}),
        ("blockwise_pattern", {"block_size": 4, "shifts": [0, 3, 5], "num_blocks": 6}),
        ("window_pattern", {"window_size": 5, "dilation": 3}),
        ("window_pattern", {"window_size": 4, "dilation": 2, "is_causal": True}),
    ]
    for length in (1, 6, LENGTH, 31):
        for name, options in cases:
            got = getattr(functional, name)(**options).mask(length)[0]
            want = getattr(by_numpy, name)(length, **options)
            assert torch.equal(got, want.expand_as(got)), (name, options, length)


@pytest.mark.parametrize("name", PATTERNS)
def test_flex_attention_and_full_attention_under_the_mask_agree(name: str) -> None:
    pattern = PATTERNS[name]()
    rows = [torch.randn(1, 3, LENGTH, 8) for _ in range(3)]
    mask = pattern.mask(LENGTH).expand(1, 3, -1, -1)
    open_rows = mask.any(-1)
    got = flex_attention_fn(mask_mod=pattern.mask_mod)(*rows)
    want = scaled_dot_product_attention(*rows, mask)
    assert_close(got[open_rows], want[open_rows])


def test_random_blocks_are_as_many_as_asked_for_and_repeat() -> None:
    def made(seed: int) -> Tensor:
        sizes = {"block_size": 3, "num_blocks": 5, "per_block": 2, "num_heads": 4}
        return random_pattern(**sizes, seed=seed).mask(15)

    assert_close(made(1), made(1))
    assert not torch.equal(made(1), made(2))
    assert (made(1).sum(-1) == 6).all()


def test_pairs_count_the_mean_of_heads() -> None:
    assert window_pattern(window_size=3).pairs(10) == 28
    assert (window_pattern(window_size=3) | causal_pattern()).pairs(4) == 13
    assert window_pattern(window_size=3, dilation=[1, 9]).pairs(10) == (28 + 12) // 2


def test_any_earlier_position_is_two_strided_steps_away() -> None:
    """Child et al. (2019): a hop of whole strides, then one inside the last stride."""
    for pattern in (strided_pattern(stride=5), fixed_pattern(stride=5)):
        mask = pattern.mask(LENGTH)[0, 0]
        both = receptive_field(mask, 2)
        assert_close(both[1], causal_pattern().mask(LENGTH)[0, 0])
        assert not torch.equal(both[0], both[1])


test_bad_input_is_refused_by_name = refuses(
    (lambda: window_pattern(window_size=2), "window_size: expected an odd"),
    (lambda: window_pattern(window_size=3, dilation=[]), "dilation: expected"),
    (lambda: strided_pattern(stride=0), "stride: expected at least 1"),
    (lambda: fixed_pattern(stride=3, summary=4), "summary: expected 1 to the stride 3"),
    (lambda: blockwise_pattern(block_size=2, shifts=[]), "shifts: expected one"),
    (lambda: random_pattern(block_size=1, num_blocks=2, per_block=3), "per_block: expected"),
    (lambda: global_pattern(torch.ones(3)), "is_global: expected booleans"),
    (lambda: window_pattern(window_size=1, dilation=[1, 2]) | PATTERNS["BigBird"](), "heads: exp"),
)
