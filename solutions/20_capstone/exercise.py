# %% [markdown]
# # Exercises: settle a claim
#
# You write the instruments of the chapter, and then you use them on a claim of your own.
#
# Results are plain numbers, one for each seed; larger ones are better. `hero` is what the claim praises, `control` what it is compared with.
# Lists, dictionaries and numbers come in, and lists, tuples and numbers go out. Nothing here needs a tensor.
#
# A test that fails tells you what it saw, what it tried and, when it knows the mistake, which one it is.

# %% nbgrader={"grade_id": "setup", "locked": true}
import itertools
import math
import re

import torch
from torch.nn import functional as F

from attn_course import reference
from attn_course.probes import Probes, properties


def right_comparison(hero_validation, hero_test, control_validation, control_test):
    hero = reference.tuned(hero_validation, hero_test)[1]
    control = reference.tuned(control_validation, control_test)[1]
    return [h - c for h, c in zip(hero, control, strict=True)]


probes = Probes(
    "20_capstone",
    median_and_range=reference.median_and_range,
    paired_differences=reference.paired_differences,
    sign_test=reference.sign_test,
    expected_best=reference.expected_best,
    verdict=reference.verdict,
    fixed_comparison=right_comparison,
)


def the_list_afterwards(function, values):
    # What is left of the list that was handed over.
    function(values)
    return values


# What is asked of a record, exercise 8. Each returns a symptom in words, or None.

NUMBERS = ("margin", "best", "hero_steps", "control_steps")
TABLES = ("hero_validation", "control_validation", "hero_test", "control_test")
SETTINGS = ("hero_settings", "control_settings")
SIDES = ("hero", "control")


def is_number(x):
    return type(x) in (int, float) and math.isfinite(x)


def record_has_entries(my_record):
    record = my_record()
    if type(record) is not dict:
        return f"my_record: expected a dictionary, got {type(record).__name__}"
    names = ("claim", *SIDES, "seeds", *SETTINGS, *TABLES, *NUMBERS, "verdict")
    for name in names:
        if name not in record:
            return f"{name}: expected an entry of this name, got none"
    for name in ("claim", *SIDES, "verdict"):
        if type(record[name]) is not str:
            return f"{name}: expected text, got {record[name]!r}"
    for name in NUMBERS:
        if not is_number(record[name]):
            return f"{name}: expected a finite number, got {record[name]!r}"
    for name in ("seeds", *SETTINGS):
        if type(record[name]) is not list or not all(map(is_number, record[name])):
            return f"{name}: expected a list of finite numbers, got {str(record[name])[:60]}"
    for name in TABLES:
        table, settings = record[name], record[f"{name.partition('_')[0]}_settings"]
        if type(table) is not list or not all(type(row) is list for row in table):
            return f"{name}: expected a list of lists, got {str(table)[:60]}"
        if not table or len(table) != len(settings):
            return (
                f"{name}: expected one row for each of {len(settings)} settings, got {len(table)}"
            )
        for row in table:
            if not row or len(row) != len(record["seeds"]):
                return f"{name}: expected {len(record['seeds'])} results in a row, got {len(row)}"
            if any(type(x) not in (int, float) for x in row):
                return f"{name}: expected plain numbers, got {str(row)[:60]}"
    return None


def record_has_form(my_record):
    symptom = record_has_entries(my_record)
    if symptom is not None:
        return symptom
    record = my_record()
    for name in TABLES:
        for x in (x for row in record[name] for x in row):
            if not is_number(x):
                return f"{name}: expected finite numbers, got {x!r}"
    return claim_has_its_number(record["claim"], abs(record["margin"]))


def claim_has_its_number(claim, size):
    words, numbers = claim.split(), re.findall(r"\d+(?:\.\d+)?", claim)
    if len(words) < 5:
        return f"claim: expected a sentence, got {claim!r}"
    if not any(math.isclose(float(x), f * size) for x in numbers for f in (1, 100)):
        return f"claim: expected the margin {size:g} (or {100 * size:g} %) in it, got {claim!r}"
    return None


