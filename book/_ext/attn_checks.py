"""What the checks of a page gave, where the reader sees it.

A cell that holds nothing but checks is folded behind its count. A check that came out otherwise on
the machine that built the site stays visible, with both values. Below the title stands how many
checks of each kind the page has and with how many seeds of the sweep they held, and
``{sweep-table}`` lists it for all pages; ``{records-table}`` lists the recorded experiments.
"""

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from bookbuild.common import Book
from bookbuild.reading import only_checks
from bookbuild.sweep import KINDS, summary

COUNT = re.compile(r'<div class="attn-checks" data-held="(\d+)" data-of="(\d+)">')
LINE = re.compile(r"<p>Checked: \d+ of \d+\.</p>")


def records(app: Sphinx) -> list[Path]:
    """The sweeps of all pages."""
    return sorted((Path(app.srcdir) / "sweep").glob("*.json"))


def record(app: Sphinx, slug: str) -> dict[str, Any] | None:
    """The sweep of a page, None where it has none yet."""
    path = Path(app.srcdir) / "sweep" / f"{slug}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def sentence(found: dict[str, Any]) -> str:
    """The line below a page's title."""
    held = summary(found)
    n = held.kinds
    return (
        f"{sum(n.values())} checks: {n['seeds']} recomputed with {held.seeds} seeds, each under "
        f"{held.sets} instruction sets (all held with {held.held} of {held.seeds}), {n['record']} "
        f"of recorded experiments, {n['algebra']} of algebra."
    )


def html(text: str) -> nodes.raw:
    return nodes.raw("", text, format="html")


class FoldChecks(SphinxPostTransform):
    """Put cells that only check behind one line; keep what failed in sight."""

    default_priority = 150  # after myst-nb has chosen the outputs, before it folds inputs (199)
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        def is_cell(node: nodes.Node) -> bool:
            return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"

        for cell in list(self.document.findall(is_cell)):
            self.fold(cell)

    @staticmethod
    def fold(cell: nodes.container) -> None:
        raws = [node for node in cell.findall(nodes.raw) if COUNT.search(node.astext())]
        source = next(
            (node for node in cell.children if "cell_input" in node.get("classes", [])), None
        )
        if source is None or not only_checks(source.astext()) or not raws:
            return
        found = [COUNT.search(node.astext()) for node in raws]
        held = sum(int(one[1]) for one in found if one)
        total = sum(int(one[2]) for one in found if one)
        for node in raws:
            node.replace_self(html(LINE.sub("", node.astext())))
        cell.attributes.pop("hide_mode", None)
        state = " open" if held < total else ""
        start = (
            f'<details class="attn-checked"{state}><summary>Checked: {held} of {total}</summary>'
        )
        index = cell.index(source)
        cell.insert(index, html(start))
        cell.insert(index + 2, html("</details>"))


def show_sweep(app: Sphinx, doctree: nodes.document) -> None:
    """Say below the title of a chapter which checks it has and with how many seeds they held."""
    folder, _, slug = app.env.docname.rpartition("/")
    found = record(app, slug) if folder == "chapters" else None
    title = next(iter(doctree.findall(nodes.title)), None)
    if found is None or title is None:
        return
    paragraph = nodes.paragraph("", "", classes=["attn-sweep"])
    paragraph += nodes.Text(sentence(found) + " ")
    link = nodes.reference("", "What that means", refuri="../claims.html#the-sweep")
    paragraph += link
    section = title.parent
    section.insert(section.index(title) + 1, paragraph)


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
            slug = re.search(r"\d\d_[a-z0-9_]+", str(row.children[-1]))
            if isinstance(row.parent, nodes.thead):
                text = "checks of the page"
            elif found := record(app, slug[0]) if slug else None:
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
    source, slug = Path(app.srcdir), docname.rpartition("/")[2]
    executed = source / "_build" / "executed" / f"{docname.replace('/', '__')}.ipynb"
    for path in (executed, source / "sweep" / f"{slug}.json"):
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
    """Register transform and directive."""
    app.add_directive("sweep-table", SweepTable)
    app.add_directive("records-table", RecordsTable)
    app.add_post_transform(FoldChecks)
    app.connect("doctree-read", show_sweep)
    app.connect("doctree-read", show_counts)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
