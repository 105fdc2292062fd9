"""The spectrum of attention weights at Linformer's size, of a trained model beside controls.

Chapter 15 calls :func:`run` and plots what it returns. Linformer's figure 1 shows cumulative
singular values of RoBERTa: 512 positions, no causal mask, the first 128 values. Here a small
encoder learns for a moment to fill in masked characters of the Python manual, 64 characters at a
time and then 512. Its weights on held-out text of 512 characters are compared with
controls: *random scores*, independent and of variance 1; *random vectors*, scores that are products
of independent queries and keys as wide as a head; *untrained*, the same model before training; and
*rows shuffled*, the trained weights with the keys of each row in another random order. The last
control keeps how sharp every row is and loses where it points.
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attn_course.analysis import cumulative_spectrum
from attn_course.data import load_python_manual
from attn_course.nn import (
    FeedForward,
    LanguageModel,
    LayerNorm,
    MultiHeadAttention,
    RotaryPositions,
    TokenEmbedding,
    decoder_only,
)
from experiments.language_model.corpus import make_corpus
from experiments.language_model.measure import spread

LENGTH, FIRST, SIZE, HEADS, LAYERS = 512, 128, 64, 4, 2
RATE, MASKED = 0.006, 0.15
PHASES = ((64, 16, 300), (LENGTH, 2, 12))  # length, texts of a batch, steps
TEXTS = 2  # whose weights are decomposed
POINTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def build(alphabet: int) -> LanguageModel:
    """Pre-norm blocks with rotary positions; one more id stands for a masked character."""
    return decoder_only(
        embedding=TokenEmbedding(vocab_size=alphabet + 1, embed_dim=SIZE),
        num_layers=LAYERS,
        attention=lambda: MultiHeadAttention(
            embed_dim=SIZE, num_heads=HEADS, position=RotaryPositions(base=1000.0)
        ),
        norm=lambda: LayerNorm(embed_dim=SIZE),
        feed_forward=lambda: FeedForward(embed_dim=SIZE, hidden_dim=4 * SIZE),
        tied=False,
    )


def look(
    model: LanguageModel, ids: Int[Tensor, "B L"], *, weights: bool = False
) -> tuple[Float[Tensor, "B L V"], list[Tensor]]:
    """Logits when every position sees every other one, and the weights of each layer if asked."""
    x, tables = model.embedding(ids), []
    parts: Any = model
    for block in parts.blocks:
        if weights:
            tables.append(block.attention.weights(block.attention_norm(x)))  # (B, H, L, L)
        x = block(x)
    return parts.output_projection(parts.norm(x)), tables


def hide(
    text: Int[Tensor, "B L"], mask_id: int, generator: torch.Generator
) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]:
    """The text with some characters masked, and targets: -100 where nothing is masked."""
    hidden = torch.rand(text.shape, generator=generator) < MASKED
    return text.masked_fill(hidden, mask_id), text.masked_fill(~hidden, -100)


def shuffled_rows(
    weights: Float[Tensor, "*B L L"], generator: torch.Generator
) -> Float[Tensor, "*B L L"]:
    """Every row with its keys in a random order of its own."""
    order = torch.rand(weights.shape, generator=generator).argsort(-1)
    return weights.gather(-1, order)


@torch.no_grad()
def run(seed: int) -> dict[str, Any]:
    """Cumulative spectra of each head and of the controls, and bits per masked character."""
    corpus = make_corpus(load_python_manual("train"), load_python_manual("val"))
    mask_id = len(corpus.alphabet)
    held_out = spread(corpus.val, length=LENGTH, number=32)[:, :LENGTH]
    masked, targets = hide(held_out, mask_id, torch.Generator().manual_seed(1000))
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = build(len(corpus.alphabet))

    def score() -> float:
        nats = F.cross_entropy(look(model, masked)[0].flatten(0, 1), targets.flatten())
        return round(nats.item() / math.log(2), 3)

    def tables() -> Float[Tensor, "heads B L L"]:
        found = look(model, held_out[:TEXTS], weights=True)[1]
        return torch.cat([each.transpose(0, 1) for each in found])

    def spectra(weights: Float[Tensor, "*B L L"]) -> list[list[float]]:
        """For each head the shares of the first POINTS values, mean over texts."""
        shares = cumulative_spectrum(weights.double()).mean(-2)
        return [[round(row[k - 1].item(), 4) for k in POINTS] for row in shares]

    untrained = spectra(tables()[:, :1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    bits = {"untrained": score()}
    with torch.enable_grad():
        steps = [(length, batch) for length, batch, count in PHASES for _ in range(count)]
        for step, (length, batch) in enumerate(steps):
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1, (step + 1) / 30) * (1 - 0.95 * step / len(steps))
            starts = torch.randint(len(corpus.train) - length, (batch, 1), generator=generator)
            tokens, wanted = hide(corpus.train[starts + torch.arange(length)], mask_id, generator)
            logits = look(model, tokens)[0]
            loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    counts = torch.bincount(corpus.train, minlength=mask_id).double()
    frequent = (counts / counts.sum()).clamp(min=1e-9).log2()
    bits |= {
        "trained": score(),
        "by frequency": round(-frequent[targets[targets >= 0]].mean().item(), 3),
    }
    weights = tables()
    width = SIZE // HEADS
    scores = torch.randn(TEXTS, LENGTH, LENGTH, generator=generator)
    query, key = torch.randn(2, TEXTS, LENGTH, width, generator=generator)
    products = query @ key.mT / width**0.5
    return {
        "points": list(POINTS),
        "bits": bits,
        "trained": spectra(weights),
        "rows shuffled": spectra(shuffled_rows(weights, generator)),
        "untrained": untrained,
        "random scores": spectra(scores.softmax(-1)[None]),
        "random vectors": spectra(products.softmax(-1)[None]),
        "keys": [round(k, 1) for k in keys_used(weights).tolist()],
    }


def keys_used(weights: Float[Tensor, "heads B L L"]) -> Float[Tensor, " heads"]:
    """The exponential of a row's entropy, mean over rows and texts: how many keys share it."""
    entropy: Tensor = torch.special.entr(weights.double()).sum(-1)
    return entropy.exp().mean((-2, -1))
