"""Run a learner's own notebook and collect what each test cell makes of it; no nbgrader needed."""

import hashlib
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_LABELS = ("symptom", "probe", "example", "likely cause", "seed")
_LABEL = re.compile(rf"^  ({'|'.join(_LABELS)}):\s+(.*)$")
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass
class TestResult:
    """What one test cell says: ``ok``, ``partial``, ``wrong``, ``not started``, ``error``,
    ``timeout``, ``missing``, ``edited`` or ``not run``."""

    grade_id: str
    points: float
    state: str = "not run"
    score: float = 0.0
    message: str = ""
    parts: dict[str, str] = field(default_factory=dict)


@dataclass
class NotebookResult:
    """What a whole notebook gave; ``problem`` is set when it could not be run at all."""

    path: str
    problem: str = ""
    notes: list[str] = field(default_factory=list)
    tests: list[TestResult] = field(default_factory=list)
    unread: dict[str, float] = field(default_factory=dict)

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

    def functions(self) -> dict[str, list[TestResult]]:
        """Return the tests of each graded function, in the order of the notebook."""
        found: dict[str, list[TestResult]] = {}
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
            "read_by_a_person": self.unread,
            "functions": functions,
        }


def check_notebook(path: Path, *, timeout: float | int = 120) -> NotebookResult:
    """Run a notebook in a fresh kernel and read the outcome of each test cell.

    The notebook on disk is not changed.

    Args:
        path: The learner's notebook.
        timeout: Seconds that one cell may take.
    """
    result = NotebookResult(str(path))
    notebook = _read(path, result)
    if notebook is None:
        return result
    _inventory(notebook, result)
    if not result.tests:
        result.problem = "no test cells in it: is this a notebook from exercises/?"
    if not result.problem:
        _execute(notebook, path, timeout, result)
    return result


def _read(path: Path, result: NotebookResult) -> Any:
    import nbformat

    if not path.exists():
        result.problem = "no such file"
    elif not path.is_file():
        result.problem = "not a file"
    elif path.suffix != ".ipynb":
        result.problem = "not a notebook (its name does not end in .ipynb)"
    if result.problem:
        return None
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        for cell in notebook.cells:
            _ = (cell.cell_type, cell.source + "", cell.metadata.get("nbgrader", {}))
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        result.problem = f"not a readable notebook ({type(error).__name__}: {reason})"
        return None
    return notebook


def _meta(cell: Any) -> dict[str, Any]:
    found = cell.metadata.get("nbgrader", {})
    return found if isinstance(found, dict) and isinstance(found.get("grade_id"), str) else {}


def _is_test(meta: dict[str, Any]) -> bool:
    return bool(meta.get("grade")) and not meta.get("solution")


def _points(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _inventory(notebook: Any, result: NotebookResult) -> None:
    """List the tests, those that are there and those that should be, and note what was altered."""
    seen: dict[str, TestResult] = {}
    counts: dict[str, int] = {}
    for cell in notebook.cells:
        meta = _meta(cell)
        if not meta:
            continue
        name = meta["grade_id"]
        counts[name] = counts.get(name, 0) + 1
        if counts[name] == 2:
            result.notes.append(f"the cell {name!r} is there more than once: the first one counts")
        if counts[name] > 1:
            continue
        edited = meta.get("locked") and meta.get("checksum") not in (None, _checksum(cell, meta))
        if _is_test(meta):
            test = TestResult(name, _points(meta.get("points")))
            if edited:
                test.state = "edited"
                test.message = "this test cell is not as released: take it from a fresh copy"
            seen[name] = test
            result.tests.append(test)
        elif edited:
            result.notes.append(f"the locked cell {name!r} is not as released")
        if meta.get("grade") and meta.get("solution"):
            result.unread[name] = _points(meta.get("points"))
    course = notebook.metadata.get("attn_course", {})
    due = course.get("tests", {}) if isinstance(course, dict) else {}
    for place, (name, points) in enumerate(due.items() if isinstance(due, dict) else ()):
        if name not in seen:
            text = "this test cell is missing: take it from a fresh copy of the exercise"
            result.tests.insert(place, TestResult(name, _points(points), "missing", 0.0, text))
    needed = course.get("solutions", []) if isinstance(course, dict) else []
    for name in needed if isinstance(needed, list) else []:
        if name not in counts:
            result.notes.append(f"the cell {name!r} for your answer is missing")


def _checksum(cell: Any, meta: dict[str, Any]) -> str:
    """Repeat nbgrader's checksum, so that a learner needs no nbgrader."""
    parts = [
        cell.source,
        cell.cell_type,
        str(bool(meta.get("grade", False))),
        str(bool(meta.get("solution", False))),
        str(bool(meta.get("locked", False))),
        meta["grade_id"],
    ]
    if meta.get("grade"):
        parts.append(str(_points(meta.get("points"))))
    return hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()


def _execute(notebook: Any, path: Path, timeout: float | int, result: NotebookResult) -> None:
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    client = NotebookClient(
        notebook,
        timeout=timeout,
        startup_timeout=120,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(path.resolve().parent)}},
    )
    tests = {test.grade_id: test for test in result.tests}
    done: set[str] = set()
    broken: dict[str, str] = {}
    try:
        # The kernel greets with warnings that are no concern of a learner.
        with client.setup_kernel(stderr=subprocess.DEVNULL):
            for index, cell in enumerate(notebook.cells):
                if cell.cell_type != "code" or not cell.source.strip():
                    continue
                meta = _meta(cell)
                name = meta.get("grade_id", "")
                counts = name not in done
                done.add(name)
                cell.outputs = []
                try:
                    client.execute_cell(cell, index)
                except CellTimeoutError:
                    late = f"took longer than {timeout:g} s (an endless loop?)"
                    _after_stop(tests, name, meta, late, "timeout", result)
                    return
                except DeadKernelError:
                    dead = "the kernel died while it ran (out of memory, or an exit?)"
                    _after_stop(tests, name, meta, dead, "error", result)
                    return
                if _is_test(meta) and counts and name in tests:
                    _judge(cell, tests[name], broken)
                elif name and not _is_test(meta):
                    problem = _error_of(cell)
                    if problem is not None:
                        broken[name] = f"the cell {name!r} stops with {problem[0]}: {problem[1]}"
                        result.notes.append(broken[name])
    except NoSuchKernel:
        result.problem = "no Python kernel: pip install ipykernel, in this environment"
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        result.problem = f"the kernel did not run ({type(error).__name__}: {reason})"


