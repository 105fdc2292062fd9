"""Tell a learner what everything that grades makes of a notebook, as the grader would.

The test cells are the instructor's, hidden inputs included, wherever the course's sources are at
hand; a notebook alone has only its own visible tests, and then the last line says how many
properties are untested. The notebook on disk is not changed.
"""

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import Assignment, load_assignment
from attn_course.exercises.submission import (
    Submission,
    Unreadable,
    parse_notebook,
    read_submission,
)

_LABELS = ("symptom", "probe", "example", "expected", "likely cause", "seed")
_LABEL = re.compile(rf"^  ({'|'.join(_LABELS)}):\s+(.*)$")
_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass
class CheckedTest:
    """What one test cell says: ``ok``, ``partial``, ``wrong``, ``not started``, ``error``,
    ``timeout`` or ``not run``."""

    grade_id: str
    points: float
    state: str = "not run"
    score: float = 0.0
    message: str = ""
    misconception: str | None = None
    parts: dict[str, str] = field(default_factory=dict)


@dataclass
class NotebookResult:
    """What a whole notebook gave; ``problem`` is set when it could not be run at all."""

    path: str
    problem: str = ""
    notes: list[str] = field(default_factory=list)
    tests: list[CheckedTest] = field(default_factory=list)
    unread: dict[str, float] = field(default_factory=dict)
    untested: int = 0
    complete: bool = False

    @property
    def score(self) -> float:
        """Points earned."""
        return sum(test.score for test in self.tests)

    @property
    def points(self) -> float:
        """Points of all test cells; cells that a person reads do not count."""
        return sum(test.points for test in self.tests)

    @property
    def passed(self) -> bool:
        """Whether every test cell is ``ok``."""
        return not self.problem and all(test.state == "ok" for test in self.tests)

    def functions(self) -> dict[str, list[CheckedTest]]:
        """Return the tests of each graded function, in the order of the notebook."""
        found: dict[str, list[CheckedTest]] = {}
        for test in self.tests:
            found.setdefault(test.grade_id.split("-")[0], []).append(test)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        functions = [
            {
                "name": name,
                "score": sum(t.score for t in tests),
                "points": sum(t.points for t in tests),
                "tests": [asdict(t) for t in tests],
            }
            for name, tests in self.functions().items()
        ]
        return {
            "path": self.path,
            "problem": self.problem,
            "notes": self.notes,
            "passed": self.passed,
            "score": self.score,
            "points": self.points,
            "hidden_inputs": self.complete,
            "untested_properties": self.untested,
            "read_by_a_person": self.unread,
            "functions": functions,
        }


def check_notebook(
    path: Path,
    *,
    timeout: float = 60,
    seed: int | None = None,
    watch: Callable[[CheckedTest], None] | None = None,
) -> NotebookResult:
    """Run a notebook in a process of its own and read the outcome of each test cell.

    Args:
        path: The learner's notebook.
        timeout: Seconds that one cell may take.
        seed: Of the random inputs; None takes ``ATTN_COURSE_SEED`` or draws one.
        watch: Called with each result as it comes.
    """
    result = NotebookResult(str(path))
    bench: _Bench | None = None
    try:
        data = _read(path)
        notebook = parse_notebook(data)
        bench = _Bench()  # imports torch while the sources are read
        assignment = _assignment(notebook, data, path, result)
        submission = read_submission(notebook, assignment)
        if submission.stripped:
            raise Unreadable("no test cells in it: is this a notebook from exercises/?")
        result.notes += submission.notes
        result.unread = dict(assignment.manual)
        result.tests = [CheckedTest(test.grade_id, test.points) for test in assignment.tests]
        _run(assignment, submission, result, timeout, seed, watch or (lambda test: None), bench)
    except (Unreadable, ValueError) as error:
        result.problem = " ".join(str(error).split())[:200]
    finally:
        if bench is not None:
            bench.close()
    return result


def _read(path: Path) -> bytes:
    if not path.exists():
        raise Unreadable("no such file")
    if not path.is_file():
        raise Unreadable("not a file")
    if path.suffix != ".ipynb":
        raise Unreadable("not a notebook (its name does not end in .ipynb)")
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from None


def _about(notebook: dict[str, Any]) -> dict[str, Any]:
    """What the release says of itself."""
    metadata = notebook.get("metadata")
    found = metadata.get("attn_course") if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def find_source(slug: str, near: Path) -> Path | None:
    """The text source of a set: in the checkout of the package, or of the notebook."""
    for folder in (_CHECKOUT, *near.resolve().parents):
        source = folder / "solutions" / slug / "exercise.py"
        if source.is_file():
            return source
    return None


