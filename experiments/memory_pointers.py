"""Memory networks of one, two and three hops on questions of one, two and three steps.

Chapter 06 shows this code and plots its runs. Networks that differ in their first numbers, in their
recipe or in the question are trained side by side, with one leading axis for the networks: many
small products become a few larger ones. It is the arithmetic of ``attn_course.nn.MemoryNetwork``,
which every run begins by checking.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course import functional
from attn_course.data import pointer_chase
from attn_course.nn import MemoryNetwork
from experiments.repeat import repeat

STEPS, SIZE = 800, 32
RECIPES = ((0.1, 300), (0.3, 0))  # spread of the first numbers, steps without the softmax


def draw(symbols: int, asked: list[int], count: int, seed: Tensor | torch.Generator) -> Any:
    """Stories, questions and, for each entry of ``asked``, the answer after so many steps."""
    batch = pointer_chase(count, seed, num_symbols=symbols, steps=1)
    _, arrived = walk(batch.story, batch.question, max(asked))
    return batch.story, batch.question, torch.stack([arrived[:, k - 1] for k in asked])


def walk(
    story: Tensor, question: Tensor, steps: int, backwards: bool = False
) -> tuple[Tensor, Tensor]:
    """For each step the sentence that it needs, and the symbol that it leads to, (B, steps)."""
    here, places, arrived = question[:, 0], [], []
    leaves, enters = (1, 0) if backwards else (0, 1)
    for _ in range(steps):
        places.append((story[:, :, leaves] == here[:, None]).int().argmax(1))
        here = story[torch.arange(len(story)), places[-1], enters]
        arrived.append(here)
    return torch.stack(places, dim=1), torch.stack(arrived, dim=1)


def roles(tying: str, hops: int) -> list[int]:
    """Which table the question, A and C of each hop, and the answer use."""
    if tying == "adjacent":
        return [0, *(table for hop in range(hops) for table in (hop, hop + 1)), hops]
    return list(range(2 * hops + 2))


def read(
    tables: Tensor, tying: str, story: Tensor, question: Tensor, linear: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (R, B, V) and weights (R, B, K, N) of R networks; ``tables`` is (R, T, V, D)."""
    _, count, vocab, size = tables.shape
    hops = count - 1 if tying == "adjacent" else count // 2 - 1
    first, *inner, last = roles(tying, hops)
    words = F.one_hot(story, vocab).float().flatten(2).flatten(0, 1)  # (B * N, 2 * V)
    places = functional.position_encoding(2, size)[:, None]  # (2, 1, D)
    weighted = (tables[:, :, None] * places).flatten(2, 3)  # (R, T, 2 * V, D)
    memories = (words @ weighted).unflatten(2, story.shape[:2])  # (R, T, B, N, D)
    query = tables[:, first, question[:, 0]] * functional.position_encoding(1, size)
    looked = []
    for hop in range(hops):
        memory_in, memory_out = (memories[:, table] for table in inner[2 * hop : 2 * hop + 2])
        scores = (memory_in @ query[..., None])[..., 0]  # (R, B, N)
        weights = scores.softmax(-1)
        if linear is not None:
            weights = torch.where(linear[:, None, None], scores, weights)
        query = query + (weights[..., None, :] @ memory_out)[..., 0, :]
        looked.append(weights)
    return query @ tables[:, last].mT, torch.stack(looked, dim=2)


