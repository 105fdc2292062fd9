"""What changes the function is followed or refused by name: fields, classes, weights, modules."""

import copy
import inspect
import re
import sys
from functools import partial
from typing import Any

import pytest
import torch
import transformers as hf
from interop_sources import MODELS, ROPES, make_source
from refusals import refused
from torch import Tensor, nn

from attn_course.interop import from_transformers, to_transformers
from attn_course.interop._config import UNUSED
from attn_course.interop._convert import FAMILIES
from attn_course.nn import RotaryPositions, gpt2_like, llama_like, vaswani_like

TINY: dict[str, Any] = {
    "vocab_size": 7, "hidden_size": 6, "num_attention_heads": 3, "intermediate_size": 5,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SMALL: dict[str, Any] = TINY | {
    "num_hidden_layers": 1, "sep_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False,
}  # fmt: skip

# names of sizes that the configurations have twice, and what is no field
ALIASES = {"num_attention_heads", "num_hidden_layers", "hidden_size", "max_position_embeddings"}
ALIASES |= {"sliding_window"}  # ModernBERT's, half of local_attention
NO_FIELDS = {"_attn_implementation", "use_return_dict", "num_labels"}
# words of Reformer's error messages and comments
NO_FIELDS |= {"chunk_length", "n_layers", "num_chunks_after", "num_chunks_before"}
# read by heads that are refused as classes
OTHER_HEADS = {"classifier_dropout", "hidden_dropout", "summary_last_dropout"}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.classes[0].__name__)
def test_every_field_is_followed_fixed_or_without_effect(family: Any) -> None:
    declared = set(family.classes[0].config_class().to_dict())
    groups = [family.reads, set(family.fixed), family.unused, UNUSED - family.reads]
    known = set().union(*groups)
    assert declared <= known
    assert sum(map(len, groups)) == len(known)  # in one group each
    source = inspect.getsource(sys.modules[family.classes[0].__module__])
    read = set(re.findall(r"\bconfig\.(\w+)", source))
    assert len(read) > 10
    assert read <= known | ALIASES | NO_FIELDS | OTHER_HEADS, read - known


