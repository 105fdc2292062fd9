"""Which learning rate suits a model: short runs, validation loss; ``python -m …rates``.

All models start at the same rate and get the same steps and the same search: the rate is doubled
and halved until the best one, that of the lowest validation loss, has a worse one on either side.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attn_course.data.streams import PairStream
from attn_course.train import fit, teacher_forcing_loss, warmup_cosine
from attn_course.train.checkpoint import write_atomic
from experiments.keeping import code_hash, code_of, laid_out, say
from experiments.translation import measure, record
from experiments.translation.corpus import Corpus, multi30k
from experiments.translation.models import build, fitted_hidden_size
from experiments.translation.run import sizes_of
from experiments.translation.settings import SETTINGS, Setting

OUT = Path(__file__).resolve().parents[1] / "results" / "translation_rates.json"
MODELS = ("plain", "bahdanau", "transformer")
START, STEPS = 6e-3, 400


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
        "code": code_hash(Path(__file__)),
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


def search(loss_at: Callable[[float], float], *, start: float) -> dict[float, float]:
    """The loss at every rate that was tried, until the best has worse ones on either side.

    Args:
        loss_at: The validation loss of a short run at a rate.
        start: The first rate; the others are this one times a power of two.
    """
    losses = {start: loss_at(start)}
    while True:
        lowest = min(losses, key=lambda rate: losses[rate])
        beside = [rate for rate in (2 * lowest, lowest / 2) if rate not in losses]
        if not beside:
            return losses
        losses[beside[0]] = loss_at(beside[0])


def main() -> None:
    """Run what the record lacks."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.translation.rates", description=__doc__
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--start", type=float, default=START)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    setting = SETTINGS["reduced"]
    corpus = multi30k(vocab_size=setting.vocab_size, train_pairs=setting.train_pairs)
    before = json.loads(chosen.out.read_text())["runs"] if chosen.out.exists() else []
    runs = [run for run in before if run["steps"] == chosen.steps]

    def loss_at(name: str, rate: float) -> float:
        for run in runs:
            if (run["model"], run["learning_rate"]) == (name, rate):
                return float(run["val_loss"])
        runs.append(short_run(name, rate, setting, corpus, steps=chosen.steps))
        say(" ".join(f"{key} {value}" for key, value in runs[-1].items()))
        result = {
            "experiment": "learning rates of the translation models, validation loss",
            "setting": setting.name,
            "date": record.today(),
            "commit": record.commit(),
            "code": code_of(runs, Path(__file__), Path(__file__)),
            **record.where(torch.device("cpu")),
            "cpu_seconds": round(sum(run["cpu_seconds"] for run in runs)),
            "best": best(runs),
            "runs": runs,
        }
        write_atomic(laid_out(result).encode(), chosen.out)
        return float(runs[-1]["val_loss"])

    for name in chosen.models:
        search(functools.partial(loss_at, name), start=chosen.start)


if __name__ == "__main__":
    main()
