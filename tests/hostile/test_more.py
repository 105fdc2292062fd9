"""Attacks that need more than one hostile cell: two submissions, several calls, the real sets."""

import contextlib
from collections.abc import Callable

import target

from attn_course.grading.verdict import Result
from attn_course.probes import Probe, ProbeFailure

Grade = Callable[..., Result]

PLANT = """
import os
places = []
for folder, names, _ in os.walk("/"):
    names[:] = [n for n in names if folder != "/" or n not in ("proc", "usr", "jail")]
    planted = os.path.join(folder, "planted.py")
    if os.path.exists(planted): places.append("met " + planted)
    try:
        open(planted, "w").write("raise SystemExit"); places.append(planted)
    except OSError: pass
try:
    os.mkdir("/opt/attn/package/attn_course/reference")
    open("/opt/attn/package/attn_course/reference/__init__.py", "w").write(
        "import sys\\nsys.modules['__main__'].__dict__.clear()")
except OSError: pass
def double(x):
    raise ValueError(repr(places))
"""


def test_nothing_of_the_jail_can_be_written_but_the_submissions_own_home(grade: Grade) -> None:
    """A module planted beside the package would run in every later submission's set-up cell."""
    for _ in range(2):
        found = grade(target.as_bytes(target.submission(double=PLANT))).tests[0].message
        assert "ValueError: []" in found
    assert grade(target.as_bytes(target.honest())).score == sum(target.POINTS.values())


def test_counting_the_calls_does_not_earn_the_points_of_a_written_test() -> None:
    """Right candidates used to come first, so a function that knows how many needs no test."""
    wrong = {f"wrong {i}": (lambda x, i=i: x + i) for i in range(1, 6)}
    earned = []
    for seed in range(30):
        for answers in ([True] * 2 + [False] * 5, [False] * 5 + [True] * 2):
            verdicts = iter(answers)
            probe = Probe(
                "00_warm_up", "check_softmax", lambda candidate: next(verdicts), seed=seed
            )  # noqa: B023
            with contextlib.suppress(ProbeFailure):
                earned.append(probe.judges(right=[abs, abs], wrong=wrong, points=5.0))
    assert sum(earned) / 60 < 1.0
