"""Linformer's projections inside multi-head attention, and the layer with the delta rule."""

import pytest
import torch
from refusals import refused
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course.functional import delta_rule_recurrent, linformer_attention
from attn_course.nn import DeltaRuleAttention, LinformerAttention, MultiHeadAttention
from attn_course.nn.heads import split_heads
from attn_course.nn.linformer import LengthProjection

B, L, D, H, N, K = 2, 7, 12, 3, 11, 5


@pytest.mark.parametrize("heads", [None, H])
def test_multi_head_attention_takes_linformers_attention(heads: int | None) -> None:
    first, second = (LengthProjection(max_length=N, rank=K, num_heads=heads) for _ in range(2))
    attend = LinformerAttention(key_projection=first, value_projection=second)
    module = MultiHeadAttention(embed_dim=D, num_heads=H, attn_fn=attend)
    assert {"attn_fn.key_projection.weight", "attn_fn.value_projection.weight"} <= set(
        module.state_dict()
    )
    x = torch.randn(B, L, D)
    real = torch.arange(L) < torch.tensor([L, 4])[:, None]
    parts = (module.query_projection, module.key_projection, module.value_projection)
    inputs = [split_heads(part(x), H) for part in parts]
    want = linformer_attention(*inputs, first.weight, second.weight, padding_mask=real)
    want = module.output_projection(want.transpose(1, 2).flatten(2))
    got = module(x, attn_mask=real[:, None, None])
    assert_close(got, want)
    got.sum().backward()
    assert first.weight.grad is not None
    assert second.weight.grad is not None
    refused("is_causal, enable_gqa: expected False", module, x, is_causal=True)
    with pytest.raises(ValueError, match="attn_mask: expected a boolean padding mask"):
        module(x, attn_mask=torch.ones(L, L, dtype=torch.bool))
    refused("expected at most 11 positions", module, torch.randn(B, N + 1, D))


def test_shared_projections_are_one_parameter() -> None:
    one = LengthProjection(max_length=N, rank=K)
    attend = LinformerAttention(key_projection=one, value_projection=one)
    assert sum(p.numel() for p in attend.parameters()) == N * K
    refused("max_length, rank, num_heads", LengthProjection, max_length=0, rank=K)


def test_the_delta_layer_is_the_rule_between_its_projections_and_goes_on() -> None:
    module = DeltaRuleAttention(embed_dim=D, num_heads=H, chunk_size=3)
    x = torch.randn(B, L, D)
    parts = (module.query_projection, module.key_projection, module.value_projection)
    query, key, value = (split_heads(part(x), H) for part in parts)
    beta = torch.sigmoid(module.beta_projection(x)).mT
    heads, end = delta_rule_recurrent(
        F.normalize(query, dim=-1), F.normalize(key, dim=-1), value, beta
    )
    want = module.output_projection(heads.transpose(1, 2).flatten(2))
    got, state = module(x)
    assert_close(got, want)
    assert_close(state, end)
    first, middle = module(x[:, :4])
    second, last = module(x[:, 4:], middle)
    assert_close(torch.cat([first, second], dim=1), got)
    assert_close(last, state)
    refused("embed_dim: expected a multiple", DeltaRuleAttention, embed_dim=D, num_heads=5)
