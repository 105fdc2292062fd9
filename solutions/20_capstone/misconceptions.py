"""Wrong answers on the way to a verdict: name, message, the tests they fail."""

import math
from statistics import mean, median, median_high, median_low

import torch
from torch.nn import functional as F

from attn_course.probes import WrongAnswers, call, witnesses

# --- paired_differences ------------------------------------------------------------------------


def paired(
    hero, control, *, seeds=lambda hero, control: [s for s in hero if s in control], order=sorted,
    partner=lambda results, seed: results[seed], difference=lambda h, c: h - c,
):  # fmt: skip
    chosen = order(seeds(hero, control))
    return [difference(hero.get(s, 0.0), partner(control, s)) for s in chosen]


pairs = WrongAnswers("paired_differences", tests=("same_order", "mixed"), right=paired)
MIXED = {"fails": ("mixed",)}


@witnesses(of="paired_differences")
def paired_calls(draw):
    for hero, control in (
        ((3, 1, 2), (1, 2, 3)),
        ((5, 0, 2, 7), (2, 7, 0, 4)),
        ((1, 2, 3, 4), (9, 4, 2, 1)),
        ((4, 6, 5), (6, 5, 4)),
        ((10, 9, 2), (2, 10, 9)),
    ):
        yield call(
            dict(zip(hero, draw.normal(len(hero)).tolist(), strict=True)),
            dict(zip(control, draw.normal(len(control)).tolist(), strict=True)),
        )


for name, message, difference in (
    ("control minus hero", "You subtract the hero from the control.", lambda h, c: c - h),
    ("sizes without signs", "You drop the sign.", lambda h, c: abs(h - c)),
    ("relative differences", "You divide by the control.", lambda h, c: (h - c) / c),
):
    pairs.fault(name, f"{message} A difference is hero minus control.", difference=difference)
for name, order in (
    ("in the order of the hero", list),
    ("descending seeds", lambda seeds: sorted(seeds, reverse=True)),
):
    pairs.fault(
        name,
        "Your differences are right, but in the wrong order. Sort them by seed.",
        fails=("mixed",) if order is list else None,
        order=order,
    )
for name, steps in (
    (
        "a missing partner counts as 0",
        {"seeds": lambda hero, control: list(hero), "partner": lambda c, s: c.get(s, 0.0)},
    ),
    (
        "a missing result counts as 0",
        {"seeds": lambda hero, control: {*hero, *control}, "partner": lambda c, s: c.get(s, 0.0)},
    ),
    (
        "a missing partner is replaced by the mean",
        {
            "seeds": lambda hero, control: list(hero),
            "partner": lambda c, s: c.get(s, mean(c.values())),
        },
    ),
):
    pairs.fault(
        name,
        "You invent a result for a seed that one side lacks. Leave out a seed without a partner.",
        **MIXED,
        **steps,
    )
pairs.fault(
    "all against the mean of the control",
    "You subtract the mean of the control. Subtract the result of the same seed.",
    partner=lambda control, seed: mean(control.values()),
)


@pairs("paired by position", **MIXED)
def paired_by_place(hero, control):
    """You pair results by their position in the dictionaries. Pair equal seeds."""
    return [h - c for h, c in zip(hero.values(), control.values(), strict=False)]


# --- sign_test ---------------------------------------------------------------------------------


def counts(differences):
    return sum(d > 0 for d in differences), sum(d < 0 for d in differences)


def tail_of(n, k):
    return sum(math.comb(n, i) for i in range(k + 1))


def signed(
    differences, *, count=counts, rarer=min, tail=tail_of, sides=lambda share: 2 * share,
    cap=lambda p: min(1.0, p), seeds=lambda differences, plus, minus: plus + minus, nothing=None,
):  # fmt: skip
    plus, minus = count(differences)
    n = seeds(differences, plus, minus)
    if n == 0 and nothing is not None:
        return nothing
    return cap(sides(tail(n, rarer(plus, minus)) / 2**n))


signs = WrongAnswers("sign_test", tests=("by_hand", "ties", "counts"), right=signed)


@witnesses(of="sign_test")
def sign_calls(draw):
    for pattern in ("+++++-", "--+----", "++--", "+++0+++-", "--0-0-+", "++++++++-+-+", "00", "+"):
        size = (draw.uniform(len(pattern)) + 0.1).tolist()
        sign = [{"+": 1.0, "-": -1.0, "0": 0.0}[mark] for mark in pattern]
        yield call([a * b for a, b in zip(size, sign, strict=True)])


