"""What follows a prediction is closed until the reader has guessed; no answer stands in the search.

Everything from a predict box to the next heading goes into one container, which the script of the
page closes. Without JavaScript, and in print, it is open.
"""

import re
from functools import wraps
from typing import Any

from attn_interactive import AFTER_PREDICT, element, tag
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search import IndexBuilder
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


def has_class(node: nodes.Node, name: str) -> bool:
    """True for an element of a block, or any other node, of this class."""
    if isinstance(node, tag):
        return name in str(node["html"].get("class", "")).split()
    return isinstance(node, nodes.Element) and name in node.get("classes", [])


def has_own_cell(inside: list[nodes.Node]) -> bool:
    """True when the cell that answers a box stands before the next box."""
    for node in inside:
        for one in node.findall():
            if has_class(one, "attn-predict"):
                return False
            if has_class(one, AFTER_PREDICT):
                return True
    return False


def seal(app: Sphinx, doctree: nodes.document) -> None:
    """Put what follows each box, up to the next heading, into a container of its own."""
    boxes = [node for node in doctree.findall(tag) if has_class(node, "attn-predict")]
    for box in reversed(boxes):  # the last first: a second box of a section nests in the first
        parent = box.parent
        start = parent.index(box) + 1
        end = start
        while end < len(parent) and not isinstance(parent[end], nodes.section):
            end += 1
        inside = parent.children[start:end]
        identifier = box["html"]["data-id"]
        if not app.env.temp_data.get("attn_broken") and not has_own_cell(inside):
            LOGGER.error(
                "predict '%s': no cell with the tag after-predict follows before the next heading "
                "or box: what is guessed must be in the part that is closed",
                identifier,
                location=(app.env.docname, box.line),
                type="attn",
            )
        for node in inside:
            parent.remove(node)
        parent.insert(
            start,
            element(
                "div",
                element("div", *inside, class_="attn-sealed-body"),
                class_="attn-sealed",
                data_for=identifier,
            ),
        )


#: What can be searched of a formula: ``sqrt``, ``softmax``, ``d_k``, and a letter under a root.
SPOKEN = re.compile(r"sqrt|softmax|(?<=sqrt\{)[A-Za-z](?=\})|\b[A-Za-z]_\{?[A-Za-z]\b")


def searchable(doctree: nodes.document) -> nodes.document:
    """The page without what gives answers away; of formulas, roots and letters with an index."""
    copy = doctree.deepcopy()
    for node in list(copy.findall(lambda n: has_class(n, "attn-why"))):
        node.parent.remove(node)
    for node in list(copy.findall(lambda n: isinstance(n, nodes.math | nodes.math_block))):
        words = SPOKEN.findall(node.astext())
        node.parent.replace(node, nodes.Text(" ".join(["", *words, ""]).replace("{", "")))
    return copy


def keep_answers_out(feed: Any) -> Any:
    """``IndexBuilder.feed`` for :func:`searchable` pages."""

    @wraps(feed)
    def wrapped(
        self: IndexBuilder, docname: str, filename: str, title: str, doctree: nodes.document
    ) -> None:
        feed(self, docname, filename, title, searchable(doctree))

    wrapped.keeps_answers_out = True  # type: ignore[attr-defined]
    return wrapped


def setup(app: Sphinx) -> dict[str, bool]:
    """Seal as soon as a page is read."""
    if not hasattr(IndexBuilder.feed, "keeps_answers_out"):
        IndexBuilder.feed = keep_answers_out(IndexBuilder.feed)  # type: ignore[method-assign]
    app.connect("doctree-read", seal, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
