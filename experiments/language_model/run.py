"""Find a rate for each model, train it for every seed, measure; safe to stop and repeat."""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attn_course.train import fit, warmup_cosine
from attn_course.train.checkpoint import require_writable, write_atomic
from attn_course.train.parallel import Parallel
from experiments import keeping
from experiments.keeping import Clock, claim, code_hash, code_of, laid_out, say
from experiments.language_model import measure
from experiments.language_model.corpus import Corpus, Windows
from experiments.language_model.counting import NGrams
from experiments.language_model.models import MODELS, build, count
from experiments.language_model.settings import Setting

TRAINER = Path(__file__)
SCRIPT = TRAINER.with_name("__main__.py")
MADE_WITH = (
    "attn_course/nn",
    "attn_course/functional",
    "attn_course/train",
    "attn_course/data",
    "experiments/keeping.py",
    "experiments/language_model",
)
PACKAGES = ("torch", "numpy")
NGRAM_ORDER = 7


def run(
    setting: Setting,
    corpus: Corpus,
    *,
    work: Path,
    out: Path,
    parallel: Parallel | None = None,
    models: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Train and measure; after every training the results so far are in ``out``.

    What has been trained lies in ``work/<setting>/<model>-seed<seed>`` and, for the rates,
    ``work/<setting>/<model>-rate<rate>``: it is not trained again, and a stopped training goes on
    at its checkpoint. Only the rates decide by the validation text, and only by a part of it.

    Args:
        setting: Sizes and steps.
        corpus: The text.
        work: Folder of checkpoints and results, which all processes see.
        out: The JSON file, written by the first process.
        parallel: This process; the only one, on a CPU, if None.
        models: Some of the models; all, if None. Those finished before stay in ``out``.
        seeds: Some of the seeds of the setting; all, if None.
        progress: As in ``attn_course.train.fit``.

    Returns:
        What was written.

    Raises:
        ValueError: If a model or a seed is not one of the setting, ``work`` holds a run with other
            settings, a file cannot be written, or the batch is not divisible by the number of
            processes.
        KeyboardInterrupt: After Ctrl-C; the checkpoint is saved.
    """
    parallel = parallel or Parallel()
    parallel.check_batch_size(setting.batch_size)
    chosen = list(MODELS if models is None else models)
    wanted = list(setting.seeds if seeds is None else seeds)
    for kind, given, known in (("models", chosen, MODELS), ("seeds", wanted, setting.seeds)):
        for each in given:
            if each not in known:
                names = ", ".join(map(str, known))
                raise ValueError(f"{kind}: expected some of {names}, got {each}")
    require_writable("out", out)
    folder = work / setting.name
    if parallel.main and not (folder / "ngrams.json").exists():
        write_atomic(json.dumps(counted(corpus)).encode(), folder / "ngrams.json")
    trials = [(name, rate, 0) for name in chosen for rate in setting.rates]
    finals = [(name, None, seed) for seed in wanted for name in chosen]
    result: dict[str, Any] = {}
    for number, (name, tried, seed) in enumerate([*trials, *finals], start=1):
        trial = tried is not None
        rate = best_rate(folder, name, setting) if tried is None else tried
        place = folder / (f"{name}-rate{rate:g}" if trial else f"{name}-seed{seed}")
        if parallel.main and not (place / "result.json").exists():
            say(f"[{number}/{len(trials + finals)}] {place.name}, peak rate {rate:g}")
        train_and_measure(
            name, setting, corpus, place, rate=rate, seed=seed, trial=trial, parallel=parallel,
            progress=progress if parallel.main else False,
        )  # fmt: skip
        if parallel.main:
            result = collect(setting, corpus, folder)
            write_atomic(laid_out(result).encode(), out)
        parallel.wait()
    return result if parallel.main else json.loads(out.read_text())


def counted(corpus: Corpus) -> list[dict[str, Any]]:
    """Bits per character of counting, for every order."""
    train, val = corpus.decode(corpus.train), corpus.decode(corpus.val)
    found = NGrams(train, order=NGRAM_ORDER, alphabet=corpus.alphabet).bits(val)
    return [{"order": order, "bits": round(bits, 4)} for order, bits in enumerate(found, start=1)]


def best_rate(folder: Path, name: str, setting: Setting) -> float:
    """The rate of the trial with the lowest validation loss.

    Args:
        folder: Of the setting.
        name: Of the model.
        setting: Says which rates were tried.
    """
    trials = {
        rate: json.loads((folder / f"{name}-rate{rate:g}" / "result.json").read_text())
        for rate in setting.rates
    }
    return min(trials, key=lambda rate: trials[rate]["curve"][-1]["val_bits"])


def train_and_measure(
    name: str,
    setting: Setting,
    corpus: Corpus,
    folder: Path,
    *,
    rate: float,
    seed: int,
    trial: bool,
    parallel: Parallel,
    progress: bool | None = None,
) -> dict[str, Any]:
    """One training, from its checkpoint if there is one; its entry in the JSON file.

    Args:
        name: Which model.
        setting: Sizes and steps.
        corpus: The text.
        folder: Of this training alone.
        rate: Peak of the schedule.
        seed: Of parameters and data.
        trial: A short one, to choose the rate by: only the curve is measured.
        parallel: This process.
        progress: As in ``attn_course.train.fit``.

    Raises:
        ValueError: If ``folder`` holds a run with other settings.
        FloatingPointError: If the loss is not finite.
        KeyboardInterrupt: After Ctrl-C; the checkpoint is saved.
    """
    steps = setting.rate_steps if trial else setting.steps
    later = ("rates", "seeds", "sample_length", "rate_steps" if not trial else "steps")
    shared = {key: value for key, value in setting.as_json().items() if key not in later}
    asked = {"model": name, "seed": seed, "rate": rate, "steps": steps, "setting": shared}
    if parallel.main:
        claim(folder, asked)
    parallel.wait()
    result = folder / "result.json"
    if not parallel.any(result.exists()):
        entry = _trained(
            name, setting, corpus, folder, rate, seed, steps, trial, parallel, progress
        )
        if parallel.main:
            write_atomic(json.dumps(entry, ensure_ascii=False).encode(), result)
    parallel.wait()
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def _trained(
    name: str,
    setting: Setting,
    corpus: Corpus,
    folder: Path,
    rate: float,
    seed: int,
    steps: int,
    trial: bool,
    parallel: Parallel,
    progress: bool | None,
) -> dict[str, Any]:
    device = parallel.device
    torch.manual_seed(seed)
    model = build(name, setting, len(corpus.alphabet)).to(device)
    parameters = count(model)
    wrapped = parallel.wrap(model)

    def point(trained: torch.nn.Module) -> dict[str, float]:
        return {
            f"{text}_bits": round(
                measure.quick_bits(
                    trained, ids, length=setting.length, number=setting.eval_windows, device=device
                ),
                4,
            )
            for text, ids in (("train", corpus.train), ("val", corpus.val))
        }

    with Clock(folder / "seconds.json") as clock:

        def kept(step: int, history: object) -> None:
            if parallel.main and step % setting.checkpoint_every == 0:
                clock.save()

        history = fit(
            model,
            Windows(corpus.train, length=setting.length, batch_size=setting.batch_size, seed=seed),
            parallel.mean_loss(
                lambda trained, windows: measure.next_character_loss(trained, windows.to(device)),
                wrapped,
                measure.predicted,
            ),
            optimizer=torch.optim.AdamW(
                model.parameters(), lr=rate, weight_decay=setting.weight_decay
            ),
            steps=steps,
            clip_norm=setting.clip_norm,
            schedule=warmup_cosine(peak=rate, warmup=setting.warmup, steps=steps),
            seed=seed,
            checkpoint_path=folder / "checkpoint.pt",
            checkpoint_every=setting.checkpoint_every,
            resume=True,
            progress=progress,
            evaluate=point,
            eval_every=setting.eval_every,
            callbacks=[kept],
            parallel=parallel,
        )
        trained = clock.read()
        model = parallel.unwrap(model, lambda: build(name, setting, len(corpus.alphabet)))
        entry: dict[str, Any] = {
            "seed": seed,
            "learning_rate": rate,
            "steps": len(history),
            "parameters": parameters,
            "train_loss_bits": round(
                sum(history.loss[-100:]) / len(history.loss[-100:]) / math.log(2), 4
            ),
            "curve": history.evaluations,
        }
        if not trial and parallel.main:
            model.eval()
            entry |= measure.bits_per_character(
                model, corpus.val, length=setting.length, device=device
            )
            entry["samples"] = measure.samples(
                model, corpus, device=device, length=setting.sample_length, seed=seed
            )
        entry |= {
            "training_seconds": trained,
            "seconds": clock.read(),
            "processes": parallel.world_size,
            "date": keeping.today(),
            "commit": keeping.commit(MADE_WITH),
            "code": code_hash(TRAINER),
            **keeping.where(device, PACKAGES),
        }
    return entry


def collect(setting: Setting, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """The results of all finished trainings of a setting."""

    def read(name: str) -> dict[str, Any] | None:
        path = folder / name / "result.json"
        return json.loads(path.read_text()) if path.exists() else None

    models: dict[str, Any] = {}
    trials: dict[str, Any] = {}
    everything: list[dict[str, Any]] = []
    for name in MODELS:
        tried = [read(f"{name}-rate{rate:g}") for rate in setting.rates]
        trials[name] = [
            {
                "learning_rate": each["learning_rate"],
                "steps": each["steps"],
                **{key: each["curve"][-1][key] for key in ("train_bits", "val_bits")},
            }
            for each in tried
            if each is not None
        ]
        runs = [each for seed in setting.seeds if (each := read(f"{name}-seed{seed}")) is not None]
        everything += [each for each in [*tried, *runs] if each is not None]
        if runs:
            models[name] = {
                "parameters": runs[0]["parameters"],
                "learning_rate": runs[0]["learning_rate"],
                "bits": [each["bits"] for each in runs],
                "median_bits": round(statistics.median(each["bits"] for each in runs), 4),
                "runs": runs,
            }
    last = max(everything, key=lambda each: each["date"])
    return {
        "experiment": "language_model",
        "about": "tiny Shakespeare, character by character: validation bits per character",
        "setting": setting.as_json(),
        "seeds": list(setting.seeds),
        "missing": [
            f"{name}, seed {seed}"
            for name in MODELS
            for seed in setting.seeds
            if read(f"{name}-seed{seed}") is None
        ],
        "date": last["date"],
        "commit": ", ".join(sorted({each["commit"] for each in everything})),
        "code": code_of(everything, TRAINER, SCRIPT),
        "machine": last["machine"],
        "versions": last["versions"],
        "cpu_seconds": round(sum(each["seconds"]["cpu"] for each in everything)),
        "corpus": {
            "alphabet": corpus.alphabet,
            "train_characters": len(corpus.train),
            "val_characters": len(corpus.val),
            "epochs": round(
                setting.steps * setting.batch_size * setting.length / len(corpus.train), 2
            ),
        },
        "rates": trials,
        "ngrams": json.loads((folder / "ngrams.json").read_text()),
        "models": models,
    }
