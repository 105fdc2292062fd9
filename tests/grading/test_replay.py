"""A conversation that took place before is not held again in full, and nothing comes out of it."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import classroom
import pytest
from test_remembering import CLASS, SETUP, SOLUTION, TESTS, essence

from attn_course.exercises.assignment import Assignment, TestCell, load_assignment
from attn_course.exercises.testcell import run_test
from attn_course.grading import replay, verdict
from attn_course.grading.independence import independent_tests
from attn_course.grading.results import Result
from attn_course.grading.rounds import Diverged, Replay
from attn_course.probes import draw

Grade = Callable[..., Result]


@pytest.fixture
def executed(monkeypatch: Any) -> list[str]:
    """The test cells that were executed, in order; nothing is remembered at the start."""
    found: list[str] = []

    def run(test: TestCell, names: dict[str, Any]) -> Any:
        found.append(test.grade_id)
        return run_test(test, names)

    monkeypatch.setattr(verdict, "run_test", run)
    monkeypatch.setattr(verdict, "_known", {})
    return found


class Forgetful(dict[Any, Any]):
    """Holds what was put in last, and does not know it."""

    def __contains__(self, key: object) -> bool:
        return False


STARTS_RIGHT = SOLUTION.replace(
    "    shifted",
    "    if scores.dtype == torch.float64:\n        import os\n        os._exit(4)\n    shifted",
    1,
)
SLOW = SOLUTION.replace(
    "    shifted",
    "    if scores.dtype == torch.float64:\n        while True:\n            pass\n    shifted",
    1,
)
PRINTS = SOLUTION.replace("    shifted", "    print(scores.shape)\n    shifted", 1)
GLOBAL = (
    "count = 0\n"
    + SOLUTION.replace("    shifted", "    global count\n    count += 1\n    shifted", 1)
    + " * (1.0 + 0.1 * (count > 3))"
)
MORE = CLASS | {
    "starts right, then dies": STARTS_RIGHT,
    "starts right, then loops": SLOW,
    "prints": PRINTS,
    "changes its mind": GLOBAL,
    "no Python": "def stable_softmax(",
    "another error": "raise ValueError('mine')",
}


def test_the_outcome_is_the_same_with_and_without_it_in_any_order(
    grade: Grade, monkeypatch: Any
) -> None:
    notebook = classroom.notebook({"stable_softmax": SOLUTION}, TESTS, {}, setup=SETUP)

    def graded(name: str) -> Result:
        limits = dataclasses.replace(classroom.LIMITS, call_seconds=1.0)
        return essence(grade(notebook, {"stable_softmax": MORE[name]}, limits=limits))

    with monkeypatch.context() as patch:
        patch.setattr(verdict, "_known", Forgetful())
        patch.setattr(verdict, "remembering", lambda memo: contextlib.nullcontext())
        alone = {name: graded(name) for name in MORE}
    assert alone["right"].score == 3.0
    assert 0 < (alone["changes its mind"].score or 0) < 3
    assert "exit status 4" in alone["starts right, then dies"].tests[1].message
    assert "took longer" in alone["starts right, then loops"].tests[1].message
    for order in (MORE, reversed(MORE), itertools.chain(*[MORE] * 2)):
        monkeypatch.setattr(verdict, "_known", {})
        for name in order:
            assert graded(name) == alone[name], name


def test_what_was_answered_before_is_not_executed_again(grade: Grade, executed: list[str]) -> None:
    notebook = classroom.notebook({"stable_softmax": SOLUTION}, TESTS, {}, setup=SETUP)
    first = grade(notebook)
    assert executed == list(TESTS)
    executed.clear()
    assert essence(grade(notebook)) == essence(first)
    assert executed == ["stable_softmax-after"]  # it takes from the common random numbers
    executed.clear()
    other = SOLUTION.replace("shifted.exp()", "torch.exp(shifted)")
    assert grade(notebook, {"stable_softmax": other}).score == 3.0
    assert executed == ["stable_softmax-after"]  # other code, the same bits
    executed.clear()
    assert grade(notebook, seed=8).score == 3.0
    assert executed == list(TESTS)  # other questions


def counting(body: str) -> dict[str, str]:
    return {"double-a": body, "double-b": "assert double(torch.ones(1)).item() == 2.0"}


@pytest.mark.parametrize(
    ("setup", "test"),
    [
        (
            "import torch\nseen = []",
            "seen.append(1)\nassert double(torch.ones(len(seen))).sum() > 0",
        ),
        ("import torch", "x = torch.randn(3)\nassert double(x).equal(2 * x)"),
        ("import torch\nx = torch.ones(2)", "x.add_(1)\nassert double(x).equal(2 * x)"),
        (
            "import torch",
            "from attn_course.probes import student\n"
            "assert student.peak_memory(double, torch.ones(3)) < 1e9",
        ),
    ],
    ids=["a list", "common random numbers", "a tensor", "memory seen from outside"],
)
def test_a_test_that_hangs_on_more_than_the_answers_is_executed_each_time(
    setup: str, test: str, grade: Grade, executed: list[str]
) -> None:
    notebook = classroom.notebook(
        {"double": "def double(x):\n    return 2 * x"}, counting(test), {}, setup=setup
    )
    for _ in range(3):
        assert grade(notebook).score == 2.0
    assert executed.count("double-a") == 3


def test_a_test_that_asks_something_else_each_time_is_noticed(
    grade: Grade, executed: list[str]
) -> None:
    test = """import os
