"""Tell a learner what everything that grades makes of a notebook, as the grader would.

The test cells are the instructor's, hidden inputs included, wherever the course's sources are at
hand; a notebook alone has only its own visible tests, and then the last line says how many
properties are untested. The notebook on disk is not changed.
"""

import dataclasses
import json
import os
import pickle
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attn_course._extras import need
from attn_course.exercises.assignment import Assignment, TestResult, grade_metadata, load_assignment
from attn_course.exercises.submission import (
    OTHER_VERSION,
    Submission,
    Unreadable,
    parse_notebook,
    read_submission,
)

_SEED = "ATTN_COURSE_SEED"
_CHECKOUT = Path(__file__).resolve().parents[2]
_SLUG = re.compile(r"\d\d_[a-z0-9_]+")
_STYLES = {"ok": "green", "partial": "yellow", "not started": "dim"}


@dataclasses.dataclass(frozen=True)
class CheckedTest(TestResult):
    """A result with its state: ``ok``, ``partial``, ``wrong``, ``not started``, ``error``,
    ``timeout`` or ``not run``; ``parts`` are those of a probe's report, by their labels."""

    state: str = "not run"
    parts: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def function(self) -> str:
        """Name of the learner's function that is tested."""
        return self.grade_id.split("-")[0]


@dataclasses.dataclass
class NotebookResult:
    """What a whole notebook gave; ``problem`` is set when it could not be run at all."""

    path: str
    problem: str = ""
    notes: list[str] = dataclasses.field(default_factory=list)
    tests: list[CheckedTest] = dataclasses.field(default_factory=list)
    read_by_a_person: dict[str, float] = dataclasses.field(default_factory=dict)
    untested_properties: int = 0
    hidden_inputs: bool = False
    more: tuple[str, ...] = ()
    seed: str = ""

    @property
    def passed(self) -> bool:
        """Whether every test cell is ``ok``; cells that a person reads do not count."""
        return not self.problem and all(test.state == "ok" for test in self.tests)

    def earned(self, *, more: bool) -> tuple[float, float]:
        """Points earned and points of the core, or of what is more."""
        tests = [test for test in self.tests if (test.function in self.more) == more]
        return _points(tests)


def _points(tests: list[CheckedTest]) -> tuple[float, float]:
    return sum(test.score or 0.0 for test in tests), sum(test.max for test in tests)


def check_notebook(
    path: Path,
    *,
    timeout: float = 60,
    seed: int | None = None,
    watch: Callable[[CheckedTest], None] = lambda test: None,
) -> NotebookResult:
    """Run a notebook in a process of its own and read the outcome of each test cell.

    Args:
        path: The learner's notebook.
        timeout: Seconds that one cell may take.
        seed: Of the random inputs; None takes ``ATTN_COURSE_SEED`` or draws one.
        watch: Called with each result as it comes.
    """
    drawn = os.environ.get(_SEED) or str(secrets.randbelow(2**31))
    result = NotebookResult(str(path), seed=drawn if seed is None else str(seed))
    try:
        if path.suffix != ".ipynb":
            raise Unreadable("not a notebook (the name does not end in .ipynb)")
        data = path.read_bytes()
        notebook = parse_notebook(data)
        assignment = _assignment(notebook, data, path, result)
        submission = read_submission(notebook, assignment)
        if submission.stripped:
            raise Unreadable("no test cells in it: is this a notebook from exercises/?")
        result.notes += submission.notes
        if any(note.startswith(OTHER_VERSION) for note in submission.notes):
            result.notes.append(
                "cells with the same name are compared; if one is missing, copy your answers into today's "
                f"exercises/{assignment.slug}/{assignment.slug}.ipynb"
            )
        result.read_by_a_person = dict(assignment.manual)
        result.more = assignment.more
        result.tests = _run(assignment, submission, result, timeout, watch)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        result.problem = " ".join(str(error).split())[:200]
    return result


