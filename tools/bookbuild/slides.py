"""A deck of slides for each chapter, made from its built pages by one rule, for reveal.js.

The question of the page; each figure with its caption, each explorer as its still, each numbered
formula, table and misconception; each prediction, with its answer on the next slide; a function
in view; a section that has none of these by its first sentences; the goals at the end. Every
further page of the chapter is a stack of its own behind them. Notes are the sentences around
what a slide shows.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import lxml.html

from .built import Node, all_of, article, asked, explained, has, inner, sentences, words
from .common import ROOT, Book, main_page, slug

SKIPPED = re.compile(
    r"(Quiz|Exercises|References|The package’s versions?|.*\bsettle[sd]?\b.*|.*, checked)$"
)
SHOWS = ("attn-captioned", "attn-explorer", "attn-predict", "attn-misconception", "math")
TALL = 0.75  # height to width of a figure that has its caption at its side
NOTES = 2  # sentences before what is shown, and as many after it
LEAD_IN = ("formula", "table", "code")  # they show the sentence before them too
AWAY = re.compile(  # speaks of the page, of what a slide does not have, or is part of a sentence
    r"^[^A-Z0-9]|\b(at the top|below|above|next cell|the output)\b"
    r"|\b(this|main|first|further) page\b"
)
LISTED = range(1, 7)  # items of a list that can be read on a slide
CODE_LINES, TABLE_ROWS, TABLE_TEXT = range(5, 26), range(2, 11), 900  # of what can be read there
GROWN = 7  # lines of a function that is more than a helper
PAGE = """<!doctype html>
<html lang="en" data-theme="light"><head><meta charset="utf-8"><title>{title}: slides</title>
<link rel="icon" href="../_static/favicon.svg"><meta name="viewport" content="width=device-width">
{styles}
</head><body class="attn-slides"><div class="reveal"><div class="slides">
{slides}
</div></div>
<script src="../vendor/reveal/reveal.js"></script><script src="../vendor/reveal/notes.js"></script>
<script src="slides.js"></script></body></html>
"""
STYLES = [
    *("vendor/reveal/reveal.css", "vendor/katex/katex.min.css", "_static/pygments.css"),
    *("_static/interactive.css", "_static/attn.css", "_static/diagrams.css"),
    *("_explorers/explorers.css", "slides/slides.css"),
]


@dataclass
class Slide:
    """What one slide shows, as HTML; ``link`` leads into the book, ``notes`` are the speaker's."""

    title: str
    body: str
    link: str
    kind: str = ""
    notes: list[str] = field(default_factory=list)

    def html(self) -> str:
        notes = " ".join(self.notes)
        aside = f'<aside class="notes">{notes}</aside>' if notes else ""
        head = f"<h2>{self.title}</h2>" if self.title else ""
        link = f'<a class="slide-link" href="{self.link}">in the book</a>'
        return f'<section class="{self.kind}">{head}{self.body}{link}{aside}</section>'


def text(sentence: str) -> str:
    """A sentence for the notes: plain, as the speaker's window knows no styles."""
    return words(lxml.html.fromstring(f"<p>{sentence}</p>"))


def listed(part: str) -> bool:
    return part.startswith(("<ul>", "<ol>"))


def leads(sentence: str) -> bool:
    """It announces what follows, and can stand alone."""
    return sentence.endswith((":", ",")) and len(text(sentence).split()) >= 4


def heading(section: Node) -> str:
    return inner(next(one for one in section if one.tag in ("h1", "h2", "h3", "h4")))


def definitions(lines: list[str]) -> range:
    """The lines of a cell from its first function or class to the end of its last."""
    starts = [at for at, line in enumerate(lines) if re.match(r"(@|def |class )", line)]
    if not starts:
        return range(0)
    end = starts[-1] + 1
    while end < len(lines) and not re.match(r"[^\s)]", lines[end]):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return range(starts[0], end)


def code_cell(page: Node) -> Node | None:
    """The cell that teaches: of "Ten lines", else the first grown function, else the longest."""
    best: tuple[tuple[bool, int], Node] | None = None
    for cell in all_of(page, "cell_input"):
        above = " ".join(one.get("class") or "" for one in cell.iterancestors())
        lines = cell.text_content().strip().splitlines()
        title = heading(next(one for one in cell.iterancestors() if one.tag == "section"))
        named = re.search("ten lines|in code", title, re.I) is not None
        own = len(definitions(lines))
        if "tag_" in above or (own or named * len(lines)) not in CODE_LINES:
            continue
        rank = named, min(own, GROWN)
        if best is None or rank > best[0] or (rank == best[0] and not own):
            best = rank, cell  # what has no function is set up before it computes
    return best[1] if best else None


