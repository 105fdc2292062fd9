"""Random models of transformers: odd sizes, every setting that is known, no download."""

import random
from functools import partial
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn

B, S, L = 3, 11, 7
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu", "swish", "quick_gelu", "tanh", "mish")


def bert(draw: random.Random, **fields: Any) -> hf.BertConfig:
    heads = draw.choice([1, 3, 5])
    made = {
        "vocab_size": draw.choice([29, 37]), "hidden_size": heads * draw.choice([3, 7]),
        "num_hidden_layers": draw.choice([1, 2, 3]), "num_attention_heads": heads,
        "intermediate_size": draw.choice([13, 19]), "hidden_act": draw.choice(ACTIVATIONS),
        "max_position_embeddings": draw.choice([13, 17]), "type_vocab_size": draw.choice([1, 2, 3]),
        "layer_norm_eps": draw.choice([1e-12, 1e-3]),
        "hidden_dropout_prob": draw.choice([0.0, 0.2]),
        "attention_probs_dropout_prob": draw.choice([0.0, 0.3]),
        "classifier_dropout": draw.choice([None, 0.4]), "num_labels": draw.choice([2, 5]),
        "tie_word_embeddings": draw.choice([True, False]),
    }  # fmt: skip
    return hf.BertConfig(**(made | NO_TOKENS | fields))


def gpt2(draw: random.Random, **fields: Any) -> hf.GPT2Config:
    heads = draw.choice([1, 3, 5])
    made = {
        "vocab_size": draw.choice([29, 37]), "n_positions": draw.choice([23, 31]),
        "n_embd": heads * draw.choice([3, 7]), "n_layer": draw.choice([1, 2, 3]), "n_head": heads,
        "n_inner": draw.choice([None, 19]), "activation_function": draw.choice(ACTIVATIONS),
        "resid_pdrop": draw.choice([0.0, 0.2]), "embd_pdrop": draw.choice([0.0, 0.3]),
        "attn_pdrop": draw.choice([0.0, 0.4]), "layer_norm_epsilon": draw.choice([1e-5, 1e-3]),
        "scale_attn_weights": draw.choice([True, False]),
        "scale_attn_by_inverse_layer_idx": draw.choice([True, False]),
        "reorder_and_upcast_attn": draw.choice([True, False]),
        "tie_word_embeddings": draw.choice([True, False]),
    }  # fmt: skip
    return hf.GPT2Config(**(made | NO_TOKENS | fields))


ROPES = (
    {"rope_type": "default", "rope_theta": 10000.0},
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "rope_theta": 300.0, "factor": 4.0},
    {
        "rope_type": "llama3", "rope_theta": 700.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
    },
    {
        "rope_type": "yarn", "rope_theta": 900.0, "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0,
        "original_max_position_embeddings": 32, "beta_fast": 9.0, "beta_slow": 0.5, "mscale": 0.7,
        "mscale_all_dim": 0.3, "truncate": False,
    },
)  # fmt: skip


def llama(draw: random.Random, kind: Any = hf.LlamaConfig, **fields: Any) -> Any:
    """Also Mistral, Qwen2 and Qwen3, which differ in windows, biases and norms."""
    groups, kv = draw.choice([1, 2, 3]), draw.choice([1, 2, 3])
    layers = draw.choice([1, 2, 3])
    made = {
        "vocab_size": draw.choice([29, 37]), "hidden_size": groups * kv * draw.choice([4, 6]),
        "intermediate_size": draw.choice([13, 19]), "num_hidden_layers": layers,
        "num_attention_heads": groups * kv, "num_key_value_heads": kv,
        "head_dim": draw.choice([4, 10] if kind is hf.Qwen3Config else [None, 4, 10]),
        "hidden_act": draw.choice(ACTIVATIONS), "rms_norm_eps": draw.choice([1e-6, 1e-3]),
        "max_position_embeddings": 64, "rope_parameters": dict(draw.choice(ROPES)),
        "attention_dropout": draw.choice([0.0, 0.2]),
        "tie_word_embeddings": draw.choice([True, False]),
    }  # fmt: skip
    if kind in (hf.LlamaConfig, hf.Qwen3Config):
        made["attention_bias"] = draw.choice([True, False])
    if kind is hf.LlamaConfig:
        made["mlp_bias"] = draw.choice([True, False])
    elif kind is hf.MistralConfig:
        made["sliding_window"] = draw.choice([2, 3, 5, 40])  # their cache fails at 1
    else:
        made |= {"use_sliding_window": draw.choice([True, False]), "sliding_window": 3}
        made["max_window_layers"] = draw.choice([0, 1])
    if kind is hf.Qwen2Config and made["head_dim"] is None:
        del made["head_dim"]
    return kind(**(made | NO_TOKENS | fields))


