"""A story read with one, two or three hops: trained memory networks that run in the page."""

import base64
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import torch
import traitlets

from attn_course.data.babi import BABI_VOCABULARY, OBJECTS, PLACES
from attn_course.explorers._result import follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.nn import MemoryNetwork

HEIGHT, HEIGHT_NARROW = 420, 498
WEIGHTS = Path(__file__).with_name("memory_hops_weights.json")
EMBED, MOST, HOPS = 20, 8, (1, 2, 3)
INPUTS = ("sentences", "told", "thing", "hops")
STORIES = {
    "the milk and John": (
        "milk",
        (
            "John moved to the garden",
            "Mary moved to the office",
            "John took the milk there",
            "Mary moved to the kitchen",
        ),
    ),
    "carried on": (
        "football",
        (
            "Sandra moved to the hallway",
            "Daniel moved to the bedroom",
            "Sandra took the football there",
            "Daniel moved to the garden",
            "Sandra moved to the bathroom",
            "Mary moved to the office",
        ),
    ),
    "put down": (
        "apple",
        (
            "Mary moved to the kitchen",
            "Mary took the apple there",
            "Mary moved to the hallway",
            "Mary dropped the apple",
            "John moved to the bedroom",
            "Mary moved to the garden",
        ),
    ),
    "two things": (
        "milk",
        (
            "Daniel moved to the office",
            "Daniel took the milk there",
            "John moved to the kitchen",
            "John took the football there",
            "Daniel moved to the bathroom",
            "John moved to the garden",
            "Mary moved to the bedroom",
        ),
    ),
}


def build(hops: int) -> MemoryNetwork:
    """The architecture, untrained: adjacent tying, vectors of 20 numbers, float32."""
    return MemoryNetwork(
        vocab_size=len(BABI_VOCABULARY), embed_dim=EMBED, max_sentences=MOST, hops=hops
    )


def load(model: MemoryNetwork, encoded: str) -> None:
    """Fill the parameters, in their order, from float16 numbers in base64.

    Args:
        model: From :func:`build`.
        encoded: Little-endian float16, base64.

    Raises:
        ValueError: If there are more or fewer numbers than parameters.
    """
    numbers = torch.from_numpy(np.frombuffer(base64.b64decode(encoded), dtype="<f2").copy())
    expected = sum(p.numel() for p in model.parameters())
    if len(numbers) != expected:
        raise ValueError(f"encoded: expected {expected} numbers, got {len(numbers)}")
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(numbers.float(), model.parameters())


@cache
def _trained() -> tuple[dict[str, Any], dict[int, MemoryNetwork]]:
    saved = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    models = {}
    for hops in HOPS:
        models[hops] = build(hops)
        load(models[hops], saved["weights"][str(hops)])
        # float64, so that the browser, which has no other numbers, can be compared digit by digit
        models[hops] = models[hops].double().eval()
    return saved, models


def follows(sentences: Sequence[str], thing: str) -> str:
    """Where the thing is by what the sentences say, or ``""`` when they do not say it."""
    at: dict[str, str] = {}
    holder, lies = "", ""
    for sentence in sentences:
        who, deed, *rest = sentence.split()
        if deed == "moved":
            at[who] = rest[-1]
        elif thing in rest:
            holder = who if deed == "took" else ""
            lies = at.get(who, "")
        if holder:
            lies = at.get(holder, "")
    return lies


@torch.no_grad()
def compute(
    *, sentences: Sequence[str], told: Sequence[bool], thing: str, hops: int
) -> dict[str, Any]:
    """Ask the package's network where a thing is.

    Args:
        sentences: Up to eight, oldest first.
        told: Which of them the network is given.
        thing: The object that is asked for.
        hops: 1, 2 or 3: which of the trained networks is asked.

    Returns:
        ``weights``: one row per hop, one number per sentence, 0 where it was not told; ``chances``
        of the six places, 0 to 1, which need not sum to 1 because other words have chances too;
        ``answer``: the most probable word; ``right``: what the told sentences say, or ``""``.

    Raises:
        ValueError: If there are too many sentences, ``told`` does not fit them, a word is unknown,
            there is no such thing, or no network of so many hops.
    """
    if not 1 <= len(sentences) <= MOST or len(told) != len(sentences):
        raise ValueError(
            f"sentences: expected 1 to {MOST}, with as many marks, got {len(sentences)} and "
            f"{len(told)}"
        )
    if thing not in OBJECTS:
        raise ValueError(f"thing: expected one of {', '.join(OBJECTS)}, got {thing!r}")
    if hops not in HOPS:
        raise ValueError(f"hops: expected 1, 2 or 3, got {hops}")
    rows = [sentence.split() for sentence in sentences]
    for word in (word for row in rows for word in row):
        if word not in BABI_VOCABULARY:
            raise ValueError(f"sentences: expected words of the stories, got {word!r}")
    longest = max(len(row) for row in rows)
    story = torch.zeros(1, len(rows), longest, dtype=torch.long)
    for place, (row, heard) in enumerate(zip(rows, told, strict=True)):
        if heard:
            story[0, place, : len(row)] = torch.tensor(BABI_VOCABULARY.encode(row))
    question = torch.tensor([BABI_VOCABULARY.encode(["Where", "is", "the", thing])])
    logits, weights = _trained()[1][hops].read(story, question)
    chances = logits[0].softmax(-1)
    return {
        "weights": plain(weights[0]),
        "chances": plain(chances[BABI_VOCABULARY.encode(PLACES)]),
        "answer": BABI_VOCABULARY.tokens[int(chances.argmax())],
        "right": follows([s for s, heard in zip(sentences, told, strict=True) if heard], thing),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: the first story, the words, the three networks."""
    saved, _ = _trained()
    thing, sentences = STORIES["the milk and John"]
    return {
        "kernel": False,
        "sentences": list(sentences),
        "told": [True] * len(sentences),
        "thing": thing,
        "hops": 2,
        "stories": [[name, thing, list(story)] for name, (thing, story) in STORIES.items()],
        "things": list(OBJECTS),
        "places": list(PLACES),
        "words": list(BABI_VOCABULARY.tokens),
        "embed": EMBED,
        "most": MOST,
        "weights": saved["weights"],
        "error": saved["error"],
    }


class MemoryHops(anywidget.AnyWidget):
    """The live widget: the networks are :class:`attn_course.nn.MemoryNetwork`.

    Args:
        **state: Start values, such as ``hops=1``.
    """

    _esm = esm("memory_hops")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    sentences = traitlets.List().tag(sync=True)
    told = traitlets.List().tag(sync=True)
    thing = traitlets.Unicode().tag(sync=True)
    hops = traitlets.Int().tag(sync=True)
    stories = traitlets.List().tag(sync=True)
    things = traitlets.List().tag(sync=True)
    places = traitlets.List().tag(sync=True)
    words = traitlets.List().tag(sync=True)
    embed = traitlets.Int().tag(sync=True)
    most = traitlets.Int().tag(sync=True)
    weights = traitlets.Dict().tag(sync=True)
    error = traitlets.Dict().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
