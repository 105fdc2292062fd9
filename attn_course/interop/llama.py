"""Llama, Mistral, Qwen2 and Qwen3: causal pre-norm blocks with RMSNorm, RoPE on halves, grouped
queries and a gated part. Mistral has windows, Qwen2 biases of its own, Qwen3 norms of each head."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers as hf

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
from attn_course.interop._rope import rope_parameters, rotary

WEIGHTS = """
embedding.tokens                                           embed_tokens
blocks.*.attention.{query,key,value,output}_projection     layers.*.self_attn.{q,k,v,o}_proj
blocks.*.attention.{query,key}_norm                        layers.*.self_attn.{q,k}_norm
blocks.*.attention_norm                                    layers.*.input_layernorm
blocks.*.feed_forward.{gate,up,down}_projection            layers.*.mlp.{gate,up,down}_proj
blocks.*.feed_forward_norm                                 layers.*.post_attention_layernorm
norm                                                       norm
"""


def build(theirs: Any) -> nn.LanguageModel:
    """Our modules for a model of theirs."""
    config, base = theirs.config, theirs.base_model
    check_layers("num_hidden_layers", config.num_hidden_layers, base.layers, at_least=1)
    size, inner = config.hidden_size, base.layers[0].self_attn
    norm = partial(nn.RMSNorm, eps=config.rms_norm_eps)
    position, scale = rotary(config.rope_parameters, inner.head_dim)
    normed = hasattr(inner, "q_norm")
    blocks = [
        nn.EncoderBlock(
            attention=nn.MultiHeadAttention(
                embed_dim=size,
                num_heads=config.num_attention_heads,
                num_kv_heads=config.num_key_value_heads,
                head_dim=inner.head_dim,
                bias=inner.q_proj.bias is not None,
                output_bias=inner.o_proj.bias is not None,
                query_norm=norm(embed_dim=inner.head_dim) if normed else None,
                key_norm=norm(embed_dim=inner.head_dim) if normed else None,
                position=_windowed(position, window),
                scale=scale,
                dropout=config.attention_dropout or 0.0,
            ),
            attention_norm=norm(embed_dim=size),
            feed_forward=nn.GatedFeedForward(
                embed_dim=size,
                hidden_dim=config.intermediate_size,
                activation=activation("hidden_act", config.hidden_act),
                bias=base.layers[0].mlp.up_proj.bias is not None,
            ),
            feed_forward_norm=norm(embed_dim=size),
            norm_first=True,
        )
        for window in _windows(config)
    ]
    head: torch.nn.Module | None = None
    if theirs is base:
        head = torch.nn.Identity()
    elif not is_tied(theirs):
        head = torch.nn.Linear(size, config.vocab_size, bias=False)
    return nn.LanguageModel(
        embedding=nn.TokenEmbedding(vocab_size=config.vocab_size, embed_dim=size),
        blocks=blocks,
        norm=norm(embed_dim=size),
        output_projection=head,
    )


def _windows(config: Any) -> list[int | None]:
    """How many keys each layer attends to, the query's own included; None: all."""
    count = config.num_hidden_layers
    if isinstance(config, hf.LlamaConfig):
        return [None] * count
    window = config.sliding_window
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        kinds = ["full_attention" if window is None else "sliding_attention"] * count
    if len(kinds) != count or set(kinds) - {"full_attention", "sliding_attention"}:
        raise ValueError(
            f"config.layer_types: expected {count} of 'full_attention' and 'sliding_attention', "
            f"got {kinds}"
        )
    if "sliding_attention" in kinds and not (isinstance(window, int) and window >= 1):
        raise ValueError(f"config.sliding_window: expected at least 1, got {window!r}")
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _windowed(
    position: nn.RotaryPositions, window: int | None
) -> nn.RotaryPositions | nn.WindowPositions:
    return position if window is None else nn.WindowPositions(before=window - 1, position=position)


def owns(model: Any, kind: Callable[[Any], bool]) -> bool:
    """Whether our model is of this kind."""
    return (
        isinstance(model, nn.LanguageModel)
        and len(model.blocks) > 0
        and any(isinstance(part, nn.RotaryPositions) for part in model.modules())
        and kind(getattr(model.blocks[0], "attention", None))
    )


