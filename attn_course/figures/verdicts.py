"""Differences between a hero and its control, and the verdicts that follow from them."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH, bands, named_ticks


def two_ways_by_start(spreads: Sequence[float], right: Mapping[str, ArrayLike]) -> None:
    """Share of right answers against the spread of the initial weights, for two ways of training.

    Args:
        spreads: Standard deviations of the initial weights.
        right: By way of training, (seeds, spreads).
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.6))
        bands(ax, spreads, right, names=False)
        named_ticks(ax, spreads, base=10)
        ax.axvline(0.1, color=viz.PALETTE[4], linestyle=":", linewidth=1.5)
        ax.set(xlabel="spread of the initial weights", ylabel="share of right answers")
        ax.set_ylim(0, 1.05)
        fig.legend(loc="outside upper center", ncols=2, columnspacing=1)
    viz.show(
        fig,
        alt="Share of right answers against the spread of the initial weights. Linear start is "
        "near one up to 0.3 and at a guess from 0.5. Softmax from the start is at a guess up to "
        "0.1, near one from 0.2 to 0.5 and at a guess at 1. A dotted line marks 0.1.",
        caption="Memory networks of chapter 06, trained in two ways: median and range of "
        f"{len(np.asarray(next(iter(right.values()))))} seeds. The dotted line is the setting of "
        "the paper.",
    )


def verdict_rows(
    differences: Mapping[str, ArrayLike], verdicts: Mapping[str, str], *, margin: float
) -> None:
    """One row of differences for each case, and the verdict of the rule.

    Args:
        differences: By case, hero less control for each seed.
        verdicts: By case.
        margin: From which a difference counts.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.0))
        for row, (name, found) in enumerate(differences.items()):
            values = np.asarray(found, dtype=np.float64)
            ax.plot(values, np.full(len(values), row), "o", color=viz.PALETTE[0], alpha=0.7)
            ax.text(0.21, row, verdicts[name], va="center", ha="right")
        ax.axvline(0.0, color=viz.PALETTE[4], linewidth=1, linestyle="-")
        ax.axvline(margin, color=viz.PALETTE[1], linewidth=1, linestyle="--")
        ax.text(margin + 0.002, -0.75, "margin")
        ax.set_yticks(range(len(differences)), list(differences))
        ax.grid(False, axis="y")
        ax.set(ylim=(len(differences) - 0.5, -1), xlim=(-0.06, 0.22))
        ax.set_xlabel("hero less control, one dot for each seed")
    viz.show(
        fig,
        alt="Four rows of six dots on a line with marks at 0 and at the margin. Row A lies to the "
        "right of the margin: true. Row B lies between 0 and the margin: partly. Row C lies on "
        "both sides of 0 and left of the margin: false. Row D lies on both sides of the margin: "
        "not settled.",
        caption="Four sets of six invented differences and the verdict of the rule on each.",
    )


def tuned_and_compared(
    rates: Sequence[float], right: Mapping[str, ArrayLike], tests: Mapping[str, ArrayLike]
) -> None:
    """Above, accuracy by learning rate; below, each seed's test at the best rate of each way.

    Args:
        rates: Learning rates.
        right: By way the accuracy on validation data, (seeds, rates).
        tests: By way the accuracy on test data, one for each seed.
    """
    with viz.style():
        fig, (above, below) = viz.subplots(2, 1, size=(WIDTH, 6.2))
        named_ticks(above, rates, base=10)
        above.set(xlabel="learning rate", ylabel="right, validation", ylim=(0, 1.05))
        bands(above, rates, right)
        for values in zip(*(np.asarray(found) for found in tests.values()), strict=True):
            below.plot(range(len(tests)), values, "o-", color=viz.PALETTE[0], alpha=0.5)
        below.set_xticks(range(len(tests)), list(tests))
        below.set(xlim=(-0.4, len(tests) - 0.6), ylim=(0, 1.05), ylabel="right, test")
    viz.show(
        fig,
        alt="Above, accuracy against the learning rate: with a learned factor it rises to about "
        "one, with the factor 1 it stays near a half at its best. Below, one line for each seed "
        "over three ways: all lines fall from the learned factor to the factor 1 and rise again to "
        "the scaled dot product.",
        caption="Above: tuning, median and range of six seeds. Below: each way at its own best "
        "rate, one line for each seed. Look-up of one name in sixteen, 150 steps.",
    )
