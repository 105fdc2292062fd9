"""Every figure of the book, drawn with small made-up arrays: complete, legible, nothing covered.

The cases of ``attn_course/figures/X.py`` are in ``X.py`` beside this file: ``CASES`` has the
arguments by the name of the function, or ``"name: variant"`` where a function has several.
"""

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from attn_course import figures, viz
from attn_course.viz.style import HEAT, HEAT_NEGATIVE, INK, ROLES

HERE = Path(__file__).parent
MODULES = sorted(path.stem for path in Path(figures.__file__).parent.glob("[!_]*.py"))
COLUMN, LEAST = 358, 11  # px: what a screen of 390 leaves to a figure; the smallest text in it


def cases_of(module: str) -> dict[str, dict[str, Any]]:
    path = HERE / f"{module}.py"
    if not path.is_file():
        return {}
    spec = importlib.util.spec_from_file_location(f"cases_of_{module}", path)
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    return dict(cases.CASES)


CASES = {(module, name): given for module in MODULES for name, given in cases_of(module).items()}


def functions(module: str) -> dict[str, ast.FunctionDef]:
    path = Path(figures.__file__).with_name(f"{module}.py")
    return {
        node.name: node
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


@contextmanager
def texts_drawn() -> Iterator[list[Text]]:
    """The texts that matplotlib draws meanwhile: of ticks, only those in view."""
    found: list[Text] = []
    draw = Text.draw

    def drawn(self: Text, renderer: Any) -> None:
        if self.get_visible() and self.get_text().strip() and self not in found:
            found.append(self)
        draw(self, renderer)

    with mock.patch.object(Text, "draw", drawn):
        yield found


def corners(text: Text) -> np.ndarray:
    """The rectangle that a text needs, turned as the text is: room at its ends, none above."""
    middle, angle = text.get_window_extent(), text.get_rotation()
    text.set_rotation(0)
    box = text.get_window_extent()
    text.set_rotation(angle)
    half = np.array([box.width + 3, box.height - 2]) / 2
    square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * half
    turn = np.deg2rad(angle)
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    centre = [(middle.x0 + middle.x1) / 2, (middle.y0 + middle.y1) / 2]
    return square @ rotation + centre


def overlap(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two rectangles do: no side of either separates them."""
    for a, b in ((one, other), (other, one)):
        for side in (a[1] - a[0], a[2] - a[1]):
            left, right = a @ side, b @ side
            if left.max() <= right.min() or right.max() <= left.min():
                return False
    return True


def faults(fig: Figure, *, alt: str, caption: str | None, title: str | None = None) -> list[str]:
    """What a reader of the figure would miss or could not read, one sentence each."""
    svg = viz.picture(fig, alt=alt, title=title, caption=caption).svg  # refuses empty axes
    found = [] if caption else ["there is no caption"]
    with viz.style(), texts_drawn() as texts:
        FigureCanvasAgg(fig).draw()
        boxes = [corners(text) for text in texts]
        width, height = fig.bbox.size
        inches = fig.get_figwidth()
        scale = min(96 / 72, COLUMN / (72 * inches))
        for text, box in zip(texts, boxes, strict=True):
            if (size := text.get_fontsize() * scale) < LEAST:
                found.append(f"{text.get_text()!r} has {size:.1f} px on a phone, at least {LEAST}")
            if box.min() < -3 or box[:, 0].max() > width + 3 or box[:, 1].max() > height + 3:
                found.append(f"{text.get_text()!r} is cut off")
        for (a, one), (b, other) in combinations(zip(texts, boxes, strict=True), 2):
            if overlap(one, other):
                found.append(f"{a.get_text()!r} and {b.get_text()!r} overlap")
    known = {*viz.PALETTE, *ROLES.values(), INK, HEAT, HEAT_NEGATIVE}
    found += [
        f"colour {one} is not of the palette: it may vanish in the light or the dark theme"
        for one in sorted(set(re.findall(r"#[0-9a-fA-F]{6}\b", svg)) - known)
    ]
    found += [
        f"{style!r}: text has the page's own colour, or it is hard to read"
        for style in re.findall(r'<text style="[^"]*fill: (#\w+)', svg)
    ]
    return found


@pytest.mark.parametrize("module", MODULES)
def test_every_figure_is_drawn_by_a_case(module: str) -> None:
    drawn = {name.partition(":")[0] for _, name in CASES if _ == module}
    lacking = [f"figures.{module}.{name}" for name in functions(module) if name not in drawn]
    assert not lacking, f"no case in tests/figures/{module}.py draws {', '.join(lacking)}"


@pytest.mark.parametrize(("module", "case"), CASES)
def test_a_figure_can_be_read(module: str, case: str) -> None:
    name = case.partition(":")[0]
    draw = getattr(importlib.import_module(f"attn_course.figures.{module}"), name)
    with mock.patch.object(viz, "show") as shown:
        assert draw(**CASES[module, case]) is None
    assert shown.call_count == 1, f"a function shows one figure, not {shown.call_count}"
    (fig,), words = shown.call_args
    broken = faults(fig, **{"caption": None, **words})
    assert not broken, "\n".join(broken)


def test_a_frame_marks_the_same_tile_of_a_scene_and_of_a_coarser_map() -> None:
    with mock.patch.object(viz, "show") as shown:
        figures.saliency.explained_scene(**CASES["saliency", "explained_scene"])
    (fig,), _ = shown.call_args
    for ax in fig.axes:
        pixels = np.ptp(ax.images[0].get_extent()[:2])
        frame = next(line for line in ax.lines if len(line.get_xdata()) == 5)
        corner = [min(frame.get_xdata()) / pixels, min(frame.get_ydata()) / pixels]
        np.testing.assert_allclose(corner, [2 / 3, 1 / 3])  # tile 5 of three by three


@pytest.mark.parametrize("module", MODULES)
def test_the_build_finds_the_caption_of_every_figure(module: str) -> None:
    for name, function in functions(module).items():
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        words = [
            {word.arg: word.value for word in one.keywords}
            for one in calls
            if ast.unparse(one.func) == "viz.show"
        ]
        assert len(words) == 1, f"{name}: one call of viz.show in the function itself"
        text = words[0].get("caption")
        assert any(isinstance(one, ast.Constant) for one in ast.walk(text)), f"{name}: its words"


def planted(fault: str) -> list[str]:
    fig, ax = viz.subplots(size=(7.0 if fault == "small" else 5.0, 3.0))
    with viz.style():
        ax.plot([0, 1], color="#777777" if fault == "colour" else "C0")
        for x in (0.4, 0.42 if fault == "overlap" else 0.8):
            ax.text(x, 0.5, "word", rotation=30, color="C1" if fault == "text" else INK)
        if fault == "cut":
            fig.text(0.95, 0.5, "a long remark")
    return faults(fig, alt="A line.", caption=None if fault == "caption" else "A line.")


@pytest.mark.parametrize(("fault", "told"), [
    ("small", "px on a phone"), ("colour", "colour #777777"), ("overlap", "overlap"),
    ("text", "the page's own colour"), ("cut", "'a long remark' is cut off"),
    ("caption", "no caption"),
])  # fmt: skip
def test_each_fault_is_told(fault: str, told: str) -> None:
    found = planted(fault)
    assert found
    assert all(told in one for one in found), found
    assert planted("none") == []
