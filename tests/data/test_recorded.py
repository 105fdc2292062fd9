"""Records of experiments, and what is independent in them."""

import json
from pathlib import Path

import pytest

from attn_course.data import load_results, load_seeds


def test_runs_are_grouped_by_seed() -> None:
    record = load_results("alignment")
    seeds = load_seeds("alignment")
    assert len(seeds) == len({run["seed"] for run in record["runs"]})
    assert sum(map(len, seeds)) == len(record["runs"])
    assert seeds[0][0] == record["runs"][0]["values"]


def test_an_experiment_without_a_record_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="never_run"):
        load_seeds("never_run")


def test_every_record_is_json_without_nan() -> None:
    folder = Path(__file__).resolve().parents[2] / "experiments" / "results"
    for path in folder.glob("*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
