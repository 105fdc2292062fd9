"""Figures for the book: one style, a few helpers, SVG that follows the page's dark mode.

::

    from attn_course import viz

    with viz.style():
        fig, ax = viz.subplots()
        viz.line(ax, lags, {"RNN": rnn, "LSTM": lstm}, xlabel="lag", ylabel="norm", yscale="log")
    viz.show(fig, alt="Gradient norm by lag: the RNN falls to 1e-8, the LSTM to 1e-4.")
"""

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "attn_course.viz draws with matplotlib, which is not installed: pip install matplotlib, "
        "or pip install 'attn-course[viz]'",
        name="matplotlib",
    ) from error

from attn_course.viz.plots import annotate, bar, heatmap, line, seed_marks
from attn_course.viz.style import PALETTE, style, subplots
from attn_course.viz.svg import Picture, picture, save, show
from attn_course.viz.translation import (
    TRANSLATION_MODELS,
    MarkdownTable,
    translation_alignment,
    translation_by_length,
    translation_table,
)

__all__ = [
    "PALETTE",
    "TRANSLATION_MODELS",
    "MarkdownTable",
    "Picture",
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
    "translation_alignment",
    "translation_by_length",
    "translation_table",
]
