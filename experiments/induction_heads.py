"""Induction heads: do they form, does a single layer do without, and how many heads can go?

Chapter 12 shows this code and plots its runs. A text is one period of different symbols, told again
and again; the period is drawn anew for each text, so that no fixed distance helps. What comes next
can be known from the second time on. ``python -m experiments.induction_heads`` repeats the runs.
"""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from attn_course.analysis import induction_score, previous_token_score
from attn_course.nn import (
    LanguageModel,
    LayerNorm,
    MultiHeadAttention,
    RotaryPositions,
    TokenEmbedding,
    capture,
    decoder_only,
    patched,
    without_heads,
)
from experiments.repeat import repeat

SYMBOLS, LENGTH, SHORT, LONG = 24, 40, 4, 24
EMBED, HEAD_DIM, BATCH, EVERY = 32, 32, 32, 20
RATE, RATES = 0.02, (0.005, 0.01, 0.02)


def repeated(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Texts (count, LENGTH), and which of their next symbols can be known (count, LENGTH - 1)."""
    period = torch.randint(SHORT, LONG + 1, (count, 1), generator=generator)
    symbols = torch.rand(count, SYMBOLS, generator=generator).argsort(-1)
    tokens = symbols.gather(1, torch.arange(LENGTH) % period)
    return tokens, torch.arange(LENGTH - 1) >= period


def unchanged(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """The easy task: symbols that come twice in a row, so that every second one is known."""
    tokens = torch.randint(SYMBOLS, (count, LENGTH // 2), generator=generator)
    known = (torch.arange(LENGTH - 1) % 2 == 0).expand(count, -1)
    return tokens.repeat_interleave(2, dim=1), known


def build(layers: int, heads: int) -> LanguageModel:
    """Attention and nothing else: no feed-forward parts (Elhage et al., 2021)."""
    return decoder_only(
        embedding=TokenEmbedding(vocab_size=SYMBOLS, embed_dim=EMBED),
        num_layers=layers,
        attention=lambda: MultiHeadAttention(
            embed_dim=EMBED, num_heads=heads, head_dim=HEAD_DIM, position=RotaryPositions(base=100)
        ),
        norm=lambda: LayerNorm(embed_dim=EMBED),
        tied=False,
    )


@torch.no_grad()
def accuracy(model: LanguageModel, task: Any, seed: int, count: int = 200) -> float:
    """Share of the symbols that can be known, and are."""
    tokens, known = task(count, Generator().manual_seed(seed))
    return (model(tokens)[:, :-1].argmax(-1) == tokens[:, 1:])[known].double().mean().item()


@torch.no_grad()
def scores(model: LanguageModel, seed: int) -> tuple[list[float], list[float]]:
    """Previous-token and induction score of every head, layer by layer, on texts told again."""
    tokens, _ = repeated(64, Generator().manual_seed(seed))
    with capture(model, "blocks.*.attention.weights") as seen:
        model(tokens)
    before = [previous_token_score(w).mean(0) for w in seen.values()]
    found = [induction_score(w, tokens).mean(0) for w in seen.values()]
    return torch.cat(before).tolist(), torch.cat(found).tolist()


def train(
    task: Any, *, layers: int, heads: int, rate: float, steps: int, seed: int, watch: bool = False
) -> tuple[LanguageModel, dict[str, list[Any]]]:
    """Adam with warm-up and decay; ``watch``: accuracy and scores along the way."""
    torch.manual_seed(seed)
    model, generator = build(layers, heads), Generator().manual_seed(seed + 1)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.99))
    curve: dict[str, list[Any]] = {"step": [], "accuracy": [], "previous": [], "induction": []}
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, step / 30) * (1 - 0.9 * step / steps)
        tokens, _ = task(BATCH, generator)
        logits = model(tokens)[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if watch and step % EVERY == 0:
            before, found = scores(model, seed + 20_000)
            curve["step"].append(step)
            curve["accuracy"].append(accuracy(model, task, seed + 20_000, 100))
            curve["previous"].append(before)
            curve["induction"].append(found)
    return model, curve


def removal(model: LanguageModel, task: Any, seed: int) -> tuple[list[int], list[float]]:
    """Heads in the order in which they are taken out, each time the one that is missed least.

    Validation texts choose; the accuracy after each removal, first with all heads, is that on test
    texts.
    """
    layers, heads = len(model.blocks), model.blocks[0].attention.num_heads

    def without(gone: list[int], texts: int) -> float:
        with ExitStack() as stack:
            for layer in range(layers):
                here = [head % heads for head in gone if head // heads == layer]
                name = f"blocks.{layer}.attention.heads"
                stack.enter_context(patched(model, name, without_heads(*here)))
            return accuracy(model, task, texts, 100)

    gone: list[int] = []
    kept = [without(gone, seed + 40_000)]
    while len(gone) < layers * heads:
        left = [head for head in range(layers * heads) if head not in gone]
        gone.append(max(left, key=lambda head: without([*gone, head], seed + 30_000)))
        kept.append(without(gone, seed + 40_000))
    return gone, kept


def run(seed: int) -> dict[str, Any]:
    """Two layers along the training, one layer of as many heads at three rates, and pruning."""
    two, curve = train(repeated, layers=2, heads=2, rate=RATE, steps=400, seed=seed, watch=True)
    result: dict[str, Any] = {"curve": curve, "two layers": accuracy(two, repeated, seed + 10_000)}
    single = []
    for rate in RATES:
        one, _ = train(repeated, layers=1, heads=4, rate=rate, steps=400, seed=seed)
        single.append(accuracy(one, repeated, seed + 10_000))
    result["one layer"] = single
    result["parameters"] = [sum(p.numel() for p in m.parameters()) for m in (one, two)]
    for name, task, steps in (("hard", repeated, 350), ("easy", unchanged, 150)):
        model, _ = train(task, layers=2, heads=4, rate=RATE, steps=steps, seed=seed)
        gone, kept = removal(model, task, seed)
        result[name] = {"removed": gone, "accuracy": kept}
    return result


if __name__ == "__main__":
    repeat(run, __file__)
