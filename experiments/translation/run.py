"""Train every model of a setting, measure it, and write one JSON file; safe to stop and repeat."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result

from attn_course.data.streams import PairStream
from attn_course.train import fit, teacher_forcing_loss, warmup_cosine
from attn_course.train.checkpoint import require_writable, write_atomic
from attn_course.train.history import History
from attn_course.train.parallel import Parallel, count_targets
from experiments.keeping import Clock, claim, code_hash, code_of, laid_out, say
from experiments.translation import measure, record
from experiments.translation.corpus import Corpus
from experiments.translation.models import Sizes, build, count, fitted_hidden_size
from experiments.translation.settings import Setting

TRAINER = Path(__file__)
SCRIPT = TRAINER.with_name("__main__.py")
# whose translations every other model's are compared with
BASELINES = ("plain", "bahdanau")


def run(
    setting: Setting,
    corpus: Corpus,
    *,
    work: Path,
    out: Path,
    seed: int = 0,
    parallel: Parallel | None = None,
    models: Sequence[str] | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Train and measure; after every model the results so far are in ``out``.

    What a model was trained to lies in ``work/<setting>-seed<seed>/<model>``: a finished model is
    not trained again, a stopped one goes on at its checkpoint, exactly as if it had not stopped.
    Models that are not there keep their rows in ``out``, if these are of the same protocol.

    Args:
        setting: Sizes and steps.
        corpus: Made for this setting.
        work: Folder of checkpoints and of results by model, which all processes see.
        out: The JSON file, written by the first process.
        seed: Of parameters and of the order of the data: all models see the same batches.
        parallel: This process; the only one, on a CPU, if None.
        models: Some of those of the setting; all, if None. Those finished before stay in ``out``.
        progress: As in ``attn_course.train.fit``.

    Returns:
        What was written.

    Raises:
        ValueError: If a model is not one of the setting, ``work`` holds a run with other settings,
            a file cannot be written, or the batch is not divisible by the number of processes.
        KeyboardInterrupt: After Ctrl-C; the checkpoint is saved.
    """
    parallel = parallel or Parallel()
    parallel.check_batch_size(setting.batch_size)
    chosen = list(setting.models if models is None else models)
    for name in chosen:
        if name not in setting.models:
            raise ValueError(f"models: expected some of {', '.join(setting.models)}, got {name}")
    require_writable("out", out)
    folder = work / f"{setting.name}-seed{seed}"
    collected: dict[str, Any] = {}
    for number, name in enumerate(chosen, start=1):
        if parallel.main and not (folder / name / "result.json").exists():
            goes_on = (folder / name / "checkpoint.pt").exists()
            say(f"[{number}/{len(chosen)}] {name}{', from its checkpoint' if goes_on else ''}")
        train_and_measure(
            name, setting, corpus, folder / name, seed=seed, parallel=parallel,
            progress=progress if parallel.main else False,
        )  # fmt: skip
        if parallel.main:
            before = json.loads(out.read_text()) if out.exists() else None
            collected = collect(setting, corpus, folder, seed=seed, before=before)
            write_atomic(laid_out(collected).encode(), out)
        parallel.wait()
    return collected if parallel.main else json.loads(out.read_text())


def sizes_of(setting: Setting, corpus: Corpus) -> Sizes:
    """What the models of a setting have in common."""
    splits = (corpus.train, corpus.val, corpus.test)
    return Sizes(
        source_vocab=len(corpus.source_pieces),
        target_vocab=len(corpus.target_pieces),
        embed_dim=setting.embed_dim,
        max_source=max(len(source) for split in splits for source in split.sources),
    )


