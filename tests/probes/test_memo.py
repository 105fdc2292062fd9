"""What the grader remembers is what would have been computed, and nobody can change it."""

import functools
import random

import numpy as np
import pytest
import torch

from attn_course import reference
from attn_course.probes import Probe, ProbeFailure, student
from attn_course.probes import memo as memo_module
from attn_course.probes.catalogue import Call
from attn_course.probes.memo import Memo, Unkeyable, fingerprint, remembering
from attn_course.probes.oracle import NumpyOracle
from attn_course.probes.outcome import known

ROW = torch.tensor([1.0, 2.0, 3.0])


def times_computed(function, *calls):
    """How many of the calls are not answered from memory."""
    memo = Memo()
    with remembering(memo):
        for call in calls:
            known(function, call)
    return len(calls) - memo.hits


@pytest.fixture
def unchecked(monkeypatch):
    """The type checker that the tests put around the package draws from ``random`` itself."""
    states = memo_module._random_state
    monkeypatch.setattr(memo_module, "_random_state", lambda: states()[:2])


def ours(function):
    """As a function of a catalogue."""
    function.__module__ = "attn_course_catalogue_of_a_test"
    return function


@ours
def double(x):
    return x * 2


@pytest.mark.usefixtures("unchecked")
def test_the_same_call_is_computed_once_and_gives_the_same():
    plain = known(double, Call((ROW,))).value
    with remembering(memo := Memo()):
        values = [known(double, Call((ROW.clone(),))).value for _ in range(3)]
    assert (memo.hits, len(memo.kept)) == (2, 1)
    assert all(torch.equal(value, plain) for value in values)


@pytest.mark.usefixtures("unchecked")
def test_nothing_is_remembered_outside_the_block():
    memo = Memo()
    with remembering(memo):
        known(double, Call((ROW,)))
    known(double, Call((ROW,)))
    assert (memo.hits, len(memo.kept)) == (0, 1)


@pytest.mark.usefixtures("unchecked")
def test_a_learner_who_writes_into_all_it_can_reach_changes_nothing_that_is_remembered():
    """Neither its arguments nor what it returned are what the memory holds."""
    reached = []

    def spoils(x, *rest):
        reached.extend((x, out := double(x)))
        for tensor in reached:
            tensor.fill_(99.0)
        return out

    given = ROW.clone()
    with remembering(memo := Memo()):
        for number in range(3):
            with pytest.raises(ProbeFailure):
                Probe("00_warm_up", "double", spoils, oracle=double).equals(given)
            for tensor in reached:
                tensor.fill_(-1.0)
            Probe("00_warm_up", "double", lambda x: x + x, oracle=double).equals(given)
            assert memo.hits > number
    assert torch.equal(given, ROW)


@pytest.mark.usefixtures("unchecked")
def test_what_a_test_cell_defines_is_computed_each_time():
    count = {"n": 0}

    def step(x):
        return x + count["n"]

    @ours
    def twice(x, step):
        return step(step(x))

    call, via = Call((ROW, step)), Call((ROW,), {}, lambda f, x: f(x) + count["n"])
    with remembering(Memo()):
        for count["n"] in range(5):
            assert torch.equal(known(step, Call((ROW,))).value, ROW + count["n"])
            assert torch.equal(known(twice, call).value, ROW + 2 * count["n"])
            assert torch.equal(known(double, via).value, 2 * ROW + count["n"])


OTHERS = {
    "another value": ROW + 1, "one bit": torch.tensor([1.0, 2.0, 3.0000002]),
    "another dtype": ROW.double(), "another shape": ROW[None], "whole numbers": ROW.long(),
    "wants a gradient": ROW.clone().requires_grad_(),
    "another layout": torch.stack([ROW, ROW], dim=1)[:, 0], "a list": ROW.tolist(),
    "an array": ROW.numpy(), "minus zero": torch.tensor([1.0, 2.0, -0.0]),
    "zero": torch.tensor([1.0, 2.0, 0.0]),
}  # fmt: skip


def test_inputs_that_differ_in_anything_have_keys_that_differ():
    keys = [fingerprint(value) for value in (ROW, *OTHERS.values())]
    assert len(set(keys)) == len(keys)
    assert fingerprint((1, True, 1.0)) != fingerprint((1, 1, 1))
    assert fingerprint([ROW]) != fingerprint((ROW,))
    assert fingerprint(functools.partial(double, 1)) != fingerprint(double)
    assert fingerprint(Call((ROW,))) == fingerprint(Call((ROW.clone(),)))
    assert fingerprint(Call((ROW,))) != fingerprint(Call((ROW,), {}, student.grad()))


