"""Execute the instructor's cells in this process; a test cell gives a score and a message."""

import ast
import contextlib
import dataclasses
import functools
import io
import math
import numbers
import os
import random
import re
import traceback
import types
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from attn_course.exercises.assignment import TestCell, TestResult
from attn_course.probes.draw import SEED_VARIABLE
from attn_course.probes.failure import ProbeFailure
from attn_course.probes.student import REMOTE

MAX_MESSAGE = 8000
ROUNDING = 1e-6  # of a float32 that holds the points
_BAD_TEXT = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def plain_text(text: str) -> str:
    """Text that every file, database and terminal takes and that reads as it is written."""
    return _BAD_TEXT.sub("\ufffd", text.replace("\r\n", "\n"))


@functools.lru_cache(maxsize=1024)
def _compiled(identity: str, source: str) -> tuple[types.CodeType, types.CodeType | None]:
    """Compiled once for a whole class: the statements, and the last expression if there is one."""
    tree, where, last = ast.parse(source), f"<{identity}>", None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        expression = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        last = compile(expression, where, "eval")
    return compile(tree, where, "exec"), last


def _execute(identity: str, source: str, names: dict[str, Any]) -> tuple[Any, str]:
    """Run a cell; return the value of its last expression, and what it printed."""
    said = io.StringIO()
    body, last = _compiled(identity, source)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        exec(body, names)
        value = None if last is None else eval(last, names)
    return value, said.getvalue()


@functools.lru_cache(maxsize=1024)
def names_used(test: TestCell) -> frozenset[str]:
    """Every name that a test cell mentions."""
    tree = ast.parse(test.source)
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def missing(text: str) -> Any:
    """Stands for a function that the notebook does not define."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise NameError(text)

    return call


def run_locked(identity: str, source: str, names: dict[str, Any]) -> str:
    """Execute a cell of the instructor that is no test; one that shows a learner's result may fail.

    Returns the text of the exception, "" where there is none.
    """
    try:
        _execute(identity, source, names)
    except Exception as error:
        return error_text(error)
    return ""


def error_text(error: BaseException) -> str:
    """Type and text of an exception; one whose text cannot be made has none."""
    try:
        return plain_text(f"{type(error).__name__}: {error}"[:MAX_MESSAGE])
    except Exception:
        return type(error).__name__


def run_test(test: TestCell, names: dict[str, Any]) -> TestResult:
    """Execute a test cell; an exception is 0, a plain number as last value is partial credit."""
    return attempt(test, names)[0]


def attempt(test: TestCell, names: dict[str, Any]) -> tuple[TestResult, Exception | None]:
    """The result of a test cell, and the exception that it raised."""
    try:
        value, said = _execute(test.grade_id, test.source, names)
        score = _score(value, test)
    except ProbeFailure as failure:
        text = plain_text(str(failure)[:MAX_MESSAGE])
        found = TestResult(test.grade_id, 0.0, test.points, text, failure.misconception)
        return dataclasses.replace(found, line=_line(failure, test)), failure
    except Exception as error:
        found = TestResult(test.grade_id, 0.0, test.points, error_text(error))
        return dataclasses.replace(found, line=_line(error, test)), error
    text = plain_text(said[:MAX_MESSAGE]).strip()
    return TestResult(test.grade_id, score, test.points, text), None


def _line(error: Exception, test: TestCell) -> int | None:
    """The last line of a test cell that an exception passed."""
    steps = traceback.walk_tb(error.__traceback__)
    lines = [n for frame, n in steps if frame.f_code.co_filename == f"<{test.grade_id}>"]
    return lines[-1] if lines else None


def _score(value: object, test: TestCell) -> float:
    """Points from the last value of a test cell.

    None, text and anything else that is no number are full marks, as in nbgrader; a truth value is
    all or nothing. A number above the points, beyond rounding, is no score: capping it would let a
    submission that the cell trusts too much buy full marks. So would several numbers, and an
    object of the submission.
    """
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        if math.prod(value.shape) != 1:
            shape = tuple(value.shape)
            raise ValueError(f"{test.grade_id}: expected one number, got an array of shape {shape}")
        value = value.item()
    if hasattr(type(value), REMOTE):
        raise ValueError(f"{test.grade_id}: expected a score or None, got {value!r}")
    if type(value) is bool:
        return test.points if value else 0.0
    if not isinstance(value, numbers.Number):
        return test.points
    score = float(value) if isinstance(value, numbers.Real) else math.nan
    if not -ROUNDING <= score <= test.points + ROUNDING * max(1.0, test.points):
        raise ValueError(f"{test.grade_id}: expected a score from 0 to {test.points}, got {value}")
    return min(max(score, 0.0), test.points)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Every source of randomness of a test cell from one seed; all restored afterwards."""
    before = os.environ.get(SEED_VARIABLE)
    os.environ[SEED_VARIABLE] = str(seed)
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  a test cell may use the old interface
    random.seed(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
        if before is None:
            os.environ.pop(SEED_VARIABLE, None)
        else:
            os.environ[SEED_VARIABLE] = before
