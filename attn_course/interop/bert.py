"""BERT, BigBird and Longformer: post-norm encoders with learned positions and token types, each
with its attention: all pairs; blocks of neighbours, two global blocks and random ones; windows, and
global positions with projections of their own."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers as hf

from attn_course import nn
from attn_course.functional.feed_forward import gelu
from attn_course.interop._config import (
    NO_TOKENS,
    Family,
    Pair,
    activation,
    check_copy,
    check_layers,
    expect,
    first,
    is_tied,
    name_of,
    names,
    table,
    words_of,
)

WEIGHTS = """
embedding.{tokens,token_types}  embeddings.{word,token_type}_embeddings
embedding.position              embeddings.position_embeddings
embedding.norm                  embeddings.LayerNorm
encoder.blocks.*.attention.{query,key,value}_projection         encoder.layer.*.attention.self.{query,key,value}
encoder.blocks.*.attention.global_{query,key,value}_projection  encoder.layer.*.attention.self.{query,key,value}_global
encoder.blocks.*.attention.output_projection                    encoder.layer.*.attention.output.dense
encoder.blocks.*.attention_norm                                 encoder.layer.*.attention.output.LayerNorm
encoder.blocks.*.feed_forward.up_projection                     encoder.layer.*.intermediate.dense
encoder.blocks.*.feed_forward.down_projection                   encoder.layer.*.output.dense
encoder.blocks.*.feed_forward_norm                              encoder.layer.*.output.LayerNorm
"""  # noqa: E501
MASKED = """
head.projection  cls.predictions.transform.dense
head.norm        cls.predictions.transform.LayerNorm
head.bias        cls.predictions.decoder.bias
head.projection  lm_head.dense
head.norm        lm_head.layer_norm
head.bias        lm_head.decoder.bias
"""


def build(theirs: Any, attentions: Callable[[Any], list[torch.nn.Module]]) -> nn.EncoderModel:
    """Our modules for a model of theirs, with these attentions."""
    config, base = theirs.config, theirs.base_model
    size, dropout = config.hidden_size, config.hidden_dropout_prob
    bend = activation("hidden_act", config.hidden_act)
    norm = partial(nn.LayerNorm, embed_dim=size, eps=config.layer_norm_eps)
    least = 0 if isinstance(config, hf.BertConfig) else 1
    check_layers("num_hidden_layers", config.num_hidden_layers, base.encoder.layer, at_least=least)
    embedding = nn.TokenEmbedding(
        vocab_size=config.vocab_size,
        embed_dim=size,
        position=nn.LearnedPositions(
            max_length=config.max_position_embeddings,
            embed_dim=size,
            # the rows up to that of padding are for padding, as in RoBERTa
            offset=_padding(config) + 1 if isinstance(config, hf.LongformerConfig) else 0,
        ),
        scale=math.sqrt(size) if getattr(config, "rescale_embeddings", False) else 1.0,
        num_token_types=config.type_vocab_size,
        norm=norm(),
        dropout=dropout,
    )
    blocks = [
        nn.EncoderBlock(
            attention=attention,
            attention_norm=norm(),
            feed_forward=nn.FeedForward(
                embed_dim=size, hidden_dim=config.intermediate_size, activation=bend
            ),
            feed_forward_norm=norm(),
            dropout=dropout,
        )
        for attention in attentions(theirs)
    ]
    pooler = nn.Pooler(embed_dim=size) if base.pooler is not None else None
    head: torch.nn.Module | None = None
    if type(theirs) is hf.BertForSequenceClassification:
        # the pooler is a part of the head: one row of logits per text
        assert pooler is not None
        head = torch.nn.Sequential(
            pooler,
            torch.nn.Dropout(theirs.dropout.p),
            torch.nn.Linear(size, theirs.classifier.out_features),
        )
        pooler = None
    elif theirs is not base:
        words, path = _words(theirs)
        check_copy(f"{path}.bias", words.bias, f"{path}.decoder.bias", words.decoder.bias)
        head = nn.MaskedWordHead(
            embed_dim=size,
            tokens=words_of(theirs, embedding),
            activation=gelu if isinstance(config, hf.LongformerConfig) else bend,
            norm=norm(),
        )
    return nn.EncoderModel(
        embedding=embedding, encoder=nn.TransformerEncoder(blocks=blocks), head=head, pooler=pooler
    )


def _words(theirs: Any) -> tuple[Any, str]:
    """The head for masked words, and its path."""
    if hasattr(theirs, "lm_head"):
        return theirs.lm_head, "lm_head"
    return theirs.cls.predictions, "cls.predictions"


def _dense(config: Any, **options: Any) -> list[torch.nn.Module]:
    return [
        nn.MultiHeadAttention(
            embed_dim=config.hidden_size,
            num_heads=config.num_attention_heads,
            dropout=config.attention_probs_dropout_prob,
            **options,
        )
        for _ in range(config.num_hidden_layers)
    ]


def _bert(theirs: Any) -> list[torch.nn.Module]:
    return _dense(theirs.config)


def _big_bird(theirs: Any) -> list[torch.nn.Module]:
    config, found = theirs.config, theirs.base_model.attention_type
    if config.attention_type not in ("block_sparse", "original_full"):
        raise ValueError(
            "config.attention_type: expected 'block_sparse' or 'original_full', "
            f"got {config.attention_type!r}"
        )
    if found != config.attention_type:
        raise ValueError(
            f"config.attention_type: expected {config.attention_type!r}, got {found!r} (a model "
            "that has seen a short text stays there; set_attention_type('block_sparse') undoes it)"
        )
    if found == "original_full":
        return _dense(config, bias=config.use_bias, output_bias=True)
    return [
        nn.BigBirdSelfAttention(
            embed_dim=config.hidden_size,
            num_heads=config.num_attention_heads,
            block_size=config.block_size,
            num_random_blocks=config.num_random_blocks,
            seed=None,
            bias=config.use_bias,
        )
        for _ in range(config.num_hidden_layers)
    ]


def _longformer(theirs: Any) -> list[torch.nn.Module]:
    config, count = theirs.config, theirs.config.num_hidden_layers
    found = config.attention_window
    windows = [found] * count if isinstance(found, int) else list(found)
    if len(windows) != count:
        raise ValueError(f"config.attention_window: expected {count} numbers, got {found}")
    return [
        # theirs counts the neighbours on both sides, ours the query too
        nn.LongformerSelfAttention(
            embed_dim=config.hidden_size,
            num_heads=config.num_attention_heads,
            window_size=window + 1,
        )
        for window in windows
    ]


def _padding(config: Any) -> int:
    """Id of the padding token, whose position comes before the first."""
    if not isinstance(config.pad_token_id, int):
        raise ValueError(f"config.pad_token_id: expected a number, got {config.pad_token_id!r}")
    return config.pad_token_id


def owns(model: Any, config: Any) -> bool:
    """Whether our model is of this kind.

    BERT's has neither a scale, nor maps without bias, nor a pooler beside a head for words.
    """
    if (
        not isinstance(model, nn.EncoderModel)
        or not isinstance(model.encoder, nn.TransformerEncoder)
        or not isinstance(model.embedding.position, nn.LearnedPositions)
    ):
        return False
    parts: list[Any] = list(model.encoder.modules())
    kinds = {type(part) for part in parts}
    if config is hf.LongformerConfig:
        return nn.LongformerSelfAttention in kinds
    if config is hf.BigBirdConfig:
        dense = [part for part in parts if isinstance(part, nn.MultiHeadAttention)]
        return (
            nn.BigBirdSelfAttention in kinds
            or any(part.query_projection.bias is None for part in dense)
            or model.embedding.scale != 1.0
            or (model.head is not None and model.pooler is not None)
        )
    return True


def export(model: nn.EncoderModel, config: Any, bare: Any, masked: Any) -> Any:
    """Their model for ours, with any weights."""
    if model.head is None:
        return bare(config, add_pooling_layer=model.pooler is not None)
    if bare is hf.BertModel and isinstance(model.head, torch.nn.Sequential):
        return hf.BertForSequenceClassification(config)
    expect("model.head", model.head, nn.MaskedWordHead)
    made = masked(config)
    words, _ = _words(made)
    words.bias = words.decoder.bias
    return made


def describe(model: nn.EncoderModel, config: Any) -> dict[str, Any]:
    """Fields of the configuration."""
    embedding, head = model.embedding, model.head
    block = first("model.encoder.blocks", model.encoder.blocks, nn.EncoderBlock)
    forward = expect("model.encoder.blocks.0.feed_forward", block.feed_forward, nn.FeedForward)
    norm = expect("model.embedding.norm", embedding.norm, nn.LayerNorm)
    position = expect("model.embedding.position", embedding.position, nn.LearnedPositions)
    if embedding.token_types is None:
        raise ValueError("model.embedding.token_types: expected a table, got None")
    attends: list[Any] = [getattr(one, "attention", None) for one in model.encoder.blocks]
    full = type(attends[0]) is nn.MultiHeadAttention
    fields: dict[str, Any] = {}
    if config is hf.LongformerConfig:
        for number, one in enumerate(attends):
            expect(f"model.encoder.blocks.{number}.attention", one, nn.LongformerSelfAttention)
        fields["attention_window"] = [one.window_size - 1 for one in attends]
    elif config is hf.BigBirdConfig:
        fields["attention_type"] = "original_full" if full else "block_sparse"
        fields["use_bias"] = attends[0].query_projection.bias is not None
        fields["rescale_embeddings"] = embedding.scale != 1.0
        if not full:
            expect("model.encoder.blocks.0.attention", attends[0], nn.BigBirdSelfAttention)
            fields["block_size"] = attends[0].block_size
            fields["num_random_blocks"] = attends[0].num_random_blocks
    else:
        expect("model.encoder.blocks.0.attention", attends[0], nn.MultiHeadAttention)
    if isinstance(head, nn.MaskedWordHead):
        fields["tie_word_embeddings"] = head.tokens is embedding.tokens
    elif head is not None:
        parts = expect("model.head", head, torch.nn.Sequential)
        if [type(part) for part in parts] != [nn.Pooler, torch.nn.Dropout, torch.nn.Linear]:
            raise ValueError(f"model.head: expected Pooler, Dropout and Linear, got {parts}")
        fields |= {"classifier_dropout": parts[1].p, "num_labels": parts[2].out_features}
    # BigBird pads texts to whole blocks with it, Longformer's positions begin after it
    padding = {hf.BertConfig: None, hf.BigBirdConfig: 0, hf.LongformerConfig: position.offset - 1}[
        config
    ]
    return dict(
        vocab_size=embedding.tokens.num_embeddings,
        hidden_size=embedding.tokens.embedding_dim,
        num_hidden_layers=len(model.encoder.blocks),
        num_attention_heads=attends[0].num_heads,
        intermediate_size=forward.up_projection.out_features,
        hidden_act=name_of("model.encoder.blocks.0.feed_forward.activation", forward.activation),
        hidden_dropout_prob=block.dropout.p,
        attention_probs_dropout_prob=attends[0].dropout if full else 0.0,
        max_position_embeddings=position.weight.shape[0],
        type_vocab_size=embedding.token_types.num_embeddings,
        layer_norm_eps=norm.eps,
        **(NO_TOKENS | {"pad_token_id": None if config is hf.BertConfig else padding}),
        **fields,
    )


def pairs(ours: nn.EncoderModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    base = theirs.base_model
    yield from table(ours, base, WEIGHTS)
    pooler = "pooler" if isinstance(base.pooler, torch.nn.Linear) else "pooler.dense"
    yield from table(ours, base, f"pooler.projection {pooler}\nhead.0.projection {pooler}")
    yield from table(ours, theirs, MASKED)
    if type(theirs) is hf.BertForSequenceClassification:
        yield from table(ours, theirs, "head.2 classifier")
    elif theirs is not base and not is_tied(theirs):
        yield from table(ours, theirs, f"head.tokens.weight {_words(theirs)[1]}.decoder.weight")


READS = """
    hidden_act hidden_dropout_prob hidden_size intermediate_size layer_norm_eps
    max_position_embeddings num_attention_heads num_hidden_layers type_vocab_size
