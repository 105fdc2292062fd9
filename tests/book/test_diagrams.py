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

import course_map  # noqa: E402  the line above makes it importable
import diagram_source  # noqa: E402
from diagram_pen import WIDTH, Drawing, formula  # noqa: E402

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
    assert colours <= {"none", "currentColor", "var(--attn-blue, #0b62a0)"}


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


def test_the_map_links_what_there_is_and_dims_what_is_planned(tmp_path: Path) -> None:
    (tmp_path / "chapters").mkdir()
    page = tmp_path / "chapters" / "00_warm_up.md"
    page.write_text("# Warm-up\n\n" + "word " * 1800 + "\n")
    toc = "```{toctree}\nchapters/00_warm_up\n```"
    index, said = built(tmp_path, f"# Course\n\n```{{course-map}}\n```\n\n{toc}\n")
    assert said == ""
    stops = re.findall(r'<li class="attn-stop.*?</li>', index)
    assert len(stops) == 21
    assert 'href="chapters/00_warm_up.html"' in stops[0]
    assert "10 min" in stops[0]
    assert all("attn-planned" in stop and "href" not in stop for stop in stops[1:])
    assert all('<span class="attn-edge">' in stop for stop in stops[:-1])


def test_the_map_names_every_page_of_the_book() -> None:
    stops = [stop.slug for _, part in course_map.PARTS for stop in part]
    pages = sorted(path.stem for path in (ROOT / "book" / "chapters").glob("*.md"))
    assert [slug for slug in stops if slug in pages] == pages
    assert [int(slug[:2]) for slug in stops] == list(range(21))
