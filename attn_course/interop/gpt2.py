"""GPT-2: causal pre-norm blocks, learned positions; linear maps are stored transposed."""

from collections.abc import Callable, Iterator
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
)

WEIGHTS = """
embedding.tokens                                   wte
embedding.position                                 wpe
blocks.*.attention.{query,key,value}_projection    h.*.attn.{c_attn,c_attn,c_attn}  {q,k,v}
blocks.*.attention.output_projection               h.*.attn.c_proj  T
blocks.*.{attention_norm,feed_forward_norm}        h.*.{ln_1,ln_2}
blocks.*.feed_forward.{up,down}_projection         h.*.mlp.{c_fc,c_proj}  {T,T}
norm                                               ln_f
"""


def build(theirs: Any) -> nn.LanguageModel:
    """Our modules for a model of theirs."""
    config = theirs.config
    base = theirs.base_model
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
        nn.EncoderBlock(
            attention=nn.MultiHeadAttention(
                embed_dim=size, num_heads=config.n_head, scale=scale, dropout=config.attn_pdrop
            ),
            attention_norm=nn.LayerNorm(embed_dim=size, eps=eps),
            feed_forward=nn.FeedForward(
                embed_dim=size,
                hidden_dim=4 * size if config.n_inner is None else config.n_inner,
                activation=bend,
            ),
            feed_forward_norm=nn.LayerNorm(embed_dim=size, eps=eps),
            norm_first=True,
            dropout=config.resid_pdrop,
        )
        for scale in scales
    ]
    head: torch.nn.Module | None = None
    if type(theirs) is hf.GPT2Model:
        head = torch.nn.Identity()
    elif not is_tied(theirs):
        head = torch.nn.Linear(size, config.vocab_size, bias=False)
    return nn.LanguageModel(
        embedding=nn.TokenEmbedding(
            vocab_size=config.vocab_size,
            embed_dim=size,
            position=nn.LearnedPositions(max_length=config.n_positions, embed_dim=size),
            dropout=config.embd_pdrop,
        ),
        blocks=blocks,
        norm=nn.LayerNorm(embed_dim=size, eps=eps),
        output_projection=head,
    )


def owns(model: torch.nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, nn.LanguageModel) and isinstance(
        model.embedding.position, nn.LearnedPositions
    )


def export(model: nn.LanguageModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    bare = isinstance(model.output_projection, torch.nn.Identity)
    return hf.GPT2Model(config) if bare else hf.GPT2LMHeadModel(config)


def describe(model: nn.LanguageModel) -> dict[str, Any]:
    """Fields of the configuration."""
    block = first("model.blocks", model.blocks, nn.EncoderBlock)
    attend = expect("model.blocks.0.attention", block.attention, nn.MultiHeadAttention)
    forward = expect("model.blocks.0.feed_forward", block.feed_forward, nn.FeedForward)
    norm = expect("model.norm", model.norm, nn.LayerNorm)
    position = expect("model.embedding.position", model.embedding.position, nn.LearnedPositions)
    found = [getattr(part.attention, "scale", None) for part in model.blocks]
    ways = [(plain, by_layer) for plain in (True, False) for by_layer in (False, True)]
    known = {
        (plain, by_layer): _scales(len(found), attend.head_dim, plain=plain, by_layer=by_layer)
        for plain, by_layer in ways
    }
    way = next((way for way, scales in known.items() if scales == found), None)
    if way is None:
        raise ValueError(f"model.blocks: expected scales of one of {known}, got {found}")
    return dict(
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


def pairs(ours: nn.LanguageModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    yield from table(
        ours, theirs.base_model, WEIGHTS, T=_turned, q=_third(0), k=_third(1), v=_third(2)
    )
    if isinstance(ours.output_projection, torch.nn.Linear):
        yield from table(ours, theirs, "output_projection lm_head")


def _scales(layers: int, head_dim: int, *, plain: bool, by_layer: bool) -> list[float | None]:
    """The factor of the scores in each block; None is one over the root of the head's size."""
    if plain and not by_layer:
        return [None] * layers
    factor = head_dim**-0.5 if plain else 1.0
    return [factor / (number + 1) if by_layer else factor for number in range(layers)]


def _turned(weight: Tensor) -> Tensor:
    """Weights are (in, out) there."""
    return weight.T if weight.ndim == 2 else weight


def _third(number: int) -> Callable[[Tensor], Tensor]:
    """Queries, keys or values of the map that makes all three."""
    return lambda weight: _turned(weight.chunk(3, dim=-1)[number])


FAMILY = Family(
    *(hf.GPT2Config, nn.LanguageModel, (hf.GPT2Model, hf.GPT2LMHeadModel)),
    *(build, owns, describe, export, pairs),
    reads=names("""
        activation_function attn_pdrop embd_pdrop layer_norm_epsilon n_embd n_head n_inner n_layer
        n_positions resid_pdrop scale_attn_by_inverse_layer_idx scale_attn_weights
    """),
    fixed={"add_cross_attention": False},
    # the same product in float32, which ours is anyway; the others are of GPT2DoubleHeadsModel
    unused=names("""
        reorder_and_upcast_attn summary_activation summary_first_dropout summary_proj_to_labels
        summary_type summary_use_proj
    """),
)
