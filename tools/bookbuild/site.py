"""Checks on the finished site: weight of each page, and nothing fetched from another host."""

import gzip
import json
import os
import re
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .common import Book, fail, say

LIMIT = 500 * 1024  # bytes a page may weigh, compressed, with everything it loads
CSS_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)['\"]?\s*\)|@import\s+['\"]([^'\"]+)")
#: Only these are fetched without a click; <a href> is not.
LOADS = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "embed": "src",
    "audio": "src",
    "video": "src",
    "object": "data",
    "use": "href",
    "image": "href",
}
#: Nearly every tag, most of them from formulas: it loads nothing unless a style in it does.
OTHER_TAG = re.compile(
    rf"</?(?!(?:{'|'.join(LOADS)}|link|style)\b)[a-z][a-z0-9-]*"
    r'(?:(?!url\()[^<>"\n]|"(?:(?!url\()[^"\n])*")*>'
)
LOADED_RELS = {"stylesheet", "icon", "preload", "modulepreload", "manifest"}


@dataclass(frozen=True)
class Reference:
    """Something that a page loads, and the line that says so."""

    url: str
    line: int


class Loads(HTMLParser):
    """Collects what a browser fetches for a page without being asked."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Reference] = []
        self._style = False

    def add(self, url: str | None) -> None:
        if url and not url.startswith(("data:", "#", "blob:")):
            self.found.append(Reference(url, self.getpos()[0]))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._style = tag == "style"
        if tag in LOADS:
            self.add(values.get(LOADS[tag]))
            for part in (values.get("srcset") or "").split(","):
                self.add(part.split()[0] if part.split() else None)
        if tag == "link" and LOADED_RELS & set((values.get("rel") or "").split()):
            self.add(values.get("href"))
        for found in CSS_URL.finditer(values.get("style") or ""):
            self.add(found[1] or found[2])

    def handle_data(self, data: str) -> None:
        if self._style:
            for found in CSS_URL.finditer(data):
                self.add(found[1] or found[2])

    def handle_endtag(self, tag: str) -> None:
        self._style = False


def loads(page: Path) -> list[Reference]:
    """What one HTML page loads directly."""
    parser = Loads()
    parser.feed(OTHER_TAG.sub("", page.read_text(encoding="utf-8")))
    return parser.found


def is_foreign(url: str) -> bool:
    """True for an address on another host."""
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme in {"http", "https"}


@cache
def weight(path: Path) -> int:
    """Bytes of a file as a server sends it: fonts and pictures are compressed already."""
    data = path.read_bytes()
    return (
        len(data)
        if path.suffix in {".woff2", ".png", ".jpg", ".gif", ".webp"}
        else len(gzip.compress(data, 6))
    )


def local_file(root: Path, base: Path, url: str) -> Path | None:
    """The file that a relative address names, None when it lies outside the site."""
    path = unquote(urlsplit(url).path)
    target = (root / path.lstrip("/") if path.startswith("/") else base.parent / path).resolve()
    return target if target.is_relative_to(root.resolve()) else None


def check_site(book: Book) -> dict[str, int]:
    """Weigh every page and refuse foreign or missing assets.

    Returns:
        Page to compressed bytes, also written to ``_build/weights.json``. Fonts are counted by
        the browser test, which sees those that a page really uses.
    """
    root, problems, weights = book.html, list[str](), dict[str, int]()
    for page in sorted(root.rglob("*.html")):
        name = page.relative_to(root).as_posix()
        if name.startswith(("_static/", "_notebooks/")):
            continue
        files = {page}
        for reference in loads(page):
            if is_foreign(reference.url):
                problems.append(f"{name}:{reference.line} loads {reference.url}")
                continue
            file = local_file(root, page, reference.url)
            if file is None or not file.is_file():
                problems.append(f"{name}:{reference.line} loads {reference.url}: no such file")
                continue
            if file.suffix != ".woff2":
                files.add(file)
        for file in files:
            if file.suffix == ".css":
                for found in CSS_URL.finditer(file.read_text(encoding="utf-8")):
                    url = found[1] or found[2]
                    if is_foreign(url):
                        problems.append(f"{name} loads {url} through {file.name}")
        weights[name] = sum(weight(file) for file in files)
        if weights[name] > LIMIT:
            problems.append(f"{name} weighs {weights[name] // 1024} KiB, more than {LIMIT // 1024}")
    (book.build / "weights.json").write_text(json.dumps(weights, indent=1))
    if problems:
        for problem in sorted(set(problems)):
            say(f"  {problem}")
        fail(f"{len(set(problems))} problems in {os.path.relpath(root)}, listed above")
    heaviest = max(weights, key=lambda name: weights[name])
    say(
        f"{len(weights)} pages, no foreign assets; heaviest {heaviest}: "
        f"{weights[heaviest] / 1024:.0f} KiB compressed, fonts apart"
    )
    return weights
