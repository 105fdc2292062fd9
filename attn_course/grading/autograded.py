"""The notebook that a person grades: what was handed in, in nbgrader's ``autograded`` folder.

Nothing of it is executed, by us or by the browser that shows it: nbgrader's pages pass HTML in
Markdown on, so what a student wrote is made text that no browser takes for a tag or a script.
"""

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import cell_source, grade_metadata
from attn_course.grading.results import Result

Cell = dict[str, Any]
MAX_TEXT = 4 << 20  # characters of a hand-in that a page shows; an answer has thousands
STAFF = "staff"  # tag of a cell for whoever grades
_LOST = "This cell was missing in what was handed in."
_PICTURE = re.compile(r"image/(png|jpeg|gif)")
_TAMED = (
    (re.compile(r"<(?=[A-Za-z/!?])"), "< "),  # no tag
    (re.compile(r"&(?=[#A-Za-z])"), "& "),  # no entity
    # No scheme and no host: a picture from outside would tell who reads the page, and when.
    (re.compile(r"(?<=[A-Za-z])(?<!attachment)\\?:(?=\S)"), " :"),
    (re.compile(r"(?<![\w)])\\?/\\?[/\\](?=\S)"), "/ /"),
    (re.compile(r"\\(?=href|csname|mmlToken|style|bbox)"), r"\\ "),  # no link in a formula
)


def graded_notebook(
    given: list[Any], result: Result, release: Any, models: Mapping[str, str] | None = None
) -> bytes:
    """What was handed in, with the instructor's own cells as released and each test's verdict.

    Args:
        given: the cells that were handed in, as they were parsed; none where they cannot be read.
        result: what the grader found.
        release: the released notebook, in which hidden tests are left out.
        models: see :func:`model_answers`; each stands below the answer, in a cell tagged STAFF.
    """
    templates = {
        name: cell for cell in release.cells if (name := grade_metadata(cell).get("grade_id"))
    }
    cells = _matched([cell for cell in given if isinstance(cell, dict)], templates)
    _restore(cells, templates)
    verdicts = {test.grade_id: test.message for test in result.tests if test.message}
    shown = []
    if result.status != "graded":
        told = f"{result.status.replace('_', ' ')}: {result.reason}"
        told = "\n".join(f"    {line}" for line in told.splitlines())  # a block of code
        shown.append(_cell("markdown", told, {}, "attn-course-status"))
    for number, cell in enumerate(cells):
        name = str(grade_metadata(cell).get("grade_id") or "")
        cell["id"] = name or f"cell-{number}"
        if name in verdicts and cell["cell_type"] == "code":
            text = verdicts[name] + "\n"
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": text}]
        shown.append(cell)
        if models and name in models:
            told = f"**For whoever grades**\n\n{models[name]}"
            shown.append(_cell("markdown", told, {"tags": [STAFF]}, f"{name}-model"))
    notebook = {"cells": shown, "metadata": release.metadata, "nbformat": 4, "nbformat_minor": 5}
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    return text.encode(errors="replace")  # half of a surrogate pair is no text


def model_answers(notebook: bytes) -> dict[str, str]:
    """The instructor's own text of each written answer, with its points, by grade id."""
    found = {}
    for cell in json.loads(notebook)["cells"]:
        meta, text = grade_metadata(cell), cell_source(cell)
        if meta.get("grade") and meta.get("solution"):
            found[meta["grade_id"]] = f"```\n{text}\n```" if cell["cell_type"] == "code" else text
    return found


def answers_in(page: Path | bytes) -> dict[str, str]:
    """Sources of the cells of an ``autograded`` notebook by grade id; {} where there is none."""
    try:
        found = json.loads(page if isinstance(page, bytes) else page.read_bytes())
        return dict(_sources(found["cells"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def untouched_answers(given: list[Any], release: Any) -> set[str]:
    """Grade ids of written answers that are as released: nbgrader gives them 0.

    There are none where the student added a cell: the answer may stand there.
    """
    sources, released = _sources(given), _sources(release.cells)
    new, ids = sources - released, dict(released).keys() - {"None"}
    if any(text.strip() for name, text in new if name not in ids):
        return set()
    metas = map(grade_metadata, release.cells)
    written = {meta["grade_id"] for meta in metas if meta.get("grade") and meta.get("solution")}
    return written & dict(sources).keys() - dict(new).keys()


def _sources(cells: list[Any]) -> set[tuple[str, str]]:
    """Grade id ("None" without one) and source of each cell."""
    found = [cell for cell in cells if isinstance(cell, dict)]
    return {(str(grade_metadata(cell).get("grade_id")), cell_source(cell)) for cell in found}


def _matched(given: list[Cell], templates: dict[str, Cell]) -> list[Cell]:
    """The student's cells; those of the assignment with its metadata, its own with its source."""
    if (size := sum(len(cell_source(cell)) for cell in given)) > MAX_TEXT:
        raise ValueError(f"it has {size:,} characters, a page shows {MAX_TEXT:,}")
    names = [grade_metadata(cell).get("grade_id") for cell in given]
    names = [name if isinstance(name, str) and name in templates else None for name in names]
    last = {name: place for place, name in enumerate(names)}  # of two answers, the one that ran
    cells = []
    for place, (cell, name) in enumerate(zip(given, names, strict=True)):
        if name is None or last[name] != place:
            kind = "code" if cell.get("cell_type") == "code" else "markdown"
            cells.append(_students(kind, cell, {}))
        elif grade_metadata(templates[name]).get("solution"):
            template = templates[name]
            cells.append(_students(template["cell_type"], cell, template["metadata"]))
        else:
            cells.append(_instructors(templates[name]))
    return cells


def _restore(cells: list[Cell], templates: dict[str, Cell]) -> None:
    """Put back what is gone, each cell behind the one that precedes it in the assignment."""
    before = None
    for name, template in templates.items():
        names = [None, *(grade_metadata(cell).get("grade_id") for cell in cells)]
        if name not in names:
            cell = _instructors(template)
            if grade_metadata(cell).get("solution"):
                cell["source"] = f"# {_LOST}" if cell["cell_type"] == "code" else _LOST
            cells.insert(names.index(before), cell)
        before = name


def _instructors(template: Cell) -> Cell:
    return _cell(template["cell_type"], cell_source(template), template["metadata"], "")


def _students(kind: str, cell: Cell, metadata: Cell) -> Cell:
    source = cell_source(cell)
    if kind == "code":
        return _cell(kind, source, metadata, "")
    for pattern, tame in _TAMED:
        source = pattern.sub(tame, source)
    attached = cell.get("attachments")
    pictures = attached.items() if isinstance(attached, dict) else ()
    kept = {name: found for name, given in pictures if (found := _pictures(given))}
    names = "|".join(map(re.escape, kept)) or "(?!)"
    # a page that names another picture than it has is not shown at all
    source = re.sub(rf"attachment:(?!(?:{names})[)\s>])", "attachment :", source)
    made = _cell(kind, source, metadata, "")
    return made | ({"attachments": kept} if kept else {})


def _pictures(found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        return {}
    return {
        kind: data
        for kind, data in found.items()
        if _PICTURE.fullmatch(kind)
        and isinstance(data, str)
        and re.fullmatch(r"[A-Za-z0-9+/=\s]*", data)
    }


def _cell(kind: str, source: str, metadata: Cell, identity: str) -> Cell:
    made = {"cell_type": kind, "id": identity, "metadata": copy.deepcopy(metadata)}
    made["source"] = source
    return made | ({"execution_count": None, "outputs": []} if kind == "code" else {})
