"""LSH attention: by hand, NumPy pair by pair, full attention under its mask, gradients, memory."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from mutation import rejects_changes
from oracles import by_numpy, same_gradients, trained
from refusals import refuses
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course.functional import (
    attention_with_lse,
    chunk_attention,
    lsh_attention,
    lsh_buckets,
    lsh_mask,
    random_rotations,
    unit_keys,
)
from attn_course.probes import student

MODULE = "attn_course.functional.hashing"
B, H, E, EV = 2, 2, 3, 5


def rows(length: int, rounds: int = 3, buckets: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, values and random buckets: what attention does must not depend on the hash."""
    query, value = (torch.randn(B, H, length, n, dtype=torch.float64) for n in (E, EV))
    return query, value, torch.randint(buckets, (B, H, rounds, length))


def half_real(length: int) -> Tensor:
    """Padding after the first half, and an example of padding alone."""
    return torch.arange(length) < torch.tensor([[length // 2], [0]])


def cases() -> Iterator[tuple[tuple[Tensor, Tensor, Tensor], dict[str, Any]]]:
    """Awkward lengths, chunks that are larger than all, of one, and that leave a rest."""
    sizes = [(1, 4, 2, 2), (11, 4, 3, 2), (5, 1, 2, 2), (8, 4, 1, 4), (5, 7, 2, 2)]
    for length, chunk, rounds, buckets in sizes:
        for causal, padding in product((False, True), (None, half_real(length))):
            options = {"chunk_size": chunk, "is_causal": causal, "padding_mask": padding}
            yield rows(length, rounds, buckets), options


def check(attention: Callable[..., Tensor]) -> None:
    """All oracles."""
    # by hand, one round: 0 and 2 share a bucket, 1 is alone; the causal first one is alone too
    query = torch.tensor([[[[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]]]])
    value = torch.tensor([[[[1.0], [10.0], [100.0]]]])
    buckets = torch.tensor([[[[0, 1, 0]]]])
    found = attention(query, value, buckets, chunk_size=3).flatten()
    assert found.tolist() == [100.0, 10.0, 1.0]
    found = attention(query, value, buckets, chunk_size=3, is_causal=True).flatten()
    assert found.tolist() == [1.0, 10.0, 1.0]
    for inputs, options in cases():
        across, after = {"attend_across_buckets": True}, {"chunks_after": 1}
        for extra in ({}, across, {"chunks_before": 0}, after, across | after):
            got = attention(*inputs, **options, **extra)
            assert_close(got, by_numpy.lsh_attention(*inputs, **options, **extra), **FLOAT64)


def test_attention_agrees_with_the_pairs_one_by_one() -> None:
    check(lsh_attention)


test_oracles_reject_a_changed_line = rejects_changes(
    check,
    f"{MODULE}.lsh_attention",
    ("argsort(dim=-1, stable=True)  # (B, H, R, N)", "argsort(dim=-1, descending=True)  # (B"),
    ("times.to(scores.dtype).log()", "0.0"),
    ("(mine != theirs) & ", ""),
    ("(theirs <= mine)", "(theirs < mine + 2)"),
    ("own.unsqueeze(-1) == _around(own", "own.unsqueeze(-1) >= _around(own"),
    ("& _linked(place.shape[2] // rounds, rounds, size, offsets, place.device)", ""),
    ("rows.roll(-offset, dims=2)", "rows.roll(offset, dims=2)"),
    ("total.unsqueeze(-1) == -torch.inf, value.to(output.dtype)", "total[..., None] > 1e9, 1.0"),
    ("unit_keys(query_key), value))", "query_key, value))"),
    ("lse.reshape(spots.shape).gather(-1, spots)", "lse.reshape(spots.shape)"),
    ("value=last), F.pad", "value=-1), F.pad"),
)


def test_it_is_full_attention_under_its_mask_with_gradients() -> None:
    for inputs, options in cases():
        query, value, buckets = (*(one.clone().requires_grad_() for one in inputs[:2]), inputs[2])
        mask = lsh_mask(buckets, **options)
        assert torch.equal(mask, by_numpy.lsh_mask(buckets, **options))
        got = lsh_attention(query, value, buckets, **options)
        want, _ = attention_with_lse(query, unit_keys(query), value, mask, scale=1.0)
        assert_close(got, want, **FLOAT64)
        same_gradients(got, want, (query, value), **FLOAT64)


def test_gradcheck_across_buckets_and_in_chunks() -> None:
    query, value, buckets = rows(5, 2, 2)
    query, value = (one[:1, :1, :, :2].clone().requires_grad_() for one in (query, value))
    options = {"chunk_size": 2, "is_causal": True}
    hashed = partial(lsh_attention, buckets=buckets[:1, :1], attend_across_buckets=True, **options)
    assert torch.autograd.gradcheck(hashed, (query, value))
    assert torch.autograd.gradcheck(
        lambda q, v: chunk_attention(q, q.flip(-1), v, **options), (query, value)
    )


@pytest.mark.parametrize("length", [1, 3, 11, 12])
@pytest.mark.parametrize("causal", [False, True])
def test_chunk_attention_agrees_with_the_loops(length: int, causal: bool) -> None:
    query, key = (torch.randn(B, H, length, E, dtype=torch.float64) for _ in range(2))
    value = torch.randn(B, H, length, EV, dtype=torch.float64)
    for padding in (None, half_real(length)):
        for before, after in ((1, 0), (0, 0), (1, 1), (2, 0)):
            options = {"chunk_size": 4, "is_causal": causal, "padding_mask": padding}
            options |= {"chunks_before": before, "chunks_after": after}
            got = chunk_attention(query, key, value, **options)
            assert_close(got, by_numpy.chunk_attention(query, key, value, **options), **FLOAT64)


def test_buckets_are_the_nearest_directions() -> None:
    vectors = torch.randn(B, H, 11, E, dtype=torch.float64)
    rotations = random_rotations(H, E, n_buckets=6, n_hashes=2, dtype=torch.float64)
    found = lsh_buckets(vectors, rotations)
    assert torch.equal(found, by_numpy.lsh_buckets(vectors, rotations))
    assert torch.equal(found, lsh_buckets(7 * vectors, rotations))  # length does not matter
    assert torch.equal((found + 3) % 6, lsh_buckets(-vectors, rotations))  # opposite buckets
    # by hand: the axes of a plane, and two factors
    eye = torch.eye(2).reshape(1, 2, 1, 2)
    points = torch.tensor([[[[3.0, 1.0], [1.0, 3.0], [-3.0, 1.0], [1.0, -3.0]]]])
    assert lsh_buckets(points, eye).flatten().tolist() == [0, 1, 2, 3]
    both = lsh_buckets(points, eye, n_buckets=(2, 2))  # a sign of x, twice a sign of y
    assert both.flatten().tolist() == [0, 0, 1, 2]
    factors = random_rotations(H, E, n_buckets=(4, 6), n_hashes=2, dtype=torch.float64)
    joined = lsh_buckets(vectors, factors, n_buckets=(4, 6))
    parts = factors.split([2, 3], dim=-1)
    first, second = (lsh_buckets(vectors, part.contiguous()) for part in parts)
    assert torch.equal(joined, first + 4 * second)


def test_more_rounds_keep_more_pairs_and_all_of_them_in_the_end() -> None:
    vectors = torch.randn(1, 1, 60, 8)
    rotations = random_rotations(1, 8, n_buckets=4, n_hashes=64)
    buckets = lsh_buckets(vectors, rotations)
    masks = [lsh_mask(buckets[:, :, :r]).float().mean().item() for r in (1, 4, 16, 64)]
    assert masks == sorted(masks)
    assert masks[-1] > 0.9


def test_padding_is_nobodys_key_and_nan_stays_there() -> None:
    query, value, buckets = rows(11, 2, 2)
    real = torch.ones(B, 11, dtype=torch.bool)
    real[:, 6:] = False
    plain = lsh_attention(query, value, buckets, chunk_size=4, padding_mask=real)
    value[:, :, 6:] = torch.nan
    got = lsh_attention(query, value, buckets, chunk_size=4, padding_mask=real)
    assert_close(got, plain)
    assert (got[:, :, 6:] == 0).all()


def test_no_table_of_all_pairs_is_made() -> None:
    sizes = {}
    for length in (1024, 4096):
        query, value = torch.randn(2, 1, 1, length, 8)
        buckets = torch.randint(length // 32, (1, 1, 2, length))
        attend = partial(lsh_attention, buckets=buckets, chunk_size=32)
        sizes[length] = student.peak_memory(partial(trained, attend), query, value)
    assert sizes[4096] < 4.3 * sizes[1024]
    assert sizes[4096] < 4096 * 4096 * 4  # one table of scores


def test_dropout_keeps_the_mean() -> None:
    torch.manual_seed(0)
    query, value, buckets = rows(40, 2, 2)
    plain = lsh_attention(query, value.abs(), buckets, chunk_size=20)
    found = torch.stack([
        lsh_attention(query, value.abs(), buckets, chunk_size=20, dropout_p=0.5)
        for _ in range(50)
    ])  # fmt: skip
    assert not torch.equal(found[0], found[1])
    assert abs(found.mean() / plain.mean() - 1) < 0.02
    once = chunk_attention(query, query, value, chunk_size=8, dropout_p=0.5)
    assert not torch.equal(once, chunk_attention(query, query, value, chunk_size=8))


REAL = torch.ones(B + 1, 6)
CHUNKS = partial(chunk_attention, chunk_size=2)
LSH = partial(lsh_attention, chunk_size=2)
test_what_does_not_fit_is_refused = refuses(
    (lambda q, v, b: random_rotations(1, 2, n_buckets=3, n_hashes=1), "n_buckets: expected"),
    (lambda q, v, b: random_rotations(1, 2, n_buckets=2, n_hashes=0), "num_heads, head_dim"),
    (lambda q, v, b: lsh_attention(q, v, b, chunk_size=0), "chunk_size"),
    (lambda q, v, b: LSH(q, v[:, :, 1:], b), "value: expected size"),
    (lambda q, v, b: LSH(q, v, b[:, :1]), "buckets: expected size"),
    (lambda q, v, b: LSH(q, v, b, padding_mask=REAL > 0), "padding_mask: expected a boolean mask"),
    (lambda q, v, b: lsh_buckets(q, torch.randn(H, E + 1, 1, 2)), "rotations: expected size"),
    (lambda q, v, b: lsh_buckets(q, torch.randn(H, E, 1, 2), n_buckets=(2, 4)), "expected size 3"),
    (lambda q, v, b: chunk_attention(q, q, v, chunk_size=0), "chunk_size"),
    (lambda q, v, b: CHUNKS(q, q, v, chunks_before=-1), "chunk_size"),
    (lambda q, v, b: CHUNKS(q, q[:1, :1], v), "key: expected size"),
    (lambda q, v, b: CHUNKS(q, q, v.float()), "value: expected torch"),
    (
        lambda q, v, b: CHUNKS(q, q, v, padding_mask=REAL > 0),
        "padding_mask: expected a boolean mask",
    ),
    (lambda q, v, b: lsh_mask(b, chunk_size=0), "chunk_size"),
    (lambda q, v, b: lsh_mask(b, padding_mask=REAL[1:]), "padding_mask: .* got torch.float32"),
    (lambda q, v, b: unit_keys(q.long()), "query: expected a floating point tensor"),
    given=lambda: rows(6),
)


@pytest.mark.parametrize("crossing", [False, True])
def test_no_text_and_no_examples(crossing: bool) -> None:
    query, value, buckets = rows(6)
    for tensors in (
        (query[:0], value[:0], buckets[:0]),
        (query[:, :, :0], value[:, :, :0], buckets[..., :0]),
    ):
        found = lsh_attention(*tensors, chunk_size=4, attend_across_buckets=crossing)
        assert found.shape == tensors[1].shape


def test_half_precision_is_rounded_once() -> None:
    query, value, buckets = rows(11)
    query, value = query.bfloat16(), value.bfloat16()
    half = lsh_attention(query, value, buckets, chunk_size=4)
    assert half.dtype == torch.bfloat16
    want = lsh_attention(query.double(), value.double(), buckets, chunk_size=4)
    assert_close(half.double(), want, rtol=0.03, atol=0.03)
