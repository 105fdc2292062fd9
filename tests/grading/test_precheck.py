"""precheck finds what stops or spoils stock nbgrader, and its mended copies grade."""

import copy
import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from hostile import target
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.grading.precheck import precheck

ROOT = Path(__file__).resolve().parents[2]
SOURCE = target.as_bytes(target.notebook())


def changed(change):
    found = target.honest()
    result = change(found)
    return target.as_bytes(found if result is None else result)


def cell(found, name):
    return next(c for c in found["cells"] if c["metadata"]["nbgrader"]["grade_id"] == name)


def twice(found, name="double"):
    found["cells"].append(copy.deepcopy(cell(found, name)))


def drop(name):
    return lambda found: found["cells"].remove(cell(found, name))


def edit(name, **values):
    return lambda found: cell(found, name).update(values)


def stripped(found):
    for one in found["cells"]:
        one["metadata"] = {}
        del one["id"]


def old_schema(found):
    for one in found["cells"]:
        one["metadata"]["nbgrader"]["schema_version"] = 1


def worksheets(found):
    cells = [{**c, "input": c.pop("source"), "language": "python"} for c in found["cells"]]
    for one in cells:
        one.pop("id")
        if one["cell_type"] == "markdown":
            one["source"] = one.pop("input")
    return {"worksheets": [{"cells": cells}], "metadata": {}, "nbformat": 3, "nbformat_minor": 0}


def loud(found):
    cell(found, "double")["source"] += "\nimport warnings\nwarnings.warn('look')"


def asks(found):
    cell(found, "double")["source"] = "def double(x):\n    return int(input('factor? ')) * x"


def huge(found):
    text = {"output_type": "stream", "name": "stdout", "text": "x" * (2 << 20)}
    cell(found, "double")["outputs"] = [text]


def red_test(found):
    text = {"output_type": "stream", "name": "stderr", "text": "UserWarning"}
    cell(found, "double-test")["outputs"] = [text]


def conflict(found):
    cell(found, "double")["source"] = "<<<<<<< HEAD\nx = 1\n=======\nx = 2\n>>>>>>> mine"


def of_another(found, *names):
    """A cell of another assignment, with its metadata."""
    for name in names:
        other = copy.deepcopy(cell(found, "double"))
        other.update(id=f"{name}-other", source="y = 1")
        other["metadata"]["nbgrader"]["grade_id"] = name
        found["cells"].append(other)


# change, kind, effect
MISTAKES = {
    "duplicate": (twice, "duplicate id", "batch"),
    "duplicate_test": (lambda f: twice(f, "double-test"), "duplicate id", "batch"),
    "old_schema": (old_schema, "old schema", "batch"),
    "unknown_id": (lambda f: of_another(f, "triple"), "unknown id", "submission"),
    "unknown_twice": (lambda f: of_another(f, *["triple"] * 2), "duplicate id", "batch"),
    "no_cell": (lambda f: f["cells"].append(7), "malformed", "submission"),
    "deleted_test": (drop("double-test"), "deleted test", "points"),
    "deleted_setup": (drop("setup"), "deleted cell", "points"),
    "deleted_answer": (drop("double"), "deleted cell", "points"),
    "edited_test": (edit("double-test", source="pass"), "edited cell", "note"),
    "lost_metadata": (edit("double-test", metadata={"x": 1}), "stripped", "points"),
    "stripped": (stripped, "stripped", "submission"),
    "kernel": (lambda f: f["metadata"]["kernelspec"].update(name="julia"), "kernel", "note"),
    "format_3": (worksheets, "old format", "note"),
    "text": (edit("double", cell_type="markdown"), "cell type", "note"),
    "huge": (huge, "huge output", "note"),
    "stderr": (loud, "stderr", "points"),
    "stderr_seen": (red_test, "stderr", "points"),
    "input": (asks, "input", "points"),
    "exit": (edit("double", source="exit()"), "exit", "points"),
    "syntax": (edit("double", source="def double(x:"), "syntax", "points"),
    "conflict": (conflict, "merge conflict", "points"),
}  # fmt: skip


