"""Is W_V needed where tokens are too narrow to keep what was found apart from what was there?

Chapter 07 plots these runs. The network is that of ``attention_ablations``, with tokens of 4, 5 and
6 dimensions for 8 names and 8 numbers. *Difference* has to tell the own number from the found one;
*sum* is the control, where the two may be exchanged. With and without W_V, each at the best of five
learning rates. ``python -m experiments.value_matrix`` repeats the recorded runs.
"""

from typing import Any

from experiments.attention_ablations import PARTS, Task, measure, train
from experiments.repeat import repeat

SIZES, RATES = (4, 5, 6), (0.005, 0.01, 0.02, 0.04, 0.08)
WAYS = {way: PARTS[way] for way in ("whole", "no W_V")}


def run(seed: int) -> dict[str, Any]:
    """Share of right test answers for every task, size and way: at the best rate, and at each."""
    result: dict[str, Any] = {"sizes": list(SIZES), "rates": list(RATES)}
    for answer in ("difference", "sum"):
        result[answer] = {way: {"right": [], "at rates": []} for way in WAYS}
        for size in SIZES:
            task = Task(8, 4, 8, size, answer, 800)
            p, kinds = train(task, seed, WAYS, RATES)
            validation, test = (one.view(len(WAYS), -1) for one in measure(p, kinds, task, seed))
            for i, way in enumerate(WAYS):
                best = int(validation[i].argmax())
                result[answer][way]["right"].append(round(test[i, best].item(), 4))
                result[answer][way]["at rates"].append([round(x, 4) for x in test[i].tolist()])
    return result


if __name__ == "__main__":
    repeat(run, __file__)
