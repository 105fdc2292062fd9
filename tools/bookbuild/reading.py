"""How long a page takes: words of prose, code cells in view, questions.

One measure for the goals box of a page, its notebook, and ``tools/book.py words``. Knows nothing
but the text of the page. The constants are least squares, rounded, on 53 pages whose cold readers
noted their minutes, among those that leave no main page above 60: root mean square of the error
4.7 minutes, mean 1.6 too few.
"""

import ast
import re
from dataclasses import dataclass

MINUTES_A_PAGE = 5  # pictures, folded code, finding one's place
WORDS_A_MINUTE = 110
MINUTES_A_CELL = 1.5
MINUTES_A_QUESTION = 2

FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,}|:{3,})\s*(?P<rest>.*)$")
DIRECTIVE = re.compile(r"^\{(?P<name>[\w:.+-]+)\}\s*(?P<argument>.*)$")
OPTION = re.compile(r"^\s*:[\w-]+:(\s|$)")
FOLDED = re.compile(r"\b(hide|remove)-(input|cell)\b")
QUESTIONS = {"quiz", "predict"}
#: Directives whose body is prose: boxes. The body of any other one is code, data or nothing.
PROSE = {
    "goals",
    "misconception",
    "admonition",
    "dropdown",
    "margin",
    "sidebar",
    "topic",
    "epigraph",
    "table",
    "figure",
    "note",
    "tip",
    "hint",
    "important",
    "warning",
    "caution",
    "attention",
    "danger",
    "error",
    "seealso",
}


@dataclass(frozen=True)
class Reading:
    """What a page asks of its reader; exercises are not in it.

    Args:
        words: of prose; a formula is one word; questions and code count apart.
        code_cells: that are in view, so neither folded by a tag nor made of checks alone.
        questions: quiz and predict boxes.
    """

    words: int
    code_cells: int
    questions: int

    @property
    def minutes(self) -> int:
        """Reading time, to 5 minutes."""
        exact = (
            MINUTES_A_PAGE
            + self.words / WORDS_A_MINUTE
            + self.code_cells * MINUTES_A_CELL
            + self.questions * MINUTES_A_QUESTION
        )
        return 5 * round(exact / 5)


def _is_check(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.For | ast.If | ast.With):
        return all(_is_check(one) for one in statement.body)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call):
        return ast.unparse(call.func).rsplit(".", 1)[-1].startswith("assert_")
    return isinstance(statement, ast.Assert)


def only_checks(code: str) -> bool:
    """True for a cell that holds nothing but checks and imports: none to read."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return False
    rest = [one for one in body if not isinstance(one, ast.Import | ast.ImportFrom)]
    return bool(rest) and all(_is_check(one) for one in rest)


def _words(text: str) -> int:
    text = re.sub(r"\$\$.*?\$\$(\s*\([\w:.-]+\))?", " formula ", text, flags=re.S)
    text = re.sub(r"(?<![\\$])\$[^$]+\$", "formula", text)
    text = re.sub(r"\{[\w:.+-]+\}`[^`]*`|`[^`\n]*`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1 ", text)
    text = re.sub(r"https?://\S+", "address", text)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def count(text: str) -> Reading:
    """Read a page.

    Args:
        text: the Markdown source of a page, front matter and all.

    Returns:
        Its words, code cells and questions.
    """
    if text.startswith("---\n"):
        _, _, text = text[4:].partition("\n---\n")
    lines = text.splitlines()
    prose = list[str]()
    cells = questions = 0
    number = 0
    boxes = list[str]()  # fences of the boxes around this line
    while number < len(lines):
        line = lines[number]
        number += 1
        found = FENCE.match(line)
        if not found:
            if not re.match(r"^\s*%|^\([\w:.-]+\)=\s*$|^\+\+\+", line):
                prose.append(line)
            continue
        fence, directive = found["fence"], DIRECTIVE.match(found["rest"])
        if boxes and not found["rest"] and fence == boxes[-1]:
            boxes.pop()
            continue
        if directive and directive["name"] in PROSE:
            boxes.append(fence)
            prose.append(directive["argument"])
            while number < len(lines) and OPTION.match(lines[number]):
                number += 1
            continue
        start = number
        while number < len(lines):
            end = FENCE.match(lines[number])
            number += 1
            if end and not end["rest"] and end["fence"].startswith(fence):
                break
        body = lines[start : number - 1]
        name = directive["name"] if directive else ""
        if name == "code-cell":
            head = 0
            while head < len(body) and OPTION.match(body[head]):
                head += 1
            tags, code = "\n".join(body[:head]), "\n".join(body[head:])
            cells += not FOLDED.search(tags) and not only_checks(code)
        questions += name in QUESTIONS
        if name == "math":
            prose.append("formula")
    return Reading(_words("\n".join(prose)), cells, questions)
