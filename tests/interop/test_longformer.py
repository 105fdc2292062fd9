"""Longformer from Hugging Face on longer texts: several windows of them, or less than one."""

import pytest
import torch
from interop_sources import make_source
from tolerances import INTEROP
from torch.testing import assert_close

from attn_course.interop import from_transformers


@pytest.mark.parametrize("seed", range(6))
def test_results_are_those_of_the_source_at_any_length(seed: int) -> None:
    name = ("LongformerForMaskedLM", "LongformerModel")[seed % 2]
    source = make_source(name, seed, scale=3.0, max_position_embeddings=120)
    made = from_transformers(source)
    length = (3, 11, 29, 64, 101, 17)[seed]
    tokens = torch.randint(source.config.vocab_size, (3, length))
    lengths = torch.tensor([length, max(1, length - 3), max(1, length // 2)])
    real = torch.arange(length) < lengths[:, None]
    chosen = torch.rand(3, length) < 0.15 if seed % 3 else None
    places = (real.long().cumsum(-1) - 1).clamp(min=0) + source.config.pad_token_id + 1
    with torch.no_grad():
        found = source(
            input_ids=tokens, attention_mask=real.long(), position_ids=places,
            global_attention_mask=None if chosen is None else chosen.long(),
        )  # fmt: skip
        wanted = found.logits if "logits" in found else found.last_hidden_state
        got = made(tokens, real, global_mask=chosen)
    assert_close(got[real], wanted[real], **INTEROP)
    if chosen is not None and chosen.any():
        assert not torch.allclose(made(tokens, real)[real], wanted[real], **INTEROP)
