"""BERT: post-norm encoder, learned positions, token types."""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
)

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
    MaskedWordHead,
    MultiHeadAttention,
    Pooler,
    TokenEmbedding,
    TransformerEncoder,
)


def build(theirs: Any) -> EncoderModel:
    """Our modules for a model of theirs."""
    config = theirs.config
    check_layers("num_hidden_layers", config.num_hidden_layers, _base(theirs).encoder.layer)
    size, dropout = config.hidden_size, config.hidden_dropout_prob
    bend = activation("hidden_act", config.hidden_act)
    norm = partial(LayerNorm, embed_dim=size, eps=config.layer_norm_eps)
    embedding = TokenEmbedding(
        vocab_size=config.vocab_size,
        embed_dim=size,
        position=LearnedPositions(max_length=config.max_position_embeddings, embed_dim=size),
        num_token_types=config.type_vocab_size,
        norm=norm(),
        dropout=dropout,
    )
    blocks = [
        EncoderBlock(
            attention=MultiHeadAttention(
                embed_dim=size,
                num_heads=config.num_attention_heads,
                dropout=config.attention_probs_dropout_prob,
            ),
            attention_norm=norm(),
            feed_forward=FeedForward(
                embed_dim=size, hidden_dim=config.intermediate_size, activation=bend
            ),
            feed_forward_norm=norm(),
            dropout=dropout,
        )
        for _ in range(config.num_hidden_layers)
    ]
    pooler = Pooler(embed_dim=size) if _base(theirs).pooler is not None else None
    head: nn.Module | None = None
    if type(theirs) is BertForMaskedLM:
        words = theirs.cls.predictions
        check_copy(
            "cls.predictions.bias", words.bias, "cls.predictions.decoder.bias", words.decoder.bias
        )
        head = MaskedWordHead(
            embed_dim=size,
            tokens=embedding.tokens if _is_tied(theirs) else nn.Embedding(config.vocab_size, size),
            activation=bend,
            norm=norm(),
        )
    elif type(theirs) is BertForSequenceClassification:
        # the pooler is a part of the head: one row of logits per text
        assert pooler is not None
        head = nn.Sequential(
            pooler,
            nn.Dropout(theirs.dropout.p),
            nn.Linear(size, theirs.classifier.out_features),
        )
        pooler = None
    return EncoderModel(
        embedding=embedding, encoder=TransformerEncoder(blocks=blocks), head=head, pooler=pooler
    )


def owns(model: nn.Module) -> bool:
    """Whether our model is of this kind."""
    return (
        isinstance(model, EncoderModel)
        and isinstance(model.encoder, TransformerEncoder)
        and isinstance(model.embedding.position, LearnedPositions)
    )


def export(model: EncoderModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    head = model.head
    if config is None:
        config = _describe(model)
    config = copy.deepcopy(expect("config", config, BertConfig))
    if head is None:
        return BertModel(config, add_pooling_layer=model.pooler is not None)
    if type(head) is MaskedWordHead:
        made = BertForMaskedLM(config)
        made.cls.predictions.bias = made.cls.predictions.decoder.bias
        return made
    expect("model.head", head, nn.Sequential)
    return BertForSequenceClassification(config)


def _describe(model: EncoderModel) -> Any:
    embedding, head = model.embedding, model.head
    block = first("model.encoder.blocks", model.encoder.blocks, EncoderBlock)
    attend = expect("model.encoder.blocks.0.attention", block.attention, MultiHeadAttention)
    forward = expect("model.encoder.blocks.0.feed_forward", block.feed_forward, FeedForward)
    norm = expect("model.embedding.norm", embedding.norm, LayerNorm)
    position = expect("model.embedding.position", embedding.position, LearnedPositions)
    if embedding.token_types is None:
        raise ValueError("model.embedding.token_types: expected a table, got None")
    fields: dict[str, Any] = {}
    if isinstance(head, MaskedWordHead):
        fields["tie_word_embeddings"] = head.tokens is embedding.tokens
    elif head is not None:
        parts = expect("model.head", head, nn.Sequential)
        if [type(part) for part in parts] != [Pooler, nn.Dropout, nn.Linear]:
            raise ValueError(f"model.head: expected Pooler, Dropout and Linear, got {parts}")
        fields |= {"classifier_dropout": parts[1].p, "num_labels": parts[2].out_features}
    return BertConfig(
        vocab_size=embedding.tokens.num_embeddings,
        hidden_size=embedding.tokens.embedding_dim,
        num_hidden_layers=len(model.encoder.blocks),
        num_attention_heads=attend.num_heads,
        intermediate_size=forward.up_projection.out_features,
        hidden_act=name_of("model.encoder.blocks.0.feed_forward.activation", forward.activation),
        hidden_dropout_prob=block.dropout.p,
        attention_probs_dropout_prob=attend.dropout,
        max_position_embeddings=position.weight.shape[0],
        type_vocab_size=embedding.token_types.num_embeddings,
        layer_norm_eps=norm.eps,
        **NO_TOKENS,
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
        inner = layer.attention.self
        yield from attention(
            block.attention, inner.query, inner.key, inner.value, layer.attention.output.dense
        )
        yield from same(block.attention_norm, layer.attention.output.LayerNorm)
        yield from same(block.feed_forward.up_projection, layer.intermediate.dense)
        yield from same(block.feed_forward.down_projection, layer.output.dense)
        yield from same(block.feed_forward_norm, layer.output.LayerNorm)
    head: Any = ours.head
    if base.pooler is not None:
        pooler: Any = ours.pooler if ours.pooler is not None else head[0]
        yield from same(pooler.projection, base.pooler.dense)
    if type(theirs) is BertForMaskedLM:
        words = theirs.cls.predictions
        yield from same(head.projection, words.transform.dense)
        yield from same(head.norm, words.transform.LayerNorm)
        yield Pair(head.bias, words.decoder.bias)
        if not _is_tied(theirs):
            yield Pair(head.tokens.weight, words.decoder.weight)
    elif type(theirs) is BertForSequenceClassification:
        yield from same(head[2], theirs.classifier)


FAMILY = Family(
    classes=(BertModel, BertForMaskedLM, BertForSequenceClassification),
    reads=frozenset(
        {
            "attention_probs_dropout_prob",
            "classifier_dropout",
            "hidden_act",
            "hidden_dropout_prob",
            "hidden_size",
            "intermediate_size",
            "layer_norm_eps",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "type_vocab_size",
        }
    ),
    fixed={"is_decoder": False, "add_cross_attention": False},
    unused=frozenset(),
    build=build,
    owns=owns,
    export=export,
    pairs=pairs,
    derived=("cls.predictions.bias",),
)


def _base(theirs: Any) -> Any:
    return theirs if type(theirs) is BertModel else theirs.bert


def _is_tied(theirs: Any) -> bool:
    table = theirs.bert.embeddings.word_embeddings.weight
    return theirs.cls.predictions.decoder.weight is table
