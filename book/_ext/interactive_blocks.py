"""What the interactive directives say, read from YAML and checked: shared by page and notebook.

Nothing here knows Sphinx: the directives (:mod:`attn_interactive`) and the notebook downloads
(:mod:`interactive_markdown`) read the same blocks with the same checks.
"""

import ast
import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from attn_course.exercises.plan import length
from attn_course.exercises.source import find_slugs, read_exercise

IDENTIFIER = re.compile(r"[a-z][a-z0-9-]*")
LETTERS = "ABCDEFGHIJ"
EXPLORERS = Path(__file__).resolve().parents[2] / "attn_course" / "explorers"


class BlockError(Exception):
    """A block that cannot be used: what is wrong, and in which line of its body (0-based).

    Without a line the opening line of the block is meant.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Text:
    """Markdown as the author wrote it, and the line of the block it starts in."""

    source: str
    line: int


@dataclass(frozen=True)
class Option:
    """One answer a reader can choose."""

    text: Text
    correct: bool
    why: Text | None = None


@dataclass(frozen=True)
class Quiz:
    """A question whose every option is explained."""

    id: str
    question: Text
    options: tuple[Option, ...]
    revisits: Text | None = None


@dataclass(frozen=True)
class Predict:
    """A guess to be made before the output of the next cell is shown."""

    id: str
    question: Text
    why: Text
    key: Text  # Python: the index of the right option, or the number, when the cells have run
    options: tuple[Option, ...] = ()
    number: float | None = None
    tolerance: float = 0.0


@dataclass(frozen=True)
class Function:
    """One graded item of an exercise set; minutes are those of its exercise, on its first item."""

    name: str
    title: str
    tests: tuple[str, ...]
    points: float
    manual: bool
    more: bool
    minutes: int


@dataclass
class _Spots:
    """A YAML document as plain values, all scalars as strings, and the line of each."""

    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict)

    def plain(self, node: yaml.Node, path: tuple[str | int, ...] = ()) -> Any:
        self.lines[path] = node.start_mark.line
        if isinstance(node, yaml.MappingNode):
            result: dict[str, Any] = {}
            for key, value in node.value:
                if key.value in result:
                    raise BlockError(f"the key '{key.value}' stands twice", key.start_mark.line)
                result[key.value] = self.plain(value, (*path, key.value))
            return result
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(value, (*path, i)) for i, value in enumerate(node.value)]
        if node.style in ("|", ">"):
            self.lines[path] += 1
        return str(node.value).strip("\n")


def _load(lines: Sequence[str]) -> tuple[dict[str, Any], dict[tuple[str | int, ...], int]]:
    source = "\n".join(lines)
    try:
        node = yaml.compose(source, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        hint = ""
        if line < len(lines) and re.search(r":\s*[`\[{@%*&!]|-\s+[`@%*&!]|\S: ", lines[line]):
            hint = " (put text with a leading ` or [, or with ': ' inside, in quotes or after '|')"
        raise BlockError(f"not valid YAML: {error.problem}{hint}", line) from None
    except yaml.YAMLError as error:
        raise BlockError(f"not valid YAML: {error}") from None
    if not isinstance(node, yaml.MappingNode):
        raise BlockError("expected keys such as 'question:' and 'options:'")
    spots = _Spots()
    return spots.plain(node), spots.lines


class _Reader:
    """Takes keys out of a block and complains with the line they stand in."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.values, self.lines = _load(lines)

    def line(self, *path: str | int) -> int:
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def at(self, path: Sequence[str | int]) -> Any:
        value: Any = self.values
        for step in path:
            value = value[step]
        return value

    def known(self, allowed: Iterable[str], *path: str | int) -> None:
        allowed = list(allowed)
        for key in self.at(path):
            if key not in allowed:
                close = difflib.get_close_matches(key, allowed, n=1)
                guess = f", did you mean '{close[0]}'?" if close else ""
                raise BlockError(
                    f"unknown key '{key}'{guess} (allowed: {', '.join(allowed)})",
                    self.line(*path, key),
                )

    def text(self, *path: str | int, what: str) -> Text:
        parent = self.at(path[:-1])
        key = path[-1]
        value = (
            parent.get(key) if isinstance(parent, dict) and isinstance(key, str) else parent[key]
        )  # type: ignore[index]
        if value is None or value == "":
            raise BlockError(f"{what} is missing", self.line(*path))
        if not isinstance(value, str):
            raise BlockError(
                f"{what} must be text, got a {'list' if isinstance(value, list) else 'mapping'}"
                " (put text with ': ' inside in quotes or after '|')",
                self.line(*path),
            )
        return Text(value, self.line(*path))

    def options(self) -> list[Any]:
        options = self.values.get("options")
        if not isinstance(options, list) or len(options) < 2:
            raise BlockError("'options' must list at least two answers", self.line("options"))
        if len(options) > len(LETTERS):
            raise BlockError(f"at most {len(LETTERS)} options", self.line("options"))
        return options


