"""A probe passes what is right, fails what is wrong, and names what it knows."""

import pickle
import sys

import numpy as np
import pytest
import torch
from refusals import refused

from attn_course import reference
from attn_course.probes import (
    Probe,
    ProbeFailure,
    call,
    from_numpy,
    misconception,
    properties,
    student,
    witnesses,
)
from attn_course.probes.catalogue import Catalogue
from attn_course.probes.draw import seed_log
from attn_course.probes.failure import NotStarted

X = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 2.0]])


def right(scores, dim=-1):
    return torch.softmax(scores, dim)


def softmax_probe(function, **options):
    options.setdefault("oracle", reference.softmax)
    return Probe("00_warm_up", "stable_softmax", function, **options)


def failure(act, *args, **kwargs):
    with pytest.raises(ProbeFailure) as caught:
        act(*args, **kwargs)
    return caught.value


def test_a_right_answer_passes_every_kind_of_test():
    probe = softmax_probe(right)
    assert probe.equals(X, dim=0) is None
    assert probe.gradient(X, dim=1) is None
    assert probe.holds(properties.rows_sum_to_one, X) is None
    assert probe.memory(X, below=2**16) is None
    assert probe.raises(IndexError, X, dim=5) is None


def test_a_value_done_by_hand_needs_no_oracle_and_names_mistakes():
    flat, half = torch.zeros(1, 2), torch.tensor([[0.5, 0.5]])
    probe = softmax_probe(right, oracle=None)
    assert probe.gives(half, flat) is None
    assert probe.gives(torch.ones(1, 2), flat, dim=0) is None
    assert "elements differ" in str(failure(probe.gives, half, torch.tensor([[0.0, 1.0]])))
    wide = str(failure(probe.gives, half.double(), flat))
    assert "expected dtype torch.float64, got torch.float32" in wide
    wrong = softmax_probe(lambda scores, dim=-1: torch.special.expit(scores), oracle=None)
    told = failure(wrong.gives, right(X), X)
    assert told.misconception == "sigmoid instead of softmax"
    # without an oracle nobody can say that a smaller input fails: the example is the call itself
    assert told.report.example.startswith("stable_softmax(")
    assert "-1" in told.report.example


def test_numbers_stay_numbers_when_no_tensor_goes_in():
    probe = Probe("00_warm_up", "f", lambda n: n * 2.0, oracle=from_numpy(lambda n: n * 2.0))
    probe.equals(3)


@pytest.mark.usefixtures("unchecked")  # as for a learner
@pytest.mark.parametrize(("answer", "name"), [
    (lambda s, dim=-1: s.exp() / s.exp().sum(dim, keepdim=True), "no max subtraction"),
    (lambda s, dim=-1: s.softmax(-1), "`dim` is ignored"),
    (lambda s, dim=-1: torch.special.expit(s), "sigmoid instead of softmax"),
])  # fmt: skip
def test_a_catalogued_mistake_is_named(answer, name):
    def tests(probe):
        probe.equals(X, dim=0)
        probe.equals(100 + X, dim=0)

    found = failure(tests, softmax_probe(answer))
    assert found.misconception == name
    assert f"likely cause: {name}." in str(found)


def test_a_mistake_that_agrees_only_on_some_inputs_is_not_told():
    def other(scores, dim=-1):
        """Like the catalogued one on small matrices, not otherwise."""
        return right(scores, -1) if scores.dim() == 2 else right(scores / 2, dim)

    found = failure(softmax_probe(other).equals, X, dim=0)
    assert (found.misconception, found.report.cause) == (None, "")
    assert "sums over dim=0: expected 1" in str(found)


def test_a_mistake_that_changes_from_call_to_call_gets_no_other_name():
    answers = iter([torch.sigmoid, right] * 100)
    found = failure(softmax_probe(lambda s, dim=-1: next(answers)(s)).equals, X, dim=0)
    assert found.misconception == "a different result at every call"


def probe_double(function):
    return Probe("00_warm_up", "double", function, oracle=lambda x: 2 * x)


