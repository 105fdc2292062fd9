"""A run that is killed at any moment and repeated leaves what an undisturbed run leaves."""

import json
import os
import signal
import subprocess
import time

import classroom
import pytest

from attn_course.grading.collect import HandIn
from attn_course.grading.journal import Journal
from attn_course.grading.run import grade_class

COUNT = 24


def start(folder, *options):
    streams = {"stderr": subprocess.PIPE, "text": True}
    return classroom.started(folder, "--call-timeout", "30", *options, **streams)


def finish(process):
    _, said = process.communicate(timeout=240)
    return process.returncode, said


def content(folder):
    return classroom.content(f"sqlite:///{folder}/gradebook.db")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = classroom.course(tmp_path_factory.mktemp("whole"), COUNT)
    status, said = finish(start(folder))
    assert status == 1, said  # one submission is broken, one missing
    return folder


def test_ctrl_c_ends_with_130_and_a_rerun_goes_on(undisturbed, tmp_path):
    folder = classroom.course(tmp_path, COUNT)
    process = start(folder, "--workers", "2")
    while classroom.lines(folder) < 3:
        assert process.poll() is None
        time.sleep(0.0005)
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    status, said = finish(process)
    assert status == 130
    assert said.endswith("attn-course: interrupted; run the same command again to go on\n")
    assert "Traceback" not in said
    assert time.monotonic() - begun < 30
    assert 2 <= classroom.lines(folder) - 1 < COUNT - 1
    status, said = finish(start(folder, "--json", "marks.json"))
    assert status == 1, said
    assert content(folder) == content(undisturbed)
    marks = json.loads((folder / "marks.json").read_text())
    assert len(marks["submissions"]) == COUNT


def small(folder, **more):
    settings = {"notebook": classroom.as_bytes(classroom.notebook()), "slug": classroom.SLUG}
    return grade_class(
        more.pop("handed", classroom.handed(4)),
        **{**settings, "journal": folder / "journal.jsonl", "sandbox": True, **more},
    )


def test_a_truncated_line_is_graded_again_and_only_that(tmp_path):
    first = small(tmp_path)
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    graded = []
    again = small(tmp_path, progress=lambda r, *counts: graded.append(r.student))
    assert graded == [json.loads(whole.splitlines()[-1])["student"]]
    assert [(r.student, r.score, r.seed) for r in again] == [
        (r.student, r.score, r.seed) for r in first
    ]
    assert path.read_bytes().count(b"\n") == whole.count(b"\n")


GARBAGE = [b"", b"\n", b"[]\n", b"\xff\xfe\n", b'{"key": 1}\n', b"42"]
GARBAGE += [b'{"seed": 1}\n{"student": "s00"}\n']


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_journal_of_garbage_is_set_aside(tmp_path, garbage):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(garbage)
    with Journal(path, key="k", seed=5) as journal:
        assert (journal.results, journal.seed) == ({}, 5)
    with Journal(path, key="k") as journal:
        assert journal.seed == 5
    assert not garbage or path.with_name("journal.jsonl.old").read_bytes() == garbage


def test_a_line_of_another_shape_sets_the_journal_aside(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text(
        '{"key": "k", "seed": 3}\n{"student": "a", "file": "f", "result": {"old": 1}}\n'
    )
    with Journal(path, key="k") as journal:
        assert journal.results == {}


def test_a_changed_file_is_graded_again(tmp_path):
    small(tmp_path)
    handed = classroom.handed(4)
    handed[0] = HandIn(student="s00", data=classroom.answered(classroom.ANSWERS["half"]))
    graded = []
    again = small(tmp_path, handed=handed, progress=lambda r, *counts: graded.append(r.student))
    assert graded == ["s00"]
    assert {r.student: r.score for r in again}["s00"] == 3.0


def test_another_gradebook_is_filled_from_the_journal(tmp_path):
    """Deleting the gradebook, or naming another, must not leave it empty."""
    small(tmp_path, gradebook=f"sqlite:///{tmp_path}/one.db")
    graded = []
    other = f"sqlite:///{tmp_path}/two.db"
    small(tmp_path, gradebook=other, progress=lambda r, *counts: graded.append(r.student))
    assert graded == []
    assert classroom.content(other) == classroom.content(f"sqlite:///{tmp_path}/one.db")


def test_a_second_command_is_refused_with_one_line(undisturbed):
    key = classroom.journal(undisturbed)
    before = content(undisturbed)
    lines = key.read_bytes()
    with Journal(key, key="held", seed=1):
        status, said = finish(start(undisturbed))
    assert status == 2
    assert len(said.strip().splitlines()) == 1
    assert "another run is grading" in said
    key.write_bytes(lines)
    assert content(undisturbed) == before
