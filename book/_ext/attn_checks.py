"""The checks of a page: out of its flow where they hold, listed on a page of their own.

A cell that checks and shows nothing else leaves the page; it stays in the notebook. What came out
otherwise on the machine that built the site is shown at its place, with both values. The foot of
the page counts its checks by kind and links to ``checks/<page>``, which lists each with its value.
``{sweep-table}`` counts those of all pages; ``{records-table}`` lists the recorded experiments.
"""

import hashlib
import html
import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from bookbuild.common import Book, slug
from bookbuild.sweep import KINDS, summary

MARK = '<div class="attn-checks">'


def records(app: Sphinx) -> list[Path]:
    """The sweeps of all pages."""
    return sorted((Path(app.srcdir) / "sweep").glob("*.json"))


def record(app: Sphinx, docname: str) -> dict[str, Any] | None:
    """The sweep of a page, None where it has none yet."""
    path = Path(app.srcdir) / "sweep" / f"{slug(docname)}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def executed(app: Sphinx, docname: str) -> Path:
    """The notebook of a page with its outputs."""
    return Path(app.srcdir) / "_build" / "executed" / f"{docname.replace('/', '__')}.ipynb"


def checks_of(app: Sphinx, docname: str) -> list[dict[str, Any]]:
    """The checks of a page, each with the number of its cell and its kind.

    A sweep lists them by cell and line; it is of another page if it lists another number of them.
    """
    path = executed(app, docname)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.is_file() else []
    checks = [
        {**check, "index": index, "kind": "unswept"}
        for index, cell in enumerate(cells)
        for output in cell.get("outputs", ())
        for check in output.get("metadata", {}).get("attn_checks", ())
    ]
    swept = (record(app, docname) or {"checks": []})["checks"]
    if len(swept) == len(checks):
        ordered = sorted(checks, key=lambda one: (one["cell"], one["line"]))
        for check, known in zip(ordered, swept, strict=True):
            check["kind"] = known["kind"]
    return checks


def is_of(node: nodes.Node, element: str) -> bool:
    """True for a part of a code cell."""
    return isinstance(node, nodes.container) and node.get("nb_element") == element


def settle(app: Sphinx, doctree: nodes.document) -> None:
    """Clear a page of the checks that held, and count all at its foot."""
    docname = app.env.docname
    checks = checks_of(app, docname)
    for cell in list(doctree.findall(lambda node: is_of(node, "cell_code"))):
        own = [one for one in checks if one["index"] == cell["cell_index"]]
        section: nodes.Element = cell
        while not isinstance(section, nodes.section):
            section = section.parent
        title = section.next_node(nodes.title)
        for check in own:
            check["place"] = (section["ids"][0], title.astext() if title else "")
        if not own or not all(check["held"] for check in own):
            continue
        for bundle in list(cell.findall(lambda node: is_of(node, "mime_bundle"))):
            if MARK in bundle.astext():
                bundle.parent.remove(bundle)
        if not any(one.children for one in cell.children if is_of(one, "cell_code_output")):
            cell.parent.remove(cell)
    first = doctree.next_node(nodes.section)
    if checks and first is not None:
        app.env.metadata[docname]["attn_checks"] = checks
        uri = app.builder.get_relative_uri(docname, f"checks/{slug(docname)}")
        link = nodes.reference("", count(app, docname), refuri=uri)
        first += nodes.paragraph("", "", link, nodes.Text("."), classes=["attn-sweep"])


def count(app: Sphinx, docname: str) -> str:
    """``67 checks: 18 under 4 seeds, 31 of records, 18 algebra``."""
    found = record(app, docname)
    held = summary(found) if found else None
    words = {"record": "of records", "algebra": "algebra", "unswept": "not swept yet"}
    if held:
        some = "" if held.held == held.seeds else f" (all held with {held.held})"
        words["seeds"] = f"under {held.seeds} seeds{some}"
    number = Counter(one["kind"] for one in app.env.metadata[docname]["attn_checks"])
    parts = ", ".join(
        f"{number[kind]} {words[kind]}" for kind in (*KINDS, "unswept") if number[kind]
    )
    return f"{number.total()} checks: {parts}"


