"""How far back RNN, LSTM and GRU can feel, as one bends their recurrent scale and their gates."""

from collections.abc import Callable, Sequence
from typing import Any

import anywidget
import torch
import traitlets
from torch import Tensor

from attn_course.analysis.gradient_reach import gradient_reach
from attn_course.explorers._result import Number, follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional.recurrent import gru_cell, lstm_cell, rnn_cell

HEIGHT, HEIGHT_NARROW = 466, 534
HIDDEN, FEATURES, LONGEST = 16, 8, 100
INPUTS = ("scale", "bias", "length", "input_scale", "weight_ih", "weight_hh", "inputs")
Blocks = Sequence[Sequence[Sequence[Number]]]


def compute(
    *,
    scale: Number,
    bias: Number,
    length: int,
    input_scale: Number,
    weight_ih: Blocks,
    weight_hh: Blocks,
    inputs: Sequence[Sequence[Number]],
) -> dict[str, Any]:
    """The three curves, by the package's cells and its ``gradient_reach``, in float64.

    Args:
        scale: The recurrent blocks, orthogonal as given, are multiplied by this: it is then the
            spectral radius of the plain network's matrix.
        bias: Added to the forget gate of the LSTM and to the update gate of the GRU.
        length: How many of the inputs are read.
        input_scale: The inputs are multiplied by this.
        weight_ih: Four blocks of 16 by 8; the plain network uses the first, the GRU three.
        weight_hh: Four blocks of 16 by 16.
        inputs: The longest sequence, 8 features a step.

    Returns:
        For ``RNN``, ``LSTM`` and ``GRU`` the Frobenius norm of the derivative of the last state by
        each input, lag 0 first.

    Raises:
        ValueError: If the length is below 1 or above the number of inputs.
    """
    if not 1 <= length <= len(inputs):
        raise ValueError(f"length: expected 1 to {len(inputs)}, got {length}")
    ih = torch.tensor(weight_ih, dtype=torch.float64)  # (4, H, D)
    hh = torch.tensor(weight_hh, dtype=torch.float64) * scale  # (4, H, H)
    sequence = torch.tensor(inputs[:length], dtype=torch.float64) * input_scale  # (L, D)
    hidden = hh.shape[-1]

    def biased(gate: int, gates: int) -> Tensor:
        values = torch.zeros(gates, hidden, dtype=torch.float64)
        values[gate] = bias
        return values.flatten()

    def reach(step: Callable[[Tensor, Any], Any], state: Any) -> Any:
        def last(x: Tensor) -> Tensor:
            now = state
            for t in range(length):
                now = step(x[:, t], now)
            return now[0] if isinstance(now, tuple) else now  # type: ignore[no-any-return]

        return plain(gradient_reach(last, sequence.unsqueeze(0)))

    zero = torch.zeros(1, hidden, dtype=torch.float64)
    none = torch.zeros(4 * hidden, dtype=torch.float64)
    rnn = (ih[0], hh[0], none[:hidden], none[:hidden])
    lstm = (ih.flatten(0, 1), hh.flatten(0, 1), biased(1, 4), none)
    gru = (ih[:3].flatten(0, 1), hh[:3].flatten(0, 1), biased(1, 3), none[: 3 * hidden])
    return {
        "RNN": reach(lambda x, state: rnn_cell(x, state, *rnn), zero),
        "LSTM": reach(lambda x, state: lstm_cell(x, state, *lstm), (zero, zero)),
        "GRU": reach(lambda x, state: gru_cell(x, state, *gru), zero),
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: weights and inputs of seed 0, four decimals each."""
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    recurrent = torch.linalg.qr(torch.randn(4, HIDDEN, HIDDEN, **options))[0]
    bound = HIDDEN**-0.5  # torch's own range for recurrent layers
    feeding = (2 * torch.rand(4, HIDDEN, FEATURES, **options) - 1) * bound
    sequence = torch.randn(LONGEST, FEATURES, **options)
    return {
        "kernel": False,
        "scale": 0.58,  # what torch's initialisation gives: sqrt(1/3)
        "bias": 0.0,
        "length": 51,
        "input_scale": 1.0,
        "weight_ih": _rounded(feeding),
        "weight_hh": _rounded(recurrent),
        "inputs": _rounded(sequence),
    }


def _rounded(values: Tensor) -> Any:
    def cut(item: Any) -> Any:
        return [cut(part) for part in item] if isinstance(item, list) else round(item, 4)

    return cut(values.tolist())


class GradientReach(anywidget.AnyWidget):
    """The live widget: cells from :mod:`attn_course.functional`, curves likewise.

    Args:
        **state: Start values, such as ``scale=1.0`` or ``bias=3.0``.
    """

    _esm = esm("gradient_reach")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    scale = traitlets.Float().tag(sync=True)
    bias = traitlets.Float().tag(sync=True)
    length = traitlets.Int().tag(sync=True)
    input_scale = traitlets.Float().tag(sync=True)
    weight_ih = traitlets.List().tag(sync=True)
    weight_hh = traitlets.List().tag(sync=True)
    inputs = traitlets.List().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