def _assignment(
    notebook: dict[str, Any], data: bytes, path: Path, result: NotebookResult
) -> Assignment:
    """The instructor's version, or what the notebook itself holds of it."""
    about = grade_metadata(notebook, "attn_course")
    slug, hidden = str(about.get("slug", "")), about.get("hidden", 0)
    folders = (_CHECKOUT, *path.resolve().parents) if _SLUG.fullmatch(slug) else ()
    sources = [folder / "solutions" / slug / "exercise.py" for folder in folders]
    if source := next(filter(Path.is_file, sources), None):
        need("jupytext", "exercises", "attn-course check")
        from attn_course.exercises.source import read_exercise

        data = json.dumps(read_exercise(source)).encode()
        result.hidden_inputs = True
    elif isinstance(hidden, int):
        result.untested_properties = hidden
    return load_assignment(data, slug or path.stem)


def _run(
    assignment: Assignment,
    submission: Submission,
    result: NotebookResult,
    timeout: float,
    watch: Callable[[CheckedTest], None],
) -> list[CheckedTest]:
    """Run the tests; one that never ends or kills the process costs itself, not those after it."""
    tests = {test.grade_id: CheckedTest(test.grade_id, 0.0, test.points) for test in assignment.tests}
    done: dict[str, CheckedTest] = {}
    for name, test in tests.items():
        cell = assignment.solutions.get(test.function, "")
        if cell in submission.lost:
            why = f"{cell}: {submission.lost[cell]}"
            done[name] = dataclasses.replace(test, state="error", message=why)
    while left := tuple(test for test in assignment.tests if test.grade_id not in done):
        at = ""
        job = dataclasses.replace(assignment, tests=left), submission.cells, timeout
        for kind, place, what in _messages(job, result.seed, timeout):
            at = place or at
            if kind == "result":
                done[at] = what
                watch(what)
            elif kind == "raised":
                note = f"the cell {at!r} stops with {what}"
                result.notes += [note] if note not in result.notes else []
            elif kind in ("error", "timeout") and at in tests and at not in done:
                done[at] = dataclasses.replace(tests[at], state=kind, message=what)
            elif kind in ("error", "timeout"):
                where = f"the cell {at!r}" if at else "the notebook"
                result.notes.append(f"{where}: {what}; no test was run")
                return list((tests | done).values())
            if len(done) == len(tests):
                break
    return list((tests | done).values())


