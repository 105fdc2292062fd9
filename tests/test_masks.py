"""Masks by hand and against loops, together, in torch's modules and back, and their refusals."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from mutation import passes, rejects_changes
from refusals import refuses
from torch import Tensor
from torch.testing import assert_close

from attn_course import masks
from attn_course.functional import scaled_dot_product_attention
from attn_course.masks import (
    causal_mask,
    document_mask,
    from_additive_mask,
    from_multihead_mask,
    global_mask,
    padding_mask,
    prefix_mask,
    strided_mask,
    to_additive_mask,
    to_multihead_mask,
    window_mask,
)

L, S, OFFSET = 5, 7, 2


def picture(mask: Tensor) -> list[str]:
    """One character per pair: # may attend."""
    return ["".join(".#"[int(pair)] for pair in row) for row in mask]


def check_padding(padding_mask: Callable[..., Tensor]) -> None:
    assert picture(padding_mask(torch.tensor([3, 0, 1]), 3)) == ["###", "...", "#.."]


def test_masks_by_hand() -> None:
    assert picture(causal_mask(3)) == ["#..", "##.", "###"]
    assert picture(causal_mask(2, 3)) == ["#..", "##."]
    assert picture(causal_mask(2, offset=2)) == ["###.", "####"]
    assert picture(window_mask(4, window_size=2, causal=True)) == ["#...", "##..", ".##.", "..##"]
    assert picture(window_mask(4, window_size=3, causal=False)) == ["##..", "###.", ".###", "..##"]
    dilated = window_mask(1, window_size=2, causal=True, dilation=3, offset=4)
    assert picture(dilated) == [".#..#"]
    assert picture(strided_mask(4, stride=2)) == ["#.#.", ".#.#", "#.#.", ".#.#"]
    assert picture(global_mask(torch.tensor([False, True, False]))) == [".#.", "###", ".#."]
    assert picture(document_mask(torch.tensor([4, 4, 9]))) == ["##.", "##.", "..#"]
    assert picture(prefix_mask(3, prefix_length=2)) == ["##.", "##.", "###"]


