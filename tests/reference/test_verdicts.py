"""Numbers done by hand, enumeration of every toss, and the four verdicts of the rule."""

import itertools

import numpy as np
import pytest
from refusals import refused

from attn_course import reference


def test_median_and_range_by_hand() -> None:
    assert reference.median_and_range([0.9, 0.5, 0.6]) == (0.6, 0.5, 0.9)
    assert reference.median_and_range([1.0, 8.0, 2.0, 4.0]) == (3.0, 1.0, 8.0)
    refused("values: expected at least one", reference.median_and_range, [])


def test_the_setting_is_chosen_by_the_validation_median_alone() -> None:
    validation = [[0.9, 0.1, 0.2], [0.4, 0.5, 0.3], [0.4, 0.4, 0.4]]
    test = [[1.0, 1.0, 1.0], [0.25, 0.5, 0.75], [2.0, 2.0, 2.0]]
    assert reference.tuned(validation, test) == (1, [0.25, 0.5, 0.75])
    refused("test: expected 3 settings, got 1", reference.tuned, validation, test[:1])


def test_pairs_follow_the_seed_and_not_the_place() -> None:
    hero, control = {3: 0.75, 1: 0.5}, {1: 0.25, 2: 0.8, 3: 0.875}
    assert reference.paired_differences(hero, control) == [0.25, -0.125]


@pytest.mark.parametrize("plus", range(8))
@pytest.mark.parametrize("ties", [0, 2])
def test_the_sign_test_equals_the_count_over_all_tosses(plus: int, ties: int) -> None:
    tosses = [abs(sum(t)) >= abs(2 * plus - 7) for t in itertools.product((-1, 1), repeat=7)]
    differences = [0.5] * plus + [-2.0] * (7 - plus) + [0.0] * ties
    assert reference.sign_test(differences) == sum(tosses) / len(tosses)


def test_nothing_but_ties_decides_nothing() -> None:
    assert reference.sign_test([0.0, 0.0]) == reference.sign_test([]) == 1.0


def test_the_expected_best_equals_the_mean_over_all_draws() -> None:
    values = [0.3, -1.0, 2.0]
    draws = [max(draw) for draw in itertools.product(values, repeat=4)]
    assert np.isclose(reference.expected_best(values, 4), np.mean(draws))
    assert reference.expected_best([0.0, 1.0], 2) == 0.75


@pytest.mark.parametrize(("differences", "margin", "level", "expected"), [
    ([0.06, 0.1, 0.07, 0.2, 0.08], 0.05, 0.1, "true"),
    ([0.02] * 5, 0.05, 0.1, "partly"),
    ([-0.01, 0.01, -0.02, 0.02, 0.01], 0.05, 0.1, "false"),
    ([-0.3] * 5, 0.05, 0.1, "false"),
    ([0.3] * 4, 0.05, 0.1, "not settled"),
    ([0.01, -0.01, 0.0, 0.02, -0.01, 0.01], -0.02, 0.1, "true"),
    ([0.3] * 5, 0.05, 0.0625, "true"),
    ([0.3] * 5, 0.05, 0.05, "not settled"),
    ([0.3] * 7 + [-9.0], 0.05, 0.1, "true"),
])  # fmt: skip
def test_the_rule(differences: list[float], margin: float, level: float, expected: str) -> None:
    assert reference.verdict(differences, margin, level) == expected
