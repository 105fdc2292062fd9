r"""Quizzes and predictions of the built pages as a question bank in Moodle's XML format.

One category for each chapter. A quiz has feedback for every option; a prediction has its
explanation as general feedback, and one without options is a numerical question. Formulas stand as
``\( \)``, which Moodle's MathJax filter draws. Source: https://docs.moodle.org/en/Moodle_XML_format
"""

import re
from collections.abc import Iterator
from typing import Any

import lxml.etree as xml

from .built import Node, article, asked, explained, has, portable, questions, words
from .common import Book, main_page, slug

Element = Any  # of lxml, which has no types
NAME = 70  # characters of a question's name in Moodle's list


def field(
    parent: Element, tag: str, text: str, *, html: bool = False, **attributes: str
) -> Element:
    """``<tag><text>…</text></tag>``, as Moodle has it for everything that a person reads."""
    if html:
        attributes["format"] = "html"
    node = xml.SubElement(parent, tag, attributes)
    inside = xml.SubElement(node, "text")
    inside.text = xml.CDATA(text) if html else text
    return node


def flag(parent: Element, tag: str, value: str) -> None:
    xml.SubElement(parent, tag).text = value


def question(block: Node, options: list[tuple[Node, bool, Node]], place: str, page: str) -> Element:
    """One question; ``place`` is its address in the book, ``page`` the title of its page."""
    name, text = block.get("data-id"), asked(block)
    node = xml.Element("question", type="multichoice" if options else "numerical")
    short = re.sub(r"\\[()]", "", words(text))  # TeX, cut anywhere
    if len(short) > NAME:
        short = short[:NAME].rsplit(" ", 1)[0] + " …"
    field(node, "name", f"{name}: {short}")
    prediction = has(block, "attn-predict")
    source = f'<p>From <a href="{place}">{page}</a></p>'  # a prediction is about what it describes
    field(node, "questiontext", portable(text) + source * prediction, html=True)
    general = portable(explained(block)) if prediction else source
    field(node, "generalfeedback", general, html=True)
    flag(node, "defaultgrade", "1")
    flag(node, "penalty", "0.3333333")
    flag(node, "idnumber", name)
    if options:
        flag(node, "single", "true")
        # predictions list a scale, from little to much
        flag(node, "shuffleanswers", "false" if prediction else "true")
        flag(node, "answernumbering", "abc")
    for option, right, reason in options:
        fraction = "100" if right else "0"
        answer = field(node, "answer", portable(option), html=True, fraction=fraction)
        field(answer, "feedback", portable(reason) if reason is not None else "", html=True)
    if not options:
        answer = field(node, "answer", f"{float(block.get('data-answer')):g}", fraction="100")
        answer.set("format", "plain_text")
        flag(answer, "tolerance", f"{float(block.get('data-tolerance')):g}")
        field(answer, "feedback", "", html=True)
    tags = xml.SubElement(node, "tags")
    field(tags, "tag", "prediction" if prediction else "quiz")
    return node


def bank(book: Book, chapter: str) -> Iterator[Element]:
    """The category of a chapter, then the questions of its pages."""
    title = words(article(book.html / f"{chapter}.html").find(".//h1"))
    number, _, rest = title.partition(" ")
    category = xml.Element("question", type="category")
    name = f"{int(number):02d} {rest}".replace("/", "//")
    field(category, "category", f"$course$/top/{book.config['title']}/{name}")
    yield category
    for page in book.chapter(chapter):
        body = article(book.html / f"{page}.html")
        heading = words(body.find(".//h1"))
        for kind in ("attn-predict", "attn-quiz"):
            for _, block, options in questions(body, kind):
                place = f"{book.site}{page}.html#{block.get('id')}"
                yield question(block, options, place, heading)


def write_questions(book: Book) -> int:
    """Write ``questions/07.xml`` and the like, and ``questions/all.xml``, into the site.

    Returns:
        The number of questions.
    """
    folder = book.html / "questions"
    folder.mkdir(exist_ok=True)
    everything: list[Element] = []
    for page in book.pages:
        if main_page(page) == page and re.match(r"chapters/\d\d_", page):
            made = list(bank(book, page))
            _write(folder / f"{slug(page)[:2]}.xml", made)
            everything += made
    _write(folder / "all.xml", everything)
    return sum(one.get("type") != "category" for one in everything)


def _write(path: Any, made: list[Element]) -> None:
    quiz = xml.Element("quiz")
    quiz.extend(made)
    path.write_bytes(xml.tostring(quiz, xml_declaration=True, encoding="UTF-8", pretty_print=True))
