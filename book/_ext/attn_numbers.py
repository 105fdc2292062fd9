"""Numbers that the build gives: of chapters, and of equations within them.

A chapter's number is the two digits that its file begins with. Authors write none of them: titles,
contents, equations "(4.3)" and figures "Figure 4.2" get theirs from here.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx

CHAPTER = re.compile(r"(?:^|/)(\d\d)_[^/]*$")


def chapter_number(docname: str) -> str:
    """``chapters/04_score_functions`` has the number 4; other pages have none."""
    found = CHAPTER.search(docname)
    return str(int(found[1])) if found else ""


def number(app: Sphinx, doctree: nodes.document) -> None:
    """Number the title and the equations of a chapter, before Sphinx collects them."""
    docname = app.env.docname
    chapter = chapter_number(docname)
    if not chapter:
        return
    title = next(iter(doctree.findall(nodes.title)), None)
    if title is not None:
        title.insert(0, nodes.Text(f"{chapter} "))
    for block in doctree.findall(nodes.math_block):
        if block.get("number"):
            block["number"] = f"{chapter}.{block['number']}"
    equations = app.env.get_domain("math").equations  # type: ignore[attr-defined]
    for label, (page, count) in equations.items():
        if page == docname:
            equations[label] = (page, f"{chapter}.{count}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect before Sphinx collects titles."""
    app.connect("doctree-read", number, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
