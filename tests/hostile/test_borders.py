"""What one submission does stays in its own status, its own process and its own time."""

import contextlib
import dataclasses
import errno
import os
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import nbformat
import pytest
import sets
import target
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.grading import mounts, pool
from attn_course.grading.collect import HandIn
from attn_course.grading.errors import SandboxError
from attn_course.grading.results import Result
from attn_course.grading.run import AssignmentError, grade_class
from attn_course.grading.sandbox import Limits, Zygote
from attn_course.grading.session import Session


def notebook(answer, test):
    """One answer and one test of it."""
    cells = [target.answer_cell(answer, "answer"), target.check_cell(test, "answer-test")]
    return target.made("import torch", cells)


@pytest.fixture
def judged(zygote):
    """Grade an answer with a test cell; the solution is only read for what it defines."""

    def run(answer, test, solution="def answer(x):\n    return x"):
        return target.graded(zygote, notebook(answer, test), notebook(solution, test))

    return run


def gives(value):
    return f"import torch\ndef answer(x):\n    return {value}"


# --- a number that cannot be printed --------------------------------------------------------------

TESTS_THAT_PRINT = {
    "as a score": "answer(1)",
    "as a key": "{1: 2}[answer(1)]",
    "in a sentence": "assert answer(1) == 1, f'got {answer(1)}'",
    "in a sum": "raise KeyError(answer(1) * answer(1))",
    "beside a tensor": "torch.testing.assert_close(torch.tensor([1.0]), answer(1))",
    "of a probe": "from attn_course.probes import Probe\n"
    "Probe('00_warm_up', 'answer', answer, oracle=lambda x: x).equals(1)",
}


@pytest.mark.parametrize("how", TESTS_THAT_PRINT)
@pytest.mark.parametrize("digits", [4200, 4301, 4900])
def test_an_integer_that_python_does_not_print_costs_its_own_test(how, digits, judged):
    result = judged(gives(f"10 ** {digits}"), TESTS_THAT_PRINT[how])
    assert result.status in ("graded", "sandbox_error")
    assert not result.score


def test_whatever_a_verdict_raises_is_the_status_of_its_submission(judged, monkeypatch):
    def broken(*args):
        raise RecursionError("in the grader itself")

    monkeypatch.setattr("attn_course.exercises.testcell.run_test", broken)
    result = judged(gives("x"), "assert answer(1) == 1")
    assert (result.status, result.score) == ("sandbox_error", None)
    assert "RecursionError" in result.reason


# --- what we compute with it ----------------------------------------------------------------------

LARGE = {
    "no byte and many columns": "torch.zeros(0, 1 << 28)",
    "many axes of none": "[torch.zeros(0, 1 << 20) for _ in range(64)]",
    "an array": "__import__('numpy').zeros((1 << 24, 0, 1 << 10))",
    "large": "torch.zeros(1 << 12, 1 << 12, dtype=torch.int8)",
}
WORK = """
found = answer(1)
for one in found if type(found) is list else [found]:
    one = torch.as_tensor(one)
    wide = one.reshape(one.shape[0], -1).T.double() @ one.reshape(one.shape[0], -1).double()
"""


@pytest.mark.parametrize("how", LARGE)
def test_what_claims_many_elements_is_refused_before_anything_is_computed(how, judged):
    begun = time.monotonic()
    result = judged(gives(LARGE[how]), WORK)
    assert not result.score
    assert "elements" in result.tests[0].message, result.tests
    assert time.monotonic() - begun < target.LIMITS.wall_seconds


NESTED = "[[torch.zeros(900, dtype=torch.int8) for _ in range(800)] for _ in range(5)]"


def test_what_is_shown_of_nested_tensors_is_made_no_longer_than_it_is_shown(judged):
    probe = "from attn_course.probes import Probe\n"
    probe += "Probe('00_warm_up', 'answer', answer, oracle=lambda x: [x, x]).equals(1)"
    begun = time.process_time()
    result = judged(gives(NESTED), probe)
    assert result.score == 0.0
    assert time.process_time() - begun < 5


def test_a_verdict_takes_no_more_memory_than_it_may(judged):
    """Forty columns of a thousand rows each, and an instructor who looks at all pairs of them."""
    work = "x = answer(1)\nheld = [x[:, None] - x[None] for _ in range(9)]"
    result = judged(gives("torch.zeros(1 << 14)"), work)
    assert result.score == 0.0
    assert "memory" in result.tests[0].message


