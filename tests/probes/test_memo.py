"""What the grader remembers is what would have been computed, and nobody can change it."""

import functools
import random
from collections.abc import Callable
from typing import Any

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


def times_computed(function: Callable[..., Any], *calls: Call) -> int:
    """How many of the calls are not answered from memory."""
    memo = Memo()
    with remembering(memo):
        for call in calls:
            known(function, call)
    return len(calls) - memo.hits


@pytest.fixture
def unchecked(monkeypatch: Any) -> None:
    """The type checker that the tests put around the package draws from ``random`` itself."""
    states = memo_module._random_state
    monkeypatch.setattr(memo_module, "_random_state", lambda: states()[:2])


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.usefixtures("unchecked")
def test_the_same_call_is_computed_once_and_gives_the_same() -> None:
    plain = known(double, Call((ROW,))).value
    with remembering(memo := Memo()):
        values = [known(double, Call((ROW.clone(),))).value for _ in range(3)]
    assert (memo.hits, memo.misses) == (2, 1)
    assert all(torch.equal(value, plain) for value in values)


def test_nothing_is_remembered_outside_the_block() -> None:
    memo = Memo()
    with remembering(memo):
        known(double, Call((ROW,)))
    known(double, Call((ROW,)))
    assert (memo.hits, memo.misses) == (0, 1)


@pytest.mark.usefixtures("unchecked")
def test_a_learner_who_writes_into_all_it_can_reach_changes_nothing_that_is_remembered() -> None:
    """Neither its arguments nor what it returned are what the memory holds."""
    reached: list[torch.Tensor] = []

    def spoils(x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
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


def test_the_arguments_of_a_call_are_worked_out_twice_at_most(monkeypatch: Any) -> None:
    tensors = memo_module._tensor
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(memo_module, "_tensor", lambda x: seen.append(x) or tensors(x))
    call = Call((ROW,), {"more": [ROW + 1]})
    keys = {fingerprint(call) for _ in range(5)}
    assert len(keys) == 1
    assert len(seen) == 4
    assert fingerprint(Call((ROW,), {"more": [ROW + 1]})) in keys
    assert fingerprint(Call((ROW,), {"more": [ROW]})) not in keys
    assert fingerprint(Call((ROW,), {"more": [ROW + 1]}, student.grad())) not in keys


@pytest.mark.usefixtures("unchecked")
def test_an_argument_that_has_a_state_is_looked_at_every_time() -> None:
    count = {"n": 0}

    def step(x: torch.Tensor, seen: dict[str, int] = count) -> torch.Tensor:
        return x + seen["n"]

    def twice(x: torch.Tensor, step: Callable[..., Any]) -> torch.Tensor:
        return step(step(x))

    call, via = Call((ROW, step)), Call((ROW,), {}, lambda f, x: f(x) + count["n"])
    with remembering(Memo()):
        for count["n"] in range(5):
            assert torch.equal(known(twice, call).value, ROW + 2 * count["n"])
            assert torch.equal(known(double, via).value, 2 * ROW + count["n"])


def test_a_function_under_another_name_is_another_one() -> None:
    def named(name: str) -> Callable[..., Any]:
        def function(x: Any) -> Any:
            return x

        function.__name__ = name
        return function

    assert fingerprint(named("a")) == fingerprint(named("a"))
    assert fingerprint(named("a")) != fingerprint(named("b"))


OTHERS = {
    "another value": ROW + 1,
    "one bit": torch.tensor([1.0, 2.0, 3.0000002]),
    "another dtype": ROW.double(),
    "another shape": ROW[None],
    "whole numbers": ROW.long(),
    "wants a gradient": ROW.clone().requires_grad_(),
    "another layout": torch.stack([ROW, ROW], dim=1)[:, 0],
    "a list": ROW.tolist(),
    "an array": ROW.numpy(),
    "minus zero": torch.tensor([1.0, 2.0, -0.0]),
    "zero": torch.tensor([1.0, 2.0, 0.0]),
    "a parameter": torch.nn.Parameter(ROW.clone()),
}


def test_inputs_that_differ_in_anything_have_keys_that_differ() -> None:
    keys = [fingerprint(value) for value in (ROW, *OTHERS.values())]
    assert len(set(keys)) == len(keys)
    assert fingerprint((1, True, 1.0)) != fingerprint((1, 1, 1))
    assert fingerprint([ROW]) != fingerprint((ROW,))


def test_functions_made_anew_by_every_run_of_a_cell_share_a_key_only_if_all_is_the_same() -> None:
    source = "def f(x, k={k}):\n    return g(x) * k\ndef g(x):\n    return x + {c}"

    def made(k: float, c: float) -> Any:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source.format(k=k, c=c), "<cell>", "exec"), names)
        return names["f"]

    assert fingerprint(made(1, 2)) == fingerprint(made(1, 2))
    assert len({fingerprint(made(*x)) for x in ((1, 2), (3, 2), (1, 4), (1.0, 2))}) == 4
    assert fingerprint(functools.partial(made(1, 2), 1)) != fingerprint(made(1, 2))


