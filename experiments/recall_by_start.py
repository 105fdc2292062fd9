"""Recalling the first input of a sequence: does the start of the forget gate decide who learns?

A plain RNN, an LSTM as torch starts it and an LSTM whose forget gate starts open are trained by
gradient descent on the same task, each at four learning rates, so that no layer loses because a
rate suits another one. The LSTM gets more steps as well, and all three get Adam at six rates.
"""

import math
from typing import Any

import torch
from torch import nn

from attn_course.functional import clip_by_global_norm
from experiments.repeat import repeat

RATES, ADAM_RATES = (0.03, 0.1, 0.3, 1.0), (0.003, 0.01, 0.03, 0.1, 0.2, 0.3)
SETUPS: dict[str, tuple[type[nn.RNNBase], float | None]] = {
    "RNN": (nn.RNN, None),
    "LSTM": (nn.LSTM, None),
    "LSTM, forget bias 3": (nn.LSTM, 3.0),
}


def recall_batch(generator, length, batch=32):
    """The first number of each row is +1 or -1, and the target; small random numbers follow."""
    target = torch.randint(0, 2, (batch,), generator=generator) * 2.0 - 1.0
    inputs = 0.3 * torch.randn(batch, length, 1, generator=generator)
    inputs[:, 0, 0] = target
    return inputs, target


def learn_recall(name, length, seed, rate=0.5, steps=300, max_norm=1.0, adam=False, size=24):
    """Train one layer and its read-out; the mean squared error over the last 30 steps."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    kind, forget_bias = SETUPS[name]
    layer, read_out = kind(1, size, batch_first=True), nn.Linear(size, 1)
    if forget_bias is not None:
        with torch.no_grad():
            layer.bias_ih_l0[size : 2 * size] = forget_bias
            layer.bias_hh_l0[size : 2 * size] = 0.0
    parameters = [*layer.parameters(), *read_out.parameters()]
    optimizer = (torch.optim.Adam if adam else torch.optim.SGD)(parameters, rate)
    losses = []
    for _ in range(steps):
        inputs, target = recall_batch(generator, length)
        guess = read_out(layer(inputs)[0][:, -1])[:, 0]
        loss = (guess - target).pow(2).mean()
        grads, _ = clip_by_global_norm(torch.autograd.grad(loss, parameters), max_norm)
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad
        optimizer.step()
        losses.append(float(loss.detach()))
    return sum(losses[-30:]) / 30


def run(seed: int) -> dict[str, Any]:
    """Final losses by layer, length and learning rate."""
    return {
        "gradient descent": {
            f"{name}, {length} steps": {
                rate: learn_recall(name, length, seed, rate) for rate in RATES
            }
            for name in SETUPS
            for length in (10, 25)
        },
        "LSTM, 10 steps, trained five times as long": learn_recall(
            "LSTM", 10, seed, 0.3, steps=1500
        ),
        "RNN, 25 steps, no clipping": {
            rate: learn_recall("RNN", 25, seed, rate, max_norm=math.inf) for rate in RATES[:3]
        },
        "Adam, 25 steps": {
            name: {rate: learn_recall(name, 25, seed, rate, adam=True) for rate in ADAM_RATES}
            for name in SETUPS
        },
    }


if __name__ == "__main__":
    repeat(run, __file__)
