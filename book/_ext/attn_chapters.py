"""The pages of a chapter: each further page names its chapter, the one before it leads there.

``{continued}`` stands where the text of a page ends that goes on elsewhere::

    ```{continued} 10_encoder_decoder/training.md
    ```

It lists the sections of that page. Each link has the id of its section, so that an address from
the time when the section was on this page still leads to it; the page itself counts as one.
"""

import posixpath
from pathlib import Path

from attn_interactive import element
from attn_numbers import chapter_number, main_page
from bookbuild.reading import count
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOGGER = logging.getLogger(__name__)


class continued(nodes.General, nodes.Element):
    """The place of the links to the next page."""


def link_to(docname: str, here: str) -> addnodes.pending_xref:
    """A page by its title."""
    return addnodes.pending_xref(
        "",
        nodes.inline("", ""),
        refdomain="std",
        reftype="doc",
        reftarget=f"/{docname}",
        refdoc=here,
        refexplicit=False,
        refwarn=True,
    )


class ContinuedDirective(SphinxDirective):
    """Where the chapter goes on."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """A place that is filled when the sections of all pages are known."""
        folder = posixpath.dirname(self.env.docname)
        page = posixpath.normpath(posixpath.join(folder, self.arguments[0].removesuffix(".md")))
        node = continued(page=page)
        self.set_source_info(node)
        return [node]


def name_chapter(app: Sphinx, doctree: nodes.document) -> None:
    """Below the title of a further page: its chapter, and how long the page takes."""
    docname = app.env.docname
    title = doctree.next_node(nodes.title)
    if title is None or main_page(docname) == docname or not chapter_number(docname):
        return
    text = Path(app.env.doc2path(docname)).read_text(encoding="utf-8")
    line = element("p", "Part of ", link_to(main_page(docname), docname), class_="attn-kicker")
    line += nodes.Text(f". About {count(text).minutes} minutes.")
    title.parent.insert(title.parent.index(title) + 1, line)


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link to the next page and to each of its sections that this page does not have."""
    places = list(doctree.findall(continued))
    taken = {name for node in doctree.findall(nodes.section) for name in node["ids"]}
    for place in places:
        page = place["page"]
        if page not in app.env.tocs:
            LOGGER.warning("continued: there is no page %s", page, location=place)
            continue
        uri = app.builder.get_relative_uri(docname, page)
        title = app.env.titles[page]
        # where a section became a page, its title is that of the page
        top = nodes.make_id(title.astext().removeprefix(f"{chapter_number(page)} "))
        link = element("a", *title.deepcopy().children, class_="attn-next", href=uri)
        if top not in taken:
            link["html"]["id"] = top
            taken.add(top)
        line, mark = element("p", "Continued on ", link), ": "
        for entry in app.env.tocs[page].findall(nodes.reference):
            name = entry["anchorname"].removeprefix("#")
            if name and name not in taken:
                taken.add(name)
                words = entry.deepcopy().children
                line += [nodes.Text(mark), element("a", *words, id=name, href=f"{uri}#{name}")]
                mark = " · "
        place.replace_self(element("nav", line, class_="attn-continued", aria_label="Next page"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Name the chapter after the title has its number; link when every page is known."""
    app.add_node(continued)
    app.add_directive("continued", ContinuedDirective)
    app.connect("doctree-read", name_chapter, priority=150)
    app.connect("doctree-resolved", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
