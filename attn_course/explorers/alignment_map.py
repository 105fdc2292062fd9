"""Type a sentence into a trained Bahdanau model and see where it looks for each word it says."""

import base64
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import torch
import traitlets

from attn_course.data import BOS, EOS, UNK, Vocabulary
from attn_course.data.dates import DATE_SOURCE_VOCABULARY, DATE_TARGET_VOCABULARY
from attn_course.data.toy_translation import (
    ADJECTIVES,
    ARTICLES,
    NOUNS,
    TRANSLATION_SOURCE_VOCABULARY,
    TRANSLATION_TARGET_VOCABULARY,
    VERBS,
    translate,
)
from attn_course.explorers._result import follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.nn import AttentionEncoderDecoder, BahdanauDecoder, BidirectionalEncoder

HEIGHT, HEIGHT_NARROW = 584, 953
WEIGHTS = Path(__file__).with_name("alignment_map_weights.json")
EMBED, HIDDEN, STATE = 12, 16, 24
STEPS = 16
# source and target vocabulary, and the longest source that is read
TASKS: dict[str, tuple[Vocabulary, Vocabulary, int]] = {
    "translation": (TRANSLATION_SOURCE_VOCABULARY, TRANSLATION_TARGET_VOCABULARY, 14),
    "dates": (DATE_SOURCE_VOCABULARY, DATE_TARGET_VOCABULARY, 30),
}
INPUTS = ("task", "text")


def build(task: str) -> AttentionEncoderDecoder:
    """The architecture, untrained: bidirectional GRU, additive score, GRU decoder, float32.

    Args:
        task: ``translation`` or ``dates``.
    """
    source, target, _ = TASKS[task]
    return AttentionEncoderDecoder(
        encoder=BidirectionalEncoder(vocab_size=len(source), embed_dim=EMBED, hidden_size=HIDDEN),
        decoder=BahdanauDecoder(
            vocab_size=len(target),
            embed_dim=EMBED,
            context_size=2 * HIDDEN,
            summary_size=HIDDEN,
            hidden_size=STATE,
        ),
    )


def load(model: AttentionEncoderDecoder, encoded: str) -> None:
    """Fill the parameters, in the order of the state dict, from float16 numbers in base64.

    Args:
        model: From :func:`build`.
        encoded: Little-endian float16, base64.

    Raises:
        ValueError: If there are more or fewer numbers than parameters.
    """
    numbers = torch.from_numpy(np.frombuffer(base64.b64decode(encoded), dtype="<f2").copy())
    state = model.state_dict()
    expected = sum(p.numel() for p in state.values())
    if len(numbers) != expected:
        raise ValueError(f"encoded: expected {expected} numbers, got {len(numbers)}")
    parts = numbers.split([p.numel() for p in state.values()])
    model.load_state_dict(
        {name: part.view(p.shape) for (name, p), part in zip(state.items(), parts, strict=True)}
    )


@cache
def _trained() -> dict[str, tuple[dict[str, Any], AttentionEncoderDecoder]]:
    saved = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    models = {}
    for task, content in saved["models"].items():
        model = build(task)
        load(model, content["weights"])
        # float64, so that the browser, which has no other numbers, can be compared digit by digit
        models[task] = content, model.double().eval()
    return models


def split(task: str, text: str) -> list[str]:
    """What the model reads: words without punctuation for the translation, characters for dates.

    Args:
        task: ``translation`` or ``dates``.
        text: As it was typed; capitals become small letters, runs of spaces one.
    """
    words = [word for word in re.split(r"[ \t\r\n]+", text.lower()) if word]
    if task == "dates":
        return list(" ".join(words))
    stripped = [re.sub(r"^[.,;:!?\"]+|[.,;:!?\"]+$", "", word) for word in words]
    return [word for word in stripped if word]