def _assignment(
    notebook: dict[str, Any], data: bytes, path: Path, result: NotebookResult
) -> Assignment:
    """The instructor's version, or what the notebook itself holds of it."""
    about = _about(notebook)
    slug = str(about.get("slug", ""))
    source = find_source(slug, path) if re.fullmatch(r"\d\d_[a-z0-9_]+", slug) else None
    if source is not None:
        from attn_course.exercises.source import read_exercise

        try:
            whole = read_exercise(source)
        except ModuleNotFoundError as error:
            result.notes.append(
                f"the hidden inputs were left out: {error.name} is missing "
                "(pip install 'attn-course[exercises]')"
            )
        else:
            result.complete = True
            return load_assignment(json.dumps(whole).encode(), slug)
    hidden = about.get("hidden", 0)
    result.untested = hidden if isinstance(hidden, int) else 0
    return load_assignment(data, slug or path.stem)


def _job(
    assignment: Assignment, submission: Submission, wanted: list[str], seed: int | None
) -> dict[str, Any]:
    return {
        "cells": list(submission.cells),
        "locked": assignment.locked,
        "solutions": assignment.solutions,
        "forbidden": {name: list(names) for name, names in assignment.forbidden.items()},
        "tests": [asdict(test) for test in assignment.tests if test.grade_id in wanted],
        "seed": seed,
    }


def _run(
    assignment: Assignment,
    submission: Submission,
    result: NotebookResult,
    timeout: float,
    seed: int | None,
    watch: Callable[[CheckedTest], None],
    bench: "_Bench",
) -> None:
    """Run the tests; one that never ends or kills the process costs itself, not those after it."""
    tests = {test.grade_id: test for test in result.tests}
    left = []
    for cell in assignment.tests:
        gone = [name for name in submission.lost if _uses(assignment, cell.grade_id, name)]
        if gone:
            tests[cell.grade_id].state = "error"
            tests[cell.grade_id].message = f"{gone[0]}: {submission.lost[gone[0]]}"
        else:
            left.append(cell.grade_id)
    told: set[str] = set()
    while left:
        at = ""
        job = _job(assignment, submission, left, seed)
        for message in _messages(bench if bench.fresh else _Bench(), job, timeout):
            if "result" in message:
                test = tests[message["result"]["grade_id"]]
                _judge(test, message["result"])
                watch(test)
                left.remove(test.grade_id)
                at = ""
            elif "seed" in message:
                seed = message["seed"]  # of the first process, for those that follow it
            elif "error" in message:
                note = f"the cell {message['error']!r} stops with {message['text']}"
                if note not in told:
                    told.add(note)
                    result.notes.append(note)
            elif "problem" in message:
                state, text = message["problem"]
                if at in tests:
                    tests[at].state, tests[at].message = state, text
                    left.remove(at)
                else:
                    where = f"the cell {at!r}" if at else "the notebook"
                    result.notes.append(f"{where}: {text}; no test was run")
                    return
            else:
                at = message.get("test") or message.get("cell") or at


def _uses(assignment: Assignment, grade_id: str, cell: str) -> bool:
    names = {name for name, place in assignment.solutions.items() if place == cell}
    return grade_id.split("-")[0] in names


class _Bench:
    """A workbench that has been started and waits for its job."""

    def __init__(self) -> None:
        self.fresh = True
        self.folder = tempfile.TemporaryDirectory(prefix="attn-check-")  # what a cell writes
        self.process = subprocess.Popen(
            [sys.executable, "-m", "attn_course.exercises.workbench"],
            cwd=self.folder.name,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "MPLBACKEND": "Agg"},
        )

    def close(self) -> None:
        """End it, however far it has come."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def _messages(bench: _Bench, job: dict[str, Any], timeout: float) -> Iterator[dict[str, Any]]:
    """What a workbench says, until it is done; its end or its silence is a ``problem``."""
    bench.fresh = False
    process = bench.process
    lines: queue.Queue[str | None] = queue.Queue()
    noise: list[str] = []

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def drain() -> None:
        assert process.stderr is not None
        noise.extend(process.stderr)

    for work in (listen, drain):
        threading.Thread(target=work, daemon=True).start()
    assert process.stdin is not None
    try:
        with process.stdin:
            json.dump(job, process.stdin)
    except BrokenPipeError:
        pass
    try:
        patience = timeout + 60  # the first line comes when torch has been imported
        while True:
            try:
                line = lines.get(timeout=patience)
            except queue.Empty:
                text = f"took longer than {timeout:g} s (an endless loop?)"
                yield {"problem": ("timeout", text)}
                return
            patience = timeout
            if line is None:
                last = next((text.strip() for text in reversed(noise) if text.strip()), "")
                text = "the process ended while it ran (out of memory, or an exit?)"
                yield {"problem": ("error", f"{text} {last[:200]}".strip())}
                return
            message = json.loads(line)
            if "done" in message:
                return
            yield message
    finally:
        bench.close()


def _judge(test: CheckedTest, found: dict[str, Any]) -> None:
    """From the executor's result to what the learner reads."""
    test.message, test.misconception = found["message"], found["misconception"]
    test.score = found["score"] or 0.0
    first = test.message.splitlines()[0] if test.message else ""
    if test.score == test.points:
        test.state = "ok"
    elif test.score > 0:
        test.state = "partial"
    elif first.endswith(": not started"):
        test.state = "not started"
    elif first.endswith(": this answer is not right yet"):
        test.state, test.parts = "wrong", read_parts(test.message)
    else:
        test.state = "error"


