"""The journal by itself: what makes a rerun begin again, and what a kill may leave."""

import dataclasses
import json

import classroom
import pytest

from attn_course.grading.journal import Journal, file_key, run_key
from attn_course.grading.results import Result
from attn_course.grading.sandbox import Limits


def result(student, score=1.0):
    return Result(
        student=student, assignment="small", status="graded", score=score, max_score=5.0, seed=3
    )


@pytest.fixture
def path(tmp_path):
    """A journal with two results."""
    found = tmp_path / "journal.jsonl"
    with Journal(found, key="k", seed=3) as journal:
        for student in ("ada", "bob"):
            journal.add(result(student), "file")
    return found


def known(path, key="k", **more):
    with Journal(path, key=key, **more) as journal:
        return sorted(journal.results)


def test_a_rerun_finds_what_was_kept_and_the_seed(path):
    with Journal(path, key="k") as journal:
        assert journal.seed == 3
        assert journal.results["ada"] == ("file", result("ada"))
        assert journal.has("ada", "file")
        assert not journal.has("ada", "another file")
        assert not journal.has("eve", "file")


@pytest.mark.parametrize(
    ("key", "more"), [("other", {}), ("k", {"seed": 4}), ("k", {"fresh": True})]
)
def test_another_run_begins_again_and_sets_the_old_one_aside(path, key, more):
    before = path.read_bytes()
    assert known(path, key, **more) == []
    assert path.with_name("journal.jsonl.old").read_bytes() == before
    assert known(path, key) == []


def test_a_line_cut_short_is_gone_before_the_next_one_is_written(path):
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"student": "eve", "fi')
    with Journal(path, key="k") as journal:
        journal.add(result("zoe"), "file")
    assert path.read_bytes().startswith(whole + b'{"student": "zoe"')
    assert known(path) == ["ada", "bob", "zoe"]
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_a_result_is_on_disk_as_soon_as_it_is_added(path):
    with Journal(path, key="k") as journal:
        journal.add(result("zoe"), "file")
        assert b'"zoe"' in path.read_bytes()


def test_the_key_of_a_run_changes_with_all_that_could_change_a_result(assignment):
    test = dataclasses.replace(assignment.tests[0], points=7.0)
    keys = [
        run_key(assignment, Limits(), sandbox=True),
        run_key(assignment, Limits(), sandbox=False),
        run_key(assignment, Limits(wall_seconds=61.0), sandbox=True),
        run_key(assignment, Limits(memory_bytes=1 << 20), sandbox=True),
        run_key(dataclasses.replace(assignment, tests=(test,)), Limits(), sandbox=True),
        run_key(dataclasses.replace(assignment, slug="other"), Limits(), sandbox=True),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == run_key(assignment, Limits(), sandbox=True)


def test_the_key_of_a_file_tells_a_missing_from_an_empty_and_from_an_unreadable_one():
    data = classroom.answered({})
    assert len({file_key(one) for one in (None, b"", "", data, data + b" ")}) == 5


def test_every_file_of_every_student_has_inputs_of_its_own(path):
    """Feedback names the seed, with which the inputs can be drawn at home."""
    asked = [("ada", "file"), ("zoe", "file"), ("ada", "second"), ("late-comer", "file")]
    with Journal(path, key="k") as journal:
        seeds = [journal.seed_of(*one) for one in asked]
        assert len({3, *seeds}) == 5
        journal.add(result("ada"), "second")
    for key in ("k", "changed points"):  # a run that was killed, and one that grades all again
        with Journal(path, key=key) as journal:
            assert [journal.seed_of(*one) for one in asked] == seeds
    assert journal.results == {}
    with Journal(path, key="changed points", fresh=True) as journal:
        assert not {journal.seed_of(*one) for one in asked} & set(seeds)


def test_a_seed_that_the_instructor_names_holds_for_every_file(path):
    with Journal(path, key="k", seed=3) as journal:
        assert journal.seed_of("ada", "second") == journal.seed_of("zoe", "file") == 3


def test_what_tells_a_later_seed_is_told_nobody(path):
    with Journal(path, key="k") as journal:
        mine = journal.seed_of("ada", "second")
    other = path.with_name("other.jsonl")
    with Journal(other, key="k") as journal:
        journal.add(result("ada"), "file")
        assert journal.seed_of("ada", "second") != mine
