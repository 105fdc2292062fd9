"""One context vector, trained to say words backwards: what it can do and where it fails.

Chapter 02 shows this code and plots its runs. The copying arm has the same network, steps and words
and reads its source in natural order.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attn_course.data import BOS, EOS, PAD, Batch, BatchStream, copy, reversal
from attn_course.nn import Decoder, Encoder, EncoderDecoder
from attn_course.train import (
    beam_search,
    fit,
    greedy_decode,
    teacher_forcing_loss,
    warmup_cosine,
)
from experiments.repeat import repeat

SYMBOLS, LONGEST = 10, 20
LENGTHS = (1, 2, 3, 5, 7, 10, 12, 15, 20, 25, 30)
WIDTHS = (1, 2, 5, 10, 20, 50)
SNAPSHOTS = (100, 250, 500)
TASKS = {
    "reversal": partial(reversal, num_symbols=SYMBOLS),
    "copy": partial(copy, num_symbols=SYMBOLS),
}


class FusedGRU(nn.GRUCell):
    """torch's own cell, with the two members that the training loop asks of a cell."""

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)

    def initial_state(self, inputs: Tensor) -> Tensor:
        """Zeros, one row per row of ``inputs``."""
        return inputs.new_zeros(inputs.shape[0], self.hidden_size)


def new_model(hidden: int, seed: int) -> EncoderDecoder:
    """The untrained network of a seed."""
    torch.manual_seed(seed)
    size: dict[str, Any] = {
        "vocab_size": SYMBOLS + 4,
        "embed_dim": 32,
        "hidden_size": hidden,
        "cell": FusedGRU,
    }
    return EncoderDecoder(encoder=Encoder(**size), decoder=Decoder(context_size=hidden, **size))


def train(
    task: str = "reversal",
    *,
    seed: int,
    hidden: int = 64,
    steps: int = 500,
    longest: int = LONGEST,
    change: Any = lambda batch: batch,
    callbacks: Any = (),
    model: EncoderDecoder | None = None,
) -> EncoderDecoder:
    """Adam on fresh words of 1 to ``longest`` symbols; ``change`` rewrites each batch."""
    model = new_model(hidden, seed) if model is None else model
    fit(
        model,
        BatchStream(partial(TASKS[task], max_length=longest), batch_size=64, seed=seed),
        lambda model, batch: teacher_forcing_loss(model, change(batch)),
        optimizer=torch.optim.Adam(model.parameters()),
        steps=steps,
        schedule=warmup_cosine(peak=3e-3, warmup=20, steps=steps),
        clip_norm=1.0,
        progress=False,
        callbacks=callbacks,
    )
    return model


def words(task: str, n: int, count: int = 512, seed: int = 99) -> Batch:
    """Words of exactly ``n`` symbols that no training run has seen on purpose."""
    generator = torch.Generator().manual_seed(10_000 + seed)
    return TASKS[task](count, generator, min_length=n, max_length=n)


@torch.no_grad()
def teacher_forced(model: EncoderDecoder, batch: Batch) -> Tensor:
    """1 where the best guess after the right prefix is right, (B, n + 1)."""
    logits = model(batch.source, batch.source_lengths, batch.target_in)
    return (logits.argmax(-1) == batch.target_out).double()


@torch.no_grad()
def free_running(model: EncoderDecoder, batch: Batch) -> Tensor:
    """1 where greedy decoding writes the right symbol, (B, n + 1)."""
    state = model.init_state(batch.source, batch.source_lengths)
    length = batch.target_out.shape[1]
    written = greedy_decode(model.step, state, bos=BOS, eos=EOS, max_length=length).tokens
    written = F.pad(written, (0, length - written.shape[1]), value=PAD)
    return (written == batch.target_out).double()


def by_length(model: EncoderDecoder, measure: Any, task: str = "reversal") -> list[float]:
    """Share of right symbols at each of ``LENGTHS``, without ``<eos>``."""
    return [measure(model, words(task, n))[:, :n].mean().item() for n in LENGTHS]


def by_step(model: EncoderDecoder, measure: Any, batch: Batch) -> list[float]:
    """Share of right symbols at each output step, without ``<eos>``."""
    return measure(model, batch).mean(0)[:-1].tolist()


