"""Reformer: reversible layers, each with attention by hashing or in chunks of neighbours."""

from collections.abc import Iterator
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
    name_of,
    names,
    table,
)

WEIGHTS = """
embedding.tokens                                             embeddings.word_embeddings
embedding.position.{rows,columns}                            embeddings.position_embeddings.weights.{0,1}  {axis1,axis0}
embedding.position.weight                                    embeddings.position_embeddings.embedding.weight
encoder.blocks.*.attention.{query_key,query,key,value}_projection  encoder.layers.*.attention.self_attention.{query_key,query,key,value}
encoder.blocks.*.attention.output_projection                 encoder.layers.*.attention.output.dense
encoder.blocks.*.attention_norm                              encoder.layers.*.attention.layer_norm
encoder.blocks.*.feed_forward_norm                           encoder.layers.*.feed_forward.layer_norm
encoder.blocks.*.feed_forward.{up,down}_projection           encoder.layers.*.feed_forward.{dense,output}.dense
encoder.norm                                                 encoder.layer_norm
"""  # noqa: E501


def build(theirs: Any) -> nn.EncoderModel:
    """Our modules for a model of theirs."""
    config = theirs.config
    check_layers("attn_layers", len(config.attn_layers), theirs.encoder.layers)
    size, dropout = config.hidden_size, config.hidden_dropout_prob
    norm = partial(nn.LayerNorm, embed_dim=size, eps=config.layer_norm_eps)
    heads: dict[str, Any] = {
        "embed_dim": size,
        "num_heads": config.num_attention_heads,
        "head_dim": config.attention_head_size,
        "is_causal": config.is_decoder,
    }
    if "lsh" in config.attn_layers and config.num_buckets is None:
        raise ValueError(
            "config.num_buckets: expected a number, as the first call of a model sets it from the "
            "length of its text, got None"
        )

    def attention(kind: str) -> torch.nn.Module:
        if kind == "local":
            return nn.ChunkSelfAttention(
                **heads,
                chunk_size=config.local_attn_chunk_length,
                chunks_before=config.local_num_chunks_before,
                chunks_after=config.local_num_chunks_after,
                dropout=config.local_attention_probs_dropout_prob,
            )
        return nn.LSHSelfAttention(
            **heads,
            chunk_size=config.lsh_attn_chunk_length,
            n_buckets=config.num_buckets,
            n_hashes=config.num_hashes,
            chunks_before=config.lsh_num_chunks_before,
            chunks_after=config.lsh_num_chunks_after,
            attend_across_buckets=True,
            hash_seed=config.hash_seed,
            dropout=config.lsh_attention_probs_dropout_prob,
        )

    blocks = [
        nn.ReversibleBlock(
            attention=attention(kind),
            attention_norm=norm(),
            feed_forward=nn.FeedForward(
                embed_dim=size,
                hidden_dim=config.feed_forward_size,
                activation=activation("hidden_act", config.hidden_act),
                dropout=dropout,
            ),
            feed_forward_norm=norm(),
            dropout=dropout,
        )
        for kind in config.attn_layers
    ]
    position: torch.nn.Module
    if config.axial_pos_embds:
        position = nn.AxialPositions(shape=config.axial_pos_shape, dims=config.axial_pos_embds_dim)
    else:
        position = nn.LearnedPositions(max_length=config.max_position_embeddings, embed_dim=size)
    return nn.EncoderModel(
        embedding=nn.TokenEmbedding(
            vocab_size=config.vocab_size, embed_dim=size, position=position, dropout=dropout
        ),
        encoder=nn.ReformerEncoder(
            blocks=blocks,
            norm=nn.LayerNorm(embed_dim=2 * size, eps=config.layer_norm_eps),
            dropout=dropout,
        ),
    )


def owns(model: torch.nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, nn.EncoderModel) and isinstance(model.encoder, nn.ReformerEncoder)


