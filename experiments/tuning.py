"""Which settings each side of a comparison was tried at, and whether the best lies inside.

A verdict of the form "A beats B" holds only as far as both were tuned. One entry per record whose
experiment compares sides at several settings; a test reads them all. Where the best setting of a
side is the first or the last of its grid, either the grid is too narrow, or ``edges`` has the
sentence of the page that says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Scores = Mapping[float, float]  # by setting, such as a learning rate; higher is better


@dataclass(frozen=True)
class Tuned:
    """How to read the settings of one record.

    Args:
        sides: From the values of one run to each side's score at each setting.
        edges: For a side whose best setting is at an edge, the sentence of the page that says so,
            word for word.
    """

    sides: Callable[[dict[str, Any]], Mapping[str, Scores]]
    edges: Mapping[str, str] = field(default_factory=dict)


TUNED: dict[str, Tuned] = {
    # name of the record: Tuned(lambda values: {"side": {rate: score, ...}}),
    "grouped_heads": Tuned(
        lambda values: {
            name: {
                rate: -bits for rate, bits in zip(values["rates"], side["at rates"], strict=True)
            }
            for name, side in values.items()
            if name != "rates"
        },
        edges=dict.fromkeys(
            ("4 heads of keys", "2 heads of keys", "1 head of keys", "latent"),
            "Every kind did better at the larger of the two rates, so that a still larger one "
            "might change the distances.",
        ),
    ),
    "induction_heads": Tuned(
        lambda values: {
            "one layer": dict(zip((0.005, 0.01, 0.02), values["one layer"], strict=True))
        }
    ),
}
