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
import math

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


def is_number(x):
    return type(x) in (int, float) and math.isfinite(x)


def record_has_form(my_record):
    record = my_record()
    if type(record) is not dict:
        return "expected a dictionary"
    names = ("claim", "seeds", *SETTINGS, *TABLES, *NUMBERS, "verdict")
    lacking = [name for name in names if name not in record]
    if lacking:
        return f"there is no entry {lacking[0]!r}"
    if type(record["claim"]) is not str or not any(c.isdigit() for c in record["claim"]):
        return "the claim is not a sentence with a number in it"
    if not all(is_number(record[name]) for name in NUMBERS):
        return f"one of {', '.join(NUMBERS)} is not a finite number"
    for name in ("seeds", *SETTINGS):
        if type(record[name]) is not list:
            return f"{name} is not a list"
    for name in TABLES:
        table, settings = record[name], record[f"{name.partition('_')[0]}_settings"]
        if type(table) is not list or not all(type(row) is list for row in table):
            return f"{name} is not a list of lists"
        if len(table) != len(settings):
            return f"{name} has {len(table)} rows for {len(settings)} settings"
        if any(len(row) != len(record["seeds"]) for row in table):
            return f"{name} has a row that does not hold one number for each seed"
        if not all(is_number(x) for row in table for x in row):
            return f"{name} holds something that is not a finite number"
    return None


def record_is_fair(my_record):
    record = my_record()
    if len(record["seeds"]) < 5:
        return f"there are {len(record['seeds'])} seeds, and five is the least"
    if any(type(s) is not int for s in record["seeds"]) or len(set(record["seeds"])) < len(
        record["seeds"]
    ):
        return "the seeds are not different whole numbers"
    for name in SETTINGS:
        if len({str(setting) for setting in record[name]}) < 3:
            return f"{name} names fewer than three different settings"
    if len(record["hero_settings"]) != len(record["control_settings"]):
        return "one side was tuned over more settings than the other"
    if record["hero_steps"] != record["control_steps"]:
        return "one side was trained for more steps than the other"
    for side in ("hero", "control"):
        if record[f"{side}_validation"] == record[f"{side}_test"]:
            return f"the test results of the {side} are its validation results"
    return None


def chosen_rows(record):
    return (
        reference.tuned(record["hero_validation"], record["hero_test"])[1],
        reference.tuned(record["control_validation"], record["control_test"])[1],
    )


def record_has_room(my_record):
    record = my_record()
    hero, control = chosen_rows(record)
    if max(max(row) for name in TABLES for row in record[name]) > record["best"]:
        return "a result is above what is said to be the best possible score"
    if reference.median_and_range(control)[0] + record["margin"] > record["best"]:
        return "the control and the margin are together above the best possible score"
    if len(set(hero + control)) == 1:
        return "all chosen results are equal, so that no seed makes any difference"
    return None


def record_obeys_the_rule(my_record):
    record = my_record()
    hero, control = chosen_rows(record)
    differences = [h - c for h, c in zip(hero, control, strict=True)]
    if record["verdict"] != reference.verdict(differences, record["margin"]):
        return "the verdict is not what the rule, at the level 0.1, says about the chosen rows"
    return None


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
# Take a claim: one of the list in the chapter, one from a paper, or one that you have told others.
# Write the plan *first*, run it, and let `my_record()` return what came out, as a dictionary of plain values. Paste the numbers in; the training itself stays in a notebook of yours.
#
# | entry | what it is |
# |---|---|
# | `claim` | one sentence with a number in it |
# | `seeds` | at least five different whole numbers, the same for both sides |
# | `hero_settings`, `control_settings` | lists of at least three different settings each, equally many |
# | `hero_validation`, `control_validation` | a list for each setting, with one result for each seed |
# | `hero_test`, `control_test` | likewise, on data that chose nothing |
# | `hero_steps`, `control_steps` | training steps of one run: equal |
# | `margin`, `best` | of the claim; the best possible score |
# | `verdict` | what the rule of exercise 5 says, at the level 0.1, about the test rows at the settings with the best validation medians |
#
# Larger numbers are better: take the negative of a loss (then `best` is 0). No result may be NaN: a run that diverged counts, with the score of a guess. And leave room: the median of the control, plus the margin, must not be above `best`.
# The checks are functions of the first cell: read them. Whether the experiment was a good one no program can tell; that is graded in your report.


# %% nbgrader={"grade_id": "my_record", "solution": true}
def my_record():
    ### BEGIN SOLUTION
    return {
        "claim": "On cosines a fixed factor of 10 loses at most 0.02 against a learned one.",
        "seeds": [0, 1, 2, 3, 4, 5],
        "hero_settings": [0.03, 0.1, 0.3],
        "control_settings": [0.03, 0.1, 0.3],
        "hero_validation": [
            [0.338, 0.144, 0.156, 0.134, 0.154, 0.152],
            [0.504, 0.404, 0.55, 0.32, 0.316, 0.422],
            [0.426, 0.446, 0.578, 0.582, 0.384, 0.534],
        ],
        "control_validation": [
            [0.198, 0.166, 0.132, 0.13, 0.166, 0.158],
            [0.874, 0.47, 0.386, 0.342, 0.562, 0.536],
            [1.0, 0.972, 0.98, 0.972, 1.0, 1.0],
        ],
        "hero_test": [
            [0.322, 0.146, 0.142, 0.124, 0.192, 0.132],
            [0.478, 0.38, 0.534, 0.324, 0.314, 0.432],
            [0.368, 0.438, 0.536, 0.608, 0.462, 0.47],
        ],
        "control_test": [
            [0.19, 0.16, 0.13, 0.138, 0.17, 0.164],
            [0.848, 0.462, 0.44, 0.346, 0.606, 0.536],
            [1.0, 0.978, 0.972, 0.964, 1.0, 1.0],
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
# No ceiling.
probe = probes(my_record=my_record)
probe.holds(FORM)
probe.holds(ROOM)

# %% nbgrader={"grade_id": "my_record-verdict", "grade": true, "points": 2}
# The verdict is what the rule says about these numbers.
probe = probes(my_record=my_record)
probe.holds(FORM)
probe.holds(RULE)

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
