"""A checkpoint on disk becomes the model that was saved, with no network; errors name the file."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from interop_sources import MODELS, call, make_source, ours_of, result
from refusals import refused
from safetensors.torch import load_file, save_file
from tolerances import INTEROP
from torch.testing import assert_close

from attn_course.interop import from_transformers, load

NAMES = sorted(set(MODELS) - {"ReformerModel"})  # its num_buckets is set by the first call


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket, "socket", refuse)


def saved(name: str, folder: Path, **options: Any) -> Any:
    source = make_source(name, 1)
    source.save_pretrained(folder, **options)
    return source


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_is_loaded_in_one_line(name: str, tmp_path: Path) -> None:
    source = saved(name, tmp_path)
    for path in (tmp_path, str(tmp_path / "model.safetensors")):
        made = load(path)
        assert not made.training
        given = call(source, "right")
        with torch.no_grad():
            wanted, got = result(source(**given)), made(**ours_of(made, given))
        mask = given.get("decoder_attention_mask", given.get("attention_mask"))
        rows = slice(None) if mask is None or wanted.ndim < 3 else mask.bool()
        assert_close(got[rows], wanted[rows], **INTEROP)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shards_and_dtypes_are_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    source = make_source("Qwen3ForCausalLM", 1).to(dtype)
    source.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    made, wanted = load(tmp_path), from_transformers(source)
    assert {p.dtype for p in made.parameters()} == {dtype}
    for one, other in zip(made.parameters(), wanted.parameters(), strict=True):
        assert torch.equal(one, other)
    shard = min(tmp_path.glob("*.safetensors"))
    shard.unlink()
    refused(rf"expected \['{shard.name}'\], which is not there", load, tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    refused(r"index\.json: expected this file beside several shards", load, tmp_path)


def test_what_cannot_be_loaded_is_refused_by_its_file(tmp_path: Path) -> None:
    refused(r"config\.json: expected this file, which is not there", load, tmp_path)
    saved("GPT2LMHeadModel", tmp_path)
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    fields, tensors = json.loads(config.read_text()), load_file(weights)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"architectures": ["GPTNeoXForCausalLM"]}, "architectures of one of .*GPT2LMHeadModel"),
        ({"architectures": None}, "architectures of one of .*, got None"),
        ({"model_type": "bert"}, "expected model_type 'gpt2' for GPT2LMHeadModel, got 'bert'"),
        ({"add_cross_attention": True}, "got missing keys"),
        ({"n_layer": 7}, r"got missing keys \['transformer\.h\."),
        ({"n_positions": 7}, "got mismatched keys"),
        ({"activation_function": "relu2"}, r"config\.activation_function: expected one of"),
    ]
    for change, message in changes:
        config.write_text(json.dumps(fields | change))
        refused(message, load, tmp_path)
    config.write_text(json.dumps(fields))
    save_file(tensors | {"transformer.lora": torch.zeros(2)}, weights)
    refused(r"got unexpected keys \['transformer\.lora'\]", load, tmp_path)
    weights.write_bytes(b"no tensors")
    refused(r"model\.safetensors: expected a safetensors file, got", load, tmp_path)
    weights.unlink()
    refused(r"expected \*\.safetensors, which is not there", load, tmp_path)
    config.write_text("{")
    refused(r"config\.json: expected JSON, got", load, tmp_path)
