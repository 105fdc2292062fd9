"""Linear start against softmax from the start, each at six spreads of the first numbers.

Chapter 06 plots its runs. Two steps among eight symbols, two hops; twelve networks side by side.
"""

from typing import Any

from experiments.memory_pointers import test, train, walk
from experiments.repeat import repeat

SPREADS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
RECIPES = {"linear start": 300, "softmax from the start": 0}


def run(seed: int) -> dict[str, Any]:
    """Accuracy, and the weight of the first hop on the two pointers that name the start."""
    recipes = [(spread, linear) for linear in RECIPES.values() for spread in SPREADS]
    asked = [2] * len(recipes)
    tables = train(8, asked, 2, recipes, seed=seed)
    reached, looked, (story, question, _) = test(tables, "adjacent", 8, asked, seed)
    result: dict[str, Any] = {"spreads": list(SPREADS)}
    for i, name in enumerate(RECIPES):
        rows = slice(i * len(SPREADS), (i + 1) * len(SPREADS))
        first = {}
        for which, backwards in (("leaves", False), ("enters", True)):
            place, _ = walk(story, question, 1, backwards)
            weight = looked[rows, :, 0].gather(2, place.expand(len(SPREADS), -1, -1))
            first[which] = weight.mean((1, 2)).tolist()
        result[name] = {"accuracy": reached[rows], "first look": first}
    return result


if __name__ == "__main__":
    repeat(run, __file__)
