"""The diagrams of the models: what a page can ask for, what a reader and a screen reader get."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from processes import python
from refusals import refused

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import diagram_source  # noqa: E402  the line above makes it importable
from diagram_pen import COLOURS, LIT, WIDTH, Drawing, formula  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", diagram_source.CATALOGUE)
def test_every_part_lights_something_and_dims_the_rest(name: str) -> None:
    drawing = diagram_source.draw(name)
    assert drawing.name == name
    plain = drawing.svg()
    assert "attn-lit" not in plain
    assert "attn-dim" not in plain
    assert drawing.parts
    for part in drawing.parts:
        svg = drawing.svg([part])
        assert "attn-lit" in svg
        assert drawing.parts[part] in drawing.describe([part])


@pytest.mark.parametrize("name", diagram_source.CATALOGUE)
def test_no_label_is_smaller_than_eleven_pixels_on_a_phone_or_leaves_the_drawing(name: str) -> None:
    root = ElementTree.fromstring(diagram_source.draw(name).svg())
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert width == WIDTH <= 358  # what a screen of 390 leaves: a unit is at least a pixel
    for text in root.iter(f"{SVG}text"):
        sizes = [float(part.attrib.get("font-size", "inf")) for part in text.iter()]
        assert 11 <= min(sizes) < float("inf")
        assert 0 <= float(text.attrib["x"]) <= width
        assert 8 <= float(text.attrib["y"]) <= height
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height


@pytest.mark.parametrize("name", diagram_source.CATALOGUE)
def test_colours_follow_the_page(name: str) -> None:
    svg = diagram_source.draw(name).svg(list(diagram_source.draw(name).parts)[:1])
    colours = set(re.findall(r'(?:fill|stroke|color)(?:="|: )([^"]+)"', svg))
    roles = {f"var(--attn-{role}, {colour})" for role, colour in COLOURS.items()}
    assert colours <= {"none", "currentColor", LIT} | roles


def test_the_description_says_what_is_lit_and_can_be_replaced() -> None:
    drawing = diagram_source.draw("additive-attention")
    root = ElementTree.fromstring(drawing.svg(["scores", "weights"], caption='A "look" & <more>.'))
    lit = "Highlighted: the scores, the softmax and the weights."
    assert root.attrib["aria-label"].endswith(lit)
    assert root.attrib["data-caption"] == 'A "look" & <more>.'
    assert root.attrib["role"] == "img"
    assert "attn-figure" in root.attrib["class"].split()
    other = ElementTree.fromstring(drawing.svg(["scores"], alt="Mine."))
    assert other.attrib["aria-label"] == "Mine."


def test_symbols_are_set_as_in_formulas() -> None:
    svg = ElementTree.fromstring(f"<t>{formula('s_{i-1}')}</t>")
    letter, index = list(svg)
    assert (letter.text, index.text) == ("s", "i−1")
    assert letter.attrib["font-style"] == "italic"
    assert float(index.attrib["font-size"]) < float(letter.attrib["font-size"])
    assert "\u0304" in formula("\\bar h_1")
    assert "italic" not in formula("\\Sigma")


def test_what_does_not_exist_is_refused() -> None:
    refused("no diagram 'attention'", diagram_source.draw, "attention")
    with pytest.raises(ValueError, match="no part 'score' in additive-attention"):
        diagram_source.draw("additive-attention").svg(["score"])
    drawing = Drawing("x", 10, "X.", {"a": "a"})
    refused("x: no part b", drawing.say, "word", (1, 9), "b")
    drawing.box("one", "h", (30, 30), "a")
    refused("'one' stands twice", drawing.box, "one", "h", (30, 30), "a")


def built(folder: Path, index: str) -> tuple[str, str]:
    """The first page as Sphinx renders it with our directives, and what it says."""
    (folder / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'book' / '_ext')!r})\n"
        "extensions = ['myst_parser', 'attn_diagrams']\n"
    )
    (folder / "index.md").write_text(index)
    done = python("-m", "sphinx", "-q", "-b", "html", folder, folder / "html", timeout=120)
    return (folder / "html" / "index.html").read_text(encoding="utf-8"), done.stderr


def test_the_directive_draws_or_says_page_and_line(tmp_path: Path) -> None:
    good = "```{diagram} three-steps\n:lit: scores, weights\n:caption: Two of three.\n```\n"
    bad = "```{diagram} three-steps\n:lit: scoring\n:caption: No.\n```\n"
    bare = "```{diagram} three-steps\n```\n"
    page, said = built(tmp_path, f"# Page\n\n{good}\n{bad}\n{bare}")
    assert page.count("<svg") == 1
    assert 'data-caption="Two of three."' in page
    assert "index.md:8: ERROR: diagram: no part 'scoring'" in said
    assert "index.md:13: ERROR: diagram: ':caption:' is missing" in said


def test_the_map_is_that_of_the_table_of_contents(tmp_path: Path) -> None:
    (tmp_path / "chapters").mkdir()
    for slug, title in (("00_warm_up", "Before"), ("22_new", "A new *page*")):
        page = tmp_path / "chapters" / f"{slug}.md"
        page.write_text(f"# {title}\n\n" + "word " * 1800 + "\n")
    (tmp_path / "_toc.yml").write_text(
        "parts:\n- {caption: One, chapters: [{file: chapters/00_warm_up}]}\n"
        "- {caption: Two, chapters: [{file: chapters/22_new}]}\n"
        "- {caption: Reference, chapters: [{file: notation}]}\n"
    )
    toc = "```{toctree}\nchapters/00_warm_up\nchapters/22_new\n```"
    index, said = built(tmp_path, f"# Course\n\n```{{course-map}}\n```\n\n{toc}\n")
    assert said == ""
    stops = re.findall(r'<li class="attn-stop.*?</li>', index)
    assert re.findall(r'attn-map-title">(\w+)', index) == ["One", "Two"]
    named = [("0", "00_warm_up", "Warm-up"), ("22", "22_new", "A new")]
    for stop, (number, slug, name) in zip(stops, named, strict=True):
        assert f'number">{number}<' in stop
        assert f'href="chapters/{slug}.html"' in stop
        assert f'name">{name}' in stop
        assert "20 min" in stop
    assert ['<span class="attn-edge">' in stop for stop in stops] == [True, False]
