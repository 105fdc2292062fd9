"""The directives that readers act on: predict, quiz, explorer, goals, misconception, exercise-set.

Every block works without JavaScript: answers are folded in ``<details>`` and nothing is hidden.
``_static/interactive.js`` then makes it interactive. A block with a mistake in it is an error with
page and line.
"""

import hashlib
import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any, ClassVar

import interactive_blocks as blocks
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from interactive_blocks import BlockError, Text
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from bookbuild.common import main_page  # noqa: E402  the line above
from bookbuild.reading import count  # noqa: E402

from attn_course.exercises.plan import FORMULA  # noqa: E402

LOGGER = logging.getLogger(__name__)
AFTER_PREDICT = "tag_after-predict"
EXPLORER_FOLDER = "_explorers"


class tag(nodes.General, nodes.TextElement):
    """One HTML element; other formats show only what is inside, or nothing of it at all."""


class explorer_node(nodes.General, nodes.Element):
    """The place of an explorer: name, start state and height."""


def element(
    kind: str, /, *children: nodes.Node | str, html_only: bool = False, **attributes: Any
) -> tag:
    """``element("p", "text", class_="x")`` as a node; ``data_id`` becomes ``data-id``."""
    node = tag(
        kind=kind,
        html_only=html_only,
        html={k.rstrip("_").replace("_", "-"): v for k, v in attributes.items()},
    )
    node += [nodes.Text(child) if isinstance(child, str) else child for child in children]
    return node


def targets(node: nodes.Element) -> str:
    """Anchors of ``(label)=`` lines that stand before a block."""
    return "".join(f'<span id="{name}"></span>' for name in node["ids"])


def visit_tag(self: Any, node: tag) -> None:
    html = {k: v for k, v in node["html"].items() if v is not None and v is not False}
    pairs = "".join(
        f" {k}" if v is True else f' {k}="{self.attval(str(v))}"' for k, v in html.items()
    )
    self.body.append(f"{targets(node)}<{node['kind']}{pairs}>")


def depart_tag(self: Any, node: tag) -> None:
    if node["kind"] != "input":
        self.body.append(f"</{node['kind']}>")


def visit_other(self: Any, node: tag) -> None:
    if node["html_only"]:
        raise nodes.SkipNode


def depart_other(self: Any, node: tag) -> None:
    """Nothing was opened."""


