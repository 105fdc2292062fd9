"""GPT-2: causal pre-norm blocks, learned positions; linear maps are stored transposed."""

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

from attn_course.interop._config import (
    NO_TOKENS,
    Family,
    Pair,
    activation,
    check_layers,
    expect,
    first,
    name_of,
    same,
)
from attn_course.nn import (
    EncoderBlock,
    FeedForward,
    LanguageModel,
    LayerNorm,
    LearnedPositions,
    MultiHeadAttention,
    TokenEmbedding,
)


def build(theirs: Any) -> LanguageModel:
    """Our modules for a model of theirs."""
    config = theirs.config
    base: Any = theirs if type(theirs) is GPT2Model else theirs.transformer
    check_layers("n_layer", config.n_layer, base.h)
    size, eps = config.n_embd, config.layer_norm_epsilon
    bend = activation("activation_function", config.activation_function)
    scales = _scales(
        config.n_layer,
        size // config.n_head,
        plain=config.scale_attn_weights,
        by_layer=config.scale_attn_by_inverse_layer_idx,
    )
    blocks = [
        EncoderBlock(
            attention=MultiHeadAttention(
                embed_dim=size, num_heads=config.n_head, scale=scale, dropout=config.attn_pdrop
            ),
            attention_norm=LayerNorm(embed_dim=size, eps=eps),
            feed_forward=FeedForward(
                embed_dim=size,
                hidden_dim=4 * size if config.n_inner is None else config.n_inner,
                activation=bend,
            ),
            feed_forward_norm=LayerNorm(embed_dim=size, eps=eps),
            norm_first=True,
            dropout=config.resid_pdrop,
        )
        for scale in scales
    ]
    head: nn.Module | None = None
    if type(theirs) is GPT2Model:
        head = nn.Identity()
    elif not _is_tied(theirs):
        head = nn.Linear(size, config.vocab_size, bias=False)
    return LanguageModel(
        embedding=TokenEmbedding(
            vocab_size=config.vocab_size,
            embed_dim=size,
            position=LearnedPositions(max_length=config.n_positions, embed_dim=size),
            dropout=config.embd_pdrop,
        ),
        blocks=blocks,
        norm=LayerNorm(embed_dim=size, eps=eps),
        output_projection=head,
    )


def owns(model: nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, LanguageModel) and isinstance(
        model.embedding.position, LearnedPositions
    )


def export(model: LanguageModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if config is None:
        config = _describe(model)
    config = copy.deepcopy(expect("config", config, GPT2Config))
    bare = isinstance(model.output_projection, nn.Identity)
    return GPT2Model(config) if bare else GPT2LMHeadModel(config)


def _describe(model: LanguageModel) -> Any:
    block = first("model.blocks", model.blocks, EncoderBlock)
    attend = expect("model.blocks.0.attention", block.attention, MultiHeadAttention)
    forward = expect("model.blocks.0.feed_forward", block.feed_forward, FeedForward)
    norm = expect("model.norm", model.norm, LayerNorm)
    position = expect("model.embedding.position", model.embedding.position, LearnedPositions)
    found = [getattr(part.attention, "scale", None) for part in model.blocks]
    ways = [(plain, by_layer) for plain in (True, False) for by_layer in (False, True)]
    known = {
        (plain, by_layer): _scales(len(found), attend.head_dim, plain=plain, by_layer=by_layer)
        for plain, by_layer in ways
    }
    way = next((way for way, scales in known.items() if scales == found), None)
    if way is None:
        raise ValueError(f"model.blocks: expected scales of one of {known}, got {found}")
    return GPT2Config(
        vocab_size=model.embedding.tokens.num_embeddings,
        n_positions=position.weight.shape[0],
        n_embd=model.embedding.tokens.embedding_dim,
        n_layer=len(model.blocks),
        n_head=attend.num_heads,
        n_inner=forward.up_projection.out_features,
        activation_function=name_of("model.blocks.0.feed_forward.activation", forward.activation),
        resid_pdrop=block.dropout.p,
        embd_pdrop=model.embedding.dropout.p,
        attn_pdrop=attend.dropout,
        layer_norm_epsilon=norm.eps,
        scale_attn_weights=way[0],
        scale_attn_by_inverse_layer_idx=way[1],
        tie_word_embeddings=model.output_projection is None,
        **NO_TOKENS,
    )


def pairs(ours: LanguageModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    base: Any = theirs if type(theirs) is GPT2Model else theirs.transformer
    position: Any = ours.embedding.position
    blocks: Any = ours.blocks
    assert ours.norm is not None
    yield from same(ours.embedding.tokens, base.wte)
    yield Pair(position.weight, base.wpe.weight)
    for block, layer in zip(blocks, base.h, strict=True):
        attend = block.attention
        inputs = (attend.query_projection, attend.key_projection, attend.value_projection)
        for number, part in enumerate(inputs):
            yield Pair(part.weight, layer.attn.c_attn.weight, _third_of(number))
            yield Pair(part.bias, layer.attn.c_attn.bias, _third_of(number))
        yield from _transposed(attend.output_projection, layer.attn.c_proj)
        yield from same(block.attention_norm, layer.ln_1)
        yield from _transposed(block.feed_forward.up_projection, layer.mlp.c_fc)
        yield from _transposed(block.feed_forward.down_projection, layer.mlp.c_proj)
        yield from same(block.feed_forward_norm, layer.ln_2)
    yield from same(ours.norm, base.ln_f)
    if isinstance(ours.output_projection, nn.Linear):
        yield from same(ours.output_projection, theirs.lm_head)


def _scales(layers: int, head_dim: int, *, plain: bool, by_layer: bool) -> list[float | None]:
    """The factor of the scores in each block; None is one over the root of the head's size."""
    if plain and not by_layer:
        return [None] * layers
    factor = head_dim**-0.5 if plain else 1.0
    return [factor / (number + 1) if by_layer else factor for number in range(layers)]


def _third_of(number: int) -> Any:
    """Queries, keys or values of the map that makes all three; weights are (in, out)."""

    def view(weight: Tensor) -> Tensor:
        part = weight.chunk(3, dim=-1)[number]
        return part.T if part.ndim == 2 else part

    return view


def _transposed(ours: nn.Linear, theirs: Any) -> Iterator[Pair]:
    yield Pair(ours.weight, theirs.weight, lambda weight: weight.T)
    yield Pair(ours.bias, theirs.bias)


def _is_tied(theirs: Any) -> bool:
    return theirs.lm_head.weight is theirs.transformer.wte.weight


FAMILY = Family(
    classes=(GPT2Model, GPT2LMHeadModel),
    reads=frozenset(
        {
            "activation_function",
            "attn_pdrop",
            "embd_pdrop",
            "layer_norm_epsilon",
            "n_embd",
            "n_head",
            "n_inner",
            "n_layer",
            "n_positions",
            "resid_pdrop",
            "scale_attn_by_inverse_layer_idx",
            "scale_attn_weights",
        }
    ),
    fixed={"add_cross_attention": False},
    unused=frozenset(
        {
            "reorder_and_upcast_attn",  # the same product in float32, which ours is anyway
            "summary_activation",  # of GPT2DoubleHeadsModel
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        }
    ),
    build=build,
    owns=owns,
    export=export,
    pairs=pairs,
)