def record_is_fair(my_record):
    record = my_record()
    seeds = record["seeds"]
    if len(seeds) < 5:
        return f"seeds: expected at least five, got {len(seeds)}"
    if any(type(s) is not int or s < 0 for s in seeds) or len(set(seeds)) < len(seeds):
        return f"seeds: expected different whole numbers, none below 0, got {seeds}"
    for name in ("hero_steps", "control_steps"):
        if record[name] < 1 or record[name] != int(record[name]):
            return f"{name}: expected a whole number of at least 1, got {record[name]}"
    if record["hero_steps"] != record["control_steps"]:
        return f"control_steps: expected {record['hero_steps']} as for the hero, got {record['control_steps']}"
    for side in SIDES:
        symptom = grid_is_wide(side, record) or runs_are_different(side, record)
        if symptom:
            return symptom
    hero, control = (len(record[name]) for name in SETTINGS)
    if hero != control:
        return f"control_settings: expected {hero} settings as for the hero, got {control}"
    if record["hero"] == record["control"]:
        return f"control: expected another way than the hero's, got {record['control']!r} for both"
    return None


def grid_is_wide(side, record):
    name, grid = f"{side}_settings", record[f"{side}_settings"]
    if len(grid) < 3:
        return f"{name}: expected at least three settings, got {len(grid)}"
    if not all(1e-6 <= x <= 100 for x in grid):
        return f"{name}: expected settings from 0.000001 to 100, got {grid}"
    for x, y in itertools.pairwise(grid):
        if not x < y <= 3.0001 * x:
            return f"{name}: expected ascending settings, a factor of 3 or less apart, got {x:g} and {y:g}"
    medians = [reference.median_and_range(row)[0] for row in record[f"{side}_validation"]]
    if max(medians) in (medians[0], medians[-1]):
        edge = grid[0] if medians[0] == max(medians) else grid[-1]
        return f"{name}: expected the best validation median inside of the grid, got it at the end, {edge:g}"
    return None


def runs_are_different(side, record):
    """Seeds that give the same results are one seed; test data that repeat validation chose."""
    validation, test = record[f"{side}_validation"], record[f"{side}_test"]
    results = [x for row in validation + test for x in row]
    spread = max(results) - min(results)
    if spread == 0:
        return f"{side}_test: expected results that differ, got {results[0]} everywhere"
    columns = list(zip(*validation, *test, strict=True))
    for (i, one), (j, other) in itertools.combinations(enumerate(columns), 2):
        if max(abs(x - y) for x, y in zip(one, other, strict=True)) <= 0.003 * spread:
            pair = f"{record['seeds'][i]} and {record['seeds'][j]}"
            return f"{side}_test: expected other results for another seed, got the same for {pair}"
    moved = [
        x - y
        for rows in zip(validation, test, strict=True)
        for x, y in zip(*rows, strict=True)
        if x != record["best"]
    ]
    same = sum(abs(x) <= 0.003 * spread for x in moved)
    if moved and (2 * same > len(moved) or max(moved) - min(moved) <= 1e-4 * spread):
        return f"{side}_test: expected results on data that chose nothing, got a copy of {side}_validation"
    return None


def chosen_rows(record):
    return (
        reference.tuned(record["hero_validation"], record["hero_test"])[1],
        reference.tuned(record["control_validation"], record["control_test"])[1],
    )


def record_has_room(my_record):
    record = my_record()
    control = chosen_rows(record)[1]
    results = [x for name in TABLES for row in record[name] for x in row]
    low, high = min(results), max(results)
    # a share, a percentage, or the negative of a loss
    best = 0 if high <= 0 else 1 if low >= 0 and high <= 1 else 100 if low >= 0 else None
    if best is None or high > best:
        return f"best: expected all results in 0 to 1, in 0 to 100 or at most 0, got {low:g} to {high:g}"
    if record["best"] != best:
        return f"best: expected {best}, the best possible score for results from {low:g} to {high:g}, got {record['best']:g}"
    needed = reference.median_and_range(control)[0] + record["margin"]
    if needed >= best:
        return f"margin: expected control and margin together below the best score {best}, got {needed:g}: true could not come out"
    if needed <= low:
        return f"margin: expected control and margin together above the lowest result {low:g}, got {needed:g}: false could not come out"
    return None


def record_obeys_the_rule(my_record):
    record = my_record()
    hero, control = chosen_rows(record)
    differences = [h - c for h, c in zip(hero, control, strict=True)]
    rule = reference.verdict(differences, record["margin"])
    if record["verdict"] != rule:
        return f"verdict: expected what the rule, at the level 0.1, says about the chosen test rows, got {record['verdict']!r}"
    return None


