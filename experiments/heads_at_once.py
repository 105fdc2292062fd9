"""Several looks at once: how many names can one position ask for, and with how many heads?

Chapter 08 shows this code and plots its runs. A sequence holds pairs of a name and a number, and a
last token that asks for several names at once; the number of each of them is to be said. Networks
differ in nothing but the number of heads: W_Q, W_K, W_V and W_O have the same shapes and the same
first entries, and head h takes rows hE to (h + 1)E - 1. Every number of heads is trained at three
learning rates, and the one that does best on validation sequences counts. Networks are trained side
by side, with one leading axis for them. What heads cost is timed as well.
``python -m experiments.heads_at_once`` repeats the recorded runs.
"""

import math
import time
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course import nn
from experiments.repeat import repeat

HEADS, ASKED, RATES = (1, 2, 4, 8, 16), (1, 2, 4), (0.006, 0.012, 0.024)
NAMES, TOLD, NUMBERS = 16, 8, 8
SIZE, HIDDEN, BATCH = 32, 64, 64
STEPS = {1: 200, 2: 500, 4: 500}
SPREAD = 2**-0.5  # a token is the sum of two such vectors: its entries have variance 1
# for the times
LENGTH, WIDTH, ROUNDS = 256, 64, 7


def draw(asked: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Names and numbers (count, TOLD), and the places (count, asked) that are asked for."""
    names = torch.rand(count, NAMES, generator=generator).argsort(-1)[:, :TOLD]
    numbers = torch.randint(NUMBERS, (count, TOLD), generator=generator)
    places = torch.rand(count, TOLD, generator=generator).argsort(-1)[:, :asked]
    return names, numbers, places


def build(asked: int, networks: int, seed: int, size: int = SIZE) -> dict[str, Tensor]:
    """The same first numbers for all networks; a token has ``size`` entries."""
    generator = torch.Generator().manual_seed(seed)

    def table(rows: int, columns: int, spread: float) -> Tensor:
        numbers = torch.randn(rows, columns, generator=generator) * spread
        return numbers.repeat(networks, 1, 1).requires_grad_()

    root = size**-0.5
    return {
        "names": table(NAMES, size, SPREAD),
        "numbers": table(NUMBERS, size, SPREAD),
        # what a name means as the first, the second, ... that is asked for
        "asks": table(asked * NAMES, size, asked**-0.5),
        "w_q": table(size, size, root),
        "w_k": table(size, size, root),
        "w_v": table(size, size, root),
        "w_o": table(size, size, root),
        "hidden": table(HIDDEN, size, root),
        "out": table(asked * NUMBERS, HIDDEN, HIDDEN**-0.5),
    }


def look(query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """R networks with the same number of heads: (R, B, D), (R, B, S, D) twice -> (R, B, D)."""
    q = query.unflatten(-1, (heads, -1))  # (R, B, H, E)
    k, v = (x.unflatten(-1, (heads, -1)).transpose(2, 3) for x in (key, value))  # (R, B, H, S, E)
    scores = (k @ q[..., None])[..., 0] / q.shape[-1] ** 0.5  # (R, B, H, S)
    return (scores.softmax(-1)[..., None, :] @ v).flatten(2)  # heads side by side


def forward(
    p: dict[str, Tensor], heads: list[int], names: Tensor, numbers: Tensor, places: Tensor
) -> Tensor:
    """Logits (R, B, asked, NUMBERS) of R networks, network r with ``heads[r]`` heads."""
    slots = torch.arange(places.shape[1]) * NAMES + names.gather(1, places)  # (B, asked)
    asking = p["asks"][:, slots].sum(2)  # (R, B, D)
    query = asking @ p["w_q"].mT
    # W (name + number) = W name + W number, and there are few of each: (R, B, S, D)
    key, value = (
        (p["names"] @ p[w].mT)[:, names] + (p["numbers"] @ p[w].mT)[:, numbers]
        for w in ("w_k", "w_v")
    )
    found, each = [], len(heads) // len(set(heads))
    for first in range(0, len(heads), each):  # neighbours have the same number of heads
        some = slice(first, first + each)
        found.append(look(query[some], key[some], value[some], heads[first]))
    y = F.layer_norm(asking + torch.cat(found) @ p["w_o"].mT, asking.shape[-1:])
    logits = torch.relu(y @ p["hidden"].mT) @ p["out"].mT
    return logits.unflatten(-1, (-1, NUMBERS))


def train(
    asked: int,
    seed: int,
    *,
    steps: int,
    size: int = SIZE,
    heads_tried: tuple[int, ...] = HEADS,
    rates_tried: tuple[float, ...] = RATES,
) -> tuple[dict[str, Tensor], list[int]]:
    """One network for each number of heads and rate, by Adam with warm-up and decay."""
    heads = [h for h in heads_tried for _ in rates_tried]
    rates = torch.tensor(rates_tried * len(heads_tried))[:, None, None]
    p = build(asked, len(heads), seed, size)
    generator = torch.Generator().manual_seed(seed + 1)
    moments = {name: (torch.zeros_like(v), torch.zeros_like(v)) for name, v in p.items()}
    for step in range(1, steps + 1):
        names, numbers, places = draw(asked, BATCH, generator)
        answer = numbers.gather(1, places).expand(len(heads), -1, -1)
        logits = forward(p, heads, names, numbers, places)
        loss = F.cross_entropy(logits.flatten(0, 2), answer.flatten(), reduction="sum")
        gradients = torch.autograd.grad(loss / (BATCH * asked), list(p.values()))
        rate = rates * min(1, step / 20) * (1 - 0.9 * step / steps)
        with torch.no_grad():
            for (name, value), gradient in zip(p.items(), gradients, strict=True):
                first, second = moments[name]
                first.lerp_(gradient, 0.1)
                second.lerp_(gradient.square(), 0.01)
                root = (second / (1 - 0.99**step)).sqrt() + 1e-8
                value -= rate * first / (1 - 0.9**step) / root
    return p, heads


@torch.no_grad()
def measure(p: dict[str, Tensor], heads: list[int], asked: int, seed: int) -> list[Tensor]:
    """Share of right numbers of each network on 500 validation and 1,000 test sequences."""
    found = []
    for count, shift in ((500, 10_000), (1000, 20_000)):
        names, numbers, places = draw(asked, count, torch.Generator().manual_seed(seed + shift))
        logits = forward(p, heads, names, numbers, places)
        right = logits.argmax(-1) == numbers.gather(1, places)
        found.append(right.double().mean((-2, -1)))
    return found


@torch.no_grad()
def check_against_package(p: dict[str, Tensor], heads: list[int], asked: int, seed: int) -> None:
    """The look is the package's multi-head attention, for every number of heads."""
    names, numbers, places = draw(asked, 7, torch.Generator().manual_seed(seed))
    told = p["names"][:, names] + p["numbers"][:, numbers]
    slots = torch.arange(asked) * NAMES + names.gather(1, places)
    asking = p["asks"][:, slots].sum(2)
    parts = ("query", "key", "value", "output")
    for r in range(0, len(heads), len(RATES)):
        module = nn.MultiHeadAttention(embed_dim=SIZE, num_heads=heads[r], bias=False)
        for part in parts:
            getattr(module, f"{part}_projection").weight.copy_(p[f"w_{part[0]}"][r])
        mine = look(
            (asking[r] @ p["w_q"][r].T)[None],
            (told[r] @ p["w_k"][r].T)[None],
            (told[r] @ p["w_v"][r].T)[None],
            heads[r],
        )
        output = module(asking[r][:, None], told[r])[:, 0]
        torch.testing.assert_close(output, mine[0] @ p["w_o"][r].T, rtol=1e-3, atol=1e-4)


def attend(x: Tensor, weights: list[Tensor], heads: int) -> Tensor:
    """Self-attention with the weights written down, projections included."""
    q, k, v = ((x @ w.T).unflatten(-1, (heads, -1)).transpose(1, 2) for w in weights[:3])
    mixed = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
    return mixed.transpose(1, 2).flatten(2) @ weights[3].T


def times(seed: int) -> list[float]:
    """CPU time for each number of heads, as a multiple of one head: the best of several rounds."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, LENGTH, WIDTH, generator=generator)
    weights = [torch.randn(WIDTH, WIDTH, generator=generator) / WIDTH**0.5 for _ in range(4)]
    best = dict.fromkeys(HEADS, math.inf)
    for _ in range(ROUNDS):
        for heads in HEADS:
            start = time.process_time()
            for _ in range(20):
                attend(x, weights, heads)
            best[heads] = min(best[heads], time.process_time() - start)
    return [round(best[heads] / best[1], 2) for heads in HEADS]


def run(seed: int) -> dict[str, Any]:
    """Share of right numbers for every count of names and heads: at the best rate, and at all."""
    result: dict[str, Any] = {"heads": list(HEADS), "times": times(seed)}
    for asked in ASKED:
        p, heads = train(asked, seed, steps=STEPS[asked])
        check_against_package(p, heads, asked, seed)
        validation, test = (one.view(len(HEADS), -1) for one in measure(p, heads, asked, seed))
        best = validation.argmax(-1, keepdim=True)
        result[f"asked {asked}"] = {
            "right": test.gather(1, best)[:, 0].tolist(),
            "at rates": test.tolist(),
        }
    return result


if __name__ == "__main__":
    repeat(run, __file__)
