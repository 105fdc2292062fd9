"""For instructors: ``{syllabus}`` tables and ``{lesson}`` plans, with numbers from the sources.

A line of a syllabus is ``07 08 | what for``; a lesson is YAML::

    plan:
      - 20 board: What to write.
      - 10 predict sdp-divide: What to do with the guesses.
    questions:
      - ask: A question that opens a discussion.
        listen: What a good answer contains.

A step of a plan is ``board``, ``close``, ``predict ID``, ``explorer NAME`` or ``exercise NAME``;
the minutes of a plan add up to 90. Titles, goals, prerequisites, minutes, points and mistakes come
from the pages, the map, and the exercise set.
"""

import re
from collections import Counter
from typing import Any, ClassVar

import interactive_blocks as blocks
import yaml
from attn_interactive import ROOT, Block, element
from bookbuild.common import Book
from bookbuild.reading import count
from course_map import NAMES
from docutils import nodes
from docutils.parsers.rst import directives
from interactive_blocks import BlockError, Text
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri

from attn_course.probes.catalogue import load_catalogue

LESSON = 90
STEP = re.compile(r"(\d+) (board|close|predict|explorer|exercise)(?: (\S+))?")
GOALS = re.compile(r"^:::\{goals\}\n(.*?)^:::", re.MULTILINE | re.DOTALL)
OFTEN = 3  # mentions that make an earlier chapter one to build on


class Chapter:
    """What the sources say about a chapter."""

    def __init__(self, slug: str, book: Book) -> None:
        self.slug, self.page = slug, f"chapters/{slug}"
        if self.page not in book.pages:
            raise BlockError(f"no chapter {slug!r} in the table of contents")
        self.texts = {page: book.path(page).read_text("utf-8") for page in book.chapter(self.page)}
        self.title = f"{int(slug[:2])} {self.first(r'^# (.+)$')}"
        self.minutes = [count(text).minutes for text in self.texts.values()]
        self.items = blocks.read_exercises(slug, ROOT)
        self.core = [item for item in self.items if not item.more]

    def first(self, pattern: str) -> str:
        found = re.search(pattern, self.texts[self.page], re.MULTILINE)
        return found[1] if found else ""

    def place(self, kind: str, name: str) -> str:
        """The page, with anchor, on which a prediction or an explorer is."""
        for page, text in self.texts.items():
            if re.search(rf"^```\{{{kind}\}} {re.escape(name)}$", text, re.MULTILINE):
                return f"{page}.html#{kind}-{name}"
        raise BlockError(f"{self.slug} has no {kind} {name!r}")

    def steps(self, plan: list[dict[str, str]]) -> list[tuple[int, str, str, str]]:
        """Minutes, kind, name and text of each step of a lesson, checked against the chapter."""
        made = []
        for step in plan:
            ((key, text),) = step.items()
            found = STEP.fullmatch(key)
            if not found:
                raise BlockError(f"not a step of a plan: {key!r}")
            kind, name = found[2], found[3] or ""
            if kind in ("predict", "explorer"):
                self.place(kind, name)
            if kind == "exercise" and name not in [item.name for item in self.core]:
                raise BlockError(f"{name!r} is not in the core of {self.slug}")
            made.append((int(found[1]), kind, name, text))
        if (total := sum(minutes for minutes, *_ in made)) != LESSON:
            raise BlockError(f"the plan takes {total} minutes: expected {LESSON}")
        return made

    def builds_on(self) -> list[str]:
        """Numbers of earlier chapters that the pages name often, or that its quiz revisits."""
        text = "\n".join(self.texts.values())
        named = Counter(re.findall(r"\b[Cc]hapters? (\d\d)\b", text))
        asked = set(re.findall(r"^from: (\d\d)_", text, re.MULTILINE))
        often = {number for number, times in named.items() if times >= OFTEN}
        return sorted(number for number in asked | often if number < self.slug[:2])


