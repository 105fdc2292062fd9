"""Train the language model that the explorer ``transformer_flow`` runs in the page, and write it.

``python -m experiments.export_transformer_flow`` leaves
``attn_course/explorers/transformer_flow_weights.json``. Half of the texts are sentences of a small
grammar, in which names and things come back; the other half are random words that are repeated.
"""

import argparse
import base64
import datetime
import json
import platform
import random
import subprocess
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from attn_course.analysis import induction_score, previous_token_score
from attn_course.data.vocabulary import BOS, PAD, UNK, Vocabulary
from attn_course.explorers import transformer_flow
from attn_course.nn import capture

NAMES = ("anna", "tom", "mia", "ben", "lily", "max")
THINGS = ("ball", "book", "cake", "box", "hat", "key")
ANIMALS = ("dog", "cat", "bird", "fish")
LOOKS = ("red", "blue", "green", "old", "small", "big")
PLACES = ("park", "school", "shop", "house")
OTHERS = (
    *(".", "the", "a", "and", "to", "in", "is", "has", "sees", "likes", "wants", "takes"),
    *("gave", "went", "meets", "says", "hello"),
)
WORDS = (*OTHERS, *NAMES, *THINGS, *ANIMALS, *LOOKS, *PLACES)
LENGTH, SHORT, LONG = 29, 3, 20  # longer than what is typed: no distance is the rule


def sentences(draw: random.Random) -> list[str]:
    """Two or three sentences about the same people and things."""
    one, two, three = draw.sample(NAMES, 3)
    look, other = draw.sample(LOOKS, 2)
    thing, beast, place = draw.choice(THINGS), draw.choice(ANIMALS), draw.choice(PLACES)
    wish = draw.choice(("likes", "wants", "takes", "sees"))
    told = [
        f"{one} has a {look} {thing} . {two} {wish} the {look} {thing} .",
        f"{one} and {two} went to the {place} . {one} gave a {thing} to {two} .",
        f"{one} and {two} went to the {place} . {two} gave a {thing} to {one} .",
        f"the {look} {beast} sees the {other} {thing} . the {look} {beast} takes the {thing} .",
        f"{one} meets {two} . {two} says hello to {one} . {three} is in the {place} .",
        f"the {beast} is {look} . {one} likes the {look} {beast} .",
        f"{one} {wish} the {beast} . the {beast} likes {one} .",
    ]
    return draw.choice(told).split()


def repeated(draw: random.Random) -> list[str]:
    """Random words, told again and again."""
    period = draw.sample(WORDS, draw.randint(SHORT, LONG))
    return [period[i % len(period)] for i in range(LENGTH)]


def batch(count: int, words: Vocabulary, draw: random.Random) -> torch.Tensor:
    """Rows of LENGTH ids, each after BOS; here and there a word that the model does not know."""
    rows = []
    for _ in range(count):
        if draw.random() < 0.5:
            told = repeated(draw)
        else:
            told = sentences(draw)
            while len(told) < LENGTH:
                told += sentences(draw)
            start = draw.choice((0, 0, 0, draw.randrange(5)))
            told = told[start:]
        ids = [BOS, *words.encode(told)][:LENGTH]
        ids += [PAD] * (LENGTH - len(ids))
        rows.append([UNK if i > PAD and i != BOS and draw.random() < 0.01 else i for i in ids])
    return torch.tensor(rows)


@torch.no_grad()
def scores(
    model: torch.nn.Module, words: Vocabulary, draw: random.Random
) -> dict[str, list[float]]:
    """Previous-token and induction score of each head, on random words told again."""
    tokens = torch.tensor([[BOS, *words.encode(repeated(draw))] for _ in range(200)])
    with capture(model, "blocks.*.attention.weights") as seen:
        model(tokens)
    weights = list(seen.values())
    return {
        "previous": [
            round(x, 3) for w in weights for x in previous_token_score(w).mean(0).tolist()
        ],
        "induction": [
            round(x, 3) for w in weights for x in induction_score(w, tokens).mean(0).tolist()
        ],
    }


def commit() -> str:
    """The last commit that changed what this run depends on, marked if they have changed since."""
    paths = ["attn_course/nn", "attn_course/explorers", "experiments/" + Path(__file__).name]

    def git(*words: str) -> str:
        command = ["git", *words, "--", *paths]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    return git("log", "-1", "--format=%h") + ("-dirty" if git("status", "--short") else "")


def main() -> None:
    """Train, round, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--output", type=Path, default=transformer_flow.WEIGHTS)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    words, draw = Vocabulary(WORDS), random.Random(options.seed)
    model = transformer_flow.build(len(words))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    start, losses = time.process_time(), []
    for step in range(1, options.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = options.rate * min(1, step / 100) * (1 - 0.97 * step / options.steps)
        ids = batch(32, words, draw)
        loss = F.cross_entropy(
            model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 250 == 0:
            recent = sum(losses[-100:]) / 100
            print(f"{step}: {recent:.3f}, {time.process_time() - start:.0f} s", flush=True)
    measured = scores(model, words, random.Random(options.seed + 1))
    print(measured)
    flat = torch.nn.utils.parameters_to_vector(model.parameters()).detach().half()
    content = {
        "task": "half sentences of a small grammar, half random words that are repeated",
        "loss": round(sum(losses[-100:]) / len(losses[-100:]), 4),
        **measured,
        "seed": options.seed,
        "steps": options.steps,
        "cpu_seconds": round(time.process_time() - start),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, 1 thread, torch {torch.__version__}",
        "words": list(WORDS),
        "weights": base64.b64encode(flat.numpy().astype("<f2").tobytes()).decode(),
    }
    options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
