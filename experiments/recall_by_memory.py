"""How many pairs a memory of fixed size can hold: softmax, Linformer, linear attention, delta rule.

Chapter 15 shows this code and plots its runs. A sequence holds pairs of a name and a number; at the
end some names are asked for. Every model has one head of 8 dimensions, one layer and the same
parameters but for its attention, and learns a vector for each name and number. Each is trained at
four learning rates, and the rate that does best on validation sequences counts. Networks are
trained side by side, with one leading axis for them.

In ``recall n`` the text grows with its pairs. ``recall 4 of 32`` tells the two apart: 32 places, of
which 4 that are drawn hold pairs and the others nothing. And a Linformer with k = 32 runs beside
the one with k = 8.
``python -m experiments.recall_by_memory`` repeats the recorded runs.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course import functional
from experiments.repeat import repeat

RATES = (0.01, 0.03, 0.1, 0.3)
NAMES, NUMBERS, SIZE, BATCH, STEPS = 64, 8, 8, 12, 480
RANKS = {"Linformer": 8, "Linformer, k = 32": 32}
WAYS = ("softmax", "linear, elu", "linear, plain", "delta rule", *RANKS)


class Task(NamedTuple):
    """Pairs told, how often each name is told, what is asked, and among how many places."""

    pairs: int
    times: int = 1
    asks: str = "number"
    places: int = 0  # 0: as many as there are pairs

    @property
    def length(self) -> int:
        """Positions of a text."""
        return self.places or self.pairs * self.times


TASKS = {
    **{f"recall {n}": Task(n) for n in (4, 8, 32)},
    "told twice": Task(4, times=2),
    "most 32": Task(32, asks="most"),
    "recall 4 of 32": Task(4, places=32),
}


def draw(
    task: Task, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Names and numbers (count, S), asked names (count, A) and the answers."""
    names = torch.rand(count, NAMES, generator=generator).argsort(-1)[:, : task.pairs]
    numbers = torch.randint(NUMBERS, (count, task.times, task.pairs), generator=generator)
    if task.asks == "most":
        # one number is told more often than the others
        chosen = torch.randint(NUMBERS, (count, 1, 1), generator=generator)
        often = torch.rand(numbers.shape, generator=generator) < 0.5
        numbers = torch.where(often, chosen, numbers)
        return names, numbers.flatten(1), names[:, :1], chosen[:, 0]
    told, said = names.repeat(1, task.times), numbers.flatten(1)
    asked = torch.randint(task.pairs, (count, min(8, task.pairs)), generator=generator)
    if task.places:  # the last rows of both tables stand for a place without a pair
        where = torch.rand(count, task.places, generator=generator).argsort(-1)[:, : task.pairs]
        told = torch.full((count, task.places), NAMES).scatter(1, where, told)
        said = torch.full((count, task.places), NUMBERS).scatter(1, where, said)
    return told, said, names.gather(1, asked), numbers[:, -1].gather(1, asked)


def build(seed: int, task: Task) -> dict[str, Tensor]:
    """The same first numbers for all networks."""
    blank = int(task.places > 0)
    generator, networks = torch.Generator().manual_seed(seed), len(WAYS) * len(RATES)

    def table(*shape: int, spread: float = 1.0) -> Tensor:
        numbers = torch.randn(*shape, generator=generator) * spread
        return numbers.repeat(networks, *(1 for _ in shape)).requires_grad_()

    p = {
        "names": table(NAMES + blank, SIZE),
        "numbers": table(NUMBERS + blank, SIZE),
        "sharpness": torch.ones(networks, 1, 1, 1, requires_grad=True),
        "beta": torch.ones(networks, 1, 1, requires_grad=True),
    }
    for way, rank in RANKS.items():
        for part in ("key", "value"):
            p[f"{way}, {part}"] = table(rank, task.length, spread=rank**-0.5)
    return p | {"out": table(NUMBERS, SIZE, spread=SIZE**-0.5)}