class Teaching(Block):
    """What both directives need."""

    def link(self, target: str, text: str) -> nodes.Node:
        return element("a", text, href=relative_uri(f"{self.env.docname}.html", target))

    def chapter(self, number: str) -> Chapter:  # type: ignore[override]
        slug = next((slug for slug in NAMES if slug.startswith(number)), number)
        made = Chapter(slug, Book())
        for name in ("exercise.py", "misconceptions.py"):
            self.env.note_dependency(str(ROOT / "solutions" / slug / name))
        for page in made.texts:
            self.env.note_dependency(self.env.doc2path(page))
        return made

    def markdown(self, text: str) -> list[nodes.Node]:
        return self.inline(Text(text, 0), "the text")


def table(heads: tuple[str, ...], rows: list[list[Any]], foot: list[Any] | None = None) -> Any:
    """Rows of cells; a cell is text, a node or a list of nodes."""

    def row(cells: list[Any], kind: str = "td") -> Any:
        made = [cell if isinstance(cell, list) else [cell] for cell in cells]
        return element("tr", *(element(kind, *cell) for cell in made))

    parts = [
        element("thead", element("tr", *(element("th", head, scope="col") for head in heads))),
        element("tbody", *map(row, rows)),
    ]
    if foot:
        parts.append(element("tfoot", row(foot, "th")))
    return element("div", element("table", *parts, class_="table"), class_="attn-scroll")


def spans(parts: list[nodes.Node], between: str = ", ") -> list[nodes.Node]:
    """Nodes with text between them."""
    return [one for part in parts for one in (nodes.Text(between), part)][1:]


class SyllabusDirective(Teaching):
    """The argument heads the first column; ``:pages: all`` counts further pages too."""

    option_spec: ClassVar[dict[str, Any]] = {
        "pages": lambda text: directives.choice(text, ("main", "all"))
    }

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        every = self.options.get("pages", "main") == "all"
        rows, sums = [], [0, 0, 0.0]
        for number, line in enumerate(filter(str.strip, lines), 1):
            numbers, _, what = line.partition("|")
            found = [self.chapter(one) for one in numbers.split()]
            read = sum(sum(one.minutes) if every else one.minutes[0] for one in found)
            core = sum(item.minutes for one in found for item in one.core)
            points = sum(item.points for one in found for item in one.core)
            sums = [old + new for old, new in zip(sums, (read, core, points), strict=True)]
            names = [self.link(f"{one.page}.html", one.title) for one in found]
            first, _, rest = what.strip().rpartition(" :: ")
            row = [first or str(number), spans(names), str(read), str(core), f"{points:g}"]
            rows.append([*row, self.markdown(rest)])
        heads = (argument, "Chapters", "Reading, min", "Core, min", "Core, points", "In the lesson")
        total = [
            "Total",
            "",
            str(sums[0]),
            str(sums[1]),
            f"{sums[2]:g}",
            f"{sums[0] + sums[1]} min",
        ]
        return [table(heads, rows, total)]