@pytest.mark.usefixtures("unchecked")
def test_adapters_are_told_apart() -> None:
    calls = [Call((ROW,), {}, via) for via in (None, student.grad(0), student.grad("x"))]
    assert times_computed(double, *calls, *calls) == 3
    oracle = NumpyOracle(reference.softmax)
    with remembering(Memo()):
        by_memory = [known(oracle, Call((ROW,), {"dim": 0}, student.grad())).value for _ in "ab"]
    alone = known(oracle, Call((ROW,), {"dim": 0}, student.grad())).value
    assert all(torch.equal(value, alone) for value in by_memory)


class Learner:
    """As a stub of a learner's function: no key, so nothing that it gave is remembered."""

    def __call__(self, x: Any) -> Any:
        return x * random.random()


@pytest.mark.usefixtures("unchecked")
def test_what_a_learner_wrote_is_never_remembered() -> None:
    def through(x: Any) -> Any:
        return learner(x)

    learner = Learner()
    for function in (learner, through, functools.partial(learner)):
        assert times_computed(function, Call((ROW,)), Call((ROW,))) == 2
    assert times_computed(double, Call((learner,)), Call((learner,))) == 2
    with pytest.raises(Unkeyable):
        fingerprint([learner])


def draws_torch(x: Any) -> Any:
    return x + torch.rand(3)


def draws_numpy(x: Any) -> Any:
    return x + float(np.random.rand())  # noqa: NPY002


@pytest.mark.parametrize("function", [draws_torch, draws_numpy])
def test_what_draws_random_numbers_is_computed_each_time(function: Callable[..., Any]) -> None:
    """Else the numbers that a test cell draws next would depend on who was graded before."""
    assert times_computed(function, Call((ROW,)), Call((ROW,))) == 2


@pytest.mark.parametrize(
    "draw",
    [lambda: torch.rand(1), lambda: np.random.rand(), random.random],  # noqa: NPY002
    ids=["torch", "numpy", "python"],
)
def test_every_source_of_random_numbers_is_watched(draw: Callable[[], Any]) -> None:
    """From the same seeds each time: the type checker around the package draws from Python's."""

    def state(*draws: Callable[[], Any]) -> Any:
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        for one in draws:
            one()
        return memo_module._random_state()

    assert state() == state()
    assert state(draw) != state()


SEEN: list[int] = []
COUNT = 0


def keeps_a_list(x: Any) -> Any:
    SEEN.append(1)
    return x + len(SEEN)


def keeps_a_global(x: Any) -> Any:
    global COUNT
    COUNT += 1
    return x + COUNT


def keeps_a_default(x: Any, seen: list[int] = []) -> Any:  # noqa: B006
    seen.append(1)
    return x + len(seen)


def keeps_a_variable() -> Callable[..., Any]:
    count = 0

    def function(x: Any) -> Any:
        nonlocal count
        count += 1
        return x + count

    return function


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "function", [keeps_a_list, keeps_a_global, keeps_a_default, keeps_a_variable()]
)
def test_what_has_a_state_is_computed_each_time(function: Callable[..., Any]) -> None:
    assert times_computed(function, *[Call((ROW,))] * 3) == 3


@pytest.mark.usefixtures("unchecked")
def test_errors_and_changed_inputs_are_remembered_too() -> None:
    def spoils(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        raise ValueError("no")

    with remembering(memo := Memo()):
        outcomes = [known(spoils, Call((ROW,))) for _ in range(2)]
    assert memo.hits == 1
    assert [(type(o.error), o.mutated) for o in outcomes] == [(ValueError, True)] * 2


@pytest.mark.usefixtures("unchecked")
def test_a_full_memo_drops_the_oldest(monkeypatch: Any) -> None:
    monkeypatch.setattr("attn_course.probes.memo.MOST_ENTRIES", 4)
    with remembering(memo := Memo()):
        for number in (*range(6), 5, 0):
            known(double, Call((number,)))
    assert (memo.hits, memo.misses) == (1, 7)
