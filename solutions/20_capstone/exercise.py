# %% [markdown]
# # Exercises: settle a claim
#
# You write the instruments of the chapter, then apply them to a claim of your own.
#
# Results are plain numbers, one per seed; larger is better. `hero` is the method that the claim favours, `control` the one that it is compared with.
# All arguments and results are numbers, lists and dictionaries.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.

# %% nbgrader={"grade_id": "setup", "locked": true}
import math

import torch
from torch.nn import functional as F

from attn_course import reference
from attn_course.probes import load_oracles

oracles, probes = load_oracles("20_capstone")


# %% [markdown]
# ## 1. Pairs
#
# `paired_differences(hero, control)` subtracts seed by seed.
#
# - Both are dictionaries from seeds to results. Their orders may differ, and each may have seeds that the other lacks: leave those out.
# - The result is a list of hero minus control, in ascending order of the seeds.
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
# ## 2. The sign test
#
# `sign_test(differences)` is the exact two-sided p: the probability of signs at least as one-sided as these if plus and minus are equally likely.
#
# $$p = \min\left(1,\; 2 \sum_{i=0}^{k} \binom{n}{i} \Big/ 2^n\right)$$
#
# - $n$ counts the nonzero differences, and $k$ those of the rarer sign. Differences of exactly 0 are dropped.
# - If none is left, $p$ is 1. The result is a number.
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
# ## 3. The rule
#
# `verdict(differences, margin, level=0.1)` judges the claim "the hero is better by more than the margin" with two sign tests.
# A test *decides* if its p is at most `level`. The more frequent sign then gives the side of the differences.
#
# | against the margin | against 0 | result |
# |---|---|---|
# | above | | `"true"` |
# | below | above | `"partly"` |
# | below | not above | `"false"` |
# | not decided | | `"not settled"` |
#
# - The test against the margin uses the signs of `d - margin`. The margin may be negative.
# - You may call your `sign_test`.
#
# By hand, margin 0.05: `[0.06, 0.1, 0.07, 0.2, 0.08]` is `"true"`, `[0.02] * 5` is `"partly"`, `[-0.01, 0.01, -0.02, 0.02, 0.01]` is `"false"`, and four seeds are always `"not settled"` at the level 0.1.


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
# ## Look
#
# Your rule on invented results of five seeds: each dot is a difference; the lines are 0 and the margin of the claim. Change the gains, or remove a seed: which tests still decide?

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

control = {1: 0.71, 2: 0.73, 3: 0.70, 4: 0.72, 5: 0.74}
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
for row, gain in enumerate((-0.02, 0.03, 0.08)):
    hero = {seed: result + gain * (1 + seed / 10) for seed, result in control.items()}
    differences = paired_differences(hero, control)
    axis.plot(differences, [row] * len(differences), "o")
    axis.text(0.13, row, f"p = {sign_test(differences)}: {verdict(differences, 0.05)}")
axis.vlines([0, 0.05], -0.5, 2.5)
axis.set(xlim=(-0.05, 0.2), yticks=[], xlabel="hero less control")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. The best of many
#
# `expected_best(values, count)` is the expected best of `count` runs, each drawn at random, with replacement, from the results `values` of one model.
# With the values in ascending order, $x_1 \le \dots \le x_n$:
#
# $$\sum_{i=1}^{n} x_i \left[\Big(\frac{i}{n}\Big)^{c} - \Big(\frac{i-1}{n}\Big)^{c}\right]$$
#
# - $(i/n)^c$ is the probability that all $c$ draws are among the $i$ smallest. The result is a number.
# - `values` is not changed.
#
# By hand: the best of two draws from 0 and 1 is 0 with probability $\frac14$: `expected_best([0.0, 1.0], 2)` is 0.75.


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
# More results and more draws; the caller's list is not changed.
probe = probes(expected_best=expected_best)
probe.equals([0.5, 0.9, 0.25], 4)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Repair: a comparison
#
# `broken_comparison` should compare hero and control fairly. Each table has one row per setting, and each row one result per seed. Column `i` of every table belongs to the same seed. The two sides may have different numbers of settings.
# For each side, choose the setting with its best *median* on *validation*; of equal settings the first. The median of an even number of results is the mean of the middle two. The result is the list of differences of the *test* results, seed by seed.
# The code runs, but it favours the hero. It has four faults. Find them and write `fixed_comparison`.


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
# A single setting.
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
# ## 6. Write the test
#
# `check_verdict(candidate)` takes a candidate for `verdict(differences, margin, level=0.1)` and returns `True` if it keeps the contract of exercise 3, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Many wrong answers are right if all differences are clearly on one side. Choose lists on which they differ: an outlier, a tie, one seed against the others, a negative margin, another level, too few seeds.
# A candidate that raises an error is wrong.


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
# A right candidate, and two that are clearly wrong.
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
# Wrong candidates that are harder to detect. (Which ones is hidden.)
probe = probes(check_verdict=check_verdict)
probe.judges(
    right=[reference.verdict],
    wrong={"always true": lambda differences, margin, level=0.1: "true"},
    points=6,
)


