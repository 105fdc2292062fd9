"""From results by seed to a verdict: tuned rows, pairs, an exact sign test, luck, and the rule."""

import math
from collections.abc import Mapping, Sequence
from statistics import median


def median_and_range(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, lowest and highest of results that differ by their seed.

    With an even number of values the median is the mean of the two in the middle.

    Args:
        values: One result for each seed, in any order.

    Raises:
        ValueError: If there are no values.
    """
    if not len(values):
        raise ValueError("values: expected at least one, got none")
    return float(median(values)), float(min(values)), float(max(values))


def tuned(
    validation: Sequence[Sequence[float]], test: Sequence[Sequence[float]]
) -> tuple[int, list[float]]:
    """The setting with the best median on validation, and its test results.

    The setting is one for all seeds, and the test results take no part in the choice. Of settings
    that are equal the first one counts.

    Args:
        validation: One row for each setting, one result for each seed in it.
        test: Likewise, on data that nothing was chosen by.

    Returns:
        The number of the setting and its row of the test results.

    Raises:
        ValueError: If the two tables differ in their number of settings.
    """
    if len(validation) != len(test):
        raise ValueError(f"test: expected {len(validation)} settings, got {len(test)}")
    medians = [median(row) for row in validation]
    best = medians.index(max(medians))
    return best, [float(value) for value in test[best]]


def paired_differences(hero: Mapping[int, float], control: Mapping[int, float]) -> list[float]:
    """Hero less control for each seed that both have, in ascending order of the seeds.

    Args:
        hero: Result by seed.
        control: Likewise; its seeds may stand in another order.
    """
    return [float(hero[seed] - control[seed]) for seed in sorted(hero) if seed in control]


def sign_test(differences: Sequence[float]) -> float:
    r"""Chance of signs at least as lopsided as these, if + and - were equally likely.

    With :math:`n` differences that are not 0 and :math:`k` of the rarer sign,

    .. math:: p = \min\Big(1,\; 2 \sum_{i=0}^{k} \binom{n}{i} \Big/ 2^n\Big) .

    Exact and two-sided. Ties, differences of exactly 0, are dropped; nothing left gives 1.

    Args:
        differences: One for each seed.
    """
    plus = sum(d > 0 for d in differences)
    minus = sum(d < 0 for d in differences)
    count = plus + minus
    tail = sum(math.comb(count, i) for i in range(min(plus, minus) + 1))
    return min(1.0, 2 * tail / 2.0**count)


def expected_best(values: Sequence[float], count: int) -> float:
    r"""Expected maximum of ``count`` draws, with replacement, from the given results.

    With the values in ascending order,

    .. math:: \sum_{i=1}^{n} x_i [(\tfrac{i}{n})^c - (\tfrac{i-1}{n})^c] .

    Args:
        values: Results of one model with several seeds.
        count: How many draws the best is taken of.
    """
    ordered, n = sorted(values), len(values)
    return float(
        sum(x * ((i / n) ** count - ((i - 1) / n) ** count) for i, x in enumerate(ordered, start=1))
    )


def verdict(differences: Sequence[float], margin: float, level: float = 0.1) -> str:
    """The verdict on "the hero is better by more than the margin", by two sign tests.

    One test asks on which side of the margin the differences lie, the other on which side of 0.
    A test decides where its p is at most ``level``.

    - ``"true"``: they lie above the margin.
    - ``"partly"``: they lie below the margin and above 0.
    - ``"false"``: they lie below the margin, and not above 0 as far as the test can tell.
    - ``"not settled"``: neither side of the margin is decided.

    Args:
        differences: Hero less control, one for each seed.
        margin: What the claim says in numbers; negative for "no worse than".
        level: The largest p that decides.
    """

    def side(of: float) -> int:
        moved = [d - of for d in differences]
        above = sum(d > 0 for d in moved) - sum(d < 0 for d in moved)
        return 0 if sign_test(moved) > level else (above > 0) - (above < 0)

    if side(margin) == 0:
        return "not settled"
    if side(margin) > 0:
        return "true"
    return "partly" if side(0.0) > 0 else "false"