def spoil_first(batch: Batch, seed: int) -> Tensor:
    """``target_in`` with a wrong symbol in place of the first one."""
    generator = torch.Generator().manual_seed(seed)
    offset = torch.randint(1, SYMBOLS, (len(batch),), generator=generator)
    spoiled = batch.target_in.clone()
    spoiled[:, 1] = 4 + (spoiled[:, 1] - 4 + offset) % SYMBOLS
    return spoiled


@torch.no_grad()
def probe(model: EncoderDecoder, n: int, seed: int, count: int = 4000) -> list[float]:
    """Test accuracy of a ridge regression from the context vector to the symbol, by position."""
    batch = words("reversal", n, count, seed)
    _, context = model.encoder(batch.source, batch.source_lengths)  # (B, H)
    context = (context - context.mean(0)) / (context.std(0) + 1e-6)
    context = torch.cat([context, torch.ones(count, 1)], dim=1)
    symbols = batch.source - 4
    wanted = F.one_hot(symbols, SYMBOLS).float().flatten(1)
    half = count // 2
    gram = context[:half].T @ context[:half] + 0.1 * torch.eye(context.shape[1])
    weights = torch.linalg.solve(gram, context[:half].T @ wanted[:half])
    answers = (context[half:] @ weights).unflatten(1, (n, SYMBOLS)).argmax(-1)
    return (answers == symbols[half:]).double().mean(0).tolist()


@torch.no_grad()
def beam(model: EncoderDecoder, batch: Batch, width: int, alpha: float) -> dict[str, float]:
    """Symbols, log-probability and accuracy of the best output, mean over the batch."""
    start = model.init_state(batch.source, batch.source_lengths)
    found = beam_search(
        model.step, start, bos=BOS, eos=EOS, beam_size=width, max_length=40, length_penalty=alpha
    )
    length, best = found.lengths[:, 0], found.tokens[:, 0]
    written = F.pad(best, (0, 41))[:, :LONGEST]
    right = (written == batch.target_out[:, :LONGEST]).double().mean()
    log_p = found.scores[:, 0] * ((5 + length) / 6) ** alpha
    return {
        "symbols": (length - 1).double().mean().item(),
        "log p": log_p.mean().item(),
        "right": right.item(),
    }


def run(seed: int) -> dict[str, Any]:
    """Everything that chapter 02 measures on a model with one context vector."""
    positions: dict[str, list[float]] = {}
    ten = words("reversal", 10, 2000, seed)
    model = new_model(64, seed)
    untrained = probe(model, 20, seed)

    def snapshot(step: int, history: Any) -> None:
        if step in SNAPSHOTS:
            positions[str(step)] = by_step(model, teacher_forced, ten)

    train("reversal", seed=seed, model=model, callbacks=[snapshot])
    twenty = words("reversal", 20, 2000, seed)
    forced = teacher_forced(model, twenty).mean(0)[:-1]
    spoiled = replace(twenty, target_in=spoil_first(twenty, seed))
    damaged = teacher_forced(model, spoiled).mean(0)[:-1]
    copier = train("copy", seed=seed)
    hundred = words("reversal", 20, 100, seed)
    return {
        "lengths": list(LENGTHS),
        "forced": by_length(model, teacher_forced),
        "free": by_length(model, free_running),
        "positions": positions,
        "probe": probe(model, 20, seed),
        "probe untrained": untrained,
        "forced by step": forced.tolist(),
        "free by step": by_step(model, free_running, twenty),
        "one wrong symbol": damaged.tolist(),
        "copy free": by_length(copier, free_running, "copy"),
        "copy forced": by_length(copier, teacher_forced, "copy"),
        "reversal by step": by_step(model, free_running, ten),
        "copy by step": by_step(copier, free_running, words("copy", 10, 2000, seed)),
        "widths": list(WIDTHS),
        "beam": [beam(model, hundred, width, 0.0) for width in WIDTHS],
        "beam, alpha 0.6": [beam(model, hundred, width, 0.6) for width in WIDTHS],
    }


if __name__ == "__main__":
    repeat(run, __file__)