def train(
    symbols: int,
    asked: list[int],
    hops: int,
    recipes: list[tuple[float, int]],
    *,
    seed: int,
    tying: str = "adjacent",
    size: int = SIZE,
    steps: int = STEPS,
    batch_size: int = 64,
    peak: float = 0.02,
) -> Tensor:
    """One network per entry of ``asked`` and ``recipes``: Adam with warm-up and decay."""
    generator = torch.Generator().manual_seed(seed)
    count = hops + 1 if tying == "adjacent" else 2 * hops + 2
    spread, linear_steps = (torch.tensor(column) for column in zip(*recipes, strict=True))
    shape = (len(recipes), count, symbols + 4, size)
    tables = torch.randn(shape, generator=torch.Generator().manual_seed(seed + 1))
    tables = (tables * spread[:, None, None, None]).requires_grad_()
    optimizer = torch.optim.Adam([tables], fused=True)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = peak * min(1, (step + 1) / 20) * (1 - 0.9 * step / steps)
        story, question, answers = draw(symbols, asked, batch_size, generator)
        logits, _ = read(tables, tying, story, question, linear_steps > step)
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="sum")
        optimizer.zero_grad()
        (loss / batch_size).backward()
        norm = tables.grad.flatten(1).norm(dim=1)  # each network is clipped by itself
        tables.grad *= (40 / norm.clamp(min=40))[:, None, None, None]
        optimizer.step()
    return tables.detach()


@torch.no_grad()
def test(
    tables: Tensor, tying: str, symbols: int, asked: list[int], seed: int
) -> tuple[list[float], Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Accuracy of each network on 2,000 new stories, where it looked, and the stories."""
    batch = draw(symbols, asked, 2000, torch.Generator().manual_seed(10_000 + seed))
    logits, looked = read(tables, tying, batch[0], batch[1])
    return (logits.argmax(-1) == batch[2]).double().mean(1).tolist(), looked, batch


def on_the_way(looked: Tensor, story: Tensor, question: Tensor) -> dict[str, list[list[float]]]:
    """Mean weight of each hop (rows) on the sentence of each step (columns), either way round."""
    found = {}
    for name, backwards in (("forwards", False), ("backwards", True)):
        needed, _ = walk(story, question, looked.shape[1], backwards)
        there = looked.gather(2, needed[:, None].expand(-1, looked.shape[1], -1))
        found[name] = there.mean(0).tolist()
    return found


@torch.no_grad()
def check_against_package(tables: Tensor, story: Tensor, question: Tensor) -> None:
    """One of the networks is ``MemoryNetwork`` with these tables."""
    net = MemoryNetwork(
        vocab_size=tables.shape[2],
        embed_dim=tables.shape[3],
        max_sentences=story.shape[1],
        hops=tables.shape[1] - 1,
        temporal_encoding=False,
    )
    for table, numbers in zip(net.words, tables[0], strict=True):
        table.weight.copy_(numbers)
    logits, looked = read(tables[:1], "adjacent", story, question)
    expected, weights = net.read(story, question)
    torch.testing.assert_close(logits[0], expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(looked[0], weights, rtol=1e-3, atol=1e-4)


def run(seed: int) -> dict[str, Any]:
    """Accuracy by steps (rows) and hops (columns) for either recipe, and where hops look."""
    asked = [k for k in (1, 2, 3) for _ in RECIPES]
    columns, result = [], {}
    for hops in (1, 2, 3):
        tables = train(6, asked, hops, list(RECIPES) * 3, seed=seed)
        reached, looked, batch = test(tables, "adjacent", 6, asked, seed)
        columns.append(reached)
        if hops == 1:
            check_against_package(tables, *batch[:2])
            continue
        last = len(RECIPES) * (hops - 1)  # as many steps as hops, in the better recipe
        solved = max(range(last, last + len(RECIPES)), key=reached.__getitem__)
        result[f"looks_{hops}"] = on_the_way(looked[solved], *batch[:2])
    logits, _ = read(tables, "adjacent", batch[0].roll(1, dims=0), batch[1])
    right = logits.argmax(-1) == batch[2]
    result["another_story"] = right[solved].double().mean().item()
    for i, name in enumerate(("linear start", "softmax from the start")):
        result[name] = [[column[2 * k + i] for column in columns] for k in range(3)]
    return result


if __name__ == "__main__":
    repeat(run, __file__)
