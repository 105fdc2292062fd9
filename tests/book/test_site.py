"""The built site, read as files: links, notebooks, weight, icons, words."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
import yaml
from bookbuild.common import Book, main_page, slug
from bookbuild.execute import read_page
from bookbuild.site import LIMIT, check_site, is_foreign, loads, local_file

pytestmark = pytest.mark.book
ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("_static/", "_notebooks/", "_exercises/", "_explorers/", "vendor/")


class Anchors(HTMLParser):
    """Links and targets of one page, headings and pictures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.classes: set[str] = set()
        self.images: list[dict[str, str | None]] = []
        self.titles = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        if values.get("id"):
            self.ids.append(str(values["id"]))
        self.classes.update((values.get("class") or "").split())
        if tag == "img":
            self.images.append(values)
        self.titles += tag == "h1"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Anchors]:
    """Every page of the site, parsed once."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if not name.startswith(GENERATED):
            found[name] = Anchors(path.read_text(encoding="utf-8"))
    return found


def test_every_page_of_the_contents_is_there(book: Book, pages: dict[str, Anchors]) -> None:
    assert {f"{page}.html" for page in book.pages} <= set(pages)


def test_no_page_loads_anything_from_another_host(site: Path, pages: dict[str, Anchors]) -> None:
    foreign = {
        f"{name}: {reference.url}"
        for name in pages
        for reference in loads(site / name)
        if is_foreign(reference.url)
    }
    assert foreign == set()


def test_stylesheets_and_scripts_name_no_other_host(site: Path) -> None:
    loading = re.compile(
        r"""(?:url\(\s*['"]?|@import\s+['"]|\bimport\s*\(?\s*['"]|\bfetch\(\s*['"`]|\.src\s*=\s*['"`])"""
        r"(https?:)?//[\w.-]+\.\w+",
    )
    found = {}
    for path in sorted([*site.rglob("*.css"), *site.rglob("*.js")]):
        hits = [hit[0] for hit in loading.finditer(path.read_text(encoding="utf-8"))]
        if hits:
            found[path.relative_to(site).as_posix()] = hits
    assert found == {}


def internal(site: Path, name: str, link: str) -> tuple[Path | None, str]:
    """File and anchor that a link of a page names."""
    parts = urlsplit(link)
    if not parts.path:
        return site / name, unquote(parts.fragment)
    return local_file(site, site / name, link), unquote(parts.fragment)


def test_every_internal_link_and_anchor_resolves(site: Path, pages: dict[str, Anchors]) -> None:
    broken = []
    for name, page in pages.items():
        for link in page.links:
            if is_foreign(link) or link.startswith(("mailto:", "javascript:")):
                continue
            file, anchor = internal(site, name, link)
            if file is None or not (file.is_file() or (file / "index.html").is_file()):
                broken.append(f"{name}: {link}")
            elif anchor and file.suffix == ".html":
                target = file.relative_to(site.resolve() if file.is_absolute() else site).as_posix()
                ids = pages[target].ids if target in pages else ()
                if anchor not in ids and anchor != "top":
                    broken.append(f"{name}: {link}")
    assert broken == []


def test_ids_are_unique_and_every_page_has_one_title(pages: dict[str, Anchors]) -> None:
    for name, page in pages.items():
        if name == "index.html":
            continue  # only sends the reader to the first page
        twice = {one for one in page.ids if page.ids.count(one) > 1}
        assert twice == set(), name


def test_every_picture_has_words(site: Path, pages: dict[str, Anchors]) -> None:
    for name, page in pages.items():
        for image in page.images:
            assert image.get("alt"), f"{name}: {image.get('src')}"
            assert not str(image.get("src")).endswith(".svg"), f"{name}: an <img> keeps its colours"
        text = (site / name).read_text(encoding="utf-8")
        for opening in re.findall(r'<svg\b[^>]*class="attn-figure"[^>]*>', text):
            assert 'role="img"' in opening, name
            assert "aria-label" in opening, name


def test_every_icon_in_use_is_drawn(site: Path, pages: dict[str, Anchors]) -> None:
    style = (site / "_static" / "attn.css").read_text(encoding="utf-8")
    rules = re.findall(r"^(.*)\{ --icon:", style, re.M)
    drawn = {one for rule in rules for one in re.findall(r"\.(fa-[\w-]+)", rule)}
    used = {one for page in pages.values() for one in page.classes if one.startswith("fa-")}
    assert used - {"fa-solid", "fa-lg"} <= drawn
    assert used, "the theme's buttons have icons"
    names = set(re.findall(r"var\(--icon-([\w-]+)\)", style))
    assert names == set(re.findall(r"--icon-([\w-]+): url", style))


def test_no_page_is_heavy(book: Book, site: Path) -> None:
    weights = check_site(book)
    assert max(weights.values()) <= LIMIT


def test_every_page_with_code_offers_its_notebook(book, site, pages):
    with_code = [page for page in book.pages if read_page(book, page) is not None]
    assert with_code
    for page in with_code:
        path = f"_notebooks/{slug(page)}.ipynb"
        links = pages[f"{page}.html"].links
        assert "../" * page.count("/") + path in links
        owner = urlsplit(book.repository).path.strip("/")
        colab = f"https://colab.research.google.com/github/{owner}/blob/gh-pages/{path}"
        binder = f"https://mybinder.org/v2/gh/{owner}/gh-pages?urlpath=lab/tree/{path}"
        assert colab in links
        assert binder in links
        assert (site / path).is_file()


def test_the_foot_of_a_page_counts_the_checks_of_its_list(book: Book, site: Path) -> None:
    counted = 0
    for page in book.pages:
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        assert 'class="attn-checks"' not in text, page
        foot = re.search(r'class="attn-sweep"><a[^>]*href="([^"]+)">(\d+) checks: ([^<]*)<', text)
        if foot is None:
            continue
        parts = [int(one) for one in re.findall(r"(\d+) (?:under|of|algebra|not swept)", foot[3])]
        listed = (site / page).parent.joinpath(foot[1]).read_text(encoding="utf-8")
        entries = listed.count('class="attn-listed"')
        assert int(foot[2]) == sum(parts) == entries, page
        counted += 1
    assert counted == sum(read_page(book, page) is not None for page in book.pages)


def notebooks() -> Iterator[str]:
    yield from (page for page in Book().pages if page.startswith("chapters/"))


@pytest.mark.parametrize("page", notebooks())
def test_notebook_is_the_page_in_words_that_jupyter_knows(book, site, page):
    path = site / "_notebooks" / f"{slug(page)}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert "find_spec" in code[0].source, "the first cell installs the package where it is missing"
    assert f"attn-course[book] @ git+{book.repository}@" in code[0].source
    needed = any(re.search("^from experiments", cell.source, re.M) for cell in code)
    assert ('find_spec("experiments")' in code[0].source) is needed
    cells = read_page(book, page).notebook.cells
    of_page = [cell.source for cell in cells if cell.cell_type == "code"]
    of_notebook = iter([cell.source for cell in code])
    assert all(one in of_notebook for one in of_page), "every cell of the page, in order"
    for cell in code:
        assert not cell.outputs
        compile(re.sub(r"^[%!].*$", "", cell.source, flags=re.M), path.name, "exec")
    for cell in notebook.cells:
        if cell.cell_type != "markdown":
            continue
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", cell.source, flags=re.S)
        assert not re.search(r"\{[a-z:]+\}`|^:::|^```\{", prose, re.M), cell.source
        assert cell.source.count("<details>") == cell.source.count("</details>")
        for link in re.findall(r"\]\(([^)\s]+)\)", prose):
            assert link.startswith(("https://", "#", "mailto:")), link


def test_a_further_page_and_its_chapter_lead_to_each_other(book, site, pages):
    for page in book.pages:
        main = main_page(page)
        if not page.startswith("chapters/") or main == page:
            continue
        folder = page.removeprefix(f"{main}/")
        assert f"../{main.rsplit('/', 1)[-1]}.html" in pages[f"{page}.html"].links
        target = f"{main.rsplit('/', 1)[-1]}/{folder}.html"
        html = (site / f"{main}.html").read_text(encoding="utf-8")
        boxes = " ".join(re.findall(r"<nav[^>]*attn-continued.*?</nav>", html, re.DOTALL))
        moved = set(re.findall(f'href="{re.escape(target)}#([^"]+)"', boxes))
        assert moved <= set(pages[f"{main}.html"].ids), "old addresses lead to the links"
        assert len(moved) > 1


def test_equations_have_the_same_numbers_on_page_and_notebook(book: Book, site: Path) -> None:
    for page in notebooks():
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        shown = re.findall(r'class="eqno">\((\d+\.\d+)\)', text)
        told = (site / "_notebooks" / f"{slug(page)}.ipynb").read_text(encoding="utf-8")
        assert shown == re.findall(r"\\\\tag\{(\d+\.\d+)\}", told), page


def test_social_tags_name_the_page(book: Book, site: Path) -> None:
    for page in book.pages:
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        tags = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)"', text))
        assert tags["url"] == f"{book.site}{page}.html"
        assert tags["title"]
        assert '<link rel="icon"' in text


def test_search_index_knows_the_pages(book: Book, site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    assert set(book.pages) <= set(index["docnames"])
    assert "softmax" in index["terms"]


def test_notation_names_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "book/notation.md").read_text())
    assert len(named) >= 10
    for path, test in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^(def {test}\(|{test} =)", text, re.M), f"{path}::{test}"


def test_names_of_other_projects_exist() -> None:
    import importlib

    def exists(name: str) -> bool:
        parts = name.split(".")
        for depth in range(len(parts), 0, -1):
            try:
                value = importlib.import_module(".".join(parts[:depth]))
            except ImportError:
                continue
            for part in parts[depth:]:
                if not hasattr(value, part):
                    return False
                value = getattr(value, part)
            return True
        import builtins

        return hasattr(builtins, name)

    path = ROOT / "book/vendor/inventory.yml"
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    names = [name for entry in entries for name in entry["names"]]
    assert [name for name in names if not exists(name)] == []


def test_no_page_of_the_reference_is_long(site: Path) -> None:
    for path in sorted((site / "api").glob("*.html")):
        elements = len(re.findall(r"<[a-z]", path.read_text(encoding="utf-8")))
        assert 100 < elements <= 10_000, path.name


def test_reference_has_every_public_name_of_the_package(site: Path) -> None:
    pages = "".join(one.read_text(encoding="utf-8") for one in (site / "api").glob("*.html"))
    for path in sorted((ROOT / "attn_course").glob("*/__init__.py")):
        names = re.search(r"__all__ = \[(.*?)\]", path.read_text(encoding="utf-8"), re.S)
        if names is None:
            continue
        module = f"attn_course.{path.parent.name}"
        public = re.findall(r'"(\w+)"', names[1])
        missing = [one for one in public if f'id="{module}.{one}"' not in pages]
        constants = [one for one in missing if one.isupper()]
        modules = [one for one in missing if (path.parent / f"{one}.py").is_file()]
        assert set(missing) <= {*constants, *modules}, module
