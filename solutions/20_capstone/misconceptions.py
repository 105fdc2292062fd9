"""Wrong answers on the way to a verdict: name, message, the tests they fail."""

import math
from statistics import mean, median

import torch
from torch.nn import functional as F

from attn_course.probes import WrongAnswers, call, witnesses

# --- paired_differences ------------------------------------------------------------------------


def common(hero, control):
    return [seed for seed in hero if seed in control]


def subtract(h, c):
    return h - c


def paired(
    hero, control,
    *, seeds=common, order=sorted, partner=lambda control, seed: control[seed], difference=subtract,
):  # fmt: skip
    return [difference(hero[s], partner(control, s)) for s in order(seeds(hero, control))]


pairs = WrongAnswers("paired_differences", tests=("same_order", "mixed"), right=paired)


@witnesses(of="paired_differences")
def paired_calls(draw):
    for hero, control in (
        ((3, 1, 2), (1, 2, 3)),
        ((5, 0, 2, 7), (2, 7, 0, 4)),
        ((1, 2, 3, 4), (9, 4, 2, 1)),
        ((4, 6, 5), (6, 5, 4)),
    ):
        yield call(
            dict(zip(hero, draw.normal(len(hero)).tolist(), strict=True)),
            dict(zip(control, draw.normal(len(control)).tolist(), strict=True)),
        )


pairs.fault(
    "control less hero",
    """You take the hero from the control. A hero that is better would come out negative.""",
    difference=lambda h, c: c - h,
)
pairs.fault(
    "sizes without signs",
    """You drop the sign. Which side is ahead is what the whole test is about.""",
    difference=lambda h, c: abs(h - c),
)
pairs.fault(
    "relative differences",
    """You divide by the result of the control. Asked is the difference itself; a margin of 0.05 means
    0.05 of accuracy, not a twentieth of it.""",
    difference=lambda h, c: (h - c) / c,
)
pairs.fault(
    "in the order of the file",
    """Your pairs are right, and they stand in the order in which the hero's seeds happen to come. Asked
    is ascending order.""",
    fails=("mixed",),
    order=list,
)
pairs.fault(
    "a missing partner counts as 0",
    """Where the control lacks a seed you take 0 for its result. A run that was never made is not a run
    that scored nothing: a seed without a partner is left out.""",
    fails=("mixed",),
    seeds=lambda hero, control: list(hero),
    partner=lambda control, seed: control.get(seed, 0.0),
)
pairs.fault(
    "a missing partner is replaced by the mean",
    """Where the control lacks a seed you take its mean. A seed without a partner makes no pair: it is
    left out.""",
    fails=("mixed",),
    seeds=lambda hero, control: list(hero),
    partner=lambda control, seed: control.get(seed, mean(control.values())),
)
pairs.fault(
    "descending seeds",
    """Your pairs are right, and they stand with the largest seed first. Asked is ascending order.""",
    order=lambda seeds: sorted(seeds, reverse=True),
)


@pairs("paired by place", fails=("mixed",))
def paired_by_place(hero, control):
    """You pair the first with the first and the second with the second, whatever their seeds are.
    Then the differences hold what seeds do. The key of a result says to whom it belongs.
    """
    return [h - c for h, c in zip(hero.values(), control.values(), strict=False)]


@pairs("everybody against the mean of the control")
def paired_with_mean(hero, control):
    """You subtract the control's mean from every result of the hero. What a seed does to both sides
    is then still there; subtract the result of the same seed.
    """
    return [hero[s] - mean(control.values()) for s in sorted(hero) if s in control]


# --- sign_test ---------------------------------------------------------------------------------


def counts(differences):
    return sum(d > 0 for d in differences), sum(d < 0 for d in differences)


def tail_of(n, k):
    return sum(math.comb(n, i) for i in range(k + 1))


def signed(
    differences,
    *, count=counts, rarer=min, tail=tail_of, sides=lambda share: 2 * share,
    cap=lambda p: min(1.0, p), seeds=lambda differences, plus, minus: plus + minus,
):  # fmt: skip
    plus, minus = count(differences)
    n = seeds(differences, plus, minus)
    return cap(sides(tail(n, rarer(plus, minus)) / 2**n))


