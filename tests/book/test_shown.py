"""What the sources show stands on the site: each kind of loss is planted and must be told."""

from pathlib import Path

import lxml.html
import pytest
from bookbuild.execute import read_page
from bookbuild.shown import drawn, missing, on_site, pointed, written
from tiny_book import cell, rendered, tiny

SVG = '<svg class="attn-figure"><title>Bars.</title><path d="M0 0"/></svg>'


def article(body: str) -> object:
    return lxml.html.fromstring(f"<html><body><article>{body}</article></body></html>")


def figure(caption: str, number: str = "1.1", drawing: str = SVG) -> str:
    return (
        f'<figure class="attn-captioned" id="figure-{number.replace(".", "-")}">{drawing}'
        f'<figcaption><span class="attn-figure-number">Figure {number}.</span> {caption}'
        "</figcaption></figure>"
    )


def explorer(state: str) -> str:
    return (
        '<figure class="attn-explorer" id="explorer-kv_cache"><div></div>'
        f'<script type="application/json">{state}</script></figure>'
    )


TITLE = '<p class="attn-source-title">a.b</p>'
LISTING = f'<div class="attn-source docutils">{TITLE}<pre>code</pre></div>'
TABLE = "<table><tr><th>a</th></tr><tr><td>1</td></tr></table>"
SOURCE = """# A

```{diagram} block
:lit: a
:caption: Two halves.
```

```{explorer} kv_cache
```

```{source} a.b
```

| a | b |
| --- | ---: |
| 1 | 2 |

```python
| no | table |
| --- | --- |
```
"""
SHOWN = {
    "diagram": figure("Two halves."), "explorer": explorer("{}"), "listing": LISTING,
    "table": TABLE,
}  # fmt: skip


def test_a_page_that_shows_everything_misses_nothing(tmp_path: Path) -> None:
    items = list(written(SOURCE, tmp_path / "a.md"))
    assert {item.kind: item.line for item in items} == {
        "diagram": 3, "explorer": 8, "listing": 11, "table": 14,
    }  # fmt: skip
    seen = on_site(article("".join(SHOWN.values())))
    assert not list(missing(items, seen))
    assert not seen.problems


@pytest.mark.parametrize("kind", SHOWN)
def test_each_kind_is_missed_where_it_is_not_on_the_page(tmp_path: Path, kind: str) -> None:
    body = "".join(html for name, html in SHOWN.items() if name != kind)
    items = written(SOURCE, tmp_path / "a.md")
    assert [item.kind for item in missing(items, on_site(article(body)))] == [kind]


def test_an_included_table_belongs_to_the_page(tmp_path: Path) -> None:
    (tmp_path / "rows.md").write_text("| a |\n| - |\n| 1 |\n\n| a | b |\n| --- | --- |\n")
    text = "# A\n\n```{include} rows.md\n```\n"
    (item,) = written(text, tmp_path / "a.md")
    assert (item.kind, item.line) == ("table", 3)
    assert "rows.md" in item.words


@pytest.mark.parametrize(("body", "told"), [
    (figure("Bars.", drawing=""), "without its figure: 'Bars.'"),
    (figure("Bars.", drawing='<svg class="attn-figure"></svg>'), "drawing is empty"),
    (explorer(""), "no state"),
])  # fmt: skip
def test_an_empty_picture_is_told(body: str, told: str) -> None:
    (problem,) = on_site(article(body)).problems
    assert told in problem


DRAWING = """from attn_course import viz
def draw():
    viz.show(fig, alt="Bars.", caption="Never called.")
n = 3
viz.show(fig, alt="Bars.", caption=f"With {n} "
    "bars.")
print(n)
"""


def test_every_call_that_draws_must_have_its_picture(tmp_path: Path) -> None:
    page = read_page(tiny(tmp_path, cell(DRAWING)), "chapters/00_a")
    items = list(drawn(page))
    seen = on_site(article(f'<div class="cell">{figure("With 3 bars.")}</div>'))
    (lost,) = missing(items, seen)
    assert (lost.words, page.text[lost.line - 1].strip()[:9]) == ("Never called.", "viz.show(")


FIGURE = """from attn_course import viz
def bars(counts):
    viz.show(fig, alt="Bars.", caption=f"With {len(counts)} "
        "bars.")
def other(counts):
    viz.show(fig, alt="Bars.", caption="Others.")
"""


@pytest.mark.parametrize(("on_page", "lost"), [
    (figure("With 3 bars."), []), ("", ["figure not on the page: 'With  bars.'"]),
    (figure("Others."), ["figure not on the page: 'With  bars.'"]),
])  # fmt: skip
def test_a_call_of_a_figure_must_have_the_picture_that_its_function_shows(tmp_path, on_page, lost):
    book = tiny(tmp_path, cell("x = 1\nfigures.counts.bars([1, 2, 3])"))
    (book.package / "figures").mkdir()
    (book.package / "figures" / "counts.py").write_text(FIGURE)
    page = read_page(book, "chapters/00_a")
    items = list(drawn(page))
    assert [page.text[item.line - 1] for item in items] == ["figures.counts.bars([1, 2, 3])"]
    seen = on_site(article(f'<div class="cell">{on_page}</div>'))
    assert [f"{one.kind} not on the page: {one.words!r}" for one in missing(items, seen)] == lost


@pytest.mark.parametrize(("sentence", "told"), [
    ("As figure 1.2 shows.", "a.md:1: there is no figure 1.2"),
    ("See figures 1.1 and 1.3.", "a.md:1: there is no figure 1.3"),
    ("See figure 1.1; figure 3 of the paper.", None),
    ("More in chapter 1, planned.", "a.md:1: chapter 1 is not planned"),
    ("More in chapter 30, planned.", None),
    ("The dashed curve falls.", "a.md:1: 'dashed curve' points at a picture"),
    ("In the left panel it rises.", "'left panel' points at a picture"),
])  # fmt: skip
def test_a_sentence_that_points_at_nothing_is_told(sentence: str, told: str | None) -> None:
    body = article(f"<section><h2>One</h2><p>{sentence}</p></section>")
    found = list(pointed(sentence, body, {"1": {"1.1"}}, "a"))
    assert len(found) == (told is not None)
    assert all(str(told) in one for one in found)
    beside = article(f"<section><h2>One</h2><p>The dashed curve.</p>{figure('Bars.')}</section>")
    assert not list(pointed("The dashed curve.", beside, {}, "a"))


LOST = """from attn_course import viz
fig, ax = viz.subplots()
viz.bar(ax, ["a"], [1.0])
viz.picture(fig, alt="One bar.")
print("and a line after it")
"""


@pytest.mark.parametrize("call", ["picture", "show"])
def test_a_figure_that_a_line_below_has_swallowed_is_named_by_its_line(tmp_path, call):
    book = tiny(tmp_path, cell(LOST.replace("picture", call)))
    problems, figures = rendered(book)
    lost = "chapters/00_a.md:12: figure not on the page: 'One bar.'"
    assert problems == ([lost] if call == "picture" else [])
    assert figures == (call == "show")
