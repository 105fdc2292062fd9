"""What is remembered from one submission to the next changes no result, in any order."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import classroom

from attn_course.grading import replay, verdict
from attn_course.grading.results import Result
from attn_course.probes.memo import Memo

SETUP = "import torch\nfrom attn_course import reference\nfrom attn_course.probes import Probe"
SOLUTION = """def stable_softmax(scores, dim=-1):
    shifted = scores - scores.amax(dim, keepdim=True)
    return shifted.exp() / shifted.exp().sum(dim, keepdim=True)"""
MADE = 'probe = Probe("00_warm_up", "stable_softmax", stable_softmax, oracle=reference.softmax)\n'
TESTS = {
    "stable_softmax-values": MADE
    + """x = probe.normal(3, 5)
probe.equals(x)
probe.equals(x, dim=0)
probe.gradient(probe.normal(2, 3))""",
    "stable_softmax-large_scores": MADE
    + """probe.equals(torch.tensor([1000.0, 0.0]), dim=0)
probe.equals(probe.normal(4, dtype=torch.float64) + 900.0)""",
    "stable_softmax-after": MADE
    + """x = torch.randn(4)
torch.testing.assert_close(stable_softmax(x).double(), x.double().softmax(-1), atol=1e-5, rtol=0)
probe.equals(x)""",
}
NAIVE = "def stable_softmax(scores, dim=-1):\n    w = scores.exp()\n    return w / w.sum(dim, True)"
IN_PLACE = """def stable_softmax(scores, dim=-1):
    scores.sub_(scores.amax(dim, keepdim=True)).exp_()
    return scores.div_(scores.sum(dim, keepdim=True))"""
LOOKS_LIKE_AN_ANSWER = """class Tensor(torch.Tensor):
    pass
def stable_softmax(scores, dim=-1):
    return torch.softmax(scores, dim).as_subclass(Tensor)"""
RANDOM = "def stable_softmax(scores, dim=-1):\n    return torch.rand(scores.shape)"
CLASS = {
    "right": SOLUTION,
    "naive": NAIVE,
    "in place": IN_PLACE,
    "subclass": LOOKS_LIKE_AN_ANSWER,
    "random": RANDOM,
    "dies": "import os\ndef stable_softmax(scores, dim=-1):\n    os._exit(1)",
}


def essence(result: Result) -> Result:
    tests = tuple(dataclasses.replace(test, seconds=0.0) for test in result.tests)
    return dataclasses.replace(result, seconds=0.0, tests=tests)


def test_results_are_the_same_with_and_without_memory_in_any_order(
    grade: Callable[..., Result], monkeypatch: Any
) -> None:
    notebook = classroom.notebook({"stable_softmax": SOLUTION}, TESTS, {}, setup=SETUP)

    def graded(name: str) -> Result:
        return essence(grade(notebook, {"stable_softmax": CLASS[name]}))

    monkeypatch.setattr(replay.Conversations, "run", lambda self, t, n, s, execute: execute())
    with monkeypatch.context() as patch:
        patch.setattr(verdict, "remembering", lambda memo: contextlib.nullcontext())
        alone = {name: graded(name) for name in CLASS}
    assert alone["right"].score == 3.0
    assert [t.score for t in alone["naive"].tests] == [1.0, 0.0, 1.0]
    assert alone["naive"].tests[1].misconception is not None
    assert alone["in place"].score == alone["random"].score == alone["dies"].score == 0.0
    orders = [*itertools.permutations(("right", "naive", "in place")), tuple(CLASS)]
    for order in (*orders, tuple(reversed(CLASS))):
        memo = Memo()
        monkeypatch.setattr(verdict, "_memo", memo)
        for name in order:
            assert graded(name) == alone[name], (order, name)


def test_a_crash_is_accepted_by_no_test(grade: Callable[..., Result]) -> None:
    """Not by one that expects any exception, nor by one that goes on after it."""
    tests = {
        "double-refuses": "from attn_course.probes import Probe\n"
        'Probe("00_warm_up", "double", double).raises(RuntimeError, torch.ones(2))',
        "double-any": 'Probe("00_warm_up", "double", double).raises(Exception, torch.ones(2))',
        "double-caught": "try:\n    double(torch.ones(2))\nexcept Exception:\n    pass",
    }
    notebook = classroom.notebook(
        {"double": "def double(x):\n    raise RuntimeError('no')"}, tests, {}
    )
    assert grade(notebook).score == 3.0
    for dying in ("import os\n    os._exit(3)", "import ctypes\n    ctypes.string_at(0)"):
        result = grade(notebook, {"double": f"def double(x):\n    {dying}"})
        assert [test.score for test in result.tests] == [0.0] * 3
        assert all("process" in test.message for test in result.tests), result.tests


def test_an_exit_is_told_with_its_status_every_time(grade: Callable[..., Result]) -> None:
    """The zygote's report may be on its way when the connection closes; it is waited for."""
    sources = {"double": "import os\ndef double(x):\n    os._exit(3)"}
    for _ in range(30):
        assert "(exit status 3)" in grade(answers=sources).tests[0].message


def test_too_much_code_is_told_apart_from_a_jail_that_answers_garbage(
    grade: Callable[..., Result],
) -> None:
    source = "# " + "\u0001" * 900_000
    cell = {"cell_type": "code", "id": "x", "metadata": {}, "source": source, "outputs": []}
    base = classroom.notebook()
    base["cells"] += [{**cell, "id": f"x{number}"} for number in range(5)]
    result = grade(data=classroom.as_bytes(base))
    assert result.score is None
    assert "too large" in result.reason
    assert "garbage" not in result.reason