def train_and_measure(
    name: str,
    setting: Setting,
    corpus: Corpus,
    folder: Path,
    *,
    seed: int,
    parallel: Parallel,
    progress: bool | None = None,
) -> dict[str, Any]:
    """One model, from its checkpoint if there is one; its entry in the JSON file.

    Raises:
        ValueError: If ``folder`` holds a run with other settings.
        KeyboardInterrupt: After Ctrl-C; the checkpoint is saved.
    """
    sizes = sizes_of(setting, corpus)
    hidden_size = fitted_hidden_size(name, sizes, parameters=setting.parameters)
    shared = {key: value for key, value in setting.as_json().items() if key != "models"}
    pieces = [corpus.source_pieces.digest, corpus.target_pieces.digest]
    if parallel.main:
        claim(folder, {"model": name, "seed": seed, "setting": shared, "pieces": pieces})
    parallel.wait()
    result = folder / "result.json"
    if parallel.any(result.exists()):
        found: dict[str, Any] = json.loads(result.read_text())
        return found

    device = parallel.device
    torch.manual_seed(seed)
    model = build(name, sizes, hidden_size=hidden_size).to(device)
    parameters = count(model)
    with Clock(folder / "seconds.json") as clock:
        history = _train(model, setting, corpus, folder, clock, seed, parallel, progress)
        trained = clock.read()
        model = parallel.unwrap(model, lambda: build(name, sizes, hidden_size=hidden_size))
        if not parallel.main:
            parallel.wait()  # until the first has measured
            return dict(json.loads(result.read_text()))
        model.eval()
        greedy, said = (
            measure.translate(
                model,
                corpus,
                device=device,
                beam_size=beam_size,
                length_penalty=setting.length_penalty,
                max_length=setting.max_length,
            )
            for beam_size in (1, setting.beam_size)
        )
        entry = {
            "hidden_size": hidden_size,
            "parameters": parameters,
            "steps": len(history),
            "train_loss": round(sum(history.loss[-100:]) / len(history.loss[-100:]), 4),
            "val_loss": [
                {"step": each["step"], "loss": round(each["loss"], 4)}
                for each in history.evaluations
            ],
            **measure.bleu(said, corpus.test.references),
            "greedy_bleu": measure.bleu(greedy, corpus.test.references)["bleu"],
            "by_length": measure.bleu_by_length(said, corpus.test),
            "examples": measure.examples(
                model,
                corpus,
                measure.chosen_rows(corpus.test),
                device=device,
                max_length=setting.max_length,
            ),
            "training_seconds": trained,
            "seconds": clock.read(),
            "date": record.today(),
            "commit": record.commit(),
            "code": code_hash(TRAINER),
            **record.where(device),
        }
    write_atomic("".join(line + "\n" for line in said).encode(), folder / "test.en")
    write_atomic(json.dumps(entry, ensure_ascii=False).encode(), result)
    parallel.wait()
    return entry


def _train(
    model: Any,
    setting: Setting,
    corpus: Corpus,
    folder: Path,
    clock: Clock,
    seed: int,
    parallel: Parallel,
    progress: bool | None,
) -> History:
    device = parallel.device
    wrapped = parallel.wrap(model)

    def kept(step: int, history: History) -> None:
        if parallel.main and step % setting.checkpoint_every == 0:
            clock.save()

    return fit(
        model,
        PairStream(
            corpus.train.sources, corpus.train.targets, batch_size=setting.batch_size, seed=seed
        ),
        parallel.mean_loss(
            lambda trained, batch: teacher_forcing_loss(trained, batch.to(device)),
            wrapped,
            count_targets,
        ),
        optimizer=torch.optim.Adam(model.parameters(), lr=setting.learning_rate),
        steps=setting.steps,
        clip_norm=setting.clip_norm,
        schedule=warmup_cosine(
            peak=setting.learning_rate, warmup=setting.warmup, steps=setting.steps
        ),
        seed=seed,
        checkpoint_path=folder / "checkpoint.pt",
        checkpoint_every=setting.checkpoint_every,
        resume=True,
        progress=progress,
        evaluate=lambda trained: {
            "loss": measure.loss_per_piece(trained, corpus.val, device=device)
        },
        eval_every=setting.eval_every,
        callbacks=[kept],
        parallel=parallel,
    )


