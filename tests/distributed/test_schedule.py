"""Layouts and schedules, by counting pairs and by walking round."""

import pytest
import torch
from refusals import refused

from attn_course.distributed import join_sequence, shard_positions, split_sequence
from attn_course.distributed.schedule import LAYOUTS, Tile, ring_block, ring_tile


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_every_allowed_pair_is_computed_once_and_no_other(layout, world_size):
    length = 6 * world_size
    places = [shard_positions(length, world_size, rank, layout) for rank in range(world_size)]
    assert all(each == sorted(each) for each in places)
    for is_causal in (False, True):
        table = torch.zeros(length, length, dtype=torch.int)
        for rank in range(world_size):
            seen = []
            for step in range(world_size):
                owner = ring_block(world_size, step, rank)
                seen.append(owner)
                tile = ring_tile(rank, owner, (6, 6), is_causal=is_causal, layout=layout)
                if tile is None:
                    continue
                rows, columns = places[rank][tile.rows], places[owner][tile.columns]
                inside = torch.ones(len(rows), len(columns), dtype=torch.int)
                inside = inside.tril() if tile.is_causal else inside
                assert int(inside.sum()) == tile.pairs
                table[torch.tensor(rows)[:, None], torch.tensor(columns)] += inside
            assert sorted(seen) == list(range(world_size))
            assert seen[0] == rank
        whole = torch.ones(length, length, dtype=torch.int)
        assert torch.equal(table, whole.tril() if is_causal else whole)


def test_a_block_moves_one_process_further_at_every_step():
    for step in range(4):
        for rank in range(5):
            assert ring_block(5, step + 1, (rank + 1) % 5) == ring_block(5, step, rank)


def test_places_by_hand():
    assert shard_positions(8, 2, 0, "contiguous") == [0, 1, 2, 3]
    assert shard_positions(8, 2, 0, "zigzag") == [0, 1, 6, 7]
    assert shard_positions(8, 2, 1, "zigzag") == [2, 3, 4, 5]
    assert shard_positions(8, 2, 1, "striped") == [1, 3, 5, 7]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shards_join_to_what_was_split(layout):
    rows = torch.randn(2, 3, 12, 5)
    for dim, x in ((-2, rows), (0, rows[0, 0]), (2, rows)):
        shards = split_sequence(x, 3, layout, dim=dim)
        assert torch.equal(join_sequence(shards, layout, dim=dim), x)
        assert all(shard.is_contiguous() for shard in shards)
    places = shard_positions(12, 3, 1, layout)
    assert torch.equal(split_sequence(rows, 3, layout)[1], rows[:, :, places])


def test_a_shard_of_one_position():
    assert ring_tile(0, 1, (1, 1), is_causal=True, layout="striped") is None
    one = Tile(slice(0, 1), slice(0, 1), True)
    assert ring_tile(1, 0, (1, 1), is_causal=True, layout="striped") == one
    assert ring_tile(0, 0, (0, 3), is_causal=False) is None


@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_named():
    refused("length: expected a multiple of 6 for 3 proc", shard_positions, 9, 3, 0, "zigzag")
    refused("length: expected a multiple of 3", split_sequence, torch.zeros(8, 2), 3)
    refused("layout: expected one of contiguous, zigzag,", shard_positions, 9, 3, 0, "round")
    refused("rank: expected 0 to 2, got 3", shard_positions, 9, 3, 3, "striped")
    with pytest.raises(ValueError, match="lengths: expected even ones for layout zigzag"):
        ring_tile(0, 1, (3, 3), is_causal=True, layout="zigzag")
    refused("shards: expected one for each process, got none", join_sequence, [])
