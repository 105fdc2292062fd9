"""Endless batches, and where they go on."""

from collections import Counter
from functools import partial

import pytest
import torch

from attn_course.data import BatchStream, reversal
from attn_course.data.streams import PairStream


def pairs(number: int = 103) -> tuple[list[list[int]], list[list[int]]]:
    """Pair i: a source of 1 + i mod 7 ids that starts with its number, a target with it."""
    sources = [[4 + i] * (1 + i % 7) for i in range(number)]
    return sources, [[4 + i] for i in range(number)]


def numbers(batch) -> list[int]:
    assert torch.equal(batch.source[:, 0], batch.target_out[:, 0])
    return (batch.source[:, 0] - 4).tolist()


def same(first, second) -> bool:
    return first.source.shape == second.source.shape and torch.equal(first.source, second.source)


@pytest.fixture(params=["BatchStream", "PairStream", "PairStream, no pool"])
def make(request):
    if request.param == "BatchStream":
        return lambda seed: BatchStream(partial(reversal, max_length=4), batch_size=5, seed=seed)
    pool = 1 if "no pool" in request.param else 3
    return lambda seed: PairStream(*pairs(), batch_size=5, seed=seed, pool=pool)


def test_stream_depends_on_its_seed_alone(make):
    first, second, other = make(1), make(1), make(2)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert all(same(next(first), next(second)) for _ in range(50))
    assert torch.equal(torch.get_rng_state(), before)
    fresh = make(1)
    assert not all(same(next(fresh), next(other)) for _ in range(10))


@pytest.mark.parametrize("drawn", [0, 1, 20, 21, 22, 50])
def test_stream_goes_on_where_its_state_was_taken(make, drawn):
    first = make(1)
    for _ in range(drawn):
        next(first)
    state = first.state_dict()
    rest = [next(first) for _ in range(30)]
    second = make(1)
    second.load_state_dict(state)
    assert all(same(next(second), batch) for batch in rest)


def test_state_is_not_changed_by_going_on(make):
    stream = make(1)
    state = stream.state_dict()
    expected = next(make(1))
    next(stream), next(stream)
    again = make(1)
    again.load_state_dict(state)
    assert same(next(again), expected)


@pytest.mark.parametrize("pool", [1, 3, 50])
def test_pair_stream_shows_every_pair_once_an_epoch_in_a_new_order(pool):
    stream = PairStream(*pairs(), batch_size=10, seed=0, pool=pool)
    epochs = []
    for epoch in range(3):
        shown = []
        while len(shown) < 103:
            batch = next(stream)
            assert stream.epoch == epoch
            shown += numbers(batch)
        assert Counter(shown) == Counter(range(103))
        epochs.append(shown)
    assert epochs[0] != epochs[1] != epochs[2]


def test_pool_saves_padding_without_leaving_the_batches_sorted():
    def padding(pool: int) -> tuple[int, list[int]]:
        stream = PairStream(*pairs(1000), batch_size=10, seed=0, pool=pool)
        batches = [next(stream) for _ in range(100)]
        return (
            sum(int((~batch.source_mask).sum()) for batch in batches),
            [batch.source.shape[1] for batch in batches],
        )

    alone, _ = padding(1)
    together, widths = padding(20)
    assert together < 0.2 * alone
    assert widths != sorted(widths)