def wrong_answer(name, function, of="double"):
    function.__doc__ = f"message of {name}"
    return misconception(of=of, name=name, fails=[])(function)


def test_two_that_agree_on_everything_are_both_told(install):
    install(wrong_answer("squares", lambda x: x * x), wrong_answer("cubes", lambda x: x**3))
    found = failure(probe_double(lambda x: x**2).equals, torch.tensor([1.0, 0.0]))
    assert found.misconception is None
    for part in ("one of these", "squares.", "cubes."):
        assert part in str(found)
    more = failure(probe_double(lambda x: x**2).equals, torch.tensor([1.0, 3.0]))
    assert more.misconception == "squares"


def test_a_witness_call_decides_between_two(install):
    @witnesses(of="double")
    def calls(draw):
        yield call(torch.tensor([3.0]))

    cubes = wrong_answer("cubes", lambda x: x**3)
    install(wrong_answer("squares", lambda x: x * x), cubes, calls)
    assert failure(probe_double(lambda x: x**3).equals, torch.ones(2)).misconception == "cubes"


def test_a_failure_asks_the_learner_each_witness_once(install):
    asked = []

    @witnesses(of="double")
    def calls(draw):
        yield call(torch.tensor([4.0, 5.0]))
        yield call(torch.tensor([3.0]))

    def mine(x):
        asked.append(x.tolist())
        return x * x

    install(wrong_answer("squares", lambda x: x * x), calls)
    probe = probe_double(mine)
    found = failure(probe.equals, probe.normal(3))
    assert found.misconception == "squares"
    assert "double(tensor([3.])) gave tensor([9.])" in str(found)
    assert asked.count([4.0, 5.0]) == 1


def test_exceptions_nan_patterns_dtypes_and_shapes_are_matched(install):
    def raises(x):
        raise KeyError("gone")

    install(
        wrong_answer("raises", raises), wrong_answer("nan", lambda x: 2 * x / (x > 0)),
        wrong_answer("wide", lambda x: 2 * x.double()), wrong_answer("row", lambda x: 2 * x[None]),
        wrong_answer("writes", lambda x: x.mul_(2)), wrong_answer("nothing", lambda x: None),
        wrong_answer("array", lambda x: 2 * x.numpy()),
    )  # fmt: skip
    answers = {
        "raises": lambda x: {}[1],
        "nan": lambda x: torch.where(x > 0, 2 * x, torch.where(x < 0, -torch.inf, torch.nan)),
        "wide": lambda x: (x + x).to(torch.float64), "row": lambda x: (x + x).unsqueeze(0),
        "writes": lambda x: x.add_(x), "nothing": lambda x: print(end=""),
        "array": lambda x: np.asarray(x + x),
    }  # fmt: skip
    for name, answer in answers.items():
        found = failure(probe_double(answer).equals, torch.tensor([1.0, 0.0, -2.0]))
        assert found.misconception == name


def test_an_error_of_another_kind_is_not_named(install):
    def raises(x):
        raise KeyError("gone")

    install(wrong_answer("raises", raises))

    def mine(x):
        raise IndexError("far")

    found = failure(probe_double(mine).equals, torch.ones(1))
    assert found.misconception is None
    assert "raised IndexError: far" in str(found)
    assert 'raise IndexError("far")' in str(found)


def test_replay_uses_the_inputs_as_they_were_when_called(install):
    install(wrong_answer("squares", lambda x: x * x))
    probe, x = probe_double(lambda x: x * x), torch.tensor([2.0, 2.0])
    probe.equals(x)
    x[0] = 5.0
    assert failure(probe.equals, x).misconception == "squares"


def test_not_started_has_its_own_words():
    def stub(scores, dim=-1):
        raise NotImplementedError()

    for act in (
        lambda p: p.equals(X),
        lambda p: p.gradient(X),
        lambda p: p.holds(properties.finite, X),
        lambda p: p.raises(ValueError, X),
        lambda p: p.raises(NotImplementedError, X),
        lambda p: p.memory(X, below=1),
        lambda p: p.judges(right=[right], wrong={"none": lambda s: s}, points=1),
    ):
        found = failure(act, softmax_probe(stub))
        assert type(found) is NotStarted
        assert str(found).startswith("stable_softmax: not started")


