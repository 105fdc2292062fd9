"""What the feed-forward part is for, and which one: the same layer with six parts after attention.

Chapter 09 shows this code and plots its runs. A sequence holds pairs of a name and a number, and a
last token, which has a number of its own, asks for one of the names. In one task the answer is the
number that was found. In the other it stands in a table of random answers, in the row of the asking
token's number and the column of the one that was found. After one look comes a part of the layer:
nothing, a second look, two linear maps, or a feed-forward part (ReLU, GELU, SwiGLU); all but the
first have as many entries. Each is trained at three learning rates, and the one that does best on
validation sequences counts. Networks of one kind are trained side by side.
``python -m experiments.feed_forward_kinds`` repeats the recorded runs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.functional import feed_forward
from experiments.repeat import repeat

KINDS = ("nothing", "a second look", "linear", "ReLU", "GELU", "SwiGLU")
RATES = (0.003, 0.01, 0.03)
NUMBERS, NAMES, TOLD = 10, 8, 4
WIDTH, HIDDEN, GATED = 24, 48, 32  # 2 * 24 * 48 entries, 3 * 24 * 32, or 4 * 24 * 24
BATCH, STEPS = 64, 500
# the same table for all seeds: what is drawn anew are names, numbers and weights
TABLE = torch.randint(NUMBERS, (NUMBERS, NUMBERS), generator=torch.Generator().manual_seed(0))
BENDS: dict[str, Callable[[Tensor], Tensor]] = {"ReLU": torch.relu, "GELU": F.gelu}


def draw(task: str, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Names and numbers (count, TOLD + 1), the asking token last, and the answers."""
    names = torch.rand(count, NAMES, generator=generator).argsort(-1)[:, :TOLD]
    numbers = torch.randint(NUMBERS, (count, TOLD + 1), generator=generator)
    place = torch.randint(TOLD, (count, 1), generator=generator)
    found, own = numbers.gather(1, place)[:, 0], numbers[:, -1]
    answer = found if task == "look up" else TABLE[own, found]
    return torch.cat([names, names.gather(1, place)], dim=1), numbers, answer


def build(kind: str, seed: int) -> dict[str, Tensor]:
    """The same first numbers for all networks of a kind."""
    generator = torch.Generator().manual_seed(seed)

    def table(rows: int, columns: int, spread: float | None = None) -> Tensor:
        spread = columns**-0.5 if spread is None else spread
        numbers = torch.randn(rows, columns, generator=generator) * spread
        repeated: Tensor = numbers.repeat(len(RATES), 1, 1)
        return repeated.requires_grad_()

    p = {
        "names": table(NAMES, WIDTH, 3**-0.5),
        "numbers": table(NUMBERS, WIDTH, 3**-0.5),
        "asks": table(1, WIDTH, 3**-0.5),
        "answer": table(NUMBERS, WIDTH),
    }
    p |= {key: table(WIDTH, WIDTH) for key in ("q", "k", "v", "o")}
    if kind == "a second look":
        return p | {f"{key}2": table(WIDTH, WIDTH) for key in ("q", "k", "v", "o")}
    if kind == "nothing":
        return p
    hidden = GATED if kind == "SwiGLU" else HIDDEN
    p |= {"up": table(hidden, WIDTH), "down": table(WIDTH, hidden)}
    return p | {"gate": table(hidden, WIDTH)} if kind == "SwiGLU" else p


def norm(x: Tensor) -> Tensor:
    """Mean 0 and variance 1 for each vector."""
    return F.layer_norm(x, x.shape[-1:])


def attend(p: dict[str, Tensor], x: Tensor, mark: str = "") -> Tensor:
    """One look of every token at all of them, (R, B, L, D)."""
    query, key, value = (x @ p[name + mark][:, None].mT for name in "qkv")
    weights = (query @ key.mT / WIDTH**0.5).softmax(-1)
    output: Tensor = weights @ value @ p["o" + mark][:, None].mT
    return output


def part(p: dict[str, Tensor], x: Tensor, kind: str) -> Tensor:
    """What comes after the look."""
    if kind == "a second look":
        return attend(p, x, "2")
    hidden = x @ p["up"][:, None].mT
    if kind == "SwiGLU":
        hidden = F.silu(x @ p["gate"][:, None].mT) * hidden
    elif kind in BENDS:
        hidden = BENDS[kind](hidden)
    return hidden @ p["down"][:, None].mT


def forward(p: dict[str, Tensor], kind: str, names: Tensor, numbers: Tensor) -> Tensor:
    """Logits (R, B, NUMBERS): a pre-norm layer, then the asking token's vector is read."""
    x = p["names"][:, names] + p["numbers"][:, numbers]
    x = torch.cat([x[:, :, :-1], x[:, :, -1:] + p["asks"][:, None]], dim=2)
    x = x + attend(p, norm(x))
    if kind != "nothing":
        x = x + part(p, norm(x), kind)
    return norm(x[:, :, -1]) @ p["answer"].mT


def train(task: str, kind: str, seed: int) -> dict[str, Tensor]:
    """One network for each rate, by Adam with a short warm-up and decay."""
    p = build(kind, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    moments = {name: (torch.zeros_like(v), torch.zeros_like(v)) for name, v in p.items()}
    for step in range(1, STEPS + 1):
        names, numbers, answer = draw(task, BATCH, generator)
        logits = forward(p, kind, names, numbers)
        loss = F.cross_entropy(logits.flatten(0, 1), answer.repeat(len(RATES)), reduction="sum")
        gradients = torch.autograd.grad(loss / BATCH, list(p.values()))
        rate = torch.tensor(RATES)[:, None, None] * min(1, step / 20) * (1 - 0.9 * step / STEPS)
        with torch.no_grad():
            for (name, value), gradient in zip(p.items(), gradients, strict=True):
                first, second = moments[name]
                first.lerp_(gradient, 0.1)
                second.lerp_(gradient.square(), 0.01)
                root = (second / (1 - 0.99**step)).sqrt() + 1e-8
                value -= rate * first / (1 - 0.9**step) / root
    return p


@torch.no_grad()
def right(p: dict[str, Tensor], task: str, kind: str, seed: int, count: int) -> Tensor:
    """Share of right answers of each network."""
    names, numbers, answer = draw(task, count, torch.Generator().manual_seed(seed))
    return (forward(p, kind, names, numbers).argmax(-1) == answer).double().mean(-1)


@torch.no_grad()
def check_against_package(p: dict[str, Tensor], kind: str, seed: int) -> None:
    """A part with a bend is the package's feed-forward part."""
    x = torch.randn(1, 3, 5, WIDTH, generator=torch.Generator().manual_seed(seed))
    expected = feed_forward(x[0], p["up"][0], p["down"][0], activation=BENDS[kind])
    torch.testing.assert_close(part(p, x, kind)[0], expected, rtol=1e-3, atol=1e-4)


def run(seed: int) -> dict[str, Any]:
    """Share of right test answers for each task and kind, at the best rate and at every one."""
    result: dict[str, Any] = {}
    for task, kind in (("look up", "nothing"), *(("table", kind) for kind in KINDS)):
        p = train(task, kind, seed)
        if kind in BENDS:
            check_against_package(p, kind, seed)
        validation = right(p, task, kind, seed + 10_000, 1000)
        test = right(p, task, kind, seed + 20_000, 2000)
        result.setdefault(task, {})[kind] = {
            "right": test[validation.argmax()].item(),
            "at rates": test.tolist(),
        }
    return result


if __name__ == "__main__":
    repeat(run, __file__)
