"""``attn-course grade``: what the command line adds to :func:`attn_course.grading.run.grade_class`.

Exit status: 0 when everything was graded; 1 when some submission could not be, or needs review;
2 when the command cannot be carried out as given; 3 when the jail or the cluster cannot be used;
130 when it was interrupted (run it again to go on).
"""

import json
import sys
from collections import Counter
from pathlib import Path

from attn_course.grading import exports
from attn_course.grading.collect import CollectError, collect
from attn_course.grading.errors import SandboxError
from attn_course.grading.feedback import write_feedback
from attn_course.grading.gradebook import GradebookError
from attn_course.grading.journal import JournalError
from attn_course.grading.pool import zygote_of_this_process
from attn_course.grading.results import Result
from attn_course.grading.run import grade_class
from attn_course.grading.sandbox import Limits, sandbox_problem
from attn_course.grading.startup import no_collections, notebooks_alone


def instructor_notebook(slug: str, root: Path, given: Path | None) -> bytes:
    """The instructor's version: the file given, this checkout's source, or nbgrader's.

    Raises:
        CollectError: there is none.
    """
    if given is not None:
        if not given.is_file():
            raise CollectError(f"--source: expected an instructor's notebook, got no file {given}")
        return given.read_bytes()
    text = root / "solutions" / slug / "exercise.py"
    if text.is_file():
        with notebooks_alone(), no_collections():
            import jupytext  # noqa: F401  read_exercise imports it where it is wanted
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
    """Counts by status on standard error: one line on a terminal, a line in ten otherwise."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.open = False  # a line has been begun and not ended

    def __call__(self, result: Result, done: int, total: int) -> None:
        self.counts[result.status] += 1
        counts = ", ".join(f"{count} {status}" for status, count in sorted(self.counts.items()))
        line = f"graded {done} of {total}: {counts}"
        if sys.stderr.isatty():
            self.open = done < total
            print(f"\r{line}", end="" if self.open else "\n", file=sys.stderr, flush=True)
        elif done == total or done % max(1, total // 10) == 0:
            self.open = True  # until the line is out: an interruption may cut it
            print(line, file=sys.stderr, flush=True)
            self.open = False

    def say(self, message: str) -> None:
        """A message of its own line, behind whatever stands there."""
        print("\n" * self.open + f"attn-course: {message}", file=sys.stderr)
        self.open = False


def grade(
    submissions: Path,
    *,
    slug: str,
    root: Path,
    source: Path | None,
    workers: int,
    scheduler: str | None,
    gradebook: str,
    json_path: str | None,
    junit: Path | None,
    gradescope: Path | None,
    csv_path: Path | None,
    csv_form: str,
    feedback: Path | None,
    timeout: float,
    call_timeout: float,
    seed: int | None,
    sandbox: bool,
    fresh: bool,
) -> int:
    """Carry the command out; its parameters are those of ``attn-course grade --help``.

    Returns:
        The exit status.
    """
    journal = root / ".attn-grading" / f"{exports.file_name(slug)}.jsonl"
    progress = Progress()
    try:
        if csv_form not in exports.FORMS:
            raise CollectError(
                f"--csv-form: expected one of {', '.join(exports.FORMS)}, got {csv_form!r}"
            )
        if scheduler is None:
            _start_jail(sandbox=sandbox)
        handed = collect(submissions, slug)
        notebook = instructor_notebook(slug, root, source)
        if not sandbox:
            print(
                "attn-course: warning: --no-sandbox: every submission can read and change what "
                "you can",
                file=sys.stderr,
            )
        results = grade_class(
            handed,
            notebook=notebook,
            slug=slug,
            gradebook=None if gradebook == "none" else gradebook,
            journal=journal,
            fresh=fresh,
            seed=seed,
            limits=Limits(wall_seconds=timeout, call_seconds=call_timeout),
            sandbox=sandbox,
            workers=workers,
            scheduler=scheduler,
            progress=progress,
        )
    except KeyboardInterrupt:
        progress.say("interrupted; run the same command again to go on")
        return 130
    except SandboxError as error:
        hint = "" if scheduler else " (--no-sandbox grades without it, at your own risk)"
        progress.say(f"error: {error}{hint}")
        return 3
    except (GradebookError, JournalError, OSError, ValueError) as error:
        progress.say(f"error: {error}")
        return 2
    try:
        _export(
            results,
            slug=slug,
            json_path=json_path,
            junit=junit,
            gradescope=gradescope,
            csv_path=csv_path,
            csv_form=csv_form,
            feedback=feedback,
        )
    except OSError as error:
        print(f"attn-course: error: graded, but not written: {error}", file=sys.stderr)
        return 2
    if json_path != "-":
        _table(results)
    return 0 if all(result.status == "graded" for result in results) else 1


def _start_jail(*, sandbox: bool) -> None:
    """Begin with what takes longest; that it cannot be used here is said where it is needed."""
    if not sandbox or sandbox_problem() is None:
        zygote_of_this_process(sandbox=sandbox, wait=False)


def _export(
    results: list[Result],
    *,
    slug: str,
    json_path: str | None,
    junit: Path | None,
    gradescope: Path | None,
    csv_path: Path | None,
    csv_form: str,
    feedback: Path | None,
) -> None:
    """Write the results in every form that was asked for."""
    if junit is not None:
        exports.write_text(junit, exports.to_junit(results, slug))
    if gradescope is not None:
        exports.write_gradescope(results, gradescope)
    if csv_path is not None:
        exports.write_text(csv_path, exports.to_csv(results, slug, form=csv_form))
    if feedback is not None:
        write_feedback(results, feedback)
    if json_path is not None:
        text = json.dumps(exports.to_json(results, slug), indent=2)
        if json_path == "-":
            print(text)
        else:
            exports.write_text(Path(json_path), text)


def _table(results: list[Result]) -> None:
    """A line for each submission that needs a look, and the totals."""
    for result in results:
        if result.status != "graded":
            print(f"{result.student}: {result.status}: {result.reason}")
    marks = [result.score for result in results if result.score is not None]
    mean = f", mean {sum(marks) / len(marks):.2f} of {results[0].max_score:g}" if marks else ""
    print(f"{len(marks)} of {len(results)} have a score{mean}; seed {results[0].seed}")
    named: Counter[str] = Counter()
    for result in results:
        named.update({test.misconception for test in result.tests if test.misconception})
    for name, count in named.most_common(10):
        print(f"  {count:4d}  {name}")
