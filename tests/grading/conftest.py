"""One jail for all tests of a worker process of pytest, and the small assignment."""

import functools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import classroom
import postgres
from nbgrader import api

from attn_course.exercises.assignment import load_assignment
from attn_course.grading.course import tools_on_path
from attn_course.grading.sandbox import Zygote, sandbox_problem
from attn_course.grading.verdict import grade_notebook


@pytest.fixture(scope="session")
def zygote():
    problem = sandbox_problem()
    assert problem is None, f"these tests need the jail: {problem}"
    with Zygote() as found:
        yield found


@pytest.fixture(scope="session")
def server():
    with postgres.server() as url:
        yield url


@pytest.fixture(autouse=True, scope="session")
def schema_version_once():
    """nbgrader runs alembic in a process for every new gradebook; once is enough here."""
    tools_on_path()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "get_alembic_version", functools.cache(api.get_alembic_version))
        yield


@pytest.fixture(scope="session")
def assignment():
    return load_assignment(classroom.as_bytes(classroom.notebook()), classroom.SLUG)


@pytest.fixture
def grade(zygote):
    """Grade answers to an instructor's notebook; the solution itself unless told otherwise."""

    def graded(notebook=None, answers=None, **more):
        notebook = notebook or classroom.notebook()
        data = more.pop("data", classroom.answered(answers or {}, notebook))
        settings = {"student": "ada", "seed": 7, "limits": classroom.LIMITS, **more}
        return grade_notebook(
            data, load_assignment(classroom.as_bytes(notebook), "small"), zygote, **settings
        )

    return graded
