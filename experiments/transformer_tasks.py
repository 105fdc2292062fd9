"""A small Transformer: words backwards by length, and what each part of its training is worth.

Chapter 10 shows this code and plots its runs. Reversal is the task of chapters 02 and 03: ten
symbols, words of up to 12 in training, and longer ones in the test. The parts are taken out one by
one on the toy translation of chapter 03, whose word alignment is known.
``python -m experiments.transformer_tasks`` repeats the recorded runs.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.data import BOS, EOS, PAD, Batch, BatchStream, reversal, translation
from attn_course.data.toy_translation import (
    TRANSLATION_SOURCE_VOCABULARY,
    TRANSLATION_TARGET_VOCABULARY,
)
from attn_course.nn import Transformer, capture, vaswani_like
from attn_course.train import (
    alignment_error_rate,
    fit,
    label_smoothing_loss,
    sequence_accuracy,
    token_loss,
    warmup_cosine,
)
from experiments.repeat import repeat

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 13, 14, 16, 18, 21, 24)
LONGEST, STEPS = 12, 1000  # of the reversal, in training
OTHER_WORDS = len(TRANSLATION_SOURCE_VOCABULARY) - 4  # the target's ids follow the source's
WORDS = OTHER_WORDS + len(TRANSLATION_TARGET_VOCABULARY)
VARIANTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "no causal mask": {"causal": False},
    "targets not shifted": {"shifted": False},
    "label smoothing 0.1": {"smoothing": 0.1},
}
RATES = (0.003, 0.006, 0.012)


def sentences(count: int, generator: torch.Generator) -> Batch:
    """Sentences of the toy language, with one vocabulary for both sides as in the paper."""
    batch = translation(count, generator)

    def moved(ids: Tensor) -> Tensor:
        return torch.where(ids > 3, ids + OTHER_WORDS, ids)

    return Batch(
        source=batch.source,
        source_lengths=batch.source_lengths,
        target_in=moved(batch.target_in),
        target_out=moved(batch.target_out),
        alignment=batch.alignment,
    )


def logits_of(model: Transformer, batch: Batch, target_in: Tensor, *, causal: bool) -> Tensor:
    """The logits after every token of ``target_in``; ``causal=False`` takes the mask away."""
    memory = model.encode(batch.source, batch.source_mask)
    if causal:
        return model.decode(target_in, memory, batch.source_mask)
    real = (target_in != PAD)[:, None, None]
    seen = model.decoder(
        model.target_embedding(target_in),
        memory,
        attn_mask=real,
        memory_mask=batch.source_mask[:, None, None],
    )
    return model.logits(seen)


@torch.no_grad()
def write(model: Transformer, batch: Batch, *, causal: bool = True) -> Tensor:
    """Greedy decoding as it is defined: the whole prefix goes in for every new token."""
    written = torch.full((len(batch), 1), BOS)
    for _ in range(batch.target_out.shape[1]):
        token = logits_of(model, batch, written, causal=causal)[:, -1].argmax(-1)
        ended = (written == EOS).any(dim=1) | (written[:, -1] == PAD)
        written = torch.cat([written, token.masked_fill(ended, PAD)[:, None]], dim=1)
    return written[:, 1:]


def train(
    sample: Any,
    *,
    seed: int,
    words: int,
    size: int,
    steps: int,
    rate: float,
    warmup: int,
    layers: int = 1,
    norm_first: bool = False,
    causal: bool = True,
    shifted: bool = True,
    smoothing: float = 0.0,
) -> Any:
    """A Transformer of the seed and its history; the last three arguments spoil or change it."""
    torch.manual_seed(seed)
    model = vaswani_like(
        vocab_size=words,
        embed_dim=size,
        num_heads=4,
        num_layers=layers,
        hidden_dim=2 * size,
        norm_first=norm_first,
        dropout=0.0,
    )

    def loss(model: Any, batch: Batch) -> Tensor:
        given = batch.target_in if shifted else batch.target_out
        logits = logits_of(model, batch, given, causal=causal)
        if smoothing:
            return label_smoothing_loss(logits, batch.target_out, smoothing=smoothing)
        return token_loss(logits, batch.target_out)

    history = fit(
        model,
        BatchStream(sample, batch_size=32, seed=seed),
        loss,
        optimizer=torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9),
        steps=steps,
        schedule=warmup_cosine(peak=rate, warmup=warmup, steps=steps),
        clip_norm=1.0,
        progress=False,
    )
    return model.eval(), history


def by_length(seed: int) -> dict[str, Any]:
    """Share of right symbols, greedy, for words of each length."""
    sample = partial(reversal, num_symbols=10, max_length=LONGEST)
    model, _ = train(sample, seed=seed, words=14, size=48, steps=STEPS, rate=5e-3, warmup=100)
    right = []
    for n in LENGTHS:  # the words of experiments.attention_length
        draw = torch.Generator().manual_seed(99)
        batch = reversal(256, draw, num_symbols=10, min_length=n, max_length=n)
        wrote = F.pad(write(model, batch), (0, n))[:, :n]
        right.append(round((wrote == batch.target_out[:, :n]).double().mean().item(), 4))
    return {"right": right, "parameters": sum(p.numel() for p in model.parameters())}


@torch.no_grad()
def measure(model: Any, history: Any, batch: Batch, change: dict[str, Any]) -> dict[str, Any]:
    """Losses of every ten steps; on the test loss, how sure it is, sentences written right."""
    causal, shifted = change.get("causal", True), change.get("shifted", True)
    given = batch.target_in if shifted else batch.target_out
    logits = logits_of(model, batch, given, causal=causal)
    sure = logits.softmax(-1).amax(-1)[batch.target_mask].mean()
    return {
        "losses": [
            round(sum(history.loss[i : i + 10]) / 10, 4) for i in range(0, len(history), 10)
        ],
        "loss": token_loss(logits, batch.target_out).item(),
        "largest probability": sure.item(),
        "sentences right": sequence_accuracy(write(model, batch, causal=causal), batch.target_out),
    }


@torch.no_grad()
def looks(model: Any, batch: Batch) -> dict[str, Any]:
    """Links of the cross-attention that differ from the known alignment, each head and the mean."""
    with capture(model, "decoder.blocks.0.cross_attention.weights") as seen:
        logits_of(model, batch, batch.target_in, causal=True)
    weights = seen["decoder.blocks.0.cross_attention.weights"]  # (B, H, L, S)
    assert batch.alignment is not None
    rates = [alignment_error_rate(head, batch.alignment) for head in weights.unbind(1)]
    return {"mean": alignment_error_rate(weights.mean(1), batch.alignment), "heads": rates}


def run(seed: int) -> dict[str, Any]:
    """Reversal by length, the variants of the training, and rates with and without warm-up."""
    test = sentences(300, torch.Generator().manual_seed(99))
    recipe: dict[str, Any] = {"seed": seed, "words": WORDS, "size": 32}
    result: dict[str, Any] = {"lengths": list(LENGTHS), "reversal": by_length(seed)}
    for name, change in VARIANTS.items():
        model, history = train(sentences, **recipe, steps=300, rate=6e-3, warmup=60, **change)
        result[name] = measure(model, history, test, change)
        if name == "whole":
            result["looks"] = looks(model, test)
    for name, warmup in (("warm-up", 30), ("no warm-up", 0)):
        result[name] = []
        for rate in RATES:
            model, history = train(
                sentences, **recipe, steps=120, rate=rate, warmup=warmup, layers=2
            )
            result[name].append(measure(model, history, test, {}))
    return result


if __name__ == "__main__":
    repeat(run, __file__)