def agrees_with(record, draw):
    """One seed of the record, and one that it has not, are run again on both sides."""
    seed = record["seeds"][draw % len(record["seeds"])]
    results = [x for name in TABLES for row in record[name] for x in row if is_number(x)]
    near = 0.05 * (max(results) - min(results))
    new = 1 + max(record["seeds"]) + draw % 1000

    def again(my_run):
        fresh = {}
        for side in SIDES:
            best = reference.tuned(record[f"{side}_validation"], record[f"{side}_test"])[0]
            setting = record[f"{side}_settings"][best]
            call = f"my_run({record[side]!r}, {setting:g}, "
            for number in (seed, new):
                found = my_run(record[side], setting, number)
                if type(found) not in (list, tuple) or len(found) != 2:
                    return f"{call}{number}): expected two numbers, validation and test, got {str(found)[:60]}"
                if not all(map(is_number, found)):
                    return f"{call}{number}): expected two finite numbers, got {list(found)}"
                fresh[side, number] = list(found)
            where = record["seeds"].index(seed)
            reported = [record[f"{side}_{part}"][best][where] for part in ("validation", "test")]
            found = fresh[side, seed]
            for part, x, y in zip(("validation", "test"), reported, found, strict=True):
                if abs(x - y) > near:
                    return f"{call}{seed}): expected {x:g} on {part} as {side}_{part} reports, got {y:g}"
        if all(fresh[side, seed] == fresh[side, new] for side in SIDES):
            return (
                f"my_run: expected other results for seed {new} than for seed {seed}, got the same"
            )
        return None

    return properties.Property("a run made again agrees with the record", again, costly=True)


ENTRIES = properties.Property("the record has its entries", record_has_entries)
FORM = properties.Property("the record is complete", record_has_form)
FAIR = properties.Property("both sides had the same chances", record_is_fair)
ROOM = properties.Property("another verdict could have come out", record_has_room)
RULE = properties.Property("the verdict is that of the rule", record_obeys_the_rule)

# %% [markdown]
# ## 1. Median and range
#
# `median_and_range(values)` describes the results of several seeds: a tuple of the median, the lowest and the highest one.
#
# - `values` is a list of numbers in any order, at least one. With an even count the median is the mean of the two in the middle.
# - The list is not changed.
#
# By hand: `[0.9, 0.5, 0.6]` gives `(0.6, 0.5, 0.9)`; `[1.0, 8.0, 2.0, 4.0]` gives `(3.0, 1.0, 8.0)`.


# %% nbgrader={"grade_id": "median_and_range", "solution": true}
def median_and_range(values):
    ### BEGIN SOLUTION
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2, ordered[0], ordered[-1]  # low is high where the count is odd
    ### END SOLUTION


# %% nbgrader={"grade_id": "median_and_range-odd", "grade": true, "points": 1}
# Three seeds.
probe = probes(median_and_range=median_and_range)
probe.gives((0.6, 0.5, 0.9), [0.9, 0.5, 0.6])
probe.equals([0.9, 0.5, 0.6], via=the_list_afterwards)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(7).tolist())
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "median_and_range-even", "grade": true, "points": 1}
# Four seeds, and more.
probe = probes(median_and_range=median_and_range)
probe.gives((3.0, 1.0, 8.0), [1.0, 8.0, 2.0, 4.0])
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(6).tolist())
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Pairs
#
# `paired_differences(hero, control)` subtracts seed by seed.
#
# - Both are dictionaries from a seed to a result. They may be in different orders, and each may have seeds that the other lacks: these have no partner and are left out.
# - The result is a list of hero less control, in ascending order of the seeds.
#
# By hand: `{3: 0.9, 1: 0.5}` and `{1: 0.4, 2: 0.8, 3: 0.7}` have the seeds 1 and 3 in common: `[0.1, 0.2]`.


# %% nbgrader={"grade_id": "paired_differences", "solution": true}
def paired_differences(hero, control):
    ### BEGIN SOLUTION
    return [hero[seed] - control[seed] for seed in sorted(hero) if seed in control]
    ### END SOLUTION


# %% nbgrader={"grade_id": "paired_differences-same_order", "grade": true, "points": 1}
# The same seeds in the same order.
probe = probes(paired_differences=paired_differences)
probe.equals({0: 0.75, 1: 0.5, 2: 0.875}, {0: 0.5, 1: 0.625, 2: 0.8125})

