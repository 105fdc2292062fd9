"""Scores, temperature and what softmax makes of them: a word moves towards its sense."""

from collections.abc import Sequence
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.data.embeddings import SENSE_EXAMPLES, word_vectors
from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import softmax, weighted_mean

HEIGHT, HEIGHT_NARROW = 510, 555
WORD, AXES = "bank", ("water", "money")
INPUTS = ("scores", "temperature", "shift", "vectors")


def compute(
    *,
    scores: Sequence[Number],
    temperature: Number,
    shift: Number,
    vectors: Sequence[Sequence[Number]],
) -> dict[str, Any]:
    """What the explorer shows, computed by the package in float32.

    Args:
        scores: One score per word.
        temperature: What the scores are divided by; above 0.
        shift: What is added to every score first.
        vectors: Two coordinates per word.

    Returns:
        ``weights`` and ``mean`` from the package, and ``exps`` and ``naive`` from a softmax that
        does not subtract the largest score; ``nan`` and ``inf`` are given as words.

    Raises:
        ValueError: If the temperature is not positive, or scores and vectors differ in number.
    """
    if not temperature > 0:
        raise ValueError(f"temperature: expected above 0, got {temperature}")
    if len(scores) != len(vectors):
        raise ValueError(f"vectors: expected {len(scores)}, one per score, got {len(vectors)}")
    z = (torch.tensor(scores, dtype=torch.float32) + shift) / temperature
    weights = softmax(z, dim=-1)
    exps = z.exp()
    return {
        "weights": plain(weights),
        "mean": plain(weighted_mean(weights, torch.tensor(vectors, dtype=torch.float32))),
        "exps": plain(exps),
        "naive": plain(exps / exps.sum()),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: sentences with *bank*, their dot-product scores and vectors."""
    table = word_vectors()
    columns = [table.axes.index(axis) for axis in AXES]
    examples = []
    for example in SENSE_EXAMPLES:
        if example.word != WORD:
            continue
        embedded = table.sentence(example.sentence)
        examples.append(
            {
                "words": example.sentence.split(),
                "scores": (embedded @ table[WORD]).tolist(),
                "vectors": embedded[:, columns].tolist(),
            }
        )
    return {
        "kernel": False,
        "target": WORD,
        "axes": list(AXES),
        "examples": examples,
        "words": examples[0]["words"],
        "scores": examples[0]["scores"],
        "vectors": examples[0]["vectors"],
        "temperature": 1.0,
        "shift": 0.0,
    }


class SoftmaxTemperature(anywidget.AnyWidget):
    """The live widget: its weights are those of :func:`attn_course.functional.softmax`.

    Args:
        **state: Start values, such as ``scores=[2.0, 0.0, 1.0]`` or ``temperature=0.5``.
    """

    _esm = esm("softmax_temperature")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    target = traitlets.Unicode().tag(sync=True)
    axes = traitlets.List().tag(sync=True)
    examples = traitlets.List().tag(sync=True)
    words = traitlets.List().tag(sync=True)
    scores = traitlets.List().tag(sync=True)
    vectors = traitlets.List().tag(sync=True)
    temperature = traitlets.Float().tag(sync=True)
    shift = traitlets.Float().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
