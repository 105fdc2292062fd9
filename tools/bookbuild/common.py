"""What every step of the book build shares: paths, the page list, one-line errors."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import yaml

ROOT = Path(__file__).resolve().parents[2]


def main_page(page: str) -> str:
    """``chapters/10_encoder_decoder/training`` belongs to ``chapters/10_encoder_decoder``."""
    return "/".join(page.split("/")[:2])


def slug(page: str) -> str:
    """Name of what is kept for a page: ``10_encoder_decoder``, ``10_encoder_decoder__training``."""
    return page.removeprefix("chapters/").replace("/", "__")


class BookError(Exception):
    """A failure that is told to the user in one line."""


def say(text: str) -> None:
    print(f"book: {text}", flush=True)


def fail(text: str) -> NoReturn:
    raise BookError(text)


def complain(text: str) -> None:
    sys.stdout.flush()
    print(f"book: error: {text}", file=sys.stderr, flush=True)


@contextmanager
def only_build(folder: Path) -> Iterator[None]:
    """Hold the build folder: two builds at once would spoil each other's files."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            import fcntl
        except ImportError:  # Windows
            yield
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fail(f"another build is at work in {folder}: wait for it, then run the command again")
        yield


@dataclass(frozen=True)
class Book:
    """One book: its sources, and the folders that a build fills.

    Args:
        source: folder with ``_config.yml`` and ``_toc.yml``.
        package: folder of the Python package that the pages import.
        lock: the file of exact versions; like the package it decides whether a page runs again.
        part: the start of a page's slug, such as ``07``: the book has these pages alone, in a site
            of its own.
    """

    source: Path = ROOT / "book"
    package: Path = ROOT / "attn_course"
    lock: Path = ROOT / "requirements.lock"
    part: str = ""

    @property
    def build(self) -> Path:
        return self.source / "_build" / (f"part_{self.part}" if self.part else "")

    @property
    def records(self) -> Path:
        """What long runs have left for the pages: ``attn_course.data.load_results``."""
        return self.package.parent / "experiments" / "results"

    @property
    def executed(self) -> Path:
        """The executed pages, each with the key of what it was made from."""
        return self.source / "_build" / "executed"

    @property
    def sweep(self) -> Path:
        """What every check gave under other seeds and instruction sets, one file a page."""
        return self.source / "sweep"

    @property
    def html(self) -> Path:
        return self.build / "html"

    @property
    def reports(self) -> Path:
        return self.build / "reports"

    @property
    def downloads(self) -> Path:
        """The book as one file: PDF, EPUB, and the site in a zip."""
        return self.build / "downloads"

    @property
    def notebooks(self) -> Path:
        """Where the notebooks for download, Binder and Colab are published."""
        return self.html / "_notebooks"

    @cached_property
    def config(self) -> dict[str, Any]:
        return self._yaml("_config.yml")

    @cached_property
    def toc(self) -> dict[str, Any]:
        return self._yaml("_toc.yml")

    @property
    def repository(self) -> str:
        """Address of the repository, which ``_config.yml`` sets."""
        return str(self.config["repository"]["url"]).rstrip("/")

    @property
    def site(self) -> str:
        """Address of the site: ``html: baseurl`` where one is set, else that of GitHub Pages."""
        owner, name = self.repository.split("/")[-2:]
        given = self.config.get("html", {}).get("baseurl", f"https://{owner}.github.io/{name}")
        return str(given).rstrip("/") + "/"

    @cached_property
    def pages(self) -> list[str]:
        """Page names in reading order, as in ``_toc.yml``: without suffix.

        Raises:
            BookError: no slug begins with ``part``.
        """
        found: list[str] = [self.toc["root"]]

        def walk(node: Any) -> None:
            if isinstance(node, dict):
                if "file" in node:
                    found.append(node["file"])
                for key in ("parts", "chapters", "sections", "subtrees", "entries"):
                    walk(node.get(key))
            elif isinstance(node, list):
                for item in node:
                    walk(item)

        walk(self.toc)
        names = [name.removesuffix(".md") for name in found]
        parts = [name for name in names if slug(name).startswith(self.part)]
        return parts or fail(f"no page's slug begins with {self.part}: 07, for example")

    def chapter(self, page: str) -> list[str]:
        """The pages of the chapter that a page belongs to, in reading order."""
        return [name for name in self.pages if main_page(name) == main_page(page)]

    def path(self, page: str) -> Path:
        path = self.source / f"{page}.md"
        if not path.is_file():
            fail(f"{self.source.name}/_toc.yml names {page}, but {path} does not exist")
        return path

    def _yaml(self, name: str) -> dict[str, Any]:
        path = self.source / name
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            fail(f"{path} is missing: is this a complete checkout?")
        except yaml.YAMLError as error:
            fail(f"{path} is not valid YAML: {' '.join(str(error).split())}")
        return dict(content)