REFUSED = [
    ("BertModel", {"is_decoder": True}, r"config\.is_decoder: expected False, got True"),
    ("BertModel", {"is_decoder": True, "add_cross_attention": True},
     r"config\.is_decoder: expected False, got True"),
    ("BertModel", {"position_embedding_type": "relative_key"},
     "config.position_embedding_type: expected 'absolute', got 'relative_key'"),
    ("BertModel", {"hidden_act": "gelu_10"}, r"config\.hidden_act: expected one of .*, got 'gelu"),
    ("GPT2Model", {"add_cross_attention": True},
     r"config\.add_cross_attention: expected False, got True"),
    ("GPT2Model", {"is_causal": False}, r"config\.is_causal: expected True, got False"),
    ("GPT2Model", {"activation_function": "relu2"}, "config.activation_function: expected one of"),
    ("LlamaModel", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
     "rope_type'.: expected 'default', 'linear', 'llama3' or 'yarn', got 'dynamic'"),
    ("Qwen3Model", {"rope_parameters": dict(ROPES[4]), "head_dim": 2},
     r"config\.head_dim: expected an even number of at least 4, got 2"),
    ("MistralModel", {"sliding_window": 0}, r"config\.sliding_window: expected at least 1, got 0"),
    ("Qwen2Model", {"layer_types": ["chunked_attention"], "num_hidden_layers": 1},
     r"config\.layer_types: expected 1 of 'full_attention' and 'sliding_attention', got \['chun"),
    ("ModernBertModel", {"head_dim": 3}, r"config\.head_dim: expected None, got 3"),
    ("LlamaModel", {"rope_parameters": dict(ROPES[0]) | {"partial_rotary_factor": 0.5}},
     "partial_rotary_factor'.: expected 1.0, got 0.5"),
    ("LlamaModel", {"is_causal": False}, r"config\.is_causal: expected True, got False"),
    ("LlamaModel", {"head_dim": 3, "rope_parameters": dict(ROPES[0])},
     r"config\.head_dim: expected an even number of at least 2, got 3"),
    ("LongformerModel", {"is_decoder": True}, r"config\.is_decoder: expected False, got True"),
    ("MarianModel", {"encoder_layerdrop": 0.1}, r"encoder_layerdrop: expected 0\.0, got 0\.1"),
    ("MarianModel", {"decoder_layerdrop": 0.1}, r"decoder_layerdrop: expected 0\.0, got 0\.1"),
    ("MarianModel", {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": False},
     "config.share_encoder_decoder_embeddings: expected False .*, got True"),
    ("T5EncoderModel", {"is_decoder": True}, r"config\.is_decoder: expected False, got True"),
    ("ViTModel", {"pooler_act": "relu"}, r"config\.pooler_act: expected 'tanh', got 'relu'"),
    ("ViTModel", {"hidden_size": 12, "num_attention_heads": 3, "pooler_output_size": 7},
     r"config\.pooler_output_size: expected 12, got 7"),
    ("ViTModel", {"image_size": 7, "patch_size": 3},
     r"config\.image_size: expected multiples of config\.patch_size \(3, 3\), got \(7, 7\)"),
    ("ViTModel", {"head_dim": 3}, r"config\.head_dim: expected None, got 3"),
    ("ViTForImageClassification", {"num_labels": 0}, r"config\.num_labels: expected at least 1"),
    ("T5Model", {"relative_attention_num_buckets": 7},
     "relative_attention_num_buckets: expected an even number of at least 4, got 7"),
    ("T5Model", {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 16},
     "relative_attention_max_distance: expected more than 16, half the buckets, got 16"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "message"), REFUSED)
def test_what_we_cannot_do_is_refused_by_name(name, fields, message):
    source = make_source(name, 0, **fields)
    refused(message, from_transformers, source)


HEIGHTS = {
    "BertModel": ("num_hidden_layers", "encoder.layer"), "GPT2Model": ("n_layer", "h"),
    "LlamaModel": ("num_hidden_layers", "layers"),
    "MarianModel": ("decoder_layers", "decoder.layers"),
    "ReformerModel": ("attn_layers", "encoder.layers"),
    "T5Model": ("num_decoder_layers", "decoder.block"), "ViTModel": ("num_hidden_layers", "layers"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEIGHTS)
def test_a_stack_that_was_cut_is_refused_by_the_field_of_its_height(name: str) -> None:
    source = make_source(name, 0)
    field, path = HEIGHTS[name]
    blocks = source.get_submodule(path)
    height = len(blocks)
    del blocks[-1]
    message = rf"config\.{field}: expected the number of blocks of the model, {height - 1}, got"
    refused(message, from_transformers, source)


@pytest.mark.parametrize(("make", "field"), [
    (lambda: hf.LlamaModel(hf.LlamaConfig(num_hidden_layers=0, **TINY)), "num_hidden_layers"),
    (lambda: hf.T5Model(hf.T5Config(num_layers=0, d_model=6, vocab_size=7)), "num_layers"),
    (lambda: hf.T5Model(hf.T5Config(num_layers=1, num_decoder_layers=0, d_model=6, vocab_size=7)),
     "num_decoder_layers"),
    (lambda: hf.LongformerModel(hf.LongformerConfig(**SMALL | {"num_hidden_layers": 0},
                                                    attention_window=[])), "num_hidden_layers"),
    (lambda: hf.BigBirdModel(hf.BigBirdConfig(**SMALL | {"num_hidden_layers": 0})),
     "num_hidden_layers"),
])  # fmt: skip
def test_no_block_is_refused_where_only_blocks_tell_the_kind(make, field):
    refused(rf"config\.{field}: expected at least 1, got 0", from_transformers, make())


def test_a_field_of_a_newer_transformers_is_refused_unless_it_is_at_its_default() -> None:
    class Newer(hf.GPT2Config):
        def to_dict(self) -> dict[str, Any]:
            return super().to_dict() | {"gate": False}

    source = make_source("GPT2Model", 0)
    source.config.__class__ = Newer
    from_transformers(source)
    source.config.gate = True
    refused(r"config\.gate: expected False, .*, got True", from_transformers, source)


@torch.no_grad()
def nudge(weight: Tensor) -> None:
    weight[3] += 0.01


def test_other_classes_and_changed_models_are_refused() -> None:
    other = hf.BertForTokenClassification(hf.BertConfig(**SMALL))
    refused(r"expected one of .*BertModel.* got BertForTokenClass", from_transformers, other)
    refused("got Linear", from_transformers, nn.Linear(3, 5))

    class Mine(hf.GPT2LMHeadModel):
        """May compute anything."""

    source = make_source("GPT2LMHeadModel", 0)
    refused("got Mine", from_transformers, Mine(source.config))
    adapted = copy.deepcopy(source)
    adapted.transformer.h[0].attn.register_parameter("lora", nn.Parameter(torch.zeros(2)))
    refused(r"transformer\.h\.0\.attn\.lora: expected no such weight", from_transformers, adapted)
    mixed = copy.deepcopy(source)
    mixed.transformer.ln_f.half()
    refused("expected weights of one dtype", from_transformers, mixed)
    cut = make_source("LlamaModel", 0)
    cut.layers[0].mlp.up_proj.weight = nn.Parameter(cut.layers[0].mlp.up_proj.weight[1:])
    refused(r"layers\.0\.mlp\.up_proj\.weight: expected shape", from_transformers, cut)
    moved = make_source("MarianModel", 0)
    nudge(moved.encoder.embed_positions.weight)
    refused(r"encoder\.embed_positions\.weight: expected sines", from_transformers, moved)
    twice = make_source("BertForMaskedLM", 0, tie_word_embeddings=False)
    nudge(twice.cls.predictions.bias)
    refused(r"cls\.predictions\.bias: expected the values", from_transformers, twice)
    for longer in (
        hf.LongformerForMaskedLM(hf.LongformerConfig(**SMALL, attention_window=2)),
        hf.BigBirdForMaskedLM(hf.BigBirdConfig(**SMALL)),
    ):
        head = longer.lm_head if isinstance(longer, hf.LongformerForMaskedLM) else longer.cls
        head = getattr(head, "predictions", head)
        from_transformers(longer)
        nudge(head.bias)
        refused(r"\.bias: expected the values of .*\.decoder\.bias", from_transformers, longer)
    apart = make_source("T5Model", 0)
    apart.decoder.embed_tokens = copy.deepcopy(apart.shared)
    refused(r"embed_tokens\.weight: expected the shared table", from_transformers, apart)


def half(frequencies: Tensor) -> Tensor:
    return frequencies / 2


def test_models_that_no_configuration_describes_are_refused() -> None:
    sizes: dict[str, Any] = {"vocab_size": 29, "embed_dim": 18, "num_heads": 3, "num_layers": 2}
    halves = partial(RotaryPositions, interleaved=False)
    llama = partial(llama_like, **sizes, hidden_dim=13)
    refused(r"expected an EncoderModel, .*, got Linear", to_transformers, nn.Linear(3, 5))
    refused(r"position\.interleaved: expected False, got True", to_transformers, llama())
    halved = llama(position=halves(scaling=half))
    refused(r"position\.scaling: expected None or functools\.partial", to_transformers, halved)
    refused(r"position\.max_length: expected the number", to_transformers, vaswani_like(**sizes))
    changes: list[tuple[str, str, Any]] = [
        ("blocks.1.attention", "attn_fn", half),
        ("blocks.1.feed_forward", "activation", half),
        ("blocks.1", "norm_first", False),
        ("blocks.1.attention_norm", "eps", 0.5),
        ("embedding", "scale", 2.0),
        ("blocks.1.dropout", "p", 0.5),
    ]
    for path, name, value in changes:
        model = gpt2_like(**sizes, max_length=17)
        setattr(model.get_submodule(path), name, value)
        refused(rf"model\.{path}\.{name}: expected .*, got", to_transformers, model)
    model = gpt2_like(**sizes, max_length=17)
    model.blocks[1] = copy.deepcopy(model.blocks[1])
    model.blocks[1].extra = nn.Linear(2, 2)
    refused(r"blocks\.1\.extra: expected no such part", to_transformers, model)
    model = gpt2_like(**sizes, max_length=17)
    model.blocks[1].attention.query_projection = model.blocks[1].attention.key_projection
    refused("expected to share the weights", to_transformers, model)


def test_a_configuration_of_another_model_is_refused() -> None:
    source = make_source("LlamaForCausalLM", 0)
    made = from_transformers(source)
    other = copy.deepcopy(source.config)
    other.rms_norm_eps = 0.5
    refused(r"model\..*norm\.eps: expected 0\.5, got", to_transformers, made, config=other)
    wrong = hf.T5Config()
    refused("config: expected LlamaConfig, got T5Config", to_transformers, made, config=wrong)
    kept = copy.deepcopy(source.config)
    kept.eos_token_id = 7
    assert to_transformers(made, config=kept).config.eos_token_id == 7
    assert isinstance(to_transformers(made).config, hf.LlamaConfig)
    assert source.config is not to_transformers(made, config=source.config).config


def test_every_class_is_told_where_it_is_asked_for() -> None:
    known = {kind.__name__ for family in FAMILIES for kind in family.classes}
    apart = {"BigBirdModel", "BigBirdForMaskedLM"}  # compared in test_big_bird.py (long texts)
    assert known == set(MODELS) | apart
    told = re.findall(r"``(\w+)``", from_transformers.__doc__.partition("Args:")[2])
    assert set(told) == known