x = torch.tensor([float(int.from_bytes(os.urandom(6)))])
assert double(x).equal(2 * x), "first"
assert double(x + 1).equal(2 * (x + 1)), "second" """
    notebook = classroom.notebook(
        {"double": "def double(x):\n    return 2 * x"}, counting(test), {}
    )
    assert grade(notebook).score == 2.0
    assert grade(notebook, {"double": "def double(x):\n    return 3 * x"}).score == 0.0
    executed.clear()
    for _ in range(2):
        assert grade(notebook).score == 2.0
    assert executed.count("double-a") == 2


def test_a_test_that_asks_other_things_of_the_same_answers_is_noticed(
    grade: Grade, executed: list[str], monkeypatch: Any
) -> None:
    """Two submissions answer the first question alike and are asked different second ones."""
    test = """import os
double(torch.ones(1))
assert double(torch.full((1,), float(os.getpid() % 1000 + LEAK.__code__.co_argcount))).item() > 0"""
    base = {"double": "def double(x):\n    return 2 * x"}
    one = classroom.notebook(base, {"double-a": test}, {}, setup="import torch\nLEAK = lambda: 0")
    two = classroom.notebook(base, {"double-a": test}, {}, setup="import torch\nLEAK = lambda x: 0")
    monkeypatch.setattr(Assignment, "digest", "the same")
    assert grade(one).score == 1.0
    assert grade(two, {"double": "def double(x):\n    return x + 1"}).score == 1.0
    assert len(executed) >= 2


def test_definitions_of_a_test_that_is_not_executed_are_there_for_the_next(
    grade: Grade, executed: list[str]
) -> None:
    tests = {
        "double-a": "import math as m\ndef half(x):\n    return x / 2\nassert half(double(3)) == 3",
        "double-b": "x = torch.randn(2)\nassert half(double(x)).equal(x)\nassert m.pi > 3",
    }
    notebook = classroom.notebook({"double": "def double(x):\n    return 2 * x"}, tests, {})
    for _ in range(2):
        assert grade(notebook).score == 2.0
    assert executed == ["double-a", "double-b", "double-b"]


def alone(tests: dict[str, str], setup: str = "import torch") -> set[str]:
    solutions = {"f": "def f(x):\n    return x"}
    notebook = classroom.notebook(solutions, tests, {}, setup=setup)
    return set(independent_tests(load_assignment(classroom.as_bytes(notebook), "small")))


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        (["x = f(1)", "y = x"], ""),
        (["x = f(1)", "x = 2\ny = x"], "ab"),
        (["x = f(1)", "y = [x for x in (1, 2)]"], "ab"),
        (["x = f(1)", "y = [x for x in (1, x)]"], ""),
        (["x = f(1)", "x += 1"], ""),
        (["x = f(1)", "x = x + 1"], ""),
        (["f(1)", "x = x + 1"], "ab"),
        (["x = f(1)", "for x in (1, 2):\n    f(x)"], "ab"),
        (["x = f(1)", "for x in ():\n    f(x)\ny = x"], ""),
        (["x = f(1)", "if f(2):\n    x = 1\nprint(x)"], ""),
        (["x = f(1)", "with open('a') as x:\n    f(x)\ny = x"], "ab"),
        (["x = f(1)", "try:\n    x = 1\nexcept ValueError as e:\n    f(e)\ny = x"], ""),
        (["x = f(1)", "def g(x):\n    return x\ng(2)"], "ab"),
        (["x = f(1)", "def g():\n    return x\ng()"], ""),
        (["x = f(1)", "g = lambda x: x"], "ab"),
        (["x = f(1)", "def g():\n    x = 1\n    return x"], "ab"),
        (["def g():\n    return f(1)\nf(2)", "g()"], "ab"),
        (["f(2)\ndef g():\n    return f(1)", "g()"], ""),
        (["K = 3\nf(K)", "f(K)"], "ab"),
        (["K = f(3)", "f(1)"], "ab"),
        (["K = 3\nf(K)\nK = f(4)", "f(K)"], ""),
        (["def g(n=f(1)):\n    return n", "g()"], ""),
        (["import math\nf(1)", "math.pi"], "ab"),
        (["def g():\n    global x\n    x = f(1)\ng()", "f(x)"], ""),
        (["match f(1):\n    case x:\n        f(x)", "f(x)"], ""),
    ],
)
def test_a_test_stands_alone_when_no_other_writes_what_it_reads(
    tests: list[str], expected: str
) -> None:
    found = alone(dict(zip(("f-a", "f-b"), tests, strict=True)))
    assert found == {f"f-{name}" for name in expected}


def test_a_helper_of_the_instructor_reads_on_behalf_of_its_test() -> None:
    setup = "import torch\nx = 0\ndef helper():\n    return inner()\ndef inner():\n    return x"
    tests = {"f-a": "x = f(1)", "f-b": "f(helper())", "f-c": "f(2)"}
    assert alone(tests, setup) == {"f-c"}


def test_a_long_conversation_is_not_kept(
    grade: Grade, executed: list[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(replay, "MAX_TEST_BYTES", 4000)
    tests = {
        "double-a": "assert double(torch.ones(4000)).sum() == 8000",
        "double-b": "assert double(torch.ones(1)) == 2",
    }
    notebook = classroom.notebook({"double": "def double(x):\n    return 2 * x"}, tests, {})
    for _ in range(2):
        assert grade(notebook).score == 2.0
    assert executed == ["double-a", "double-b", "double-a"]


def test_a_round_is_played_back_only_to_the_same_question() -> None:
    tape = Replay([], 1000)
    assert tape.round((), b"one", True, lambda: [bytearray(b"1")]) == [b"1"]
    assert tape.rounds[0].mark
    again = Replay(tape.rounds, 1000)
    with pytest.raises(Diverged):
        again.round(("softmax",), b"one", True, list)
    assert again.diverged


JUDGED = """from attn_course.probes import Probe
def right(x):
    return 2 * x
