"""Trained on 64 characters, read on 512: what each way of telling positions does with longer texts.

Chapter 08 shows this code and plots its runs: figure 1 of Press and others (2022) in small. Five
language models of two layers differ in nothing but how they tell where a character stands. Each is
trained on windows of 64 characters at two learning rates; the rate that does best on other windows
of 64 characters counts, so that no longer text takes part in any choice. Bits per character are
measured on the same last 64 characters of each window, so that the texts are the same whatever
the length: only what may be seen before them differs.
``python -m experiments.length_extrapolation`` repeats the recorded runs.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attn_course.data import load_shakespeare
from attn_course.nn import (
    AlibiPositions,
    FeedForward,
    LanguageModel,
    LayerNorm,
    MultiHeadAttention,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
    TokenEmbedding,
    decoder_only,
)
from experiments.repeat import repeat

TRAINED, LENGTHS = 64, (64, 128, 256, 512)
EMBED, HEADS, LAYERS, BATCH, STEPS = 64, 4, 2, 12, 250
RATES = (0.006, 0.012)
WINDOWS = 40

# what is added to the embedding, and what goes into every attention
POSITIONS: dict[str, tuple[Callable[[], nn.Module | None], Callable[[], nn.Module | None]]] = {
    "ALiBi": (lambda: None, lambda: AlibiPositions(num_heads=HEADS)),
    "T5 bias": (lambda: None, lambda: RelativePositions(num_heads=HEADS, bidirectional=False)),
    "none": (lambda: None, lambda: None),
    "RoPE": (lambda: None, RotaryPositions),
    "sinusoidal": (lambda: SinusoidalPositions(embed_dim=EMBED), lambda: None),
}


def model_with(way: str, words: int) -> LanguageModel:
    """A causal model of two layers that tells positions in one way."""
    added, inside = POSITIONS[way]
    shared = inside()  # one for all layers, as in T5
    return decoder_only(
        embedding=TokenEmbedding(vocab_size=words, embed_dim=EMBED, position=added(), std=1.0),
        tied=False,
        num_layers=LAYERS,
        attention=lambda: MultiHeadAttention(embed_dim=EMBED, num_heads=HEADS, position=shared),
        feed_forward=lambda: FeedForward(embed_dim=EMBED, hidden_dim=4 * EMBED),
        norm=lambda: LayerNorm(embed_dim=EMBED),
    )


def train(way: str, text: Tensor, words: int, rate: float, seed: int) -> LanguageModel:
    """By Adam with warm-up and decay, on windows drawn anew for each step."""
    torch.manual_seed(seed)
    model = model_with(way, words)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    plan = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1, (step + 1) / 30) * (1 - 0.9 * step / STEPS)
    )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        start = torch.randint(len(text) - TRAINED, (BATCH, 1), generator=generator)
        window = text[start + torch.arange(TRAINED + 1)]
        loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        plan.step()
    return model.eval()


@torch.no_grad()
def bits(model: LanguageModel, text: Tensor, ends: Tensor, length: int) -> float:
    """Bits per character of the last 64 of ``length`` characters, for windows that end the same."""
    window = text[ends[:, None] + torch.arange(-length, 1)]
    logits = model(window[:, :-1])[:, -TRAINED:]
    loss = F.cross_entropy(logits.flatten(0, 1), window[:, -TRAINED:].flatten())
    return loss.item() / math.log(2)


def run(seed: int) -> dict[str, Any]:
    """Bits per character at each length, for each way: at the rate that is best at 64."""
    characters = sorted(set(load_shakespeare()))
    ids = {character: i for i, character in enumerate(characters)}
    text, held = (
        torch.tensor([ids[c] for c in load_shakespeare(part)]) for part in ("train", "val")
    )
    half = len(held) // 2
    generator = torch.Generator().manual_seed(seed + 1)
    choose = torch.randint(max(LENGTHS), half, (4 * WINDOWS,), generator=generator)
    test = half + torch.randint(max(LENGTHS), half - 1, (WINDOWS,), generator=generator)
    result: dict[str, Any] = {"lengths": list(LENGTHS)}
    for way in POSITIONS:
        models = [train(way, text, len(characters), rate, seed) for rate in RATES]
        found = [bits(model, held, choose, TRAINED) for model in models]
        best = min(range(len(RATES)), key=found.__getitem__)
        result[way] = {
            "bits": [round(bits(models[best], held, test, length), 4) for length in LENGTHS],
            "rate": RATES[best],
        }
    return result


if __name__ == "__main__":
    repeat(run, __file__)
