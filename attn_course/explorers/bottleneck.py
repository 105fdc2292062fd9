"""Everything through one vector: a trained encoder-decoder says your letters backwards."""

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import torch
import traitlets

from attn_course.data import BOS, EOS
from attn_course.data.tasks import symbol_vocabulary
from attn_course.explorers._result import follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.nn import Decoder, Encoder, EncoderDecoder

HEIGHT, HEIGHT_NARROW = 504, 618
WEIGHTS = Path(__file__).with_name("bottleneck_weights.json")
HIDDEN, EMBED, MOST = 40, 8, 18
LETTERS = "abcdefgh"
INPUTS = ("text",)


def build() -> EncoderDecoder:
    """The architecture, untrained: GRU cells, a context vector of 40 numbers, float32."""
    size = len(symbol_vocabulary(len(LETTERS)))
    return EncoderDecoder(
        encoder=Encoder(vocab_size=size, embed_dim=EMBED, hidden_size=HIDDEN),
        decoder=Decoder(vocab_size=size, embed_dim=EMBED, context_size=HIDDEN, hidden_size=HIDDEN),
    )


def load(model: EncoderDecoder, encoded: str) -> None:
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
def _trained() -> tuple[dict[str, Any], EncoderDecoder]:
    saved = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    model = build()
    load(model, saved["weights"])
    # float64, so that the browser, which has no other numbers, can be compared digit by digit
    return saved, model.double().eval()


@torch.no_grad()
def compute(*, text: str) -> dict[str, Any]:
    """Encode and decode with the package's model.

    Args:
        text: 1 to 18 letters from *a* to *h*.

    Returns:
        ``states``: the encoder's state after each letter, the last one is the context vector;
        ``output``: what the decoder says, greedily; ``chances``: the probability of each of its
        letters; ``ended``: whether it said the end symbol within one step more than it should.

    Raises:
        ValueError: If the text is empty, too long, or has other letters.
    """
    if not 1 <= len(text) <= MOST or set(text) - set(LETTERS):
        raise ValueError(f"text: expected 1 to {MOST} letters from a to h, got {text!r}")
    model, vocabulary = _trained()[1], symbol_vocabulary(len(LETTERS))
    source = torch.tensor([vocabulary.encode(text)])
    states, context = model.encoder(source)
    state, token = model.decoder.init_state(context), torch.tensor([BOS])
    output, chances, ended = "", [], False
    for _ in range(len(text) + 1):
        logits, state = model.step(token, state)
        chance, token = logits.softmax(-1).max(-1)
        if token.item() == EOS:
            ended = True
            break
        said = vocabulary.tokens[int(token)]
        output += said if len(said) == 1 else "?"
        chances.append(chance)
    return {
        "states": plain(states[0]),
        "output": output,
        "chances": plain(torch.cat(chances)) if chances else [],
        "ended": ended,
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: the weights, their layout, the accuracies measured."""
    saved, model = _trained()
    return {
        "kernel": False,
        "text": "cabbagedecade",
        "letters": LETTERS,
        "most": MOST,
        "weights": saved["weights"],
        "layout": [[name, list(p.shape)] for name, p in model.state_dict().items()],
        "accuracy": saved["accuracy"],
        "trained_length": saved["trained_length"],
        "sequences_per_length": saved["sequences_per_length"],
    }


class Bottleneck(anywidget.AnyWidget):
    """The live widget: encoder and decoder are those of :mod:`attn_course.nn`.

    Args:
        **state: Start values, such as ``text="headed"``.
    """

    _esm = esm("bottleneck")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    letters = traitlets.Unicode().tag(sync=True)
    most = traitlets.Int().tag(sync=True)
    weights = traitlets.Unicode().tag(sync=True)
    layout = traitlets.List().tag(sync=True)
    accuracy = traitlets.Dict().tag(sync=True)
    trained_length = traitlets.Int().tag(sync=True)
    sequences_per_length = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
