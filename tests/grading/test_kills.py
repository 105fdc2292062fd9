"""The command itself, killed with SIGKILL and run again: the gradebook is as if never touched."""

import contextlib
import os
import random
import signal
import time

import classroom
import postgres
import pytest
from classroom import content, course, lines
from sqlalchemy import text

COUNT = 14
MANY = [("sqlite", 20), ("postgresql", 7)]
KILLS = [
    ("sqlite", 2),
    ("postgresql", 2),
    *(pytest.param(*m, marks=pytest.mark.long) for m in MANY),
]


@pytest.fixture
def new_book(request, tmp_path):
    """Addresses of empty gradebooks, by kind."""

    def made(kind):
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/book_{os.urandom(4).hex()}.db"
        return postgres.database(request.getfixturevalue("server"))

    return made


def start(folder, url):
    return classroom.started(folder, "--gradebook", url, stderr=(folder / "said.txt").open("ab"))


def killed(process, folder, draw):
    """Kill it at a random moment of its start, or of its work; False when it ended before."""
    target, until = lines(folder) + draw.randrange(0, 6), time.monotonic() + 120
    if draw.random() < 0.4:
        time.sleep(draw.random() * 1.5)
    else:
        while process.poll() is None and lines(folder) < target and time.monotonic() < until:
            time.sleep(0.0005)
        time.sleep(draw.random() * draw.choice((0.005, 0.05)))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait(timeout=60) == -signal.SIGKILL


def _the_comparison_can_fail(url, wanted):
    """A student too many, a mark lost, a row doubled: each is seen, and undone."""
    more = "UPDATE grade SET auto_score = auto_score + 1"
    ghost = "INSERT INTO student (id) VALUES ('ghost')"
    undone = ("DELETE FROM student WHERE id = 'ghost'", more.replace("+", "-"))
    for fault, undo in zip((ghost, more), undone, strict=True):
        for statement, same in ((fault, False), (undo, True)):
            with classroom.stock(url) as book:
                book.db.execute(text(statement))
            assert (content(url) == wanted) == same, statement


@pytest.mark.timeout(900)  # 25 starts of the program, on a machine that may be busy
@pytest.mark.parametrize(("kind", "count"), KILLS)
def test_the_command_killed_at_random_moments_and_run_again_loses_and_doubles_nothing(
    kind, count, new_book, tmp_path
):
    whole, url = course(tmp_path / "whole", COUNT), new_book(kind)
    assert start(whole, url).wait(timeout=240) == 1, (whole / "said.txt").read_text()
    wanted = content(url)
    assert [row for row in wanted if row[0] == "u-broken"]
    if kind == "sqlite":
        _the_comparison_can_fail(url, wanted)
    draw = random.Random(20_170_612)
    kills, round_number, progress = 0, 0, set()
    while kills < count:
        folder, url = course(tmp_path / f"run{round_number}", COUNT), new_book(kind)
        while kills < count and killed(start(folder, url), folder, draw):
            kills += 1
            progress.add(lines(folder))
        assert start(folder, url).wait(timeout=240) == 1, (folder / "said.txt").read_text()
        assert content(url) == wanted
        round_number += 1
    assert len(progress) >= min(4, count // 2), f"all kills at the same moments: {progress}"
