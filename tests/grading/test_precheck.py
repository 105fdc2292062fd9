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
from attn_course.grading.collect import CollectError
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


# change, kind, effect, whether --fix mends it
MISTAKES = {
    "duplicate": (twice, "duplicate id", "batch", True),
    "duplicate_test": (lambda f: twice(f, "double-test"), "duplicate id", "batch", True),
    "old_schema": (old_schema, "old schema", "batch", True),
    "unknown_id": (lambda f: of_another(f, "triple"), "unknown id", "submission", True),
    "unknown_twice": (lambda f: of_another(f, *["triple"] * 2), "duplicate id", "batch", True),
    "no_cell": (lambda f: f["cells"].append(7), "malformed", "submission", True),
    "deleted_test": (drop("double-test"), "deleted test", "points", True),
    "deleted_setup": (drop("setup"), "deleted cell", "points", True),
    "deleted_answer": (drop("double"), "deleted cell", "points", False),
    "edited_test": (edit("double-test", source="pass"), "edited cell", "note", True),
    "lost_metadata": (edit("double-test", metadata={"x": 1}), "stripped", "points", True),
    "stripped": (stripped, "stripped", "submission", True),
    "kernel": (lambda f: f["metadata"]["kernelspec"].update(name="julia"), "kernel", "note", True),
    "format_3": (worksheets, "old format", "note", True),
    "text": (edit("double", cell_type="markdown"), "cell type", "note", True),
    "huge": (huge, "huge output", "note", True),
    "stderr": (loud, "stderr", "points", False),
    "stderr_seen": (red_test, "stderr", "points", False),
    "input": (asks, "input", "points", False),
    "exit": (edit("double", source="exit()"), "exit", "points", False),
    "syntax": (edit("double", source="def double(x:"), "syntax", "points", False),
    "conflict": (conflict, "merge conflict", "points", False),
}  # fmt: skip


def hand_in(folder, student, data, name="target.ipynb"):
    place = folder / student / "target"
    place.mkdir(parents=True)
    (place / name).write_bytes(data)
    return place


def look(folder, fix=None):
    return precheck(folder, notebook=SOURCE, slug="target", fix=fix)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_and_mended_where_it_can_be(name, tmp_path):
    change, kind, effect, mends = MISTAKES[name]
    hand_in(tmp_path / "in", "ada", changed(change))
    findings, written = look(tmp_path / "in", tmp_path / "out")
    found = {(one.kind, one.effect, one.mends) for one in findings}
    assert (kind, effect, mends) in found, findings
    assert all(one.remedy and len(one.text) > 10 for one in findings)
    assert written == ["ada"]
    again, _ = look(tmp_path / "out")
    assert not [one for one in again if one.mends], again
    left = {"deleted cell"} if name == "stripped" else set()  # free text: nobody can tell
    assert {one.kind for one in again} == (left if mends else {kind})


@pytest.mark.parametrize("name", ["duplicate", "stripped", "format_3", "text", "lost_metadata"])
def test_mending_leaves_every_answer_as_it_was(name, tmp_path):
    hand_in(tmp_path / "in", "ada", changed(MISTAKES[name][0]))
    look(tmp_path / "in", tmp_path / "out")
    mended = json.loads((tmp_path / "out/ada/target/target.ipynb").read_bytes())
    for grade_id, source in target.SOLUTIONS.items():
        found = cell_by_id(mended, grade_id)
        assert found["source"] == source
        assert found["cell_type"] == "code"
    assert target.SECRET not in json.dumps(mended), "a hidden test was put into a student's file"


def cell_by_id(notebook, grade_id):
    cells = [c for c in notebook["cells"]
             if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id]  # fmt: skip
    assert len(cells) == 1
    return cells[0]


def test_the_last_of_two_answers_is_the_one_that_counts(tmp_path):
    def two(found):
        twice(found)
        found["cells"][-1]["source"] = "def double(x):\n    return x + x"

    hand_in(tmp_path / "in", "ada", changed(two))
    look(tmp_path / "in", tmp_path / "out")
    mended = json.loads((tmp_path / "out/ada/target/target.ipynb").read_bytes())
    assert "x + x" in cell_by_id(mended, "double")["source"]
    assert any("2 * x" in c["source"] for c in mended["cells"])