probe = Probe("00_warm_up", "check", check)
wrong = {str(n): (lambda x, n=n: n * x) for n in (3, 4, 5, 6, 7, 8)}
probe.judges(right=[right], wrong=wrong, points=1)"""
CHECK = "def check(f):\n    return bool(f(torch.ones(1)).item() == 2.0)"


def test_an_order_of_chance_is_the_same_for_the_graders_of_one_run_alone(
    grade: Grade, executed: list[str], monkeypatch: Any
) -> None:
    notebook = classroom.notebook({"check": CHECK}, {"check-t": JUDGED}, {})
    for order, times in ((None, 2), ("secret", 1), ("another", 1)):
        executed.clear()
        for _ in range(2):
            assert grade(notebook, order=order).score == 1.0
        assert len(executed) == times, order
    asked: list[list[int]] = []
    monkeypatch.setattr(verdict, "_known", Forgetful())
    original = draw.random.Random.sample

    def noted(self: Any, *args: Any) -> Any:
        asked.append(original(self, *args))
        return asked[-1]

    monkeypatch.setattr(draw.random.Random, "sample", noted)
    for order in ("secret", "secret", "another", None, None):
        grade(notebook, order=order)
    one, same, other, *drawn = asked
    assert one == same
    assert len({tuple(found) for found in (one, other, *drawn)}) > 2
