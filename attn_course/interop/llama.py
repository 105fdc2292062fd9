"""Llama: causal pre-norm blocks with RMSNorm, RoPE on halves, grouped queries, a gated part."""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

from attn_course.functional.positions import linear_scaling, llama3_scaling
from attn_course.interop._config import (
    NO_TOKENS,
    Family,
    Pair,
    activation,
    attention,
    bound,
    check_layers,
    expect,
    first,
    name_of,
    same,
)
from attn_course.nn import (
    EncoderBlock,
    GatedFeedForward,
    LanguageModel,
    MultiHeadAttention,
    RMSNorm,
    RotaryPositions,
    TokenEmbedding,
)

# our argument of llama3_scaling and its name in a configuration
LLAMA3 = {
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_length": "original_max_position_embeddings",
}


def build(theirs: Any) -> LanguageModel:
    """Our modules for a model of theirs."""
    config = theirs.config
    base: Any = theirs if type(theirs) is LlamaModel else theirs.model
    check_layers("num_hidden_layers", config.num_hidden_layers, base.layers, at_least=1)
    size = config.hidden_size
    bend = activation("hidden_act", config.hidden_act)
    norm = partial(RMSNorm, embed_dim=size, eps=config.rms_norm_eps)
    if config.head_dim % 2:
        raise ValueError(f"config.head_dim: expected an even number, got {config.head_dim}")
    position = _positions(config.rope_parameters)
    blocks = [
        EncoderBlock(
            attention=MultiHeadAttention(
                embed_dim=size,
                num_heads=config.num_attention_heads,
                num_kv_heads=config.num_key_value_heads,
                head_dim=config.head_dim,
                bias=config.attention_bias,
                position=position,
                dropout=config.attention_dropout or 0.0,
            ),
            attention_norm=norm(),
            feed_forward=GatedFeedForward(
                embed_dim=size,
                hidden_dim=config.intermediate_size,
                activation=bend,
                bias=config.mlp_bias,
            ),
            feed_forward_norm=norm(),
            norm_first=True,
        )
        for _ in range(config.num_hidden_layers)
    ]
    head: nn.Module | None = None
    if type(theirs) is LlamaModel:
        head = nn.Identity()
    elif theirs.lm_head.weight is not theirs.model.embed_tokens.weight:
        head = nn.Linear(size, config.vocab_size, bias=False)
    return LanguageModel(
        embedding=TokenEmbedding(vocab_size=config.vocab_size, embed_dim=size),
        blocks=blocks,
        norm=norm(),
        output_projection=head,
    )


def _positions(rope: dict[str, Any]) -> RotaryPositions:
    """RoPE as a configuration describes it."""
    kind = rope.get("rope_type", "default")
    scaling: Callable[[Tensor], Tensor] | None
    if kind == "default":
        scaling = None
    elif kind == "linear":
        scaling = partial(linear_scaling, factor=float(rope["factor"]))
    elif kind == "llama3":
        scaling = partial(llama3_scaling, **{ours: rope[name] for ours, name in LLAMA3.items()})
    else:
        raise ValueError(
            "config.rope_parameters['rope_type']: expected 'default', 'linear' or 'llama3', "
            f"got {kind!r}"
        )
    part = rope.get("partial_rotary_factor")
    if part not in (None, 1, 1.0):
        raise ValueError(
            f"config.rope_parameters['partial_rotary_factor']: expected 1.0, got {part!r}"
        )
    return RotaryPositions(base=float(rope["rope_theta"]), interleaved=False, scaling=scaling)


