"""A small trained language model on the words that the reader types: every head, in the page."""

import base64
import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import torch
import traitlets
from torch import Tensor

from attn_course.data.vocabulary import BOS, Vocabulary
from attn_course.explorers._result import follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.nn import (
    FeedForward,
    LanguageModel,
    LayerNorm,
    MultiHeadAttention,
    RotaryPositions,
    TokenEmbedding,
    capture,
    decoder_only,
    patched,
    without_heads,
)

HEIGHT, HEIGHT_NARROW = 706, 1162
WEIGHTS = Path(__file__).with_name("transformer_flow_weights.json")
EMBED, LAYERS, HEADS, HEAD_DIM, HIDDEN, BASE = 32, 2, 4, 32, 64, 100.0
MOST, SHOWN = 14, 5
INPUTS = ("text", "off", "at")
EXAMPLES = (
    "anna has a red ball . tom likes the red",
    "mia and ben went to the park . mia gave a cake to",
    "fish green tom likes fish green tom",
    "the old dog sees the",
)


def build(vocab_size: int) -> LanguageModel:
    """The architecture, untrained: two pre-norm blocks of four heads, RoPE, an output of its own.

    Args:
        vocab_size: Words, the four reserved places included.
    """
    return decoder_only(
        embedding=TokenEmbedding(vocab_size=vocab_size, embed_dim=EMBED),
        num_layers=LAYERS,
        attention=lambda: MultiHeadAttention(
            embed_dim=EMBED, num_heads=HEADS, head_dim=HEAD_DIM, position=RotaryPositions(base=BASE)
        ),
        feed_forward=lambda: FeedForward(embed_dim=EMBED, hidden_dim=HIDDEN),
        norm=lambda: LayerNorm(embed_dim=EMBED),
        tied=False,
    )


def load(model: LanguageModel, encoded: str) -> None:
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
def _trained() -> tuple[dict[str, Any], Vocabulary, LanguageModel]:
    saved = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    words = Vocabulary(saved["words"])
    model = build(len(words))
    load(model, saved["weights"])
    # float64, so that the browser, which has no other numbers, can be compared digit by digit
    return saved, words, model.double().eval()


def read(text: str) -> list[str]:
    """The words that the model is given: letters and full stops, at most the last fourteen."""
    return re.findall(r"[a-z]+|\.", text.lower())[-MOST:]


@torch.no_grad()
def compute(*, text: str, off: Sequence[int], at: int) -> dict[str, Any]:
    """Run the package's model over a text, some heads switched off.

    Args:
        text: What was typed.
        off: Heads that find nothing: 0 to 3 in layer 1, 4 to 7 in layer 2.
        at: Position that is looked at, 0 for the start; -1 for the last one.

    Returns:
        ``tokens``: the words read; ``known``: whether the model knows each; ``at``; ``weights``: by
        head, query and key; ``top``: the likeliest next words with their chances; ``lens``: the
        likeliest word and its chance if the model stopped after the embedding, after layer 1 and
        after layer 2; ``parts``: what each part of the sum adds to the logit of ``top``'s first
        word, less what it adds to the mean of all logits.

    Raises:
        ValueError: If there is no such head or position.
    """
    _, words, model = _trained()
    if any(not 0 <= head < LAYERS * HEADS for head in off):
        raise ValueError(f"off: expected heads 0 to {LAYERS * HEADS - 1}, got {list(off)}")
    found = read(text)
    ids = torch.tensor([[BOS, *words.encode(found)]])
    length = ids.shape[1]
    if at < -1:
        raise ValueError(f"at: expected -1 or a position, got {at}")
    place = length - 1 if at < 0 else min(at, length - 1)
    with ExitStack() as stack:
        for layer in range(LAYERS):
            gone = [h - layer * HEADS for h in off if h // HEADS == layer]
            if gone:
                name = f"blocks.{layer}.attention.heads"
                stack.enter_context(patched(model, name, without_heads(*gone)))
        seen = stack.enter_context(
            capture(
                model,
                "embedding",
                "blocks.*.attention.weights",
                "blocks.*.attention.heads",
                "blocks.*.feed_forward",
                "blocks.?",
            )
        )
        logits = model(ids)[0, place]
    chances = logits.softmax(-1)
    order = sorted(range(len(chances)), key=lambda i: (-chances[i].item(), i))[:SHOWN]
    stream = [seen["embedding"], *(seen[f"blocks.{layer}"] for layer in range(LAYERS))]
    lens = []
    for x in stream:
        share = _logits(model, x[0, place]).softmax(-1)
        best = int(share.argmax())
        lens.append([words.tokens[best], share[best].item()])
    return {
        "tokens": ["start", *found],
        "known": [True, *(word in words for word in found)],
        "at": place,
        "weights": [
            head
            for layer in range(LAYERS)
            for head in plain(seen[f"blocks.{layer}.attention.weights"][0])
        ],
        "top": [[words.tokens[i], chances[i].item()] for i in order],
        "lens": lens,
        "parts": _parts(model, seen, place, order[0]),
    }


def _logits(model: LanguageModel, x: Tensor) -> Tensor:
    assert model.norm is not None
    assert model.output_projection is not None
    found: Tensor = model.output_projection(model.norm(x))
    return found


def _parts(model: LanguageModel, seen: Any, place: int, word: int) -> list[float]:
    """Direct shares of a logit: embedding, heads of layer 1, feed-forward 1, layer 2 likewise."""
    norm, table = model.norm, model.output_projection
    assert isinstance(norm, LayerNorm)
    assert isinstance(table, torch.nn.Linear)
    last = seen[f"blocks.{LAYERS - 1}"][0, place]
    scale = (last.var(correction=0) + norm.eps).sqrt()
    push = norm.weight * (table.weight[word] - table.weight.mean(0))
    vectors = [seen["embedding"][0, place]]
    for layer in range(LAYERS):
        attention = model.get_submodule(f"blocks.{layer}.attention")
        assert isinstance(attention, MultiHeadAttention)
        mix = attention.output_projection.weight.unflatten(-1, (HEADS, -1))  # (D, H, Ev)
        heads = seen[f"blocks.{layer}.attention.heads"][0, :, place]  # (H, Ev)
        vectors += list(torch.einsum("dhe,he->hd", mix, heads))
        vectors.append(seen[f"blocks.{layer}.feed_forward"][0, place])
    return [((v - v.mean()) / scale @ push).item() for v in vectors]


def default_state() -> dict[str, Any]:
    """The state a page starts with: the first example, no head switched off."""
    saved, words, _ = _trained()
    return {
        "kernel": False,
        "text": EXAMPLES[0],
        "off": [],
        "at": -1,
        "head": 0,
        "examples": list(EXAMPLES),
        "words": list(words.tokens),
        "layout": {
            "embed": EMBED,
            "layers": LAYERS,
            "heads": HEADS,
            "headDim": HEAD_DIM,
            "hidden": HIDDEN,
            "base": BASE,
            "most": MOST,
            "shown": SHOWN,
        },
        "weights": saved["weights"],
    }


class TransformerFlow(anywidget.AnyWidget):
    """The live widget: the model is :class:`attn_course.nn.LanguageModel`.

    Args:
        **state: Start values, such as ``text="the old dog"``.
    """

    _esm = esm("transformer_flow")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    off = traitlets.List().tag(sync=True)
    at = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    examples = traitlets.List().tag(sync=True)
    words = traitlets.List().tag(sync=True)
    layout = traitlets.Dict().tag(sync=True)
    weights = traitlets.Unicode().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
