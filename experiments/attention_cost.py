"""What additive attention costs beside dot-product attention: time and memory, by the size d.

Chapter 07 shows this code and its runs. Both attentions compare the same vectors, once they are
projected, and mix the same values; only the score differs. The hidden layer of the additive score
has as many units as the vectors have entries. Times are CPU-seconds of one thread, the best of
several rounds in which the functions take turns; memory is the peak beyond the inputs.
``python -m experiments.attention_cost`` repeats the recorded runs.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.functional import dot_score, softmax, tanh_score
from attn_course.probes.student import peak_memory
from experiments.repeat import repeat

LENGTHS, SIZES, ROUNDS = (32, 256), (1, 4, 16, 64, 256), 7


def additive(query: Tensor, key: Tensor, value: Tensor, v: Tensor) -> Tensor:
    """softmax(v . tanh(q + k)) V."""
    return softmax(tanh_score(query, key, v)) @ value


def dot(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V, with the weights written down."""
    return softmax(dot_score(query / math.sqrt(query.shape[-1]), key)) @ value


def with_gradient(attention: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Forward and backward; the gradients of all inputs are part of the work."""
    asked = [tensor.detach().requires_grad_() for tensor in inputs]
    output = attention(*asked)
    return torch.autograd.grad(output.sum(), asked)[0]


def fastest(functions: list[Callable[[], Tensor]], repeats: int) -> list[float]:
    """CPU-seconds of one call of each function: the best of several rounds, in turns."""
    best = [math.inf] * len(functions)
    for _ in range(ROUNDS):
        for i, function in enumerate(functions):
            start = time.process_time()
            for _ in range(repeats):
                function()
            best[i] = min(best[i], (time.process_time() - start) / repeats)
    return best


def run(seed: int) -> dict[str, Any]:
    """Additive divided by dot: time and memory, forward alone and with the gradient."""
    torch.manual_seed(seed)
    result: dict[str, Any] = {"sizes": list(SIZES)}
    for length in LENGTHS:
        rows: dict[str, list[float]] = {}
        for size in SIZES:
            q, k, value = (torch.randn(1, 1, length, size) for _ in range(3))
            v = torch.randn(size) / math.sqrt(size)
            calls: dict[str, list[Callable[[], Tensor]]] = {
                "forward": [
                    partial(additive, q, k, value, v),
                    partial(dot, q, k, value),
                    partial(F.scaled_dot_product_attention, q, k, value),
                ],
                "with gradient": [
                    partial(with_gradient, additive, q, k, value, v),
                    partial(with_gradient, dot, q, k, value),
                    partial(with_gradient, F.scaled_dot_product_attention, q, k, value),
                ],
            }
            for name, three in calls.items():
                repeats = min(400, max(1, 3_000_000 // (length * length * size)))
                slow, quick, fused = fastest(three, repeats)
                rows.setdefault(f"time, {name}", []).append(round(slow / quick, 2))
                rows.setdefault(f"time, {name}, torch", []).append(round(slow / fused, 2))
                held = [peak_memory(call) for call in three[:2]]
                rows.setdefault(f"memory, {name}", []).append(round(held[0] / held[1], 2))
        result[str(length)] = rows
    return result


if __name__ == "__main__":
    repeat(run, __file__)