signs.fault(
    "only the observed count",
    """You count only the ways to get exactly these signs. The sum runs from 0 to the count of the
    rarer sign.""",
    fails=("by_hand", "counts"),
    tail=math.comb,
)
for name, message, rarer in (
    ("the more frequent sign", "of the more frequent sign", max),
    ("always the plus signs", "of the plus signs", lambda plus, minus: plus),
    ("always the minus signs", "of the minus signs", lambda plus, minus: minus),
):
    signs.fault(
        name,
        f"Your sum ends at the count {message}. It should end at that of the rarer sign.",
        fails=("counts",) if "minus" in name else None,
        rarer=rarer,
    )
signs.fault(
    "one side only",
    "Your p counts only one direction. Double it for two sides.",
    sides=lambda share: share,
)
# with and without a case of its own for a list without signs
for nothing in (None, 1.0):
    signs.fault(
        "above one",
        "Your p can exceed 1 if plus and minus are equally frequent. It is at most 1.",
        fails=("ties", "counts") if nothing is None else ("counts",),
        cap=lambda p: p,
        nothing=nothing,
    )
    signs.fault(
        "the tail ends too early",
        "Your sum stops before the count of the rarer sign. Include it.",
        tail=lambda n, k: tail_of(n, k - 1),
        nothing=nothing,
    )
    signs.fault(
        "the tail begins at 1",
        "Your sum starts at 1. It starts at 0.",
        tail=lambda n, k: tail_of(n, k) - 1,
        nothing=nothing,
    )
signs.fault(
    "the tail ends too late",
    "Your sum ends one beyond the count of the rarer sign. It ends there.",
    tail=lambda n, k: tail_of(n, k + 1),
)
signs.fault(
    "0 where no difference is left",
    "Your p is 0 when all differences are 0. It should be 1.",
    fails=("ties", "counts"),
    nothing=0.0,
)
for name, steps in (
    ("a tie counts as a minus", {"count": lambda d: (counts(d)[0], sum(x <= 0 for x in d))}),
    ("a tie counts as a plus", {"count": lambda d: (sum(x >= 0 for x in d), counts(d)[1])}),
    ("the number of seeds keeps its ties", {"seeds": lambda d, plus, minus: len(d)}),
):
    signs.fault(
        name,
        "You count differences of exactly 0. Drop them from the signs and from n.",
        fails=("ties", "counts"),
        **steps,
    )


@signs("a normal approximation")
def sign_normal(differences):
    """You use the normal approximation. With five seeds it is far from the exact sum."""
    plus, minus = counts(differences)
    n = plus + minus
    return 1.0 if n == 0 else math.erfc(abs(plus - minus) / math.sqrt(2 * n))


# --- expected_best -----------------------------------------------------------------------------


def weights(n, count, first=1):
    places = range(first, first + n)
    return [(i / n) ** count - ((i - 1) / n) ** count for i in places]


def lucky(values, count, *, order=sorted, weigh=weights, of=lambda count: count):
    ordered = order(values)
    return sum(x * w for x, w in zip(ordered, weigh(len(ordered), of(count)), strict=True))


best = WrongAnswers("expected_best", tests=("by_hand", "more"), right=lucky)


@witnesses(of="expected_best")
def best_calls(draw):
    for size, count in ((3, 4), (5, 2), (4, 13), (6, 3), (2, 5)):
        yield call(draw.normal(size).tolist(), count)
    yield call([0.5, 0.25, 0.5, 0.75], 2)


for name, message, order in (
    ("the values unsorted", "You do not sort the values.", list),
    (
        "descending",
        "You sort the values in descending order.",
        lambda values: sorted(values, reverse=True),
    ),
    (
        "equal results count once",
        "You drop repeated values.",
        lambda values: sorted(set(values)),
    ),
):
    best.fault(
        name,
        f"{message} The weights belong to the values in ascending order.",
        fails=None if name == "descending" else ("more",),
        order=order,
    )
for name, message, of in (
    ("one draw too few", "one too small", lambda count: count - 1),
    ("one draw too many", "one too large", lambda count: count + 1),
):
    best.fault(name, f"Your power is {message}. With c draws it is (i/n)^c.", of=of)