def modern_bert(draw: random.Random, **fields: Any) -> hf.ModernBertConfig:
    heads, layers = draw.choice([1, 3, 5]), draw.choice([1, 2, 4])
    made = {
        "vocab_size": draw.choice([29, 37]), "hidden_size": heads * draw.choice([4, 6]),
        "intermediate_size": draw.choice([13, 19]), "num_hidden_layers": layers,
        "num_attention_heads": heads, "hidden_activation": draw.choice(ACTIVATIONS),
        "classifier_activation": draw.choice(ACTIVATIONS), "norm_eps": draw.choice([1e-12, 1e-3]),
        "local_attention": draw.choice([2, 4, 7]),
        "global_attn_every_n_layers": draw.choice([1, 2, 3]),
        "rope_parameters": {
            "full_attention": dict(draw.choice(ROPES[:3])),
            "sliding_attention": dict(draw.choice(ROPES[:3])),
        },
        "embedding_dropout": draw.choice([0.0, 0.2]), "attention_dropout": draw.choice([0.0, 0.3]),
        "mlp_dropout": draw.choice([0.0, 0.1]),
    }  # fmt: skip
    for name in ("attention", "classifier", "decoder", "mlp", "norm"):
        made[f"{name}_bias"] = draw.choice([True, False])
    made["tie_word_embeddings"] = draw.choice([True, False])
    none = NO_TOKENS | {"cls_token_id": None, "sep_token_id": None}
    return hf.ModernBertConfig(**(made | none | fields))


def longformer(draw: random.Random, **fields: Any) -> hf.LongformerConfig:
    heads, layers = draw.choice([1, 3, 5]), draw.choice([1, 2, 3])
    made = {
        "vocab_size": draw.choice([29, 37]), "hidden_size": heads * draw.choice([3, 7]),
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": draw.choice([13, 19]), "hidden_act": draw.choice(ACTIVATIONS),
        # theirs fails at windows below 4, and where the longest is no multiple of another
        "attention_window": [draw.choice([4, 8, 16]) for _ in range(layers)],
        "max_position_embeddings": draw.choice([19, 31]), "type_vocab_size": draw.choice([1, 2]),
        "layer_norm_eps": draw.choice([1e-12, 1e-3]),
        "hidden_dropout_prob": draw.choice([0.0, 0.2]),
        "attention_probs_dropout_prob": draw.choice([0.0, 0.3]),
        "tie_word_embeddings": draw.choice([True, False]),
        # positions begin after it
        "pad_token_id": draw.choice([0, 1, 3]),
    }  # fmt: skip
    none = {"bos_token_id": None, "eos_token_id": None}
    return hf.LongformerConfig(**(made | none | fields))


def marian(draw: random.Random, **fields: Any) -> hf.MarianConfig:
    shared = draw.choice([True, False])
    made = {
        "vocab_size": 37, "decoder_vocab_size": 37 if shared else draw.choice([29, 41]),
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": shared or draw.choice([True, False]),
        "d_model": 15 * draw.choice([1, 2]), "encoder_layers": draw.choice([1, 2]),
        "decoder_layers": draw.choice([1, 3]), "encoder_attention_heads": draw.choice([1, 3]),
        "decoder_attention_heads": draw.choice([3, 5]), "encoder_ffn_dim": draw.choice([13, 19]),
        "decoder_ffn_dim": draw.choice([17, 23]), "activation_function": draw.choice(ACTIVATIONS),
        "dropout": draw.choice([0.0, 0.2]), "attention_dropout": draw.choice([0.0, 0.3]),
        "activation_dropout": draw.choice([0.0, 0.4]),
        "scale_embedding": draw.choice([True, False]),
        "max_position_embeddings": draw.choice([19, 31]), "decoder_start_token_id": 0,
        "forced_eos_token_id": None,
    }  # fmt: skip
    return hf.MarianConfig(**(made | NO_TOKENS | fields))


