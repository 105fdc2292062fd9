"""Six ways to train a model that reads one tile of 25: what each costs, counted twice.

Chapter 05. Every run trains every way once; the seed chooses model, scenes and draws. The test
scenes are drawn from digits that no training scene shows.
"""

from typing import Any

import torch
from torch import Generator, Tensor, nn

from attn_course import functional as fn
from attn_course.data import digit_scenes, load_digits
from attn_course.data.digits import Scenes
from attn_course.train import RunningBaseline
from experiments.repeat import repeat

EVERY, BATCH, TILES = 25, 16, 25
STEPS = {
    "soft": 300,
    "all places": 300,
    "straight-through": 300,
    "one place, baseline": 800,
    "one place": 800,
    "any place": 600,
}


class Glimpse(nn.Module):
    """A scorer that gives every tile a score, and a reader of one picture of 8 by 8."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 1))
        self.read = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def weights(self, pixels: Tensor) -> Tensor:
        """Weights of the tiles: (B, S, 64) to (B, S)."""
        scores: Tensor = self.score(pixels).squeeze(-1)
        return scores.softmax(-1)

    def log_likelihood(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """Log-probability of the right digit for each picture that is read."""
        found: Tensor = self.read(pixels).log_softmax(-1)
        return found.gather(-1, labels[..., None]).squeeze(-1)


def glimpse_loss(
    model: Glimpse, scenes: Scenes, way: str, generator: Generator, baseline: RunningBaseline
) -> Tensor:
    """The loss of a batch of scenes for one of the six ways."""
    pixels = scenes.tiles.flatten(2)  # (B, S, 64)
    w = model.weights(pixels)  # (B, S)
    if way == "soft":
        mixed = fn.expected_attention(w, pixels)
        return -model.log_likelihood(mixed, scenes.labels).mean()
    if way == "all places":
        each = model.log_likelihood(pixels, scenes.labels[:, None].expand(w.shape))
        return -(w * each).sum(-1).mean()
    if way == "straight-through":
        picked = fn.expected_attention(fn.straight_through(w, generator), pixels)
        return -model.log_likelihood(picked, scenes.labels).mean()
    drawn = fn.sample_attention(torch.ones_like(w) if way == "any place" else w, generator)
    reward = model.log_likelihood(fn.expected_attention(drawn, pixels), scenes.labels)
    if way == "any place":
        return -reward.mean()
    b = baseline.value if way == "one place, baseline" else 0.0
    baseline.update(reward)
    # the reader learns by the plain gradient, the scorer by the estimator
    log_prob = fn.attention_log_prob(w, drawn)
    return -reward.mean() + fn.reinforce_loss(log_prob, reward.detach(), b)


def train(way: str, seed: int, held_out: Scenes) -> list[tuple[float, float]]:
    """Share of test digits that are found, and named, after every 25 steps."""
    torch.manual_seed(seed)
    model, baseline = Glimpse(), RunningBaseline()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = Generator().manual_seed(100 + seed)
    digits = load_digits("train")
    curve = []
    for step in range(1, STEPS[way] + 1):
        scenes = digit_scenes(digits, BATCH, generator, num_tiles=TILES)
        optimizer.zero_grad()
        glimpse_loss(model, scenes, way, generator, baseline).backward()
        optimizer.step()
        if step % EVERY == 0:
            with torch.no_grad():
                pixels = held_out.tiles.flatten(2)
                pick = model.weights(pixels).argmax(-1)
                said = model.read(pixels[torch.arange(len(pick)), pick]).argmax(-1)
            found = (pick == held_out.places).double().mean().item()
            named = (said == held_out.labels).double().mean().item()
            curve.append((found, named))
    return curve


def run(seed: int) -> dict[str, Any]:
    """Train all six ways: the share found and named, by training step."""
    held_out = digit_scenes(
        load_digits("test"), 300, Generator().manual_seed(50 + seed), num_tiles=TILES
    )
    curves = {way: train(way, seed, held_out) for way in STEPS}
    return {
        "every": EVERY,
        "found": {way: [round(found, 4) for found, _ in curve] for way, curve in curves.items()},
        "named": {way: [round(named, 4) for _, named in curve] for way, curve in curves.items()},
    }


if __name__ == "__main__":
    repeat(run, __file__)
