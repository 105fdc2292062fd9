"""Write results into nbgrader's own gradebook: its tables, one transaction for each submission.

Writing the same result twice leaves the same rows: everything is looked up before it is added, and
what a person entered (manual scores, comments, extra credit) is never touched.
"""

import contextlib
import datetime
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attn_course.grading.assignment import Assignment
from attn_course.grading.results import Result

COURSE = "default_course"


class GradebookError(RuntimeError):
    """The gradebook cannot be opened or holds something else; the text says what to do."""


class GradebookWriter:
    """The one writer of a grading run.

    Args:
        url: a SQLAlchemy address: ``sqlite:///gradebook.db``, ``postgresql+psycopg://...``.
        assignment: what is graded; added to the gradebook when it is not there.

    Raises:
        GradebookError: no connection, or the gradebook's cells differ from the assignment's.
    """

    def __init__(self, url: str, assignment: Assignment) -> None:
        from nbgrader import api
        from sqlalchemy.exc import SQLAlchemyError

        self.assignment = assignment
        self._api = api
        tools_on_path()
        try:
            with _known_head(api):
                self._book = api.Gradebook(driver_url(url))
        except (SQLAlchemyError, api.InvalidEntry, OSError, ImportError) as error:
            raise GradebookError(
                f"the gradebook {_without_password(url)} cannot be opened: {_reason(error)}"
            ) from None
        self._session = self._book.db
        self._where = _without_password(url)
        with self._transaction():
            self._notebook = self._add_assignment()

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

    def _find(self, model: Any, **keys: Any) -> Any:
        return self._session.query(model).filter_by(**keys).one_or_none()

    def _ensure(self, model: Any, keys: dict[str, Any], **values: Any) -> Any:
        found = self._find(model, **keys)
        if found is None:
            found = model(**keys, **values)
            self._session.add(found)
            self._session.flush()
        return found

    def _add_assignment(self) -> Any:
        api, ours = self._api, self.assignment
        self._ensure(api.Course, {"id": COURSE})
        found = self._find(api.Assignment, name=ours.slug)
        if found is None:
            found = api.Assignment(name=ours.slug, course_id=COURSE)
            self._session.add(found)
            self._session.flush()
        notebook = self._ensure(api.Notebook, {"name": ours.slug, "assignment_id": found.id})
        points = {test.grade_id: test.points for test in ours.tests} | ours.manual
        for grade_id, kind in ours.cells.items():
            keys = {"name": grade_id, "notebook_id": notebook.id}
            if grade_id in points:
                cell = self._ensure(api.GradeCell, keys, max_score=points[grade_id], cell_type=kind)
                if cell.max_score != points[grade_id]:
                    raise GradebookError(
                        f"{grade_id}: expected {points[grade_id]} points as in the assignment, got "
                        f"{cell.max_score} in the gradebook: run nbgrader generate_assignment again"
                    )
            if grade_id in ours.manual or grade_id in ours.solutions.values():
                self._ensure(api.SolutionCell, keys)
        self._session.flush()
        self._grade_cells = self._cells(api.GradeCell, notebook)
        self._solution_cells = self._cells(api.SolutionCell, notebook)
        return notebook

    def _cells(self, model: Any, notebook: Any) -> dict[str, str]:
        rows = self._session.query(model.name, model.id).filter(model.notebook_id == notebook.id)
        return dict(rows.all())

    def students(self) -> set[str]:
        """Who has a sheet of this assignment in the gradebook."""
        api = self._api
        query = self._session.query(api.SubmittedAssignment.student_id).join(
            api.SubmittedNotebook, api.SubmittedNotebook.assignment_id == api.SubmittedAssignment.id
        )
        rows = query.filter(api.SubmittedNotebook.notebook_id == self._notebook.id)
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
            self._write(result, submitted)

    def _write(self, result: Result, submitted: datetime.datetime | None) -> None:
        api = self._api
        self._ensure(api.Student, {"id": result.student})
        handed_in = self._ensure(
            api.SubmittedAssignment,
            {"assignment_id": self._notebook.assignment_id, "student_id": result.student},
        )
        if submitted is not None:
            handed_in.timestamp = submitted
        keys = {"assignment_id": handed_in.id, "notebook_id": self._notebook.id}
        sheet = self._ensure(api.SubmittedNotebook, keys)
        if result.status != "graded":  # a flag that a person set stays
            sheet.flagged = True
        scores = {test.grade_id: test for test in result.tests}
        grades = {
            g.cell_id: g for g in self._session.query(api.Grade).filter_by(notebook_id=sheet.id)
        }
        for name, cell_id in self._grade_cells.items():
            grade = grades.get(cell_id)
            if grade is None:
                grade = api.Grade(cell_id=cell_id, notebook_id=sheet.id, needs_manual_grade=True)
                self._session.add(grade)
            test = scores.get(name)
            before, grade.auto_score = grade.auto_score, test.score if test is not None else None
            if grade.manual_score is None:
                grade.needs_manual_grade = grade.auto_score is None
            elif before != grade.auto_score:  # the manual score was given for something else
                grade.needs_manual_grade = True
        comments = {
            c.cell_id: c for c in self._session.query(api.Comment).filter_by(notebook_id=sheet.id)
        }
        for name, cell_id in self._solution_cells.items():
            comment = comments.get(cell_id)
            if comment is None:
                comment = api.Comment(cell_id=cell_id, notebook_id=sheet.id)
                self._session.add(comment)
            comment.auto_comment = self._comment(name, result)

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


@contextlib.contextmanager
def _known_head(api: Any) -> Iterator[None]:
    """Tell nbgrader the version of its tables, for which it would start a program of seconds."""
    asked, head = api.get_alembic_version, alembic_head(Path(api.__file__).parent)
    if head is not None:
        api.get_alembic_version = lambda: head
    try:
        yield
    finally:
        api.get_alembic_version = asked


def alembic_head(nbgrader: Path) -> str | None:
    """The newest of nbgrader's table versions, as ``alembic heads`` says; None if that is unclear.

    Args:
        nbgrader: folder of the package.
    """
    said = re.compile(r"^(down_revision|revision)\b[^=\n]*=\s*(?:['\"](\w+)['\"]|None)\s*$", re.M)
    known: dict[str, set[str]] = {"revision": set(), "down_revision": set()}
    for path in (nbgrader / "alembic" / "versions").glob("*.py"):
        for kind, version in said.findall(path.read_text()):
            known[kind] |= {version} - {""}
    heads = known["revision"] - known["down_revision"]
    return heads.pop() if len(heads) == 1 else None


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
