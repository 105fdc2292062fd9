"""From each entry of the reference to the chapters that use it.

A chapter uses a name when it shows its source, links to it, or imports it in a cell.
"""

import ast
import re
from pathlib import Path
from typing import Any

from attn_numbers import chapter_number
from docutils import nodes
from listings import public_name
from sphinx import addnodes
from sphinx.application import Sphinx

DOTTED = re.compile(r"\battn_course(?:\.\w+)+")
CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```", re.M | re.S)


def imported(code: str) -> set[str]:
    """Dotted names that a cell takes from the package."""
    code = re.sub(r"^(:\w+:.*|[%!].*)$", "", code, flags=re.M)
    try:
        body = list(ast.walk(ast.parse(code)))
    except SyntaxError:
        return set()
    return {
        f"{node.module}.{alias.name}"
        for node in body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attn_course.")
        for alias in node.names
    }


def names_of(text: str) -> set[str]:
    """The public names of the package that a page uses; a method counts for its class."""
    found = set(DOTTED.findall(text))
    for cell in CELL.findall(text):
        found |= imported(cell)
    public = {public_name(name) for name in found}
    return public | {name.rsplit(".", 1)[0] for name in public if name.count(".") > 2}


def uses(app: Sphinx) -> dict[str, list[str]]:
    """Public name to the chapters that use it, in the order of the book."""
    found: dict[str, list[str]] = {}
    for page in sorted(name for name in app.env.found_docs if chapter_number(name)):
        text = Path(app.env.doc2path(page)).read_text(encoding="utf-8")
        for name in names_of(text):
            found.setdefault(name, []).append(page)
    return found


def outdated(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> Any:
    """The pages of the reference, when a chapter has begun or ceased to use a name."""
    now = uses(app)
    known, env.attn_uses = getattr(env, "attn_uses", None), now
    if known == now:
        return []
    return [name for name in env.found_docs if name.startswith("api/")]


def link_chapters(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Below each entry: the chapters that use it."""
    if not docname.startswith("api/"):
        return
    known: dict[str, list[str]] = app.env.attn_uses  # type: ignore[attr-defined]
    for entry in doctree.findall(addnodes.desc):
        signature = entry.next_node(addnodes.desc_signature)
        content = entry.next_node(addnodes.desc_content)
        if entry.get("domain") != "py" or signature is None or content is None:
            continue
        for name in signature["ids"]:
            if not (pages := [page for page in known.get(name, []) if page in app.env.titles]):
                continue
            line = nodes.paragraph("", "In the chapters: ", classes=["attn-used-in"])
            for number, page in enumerate(pages):
                uri = app.builder.get_relative_uri(docname, page)
                title = app.env.titles[page].astext()
                line += [nodes.Text("; " if number else "")]
                line += nodes.reference("", title, internal=True, refuri=uri)
            content += line
            break


def setup(app: Sphinx) -> dict[str, bool]:
    """Look before reading, link before writing."""
    app.connect("env-get-outdated", outdated)
    app.connect("doctree-resolved", link_chapters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
