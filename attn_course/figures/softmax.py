"""Softmax: its derivative, its limits in each number format, and what padding takes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_course import viz
from attn_course.figures._shared import WIDTH


def slope_by_spread(spreads: ArrayLike, curves: Mapping[str, Sequence[float]]) -> None:
    """Largest weight, and size of the derivative, against the spread of the scores.

    Args:
        spreads: Standard deviations.
        curves: By what is measured.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.4))
        ax.set(xscale="log", ylim=(0, 1.02))
        viz.line(ax, spreads, curves, xlabel="standard deviation of the 16 scores")
    viz.show(
        fig,
        alt="As the spread of the scores grows from 0.1 to 100, the largest weight goes from a "
        "sixteenth to one, and the norm of the softmax Jacobian first rises, then falls towards "
        "zero.",
        caption="As the scores spread, the largest weight approaches one, and the derivative of "
        "softmax finally falls towards zero.",
    )


def divisors(counts: ArrayLike, sums: Mapping[str, ArrayLike]) -> None:
    """Which numbers of a table are divided by which sum.

    Args:
        counts: The table.
        sums: By title the divisors as they are broadcast.
    """
    table = np.asarray(counts, dtype=np.float64)
    with viz.style():
        fig, axes = viz.subplots(1, len(sums), size=(WIDTH, 2.5))
        for ax, (title, divisor) in zip(np.ravel(axes), sums.items(), strict=True):
            divided = np.broadcast_to(np.asarray(divisor, dtype=np.float64), table.shape)
            shade = np.where(divided == divided.flat[0], 0.6, -0.6)
            options: dict[str, Any] = {"xlabel": None, "ylabel": None, "numbers": None, "vmax": 1}
            viz.heatmap(ax, shade, title=title, **options)
            ax.set(xticks=[], yticks=[])
            for i, j in np.ndindex(table.shape):
                text = f"{table[i, j]:.0f} / {divided[i, j]:.0f}"
                ax.text(j + 0.5, i + 0.5, text, ha="center", va="center")
    viz.show(
        fig,
        alt="Two 2 by 2 tables of counts. Without keepdim the numbers of a column share a divisor; "
        "with keepdim the numbers of a row do.",
        caption="Equal colours mark the numbers that are divided by the same sum: columns on the "
        "left, rows on the right.",
    )


def exponential_ranges(limits: Mapping[str, tuple[float, float]]) -> None:
    """Scores whose exponential is neither 0 nor infinite, by number format.

    Args:
        limits: By format the smallest and the largest score.
    """
    ticks = [-1000, -100, -10, 0, 10, 100, 1000]
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 2.9))
        for i, (bottom, top) in enumerate(limits.values()):
            ax.barh(i, top - bottom, left=bottom, height=0.55, color=viz.PALETTE[0], alpha=0.6)
            for edge, side, place in ((top, "left", 4), (bottom, "right", -4)):
                text, offset = f"{edge:.1f}", (place, 0)
                where = {"textcoords": "offset points", "ha": side, "va": "center"}
                ax.annotate(text, (edge, i), offset, **where)
        ax.set_yticks(range(len(limits)), list(limits))
        ax.set_xscale("symlog", linthresh=10)
        ax.set(xlim=(-40000, 40000), xlabel="score z")
        ax.set_xticks(ticks, [str(tick).replace("-", "−") for tick in ticks], rotation=30)
        ax.invert_yaxis()
    viz.show(
        fig,
        alt="Range of scores whose exponential is neither 0 nor infinite: about -17 to 11 in "
        "float16, -92 to 88.5 in bfloat16, -103 to 88.7 in float32, -744 to 709.8 in float64.",
        caption="Scores whose exponential is neither 0 nor infinite; the right ends are measured, "
        "the left ends are theory.",
    )


def weight_on_padding(paddings: Sequence[int], leak: Mapping[str, Sequence[float]]) -> None:
    """The weight that padding takes, by how its scores are set.

    Args:
        paddings: Padding words beside five real ones.
        leak: By fill the mean weight on all padding.
    """
    with viz.style():
        fig, ax = viz.subplots(size=(WIDTH, 3.0))
        labels = {"xlabel": "padding words next to 5 real ones", "ylabel": "weight on padding"}
        ax.set_ylim(-0.03, 1)
        viz.line(ax, paddings, leak, marker="o", **labels)
    viz.show(
        fig,
        alt="Weight that padding receives: it rises to four fifths with 40 padding words when "
        "their scores are set to zero, and stays at exactly zero with minus infinity.",
        caption="Padding with a score of 0 takes a large share of the weight; with minus infinity "
        "it takes none.",
    )
