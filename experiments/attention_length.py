"""Symbols right against the length of the word: one fixed vector, attention, and equal weights.

    python -m experiments.attention_length

The task of chapter 02, words of ten symbols to be written backwards, trained on lengths 1 to 12;
then greedy decoding of words of exactly n symbols. Attention has fewer parameters than the model
with one fixed vector. Equal weights are its control: the same network, which may not choose. The
layers are torch's, which are faster than the package's and have the same numbers.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import rnn

from attn_course.data import Batch, BatchStream, reversal
from attn_course.train import fit, token_loss, warmup_cosine
from experiments.repeat import repeat

SIZES = {"fixed vector": 64, "attention": 44, "equal weights": 44}  # units of each network
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 21, 24)
LONGEST, STEPS = 12, 300  # in training


class Writer(nn.Module):
    """Encoder and decoder; ``kind`` says what the decoder reads at each step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, H = kind, SIZES[kind]
        C = H if kind == "fixed vector" else 2 * H  # size of a context
        self.read, self.wrote = nn.Embedding(14, 32), nn.Embedding(14, 32)
        self.encoder = nn.GRU(32, H, batch_first=True, bidirectional=C > H)
        self.initial = nn.Linear(H, H)
        if kind != "fixed vector":
            self.W, self.U = nn.Linear(H, H, bias=False), nn.Linear(C, H, bias=False)
            self.v = nn.Linear(H, 1, bias=False)
        self.cell, self.output = nn.GRUCell(32 + C, H), nn.Linear(H + 32 + C, 14)

    def forward(self, batch: Batch, *, free: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and weights; ``free``: each symbol written is the next one read."""
        packed = rnn.pack_padded_sequence(
            self.read(batch.source), batch.source_lengths, batch_first=True, enforce_sorted=False
        )
        h, last = self.encoder(packed)
        h, _ = rnn.pad_packed_sequence(h, batch_first=True)  # (B, S, C), 0 at padding
        weights = batch.source_mask / batch.source_lengths[:, None]  # (B, S), all equal
        context = last[-1] if self.kind == "fixed vector" else (weights[:, None] @ h)[:, 0]
        choose = self.kind == "attention"
        offered = self.U(h) if choose else None
        state, word = torch.tanh(self.initial(last[-1])), batch.target_in[:, 0]
        logits, maps = [], []
        for t in range(batch.target_in.shape[1]):
            if choose:
                scores = self.v(torch.tanh(self.W(state)[:, None] + offered))[..., 0]  # (B, S)
                weights = scores.masked_fill(~batch.source_mask, -torch.inf).softmax(-1)
                context = (weights[:, None] @ h)[:, 0]
            word = word if free else batch.target_in[:, t]
            inputs = torch.cat([self.wrote(word), context], dim=-1)
            state = self.cell(inputs, state)
            logits.append(self.output(torch.cat([state, inputs], dim=-1)))
            maps.append(weights)
            word = logits[-1].argmax(-1)
        return torch.stack(logits, dim=1), torch.stack(maps, dim=1)


def words(n: int) -> Batch:
    """256 words of exactly n symbols, the same for all models."""
    return reversal(
        256, torch.Generator().manual_seed(99), num_symbols=10, min_length=n, max_length=n
    )


@torch.no_grad()
def looks(model: Writer, n: int) -> dict[str, Any]:
    """Words of n, each next symbol given: is the symbol right, is the look, and where is it?"""
    batch = words(n)
    logits, weights = model(batch)
    right = (logits.argmax(-1) == batch.target_out)[:, :n].double()
    found = (weights.argmax(-1) == batch.alignment)[:, :n]
    return {
        "right": right.mean(0).numpy().round(3).tolist(),
        "found": found.double().mean(0).numpy().round(3).tolist(),
        "right where found": round(right[found].mean().item(), 3),
        "right where lost": round(right[~found].mean().item(), 3) if not found.all() else None,
        "mean weights": weights.mean(0)[:n].numpy().round(2).tolist(),
        "largest weight": round(weights[:, :n].amax(-1).mean().item(), 3),
    }


def run(seed: int) -> dict[str, Any]:
    """Train the three models on the same words for the same steps; decode words of each length."""
    out: dict[str, Any] = {"lengths": list(LENGTHS)}
    task = partial(reversal, num_symbols=10, max_length=LONGEST)
    for kind in SIZES:
        torch.manual_seed(seed)
        model = Writer(kind)
        fit(
            model,
            BatchStream(task, batch_size=32, seed=seed),
            lambda model, batch: token_loss(model(batch)[0], batch.target_out),
            optimizer=torch.optim.Adam(model.parameters()),
            steps=STEPS,
            schedule=warmup_cosine(peak=6e-3, warmup=20, steps=STEPS),
            clip_norm=1.0,
            progress=False,
        )
        with torch.no_grad():
            wrote = {n: model(words(n), free=True)[0].argmax(-1)[:, :n] for n in LENGTHS}
        right = [(wrote[n] == words(n).target_out[:, :n]).double().mean().item() for n in LENGTHS]
        out[kind] = {
            "parameters": sum(p.numel() for p in model.parameters()),
            "right": np.round(right, 4).tolist(),
        }
        if kind == "attention":
            out["looks"] = {n: looks(model, n) for n in (10, 24)}
    return out


if __name__ == "__main__":
    repeat(run, __file__)
