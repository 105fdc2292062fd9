"""Figures: readable on white and on near-black, described, the same bytes in every run."""

import gzip
import re
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from processes import python
from refusals import refused, refuses

from attn_course import viz
from attn_course.viz.style import HEAT, HEAT_NEGATIVE, INK

LIGHT, DARK = "#ffffff", "#121212"
# Text colours of the book's theme, and the dark page's heat colours from interactive.css.
LIGHT_TEXT, DARK_TEXT = "#222832", "#ced6dd"
CSS = Path(__file__).parents[2] / "book" / "_static" / "interactive.css"


def channels(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def linear(rgb: np.ndarray) -> np.ndarray:
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(a: np.ndarray, b: np.ndarray) -> float:  # WCAG 2
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted([float(linear(a) @ weights), float(linear(b) @ weights)])
    return (high + 0.05) / (low + 0.05)


def figure(values: np.ndarray | None = None) -> viz.svg.Picture:
    with viz.style():
        fig, ax = viz.subplots()
        series = {"RNN": np.arange(7.0), "LSTM": np.ones(7)} if values is None else {"x": values}
        viz.line(ax, np.arange(7), series, xlabel="lag", ylabel="norm")
        return viz.picture(fig, alt="Norm by lag: one line rises, one is flat.")


def axes(draw: Callable[[Axes], object]) -> Axes:
    """With what was drawn on them, in the style of the book."""
    with viz.style():
        _, ax = viz.subplots()
        draw(ax)
    return ax


def two_bars(ax: Axes) -> None:
    viz.bar(ax, ["a", "b"], [0.25, 0.75])


def ids(svg: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', svg)


def references(svg: str) -> set[str]:
    found = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)|aria-\w+by="([^"]+)"', svg)
    return {name for group in found for name in group if name}


def test_colours_stand_out_from_both_pages() -> None:
    for colour in viz.PALETTE:
        for page in (LIGHT, DARK):
            assert contrast(channels(colour), channels(page)) >= 3, (colour, page)


def test_colours_stay_apart_for_colour_blind_readers() -> None:
    # Machado, Oliveira and Fernandes (2009), full protanopia, deuteranopia, tritanopia
    kinds = {
        "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                   [-0.003882, -0.048116, 1.051998]],
        "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                   [-0.011820, 0.042940, 0.968881]],
        "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                   [0.004733, 0.691367, 0.303900]],
    }  # fmt: skip
    for kind, matrix in kinds.items():
        seen = [
            np.clip(np.array(matrix) @ linear(channels(c)), 0, 1) ** (1 / 2.2) for c in viz.PALETTE
        ]
        for (i, a), (j, b) in combinations(enumerate(seen), 2):
            assert np.abs(a - b).max() > 0.1, (kind, viz.PALETTE[i], viz.PALETTE[j])


def test_numbers_can_be_read_on_every_cell_of_a_heat_map() -> None:
    css = CSS.read_text()
    dark_block = css[css.index('html[data-theme="dark"]') :]
    for name, light in (("--attn-heat", HEAT), ("--attn-heat-negative", HEAT_NEGATIVE)):
        dark = re.search(rf"{name}: (#\w{{6}})", dark_block)
        assert f"{name}: {light};" in css  # page and notebook agree
        for heat, page, text in ((light, LIGHT, LIGHT_TEXT), (dark[1], DARK, DARK_TEXT)):
            for share in np.linspace(0, 1, 21):
                cell = share * channels(heat) + (1 - share) * channels(page)
                assert contrast(cell, channels(text)) >= 4.5, (name, heat, share)


def test_the_drawing_follows_the_text_colour_of_the_page() -> None:
    ax = axes(lambda ax: viz.heatmap(ax, np.array([[0.2, -0.8]])))
    svg = viz.picture(ax.figure, alt="Two cells.").svg
    for part in ("currentColor", "var(--attn-heat, ", "var(--attn-heat-negative, "):
        assert part in svg
    assert INK not in svg
    assert "<style" not in svg  # it would apply to the whole page
    assert "#ffffff" not in svg


def test_a_numbered_colour_is_of_the_palette_wherever_the_figure_is_shown() -> None:
    ax = axes(lambda ax: ax.plot([0.0, 1.0], [1.0, 2.0], color="C1"))
    svg = viz.picture(ax.figure, alt="One line.").svg
    assert viz.PALETTE[1] in svg
    assert "#ff7f0e" not in svg


def test_text_stays_text() -> None:
    svg = figure().svg
    for word in ("lag", "norm", "RNN", "LSTM"):
        assert re.search(rf"<text[^>]*>{word}</text>", svg), word