def read_parts(message: str) -> dict[str, str]:
    """Split the text of a ``ProbeFailure`` into its labelled parts."""
    parts: dict[str, str] = {}
    label = ""
    for line in message.splitlines()[1:]:
        found = _LABEL.match(line)
        if found:
            label = found[1]
            parts[label] = found[2].strip()
        elif label:
            parts[label] += " " + line.strip()
    return parts


def check_notebooks(
    paths: list[Path], *, as_json: bool = False, timeout: float = 60, seed: int | None = None
) -> int:
    """Check notebooks, print what came out, and return the exit status.

    Returns:
        0 when every test of every notebook is ok, 1 when some are not, 2 when a notebook could not
        be run.
    """
    results = []
    for path in paths:
        with _progress(path, show=not as_json) as watch:
            result = check_notebook(path, timeout=timeout, seed=seed, watch=watch)
        results.append(result)
        if not as_json:
            _print(result)
    if as_json:
        print(json.dumps([r.as_dict() for r in results], indent=2))
    if any(r.problem for r in results):
        return 2
    return 0 if all(r.passed for r in results) else 1


@contextlib.contextmanager
def _progress(path: Path, *, show: bool) -> Iterator[Callable[[CheckedTest], None]]:
    """On a terminal, what has been found so far, while the rest is on its way."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not (show and console.is_terminal):
        yield lambda test: None
        return
    with console.status(f"checking {path.name}") as status:
        yield lambda test: status.update(f"{test.grade_id}: {test.state}")


_STYLES = {"ok": "green", "partial": "yellow", "not started": "dim"}


def causes(tests: list[CheckedTest]) -> list[list[CheckedTest]]:
    """Failed tests by what is behind them: one block for each cause, in the order of the notebook.

    Tests of one function with the same named mistake, or the same error, are one block, whatever
    the numbers in it.
    """
    found: dict[tuple[str, str], list[CheckedTest]] = {}
    for test in tests:
        if test.state in ("ok", "not started", "not run") or not test.message:
            continue
        function = test.grade_id.split("-")[0]
        cause = test.parts.get("likely cause") or test.parts.get("symptom") or test.message
        found.setdefault((function, _without_numbers(cause)), []).append(test)
    return list(found.values())


def _without_numbers(text: str) -> str:
    """The words of a cause: the same with other numbers is the same cause."""
    words = re.sub(r"-?\d[\d.e+/-]*", "#", text).replace("differs", "differ")
    return re.sub(r"\(#(, ?#)*,?\)", "(#)", words)


def _print(result: NotebookResult) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if result.problem:
        error = Console(stderr=True, highlight=False, soft_wrap=True)
        error.print(Text(f"{result.path}: {result.problem}", style="red"))
        return
    console.print(Text(result.path, style="bold"), soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, tests in result.functions().items():
        cells = Text(", ").join(
            Text(f"{_short(t.grade_id)} {t.state}", style=_STYLES.get(t.state, "red"))
            for t in tests
        )
        score = sum(t.score for t in tests)
        table.add_row(Text(name), Text(f"{score:g}/{sum(t.points for t in tests):g}"), cells)
    for name, points in result.unread.items():
        table.add_row(Text(name), Text(f"-/{points:g}"), Text("read by a person", style="dim"))
    console.print(table)
    for note in result.notes:
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)
    soft = not sys.stdout.isatty()
    for block in causes(result.tests):
        listed = ", ".join(test.grade_id for test in block)
        console.print(Text(f"\n{listed}: {block[0].state}", style="bold"), soft_wrap=soft)
        if block[0].parts:
            for label, text in block[0].parts.items():
                console.print(Text(f"  {label}: {text}"), soft_wrap=soft)
        else:
            console.print(Text(f"  {block[0].message}"), soft_wrap=soft)
    console.print(
        Text(f"\n{result.score:g} of {result.points:g} points", style="bold"),
        Text(_reach(result), style="dim"),
        soft_wrap=True,
    )


def _reach(result: NotebookResult) -> str:
    """What the points rest on."""
    if result.complete:
        return "on everything that grades, hidden inputs included"
    if result.untested:
        return (
            f"on the tests in this notebook; {result.untested} properties are untested: "
            "their inputs are in the course's sources, which are not at hand"
        )
    return "on the tests in this notebook; a grader adds hidden inputs"


def _short(grade_id: str) -> str:
    return grade_id.split("-", 1)[-1]