def test_a_numpy_reference_answers_in_the_dtype_of_the_inputs():
    for dtype in (torch.float32, torch.float64):
        softmax_probe(right).equals(X.to(dtype))


def copied(scores, dim=-1):
    return right(scores.expand(100, 2, 3).contiguous(), dim)[0]


def elsewhere(scores, dim=-1):
    return scores.to("meta").cpu()


def wide(scores, dim=-1):
    return right(scores.double(), dim)


@pytest.mark.parametrize(("answer", "act", "words"), [
    (lambda s, dim=-1: (right(s, dim), s.zero_())[0], lambda p: p.equals(X.clone()),
     "an input was changed in place"),
    (lambda s, dim=-1: sys.exit(0), lambda p: p.equals(X), "raised SystemExit"),
    (elsewhere, lambda p: p.equals(X), "raised NotImplementedError: Cannot copy out of meta"),
    (lambda s, dim=-1: torch._C._jit_nonexistent, lambda p: p.equals(X), "raised"),
    (wide, lambda p: p.equals(X), "expected dtype torch.float32, got torch.float64"),
    (copied, lambda p: p.memory(X, below=1000), "MiB at its peak"),
    (lambda s: s, lambda p: p.raises(ValueError, X), "expected ValueError, got a result: a torch"),
    (lambda s: s["no"], lambda p: p.raises(ValueError, {"a": 1}), "expected ValueError; raised"),
])  # fmt: skip
def test_a_fault_is_told_by_its_symptom(answer, act, words):
    """Also torch's own NotImplementedError, which is no stub."""
    found = failure(act, softmax_probe(answer))
    assert type(found) is ProbeFailure
    assert words in str(found)


def test_the_learner_never_holds_the_tests_own_tensors():
    kept = []
    probe = softmax_probe(lambda s, dim=-1: kept.append(s) or right(s, dim))
    mine = X.clone()
    probe.equals(mine)
    assert all(tensor.data_ptr() != mine.data_ptr() for tensor in kept)


def test_strides_and_gradient_flags_reach_the_learner():
    seen = []

    def look(scores, dim=-1):
        seen.append((scores.stride(), scores.requires_grad, scores.storage_offset()))
        return right(scores, dim)

    softmax_probe(look).equals(torch.arange(12.0).view(3, 4).t()[1:])
    softmax_probe(look).equals(torch.zeros(1, 3).expand(2, 3).detach().requires_grad_())
    assert seen == [((1, 4), False, 1), ((0, 1), True, 0)]


def test_stderr_and_warnings_of_the_learner_do_not_reach_the_notebook(capfd):
    import warnings

    def loud(scores, dim=-1):
        warnings.warn("loud", stacklevel=1)
        print("louder", file=sys.stderr)
        return right(scores, dim)

    probe = softmax_probe(loud)
    probe.equals(X)
    probe.gradient(X)
    probe.holds(properties.rows_sum_to_one, X)
    probe.memory(X, below=2**20)
    assert capfd.readouterr().err == ""


def test_a_keyboard_interrupt_is_not_swallowed():
    def interrupted(scores, dim=-1):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        softmax_probe(interrupted).equals(X)


def test_the_message_names_seed_probe_example_and_own_value():
    probe = softmax_probe(lambda s, dim=-1: s * 0 + 0.5, seed=17)
    text = str(failure(probe.equals, torch.tensor([3.0, 1.0, 2.0]), dim=0))
    assert "symptom:      sums over dim=0: expected 1, got 1.5" in text
    assert "probe:        stable_softmax(float32 (3,), dim=0)" in text
    assert "stable_softmax(tensor([3., 1., 2.]), dim=0)" in text
    assert "expected tensor([0.6652, 0.0900, 0.2447]), got tensor([0.5" in " ".join(text.split())
    assert "seed" not in text  # nothing was drawn


