"""A run that is killed at any moment and repeated leaves what an undisturbed run leaves."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import classroom
import pytest

from attn_course.grading import command, pool
from attn_course.grading.journal import Journal, JournalError, file_key
from attn_course.grading.run import grade_class

COUNT = 24
# how often, and at how many moments at least; the command itself is killed in test_kills.py
KILLS = [(5, 3), pytest.param(20, 8, marks=pytest.mark.long)]
PROGRAM = [sys.executable, "-m", "attn_course.cli"]


class Fork:
    """A run in a fork of this warm process and in a group of its own: starts in milliseconds."""

    def __init__(self, folder):
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                os.setsid()
                os.chdir(folder)
                null = os.open("/dev/null", os.O_RDWR)
                for number in (0, 1, 2):
                    os.dup2(null, number)
                pool._zygotes.clear()
                status = run_grade(folder)
            finally:
                os._exit(status)
        self.status = None

    def poll(self):
        """The status when it has ended."""
        if self.status is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if found else None
        return self.status

    def wait(self):
        """The status, once it has ended."""
        while self.poll() is None:
            time.sleep(0.002)
        return self.status


def run_grade(folder):
    """What ``attn-course grade submitted --assignment small --seed 11`` calls."""
    return command.grade(
        Path("submitted"),
        slug=classroom.SLUG,
        root=folder,
        source=None,
        workers=1,
        scheduler=None,
        gradebook="sqlite:///gradebook.db",
        json_path=None,
        gradescope=None,
        csv_path=None,
        csv_form="plain",
        tests_only=False,
        feedback=None,
        timeout=60,
        call_timeout=30,
        seed=11,
        sandbox=True,
        fresh=False,
    )


def start(folder, *options):
    command = f"grade submitted --assignment {classroom.SLUG} --seed 11 --call-timeout 30"
    return subprocess.Popen(
        [*PROGRAM, *command.split(), *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(process):
    _, said = process.communicate(timeout=240)
    return process.returncode, said


def content(folder):
    return classroom.content(f"sqlite:///{folder}/gradebook.db")


def wait_for_line(process, journal, count):
    """Until the journal has that many lines; False when the run ended before."""
    while process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") >= count:
            return True
        time.sleep(0.0005)
    return False


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = classroom.course(tmp_path_factory.mktemp("whole"), COUNT)
    status, said = finish(start(folder))
    assert status == 1, said  # one submission is broken, one missing
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("count", "moments"), KILLS)
def test_killed_at_any_moment_and_run_again_nothing_is_lost_or_doubled(
    count, moments, undisturbed, tmp_path
):
    """SIGKILL to the whole process group: before, between and inside submissions and writes."""
    draw = random.Random(20_170_612)
    wanted = content(undisturbed)
    kills, finished, seen = 0, 0, set()
    while kills < count:
        folder = classroom.course(tmp_path / f"run{finished}", COUNT)
        journal = folder / ".attn-grading" / f"{classroom.SLUG}.jsonl"
        while True:
            lines = journal.read_bytes().count(b"\n") if journal.exists() else 0
            process = Fork(folder)
            # the next one to three results; then a moment later, inside a write or a submission
            if kills < count and wait_for_line(process, journal, lines + draw.randrange(0, 6)):
                time.sleep(draw.random() * draw.choice((0.002, 0.01, 0.05)))
            if kills < count and process.poll() is None:
                with contextlib.suppress(ProcessLookupError):  # it may just have ended by itself
                    os.killpg(process.pid, signal.SIGKILL)
                if process.wait() == 1:  # it ended first
                    break
                assert process.status == -signal.SIGKILL
                kills += 1
                seen.add(journal.read_bytes().count(b"\n") if journal.exists() else 0)
                continue
            assert process.wait() == 1
            break
        finished += 1
        assert content(folder) == wanted
    assert len(seen) >= moments, f"the kills fell on the same moments: {seen}"


def test_ctrl_c_ends_with_130_and_a_rerun_goes_on(undisturbed, tmp_path):
    folder = classroom.course(tmp_path, COUNT)
    journal = folder / ".attn-grading" / f"{classroom.SLUG}.jsonl"
    process = start(folder, "--workers", "2")
    assert wait_for_line(process, journal, 3)
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    status, said = finish(process)
    assert (status, said.strip().splitlines()[-1]) == (
        130,
        "attn-course: interrupted; run the same command again to go on",
    )
    assert "Traceback" not in said
    assert time.monotonic() - begun < 30
    done = journal.read_bytes().count(b"\n") - 1
    assert 2 <= done < COUNT - 1
    status, said = finish(start(folder, "--json", "marks.json"))
    assert status == 1, said
    assert content(folder) == content(undisturbed)
    marks = json.loads((folder / "marks.json").read_text())
    assert len(marks["submissions"]) == COUNT


@pytest.fixture
def here(monkeypatch):
    """All is graded in this process, with one jail: what is spread is test_pool.py's."""

    def graded(first, tasks, settings, *, workers):
        return (pool.grade_task(task, settings) for task in (first, *tasks))

    monkeypatch.setattr(pool, "run_processes", graded)