# %% nbgrader={"grade_id": "paired_differences-mixed", "grade": true, "points": 2}
# Other orders, and seeds without a partner.
probe = probes(paired_differences=paired_differences)
probe.equals({3: 0.9, 1: 0.5}, {1: 0.4, 2: 0.8, 3: 0.7})
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 3. The sign test
#
# `sign_test(differences)` is the exact two-sided p: the chance of signs at least as lopsided as these, if plus and minus were equally likely.
#
# $$p = \min\left(1,\; 2 \sum_{i=0}^{k} \binom{n}{i} \Big/ 2^n\right)$$
#
# - $n$ counts the differences that are not 0, $k$ those of the rarer sign. Differences of exactly 0 are dropped.
# - Where nothing is left, $p$ is 1. The result is a number.
#
# By hand: five of five give $2/32 = 0.0625$, four of five $2(1 + 5)/32 = 0.375$.


# %% nbgrader={"grade_id": "sign_test", "solution": true} attn_course={"forbidden": ["import scipy"]}
def sign_test(differences):
    ### BEGIN SOLUTION
    plus = sum(d > 0 for d in differences)
    minus = sum(d < 0 for d in differences)
    n = plus + minus
    tail = sum(math.comb(n, i) for i in range(min(plus, minus) + 1))
    return min(1.0, 2 * tail / 2**n)
    ### END SOLUTION


# %% nbgrader={"grade_id": "sign_test-by_hand", "grade": true, "points": 1}
# Five of five, and four of five.
probe = probes(sign_test=sign_test)
probe.gives(0.0625, [0.2, 0.1, 0.3, 0.1, 0.4])
probe.gives(0.375, [0.2, -0.1, 0.3, 0.1, 0.4])

# %% nbgrader={"grade_id": "sign_test-ties", "grade": true, "points": 1}
# Differences of exactly 0.
probe = probes(sign_test=sign_test)
probe.gives(0.125, [0.2, 0.0, 0.3, 0.1, 0.4])
probe.gives(1.0, [0.0, 0.0, 0.0])

# %% nbgrader={"grade_id": "sign_test-counts", "grade": true, "points": 2}
# Other counts of either sign.
probe = probes(sign_test=sign_test)
probe.equals([-0.1, -0.2, 0.3, -0.4, -0.1, -0.3, -0.2])
probe.equals([0.1, -0.1, 0.2, -0.2])
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 4. The best of many
#
# `expected_best(values, count)` is how good the best of `count` runs is on average, if each is drawn at random, with replacement, from the results `values` of one model.
# With the values in ascending order, $x_1 \le \dots \le x_n$:
#
# $$\sum_{i=1}^{n} x_i \left[\Big(\frac{i}{n}\Big)^{c} - \Big(\frac{i-1}{n}\Big)^{c}\right]$$
#
# - $(i/n)^c$ is the chance that all $c$ draws are among the $i$ smallest. The result is a number.
#
# By hand: of two draws from 0 and 1 the best is 0 with a chance of $\frac14$: `expected_best([0.0, 1.0], 2)` is 0.75.


# %% nbgrader={"grade_id": "expected_best", "solution": true}
def expected_best(values, count):
    ### BEGIN SOLUTION
    n = len(values)
    total = 0.0
    for i, x in enumerate(sorted(values), start=1):
        total += x * ((i / n) ** count - ((i - 1) / n) ** count)
    return total
    ### END SOLUTION


# %% nbgrader={"grade_id": "expected_best-by_hand", "grade": true, "points": 1}
# Two draws from two results.
probe = probes(expected_best=expected_best)
probe.gives(0.75, [0.0, 1.0], 2)

# %% nbgrader={"grade_id": "expected_best-more", "grade": true, "points": 2}
# More results and more draws.
probe = probes(expected_best=expected_best)
probe.equals([0.5, 0.9, 0.25], 4)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 5. The rule
#
# `verdict(differences, margin, level=0.1)` judges the claim "the hero is better by more than the margin", by two sign tests.
# A test *decides* where its p is at most `level`; the more frequent sign then says on which side the differences lie.
#
# | against the margin | against 0 | result |
# |---|---|---|
# | above | | `"true"` |
# | below | above | `"partly"` |
# | below | not above | `"false"` |
# | not decided | | `"not settled"` |
#
# - Against the margin means: the signs of `d - margin`. The margin may be negative.
# - You may call your `sign_test`.
#
# By hand, margin 0.05: `[0.06, 0.1, 0.07, 0.2, 0.08]` is `"true"`, `[0.02] * 5` is `"partly"`, `[-0.01, 0.01, -0.02, 0.02, 0.01]` is `"false"`, and four seeds are `"not settled"` whatever they show.


