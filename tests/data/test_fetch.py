"""Downloads against a local server that behaves badly in one way at a time."""

import contextlib
import hashlib
import multiprocessing
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from pathlib import Path

import pytest

from attn_course.data import DataError, _download, _fetch
from attn_course.data._fetch import RemoteFile, fetch, state

CONTENT = bytes((7 * i * i + i // 251) % 256 for i in range(200_003))
CUT = 90_001


class Server:
    """Serves ``CONTENT``; ``behaviour`` and ``faults`` say what goes wrong, ``log`` what was asked.

    Args:
        behaviour: ``good``, ``cut`` (half of what was asked for, then the line drops), ``wrong``
            (as many other bytes), ``short`` (a small page, as a hotel's log-in page), ``no range``
            (always the whole file), ``no range cut``, ``bad range`` (206 with another start),
            ``404``, ``503``, ``long`` (more bytes, no length given).
        faults: How many answers go wrong before all goes well.
    """

    def __init__(self, behaviour: str, faults: int = 10**9) -> None:
        self.behaviour, self.faults, self.log = behaviour, faults, []
        self.share = lambda: 2
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/file.bin"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        self.log.append(asked)
        behaviour = self.behaviour if len(self.log) <= self.faults else "good"
        if behaviour in ("404", "503"):
            request.send_error(int(behaviour))
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        if behaviour.startswith("no range"):
            start = 0
        body = CONTENT[start:]
        if behaviour == "wrong":
            body = bytes(255 - byte for byte in body)
        if behaviour == "short":
            start, body = 0, b"<html>please log in</html>"
        if behaviour == "long":
            body = body + b"more"
        request.send_response(206 if start or (asked and behaviour == "bad range") else 200)
        if behaviour != "long":
            request.send_header("Content-Length", str(len(body)))
        if start:
            shown = 0 if behaviour == "bad range" else start
            last = len(CONTENT) - 1
            request.send_header("Content-Range", f"bytes {shown}-{last}/{len(CONTENT)}")
        request.end_headers()
        if behaviour.endswith("cut"):
            body = body[: len(body) // self.share()]
        with contextlib.suppress(ConnectionError):
            request.wfile.write(body)
        request.close_connection = True


@pytest.fixture
def serve():
    servers = []

    def start(behaviour: str, faults: int = 10**9) -> Server:
        servers.append(Server(behaviour, faults))
        return servers[-1]

    yield start
    for server in servers:
        server.http.shutdown()
        server.http.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(_fetch, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(_download, "_PAUSE", 0.0)
    monkeypatch.delenv("ATTN_COURSE_DATA", raising=False)
    return tmp_path / "cache"


def remote(url: str) -> RemoteFile:
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    return RemoteFile(path="set/file.bin", url=url, size=len(CONTENT), sha256=sha256)


def final(cache: Path, content: bytes | None = None, name: str = "file.bin") -> Path:
    """Where the file ends in this folder, written here if its content is given."""
    path = cache / "set" / name
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return path


def partial(cache: Path, content: bytes | None = None) -> Path:
    """The part that an earlier process has left."""
    return final(cache, content, "file.bin.partial")


def fails(server: "Server | str", message: str) -> None:
    with pytest.raises(DataError, match=message):
        fetch(remote(server if isinstance(server, str) else server.url))


def leftovers(cache: Path) -> set[str]:
    return {path.name for path in (cache / "set").iterdir()} - {"file.bin.lock"}


def test_fetch_downloads_once(serve, cache):
    server = serve("good")
    path = fetch(remote(server.url))
    assert (path, path.read_bytes()) == (final(cache), CONTENT)
    assert fetch(remote(server.url)) == path
    assert server.log == [None]
    assert leftovers(cache) == {"file.bin"}


def test_fetch_takes_up_a_cut_connection_in_the_same_call(serve, cache):
    server = serve("cut", faults=2)
    assert fetch(remote(server.url)).read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert server.log == [
        None, f"bytes={half}-", f"bytes={half + (len(CONTENT) - half) // 2}-",
    ]  # fmt: skip


@pytest.mark.parametrize(("part", "log"), [
    (CONTENT[:CUT], [f"bytes={CUT}-"]), (b"x" * CUT, [f"bytes={CUT}-", None]),
    (b"x" * len(CONTENT), None), (b"x" * (len(CONTENT) + 5), None),
], ids=["taken up", "of something else", "as long as the file", "longer"])  # fmt: skip
def test_fetch_goes_on_from_a_part_or_begins_again_if_it_is_wrong(serve, cache, part, log):
    partial(cache, part)
    server = serve("good")
    assert fetch(remote(server.url)).read_bytes() == CONTENT
    assert log in (None, server.log)
    assert leftovers(cache) == {"file.bin"}


@pytest.mark.parametrize("behaviour", ["no range", "bad range"])
def test_fetch_begins_again_when_the_server_ignores_the_range(serve, cache, behaviour):
    partial(cache, CONTENT[:CUT])
    server = serve(behaviour, faults=1)
    if behaviour == "bad range":
        # what arrives then is not what was asked for: it must not be appended
        with contextlib.suppress(DataError):
            fetch(remote(server.url))
    assert fetch(remote(server.url)).read_bytes() == CONTENT


@pytest.mark.parametrize("shares", [[2], [2, 5, 3]], ids=["at one place", "here and there"])
def test_fetch_gives_up_on_a_server_that_cuts_and_ignores_the_range(serve, cache, shares):
    server = serve("no range cut")
    server.share = cycle(shares).__next__
    fails(server, r"broke off \(\d+ of 200003 bytes have arrived\)")
    assert len(server.log) <= 5
    assert not final(cache).exists()


def test_fetch_never_keeps_wrong_bytes(serve, cache):
    fails(serve("wrong"), "wrong bytes: expected sha256 ")
    assert leftovers(cache) == set()


@pytest.mark.parametrize(("behaviour", "reason"), [
    ("404", "HTTP 404 Not Found"),
    ("503", "HTTP 503 Service Unavailable"),
    ("short", "expected 200003 bytes, the server has 26"),
    ("long", "expected 200003 bytes, the server sends more"),
])  # fmt: skip
def test_fetch_says_why_and_leaves_nothing_behind(serve, cache, behaviour, reason):
    server = serve(behaviour)
    fails(server, re.escape(reason))
    assert not final(cache).exists()
    assert not partial(cache).exists() or partial(cache).read_bytes() == b""
    server.behaviour = "good"
    assert fetch(remote(server.url)).read_bytes() == CONTENT


def test_fetch_keeps_the_part_when_something_else_answers(serve, cache):
    partial(cache, CONTENT[:CUT])
    server = serve("short")
    fails(server, "the server has 26")
    assert partial(cache).read_bytes() == CONTENT[:CUT]
    server.behaviour = "good"
    assert fetch(remote(server.url)).read_bytes() == CONTENT
    assert server.log[-1] == f"bytes={CUT}-"


def test_fetch_survives_an_error_of_the_server_that_passes(serve, cache):
    server = serve("503", faults=2)
    assert fetch(remote(server.url)).read_bytes() == CONTENT


def test_fetch_without_network_names_file_address_and_two_ways_out(cache):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    url = f"http://127.0.0.1:{port}/file.bin"
    with pytest.raises(DataError) as caught:
        fetch(remote(url))
    message = str(caught.value)
    assert "set/file.bin cannot be downloaded" in message
    for part in ("refused", url, "attn-course data fetch set", "ATTN_COURSE_DATA=FOLDER"):
        assert part in message
    assert not final(cache).exists()


def test_fetch_replaces_a_damaged_file_in_the_cache(serve, cache):
    final(cache, CONTENT[:-1])
    assert fetch(remote(serve("good").url)).read_bytes() == CONTENT


def test_fetch_prefers_the_named_folder_and_does_not_write_there(
    serve, cache, tmp_path, monkeypatch
):
    folder = tmp_path / "named"
    own = final(folder, CONTENT)
    monkeypatch.setenv("ATTN_COURSE_DATA", str(folder))
    server = serve("404")
    assert fetch(remote(server.url)) == own
    assert server.log == []

    own.unlink()
    server.behaviour = "good"
    assert fetch(remote(server.url)) == final(cache)
    assert list((folder / "set").iterdir()) == []


def test_fetch_refuses_another_file_in_the_named_folder(cache, tmp_path, monkeypatch):
    path = final(tmp_path, CONTENT[:-1] + b"!")
    monkeypatch.setenv("ATTN_COURSE_DATA", str(tmp_path))
    fails("http://127.0.0.1:1/file.bin", r"expected sha256 [0-9a-f]{64} \(200003 bytes\)")
    assert path.read_bytes() == CONTENT[:-1] + b"!"


def test_a_variable_that_names_no_folder_is_refused_before_any_download(
    serve, cache, tmp_path, monkeypatch
):
    monkeypatch.setenv("ATTN_COURSE_DATA", str(tmp_path / "nowhere"))
    server = serve("good")
    fails(server, r"ATTN_COURSE_DATA: expected a folder, got .*nowhere")
    assert server.log == []


def test_state_tells_a_whole_file_from_a_damaged_and_a_missing_one(cache):
    file = remote("http://127.0.0.1:1/file.bin")
    assert state(file) == "not yet"
    final(cache, CONTENT)
    assert state(file) == "here"
    for content in (CONTENT[:-1], CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])):
        final(cache, content)
        assert state(file) == "damaged"


def test_fetch_says_when_the_cache_cannot_be_written(serve, cache):
    cache.write_text("a file where the folder should be")
    fails(serve("good"), r"set/file\.bin cannot be stored")


def test_fetch_is_silent(serve, cache, capfd):
    fetch(remote(serve("cut", faults=1).url))
    assert capfd.readouterr() == ("", "")


def _fetch_in_process(url: str, cache: str, results: "multiprocessing.Queue[bool]") -> None:
    _fetch.cache_folder = lambda: Path(cache)
    results.put(fetch(remote(url)).read_bytes() == CONTENT)


def test_fetch_by_two_processes_at_once_downloads_once(serve, cache):
    server = serve("good")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=_fetch_in_process, args=(server.url, str(cache), results))
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    assert [results.get(timeout=60) for _ in processes] == [True] * 3
    for process in processes:
        process.join()
    assert server.log == [None]