signs = WrongAnswers("sign_test", tests=("by_hand", "ties", "counts"), right=signed)


@witnesses(of="sign_test")
def sign_calls(draw):
    for pattern in ("+++++-", "--+----", "++--", "+++0+++-", "--0-0-+", "++++++++-+-+", "00", "+"):
        size = (draw.uniform(len(pattern)) + 0.1).tolist()
        sign = [{"+": 1.0, "-": -1.0, "0": 0.0}[mark] for mark in pattern]
        yield call([a * b for a, b in zip(size, sign, strict=True)])


signs.fault(
    "one side only",
    """Your p counts one direction. Had all signs been the other way, you would have reported that, too:
    both directions count.""",
    sides=lambda share: share,
)
signs.fault(
    "above one",
    """Your p can be above 1, as it is when there are as many plus as minus. Where both tails meet in the
    middle the sum counts it twice: 1 is the most.""",
    fails=("ties", "counts"),
    cap=lambda p: p,
)
signs.fault(
    "only what was seen",
    """You count the ways to get exactly these signs. What is more lopsided still would have convinced
    you as well: the sum runs from 0 to the count of the rarer sign.""",
    fails=("by_hand", "counts"),
    tail=math.comb,
)
signs.fault(
    "the more frequent sign",
    """You sum up to the count of the more frequent sign, which is nearly everything. The tail ends at
    the rarer one.""",
    rarer=max,
)
signs.fault(
    "a tie counts as a minus",
    """You count a difference of exactly 0 against the hero. It speaks for neither side and is dropped,
    from the number of seeds as well.""",
    fails=("ties", "counts"),
    count=lambda d: (sum(x > 0 for x in d), sum(x <= 0 for x in d)),
)
signs.fault(
    "a tie counts as a plus",
    """You count a difference of exactly 0 for the hero. It speaks for neither side and is dropped, from
    the number of seeds as well.""",
    fails=("ties", "counts"),
    count=lambda d: (sum(x >= 0 for x in d), sum(x < 0 for x in d)),
)
signs.fault(
    "the tail ends too early",
    """Your sum stops before the count of the rarer sign. What was seen belongs to what is at least as
    lopsided.""",
    tail=lambda n, k: tail_of(n, k - 1),
)
signs.fault(
    "the tail ends too late",
    """Your sum goes one count beyond the rarer sign: it includes what is less lopsided than what was
    seen.""",
    tail=lambda n, k: tail_of(n, k + 1),
    fails=("by_hand", "ties", "counts"),
)


@signs("a bell in place of the count", fails=("by_hand", "ties", "counts"))
def sign_normal(differences):
    """You take the normal approximation. With five seeds it is far from the exact number, and the
    exact one is a sum of a few binomials.
    """
    plus, minus = counts(differences)
    n = plus + minus
    return 1.0 if n == 0 else math.erfc(abs(plus - minus) / math.sqrt(2 * n))


signs.fault(
    "the number of seeds keeps its ties",
    """You drop ties from the signs and leave them in the number of seeds. They are dropped from
    both.""",
    fails=("ties", "counts"),
    seeds=lambda differences, plus, minus: len(differences),
)


# --- expected_best -----------------------------------------------------------------------------


def chances(n, count):
    return [(i / n) ** count - ((i - 1) / n) ** count for i in range(1, n + 1)]


def lucky(values, count, *, order=sorted, weigh=chances, of=lambda count: count):
    return sum(x * w for x, w in zip(order(values), weigh(len(values), of(count)), strict=True))


best = WrongAnswers("expected_best", tests=("by_hand", "more"), right=lucky)


@witnesses(of="expected_best")
def best_calls(draw):
    for size, count in ((3, 4), (5, 2), (4, 13), (6, 3), (2, 5)):
        yield call(draw.normal(size).tolist(), count)


