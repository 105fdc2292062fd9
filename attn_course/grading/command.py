"""``attn-course grade``: what the command line adds to :func:`attn_course.grading.run.grade_class`.

Exit status: 0 when everything was graded; 1 when some submission could not be, or needs review;
2 when the command cannot be carried out as given; 3 when the jail or the cluster cannot be used;
130 when it was interrupted (run it again to go on).
"""

import functools
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import load_assignment
from attn_course.exercises.submission import OTHER_VERSION, look_at
from attn_course.grading import exports
from attn_course.grading.classlist import read_class
from attn_course.grading.collect import CollectError, collect
from attn_course.grading.errors import SandboxError
from attn_course.grading.feedback import write_feedback
from attn_course.grading.gradebook import CHANGED, GradebookError
from attn_course.grading.journal import JournalError
from attn_course.grading.results import Result
from attn_course.grading.run import grade_class
from attn_course.grading.sandbox import Limits
from attn_course.grading.term import term_table


def instructor_notebook(slug: str, root: Path, given: Path | None) -> bytes:
    """The instructor's version: the file given, this checkout's source, or nbgrader's."""
    if given is not None:
        if not given.is_file():
            raise CollectError(f"--source: expected an instructor's notebook, got no file {given}")
        return given.read_bytes()
    text = root / "solutions" / slug / "exercise.py"
    if text.is_file():
        import nbformat

        from attn_course.exercises.source import read_exercise

        return str(nbformat.writes(read_exercise(text))).encode()
    for folder in ("build/source", "source"):
        path = root / folder / slug / f"{slug}.ipynb"
        if path.is_file():
            return path.read_bytes()
    raise CollectError(
        f"--assignment: no instructor's version of {slug!r} in {root}: run this in the course's "
        "folder, or name the notebook with --source"
    )


