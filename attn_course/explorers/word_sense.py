"""What a word means here: its vector is drawn to the neighbours that it attends to."""

from collections.abc import Sequence
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.data.embeddings import word_vectors
from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import attention, dot_score

HEIGHT, HEIGHT_NARROW = 534, 741
WORD, AXES = "bank", ("water", "money")
SENTENCES = (
    "she sat down on the bank and watched the river",
    "she opened a bank account",
    "she took her cash to the bank by the river",
)
INPUTS = ("vectors", "place")


def compute(*, vectors: Sequence[Sequence[Number]], place: int) -> dict[str, Any]:
    """One word attends to its whole sentence, itself included, by dot products, in float64.

    Args:
        vectors: Two coordinates for each word of the sentence.
        place: Which of them asks.

    Returns:
        ``scores`` of the words and their ``weights``, and the ``mean`` of the vectors under them.

    Raises:
        ValueError: If there is no such place.
    """
    if not 0 <= place < len(vectors):
        raise ValueError(f"place: expected 0 to {len(vectors) - 1}, got {place}")
    words = torch.tensor(vectors, dtype=torch.float64)  # (S, 2)
    query = words[place : place + 1]  # (1, 2)
    mean, weights = attention(query, words, words, score=dot_score)
    return {
        "scores": plain(dot_score(query, words)[0]),
        "weights": plain(weights[0]),
        "mean": plain(mean[0]),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: three sentences with *bank*, and the table's two axes of it."""
    table = word_vectors()
    columns = [table.axes.index(axis) for axis in AXES]
    examples = []
    for sentence in SENTENCES:
        words = sentence.split()
        # words that the table lacks say nothing on these two axes, as *the* and *by* do
        rows = [table[word][columns].tolist() if word in table else [0.0, 0.0] for word in words]
        examples.append({"words": words, "vectors": rows, "place": words.index(WORD)})
    return {"kernel": False, "axes": list(AXES), "examples": examples, **examples[0]}


class WordSense(anywidget.AnyWidget):
    """The live widget: its weights are those of :func:`attn_course.functional.attention`.

    Args:
        **state: Start values: ``words``, their ``vectors``, and the ``place`` of the one that asks.
    """

    _esm = esm("word_sense")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    axes = traitlets.List().tag(sync=True)
    examples = traitlets.List().tag(sync=True)
    words = traitlets.List().tag(sync=True)
    vectors = traitlets.List().tag(sync=True)
    place = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
