"""Train the small encoder-decoder of the ``bottleneck`` explorer and write it as JSON.

    python experiments/export_bottleneck.py

Reversal of 1 to 14 letters, GRU cells, one context vector. The parameters are rounded to float16,
the accuracy by length is measured *after* that, so that the file holds exactly the model that was
measured. A few minutes on one CPU thread; the same seed gives the same file on the same versions.
"""

import argparse
import base64
import datetime
import functools
import json
import platform
import subprocess
import time
from pathlib import Path

import torch

from attn_course.data import BatchStream, reversal
from attn_course.explorers import bottleneck
from attn_course.train import fit, teacher_forcing_loss, warmup_cosine
from attn_course.train.recipes import by_length

TRAINED, SHOWN, SYMBOLS = 14, 18, 8
HELD_OUT = 300  # sequences per length


def measure(model: torch.nn.Module) -> dict[str, float]:
    """Share of sequences that come out wholly right, by source length."""
    generator = torch.Generator().manual_seed(10_000)
    shares = {}
    for length in range(1, SHOWN + 1):
        batch = reversal(
            HELD_OUT, generator, num_symbols=SYMBOLS, min_length=length, max_length=length
        )
        shares[str(length)] = round(by_length(model, batch)[length], 4)
    return shares


def commit() -> str:
    """The last commit that changed what this run depends on, marked if they have changed since."""
    paths = [
        "attn_course/data",
        "attn_course/nn",
        "attn_course/train",
        "experiments/" + Path(__file__).name,
    ]

    def git(*words: str) -> str:
        command = ["git", *words, "--", *paths]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    return git("log", "-1", "--format=%h") + ("-dirty" if git("status", "--short") else "")


def main() -> None:
    """Train, round, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=bottleneck.WEIGHTS)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    model = bottleneck.build()
    sample = functools.partial(reversal, num_symbols=SYMBOLS, max_length=TRAINED)
    start = time.process_time()
    history = fit(
        model,
        BatchStream(sample, batch_size=64, seed=options.seed),
        teacher_forcing_loss,
        optimizer=torch.optim.Adam(model.parameters()),
        steps=options.steps,
        clip_norm=1.0,
        schedule=warmup_cosine(peak=6e-3, warmup=100, steps=options.steps, floor=1e-4),
        seed=options.seed,
        progress=True,
    )
    seconds = time.process_time() - start

    flat = torch.cat([p.detach().flatten() for p in model.state_dict().values()]).half()
    encoded = base64.b64encode(flat.numpy().astype("<f2").tobytes()).decode()
    bottleneck.load(model, encoded)
    content = {
        "task": f"reversal of 1 to {TRAINED} letters",
        "trained_length": TRAINED,
        "accuracy": measure(model),
        "sequences_per_length": HELD_OUT,
        "seed": options.seed,
        "steps": options.steps,
        "loss": round(sum(history.loss[-100:]) / 100, 4),
        "cpu_seconds": round(seconds),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, 1 thread, torch {torch.__version__}",
        "weights": encoded,
    }
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in content.items() if k != "weights"}, indent=1))


if __name__ == "__main__":
    main()
