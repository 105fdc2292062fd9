"""Processes for one function: results in order, failures told, nothing left behind."""

import multiprocessing
import time

import pytest
import ring_cases
from refusals import refused

from attn_course.distributed import launch
from attn_course.distributed.check import check_groups


def test_results_come_in_the_order_of_ranks():
    assert launch(ring_cases.rank_and, 3, 7, timeout=60) == [(0, 3, 7), (1, 3, 7), (2, 3, 7)]


def test_one_failure_ends_all_and_is_told():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=r"process 1 failed:[\s\S]*KeyError: 'no such thing'"):
        launch(ring_cases.fail_in_one, 2, timeout=60)
    assert time.monotonic() - start < 50
    assert multiprocessing.active_children() == []


def test_a_process_that_hangs_is_ended():
    with pytest.raises(TimeoutError, match="timeout: expected all processes within 12 s"):
        launch(ring_cases.hang_in_one, 2, timeout=12)
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("unchecked")
def test_no_process_is_refused():
    refused("world_size: expected at least 1, got 0", launch, ring_cases.rank_and, 0, 7)


def test_the_check_that_pages_and_users_run_finds_no_difference():
    found = launch(check_groups, 2, (1, 2), timeout=100)
    for one in found:
        assert sorted(one) == [1, 2]
        for rows in one.values():
            assert len(rows) == 8
            assert max(max(row["output"], row["gradient"]) for row in rows) < 1e-12
