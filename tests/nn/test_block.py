"""Blocks: against torch's layers, pre- and post-norm, forward and every gradient."""

from typing import Any

import pytest
import torch
from layers import drawn, leaf
from mutation import mutant
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course import nn as ours
from attn_course.nn.cache import DecoderCache

B, L, S, H, D, F = 2, 7, 11, 3, 15, 23


OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm_first": True, "activation": "gelu"},
    {"layer_norm_eps": 0.1, "bias": False},
]


def theirs(kind: type[nn.Module], options: dict[str, Any]) -> Any:
    return drawn(kind(D, H, dim_feedforward=F, dropout=0.2, batch_first=True, **options)).eval()


def in_torch_order(name: str) -> list[str]:
    """Names of our parameters that make up one of torch's."""
    for old, new in (
        ("multihead_attn.", "cross_attention."),
        ("linear1", "feed_forward.up_projection"),
        ("linear2", "feed_forward.down_projection"),
        ("out_proj", "output_projection"),
    ):
        name = name.replace(old, new)
    if "in_proj_" in name:
        parts = ("query", "key", "value")
        return [name.replace("in_proj_", f"{part}_projection.") for part in parts]
    return [name]


def same_gradients(
    got: Tensor, want: Tensor, mine: nn.Module, layer: nn.Module, *x: Tensor
) -> None:
    names = {"self_attn.": "self_attention.", "norm1": "self_attention_norm"}
    if hasattr(mine, "attention"):
        names = {"self_attn.": "attention.", "norm1": "attention_norm"}
        names |= {"norm2": "feed_forward_norm"}
    else:
        names |= {"norm2": "cross_attention_norm", "norm3": "feed_forward_norm"}
    weight = torch.randn_like(want)
    (got * weight).sum().backward()
    have = [part.grad for part in x]
    for part in x:
        part.grad = None
    (want * weight).sum().backward()
    assert_close(have, [part.grad for part in x], **FLOAT64)
    seen = 0
    for name, parameter in layer.named_parameters():
        for old, new in names.items():
            name = name.replace(old, new)
        parts = [mine.get_parameter(part).grad for part in in_torch_order(name)]
        assert_close(torch.cat(parts), parameter.grad, **FLOAT64)
        seen += len(parts)
    assert seen == len(list(mine.parameters()))


def check_encoder(block: type[ours.EncoderBlock], options: dict[str, Any]) -> None:
    layer = theirs(nn.TransformerEncoderLayer, options)
    mine = block.from_torch(layer)
    assert not mine.training
    x, attend, real = leaf(B, L, D), torch.rand(L, L) < 0.6, torch.rand(B, L) < 0.7
    attend[:, 0], real[:, 0] = True, True
    want = layer(x, src_mask=~attend, src_key_padding_mask=~real)
    got = mine(x, attend & real[:, None, None, :])
    assert_close(got, want, **FLOAT64)
    same_gradients(got, want, mine, layer, x)


@pytest.mark.parametrize("options", OPTIONS)
def test_encoder_block_is_that_of_torch(options: dict[str, Any]) -> None:
    check_encoder(ours.EncoderBlock, options)


def check_decoder(block: type[ours.DecoderBlock], options: dict[str, Any]) -> None:
    layer = theirs(nn.TransformerDecoderLayer, options)
    mine = block.from_torch(layer)
    x, memory, real = leaf(B, L, D), leaf(B, S, D), torch.rand(B, S) < 0.7
    real[:, 0] = True
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    want = layer(x, memory, tgt_mask=future, memory_key_padding_mask=~real)
    got = mine(x, memory, memory_mask=real[:, None, None, :], is_causal=True)
    assert_close(got, want, **FLOAT64)
    same_gradients(got, want, mine, layer, x, memory)


@pytest.mark.parametrize("options", OPTIONS)
def test_decoder_block_is_that_of_torch(options: dict[str, Any]) -> None:
    check_decoder(ours.DecoderBlock, options)


def check_all(encoder: type[ours.EncoderBlock], decoder: type[ours.DecoderBlock]) -> None:
    for options in OPTIONS:
        check_encoder(encoder, options)
        check_decoder(decoder, options)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("norm(x + dropout(sublayer(x)))", "x + dropout(norm(sublayer(x)))"),
        ("x + dropout(sublayer(norm(x)))", "norm(x) + dropout(sublayer(norm(x)))"),
        ("x + dropout(sublayer(norm(x)))", "dropout(sublayer(norm(x)))"),
        ("key=memory", "key=x"),
        ("attn_mask=memory_mask", "attn_mask=None"),
        ("is_causal=is_causal", "is_causal=False"),
        ("eps=norm.eps", "eps=1e-5"),
        ("activation=layer.activation", "activation=nn.functional.relu"),
        ("norm_first=self.norm_first", "norm_first=False"),
    ],
)
def test_the_comparison_with_torch_rejects_mutants(old: str, new: str) -> None:
    blocks = [mutant("attn_course.nn.block", n, old, new) for n in ("EncoderBlock", "DecoderBlock")]
    with pytest.raises((AssertionError, RuntimeError, ValueError)):
        check_all(*blocks)


def test_dropout_of_a_block_is_that_of_torch() -> None:
    for kind, block in (
        (nn.TransformerEncoderLayer, ours.EncoderBlock),
        (nn.TransformerDecoderLayer, ours.DecoderBlock),
    ):
        mine = block.from_torch(theirs(kind, {}).train())
        assert mine.training
        chances = {part.p for part in mine.modules() if isinstance(part, nn.Dropout)}
        chances |= {p.dropout for p in mine.modules() if isinstance(p, ours.MultiHeadAttention)}
        assert chances == {0.2}


def test_without_feed_forward_a_block_is_attention_and_its_residual() -> None:
    attention = ours.MultiHeadAttention(embed_dim=D, num_heads=H)
    norm = ours.LayerNorm(embed_dim=D)
    block = ours.EncoderBlock(attention=attention, attention_norm=norm, norm_first=True)
    x = torch.randn(B, L, D)
    assert_close(block(x, is_causal=True), x + attention(norm(x), is_causal=True))
    with pytest.raises(ValueError, match="expected both or neither"):
        ours.EncoderBlock(attention=attention, attention_norm=norm, feed_forward_norm=norm)


@pytest.mark.parametrize("norm_first", [True, False])
def test_cached_decoder_block_is_the_block_at_every_step(norm_first: bool) -> None:
    block = ours.DecoderBlock.from_torch(
        theirs(nn.TransformerDecoderLayer, {"norm_first": norm_first})
    )
    x, memory = leaf(B, L, D), leaf(B, S, D)
    cache = DecoderCache(ours.KVCache(), ours.CrossCache())
    steps = [block(t, memory, is_causal=True, cache=cache) for t in x.split([3, 1, 1, 2], dim=1)]
    assert_close(torch.cat(steps, dim=1), block(x, memory, is_causal=True), **FLOAT64)
    assert cache.nbytes == 2 * B * D * (L + S) * 8
