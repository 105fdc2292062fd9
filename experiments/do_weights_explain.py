"""Six readers of nine tiles: where their weights lie, and what their answers depend on.

Chapter 05. Local states are made of one tile each, mixed states hear of all tiles. Every run
trains all six readers once; the seed chooses models and scenes.
"""

from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from attn_course import analysis
from attn_course import functional as fn
from attn_course.data import digit_scenes, load_digits
from attn_course.data.digits import Scenes
from experiments.repeat import repeat

STEPS, BATCH = 600, 32
# name: (states are mixed, weights stay equal, price of weight on the digit)
READERS = {
    "local, learned": (False, False, 0.0),
    "local, equal": (False, True, 0.0),
    "local, pushed away": (False, False, 1.0),
    "mixed, learned": (True, False, 0.0),
    "mixed, equal": (True, True, 0.0),
    "mixed, pushed away": (True, False, 1.0),
}


class TileReader(nn.Module):
    """Attention over tiles with local or mixed states."""

    def __init__(self, mixed: bool, equal: bool) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Flatten(2), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
        )
        self.mix = nn.GRU(64, 32, bidirectional=True, batch_first=True) if mixed else None
        self.score = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))
        self.head = nn.Linear(64, 10)
        self.equal = equal

    def states(self, tiles: Tensor) -> Tensor:
        """One state per tile: (B, S, 8, 8) to (B, S, 64)."""
        states: Tensor = self.encode(tiles)
        return states if self.mix is None else self.mix(states)[0]

    def weights(self, states: Tensor) -> Tensor:
        """Weights of the states: (B, S)."""
        scores: Tensor = self.score(states).squeeze(-1)
        return (scores * 0 if self.equal else scores).softmax(-1)

    def answer(self, weights: Tensor, states: Tensor) -> Tensor:
        """Class scores from the weighted sum of the states."""
        scores: Tensor = self.head(fn.expected_attention(weights, states))
        return scores

    def forward(self, tiles: Tensor) -> Tensor:
        states = self.states(tiles)
        return self.answer(self.weights(states), states)


def train(model: TileReader, seed: int, price: float) -> None:
    """Labels only; with a price, weight on the digit's tile costs as well."""
    digits, generator = load_digits("train"), Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        scenes = digit_scenes(digits, BATCH, generator)
        states = model.states(scenes.tiles)
        w = model.weights(states)
        loss = F.cross_entropy(model.answer(w, states), scenes.labels)
        if price:
            on_digit = w.gather(1, scenes.places[:, None])
            loss = loss - price * (1 - on_digit).clamp(min=1e-6).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def examine(model: TileReader, scenes: Scenes, generator: Generator) -> dict[str, float]:
    """Where the weights lie, what erasing a tile does, and what moving the weights does."""

    def share(hit: Tensor) -> float:
        return round(hit.double().mean().item(), 4)

    rows = torch.arange(len(scenes))
    states = model.states(scenes.tiles)
    w = model.weights(states)
    scores = model.answer(w, states)
    said = scores.argmax(-1)
    falls = []
    for s in range(9):
        erased = scenes.tiles.clone()
        erased[:, s] = 0
        falls.append((scores - model(erased))[rows, said])
    moved = [model.answer(analysis.permute_weights(w, generator), states) for _ in range(20)]
    change = torch.stack(
        [analysis.total_variation(scores.softmax(-1), m.softmax(-1)) for m in moved]
    )
    # all weight on a tile that is not the digit
    elsewhere = F.one_hot((scenes.places + 4) % 9, 9).float()
    return {
        "accuracy": share(said == scenes.labels),
        "weights on digit": share(w.argmax(1) == scenes.places),
        "weight of digit": share(w[rows, scenes.places]),
        "erasing on digit": share(torch.stack(falls, 1).argmax(1) == scenes.places),
        "permuted": share(change.median(0).values),
        "elsewhere": share(model.answer(elsewhere, states).argmax(-1) == scenes.labels),
        "apart": round((w.argmax(1) - scenes.places).abs().double().mean().item(), 2),
    }


def run(seed: int) -> dict[str, Any]:
    """Train the six readers and examine each on the same 300 test scenes."""
    scenes = digit_scenes(load_digits("test"), 300, Generator().manual_seed(50 + seed))
    found = {}
    for name, (mixed, equal, price) in READERS.items():
        torch.manual_seed(seed)
        model = TileReader(mixed, equal)
        train(model, 100 + seed, price)
        with torch.no_grad():
            found[name] = examine(model, scenes, Generator().manual_seed(seed))
    return found


if __name__ == "__main__":
    repeat(run, __file__)