def test_a_verdict_without_end_ends_in_its_own_status_and_the_next_is_graded():
    """What an operation of torch takes, no exception can end: an alarm ends its process."""
    test = "import time\nx = answer(1)\nwhile x == 7:\n    time.sleep(0.01)\nassert x == 1"
    limits = Limits(verdict_seconds=6.0)
    answers = {"ada": "x", "mallory": "7", "zoe": "x"}
    handed = [HandIn(student=n, data=notebook(gives(x), test)) for n, x in answers.items()]
    found = grade_class(handed, notebook=handed[0].data, slug="borders", seed=1, limits=limits)
    assert [result.score for result in found] == [1.0, None, 1.0]
    assert "its verdict took more than 6 s" in found[1].reason


# --- objects that lie -----------------------------------------------------------------------------

LIAR = """
class Yes:
    def __getattr__(self, name): return lambda *args, **kwargs: self if name != "item" else 0.0
    def allclose(self, *args, **kwargs): return True
    def sub(self, other): return self
    def abs(self): return self
    def max(self): return 0.0
    def tolist(self): return [2.0, 2.0]
    def __iter__(self): return iter([])
"""
LIES = {
    "allclose": "assert answer(torch.ones(2)).allclose(torch.full((2,), 2.0))",
    "sub": "assert answer(torch.ones(2)).sub(2.0).abs().max() == 0.0",
    "tolist": "assert answer(torch.ones(2)).tolist() == [2.0, 2.0]",
    "iterates": "for a, b in zip(answer(torch.ones(2)), [2.0, 2.0]):\n    assert a == b",
    "inside": "assert answer(torch.ones(2))[0].allclose(torch.full((2,), 2.0))",
}


@pytest.mark.parametrize("how", LIES)
def test_an_object_is_refused_where_the_solution_gives_data(how, judged):
    given = "[Yes()]" if how == "inside" else "Yes()"
    for made in (given, "iter([])", "(y for y in [])"):
        result = judged(f"{LIAR}\ndef answer(x):\n    return {made}", LIES[how])
        assert result.score == 0.0, result.tests


@pytest.mark.parametrize("how", ["allclose", "sub", "tolist"])
def test_what_a_method_gives_answers_nothing_that_is_asked_of_a_tensor(how, judged):
    test = LIES[how].replace("answer(torch.ones(2))", "answer(2)(torch.ones(2))")
    whole = test.replace("answer(2)(", "answer(2).forward(")
    solution = "class answer(torch.nn.Module):\n    def forward(self, x):\n        return 2 * x"
    liar = f"{LIAR}\nclass answer:\n    def __init__(self, n): pass\n"
    liar += "    def forward(self, x): return Yes()\n    __call__ = forward\n"
    for one in (test, whole):
        assert judged(liar, one, solution).score == 0.0


def test_an_object_of_a_class_is_one_as_before(judged):
    solution = target.SOLUTIONS["scale"].replace("class Scale", "class answer")
    test = """made = answer(3)
assert made.weight.shape == (3,) and made.training
assert sum(p.numel() for p in made.parameters()) == 3
assert torch.equal(made.eval()(torch.ones(3)), torch.ones(3))"""
    assert judged(solution, test, solution).score == 1.0


ENDS_A_LOOP = """
for got, want in zip(map(answer, (1, 2)), (1, 2)):
    assert got == want
"""


@pytest.mark.parametrize("kind", ["StopIteration", "StopAsyncIteration", "GeneratorExit"])
def test_an_exception_of_an_answer_ends_no_loop_of_ours(kind, judged):
    result = judged(f"def answer(x):\n    raise {kind}(1)", ENDS_A_LOOP)
    assert (result.status, result.score) == ("graded", 0.0), result.tests


SCORES = {
    "a row for each": "torch.zeros(4)",
    "none at all": "torch.zeros(0)",
    "an array": "__import__('numpy').zeros((2, 2))",
    "an object": "type('Mine', (), {})()",
}


@pytest.mark.parametrize("how", SCORES)
def test_what_is_no_single_number_buys_no_points(how, judged):
    solution = "class answer:\n    def __new__(cls, x):\n        return 1.0"
    for test in ("answer(1)", "1.0 * answer(1)"):
        result = judged(gives(SCORES[how]), test, solution)
        assert (result.status, result.score) == ("graded", 0.0), result.tests


TELLS = """
def answer(candidate):
    for args in ((), (1, 2, 3), (object,), ("x",)):
        try: candidate(*args)
        except TypeError as error:
            if "right" in str(error): return True
    return False
"""


