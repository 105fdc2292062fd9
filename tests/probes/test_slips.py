"""Small changes of a right answer: they are made from its text, and told only where they fit."""

import pytest
import torch

from attn_course.probes import Probe, ProbeFailure, WrongAnswers, call, witnesses
from attn_course.probes.slips import slips


def scaled(query, key):
    return query @ key.mT * query.shape[-1] ** -0.5


def mixed(weights, value):
    return weights @ value


def attend(query, key, value, *, score=scaled, mix=mixed):
    weights = score(query, key).softmax(-1)
    return mix(weights, value)


def counted(number):
    while number > 0:
        number -= 1
    return number


attention = WrongAnswers("attend", tests=("values",), right=attend)
attention.fault("no scale", "You leave the scale out.", score=lambda query, key: query @ key.mT)


@witnesses(of="attend")
def calls(draw):
    for length in (3, 5):
        yield call(draw.normal(length, 4), draw.normal(length, 4), draw.normal(length, 4))


def told(answer, install):
    install(attention, calls)
    with pytest.raises(ProbeFailure) as caught:
        Probe("99_test", "attend", answer, oracle=attend, seed=3).everywhere()
    return caught.value


@pytest.mark.parametrize(("answer", "name"), [
    (lambda q, k, v: (q @ k.mT / 4).softmax(-1) @ v, "applied twice (the step `score`)"),
    (lambda q, k, v: (q @ q.mT / 2).softmax(-1) @ v, "`query` instead of `key`"),
    (lambda q, k, v: (q @ k.mT / 2).softmax(-2) @ v, "along another axis (`weights`)"),
    (lambda q, k, v: (q @ k.mT / 2).exp() @ v, "not divided by their sum (`weights`)"),
    (lambda q, k, v: (q @ k.mT / 2).softmax(-1).mT @ v, "transposed (the step `mix`)"),
    (lambda q, k, v: (q @ k.mT / 2).softmax(-1).softmax(-1) @ v, "`softmax` is applied twice"),
    (lambda q, k, v: (q @ k.mT / 2).softmax(-1) @ v + q, "`query` is added (the result)"),
    (lambda q, k, v: (q @ k.mT / 2).tanh().softmax(-1) @ v, "tanh of an intermediate result"),
    (lambda q, k, v: (q @ k.mT / 2).softmax(-1).roll(1, -1) @ v, "shifted by one"),
])  # fmt: skip
def test_one_small_change_is_told_with_its_place(answer, name, install):
    assert name in (told(answer, install).misconception or "")


@pytest.mark.parametrize("answer", [
    lambda q, k, v: torch.zeros_like(q),  # a constant, which a change may give by chance
    lambda q, k, v: attend(q, k, v) * torch.nan,
    lambda q, k, v: (q @ k.mT / 3.1 + 0.2 * q[:, :1]).softmax(0) @ v,
    lambda q, k, v: (q @ k.mT / 4).softmax(-1) @ v if len(q) == 3 else attend(q, k, v) + q,
])  # fmt: skip
def test_what_no_single_change_gives_everywhere_has_no_name(answer, install):
    assert told(answer, install).misconception is None


def test_slips_differ_leave_the_right_answer_alone_and_never_run_for_ever():
    inputs = [torch.randn(5, 4, generator=torch.Generator().manual_seed(s)) for s in range(3)]
    before = attend(*inputs)
    made = slips("attend", attend)
    assert len(made) > 30
    results = []
    for one in made:
        try:
            results.append(one.function(*inputs))
        except Exception:
            continue
    assert sum(not torch.allclose(r, before) for r in results if r.shape == before.shape) > 15
    assert torch.equal(attend(*inputs), before)
    assert slips("counted", counted) == ()
    assert slips("softmax", torch.softmax) == ()


def rate(work, moved, speed, *, divisor=lambda moved: moved * 3 + 1):
    return min(speed, work / divisor(moved))


def steps(start, end):
    return -(start[:, None] - end)


rates = WrongAnswers("rate", tests=("values",), right=rate)
rates.fault("nothing is moved", "The divisor is left out.", divisor=lambda moved: 1)
tables = WrongAnswers("steps", tests=("values",), right=steps)


@witnesses(of="rate")
def rate_calls(draw):
    for work, moved, speed in ((7.0, 2.0, 50.0), (5.0, 3.0, 40.0), (8.0, 0.5, 30.0), (9.0, 1, 1)):
        yield call(work, moved, speed)