for name, message, weigh in (
    ("all values equally likely", "You use equal weights.", lambda n, count: [1 / n] * n),
    (
        "the mean times the number of draws",
        "You multiply by c.",
        lambda n, count: [count / n] * n,
    ),
    (
        "the largest of all",
        "You always return the largest.",
        lambda n, count: [0.0] * (n - 1) + [1.0],
    ),
    (
        "weights that do not sum to one",
        "You do not subtract ((i-1)/n)^c.",
        lambda n, count: [(i / n) ** count for i in range(1, n + 1)],
    ),
    (
        "without the lowest value",
        "You count i from 0 instead of 1.",
        lambda n, count: [(i / n) ** count - (max(i - 1, 0) / n) ** count for i in range(n)],
    ),
    ("counted from 0", "You count i from 0 instead of 1.", lambda n, c: weights(n, c, 0)),
    ("counted from 2", "You count i from 2 instead of 1.", lambda n, c: weights(n, c, 2)),
):
    best.fault(name, f"{message} The weights are (i/n)^c - ((i-1)/n)^c.", weigh=weigh)


@best("drawn without replacement")
def best_of_subsets(values, count):
    """You draw without replacement. Here the same result may be drawn again."""
    n, ordered = len(values), sorted(values)
    ways = [math.comb(i, count - 1) for i in range(n)]
    return sum(x * w for x, w in zip(ordered, ways, strict=True)) / math.comb(n, count)


# --- verdict -----------------------------------------------------------------------------------


def side_of(differences, of, level, count=counts, **steps):
    moved = [d - of for d in differences]
    plus, minus = count(moved)
    if signed(moved, count=count, **steps) > level:
        return "open"
    return "above" if plus > minus else "below"


def naming(margin_side, zero_side):
    if margin_side == "open":
        return "not settled"
    if margin_side == "above":
        return "true"
    return "partly" if zero_side == "above" else "false"


def rule(
    differences, margin, level=0.1, *, place=side_of, shift=lambda margin: margin,
    limit=lambda level: level, word=naming, zero_limit=None,
):  # fmt: skip
    zero = place(differences, 0.0, (zero_limit or limit)(level))
    return word(place(differences, shift(margin), limit(level)), zero)


verdicts = WrongAnswers("verdict", tests=("by_hand", "cases"), right=rule)
HARD = {"fails": ("cases",)}
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
    ([0.01, 0.015, 0.005, 0.01, 0.012], -0.02, 0.1),
    ([-0.01, -0.02, -0.01, -0.03, -0.02], 0.05, 0.1),
    ([0.0, 0.1, 0.2, 0.3, 0.2, 0.1], 0.0, 0.1),
    ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.2, 0.1], 0.0, 0.1),
    ([0.0, 0.0, -0.1, -0.2, -0.3, -0.2, -0.1], 0.0, 0.1),
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


WORDS = "Your verdict differs from the table. {}"
for name, message, fails, word in (
    (
        '"false" instead of "partly"',
        'Below the margin and above 0 is "partly".',
        None,
        lambda m, z: naming(m, "open"),
    ),
    (
        '"partly" instead of "false"',
        'Below the margin and not above 0 is "false".',
        None,
        lambda m, z: naming(m, "above"),
    ),
    (
        "not settled is called false",
        'An undecided margin is "not settled".',
        None,
        lambda m, z: "false" if m == "open" and z != "above" else naming(m, z),
    ),
    (
        "whatever is not settled is called false",
        'An undecided margin is "not settled".',
        None,
        lambda m, z: "false" if m == "open" else naming(m, z),
    ),
    (
        "the test against 0 comes first",
        'Above the margin is "true", whatever the test against 0 gives.',
        None,
        lambda m, z: "not settled" if z == "open" else naming(m, z),
    ),
    (
        "not settled is called partly",
        'An undecided margin is "not settled", also above 0.',
        ("cases",),
        lambda m, z: "partly" if m == "open" and z == "above" else naming(m, z),
    ),
    (
        "false is called not settled",
        'Below the margin and undecided about 0 is "false".',
        None,
        lambda m, z: "not settled" if m == "below" and z == "open" else naming(m, z),
    ),
):
    verdicts.fault(name, WORDS.format(message), fails=fails, word=word)
for name, message, fails, shift in (
    ("the margin is left out", "You compare with 0.", None, lambda margin: 0.0),
    ("the margin is added", "You add the margin.", None, lambda margin: -margin),
    ("the sign of the margin is dropped", "You drop its sign.", ("cases",), abs),
):
    verdicts.fault(
        name,
        f"{message} The first test uses the signs of d - margin.",
        fails=fails,
        shift=shift,
    )
