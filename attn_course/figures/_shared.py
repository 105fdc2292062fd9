"""What several figures draw alike: bands of seeds, a reference line, ticks, names at line ends."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from attn_course.viz.plots import name_lines as name_lines
from attn_course.viz.style import PALETTE, SMALL

#: Figures are this wide, in inches: text of the style then has 11 px on a phone.
WIDTH = 5.0
_MARKS = "os^D*"


def array(values: ArrayLike) -> NDArray[np.float64]:
    """Numbers, nested lists or a tensor as an array."""
    return np.asarray(values, dtype=np.float64)


def bands(
    ax: Axes,
    x: ArrayLike,
    curves: Mapping[str, ArrayLike],
    *,
    marks: bool = True,
    names: bool = True,
    first: int = 0,
) -> None:
    """For each name the median of the seeds as a line and their range as a band.

    Args:
        ax: Where to draw.
        x: Positions, shared by all lines.
        curves: By name the values, (seeds, positions).
        marks: A mark at every position.
        names: Write each name at the end of its line; False leaves them to a legend.
        first: Number of the first colour.
    """
    for number, (name, values) in enumerate(curves.items(), first):
        seeds = array(values)
        colour, mark = PALETTE[number], _MARKS[number] if marks else None
        ax.plot(x, np.median(seeds, 0), color=colour, marker=mark, label=name)
        ax.fill_between(x, seeds.min(0), seeds.max(0), color=colour, alpha=0.18, linewidth=0)
    if names:
        name_lines(ax)


def level(ax: Axes, y: int | float, text: str, *, x: int | float | None = None) -> None:
    """A thin horizontal line with its meaning above it, such as the share that a guess gets.

    Args:
        ax: Where to draw.
        y: Height of the line.
        text: What it means.
        x: Where the text begins; the left edge of the axes when not given.
    """
    ax.axhline(float(y), color=PALETTE[4], linewidth=1, linestyle="-")
    place = (0.01, y) if x is None else (x, y)
    ax.annotate(
        text, place, (2, 3), xycoords=("axes fraction" if x is None else "data", "data"),
        textcoords="offset points", va="bottom", fontsize=SMALL,
    )  # fmt: skip


def named_ticks(
    ax: Axes, places: Sequence[int | float], names: Sequence[Any] | None = None, *, base: int = 2
) -> None:
    """A logarithmic horizontal axis with a tick at each place and none between.

    Args:
        ax: Whose axis.
        places: Where ticks are.
        names: What is written below each; the place itself when not given.
        base: Of the logarithm.
    """
    ax.set_xscale("log", base=base)
    ax.set_xticks(list(places), [f"{one:g}" for one in places] if names is None else list(names))
    ax.minorticks_off()


def every(step: int, count: int) -> list[str]:
    """Names of the columns of a wide heat map: the number of every ``step``-th one."""
    return ["" if place % step else str(place) for place in range(count)]


def matrix_ticks(ax: Axes, ticks: Sequence[int]) -> None:
    """The same ticks on both axes of a matrix; the last row's would touch the first column's."""
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.set_yticks(ticks, [*(str(tick) for tick in ticks[:-1]), ""])


def frames(ax: Axes, alignment: Sequence[int]) -> None:
    """A frame around the cell of each target word's source word, where it has one."""
    for row, column in enumerate(alignment):
        if column >= 0:
            cell = (column + 0.04, row + 0.04)
            ax.add_patch(Rectangle(cell, 0.92, 0.92, fill=False, lw=1.6, edgecolor=PALETTE[1]))