def test_a_candidate_does_not_tell_its_name(judged):
    """A test that a learner wrote is to find out which function is right."""
    test = "def right(x, y):\n    return x + y\ndef wrong(x, y):\n    return x - y\n"
    test += "assert answer(right) and not answer(wrong)"
    assert judged(TELLS, test, "def answer(candidate):\n    return True").score == 0.0


SHOWN = """
import sys
worker = sys.modules["worker"]
many = [torch.rand(1000) for _ in range(2000)]
worker.describe = lambda error: {"type": KIND, "kinds": [], "text": many, "where": ("a", 1, "")}
"""
RAISES = {
    "in a cell": SHOWN.replace("KIND", "many") + "raise ValueError\ndef answer(x): return x",
    "in a call": SHOWN.replace("KIND", "'E'") + "def answer(x):\n    raise ValueError",
}


@pytest.mark.parametrize("how", RAISES)
def test_an_exception_is_told_in_words_of_text(how, judged):
    begun = time.process_time()
    result = judged(RAISES[how], "assert answer(1) == 1")
    assert (result.status, result.score) == ("graded", 0.0), result.tests
    assert time.process_time() - begun < 3


SOURCE = """
from attn_course.probes import student
student._source = lambda function: "f'" + "{a}" * 200_000 + "'"
def weighted_mean(*args, **more):
    return torch.zeros(3)
"""


def test_a_source_without_end_is_not_read(zygote):
    """A wrong answer is looked through for the names of the learner's other functions."""
    ours = sets.source("00_warm_up")
    data, sent = map(nbformat.writes, (ours, sets.filled(ours, {"weighted_mean": SOURCE})))
    begun = time.process_time()
    result = target.graded(zygote, sent.encode(), data.encode(), limits=Limits())
    lost = [test.grade_id for test in result.tests if test.score != test.max]
    assert result.status == "graded"
    assert {name.partition("-")[0] for name in lost} == {"weighted_mean"}
    assert time.process_time() - begun < 15


NODES = {
    "a float of spaces": {"$": "float", "v": "0000 0000 0000 0"},
    "a float of nothing": {"$": "float", "v": " " * 16},
    "an unknown kind": {"$": [1], "v": 3},
    "a callback": {"$": "callback", "id": 0},
    "a map that is none": {"$": "map", "v": [1]},
    "a complex of three": {"$": "complex", "v": ["0" * 16] * 3},
    "a slice of none": {"$": "slice", "v": []},
    "a set of lists": {"$": "set", "v": [[1]]},
    "a key of lists": {"$": "dict", "v": [[{"$": "tuple", "v": [[1]]}, 1]]},
    "a size below zero": {"$": "size", "v": [-1]},
    "a number of letters": {"$": "int", "v": "0xg"},
}


@pytest.mark.parametrize("how", NODES)
def test_a_malformed_answer_is_garbage_by_name(how, judged):
    """Not an exception that a test may expect of the answer."""
    said = "import sys, json\nwire = sys.modules['wire']\n"
    said += f"NODE = {NODES[how]!r}\nencode = wire.encode\nclass Mine: pass\n"
    said += "wire.encode = lambda v, *a: NODE if type(v) is Mine else encode(v, *a)\n"
    test = "try:\n    answer(1)\nexcept Exception as error:\n    said = str(error)\n"
    result = judged(said + "def answer(x):\n    return Mine()", test + "print(said)")
    assert result.score == 0.0, result.tests
    assert "the jail answered garbage" in result.tests[0].message


# --- processes of one class -----------------------------------------------------------------------

MEET = """
import os, socket, fcntl, sys
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
def listen(place):
    one.bind(chr(0) + place)
    return True
def tell(place):
    free = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]
    try: return free.sendto(b"the answer", chr(0) + place)
    except OSError as error: return type(error).__name__
def terminals():
    try: return os.listdir("/dev/pts")
    except OSError: return []
def locks():
    done = []
    for what in (lambda f: fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB),
                 lambda f: fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB)):
        try: what(open(os.__file__)); done.append(True)
        except OSError: pass
    return done
"""


def asks(session, name, *args):
    return session.call({"op": "call", "name": name, "args": list(args), "kwargs": {}})


@pytest.fixture
def two(zygote):
    """Two submissions at the same time, as two workers have, or one with and one without a list."""
    with contextlib.ExitStack() as stack:
        cells = [{"id": "c", "source": MEET}]
        found = [
            stack.enter_context(Session(zygote, cells, limits=target.LIMITS, forbidden=names))
            for names in ((), ("softmax",))
        ]
        yield found[0], found[1]