def _expected(task: str, tokens: Sequence[str]) -> dict[str, Any] | None:
    """The right translation and its alignment, where the sentence is one of the language."""
    if task != "translation":
        return None
    try:
        pair = translate(tokens)
    except ValueError:
        return None
    return {"output": list(pair.target), "alignment": list(pair.alignment)}


@torch.no_grad()
def compute(*, task: str, text: str) -> dict[str, Any]:
    """Encode and decode greedily with the package's model, in float64.

    Args:
        task: ``translation`` or ``dates``.
        text: A sentence of 1 to 14 words, or a date of up to 30 characters.

    Returns:
        ``source``: what was read; ``known``: whether the vocabulary has it; ``output``: what was
        said, ``<eos>`` included, and with a source word in the place of each ``<unk>``: the one
        with the largest weight; ``copied``: which those are; ``weights``: a row over the source
        for each of them; ``logits``: a row over the target vocabulary; ``expected``: the right
        answer and its alignment, or none.

    Raises:
        ValueError: If there is no such task, or the text is empty or too long.
    """
    if task not in TASKS:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}, got {task!r}")
    source, target, most = TASKS[task]
    tokens = split(task, text)
    if not 1 <= len(tokens) <= most:
        raise ValueError(f"text: expected 1 to {most} words or characters, got {len(tokens)}")
    model = _trained()[task][1]
    state, token = model.init_state(torch.tensor([source.encode(tokens)])), torch.tensor([BOS])
    output, copied, weights, all_logits = [], [], [], []
    for _ in range(STEPS):
        logits, state = model.step(token, state)
        token = logits.argmax(-1)
        alignment = state.alignment[0]
        unknown = token.item() == UNK
        copied.append(unknown)
        output.append(tokens[int(alignment.argmax())] if unknown else target.tokens[int(token)])
        weights.append(plain(alignment))
        all_logits.append(plain(logits[0]))
        if token.item() == EOS:
            break
    return {
        "source": tokens,
        "known": [token in source for token in tokens],
        "output": output,
        "copied": copied,
        "weights": weights,
        "logits": all_logits,
        "expected": _expected(task, tokens),
    }


EXAMPLES = {
    "translation": [
        # in all of these the articles look at themselves: to find one that does not is the task
        "a happy girl paints the white flower",
        "the boy wants the old green book",
        "the small girl sees a red dog",
        "the old zebra sees a small house",
    ],
    "dates": ["3rd of may 1987", "september 12, 2024", "1999/07/31", "the 21st of january 1950"],
}


def default_state() -> dict[str, Any]:
    """The state a page starts with: weights and vocabularies of both models, and examples."""
    models = {}
    for task, (content, model) in _trained().items():
        source, target, most = TASKS[task]
        models[task] = {
            "weights": content["weights"],
            "layout": [[name, list(p.shape)] for name, p in model.state_dict().items()],
            "source": list(source.tokens),
            "target": list(target.tokens),
            "most": most,
            "steps": STEPS,
            "accuracy": content["accuracy"],
            "sequences": content["sequences"],
        }
    return {
        "kernel": False,
        "task": "translation",
        "text": EXAMPLES["translation"][0],
        "models": models,
        "examples": EXAMPLES,
        "lexicon": {
            "articles": {word: list(forms) for word, forms in ARTICLES.items()},
            "adjectives": {word: list(forms) for word, forms in ADJECTIVES.items()},
            "nouns": {word: list(entry) for word, entry in NOUNS.items()},
            "verbs": VERBS,
        },
    }


class AlignmentMap(anywidget.AnyWidget):
    """The live widget: encoder, decoder and alignment are those of :mod:`attn_course.nn`.

    Args:
        **state: Start values, such as ``text="the cat sees a dog"`` or ``task="dates"``.
    """

    _esm = esm("alignment_map")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    task = traitlets.Unicode().tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    models = traitlets.Dict().tag(sync=True)
    examples = traitlets.Dict().tag(sync=True)
    lexicon = traitlets.Dict().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
