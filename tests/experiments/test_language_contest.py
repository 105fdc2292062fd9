"""The contest of equal cost: how rates are searched, and what the record has."""

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_course.data import load_results
from experiments import language_contest


@pytest.mark.parametrize(
    ("best", "tried"), [(4e-3, {2e-3, 4e-3, 8e-3}), (5e-4, {2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3})]
)
def test_rates_are_tried_until_the_best_lies_inside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, best: float, tried: set[float]
) -> None:
    def train(name: str, work: Path, *, rate: float, seed: int) -> dict[str, Any]:
        return {"validation": abs(np.log(rate / best)) + (name == "wide")}

    sides = {"one": {"narrow": (2e-3, 4e-3, 8e-3), "wide": (1e-3,)}}
    monkeypatch.setattr(language_contest, "train", train)
    monkeypatch.setattr(language_contest, "SIDES", sides)
    found = language_contest.search("one", tmp_path)
    assert set(found["narrow"]) == tried
    assert set(found["wide"]) == {1e-3}
    assert language_contest.chosen("one", tmp_path) == ("narrow", best)


def test_the_contest_is_of_equal_cost_with_the_steps_that_the_page_states() -> None:
    record = load_results("language_contest")
    assert record["missing"] == []
    sides = record["models"]
    seconds = {
        side: statistics.mean(run["cpu_seconds"] for run in sides[side]["runs"])
        for side in ("transformer", "lstm")
    }
    assert 0.8 < seconds["lstm"] / seconds["transformer"] < 1.25
    assert [run["steps"] for run in sides["transformer"]["runs"]] == [870] * 3
    assert [run["steps"] for run in sides["lstm"]["runs"]] == [805] * 3
    best = min(run["validation"] for run in sides["transformer"]["runs"])
    assert min(one["val_bits"] for one in record["other shapes"]["transformer 6 x 192"]) > best


def test_the_head_of_the_explorer_grows() -> None:
    record = load_results("language_contest")
    stages = record["growing up"]["stages"]
    bits, previous = ([stage[key] for stage in stages] for key in ("bits", "previous"))
    assert bits == sorted(bits, reverse=True)
    assert previous[-1] > 0.6 > 0.05 > previous[0]
    rows = stages[-1]["weights"]
    assert [len(row) for row in rows] == list(range(1, len(record["growing up"]["line"]) + 1))
    assert all(abs(sum(row) - 100) <= len(row) / 2 for row in rows)