# %% nbgrader={"grade_id": "verdict", "solution": true}
def verdict(differences, margin, level=0.1):
    ### BEGIN SOLUTION
    def side(of):
        moved = [d - of for d in differences]
        plus, minus = sum(d > 0 for d in moved), sum(d < 0 for d in moved)
        n = plus + minus
        tail = sum(math.comb(n, i) for i in range(min(plus, minus) + 1))
        if min(1.0, 2 * tail / 2**n) > level:
            return "open"
        return "above" if plus > minus else "below"

    if side(margin) == "open":
        return "not settled"
    if side(margin) == "above":
        return "true"
    return "partly" if side(0.0) == "above" else "false"
    ### END SOLUTION


# %% nbgrader={"grade_id": "verdict-by_hand", "grade": true, "points": 2}
# The four results of the text.
probe = probes(verdict=verdict)
probe.gives("true", [0.06, 0.1, 0.07, 0.2, 0.08], 0.05)
probe.gives("partly", [0.02, 0.02, 0.02, 0.02, 0.02], 0.05)
probe.gives("false", [-0.01, 0.01, -0.02, 0.02, 0.01], 0.05)
probe.gives("not settled", [0.3, 0.2, 0.4, 0.3], 0.05)

# %% nbgrader={"grade_id": "verdict-cases", "grade": true, "points": 3}
# Outliers, other margins, other levels.
probe = probes(verdict=verdict)
probe.gives("not settled", [0.9, 0.01, 0.02, 0.8, 0.03, 0.7], 0.05)
probe.gives("true", [0.01, -0.01, 0.0, 0.02, -0.01, 0.01], -0.02)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Repair: a comparison
#
# `broken_comparison` should compare hero and control fairly. Each table is a list with one row for each setting; a row is a list with one result for each seed. Column `i` of every table belongs to the same seed. The two sides need not have equally many settings.
# Each side should be taken at its own setting, the one with the best *median* on *validation*, and the result is the list of differences of the *test* results, seed by seed. Of settings that are equal the first one counts.
# It runs, and it makes the hero look good. It has four faults. Find them, and write `fixed_comparison`.


# %% nbgrader={"grade_id": "broken_comparison", "locked": true}
def broken_comparison(hero_validation, hero_test, control_validation, control_test):
    best = max(range(len(hero_test)), key=lambda i: max(hero_test[i]))
    hero = sorted(hero_test[best])
    control = sorted(control_test[0])
    return [h - c for h, c in zip(hero, control, strict=True)]


# %% nbgrader={"grade_id": "fixed_comparison", "solution": true}
def fixed_comparison(hero_validation, hero_test, control_validation, control_test):
    ### BEGIN SOLUTION
    def middle(row):
        ordered, half = sorted(row), len(row) // 2
        return ordered[half] if len(row) % 2 else (ordered[half - 1] + ordered[half]) / 2

    def chosen(validation, test):
        medians = [middle(row) for row in validation]
        return test[medians.index(max(medians))]

    hero = chosen(hero_validation, hero_test)
    control = chosen(control_validation, control_test)
    return [h - c for h, c in zip(hero, control, strict=True)]
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_comparison-one_setting", "grade": true, "points": 1}
# A single setting: nothing to choose.
probe = probes(fixed_comparison=fixed_comparison)
probe.equals([[0.5, 0.25, 0.75]], [[0.5, 0.125, 0.875]], [[0.5, 0.5, 0.5]], [[0.75, 0.25, 0.5]])

# %% nbgrader={"grade_id": "fixed_comparison-settings", "grade": true, "points": 3}
# Several settings on either side.
probe = probes(fixed_comparison=fixed_comparison)
probe.equals(
    [[0.5, 0.25, 0.75], [0.625, 0.625, 0.125]],
    [[0.5, 0.125, 0.875], [0.5, 0.75, 0.25]],
    [[0.25, 0.125, 0.875], [0.375, 0.625, 0.5]],
    [[0.75, 0.25, 0.5], [0.5, 0.375, 0.625]],
)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Write the test
#
# `check_verdict(candidate)` takes somebody's `verdict(differences, margin, level=0.1)` (contract in exercise 5) and returns `True` if it is right, `False` if it is wrong.
#
# Your test is tried on right answers, which it must accept, and on wrong ones; each wrong one that it rejects earns its share.
# Many wrong ones agree with the right one where all differences lie far on one side. Choose lists on which they differ: an outlier, a tie, one seed against the others, a negative margin, another level, too few seeds.
# A candidate may also raise an error: then it is wrong, and your test says `False`.


