"""A chapter of two pages: numbers run on, old addresses lead on, a moved check keeps its values."""

import json
import re
from pathlib import Path
from typing import Any

import lxml.html
import pytest
from bookbuild.common import Book
from bookbuild.execute import read_page
from bookbuild.notebooks import citations, to_notebook
from bookbuild.sweep import find, is_stale, read_record, renewed
from processes import python
from tiny_book import HEADER, cell, rendered, tiny

ROOT = Path(__file__).resolve().parents[2]
EXT = ROOT / "book" / "_ext"
CONFIG = f"""
parse: {{myst_enable_extensions: [dollarmath, colon_fence], myst_heading_anchors: 3}}
repository: {{url: https://github.com/somebody/course}}
html: {{baseurl: https://site/, use_repository_button: true}}
sphinx:
  local_extensions:
    {{attn_numbers: {EXT}, attn_figures: {EXT}, attn_chapters: {EXT}, attn_interactive: {EXT},
    attn_progress: {EXT}, attn_page: {EXT}, attn_checks: {EXT}}}
  config: {{math_numfig: false,
    nb_mime_priority_overrides: [[html, text/html, 0], [html, image/svg+xml, 1]]}}
"""
DRAW = """from attn_course import viz
fig, ax = viz.subplots()
viz.bar(ax, ["a"], [1.0])
viz.show(fig, alt="A bar.", caption="CAPTION")
"""
QUIZ = """```{quiz} QUIZ
question: Which?
options:
  - text: this
    correct: true
    why: It is.
  - text: that
    why: It is not.
```

"""
FIRST = (
    "## Kept\n\n", "$$\na\n$$ (eq-one)\n\n", cell(DRAW.replace("CAPTION", "The first.")),
    cell("x = 1\nassert x > 0"), "See {eq}`eq-three`.\n\n", QUIZ.replace("QUIZ", "aa-one"),
    "```{continued} 00_a/more.md\n```\n",
)  # fmt: skip
MORE = (
    "**What moved?**\n\n", "## Moved\n\n", "$$\nb\n$$ (eq-two)\n\n$$\nc\n$$ (eq-three)\n\n",
    "See {eq}`eq-one`, figures 0.1 and 0.2.\n\n", cell(DRAW.replace("CAPTION", "The second.")),
    cell("y = 2\nassert y > 1"), QUIZ.replace("QUIZ", "aa-two"), "## Kept\n\nOnce more.\n",
)  # fmt: skip


def two(folder: Path, first: tuple[str, ...] = FIRST, more: tuple[str, ...] = MORE) -> Book:
    """A book of one chapter with a further page."""
    book = tiny(folder, *first)
    further = book.source / "chapters" / "00_a" / "more.md"
    further.parent.mkdir()
    further.write_text(HEADER.replace("# A", "# More") + "".join(more))
    (book.source / "_toc.yml").write_text(
        "format: jb-book\nroot: intro\n"
        "chapters: [{file: chapters/00_a, sections: [{file: chapters/00_a/more}]}]"
    )
    return book


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Book, Any]:
    """The book, its two pages and what the comparison of sources and pages said."""
    book = two(tmp_path_factory.mktemp("two"))
    return book, rendered(book, CONFIG)


def article(book: Book, page: str) -> Any:
    (found,) = lxml.html.parse(str(book.html / f"{page}.html")).getroot().iterfind(".//article")
    return found


def test_figures_and_equations_are_numbered_through_the_pages(made: tuple[Book, Any]) -> None:
    book, (problems, figures) = made
    assert (problems, figures) == ([], 2)
    pages = [article(book, name) for name in ("chapters/00_a", "chapters/00_a/more")]
    text = [" ".join(page.text_content().split()) for page in pages]
    assert [re.findall(r"Figure (0\.\d)\.", one) for one in text] == [["0.1"], ["0.2"]]
    marks = [[one.text_content() for one in page.find_class("eqno")] for page in pages]
    assert [re.findall(r"0\.\d", "".join(one)) for one in marks] == [["0.1"], ["0.2", "0.3"]]
    assert "See (0.3)." in text[0]
    assert "See (0.1)," in text[1]


