"""Windows as positions, and norms of queries and keys: equal to masks and to norms by hand."""

from functools import partial

import pytest
import torch
from refusals import refused
from torch.testing import assert_close

from attn_course import nn as ours
from attn_course.functional import attention_weights

B, L, D, H, E = 3, 11, 12, 3, 4


@pytest.mark.parametrize(("before", "after"), [(0, 0), (2, 0), (3, 5), (40, 40)])
def test_a_window_is_its_mask(before: int, after: int) -> None:
    x, where = torch.randn(B, L, D), torch.arange(L)
    ahead = where[:, None] - where
    mask = (ahead <= before) & (ahead >= -after)
    for position in (None, ours.RotaryPositions(), ours.AlibiPositions(num_heads=H)):
        plain = ours.MultiHeadAttention(embed_dim=D, num_heads=H, position=position)
        wanted = plain(x, attn_mask=mask)
        plain.position = ours.WindowPositions(before=before, after=after, position=position)
        assert_close(plain(x), wanted)
        assert_close(plain.weights(x).ne(0).any(1), mask.expand(B, L, L))


@pytest.mark.parametrize("make", [ours.KVCache, partial(ours.SlidingCache, window_size=3)])
def test_a_causal_window_in_a_cache_is_the_window_at_once(make: partial[ours.KVCache]) -> None:
    position = ours.WindowPositions(before=2, position=ours.RotaryPositions())
    layer = ours.MultiHeadAttention(embed_dim=D, num_heads=H, num_kv_heads=1, position=position)
    x, cache = torch.randn(B, L, D), make()
    parts = [layer(part, is_causal=True, cache=cache) for part in x.split([4, 1, 1, 3, 2], dim=1)]
    assert_close(torch.cat(parts, dim=1), layer(x, is_causal=True))


def test_queries_and_keys_have_norms_of_their_own() -> None:
    norms = [ours.RMSNorm(embed_dim=E), ours.RMSNorm(embed_dim=E)]
    for norm in norms:
        torch.nn.init.normal_(norm.weight)
    layer = ours.MultiHeadAttention(
        embed_dim=D, num_heads=H, query_norm=norms[0], key_norm=norms[1]
    )
    x = torch.randn(B, L, D)
    query, key = (
        norm(project(x).unflatten(-1, (H, E)).transpose(1, 2))
        for norm, project in zip(norms, (layer.query_projection, layer.key_projection), strict=True)
    )
    assert_close(layer.weights(x), attention_weights(query, key))
    refused("no norms", layer.to_torch)


def test_negative_windows_are_refused() -> None:
    refused(
        "before, after: expected at least 0, got -1 and 2", ours.WindowPositions, before=-1, after=2
    )