def test_a_figure_is_described() -> None:
    picture = figure()
    assert 'role="img"' in picture.svg
    name = re.search(r'aria-labelledby="([^"]+)"', picture.svg)
    assert f'<title id="{name[1]}">Norm by lag: one line rises, one is flat.</title>' in picture.svg
    assert picture.png.startswith(b"\x89PNG")


def test_a_title_leaves_the_long_words_to_the_description() -> None:
    svg = viz.picture(axes(two_bars).figure, alt="a < b & c \\1", title="Short").svg
    assert re.search(r"<title [^>]*>Short</title><desc [^>]*>a &lt; b &amp; c \\1</desc>", svg)
    assert references(svg) <= set(ids(svg))


@pytest.mark.parametrize("alt", ["", "  \n", None])
def test_a_figure_without_description_is_refused(alt: str | None) -> None:
    with pytest.raises(Exception, match="alt"):
        viz.picture(axes(two_bars).figure, alt=alt)  # type: ignore[arg-type]


def test_ids_are_unique_on_a_page_and_all_resolve() -> None:
    page = [figure(), figure(), figure(np.arange(7.0) ** 2)]
    every = [name for picture in page for name in ids(picture.svg)]
    assert len(every) == len(set(every))
    for picture in page:
        assert references(picture.svg) == set(ids(picture.svg))


def test_the_same_figure_gives_the_same_bytes_in_every_run(tmp_path: Path) -> None:
    code = (
        "import numpy as np; from attn_course import viz\n"
        "with viz.style():\n"
        "    fig, ax = viz.subplots()\n"
        "    viz.line(ax, np.arange(5), {'a': np.arange(5.0)}, marker='o')\n"
        "    viz.heatmap(viz.subplots()[1], np.eye(50))\n"
        "    p = viz.picture(fig, alt='x')\n"
        "import sys; sys.stdout.write(p.svg); sys.stdout.write(p.png.hex())"
    )
    home = {"PATH": "", "HOME": str(tmp_path)}
    runs = [python("-c", code, env={"PYTHONHASHSEED": s, **home}).stdout for s in "12"]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 1000


def test_saving_writes_the_same_svg(tmp_path: Path) -> None:
    fig = axes(two_bars).figure
    first = viz.save(fig, tmp_path / "bars.svg", alt="Two bars.").read_text()
    assert viz.save(fig, tmp_path / "bars.svg", alt="Two bars.").read_text() == first
    assert ">0.75</text>" in first
    refused(r"\.svg", viz.save, fig, tmp_path / "bars.png", alt="Two bars.")


def test_figures_are_small() -> None:
    with viz.style():
        for cells in (40, 200):
            fig, ax = viz.subplots(size=(5, 5))
            viz.heatmap(ax, np.random.default_rng(0).random((cells, cells)))
            assert len(gzip.compress(viz.picture(fig, alt="Noise.").svg.encode())) < 60_000


def test_a_map_has_one_path_for_neighbours_of_one_colour() -> None:
    with viz.style():
        fig, ax = viz.subplots(size=(4, 4))
        viz.heatmap(ax, torch.ones(24, 24).tril())
    svg = viz.picture(fig, alt="A causal mask.").svg
    assert svg.count("<path") < 40
    # each of the 300 cells is still there: five points, the first of them also the last
    cells = max(re.findall(r' d="([^"]*)"', svg), key=len)
    assert (cells.count("M"), cells.count("L")) == (300, 1200)


def test_the_axes_of_queries_and_of_keys_have_their_colours() -> None:
    with viz.style():
        fig, ax = viz.subplots(size=(4, 4))
        viz.heatmap(ax, np.eye(3), xlabel="keys", ylabel="query, from 0", title="key")
    svg = viz.picture(fig, alt="A diagonal.").svg
    found = dict(re.findall(r"fill: ([^;\"]+)[^>]*>(keys|query, from 0|key)</text>", svg))
    assert found == {
        "var(--attn-key, #0a5530)": "keys",
        "var(--attn-query, #7a1068)": "query, from 0",
        "currentColor": "key",
    }


def test_names_of_lines_that_end_together_are_apart_and_beside_the_axes() -> None:
    def draw(ax: Axes) -> None:
        ax.set_ylim(0, 1)
        viz.line(ax, [0, 1], {name: [1.0, 0.0] for name in ("one", "two", "three, of four words")})

    ax = axes(draw)
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.y0)
    assert len(boxes) == 3
    assert ax.get_legend() is None
    assert boxes[0].y0 > ax.bbox.y0 - 2
    assert all(low.y1 < high.y0 + 2 for low, high in pairwise(boxes))


