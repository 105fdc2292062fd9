"""Write results into nbgrader's own gradebook, as objects of ``nbgrader.api``.

Each submission is one transaction; nbgrader's ``add_submission`` and its kin commit by themselves.
Writing the same result twice leaves the same rows: everything is looked up before it is added, and
what a person entered (manual scores, comments, extra credit) is never touched.
"""

import contextlib
import dataclasses
import json
import re
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from attn_course.exercises.assignment import TestResult, grade_metadata, load_assignment
from attn_course.exercises.release import prepared
from attn_course.exercises.submission import parse_notebook
from attn_course.grading.autograded import (
    answers_in,
    graded_notebook,
    model_answers,
    untouched_answers,
)
from attn_course.grading.collect import HandIn
from attn_course.grading.course import hides_staff_cells, late_penalty, open_course
from attn_course.grading.exports import write_text
from attn_course.grading.results import Result

CHANGED = ": changed after a person had graded it"
EXTENDED = "marked late by the platform, and not counted as late: the student has an extension"


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
        self._models = model_answers(notebook) if hides_staff_cells(self._course) else {}
        url = driver_url(url or self._course.db_url)
        self._url, self._where = url, without_secrets(url, url)
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
        reason = without_secrets(reason.splitlines()[0], self._url)
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

        for last in (False, True):
            try:
                work()
                self._session.commit()
                return
            except BaseException as error:
                with contextlib.suppress(SQLAlchemyError):
                    self._session.rollback()
                if isinstance(error, IntegrityError) and not last:
                    continue  # another run has just written the same rows
                if isinstance(error, SQLAlchemyError):
                    raise self._refused("used", error) from None
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
        """A cell that the assignment has no longer, unless a person has written to it."""
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
        """Record one result; a submission that is missing leaves no row."""
        if result.status == "missing":
            return
        given, page = self._page(hand_in, result)
        blank = set() if result.score is None else untouched_answers(given, self._release)
        if not self._keeps_notebooks:
            self._transaction(lambda: self._write(result, hand_in, blank, set()))
            return
        name = self._course.format_path(
            self._course.autograded_directory, result.student, self._slug
        )
        path = Path(name, f"{self._slug}.ipynb")
        old, new = answers_in(path), answers_in(page)
        changed = {name for name in old.keys() & new.keys() if old[name] != new[name]}
        self._transaction(lambda: self._write(result, hand_in, blank, changed))
        if not path.exists() or path.read_bytes() != page:
            write_text(path, page)
        if hand_in.submitted is not None:
            write_text(path.with_name("timestamp.txt"), f"{hand_in.submitted} UTC")
            secret = path.with_name("submission_secret.txt")
            if hand_in.secret or not secret.exists():  # without one nbgrader releases no feedback
                write_text(secret, hand_in.secret or secrets.token_hex(64))

    def _page(self, hand_in: HandIn, result: Result) -> tuple[list[Any], bytes]:
        """The cells that were handed in, and what a person sees of them."""
        data, given = hand_in.data, []
        try:
            if isinstance(data, bytes) and result.status != "unreadable":
                given = parse_notebook(data)["cells"]
            return given, graded_notebook(given, result, self._release, self._models)
        except Exception as error:  # one odd file must not keep the others from their marks
            why = f"{result.status}; it cannot be shown: {type(error).__name__}: {error}"
            shown = dataclasses.replace(result, status=why)
            return [], graded_notebook([], shown, self._release, self._models)

    def _write(self, result: Result, hand_in: HandIn, blank: set[str], changed: set[str]) -> None:
        api = self._api
        student = self._row(api.Student, {"id": result.student})
        name = re.sub("[<>&]", "", hand_in.name)  # nbgrader's pages take a name for HTML
        if name and (hand_in.listed or not (student.first_name or student.last_name)):
            first, _, student.last_name = name.rpartition(" ")
            student.first_name = first or None
        keys = {"assignment_id": self._assignment.id, "student_id": student.id}
        when = {"timestamp": hand_in.submitted} if hand_in.submitted is not None else {}
        submission = self._row(api.SubmittedAssignment, keys, **when)
        keys = {"assignment_id": submission.id, "notebook_id": self._notebook.id}
        flag = {} if result.status == "graded" else {"flagged": True}  # a person's own stays
        sheet = self._row(api.SubmittedNotebook, keys, **flag)
        scores = {test.grade_id: test.score for test in result.tests}
        self._write_cells(scores | dict.fromkeys(blank, 0.0), sheet, changed)
        seconds, sheet.late_submission_penalty = self._late(submission, hand_in.late), None
        if seconds > 0:
            score = sum(_score(grade) or 0.0 for grade in sheet.grades)
            penalty = late_penalty(self._course, student.id, score, seconds)
            sheet.late_submission_penalty = penalty

    def _write_cells(self, scores: dict[str, float | None], sheet: Any, changed: set[str]) -> None:
        """Marks, and rows to comment in: what tests say stands below them in the notebook."""
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
        for comment in sheet.comments:
            comment.auto_comment = None  # a stock grader's
        commented = {comment.cell_id for comment in sheet.comments}
        new = [cell for cell in self._commented_cells.values() if cell not in commented]
        sheet.comments.extend(self._api.Comment(cell_id=cell) for cell in new)

    def _late(self, submission: Any, marked: bool) -> float:
        """Seconds by which it came late; one where the platform says late, and not by how much.

        What the platform does not know is an extension: whoever has one is not late by its word.
        """
        if submission.timestamp is not None and self._assignment.duedate is not None:
            return float(submission.total_seconds_late)
        return float(marked and not submission.extension)

    def completed(self, results: Iterable[Result], *, tests_only: bool = False) -> list[Result]:
        """Results together with what persons entered: marks of the whole assignment."""
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
        student, notes = submission.student, [note for note in result.notes if note != "late"]
        if self._late(submission, "late" in result.notes) > 0:
            notes.append("late")
        elif "late" in result.notes and submission.extension:
            notes.append(EXTENDED)
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

    def __exit__(self, *args: object) -> None:
        self._book.close()


def _score(row: Any) -> float | None:
    """As nbgrader counts a grade: a person's score before a test's, and extra credit to it."""
    score: float | None = row.auto_score if row.manual_score is None else row.manual_score
    return None if score is None else score + (row.extra_credit or 0.0)


def driver_url(url: str) -> str:
    """``postgresql://`` means psycopg 3 here, the driver that the ``postgres`` extra installs."""
    url = re.sub("^postgres(ql)?://", "postgresql+psycopg://", url)
    return url if "://" in url else f"sqlite:///{url}"


def without_secrets(text: str, url: str) -> str:
    """``text``, which may quote ``url``, as it can be printed: no password in any form of libpq's.

    The address loses all from the first colon or question mark to the last @, and all behind a
    question mark; a driver may have read it in another way, so that no word of these is shown.
    """
    scheme, _, rest = url.partition("://")
    user = re.split("[:?]", rest)[0]
    secret, at, host = rest[len(user) :].rpartition("@")
    host, _, options = host.partition("?") if "?" not in secret else ("", "", host)
    text = text.replace(url, f"{scheme}://{user}{':***@' if at else ''}{host}")
    hidden = f"{secret} {options}"
    words = set(re.findall(r"\w+", f"{hidden} {unquote(hidden)}")) - set(re.findall(r"\w+", host))
    text = re.sub(r"\w+", lambda word: "***" if word[0] in words else word[0], text)
    return re.sub(r"(?i)\b(\w*pass\w*|pwd)(\s*=\s*)('(?:\\.|[^'\\])*'|[^\s&]+)", r"\1\2***", text)
