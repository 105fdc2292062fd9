"""A Vision Transformer, a residual network and a plain network on few and on many digits.

Chapter 13 shows this code and plots its runs. The digits are those of scikit-learn, 8 by 8 pixels.
Every network is trained at six learning rates on 320 images; the rate that does best on 150
images, which neither train nor test, is taken for all sizes. All networks get the same steps.
``shuffled`` applies one fixed permutation to the pixels of all images: nothing is lost but which
pixels are neighbours.
``python -m experiments.vision_data_size`` repeats the recorded runs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attn_course.data.digits import load_digits
from attn_course.nn import ResidualNetwork, VisionTransformer, vit_like
from experiments.repeat import repeat

SIZES = (20, 80, 320, 1297)
STEPS = {20: 120, 80: 160, 320: 320, 1297: 800}
TUNED_AT = 320
BATCH = 32
RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)


def vision_transformer(patch_size: int) -> VisionTransformer:
    """Patches of so many pixels in each direction, the mean of their vectors."""
    return vit_like(
        image_size=8, patch_size=patch_size, num_channels=1, embed_dim=32, num_heads=4,
        num_layers=2, hidden_dim=64, num_classes=10, pool="mean", position="sinusoidal",
    )  # fmt: skip


def residual_network() -> ResidualNetwork:
    """Two stages of one block."""
    return ResidualNetwork(num_channels=1, widths=(16, 32), num_classes=10, num_groups=4)


def plain_network() -> nn.Sequential:
    """Two maps over all pixels: it does not know that there are neighbours."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 192), nn.ReLU(), nn.Linear(192, 10))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "ViT/4": partial(vision_transformer, 4),
    "ViT/2": partial(vision_transformer, 2),
    "CNN": residual_network,
    "MLP": plain_network,
}


def train(model: nn.Module, images: Tensor, labels: Tensor, rate: float, seed: int) -> None:
    """AdamW with warm-up and a falling rate."""
    steps = STEPS[len(images)]
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05, fused=True)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 15) * (1 - 0.95 * step / steps)
        chosen = torch.randint(len(images), (min(BATCH, len(images)),), generator=generator)
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


@torch.no_grad()
def right(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of right answers."""
    return float((model(images).argmax(-1) == labels).double().mean())


def trained(name: str, images: Tensor, labels: Tensor, rate: float, seed: int) -> nn.Module:
    """A new network, trained on all of these."""
    torch.manual_seed(seed)
    model = MODELS[name]()
    train(model, images, labels, rate, seed)
    return model


def centred(images: Tensor) -> Tensor:
    """Mean 0 and variance 1, about, with an axis for the one channel."""
    return ((images - 0.3) / 0.37)[:, None]


def run(seed: int) -> dict[str, Any]:
    """Test and training accuracy by number of training images, and with shuffled pixels."""
    generator = torch.Generator().manual_seed(seed)
    known, held = load_digits("train"), load_digits("test")
    order = torch.randperm(len(known), generator=generator)
    mixed = torch.randperm(len(held), generator=generator)  # both halves of the same writers
    permutation = torch.randperm(64, generator=generator)
    images, labels = centred(known.images[order]), known.labels[order]
    tests, answers = centred(held.images[mixed]), held.labels[mixed]
    result: dict[str, Any] = {"sizes": list(SIZES)}
    result["parameters"] = {
        name: sum(p.numel() for p in make().parameters()) for name, make in MODELS.items()
    }

    def shuffled(x: Tensor) -> Tensor:
        return x.flatten(2)[..., permutation].view_as(x)

    for name in MODELS:
        tuned = []
        for rate in RATES:
            model = trained(name, images[:TUNED_AT], labels[:TUNED_AT], rate, seed)
            tuned.append((right(model, tests[:150], answers[:150]), rate, model))
        _, rate, middle = max(tuned, key=lambda one: one[0])
        models = [
            middle if size == TUNED_AT else trained(name, images[:size], labels[:size], rate, seed)
            for size in SIZES
        ]
        result[name] = [right(model, tests[150:], answers[150:]) for model in models]
        result[f"{name} training"] = [
            right(model, images[:size], labels[:size])
            for model, size in zip(models, SIZES, strict=True)
        ]
        mixed_up = trained(name, shuffled(images[:TUNED_AT]), labels[:TUNED_AT], rate, seed)
        result[f"{name} shuffled"] = right(mixed_up, shuffled(tests[150:]), answers[150:])
        result[f"{name} rates"] = [[rate, share] for share, rate, _ in tuned]
    return result


if __name__ == "__main__":
    repeat(run, __file__)