best.fault(
    "the values as they stand",
    """You weigh the values in the order in which they come. The weights belong to them in ascending
    order: the largest value has the largest one.""",
    fails=("more",),
    order=list,
)
best.fault(
    "descending",
    """You sort the values the wrong way round, so that the largest weight goes to the smallest value:
    the worst of many, not the best.""",
    order=lambda values: sorted(values, reverse=True),
)
best.fault(
    "one draw too few",
    """Your power is one too small. With c draws all of them are among the i smallest with a chance of
    (i/n)^c.""",
    of=lambda count: count - 1,
)
best.fault(
    "one draw too many",
    """Your power is one too large. With c draws all of them are among the i smallest with a chance of
    (i/n)^c.""",
    of=lambda count: count + 1,
)
best.fault(
    "every value equally likely",
    """You return the mean. The best of several draws is more often one of the large values.""",
    weigh=lambda n, count: [1 / n] * n,
)
best.fault(
    "the largest of all",
    """You return the largest value. It need not be among the draws.""",
    weigh=lambda n, count: [0.0] * (n - 1) + [1.0],
)
best.fault(
    "chances that do not sum to one",
    """You weigh with the chance that all draws are among the i smallest. That one contains the smaller
    cases: take away the chance for i − 1, so that the weights sum to one.""",
    weigh=lambda n, count: [(i / n) ** count for i in range(1, n + 1)],
)
best.fault(
    "without the lowest value",
    """You count the values from 0: your chances belong to the neighbour. Of n values the largest has
    i = n.""",
    weigh=lambda n, count: [(i / n) ** count - (max(i - 1, 0) / n) ** count for i in range(n)],
)

best.fault(
    "places counted from 0",
    """Your i runs from 0 to n - 1, so that the chances are those of the neighbour, and the first one is
    a power of a negative number. The smallest value has i = 1, the largest i = n.""",
    weigh=lambda n, count: [(i / n) ** count - ((i - 1) / n) ** count for i in range(n)],
)

# --- verdict -----------------------------------------------------------------------------------


def side_of(differences, of, level):
    moved = [d - of for d in differences]
    plus, minus = counts(moved)
    if signed(moved) > level:
        return "open"
    return "above" if plus > minus else "below"


def naming(margin_side, zero_side):
    if margin_side == "open":
        return "not settled"
    if margin_side == "above":
        return "true"
    return "partly" if zero_side == "above" else "false"


def rule(
    differences, margin, level=0.1,
    *, place=side_of, shift=lambda margin: margin, limit=lambda level: level, word=naming,
):  # fmt: skip
    zero, margin = place(differences, 0.0, limit(level)), shift(margin)
    return word(place(differences, margin, limit(level)), zero)


verdicts = WrongAnswers("verdict", tests=("by_hand", "cases"), right=rule)
CASES = (
    ([0.9, 0.01, 0.02, 0.8, 0.03, 0.7], 0.05, 0.1),
    ([0.01, -0.01, 0.0, 0.02, -0.01, 0.01], -0.02, 0.1),
    ([-0.03, -0.05, -0.04, -0.1, -0.06], -0.02, 0.1),
    ([0.1, 0.2, 0.3, 0.2, 0.1, 0.2, 0.3, -0.9], 0.0, 0.1),
    ([0.1, 0.2, 0.3, 0.2, 0.1], 0.0, 0.0625),
    ([0.1, 0.2, 0.3, 0.2, 0.1], 0.0, 0.05),
    ([0.1, 0.2, 0.3, 0.2], 0.0, 0.1),
    ([0.03, 0.02, 0.01, 0.03, 0.02, 0.01], 0.05, 0.05),
    ([0.0, 0.0, 0.1, 0.2, 0.3, 0.2], 0.0, 0.1),
    ([-0.3, -0.2, -0.1, -0.4, -0.2], 0.05, 0.1),
    ([-0.3, -0.2, -0.1, -0.4, -0.2], -0.5, 0.1),
    ([0.04, 0.03, 0.01, 0.02, 0.04, 0.9], 0.05, 0.3),
    ([0.06, 0.07, 0.06, -0.9, 0.08, 0.06, 0.07, 0.09], 0.05, 0.1),
    ([0.2, -0.1, 0.3, 0.1, 0.4, -0.2], 0.05, 0.1),
    ([0.3, 0.3, 0.2, 0.3], 0.5, 0.1),
    ([0.02, 0.01, -0.01, -0.02, 0.02], 0.05, 0.1),
    ([0.02, 0.01, -0.01, 0.03, 0.02], 0.05, 0.1),
)