@pytest.mark.usefixtures("unchecked")
def test_adapters_are_told_apart():
    calls = [Call((ROW,), {}, via) for via in (None, student.grad(0), student.grad("x"))]
    assert times_computed(double, *calls, *calls) == 3
    oracle = NumpyOracle(reference.softmax)
    with remembering(Memo()):
        by_memory = [known(oracle, Call((ROW,), {"dim": 0}, student.grad())).value for _ in "ab"]
    alone = known(oracle, Call((ROW,), {"dim": 0}, student.grad())).value
    assert all(torch.equal(value, alone) for value in by_memory)


class Learner:
    """As a stub of a learner's function: no key, so nothing that it gave is remembered."""

    def __call__(self, x):
        return x * random.random()


@pytest.mark.usefixtures("unchecked")
def test_what_a_learner_wrote_is_never_remembered():
    def through(x):
        return learner(x)

    learner = Learner()
    for function in (learner, through, functools.partial(learner)):
        assert times_computed(function, Call((ROW,)), Call((ROW,))) == 2
    assert times_computed(double, Call((learner,)), Call((learner,))) == 2
    with pytest.raises(Unkeyable):
        fingerprint([learner])


@ours
def draws_torch(x):
    return x + torch.rand(3)


@ours
def draws_numpy(x):
    return x + float(np.random.rand())  # noqa: NPY002


@pytest.mark.parametrize("function", [draws_torch, draws_numpy])
def test_what_draws_random_numbers_is_computed_each_time(function):
    """Else the numbers that a test cell draws next would depend on who was graded before."""
    assert times_computed(function, Call((ROW,)), Call((ROW,))) == 2


@pytest.mark.parametrize(
    "draw",
    [lambda: torch.rand(1), lambda: np.random.rand(), random.random],  # noqa: NPY002
    ids=["torch", "numpy", "python"],
)
def test_every_source_of_random_numbers_is_watched(draw):
    """From the same seeds each time: the type checker around the package draws from Python's."""

    def state(*draws):
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        for one in draws:
            one()
        return memo_module._random_state()

    assert state() == state()
    assert state(draw) != state()


@pytest.mark.usefixtures("unchecked")
def test_errors_and_changed_inputs_are_remembered_too():
    @ours
    def spoils(x):
        x.add_(1)
        raise ValueError("no")

    with remembering(memo := Memo()):
        outcomes = [known(spoils, Call((ROW,))) for _ in range(2)]
    assert memo.hits == 1
    assert [(type(o.error), o.mutated) for o in outcomes] == [(ValueError, True)] * 2


@pytest.mark.usefixtures("unchecked")
def test_a_full_memo_drops_the_oldest(monkeypatch):
    monkeypatch.setattr("attn_course.probes.memo.MOST_ENTRIES", 4)
    with remembering(memo := Memo()):
        for number in (*range(6), 5, 0):
            known(double, Call((number,)))
    assert (memo.hits, len(memo.kept)) == (1, 4)


CELL = """
import time
weights = torch.tensor([1.0, 2.0, 3.0])
seen, setting, count = [], {"n": 1}, 0

def scaled(x):
    return x * weights

def through(x):
    return scaled(x) + 1

def over_itself(x, depth=2):
    return over_itself(x, depth - 1) + 1 if depth else x

def inner(x):
    def feature(y):
        return torch.relu(y)
    return feature(x)

def counts(x):
    seen.append(1)
    return x

def reads(x):
    return x * setting["n"]

def writes(x):
    global count
    count += 1
    return x

def marks(x):
    marks.made = 1
    return x

def slow(x):
    return x + 0 * time.time()

def prints(x):
    print("called")
    return x

def draws(x):
    return x + torch.randn(3)

def fresh(x):
    return x + float(np.random.default_rng().random())

def of_a_learner(x):
    return learned(x)
"""
PURE = ("scaled", "through", "over_itself", "inner")
IMPURE = ("counts", "reads", "writes", "marks", "slow", "prints", "draws", "fresh", "of_a_learner")


def cell(**learned):
    """What a cell of an instructor defines, executed once more."""
    names = {"torch": torch, "np": np, **learned}
    exec(compile(CELL, "<setup>", "exec"), names)
    return names


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", PURE + IMPURE)
def test_a_function_of_a_cell_that_only_computes_is_computed_once_for_a_class(name):
    class Stub:
        def __call__(self, x):
            return x

    memo = Memo()
    with remembering(memo):
        for _ in range(3):
            known(cell(learned=Stub())[name], Call((ROW,)))
    assert memo.hits == (2 if name in PURE else 0)


def test_a_function_of_a_cell_is_another_one_when_anything_that_it_reads_is():
    one, other = cell(), cell()
    assert fingerprint(one["through"]) == fingerprint(other["through"])
    other["weights"][0] = 5.0
    assert fingerprint(one["through"]) != fingerprint(other["through"])
    other = cell()
    exec("def scaled(x):\n    return x * weights * 2", other)
    assert fingerprint(one["through"]) != fingerprint(other["through"])
    assert fingerprint(one["over_itself"]) != fingerprint(one["inner"])
