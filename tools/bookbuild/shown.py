"""What the sources show against what stands on the site, page by page.

A figure once vanished when a line was added below it, twelve times, while every check of a number
held. So the build reads both sides: the calls and directives of a page on one, its HTML on the
other. What is missing is named by page, line and caption, and so is a sentence that speaks of a
figure that is not there.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import lxml.html

from .asides import chapter_number
from .common import Book
from .execute import Page
from .plain import DIRECTIVE, OPEN, find_close, options_and_body

Node = Any  # an element of lxml, which has no types
DRAWS = ("viz.show", "viz.picture")
FIGURE = re.compile(r"figures\.([a-z]\w*)\.([a-z]\w*)")
NUMBER = re.compile(r"\b[Ff]ig(?:ures?|\.)\s(\d+\.\d+)(?:\s(?:and|to)\s(\d+\.\d+))?")
PLANNED = re.compile(r"chapter (\d+)[^.]{0,20}\bplanned\b")
#: Words that mean nothing without a picture near by.
POINTING = re.compile(
    r"\b(?:dashed|dotted|solid|thick|thin)\s(?:curves?|lines?|bars?)\b"
    r"|\b(?:left|right|upper|lower|middle)(?:-hand)?\s(?:panel|plot|map|diagram)\b"
    r"|\b(?:curve|figure|plot|diagram|map)s?\s(?:above|below)\b"
)
ROW = re.compile(r"^\s*\|?[\s:-]*-{2,}[\s:|-]*\|[\s:|-]*$")  # below the head of a Markdown table


@dataclass(frozen=True)
class Item:
    """One thing that a source promises to show.

    Args:
        kind: ``figure``, ``diagram``, ``explorer``, ``listing``, ``table`` or ``include``.
        key: A pattern that its caption, description or name on the page matches whole.
        line: Where the source promises it, 1-based.
        words: What to tell a person: the caption, the name.
    """

    kind: str
    key: str
    line: int
    words: str


@dataclass
class Seen:
    """What a page of the site shows: kind to the texts by which each thing is known."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, kind: str, text: str) -> None:
        self.texts.setdefault(kind, []).append(squeeze(text))


def squeeze(text: str) -> str:
    return " ".join(text.split())


def literal(text: str) -> str:
    return re.escape(squeeze(text))


