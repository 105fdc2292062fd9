"""Figures for the book: one style, a few helpers, SVG that follows the page's dark mode.

::

    from attn_course import viz

    with viz.style():
        fig, ax = viz.subplots()
        viz.line(ax, lags, {"RNN": rnn, "LSTM": lstm}, xlabel="lag", ylabel="norm", yscale="log")
    viz.show(fig, alt="Gradient norm by lag: the RNN falls to 1e-8, the LSTM to 1e-4.")
"""

from attn_course._extras import need

need("matplotlib", "viz", "attn_course.viz")

from attn_course.viz.plots import annotate, bar, heatmap, line, seed_marks
from attn_course.viz.style import PALETTE, style, subplots
from attn_course.viz.svg import picture, save, show

__all__ = [
    "PALETTE",
    "annotate",
    "bar",
    "heatmap",
    "line",
    "picture",
    "save",
    "seed_marks",
    "show",
    "style",
    "subplots",
]
