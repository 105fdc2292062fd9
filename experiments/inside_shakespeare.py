"""What the heads of the package's Shakespeare model do: scores, ablation, copies, a logit lens.

Chapter 12 shows this code and plots its runs. The model is one and is not trained here: a seed
draws random letters, windows of the validation text, pairs of names and random sets of heads. No
test text is read. ``python -m experiments.inside_shakespeare`` repeats the runs.
"""

import math
import random
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from attn_course.analysis import induction_score, previous_token_score
from attn_course.data import Characters, load_language_model, load_shakespeare
from attn_course.nn import LanguageModel, capture, patched
from experiments.repeat import repeat

LENGTH, HEADS, TOP, RANDOM = 256, 6, 3, 20
LETTERS, PERIODS, TEXTS = "abcdefghijklmnopqrstuvwxyz", 4, 16
WINDOWS, PAIRS, TESTED = 8, 80, 12  # windows of text; pairs of names; those with heads ablated
PASSAGE, CONTEXTS, TARGETS, NEAR = 128, (2, 4, 8, 16, 32, 64, 128), 256, 16
NAME = re.compile(r"(?<=\n\n)[A-Z][A-Za-z ]*:(?=\n)")


def validation() -> str:
    """The half of the held-out text that is not the test text."""
    rest = load_shakespeare("val")
    return rest[: len(rest) // 2]


def letters(characters: Characters, generator: Generator) -> Tensor:
    """All letters in a random order, the same order four times over (TEXTS, 104)."""
    ids = characters.encode(LETTERS)
    order = torch.rand(TEXTS, len(ids), generator=generator).argsort(-1)
    return ids[order].repeat(1, PERIODS)


@torch.no_grad()
def surprise(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Bits of every token but the first (B, L - 1)."""
    logits = model(tokens[:, :-1]).transpose(1, 2)
    return F.cross_entropy(logits, tokens[:, 1:], reduction="none") / math.log(2)


@torch.no_grad()
def scores(model: LanguageModel, tokens: Tensor) -> tuple[list[float], list[float]]:
    """Previous-token and induction score of every head, layer by layer."""
    with capture(model, "blocks.*.attention.weights") as seen:
        model(tokens)
    before = [previous_token_score(w).mean(0) for w in seen.values()]
    found = [induction_score(w, tokens).mean(0) for w in seen.values()]
    return torch.cat(before).tolist(), torch.cat(found).tolist()


@torch.no_grad()
def means(model: LanguageModel, tokens: Tensor) -> list[Tensor]:
    """The mean output of every head over windows and positions, (H, 1, E) for each layer."""
    with capture(model, "blocks.*.attention.heads") as seen:
        model(tokens)
    return [heads.mean((0, 2))[:, None] for heads in seen.values()]


def at_mean(model: LanguageModel, heads: Sequence[int], mean: list[Tensor]) -> ExitStack:
    """A context in which these heads, counted over all layers, return their mean."""
    stack = ExitStack()
    for layer in sorted({head // HEADS for head in heads}):
        here = torch.tensor([head % HEADS for head in heads if head // HEADS == layer])

        def replace(found: Tensor, here: Tensor = here, value: Tensor = mean[layer]) -> Tensor:
            return found.index_copy(1, here, value[here].expand_as(found[:, here]))

        stack.enter_context(patched(model, f"blocks.{layer}.attention.heads", replace))
    return stack


def top(values: Sequence[float]) -> list[int]:
    """The heads with the highest values, the highest first."""
    return sorted(range(len(values)), key=lambda head: -values[head])[:TOP]


def other_heads(draw: random.Random, heads: Sequence[int], total: int) -> list[int]:
    """As many heads of the same layers, none of them in the set."""
    found: list[int] = []
    for layer, count in Counter(head // HEADS for head in heads).items():
        free = [h for h in range(total) if h // HEADS == layer and h not in heads]
        found += draw.sample(free, count)
    return found


def name_pairs(text: str, draw: random.Random) -> list[tuple[str, str, int]]:
    """Windows that end with a speaker's name that has occurred before in the window.

    The second text of a pair differs in the earlier occurrences only: another name of the play
    stands there, of the same length. With them goes the length of the name, colon included.
    """
    names, pairs = sorted(set(NAME.findall(text))), []
    for match in NAME.finditer(text):
        name, start = match[0], match.end() - LENGTH - 1
        context = text[max(start, 0) : match.start()]
        plain = name[:-1]
        free = [n for n in names if len(n) == len(name) and n != name and n[:-1] not in context]
        told = [m for m in NAME.finditer(context) if m[0] == name]
        # elsewhere the name would stand in the second text too
        if start < 0 or not told or not free or context.count(plain) > len(told):
            continue
        swapped = context.replace(name, draw.choice(free))
        pairs.append((context + name, swapped + name, len(name)))
    return pairs


class Names:
    """Pairs as tokens, and what the name costs in each."""

    def __init__(self, pairs: Sequence[tuple[str, str, int]], characters: Characters) -> None:
        texts = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        self.tokens = torch.stack([characters.encode(text) for text in texts])
        sizes = torch.tensor([pair[2] for pair in pairs] * 2)
        self.in_name = torch.arange(LENGTH) >= LENGTH - sizes[:, None]

    def bits(self, model: LanguageModel) -> dict[str, float]:
        """Mean bits of a whole name that has occurred, that has not, and the difference."""
        bits = (surprise(model, self.tokens) * self.in_name).sum(-1).unflatten(0, (2, -1)).mean(-1)
        known, unknown = bits.tolist()
        return {"in the context": known, "not": unknown, "gain": unknown - known}


def lens(model: LanguageModel, tokens: Tensor) -> list[float]:
    """Bits per character if the last norm and output are applied after each layer."""
    assert model.norm is not None
    assert model.output_projection is not None
    found, targets = [], tokens[:, 1:].flatten()
    with capture(model, "embedding", "blocks.?") as seen, torch.no_grad():
        model(tokens[:, :-1])
        for stream in seen.values():
            logits = model.output_projection(model.norm(stream)).flatten(0, 1)
            found.append(F.cross_entropy(logits, targets).item() / math.log(2))
    return found


def told_twice(model: LanguageModel, ids: Tensor, generator: Generator) -> dict[str, float]:
    """Bits per character of a passage after itself and after another one.

    The first quarter of the passage is not counted: there the model has to find out where it is.
    """
    places = torch.randperm(len(ids) // PASSAGE, generator=generator)[:TEXTS]
    passages = ids[places[:, None] * PASSAGE + torch.arange(PASSAGE)]
    found = {}
    for name, first in (("itself", passages), ("another", passages.roll(1, 0))):
        bits = surprise(model, torch.cat([first, passages], 1))
        found[name] = bits[:, PASSAGE + PASSAGE // 4 :].mean().item()
    return found


def by_context(model: LanguageModel, ids: Tensor, generator: Generator) -> list[float]:
    """Bits of the same characters if the model reads only the last few before each."""
    places = torch.randint(CONTEXTS[-1], len(ids), (TARGETS, 1), generator=generator)
    texts = [ids[places + torch.arange(-length, 1)] for length in CONTEXTS]
    return [surprise(model, tokens)[:, -1].mean().item() for tokens in texts]


@torch.no_grad()
def by_distance(model: LanguageModel, tokens: Tensor) -> list[list[float]]:
    """Mean weight of every head on the characters 0 to 15 positions back."""
    with capture(model, "blocks.*.attention.weights") as seen:
        model(tokens)
    weights = torch.cat(list(seen.values()), 1)
    back = [weights.diagonal(-d, -2, -1)[..., NEAR - d :].mean((0, -1)) for d in range(NEAR)]
    return torch.stack(back, -1).tolist()


def run(seed: int) -> dict[str, Any]:
    """Everything above for one draw of letters, windows, pairs and random sets of heads."""
    model, characters = load_language_model()
    text, draw = validation(), random.Random(seed)
    generator = Generator().manual_seed(seed)
    tokens = letters(characters, generator)
    before, found = scores(model, tokens)
    periods = surprise(model, tokens).mean(0)
    first = len(LETTERS) - 1  # characters of the first period that are predicted

    ids = characters.encode(text)
    starts = torch.randperm(len(ids) // (LENGTH + 1), generator=generator)[: 2 * WINDOWS]
    windows = ids[starts[:, None] * (LENGTH + 1) + torch.arange(LENGTH + 1)]
    windows, apart = windows[:WINDOWS], windows[WINDOWS:]
    mean = means(model, apart)
    pairs = name_pairs(text, draw)
    found_pairs = len(pairs)
    pairs = draw.sample(pairs, PAIRS)
    few = Names(pairs[:TESTED], characters)

    def bits(heads: Sequence[int]) -> float:
        with at_mean(model, heads, mean):
            return surprise(model, windows).mean().item()

    def both(heads: Sequence[int]) -> dict[str, Any]:
        with at_mean(model, heads, mean):
            return {"heads": list(heads), "bits": bits([]), "name": few.bits(model)}

    total = range(len(before))
    previous, induction = top(before), top(found)
    return {
        "previous": before,
        "induction": found,
        "letters": {"first": periods[:first].mean().item(), "later": periods[first:].mean().item()},
        "passage": told_twice(model, ids, generator),
        "context": by_context(model, ids, generator),
        "by distance": by_distance(model, windows),
        "bits": bits([]),
        "single": [bits([head]) for head in total],
        "without": {"previous": both(previous), "induction": both(induction), "none": both([])},
        "random": [both(draw.sample(total, TOP)) for _ in range(RANDOM)],
        "random, same layers": {
            "previous": [bits(other_heads(draw, previous, len(total))) for _ in range(RANDOM)],
            "induction": [bits(other_heads(draw, induction, len(total))) for _ in range(RANDOM)],
        },
        "names": {"found": found_pairs, **Names(pairs, characters).bits(model)},
        "lens": lens(model, windows),
    }


if __name__ == "__main__":
    repeat(run, __file__)
