"""One look with a part taken out: no W_V, no softmax, neither, and no choice at all.

Chapter 07 shows this code and plots its runs. A sequence holds pairs of a name and a number, and a
last token that asks for one of the names; its number, or what it makes together with the number of
the asking token, is the answer. Every way of taking something out is trained at three learning
rates, and the one that does best on validation sequences counts. Networks are trained side by side,
with one leading axis for them.
``python -m experiments.attention_ablations`` repeats the recorded runs.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.functional import scaled_dot_product_attention
from experiments.repeat import repeat

RATES = (0.003, 0.01, 0.02)
# what the weights are made of, and whether W_V is kept
PARTS = {
    "whole": ("softmax", True),
    "no W_V": ("softmax", False),
    "no softmax": ("scores", True),
    "neither": ("scores", False),
    "equal weights": ("equal", True),
}
NUMBERS, HIDDEN, BATCH = 8, 64, 64
SPREAD = 3**-0.5  # a token is the sum of three such vectors: its entries have variance 1


class Task(NamedTuple):
    """Names there are and are told, size of query and key and of a token, what is asked, steps."""

    names: int
    told: int
    head_dim: int
    size: int = 48
    answer: str = "found"
    steps: int = 600


TASKS = {
    "look up, 4 of 8": Task(8, 4, 8, 32, steps=300),
    "look up, 16 of 32": Task(32, 16, 4, steps=400),
    "look up, 16 of 32, wide": Task(32, 16, 32, steps=400),
    "sum": Task(8, 4, 8, 16, "sum", 600),
    "difference": Task(8, 4, 8, 16, "difference", 600),
}


def draw(task: Task, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Names and numbers (count, told + 1), the asking token last, and the answers."""
    names = torch.rand(count, task.names, generator=generator).argsort(-1)[:, : task.told]
    numbers = torch.randint(NUMBERS, (count, task.told + 1), generator=generator)
    place = torch.randint(task.told, (count, 1), generator=generator)
    found, own = numbers.gather(1, place)[:, 0], numbers[:, -1].clone()
    if task.answer == "found":
        numbers[:, -1] = NUMBERS  # the asking token has no number of its own
        answer = found
    else:
        answer = (own + found if task.answer == "sum" else own - found) % NUMBERS
    return torch.cat([names, names.gather(1, place)], dim=1), numbers, answer


def build(task: Task, networks: int, seed: int) -> dict[str, Tensor]:
    """The same first numbers for all networks."""
    generator, size = torch.Generator().manual_seed(seed), task.size

    def table(rows: int, columns: int, spread: float) -> Tensor:
        numbers = torch.randn(rows, columns, generator=generator) * spread
        return numbers.repeat(networks, 1, 1).requires_grad_()

    return {
        "names": table(task.names, size, SPREAD),
        "numbers": table(NUMBERS + 1, size, SPREAD),
        "asks": table(1, size, SPREAD),
        "w_q": table(task.head_dim, size, size**-0.5),
        "w_k": table(task.head_dim, size, size**-0.5),
        "w_v": table(size, size, size**-0.5),
        "hidden": table(HIDDEN, size, size**-0.5),
        "out": table(NUMBERS, HIDDEN, HIDDEN**-0.5),
    }


