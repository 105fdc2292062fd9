"""What the grader found: one result for each submission, one for each of its test cells."""

import dataclasses
from typing import Any

from attn_course.exercises.assignment import TestResult


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a submission gave.

    ``status`` is ``graded``, ``needs_review`` (graded as far as its cells allow), ``missing``,
    ``unreadable``, ``stripped``, ``timeout`` or ``sandbox_error``; only the first two, and a
    ``timeout`` after some tests, carry a score. ``reason`` says why in a sentence.

    The last fields are empty until the gradebook has been read (``GradebookWriter.completed``):
    then ``tests`` and both scores hold what a person graded too, ``score`` less
    ``late_penalty``.
    ``pending`` names the written answers that nobody has graded yet.
    """

    student: str
    assignment: str
    status: str
    reason: str = ""
    score: float | None = None
    max_score: float = 0.0
    seed: int = 0
    sandboxed: bool = True
    tests: tuple[TestResult, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    name: str = ""
    late_penalty: float = 0.0
    pending: tuple[str, ...] = ()
    comments: dict[str, str] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        lists = {"notes": list(self.notes), "pending": list(self.pending)}
        return {**vars(self), **lists, "tests": [vars(test) for test in self.tests]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Result":
        """The inverse of :meth:`as_json`."""
        tests = tuple(TestResult(**test) for test in data["tests"])
        lists = {name: tuple(data.get(name, ())) for name in ("notes", "pending")}
        return cls(**{**data, **lists, "tests": tests})