def collect(
    setting: Setting,
    corpus: Corpus,
    folder: Path,
    *,
    seed: int,
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The results of all finished models of a run, and how they compare.

    Args:
        setting: Sizes and steps.
        corpus: The sentences.
        folder: Where the models' folders are.
        seed: Of the run.
        before: What was recorded: the rows of models that have no folder here are kept.
    """
    trained = {
        name: json.loads((folder / name / "result.json").read_text())
        for name in setting.models
        if (folder / name / "result.json").exists()
    }
    said = {name: (folder / name / "test.en").read_text().splitlines() for name in trained}
    for baseline in set(BASELINES) & set(trained):
        for name, p_value in _paired(baseline, said, corpus.test.references).items():
            trained[name].setdefault("p_value_against", {})[baseline] = p_value
    kept = _recorded(before, setting, corpus, seed)
    done = {
        name: trained.get(name) or kept[name]
        for name in setting.models
        if name in trained or name in kept
    }
    last = max(trained, key=lambda name: str(trained[name]["date"]))
    signatures = [each.pop("signature") for each in trained.values()]
    return {
        "experiment": "German to English on Multi30k, test set 2016",
        "setting": setting.as_json(),
        "seed": seed,
        "signature": signatures[0],
        "missing": [name for name in setting.models if name not in done],
        "date": max(each["date"] for each in done.values()),
        "commit": ", ".join(sorted({each["commit"] for each in done.values()})),
        "code": code_of(done.values(), TRAINER, SCRIPT),
        "machine": trained[last]["machine"],
        "versions": trained[last]["versions"],
        "cpu_seconds": round(sum(each["seconds"]["cpu"] for each in done.values())),
        "corpus": corpus_facts(setting, corpus),
        "models": done,
    }


def corpus_facts(setting: Setting, corpus: Corpus) -> dict[str, Any]:
    """What a record says of the sentences."""
    return {
        "train_pairs": len(corpus.train),
        "val_pairs": len(corpus.val),
        "test_pairs": len(corpus.test),
        "epochs": round(setting.steps * setting.batch_size / len(corpus.train), 2),
        "source_pieces_per_sentence": _mean(corpus.train.sources),
        "target_pieces_per_sentence": _mean(corpus.train.targets),
        "source_model_sha256": corpus.source_pieces.digest,
        "target_model_sha256": corpus.target_pieces.digest,
    }


def _recorded(
    before: dict[str, Any] | None, setting: Setting, corpus: Corpus, seed: int
) -> dict[str, Any]:
    """The rows of an earlier record, if all but the list of models is the same."""
    if before is None:
        return {}

    def protocol(plain: dict[str, Any], seed: int, source: str, target: str) -> list[Any]:
        return [
            {key: value for key, value in plain.items() if key != "models"},
            seed,
            source,
            target,
        ]

    old, pieces = before["corpus"], (corpus.source_pieces.digest, corpus.target_pieces.digest)
    digests = old["source_model_sha256"], old["target_model_sha256"]
    if protocol(before["setting"], before["seed"], *digests) != protocol(
        setting.as_json(), seed, *pieces
    ):
        return {}
    return dict(before["models"])


def _mean(rows: Sequence[Sequence[int]]) -> float:
    return round(sum(map(len, rows)) / len(rows), 2)


def _paired(
    baseline: str, said: dict[str, list[str]], references: Sequence[str]
) -> dict[str, float]:
    """sacrebleu's paired bootstrap: how likely is a BLEU difference this large by chance?"""
    others = [name for name in said if name != baseline]
    if not others:
        return {}
    _, scores = PairedTest(
        [(name, said[name]) for name in [baseline, *others]],
        {"BLEU": BLEU()},
        [list(references)],
        test_type="bs",
        n_samples=measure.BOOTSTRAP,
    )()
    p_values = [result.p_value for result in scores["BLEU"] if isinstance(result, Result)]
    # the baseline comes first and has none
    return {name: round(float(p or 0.0), 4) for name, p in zip(others, p_values[1:], strict=True)}
