"""A small trained Vision Transformer on an image that the reader draws, beside a convolution."""

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

from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import kernel_shifts, shift_bias
from attn_course.nn import VisionTransformer, capture, vit_like

HEIGHT, HEIGHT_NARROW = 355, 418
WEIGHTS = Path(__file__).with_name("patch_attention_weights.json")
SIDE, PATCH, EMBED, HEADS, HIDDEN = 16, 4, 32, 4, 64
INPUTS = ("pixels", "asking", "entry")


def build() -> VisionTransformer:
    """The architecture, untrained: one block, 16 patches, the mean of their vectors."""
    return vit_like(
        image_size=SIDE, patch_size=PATCH, num_channels=1, embed_dim=EMBED, num_heads=HEADS,
        num_layers=1, hidden_dim=HIDDEN, num_classes=2, pool="mean", position="sinusoidal",
    )  # fmt: skip


def load(model: VisionTransformer, encoded: str) -> None:
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
def _trained() -> tuple[dict[str, Any], VisionTransformer]:
    saved = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    model = build()
    load(model, saved["weights"])
    # float64, so that the browser, which has no other numbers, can be compared digit by digit
    return saved, model.double().eval()


@torch.no_grad()
def compute(*, pixels: Sequence[Number], asking: int, entry: int) -> dict[str, Any]:
    """Attention of one patch by the package's model, and the weights of one head of a convolution.

    Args:
        pixels: 16 rows of 16 numbers: -1 black, 1 white, 0 nothing.
        asking: The patch that looks, 0 to 15 in the order of reading.
        entry: The entry of a 3 by 3 kernel over patches, 0 to 8.

    Returns:
        ``weights``: 16 for each head; ``same``: chance that the two patterns are the same, by the
        model; ``fixed``: 16 weights of the head that looks where the kernel's entry looks.

    Raises:
        ValueError: If there are other than 256 pixels, or there is no such patch or entry.
    """
    if len(pixels) != SIDE * SIDE:
        raise ValueError(f"pixels: expected {SIDE * SIDE}, got {len(pixels)}")
    cells = SIDE // PATCH
    for name, value, count in (("asking", asking, cells * cells), ("entry", entry, 9)):
        if not 0 <= value < count:
            raise ValueError(f"{name}: expected 0 to {count - 1}, got {value}")
    _, model = _trained()
    image = torch.tensor(list(pixels), dtype=torch.float64).view(1, 1, SIDE, SIDE)
    with capture(model, "encoder.blocks.0.attention.weights") as seen:
        logits = model(image)[0]
    weights = seen["encoder.blocks.0.attention.weights"][0, :, asking]  # (H, N)
    shift = kernel_shifts(3)[entry : entry + 1]
    fixed = shift_bias(cells, cells, shift, dtype=torch.float64).softmax(-1)[0, asking]
    # what is left of e^-100 is no weight that anybody could see
    fixed = torch.where(fixed < 1e-30, 0.0, fixed)
    return {
        "weights": plain(weights),
        "same": logits.softmax(-1)[1].item(),
        "fixed": plain(fixed),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: two equal patterns at opposite edges."""
    image = torch.zeros(SIDE, SIDE)
    pattern = torch.tensor([[1, 1, -1, -1], [1, -1, 1, -1], [-1, -1, 1, 1], [1, -1, -1, 1]])
    image[4:8, 0:4] = pattern
    image[8:12, 12:16] = pattern
    saved, _ = _trained()
    return {
        "kernel": False,
        "pixels": [int(one) for one in image.flatten().tolist()],
        "asking": 4,
        "entry": 5,
        "head": 2,
        "layout": {
            "side": SIDE,
            "patch": PATCH,
            "embed": EMBED,
            "heads": HEADS,
            "hidden": HIDDEN,
        },
        "encoded": saved["weights"],
    }


class PatchAttention(anywidget.AnyWidget):
    """The live widget: the model is :class:`attn_course.nn.VisionTransformer`.

    Args:
        **state: Start values, such as ``asking=0``.
    """

    _esm = esm("patch_attention")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    pixels = traitlets.List().tag(sync=True)
    asking = traitlets.Int().tag(sync=True)
    entry = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    layout = traitlets.Dict().tag(sync=True)
    encoded = traitlets.Unicode().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
