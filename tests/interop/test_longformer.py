"""Longformer from Hugging Face and back: windows, global positions, padding, any length."""

import random
from typing import Any

import pytest
import torch
from tolerances import INTEROP
from torch.testing import assert_close
from transformers import LongformerConfig, LongformerForMaskedLM, LongformerModel

from attn_course.interop import from_transformers, to_transformers


def make(seed: int) -> Any:
    """A model with random settings; norms and biases are moved from 1 and 0."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    heads, layers = draw.choice([1, 3]), draw.choice([1, 2, 3])
    config = LongformerConfig(
        vocab_size=37,
        hidden_size=5 * heads,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=13,
        max_position_embeddings=120,
        # theirs fails at windows below 4
        attention_window=[draw.choice([4, 8, 16]) for _ in range(layers)],
        pad_token_id=draw.choice([0, 1, 3]),
        bos_token_id=None,
        eos_token_id=None,
    )
    model = (LongformerModel if seed % 2 else LongformerForMaskedLM)(config).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.mul_(3.0 if tensor.ndim == 2 else 1.0)
            if tensor.ndim == 1:
                tensor.add_(0.1 * torch.randn_like(tensor))
        if hasattr(model, "lm_head"):
            model.lm_head.bias.copy_(model.lm_head.decoder.bias)
    return model


@pytest.mark.parametrize("seed", range(6))
def test_results_are_those_of_the_source_at_any_length(seed: int) -> None:
    source = make(seed)
    made = from_transformers(source)
    length = (3, 11, 29, 64, 101, 17)[seed]
    tokens = torch.randint(37, (3, length))
    lengths = torch.tensor([length, max(1, length - 3), max(1, length // 2)])
    real = torch.arange(length) < lengths[:, None]
    chosen = torch.rand(3, length) < 0.15 if seed % 3 else None
    places = (real.long().cumsum(-1) - 1).clamp(min=0) + source.config.pad_token_id + 1
    with torch.no_grad():
        found = source(
            input_ids=tokens,
            attention_mask=real.long(),
            position_ids=places,
            global_attention_mask=None if chosen is None else chosen.long(),
        )
        wanted = found.logits if "logits" in found else found.last_hidden_state
        got = made(tokens, real, global_mask=chosen)
    assert_close(got[real], wanted[real], **INTEROP)
    if chosen is not None and chosen.any():
        assert not torch.allclose(made(tokens, real)[real], wanted[real], **INTEROP)


@pytest.mark.parametrize("seed", range(4))
def test_a_round_trip_changes_no_bit(seed: int) -> None:
    source = make(seed)
    made = from_transformers(source)
    for config in (None, source.config):
        back = to_transformers(made, config=config)
        assert type(back) is type(source)
        for name, tensor in back.state_dict().items():
            assert torch.equal(tensor, source.state_dict()[name]), name
