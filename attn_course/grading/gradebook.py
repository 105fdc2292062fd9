"""Write results into nbgrader's own gradebook, as objects of ``nbgrader.api``.

Each submission is one transaction; nbgrader's ``add_submission`` and its kin commit by themselves.
Writing the same result twice leaves the same rows: everything is looked up before it is added, and
what a person entered (manual scores, comments, extra credit) is never touched.
"""

import contextlib
import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attn_course.exercises.assignment import TestResult, grade_metadata, load_assignment
from attn_course.exercises.release import prepared
from attn_course.grading.autograded import answers_in, graded_notebook, untouched_answers
from attn_course.grading.collect import HandIn
from attn_course.grading.course import late_penalty, open_course
from attn_course.grading.exports import write_text
from attn_course.grading.results import Result

CHANGED = ": changed after a person had graded it"


class GradebookError(RuntimeError):
    """The gradebook cannot be opened or holds something else; the text says what to do."""


class GradebookWriter(contextlib.AbstractContextManager["GradebookWriter"]):
    """The one writer of a grading run.

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
        self._where = without_secrets(url)
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
            raise self._refused("opened", error) from None
        self._session = self._book.db
        self._transaction(lambda: self._save_cells(saved))

    def _refused(self, done: str, error: Exception) -> GradebookError:
        """What the database says, in one line, and what to do about it."""
        from sqlalchemy.exc import OperationalError

        reason = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
        reason = without_secrets(reason.splitlines()[0])
        told = "; bring back a copy of it, or name another with --gradebook"
        if " is locked" in reason:
            told = "; close the program that holds it (formgrader, or another 'attn-course grade')"
            told += " and run the same command again"
        elif done == "opened":
            told = ""
        elif isinstance(error, OperationalError) and "no such" not in reason:
            told = "; what was graded so far is kept: run the same command again to go on"
        return GradebookError(f"the gradebook {self._where} cannot be {done}: {reason}{told}")

    def _transaction(self, work: Callable[[], None]) -> None:
        from sqlalchemy.exc import IntegrityError, SQLAlchemyError

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
            raise self._refused("used", error) from None
        except BaseException:
            self._session.rollback()
            raise

    def _row(self, model: Any, keys: dict[str, Any], **values: Any) -> Any:
        """The row with these keys, added where there is none, with these values."""
        row = self._session.query(model).filter_by(**keys).one_or_none()
        if row is None:
            row = model(**keys, **values)
            self._session.add(row)
        for name, value in values.items():
            setattr(row, name, value)
        self._session.flush()  # from here on a new row has an id
        return row

    def _save_cells(self, saved: Any) -> None:
        """The assignment's rows as ``nbgrader generate_assignment`` would leave them."""
        api, course = self._api, self._book.course_id
        self._assignment = self._row(api.Assignment, {"name": self._slug}, course_id=course)
        keys = {"name": self._slug, "assignment_id": self._assignment.id}
        kernel = json.dumps(saved.metadata.get("kernelspec", {}))
        self._notebook = self._row(api.Notebook, keys, kernelspec=kernel)
        self._points: dict[str, float] = {}
        self._grade_cells: dict[str, str] = {}  # ids by name
        self._commented_cells: dict[str, str] = {}
        kept = set()
        for cell in saved.cells:
            name = str(grade_metadata(cell).get("grade_id"))
            for model, values in self._rows_of(cell):
                keys = {"name": name, "notebook_id": self._notebook.id}
                row = self._row(model, keys, **values)
                kept.add(row.id)
                if model in (api.GradeCell, api.TaskCell):
                    self._points[name] = row.max_score
                    self._grade_cells[name] = row.id
                if model in (api.SolutionCell, api.TaskCell):
                    self._commented_cells[name] = row.id
        for model in (api.BaseCell, api.SourceCell):
            for row in self._session.query(model).filter_by(notebook_id=self._notebook.id):
                if row.id not in kept:
                    self._remove_cell(row)

    def _rows_of(self, cell: Any) -> list[tuple[Any, dict[str, Any]]]:
        """The rows that nbgrader keeps of one cell: their kinds, and what they say."""
        from nbgrader import utils

        api, meta, kind = self._api, grade_metadata(cell), {"cell_type": cell.cell_type}
        rows: list[tuple[Any, dict[str, Any]]] = []
        if utils.is_grade(cell) or utils.is_task(cell):
            model = api.GradeCell if utils.is_grade(cell) else api.TaskCell
            rows.append((model, {"max_score": float(meta["points"]), **kind}))
        if utils.is_solution(cell):
            rows.append((api.SolutionCell, {}))
        if rows or utils.is_locked(cell):
            source = {"source": cell.source, "locked": utils.is_locked(cell), **kind}
            rows.append((api.SourceCell, {**source, "checksum": meta.get("checksum")}))
        return rows

    def _remove_cell(self, cell: Any) -> None:
        """A cell that the assignment has no longer; what a person wrote to it is not thrown away.

        Raises:
            GradebookError: there is such a score or comment.
        """
        api = self._api
        for model, entered in ((api.Grade, "manual_score"), (api.Comment, "manual_comment")):
            rows = self._session.query(model).filter_by(cell_id=cell.id)
            if rows.filter(getattr(model, entered).is_not(None)).count():
                raise GradebookError(
                    f"{cell.name}: the assignment has no such cell any more, and the gradebook "
                    f"{self._where} holds what a person entered for it: put the cell back, or "
                    "name another gradebook with --gradebook"
                )
            rows.delete()
        self._session.delete(cell)

    def write(self, result: Result, hand_in: HandIn) -> None:
        """Record one result; a submission that is missing leaves no row.

        Args:
            result: what the grader found.
            hand_in: what it found it in.
        """
        if result.status == "missing":
            return
        if not self._keeps_notebooks:
            self._transaction(lambda: self._write(result, hand_in, set()))
            return
        folder = Path(
            self._course.format_path(self._course.autograded_directory, result.student, self._slug)
        )
        path = folder / f"{self._slug}.ipynb"
        page = self._page(hand_in, result)
        old, new = answers_in(path), answers_in(page)
        changed = {name for name in old.keys() & new.keys() if old[name] != new[name]}
        self._transaction(lambda: self._write(result, hand_in, changed))
        if not path.exists() or path.read_bytes() != page:
            write_text(path, page)
        if hand_in.submitted is not None:
            write_text(folder / "timestamp.txt", f"{hand_in.submitted} UTC")

    def _page(self, hand_in: HandIn, result: Result) -> bytes:
        try:
            return graded_notebook(hand_in.data, result, self._release)
        except Exception as error:  # one odd file must not keep the others from their marks
            why = f"{result.status}; it cannot be shown: {type(error).__name__}: {error}"
            return graded_notebook(None, dataclasses.replace(result, status=why), self._release)

    def _write(self, result: Result, hand_in: HandIn, changed: set[str]) -> None:
        api = self._api
        student = self._row(api.Student, {"id": result.student})
        name = re.sub("[<>&]", "", hand_in.name)  # nbgrader's pages take a name for HTML
        if name and not student.first_name and not student.last_name:
            first, _, student.last_name = name.rpartition(" ")
            student.first_name = first or None
        keys = {"assignment_id": self._assignment.id, "student_id": student.id}
        when = {"timestamp": hand_in.submitted} if hand_in.submitted is not None else {}
        submission = self._row(api.SubmittedAssignment, keys, **when)
        keys = {"assignment_id": submission.id, "notebook_id": self._notebook.id}
        flag = {} if result.status == "graded" else {"flagged": True}  # a person's own stays
        sheet = self._row(api.SubmittedNotebook, keys, **flag)
        self._write_grades(result, hand_in, sheet, changed)
        self._write_comments(sheet)
        sheet.late_submission_penalty = self._penalty(submission, sheet, hand_in)

    def _write_grades(self, result: Result, hand_in: HandIn, sheet: Any, changed: set[str]) -> None:
        scores = {test.grade_id: test.score for test in result.tests}
        if result.score is not None and isinstance(hand_in.data, bytes):
            scores |= dict.fromkeys(untouched_answers(hand_in.data, self._release), 0.0)
        known = {grade.cell_id: grade for grade in sheet.grades}
        for name, cell in self._grade_cells.items():
            score = scores.get(name)
            manual = score is None
            grade = known.get(cell)
            if grade is None:
                grade = self._api.Grade(cell_id=cell)
                sheet.grades.append(grade)
            elif grade.manual_score is not None:  # it stays, and was perhaps for something else
                differs = name in self._tests and grade.auto_score != score
                manual = grade.needs_manual_grade or differs or name in changed
            grade.auto_score, grade.needs_manual_grade = score, manual

    def _write_comments(self, sheet: Any) -> None:
        """Rows to comment in; what tests say stands below them in the notebook."""
        for comment in sheet.comments:
            comment.auto_comment = None  # a stock grader's
        known = {comment.cell_id for comment in sheet.comments}
        new = [cell for cell in self._commented_cells.values() if cell not in known]
        sheet.comments.extend(self._api.Comment(cell_id=cell) for cell in new)

    def _penalty(self, submission: Any, sheet: Any, hand_in: HandIn) -> float | None:
        """By the course's late policy; late by an unknown time counts as late by a second."""
        seconds = self._seconds_late(submission)
        seconds = float(hand_in.late) if seconds is None else seconds
        if seconds <= 0:
            return None
        score = sum(_score(grade) or 0.0 for grade in sheet.grades)
        return late_penalty(self._course, submission.student_id, score, seconds)

    def _seconds_late(self, submission: Any) -> float | None:
        if submission.timestamp is None or self._assignment.duedate is None:
            return None
        return float(submission.total_seconds_late)

    def completed(self, results: Iterable[Result], *, tests_only: bool = False) -> list[Result]:
        """Results together with what persons entered: marks of the whole assignment.

        Args:
            results: what the grader found.
            tests_only: leave written answers out, and their points.
        """
        wanted = self._tests if tests_only else self._grade_cells.keys()
        cells = {name: cell for name, cell in self._grade_cells.items() if name in wanted}
        found: list[Result] = []
        self._transaction(lambda: found.extend(self._completed(one, cells) for one in results))
        return found

    def _completed(self, result: Result, cells: dict[str, str]) -> Result:
        most = sum(self._points[name] for name in cells)
        sheet = None
        with contextlib.suppress(self._api.MissingEntry):
            sheet = self._book.find_submission_notebook(self._slug, self._slug, result.student)
        if sheet is None or result.status == "missing":
            return dataclasses.replace(result, max_score=most)
        submission = sheet.assignment
        grades = {grade.cell_id: grade for grade in sheet.grades}
        said = {one.name: one.manual_comment for one in sheet.comments if one.manual_comment}
        automatic = {test.grade_id: test for test in result.tests}
        tests = []
        for name, cell in cells.items():
            test, score = automatic.get(name), _score(grades[cell])
            if test is None and (name not in self._tests or score is not None):
                blank = grades[cell].auto_score is not None
                told = said.pop(name, "This answer was left as it was released." if blank else "")
                test = TestResult(name, score, self._points[name], told)
            elif test is not None and score != test.score:
                told = f"{test.message}\nA person set this score.".strip()
                test = dataclasses.replace(test, score=score, message=told)
            if test is not None:
                tests.append(test)
        scores = [test.score for test in tests if test.score is not None]
        waiting = [t.grade_id for t in tests if t.score is None and t.grade_id not in self._tests]
        if result.score is None and any(_score(grades[cell]) is None for cell in cells.values()):
            if scores:
                told = f"{sum(scores):g} points were entered: a total needs a score in every cell"
                result = dataclasses.replace(result, notes=(*result.notes, told))
            scores = []
        penalty = (sheet.late_submission_penalty or 0.0) if scores else 0.0
        student, notes = submission.student, result.notes
        if (self._seconds_late(submission) or 0.0) > 0 and "late" not in notes:
            notes = (*notes, "late")
        regrade = [
            f"{name}{CHANGED}"
            for name, cell in cells.items()
            if grades[cell].manual_score is not None and grades[cell].needs_manual_grade
        ]
        return dataclasses.replace(
            result,
            notes=(*notes, *regrade),
            tests=tuple(tests) if scores else result.tests,
            score=max(0.0, sum(scores) - penalty) if scores else None,
            max_score=most,
            late_penalty=penalty,
            pending=tuple(waiting if scores else ()),
            comments=said,
            name=" ".join(filter(None, (student.first_name, student.last_name))),
        )

    def close(self) -> None:
        """Close the connection."""
        self._book.close()

    def __exit__(self, *args: object) -> None:
        self.close()


def _score(row: Any) -> float | None:
    """As nbgrader counts a grade: a person's score before a test's, and extra credit to it."""
    score: float | None = row.auto_score if row.manual_score is None else row.manual_score
    return None if score is None else score + (row.extra_credit or 0.0)


def driver_url(url: str) -> str:
    """``postgresql://`` means psycopg 3 here, the driver that the ``postgres`` extra installs."""
    url = re.sub("^postgres(ql)?://", "postgresql+psycopg://", url)
    return url if "://" in url else f"sqlite:///{url}"


def without_secrets(text: str) -> str:
    """An address, or a text with one, that can be printed: no password in any form of libpq's.

    All options behind a question mark go: their names may be percent-encoded.
    """
    text = re.sub(r"(://[^\s:/@]*):\S*@", r"\1:***@", text)
    text = re.sub(r"(://[^\s?]*\?)\S*", r"\1***", text)
    return re.sub(r"(?i)\b(\w*pass\w*|pwd)(\s*=\s*)('(?:\\.|[^'\\])*'|[^\s&]+)", r"\1\2***", text)