class Block(SphinxDirective):
    """What all directives share: one error path, and Markdown nested at its true line."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Build the block, or report what is wrong with it."""
        try:
            argument = self.arguments[0].strip() if self.arguments else ""
            return self.build(argument, list(self.content))
        except BlockError as error:
            where = f" {self.arguments[0]!r}" if self.name in ("predict", "quiz") else ""
            line = self.opening
            if error.line is not None:
                line += self.content_offset + 1 + error.line
            place = (self.env.docname, line)
            LOGGER.error("%s%s: %s", self.name, where, error, location=place, type="attn")
            self.env.temp_data["attn_broken"] = True
            return []

    @property
    def opening(self) -> int:
        """The line of the block in its file; MyST-NB is off by one in the first cell of a page."""
        rows = Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8").splitlines()
        first_word = self.arguments[0].split("\n")[0] if self.arguments else ""
        for line in (self.lineno, self.lineno - 1, self.lineno + 1):
            if 0 < line <= len(rows) and f"{{{self.name}}} {first_word}".rstrip() in rows[line - 1]:
                return line
        return self.lineno

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        """The nodes of the block."""
        raise NotImplementedError

    def parse(self, text: Text) -> list[nodes.Node]:
        """Markdown as nodes, blocks and all."""
        holder = nodes.Element()
        content = StringList(text.source.splitlines(), self.env.doc2path(self.env.docname))
        shift = self.opening - self.lineno + self.content_offset
        self.state.nested_parse(content, shift + text.line, holder)
        return holder.children

    def inline(self, text: Text, what: str) -> list[nodes.Node]:
        """Markdown of one paragraph, for places where HTML allows nothing longer."""
        children = self.parse(text)
        if len(children) != 1 or not isinstance(children[0], nodes.paragraph):
            raise BlockError(f"{what} must be one paragraph", text.line)
        return children[0].children

    def question(self, text: Text) -> list[nodes.Node]:
        """A legend of the first paragraph, and whatever follows it."""
        first, *rest = self.parse(text)
        if not isinstance(first, nodes.paragraph):
            raise BlockError("'question' must begin with a paragraph", text.line)
        return [element("legend", *first.children), *rest]

    def claim_id(self, identifier: str) -> None:
        """Ids are unique on a page: the reader's answers are stored under them."""
        seen = self.env.temp_data.setdefault("attn_ids", {})
        if identifier in seen:
            raise BlockError(f"duplicate id, first used in line {seen[identifier]}")
        seen[identifier] = self.opening

    def choices(self, options: tuple[blocks.Option, ...], name: str) -> list[nodes.Node]:
        """Radio buttons with labels, each followed by its folded explanation."""
        rows: list[nodes.Node] = []
        for letter, option in zip(blocks.LETTERS, options, strict=False):
            key = f"{name}-{letter.lower()}"
            words = self.inline(option.text, f"the text of option {letter}")
            marker = element("span", letter, class_="attn-letter", html_only=True)
            label = element("label", marker, " ", element("span", *words), for_=key)
            radio = element("input", type="radio", name=name, id=key, value=letter, html_only=True)
            row = element(
                "div",
                element("div", radio, label, class_="attn-choice"),
                class_="attn-option",
                data_correct="true" if option.correct else "false",
            )
            if option.why is not None:
                verdict = "Right." if option.correct else "Not right."
                row += element(
                    "details",
                    element("summary", f"Is it {letter}?"),
                    element("p", element("strong", verdict), class_="attn-verdict"),
                    *self.parse(option.why),
                    class_="attn-why",
                )
            rows.append(row)
        return rows


def controls(*buttons: nodes.Node) -> tag:
    """Buttons, shown by the script only: without it they could do nothing."""
    status = element("p", class_="attn-status", aria_live="polite", role="status")
    return element("div", *buttons, status, class_="attn-controls", hidden=True, html_only=True)


def button(text: str, kind: str, **attributes: Any) -> tag:
    return element(
        "button",
        text,
        type="submit" if kind == "check" else "button",
        class_=f"attn-{kind}",
        html_only=True,
        **attributes,
    )


class QuizDirective(Block):
    """A question with an explanation for every option."""

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        quiz = blocks.read_quiz(argument, lines)
        self.claim_id(quiz.id)
        head = element("p", "Question", class_="attn-kicker")
        if quiz.revisits:
            head += [nodes.Text(" from "), self.chapter(quiz.revisits.source, quiz.revisits.line)]
        fieldset = element("fieldset", *self.question(quiz.question))
        fieldset += self.choices(quiz.options, f"quiz-{quiz.id}")
        form = element(
            "form",
            fieldset,
            controls(button("Check", "check"), button("Try again", "again", hidden=True)),
        )
        count = element("p", class_="attn-count", html_only=True)
        return [
            element(
                "div",
                head,
                form,
                count,
                class_="attn-block attn-quiz",
                id=f"quiz-{quiz.id}",
                data_id=quiz.id,
                data_page=main_page(self.env.docname),
            )
        ]

    def chapter(self, slug: str, line: int) -> nodes.Node:
        """A link to an earlier chapter, named by its title."""
        found = [d for d in sorted(self.env.found_docs) if d.rsplit("/", 1)[-1] == slug]
        if not found and (Path(self.env.srcdir) / "chapters" / f"{slug}.md").is_file():
            return nodes.Text(slug)  # a build of some pages, and not of that one
        if not found:
            raise BlockError(f"'from': no page {slug!r} in the book", line)
        xref = addnodes.pending_xref(
            "",
            nodes.inline("", ""),
            refdomain="std",
            reftype="doc",
            reftarget="/" + found[0],
            refdoc=self.env.docname,
            refexplicit=False,
            refwarn=True,
        )
        return xref


