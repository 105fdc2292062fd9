"""Training a recurrent network that starts with stretching Jacobians, with and without clipping.

The recurrent matrix starts as twice a rotation. Two starts a seed, and a control: without clipping
on sequences of length 1, where there is no recurrence to blame.
"""

import math
from typing import Any

import torch

from attn_course.functional import clip_by_global_norm
from experiments.recall_by_start import recall_batch
from experiments.repeat import repeat


def train_stretched(seed, length, max_norm, gain=2.0, rate=0.2, steps=400, size=32):
    """Losses and norms of the recurrent gradient, one per step, and the last mean slope of tanh."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    weight_ih, read_out = torch.randn(size, 1) * 0.5, torch.randn(size)
    weight_hh = gain * torch.linalg.qr(torch.randn(size, size))[0]
    parameters = [p.requires_grad_() for p in (weight_ih, weight_hh, read_out)]
    losses, norms = [], []
    for _ in range(steps):
        inputs, target = recall_batch(generator, length)
        hidden = torch.zeros(len(inputs), size)
        for t in range(length):
            hidden = torch.tanh(inputs[:, t] @ weight_ih.T + hidden @ weight_hh.T)
        # the root keeps this rate safe for the read-out even where every state is +1 or -1
        guess = hidden @ read_out / math.sqrt(size)
        loss = (guess - target).pow(2).mean()
        grads = torch.autograd.grad(loss, parameters)
        norms.append(float(grads[1].norm()))
        grads, _ = clip_by_global_norm(grads, max_norm)
        with torch.no_grad():
            for p, g in zip(parameters, grads, strict=True):
                p -= rate * g
        losses.append(float(loss.detach()))
    return losses, norms, float((1 - hidden.detach() ** 2).mean())


def run(seed: int) -> dict[str, Any]:
    """Final losses, largest and last recurrent gradient, slope of tanh; two starts a seed."""
    kinds = {
        "no clipping": {"length": 40, "max_norm": math.inf},
        "clipped": {"length": 40, "max_norm": 0.5},
        "length 1": {"length": 1, "max_norm": math.inf},
    }
    result: dict[str, Any] = {}
    for name, how in kinds.items():
        runs = [train_stretched(2 * seed + i, **how) for i in range(2)]
        result[name] = {
            "final loss": [sum(losses[-50:]) / 50 for losses, _, _ in runs],
            "largest gradient": [max(norms) for _, norms, _ in runs],
            "last gradient": [norms[-1] for _, norms, _ in runs],
            "slope of tanh": [slope for _, _, slope in runs],
            # means of ten steps, of the first start
            "loss": [round(sum(runs[0][0][i : i + 10]) / 10, 5) for i in range(0, 400, 10)],
            "gradient": runs[0][1][::10],
        }
    return result


if __name__ == "__main__":
    repeat(run, __file__)
