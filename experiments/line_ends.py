"""How does the package's Shakespeare model know that a line of verse ends?

Of all that the model reads beyond a word, the last line break matters most: this experiment finds
the heads that attend to it and tests them. The edit replaces the space nearest to the middle of a
line by a line break, so that the line is half as long and no word changes; its control puts a
hyphen there. The model is one and is not trained here: a seed draws lines, windows and positions of
the validation text. ``python -m experiments.line_ends --sets native`` repeats the recorded runs.
"""

import re
from typing import Any

import torch
from torch import Tensor

from attn_course.data import Characters, load_language_model, load_shakespeare
from attn_course.nn import LanguageModel, capture, patched
from experiments.inside_shakespeare import bits, weights
from experiments.repeat import repeat

HEADS = 6  # of a layer
LINES, BEFORE = 48, 96  # lines that are edited, and characters up to their end
WINDOWS, LENGTH, WIDTH, BINS = 32, 256, 5, 11  # distances 0 to 4, 5 to 9, ... from the line break
POSITIONS, CONTEXTS = 150, (8, 16, 32, 64, 128, 256)


def edited(text: str, chosen: Tensor) -> tuple[list[str], list[str], list[str]]:
    """Ends of lines of verse; with a line break in the middle of the line; with a hyphen there."""
    lines = [
        (line.end(1), len(line[1]))
        for line in re.finditer(r"\n([A-Z][^\n]{34,54})\n[A-Z]", text)
        if line.end(1) >= BEFORE and " " in line[1][15:-12]
    ]
    found: tuple[list[str], ...] = ([], [], [])
    for number in chosen[chosen < len(lines)][:LINES].tolist():
        end, length = lines[number]
        clean = text[end - BEFORE : end]
        spaces = [place for place in range(15 - length, -12) if clean[place] == " "]
        middle = BEFORE + min(spaces, key=lambda place: abs(place + length // 2))
        for kind, letter in zip(found, " \n-", strict=True):
            kind.append(clean[:middle] + letter + clean[middle + 1 :])
    return found[0], found[1], found[2]


def distance(tokens: Tensor, newline: int) -> Tensor:
    """How many characters before each the last line break is (B, L); negative before the first."""
    place = torch.arange(tokens.shape[1]).expand_as(tokens)
    last = torch.where(tokens == newline, place, -1).cummax(1).values
    return torch.where(last >= 0, place - last, -1)


def by_distance(found: Tensor, behind: Tensor) -> list[Any]:
    """Means over ranges of ``WIDTH`` distances; ``found`` is (..., N), ``behind`` is (N)."""
    bins = [behind // WIDTH == number for number in range(BINS)]
    return torch.stack([found[..., one].mean(-1) for one in bins], -1).tolist()


def at_last_break(model: LanguageModel, tokens: Tensor, newline: int) -> list[Any]:
    """Weight of every head on the last line break, by its distance (heads, ranges)."""
    behind = distance(tokens, newline)
    place = (torch.arange(tokens.shape[1]) - behind).clamp(0, tokens.shape[1] - 1)
    spread = torch.cat([weights(model, some) for some in tokens.split(8)])
    there = spread.gather(3, place[:, None, :, None].expand(-1, spread.shape[1], -1, 1))[..., 0]
    return by_distance(there.transpose(0, 1).flatten(1), behind.flatten())


def shuffled(tokens: Tensor, characters: Characters, generator: torch.Generator) -> Tensor:
    """The letters of each window in another order; everything else stays."""
    letters = torch.tensor([one.isalpha() for one in characters.alphabet])[tokens]
    new = tokens.clone()
    for row, where in zip(new, letters, strict=True):
        found = row[where]
        row[where] = found[torch.randperm(len(found), generator=generator)]
    return new


@torch.no_grad()
def run(seed: int) -> dict[str, Any]:
    """Context, the edit, patches, ablations and weights for one draw of the texts."""
    model, characters = load_language_model()
    rest = load_shakespeare("val")
    text = rest[: len(rest) // 2]  # the other half is the test text
    ids, generator = characters.encode(text), torch.Generator().manual_seed(seed)
    newline, space = (int(characters.encode(one)) for one in "\n ")

    # bits of line breaks and of other characters, by the characters before them
    ends = torch.tensor([line.start() for line in re.finditer(r"(?<!\n)\n", text)])
    ends = ends[ends > LENGTH]
    others = torch.randperm(len(ids) - LENGTH, generator=generator) + LENGTH
    drawn = {
        "line breaks": ends[torch.randperm(len(ends), generator=generator)[:POSITIONS]],
        "other characters": others[ids[others] != newline][:POSITIONS],
    }
    context = {
        kind: [
            bits(
                model(ids[places[:, None] + torch.arange(-length, 1)])[:, -2:],
                ids[places[:, None] + torch.arange(-1, 1)],
            )
            .mean()
            .item()
            for length in CONTEXTS
        ]
        for kind, places in drawn.items()
    }

    # the edit, and what patches of single heads at the last character bring back
    order = torch.randperm(1000, generator=generator)
    clean, broken, hyphen = (
        torch.stack([characters.encode(one) for one in kind]) for kind in edited(text, order)
    )

    def lead(tokens: Tensor) -> float:
        """The logit of a line break minus that of a space after the last character."""
        last = model(tokens)[:, -1]
        return (last[:, newline] - last[:, space]).mean().item()

    def chance(tokens: Tensor) -> float:
        return model(tokens)[:, -1].softmax(-1)[:, newline].mean().item()

    low, high = lead(broken), lead(clean)

    def patches(source: Tensor, target: Tensor) -> list[float]:
        """The lead with each head at the last character as in the other text."""
        with capture(model, "blocks.*.attention.heads") as seen:
            model(source)
        found = []
        for name, kept in seen.items():
            for head in range(HEADS):

                def as_there(old: Tensor, head: int = head, kept: Tensor = kept) -> Tensor:
                    new = old.clone()
                    new[:, head, -1] = kept[:, head, -1]
                    return new

                with patched(model, name, as_there):
                    found.append(lead(target))
        return found

    brought = [(one - low) / (high - low) for one in patches(clean, broken)]
    taken = [(high - one) / (high - low) for one in patches(broken, clean)]

    # what is lost without each head, where a line ends and elsewhere
    starts = torch.randperm(len(ids) // LENGTH - 1, generator=generator)[: WINDOWS + 8]
    windows = ids[starts[:, None] * LENGTH + torch.arange(LENGTH)]
    windows, elsewhere = windows[:WINDOWS], windows[WINDOWS:]
    few = windows[:8]
    ending = (few[:, 1:] == newline) & (few[:, :-1] != newline)
    with capture(model, "blocks.*.attention.heads") as seen:
        model(elsewhere)
    means = {name: heads.mean((0, 2)) for name, heads in seen.items()}

    def without(layer: int, head: int, tokens: Tensor) -> Tensor:
        """Logits if one head returns its mean over other texts."""
        name = f"blocks.{layer}.attention.heads"

        def at_mean(old: Tensor) -> Tensor:
            new = old.clone()
            new[:, head] = means[name][head]
            return new

        with patched(model, name, at_mean):
            return model(tokens)

    whole = bits(model(few), few)
    lost = [bits(without(*divmod(one, HEADS), few), few) - whole for one in range(len(brought))]

    # where a word or a line ends: how likely the line does, with and without the head
    best = int(torch.tensor(brought).argmax())
    layer, head = divmod(best, HEADS)
    other = (head + 1 + int(torch.randint(HEADS - 1, (1,), generator=generator))) % HEADS
    behind = distance(windows, newline)[:, :-1]
    here = ((windows[:, 1:] == newline) | (windows[:, 1:] == space)) & (windows[:, :-1] != newline)

    def share(logits: Tensor) -> list[Any]:
        two = logits[:, :-1][..., [newline, space]].softmax(-1)[..., 0]
        return by_distance(two[here], behind[here])

    return {
        "contexts": list(CONTEXTS),
        "bits by context": context,
        "chance": {"clean": chance(clean), "edit": chance(broken), "hyphen": chance(hyphen)},
        "brought back": brought,
        "taken": taken,
        "lost at line ends": [one[ending].mean().item() for one in lost],
        "lost elsewhere": [one[~ending].mean().item() for one in lost],
        "distances": [WIDTH * (number + 0.5) - 0.5 for number in range(BINS)],
        "weight": at_last_break(model, windows, newline),
        "weight, letters shuffled": at_last_break(
            model, shuffled(windows, characters, generator), newline
        ),
        "head": best,
        "control": layer * HEADS + other,
        "line ends": {
            "text": by_distance((windows[:, 1:] == newline)[here].float(), behind[here]),
            "whole": share(model(windows)),
            "without": share(without(layer, head, windows)),
            "without another": share(without(layer, other, windows)),
        },
    }


if __name__ == "__main__":
    repeat(run, __file__)
