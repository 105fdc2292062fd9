"""BigBird from Hugging Face and back: blocks, padding, short and long texts."""

import random
from typing import Any

import pytest
import torch
from interop_sources import moved
from oracles import same_state
from refusals import refused
from tolerances import INTEROP
from torch.testing import assert_close
from transformers import BigBirdConfig, BigBirdForMaskedLM, BigBirdModel

from attn_course.interop import from_transformers, to_transformers


def make(seed: int, kind: str = "block_sparse") -> Any:
    """A model with random settings."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    heads = draw.choice([1, 3])
    config = BigBirdConfig(
        vocab_size=37, hidden_size=5 * heads, num_hidden_layers=draw.choice([1, 2, 3]),
        num_attention_heads=heads, intermediate_size=13, max_position_embeddings=150,
        attention_type=kind, block_size=draw.choice([2, 3, 7]),
        num_random_blocks=draw.choice([1, 2, 3]),  # theirs fails at 0
        use_bias=draw.choice([True, False]), rescale_embeddings=draw.choice([True, False]),
        hidden_act=draw.choice(["gelu_new", "relu"]),
        tie_word_embeddings=draw.choice([True, False]), pad_token_id=0, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    return moved((BigBirdModel if seed % 2 else BigBirdForMaskedLM)(config).eval(), scale=3.0)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("length", [5, 78, 113, 126])
@pytest.mark.parametrize("kind", ["block_sparse", "original_full"])
def test_results_are_those_of_the_source_at_any_length(seed: int, length: int, kind: str) -> None:
    source = make(seed, kind)
    made = from_transformers(source)
    tokens = torch.randint(37, (3, length))
    lengths = torch.tensor([length, max(1, length - 3), max(1, length // 2)])
    real = torch.arange(length) < lengths[:, None]
    with torch.no_grad():
        found = source(input_ids=tokens, attention_mask=real.long())
        wanted = found.logits if "logits" in found else found.last_hidden_state
        got = made(tokens, real)
    assert_close(got[real], wanted[real], **INTEROP)
    blocks = source.config.block_size * (5 + 2 * source.config.num_random_blocks)
    mode = "original_full" if length <= blocks else kind
    assert (source if seed % 2 else source.bert).attention_type == mode


def test_a_model_that_has_changed_its_attention_is_refused() -> None:
    source = make(1)
    source(input_ids=torch.randint(37, (1, 4)))
    refused(r"attention_type: expected 'block_sparse', got", from_transformers, source)


@pytest.mark.parametrize("seed", range(4))
def test_a_round_trip_changes_no_bit_and_full_attention_alone_may_come_back_as_bert(seed: int):
    for kind, told in (("block_sparse", True), ("block_sparse", False), ("original_full", True)):
        source = make(seed, kind)
        made, config = from_transformers(source), source.config
        back = to_transformers(made, config=config if told else None)
        assert type(back) is type(source)
        same_state(back.state_dict(), source.state_dict(), rtol=0, atol=0)
    told = to_transformers(made)
    plain = seed % 2 and config.use_bias and not config.rescale_embeddings
    assert type(told).__name__.startswith("Bert" if plain else "BigBird")
    tokens = torch.randint(37, (3, 11))
    with torch.no_grad():
        assert_close(told.eval()(tokens)[0], source(tokens)[0], **INTEROP)
