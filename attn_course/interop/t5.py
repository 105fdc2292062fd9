"""T5: pre-norm encoder-decoder with RMSNorm, unscaled scores and one relative bias per stack."""

import copy
from collections.abc import Iterator
from typing import Any

from torch import nn
from transformers import T5Config, T5EncoderModel, T5ForConditionalGeneration, T5Model

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
    EncoderModel,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    RelativePositions,
    RMSNorm,
    TokenEmbedding,
    Transformer,
    TransformerDecoder,
    TransformerEncoder,
)


def build(theirs: Any) -> Transformer | EncoderModel:
    """Our modules for a model of theirs."""
    config = theirs.config
    size, dropout = config.d_model, config.dropout_rate
    bend = activation("feed_forward_proj", config.dense_act_fn)
    check_layers("num_layers", config.num_layers, theirs.encoder.block, at_least=1)
    if type(theirs) is not T5EncoderModel:
        check_layers(
            "num_decoder_layers", config.num_decoder_layers, theirs.decoder.block, at_least=1
        )
    _check_buckets(config)
    _check_shared(theirs)

    def norm() -> RMSNorm:
        return RMSNorm(embed_dim=size, eps=config.layer_norm_epsilon)

    def attend(position: RelativePositions | None) -> MultiHeadAttention:
        return MultiHeadAttention(
            embed_dim=size,
            num_heads=config.num_heads,
            head_dim=config.d_kv,
            bias=False,
            position=position,
            scale=1.0,
            dropout=dropout,
        )

    def positions(*, bidirectional: bool) -> RelativePositions:
        return RelativePositions(
            num_heads=config.num_heads,
            num_buckets=config.relative_attention_num_buckets,
            max_distance=config.relative_attention_max_distance,
            bidirectional=bidirectional,
        )

    def forward() -> nn.Module:
        kind = GatedFeedForward if config.is_gated_act else FeedForward
        made: nn.Module = kind(
            embed_dim=size, hidden_dim=config.d_ff, activation=bend, bias=False, dropout=dropout
        )
        return made

    def end() -> nn.Module:
        return nn.Sequential(norm(), nn.Dropout(dropout))

    embedding = TokenEmbedding(vocab_size=config.vocab_size, embed_dim=size, dropout=dropout)
    both_ways = positions(bidirectional=True)
    encoder = TransformerEncoder(
        blocks=[
            EncoderBlock(
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
    if type(theirs) is T5EncoderModel:
        return EncoderModel(embedding=embedding, encoder=encoder)
    backwards = positions(bidirectional=False)
    decoder = TransformerDecoder(
        blocks=[
            DecoderBlock(
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
    head: nn.Module | None = None
    if type(theirs) is T5Model:
        head = nn.Identity()
    else:
        scale = size**-0.5 if config.scale_decoder_outputs else 1.0
        if theirs.lm_head.weight is not theirs.shared.weight:
            head = nn.Linear(size, config.vocab_size, bias=False)
    return Transformer(
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
    stacks = [theirs.encoder] + ([] if type(theirs) is T5EncoderModel else [theirs.decoder])
    for stack in stacks:
        if stack.embed_tokens.weight is not theirs.shared.weight:
            raise ValueError(
                "embed_tokens.weight: expected the shared table in encoder and decoder, "
                "got one of its own"
            )


def owns(model: nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, EncoderModel | Transformer) and any(
        isinstance(part, RelativePositions) for part in model.modules()
    )


def export(model: Transformer | EncoderModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if config is None:
        config = _describe(model)
    config = copy.deepcopy(expect("config", config, T5Config))
    if isinstance(model, EncoderModel):
        return T5EncoderModel(config)
    if isinstance(model.output_projection, nn.Identity):
        return T5Model(config)
    made = T5ForConditionalGeneration(config)
    if model.output_projection is not None:  # the configuration says tied in any case
        made.lm_head.weight = nn.Parameter(made.lm_head.weight.detach().clone())
    return made


def _describe(model: Transformer | EncoderModel) -> Any:
    embedding = model.embedding if isinstance(model, EncoderModel) else model.source_embedding
    block = first("model.encoder.blocks", model.encoder.blocks, EncoderBlock)
    attend = expect("model.encoder.blocks.0.attention", block.attention, MultiHeadAttention)
    position = expect(
        "model.encoder.blocks.0.attention.position", attend.position, RelativePositions
    )
    norm = expect("model.encoder.blocks.0.attention_norm", block.attention_norm, RMSNorm)
    forward: Any = block.feed_forward
    gated = isinstance(forward, GatedFeedForward)
    if not gated:
        expect("model.encoder.blocks.0.feed_forward", forward, FeedForward)
    name = name_of("model.encoder.blocks.0.feed_forward.activation", forward.activation)
    if gated:  # "gated-gelu" is the tanh form there
        name = {"gelu": "gated-gelu_python", "gelu_new": "gated-gelu"}.get(name, f"gated-{name}")
    layers, scaled = len(model.encoder.blocks), True
    if isinstance(model, Transformer):
        layers, scaled = len(model.decoder.blocks), model.logits_scale != 1.0
        if isinstance(model.output_projection, nn.Identity):
            scaled = True
    return T5Config(
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


def pairs(ours: Transformer | EncoderModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    embedding = ours.embedding if isinstance(ours, EncoderModel) else ours.source_embedding
    readers: Any = ours.encoder.blocks
    yield from same(embedding.tokens, theirs.shared)
    yield from _bias(readers, "attention", theirs.encoder)
    for block, layer in zip(readers, theirs.encoder.block, strict=True):
        yield from _attention(block.attention, layer.layer[0].SelfAttention)
        yield from same(block.attention_norm, layer.layer[0].layer_norm)
        yield from _forward(block, layer.layer[1])
    yield from _end(ours.encoder, theirs.encoder)
    if isinstance(ours, EncoderModel):
        return
    writers: Any = ours.decoder.blocks
    yield from _bias(writers, "self_attention", theirs.decoder)
    for block, layer in zip(writers, theirs.decoder.block, strict=True):
        yield from _attention(block.self_attention, layer.layer[0].SelfAttention)
        yield from same(block.self_attention_norm, layer.layer[0].layer_norm)
        yield from _attention(block.cross_attention, layer.layer[1].EncDecAttention)
        yield from same(block.cross_attention_norm, layer.layer[1].layer_norm)
        yield from _forward(block, layer.layer[2])
    yield from _end(ours.decoder, theirs.decoder)
    if isinstance(ours.output_projection, nn.Linear):
        yield from same(ours.output_projection, theirs.lm_head)


def _bias(blocks: Any, name: str, stack: Any) -> Iterator[Pair]:
    """The first block of theirs holds the table that all use."""
    table = stack.block[0].layer[0].SelfAttention.relative_attention_bias
    yield Pair(getattr(blocks[0], name).position.weight, table.weight)


def _attention(ours: Any, theirs: Any) -> Iterator[Pair]:
    return attention(ours, theirs.q, theirs.k, theirs.v, theirs.o)


def _forward(ours: Any, theirs: Any) -> Iterator[Pair]:
    inner, part = theirs.DenseReluDense, ours.feed_forward
    if isinstance(part, GatedFeedForward):
        yield from same(part.gate_projection, inner.wi_0)
        yield from same(part.up_projection, inner.wi_1)
    else:
        yield from same(part.up_projection, inner.wi)
    yield from same(part.down_projection, inner.wo)
    yield from same(ours.feed_forward_norm, theirs.layer_norm)


def _end(ours: Any, theirs: Any) -> Iterator[Pair]:
    yield from same(ours.norm[0], theirs.final_layer_norm)


FAMILY = Family(
    classes=(T5Model, T5ForConditionalGeneration, T5EncoderModel),
    reads=frozenset(
        {
            "d_ff",
            "d_kv",
            "d_model",
            "dense_act_fn",
            "dropout_rate",
            "feed_forward_proj",
            "is_gated_act",
            "layer_norm_epsilon",
            "num_decoder_layers",
            "num_heads",
            "num_layers",
            "relative_attention_max_distance",
            "relative_attention_num_buckets",
            "scale_decoder_outputs",
        }
    ),
    fixed={"is_decoder": False},
    unused=frozenset({"classifier_dropout", "initializer_factor"}),
    build=build,
    owns=owns,
    export=export,
    pairs=pairs,
)
