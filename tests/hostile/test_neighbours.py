"""What a submission answers, or how it dies, decides nobody's marks but its own.

All processes come from one zygote, and one grading process does the whole class. Each attack is
graded before, between and after honest work.
"""

import contextlib
import time

import pytest
import target

from attn_course.grading.session import Session

RIGHT = {
    "double": "def double(x):\n    return 2 * x",
    "slope": "def slope(x):\n    return 2 * x",
    "apply": "def apply(step, x):\n    return step(step(x))",
}
FORBIDDEN = {"slope": ["autograd"], "double": ["softmax"]}
TESTS = {
    "double-a": "assert double(torch.ones(2)).tolist() == [2.0, 2.0]\n"
    "assert double(torch.ones(3)).tolist() == [2.0] * 3",
    "slope-a": "assert slope(torch.ones(2)).tolist() == [2.0, 2.0]",
    "slope-b": "double(torch.ones(1))\nassert slope(torch.zeros(2)).tolist() == [0.0, 0.0]",
    "slope-c": "try:\n    slope(torch.ones(1))\nexcept ValueError:\n    pass",
    "apply-a": "assert apply(lambda y: 3 * y + 1, torch.ones(2)).tolist() == [13.0, 13.0]",
}
FULL = dict.fromkeys(TESTS, 1.0)


def notebook(answers, locked="", tests=None):
    """The instructor's version, or a submission: a locked cell stands between answers and tests."""
    cells = []
    for name, source in (RIGHT | answers).items():
        cell = target.answer_cell(source, name)
        cell["metadata"]["attn_course"] = {"forbidden": FORBIDDEN.get(name, [])}
        cells.append(cell)
    if locked:
        cells.append(target._cell("code", locked, "shown", locked=True))
    cells += [target.check_cell(source, name) for name, source in (tests or TESTS).items()]
    return target.made("import torch", cells)


@pytest.fixture
def graded(zygote):

    def run(answers=None, **more):
        begun = time.monotonic()
        result = target.graded(zygote, notebook(answers or {}, **more), notebook({}, **more))
        assert time.monotonic() - begun <= target.LIMITS.wall_seconds + 2
        return {test.grade_id: test.score for test in result.tests}

    return run


# --- an end that is taken for an answer -----------------------------------------------------------

FEEL = """
import os, time
FREE = torch.ones(1, requires_grad=True)
try:
    FREE.sum().backward()
except RuntimeError:
    {}
"""
ENDS = {
    "exits": "os._exit(3)",
    "loops": "while True: pass",
    "crashes": "__import__('ctypes').string_at(0)",
    "answers garbage": "[os.write(n, b'garbage' * 9) for n in range(64) if _open(n)]",
}
OPEN = """
def _open(number):
    import os, stat
    try: return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError: return False
"""


@pytest.mark.parametrize("how", ENDS)
def test_a_process_that_ends_before_its_first_request_changes_nothing_for_others(how, graded):
    """Its cells run once more where derivatives are forbidden, can feel that, and end there."""
    hostile = {"slope": OPEN + FEEL.format(ENDS[how]) + RIGHT["slope"]}
    lost = graded(hostile)
    assert [lost[f"slope-{n}"] or 0.0 for n in "abc"] == [0.0] * 3
    assert graded() == FULL


# --- a locked cell that shows what the submission gives -------------------------------------------

SHOWN = "shown = double(torch.ones(2))\nsize = 3"
SHOWN_TESTS = {
    "double-shown": "assert shown.tolist() == [2.0, 2.0]",
    "slope-size": "assert slope(torch.ones(size)).tolist() == [2.0] * 3",
    "slope-both": "limit = size + 1\nassert slope(torch.ones(limit)).sum() == 8",
    "slope-after": "assert slope(torch.ones(limit)).sum() == 8",
}
AT_THE_LOCKED_CELL = {
    "raises": "def double(x):\n    raise ValueError('now size is missing')",
    "is wrong": "def double(x):\n    return 3 * x",
    "gives an object": "class Yes:\n    pass\ndef double(x):\n    return Yes()",
    "writes": "def double(x):\n    return x.mul_(2)",
}


