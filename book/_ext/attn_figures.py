"""SVG figures as part of the page, so that ``currentColor`` follows light and dark mode.

An ``<img src="figure.svg">`` is a document of its own and keeps its colours. This puts the drawing
itself into the page, whether it came from a code cell (``image/svg+xml``) or from a file. A drawing
that carries ``data-caption`` becomes a figure: numbered within its chapter, its caption below.
"""

import hashlib
import html
import re
from pathlib import Path

from attn_numbers import before, chapter_number
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
PROLOGUE = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)
METADATA = re.compile(r"<metadata\b.*?</metadata>\s*", re.DOTALL)
OPENING = re.compile(r"<svg\b([^>]*)>", re.DOTALL)
IDENTIFIER = re.compile(r'\bid="([^"]+)"')
CAPTION = re.compile(r'(<svg\b[^>]*?)\sdata-caption="([^"]*)"', re.DOTALL)
LABEL = re.compile(r'<svg\b[^>]*\saria-label="([^"]+)"|<title\b[^>]*>([^<]+)</title>', re.DOTALL)


def inline_svg(text: str, *, alt: str) -> str:
    """The SVG as an element of an HTML page: named for screen readers, its ids made unique.

    Args:
        text: a complete SVG file.
        alt: what the figure shows.

    Returns:
        The ``<svg>`` element; the file's prologue and metadata are dropped.
    """
    svg = METADATA.sub("", PROLOGUE.sub("", text, count=1)).strip()
    prefix = "s" + hashlib.sha256(svg.encode()).hexdigest()[:8] + "-"
    for name in set(IDENTIFIER.findall(svg)):
        escaped = re.escape(name)
        svg = re.sub(rf'\bid="{escaped}"', f'id="{prefix}{name}"', svg)
        svg = re.sub(rf'(href=")#{escaped}"', rf'\1#{prefix}{name}"', svg)
        svg = re.sub(rf"url\(#{escaped}\)", f"url(#{prefix}{name})", svg)
    opening = OPENING.match(svg)
    if opening is None:
        raise ValueError("inline_svg: expected an <svg> element, got none")
    attributes = re.sub(r'\s(role|aria-label|class)="[^"]*"', "", opening.group(1))
    label = html.escape(alt, quote=True)
    head = f'<svg{attributes} class="attn-figure" role="img" aria-label="{label}">'
    return head + svg[opening.end() :]


def own_label(text: str) -> str:
    """The description that the file itself carries: ``aria-label``, else its title."""
    found = LABEL.search(text)
    return html.unescape(found.group(1) or found.group(2)).strip() if found else ""


def captioned(svg: str, number: str) -> str:
    """The drawing as a figure, its ``data-caption`` below it; other text is left alone."""
    found = CAPTION.search(svg)
    if found is None:
        return svg
    drawing = CAPTION.sub(r"\1", svg, count=1)
    return (
        f'<figure class="attn-captioned" id="figure-{number.replace(".", "-")}">{drawing}'
        f'<figcaption><span class="attn-figure-number">Figure {number}.</span> {found[2]}'
        "</figcaption></figure>"
    )


def count_figures(app: Sphinx, doctree: nodes.document) -> None:
    """Note how many captioned drawings a page has: those of the next page count on from there."""
    texts = [node.astext() for node in doctree.findall(nodes.raw)]
    for node in doctree.findall(nodes.image):
        if node["uri"].endswith(".svg") and "://" not in node["uri"]:
            texts.append((Path(app.srcdir) / node["uri"]).read_text(encoding="utf-8"))
    count = sum(CAPTION.search(text) is not None for text in texts)
    app.env.metadata[app.env.docname]["attn_figures"] = count


class NumberFigures(SphinxPostTransform):
    """Number the captioned drawings of a page, in the order in which they stand."""

    default_priority = 8
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        chapter = chapter_number(self.env.docname)
        count = before(self.env, self.env.docname, "attn_figures") if chapter else 0
        for node in list(self.document.findall(nodes.raw)):
            if "html" in node.get("format", "").split() and CAPTION.search(node.astext()):
                count += 1
                text = captioned(node.astext(), f"{chapter}.{count}" if chapter else str(count))
                node.replace_self(nodes.raw("", text, format="html"))


class InlineSvg(SphinxPostTransform):
    """Replace images that are SVG files by the drawings themselves."""

    # After myst-nb has chosen the output of a cell, before Sphinx collects the images.
    default_priority = 7
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        for node in list(self.document.findall(nodes.image)):
            uri = node["uri"]
            if not uri.endswith(".svg") or "://" in uri:
                continue
            path = Path(uri)
            if not path.is_absolute():
                path = Path(self.app.srcdir) / uri
            text = path.read_text(encoding="utf-8")
            alt = node.get("alt") or own_label(text)
            if not alt:
                LOGGER.warning("figure without alternative text: %s", uri, location=node)
            node.replace_self(nodes.raw("", inline_svg(text, alt=alt), format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transforms."""
    app.connect("doctree-read", count_figures, priority=100)
    app.add_post_transform(InlineSvg)
    app.add_post_transform(NumberFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
