"""Pages as notebooks: every construct of the book becomes Markdown that Jupyter knows."""

import re
from pathlib import Path

import pytest
from bookbuild.asides import SourceError, read_source
from bookbuild.plain import Context, convert
from bookbuild.reading import count

BOOK = Path(__file__).resolve().parents[2] / "book"


@pytest.fixture
def context() -> Context:
    return Context(
        page="chapters/00_warm_up",
        site="https://site/",
        source="https://source/",
        cite=lambda keys, textual: f"<{keys}|{textual}>",
        title=lambda page: f"title of {page}",
        source_of=lambda dotted: f"source of {dotted}",
        explorer=lambda name: f"open({name!r})",
    )


@pytest.mark.parametrize(("myst", "markdown"), [
    ("{cite:t}`a2015` and {cite:p}`b,c`", "<a2015|True> and <b,c|False>"),
    ("{py:func}`~torch.nn.Module` and {func}`x.y`", "`Module` and `x.y`"),
    ("[notes](../notation.md#axes)", "[notes](https://site/notation.html#axes)"),
    ("[](../notation.md)", "[title of notation](https://site/notation.html)"),
    ("[here](#part)", "[here](https://site/chapters/00_warm_up.html#part)"),
    ("[out](https://other/)", "[out](https://other/)"),
    ("{doc}`text <../claims>`", "[text](https://site/claims.html)"),
    ("{ref}`the part <sec-part>`", "the part"),
    ("![seen](fig/a.png)", "![seen](https://source/chapters/fig/a.png)"),
    ("(a-label)=\n## Heading", "## Heading"),
    ("% a remark\nkept", "kept"),
    ("H{sub}`2`O", "H<sub>2</sub>O"),
])  # fmt: skip
def test_running_text(context: Context, myst: str, markdown: str) -> None:
    assert convert(myst, context) == [("markdown", markdown)]


def test_equations_keep_their_numbers(context: Context) -> None:
    text = (
        "$$\nx = 1\n$$ (eq-one)\n\n```{math}\n:label: eq-two\ny = 2\n```\n\n"
        "{eq}`eq-two` {eq}`eq-one`"
    )
    ((kind, made),) = convert(text, context)
    assert kind == "markdown"
    assert r"\tag{1} $$" in made
    assert "y = 2 \\tag{2}\n$$" in made
    assert made.endswith("(2) (1)")


def test_boxes_are_quoted_or_folded_and_may_nest(context: Context) -> None:
    text = "::::{dropdown} Why\nBecause.\n\n:::{note}\nInner {cite:t}`k`\n:::\n::::\n\nAfter"
    ((_, made),) = convert(text, context)
    assert made.startswith("<details>\n<summary>Why</summary>\n\nBecause.")
    assert "> **Note**\n>\n> Inner <k|True>" in made
    assert made.endswith("</details>\n\nAfter")


def test_source_of_the_package_is_shown(context: Context) -> None:
    text = "```{source} attn_course.x.softmax\n```"
    said = "`attn_course.x.softmax`:\n\n```python\nsource of attn_course.x.softmax\n```"
    assert convert(text, context) == [("markdown", said)]


def test_code_is_left_alone(context: Context) -> None:
    text = "```python\n# (x)=\n{role}`y` [a](b.md)\n% not a remark\n```"
    assert convert(text, context) == [("markdown", text)]


def test_explorer_becomes_a_cell(context: Context) -> None:
    text = "Before\n\n```{explorer} softmax_temperature\n:caption: Try it.\n```\n\nAfter"
    kinds = [kind for kind, _ in convert(text, context)]
    assert kinds == ["markdown", "code", "markdown"]


def test_quiz_folds_the_reason_of_every_option(context: Context) -> None:
    text = (
        "```{quiz} wu-q1\nquestion: Which {cite:t}`k`?\noptions:\n"
        "  - text: one\n    why: reason one\n"
        "  - text: two\n    correct: true\n    why: reason two\n```"
    )
    ((_, made),) = convert(text, context)
    asked, folded = made.split("<details>")
    assert "Which <k|True>?" in asked
    assert "reason" not in asked
    assert "right" not in asked
    assert "**A** is not right. reason one" in folded
    assert "**B** is right. reason two" in folded


def test_prediction_does_not_give_the_answer_away(context: Context) -> None:
    text = (
        "```{predict} wu-p1\nquestion: How many?\ntype: number\nanswer: 2\nkey: 1 + 1\n"
        "why: Count.\n```"
    )
    ((_, made),) = convert(text, context)
    assert "2" not in made.split("<details>")[0]
    assert "**2.** Count." in made


def test_pages_show_package_code_by_object_and_never_by_line() -> None:
    found = [
        f"{path.name}:{number}"
        for path in sorted([*BOOK.glob("*.md"), *BOOK.glob("[a-z]*/**/*.md")])
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.match(r"\s*(`{3,}|:{3,})\s*\{literalinclude\}", line)
    ]
    assert found == [], "write {source} with a dotted name"


def test_a_listing_is_the_object_without_docstrings(tmp_path: Path) -> None:
    package = tmp_path / "attn_course"
    package.mkdir()
    (package / "core.py").write_text(
        'SIZE = 3\n\n\nclass Box(dict):\n    """Doc."""\n\n    side = 1  # kept\n\n'
        '    @property\n    def area(self):\n        """Doc\n\n        more.\n        """\n\n'
        '        return self.side**2\n\n    def empty(self):\n        """Doc."""\n'
    )

    def code(name: str) -> str:
        return read_source(f"attn_course.core.{name}", tmp_path).code

    assert code("SIZE") == "SIZE = 3"
    assert code("Box.area") == (
        "class Box(dict):\n    @property\n    def area(self):\n        return self.side**2"
    )
    assert code("Box").startswith("class Box(dict):\n    side = 1  # kept\n\n    @property")
    assert code("Box").endswith("def empty(self):\n        ...")
    for wrong in ("attn_course.core", "attn_course.core.Bax", "os.path.join", "attn_course.no.x"):
        with pytest.raises(SourceError):
            read_source(wrong, tmp_path)


def test_reading_time_counts_prose_cells_in_view_and_questions() -> None:
    text = (
        "---\nfile_format: mystnb\n---\n# Two words\n\n"
        ":::{note} One\ntwo $x + y$ {cite:p}`k`\n:::\n"
        "% no word\n$$\na + b\n$$\n\n```{code-cell} ipython3\nx = 1\n```\n"
        "```{code-cell} ipython3\n:tags: [hide-input]\nx = 1\n```\n"
        "```{code-cell} ipython3\nfor y in (1, 2):\n    assert y > 0\n```\n"
        "```{quiz} q\nquestion: many words that do not count\n```\n"
        "```python\nneither = these\n```\n"
    )
    found = count(text)
    assert (found.words, found.code_cells, found.questions) == (7, 1, 1)
    assert count(text + "word " * 1800).minutes == 25
