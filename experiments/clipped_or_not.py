"""Training a recurrent network that starts with stretching Jacobians, with and without clipping.

The recurrent matrix starts as twice a rotation. Both ways at eight learning rates, and a control:
without clipping on sequences of length 1, where there is no recurrence to blame.
"""

import math
from typing import Any

import torch

from attn_course.functional import clip_by_global_norm
from experiments.recall_by_start import recall_batch
from experiments.repeat import repeat

RATES, SHOWN = (0.0005, 0.002, 0.006, 0.02, 0.06, 0.2, 0.6, 2.0), 0.2


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
    """Final losses by learning rate; at one rate the recurrent gradient and the slope of tanh."""
    kinds = {
        "no clipping": {"length": 40, "max_norm": math.inf},
        "clipped": {"length": 40, "max_norm": 0.5},
        "length 1": {"length": 1, "max_norm": math.inf},
    }
    result: dict[str, Any] = {}
    for name, how in kinds.items():
        runs = {
            rate: train_stretched(seed, rate=rate, **how)
            for rate in (RATES if name != "length 1" else (SHOWN,))
        }
        _, norms, slope = runs[SHOWN]
        result[name] = {
            # a loss beyond a million, or none, is a run that was lost
            "final loss": {
                rate: min(1e6, mean if math.isfinite(mean := sum(losses[-50:]) / 50) else 1e6)
                for rate, (losses, _, _) in runs.items()
            },
            "largest gradient": max(norms),
            "last gradient": norms[-1],
            "slope of tanh": slope,
            "gradient": norms[::10],
        }
    return result


if __name__ == "__main__":
    repeat(run, __file__)
