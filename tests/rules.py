"""The rules of a chapter, by its slug: each one that is not kept is one sentence, all at once.

``attn-course new chapter`` begins a page and a set that run and break some of them; the author
reads here what is still missing.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from trial import Trial

from attn_course.exercises.assignment import shows_only
from attn_course.exercises.source import solution_names

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from bookbuild.reading import count  # noqa: E402  the line above makes it importable

HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", re.DOTALL)
BOXES = {"goals": 1, "predict": 1, "quiz": 6, "explorer": 1, "source": 1, "exercise-set": 1}
QUESTION = re.compile(r"^# .*\n\n\*\*[^*\n]*\?\*\*", re.M)
ITEMS = ("fixed_", "check_", "accepts_")  # a program to mend, a test to write


def keeps(rules: Iterable[str]) -> None:
    """Fail with every rule that is not kept."""
    if broken := list(rules):
        pytest.fail("\n".join(broken), pytrace=False)


def boxes(name: str, text: str) -> list[str]:
    """The arguments of the directives of this name."""
    return re.findall(rf"^(?:`{{3,}}|:{{3,}})\{{{name}\}} *(.*)$", text, re.M)


def of_chapter(
    slug: str, main: str, further: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """What a chapter has on its pages: goals, predictions, questions, exercises, checks.

    Args:
        slug: the chapter.
        main: the text of its main page.
        further: the texts of the further pages, by file name without suffix.
    """
    kept, whole = {}, "\n".join([main, *further.values()])
    for name, least in BOXES.items():
        there = len(boxes(name, whole))
        # the capstone has a record of the reader's own in place of an explorer
        least -= (slug, name) == ("20_capstone", "explorer")
        kept[f"a chapter has {least} {{{name}}} or more, not {there}"] = there >= least
    cells = re.findall(r"^```+\{code-cell\}.*?\n(.*?)^```", whole, re.M | re.S)
    checks = sum("assert" in cell for cell in cells)
    kept[f"a chapter has 5 cells with a check (assert) or more, not {checks}"] = checks >= 5
    for name in ("goals", "exercise-set"):
        elsewhere = [page for page, text in further.items() if boxes(name, text)]
        kept[f"{{{name}}} is on the main page, not on {', '.join(elsewhere)}"] = not elsewhere
    first = count(main)
    kept[f"a page has 3000 words at most, not {first.words}"] = first.words <= 3000
    kept[f"a page takes 60 minutes at most, not {first.minutes}"] = first.minutes <= 60
    for page, text in further.items():
        words = count(text).words
        kept[f"{page} has 2500 words at most, not {words}"] = words <= 2500
        kept[f"{page} begins with its question, in bold"] = bool(QUESTION.search(text))
        kept[f"a page leads to {page} by {{continued}}"] = any(
            f"/{target}".endswith(f"/{page}.md") for target in boxes("continued", whole)
        )
    words = first.words + sum(count(text).words for text in further.values())
    kept[f"a chapter has 9000 words at most, not {words}"] = words <= 9000
    kept[f"a chapter has 3 further pages at most, not {len(further)}"] = len(further) <= 3
    yield from (f"{slug}: {rule}." for rule, holds in kept.items() if not holds)


def of_set(
    slug: str, whole: Any, core: Any, tried: Trial, wrong: Counter[str], right: Counter[str]
) -> Iterator[str]:
    """What an exercise set has.

    Args:
        slug: the set.
        whole: its notebook, with solutions.
        core: the same without what follows ``# More``.
        tried: ``whole``, run.
        wrong: how many misconceptions each graded function has.
        right: how many variants.
    """

    def graded(notebook: Any, kind: str) -> dict[str, str]:
        cells = [cell for cell in notebook.cells if cell.cell_type == kind]
        metas = [cell.metadata.get("nbgrader", {}) for cell in cells]
        return {
            meta["grade_id"]: cell.source
            for cell, meta in zip(cells, metas, strict=True)
            if meta.get("grade")
        }

    names = [name for name in solution_names(whole) if tried.dependents(name)]
    functions = [name for name in names if not name.startswith(ITEMS)]
    in_core = {test.split("-")[0] for test in graded(core, "code")}
    minutes = sum(core.metadata["attn_course"]["minutes"].values())
    looks = [
        {node.id for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Name)}
        for cell in core.cells
        if cell.cell_type == "code" and shows_only(cell)
    ]
    kept = {
        f"the core, before '# More', takes 60 to 90 minutes, not {minutes}": 60 <= minutes <= 90,
        f"the core has 2 to 5 graded functions, not {len(in_core)}": 2 <= len(in_core) <= 5,
        "graded functions follow the heading '# More'": len(in_core) < len(names),
        "one cell with look=true uses two graded functions of the core": len(looks) == 1
        and len(looks[0] & in_core) >= 2,
        f"a set has 3 graded functions or more, not {len(functions)}": len(functions) >= 3,
        "a set has a program to mend (fixed_...)": any(n.startswith(ITEMS[:1]) for n in names),
        "a set has a test to write (check_... or accepts_...)": any(
            n.startswith(ITEMS[1:]) for n in names
        ),
        "a set has a report that a person reads": bool(graded(whole, "markdown")),
    }
    for name in names:
        most, variants = (6, 2) if name in functions else (2, 0)
        kept[f"{name} has {most} misconceptions or more, not {wrong[name]}"] = wrong[name] >= most
        kept[f"{name} has {variants} variants or more, not {right[name]}"] = right[name] >= variants
    for name in wrong | right:
        kept[f"{name} has misconceptions or variants, so a test cell uses it"] = name in names
    for name, source in graded(whole, "code").items():
        kept[f"{name} begins with a visible test by a probe"] = "probe." in HIDDEN.sub("", source)
    yield from (f"{slug}: {rule}." for rule, holds in kept.items() if not holds)
