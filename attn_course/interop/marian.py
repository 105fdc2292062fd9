"""Marian: post-norm encoder-decoder, fixed sinusoids with all sines first, a bias of the logits."""

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import MarianConfig, MarianModel, MarianMTModel

from attn_course.functional.positions import sinusoidal_positions
from attn_course.interop._config import (
    NO_TOKENS,
    Family,
    Pair,
    activation,
    attention,
    check_layers,
    expect,
    first,
    name_of,
    same,
)
from attn_course.nn import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    MultiHeadAttention,
    SinusoidalPositions,
    TokenEmbedding,
    Transformer,
    TransformerDecoder,
    TransformerEncoder,
)


def build(theirs: Any) -> Transformer:
    """Our modules for a model of theirs."""
    config = theirs.config
    base: Any = theirs if type(theirs) is MarianModel else theirs.model
    size, bend = config.d_model, activation("activation_function", config.activation_function)
    check_layers("encoder_layers", config.encoder_layers, base.encoder.layers)
    check_layers("decoder_layers", config.decoder_layers, base.decoder.layers)
    _check_sinusoids("encoder", base.encoder.embed_positions)
    _check_sinusoids("decoder", base.decoder.embed_positions)

    def embedding(words: int) -> TokenEmbedding:
        return TokenEmbedding(
            vocab_size=words,
            embed_dim=size,
            position=SinusoidalPositions(
                embed_dim=size, interleaved=False, max_length=config.max_position_embeddings
            ),
            scale=math.sqrt(size) if config.scale_embedding else 1.0,
            dropout=config.dropout,
        )

    def attend(heads: int) -> MultiHeadAttention:
        return MultiHeadAttention(embed_dim=size, num_heads=heads, dropout=config.attention_dropout)

    def forward(hidden: int) -> FeedForward:
        return FeedForward(
            embed_dim=size, hidden_dim=hidden, activation=bend, dropout=config.activation_dropout
        )

    def norm() -> LayerNorm:
        return LayerNorm(embed_dim=size)

    source = embedding(base.encoder.embed_tokens.num_embeddings)
    target = source
    if base.decoder.embed_tokens.weight is not base.encoder.embed_tokens.weight:
        target = embedding(base.decoder.embed_tokens.num_embeddings)
    if config.share_encoder_decoder_embeddings and not (
        base.shared.weight is base.encoder.embed_tokens.weight and target is source
    ):
        raise ValueError(
            "config.share_encoder_decoder_embeddings: expected False where encoder and decoder "
            "do not use the shared table, got True"
        )
    head: nn.Module | None = None
    if type(theirs) is MarianModel:
        head = nn.Identity()
    elif theirs.lm_head.weight is not base.decoder.embed_tokens.weight:
        head = nn.Linear(size, theirs.lm_head.out_features, bias=False)
    return Transformer(
        source_embedding=source,
        target_embedding=target,
        encoder=TransformerEncoder(
            blocks=[
                EncoderBlock(
                    attention=attend(config.encoder_attention_heads),
                    attention_norm=norm(),
                    feed_forward=forward(config.encoder_ffn_dim),
                    feed_forward_norm=norm(),
                    dropout=config.dropout,
                )
                for _ in range(config.encoder_layers)
            ]
        ),
        decoder=TransformerDecoder(
            blocks=[
                DecoderBlock(
                    self_attention=attend(config.decoder_attention_heads),
                    self_attention_norm=norm(),
                    cross_attention=attend(config.decoder_attention_heads),
                    cross_attention_norm=norm(),
                    feed_forward=forward(config.decoder_ffn_dim),
                    feed_forward_norm=norm(),
                    dropout=config.dropout,
                )
                for _ in range(config.decoder_layers)
            ]
        ),
        output_projection=head,
        logits_bias=type(theirs) is MarianMTModel,
    )


def _check_sinusoids(side: str, table: Any) -> None:
    """Refuse a table of positions that is not the one that we compute."""
    found = table.weight.detach().float().cpu()
    # the rest is built without memory, on no device
    wanted = sinusoidal_positions(*found.shape, interleaved=False, device="cpu")
    wanted = wanted.to(table.weight.dtype).float()
    if not torch.allclose(found, wanted, atol=1e-6, rtol=0):
        raise ValueError(
            f"{side}.embed_positions.weight: expected sines, then cosines, of each position, "
            f"got values that differ by up to {float((found - wanted).abs().max()):.2g}"
        )


def owns(model: nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, Transformer) and isinstance(
        model.source_embedding.position, SinusoidalPositions
    )


