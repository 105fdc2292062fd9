"""The course as nbgrader sees it: its configuration, and what that says of late hand-ins.

Formgrader, ``generate_feedback`` and ``export`` work on what ``grade`` wrote because both read the
same ``nbgrader_config.py`` and keep the same cells.
"""

import os
import sys
from pathlib import Path
from typing import Any


class CourseError(ValueError):
    """The course cannot be used as it is; the text says what to do."""


def open_course(root: Path) -> Any:
    """nbgrader's ``CourseDirectory`` with the settings that its commands would use in a folder."""
    from jupyter_core.paths import jupyter_config_path
    from nbgrader.apps import NbGrader
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Application

    tools_on_path()
    app = NbGrader()
    app.raise_config_file_errors = True
    try:
        Application.load_config_file(app, "nbgrader_config", [str(root), *jupyter_config_path()])
    except (Exception, SystemExit) as error:
        raise CourseError(f"nbgrader_config.py: {type(error).__name__}: {error}") from None
    course = CourseDirectory(config=app.config)
    if "root" not in app.config.CourseDirectory:
        course.root = str(root.resolve())
    return course


def hides_staff_cells(course: Any) -> bool:
    """Whether ``generate_feedback`` leaves out what stands in formgrader for the grader."""
    from nbgrader.converters import GenerateFeedback

    from attn_course.grading.staff import WithoutStaffCells

    steps = GenerateFeedback(coursedir=course, config=course.config).preprocessors
    return any(issubclass(step, WithoutStaffCells) for step in steps)


def late_penalty(course: Any, student: str, score: float, seconds: float) -> float | None:
    """What the course's late policy (``AssignLatePenalties``) takes off a score."""
    from nbgrader.preprocessors import AssignLatePenalties

    if course.root not in sys.path:  # a plugin lies beside nbgrader_config.py
        sys.path.append(course.root)
    policy = AssignLatePenalties(config=course.config)
    policy.init_plugin()
    penalty = policy.plugin_inst.late_submission_penalty(student, score, seconds)
    return None if penalty is None else min(max(float(penalty), 0.0), max(score, 0.0))


def tools_on_path() -> None:
    """Put this environment's programs on PATH: nbgrader calls ``alembic`` by name."""
    programs = str(Path(sys.executable).parent)
    if programs not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = programs + os.pathsep + os.environ.get("PATH", "")
