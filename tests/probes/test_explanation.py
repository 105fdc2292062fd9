"""Two faults at once are still named, a helper comes first, and chance names nothing."""

import math

import pytest
import torch

from attn_course.probes import (
    Probe,
    ProbeFailure,
    Probes,
    WrongAnswers,
    call,
    evidence,
    explanation,
    misconception,
    student,
    witnesses,
)
from attn_course.probes import probe as probe_module


def right(scores, mask):
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return torch.where(mask.any(-1, keepdim=True), weights, 0.0)


@witnesses(of="weigh")
def inputs(draw):
    for rows, keys in ((2, 3), (5, 7), (4, 4)):
        yield call(draw.normal(rows, keys), draw.mask(rows, keys))
        mask = draw.mask(rows, keys)
        mask[0] = False
        yield call(draw.normal(rows, keys), mask)


@misconception(of="weigh", name="the mask comes after", fails=[])
def after(scores, mask):
    """You apply the mask after the softmax, so that the rows no longer sum to one."""
    return scores.softmax(-1) * mask


@misconception(of="weigh", name="empty rows are NaN", fails=[])
def empty(scores, mask):
    """You divide 0 by 0 in a row without any position."""
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


thrice = WrongAnswers("twice", tests=("values",))
thrice.fault("three times", "You multiply by 3 where the task says 2.", lambda x: 3 * x)


@witnesses(of="twice")
def twice_inputs(draw):
    yield call(draw.normal(3, 5))


def in_steps(x, *, scale=lambda x: 2 * x, shift=lambda x: x + 1, turn=lambda x: x.flip(-1)):
    return turn(shift(scale(x)))


steps = WrongAnswers("in_steps", tests=("values",), right=in_steps)
steps.fault("scaled by 3", "You multiply by 3 where the task says 2.", scale=lambda x: 3 * x)
steps.fault("scaled by 5", "You multiply by 5 where the task says 2.", scale=lambda x: 5 * x)
steps.fault("squared", "You take the square where one is added.", shift=torch.square)
steps.fault("not reversed", "You leave out the last step.", turn=lambda x: x)


@witnesses(of="in_steps")
def steps_inputs(draw):
    yield call(draw.normal(3, 5))
    yield call(draw.normal(7))


@pytest.fixture(autouse=True)
def catalogue(install):
    return install(inputs, after, empty, thrice, twice_inputs, steps_inputs, steps)


def told(answer, name="weigh", oracle=right, around=None, oracles=None):
    probe = Probe("99_test", name, answer, oracle=oracle, seed=5, around=around, oracles=oracles)
    with pytest.raises(ProbeFailure) as caught:
        probe.everywhere()
    return caught.value


def turned(scores, mask):
    return after(scores, mask).transpose(-1, -2)


def negative(scores, mask):
    return -right(scores, mask)


def inverted(scores, mask):
    return right(scores, ~mask)


def inverted_and_after(scores, mask):
    return scores.softmax(-1) * ~mask


def halved(scores, mask):
    return right(scores, mask) / math.sqrt(3.7)


def without_mask(scores, mask):
    return scores.softmax(-1)


def means(scores, mask):
    powers = scores.exp().masked_fill(~mask, 0.0)
    total = powers.mean(-1, keepdim=True)
    return powers / total.masked_fill(total == 0, 1.0)


@pytest.mark.parametrize(("answer", "names"), [
    (after, ["the mask comes after"]),
    (turned, ["the mask comes after", "two axes are exchanged"]),
    (negative, ["the sign is wrong"]),
    (inverted, ["`mask` is inverted"]),
    (inverted_and_after, ["the mask comes after", "`mask` is inverted"]),
    (halved, ["every number is multiplied by one factor"]),
    (without_mask, ["`mask` is ignored"]),
    (lambda scores, mask: after(scores, mask).double(), ["the mask comes after"]),
    (lambda scores, mask: None, ["the return is missing"]),
])  # fmt: skip
def test_one_fault_or_two_are_named(answer, names):
    found = told(answer)
    for name in names:
        assert name in (found.misconception or ""), found


@pytest.mark.parametrize(("answer", "name"), [
    (lambda x: (5 * x) ** 2, None),
    (lambda x: 3 * x + 1, "scaled by 3 and not reversed"),
    (lambda x: (3 * x).square().flip(-1), "scaled by 3 and squared"),
    (lambda x: (5 * x + 1).flip(-1), "scaled by 5"),
])  # fmt: skip
def test_two_mistakes_in_different_steps_are_named_together(answer, name):
    found = told(answer, "in_steps", in_steps)
    assert found.misconception == (name or found.misconception)
    if name is None:  # three at once: two of them at most are named, and no other
        assert not {"scaled by 3"} & set((found.misconception or "").split(" and "))


def test_mistakes_in_the_same_step_have_no_pair():
    three, five, *_ = steps.__attn_declared__
    assert three.beside(five) is None
    assert three.beside(collect_of("weigh")[0]) is None


def collect_of(name):
    return probe_module.load_catalogue("99_test").of(name)


