"""What a paired test between two models of ``tuned`` needs: counts of every test sentence.

``python -m experiments.translation.paired`` trains additive attention and the Transformer as
``experiments.translation.tuned`` does. Safe to stop and repeat. BLEU depends on a sentence through
a few whole numbers, and these are kept, not the text.
``load_results("translation_paired")`` gives, beside setting, machine, versions, date and commit:

- ``reference_words``: words of the reference, one number for each test sentence;
- ``models[model]``: ``learning_rate`` and ``runs``, each with ``seed``, sacrebleu's ``bleu``,
  ``val_loss``, ``words`` of the translations and ``matches``: for 1 to 4 words the number of runs
  that the reference has too, one list each;
- ``paired``, one for each seed: ``difference`` of BLEU (first model minus second) and ``p_value``
  of sacrebleu's paired bootstrap.
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from attn_course.train.checkpoint import require_writable, write_atomic
from attn_course.train.parallel import Parallel
from experiments.keeping import code_of, laid_out, say
from experiments.translation import measure
from experiments.translation.corpus import Corpus, multi30k
from experiments.translation.rates import OUT as TRIED
from experiments.translation.run import TRAINER, corpus_facts, train_and_measure
from experiments.translation.settings import SETTINGS, Setting
from experiments.translation.tuned import SEEDS, STEPS

OUT = Path(__file__).resolve().parents[1] / "results" / "translation_paired.json"
MODELS = ("bahdanau", "transformer")


def counts(said: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """What sacrebleu counts in every sentence.

    Returns:
        ``words``, ``reference_words`` and ``matches`` (one list for each length of a run).
    """
    rows = BLEU()._extract_corpus_statistics(list(said), [list(references)])
    words, reference_words, *others = map(list, zip(*rows, strict=True))
    return {
        "words": words,
        "reference_words": reference_words,
        "matches": others[: BLEU().max_ngram_order],
    }


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
    """Train both models for every seed; after each seed the results so far are in ``out``.

    Args:
        setting: Sizes and steps; its own rate is not used.
        rates: The peak rate of each of the two models.
        corpus: Made for this setting.
        work: Folder of checkpoints, translations and results of the trainings.
        out: The JSON file.
        seeds: Of parameters and of the order of the data.
        progress: As in ``attn_course.train.fit``.
    """
    require_writable("out", out)
    references = corpus.test.references
    entries: list[dict[str, Any]] = []
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in rates}
    paired: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    for seed in seeds:
        said: dict[str, list[str]] = {}
        for name, rate in rates.items():
            say(f"{name}, seed {seed}, peak rate {rate:g}")
            own = dataclasses.replace(
                setting, name="tuned", models=tuple(rates), learning_rate=rate
            )
            folder = work / f"paired-seed{seed}" / name
            entry = train_and_measure(
                name, own, corpus, folder, seed=seed, parallel=Parallel(), progress=progress
            )
            entries.append(entry)
            said[name] = (folder / "test.en").read_text().split("\n")[:-1]
            counted = counts(said[name], references)
            reference_words = counted.pop("reference_words")
            runs[name].append(
                {"seed": seed, "bleu": entry["bleu"], "val_loss": entry["val_loss"][-1]["loss"]}
                | counted
            )
        first, second = (runs[name][-1]["bleu"] for name in rates)
        _, scores = PairedTest(
            list(said.items()),
            {"BLEU": BLEU()},
            [references],
            test_type="bs",
            n_samples=measure.BOOTSTRAP,
        )()
        paired.append(
            {
                "seed": seed,
                "difference": round(first - second, 2),
                "p_value": round(float(getattr(scores["BLEU"][1], "p_value", math.nan)), 4),
            }
        )
        shared = dataclasses.asdict(setting)
        last = entries[-1]
        result = {
            "experiment": "German to English on Multi30k, test set 2016",
            "about": "counts of every test sentence, for a paired bootstrap",
            "setting": {
                key: value
                for key, value in {**shared, "name": "tuned", "models": list(rates)}.items()
                if key != "learning_rate"
            },
            "seeds": [each["seed"] for each in paired],
            "signature": last["signature"],
            "date": last["date"],
            "commit": ", ".join(sorted({each["commit"] for each in entries})),
            "code": code_of(entries, TRAINER, Path(__file__)),
            "machine": last["machine"],
            "versions": last["versions"],
            "cpu_seconds": round(sum(each["seconds"]["cpu"] for each in entries)),
            "corpus": corpus_facts(setting, corpus),
            "reference_words": reference_words,
            "models": {
                name: {"learning_rate": rate, "runs": runs[name]} for name, rate in rates.items()
            },
            "paired": paired,
        }
        write_atomic(laid_out(result).encode(), out)
    return result


def main() -> None:
    """Run what is not done yet."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.translation.paired", description=__doc__
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