class Progress:
    """Counts by status on standard error, ten times in a run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, result: Result, done: int, total: int) -> None:
        self.counts[result.status] += 1
        if done < total and done % max(1, total // 10):
            return
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        earlier = done - self.counts.total()  # by a run before this one
        before = f" ({earlier} of them earlier)" if earlier else ""
        print(f"graded {done} of {total}{before}: {counts}", file=sys.stderr, flush=True)


def _say(message: str) -> None:
    print(f"attn-course: {message}", file=sys.stderr)


def _told(command: Callable[..., int]) -> Callable[..., int]:
    """The command, with what stops it as a line and an exit status."""

    @functools.wraps(command)
    def carried_out(*args: Any, **settings: Any) -> int:
        try:
            return command(*args, **settings)
        except KeyboardInterrupt:
            _say("interrupted; run the same command again to go on")
            return 130
        except SandboxError as error:
            _say(f"error: {error}")
            return 3
        except (GradebookError, JournalError, ValueError) as error:
            _say(f"error: {error}")
        except OSError as error:
            _say(f"error: {_explained(error)}; run the same command again to go on")
        return 2

    return carried_out


@_told
def grade(
    submissions: Path,
    *,
    slug: str,
    root: Path,
    source: Path | None,
    gradebook: str,
    json_path: str | None,
    gradescope: Path | None,
    csv_path: str | None,
    csv_form: str,
    feedback: Path | None,
    timeout: float,
    call_timeout: float,
    class_list: Path | None = None,
    **settings: Any,
) -> int:
    """Carry the command out; its parameters are those of ``attn-course grade --help``.

    ``settings`` are handed on to :func:`~attn_course.grading.run.grade_class`.

    Returns:
        The exit status.
    """
    exports.to_csv([], slug, form=csv_form)  # an unknown form is refused before the grading
    hand_ins = collect(submissions, slug, read_class(class_list) if class_list else None)
    notebook = instructor_notebook(slug, root, source)
    if not settings["sandbox"]:
        _say("warning: --no-sandbox: every submission can read and change what you can")
    results = grade_class(
        hand_ins,
        notebook=notebook,
        slug=slug,
        gradebook=None if gradebook == "none" else gradebook,
        root=root,
        journal=root / ".attn-grading" / f"{exports.file_names([slug])[slug]}.jsonl",
        limits=Limits(wall_seconds=timeout, call_seconds=call_timeout),
        private=[submissions, *([source] if source else [])],
        progress=Progress(),
        **settings,
    )
    places = {item.student: item.place for item in hand_ins}
    forms: list[tuple[str | Path | None, Callable[[Any], object]]] = [
        (gradescope, lambda path: exports.write_gradescope(results, path)),
        (csv_path, lambda path: _put(path, exports.to_csv(results, slug, form=csv_form))),
        (feedback, lambda path: write_feedback(results, path, places)),
        (json_path, lambda path: _put(path, json.dumps(exports.to_json(results, slug), indent=2))),
    ]
    status = 0 if all(result.status == "graded" for result in results) else 1
    for target, write in forms:
        try:
            if target is not None:
                write(target)
        except OSError as error:  # the other forms are written all the same
            status = 2
            _say(f"error: graded, but not written: {_explained(error, str(target))}")
    if "-" not in (json_path, csv_path):
        _table(results)
    written = sum(load_assignment(notebook, slug).manual.values())
    if gradebook == "none" and written and not settings["tests_only"]:
        _say(
            f"the written answers ({written:g} points) are in no mark and in no maximum, as they "
            "are graded in a gradebook: leave --gradebook none out, or add --tests-only"
        )
    return status


@_told
def precheck(submissions: Path, *, slug: str, root: Path, source: Path | None) -> int:
    """What ``grade`` would say of the files alone, without running anything of them.

    Returns:
        0 when every file can be graded in full, 1 when a person must look, 2 for a wrong command.
    """
    hand_ins = collect(submissions, slug)
    assignment = load_assignment(instructor_notebook(slug, root, source), slug)
    ready = True
    for item in hand_ins:
        status, reason, found = look_at(item.data, assignment)
        ready = ready and status == "graded"
        notes = [*item.notes, *(found.notes if found else ())]
        said = [reason, *(note for note in notes if note not in reason)]
        who = item.student + (f" ({item.name})" if item.name else "")
        told = "; ".join(filter(None, said))
        print(": ".join(filter(None, (who, status.replace("graded", "ready"), told))))
    return 0 if ready else 1


@_told
def term(tables: list[Path], *, csv_path: str, **settings: Any) -> int:
    """The tables of several assignments as one; ``settings`` are those of ``term_table``.

    Returns:
        0 when everyone has a total, 1 when somebody has none, 2 for a wrong command.
    """
    found = term_table(tables, **settings)
    _put(csv_path, exports.csv_text([], found))
    totals = [float(row[-2]) for row in found[1:] if row[-2]]
    mean = f", mean {sum(totals) / len(totals):.2f} %" if totals else ""
    _say(f"{len(totals)} of {len(found) - 1} have a total{mean}; the last column says why not")
    return 0 if len(totals) == len(found) - 1 else 1


def _put(target: str, text: str) -> None:
    """To a file, or to standard output by the name of ``-``."""
    if target == "-":
        print(text, end="" if text.endswith("\n") else "\n")
    else:
        exports.write_text(Path(target), text)


def _explained(error: OSError, target: str = "") -> str:
    return ": ".join(filter(None, (error.filename or target, error.strerror or str(error))))


def _table(results: list[Result]) -> None:
    """A line for each submission that needs a look, and the totals."""
    for result in results:
        if result.status != "graded":
            print(f"{result.student}: {result.status}: {result.reason}")
    marks = [result.score for result in results if result.score is not None]
    mean = f", mean {sum(marks) / len(marks):.2f} of {results[0].max_score:g}" if marks else ""
    seed = exports.class_seed(results)
    drawn = "a seed for each student, on their pages" if seed is None else f"seed {seed}"
    print(f"{len(marks)} of {len(results)} have a score{mean}; {drawn}")
    late = [result for result in results if "late" in result.notes]
    if late:
        lost = sum(result.late_penalty for result in late)
        print(f"{len(late)} came late; the late policy took {lost:g} points off")
    notes = [n for result in results for n in result.notes if n.startswith(OTHER_VERSION)]
    for note, count in Counter(notes).most_common():
        print(f"{count} of {note}")
    if stale := sum(any(n.endswith(CHANGED) for n in result.notes) for result in results):
        print(f"{stale} changed an answer after a person had graded it: formgrader lists them")
    if waiting := sum(bool(result.pending) for result in results):
        print(
            f"{waiting} have written answers that nobody has graded: grade them in nbgrader's "
            "formgrader, then run this again; the marks for Canvas and Moodle stay empty till then"
        )
    found = [{test.misconception for test in result.tests} - {None} for result in results]
    named = Counter(name for names in found for name in names)
    for name, count in named.most_common(10):
        print(f"  {count:4d}  {name}")