"""
DROPPED = " attention_probs_dropout_prob"


def _family(
    config: Any, classes: tuple[Any, ...], reads: str, unused: str, attentions: Any
) -> Family:
    return Family(
        config=config,
        ours=nn.EncoderModel,
        classes=classes,
        reads=names(READS + reads),
        fixed={"is_decoder": False, "add_cross_attention": False},
        unused=names(unused),
        build=partial(build, attentions=attentions),
        owns=partial(owns, config=config),
        describe=partial(describe, config=config),
        export=partial(export, bare=classes[0], masked=classes[1]),
        pairs=pairs,
        derived=("cls.predictions.bias", "lm_head.bias"),
    )


FAMILIES = (
    # weights of windows are dropped in training only, where ours have no dropout
    _family(
        hf.LongformerConfig,
        (hf.LongformerModel, hf.LongformerForMaskedLM),
        "attention_window pad_token_id",
        "onnx_export sep_token_id" + DROPPED,
        _longformer,
    ),
    _family(
        hf.BigBirdConfig,
        (hf.BigBirdModel, hf.BigBirdForMaskedLM),
        "attention_type block_size num_random_blocks rescale_embeddings use_bias" + DROPPED,
        "classifier_dropout sep_token_id",
        _big_bird,
    ),
    _family(
        hf.BertConfig,
        (hf.BertModel, hf.BertForMaskedLM, hf.BertForSequenceClassification),
        "classifier_dropout" + DROPPED,
        "",
        _bert,
    ),
)
