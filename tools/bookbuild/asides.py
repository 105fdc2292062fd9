"""The interactive blocks of a page as plain Markdown, for its notebook.

The blocks are read by the book's own extension, so a page and its notebook cannot disagree.
Answers are folded in ``<details>``, which Jupyter and Colab show as a closed triangle.
"""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .common import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import interactive_blocks as blocks
from attn_numbers import chapter_number as chapter_number
from interactive_blocks import BlockError as BlockError
from listings import SourceError as SourceError
from listings import read_source as read_source

if TYPE_CHECKING:
    from .plain import Context


def fold(summary: str, body: str) -> str:
    """Text that is shown after a click."""
    return f"<details>\n<summary>{summary}</summary>\n\n{body.strip()}\n\n</details>"


def quote(text: str) -> str:
    """Text as a Markdown quotation."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def item(marker: str, text: str) -> str:
    """One entry of a list; its further lines are indented."""
    first, *rest = text.splitlines() or [""]
    return "\n".join([f"- {marker} {first}".rstrip(), *(f"  {line}".rstrip() for line in rest)])


def lettered(texts: Iterable[str]) -> str:
    pairs = zip(blocks.LETTERS, texts, strict=False)
    return "\n".join(item(f"**{letter}.**", text) for letter, text in pairs)


def quiz(argument: str, body: list[str], context: "Context") -> str:
    """A question, its options, and the reason for each of them folded."""
    spec = blocks.read_quiz(argument, body)
    origin = f" (from `{spec.revisits}`)" if spec.revisits else ""
    reasons = "\n".join(
        item(
            f"**{letter}** is {'right' if option.correct else 'not right'}.",
            option.why.source if option.why else "",
        )
        for letter, option in zip(blocks.LETTERS, spec.options, strict=False)
    )
    return "\n\n".join(
        [
            f"**Question{origin}.** {spec.question.source}",
            lettered(option.text.source for option in spec.options),
            fold("Answer, and why for every option", reasons),
        ]
    )


def predict(argument: str, body: list[str], context: "Context") -> str:
    """A question to answer before running the next cell."""
    spec = blocks.read_predict(argument, body)
    parts = [f"**Predict, then run the next cell.** {spec.question.source}"]
    if spec.options:
        parts.append(lettered(option.text.source for option in spec.options))
        right = next(
            letter
            for letter, option in zip(blocks.LETTERS, spec.options, strict=False)
            if option.correct
        )
        answer = f"**{right}.**"
    else:
        answer = f"**{spec.number:g}.**"
        if spec.tolerance:
            answer += f" A guess within {spec.tolerance:g} counts."
    return "\n\n".join([*parts, fold("Answer", f"{answer} {spec.why.source}")])


def goals(argument: str, body: list[str], context: "Context") -> str:
    text = "\n".join(body).strip()
    return f"**What you will be able to do** (about {context.minutes} minutes)\n\n{text}"


def misconception(argument: str, body: list[str], context: "Context") -> str:
    return quote(f"**Misconception: {argument}**\n\n" + "\n".join(body).strip())


def exercise_set(argument: str, body: list[str], context: "Context") -> str:
    """The graded items with their points, and where the notebook is."""
    slug = argument.strip()
    items = blocks.read_exercises(slug, ROOT)
    rows = ["| item | what | tests | points |", "|---|---|---|---:|"]
    for one in items:
        tests = "read by a person" if one.manual else ", ".join(one.tests)
        rows.append(f"| `{one.name}` | {one.title} | {tests} | {blocks.points(one.points)} |")
    total = blocks.points(sum(one.points for one in items))
    where = f"[{slug}.ipynb]({context.site}_exercises/{slug}.ipynb)"
    return f"**Exercises, {total} points** ({blocks.totals(items)}), in {where}.\n\n" + "\n".join(
        rows
    )


TRANSLATORS: dict[str, Callable[[str, list[str], "Context"], str]] = {
    "quiz": quiz,
    "predict": predict,
    "goals": goals,
    "misconception": misconception,
    "exercise-set": exercise_set,
}
