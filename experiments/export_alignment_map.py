"""Train the two small Bahdanau models of the ``alignment_map`` explorer and write them as JSON.

    python experiments/export_alignment_map.py

Toy translation (words) and dates (characters): bidirectional GRU, additive score, GRU decoder. A
few source words are replaced by ``<unk>`` in training, and with them the target words that they
are aligned to, so that the model learns to say ``<unk>`` while it looks at the word it does not
know; the explorer then copies that word. In dates, characters that decide nothing are replaced. The
parameters are rounded to float16 and everything is measured *after* that, on held-out batches, so
that the file holds exactly the models that were measured. A few minutes on one CPU thread; the same
seed gives the same file on the same versions.
"""

import argparse
import base64
import dataclasses
import datetime
import json
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
from torch import Generator

from attn_course.data import BOS, EOS, UNK, Batch, BatchStream, date_normalisation, translation
from attn_course.data.toy_translation import ARTICLES, TRANSLATION_SOURCE_VOCABULARY
from attn_course.explorers import alignment_map
from attn_course.nn import AttentionEncoderDecoder
from attn_course.train import (
    fit,
    greedy_decode,
    sequence_accuracy,
    teacher_forcing_loss,
    warmup_cosine,
)

HELD_OUT = 1000  # sequences for each number
SEED_HELD_OUT = 10_000
SHARE_UNKNOWN = 0.06


def translation_with_unknown(
    batch_size: int, generator: Generator, *, share: float = SHARE_UNKNOWN
) -> Batch:
    """The toy translation with this share of nouns, adjectives and verbs replaced by ``<unk>``."""
    batch = translation(batch_size, generator)
    assert batch.alignment is not None
    articles = torch.tensor(TRANSLATION_SOURCE_VOCABULARY.encode(ARTICLES))
    lost = torch.rand(batch.source.shape, generator=generator) < share
    lost &= batch.source_mask & ~torch.isin(batch.source, articles)
    aligned = batch.alignment >= 0
    said = lost.gather(1, batch.alignment.clamp(min=0)) & aligned  # (B, L)
    target_in = batch.target_in.clone()
    target_in[:, 1:][said[:, :-1]] = UNK
    return dataclasses.replace(
        batch,
        source=batch.source.masked_fill(lost, UNK),
        target_in=target_in,
        target_out=batch.target_out.masked_fill(said, UNK),
    )


def dates_with_unknown(
    batch_size: int, generator: Generator, *, share: float = SHARE_UNKNOWN
) -> Batch:
    """Dates with this share of the characters that decide nothing replaced by ``<unk>``."""
    batch = date_normalisation(batch_size, generator)
    assert batch.alignment is not None
    decides = torch.zeros(batch.source.shape[0], batch.source.shape[1] + 1, dtype=torch.bool)
    # places of -1, which mean none, go to one column more, which is then dropped
    places = torch.where(batch.alignment < 0, batch.source.shape[1], batch.alignment)
    decides.scatter_(1, places, True)
    lost = torch.rand(batch.source.shape, generator=generator) < share
    lost &= batch.source_mask & ~decides[:, :-1]
    return dataclasses.replace(batch, source=batch.source.masked_fill(lost, UNK))


SAMPLES = {"translation": translation_with_unknown, "dates": dates_with_unknown}


@torch.no_grad()
def measure(task: str, model: AttentionEncoderDecoder) -> dict[str, float]:
    """Held-out shares: whole sequences right, with and without unknowns, and places found."""
    shares = {}
    for name, share in (("known", 0.0), ("with_unknown", SHARE_UNKNOWN)):
        generator = torch.Generator().manual_seed(SEED_HELD_OUT)
        batch = SAMPLES[task](HELD_OUT, generator, share=share)
        tokens = greedy_decode(
            model.step,
            model.init_state(batch.source, batch.source_lengths),
            bos=BOS,
            eos=EOS,
            max_length=alignment_map.STEPS,
        ).tokens
        shares[name] = round(sequence_accuracy(tokens, batch.target_out), 4)
        if name == "known" and batch.alignment is not None:
            weights = model.align(batch.source, batch.source_lengths, batch.target_in)
            aligned = batch.alignment >= 0
            found = weights.argmax(-1)[aligned] == batch.alignment[aligned]
            on_place = weights.gather(2, batch.alignment.clamp(min=0).unsqueeze(-1))[..., 0]
            shares["place_found"] = round(found.float().mean().item(), 4)
            shares["weight_on_place"] = round(on_place[aligned].mean().item(), 4)
    return shares


def commit() -> str:
    """The last commit that changed what this run depends on, marked if they have changed since."""
    paths = [
        "attn_course/data",
        "attn_course/nn",
        "attn_course/functional",
        "attn_course/train",
        "experiments/" + Path(__file__).name,
    ]

    def git(*words: str) -> str:
        command = ["git", *words, "--", *paths]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    return git("log", "-1", "--format=%h") + ("-dirty" if git("status", "--short") else "")


def train(task: str, *, steps: int, seed: int, peak: float) -> dict[str, Any]:
    """Train, round and measure one model."""
    torch.manual_seed(seed)
    model = alignment_map.build(task)
    start = time.process_time()
    history = fit(
        model,
        BatchStream(SAMPLES[task], batch_size=64, seed=seed),
        teacher_forcing_loss,
        optimizer=torch.optim.Adam(model.parameters()),
        steps=steps,
        clip_norm=1.0,
        schedule=warmup_cosine(peak=peak, warmup=min(100, steps - 1), steps=steps, floor=1e-4),
        seed=seed,
        progress=True,
    )
    seconds = time.process_time() - start
    flat = torch.cat([p.detach().flatten() for p in model.state_dict().values()]).half()
    encoded = base64.b64encode(flat.numpy().astype("<f2").tobytes()).decode()
    alignment_map.load(model, encoded)
    return {
        "accuracy": measure(task, model),
        "sequences": HELD_OUT,
        "steps": steps,
        "parameters": flat.numel(),
        "loss": round(sum(history.loss[-100:]) / len(history.loss[-100:]), 4),
        "cpu_seconds": round(seconds),
        "weights": encoded,
    }


def main() -> None:
    """Both models, one file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peak", type=float, default=8e-3)
    parser.add_argument("--tasks", nargs="+", default=list(SAMPLES), choices=list(SAMPLES))
    parser.add_argument("--output", type=Path, default=alignment_map.WEIGHTS)
    options = parser.parse_args()

    torch.set_num_threads(1)
    content = {
        "seed": options.seed,
        "peak": options.peak,
        "share_unknown": SHARE_UNKNOWN,
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, 1 thread, torch {torch.__version__}",
        "models": {
            task: train(task, steps=options.steps, seed=options.seed, peak=options.peak)
            for task in options.tasks
        },
    }
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for model in content["models"].values():
        model["weights"] = f"{len(model['weights'])} characters"
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
