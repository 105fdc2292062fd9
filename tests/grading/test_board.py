"""What one grading process has learned, others know."""

import os
from collections.abc import Callable
from typing import Any

import classroom
import pytest
from test_replay import essence, executed  # noqa: F401

from attn_course.grading import board, verdict
from attn_course.grading.board import LENGTH, Board
from attn_course.grading.results import Result


@pytest.fixture
def files() -> Any:
    found = board.blank(3)
    yield found
    for file in found:
        os.close(file)


def test_everybody_reads_what_the_others_wrote_once_and_in_order(files: list[int]) -> None:
    one, two, three = (Board(files, own) for own in range(3))
    one.post("a")
    two.post({"b": [1, b"2"]})
    one.post("c")
    assert sorted(map(str, three.news())) == sorted(["a", "{'b': [1, b'2']}", "c"])
    assert list(two.news()) == ["a", "c"]
    assert list(three.news()) == list(two.news()) == []
    one.post("d")
    assert list(two.news()) == ["d"]
    assert list(one.news()) == [{"b": [1, b"2"]}]


def test_an_entry_that_is_not_finished_waits(files: list[int]) -> None:
    writer, reader = Board(files, 0), Board(files, 1)
    writer.post("whole")
    whole = os.pread(files[0], 1 << 16, 0)
    for cut in (1, LENGTH - 1, LENGTH, len(whole) - 1):
        os.ftruncate(files[2], 0)
        os.pwrite(files[2], whole[:cut], 0)
        assert list(Board(files[1:], 0).news()) == []
    assert list(reader.news()) == ["whole"]


NOTEBOOK = classroom.notebook(
    {"double": "def double(x):\n    return 2 * x"},
    {
        "double-one": "assert double(torch.ones(2)).tolist() == [2.0, 2.0]",
        "double-two": "assert double(torch.ones(3)).sum() == 6.0",
    },
    {},
)
WRONG = {"double": "def double(x):\n    return x"}


def test_a_process_knows_what_another_has_learned(
    grade: Callable[..., Result],
    executed: list[str],  # noqa: F811
    files: list[int],
    monkeypatch: Any,
) -> None:
    for answers, score in ({}, 2.0), (WRONG, 0.0):
        monkeypatch.setattr(verdict, "_known", {})
        monkeypatch.setattr(verdict, "_board", Board(files, 0))
        first = grade(NOTEBOOK, answers)
        assert (first.score, len(executed)) == (score, 2)
        executed.clear()
        monkeypatch.setattr(verdict, "_known", {})  # another process
        monkeypatch.setattr(verdict, "_board", Board(files, 1))
        assert essence(grade(NOTEBOOK, answers)) == essence(first)
        assert executed == []


def test_what_belongs_to_another_run_is_left(
    grade: Callable[..., Result],
    executed: list[str],  # noqa: F811
    files: list[int],
    monkeypatch: Any,
) -> None:
    for number in range(2):
        monkeypatch.setattr(verdict, "_known", {})
        monkeypatch.setattr(verdict, "_board", Board(files, number))
        executed.clear()
        assert grade(NOTEBOOK, seed=number).score == 2.0
        assert len(executed) == 2
