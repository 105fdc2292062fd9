"""Records of experiments, and what is independent in them."""

import json
from pathlib import Path

import pytest

from attn_course.data import load_results, load_seeds
from attn_course.data.recorded import Seeds


def test_runs_are_grouped_by_seed() -> None:
    record = load_results("alignment")
    seeds = load_seeds("alignment")
    assert len(seeds) == len({run["seed"] for run in record["runs"]})
    assert sum(map(len, seeds)) == len(record["runs"])
    assert seeds[0][0] == record["runs"][0]["values"]


def test_values_of_a_seed_are_the_medians_of_its_instruction_sets() -> None:
    runs = [[{"a": {"b": [1, 5]}}, {"a": {"b": [2, 4]}}, {"a": {"b": [9, 3]}}]]
    seeds = Seeds([*runs, [{"a": {"b": [seed, 0]}} for seed in (7, 7, 8)]])
    assert seeds.values("a", "b").tolist() == [[2, 4], [7, 0]]
    assert seeds.each("a", "b")[:, :, 0].tolist() == [[1, 2, 9], [7, 7, 8]]
    assert Seeds([seeds[0], seeds[1][:1]]).values("a", "b").tolist() == [[2, 4], [7, 0]]
    recorded = load_seeds("heads_at_once")
    assert recorded.each("asked 2", "right")[1, 0].tolist() == recorded[1][0]["asked 2"]["right"]


def test_an_experiment_without_a_record_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="never_run"):
        load_seeds("never_run")


def test_every_record_is_json_without_nan() -> None:
    folder = Path(__file__).resolve().parents[2] / "experiments" / "results"
    for path in folder.glob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
