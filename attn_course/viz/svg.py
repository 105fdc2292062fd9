"""A figure as SVG in the page: text stays text, dark mode is followed, the same bytes each time."""

import io
import re
import sys
from collections import Counter
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import Collection
from matplotlib.figure import Figure

from attn_course.viz.style import HEAT, HEAT_NEGATIVE, INK, ROLES, style

_RECOLOUR = {
    INK: "currentColor",
    HEAT: f"var(--attn-heat, {HEAT})",
    HEAT_NEGATIVE: f"var(--attn-heat-negative, {HEAT_NEGATIVE})",
    **{colour: f"var(--attn-{role}, {colour})" for role, colour in ROLES.items()},
}
# A cell of a map as Matplotlib draws it: four corners with a fill and nothing else.
_CELL = re.compile(
    r'<path( clip-path="[^"]*")? d="(M[^"ML]*(?:L[^"ML]*){3,4})"( clip-path="[^"]*")? '
    r'style="fill: ([^";]+(?:; fill-opacity: [\d.]+)?)"/>\s*'
)
# An axis whose label has one of these words has its colour.
_ROLE = re.compile(r"\b(?:(?P<query>quer(?:y|ies))|(?P<key>keys?)|(?P<value>value))\b")
# Figures with the same content shown again in this process: the second gets other ids.
_shown: Counter[str] = Counter()


def _words(name: str, value: str | None) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{name}: expected a sentence that says what the figure shows, got {value!r}"
        )
    return " ".join(value.split())


def _draw(fig: Figure) -> str:
    """Matplotlib's SVG, without date and program name, with ids that depend on nothing else."""
    out = io.StringIO()
    # The style once more: names such as "C1" get their colour only now.
    with style(), mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "attn-course"}):
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        FigureCanvasSVG(fig).print_svg(out, metadata=metadata)
    svg = out.getvalue()
    return svg[svg.index("<svg") :]


def _slim(svg: str) -> str:
    """Drop what a page does not need: comments, metadata, styles, unused ids, thousandths."""
    # The <style> element would apply to the whole page; its one rule stands on <svg> instead.
    svg = re.sub(r"<!--.*?-->\s*|<(metadata|style)\b.*?</\1>\s*", "", svg, flags=re.S)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)
    used = set(re.findall(r"(?:#)([\w.:-]+)", svg))
    return re.sub(
        r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", svg
    ).replace("\n    ", "\n")


def _join_cells(svg: str) -> str:
    """Cells of one colour as one path, so that no seam shows; without fill: left out."""

    def one(cells: re.Match[str]) -> str:
        drawn: dict[tuple[str | Any, ...], str] = {}
        for cell in _CELL.finditer(cells[0]):
            if cell[4] != "none":
                drawn[cell.group(1, 3, 4)] = drawn.get(cell.group(1, 3, 4), "") + cell[2]
        return "".join(
            f'<path{before or ""} d="{path}"{after or ""} '
            f'style="fill: {fill}" shape-rendering="crispEdges"/>\n'
            for (before, after, fill), path in drawn.items()
        )

    return re.sub(rf"(?:{_CELL.pattern})+", one, svg)


