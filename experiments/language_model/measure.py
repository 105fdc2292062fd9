"""What a trained model is asked: bits per character, by context, and samples."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attn_course.train import generate, temperature
from experiments.language_model.corpus import Corpus

PROMPTS = ("ROMEO:\n", "To be, or not to be", "The king ")
TEMPERATURES = (0.2, 0.5, 0.8, 1.0, 1.3)


def next_character_loss(model: nn.Module, windows: Int[Tensor, "B L1"]) -> Float[Tensor, ""]:
    """Mean negative log-probability of every character but the first, in nats."""
    logits = model(windows[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def predicted(windows: Int[Tensor, "B L1"]) -> int:
    """How many characters the loss is a mean over."""
    return windows[:, 1:].numel()


@torch.no_grad()
def _nats(
    model: nn.Module, windows: Int[Tensor, "N L1"], device: torch.device, batch_size: int
) -> Float[Tensor, "N L"]:
    """The negative log-probability of every character but the first."""
    found = []
    for part in windows.split(batch_size):
        part = part.to(device)
        logits = model(part[:, :-1])
        found.append(
            nn.functional.cross_entropy(
                logits.transpose(1, 2).double(), part[:, 1:], reduction="none"
            ).cpu()
        )
    return torch.cat(found)


def spread(ids: Int[Tensor, " N"], *, length: int, number: int) -> Int[Tensor, "n L1"]:
    """Windows at equal distances all over a text, the same at every call."""
    last = len(ids) - length - 1
    starts = torch.linspace(0, last, min(number, last + 1)).long().unique()
    return ids[starts.unsqueeze(1) + torch.arange(length + 1)]


def quick_bits(
    model: nn.Module,
    ids: Int[Tensor, " N"],
    *,
    length: int,
    number: int,
    device: torch.device,
    batch_size: int = 16,
) -> float:
    """Bits per character on windows all over a text, from no context to a whole window of it."""
    windows = spread(ids, length=length, number=number)
    return _nats(model, windows, device, batch_size).mean().item() / math.log(2)


def _overlapping(ids: Tensor, length: int) -> Iterator[tuple[Tensor, int]]:
    """Windows that begin half a window apart, and from which place on each one counts."""
    half = length // 2
    for start in range(0, len(ids) - 1, half):
        window = ids[start : start + length + 1]
        fresh = 0 if start == 0 else length - half
        if len(window) - 1 <= fresh:
            return
        yield window, fresh


def bits_per_character(
    model: nn.Module,
    ids: Int[Tensor, " N"],
    *,
    length: int,
    device: torch.device,
    batch_size: int = 64,
) -> dict[str, Any]:
    """Bits per character of a whole text, each predicted once, from half a window at least.

    Args:
        model: From ids to logits.
        ids: The text; all of it but the first character is predicted.
        length: Characters that a prediction may look back at, the last one included.
        device: Where the model is.
        batch_size: Windows at a time.

    Returns:
        ``bits``, the ``characters`` that were predicted, and ``by_context``: bits where the model
        saw so many characters (first and last number of a range), from windows of ``length``.
    """
    total, number = 0.0, 0
    sums, counts = torch.zeros(length, dtype=torch.float64), torch.zeros(length)
    windows = list(_overlapping(ids, length))
    whole = [each for each in windows if len(each[0]) == length + 1]
    parts = [
        (torch.stack([window for window, _ in whole[i : i + batch_size]]),
         [fresh for _, fresh in whole[i : i + batch_size]])
        for i in range(0, len(whole), batch_size)
    ]  # fmt: skip
    parts += [(window[None], [fresh]) for window, fresh in windows[len(whole) :]]
    for batch, starts in parts:
        nats = _nats(model, batch, device, batch_size)
        for row, fresh in zip(nats, starts, strict=True):
            total += row[fresh:].sum().item()
            number += len(row) - fresh
        sums[: nats.shape[1]] += nats.sum(0)
        counts[: nats.shape[1]] += len(nats)
    by_context, first = [], 1
    while first <= length:
        last = min(2 * first - 1, length)
        here = slice(first - 1, last)
        if counts[here].sum() > 0:
            nats_here = (sums[here].sum() / counts[here].sum()).item()
            bits = round(nats_here / math.log(2), 4)
            by_context.append({"characters": [first, last], "bits": bits})
        first = last + 1
    return {
        "bits": round(total / number / math.log(2), 4),
        "characters": number,
        "by_context": by_context,
    }


def samples(
    model: Any, corpus: Corpus, *, device: torch.device, length: int, seed: int
) -> list[dict[str, Any]]:
    """What the model writes after each prompt at each temperature."""
    written = []
    for prompt in PROMPTS:
        if set(prompt) - set(corpus.alphabet):
            continue  # a corpus without these letters, in tests
        ids = corpus.encode(prompt).unsqueeze(0).to(device)
        for value in TEMPERATURES:
            drawn = generate(
                model,
                ids,
                max_length=length,
                filters=(functools.partial(temperature, value=value),),
                generator=torch.Generator(device).manual_seed(seed),
            )
            text = corpus.decode(drawn.tokens[0])
            written.append({"prompt": prompt, "temperature": value, "text": text})
    return written