def test_two_processes_of_a_class_cannot_meet(two):
    first, second = two
    for here, there, place in ((first, second, "a"), (second, first, "b")):
        assert asks(here, "listen", place) is True
        assert asks(here, "tell", place) != "ConnectionRefusedError", "it would be found at home"
        assert asks(there, "tell", place) == "ConnectionRefusedError"
        assert asks(here, "terminals") == []
        assert asks(here, "locks") == []


LEAVE = """
import ctypes, fcntl, mmap, os, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
DEVICES = ("/dev/full", "/dev/null", "/dev/zero", "/dev/random", "/dev/tty")
def tried(what):
    try: return what()
    except OSError as error: return error.strerror
def page():
    number = os.open(os.__file__, os.O_RDONLY)
    return number, libc.mmap(None, 4096, 1, 1, number, 0)
def leave():
    number, place = page()
    place = ctypes.c_void_p(place)
    seen = ctypes.create_string_buffer(8)
    value = ctypes.c_uint32.from_address(place.value).value
    soon = (ctypes.c_long * 2)(0, 10**6)
    return {
        "modes": [tried(lambda: os.chmod(name, 0o666)) for name in DEVICES],
        "times": [tried(lambda: os.utime(name)) for name in DEVICES],
        "hints": [tried(lambda: fcntl.fcntl(number, n, bytes(8))) for n in range(1035, 1039)],
        "waits": (libc.syscall(202, place, 0, value, soon, None, 0), ctypes.get_errno()),
        "wakes": libc.syscall(202, place, 1, 1, None, None, 0),
        "in memory": [libc.mincore(place, 1, seen),
                      tried(lambda: os.preadv(number, [bytearray(1)], 0, os.RWF_NOWAIT)),
                      tried(lambda: os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED))],
    }
def joined():
    thread, value = ctypes.c_ulong(), ctypes.c_void_p()
    work = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda x: 7)
    libc.pthread_create(ctypes.byref(thread), None, work, None)
    libc.pthread_join(thread, ctypes.byref(value))
    with open("/dev/null", "w") as file: file.write("x")
    return value.value
"""


def test_nothing_that_all_of_them_share_can_be_marked(zygote):
    """The devices are the machine's own, the files are those of every other process."""
    cells = [{"id": "c", "source": LEAVE}]
    refused = "Operation not permitted"
    with Session(zygote, cells, limits=target.LIMITS) as session:
        found = asks(session, "leave")
        assert set(found["modes"] + found["times"]) == {"Read-only file system"}
        assert set(found["hints"]) == {refused}
        assert found["waits"] == (-1, errno.EAGAIN)
        assert found["wakes"] == -1
        assert found["in memory"] == [-1, refused, refused]
        assert asks(session, "joined") == 7, "a thread's end is still waited for"


FLOOD = """
import _thread, time
def answer(x):
    _thread.stack_size(32768)
    while True:
        try: _thread.start_new_thread(time.sleep, (60,))
        except RuntimeError: time.sleep(0.01)
"""


def test_a_flood_of_threads_ends_before_it_reaches_a_neighbour(judged, zygote):
    """The limit of a user's processes does not hold for root: the threads are counted."""
    seen = []
    stop = threading.Event()

    def watch():
        while not stop.wait(0.02):
            seen.append(int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2]))

    thread = threading.Thread(target=watch)
    thread.start()
    with Session(zygote, [{"id": "c", "source": MEET}], limits=target.LIMITS) as neighbour:
        begun = time.monotonic()
        result = judged(FLOOD, "assert answer(1) == 1")
        seconds = time.monotonic() - begun
        assert asks(neighbour, "terminals") == []
    stop.set()
    thread.join()
    assert not result.score
    assert "more than 64 threads" in result.tests[0].message, result.tests
    assert seconds < 4
    assert max(seen) - seen[0] < 12_000


def test_the_solution_is_graded_before_anything_of_a_student_runs(monkeypatch):
    begun = []

    def sent(self, message):
        begun.extend([message.student] if isinstance(message, pool.Task) else [])
        send(self, message)

    send = Connection.send
    monkeypatch.setattr(Connection, "send", sent)
    handed = [HandIn(student="mallory", data=notebook(FLOOD, "assert answer(1) == 1"))]
    with pytest.raises(AssignmentError):
        grade_class(handed, notebook=notebook(gives("2"), "assert answer(1) == 1"), slug="b")
    assert begun == ["\0instructor"]


