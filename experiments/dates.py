"""Dates in words to ISO 8601, character by character, with a small Transformer.

Chapter 10 shows the numbers. The model and its training are those of
``experiments.transformer_tasks``; the dates come from ``attn_course.data``, ten formats and two
centuries. ``python -m experiments.dates`` repeats the recorded runs.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attn_course.data import PAD, Batch, date_normalisation
from attn_course.data.dates import DATE_SOURCE_VOCABULARY, DATE_TARGET_VOCABULARY
from attn_course.train import sequence_accuracy
from experiments.repeat import repeat
from experiments.transformer_tasks import train, write

OTHER = len(DATE_SOURCE_VOCABULARY) - 4  # the target's ids follow the source's
CHARACTERS = OTHER + len(DATE_TARGET_VOCABULARY)
STEPS, TESTED = 1000, 1000
PARTS = {"year": slice(0, 4), "month": slice(5, 7), "day": slice(8, 10)}


def dates(count: int, generator: torch.Generator) -> Batch:
    """Dates, with one vocabulary for both sides."""
    batch = date_normalisation(count, generator)

    def moved(ids: Tensor) -> Tensor:
        return torch.where(ids > 3, ids + OTHER, ids)

    return replace(batch, target_in=moved(batch.target_in), target_out=moved(batch.target_out))


def run(seed: int) -> dict[str, Any]:
    """Train on 32,000 dates; share of new ones that are written without a mistake."""
    model, history = train(
        dates, seed=seed, words=CHARACTERS, size=48, steps=STEPS, rate=6e-3, warmup=100
    )
    test = dates(TESTED, torch.Generator().manual_seed(99))
    wrote = write(model, test)
    right = wrote == test.target_out
    # control: the sources of other rows
    order = torch.randperm(TESTED, generator=torch.Generator().manual_seed(98))
    lengths = test.source_lengths[order]
    other = replace(test, source=test.source[order], source_lengths=lengths)
    exchanged = sequence_accuracy(write(model, other), test.target_out)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "right": sequence_accuracy(wrote, test.target_out),
        "characters right": right[test.target_out != PAD].double().mean().item(),
        "parts right": {
            name: right[:, part].all(1).double().mean().item() for name, part in PARTS.items()
        },
        "sources exchanged": exchanged,
        "loss": round(sum(history.loss[-50:]) / 50, 5),
    }


if __name__ == "__main__":
    repeat(run, __file__)