def pattern(node: ast.expr | None) -> str | None:
    """What a caption in the code can become: its constant parts, and anything where it computes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return literal(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [
            re.sub(r"(\\?\s)+", r"\\s+", re.escape(one.value))
            if isinstance(one, ast.Constant) and isinstance(one.value, str)
            else ".*"
            for one in node.values
        ]
        return rf"\s*{''.join(parts)}\s*"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = pattern(node.left), pattern(node.right)
        return rf"(?:{left or '.*'})\s*(?:{right or '.*'})"
    return None if node is None else ".*"


def drawn(page: Page) -> Iterator[Item]:
    """Every call that draws, wherever in a cell it stands, called or not.

    A call of ``figures.<module>.<function>`` promises what that function shows.
    """
    for spec in page.specs:
        try:
            tree = ast.parse(spec["source"])
        except SyntaxError:  # IPython's own syntax
            continue
        for node in calls(tree):
            line = spec["line"] + node.lineno
            name = ast.unparse(node.func)
            if name in DRAWS:
                yield promised(node, line)
            elif found := FIGURE.fullmatch(name):
                source = page.book.package / "figures" / f"{found[1]}.py"
                for one in shows(source, found[2]):
                    yield promised(one, line)


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def promised(node: ast.Call, line: int) -> Item:
    """The figure that a call of ``viz`` gives, by its caption."""
    words = {one.arg: one.value for one in node.keywords}
    given = words.get("caption") or words.get("title") or words.get("alt")
    text = "".join(
        str(one.value) for one in ast.walk(given or node) if isinstance(one, ast.Constant)
    )
    return Item("figure", pattern(given) or ".*", line, text)


@cache
def shows(source: Path, name: str) -> tuple[ast.Call, ...]:
    """The calls of ``viz`` that show something in a function of a module of figures."""
    module = ast.parse(source.read_text(encoding="utf-8"))
    named = (node for node in module.body if isinstance(node, ast.FunctionDef))
    found = next((node for node in named if node.name == name), None)
    if found is None:
        return ()  # the cell that calls it has failed
    return tuple(node for node in calls(found) if ast.unparse(node.func) in DRAWS)


def tabled(page: Page) -> Iterator[Item]:
    """Tables that a cell gave as Markdown."""
    for (_, cell), spec in zip(page.code_cells, page.specs, strict=True):
        for output in cell.get("outputs", ()):
            text = output.get("data", {}).get("text/markdown", "")
            for _ in filter(ROW.match, text.splitlines()):
                yield Item("table", ".*", spec["line"] + 1, "a table that the cell computes")


def written(text: str, source: Path) -> Iterator[Item]:
    """The directives and tables of a page's prose; code and its options are passed over."""
    lines, number = text.splitlines(), 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if ROW.match(line):
            yield Item("table", ".*", number - 1, squeeze(lines[number - 2]))
        opened = OPEN.match(line)
        if not opened or not opened["rest"].strip():
            continue
        directive = DIRECTIVE.match(opened["rest"])
        end = find_close(lines, number, opened["fence"])
        name = directive["name"] if directive else ""
        argument = directive["argument"].strip() if directive else ""
        options, _ = options_and_body(lines[number:end])
        here = number
        if name == "diagram":
            caption = options.get("caption", "").strip("\"'")
            yield Item("diagram", literal(caption), here, caption)
        elif name == "explorer":
            yield Item("explorer", literal(argument), here, argument)
        elif name == "source":
            yield Item("listing", literal(argument), here, argument)
        elif name in ("sweep-table", "records-table"):
            yield Item("table", ".*", here, f"the table that {{{name}}} makes")
        elif name == "include":
            included = (source.parent / argument).read_text(encoding="utf-8")
            for one in written(included, source.parent / argument):
                yield Item(one.kind, one.key, here, f"{one.words} (from {argument})")
        if name not in ("admonition", "dropdown", "note", "warning", "misconception"):
            number = end + 1


def of_class(name: str) -> str:
    return f'contains(concat(" ", normalize-space(@class), " "), " {name} ")'


def on_site(article: Node) -> Seen:
    """What the article of a rendered page shows."""
    seen = Seen()
    for figure in article.iterfind(".//figure"):
        number = first(figure, f".//*[{of_class('attn-figure-number')}]")
        words = text_of(first(figure, ".//figcaption")).removeprefix(text_of(number))
        if "attn-explorer" in figure.get("class", "").split():
            seen.add("explorer", figure.get("id", "").removeprefix("explorer-"))
            if not text_of(first(figure, './/script[@type="application/json"]')):
                seen.problems.append(f"the explorer {figure.get('id')} has no state to draw")
        elif first(figure, ".//svg | .//img") is None:
            seen.problems.append(f"a caption stands without its figure: {words.strip()!r}")
        else:
            in_cell = first(figure, f"ancestor::div[{of_class('cell')}]") is not None
            seen.add("figure" if in_cell else "diagram", words)
    for drawing in article.xpath(f".//svg[{of_class('attn-figure')}]"):
        if first(drawing, "ancestor::figure") is None:
            seen.add("figure", text_of(first(drawing, ".//title")) or drawing.get("aria-label", ""))
        if first(drawing, ".//path | .//rect | .//circle | .//text | .//image | .//line") is None:
            seen.problems.append("a drawing is empty")
    for box in article.xpath(f".//*[{of_class('attn-source')}]"):
        if first(box, ".//pre") is not None:
            seen.add("listing", text_of(first(box, f".//*[{of_class('attn-source-title')}]")))
    for table in article.iterfind(".//table"):
        if first(table, ".//td") is not None:
            seen.add("table", text_of(table)[:60])
    return seen