# --- folders that every submission sees -----------------------------------------------------------


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course with marks in it, where commands are given."""
    place = tmp_path / "prefix" / "course"
    (place / "solutions").mkdir(parents=True)
    (place / "solutions" / "answers.py").write_text(target.CANARY)
    (tmp_path / "prefix" / "library.py").write_text("x = 1")
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def roots(monkeypatch):
    """Adds folders to those that hold Python."""
    known = mounts.python_roots()
    return lambda *more: monkeypatch.setattr(mounts, "python_roots", lambda: [*known, *more])


def in_the_jail(*command, private=()):
    command = [*mounts.system_mounts(*private), *map(str, command)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_course_below_a_folder_of_python_is_not_to_be_seen(course, roots):
    roots(course.parent)
    seen = in_the_jail("cat", course.parent / "library.py", course / "solutions/answers.py")
    assert seen.stdout == "x = 1"
    assert "No such file" in seen.stderr
    assert in_the_jail("touch", course / "new").returncode != 0


def test_an_environment_in_the_course_stays_where_the_course_is_hidden(course, roots):
    (course / ".venv").mkdir()
    (course / ".venv" / "library.py").write_text("y = 2")
    roots(course.parent, course / ".venv")
    seen = in_the_jail("cat", course / ".venv/library.py", course / "solutions/answers.py")
    assert seen.stdout == "y = 2"


def test_what_lies_outside_of_the_course_is_hidden_as_well(tmp_path, roots, monkeypatch):
    """The instructor's notebook, the gradebook, the hand-ins, wherever the command finds them."""
    prefix = tmp_path / "prefix"
    for name in ("source", "marks", "hand-ins/ada/target"):
        (prefix / name).mkdir(parents=True)
    (prefix / "library.py").write_text("x = 1")
    notebook = target.as_bytes(target.notebook())
    for name in ("source/it.ipynb", "hand-ins/ada/target/target.ipynb"):
        (prefix / name).write_bytes(notebook)
    (tmp_path / "course").mkdir()
    monkeypatch.chdir(tmp_path / "course")
    roots(prefix)
    seen = []

    def look(first, tasks, settings, *, workers):
        found = in_the_jail("find", prefix, "-type", "f", private=[settings.private])
        seen.extend(found.stdout.split())
        for task in (first, *tasks):
            made = pool.failed_result(task, settings, "")
            yield dataclasses.replace(made, status="graded", score=made.max_score)

    monkeypatch.setattr(pool, "run_processes", look)
    options = ["--source", str(prefix / "source/it.ipynb"), "--assignment", target.SLUG]
    options += ["--gradebook", f"sqlite:///{prefix}/marks/gradebook.db"]
    done = CliRunner().invoke(app, ["grade", str(prefix / "hand-ins"), *options])
    assert done.exit_code == 0, done.output
    assert (prefix / "marks/gradebook.db").exists()
    assert seen == [str(prefix / "library.py")]


def test_an_environment_that_is_the_course_is_refused_by_name(course, roots):
    roots(course)
    with pytest.raises(SandboxError, match=str(course)):
        Zygote()


def test_an_environment_behind_a_link_starts_the_jail(tmp_path):
    (tmp_path / ".venv").symlink_to(sys.prefix)
    program = (
        "import sys\nfrom attn_course.grading.sandbox import Limits, Zygote\n"
        "from attn_course.grading.session import Session\n"
        "with Zygote() as jail, Session(jail, [], limits=Limits()) as one: print(one.alive)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [str(tmp_path / ".venv" / "bin" / "python"), "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.stdout == "True\n", done.stderr


def test_a_jail_that_does_not_start_is_not_called_a_wrong_solution(monkeypatch):
    def lost(*args, **more):
        said = {"status": "sandbox_error", "reason": "the jail did not start: no message"}
        yield Result(student="\0instructor", assignment=target.SLUG, **said)

    monkeypatch.setattr(pool, "run_processes", lost)
    handed = [HandIn(student="ada", data=target.as_bytes(target.honest()))]
    with pytest.raises(SandboxError, match="could not be run: the jail did not start"):
        grade_class(handed, notebook=target.as_bytes(target.notebook()), slug=target.SLUG)


def test_a_set_up_cell_that_was_turned_into_text_is_ours_and_noted(grade):
    sent = target.honest()
    sent["cells"][0]["cell_type"] = "markdown"
    result = grade(target.as_bytes(sent))
    assert (result.status, result.score) == ("graded", sum(target.POINTS.values()))
    assert "the cell setup was turned into text" in result.notes
