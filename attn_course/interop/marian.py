"""Marian: post-norm encoder-decoder, fixed sinusoids with all sines first, a bias of the logits."""

import math
from collections.abc import Iterator
from typing import Any

import torch
import transformers as hf

from attn_course import nn
from attn_course.functional.positions import sinusoidal_positions
from attn_course.interop._config import (
    NO_TOKENS,
    Family,
    Pair,
    activation,
    check_layers,
    expect,
    first,
    name_of,
    names,
    table,
)

WEIGHTS = """
source_embedding.tokens                                               encoder.embed_tokens
encoder.blocks.*.attention.{query,key,value,output}_projection        encoder.layers.*.self_attn.{q_proj,k_proj,v_proj,out_proj}
encoder.blocks.*.attention_norm                                       encoder.layers.*.self_attn_layer_norm
encoder.blocks.*.feed_forward.{up,down}_projection                    encoder.layers.*.{fc1,fc2}
encoder.blocks.*.feed_forward_norm                                    encoder.layers.*.final_layer_norm
decoder.blocks.*.self_attention.{query,key,value,output}_projection   decoder.layers.*.self_attn.{q_proj,k_proj,v_proj,out_proj}
decoder.blocks.*.cross_attention.{query,key,value,output}_projection  decoder.layers.*.encoder_attn.{q_proj,k_proj,v_proj,out_proj}
decoder.blocks.*.{self,cross}_attention_norm                          decoder.layers.*.{self,encoder}_attn_layer_norm
decoder.blocks.*.feed_forward.{up,down}_projection                    decoder.layers.*.{fc1,fc2}
decoder.blocks.*.feed_forward_norm                                    decoder.layers.*.final_layer_norm
"""  # noqa: E501


def build(theirs: Any) -> nn.Transformer:
    """Our modules for a model of theirs."""
    config = theirs.config
    base = theirs.base_model
    size, bend = config.d_model, activation("activation_function", config.activation_function)
    check_layers("encoder_layers", config.encoder_layers, base.encoder.layers)
    check_layers("decoder_layers", config.decoder_layers, base.decoder.layers)
    _check_sinusoids("encoder", base.encoder.embed_positions)
    _check_sinusoids("decoder", base.decoder.embed_positions)

    def embedding(words: int) -> nn.TokenEmbedding:
        return nn.TokenEmbedding(
            vocab_size=words,
            embed_dim=size,
            position=nn.SinusoidalPositions(
                embed_dim=size, interleaved=False, max_length=config.max_position_embeddings
            ),
            scale=math.sqrt(size) if config.scale_embedding else 1.0,
            dropout=config.dropout,
        )

    def attend(heads: int) -> nn.MultiHeadAttention:
        return nn.MultiHeadAttention(
            embed_dim=size, num_heads=heads, dropout=config.attention_dropout
        )

    def forward(hidden: int) -> nn.FeedForward:
        return nn.FeedForward(
            embed_dim=size, hidden_dim=hidden, activation=bend, dropout=config.activation_dropout
        )

    def norm() -> nn.LayerNorm:
        return nn.LayerNorm(embed_dim=size)

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
    head: torch.nn.Module | None = None
    if type(theirs) is hf.MarianModel:
        head = torch.nn.Identity()
    elif theirs.lm_head.weight is not base.decoder.embed_tokens.weight:
        head = torch.nn.Linear(size, theirs.lm_head.out_features, bias=False)
    return nn.Transformer(
        source_embedding=source,
        target_embedding=target,
        encoder=nn.TransformerEncoder(
            blocks=[
                nn.EncoderBlock(
                    attention=attend(config.encoder_attention_heads),
                    attention_norm=norm(),
                    feed_forward=forward(config.encoder_ffn_dim),
                    feed_forward_norm=norm(),
                    dropout=config.dropout,
                )
                for _ in range(config.encoder_layers)
            ]
        ),
        decoder=nn.TransformerDecoder(
            blocks=[
                nn.DecoderBlock(
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
        logits_bias=type(theirs) is hf.MarianMTModel,
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


def owns(model: torch.nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, nn.Transformer) and isinstance(
        model.source_embedding.position, nn.SinusoidalPositions
    )


def export(model: nn.Transformer, config: Any) -> Any:
    """Their model for ours, with any weights."""
    bare = isinstance(model.output_projection, torch.nn.Identity)
    return hf.MarianModel(config) if bare else hf.MarianMTModel(config)


def describe(model: nn.Transformer) -> dict[str, Any]:
    """Fields of the configuration."""
    reader = first("model.encoder.blocks", model.encoder.blocks, nn.EncoderBlock)
    writer = first("model.decoder.blocks", model.decoder.blocks, nn.DecoderBlock)
    read = expect("model.encoder.blocks.0.attention", reader.attention, nn.MultiHeadAttention)
    write = expect(
        "model.decoder.blocks.0.self_attention", writer.self_attention, nn.MultiHeadAttention
    )
    wide = expect("model.encoder.blocks.0.feed_forward", reader.feed_forward, nn.FeedForward)
    wide_too = expect("model.decoder.blocks.0.feed_forward", writer.feed_forward, nn.FeedForward)
    source, target = model.source_embedding, model.target_embedding
    position = expect("model.source_embedding.position", source.position, nn.SinusoidalPositions)
    if position.max_length is None:
        raise ValueError(
            "model.source_embedding.position.max_length: expected the number of positions, "
            "as a configuration has one, got None"
        )
    return dict(
        vocab_size=source.tokens.num_embeddings,
        decoder_vocab_size=target.tokens.num_embeddings,
        share_encoder_decoder_embeddings=source is target,
        tie_word_embeddings=not isinstance(model.output_projection, torch.nn.Linear),
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


def pairs(ours: nn.Transformer, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    yield from table(ours, theirs.base_model, WEIGHTS)
    if ours.target_embedding is not ours.source_embedding:
        yield from table(ours, theirs.base_model, "target_embedding.tokens decoder.embed_tokens")
    if isinstance(ours.output_projection, torch.nn.Linear):
        yield from table(ours, theirs, "output_projection lm_head")
    yield from table(ours, theirs, "logits_bias final_logits_bias row", row=lambda bias: bias[0])


FAMILY = Family(
    *(hf.MarianConfig, nn.Transformer, (hf.MarianModel, hf.MarianMTModel)),
    *(build, owns, describe, export, pairs),
    reads=names("""
        activation_dropout activation_function attention_dropout d_model decoder_attention_heads
        decoder_ffn_dim decoder_layers dropout encoder_attention_heads encoder_ffn_dim
        encoder_layers max_position_embeddings scale_embedding share_encoder_decoder_embeddings
    """),
    fixed={"is_decoder": False, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
    unused=names("decoder_vocab_size init_std"),  # the table itself is asked
    derived=("embed_positions.weight",),
)
