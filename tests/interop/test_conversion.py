"""Our modules compute what transformers computes, and go back without a changed bit."""

import copy
from functools import partial
from typing import Any

import interop_sources as sources
import pytest
import torch
from interop_sources import L, make_source, ours_of, padding, result
from mutation import mutant
from oracles import same_state
from refusals import refused
from tolerances import INTEROP
from torch import Tensor, nn
from torch.testing import assert_close
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

from attn_course import nn as ours
from attn_course.functional import linear_scaling
from attn_course.interop import _convert, from_transformers, to_transformers
from attn_course.interop._config import ACTIVATIONS
from attn_course.nn.encoder_model import MaskedWordHead
from attn_course.train import greedy_decode, start_from_prompt, start_from_source

SEEDS = range(3)
FAMILIES = (
    *("BertForMaskedLM", "GPT2Model", "LlamaModel", "LongformerForMaskedLM", "MarianModel"),
    *("ModernBertForMaskedLM", "Qwen3Model", "T5Model"),
    "ViTForImageClassification",
)
# left padding moves Marian's and Reformer's positions there, which cannot be told otherwise
SIDES = [
    (name, side)
    for name in sources.MODELS
    for side in (None, "right", "left")
    if side is None or not name.startswith("ViT")  # images have no padding
    if side != "left" or not name.startswith(("Marian", "Reformer"))
]


def blocks_of(model: nn.Module) -> list[nn.Module]:
    if isinstance(model, ours.LanguageModel):
        return list(model.blocks)
    return [*model.encoder.blocks, *getattr(getattr(model, "decoder", None), "blocks", ())]


@torch.no_grad()
def compare(source: Any, made: nn.Module, given: dict[str, Tensor], **tolerance: float) -> float:
    """Every hidden state and the result, at real tokens; the largest difference."""
    seen: list[Tensor] = []
    hooks = [
        # of two reversible streams, theirs shows the second
        block.register_forward_hook(
            lambda _, __, output: seen.append(output[1] if isinstance(output, tuple) else output)
        )
        for block in blocks_of(made)
    ]
    got = made(**ours_of(made, given))
    for hook in hooks:
        hook.remove()
    output = source(**given, output_hidden_states=True)
    first = output.get("encoder_hidden_states", output.get("hidden_states"))
    tokens = given.get("input_ids")  # images have none
    stacks = [(first, given.get("attention_mask"), None if tokens is None else tokens.shape[1])]
    if "decoder_input_ids" in given:
        ahead = given["decoder_input_ids"].shape[1]
        stacks.append((output.decoder_hidden_states, given.get("decoder_attention_mask"), ahead))
    worst, number = 0.0, 0
    for states, mask, length in stacks:
        here = seen[number : number + len(states) - 1]
        number += len(here)
        # the last of theirs has gone through the last norm, if there is one
        for mine, theirs in zip(here[:-1], states[1:-1], strict=True):
            # Reformer fills its texts up to whole chunks
            pair = mine[:, :length], theirs[:, :length]
            worst = max(worst, close(*pair, mask, **tolerance))
    assert number == len(seen)
    wanted = result(output)
    rows = given.get("decoder_attention_mask", given.get("attention_mask"))
    if "decoder_input_ids" in given and "decoder_attention_mask" not in given:
        rows = None
    return max(worst, close(got, wanted, rows if wanted.ndim == 3 else None, **tolerance))


def close(mine: Tensor, theirs: Tensor, mask: Tensor | None, **tolerance: float) -> float:
    if mask is not None:
        mine, theirs = mine[mask.bool()], theirs[mask.bool()]
    assert_close(mine, theirs, **(tolerance or INTEROP))
    return float((mine - theirs).abs().max())


