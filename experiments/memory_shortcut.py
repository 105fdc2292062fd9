"""Three steps with two hops: size and tying apart, and a circle in which no short cut exists.

Chapter 06 plots its runs. In a circle of six the symbol three steps ahead is also three steps
behind; in a circle of eight it is not.
"""

from typing import Any

from experiments.memory_pointers import RECIPES, test, train
from experiments.repeat import repeat

STEPS = 1000
TRIES = 3  # first numbers for each recipe
NETWORKS = {  # symbols, hops, tying, size of the vectors
    "6, shared": (6, 2, "adjacent", 32),
    "6, shared, twice the size": (6, 2, "adjacent", 64),
    "6, own, half the size": (6, 2, "untied", 16),
    "6, own": (6, 2, "untied", 32),
    "8, own": (8, 2, "untied", 32),
    "8, three hops": (8, 3, "adjacent", 32),
}


def run(seed: int) -> dict[str, Any]:
    """Accuracy of each network, and where the hops of the best one look."""
    result = {}
    recipes = [recipe for recipe in RECIPES for _ in range(TRIES)]
    asked = [3] * len(recipes)
    for name, (symbols, hops, tying, size) in NETWORKS.items():
        tables = train(
            symbols, asked, hops, recipes, seed=seed, tying=tying, size=size, steps=STEPS
        )
        reached, looked, (story, question, answer) = test(tables, tying, symbols, asked, seed)
        best = max(range(len(reached)), key=reached.__getitem__)
        names_start = (story == question[:, :, None]).any(-1)
        names_answer = (story == answer[best][:, None, None]).any(-1)
        result[name] = {
            "parameters": tables[0].numel(),
            "accuracy": reached,
            "start": (looked[best, :, 0] * names_start).sum(1).mean().item(),
            "answer": (looked[best, :, 1] * names_answer).sum(1).mean().item(),
        }
    return result


if __name__ == "__main__":
    repeat(run, __file__)
