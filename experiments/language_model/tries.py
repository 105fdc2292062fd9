"""What else than the rate could decide; ``python -m experiments.language_model.tries``.

Short runs of the *reduced* setting at each model's own recorded rate, with one change at a time,
as many for one model as for the other. ``load_results("language_model_tries")["models"][model]``
then gives ``{"change", "val_bits", "cpu_seconds"}`` for every change; the first is no change.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attn_course.nn import RotaryPositions
from attn_course.train import fit, warmup_cosine
from attn_course.train.checkpoint import write_atomic
from experiments import keeping
from experiments.language_model import measure
from experiments.language_model.corpus import Corpus, Windows, shakespeare
from experiments.language_model.models import MODELS, build
from experiments.language_model.run import MADE_WITH, PACKAGES
from experiments.language_model.settings import SETTINGS, Setting

RESULTS = Path(__file__).resolve().parents[1] / "results"
OUT, RATES = RESULTS / "language_model_tries.json", RESULTS / "language_model.json"
STEPS = 300


def _rotary_base(model: Any) -> None:
    for block in model.blocks:
        block.attention.position = RotaryPositions(base=100.0)


def _large_embeddings(model: Any) -> None:
    with torch.no_grad():
        model.embedding.tokens.weight.mul_(10)


def _no_forget_bias(model: Any) -> None:
    hidden = model.recurrent.hidden_size
    with torch.no_grad():
        model.recurrent.bias_ih_l0[hidden : 2 * hidden] = 0.0


def _small_embeddings(model: Any) -> None:
    with torch.no_grad():
        model.embedding.weight.div_(10)


# what a run takes instead of the setting's: steps, warm-up, batch, AdamW's betas, another start
COMMON: dict[str, dict[str, Any]] = {
    "as it is": {},
    "warm-up of 10 steps": {"warmup": 10},
    "warm-up of 150 steps": {"warmup": 150},
    "half the windows, twice the steps": {"batch_size": 4, "steps": 2 * STEPS},
    "Adam's second beta 0.95": {"betas": (0.9, 0.95)},
    "weight decay 0.1": {"weight_decay": 0.1},
}
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "transformer": {
        "RoPE with base 100": {"start": _rotary_base},
        "embeddings ten times as large": {"start": _large_embeddings},
    },
    "lstm": {
        "forget bias 0": {"start": _no_forget_bias},
        "embeddings a tenth as large": {"start": _small_embeddings},
    },
}


def short_run(
    name: str,
    setting: Setting,
    corpus: Corpus,
    *,
    rate: float,
    start: Callable[[Any], None] | None = None,
    betas: tuple[float, float] = (0.9, 0.999),
    seed: int = 0,
) -> dict[str, float]:
    """Train a model for the setting's steps; bits on windows of the validation text."""
    started = time.process_time()
    torch.manual_seed(seed)
    model = build(name, setting, len(corpus.alphabet))
    if start is not None:
        start(model)
    fit(
        model,
        Windows(corpus.train, length=setting.length, batch_size=setting.batch_size, seed=seed),
        measure.next_character_loss,
        optimizer=torch.optim.AdamW(
            model.parameters(), lr=rate, betas=betas, weight_decay=setting.weight_decay
        ),
        steps=setting.steps,
        clip_norm=setting.clip_norm,
        schedule=warmup_cosine(peak=rate, warmup=setting.warmup, steps=setting.steps),
        seed=seed,
        progress=False,
    )
    bits = measure.quick_bits(
        model.eval(),
        corpus.val,
        length=setting.length,
        number=2 * setting.eval_windows,
        device=torch.device("cpu"),
    )
    return {
        "val_bits": round(bits, 4),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    """Try every change, for each model at the rate of its recorded runs."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.language_model.tries", description=__doc__
    )
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    corpus, recorded = shakespeare(), json.loads(RATES.read_text())
    setting = dataclasses.replace(SETTINGS["reduced"], steps=STEPS)
    models: dict[str, list[dict[str, Any]]] = {name: [] for name in MODELS}
    for name in MODELS:
        rate = recorded["models"][name]["learning_rate"]
        for change, given in {**COMMON, **OWN[name]}.items():
            apart = {key: given[key] for key in ("start", "betas") if key in given}
            fields = {key: value for key, value in given.items() if key not in apart}
            own = dataclasses.replace(setting, **fields)
            found = short_run(name, own, corpus, rate=rate, **apart)
            models[name].append({"change": change, "learning_rate": rate, **found})
            keeping.say(f"{name}, {change}: {found['val_bits']} bits")
    everything = [each for tried in models.values() for each in tried]
    result = {
        "experiment": "language_model_tries",
        "about": f"one change at a time, {STEPS} steps of the reduced setting",
        "date": keeping.today(),
        "commit": keeping.commit(MADE_WITH),
        **keeping.where(torch.device("cpu"), PACKAGES),
        "cpu_seconds": round(sum(each["cpu_seconds"] for each in everything)),
        "models": models,
    }
    write_atomic(keeping.laid_out(result).encode(), chosen.out)


if __name__ == "__main__":
    main()