def list_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """For each page that checks, one that lists what was compared, by section."""
    for docname in sorted(app.env.found_docs):
        checks = app.env.metadata[docname].get("attn_checks")
        if not checks:
            continue
        here = f"checks/{slug(docname)}"
        title = f"Checks: {html.escape(app.env.titles[docname].astext())}"
        uri = app.builder.get_relative_uri(here, docname)
        claims = app.builder.get_relative_uri(here, "claims")
        parts = [
            f"<h1>{title}</h1><p>{count(app, docname)}. "
            f'<a href="{claims}#the-sweep">What the kinds mean</a>.</p>'
        ]
        for (anchor, section), group in groupby(checks, key=lambda one: one["place"]):
            parts.append(
                f'<h2 id="{anchor}"><a href="{uri}#{anchor}">{html.escape(section)}</a></h2><ul>'
            )
            for one in group:
                code, value = (html.escape(one[name]) for name in ("code", "value"))
                kind = {"seeds": "recomputed", "record": "recorded"}.get(one["kind"], one["kind"])
                kind += "" if one["held"] else ", <strong>did not hold in this build</strong>"
                value = value and f": <code>{value}</code>"
                parts.append(f'<li class="attn-listed"><code>{code}</code>{value} ({kind})</li>')
            parts.append("</ul>")
        yield here, {"title": title, "body": "\n".join(parts)}, "page.html"


class Table(SphinxDirective):
    """A table that is made from JSON files, one row each."""

    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        container = nodes.Element()
        self.state.nested_parse(self.lines(), self.content_offset, container)
        return container.children

    def lines(self) -> list[str]:
        raise NotImplementedError


class RecordsTable(Table):
    """All recorded experiments that were repeated: seeds, instruction sets, machine, date."""

    def lines(self) -> list[str]:
        lines = [
            "| record | seeds | instruction sets | machine | torch | date |",
            "| --- | ---: | ---: | --- | --- | --- |",
        ]
        for path in sorted(Book().records.glob("*.json")):
            found = json.loads(path.read_text(encoding="utf-8"))
            runs = found.get("runs", ())
            if all(isinstance(run, dict) and {"seed", "set"} <= set(run) for run in runs) and runs:
                lines.append(
                    f"| `{path.stem}` | {len({run['seed'] for run in runs})} "
                    f"| {len({run['set'] for run in runs})} | {found['machine']['processor']} "
                    f"| {found['versions']['torch']} | {found['date']} |"
                )
        return lines


class SweepTable(Table):
    """All pages: checks by kind, seeds, machine, date."""

    def lines(self) -> list[str]:
        lines = [
            "| page | recomputed | recorded | algebra | seeds that held | instruction sets "
            "| CPU-s of a run | machine | torch | date |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |",
        ]
        total = dict.fromkeys(KINDS, 0)
        for path in records(self.env.app):
            found = json.loads(path.read_text(encoding="utf-8"))
            held = summary(found)
            again = found.get("renewed", {}).get("cpu_seconds")  # of the page as it is now
            seconds = [again] if again else sorted(run["cpu_seconds"] for run in found["runs"])
            kinds = " | ".join(str(held.kinds[kind]) for kind in KINDS)
            lines.append(
                f"| [](/{found['page']}.md) | {kinds} | {held.held} of {held.seeds} "
                f"| {held.sets} | {seconds[len(seconds) // 2]:.0f} "
                f"| {found['machine']['processor']} | {found['versions']['torch']} "
                f"| {found['date']} |"
            )
            total = {kind: total[kind] + held.kinds[kind] for kind in KINDS}
        lines.append("| all | " + " | ".join(map(str, total.values())) + " | | | | | | |")
        return lines


def stamp(app: Sphinx, docname: str) -> str:
    """What a page shows of its outputs and its sweep; when it changes, the page is read again."""
    parts = []
    if docname == "claims":
        recorded = sorted(Book().records.glob("*.json"))
        parts = [path.read_text(encoding="utf-8") for path in (*records(app), *recorded)]
    swept = Path(app.srcdir) / "sweep" / f"{slug(docname)}.json"
    for path in (executed(app, docname), swept):
        if path.is_file():
            parts.append(path.read_text(encoding="utf-8"))
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def outdated(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> Any:
    """Pages whose outputs or sweep are others than those shown."""
    known: dict[str, str] = getattr(env, "attn_stamps", {})
    now = {name: stamp(app, name) for name in env.found_docs}
    env.attn_stamps = now
    return [name for name, one in now.items() if known.get(name) != one and name in known]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register directives; clear pages after attn_sealed (400), which looks for their cells."""
    app.add_directive("sweep-table", SweepTable)
    app.add_directive("records-table", RecordsTable)
    app.connect("doctree-read", settle, priority=450)
    app.connect("html-collect-pages", list_pages)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