def _identifier(argument: str) -> str:
    if not IDENTIFIER.fullmatch(argument):
        raise BlockError(
            f"the id must be lower-case letters, digits and '-', such as 'wu-q1', got {argument!r}"
        )
    return argument


def _number(text: Text, what: str) -> float:
    try:
        return float(text.source)
    except ValueError:
        raise BlockError(f"{what} must be a number, got {text.source!r}", text.line) from None


def _expression(text: Text) -> Text:
    try:
        ast.parse(text.source, mode="eval")
    except SyntaxError as error:
        row = text.line + (error.lineno or 1) - 1
        raise BlockError(f"'key' must be one Python expression: {error.msg}", row) from None
    return text


def read_quiz(argument: str, lines: Sequence[str]) -> Quiz:
    """A quiz block.

    Args:
        argument: what stands behind ``{quiz}``: the id.
        lines: the body.

    Raises:
        BlockError: if anything is missing, misspelt, or not exactly one option is correct.
    """
    identifier = _identifier(argument.strip())
    reader = _Reader(lines)
    reader.known(["question", "from", "options"])
    question = reader.text("question", what="'question'")
    options = []
    for i, option in enumerate(reader.options()):
        name = f"option {i + 1}"
        if not isinstance(option, dict):
            raise BlockError(
                f"{name} must have 'text:' and 'why:', got {option!r}", reader.line("options", i)
            )
        reader.known(["text", "correct", "why"], "options", i)
        correct = option.get("correct", "false")
        if correct not in ("true", "false"):
            raise BlockError(
                f"'correct' of {name} must be true or false, got {correct!r}",
                reader.line("options", i, "correct"),
            )
        options.append(
            Option(
                text=reader.text("options", i, "text", what=f"'text' of {name}"),
                correct=correct == "true",
                why=reader.text("options", i, "why", what=f"'why' of {name}"),
            )
        )
    right = [i + 1 for i, option in enumerate(options) if option.correct]
    if not right:
        raise BlockError("no option is marked 'correct: true'", reader.line("options"))
    if len(right) > 1:
        raise BlockError(
            f"options {', '.join(map(str, right))} are all marked correct, only one may be",
            reader.line("options", right[1] - 1, "correct"),
        )
    revisits = reader.text("from", what="'from'") if "from" in reader.values else None
    return Quiz(id=identifier, question=question, options=tuple(options), revisits=revisits)


def read_predict(argument: str, lines: Sequence[str]) -> Predict:
    """A predict block: options with the index of the right one, or a number with a tolerance.

    Args:
        argument: what stands behind ``{predict}``: the id.
        lines: the body.

    Raises:
        BlockError: if anything is missing, misspelt or out of range.
    """
    identifier = _identifier(argument.strip())
    reader = _Reader(lines)
    reader.known(["question", "type", "options", "answer", "tolerance", "why", "key"])
    question = reader.text("question", what="'question'")
    answer = reader.text("answer", what="'answer'")
    why = reader.text("why", what="'why'")
    key = _expression(reader.text("key", what="'key' (Python: the answer, from the result)"))
    kind = reader.values.get("type", "choice" if "options" in reader.values else "number")
    if kind == "number":
        if "options" in reader.values:
            raise BlockError("'type: number' takes no 'options'", reader.line("options"))
        value = _number(answer, "'answer'")
        if "tolerance" in reader.values:
            tolerance = _number(reader.text("tolerance", what="'tolerance'"), "'tolerance'")
            if not tolerance >= 0:
                raise BlockError("'tolerance' must not be negative", reader.line("tolerance"))
        elif value == int(value) if abs(value) != float("inf") else True:
            tolerance = 0.0
        else:
            raise BlockError(
                "'tolerance' is missing: how far may a guess be from the answer?",
                reader.line("answer"),
            )
        return Predict(identifier, question, why, key, number=value, tolerance=tolerance)
    if kind != "choice":
        raise BlockError(f"'type' must be choice or number, got {kind!r}", reader.line("type"))
    if "tolerance" in reader.values:
        raise BlockError("'tolerance' is for 'type: number'", reader.line("tolerance"))
    count = len(reader.options())
    if not re.fullmatch(r"\d+", answer.source) or int(answer.source) >= count:
        raise BlockError(
            f"'answer' must be the index of the right option, 0 to {count - 1}, "
            f"got {answer.source!r}",
            answer.line,
        )
    options = tuple(
        Option(reader.text("options", i, what=f"option {i + 1}"), i == int(answer.source))
        for i in range(count)
    )
    return Predict(identifier, question, why, key, options=options)


