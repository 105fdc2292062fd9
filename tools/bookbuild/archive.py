"""The site in a zip that opens by double click.

Browsers load no module, worker or data from a file beside a page; they do from a ``data:`` address.
So pages of the zip hold their explorers, and the small language model lies in a script of its own.
"""

import base64
import json
import os
import re
import zipfile
from pathlib import Path

from .common import Book, fail, say

MODULE = re.compile(r'((?:src|data-module)=")((?:\.\./)*)_explorers/(\w+\.js)\?v=\w+"')
PRELOAD = re.compile(r'<link[^>]* rel="preload"[^>]*>')
BESIDE = re.compile(r"const beside = \(name\) => .*;")
ANSWERED = "llama_worker.js"  # what the course's language model answers
NOT_SHOWN = ("_sources/", "binder/", "downloads/", ".buildinfo", "objects.inv")


def data_url(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def opened_from_a_file(page: str, explorers: Path) -> str:
    """The page with its explorers in it."""
    script = ""

    def put(found: re.Match[str]) -> str:
        nonlocal script
        code = (explorers / found[3]).read_text(encoding="utf-8")
        if ANSWERED in code:
            script = f'<script defer src="{found[2]}_explorers/files.js"></script>'
            code, count = BESIDE.subn("const beside = (name) => globalThis.ATTN_FILES[name];", code)
            if count != 1:
                fail(f"{found[3]} asks for its files in a way that the zip does not know")
        return f'{found[1]}{data_url(code.encode(), "text/javascript")}"'

    page = PRELOAD.sub("", MODULE.sub(put, page))
    return page.replace("</head>", f"{script}</head>", 1)


def make_zip(book: Book) -> None:
    """Pack the site into ``_build/downloads``; its ``index.html`` opens the book."""
    if not (book.html / "index.html").is_file():
        fail(f"there is no site in {book.html}: run 'make html' first")
    explorers, file = book.html / "_explorers", book.downloads / "attention.zip"
    file.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(book.html.rglob("*")):
            name = path.relative_to(book.html).as_posix()
            if not path.is_file() or name.startswith(NOT_SHOWN):
                continue
            if path.suffix == ".html":
                text = opened_from_a_file(path.read_text(encoding="utf-8"), explorers)
                made.writestr(f"attention/{name}", text)
            else:
                made.write(path, f"attention/{name}")
        kinds = {
            "llama_worker.js": "text/javascript",
            "shakespeare.safetensors": "application/octet-stream",
        }
        there = {name: kind for name, kind in kinds.items() if (explorers / name).is_file()}
        files = {
            name: data_url((explorers / name).read_bytes(), kind) for name, kind in there.items()
        }
        made.writestr(
            "attention/_explorers/files.js", f"globalThis.ATTN_FILES = {json.dumps(files)};"
        )
    say(f"{os.path.relpath(file)}: {file.stat().st_size / 1e6:.1f} MB; unpack it, open index.html")