def test_the_right_values_of_drawn_inputs_are_not_told():
    probe = softmax_probe(lambda s, dim=-1: s, seed=17)
    scores = probe.normal(3)
    text = str(failure(probe.equals, scores))
    assert "ATTN_COURSE_SEED=17" in text
    for value in torch.softmax(scores, 0).tolist():
        assert f"{value:.4f}" not in text
    assert "gave tensor(" in text
    assert "expected tensor" not in text


def test_a_failure_survives_pickling_and_shows_plainly_in_ipython():
    found = failure(softmax_probe(torch.sigmoid).equals, X)
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found)
    assert found._render_traceback_() == str(found).splitlines()
    assert "Traceback" not in str(found)


def test_a_broken_property_is_the_symptom_and_is_named_where_known():
    probe = softmax_probe(lambda s, dim=-1: right(s, 0))
    found = failure(probe.holds, properties.rows_sum_to_one, X)
    assert "expected 1, got" in str(found)
    assert "rows sum to one, for stable_softmax" in str(found)
    log = failure(
        softmax_probe(lambda s, dim=-1: s.log_softmax(dim)).holds, properties.rows_sum_to_one, X,
        dim=-1,
    )  # fmt: skip
    assert log.misconception == "log-softmax returned"


SMALL = properties.Property(
    "it is small", lambda f, *a: "too large" if bool((f(*a).abs() > 9).any()) else None
)


def test_nan_keeps_no_property_by_making_every_comparison_false():
    probe = Probe("00_warm_up", "f", lambda x: x * float("nan"))
    assert "6 of 6 numbers of the result are NaN" in str(failure(probe.holds, SMALL, X))
    Probe("00_warm_up", "f", lambda x: x).holds(SMALL, X)
    sent = torch.tensor([1.0, float("nan"), float("inf")])
    Probe("00_warm_up", "f", lambda x: x).holds(SMALL, sent.nan_to_num(posinf=1.0))
    strange = properties.Property("NaN stays", lambda f, x: None if f(x).isnan().any() else "gone")
    Probe("00_warm_up", "f", lambda x: x).holds(strange, sent)


def test_nan_of_a_stub_keeps_no_property_either():
    class Stub:
        def __call__(self, x):
            return x * float("nan")

        noted = None

        def __attn_mutated__(self):
            return False

        def __attn_nan__(self):
            """What a helper's call gave is known where the function runs."""
            return self.noted

        def __attn_remote__(self, operation, args, kwargs, options):
            return student.perform(operation, lambda x: x * 1.0, args, kwargs, options)

    probe = Probe("00_warm_up", "f", Stub())
    assert "are NaN" in str(failure(probe.holds, SMALL, X))
    Probe("00_warm_up", "f", Stub()).memory(X, below=10_000_000)
    Stub.noted = "1 of 2 numbers of the result are NaN"
    probe = Probe("00_warm_up", "f", Stub())
    assert "1 of 2 numbers" in str(failure(probe.memory, X, below=10_000_000))


def test_an_adapter_is_applied_to_learner_oracle_and_misconceptions(install):
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def forward(self, x):
            return self.factor * x

    class Shifted(Scale):
        def forward(self, x):
            return self.factor + x

    def drive(cls, factor, x):
        return cls(factor).forward(x)

    def wrong():
        """Adds where it should multiply, as this message says at length."""

    wrong_class = type("Wrong", (Shifted,), {"__doc__": "Adds."})
    install(misconception(of="Scale", name="adds", fails=[])(wrong_class))
    Probe("00_warm_up", "Scale", Scale, oracle=Scale).equals(3.0, torch.ones(2), via=drive)
    probe = Probe("00_warm_up", "Scale", type("Mine", (Shifted,), {}), oracle=Scale)
    found = failure(probe.equals, 3.0, torch.ones(2), via=drive)
    assert found.misconception == "adds"
    assert "drive of Scale(3.0, float32 (2,))" in str(found)