def t5(draw: random.Random, **fields: Any) -> hf.T5Config:
    made = {
        "vocab_size": draw.choice([29, 37]), "d_model": draw.choice([11, 17]),
        "d_kv": draw.choice([3, 5]), "d_ff": draw.choice([13, 19]),
        "num_layers": draw.choice([1, 2]), "num_decoder_layers": draw.choice([1, 3]),
        "num_heads": draw.choice([1, 3]),
        "relative_attention_num_buckets": draw.choice([4, 8, 10, 32]),
        "relative_attention_max_distance": draw.choice([17, 128]),
        "dropout_rate": draw.choice([0.0, 0.2]), "layer_norm_epsilon": draw.choice([1e-6, 1e-3]),
        "feed_forward_proj": draw.choice(
            ["relu", "gelu", "gated-gelu", "gated-gelu_python", "gated-silu", "gated-relu"]),
        "tie_word_embeddings": draw.choice([True, False]),  # whether the logits are scaled
        "decoder_start_token_id": 0,
    }  # fmt: skip
    return hf.T5Config(**(made | NO_TOKENS | fields))


def reformer(draw: random.Random, **fields: Any) -> hf.ReformerConfig:
    """One round of hashing: where a token sees only itself, theirs joins rounds in float32 at
    scores of -100,000, whose third digit is lost; more rounds are compared in float64."""
    heads, size, causal = draw.choice([1, 2, 3]), draw.choice([6, 10]), draw.choice([True, False])
    made = {
        "vocab_size": draw.choice([29, 37]),
        "attn_layers": [draw.choice(["lsh", "local"]) for _ in range(draw.choice([1, 2, 3]))],
        "attention_head_size": draw.choice([3, 5]), "num_attention_heads": heads,
        "hidden_size": size, "feed_forward_size": draw.choice([13, 19]),
        "hidden_act": draw.choice(ACTIVATIONS), "axial_pos_embds": draw.choice([True, False]),
        "axial_pos_shape": (5, 7), "axial_pos_embds_dim": (2, size - 2),
        "max_position_embeddings": 35, "is_decoder": causal,
        "local_attn_chunk_length": draw.choice([3, 4]),
        "local_num_chunks_before": draw.choice([0, 1, 2]),
        "local_num_chunks_after": 0 if causal else draw.choice([0, 1]),
        "lsh_attn_chunk_length": draw.choice([4, 5]), "lsh_num_chunks_before": draw.choice([0, 1]),
        "lsh_num_chunks_after": 0 if causal else draw.choice([0, 1]),
        "num_buckets": draw.choice([2, 4, [2, 4]]), "num_hashes": 1,
        "hash_seed": draw.choice([1, 5]), "hidden_dropout_prob": draw.choice([0.0, 0.2]),
        "lsh_attention_probs_dropout_prob": draw.choice([0.0, 0.1]),
        "local_attention_probs_dropout_prob": draw.choice([0.0, 0.3]),
        "layer_norm_eps": draw.choice([1e-12, 1e-3]),
    }  # fmt: skip
    return hf.ReformerConfig(**(made | {"bos_token_id": None, "eos_token_id": None} | fields))


def vit(draw: random.Random, **fields: Any) -> hf.ViTConfig:
    heads, patch = draw.choice([1, 3, 5]), draw.choice([2, (3, 2)])
    made = {
        "hidden_size": heads * draw.choice([4, 6]), "num_hidden_layers": draw.choice([1, 2, 3]),
        "num_attention_heads": heads, "intermediate_size": draw.choice([13, 19]),
        "hidden_act": draw.choice(ACTIVATIONS), "hidden_dropout_prob": draw.choice([0.0, 0.2]),
        "attention_probs_dropout_prob": draw.choice([0.0, 0.3]),
        "layer_norm_eps": draw.choice([1e-12, 1e-3]), "image_size": draw.choice([(6, 10), 6]),
        "patch_size": patch, "num_channels": draw.choice([1, 3]),
        "qkv_bias": draw.choice([True, False]), "num_labels": draw.choice([2, 5]),
    }  # fmt: skip
    return hf.ViTConfig(**(made | NO_TOKENS | fields))


MAKERS: dict[str, Any] = {
    "BertModel BertForMaskedLM BertForSequenceClassification": bert,
    "GPT2Model GPT2LMHeadModel": gpt2, "LlamaModel LlamaForCausalLM": llama,
    "LongformerModel LongformerForMaskedLM": longformer, "MarianModel MarianMTModel": marian,
    "MistralModel MistralForCausalLM": partial(llama, kind=hf.MistralConfig),
    "ModernBertModel ModernBertForMaskedLM": modern_bert,
    "Qwen2Model Qwen2ForCausalLM": partial(llama, kind=hf.Qwen2Config),
    "Qwen3Model Qwen3ForCausalLM": partial(llama, kind=hf.Qwen3Config), "ReformerModel": reformer,
    "T5Model T5ForConditionalGeneration T5EncoderModel": t5,
    "ViTModel ViTForImageClassification": vit,
}  # fmt: skip
MODELS: dict[str, tuple[Any, Any]] = {
    name: (getattr(hf, name), make) for names, make in MAKERS.items() for name in names.split()
}
COUNTED = ("Bert", "GPT2", "Llama", "Mistral", "ModernBert", "Qwen")
WITH_DECODER = ("MarianModel", "MarianMTModel", "T5Model", "T5ForConditionalGeneration")