def hand_in(folder, student, data, name="target.ipynb"):
    place = folder / student / "target"
    place.mkdir(parents=True)
    (place / name).write_bytes(data)
    return place


def look(folder):
    return precheck(folder, notebook=SOURCE, slug="target")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name, tmp_path):
    change, kind, effect = MISTAKES[name]
    hand_in(tmp_path / "in", "ada", changed(change))
    findings = look(tmp_path / "in")
    assert (kind, effect) in {(one.kind, one.effect) for one in findings}, findings
    assert all(one.remedy and len(one.text) > 10 for one in findings)


def test_honest_work_has_no_findings(tmp_path):
    hand_in(tmp_path, "full", target.as_bytes(target.honest()))
    hand_in(tmp_path, "none", target.as_bytes(target.released()))
    assert look(tmp_path) == []


@pytest.mark.parametrize("slug", sorted(p.name for p in (ROOT / "exercises").iterdir()))
def test_our_own_releases_have_no_findings(slug, tmp_path):
    from attn_course.grading.command import instructor_notebook

    place = tmp_path / "ada" / slug
    place.mkdir(parents=True)
    release = (ROOT / "exercises" / slug / f"{slug}.ipynb").read_bytes()
    (place / f"{slug}.ipynb").write_bytes(release)
    notebook = instructor_notebook(slug, ROOT, None)
    assert precheck(tmp_path, notebook=notebook, slug=slug) == []


def test_unreadable_missing_and_renamed(tmp_path):
    hand_in(tmp_path / "in", "cut", b'{"cells": [')
    hand_in(tmp_path / "in", "merged", b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> b\n")
    (tmp_path / "in/none/target").mkdir(parents=True)
    hand_in(tmp_path / "in", "other", target.as_bytes(target.honest()), "target-1.ipynb")
    hand_in(tmp_path / "in", "bom", b"\xef\xbb\xbf" + target.as_bytes(target.honest()))
    findings = look(tmp_path / "in")
    assert {one.student: one.kind for one in findings} == {
        **{"cut": "unreadable", "merged": "unreadable", "none": "missing"},
        **{"other": "renamed", "bom": "encoding"},
    }
    assert "choose one side" in next(f.remedy for f in findings if f.student == "merged")


def test_exit_statuses(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(
            app, ["precheck", *map(str, arguments), "--assignment", "target", "--source", source]
        )

    source = str(tmp_path / "source.ipynb")
    Path(source).write_bytes(SOURCE)
    hand_in(tmp_path / "in", "ada", changed(twice))
    done = run(tmp_path / "in")
    assert done.exit_code == 1
    assert "stops the whole batch" in done.output
    assert (
        json.loads(run(tmp_path / "in", "--json").output)["findings"][0]["kind"] == "duplicate id"
    )
    assert run(tmp_path / "nowhere").exit_code == 2
    hand_in(tmp_path / "honest", "bob", target.as_bytes(target.honest()))
    assert run(tmp_path / "honest").exit_code == 0


@pytest.mark.nbgrader
def test_what_is_said_to_stop_a_batch_of_stock_nbgrader_stops_it(tmp_path):
    course = tmp_path / "course"
    (course / "source/target").mkdir(parents=True)
    (course / "source/target/target.ipynb").write_bytes(SOURCE)

    def nbgrader(*arguments):
        scripts = sysconfig.get_path("scripts")
        return subprocess.run(
            ["nbgrader", *arguments],
            cwd=course,
            env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def scores():
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{course}/gradebook.db") as book:
            found = book.assignment_submissions("target")
            return {
                s.student.id: sum(g.auto_score or 0 for g in s.notebooks[0].grades) for s in found
            }

    assert nbgrader("generate_assignment", "target").returncode == 0
    folder = course / "submitted"
    hand_in(folder, "bob", changed(twice))
    hand_in(folder, "zoe", target.as_bytes(target.honest()))
    stopped = nbgrader("autograde", "target")
    assert stopped.returncode != 0
    assert scores() == {"bob": 0.0}, "zoe, who did nothing wrong, is not graded at all"
