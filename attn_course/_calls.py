"""What to write here, for calls that are written as in torch or transformers."""

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

Called = TypeVar("Called", bound=Callable[..., Any])

# ours: what others call it
_NAMES = """
attn_fn: attn_implementation attention_fn
attn_mask: mask attention_bias attn_bias
base: theta rope_theta
bos: bos_token_id decoder_start_token_id
cache: past_key_value past_key_values kv_cache
decoder_input_ids: tgt target labels
dropout: dropout_p p attention_dropout attn_pdrop resid_pdrop hidden_dropout_prob
dropout_p: dropout p
embed_dim: d_model n_embd hidden_size dim normalized_shape
eos: eos_token_id
eps: layer_norm_eps layer_norm_epsilon rms_norm_eps norm_eps epsilon
global_mask: global_attention_mask
hidden_dim: dim_feedforward intermediate_size d_ff ffn_dim mlp_dim n_inner
input_ids: src ids tokens
is_causal: causal
max_length: max_new_tokens max_tokens max_seq_len n_positions max_position_embeddings block_size
num_heads: nhead n_head n_heads heads num_attention_heads
num_kv_heads: num_key_value_heads n_kv_heads
num_layers: n_layer n_layers num_hidden_layers depth
pad: pad_token_id ignore_index
padding_mask: mask
positions: position_ids input_pos
prompt: input_ids inputs
scale: softmax_scale sm_scale
seed: random_state
tied: tie_word_embeddings tie_weights
token_types: token_type_ids
value_head_dim: v_head_dim
window_size: window attention_window sliding_window
"""

# what others call it: what to write, the first whose name the call takes
_INSTEAD: dict[str, tuple[str, ...]] = {
    "attention_mask": (
        "padding_mask=attention_mask.bool()",
        "attn_mask=attention_mask.bool()[:, None, None, :] (True = may attend)",
    ),
    "average_attn_weights": ("module.weights(query, key).mean(1)",),
    "batch_first": ("the batch is always first",),
    "decoder_attention_mask": ("decoder_padding_mask=decoder_attention_mask.bool()",),
    "do_sample": ("temperature=0 for the most probable token: other temperatures draw",),
    "labels": ("train.token_loss(logits, labels)",),
    "max_length": ("make=functools.partial(KVCache, max_length=...)",),
    "min_p": ("filters=[functools.partial(min_p, p=...)]",),
    "need_weights": ("module.weights(query, key): the output is returned alone",),
    "num_beams": ("train.beam_search(step, state, beam_size=...)",),
    "output_attentions": ("nn.capture(model), which records the weights",),
    "padding_mask": ("attn_mask=padding_mask[:, None, None, :] (True = may attend)",),
    "use_cache": ("cache=model.new_cache()", "there is always a cache"),
    **{
        name: (f"attn_mask=~{name} (True = may attend), or a bias as it is",)
        for name in ("src_mask", "tgt_mask")
    },
    **{
        f"{prefix}key_padding_mask": (
            f"{ours}=~{prefix}key_padding_mask[:, None, None, :] (True = may attend)",
            f"padding_mask=~{prefix}key_padding_mask (True = real)",
        )
        for prefix, ours in (
            ("", "attn_mask"),
            ("src_", "attn_mask"),
            ("tgt_", "attn_mask"),
            ("memory_", "memory_mask"),
        )
    },
}
for _line in _NAMES.split("\n"):
    _ours, _, _theirs = _line.partition(":")
    for _name in _theirs.split():
        _INSTEAD[_name] = (*_INSTEAD.get(_name, ()), f"{_ours}=")


def explained(call: Called) -> Called:
    """A function, or a class and its ``forward``, whose refusals of arguments say what to write."""
    if isinstance(call, type):
        for name in {"__init__", "forward", "new_cache"} & vars(call).keys():
            setattr(call, name, explained(getattr(call, name)))
        return call

    @functools.wraps(call)
    def run(*args: Any, **options: Any) -> Any:
        try:
            if passes_on and set(options) - known:
                _refuse_foreign(call, args, options)
            return call(*args, **options)
        except TypeError as error:
            raise advice(call, args, options, error) from error.__cause__

    # once, not in every call: a signature takes longer than the attention of one token
    names = inspect.signature(call).parameters
    known, passes_on = frozenset(names), any(p.kind is p.VAR_KEYWORD for p in names.values())
    return run  # type: ignore[return-value]


def advice(
    call: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], error: TypeError
) -> Exception:
    """What to raise for an error of a call: a better one where the arguments do not fit."""
    signature = inspect.signature(call)
    try:
        signature.bind(*args, **options)
    except TypeError:
        pass
    else:
        return error  # it comes from within
    try:
        _refuse_foreign(call, args, options)
    except ValueError as known:
        return known
    names = signature.parameters
    for name in sorted(options.keys() - names.keys()):
        ours = ", ".join(n for n in names if n != "self")
        near = difflib.get_close_matches(name, names, n=1)
        return TypeError(f"{error}: " + (f"did you mean {near[0]}?" if near else f"it has {ours}"))
    keywords = {n: p for n, p in names.items() if p.kind is p.KEYWORD_ONLY}
    extra = args[sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in names.values()) :]
    if not extra or not keywords:
        return error
    needed = [n for n, p in keywords.items() if p.default is p.empty and n not in options]
    written = ", ".join(f"{n}={_shown(n, a)}" for n, a in zip(needed, extra, strict=False))
    write = f"write {written}" if written else f"its names are {', '.join(keywords)}"
    got = ", ".join(_shown(type(one).__name__, one) for one in extra)
    who = call.__qualname__.removesuffix(".__init__")
    return ValueError(f"{who}: expected keywords, got {got}: {write}")


def _refuse_foreign(
    call: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    """Refuse the names of others."""
    names = inspect.signature(call).parameters
    for name in sorted(options.keys() - names.keys()):
        for text in _INSTEAD.get(name, ()):
            ours, equals, _ = text.partition("=")
            if ours in names or not (equals and ours.isidentifier()):
                got = _shown("a tensor", options[name])
                write = text + _shown(name, options[name]) if text.endswith("=") else text
                write = write if " is " in write[:15] else f"write {write}"
                raise ValueError(f"{name}: expected none, got {got}: {write}")


def _shown(name: str, value: Any) -> str:
    """A value that can be read in a line, otherwise a name."""
    text = repr(value)
    return name if isinstance(value, Tensor) or len(text) > 60 else text