@torch.no_grad()
def moved(model: Any, scale: float) -> Any:
    """The model with larger weights, and with norms and biases moved from 1 and 0."""
    for path, tensor in model.named_parameters():
        if "embed_positions" in path:
            continue
        tensor.mul_(scale if tensor.ndim == 2 else 1.0)
        if tensor.ndim == 1 and "cls.predictions.bias" not in path:
            tensor.add_(0.1 * torch.randn_like(tensor))
    if hasattr(model, "cls"):  # the same numbers, whether they are one weight or two
        model.cls.predictions.bias.copy_(model.cls.predictions.decoder.bias)
    return model


def make_source(name: str, seed: int, *, scale: float = 1.0, **fields: Any) -> Any:
    """A model with random settings; norms and biases, 1 and 0 at first, are moved from there.

    Args:
        name: Of the class.
        seed: Of settings and weights.
        scale: Factor of the weights that transformers draws.
        fields: Of the configuration, in place of drawn ones.
    """
    kind, config = MODELS[name]
    torch.manual_seed(seed)
    model = moved(kind(config(random.Random(f"{name} {seed}"), **fields)).eval(), scale)
    with torch.no_grad():
        if name == "LongformerForMaskedLM":
            model.lm_head.bias.copy_(model.lm_head.decoder.bias)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
        if name == "T5ForConditionalGeneration" and seed % 2:  # as in T5 1.1
            model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    return model


def words_of(model: Any) -> tuple[int, int]:
    config = model.config
    return config.vocab_size, getattr(config, "decoder_vocab_size", config.vocab_size)


def padding(length: int, side: str | None) -> Tensor | None:
    """True at real tokens, for rows of different lengths."""
    if side is None:
        return None
    real = torch.arange(length) < torch.tensor([length, length - 3, length - 5])[:, None]
    return real if side == "right" else real.flip(-1)


def call(model: Any, side: str | None = None) -> dict[str, Any]:
    if type(model).__name__.startswith("ViT"):
        size, channels = model.config.image_size, model.config.num_channels
        height, width = (size, size) if isinstance(size, int) else size
        images = torch.randn(B, channels, height, width)
        return {"pixel_values": images.to(next(model.parameters()).dtype)}
    source, target = words_of(model)
    given: dict[str, Any] = {"input_ids": torch.randint(source, (B, S))}
    real = padding(S, side)
    if real is not None:
        given["attention_mask"] = real.long()
        if type(model).__name__.startswith(COUNTED):
            given["position_ids"] = (real.long().cumsum(-1) - 1).clamp(min=0)
    if type(model).__name__.startswith("Longformer"):
        counted = torch.ones(B, S, dtype=torch.long) if real is None else real.long()
        places = (counted.cumsum(-1) - 1).clamp(min=0)
        given["position_ids"] = places + model.config.pad_token_id + 1
        # a text with two, one with one, and one with none
        given["global_attention_mask"] = torch.zeros(B, S, dtype=torch.long)
        given["global_attention_mask"][[0, 0, 1], [4, 7, 5]] = 1
    if type(model).__name__ in WITH_DECODER:
        given["decoder_input_ids"] = torch.randint(target, (B, L))
        ahead = padding(L, side)
        if ahead is not None:
            given["decoder_attention_mask"] = ahead.long()
    return given


def result(output: Any) -> Tensor:
    found: Tensor = output.logits if "logits" in output else output.last_hidden_state
    return found


def ours_of(model: Any, given: dict[str, Tensor]) -> dict[str, Any]:
    """The same call of one of our models."""
    if "pixel_values" in given:
        return {"images": given["pixel_values"]}
    names = {
        "attention_mask": "padding_mask", "decoder_attention_mask": "decoder_padding_mask",
        "global_attention_mask": "global_mask", "token_type_ids": "token_types",
        "input_ids": "input_ids", "decoder_input_ids": "decoder_input_ids",
    }  # fmt: skip
    made = {names[name]: each for name, each in given.items() if name in names}
    return {name: each.bool() if "mask" in name else each for name, each in made.items()}