def window_rule(i: int, j: int, window: int, causal: bool, dilation: int) -> bool:
    """Go from key to key: the W last ones, or half of the others on each side."""
    steps = range(window) if causal else range(-(window // 2), window // 2 + 1)
    return any(j == i - step * dilation for step in steps)


# (name, keyword arguments, rule of query position and key)
CASES: list[tuple[str, dict[str, object], Callable[[int, int], bool]]] = [
    ("causal_mask", {}, lambda i, j: j <= i),
    ("strided_mask", {"stride": 3}, lambda i, j: (i - j) % 3 == 0),
    ("prefix_mask", {"prefix_length": 4}, lambda i, j: j < 4 or j <= i),
    *(
        (
            "window_mask",
            {"window_size": w, "causal": causal, "dilation": d},
            partial(window_rule, window=w, causal=causal, dilation=d),
        )
        for w, causal, d in ((2, True, 1), (3, True, 2), (3, False, 1), (5, False, 2), (1, True, 3))
    ),
]


def check(name: str, function: Callable[..., Tensor]) -> None:
    for other, arguments, rule in CASES:
        if other != name:
            continue
        for length, keys, offset in ((L, S, 0), (S, L, 0), (L, S, OFFSET), (1, 11, 10), (3, 0, 0)):
            want = [[rule(i + offset, j) for j in range(keys)] for i in range(length)]
            assert function(length, keys, offset=offset, **arguments).tolist() == want
        assert torch.equal(
            function(L, offset=OFFSET, **arguments),
            function(L, L + OFFSET, offset=OFFSET, **arguments),
        )


CHECKS = {name: partial(check, name) for name, *_ in CASES} | {"padding_mask": check_padding}
test_masks_of_positions_agree_with_loops = passes(CHECKS, masks)


test_hand_values_and_loops_reject_a_changed_line = rejects_changes(
    CHECKS, "attn_course.masks",
    *(("padding_mask", ") < lengths", f") {other} lengths") for other in ("<=", ">", ">=")),
    ("causal_mask", "return j <= i\n", "return j < i\n"),
    ("causal_mask", "return j <= i\n", "return j >= i\n"),
    ("causal_mask", "device=device) + offset", "device=device)"),
    ("causal_mask", "key_length = query_length + offset", "key_length = query_length"),
    ("window_mask", "window_size * dilation", "window_size"),
    ("window_mask", "behind < window_size", "behind <= window_size"),
    ("window_mask", "(behind >= 0) & ", ""),
    ("window_mask", "behind.abs()", "behind"),
    ("window_mask", "(window_size - 1) // 2 * dilation", "(window_size - 1) * dilation"),
    ("window_mask", " & (behind % dilation == 0)", ""),
    ("strided_mask", "(i - j) % stride", "j % stride"),
    ("prefix_mask", "(j < prefix_length) |", "(j <= prefix_length) |"),
    ("prefix_mask", "(j < prefix_length) |", "(j < prefix_length) &"),
)  # fmt: skip


def test_masks_of_batches_agree_with_loops() -> None:
    ids = torch.randint(3, (2, S))
    flags = torch.rand(2, S) < 0.4
    lengths = torch.tensor([3, 0])
    prefix = prefix_mask(L, S, prefix_length=lengths, offset=1)
    assert prefix.shape == (2, L, S)
    for b in range(2):
        assert torch.equal(prefix[b], prefix_mask(L, S, prefix_length=int(lengths[b]), offset=1))
        for i in range(S):
            for j in range(S):
                assert document_mask(ids)[b, i, j] == (ids[b, i] == ids[b, j])
                assert global_mask(flags)[b, i, j] == (flags[b, i] or flags[b, j])


def test_masks_combine_and_attention_takes_them() -> None:
    real = padding_mask(torch.tensor([S, 4]), S)
    packed = document_mask(torch.tensor([[1, 1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 0, 0, 0]]))
    mask = (causal_mask(S) & packed)[:, None] & real[:, None, None, :]
    assert mask.shape == (2, 1, S, S)
    query = torch.randn(2, 3, S, 5)
    output = scaled_dot_product_attention(query, query, query, mask)
    alone = scaled_dot_product_attention(*(query[:1, :, 4:],) * 3, is_causal=True)
    assert_close(output[:1, :, 4:], alone)
    # the strided pattern of Sparse Transformers
    last = window_mask(6, window_size=2, causal=True)
    assert picture((last | strided_mask(6, stride=3)) & causal_mask(6))[-1] == "..#.##"


def test_the_opposite_polarity_is_that_of_multihead_attention() -> None:
    heads, dim = 3, 6
    module = torch.nn.MultiheadAttention(dim, heads, batch_first=True, bias=False)
    module.in_proj_weight.data.copy_(torch.eye(dim).repeat(3, 1))
    module.out_proj.weight.data.copy_(torch.eye(dim))
    x = torch.randn(2, S, dim)
    split = x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, H, S, E)

    def ours(mask: Tensor) -> Tensor:
        return scaled_dot_product_attention(split, split, split, mask).transpose(1, 2).flatten(2)

    causal, real = causal_mask(S), padding_mask(torch.tensor([S, 4]), S)
    each = (torch.rand(2, heads, S, S) < 0.5) | torch.eye(S, dtype=torch.bool)
    for mask, arguments in (
        (causal, {"attn_mask": to_multihead_mask(causal)}),
        (real[:, None, None, :], {"key_padding_mask": to_multihead_mask(real)}),
        (each, {"attn_mask": to_multihead_mask(each)}),
        (each[:, :1], {"attn_mask": to_multihead_mask(each[:, :1], num_heads=heads)}),
    ):
        theirs, _ = module(x, x, x, **arguments, need_weights=False)
        assert_close(ours(mask), theirs)
    assert torch.equal(from_multihead_mask(to_multihead_mask(causal)), causal)
    assert torch.equal(from_multihead_mask(to_multihead_mask(each), num_heads=heads), each)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_additive_masks_there_and_back(dtype: torch.dtype) -> None:
    mask = torch.rand(2, 1, L, S) < 0.5
    for finite, lowest in ((False, -math.inf), (True, torch.finfo(dtype).min)):
        bias = to_additive_mask(mask, dtype, finite=finite)
        assert bias.dtype == dtype
        assert bias[mask].eq(0).all()
        assert bias[~mask].eq(lowest).all()
        assert torch.equal(from_additive_mask(bias), mask)
    rows, keys = torch.randn(2, 3, L, 4), torch.randn(2, 3, S, 4)
    assert_close(
        scaled_dot_product_attention(rows, keys, keys, to_additive_mask(mask)),
        scaled_dot_product_attention(rows, keys, keys, mask),
    )


OF_LENGTHS = padding_mask.__wrapped__
test_bad_arguments_are_refused = refuses(
    (lambda: OF_LENGTHS(torch.tensor([2, 4]), 3), "lengths: expected values from 0 to 3, got 2"),
    (lambda: OF_LENGTHS(torch.tensor([-1, 3]), 3), "lengths: .* from 0 to 3, got -1 to 3"),
    (lambda: OF_LENGTHS(torch.tensor([1.0, 2.0]), 3),
     "lengths: expected 2 integers, one per row, got torch.float32"),
    (lambda: OF_LENGTHS(torch.tensor(2), 3), "lengths: expected"),
    (lambda: OF_LENGTHS(torch.tensor([[1, 2]]), 3), "lengths: expected"),
    (lambda: causal_mask(-1), "query_length: expected 0 or more, got -1"),
    (lambda: causal_mask(2, -3), "key_length: expected 0 or more, got -3"),
    (lambda: causal_mask(2, offset=-3), "key_length: expected 0 or more, got -1"),
    (lambda: window_mask(3, window_size=0, causal=True),
     "window_size: expected a positive number, got 0"),
    (lambda: window_mask(3, window_size=2, causal=False),
     r"window_size: expected an odd positive number \(it has two equal sides\), got 2"),
    (lambda: window_mask(3, window_size=2, causal=True, dilation=0),
     "dilation: expected a positive number, got 0"),
    (lambda: strided_mask(3, stride=0), "stride: expected a positive number, got 0"),
    (lambda: prefix_mask(3, prefix_length=-1), "prefix_length: expected 0 or more, got -1"),
    (lambda: prefix_mask.__wrapped__(3, prefix_length=torch.tensor([1, -1])),
     "prefix_length: expected values from 0"),
    (lambda: global_mask.__wrapped__(torch.tensor([0, 1])),
     "is_global: expected booleans, one per position, got torch.int64"),
    (lambda: document_mask.__wrapped__(torch.tensor([0.0, 1.0])),
     "ids: expected integers, one per position, got torch.float32"),
    (lambda: document_mask.__wrapped__([1, 2]), "ids: expected a torch tensor, got list"),
    (lambda: to_additive_mask.__wrapped__(torch.ones(2, 2)),
     "attn_mask: expected a boolean mask, got torch.float32"),
    (lambda: to_additive_mask.__wrapped__(torch.ones(2, 2).bool(), torch.int64),
     "dtype: expected a floating point type, got torch.int64"),
    (lambda: from_additive_mask(torch.tensor([0.0, -1e9])),
     r"bias: expected 0, -inf or -3\.403e\+38, got -1e\+09"),
    (lambda: from_additive_mask(torch.tensor([torch.nan])), "bias: expected 0, .*, got nan"),
    (lambda: from_additive_mask.__wrapped__(torch.tensor([1, 0])),
     "bias: expected a floating point tensor, got torch.int64"),
    (lambda: to_multihead_mask(torch.ones(2, 3, 3).bool()),
     r"attn_mask: expected axes .* got shape \(2, 3, 3\)"),
    (lambda: to_multihead_mask(torch.ones(2, 3, 5, 5).bool(), num_heads=4),
     "num_heads: expected 3 as the mask has, got 4"),
    (lambda: from_multihead_mask(torch.ones(6, 3, 3).bool(), num_heads=4),
     "num_heads: expected a divisor of 6, the first axis, got 4"),
    (lambda: from_multihead_mask(torch.ones(6, 3, 3).bool()),
     "num_heads: expected a divisor of 6, the first axis, got None"),
    (lambda: from_multihead_mask(torch.ones(3).bool()), "mask: expected axes"),
)  # fmt: skip
