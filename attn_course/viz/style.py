"""One look for every figure: readable fonts, colours that work on white and on near-black."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

# Okabe-Ito without its pale colours, and a grey: each has a contrast of at least 3 to a white page
# and to the book's dark page. So little room keeps them only just apart for some colour-blind
# readers (blue and green in tritanopia), which is why lines differ in their dashes too.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#6e6067")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))

# Text, axes and ticks are drawn in this colour; the SVG writer turns it into ``currentColor``.
INK = "#1f2329"
# Filled cells of a heat map, positive and negative: CSS variables in the SVG, so that the dark
# page can exchange them. Both keep text in the page's own colour readable at full strength.
HEAT = "#5ba4da"
HEAT_NEGATIVE = "#f08a4b"
# Names of axes that are queries, keys or values: CSS variables in the SVG, as in formulas.
ROLES = {"query": "#7a1068", "key": "#0a5530", "value": "#9b5310"}
# The smallest text, in points: 11 px on a phone (358 px) in a figure that is 5 inches wide.
SMALL = 11.5

_RC: dict[str, Any] = {
    "figure.figsize": (5.0, 3.4),
    "figure.dpi": 100,
    "figure.facecolor": "none",
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 12,
    "axes.labelsize": SMALL,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE) + cycler(linestyle=DASHES),
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "lines.linewidth": 2.0,
    "lines.markersize": 5,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": SMALL,
    "mathtext.fontset": "dejavusans",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw inside this context, and leave it with matplotlib's settings as they were.

    Yields:
        Nothing: the settings hold until the context ends.
    """
    with mpl.rc_context(_RC):
        yield


def subplots(
    nrows: int = 1,
    ncols: int = 1,
    *,
    size: tuple[int | float, int | float] | None = None,
    **options: Any,
) -> tuple[Figure, Any]:
    """A figure and its axes, outside pyplot: nothing is shown twice and nothing stays open.

    Args:
        nrows: Rows of axes.
        ncols: Columns of axes.
        size: Width and height in inches; 5 by 3.4 when not given. A wider one has text of less than
            11 px on a phone.
        **options: Passed on to :meth:`matplotlib.figure.Figure.subplots`, such as ``sharey``.

    Returns:
        The figure, and one axes or an array of them as matplotlib does.
    """
    with mpl.rc_context(_RC):
        fig = Figure(figsize=size)
        return fig, fig.subplots(nrows, ncols, **options)
