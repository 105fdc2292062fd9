"""A line of text through the course's own language model: every head, and the answer without it."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import anywidget
import torch
import traitlets

from attn_course.explorers._result import follow
from attn_course.explorers._source import esm, stylesheet
from attn_course.explorers.writer import language_model
from attn_course.nn import LanguageModel, capture, patched, without_heads

HEIGHT, HEIGHT_NARROW = 690, 785
LAYERS, HEADS, MOST, SHOWN = 6, 6, 40, 5
INPUTS = ("before", "after")
READS = ("text", "off")
# lines of tiny Shakespeare, with the head that each needs most
LINES = (
    ("With Tybalt's slander,--Tybal", 29),
    ("Call forth Bagot.\nNow, Bago", 19),
    ("were flint, like Edward's;\nOr Ed", 13),
    ("Death is my son-in-law, Deat", 20),
)


def compute(*, before: list[list[float]], after: list[list[float]]) -> dict[str, Any]:
    """What is likely next after each part of the model, with all heads and without some.

    Args:
        before: Logits that the residual stream gives after the embedding and after each block.
        after: The same with heads switched off.

    Returns:
        ``answer``, the likeliest character with all heads; ``steps``: for each part, the likeliest
        character of ``after`` and the two probabilities of the answer; ``next``: characters with
        both final probabilities, the likeliest first.

    Raises:
        ValueError: If the two have not the same number of parts.
    """
    with_all, without = (torch.tensor(x, dtype=torch.float64).softmax(-1) for x in (before, after))
    if with_all.shape != without.shape:
        raise ValueError(f"after: expected shape {with_all.shape}, got {without.shape}")
    answer = int(with_all[-1].argmax())
    larger = torch.maximum(with_all[-1], without[-1])
    order = sorted(range(len(larger)), key=lambda i: (-larger[i].item(), i))[:SHOWN]
    return {
        "answer": answer,
        "steps": [
            [int(y.argmax()), x[answer].item(), y[answer].item()]
            for x, y in zip(with_all, without, strict=True)
        ],
        "next": [[i, with_all[-1, i].item(), without[-1, i].item()] for i in order],
    }


def _lens(
    model: LanguageModel, ids: torch.Tensor, off: Sequence[int]
) -> tuple[list[Any], list[Any]]:
    """Logits after each part, and each head's weights, at the last position."""
    with ExitStack() as stack:
        for layer in range(LAYERS):
            if gone := [head % HEADS for head in off if head // HEADS == layer]:
                name = f"blocks.{layer}.attention.heads"
                stack.enter_context(patched(model, name, without_heads(*gone)))
        names = ("embedding", "blocks.?", "blocks.*.attention.weights")
        seen = stack.enter_context(capture(model, *names))
        model(ids)
    stream = [seen["embedding"], *(seen[f"blocks.{layer}"] for layer in range(LAYERS))]
    assert model.norm is not None
    assert model.output_projection is not None
    logits = [model.output_projection(model.norm(x[0, -1])) for x in stream]
    weights = [
        row
        for layer in range(LAYERS)
        for row in seen[f"blocks.{layer}.attention.weights"][0, :, -1]
    ]
    return (
        [[round(value, 3) for value in row.tolist()] for row in logits],
        [[round(value, 3) for value in row.tolist()] for row in weights],
    )


@torch.no_grad()
def read(*, text: str, off: Sequence[int]) -> dict[str, Any]:
    """Run the model over a line, with all heads and without some.

    Args:
        text: 1 to ``MOST`` characters that it knows.
        off: Heads whose outputs are 0, counted through the layers from 0.

    Returns:
        ``before`` and ``after``: logits at the last position after the embedding and each block;
        ``attention``: the weights of every head there, with all heads on.

    Raises:
        ValueError: If the text is empty or too long, or there is no such head.
    """
    model, characters = language_model()
    if not 0 < len(text) <= MOST:
        raise ValueError(f"text: expected 1 to {MOST} characters, got {len(text)}")
    if any(not 0 <= head < LAYERS * HEADS for head in off):
        raise ValueError(f"off: expected heads 0 to {LAYERS * HEADS - 1}, got {list(off)}")
    ids = characters.encode(text)[None]
    before, attention = _lens(model, ids, [])
    after = _lens(model, ids, off)[0] if off else before
    return {"before": before, "after": after, "attention": attention}


@torch.no_grad()
def losses(text: str) -> list[float]:
    """What the probability of the likeliest next character loses without each head alone."""
    model, characters = language_model()

    def without(layer: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def ablate(found: torch.Tensor) -> torch.Tensor:
            heads = torch.arange(HEADS)  # one copy of the line for each
            return found.index_put((layer * HEADS + heads, heads), torch.zeros(()))

        return ablate

    with ExitStack() as stack:
        for layer in range(LAYERS):
            name = f"blocks.{layer}.attention.heads"
            stack.enter_context(patched(model, name, without(layer)))
        lines = characters.encode(text).expand(LAYERS * HEADS + 1, -1)
        *alone, whole = model(lines)[:, -1].softmax(-1)
    answer = int(whole.argmax())
    return [round(max(0.0, (whole[answer] - one[answer]).item()), 3) for one in alone]


def default_state() -> dict[str, Any]:
    """The state a page starts with: a line, and the answer without the head that it needs most."""
    _, characters = language_model()
    text, head = LINES[0]
    return {
        "kernel": False,
        "alphabet": characters.alphabet,
        "heads": HEADS,
        "most": MOST,
        "lines": [list(line) for line in LINES],
        "text": text,
        "head": head,
        "off": [head],
        "lost": losses(text),
        "result": read(text=text, off=[head]),
    }


class TransformerFlow(anywidget.AnyWidget):
    """The live widget: the model is that of :func:`attn_course.data.load_language_model`.

    Args:
        **state: Start values, such as ``text="KING "``.
    """

    _esm = esm("transformer_flow")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    alphabet = traitlets.Unicode().tag(sync=True)
    heads = traitlets.Int().tag(sync=True)
    most = traitlets.Int().tag(sync=True)
    lines = traitlets.List().tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    off = traitlets.List().tag(sync=True)
    lost = traitlets.List().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, read, READS)
