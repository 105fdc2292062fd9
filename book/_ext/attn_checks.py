"""The checks of a page: out of the reading flow where they hold, listed on a page of their own.

A check cell that holds leaves nothing on its page: its source is in the notebook. What came out
otherwise on the machine that built the site is shown at its place, with both values. The foot of
the page counts its checks by kind and links to ``checks/<page>``, which lists each one with the
sentence below it and its value, by section. ``{sweep-table}`` counts those of all pages;
``{records-table}`` lists the recorded experiments.
"""

import ast
import hashlib
import html
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from bookbuild.common import Book
from bookbuild.reading import is_check, only_checks
from bookbuild.sweep import KINDS, slug, summary

MARK = '<div class="attn-checks">'
WORDS = {"record": "of records", "algebra": "algebra", "unswept": "not swept yet"}


def records(app: Sphinx) -> list[Path]:
    """The sweeps of all pages."""
    return sorted((Path(app.srcdir) / "sweep").glob("*.json"))


def record(app: Sphinx, name: str) -> dict[str, Any] | None:
    """The sweep of a page, None where it has none yet."""
    path = Path(app.srcdir) / "sweep" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def stored_path(app: Sphinx, docname: str) -> Path:
    """The executed page."""
    name = f"{docname.replace('/', '__')}.ipynb"
    return Path(app.srcdir) / "_build" / "executed" / name


def is_of(cell: nodes.Node, element: str) -> bool:
    """True for a part of a code cell."""
    return isinstance(cell, nodes.container) and cell.get("nb_element") == element


def serves_checks(code: str, later: str, *, hidden: bool) -> bool:
    """True for a cell that mostly checks, or is folded, and gives later cells no name."""
    if only_checks(code):
        return True
    try:
        body, after = ast.parse(code).body, ast.parse(later)
    except SyntaxError:
        return False
    checks = sum(map(is_check, body))
    given = {
        name
        for node in ast.walk(ast.Module(body, []))
        for name in (getattr(node, "name", None), getattr(node, "id", None))
        if name and not isinstance(getattr(node, "ctx", None), ast.Load)
    }
    read = {node.id for node in ast.walk(after) if isinstance(node, ast.Name)}
    return (hidden or 2 * checks >= len(body)) and not given & read


def first_sentence(paragraph: nodes.paragraph) -> str:
    """The first line of a paragraph, which is its first sentence, as HTML."""
    copy = paragraph.deepcopy()
    for formula in list(copy.findall(nodes.math)):
        formula.replace_self(nodes.Text(f"`{formula.astext()}`"))
    line = html.escape(copy.astext().strip().partition("\n")[0])
    return re.sub("`([^`]+)`", r"<code>\1</code>", line)


def settle(cell: nodes.container, code: str, later: str) -> None:
    """Take the checks that held off the page, and their cell where it did nothing else."""
    for bundle in list(cell.findall(lambda node: is_of(node, "mime_bundle"))):
        if MARK in bundle.astext():
            bundle.parent.remove(bundle)
    output = next((one for one in cell.children if is_of(one, "cell_code_output")), None)
    if output is not None and output.children:
        return
    if output is not None:
        cell.remove(output)
    if serves_checks(code, later, hidden="hide_mode" in cell):
        cell.parent.remove(cell)