def export(model: Transformer, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if config is None:
        config = _describe(model)
    config = copy.deepcopy(expect("config", config, MarianConfig))
    bare = isinstance(model.output_projection, nn.Identity)
    return MarianModel(config) if bare else MarianMTModel(config)


def _describe(model: Transformer) -> Any:
    reader = first("model.encoder.blocks", model.encoder.blocks, EncoderBlock)
    writer = first("model.decoder.blocks", model.decoder.blocks, DecoderBlock)
    read = expect("model.encoder.blocks.0.attention", reader.attention, MultiHeadAttention)
    write = expect(
        "model.decoder.blocks.0.self_attention", writer.self_attention, MultiHeadAttention
    )
    wide = expect("model.encoder.blocks.0.feed_forward", reader.feed_forward, FeedForward)
    wide_too = expect("model.decoder.blocks.0.feed_forward", writer.feed_forward, FeedForward)
    source, target = model.source_embedding, model.target_embedding
    position = expect("model.source_embedding.position", source.position, SinusoidalPositions)
    if position.max_length is None:
        raise ValueError(
            "model.source_embedding.position.max_length: expected the number of positions, "
            "as a configuration has one, got None"
        )
    return MarianConfig(
        vocab_size=source.tokens.num_embeddings,
        decoder_vocab_size=target.tokens.num_embeddings,
        share_encoder_decoder_embeddings=source is target,
        tie_word_embeddings=not isinstance(model.output_projection, nn.Linear),
        max_position_embeddings=position.max_length,
        encoder_layers=len(model.encoder.blocks),
        encoder_ffn_dim=wide.up_projection.out_features,
        encoder_attention_heads=read.num_heads,
        decoder_layers=len(model.decoder.blocks),
        decoder_ffn_dim=wide_too.up_projection.out_features,
        decoder_attention_heads=write.num_heads,
        activation_function=name_of("model.encoder.blocks.0.feed_forward", wide.activation),
        d_model=source.tokens.embedding_dim,
        dropout=reader.dropout.p,
        attention_dropout=read.dropout,
        activation_dropout=wide.dropout.p,
        scale_embedding=source.scale != 1.0,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
        **NO_TOKENS,
    )


def pairs(ours: Transformer, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    base: Any = theirs if type(theirs) is MarianModel else theirs.model
    readers: Any = ours.encoder.blocks
    writers: Any = ours.decoder.blocks
    yield from same(ours.source_embedding.tokens, base.encoder.embed_tokens)
    if ours.target_embedding is not ours.source_embedding:
        yield from same(ours.target_embedding.tokens, base.decoder.embed_tokens)
    for block, layer in zip(readers, base.encoder.layers, strict=True):
        yield from _attention(block.attention, layer.self_attn)
        yield from same(block.attention_norm, layer.self_attn_layer_norm)
        yield from _forward(block, layer)
    for block, layer in zip(writers, base.decoder.layers, strict=True):
        yield from _attention(block.self_attention, layer.self_attn)
        yield from same(block.self_attention_norm, layer.self_attn_layer_norm)
        yield from _attention(block.cross_attention, layer.encoder_attn)
        yield from same(block.cross_attention_norm, layer.encoder_attn_layer_norm)
        yield from _forward(block, layer)
    if isinstance(ours.output_projection, nn.Linear):
        yield from same(ours.output_projection, theirs.lm_head)
    if ours.logits_bias is not None:
        yield Pair(ours.logits_bias, theirs.final_logits_bias, lambda bias: bias[0])


def _attention(ours: Any, theirs: Any) -> Iterator[Pair]:
    return attention(ours, theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.out_proj)


def _forward(ours: Any, theirs: Any) -> Iterator[Pair]:
    yield from same(ours.feed_forward.up_projection, theirs.fc1)
    yield from same(ours.feed_forward.down_projection, theirs.fc2)
    yield from same(ours.feed_forward_norm, theirs.final_layer_norm)


FAMILY = Family(
    classes=(MarianModel, MarianMTModel),
    reads=frozenset(
        {
            "activation_dropout",
            "activation_function",
            "attention_dropout",
            "d_model",
            "decoder_attention_heads",
            "decoder_ffn_dim",
            "decoder_layers",
            "dropout",
            "encoder_attention_heads",
            "encoder_ffn_dim",
            "encoder_layers",
            "max_position_embeddings",
            "scale_embedding",
            "share_encoder_decoder_embeddings",
        }
    ),
    fixed={"is_decoder": False, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
    unused=frozenset(
        {
            "decoder_vocab_size",  # the table itself is asked
            "init_std",
        }
    ),
    build=build,
    owns=owns,
    export=export,
    pairs=pairs,
    derived=("embed_positions.weight",),
)
