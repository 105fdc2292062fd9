"""The instructor's page says what is so: the hostile suite, the options, the measured table."""

import json
import re
import sys
from pathlib import Path

from typer.testing import CliRunner

from attn_course.cli import app

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "hostile")]
import attacks  # noqa: E402
import broken_files  # noqa: E402
import evasions  # noqa: E402
from grading_table import markdown  # noqa: E402

PAGE = "".join((ROOT / "book" / f"{n}.md").read_text() for n in ("instructors", "grader"))


def row(name):
    return int(re.search(rf"^\| {name} \| (\d+) \|", PAGE, re.M)[1])


def test_the_hostile_suite_is_counted_right():
    names = {"tampering": "TAMPER", "spying": "SPY", "neighbours": "NEIGHBOUR"}
    names |= {"exhaustion": "EXHAUST", "same process": "SAME_PROCESS"}
    assert {k: row(k) for k in names} == {k: len(getattr(attacks, v)) for k, v in names.items()}
    assert sum(row(k) for k in names) == len(attacks.ALL)
    assert row("evasions") == sum(map(len, evasions.EVASIONS.values()))
    assert row("broken files") == len(broken_files.MALFORMED)
    assert row("ordinary mistakes") == len(broken_files.ORDINARY)


def test_the_page_of_what_to_do_can_be_read_in_ten_minutes():
    assert len((ROOT / "book/instructors.md").read_text().split()) <= 2000


def test_every_option_on_the_page_exists():
    helped = ""
    for command in ("grade", "precheck", "term", "check", "exercises build"):
        helped += (
            CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"}).output
        )
    theirs = {"--nthreads", "--duedate", "--force"}  # dask's and nbgrader's
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


def test_no_hostile_submission_gets_anything_from_ours():
    folder = ROOT / "benchmarks/results"
    assert "```{include} ../benchmarks/results/hostile.md" in PAGE
    parts = json.loads((folder / "hostile.json").read_text())["parts"]
    kinds = ["gained_points", "changed_a_neighbour", "reached_a_secret", "stopped_the_batch"]
    told = (folder / "hostile.md").read_text()
    names = {"stock": "stock nbgrader", "ours": "attn-course grade"}
    if "ours_as_user" in parts:
        names["ours_as_user"] = "attn-course grade, by an ordinary user"
    for part, name in names.items():
        counts = parts[part]["measured"]["counts"]
        numbers = [counts["submissions"], *(len(counts[kind]) for kind in kinds)]
        assert f"| {name} | {' | '.join(map(str, numbers))} |" in told
        assert len(parts[part]["measured"]["rows"]) == counts["submissions"] + 1  # a wrong one
    for part in names.keys() - {"stock"}:
        ours = parts[part]["measured"]
        assert [ours["counts"][kind] for kind in kinds] == [[]] * 4
        assert ours["counts"]["longest_seconds"] <= 62
        assert set(ours["rows"]) >= {*attacks.ALL, "baseline:wrong"}
    assert not attacks.OWN_PROTOCOL & set(parts["stock"]["measured"]["rows"])
