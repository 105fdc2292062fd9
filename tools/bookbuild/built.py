"""Pages as the site shows them, for what is made from them: slides and question banks."""

import copy
import html
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import lxml.html

Node = Any  # an element of lxml, which has no types
HIDDEN = ("headerlink", "attn-letter", "attn-verdict", "attn-controls", "eqno", "copybtn")
KEPT = {"p", "ul", "ol", "li", "pre", "code", "em", "strong", "sub", "sup", "br", "blockquote"}
KEPT |= {"table", "thead", "tbody", "tr", "th", "td"}


@cache
def article(path: Path) -> Node:
    """The text of a built page, without the theme around it."""
    return (
        lxml.html.parse(path, lxml.html.HTMLParser(encoding="utf-8")).getroot().find(".//article")
    )


def has(node: Node, name: str) -> bool:
    return isinstance(node.tag, str) and name in (node.get("class") or "").split()


def all_of(node: Node, name: str) -> list[Node]:
    """The elements of a class, in the order of the page."""
    return [one for one in node.iter() if has(one, name)]


def words(node: Node) -> str:
    """Its text alone; a formula is its TeX."""
    made = lxml.html.fromstring(f"<div>{portable(node)}</div>")
    return " ".join(made.text_content().split())


def inner(node: Node) -> str:
    """The HTML of what an element contains, without links and ids: it leaves its page."""
    node = copy.deepcopy(node)
    for one in list(node.iter()):
        if one is node or not isinstance(one.tag, str):
            continue
        if one.tag in ("summary", "input", "button") or any(has(one, name) for name in HIDDEN):
            one.drop_tree()
        elif one.tag == "a":
            one.drop_tag()
        elif one.get("id") and not any(up.tag == "svg" for up in one.iterancestors()):
            del one.attrib["id"]
    return html.escape(node.text or "", quote=False) + "".join(
        lxml.html.tostring(child, encoding="unicode") for child in node
    )


def portable(node: Node) -> str:
    r"""The same in HTML for any place: formulas as ``\( \)``, no classes, no styles."""
    made = lxml.html.fromstring(f"<div>{inner(node)}</div>")
    for formula in all_of(made, "katex"):
        tex = " ".join(formula.findtext(".//annotation").split())
        shown = has(formula.getparent(), "katex-display")
        text = rf"\[{tex}\]" if shown else rf"\({tex}\)"
        formula.addnext(plain := lxml.html.Element("span"))
        plain.text, plain.tail, formula.tail = text, formula.tail, None
        formula.getparent().remove(formula)
    for one in list(made.iter()):
        if one is not made and one.tag not in KEPT:
            one.drop_tag()
        one.attrib.clear()
    return re.sub(r"^<div>|</div>$", "", lxml.html.tostring(made, encoding="unicode")).strip()


def sentences(paragraph: Node) -> list[str]:
    """Its sentences, each as the HTML of a line: sources have one sentence on a line."""
    parts = html.escape(paragraph.text or "", quote=False).split("\n")
    for child in paragraph:
        one = copy.copy(child)
        one.tail = None
        holder = lxml.html.Element("div")
        holder.append(one)
        parts[-1] += inner(holder)
        head, *rest = html.escape(child.tail or "", quote=False).split("\n")
        parts[-1] += head
        parts += rest
    return [part.strip() for part in parts if part.strip()]


def questions(page: Node, kind: str) -> Iterator[tuple[str, Node, list[tuple[Node, bool, Node]]]]:
    """Quizzes (``attn-quiz``) or predictions (``attn-predict``) of a page.

    Yields:
        The id; the block; for each option its text, whether it is right, and why (or None).
    """
    for block in all_of(page, kind):
        options = [
            (
                one.find(".//label/span[last()]"),
                one.get("data-correct") == "true",
                next(iter(all_of(one, "attn-why")), None),
            )
            for one in all_of(block, "attn-option")
        ]
        yield block.get("data-id"), block, options


def asked(block: Node) -> Node:
    """The whole question: its legend, and what follows it before the options."""
    fieldset = block.find(".//fieldset")
    legend, *rest = fieldset
    holder = lxml.html.Element("div")
    first = copy.deepcopy(legend)
    first.tag, first.tail = "p", None
    holder.append(first)
    for one in rest:
        if has(one, "attn-option") or has(one, "attn-number"):
            break
        holder.append(copy.deepcopy(one))
    return holder


def explained(block: Node) -> Node:
    """The explanation of a prediction: the one that belongs to no option."""
    return next(one for one in all_of(block, "attn-why") if not has(one.getparent(), "attn-option"))
