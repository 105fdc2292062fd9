"""Write results into nbgrader's own gradebook: its tables, one transaction for each submission.

Writing the same result twice leaves the same rows: everything is looked up before it is added, and
what a person entered (manual scores, comments, extra credit) is never touched.
"""

import contextlib
import dataclasses
import datetime
import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import TestResult, grade_metadata, load_assignment
from attn_course.exercises.release import prepared
from attn_course.grading.autograded import answers_in, graded_notebook
from attn_course.grading.collect import HandIn
from attn_course.grading.course import late_penalty, open_course
from attn_course.grading.exports import write_text
from attn_course.grading.results import Result


class GradebookError(RuntimeError):
    """The gradebook cannot be opened or holds something else; the text says what to do."""


class GradebookWriter:
    """The one writer of a grading run.

    Students' rows are written to the tables of nbgrader's models: through its objects, a
    submission's rows take ten times as long, and on the cores that the workers need.

    Args:
        url: a SQLAlchemy address: ``sqlite:///gradebook.db``, ``postgresql+psycopg://...``; "" is
            the course's own.
        notebook: bytes of the instructor's version; its cells are kept as ``nbgrader
            generate_assignment`` keeps them, changed points included.
        slug: name of the assignment.
        root: the course's folder, whose ``nbgrader_config.py`` counts and in whose ``autograded``
            folder everything that was handed in is put for formgrader; None puts nothing there.

    Raises:
        CourseError: nbgrader refuses its settings.
        GradebookError: no connection, or what a person graded would be lost.
        ReleaseError: nbgrader refuses the notebook.
    """

    def __init__(self, url: str, notebook: bytes, slug: str, root: Path | None = None) -> None:
        from nbgrader import api
        from sqlalchemy.exc import SQLAlchemyError

        self._api, self._slug, self._keeps_notebooks = api, slug, root is not None
        self._tests = {test.grade_id for test in load_assignment(notebook, slug).tests}
        self._course = open_course(root or Path.cwd())
        saved, self._release = prepared(notebook, slug, self._course)
        url = driver_url(url or self._course.db_url)
        self._where = _without_password(url)
        self.path: Path | None = None  # of a gradebook that is a file
        if url.startswith("sqlite:///"):
            # nbgrader's commands run in the course's folder
            self.path = Path(root or ".", url.removeprefix("sqlite:///"))
            if root is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            url = f"sqlite:///{self.path}"
        course = self._course.course_id or "default_course"
        try:
            try:
                self._book = api.Gradebook(url, course)
            except (SQLAlchemyError, api.InvalidEntry):  # another run may just have created it
                time.sleep(0.2)
                self._book = api.Gradebook(url, course)
        except (SQLAlchemyError, api.InvalidEntry, OSError, ImportError) as error:
            raise GradebookError(
                f"the gradebook {self._where} cannot be opened: {_reason(error)}"
            ) from None
        self._session = self._book.db
        self._transaction(lambda: self._save_cells(saved))

    def _transaction(self, work: Callable[[], None]) -> None:
        from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

        try:
            try:
                work()
                self._session.commit()
            except IntegrityError:  # another run has just written the same rows
                self._session.rollback()
                work()
                self._session.commit()
        except SQLAlchemyError as error:
            with contextlib.suppress(SQLAlchemyError):
                self._session.rollback()
            told = "what was graded so far is kept: run the same command again to go on"
            if not isinstance(error, OperationalError) or "no such" in str(error):
                told = "bring back a copy of it, or name another with --gradebook"
            raise GradebookError(
                f"the gradebook {self._where} cannot be written: {_reason(error)}; {told}"
            ) from None
        except BaseException:
            self._session.rollback()
            raise

    def _save_cells(self, saved: Any) -> None:
        """The assignment's rows as ``nbgrader generate_assignment`` would leave them."""
        api = self._api
        new = {"id": api.new_uuid(), "course_id": self._book.course_id}
        assignment = self._upsert(api.Assignment, {"name": self._slug}, {}, new)
        keys = {"name": self._slug, "assignment_id": assignment.id}
        kernel = {"kernelspec": json.dumps(saved.metadata.get("kernelspec", {}))}
        notebook = self._upsert(api.Notebook, keys, kernel, {"id": api.new_uuid()})
        wanted = self._wanted(saved)
        for model, cells in wanted.items():
            query = self._session.query(model).filter_by(notebook_id=notebook.id)
            known = {cell.name: cell for cell in query}
            for name in known.keys() - cells.keys():
                self._remove_cell(known[name])
            for name, values in cells.items():
                if name not in known:
                    self._session.add(model(name=name, notebook_id=notebook.id, **values))
                for key, value in values.items() if name in known else ():
                    setattr(known[name], key, value)
        self._session.flush()
        self._assignment, self._due = assignment.id, assignment.duedate
        self._notebook = notebook.id
        graded = wanted[api.GradeCell] | wanted[api.TaskCell]
        commented = wanted[api.SolutionCell] | wanted[api.TaskCell]
        self._points = {name: values["max_score"] for name, values in graded.items()}
        self._grade_cells = self._ids(graded, api.GradeCell, api.TaskCell)
        self._commented_cells = self._ids(commented, api.SolutionCell, api.TaskCell)

    def _ids(self, names: Iterable[str], *models: Any) -> dict[str, str]:
        queries = [
            self._session.query(model).filter_by(notebook_id=self._notebook) for model in models
        ]
        found = {cell.name: cell.id for query in queries for cell in query}
        return {name: found[name] for name in names}

    def _wanted(self, saved: Any) -> dict[Any, dict[str, dict[str, Any]]]:
        from nbgrader import utils

        api = self._api
        graded: dict[str, dict[str, Any]] = {}
        tasks: dict[str, dict[str, Any]] = {}
        solutions: dict[str, dict[str, Any]] = {}
        sources: dict[str, dict[str, Any]] = {}
        for cell in saved.cells:
            meta, kind = grade_metadata(cell), {"cell_type": cell.cell_type}
            name = str(meta.get("grade_id"))
            if utils.is_grade(cell):
                graded[name] = {"max_score": float(meta["points"]), **kind}
            if utils.is_task(cell):
                tasks[name] = {"max_score": float(meta["points"]), **kind}
            if utils.is_solution(cell):
                solutions[name] = {}
            if name in graded or name in tasks or name in solutions or utils.is_locked(cell):
                checksum = {"checksum": meta.get("checksum"), "locked": utils.is_locked(cell)}
                sources[name] = {"source": cell.source, **kind, **checksum}
        return {
            api.GradeCell: graded,
            api.SolutionCell: solutions,
            api.TaskCell: tasks,
            api.SourceCell: sources,
        }

    def _remove_cell(self, cell: Any) -> None:
        """A cell that the assignment has no longer; what a person wrote to it is not thrown away.

        Raises:
            GradebookError: there is such a score or comment.
        """
        for model, entered in (
            (self._api.Grade, "manual_score"),
            (self._api.Comment, "manual_comment"),
        ):
            rows = self._session.query(model).filter_by(cell_id=cell.id)
            if rows.filter(getattr(model, entered).is_not(None)).count():
                raise GradebookError(
                    f"{cell.name}: the assignment has no such cell any more, and the gradebook "
                    f"{self._where} holds what a person entered for it: put the cell back, or "
                    "name another gradebook with --gradebook"
                )
            rows.delete()
        self._session.flush()
        self._session.expire(cell)
        self._session.delete(cell)
        self._session.flush()

    def write(self, result: Result, hand_in: HandIn) -> None:
        """Record one result; a submission that is missing leaves no row.

        Args:
            result: what the grader found.
            hand_in: what it found it in.
        """
        if result.status == "missing":
            return
        folder = Path(
            self._course.format_path(self._course.autograded_directory, result.student, self._slug)
        )
        path = folder / f"{self._slug}.ipynb"
        page = self._page(hand_in, result) if self._keeps_notebooks else b""
        old, new = (answers_in(path), answers_in(page)) if self._keeps_notebooks else ({}, {})
        changed = {name for name in old.keys() & new.keys() if old[name] != new[name]}
        self._transaction(lambda: self._write(result, hand_in, changed))
        if self._keeps_notebooks and (not path.exists() or path.read_bytes() != page):
            write_text(path, page)
        if self._keeps_notebooks and hand_in.submitted is not None:
            write_text(folder / "timestamp.txt", f"{hand_in.submitted} UTC")

    def _page(self, hand_in: HandIn, result: Result) -> bytes:
        try:
            return graded_notebook(hand_in.data, result, self._release)
        except Exception as error:  # one odd file must not keep the others from their marks
            why = f"{result.status}; it cannot be shown: {type(error).__name__}: {error}"
            return graded_notebook(None, dataclasses.replace(result, status=why), self._release)

    def _write(self, result: Result, hand_in: HandIn, changed: set[str]) -> None:
        api, student = self._api, result.student
        person = self._one(api.Student, id=student)
        plain = re.sub("[<>&]", "", hand_in.name)  # nbgrader's pages take a name for HTML
        first, _, last = plain.rpartition(" ")
        if person is None or (plain and not person.first_name and not person.last_name):
            names = {"first_name": first or None, "last_name": last or None}
            self._upsert(api.Student, {"id": student}, names)
        keys = {"assignment_id": self._assignment, "student_id": student}
        when = {"timestamp": hand_in.submitted} if hand_in.submitted is not None else {}
        known = self._upsert(api.SubmittedAssignment, keys, when, {"id": api.new_uuid()})
        keys = {"assignment_id": known.id, "notebook_id": self._notebook}
        flag = {} if result.status == "graded" else {"flagged": True}  # a person's own stays
        new = {"id": api.new_uuid(), "flagged": False}
        sheet = self._upsert(api.SubmittedNotebook, keys, flag, new)
        self._write_grades(result, sheet.id, changed)
        self._write_comments(sheet.id)
        penalty = self._penalty(known, sheet.id, hand_in)
        self._change(api.SubmittedNotebook, sheet, late_submission_penalty=penalty)

    def _upsert(
        self, model: Any, keys: dict[str, Any], values: dict[str, Any], new: Any = None
    ) -> Any:
        """The row with these keys and values; ``new`` holds what only a row that is added gets."""
        row = self._one(model, **keys)
        if row is None:
            self._add(model, [{**(new or {}), **keys, **values}])
        else:
            self._change(model, row, **values)
        return self._one(model, **keys)

    def _add(self, model: Any, rows: list[dict[str, Any]]) -> None:
        if rows:
            self._session.execute(model.__table__.insert(), rows)

    def _change(self, model: Any, row: Any, **values: Any) -> None:
        """Write what differs; a row that says it all already is left alone."""
        changed = {name: value for name, value in values.items() if getattr(row, name) != value}
        if changed:
            table = model.__table__
            self._session.execute(table.update().where(table.c.id == row.id).values(**changed))

    def _rows(self, model: Any, sheet: str) -> dict[str, Any]:
        table = model.__table__
        found = self._session.execute(table.select().where(table.c.notebook_id == sheet))
        return {row.cell_id: row for row in found}

    def _one(self, model: Any, **keys: Any) -> Any:
        table = model.__table__
        wanted = [table.c[name] == value for name, value in keys.items()]
        return self._session.execute(table.select().where(*wanted)).one_or_none()

    def _write_grades(self, result: Result, sheet: str, changed: set[str]) -> None:
        scores = {test.grade_id: test.score for test in result.tests}
        known, new = self._rows(self._api.Grade, sheet), []
        for name, cell in self._grade_cells.items():
            score, row = scores.get(name), known.get(cell)
            manual = score is None
            if row is None:
                keys = {"cell_id": cell, "notebook_id": sheet}
                new.append({**keys, "auto_score": score, "needs_manual_grade": manual})
                continue
            if row.manual_score is not None:  # it stays, and was perhaps given for something else
                manual = row.needs_manual_grade or row.auto_score != score or name in changed
            self._change(self._api.Grade, row, auto_score=score, needs_manual_grade=manual)
        self._add(self._api.Grade, new)

    def _write_comments(self, sheet: str) -> None:
        """Rows to comment in; what tests say stands below them in the notebook."""
        known = self._rows(self._api.Comment, sheet)
        for row in known.values():
            self._change(self._api.Comment, row, auto_comment=None)  # a stock grader's
        cells = [cell for cell in self._commented_cells.values() if cell not in known]
        self._add(self._api.Comment, [{"cell_id": c, "notebook_id": sheet} for c in cells])

    def _penalty(self, known: Any, sheet: str, hand_in: HandIn) -> float | None:
        """By the course's late policy; late by an unknown time counts as late by a second."""
        seconds = self._seconds_late(known)
        seconds = float(hand_in.late) if seconds is None else seconds
        if seconds <= 0:
            return None
        score = sum(_score(row) or 0.0 for row in self._rows(self._api.Grade, sheet).values())
        return late_penalty(self._course, known.student_id, score, seconds)

    def _seconds_late(self, known: Any) -> float | None:
        if known.timestamp is None or self._due is None:
            return None
        due = self._due + (known.extension or datetime.timedelta())
        return float((known.timestamp - due).total_seconds())

    def completed(self, results: Iterable[Result], *, tests_only: bool = False) -> list[Result]:
        """Results together with what persons entered: marks of the whole assignment.

        Args:
            results: what the grader found.
            tests_only: leave written answers out, and their points.
        """
        cells = {
            name: cell
            for name, cell in self._grade_cells.items()
            if name in self._tests or not tests_only
        }
        return [self._completed(result, cells) for result in results]

    def _completed(self, result: Result, cells: dict[str, str]) -> Result:
        api, most = self._api, sum(self._points[name] for name in cells)
        keys = {"assignment_id": self._assignment, "student_id": result.student}
        known = self._one(api.SubmittedAssignment, **keys)
        if known is None or result.status == "missing":
            return dataclasses.replace(result, max_score=most)
        keys = {"assignment_id": known.id, "notebook_id": self._notebook}
        sheet = self._one(api.SubmittedNotebook, **keys)
        grades, comments = self._rows(api.Grade, sheet.id), self._rows(api.Comment, sheet.id)
        said = {
            name: comments[cell].manual_comment
            for name, cell in self._commented_cells.items()
            if cell in comments and comments[cell].manual_comment
        }
        automatic = {test.grade_id: test for test in result.tests}
        tests = []
        for name, cell in cells.items():
            test = automatic.get(name)
            score = _score(grades[cell])
            if test is None and (name not in self._tests or score is not None):
                test = TestResult(name, score, self._points[name], said.pop(name, ""))
            elif test is not None and score != test.score:
                told = f"{test.message}\nA person set this score.".strip()
                test = dataclasses.replace(test, score=score, message=told)
            if test is not None:
                tests.append(test)
        scores = [test.score for test in tests if test.score is not None]
        penalty = (sheet.late_submission_penalty or 0.0) if scores else 0.0
        person = self._one(api.Student, id=result.student)
        notes = result.notes
        if (self._seconds_late(known) or 0.0) > 0 and "late" not in notes:
            notes = (*notes, "late")
        return dataclasses.replace(
            result,
            notes=notes,
            tests=tuple(tests) if scores else result.tests,
            score=max(0.0, sum(scores) - penalty) if scores else None,
            max_score=most,
            late_penalty=penalty,
            pending=tuple(
                test.grade_id
                for test in tests
                if scores and test.score is None and test.grade_id not in self._tests
            ),
            comments=said,
            name=" ".join(filter(None, (person.first_name, person.last_name))),
        )

    def close(self) -> None:
        """Close the connection."""
        self._book.close()

    def __enter__(self) -> "GradebookWriter":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def _score(row: Any) -> float | None:
    """As nbgrader counts a grade: a person's score before a test's, and extra credit to it."""
    score: float | None = row.auto_score if row.manual_score is None else row.manual_score
    return None if score is None else score + (row.extra_credit or 0.0)


def _reason(error: BaseException) -> str:
    text = str(getattr(error, "orig", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def driver_url(url: str) -> str:
    """``postgresql://`` means psycopg 3 here, the driver that the ``postgres`` extra installs."""
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return "postgresql+psycopg://" + url[len(scheme) :]
    return url if "://" in url else f"sqlite:///{url}"


def _without_password(url: str) -> str:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(driver_url(url)).render_as_string(hide_password=True)
    except ArgumentError:
        return "(malformed address)"
