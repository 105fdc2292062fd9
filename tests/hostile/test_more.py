"""Attacks that need more than one hostile cell: two submissions, several calls, the real sets."""

import contextlib
import json
import resource
import time
from functools import partial

import target

from attn_course.probes import Probe, ProbeFailure

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


def test_nothing_of_the_jail_can_be_written_but_the_submissions_own_home(grade):
    """A module planted beside the package would run in every later submission's set-up cell."""
    for _ in range(2):
        found = grade(target.as_bytes(target.submission(double=PLANT))).tests[0].message
        assert "ValueError: []" in found
    assert grade(target.as_bytes(target.honest())).score == sum(target.POINTS.values())


def test_counting_the_calls_does_not_earn_the_points_of_a_written_test():
    """Right candidates used to come first, so a function that knows how many needs no test."""
    wrong = {f"wrong {i}": (lambda x, i=i: x + i) for i in range(1, 6)}
    earned = []
    for seed in range(30):
        for answers in ([True] * 2 + [False] * 5, [False] * 5 + [True] * 2):
            counting = partial(lambda verdicts, candidate: next(verdicts), iter(answers))
            probe = Probe("00_warm_up", "check_softmax", counting, seed=seed)
            with contextlib.suppress(ProbeFailure):
                earned.append(probe.judges(right=[abs, abs], wrong=wrong, points=5.0))
    # A blind guess earns 0.95 on average, with a standard error of 0.16; a known order earned 5.
    assert sum(earned) / 60 < 2.0


def test_the_seed_of_an_earlier_grading_does_not_tell_the_order_of_the_candidates():
    """The page of feedback names it, and a second hand-in is graded with the same one."""
    wrong = {f"wrong {i}": (lambda x, i=i: x + i) for i in range(1, 6)}

    def order():
        seen = []

        def watching(candidate):
            seen.append(str(candidate(0)))
            return seen[-1] == "0"

        Probe("00_warm_up", "check_softmax", watching, seed=3).judges(
            right=[abs, abs], wrong=wrong, points=5.0
        )
        return seen

    assert len({tuple(order()) for _ in range(6)}) > 1


WIDE = """
def apply(step, x):
    n = 40_000
    return step(torch.zeros(n, 1), torch.zeros(1, n))
"""
ADD = "apply(lambda a, b=1.0: a + b, torch.zeros(2))"


def test_a_callback_cannot_be_made_to_fill_the_memory_of_the_grader(zygote):
    """Two columns of 160 kB broadcast to 6.4 GB, on the trusted side."""
    found = target.notebook()
    cell = next(c for c in found["cells"] if c["id"] == "apply-test")
    cell["source"] = ADD + "\n"
    wide = json.loads(json.dumps(found))
    next(c for c in wide["cells"] if c["id"] == "apply")["source"] = WIDE
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = target.graded(zygote, target.as_bytes(wide), target.as_bytes(found))
    test = next(t for t in result.tests if t.grade_id == "apply-test")
    assert (test.score, "memory" in test.message) == (0.0, True), test.message
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 2 << 20, f"{grown >> 10} MiB"
    assert time.monotonic() - begun < target.LIMITS.wall_seconds
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_a_deleted_cell_costs_nothing_in_the_tests_of_another(zygote):
    """A helper that the tests of the deleted function define is used by later tests as well."""
    found = target.notebook()
    for cell in found["cells"]:
        if cell["id"] == "double-test":
            cell["source"] = "def twice(x):\n    return 2 * x\n\n\nassert double(2) == twice(2)"
        if cell["id"] == "partial-test":
            cell["source"] = "assert squares(3)[2] == twice(2)"
    sent = json.loads(json.dumps(found))
    sent["cells"] = [cell for cell in sent["cells"] if cell["id"] != "double"]
    result = target.graded(zygote, target.as_bytes(sent), target.as_bytes(found))
    scores = {test.grade_id: test.score for test in result.tests}
    assert (result.status, scores["double-test"]) == ("needs_review", None)
    assert scores["partial-test"] == target.POINTS["partial"]


def test_an_untouched_stub_is_called_not_started(grade):
    result = grade(target.as_bytes(target.released()))
    said = next(t.message for t in result.tests if t.grade_id == "softmax-test")
    assert "not started" in said


def test_the_seed_of_the_hidden_inputs_cannot_be_had_from_the_submissions_own(grade):
    """31 bits behind a hash of their own are found by a table that is made once."""
    tell = "def double(x):\n    raise ValueError(torch.initial_seed())"
    data = target.as_bytes(target.submission(double=tell))
    for seed in range(5):
        told = grade(data, seed=seed)
        assert int(told.tests[0].message.removeprefix("ValueError: ")) < 256
