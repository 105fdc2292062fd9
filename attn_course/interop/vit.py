"""ViT: patches, a class token, learned positions, pre-norm encoder."""

from collections.abc import Iterable, Iterator
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
    name_of,
    names,
    table,
)

# a convolution whose stride is its kernel's size is a linear map of the patches
WEIGHTS = """
embedding.projection.weight                              embeddings.patch_embeddings.projection.weight  flat
embedding.projection.bias                                embeddings.patch_embeddings.projection.bias
embedding.class_token                                    embeddings.cls_token  one
embedding.position.weight                                embeddings.position_embeddings  one
encoder.blocks.*.attention.{query,key,value,output}_projection  layers.*.attention.{q,k,v,o}_proj
encoder.blocks.*.{attention_norm,feed_forward_norm}      layers.*.{layernorm_before,layernorm_after}
encoder.blocks.*.feed_forward.{up,down}_projection       layers.*.mlp.{fc1,fc2}
encoder.norm                                             layernorm
pooler.projection                                        pooler.dense
"""  # noqa: E501


def build(theirs: Any) -> nn.VisionTransformer:
    """Our modules for a model of theirs."""
    config = theirs.config
    check_layers("num_hidden_layers", config.num_hidden_layers, theirs.base_model.layers)
    size, dropout = config.hidden_size, config.hidden_dropout_prob
    bend = activation("hidden_act", config.hidden_act)
    norm = partial(nn.LayerNorm, embed_dim=size, eps=config.layer_norm_eps)
    image, patch = _sides(config.image_size), _sides(config.patch_size)
    if image[0] % patch[0] or image[1] % patch[1]:
        raise ValueError(
            f"config.image_size: expected multiples of config.patch_size {patch}, got {image}"
        )
    pooler = None
    if theirs.base_model.pooler is not None:
        # our pooler is a tanh and keeps the size
        for name, wanted in (("pooler_act", "tanh"), ("pooler_output_size", size)):
            if getattr(config, name) != wanted:
                raise ValueError(
                    f"config.{name}: expected {wanted!r}, got {getattr(config, name)!r}"
                )
        pooler = nn.Pooler(embed_dim=size)
    head: torch.nn.Module | None = None
    if type(theirs) is hf.ViTForImageClassification:
        if not isinstance(theirs.classifier, torch.nn.Linear):
            raise ValueError("config.num_labels: expected at least 1, got 0")
        head = torch.nn.Linear(size, theirs.classifier.out_features)
    blocks = [
        nn.EncoderBlock(
            attention=nn.MultiHeadAttention(
                embed_dim=size,
                num_heads=config.num_attention_heads,
                bias=config.qkv_bias,
                output_bias=True,
                dropout=config.attention_probs_dropout_prob,
            ),
            attention_norm=norm(),
            feed_forward=nn.FeedForward(
                embed_dim=size, hidden_dim=config.intermediate_size, activation=bend
            ),
            feed_forward_norm=norm(),
            norm_first=True,
            dropout=dropout,
        )
        for _ in range(config.num_hidden_layers)
    ]
    return nn.VisionTransformer(
        embedding=nn.PatchEmbedding(
            patch_size=patch,
            num_channels=config.num_channels,
            embed_dim=size,
            position=nn.LearnedGridPositions(
                grid_size=(image[0] // patch[0], image[1] // patch[1]), embed_dim=size, num_prefix=1
            ),
            dropout=dropout,
        ),
        encoder=nn.TransformerEncoder(blocks=blocks, norm=norm()),
        head=head,
        pooler=pooler,
    )


def owns(model: torch.nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, nn.VisionTransformer)


def export(model: nn.VisionTransformer, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if model.head is None:
        return hf.ViTModel(config, add_pooling_layer=model.pooler is not None)
    expect("model.head", model.head, torch.nn.Linear)
    return hf.ViTForImageClassification(config)


def describe(model: nn.VisionTransformer) -> dict[str, Any]:
    """Fields of the configuration."""
    embedding = model.embedding
    block = first("model.encoder.blocks", model.encoder.blocks, nn.EncoderBlock)
    attend = expect("model.encoder.blocks.0.attention", block.attention, nn.MultiHeadAttention)
    forward = expect("model.encoder.blocks.0.feed_forward", block.feed_forward, nn.FeedForward)
    norm = expect("model.encoder.norm", model.encoder.norm, nn.LayerNorm)
    position = expect("model.embedding.position", embedding.position, nn.LearnedGridPositions)
    rows, columns = embedding.patch_size
    fields: dict[str, Any] = {}
    if model.head is not None:
        fields["num_labels"] = expect("model.head", model.head, torch.nn.Linear).out_features
    return dict(
        hidden_size=embedding.projection.out_features,
        num_hidden_layers=len(model.encoder.blocks),
        num_attention_heads=attend.num_heads,
        intermediate_size=forward.up_projection.out_features,
        hidden_act=name_of("model.encoder.blocks.0.feed_forward.activation", forward.activation),
        hidden_dropout_prob=block.dropout.p,
        attention_probs_dropout_prob=attend.dropout,
        layer_norm_eps=norm.eps,
        image_size=_plain(position.grid_size[0] * rows, position.grid_size[1] * columns),
        patch_size=_plain(rows, columns),
        num_channels=embedding.num_channels,
        qkv_bias=attend.query_projection.bias is not None,
        **NO_TOKENS,
        **fields,
    )


def pairs(ours: nn.VisionTransformer, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    yield from table(ours, theirs.base_model, WEIGHTS, flat=_flat, one=_one)
    yield from table(ours, theirs, "head classifier")


def _sides(size: Any) -> tuple[int, int]:
    if isinstance(size, Iterable):
        height, width = size
        return height, width
    return size, size


def _plain(height: int, width: int) -> Any:
    return height if height == width else (height, width)


def _flat(theirs: Tensor) -> Tensor:
    return theirs.flatten(1)


def _one(theirs: Tensor) -> Tensor:
    return theirs[0]


FAMILY = Family(
    *(hf.ViTConfig, nn.VisionTransformer, (hf.ViTModel, hf.ViTForImageClassification)),
    *(build, owns, describe, export, pairs),
    reads=names("""
        attention_probs_dropout_prob hidden_act hidden_dropout_prob hidden_size image_size
        intermediate_size layer_norm_eps num_attention_heads num_channels num_hidden_layers
        patch_size pooler_act pooler_output_size qkv_bias
    """),
    # no field of the class, but it is read from any configuration that has it
    fixed={"head_dim": None},
    unused=names("encoder_stride"),  # for masked images only
)
