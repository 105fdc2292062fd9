"""ViT: patches, a class token, learned positions, pre-norm encoder."""

import copy
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification, ViTModel

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
    EncoderBlock,
    FeedForward,
    LayerNorm,
    LearnedGridPositions,
    MultiHeadAttention,
    PatchEmbedding,
    Pooler,
    TransformerEncoder,
    VisionTransformer,
)


def build(theirs: Any) -> VisionTransformer:
    """Our modules for a model of theirs."""
    config = theirs.config
    check_layers("num_hidden_layers", config.num_hidden_layers, _base(theirs).layers)
    size, dropout = config.hidden_size, config.hidden_dropout_prob
    bend = activation("hidden_act", config.hidden_act)
    norm = partial(LayerNorm, embed_dim=size, eps=config.layer_norm_eps)
    image, patch = _sides(config.image_size), _sides(config.patch_size)
    if image[0] % patch[0] or image[1] % patch[1]:
        raise ValueError(
            f"config.image_size: expected multiples of config.patch_size {patch}, got {image}"
        )
    pooler = None
    if _base(theirs).pooler is not None:
        # our pooler is a tanh and keeps the size
        for name, wanted in (("pooler_act", "tanh"), ("pooler_output_size", size)):
            if getattr(config, name) != wanted:
                raise ValueError(
                    f"config.{name}: expected {wanted!r}, got {getattr(config, name)!r}"
                )
        pooler = Pooler(embed_dim=size)
    head: nn.Module | None = None
    if type(theirs) is ViTForImageClassification:
        if not isinstance(theirs.classifier, nn.Linear):
            raise ValueError("config.num_labels: expected at least 1, got 0")
        head = nn.Linear(size, theirs.classifier.out_features)
    blocks = [
        EncoderBlock(
            attention=MultiHeadAttention(
                embed_dim=size,
                num_heads=config.num_attention_heads,
                bias=config.qkv_bias,
                output_bias=True,
                dropout=config.attention_probs_dropout_prob,
            ),
            attention_norm=norm(),
            feed_forward=FeedForward(
                embed_dim=size, hidden_dim=config.intermediate_size, activation=bend
            ),
            feed_forward_norm=norm(),
            norm_first=True,
            dropout=dropout,
        )
        for _ in range(config.num_hidden_layers)
    ]
    return VisionTransformer(
        embedding=PatchEmbedding(
            patch_size=patch,
            num_channels=config.num_channels,
            embed_dim=size,
            position=LearnedGridPositions(
                grid_size=(image[0] // patch[0], image[1] // patch[1]),
                embed_dim=size,
                num_prefix=1,
            ),
            dropout=dropout,
        ),
        encoder=TransformerEncoder(blocks=blocks, norm=norm()),
        head=head,
        pooler=pooler,
    )


def owns(model: nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, VisionTransformer)


def export(model: VisionTransformer, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if config is None:
        config = _describe(model)
    config = copy.deepcopy(expect("config", config, ViTConfig))
    if model.head is None:
        return ViTModel(config, add_pooling_layer=model.pooler is not None)
    expect("model.head", model.head, nn.Linear)
    return ViTForImageClassification(config)


def _describe(model: VisionTransformer) -> Any:
    embedding = model.embedding
    block = first("model.encoder.blocks", model.encoder.blocks, EncoderBlock)
    attend = expect("model.encoder.blocks.0.attention", block.attention, MultiHeadAttention)
    forward = expect("model.encoder.blocks.0.feed_forward", block.feed_forward, FeedForward)
    norm = expect("model.encoder.norm", model.encoder.norm, LayerNorm)
    position = expect("model.embedding.position", embedding.position, LearnedGridPositions)
    rows, columns = embedding.patch_size
    fields: dict[str, Any] = {}
    if model.head is not None:
        fields["num_labels"] = expect("model.head", model.head, nn.Linear).out_features
    return ViTConfig(
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


def pairs(ours: VisionTransformer, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    base, embedding = _base(theirs), ours.embedding
    position: Any = embedding.position
    patches = base.embeddings.patch_embeddings.projection
    assert embedding.class_token is not None
    # a convolution whose stride is its kernel's size is a linear map of the patches
    yield Pair(embedding.projection.weight, patches.weight, _flat)
    yield Pair(embedding.projection.bias, patches.bias)
    yield Pair(embedding.class_token, base.embeddings.cls_token, _one)
    yield Pair(position.weight, base.embeddings.position_embeddings, _one)
    blocks: Any = ours.encoder.blocks
    for block, layer in zip(blocks, base.layers, strict=True):
        inner = layer.attention
        yield from attention(
            block.attention, inner.q_proj, inner.k_proj, inner.v_proj, inner.o_proj
        )
        yield from same(block.attention_norm, layer.layernorm_before)
        yield from same(block.feed_forward.up_projection, layer.mlp.fc1)
        yield from same(block.feed_forward.down_projection, layer.mlp.fc2)
        yield from same(block.feed_forward_norm, layer.layernorm_after)
    norm: Any = ours.encoder.norm
    yield from same(norm, base.layernorm)
    if base.pooler is not None:
        pooler: Any = ours.pooler
        yield from same(pooler.projection, base.pooler.dense)
    if type(theirs) is ViTForImageClassification:
        head: Any = ours.head
        yield from same(head, theirs.classifier)


FAMILY = Family(
    classes=(ViTModel, ViTForImageClassification),
    reads=frozenset(
        {
            "attention_probs_dropout_prob",
            "hidden_act",
            "hidden_dropout_prob",
            "hidden_size",
            "image_size",
            "intermediate_size",
            "layer_norm_eps",
            "num_attention_heads",
            "num_channels",
            "num_hidden_layers",
            "patch_size",
            "pooler_act",
            "pooler_output_size",
            "qkv_bias",
        }
    ),
    # no field of the class, but it is read from any configuration that has it
    fixed={"head_dim": None},
    unused=frozenset({"encoder_stride"}),  # for masked images only
    build=build,
    owns=owns,
    export=export,
    pairs=pairs,
)


def _base(theirs: Any) -> Any:
    return theirs if type(theirs) is ViTModel else theirs.vit


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
