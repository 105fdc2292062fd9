"""Train the memory networks of the ``memory_hops`` explorer and write them as JSON.

    python experiments/export_memory_hops.py

Two supporting facts, stories of 3 to 8 sentences with one verb for each deed; one, two and three
hops, adjacent tying, linear start. The parameters are rounded to float16, the errors are measured
*after* that. A few minutes on one CPU thread; the same seed gives the same file on the same
versions.
"""

import argparse
import base64
import datetime
import json
import platform
import subprocess
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from attn_course.data import babi_batch
from attn_course.data.stories import StoryBatch
from attn_course.explorers import memory_hops
from attn_course.nn import MemoryNetwork

TRAINED, HELD_OUT = 30_000, 2_000
LINEAR = 1_000  # steps without the softmax of the hops


def stories(count: int, seed: int) -> StoryBatch:
    """Stories of the task; the explorer's own stories are of this kind."""
    return babi_batch(
        count,
        torch.Generator().manual_seed(seed),
        task="two_supporting_facts",
        min_sentences=3,
        max_sentences=memory_hops.MOST,
        synonyms=False,
    )


def thinned(story: torch.Tensor, support: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The stories with some sentences left out that do not support the answer."""
    gone = (torch.rand(support.shape, generator=generator) < 0.15) & ~support
    return story.masked_fill(gone[..., None], 0)


def train(model: MemoryNetwork, data: StoryBatch, *, steps: int, seed: int) -> float:
    """Adam with warm-up and decay; the mean loss of the last 100 steps."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for step in range(steps):
        model.linear = step < LINEAR
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * min(1, (step + 1) / 50) * (1 - 0.95 * step / steps)
        rows = torch.randint(len(data), (64,), generator=generator)
        story = thinned(data.story[rows], data.support[rows], generator)
        loss = F.cross_entropy(model(story, data.question[rows]), data.answer[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 40.0)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-100:]) / 100


def commit() -> str:
    """The last commit that changed what this run depends on, marked if they have changed since."""
    paths = ["attn_course/data", "attn_course/nn", "experiments/" + Path(__file__).name]

    def git(*words: str) -> str:
        command = ["git", *words, "--", *paths]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    return git("log", "-1", "--format=%h") + ("-dirty" if git("status", "--short") else "")


def main() -> None:
    """Train, round, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=memory_hops.WEIGHTS)
    options = parser.parse_args()

    torch.set_num_threads(1)
    data, test = stories(TRAINED, 1), stories(HELD_OUT, 2)
    start = time.process_time()
    weights, error, loss = {}, {"stories": HELD_OUT}, {}
    for hops in memory_hops.HOPS:
        torch.manual_seed(options.seed)
        model = memory_hops.build(hops)
        loss[str(hops)] = round(train(model, data, steps=options.steps, seed=options.seed), 4)
        flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach().half()
        encoded = base64.b64encode(flat.numpy().astype("<f2").tobytes()).decode()
        memory_hops.load(model, encoded)
        with torch.no_grad():
            wrong = model(test.story, test.question).argmax(-1) != test.answer
        weights[str(hops)] = encoded
        error[str(hops)] = round(wrong.double().mean().item(), 4)
        print(f"{hops} hops: error {error[str(hops)]}, loss {loss[str(hops)]}", flush=True)
    content = {
        "task": f"two supporting facts, 3 to {memory_hops.MOST} sentences, one verb for each deed",
        "error": error,
        "loss": loss,
        "seed": options.seed,
        "steps": options.steps,
        "cpu_seconds": round(time.process_time() - start),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, 1 thread, torch {torch.__version__}",
        "weights": weights,
    }
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
