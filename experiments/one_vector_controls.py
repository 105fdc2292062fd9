"""Other explanations for the fall with length, one training run each.

The network of ``one_vector`` with exchanged sources, with only the first symbol to copy, with 128
units, and trained on words of at most 5 symbols: for as many steps, and for as many short words.
"""

from dataclasses import replace
from typing import Any

import torch

from attn_course.data import BOS, EOS, Batch
from experiments.one_vector import (
    LENGTHS,
    by_length,
    free_running,
    teacher_forced,
    train,
    words,
)
from experiments.repeat import repeat


def exchange_sources(batch: Batch) -> Batch:
    """Every row gets the source of another row."""
    order = torch.arange(len(batch)).roll(1)
    return replace(batch, source=batch.source[order], source_lengths=batch.source_lengths[order])


def only_first(batch: Batch) -> Batch:
    """The target is the first symbol of the source."""
    first = batch.source[:, :1]
    return replace(
        batch,
        target_in=torch.cat([torch.full_like(first, BOS), first], dim=1),
        target_out=torch.cat([first, torch.full_like(first, EOS)], dim=1),
    )


def run(seed: int) -> dict[str, Any]:
    """Share of right symbols by length, for each control."""
    blind = train(seed=seed, steps=150, change=exchange_sources)
    first = train("copy", seed=seed, steps=200, change=only_first)
    wide = train(seed=seed, hidden=128)
    short = train(seed=seed, longest=5)
    # the main run draws a quarter of its words from 1 to 5 symbols: 125 batches hold as many
    practised = train(seed=seed, longest=5, steps=125)
    return {
        "lengths": list(LENGTHS),
        "sources exchanged": by_length(blind, teacher_forced),
        "first symbol only": [
            teacher_forced(first, only_first(words("copy", n)))[:, 0].mean().item() for n in LENGTHS
        ],
        "128 units": by_length(wide, free_running),
        "words of at most 5": by_length(short, free_running),
        "as many short words": by_length(practised, free_running),
    }


if __name__ == "__main__":
    repeat(run, __file__)
