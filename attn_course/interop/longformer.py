"""Longformer: post-norm encoder, windows, global positions with projections of their own."""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn
from transformers import LongformerConfig, LongformerForMaskedLM, LongformerModel

from attn_course.functional.feed_forward import gelu
from attn_course.interop._config import (
    NO_TOKENS,
    Family,
    Pair,
    activation,
    attention,
    check_copy,
    check_layers,
    expect,
    first,
    name_of,
    same,
)
from attn_course.nn import (
    EncoderBlock,
    EncoderModel,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    LongformerSelfAttention,
    MaskedWordHead,
    Pooler,
    TokenEmbedding,
    TransformerEncoder,
)


def build(theirs: Any) -> EncoderModel:
    """Our modules for a model of theirs."""
    config = theirs.config
    check_layers(
        "num_hidden_layers", config.num_hidden_layers, _base(theirs).encoder.layer, at_least=1
    )
    size, dropout = config.hidden_size, config.hidden_dropout_prob
    bend = activation("hidden_act", config.hidden_act)
    norm = partial(LayerNorm, embed_dim=size, eps=config.layer_norm_eps)
    embedding = TokenEmbedding(
        vocab_size=config.vocab_size,
        embed_dim=size,
        # the rows up to that of padding are for padding, as in RoBERTa
        position=LearnedPositions(
            max_length=config.max_position_embeddings,
            embed_dim=size,
            offset=_padding(config) + 1,
        ),
        num_token_types=config.type_vocab_size,
        norm=norm(),
        dropout=dropout,
    )
    blocks = [
        EncoderBlock(
            # theirs counts the neighbours on both sides, ours the query too
            attention=LongformerSelfAttention(
                embed_dim=size, num_heads=config.num_attention_heads, window_size=window + 1
            ),
            attention_norm=norm(),
            feed_forward=FeedForward(
                embed_dim=size, hidden_dim=config.intermediate_size, activation=bend
            ),
            feed_forward_norm=norm(),
            dropout=dropout,
        )
        for window in _windows(config)
    ]
    head: nn.Module | None = None
    if type(theirs) is LongformerForMaskedLM:
        words = theirs.lm_head
        check_copy("lm_head.bias", words.bias, "lm_head.decoder.bias", words.decoder.bias)
        head = MaskedWordHead(
            embed_dim=size,
            tokens=embedding.tokens if _is_tied(theirs) else nn.Embedding(config.vocab_size, size),
            activation=gelu,
            norm=norm(),
        )
    pooler = Pooler(embed_dim=size) if _base(theirs).pooler is not None else None
    return EncoderModel(
        embedding=embedding, encoder=TransformerEncoder(blocks=blocks), head=head, pooler=pooler
    )


def owns(model: nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, EncoderModel) and any(
        isinstance(part, LongformerSelfAttention) for part in model.modules()
    )