def _messages(job: object, seed: str, timeout: float) -> Iterator[tuple[str, str, Any]]:
    """What a workbench says: kind, cell, and what there is to tell; at last why it ended."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as noise,
        # for what a cell writes
        tempfile.TemporaryDirectory(prefix="attn-check-", ignore_cleanup_errors=True) as folder,
    ):
        pickle.dump(job, given)
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "attn_course.exercises.workbench"],
            cwd=folder,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=noise,
            env={**os.environ, _SEED: seed, "MPLBACKEND": "Agg", "TORCH_COMPILE_DISABLE": "1"},
        )
        with process:
            try:
                while True:
                    yield pickle.load(process.stdout)  # type: ignore[arg-type]
            except (EOFError, pickle.UnpicklingError):
                noise.seek(0)
                said = noise.read().decode(errors="replace").strip()
                if re.search(r"^Timeout \([\d:.]+\)!$", said, re.MULTILINE):  # of faulthandler
                    yield "timeout", "", f"took longer than {timeout:g} s (an endless loop?)"
                else:
                    text = "the process ended during the run (out of memory, or an exit?)"
                    yield "error", "", " ".join([text, *said.splitlines()[-1:]])[:250]
            finally:
                process.kill()


def check_notebooks(
    paths: list[Path], *, as_json: bool = False, timeout: float = 60, seed: int | None = None
) -> int:
    """Check notebooks, print what came out, and return the exit status.

    Returns:
        0 when every test of every notebook is ok, 1 when some are not, 2 when a notebook could not
        be run.
    """
    need("rich", "cli", "attn-course check")
    from rich.console import Console

    results = []
    for path in paths:
        with Console(stderr=True).status(path.name) as status:  # seen on a terminal only

            def watch(test: CheckedTest, status: Any = status) -> None:
                status.update(f"{test.grade_id}: {test.state}")

            result = check_notebook(path, timeout=timeout, seed=seed, watch=watch)
        results.append(result)
        if not as_json:
            _print(result)
    if as_json:
        told = [dataclasses.asdict(r) | {"passed": r.passed} for r in results]
        print(json.dumps(told, indent=2))
    if any(r.problem for r in results):
        return 2
    return 0 if all(r.passed for r in results) else 1


def causes(tests: list[CheckedTest]) -> list[list[CheckedTest]]:
    """Failed tests by what is behind them: one block for each cause, in the order of the notebook.

    Tests of one function with the same named mistake, or the same error, are one block, whatever
    the numbers in it.
    """
    found: dict[tuple[str, str], list[CheckedTest]] = {}
    for test in tests:
        if test.state not in ("ok", "not started", "not run") and test.message:
            cause = test.parts.get("likely cause") or test.parts.get("symptom") or test.message
            words = re.sub(r"-?\d[\d.e+/-]*", "#", cause).replace("differs", "differ")
            words = re.sub(r"\(#(, ?#)*,?\)", "(#)", words)
            found.setdefault((test.function, words), []).append(test)
    return list(found.values())


def _print(result: NotebookResult) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, stderr=bool(result.problem))
    if result.problem:
        console.print(f"{result.path}: {result.problem}", style="red", soft_wrap=True)
        return
    console.print(result.path, style="bold", soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name in dict.fromkeys(test.function for test in result.tests):
        tests = [test for test in result.tests if test.function == name]
        states = Text(", ").join(
            Text(f"{t.grade_id.split('-', 1)[-1]} {t.state}", style=_STYLES.get(t.state, "red"))
            for t in tests
        )
        table.add_row(name, "{:g}/{:g}".format(*_points(tests)), states)
    for name, points in result.read_by_a_person.items():
        table.add_row(name, f"-/{points:g}", Text("graded by a person", style="dim"))
    console.print(table)
    for note in result.notes:
        console.print(f"note: {note}", style="yellow", soft_wrap=True)
    soft = not sys.stdout.isatty()
    for block in causes(result.tests):
        listed = ", ".join(test.grade_id for test in block)
        console.print(f"\n{listed}: {block[0].state}", style="bold", soft_wrap=soft)
        parts = [f"{label}: {text}" for label, text in block[0].parts.items() if label != "seed"]
        for text in parts or [block[0].message]:
            console.print(f"  {text}", soft_wrap=soft)
    if any("seed" in test.parts for test in result.tests):
        again = f"The random inputs are those of seed {result.seed}; --seed {result.seed} draws them again."
        console.print(f"\n{again}", style="dim", soft_wrap=True)
    console.print(f"\n{_earned(result)}.", style="bold", soft_wrap=True)
    console.print(f"{_reach(result)}.", style="dim", soft_wrap=True)


def _earned(result: NotebookResult) -> str:
    """Points of the core, and of what is more where a set has it."""
    (core, of), (more, of_more) = (result.earned(more=more) for more in (False, True))
    if not of_more:
        return f"{core:g} of {of:g} points"
    return f"Core: {core:g} of {of:g} points; more: {more:g} of {of_more:g}"


def _reach(result: NotebookResult) -> str:
    """What the points rest on."""
    if result.hidden_inputs:
        return "All tests ran, including hidden inputs"
    told = "Only the tests in this notebook ran"
    if not result.untested_properties:
        return f"{told}; a grader adds hidden inputs"
    return (
        f"{told}; {result.untested_properties} properties are untested: their inputs are in the "
        "course's sources, which were not found"
    )