# %% nbgrader={"grade_id": "check_verdict", "solution": true}
def check_verdict(candidate):
    ### BEGIN SOLUTION
    cases = [
        ([0.06, 0.1, 0.07, 0.2, 0.08], 0.05, 0.1, "true"),
        ([0.02, 0.01, 0.03, 0.02, 0.04], 0.05, 0.1, "partly"),
        ([-0.01, 0.01, -0.02, 0.02, 0.01], 0.05, 0.1, "false"),
        ([-0.3, -0.2, -0.1, -0.4, -0.2], 0.05, 0.1, "false"),
        ([0.3, 0.2, 0.4, 0.3], 0.05, 0.1, "not settled"),
        ([0.9, 0.01, 0.02, 0.8, 0.03, 0.7], 0.05, 0.1, "not settled"),
        ([0.01, -0.01, 0.0, 0.02, -0.01, 0.01], -0.02, 0.1, "true"),
        ([-0.03, -0.05, -0.04, -0.1, -0.06], -0.02, 0.1, "false"),
        ([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, -0.9], 0.0, 0.1, "true"),
        ([0.0, 0.0, 0.1, 0.2, 0.3, 0.2], 0.0, 0.1, "not settled"),
        ([0.1, 0.2, 0.3, 0.2, 0.1], 0.0, 0.05, "not settled"),
        ([0.1, 0.2, 0.3, 0.2, 0.1], 0.0, 0.0625, "true"),
    ]
    for differences, margin, level, expected in cases:
        try:
            got = candidate(differences, margin, level)
        except Exception:
            return False
        if got != expected:
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_verdict-plain", "grade": true, "points": 1}
# A right one, and two that are plainly wrong.
probe = probes(check_verdict=check_verdict)
probe.judges(
    right=[reference.verdict],
    wrong={
        "always true": lambda differences, margin, level=0.1: "true",
        "the median against 0": lambda differences, margin, level=0.1: (
            "true" if sorted(differences)[len(differences) // 2] > 0 else "false"
        ),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_verdict-mutants", "grade": true, "points": 6}
# Wrong ones that are harder to see. (Hidden: which.)
probe = probes(check_verdict=check_verdict)
probe.judges(
    right=[reference.verdict],
    wrong={"always true": lambda differences, margin, level=0.1: "true"},
    points=6,
)


### BEGIN HIDDEN TESTS
def ruled(differences, margin, level=0.1, test=reference.sign_test, fewest=1):
    def side(of):
        moved = [d - of for d in differences]
        above = sum(d > 0 for d in moved) - sum(d < 0 for d in moved)
        return 0 if test(moved) > level else (above > 0) - (above < 0)

    if side(margin) == 0 or len(differences) < fewest:
        return "not settled"
    return "true" if side(margin) > 0 else "partly" if side(0.0) > 0 else "false"


def one_sided(differences):
    return reference.sign_test(differences) / 2


def with_ties(differences):
    return reference.sign_test([d if d != 0 else 1.0 for d in differences])


def renamed(**names):
    def wrong(differences, margin, level=0.1):
        found = ruled(differences, margin, level)
        return names.get(found.replace(" ", "_"), found)

    return wrong


def by_mean(differences, margin, level=0.1):
    found = ruled(differences, margin, level)
    mean = sum(differences) / len(differences)
    return found if found == "not settled" else "true" if mean > margin else found


def unanimous(differences, margin, level=0.1):
    found = ruled(differences, margin, level)
    mixed = len({d > margin for d in differences}) == 2
    return "not settled" if mixed else found


probe.judges(
    right=[reference.verdict, ruled],
    wrong={
        "one-sided": lambda d, margin, level=0.1: ruled(d, margin, level, one_sided),
        "ties count as plus": lambda d, margin, level=0.1: ruled(d, margin, level, with_ties),
        "the level is always 0.1": lambda d, margin, level=0.1: ruled(d, margin),
        "p must be below the level": lambda d, margin, level=0.1: ruled(d, margin, level - 1e-9),
        "partly is called false": renamed(partly="false"),
        "not settled is called false": renamed(not_settled="false"),
        "the margin's sign is dropped": lambda d, margin, level=0.1: ruled(d, abs(margin), level),
        "sizes in place of signs": lambda d, margin, level=0.1: ruled(
            [sum(d) / len(d)] * len(d), margin, level
        ),
        "all seeds must agree": unanimous,
        "ten seeds at least": lambda d, margin, level=0.1: ruled(d, margin, level, fewest=10),
    },
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. The record of your own claim
#
# Take a claim: one of the list in the chapter, one from a paper, or one that you have met elsewhere.
# Write the plan *first*. Write `my_run`, make all runs with it, and let `my_record()` return what came out, as a dictionary of plain values. Reckon with four to six hours for exercises 8 and 9.
#
# `my_run(way, setting, seed)` makes one run: it trains one model and returns two numbers, its result on validation and on test data.
#
# - `way` is the text under `hero` or `control` in your record, `setting` a number of the grid, `seed` a whole number from which *all* randomness of the run comes.
# - Same arguments, same result. It reads no file, and trains for at most 5 seconds on one thread (the grader stops it after 10): choose a small task.
#
# The checker draws one of your seeds, runs it again on both sides at the chosen settings, and compares with your record, to within 5 % of the range of your results. It also runs a seed that is not in your record.
#
# | entry | what it is |
# |---|---|
# | `claim` | one sentence that names its margin |
# | `hero`, `control` | text: the two ways, as `my_run` knows them |
# | `seeds` | at least five different whole numbers, the same for both sides |
# | `hero_settings`, `control_settings` | at least three settings each (such as learning rates), equally many, ascending, from 0.000001 to 100, each at most three times the one before; the best lies inside |
# | `hero_validation`, `control_validation` | a list for each setting, with one result for each seed |
# | `hero_test`, `control_test` | likewise, on data that chose nothing |
# | `hero_steps`, `control_steps` | training steps of one run: equal, at least 1 |
# | `margin` | of the claim; negative for "no worse than" |
# | `best` | the best possible score: 1 for a share, 100 for a percentage, 0 for the negative of a loss |
# | `verdict` | what the rule of exercise 5 says, at the level 0.1, about the test rows at the settings with the best validation medians |
#
# Larger numbers are better: take the negative of a loss. No result may be NaN: a run that diverged counts, with the score of a guess. And leave room both ways: the median of the control plus the margin lies below `best` and above the lowest result of the record.
# If the best setting is the first or the last, add a setting there, on both sides.
# The checks are functions of the first cell: read them. They catch oversights and plain inventions. Whether the experiment was a good one no program can tell; that is graded in your report.


# %% nbgrader={"grade_id": "my_run", "solution": true}
def my_run(way, setting, seed):
    ### BEGIN SOLUTION
    start = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, 32, 4, generator=start)  # of 32 names
    value = torch.randn(8, 8, generator=start)  # of 8 numbers, read as logits
    factor = torch.tensor(10.0 if way == "factor 10" else 1.0)
    tables = [query, key, value, factor][: 4 if way == "learned factor" else 3]
    for table in tables:
        table.requires_grad_()

    def draw(count, generator):
        names = torch.rand(count, 32, generator=generator).argsort(-1)[:, :16]
        return names, torch.randint(8, (count, 16), generator=generator)

    def logits(names, numbers):
        q, k = query[names[:, :1]], key[names]  # the name at position 0 is asked for
        if way == "scaled dot product":
            q = q / 2
        else:
            q, k = factor * F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        return ((q @ k.mT).softmax(-1) @ value[numbers])[:, 0]

    steps = 60
    optimizer = torch.optim.Adam(tables, lr=setting)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    for _ in range(steps):
        names, numbers = draw(64, start)
        loss = F.cross_entropy(logits(names, numbers), numbers[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    found = []
    for shift in (1000, 2000):  # validation, test
        names, numbers = draw(500, torch.Generator().manual_seed(seed + shift))
        with torch.no_grad():
            hits = logits(names, numbers).argmax(-1) == numbers[:, 0]
        found.append(hits.double().mean().item())
    return found
    ### END SOLUTION


# %% nbgrader={"grade_id": "my_record", "solution": true}
def my_record():
    ### BEGIN SOLUTION
    return {
        "claim": "On cosines a fixed factor of 10 loses at most 0.02 of accuracy against a learned one.",
        "hero": "factor 10",
        "control": "learned factor",
        "seeds": [0, 1, 2, 3, 4, 5],
        "hero_settings": [0.09, 0.27, 0.81, 2.43],
        "control_settings": [0.09, 0.27, 0.81, 2.43],
        "hero_validation": [
            [0.5, 0.392, 0.564, 0.234, 0.298, 0.366],
            [0.392, 0.434, 0.548, 0.53, 0.416, 0.47],
            [0.592, 0.64, 0.552, 0.718, 0.476, 0.494],
            [0.532, 0.364, 0.472, 0.512, 0.366, 0.406],
        ],
        "control_validation": [
            [0.83, 0.392, 0.294, 0.292, 0.458, 0.434],
            [1.0, 0.966, 0.978, 0.976, 0.992, 1.0],
            [0.952, 0.952, 0.906, 0.902, 0.956, 0.874],
            [0.94, 0.848, 0.942, 0.918, 0.806, 0.982],
        ],
        "hero_test": [
            [0.466, 0.366, 0.564, 0.238, 0.286, 0.386],
            [0.344, 0.422, 0.56, 0.524, 0.48, 0.446],
            [0.594, 0.634, 0.528, 0.726, 0.486, 0.464],
            [0.546, 0.4, 0.492, 0.512, 0.436, 0.382],
        ],
        "control_test": [
            [0.77, 0.394, 0.33, 0.304, 0.498, 0.42],
            [1.0, 0.974, 0.974, 0.964, 1.0, 1.0],
            [0.936, 0.942, 0.864, 0.916, 0.97, 0.926],
            [0.956, 0.892, 0.962, 0.914, 0.844, 0.968],
        ],
        "hero_steps": 60,
        "control_steps": 60,
        "margin": -0.02,
        "best": 1.0,
        "verdict": "false",
    }
    ### END SOLUTION


# %% nbgrader={"grade_id": "my_record-form", "grade": true, "points": 1}
# Every entry is there, and the tables fit the settings and the seeds.
probe = probes(my_record=my_record)
probe.holds(FORM)

# %% nbgrader={"grade_id": "my_record-fair", "grade": true, "points": 2}
# Enough seeds, and the same budget on both sides.
probe = probes(my_record=my_record)
probe.holds(FORM)
probe.holds(FAIR)

# %% nbgrader={"grade_id": "my_record-room", "grade": true, "points": 1}
# Another verdict could have come out.
probe = probes(my_record=my_record)
probe.holds(FORM)
probe.holds(ROOM)

# %% nbgrader={"grade_id": "my_record-verdict", "grade": true, "points": 2}
# The verdict is what the rule says about these numbers.
probe = probes(my_record=my_record)
probe.holds(FORM)
probe.holds(RULE)

# %% nbgrader={"grade_id": "my_run-again", "grade": true, "points": 2}
# One seed, drawn here, is run again.
probe = probes(my_record=my_record)
probe.holds(ENTRIES)
probe = probes(my_run=my_run)
probe.holds(agrees_with(my_record(), probe.seed))

# %% [markdown]
# ## 9. Report
#
# Write the report of your claim, about 300 words, in the six parts of the chapter: **claim** (and who tells it), **what would prove it wrong**, **set-up** (what differs between hero and control, budget of each), **rule** (measure, margin, level, seeds, and when they were fixed), **result** (a figure with every seed; one word), **limits** (where it holds, what was not tried, what you changed after the first numbers).
#
# | points | 0 | 1 | 2 |
# |---|---|---|---|
# | claim | no number | a number, no measure or task | measure, task and number |
# | control | differs in several things | differs in one, other controls missing | differs in one, and a control that must fail or succeed |
# | tuning | one setting | equal settings on both sides | equal budget, chosen on validation |
# | seeds and figure | a mean | seeds shown, not paired | every seed, paired |
# | verdict | stronger than the rule | the rule, no limits | the rule, and limits that matter |
# | honesty | what was changed is not said | said | said, and repeated with new seeds |

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 12}
# **Claim.** "On cosines a fixed factor of 10 loses at most 0.02 against a learned one", in accuracy, on look-up of one name among 16. One hears it from people who find the learned factor a needless parameter.
# **What would prove it wrong.** Most seeds lose more than 0.02 at the best rate of each side.
# **Set-up.** The model of the chapter, 4 entries, 60 steps, so that the learned factor is not quite at the ceiling. Hero and control start from the same tables and see the same batches; only the factor differs, fixed at 10 or learned from 1. Three learning rates each. The factor 1 (about 0.5 right) and the scaled dot product (about 0.97) are further controls: the first must fail, the second succeed.
# **Rule.** Accuracy on 500 test sequences, margin −0.02, level 0.1, seeds 0 to 5, fixed before the first run.
# **Result.** All six differences are below −0.3: *false*. (Figure: one line for each seed over the four ways.)
# **Limits.** 60 steps are few, and both sides do best at the largest rate that was tried, so that a wider grid may change the distance. A factor that starts at 10 and is learned was not tried, so the start rather than the learning may be what helps. Sixty steps were chosen before the first run, because the chapter's 150 leave no room at the top; nothing was changed afterwards, and nothing repeated with new seeds.
