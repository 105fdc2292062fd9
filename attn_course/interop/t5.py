"""T5: pre-norm encoder-decoder with RMSNorm, unscaled scores and one relative bias per stack."""

from collections.abc import Iterator
from typing import Any

import torch
import transformers as hf

from attn_course import nn
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

# the first block of theirs holds the table of the bias, which all blocks share
WEIGHTS = """
{embedding,source_embedding}.tokens                                   {shared,shared}
encoder.blocks.0.attention.position                                   encoder.block.0.layer.0.SelfAttention.relative_attention_bias
encoder.blocks.*.attention.{query,key,value,output}_projection        encoder.block.*.layer.0.SelfAttention.{q,k,v,o}
encoder.blocks.*.attention_norm                                       encoder.block.*.layer.0.layer_norm
encoder.blocks.*.feed_forward.{gate,up,up,down}_projection            encoder.block.*.layer.1.DenseReluDense.{wi_0,wi_1,wi,wo}
encoder.blocks.*.feed_forward_norm                                    encoder.block.*.layer.1.layer_norm
encoder.norm.0                                                        encoder.final_layer_norm
decoder.blocks.0.self_attention.position                              decoder.block.0.layer.0.SelfAttention.relative_attention_bias
decoder.blocks.*.self_attention.{query,key,value,output}_projection   decoder.block.*.layer.0.SelfAttention.{q,k,v,o}
decoder.blocks.*.self_attention_norm                                  decoder.block.*.layer.0.layer_norm
decoder.blocks.*.cross_attention.{query,key,value,output}_projection  decoder.block.*.layer.1.EncDecAttention.{q,k,v,o}
decoder.blocks.*.cross_attention_norm                                 decoder.block.*.layer.1.layer_norm
decoder.blocks.*.feed_forward.{gate,up,up,down}_projection            decoder.block.*.layer.2.DenseReluDense.{wi_0,wi_1,wi,wo}
decoder.blocks.*.feed_forward_norm                                    decoder.block.*.layer.2.layer_norm
decoder.norm.0                                                        decoder.final_layer_norm
"""  # noqa: E501


def build(theirs: Any) -> nn.Transformer | nn.EncoderModel:
    """Our modules for a model of theirs."""
    config = theirs.config
    size, dropout = config.d_model, config.dropout_rate
    bend = activation("feed_forward_proj", config.dense_act_fn)
    check_layers("num_layers", config.num_layers, theirs.encoder.block, at_least=1)
    if type(theirs) is not hf.T5EncoderModel:
        check_layers(
            "num_decoder_layers", config.num_decoder_layers, theirs.decoder.block, at_least=1
        )
    _check_buckets(config)
    _check_shared(theirs)

    def norm() -> nn.RMSNorm:
        return nn.RMSNorm(embed_dim=size, eps=config.layer_norm_epsilon)

    def attend(position: nn.RelativePositions | None) -> nn.MultiHeadAttention:
        return nn.MultiHeadAttention(
            embed_dim=size,
            num_heads=config.num_heads,
            head_dim=config.d_kv,
            bias=False,
            position=position,
            scale=1.0,
            dropout=dropout,
        )

    def positions(*, bidirectional: bool) -> nn.RelativePositions:
        return nn.RelativePositions(
            num_heads=config.num_heads,
            num_buckets=config.relative_attention_num_buckets,
            max_distance=config.relative_attention_max_distance,
            bidirectional=bidirectional,
        )

    def forward() -> torch.nn.Module:
        kind = nn.GatedFeedForward if config.is_gated_act else nn.FeedForward
        made: torch.nn.Module = kind(
            embed_dim=size, hidden_dim=config.d_ff, activation=bend, bias=False, dropout=dropout
        )
        return made

    def end() -> torch.nn.Module:
        return torch.nn.Sequential(norm(), torch.nn.Dropout(dropout))

    embedding = nn.TokenEmbedding(vocab_size=config.vocab_size, embed_dim=size, dropout=dropout)
    both_ways = positions(bidirectional=True)
    encoder = nn.TransformerEncoder(
        blocks=[
            nn.EncoderBlock(
                attention=attend(both_ways),
                attention_norm=norm(),
                feed_forward=forward(),
                feed_forward_norm=norm(),
                norm_first=True,
                dropout=dropout,
            )
            for _ in range(config.num_layers)
        ],
        norm=end(),
    )
    if type(theirs) is hf.T5EncoderModel:
        return nn.EncoderModel(embedding=embedding, encoder=encoder)
    backwards = positions(bidirectional=False)
    decoder = nn.TransformerDecoder(
        blocks=[
            nn.DecoderBlock(
                self_attention=attend(backwards),
                self_attention_norm=norm(),
                cross_attention=attend(None),
                cross_attention_norm=norm(),
                feed_forward=forward(),
                feed_forward_norm=norm(),
                norm_first=True,
                dropout=dropout,
            )
            for _ in range(config.num_decoder_layers)
        ],
        norm=end(),
    )
    scale = 1.0
    head: torch.nn.Module | None = None
    if type(theirs) is hf.T5Model:
        head = torch.nn.Identity()
    else:
        scale = size**-0.5 if config.scale_decoder_outputs else 1.0
        if theirs.lm_head.weight is not theirs.shared.weight:
            head = torch.nn.Linear(size, config.vocab_size, bias=False)
    return nn.Transformer(
        source_embedding=embedding,
        target_embedding=embedding,
        encoder=encoder,
        decoder=decoder,
        output_projection=head,
        logits_scale=scale,
    )


