"""Right answers to the exercises on settling a claim, written differently."""

import itertools
import math
import statistics

from attn_course.probes import variant


@variant(of="median_and_range")
def range_by_statistics(values):
    return statistics.median(values), min(values), max(values)


@variant(of="median_and_range")
def range_by_peeling(values):
    left = sorted(values)
    lowest, highest = left[0], left[-1]
    while len(left) > 2:
        left = left[1:-1]
    return [sum(left) / len(left), lowest, highest]


@variant(of="paired_differences")
def paired_by_sets(hero, control):
    return [hero[seed] - control[seed] for seed in sorted(hero.keys() & control.keys())]


@variant(of="paired_differences")
def paired_by_sorting(hero, control):
    found = {}
    for seed, value in hero.items():
        if seed in control:
            found[seed] = value - control[seed]
    return [difference for _, difference in sorted(found.items())]


@variant(of="sign_test")
def sign_by_all_tosses(differences):
    signs = [1 if d > 0 else -1 for d in differences if d != 0]
    seen = abs(sum(signs))
    tosses = [abs(sum(toss)) >= seen for toss in itertools.product((-1, 1), repeat=len(signs))]
    return sum(tosses) / len(tosses)


@variant(of="sign_test")
def sign_by_steps(differences):
    signs = [d > 0 for d in differences if d]
    chance = [1.0]  # of 0, 1, 2 ... plus signs
    for _ in signs:
        chance = [(a + b) / 2 for a, b in zip([0.0, *chance], [*chance, 0.0], strict=True)]
    rarer = min(sum(signs), len(signs) - sum(signs))
    return min(1.0, sum(chance[: rarer + 1]) + sum(chance[len(signs) - rarer :]))


@variant(of="expected_best")
def best_by_differences(values, count):
    ordered = sorted(values)
    total = ordered[-1]
    for i in range(1, len(ordered)):
        total -= (ordered[i] - ordered[i - 1]) * (i / len(ordered)) ** count
    return total


@variant(of="expected_best")
def best_by_growing(values, count):
    ordered, n = sorted(values), len(values)
    below = [math.exp(count * math.log(i / n)) if i else 0.0 for i in range(n + 1)]
    return sum(x * (b - a) for x, a, b in zip(ordered, below, below[1:], strict=False))


def chance(differences, of):
    signs = [d > of for d in differences if d - of != 0]
    rarer = min(sum(signs), len(signs) - sum(signs))
    return min(
        1.0, sum(math.comb(len(signs), i) for i in range(rarer + 1)) * 2.0 ** (1 - len(signs))
    )


@variant(of="verdict")
def verdict_by_sums(differences, margin, level=0.1):
    def lean(of):
        signs = [math.copysign(1, d - of) for d in differences if d - of != 0]
        return sum(signs) if chance(differences, of) <= level else 0

    if not lean(margin):
        return "not settled"
    if lean(margin) > 0:
        return "true"
    return ("false", "partly")[lean(0.0) > 0]


@variant(of="verdict")
def verdict_by_table(differences, margin, level=0.1):
    def side(of):
        if chance(differences, of) > level:
            return "open"
        return "above" if statistics.median(differences) > of else "below"

    table = {("above", side(0.0)): "true", ("below", "above"): "partly"}
    against = side(margin)
    return table.get((against, side(0.0)), "not settled" if against == "open" else "false")


@variant(of="fixed_comparison")
def comparison_by_statistics(hero_validation, hero_test, control_validation, control_test):
    sides = []
    for validation, test in ((hero_validation, hero_test), (control_validation, control_test)):
        best = max(range(len(validation)), key=lambda i: statistics.median(validation[i]))
        sides.append(test[best])
    return [h - c for h, c in zip(*sides, strict=True)]


@variant(of="fixed_comparison")
def comparison_by_pairs(hero_validation, hero_test, control_validation, control_test):
    def row(validation, test):
        medians = list(map(statistics.median, validation))
        for middle, found in zip(medians, test, strict=True):
            if middle == max(medians):
                return found
        return None

    hero, control = row(hero_validation, hero_test), row(control_validation, control_test)
    return [hero[i] - control[i] for i in range(len(hero))]


@variant(of="my_record")
def record_of_a_gain():
    return {
        "claim": "A learned factor on cosines gains more than 0.3 of accuracy on look-up.",
        "seeds": [0, 1, 2, 3, 4, 5],
        "hero_settings": [0.03, 0.1, 0.3],
        "control_settings": [0.03, 0.1, 0.3],
        "hero_validation": [
            [0.198, 0.166, 0.132, 0.13, 0.166, 0.158],
            [0.874, 0.47, 0.386, 0.342, 0.562, 0.536],
            [1.0, 0.972, 0.98, 0.972, 1.0, 1.0],
        ],
        "control_validation": [
            [0.198, 0.172, 0.13, 0.116, 0.176, 0.164],
            [0.448, 0.384, 0.32, 0.352, 0.4, 0.398],
            [0.492, 0.514, 0.466, 0.456, 0.482, 0.512],
        ],
        "hero_test": [
            [0.19, 0.16, 0.13, 0.138, 0.17, 0.164],
            [0.848, 0.462, 0.44, 0.346, 0.606, 0.536],
            [1.0, 0.978, 0.972, 0.964, 1.0, 1.0],
        ],
        "control_test": [
            [0.182, 0.158, 0.13, 0.134, 0.188, 0.152],
            [0.442, 0.4, 0.356, 0.358, 0.458, 0.43],
            [0.502, 0.446, 0.55, 0.456, 0.518, 0.542],
        ],
        "hero_steps": 60,
        "control_steps": 60,
        "margin": 0.3,
        "best": 1.0,
        "verdict": "true",
    }


@variant(of="my_record")
def record_that_is_not_settled():
    return {
        "claim": "A learned factor on cosines gains more than 0.01 over the scaled dot product.",
        "seeds": [0, 1, 2, 3, 4, 5],
        "hero_settings": [0.03, 0.1, 0.3],
        "control_settings": [0.03, 0.1, 0.3],
        "hero_validation": [
            [0.198, 0.166, 0.132, 0.13, 0.166, 0.158],
            [0.874, 0.47, 0.386, 0.342, 0.562, 0.536],
            [1.0, 0.972, 0.98, 0.972, 1.0, 1.0],
        ],
        "control_validation": [
            [0.27, 0.166, 0.138, 0.134, 0.178, 0.158],
            [0.824, 0.672, 0.626, 0.534, 0.598, 0.632],
            [0.976, 0.976, 0.964, 0.952, 0.984, 0.922],
        ],
        "hero_test": [
            [0.19, 0.16, 0.13, 0.138, 0.17, 0.164],
            [0.848, 0.462, 0.44, 0.346, 0.606, 0.536],
            [1.0, 0.978, 0.972, 0.964, 1.0, 1.0],
        ],
        "control_test": [
            [0.218, 0.148, 0.144, 0.144, 0.218, 0.144],
            [0.764, 0.678, 0.636, 0.532, 0.61, 0.604],
            [0.98, 0.97, 0.964, 0.952, 0.984, 0.934],
        ],
        "hero_steps": 60,
        "control_steps": 60,
        "margin": 0.01,
        "best": 1.0,
        "verdict": "not settled",
    }
