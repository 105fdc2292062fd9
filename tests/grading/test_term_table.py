"""Several tables of marks become one, with totals that can be worked out by hand."""

import csv
import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.exercises.assignment import TestResult as One
from attn_course.grading import exports
from attn_course.grading.gradebook import CHANGED
from attn_course.grading.results import Result

LIST = "Student,ID,Section\nAda L,7,\nEmmy N,8,\nGrace H,9,\nAlan T,10,\nKurt G,11,\n"


def one(slug, student, name, score, most, **more):
    known = {"status": "graded" if score is not None else "missing", "tests": (One("f", 1.0, 1.0),)}
    who = {"student": student, "name": name, "assignment": slug}
    return Result(**who, score=score, max_score=most, **{**known, **more})


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Sets a, b and c of 4, 10 and 5 points; Grace hands in one, nobody hears of Kurt."""
    lost = {"status": "unreadable", "reason": "it is not JSON"}
    marks = {
        "a": [("7", "Ada L", 3.0, {}), ("8", "Emmy N", 4.0, {}), ("9", "Grace H", None, {})],
        "b": [("7", "Ada L", 10.0, {}), ("8", "Emmy N", 5.0, {"pending": ("b-report",)})],
        "c": [("7", "Ada L", 1.0, {}), ("8", "Emmy N", 5.0, {}), ("9", "Grace H", 5.0, {})],
    }
    marks["a"].append(("10", "Alan T", None, lost))
    marks["c"][1][3]["notes"] = (f"c-report{CHANGED}",)
    for (slug, found), most in zip(marks.items(), (4.0, 10.0, 5.0), strict=True):
        results = [one(slug, who, name, score, most, **more) for who, name, score, more in found]
        (tmp_path / f"{slug}.csv").write_text(exports.to_csv(results, slug))
    (tmp_path / "class.csv").write_text(LIST)
    monkeypatch.chdir(tmp_path)
    return ["a.csv", "b.csv", "c.csv"]


def run(*arguments):
    return CliRunner().invoke(app, ["term", *arguments])


def read(text):
    return {row["student"]: row for row in csv.DictReader(io.StringIO(text))}


@pytest.mark.parametrize(("options", "ada", "dropped", "grace"), [
    ("", (75 + 100 + 20) / 3, "", 100 / 3),
    ("--drop 1", (75 + 100) / 2, "c", 50.0),
    ("--drop 2", 100.0, "c a", 100.0),
    ("--weights a=2,c=0.5", (2 * 75 + 100 + 0.5 * 20) / 3.5, "", 50 / 3.5),
    ("--weights a=2 --drop 1", (2 * 75 + 100) / 3, "c", 50.0),
])  # fmt: skip
def test_a_total_is_the_weighted_mean_without_the_worst(tables, options, ada, dropped, grace):
    """Of Grace's two zeros the heavier one is dropped."""
    found = read(run(*tables, *options.split()).stdout)
    assert float(found["7"]["total"]) == pytest.approx(ada, abs=0.005)
    assert float(found["9"]["total"]) == pytest.approx(grace, abs=0.005)
    assert found["7"]["dropped"] == dropped
    assert [found["7"][slug] for slug in "abc"] == ["75", "100", "20"]


def test_what_is_missing_counts_0_and_what_is_unknown_gives_no_total(tables):
    done = run(*tables, "--class-list", "class.csv", "--csv", "out/term.csv")
    assert done.exit_code == 1
    assert "3 of 5 have a total, mean 32.78 %" in done.stderr
    found = read(Path("out/term.csv").read_text())
    assert list(found["7"]) == ["student", "name", "a", "b", "c", "dropped", "total", "notes"]
    said = {row["name"]: [*(row[slug] for slug in "abc"), row["notes"]] for row in found.values()}
    assert said == {
        "Ada L": ["75", "100", "20", ""],
        "Emmy N": [
            *("100", "pending", "100"),
            "b: pending: b-report; c: an answer was changed after it was graded",
        ],
        "Grace H": ["0", "0", "100", "a: missing; b: missing"],
        "Alan T": [
            *("unreadable", "0", "0"),
            "a: unreadable: it is not JSON; b: missing; c: missing",
        ],
        "Kurt G": ["0", "0", "0", "a: missing; b: missing; c: missing"],
    }
    totals = [found[key]["total"] for key in ("8", "9", "10", "11")]
    assert totals == ["", "33.33", "", "0"]


