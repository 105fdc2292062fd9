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
    "attention_ablations": Tuned(
        lambda values: {
            f"{task}: {way}": dict(zip((0.003, 0.01, 0.02), found["at rates"], strict=True))
            for task, ways in values.items()
            for way, found in ways.items()
        },
        edges={
            **dict.fromkeys(
                (
                    f"{task}: {way}"
                    for task in ("look up, 4 of 8", "sum", "difference")
                    for way in ("no softmax", "neither")
                ),
                "(For the variants without the softmax the best rate on the easy look-up, the sum "
                "and the difference is the largest of the three, and no larger one was tried.",
            ),
            **dict.fromkeys(
                (
                    "look up, 4 of 8: whole",
                    "look up, 4 of 8: no W_V",
                    "look up, 4 of 8: equal weights",
                    "look up, 16 of 32, wide: whole",
                    "look up, 16 of 32, wide: no W_V",
                    "look up, 16 of 32, wide: equal weights",
                    "sum: equal weights",
                    "difference: equal weights",
                ),
                "Where a variant is right, or wrong, at nearly all rates alike, its best rate may "
                "be an end of the row.)",
            ),
        },
    ),
    "heads_at_once": Tuned(
        lambda values: {
            f"{asked} asked, {heads} heads": dict(
                zip((0.006, 0.012, 0.024), values[f"asked {asked}"]["at rates"][i], strict=True)
            )
            for asked in (1, 2, 4)
            for i, heads in enumerate(values["heads"])
        },
        edges={
            "2 asked, 1 heads": "(With two names asked, one head does best at the smallest of its "
            "three rates, and no smaller one was tried.",
            **dict.fromkeys(
                (
                    *(f"1 asked, {heads} heads" for heads in (1, 2, 4)),
                    *(f"2 asked, {heads} heads" for heads in (2, 4, 8, 16)),
                    "4 asked, 4 heads",
                ),
                "Where nearly all numbers are right, the best of the three rates may be an end of "
                "the row.",
            ),
        },
    ),
    # the record has the better of two rates only
    "length_extrapolation": Tuned(
        lambda values: {
            way: {rate: float(rate == found["rate"]) for rate in (0.006, 0.012)}
            for way, found in values.items()
            if way != "lengths"
        },
        edges=dict.fromkeys(
            ("ALiBi", "T5 bias", "none", "RoPE", "sinusoidal"),
            "With two rates the better one is always an end of the row (0.012 for all but the "
            "model without positions, where the seeds differ), so the order at 64 may change with "
            "tuning.",
        ),
    ),
    "more_heads": Tuned(
        lambda values: {
            f"{heads} heads": dict(zip(values["rates"], scores, strict=True))
            for heads, scores in zip(values["heads"], values["at rates"], strict=True)
        },
        edges={
            "1 heads": "(The best rate of one head is the smallest of its row; the next two are "
            "within 0.01 of it in the median.)",
        },
    ),
}