@pytest.mark.parametrize("how", AT_THE_LOCKED_CELL)
def test_what_a_locked_cell_got_of_one_submission_is_not_held_against_another(how, graded):
    more = {"locked": SHOWN, "tests": SHOWN_TESTS}
    full = dict.fromkeys(SHOWN_TESTS, 1.0)
    first = graded({"double": AT_THE_LOCKED_CELL[how]}, **more)
    assert first["double-shown"] == float(how == "writes")
    assert graded(**more) == full
    assert graded({"double": AT_THE_LOCKED_CELL[how]}, **more) == first
    assert graded(**more) == full


@pytest.mark.parametrize("locked", [
    "def show():\n    return double(torch.ones(2))\nshown = show()\nsize = 3",
    "def show(f=double):\n    return f(torch.ones(2))\nshown = show()\nsize = 3",
    "shown = torch.zeros(2)\nshown.add_(double(torch.ones(2)))\nsize = 3",
    "show = lambda: double(torch.ones(2))\nif True:\n    shown = show()\nsize = 3",
    "given = [double]\nshown, size = given[0](torch.ones(2)), 3",
])  # fmt: skip
def test_in_whatever_way_the_locked_cell_asks(locked, graded):
    more = {"locked": locked, "tests": SHOWN_TESTS}
    raises = {"double": AT_THE_LOCKED_CELL["raises"]}
    assert not any(graded(raises, **more).values())
    assert graded(**more) == dict.fromkeys(SHOWN_TESTS, 1.0)
    assert graded({"double": AT_THE_LOCKED_CELL["is wrong"]}, **more)["double-shown"] == 0.0


def test_what_a_test_cell_begins_with_may_ask_as_well(graded):
    """By way of a function of the instructor; what it got is then there for another test."""
    tests = {
        "double-a": "got = twice(torch.ones(1))\nassert got.item() == 4",
        "double-b": "assert got.item() == 4",
    }
    more = {"locked": "def twice(x):\n    return double(double(x))", "tests": tests}
    raises = {"double": "def double(x):\n    raise ValueError('stop the batch')"}
    wrong = {"double": "def double(x):\n    return 3 * x"}
    for answers, score in ((raises, 0.0), (raises, 0.0), (wrong, 0.0), ({}, 1.0), (wrong, 0.0)):
        assert graded(answers, **more) == {"double-a": score, "double-b": score}


def test_what_a_function_of_the_instructor_counts_is_counted_for_everybody(graded):
    """A call that is not made again leaves no trace in the function's own variables."""
    locked = """
def counted():
    made = 0
    def step(y):
        nonlocal made
        made += 1
        step.made = made
        return y + 1
    return step
step = counted()
"""
    tests = {
        "apply-a": "assert apply(step, torch.ones(1)).item() == 3",
        "apply-b": "assert apply(step, torch.zeros(1)).item() == 2\nassert step.made == 4",
    }
    more = {"locked": locked, "tests": tests}
    other = {"apply": "def apply(step, x):\n    return step(step(x + 0 * x) if x else step(x))"}
    late = {"apply": "def apply(step, x):\n    return step(step(x)) if x else step(step(-x))"}
    for answers in ({}, other, late, {}):
        assert graded(answers, **more) == {"apply-a": 1.0, "apply-b": 1.0}


# --- between right answers ------------------------------------------------------------------------

BETWEEN = {
    "right once": "seen = []\ndef double(x):\n    seen.append(1)\n"
    "    return 2 * x if len(seen) < 2 else x",
    "dies after its answer": "import os, threading\ndef double(x):\n"
    "    threading.Timer(0.001, os._exit, (0,)).start()\n    return 2 * x",
    "answers twice": "import sys\nworker = sys.modules['worker']\nwire = sys.modules['wire']\n"
    "def twice(self, request):\n    reply = self.answer(request)\n"
    "    for _ in range(2):\n        wire.send(self.connection, reply, self.hold)\n"
    "worker.Worker.reply = twice\ndef double(x):\n    return 2 * x",
    "asks for nothing": "import sys\nworker = sys.modules['worker']\nwire = sys.modules['wire']\n"
    "def ask(self, request):\n"
    "    wire.send(self.connection, {'callback': 0, 'args': [], 'kwargs': {}})\n"
    "    return {'ok': None, 'changed': True}\n"
    "worker.Worker.answer = ask\ndef double(x):\n    return 2 * x",
    "a foreign handle": "import sys\nworker = sys.modules['worker']\n"
    "worker.Worker.hold = lambda *a: {'$': 'object', 'id': 0, 'kind': 'x', 'type': 'Tensor'}\n"
    "def double(x):\n    return double",
    "names that we use": "class Diverged(Exception): pass\nclass SubmissionLost(Exception): pass\n"
    "def double(x):\n    raise Diverged('asked something else')\n"
    "def slope(x):\n    raise SubmissionLost('a call was broken off')",
}


