"""The built site, a server for it, and one Chromium for all pages."""

import functools
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from bookbuild.common import Book  # noqa: E402  the line above makes it importable


@pytest.fixture(scope="session")
def book() -> Book:
    return Book()


@pytest.fixture(scope="session")
def site(book: Book) -> Path:
    """The built site; its absence is a failure, since CI builds it first."""
    if not (book.html / "index.html").is_file():
        pytest.fail("there is no site in book/_build/html: run 'make html' first", pytrace=False)
    return book.html


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Address of a server that shows the site, ending in a slash."""
    from bookbuild.serve import Handler, Server

    with Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


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
