"""BigBird: post-norm encoder; blocks of neighbours, two global blocks and random ones."""

import copy
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn
from transformers import BigBirdConfig, BigBirdForMaskedLM, BigBirdModel

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
    BigBirdSelfAttention,
    EncoderBlock,
    EncoderModel,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    MaskedWordHead,
    Pooler,
    TokenEmbedding,
    TransformerEncoder,
)


def build(theirs: Any) -> EncoderModel:
    """Our modules for a model of theirs."""
    config, base = theirs.config, _base(theirs)
    if base.attention_type != "block_sparse":
        raise ValueError(
            f"config.attention_type: expected 'block_sparse', got {base.attention_type!r} (a model "
            "that has seen a short text stays there; set_attention_type('block_sparse') undoes it)"
        )
    check_layers("num_hidden_layers", config.num_hidden_layers, base.encoder.layer, at_least=1)
    size, dropout = config.hidden_size, config.hidden_dropout_prob
    bend = activation("hidden_act", config.hidden_act)
    norm = partial(LayerNorm, embed_dim=size, eps=config.layer_norm_eps)
    embedding = TokenEmbedding(
        vocab_size=config.vocab_size,
        embed_dim=size,
        position=LearnedPositions(max_length=config.max_position_embeddings, embed_dim=size),
        scale=math.sqrt(size) if config.rescale_embeddings else 1.0,
        num_token_types=config.type_vocab_size,
        norm=norm(),
        dropout=dropout,
    )
    blocks = [
        EncoderBlock(
            attention=BigBirdSelfAttention(
                embed_dim=size,
                num_heads=config.num_attention_heads,
                block_size=config.block_size,
                num_random_blocks=config.num_random_blocks,
                seed=None,
                bias=config.use_bias,
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
    head: nn.Module | None = None
    if type(theirs) is BigBirdForMaskedLM:
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
    pooler = Pooler(embed_dim=size) if base.pooler is not None else None
    return EncoderModel(
        embedding=embedding, encoder=TransformerEncoder(blocks=blocks), head=head, pooler=pooler
    )


def owns(model: nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, EncoderModel) and any(
        isinstance(part, BigBirdSelfAttention) for part in model.modules()
    )


def export(model: EncoderModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if config is None:
        config = _describe(model)
    config = copy.deepcopy(expect("config", config, BigBirdConfig))
    if model.head is None:
        return BigBirdModel(config, add_pooling_layer=model.pooler is not None)
    expect("model.head", model.head, MaskedWordHead)
    made = BigBirdForMaskedLM(config)
    made.cls.predictions.bias = made.cls.predictions.decoder.bias
    return made


def _describe(model: EncoderModel) -> Any:
    embedding, head = model.embedding, model.head
    block = first("model.encoder.blocks", model.encoder.blocks, EncoderBlock)
    attend = expect("model.encoder.blocks.0.attention", block.attention, BigBirdSelfAttention)
    forward = expect("model.encoder.blocks.0.feed_forward", block.feed_forward, FeedForward)
    norm = expect("model.embedding.norm", embedding.norm, LayerNorm)
    position = expect("model.embedding.position", embedding.position, LearnedPositions)
    if embedding.token_types is None:
        raise ValueError("model.embedding.token_types: expected a table, got None")
    fields: dict[str, Any] = {}
    if isinstance(head, MaskedWordHead):
        fields["tie_word_embeddings"] = head.tokens is embedding.tokens
    return BigBirdConfig(
        vocab_size=embedding.tokens.num_embeddings,
        hidden_size=embedding.tokens.embedding_dim,
        num_hidden_layers=len(model.encoder.blocks),
        num_attention_heads=attend.num_heads,
        block_size=attend.block_size,
        num_random_blocks=attend.num_random_blocks,
        use_bias=attend.query_projection.bias is not None,
        rescale_embeddings=embedding.scale != 1.0,
        intermediate_size=forward.up_projection.out_features,
        hidden_act=name_of("model.encoder.blocks.0.feed_forward.activation", forward.activation),
        hidden_dropout_prob=block.dropout.p,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=position.weight.shape[0],
        type_vocab_size=embedding.token_types.num_embeddings,
        layer_norm_eps=norm.eps,
        **(NO_TOKENS | {"pad_token_id": 0}),  # texts are padded to whole blocks with it
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
        pooler: Any = ours.pooler
        yield from same(pooler.projection, base.pooler)
    if type(theirs) is BigBirdForMaskedLM:
        words = theirs.cls.predictions
        yield from same(head.projection, words.transform.dense)
        yield from same(head.norm, words.transform.LayerNorm)
        yield Pair(head.bias, words.decoder.bias)
        if not _is_tied(theirs):
            yield Pair(head.tokens.weight, words.decoder.weight)


FAMILY = Family(
    classes=(BigBirdModel, BigBirdForMaskedLM),
    reads=frozenset(
        {
            "attention_type",
            "block_size",
            "hidden_act",
            "hidden_dropout_prob",
            "hidden_size",
            "intermediate_size",
            "layer_norm_eps",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "num_random_blocks",
            "rescale_embeddings",
            "type_vocab_size",
            "use_bias",
        }
    ),
    fixed={"is_decoder": False, "add_cross_attention": False},
    # dropped weights are training only, where blocks have none
    unused=frozenset({"attention_probs_dropout_prob", "classifier_dropout", "sep_token_id"}),
    build=build,
    owns=owns,
    export=export,
    pairs=pairs,
    derived=("cls.predictions.bias",),
)


def _base(theirs: Any) -> Any:
    return theirs if type(theirs) is BigBirdModel else theirs.bert


def _is_tied(theirs: Any) -> bool:
    table = theirs.bert.embeddings.word_embeddings.weight
    return theirs.cls.predictions.decoder.weight is table