def test_honest_work_has_no_findings(tmp_path):
    hand_in(tmp_path, "full", target.as_bytes(target.honest()))
    hand_in(tmp_path, "none", target.as_bytes(target.released()))
    assert look(tmp_path) == ([], [])


@pytest.mark.parametrize("slug", sorted(p.name for p in (ROOT / "exercises").iterdir()))
def test_our_own_releases_have_no_findings(slug, tmp_path):
    from attn_course.grading.command import instructor_notebook

    place = tmp_path / "ada" / slug
    place.mkdir(parents=True)
    release = (ROOT / "exercises" / slug / f"{slug}.ipynb").read_bytes()
    (place / f"{slug}.ipynb").write_bytes(release)
    notebook = instructor_notebook(slug, ROOT, None)
    assert precheck(tmp_path, notebook=notebook, slug=slug) == ([], [])


def test_unreadable_missing_and_renamed(tmp_path):
    hand_in(tmp_path / "in", "cut", b'{"cells": [')
    hand_in(tmp_path / "in", "merged", b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> b\n")
    (tmp_path / "in/none/target").mkdir(parents=True)
    hand_in(tmp_path / "in", "other", target.as_bytes(target.honest()), "target-1.ipynb")
    hand_in(tmp_path / "in", "bom", b"\xef\xbb\xbf" + target.as_bytes(target.honest()))
    findings, written = look(tmp_path / "in", tmp_path / "out")
    assert {one.student: one.kind for one in findings} == {
        **{"cut": "unreadable", "merged": "unreadable", "none": "missing"},
        **{"other": "renamed", "bom": "encoding"},
    }
    assert "choose one side" in next(f.remedy for f in findings if f.student == "merged")
    assert written == ["bom", "other"]
    assert look(tmp_path / "out") == ([], [])


def test_fix_never_writes_where_submissions_are(tmp_path):
    place = hand_in(tmp_path / "in", "ada", changed(twice))
    (place / "timestamp.txt").write_text("2026-01-02 03:04:05 UTC")
    before = (place / "target.ipynb").read_bytes()
    for bad in (tmp_path / "in", tmp_path / "in/new", tmp_path):
        with pytest.raises(CollectError, match="--fix"):
            look(tmp_path / "in", bad)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(CollectError, match="empty folder"):
        look(tmp_path / "in", tmp_path / "full")
    look(tmp_path / "in", tmp_path / "out")
    assert (place / "target.ipynb").read_bytes() == before
    assert (tmp_path / "out/ada/target/timestamp.txt").read_text().startswith("2026")


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
    assert run(tmp_path / "in", "--fix", tmp_path / "out").exit_code == 0
    assert run(tmp_path / "out").exit_code == 0
    assert (
        json.loads(run(tmp_path / "in", "--json").output)["findings"][0]["kind"] == "duplicate id"
    )
    assert run(tmp_path / "nowhere").exit_code == 2
    hand_in(tmp_path / "in", "bob", changed(asks))
    assert run(tmp_path / "in", "--fix", tmp_path / "out2").exit_code == 1


@pytest.mark.nbgrader
def test_a_batch_that_stops_stock_nbgrader_grades_after_the_fix(tmp_path):
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

    hand_in(folder, "cleo", changed(old_schema))
    hand_in(folder, "dora", target.as_bytes(target.honest()), "my answers.ipynb")
    hand_in(folder, "eve", changed(MISTAKES["deleted_setup"][0]))
    look(folder, tmp_path / "mended")
    folder.rename(course / "as handed in")
    (tmp_path / "mended").rename(folder)
    done = nbgrader("autograde", "target")
    assert done.returncode == 0, done.stderr[-2000:]
    assert scores() == dict.fromkeys(["bob", "cleo", "dora", "eve", "zoe"], 10.0)
