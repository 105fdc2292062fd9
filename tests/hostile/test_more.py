"""Attacks that need more than one hostile cell: two submissions, several calls, the real sets."""

from collections.abc import Callable

import target

from attn_course.grading.verdict import Result

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