def checks_in(cells: list[dict[str, Any]], found: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The checks of an executed page, each with the number of its cell and its kind.

    A sweep lists them by cell and line. One that lists another number of them is of another page.
    """
    checks = [
        {**check, "index": index}
        for index, cell in enumerate(cells)
        for output in cell.get("outputs", ())
        for check in output.get("metadata", {}).get("attn_checks", ())
    ]
    kinds = [one["kind"] for one in found["checks"]] if found else []
    if len(kinds) != len(checks):
        kinds = ["unswept"] * len(checks)
    ordered = sorted(checks, key=lambda one: (one["cell"], one["line"]))
    for check, kind in zip(ordered, kinds, strict=True):
        check["kind"] = kind
    return checks


def collect(app: Sphinx, doctree: nodes.document) -> None:
    """List the checks of a page, clear it of those that held, and count them at its foot."""
    docname = app.env.docname
    path = stored_path(app, docname)
    if not path.is_file():
        return
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(one["source"]) if one["cell_type"] == "code" else "" for one in cells]
    swept = record(app, slug(docname))
    of_page = checks_in(cells, swept)
    listed: list[dict[str, Any]] = []
    place, waiting, settled = ("", ""), list[dict[str, Any]](), list[tuple[Any, int]]()
    for node in doctree.findall():
        if isinstance(node, nodes.section):
            title = node.next_node(nodes.title)
            place, waiting = (node["ids"][0], title.astext() if title else ""), []
        elif isinstance(node, nodes.paragraph) and waiting:
            text = first_sentence(node)
            for entry in waiting:
                entry["sentence"] = text
            waiting = []
        elif is_of(node, "cell_code"):
            index = node["cell_index"]
            checks = [check for check in of_page if check["index"] == index]
            if not checks:
                continue
            listed += [{**check, "place": place, "sentence": ""} for check in checks]
            waiting += listed[-len(checks) :]
            if all(check["held"] for check in checks):
                settled.append((node, index))
    for node, index in settled:
        settle(node, sources[index], "\n".join(sources[index + 1 :]))
    title = next(iter(doctree.findall(nodes.title)), None)
    if not listed or title is None:
        return
    app.env.metadata[docname]["attn_checks"] = listed
    link = app.builder.get_relative_uri(docname, list_of(docname))
    foot = nodes.paragraph("", "", classes=["attn-sweep"])
    foot += [nodes.reference("", foot_of(listed, swept), refuri=link), nodes.Text(".")]
    title.parent += foot


def foot_of(listed: list[dict[str, Any]], swept: dict[str, Any] | None) -> str:
    """``67 checks: 18 under 4 seeds, 31 of records, 18 algebra``."""
    count = Counter(one["kind"] for one in listed)
    words = dict(WORDS)
    if swept:
        held = summary(swept)
        some = "" if held.held == held.seeds else f" (all held with {held.held})"
        words["seeds"] = f"under {held.seeds} seeds{some}"
    parts = [f"{count[kind]} {words[kind]}" for kind in (*KINDS, "unswept") if count[kind]]
    return f"{len(listed)} checks: {', '.join(parts)}"


def list_of(docname: str) -> str:
    """The page that lists the checks of another."""
    return f"checks/{slug(docname)}"


def list_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """One page for each that has checks: section, sentence, what was compared, value."""
    for docname in sorted(app.env.metadata):
        listed = app.env.metadata[docname].get("attn_checks")
        if not listed or docname not in app.env.found_docs:
            continue
        here = list_of(docname)
        page = html.escape(app.env.titles[docname].astext())
        uri = app.builder.get_relative_uri(here, docname)
        swept = record(app, slug(docname))
        parts = [f"<h1>Checks: {page}</h1><p>{foot_of(listed, swept)}."]
        if "claims" in app.env.found_docs:
            claims = app.builder.get_relative_uri(here, "claims")
            parts.append(f' <a href="{claims}#the-sweep">What the kinds mean</a>.')
        parts.append("</p>")
        place, sentence = None, ""
        for one in listed:
            if one["place"] != place:
                place, sentence = one["place"], ""
                anchor, title = place
                parts.append(f'<h2><a href="{uri}#{anchor}">{html.escape(title)}</a></h2>')
            if one["sentence"] != sentence:
                sentence = one["sentence"]
                parts.append(f"<p>{sentence}</p>")
            value = f": <code>{html.escape(one['value'])}</code>" if one["value"] else ""
            kind = {"seeds": "recomputed", "record": "recorded"}.get(one["kind"], one["kind"])
            failed = "" if one["held"] else ", <strong>did not hold in this build</strong>"
            parts.append(
                f'<p class="attn-listed"><code>{html.escape(one["code"])}</code>{value} '
                f"({kind}{failed})</p>"
            )
        yield here, {"title": f"Checks: {page}", "body": "\n".join(parts)}, "page.html"


def show_counts(app: Sphinx, doctree: nodes.document) -> None:
    """Give every verdict of the claims table the counts of its page, by kind."""
    if app.env.docname != "claims":
        return
    for table in doctree.findall(nodes.table):
        group = table.next_node(nodes.tgroup)
        if group is None or len(list(group.findall(nodes.colspec))) != 4:
            continue
        group["cols"] = 5
        group.insert(4, nodes.colspec(colwidth=8))
        for row in table.findall(nodes.row):
            page = re.search(r"\d\d_[a-z0-9_]+", str(row.children[-1]))
            if isinstance(row.parent, nodes.thead):
                text = "checks of the page"
            elif found := record(app, page[0]) if page else None:
                held = summary(found)
                text = (
                    f"{held.kinds['seeds']} recomputed ({held.held} of {held.seeds} seeds), "
                    f"{held.kinds['record']} recorded, {held.kinds['algebra']} algebra"
                )
            else:
                text = "no sweep yet"
            row += nodes.entry("", nodes.paragraph("", text))


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
            seconds = sorted(run["cpu_seconds"] for run in found["runs"])
            kinds = " | ".join(str(held.kinds[kind]) for kind in KINDS)
            lines.append(
                f"| [](/chapters/{path.stem}.md) | {kinds} | {held.held} of {held.seeds} "
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
    for path in (stored_path(app, docname), swept):
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
    app.connect("doctree-read", collect, priority=450)
    app.connect("html-collect-pages", list_pages)
    app.connect("doctree-read", show_counts)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