def export(model: nn.LanguageModel, config: Any, kinds: tuple[Any, Any]) -> Any:
    """Their model for ours, with any weights."""
    return kinds[not isinstance(model.output_projection, torch.nn.Identity)](config)


def describe(model: nn.LanguageModel, kind: Any) -> dict[str, Any]:
    """Fields of the configuration."""
    block = first("model.blocks", model.blocks, nn.EncoderBlock)
    attend = expect("model.blocks.0.attention", block.attention, nn.MultiHeadAttention)
    forward = expect("model.blocks.0.feed_forward", block.feed_forward, nn.GatedFeedForward)
    norm = expect("model.norm", model.norm, nn.RMSNorm)
    places: list[Any] = [getattr(part.attention, "position", None) for part in model.blocks]
    windows = [one.before + 1 if isinstance(one, nn.WindowPositions) else None for one in places]
    place = places[0].position if isinstance(places[0], nn.WindowPositions) else places[0]
    position = expect("model.blocks.0.attention.position", place, nn.RotaryPositions)
    fields: dict[str, Any] = {}
    if kind is hf.LlamaConfig:
        fields["mlp_bias"] = forward.up_projection.bias is not None
    if kind in (hf.LlamaConfig, hf.Qwen3Config):
        fields["attention_bias"] = attend.query_projection.bias is not None
    if kind is not hf.LlamaConfig:
        fields["sliding_window"] = next((one for one in windows if one is not None), None)
    if kind in (hf.Qwen2Config, hf.Qwen3Config):
        fields["use_sliding_window"] = fields["sliding_window"] is not None
        fields["layer_types"] = [
            "full_attention" if one is None else "sliding_attention" for one in windows
        ]
    return dict(
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
        rope_parameters=rope_parameters(attend, position),
        attention_dropout=attend.dropout,
        **fields,
        **NO_TOKENS,
    )


def pairs(ours: nn.LanguageModel, theirs: Any) -> Iterator[Pair]:
    """All weights of ours with all of theirs."""
    yield from table(ours, theirs.base_model, WEIGHTS)
    if isinstance(ours.output_projection, torch.nn.Linear):
        yield from table(ours, theirs, "output_projection lm_head")


def _has_norms(attend: Any) -> bool:
    return getattr(attend, "query_norm", None) is not None


def _has_biased_inputs(attend: Any) -> bool:
    inputs, output = (getattr(attend, f"{n}_projection", None) for n in ("query", "output"))
    return getattr(inputs, "bias", None) is not None and getattr(output, "bias", None) is None


def _has_window(attend: Any) -> bool:
    return isinstance(getattr(attend, "position", None), nn.WindowPositions)


READS = """
    attention_dropout head_dim hidden_act hidden_size intermediate_size num_attention_heads
    num_hidden_layers num_key_value_heads rms_norm_eps rope_parameters
"""
WINDOWS = " layer_types sliding_window"
Kind = tuple[Any, Any, Any, str, Callable[[Any], bool]]
KINDS: tuple[Kind, ...] = (
    (hf.Qwen3Config, hf.Qwen3Model, hf.Qwen3ForCausalLM, "attention_bias" + WINDOWS, _has_norms),
    (hf.Qwen2Config, hf.Qwen2Model, hf.Qwen2ForCausalLM, WINDOWS, _has_biased_inputs),
    (hf.MistralConfig, hf.MistralModel, hf.MistralForCausalLM, "sliding_window", _has_window),
    (
        hf.LlamaConfig,
        hf.LlamaModel,
        hf.LlamaForCausalLM,
        "attention_bias mlp_bias",
        lambda attend: True,
    ),
)
FAMILIES = tuple(
    Family(
        config=config,
        ours=nn.LanguageModel,
        classes=(bare, causal),
        reads=names(READS + fields),
        # positions beyond the trained length and layers with windows are said by other fields
        unused=names("max_position_embeddings max_window_layers use_sliding_window pretraining_tp"),
        build=build,
        owns=partial(owns, kind=kind),
        describe=partial(describe, kind=config),
        export=partial(export, kinds=(bare, causal)),
        pairs=pairs,
    )
    for config, bare, causal, fields, kind in KINDS
)
