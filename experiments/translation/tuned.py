"""The models that chapter 10 compares, each at its own rate, for several seeds.

``python -m experiments.translation.tuned`` is the *reduced* setting with two changes: the peak rate
of a model is the best of ``experiments.translation.rates``, where the setting has one rate for
all, and there are half as many steps. Safe to stop and repeat.
``load_results("translation_tuned")`` then gives, beside machine, versions, date, commit and
seconds:

- ``setting``, ``seeds``, ``missing`` (trainings not done yet), ``corpus``, ``signature``;
- ``models[model]``: ``hidden_size``, ``parameters``, ``learning_rate``, ``bleu`` (one for each
  seed), ``median_bleu``, ``by_length`` (``{"words", "sentences", "bleu"}``, BLEU one for each
  seed), ``runs``;
- each of ``runs``: ``seed`` and what the *reduced* record has of a model, but its examples.
"""

import argparse
import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from attn_course.train.checkpoint import require_writable, write_atomic
from attn_course.train.parallel import Parallel
from experiments.keeping import code_of, laid_out, say
from experiments.translation.corpus import Corpus, multi30k
from experiments.translation.rates import MODELS
from experiments.translation.rates import OUT as TRIED
from experiments.translation.run import TRAINER, corpus_facts, train_and_measure
from experiments.translation.settings import SETTINGS, Setting

OUT = Path(__file__).resolve().parents[1] / "results" / "translation_tuned.json"
SEEDS, STEPS = (0, 1, 2), 1000


def run(
    setting: Setting,
    rates: Mapping[str, float],
    corpus: Corpus,
    *,
    work: Path,
    out: Path,
    seeds: Sequence[int] = SEEDS,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Train every model of ``rates`` for every seed; after each the results so far are in ``out``.

    Args:
        setting: Sizes and steps; its own rate is not used.
        rates: The peak rate of every model.
        corpus: Made for this setting.
        work: Folder of checkpoints and results of the trainings.
        out: The JSON file.
        seeds: Of parameters and of the order of the data.
        progress: As in ``attn_course.train.fit``.
    """
    require_writable("out", out)
    made: dict[str, list[dict[str, Any]]] = {name: [] for name in rates}
    result: dict[str, Any] = {}
    for seed in seeds:
        for name, rate in rates.items():
            say(f"{name}, seed {seed}, peak rate {rate:g}")
            own = dataclasses.replace(
                setting, name="tuned", models=tuple(rates), learning_rate=rate
            )
            folder = work / f"tuned-seed{seed}" / name
            entry = train_and_measure(
                name, own, corpus, folder, seed=seed, parallel=Parallel(), progress=progress
            )
            made[name].append({"seed": seed, "learning_rate": rate, **entry})
            result = collect(setting, corpus, made, seeds)
            write_atomic(laid_out(result).encode(), out)
    return result


def collect(
    setting: Setting,
    corpus: Corpus,
    made: Mapping[str, Sequence[Mapping[str, Any]]],
    seeds: Sequence[int],
) -> dict[str, Any]:
    """The results of all finished trainings."""
    models = {name: _row(runs) for name, runs in made.items() if runs}
    everything = [each for runs in made.values() for each in runs]
    last = max(everything, key=lambda each: str(each["date"]))
    shared = dataclasses.asdict(setting)
    return {
        "experiment": "German to English on Multi30k, test set 2016",
        "about": "every model at its own learning rate",
        "setting": {
            key: value
            for key, value in {**shared, "name": "tuned", "models": list(made)}.items()
            if key != "learning_rate"
        },
        "seeds": list(seeds),
        "signature": last["signature"],
        "missing": [
            f"{name}, seed {seed}"
            for name, runs in made.items()
            for seed in seeds
            if seed not in {each["seed"] for each in runs}
        ],
        "date": last["date"],
        "commit": ", ".join(sorted({each["commit"] for each in everything})),
        "code": code_of(everything, TRAINER, Path(__file__)),
        "machine": last["machine"],
        "versions": last["versions"],
        "cpu_seconds": round(sum(each["seconds"]["cpu"] for each in everything)),
        "corpus": corpus_facts(setting, corpus),
        "models": models,
    }


def _row(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = runs[0]
    apart = ("hidden_size", "parameters", "learning_rate")
    left_out = (*apart, "signature", "examples")
    bleu = [each["bleu"] for each in runs]
    return {
        **{key: first[key] for key in apart},
        "bleu": bleu,
        "median_bleu": round(statistics.median(bleu), 2),
        "by_length": [
            {
                "words": bucket["words"],
                "sentences": bucket["sentences"],
                "bleu": [each["by_length"][place]["bleu"] for each in runs],
            }
            for place, bucket in enumerate(first["by_length"])
        ],
        "runs": [
            {key: value for key, value in each.items() if key not in left_out} for each in runs
        ],
    }


def main() -> None:
    """Run what is not done yet."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.translation.tuned", description=__doc__
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--work", type=Path, default=Path("runs/translation"))
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    setting = dataclasses.replace(SETTINGS["reduced"], steps=STEPS)
    best = json.loads(TRIED.read_text())["best"]
    run(
        setting,
        {name: best[name] for name in MODELS},
        multi30k(vocab_size=setting.vocab_size, train_pairs=setting.train_pairs),
        work=chosen.work,
        out=chosen.out,
        seeds=chosen.seeds,
    )


if __name__ == "__main__":
    main()