@witnesses(of="verdict")
def verdict_calls(draw):
    for case in CASES:
        yield call(*case)
    for size in (5, 6, 8, 9, 11, 12):
        scale = 0.3 if size % 2 else 0.03
        yield call([round(scale * x, 3) + 0.0005 for x in draw.normal(size).tolist()], 0.02)


verdicts.fault(
    "partly is called false",
    """Where an effect is there and smaller than claimed you say "false". Something of the claim is left
    then: that is what "partly" is for.""",
    word=lambda m, z: naming(m, "open"),
)
verdicts.fault(
    "false is called partly",
    """Whatever lies below the margin you call "partly", also where the differences are not above 0.
    Ask the second question.""",
    word=lambda m, z: naming(m, "above"),
)
verdicts.fault(
    "not settled is called false",
    """Where the test does not decide you say "false". That a difference was not seen does not mean that
    it is not there.""",
    word=lambda m, z: "false" if m == "open" and z != "above" else naming(m, z),
)
verdicts.fault(
    "not settled is called partly",
    """Where the test does not decide about the margin you say "partly" if the differences are above 0.
    Before the margin is decided nothing is.""",
    word=lambda m, z: "partly" if m == "open" and z == "above" else naming(m, z),
    fails=("cases",),
)
verdicts.fault(
    "the margin is left out",
    """You ask on which side of 0 the differences lie, and not on which side of the margin. A claim of 0.3
    is not true because of a difference of 0.01.""",
    shift=lambda margin: 0.0,
)
verdicts.fault(
    "the sign of the margin is dropped",
    """You take the margin without its sign. A negative one says "no worse than".""",
    fails=("cases",),
    shift=abs,
)
verdicts.fault(
    "the level is always 0.1",
    """You compare with 0.1 whatever the level is. It is an argument.""",
    fails=("cases",),
    limit=lambda level: 0.1,
)
verdicts.fault(
    "p must be below the level",
    """A p that is equal to the level decides, too. Yours has to be below it.""",
    fails=("cases",),
    limit=lambda level: level - 1e-9,
)
verdicts.fault(
    "one side only",
    """Your p counts one direction, half of the right one. Four seeds decide with it, and they must
    not.""",
    place=lambda d, of, level: side_of(d, of, 2 * level),
)
verdicts.fault(
    "the mean decides the side",
    """You decide by the mean on which side the differences lie. One outlier can turn it round; the more
    frequent sign says it.""",
    fails=("cases",),
    place=lambda d, of, level: (
        side_of(d, of, level)
        if side_of(d, of, level) == "open"
        else "above"
        if mean(d) > of
        else "below"
    ),
)
verdicts.fault(
    "the median alone",
    """You look at the median and never at how many seeds there are. One seed would settle everything.""",
    place=lambda d, of, level: "above" if median(d) > of else "below",
)
verdicts.fault(
    "all seeds must agree",
    """You ask that every seed is on the same side. The test knows how many exceptions so many seeds
    allow.""",
    fails=("cases",),
    place=lambda d, of, level: "open" if len({x > of for x in d}) == 2 else side_of(d, of, level),
)

# --- the repair, the test and the record -------------------------------------------------------


def best_median(validation, test):
    medians = [median(row) for row in validation]
    return medians.index(max(medians))


def by_column(row):
    return row


def compared(
    hero_validation, hero_test, control_validation, control_test,
    *, choose=best_median, choose_control=None, order=by_column,
):  # fmt: skip
    hero = hero_test[choose(hero_validation, hero_test)]
    control = control_test[(choose_control or choose)(control_validation, control_test)]
    return [h - c for h, c in zip(order(hero), order(control), strict=True)]


def best_of(score, table):
    def choose(validation, test):
        scores = [score(row) for row in (validation if table == "validation" else test)]
        return scores.index(max(scores))

    return choose


fixed = WrongAnswers("fixed_comparison", tests=("one_setting", "settings"), right=compared)