@pytest.mark.parametrize("how", BETWEEN)
def test_a_change_of_mind_is_nobody_elses(how, graded):
    hostile = {
        "double": BETWEEN[how],
        "slope": "" if "def slope" in BETWEEN[how] else RIGHT["slope"],
    }
    for _ in range(2):
        assert (graded(hostile)["double-a"] or 0.0) <= float("dies" in how)
        assert graded() == FULL


ORDER = """from attn_course.probes import Probe
probe = Probe("00_warm_up", "apply", apply)
wrong = {str(i): (lambda x, dim, i=i: x + i) for i in range(4)}
probe.judges(right=[torch.softmax], wrong=wrong, points=1)"""
JUDGE = """def apply(candidate):
    x = torch.ones(3)
    y = candidate(x, 0)
    {}
    return torch.allclose(y, x.exp() / x.exp().sum())"""


def test_who_begins_as_another_one_did_is_asked_anew(graded):
    """Candidates come shuffled: the next one is not what the other was asked."""
    tests = {"apply-judges": ORDER, "double-a": TESTS["double-a"]}
    slow = "import time\ntime.sleep(2)\n" + JUDGE.format("candidate(x + 1, 0)")
    for answer in (JUDGE.format(""), slow):  # five seconds are all that it has
        assert graded({"apply": answer}, tests=tests) == {"apply-judges": 1.0, "double-a": 1.0}


# --- the zygote -----------------------------------------------------------------------------------

DESCRIPTORS = """
import os
def descriptors():
    found = []
    for number in range(2048):
        try: os.fstat(number)
        except OSError: continue
        found.append(number)
    return found
"""


@pytest.mark.parametrize("forbidden", [(), ("softmax",)], ids=["the first", "of a template"])
def test_a_submission_among_many_has_its_own_descriptors_and_no_others(forbidden, zygote):
    """The more of them live, the higher the numbers are."""
    cells = [{"id": "c", "source": DESCRIPTORS}]
    ask = {"op": "call", "name": "descriptors", "args": [], "kwargs": {}}
    with contextlib.ExitStack() as stack:
        for number in range(MANY):
            one = Session(zygote, cells, limits=target.LIMITS, forbidden=forbidden)
            stack.enter_context(one)
            found = one.call(ask)
            assert len(found) == 4, (number, found)
            assert found[:3] == [0, 1, 2]


MANY = 140
LEFT = {
    "closes everything": "import os\nos.closerange(0, 1 << 16)",
    "its first thread ends": "import ctypes, threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,)).start()\n"
    "ctypes.CDLL(None).syscall(60, 0)",
    "no signal at the death of its parent": "import ctypes, threading, time\n"
    "ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n"
    "threading.Thread(target=time.sleep, args=(60,)).start()",
    "hangs up and goes on": "import os, socket, time\n"
    "for number in range(3, 63):\n"
    "    try: socket.socket(fileno=number).shutdown(2)\n"
    "    except OSError: pass\n"
    "time.sleep(60)",
    "one end over the other": "import os\n"
    "for number in range(3, 63):\n"
    "    try: os.dup2(63, number)\n"
    "    except OSError: pass",
    "signals": "import os, signal\n"
    "for number in range(1, 65):\n"
    "    for who in (-1, 0, 2, 3, 4, 5):\n"
    "        try: os.kill(who, number) if number not in (9, 11) or who not in (0,) else None\n"
    "        except OSError: pass",
}


@pytest.mark.parametrize("how", LEFT)
def test_nothing_is_left_of_it_and_the_next_one_is_graded(how, graded, zygote):
    before = zygote._control
    scores = graded({"double": LEFT[how] + "\ndef double(x):\n    return x"})
    assert not scores.get("double-a")
    assert graded() == FULL
    assert zygote._control is before, "the jail was not started again"
