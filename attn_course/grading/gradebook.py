"""Write results into nbgrader's own gradebook: its tables, one transaction for each submission.

Writing the same result twice leaves the same rows: everything is looked up before it is added, and
what a person entered (manual scores, comments, extra credit) is never touched.
"""

import contextlib
import datetime
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import Assignment
from attn_course.grading.results import Result
from attn_course.grading.startup import known_head, nbgrader_api

COURSE = "default_course"


class GradebookError(RuntimeError):
    """The gradebook cannot be opened or holds something else; the text says what to do."""


class GradebookWriter:
    """The one writer of a grading run.

    Students' rows are written to the tables of nbgrader's models: through its objects, a
    submission's rows take ten times as long, and on the cores that the workers need.

    Args:
        url: a SQLAlchemy address: ``sqlite:///gradebook.db``, ``postgresql+psycopg://...``.
        assignment: what is graded; added to the gradebook when it is not there.

    Raises:
        GradebookError: no connection, or the gradebook's cells differ from the assignment's.
    """

    def __init__(self, url: str, assignment: Assignment) -> None:
        self._api = api = nbgrader_api()
        from sqlalchemy.exc import SQLAlchemyError

        self.assignment = assignment
        tools_on_path()
        try:
            with known_head(api):
                self._book = api.Gradebook(driver_url(url))
        except (SQLAlchemyError, api.InvalidEntry, OSError, ImportError) as error:
            raise GradebookError(
                f"the gradebook {_without_password(url)} cannot be opened: {_reason(error)}"
            ) from None
        self._session = self._book.db
        self._where = _without_password(url)
        with self._transaction():
            self._assignment, self._notebook = self._add_assignment()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
            self._session.commit()
        except SQLAlchemyError as error:
            with contextlib.suppress(SQLAlchemyError):
                self._session.rollback()
            raise GradebookError(
                f"the gradebook {self._where} cannot be written: {_reason(error)}; what was "
                "graded so far is kept: run the same command again to go on"
            ) from None
        except BaseException:
            self._session.rollback()
            raise

    def _ensure(self, model: Any, keys: dict[str, Any], **values: Any) -> Any:
        found = self._session.query(model).filter_by(**keys).one_or_none()
        if found is None:
            found = model(**keys, **values)
            self._session.add(found)
            self._session.flush()
        return found

    def _add_assignment(self) -> tuple[str, str]:
        """The ids of the assignment and of its notebook; what is missing of them is added."""
        api, ours = self._api, self.assignment
        self._ensure(api.Course, {"id": COURSE})
        found = self._ensure(api.Assignment, {"name": ours.slug}, course_id=COURSE)
        notebook = self._ensure(api.Notebook, {"name": ours.slug, "assignment_id": found.id})
        points = {test.grade_id: test.points for test in ours.tests} | ours.manual
        answered = {*ours.manual, *ours.solutions.values()}
        graded = {cell.name: cell.max_score for cell in self._cells(api.GradeCell, notebook)}
        solved = {cell.name for cell in self._cells(api.SolutionCell, notebook)}
        for grade_id, kind in ours.cells.items():
            keys = {"name": grade_id, "notebook_id": notebook.id}
            if grade_id in points:
                most = points[grade_id]
                if grade_id not in graded:
                    self._session.add(api.GradeCell(**keys, max_score=most, cell_type=kind))
                elif graded[grade_id] != most:
                    raise GradebookError(
                        f"{grade_id}: expected {most} points as in the assignment, got "
                        f"{graded[grade_id]} in the gradebook: run nbgrader generate_assignment "
                        "again"
                    )
            if grade_id in answered and grade_id not in solved:
                self._session.add(api.SolutionCell(**keys))
        self._session.flush()
        self._grade_cells = {c.name: c.id for c in self._cells(api.GradeCell, notebook)}
        self._solution_cells = {c.name: c.id for c in self._cells(api.SolutionCell, notebook)}
        return found.id, notebook.id

    def _cells(self, model: Any, notebook: Any) -> list[Any]:
        found: list[Any] = self._session.query(model).filter_by(notebook_id=notebook.id).all()
        return found

    def students(self) -> set[str]:
        """Who has a sheet of this assignment in the gradebook."""
        api = self._api
        query = self._session.query(api.SubmittedAssignment.student_id).join(
            api.SubmittedNotebook, api.SubmittedNotebook.assignment_id == api.SubmittedAssignment.id
        )
        rows = query.filter(api.SubmittedNotebook.notebook_id == self._notebook)
        return {row[0] for row in rows}

    def write(self, result: Result, *, submitted: datetime.datetime | None = None) -> None:
        """Record one result; a submission that is missing leaves no row.

        Args:
            result: what the grader found.
            submitted: when it was handed in, UTC without a zone, as nbgrader keeps it.
        """
        if result.status == "missing":
            return
        with self._transaction():
            sheet, known = self._sheet(result, submitted)
            self._write_grades(result, sheet, self._rows(self._api.Grade, sheet) if known else {})
            self._write_comments(
                result, sheet, self._rows(self._api.Comment, sheet) if known else {}
            )

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

    def _sheet(self, result: Result, submitted: datetime.datetime | None) -> tuple[str, bool]:
        """The id of the student's notebook, and whether it was there already."""
        api = self._api
        keys = {"assignment_id": self._assignment, "student_id": result.student}
        handed_in = None
        if self._one(api.Student, id=result.student) is None:
            self._add(api.Student, [{"id": result.student}])
        else:
            handed_in = self._one(api.SubmittedAssignment, **keys)
        if handed_in is None:
            found = api.new_uuid()
            self._add(api.SubmittedAssignment, [{"id": found, "timestamp": submitted, **keys}])
        else:
            found = handed_in.id
            if submitted is not None:
                self._change(api.SubmittedAssignment, handed_in, timestamp=submitted)
        keys = {"assignment_id": found, "notebook_id": self._notebook}
        sheet = self._one(api.SubmittedNotebook, **keys) if handed_in is not None else None
        flagged = result.status != "graded"
        if sheet is None:
            found = api.new_uuid()
            self._add(api.SubmittedNotebook, [{"id": found, "flagged": flagged, **keys}])
            return found, False
        if flagged:  # a flag that a person set stays
            self._change(api.SubmittedNotebook, sheet, flagged=True)
        return sheet.id, True

    def _write_grades(self, result: Result, sheet: str, known: dict[str, Any]) -> None:
        scores = {test.grade_id: test.score for test in result.tests}
        new = []
        for name, cell in self._grade_cells.items():
            score, row = scores.get(name), known.get(cell)
            manual = score is None
            if row is None:
                keys = {"cell_id": cell, "notebook_id": sheet}
                new.append({**keys, "auto_score": score, "needs_manual_grade": manual})
                continue
            if row.manual_score is not None:  # it stays, and was perhaps given for something else
                manual = row.needs_manual_grade or row.auto_score != score
            self._change(self._api.Grade, row, auto_score=score, needs_manual_grade=manual)
        self._add(self._api.Grade, new)

    def _write_comments(self, result: Result, sheet: str, known: dict[str, Any]) -> None:
        new = []
        for name, cell in self._solution_cells.items():
            text, row = self._comment(name, result), known.get(cell)
            if row is None:
                new.append({"cell_id": cell, "notebook_id": sheet, "auto_comment": text})
            else:
                self._change(self._api.Comment, row, auto_comment=text)
        self._add(self._api.Comment, new)

    def _comment(self, grade_id: str, result: Result) -> str | None:
        """What the learner is told below a solution cell: the messages of its failed tests."""
        names = [name for name, cell in self.assignment.solutions.items() if cell == grade_id]
        told = [
            _verbatim(test.message)
            for test in result.tests
            if test.message and any(test.grade_id.startswith(f"{name}-") for name in names)
        ]
        if result.status not in ("graded", "needs_review"):
            told.insert(0, _verbatim(f"{result.status}: {result.reason}"))
        return "\n\n".join(told) or None

    def close(self) -> None:
        """Close the connection."""
        self._book.close()

    def __enter__(self) -> "GradebookWriter":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def _verbatim(text: str) -> str:
    """A block of code in Markdown: nbgrader makes HTML of comments, and leaves HTML in them alone.

    An error's text is the student's: as a paragraph it could bring a script to the instructor.
    """
    return "\n".join(f"    {line}" for line in text.splitlines())


def _reason(error: BaseException) -> str:
    text = str(getattr(error, "orig", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def tools_on_path() -> None:
    """Put this environment's programs on PATH: nbgrader calls ``alembic`` by name."""
    programs = str(Path(sys.executable).parent)
    if programs not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = programs + os.pathsep + os.environ.get("PATH", "")


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
