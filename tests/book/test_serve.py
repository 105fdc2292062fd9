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


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOOL, *arguments],
        capture_output=True, text=True, timeout=60, env={**os.environ, **environment},
    )  # fmt: skip


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 1, result.stdout + result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("book: error: ")
    return lines[0]


def test_taken_port_is_one_line_that_says_what_to_do(site: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        line = only_line(run("serve", "--book", str(site), "--port", str(port)))
    assert f"port {port} is taken" in line
    assert f"PORT={port + 1}" in line


def test_port_out_of_range_is_one_line(site: Path) -> None:
    assert "70000 is no port" in only_line(run("serve", "--book", str(site), "--port", "70000"))


def test_missing_site_is_one_line_that_names_the_command(tmp_path: Path) -> None:
    line = only_line(run("serve", "--book", str(tmp_path)))
    assert "make html" in line


def test_missing_sources_are_one_line(tmp_path: Path) -> None:
    line = only_line(run("html", "--book", str(tmp_path)))
    assert "_toc.yml" in line


def test_broken_settings_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "_toc.yml").write_text("root: [unclosed")
    line = only_line(run("html", "--book", str(tmp_path)))
    assert "not valid YAML" in line


def test_page_named_but_missing_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "_toc.yml").write_text("root: intro")
    (tmp_path / "_config.yml").write_text("title: x")
    line = only_line(run("html", "--book", str(tmp_path)))
    assert "intro" in line
    assert "does not exist" in line


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for a child on Windows")
def test_serves_the_site_prints_the_address_and_ends_on_ctrl_c(site: Path) -> None:
    server = subprocess.Popen(
        [*TOOL, "serve", "--book", str(site), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
        assert found is not None
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
