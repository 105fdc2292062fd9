"""Four models of ``score_table``, each at four learning rates: which differences are the rate's?

Same task, batches, steps and seeds as in ``score_table``, which has one rate for all. A scale in
front of a score is also a scale of its gradient, so one rate favours some scores over others.
Recorded for each model and peak rate: sentences right, alignment error rate and mass.
``python -m experiments.score_rates`` repeats the recorded runs.
"""

from typing import Any

import torch

from attn_course.data import translation
from attn_course.train import fit, teacher_forcing_loss, warmup_cosine
from experiments.repeat import repeat
from experiments.score_table import BATCH, CONFIGURATIONS, STEPS, build, measure

RATES = (3e-3, 1e-2, 3e-2, 1e-1)
MODELS = ("dot", "scaled dot", "concat", "concat, key as it is")


def run(seed: int) -> dict[str, Any]:
    """Train every model at every rate from one seed, on the same batches in the same order."""
    generator = torch.Generator().manual_seed(seed)
    training = [translation(BATCH, generator) for _ in range(STEPS)]
    held_out = translation(500, torch.Generator().manual_seed(10_001))
    results: dict[str, Any] = {}
    for name in MODELS:
        results[name] = {}
        for rate in RATES:
            model = build(seed, **CONFIGURATIONS[name])
            fit(
                model,
                training,
                teacher_forcing_loss,
                optimizer=torch.optim.Adam(model.parameters()),
                steps=STEPS,
                schedule=warmup_cosine(peak=rate, warmup=20, steps=STEPS, floor=1e-4),
                clip_norm=1.0,
                progress=False,
            )
            results[name][f"{rate:g}"] = measure(model, held_out)
    return results


if __name__ == "__main__":
    repeat(run, __file__)
