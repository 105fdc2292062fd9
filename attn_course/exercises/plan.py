"""What of a set is core and what is more, and about how long each exercise takes.

The heading ``# More`` in ``exercise.py`` is the only mark: every exercise after it is optional.
nbgrader adds up the points of all cells of a notebook and knows no optional ones, so a course that
grades the core alone releases it alone: ``attn-course exercises build --core``.
"""

import itertools
import re
from dataclasses import dataclass
from typing import Any

from attn_course.exercises.assignment import grade_metadata

MORE = "# More"
# Minutes of an exercise, an estimate: calibrated so that a whole set takes the 3 to 8 hours that
# trial readers needed.
A_START, A_LINE, A_TEST, WORDS_A_MINUTE, A_REPORT = 5, 2.5, 2, 100, 30
FORMULA = (
    f"{A_START} minutes for each exercise, 1 for every {WORDS_A_MINUTE} words of its text, {A_LINE} "
    f"for each line of the model answer, {A_TEST} for each test; {A_REPORT} for an answer that a "
    "person reads; in steps of 5"
)
_SOLUTION = re.compile(r"### BEGIN SOLUTION(.*?)### END SOLUTION", re.DOTALL)


@dataclass(frozen=True)
class Exercise:
    """One numbered exercise of a set.

    Attributes:
        cell: Place of its heading among the cells.
        names: What it grades: functions, and answers that a person reads.
        more: Whether it is optional.
        minutes: Estimated, see ``FORMULA``.
        points: Of all its graded cells.
    """

    cell: int
    names: tuple[str, ...]
    more: bool
    minutes: int
    points: float


def is_more(cell: Any) -> bool:
    """Whether a cell is the heading behind which everything is optional."""
    return bool(cell.cell_type == "markdown" and cell.source.splitlines()[:1] == [MORE])


def read_plan(cells: list[Any]) -> list[Exercise]:
    """The exercises of a set in order; a ``## `` heading begins one.

    Args:
        cells: Of the instructor's notebook, with solutions.
    """
    found: list[Exercise] = []
    heads = [i for i, c in enumerate(cells) if c.cell_type == "markdown" and c.source[:3] == "## "]
    optional = next((i for i, cell in enumerate(cells) if is_more(cell)), len(cells))
    for start, end in itertools.pairwise([*heads, len(cells)]):
        names: dict[str, None] = {}
        points, minutes = 0.0, float(A_START)
        minutes += len(cells[start].source.split()) / WORDS_A_MINUTE
        for cell in cells[start:end]:
            meta = grade_metadata(cell)
            if meta.get("solution") and not meta.get("grade"):
                lines = "\n".join(_SOLUTION.findall(cell.source)).splitlines()
                minutes += A_LINE * sum(bool(line.split("#")[0].strip()) for line in lines)
            if meta.get("grade"):
                names[meta["grade_id"].split("-")[0]] = None
                points += float(meta["points"])
                minutes += A_REPORT if meta.get("solution") else A_TEST
        if names:
            steps = max(1, round(minutes / 5))
            found.append(Exercise(start, tuple(names), start > optional, 5 * steps, points))
    return found


def total(exercises: list[Exercise], *, more: bool) -> tuple[int, float]:
    """Minutes and points of the core, or of what is more."""
    chosen = [one for one in exercises if one.more == more]
    return sum(one.minutes for one in chosen), sum(one.points for one in chosen)


def length(minutes: int) -> str:
    """Minutes in words; hours from two on."""
    return f"{minutes} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def say_minutes(cells: list[Any]) -> None:
    """Write minutes and points under the headings of a set, and of its parts."""
    exercises = read_plan(cells)
    for one in exercises:
        head, _, text = cells[one.cell].source.partition("\n")
        what = f"*About {one.minutes} minutes, {one.points:g} points.*"
        cells[one.cell].source = f"{head}\n\n{what}\n{text}"
    (core, points), (rest, extra) = (total(exercises, more=more) for more in (False, True))
    for cell in cells:
        if is_more(cell):
            cell.source += (
                f"\n\nWhat follows is optional: about {length(rest)} for {extra:g} points. "
                "Choose what you like."
            )
    first = next((c for c in cells if c.cell_type == "markdown" and c.source[:2] == "# "), None)
    if first is not None and exercises:
        also = f", and there is more: {length(rest)}, {extra:g} points" if extra else ""
        first.source += (
            f"\n\nThe core takes about {length(core)} for {points:g} points{also}. "
            f"The times are estimates: {FORMULA}."
        )