@witnesses(of="fixed_comparison")
def comparison_calls(draw):
    for hero, control, seeds in ((3, 3, 5), (2, 4, 4), (4, 3, 6), (1, 1, 3), (3, 2, 5), (5, 5, 7)):
        tables = (draw.uniform(n, seeds).tolist() for n in (hero, hero, control, control))
        yield call(*([[round(x, 3) for x in row] for row in table] for table in tables))
    # settings that are equal on validation: the first one counts
    tied = [row[order] for row in draw.uniform(1, 5) for order in map(draw.permutation, (5,) * 3)]
    tests = (draw.uniform(3, 5).tolist() for _ in range(2))
    yield call(*(table for test in tests for table in ([row.tolist() for row in tied], test)))


def first_setting(validation, test):
    return 0


fixed.fault(
    "all faults are still there",
    """This is the broken code as it stands. Ask of each line: who is chosen by what, and which seed is
    subtracted from which?""",
    choose=best_of(max, "test"),
    choose_control=first_setting,
    order=sorted,
)
fixed.fault(
    "seeds are still mixed up",
    """Both sides are chosen rightly now. But each row is sorted before you subtract: the best seed of one
    side meets the best of the other, and pairs are gone.""",
    order=sorted,
)
fixed.fault(
    "still chosen on the test results",
    """You choose by the medians of the test results. The winner then takes its luck along; validation
    chooses, test reports.""",
    fails=("settings",),
    choose=best_of(median, "test"),
)
fixed.fault(
    "still chosen by the best seed",
    """You choose on validation, and by the best seed of each setting. That is the luck of one run; the
    median was asked for.""",
    fails=("settings",),
    choose=best_of(max, "validation"),
)
fixed.fault(
    "chosen by the mean",
    """You choose by the mean over the seeds. One run that diverged decides then; the median was asked
    for.""",
    fails=("settings",),
    choose=best_of(mean, "validation"),
)
fixed.fault(
    "the last of equal settings",
    """Where settings have the same median you take the last one. Of equals the first one counts: look
    at what your search does with a value that is as good as the best one so far.""",
    fails=("settings",),
    choose=lambda validation, test: max(
        range(len(validation)), key=lambda i: (median(validation[i]), i)
    ),
)
fixed.fault(
    "the control is still untuned",
    """The hero is chosen rightly, and the control keeps its first setting. It has to be taken at its own
    best one.""",
    fails=("settings",),
    choose=best_median,
    choose_control=first_setting,
)
fixed.fault(
    "the control at its worst",
    """You take the control at the setting with the lowest median. It has to be taken at its best one.""",
    fails=("settings",),
    choose=best_median,
    choose_control=best_of(lambda row: -median(row), "validation"),
)


@fixed("the control at the setting of the hero", fails=("settings",))
def fixed_same_setting(hero_validation, hero_test, control_validation, control_test):
    """You look for the hero's best setting and take the control at the same one. What suits the hero
    need not suit the control: it has to be taken at its own best one.
    """
    place = best_median(hero_validation, hero_test)
    control = control_test[min(place, len(control_test) - 1)]
    return [h - c for h, c in zip(hero_test[place], control, strict=True)]


@fixed("each seed at its own best setting", fails=("settings",))
def fixed_seed_by_seed(hero_validation, hero_test, control_validation, control_test):
    """You choose a setting for each seed. Nobody could use such a model: the setting is one for all
    seeds of a side.
    """

    def chosen(validation, test):
        columns = zip(zip(*validation, strict=True), zip(*test, strict=True), strict=True)
        return [t[v.index(max(v))] for v, t in columns]

    return [
        h - c
        for h, c in zip(
            chosen(hero_validation, hero_test),
            chosen(control_validation, control_test),
            strict=True,
        )
    ]


checks = WrongAnswers("check_verdict", tests=("plain", "mutants"))