### BEGIN HIDDEN TESTS
HARD = (
    *("one side only", "a tie counts as a plus", "the level is always 0.1", "the median alone"),
    *("p must be below the level", "partly is called false", "not settled is called false"),
    *("the sign of the margin is dropped", "all seeds must agree", "five seeds are too few"),
)
rules = probe.catalogue.of("verdict")
probe.judges(
    right=[reference.verdict, rules[0].right],
    wrong={one.name: one.function for one in rules if one.name in HARD},
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 7. The record of your own claim
#
# Choose a claim: from the list in the chapter, from a paper, or another one.
# Write the plan *first*. Write `my_run`, make all runs with it, and return the results from `my_record()` as a dictionary of plain values. Exercises 7 and 8 take about four to six hours.
#
# `my_run(way, setting, seed)` makes one run: it trains one model and returns two numbers, its result on validation and on test data.
#
# - `way` is the text under `hero` or `control` in your record, `setting` a number of the grid, `seed` an integer that determines *all* randomness of the run.
# - The same arguments give the same result. It reads no file and trains for at most 5 seconds on one thread (the grader stops it after 10): choose a small task.
#
# The test draws one of your seeds, runs it again on both sides at the chosen settings, and compares the results with your record, to within 5 % of their range. It also runs a seed that is not in your record.
#
# | entry | what it is |
# |---|---|
# | `claim` | one sentence that names its margin |
# | `hero`, `control` | text: the two ways, as `my_run` knows them |
# | `seeds` | at least five different nonnegative integers, the same for both sides |
# | `hero_settings`, `control_settings` | settings (such as learning rates): as many on both sides, at least three, ascending, from 0.000001 to 100, each at most three times the previous one; the best is neither the first nor the last |
# | `hero_validation`, `control_validation` | a list per setting, with one result per seed |
# | `hero_test`, `control_test` | likewise, on data not used for any choice |
# | `hero_steps`, `control_steps` | training steps of one run: equal, at least 1 |
# | `margin` | of the claim; negative for "no worse than" |
# | `best` | the best possible score: 1 for a share, 100 for a percentage, 0 for the negative of a loss |
# | `verdict` | the result of the rule of exercise 3, at level 0.1, for the test rows at the settings with the best validation medians |
#
# Larger numbers are better: take the negative of a loss. No result may be NaN: a diverged run counts, with the score of a random guess. Either verdict must be possible: the median of the control plus the margin must be below `best` and above the lowest result of the record.
# If the best setting is the first or the last, add a setting there, on both sides.
# The checks find oversights and inventions. The report is graded for the quality of the experiment.


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
        """claim""": "On cosines a fixed factor of 10 loses at most 0.02 of accuracy against a learned one.",
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
probe.holds(oracles.FORM)

# %% nbgrader={"grade_id": "my_record-fair", "grade": true, "points": 2}
# Enough seeds, and the same budget on both sides.
probe = probes(my_record=my_record)
probe.holds(oracles.FORM)
probe.holds(oracles.FAIR)

# %% nbgrader={"grade_id": "my_record-room", "grade": true, "points": 1}
# Another verdict was possible.
probe = probes(my_record=my_record)
probe.holds(oracles.FORM)
probe.holds(oracles.ROOM)

# %% nbgrader={"grade_id": "my_record-verdict", "grade": true, "points": 2}
# The verdict is that of the rule for these numbers.
probe = probes(my_record=my_record)
probe.holds(oracles.FORM)
probe.holds(oracles.RULE)

# %% nbgrader={"grade_id": "my_run-again", "grade": true, "points": 2}
# One seed, drawn here, is run again.
probe = probes(my_record=my_record)
probe.holds(oracles.ENTRIES)
probe = probes(my_run=my_run)
probe.holds(oracles.agrees_with(my_record(), probe.seed))

# %% [markdown]
# ## 8. Report
#
# Write the report of your claim, about 300 words, in the six parts of the chapter: **claim** (and who makes it), **what would prove it wrong**, **set-up** (what differs between hero and control, budget of each), **rule** (measure, margin, level, seeds, and when they were fixed), **result** (a figure with every seed; one word), **limits** (where it holds, what was not tried, what you changed after the first numbers).
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
# **Claim.** "On cosines a fixed factor of 10 loses at most 0.02 against a learned one", in accuracy, on look-up of one name among 16. Its proponents consider the learned factor an unnecessary parameter.
# **What would prove it wrong.** Most seeds lose more than 0.02 at the best rate of each side.
# **Set-up.** The model of the chapter, E = 4, 60 steps, so that the learned factor is not quite at the ceiling. Hero and control start from the same tables and use the same batches; only the factor differs, fixed at 10 or learned from 1. Three learning rates each. The factor 1 (about 0.5 right) and the scaled dot product (about 0.97) are further controls: the first must fail, the second succeed.
# **Rule.** Accuracy on 500 test sequences, margin −0.02, level 0.1, seeds 0 to 5, fixed before the first run.
# **Result.** All six differences are below −0.3: *false*. (Figure: one line for each seed over the four ways.)
# **Limits.** 60 steps are few, and both sides do best at the largest tried rate, so a wider grid may change the difference. A learned factor that starts at 10 was not tried, so the start rather than the learning may help. Sixty steps were chosen before the first run, because the chapter's 150 leave no room at the top; nothing was changed afterwards, and nothing was repeated with new seeds.