def _rope_parameters(position: RotaryPositions) -> dict[str, Any]:
    """The configuration of RoPE."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": position.base}
    if position.scaling is None:
        return rope
    function: Any = None
    settled: dict[str, Any] = {}
    if isinstance(position.scaling, partial):
        function, settled = bound(position.scaling)
    if function is linear_scaling:
        return rope | {"rope_type": "linear", "factor": settled["factor"]}
    if function is llama3_scaling:
        named = {name: settled[ours] for ours, name in LLAMA3.items()}
        return rope | {"rope_type": "llama3"} | named
    raise ValueError(
        "model.blocks.0.attention.position.scaling: expected None or functools.partial of "
        f"linear_scaling or llama3_scaling, got {position.scaling!r}"
    )


def owns(model: nn.Module) -> bool:
    """Whether our model is of this kind."""
    return isinstance(model, LanguageModel) and any(
        isinstance(part, RotaryPositions) for part in model.modules()
    )


def export(model: LanguageModel, config: Any) -> Any:
    """Their model for ours, with any weights."""
    if config is None:
        config = _describe(model)
    config = copy.deepcopy(expect("config", config, LlamaConfig))
    bare = isinstance(model.output_projection, nn.Identity)
    return LlamaModel(config) if bare else LlamaForCausalLM(config)


def _describe(model: LanguageModel) -> Any:
    block = first("model.blocks", model.blocks, EncoderBlock)
    attend = expect("model.blocks.0.attention", block.attention, MultiHeadAttention)
    forward = expect("model.blocks.0.feed_forward", block.feed_forward, GatedFeedForward)
    norm = expect("model.norm", model.norm, RMSNorm)
    position = expect("model.blocks.0.attention.position", attend.position, RotaryPositions)
    return LlamaConfig(
        vocab_size=model.embedding.tokens.num_embeddings,
        hidden_size=attend.embed_dim,
        intermediate_size=forward.up_projection.out_features,
        num_hidden_layers=len(model.blocks),
        num_attention_heads=attend.num_heads,
        num_key_value_heads=attend.num_kv_heads,
        head_dim=attend.head_dim,
        hidden_act=name_of("model.blocks.0.feed_forward.activation", forward.activation),
        rms_norm_eps=norm.eps,
        tie_word_embeddings=model.output_projection is None,
        rope_parameters=_rope_parameters(position),
        attention_bias=attend.query_projection.bias is not None,
        attention_dropout=attend.dropout,
        mlp_bias=forward.up_projection.bias is not None,
        **NO_TOKENS,
    )


def pairs(ours: LanguageModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    base: Any = theirs if type(theirs) is LlamaModel else theirs.model
    blocks: Any = ours.blocks
    assert ours.norm is not None
    yield from same(ours.embedding.tokens, base.embed_tokens)
    for block, layer in zip(blocks, base.layers, strict=True):
        inner = layer.self_attn
        yield from attention(
            block.attention, inner.q_proj, inner.k_proj, inner.v_proj, inner.o_proj
        )
        yield from same(block.attention_norm, layer.input_layernorm)
        yield from same(block.feed_forward.gate_projection, layer.mlp.gate_proj)
        yield from same(block.feed_forward.up_projection, layer.mlp.up_proj)
        yield from same(block.feed_forward.down_projection, layer.mlp.down_proj)
        yield from same(block.feed_forward_norm, layer.post_attention_layernorm)
    yield from same(ours.norm, base.norm)
    if isinstance(ours.output_projection, nn.Linear):
        yield from same(ours.output_projection, theirs.lm_head)


FAMILY = Family(
    classes=(LlamaModel, LlamaForCausalLM),
    reads=frozenset(
        {
            "attention_bias",
            "attention_dropout",
            "head_dim",
            "hidden_act",
            "hidden_size",
            "intermediate_size",
            "mlp_bias",
            "num_attention_heads",
            "num_hidden_layers",
            "num_key_value_heads",
            "rms_norm_eps",
            "rope_parameters",
        }
    ),
    fixed={},
    unused=frozenset(
        {
            "max_position_embeddings",  # read by kinds of RoPE that are refused
            "pretraining_tp",  # no longer read
        }
    ),
    build=build,
    owns=owns,
    export=export,
    pairs=pairs,
)