def test_each_page_leads_to_the_other_and_an_old_address_to_its_section(made) -> None:
    book, _ = made
    main, more = article(book, "chapters/00_a"), article(book, "chapters/00_a/more")
    (nav,) = main.find_class("attn-continued")
    links = [(one.get("id"), one.get("href")) for one in nav.iter("a")]
    assert links == [("more", "00_a/more.html"), ("moved", "00_a/more.html#moved")]
    (line,) = more.xpath('.//h1/following-sibling::*[1][@class="attn-kicker"]')
    assert line.text_content() == "Part of 0 A. About 10 minutes."
    assert [one.get("href") for one in line.iter("a")] == ["../00_a.html"]
    (foot,) = more.find_class("attn-sweep")
    assert [one.get("href") for one in foot.iter("a")] == ["../../checks/00_a__more.html"]
    assert (book.html / "checks" / "00_a__more.html").is_file()


def test_answers_are_those_of_the_chapter(made: tuple[Book, Any]) -> None:
    book, _ = made
    (quiz,) = article(book, "chapters/00_a/more").find_class("attn-quiz")
    assert quiz.get("data-page") == "chapters/00_a"
    text = (book.html / "_static" / "attn-questions.js").read_text()
    known = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert known == {"chapters/00_a": {"title": "0 A", "quiz": ["aa-one", "aa-two"], "predict": []}}


def test_each_page_is_a_notebook_with_the_numbers_of_the_page(made: tuple[Book, Any]) -> None:
    book, _ = made
    page = read_page(book, "chapters/00_a/more")
    cells = "\n".join(one.source for one in to_notebook(book, page, citations(book)).cells)
    assert "Its chapter begins with [0 A](https://site/chapters/00_a.html)." in cells
    assert re.findall(r"tag\{(.*?)\}", cells) == ["0.2", "0.3"]
    assert "See (0.1)," in cells
    links = lxml.html.parse(str(book.html / "chapters/00_a/more.html")).getroot().iterlinks()
    assert "../../_notebooks/00_a__more.ipynb" in {one[2] for one in links}


def test_a_check_that_moved_keeps_its_values_after_one_run(tmp_path, swept):
    seeded = (
        "import numpy as np\nfrom attn_course import data\n"
        "x = np.random.default_rng(3).random()\nassert data.name and x < 1"
    )
    parts = [cell("a = 1\nassert a == 1"), cell(seeded), cell("assert a == 1")]
    book = tiny(tmp_path, *parts)
    (book.package / "data.py").write_text("name = 'x'\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(book.package.parent))
        swept(book)
        whole = read_record(book, "chapters/00_a")["checks"]
        split = two(tmp_path / "split", (parts[0], parts[2]), (parts[1],))
        (split.package / "data.py").write_text("name = 'x'\n")
        (split.source / "sweep").mkdir()
        record = book.sweep / "00_a.json"
        (split.sweep / "00_a.json").write_text(record.read_text())
        patch.setenv("PYTHONPATH", str(split.package.parent))
        pages = find(split, "00")
        assert [page.name for page in pages] == ["chapters/00_a", "chapters/00_a/more"]
        assert all(is_stale(split, page) for page in pages)
        assert renewed(split, pages, workers=2) == {page.name for page in pages}
        assert not any(is_stale(split, page) for page in pages)
        main, more = (read_record(split, page.name)["checks"] for page in pages)
        assert (main, more) == ([whole[0], whole[3]], whole[1:3])
        assert len(set(more[1]["value"].values())) == 2
        (split.sweep / "00_a__more.json").unlink()
        path = split.path("chapters/00_a/more")
        path.write_text(path.read_text().replace("default_rng(3)", "default_rng(4)"))
        assert not renewed(split, find(split, "00_a__more"), workers=1), "another value"


def test_an_id_on_two_pages_and_a_number_that_is_not_there_are_told(tmp_path: Path) -> None:
    twice = ("**Why?**\n\n", QUIZ.replace("QUIZ", "aa-one"), "```{continued} gone.md\n```\n")
    book = two(tmp_path, FIRST, ("As figure 0.7 shows.\n\n" + "## Moved\n\n", *twice))
    (book.source / "vendor" / "katex").mkdir(parents=True)
    with (book.source / "_config.yml").open("a") as file:
        file.write(CONFIG)
    command = (ROOT / "tools" / "book.py", "html", "--strict", "--book", book.source)
    done = python(*command, "--package", book.package, succeeds=False)
    assert done.returncode == 1
    assert "aa-one: an id stands on two pages of the chapter" in done.stderr
    assert "continued: there is no page chapters/00_a/gone" in done.stderr