def _check_buckets(config: Any) -> None:
    buckets, far = config.relative_attention_num_buckets, config.relative_attention_max_distance
    if buckets < 4 or buckets % 2:
        raise ValueError(
            "config.relative_attention_num_buckets: expected an even number of at least 4, "
            f"got {buckets}"
        )
    if far <= buckets // 2:
        raise ValueError(
            f"config.relative_attention_max_distance: expected more than {buckets // 2}, "
            f"half the buckets, got {far}"
        )


def _check_shared(theirs: Any) -> None:
    stacks = [theirs.encoder] + ([] if type(theirs) is hf.T5EncoderModel else [theirs.decoder])
    for stack in stacks:
        if stack.embed_tokens.weight is not theirs.shared.weight:
            raise ValueError(
                "embed_tokens.weight: expected the shared table in encoder and decoder, "
                "got one of its own"
            )


def owns(model: torch.nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, nn.EncoderModel | nn.Transformer) and any(
        isinstance(part, nn.RelativePositions) for part in model.modules()
    )


def export(model: nn.Transformer | nn.EncoderModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if isinstance(model, nn.EncoderModel):
        return hf.T5EncoderModel(config)
    if isinstance(model.output_projection, torch.nn.Identity):
        return hf.T5Model(config)
    made = hf.T5ForConditionalGeneration(config)
    if model.output_projection is not None:  # the configuration says tied in any case
        made.lm_head.weight = torch.nn.Parameter(made.lm_head.weight.detach().clone())
    return made


def describe(model: nn.Transformer | nn.EncoderModel) -> dict[str, Any]:
    """Fields of the configuration."""
    embedding = model.embedding if isinstance(model, nn.EncoderModel) else model.source_embedding
    block = first("model.encoder.blocks", model.encoder.blocks, nn.EncoderBlock)
    attend = expect("model.encoder.blocks.0.attention", block.attention, nn.MultiHeadAttention)
    position = expect(
        "model.encoder.blocks.0.attention.position", attend.position, nn.RelativePositions
    )
    norm = expect("model.encoder.blocks.0.attention_norm", block.attention_norm, nn.RMSNorm)
    forward: Any = block.feed_forward
    gated = isinstance(forward, nn.GatedFeedForward)
    if not gated:
        expect("model.encoder.blocks.0.feed_forward", forward, nn.FeedForward)
    name = name_of("model.encoder.blocks.0.feed_forward.activation", forward.activation)
    if gated:  # "gated-gelu" is the tanh form there
        name = {"gelu": "gated-gelu_python", "gelu_new": "gated-gelu"}.get(name, f"gated-{name}")
    layers, scaled = len(model.encoder.blocks), True
    if isinstance(model, nn.Transformer):
        layers, scaled = len(model.decoder.blocks), model.logits_scale != 1.0
        if isinstance(model.output_projection, torch.nn.Identity):
            scaled = True
    return dict(
        vocab_size=embedding.tokens.num_embeddings,
        d_model=embedding.tokens.embedding_dim,
        d_kv=attend.head_dim,
        d_ff=forward.up_projection.out_features,
        num_layers=len(model.encoder.blocks),
        num_decoder_layers=layers,
        num_heads=attend.num_heads,
        relative_attention_num_buckets=position.num_buckets,
        relative_attention_max_distance=position.max_distance,
        dropout_rate=block.dropout.p,
        layer_norm_epsilon=norm.eps,
        feed_forward_proj=name,
        tie_word_embeddings=scaled,  # read there as: the logits are scaled
        **NO_TOKENS,
    )


def pairs(ours: nn.Transformer | nn.EncoderModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    yield from table(ours, theirs, WEIGHTS)
    if isinstance(getattr(ours, "output_projection", None), torch.nn.Linear):
        yield from table(ours, theirs, "output_projection lm_head")


FAMILY = Family(
    *(hf.T5Config, (nn.EncoderModel, nn.Transformer)),
    (hf.T5Model, hf.T5ForConditionalGeneration, hf.T5EncoderModel),
    *(build, owns, describe, export, pairs),
    reads=names("""
        d_ff d_kv d_model dense_act_fn dropout_rate feed_forward_proj is_gated_act
        layer_norm_epsilon num_decoder_layers num_heads num_layers relative_attention_max_distance
        relative_attention_num_buckets scale_decoder_outputs
    """),
    fixed={"is_decoder": False},
    unused=names("classifier_dropout initializer_factor"),
)
