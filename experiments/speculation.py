"""Does a small draft make the Shakespeare model of the package write faster?

Chapter 11 shows the recorded runs. Five prompts are continued by 100 characters: by the model
alone, and by speculative decoding with the draft of the package, for 2, 4 and 8 proposed characters
a round; at temperature 0.7 and greedily, where both must write the same text. Times are
CPU-seconds of one thread; all take turns.
``python -m experiments.speculation`` repeats the recorded runs.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attn_course.data import load_language_model
from attn_course.train import cached_scorer, generate, speculative_decode, temperature, top_k
from attn_course.train.speculative import Speculated
from experiments.repeat import repeat

PROMPTS = (
    "ROMEO:\n",
    "First Citizen:\n",
    "To be, or not to be",
    "The king ",
    "QUEEN MARGARET:\nMy ",
)
LENGTH, DRAFTS = 100, (2, 4, 8)
WAYS = {
    "temperature 0.7": [partial(temperature, value=0.7)],
    "greedy": [partial(top_k, k=1)],
}


def run(seed: int) -> dict[str, Any]:
    """Characters per run of the model, share accepted, CPU-seconds: (prompts, drafts)."""
    model, characters = load_language_model()
    draft, _ = load_language_model("draft")

    def alone(prompt: Tensor, filters: list[Any]) -> Tensor:
        drawn = generate(
            model, prompt, max_length=LENGTH, filters=filters,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        return drawn.tokens[0]

    def drafted(prompt: Tensor, filters: list[Any], number: int) -> Speculated:
        return speculative_decode(
            cached_scorer(model), cached_scorer(draft), prompt, max_length=LENGTH,
            num_drafts=number, filters=filters, generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip

    drafted(characters.encode("\n"), [], DRAFTS[-1])  # the first runs of a process are slower
    result: dict[str, Any] = {"drafts": list(DRAFTS)}
    for way, filters in WAYS.items():
        rows: dict[str, list[Any]] = {
            name: []
            for name in (
                "characters per run",
                "accepted",
                "seconds alone",
                "seconds with a draft",
            )
        }
        for text in PROMPTS:
            prompt = characters.encode(text)
            calls: list[Callable[[], Any]] = [partial(alone, prompt, filters)]
            calls += [partial(drafted, prompt, filters, number) for number in DRAFTS]
            seconds, found = [], []
            for call in calls:
                started = time.process_time()
                found.append(call())
                seconds.append(time.process_time() - started)
            written, *speculated = found
            rows["characters per run"].append([len(one.tokens) / one.calls for one in speculated])
            rows["accepted"].append([one.accepted / one.proposed for one in speculated])
            if way == "greedy":
                same = [int(torch.equal(one.tokens, written)) for one in speculated]
                rows.setdefault("same text", []).append(same)
            rows["seconds alone"].append(seconds[0])
            rows["seconds with a draft"].append(seconds[1:])
        result[way] = rows
    return result


if __name__ == "__main__":
    repeat(run, __file__)