def assert_same_state(one: nn.Module, other: nn.Module) -> None:
    assert list(one.state_dict()) == list(other.state_dict())
    same_state(one.state_dict(), other.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(("name", "side"), SIDES)
def test_hidden_states_and_results_are_those_of_the_source(name: str, side: str | None) -> None:
    for seed in SEEDS:
        source = make_source(name, seed)
        compare(source, from_transformers(source), sources.call(source, side))


def test_several_rounds_of_hashing_are_the_sources() -> None:
    """In float64: in float32 theirs loses the third digit where a token sees only itself."""
    for seed in range(6):
        layers = ["lsh", "local", "lsh"]
        source = make_source("ReformerModel", seed, num_hashes=3, attn_layers=layers).double()
        for side in (None, "right"):
            compare(source, from_transformers(source), sources.call(source, side))
    free = make_source("ReformerModel", 0, num_buckets=None, attn_layers=["lsh"])
    refused(r"config\.num_buckets: expected a number", from_transformers, free)


@pytest.mark.parametrize("name", sources.MODELS)
def test_a_round_trip_changes_no_bit(name: str) -> None:
    for seed in SEEDS:
        source = make_source(name, seed)
        made = from_transformers(source)
        for config in (None, source.config):
            back = to_transformers(made, config=config)
            assert type(back) is type(source)
            assert_same_state(source, back)
        assert_same_state(made, from_transformers(back))
        given = sources.call(source)
        with torch.no_grad():
            # what a configuration without the source's says is the same function too
            assert torch.equal(result(to_transformers(made)(**given)), result(source(**given)))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_activation_is_the_sources(name: str) -> None:
    fields = {"GPT2": "activation_function", "Marian": "activation_function"}
    fields |= {"ModernBert": "hidden_activation", "T5": "feed_forward_proj"}
    field = next((fields[kind] for kind in fields if name.startswith(kind)), "hidden_act")
    layers = {"num_layers": 1, "num_decoder_layers": 1} if name[0] == "T" else {}
    for activation in ACTIVATIONS:
        source = make_source(name, 0, **{field: activation}, **layers)
        made, given = from_transformers(source), sources.call(source)
        compare(source, made, given)
        with torch.no_grad():
            back = to_transformers(made)(**given)
            assert_close(result(back), result(source(**given)), **INTEROP)


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
def test_token_types_are_the_sources(name: str) -> None:
    source = make_source(name, 1, type_vocab_size=3)
    made = from_transformers(source)
    given = sources.call(source, "right")
    given["token_type_ids"] = torch.randint(3, given["input_ids"].shape)
    compare(source, made, given)


@pytest.mark.parametrize("name", ["BertModel", "ViTModel"])
def test_the_pooler_is_the_sources_and_may_be_missing(name: str) -> None:
    source = make_source(name, 1)
    made, given = from_transformers(source), sources.call(source, "right")
    with torch.no_grad():
        mine = made.pooler(made.hidden(**ours_of(made, given)))
        assert_close(mine, source(**given).pooler_output, **INTEROP)
    source.pooler = None
    bare = from_transformers(source)
    assert bare.pooler is None
    assert to_transformers(bare).pooler is None


@pytest.mark.parametrize("name", FAMILIES)
def test_large_weights_leave_the_rounding_of_the_source_and_nothing_else(name, monkeypatch):
    """In float64, with the norms of the source in float64 too, which takes them in float32."""

    def root_mean_square(self: Any, x: Tensor) -> Tensor:
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()

    for norm in (LlamaRMSNorm, Qwen3RMSNorm, T5LayerNorm):
        monkeypatch.setattr(norm, "forward", root_mean_square)
    source = make_source(name, 2, scale=5.0).double()
    # angles and sinusoids stay in float32 there, and Longformer's softmax
    single = name.startswith(("Llama", "Longformer", "Marian", "ModernBert", "Qwen3"))
    close = dict.fromkeys(("rtol", "atol"), 1e-4 if single else 1e-10)
    compare(source, from_transformers(source), sources.call(source), **close)


@pytest.mark.parametrize(
    "name",
    ["GPT2LMHeadModel", *(f"{k}ForCausalLM" for k in ("Llama", "Mistral", "Qwen2", "Qwen3"))],
)
@pytest.mark.parametrize("side", [None, "left"])
def test_greedy_tokens_with_a_cache_are_those_of_generate(name: str, side: str | None) -> None:
    written: set[int] = set()
    for seed in SEEDS:
        source = make_source(name, seed, scale=20.0)
        made = from_transformers(source)
        prompt, real = torch.randint(29, (3, L)), padding(L, side)
        mask = torch.ones_like(prompt) if real is None else real.long()
        options = {"max_new_tokens": 13, "do_sample": False, "pad_token_id": 0}
        wanted = source.generate(prompt, attention_mask=mask, **options)[:, L:]
        for cache in (made.new_cache(), made.new_cache(partial(ours.KVCache, max_length=20))):
            start = start_from_prompt(made, prompt, real, cache=cache)
            found = greedy_decode(start.step, start.state, bos=start.last, eos=None, max_length=13)
            assert torch.equal(found.tokens, wanted)
        written |= set(wanted.flatten().tolist())
    assert len(written) > 6  # they do not only repeat themselves


@pytest.mark.parametrize("name", ["T5Model", "T5ForConditionalGeneration", "T5EncoderModel"])
def test_large_t5_weights_are_rounded_as_transformers_rounds_them(name: str) -> None:
    """T5 does not scale its scores, so large weights make large sums, and float32 shows in them.

    transformers has two orders of operations, "eager" and its default, and what lies between them
    is how far rounding alone reaches. Ours is on most machines the default to the last bit.
    """
    for seed in SEEDS:
        source = make_source(name, seed, scale=10.0)
        made, given = from_transformers(source), sources.call(source, "right")
        with torch.no_grad():
            mine, paths = made(**ours_of(made, given)), {}
            for path in ("eager", "sdpa"):
                source.set_attn_implementation(path)
                paths[path] = result(source(**given))
        rows = given.get("decoder_attention_mask", given["attention_mask"]).bool()
        mine, paths = mine[rows], {path: found[rows] for path, found in paths.items()}
        largest = paths["sdpa"].abs().max().item()
        assert largest > 1
        own = (paths["eager"] - paths["sdpa"]).abs().max().item()
        rounding = 16 * torch.finfo(torch.float32).eps * largest
        for found in paths.values():
            assert (mine - found).abs().max().item() <= 2 * own + rounding


@pytest.mark.parametrize("name", ["MarianMTModel", "T5ForConditionalGeneration"])
def test_greedy_translations_with_a_cache_are_those_of_generate(name: str) -> None:
    # a cache of transformers' T5 has as many layers as the encoder, whatever the decoder has
    alike = {"num_layers": 2, "num_decoder_layers": 2} if name[0] == "T" else {}
    for seed in SEEDS:
        source = make_source(name, seed, scale=2.0, **alike)
        made = from_transformers(source)
        text, real = torch.randint(29, (3, L)), padding(L, "right")
        wanted = source.generate(
            text, attention_mask=real.long(), max_new_tokens=11, do_sample=False, num_beams=1,
            pad_token_id=0, decoder_start_token_id=0,
        )[:, 1:]  # fmt: skip
        start = start_from_source(made, text, real)
        found = greedy_decode(start.step, start.state, bos=0, eos=None, max_length=11)
        assert torch.equal(found.tokens, wanted)


def test_models_made_here_go_to_transformers() -> None:
    sizes: dict[str, Any] = {"vocab_size": 29, "embed_dim": 18, "num_heads": 3, "num_layers": 2}
    halves = partial(ours.RotaryPositions, base=300.0, interleaved=False)
    stretched = halves(scaling=partial(linear_scaling, factor=3.0))
    bert = partial(ours.bert_like, **sizes, max_length=17, hidden_dim=13)
    models = [
        ours.gpt2_like(**sizes, max_length=17), bert(), bert(dropout=0.1),
        ours.llama_like(**sizes, hidden_dim=13, num_kv_heads=1, position=halves(), tied=True),
        ours.llama_like(**sizes, hidden_dim=13, position=stretched),
    ]  # fmt: skip
    tied = bert()
    parts = {"embed_dim": 18, "tokens": tied.embedding.tokens}
    tied.head, tied.pooler = MaskedWordHead(**parts, norm=nn.LayerNorm(18)), None
    for model in models:
        source = to_transformers(model.eval())
        compare(source, model, sources.call(source, "right"))
        assert_same_state(model, from_transformers(source))
    message = r"model\.head\.norm: expected LayerNorm, got LayerNorm"  # torch's norm is not ours
    refused(message, to_transformers, tied)


def test_images_of_another_size_give_what_the_source_gives_with_interpolated_positions() -> None:
    for seed in SEEDS:
        source = make_source("ViTForImageClassification", seed, image_size=6, patch_size=2)
        made = from_transformers(source)
        images = torch.randn(3, source.config.num_channels, 8, 14)
        with torch.no_grad():
            wanted = source(images, interpolate_pos_encoding=True).logits
            assert_close(made(images), wanted, **INTEROP)


def test_vision_transformers_made_here_go_to_transformers() -> None:
    sizes: dict[str, Any] = {
        "image_size": (6, 10), "patch_size": (3, 2), "embed_dim": 18, "num_heads": 3,
        "num_layers": 2, "hidden_dim": 13,
    }  # fmt: skip
    for classes in (None, 7):
        model = ours.vit_like(**sizes, num_classes=classes).eval()
        source = to_transformers(model)
        compare(source, model, sources.call(source))
        assert_same_state(model, from_transformers(source))
    other = ours.vit_like(**(sizes | {"embed_dim": 12}), position="sinusoidal")
    refused(r"position: expected LearnedGridPositions, got Sinusoid", to_transformers, other)
    mean = ours.vit_like(**sizes, pool="mean")
    refused(r"embedding\.class_token|position|pool: expected", to_transformers, mean)


def test_random_numbers_of_the_caller_are_not_used_up() -> None:
    source = make_source("GPT2LMHeadModel", 0)
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    to_transformers(from_transformers(source))
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.parametrize("name", ["BertForMaskedLM", "MarianMTModel", "T5ForConditionalGeneration"])
def test_dtype_mode_and_sharing_are_kept_and_nothing_is_shared_with_the_source(name: str) -> None:
    source = make_source(name, 0).bfloat16().train()
    made = from_transformers(source)
    assert made.training
    assert {p.dtype for p in made.parameters()} == {torch.bfloat16}
    before = copy.deepcopy(made.state_dict())
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.zero_()
    assert all(torch.equal(before[key], value) for key, value in made.state_dict().items())
    assert to_transformers(made).dtype == torch.bfloat16


ROPE = sources.ROPES[2]
MUTANTS = {
    "BertModel": ("bert", {}, [
        ("self.{query,key,value}\n", "self.{key,query,value}\n"),
        ("eps=config.layer_norm_eps", "eps=1e-5"),
    ]),
    "BertForMaskedLM": ("bert", {"hidden_act": "tanh", "tie_word_embeddings": True}, [
        ("words_of(theirs, embedding)", "torch.nn.Embedding(*embedding.tokens.weight.shape)"),
        ("activation=gelu if isinstance(config, hf.LongformerConfig) else bend", "activation=gelu"),
    ]),
    "GPT2LMHeadModel": ("gpt2", {"scale_attn_by_inverse_layer_idx": True, "n_layer": 2}, [
        ("{q,k,v}", "{k,q,v}"),
        ("scale=scale, ", ""),
        ("return weight.T if", "return weight.T.T if"),
    ]),
    "LlamaForCausalLM": ("llama", {
        "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 6,
        "rope_parameters": ROPE, "rms_norm_eps": 1e-3,
    }, [
        ("self_attn.{q,k,v,o}_proj", "self_attn.{k,q,v,o}_proj"),
        ("eps=config.rms_norm_eps", "eps=1e-6"),
        ("norm_first=True", "norm_first=False"),
        ("mlp.{gate,up,down}_proj", "mlp.{up,gate,down}_proj"),
    ]),
    "LongformerForMaskedLM": ("bert", {
        "hidden_act": "tanh", "tie_word_embeddings": True, "layer_norm_eps": 1e-3,
        "num_hidden_layers": 2, "attention_window": [4, 8], "pad_token_id": 3,
    }, [
        ("self.{query,key,value}\n", "self.{key,query,value}\n"),
        ("self.{query,key,value}_global", "self.{key,query,value}_global"),
        ("self.{query,key,value}_global", "self.{query,key,value}"),
        ("window_size=window + 1", "window_size=window - 1"),
        ("in windows\n", "in windows[::-1]\n"),
        ("offset=_padding(config) + 1", "offset=_padding(config)"),
        ("eps=config.layer_norm_eps", "eps=1e-5"),
        ("activation=bend", "activation=gelu"),
    ]),
    "MarianMTModel": ("marian", {"scale_embedding": True}, [
        ("interleaved=False, max_length", "interleaved=True, max_length"),
        ("math.sqrt(size) if", "1.0 if"),
        ("self_attn.{q_proj,k_proj", "self_attn.{k_proj,q_proj"),
        ("logits_bias final_logits_bias", "logits_bias final"),
    ]),
    "MistralForCausalLM": ("llama", {"sliding_window": 3, "hidden_act": "tanh"}, [
        ("before=window - 1", "before=window"),
    ]),
    "ModernBertForMaskedLM": ("modern_bert", {
        "num_hidden_layers": 4, "global_attn_every_n_layers": 2, "local_attention": 4,
        "hidden_activation": "tanh", "classifier_activation": "relu", "norm_eps": 1e-3,
        "rope_parameters": {"full_attention": ROPE, "sliding_attention": sources.ROPES[1]},
    }, [
        ("{q,k,v}", "{k,q,v}"),
        ("{gate,up}\n", "{up,gate}\n"),
        ("before=half, after=half", "before=half"),
        ("local_attention // 2", "local_attention"),
        ("torch.nn.Identity() if number == 0 else norm()", "norm()"),
        ("config.rope_parameters[kind]", "config.rope_parameters[KINDS[0]]"),
        ('"classifier_activation", config.classifier_activation', '"x", "gelu"'),
        ("eps=config.norm_eps", "eps=1e-5"),
    ]),
    "Qwen2ForCausalLM": ("llama", {"num_hidden_layers": 2, "max_window_layers": 1,
                                   "use_sliding_window": True}, [
        ("bias=inner.q_proj.bias is not None", "bias=False"),
        ("in _windows(config)\n", "in _windows(config)[::-1]\n"),
        ("if kind == \"sliding_attention\" else None for", "if False else None for"),
    ]),
    "Qwen3ForCausalLM": ("llama", {"rope_parameters": sources.ROPES[5], "rms_norm_eps": 1e-3}, [
        ("self_attn.{q,k}_norm", "self_attn.{k,q}_norm"),
        ("scale=scale,", "scale=None,"),
        ("query_norm=norm(", "query_norm=torch.nn.Identity() or norm("),
    ]),
    "ReformerModel": ("reformer", {
        "attn_layers": ["lsh", "local"], "num_buckets": 4, "is_decoder": False, "hash_seed": 1,
        "axial_pos_embds": True, "layer_norm_eps": 1e-3,
    }, [
        ("hash_seed=config.hash_seed", "hash_seed=9"),
        ("attend_across_buckets=True", "attend_across_buckets=False"),
        ("chunks_before=config.lsh_num_chunks_before", "chunks_before=2"),
        ("chunk_size=config.local_attn_chunk_length", "chunk_size=5"),
        ("self_attention.{query_key,query,key,", "self_attention.{query_key,key,query,"),
        ("eps=config.layer_norm_eps", "eps=1e-5"),
    ]),
    "T5ForConditionalGeneration": ("t5", {
        "tie_word_embeddings": True, "feed_forward_proj": "gated-silu", "num_layers": 2,
        "relative_attention_num_buckets": 8,
    }, [
        ("scale=1.0,", "scale=None,"),
        ("size**-0.5 if", "1.0 if"),
        ("positions(bidirectional=True)", "positions(bidirectional=False)"),
        ("positions(bidirectional=False)", "positions(bidirectional=True)"),
        ("{wi_0,wi_1,wi,wo}", "{wi_1,wi_0,wi,wo}"),
        ("attend(None)", "attend(backwards)"),
    ]),
    "ViTForImageClassification": ("vit", {
        "hidden_act": "tanh", "patch_size": (3, 2), "image_size": (6, 10), "num_channels": 3,
        "layer_norm_eps": 1e-3, "num_attention_heads": 3, "hidden_size": 12,
    }, [
        ("{q,k,v,o}_proj", "{k,q,v,o}_proj"),
        ("norm_first=True", "norm_first=False"),
        ("eps=config.layer_norm_eps", "eps=1e-6"),
        ("activation=bend", "activation=activation('x', 'gelu')"),
        ("return theirs.flatten(1)", "return theirs.transpose(2, 3).flatten(1)"),
        ("return theirs.flatten(1)", "return theirs.flip(1).flatten(1)"),
        ("bias=config.qkv_bias", "bias=not config.qkv_bias"),
        ("{layernorm_before,layernorm_after}", "{layernorm_after,layernorm_before}"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, number) for name, (_, _, texts) in MUTANTS.items() for number in range(len(texts))],
)
def test_a_wrong_conversion_is_noticed(name, number, monkeypatch):
    module, fields, texts = MUTANTS[name]
    source = make_source(name, 0, scale=4.0, **fields)
    given = sources.call(source)
    compare(source, from_transformers(source), given, rtol=1e-4, atol=1e-4)
    several = "FAMILIES" if module in ("bert", "llama") else "FAMILY"
    wrong = mutant(f"attn_course.interop.{module}", several, *texts[number])
    monkeypatch.setattr(_convert, "FAMILIES", wrong if several == "FAMILIES" else (wrong,))
    with pytest.raises((AssertionError, ValueError)):
        compare(source, from_transformers(source), given, rtol=1e-4, atol=1e-4)