def test_a_search_ends_after_so_many_comparisons(monkeypatch):
    monkeypatch.setattr(explanation, "MOST_COMPARED", 0)
    found = told(lambda x: 3 * x + 1, "in_steps", in_steps)
    assert found.misconception is None
    assert "differ" in str(found)


def test_a_function_without_a_hash_is_explained_too():
    class InTheJail:
        __hash__ = None

        def __call__(self, x):
            return 3 * x + 1

    found = told(InTheJail(), "in_steps", in_steps)
    assert found.misconception == "scaled by 3 and not reversed"


def test_a_factor_is_told_with_the_size_that_explains_it():
    found = told(means)
    assert found.misconception == "every number is multiplied by one factor"
    assert "a size of the inputs" in found.report.cause


def test_what_nothing_explains_costs_so_many_comparisons_for_all_tests_together():
    answer = lambda scores, mask: right(scores, mask) + 0.1 * scores.sin()  # noqa: E731
    for _ in range(3):
        assert told(answer).misconception is None
    bench = evidence.bench_of(answer, "weigh", probe_module.load_catalogue("99_test"))
    assert 0 < bench.compared <= explanation.MOST_COMPARED + 64 * bench.effort


def test_a_function_whose_helper_has_changed_is_another_function():
    names = {"right": right, "after": after}
    exec("def weigh(scores, mask):\n    return helper(scores, mask)\n", names)
    names["helper"] = after
    assert told(names["weigh"]).misconception == "the mask comes after"
    names["helper"] = negative
    assert told(names["weigh"]).misconception == "the sign is wrong"


def test_a_small_constant_is_told_where_large_numbers_are_right():
    def unit(x):
        return x / x.norm(dim=-1, keepdim=True)

    def guarded(x):
        return x / (x.norm(dim=-1, keepdim=True) + 1e-3)

    def halved_and_guarded(x):
        return x / (2 * x.norm(dim=-1, keepdim=True) + 1e-3)

    name = "a small constant changes the result"
    assert told(guarded, "twice", unit).misconception == name
    assert name not in (told(halved_and_guarded, "twice", unit).misconception or "")


def test_rounding_that_the_test_allows_contradicts_no_mistake():
    one, other = [torch.tensor([1.0, 1e-7]).numpy()], [torch.tensor([1.0, 3e-7]).numpy()]
    assert not evidence.spoilt(one, other)
    assert evidence.spoilt([one[0] + 1], other)


def test_numbers_that_nothing_explains_have_no_name():
    assert told(lambda scores, mask: right(scores, mask) + 0.1 * scores.sin()).misconception is None
    assert told(lambda scores, mask: (scores + mask).cos()).misconception is None


def test_a_helper_that_is_wrong_is_named_before_the_function_that_calls_it():
    source = """
def twice(x):
    return 3 * x

def weigh(scores, mask):
    return right(scores, mask) * (twice(scores) / scores) / 2
"""
    names = {"right": right}
    exec(source, names)
    around = {name: names[name] for name in ("twice", "weigh")}
    found = told(names["weigh"], around=around, oracles={"twice": lambda x: 2 * x})
    assert found.misconception == "three times"
    assert "`twice`, which `weigh` calls, is not right yet" in found.report.cause
    assert "this test passes" in found.report.cause


def test_an_attribute_is_no_helper():
    names = {"box": type("Box", (), {"twice": staticmethod(lambda x: 2 * x)})}
    exec("def weigh(scores, mask):\n    return box.twice(scores) * mask\n", names)
    around = {"weigh": names["weigh"], "twice": lambda x: 3 * x}
    found = told(names["weigh"], around=around, oracles={"twice": lambda x: 2 * x})
    assert "twice" not in found.report.cause


def test_a_factor_of_one_is_no_mistake(install):
    @witnesses(of="weigh")
    def gradients(draw):
        yield call(draw.normal(2, 3), draw.mask(2, 3), via=student.grad(0))

    install(inputs, gradients, after)
    found = told(lambda scores, mask: after(scores, mask).detach())
    assert found.misconception == "the mask comes after"


@pytest.mark.parametrize(("answer", "words"), [
    (lambda scores, mask: mask @ mask.mT, "torch has no such operation for Bool"),
    (lambda scores, mask: scores.log(), "A guess: NaN comes from 0 divided by 0"),
    (lambda scores, mask: scores / 0, "A guess: infinity comes from a division by 0"),
])  # fmt: skip
def test_what_the_call_shows_by_itself_is_told(answer, words):
    assert words in told(answer).report.cause


def test_sums_of_a_mask_are_no_symptom():
    eye = lambda x: torch.eye(3, dtype=torch.bool)  # noqa: E731
    found = told(lambda x: ~eye(x), "twice", eye)
    assert found.report.symptom.startswith("9 of 9 elements differ")


def test_probes_know_the_names_around_their_test_cell():
    made = Probes("99_test", twice=abs)(right=right)
    assert made.around["negative"] is negative
    assert made.oracles == {"twice": abs}