JUDGED = {"one": lambda x: x, "two": lambda x: x + 1}


@pytest.mark.parametrize(("check", "points"), [
    (lambda f: float(f(torch.tensor(3.0))) == 6.0, 4.0),
    (lambda f: np.bool_(float(f(torch.tensor(3.0))) == 6.0), 4.0),
    (lambda f: float(f(torch.tensor(1.0))) in (2.0, 6.0), 2.0),
])  # fmt: skip
def test_points_grow_with_the_mutants_caught(check, points, capsys):
    probe = Probe("00_warm_up", "check_double", check)
    earned = probe.judges(right=[lambda x: 2 * x], wrong=JUDGED, points=4)
    assert type(earned) is float
    assert earned == points
    assert ("two" in capsys.readouterr().out) == (points < 4)


@pytest.mark.parametrize(("check", "words"), [
    (lambda f: True, "accepts every wrong answer: one; two"),
    (lambda f: False, "rejects a right answer"),
    (lambda f: None, "expected True or False for a right answer, got None"),
    (lambda f: torch.tensor(True), "for a right answer, got a torch.Tensor"),
    (lambda f: 1 if f(torch.tensor(3.0)) == 4 else True, "for the wrong answer 'two', got an int"),
    (lambda f: f(), "for a right answer it raised TypeError"),
])  # fmt: skip
def test_a_test_that_tells_nothing_earns_nothing(check, words):
    probe = Probe("00_warm_up", "check_double", check)
    found = failure(probe.judges, right=[lambda x: 2 * x], wrong=JUDGED, points=4)
    assert words in str(found)


def test_the_seed_is_logged_and_repeats_the_inputs(monkeypatch):
    monkeypatch.setenv("ATTN_COURSE_SEED", "31")
    one, two = softmax_probe(right), softmax_probe(right)
    assert torch.equal(one.normal(3, 5), two.normal(3, 5))
    assert seed_log()[-1] == ("00_warm_up/stable_softmax", 31)
    monkeypatch.delenv("ATTN_COURSE_SEED")
    assert softmax_probe(right).seed != softmax_probe(right).seed
    monkeypatch.setenv("ATTN_COURSE_SEED", "many")
    refused("ATTN_COURSE_SEED", softmax_probe, right)


def test_draws_keep_their_promises():
    probe = softmax_probe(right, seed=5)
    assert probe.uniform(1000, low=2, high=3).min() >= 2
    assert probe.integers(3, 5, 100).unique().tolist() == [3, 4]
    assert bool(probe.mask(50, 4, keep=0.0).any(-1).all())
    assert sorted(probe.permutation(4).tolist()) == [0, 1, 2, 3]
    assert probe.normal(4, dtype=torch.float64).dtype == torch.float64
    assert probe.permutation(1).tolist() == [0]


def test_faults_of_the_test_itself_are_not_the_learners():
    refused("oracle", Probe("00_warm_up", "f", right).equals, X)
    with pytest.raises(RuntimeError, match="oracle of 00_warm_up/f"):
        Probe("00_warm_up", "f", right, oracle=lambda x: x["no"]).equals(X)
    refused("slug", Probe, "../secrets", "f", right)


def test_a_set_without_a_catalogue_still_tests():
    probe = Probe("99_nothing_here", "f", torch.sigmoid, oracle=right)
    assert probe.catalogue == Catalogue()
    assert failure(probe.equals, X).misconception is None


def test_the_numeric_gradient_of_the_oracle_catches_a_wrong_gradient():
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, weights):
            return weights.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad / 2

    probe = softmax_probe(lambda s, dim=-1: Halved.apply(right(s, dim)))
    probe.equals(X)
    text = str(failure(probe.gradient, X))
    assert "gradient with respect to `s` of stable_softmax" in text
    cut = failure(softmax_probe(lambda s, dim=-1: right(s, dim).detach()).gradient, X)
    assert cut.misconception == "detached from its inputs"
    assert student.GradientMissing.__name__ not in str(cut)