@witnesses(of="steps")
def step_calls(draw):
    for size in (3, 4, 5):
        yield call(torch.arange(size), torch.arange(size))


def named(members, name, answer, right, install):
    install(*members)
    with pytest.raises(ProbeFailure) as caught:
        Probe("99_test", name, answer, oracle=right, seed=3).everywhere()
    return caught.value.misconception


@pytest.mark.parametrize(("answer", "name"), [
    (lambda work, moved, speed: min(speed, work / moved * 3 + 1), None),  # two changes
    (lambda work, moved, speed: min(speed, work / (moved * 3 - 1)), "plus and minus exchanged"),
    (lambda work, moved, speed: min(speed, work / moved * 3), None),
    (lambda work, moved, speed: max(speed, work / (moved * 3 + 1)), "the largest instead of"),
    (lambda work, moved, speed: 2.5, None),
])  # fmt: skip
def test_a_single_number_has_small_changes_too(answer, name, install):
    found = named((rates, rate_calls), "rate", answer, rate, install)
    assert found is None if name is None else name in (found or "")


def mark(points, passed, *, best=lambda points: points > 8):
    if not passed <= points:
        return "failed"
    return "excellent" if best(points) else "passed"


def added(rows, *, factor=2):
    total = 0 * rows[0]
    for row in rows:
        total = total + row
        total = factor * total
    return total.log() + 1


marks = WrongAnswers("mark", tests=("values",), right=mark)
sums = WrongAnswers("added", tests=("values",), right=added)
marks.fault("nobody is excellent", "The best have a mark of their own.", best=lambda points: False)
sums.fault("nothing is doubled", "The factor is left out.", factor=1)


@witnesses(of="mark")
def mark_calls(draw):
    for points in (2, 5, 7, 8, 9, 10):
        yield call(points, 5)


@witnesses(of="added")
def sum_calls(draw):
    for count in (2, 3, 4):
        yield call(draw.uniform(count, 3) + 1)


@pytest.mark.parametrize(("answer", "name"), [
    (lambda p, q: ("passed" if p > 8 else "excellent") if q <= p else "failed", "inverted"),
    (lambda p, q: ("excellent" if p >= 8 else "passed") if q <= p else "failed", None),  # one text
    (lambda p, q: ("excellent" if p > 8 else "passed") if q > p else "failed", "inverted"),
])  # fmt: skip
def test_an_answer_in_words_has_small_changes_too(answer, name, install):
    found = named((marks, mark_calls), "mark", answer, mark, install)
    assert found is None if name is None else name in (found or "")


def other_sum(start=0, stop=None, early=False, inside=0):
    def sum_of(rows):
        total = torch.zeros(3)
        for row in rows[start:stop]:
            total = 2 * total + row if early else 2 * (total + row)
        return (total + inside).log() + 1 - inside

    return sum_of


@pytest.mark.parametrize(("answer", "name"), [
    (other_sum(start=1), "the first pass is left out"),
    (other_sum(stop=-1), "the last pass is left out"),
    (other_sum(early=True), "two steps in reverse order"),
    (other_sum(inside=1), "`log` of all of it"),
])  # fmt: skip
def test_turns_of_a_loop_and_their_order_are_told(answer, name, install):
    assert name in (named((sums, sum_calls), "added", answer, added, install) or "")


def test_a_dropped_minus_of_whole_numbers_is_a_sign_and_no_axis(install):
    found = named((tables, step_calls), "steps", lambda a, b: a[:, None] - b, steps, install)
    assert "sign is wrong" in (found or "")


def ordered(x):
    best = x.topk(2).values
    late = torch.zeros_like(x)
    late[1:] = x[:-1]
    return best.sum() + late * (late != 1) ** (1 / 3) + x.softmax(dim=0)


@pytest.mark.parametrize(
    "change",
    [
        "the smallest instead of the largest (`best`)",
        "moved to the other side (`late`)",
        "divided instead of a root (the result)",
        "a condition is inverted (the result)",
    ],
)
def test_the_changes_of_an_answer_hold(change):
    (found,) = [slip for slip in slips("ordered", ordered) if slip.name == change]
    x = torch.tensor([0.5, 3.0, 1.0, 2.0])
    assert not torch.equal(found.function(x), ordered(x))


def along(x):
    return x.log_softmax(-1)


def test_an_axis_is_changed_as_a_whole():
    names = {slip.name for slip in slips("along", along)}
    assert "along another axis (the result)" in names
    assert not [name for name in names if "off by one" in name or "a sign" in name]
