"""Where convolutional networks without attention look, by five methods, and whether these agree.

Chapter 05. Every run trains one network with a mean over places and one with a maximum, and takes
one with each that is not trained; the seed chooses networks and scenes.
"""

from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from attn_course import analysis
from attn_course.data import digit_scenes, load_digits, mosaic
from attn_course.data.digits import Scenes
from experiments.repeat import repeat

STEPS, BATCH, SCENES = 600, 32, 200
METHODS = ("gradient", "gradient × input", "integrated", "Grad-CAM", "occlusion")


class ConvNet(nn.Module):
    """Three convolutions, a maximum or a mean over all places, a linear head."""

    def __init__(self, pool: str) -> None:
        super().__init__()
        self.pool = torch.amax if pool == "max" else torch.mean
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(64, 10)

    def classify(self, maps: Tensor) -> Tensor:
        """Class scores from feature maps (B, 64, 6, 6)."""
        scores: Tensor = self.head(self.pool(maps, (-2, -1)))
        return scores

    def forward(self, picture: Tensor) -> Tensor:
        return self.classify(self.features(picture))


def train(net: ConvNet, seed: int) -> None:
    """From labels alone: nobody says where the digit is."""
    digits, generator = load_digits("train"), Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(STEPS):
        scenes = digit_scenes(digits, BATCH, generator)
        loss = F.cross_entropy(net(mosaic(scenes.tiles)), scenes.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def per_tile(maps: Tensor) -> Tensor:
    """Sums over the nine tiles: (B, height, width) to (B, 9)."""
    return maps.unflatten(2, (3, -1)).unflatten(1, (3, -1)).sum((2, 4)).flatten(1)


def explain(net: ConvNet, scenes: Scenes) -> dict[str, Tensor]:
    """Importance of the nine tiles for the class that the network names, by method."""
    picture = mosaic(scenes.tiles)
    with torch.no_grad():
        maps = net.features(picture)
        said = net.classify(maps).argmax(-1, keepdim=True)

    def from_maps(a: Tensor) -> Tensor:
        return net.classify(a).gather(1, said).squeeze(1)

    def score(x: Tensor) -> Tensor:
        return from_maps(net.features(x))

    falls = []
    for s in range(9):
        wiped = scenes.tiles.clone()
        wiped[:, s] = 0
        with torch.no_grad():
            falls.append(score(picture) - score(mosaic(wiped)))
    found = {
        "gradient": analysis.input_gradient(score, picture)[:, 0].abs(),
        "gradient × input": analysis.gradient_times_input(score, picture)[:, 0],
        "integrated": analysis.integrated_gradients(score, picture, steps=16)[:, 0],
        "Grad-CAM": analysis.grad_cam(maps, analysis.input_gradient(from_maps, maps)),
    }
    return {k: per_tile(v) for k, v in found.items()} | {"occlusion": torch.stack(falls, 1)}


def run(seed: int) -> dict[str, Any]:
    """How often each network names the digit and each method points at it; Kendall's tau."""
    scenes = digit_scenes(load_digits("test"), SCENES, Generator().manual_seed(50 + seed))
    named, points, tau = {}, {}, {}
    for name in ("mean", "max", "mean, untrained", "max, untrained"):
        torch.manual_seed(seed)
        net = ConvNet(name.split(",")[0])
        if "untrained" not in name:
            train(net, 100 + seed)
        with torch.no_grad():
            right = net(mosaic(scenes.tiles)).argmax(-1) == scenes.labels
        tiles = explain(net, scenes)
        named[name] = round(right.double().mean().item(), 4)
        points[name] = {
            method: round((tiles[method].argmax(1) == scenes.places).double().mean().item(), 4)
            for method in METHODS
        }
        if "untrained" not in name:
            tau[name] = [
                [round(analysis.kendall_tau(tiles[a], tiles[b]).mean().item(), 3) for b in METHODS]
                for a in METHODS
            ]
    return {"named": named, "points": points, "tau": tau}


if __name__ == "__main__":
    repeat(run, __file__)
