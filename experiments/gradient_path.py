"""What the direct path of attention does for gradients, and for learning over forty symbols.

    python -m experiments.gradient_path

A tanh encoder that reads in one direction, and one step of a decoder. Before training: the gradient
of the output by each source position. Then the task "say the first symbol of a word of 40", with
one fixed vector, with attention, and with attention whose direct path is cut (control: the
annotations enter the decoder without their gradient). The layers are torch's.
"""

from typing import Any

import torch
from torch import Generator, nn
from torch.nn import functional as F

from attn_course.analysis import gradient_reach
from attn_course.data import copy
from attn_course.train import warmup_cosine
from experiments.repeat import repeat

KINDS = ("fixed vector", "attention", "attention, path cut")


class FirstSymbol(nn.Module):
    """Read a word with a tanh network, then take the first step of Bahdanau's decoder."""

    def __init__(self, kind: str, *, seed: int, times_v: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.kind = kind
        self.embedding, self.bos = nn.Embedding(14, 32), nn.Parameter(torch.randn(32))
        self.encoder = nn.RNN(32, 64, batch_first=True)  # tanh
        self.initial = nn.Linear(64, 64)
        self.W, self.U = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
        self.v = nn.Linear(64, 1, bias=False)
        self.cell, self.output = nn.RNNCell(32 + 64, 64), nn.Linear(64 + 32 + 64, 14)
        with torch.no_grad():
            self.v.weight.mul_(times_v)  # multiplies every score

    def weights(self, h: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Weights of the first step: annotations (B, S, H), state (B, H) to (B, S)."""
        scores = self.v(torch.tanh(self.W(state)[:, None] + self.U(h)))[..., 0]
        return scores.softmax(-1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Embedded source (B, S, 32) to the logits of the first symbol (B, 14)."""
        h, last = self.encoder(words)
        state, context = torch.tanh(self.initial(last[0])), last[0]
        if self.kind != "fixed vector":
            h = h.detach() if self.kind == "attention, path cut" else h
            context = (self.weights(h, state)[:, None] @ h)[:, 0]
        inputs = torch.cat([self.bos.expand(len(words), -1), context], dim=-1)
        return self.output(torch.cat([self.cell(inputs, state), inputs], dim=-1))


def alike(model: FirstSymbol) -> FirstSymbol:
    """All symbols start from the same embedding."""
    table = model.embedding.weight
    with torch.no_grad():
        table.copy_(table[:1].expand_as(table).clone())
    return model


def recall(model: FirstSymbol, *, seed: int, steps: int = 200) -> list[float]:
    """Learn to say the first of 40 symbols; how often it is right after every 50 steps."""
    optimizer = torch.optim.Adam(model.parameters())
    generator = Generator().manual_seed(seed)
    rate = warmup_cosine(peak=3e-3, warmup=20, steps=steps)
    test = copy(256, Generator().manual_seed(9), num_symbols=10, min_length=40, max_length=40)
    right = []
    for step in range(steps):
        source = copy(32, generator, num_symbols=10, min_length=40, max_length=40).source
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        F.cross_entropy(model(model.embedding(source)), source[:, 0]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 50 == 0:
            with torch.no_grad():
                found = model(model.embedding(test.source)).argmax(-1)
            right.append(round((found == test.source[:, 0]).double().mean().item(), 3))
    return right


def run(seed: int) -> dict[str, Any]:
    """The gradients before training, and what is learned in 200 steps."""
    words = torch.randn(4, 60, 32, generator=Generator().manual_seed(seed))
    reach = {kind: gradient_reach(FirstSymbol(kind, seed=seed), words).double() for kind in KINDS}
    plateau = {}
    for n in (15, 30, 60):
        by_lag = gradient_reach(FirstSymbol("attention", seed=seed), words[:, :n])
        plateau[n] = by_lag[n // 2 :].mean().item()
    large = FirstSymbol("attention", seed=seed, times_v=300)
    with torch.no_grad():
        h, last = large.encoder(words)
        largest = large.weights(h, torch.tanh(large.initial(last[0]))).amax(-1).mean().item()
    of_large = [gradient_reach(large, word[None]) for word in words]
    return {
        "median gradient, large scores": torch.stack(of_large).median().item(),
        "largest weight, large scores": largest,
        "log10 of the gradient": {
            kind: by_lag.log10().numpy().round(2).tolist() for kind, by_lag in reach.items()
        },
        "plateau": plateau,
        "ordinary": {k: recall(FirstSymbol(k, seed=seed), seed=seed) for k in KINDS},
        "alike": {k: recall(alike(FirstSymbol(k, seed=seed)), seed=seed) for k in KINDS[1:]},
        "large scores": recall(large, seed=seed),
    }


if __name__ == "__main__":
    repeat(run, __file__)
