"""Which learning rate suits a model: short runs, validation loss; ``python -m …rates``.

The recurrent models and the Transformer get the same rates, the same steps and the same choice:
the rate with the lowest validation loss, which must not be the first or the last that was tried.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from attn_course.data import PairStream
from attn_course.train import fit, teacher_forcing_loss, warmup_cosine
from attn_course.train.checkpoint import write_atomic
from experiments.keeping import laid_out, say
from experiments.translation import measure, record
from experiments.translation.corpus import Corpus, multi30k
from experiments.translation.models import build, fitted_hidden_size
from experiments.translation.run import sizes_of
from experiments.translation.settings import SETTINGS, Setting

OUT = Path(__file__).resolve().parents[1] / "results" / "translation_rates.json"
MODELS = ("plain", "bahdanau", "transformer")
RATES = (1.5e-3, 3e-3, 6e-3, 1.2e-2)
STEPS = 400


def short_run(
    name: str, rate: float, setting: Setting, corpus: Corpus, *, steps: int, seed: int = 0
) -> dict[str, Any]:
    """Train a model for a few steps at one rate, by the setting's protocol in all else."""
    sizes = sizes_of(setting, corpus)
    hidden_size = fitted_hidden_size(name, sizes, parameters=setting.parameters)
    started = time.process_time()
    torch.manual_seed(seed)
    model = build(name, sizes, hidden_size=hidden_size)
    history = fit(
        model,
        PairStream(
            corpus.train.sources, corpus.train.targets, batch_size=setting.batch_size, seed=seed
        ),
        teacher_forcing_loss,
        optimizer=torch.optim.Adam(model.parameters(), lr=rate),
        steps=steps,
        clip_norm=setting.clip_norm,
        schedule=warmup_cosine(peak=rate, warmup=setting.warmup, steps=steps),
        seed=seed,
    )
    loss = measure.loss_per_piece(model.eval(), corpus.val, device=torch.device("cpu"))
    return {
        "model": name,
        "learning_rate": rate,
        "steps": steps,
        "seed": seed,
        "train_loss": round(sum(history.loss[-50:]) / len(history.loss[-50:]), 4),
        "val_loss": round(loss, 4),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def best(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The rate of the lowest validation loss, by model."""
    names = dict.fromkeys(run["model"] for run in runs)
    return {
        name: min((run for run in runs if run["model"] == name), key=lambda run: run["val_loss"])[
            "learning_rate"
        ]
        for name in names
    }


def main() -> None:
    """Run what the record lacks."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.translation.rates", description=__doc__
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    setting = SETTINGS["reduced"]
    corpus = multi30k(vocab_size=setting.vocab_size, train_pairs=setting.train_pairs)
    runs = json.loads(chosen.out.read_text())["runs"] if chosen.out.exists() else []
    known = {(run["model"], run["learning_rate"], run["steps"]) for run in runs}
    for name in chosen.models:
        for rate in chosen.rates:
            if (name, rate, chosen.steps) in known:
                continue
            runs.append(short_run(name, rate, setting, corpus, steps=chosen.steps))
            say(" ".join(f"{key} {value}" for key, value in runs[-1].items()))
            result = {
                "experiment": "learning rates of the translation models, validation loss",
                "setting": setting.name,
                "date": record.today(),
                "commit": record.commit(),
                **record.where(torch.device("cpu")),
                "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs)),
                "best": best(runs),
                "runs": runs,
            }
            write_atomic(laid_out(result).encode(), chosen.out)


if __name__ == "__main__":
    main()
