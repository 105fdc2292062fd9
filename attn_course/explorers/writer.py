"""The course's own language model, writing in the page: its chances and its attention."""

from functools import cache
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.data import Characters, load_language_model
from attn_course.explorers._result import follow
from attn_course.explorers._source import esm, stylesheet
from attn_course.nn import LanguageModel, capture
from attn_course.train import sampling

HEIGHT, HEIGHT_NARROW = 445, 615
# after "window" by the model itself, at a temperature of 0.6
TEXT = """ROMEO:
But soft, what light through yonder window and my
father, so you to say to the breathest glorious to
do the duke of love, that boys are benefit of subjects'
travelless clouds and pleasure of a day.

MERCUTIO:
No, good my lord, I was """
CONTEXT = 256
INPUTS = ("logits", "temperature", "top_p")
READS = ("text", "at")


def compute(*, logits: list[float], temperature: float, top_p: float) -> dict[str, Any]:
    """The distribution that the next character is drawn from.

    Args:
        logits: One per character.
        temperature: Divides them; above 0.
        top_p: The likeliest characters that sum to it are kept.

    Returns:
        ``chances``, one per character.

    Raises:
        ValueError: If ``temperature`` is not above 0, or ``top_p`` not above 0 and at most 1.
    """
    given = torch.tensor(logits, dtype=torch.float64)
    given = sampling.top_p(sampling.temperature(given, temperature), top_p)
    return {"chances": sampling.probabilities_of(given).tolist()}


@cache
def language_model() -> tuple[LanguageModel, Characters]:
    """The model that the page runs, read once."""
    return load_language_model()


@torch.no_grad()
def read(*, text: str, at: int) -> dict[str, Any]:
    """What the model makes of a text.

    Args:
        text: Characters that it knows, at most ``CONTEXT``.
        at: Position that is asked; -1 for the last one.

    Returns:
        ``logits`` of the character after it, and ``attention``: for each head, layer by layer, its
        weights over the characters up to there.

    Raises:
        ValueError: If there is no such character or position.
    """
    model, characters = language_model()
    if not -1 <= at < len(text) <= CONTEXT:
        raise ValueError(
            f"text, at: expected up to {CONTEXT} and a position, got {len(text)}, {at}"
        )
    at = len(text) - 1 if at < 0 else at
    with capture(model, "blocks.*.attention.weights") as seen:
        logits = model(characters.encode(text)[None])[0, at]
    heads = [
        head[at, : at + 1]
        for block in range(len(model.blocks))
        for head in seen[f"blocks.{block}.attention.weights"][0]
    ]
    return {
        "logits": [round(value, 4) for value in logits.tolist()],
        "attention": [[round(value, 4) for value in head.tolist()] for head in heads],
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: a text, read; the weights are not loaded yet."""
    _, characters = language_model()
    return {
        "kernel": False,
        "alphabet": characters.alphabet,
        "context": CONTEXT,
        "text": TEXT,
        "at": -1,
        "head": 16,
        "temperature": 0.7,
        "top_p": 1.0,
        "result": read(text=TEXT, at=-1),
    }


class Writer(anywidget.AnyWidget):
    """The live widget: its numbers are those of :func:`attn_course.data.load_language_model`.

    Args:
        **state: Start values, such as ``text="KING "``.
    """

    _esm = esm("writer")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    alphabet = traitlets.Unicode().tag(sync=True)
    context = traitlets.Int().tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    at = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    temperature = traitlets.Float().tag(sync=True)
    top_p = traitlets.Float().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, read, READS)
