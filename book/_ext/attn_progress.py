"""Which questions each chapter has, for the marks of what a reader has done.

``interactive.js`` keeps answers in the browser. To say "3 of 11" on any page it must know the
questions of all: they are one small file that every page loads. The script fills the front page's
``<div class="attn-progress">`` with a link to where the reader stopped, and buttons.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from attn_interactive import tag
from attn_numbers import main_page, pages_of
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
FILE = "attn-questions.js"


def collect(app: Sphinx, doctree: nodes.document) -> None:
    """Note the questions of a page, in their order."""
    found = [
        [node["html"]["data-id"], "quiz" if "attn-quiz" in node["html"]["class"] else "predict"]
        for node in doctree.findall(tag)
        if "data-id" in node["html"] and "data-page" in node["html"]
    ]
    if found:
        app.env.metadata[app.env.docname]["attn_questions"] = found


def questions(app: Sphinx) -> dict[str, Any]:
    """Main page of a chapter to its title and the ids on all its pages, in reading order."""
    env, found = app.env, dict[str, Any]()
    for main in sorted(env.found_docs):
        pages = pages_of(env, main) if main_page(main) == main else []
        asked = [one for page in pages for one in env.metadata[page].get("attn_questions", ())]
        twice = [name for (name, _), n in Counter(map(tuple, asked)).items() if n > 1]
        if twice:
            LOGGER.error("%s: an id stands on two pages of the chapter", *twice, location=main)
        if asked:
            found[main] = {
                "title": env.titles[main].astext(),
                "quiz": [name for name, kind in asked if kind == "quiz"],
                "predict": [name for name, kind in asked if kind != "quiz"],
            }
    return found


def write(app: Sphinx, env: Any) -> list[str]:
    """Write the file before the pages, whose links carry its checksum."""
    if app.builder.format == "html":
        folder = Path(app.outdir) / "_static"
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(questions(app), ensure_ascii=False, separators=(",", ":"))
        (folder / FILE).write_text(f"window.ATTN_QUESTIONS={text};\n", encoding="utf-8")
    return []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the file and the look at each page."""
    app.add_js_file(FILE, loading_method="defer")
    app.connect("doctree-read", collect)
    app.connect("env-updated", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
