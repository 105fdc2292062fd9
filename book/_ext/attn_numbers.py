"""Numbers that the build gives: of chapters, and of equations and figures within them.

A chapter's number is the two digits that its file begins with, or the folder of a further page.
Authors write none of them: titles, contents, equations "(4.3)" and figures "Figure 4.2" get theirs
from here. Equations and figures are counted through the pages of a chapter.
"""

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from bookbuild.common import main_page

CHAPTER = re.compile(r"(?:^|/)(\d\d)_[^/]*$")


def chapter_number(docname: str) -> str:
    """``chapters/04_score_functions`` has the number 4; other pages have none."""
    found = CHAPTER.search(main_page(docname))
    return str(int(found[1])) if found else ""


def pages_of(env: Any, docname: str) -> list[str]:
    """The pages of the chapter that a page belongs to, in reading order."""
    main = main_page(docname)
    return [main, *(one for one in env.toctree_includes.get(main, ()) if main_page(one) == main)]


def before(env: Any, docname: str, what: str) -> int:
    """How many equations or figures the earlier pages of the chapter have."""
    pages = pages_of(env, docname)
    return sum(env.metadata[one].get(what, 0) for one in pages[: pages.index(docname)])


def number(app: Sphinx, doctree: nodes.document) -> None:
    """Number the title, before Sphinx collects it, and note the equations."""
    docname = app.env.docname
    chapter = chapter_number(docname)
    if not chapter:
        return
    title = next(iter(doctree.findall(nodes.title)), None)
    if title is not None:
        title.insert(0, nodes.Text(f"{chapter} "))
    known = app.env.get_domain("math").equations  # type: ignore[attr-defined]
    own = {label: count for label, (page, count) in known.items() if page == docname}
    app.env.metadata[docname] |= {"attn_equations": len(own), "attn_labels": own}


def refer(app: Sphinx, env: Any) -> list[str]:
    """Give references the numbers; return the pages whose numbers or links may have changed."""
    known = env.get_domain("math").equations
    for docname in env.found_docs:
        if labels := env.metadata[docname].get("attn_labels"):
            chapter, start = chapter_number(docname), before(env, docname, "attn_equations")
            for label, count in labels.items():
                known[label] = (docname, f"{chapter}.{start + count}")
    return [page for one in env.attn_read for page in pages_of(env, one) if chapter_number(one)]


def remember(app: Sphinx, env: Any, docnames: list[str]) -> None:
    """The pages that are read now: the others of their chapters are written anew."""
    env.attn_read = list(docnames)


class NumberEquations(SphinxPostTransform):
    """Number the equations of a chapter through its pages."""

    default_priority = 8

    def run(self, **kwargs: object) -> None:
        chapter = chapter_number(self.env.docname)
        for block in self.document.findall(nodes.math_block):
            if chapter and block.get("number"):
                start = before(self.env, self.env.docname, "attn_equations")
                block["number"] = f"{chapter}.{start + block['number']}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect before Sphinx collects titles."""
    app.connect("doctree-read", number, priority=100)
    app.connect("env-before-read-docs", remember)
    app.connect("env-updated", refer)
    app.add_post_transform(NumberEquations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
