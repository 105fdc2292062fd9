"""One jail for the hostile suite, and canaries that it must never carry out."""

import contextlib
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import target
from canaries import shared_file

from attn_course.grading.sandbox import Zygote, sandbox_problem


@pytest.fixture(scope="session")
def canary():
    """A secret in the environment, in memory and on disk, where a spy would look first."""
    os.environ["ATTN_CANARY"] = target.CANARY
    places = [Path("/tmp/canary.txt"), Path.home() / "canary.ipynb", Path.cwd() / "build/canary.db"]
    with contextlib.ExitStack() as stack:
        for place in places:
            stack.enter_context(shared_file(place, target.CANARY))
        yield target.CANARY


@pytest.fixture(scope="session")
def zygote(canary):
    problem = sandbox_problem()
    assert problem is None, f"the hostile suite needs the jail: {problem}"
    with Zygote() as found:
        yield found


@pytest.fixture
def grade(zygote):
    ours = target.as_bytes(target.notebook())
    return lambda data, **more: target.graded(zygote, data, ours, **{"seed": 1234, **more})
