"""The last exercise of chapter 11 runs a model of the package, and says what the package says."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from attn_course.exercises.source import read_exercise
from trial import Trial
from attn_course.nn import (
    FeedForward,
    MultiHeadAttention,
    RMSNorm,
    RotaryPositions,
    TokenEmbedding,
    decoder_only,
)

ROOT = Path(__file__).resolve().parents[2]


def parameters_of(model: Any) -> dict[str, Any]:
    """As the page of the chapter has it."""
    source = (ROOT / "book" / "chapters" / "11_language_model.md").read_text(encoding="utf-8")
    start = source.index("def parameters_of(model):")
    names: dict[str, Any] = {}
    exec(source[start : source.index("\n\n\n", start)], names)
    found: dict[str, Any] = names["parameters_of"](model)
    return found


def test_the_learners_parts_write_what_the_package_would_write() -> None:
    torch.manual_seed(0)
    model = decoder_only(
        embedding=TokenEmbedding(vocab_size=13, embed_dim=32, std=0.2),
        num_layers=2,
        attention=partial(
            MultiHeadAttention, embed_dim=32, num_heads=4, bias=False, position=RotaryPositions()
        ),
        feed_forward=partial(FeedForward, embed_dim=32, hidden_dim=40, bias=False),
        norm=partial(RMSNorm, embed_dim=32, eps=1e-6),
    )
    names = Trial(
        read_exercise(ROOT / "solutions" / "11_language_model" / "exercise.py"), seed=0
    ).names
    prompt, uniforms = torch.tensor([3, 1, 4, 1, 5]), torch.rand(9)
    words, logits = names["generate"](
        parameters_of(model), prompt, uniforms, names["cached_attention"], names["sample_next"]
    )
    with torch.no_grad():
        whole = model(torch.cat([prompt, words])[None])[0]
    torch.testing.assert_close(logits, whole[len(prompt) - 1 : -1], atol=1e-5, rtol=1e-4)
    drawn = [names["sample_next"](row, u) for row, u in zip(logits, uniforms.tolist(), strict=True)]
    assert words.tolist() == drawn