for level in (0.1, 0.05):
    verdicts.fault(
        f"the level is always {level}",
        f"You always compare p with {level}. Use the argument `level`.",
        fails=("cases",) if level == 0.1 else None,
        limit=lambda _, level=level: level,
    )
verdicts.fault(
    "p must be below the level",
    "Your test decides only if p is below the level. A p equal to the level decides, too.",
    limit=lambda level: level - 1e-9,
    **HARD,
)
verdicts.fault(
    "one side only",
    "Your p is one-sided, half of the right one.",
    place=lambda d, of, level: side_of(d, of, 2 * level),
)
verdicts.fault(
    "the second test not required to decide",
    "You use the more frequent sign against 0 without checking that its test decides.",
    zero_limit=lambda level: 1.0,
)
SIDE = "{} The side is that of the more frequent sign, if its test decides."
for name, message, fails, place in (
    (
        "the mean decides the side",
        "You use the mean, which one outlier can change.",
        ("cases",),
        lambda d, of, level: (
            "open" if side_of(d, of, level) == "open" else "above" if mean(d) > of else "below"
        ),
    ),
    (
        "the median alone",
        "You use the median and ignore the number of seeds.",
        None,
        lambda d, of, level: "above" if median(d) > of else "below",
    ),
    (
        "all seeds must agree",
        "You require all seeds to agree.",
        ("cases",),
        lambda d, of, level: "open" if len({x > of for x in d}) == 2 else side_of(d, of, level),
    ),
    (
        "a tie counts as a plus",
        "You do not drop differences of exactly 0.",
        ("cases",),
        lambda d, of, level: side_of(
            d, of, level, lambda m: (sum(x >= 0 for x in m), counts(m)[1])
        ),
    ),
    (
        "a tie counts as a minus",
        "You do not drop differences of exactly 0.",
        ("cases",),
        lambda d, of, level: side_of(
            d, of, level, lambda m: (counts(m)[0], sum(x <= 0 for x in m))
        ),
    ),
    (
        "the number of seeds keeps its ties",
        "You do not drop differences of exactly 0.",
        ("cases",),
        lambda d, of, level: side_of(d, of, level, seeds=lambda m, plus, minus: len(m)),
    ),
    (
        "the median decides the side",
        "You use the median, which can be 0 with many ties.",
        ("cases",),
        lambda d, of, level: (
            "open" if side_of(d, of, level) == "open" else "above" if median(d) > of else "below"
        ),
    ),
    (
        "five seeds are too few",
        "You never decide with five seeds.",
        None,
        lambda d, of, level: "open" if len(d) < 6 else side_of(d, of, level),
    ),
):
    verdicts.fault(name, SIDE.format(message), fails=fails, place=place)

# --- the repair, the test and the record -------------------------------------------------------


def compared(
    hero_validation, hero_test, control_validation, control_test, *, score=median, by=0,
    first=True, control_at=None, order=lambda row: row, report=1,
):  # fmt: skip
    """Each side by the best ``score`` of table ``by``; ``report`` gives the results."""

    def best_of(*tables, score=score):
        scores = [score(row) for row in tables[by]]
        found = [i for i, one in enumerate(scores) if one == max(scores)]
        return found[0] if first else found[-1]

    hero = best_of(hero_validation, hero_test)
    control = best_of(control_validation, control_test)
    if control_at is not None:
        control = min(control_at(hero, best_of, control_validation), len(control_test) - 1)
    tables = (hero_validation, hero_test)[report], (control_validation, control_test)[report]
    rows = order(tables[0][hero]), order(tables[1][control])
    return [h - c for h, c in zip(*rows, strict=True)]


fixed = WrongAnswers("fixed_comparison", tests=("one_setting", "settings"), right=compared)
SETTINGS = {"fails": ("settings",)}


@witnesses(of="fixed_comparison")
def comparison_calls(draw):
    for hero, control, seeds in ((3, 3, 5), (2, 4, 4), (4, 3, 6), (1, 1, 3), (3, 2, 5), (5, 5, 7)):
        tables = (draw.uniform(n, seeds).tolist() for n in (hero, hero, control, control))
        yield call(*([[round(x, 3) for x in row] for row in table] for table in tables))
    # settings that are equal on validation: the first one counts
    tied = [row[order] for row in draw.uniform(1, 5) for order in map(draw.permutation, (5,) * 3)]
    tests = (draw.uniform(3, 5).tolist() for _ in range(2))
    yield call(*(table for test in tests for table in ([row.tolist() for row in tied], test)))
    # an even number of seeds: the upper of the middle two chooses wrongly here, and the lower there
    even = (
        [[0.6, 0.7, 0.7, 0.7], [0.0, 0.4, 0.8, 1.0]],
        [[0.6, 0.7, 0.7, 0.7], [0.5, 0.5, 1.0, 1.0]],
    )
    tests = [draw.uniform(2, 4).tolist() for _ in range(2)]
    yield call(even[0], tests[0], even[1], tests[1])