def article_of(html: Path) -> Node:
    """The part of a page that its source fills."""
    page = lxml.html.fromstring(html.read_bytes())
    found = first(page, ".//article")
    return page if found is None else found


def first(node: Node, path: str) -> Node | None:
    return next(iter(node.xpath(path)), None)


def text_of(node: Node | None) -> str:
    return "" if node is None else squeeze(node.text_content())


def missing(items: Iterable[Item], seen: Seen) -> Iterator[Item]:
    """Items that no thing on the page answers; each thing answers one item."""
    left = {kind: list(texts) for kind, texts in seen.texts.items()}
    for item in sorted(items, key=lambda one: one.key == ".*"):  # what any thing would answer last
        texts = left.get(item.kind, [])
        found = next((one for one in texts if re.fullmatch(item.key, one, re.S)), None)
        if found is None:
            yield item
        else:
            texts.remove(found)


def pointed(text: str, article: Node, chapters: Mapping[str, set[str]], name: str) -> Iterator[str]:
    """Sentences that speak of a figure that is not there, with their lines."""
    prose = list(prose_lines(text))
    for number, line in prose:
        for found in NUMBER.finditer(line):
            for wanted in filter(None, found.groups()):
                if wanted not in chapters.get(wanted.partition(".")[0], set()):
                    yield f"{name}.md:{number}: there is no figure {wanted}: {line.strip()!r}"
        for found in PLANNED.finditer(line):
            if found[1].lstrip("0") in chapters:
                yield f"{name}.md:{number}: chapter {found[1]} is not planned, it exists"
    for section in article.iterfind(".//section"):
        if first(section, f".//figure | .//svg[{of_class('attn-figure')}]") is not None:
            continue
        title = text_of(first(section, "./h1 | ./h2 | ./h3 | ./h4")).rstrip("#")
        for paragraph in section.xpath("./p | ./ul | ./ol | ./blockquote"):
            if found := POINTING.search(text_of(paragraph)):
                where = next((n for n, line in prose if found[0] in line), 1)
                yield (
                    f"{name}.md:{where}: {found[0]!r} points at a picture, and the section "
                    f"{title!r} has none"
                )


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page that are not code, 1-based."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        opened = OPEN.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif opened and "code-cell" in opened["rest"]:
            fence = opened["fence"]
        else:
            yield number, line


def check_shown(book: Book, pages: Mapping[str, Page]) -> tuple[list[str], Counter[str]]:
    """Compare every page of the contents with what stands in its HTML.

    Args:
        book: The book, rendered.
        pages: Its pages with code, executed.

    Returns:
        The problems, each with page and line, and how many things of each kind are on the site.
    """
    problems, counts = list[str](), Counter[str]()
    articles = {name: article_of(book.html / f"{name}.html") for name in book.pages}
    chapters: dict[str, set[str]] = {}
    for name in filter(chapter_number, book.pages):
        known = chapters.setdefault(chapter_number(name), set())
        for figure in articles[name].xpath('.//figure[starts-with(@id, "figure-")]/@id'):
            number = figure.removeprefix("figure-").replace("-", ".")
            if number in known:
                problems.append(f"{name}.html: figure {number} is on another page of its chapter")
            known.add(number)
    for name, article in articles.items():
        text = book.path(name).read_text(encoding="utf-8")
        items = list(written(text, book.path(name)))
        if page := pages.get(name):
            items += [*drawn(page), *tabled(page)]
        counts.update(item.kind for item in items)
        seen = on_site(article)
        for item in missing(items, seen):
            counts[item.kind] -= 1
            problems.append(f"{name}.md:{item.line}: {item.kind} not on the page: {item.words!r}")
        problems += [f"{name}.html: {one}" for one in seen.problems]
        problems += pointed(text, article, chapters, name)
    return problems, counts
