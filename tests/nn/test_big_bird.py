"""BigBird's blocks: which positions each one sees, against full attention under that mask."""

from functools import partial

import pytest
import torch
from oracles import same_gradients
from refusals import refused
from torch.testing import assert_close

from attn_course.functional import scaled_dot_product_attention
from attn_course.nn import BigBirdSelfAttention
from attn_course.nn.big_bird import _plan
from attn_course.nn.heads import split_heads


def count_matrix(blocks: int, heads: int, random: int, seed: int | None) -> torch.Tensor:
    """How often each block is counted, from the definition: (H, blocks, blocks)."""
    times = torch.zeros(heads, blocks, blocks)
    listed, _ = _plan(blocks, heads, random, seed)
    for n in range(blocks):
        near = {0, n - 1, n, n + 1, blocks - 1} if 0 < n < blocks - 1 else set(range(blocks))
        times[:, n, sorted(near)] = 1
        if 0 < n < blocks - 1:
            for h in range(heads):
                if seed is None:
                    times[h, n, 0] += random
                else:
                    drawn = set(listed[h, n - 1, 5:].tolist())
                    assert len(drawn) == random
                    assert not drawn & near
                    times[h, n, sorted(drawn)] = 1
    return times


@pytest.mark.parametrize("seed", [0, 5, None])
@pytest.mark.parametrize(("length", "size", "random"), [(29, 2, 1), (44, 3, 4), (11, 1, 0)])
def test_it_is_full_attention_under_its_own_mask(
    length: int, size: int, random: int, seed: int | None
) -> None:
    layer = BigBirdSelfAttention(
        embed_dim=12, num_heads=3, block_size=size, num_random_blocks=random, seed=seed
    ).double()
    x = torch.randn(2, length, 12, dtype=torch.float64, requires_grad=True)
    real = torch.arange(length) < torch.tensor([length, length - 4])[:, None]
    got = layer(x, real[:, None, None])
    blocks = -(-length // size)
    assert (length > (5 + 2 * random) * size) == (blocks > 5 + 2 * random)
    times = torch.ones(3, blocks, blocks)
    if length > (5 + 2 * random) * size:
        times = count_matrix(blocks, 3, random, seed)
    place = torch.arange(length) // size
    bias = times[:, place][:, :, place].double().log() + real.double().log()[:, None, None]
    heads = (
        split_heads(project(x), 3)
        for project in (layer.query_projection, layer.key_projection, layer.value_projection)
    )
    wanted = scaled_dot_product_attention(*heads, bias) * real[:, None, :, None]
    wanted = layer.output_projection(wanted.transpose(1, 2).flatten(2))
    assert_close(got, wanted)
    same_gradients(got, wanted, x)


def test_bad_input_is_refused_by_name() -> None:
    refused("embed_dim: expected a multiple", BigBirdSelfAttention, embed_dim=7, num_heads=2)
    make = partial(BigBirdSelfAttention, embed_dim=6, num_heads=2)
    refused("block_size: expected a positive", make, block_size=0)
    layer = make()
    for rows, shape in ((1, (5, 5)), (2, (3, 1, 1, 5))):
        wrong = torch.randn(rows, 5, 6), torch.ones(shape, dtype=torch.bool)
        refused("attn_mask: expected a boolean padding mask .*, got", layer, *wrong)
    refused("is_causal, cache", layer, torch.randn(1, 5, 6), is_causal=True)