def small(folder, **more):
    settings = {"notebook": classroom.as_bytes(classroom.notebook()), "slug": classroom.SLUG}
    return grade_class(
        more.pop("handed", classroom.handed(4)),
        **{**settings, "journal": folder / "journal.jsonl", "sandbox": True, **more},
    )


@pytest.mark.usefixtures("here")
def test_a_truncated_line_is_graded_again_and_only_that(tmp_path):
    first = small(tmp_path)
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    graded = []
    again = small(tmp_path, progress=lambda result, done, total: graded.append(result.student))
    assert graded == [json.loads(whole.splitlines()[-1])["student"]]
    assert [(r.student, r.score, r.seed) for r in again] == [
        (r.student, r.score, r.seed) for r in first
    ]
    assert path.read_bytes().count(b"\n") == whole.count(b"\n")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\n",
        b"[]\n",
        b"\xff\xfe\n",
        b'{"key": 1}\n',
        b'{"seed": 1}\n{"student": "s00"}\n',
        b"42",
    ],
)
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


@pytest.mark.usefixtures("here")
def test_a_changed_file_is_graded_again(tmp_path):
    small(tmp_path)
    handed = classroom.handed(4)
    changed = [
        type(item)(student=item.student, data=classroom.answered(classroom.ANSWERS["half"]))
        if item.student == "s00"
        else item
        for item in handed
    ]
    graded = []
    again = small(
        tmp_path, handed=changed, progress=lambda result, done, total: graded.append(result.student)
    )
    assert graded == ["s00"]
    assert {r.student: r.score for r in again}["s00"] == 3.0
    assert file_key(None) != file_key(b"") != file_key("")


@pytest.mark.usefixtures("here")
def test_another_seed_assignment_or_limit_grades_everyone_again(tmp_path):
    first = small(tmp_path, seed=1)
    assert [r.seed for r in small(tmp_path)] == [r.seed for r in first], "no seed keeps the seed"
    assert {r.seed for r in small(tmp_path, seed=2)} == {2}


@pytest.mark.usefixtures("here")
def test_another_gradebook_is_filled_from_the_journal(tmp_path):
    """Deleting the gradebook, or naming another, must not leave it empty."""
    small(tmp_path, gradebook=f"sqlite:///{tmp_path}/one.db")
    graded = []
    small(
        tmp_path,
        gradebook=f"sqlite:///{tmp_path}/two.db",
        progress=lambda result, done, total: graded.append(result.student),
    )
    assert graded == []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        os.rename(tmp_path / f"{name}.db", tmp_path / name / "gradebook.db")
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_second_run_on_the_same_journal_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    with (
        Journal(path, key="k", seed=1),
        pytest.raises(JournalError, match="another run is grading"),
    ):
        Journal(path, key="k", seed=1)
    with Journal(path, key="k") as journal:
        assert journal.seed == 1


def test_a_second_command_is_refused_with_one_line(undisturbed):
    key = undisturbed / ".attn-grading" / f"{classroom.SLUG}.jsonl"
    before = content(undisturbed)
    lines = key.read_bytes()
    with Journal(key, key="held", seed=1):
        status, said = finish(start(undisturbed))
    assert status == 2
    assert len(said.strip().splitlines()) == 1
    assert "another run is grading" in said
    key.write_bytes(lines)
    assert content(undisturbed) == before
