"""Claims as cards: ``{claim}`` holds one, with its verdict, a sentence, and the full evidence.

The cards of a chapter become a section under its title. A form above them, shown where JavaScript
runs, filters by verdict and chapter and searches (``claims.js``); without it all cards are shown.
"""

import re
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from attn_checks import record
from attn_interactive import Block, element, tag
from attn_numbers import chapter_number
from bookbuild.common import main_page, slug
from bookbuild.sweep import summary
from docutils import nodes
from docutils.parsers.rst import directives
from interactive_blocks import BlockError, Text
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
SCRIPT = Path(__file__).with_name("claims.js")
LABELS = ("true", "partly", "false", "open")
PLACE = re.compile(r"(chapters/\d\d_[a-z0-9_]+(?:/[a-z0-9_]+)?)\.md#(\S+)")


def wording(label: str, verdict: str) -> str:
    """What a verdict adds to its label: ``false, unless it depends`` adds ``unless it depends``."""
    return re.sub(rf"^{label}(?:[ ,:;]+|$)", "", verdict)


class ClaimDirective(Block):
    """A claim: its first paragraph is the sentence that is shown, the rest unfolds."""

    option_spec: ClassVar[dict[str, Any]] = {
        "name": directives.unchanged_required,
        "label": lambda word: directives.choice(word, LABELS),
        "verdict": directives.unchanged_required,
        "at": directives.unchanged_required,
    }

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        for name in ("name", "label", "at"):
            if name not in self.options:
                raise BlockError(f"':{name}:' is missing")
        place = PLACE.fullmatch(self.options["at"])
        if not place:
            raise BlockError("':at:' is a section: chapters/07_scaled_dot_product.md#masks")
        short, _, evidence = "\n".join(lines).strip().partition("\n\n")
        if not evidence:
            raise BlockError("a sentence, an empty line and the full evidence are needed")
        label = self.options["label"]
        more = wording(label, self.options.get("verdict", label))
        card = nodes.section(
            "",
            nodes.title(argument, "", *self.inline(Text(argument, -1), "the claim")),
            element("p", element("span", label, class_="attn-label"), f" {more}"),
            element("p", *self.inline(Text(short, 0), "the sentence")),
            element("p", "Decided in ", class_="attn-decided"),
            element(
                "details",
                element("summary", "Full evidence"),
                *self.parse(Text(evidence, short.count("\n") + 2)),
                *self.counts(place[1]),
            ),
            names=[nodes.fully_normalize_name(self.options["name"])],
            classes=["attn-claim", f"attn-is-{label}"],
            page=place[1],
            anchor=place[2],
        )
        self.state.document.note_explicit_target(card)
        return [card]

    def counts(self, page: str) -> list[nodes.Node]:
        """The checks of the whole page, by kind."""
        found = record(self.env.app, page)
        if not found:
            return []
        held = summary(found)
        counts = (
            f"{held.kinds['seeds']} recomputed ({held.held} of {held.seeds} seeds), "
            f"{held.kinds['record']} recorded, {held.kinds['algebra']} algebra"
        )
        uri = self.env.app.builder.get_relative_uri(self.env.docname, f"checks/{slug(page)}")
        return [element("p", "Checks of the page: ", element("a", counts, href=uri), ".")]


def cards(doctree: nodes.Node) -> list[nodes.section]:
    return [one for one in doctree.findall(nodes.section) if "attn-claim" in one["classes"]]


def controls(number: Counter[str], chapters: list[tuple[str, str]]) -> tag:
    """The form above the cards."""
    verdicts = [("", f"all {number.total()}"), *((x, f"{x} {number[x]}") for x in LABELS)]
    radios = [
        element(
            "label",
            element("input", type="radio", name="verdict", value=value, checked=not value),
            element("span", text, class_="attn-label"),
            class_=f"attn-is-{value or 'any'}",
        )
        for value, text in verdicts
    ]
    options = [element("option", text, value=value) for value, text in chapters]
    return element(
        "form",
        element("fieldset", element("legend", "Verdict"), *radios),
        element(
            "label",
            "Chapter ",
            element("select", element("option", "all", value=""), *options, name="chapter"),
        ),
        element(
            "label", "Search, full evidence included ", element("input", type="search", name="q")
        ),
        element(
            "p", element("output"), element("button", "Show all", type="reset"), class_="attn-found"
        ),
        class_="attn-filter",
        aria_label="Filter the claims",
        autocomplete="off",
        html_only=True,
    )


def group(app: Sphinx, doctree: nodes.document) -> None:
    """Gather the cards of each chapter in a section under its title."""
    found = cards(doctree)
    if not found:
        return
    parent, sections = found[0].parent, []
    at = parent.index(found[0])
    for page, own in groupby(found, key=lambda card: main_page(card["page"])):
        path = Path(app.srcdir) / f"{page}.md"
        app.env.note_dependency(str(path))
        heading = re.search(r"^# (.+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        title = f"{chapter_number(page)} {heading[1] if heading else page}"
        section = nodes.section("", nodes.title(title, title), classes=["attn-claims"])
        section["ids"] = [f"claims-{path.stem[:2]}"]
        for card in list(own):
            parent.remove(card)
            section += card
        sections.append(section)
    number = Counter(card["classes"][1].removeprefix("attn-is-") for card in found)
    chapters = [(one["ids"][0], one.next_node(nodes.title).astext()) for one in sections]
    parent[at:at] = [controls(number, chapters), *sections]


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """The section that decides a claim, and its checks."""
    for card in cards(doctree):
        page, anchor = card["page"], card["anchor"]
        entries = app.env.tocs[page].findall(nodes.reference) if page in app.env.tocs else ()
        entry = next((one for one in entries if one["anchorname"] == f"#{anchor}"), None)
        if entry is None:
            LOGGER.warning("claim: %s.md has no section #%s", page, anchor, location=card)
            continue
        decided = next(x for x in card.findall(tag) if x["html"].get("class") == "attn-decided")
        uri = app.builder.get_relative_uri(docname, page)
        decided += nodes.reference("", "", *entry.deepcopy().children, refuri=f"{uri}#{anchor}")
        checks = app.env.metadata[page].get("attn_checks", ())
        if own := sum(one["place"][0] == anchor for one in checks):
            uri = app.builder.get_relative_uri(docname, f"checks/{slug(page)}")
            words = f"{own} check{'s' * (own > 1)}"
            decided += nodes.Text(" (")
            decided += nodes.reference("", words, refuri=f"{uri}#{anchor}")
            decided += nodes.Text(")")


def add_script(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """The filter runs on the page that has cards, and nowhere else."""
    if doctree is not None and cards(doctree):
        app.add_js_file(None, body=SCRIPT.read_text(encoding="utf-8"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Group before Sphinx collects titles for the contents of the page."""
    app.add_directive("claim", ClaimDirective)
    app.connect("doctree-read", group, priority=450)
    app.connect("doctree-resolved", link)
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