fixed.fault(
    "all faults are still there",
    """This is the broken code. Check in each line how the setting is chosen, and which seeds are
    subtracted.""",
    score=max,
    by=1,
    control_at=lambda hero, best_of, table: 0,
    order=sorted,
)
fixed.fault(
    "seeds are still mixed up",
    """The settings are now right. You still sort each row before you subtract, which pairs
    different seeds.""",
    order=sorted,
)
fixed.fault(
    "validation instead of test",
    "You choose the right settings, but subtract validation results. Subtract test results.",
    report=0,
)
fixed.fault(
    "still chosen on the test results",
    "You choose by the medians of the test results. Choose by validation.",
    by=1,
    **SETTINGS,
)
for name, score in (
    ("still chosen by the best seed", max),
    ("chosen by the mean", mean),
    ("chosen by the worst seed", min),
    ("the upper of the middle two", median_high),
    ("the lower of the middle two", median_low),
):
    fixed.fault(
        name,
        f"Choose by the best *median* on validation. Yours is {name}.",
        score=score,
        **SETTINGS,
    )
fixed.fault(
    "the last of equal settings",
    "Of settings with equal medians you take the last. Take the first.",
    first=False,
    **SETTINGS,
)
for name, message, control_at in (
    ("the control is still untuned", "its first setting", lambda hero, best_of, table: 0),
    (
        "the control at its worst",
        "its worst setting",
        lambda hero, best_of, table: best_of(table, table, score=lambda row: -median(row)),
    ),
    (
        "the control at the setting of the hero",
        "the setting of the hero",
        lambda hero, best_of, table: hero,
    ),
):
    fixed.fault(
        name,
        f"The hero is now right. The control has {message}: use its own best one.",
        control_at=control_at,
        **SETTINGS,
    )


@fixed("each seed at its own best setting", **SETTINGS)
def fixed_seed_by_seed(hero_validation, hero_test, control_validation, control_test):
    """You choose a setting per seed. Choose one setting per side for all seeds."""

    def chosen(validation, test):
        columns = zip(zip(*validation, strict=True), zip(*test, strict=True), strict=True)
        return [t[v.index(max(v))] for v, t in columns]

    rows = chosen(hero_validation, hero_test), chosen(control_validation, control_test)
    return [h - c for h, c in zip(*rows, strict=True)]


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
    """Your test always returns True. Call the candidate and compare its result with your own
    verdicts.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test rejects a right answer. Compute a case by hand: p, then the table."""
    return False


@checks("only the kind of answer is checked")
def check_kind(candidate):
    """You only check that the result is one of the four verdicts. Wrong rules return one of them,
    too.
    """
    try:
        got = candidate([0.2, 0.1, 0.3, 0.2, 0.4], 0.05, 0.1)
    except Exception:
        return False
    return got in ("true", "partly", "false", "not settled")


@checks("one clear case")
def check_clear(candidate):
    """You test one list with differences far above the margin. Nearly all rules agree on it."""
    return agrees(candidate, [([0.2, 0.1, 0.3, 0.2, 0.4], 0.05, 0.1)])


