"""Characters or byte pairs: which tokens does a small model of Shakespeare's plays write better in?

Both sides are the Transformer of ``experiments.language_contest`` with three blocks of width 96 and
get the same processor time: a step on 16 windows of 128 byte pairs (about 290 characters) costs
1.27 times as much as one on 8 windows of 256 characters. Each takes the best of three rates by a
trial of an eighth of the steps. All numbers are of the validation text; the test text is not read.
``python -m experiments.pairs_or_characters --seeds 0 1 --sets native`` repeats the recorded runs.
"""

import math
import re
from functools import partial
from itertools import islice, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attn_course.data import BytePairs, Characters, load_shakespeare
from attn_course.train import fit, stream, warmup_cosine
from experiments.language_contest import MODELS, loss, optimizer_of, texts
from experiments.language_model.corpus import Windows
from experiments.language_model.measure import bits_per_character
from experiments.repeat import repeat

RATES, TEMPERATURE, SAMPLES, SAMPLE = (5e-3, 1e-2, 2e-2), 0.7, 5, 400


class Side(NamedTuple):
    """Which model, and as many steps as fit into the processor time."""

    model: str
    length: int
    batch_size: int
    steps: int


SIDES = {
    "characters": Side("transformer 3 x 96", 256, 8, 2300),
    "byte pairs": Side("pairs 3 x 96", 128, 16, 1810),
}


def trained(side: Side, vocab_size: int, text: Tensor, rate: float, steps: int, seed: int) -> Any:
    """A model after so many steps."""
    torch.manual_seed(seed)
    model: nn.Module = MODELS[side.model](vocab_size)
    windows = Windows(text, length=side.length, batch_size=side.batch_size, seed=seed)
    fit(
        model, windows, loss, optimizer=optimizer_of(model, rate), steps=steps, clip_norm=1.0,
        schedule=warmup_cosine(peak=rate, warmup=steps // 10, steps=steps), seed=seed,
        progress=False,
    )  # fmt: skip
    return model.eval()


def bits(model: nn.Module, ids: Tensor, side: Side, characters: int) -> float:
    """Bits per character, each token with half a window to a whole one before it."""
    found = bits_per_character(model, ids, length=side.length, device=torch.device("cpu"))
    return float(found["bits"] * found["characters"] / characters)


def written(
    model: Any, tokenizer: BytePairs | Characters, side: Side, known: tuple[set[str], set[Any]]
) -> list[dict[str, Any]]:
    """Texts, and the shares of words and of pairs of adjacent words that the training text has."""
    found = []
    for seed in range(SAMPLES):
        drawn = stream(
            model, tokenizer.encode("\n"), context=side.length, temperature=TEMPERATURE, seed=seed
        )
        text = tokenizer.decode(torch.tensor(list(islice(drawn, SAMPLE))))[:SAMPLE]
        words = re.findall("[a-z]+", text.lower())[:-1]  # the last one may be cut off
        couples = list(pairwise(words))
        found.append(
            {
                "text": text,
                "known words": sum(word in known[0] for word in words) / len(words),
                "known couples": sum(couple in known[1] for couple in couples) / len(couples),
            }
        )
    return found


def run(seed: int) -> dict[str, Any]:
    """Both sides: bits per character by rate and in the end, and five texts of 400 characters."""
    spoken = re.findall("[a-z]+", load_shakespeare("train").lower())
    known, found = (set(spoken), set(pairwise(spoken))), {}
    for name, side in SIDES.items():
        tokenizer, text, validation, _ = texts(side.model)
        characters = len(tokenizer.decode(validation[1:]))
        train = partial(trained, side, len(tokenizer), text, seed=seed)
        trials = [
            bits(train(rate=rate, steps=side.steps // 8), validation, side, characters)
            for rate in RATES
        ]
        model = train(rate=RATES[trials.index(min(trials))], steps=side.steps)
        samples = written(model, tokenizer, side, known)
        found[name] = {
            "trials": trials,
            "bits": bits(model, validation, side, characters),
            "characters a token": characters / (len(validation) - 1),
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "known words": math.fsum(one["known words"] for one in samples) / SAMPLES,
            "known couples": math.fsum(one["known couples"] for one in samples) / SAMPLES,
            "text": samples[0]["text"],
        }
    return found


if __name__ == "__main__":
    repeat(run, __file__)
