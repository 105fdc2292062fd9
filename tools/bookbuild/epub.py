"""The book as EPUB 3: the pages of the site as XHTML, formulas as MathML, drawings as SVG."""

import datetime
import os
import re
import time
import uuid
import zipfile
from html import escape
from posixpath import dirname, relpath
from typing import Any

from lxml import etree

from .common import ROOT, Book, say
from .paper import article, depth, having, heading, pages, parts

SPACES = {"svg": "http://www.w3.org/2000/svg", "math": "http://www.w3.org/1998/Math/MathML"}
#: What the HTML parser has written in small letters, and XML distinguishes.
CASES = {
    one.lower(): one
    for one in [
        "viewBox",
        "preserveAspectRatio",
        "clipPath",
        "clipPathUnits",
        "linearGradient",
        "radialGradient",
        "gradientUnits",
        "gradientTransform",
        "markerWidth",
        "markerHeight",
        "markerUnits",
        "refX",
        "refY",
        "textPath",
        "textLength",
        "lengthAdjust",
        "pathLength",
        "patternUnits",
        "patternTransform",
        "foreignObject",
    ]
}
VARIABLE = re.compile(r"var\((--[\w-]+)(?:,\s*((?:[^()]|\([^()]*\))*))?\)")
STYLES = (
    "attn_course/explorers/explorers.css",
    "book/_static/diagrams.css",
    "tools/bookbuild/epub.css",
)
CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" '
    'xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="book/content.opf" media-type="application/oebps-package+xml"/>'
    "</rootfiles></container>"
)


def colours() -> dict[str, str]:
    """Values of the variables on a light page: few e-book readers know variables."""
    css = "".join((ROOT / one).read_text() for one in ("book/_static/interactive.css", STYLES[0]))
    found = dict[str, str]()
    for name, value in re.findall(r"(--[\w-]+):\s*([^;]+);", css):
        found.setdefault(name, value)
    return found


def plain(text: str, values: dict[str, str]) -> str:
    """Style without variables."""
    while VARIABLE.search(text):
        text = VARIABLE.sub(lambda one: values.get(one[1], one[2] or "inherit"), text)
    return text


def xhtml(name: str, body: Any, values: dict[str, str]) -> tuple[bytes, str]:
    """One page, well formed, and the properties that the manifest declares for it."""
    for formula in having(body, "katex"):
        math = formula.find(".//math")
        math.set("alttext", " ".join(math.xpath("string(.//annotation)").split()))
        math.tail = formula.tail
        for node in [*math.iter("mi", "mo", "mtext")]:
            if node.text == "\u2061" and node.getparent().tag.startswith("msu"):
                node.drop_tree()  # KaTeX applies a function inside of its index
            elif len(node):  # and writes the letters of an operator as names
                node.text, node[:] = node.text_content(), []
        formula.getparent().replace(formula, math)
    for node in body.iter(etree.Element):
        node.tag = CASES.get(node.tag, node.tag)
        for key, value in list(node.attrib.items()):
            del node.attrib[key]
            if not key.startswith(("xmlns", "role")) or value == "img":
                node.set(CASES.get(key, key), plain(value, values))
        if node.tag in SPACES:
            node.set("xmlns", SPACES[node.tag])
    properties = " ".join(
        tag for tag in ("mathml", "svg") if body.find(f".//{tag.removesuffix('ml')}") is not None
    )
    style = relpath("style.css", dirname(f"{name}.xhtml") or ".")
    page = (
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'xml:lang="en" lang="en">'
        f"<head><title>{escape(heading(body))}</title>"
        f'<link rel="stylesheet" href="{style}"/></head>'
        f"<body>{etree.tostring(body, encoding='unicode', with_tail=False)}</body></html>"
    )
    etree.fromstring(page)  # well formed, or it ends here
    return page.encode(), properties


def make_epub(book: Book) -> None:
    """Write ``_build/downloads/attention.epub``."""
    start, names = time.monotonic(), pages(book)
    bodies, values = {name: article(book, name, str) for name in names}, colours()
    there = {f"{name}.html": {*body.xpath(".//@id")} for name, body in bodies.items()}
    for name, body in bodies.items():
        for node in body.iter("a"):
            page, _, place = node.get("href", "").partition("#")
            if not page or page.startswith(("http", "mailto:")):
                continue
            if page not in there:
                node.set("href", book.site + node.get("href"))
                continue
            link = relpath(page, dirname(name) or ".").removesuffix(".html") + ".xhtml"
            node.set("href", f"{link}#{place}" if place in there[page] else link)
    titles = {name: heading(body) for name, body in bodies.items()}
    style = "\n".join(plain((ROOT / one).read_text(), values) for one in STYLES)
    files: dict[str, bytes] = {"style.css": style.encode()}
    items = [
        '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>',
        '<item id="style" href="style.css" media-type="text/css"/>',
    ]
    for at, name in enumerate(names):
        files[f"{name}.xhtml"], properties = xhtml(name, bodies[name], values)
        needs = f' properties="{properties}"' if properties else ""
        items.append(
            f'<item id="p{at}" href="{name}.xhtml" media-type="application/xhtml+xml"{needs}/>'
        )
    files["nav.xhtml"] = navigation(book, titles).encode()
    files["content.opf"] = package(book, items, len(names)).encode()
    file = book.downloads / "attention.epub"
    file.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        made.writestr("META-INF/container.xml", CONTAINER)
        for path, content in files.items():
            made.writestr(f"book/{path}", content)
    say(
        f"{os.path.relpath(file)}: {len(names)} pages, "
        f"{file.stat().st_size / 1e6:.1f} MB, {time.monotonic() - start:.0f} s"
    )


def navigation(book: Book, titles: dict[str, str]) -> str:
    """The contents: parts, chapters, further pages."""
    captions, lines, open_part = parts(book), list[str](), False
    for name, text in titles.items():
        if name in captions or (open_part and not name.startswith("chapters/")):
            lines += ["</ol></li>"] if open_part else []
            open_part = name in captions
            lines += [f"<li><span>{escape(captions[name])}</span><ol>"] if open_part else []
        indent = "– " if depth(name) else ""
        lines.append(f'<li><a href="{name}.xhtml">{indent}{escape(text)}</a></li>')
    lines += ["</ol></li>"] if open_part else []
    return (
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" '
        'xml:lang="en" lang="en"><head><title>Contents</title></head><body>'
        f'<nav epub:type="toc"><h1>Contents</h1><ol>{"".join(lines)}</ol></nav></body></html>'
    )


def package(book: Book, items: list[str], count: int) -> str:
    """What the book is, which files it has, and their order."""
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
    return (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id" '
        'xml:lang="en"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f'<dc:identifier id="id">urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, book.site)}'
        "</dc:identifier>"
        f"<dc:title>{escape(book.config['title'])}</dc:title>"
        f"<dc:creator>{escape(book.config['author'])}</dc:creator><dc:language>en</dc:language>"
        f'<meta property="dcterms:modified">{now}</meta></metadata>'
        f'<manifest>{"".join(items)}</manifest><spine><itemref idref="nav"/>'
        + "".join(f'<itemref idref="p{at}"/>' for at in range(count))
        + "</spine></package>"
    )
