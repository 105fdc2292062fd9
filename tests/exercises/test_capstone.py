"""Invented records of the capstone, and what each is told."""

import re
from functools import cache

import pytest
from sets import source
from trial import Trial

from attn_course.probes.failure import ProbeFailure


@cache
def capstone():
    return Trial(source("20_capstone"), seed=0)


def moved(table, by):
    return [[round(x + by, 4) for x in row] for row in table]


def copied_seed(record):
    tables = {n: record[n] for n in record if n.endswith(("_validation", "_test"))}
    return {n: [row[:4] + row[3:4] + row[5:] for row in t] for n, t in tables.items()}


def at_the_end(record):
    order = (2, 0, 1, 3)
    names = ("hero_validation", "hero_test")
    return {name: [record[name][i] for i in order] for name in names}


def flat(record):
    tables = [n for n in record if n.endswith(("_validation", "_test"))]
    return {n: [[0.5] * 6] * 4 for n in tables}


def nothing_learned(record):
    """Numbers with the right look that no run has given."""
    names = ("hero_test", "hero_validation")
    return {name: [row[::-1] for row in record[name]] for name in names}


def change(**entries):
    return lambda record: entries


# by the cell that refuses it; name: (what is changed in the model answer, what it is told)
FORGED = {
    "form": {
        "claim 1": (change(claim="1"), "claim: expected a sentence, got '1'"),
        "claim with another number": (
            change(claim="The hero loses at most 0.3 of its accuracy."),
            r"claim: expected the margin 0.02 \(or 2 %\) in it",
        ),
        "no entry control": (lambda r: {"control": None}, "control: expected text, got None"),
        "infinite result": (
            lambda r: {"hero_test": [[float("inf")] * 6, *r["hero_test"][1:]]},
            "hero_test: expected finite numbers, got inf",
        ),
    },
    "fair": {
        "steps -3": (
            change(hero_steps=-3, control_steps=-3),
            "hero_steps: expected a whole number of at least 1, got -3",
        ),
        "half a step": (change(hero_steps=0.5, control_steps=0.5), "hero_steps: .* got 0.5"),
        "rates of 1e-9": (
            change(hero_settings=[1e-9, 1.5e-9, 2e-9, 3e-9]),
            "hero_settings: expected settings from 0.000001 to 100",
        ),
        "two decades between rates": (
            change(control_settings=[0.001, 0.1, 1.0, 10.0]),
            "control_settings: .* a factor of 3 or less apart, got 0.001 and 0.1",
        ),
        "one rate four times": (
            change(control_settings=[0.1, 0.1, 0.1, 0.1]),
            "control_settings: expected ascending settings, .* got 0.1 and 0.1",
        ),
        "two rates": (
            lambda r: {
                name: r[name][:2] for name in ("hero_settings", "hero_validation", "hero_test")
            },
            "hero_settings: expected at least three settings, got 2",
        ),
        "best at the end": (
            at_the_end,
            "hero_settings: expected the best validation median inside .* at the end, 0.09",
        ),
        "the same results for two seeds": (
            copied_seed,
            "hero_test: expected other results for another seed, got the same for 3 and 4",
        ),
        "seeds below 0": (
            change(seeds=[-1, 0, 1, 2, 3, 4]),
            "seeds: expected different whole numbers, none below 0",
        ),
        "test is validation": (
            lambda r: {"hero_test": r["hero_validation"]},
            "hero_test: expected results on data that chose nothing, got a copy of hero_validation",
        ),
        "test is validation with digits altered": (
            lambda r: {"control_test": moved(r["control_validation"], 0.0003)},
            "control_test: .* got a copy of control_validation",
        ),
        "test is validation, less a constant": (
            lambda r: {"hero_test": moved(r["hero_validation"], -0.05)},
            "hero_test: .* got a copy of hero_validation",
        ),
        "one number everywhere": (flat, "hero_settings: .*|hero_test: expected results"),
        "both sides the same way": (
            lambda r: {"hero": r["control"]},
            "control: expected another way than the hero's, got 'learned factor' for both",
        ),
    },
    "room": {
        "best 1e9": (change(best=1e9), r"best: expected 1, .* got 1e\+09"),
        "margin -50": (
            change(margin=-50, claim="The hero loses at most 50 of accuracy."),
            "margin: expected control and margin together above .* false could not come out",
        ),
        "margin 0.5": (
            change(margin=0.5, claim="The hero gains more than 0.5 here."),
            "margin: .* below the best score 1, got .* true could not come out",
        ),
    },
    "verdict": {
        "a verdict to one's liking": (
            change(verdict="true"),
            "verdict: expected what the rule, .* got 'true'",
        )
    },
    "again": {
        "invented results": (
            nothing_learned,
            r"my_run\('factor 10', 0.81, \d\): expected .* as hero_\w+ reports, got",
        )
    },
}


@pytest.mark.parametrize(("cell", "name"), [(c, n) for c, found in FORGED.items() for n in found])
def test_a_forged_record_is_refused_and_told_why(cell, name, monkeypatch):
    entries, told = FORGED[cell][name]
    trial = capstone()
    honest = trial.names["my_record"]()
    monkeypatch.setitem(trial.names, "my_record", lambda: honest | entries(honest))
    grade_id = "my_run-again" if cell == "again" else f"my_record-{cell}"
    lost = trial.run([grade_id])[grade_id]
    assert not lost.full
    assert isinstance(lost.error, ProbeFailure)
    assert re.search(told, lost.error.report.symptom), lost.error.report.symptom
    print(f"{name} | {lost.error.report.symptom}")


def test_a_run_that_only_looks_its_results_up_does_not_know_a_new_seed():
    trial = capstone()
    record = trial.names["my_record"]()

    def looked_up(way, setting, seed):
        side = "hero" if way == record["hero"] else "control"
        row, column = record[f"{side}_settings"].index(setting), record["seeds"].index(seed)
        return [record[f"{side}_{part}"][row][column] for part in ("validation", "test")]

    lost = trial.run_with("my_run", looked_up)["my_run-again"]
    assert not lost.full
    assert "is not in list" in str(lost.error)