class PredictDirective(Block):
    """A guess that must be made before the rest of the section opens."""

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        predict = blocks.read_predict(argument, lines)
        self.claim_id(predict.id)
        name = f"predict-{predict.id}"
        fieldset = element("fieldset", *self.question(predict.question))
        if predict.options:
            fieldset += self.choices(predict.options, name)
            answer = next(
                a for a, o in zip(blocks.LETTERS, predict.options, strict=False) if o.correct
            )
            data: dict[str, Any] = {"data_answer": answer}
        else:
            answer = f"{predict.number:g}"
            data = {"data_answer": repr(predict.number), "data_tolerance": repr(predict.tolerance)}
            number = element(
                "input",
                type="text",
                inputmode="decimal",
                autocomplete="off",
                id=f"{name}-guess",
                name=name,
                html_only=True,
            )
            label = element("label", "Your guess, a number", for_=f"{name}-guess", html_only=True)
            fieldset += element("p", label, number, class_="attn-number", html_only=True)
        why = element(
            "details",
            element("summary", "Answer"),
            element("p", "The answer is ", element("strong", answer), ".", class_="attn-verdict"),
            *self.parse(predict.why),
            class_="attn-why",
        )
        form = element(
            "form",
            fieldset,
            controls(
                button("Record my guess", "check"), button("Forget my guess", "again", hidden=True)
            ),
            why,
        )
        block = element(
            "div",
            element("p", "Predict, then look", class_="attn-kicker"),
            form,
            class_="attn-block attn-predict",
            id=name,
            data_id=predict.id,
            data_page=main_page(self.env.docname),
            **data,
        )
        block.line, block.source = self.opening, self.env.doc2path(self.env.docname)
        return [block]


class GoalsDirective(Block):
    """What the chapter teaches, and how long the page takes: counted, not declared."""

    required_arguments = 0

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        page = Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8")
        minutes = count(page).minutes
        if not lines:
            raise BlockError("the goals box is empty")
        return [
            element(
                "section",
                element(
                    "p",
                    element("strong", "What you will be able to do"),
                    element("span", f"about {minutes} minutes", class_="attn-minutes"),
                    class_="attn-title",
                ),
                *self.parse(Text("\n".join(lines), 0)),
                class_="attn-box attn-goals",
                aria_label="Learning goals",
            )
        ]


class MisconceptionDirective(Block):
    """A wrong belief, named, and what is true instead."""

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        if not lines:
            raise BlockError("the misconception box is empty")
        title = self.inline(Text(argument, -1), "the title")
        return [
            element(
                "div",
                element(
                    "p",
                    element("span", "Misconception", class_="attn-kicker"),
                    " ",
                    element("strong", *title),
                    class_="attn-title",
                ),
                *self.parse(Text("\n".join(lines), 0)),
                class_="attn-box attn-misconception",
                role="note",
            )
        ]


