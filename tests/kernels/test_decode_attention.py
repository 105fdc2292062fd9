"""Decoding in pieces and from pages: against plain attention in float64."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from kernel_mutation import DEVICE, accepts_ours_alone
from refusals import refused
from torch import Tensor
from torch.testing import assert_close

from attn_course import kernels
from attn_course.functional import attention_with_lse

CLOSE = {"rtol": 1e-5, "atol": 2e-5}
Decode = Callable[..., tuple[Tensor, Tensor]]


def draw(B: int, H: int, heads: int, S: int, E: int, Ev: int) -> tuple[Tensor, Tensor, Tensor]:
    sizes = (B, H, 1, E), (B, heads, S, E), (B, heads, S, Ev)
    query, key, value = (torch.randn(*size, device=DEVICE) for size in sizes)
    return query, key, value


def right(
    query: Tensor, key: Tensor, value: Tensor, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    mask = None
    if lengths is not None:
        mask = (torch.arange(key.shape[2], device=DEVICE) < lengths[:, None])[:, None, None]
    double = (x.double() for x in (query, key, value))
    output, lse = attention_with_lse(*double, mask, enable_gqa=True)
    return output.float(), lse.float()


def paged(key: Tensor, value: Tensor, P: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same keys in pages of a pool, in a random order, with NaN wherever nothing was put."""
    B, heads, S, E = key.shape
    each = -(-S // P) + 1
    table = torch.randperm(B * each + 3, device=DEVICE)[: B * each].reshape(B, each).int()
    key_cache = torch.full((B * each + 3, P, heads, E), torch.nan, device=DEVICE)
    value_cache = torch.full((B * each + 3, P, heads, value.shape[-1]), torch.nan, device=DEVICE)
    for b in range(B):
        for j in range(S):
            key_cache[table[b, j // P], j % P] = key[b, :, j]
            value_cache[table[b, j // P], j % P] = value[b, :, j]
    return key_cache, value_cache, table


@pytest.mark.parametrize("num_splits", [None, 1, 3, 7])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 16, 16), (2, 6, 2, 53, 17, 19), (3, 5, 1, 32, 16, 32)]
)
def test_any_number_of_pieces_gives_plain_attention(sizes, num_splits):
    inputs = draw(*sizes)
    found = kernels.decode_attention(*inputs, enable_gqa=True, num_splits=num_splits)
    assert_close(found, right(*inputs), **CLOSE)


def test_lengths_differ_and_one_sequence_is_empty() -> None:
    inputs = draw(4, 4, 2, 41, 16, 16)
    lengths = torch.tensor([41, 0, 1, 17], device=DEVICE)
    key = inputs[1].clone()
    key[2, :, 1:] = torch.nan  # behind the end, never looked at
    options = {"lengths": lengths, "enable_gqa": True, "num_splits": 3}
    output, lse = kernels.decode_attention(inputs[0], key, inputs[2], **options)
    assert_close((output, lse), right(*inputs, lengths), **CLOSE)
    assert torch.equal(output[1], torch.zeros_like(output[1]))
    assert (lse[1] == -torch.inf).all()


@pytest.mark.parametrize("P", [1, 4, 16, 24])
def test_pages_in_any_order_are_the_same_sequence(P: int) -> None:
    query, key, value = draw(3, 4, 2, 37, 16, 16)
    lengths = torch.tensor([37, 8, 23], device=DEVICE)
    caches = paged(key, value, P)
    found = kernels.paged_decode_attention(query, *caches, lengths, enable_gqa=True, num_splits=2)
    assert_close(found, right(query, key, value, lengths), **CLOSE)


def test_what_it_cannot_do_is_refused_by_name() -> None:
    query, key, value = draw(2, 4, 2, 5, 16, 16)
    refused("key: expected 4 heads, got 2", kernels.decode_attention, query, key, value)
    refused(r"query: expected size 1 on axis 2", kernels.decode_attention, key, key, value)
    decode = partial(kernels.decode_attention, query, key, value, enable_gqa=True)
    refused(r"lengths: expected integers of shape \(2,\)", decode, lengths=torch.ones(2))
    refused("num_splits: expected at least 1, got 0", decode, num_splits=0)
    pool = key.transpose(1, 2)  # (pages, P, heads, E)
    table, lengths = torch.zeros(2, 1).int(), torch.ones(2).int()
    decode = partial(kernels.paged_decode_attention, query, pool, enable_gqa=True)
    refused("value_cache: expected shape", decode, pool[:1], table, lengths)
    refused("block_table: expected integers", decode, pool, 1.0 * table, lengths)


MUTANTS = {
    "pieces are averaged": ("weights = tl.exp(lses - shift)", "weights = tl.exp(0.0 * lses)"),
    "one length for all": ("tl.load(lengths_ptr + batch)", "tl.load(lengths_ptr)"),
    "the output is not rescaled": ("output * rescale[:, None], input", "output, input"),
    "a page is looked up by its place": (
        "page = tl.load(table_ptr + batch * table_row + column // PAGE, mask=inside, other=0)",
        "page = column // PAGE"),
    "one table for all": ("table_ptr + batch * table_row", "table_ptr"),
    "heads of a group lie apart": ("head * GROUP + member)", "head + HEADS * member)"),
    "keys of the first sequence": ("key_ptr += batch * key_batch", "key_ptr += 0"),
}  # fmt: skip


def _oracle(whole: Decode, from_pages: Decode) -> None:
    query, key, value = draw(2, 4, 2, 70, 16, 16)
    lengths = torch.tensor([61, 40], device=DEVICE)
    expected = right(query, 4 * key, value, lengths)
    options = {"enable_gqa": True, "num_splits": 3}
    for found in (
        whole(query, 4 * key, value, lengths=lengths, **options),
        from_pages(query, *paged(4 * key, value, 8), lengths, **options),
    ):
        assert_close(found, expected, **CLOSE)


test_the_oracle_accepts_our_kernel_alone = accepts_ours_alone(
    _oracle, MUTANTS, "decode_attention", "decode_attention", "paged_decode_attention"
)