def forward(
    p: dict[str, Tensor], kinds: list[tuple[str, bool]], names: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits (R, B, NUMBERS) and weights (R, B, told + 1) of R networks for the asking token."""
    x = p["names"][:, names] + p["numbers"][:, numbers]  # (R, B, S, D)
    asking = x[:, :, -1] + p["asks"]  # (R, B, D)
    x = torch.cat([x[:, :, :-1], asking[:, :, None]], dim=2)
    # q.k = (W_Q x_i).(W_K x_j), with the matrices put together first
    query = asking @ p["w_q"].mT @ p["w_k"]  # (R, B, D)
    scores = (x @ query[..., None])[..., 0] / p["w_q"].shape[1] ** 0.5  # (R, B, S)
    n = scores.shape[-1]
    ways = {"softmax": scores.softmax(-1), "scores": scores / n**0.5, "equal": 0 * scores + 1 / n}
    weights = torch.stack([ways[way][i] for i, (way, _) in enumerate(kinds)])
    read = (weights[:, :, None] @ x)[:, :, 0]  # (R, B, D): W_V after the sum, which is the same
    turned = read @ p["w_v"].mT
    keeps = torch.tensor([keep for _, keep in kinds])[:, None, None]
    y = F.layer_norm(asking + torch.where(keeps, turned, read), x.shape[-1:])
    return torch.relu(y @ p["hidden"].mT) @ p["out"].mT, weights


def train(
    task: Task,
    seed: int,
    parts: Mapping[str, tuple[str, bool]] = PARTS,
    rates_tried: tuple[float, ...] = RATES,
) -> tuple[dict[str, Tensor], list[tuple[str, bool]]]:
    """One network for each way and rate, by Adam with warm-up and decay."""
    kinds = [kind for kind in parts.values() for _ in rates_tried]
    rates = torch.tensor(rates_tried * len(parts))[:, None, None]
    p = build(task, len(kinds), seed)
    generator = torch.Generator().manual_seed(seed + 1)
    moments = {name: (torch.zeros_like(v), torch.zeros_like(v)) for name, v in p.items()}
    for step in range(1, task.steps + 1):
        names, numbers, answer = draw(task, BATCH, generator)
        logits, _ = forward(p, kinds, names, numbers)
        loss = F.cross_entropy(logits.flatten(0, 1), answer.repeat(len(kinds)), reduction="sum")
        gradients = torch.autograd.grad(loss / BATCH, list(p.values()))
        rate = rates * min(1, step / 20) * (1 - 0.9 * step / task.steps)
        with torch.no_grad():
            for (name, value), gradient in zip(p.items(), gradients, strict=True):
                first, second = moments[name]
                first.lerp_(gradient, 0.1)
                second.lerp_(gradient.square(), 0.01)
                root = (second / (1 - 0.99**step)).sqrt() + 1e-8
                value -= rate * first / (1 - 0.9**step) / root
    return p, kinds


@torch.no_grad()
def measure(
    p: dict[str, Tensor], kinds: list[tuple[str, bool]], task: Task, seed: int
) -> tuple[Tensor, Tensor]:
    """Accuracy of each network on 1,000 validation and on 2,000 test sequences."""
    found = []
    for count, shift in ((1000, 10_000), (2000, 20_000)):
        names, numbers, answer = draw(task, count, torch.Generator().manual_seed(seed + shift))
        logits, _ = forward(p, kinds, names, numbers)
        found.append((logits.argmax(-1) == answer).double().mean(-1))
    return found[0], found[1]


@torch.no_grad()
def check_against_package(p: dict[str, Tensor], task: Task, seed: int) -> None:
    """The whole network's look is scaled dot-product attention with W_Q, W_K and W_V."""
    names, numbers, _ = draw(task, 7, torch.Generator().manual_seed(seed))
    _, weights = forward(p, [("softmax", True)] * len(p["w_q"]), names, numbers)
    x = p["names"][0][names] + p["numbers"][0][numbers]
    x[:, -1] += p["asks"][0]
    query, key, value = (x @ p[w][0].T for w in ("w_q", "w_k", "w_v"))
    output = scaled_dot_product_attention(query[:, None, -1:], key[:, None], value[:, None])
    torch.testing.assert_close(
        output[:, 0], weights[0][:, None] @ x @ p["w_v"][0].T, rtol=1e-3, atol=1e-4
    )


def run(seed: int) -> dict[str, Any]:
    """Share of right test answers for every task and way: at the best rate, and at every rate."""
    result: dict[str, Any] = {}
    for name, task in TASKS.items():
        p, kinds = train(task, seed)
        check_against_package(p, task, seed)
        validation, test = (one.view(len(PARTS), -1) for one in measure(p, kinds, task, seed))
        best = validation.argmax(-1)
        result[name] = {
            way: {"right": test[i, best[i]].item(), "at rates": test[i].tolist()}
            for i, way in enumerate(PARTS)
        }
    return result


if __name__ == "__main__":
    repeat(run, __file__)