def _prefix_ids(svg: str, prefix: str) -> str:
    svg = re.sub(r' id="([^"]+)"', rf' id="{prefix}\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}\1)", svg)


def _render(
    fig: Figure, *, alt: str, title: str | None, repeat: bool, caption: str | None = None
) -> str:
    desc = _words("alt", alt)
    name = desc if title is None else _words("title", title)
    svg = _join_cells(_slim(_draw(fig)))
    for drawn, wanted in _RECOLOUR.items():
        svg = re.sub(rf": {drawn}\b", f": {wanted}", svg)
    key = sha256((svg + name + desc).encode()).hexdigest()[:8]
    count = 0
    if repeat:
        count, _shown[key] = _shown[key], _shown[key] + 1
    prefix = f"f{key}-" if not count else f"f{key}-{count + 1}-"
    svg = _prefix_ids(svg, prefix)
    words = f'<title id="{prefix}title">{escape(name)}</title>'
    labels = f'aria-labelledby="{prefix}title"'
    if title is not None:
        words += f'<desc id="{prefix}desc">{escape(desc)}</desc>'
        labels += f' aria-describedby="{prefix}desc"'
    fit = 'style="max-width: 100%; height: auto; stroke-linejoin: round"'
    said = "" if caption is None else f' data-caption="{escape(_words("caption", caption))}"'
    head, rest = svg.split(">", 1)
    attributes = head.removeprefix("<svg")
    return f'<svg class="attn-figure" role="img" {labels}{said} {fit}{attributes}>{words}{rest}'


class Picture:
    """What :func:`show` displays: SVG for pages and notebooks, PNG where SVG is not drawn.

    Args:
        svg: The ``<svg>`` element as text.
        png: The same figure as PNG bytes on white.
        alt: What a reader who does not see the figure is told.
    """

    def __init__(self, *, svg: str, png: bytes, alt: str) -> None:
        self.svg = svg
        self.png = png
        self.alt = alt

    def _repr_html_(self) -> str:
        return self.svg

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"


def picture(
    fig: Figure, *, alt: str, title: str | None = None, caption: str | None = None
) -> Picture:
    """The figure as an object, for whoever wants its SVG or PNG; :func:`show` displays it.

    Args:
        fig: The finished figure, drawn inside :func:`attn_course.viz.style`.
        alt: What the figure shows, its result included, in one or two sentences.
        title: A short name; then ``alt`` is the long description.
        caption: What to see, in a sentence of plain text; the book numbers the figure and prints
            it below.

    Returns:
        An object that notebooks and the book display. Ids inside it are unique on a page, and the
        same figure gives the same text in every run.

    Raises:
        ValueError: If ``alt``, ``title`` or ``caption`` is empty, or one of the axes shows nothing.
    """
    _refuse_empty(fig)
    for ax in fig.axes:
        for label in (ax.xaxis.label, ax.yaxis.label):
            roles = {found.lastgroup for found in _ROLE.finditer(label.get_text())}
            if len(roles) == 1:
                label.set_color(ROLES[str(roles.pop())])
    svg = _render(fig, alt=alt, title=title, repeat=True, caption=caption)
    png = io.BytesIO()
    with style():
        FigureCanvasAgg(fig).print_figure(
            png, format="png", dpi=110, facecolor="white", metadata={"Software": None}
        )
    _forget(fig)
    return Picture(svg=svg, png=png.getvalue(), alt=_words("alt", alt))


def show(fig: Figure, *, alt: str, title: str | None = None, caption: str | None = None) -> None:
    """Display the figure here, wherever in a cell that is, described for readers who do not see it.

    Outside of IPython, where nothing can be displayed, the description is printed.

    Args:
        fig: The finished figure, drawn inside :func:`attn_course.viz.style`.
        alt: What the figure shows, its result included, in one or two sentences.
        title: A short name; then ``alt`` is the long description.
        caption: What to see, in a sentence of plain text; the book numbers the figure and prints
            it below.

    Raises:
        ValueError: As :func:`picture`.
    """
    shown = picture(fig, alt=alt, title=title, caption=caption)
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        ipython.display.display(shown)
    else:
        print(shown)


def _refuse_empty(fig: Figure) -> None:
    """Axes that are drawn without content are a mistake: nothing was plotted, or only NaN."""
    drawn = [ax for ax in fig.axes if ax.axison]
    if not drawn and not fig.texts and not any(map(_content, fig.axes)):
        raise ValueError("fig: expected a figure with content, got one without any axes")
    for number, ax in enumerate(drawn, 1):
        if not _content(ax):
            raise ValueError(
                f"fig: expected something in every axes, got nothing to see in axes {number} "
                f"of {len(drawn)} (title {ax.get_title()!r}): hide it with ax.set_axis_off()"
            )


def _content(ax: Axes) -> bool:
    """True where something that was plotted can be seen: a finite point, a cell, a text."""
    if any(text.get_text().strip() for text in ax.texts):
        return True
    if any(_finite(image.get_array()) for image in ax.images):
        return True
    if any(_finite(patch.get_path().vertices) for patch in ax.patches):
        return True
    if any(_has_points(collection) for collection in ax.collections):
        return True
    return any(_finite(line.get_xydata()) for line in ax.lines)


def _has_points(collection: Collection) -> bool:
    values = collection.get_array()
    if values is not None:
        return _finite(values)
    paths = any(_finite(path.vertices) for path in collection.get_paths())
    return paths and _finite(collection.get_offsets())


def _finite(values: Any) -> bool:
    """True where at least one value, or all coordinates of one point, are finite."""
    array = np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    found = np.isfinite(array)
    return bool((found.all(-1) if array.ndim == 2 and array.shape[-1] == 2 else found).any())


def save(fig: Figure, path: str | Path, *, alt: str, title: str | None = None) -> Path:
    """Write the figure to an ``.svg`` file with the same care as :func:`show`.

    Args:
        fig: The finished figure.
        path: Where to write; must end in ``.svg``.
        alt: What the figure shows.
        title: A short name; then ``alt`` is the long description.

    Returns:
        The path written.

    Raises:
        ValueError: If the path does not end in ``.svg``, or ``alt`` or ``title`` is empty.
    """
    path = Path(path)
    if path.suffix != ".svg":
        raise ValueError(f"path: expected a name that ends in .svg, got {path.name!r}")
    path.write_text(_render(fig, alt=alt, title=title, repeat=False) + "\n", encoding="utf-8")
    return path


def _forget(fig: Figure) -> None:
    """Close a pyplot figure, or the inline backend of Jupyter shows it a second time."""
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close(fig)
