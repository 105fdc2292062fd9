"""The instructor's page says what is so: the hostile suite, the options, the measured table."""

import json
import re
from pathlib import Path

from hostile import attacks, evasions
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.grading.bench import markdown

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book/instructors.md").read_text()


def row(name):
    return int(re.search(rf"^\| {name} \| (\d+) \|", PAGE, re.M)[1])


def test_the_hostile_suite_is_counted_right():
    # broken_files imports its neighbour by its bare name, so its cases are counted in its text
    text = (ROOT / "tests/hostile/broken_files.py").read_text()
    names = {"tampering": "TAMPER", "spying": "SPY", "neighbours": "NEIGHBOUR"}
    names |= {"exhaustion": "EXHAUST", "same process": "SAME_PROCESS"}
    assert {k: row(k) for k in names} == {k: len(getattr(attacks, v)) for k, v in names.items()}
    assert sum(row(k) for k in names) == len(attacks.ALL)
    assert row("evasions") == sum(map(len, evasions.EVASIONS.values()))
    malformed, ordinary = text.split("\nMALFORMED")[1].split("\nORDINARY")
    assert row("broken files") == len(re.findall(r'^    "\w+": ', malformed, re.M))
    assert row("ordinary mistakes") == len(re.findall(r'^    "\w+": ', ordinary, re.M))


def test_every_option_on_the_page_exists():
    helped = ""
    for command in ("grade", "precheck", "check", "jailed-kernel install", "bench grading"):
        helped += (
            CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"}).output
        )
    theirs = {"--ExecutePreprocessor", "--nthreads", "--scope"}
    for option in set(re.findall(r"(?<![\w-])--[A-Za-z][A-Za-z-]+", PAGE)) - theirs:
        assert option in helped, option


def test_the_measured_table_is_that_of_the_json():
    folder = ROOT / "benchmarks/results"
    results = json.loads((folder / "grading.json").read_text())
    assert (folder / "grading.md").read_text() == markdown(results)
    assert "```{include} ../benchmarks/results/grading.md" in PAGE
    parts = {name: part["measured"] for name, part in results["parts"].items()}
    assert parts["agreement"]["cells"] >= 300
    assert all(one.get("why") for one in parts["agreement"]["differences"])
    assert all(one["processes_left"] == 0 for one in parts["worst_case"])
    assert all(one["wall_seconds"] <= one["budget_seconds"] + 2 for one in parts["worst_case"])
