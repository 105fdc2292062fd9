"""Every test sees the package with its shapes checked, one thread, and a fixed seed."""

import os
import random
import re
import shutil
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import config, install_import_hook

# Before the first import of the package: jaxtyping annotations are checked on every call. The parts
# that run exercises spend three quarters of their time on it and leave it to `make unit`.
if os.environ.get("ATTN_TYPECHECK", "1") != "0":
    install_import_hook("attn_course", "typecheck.typecheck")

# Kernels run on a processor, through Triton's interpreter, which looks at this when a kernel is
# decorated. With a GPU, TRITON_INTERPRET=0 runs the same tests there.
os.environ.setdefault("TRITON_INTERPRET", "1")

torch.set_num_threads(1)

# A process in the background (nohup, a job without a terminal) ignores Ctrl-C from its start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The sets and files that take longest, most of all first: no worker is left alone with one.
LONGEST = (
    *("17_flash_attention", "test_check.py", "11_language_model", "19_many_devices"),
    *("15_hashing_and_low_rank", "07_scaled_dot_product", "18_banded_and_decode"),
    *("08_multi_head", "20_capstone", "14_sparse_attention", "13_vision_transformer"),
    *("test_boundary.py", "test_term.py", "test_pool.py", "test_resume.py", "test_kills.py"),
    *("test_hostile.py", "test_borders.py", "test_class.py", "test_neighbours.py"),
    "test_interactive.py",
)


def group_of(nodeid: str) -> str:
    """The exercise set of a test, or its file: what one worker tries, as it reads that once.

    A page of the site, or an explorer in a browser, is a group of its own.
    """
    path = nodeid.partition("::")[0]
    if path.endswith("/test_browser.py"):
        return nodeid
    found = re.search(r"\[.*?(\d\d_[a-z_0-9]+?)[-\]]", nodeid) if "/exercises/" in path else None
    return found[1] if found else path.rpartition("/")[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest groups first; the order of the others, and within a group, stays."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(group_of(item.nodeid), len(place)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups for ``--dist loadgroup``; the marks of xdist 3.8 have no effect in pytest 9.2."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


@pytest.fixture(autouse=True)
def seed() -> int:
    """The same random numbers for a test, whatever ran before it."""
    value = 20_170_612
    random.seed(value)
    np.random.seed(value)  # noqa: NPY002 - what older libraries draw from
    torch.manual_seed(value)
    return value


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Without the checks of shapes: Dynamo can't trace into them, and users have none."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """NumPy's generator for float64 inputs."""
    return np.random.default_rng(seed)


def chromium_path() -> str | None:
    """``$CHROMIUM``, one on PATH, or None for Playwright's own."""
    if given := os.environ.get("CHROMIUM"):
        return given
    names = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """One browser for the whole session; without one the tests fail, unless told to be left out."""
    if os.environ.get("ATTN_NO_BROWSER") == "1":
        pytest.skip("ATTN_NO_BROWSER=1: browser tests are left out on request")
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=chromium_path(), args=["--no-sandbox", "--disable-gpu"]
            )
        except Error as error:
            reason = str(error).strip().splitlines()[0]
            pytest.fail(
                "the browser tests need Chromium: install it (Debian: apt-get install chromium), "
                "set CHROMIUM=/path/to/it, or leave them out with ATTN_NO_BROWSER=1 "
                f"({reason})",
                pytrace=False,
            )
        yield browser
        browser.close()