def _after_stop(
    tests: dict[str, TestResult],
    name: str,
    meta: dict[str, Any],
    reason: str,
    state: str,
    result: NotebookResult,
) -> None:
    if name in tests:
        tests[name].state, tests[name].message = state, reason
    where = f"the cell {name!r}" if name else "a cell of yours"
    result.notes.append(f"{where}: {reason}; the tests after it were not run")


def _error_of(cell: Any) -> tuple[str, str] | None:
    for output in cell.outputs:
        if output.output_type == "error":
            return str(output.ename), str(output.evalue)
    return None


def _judge(cell: Any, test: TestResult, broken: dict[str, str]) -> None:
    if test.state == "edited":
        return
    error = _error_of(cell)
    if error is not None:
        name, text = error
        test.message = _ANSI.sub("", text)
        if name == "NotStarted":
            test.state = "not started"
        elif name == "ProbeFailure":
            test.state, test.parts = "wrong", read_parts(test.message)
        else:
            test.state = "error"
            function = test.grade_id.split("-")[0]
            test.message = broken.get(function, f"{name}: {test.message}")
        return
    test.state, test.score = "ok", test.points
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            test.state, test.score = "error", 0.0
            test.message = f"wrote to stderr: {output.text.strip()[:200]}"
        elif output.output_type == "stream" and not test.message:
            test.message = output.text.strip()[:1000]
        elif output.output_type == "execute_result":
            try:
                score = float(output.data.get("text/plain", ""))
            except ValueError:
                continue
            test.score = min(max(score, 0.0), test.points)
            test.state = "ok" if test.score == test.points else "partial"


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


def check_notebooks(paths: list[Path], *, as_json: bool = False, timeout: float | int = 120) -> int:
    """Check notebooks, print what came out, and return the exit status.

    Returns:
        0 when every test of every notebook is ok, 1 when some are not, 2 when a notebook could not
        be run.
    """
    results = []
    for path in paths:
        result = check_notebook(path, timeout=timeout)
        results.append(result)
        if not as_json:
            _print(result)
    if as_json:
        import json

        print(json.dumps([r.as_dict() for r in results], indent=2))
    if any(r.problem for r in results):
        return 2
    return 0 if all(r.passed for r in results) else 1


_STYLES = {"ok": "green", "partial": "yellow", "not started": "dim"}


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
    for test in result.tests:
        if test.state in ("ok", "not started", "not run") or not test.message:
            continue
        console.print(Text(f"\n{test.grade_id}: {test.state}", style="bold"))
        if test.parts:
            for label, text in test.parts.items():
                console.print(Text(f"  {label}: {text}"), soft_wrap=not sys.stdout.isatty())
        else:
            console.print(Text(f"  {test.message}"), soft_wrap=not sys.stdout.isatty())
    console.print(
        Text(f"\n{result.score:g} of {result.points:g} points", style="bold"),
        Text("on the tests in this notebook; a grader adds hidden inputs", style="dim"),
        soft_wrap=True,
    )


def _short(grade_id: str) -> str:
    return grade_id.split("-", 1)[-1]
