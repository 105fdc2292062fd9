"""The instruments of chapter 12 on the package's Shakespeare model: scores, ablation, a logit lens.

The model is one and is not trained here: a seed draws random letters, and passages and windows of
the validation text. ``python -m experiments.inside_shakespeare`` repeats the runs.
"""

import math
from string import ascii_lowercase
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.analysis import induction_score, previous_token_score
from attn_course.data import load_language_model, load_shakespeare
from attn_course.nn import LanguageModel, capture, patched
from experiments.repeat import repeat

LENGTH, WINDOWS = 256, 8  # windows of text; as many others give the mean output of each head
TEXTS, PERIODS, PASSAGE = 16, 4, 128


def bits(logits: Tensor, tokens: Tensor) -> Tensor:
    """Bits of every token but the first (B, L - 1)."""
    found = F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    return found / math.log(2)


def weights(model: LanguageModel, tokens: Tensor) -> Tensor:
    """The weights of every head, layer by layer (B, N * H, L, L)."""
    with capture(model, "blocks.*.attention.weights") as seen:
        model(tokens)
    return torch.cat(list(seen.values()), 1)


def without_each_head(model: LanguageModel, tokens: Tensor, others: Tensor) -> list[float]:
    """Bits per character if one head returns its mean over other texts, head by head."""
    with capture(model, "blocks.*.attention.heads") as seen:
        model(others)
    found = []
    for name, heads in seen.items():
        for head, mean in enumerate(heads.mean((0, 2))):
            here = torch.tensor(head)

            def at_mean(old: Tensor, here: Tensor = here, mean: Tensor = mean) -> Tensor:
                return old.index_copy(1, here, mean.expand_as(old[:, :1]))

            with patched(model, name, at_mean):
                found.append(bits(model(tokens), tokens).mean().item())
    return found


def lens(model: LanguageModel, tokens: Tensor) -> list[float]:
    """Bits per character if the last norm and output are applied after each layer."""
    assert model.norm is not None
    assert model.output_projection is not None
    with capture(model, "embedding", "blocks.?") as seen:
        model(tokens)
    streams = [model.output_projection(model.norm(stream)) for stream in seen.values()]
    return [bits(logits, tokens).mean().item() for logits in streams]


@torch.no_grad()
def run(seed: int) -> dict[str, Any]:
    """Everything above for one draw of letters, passages and windows."""
    model, characters = load_language_model()
    rest = load_shakespeare("val")
    ids = characters.encode(rest[: len(rest) // 2])  # the other half is the test text
    generator = torch.Generator().manual_seed(seed)

    def pieces(length: int, number: int) -> Tensor:
        starts = torch.randperm(len(ids) // length, generator=generator)[:number]
        return ids[starts[:, None] * length + torch.arange(length)]

    # all letters in a random order, the same order four times
    alphabet = characters.encode(ascii_lowercase)
    order = torch.rand(TEXTS, len(alphabet), generator=generator).argsort(-1)
    letters = alphabet[order].repeat(1, PERIODS)
    spread = weights(model, letters)
    even = torch.ones_like(spread[:, :1]).tril()
    periods = bits(model(letters), letters).mean(0)
    first = len(alphabet) - 1  # characters of the first period that are predicted

    passages = pieces(PASSAGE, TEXTS)
    after = [torch.cat([first, passages], 1) for first in (passages, passages.roll(1, 0))]
    # a quarter is not counted: there the model has to find out that the passage is a new one
    counted = [bits(model(text), text)[:, PASSAGE + PASSAGE // 4 :].mean() for text in after]

    windows, others = pieces(LENGTH, 2 * WINDOWS).chunk(2)
    return {
        "previous": previous_token_score(weights(model, windows)).mean(0).tolist(),
        "induction": induction_score(spread, letters).mean(0).tolist(),
        "induction of even weights": induction_score(even / even.sum(-1, True), letters)
        .mean()
        .item(),
        "letters, first period": periods[:first].mean().item(),
        "letters, later": periods[first:].mean().item(),
        "passage after itself": counted[0].item(),
        "passage after another": counted[1].item(),
        "bits": bits(model(windows), windows).mean().item(),
        "without": without_each_head(model, windows, others),
        "lens": lens(model, windows),
    }


if __name__ == "__main__":
    repeat(run, __file__)