def test_an_attention_map_has_queries_as_rows_from_the_top() -> None:
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]], requires_grad=True)
    names = {"rows": ["q0", "q1"], "columns": ["k0", "k1", "k2"]}
    ax = axes(lambda ax: viz.heatmap(ax, weights, **names))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["q0", "q1"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["k0", "k1", "k2"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys", "queries")
    numbers = {t.get_position(): t.get_text() for t in ax.texts}
    assert numbers[0.5, 1.5] == "0.25"  # column 0, row 1
    assert numbers[2.5, 0.5] == "0.00"
    assert ax.yaxis_inverted()


def test_a_negative_zero_is_a_zero() -> None:
    ax = axes(lambda ax: viz.heatmap(ax, np.array([[-0.0001, -0.5]])))
    assert [t.get_text() for t in ax.texts] == ["0.00", "-0.50"]


test_input_that_does_not_fit_is_refused = refuses(
    (lambda ax: viz.line(ax, [0, 1], {"a": [1.0, 2.0, 3.0]}), "'a': expected 2 values"),
    (lambda ax: viz.line(ax, [0, 1], [[1.0, 2.0]]), "series: expected 1 axes"),
    (lambda ax: viz.bar(ax, ["a"], [1.0, 2.0]), "values: expected 1"),
    (lambda ax: viz.heatmap(ax, np.zeros(3)), "values: expected 2 axes"),
    (lambda ax: viz.heatmap(ax, np.zeros((0, 3))), "at least one cell"),
    (lambda ax: viz.heatmap(ax, np.zeros((2, 3)), rows=["a"]), "rows: expected 2"),
    (lambda ax: viz.heatmap(ax, np.zeros((2, 3)), columns=["a"]), "columns: expected 3"),
    given=lambda: [viz.subplots()[1]],
)


def test_style_is_left_behind() -> None:
    before = dict(mpl.rcParams)
    with viz.style():
        assert mpl.rcParams["text.color"] == INK
    assert dict(mpl.rcParams) == before


def test_pyplot_figures_are_not_shown_twice() -> None:
    import matplotlib.pyplot as plt

    with viz.style():
        fig, ax = plt.subplots()
        ax.plot([0, 1])
        viz.picture(fig, alt="A line.")
    assert plt.get_fignums() == []


def test_show_displays_the_figure_wherever_it_stands_in_a_cell() -> None:
    from IPython.testing.globalipapp import get_ipython
    from IPython.utils.capture import capture_output

    shell = get_ipython()
    shell.display_formatter.active_types = ["text/plain", "text/html"]  # as a notebook's
    code = (
        "from attn_course import viz\n"
        "for height in (1.0, 2.0):\n"
        "    fig, ax = viz.subplots()\n"
        "    viz.bar(ax, ['a'], [height])\n"
        "    viz.show(fig, alt='One bar.', caption='A bar.')\n"
        "print('and a line after it')"
    )
    with capture_output() as got:
        shell.run_cell(code)
    pictures = [one for one in got.outputs if "data-caption" in one.data.get("text/html", "")]
    assert len(pictures) == 2
    assert "and a line after it" in got.stdout


def test_show_prints_the_description_where_nothing_can_be_displayed() -> None:
    code = (
        "from attn_course import viz\n"
        "fig, ax = viz.subplots()\n"
        "viz.bar(ax, ['a'], [1.0])\n"
        "viz.show(fig, alt='One bar.')"
    )
    assert python("-c", code).stdout == "Figure: One bar.\n"


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: None, lambda ax: ax.plot([0, 1], [float("nan")] * 2),
        lambda ax: ax.pcolormesh(np.full((2, 3), np.nan)), lambda ax: ax.plot([], []),
    ],
    ids=["nothing", "nan line", "nan cells", "no points"],
)  # fmt: skip
def test_a_figure_with_empty_axes_is_refused(draw: Callable[[Axes], object]) -> None:
    fig, (left, right) = viz.subplots(1, 2)
    viz.bar(left, ["a"], [1.0])
    draw(right)
    refused("axes 2 of 2", viz.picture, fig, alt="Half a figure.")
    right.set_axis_off()
    assert viz.picture(fig, alt="A bar.").svg


def test_a_seed_is_one_mark_and_its_instruction_sets_a_whisker() -> None:
    _, ax = viz.subplots()
    viz.seed_marks(ax, 2, [[0.5, 0.6, 0.4], [0.7], [0.9, 0.9]])
    (marks,) = ax.lines
    assert list(marks.get_ydata()) == [0.5, 0.7, 0.9]
    (whisker,) = ax.collections  # the other seeds do not differ
    assert [tuple(one) for one in whisker.get_segments()[0]] == [(1.85, 0.4), (1.85, 0.6)]
    refused("seeds", viz.seed_marks, ax, 2, [])