@checks("one case for each verdict", fails=("mutants",))
def check_four(candidate):
    """You test the four examples of exercise 3. Test ties, levels, outliers and a negative margin,
    too.
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


@checks("the median instead of the rule")
def check_median(candidate):
    """You compare with the sign of the median, which rejects right rules. Compare with the table."""
    lists = ([0.2, 0.1, 0.3, 0.2, 0.4], [-0.1, -0.2, -0.1, -0.3, -0.2], [0.3, -0.2, 0.1])
    try:
        return all(candidate(d, 0.0, 0.1) == ("true" if median(d) > 0 else "false") for d in lists)
    except Exception:
        return False


def recorded(*, change=lambda record: record):
    """A right record."""
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
    return change(record)


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
    rows[1] = record["hero_test"][1]  # the chosen row is measured, the others are copies
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
    "Your record has one seed. At least five are needed to decide.",
    fails=("fair",),
    change=lambda record: with_seeds(record, 1),
)
records.fault(
    "four seeds",
    """Your record has four seeds, and four equal signs have p = 1/8. At least five are needed to
    decide.""",
    fails=("fair",),
    change=lambda record: with_seeds(record, 4),
)
records.fault(
    "a seed twice",
    "One of your seeds occurs twice. Use different seeds.",
    fails=("fair",),
    change=lambda record: record | {"seeds": [0, 1, 2, 3, 4, 4]},
)
records.fault(
    "an untuned control",
    "Your control has one setting, the hero several. Tune both with the same budget.",
    fails=("fair",),
    change=lambda record: settings_of(record, "control_", keep=slice(2, 3)),
)
records.fault(
    "the best at the end of the grid",
    "The best setting of a side is the last one. Extend the grid, on both sides.",
    fails=("fair",),
    change=lambda record: settings_of(record, "hero_", "control_", keep=slice(0, 3)),
)
records.fault(
    "a grid with wide gaps",
    "Your settings are more than a factor of three apart. Use a finer grid.",
    fails=("fair",),
    change=lambda record: record | {"control_settings": [0.01, 0.1, 0.81, 10.0]},
)
records.fault(
    "more steps for the hero",
    "Your hero was trained longer than the control. Use the same number of steps.",
    fails=("fair",),
    change=lambda record: record | {"hero_steps": 400},
)
records.fault(
    "validation reported as test",
    "The test results of a side are its validation results. Use data not used for any choice.",
    fails=("fair",),
    change=copied,
)
records.fault(
    "at the ceiling",
    "Your control is too good for a gain by the margin. Choose a harder task.",
    fails=("room",),
    change=lambda record: claiming(record, 0.6, "partly"),
)
records.fault(
    "a margin that no result can miss",
    "Your margin is so far below zero that no result can miss it. Claim more.",
    fails=("room",),
    change=lambda record: claiming(record, -0.9, "true") | {"claim": "It loses at most 0.9 here."},
)
records.fault(
    "a best score that no result can reach",
    """Your `best` does not fit the results: it is 1 for a share, 100 for a percentage, 0 for the
    negative of a loss.""",
    fails=("room",),
    change=lambda record: record | {"best": 2.0},
)
records.fault(
    "a verdict that is stronger than the rule",
    """Your verdict differs from that of the rule. Apply the rule to the chosen rows of the test
    results.""",
    fails=("verdict",),
    change=lambda record: claiming(record, 0.47, "true"),
)
records.fault(
    "results that are not finite",
    "A result of your record is NaN. A diverged run counts with the score of a random guess.",
    change=diverged,
)
records.fault(
    "a claim without a number",
    "Your claim has no number. 'Better' cannot be wrong; 'better by more than 0.1' can.",
    change=lambda record: record | {"claim": "The hero is better."},
)

# --- the run that is made again ----------------------------------------------------------------


def share(logits, numbers):
    return (logits.argmax(-1) == numbers).double().mean().item()


def trained(
    way, setting, seed,
    *, as_way=lambda way: way, rate=lambda setting: setting, start=lambda seed: seed, steps=60,
    score=share, finish=lambda validation, test: [validation, test],
):  # fmt: skip
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
    "Your run ignores its seed, so all seeds give the same run.",
    start=lambda seed: 0,
)
runs.fault(
    "the way is left out",
    "Your run is the same for hero and control. Use the argument `way`.",
    as_way=lambda way: "factor 1",
)
runs.fault(
    "the setting is left out",
    "Your run ignores its setting. Use the argument `setting`.",
    rate=lambda setting: 0.01,
)
runs.fault(
    "nothing is trained",
    "Your run measures the untrained model. Train it first.",
    steps=0,
)
runs.fault(
    "fewer steps than recorded",
    "Your run takes fewer steps than your record states. Use the same number.",
    steps=15,
)
runs.fault(
    "errors instead of hits",
    "Your run returns the share of errors. In a record larger numbers are better.",
    score=lambda logits, numbers: 1 - share(logits, numbers),
)
runs.fault(
    "a percentage instead of a share",
    "Your run returns percentages, but your record has shares. Use one unit.",
    score=lambda logits, numbers: 100 * share(logits, numbers),
)
runs.fault(
    "the test result alone",
    "Your run returns one number. Return two: validation and test.",
    finish=lambda validation, test: test,
)
runs.fault(
    "tensors instead of numbers",
    "Your run returns tensors. Return plain numbers, with `.item()`.",
    finish=lambda validation, test: [torch.tensor(validation), torch.tensor(test)],
)
