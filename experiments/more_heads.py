"""Are more heads better? Eight names at once, asked by wider networks than in ``heads_at_once``.

Chapter 08 plots these runs. The task, the network and the choice of a learning rate are those of
``heads_at_once``; here one position asks for all eight names of its sequence, tokens have 128
entries, and training is twice as long.
``python -m experiments.more_heads`` repeats the recorded runs.
"""

from typing import Any

from experiments.heads_at_once import measure, train
from experiments.repeat import repeat

HEADS, RATES = (1, 4, 16, 32), (0.001, 0.002, 0.004, 0.008)
ASKED, SIZE, STEPS = 8, 128, 1000


def run(seed: int) -> dict[str, Any]:
    """Share of right numbers for every number of heads: at the best rate, and at all."""
    p, heads = train(ASKED, seed, steps=STEPS, size=SIZE, heads_tried=HEADS, rates_tried=RATES)
    validation, test = (one.view(len(HEADS), -1) for one in measure(p, heads, ASKED, seed))
    best = validation.argmax(-1, keepdim=True)
    return {
        "heads": list(HEADS),
        "rates": list(RATES),
        "right": test.gather(1, best)[:, 0].tolist(),
        "at rates": test.tolist(),
    }


if __name__ == "__main__":
    repeat(run, __file__)
