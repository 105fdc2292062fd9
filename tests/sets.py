"""The exercise sets of the course, each read once."""

from functools import cache
from pathlib import Path

import nbformat

from attn_course.exercises.assignment import load_assignment
from attn_course.exercises.source import find_slugs, read_exercise
from attn_course.probes.catalogue import collect, collect_variants, load_module

ROOT = Path(__file__).resolve().parents[1]
SLUGS = find_slugs(ROOT)


@cache
def source(slug, *, core=False):
    """The instructor's notebook."""
    return read_exercise(ROOT / "solutions" / slug / "exercise.py", core=core)


@cache
def assignment(slug):
    """What the grader reads of it."""
    return load_assignment(nbformat.writes(source(slug)).encode(), slug)


def release(slug):
    """The committed notebook of the learners."""
    return nbformat.read(ROOT / "exercises" / slug / f"{slug}.ipynb", as_version=4)


@cache
def misconceptions(slug):
    """The wrong answers of its catalogue."""
    path = ROOT / "solutions" / slug / "misconceptions.py"
    return collect(load_module(path, f"mis_{slug}")).misconceptions


@cache
def variants(slug):
    """Its other right answers."""
    return collect_variants(load_module(ROOT / "solutions" / slug / "variants.py", f"var_{slug}"))


def name_of(cell):
    """The grade id of a cell, or None."""
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def answers(slug):
    """The source of its solution cells by grade id."""
    code = (cell for cell in source(slug).cells if cell.cell_type == "code")
    solutions = (cell for cell in code if cell.metadata.get("nbgrader", {}).get("solution"))
    return {name_of(cell): cell.source for cell in solutions}


def filled(notebook, cells):
    """A copy of a notebook, in which some cells, by grade id, hold other source."""
    made = nbformat.from_dict(notebook)
    for cell in made.cells:
        cell.source = cells.get(name_of(cell), cell.source)
    return made