def test_moodle_numbers_a_class_anew_so_names_can_tell_students_apart(tables):
    other = [one("d", "301", "Ada L", 1.0, 2.0), one("d", "302", "Zoe", 2.0, 2.0)]
    Path("d.csv").write_text(exports.to_csv(other, "d"))
    split = read(run("a.csv", "d.csv").stdout)
    assert (split["7"]["total"], split["301"]["total"]) == ("37.5", "25")
    assert "Ada L is also 301" in split["7"]["notes"]
    found = read(run("a.csv", "d.csv", "--by", "name", "--class", "class.csv").stdout)
    assert (found["7 301"]["name"], found["7 301"]["total"]) == ("Ada L", "62.5")
    assert found["302"]["notes"] == "a: missing; not on the class list"


BROKEN = {
    "d.csv: expected a table": "",
    "got student;name": "student;name\n7;Ada\n",
    "row 2: max_score: expected a number above 0, got '0'": "7,Ada,d,1,0,,,0,graded,,\n",
    "row 2: score: expected a number from 0, got 'x'": "7,Ada,d,x,2,,,0,graded,,\n",
    "row 2: score: expected a number from 0, got 'nan'": "7,Ada,d,nan,2,,,0,graded,,\n",
    "row 3: expected one row for each student, got '7' a second": "7,A,d,1,2,,,0,graded,,\n" * 2,
    "row 2: expected one row for each student, got an empty": ",A,d,1,2,,,0,graded,,\n",
    "row 3: expected max_score 2, as above, got '3'": (
        "7,A,d,1,2,,,0,graded,,\n8,B,d,1,3,,,0,graded,,\n"
    ),
    "row 2: expected 11 cells": "7,Ada,d,1\n",
    "expected one table for each assignment, got 'a' again": "7,A,a,1,4,,,0,graded,,\n",
}


@pytest.mark.parametrize("message", BROKEN)
def test_an_unclear_table_is_refused_by_file_and_row(tables, message):
    text = BROKEN[message]
    titles = Path("a.csv").read_text().splitlines()[0]
    Path("d.csv").write_text(f"{titles}\n{text}" if text[:1] in ("7", ",") else text)
    Path("term.csv").write_text("old")
    done = run("a.csv", "d.csv", "--csv", "term.csv")
    assert done.exit_code == 2
    assert message in done.stderr
    assert "d.csv" in done.stderr
    assert done.stderr.count("\n") == 1
    assert Path("term.csv").read_text() == "old"


@pytest.mark.parametrize(("options", "message"), [
    ("--drop 3", "--drop: expected 0 to 2 of these tables, got 3"),
    ("--drop -1", "--drop: expected 0 to 2"),
    ("--weights z=1", "--weights: expected a=NUMBER or b=NUMBER or c=NUMBER, got 'z=1'"),
    ("--weights a=0", "--weights: a: expected a number above 0, got '0'"),
    ("--weights a", "--weights: a: expected a number above 0, got ''"),
    ("--by id", "--by: expected student or name, got 'id'"),
    ("--class-list a.csv", "--class-list: expected a CSV"),
    ("--csv class.csv/term.csv", "class.csv"),
    ("none.csv", "none.csv: expected a table"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(tables, options, message):
    done = run(*tables, *options.split())
    assert done.exit_code == 2
    assert message in done.stderr


def test_no_cell_of_the_table_is_a_formula(tables):
    """Not of a student, nor of a table or a class list that somebody has edited."""
    evil = "=cmd|'/c calc'!A1"
    titles = Path("a.csv").read_text().splitlines()[0]
    rows = [["-7", evil, evil, "1", "2", "", "", "0", "timeout", f"x;{evil}", ""]]
    Path("d.csv").write_text(f"{titles}\n{exports.csv_text(rows, [])}")
    Path("class.csv").write_text(f"Student,ID\n{evil},@8\n")
    found = list(csv.reader(io.StringIO(run("d.csv", "--class-list", "class.csv").stdout)))
    assert len(found) == 3
    for cell in (cell for row in found for cell in row):
        assert all(part.lstrip()[:1] not in tuple("=+-@") for part in cell.split(";")), cell
