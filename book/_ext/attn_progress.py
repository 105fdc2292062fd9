"""Which questions each chapter has, for the marks of what a reader has done.

``interactive.js`` keeps answers in the browser. To say "3 of 11" on any page it must know the
questions of all: they are one small file that every page loads. The script fills the front page's
``<div class="attn-progress">`` with a link to where the reader stopped, and buttons.
"""

import json
from pathlib import Path
from typing import Any

from attn_interactive import tag
from docutils import nodes
from sphinx.application import Sphinx

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
    """Page to title and ids, in the order of the contents."""
    env = app.env
    pages = [name for name in env.metadata if "attn_questions" in env.metadata[name]]
    return {
        page: {
            "title": env.titles[page].astext(),
            "quiz": [name for name, kind in env.metadata[page]["attn_questions"] if kind == "quiz"],
            "predict": [
                name for name, kind in env.metadata[page]["attn_questions"] if kind != "quiz"
            ],
        }
        for page in sorted(pages)
    }


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