def attend(way: str, p: dict[str, Tensor], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What the queries find, (R, B, A, SIZE): networks in the place of the batch, texts of heads.

    Softmax takes names as they are; the memories take them at length 1, elu features behind it.
    """
    sharp = p["sharpness"]
    if way == "softmax":
        return functional.scaled_dot_product_attention(q * sharp, k, v)
    if way in RANKS:
        mixes = [p[f"{way}, {part}"][:, None] for part in ("key", "value")]
        return functional.scaled_dot_product_attention(q * sharp, mixes[0] @ k, mixes[1] @ v)
    if way == "linear, elu":
        return functional.linear_attention(q * sharp, k * sharp, v)
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    if way == "linear, plain":
        return q @ (k.mT @ v)
    beta = torch.sigmoid(2 * p["beta"]).expand(k.shape[:3])
    _, state = functional.delta_rule(k, k, v, beta)
    return q @ state.mT


def look_up(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of R tables (R, N, SIZE) for the same ids: (R, *ids, SIZE)."""
    networks, rows, _ = table.shape
    shift = torch.arange(networks).view(-1, *(1,) * ids.ndim) * rows
    return F.embedding(ids + shift, table.flatten(0, 1))


def forward(p: dict[str, Tensor], names: Tensor, numbers: Tensor, asked: Tensor) -> Tensor:
    """Logits (R, B, A, NUMBERS) of R networks."""
    key, value, query = (
        look_up(p[table], ids)
        for table, ids in (("names", names), ("numbers", numbers), ("names", asked))
    )
    found = []
    for number, way in enumerate(WAYS):
        part = slice(number * len(RATES), (number + 1) * len(RATES))
        mine = {name: table[part] for name, table in p.items()}
        found.append(attend(way, mine, query[part], key[part], value[part]))
    return torch.cat(found) @ p["out"][:, None].mT


def train(task: Task, seed: int) -> dict[str, Tensor]:
    """One network for each way and rate, by Adam with warm-up and decay."""
    p = build(seed, task)
    rates = torch.tensor(RATES * len(WAYS))
    generator = torch.Generator().manual_seed(seed + 1)
    moments = {name: (torch.zeros_like(v), torch.zeros_like(v)) for name, v in p.items()}
    for step in range(1, STEPS + 1):
        names, numbers, asked, answer = draw(task, BATCH, generator)
        logits = forward(p, names, numbers, asked)
        target = answer.expand(len(logits), *answer.shape)
        loss = F.cross_entropy(logits.flatten(0, 2), target.flatten(), reduction="sum")
        gradients = torch.autograd.grad(loss / answer.numel(), list(p.values()))
        rate = rates * min(1, step / 20) * (1 - 0.9 * step / STEPS)
        with torch.no_grad():
            for (name, value), gradient in zip(p.items(), gradients, strict=True):
                first, second = moments[name]
                first.lerp_(gradient, 0.1)
                second.lerp_(gradient.square(), 0.01)
                root = (second / (1 - 0.99**step)).sqrt() + 1e-8
                each = rate.view(-1, *(1,) * (value.ndim - 1))
                value -= each * first / (1 - 0.9**step) / root
    return p


@torch.no_grad()
def right_answers(p: dict[str, Tensor], task: Task, count: int, seed: int) -> Tensor:
    """Share of right answers of each network."""
    *inputs, answer = draw(task, count, torch.Generator().manual_seed(seed))
    return (forward(p, *inputs).argmax(-1) == answer).double().mean((-2, -1))


def run(seed: int) -> dict[str, Any]:
    """Share of right test answers for every task and way, at the rate that validation chose."""
    result: dict[str, Any] = {}
    at_rates: dict[str, Any] = {}
    for name, task in TASKS.items():
        p = train(task, seed)
        validation, test = (
            right_answers(p, task, 400, seed + shift).view(len(WAYS), -1)
            for shift in (10_000, 20_000)
        )
        best = validation.argmax(-1)
        result[name] = {way: test[i, best[i]].item() for i, way in enumerate(WAYS)}
        at_rates[name] = {
            way: [list(pair) for pair in zip(RATES, validation[i].tolist(), strict=True)]
            for i, way in enumerate(WAYS)
        }
    return {"right": result, "validation": at_rates}


if __name__ == "__main__":
    repeat(run, __file__)