class LessonDirective(Teaching):
    """The plan of one chapter, as a section of its own."""

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        one = self.chapter(argument)
        try:
            written = yaml.safe_load("\n".join(lines))
            plan, asked = written["plan"], written["questions"]
        except (yaml.YAMLError, KeyError, TypeError) as error:
            raise BlockError(f"a lesson has 'plan' and 'questions': {error}") from None
        section = nodes.section("", nodes.title("", one.title), ids=[f"lesson-{argument[:2]}"])
        number = argument[:2]
        links = (
            self.link(f"{one.page}.html", "the page"),
            self.link(f"slides/{number}.html", "slides"),
            self.link(f"questions/{number}.xml", "question bank"),
            self.link(f"_exercises/{argument}.ipynb", "exercise notebook"),
        )
        section += element("p", "For this lesson: ", *spans(list(links)), ".")
        goals = GOALS.search(one.texts[one.page])
        section += element("p", element("strong", "Goals, as on the page"))
        section += self.parse(Text(goals[1] if goals else "", 0))
        section += element("p", element("strong", "Before it:"), " ", *self.before(one))
        section += self.plan(one, plan)
        section += element("p", element("strong", "Discuss"))
        for entry in asked:
            listen = element("p", element("em", "Listen for: "), *self.markdown(entry["listen"]))
            section += element("blockquote", element("p", *self.markdown(entry["ask"])), listen)
        section += self.functions(one)
        return [section]

    def before(self, one: Chapter) -> list[nodes.Node]:
        """From the map: the chapter before, and the question that it leaves; what is built on."""
        slugs = list(NAMES)
        index = slugs.index(one.slug)
        if not index:
            return [nodes.Text("Python and linear algebra: no chapter.")]
        earlier = self.chapter(slugs[index - 1])
        made: list[nodes.Node] = [self.link(f"{earlier.page}.html", earlier.title)]
        made.append(nodes.Text(f". It leaves a question (“{NAMES[earlier.slug][1]}”). "))
        others = [self.chapter(one) for one in one.builds_on() if one != earlier.slug[:2]]
        if others:
            named = [self.link(f"{other.page}.html", other.title) for other in others]
            made += [nodes.Text("It also builds on "), *spans(named), nodes.Text(".")]
        return made

    def plan(self, one: Chapter, steps: list[dict[str, str]]) -> nodes.Node:
        """A table of steps from minute 0 to 90."""
        rows: list[list[Any]] = []
        clock = 0
        for minutes, kind, name, text in one.steps(steps):
            what: nodes.Node = nodes.Text(kind.capitalize())
            if kind == "exercise":
                what = element("span", "Exercise: ", element("code", name))
            elif name:
                label = {"predict": "Prediction", "explorer": "Explorer"}[kind]
                what = self.link(one.place(kind, name), label)
            rows.append([f"{clock}–{clock + minutes}", what, self.markdown(text)])
            clock += minutes
        return table(("Minutes", "What", "How"), rows)

    def functions(self, one: Chapter) -> list[nodes.Node]:
        """Minutes, points and catalogued mistakes of each function."""
        catalogue = load_catalogue(one.slug)
        rows: list[list[Any]] = []
        names = []
        for item in one.items:
            known = [wrong.name for wrong in catalogue.of(item.name)]
            minutes = str(item.minutes) if item.minutes else "with the one above"
            part = "more" if item.more else "core"
            cells = [element("code", item.name), part, minutes, blocks.points(item.points)]
            rows.append([*cells, str(len(known)) if known else "–"])
            if known:
                title = element("code", item.name)
                names.append(element("p", title, f": {'; '.join(known)}."))
        read = " + ".join(map(str, one.minutes))
        sizes = f"Reading {read} minutes. {blocks.totals(one.items).capitalize()}."
        heads = ("Function", "Part", "Minutes", "Points", "Mistakes in the catalogue")
        fold = element("details", element("summary", "Their names"), *names)
        return [element("p", element("strong", "The set."), f" {sizes}"), table(heads, rows), fold]


class LessonFilesDirective(Teaching):
    """Plan, slides and question bank of every chapter."""

    has_content, required_arguments = False, 0

    def build(self, argument: str, lines: list[str]) -> list[nodes.Node]:
        rows: list[list[Any]] = []
        for slug in NAMES:
            one, number = self.chapter(slug), slug[:2]
            slides = self.link(f"slides/{number}.html", "slides")
            bank = self.link(f"questions/{number}.xml", "questions")
            rows.append([self.link(f"{one.page}.html", one.title), slides, bank])
        rows.append(["All", "", self.link("questions/all.xml", "questions")])
        return [table(("Chapter", "Slides", "Question bank"), rows)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("lesson-files", LessonFilesDirective)
    app.add_directive("syllabus", SyllabusDirective)
    app.add_directive("lesson", LessonDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