def stream(section: Node, code: Node | None) -> Iterator[Node]:
    """Paragraphs and what is to show, in order, without folded boxes and inner sections."""
    for one in section:
        if one.tag in ("details", "section", "nav") and not has(one, "attn-goals"):
            continue
        if one.tag in ("ul", "ol"):
            yield from [one] if len(one) in LISTED else []
        elif one.tag == "p" or one is code or any(has(one, name) for name in SHOWS):
            yield one
        elif one.tag in ("div", "figure"):
            yield from stream(one, code)
        elif one.tag == "table" and len(one.findall(".//tr")) in TABLE_ROWS:
            yield from [one] if len(one.text_content()) < TABLE_TEXT else []


def shown(node: Node, link: str, title: str) -> list[Slide]:
    """The slides of one thing: two for a prediction, one for all else, none for a small formula."""
    if has(node, "attn-predict"):
        rows = [
            f"<li{' class=right' * (one.get('data-correct') == 'true')}>"
            f"{inner(one.find('.//label/span[last()]'))}</li>"
            for one in all_of(node, "attn-option")
        ]
        question = inner(asked(node)) + (f"<ol>{''.join(rows)}</ol>" if rows else "")
        number = "" if rows else f"<p class=answer>{float(node.get('data-answer')):g}</p>"
        answer = f"{question}{number}<div class=why>{inner(explained(node))}</div>"
        link = f"{link.partition('#')[0]}#{node.get('id')}"
        return [
            Slide("Predict, then look", question.replace(" class=right", ""), link, "predict"),
            Slide("The answer", answer, link, "predict solved"),
        ]
    if has(node, "math"):
        if not node.get("id"):
            return []
        number = "".join(one.text or "" for one in all_of(node, "eqno"))
        return [
            Slide(
                title,
                f"<div class=formula>{inner(node)}<span>{number}</span></div>",
                link,
                "formula",
            )
        ]
    if has(node, "attn-captioned"):
        link = f"{link.partition('#')[0]}#{node.get('id')}"
        width, height = map(float, node.find(".//svg").get("viewbox").split()[2:])
        kind = "figure tall" if height > TALL * width else "figure"
        return [Slide(title, f"<figure>{inner(node)}</figure>", link, kind)]
    if has(node, "attn-explorer"):
        link = f"{link.partition('#')[0]}#{node.get('id')}"
        caption = f"<p>{inner(node.find('figcaption'))}</p>"
        caption += f'<p><a class="open" href="{link}">Open the explorer</a></p>'
        asks, *still = all_of(node, "attn-x")[0]
        if [one.tag for one in still] != ["svg"]:
            return [Slide(inner(asks), caption, link, "text explore")]
        drawn = lxml.html.tostring(still[0], encoding="unicode", with_tail=False)
        figure = f'<figure class="attn-x">{drawn}<figcaption>{caption}</figcaption></figure>'
        return [Slide(inner(asks), figure, link, "figure tall explore")]
    if has(node, "attn-misconception"):
        _, *rest = node
        title = inner(all_of(node, "attn-title")[0].find("strong"))
        body = "".join(f"<{one.tag}>{inner(one)}</{one.tag}>" for one in rest)
        return [Slide(f"Misconception: {title}", body, link, "misconception")]
    if node.tag == "table":
        return [Slide(title, f"<table>{inner(node)}</table>", link, "table")]
    (code,) = node.iter("pre")
    lines = inner(code).strip().split("\n")
    kept = definitions(code.text_content().strip().split("\n")) or range(len(lines))
    source = "\n".join(lines[kept.start : kept.stop])
    source = re.sub(r"\s*(<span[^>]*>)?# fmt: \w+", r"\1", source)
    return [Slide(title, f'<div class="highlight"><pre>{source}</pre></div>', link, "code")]


