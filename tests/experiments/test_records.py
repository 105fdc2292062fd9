"""Records: whose code they are of, and when a run that is made once more agrees with them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import python

from experiments import records, repeat
from experiments.repeat import agreement, leaves
from experiments.sources import ROOT


def test_every_record_is_of_the_code_that_stands_there():
    names = sorted(path.stem for path in records.RESULTS.glob("*.json"))
    assert names
    old = [name for name in names if records.is_old(name)]
    assert not old, (
        f"older than their experiment or what it imports: {', '.join(old)}. "
        "'python -m experiments.records --old --stamp' tries whether their numbers come back"
    )


def test_every_record_has_a_script_and_no_run_twice():
    for path in sorted(records.RESULTS.glob("*.json")):
        assert records.script(path.stem).is_file(), path.stem
        record = json.loads(path.read_text())
        if records.is_repeatable(record):
            runs = [(run["seed"], run["set"]) for run in record["runs"]]
            assert len(set(runs)) == len(runs), path.stem
            assert len({seed for seed, _ in runs}) >= 3, path.stem


def made(seed: int, instruction_set: str, **values: Any) -> dict[str, Any]:
    return {"seed": seed, "set": instruction_set, "values": values}


RECORD = {
    "runs": [
        made(0, "avx2", score=0.50, curve=[1.0, 2.0], word="king", seconds=3.0),
        made(0, "native", score=0.51, curve=[1.0, 2.0], word="king", seconds=3.1),
        made(1, "avx2", score=0.60, curve=[1.0, 2.1], word="king", seconds=3.0),
        made(1, "native", score=0.60, curve=[1.0, 2.0], word="king", seconds=3.1),
    ]
}
SAME = {"score": 0.51, "curve": [1.0, 2.0], "word": "king", "seconds": 99.0}


@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        ({}, "same", ""),
        ({"score": 0.51 * (1 + 5e-7)}, "same", ""),
        ({"score": 0.50}, "same", ""),
        ({"score": 0.525}, "same but for rounding", "score: 0.525"),
        ({"score": 0.54}, "differs", "score: 0.54"),
        ({"curve": [1.1, 2.0]}, "same but for rounding", "curve[0]: 1.1"),  # as curve[1] of seed 1
        ({"curve": [1.0, 2.5]}, "differs", "curve[1]: 2.5"),
        ({"curve": [1.0]}, "differs", "curve[1]: only in one"),
        ({"word": "queen"}, "differs", "word: 'queen'"),
        ({"more": 1}, "differs", "more: only in one"),
    ],
)
def test_a_run_agrees_up_to_what_instruction_sets_do(change, verdict, said):
    found = agreement(RECORD, made(0, "native", **{**SAME, **change}))
    assert found.verdict == verdict
    assert said in found.furthest


@pytest.mark.parametrize(
    "key", ["seconds", "ms", "time, forward", "times", "cpu_seconds", "per ms"]
)
def test_times_are_left_out(key):
    assert list(leaves({"a": 1, key: {"b": [2.0]}})) == [("a", 1)]


@pytest.mark.parametrize("key", ["four times as long", "timesteps", "items", "at rates"])
def test_other_keys_are_not_times(key):
    assert list(leaves({key: [2.0]})) == [(f"{key}[0]", 2.0)]


EXPERIMENT = """
from experiments.repeat import repeat
def run(seed):
    return {"value": seed + OFFSET}
if __name__ == "__main__":
    repeat(run, __file__)
"""


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A folder with one experiment and what it is repeated by."""
    for name in ("experiments/repeat.py", "experiments/sources.py", "benchmarks/harness.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / "experiments/added.py").write_text("OFFSET = 1\n")
    text = "from experiments.added import OFFSET\n" + EXPERIMENT
    (tmp_path / "experiments/tried.py").write_text(text)
    return tmp_path


def run(course: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    environment = {"PYTHONPATH": str(course)}
    done = python("-m", "experiments.tried", *arguments, cwd=course, env=environment)
    return done.stdout, json.loads((course / "experiments/results/tried.json").read_text())


def test_an_old_record_keeps_its_runs_if_one_comes_back_and_else_begins_anew(course):
    said, first = run(course, "--sets", "native", "--seeds", "0", "1")
    assert "2 runs" in said
    assert "reproduced" not in first

    added = course / "experiments/added.py"
    added.write_text('"""A docstring is no change."""\nOFFSET = 1\n')
    said, again = run(course, "--sets", "native", "--seeds", "0", "1")
    assert "once more" not in said
    assert again == first

    added.write_text("OFFSET = 2 - 1\n")
    said, stamped = run(course, "--sets", "native", "--seeds", "0", "1")
    assert "same: 0 of 1" in said
    assert stamped["runs"] == first["runs"]
    assert stamped["code"] != first["code"]
    assert stamped["reproduced"]["seed"] == 0

    added.write_text("OFFSET = 2\n")
    said, anew = run(course, "--sets", "native", "--seeds", "1")
    assert "differs: 1 of 1 value: 2, recorded 1" in said
    assert [each["values"] for each in anew["runs"]] == [{"value": 3}]
    assert "reproduced" not in anew


def test_runs_of_several_machines_say_which_is_whose(tmp_path, monkeypatch):
    record, out = {"runs": []}, tmp_path / "one.json"
    monkeypatch.setattr(repeat, "machine", lambda: {"processor": "A"})
    for seed in (0, 1):
        repeat.add(record, made(seed, "native", x=1), out)
    assert not any("machine" in run for run in record["runs"])
    monkeypatch.setattr(repeat, "machine", lambda: {"processor": "B"})
    for seed in (2, 3):
        repeat.add(record, made(seed, "native", x=1), out)
    assert [run["machine"]["processor"] for run in record["runs"]] == ["A", "A", "B", "B"]


def test_records_repeats_what_is_named_and_says_what_differs(tmp_path, monkeypatch, capsys):
    fresh = {"cheap": 1.0, "other": 2.5}
    for name, seconds in (("cheap", 3.0), ("other", 3.0), ("long", 70.0)):
        one = {**made(0, "native", x=1.0), "cpu_seconds": seconds}
        record = {"experiment": name, "code": "0", "runs": [one]}
        (tmp_path / f"{name}.json").write_text(json.dumps(record))

    def once(name: str, seed: int, instruction_set: str) -> dict[str, Any]:
        return {**made(seed, instruction_set, x=fresh[name]), "cpu_seconds": 2.0}

    monkeypatch.setattr(records, "RESULTS", tmp_path)
    monkeypatch.setattr(records, "script", lambda name: Path(__file__))
    monkeypatch.setattr(repeat, "once", once)
    monkeypatch.setattr(sys, "argv", ["records", "--stamp"])
    with pytest.raises(SystemExit) as status:
        records.main()
    assert status.value.code == 1
    cheap, long, other, total = capsys.readouterr().out.splitlines()
    assert cheap.split() == ["cheap", "same", "2.0", "s", "1", "numbers"]
    assert "differs" in other
    assert "x: 2.5, recorded 1.0, old" in other
    assert "too long" in long
    assert total == "3 records: 1 same, 1 too long, 1 differs; 4 CPU-seconds"
    assert not records.is_old("cheap")
    assert records.is_old("other")

    monkeypatch.setattr(sys, "argv", ["records", "long", "--accept", "half of it came back"])
    records.main()
    assert not records.is_old("long")
    assert records.read("long")["accepted"]["why"] == "half of it came back"