def read_explorer(argument: str) -> str:
    """The name of an explorer, checked against those of the package.

    Raises:
        BlockError: if there is no such explorer.
    """
    name = argument.strip()
    known = sorted(p.stem for p in EXPLORERS.glob("*.js") if not p.stem.startswith("_"))
    if name not in known:
        raise BlockError(f"no explorer {name!r} (there are: {', '.join(known) or 'none yet'})")
    return name


def read_exercises(slug: str, root: Path) -> list[Function]:
    """The graded items of a set, from the metadata of ``solutions/<slug>/exercise.py``.

    Args:
        slug: the chapter.
        root: the checkout.

    Raises:
        BlockError: if there is no such set, or a cell's metadata cannot be read.
    """
    source = root / "solutions" / slug / "exercise.py"
    if not source.is_file():
        known = sorted(p.parent.name for p in root.glob("solutions/*/exercise.py"))
        raise BlockError(f"no exercise set {slug!r} (there are: {', '.join(known) or 'none yet'})")
    try:
        notebook = read_exercise(source)
    except ValueError as error:
        raise BlockError(str(error)) from None
    title, found = "", dict[str, dict[str, Any]]()
    for cell in notebook.cells:
        text = cell.source if cell.cell_type == "markdown" else ""
        if heading := re.search(r"^##+ (?:\d+[.)]? *)?(.+)$", text, re.M):
            title = heading[1].strip()
        meta = cell.metadata.get("nbgrader", {})
        if not meta.get("grade"):
            continue
        name, _, test = meta["grade_id"].partition("-")
        item = found.setdefault(
            name, {"title": title, "tests": [], "points": 0.0, "manual": bool(meta["solution"])}
        )
        item["points"] += float(meta["points"])
        if test:
            item["tests"].append(test.replace("_", " "))
    if not found:
        raise BlockError(f"exercise set {slug!r} has no graded cell")
    about = notebook.metadata["attn_course"]
    more, minutes = about["more"], about["minutes"]
    return [
        Function(
            name,
            i["title"],
            tuple(i["tests"]),
            i["points"],
            i["manual"],
            name in more,
            minutes.get(name, 0),
        )
        for name, i in found.items()
    ]


def totals(items: list[Function]) -> str:
    """Points and minutes of a set in one sentence: its core, and what is more."""
    parts = []
    for part, more in (("core", False), ("more", True)):
        chosen = [one for one in items if one.more == more]
        if chosen:
            earned = points(sum(one.points for one in chosen))
            parts.append(
                f"{part}: {earned} points, about {length(sum(one.minutes for one in chosen))}"
            )
    return "; ".join(parts)


def table_of_sets(root: Path) -> list[tuple[str, str, str, str]]:
    """A row for each set: its name, the core's items, the core's size, the size of what is more."""
    rows = []
    for slug in find_slugs(root):
        items = read_exercises(slug, root)
        sizes = [totals([i for i in items if i.more == more]) for more in (False, True)]
        core = ", ".join(item.name for item in items if not item.more)
        rows.append((slug, core, *(size.partition(": ")[2] for size in sizes)))
    return rows


def points(value: float) -> str:
    """Points without a needless ``.0``."""
    return f"{value:g}"
