"""``{source} attn_course.functional.attention.attention``: code of the package, by its name.

Shown without docstrings (the reference has them), under its dotted name, which links there. A name
that does not exist is an error with page and line.
"""

from pathlib import Path
from typing import Any

from docutils import nodes
from listings import ROOT, SourceError, public_name, read_source
from sphinx.application import Sphinx
from sphinx.ext import viewcode
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOGGER = logging.getLogger(__name__)


class source_title(nodes.Part, nodes.TextElement):
    """The dotted name above a listing; a link once the reference is known."""


class SourceDirective(SphinxDirective):
    """Code of the package, by its name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        dotted = self.arguments[0].strip()
        try:
            listing = read_source(dotted)
        except SourceError as error:
            place = (self.env.docname, self.place(dotted))
            LOGGER.error("source: %s", error, location=place, type="attn")
            return []
        self.env.note_dependency(str(listing.path))
        code = nodes.literal_block(listing.code, listing.code, language="python")
        title = source_title("", "", dotted=dotted)
        title += nodes.literal("", dotted, classes=["py"])
        box = nodes.container("", title, code, classes=["attn-source"])
        self.set_source_info(box)
        return [box]

    def place(self, dotted: str) -> int:
        """The line in the file: MyST-NB is off by one in the first cell of a page."""
        rows = Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8").splitlines()
        near = (self.lineno, self.lineno - 1, self.lineno + 1)
        marker = f"{{source}} {dotted}"
        return next((n for n in near if 0 < n <= len(rows) and marker in rows[n - 1]), self.lineno)


def link_titles(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link each name to its entry in the reference, where there is one."""
    objects = app.env.get_domain("py").objects
    for title in list(doctree.findall(source_title)):
        name = public_name(title["dotted"])
        entry = objects.get(name)
        if entry is None:
            continue
        uri = app.builder.get_relative_uri(docname, entry.docname) + f"#{entry.node_id}"
        link = nodes.reference("", "", internal=True, refuri=uri, reftitle=name)
        words = list(title.children)
        title.clear()
        link += words
        title += link


def visit_title(self: Any, node: source_title) -> None:
    self.body.append('<p class="attn-source-title">')


def depart_title(self: Any, node: source_title) -> None:
    self.body.append("</p>")


def module_file(app: Sphinx, modname: str) -> str | None:
    """The file of a module of the package; viewcode would import every one to learn that."""
    place = ROOT.joinpath(*modname.split("."))
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((str(file) for file in files if file.is_file()), None)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    viewcode.get_module_filename = module_file
    app.add_node(source_title, html=(visit_title, depart_title))
    app.add_directive("source", SourceDirective)
    app.connect("doctree-resolved", link_titles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
