"""What is graded: the instructor's cells of one assignment, with their points."""

import ast
import dataclasses
import functools
import json
import re
from typing import Any

from attn_course.exercises.sealed import with_peers

LOOK = {"look": True}  # metadata of a cell that shows something, and grades nothing
_VERSION = re.compile(r"\d[\w.+-]{0,39}")


@dataclasses.dataclass(frozen=True)
class TestCell:
    """A cell of the instructor that grades."""

    grade_id: str
    points: float
    source: str


@dataclasses.dataclass(frozen=True)
class TestResult:
    """What one test cell gave; ``score`` is None when it could not be graded."""

    grade_id: str
    score: float | None
    max: float
    message: str = ""
    misconception: str | None = None
    seconds: float = 0.0
    line: int | None = None  # of the test cell, where it failed; for its author


@dataclasses.dataclass(frozen=True)
class Assignment:
    """The instructor's version of a notebook.

    Args:
        slug: name of the assignment and of its notebook.
        tests: automatic test cells in order, hidden tests included.
        manual: grade ids and points of answers that a person grades.
        locked: grade ids and sources of the instructor's own code cells that are not tests.
        solutions: names that the learner writes, each with the grade id of its cell.
        cells: type of every cell that has a grade id.
        forbidden: library calls refused to a name while it is graded; a call of torch brings SciPy.
        plain: those of the names that are functions and return: what they give is plain data.
        version: of the set, as its notebook says; "" where it says none.
        more: functions and written answers that are optional.
        believed: whether what is reported from inside of the learner's process counts.
    """

    slug: str
    tests: tuple[TestCell, ...] = ()
    manual: dict[str, float] = dataclasses.field(default_factory=dict)
    locked: dict[str, str] = dataclasses.field(default_factory=dict)
    solutions: dict[str, str] = dataclasses.field(default_factory=dict)
    cells: dict[str, str] = dataclasses.field(default_factory=dict)
    forbidden: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    plain: tuple[str, ...] = ()
    version: str = ""
    more: tuple[str, ...] = ()
    believed: bool = True

    @functools.cached_property
    def imports(self) -> tuple[str, ...]:
        """Modules that the instructor's own cells import, the course's own left out."""
        cells = [ast.Module(statements(source), []) for source in self.locked.values()]
        found = [node for cell in cells for node in ast.walk(cell)]
        names = [one.name for node in found if isinstance(node, ast.Import) for one in node.names]
        names += [str(node.module) for node in found if isinstance(node, ast.ImportFrom)]
        return tuple(dict.fromkeys(n for n in names if n.split(".")[0] != "attn_course"))

    def without_advisory(self) -> "Assignment":
        """The same, less what only the learner's process can report.

        Tests of what a call left on tensors (``student.traces``) go; in every other test,
        arguments may be changed in place, and of memory only what is seen from outside counts.
        """
        tests = tuple(test for test in self.tests if "student.traces" not in self._reached(test))
        return dataclasses.replace(self, tests=tests, believed=False)

    def _reached(self, test: TestCell) -> str:
        """The source of a test cell, and of the instructor's cells that define what it names."""
        names = set(re.findall(r"\w+", test.source))
        cells = [*self.locked.values(), *(one.source for one in self.tests)]
        return test.source + "".join(c for c in cells if names & defined(c).keys())

    @property
    def max_score(self) -> float:
        """Points of the automatic test cells."""
        return sum(test.points for test in self.tests)


def cell_source(cell: dict[str, Any]) -> str:
    """Source of a cell of the notebook's JSON; "" when it has none."""
    source = cell.get("source", "")
    if isinstance(source, list):
        return "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""


def grade_metadata(cell: dict[str, Any], section: str = "nbgrader") -> dict[str, Any]:
    """A cell's nbgrader metadata, or another section; {} when it has none or it is malformed."""
    found = cell.get("metadata")
    found = found.get(section) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def shows_only(cell: dict[str, Any]) -> bool:
    """Whether a cell only shows what the learner's functions do; nothing that grades runs it."""
    return grade_metadata(cell, "attn_course") == LOOK and "grade_id" not in grade_metadata(cell)


def stated_version(notebook: dict[str, Any]) -> str:
    """The version of the set that a notebook says it is of; "" when it says none."""
    version = grade_metadata(notebook, "attn_course").get("version")
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else ""


def statements(source: str) -> list[ast.stmt]:
    """A cell's statements; none where it is no Python."""
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []


def defined(source: str) -> dict[str, bool]:
    """Functions and classes that a cell defines.

    Returns:
        For each name whether it is a function that returns: no class, and no generator.
    """
    yields = ast.Yield | ast.YieldFrom
    return {
        node.name: isinstance(node, ast.FunctionDef)
        and not any(isinstance(part, yields) for part in ast.walk(node))
        for node in statements(source)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }


def with_tests_of(notebook: bytes, assignment: Assignment) -> bytes:
    """An instructor's notebook less the test cells that the assignment leaves out."""
    found = json.loads(notebook)
    kept = {test.grade_id for test in assignment.tests} | set(assignment.manual)
    metas = [grade_metadata(cell) for cell in found["cells"]]
    pairs = zip(metas, found["cells"], strict=True)
    found["cells"] = [c for m, c in pairs if not m.get("grade") or m.get("grade_id") in kept]
    return json.dumps(found).encode()


def load_assignment(data: bytes, slug: str) -> Assignment:
    """Read an instructor's notebook, with solutions and hidden tests.

    Args:
        data: the bytes of the notebook.
        slug: name of the assignment.

    Raises:
        ValueError: it is no notebook, has no test cell, or has a grade id twice.
    """
    notebook = json.loads(data)
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError(f"{slug}: expected a notebook with cells")
    more = grade_metadata(notebook, "attn_course").get("more")
    more = tuple(name for name in more if isinstance(name, str)) if type(more) is list else ()
    found = Assignment(slug, version=stated_version(notebook), more=more)
    tests: list[TestCell] = []
    plain: list[str] = []
    for cell in notebook["cells"]:
        meta, source, is_code = grade_metadata(cell), cell_source(cell), cell["cell_type"] == "code"
        grade_id, grade, solution = (meta.get(key) for key in ("grade_id", "grade", "solution"))
        if not grade_id:
            if is_code and not shows_only(cell):
                found.locked[f"cell-{len(found.locked)}"] = source
            continue
        if grade_id in found.cells:
            raise ValueError(f"{slug}: expected each grade_id once, got {grade_id!r} twice")
        found.cells[grade_id] = cell["cell_type"]
        if grade and solution:
            found.manual[grade_id] = float(meta["points"])
        elif is_code and grade:
            tests.append(TestCell(grade_id, float(meta["points"]), source))
        elif is_code and solution:
            refused = with_peers(cell["metadata"].get("attn_course", {}).get("forbidden", ()))
            for name, returns in (defined(source) or {grade_id: False}).items():
                found.solutions[name] = grade_id
                found.forbidden[name] = refused
                plain += [name] * returns
        elif is_code:
            found.locked[grade_id] = source
    for test in tests:
        try:
            ast.parse(test.source)
        except SyntaxError as error:
            where = f"{test.grade_id}, line {error.lineno}: {error.text or ''}".strip()
            raise ValueError(f"{slug}: expected Python in a test cell, got {where}") from None
    if not tests:
        raise ValueError(f"{slug}: expected at least one automatic test cell, got none")
    return dataclasses.replace(found, tests=tuple(tests), plain=tuple(plain))
