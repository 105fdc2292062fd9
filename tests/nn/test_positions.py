"""Position modules: the functions of the same name, at positions that differ from row to row."""

import pytest
import torch
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import functional
from attn_course.nn import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)

PLACES = torch.tensor([[0, 1, 2, 3, 4], [-1, -1, 0, 1, 2]])  # the second row begins with padding


@pytest.mark.parametrize("interleaved", [True, False])
def test_sinusoids_are_looked_up_by_position(interleaved: bool) -> None:
    module = SinusoidalPositions(embed_dim=7, base=100.0, interleaved=interleaved)
    table = functional.sinusoidal_positions(11, 7, base=100.0, interleaved=interleaved)
    assert not list(module.parameters())
    assert_close(module(torch.arange(4, 11), 11), table[4:])
    assert_close(module(PLACES, 5), table[torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]])])


def test_sinusoids_end_where_they_are_told_to() -> None:
    module = SinusoidalPositions(embed_dim=7, max_length=5)
    assert_close(module(PLACES, 5), SinusoidalPositions(embed_dim=7)(PLACES, 5))
    refused("length: expected at most 5, got 6", module, torch.arange(6), 6)


def test_learned_positions_are_rows_of_a_table_and_end_with_it() -> None:
    module = LearnedPositions(max_length=5, embed_dim=3)
    assert_close(module(PLACES, 5)[1, 2:], module.weight[:3])
    module(PLACES, 5)[0].sum().backward()
    assert_close(module.weight.grad, torch.ones(5, 3))
    refused("length: expected at most 5, got 6", module, torch.arange(6), 6)
    many = LearnedPositions(max_length=1009, embed_dim=11).weight
    assert abs(float(many.detach().std()) - 0.02) < 1e-3


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotations_are_those_of_the_function_row_by_row(interleaved: bool) -> None:
    def half(frequencies: Tensor) -> Tensor:
        return functional.linear_scaling(frequencies, factor=2.0)

    module = RotaryPositions(base=50.0, interleaved=interleaved, scaling=half)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    frequencies = functional.rope_frequencies(6, base=50.0) / 2
    want = torch.stack(
        [
            functional.apply_rope(row, place, interleaved=interleaved, frequencies=frequencies)
            for row, place in zip(x, PLACES, strict=True)
        ]
    )
    assert_close(module.rotate(x, PLACES), want, **FLOAT64)
    assert_close(module.rotate(x, PLACES[0])[0], want[0], **FLOAT64)


def test_alibi_is_the_function_where_keys_stand_in_order() -> None:
    module = AlibiPositions(num_heads=6)
    query, key = torch.arange(3, 8), torch.arange(8)
    assert_close(module.bias(query, key), functional.alibi_bias(6, 5, 8, offset=3))
    batched = module.bias(PLACES, PLACES)
    assert_close(batched[1, :, 2:, 2:], functional.alibi_bias(6, 3))
    far = module.bias(torch.tensor([9]), torch.tensor([2]))
    assert_close(far[:, 0, 0], -7 * functional.alibi_slopes(6))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_bias_is_one_number_per_head_and_bucket(bidirectional: bool) -> None:
    sizes = {"num_buckets": 8, "max_distance": 11, "bidirectional": bidirectional}
    module = RelativePositions(num_heads=3, **sizes)
    query, key = torch.arange(2, 7), torch.arange(13)
    bias = module.bias(query, key)
    for i, j in ((0, 0), (4, 12), (2, 4), (3, 11)):
        distance = torch.tensor(int(key[j]) - int(query[i]))
        row = functional.relative_position_bucket(distance, **sizes)
        assert_close(bias[:, i, j], module.weight[row])
    assert_close(module.bias(PLACES, PLACES)[1, :, 2:, 2:], bias[:, :3, 2:5])
