"""The pages of the built site as a book: what paper and e-book readers share.

No controls and no scripts; code that is folded on screen is left out; explorers are their stills;
questions stay where they are, and what the site hides until a guess stands behind the page.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from posixpath import dirname, join, normpath
from typing import Any

from lxml import html
from lxml.etree import strip_elements

from .common import Book, fail, main_page

FRONT, BACK = ["intro"], ["notation", "claims", "bibliography"]
DROPPED = [
    "headerlink",
    "attn-controls",
    "attn-progress",
    "attn-count",
    "attn-explorer-wait",
    "attn-links",
    "above-input",
    "toctree-wrapper",
    "attn-filter",
    "attn-found",
    "copybtn",
    "attn-said",
    "sd-summary-state-marker",
]
DRAWS = re.compile(r"figures\.[^\n]*(\n[ )][^\n]*)*")  # a cell that only draws
TO_DIV = {"form": "div", "fieldset": "div", "legend": "div", "label": "span", "details": "div"}


def pages(book: Book) -> list[str]:
    """The pages of the printed book in reading order: front page, chapters, reference."""
    back = [name for name in BACK if name in book.pages or (book.html / f"{name}.html").is_file()]
    front = [name for name in FRONT if (book.html / f"{name}.html").is_file()]
    return [*front, *(name for name in book.pages if name.startswith("chapters/")), *back]


def parts(book: Book) -> dict[str, str]:
    """Caption of the part that begins with a page."""
    found = {}
    for part in book.toc.get("parts", []):
        found[part["chapters"][0]["file"]] = part.get("caption", "")
    return found


def depth(name: str) -> int:
    """0 for a main page, 1 for a further page of its chapter."""
    return int(name.startswith("chapters/") and main_page(name) != name)


def having(node: Any, name: str) -> list[Any]:
    """Descendants of a class, in document order."""
    found: list[Any] = node.xpath(f".//*[contains(concat(' ', @class, ' '), ' {name} ')]")
    return found


def element(tag: str, text: str = "", **attributes: str) -> Any:
    made = html.Element(tag, {name.rstrip("_"): value for name, value in attributes.items()})
    made.text = text
    return made


def heading(section: Any) -> str:
    """The words of a section's first heading, formulas as their source."""
    title = deepcopy(next(section.iter("h1", "h2", "h3")))
    for formula in having(title, "katex"):
        formula.text = formula.xpath("string(.//annotation)")
        formula[:] = []
    return " ".join(title.text_content().split())


def article(book: Book, name: str, link: Callable[[str], str]) -> Any:
    """The text of one page.

    Args:
        book: the built book.
        name: such as ``chapters/07_scaled_dot_product``.
        link: what becomes of an address of the site, such as ``chapters/08_multi_head.html#heads``.
    """
    path = book.html / f"{name}.html"
    if not path.is_file():
        fail(f"there is no {path}: run 'make html' first")
    page = html.parse(str(path), html.HTMLParser(encoding="utf-8")).getroot()
    body = page.xpath("//article[contains(@class, 'bd-article')]")[0]
    strip_elements(body, "script", "link", "input", "button", with_tail=False)
    for unwanted in DROPPED:
        for node in having(body, unwanted):
            node.drop_tree()
    for sweep in body.xpath(".//section[@id='the-sweep']"):  # tables of the build: on the site
        sweep.drop_tree()
    move_answers(body)
    for cell in having(body, "cell_input"):
        if DRAWS.fullmatch(cell.text_content().strip()):
            cell.drop_tree()
    for explorer in having(body, "attn-explorer"):
        caption = explorer.find("figcaption")
        if caption is not None:
            live = f"{book.site}{name}.html#{explorer.get('id')}"
            online = element("a", "Open it in the book online.", href=live)
            caption.extend([element("span", " "), online])
    if name in BACK:
        body.set("class", f"{body.get('class')} attn-small")
    for node in list(body.iter(*TO_DIV, "summary")):
        if node.tag == "summary":
            if node.text_content().strip().startswith("Open this after"):  # on paper it is open
                node[:] = []
                node.text = "Verdicts"
            node.tag = "div"
            node.set("class", "attn-summary")
            continue
        if node.tag == "legend":
            node.set("class", "attn-legend")
        for gone in ("for", "open"):
            node.attrib.pop(gone, None)
        node.tag = TO_DIV[node.tag]
    here, places = dirname(f"{name}.html"), {*body.xpath(".//@id")}
    for node in body.iter("a"):
        address = node.get("href", "")
        if address.startswith("#") and address[1:] not in places:
            node.set("href", f"{book.site}{name}.html{address}")
        elif address and not address.startswith(("http", "mailto:", "#")):
            node.set("href", link(normpath(join(here, address))))
    return body


def move_answers(body: Any) -> None:
    """Put what a guess opens, and the reasons of quizzes, behind the text, one number each."""
    behind = element("section", id="answers", class_="attn-answers")
    behind.append(element("h2", "Answers"))
    blocks = [node for node in body.iter("div") if node.get("data-id")]
    hidden = {node.get("data-for"): node for node in having(body, "attn-sealed")}
    for number, block in enumerate(blocks, 1):
        name = block.get("data-id")
        entry = element("section", id=f"answer-{name}", class_="attn-answer")
        title = element("h3")
        words, place = f"Answer to question {number}", f"#{block.get('id')}"
        title.append(element("a", words, href=place, class_="attn-paged"))
        entry.append(title)
        for reason in having(block, "attn-why"):
            option = reason.getparent()
            is_option = "attn-option" in option.get("class", "").split()
            letter = option.xpath("string(.//*[@class='attn-letter'])") if is_option else ""
            reason.find("summary").drop_tree()
            reason.tag = "div"
            if letter and having(reason, "attn-verdict"):
                having(reason, "attn-verdict")[0].insert(0, element("b", f"{letter}. "))
            entry.append(reason)
        sealed = hidden.get(name)
        words = f"Answer {number}"
        if sealed is not None:
            numbers = having(sealed, "attn-figure-number")
            words += "".join(f", {one.text_content().strip('. ')}" for one in numbers)
            words += " and the rest of this section"
            entry.append(having(sealed, "attn-sealed-body")[0])
            sealed.drop_tree()
        for kicker in having(block, "attn-kicker")[:1]:
            kicker.text = f"{number}. {kicker.text}"
        see = element("p", class_="attn-see")
        see.append(element("a", words, href=f"#{entry.get('id')}", class_="attn-paged"))
        block.append(see)
        behind.append(entry)
    if blocks:
        body.append(behind)
