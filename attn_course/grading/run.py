"""Grade a class: collect, spread, write, keep a journal. The Python API behind the command."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from attn_course.exercises.assignment import (
    Assignment,
    TestResult,
    load_assignment,
    with_tests_of,
)
from attn_course.grading import pool
from attn_course.grading.cluster import run_dask
from attn_course.grading.collect import HandIn, collect
from attn_course.grading.errors import SandboxError
from attn_course.grading.gradebook import GradebookWriter
from attn_course.grading.journal import Journal, file_key, run_key
from attn_course.grading.results import Result
from attn_course.grading.sandbox import Limits

INSTRUCTOR = "\0instructor"


class AssignmentError(ValueError):
    """The instructor's own notebook does not pass its own tests; nobody was graded."""


def grade_class(
    submissions: Path | list[HandIn],
    *,
    notebook: bytes,
    slug: str,
    gradebook: str | None = None,
    root: Path | None = None,
    tests_only: bool = False,
    without_advisory: bool = False,
    journal: Path | None = None,
    fresh: bool = False,
    seed: int | None = None,
    limits: Limits | None = None,
    sandbox: bool = True,
    private: Iterable[Path] = (),
    workers: int = 1,
    scheduler: str | None = None,
    progress: Callable[[Result, int, int], None] = lambda result, done, total: None,
) -> list[Result]:
    """Grade every submission of an assignment; needs no course directory.

    Args:
        submissions: a folder, a notebook, a zip, or what ``collect`` made of one.
        notebook: bytes of the instructor's version, with solutions and hidden tests.
        slug: name of the assignment.
        gradebook: SQLAlchemy address of an nbgrader gradebook to fill; "" is the one that
            ``nbgrader_config.py`` names, None fills none.
        root: the course's folder, in which what was handed in is laid for formgrader; None lays
            nothing.
        tests_only: leave the written answers out of the results.
        without_advisory: leave out what trusts the notebook's own word (see the assignment's
            ``without_advisory``), and the points of tests of nothing else.
        journal: file that lets a rerun go on; None keeps none.
        fresh: set an earlier run's journal aside and grade everyone again.
        seed: of the random inputs of everyone; when None each file has a seed of its own, from a
            secret that is drawn and kept in the journal.
        limits: wall clock and resources of a submission.
        sandbox: False grades without the jail, which any submission can then leave.
        private: files and folders that no submission may see; the gradebook, ``root`` and
            ``submissions`` are among them anyway.
        workers: processes on this machine.
        scheduler: address of a dask cluster to use instead.
        progress: called after each result with the result, the count so far and the total.

    Returns:
        One result for each submission, sorted by student; with a gradebook, what persons entered
        there is part of it.

    Raises:
        AssignmentError: the instructor's solution does not earn full marks.
        SandboxError: the jail or the cluster cannot be used.
        CollectError, CourseError, GradebookError, JournalError, ReleaseError: their texts say what
            to do.
    """
    if workers < 1:
        raise ValueError(f"workers: expected at least 1, got {workers}")
    assignment = load_assignment(notebook, slug)
    if without_advisory:
        assignment = assignment.without_advisory()
    found = collect(submissions, assignment.slug) if isinstance(submissions, Path) else submissions
    by_student = {item.student: item for item in found}
    keys = {item.student: file_key(item.data) for item in found}
    settings = pool.Settings(assignment=assignment, limits=limits or Limits(), sandbox=sandbox)
    with contextlib.ExitStack() as stack:
        if journal is None:
            journal = Path(stack.enter_context(tempfile.TemporaryDirectory()), "journal.jsonl")
        key = run_key(assignment, settings.limits, sandbox=sandbox)
        log = stack.enter_context(Journal(journal, key=key, seed=seed, fresh=fresh))
        book = None
        if gradebook is not None:
            kept = with_tests_of(notebook, assignment)
            book = stack.enter_context(GradebookWriter(gradebook, kept, slug, root))
        done: dict[str, Result] = {}

        def keep(result: Result) -> None:
            item = by_student[result.student]
            notes = (*result.notes, *item.notes)
            done[item.student] = dataclasses.replace(result, notes=notes, name=item.name)
            if book is not None:
                book.write(done[item.student], item)

        tasks = []
        for name, item in sorted(by_student.items()):
            if log.has(name, keys[name]):
                keep(log.results[name][1])  # whoever has written there since
            else:
                drawn = log.seed_of(name, keys[name])
                tasks.append(pool.Task(student=name, data=item.data, seed=drawn))
        if tasks:
            places = [*private, root, book and book.path]
            places += [submissions] if isinstance(submissions, Path) else []
            private = tuple(place.resolve() for place in places if place)
            settings = dataclasses.replace(settings, private=private)
            solution = pool.Task(student=INSTRUCTOR, data=notebook, seed=log.seed)
            if scheduler is not None:
                graded = run_dask(solution, tasks, settings, address=scheduler)
            else:
                graded = pool.run_processes(
                    solution, tasks, settings, workers=min(workers, len(tasks))
                )
            results = stack.enter_context(contextlib.closing(graded))
            _check_solution(next(results), assignment)  # before anything of a student runs
            for result in results:
                keep(result)
                log.add(result, keys[result.student])
                progress(done[result.student], len(done), len(found))
        marks = [done[name] for name in sorted(done)]
        return marks if book is None else book.completed(marks, tests_only=tests_only)


def _check_solution(result: Result, assignment: Assignment) -> None:
    """Look at what the instructor's own notebook earned."""
    if result.status == "sandbox_error":
        raise SandboxError(f"the solution of {assignment.slug} could not be run: {result.reason}")
    if result.score != assignment.max_score:
        lost = [test for test in result.tests if test.score != test.max]
        what = f"{_place(lost[0], assignment)}: {lost[0].message}" if lost else result.reason
        raise AssignmentError(
            f"the solution of {assignment.slug} does not pass its own tests, so nobody was "
            f"graded: {what}"
        )


def _place(lost: TestResult, assignment: Assignment) -> str:
    """The test cell, and its line where one failed."""
    if lost.line is None:
        return lost.grade_id
    source = next(test.source for test in assignment.tests if test.grade_id == lost.grade_id)
    return f"{lost.grade_id}, line {lost.line}: {source.splitlines()[lost.line - 1].strip()}"
