"""Run an exercise set in this process, and swap single functions, to try its own tests.

Scores are counted as nbgrader counts them: an exception is 0, a number as the last expression is
partial credit, anything else is full marks.
"""

import ast
import contextlib
import io
import linecache
import os
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from attn_course.exercises.assignment import shows_only
from attn_course.probes.draw import SEED_VARIABLE
from attn_course.probes.failure import NotStarted, ProbeFailure
from attn_course.probes.memo import Memo, remembering


@dataclass(frozen=True)
class Result:
    """What one test cell gave."""

    grade_id: str
    points: float
    score: float
    error: BaseException | None = None
    stderr: str = ""
    stdout: str = ""

    @property
    def full(self) -> bool:
        return self.score == self.points

    @property
    def not_started(self) -> bool:
        return isinstance(self.error, NotStarted)

    @property
    def misconception(self) -> str | None:
        return self.error.misconception if isinstance(self.error, ProbeFailure) else None


class Trial:
    """An exercise set whose setup and solution cells have run once.

    Args:
        notebook: What ``read_exercise`` returned, or a release.
        seed: Seed of every probe.
    """

    def __init__(self, notebook: Any, *, seed: int = 0) -> None:
        self.seed = seed
        self.memo = Memo()
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.tests: dict[str, tuple[float, types.CodeType, types.CodeType | None]] = {}
        self._mentions: dict[str, set[str]] = {}
        self.looks: list[str] = []
        for cell in notebook.cells:
            if cell.cell_type != "code":
                continue
            if shows_only(cell):
                self.looks.append(cell.source)
                continue
            meta = cell.metadata.get("nbgrader", {})
            if meta.get("grade") and not meta.get("solution"):
                self._add_test(meta["grade_id"], float(meta["points"]), cell.source)
            else:
                name = f"<{cell['id']}>"
                # Triton reads a kernel's source, as it would from the file of a Jupyter cell
                lines = cell.source.splitlines(True)
                linecache.cache[name] = (len(cell.source), None, lines, name)
                exec(compile(cell.source, name, "exec"), self.names)

    def run(self, grade_ids: list[str] | None = None) -> dict[str, Result]:
        """Run test cells, all of them by default, in the order of the notebook.

        As in a learner's notebook everything is computed, unless the caller remembers.
        """
        with _seed(self.seed):
            return {
                name: self._run_one(name)
                for name in self.tests
                if grade_ids is None or name in grade_ids
            }

    def run_with(self, name: str, function: Callable[..., Any]) -> dict[str, Result]:
        """Run the test cells that depend on ``name`` with another function in its place.

        As in the grader, what oracles and catalogue give on the same inputs is computed once.
        """
        original = self.names[name]
        self.names[name] = function
        try:
            with remembering(self.memo):
                return self.run(self.dependents(name))
        finally:
            self.names[name] = original

    def dependents(self, name: str) -> list[str]:
        """Return the test cells that use ``name``, directly or through another function."""
        reached = {name}
        grown = True
        while grown:
            grown = False
            for other, value in list(self.names.items()):
                if other not in reached and reached & _globals_used(value):
                    reached.add(other)
                    grown = True
        return [t for t, mentioned in self._mentions.items() if mentioned & reached]

    def _add_test(self, grade_id: str, points: float, source: str) -> None:
        tree = ast.parse(source)
        self._mentions[grade_id] = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            expression = ast.Expression(tree.body[-1].value)
            tree.body.pop()
            last = compile(expression, f"<{grade_id}>", "eval")
        self.tests[grade_id] = (points, compile(tree, f"<{grade_id}>", "exec"), last)

    def _run_one(self, grade_id: str) -> Result:
        points, body, last = self.tests[grade_id]
        out, err = io.StringIO(), io.StringIO()
        value, error = None, None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                exec(body, self.names)
                value = eval(last, self.names) if last is not None else None
            except Exception as caught:
                error = caught
        score = points
        if error is not None or err.getvalue():
            score = 0.0
        elif value is not None:
            # nbgrader reads anything but a plain number as full marks: refuse to rely on it.
            if type(value) not in (float, int):
                raise TypeError(f"{grade_id}: its last value is {value!r}, expected a plain float")
            score = float(value)
        return Result(grade_id, points, score, error, err.getvalue(), out.getvalue())


def _globals_used(value: Any) -> set[str]:
    code = getattr(value, "__code__", None)
    if code is not None:
        return set(_names_in(code))
    if isinstance(value, type):
        return set().union(*(_globals_used(v) for v in vars(value).values()), set())
    return set()


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


@contextlib.contextmanager
def _seed(value: int) -> Iterator[None]:
    before = os.environ.get(SEED_VARIABLE)
    os.environ[SEED_VARIABLE] = str(value)
    try:
        yield
    finally:
        if before is None:
            del os.environ[SEED_VARIABLE]
        else:
            os.environ[SEED_VARIABLE] = before