def export(model: nn.EncoderModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if model.head is not None or model.pooler is not None:
        raise ValueError("model.head, model.pooler: expected None, as ReformerModel has neither")
    return hf.ReformerModel(config)


def describe(model: nn.EncoderModel) -> dict[str, Any]:
    """Fields of the configuration."""
    encoder = expect("model.encoder", model.encoder, nn.ReformerEncoder)
    blocks = [
        expect(f"model.encoder.sequence.blocks.{i}", b, nn.ReversibleBlock)
        for i, b in enumerate(encoder.blocks)
    ]
    layers: list[Any] = [block.attention for block in blocks]
    for number, layer in enumerate(layers):
        if not isinstance(layer, nn.LSHSelfAttention | nn.ChunkSelfAttention):
            raise ValueError(
                f"model.encoder.sequence.blocks.{number}.attention: expected LSHSelfAttention or "
                f"ChunkSelfAttention, got {type(layer).__name__}"
            )
    hashed = next((a for a in layers if isinstance(a, nn.LSHSelfAttention)), None)
    local = next((a for a in layers if isinstance(a, nn.ChunkSelfAttention)), None)
    forward = expect(
        "model.encoder.sequence.blocks.0.feed_forward", blocks[0].feed_forward, nn.FeedForward
    )
    norm = expect("model.encoder.norm", encoder.norm, nn.LayerNorm)
    position = model.embedding.position
    fields: dict[str, Any] = {"axial_pos_embds": isinstance(position, nn.AxialPositions)}
    if isinstance(position, nn.AxialPositions):
        shape = position.rows.shape[0], position.columns.shape[0]
        fields |= {
            "axial_pos_shape": shape,
            "axial_pos_embds_dim": (position.rows.shape[1], position.columns.shape[1]),
            "max_position_embeddings": shape[0] * shape[1],
        }
    else:
        table = expect("model.embedding.position", position, nn.LearnedPositions)
        fields["max_position_embeddings"] = table.weight.shape[0]
    if hashed is not None:
        buckets = hashed.n_buckets
        fields |= {
            "lsh_attn_chunk_length": hashed.chunk_size,
            "lsh_num_chunks_before": hashed.chunks_before,
            "lsh_num_chunks_after": hashed.chunks_after,
            "lsh_attention_probs_dropout_prob": hashed.dropout,
            "num_buckets": buckets if isinstance(buckets, int) else list(buckets),
            "num_hashes": hashed.n_hashes,
            "hash_seed": hashed.hash_seed,
        }
    if local is not None:
        fields |= {
            "local_attn_chunk_length": local.chunk_size,
            "local_num_chunks_before": local.chunks_before,
            "local_num_chunks_after": local.chunks_after,
            "local_attention_probs_dropout_prob": local.dropout,
        }
    # a reader of the configuration needs a token to fill up with
    return dict(
        attn_layers=["lsh" if isinstance(a, nn.LSHSelfAttention) else "local" for a in layers],
        vocab_size=model.embedding.tokens.num_embeddings,
        hidden_size=model.embedding.tokens.embedding_dim,
        num_attention_heads=layers[0].num_heads,
        attention_head_size=layers[0].head_dim,
        is_decoder=layers[0].is_causal,
        feed_forward_size=forward.up_projection.out_features,
        hidden_act=name_of(
            "model.encoder.sequence.blocks.0.feed_forward.activation", forward.activation
        ),
        hidden_dropout_prob=blocks[0].dropout.p,
        layer_norm_eps=norm.eps,
        **(NO_TOKENS | {"pad_token_id": 0}),
        **fields,
    )


def pairs(ours: nn.EncoderModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    axis = {"axis0": partial(_without_axis, axis=0), "axis1": partial(_without_axis, axis=1)}
    return table(ours, theirs, WEIGHTS, **axis)


def _without_axis(table: Tensor, axis: int) -> Tensor:
    return table.squeeze(axis) if table.shape[axis] == 1 else table


FAMILY = Family(
    *(hf.ReformerConfig, nn.EncoderModel, (hf.ReformerModel,)),
    *(build, owns, describe, export, pairs),
    reads=names("""
        attention_head_size attn_layers axial_pos_embds axial_pos_embds_dim axial_pos_shape
        feed_forward_size hash_seed hidden_act hidden_dropout_prob hidden_size is_decoder
        layer_norm_eps local_attention_probs_dropout_prob local_attn_chunk_length
        local_num_chunks_after local_num_chunks_before lsh_attention_probs_dropout_prob
        lsh_attn_chunk_length lsh_num_chunks_after lsh_num_chunks_before max_position_embeddings
        num_attention_heads num_buckets num_hashes
    """),
    # the number of layers is that of attn_layers; the others are of heads and initial weights
    unused=names("axial_norm_std chunk_size_lm_head classifier_dropout num_hidden_layers"),
)
