"""What the tests of the set judge by."""

import itertools
import math
import re

from attn_course import reference
from attn_course.probes import Probes, properties


def right_comparison(hero_validation, hero_test, control_validation, control_test):
    hero = reference.tuned(hero_validation, hero_test)[1]
    control = reference.tuned(control_validation, control_test)[1]
    return [h - c for h, c in zip(hero, control, strict=True)]


# Requirements of a record, exercise 7. Each returns a symptom in words, or None.

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
    """Equal results count as one seed; a copy of the validation results is not test data."""
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
    """Run one seed of the record, and a new one, again on both sides."""
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


probes = Probes(
    "20_capstone",
    paired_differences=reference.paired_differences,
    sign_test=reference.sign_test,
    expected_best=reference.expected_best,
    verdict=reference.verdict,
    fixed_comparison=right_comparison,
)