class ExerciseSetDirective(Block):
    """The graded functions of a chapter, their points, and where the notebook is."""

    has_content = False

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        items = blocks.read_exercises(argument, ROOT)
        self.env.note_dependency(str(ROOT / "solutions" / argument / "exercise.py"))
        rows = [
            element(
                "tr",
                element(
                    "td", element("code", item.name), " ", *self.inline(Text(item.title, -1), "")
                ),
                element("td", "read by a person" if item.manual else ", ".join(item.tests)),
                element("td", f"{item.minutes}" if item.minutes else ""),
                element("td", blocks.points(item.points), class_="attn-points"),
            )
            for item in items
        ]
        optional = next((k for k, item in enumerate(items) if item.more), None)
        if optional is not None:
            mark = element("th", "More, optional", scope="rowgroup", colspan="4")
            rows.insert(optional, element("tr", mark))
        total = blocks.points(sum(item.points for item in items))
        head = [
            element("th", text, scope="col")
            for text in ("Exercise", "What is tested", "Minutes", "Points")
        ]
        table = element(
            "table",
            element("thead", element("tr", *head)),
            element("tbody", *rows),
            element(
                "tfoot",
                element(
                    "tr",
                    element("th", "Total", scope="row"),
                    element("td", ""),
                    element("td", str(sum(item.minutes for item in items))),
                    element("td", total, class_="attn-points"),
                ),
            ),
            class_="table attn-exercises",
        )
        notebook = f"exercises/{argument}/{argument}.ipynb"
        theme = self.config.html_theme_options
        place = theme.get("repository_url", "").removeprefix("https://github.com/")
        branch = theme.get("repository_branch", "main")
        here = relative_uri(self.env.docname + ".html", f"_exercises/{argument}.ipynb")
        links = [element("a", "Download the notebook", href=here, download=True)]
        if place:
            colab = f"https://colab.research.google.com/github/{place}/blob/{branch}/{notebook}"
            links.append(element("a", "Open it in Colab", href=colab))
        self.env.metadata[self.env.docname].setdefault("attn_exercises", []).append(argument)
        return [
            element(
                "div",
                element(
                    "p",
                    element("strong", f"Exercises, {total} points"),
                    element("span", f"{blocks.totals(items)} (estimated)", class_="attn-minutes"),
                    class_="attn-title",
                ),
                element("div", table, class_="attn-scroll"),
                element("p", *links, class_="attn-links", html_only=True),
                class_="attn-box attn-exercise-set",
                id=f"exercise-set-{argument}",
            )
        ]


class ExerciseSetsDirective(Block):
    """For instructors: every set, its core, and how long it takes."""

    has_content = False
    required_arguments = 0

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        heads = ("Set", "Core", "Core: size", "More: size")
        for slug, *_ in (rows := blocks.table_of_sets(ROOT)):
            self.env.note_dependency(str(ROOT / "solutions" / slug / "exercise.py"))
        body = [
            element(
                "tr", element("td", element("code", row[0])), *(element("td", x) for x in row[1:])
            )
            for row in rows
        ]
        table = element(
            "table",
            element("thead", element("tr", *(element("th", x, scope="col") for x in heads))),
            element("tbody", *body),
            class_="table",
        )
        return [
            element("div", table, class_="attn-scroll"),
            element("p", f"Minutes are estimates: {FORMULA}."),
        ]


class ExplorerDirective(Block):
    """An interactive picture: the module of the package, run by the page without a kernel."""

    option_spec: ClassVar[dict[str, Any]] = {
        "caption": directives.unchanged_required,
    }

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        name = blocks.read_explorer(argument)
        if any(line.strip() for line in lines):
            raise BlockError("an explorer takes no text, only ':caption:'")
        if "caption" not in self.options:
            raise BlockError("':caption:' is missing: say in a sentence what to try")
        module = importlib.import_module(f"attn_course.explorers.{name}")
        self.claim_id(f"explorer-{name}")
        node = explorer_node(
            name=name,
            state=module.default_state(),
            heights=(module.HEIGHT, module.HEIGHT_NARROW),
        )
        caption = self.inline(Text(self.options["caption"], -1), "the caption")
        node += element("figcaption", *caption)
        for path in (ROOT / "attn_course" / "explorers").glob(f"*{name}*"):
            self.env.note_dependency(str(path))
        return [node]


def explorer_files() -> dict[str, bytes]:
    """Every file that explorers load, by name: the host, the style, one module each, assets."""
    from attn_course.explorers import _source

    files = {
        "host.js": (HERE / "explorer_host.js").read_bytes(),
        "explorers.css": _source.stylesheet().encode(),
    }
    modules = {f"{name}.js": _source.esm(name).encode() for name in _source.NAMES}
    return files | modules | _source.assets()