@witnesses(of="check_verdict")
def check_calls(draw):
    for candidate in (
        rule,
        lambda differences, margin, level=0.1: "true",
        lambda differences, margin, level=0.1: "false",
        lambda differences, margin, level=0.1: "true" if median(differences) > 0 else "false",
        lambda differences, margin, level=0.1: rule(differences, 0.0, level),
        lambda differences, margin, level=0.1: rule(differences, margin),
        lambda differences, margin, level=0.1: None,
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


def agrees(candidate, cases):
    try:
        return all(candidate(*case) == rule(*case) for case in cases)
    except Exception:
        return False


@checks("accepts everything")
def check_nothing(candidate):
    """Your test says True whatever it is given. Call the candidate and compare what comes back with
    verdicts that you have worked out yourself.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test says False even for a right answer. Go through one of your cases by hand: what is p
    there, and what does the table say?
    """
    return False


@checks("only the kind of answer is looked at")
def check_kind(candidate):
    """You ask whether one of the four words comes back. Every wrong rule says one of them, too."""
    try:
        got = candidate([0.2, 0.1, 0.3, 0.2, 0.4], 0.05, 0.1)
    except Exception:
        return False
    return got in ("true", "partly", "false", "not settled")


@checks("one clear case", fails=("plain", "mutants"))
def check_clear(candidate):
    """You try a single list whose differences lie far above the margin. There nearly every rule says
    the same.
    """
    return agrees(candidate, [([0.2, 0.1, 0.3, 0.2, 0.4], 0.05, 0.1)])


@checks("one case for each verdict", fails=("mutants",))
def check_four(candidate):
    """You try the four examples of exercise 3 and nothing else. Rules that differ with ties, levels,
    outliers or a negative margin agree on them.
    """
    return agrees(
        candidate,
        [
            ([0.06, 0.1, 0.07, 0.2, 0.08], 0.05, 0.1),
            ([0.02] * 5, 0.05, 0.1),
            ([-0.01, 0.01, -0.02, 0.02, 0.01], 0.05, 0.1),
            ([0.3, 0.2, 0.4, 0.3], 0.05, 0.1),
        ],
    )


@checks("the median in place of the rule")
def check_median(candidate):
    """You compare with the sign of the median. Your test then rejects rules that are right, and lets
    one through that never counts its seeds: compare with verdicts of the table.
    """
    lists = ([0.2, 0.1, 0.3, 0.2, 0.4], [-0.1, -0.2, -0.1, -0.3, -0.2], [0.3, -0.2, 0.1])
    try:
        return all(candidate(d, 0.0, 0.1) == ("true" if median(d) > 0 else "false") for d in lists)
    except Exception:
        return False


def same(record):
    return record


def recorded(*, seeds=same, tune=same, budget=same, tables=same, words=same):
    """A record that is right; a fault changes some of its entries."""
    record = {
        "claim": "A learned factor on cosines gains more than 0.3 of accuracy.",
        "hero": "learned factor",
        "control": "factor 1",
        "seeds": [0, 1, 2, 3, 4, 5],
        "hero_settings": [0.09, 0.27, 0.81, 2.43],
        "control_settings": [0.09, 0.27, 0.81, 2.43],
        "hero_validation": [
            [0.83, 0.392, 0.294, 0.292, 0.458, 0.434],
            [1.0, 0.966, 0.978, 0.976, 0.992, 1.0],
            [0.952, 0.952, 0.906, 0.902, 0.956, 0.874],
            [0.94, 0.848, 0.942, 0.918, 0.806, 0.982],
        ],
        "control_validation": [
            [0.43, 0.366, 0.294, 0.316, 0.388, 0.378],
            [0.49, 0.504, 0.456, 0.46, 0.488, 0.5],
            [0.51, 0.48, 0.478, 0.484, 0.506, 0.502],
            [0.504, 0.51, 0.47, 0.478, 0.478, 0.488],
        ],
        "hero_test": [
            [0.77, 0.394, 0.33, 0.304, 0.498, 0.42],
            [1.0, 0.974, 0.974, 0.964, 1.0, 1.0],
            [0.936, 0.942, 0.864, 0.916, 0.97, 0.926],
            [0.956, 0.892, 0.962, 0.914, 0.844, 0.968],
        ],
        "control_test": [
            [0.416, 0.38, 0.32, 0.33, 0.434, 0.37],
            [0.51, 0.438, 0.54, 0.446, 0.51, 0.514],
            [0.512, 0.486, 0.536, 0.462, 0.516, 0.534],
            [0.484, 0.488, 0.526, 0.464, 0.498, 0.534],
        ],
        "hero_steps": 60,
        "control_steps": 60,
        "margin": 0.3,
        "best": 1.0,
        "verdict": "true",
    }
    return words(tables(budget(tune(seeds(record)))))


def tables_of(record):
    return [name for name in record if name.endswith(("_validation", "_test"))]


def with_seeds(record, count):
    shorter = {name: [row[:count] for row in record[name]] for name in tables_of(record)}
    return record | shorter | {"seeds": record["seeds"][:count], "verdict": "not settled"}


def settings_of(record, *sides, keep):
    names = [n for n in record if n.startswith(sides) and type(record[n]) is list]
    return record | {name: record[name][keep] for name in names}


def claiming(record, margin, verdict):
    claim = f"A learned factor on cosines gains more than {margin} of accuracy."
    return record | {"claim": claim, "margin": margin, "verdict": verdict}


def copied(record):
    rows = list(record["hero_validation"])
    rows[1] = record["hero_test"][1]  # the chosen one is measured, the others are copies
    return record | {"hero_test": rows}


def diverged(record):
    rows = [list(row) for row in record["hero_test"]]
    rows[0][0] = math.nan
    return record | {"hero_test": rows}


records = WrongAnswers("my_record", tests=("form", "fair", "room", "verdict"), right=recorded)


@witnesses(of="my_record")
def record_calls(draw):
    yield call()


records.fault(
    "one seed",
    """Your record has a single seed. Nobody can tell its difference from luck; five is the least that
    can decide anything.""",
    fails=("fair",),
    seeds=lambda record: with_seeds(record, 1),
)
records.fault(
    "four seeds",
    """Your record has four seeds. Four equal signs have p = 1/8: by the rule they settle nothing,
    whatever they show.""",
    fails=("fair",),
    seeds=lambda record: with_seeds(record, 4),
)
records.fault(
    "a seed twice",
    """One of your seeds comes twice. A copy of a run is not another run.""",
    fails=("fair",),
    seeds=lambda record: record | {"seeds": [0, 1, 2, 3, 4, 4]},
)
records.fault(
    "an untuned control",
    """Your control has one setting, the hero several. Tune both by the same budget.""",
    fails=("fair",),
    tune=lambda record: settings_of(record, "control_", keep=slice(2, 3)),
)
records.fault(
    "the best at the end of the grid",
    """The best setting of a side is the last one that you tried. The next one may be better still: make
    the grid longer at that end, on both sides.""",
    fails=("fair",),
    tune=lambda record: settings_of(record, "hero_", "control_", keep=slice(0, 3)),
)
records.fault(
    "a grid with wide gaps",
    """Your settings are more than a factor of three apart. The best one may lie in a gap.""",
    fails=("fair",),
    tune=lambda record: record | {"control_settings": [0.01, 0.1, 0.81, 10.0]},
)
records.fault(
    "more steps for the hero",
    """Your hero was trained for longer than the control. The difference may be that of the steps.""",
    fails=("fair",),
    budget=lambda record: record | {"hero_steps": 400},
)
records.fault(
    "validation reported as test",
    """The test results of a side are its validation results. What chose the setting is too good by the
    luck of the choice; measure again on data that chose nothing.""",
    fails=("fair",),
    tables=copied,
)
records.fault(
    "at the ceiling",
    """Your control is so good that a gain by the margin is impossible. The experiment can come out only
    one way; take a harder task.""",
    fails=("room",),
    words=lambda record: claiming(record, 0.6, "partly"),
)
records.fault(
    "a margin that nothing can miss",
    """Your margin is so far below zero that no result could have missed it. The experiment can come out
    only one way: claim more.""",
    fails=("room",),
    words=lambda record: claiming(record, -0.9, "true") | {"claim": "It loses at most 0.9 here."},
)
records.fault(
    "a best score that no result can reach",
    """The best possible score does not belong to the measure: a share ends at 1, a percentage at 100,
    the negative of a loss at 0. With a larger one a ceiling is not seen.""",
    fails=("room",),
    words=lambda record: record | {"best": 2.0},
)
records.fault(
    "a verdict that is stronger than the rule",
    """The differences of your record do not decide about the margin, or lie below it, and your verdict
    says true. Apply the rule to the chosen rows of the test results.""",
    fails=("verdict",),
    words=lambda record: claiming(record, 0.47, "true"),
)
records.fault(
    "results that are not finite",
    """A result of your record is NaN. A run that diverged counts: with the score of a guess, not with
    nothing.""",
    tables=diverged,
)
records.fault(
    "a claim without a number",
    """Your claim has no number in it. "Better" cannot be wrong; "better by more than 0.1" can.""",
    words=lambda record: record | {"claim": "The hero is better."},
)

# --- the run that is made again ----------------------------------------------------------------


def share(logits, numbers):
    return (logits.argmax(-1) == numbers).double().mean().item()


def trained(
    way, setting, seed,
    *, as_way=lambda way: way, rate=lambda setting: setting, start=lambda seed: seed, steps=60,
    score=share, finish=lambda validation, test: [validation, test],
):  # fmt: skip
    """The right answer in steps; a fault replaces some of them."""
    way, seed = as_way(way), start(seed)
    generator = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, 32, 4, generator=generator)
    value = torch.randn(8, 8, generator=generator)
    factor = torch.tensor(10.0 if way == "factor 10" else 1.0)
    tables = [query, key, value, factor][: 4 if way == "learned factor" else 3]
    for table in tables:
        table.requires_grad_()

    def draw(count, source):
        names = torch.rand(count, 32, generator=source).argsort(-1)[:, :16]
        return names, torch.randint(8, (count, 16), generator=source)

    def logits(names, numbers):
        q, k = query[names[:, :1]], key[names]
        if way == "scaled dot product":
            q = q / 2
        else:
            q, k = factor * F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        return ((q @ k.mT).softmax(-1) @ value[numbers])[:, 0]

    optimizer = torch.optim.Adam(tables, lr=rate(setting))
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, max(1, steps))
    for _ in range(steps):
        names, numbers = draw(64, generator)
        optimizer.zero_grad()
        F.cross_entropy(logits(names, numbers), numbers[:, 0]).backward()
        optimizer.step()
        decay.step()
    found = []
    for shift in (1000, 2000):
        names, numbers = draw(500, torch.Generator().manual_seed(seed + shift))
        with torch.no_grad():
            found.append(score(logits(names, numbers), numbers[:, 0]))
    return finish(*found)


