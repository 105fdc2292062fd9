"""``tools/book.py``: one clear line when something is missing, and a clean end."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from processes import python

ROOT = Path(__file__).resolve().parents[2]
TOOL = [sys.executable, str(ROOT / "tools" / "book.py")]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A book folder that looks built."""
    html = tmp_path / "book" / "_build" / "html"
    html.mkdir(parents=True)
    (html / "index.html").write_text("<h1>hello</h1>")
    (html / "host.js").write_text("export {}")
    return tmp_path / "book"


def only_line(*arguments: object) -> str:
    result = python(*TOOL[1:], *arguments, succeeds=False, timeout=60)
    assert result.returncode == 1, result.stdout + result.stderr
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("book: error: ")
    return line


def test_taken_port_is_one_line_that_says_what_to_do(site: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        line = only_line("serve", "--book", site, "--port", port)
    assert f"port {port} is taken" in line
    assert f"PORT={port + 1}" in line


def test_port_out_of_range_is_one_line(site: Path) -> None:
    assert "70000 is no port" in only_line("serve", "--book", site, "--port", "70000")


@pytest.mark.parametrize(("command", "contents", "said"), [
    ("serve", None, "make html"),
    ("html", None, "_toc.yml"),
    ("html", "root: [unclosed", "not valid YAML"),
    ("html", "root: intro", "intro.*does not exist"),
])  # fmt: skip
def test_what_is_missing_or_broken_is_one_line_that_names_it(tmp_path, command, contents, said):
    if contents is not None:
        (tmp_path / "_toc.yml").write_text(contents)
        (tmp_path / "_config.yml").write_text("title: x")
    assert re.search(said, only_line(command, "--book", tmp_path))


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for a child on Windows")
def test_serves_the_site_prints_the_address_and_ends_on_ctrl_c(site: Path) -> None:
    server = subprocess.Popen(
        [*TOOL, "serve", "--book", str(site), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        with urllib.request.urlopen(found[0], timeout=10) as answer:
            assert b"hello" in answer.read()
        with urllib.request.urlopen(f"{found[0]}/host.js", timeout=10) as answer:
            assert answer.headers["Content-Type"] == "text/javascript"
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=10)
    finally:
        server.kill()
    assert server.returncode == 0
    assert "Traceback" not in err
    assert "stopped" in out