def export(model: EncoderModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if config is None:
        config = _describe(model)
    config = copy.deepcopy(expect("config", config, LongformerConfig))
    if model.head is None:
        return LongformerModel(config, add_pooling_layer=model.pooler is not None)
    expect("model.head", model.head, MaskedWordHead)
    made = LongformerForMaskedLM(config)
    made.lm_head.bias = made.lm_head.decoder.bias
    return made


def _describe(model: EncoderModel) -> Any:
    embedding, head = model.embedding, model.head
    block = first("model.encoder.blocks", model.encoder.blocks, EncoderBlock)
    forward = expect("model.encoder.blocks.0.feed_forward", block.feed_forward, FeedForward)
    norm = expect("model.embedding.norm", embedding.norm, LayerNorm)
    position = expect("model.embedding.position", embedding.position, LearnedPositions)
    if embedding.token_types is None:
        raise ValueError("model.embedding.token_types: expected a table, got None")
    attends = [
        expect(
            f"model.encoder.blocks.{number}.attention",
            getattr(one, "attention", None),
            LongformerSelfAttention,
        )
        for number, one in enumerate(model.encoder.blocks)
    ]
    fields: dict[str, Any] = {}
    if isinstance(head, MaskedWordHead):
        fields["tie_word_embeddings"] = head.tokens is embedding.tokens
    return LongformerConfig(
        vocab_size=embedding.tokens.num_embeddings,
        hidden_size=embedding.tokens.embedding_dim,
        num_hidden_layers=len(model.encoder.blocks),
        num_attention_heads=attends[0].num_heads,
        attention_window=[one.window_size - 1 for one in attends],
        intermediate_size=forward.up_projection.out_features,
        hidden_act=name_of("model.encoder.blocks.0.feed_forward.activation", forward.activation),
        hidden_dropout_prob=block.dropout.p,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=position.weight.shape[0],
        type_vocab_size=embedding.token_types.num_embeddings,
        layer_norm_eps=norm.eps,
        **(NO_TOKENS | {"pad_token_id": position.offset - 1}),
        **fields,
    )


def pairs(ours: EncoderModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    base, embedding = _base(theirs), ours.embedding
    assert isinstance(embedding.position, LearnedPositions)
    assert embedding.token_types is not None
    assert embedding.norm is not None
    yield from same(embedding.tokens, base.embeddings.word_embeddings)
    yield Pair(embedding.position.weight, base.embeddings.position_embeddings.weight)
    yield from same(embedding.token_types, base.embeddings.token_type_embeddings)
    yield from same(embedding.norm, base.embeddings.LayerNorm)
    blocks: Any = ours.encoder.blocks
    for block, layer in zip(blocks, base.encoder.layer, strict=True):
        inner, mine = layer.attention.self, block.attention
        yield from attention(
            mine, inner.query, inner.key, inner.value, layer.attention.output.dense
        )
        yield from same(mine.global_query_projection, inner.query_global)
        yield from same(mine.global_key_projection, inner.key_global)
        yield from same(mine.global_value_projection, inner.value_global)
        yield from same(block.attention_norm, layer.attention.output.LayerNorm)
        yield from same(block.feed_forward.up_projection, layer.intermediate.dense)
        yield from same(block.feed_forward.down_projection, layer.output.dense)
        yield from same(block.feed_forward_norm, layer.output.LayerNorm)
    head: Any = ours.head
    if base.pooler is not None:
        pooler: Any = ours.pooler
        yield from same(pooler.projection, base.pooler.dense)
    if type(theirs) is LongformerForMaskedLM:
        words = theirs.lm_head
        yield from same(head.projection, words.dense)
        yield from same(head.norm, words.layer_norm)
        yield Pair(head.bias, words.decoder.bias)
        if not _is_tied(theirs):
            yield Pair(head.tokens.weight, words.decoder.weight)


FAMILY = Family(
    classes=(LongformerModel, LongformerForMaskedLM),
    reads=frozenset(
        {
            "attention_window",
            "hidden_act",
            "hidden_dropout_prob",
            "hidden_size",
            "intermediate_size",
            "layer_norm_eps",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "pad_token_id",
            "type_vocab_size",
        }
    ),
    fixed={"is_decoder": False, "add_cross_attention": False},
    # dropped weights are training only, where windows have none; the rest is about export
    unused=frozenset({"attention_probs_dropout_prob", "onnx_export", "sep_token_id"}),
    build=build,
    owns=owns,
    export=export,
    pairs=pairs,
    derived=("lm_head.bias",),
)


def _base(theirs: Any) -> Any:
    return theirs if type(theirs) is LongformerModel else theirs.longformer


def _is_tied(theirs: Any) -> bool:
    table = theirs.longformer.embeddings.word_embeddings.weight
    return theirs.lm_head.decoder.weight is table


def _padding(config: Any) -> int:
    """Id of the padding token, whose position comes before the first."""
    if not isinstance(config.pad_token_id, int):
        raise ValueError(f"config.pad_token_id: expected a number, got {config.pad_token_id!r}")
    return config.pad_token_id


def _windows(config: Any) -> list[int]:
    """Neighbours on both sides together, for each layer."""
    found, count = config.attention_window, config.num_hidden_layers
    windows = [found] * count if isinstance(found, int) else list(found)
    if len(windows) != count:
        raise ValueError(f"config.attention_window: expected {count} numbers, got {found}")
    return windows