def section_slides(section: Node, page: str, code: Node | None) -> Iterator[Slide]:
    """What a section shows, and its first sentences where that is nothing; then its subsections."""
    title, link = heading(section), f"../{page}.html#{section.get('id')}"
    if SKIPPED.match(" ".join(lxml.html.fromstring(f"<p>{title}</p>").text_content().split())):
        return
    made: list[Slide] = []
    before: list[str] = []
    own: list[str] = []
    for node in stream(section, code):
        if node.tag in ("ul", "ol"):
            own.append(f"<{node.tag}>{inner(node)}</{node.tag}>")
        elif node.tag == "p":
            lines = [text(one) for one in sentences(node)]
            for one in sentences(node):
                if own and re.fullmatch(r"<strong>[^<]*</strong>", own[-1]):  # a label
                    own[-1] += f" {one}"
                elif not AWAY.search(text(one)):
                    own.append(one)
            if made and len(made[-1].notes) < 2 * NOTES and not made[-1].kind.startswith("predict"):
                made[-1].notes += lines[:NOTES]
            before += lines
        elif new := shown(node, link, title):
            new[0].notes = before[:NOTES]
            if new[0].kind in LEAD_IN and own and leads(own[-1]):
                new[0].body = f"<p>{own[-1]}</p>{new[0].body}"
            before, own = [], []
            made += new
    own = [
        one for one, after in zip(own, [*own[1:], ""], strict=False)
        if not one.endswith(":") or listed(after)  # else what it announces is not here
    ]  # fmt: skip
    if not made and own:
        body = "".join(one if listed(one) else f"<p>{one}</p>" for one in own[: 2 * NOTES])
        made = [Slide(title, body, link, "text", [text(one) for one in own[2 * NOTES : 4 * NOTES]])]
    yield from made
    for inside in section.iterchildren("section"):
        if not has(inside, "attn-goals"):
            yield from section_slides(inside, page, code)


def page_slides(page: str, book: Book) -> list[Slide]:
    """The deck of one page."""
    body = article(book.html / f"{page}.html")
    top = body.find(".//section")
    goals = next(iter(all_of(top, "attn-goals")), None)
    intro = [one for one in top if one.tag in ("p", "blockquote")]
    intro = [one for one in intro if not one.get("class")]
    first = [s for one in intro if one.tag == "p" for s in sentences(one)]
    asks = next((s for s in first if text(s).endswith("?")), first[0])
    if alone := re.search(r"<strong>(\w)(.*\?)</strong>", asks):  # without "This page asks:"
        asks = f"<strong>{alone[1].upper()}{alone[2]}</strong>"
    quote = "".join(f"<blockquote>{inner(one)}</blockquote>" for one in intro if one.tag != "p")
    link = f"../{page}.html"
    opening = Slide("", f"<h1>{heading(top)}</h1>{quote}<p>{asks}</p>", link, "title")
    opening.notes = [text(one) for one in first if one != asks][: 2 * NOTES]
    rest = list(section_slides(top, page, code_cell(top)))
    if rest and rest[0].kind == "text":
        rest = rest[1:]  # the opening has these sentences
    deck = [opening, *rest]
    if goals is not None:
        body = "".join(f"<ul>{inner(one)}</ul>" for one in goals.findall("ul"))
        deck.append(Slide("What you can do now", body, link, "goals"))
    return deck


def write_slides(book: Book) -> dict[str, int]:
    """Write ``slides/07.html`` and the like into the site.

    Returns:
        How many slides each deck has, by the number of the chapter.
    """
    folder = book.html / "slides"
    folder.mkdir(exist_ok=True)
    for name in ("slides.css", "slides.js"):
        shutil.copyfile(ROOT / "book" / "_ext" / name, folder / name)
    styles = "\n".join(f'<link rel="stylesheet" href="../{name}">' for name in STYLES)
    counts = {}
    for page in book.pages:
        if main_page(page) != page or not re.match(r"chapters/\d\d_", page):
            continue
        main, *further = [page_slides(name, book) for name in book.chapter(page)]
        slides = [one.html() for one in main]
        slides += [
            f"<section>{''.join(slide.html() for slide in deck)}</section>" for deck in further
        ]
        title = article(book.html / f"{page}.html").findtext(".//h1").strip()
        number = slug(page)[:2]
        html = PAGE.format(title=title, styles=styles, slides="\n".join(slides))
        (folder / f"{number}.html").write_text(html, encoding="utf-8")
        counts[number] = len(main) + sum(map(len, further))
    return counts
