"""The built site, a server for it, and one Chromium for all pages."""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
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


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> Callable[[Book], None]:
    """A whole sweep of a book of one chapter, for which two seeds are enough here."""
    from bookbuild import sweep as module

    monkeypatch.setattr(module, "SEEDS", seeds := (0, 1))
    more = {"seeds": seeds, "sets": module.SETS, "workers": 2, "stale": False}
    return functools.partial(module.sweep, wanted=["00"], **more)


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