def visit_explorer(self: Any, node: explorer_node) -> None:
    from attn_course.explorers import _source

    page = self.builder.get_target_uri(self.builder.current_docname)
    stamp = hashlib.sha256(b"".join(explorer_files().values())).hexdigest()[:8]

    def url(name: str) -> str:
        return relative_uri(page, f"{EXPLORER_FOLDER}/{name}") + f"?v={stamp}"

    # '<' would let a string in the state end the script element.
    state = json.dumps(node["state"], separators=(",", ":")).replace("<", "\\u003c")
    name, (wide, narrow) = node["name"], node["heights"]
    still = _source.still(name)
    wait = (
        "It moves where JavaScript runs." if still else "JavaScript in the page draws this picture."
    )
    self.body.append(
        f'{targets(node)}<link rel="stylesheet" href="{url("explorers.css")}">'
        f'<figure class="attn-explorer" id="explorer-{name}" data-module="{url(name + ".js")}">'
        f'<div class="attn-explorer-host" style="--tall: {wide}px; --tall-narrow: {narrow}px">'
        f'{still}<p class="attn-explorer-wait">{wait}</p></div>'
        f'<script type="application/json">{state}</script>'
        f'<script type="module" src="{url("host.js")}"></script>'
    )


def depart_explorer(self: Any, node: explorer_node) -> None:
    self.body.append("</figure>")


def visit_explorer_other(self: Any, node: explorer_node) -> None:
    """Only the caption is of use in print."""


def check_cells(app: Sphinx, doctree: nodes.document) -> None:
    """A cell that answers a prediction needs one; attn_sealed checks the other way round."""

    def wanted(node: nodes.Node) -> bool:
        if isinstance(node, tag):
            return "attn-predict" in node["html"].get("class", "").split()
        return isinstance(node, nodes.Element) and AFTER_PREDICT in node.get("classes", [])

    first = next(iter(doctree.findall(wanted)), None)
    if (
        first is not None
        and not isinstance(first, tag)
        and not app.env.temp_data.get("attn_broken")
    ):
        LOGGER.error("a cell tagged after-predict, but no predict block before it", location=first)


def copy_files(app: Sphinx, error: Exception | None) -> None:
    """Put explorers and exercise notebooks beside the pages that link to them."""
    if error is not None or app.builder.format != "html":
        return
    out = Path(app.outdir)
    folder = out / EXPLORER_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in explorer_files().items():
        (folder / name).write_bytes(content)
    for docname, metadata in app.env.metadata.items():
        for slug in metadata.get("attn_exercises", []):
            source = ROOT / "exercises" / slug / f"{slug}.ipynb"
            if not source.is_file():
                LOGGER.error(
                    "exercise-set '%s': %s is missing", slug, source.name, location=docname
                )
                continue
            (out / "_exercises").mkdir(exist_ok=True)
            shutil.copyfile(source, out / "_exercises" / source.name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register directives, nodes and checks."""
    skip = (visit_other, depart_other)
    app.add_node(tag, html=(visit_tag, depart_tag), latex=skip, text=skip, epub=skip, man=skip)
    passing = (visit_explorer_other, depart_other)
    app.add_node(
        explorer_node,
        html=(visit_explorer, depart_explorer),
        latex=passing,
        text=passing,
        epub=passing,
        man=passing,
    )
    app.add_directive("predict", PredictDirective)
    app.add_directive("quiz", QuizDirective)
    app.add_directive("goals", GoalsDirective)
    app.add_directive("misconception", MisconceptionDirective)
    app.add_directive("exercise-set", ExerciseSetDirective)
    app.add_directive("exercise-sets", ExerciseSetsDirective)
    app.add_directive("explorer", ExplorerDirective)
    app.connect("doctree-read", check_cells, priority=300)
    app.connect("build-finished", copy_files)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
