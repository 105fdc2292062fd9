"""The few plots that the book needs again and again."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from numpy.typing import ArrayLike, NDArray

from attn_course.viz.style import HEAT, HEAT_NEGATIVE, INK, PALETTE, SMALL

# Cells above this count are stored as one image, a pixel each, instead of one shape each.
_MANY_CELLS = 1600
# Numbers in cells become unreadable beyond this many cells in a row.
_NUMBERED = 14
# With at most this many the numbers have the size of other text.
_ROOMY = 8
# Characters of a line of a name.
_LONG = 18


def _array(name: str, values: Any, *, ndim: int) -> NDArray[np.float64]:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != ndim:
        raise ValueError(f"{name}: expected {ndim} axes, got shape {array.shape}")
    return array


def _label(ax: Axes, xlabel: str | None, ylabel: str | None, title: str | None) -> None:
    if xlabel is not None:
        ax.set_xlabel(xlabel)
    if ylabel is not None:
        ax.set_ylabel(ylabel)
    if title is not None:
        ax.set_title(title)


def line(
    ax: Axes,
    x: ArrayLike,
    series: Mapping[str, ArrayLike] | ArrayLike,
    *,
    xlabel: str | None = None,
    ylabel: str | None = None,
    title: str | None = None,
    yscale: str = "linear",
    marker: str | None = None,
) -> None:
    """One line per entry of ``series``, told apart by colour and by dashes.

    Limits and ticks are set before: the names at the ends of the lines keep clear of each other.

    Args:
        ax: Where to draw.
        x: Positions, shared by all lines.
        series: Values by name (written at the end of each line), or the values of one line.
        xlabel: Label of the horizontal axis, with its unit.
        ylabel: Label of the vertical axis, with its unit.
        title: Title above the axes.
        yscale: ``"linear"`` or ``"log"``.
        marker: A matplotlib marker at every point.

    Raises:
        ValueError: If a line and ``x`` differ in length.
    """
    x = _array("x", x, ndim=1)
    named = isinstance(series, Mapping)
    lines: Mapping[str, Any] = series if isinstance(series, Mapping) else {"": series}
    for name, values in lines.items():
        y = _array(f"series {name!r}" if named else "series", values, ndim=1)
        if len(y) != len(x):
            raise ValueError(f"series {name!r}: expected {len(x)} values as in x, got {len(y)}")
        ax.plot(x, y, label=name, marker=marker)
    ax.set_yscale(yscale)
    _label(ax, xlabel, ylabel, title)
    if named:
        name_lines(ax)


def name_lines(ax: Axes) -> None:
    """Write the label of every line at its right end, moved apart where they would touch.

    A long one takes two lines.

    Limits, scales and labels of the axes must be set before.
    """
    fig = ax.get_figure()
    assert isinstance(fig, Figure)
    ends = []
    for line in ax.get_lines():
        name = str(line.get_label())
        if len(name) > _LONG:
            name = name.replace(", ", ",\n", 1) if ", " in name else textwrap.fill(name, _LONG)
        points = np.asarray(line.get_xydata())
        points = points[np.isfinite(points).all(1)]
        if not name.startswith("_") and len(points):
            ends.append((name, points[points[:, 0].argmax()]))
    fig.draw_without_rendering()  # now the axes have their size
    to_points = 72 / fig.dpi
    heights = [float(ax.transData.transform(point)[1]) * to_points for _, point in ends]
    sizes = [1.25 * SMALL * (1 + name.count("\n")) for name, _ in ends]
    shifts = _apart(heights, sizes, float(ax.bbox.y0) * to_points)
    for (name, point), shift in zip(ends, shifts, strict=True):
        ax.annotate(
            name, tuple(point), (7, shift), textcoords="offset points", va="center", fontsize=SMALL
        )


def _apart(heights: Sequence[float], sizes: Sequence[float], floor: float) -> list[float]:
    """How far each height moves so that texts of these sizes are above a floor and do not touch."""
    groups: list[tuple[list[int], float]] = []  # of neighbours that touch, with their middle
    for one in sorted(range(len(heights)), key=heights.__getitem__):
        members, middle = [one], heights[one]
        while groups:
            below, centre = groups[-1]
            if middle - centre >= sum(sizes[each] for each in below + members) / 2:
                break
            middle = (middle * len(members) + centre * len(below)) / (len(members) + len(below))
            members = below + members
            groups.pop()
        groups.append((members, middle))
    shifts = [0.0] * len(heights)
    for members, middle in groups:
        floor = max(floor, middle - sum(sizes[one] for one in members) / 2)
        for one in members:
            shifts[one] = floor + sizes[one] / 2 - heights[one]
            floor += sizes[one]
    return shifts


def bar(
    ax: Axes,
    names: Sequence[str],
    values: ArrayLike,
    *,
    xlabel: str | None = None,
    ylabel: str | None = None,
    title: str | None = None,
    numbers: str | None = "{:.2f}",
) -> None:
    """One bar per name with its number above it.

    Args:
        ax: Where to draw.
        names: One name per bar.
        values: One value per bar.
        xlabel: Label of the horizontal axis.
        ylabel: Label of the vertical axis, with its unit.
        title: Title above the axes.
        numbers: Format of the number at each bar; None leaves the numbers out.

    Raises:
        ValueError: If there are more or fewer values than names.
    """
    heights = _array("values", values, ndim=1)
    if len(heights) != len(names):
        raise ValueError(f"values: expected {len(names)}, one per name, got {len(heights)}")
    bars = ax.bar(range(len(names)), heights, width=0.7)
    ax.set_xticks(range(len(names)), list(names))
    ax.grid(axis="x", visible=False)
    if numbers is not None:
        ax.bar_label(bars, [numbers.format(v) for v in heights], padding=2, fontsize=SMALL)
        ax.margins(y=0.12)
    _label(ax, xlabel, ylabel, title)


def seed_marks(
    ax: Axes,
    x: int | float,
    seeds: Sequence[Sequence[int | float]],
    *,
    color: str = PALETTE[0],
    label: str | None = None,
    spread: int | float = 0.3,
) -> None:
    """One mark per seed, side by side; a whisker where the instruction sets of a seed differ.

    A seed is an independent run. The same seed under another instruction set differs in the last
    digits at first: it belongs to the same mark.

    Args:
        ax: Where to draw.
        x: The middle of the group.
        seeds: For each seed its values, one per instruction set; the first one is the mark.
        color: Of marks and whiskers.
        label: Name in the legend.
        spread: Width of the group, in units of the axis; 0 puts all marks above each other.

    Raises:
        ValueError: If there is no seed, or a seed without a value.
    """
    if not seeds or not all(len(values) for values in seeds):
        raise ValueError(f"seeds: expected a value for each of at least one seed, got {seeds!r}")
    places = x + spread * (np.linspace(-0.5, 0.5, len(seeds)) if len(seeds) > 1 else np.zeros(1))
    for place, values in zip(places, seeds, strict=True):
        if max(values) > min(values):
            ax.vlines(place, min(values), max(values), color=color, linewidth=1)
    marks = [values[0] for values in seeds]
    ax.plot(places, marks, "o", markersize=4.5, color=color, label=label)


def heatmap(
    ax: Axes,
    values: ArrayLike,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    xlabel: str | None = "keys",
    ylabel: str | None = "queries",
    title: str | None = None,
    vmax: int | float | None = None,
    numbers: str | None = "{:.2f}",
) -> None:
    """A matrix as cells; an attention map has queries as rows and keys as columns.

    The strength of the colour is ``|value| / vmax``, blue above zero and orange below.

    Args:
        ax: Where to draw.
        values: The matrix, rows first.
        rows: A name per row.
        columns: A name per column.
        xlabel: What the columns are.
        ylabel: What the rows are.
        title: Title above the axes.
        vmax: The magnitude with full colour; the largest one when not given.
        numbers: Format of the number in each cell, written where a row has at most 14 cells;
            None leaves the numbers out.

    Raises:
        ValueError: If ``values`` is no matrix or empty, or a list of names does not fit it.
    """
    matrix = _array("values", values, ndim=2)
    height, width = matrix.shape
    if matrix.size == 0:
        raise ValueError(f"values: expected at least one cell, got shape {matrix.shape}")
    for name, names, count in (("rows", rows, height), ("columns", columns, width)):
        if names is not None and len(names) != count:
            raise ValueError(f"{name}: expected {count} names, got {len(names)}")
    top = vmax if vmax is not None else float(np.nanmax(np.abs(matrix), initial=0.0)) or 1.0
    options: dict[str, Any] = {"cmap": _fading(), "vmin": -top, "vmax": top}
    if matrix.size > _MANY_CELLS:
        extent = (0, width, height, 0)
        ax.imshow(matrix, interpolation="none", extent=extent, **options)
    else:
        ax.pcolormesh(matrix, edgecolors="none", **options)
    ax.set_ylim(height, 0)  # the first row is above, on shared axes as well
    ax.set_aspect("equal")
    ax.grid(visible=False)
    ax.spines[:].set_visible(True)
    ax.tick_params(length=0)
    _ticks(ax, "x", columns, width)
    _ticks(ax, "y", rows, height)
    if numbers is not None and width <= _NUMBERED and height <= _NUMBERED:
        size = SMALL if max(width, height) <= _ROOMY else 9
        for i, j in np.ndindex(matrix.shape):
            text = numbers.format(matrix[i, j])
            if text == numbers.format(-0.0):
                text = numbers.format(0.0)  # not -0.00
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=size, color=INK)
    _label(ax, xlabel, ylabel, title)


def _fading() -> LinearSegmentedColormap:
    """From full orange over nothing to full blue: zero is the page itself, light or dark."""
    colours = [(*to_rgb(HEAT_NEGATIVE), 1.0 - i / 128) for i in range(128)]
    colours += [(*to_rgb(HEAT), i / 128) for i in range(129)]
    return LinearSegmentedColormap.from_list("attn-heat", colours, N=257)


def _ticks(ax: Axes, axis: str, names: Sequence[str] | None, count: int) -> None:
    put = ax.set_xticks if axis == "x" else ax.set_yticks
    if names is not None:
        long = axis == "x" and max(map(len, names), default=0) > 3
        put(np.arange(count) + 0.5, list(names), rotation=45 if long else 0)
    else:
        step = max(1, count // 8)
        positions = np.arange(0, count, step)
        put(positions + 0.5, [str(p) for p in positions])


def annotate(
    ax: Axes,
    text: str,
    xy: tuple[int | float, int | float],
    *,
    offset: tuple[int | float, int | float] = (24.0, 18.0),
) -> Annotation:
    """A short remark with a thin arrow to the point it speaks of.

    Args:
        ax: Where to draw.
        text: The remark.
        xy: The point, in data coordinates.
        offset: Where the remark stands from the point, in printer's points.

    Returns:
        The annotation, to be moved or restyled.
    """
    return ax.annotate(
        text,
        xy,
        xytext=offset,
        textcoords="offset points",
        fontsize=SMALL,
        arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.8},
    )
