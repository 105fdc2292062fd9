"""MyST text as plain Markdown that Jupyter and Colab render.

The book's directives (note, dropdown, source ...) mean nothing to Jupyter: here each
becomes quotes, lists, code or ``<details>``, and each role text, code or a link. The interactive
blocks (quiz, predict ...) are the business of :mod:`asides`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import yaml

from .asides import TRANSLATORS, fold, quote

OPEN = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,}|:{3,})(?P<rest>.*)$")
DIRECTIVE = re.compile(r"^\s*\{(?P<name>[\w:.+-]+)\}\s*(?P<argument>.*)$")
OPTION = re.compile(r"^:(?P<key>[\w-]+):\s*(?P<value>.*)$")
ROLE = re.compile(r"\{(?P<name>[\w:.+-]+)\}(?P<ticks>`+)(?P<content>.+?)(?P=ticks)", re.DOTALL)
TARGET = re.compile(r"^\([^()\s]+\)=\s*$")
COMMENT = re.compile(r"^\s*%")
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<url>[^)\s]+)\)")
IMAGE = re.compile(r"!\[(?P<alt>[^\]]*)\]\((?P<url>[^)\s]+)\)")
EQUATION_LABEL = re.compile(r"^(?P<close>.*\$\$)\s*\((?P<label>[\w:.-]+)\)\s*$", re.M)
EXPLICIT_TITLE = re.compile(r"^(?P<text>.*?)\s*<(?P<target>[^<>]+)>$", re.DOTALL)
ATTRIBUTES = re.compile(r"(?<=[\])`])\{[.#][^}]*\}")
ADMONITIONS = {
    "note": "Note",
    "tip": "Tip",
    "hint": "Hint",
    "important": "Important",
    "warning": "Warning",
    "caution": "Caution",
    "attention": "Attention",
    "danger": "Danger",
    "error": "Error",
    "seealso": "See also",
}

Segment = tuple[str, str]  # ("markdown" or "code", text)


@dataclass
class Context:
    """What the text of one page refers to.

    Args:
        page: name of the page, to resolve its relative links.
        site: address of the published book, ending in a slash.
        source: address of the book's source files, ending in a slash, for pictures.
        cite: ``(key, textual)`` to the text of a citation.
        title: page name to title.
        source_of: dotted name of an object to its source, as the page shows it.
        explorer: name of an explorer to the code that opens it in Jupyter.
        minutes: reading time of the page.
        chapter: number of the chapter, stands before the number of each equation.
        equations: label to number; one that is not there yet gets the next.
    """

    page: str
    site: str
    source: str
    cite: Callable[[str, bool], str]
    title: Callable[[str], str]
    source_of: Callable[[str], str]
    explorer: Callable[[str], str]
    minutes: int = 0
    chapter: str = ""
    equations: dict[str, int] = field(default_factory=dict)

    def equation(self, label: str) -> str:
        """The number of an equation: those of a chapter count anew."""
        number = self.equations.setdefault(label, len(self.equations) + 1)
        return f"{self.chapter}.{number}" if self.chapter else str(number)

    def resolve(self, target: str, *, root: str) -> str:
        """Address of a file named relative to the page."""
        from posixpath import dirname, join, normpath

        path = target.lstrip("/") if target.startswith("/") else join(dirname(self.page), target)
        return root + normpath(path)


def options_and_body(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split the ``:key: value`` lines (or a YAML block) off a directive's content."""
    if lines and lines[0].strip() == "---":
        end = next((n for n, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
        if end is not None:
            loaded = yaml.safe_load("\n".join(lines[1:end])) or {}
            return {str(key): str(value) for key, value in loaded.items()}, lines[end + 1 :]
    options: dict[str, str] = {}
    for number, line in enumerate(lines):
        found = OPTION.match(line.strip())
        if not found:
            return options, lines[number:]
        options[found["key"]] = found["value"]
    return options, []


def find_close(lines: list[str], start: int, fence: str) -> int:
    """Index of the line that closes the fence opened on the line before ``start``."""
    closing = re.compile(rf"^\s*{re.escape(fence[0])}{{{len(fence)},}}\s*$")
    depth = 0
    for number in range(start, len(lines)):
        if closing.match(lines[number]):
            if depth == 0:
                return number
            depth -= 1
        elif fence[0] == ":":  # colon fences of equal length nest
            opened = OPEN.match(lines[number])
            if opened and opened["fence"] == fence and DIRECTIVE.match(opened["rest"]):
                depth += 1
    return len(lines)


def join(segments: list[Segment]) -> str:
    """All of it as Markdown: code becomes a fenced block."""
    return "\n\n".join(
        text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in segments
    )


def convert(text: str, context: Context) -> list[Segment]:
    """Translate MyST text into Markdown and code cells, in order."""
    lines, segments, pending = text.splitlines(), list[Segment](), list[str]()

    def flush() -> None:
        block = inline("\n".join(pending), context).strip("\n")
        if block.strip():
            segments.append(("markdown", block))
        pending.clear()

    number = 0
    while number < len(lines):
        line = lines[number]
        opened = OPEN.match(line)
        if not opened:
            if not TARGET.match(line) and not COMMENT.match(line):
                pending.append(line)
            number += 1
            continue
        end = find_close(lines, number + 1, opened["fence"])
        content = [row.removeprefix(opened["indent"]) for row in lines[number + 1 : end]]
        directive = DIRECTIVE.match(opened["rest"])
        flush()
        if directive:
            segments += translate(directive["name"], directive["argument"], content, context)
        elif opened["fence"][0] == ":":
            segments += convert("\n".join(content), context)
        else:
            segments.append(("markdown", "\n".join(lines[number : end + 1])))
        number = end + 1
    flush()
    return merge(segments)


def merge(segments: list[Segment]) -> list[Segment]:
    """Join neighbouring Markdown into one cell."""
    merged: list[Segment] = []
    for kind, text in segments:
        if merged and kind == "markdown" and merged[-1][0] == "markdown":
            merged[-1] = ("markdown", f"{merged[-1][1]}\n\n{text}")
        else:
            merged.append((kind, text))
    return merged


def translate(name: str, argument: str, content: list[str], context: Context) -> list[Segment]:
    """One directive as Markdown."""
    if name in TRANSLATORS:
        return convert(TRANSLATORS[name](argument, content, context), context)
    options, body_lines = options_and_body(content)
    body = "\n".join(body_lines)

    def md(text: str) -> list[Segment]:
        return [("markdown", text)]

    def inner() -> str:
        return join(convert(body, context))

    title = inline(argument, context)
    if name in {"code-block", "code", "sourcecode"}:
        return md(f"```{argument}\n{body}\n```")
    if name == "source":
        dotted = argument.strip()
        return md(f"`{dotted}`:\n\n```python\n{context.source_of(dotted)}\n```")
    if name == "math":
        label = options.get("label") or options.get("name")
        return md(display_math("\n".join(filter(None, [argument, body])), label, context))
    if name in {"figure", "image"}:
        alt = options.get("alt", "figure")
        picture = f"![{alt}]({context.resolve(argument, root=context.source)})"
        return md("\n\n".join(filter(None, [picture, inner()])))
    if name in {"dropdown", "admonition-dropdown"}:
        return md(fold(title or "More", inner()))
    if name == "explorer":
        caption = inline(options.get("caption", ""), context)
        lead = f"**Explore: run the next cell and play with it.** {caption}".strip()
        return [("markdown", lead), ("code", context.explorer(argument.strip()))]
    if name == "continued":
        page = context.resolve(argument.strip(), root="").removesuffix(".md")
        return md(f"Continued on [{context.title(page)}]({context.site}{page}.html).")
    if name == "diagram":  # the drawing follows light and dark, so it stays in the book
        return md(f"*Diagram in the book: {inline(options.get('caption', ''), context)}*")
    if name in {"bibliography", "tableofcontents", "contents", "toctree", "index", "course-map"}:
        return []
    if name in {"table", "list-table", "csv-table"}:
        return md("\n\n".join(filter(None, [f"**{title}**" if title else "", inner()])))
    if name in {"margin", "sidebar", "epigraph", "topic", "card", "grid-item-card", "tab-item"}:
        return md(quote("\n\n".join(filter(None, [f"**{title}**" if title else "", inner()]))))
    if name == "admonition" or name in ADMONITIONS:
        heading = title if name == "admonition" else ADMONITIONS[name]
        lead = inner() if name == "admonition" else "\n\n".join(filter(None, [title, inner()]))
        return md(quote(f"**{heading}**\n\n{lead}"))
    return md("\n\n".join(filter(None, [f"**{title}**" if title else "", inner()])))


def display_math(formula: str, label: str | None, context: Context) -> str:
    tag = ""
    if label:
        tag = rf" \tag{{{context.equation(label)}}}"
    return f"$$\n{formula.strip()}{tag}\n$$"


def inline(text: str, context: Context) -> str:
    """Roles, links, pictures and labelled equations of running text."""
    rows = []
    for row in text.split("\n"):
        labelled = EQUATION_LABEL.match(row)
        if labelled:
            number = context.equation(labelled["label"])
            row = labelled["close"].removesuffix("$$").rstrip() + rf" \tag{{{number}}} $$"
        rows.append(row)
    text = ROLE.sub(lambda found: role(found["name"], found["content"], context), "\n".join(rows))
    text = ATTRIBUTES.sub("", text)
    text = IMAGE.sub(lambda found: _picture(found, context), text)
    return LINK.sub(lambda found: _link(found, context), text)


def _picture(found: re.Match[str], context: Context) -> str:
    url = found["url"]
    if "://" not in url:
        url = context.resolve(url, root=context.source)
    return f"![{found['alt']}]({url})"


def _link(found: re.Match[str], context: Context) -> str:
    url, text = found["url"], found["text"]
    if "://" in url or url.startswith("mailto:"):
        return found[0]
    if url.startswith("#"):
        return f"[{text or url[1:]}]({context.site}{context.page}.html{url})"
    path, _, anchor = url.partition("#")
    page = context.resolve(path, root="").removesuffix(".md")
    address = f"{context.site}{page}.html" if path.endswith(".md") else f"{context.site}{page}"
    return f"[{text or context.title(page)}]({address}{'#' + anchor if anchor else ''})"


def role(name: str, content: str, context: Context) -> str:
    """One role as Markdown."""
    titled = EXPLICIT_TITLE.match(content)
    text, target = (titled["text"], titled["target"]) if titled else ("", content)
    if name.startswith("cite"):
        textual = name in {"cite:t", "cite:ts", "cite"}
        return context.cite(content, textual)
    if name == "math":
        return f"${content}$"
    if name in {"eq", "math:numref"}:
        return f"({context.equation(content)})"
    if name == "doc":
        page = context.resolve(target, root="").removesuffix(".md")
        return f"[{text or context.title(page)}]({context.site}{page}.html)"
    if name in {"ref", "numref", "term", "any", "std:ref", "std:term"}:
        return text or target.replace("-", " ").replace("_", " ")
    if name in {"sub", "sup", "kbd"}:
        return f"<{name}>{content}</{name}>"
    if name.split(":")[-1] in {"func", "class", "meth", "mod", "attr", "data", "exc", "obj"}:
        return f"`{text or (target[1:].rsplit('.', 1)[-1] if target[:1] == '~' else target)}`"
    return text or content