runs = WrongAnswers("my_run", tests=("again",), right=trained)


@witnesses(of="my_run")
def run_calls(draw):
    yield call("factor 10", 0.81, 1)
    yield call("learned factor", 0.27, 2)


runs.fault(
    "the seed is left out",
    """Your run takes no randomness from its seed: all seeds give the same result, and many seeds are one
    run.""",
    start=lambda seed: 0,
)
runs.fault(
    "the way is left out",
    """Your run is the same for both ways. Hero and control have to differ in the one thing that the
    claim is about.""",
    as_way=lambda way: "factor 1",
)
runs.fault(
    "the setting is left out",
    """Your run takes a fixed learning rate whatever the setting is. Then the grid is one setting under
    several names.""",
    rate=lambda setting: 0.01,
)
runs.fault(
    "nothing is trained",
    """Your run measures the model as it was drawn: no step was made.""",
    steps=0,
)
runs.fault(
    "fewer steps than recorded",
    """Your run makes fewer steps than the runs of your record. What is run again must be what was
    reported.""",
    steps=15,
)
runs.fault(
    "errors in place of hits",
    """Your run returns the share of mistakes. In a record larger numbers are better.""",
    score=lambda logits, numbers: 1 - share(logits, numbers),
)
runs.fault(
    "a percentage in place of a share",
    """Your run returns a percentage, and your record has shares. Both have to be in the same unit.""",
    score=lambda logits, numbers: 100 * share(logits, numbers),
)
runs.fault(
    "the test result alone",
    """Your run returns one number. Two are asked for: what chooses the setting, validation, and what is
    reported, test.""",
    finish=lambda validation, test: test,
)
runs.fault(
    "tensors in place of numbers",
    """Your run returns tensors. Asked are plain numbers: .item() makes one.""",
    finish=lambda validation, test: [torch.tensor(validation), torch.tensor(test)],
)
