"""Same or different: two patterns at opposite edges of an image, for attention and convolutions.

Chapter 13 shows this code and plots its runs. An image of 16 by 16 pixels has two patterns of 4 by
4 black and white pixels at opposite edges, in cells that are patches of the Transformer. Half of
the time they are equal; otherwise two black and two white pixels of one have changed places, so
that the ink is the same. Patterns are drawn anew for every image. Every network is trained at two
learning rates, and the one that does better on validation images counts.
``python -m experiments.vision_far_apart`` repeats the recorded runs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attn_course.nn import ResidualNetwork, VisionTransformer, vit_like
from experiments.repeat import repeat

SIDE, PATCH, BATCH = 16, 4, 32


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images (count, 1, SIDE, SIDE) and whether their two patterns are the same."""
    cells, size = SIDE // PATCH, PATCH * PATCH
    one = torch.randint(2, (count, size), generator=generator).float() * 2 - 1
    order = torch.rand(count, size, generator=generator)
    # two places that are white and two that are black, where there are as many
    white = (order + 10 * (one < 0)).argsort(-1)[:, :2]
    black = (order + 10 * (one > 0)).argsort(-1)[:, :2]
    other = one.scatter(1, white, one.gather(1, black)).scatter(1, black, one.gather(1, white))
    same = torch.randint(2, (count,), generator=generator)
    other = torch.where(same.bool()[:, None], one, other)
    images = torch.zeros(count, cells, cells, PATCH, PATCH)
    rows = torch.randint(cells, (2, count), generator=generator)
    each = torch.arange(count)
    images[each, rows[0], 0] = one.view(-1, PATCH, PATCH)
    images[each, rows[1], cells - 1] = other.view(-1, PATCH, PATCH)
    turned = torch.rand(count, generator=generator) < 0.5
    images = torch.where(turned[:, None, None, None, None], images.transpose(1, 2), images)
    return images.transpose(2, 3).reshape(count, 1, SIDE, SIDE), same


def vision_transformer() -> VisionTransformer:
    """One block: every patch looks at every other one, once."""
    return vit_like(
        image_size=SIDE, patch_size=PATCH, num_channels=1, embed_dim=32, num_heads=4, num_layers=1,
        hidden_dim=64, num_classes=2, pool="mean", position="sinusoidal",
    )  # fmt: skip


def convolutions(dilations: tuple[int, ...]) -> ResidualNetwork:
    """A stem and one block per dilation, each of 3 by 3 convolutions."""
    return ResidualNetwork(
        num_channels=1,
        widths=[8] * len(dilations),
        dilations=dilations,
        num_classes=2,
        num_groups=4,
    )


class SummedPatches(nn.Module):
    """A convolution that sees one patch, a sum over the image, and two maps of that sum."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 32, PATCH, stride=PATCH)
        self.head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.patches(images).sum((2, 3)))
        return logits


# the last one costs a fifth of the others per step, and gets more of them
ARMS: dict[str, tuple[Callable[[], nn.Module], tuple[float, float], int]] = {
    "ViT": (vision_transformer, (0.003, 0.01), 400),
    "CNN, sees 7": (partial(convolutions, (1,)), (0.01, 0.02), 400),
    "CNN, sees 27": (partial(convolutions, (2, 4)), (0.01, 0.02), 400),
    "CNN, sees 4, sum, 2 maps": (SummedPatches, (0.005, 0.01), 1600),
}


def train(model: nn.Module, rate: float, steps: int, seed: int) -> None:
    """AdamW with warm-up and a falling rate, on new images at every step."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0, fused=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 30) * (1 - 0.95 * step / steps)
        images, same = draw(BATCH, generator)
        loss = F.cross_entropy(model(images), same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def right(model: nn.Module, seed: int) -> float:
    """Share of right answers on 1,000 images."""
    images, same = draw(1000, torch.Generator().manual_seed(seed))
    return float((model(images).argmax(-1) == same).double().mean())


def run(seed: int) -> dict[str, Any]:
    """Test accuracy of each network at its better rate, and at both."""
    result: dict[str, Any] = {}
    for name, (make, rates, steps) in ARMS.items():
        found = []
        for rate in rates:
            torch.manual_seed(seed)
            model = make()
            train(model, rate, steps, seed)
            found.append((right(model.eval(), seed + 10_000), right(model, seed + 20_000)))
        result[name] = {"right": max(found)[1], "at rates": [test for _, test in found]}
    return result


if __name__ == "__main__":
    repeat(run, __file__)
