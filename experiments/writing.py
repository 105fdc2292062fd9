"""What the experiments on language models share: a text, a small model, its training, its loss.

The text is Python's language reference, character by character; one paragraph in eight is held out.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attn_course.data import load_python_manual
from attn_course.nn import (
    GatedFeedForward,
    LanguageModel,
    MultiHeadAttention,
    RMSNorm,
    RotaryPositions,
    TokenEmbedding,
    decoder_only,
)

WIDTH, HEADS, LAYERS, HIDDEN = 64, 4, 2, 192


def text_ids() -> tuple[Tensor, Tensor, str]:
    """Training text and held-out text as ids, and the alphabet."""
    train, held_out = load_python_manual("train"), load_python_manual("val")
    alphabet = "".join(sorted(set(train)))
    place = {letter: i for i, letter in enumerate(alphabet)}
    ids = [torch.tensor([place[c] for c in text if c in place]) for text in (train, held_out)]
    return ids[0], ids[1], alphabet


def small_model(
    symbols: int,
    *,
    attention: Callable[[], nn.Module] | None = None,
    hidden_dim: int = HIDDEN,
    num_layers: int = LAYERS,
    std: float = 0.02,
) -> LanguageModel:
    """RoPE, RMSNorm, a gated feed-forward part, tied output; ``std`` of the first embeddings."""
    return decoder_only(
        embedding=TokenEmbedding(vocab_size=symbols, embed_dim=WIDTH, std=std),
        num_layers=num_layers,
        attention=attention
        or partial(
            MultiHeadAttention,
            embed_dim=WIDTH,
            num_heads=HEADS,
            bias=False,
            position=RotaryPositions(),
        ),
        feed_forward=partial(GatedFeedForward, embed_dim=WIDTH, hidden_dim=hidden_dim),
        norm=partial(RMSNorm, embed_dim=WIDTH),
    )


def excerpts(ids: Tensor, count: int, length: int, generator: torch.Generator) -> Tensor:
    """Pieces of the text, each beginning anywhere."""
    starts = torch.randint(len(ids) - length + 1, (count, 1), generator=generator)
    return ids[starts + torch.arange(length)]  # (B, L)


def train(
    model: LanguageModel,
    ids: Tensor,
    *,
    steps: int,
    length: int,
    batch: int = 8,
    rate: float = 5e-3,
    seed: int = 0,
    start: int | None = None,
) -> list[float]:
    """Adam, warm-up of 20 steps, then a cosine to a tenth; the loss of each step, in bits.

    With ``start`` every piece begins with that symbol in place of its first character.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.95))
    losses = []
    for step in range(steps):
        cosine = 0.55 + 0.45 * math.cos(math.pi * step / steps)
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 20) * cosine
        rows = excerpts(ids, batch, length + 1, generator)
        if start is not None:
            rows[:, 0] = start
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item() / math.log(2))
    return losses


@torch.no_grad()
def held_out_bits(model: LanguageModel, ids: Tensor, *, length: int) -> float:
    """Bits per character of the held-out text, cut into pieces of one length."""
    rows = ids[: len(ids) // (length + 1) * (length + 1)].view(-1, length + 1)
    logits = model(rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item() / math.log(2)
