"""What a small language model loses when most pairs are left out, and what far pairs give back.

Chapter 14 shows these runs. Six causal models of the package have the same parameters and the same
steps and differ in the pairs that they may attend to alone: all of them; a short window; the same
window with a dilation in half of its heads; the window and every twelfth position global; the
window and one head that sees all; and, as the control of the last two, a longer window that costs
as much. All are computed under the dense mask of their pattern, so that nothing but the pairs
differs: their number is the cost that is recorded, not the time.

Two tasks. *Text*: tiny Shakespeare, character by character, bits per character of held-out text.
*Mark*: random symbols, one of them marked; at every later place the marked symbol is to be said.
The distance is up to 95 places, further than stacked windows reach. Each model is trained at four
learning rates on the text and at three on the marks; the best one on one part of the held-out data
is reported on the other part. All pairs and the short window are trained on the text once more at
that rate, four times as long: who wins may be a matter of the training budget.
``python -m experiments.sparse_language_model --sets native`` repeats the recorded runs, about five
minutes a seed.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from attn_course.analysis import receptive_field
from attn_course.functional import (
    Pattern,
    causal_pattern,
    global_pattern,
    scaled_dot_product_attention,
    window_pattern,
)
from attn_course.nn import (
    FeedForward,
    LanguageModel,
    LayerNorm,
    MultiHeadAttention,
    RotaryPositions,
    TokenEmbedding,
    decoder_only,
)
from experiments.language_model.corpus import Windows, shakespeare
from experiments.language_model.measure import spread
from experiments.repeat import repeat

LENGTH, LAYERS, HEADS = 96, 3, 4
WINDOW, WIDE, EVERY = 4, 17, 12
SIZE = {"text": 48, "mark": 32}
BATCH = {"text": 8, "mark": 16}
STEPS = {"text": 300, "mark": 180}
RATES = {"text": (0.002, 0.005, 0.012, 0.03), "mark": (0.002, 0.004, 0.008)}
LONGER, TRAINED_LONGER = 1200, ("all pairs", "window 4")
SYMBOLS, TESTED = 8, 512


def one_long_head() -> Pattern:
    """The window in all heads but the last, which sees everything before it."""
    near = window_pattern(window_size=WINDOW, is_causal=True)
    return Pattern(
        lambda b, h, i, j: torch.where(h == HEADS - 1, j <= i, near.mask_mod(b, h, i, j)),
        heads=HEADS,
    )


def patterns() -> dict[str, Pattern]:
    """What each model may see."""
    near = window_pattern(window_size=WINDOW, is_causal=True)
    spots = global_pattern(torch.arange(LENGTH) % EVERY == EVERY - 1)
    return {
        "all pairs": causal_pattern(),
        "window 4": near,
        "window 4, dilation 1 and 4": window_pattern(
            window_size=WINDOW, dilation=[1, 1, 4, 4], is_causal=True
        ),
        "window 4, global positions": near | (spots & causal_pattern()),
        "window 4, one long head": one_long_head(),
        "window 17": window_pattern(window_size=WIDE, is_causal=True),
    }


def build(pattern: Pattern, size: int, words: int) -> LanguageModel:
    """A decoder whose attention has the pattern's mask in every layer."""
    mask = pattern.mask(LENGTH)

    def attend(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        return scaled_dot_product_attention(query, key, value, mask)

    return decoder_only(
        embedding=TokenEmbedding(vocab_size=words, embed_dim=size),
        num_layers=LAYERS,
        attention=lambda: MultiHeadAttention(
            embed_dim=size, num_heads=HEADS, position=RotaryPositions(base=1000.0), attn_fn=attend
        ),
        norm=lambda: LayerNorm(embed_dim=size),
        feed_forward=lambda: FeedForward(embed_dim=size, hidden_dim=4 * size),
        tied=False,
    )


def train(
    model: LanguageModel,
    draw: Callable[[], tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]],
    rate: float,
    steps: int,
) -> None:
    """Warm-up, then a straight line down; a target of -100 does not count."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 30) * (1 - 0.95 * step / steps)
        tokens, targets = draw()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def marked(
    number: int, generator: torch.Generator
) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"], Int[Tensor, "B L"]]:
    """Symbols with one marked, the answer after it, and how far back the mark is."""
    tokens = torch.randint(SYMBOLS, (number, LENGTH), generator=generator)
    place = torch.randint(LENGTH // 2, (number, 1), generator=generator)
    asked = tokens.gather(1, place)
    tokens = tokens.scatter(1, place, asked + SYMBOLS)
    distance = torch.arange(LENGTH) - place
    return tokens, asked.expand(-1, LENGTH).masked_fill(distance < 1, -100), distance


@torch.no_grad()
def bits(model: LanguageModel, text: Int[Tensor, "n L1"]) -> float:
    """Bits per character, from half a window of context at least."""
    logits = model(text[:, :-1])[:, LENGTH // 2 :].double()
    nats = F.cross_entropy(logits.flatten(0, 1), text[:, LENGTH // 2 + 1 :].flatten())
    return round(nats.item() / math.log(2), 4)


@torch.no_grad()
def recalled(model: LanguageModel, seed: int) -> list[float]:
    """The share of right answers at each distance from 1."""
    tokens, targets, distance = marked(TESTED, torch.Generator().manual_seed(seed))
    right = model(tokens).argmax(-1) == targets
    return [round(right[distance == d].double().mean().item(), 4) for d in range(1, LENGTH)]


def run(seed: int) -> dict[str, Any]:
    """For each model its cost and reach, and what it does on both tasks at the best rate."""
    corpus = shakespeare()
    chosen_by, reported = spread(corpus.val, length=LENGTH, number=512).split(256)

    def on_text(pattern: Pattern, rate: float, steps: int) -> LanguageModel:
        torch.manual_seed(seed)
        model = build(pattern, SIZE["text"], len(corpus.alphabet))
        windows = Windows(corpus.train, length=LENGTH, batch_size=BATCH["text"], seed=seed)

        def draw() -> tuple[Tensor, Tensor]:
            batch = next(windows)
            return batch[:, :-1], batch[:, 1:]

        train(model, draw, rate, steps)
        return model

    def on_marks(pattern: Pattern, rate: float) -> LanguageModel:
        torch.manual_seed(seed)
        model = build(pattern, SIZE["mark"], 2 * SYMBOLS)
        draws = torch.Generator().manual_seed(seed)
        train(model, lambda: marked(BATCH["mark"], draws)[:2], rate, STEPS["mark"])
        return model

    found: dict[str, Any] = {}
    for name, pattern in patterns().items():
        tries = []
        for rate in RATES["text"]:
            model = on_text(pattern, rate, STEPS["text"])
            tries.append((bits(model, chosen_by), rate, bits(model, reported)))
        best = min(tries)
        text: dict[str, Any] = {"rates": [list(one) for one in tries], "bits": best[2]}
        if name in TRAINED_LONGER:
            text["longer"] = bits(on_text(pattern, best[1], LONGER), reported)
        shares = []
        for rate in RATES["mark"]:
            marker = on_marks(pattern, rate)
            by_distance = recalled(marker, 1000 + seed)
            share = round(sum(by_distance) / len(by_distance), 4)
            shares.append((share, rate, recalled(marker, 2000 + seed)))
        found[name] = {
            "pairs": int(pattern.mask(LENGTH).expand(1, HEADS, -1, -1).sum()) / HEADS,
            "reach": farthest(pattern),
            "parameters": sum(p.numel() for p in model.parameters()),
            "text": text,
            "mark": {
                "rates": [[share, rate] for share, rate, _ in shares],
                "by_distance": max(shares)[2],
            },
        }
    return found


def farthest(pattern: Pattern) -> int:
    """How many places back the last position can depend on, over all layers and heads."""
    union = pattern.mask(LENGTH)[0].any(0)
    return LENGTH - 1 - int(receptive_field(union, LAYERS)[-1, -1].int().argmax())


if __name__ == "__main__":
    repeat(run, __file__)
