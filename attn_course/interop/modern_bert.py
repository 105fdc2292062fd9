"""ModernBERT: pre-norm encoder with RoPE and GeGLU, windows in most layers, maps stored as one."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers as hf
from torch import Tensor

from attn_course import nn
from attn_course.interop._config import (
    NO_TOKENS,
    Family,
    Pair,
    activation,
    check_layers,
    expect,
    first,
    is_tied,
    name_of,
    names,
    table,
    words_of,
)
from attn_course.interop._rope import rope_parameters, rotary

WEIGHTS = """
embedding.tokens                                         embeddings.tok_embeddings
embedding.norm                                           embeddings.norm
encoder.blocks.*.attention_norm                          layers.*.attn_norm
encoder.blocks.*.attention.{query,key,value}_projection  layers.*.attn.{Wqkv,Wqkv,Wqkv}  {q,k,v}
encoder.blocks.*.attention.output_projection             layers.*.attn.Wo
encoder.blocks.*.feed_forward_norm                       layers.*.mlp_norm
encoder.blocks.*.feed_forward.{gate,up}_projection       layers.*.mlp.{Wi,Wi}  {gate,up}
encoder.blocks.*.feed_forward.down_projection            layers.*.mlp.Wo
encoder.norm                                             final_norm
"""
MASKED = """
head.projection  head.dense
head.norm        head.norm
head.bias        decoder.bias
"""
KINDS = ("full_attention", "sliding_attention")


def build(theirs: Any) -> nn.EncoderModel:
    """Our modules for a model of theirs."""
    config, base = theirs.config, theirs.base_model
    check_layers("num_hidden_layers", config.num_hidden_layers, base.layers, at_least=1)
    size, kinds = config.hidden_size, config.layer_types
    if len(kinds) != config.num_hidden_layers or set(kinds) - set(KINDS):
        raise ValueError(
            f"config.layer_types: expected {config.num_hidden_layers} of 'full_attention' and "
            f"'sliding_attention', got {kinds}"
        )
    norm = partial(nn.LayerNorm, embed_dim=size, eps=config.norm_eps, bias=config.norm_bias)
    ropes = {
        kind: rotary(config.rope_parameters[kind], size // config.num_attention_heads)
        for kind in KINDS
    }
    blocks = [
        nn.EncoderBlock(
            attention=nn.MultiHeadAttention(
                embed_dim=size,
                num_heads=config.num_attention_heads,
                bias=config.attention_bias,
                position=_windowed(ropes[kind][0], config, kind),
                scale=ropes[kind][1],
                dropout=config.attention_dropout,
            ),
            # the embedding has a norm, the first attention none
            attention_norm=torch.nn.Identity() if number == 0 else norm(),
            feed_forward=nn.GatedFeedForward(
                embed_dim=size,
                hidden_dim=config.intermediate_size,
                activation=activation("hidden_activation", config.hidden_activation),
                bias=config.mlp_bias,
                dropout=config.mlp_dropout,
            ),
            feed_forward_norm=norm(),
            norm_first=True,
        )
        for number, kind in enumerate(kinds)
    ]
    embedding = nn.TokenEmbedding(
        vocab_size=config.vocab_size, embed_dim=size, norm=norm(), dropout=config.embedding_dropout
    )
    head: nn.MaskedWordHead | None = None
    if theirs is not base:
        head = nn.MaskedWordHead(
            embed_dim=size,
            tokens=words_of(theirs, embedding),
            activation=activation("classifier_activation", config.classifier_activation),
            norm=norm(),
        )
        if not config.classifier_bias:
            head.projection.register_parameter("bias", None)
        if not config.decoder_bias:
            head.register_parameter("bias", None)
    return nn.EncoderModel(
        embedding=embedding, encoder=nn.TransformerEncoder(blocks=blocks, norm=norm()), head=head
    )


def _windowed(
    position: nn.RotaryPositions, config: Any, kind: str
) -> nn.RotaryPositions | nn.WindowPositions:
    if kind == "full_attention":
        return position
    half = config.local_attention // 2  # on either side
    return nn.WindowPositions(before=half, after=half, position=position)


def owns(model: Any) -> bool:
    """Whether our model is of this kind."""
    return (
        isinstance(model, nn.EncoderModel)
        and isinstance(model.encoder, nn.TransformerEncoder)
        and any(isinstance(part, nn.RotaryPositions) for part in model.modules())
    )


def export(model: nn.EncoderModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if model.pooler is not None:
        raise ValueError("model.pooler: expected None, as ModernBertModel has none")
    if model.head is None:
        return hf.ModernBertModel(config)
    expect("model.head", model.head, nn.MaskedWordHead)
    return hf.ModernBertForMaskedLM(config)


def describe(model: nn.EncoderModel) -> dict[str, Any]:
    """Fields of the configuration."""
    embedding, head = model.embedding, model.head
    block = first("model.encoder.blocks", model.encoder.blocks, nn.EncoderBlock)
    attend = expect("model.encoder.blocks.0.attention", block.attention, nn.MultiHeadAttention)
    forward = expect("model.encoder.blocks.0.feed_forward", block.feed_forward, nn.GatedFeedForward)
    norm = expect("model.encoder.norm", model.encoder.norm, nn.LayerNorm)
    kinds: list[str] = []
    ropes: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for number, part in enumerate(model.encoder.blocks):
        mine: Any = part.attention
        windowed = isinstance(mine.position, nn.WindowPositions)
        place = mine.position.position if windowed else mine.position
        path = f"model.encoder.blocks.{number}.attention.position"
        position = expect(path, place, nn.RotaryPositions)
        kinds.append(KINDS[windowed])
        ropes.setdefault(KINDS[windowed], rope_parameters(mine, position))
        if windowed:
            fields["local_attention"] = 2 * mine.position.before
    if isinstance(head, nn.MaskedWordHead):
        fields |= {
            "tie_word_embeddings": head.tokens is embedding.tokens,
            "classifier_activation": name_of("model.head.activation", head.activation),
            "classifier_bias": head.projection.bias is not None,
            "decoder_bias": head.bias is not None,
        }
    return dict(
        vocab_size=embedding.tokens.num_embeddings,
        hidden_size=attend.embed_dim,
        intermediate_size=forward.up_projection.out_features,
        num_hidden_layers=len(kinds),
        num_attention_heads=attend.num_heads,
        hidden_activation=name_of(
            "model.encoder.blocks.0.feed_forward.activation", forward.activation
        ),
        norm_eps=norm.eps,
        norm_bias=norm.bias is not None,
        attention_bias=attend.query_projection.bias is not None,
        attention_dropout=attend.dropout,
        layer_types=kinds,
        rope_parameters=ropes,
        embedding_dropout=embedding.dropout.p,
        mlp_bias=forward.up_projection.bias is not None,
        mlp_dropout=forward.dropout.p,
        **fields,
        **NO_TOKENS,
    )


def pairs(ours: nn.EncoderModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    parts = {name: _chunk(number, 3) for number, name in enumerate("qkv")}
    parts |= {"gate": _chunk(0, 2), "up": _chunk(1, 2)}
    yield from table(ours, theirs.base_model, WEIGHTS, **parts)
    if theirs is not theirs.base_model:
        yield from table(ours, theirs, MASKED)
        if not is_tied(theirs):
            yield from table(ours, theirs, "head.tokens.weight decoder.weight")


def _chunk(number: int, count: int) -> Callable[[Tensor], Tensor]:
    """One of several maps that are stored as one."""
    return lambda weight: weight.chunk(count)[number]


FAMILY = Family(
    *(hf.ModernBertConfig, nn.EncoderModel, (hf.ModernBertModel, hf.ModernBertForMaskedLM)),
    *(build, owns, describe, export, pairs),
    reads=names("""
        attention_bias attention_dropout classifier_activation classifier_bias decoder_bias
        embedding_dropout hidden_activation hidden_size intermediate_size layer_types
        local_attention mlp_bias mlp_dropout norm_bias norm_eps num_attention_heads
        num_hidden_layers rope_parameters
    """),
    # no field of the class, but it is read from any configuration that has it
    fixed={"head_dim": None},
    # positions beyond the trained length, initial weights, the loss, and a head that is refused
    unused=names("""
        classifier_dropout classifier_pooling cls_token_id deterministic_flash_attn
        initializer_cutoff_factor max_position_embeddings sep_token_id sparse_pred_ignore_index
        sparse_prediction
    """),
)
